//! The log of an environment as a CSV file.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::LongText;
use crate::context::{Context, OwnedContext};
use crate::environments::events::{EXITED, STARTED, Window, description, named_repos, of_repos};
use crate::error::{Error, Result, at_most};
use crate::id::Id;
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{Csv, Method, Operation, csv_row};
use crate::snapshots::bound::Bound;
use crate::snapshots::expression::Expression;
use crate::snapshots::numbered_event::NumberedEvent;
use crate::snapshots::sources::{Sources, WithReplaced, in_parts};
use crate::snapshots::store::Event;
use crate::snapshots::timeline::Timeline;
use crate::snapshots::view::fingerprint;
use crate::time::SentSeconds;

/// Gets the log of an environment as a CSV file, oldest first: a row for each artifact that started running,
/// changed or stopped running. For a logical environment, contains the events of its members during their
/// membership. Cells that a spreadsheet could interpret as formulas are prefixed with an apostrophe. For
/// artifacts in several flows, cells have the values of all flows in the same order, separated by semicolons.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetEnvironmentAuditLog {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
    /// The start of the range, in epoch seconds. Earlier events are left out.
    pub from_timestamp: Option<SentSeconds>,
    /// The end of the range, in epoch seconds. Later events are left out.
    pub to_timestamp: Option<SentSeconds>,
    /// The kinds of events, separated by commas: `started`, `exited` and `changed`, which means all others.
    /// Without it, or if empty, returns all.
    pub event_types: Option<LongText>,
    /// The flows of the artifacts, separated by commas, at most 100. `no provenance` means artifacts that
    /// were reported to no flow. Without it, or if empty, returns all. A flow that does not exist is 404.
    pub flow_names: Option<LongText>,
    /// The repos of the artifacts' newest reports in a flow, separated by commas, at most 100. Without it, or
    /// if empty, returns all. Each must exist. If more than a thousand repos have one name, the first
    /// thousand count.
    pub repo_names: Option<LongText>,
}

const FLOW_NAMES: &str = "query.flow_names";

/// The most flows that a log can be narrowed to. Each is looked up by its name.
const MAX_FLOWS: usize = 100;

/// The value in `flow_names` for artifacts that were reported to no flow.
const NO_PROVENANCE: &str = "no provenance";

/// The header row.
const HEADINGS: [&str; 14] = [
    "timestamp",
    "environment",
    "snapshot",
    "event_type",
    "event",
    "description",
    "artifact_name",
    "fingerprint",
    "artifact_compliant",
    "snapshot_compliant",
    "flows",
    "trails",
    "git_commits",
    "commit_urls",
];

/// The most events in one query of event numbers. Fewer are read at once.
const EVENTS: u64 = 4096;

impl Operation for GetEnvironmentAuditLog {
    const NAME: &'static str = "get_env_auditlog";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/environments/{org}/{env_name}/auditlog";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets the log of an environment as a CSV file";
    const ANSWER_HEADERS: &'static [&'static str] = Csv::HEADERS;
    type Body = ();
    type Output = Csv;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let kinds = self.kinds()?;
        let timeline = Timeline::of(cx.environment(self.env_name.as_str()).await?, cx).await?;
        let repos = Vec::from_iter(named(self.repo_names.as_ref()));
        let repos = match repos.as_slice() {
            [] => None,
            names => Some(named_repos(names, "query.repo_names", cx).await?),
        };
        let flows = self.flows(cx).await?;
        let filter = Filter { kinds, flows, repos: repos.map(BTreeSet::from_iter) };
        let bound =
            |at: Option<SentSeconds>, otherwise| at.map_or(Bound::Snapshot(otherwise), |at| Bound::At(at.0));
        let window = Window::Between(
            bound(self.from_timestamp, Expression::Index(1)),
            bound(self.to_timestamp, Expression::Now),
        );
        let range = match window.snapshots(&timeline, cx).await? {
            Some(snapshots) => timeline.events_with(snapshots, cx).await?,
            None => None,
        };
        let file_name = format!("{}-{}-auditlog.csv", self.org, timeline.environment.record.name);
        let log = Arc::new(Log { timeline: Arc::new(timeline), filter, owned: cx.to_owned_context() });
        let (first, last) = range.unwrap_or((1, 0));
        let begins = (first..=last).step_by(usize::try_from(EVENTS).unwrap_or(usize::MAX));
        let read = move |begin: u64| {
            let log = Arc::clone(&log);
            async move { log.rows(begin, last.min(begin.saturating_add(EVENTS - 1))).await }
        };
        let rows = stream::iter(begins).then(read).try_flatten();
        let headings = stream::iter([Ok(csv_row(HEADINGS))]);
        Ok(Csv::new(file_name, headings.chain(rows)))
    }
}

/// Splits a comma-separated list.
fn named(list: Option<&LongText>) -> impl Iterator<Item = &str> {
    let names = list.map(LongText::as_str).unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty())
}

