//! Attestations.

use async_trait::async_trait;

use crate::attestations::{Attestation, AttestationStore, DecisionFilter, DecisionRow, NamedAttestation};
use crate::id::Id;
use crate::page::{Page, PageRequest, SortDirection};
use crate::store::{Current, StoreResult};

use super::{MemoryStore, bytes};

impl DecisionFilter {
    fn admits(&self, decision: &Attestation) -> bool {
        self.is_compliant.is_none_or(|is_compliant| is_compliant == decision.is_compliant)
            && self.from.is_none_or(|from| from <= decision.created_at)
            && self.to.is_none_or(|to| decision.created_at <= to)
            && self.flows.as_ref().is_none_or(|flows| flows.contains(&decision.flow))
    }
}

#[async_trait]
impl AttestationStore for MemoryStore {
    async fn attestation(&self, org: Id, id: Id) -> StoreResult<Option<Attestation>> {
        self.ask(org, |tables| {
            let mut attestations = tables.attestations.iter().map(|attestation| &attestation.record);
            attestations.find(|attestation| attestation.id == id).cloned()
        })
    }

    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>> {
        self.ask(org, |tables| {
            let attestations = tables.attestations.iter().map(|attestation| &attestation.record);
            attestations.filter(|attestation| ids.contains(&attestation.id)).cloned().collect()
        })
    }

    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<NamedAttestation>> {
        let found: Vec<Current<Attestation>> = self.ask(org, |tables| {
            let newest_first = tables.attestations.iter().rev();
            let named = newest_first.filter(|attestation| attestation.record.name.as_str() == name);
            named.filter(|attestation| trails.contains(&attestation.record.trail)).cloned().collect()
        })?;
        let named = |Current { revision, record }: &Current<Attestation>| {
            Ok(NamedAttestation { row: record.row(*revision), bytes: bytes(record)? })
        };
        found.iter().map(named).collect()
    }

    async fn decisions(
        &self,
        org: Id,
        control: &str,
        filter: &DecisionFilter,
        request: PageRequest,
    ) -> StoreResult<Page<DecisionRow>> {
        let mut found: Vec<DecisionRow> = self.ask(org, |tables| {
            let attestations = tables.attestations.iter().map(|attestation| &attestation.record);
            let about = attestations.filter(|attestation| attestation.details.control() == Some(control));
            about.filter(|attestation| filter.admits(attestation)).map(DecisionRow::from).collect()
        })?;
        if filter.direction == SortDirection::Desc {
            found.reverse();
        }
        Ok(Page::of(found, request))
    }
}
