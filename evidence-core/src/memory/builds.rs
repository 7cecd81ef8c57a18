//! Builds.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::artifacts::Artifact;
use crate::builds::{Build, BuildFilter, BuildStore};
use crate::id::Id;
use crate::page::{Page, PageRequest};
use crate::store::{Current, StoreResult};
use crate::time::Timestamp;

use super::MemoryStore;
use super::tables::Tables;

impl BuildFilter {
    fn admits(&self, build: &Build) -> bool {
        (self.from..=self.to).contains(&build.at)
            && self.repos.as_ref().is_none_or(|repos| build.repo.is_some_and(|repo| repos.contains(&repo)))
    }
}

impl Tables {
    /// Returns the first report of each artifact, oldest first by ledger index.
    pub(super) fn builds(&self) -> impl Iterator<Item = Build> {
        let mut seen = BTreeSet::new();
        let first = self.artifacts.iter().filter(move |report| seen.insert(&report.record.fingerprint));
        first.map(
            |Current {
                 revision,
                 record: Artifact { id, flow, trail, fingerprint, repo, created_at, .. },
             }| Build {
                report: *id,
                flow: *flow,
                trail: *trail,
                fingerprint: fingerprint.clone(),
                repo: *repo,
                at: self.ledger.time(*revision).unwrap_or(*created_at),
            },
        )
    }
}

#[async_trait]
impl BuildStore for MemoryStore {
    async fn builds(&self, org: Id, filter: &BuildFilter, request: PageRequest) -> StoreResult<Page<Build>> {
        self.ask(org, |tables| {
            let mut builds = Vec::from_iter(tables.builds().filter(|build| filter.admits(build)));
            builds.reverse();
            Page::of(builds, request)
        })
    }

    async fn build_times(&self, org: Id, filter: &BuildFilter, limit: u64) -> StoreResult<Page<Timestamp>> {
        Ok(self.builds(org, filter, PageRequest { offset: 0, limit }).await?.map(|build| build.at))
    }
}
