//! Deployments.

use std::cmp::Reverse;

use async_trait::async_trait;

use evidence_core::artifacts::Artifact;
use evidence_core::deployments::{
    DeployedReport, Deployment, DeploymentFilter, DeploymentScope, DeploymentStore, DeploymentTime,
};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Page, PageRequest};
use evidence_core::snapshots::{DeploymentSource, RunningArtifact, Snapshot};
use evidence_core::store::{Current, StoreResult};

use super::tables::Tables;
use super::{Admits, MemoryStore};

impl Admits<Deployment> for DeploymentFilter {
    fn admits(&self, deployment: &Deployment) -> bool {
        let report = deployment.report.as_ref();
        let is_of_scope = match &self.scope {
            DeploymentScope::Organization => true,
            DeploymentScope::Environment(environment) => *environment == deployment.environment,
            DeploymentScope::Repos(repos) => {
                report.and_then(|report| report.repo).is_some_and(|repo| repos.contains(&repo))
            }
        };
        is_of_scope
            && (self.from..=self.to).contains(&deployment.at)
            && self.environments.as_ref().is_none_or(|some| some.contains(&deployment.environment))
            && self.flow.is_none_or(|flow| report.is_some_and(|report| report.flow == flow))
    }
}

impl Tables {
    fn deployment(&self, taken: &Current<Snapshot>, begun: &RunningArtifact) -> Deployment {
        let report = begun.source.as_ref().map(|source| {
            let DeploymentSource { report: id, flow, repo, committed_at } = *source;
            let known = self.artifacts.iter().find(|artifact| artifact.record.id == id);
            let trail = known.and_then(|artifact| artifact.record.trail);
            let commit = known.map(|artifact| Artifact::commit(&artifact.record)).unwrap_or_default();
            let reference = known.map(|artifact| artifact.record.template_reference_name.clone());
            let (commit, reference) = (commit.to_owned(), reference.unwrap_or_default());
            DeployedReport { id, flow, trail, reference, commit, repo, committed_at }
        });
        Deployment {
            environment: taken.record.environment,
            snapshot: taken.record.index,
            fingerprint: begun.fingerprint.clone(),
            name: begun.name.clone(),
            compliant: begun.compliant,
            report,
            at: self.ledger.time(taken.revision).unwrap_or(taken.record.at),
        }
    }

    /// Returns all deployments, newest first.
    fn deployments(&self) -> Vec<Deployment> {
        let mut snapshots = Vec::from_iter(self.snapshots.values());
        snapshots.sort_unstable_by_key(|taken| Reverse(taken.revision));
        let of_one = |taken: &Current<Snapshot>| {
            let begun = taken.record.changes.iter().rev().filter(|change| change.begins_a_run());
            Vec::from_iter(begun.map(|begun| self.deployment(taken, begun)))
        };
        snapshots.into_iter().flat_map(of_one).collect()
    }
}

#[async_trait]
impl DeploymentStore for MemoryStore {
    async fn deployments(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Deployment>> {
        self.query(org, |tables| {
            let mut found = tables.deployments();
            found.retain(|deployment| filter.admits(deployment));
            Page::of(found, request)
        })
    }

    async fn deployment_times(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        limit: u64,
    ) -> StoreResult<Page<DeploymentTime>> {
        let time = |Deployment { environment, at, report, .. }| {
            let committed_at = report.and_then(|report: DeployedReport| report.committed_at);
            DeploymentTime { environment, at, committed_at }
        };
        Ok(self.deployments(org, filter, PageRequest { offset: 0, limit }).await?.map(time))
    }

    async fn latest_deployment(
        &self,
        org: Id,
        environment: Id,
        fingerprint: &Fingerprint,
    ) -> StoreResult<Option<Deployment>> {
        self.query(org, |tables| {
            let is_it = |one: &Deployment| {
                one.environment == environment && one.fingerprint.as_ref() == Some(fingerprint)
            };
            tables.deployments().into_iter().find(is_it)
        })
    }
}
