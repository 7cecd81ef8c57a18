//! What a store answers about attestations.

use std::sync::Arc;

use async_trait::async_trait;

use crate::attestations::record::{Attestation, Binding};
use crate::id::Id;
use crate::name::{AttestationName, CommitSha};
use crate::page::{Listed, Page, PageRequest, SortDirection};
use crate::rules::compliance::{self, ReportedAttestation};
use crate::store::error::StoreResult;
use crate::time::Timestamp;
use crate::trails::store::TrailLabel;

/// The part of an attestation that compliance depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttestationRow {
    /// Its id.
    pub id: Id,
    /// The trail it was reported to.
    pub trail: Id,
    /// Its name.
    pub name: String,
    /// Its type; an override has the type of what it overrides.
    pub kind: String,
    /// Whether it is compliant.
    pub is_compliant: bool,
    /// Of an override, of an earlier attestation or of none: who overrides it and why ([`Attestation::override_info`]).
    pub override_info: Option<Arc<str>>,
    /// The identifier of the control that it is a decision about.
    pub control: Option<String>,
    /// Its description.
    pub binding: Binding,
    /// The commit that it names itself; an empty text where it does not name it in full.
    pub commit: Option<String>,
    /// When it was reported.
    pub at: Timestamp,
    /// Its ledger index: larger is newer.
    pub index: u64,
}

impl AttestationRow {
    /// Whether it is an override, of an earlier attestation or of none.
    pub const fn is_override(&self) -> bool {
        self.override_info.is_some()
    }
}

/// An attestation of a name, whose body is read apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAttestation {
    /// What compliance depends on.
    pub row: AttestationRow,
    /// The bytes of its fact, as stored.
    pub bytes: u64,
}

/// A decision about a control, without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRow {
    /// Its id.
    pub id: Id,
    /// The flow.
    pub flow: Id,
    /// The trail it was reported to.
    pub trail: Id,
    /// Its name.
    pub name: AttestationName,
    /// Whether what the control demands was done.
    pub is_compliant: bool,
    /// The number of the control's latest version when it was decided; nothing where there was no such control.
    pub control_version: Option<u64>,
    /// Its description.
    pub binding: Binding,
    /// When it was reported.
    pub at: Timestamp,
    /// The name of the user or service account that reported it.
    pub by: String,
}

impl From<&Attestation> for DecisionRow {
    fn from(attestation: &Attestation) -> Self {
        let Attestation {
            id, flow, trail, name, is_compliant, details, binding, created_at, created_by, ..
        } = attestation;
        Self {
            id: *id,
            flow: *flow,
            trail: *trail,
            name: name.clone(),
            is_compliant: *is_compliant,
            control_version: details.control_version(),
            binding: binding.clone(),
            at: *created_at,
            by: created_by.name.clone(),
        }
    }
}

/// Which decisions about a control are asked for; everything given must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DecisionFilter {
    /// With this verdict.
    pub is_compliant: Option<bool>,
    /// Recorded at this time or later.
    pub from: Option<Timestamp>,
    /// Recorded at this time or before.
    pub to: Option<Timestamp>,
    /// Reported to one of these flows.
    pub flows: Option<Vec<Id>>,
    /// Oldest first, or newest first.
    pub direction: SortDirection,
}

/// An attestation as lists of an organization choose it, whose body is read apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedAttestation {
    /// Its id.
    pub id: Id,
    /// The flow.
    pub flow: Id,
    /// Its number in the flow, from 1: larger is newer.
    pub flow_ordinal: u64,
    /// Its ledger index: larger is newer.
    pub index: u64,
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Whether it is compliant.
    pub is_compliant: bool,
    /// When it was recorded: the time of its entry, which no later entry's is before.
    pub at: Timestamp,
}

/// Attestations of a flow that are older than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPosition {
    /// The flow.
    pub flow: Id,
    /// Those whose number in the flow is smaller.
    pub before: u64,
}

