//! The second half of a check: every table besides the ledger made again from the facts, by the statements that wrote
//! it, and compared row by row. The tables are made again as temporary ones, whose schema is the session's own, in a
//! transaction that reads the store as it was when it began.

use std::collections::{BTreeMap, BTreeSet};

use evidence_core::auth::KeyHash;
use evidence_core::digest::sha256_hex;
use evidence_core::id::Id;
use evidence_core::index::IndexRow;
use evidence_core::ledger::Hash;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;
use evidence_core::{Fact, StoreError};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, FromRow, PgConnection};

use crate::connections::connect;
use crate::db::{CONNECTING, PostgresStore};
use crate::error::store_error;
use crate::fsck::FsckReport;
use crate::record::{Batch, rows_alone, write_names};
use crate::rows::{Spot, body, id, signed, unsigned};
use crate::schema::Schema;

/// How many entries are read and written at a time.
const PAGE: i64 = 256;

/// How many rows of a table are named; the first of them is what an operator needs.
const NAMED: u32 = 10;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";

const KEY_HASHES: &str = "SELECT id, hash FROM evidence.api_key WHERE hash IS NOT NULL";

const ENTRIES: &str = "
    SELECT org, idx, at, payload FROM evidence.ledger WHERE (org, idx) > ($1, $2) ORDER BY org, idx LIMIT $3";

const PUT_BLOB: &str =
    "INSERT INTO evidence.blob (org, sha256, size) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

/// The tables that follow from the ledger, and the columns of their primary keys.
const TABLES: &str = "
    SELECT c.relname::text, string_agg('x.' || quote_ident(a.attname), ', ' ORDER BY a.attnum)
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
    WHERE i.indisprimary AND c.relnamespace = to_regnamespace(quote_ident($1))
        AND c.relname NOT IN ('ledger', 'node', 'head', 'blob', 'blob_chunk', 'lease', 'cursor')
    GROUP BY c.relname ORDER BY c.relname";

/// Columns, constraints and indexes that only one of two schemas has: the one named `$1`, and the temporary one.
const SCHEMA: &str = "
    WITH thing AS (
        SELECT c.relnamespace AS place,
            c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' '
                || a.attnotnull || ' ' || a.attcollation AS what
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relkind = 'r'
        UNION ALL
        SELECT c.relnamespace, c.relname || ' on ' || t.relname || ' ' || i.indisunique || ' ' || i.indisvalid || ' '
            || i.indkey::text || ' ' || coalesce(pg_get_expr(i.indpred, t.oid), '')
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
        UNION ALL
        SELECT c.relnamespace, c.relname || ' trigger ' || t.tgname
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal)
    SELECT x.what FROM (
        SELECT what, array_agg(DISTINCT place) AS places FROM thing
        WHERE place IN (to_regnamespace(quote_ident($1)), pg_my_temp_schema())
        GROUP BY what) x
    WHERE cardinality(x.places) < 2";

const HOMELESS: &str = "
    SELECT DISTINCT x.name FROM (
        SELECT 'ledger' AS name, org FROM evidence.ledger UNION ALL SELECT 'node', org FROM evidence.node
        UNION ALL SELECT 'head', org FROM evidence.head UNION ALL SELECT 'blob', org FROM evidence.blob
        UNION ALL SELECT 'blob_chunk', org FROM evidence.blob_chunk) x
    WHERE x.org NOT IN (SELECT id FROM evidence.organization)";

/// What the ledger says of a key is the digest of its hash, so that the tables made again agree with one that is gone.
const HASHES_MISSING: &str = "SELECT id FROM evidence.api_key WHERE hash IS NULL";

/// A blob may be kept for a record that was refused afterwards: only those that a fact names must be there.
const BLOBS_MISSING: &str = "
    SELECT x.org || ' ' || x.sha256 FROM (
        SELECT org, sha256, size FROM pg_temp.blob EXCEPT SELECT org, sha256, size FROM evidence.blob) x";

/// Of the texts `$2` of the organizations `$1`, those that no entry keeps.
const TEXTS_MISSING: &str = "
    SELECT w.org || ' ' || w.sha256 FROM UNNEST($1::text[], $2::text[]) AS w (org, sha256) WHERE NOT EXISTS (
        SELECT 1 FROM evidence.kept_text t WHERE t.org = w.org AND t.sha256 = w.sha256)";

