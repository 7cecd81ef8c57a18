//! Environments: where artifacts run, physical ones that are reported on and logical ones that group them.

pub(crate) mod asserts;
pub(crate) mod evaluation;
pub(crate) mod operations;
pub(crate) mod record;
#[cfg(feature = "memory")]
pub(crate) mod replay;
pub(crate) mod reports;
pub(crate) mod store;
pub(crate) mod view;

pub use asserts::{AllowListing, AssertArtifact, AssertScope, AssertView, AssertedFlow};
pub use operations::{
    AttachPolicies, EnvironmentInput, GetEnvironment, JoinEnvironment, JoinInput, ListEnvironments,
    PolicyNames, PutEnvironment,
};
pub use record::{Environment, EnvironmentKind};
#[cfg(feature = "memory")]
pub use replay::replay;
pub use reports::{
    Creation, Digests, DockerKind, DockerReport, PlainArtifact, ReportDocker, ReportServer, ServerKind,
    ServerReport,
};
pub use store::{EnvironmentStatus, EnvironmentStore, KnownEnvironment};
pub use view::{EnvironmentList, EnvironmentPage, EnvironmentSort, EnvironmentView};
