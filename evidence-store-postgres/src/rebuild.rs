//! Every table besides the ledgers made again from the facts, by the statements that wrote it; then compared with what is
//! stored, or put in its place. The tables are made again as temporary ones, whose schema is the session's own.

use std::collections::{BTreeMap, BTreeSet};

use evidence_core::auth::KeyHash;
use evidence_core::digest::Digest;
use evidence_core::id::Id;
use evidence_core::index::IndexRow;
use evidence_core::ledger::{Frontier, Hash};
use evidence_core::store::{LEDGER_PAGE, StoreResult, StoredEntry};
use evidence_core::{Fact, StoreError};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::QueryAs;
use sqlx::{AssertSqlSafe, Connection, FromRow, PgConnection, Postgres};

use crate::connections::{Address, Session};
use crate::error::{Outdated, store_error};
use crate::ledger::{ENTRIES, EntryRow, NodeRow, frontier, node_columns};
use crate::migrate::{Migration, WRITER, latest, make};
use crate::record::{Batch, rows_alone, write_names};
use crate::rows::{EntryRef, body, id, signed, unsigned, word};
use crate::schema::Schema;

/// How many rows of a table are named, and how many attachments; the first of them is what an operator needs.
pub(crate) const NAMED: u8 = 10;

/// How many chunks of an attachment are read at a time.
const CHUNKS_AT_A_TIME: i64 = 16;

/// One snapshot for all statements.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";

/// Nobody writes until the end: the statement that writes a group locks rows of this table and waits for its lock first,
/// before it takes its snapshot. Whoever reads does not wait. A program that is stopped meanwhile loses the lock.
const BEGIN_WRITING: &str = "
    BEGIN; SET LOCAL lock_timeout = '30s'; LOCK TABLE evidence.head IN EXCLUSIVE MODE; SET LOCAL lock_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = '60s'";

const KEY_HASHES: &str = "SELECT hash FROM evidence.api_key WHERE hash IS NOT NULL";

/// How far an error undoes the transaction, which it would otherwise end.
const ATTEMPT: &str = "SAVEPOINT attempt";

const UNDO: &str = "ROLLBACK TO SAVEPOINT attempt";

const KEEP: &str = "RELEASE SAVEPOINT attempt";

/// The ledgers of a range that were begun: a step of the index for each.
const BEGUN: &str = "
    WITH RECURSIVE begun (org) AS (
        (SELECT l.org FROM evidence.ledger l WHERE {range} ORDER BY l.org LIMIT 1)
        UNION ALL
        SELECT (SELECT l.org FROM evidence.ledger l WHERE l.org > b.org ORDER BY l.org LIMIT 1)
        FROM begun b WHERE b.org IS NOT NULL)
    SELECT org FROM begun WHERE org IS NOT NULL";

const HEADS: &str = "SELECT org, size FROM evidence.head WHERE {range}";

const NAMES: &str = "SELECT id, name FROM evidence.organization WHERE {range}";

const HEAD: &str = "SELECT size, frontier FROM evidence.head WHERE org = $1";

const NODES: &str = "
    SELECT n.level, n.idx, n.hash FROM UNNEST($2::integer[], $3::bigint[]) AS r (level, idx)
    CROSS JOIN LATERAL (
        SELECT * FROM evidence.node WHERE org = $1 AND level = r.level AND idx = r.idx OFFSET 0) n";

const SURPLUS: &str = "
    SELECT (SELECT count(*) FROM evidence.ledger l WHERE l.org = $1 AND l.idx >= $2),
        (SELECT count(*) FROM evidence.node n WHERE n.org = $1)";

/// The tables that follow from the ledgers, and the columns of their primary keys.
const TABLES: &str = "
    SELECT c.relname::text, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
    WHERE i.indisprimary AND c.relnamespace = pg_my_temp_schema() AND c.relname NOT IN
        ('ledger', 'node', 'head', 'blob', 'blob_chunk', 'attachment_pending', 'lease', 'cursor', '_evidence_migrations')
    GROUP BY c.relname ORDER BY c.relname";

