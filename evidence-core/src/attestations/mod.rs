//! Attestations: append-only claims about a trail or an artifact. The newest of a name decides.

pub(crate) mod archive;
pub(crate) mod by_commit;
pub(crate) mod claim;
pub(crate) mod claims;
pub(crate) mod custom;
pub(crate) mod details;
pub(crate) mod evidence;
pub(crate) mod jira;
pub(crate) mod listed;
pub(crate) mod lists;
pub(crate) mod operations;
pub(crate) mod pull_requests;
pub(crate) mod record;
pub(crate) mod sarif;
pub(crate) mod sbom;
pub(crate) mod snyk;
pub(crate) mod sonar;
pub(crate) mod store;
pub(crate) mod system_types;
pub(crate) mod view;

pub use by_commit::{AttestationsByCommit, ListAttestationsForCriteria};
pub use claim::{AttestationBase, AttestationBody, AttestationInput, Claim, Claimed, Verdict};
pub use claims::{
    Custom, Generic, Jira, Junit, OriginalType, Override, PullRequests, Snyk, Sonar, System, SystemType,
};
pub use custom::{RuleOutcome, RuleResult};
pub use details::{
    CustomDetails, DecisionDetails, Details, DetailsView, JiraDetails, JunitDetails, JunitSuite,
    OverrideDetails, PullRequestDetails, SarifDetails, SbomDetails, SnykDetails, SonarDetails,
};
pub use jira::JiraItem;
pub use lists::{AttestationList, GetAttestations, GetFlowAttestations, TypeFilter};
pub use operations::{GetArtifactAttestation, GetEvidence, GetTrailAttestation, PostAttestation};
pub use pull_requests::{
    Approver, ApproverView, Azure, GitProvider, MergeCommit, PullRequest, PullRequestCommit, PullRequestView,
};
pub use record::{Annotations, Attachment, Attestation, Binding};
pub use sarif::{SarifSummary, SarifTool};
pub use sbom::SbomSummary;
pub use snyk::{
    FoundIssue, IssueLocation, ProcessedSnykResults, ProjectFindings, ProjectScanResult, SnykResultsSummary,
    SnykTool,
};
pub use sonar::{QualityGate, QualityGateCondition, SonarProject, SonarResults};
pub use store::{
    AttestationRow, AttestationStore, DecisionFilter, DecisionRow, FlowPosition, ListedAttestation,
    NamedAttestation, TimeRange,
};
pub use system_types::{ListSystemAttestationTypes, SystemTypeVersionView, SystemTypeView};
pub use view::{AttachmentView, AttestationLinks, AttestationView, OmittedData};
