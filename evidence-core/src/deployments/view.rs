//! Deployments as answers carry them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::builds::view::BuildRepo;
use crate::environments::record::EnvironmentKind;
use crate::id::Id;
use crate::name::{EnvironmentName, Fingerprint};
use crate::page::{Link, PageLinks};
use crate::snapshots::sources::DeploymentDiff;
use crate::time::Seconds;

/// An artifact that began to run in an environment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "DeploymentResponse")]
#[non_exhaustive]
pub struct DeploymentView {
    /// When the snapshot was recorded in which it began to run, in epoch seconds.
    pub deployed_at: Seconds,
    /// The environment's id.
    pub environment_id: Id,
    /// The environment.
    pub environment_name: EnvironmentName,
    /// Its type.
    pub environment_type: EnvironmentKind,
    /// The number of that snapshot.
    pub snapshot_index: u64,
    /// The SHA-256 of what runs; null where the environment knows none.
    pub fingerprint: Option<Fingerprint>,
    /// Its name, as the environment knew it.
    pub artifact_name: String,
    /// Whether it might run; null without policies.
    pub compliant: Option<bool>,
    /// The flow that it was reported to; of several one whose report names a repo. `""` where it was reported to none.
    pub flow_name: String,
    /// The trail of that report; `""` without one.
    pub trail_name: String,
    /// The commit that it was built from; `""` if not reported.
    pub git_commit: String,
    /// What it replaced: the other artifact of that flow that began to run there last before it, under the same name of the
    /// template where it has one; null where there was none.
    pub deployment_diff: Option<DeploymentDiff>,
    /// From that commit to the deployment, in seconds; null where the time of the commit was not reported.
    pub lead_time_seconds: Option<Seconds>,
    /// The repo that the report names; null where it names none.
    pub repo_info: Option<BuildRepo>,
    /// Links to related resources.
    pub _links: DeploymentLinks,
}

/// Where to go from a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DeploymentLinks {
    /// The snapshot in this API.
    pub snapshot: Link,
    /// The artifact in this API, where it was reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Link>,
    /// The page of the snapshot.
    pub html: Link,
}

/// A page of deployments; no other property is present.
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
    /// Number of pages; 0 where a page has no deployments.
    pub total_pages: u64,
    /// Number of deployments on all pages.
    pub total_count: u64,
    /// The deployments of the page, newest first.
    pub deployments: Vec<DeploymentView>,
}

/// A page of the deployments to an environment; no other property is present.
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

/// How often something was deployed to an environment in 28 days.
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
    /// The same, a day.
    pub deployments_per_day: f64,
    /// When each was, in epoch seconds, newest first; at most 100,000.
    pub deployed_at: Vec<Seconds>,
}

/// How often, and how long after their commits, artifacts of a repo were deployed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RepoDeploymentStatisticsResponse")]
#[non_exhaustive]
pub struct DeploymentStatistics {
    /// The start of the window, in epoch seconds.
    pub start_ts: Seconds,
    /// The end of the window, in epoch seconds.
    pub end_ts: Seconds,
    /// Number of deployments in the window, to all of these environments; of more than 100,000 the newest are in the series.
    pub count: u64,
    /// The environments that something was deployed to, by name.
    pub environments: Vec<EnvironmentDeployments>,
}

/// What was deployed to an environment.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EnvironmentDeployments {
    /// The environment's id.
    pub environment_id: Id,
    /// The environment.
    pub environment_name: EnvironmentName,
    /// When each deployment was, in epoch seconds, newest first.
    pub deployed_at: Vec<Seconds>,
    /// How long after its commit, in seconds, in the same order, without those the time of whose commit was not reported.
    pub lead_time_seconds: Vec<Seconds>,
}
