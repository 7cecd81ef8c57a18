//! The history of a trail: its reports, read from the ledger, and the runs of its artifacts.

mod view;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use futures_util::{Stream, TryStreamExt, stream};

use crate::artifacts::record::Artifact;
use crate::artifacts::store::ArtifactRow;
use crate::attestations::record::Attestation;
use crate::compute::{LONG_JSON, MANY_EVALUATIONS};
use crate::context::{Context, OwnedContext};
use crate::error::{Error, Result};
use crate::fact::{Fact, read_payload};
use crate::id::Id;
use crate::name::{EnvironmentName, Fingerprint};
use crate::page::{Listed, in_batches};
use crate::rules::compliance::ReportedAttestation;
use crate::snapshots::store::Run;
use crate::store::batch::distinct;
use crate::store::entry::StoredEntry;
use crate::store::error::{StoreError, StoreResult};
use crate::time::Timestamp;
use crate::trails::evaluation::{ARTIFACTS_PER_QUERY, EvaluatedTrail};
use crate::trails::record::Trail;
use crate::trails::store::TrailEntry;

pub use view::*;

/// An event of a trail.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) at: Timestamp,
    /// The name of the actor; `None` for events found by an environment's report.
    pub(crate) by: Option<String>,
    pub(crate) what: TrailEventKind,
}

/// The kind of an event, with its data.
#[derive(Debug, Clone)]
pub(crate) enum TrailEventKind {
    Begun(Trail),
    Updated(Trail, Vec<String>),
    Artifact(Artifact),
    Attestation(Attestation),
    Started(RuntimeEvent),
    Stopped(RuntimeEvent),
}

/// An artifact started or stopped running.
#[derive(Debug, Clone)]
pub(crate) struct RuntimeEvent {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) template_reference_name: String,
    pub(crate) environment: Id,
    pub(crate) environment_name: EnvironmentName,
    pub(crate) snapshot: u64,
}

/// Returns the runs of these artifacts, sorted by environment, fingerprint and time: the first and the last
/// ones ([`Limits::runs`]). Empty if the caller may not see environments.
///
/// [`Limits::runs`]: crate::Limits::runs
pub(crate) async fn runs(fingerprints: &[Fingerprint], cx: &Context<'_>) -> Result<Vec<Run>> {
    if fingerprints.is_empty() || !cx.sees_environments()? {
        return Ok(Vec::new());
    }
    Ok(cx.store().runs(cx.org()?, fingerprints, cx.limits().runs).await?)
}

/// The runs of a trail's artifacts.
#[derive(Debug, Default)]
pub(crate) struct TrailRuns {
    /// The runs, in any order; at most [`Limits::trail_runs`].
    ///
    /// [`Limits::trail_runs`]: crate::Limits::trail_runs
    pub(crate) newest: Vec<Run>,
    /// Whether there are more runs.
    pub(crate) has_more: bool,
}

impl TrailRuns {
    async fn read(fingerprints: &[Fingerprint], cx: &Context<'_>) -> Result<Self> {
        let most = cx.limits().trail_runs;
        let mut found = Self::default();
        for part in fingerprints.chunks(ARTIFACTS_PER_QUERY) {
            found.newest.extend(runs(part, cx).await?);
            if found.newest.len() > most {
                let heavy = found.newest.len() > MANY_EVALUATIONS;
                found = cx.compute().run_if(heavy, move || found.limited(most)).await?;
            }
        }
        Ok(found)
    }

    /// Returns the newest `most` of the runs. There must be more than that.
    fn limited(mut self, most: usize) -> Self {
        self.newest.select_nth_unstable_by(most, |one, other| newness(other).cmp(&newness(one)));
        self.newest.truncate(most);
        Self { has_more: true, ..self }
    }
}

/// Returns a key that orders runs by age: present runs are the newest, then those that ended last. The other
/// fields make the order total.
fn newness(run: &Run) -> impl Ord + '_ {
    let (index, at) = run.until.unwrap_or(run.from);
    (run.lasts(), at, index, run.environment, &run.fingerprint)
}

/// The kinds of facts that are events of a trail.
const SHOWN: [&str; 4] = ["trail_begun", "trail_updated", "artifact_reported", "attestation_added"];

fn event(entry: &StoredEntry) -> StoreResult<Option<Event>> {
    // A newer server beside this one may record kinds that this version does not know.
    if !SHOWN.contains(&entry.kind.as_str()) {
        return Ok(None);
    }
    let (fact, by) = read_payload(&entry.payload)
        .map_err(|error| StoreError::corrupt(format_args!("ledger entry {}: {error}", entry.index)))?;
    let what = match fact {
        Fact::TrailBegun { record } => TrailEventKind::Begun(record),
        Fact::TrailUpdated { record, changes } => TrailEventKind::Updated(record, changes),
        Fact::ArtifactReported { record } => TrailEventKind::Artifact(record),
        Fact::AttestationAdded { record } => TrailEventKind::Attestation(record),
        _ => return Ok(None),
    };
    Ok(Some(Event { at: entry.effective_at, by: Some(by.unwrap_or_else(|| entry.actor.clone())), what }))
}

/// Returns the runtime events of these artifacts, oldest first.
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

