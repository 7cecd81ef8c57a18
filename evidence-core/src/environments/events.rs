//! The log of an environment: artifacts that started running, changed and stopped running.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::{TryStreamExt, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText};
use crate::context::Context;
use crate::error::{Error, Resource, Result, at_most};
use crate::id::Id;
use crate::name::{EnvironmentName, Fingerprint, OrgName};
use crate::operation::paging::PageHeaders;
use crate::operation::{JsonList, Method, Operation, WithHeaders};
use crate::page::{Page, PageNumber, PerPage, SortDirection};
use crate::repos::operations::MAX_CHOSEN;
use crate::snapshots::bound::Bound;
use crate::snapshots::expression::{Expression, Interval, InvalidInterval};
use crate::snapshots::numbered_event::NumberedEvent;
use crate::snapshots::operations as snapshots;
use crate::snapshots::record::Annotation;
use crate::snapshots::sources::ArtifactFlow;
use crate::snapshots::sources::{Sources, WithReplaced, with_replaced_in_parts};
use crate::snapshots::store::Event;
use crate::snapshots::timeline::Timeline;
use crate::snapshots::view::{annotation, fingerprint};
use crate::store::batch::distinct;
use crate::time::{Seconds, SentSeconds, Timestamp};

/// Lists the events of an environment, newest first, one page at a time: artifacts that started running,
/// changed or stopped running. Headers have the total number of events, and links to other pages. For a
/// logical environment, contains the events of its members during their membership; joining and leaving are
/// not events.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListEnvironmentEvents {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Events per page. Defaults to 15.
    pub per_page: Option<PerPage<100>>,
    /// The snapshots whose events are listed: one snapshot expression, or two separated by `..`, such as
    /// `5..10` or `~5..NOW`. `start` and `end` are alternatives, and take precedence.
    pub interval: Option<ShortText>,
    /// Whether to sort oldest first.
    pub reverse: Option<bool>,
    /// Returns only events of artifacts whose newest report in a flow is from a repo of this name.
    /// Repeatable; any may match. Each must exist. If more than a thousand repos have one name, the first
    /// thousand count. For a logical environment, this is 400.
    #[serde(default)]
    pub repo_name: List<ShortText, MAX_REPO_NAMES>,
    /// The start of the list, in epoch seconds: the first snapshot at this time or later. Takes precedence
    /// over `start`.
    pub start_ts: Option<SentSeconds>,
    /// The end of the list, in epoch seconds: the last snapshot at this time or before. Takes precedence over
    /// `end`.
    pub end_ts: Option<SentSeconds>,
    /// The start of the list: a snapshot expression (`5`, `-2`, `~3`), or a time ago (`1hour`, `2days`,
    /// `30mins`). Defaults to `1`.
    pub start: Option<ShortText>,
    /// The end of the list, in the same form as `start`. Defaults to `NOW`.
    pub end: Option<ShortText>,
}

const DEFAULT_PER_PAGE: u64 = 15;

