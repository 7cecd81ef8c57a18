//! Every table besides the ledgers made again from the facts, in a scratch database, by the statements that wrote it; then
//! compared with what is stored, or put in its place. The scratch database comes first on its connection and the store
//! is attached to it, so that those statements find the scratch tables under their own names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use evidence_core::auth::KeyHash;
use evidence_core::digest::Digest;
use evidence_core::id::Id;
use evidence_core::index::IndexRow;
use evidence_core::ledger::{Frontier, Hash};
use evidence_core::store::{LEDGER_PAGE, StoreResult, StoredEntry};
use evidence_core::{Fact, StoreError};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params, params_from_iter};

use crate::db::{BUSY_TIMEOUT, connection};
use crate::error::{Outdated, store_error};
use crate::ledger::{EntryRow, entry, frontier, page_of_entries};
use crate::migrate::{Migration, make, may_write};
use crate::question::{self, FromRow, execute};
use crate::record::{Batch, write_names};
use crate::rows::{EntryRef, body, list, signed, unsigned, word};

/// How long readers may hold up the log's beginning anew: writers wait meanwhile.
const RELIEF: Duration = Duration::from_millis(50);

/// How many rows of a table are named, and how many attachments; the first of them is what an operator needs.
pub(crate) const NAMED: u8 = 10;

const ATTACH: &str = "ATTACH DATABASE $1 AS stored";

const KEY_HASHES: &str = "SELECT hash FROM stored.api_key WHERE hash IS NOT NULL";

/// The organizations of a range whose ledgers have entries: a step of the index for each.
const BEGUN: &str = "
    WITH RECURSIVE begun (org) AS (
        SELECT min(org) FROM stored.ledger WHERE {range}
        UNION ALL SELECT (SELECT min(l.org) FROM stored.ledger l WHERE l.org > b.org) FROM begun b WHERE b.org IS NOT NULL)
    SELECT org FROM begun WHERE org IS NOT NULL";

const HEADS: &str = "SELECT org, size FROM stored.head WHERE {range}";

const NAMES: &str = "SELECT key, name FROM stored.organization WHERE {range}";

const HEAD: &str = "SELECT size, frontier FROM stored.head WHERE org = $1";

const ENTRIES: &str = page_of_entries!("stored.ledger", "$1");

const NODES: &str = "
    SELECT n.level, n.idx, n.hash FROM json_each($2) j
    CROSS JOIN stored.node n ON n.org = $1 AND n.level = j.value->>0 AND n.idx = j.value->>1";

const SURPLUS: &str = "
    SELECT (SELECT count(*) FROM stored.ledger WHERE org = $1 AND idx >= $2),
        (SELECT count(*) FROM stored.node WHERE org = $1)";

/// The tables that follow from the ledgers, and the columns of their primary keys.
const TABLES: &str = "
    SELECT m.name, json_group_array(p.name) FROM main.sqlite_schema m, pragma_table_info(m.name, 'main') p
    WHERE m.type = 'table' AND p.pk > 0 AND m.name NOT IN
        ('ledger', 'node', 'head', 'blob', 'blob_chunk', 'attachment_pending', 'lease', 'cursor', '_evidence_migrations')
    GROUP BY m.name ORDER BY m.name";

const STORED_TABLES: &str = "SELECT name FROM stored.sqlite_schema WHERE type = 'table' ORDER BY name";

const SCHEMA: &str = "
    SELECT json_array(x.type, x.name) FROM (
        SELECT * FROM (SELECT type, name, sql FROM main.sqlite_schema
            EXCEPT SELECT type, name, sql FROM stored.sqlite_schema)
        UNION ALL SELECT * FROM (SELECT type, name, sql FROM stored.sqlite_schema
            EXCEPT SELECT type, name, sql FROM main.sqlite_schema)) x
    WHERE x.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";

const VERSIONS: &str = "
    SELECT json_array(version) FROM (
        SELECT * FROM (SELECT * FROM main._evidence_migrations EXCEPT SELECT * FROM stored._evidence_migrations)
        UNION ALL SELECT * FROM (SELECT * FROM stored._evidence_migrations EXCEPT SELECT * FROM main._evidence_migrations))";

