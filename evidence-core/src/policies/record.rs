//! The recorded form of policies and their versions.

use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::bounded::push_newest;
use crate::decode::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::PolicyName;
use crate::time::Timestamp;

/// A policy as recorded. Its versions are separate records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Policy {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: PolicyName,
    /// A description of its purpose.
    pub description: String,
    /// The number of its latest version, from 1.
    pub version: u64,
    /// When it was created.
    pub created_at: Timestamp,
    /// The user or service account that created it.
    pub created_by: Actor,
    /// When it last changed.
    pub last_modified_at: Timestamp,
    /// The newest 100 changes without a new version, oldest first. All other changes are versions.
    pub description_changes: Vec<DescriptionChange>,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Policy);

/// A change of a policy without a new version: a new description, or only a comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescriptionChange {
    /// When it was made.
    pub at: Timestamp,
    /// The user or service account that made it.
    pub by: Actor,
    /// The policy's latest version at that time.
    pub version: u64,
    /// The comment; empty if none was given, or if later comments need the space.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// The limit for the comments in a policy's record, in bytes. The newest comment is always recorded. Each
/// fact repeats the record, so its size is limited.
pub(super) const MAX_COMMENTS: usize = 16 << 10;

impl Policy {
    /// Returns the latest comment, or `None` if it is that of the latest version.
    pub(super) fn latest_comment(&self) -> Option<&str> {
        let of_version = self.description_changes.iter().rev().take_while(|one| one.version == self.version);
        of_version.map(|one| one.comment.as_str()).find(|comment| !comment.is_empty())
    }

    /// Adds a change without a new version.
    pub(super) fn push_change(&mut self, change: DescriptionChange) {
        push_newest(&mut self.description_changes, change);
        let mut room = MAX_COMMENTS;
        for one in self.description_changes.iter_mut().rev().skip(1) {
            match room.checked_sub(one.comment.len()) {
                Some(left) => room = left,
                None => one.comment.clear(),
            }
        }
    }
}

/// One immutable version of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// The policy.
    pub policy: Id,
    /// Its number, from 1.
    pub version: u64,
    /// A comment on the change.
    pub comment: String,
    /// The YAML text, byte for byte.
    pub policy_yaml: String,
    /// When it was made.
    pub at: Timestamp,
    /// The user or service account that made it.
    pub by: Actor,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{at, id, robot};

    #[test]
    fn comments_of_earlier_changes_make_room_for_later_ones() {
        let mut policy = Policy {
            id: id(1),
            name: "p".parse().unwrap(),
            description: String::new(),
            version: 1,
            created_at: at(0),
            created_by: robot(),
            last_modified_at: at(0),
            description_changes: Vec::new(),
            unknown: UnknownFields::default(),
        };
        let lengths = [10_000, 6_000, 0, 60_000, 5, 20_000];
        for (number, length) in (8..).zip(lengths) {
            let comment = "x".repeat(length);
            policy.push_change(DescriptionChange { at: at(number), by: robot(), version: 1, comment });
        }
        let kept = Vec::from_iter(policy.description_changes.iter().map(|one| one.comment.len()));
        assert_eq!(kept, [10_000, 6_000, 0, 0, 5, 20_000]);
        assert_eq!(policy.latest_comment().map(str::len), Some(20_000));
        policy.version = 2;
        assert_eq!(policy.latest_comment(), None);
    }
}
