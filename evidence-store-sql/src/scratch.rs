//! Scratch tables next to the store's tables, derived from the ledgers. `fsck`, `rebuild` and migrations use
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use evidence_core::auth::KeyHash;
use evidence_core::digest::hex;
use evidence_core::id::Id;
use evidence_core::index::IndexRow;
use evidence_core::ledger::{Frontier, Hash};
use evidence_core::store::{LEDGER_PAGE, StoreResult, StoredEntry};
use evidence_core::time::Timestamp;
use evidence_core::{Fact, StoreError};

use crate::decode::body;
use crate::group_rows::GroupRows;
use crate::ledger::{EntryRow, RECORDED_ENTRIES, entry, frontier};
use crate::row_builder::{Ordinals, RowBuilder, Series};
use crate::sql::{Dialect, SCHEMA};
use crate::value::{Cell, Column, FromRow, Row, Value, signed};

mod checks;
mod range;
mod statements;

pub(crate) use range::OrgRange;
use range::{Derived, key_with_ids};
use statements::{
    ALL_REDERIVED, BEGIN, BEGIN_CHANGING, BEGIN_WRITING, BEGUN, BUILT, HASHES_MISSING, HEAD, HEADS,
    KEY_HASHES, MIN_WRITER_VERSION, NAMES, NODES, NOTE_REBUILT, NOTE_REDERIVED, NOW, REDERIVED_THROUGH,
    REGISTER, RELEASE_SAVEPOINT, ROLLBACK_TO_SAVEPOINT, ROWS_PAST_HEAD, SAVEPOINT, SIGNED_CHECKPOINTS,
    STORED_TABLES, TABLES, TEXTS_MISSING,
};

/// The maximum number of rows of a table, and of attachments, that a report names. Operators need the first
/// of them.
pub(crate) const MAX_NAMED: u8 = 10;

/// The number of rows that SQLite deletes per batch. The keys of a batch are in memory.
const DELETED_AT_A_TIME: usize = 4096;

/// The placeholder for the schema of the scratch tables.
const SCRATCH: &str = "scratch.";

/// An exclusive connection with a second set of tables, initially empty, next to the store's tables. Dropping
/// the session rolls back uncommitted changes.
pub trait ScratchSession: Send + Sized + 'static {
    /// The SQL dialect of the database.
    const DIALECT: Dialect;

    /// Returns the schema of the store's tables, with the trailing dot.
    fn stored(&self) -> &str;

    /// Returns the schema of the scratch tables, with the trailing dot.
    fn scratch(&self) -> &str;

    /// Returns the version of the tables that this program writes.
    fn version(&self) -> i64;

    /// Returns every row of a statement.
    fn rows(&mut self, sql: &str, values: Vec<Value>) -> impl Future<Output = StoreResult<Vec<Row>>> + Send;

    /// Runs statements without values.
    fn execute(&mut self, sql: &str) -> impl Future<Output = StoreResult<()>> + Send;

    /// Inserts rows of one organization into the scratch tables. `org` is the organization's value in the
    /// column `org`.
    fn write(&mut self, org: &Cell, rows: GroupRows) -> impl Future<Output = StoreResult<()>> + Send;

    /// SQLite: returns a sentence for each write that a note beside the file records but the database lacks.
    /// PostgreSQL: returns nothing, because the server does not start without its log.
    fn losses(&mut self) -> impl Future<Output = StoreResult<Vec<String>>> + Send;

    /// SQLite: checkpoints the write-ahead log between two snapshots, so that it does not grow during a
    /// check. Waits at most 50 ms for readers. PostgreSQL: does nothing.
    fn checkpoint_wal(&mut self) -> impl Future<Output = StoreResult<()>> + Send;

    /// Ends the session.
    fn end(self) -> impl Future<Output = StoreResult<()>> + Send;
}

/// A ledger of the store: its organization, the name for reports, and the number of entries by its head.
pub(crate) type Ledger = (Cell, String, i64);

