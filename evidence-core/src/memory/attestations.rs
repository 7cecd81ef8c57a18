//! Attestations.

use async_trait::async_trait;

use crate::attestations::{Attestation, AttestationStore, NamedAttestation};
use crate::id::Id;
use crate::store::{Current, StoreResult};

use super::{MemoryStore, bytes};

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
}