impl Operation for ListEnvironmentEvents {
    const NAME: &'static str = "get_env_events";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/environments/{org}/{env_name}/events";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the events of an environment";
    const ANSWER_HEADERS: &'static [&'static str] = PageHeaders::NAMES;
    type Body = ();
    type Output = WithHeaders<JsonList<EventView>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let window = self.window()?;
        let timeline = Timeline::of(cx.environment(self.env_name.as_str()).await?, cx).await?;
        if timeline.is_logical() && !self.repo_name.0.is_empty() {
            let text =
                "Events of a logical environment cannot be filtered by repo: list those of its members";
            return Err(Error::invalid("query.repo_name", text));
        }
        let repos = self.repos(cx).await?;
        let range = match window.snapshots(&timeline, cx).await? {
            Some(snapshots) => timeline.events_with(snapshots, cx).await?,
            None => None,
        };
        let (page, per_page) =
            (self.page.unwrap_or_default(), self.per_page.map_or(DEFAULT_PER_PAGE, PerPage::get));
        let request = page.request(per_page);
        let is_ascending = self.reverse.unwrap_or_default();
        let found = match (range, repos) {
            (None, _) => Page { items: Vec::new(), total: 0 },
            (Some((first, last)), None) => {
                let mut items = Vec::from_iter(snapshots::page((first, last), is_ascending, request));
                if !is_ascending {
                    items.reverse();
                }
                Page { items, total: last - first + 1 }
            }
            (Some((first, last)), Some(repos)) => {
                let direction = if is_ascending { SortDirection::Asc } else { SortDirection::Desc };
                let range = (first..=last, direction);
                cx.store()
                    .event_numbers(cx.org()?, timeline.environment.record.id, range, &repos, request)
                    .await?
            }
        };
        let address = format!("environments/{}/{}/events", self.org, timeline.environment.record.name);
        let [start_ts, end_ts] = [self.start_ts, self.end_ts].map(|at| at.map(|at| at.0.decimal()));
        let headers = PageHeaders {
            address: cx.api_url(&address),
            query: self.query(start_ts.as_deref(), end_ts.as_deref()),
            page,
            per_page,
            total: found.total,
        };
        let headers = headers.headers()?;
        let name = Arc::new(timeline.environment.record.name.clone());
        let (owned, showing) = (cx.to_owned_context(), cx.to_owned_context());
        let events = Arc::new(timeline).events(&found.items, owned.clone()).await?;
        let traced = move |events| {
            with_replaced_in_parts(events, |one: &NumberedEvent| one.event.environment, owned.clone())
        };
        let show = move |(part, sources): (Vec<_>, _)| {
            let cx = showing.context();
            let views = part.into_iter().map(|traced| view(traced, &name, &sources, &cx));
            stream::iter(Vec::from_iter(views))
        };
        let views = events.map_ok(traced).try_flatten().map_ok(show).try_flatten();
        let reply = JsonList::with_first_item(views, (), &cx.compute()).await?;
        Ok(WithHeaders { headers, reply })
    }
}

impl ListEnvironmentEvents {
    fn window(&self) -> Result<Window> {
        let bad = |field: &str, bad: InvalidInterval| Error::invalid(field, bad.to_string());
        let bound = |field, text: &Option<ShortText>, otherwise| match text {
            Some(text) => Bound::parse(text).map_err(|error| bad(field, error)),
            None => Ok(Bound::Snapshot(otherwise)),
        };
        let interval = Interval::parse(self.interval.as_deref().unwrap_or_default());
        let interval = interval.map_err(|error| bad("query.interval", error))?;
        let start = bound("query.start", &self.start, Expression::Index(1))?;
        let end = bound("query.end", &self.end, Expression::Now)?;
        let has_bounds =
            self.start.is_some() || self.end.is_some() || self.start_ts.is_some() || self.end_ts.is_some();
        if interval != Interval::Everything && !has_bounds {
            return Ok(Window::Interval(interval));
        }
        let at = |sent: Option<SentSeconds>, bound| sent.map_or(bound, |SentSeconds(at)| Bound::At(at));
        Ok(Window::Between(at(self.start_ts, start), at(self.end_ts, end)))
    }

    /// Returns the repos that the list is narrowed to.
    async fn repos(&self, cx: &Context<'_>) -> Result<Option<Vec<Id>>> {
        let names = Vec::from_iter(self.repo_name.0.iter().map(ShortText::as_str));
        if names.is_empty() { Ok(None) } else { named_repos(&names, "query.repo_name", cx).await.map(Some) }
    }

    /// Returns the parameters except the page, for links.
    fn query<'a>(
        &'a self,
        start_ts: Option<&'a str>,
        end_ts: Option<&'a str>,
    ) -> Vec<(&'static str, &'a str)> {
        let reverse = self.reverse.map(|reverse| if reverse { "true" } else { "false" });
        let given = [
            ("interval", self.interval.as_deref().filter(|interval| !interval.is_empty())),
            ("reverse", reverse),
            ("start_ts", start_ts),
            ("end_ts", end_ts),
            ("start", self.start.as_deref()),
            ("end", self.end.as_deref()),
        ];
        let repos = self.repo_name.0.iter().map(|name| ("repo_name", name.as_str()));
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).chain(repos).collect()
    }
}

/// The most repo names in one request.
pub(super) const MAX_REPO_NAMES: usize = 100;

/// Returns the ids of the repos with these names. Each name must exist.
pub(super) async fn named_repos(names: &[&str], field: &'static str, cx: &Context<'_>) -> Result<Vec<Id>> {
    at_most(MAX_REPO_NAMES, names.len(), field)?;
    let named = cx.store().repos_named(cx.org()?, names, MAX_CHOSEN).await?;
    match names.iter().find(|name| !named.iter().any(|(known, _)| known == *name)) {
        Some(unknown) => Err(cx.missing(Resource::Repo, *unknown).named_by(field).into()),
        None => Ok(named.into_iter().map(|(_, id)| id).collect()),
    }
}

