//! Attachments: chunks of a fixed size, each written by itself, and a row that makes the blob exist once all are there.
//! A keep that breaks off leaves chunks that nobody sees and that the next keep of the same content writes over, as it does
//! those of a blob that is no longer whole.

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::blobs::{Blobs, CHUNK, Chunks, Parts, is_whole};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::StoreResult;
use rusqlite::Connection;

use crate::db::SqliteStore;
use crate::question::execute;
use crate::rows::signed;
use crate::writer::Job;

/// Whether the chunks of a blob have as many bytes as it says; no row where there is no such blob.
const HAS_ITS_SIZE: &str = "
    SELECT b.size = (SELECT coalesce(sum(length(c.data)), 0) FROM blob_chunk c WHERE c.org = b.org AND c.sha256 = b.sha256)
    FROM blob b WHERE b.org = (SELECT key FROM organization WHERE id = $1) AND b.sha256 = $2";

const PUT_CHUNK: &str = "
    INSERT INTO blob_chunk (org, sha256, seq, data) SELECT key, $2, $3, $4 FROM organization WHERE id = $1
    ON CONFLICT (org, sha256, seq) DO UPDATE SET data = excluded.data";

const COMPLETE: &str = "
    INSERT INTO blob (org, sha256, size) SELECT key, $2, $3 FROM organization WHERE id = $1
    ON CONFLICT (org, sha256) DO UPDATE SET size = excluded.size";

/// Chunks past the end, which no keep of this content has written.
const DROP_SURPLUS: &str = "
    DELETE FROM blob_chunk
    WHERE org = (SELECT key FROM organization WHERE id = $1) AND sha256 = $2 AND seq >= $3";

const CHUNK_OF: &str = "
    SELECT c.data FROM organization o
    JOIN blob b ON b.org = o.key AND b.sha256 = $2
    JOIN blob_chunk c ON c.org = b.org AND c.sha256 = b.sha256 AND c.seq = $3
    WHERE o.id = $1";

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
    /// How many bytes it has to write.
    pub(crate) fn size(&self) -> usize {
        match &self.step {
            Step::Chunk { data, .. } => data.len(),
            Step::Complete { .. } => 0,
        }
    }

    /// Writes it.
    pub(crate) fn apply(self, connection: &Connection) -> rusqlite::Result<()> {
        let Self { org, sha256, step } = self;
        let org = org.to_string();
        match step {
            Step::Chunk { number, data } => {
                execute(connection, PUT_CHUNK, &[org.into(), sha256.into(), number.into(), data.into()])
            }
            Step::Complete { size, chunks } => {
                let (of, named) = (org.clone(), sha256.clone());
                execute(connection, DROP_SURPLUS, &[of.into(), named.into(), chunks.into()])?;
                execute(connection, COMPLETE, &[org.into(), sha256.into(), size.into()])
            }
        }
    }
}

impl SqliteStore {
    async fn write_blob(&self, org: Id, sha256: &Fingerprint, step: Step) -> StoreResult<()> {
        let write = BlobWrite { org, sha256: sha256.to_string(), step };
        let (reply, outcome) = self.queue.outcome();
        self.queue.submit(Job::Blob(write, reply), outcome).await
    }
}

#[async_trait]
impl Blobs for SqliteStore {
    async fn put(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        let has_its_size = self.ask_of(org, HAS_ITS_SIZE).bind(sha256.to_string()).long();
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
        let question = self.ask_of(org, CHUNK_OF).bind(sha256.to_string());
        let found = question.bind(signed(number)).long().first::<(Vec<u8>,)>().await?;
        Ok(found.map(|(data,)| data.into()))
    }
}