/// A trail, evaluated, and the sources of its events. Ledger entries are read in batches.
#[derive(Debug)]
pub(crate) struct History {
    /// The ledger entries about the trail, oldest first.
    entries: Vec<TrailEntry>,
    /// The runtime events, oldest first.
    run_events: Vec<Event>,
    /// The runs of its artifacts, sorted by environment, fingerprint and time.
    pub(crate) runs: Vec<Run>,
    /// Whether there are more runs than `runs` has.
    #[cfg_attr(not(feature = "pdf"), expect(dead_code, reason = "the PDF alone has a place to say so"))]
    pub(crate) has_more_runs: bool,
    /// The trail, evaluated from its reports.
    pub(crate) evaluated: EvaluatedTrail,
    /// The ledger index of the newest fact about it.
    pub(crate) newest: u64,
}

impl History {
    /// Reads the history of this trail, as of one point in time.
    pub(crate) async fn read(trail: Id, cx: &Context<'_>) -> Result<Self> {
        let org = cx.org()?;
        let contents = cx.trail_contents(&[trail]).await?.pop();
        let contents = contents.ok_or_else(|| StoreError::corrupt("a trail cannot be read any more"))?;
        let newest = contents.newest();
        let mut entries = cx.store().trail_entries(org, trail).await?;
        // Drop entries recorded after the contents were read.
        entries.retain(|entry| entry.index <= newest);
        let fingerprints = distinct(contents.artifacts.iter().map(|row| row.fingerprint.clone()));
        let TrailRuns { newest: mut runs, has_more: has_more_runs } =
            TrailRuns::read(&fingerprints, cx).await?;
        let template = cx.template(contents.trail.template).await?;
        let heavy = runs.len() + contents.evaluations(&template.template) > MANY_EVALUATIONS;
        let evaluate = move || {
            let place = |run: &Run| (run.environment, run.fingerprint.clone(), run.from.0);
            runs.sort_by_cached_key(place);
            let run_events = at_run_time(&contents.artifacts, &runs);
            let evaluated = EvaluatedTrail::new(Cow::Owned(contents), template);
            Self { entries, run_events, runs, has_more_runs, evaluated, newest }
        };
        cx.compute().run_if(heavy, evaluate).await
    }

    /// Returns the attestations of the trail, newest first, without their content.
    pub(crate) fn attestations(&self) -> Vec<Listed> {
        let bytes: BTreeMap<u64, u64> = self.entries.iter().map(|entry| (entry.index, entry.bytes)).collect();
        let mut attestations = Vec::from_iter(&self.evaluated.attestations);
        attestations.sort_unstable_by_key(|attestation| Reverse(attestation.index));
        let listed = |attestation: &ReportedAttestation| {
            let bytes = bytes.get(&attestation.index).copied().unwrap_or_default();
            Some(Listed { id: attestation.id.parse().ok()?, bytes })
        };
        attestations.into_iter().filter_map(listed).collect()
    }

    /// Returns the approximate size in bytes of the reports and of the runs. A run counts once for each
    /// report of its content, because each report shows all of them.
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

    /// Returns the events, oldest first, read lazily. A damaged event is left out.
    pub(crate) fn into_events(
        self,
        owned: OwnedContext,
    ) -> (EvaluatedTrail, impl Stream<Item = Result<Event>> + Send + 'static) {
        let Self { entries, run_events, evaluated, .. } = self;
        let reader = EventReader { batches: batches(entries), run_events: run_events.into(), owned };
        let events = stream::try_unfold(reader, |mut reader| async move {
            let part = reader.part().await?;
            Ok::<_, Error>(part.map(|events| (stream::iter(events.into_iter().map(Ok)), reader)))
        });
        (evaluated, events.try_flatten())
    }

    /// Returns all events, oldest first.
    ///
    /// # Errors
    /// The reason why one of the events cannot be read.
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
        events.extend(self.run_events.iter().cloned());
        events.sort_by_key(|event| event.at);
        Ok(events)
    }
}

/// The cost of drawing one run, as the number of reported bytes that cost about the same.
#[cfg(feature = "pdf")]
const RUN_BYTES: u64 = 200;

/// The most entries that are read at once.
const MAX_ENTRIES: usize = 512;

fn batches(entries: Vec<TrailEntry>) -> VecDeque<Vec<u64>> {
    in_batches(entries.into_iter().map(|entry| (entry.index, entry.bytes)), MAX_ENTRIES).into()
}

/// A history that is being streamed. Ledger time never decreases, so batches are in order.
struct EventReader {
    batches: VecDeque<Vec<u64>>,
    run_events: VecDeque<Event>,
    owned: OwnedContext,
}

impl EventReader {
    async fn part(&mut self) -> Result<Option<Vec<Event>>> {
        let Some(indexes) = self.batches.pop_front() else {
            return Ok((!self.run_events.is_empty()).then(|| self.run_events.drain(..).collect()));
        };
        let mut told = Vec::with_capacity(indexes.len());
        for event in Part::read(indexes, &self.owned.context()).await?.events {
            while let Some(moment) = self.run_events.pop_front_if(|moment| moment.at < event.at) {
                told.push(moment);
            }
            told.push(event);
        }
        Ok(Some(told))
    }
}

/// The events of some of a trail's ledger entries.
struct Part {
    events: Vec<Event>,
    /// The error if one of the events cannot be read.
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
            match entries.remove(index).ok_or_else(lost).and_then(|entry| event(&entry)) {
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

impl RuntimeEvent {
    /// Returns the artifact's template name, or the first digits of its fingerprint if it has none.
    pub(crate) fn artifact(&self) -> &str {
        match self.template_reference_name.as_str() {
            "" => self.fingerprint.as_str().get(..12).unwrap_or_default(),
            name => name,
        }
    }
}
