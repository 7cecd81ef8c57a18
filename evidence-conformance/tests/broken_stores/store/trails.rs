//! Trails of the store of the tests.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::store::StoreResult;
use evidence_core::trails::{
    Reported, Trail, TrailContents, TrailEntry, TrailFilter, TrailLabel, TrailStore, TrailVersion,
};

use super::backwards;
use crate::{Broken, Defect};

#[async_trait]
impl TrailStore for Broken {
    async fn trail(&self, org: Id, flow: Id, name: &str) -> StoreResult<Option<Current<Trail>>> {
        self.whole.trail(org, flow, name).await
    }

    async fn trails(&self, org: Id, filter: &TrailFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let slice = self.whole.trails(org, filter, request).await?;
        Ok(Page { items: backwards(slice.items, self.has(Defect::OldestTrailFirst)), ..slice })
    }

    async fn newest_trails(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<Id>> {
        let mut trails = self.whole.newest_trails(org, flows).await?;
        if self.has(Defect::OneNewestTrailOnly) {
            trails.truncate(1);
        }
        Ok(trails)
    }

    async fn trail_labels(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<(Id, TrailLabel)>> {
        self.whole.trail_labels(org, trails).await
    }

    async fn trail_contents(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailContents>> {
        let mut contents = self.whole.trail_contents(org, trails).await?;
        if self.has(Defect::ForgetsTheOverride) {
            let rows = contents.iter_mut().flat_map(|contents| &mut contents.attestations);
            rows.for_each(|row| row.override_info = None);
        }
        if self.has(Defect::ForgetsTheCommitOfAnAttestation) {
            let rows = contents.iter_mut().flat_map(|contents| &mut contents.attestations);
            rows.for_each(|row| row.commit = None);
        }
        Ok(contents)
    }

    async fn trail_versions(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailVersion>> {
        let mut versions = self.whole.trail_versions(org, trails).await?;
        if self.has(Defect::VersionsKeepTheirRevision) {
            versions.iter_mut().for_each(|version| version.revision = version.revision.min(3));
        }
        if self.has(Defect::VersionsCountAttestationsAlone) {
            for version in &mut versions {
                let kind = Reported::Attestations;
                version.reports = self.whole.trail_report_count(org, version.id, kind, u64::MAX).await?;
            }
        }
        Ok(versions)
    }

    async fn trail_report_count(&self, org: Id, trail: Id, kind: Reported, most: u64) -> StoreResult<u64> {
        let size = self.whole.trail_report_count(org, trail, kind, most).await?;
        Ok(size + u64::from(self.has(Defect::CountsOnePastTheLimit) && size > 0))
    }

    async fn trail_entries(&self, org: Id, trail: Id) -> StoreResult<Vec<TrailEntry>> {
        self.whole.trail_entries(org, trail).await
    }
}
