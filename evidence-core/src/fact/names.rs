//! The names of records: the effects of facts on them, and the preconditions of writes.

use std::borrow::Cow;

use crate::id::Id;
use crate::name::{
    ActionName, AttestationTypeName, ControlIdentifier, EnvironmentName, Fingerprint, FlowName, OrgName,
    PolicyName, ServiceAccountName, TrailName,
};

/// The kinds of records in an organization. All except snapshots and artifacts can change, so they have a
/// revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the variants are the records")]
pub enum RecordKind {
    /// A user's own settings, under the user's id.
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
    /// Returns the kind as stores write it.
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

    /// The kinds of records with rows of their own and with ids that no other record has.
    pub const WITH_OWN_ID: [Self; 8] = [
        Self::ServiceAccount,
        Self::ApiKey,
        Self::Flow,
        Self::Environment,
        Self::Policy,
        Self::AttestationType,
        Self::Control,
        Self::Action,
    ];

    /// Returns whether no other record has the id of a record of this kind.
    pub(crate) fn has_own_id(self) -> bool {
        matches!(self, Self::Trail | Self::Repo) || Self::WITH_OWN_ID.contains(&self)
    }

    /// Returns whether names of this kind are looked up in the kind's own rows ([`crate::index::IndexRow`])
    /// instead of the name rows. The names of trails and snapshots never change, and the names of artifacts
    /// lead to the newest one.
    pub const fn has_own_name_rows(self) -> bool {
        matches!(self, Self::Trail | Self::Snapshot | Self::Artifact)
    }
}

/// The key by which a record is found. Organizations and users are named in the whole store, all other
/// records in their organization.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the variants are the named records")]
pub enum Key {
    Organization(OrgName),
    User(OrgName),
    /// A user's role, by the user's id, while the user has one.
    Member(Id),
    /// A user's own settings, by the user's id.
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
    /// An action's number, written with a character that no name contains: `#12`.
    ActionNumber(u64),
    /// A snapshot's number, which is unique in its environment.
    Snapshot {
        environment: Id,
        index: u64,
    },
    /// A template name for artifacts of a trail; it leads to the artifact reported last.
    Artifact {
        trail: Id,
        name: String,
    },
    /// The digest of content in a trail; it leads to the last report of the content there.
    Content {
        trail: Id,
        fingerprint: Fingerprint,
    },
}

impl Key {
    /// Returns the kind of record that it names, or `None` for keys of the whole store.
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

    /// Returns the name itself.
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

    /// Returns whether a second claim is rejected even for the same record.
    pub(crate) const fn is_claimed_once(&self) -> bool {
        matches!(self, Self::Snapshot { .. })
    }
}

/// The effect of a fact on a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameEffect {
    /// The record claims the name. The write is rejected with [`crate::StoreError::Conflict`] if another
    /// record claims it; an alias is replaced.
    Claim(Key, Id),
    /// The name leads to the record, which does not claim it. It is a former name, until another record
    /// claims it, or a name that the newest of several records has.
    Alias(Key, Id),
    /// The record releases all of its names.
    Release(RecordKind, Id),
}

/// The record that a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denoted {
    /// The record.
    pub id: Id,
    /// Whether the record does not claim the name, so that another record may. It is a former name, or one
    /// that the newest of several records has.
    pub alias: bool,
}

/// A precondition of a write. If it no longer holds, the write is rejected with
/// [`crate::StoreError::Conflict`], and the operation reads again and decides again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Precondition {
    /// No record claims the name; an alias does not count.
    Vacant(Key),
    /// The name still leads to this record, possibly as an alias.
    Denotes(Key, Id),
    /// The record's newest fact is still the one at this ledger index ([`crate::Current::revision`]).
    Revision(RecordKind, Id, u64),
}