const BLOBS: &str = "
    SELECT b.org, b.sha256, b.size FROM evidence.blob b WHERE (b.org, b.sha256) > ($1, $2)
    ORDER BY b.org, b.sha256 LIMIT 1";

const CHUNKS: &str = "SELECT seq, data FROM evidence.blob_chunk WHERE org = $1 AND sha256 = $2 ORDER BY seq";

/// A session with the tables made again, and the store beside them.
pub(crate) struct Rebuild {
    connection: PgConnection,
    stored: Schema,
    scratch: Schema,
}

impl Rebuild {
    /// Begins to read the store as it is now. What it makes goes with its connection, which nobody else uses.
    pub(crate) async fn begin(store: &PostgresStore) -> StoreResult<Self> {
        let address = store.reader.connections.address().options;
        let mut connection = connect(&address, CONNECTING).await.map_err(store_error)?;
        let (stored, scratch) = (store.reader.schema.clone(), Schema::temporary());
        sqlx::raw_sql(BEGIN).execute(&mut connection).await.map_err(store_error)?;
        scratch.make(&mut connection).await.map_err(store_error)?;
        Ok(Self { connection, stored, scratch })
    }

    /// Checks the attachments and, where nothing was found so far, the tables: what they should hold follows from a
    /// sound ledger only.
    pub(crate) async fn check(&mut self, report: &mut FsckReport) -> StoreResult<()> {
        self.check_blobs(report).await?;
        if report.problems.is_empty() { self.check_tables(report).await } else { Ok(()) }
    }

    /// Whether every attachment still has the content that it is named after.
    async fn check_blobs(&mut self, report: &mut FsckReport) -> StoreResult<()> {
        let mut last = (String::new(), String::new());
        loop {
            let query = sqlx::query_as::<_, (String, String, i64)>(self.stored.statement(BLOBS));
            let next = query.bind(last.0).bind(last.1).fetch_optional(&mut self.connection).await;
            let Some((org, sha256, size)) = next.map_err(store_error)? else { return Ok(()) };
            let query = sqlx::query_as::<_, (i64, Vec<u8>)>(self.stored.statement(CHUNKS));
            let chunks = query.bind(&org).bind(&sha256).fetch_all(&mut self.connection).await;
            if !is_whole(&chunks.map_err(store_error)?, &sha256, size) {
                report.problems.push(format!("the attachment {sha256} does not match its hash"));
            }
            last = (org, sha256);
        }
    }

    /// Makes the tables again and names the rows that differ.
    async fn check_tables(&mut self, report: &mut FsckReport) -> StoreResult<()> {
        match self.replay().await {
            Ok(lost) => {
                report.problems.extend(lost.into_iter().map(|text| format!("a text is missing: {text}")))
            }
            Err(error) => {
                report.problems.push(format!("the tables cannot be made again from the ledger: {error}"));
                return Ok(());
            }
        }
        for (table, key) in self.tables().await? {
            let differing = self.stored.statement(&difference(&table, &key));
            let rows: Vec<(String,)> = self.rows(sqlx::query_as(differing)).await?;
            let problem = |(row,)| format!("table {table}: row {row} is not what the ledger says");
            report.problems.extend(rows.into_iter().map(problem));
        }
        let name = self.stored.name().to_owned();
        for (what, query) in [
            (
                "a table or index is not as it was made",
                sqlx::query_as::<_, (String,)>(AssertSqlSafe(SCHEMA.to_owned())).bind(name),
            ),
            ("rows of an organization that does not exist", sqlx::query_as(self.stored.statement(HOMELESS))),
            ("the hash of an API key is missing", sqlx::query_as(self.stored.statement(HASHES_MISSING))),
            ("an attachment is missing", sqlx::query_as(self.stored.statement(BLOBS_MISSING))),
        ] {
            let found = self.rows(query).await?;
            report.problems.extend(found.into_iter().map(|(row,)| format!("{what}: {row}")));
        }
        Ok(())
    }

