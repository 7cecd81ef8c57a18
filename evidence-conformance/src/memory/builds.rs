//! Builds.

use std::collections::BTreeSet;

use async_trait::async_trait;

use evidence_core::artifacts::Artifact;
use evidence_core::builds::{Build, BuildFilter, BuildStore};
use evidence_core::id::Id;
use evidence_core::page::{Page, PageRequest};
use evidence_core::store::{Current, StoreResult};
use evidence_core::time::Timestamp;

use super::tables::Tables;
use super::{Admits, MemoryStore};

impl Admits<Build> for BuildFilter {
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
        self.query(org, |tables| {
            let mut builds = Vec::from_iter(tables.builds().filter(|build| filter.admits(build)));
            builds.reverse();
            Page::of(builds, request)
        })
    }

    async fn build_times(&self, org: Id, filter: &BuildFilter, limit: u64) -> StoreResult<Page<Timestamp>> {
        Ok(self.builds(org, filter, PageRequest { offset: 0, limit }).await?.map(|build| build.at))
    }
}