/// Returns the artifacts of these events that come from one of these repos, by the rule of
/// [`event_numbers`](crate::snapshots::SnapshotStore::event_numbers).
pub(super) async fn of_repos(
    events: &[NumberedEvent],
    repos: &BTreeSet<Id>,
    cx: &Context<'_>,
) -> Result<BTreeSet<Fingerprint>> {
    let fingerprints = distinct(events.iter().filter_map(|one| one.event.instance.fingerprint.clone()));
    if fingerprints.is_empty() {
        return Ok(BTreeSet::new());
    }
    let origins = cx.store().provenance(cx.org()?, &fingerprints, u64::MAX).await?;
    let reports = origins.into_iter().map(|origin| origin.report);
    let of_repos = reports.filter(|report| report.repo.is_some_and(|repo| repos.contains(&repo)));
    Ok(of_repos.map(|report| report.fingerprint).collect())
}

/// A range of an environment's snapshots.
pub(super) enum Window {
    /// The snapshots of an interval.
    Interval(Interval),
    /// The snapshots from one bound to another.
    Between(Bound, Bound),
}

impl Window {
    /// Returns the first and the last of the existing snapshots in the range.
    pub(super) async fn snapshots(
        &self,
        timeline: &Timeline,
        cx: &Context<'_>,
    ) -> Result<Option<(u64, u64)>> {
        let (start, end) = match self {
            Self::Interval(interval) => return timeline.range(interval, cx).await,
            Self::Between(start, end) => (start, end),
        };
        let first = match start.time(cx.now()) {
            Ok(time) => {
                timeline.at(Timestamp::from_micros(time.as_micros().saturating_sub(1)), cx).await? + 1
            }
            Err(expression) => index(timeline, expression, cx).await?.max(1),
        };
        let last = match end.time(cx.now()) {
            Ok(time) => timeline.at(time, cx).await?,
            Err(expression) => index(timeline, expression, cx).await?.min(timeline.count()),
        };
        Ok((first <= last).then_some((first, last)))
    }
}

impl Bound {
    /// Returns the time of the bound, or its snapshot expression.
    fn time(&self, now: Timestamp) -> Result<Timestamp, &Expression> {
        match self {
            Self::Snapshot(expression) => Err(expression),
            Self::Ago(distance) => Ok(Timestamp::from_micros(now.as_micros().saturating_sub(*distance))),
            Self::At(time) => Ok(*time),
        }
    }
}

/// Returns the number that an expression resolves to; 0 before the first snapshot.
async fn index(timeline: &Timeline, expression: &Expression, cx: &Context<'_>) -> Result<u64> {
    Ok(u64::try_from(timeline.resolve(expression, cx).await?).unwrap_or_default())
}

/// An event of an artifact in an environment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "GetEnvironmentEventResponse")]
#[non_exhaustive]
pub struct EventView {
    /// The environment's name.
    pub environment_name: EnvironmentName,
    /// The number of the snapshot that recorded it.
    pub snapshot_index: u64,
    /// The artifact's name, as the environment knows it.
    pub artifact_name: String,
    /// Its SHA-256; empty for an artifact without a digest.
    pub sha256: String,
    /// The event as a sentence.
    pub description: String,
    /// When that snapshot was taken, in epoch seconds.
    pub reported_at: Seconds,
    /// The name of the first of `flows`; empty without one.
    pub pipeline: String,
    /// Retired; always empty.
    pub deployments: [(); 0],
    /// The flows that the artifact was reported to.
    pub flows: Vec<EventFlow>,
    /// Whether the artifact was allowed to run; null if no policy evaluated it.
    pub artifact_compliance: Option<bool>,
    /// Whether all artifacts in the snapshot were allowed to run; false without policies.
    pub snapshot_compliance: bool,
    /// `started-compliant`, `started-non-compliant`, `started-unknown`, `exited`, `became-compliant`,
    /// `became-non-compliant`, `updated-provenance` or `changed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For a started artifact, the link to compare its commit with that of the artifact it replaced. Null if
    /// that is not known.
    pub code_diff: Option<String>,
    /// Links to further information.
    pub _links: EventLinks,
}

/// A flow that an artifact was reported to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "GetEnvironmentEventFlow")]
#[non_exhaustive]
pub struct EventFlow {
    /// The flow's name.
    pub flow_name: String,
    /// Retired; always null.
    pub deployments: (),
}

