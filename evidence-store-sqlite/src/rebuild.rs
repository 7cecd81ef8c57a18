//! The second half of a check: every table besides the ledger made again from the facts, in a scratch database, by the
//! statements that wrote it, and compared row by row. The scratch database comes first on its connection and the store
//! is attached to it, so that those statements find the scratch tables under their own names.

use std::collections::BTreeMap;

use evidence_core::auth::KeyHash;
use evidence_core::digest::sha256_hex;
use evidence_core::id::Id;
use evidence_core::store::StoreResult;
use evidence_core::{Fact, StoreError};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use crate::db::{SqliteStore, migrate, statement};
use crate::error::{ConnectError, store_error};
use crate::fsck::FsckReport;
use crate::record::index;
use crate::rows::{Rows, Spot, body, id, signed, unsigned};
use crate::snapshots::Intervals;

/// How many entries are read and written at a time.
const PAGE: u32 = 256;

/// How many rows of a table are named; the first of them is what an operator needs.
const NAMED: u32 = 10;

const ATTACH: &str = "ATTACH DATABASE $1 AS stored";

const INTEGRITY: &str = "PRAGMA stored.integrity_check";

const KEY_HASHES: &str = "SELECT id, hash FROM stored.api_key WHERE hash IS NOT NULL";

const ENTRIES: &str = "
    SELECT org, idx, payload FROM stored.ledger WHERE (org, idx) > ($1, $2) ORDER BY org, idx LIMIT $3";

const PUT_BLOB: &str = "INSERT INTO blob (org, sha256, size) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

const TABLES: &str = "
    SELECT m.name, group_concat('x.' || p.name, ', ') FROM main.sqlite_schema m, pragma_table_info(m.name, 'main') p
    WHERE m.type = 'table' AND m.name NOT IN ('ledger', 'node', 'head', 'blob', 'blob_chunk') AND p.pk > 0
    GROUP BY m.name ORDER BY m.name";

const SCHEMA: &str = "
    SELECT json_array(x.type, x.name) FROM (
        SELECT * FROM (SELECT type, name, sql FROM main.sqlite_schema
            EXCEPT SELECT type, name, sql FROM stored.sqlite_schema)
        UNION ALL SELECT * FROM (SELECT type, name, sql FROM stored.sqlite_schema
            EXCEPT SELECT type, name, sql FROM main.sqlite_schema)) x
    WHERE x.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";

const HOMELESS: &str = "
    SELECT DISTINCT x.name FROM (
        SELECT 'ledger' AS name, org FROM stored.ledger UNION ALL SELECT 'node', org FROM stored.node
        UNION ALL SELECT 'head', org FROM stored.head UNION ALL SELECT 'blob', org FROM stored.blob
        UNION ALL SELECT 'blob_chunk', org FROM stored.blob_chunk) x
    WHERE x.org NOT IN (SELECT key FROM stored.organization)";

/// A blob may be kept for a record that was refused afterwards: only those that a fact names must be there.
const BLOBS_MISSING: &str = "
    SELECT json_array(x.org, x.sha256) FROM (
        SELECT org, sha256, size FROM main.blob EXCEPT SELECT org, sha256, size FROM stored.blob) x";

const BLOBS: &str = "
    SELECT b.org, b.sha256, b.size FROM stored.blob b WHERE (b.org, b.sha256) > ($1, $2)
    ORDER BY b.org, b.sha256 LIMIT 1";

const CHUNKS: &str = "SELECT seq, data FROM stored.blob_chunk WHERE org = $1 AND sha256 = $2 ORDER BY seq";

/// A scratch database, and the store beside it as `stored`.
pub(crate) struct Rebuild {
    connection: SqliteConnection,
}

