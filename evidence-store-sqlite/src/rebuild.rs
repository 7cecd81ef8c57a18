//! The second half of a check: every table besides the ledger made again from the facts, in a scratch database, by the
//! statements that wrote it, and compared row by row. The scratch database comes first on its connection and the store
//! is attached to it, so that those statements find the scratch tables under their own names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use evidence_core::auth::KeyHash;
use evidence_core::digest::sha256_hex;
use evidence_core::id::Id;
use evidence_core::index::IndexRow;
use evidence_core::ledger::Hash;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;
use evidence_core::{Fact, StoreError};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use crate::db::{connection, migrate};
use crate::error::{ConnectError, store_error};
use crate::question::{self, FromRow, execute};
use crate::record::{Batch, write_names};
use crate::rows::{Spot, body, id, list, signed, unsigned};

/// How many entries are read and written at a time.
const PAGE: i64 = 256;

/// How many rows of a table are named; the first of them is what an operator needs.
const NAMED: u32 = 10;

const ATTACH: &str = "ATTACH DATABASE $1 AS stored";

const INTEGRITY: &str = "PRAGMA stored.integrity_check";

const KEY_HASHES: &str = "SELECT id, hash FROM stored.api_key WHERE hash IS NOT NULL";

const ENTRIES: &str = "
    SELECT org, idx, at, payload FROM stored.ledger WHERE (org, idx) > ($1, $2) ORDER BY org, idx LIMIT $3";

const PUT_BLOB: &str = "INSERT INTO blob (org, sha256, size) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

const TABLES: &str = "
    SELECT m.name, group_concat('x.' || p.name, ', ') FROM main.sqlite_schema m, pragma_table_info(m.name, 'main') p
    WHERE m.type = 'table' AND m.name NOT IN ('ledger', 'node', 'head', 'blob', 'blob_chunk', 'lease', 'cursor') AND p.pk > 0
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

/// What the ledger says of a key is the digest of its hash, so that the tables made again agree with one that is gone.
const HASHES_MISSING: &str = "SELECT id FROM stored.api_key WHERE hash IS NULL";

/// A blob may be kept for a record that was refused afterwards: only those that a fact names must be there.
const BLOBS_MISSING: &str = "
    SELECT json_array(x.org, x.sha256) FROM (
        SELECT org, sha256, size FROM main.blob EXCEPT SELECT org, sha256, size FROM stored.blob) x";

/// Of the texts `$1`, those that no entry keeps.
const TEXTS_MISSING: &str = "
    SELECT json_array(w.value->>0, w.value->>1) FROM json_each($1) w WHERE NOT EXISTS (
        SELECT 1 FROM main.kept_text t WHERE t.org = w.value->>0 AND t.sha256 = w.value->>1)";

const BLOBS: &str = "
    SELECT b.org, b.sha256, b.size FROM stored.blob b WHERE (b.org, b.sha256) > ($1, $2)
    ORDER BY b.org, b.sha256 LIMIT 1";

const CHUNKS: &str = "SELECT seq, data FROM stored.blob_chunk WHERE org = $1 AND sha256 = $2 ORDER BY seq";

/// A scratch database, and the store beside it as `stored`.
pub(crate) struct Rebuild {
    connection: Connection,
    problems: Vec<String>,
}

impl Rebuild {
    /// Opens the scratch database, a temporary file that SQLite removes, and begins to read the store in `file` as it
    /// is now.
    pub(crate) fn begin(file: &Path) -> StoreResult<Self> {
        let mut connection = connection(Path::new(""), OpenFlags::SQLITE_OPEN_CREATE).map_err(store_error)?;
        migrate(&mut connection).map_err(unprepared)?;
        let rebuild = Self { connection, problems: Vec::new() };
        rebuild.execute(ATTACH, &[file.display().to_string().into()])?;
        rebuild.execute("BEGIN", &[])?;
        Ok(rebuild)
    }

    /// Checks the file, the attachments and, where nothing is known to be wrong, the tables: what they should hold
    /// follows from a sound ledger only. Answers the problems.
    pub(crate) fn problems(mut self, sound: bool) -> StoreResult<Vec<String>> {
        match self.check(sound) {
            Err(StoreError::Corrupt { what }) => self.problems.push(what),
            outcome => outcome?,
        }
        Ok(self.problems)
    }

    fn check(&mut self, sound: bool) -> StoreResult<()> {
        self.check_file()?;
        self.check_blobs()?;
        if sound && self.problems.is_empty() { self.check_tables() } else { Ok(()) }
    }

    /// What SQLite itself finds wrong with the file.
    fn check_file(&mut self) -> StoreResult<()> {
        let found = self.column(INTEGRITY)?;
        let found = found.into_iter().filter(|line| line != "ok");
        self.problems.extend(found.map(|line| format!("file: {line}")));
        Ok(())
    }

    /// Whether every attachment still has the content that it is named after.
    fn check_blobs(&mut self) -> StoreResult<()> {
        let mut last = (i64::MIN, String::new());
        loop {
            let next = self.rows::<(i64, String, i64)>(BLOBS, &[last.0.into(), last.1.into()])?;
            let Some((org, sha256, size)) = next.into_iter().next() else { return Ok(()) };
            let chunks = self.rows(CHUNKS, &[org.into(), sha256.clone().into()])?;
            if !is_whole(&chunks, &sha256, size) {
                self.problems.push(format!("the attachment {sha256} does not match its hash"));
            }
            last = (org, sha256);
        }
    }

