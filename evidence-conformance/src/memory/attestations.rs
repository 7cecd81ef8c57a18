//! Attestations.

use std::collections::BTreeMap;

use async_trait::async_trait;

use evidence_core::attestations::{
    Attestation, AttestationRow, AttestationStore, DecisionFilter, DecisionRow, FlowPosition,
    ListedAttestation, NamedAttestation, TimeRange,
};
use evidence_core::id::Id;
use evidence_core::name::CommitSha;
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::store::{Current, StoreResult};
use evidence_core::time::Timestamp;
use evidence_core::trails::TrailLabel;

use super::tables::Tables;
use super::{Admits, MemoryStore, at_most, bytes};

impl Admits<DecisionRow> for DecisionFilter {
    fn admits(&self, decision: &DecisionRow) -> bool {
        self.is_compliant.is_none_or(|is_compliant| is_compliant == decision.is_compliant)
            && self.from.is_none_or(|from| from <= decision.at)
            && self.to.is_none_or(|to| decision.at <= to)
            && self.flows.as_ref().is_none_or(|flows| flows.contains(&decision.flow))
    }
}

fn listed(attestation: &Attestation) -> StoreResult<Listed> {
    Ok(Listed { id: attestation.id, bytes: bytes(attestation)? })
}

/// Returns the time of the attestation's entry.
fn recorded_at(tables: &Tables, revision: u64, attestation: &Attestation) -> Timestamp {
    tables.ledger.time(revision).unwrap_or(attestation.created_at)
}

/// Returns all attestations, oldest first, with their numbers in their flows.
fn numbered(tables: &Tables) -> Vec<ListedAttestation> {
    let mut ordinals: BTreeMap<Id, u64> = BTreeMap::new();
    let numbered = |Current { revision, record }: &Current<Attestation>| {
        let ordinal = ordinals.entry(record.flow).or_default();
        *ordinal += 1;
        ListedAttestation {
            id: record.id,
            flow: record.flow,
            flow_ordinal: *ordinal,
            index: *revision,
            name: record.name.to_string(),
            kind: record.kind.clone(),
            is_compliant: record.is_compliant,
            at: recorded_at(tables, *revision, record),
        }
    };
    tables.attestations.iter().map(numbered).collect()
}

impl Tables {
    /// Returns the part of an attestation that compliance depends on.
    pub(super) fn attestation_row(
        &self,
        Current { revision, record }: &Current<Attestation>,
    ) -> AttestationRow {
        let at = self.ledger.corrected(*revision, record.created_at);
        AttestationRow { at, ..record.row(*revision) }
    }

    fn attestation(&self, id: Id) -> Option<&Attestation> {
        self.attestations.iter().map(|attestation| &attestation.record).find(|one| one.id == id)
    }
}

#[async_trait]
impl AttestationStore for MemoryStore {
    async fn attestation(&self, org: Id, id: Id) -> StoreResult<Option<Attestation>> {
        self.query(org, |tables| tables.attestation(id).cloned())
    }

    async fn labelled_attestation(&self, org: Id, id: Id) -> StoreResult<Option<(Attestation, TrailLabel)>> {
        self.query(org, |tables| {
            let attestation = tables.attestation(id)?;
            let ids = [attestation.trail];
            let label = tables.label(tables.trails_of(&ids).next()?)?;
            Some((attestation.clone(), label))
        })
    }

    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>> {
        self.query(org, |tables| {
            let attestations = tables.attestations.iter().map(|attestation| &attestation.record);
            attestations.filter(|attestation| ids.contains(&attestation.id)).cloned().collect()
        })
    }

    async fn attestations_before(
        &self,
        org: Id,
        before: u64,
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>> {
        self.query(org, |tables| {
            let newest_first = numbered(tables).into_iter().rev();
            newest_first.filter(|one| one.index < before).take(at_most(limit)).collect()
        })
    }

    async fn flow_attestations_before(
        &self,
        org: Id,
        flows: &[FlowPosition],
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>> {
        let is_older = |one: &ListedAttestation| {
            flows.iter().any(|flow| flow.flow == one.flow && one.flow_ordinal < flow.before)
        };
        self.query(org, |tables| {
            numbered(tables).into_iter().rev().filter(is_older).take(at_most(limit)).collect()
        })
    }

    async fn flow_attestations(
        &self,
        org: Id,
        flow: Id,
        time: &TimeRange,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>> {
        let found: Vec<Attestation> = self.query(org, |tables| {
            let of_flow = tables.attestations.iter().rev().filter(|one| one.record.flow == flow);
            let is_then =
                |one: &&Current<Attestation>| time.contains(recorded_at(tables, one.revision, &one.record));
            of_flow.filter(is_then).map(|one| one.record.clone()).collect()
        })?;
        Ok(Page::of(found.iter().map(listed).collect::<StoreResult<_>>()?, request))
    }

    async fn attestation_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>> {
        self.attestations_by_id(org, ids).await?.iter().map(listed).collect()
    }

    async fn commit_trails(
        &self,
        org: Id,
        commit: &CommitSha,
        flow: Option<Id>,
        before: Option<Id>,
        limit: u64,
    ) -> StoreResult<Vec<Id>> {
        self.query(org, |tables| {
            let trails = tables.commit_trails.get(commit.as_str()).into_iter().flatten().rev();
            let of_flow = trails.filter(|(_, of)| flow.is_none_or(|flow| flow == **of));
            let older =
                of_flow.map(|(trail, _)| *trail).filter(|trail| before.is_none_or(|before| *trail < before));
            older.take(at_most(limit)).collect()
        })
    }

    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<NamedAttestation>> {
        self.query(org, |tables| {
            let newest_first = tables.attestations.iter().rev();
            let named = newest_first.filter(|attestation| attestation.record.name.as_str() == name);
            let wanted = named.filter(|attestation| trails.contains(&attestation.record.trail));
            let row = |attestation: &Current<Attestation>| {
                let bytes = bytes(&attestation.record)?;
                Ok(NamedAttestation { row: tables.attestation_row(attestation), bytes })
            };
            wanted.map(row).collect()
        })?
    }

    async fn decisions(
        &self,
        org: Id,
        control: &str,
        filter: &DecisionFilter,
        request: PageRequest,
    ) -> StoreResult<Page<DecisionRow>> {
        let mut found: Vec<DecisionRow> = self.query(org, |tables| {
            let about =
                tables.attestations.iter().filter(|known| known.record.details.control() == Some(control));
            // The reported time, unless a clock was ahead.
            let decision = |Current { revision, record }: &Current<Attestation>| {
                let decision = DecisionRow::from(record);
                DecisionRow { at: tables.ledger.corrected(*revision, decision.at), ..decision }
            };
            about.map(decision).filter(|decision| filter.admits(decision)).collect()
        })?;
        if filter.direction == SortDirection::Desc {
            found.reverse();
        }
        Ok(Page::of(found, request))
    }
}