/// Tables, columns, constraints, indexes, rules and triggers that only one of two schemas has: the one named `$1`, and the
/// temporary one. What a crash empties, or hides rows from users, is another table.
const SCHEMA: &str = "
    WITH thing AS (
        SELECT c.relnamespace AS place,
            c.relname || CASE c.relkind WHEN 'r' THEN '' ELSE ' of kind ' || c.relkind::text END
                || CASE c.relpersistence WHEN 'u' THEN ' unlogged' ELSE '' END
                || CASE WHEN c.relrowsecurity OR c.relforcerowsecurity THEN ' with row-level security' ELSE '' END AS what
        FROM pg_class c WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
        UNION ALL
        SELECT c.relnamespace,
            c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' '
                || a.attnotnull || ' ' || a.attcollation || ' ' || a.attidentity::text || a.attgenerated::text
                || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relkind = 'r'
        UNION ALL
        SELECT c.relnamespace, c.relname || ' on ' || t.relname || ' ' || i.indisunique || ' ' || i.indisvalid || ' '
            || i.indkey::text || substring(pg_get_indexdef(i.indexrelid) FROM ' USING .*')
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
        UNION ALL
        SELECT c.relnamespace, c.relname || ' constraint ' || k.conname || ' ' || pg_get_constraintdef(k.oid)
        FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid WHERE k.contype <> 'n'
        UNION ALL
        SELECT c.relnamespace, c.relname || ' rule ' || r.rulename
        FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
        UNION ALL
        SELECT c.relnamespace, c.relname || ' trigger ' || t.tgname
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal)
    SELECT x.what FROM (
        SELECT what, array_agg(DISTINCT place) AS places FROM thing
        WHERE place IN (to_regnamespace(quote_ident($1)), pg_my_temp_schema())
        GROUP BY what) x
    WHERE cardinality(x.places) < 2";

const VERSIONS: &str = "
    SELECT version::text FROM (
        (SELECT version, writer, steps, upto, done FROM pg_temp._evidence_migrations
            EXCEPT SELECT version, writer, steps, upto, done FROM evidence._evidence_migrations)
        UNION ALL
        (SELECT version, writer, steps, upto, done FROM evidence._evidence_migrations
            EXCEPT SELECT version, writer, steps, upto, done FROM pg_temp._evidence_migrations)) x";

/// Tells the stores that looked at the tables before to look again.
const NOTE_REBUILT: &str = "UPDATE evidence._evidence_migrations SET rebuilt = rebuilt + 1";

/// Nothing where the version is done, or a newer one was begun. It stays so until the end of the transaction.
const REINDEXED: &str = "
    SELECT m.upto FROM evidence._evidence_migrations m WHERE m.version = $1 AND NOT m.done
        AND NOT EXISTS (SELECT FROM evidence._evidence_migrations n WHERE n.version > $1) FOR UPDATE OF m";

const NOTE_REINDEXED: &str = "UPDATE evidence._evidence_migrations SET upto = $2 WHERE version = $1";

const REINDEXED_ALL: &str =
    "UPDATE evidence._evidence_migrations SET done = true, upto = NULL WHERE version <= $1";

/// The table, if it has rows of an organization that does not exist. No index of this one begins with the organization.
const HOMELESS_USERS: &str = "
    SELECT 'user' WHERE EXISTS (
        SELECT FROM evidence.user WHERE org NOT IN (SELECT id FROM evidence.organization))";

