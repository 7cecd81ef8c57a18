//! Environments as they are recorded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::fact::payload::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::EnvironmentName;
use crate::tags::record::Tags;
use crate::time::Timestamp;

/// An environment as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Environment {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: EnvironmentName,
    /// What it is.
    pub kind: EnvironmentKind,
    /// A description of its purpose.
    pub description: String,
    /// The members of a logical environment, in the order given.
    pub included: Vec<Id>,
    /// The policies attached to it, in the order of attaching.
    pub policies: Vec<Id>,
    /// As it was set, without effect: Terraform compares what it reads with what it set.
    pub include_scaling: bool,
    /// Whether what runs there must have been reported in a flow.
    #[serde(default, skip_serializing_if = "is_false")]
    pub require_provenance: bool,
    /// Its tags.
    pub tags: Tags,
    /// When it was created.
    pub created_at: Timestamp,
    /// The user or service account that created it.
    pub created_by: Actor,
    /// When its settings last changed.
    pub last_modified_at: Timestamp,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Environment);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// What kind of thing an environment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the variants are the values")]
#[non_exhaustive]
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
