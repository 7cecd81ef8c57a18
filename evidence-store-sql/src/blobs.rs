//! Attachments: chunks of a fixed size, and a row that makes the blob visible once all chunks exist. Each
//! chunk is written on its own. An interrupted write leaves invisible chunks, which the next write of the
//! same content replaces. A new write also replaces the chunks of a damaged blob.

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::blobs::{Blobs, CHUNK, Chunks, Parts, is_whole};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::StoreResult;

use crate::driver::{Driver, Statement};
use crate::sql::{Dialect, Sql};
use crate::store::SqlStore;
use crate::value::{Value, signed};

/// Selects whether the chunks of a blob add up to its size. Returns no row if the blob does not exist.
const HAS_ITS_SIZE: Sql = Sql::portable(
    "SELECT b.size = (
        SELECT coalesce(sum(length(c.data)), 0) FROM evidence.blob_chunk c WHERE c.org = $1 AND c.sha256 = $2)
    FROM evidence.blob b WHERE b.org = $1 AND b.sha256 = $2",
);

/// The prefix of PostgreSQL's blob writes. It checks that a program of this version may still write. In
/// SQLite, the writer checks it.
macro_rules! may_write {
    ($version:literal) => {
        concat!(
            "WITH may AS MATERIALIZED (
                SELECT coalesce((
                    SELECT min_writer_version FROM evidence._evidence_migrations ORDER BY version DESC LIMIT 1), 0) <= ",
            $version,
            " AS may), written AS ("
        )
    };
}

/// As everywhere, nothing is written for an organization that does not exist.
const PUT_CHUNK: Sql = Sql::per_dialect(
    "INSERT INTO blob_chunk (org, sha256, seq, data) SELECT o.key, $2, $3, $4 FROM organization o WHERE o.key = $1
    ON CONFLICT (org, sha256, seq) DO UPDATE SET data = excluded.data",
    concat!(
        may_write!("$5"),
        "INSERT INTO evidence.blob_chunk (org, sha256, seq, data)
        SELECT o.key, $2, $3, $4 FROM may, evidence.organization o WHERE may.may AND o.key = $1
        ON CONFLICT (org, sha256, seq) DO UPDATE SET data = excluded.data) SELECT may FROM may"
    ),
);

/// In PostgreSQL this includes [`DROP_SURPLUS`].
const COMPLETE: Sql = Sql::per_dialect(
    "INSERT INTO blob (org, sha256, size) SELECT o.key, $2, $3 FROM organization o WHERE o.key = $1
    ON CONFLICT (org, sha256) DO UPDATE SET size = excluded.size",
    concat!(
        may_write!("$5"),
        "INSERT INTO evidence.blob (org, sha256, size)
        SELECT o.key, $2, $3 FROM may, evidence.organization o WHERE may.may AND o.key = $1
        ON CONFLICT (org, sha256) DO UPDATE SET size = excluded.size),
        surplus AS (
            DELETE FROM evidence.blob_chunk c USING may
            WHERE may.may AND c.org = $1 AND c.sha256 = $2 AND c.seq >= $4)
        SELECT may FROM may"
    ),
);

/// Deletes chunks past the end, which do not belong to this content.
const DROP_SURPLUS: &str = "DELETE FROM blob_chunk WHERE org = $1 AND sha256 = $2 AND seq >= $4";

const CHUNK_OF: Sql = Sql::portable(
    "SELECT c.data FROM evidence.blob b
    JOIN evidence.blob_chunk c ON c.org = b.org AND c.sha256 = b.sha256 AND c.seq = $3
    WHERE b.org = $1 AND b.sha256 = $2",
);

/// A step of writing a blob. It is a transaction of its own and idempotent.
#[derive(Debug)]
pub struct BlobWrite {
    /// The organization.
    pub org: Id,
    /// The number of bytes to write.
    pub size: usize,
    /// The statements of the step. PostgreSQL has one statement, which returns whether this program may
    /// write.
    pub statements: Vec<Statement>,
}

impl<D: Driver> SqlStore<D> {
    async fn write_chunk(
        &self,
        org: Id,
        sha256: &Fingerprint,
        number: i64,
        data: Vec<u8>,
    ) -> StoreResult<()> {
        let size = data.len();
        let values =
            vec![Value::Org(org), sha256.into(), number.into(), data.into(), self.driver.version().into()];
        let statements = vec![Statement::change(PUT_CHUNK.text(D::DIALECT), values)];
        self.driver.write_blob(BlobWrite { org, size, statements }).await
    }

    async fn complete(&self, org: Id, sha256: &Fingerprint, size: u64, chunks: i64) -> StoreResult<()> {
        let size = signed(size).into();
        let values = vec![Value::Org(org), sha256.into(), size, chunks.into(), self.driver.version().into()];
        let mut statements = vec![Statement::change(COMPLETE.text(D::DIALECT), values.clone())];
        if matches!(D::DIALECT, Dialect::Sqlite) {
            statements.push(Statement::change(DROP_SURPLUS, values));
        }
        self.driver.write_blob(BlobWrite { org, size: 0, statements }).await
    }
}

#[async_trait]
impl<D: Driver> Blobs for SqlStore<D> {
    async fn put(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        let has_its_size = self.query_org(org, HAS_ITS_SIZE).bind(sha256).long();
        if has_its_size.first::<(bool,)>().await? == Some((true,)) && is_whole(self, org, sha256).await? {
            return Ok(());
        }
        let (mut parts, mut number, mut size) = (Parts::new(content, CHUNK), 0, 0);
        while let Some(data) = parts.next().await? {
            size += data.len() as u64;
            self.write_chunk(org, sha256, number, data).await?;
            number += 1;
        }
        self.complete(org, sha256, size, number).await
    }

    async fn get_chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
        let query = self.query_org(org, CHUNK_OF).bind(sha256).bind(number).long();
        Ok(query.first::<(Vec<u8>,)>().await?.map(|(data,)| data.into()))
    }
}
