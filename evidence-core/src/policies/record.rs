//! Policies and their versions as they are recorded.

use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::fact::payload::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::PolicyName;
use crate::time::Timestamp;

/// A policy as it is recorded; its versions are records of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Policy {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: PolicyName,
    /// What it is for.
    pub description: String,
    /// The number of its latest version, from 1.
    pub version: u64,
    /// When it was created.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
    /// When it last changed.
    pub last_modified_at: Timestamp,
    /// When its description changed: the newest 100 times, oldest first. What else happened to it stands in its versions.
    pub description_changes: Vec<DescriptionChange>,
    /// What a newer version of the program recorded beside.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Policy);

/// That a policy's description was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescriptionChange {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
    /// The policy's latest version at that time.
    pub version: u64,
}

/// One immutable version of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// The policy.
    pub policy: Id,
    /// Its number, from 1.
    pub version: u64,
    /// What changed.
    pub comment: String,
    /// The YAML text, byte for byte.
    pub policy_yaml: String,
    /// When it was made.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
}