/// Nothing where the version is done, or a newer one was begun.
const REINDEXED: &str = "
    SELECT upto FROM stored._evidence_migrations WHERE version = $1 AND NOT done
        AND NOT EXISTS (SELECT 1 FROM stored._evidence_migrations WHERE version > $1)";

const NOTE_REINDEXED: &str = "UPDATE stored._evidence_migrations SET upto = $2 WHERE version = $1";

const REINDEXED_ALL: &str =
    "UPDATE stored._evidence_migrations SET done = 1, upto = NULL WHERE version <= $1";

/// The table, if it has rows of an organization that does not exist. Most have no index by organization.
const HOMELESS_DERIVED: &str = "
    SELECT '{table}' WHERE EXISTS (
        SELECT 1 FROM stored.\"{table}\" WHERE org NOT IN (SELECT key FROM stored.organization))";

/// The same of a table with an index by organization: a step of it for each.
const HOMELESS: &str = "
    WITH RECURSIVE x (org) AS (
        SELECT min(org) FROM stored.{table}
        UNION ALL SELECT (SELECT min(t.org) FROM stored.{table} t WHERE t.org > x.org) FROM x WHERE x.org IS NOT NULL)
    SELECT '{table}' WHERE EXISTS (
        SELECT 1 FROM x WHERE x.org IS NOT NULL AND x.org NOT IN (SELECT key FROM stored.organization))";

/// Tables that are not made again from the ledgers and have rows of organizations.
const OF_ORGANIZATIONS: [&str; 6] = ["ledger", "node", "head", "blob", "blob_chunk", "attachment_pending"];

/// What the ledger says of a key is the digest of its hash, so that the tables made again agree with one that is gone.
const HASHES_MISSING: &str = "
    SELECT id FROM stored.api_key WHERE hash IS NULL";

/// The contents that records name and that are not here, the first of them and how many there are: they may be kept
/// elsewhere.
const BLOBS_MISSING: &str = "
    SELECT coalesce(o.name, 'of key ' || x.org), x.sha256, count(*) OVER ()
    FROM main.attachment x LEFT JOIN main.organization o ON o.key = x.org
    WHERE NOT EXISTS (SELECT 1 FROM stored.blob b WHERE b.org = x.org AND b.sha256 = x.sha256 AND b.size = x.size)
    ORDER BY x.org, x.sha256 LIMIT $1";

/// Organizations of a range whose ledgers are gone: what is made again has none of that name.
const LEDGERS_GONE: &str = "
    SELECT o.name FROM stored.organization o WHERE {range} AND NOT EXISTS (
        SELECT 1 FROM main.organization m WHERE m.id = o.id OR m.name = o.name)";

/// Keys of a range that no ledger of it tells of, whose hashes nothing could bring back.
const KEYS_UNKNOWN: &str = "
    SELECT k.id FROM stored.api_key k WHERE {range} AND k.hash IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM main.api_key m WHERE m.id = k.id OR m.hash = k.hash)";

/// Of the texts `$2` of the organization `$1`, those that no entry keeps.
const TEXTS_MISSING: &str = "
    SELECT json_array($1, w.value) FROM json_each($2) w WHERE NOT EXISTS (
        SELECT 1 FROM main.kept_text t WHERE t.org = $1 AND t.sha256 = w.value)";

const FIRST_BLOB: &str = "SELECT b.org, b.sha256, b.size FROM stored.blob b ORDER BY b.org, b.sha256 LIMIT 1";

const NEXT_BLOB: &str = "
    SELECT b.org, b.sha256, b.size FROM stored.blob b WHERE (b.org, b.sha256) > ($1, $2)
    ORDER BY b.org, b.sha256 LIMIT 1";

const CHUNKS: &str = "SELECT seq, data FROM stored.blob_chunk WHERE org = $1 AND sha256 = $2 ORDER BY seq";

/// A ledger of the store: the key of its organization, what to call it, and how many entries its head tells of.
pub(crate) type Ledger = (i64, String, i64);

/// An attachment: the key of its organization, its hash, and its size.
pub(crate) type Blob = (i64, String, i64);

/// The organizations whose keys come after the first, if there is one, and up to the last. A row may have any key, the
/// least one too, whatever organizations there are.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    pub(crate) after: Option<i64>,
    pub(crate) upto: i64,
    /// Those among them whose ledgers are damaged, so that nothing can be compared with them.
    pub(crate) damaged: Vec<i64>,
}

