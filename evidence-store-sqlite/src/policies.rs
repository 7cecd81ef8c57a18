//! Policies: named records, and the versions of policies and attestation types, whose bodies are in the facts that
//! made them.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::fact::said;
use evidence_core::id::Id;
use evidence_core::page::{Listed, PageRequest};
use evidence_core::policies::{Policy, PolicyStore, PolicyVersion, VersionKey};
use evidence_core::store::StoreResult;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::db::SqliteStore;
use crate::rows::{Listing, Order, Payload, id, once, unsigned};

const KIND: &str = "policy";

const LISTED: &str =
    "record x WHERE x.org = (SELECT key FROM organization WHERE id = $1) AND x.kind = 'policy'";

pub(crate) const INSERT_VERSIONS: &str = "
    INSERT INTO version (org, id, number, ledger_index)
    SELECT value->>0, value->>1, value->>2, value->>3 FROM json_each($1)";

/// The versions `v` of these records and numbers, with their entries `l`.
macro_rules! by_number {
    ($columns:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM json_each($2) w CROSS JOIN version v ON v.id = w.value->>0 AND v.number = w.value->>1
            LEFT JOIN ledger l ON l.org = v.org AND l.idx = v.ledger_index
            WHERE v.org = (SELECT key FROM organization WHERE id = $1)"
        )
    };
}

const BY_NUMBER: &str = by_number!("v.ledger_index, l.payload");

/// The payloads are measured without being read.
const SIZES: &str = by_number!("v.id, v.number, coalesce(octet_length(l.payload), 0)");

/// A payload, as far as its version goes.
#[derive(Deserialize)]
struct Versioned<T> {
    version: T,
}

impl SqliteStore {
    /// How large these versions of records are.
    pub(crate) async fn version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        let question = self.ask_of(org, SIZES).bind(once(versions)?).about(versions.len());
        question.all_as(size).await
    }

    /// These versions of records.
    pub(crate) async fn versions<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<T>> {
        let question = self.ask_of(org, BY_NUMBER).bind(once(versions)?).about(versions.len());
        question.readable_as(org, version).await
    }
}

/// The version in the payload of this index.
fn version<T: DeserializeOwned>((index, payload): (i64, Payload)) -> (i64, StoreResult<T>) {
    (index, payload.text().and_then(said::<Versioned<T>>).map(|payload| payload.version))
}

fn size((record, number, bytes): (String, i64, i64)) -> StoreResult<Listed<VersionKey>> {
    Ok(Listed { id: (id(&record)?, unsigned(number)?), bytes: unsigned(bytes)? })
}

#[async_trait]
impl PolicyStore for SqliteStore {
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>> {
        self.by_name(org, KIND, name).await
    }

    async fn policies_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let order = Order::By("x.name");
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