/// The same of a table that has such an index: a step of it for each organization.
const HOMELESS: &str = "
    WITH RECURSIVE x (org) AS (
        (SELECT t.org FROM evidence.\"{table}\" t ORDER BY t.org LIMIT 1)
        UNION ALL
        SELECT (SELECT t.org FROM evidence.\"{table}\" t WHERE t.org > x.org ORDER BY t.org LIMIT 1)
        FROM x WHERE x.org IS NOT NULL)
    SELECT '{table}' WHERE EXISTS (
        SELECT FROM x WHERE x.org IS NOT NULL AND x.org NOT IN (SELECT id FROM evidence.organization))";

/// Tables that are not made again from the ledgers and have rows of organizations.
const OF_ORGANIZATIONS: [&str; 6] = ["ledger", "node", "head", "blob", "blob_chunk", "attachment_pending"];

/// What the ledger says of a key is the digest of its hash, so that the tables made again agree with one that is gone.
const HASHES_MISSING: &str = "SELECT id FROM evidence.api_key WHERE hash IS NULL";

/// The contents that records name and that are not here, the first of them and how many there are: they may be kept
/// elsewhere.
const BLOBS_MISSING: &str = "
    SELECT coalesce(o.name, x.org), x.sha256, count(*) OVER ()
    FROM pg_temp.attachment x LEFT JOIN pg_temp.organization o ON o.id = x.org
    WHERE (SELECT b.size FROM evidence.blob b WHERE b.org = x.org AND b.sha256 = x.sha256) IS DISTINCT FROM x.size
    ORDER BY x.org, x.sha256 LIMIT $1";

/// Organizations of a range whose ledgers are gone: what is made again has none of that name.
const LEDGERS_GONE: &str = "
    SELECT o.name FROM evidence.organization o WHERE {range} AND NOT EXISTS (
        SELECT 1 FROM pg_temp.organization m WHERE m.id = o.id OR m.name = o.name)";

/// Keys of a range that no ledger of it tells of, whose hashes nothing could bring back.
const KEYS_UNKNOWN: &str = "
    SELECT k.id FROM evidence.api_key k WHERE {range} AND k.hash IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM pg_temp.api_key m WHERE m.id = k.id OR m.hash = k.hash)";

/// Of the texts `$2` of the organization `$1`, those that no entry keeps.
const TEXTS_MISSING: &str = "
    SELECT $1 || ' ' || w.sha256 FROM UNNEST($2::text[]) AS w (sha256) WHERE NOT EXISTS (
        SELECT 1 FROM evidence.kept_text t WHERE t.org = $1 AND t.sha256 = w.sha256)";

const FIRST_BLOB: &str =
    "SELECT b.org, b.sha256, b.size FROM evidence.blob b ORDER BY b.org, b.sha256 LIMIT 1";

const NEXT_BLOB: &str = "
    SELECT b.org, b.sha256, b.size FROM evidence.blob b WHERE (b.org, b.sha256) > ($1, $2)
    ORDER BY b.org, b.sha256 LIMIT 1";

const CHUNKS: &str = "
    SELECT seq, data FROM evidence.blob_chunk WHERE org = $1 AND sha256 = $2 AND seq >= $3 ORDER BY seq LIMIT $4";

/// A ledger of the store: its organization, what to call it, and how many entries its head tells of.
pub(crate) type Ledger = (String, String, i64);

/// An attachment: its organization, its hash, and its size.
pub(crate) type Blob = (String, String, i64);

/// The organizations whose ids come after the first and up to the last. A row may have any id, the empty one too, whatever
/// organizations there are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Range {
    /// Nothing: from the least on.
    pub(crate) after: Option<String>,
    /// Nothing: all that come after.
    pub(crate) upto: Option<String>,
    /// Those among them whose ledgers are damaged, so that nothing can be compared with them.
    pub(crate) damaged: Vec<String>,
}

impl Range {
    /// The condition that a row is of one of them, which this column tells.
    fn has(&self, column: &str) -> String {
        let quoted = |id: &str| format!("'{}'", id.replace('\'', "''"));
        let after = self.after.as_ref().map(|after| format!(" AND {column} > {}", quoted(after)));
        let upto = self.upto.as_ref().map(|upto| format!(" AND {column} <= {}", quoted(upto)));
        let damaged = self.damaged.iter().map(|id| format!(" AND {column} <> {}", quoted(id)));
        ["true".to_owned()].into_iter().chain(after).chain(upto).chain(damaged).collect()
    }
}

/// A table that follows from the ledgers.
#[derive(Debug, Clone)]
pub(crate) struct Derived {
    pub(crate) name: String,
    /// The columns of its primary key, quoted, with a comma between.
    key: String,
    /// The column of the organization.
    org: &'static str,
}

