//! Builds.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::builds::{Build, BuildFilter, BuildStore};
use crate::id::Id;
use crate::page::{Page, PageRequest};
use crate::store::StoreResult;
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
    /// The first report of each artifact, oldest first by ledger index.
    pub(super) fn builds(&self) -> impl Iterator<Item = Build> {
        let mut seen = BTreeSet::new();
        let reports = self.artifacts.iter().map(|artifact| &artifact.record);
        reports.filter(move |report| seen.insert(&report.fingerprint)).map(|report| Build {
            report: report.id,
            flow: report.flow,
            trail: report.trail,
            fingerprint: report.fingerprint.clone(),
            repo: report.repo,
            at: report.created_at,
        })
    }
}

#[async_trait]
impl BuildStore for MemoryStore {
    async fn builds(&self, org: Id, filter: &BuildFilter, request: PageRequest) -> StoreResult<Page<Build>> {
        self.ask(org, |tables| {
            let mut builds = Vec::from_iter(tables.builds().filter(|build| filter.admits(build)));
            builds.reverse();
            builds.sort_by_key(|build| Reverse(build.at));
            Page::of(builds, request)
        })
    }

    async fn build_times(&self, org: Id, filter: &BuildFilter, limit: u64) -> StoreResult<Page<Timestamp>> {
        Ok(self.builds(org, filter, PageRequest { offset: 0, limit }).await?.map(|build| build.at))
    }
}