impl Rebuild {
    /// Opens the scratch database, a temporary file that SQLite removes, and begins to read the store as it is now.
    pub(crate) async fn begin(store: &SqliteStore) -> StoreResult<Self> {
        let scratch = SqliteConnectOptions::new().filename("").disable_statement_logging();
        let mut connection = scratch.connect().await.map_err(store_error)?;
        migrate(&mut connection).await.map_err(unprepared)?;
        let attach = sqlx::query(ATTACH).bind(store.file());
        attach.execute(&mut connection).await.map_err(store_error)?;
        sqlx::raw_sql("BEGIN").execute(&mut connection).await.map_err(store_error)?;
        Ok(Self { connection })
    }

    /// Checks the file, the attachments and, where nothing was found so far, the tables: what they should hold follows
    /// from a sound ledger only.
    pub(crate) async fn check(&mut self, report: &mut FsckReport) -> StoreResult<()> {
        self.check_file(report).await?;
        self.check_blobs(report).await?;
        if report.problems.is_empty() { self.check_tables(report).await } else { Ok(()) }
    }

    /// What SQLite itself finds wrong with the file.
    async fn check_file(&mut self, report: &mut FsckReport) -> StoreResult<()> {
        let found: Vec<String> = self.column(INTEGRITY).await?;
        report
            .problems
            .extend(found.into_iter().filter(|line| line != "ok").map(|line| format!("file: {line}")));
        Ok(())
    }

    /// Whether every attachment still has the content that it is named after.
    async fn check_blobs(&mut self, report: &mut FsckReport) -> StoreResult<()> {
        let mut last = (i64::MIN, String::new());
        loop {
            let query = sqlx::query_as::<_, (i64, String, i64)>(BLOBS).bind(last.0).bind(last.1);
            let next = query.fetch_optional(&mut self.connection).await.map_err(store_error)?;
            let Some((org, sha256, size)) = next else { return Ok(()) };
            let query = sqlx::query_as::<_, (i64, Vec<u8>)>(CHUNKS).bind(org).bind(&sha256);
            let chunks = query.fetch_all(&mut self.connection).await.map_err(store_error)?;
            if !is_whole(&chunks, &sha256, size) {
                report.problems.push(format!("the attachment {sha256} does not match its hash"));
            }
            last = (org, sha256);
        }
    }

    /// Makes the tables again and names the rows that differ.
    async fn check_tables(&mut self, report: &mut FsckReport) -> StoreResult<()> {
        if let Err(error) = self.replay().await {
            report.problems.push(format!("the tables cannot be made again from the ledger: {error}"));
            return Ok(());
        }
        for (table, key) in self.tables().await? {
            let differing = statement(&[&difference(&table, &key)]);
            let rows: Vec<String> =
                sqlx::query_scalar(differing).fetch_all(&mut self.connection).await.map_err(store_error)?;
            let problem = |row| format!("table {table}: row {row} is not what the ledger says");
            report.problems.extend(rows.into_iter().map(problem));
        }
        for (what, sql) in [
            ("a table or index is not as it was made", SCHEMA),
            ("rows of an organization that does not exist", HOMELESS),
            ("an attachment is missing", BLOBS_MISSING),
        ] {
            let found: Vec<String> = self.column(sql).await?;
            report.problems.extend(found.into_iter().map(|row| format!("{what}: {row}")));
        }
        Ok(())
    }

    async fn column(&mut self, sql: &'static str) -> StoreResult<Vec<String>> {
        sqlx::query_scalar(sql).fetch_all(&mut self.connection).await.map_err(store_error)
    }

    /// Every table that facts are written to, and the columns of its primary key.
    async fn tables(&mut self) -> StoreResult<Vec<(String, String)>> {
        sqlx::query_as(TABLES).fetch_all(&mut self.connection).await.map_err(store_error)
    }

    /// Writes the rows of every fact.
    async fn replay(&mut self) -> StoreResult<()> {
        let hashes = self.key_hashes().await?;
        let mut last = (i64::MIN, 0);
        loop {
            let query = sqlx::query_as::<_, (i64, i64, String)>(ENTRIES).bind(last.0).bind(last.1).bind(PAGE);
            let page = query.fetch_all(&mut self.connection).await.map_err(store_error)?;
            let Some((org, number, _)) = page.last() else { return Ok(()) };
            last = (*org, *number);
            self.write(&page, &hashes).await?;
        }
    }