    /// Makes the tables again and names the rows that differ.
    fn check_tables(&mut self) -> StoreResult<()> {
        match self.replay() {
            Ok(lost) => {
                self.problems.extend(lost.into_iter().map(|text| format!("a text is missing: {text}")))
            }
            Err(error) => {
                self.problems.push(format!("the tables cannot be made again from the ledger: {error}"));
                return Ok(());
            }
        }
        for (table, key) in self.rows::<(String, String)>(TABLES, &[])? {
            let rows = self.column(&difference(&table, &key))?;
            let problem = |row| format!("table {table}: row {row} is not what the ledger says");
            self.problems.extend(rows.into_iter().map(problem));
        }
        for (what, sql) in [
            ("a table or index is not as it was made", SCHEMA),
            ("rows of an organization that does not exist", HOMELESS),
            ("the hash of an API key is missing", HASHES_MISSING),
            ("an attachment is missing", BLOBS_MISSING),
        ] {
            let found = self.column(sql)?;
            self.problems.extend(found.into_iter().map(|row| format!("{what}: {row}")));
        }
        Ok(())
    }

    fn rows<R: FromRow>(&self, sql: &str, values: &[Value]) -> StoreResult<Vec<R>> {
        question::rows(&self.connection, sql, values).map_err(store_error)
    }

    fn column(&self, sql: &str) -> StoreResult<Vec<String>> {
        let rows = self.rows::<(String,)>(sql, &[])?;
        Ok(rows.into_iter().map(|(value,)| value).collect())
    }

    fn execute(&self, sql: &str, values: &[Value]) -> StoreResult<()> {
        execute(&self.connection, sql, values).map_err(store_error)
    }

    /// Writes the rows of every fact, and answers the texts that facts refer to and none keeps.
    fn replay(&self) -> StoreResult<BTreeSet<String>> {
        let hashes = self.key_hashes()?;
        let mut lost = BTreeSet::new();
        let mut organizations = BTreeMap::new();
        let mut last = (i64::MIN, 0);
        loop {
            let page =
                self.rows::<(i64, i64, i64, String)>(ENTRIES, &[last.0.into(), last.1.into(), PAGE.into()])?;
            let Some((org, number, ..)) = page.last() else { return Ok(lost) };
            last = (*org, *number);
            let texts = self.write(&page, &hashes, &mut organizations)?;
            let missing = self.rows::<(String,)>(TEXTS_MISSING, &[list(&texts)?.into()])?;
            lost.extend(missing.into_iter().map(|(text,)| text));
        }
    }

    fn key_hashes(&self) -> StoreResult<BTreeMap<Id, KeyHash>> {
        let rows = self.rows::<(String, String)>(KEY_HASHES, &[])?;
        rows.into_iter().map(|(key, hash)| Ok((id(&key)?, KeyHash::stored(hash)))).collect()
    }

    /// Writes the rows of a page of facts, and answers the texts that they refer to. `organizations` are the ids of those
    /// whose ledgers began, by their keys.
    fn write(
        &self,
        page: &[(i64, i64, i64, String)],
        hashes: &BTreeMap<Id, KeyHash>,
        organizations: &mut BTreeMap<i64, Id>,
    ) -> StoreResult<BTreeSet<(i64, Hash)>> {
        let mut texts = BTreeSet::new();
        let (mut rows, mut names, mut intervals) = Default::default();
        let mut batch = Batch { rows: &mut rows, names: &mut names, intervals: &mut intervals };
        for (org, number, at, payload) in page {
            let at = Timestamp::from_micros(*at);
            let spot = Spot { org: *org, index: unsigned(*number)? };
            let fact: Fact = body(payload)?;
            if let Fact::OrganizationCreated { record } = &fact {
                organizations.insert(spot.org, record.id);
            }
            let begun =
                || StoreError::corrupt(format_args!("ledger {org} does not begin with an organization"));
            let id = *organizations.get(org).ok_or_else(begun)?;
            batch.index(id, spot, at, &fact, &secrets(&fact, hashes)).map_err(unwritten)?;
            self.expect(spot, at, &fact, &mut texts)?;
        }
        intervals.write(&mut rows).map_err(unwritten)?;
        let key = |org| organizations.iter().find(|(_, id)| **id == org).map_or(0, |(key, _)| *key);
        write_names(&names, key, &mut rows).map_err(unwritten)?;
        rows.write(&self.connection, Vec::new()).map_err(store_error)?;
        Ok(texts)
    }

    /// Notes the attachments and texts that a fact names.
    fn expect(
        &self,
        spot: Spot,
        at: Timestamp,
        fact: &Fact,
        texts: &mut BTreeSet<(i64, Hash)>,
    ) -> StoreResult<()> {
        for row in fact.index_rows(at) {
            match row {
                IndexRow::Attachment(file) => self.execute(
                    PUT_BLOB,
                    &[spot.org.into(), file.sha256.to_string().into(), signed(file.size).into()],
                )?,
                IndexRow::TextUse { sha256 } => drop(texts.insert((spot.org, sha256))),
                _ => {}
            }
        }
        Ok(())
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
