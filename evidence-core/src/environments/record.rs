//! The recorded form of environments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::decode::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::EnvironmentName;
use crate::tags::record::Tags;
use crate::time::Timestamp;

/// An environment as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Environment {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: EnvironmentName,
    /// Its kind.
    pub kind: EnvironmentKind,
    /// A description of its purpose.
    pub description: String,
    /// The members of a logical environment, in the given order.
    pub included: Vec<Id>,
    /// The policies attached to it, in the order in which they were attached.
    pub policies: Vec<Id>,
    /// The value that was set. It has no effect, but Terraform compares the value it reads with the value it
    /// set.
    pub include_scaling: bool,
    /// Whether running artifacts must have been reported to a flow.
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

/// The kind of an environment.
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
    /// Returns whether it gets reports. A logical environment groups others instead.
    pub const fn is_physical(self) -> bool {
        !matches!(self, Self::Logical)
    }

    /// Returns the name of the kind in requests and responses.
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
