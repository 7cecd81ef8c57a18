//! Snapshots of the store of the tests.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Page, PageRequest, SortDirection};
use evidence_core::snapshots::{
    Event, EventSize, LiveBuild, Progress, Replaced, Run, Snapshot, SnapshotEntry, SnapshotRow,
    SnapshotStore, Start,
};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use super::backwards;
use crate::{Broken, Defect};

#[async_trait]
impl SnapshotStore for Broken {
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>> {
        self.whole.snapshot(org, environment, index).await
    }

    async fn snapshots(
        &self,
        org: Id,
        ranges: &[(Id, RangeInclusive<u64>)],
    ) -> StoreResult<Vec<SnapshotRow>> {
        self.whole.snapshots(org, ranges).await
    }

    async fn progress(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Progress>> {
        let with = |(environment, entry): &(Id, u64)| {
            (*environment, entry + u64::from(self.has(Defect::CountsTheEntryAsBeforeItself)))
        };
        self.whole.progress(org, &Vec::from_iter(asked.iter().map(with))).await
    }

    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64> {
        self.whole.snapshot_at(org, environment, at).await
    }

    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<SnapshotEntry>> {
        let mut placed = self.whole.instances(org, environment, index).await?;
        placed.retain(|placed| !(self.has(Defect::ForgetsExits) && placed.exited));
        placed.retain(|placed| {
            !self.has(Defect::DropsWhatHasNoDigest) || placed.instance.fingerprint.is_some()
        });
        Ok(placed)
    }

    async fn live_builds(&self, org: Id, repo: Id, reports: u64, limit: u64) -> StoreResult<Vec<LiveBuild>> {
        let reports = if self.has(Defect::TellsWhatRunsOfAllReports) { u64::MAX } else { reports };
        self.whole.live_builds(org, repo, reports, limit).await
    }

    async fn event_sizes(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<EventSize>> {
        let mut sizes = self.whole.event_sizes(org, asked).await?;
        let is_first = |size: &EventSize| asked.first() == Some(&(size.environment, size.number));
        sizes.retain(|size| !self.has(Defect::MeasuresTheFirstEvent) || is_first(size));
        Ok(sizes)
    }

    async fn events(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Event>> {
        let mut events = self.whole.events(org, asked).await?;
        events.retain(|event| !self.has(Defect::LogsNoExits) || !event.exited);
        Ok(events)
    }

    async fn event_numbers(
        &self,
        org: Id,
        environment: Id,
        (range, direction): (RangeInclusive<u64>, SortDirection),
        repos: &[Id],
        request: PageRequest,
    ) -> StoreResult<Page<u64>> {
        let mut page = self.whole.event_numbers(org, environment, (range, direction), repos, request).await?;
        if self.has(Defect::CountsPagesOfEvents) {
            page.total = page.items.len() as u64;
        }
        Ok(page)
    }

    async fn replaced(&self, org: Id, starts: &[Start]) -> StoreResult<Vec<Replaced>> {
        let later = |start: &Start| Start { since: start.since + 1, ..start.clone() };
        let starts = match self.has(Defect::ReplacesWhatBeganTogether) {
            true => starts.iter().map(later).collect(),
            false => starts.to_vec(),
        };
        let replaced = self.whole.replaced(org, &starts).await?;
        let is_named = |one: &Replaced| {
            let start = usize::try_from(one.place).ok().and_then(|place| starts.get(place));
            start.is_none_or(|start| !start.reference.is_empty())
        };
        let replaced = replaced.into_iter();
        Ok(replaced.filter(|one| !self.has(Defect::ReplacesByNamesAlone) || is_named(one)).collect())
    }

    async fn runs(&self, org: Id, fingerprints: &[Fingerprint], newest: u32) -> StoreResult<Vec<Run>> {
        let runs = self.whole.runs(org, fingerprints, newest).await?;
        let place = |run: &Run| (run.environment, run.fingerprint.clone());
        let runs = match self.has(Defect::ForgetsTheFirstRun) {
            true => runs
                .chunk_by(|left, right| place(left) == place(right))
                .flat_map(|of| &of[1..])
                .cloned()
                .collect(),
            false => runs,
        };
        Ok(backwards(runs, self.has(Defect::RunsAreBackwards)))
    }
}