/// An attachment: its organization, its hash, and its size in bytes.
pub(crate) type Blob = (Cell, String, i64);

/// The progress of deriving the rows of a ledger.
#[derive(Debug, Default)]
pub(crate) struct Derivation {
    /// The id of the organization, from the ledger's first fact.
    id: Option<Id>,
    ordinals: Ordinals,
}

/// The scratch tables and the store's tables of a session.
pub(crate) struct Scratch<S> {
    session: S,
    tables: Vec<Derived>,
}

impl<S: ScratchSession> Scratch<S> {
    /// Takes over a session whose scratch tables are empty, and reads the list of derived tables.
    pub(crate) async fn new(session: S) -> StoreResult<Self> {
        let mut scratch = Self { session, tables: Vec::new() };
        for (name, key) in scratch.rows::<(String, String)>(TABLES.text(S::DIALECT), vec![]).await? {
            let key: Vec<String> = body(&key)?;
            let key = key.iter().map(|column| format!("\"{column}\"")).collect();
            let org = if name == "organization" { "key" } else { "org" };
            scratch.tables.push(Derived { name, key, org });
        }
        Ok(scratch)
    }

    /// The column with row numbers, in tables that are read by ranges of rows.
    const NUMBER: &'static str = match S::DIALECT {
        Dialect::Sqlite => "rowid",
        Dialect::Postgres => "row_number",
    };

    fn text(&self, sql: &str) -> String {
        sql.replace(SCHEMA, self.session.stored()).replace(SCRATCH, self.session.scratch())
    }

    async fn rows<R: FromRow>(&mut self, sql: &str, values: Vec<Value>) -> StoreResult<Vec<R>> {
        let sql = self.text(sql);
        self.session.rows(&sql, values).await?.into_iter().map(R::from_row).collect()
    }

    async fn column(&mut self, sql: &str, values: Vec<Value>) -> StoreResult<Vec<String>> {
        Ok(self.rows::<(String,)>(sql, values).await?.into_iter().map(|(value,)| value).collect())
    }

    async fn execute(&mut self, sql: &str) -> StoreResult<()> {
        if sql.is_empty() {
            return Ok(());
        }
        let sql = self.text(sql);
        self.session.execute(&sql).await
    }

    /// Begins a transaction that reads one snapshot of the store.
    pub(crate) async fn begin(&mut self) -> StoreResult<()> {
        self.execute(BEGIN.text(S::DIALECT)).await
    }

    /// Begins a transaction that changes the store and blocks other writers.
    pub(crate) async fn begin_writing(&mut self) -> StoreResult<()> {
        self.execute(BEGIN_WRITING.text(S::DIALECT)).await
    }

    /// Begins a transaction that changes data that only a migration writes.
    pub(crate) async fn begin_changing(&mut self) -> StoreResult<()> {
        self.execute(BEGIN_CHANGING.text(S::DIALECT)).await
    }

    pub(crate) async fn commit(&mut self) -> StoreResult<()> {
        self.execute("COMMIT").await
    }

    pub(crate) async fn roll_back(&mut self) -> StoreResult<()> {
        self.execute("ROLLBACK").await
    }

    /// Ends a read transaction. If SQLite read a damaged page, the transaction is rolled back and the scratch
    /// tables are empty again.
    pub(crate) async fn end_reading(&mut self) -> StoreResult<()> {
        if self.hit_damaged_page().await? { self.roll_back().await } else { self.commit().await }
    }

    /// Returns whether a damaged page was read in this transaction. After such a read, SQLite refuses to
    /// write to any database of the connection until a rollback.
    pub(crate) async fn hit_damaged_page(&mut self) -> StoreResult<bool> {
        if S::DIALECT == Dialect::Postgres {
            return Ok(false);
        }
        match self.execute("DELETE FROM scratch.organization WHERE false").await {
            Err(StoreError::Corrupt { .. }) => Ok(true),
            written => written.map(|()| false),
        }
    }

    pub(crate) async fn checkpoint_wal(&mut self) -> StoreResult<()> {
        self.session.checkpoint_wal().await
    }

    /// Ends the session and rolls back uncommitted changes.
    pub(crate) async fn end(self) -> StoreResult<()> {
        self.session.end().await
    }

    /// Empties the scratch tables.
    pub(crate) async fn clear(&mut self) -> StoreResult<()> {
        let of = |prefix: &str| -> Vec<_> {
            self.tables.iter().map(|table| format!("{SCRATCH}\"{prefix}{}\"", table.name)).collect()
        };
        let dropped = of("differs_").into_iter().map(|table| format!("DROP TABLE IF EXISTS {table};"));
        let emptied: String = match S::DIALECT {
            Dialect::Sqlite => of("").into_iter().map(|table| format!("DELETE FROM {table};")).collect(),
            Dialect::Postgres => format!("TRUNCATE {}", of("").join(", ")),
        };
        let clear = dropped.collect::<String>() + &emptied;
        self.execute(&clear).await
    }

    /// Sets a savepoint before statements that may hit damage. Without it, PostgreSQL aborts the whole
    /// transaction on an error.
    pub(crate) async fn savepoint(&mut self) -> StoreResult<()> {
        self.execute(SAVEPOINT.text(S::DIALECT)).await
    }

    /// Undoes the statements since the savepoint.
    pub(crate) async fn rollback_to_savepoint(&mut self) -> StoreResult<()> {
        self.execute(ROLLBACK_TO_SAVEPOINT.text(S::DIALECT)).await
    }

    /// Returns the result since the savepoint. If a part of the store cannot be read, returns the default and
    /// adds the damage to `problems`, once.
    pub(crate) async fn or_report_damage<T: Default>(
        &mut self,
        part: &str,
        found: StoreResult<T>,
        problems: &mut Vec<String>,
    ) -> StoreResult<T> {
        let found = match found {
            Err(StoreError::Corrupt { what }) => {
                self.rollback_to_savepoint().await?;
                let problem = format!("{part} cannot be read: {what}");
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
                T::default()
            }
            found => found?,
        };
        self.execute(RELEASE_SAVEPOINT.text(S::DIALECT)).await?;
        Ok(found)
    }

    async fn readable_rows<R: FromRow>(
        &mut self,
        part: &str,
        sql: &str,
        problems: &mut Vec<String>,
    ) -> StoreResult<Vec<R>> {
        self.savepoint().await?;
        let rows = self.rows(sql, vec![]).await;
        self.or_report_damage(part, rows, problems).await
    }

    async fn readable_column(
        &mut self,
        part: &str,
        sql: &str,
        problems: &mut Vec<String>,
    ) -> StoreResult<Vec<String>> {
        let rows = self.readable_rows::<(String,)>(part, sql, problems).await?;
        Ok(rows.into_iter().map(|(value,)| value).collect())
    }

    /// Returns the problems that SQLite's integrity check finds in each table and its indexes. Each table is
    /// checked in its own snapshot: a check of the whole file would keep everything that is written meanwhile
    /// in the write-ahead log.
    pub(crate) async fn integrity(&mut self) -> StoreResult<Vec<String>> {
        let mut problems = Vec::new();
        if S::DIALECT == Dialect::Postgres {
            return Ok(problems);
        }
        for table in self.readable_column("the schema", STORED_TABLES, &mut problems).await? {
            let check = format!("PRAGMA evidence.integrity_check(\"{table}\")");
            let lines = self.readable_column(&format!("table {table}"), &check, &mut problems).await?;
            let lines = lines.into_iter().filter(|line| line != "ok");
            problems.extend(lines.map(|line| format!("file: table {table}: {line}")));
            self.checkpoint_wal().await?;
        }
        Ok(problems)
    }

    /// Returns a sentence for each lost write.
    pub(crate) async fn losses(&mut self) -> StoreResult<Vec<String>> {
        match self.session.losses().await {
            Err(StoreError::Corrupt { what }) => {
                Ok(vec![format!("the size of a ledger cannot be read: {what}")])
            }
            losses => losses,
        }
    }

    /// Returns the current time. In PostgreSQL this is the clock of the database, which all servers share.
    pub(crate) async fn now(&mut self) -> StoreResult<Timestamp> {
        let now = self.rows::<(Timestamp,)>(NOW.text(S::DIALECT), vec![]).await?;
        now.into_iter()
            .next()
            .map(|(now,)| now)
            .ok_or_else(|| StoreError::Failed("the database has no time".into()))
    }

    /// Returns the ledgers of the organizations after `after`, in a transaction of its own. Damage is an
    /// error.
    pub(crate) async fn ledgers(&mut self, after: Option<Cell>) -> StoreResult<Vec<Ledger>> {
        let mut problems = Vec::new();
        self.begin().await?;
        let ledgers = self.readable_ledgers(after, &mut problems).await?;
        self.end_reading().await?;
        problems.pop().map_or(Ok(ledgers), |problem| Err(StoreError::corrupt(problem)))
    }

    /// Returns the ledgers of the organizations after `after` that have readable entries or heads. A ledger
    /// may lack its head or its organization. Unreadable tables are added to `problems`.
    pub(crate) async fn readable_ledgers(
        &mut self,
        after: Option<Cell>,
        problems: &mut Vec<String>,
    ) -> StoreResult<Vec<Ledger>> {
        let range = OrgRange::after(after);
        let of = |sql: &str, column| sql.replace("{range}", &range.has(column, S::DIALECT));
        let begun = self.readable_rows::<(Cell,)>("table ledger", &of(BEGUN, "org"), problems).await?;
        let heads = self.readable_rows::<(Cell, i64)>("table head", &of(HEADS, "org"), problems).await?;
        let names =
            self.readable_rows::<(Cell, String)>("table organization", &of(NAMES, "key"), problems).await?;
        let names = BTreeMap::from_iter(names);
        let sizes = BTreeMap::from_iter(begun.into_iter().map(|(org,)| (org, 0)).chain(heads));
        let named = |org: &Cell| match (names.get(org), org) {
            (Some(name), _) => name.clone(),
            (None, Cell::Int(key)) => format!("of key {key}"),
            (None, Cell::Bytes(key)) => match key.as_slice().try_into() {
                Ok(id) => Id::from_bytes(id).to_string(),
                Err(_) => format!("of key {}", hex(key)),
            },
            (None, _) => "without a name".to_owned(),
        };
        Ok(sizes.into_iter().map(|(org, size)| (org.clone(), named(&org), size)).collect())
    }

    pub(crate) async fn head(&mut self, org: &Cell) -> StoreResult<Option<Frontier>> {
        let head = self.rows::<(i64, Vec<u8>)>(HEAD, vec![org.clone().into()]).await?.into_iter().next();
        head.map(|(size, hashes)| frontier(size, &hashes)).transpose()
    }

    /// Returns the last signed checkpoint of each organization.
    pub(crate) async fn signed_checkpoints(&mut self) -> StoreResult<BTreeMap<Cell, String>> {
        Ok(self.rows::<(Cell, String)>(SIGNED_CHECKPOINTS, vec![]).await?.into_iter().collect())
    }

    /// Returns entries of a ledger with their recorded times, without clock corrections.
    pub(crate) async fn entries(
        &mut self,
        org: &Cell,
        first: u64,
        limit: u64,
    ) -> StoreResult<Vec<StoredEntry>> {
        let values = vec![org.clone().into(), first.into(), limit.into(), LEDGER_PAGE.into()];
        let rows = self.rows::<EntryRow>(RECORDED_ENTRIES.text(S::DIALECT), values).await?;
        rows.into_iter().map(entry).collect()
    }

    /// Returns the stored hashes of these nodes, by level and index.
    pub(crate) async fn nodes(
        &mut self,
        org: &Cell,
        nodes: impl Iterator<Item = (u32, u64)>,
    ) -> StoreResult<BTreeMap<(u32, u64), Hash>> {
        let (levels, indexes): (Vec<_>, Vec<_>) =
            nodes.map(|(level, index)| (Some(i64::from(level)), Some(signed(index)))).unzip();
        let nodes = Value::Columns(vec![Column::Ints(levels), Column::Ints(indexes)]);
        let values = vec![org.clone().into(), nodes];
        let rows = self.rows::<(u32, u64, Hash)>(NODES.text(S::DIALECT), values).await?;
        Ok(rows.into_iter().map(|(level, index, hash)| ((level, index), hash)).collect())
    }

    /// Returns the number of entries past a ledger's head, and the number of its nodes.
    pub(crate) async fn rows_past_head(&mut self, org: &Cell, size: u64) -> StoreResult<(u64, u64)> {
        let found = self.rows(ROWS_PAST_HEAD, vec![org.clone().into(), size.into()]).await?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    /// Returns the stored hashes of API keys by their digests. Ledgers contain only the digests.
    pub(crate) async fn key_hashes(&mut self) -> StoreResult<BTreeMap<String, KeyHash>> {
        let hashes = self.column(KEY_HASHES, vec![]).await?.into_iter().map(KeyHash::stored);
        Ok(hashes.map(|hash| (hash.fingerprint(), hash)).collect())
    }

    /// Writes the rows of the next facts of a ledger. Returns the texts that these facts refer to and that no
    /// entry contains.
    pub(crate) async fn derive(
        &mut self,
        org: &Cell,
        derivation: &mut Derivation,
        entries: &[StoredEntry],
        hashes: &BTreeMap<String, KeyHash>,
    ) -> StoreResult<Vec<String>> {
        let (mut texts, mut rows) = (BTreeSet::new(), RowBuilder::default());
        let read = |entry: &StoredEntry| Fact::read(&entry.payload).map_err(StoreError::corrupt);
        let facts = entries.iter().map(read).collect::<StoreResult<Vec<_>>>()?;
        let built = self.built(org, &facts).await?;
        for (entry, fact) in entries.iter().zip(facts) {
            if let Fact::OrganizationCreated { record } = &fact {
                derivation.id = Some(record.id);
            }
            let id =
                derivation.id.ok_or_else(|| StoreError::corrupt("it does not begin with an organization"))?;
            if matches!(org, Cell::Bytes(org) if *org != id.as_bytes()) {
                return Err(StoreError::corrupt("it begins with another organization"));
            }
            for content in Series::of(&fact) {
                if matches!(&content, Series::Content(fingerprint) if built.contains(fingerprint.as_str())) {
                    derivation.ordinals.set_greatest_of(id, content, 1);
                }
            }
            let key_hashes = key_hashes_of(&fact, hashes);
            rows.index((id, entry.index), entry.at, &fact, &key_hashes, &mut derivation.ordinals)
                .map_err(unwritten)?;
            for row in fact.index_rows(entry.at) {
                if let IndexRow::TextUse { sha256 } = row {
                    texts.insert(sha256.to_string());
                }
            }
        }
        derivation.ordinals.forget_contents();
        self.session.write(org, rows.into_rows().map_err(unwritten)?).await?;
        let texts = Value::Texts(texts.into_iter().map(Some).collect());
        self.column(TEXTS_MISSING.text(S::DIALECT), vec![org.clone().into(), texts]).await
    }

    /// Returns the fingerprints in these facts that earlier facts already reported.
    async fn built(&mut self, org: &Cell, facts: &[Fact]) -> StoreResult<BTreeSet<String>> {
        let reported = facts.iter().filter_map(|fact| match fact {
            Fact::ArtifactReported { record } => Some(record.fingerprint.to_string()),
            _ => None,
        });
        let reported: BTreeSet<_> = reported.collect();
        if reported.is_empty() {
            return Ok(reported);
        }
        let reported = Value::Texts(reported.into_iter().map(Some).collect());
        let built = self.column(BUILT.text(S::DIALECT), vec![org.clone().into(), reported]).await?;
        Ok(built.into_iter().collect())
    }

    /// Returns the differences between the stored tables and the derived rows, for a range of organizations.
    pub(crate) async fn differences(&mut self, range: &OrgRange) -> StoreResult<Vec<String>> {
        let mut problems = Vec::new();
        for table in self.tables.clone() {
            let (name, key, difference) = (&table.name, table.columns(), table.difference(range, S::DIALECT));
            let row = match S::DIALECT {
                Dialect::Sqlite => format!("json_array({key})"),
                Dialect::Postgres => format!("json_build_array({key})::text"),
            };
            let rows = format!("SELECT DISTINCT {row} FROM {difference} LIMIT {MAX_NAMED}");
            let rows = self.readable_column(&format!("table {name}"), &rows, &mut problems).await?;
            let named = rows.into_iter().map(key_with_ids);
            problems.extend(named.map(|row| format!("table {name}: row {row} is not what the ledger says")));
        }
        let missing = HASHES_MISSING.replace("{range}", &range.has("org", S::DIALECT));
        let hashes = self.readable_column("table api_key", &missing, &mut problems).await?;
        problems.extend(hashes.iter().map(|key| format!("the hash of an API key is missing: {key}")));
        Ok(problems)
    }

    /// Replaces the stored rows with the rows derived from every ledger. Returns the number of changed rows,
    /// or `None` if a newer program must do it. First deletes the differing rows of all tables, then inserts,
    /// because names and numbers may have been exchanged between rows.
    pub(crate) async fn swap_in_all(&mut self) -> StoreResult<Option<u64>> {
        let min_writer = self.rows::<(i64,)>(MIN_WRITER_VERSION, vec![]).await?;
        if min_writer.first().is_some_and(|(version,)| *version > self.session.version()) {
            return Ok(None);
        }
        let (tables, mut marked) = (self.tables.clone(), Vec::new());
        for table in &tables {
            marked.push(self.record_differing_keys(&table.name, &OrgRange::default()).await?);
        }
        for (table, rows) in tables.iter().zip(&marked) {
            self.delete(table, 0, *rows).await?;
        }
        for (table, rows) in tables.iter().zip(&marked) {
            self.insert(table, 0, *rows).await?;
        }
        self.execute(REGISTER).await?;
        self.execute(NOTE_REBUILT.text(S::DIALECT)).await?;
        Ok(Some(marked.iter().sum()))
    }

    /// Records the keys of a table's rows that differ, and returns their number.
    pub(crate) async fn record_differing_keys(&mut self, name: &str, range: &OrgRange) -> StoreResult<u64> {
        let table = self.table(name)?;
        let differ =
            format!("SELECT DISTINCT {} FROM {}", table.columns(), table.difference(range, S::DIALECT));
        let marks = match S::DIALECT {
            Dialect::Sqlite => format!("CREATE TABLE scratch.\"differs_{name}\" AS {differ}"),
            Dialect::Postgres => format!(
                "CREATE TEMP TABLE \"differs_{name}\" AS
                SELECT *, row_number() OVER () AS row_number FROM ({differ}) d"
            ),
        };
        self.execute(&marks).await?;
        let count =
            self.rows::<(u64,)>(&format!("SELECT count(*) FROM scratch.\"differs_{name}\""), vec![]).await?;
        Ok(count.first().map_or(0, |(count,)| *count))
    }

    /// Replaces the rows of a table whose recorded keys have numbers greater than `after` and at most `upto`.
    pub(crate) async fn swap_in(&mut self, name: &str, after: u64, upto: u64) -> StoreResult<()> {
        let table = self.table(name)?;
        self.delete(&table, after, upto).await?;
        self.insert(&table, after, upto).await
    }

    async fn delete(&mut self, table: &Derived, after: u64, upto: u64) -> StoreResult<()> {
        let (name, columns, number) = (&table.name, table.columns(), Self::NUMBER);
        let marked = |after: u64, upto: u64| {
            format!(
                "SELECT {columns} FROM scratch.\"differs_{name}\" WHERE {number} > {after} AND {number} <= {upto}"
            )
        };
        if S::DIALECT == Dialect::Postgres {
            return self
                .execute(&format!(
                    "DELETE FROM evidence.\"{name}\" WHERE ({columns}) IN ({})",
                    marked(after, upto)
                ))
                .await;
        }
        // Deletes row by row: for a row value in an `IN` list, SQLite uses only the first column of the key.
        let is = table.key.iter().zip(1..).map(|(column, number)| format!("{column} = ${number}"));
        let delete =
            format!("DELETE FROM evidence.\"{name}\" WHERE {}", is.collect::<Vec<_>>().join(" AND "));
        for first in (after..upto).step_by(DELETED_AT_A_TIME) {
            let last = upto.min(first.saturating_add(DELETED_AT_A_TIME as u64));
            for row in self.rows::<Row>(&marked(first, last), vec![]).await? {
                self.rows::<Row>(&delete, row.into_iter().map(Value::from).collect()).await?;
            }
        }
        Ok(())
    }

    async fn insert(
        &mut self,
        Derived { name, key, .. }: &Derived,
        after: u64,
        upto: u64,
    ) -> StoreResult<()> {
        let number = Self::NUMBER;
        let is =
            key.iter().map(|column| format!("t.{column} = d.{column}")).collect::<Vec<_>>().join(" AND ");
        // In SQLite, `CROSS JOIN` fixes the order of the tables.
        let join = match S::DIALECT {
            Dialect::Sqlite => "CROSS JOIN",
            Dialect::Postgres => "JOIN",
        };
        let insert = format!(
            "INSERT INTO evidence.\"{name}\" SELECT t.* FROM scratch.\"differs_{name}\" d
            {join} scratch.\"{name}\" t ON {is} WHERE d.{number} > {after} AND d.{number} <= {upto}"
        );
        self.execute(&insert).await
    }

    fn table(&self, name: &str) -> StoreResult<Derived> {
        let table = self.tables.iter().find(|table| table.name == name);
        table.cloned().ok_or_else(|| StoreError::Failed(format!("there is no table {name}").into()))
    }

    /// Returns whether a table of this name is derived from the ledgers.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.name == name)
    }

    /// Returns how far the tables were rederived for a version.
    pub(crate) async fn rederivation_progress(&mut self, version: i64) -> StoreResult<RederivationProgress> {
        let upto =
            self.rows::<(Option<Cell>,)>(REDERIVED_THROUGH.text(S::DIALECT), vec![version.into()]).await?;
        Ok(upto
            .into_iter()
            .next()
            .map_or(RederivationProgress::Done, |(upto,)| RederivationProgress::Through(upto)))
    }

    /// Records that the tables of these organizations were rederived too.
    pub(crate) async fn note_rederived(&mut self, version: i64, range: &OrgRange) -> StoreResult<()> {
        let (sql, values) = match range.upto.clone() {
            Some(upto) => (NOTE_REDERIVED, vec![version.into(), upto.into()]),
            None => (ALL_REDERIVED, vec![version.into()]),
        };
        self.rows::<Row>(sql, values).await.map(drop)
    }
}

/// How far the tables were rederived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RederivationProgress {
    /// The organizations up to this one were rederived; `None` if none was.
    Through(Option<Cell>),
    /// All organizations were rederived, or a newer program does it.
    Done,
}

/// Returns the stored hash of the key that a fact creates: the hash whose digest is in the ledger.
fn key_hashes_of(fact: &Fact, hashes: &BTreeMap<String, KeyHash>) -> Vec<(Id, KeyHash)> {
    let Fact::ApiKeyCreated { record } = fact else { return Vec::new() };
    hashes.get(&record.hash_sha256).map(|hash| (record.id, hash.clone())).into_iter().collect()
}

fn unwritten(error: serde_json::Error) -> StoreError {
    StoreError::Failed(error.into())
}
