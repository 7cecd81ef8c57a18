//! Artifacts of the store of the tests.

use async_trait::async_trait;
use evidence_core::Fact;
use evidence_core::artifacts::{
    Artifact, ArtifactFilter, ArtifactPage, ArtifactQuery, ArtifactRow, ArtifactStore, ArtifactWithRuns,
    Found, GivenName, Matches, Origin, Unreported,
};
use evidence_core::flows::Flow;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::store::{LedgerStore, StoreResult};
use evidence_core::transfer::Transfer;

use crate::{Broken, Defect};

impl Broken {
    /// The name that something unreported ran by, or the one that a defect puts in its place.
    async fn name_of_run(&self, org: Id, one: &Unreported) -> StoreResult<String> {
        let mut other = None;
        if self.has(Defect::NamesByTheOldestRun) {
            other = self.oldest_run(org, one).await?;
        }
        if self.has(Defect::NamesByOtherOrganizationsRuns) {
            for organization in self.whole.organizations(None, u64::MAX).await? {
                if organization.id != org {
                    other = other.or(self.oldest_run(organization.id, one).await?);
                }
            }
        }
        Ok(other.unwrap_or_else(|| one.name.clone()))
    }

    /// The name by which it ran at last when it first ran in the environment of the least id.
    async fn oldest_run(&self, org: Id, one: &Unreported) -> StoreResult<Option<String>> {
        let entries = self.whole.ledger_entries(org, 0, u64::MAX).await?;
        let facts = entries.iter().filter_map(|entry| Fact::read(&entry.payload).ok());
        let snapshots = facts.filter_map(|fact| match fact {
            Fact::SnapshotTaken { snapshot } => Some(snapshot),
            _ => None,
        });
        let runs = snapshots.flat_map(|snapshot| {
            let environment = snapshot.environment;
            snapshot.changes.into_iter().map(move |change| (environment, change))
        });
        let mut runs =
            Vec::from_iter(runs.filter(|(_, run)| run.fingerprint.as_ref() == Some(&one.fingerprint)));
        // Of the intervals of one run the last one counts.
        runs.reverse();
        runs.sort_by_key(|(environment, run)| (*environment, run.since));
        Ok(runs.into_iter().next().map(|(_, run)| run.name))
    }
}

#[async_trait]
impl ArtifactStore for Broken {
    async fn fingerprints(&self, org: Id, flow: Id, prefix: &str, limit: u64) -> StoreResult<Matches> {
        self.whole.fingerprints(org, flow, prefix, limit).await
    }

    async fn search(&self, org: Id, prefix: &str, limit: u64) -> StoreResult<Found> {
        let mut found = self.whole.search(org, prefix, limit).await?;
        if self.has(Defect::CountsWhatItLists) {
            found.fingerprints.count = found.fingerprints.first.len() as u64;
            found.commits.count = found.commits.first.len() as u64;
        }
        for one in &mut found.unreported {
            one.name = self.name_of_run(org, one).await?;
        }
        Ok(found)
    }

    async fn artifacts(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Artifact>> {
        self.whole.artifacts(org, filter, request).await
    }

    async fn artifacts_listed(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<ArtifactPage> {
        self.whole.artifacts_listed(org, filter, request).await
    }

    async fn artifact_of_flow(
        &self,
        org: Id,
        query: ArtifactQuery<'_>,
    ) -> StoreResult<Option<(Flow, Option<ArtifactWithRuns>)>> {
        let trail = query.trail.filter(|_| !self.has(Defect::IgnoresTheTrailOfAQuery));
        let mut found = self.whole.artifact_of_flow(org, ArtifactQuery { trail, ..query }).await?;
        if self.has(Defect::ForgetsTheVersionOfTheTrail)
            && let Some((_, Some(artifact))) = &mut found
        {
            artifact.version = None;
        }
        Ok(found)
    }

    async fn latest_artifact(&self, org: Id, filter: &ArtifactFilter) -> StoreResult<Option<Artifact>> {
        self.whole.latest_artifact(org, filter).await
    }

    async fn artifacts_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Artifact>> {
        self.whole.artifacts_by_id(org, ids).await
    }

    async fn artifact_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>> {
        self.whole.artifact_sizes(org, ids).await
    }

    async fn reports(&self, org: Id, flow: Id, fingerprint: &Fingerprint) -> StoreResult<Vec<ArtifactRow>> {
        self.whole.reports(org, flow, fingerprint).await
    }

    async fn provenance(
        &self,
        org: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
    ) -> StoreResult<Vec<Origin>> {
        let entries = if self.has(Defect::TellsOriginsOfAllEntries) { u64::MAX } else { entries };
        self.whole.provenance(org, fingerprints, entries).await
    }

    async fn given_names(&self, org: Id, asked: &[(Id, Fingerprint)]) -> StoreResult<Vec<GivenName>> {
        let mut names = self.whole.given_names(org, asked).await?;
        if self.has(Defect::GivesTheLastNameAlone) {
            names.sort_by_key(|name| name.first);
            names.drain(..names.len().saturating_sub(1));
        }
        Ok(names)
    }
}
