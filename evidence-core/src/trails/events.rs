//! A trail's history: what was reported to it, read from the ledger, and what its artifacts did at run time.

use std::collections::{BTreeMap, VecDeque};

use futures_util::{Stream, TryStreamExt, stream};
use serde::Serialize;
use serde_json::{Value, json};

use crate::artifacts::record::Artifact;
use crate::artifacts::store::ArtifactRow;
use crate::attestations::record::{Attestation, Binding};
use crate::bounded::{Address, Description, FreeForm, List, ShortText};
use crate::compute::{LONG_JSON, MANY_EVALUATIONS};
use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::git::GitCommit;
use crate::id::Id;
use crate::name::{EnvironmentName, Fingerprint};
use crate::page::in_batches;
use crate::repos::record::{RepoInfo, VcsProvider};
use crate::service::{Context, Lasting};
use crate::snapshots::store::Run;
use crate::store::batch::distinct;
use crate::store::entry::StoredEntry;
use crate::store::error::{StoreError, StoreResult};
use crate::time::{Seconds, Timestamp};
use crate::trails::evaluation::EvaluatedTrail;
use crate::trails::record::Trail;
use crate::trails::store::TrailEntry;

/// Something that happened to a trail.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) at: Timestamp,
    /// Who did it; nothing for what an environment's report brought to light.
    pub(crate) by: Option<String>,
    pub(crate) what: TrailEventKind,
}

/// An event as answers carry it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventView {
    /// The organization's id.
    pub org_id: Id,
    /// The flow's id.
    pub flow_id: Id,
    /// The trail's id.
    pub trail_id: Id,
    /// When it happened, in epoch seconds.
    pub timestamp: Seconds,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The commit that was reported.
    pub git_commit_info: Option<Value>,
    /// The repository that it was reported from.
    pub repo_info: Option<EventRepo>,
    /// What only its type has.
    #[serde(flatten)]
    pub details: Value,
}

/// The repository that an event was reported from: absent parts are null.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EventRepo {
    /// The repo's id.
    pub inner_id: Option<Id>,
    /// The organization's id.
    pub org_id: Id,
    /// Its id at the host.
    pub repo_id: Option<ShortText>,
    /// Its name, with its owner.
    pub name: ShortText,
    /// Where it is.
    pub url: Address,
    /// The kind of host.
    pub provider: Option<VcsProvider>,
    /// What it is about.
    pub description: Option<Description>,
    /// The groups it lies in.
    pub namespace_path: Option<List<ShortText>>,
    /// Anything else.
    pub additional_info: Option<FreeForm>,
}

impl EventRepo {
    fn new(org_id: Id, info: RepoInfo, inner_id: Option<Id>) -> Self {
        let RepoInfo { name, url, id: repo_id, description, provider, namespace_path, additional_info } =
            info;
        Self { inner_id, org_id, repo_id, name, url, provider, description, namespace_path, additional_info }
    }
}

/// What can happen to a trail.
#[derive(Debug, Clone)]
pub(crate) enum TrailEventKind {
    Begun(Trail),
    Updated(Trail, Vec<String>),
    Artifact(Artifact),
    Attestation(Attestation),
    Started(RuntimeEvent),
    Stopped(RuntimeEvent),
}

/// An artifact that started or stopped running.
#[derive(Debug, Clone)]
pub(crate) struct RuntimeEvent {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) template_reference_name: String,
    pub(crate) environment: Id,
    pub(crate) environment_name: EnvironmentName,
    pub(crate) snapshot: u64,
}

/// Where and when these artifacts ran, by environment, fingerprint and time: first, and last ([`Limits::runs`]). Nowhere,
/// as far as a caller may know who does not see environments.
///
/// [`Limits::runs`]: crate::Limits::runs
pub(crate) async fn runs(fingerprints: &[Fingerprint], cx: &Context<'_>) -> Result<Vec<Run>> {
    if fingerprints.is_empty() || !cx.sees_environments()? {
        return Ok(Vec::new());
    }
    Ok(cx.store().runs(cx.org()?, fingerprints, cx.limits().runs).await?)
}

