//! What copying needs: lists of what is there, and recording with everything given.

use async_trait::async_trait;
use evidence_core::auth::KeyHash;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::orgs::Organization;
use evidence_core::store::StoreResult;
use evidence_core::transfer::{Import, Transfer};

use crate::db::PostgresStore;
use crate::record::Submission;
use crate::rows::{body, each, id, list, signed, word};
use crate::writer::Job;

const ORGANIZATIONS: &str =
    "SELECT record FROM evidence.organization WHERE id > coalesce($1, '') ORDER BY id LIMIT $2";

const KEY_HASHES: &str =
    concat!("SELECT k.id, k.hash FROM ", each!("api_key", "id", "k"), " WHERE k.hash IS NOT NULL");

const ATTACHMENTS: &str = "
    SELECT sha256 FROM evidence.attachment WHERE org = $1 AND sha256 > coalesce($2, '') ORDER BY sha256 LIMIT $3";

#[async_trait]
impl Transfer for PostgresStore {
    async fn organizations(&self, after: Option<Id>, limit: u64) -> StoreResult<Vec<Organization>> {
        let question = self.ask(ORGANIZATIONS).bind(after.map(|after| after.to_string())).bind(signed(limit));
        question.all::<(String,)>().await?.iter().map(|(record,)| body(record)).collect()
    }

    async fn key_hashes(&self, org: Id, keys: &[Id]) -> StoreResult<Vec<(Id, KeyHash)>> {
        let question = self.ask_of(org, KEY_HASHES).long().bind(list(keys));
        let rows = question.all::<(String, String)>().await?.into_iter();
        rows.map(|(key, hash)| Ok((id(&key)?, KeyHash::stored(hash)))).collect()
    }

    async fn attachments(
        &self,
        org: Id,
        after: Option<&Fingerprint>,
        limit: u64,
    ) -> StoreResult<Vec<Fingerprint>> {
        let question = self.ask_of(org, ATTACHMENTS).long();
        let question = question.bind(after.map(Fingerprint::to_string)).bind(signed(limit));
        question.all::<(String,)>().await?.iter().map(|(sha256,)| word(sha256)).collect()
    }

    async fn import(&self, import: Import) -> StoreResult<()> {
        let (reply, outcome) = self.queue.outcome();
        self.queue.submit(Job::Record(Submission::of_import(import, reply)), outcome).await.map(drop)
    }
}
