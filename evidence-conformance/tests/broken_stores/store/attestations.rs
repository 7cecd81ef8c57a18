//! Attestations of the store of the tests.

use async_trait::async_trait;
use evidence_core::attestations::{
    Attestation, AttestationStore, DecisionFilter, DecisionRow, FlowPosition, ListedAttestation,
    NamedAttestation, TimeRange,
};
use evidence_core::id::Id;
use evidence_core::name::CommitSha;
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::store::StoreResult;
use evidence_core::trails::TrailLabel;

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

    async fn labelled_attestation(&self, org: Id, id: Id) -> StoreResult<Option<(Attestation, TrailLabel)>> {
        self.whole.labelled_attestation(org, id).await
    }

    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>> {
        self.whole.attestations_by_id(org, ids).await
    }

    async fn attestations_before(
        &self,
        org: Id,
        before: u64,
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>> {
        let mut found = self.whole.attestations_before(org, before, limit).await?;
        if self.has(Defect::NumbersAttestationsFromZero) {
            found.iter_mut().for_each(|one| one.flow_ordinal -= 1);
        }
        Ok(found)
    }

    async fn flow_attestations_before(
        &self,
        org: Id,
        flows: &[FlowPosition],
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>> {
        let flows = flows.iter().map(|of| match self.has(Defect::BeginsFlowsAnew) {
            true => FlowPosition { before: u64::MAX, ..*of },
            false => *of,
        });
        self.whole.flow_attestations_before(org, &Vec::from_iter(flows), limit).await
    }

    async fn flow_attestations(
        &self,
        org: Id,
        flow: Id,
        time: &TimeRange,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>> {
        let time = if self.has(Defect::ListsAttestationsOfAnyTime) { TimeRange::default() } else { *time };
        self.whole.flow_attestations(org, flow, &time, request).await
    }

    async fn attestation_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>> {
        let org = if self.has(Defect::ShowsOtherOrganizationsAttestations) { common() } else { org };
        self.whole.attestation_sizes(org, ids).await
    }

    async fn commit_trails(
        &self,
        org: Id,
        commit: &CommitSha,
        flow: Option<Id>,
        before: Option<Id>,
        limit: u64,
    ) -> StoreResult<Vec<Id>> {
        let flow = flow.filter(|_| !self.has(Defect::FindsCommitsInAnyFlow));
        let trails = self.whole.commit_trails(org, commit, flow, before, limit).await?;
        Ok(backwards(trails, self.has(Defect::OldestTrailOfACommitFirst)))
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
        let mut page = self.whole.decisions(org, control, &filter, request).await?;
        if self.has(Defect::CountsDecisionsOfThePage) {
            page.total = page.items.len() as u64;
        }
        Ok(page)
    }
}
