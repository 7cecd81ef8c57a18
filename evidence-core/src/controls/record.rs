//! Controls and their versions as they are recorded.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::bounded::{Address, Dictionary, ShortText};
use crate::fact::payload::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::ControlIdentifier;
use crate::tags::record::Tags;
use crate::time::Timestamp;

/// Links of a control as they are sent: what each is called, and its address; at most 100.
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
    pub name: String,
    /// What it demands.
    pub description: String,
    /// Links to further reading: label to URL.
    pub links: BTreeMap<String, String>,
    /// The number of its latest version, from 1.
    pub version: u64,
    /// Whether it is archived.
    pub archived: bool,
    /// Its tags, of which versions say nothing.
    pub tags: Tags,
    /// When it was created.
    pub created_at: Timestamp,
    /// The user or service account that created it.
    pub created_by: Actor,
    /// When its latest version was made.
    pub last_modified_at: Timestamp,
    /// Fields that a newer version of the program recorded.
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
    pub name: String,
    /// What it demanded.
    pub description: String,
    /// Links to further reading: label to URL.
    pub links: BTreeMap<String, String>,
    /// What made it.
    pub status: ControlStatus,
    /// When it was made.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
}

/// What made a version of a control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// What a newer version of the program recorded.
    #[serde(untagged)]
    #[schemars(skip)]
    Other(String),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_recorded_is_read_whatever_may_be_sent_by_now() {
        let links: BTreeMap<_, _> =
            (0..101).map(|n| (format!("{n}{}", "l".repeat(300)), "a".repeat(3_000))).collect();
        let by = json!({"id": "00000000-0000-0000-0000-00000001", "kind": "user", "name": "jane"});
        let record = json!({
            "id": "00000000-0000-0000-0000-00000001", "identifier": "c", "name": "n".repeat(300), "description": "",
            "links": links, "version": 1, "archived": false, "tags": {}, "created_at": 1, "created_by": by,
            "last_modified_at": 1, "owner": "later",
        });
        let control: Control = serde_json::from_value(record.clone()).unwrap();
        assert_eq!(serde_json::to_value(&control).unwrap(), record);
        let version = json!({
            "control": "00000000-0000-0000-0000-00000001", "version": 1, "name": "n".repeat(300), "description": "",
            "links": links, "status": "reviewed", "at": 1, "by": by,
        });
        let read: ControlVersion = serde_json::from_value(version.clone()).unwrap();
        assert_eq!(read.status, ControlStatus::Other("reviewed".to_owned()));
        assert_eq!(serde_json::to_value(&read).unwrap(), version);
        for status in ["created", "edited", "archived", "unarchived"] {
            let read: ControlStatus = serde_json::from_value(json!(status)).unwrap();
            assert!(!matches!(read, ControlStatus::Other(_)), "{status}");
        }
    }
}
