//! What copying needs: lists of what is there, and recording with everything given.

use async_trait::async_trait;
use evidence_core::auth::KeyHash;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::orgs::Organization;
use evidence_core::store::StoreResult;
use evidence_core::transfer::{Import, Transfer};

use crate::db::SqliteStore;
use crate::record::Submission;
use crate::rows::{body, id, list, signed, word};
use crate::writer::Job;

const ORGANIZATIONS: &str =
    "SELECT record FROM organization WHERE id > coalesce($1, '') ORDER BY id LIMIT $2";

const KEY_HASHES: &str = "
    SELECT k.id, k.hash FROM json_each($2) j CROSS JOIN api_key k ON k.id = j.value
    WHERE k.org = (SELECT key FROM organization WHERE id = $1) AND k.hash IS NOT NULL";

const ATTACHMENTS: &str = "
    SELECT sha256 FROM attachment
    WHERE org = (SELECT key FROM organization WHERE id = $1) AND sha256 > coalesce($2, '')
    ORDER BY sha256 LIMIT $3";

#[async_trait]
impl Transfer for SqliteStore {
    async fn organizations(&self, after: Option<Id>, limit: u64) -> StoreResult<Vec<Organization>> {
        let question = self.ask(ORGANIZATIONS).bind(after.map(|after| after.to_string()));
        question.bind(signed(limit)).long().all_as(|(record,): (String,)| body(&record)).await
    }

    async fn key_hashes(&self, org: Id, keys: &[Id]) -> StoreResult<Vec<(Id, KeyHash)>> {
        let question = self.ask_of(org, KEY_HASHES).bind(list(keys)?).about(keys.len());
        question.all_as(|(key, hash): (String, String)| Ok((id(&key)?, KeyHash::stored(hash)))).await
    }

    async fn attachments(
        &self,
        org: Id,
        after: Option<&Fingerprint>,
        limit: u64,
    ) -> StoreResult<Vec<Fingerprint>> {
        let question = self.ask_of(org, ATTACHMENTS).bind(after.map(Fingerprint::to_string));
        question.bind(signed(limit)).long().all_as(|(sha256,): (String,)| word(&sha256)).await
    }

    async fn import(&self, import: Import) -> StoreResult<()> {
        let (reply, outcome) = self.queue.outcome();
        self.queue.submit(Job::Record(Submission::of_import(import, reply)), outcome).await.map(drop)
    }
}