/// Links to further information about an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EventLinks {
    /// The artifact in the first of `flows`; null without one.
    pub artifact: Option<EventLink>,
    /// The snapshot.
    pub snapshot: EventLink,
}

/// Two URLs of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EventLink {
    /// Its URL in this API.
    #[serde(rename = "self")]
    pub this: String,
    /// The URL of its page.
    pub html: String,
}

impl Event {
    /// Returns the kind of the event, with the states before and after.
    pub(super) fn annotation(&self) -> Annotation {
        annotation(&self.instance, self.exited, self.snapshot.0)
    }
}

fn view(
    WithReplaced { item: NumberedEvent { event, index, at, compliant, member }, replaced }: WithReplaced<
        NumberedEvent,
    >,
    environment: &EnvironmentName,
    sources: &Sources,
    cx: &Context<'_>,
) -> Result<EventView> {
    let org = &cx.org_access()?.name;
    let annotation = event.annotation();
    let description = description(&annotation, member.as_ref());
    let Event { snapshot: (own_index, _), instance, .. } = event;
    let flows = sources.flows_of(&instance, &replaced, own_index, cx);
    let first = flows.first();
    let began = annotation.kind.starts_with(STARTED);
    let diff = first.and_then(|flow| flow.deployment_diff.as_ref()).filter(|_| began);
    let artifact = first.map(|flow| EventLink {
        this: cx.api_url(&format!(
            "artifacts/{org}/{}/fingerprint/{}",
            flow.flow_name,
            fingerprint(&instance)
        )),
        html: flow.html_url.clone(),
    });
    let snapshot = EventLink {
        this: cx.api_url(&format!("snapshots/{org}/{environment}/{index}")),
        html: cx.page_url(&format!("environments/{environment}/snapshots/{index}")),
    };
    Ok(EventView {
        environment_name: environment.clone(),
        snapshot_index: index,
        description,
        reported_at: at.seconds(),
        pipeline: first.map(|flow| flow.flow_name.clone()).unwrap_or_default(),
        deployments: [],
        code_diff: diff.map(|diff| diff.diff_url.clone()).filter(|url| !url.is_empty()),
        flows: flows.iter().map(event_flow).collect(),
        artifact_compliance: instance.compliant,
        snapshot_compliance: compliant,
        kind: annotation.kind,
        _links: EventLinks { artifact, snapshot },
        sha256: fingerprint(&instance),
        artifact_name: instance.name,
    })
}

fn event_flow(flow: &ArtifactFlow) -> EventFlow {
    EventFlow { flow_name: flow.flow_name.clone(), deployments: () }
}

/// The prefix of the kinds of events in which an artifact started running.
pub(super) const STARTED: &str = "started";

/// The kind of events in which an artifact stopped running.
pub(super) const EXITED: &str = "exited";

/// Returns the event as a sentence. In a logical environment, it names the member.
pub(super) fn description(
    Annotation { kind, was, now }: &Annotation,
    member: Option<&EnvironmentName>,
) -> String {
    let instances =
        |count: u64| if count == 1 { "1 instance".to_owned() } else { format!("{count} instances") };
    let place = member.map(|member| format!(" in {member}")).unwrap_or_default();
    if kind.starts_with(STARTED) {
        format!("{} started running{place} (from {was} to {now})", instances(*now))
    } else if kind == EXITED {
        format!("{} stopped running{place} (from {was} to {now})", instances(*was))
    } else {
        format!("{} changed{place}", instances(*now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_in_a_sentence() {
        let table = [
            ("started-compliant", 0, 1, "1 instance started running (from 0 to 1)"),
            ("started-unknown", 0, 3, "3 instances started running (from 0 to 3)"),
            ("exited", 2, 0, "2 instances stopped running (from 2 to 0)"),
            ("exited", 1, 0, "1 instance stopped running (from 1 to 0)"),
            ("changed", 3, 3, "3 instances changed"),
            ("became-compliant", 1, 1, "1 instance changed"),
        ];
        for (kind, was, now, told) in table {
            assert_eq!(description(&Annotation { kind: kind.to_owned(), was, now }, None), told);
        }
        let (started, member) =
            (Annotation { kind: EXITED.to_owned(), was: 1, now: 0 }, "eu".parse().unwrap());
        let told = "1 instance stopped running in eu (from 1 to 0)";
        assert_eq!(description(&started, Some(&member)), told);
    }
}
