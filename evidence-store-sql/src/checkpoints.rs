//! The last signed checkpoint of each ledger. Each operation is one statement and therefore atomic. After a lost connection,
//! the driver may resend a statement; a resent replacement that had already succeeded reports failure, and the caller reads
//! again.

use async_trait::async_trait;
use evidence_core::checkpoints::CheckpointStore;
use evidence_core::id::Id;
use evidence_core::store::StoreResult;

use crate::driver::Driver;
use crate::sql::Sql;
use crate::store::SqlStore;

const SIGNED: Sql = Sql::portable("SELECT note FROM evidence.checkpoint WHERE org = $1");

const ANY: Sql = Sql::portable("SELECT 1 FROM evidence.checkpoint LIMIT 1");

const REMOVE: Sql = Sql::portable("DELETE FROM evidence.checkpoint WHERE org = $1 AND note = $2 RETURNING 1");

/// Writes nothing for an organization that does not exist. No note is empty.
const REPLACE: Sql = Sql::portable(
    "INSERT INTO evidence.checkpoint AS c (org, note)
    SELECT o.key, $3 FROM evidence.organization o
    WHERE o.key = $1 AND ($2 = '' OR EXISTS (SELECT 1 FROM evidence.checkpoint k WHERE k.org = $1 AND k.note = $2))
    ON CONFLICT (org) DO UPDATE SET note = excluded.note WHERE c.note = $2
    RETURNING 1",
);

#[async_trait]
impl<D: Driver> CheckpointStore for SqlStore<D> {
    async fn signed_checkpoint(&self, org: Id) -> StoreResult<Option<String>> {
        let note = self.query_org(org, SIGNED).first::<(String,)>().await?;
        Ok(note.map(|(note,)| note))
    }

    async fn has_signed_checkpoints(&self) -> StoreResult<bool> {
        Ok(self.query(ANY).first::<(u64,)>().await?.is_some())
    }

    async fn replace_signed_checkpoint(
        &self,
        org: Id,
        old: Option<&str>,
        new: Option<&str>,
    ) -> StoreResult<bool> {
        let old = old.unwrap_or_default();
        match new {
            Some(new) => self.query_org(org, REPLACE).bind(old).bind(new).change().await,
            None => self.query_org(org, REMOVE).bind(old).change().await,
        }
    }
}