impl Range {
    pub(crate) const ALL: Self = Self { after: None, upto: i64::MAX, damaged: Vec::new() };

    pub(crate) fn after(after: Option<i64>) -> Self {
        Self { after, ..Self::ALL }
    }

    /// The condition that a row is of one of them, which this column tells.
    fn has(&self, column: &str) -> String {
        let Self { after, upto, damaged } = self;
        let after = after.map(|after| format!(" AND {column} > {after}"));
        let damaged = damaged.iter().map(|org| format!(" AND {column} <> {org}"));
        [format!("{column} <= {upto}")].into_iter().chain(after).chain(damaged).collect()
    }
}

/// A table that follows from the ledgers.
pub(crate) struct Derived {
    pub(crate) name: String,
    /// The columns of its primary key, quoted.
    key: Vec<String>,
    /// The column of the organization.
    org: &'static str,
}

impl Derived {
    fn new((name, key): (String, String)) -> StoreResult<Self> {
        let key: Vec<String> = body(&key)?;
        let key = key.iter().map(|column| format!("\"{column}\"")).collect();
        let org = if name == "organization" { "key" } else { "org" };
        Ok(Self { key, org, name })
    }

    /// The columns of its primary key, with a comma between.
    fn columns(&self) -> String {
        self.key.join(", ")
    }

    /// A subquery of the rows that only one of the two tables has.
    fn difference(&self, range: &Range) -> String {
        let Self { name, org, .. } = self;
        let of = |database: &str| format!("SELECT * FROM {database}.\"{name}\" WHERE {}", range.has(org));
        let (stored, made) = (of("stored"), of("main"));
        format!("(SELECT * FROM ({made} EXCEPT {stored}) UNION ALL SELECT * FROM ({stored} EXCEPT {made}))")
    }
}

/// A scratch database, and the store beside it as `stored`.
pub(crate) struct Scratch {
    connection: Connection,
    migrations: &'static [Migration],
    tables: Vec<Derived>,
}

impl Scratch {
    /// Makes the scratch database, a temporary file that SQLite removes, beside the store in `file`.
    pub(crate) fn beside(file: &Path, migrations: &'static [Migration]) -> StoreResult<Self> {
        let mut connection = connection(Path::new(""), OpenFlags::SQLITE_OPEN_CREATE).map_err(store_error)?;
        make(&mut connection, migrations).map_err(store_error)?;
        let mut scratch = Self { connection, migrations, tables: Vec::new() };
        scratch.execute(ATTACH, &[file.display().to_string().into()])?;
        scratch.execute("PRAGMA stored.synchronous = FULL", &[])?;
        let tables = scratch.rows::<(String, String)>(TABLES, &[])?;
        scratch.tables = tables.into_iter().map(Derived::new).collect::<StoreResult<_>>()?;
        Ok(scratch)
    }

    /// Begins to read the store as it is now.
    pub(crate) fn begin(&self) -> StoreResult<()> {
        self.execute("BEGIN", &[])
    }

    /// Begins to change the store, which nobody else does until the end.
    pub(crate) fn begin_writing(&self) -> StoreResult<()> {
        self.execute("BEGIN IMMEDIATE", &[])
    }

    pub(crate) fn commit(&self) -> StoreResult<()> {
        self.execute("COMMIT", &[])
    }

    pub(crate) fn roll_back(&self) -> StoreResult<()> {
        self.execute("ROLLBACK", &[])
    }

    /// Ends what was begun to read the store. What was made is gone where a page was found to be damaged.
    pub(crate) fn end_reading(&self) -> StoreResult<()> {
        if self.is_spoilt()? { self.roll_back() } else { self.commit() }
    }

    /// Whether a page was found to be damaged since reading began: from then on SQLite writes to no database of the
    /// connection until the transaction is rolled back.
    pub(crate) fn is_spoilt(&self) -> StoreResult<bool> {
        match self.execute("DELETE FROM main.organization WHERE false", &[]) {
            Err(StoreError::Corrupt { .. }) => Ok(true),
            written => written.map(|()| false),
        }
    }