/// So many artifacts of a trail are asked about at once: each may have run often, in many environments.
pub(super) const ASKED: usize = 128;

/// Where and when the artifacts of a trail ran.
#[derive(Debug, Default)]
pub(crate) struct TrailRuns {
    /// In any order, at most [`Limits::trail_runs`].
    ///
    /// [`Limits::trail_runs`]: crate::Limits::trail_runs
    pub(crate) newest: Vec<Run>,
    /// Whether there are more than these.
    pub(crate) has_more: bool,
}

impl TrailRuns {
    async fn read(fingerprints: &[Fingerprint], cx: &Context<'_>) -> Result<Self> {
        let most = cx.limits().trail_runs;
        let mut found = Self::default();
        for part in fingerprints.chunks(ASKED) {
            found.newest.extend(runs(part, cx).await?);
            if found.newest.len() > most {
                let heavy = found.newest.len() > MANY_EVALUATIONS;
                found = cx.compute().run_if(heavy, move || found.limited(most)).await?;
            }
        }
        Ok(found)
    }

    /// So many of them, of which there are more.
    fn limited(mut self, most: usize) -> Self {
        self.newest.select_nth_unstable_by(most, |one, other| newness(other).cmp(&newness(one)));
        self.newest.truncate(most);
        Self { has_more: true, ..self }
    }
}

/// What makes one run newer than another: that it lasts, else when it ended. All else keeps them in one order.
fn newness(run: &Run) -> impl Ord + '_ {
    let (index, at) = run.until.unwrap_or(run.from);
    (run.until.is_none(), at, index, run.environment, &run.fingerprint)
}

/// The kinds of facts that are events of a trail.
const SHOWN: [&str; 4] = ["trail_begun", "trail_updated", "artifact_reported", "attestation_added"];

fn event(entry: StoredEntry) -> StoreResult<Option<Event>> {
    // A newer server beside this one may record what this one has no word for.
    if !SHOWN.contains(&entry.kind.as_str()) {
        return Ok(None);
    }
    let fact = serde_json::from_str(&entry.payload)
        .map_err(|error| StoreError::corrupt(format_args!("ledger entry {}: {error}", entry.index)))?;
    let what = match fact {
        Fact::TrailBegun { record } => TrailEventKind::Begun(record),
        Fact::TrailUpdated { record, changes } => TrailEventKind::Updated(record, changes),
        Fact::ArtifactReported { record } => TrailEventKind::Artifact(record),
        Fact::AttestationAdded { record } => TrailEventKind::Attestation(record),
        _ => return Ok(None),
    };
    Ok(Some(Event { at: entry.at, by: Some(entry.actor), what }))
}

/// What happened at run time to these artifacts, oldest first.
fn at_run_time(artifacts: &[ArtifactRow], runs: &[Run]) -> Vec<Event> {
    let name =
        |artifact: &ArtifactRow| (artifact.fingerprint.clone(), artifact.template_reference_name.clone());
    let names: BTreeMap<Fingerprint, String> = artifacts.iter().map(name).collect();
    let events = |run: &Run| {
        let moment = |snapshot| RuntimeEvent {
            fingerprint: run.fingerprint.clone(),
            template_reference_name: names.get(&run.fingerprint).cloned().unwrap_or_default(),
            environment: run.environment,
            environment_name: run.environment_name.clone(),
            snapshot,
        };
        let started = Event { at: run.from.1, by: None, what: TrailEventKind::Started(moment(run.from.0)) };
        let stopped =
            run.until.map(|(index, at)| Event { at, by: None, what: TrailEventKind::Stopped(moment(index)) });
        std::iter::once(started).chain(stopped)
    };
    let mut events: Vec<Event> = runs.iter().flat_map(events).collect();
    events.sort_by_key(|event| event.at);
    events
}

