//! The queries about attestations that a store answers.

use std::sync::Arc;

use async_trait::async_trait;

use crate::attestations::record::{Attestation, Binding};
use crate::id::Id;
use crate::name::{AttestationName, CommitSha};
use crate::page::{Listed, Page, PageRequest, SortDirection};
use crate::rules::compliance::{self, ReportedAttestation};
use crate::store::error::StoreResult;
use crate::time::Timestamp;
use crate::trails::record::TrailLabel;

/// The part of an attestation that compliance depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttestationRow {
    /// Its id.
    pub id: Id,
    /// The trail it was reported to.
    pub trail: Id,
    /// Its name.
    pub name: String,
    /// Its type. An override has the type of the overridden attestation.
    pub kind: String,
    /// Whether it is compliant.
    pub is_compliant: bool,
    /// The author and the reason of an override ([`Attestation::override_info`]); `None` for other types.
    pub override_info: Option<Arc<str>>,
    /// The identifier of a decision's control; `None` for other types.
    pub control: Option<String>,
    /// The subject of the attestation.
    pub binding: Binding,
    /// The commit that it names itself; an empty string if the commit's hash is not full.
    pub commit: Option<String>,
    /// When it was reported.
    pub at: Timestamp,
    /// Its ledger index: larger is newer.
    pub index: u64,
}

impl AttestationRow {
    /// Returns whether it is an override, of an earlier attestation or of none.
    pub const fn is_override(&self) -> bool {
        self.override_info.is_some()
    }
}

/// An attestation of a name, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAttestation {
    /// The part that compliance depends on.
    pub row: AttestationRow,
    /// The size of its fact as stored, in bytes.
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
    /// Whether the requirements of the control are met.
    pub is_compliant: bool,
    /// The number of the control's latest version at the time of the decision. `None` without such a control.
    pub control_version: Option<u64>,
    /// The subject of the attestation.
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

/// A filter for decisions about a control. All given conditions must match.
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

/// An attestation with the fields that lists of an organization filter by, without its content.
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
    /// When it was recorded: the time of its ledger entry. No later entry has an earlier time.
    pub at: Timestamp,
}

/// A position in the attestations of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPosition {
    /// The flow.
    pub flow: Id,
    /// Selects attestations with a smaller number in the flow.
    pub before: u64,
}

/// A range of ledger entry times, both ends inclusive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// Recorded at this time or later.
    pub from: Option<Timestamp>,
    /// Recorded at this time or before.
    pub to: Option<Timestamp>,
}

impl TimeRange {
    /// Returns whether the range contains this time.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= at) && self.to.is_none_or(|to| at <= to)
    }
}

/// Queries about attestations.
#[async_trait]
pub trait AttestationStore: Send + Sync {
    /// Returns the attestation of this id.
    async fn attestation(&self, org: Id, id: Id) -> StoreResult<Option<Attestation>>;
    /// Returns the attestation of this id, with the label of its trail.
    async fn labelled_attestation(&self, org: Id, id: Id) -> StoreResult<Option<(Attestation, TrailLabel)>>;
    /// Returns the attestations of these ids, one per id, in any order. Unknown ids are skipped.
    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>>;
    /// Returns at most `limit` attestations whose ledger index is smaller than `before`, in descending order
    /// of ledger index.
    async fn attestations_before(
        &self,
        org: Id,
        before: u64,
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>>;
    /// Returns at most `limit` attestations that are older than the position of their flow, in descending
    /// order of ledger index. Each flow occurs once in `flows`.
    async fn flow_attestations_before(
        &self,
        org: Id,
        flows: &[FlowPosition],
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>>;
    /// Returns one page of the attestations of this flow that were recorded in this time range, and their
    /// total. The order is descending by ledger index. Attestations are listed without their content.
    async fn flow_attestations(
        &self,
        org: Id,
        flow: Id,
        time: &TimeRange,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>>;
    /// Returns the sizes of the attestations of these ids, one per id, in any order. Unknown ids are skipped.
    async fn attestation_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>>;
    /// Returns at most `limit` trails in which the trail, an artifact or an attestation names this commit, or
    /// named it before. Only ids smaller than `before` count, in descending order. With `flow`, only its
    /// trails count.
    async fn commit_trails(
        &self,
        org: Id,
        commit: &CommitSha,
        flow: Option<Id>,
        before: Option<Id>,
        limit: u64,
    ) -> StoreResult<Vec<Id>>;
    /// Returns all attestations of this name on these trails, in descending order of ledger index, without
    /// their content.
    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<NamedAttestation>>;
    /// Returns one page of the decisions about the control of this identifier that match the filter, and
    /// their total. The order is by ledger index in the filter's direction. Decisions are returned without
    /// their data.
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

impl Attestation {
    /// Returns the part of the attestation that compliance depends on, for an attestation at this ledger
    /// index.
    pub fn row(&self, index: u64) -> AttestationRow {
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