    /// Has what was written meanwhile moved from the log to the file, so that the log begins anew: where one snapshot
    /// follows the other it otherwise never can. Where readers hold it up, it is the next time's turn.
    pub(crate) fn relieve_log(&self) -> StoreResult<()> {
        self.connection.busy_timeout(RELIEF).map_err(store_error)?;
        let relieved = self.rows::<(i64,)>("PRAGMA stored.wal_checkpoint(RESTART)", &[]);
        self.connection.busy_timeout(BUSY_TIMEOUT).map_err(store_error)?;
        relieved.map(drop)
    }

    /// Forgets what was made.
    pub(crate) fn clear(&self) -> StoreResult<()> {
        let tables = self.tables.iter().map(|table| table.name.as_str());
        tables.into_iter().try_for_each(|name| {
            self.execute(&format!("DROP TABLE IF EXISTS main.\"differs_{name}\""), &[])?;
            self.execute(&format!("DELETE FROM main.\"{name}\""), &[])
        })
    }

    /// What SQLite itself finds wrong with a table and its indexes, each as the store was at some time: of the whole file
    /// at once it would be the same, and keep everything that is written meanwhile in the log.
    pub(crate) fn integrity(&self) -> StoreResult<Vec<String>> {
        let mut problems = Vec::new();
        for table in self.column(STORED_TABLES)? {
            let lines = self.column(&format!("PRAGMA stored.integrity_check(\"{table}\")"));
            let lines = legible(&format!("table {table}"), lines, &mut problems)?;
            let lines = lines.into_iter().filter(|line| line != "ok");
            problems.extend(lines.map(|line| format!("file: table {table}: {line}")));
            self.relieve_log()?;
        }
        Ok(problems)
    }

    /// The ledgers of the organizations after this one.
    pub(crate) fn ledgers(&self, after: Option<i64>) -> StoreResult<Vec<Ledger>> {
        let mut problems = Vec::new();
        let ledgers = self.legible_ledgers(after, &mut problems)?;
        problems.pop().map_or(Ok(ledgers), |problem| Err(StoreError::corrupt(problem)))
    }

    /// The same, whether or not they have a head or an organization, as far as one of the tables tells of them that can be
    /// read.
    pub(crate) fn legible_ledgers(
        &self,
        after: Option<i64>,
        problems: &mut Vec<String>,
    ) -> StoreResult<Vec<Ledger>> {
        let of = |sql: &str, column| sql.replace("{range}", &Range::after(after).has(column));
        let begun = legible("table ledger", self.rows::<(i64,)>(&of(BEGUN, "org"), &[]), problems)?;
        let heads = legible("table head", self.rows::<(i64, i64)>(&of(HEADS, "org"), &[]), problems)?;
        let names = self.rows::<(i64, String)>(&of(NAMES, "key"), &[]);
        let names = BTreeMap::from_iter(legible("table organization", names, problems)?);
        let sizes = begun.into_iter().map(|(org,)| (org, 0)).chain(heads);
        let named = |org: i64| names.get(&org).cloned().unwrap_or_else(|| format!("of key {org}"));
        Ok(BTreeMap::from_iter(sizes).into_iter().map(|(org, size)| (org, named(org), size)).collect())
    }

    pub(crate) fn head(&self, org: i64) -> StoreResult<Option<Frontier>> {
        let head = self.rows::<(i64, String)>(HEAD, &[org.into()])?.into_iter().next();
        head.map(|(size, hex)| frontier(size, &hex)).transpose()
    }

    pub(crate) fn entries(&self, org: i64, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        let values = [org.into(), signed(first).into(), signed(limit).into(), signed(LEDGER_PAGE).into()];
        self.rows::<EntryRow>(ENTRIES, &values)?.into_iter().map(entry).collect()
    }

    /// The hashes that are stored of these nodes.
    pub(crate) fn nodes(&self, org: i64, places: &[(u32, u64)]) -> StoreResult<BTreeMap<(u32, u64), Hash>> {
        let rows = self.rows::<(u32, i64, String)>(NODES, &[org.into(), list(places)?.into()])?;
        let node = |(level, index, hash): (u32, i64, String)| Ok(((level, unsigned(index)?), word(&hash)?));
        rows.into_iter().map(node).collect()
    }

