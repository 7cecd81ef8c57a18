//! Controls and their versions as they are recorded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::bounded::{Address, Dictionary, ShortText};
use crate::fact::payload::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::ControlIdentifier;
use crate::tags::record::Tags;
use crate::time::Timestamp;

/// Links of a control: what each is called, and its address; at most 100.
pub type ControlLinks = Dictionary<ShortText, Address, 100>;

/// A control as it is recorded; its versions are records of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Control {
    /// Its id.
    pub id: Id,
    /// What it is found by, unique in the organization; it never changes.
    pub identifier: ControlIdentifier,
    /// What it is called.
    pub name: ShortText,
    /// What it demands.
    pub description: String,
    /// Where to read more.
    pub links: ControlLinks,
    /// The number of its latest version, from 1.
    pub version: u64,
    /// Whether it is archived.
    pub archived: bool,
    /// Its tags, of which versions say nothing.
    pub tags: Tags,
    /// When it was created.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
    /// When its latest version was made.
    pub last_modified_at: Timestamp,
    /// What a newer version of the program recorded beside.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Control);

/// One immutable version of a control: what it said from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlVersion {
    /// The control.
    pub control: Id,
    /// Its number, from 1.
    pub version: u64,
    /// What the control was called.
    pub name: ShortText,
    /// What it demanded.
    pub description: String,
    /// Where to read more.
    pub links: ControlLinks,
    /// What made it.
    pub status: ControlStatus,
    /// When it was made.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
}

/// What made a version of a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ControlStatus {
    /// The control was created.
    Created,
    /// Its name, its description or its links were changed.
    Edited,
    /// It was archived.
    Archived,
    /// It was brought back from the archive.
    Unarchived,
}

impl Control {
    /// The version that the control has now come to.
    pub(super) fn latest(&self, status: ControlStatus, by: Actor) -> ControlVersion {
        ControlVersion {
            control: self.id,
            version: self.version,
            name: self.name.clone(),
            description: self.description.clone(),
            links: self.links.clone(),
            status,
            at: self.last_modified_at,
            by,
        }
    }
}
