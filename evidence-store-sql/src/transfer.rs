//! The operations for copying a store: lists of its contents, and recording of entries with all fields given.

use async_trait::async_trait;
use evidence_core::auth::KeyHash;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::orgs::Organization;
use evidence_core::store::StoreResult;
use evidence_core::transfer::{Import, Transfer};

use crate::decode::{body, word};
use crate::driver::Driver;
use crate::record::Submission;
use crate::sql::{Sql, for_each};
use crate::store::SqlStore;
use crate::value::texts;

const ORGANIZATIONS: Sql = Sql::portable(
    "SELECT record FROM evidence.organization WHERE id > coalesce($1, '') ORDER BY id LIMIT $2",
);

const KEY_HASHES: Sql = for_each!(["k.id, k.hash"], "api_key", "id", "k", "WHERE k.hash IS NOT NULL");

const ATTACHMENTS: Sql = Sql::portable(
    "SELECT sha256 FROM evidence.attachment
    WHERE org = $1 AND sha256 > coalesce($2, '') ORDER BY sha256 LIMIT $3",
);

#[async_trait]
impl<D: Driver> Transfer for SqlStore<D> {
    async fn organizations(&self, after: Option<Id>, limit: u64) -> StoreResult<Vec<Organization>> {
        let query = self.query(ORGANIZATIONS).bind(after).bind(limit);
        query.long().all_as(|(record,): (String,)| body(&record)).await
    }

    async fn key_hashes(&self, org: Id, keys: &[Id]) -> StoreResult<Vec<(Id, KeyHash)>> {
        let query = self.query_org(org, KEY_HASHES).bind(texts(keys)).per_item(keys.len());
        query.all_as(|(key, hash): (Id, String)| Ok((key, KeyHash::stored(hash)))).await
    }

    async fn attachments(
        &self,
        org: Id,
        after: Option<&Fingerprint>,
        limit: u64,
    ) -> StoreResult<Vec<Fingerprint>> {
        let query = self.query_org(org, ATTACHMENTS).bind(after.map(Fingerprint::as_str)).bind(limit);
        query.long().all_as(|(sha256,): (String,)| word(&sha256)).await
    }

    async fn import(&self, import: Import) -> StoreResult<()> {
        let (reply, outcome) = self.driver.queue().outcome();
        self.submit(Submission::of_import(import, reply), outcome).await.map(drop)
    }
}