    /// How many entries lie past a ledger's head, and how many nodes there are.
    pub(crate) fn surplus(&self, org: i64, size: u64) -> StoreResult<(i64, i64)> {
        let found = self.rows::<(i64, i64)>(SURPLUS, &[org.into(), signed(size).into()])?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    /// The hashes of keys, which no ledger has, by their digests, which ledgers have.
    pub(crate) fn key_hashes(&self) -> StoreResult<BTreeMap<String, KeyHash>> {
        let hashes = self.column(KEY_HASHES)?.into_iter().map(KeyHash::stored);
        Ok(hashes.map(|hash| (hash.fingerprint(), hash)).collect())
    }

    /// Writes the rows of the next facts of a ledger, and answers the texts that they refer to and none keeps. `id` is that
    /// of the ledger's organization, which its first fact tells.
    pub(crate) fn replay(
        &self,
        org: i64,
        id: &mut Option<Id>,
        entries: &[StoredEntry],
        hashes: &BTreeMap<String, KeyHash>,
    ) -> StoreResult<Vec<String>> {
        let mut texts = BTreeSet::new();
        let (mut rows, mut names, mut intervals) = Default::default();
        let mut batch = Batch { rows: &mut rows, names: &mut names, intervals: &mut intervals };
        for entry in entries {
            let spot = EntryRef { org, index: entry.index };
            let fact: Fact = body(&entry.payload)?;
            if let Fact::OrganizationCreated { record } = &fact {
                *id = Some(record.id);
            }
            let id = id.ok_or_else(|| StoreError::corrupt("it does not begin with an organization"))?;
            batch.index(id, spot, entry.at, &fact, &secrets(&fact, hashes)).map_err(unwritten)?;
            for row in fact.index_rows(entry.at) {
                if let IndexRow::TextUse { sha256 } = row {
                    texts.insert(sha256);
                }
            }
        }
        intervals.write(&mut rows).map_err(unwritten)?;
        write_names(&names, |_| org, &mut rows).map_err(unwritten)?;
        rows.write(&self.connection, Vec::new()).map_err(store_error)?;
        let missing = self.rows::<(String,)>(TEXTS_MISSING, &[org.into(), list(&texts)?.into()])?;
        Ok(missing.into_iter().map(|(text,)| text).collect())
    }

    /// What the stored tables have other than they should, of the organizations whose ledgers were replayed.
    pub(crate) fn differences(&self, range: &Range) -> StoreResult<Vec<String>> {
        let mut problems = Vec::new();
        for table in &self.tables {
            let (name, key, difference) = (&table.name, table.columns(), table.difference(range));
            let sql = format!("SELECT DISTINCT json_array({key}) FROM {difference} LIMIT {NAMED}");
            let rows = legible(&format!("table {name}"), self.column(&sql), &mut problems)?;
            problems.extend(
                rows.iter().map(|row| format!("table {name}: row {row} is not what the ledger says")),
            );
        }
        let hashes = self.column(&format!("{HASHES_MISSING} AND {}", range.has("org")));
        let hashes = legible("table api_key", hashes, &mut problems)?;
        problems.extend(hashes.iter().map(|key| format!("the hash of an API key is missing: {key}")));
        Ok(problems)
    }

    /// How many contents that records of these organizations name are not in the store, and the first of them.
    pub(crate) fn missing_attachments(&self) -> StoreResult<(u64, Vec<String>)> {
        let missing = self.rows::<(String, String, i64)>(BLOBS_MISSING, &[NAMED.into()])?;
        let count = missing.first().map_or(Ok(0), |(.., count)| unsigned(*count))?;
        let named = missing.iter().map(|(org, sha256, _)| format!("organization {org}: {sha256}"));
        Ok((count, named.collect()))
    }

    /// What is wrong with the store as a whole.
    pub(crate) fn strays(&self) -> StoreResult<Vec<String>> {
        let mut problems = Vec::new();
        for (part, what, sql) in [
            ("the schema", "a table or index is not as it was made", SCHEMA),
            (
                "table _evidence_migrations",
                "table _evidence_migrations: not as this program writes it",
                VERSIONS,
            ),
        ] {
            let rows = legible(part, self.column(sql), &mut problems)?;
            problems.extend(rows.iter().map(|row| format!("{what}: {row}")));
        }
        let derived = self.tables.iter().filter(|table| table.org == "org");
        let derived = derived.map(|table| (table.name.as_str(), HOMELESS_DERIVED));
        for (table, sql) in derived.chain(OF_ORGANIZATIONS.map(|table| (table, HOMELESS))) {
            let homeless = self.column(&sql.replace("{table}", table));
            let homeless = legible(&format!("table {table}"), homeless, &mut problems)?;
            problems.extend(
                homeless.iter().map(|table| format!("rows of an organization that does not exist: {table}")),
            );
        }
        Ok(problems)
    }

    /// What would be lost for good if what was made again of these organizations took the place of what is stored.
    pub(crate) fn unaccounted(&self, range: &Range) -> StoreResult<Vec<String>> {
        let mut problems = Vec::new();
        for (part, what, sql, column) in [
            ("table organization", "the ledger of an organization is gone", LEDGERS_GONE, "o.key"),
            ("table api_key", "no ledger tells of an API key", KEYS_UNKNOWN, "k.org"),
        ] {
            let rows = self.column(&sql.replace("{range}", &range.has(column)));
            let rows = legible(part, rows, &mut problems)?;
            problems.extend(rows.iter().map(|row| format!("{what}: {row}")));
        }
        Ok(problems)
    }

    /// Puts what was made again of every ledger in the place of what is stored, and answers how many rows that changed.
    /// What is to go goes first from all tables, for names and numbers may have been exchanged.
    pub(crate) fn restore(&self) -> StoreResult<u64> {
        if !may_write(&self.connection, "stored", self.migrations).map_err(store_error)? {
            return Err(Outdated.into());
        }
        let marked = self.tables.iter().map(|table| self.mark(&table.name, &Range::ALL));
        let marked = marked.collect::<StoreResult<Vec<_>>>()?;
        self.tables.iter().zip(&marked).try_for_each(|(table, rows)| self.delete(table, 0, *rows))?;
        self.tables.iter().zip(&marked).try_for_each(|(table, rows)| self.insert(table, 0, *rows))?;
        Ok(marked.iter().sum())
    }

    /// Notes the keys of the rows of a table that differ, and answers how many there are.
    pub(crate) fn mark(&self, name: &str, range: &Range) -> StoreResult<u64> {
        let table = self.table(name)?;
        let (key, difference) = (table.columns(), table.difference(range));
        let marks =
            format!("CREATE TABLE main.\"differs_{name}\" AS SELECT DISTINCT {key} FROM {difference}");
        self.execute(&marks, &[])?;
        let count = self.rows::<(i64,)>(&format!("SELECT count(*) FROM main.\"differs_{name}\""), &[])?;
        count.first().map_or(Ok(0), |(count,)| unsigned(*count))
    }

    /// Puts the rows of a table in their place whose marks have numbers after the first and up to the second.
    pub(crate) fn exchange(&self, name: &str, after: u64, upto: u64) -> StoreResult<()> {
        let table = self.table(name)?;
        self.delete(table, after, upto)?;
        self.insert(table, after, upto)
    }

    // Row by row, and by a join: for a row value in a list SQLite uses the first column of the key alone.

    fn delete(&self, table: &Derived, after: u64, upto: u64) -> StoreResult<()> {
        let Derived { name, key, .. } = table;
        let columns = table.columns();
        let marked = format!(
            "SELECT {columns} FROM main.\"differs_{name}\" WHERE rowid > {after} AND rowid <= {upto}"
        );
        let is = key.iter().map(|column| format!("{column} = ?")).collect::<Vec<_>>().join(" AND ");
        let delete = || {
            let mut delete = self.connection.prepare(&format!("DELETE FROM stored.\"{name}\" WHERE {is}"))?;
            let mut marked = self.connection.prepare(&marked)?;
            let mut rows = marked.query([])?;
            while let Some(row) = rows.next()? {
                let values = (0..key.len()).map(|column| row.get::<_, Value>(column));
                delete.execute(params_from_iter(values.collect::<Result<Vec<_>, _>>()?))?;
            }
            Ok(())
        };
        delete().map_err(store_error::<rusqlite::Error>)
    }

    fn insert(&self, Derived { name, key, .. }: &Derived, after: u64, upto: u64) -> StoreResult<()> {
        let is =
            key.iter().map(|column| format!("t.{column} = d.{column}")).collect::<Vec<_>>().join(" AND ");
        self.execute(
            &format!(
                "INSERT INTO stored.\"{name}\" SELECT t.* FROM main.\"differs_{name}\" d
                CROSS JOIN main.\"{name}\" t ON {is} WHERE d.rowid > {after} AND d.rowid <= {upto}"
            ),
            &[],
        )
    }

    fn table(&self, name: &str) -> StoreResult<&Derived> {
        let table = self.tables.iter().find(|table| table.name == name);
        table.ok_or_else(|| StoreError::Failed(format!("there is no table {name}").into()))
    }

    /// Whether there is such a table that follows from the ledgers.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name == name)
    }

