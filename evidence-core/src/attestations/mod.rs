//! Attestations: claims about a trail or an artifact, append-only. The newest of a name decides.

pub(crate) mod archive;
pub(crate) mod claims;
pub(crate) mod details;
pub(crate) mod evidence;
pub(crate) mod listed;
pub(crate) mod operations;
pub(crate) mod pull_requests;
pub(crate) mod record;
pub(crate) mod store;
pub(crate) mod view;

pub use claims::{Claim, Claimed, Generic, Junit, OriginalType, Override, PullRequests, Verdict};
pub use details::{Details, DetailsView, JunitDetails, JunitSuite, OverrideDetails, PullRequestDetails};
pub use operations::{
    AttestationBase, AttestationInput, AttestationList, GetArtifactAttestation, GetAttestations, GetEvidence,
    GetTrailAttestation, PostAttestation,
};
pub use pull_requests::{
    Approver, ApproverView, Azure, GitProvider, MergeCommit, PullRequest, PullRequestCommit, PullRequestView,
};
pub use record::{Annotations, Attachment, Attestation, Binding};
pub use store::{AttestationRow, AttestationStore, NamedAttestation};
pub use view::{AttachmentView, AttestationLinks, AttestationView};
