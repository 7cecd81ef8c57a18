//! The facts that a store records: one variant for each kind, in the past tense and complete.
//!
//! Every table of a store can be rebuilt from the facts alone, except the hashes of API keys. A write is a
//! list of facts that are recorded atomically.

pub(crate) mod names;
pub(crate) mod payload;
mod write;

use serde::{Deserialize, Serialize};

use crate::actions::record::Action;
use crate::allowlists::record::AllowlistEntry;
use crate::artifacts::record::Artifact;
use crate::attestation_types::record::{AttestationType, AttestationTypeVersion};
use crate::attestations::record::Attestation;
use crate::auth::actor::Role;
use crate::controls::record::{Control, ControlVersion};
use crate::environments::record::Environment;
use crate::flows::record::Flow;
use crate::id::Id;
use crate::name::{ActionName, EnvironmentName, FlowName};
use crate::orgs::record::{Membership, Organization, User, UserSettings};
use crate::policies::record::{Policy, PolicyVersion};
use crate::repos::record::Repo;
use crate::service_accounts::record::{ApiKeyRecord, ServiceAccount};
use crate::snapshots::record::Snapshot;
use crate::time::Timestamp;
use crate::trails::record::Trail;

pub use crate::decode::UnknownFields;
pub use names::{Denoted, Key, NameEffect, Precondition, RecordKind};
pub use payload::{Recorded, decode_payload, read_payload};
pub use write::{EncodedFact, SaltSeed, Secrets, Write};

/// An event in an organization. The payload of a ledger entry has it beside the name of its actor.
///
/// Its JSON is an object with one key, the kind of the fact. If a fact creates or changes a record, `record`
/// is the complete new state of that record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants and fields are named after what they hold")]
#[non_exhaustive]
pub enum Fact {
    OrganizationCreated {
        record: Organization,
    },
    UserCreated {
        record: User,
    },
    UserSettingsChanged {
        record: UserSettings,
    },
    /// Also recorded if the user had another role before.
    MemberAdded {
        record: Membership,
        /// The user's previous role, if any.
        #[serde(deserialize_with = "Option::deserialize")]
        was: Option<Role>,
    },
    MemberRemoved {
        user: Id,
        /// The user's previous role.
        was: Role,
    },
    ServiceAccountCreated {
        record: ServiceAccount,
    },
    ServiceAccountUpdated {
        record: ServiceAccount,
    },
    ServiceAccountDeleted {
        record: ServiceAccount,
    },
    ApiKeyCreated {
        record: ApiKeyRecord,
    },
    ApiKeyRevoked {
        record: ApiKeyRecord,
    },
    FlowCreated {
        record: Flow,
    },
    FlowUpdated {
        record: Flow,
    },
    FlowTagged {
        record: Flow,
    },
    FlowRenamed {
        record: Flow,
        was: FlowName,
    },
    /// The record has its archived name; `was` is the name that it released.
    FlowArchived {
        record: Flow,
        was: FlowName,
    },
    TrailBegun {
        record: Trail,
    },
    TrailUpdated {
        record: Trail,
        changes: Vec<String>,
    },
    ArtifactReported {
        record: Artifact,
    },
    AttestationAdded {
        record: Attestation,
    },
    RepoReported {
        record: Repo,
    },
    RepoTagged {
        record: Repo,
    },
    EnvironmentCreated {
        record: Environment,
    },
    EnvironmentUpdated {
        record: Environment,
        /// Members that a logical environment gained.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        joined: Vec<Id>,
        /// Members that a logical environment lost.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<Id>,
    },
    EnvironmentTagged {
        record: Environment,
    },
    EnvironmentJoined {
        record: Environment,
        member: Id,
    },
    EnvironmentReported {
        environment: Id,
    },
    EnvironmentRenamed {
        record: Environment,
        was: EnvironmentName,
    },
    EnvironmentArchived {
        record: Environment,
    },
    PoliciesAttached {
        record: Environment,
        policies: Vec<Id>,
    },
    PoliciesDetached {
        record: Environment,
        policies: Vec<Id>,
    },
    SnapshotTaken {
        snapshot: Snapshot,
    },
    PolicyCreated {
        record: Policy,
        version: PolicyVersion,
    },
    PolicyUpdated {
        record: Policy,
        version: Option<PolicyVersion>,
        /// The comment on a change that affects only the description.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
    },
    ArtifactAllowed {
        record: AllowlistEntry,
    },
    /// An entry of an allowlist was withdrawn: the record is that entry, with its withdrawal.
    AllowanceWithdrawn {
        record: AllowlistEntry,
    },
    AttestationTypeCreated {
        record: AttestationType,
        version: AttestationTypeVersion,
    },
    AttestationTypeVersioned {
        record: AttestationType,
        version: AttestationTypeVersion,
    },
    AttestationTypeArchived {
        record: AttestationType,
    },
    ControlCreated {
        record: Control,
        version: ControlVersion,
    },
    ControlUpdated {
        record: Control,
        version: ControlVersion,
    },
    ControlArchived {
        record: Control,
        version: ControlVersion,
    },
    ControlUnarchived {
        record: Control,
        version: ControlVersion,
    },
    ControlTagged {
        record: Control,
    },
    ActionCreated {
        record: Action,
    },
    ActionUpdated {
        record: Action,
        /// The previous name, if it changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        was: Option<ActionName>,
        /// The ids of the targets that were removed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        removed: Vec<Id>,
        /// The ids of the secret URLs that no target has any more.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        removed_urls: Vec<Id>,
    },
    ActionDeleted {
        record: Action,
    },
    /// A text that later facts refer to by its digest ([`TextRef`](crate::texts::TextRef)).
    TextKept {
        text: String,
    },
    /// The ledger was named anew. Checkpoints of the new name need not extend those of the former name.
    LedgerNamed {
        /// The new name: the origin of the next checkpoint.
        name: String,
        /// The last signed checkpoint of the former name, as a signed note.
        former: String,
    },
    /// A clock was ahead, and this fact has the correct time. The entries that the clock dated have later
    /// times, but count as recorded at this time. Later entries continue from this time.
    ClockCorrected {
        /// The index of the first entry with a later time.
        first: u64,
        /// The time of the preceding entry.
        was: Timestamp,
    },
}

