//! The queries about deployments that a store answers.

use async_trait::async_trait;

use crate::id::Id;
use crate::name::Fingerprint;
use crate::page::{Page, PageRequest};
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// An artifact that started running in an environment. An artifact that starts again after it stopped is
/// deployed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// The environment.
    pub environment: Id,
    /// The snapshot in which it started running.
    pub snapshot: u64,
    /// The SHA-256 of the artifact; `None` if the environment does not know it.
    pub fingerprint: Option<Fingerprint>,
    /// Its name in the environment.
    pub name: String,
    /// Whether it was allowed to run; `None` without policies.
    pub compliant: Option<bool>,
    /// Its report; `None` if the artifact was never reported.
    pub report: Option<DeployedReport>,
    /// The time of the snapshot's ledger entry. No later entry has an earlier time.
    pub at: Timestamp,
}

/// The report of a deployed artifact in one of its flows. Prefers a report that names a repo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployedReport {
    /// Its id.
    pub id: Id,
    /// The flow.
    pub flow: Id,
    /// The trail; `None` for a report to a flow as a whole.
    pub trail: Option<Id>,
    /// The artifact's template name in the report; `""` without one.
    pub reference: String,
    /// The commit that it was built from, as reported; `""` without one.
    pub commit: String,
    /// The repo that it names, if any.
    pub repo: Option<Id>,
    /// The time of the commit, if reported.
    pub committed_at: Option<Timestamp>,
}

/// The scope of a query for deployments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeploymentScope {
    /// All deployments of the organization.
    Organization,
    /// Deployments to this environment.
    Environment(Id),
    /// Deployments of these repos.
    Repos(Vec<Id>),
}

/// A filter for deployments. All given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentFilter {
    /// The scope.
    pub scope: DeploymentScope,
    /// To one of these environments.
    pub environments: Option<Vec<Id>>,
    /// With a report in this flow.
    pub flow: Option<Id>,
    /// At this time or later.
    pub from: Timestamp,
    /// At this time or before.
    pub to: Timestamp,
}

/// The time of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeploymentTime {
    /// The environment.
    pub environment: Id,
    /// The time.
    pub at: Timestamp,
    /// The time of the commit that it was built from, if reported.
    pub committed_at: Option<Timestamp>,
}

/// Queries about deployments.
#[async_trait]
pub trait DeploymentStore: Send + Sync {
    /// Returns one page of the deployments that match the filter, and their total. The order is newest first
    /// by ledger index; deployments of one snapshot are in the order of its changes.
    async fn deployments(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Deployment>>;
    /// Returns the times of the same list, newest first: the first `limit`, and the total.
    async fn deployment_times(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        limit: u64,
    ) -> StoreResult<Page<DeploymentTime>>;
    /// Returns the newest deployment of this artifact to this environment.
    async fn latest_deployment(
        &self,
        org: Id,
        environment: Id,
        fingerprint: &Fingerprint,
    ) -> StoreResult<Option<Deployment>>;
}
