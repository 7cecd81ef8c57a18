//! Policies: named records. Also the versions of policies and attestation types; their bodies are in the
//! facts that created them.

use std::collections::BTreeSet;

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::fact::decode_payload;
use evidence_core::id::Id;
use evidence_core::page::{Listed, PageRequest};
use evidence_core::policies::{Policy, PolicyStore, PolicyVersion, VersionKey};
use evidence_core::store::StoreResult;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::decode::Payload;
use crate::driver::Driver;
use crate::listing::{Listing, Order};
use crate::sql::{Sql, payload, payload_size};
use crate::store::SqlStore;
use crate::value::{Column, Value, signed};

const KIND: &str = "policy";

const LISTED: Sql = Sql::per_dialect(
    "evidence.record x WHERE x.org = $1 AND x.kind = 'policy'",
    "evidence.record x WHERE x.org = $1 AND x.kind || '' = 'policy'",
);

/// Selects expressions of the versions `v` with these records and numbers ([`columns`]).
macro_rules! by_number {
    ($($select:expr),+) => {
        Sql::per_dialect(
            concat!(
                "SELECT ", $($select,)+ " FROM json_each($2) w CROSS JOIN evidence.version v
                ON v.org = $1 AND v.id = w.value->>0 AND v.number = w.value->>1"
            ),
            concat!(
                "SELECT ", $($select,)+ " FROM UNNEST($2::text[], $3::bigint[]) AS w (id, number)
                CROSS JOIN LATERAL (
                    SELECT * FROM evidence.version WHERE org = $1 AND id = w.id AND number = w.number OFFSET 0) v"
            ),
        )
    };
}

const BY_NUMBER: Sql = by_number!("v.ledger_index, ", payload!("v"));

const SIZES: Sql = by_number!("v.id, v.number, ", payload_size!("v"));

/// The part of a payload that contains the version.
#[derive(Deserialize)]
struct Versioned<T> {
    version: T,
}

impl<D: Driver> SqlStore<D> {
    /// Returns the payload sizes of these versions of records.
    pub(crate) async fn version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        let query = self.query_org(org, SIZES).bind(columns(versions)).per_item(versions.len());
        query.all_as(size).await
    }

    /// Returns these versions of records. Skips corrupt ones.
    pub(crate) async fn versions<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<T>> {
        let query = self.query_org(org, BY_NUMBER).bind(columns(versions)).per_item(versions.len());
        query.readable_as(org, version).await
    }
}

/// Binds the ids and the numbers. Each pair is bound once.
fn columns(versions: &[VersionKey]) -> Value {
    let versions = BTreeSet::from_iter(versions).into_iter();
    let (ids, numbers) =
        versions.map(|(record, number)| (Some(record.to_string()), Some(signed(*number)))).unzip();
    Value::Columns(vec![Column::Texts(ids), Column::Ints(numbers)])
}

/// Decodes the version in the payload at this index.
fn version<T: DeserializeOwned>((index, payload): (i64, Payload)) -> (i64, StoreResult<T>) {
    (index, payload.text().and_then(decode_payload::<Versioned<T>>).map(|payload| payload.version))
}

fn size((record, number, bytes): (Id, u64, u64)) -> StoreResult<Listed<VersionKey>> {
    Ok(Listed { id: (record, number), bytes })
}

#[async_trait]
impl<D: Driver> PolicyStore for SqlStore<D> {
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>> {
        self.by_name(org, KIND, name).await
    }

    async fn policies_named(&self, org: Id, names: &[&str]) -> StoreResult<Vec<Current<Policy>>> {
        self.by_names(org, KIND, names).await
    }

    async fn policies_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let order = Order::By(Sql::portable("x.name"));
        let listing = Listing { from: LISTED, filter: Vec::new(), order, narrow: false, counted: false };
        Ok(self.listed(org, &listing, PageRequest::ALL, Vec::new()).await?.items)
    }

    async fn policies_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Policy>>> {
        self.by_ids(org, KIND, ids).await
    }

    async fn policy_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        self.version_sizes(org, versions).await
    }

    async fn policy_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<PolicyVersion>> {
        self.versions(org, versions).await
    }
}