impl Derived {
    fn new((name, key): (String, String)) -> Self {
        let org = if name == "organization" { "id" } else { "org" };
        Self { name, key, org }
    }

    /// The condition that a row is one of those whose marks have these numbers.
    fn marked(&self, after: u64, upto: u64) -> String {
        let Self { name, key, .. } = self;
        format!(
            "({key}) IN (SELECT {key} FROM pg_temp.\"differs_{name}\" WHERE marked > {after} AND marked <= {upto})"
        )
    }

    fn delete(&self, after: u64, upto: u64) -> String {
        format!("DELETE FROM evidence.\"{}\" WHERE {}", self.name, self.marked(after, upto))
    }

    fn insert(&self, after: u64, upto: u64) -> String {
        let (name, marked) = (&self.name, self.marked(after, upto));
        format!("INSERT INTO evidence.\"{name}\" SELECT * FROM pg_temp.\"{name}\" WHERE {marked}")
    }

    /// A subquery of the rows that only one of the two tables has.
    fn difference(&self, range: &Range) -> String {
        let Self { name, org, .. } = self;
        let of = |schema: &str| format!("SELECT * FROM {schema}.\"{name}\" WHERE {}", range.has(org));
        let (stored, made) = (of("evidence"), of("pg_temp"));
        format!("(({made} EXCEPT {stored}) UNION ALL ({stored} EXCEPT {made})) x")
    }
}

type Query<'a, R> = QueryAs<'a, Postgres, R, PgArguments>;

/// A session with the tables made again, and the store beside them. What it makes goes with its connection, which nobody
/// else uses.
pub(crate) struct Scratch {
    connection: PgConnection,
    stored: Schema,
    made: Schema,
    migrations: &'static [Migration],
    tables: Vec<Derived>,
}

impl Scratch {
    /// Makes the temporary tables.
    pub(crate) async fn beside(
        address: &Address,
        stored: &Schema,
        migrations: &'static [Migration],
    ) -> StoreResult<Self> {
        let mut connection = Session::unhurried(address).await.map_err(store_error)?;
        let (stored, made) = (stored.clone(), Schema::temporary());
        make(&made, &mut connection, migrations).await.map_err(store_error)?;
        let tables = sqlx::query_as(TABLES).fetch_all(&mut connection).await.map_err(store_error)?;
        let tables = tables.into_iter().map(Derived::new).collect();
        Ok(Self { connection, stored, made, migrations, tables })
    }

    /// Begins to read the store as it is now.
    pub(crate) async fn begin(&mut self) -> StoreResult<()> {
        self.execute(BEGIN).await
    }

    /// Begins to change the store, which nobody else does until the end.
    pub(crate) async fn begin_writing(&mut self) -> StoreResult<()> {
        self.execute(BEGIN_WRITING).await
    }

    /// Begins to change what nobody else does, for it is made ready for a later version.
    pub(crate) async fn begin_changing(&mut self) -> StoreResult<()> {
        self.execute("BEGIN").await
    }

    pub(crate) async fn commit(&mut self) -> StoreResult<()> {
        self.execute("COMMIT").await
    }

    pub(crate) async fn roll_back(&mut self) -> StoreResult<()> {
        self.execute("ROLLBACK").await
    }

    /// Forgets what was made.
    pub(crate) async fn clear(&mut self) -> StoreResult<()> {
        let names = |prefix: &str| {
            let tables = self.tables.iter().map(|table| table.name.as_str());
            tables.map(|name| format!("pg_temp.\"{prefix}{name}\"")).collect::<Vec<_>>().join(", ")
        };
        let clear = format!("TRUNCATE {}; DROP TABLE IF EXISTS {}", names(""), names("differs_"));
        self.execute(&clear).await
    }

    /// Begins what may meet damage: PostgreSQL then goes on only once it is undone.
    pub(crate) async fn attempt(&mut self) -> StoreResult<()> {
        self.execute(ATTEMPT).await
    }