/// A trail and what it comes to, and where its events are told: the ledger, whose entries are read some at a time.
#[derive(Debug)]
pub(crate) struct History {
    /// The entries about it, oldest first.
    entries: Vec<TrailEntry>,
    /// What happened at run time, oldest first.
    moments: Vec<Event>,
    /// Where and when its artifacts ran, by environment, fingerprint and time.
    pub(crate) runs: Vec<Run>,
    /// Whether they ran more often.
    #[cfg_attr(not(feature = "pdf"), expect(dead_code, reason = "the PDF alone has a place to say so"))]
    pub(crate) has_more_runs: bool,
    /// The trail, evaluated by what was reported to it.
    pub(crate) evaluated: EvaluatedTrail,
    /// The ledger index of the newest fact about it.
    pub(crate) newest: u64,
}

impl History {
    /// The history of this trail, up to one instant.
    pub(crate) async fn read(trail: Id, cx: &Context<'_>) -> Result<Self> {
        let org = cx.org()?;
        let contents = cx.store().trail_contents(org, &[trail]).await?.pop();
        let contents = contents.ok_or_else(|| StoreError::corrupt("a trail cannot be read any more"))?;
        let newest = contents.newest();
        let mut entries = cx.store().trail_entries(org, trail).await?;
        // What came in between is no part of it.
        entries.retain(|entry| entry.index <= newest);
        let fingerprints = distinct(contents.artifacts.iter().map(|row| row.fingerprint.clone()));
        let TrailRuns { newest: mut runs, has_more: has_more_runs } =
            TrailRuns::read(&fingerprints, cx).await?;
        let template = cx.template(contents.trail.template).await?;
        let heavy = runs.len() + contents.evaluations(&template.template) > MANY_EVALUATIONS;
        let evaluate = move || {
            let place = |run: &Run| (run.environment, run.fingerprint.clone(), run.from.0);
            runs.sort_by_cached_key(place);
            let moments = at_run_time(&contents.artifacts, &runs);
            let evaluated = EvaluatedTrail::new(contents, template);
            Self { entries, moments, runs, has_more_runs, evaluated, newest }
        };
        cx.compute().run_if(heavy, evaluate).await
    }

    /// The bytes of what was reported, and of what is told of where it ran: each report tells all runs of its content.
    #[cfg(feature = "pdf")]
    pub(crate) fn bytes(&self) -> u64 {
        let mut ran: BTreeMap<&str, u64> = BTreeMap::new();
        for run in &self.runs {
            *ran.entry(run.fingerprint.as_str()).or_default() += 1;
        }
        let reports = self.evaluated.artifacts.iter().map(|report| report.fingerprint.as_str());
        let lines = reports.filter_map(|fingerprint| ran.get(fingerprint)).sum::<u64>();
        self.entries.iter().map(|entry| entry.bytes).sum::<u64>() + lines * RUN_BYTES
    }

    /// What happened, oldest first, read while it is asked for. A damaged event is left out.
    pub(crate) fn told(
        self,
        lasting: Lasting,
    ) -> (EvaluatedTrail, impl Stream<Item = Result<Event>> + Send + 'static) {
        let Self { entries, moments, evaluated, .. } = self;
        let chronicle = Chronicle { batches: batches(entries), moments: moments.into(), lasting };
        let events = stream::try_unfold(chronicle, |mut chronicle| async move {
            let part = chronicle.part().await?;
            Ok::<_, Error>(part.map(|events| (stream::iter(events.into_iter().map(Ok)), chronicle)))
        });
        (evaluated, events.try_flatten())
    }

    /// All that happened, oldest first.
    ///
    /// # Errors
    /// Why one of the events cannot be read.
    #[cfg(feature = "pdf")]
    pub(crate) async fn events(&self, cx: &Context<'_>) -> Result<Vec<Event>> {
        let mut events = Vec::with_capacity(self.entries.len());
        for indexes in batches(self.entries.clone()) {
            let part = Part::read(indexes, cx).await?;
            if let Some(damage) = part.damage {
                return Err(damage.into());
            }
            events.extend(part.events);
        }
        events.extend(self.moments.iter().cloned());
        events.sort_by_key(|event| event.at);
        Ok(events)
    }
}

/// Drawing where an artifact ran once takes about as much as so many bytes of what is reported.
#[cfg(feature = "pdf")]
const RUN_BYTES: u64 = 200;

