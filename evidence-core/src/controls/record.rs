//! The recorded form of controls and their versions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::bounded::{Address, Dictionary, ShortText};
use crate::decode::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::ControlIdentifier;
use crate::tags::record::Tags;
use crate::time::Timestamp;

/// The links of a control as sent: label to URL; at most 100.
pub type ControlLinks = Dictionary<ShortText, Address, 100>;

/// A control as recorded. Its versions are separate records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Control {
    /// Its id.
    pub id: Id,
    /// Its identifier, unique in the organization. It never changes.
    pub identifier: ControlIdentifier,
    /// Its name.
    pub name: String,
    /// Its requirements.
    pub description: String,
    /// Links to further reading: label to URL.
    pub links: BTreeMap<String, String>,
    /// The number of its latest version, from 1.
    pub version: u64,
    /// Whether it is archived.
    pub archived: bool,
    /// Its tags. They are not part of versions.
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

/// An immutable version of a control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlVersion {
    /// The control.
    pub control: Id,
    /// Its number, from 1.
    pub version: u64,
    /// The control's name.
    pub name: String,
    /// The control's requirements.
    pub description: String,
    /// Links to further reading: label to URL.
    pub links: BTreeMap<String, String>,
    /// The change that created it.
    pub status: ControlStatus,
    /// When it was made.
    pub at: Timestamp,
    /// The user or service account that made it.
    pub by: Actor,
}

/// The change that created a version of a control.
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
    /// It was restored.
    Unarchived,
    /// A status recorded by a newer version of the program.
    #[serde(untagged)]
    #[schemars(skip)]
    Other(String),
}

impl Control {
    /// Returns the control's present state as a version.
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