    /// Undoes what was made since.
    pub(crate) async fn undo(&mut self) -> StoreResult<()> {
        self.execute(UNDO).await
    }

    /// What the attempt found, or nothing where a part of the store cannot be read, which is a problem, named once.
    pub(crate) async fn legible<T: Default>(
        &mut self,
        part: &str,
        found: StoreResult<T>,
        problems: &mut Vec<String>,
    ) -> StoreResult<T> {
        let found = match found {
            Err(StoreError::Corrupt { what }) => {
                self.undo().await?;
                let problem = format!("{part} cannot be read: {what}");
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
                T::default()
            }
            found => found?,
        };
        self.execute(KEEP).await?;
        Ok(found)
    }

    /// The ledgers of the organizations after this one, in a transaction of its own.
    pub(crate) async fn ledgers(&mut self, after: Option<&str>) -> StoreResult<Vec<Ledger>> {
        let mut problems = Vec::new();
        self.begin().await?;
        let ledgers = self.legible_ledgers(after, &mut problems).await?;
        self.commit().await?;
        problems.pop().map_or(Ok(ledgers), |problem| Err(StoreError::corrupt(problem)))
    }

    /// The same, whether or not they have a head or an organization, as far as one of the tables tells of them that can be
    /// read.
    pub(crate) async fn legible_ledgers(
        &mut self,
        after: Option<&str>,
        problems: &mut Vec<String>,
    ) -> StoreResult<Vec<Ledger>> {
        let range = Range { after: after.map(str::to_owned), ..Range::default() };
        let of = |sql: &str, column| sql.replace("{range}", &range.has(column));
        let begun = self.legible_column("table ledger", &of(BEGUN, "org"), problems).await?;
        self.attempt().await?;
        let heads = self.rows(sqlx::query_as(self.stored.statement(&of(HEADS, "org")))).await;
        let heads: Vec<(String, i64)> = self.legible("table head", heads, problems).await?;
        self.attempt().await?;
        let names = self.rows(sqlx::query_as(self.stored.statement(&of(NAMES, "id")))).await;
        let names: Vec<(String, String)> = self.legible("table organization", names, problems).await?;
        let names = BTreeMap::from_iter(names);
        let sizes = BTreeMap::from_iter(begun.into_iter().map(|org| (org, 0)).chain(heads));
        let named = |(org, size): (String, i64)| {
            let name = names.get(&org).unwrap_or(&org).clone();
            (org, name, size)
        };
        Ok(sizes.into_iter().map(named).collect())
    }

    pub(crate) async fn head(&mut self, org: &str) -> StoreResult<Option<Frontier>> {
        let query = sqlx::query_as::<_, (i64, String)>(self.stored.statement(HEAD)).bind(org);
        let head = self.rows(query).await?.into_iter().next();
        head.map(|(size, hex)| frontier(size, &hex)).transpose()
    }

    pub(crate) async fn entries(
        &mut self,
        org: &str,
        first: u64,
        limit: u64,
    ) -> StoreResult<Vec<StoredEntry>> {
        let query = sqlx::query_as::<_, EntryRow>(self.stored.statement(ENTRIES)).bind(org);
        let query = query.bind(signed(first)).bind(signed(limit)).bind(signed(LEDGER_PAGE));
        let rows = self.rows(query).await?;
        rows.into_iter().map(StoredEntry::try_from).collect()
    }

    /// The hashes that are stored of these nodes.
    pub(crate) async fn nodes(
        &mut self,
        org: &str,
        places: impl Iterator<Item = (u32, u64)>,
    ) -> StoreResult<BTreeMap<(u32, u64), Hash>> {
        let (levels, places) = node_columns(places);
        let query = sqlx::query_as::<_, NodeRow>(self.stored.statement(NODES)).bind(org);
        let rows = self.rows(query.bind(levels).bind(places)).await?;
        let node = |(level, index, hash): NodeRow| {
            Ok(((u32::try_from(level).unwrap_or_default(), unsigned(index)?), word(&hash)?))
        };
        rows.into_iter().map(node).collect()
    }