    /// The last organization whose tables were made again for a version, if one's were; nothing at all if all were, or a
    /// newer program does it.
    pub(crate) fn reindexed(&self, version: i64) -> StoreResult<Option<Option<i64>>> {
        let upto = self.rows::<(Option<i64>,)>(REINDEXED, &[version.into()])?;
        Ok(upto.into_iter().next().map(|(upto,)| upto))
    }

    /// Notes that the tables of these organizations were made again too.
    pub(crate) fn note_reindexed(&self, version: i64, range: &Range) -> StoreResult<()> {
        if range.upto < i64::MAX {
            return self.execute(NOTE_REINDEXED, &[version.into(), range.upto.into()]);
        }
        self.execute(REINDEXED_ALL, &[version.into()])
    }

    /// The attachment after this one, or the first, and whether it still has the content that it is named after, as the
    /// store is at one time. It is read chunk by chunk.
    pub(crate) fn next_blob(&self, last: Option<(i64, String)>) -> StoreResult<Option<(Blob, bool)>> {
        self.begin()?;
        let next = self.blob_after(last);
        self.end_reading()?;
        next
    }

    fn blob_after(&self, last: Option<(i64, String)>) -> StoreResult<Option<(Blob, bool)>> {
        let next = match last {
            None => self.rows::<Blob>(FIRST_BLOB, &[])?,
            Some((org, sha256)) => self.rows(NEXT_BLOB, &[org.into(), sha256.into()])?,
        };
        let Some(blob) = next.into_iter().next() else { return Ok(None) };
        let whole = match self.is_whole(&blob).map_err(store_error) {
            Err(StoreError::Corrupt { .. }) => false,
            whole => whole?,
        };
        Ok(Some((blob, whole)))
    }