/// More entries are not read at once.
const MAX_ENTRIES: usize = 512;

fn batches(entries: Vec<TrailEntry>) -> VecDeque<Vec<u64>> {
    in_batches(entries.into_iter().map(|entry| (entry.index, entry.bytes)), MAX_ENTRIES).into()
}

/// A history that is being told: time never goes back in a ledger.
struct Chronicle {
    batches: VecDeque<Vec<u64>>,
    moments: VecDeque<Event>,
    lasting: Lasting,
}

impl Chronicle {
    async fn part(&mut self) -> Result<Option<Vec<Event>>> {
        let Some(indexes) = self.batches.pop_front() else {
            return Ok((!self.moments.is_empty()).then(|| self.moments.drain(..).collect()));
        };
        let mut told = Vec::with_capacity(indexes.len());
        for event in Part::read(indexes, &self.lasting.context()).await?.events {
            while let Some(moment) = self.moments.pop_front_if(|moment| moment.at < event.at) {
                told.push(moment);
            }
            told.push(event);
        }
        Ok(Some(told))
    }
}

/// What some of a trail's ledger entries tell.
struct Part {
    events: Vec<Event>,
    /// Why the events are not all there, where one of them cannot be read.
    #[cfg_attr(not(feature = "pdf"), expect(dead_code, reason = "the PDF alone is whole or not at all"))]
    damage: Option<StoreError>,
}

impl Part {
    async fn read(indexes: Vec<u64>, cx: &Context<'_>) -> Result<Self> {
        let org = cx.org()?;
        let entries = cx.store().ledger_entries_at(org, &indexes).await?;
        let heavy = entries.iter().map(|entry| entry.payload.len()).sum::<usize>() > LONG_JSON;
        cx.compute().run_if(heavy, move || Self::of(&indexes, entries, org)).await
    }

    fn of(indexes: &[u64], entries: Vec<StoredEntry>, org: Id) -> Self {
        let mut entries: BTreeMap<u64, StoredEntry> =
            entries.into_iter().map(|entry| (entry.index, entry)).collect();
        let (mut events, mut damage) = (Vec::with_capacity(indexes.len()), None);
        for index in indexes {
            let lost = || StoreError::corrupt(format_args!("ledger entry {index} is missing"));
            match entries.remove(index).ok_or_else(lost).and_then(event) {
                Ok(told) => events.extend(told),
                Err(error) => {
                    tracing::warn!(organization = %org, index, %error, "a history leaves out a damaged event");
                    damage.get_or_insert(error);
                }
            }
        }
        Self { events, damage }
    }
}

impl Event {
    /// The event as answers carry it.
    pub(crate) fn view(&self, org: Id, flow: Id, trail: Id) -> EventView {
        EventView {
            org_id: org,
            flow_id: flow,
            trail_id: trail,
            timestamp: self.at.seconds(),
            kind: self.what.kind(),
            git_commit_info: self.what.commit().map(commit),
            repo_info: self.what.repo().map(|(info, id)| EventRepo::new(org, info.clone(), id)),
            details: self.what.details(org),
        }
    }
}

