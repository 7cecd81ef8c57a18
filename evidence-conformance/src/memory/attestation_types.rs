//! Attestation types and their versions.

use async_trait::async_trait;

use evidence_core::attestation_types::{
    AttestationType, AttestationTypeStore, AttestationTypeVersion, VersionKey,
};
use evidence_core::fact::Key;
use evidence_core::id::Id;
use evidence_core::page::Listed;
use evidence_core::store::{Current, StoreResult};

use super::{MemoryStore, bytes};

#[async_trait]
impl AttestationTypeStore for MemoryStore {
    async fn attestation_type(&self, org: Id, name: &str) -> StoreResult<Option<Current<AttestationType>>> {
        self.by_name(org, name.parse().ok().map(Key::AttestationType), |tables| &tables.attestation_types)
    }

    async fn attestation_types_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let newest_first = self.query(org, |tables| {
            let first = tables.attestation_type_versions.iter().filter(|version| version.version == 1);
            let types = first.rev().filter_map(|first| tables.attestation_types.get(&first.attestation_type));
            types.map(|current| current.record.clone()).collect::<Vec<_>>()
        })?;
        newest_first.iter().map(|record| Ok(Listed { id: record.id, bytes: bytes(record)? })).collect()
    }

    async fn attestation_types_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<AttestationType>> {
        self.query(org, |tables| {
            let types = tables.attestation_types.values().map(|current| &current.record);
            types.filter(|record| ids.contains(&record.id)).cloned().collect()
        })
    }

    async fn attestation_type_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        let listed = |version: &AttestationTypeVersion| {
            Ok(Listed { id: (version.attestation_type, version.version), bytes: bytes(version)? })
        };
        self.attestation_type_versions_by_number(org, versions).await?.iter().map(listed).collect()
    }

    async fn attestation_type_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<AttestationTypeVersion>> {
        self.query(org, |tables| {
            let all = tables.attestation_type_versions.iter();
            all.filter(|one| versions.contains(&(one.attestation_type, one.version))).cloned().collect()
        })
    }
}
