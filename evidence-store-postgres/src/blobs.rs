//! Attachments: chunks of a fixed size, each written by itself, and a row that makes the blob exist once all are there.
//! A keep that breaks off leaves chunks that nobody sees and that the next keep of the same content writes over, as it does
//! those of a blob that is no longer whole.

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::blobs::{Blobs, CHUNK, Chunks, Parts, is_whole};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::StoreResult;
use sqlx::PgConnection;

use crate::db::PostgresStore;
use crate::rows::signed;
use crate::schema::Schema;
use crate::writer::Job;

/// Whether the chunks of a blob have as many bytes as it says; no row where there is no such blob.
const HAS_ITS_SIZE: &str = "
    SELECT b.size = (
        SELECT coalesce(sum(length(c.data)), 0) FROM evidence.blob_chunk c WHERE c.org = b.org AND c.sha256 = b.sha256)
    FROM evidence.blob b WHERE b.org = $1 AND b.sha256 = $2";

/// What comes before a statement that a program of this version writes by, if a newer one lets it.
macro_rules! may_write {
    ($version:literal) => {
        concat!(
            "WITH may AS MATERIALIZED (
                SELECT coalesce((
                    SELECT writer FROM evidence._evidence_migrations ORDER BY version DESC LIMIT 1), 0) <= ",
            $version,
            " AS may), written AS ("
        )
    };
}

/// As everywhere, nothing is kept for an organization that does not exist.
const PUT_CHUNK: &str = concat!(
    may_write!("$5"),
    "INSERT INTO evidence.blob_chunk (org, sha256, seq, data)
    SELECT o.id, $2, $3, $4 FROM may, evidence.organization o WHERE may.may AND o.id = $1
    ON CONFLICT (org, sha256, seq) DO UPDATE SET data = excluded.data) SELECT may FROM may"
);

/// Chunks past the end go: no keep of this content has written them.
const COMPLETE: &str = concat!(
    may_write!("$5"),
    "INSERT INTO evidence.blob (org, sha256, size)
    SELECT o.id, $2, $3 FROM may, evidence.organization o WHERE may.may AND o.id = $1
    ON CONFLICT (org, sha256) DO UPDATE SET size = excluded.size),
    surplus AS (
        DELETE FROM evidence.blob_chunk c USING may
        WHERE may.may AND c.org = $1 AND c.sha256 = $2 AND c.seq >= $4)
    SELECT may FROM may"
);

const CHUNK_OF: &str = "
    SELECT c.data FROM evidence.blob b
    JOIN evidence.blob_chunk c ON c.org = b.org AND c.sha256 = b.sha256 AND c.seq = $3
    WHERE b.org = $1 AND b.sha256 = $2";

/// A step of keeping a blob, for the writer: its own transaction.
#[derive(Debug)]
pub(crate) struct BlobWrite {
    pub(crate) org: Id,
    sha256: String,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Chunk { number: i64, data: Vec<u8> },
    Complete { size: i64, chunks: i64 },
}

impl BlobWrite {
    /// How much it holds, in bytes.
    pub(crate) const fn size(&self) -> usize {
        match &self.step {
            Step::Chunk { data, .. } => data.len(),
            Step::Complete { .. } => 0,
        }
    }

    /// Writes it as a program of this version, and answers whether that may.
    pub(crate) async fn apply(
        &self,
        schema: &Schema,
        version: i64,
        connection: &mut PgConnection,
    ) -> Result<bool, sqlx::Error> {
        let sql = match self.step {
            Step::Chunk { .. } => PUT_CHUNK,
            Step::Complete { .. } => COMPLETE,
        };
        let query = sqlx::query_scalar(schema.statement(sql)).bind(self.org.to_string()).bind(&self.sha256);
        let query = match &self.step {
            Step::Chunk { number, data } => query.bind(number).bind(data),
            Step::Complete { size, chunks } => query.bind(size).bind(chunks),
        };
        query.bind(version).fetch_one(connection).await
    }
}

impl PostgresStore {
    async fn write_blob(&self, org: Id, sha256: &Fingerprint, step: Step) -> StoreResult<()> {
        let write = BlobWrite { org, sha256: sha256.to_string(), step };
        let (reply, outcome) = self.queue.outcome();
        self.queue.submit(Job::Blob(write, reply), outcome).await
    }
}

#[async_trait]
impl Blobs for PostgresStore {
    async fn put(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        let has_its_size = self.ask_of(org, HAS_ITS_SIZE).long().bind(sha256.as_str());
        if has_its_size.first::<(bool,)>().await? == Some((true,)) && is_whole(self, org, sha256).await? {
            return Ok(());
        }
        let (mut parts, mut number, mut size) = (Parts::new(content, CHUNK), 0, 0);
        while let Some(data) = parts.next().await? {
            size += data.len() as u64;
            self.write_blob(org, sha256, Step::Chunk { number, data }).await?;
            number += 1;
        }
        self.write_blob(org, sha256, Step::Complete { size: signed(size), chunks: number }).await
    }

    async fn get_chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
        let question = self.ask_of(org, CHUNK_OF).long().bind(sha256.as_str()).bind(signed(number));
        Ok(question.first::<(Vec<u8>,)>().await?.map(|(data,)| data.into()))
    }
}