/// Which attestations of a flow are asked for, by the times of their entries; everything given must match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// Recorded at this time or later.
    pub from: Option<Timestamp>,
    /// Recorded at this time or before.
    pub to: Option<Timestamp>,
}

impl TimeRange {
    /// Whether it has this time.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at) && self.to.is_none_or(|to| at <= to)
    }
}

/// Queries about attestations.
#[async_trait]
pub trait AttestationStore: Send + Sync {
    /// The attestation of this id, one.
    async fn attestation(&self, org: Id, id: Id) -> StoreResult<Option<Attestation>>;
    /// The same with the label of its trail.
    async fn labelled_attestation(&self, org: Id, id: Id) -> StoreResult<Option<(Attestation, TrailLabel)>>;
    /// The attestations of these ids, one an id, in any order; unknown ids are passed over.
    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>>;
    /// At most `limit` attestations whose ledger index is smaller than `before`, newest (by ledger index) first.
    async fn attestations_before(
        &self,
        org: Id,
        before: u64,
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>>;
    /// At most `limit` attestations of these flows, each named once, that are older than the flow's position, newest (by
    /// ledger index) first.
    async fn flow_attestations_before(
        &self,
        org: Id,
        flows: &[FlowPosition],
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>>;
    /// The attestations of this flow that were recorded in this time, newest (by ledger index) first, without what they
    /// say: a page, and the total.
    async fn flow_attestations(
        &self,
        org: Id,
        flow: Id,
        time: &TimeRange,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>>;
    /// The sizes of the attestations of these ids, one an id, in any order; unknown ids are passed over.
    async fn attestation_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>>;
    /// At most `limit` trails, of this flow or of all, in which the trail, an artifact or an attestation names this commit,
    /// or named it before, by id from the greatest on, whose ids are smaller than `before`.
    async fn commit_trails(
        &self,
        org: Id,
        commit: &CommitSha,
        flow: Option<Id>,
        before: Option<Id>,
        limit: u64,
    ) -> StoreResult<Vec<Id>>;
    /// All attestations of this name on the trails of these ids, newest first by ledger index, without what they say.
    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<NamedAttestation>>;
    /// The decisions about the control of this identifier that the filter admits, by ledger index in its direction, without
    /// their data: a page, and the total.
    async fn decisions(
        &self,
        org: Id,
        control: &str,
        filter: &DecisionFilter,
        request: PageRequest,
    ) -> StoreResult<Page<DecisionRow>>;
}

impl From<&Binding> for compliance::Binding {
    fn from(binding: &Binding) -> Self {
        match binding {
            Binding::Trail => Self::Trail,
            Binding::Artifact { fingerprint, .. } => Self::Artifact { fingerprint: fingerprint.to_string() },
            Binding::Named { target, commit } => Self::Named { name: target.clone(), commit: commit.clone() },
        }
    }
}

#[cfg(feature = "memory")]
impl Attestation {
    /// The part that compliance depends on, of an attestation at this ledger index.
    pub(crate) fn row(&self, index: u64) -> AttestationRow {
        let Self { id, trail, name, kind, is_compliant, binding, .. } = self;
        AttestationRow {
            id: *id,
            trail: *trail,
            name: name.to_string(),
            kind: kind.clone(),
            is_compliant: *is_compliant,
            override_info: self.override_info().map(Arc::from),
            control: self.details.control().map(str::to_owned),
            binding: binding.clone(),
            commit: self.own_commit().map(str::to_owned),
            at: self.created_at,
            index,
        }
    }
}

impl From<&AttestationRow> for ReportedAttestation {
    fn from(row: &AttestationRow) -> Self {
        Self {
            id: row.id.to_string(),
            name: row.name.clone(),
            kind: row.kind.clone(),
            is_compliant: row.is_compliant,
            at: row.at,
            index: row.index,
            binding: (&row.binding).into(),
            override_info: row.override_info.clone(),
            control: row.control.clone(),
        }
    }
}