    /// How many entries lie past a ledger's head, and how many nodes there are.
    pub(crate) async fn surplus(&mut self, org: &str, size: u64) -> StoreResult<(i64, i64)> {
        let query = sqlx::query_as(self.stored.statement(SURPLUS)).bind(org).bind(signed(size));
        Ok(self.rows(query).await?.into_iter().next().unwrap_or_default())
    }

    /// The hashes of keys, which no ledger has, by their digests, which ledgers have.
    pub(crate) async fn key_hashes(&mut self) -> StoreResult<BTreeMap<String, KeyHash>> {
        let hashes = self.column(KEY_HASHES).await?.into_iter().map(KeyHash::stored);
        Ok(hashes.map(|hash| (hash.fingerprint(), hash)).collect())
    }

    /// Writes the rows of the next facts of a ledger, and answers the texts that they refer to and none keeps.
    pub(crate) async fn replay(
        &mut self,
        org: &str,
        entries: &[StoredEntry],
        hashes: &BTreeMap<String, KeyHash>,
    ) -> StoreResult<Vec<String>> {
        let mut texts = BTreeSet::new();
        let org = id(org)?;
        let (mut rows, mut names, mut intervals) = Default::default();
        let mut batch = Batch { rows: &mut rows, names: &mut names, intervals: &mut intervals };
        for entry in entries {
            let spot = EntryRef { org, index: entry.index };
            let fact: Fact = body(&entry.payload)?;
            batch.index(spot, entry.at, &fact, &secrets(&fact, hashes)).map_err(unwritten)?;
            for row in fact.index_rows(entry.at) {
                if let IndexRow::TextUse { sha256 } = row {
                    texts.insert(sha256.to_string());
                }
            }
        }
        intervals.write(&mut rows).map_err(unwritten)?;
        write_names(&names, &mut rows).map_err(unwritten)?;
        let (statement, arguments) = rows_alone(rows).map_err(unwritten)?;
        let query = sqlx::query_with(self.made.statement(&statement), arguments);
        query.execute(&mut self.connection).await.map_err(store_error)?;
        let query = sqlx::query_as::<_, (String,)>(self.made.statement(TEXTS_MISSING)).bind(org.to_string());
        let missing = self.rows(query.bind(texts.into_iter().collect::<Vec<_>>())).await?;
        Ok(missing.into_iter().map(|(text,)| text).collect())
    }

    /// What the stored tables have other than they should, of the organizations whose ledgers were replayed.
    pub(crate) async fn differences(&mut self, range: &Range) -> StoreResult<Vec<String>> {
        let mut problems = Vec::new();
        for table in self.tables.clone() {
            let (Derived { name, key, .. }, difference) = (&table, table.difference(range));
            let rows =
                format!("SELECT DISTINCT json_build_array({key})::text FROM {difference} LIMIT {NAMED}");
            let rows = self.legible_column(&format!("table {name}"), &rows, &mut problems).await?;
            problems.extend(
                rows.iter().map(|row| format!("table {name}: row {row} is not what the ledger says")),
            );
        }
        let hashes_missing = format!("{HASHES_MISSING} AND {}", range.has("org"));
        let hashes = self.legible_column("table api_key", &hashes_missing, &mut problems).await?;
        problems.extend(hashes.iter().map(|key| format!("the hash of an API key is missing: {key}")));
        Ok(problems)
    }

    /// How many contents that records of these organizations name are not in the store, and the first of them.
    pub(crate) async fn missing_attachments(&mut self) -> StoreResult<(u64, Vec<String>)> {
        let missing = sqlx::query_as::<_, (String, String, i64)>(self.stored.statement(BLOBS_MISSING));
        let missing = self.rows(missing.bind(i64::from(NAMED))).await?;
        let count = missing.first().map_or(Ok(0), |(.., count)| unsigned(*count))?;
        let named = missing.iter().map(|(org, sha256, _)| format!("organization {org}: {sha256}"));
        Ok((count, named.collect()))
    }

