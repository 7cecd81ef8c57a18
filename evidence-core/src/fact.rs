//! Everything that can happen, one variant each, past tense and complete: from the facts alone every table of a
//! store can be rebuilt (the hashes of API keys aside). A write is a list of facts, recorded together or not at all.

use serde::{Deserialize, Serialize};

use crate::allowlists::Allowance;
use crate::artifacts::Artifact;
use crate::attestation_types::{AttestationType, AttestationTypeVersion};
use crate::attestations::Attestation;
use crate::auth::{Actor, KeyHash};
use crate::environments::Environment;
use crate::flows::Flow;
use crate::id::Id;
use crate::ledger::{Hash, Header};
use crate::name::{
    AttestationTypeName, EnvironmentName, FlowName, OrgName, PolicyName, ServiceAccountName, TrailName,
};
use crate::orgs::{Membership, Organization, User};
use crate::policies::{Policy, PolicyVersion};
use crate::repos::Repo;
use crate::service_accounts::{ApiKeyRecord, ServiceAccount};
use crate::snapshots::Snapshot;
use crate::time::Timestamp;
use crate::trails::Trail;

/// Something that happened in an organization. Its JSON is a ledger entry's payload; where a fact makes or changes a
/// record, `record` is that record as it is from then on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants and fields are named after what they hold")]
pub enum Fact {
    OrganizationCreated { record: Organization },
    UserCreated { record: User },
    MemberAdded { record: Membership },
    ServiceAccountCreated { record: ServiceAccount },
    ServiceAccountUpdated { record: ServiceAccount },
    ApiKeyCreated { record: ApiKeyRecord },
    ApiKeyRevoked { record: ApiKeyRecord },
    FlowCreated { record: Flow },
    FlowUpdated { record: Flow },
    FlowTagged { record: Flow },
    TrailBegun { record: Trail },
    TrailUpdated { record: Trail, changes: Vec<String> },
    ArtifactReported { record: Artifact },
    AttestationAdded { record: Attestation },
    RepoReported { record: Repo },
    RepoTagged { record: Repo },
    EnvironmentCreated { record: Environment },
    EnvironmentUpdated { record: Environment },
    EnvironmentTagged { record: Environment },
    EnvironmentJoined { record: Environment, member: Id },
    EnvironmentReported { record: Environment },
    PoliciesAttached { record: Environment, policies: Vec<Id> },
    SnapshotTaken { record: Environment, snapshot: Snapshot },
    PolicyCreated { record: Policy, version: PolicyVersion },
    PolicyUpdated { record: Policy, version: Option<PolicyVersion> },
    ArtifactAllowed { record: Allowance },
    AttestationTypeCreated { record: AttestationType, version: AttestationTypeVersion },
    AttestationTypeVersioned { record: AttestationType, version: AttestationTypeVersion },
}

impl Fact {
    /// The kind that the ledger's leaf carries: the payload's `fact`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::OrganizationCreated { .. } => "organization_created",
            Self::UserCreated { .. } => "user_created",
            Self::MemberAdded { .. } => "member_added",
            Self::ServiceAccountCreated { .. } => "service_account_created",
            Self::ServiceAccountUpdated { .. } => "service_account_updated",
            Self::ApiKeyCreated { .. } => "api_key_created",
            Self::ApiKeyRevoked { .. } => "api_key_revoked",
            Self::FlowCreated { .. } => "flow_created",
            Self::FlowUpdated { .. } => "flow_updated",
            Self::FlowTagged { .. } => "flow_tagged",
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
            Self::PoliciesAttached { .. } => "policies_attached",
            Self::SnapshotTaken { .. } => "snapshot_taken",
            Self::PolicyCreated { .. } => "policy_created",
            Self::PolicyUpdated { .. } => "policy_updated",
            Self::ArtifactAllowed { .. } => "artifact_allowed",
            Self::AttestationTypeCreated { .. } => "attestation_type_created",
            Self::AttestationTypeVersioned { .. } => "attestation_type_versioned",
        }
    }

    /// Whether the fact makes a named record, rather than changing one: a store refuses it with
    /// [`crate::StoreError::Conflict`] where the key of its [`subject`](Self::subject) exists, guard or no guard. A repo
    /// is reported whether it is known or not.
    pub const fn creates(&self) -> bool {
        matches!(
            self,
            Self::OrganizationCreated { .. }
                | Self::UserCreated { .. }
                | Self::ServiceAccountCreated { .. }
                | Self::ApiKeyCreated { .. }
                | Self::FlowCreated { .. }
                | Self::TrailBegun { .. }
                | Self::EnvironmentCreated { .. }
                | Self::PolicyCreated { .. }
                | Self::AttestationTypeCreated { .. }
        )
    }

    /// Whether the fact changes who may call, or what callers may do.
    pub(crate) const fn changes_access(&self) -> bool {
        matches!(
            self,
            Self::OrganizationCreated { .. }
                | Self::MemberAdded { .. }
                | Self::ServiceAccountCreated { .. }
                | Self::ServiceAccountUpdated { .. }
                | Self::ApiKeyCreated { .. }
                | Self::ApiKeyRevoked { .. }
        )
    }

    /// Whether the fact creates this organization, as the first of its ledger does.
    pub(crate) fn begins_ledger_of(&self, org: Id) -> bool {
        matches!(self, Self::OrganizationCreated { record } if record.id == org)
    }

    /// The named record that the fact makes or changes, and its id: its ledger index becomes that record's revision,
    /// which guards are compared with. Nothing for facts about records without a name, which never change.
    pub fn subject(&self) -> Option<(Key, Id)> {
        Some(match self {
            Self::OrganizationCreated { record } => (Key::Organization(record.name.clone()), record.id),
            Self::UserCreated { record } => (Key::User(record.name.clone()), record.id),
            Self::ServiceAccountCreated { record } | Self::ServiceAccountUpdated { record } => {
                (Key::ServiceAccount(record.name.clone()), record.id)
            }
            Self::ApiKeyCreated { record } | Self::ApiKeyRevoked { record } => {
                (Key::ApiKey(record.id), record.id)
            }
            Self::FlowCreated { record } | Self::FlowUpdated { record } | Self::FlowTagged { record } => {
                (Key::Flow(record.name.clone()), record.id)
            }
            Self::TrailBegun { record } | Self::TrailUpdated { record, .. } => {
                (Key::Trail { flow: record.flow, name: record.name.clone() }, record.id)
            }
            Self::RepoReported { record } | Self::RepoTagged { record } => {
                (Key::Repo(record.identity.clone()), record.id)
            }
            Self::EnvironmentCreated { record }
            | Self::EnvironmentUpdated { record }
            | Self::EnvironmentTagged { record }
            | Self::EnvironmentJoined { record, .. }
            | Self::EnvironmentReported { record }
            | Self::PoliciesAttached { record, .. }
            | Self::SnapshotTaken { record, .. } => (Key::Environment(record.name.clone()), record.id),
            Self::PolicyCreated { record, .. } | Self::PolicyUpdated { record, .. } => {
                (Key::Policy(record.name.clone()), record.id)
            }
            Self::AttestationTypeCreated { record, .. } | Self::AttestationTypeVersioned { record, .. } => {
                (Key::AttestationType(record.name.clone()), record.id)
            }
            Self::MemberAdded { .. }
            | Self::ArtifactReported { .. }
            | Self::AttestationAdded { .. }
            | Self::ArtifactAllowed { .. } => return None,
        })
    }
}

