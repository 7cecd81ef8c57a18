//! Custom attestation types: named records with versions.

use std::cmp::Reverse;

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::attestation_types::{
    AttestationType, AttestationTypeStore, AttestationTypeVersion, VersionKey,
};
use evidence_core::id::Id;
use evidence_core::page::Listed;
use evidence_core::store::StoreResult;

use crate::db::SqliteStore;

const KIND: &str = "attestation_type";

#[async_trait]
impl AttestationTypeStore for SqliteStore {
    async fn attestation_type(&self, org: Id, name: &str) -> StoreResult<Option<Current<AttestationType>>> {
        self.by_name(org, KIND, name).await
    }

    async fn attestation_types(&self, org: Id) -> StoreResult<Vec<AttestationType>> {
        let types = self.all_named(org, KIND).await?;
        let mut types: Vec<AttestationType> = types.into_iter().map(|kind| kind.record).collect();
        types.sort_by_key(|kind| Reverse((kind.created_at, kind.id)));
        Ok(types)
    }

    async fn attestation_type_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        self.version_sizes(org, versions).await
    }

    async fn attestation_type_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<AttestationTypeVersion>> {
        self.versions(org, versions).await
    }
}