impl Fact {
    /// Parses the fact in the payload of a ledger entry, which any version of the program may have recorded.
    ///
    /// # Errors
    /// The payload is no fact that this version knows.
    pub fn read(payload: &str) -> serde_json::Result<Self> {
        read_payload(payload).map(|(fact, _)| fact)
    }

    /// Returns the kind in the ledger's leaf, which is the key of the payload.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::OrganizationCreated { .. } => "organization_created",
            Self::UserCreated { .. } => "user_created",
            Self::UserSettingsChanged { .. } => "user_settings_changed",
            Self::MemberAdded { .. } => "member_added",
            Self::MemberRemoved { .. } => "member_removed",
            Self::ServiceAccountCreated { .. } => "service_account_created",
            Self::ServiceAccountUpdated { .. } => "service_account_updated",
            Self::ServiceAccountDeleted { .. } => "service_account_deleted",
            Self::ApiKeyCreated { .. } => "api_key_created",
            Self::ApiKeyRevoked { .. } => "api_key_revoked",
            Self::FlowCreated { .. } => "flow_created",
            Self::FlowUpdated { .. } => "flow_updated",
            Self::FlowTagged { .. } => "flow_tagged",
            Self::FlowRenamed { .. } => "flow_renamed",
            Self::FlowArchived { .. } => "flow_archived",
            Self::TrailBegun { .. } => "trail_begun",
            Self::TrailUpdated { .. } => "trail_updated",
            Self::ArtifactReported { .. } => "artifact_reported",
            Self::AttestationAdded { .. } => "attestation_added",
            Self::RepoReported { .. } => "repo_reported",
            Self::RepoTagged { .. } => "repo_tagged",
            Self::EnvironmentCreated { .. } => "environment_created",
            Self::EnvironmentUpdated { .. } => "environment_updated",
            Self::EnvironmentTagged { .. } => "environment_tagged",
            Self::EnvironmentJoined { .. } => "environment_joined",
            Self::EnvironmentReported { .. } => "environment_reported",
            Self::EnvironmentRenamed { .. } => "environment_renamed",
            Self::EnvironmentArchived { .. } => "environment_archived",
            Self::PoliciesAttached { .. } => "policies_attached",
            Self::PoliciesDetached { .. } => "policies_detached",
            Self::SnapshotTaken { .. } => "snapshot_taken",
            Self::PolicyCreated { .. } => "policy_created",
            Self::PolicyUpdated { .. } => "policy_updated",
            Self::ArtifactAllowed { .. } => "artifact_allowed",
            Self::AllowanceWithdrawn { .. } => "allowance_withdrawn",
            Self::AttestationTypeCreated { .. } => "attestation_type_created",
            Self::AttestationTypeVersioned { .. } => "attestation_type_versioned",
            Self::AttestationTypeArchived { .. } => "attestation_type_archived",
            Self::ControlCreated { .. } => "control_created",
            Self::ControlUpdated { .. } => "control_updated",
            Self::ControlArchived { .. } => "control_archived",
            Self::ControlUnarchived { .. } => "control_unarchived",
            Self::ControlTagged { .. } => "control_tagged",
            Self::ActionCreated { .. } => "action_created",
            Self::ActionUpdated { .. } => "action_updated",
            Self::ActionDeleted { .. } => "action_deleted",
            Self::TextKept { .. } => "text_kept",
            Self::LedgerNamed { .. } => "ledger_named",
            Self::ClockCorrected { .. } => "clock_corrected",
        }
    }

    /// Returns whether the fact changes who has access, or their permissions.
    pub(crate) const fn changes_access(&self) -> bool {
        matches!(
            self,
            Self::OrganizationCreated { .. }
                | Self::MemberAdded { .. }
                | Self::MemberRemoved { .. }
                | Self::ServiceAccountCreated { .. }
                | Self::ServiceAccountUpdated { .. }
                | Self::ServiceAccountDeleted { .. }
                | Self::ApiKeyCreated { .. }
                | Self::ApiKeyRevoked { .. }
        )
    }

    /// Returns whether the ledger's time goes back with this fact. Its entry has exactly the time of the
    /// write.
    pub const fn corrects_clock(&self) -> bool {
        matches!(self, Self::ClockCorrected { .. })
    }

    /// Returns whether the fact creates this organization, as the first fact of its ledger does.
    pub(crate) fn creates_org(&self, org: Id) -> bool {
        matches!(self, Self::OrganizationCreated { record } if record.id == org)
    }

    /// Returns the record that the fact creates or changes. The ledger index of the fact becomes the record's
    /// revision, with which preconditions are compared.
    ///
    /// Returns `None` for facts about immutable records, and for organizations and users, which are named in
    /// the whole store.
    pub fn subject(&self) -> Option<(RecordKind, Id)> {
        Some(match self {
            Self::UserSettingsChanged { record } => (RecordKind::UserSettings, record.user),
            Self::MemberAdded { record, .. } => (RecordKind::Member, record.user),
            Self::MemberRemoved { user, .. } => (RecordKind::Member, *user),
            Self::ServiceAccountCreated { record }
            | Self::ServiceAccountUpdated { record }
            | Self::ServiceAccountDeleted { record } => (RecordKind::ServiceAccount, record.id),
            Self::ApiKeyCreated { record } | Self::ApiKeyRevoked { record } => {
                (RecordKind::ApiKey, record.id)
            }
            Self::FlowCreated { record }
            | Self::FlowUpdated { record }
            | Self::FlowTagged { record }
            | Self::FlowRenamed { record, .. }
            | Self::FlowArchived { record, .. } => (RecordKind::Flow, record.id),
            Self::TrailBegun { record } | Self::TrailUpdated { record, .. } => (RecordKind::Trail, record.id),
            Self::RepoReported { record } | Self::RepoTagged { record } => (RecordKind::Repo, record.id),
            Self::EnvironmentCreated { record }
            | Self::EnvironmentUpdated { record, .. }
            | Self::EnvironmentTagged { record }
            | Self::EnvironmentJoined { record, .. }
            | Self::EnvironmentRenamed { record, .. }
            | Self::EnvironmentArchived { record }
            | Self::PoliciesAttached { record, .. }
            | Self::PoliciesDetached { record, .. } => (RecordKind::Environment, record.id),
            Self::PolicyCreated { record, .. } | Self::PolicyUpdated { record, .. } => {
                (RecordKind::Policy, record.id)
            }
            Self::AttestationTypeCreated { record, .. }
            | Self::AttestationTypeVersioned { record, .. }
            | Self::AttestationTypeArchived { record } => (RecordKind::AttestationType, record.id),
            Self::ControlCreated { record, .. }
            | Self::ControlUpdated { record, .. }
            | Self::ControlArchived { record, .. }
            | Self::ControlUnarchived { record, .. }
            | Self::ControlTagged { record } => (RecordKind::Control, record.id),
            Self::ActionCreated { record }
            | Self::ActionUpdated { record, .. }
            | Self::ActionDeleted { record } => (RecordKind::Action, record.id),
            Self::EnvironmentReported { environment }
            | Self::SnapshotTaken { snapshot: Snapshot { environment, reported: true, .. } } => {
                (RecordKind::Report, *environment)
            }
            Self::OrganizationCreated { .. }
            | Self::UserCreated { .. }
            | Self::ArtifactReported { .. }
            | Self::AttestationAdded { .. }
            | Self::SnapshotTaken { .. }
            | Self::ArtifactAllowed { .. }
            | Self::AllowanceWithdrawn { .. }
            | Self::TextKept { .. }
            | Self::LedgerNamed { .. }
            | Self::ClockCorrected { .. } => return None,
        })
    }

    /// Returns the id of the record that the fact is about, and by which [`record_entry`] finds its entry. A user's
    /// settings and role, and a report on an environment, have the id of another record, and a snapshot has none.
    ///
    /// [`record_entry`]: crate::store::LedgerStore::record_entry
    pub fn record(&self) -> Option<Id> {
        match self {
            Self::ArtifactReported { record } => Some(record.id),
            Self::AttestationAdded { record } => Some(record.id),
            _ => self.subject().filter(|(kind, _)| kind.has_own_id()).map(|(_, id)| id),
        }
    }

    /// Returns the id of the record that the fact creates. A report that first names a repo creates it in passing.
    pub(crate) fn created(&self) -> Option<Id> {
        let creates = matches!(
            self,
            Self::ServiceAccountCreated { .. }
                | Self::ApiKeyCreated { .. }
                | Self::FlowCreated { .. }
                | Self::TrailBegun { .. }
                | Self::ArtifactReported { .. }
                | Self::AttestationAdded { .. }
                | Self::EnvironmentCreated { .. }
                | Self::PolicyCreated { .. }
                | Self::AttestationTypeCreated { .. }
                | Self::ControlCreated { .. }
                | Self::ActionCreated { .. }
        );
        self.record().filter(|_| creates)
    }

    /// Returns the effects of the fact on names, in this order. The identity of a record is its id; a name is
    /// a claim that the record can release.
    pub fn name_effects(&self) -> Vec<NameEffect> {
        let claim = |key, id| vec![NameEffect::Claim(key, id)];
        match self {
            Self::OrganizationCreated { record } => claim(Key::Organization(record.name.clone()), record.id),
            Self::UserCreated { record } => claim(Key::User(record.name.clone()), record.id),
            Self::UserSettingsChanged { record } => claim(Key::UserSettings(record.user), record.user),
            Self::MemberAdded { record, .. } => claim(Key::Member(record.user), record.user),
            Self::MemberRemoved { user, .. } => vec![NameEffect::Release(RecordKind::Member, *user)],
            Self::ServiceAccountCreated { record } => {
                claim(Key::ServiceAccount(record.name.clone()), record.id)
            }
            Self::ServiceAccountDeleted { record } => {
                vec![NameEffect::Release(RecordKind::ServiceAccount, record.id)]
            }
            Self::FlowCreated { record } => claim(Key::Flow(record.name.clone()), record.id),
            Self::FlowRenamed { record, was } => vec![
                NameEffect::Alias(Key::Flow(was.clone()), record.id),
                NameEffect::Claim(Key::Flow(record.name.clone()), record.id),
            ],
            Self::FlowArchived { record, .. } => vec![
                NameEffect::Release(RecordKind::Flow, record.id),
                NameEffect::Claim(Key::Flow(record.name.clone()), record.id),
            ],
            Self::TrailBegun { record } => {
                claim(Key::Trail { flow: record.flow, name: record.name.clone() }, record.id)
            }
            Self::ArtifactReported { record } => {
                record.names().map(|key| NameEffect::Alias(key, record.id)).collect()
            }
            Self::RepoReported { record } => claim(Key::Repo(record.identity.clone()), record.id),
            Self::EnvironmentCreated { record } => claim(Key::Environment(record.name.clone()), record.id),
            Self::EnvironmentRenamed { record, was } => vec![
                NameEffect::Alias(Key::Environment(was.clone()), record.id),
                NameEffect::Claim(Key::Environment(record.name.clone()), record.id),
            ],
            Self::EnvironmentArchived { record } => {
                vec![NameEffect::Release(RecordKind::Environment, record.id)]
            }
            Self::SnapshotTaken { snapshot: Snapshot { environment, index, .. } } => {
                claim(Key::Snapshot { environment: *environment, index: *index }, *environment)
            }
            Self::PolicyCreated { record, .. } => claim(Key::Policy(record.name.clone()), record.id),
            Self::AttestationTypeCreated { record, .. } => {
                claim(Key::AttestationType(record.name.clone()), record.id)
            }
            Self::ControlCreated { record, .. } => claim(Key::Control(record.identifier.clone()), record.id),
            Self::ActionCreated { record } => vec![
                NameEffect::Claim(Key::Action(record.name.clone()), record.id),
                NameEffect::Claim(Key::ActionNumber(record.number), record.id),
            ],
            Self::ActionUpdated { record, was: Some(was), .. } => vec![
                NameEffect::Alias(Key::Action(was.clone()), record.id),
                NameEffect::Claim(Key::Action(record.name.clone()), record.id),
            ],
            Self::ActionDeleted { record } => vec![NameEffect::Release(RecordKind::Action, record.id)],
            Self::ServiceAccountUpdated { .. }
            | Self::ApiKeyCreated { .. }
            | Self::ApiKeyRevoked { .. }
            | Self::FlowUpdated { .. }
            | Self::FlowTagged { .. }
            | Self::TrailUpdated { .. }
            | Self::AttestationAdded { .. }
            | Self::RepoTagged { .. }
            | Self::EnvironmentUpdated { .. }
            | Self::EnvironmentTagged { .. }
            | Self::EnvironmentJoined { .. }
            | Self::EnvironmentReported { .. }
            | Self::PoliciesAttached { .. }
            | Self::PoliciesDetached { .. }
            | Self::PolicyUpdated { .. }
            | Self::ArtifactAllowed { .. }
            | Self::AllowanceWithdrawn { .. }
            | Self::AttestationTypeVersioned { .. }
            | Self::AttestationTypeArchived { .. }
            | Self::ControlUpdated { .. }
            | Self::ControlArchived { .. }
            | Self::ControlUnarchived { .. }
            | Self::ControlTagged { .. }
            | Self::ActionUpdated { was: None, .. }
            | Self::TextKept { .. }
            | Self::LedgerNamed { .. }
            | Self::ClockCorrected { .. } => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{self, JsonValue};

    /// Returns copies of the value, each with one additional field in one of its objects.
    fn with_one_more(value: &JsonValue) -> Vec<JsonValue> {
        match value {
            JsonValue::Array(items) => within(items, with_one_more, JsonValue::Array),
            JsonValue::Object(fields) => {
                let more = ("of_tomorrow".to_owned(), JsonValue::String("x".to_owned()));
                let mut found = vec![JsonValue::Object([fields.as_slice(), &[more]].concat())];
                let one_more = |(name, value): &(String, JsonValue)| {
                    // Links are keyed by label, so an additional field is another link.
                    let entries_alone = usize::from(name == "external_urls");
                    let changed = with_one_more(value).into_iter().skip(entries_alone);
                    changed.map(|value| (name.clone(), value)).collect::<Vec<_>>()
                };
                found.extend(within(fields, one_more, JsonValue::Object));
                found
            }
            _ => Vec::new(),
        }
    }

    fn within<T: Clone>(
        items: &[T],
        changed: impl Fn(&T) -> Vec<T>,
        whole: impl Fn(Vec<T>) -> JsonValue,
    ) -> Vec<JsonValue> {
        let with = |place: usize, item: T| {
            let mut items = items.to_vec();
            items[place] = item;
            whole(items)
        };
        let changed = items.iter().enumerate().map(|(place, item)| (place, changed(item)));
        changed
            .flat_map(|(place, items)| items.into_iter().map(move |item| (place, item)))
            .map(|(place, item)| with(place, item))
            .collect()
    }

    #[test]
    fn what_newer_versions_record_beside_is_no_reason_not_to_read_it() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        let mut read = 0;
        for kind in ["attestation_added", "artifact_reported", "trail_begun", "repo_reported"] {
            let payloads = std::fs::read_to_string(format!("{directory}/{kind}.jsonl")).unwrap();
            for payload in payloads.lines().filter(|payload| payload.len() < 4 << 10) {
                let JsonValue::Object(fact) = json::parse(payload.as_bytes()).unwrap() else {
                    panic!("{payload}")
                };
                for what in with_one_more(&fact[0].1) {
                    let text =
                        serde_json::to_string(&JsonValue::Object(vec![(kind.to_owned(), what)])).unwrap();
                    if let Err(error) = Fact::read(&text) {
                        panic!("{error}: {text}");
                    }
                    read += 1;
                }
            }
        }
        assert!(read > 150, "{read}");
    }
}