/// What a named record is found by. Organizations and users are named in the whole store, everything else in its
/// organization.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the variants are the named records")]
pub enum Key {
    Organization(OrgName),
    User(OrgName),
    ServiceAccount(ServiceAccountName),
    ApiKey(Id),
    Flow(FlowName),
    Trail { flow: Id, name: TrailName },
    Repo(String),
    Environment(EnvironmentName),
    Policy(PolicyName),
    AttestationType(AttestationTypeName),
}

impl Key {
    /// The key as three texts: which kind of record, the id of what it lies in (`""` for the organization), its name.
    pub fn parts(&self) -> (&'static str, String, String) {
        let top = String::new();
        match self {
            Self::Organization(name) => ("organization", top, name.to_string()),
            Self::User(name) => ("user", top, name.to_string()),
            Self::ServiceAccount(name) => ("service_account", top, name.to_string()),
            Self::ApiKey(id) => ("api_key", top, id.to_string()),
            Self::Flow(name) => ("flow", top, name.to_string()),
            Self::Trail { flow, name } => ("trail", flow.to_string(), name.to_string()),
            Self::Repo(identity) => ("repo", top, identity.clone()),
            Self::Environment(name) => ("environment", top, name.to_string()),
            Self::Policy(name) => ("policy", top, name.to_string()),
            Self::AttestationType(name) => ("attestation_type", top, name.to_string()),
        }
    }
}

/// What a decision rested on; a write whose guard no longer holds is refused with
/// [`crate::StoreError::Conflict`], and the operation reads and decides again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// There is no record of this key yet.
    Absent(Key),
    /// The record's newest fact is still the one at this ledger index ([`crate::Current::revision`]).
    Unchanged(Key, u64),
}

/// Facts to be recorded together or not at all.
#[derive(Debug, Clone)]
pub struct Write {
    /// The organization whose ledger they enter. When the first fact is [`Fact::OrganizationCreated`] with this id, the
    /// ledger begins with it.
    pub org: Id,
    /// Who did it.
    pub by: Actor,
    /// When.
    pub at: Timestamp,
    /// What happened, in order.
    pub facts: Vec<Fact>,
    /// What must still be so.
    pub guards: Vec<Guard>,
    /// The hashes of keys that the facts create, by key id: kept beside the ledger, never in it.
    pub secrets: Vec<(Id, KeyHash)>,
}

impl Write {
    /// Whether it begins its organization's ledger: a store accepts it only while there is no organization of this id,
    /// and every other write only when there is one.
    pub fn begins_ledger(&self) -> bool {
        self.facts.first().is_some_and(|fact| fact.begins_ledger_of(self.org))
    }
}

/// A fact as it enters a ledger: all that its leaf covers, but for the index.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// The fact.
    pub fact: Fact,
    /// When it happened.
    pub at: Timestamp,
    /// Who did it, as `user:<name>` or `service-account:<name>`.
    pub actor: String,
    /// The fact's JSON.
    pub payload: String,
    /// The SHA-256 of the payload.
    pub payload_sha256: Hash,
}

impl Prepared {
    /// Writes the fact as JSON.
    ///
    /// # Errors
    /// When the fact cannot be written, which is a defect.
    pub fn new(fact: Fact, at: Timestamp, actor: String) -> serde_json::Result<Self> {
        let payload = serde_json::to_string(&fact)?;
        Ok(Self { fact, at, actor, payload_sha256: Hash::of(&payload), payload })
    }

    /// The hash of its leaf at this index.
    pub fn leaf_hash(&self, index: u64) -> Hash {
        let Self { fact, at, actor, payload_sha256, .. } = self;
        let header =
            Header { index, kind: fact.kind(), at: at.as_micros(), actor, payload_sha256: *payload_sha256 };
        header.leaf_hash()
    }
}