    /// What is wrong with the store as a whole.
    pub(crate) async fn strays(&mut self) -> StoreResult<Vec<String>> {
        let schema = sqlx::query_as::<_, (String,)>(SCHEMA).bind(self.stored.name().to_owned());
        let schema = self.rows(schema).await?.into_iter();
        let mut problems: Vec<_> =
            schema.map(|(what,)| format!("a table or index is not as it was made: {what}")).collect();
        let versions = self.legible_column("table _evidence_migrations", VERSIONS, &mut problems).await?;
        problems.extend(
            versions
                .iter()
                .map(|row| format!("table _evidence_migrations: not as this program writes it: {row}")),
        );
        let derived = self.tables.iter().map(|table| table.name.as_str());
        let indexed =
            derived.filter(|table| !["organization", "user"].contains(table)).chain(OF_ORGANIZATIONS);
        let indexed = indexed.map(|table| (table.to_owned(), HOMELESS.replace("{table}", table)));
        let users = ("user".to_owned(), HOMELESS_USERS.to_owned());
        for (table, sql) in indexed.chain([users]).collect::<Vec<_>>() {
            let homeless = self.legible_column(&format!("table {table}"), &sql, &mut problems).await?;
            problems.extend(
                homeless.iter().map(|table| format!("rows of an organization that does not exist: {table}")),
            );
        }
        Ok(problems)
    }

    /// What would be lost for good if what was made again of these organizations took the place of what is stored.
    pub(crate) async fn unaccounted(&mut self, range: &Range) -> StoreResult<Vec<String>> {
        let mut problems = Vec::new();
        for (part, what, sql, column) in [
            ("table organization", "the ledger of an organization is gone", LEDGERS_GONE, "o.id"),
            ("table api_key", "no ledger tells of an API key", KEYS_UNKNOWN, "k.org"),
        ] {
            let sql = sql.replace("{range}", &range.has(column));
            let rows = self.legible_column(part, &sql, &mut problems).await?;
            problems.extend(rows.iter().map(|row| format!("{what}: {row}")));
        }
        Ok(problems)
    }

    /// Puts what was made again of every ledger in the place of what is stored, and answers how many rows that changed.
    /// What is to go goes first from all tables, for names and numbers may have been exchanged.
    pub(crate) async fn restore(&mut self) -> StoreResult<u64> {
        let writer: Vec<(i64,)> = self.rows(sqlx::query_as(self.stored.statement(WRITER))).await?;
        if writer.first().is_some_and(|(writer,)| *writer > latest(self.migrations)) {
            return Err(Outdated.into());
        }
        let (tables, mut marked) = (self.tables.clone(), Vec::new());
        for table in &tables {
            marked.push(self.mark(&table.name, &Range::default()).await?);
        }
        for (table, rows) in tables.iter().zip(&marked) {
            self.execute(&table.delete(0, *rows)).await?;
        }
        for (table, rows) in tables.iter().zip(&marked) {
            self.execute(&table.insert(0, *rows)).await?;
        }
        self.execute(NOTE_REBUILT).await?;
        Ok(marked.iter().sum())
    }

    /// Notes the keys of the rows of a table that differ, and answers how many there are.
    pub(crate) async fn mark(&mut self, name: &str, range: &Range) -> StoreResult<u64> {
        let Derived { key, .. } = self.table(name)?;
        let difference = self.table(name)?.difference(range);
        let marks = format!(
            "CREATE TEMP TABLE \"differs_{name}\" AS
            SELECT *, row_number() OVER () AS marked FROM (SELECT DISTINCT {key} FROM {difference}) d"
        );
        self.execute(&marks).await?;
        let count = format!("SELECT count(*) FROM pg_temp.\"differs_{name}\"");
        let count = self.rows(sqlx::query_as::<_, (i64,)>(AssertSqlSafe(count))).await?;
        count.first().map_or(Ok(0), |(count,)| unsigned(*count))
    }