    /// Whether numbered chunks are the content of this hash and size, as a reader finds them.
    fn is_whole(&self, (org, sha256, size): &Blob) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached(CHUNKS)?;
        let mut rows = statement.query(params![org, sha256])?;
        let (mut digest, mut length, mut number) = (Digest::default(), 0, 0_i64);
        while let Some(row) = rows.next()? {
            let data = row.get_ref(1)?.as_blob()?;
            if row.get::<_, i64>(0)? != number || data.is_empty() {
                return Ok(false);
            }
            digest.update(data);
            (number, length) = (number + 1, length + data.len() as u64);
        }
        Ok(signed(length) == *size && digest.finish() == *sha256)
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
}

/// What was found, or nothing where a part of the store cannot be read, which is a problem, named once.
pub(crate) fn legible<T: Default>(
    part: &str,
    found: StoreResult<T>,
    problems: &mut Vec<String>,
) -> StoreResult<T> {
    match found {
        Err(StoreError::Corrupt { what }) => {
            let problem = format!("{part} cannot be read: {what}");
            if !problems.contains(&problem) {
                problems.push(problem);
            }
            Ok(T::default())
        }
        found => found,
    }
}

/// The hash that a fact's key is kept with: the one whose digest the ledger has.
fn secrets(fact: &Fact, hashes: &BTreeMap<String, KeyHash>) -> Vec<(Id, KeyHash)> {
    let Fact::ApiKeyCreated { record } = fact else { return Vec::new() };
    hashes.get(&record.hash_sha256).map(|hash| (record.id, hash.clone())).into_iter().collect()
}

fn unwritten(error: serde_json::Error) -> StoreError {
    StoreError::Failed(error.into())
}
