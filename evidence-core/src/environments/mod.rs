//! Environments: where artifacts run, physical ones that are reported on and logical ones that group them.

pub(crate) mod evaluation;
pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod reports;
pub(crate) mod store;
pub(crate) mod view;

pub use operations::{
    AttachPolicies, EnvironmentInput, GetEnvironment, JoinEnvironment, JoinInput, ListEnvironments,
    PolicyNames, PutEnvironment,
};
pub use record::{Environment, EnvironmentKind};
pub use reports::{
    Creation, Digests, DockerKind, DockerReport, PlainArtifact, ReportDocker, ReportServer, ServerKind,
    ServerReport,
};
pub use store::{EnvironmentStatus, EnvironmentStore, KnownEnvironment};
pub use view::{EnvironmentList, EnvironmentPage, EnvironmentSort, EnvironmentView};
