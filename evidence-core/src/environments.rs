//! Environments: where artifacts run, physical ones that are reported on and logical ones that group them.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::Actor;
use crate::id::Id;
use crate::name::EnvironmentName;
use crate::shared::Tags;
use crate::store::{Current, StoreResult};
use crate::time::Timestamp;

/// An environment as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: EnvironmentName,
    /// What it is.
    pub kind: EnvironmentKind,
    /// What it is for.
    pub description: String,
    /// The members of a logical environment, in the order given.
    pub included: Vec<Id>,
    /// The policies attached to it, in the order of attaching.
    pub policies: Vec<Id>,
    /// Its tags.
    pub tags: Tags,
    /// When it was created.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
    /// When its settings last changed.
    pub last_modified_at: Timestamp,
    /// When it was last reported on.
    pub last_reported_at: Option<Timestamp>,
    /// When its latest snapshot was taken.
    pub last_changed_at: Option<Timestamp>,
    /// How many snapshots it has; they are numbered from 1.
    pub snapshots: u64,
    /// The verdict of the latest snapshot; nothing without policies or snapshots.
    pub state: Option<bool>,
}

/// What kind of thing an environment is (the field `type` on the wire).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the variants are the values")]
pub enum EnvironmentKind {
    K8S,
    ECS,
    S3,
    #[serde(rename = "lambda")]
    Lambda,
    #[serde(rename = "server")]
    Server,
    #[serde(rename = "docker")]
    Docker,
    #[serde(rename = "azure-apps")]
    AzureApps,
    #[serde(rename = "cloud-run")]
    CloudRun,
    #[serde(rename = "logical")]
    Logical,
}

impl EnvironmentKind {
    /// Whether it is reported on, rather than a group of others.
    pub const fn is_physical(self) -> bool {
        !matches!(self, Self::Logical)
    }

    /// The value on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::K8S => "K8S",
            Self::ECS => "ECS",
            Self::S3 => "S3",
            Self::Lambda => "lambda",
            Self::Server => "server",
            Self::Docker => "docker",
            Self::AzureApps => "azure-apps",
            Self::CloudRun => "cloud-run",
            Self::Logical => "logical",
        }
    }
}

/// Questions about environments.
#[async_trait]
pub trait EnvironmentStore: Send + Sync {
    /// The environment of this name.
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<Current<Environment>>>;
    /// All environments, by name (bytes).
    async fn environments(&self, org: Id) -> StoreResult<Vec<Current<Environment>>>;
}
