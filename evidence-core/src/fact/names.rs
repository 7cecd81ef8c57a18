//! The names of records: what facts do to them, and what a write rests on.

use std::borrow::Cow;

use crate::id::Id;
use crate::name::{
    ActionName, AttestationTypeName, ControlIdentifier, EnvironmentName, Fingerprint, FlowName, OrgName,
    PolicyName, ServiceAccountName, TrailName,
};

/// The kinds of records in an organization. All but snapshots and artifacts change, and so have a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the variants are the records")]
pub enum RecordKind {
    /// What a user has set for themselves, under the user's id.
    UserSettings,
    /// A user's role, under the user's id.
    Member,
    ServiceAccount,
    ApiKey,
    Flow,
    Trail,
    Repo,
    Environment,
    /// The newest report on an environment, under the environment's id.
    Report,
    Policy,
    AttestationType,
    Control,
    Action,
    Snapshot,
    Artifact,
}

impl RecordKind {
    /// The kind as stores write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserSettings => "user_settings",
            Self::Member => "member",
            Self::ServiceAccount => "service_account",
            Self::ApiKey => "api_key",
            Self::Flow => "flow",
            Self::Trail => "trail",
            Self::Repo => "repo",
            Self::Environment => "environment",
            Self::Report => "report",
            Self::Policy => "policy",
            Self::AttestationType => "attestation_type",
            Self::Control => "control",
            Self::Action => "action",
            Self::Snapshot => "snapshot",
            Self::Artifact => "artifact",
        }
    }

    /// Whether names of this kind are looked up in the kind's own rows ([`crate::index::IndexRow`]), and not in the name
    /// rows: those of trails and snapshots never change, and what artifacts are found by leads to the newest one.
    pub const fn has_own_name_rows(self) -> bool {
        matches!(self, Self::Trail | Self::Snapshot | Self::Artifact)
    }
}

/// What a record is found by. Organizations and users are named in the whole store, everything else in its
/// organization.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the variants are the named records")]
pub enum Key {
    Organization(OrgName),
    User(OrgName),
    /// A user's role, by the user's id, as long as they have one.
    Member(Id),
    /// What a user has set for themselves, by the user's id.
    UserSettings(Id),
    ServiceAccount(ServiceAccountName),
    Flow(FlowName),
    Trail {
        flow: Id,
        name: TrailName,
    },
    Repo(String),
    Environment(EnvironmentName),
    Policy(PolicyName),
    AttestationType(AttestationTypeName),
    Control(ControlIdentifier),
    Action(ActionName),
    /// An action's number, which is written with a mark that no name has: `#12`.
    ActionNumber(u64),
    /// A snapshot's number, which one snapshot has.
    Snapshot {
        environment: Id,
        index: u64,
    },
    /// A template's name for artifacts of a trail: it leads to the one reported last.
    Artifact {
        trail: Id,
        name: String,
    },
    /// The digest of content in a trail: it leads to the last report of it there.
    Content {
        trail: Id,
        fingerprint: Fingerprint,
    },
}

impl Key {
    /// The kind of record that it names; nothing for what is named in the whole store.
    pub const fn kind(&self) -> Option<RecordKind> {
        Some(match self {
            Self::Organization(_) | Self::User(_) => return None,
            Self::Member(_) => RecordKind::Member,
            Self::UserSettings(_) => RecordKind::UserSettings,
            Self::ServiceAccount(_) => RecordKind::ServiceAccount,
            Self::Flow(_) => RecordKind::Flow,
            Self::Trail { .. } => RecordKind::Trail,
            Self::Repo(_) => RecordKind::Repo,
            Self::Environment(_) => RecordKind::Environment,
            Self::Policy(_) => RecordKind::Policy,
            Self::AttestationType(_) => RecordKind::AttestationType,
            Self::Control(_) => RecordKind::Control,
            Self::Action(_) | Self::ActionNumber(_) => RecordKind::Action,
            Self::Snapshot { .. } => RecordKind::Snapshot,
            Self::Artifact { .. } | Self::Content { .. } => RecordKind::Artifact,
        })
    }

    /// The name itself.
    pub fn name(&self) -> Cow<'_, str> {
        let name: &str = match self {
            Self::Organization(name) | Self::User(name) => name.as_ref(),
            Self::ServiceAccount(name) => name.as_ref(),
            Self::Flow(name) => name.as_ref(),
            Self::Trail { name, .. } => name.as_ref(),
            Self::Repo(name) | Self::Artifact { name, .. } => name,
            Self::Content { fingerprint, .. } => fingerprint.as_ref(),
            Self::Environment(name) => name.as_ref(),
            Self::Policy(name) => name.as_ref(),
            Self::AttestationType(name) => name.as_ref(),
            Self::Control(identifier) => identifier.as_ref(),
            Self::Action(name) => name.as_ref(),
            Self::ActionNumber(number) => return Cow::Owned(format!("#{number}")),
            Self::Member(user) | Self::UserSettings(user) => return Cow::Owned(user.to_string()),
            Self::Snapshot { index, .. } => return Cow::Owned(index.to_string()),
        };
        Cow::Borrowed(name)
    }

    /// Whether a second claim of it is refused even of the same record.
    pub(crate) const fn is_claimed_once(&self) -> bool {
        matches!(self, Self::Snapshot { .. })
    }
}

/// What becomes of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameEffect {
    /// The record claims the name. The write is refused with [`crate::StoreError::Conflict`] where another record
    /// claims it; an alias gives way.
    Claim(Key, Id),
    /// The name leads to the record, which does not claim it: a former name of it, until another record claims it, or one
    /// that the newest of several records has.
    Alias(Key, Id),
    /// The record gives up all of its names.
    Release(RecordKind, Id),
}

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denoted {
    /// The record.
    pub id: Id,
    /// Whether the record does not claim the name, so that another may: a former name, or one that the newest of several
    /// records has.
    pub alias: bool,
}

/// What a decision rested on; a write whose guard no longer holds is refused with
/// [`crate::StoreError::Conflict`], and the operation reads and decides again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// No record claims the name; an alias leaves it vacant.
    Vacant(Key),
    /// The name still leads to this record, be it as an alias.
    Denotes(Key, Id),
    /// The record's newest fact is still the one at this ledger index ([`crate::Current::revision`]).
    Revision(RecordKind, Id, u64),
}
