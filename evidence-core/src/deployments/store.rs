//! What a store answers about deployments.

use async_trait::async_trait;

use crate::id::Id;
use crate::name::Fingerprint;
use crate::page::{Page, PageRequest};
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// An artifact that began to run in an environment. One that runs again after it was gone is deployed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// The environment.
    pub environment: Id,
    /// The snapshot in which it began to run.
    pub snapshot: u64,
    /// The SHA-256 of what runs; nothing where the environment knows none.
    pub fingerprint: Option<Fingerprint>,
    /// Its name, as the environment knew it.
    pub name: String,
    /// Whether it might run; nothing without policies.
    pub compliant: Option<bool>,
    /// Its report; nothing for an artifact that was not reported.
    pub report: Option<DeployedReport>,
    /// When: the time of the snapshot's entry, which no later entry's is before.
    pub at: Timestamp,
}

/// The report of a deployed artifact in one of its flows: one that names a repo, if there is such.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployedReport {
    /// Its id.
    pub id: Id,
    /// The flow.
    pub flow: Id,
    /// The trail; none for a report to a flow as a whole.
    pub trail: Option<Id>,
    /// What it calls the artifact in the template, `""` without a name.
    pub reference: String,
    /// The commit that it was built from in the reporter's words, `""` without one.
    pub commit: String,
    /// The repo that it names.
    pub repo: Option<Id>,
    /// The time of the commit.
    pub committed_at: Option<Timestamp>,
}

/// Of what deployments are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeploymentScope {
    /// All of the organization.
    Organization,
    /// Those to this environment.
    Environment(Id),
    /// Those of these repos.
    Repos(Vec<Id>),
}

/// How deployments are narrowed; everything given must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentFilter {
    /// Of what.
    pub scope: DeploymentScope,
    /// To one of these environments.
    pub environments: Option<Vec<Id>>,
    /// Whose report is in this flow.
    pub flow: Option<Id>,
    /// Then or later.
    pub from: Timestamp,
    /// Then or before.
    pub to: Timestamp,
}

/// When something was deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeploymentTime {
    /// The environment.
    pub environment: Id,
    /// When.
    pub at: Timestamp,
    /// The time of the commit that it was built from.
    pub committed_at: Option<Timestamp>,
}

/// Queries about deployments.
#[async_trait]
pub trait DeploymentStore: Send + Sync {
    /// The deployments that the filter admits, newest (by ledger index, of one snapshot in the order of its changes) first: a
    /// page, and the total.
    async fn deployments(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Deployment>>;
    /// When those of the same list were, newest first: the first `limit`, and the total.
    async fn deployment_times(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        limit: u64,
    ) -> StoreResult<Page<DeploymentTime>>;
    /// The newest deployment of this artifact to this environment.
    async fn latest_deployment(
        &self,
        org: Id,
        environment: Id,
        fingerprint: &Fingerprint,
    ) -> StoreResult<Option<Deployment>>;
}
