//! Environments: places where artifacts run. Physical ones get reports; logical ones group physical ones.

pub(crate) mod asserts;
pub(crate) mod attached;
pub(crate) mod audit_log;
pub(crate) mod evaluation;
pub(crate) mod evaluation_cache;
pub(crate) mod events;
pub(crate) mod last_evaluation;
pub(crate) mod lifecycle;
pub(crate) mod observed;
pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod reevaluation;
pub(crate) mod replay;
pub(crate) mod reports;
pub(crate) mod store;
pub(crate) mod view;

pub use crate::allowlists::view::AllowListing;
pub use asserts::{AssertArtifact, AssertScope, AssertView, AssertedFlow};
pub use attached::{AttachPolicies, DetachPolicies, PolicyNames};
pub use audit_log::GetEnvironmentAuditLog;
pub use events::{EventFlow, EventLink, EventLinks, EventView, ListEnvironmentEvents};
pub use lifecycle::{ArchiveEnvironment, EnvironmentRenaming, RenameEnvironment};
pub use operations::{
    EnvironmentInput, EnvironmentPatch, GetEnvironment, JoinEnvironment, JoinInput, ListEnvironments,
    PatchEnvironment, PutEnvironment,
};
pub use record::{Environment, EnvironmentKind};
pub use replay::replay;
pub use reports::{
    AzureApp, AzureApps, AzureDigests, CloudRun, CloudRunKind, CloudRunResource, Creation, DigestOrNone,
    Digests, Docker, ECS, EcsTask, EnvironmentReport, Instance, K8S, Lambda, PlainArtifact, Pod, PodOwner,
    ReportRunning, ReportType, S3, Server,
};
pub use store::{EnvironmentStatus, EnvironmentStore, KnownEnvironment, MemberChange};
pub use view::{EnvironmentList, EnvironmentPage, EnvironmentSort, EnvironmentView};
