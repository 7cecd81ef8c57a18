//! Custom attestation types: named records with versions.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::attestation_types::{
    AttestationType, AttestationTypeStore, AttestationTypeVersion, VersionKey,
};
use evidence_core::id::Id;
use evidence_core::page::{Listed, PageRequest};
use evidence_core::store::StoreResult;

use crate::driver::Driver;
use crate::listing::{Listing, Order};
use crate::sql::Sql;
use crate::store::SqlStore;

const KIND: &str = "attestation_type";

const LISTED: Sql = Sql::per_dialect(
    "evidence.record x WHERE x.org = $1 AND x.kind = 'attestation_type'",
    "evidence.record x WHERE x.org = $1 AND x.kind || '' = 'attestation_type'",
);

const NEWEST_FIRST: Sql = Sql::portable(
    "(SELECT v.ledger_index FROM evidence.version v WHERE v.org = $1 AND v.id = x.id AND v.number = 1) DESC",
);

#[async_trait]
impl<D: Driver> AttestationTypeStore for SqlStore<D> {
    async fn attestation_type(&self, org: Id, name: &str) -> StoreResult<Option<Current<AttestationType>>> {
        self.by_name(org, KIND, name).await
    }

    async fn attestation_types_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let order = Order::By(NEWEST_FIRST);
        let listing = Listing { from: LISTED, filter: Vec::new(), order, narrow: false, counted: false };
        Ok(self.listed(org, &listing, PageRequest::ALL, Vec::new()).await?.items)
    }

    async fn attestation_types_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<AttestationType>> {
        let types = self.by_ids(org, KIND, ids).await?;
        Ok(types.into_iter().map(|known| known.record).collect())
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