    /// Puts the rows of a table in their place whose marks have numbers after the first and up to the second.
    pub(crate) async fn exchange(&mut self, name: &str, after: u64, upto: u64) -> StoreResult<()> {
        let table = self.table(name)?;
        let (delete, insert) = (table.delete(after, upto), table.insert(after, upto));
        self.execute(&delete).await?;
        self.execute(&insert).await
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
    pub(crate) async fn reindexed(&mut self, version: i64) -> StoreResult<Option<Option<String>>> {
        let query = sqlx::query_as::<_, (Option<String>,)>(self.stored.statement(REINDEXED)).bind(version);
        let upto = self.rows(query).await?;
        Ok(upto.into_iter().next().map(|(upto,)| upto))
    }

    /// Notes that the tables of these organizations were made again too.
    pub(crate) async fn note_reindexed(&mut self, version: i64, range: &Range) -> StoreResult<()> {
        let query = match &range.upto {
            Some(upto) => sqlx::query(self.stored.statement(NOTE_REINDEXED)).bind(version).bind(upto),
            None => sqlx::query(self.stored.statement(REINDEXED_ALL)).bind(version),
        };
        query.execute(&mut self.connection).await.map(drop).map_err(store_error)
    }

    /// The attachment after this one, or the first, and whether it still has the content that it is named after, as the
    /// store is at one time.
    pub(crate) async fn next_blob(
        &mut self,
        last: Option<&(String, String)>,
    ) -> StoreResult<Option<(Blob, StoreResult<bool>)>> {
        self.begin().await?;
        let query = match last {
            None => sqlx::query_as(self.stored.statement(FIRST_BLOB)),
            Some((org, sha256)) => sqlx::query_as(self.stored.statement(NEXT_BLOB)).bind(org).bind(sha256),
        };
        let next: StoreResult<Vec<Blob>> = self.rows(query).await;
        let evaluated = match next.as_deref() {
            Ok([blob, ..]) => Some((blob.clone(), self.is_whole(blob).await)),
            _ => None,
        };
        // It may have ended with an error already.
        self.commit().await?;
        next.map(|_| evaluated)
    }

    /// Whether numbered chunks are the content of this hash and size, as a reader finds them. They are read a few at a time.
    async fn is_whole(&mut self, (org, sha256, size): &Blob) -> StoreResult<bool> {
        let (mut digest, mut length, mut number) = (Digest::default(), 0, 0);
        loop {
            let query =
                sqlx::query_as::<_, (i64, Vec<u8>)>(self.stored.statement(CHUNKS)).bind(org).bind(sha256);
            let chunks = self.rows(query.bind(number).bind(CHUNKS_AT_A_TIME)).await?;
            if chunks.is_empty() {
                return Ok(signed(length) == *size && digest.finish() == *sha256);
            }
            for (seq, data) in chunks {
                if seq != number || data.is_empty() {
                    return Ok(false);
                }
                digest.update(&data);
                (number, length) = (number + 1, length + data.len() as u64);
            }
        }
    }

    async fn rows<R>(&mut self, query: Query<'_, R>) -> StoreResult<Vec<R>>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        query.fetch_all(&mut self.connection).await.map_err(store_error)
    }

    async fn column(&mut self, sql: &str) -> StoreResult<Vec<String>> {
        let rows = self.rows(sqlx::query_as::<_, (String,)>(self.stored.statement(sql))).await?;
        Ok(rows.into_iter().map(|(value,)| value).collect())
    }

    async fn legible_column(
        &mut self,
        part: &str,
        sql: &str,
        problems: &mut Vec<String>,
    ) -> StoreResult<Vec<String>> {
        self.attempt().await?;
        let rows = self.column(sql).await;
        self.legible(part, rows, problems).await
    }

    async fn execute(&mut self, sql: &str) -> StoreResult<()> {
        let done = sqlx::raw_sql(self.stored.statement(sql)).execute(&mut self.connection).await;
        done.map(drop).map_err(store_error)
    }

    /// Ends the session, and with it what it has not committed.
    pub(crate) async fn end(self) -> StoreResult<()> {
        self.connection.close().await.map_err(store_error)
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

#[cfg(test)]
mod tests;
