//! Attestations of the store of the tests.

use async_trait::async_trait;
use evidence_core::attestations::{
    Attestation, AttestationStore, DecisionFilter, DecisionRow, NamedAttestation,
};
use evidence_core::id::Id;
use evidence_core::page::{Page, PageRequest, SortDirection};
use evidence_core::store::StoreResult;

use super::{backwards, common};
use crate::{Broken, Defect};

/// The other direction.
const fn other(direction: SortDirection) -> SortDirection {
    match direction {
        SortDirection::Asc => SortDirection::Desc,
        SortDirection::Desc => SortDirection::Asc,
    }
}

#[async_trait]
impl AttestationStore for Broken {
    async fn attestation(&self, org: Id, id: Id) -> StoreResult<Option<Attestation>> {
        let mut attestation = self.whole.attestation(org, id).await?;
        if self.has(Defect::ForgetsOptions)
            && let Some(attestation) = &mut attestation
        {
            attestation.annotations = None;
        }
        Ok(attestation)
    }

    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>> {
        self.whole.attestations_by_id(org, ids).await
    }

    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<NamedAttestation>> {
        let attestations = self.whole.attestations(org, trails, name).await?;
        Ok(backwards(attestations, self.has(Defect::OldestAttestationFirst)))
    }

    async fn decisions(
        &self,
        org: Id,
        control: &str,
        filter: &DecisionFilter,
        request: PageRequest,
    ) -> StoreResult<Page<DecisionRow>> {
        let filter = DecisionFilter {
            direction: if self.has(Defect::DecisionsAreBackwards) {
                other(filter.direction)
            } else {
                filter.direction
            },
            ..filter.clone()
        };
        let org = if self.has(Defect::ShowsOtherOrganizationsDecisions) { common() } else { org };
        self.whole.decisions(org, control, &filter, request).await
    }
}