    async fn rows<R>(
        &mut self,
        query: sqlx::query::QueryAs<'_, sqlx::Postgres, R, sqlx::postgres::PgArguments>,
    ) -> StoreResult<Vec<R>>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        query.fetch_all(&mut self.connection).await.map_err(store_error)
    }

    /// Every table that facts are written to, and the columns of its primary key.
    async fn tables(&mut self) -> StoreResult<Vec<(String, String)>> {
        let name = self.stored.name().to_owned();
        self.rows(sqlx::query_as(TABLES).bind(name)).await
    }

    /// Writes the rows of every fact, and answers the texts that facts refer to and none keeps.
    async fn replay(&mut self) -> StoreResult<BTreeSet<String>> {
        let hashes = self.key_hashes().await?;
        let mut lost = BTreeSet::new();
        let mut last = (String::new(), 0);
        loop {
            let query = sqlx::query_as::<_, (String, i64, i64, String)>(self.stored.statement(ENTRIES));
            let page = self.rows(query.bind(last.0).bind(last.1).bind(PAGE)).await?;
            let Some((org, number, ..)) = page.last() else { return Ok(lost) };
            last = (org.clone(), *number);
            let texts = self.write(&page, &hashes).await?;
            lost.extend(self.lost(texts).await?);
        }
    }

    async fn key_hashes(&mut self) -> StoreResult<BTreeMap<Id, KeyHash>> {
        let rows: Vec<(String, String)> =
            self.rows(sqlx::query_as(self.stored.statement(KEY_HASHES))).await?;
        rows.into_iter().map(|(key, hash)| Ok((id(&key)?, KeyHash::stored(hash)))).collect()
    }

    /// Of these texts, those that no entry keeps.
    async fn lost(&mut self, texts: BTreeSet<(Id, Hash)>) -> StoreResult<Vec<String>> {
        let (orgs, digests): (Vec<_>, Vec<_>) =
            texts.into_iter().map(|(org, text)| (org.to_string(), text.to_string())).unzip();
        let query = sqlx::query_as::<_, (String,)>(self.scratch.statement(TEXTS_MISSING));
        let lost = self.rows(query.bind(orgs).bind(digests)).await?;
        Ok(lost.into_iter().map(|(text,)| text).collect())
    }

    /// Writes the rows of a page of facts, and answers the texts that they refer to.
    async fn write(
        &mut self,
        page: &[(String, i64, i64, String)],
        hashes: &BTreeMap<Id, KeyHash>,
    ) -> StoreResult<BTreeSet<(Id, Hash)>> {
        let mut texts = BTreeSet::new();
        let (mut rows, mut names, mut intervals) = Default::default();
        let mut batch = Batch { rows: &mut rows, names: &mut names, intervals: &mut intervals };
        for (org, number, at, payload) in page {
            let at = Timestamp::from_micros(*at);
            let spot = Spot { org: id(org)?, index: unsigned(*number)? };
            let fact: Fact = body(payload)?;
            batch.index(spot, at, &fact, &secrets(&fact, hashes)).map_err(unwritten)?;
            self.expect(spot, at, &fact, &mut texts).await?;
        }
        intervals.write(&mut rows).map_err(unwritten)?;
        write_names(&names, &mut rows).map_err(unwritten)?;
        let (statement, arguments) = rows_alone(rows).map_err(unwritten)?;
        let query = sqlx::query_with(self.scratch.statement(&statement), arguments);
        query.execute(&mut self.connection).await.map_err(store_error)?;
        Ok(texts)
    }

    /// Notes the attachments and texts that a fact names.
    async fn expect(
        &mut self,
        spot: Spot,
        at: Timestamp,
        fact: &Fact,
        texts: &mut BTreeSet<(Id, Hash)>,
    ) -> StoreResult<()> {
        for row in fact.index_rows(at) {
            match row {
                IndexRow::Attachment(file) => {
                    let query = sqlx::query(self.scratch.statement(PUT_BLOB)).bind(spot.org.to_string());
                    let query = query.bind(file.sha256.as_str()).bind(signed(file.size));
                    query.execute(&mut self.connection).await.map_err(store_error)?;
                }
                IndexRow::TextUse { sha256 } => drop(texts.insert((spot.org, sha256))),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends the reading; the temporary tables go with the session.
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
        "SELECT DISTINCT json_build_array({key})::text FROM (
            (SELECT * FROM pg_temp.{table} EXCEPT SELECT * FROM evidence.{table})
            UNION ALL (SELECT * FROM evidence.{table} EXCEPT SELECT * FROM pg_temp.{table})) x
        LIMIT {NAMED}"
    )
}

fn unwritten(error: serde_json::Error) -> StoreError {
    StoreError::Failed(error.into())
}
