//! The whole API, one line an endpoint, in the order of the documentation.

use crate::attestations::claims::{
    Custom, Generic, Jira, Junit, Override, PullRequests, Snyk, Sonar, System,
};
use crate::attestations::operations::PostAttestation;
use crate::environments::{attached, lifecycle, reports};
use crate::operation::Visitor;
use crate::{
    actions, allowlists, api_keys, artifacts, attestation_types, attestations, builds, controls,
    environments, flows, orgs, policies, repos, schemas, service_accounts, snapshots, tags, trails,
};

/// Shows every operation to `v`.
pub fn operations(v: &mut impl Visitor) {
    v.visit::<actions::ListActions>();
    v.visit::<actions::PutEnvironmentAction>();
    v.visit::<actions::PutFlowAction>();
    v.visit::<actions::DeleteAction>();
    v.visit::<actions::GetAction>();
    v.visit::<allowlists::ListAllowlist>();
    v.visit::<allowlists::AllowArtifact>();
    v.visit::<artifacts::ListArtifacts>();
    v.visit::<artifacts::ReportArtifact>();
    v.visit::<artifacts::GetArtifactsByCommit>();
    v.visit::<artifacts::GetArtifact>();
    v.visit::<artifacts::GetLatestCommit>();
    v.visit::<environments::AssertArtifact>();
    v.visit::<attestations::ListSystemAttestationTypes>();
    v.visit::<attestations::GetAttestations>();
    v.visit::<attestations::ListAttestationsForCriteria>();
    v.visit::<attestations::GetFlowAttestations>();
    v.visit::<attestations::GetArtifactAttestation>();
    v.visit::<attestations::GetEvidence>();
    v.visit::<PostAttestation<Custom>>();
    v.visit::<PostAttestation<Generic>>();
    v.visit::<PostAttestation<Jira>>();
    v.visit::<PostAttestation<Junit>>();
    v.visit::<PostAttestation<Override>>();
    v.visit::<PostAttestation<PullRequests>>();
    v.visit::<PostAttestation<Snyk>>();
    v.visit::<PostAttestation<Sonar>>();
    v.visit::<PostAttestation<System>>();
    v.visit::<attestations::GetTrailAttestation>();
    v.visit::<builds::ListBuilds>();
    v.visit::<builds::GetBuildStatistics>();
    v.visit::<controls::ListControls>();
    v.visit::<controls::PostControl>();
    v.visit::<controls::ListControlTags>();
    v.visit::<controls::GetControl>();
    v.visit::<controls::PutControl>();
    v.visit::<controls::ArchiveControl>();
    v.visit::<controls::UnarchiveControl>();
    v.visit::<controls::ListControlVersions>();
    v.visit::<controls::GetControlVersion>();
    v.visit::<controls::GetControlCoverage>();
    v.visit::<controls::ListControlDecisions>();
    v.visit::<controls::GetControlDecision>();
    v.visit::<attestation_types::ListAttestationTypes>();
    v.visit::<attestation_types::PostAttestationType>();
    v.visit::<attestation_types::GetAttestationType>();
    v.visit::<attestation_types::ArchiveAttestationType>();
    v.visit::<environments::ListEnvironments>();
    v.visit::<environments::PutEnvironment>();
    v.visit::<environments::GetEnvironment>();
    v.visit::<environments::JoinEnvironment>();
    v.visit::<environments::PatchEnvironment>();
    v.visit::<attached::AttachPolicies>();
    v.visit::<attached::DetachPolicies>();
    v.visit::<lifecycle::ArchiveEnvironment>();
    v.visit::<lifecycle::RenameEnvironment>();
    v.visit::<reports::ReportRunning<reports::AzureApps>>();
    v.visit::<reports::ReportRunning<reports::CloudRun>>();
    v.visit::<reports::ReportRunning<reports::Docker>>();
    v.visit::<reports::ReportRunning<reports::ECS>>();
    v.visit::<reports::ReportRunning<reports::K8S>>();
    v.visit::<reports::ReportRunning<reports::Lambda>>();
    v.visit::<reports::ReportRunning<reports::S3>>();
    v.visit::<reports::ReportRunning<reports::Server>>();
    v.visit::<flows::ListFlows>();
    v.visit::<flows::PutFlow>();
    v.visit::<flows::PutLegacyFlow>();
    v.visit::<flows::GetFlow>();
    v.visit::<flows::ArchiveFlow>();
    v.visit::<flows::RenameFlow>();
    v.visit::<orgs::ListMembershipEvents>();
    v.visit::<orgs::GetOrganization>();
    v.visit::<actions::ListNotifications>();
    v.visit::<actions::PutNotification>();
    v.visit::<actions::DeleteNotification>();
    v.visit::<actions::GetNotification>();
    v.visit::<actions::UpdateNotification>();
    v.visit::<policies::ListPolicies>();
    v.visit::<policies::PutPolicy>();
    v.visit::<policies::GetPolicy>();
    v.visit::<repos::ListRepos>();
    v.visit::<repos::ListRepoFilterOptions>();
    v.visit::<repos::ListRepoTags>();
    v.visit::<repos::GetLiveArtifacts>();
    v.visit::<repos::GetRepo>();
    v.visit::<schemas::GetFlowTemplateSchema>();
    v.visit::<artifacts::Search>();
    v.visit::<service_accounts::ListServiceAccounts>();
    v.visit::<service_accounts::CreateServiceAccount>();
    v.visit::<service_accounts::GetServiceAccount>();
    v.visit::<service_accounts::PatchServiceAccount>();
    v.visit::<service_accounts::DeleteServiceAccount>();
    v.visit::<api_keys::ListApiKeys>();
    v.visit::<api_keys::CreateApiKey>();
    v.visit::<api_keys::RevokeApiKey>();
    v.visit::<api_keys::GetApiKey>();
    v.visit::<api_keys::RotateApiKey>();
    v.visit::<snapshots::ListSnapshots>();
    v.visit::<snapshots::GetSnapshot>();
    v.visit::<tags::PatchTags>();
    v.visit::<trails::ListTrails>();
    v.visit::<trails::ListTrailsOfFlow>();
    v.visit::<trails::BeginTrail>();
    v.visit::<trails::GetTrail>();
    #[cfg(feature = "pdf")]
    v.visit::<trails::GetAuditPdf>();
    v.visit::<orgs::GetDefaultOrg>();
    v.visit::<orgs::PutDefaultOrg>();
}