impl GetEnvironmentAuditLog {
    /// Returns the present names of the requested flows, and [`NO_PROVENANCE`] if requested.
    async fn flows(&self, cx: &Context<'_>) -> Result<BTreeSet<String>> {
        let names = BTreeSet::from_iter(named(self.flow_names.as_ref()));
        at_most(MAX_FLOWS, names.len(), FLOW_NAMES)?;
        let mut flows = BTreeSet::new();
        for name in names {
            flows.insert(match name {
                NO_PROVENANCE => name.to_owned(),
                _ => cx.flow(name).await.map_err(|error| error.named_by(FLOW_NAMES))?.record.name.to_string(),
            });
        }
        Ok(flows)
    }

    fn kinds(&self) -> Result<BTreeSet<Kind>> {
        let kind = |name: &str| {
            let known = Kind::ALL.into_iter().find(|kind| kind.as_str() == name);
            let text = || format!("'{name}' is no type of events: started, exited or changed");
            known.ok_or_else(|| Error::invalid("query.event_types", text()))
        };
        named(self.event_types.as_ref()).map(kind).collect()
    }
}

/// A kind of events that can be requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Started,
    Exited,
    Changed,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Started, Self::Exited, Self::Changed];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Started => STARTED,
            Self::Exited => EXITED,
            Self::Changed => "changed",
        }
    }

    fn of(annotation: &str) -> Self {
        match annotation {
            EXITED => Self::Exited,
            kind if kind.starts_with(STARTED) => Self::Started,
            _ => Self::Changed,
        }
    }
}

/// A filter of events. An empty set matches all.
struct Filter {
    kinds: BTreeSet<Kind>,
    flows: BTreeSet<String>,
    repos: Option<BTreeSet<Id>>,
}

impl Filter {
    /// Returns whether the event is about an artifact of one of the flows.
    fn admits(&self, event: &Event, sources: &Sources) -> bool {
        let of_flows = || {
            let mut from = event.instance.provenance.iter().filter_map(|from| sources.of(from));
            let known = from.any(|(flow, _)| self.flows.contains(flow));
            known || event.instance.provenance.is_empty() && self.flows.contains(NO_PROVENANCE)
        };
        self.flows.is_empty() || of_flows()
    }
}

/// The source of a log's rows.
struct Log {
    timeline: Arc<Timeline>,
    filter: Filter,
    owned: OwnedContext,
}

impl Log {
    /// Streams the rows of the events from one number to another, in parts.
    async fn rows(
        self: Arc<Self>,
        first: u64,
        last: u64,
    ) -> Result<impl Stream<Item = Result<Vec<u8>>> + Send + 'static> {
        let events = self.timeline.events(&Vec::from_iter(first..=last), self.owned.clone()).await?;
        Ok(events.and_then(move |events| {
            let log = Arc::clone(&self);
            async move { log.part(events).await }
        }))
    }

    /// Returns the rows of these events.
    async fn part(&self, mut events: Vec<NumberedEvent>) -> Result<Vec<u8>> {
        let cx = self.owned.context();
        let Filter { kinds, repos, .. } = &self.filter;
        events.retain(|one| kinds.is_empty() || kinds.contains(&Kind::of(&one.event.annotation().kind)));
        if let Some(repos) = repos {
            let of_repos = of_repos(&events, repos, &cx).await?;
            let is_of_them = |one: &NumberedEvent| {
                one.event
                    .instance
                    .fingerprint
                    .as_ref()
                    .is_some_and(|fingerprint| of_repos.contains(fingerprint))
            };
            events.retain(is_of_them);
        }
        let mut rows = Vec::new();
        for part in in_parts(events.into_iter().map(WithReplaced::new).collect(), &cx).await? {
            let sources = Sources::read(&part, &cx).await?;
            let admitted = part.iter().filter(|traced| self.filter.admits(&traced.item.event, &sources));
            rows.extend(admitted.flat_map(|traced| self.row(&traced.item, &sources, &cx)));
        }
        Ok(rows)
    }

    fn row(
        &self,
        NumberedEvent { event, index, at, compliant, member }: &NumberedEvent,
        sources: &Sources,
        cx: &Context<'_>,
    ) -> Vec<u8> {
        let Event { snapshot: (own_index, _), instance, .. } = event;
        let annotation = event.annotation();
        let flows = sources.flows_of(instance, &Default::default(), *own_index, cx);
        let joined = |text: fn(&crate::snapshots::sources::ArtifactFlow) -> &str| {
            Vec::from_iter(flows.iter().map(text)).join(";")
        };
        let verdict = match instance.compliant {
            Some(true) => "true",
            Some(false) => "false",
            None => "",
        };
        csv_row([
            at.to_string().as_str(),
            self.timeline.environment.record.name.as_str(),
            &index.to_string(),
            Kind::of(&annotation.kind).as_str(),
            &annotation.kind,
            &description(&annotation, member.as_ref()),
            &instance.name,
            &fingerprint(instance),
            verdict,
            if *compliant { "true" } else { "false" },
            &joined(|flow| &flow.flow_name),
            &joined(|flow| flow.trail_name.as_deref().unwrap_or_default()),
            &joined(|flow| &flow.git_commit),
            &joined(|flow| &flow.commit_url),
        ])
    }
}