    async fn key_hashes(&mut self) -> StoreResult<BTreeMap<Id, KeyHash>> {
        let query = sqlx::query_as::<_, (String, String)>(KEY_HASHES);
        let rows = query.fetch_all(&mut self.connection).await.map_err(store_error)?;
        rows.into_iter().map(|(key, hash)| Ok((id(&key)?, KeyHash::stored(hash)))).collect()
    }

    async fn write(
        &mut self,
        page: &[(i64, i64, String)],
        hashes: &BTreeMap<Id, KeyHash>,
    ) -> StoreResult<()> {
        let (mut rows, mut intervals) = (Rows::default(), Intervals::default());
        for (org, number, payload) in page {
            let spot = Spot { org: *org, index: unsigned(*number)? };
            let fact: Fact = body(payload)?;
            index(spot, &fact, &secrets(&fact, hashes), &mut rows, &mut intervals).map_err(unwritten)?;
            self.expect_blobs(spot, &fact).await?;
        }
        intervals.write(&mut rows).map_err(unwritten)?;
        let (statements, arrays) = rows.into_statements();
        let no_payloads: &[u8] = &[];
        let query = sqlx::query(statement(&[&statements])).bind(no_payloads);
        let query = arrays.into_iter().fold(query, |query, rows| query.bind(rows));
        query.execute(&mut self.connection).await.map(drop).map_err(store_error)
    }

    /// Notes the attachments that a fact names.
    async fn expect_blobs(&mut self, spot: Spot, fact: &Fact) -> StoreResult<()> {
        let Fact::AttestationAdded { record } = fact else { return Ok(()) };
        for file in record.attachments.iter().chain(&record.evidence) {
            let query =
                sqlx::query(PUT_BLOB).bind(spot.org).bind(file.sha256.as_str()).bind(signed(file.size));
            query.execute(&mut self.connection).await.map_err(store_error)?;
        }
        Ok(())
    }

    /// Ends the reading and removes the scratch database.
    pub(crate) async fn end(self) -> StoreResult<()> {
        self.connection.close().await.map_err(store_error)
    }
}

/// Whether numbered chunks are the content of this hash and size, as a reader finds them.
fn is_whole(chunks: &[(i64, Vec<u8>)], sha256: &str, size: i64) -> bool {
    let in_order = (0..).zip(chunks).all(|(number, (seq, data))| *seq == number && !data.is_empty());
    let content = chunks.iter().map(|(_, data)| data.as_slice()).collect::<Vec<_>>().concat();
    in_order && signed(content.len() as u64) == size && sha256_hex(&content) == sha256
}

/// The hash that a fact's key is kept with, if it is the one whose digest the ledger has.
fn secrets(fact: &Fact, hashes: &BTreeMap<Id, KeyHash>) -> Vec<(Id, KeyHash)> {
    let Fact::ApiKeyCreated { record } = fact else { return Vec::new() };
    let hash = hashes.get(&record.id).filter(|hash| hash.fingerprint() == record.hash_sha256);
    hash.map(|hash| (record.id, hash.clone())).into_iter().collect()
}

/// The statement that answers the keys of the rows that only one of the two tables has.
fn difference(table: &str, key: &str) -> String {
    format!(
        "SELECT DISTINCT json_array({key}) FROM (
            SELECT * FROM (SELECT * FROM main.{table} EXCEPT SELECT * FROM stored.{table})
            UNION ALL SELECT * FROM (SELECT * FROM stored.{table} EXCEPT SELECT * FROM main.{table})) x
        LIMIT {NAMED}"
    )
}

fn unprepared(error: ConnectError) -> StoreError {
    StoreError::Failed(error.into())
}

fn unwritten(error: serde_json::Error) -> StoreError {
    StoreError::Failed(error.into())
}
