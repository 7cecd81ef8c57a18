//! Deployments in responses.

use schemars::JsonSchema;
use serde::Serialize;

use crate::builds::view::BuildRepo;
use crate::environments::record::EnvironmentKind;
use crate::id::Id;
use crate::name::{EnvironmentName, Fingerprint};
use crate::page::{Link, PageLinks};
use crate::snapshots::sources::DeploymentDiff;
use crate::time::Seconds;

/// An artifact that started running in an environment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "DeploymentResponse")]
#[non_exhaustive]
pub struct DeploymentView {
    /// When the snapshot in which it started running was recorded, in epoch seconds.
    pub deployed_at: Seconds,
    /// The environment's id.
    pub environment_id: Id,
    /// The environment's name.
    pub environment_name: EnvironmentName,
    /// The environment's type.
    pub environment_type: EnvironmentKind,
    /// The number of that snapshot.
    pub snapshot_index: u64,
    /// The SHA-256 of the artifact; null if the environment does not know it.
    pub fingerprint: Option<Fingerprint>,
    /// Its name in the environment.
    pub artifact_name: String,
    /// Whether it was allowed to run; null without policies.
    pub compliant: Option<bool>,
    /// The flow that it was reported to; if there are several, prefers one whose report names a repo. `""` if
    /// it was never reported.
    pub flow_name: String,
    /// The trail of that report; `""` without one.
    pub trail_name: String,
    /// The commit that it was built from; `""` if not reported.
    pub git_commit: String,
    /// The artifact that it replaced: the last other artifact of that flow that started there before it, with
    /// the same template name if it has one. Null if there was none.
    pub deployment_diff: Option<DeploymentDiff>,
    /// The time from that commit to the deployment, in seconds; null if the time of the commit was not
    /// reported.
    pub lead_time_seconds: Option<Seconds>,
    /// The repo that the report names; null if it names none.
    pub repo_info: Option<BuildRepo>,
    /// Links to related resources.
    pub _links: DeploymentLinks,
}

/// Links of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DeploymentLinks {
    /// The snapshot in this API.
    pub snapshot: Link,
    /// The artifact in this API; absent if it was not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Link>,
    /// The page of the snapshot.
    pub html: Link,
}

/// A page of deployments. No other property is present.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "DeploymentListResponse", deny_unknown_fields)]
#[non_exhaustive]
pub struct DeploymentList {
    /// This page and its neighbours.
    pub _links: PageLinks,
    /// This page's number, from 1.
    pub page: u64,
    /// Deployments per page, as requested.
    pub per_page: u64,
    /// The number of pages; 0 if `per_page` is 0.
    pub total_pages: u64,
    /// Number of deployments on all pages.
    pub total_count: u64,
    /// The deployments of the page, newest first.
    pub deployments: Vec<DeploymentView>,
}

/// A page of the deployments to an environment. No other property is present.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "EnvironmentDeploymentListResponse", deny_unknown_fields)]
#[non_exhaustive]
pub struct DeploymentPage {
    /// This page's number, from 1.
    pub page: u64,
    /// Deployments per page, as requested.
    pub page_size: u64,
    /// Number of pages.
    pub total_pages: u64,
    /// Number of deployments on all pages.
    pub total_count: u64,
    /// The deployments of the page, newest first.
    pub deployments: Vec<DeploymentView>,
}

/// The deployments to an environment in 28 days.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "DeploymentFrequencyResponse")]
#[non_exhaustive]
pub struct DeploymentFrequency {
    /// The start of the window, in epoch seconds.
    pub start_ts: Seconds,
    /// The end of the window, in epoch seconds.
    pub end_ts: Seconds,
    /// Number of deployments in the window.
    pub count: u64,
    /// The number of deployments per day.
    pub deployments_per_day: f64,
    /// The time of each deployment, in epoch seconds, newest first; at most 100,000.
    pub deployed_at: Vec<Seconds>,
}

/// The times and lead times of a repo's deployments.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RepoDeploymentStatisticsResponse")]
#[non_exhaustive]
pub struct DeploymentStatistics {
    /// The start of the window, in epoch seconds.
    pub start_ts: Seconds,
    /// The end of the window, in epoch seconds.
    pub end_ts: Seconds,
    /// The number of deployments in the window to all of these environments. The series have at most the
    /// newest 100,000.
    pub count: u64,
    /// The environments with deployments, sorted by name.
    pub environments: Vec<EnvironmentDeployments>,
}

/// The deployments to an environment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EnvironmentDeployments {
    /// The environment's id.
    pub environment_id: Id,
    /// The environment's name.
    pub environment_name: EnvironmentName,
    /// The time of each deployment, in epoch seconds, newest first.
    pub deployed_at: Vec<Seconds>,
    /// The time from the commit to each deployment, in seconds, in the same order. Deployments of commits
    /// without a reported time are left out.
    pub lead_time_seconds: Vec<Seconds>,
}
