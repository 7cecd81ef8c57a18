//! Policies: named records, and the versions of policies and attestation types, whose bodies are in the facts that
//! made them.

use std::collections::BTreeSet;

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::fact::said;
use evidence_core::id::Id;
use evidence_core::page::{Listed, PageRequest};
use evidence_core::policies::{Policy, PolicyStore, PolicyVersion, VersionKey};
use evidence_core::store::StoreResult;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::db::PostgresStore;
use crate::rows::{Listing, Order, Payload, id, payload, signed, text_of, unsigned};

const KIND: &str = "policy";

const LISTED: &str = "evidence.record x WHERE x.org = $1 AND x.kind || '' = 'policy'";

pub(crate) const INSERT_VERSIONS: &str = "
    INSERT INTO evidence.version (org, id, number, ledger_index)
    SELECT r.* FROM go, UNNEST($text, $text, $bigint, $bigint) r";

/// The versions `v` of the records `$2` and numbers `$3`.
macro_rules! by_number {
    () => {
        " FROM UNNEST($2::text[], $3::bigint[]) AS wanted (id, number) CROSS JOIN LATERAL (
            SELECT * FROM evidence.version WHERE org = $1 AND id = wanted.id AND number = wanted.number OFFSET 0) v"
    };
}

pub(crate) const BY_NUMBER: &str = concat!("SELECT v.ledger_index, ", payload!("v"), by_number!());

/// The payloads are measured without being read.
pub(crate) const SIZES: &str =
    concat!("SELECT v.id, v.number, coalesce(octet_length(", payload!("v"), "), 0)::bigint", by_number!());

/// A payload, as far as its version goes.
#[derive(Deserialize)]
struct Versioned<T> {
    version: T,
}

impl PostgresStore {
    /// How large these versions of records are.
    pub(crate) async fn version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        let (ids, numbers) = columns(versions);
        let rows = self.ask_of(org, SIZES).long().bind(ids).bind(numbers).all().await?;
        rows.into_iter().map(size).collect()
    }

    /// These versions of records.
    pub(crate) async fn versions<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<T>> {
        let (ids, numbers) = columns(versions);
        let question = self.ask_of(org, BY_NUMBER).long().bind(ids).bind(numbers);
        question.readable_as(org, version).await
    }
}

/// The version in the payload of this index.
fn version<T: DeserializeOwned>((index, payload): (i64, Payload)) -> (i64, StoreResult<T>) {
    (index, text_of(&payload).and_then(said::<Versioned<T>>).map(|payload| payload.version))
}

/// The ids and the numbers, each pair once, to bind.
fn columns(versions: &[VersionKey]) -> (Vec<String>, Vec<i64>) {
    let versions = BTreeSet::from_iter(versions);
    versions.into_iter().map(|(record, number)| (record.to_string(), signed(*number))).unzip()
}

fn size((record, number, bytes): (String, i64, i64)) -> StoreResult<Listed<VersionKey>> {
    Ok(Listed { id: (id(&record)?, unsigned(number)?), bytes: unsigned(bytes)? })
}

#[async_trait]
impl PolicyStore for PostgresStore {
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>> {
        self.by_name(org, KIND, name).await
    }

    async fn policies_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let listing =
            Listing { from: LISTED, filter: Vec::new(), order: Order::By("x.name"), counted: false };
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