impl TrailEventKind {
    fn kind(&self) -> &'static str {
        match self {
            Self::Begun(_) => "trail_reported",
            Self::Updated(..) => "trail_updated",
            Self::Artifact(_) => "artifact_creation_reported",
            Self::Attestation(attestation) => match attestation.binding {
                Binding::Trail => "trail_attestation_reported",
                Binding::Artifact { .. } => "artifact_attestation_reported",
                Binding::Named { .. } => "trail_attestation_for_artifact_reported",
            },
            Self::Started(_) => "artifact_started_running",
            Self::Stopped(_) => "artifact_stopped_running",
        }
    }

    fn commit(&self) -> Option<&GitCommit> {
        match self {
            Self::Begun(trail) | Self::Updated(trail, _) => trail.git_commit_info.as_ref(),
            Self::Artifact(artifact) => artifact.git_commit_info.as_ref(),
            Self::Attestation(attestation) => attestation.git_commit_info.as_ref(),
            Self::Started(_) | Self::Stopped(_) => None,
        }
    }

    fn repo(&self) -> Option<(&RepoInfo, Option<Id>)> {
        match self {
            Self::Begun(trail) | Self::Updated(trail, _) => {
                trail.repo_info.as_ref().map(|info| (info, trail.repo_ids.last().copied()))
            }
            Self::Artifact(artifact) => artifact.repo_info.as_ref().map(|info| (info, artifact.repo)),
            Self::Attestation(attestation) => {
                attestation.repo_info.as_ref().map(|info| (info, attestation.repo))
            }
            Self::Started(_) | Self::Stopped(_) => None,
        }
    }

    fn details(&self, org: Id) -> Value {
        match self {
            Self::Begun(trail) => json!({
                "setting_user_id": trail.created_by.id,
                "trail_data_json": trail_data(org, trail),
            }),
            Self::Updated(trail, changes) => json!({
                "setting_user_id": trail.last_modified_by.id,
                "trail_data_json": trail_data(org, trail),
                "changes": changes,
            }),
            Self::Artifact(artifact) => json!({
                "artifact_fingerprint": artifact.fingerprint,
                "artifact_name": artifact.filename,
                "artifact_id": artifact.id,
                "template_reference_name": artifact.template_reference_name,
                "git_commit": artifact.git_commit.as_ref().map(AsRef::as_ref).unwrap_or_default(),
            }),
            Self::Attestation(attestation) => attested(attestation),
            Self::Started(moment) => {
                let mut details = moment.to_json();
                details["replica_number"] = json!(1);
                details
            }
            Self::Stopped(moment) => moment.to_json(),
        }
    }
}

impl RuntimeEvent {
    /// The artifact's name in the template, else the beginning of its fingerprint.
    pub(crate) fn artifact(&self) -> &str {
        match self.template_reference_name.as_str() {
            "" => self.fingerprint.as_str().get(..12).unwrap_or_default(),
            name => name,
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "artifact_fingerprint": self.fingerprint,
            "environment_id": self.environment,
            "environment_name": self.environment_name,
            "snapshot_index": self.snapshot,
            "template_reference_name": self.template_reference_name,
        })
    }
}

fn attested(attestation: &Attestation) -> Value {
    let mut details = json!({
        "attestation_type": attestation.kind,
        "is_compliant": attestation.is_compliant,
        "attestation_id": attestation.id,
        "template_reference_name": attestation.name,
        "is_reattestation": null,
    });
    match &attestation.binding {
        Binding::Trail => {}
        Binding::Artifact { fingerprint, target } => {
            details["artifact_fingerprint"] = json!(fingerprint);
            details["artifact_name"] = json!(target);
            details["target_artifact"] = json!(target);
        }
        Binding::Named { target, .. } => details["target_artifact"] = json!(target),
    }
    details
}

fn trail_data(org: Id, trail: &Trail) -> Value {
    json!({
        "org_id": org,
        "flow_id": trail.flow,
        "name": trail.name,
        "creating_user_id": trail.created_by.id,
        "description": trail.description,
        "git_commit_info": trail.git_commit_info.as_ref().map(commit),
        "template_id": trail.template_id,
        "origin_url": trail.origin_url,
        // A JSON text, as the hosted service answers it.
        "user_data": trail.user_data.to_string(),
        "repo_ids": trail.repo_ids,
    })
}

/// A commit inside an event: absent parts are null.
fn commit(commit: &GitCommit) -> Value {
    json!({
        "sha1": commit.sha1,
        "message": commit.message.as_deref().unwrap_or_default(),
        "author": commit.author.as_deref().unwrap_or_default(),
        "author_username": commit.author_username,
        "branch": commit.branch.as_deref().unwrap_or_default(),
        "timestamp": commit.timestamp.map(|at| at.0.seconds()),
        "url": commit.url.as_deref().unwrap_or_default(),
        "parents": commit.parents,
        "verified": commit.verified,
        "signature_state": commit.signature_state,
    })
}
