//! The statements of a session, with `evidence.` for the schema of the store's tables and `scratch.` for that of the
//! scratch tables. `{range}` is a condition on organizations.

use crate::sql::{CLOCK, Sql};

/// One snapshot for all statements.
pub(super) const BEGIN: Sql = Sql::each("BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ");

/// Nobody writes until the end: in PostgreSQL the statement that writes a group locks rows of this table and waits for its
/// lock first, before it takes its snapshot. Whoever reads does not wait. A program that is stopped meanwhile loses the
/// lock.
pub(super) const BEGIN_WRITING: Sql = Sql::each(
    "BEGIN IMMEDIATE",
    "BEGIN; SET LOCAL lock_timeout = '30s'; LOCK TABLE evidence.head IN EXCLUSIVE MODE; SET LOCAL lock_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = '60s'",
);

/// For changes of what nobody else writes, because it is made ready for a later version.
pub(super) const BEGIN_CHANGING: Sql = Sql::each("BEGIN IMMEDIATE", "BEGIN");

/// PostgreSQL aborts the whole transaction on an error unless there is a savepoint.
pub(super) const SAVEPOINT: Sql = Sql::each("", "SAVEPOINT before_damage");

pub(super) const ROLLBACK_TO_SAVEPOINT: Sql = Sql::each("", "ROLLBACK TO SAVEPOINT before_damage");

pub(super) const RELEASE_SAVEPOINT: Sql = Sql::each("", "RELEASE SAVEPOINT before_damage");

pub(super) const KEY_HASHES: &str = "SELECT hash FROM evidence.api_key WHERE hash IS NOT NULL";

/// The organizations of a range whose ledgers have entries: a step of the index for each.
pub(super) const BEGUN: &str = "
    WITH RECURSIVE begun (org) AS (
        SELECT (SELECT org FROM evidence.ledger WHERE {range} ORDER BY org LIMIT 1)
        UNION ALL
        SELECT (SELECT l.org FROM evidence.ledger l WHERE l.org > b.org ORDER BY l.org LIMIT 1)
        FROM begun b WHERE b.org IS NOT NULL)
    SELECT org FROM begun WHERE org IS NOT NULL";

pub(super) const HEADS: &str = "SELECT org, size FROM evidence.head WHERE {range}";

pub(super) const NAMES: &str = "SELECT key, name FROM evidence.organization WHERE {range}";

pub(super) const HEAD: &str = "SELECT size, frontier FROM evidence.head WHERE org = $1";

pub(super) const NODES: Sql = Sql::each(
    "SELECT n.level, n.idx, n.hash FROM json_each($2) j
    CROSS JOIN evidence.node n ON n.org = $1 AND n.level = j.value->>0 AND n.idx = j.value->>1",
    "SELECT n.level, n.idx, n.hash FROM UNNEST($2::bigint[], $3::bigint[]) AS r (level, idx)
    CROSS JOIN LATERAL (
        SELECT * FROM evidence.node WHERE org = $1 AND level = r.level::integer AND idx = r.idx OFFSET 0) n",
);

pub(super) const ROWS_PAST_HEAD: &str = "
    SELECT (SELECT count(*) FROM evidence.ledger WHERE org = $1 AND idx >= $2),
        (SELECT count(*) FROM evidence.node WHERE org = $1)";

/// The tables that follow from the ledgers, and the columns of their primary keys as a JSON array.
pub(super) const TABLES: Sql = Sql::each(
    "SELECT m.name, json_group_array(p.name) FROM main.sqlite_schema m, pragma_table_info(m.name, 'main') p
    WHERE m.type = 'table' AND p.pk > 0 AND m.name NOT IN
        ('ledger', 'node', 'head', 'blob', 'blob_chunk', 'attachment_pending', 'attachment_place', 'lease', 'cursor',
            'delivery', 'known_organization', '_evidence_migrations')
    GROUP BY m.name ORDER BY m.name",
    "SELECT c.relname::text, json_agg(a.attname ORDER BY a.attnum)::text
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY((i.indkey::smallint[])[0:i.indnkeyatts - 1])
    WHERE i.indisprimary AND c.relnamespace = pg_my_temp_schema() AND c.relname NOT IN
        ('ledger', 'node', 'head', 'blob', 'blob_chunk', 'attachment_pending', 'attachment_place', 'lease', 'cursor',
            'delivery', 'known_organization', '_evidence_migrations')
    GROUP BY c.relname ORDER BY c.relname",
);

pub(super) const STORED_TABLES: &str =
    "SELECT name FROM evidence.sqlite_schema WHERE type = 'table' ORDER BY name";

/// Tables, columns, constraints, indexes, rules and triggers that are not alike in the two schemas, of which PostgreSQL is
/// told the store's by its name, `$1`. There what a crash empties, or hides rows from users, is another table, and one that
/// is partitioned, by organization, say, is as good as one that is not: what its partitions have besides is told of it.
pub(super) const ODD_SCHEMA: Sql = Sql::each(
    "SELECT json_array(x.type, x.name) FROM (
        SELECT * FROM (SELECT type, name, sql FROM main.sqlite_schema
            EXCEPT SELECT type, name, sql FROM stored.sqlite_schema)
        UNION ALL SELECT * FROM (SELECT type, name, sql FROM stored.sqlite_schema
            EXCEPT SELECT type, name, sql FROM main.sqlite_schema)) x
    WHERE x.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    "WITH part AS (
        SELECT c.oid, r.relnamespace AS schema, r.relname, c.relkind, c.relpersistence,
            c.relrowsecurity OR c.relforcerowsecurity AS hides
        FROM pg_class c
        JOIN pg_class r ON r.oid = CASE WHEN c.relispartition THEN pg_partition_root(c.oid)::oid ELSE c.oid END
        WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')),
    thing AS (
        SELECT schema,
            relname || CASE WHEN relkind IN ('r', 'p') THEN '' ELSE ' of kind ' || relkind::text END
                || CASE relpersistence WHEN 'u' THEN ' unlogged' ELSE '' END
                || CASE WHEN hides THEN ' with row-level security' ELSE '' END AS what
        FROM part
        UNION ALL
        SELECT c.schema,
            c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' '
                || a.attnotnull || ' ' || a.attcollation || ' ' || a.attidentity::text || a.attgenerated::text
                || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
        FROM part c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relkind IN ('r', 'p')
        UNION ALL
        SELECT t.schema, c.relname || ' on ' || t.relname || ' ' || i.indisunique || ' ' || i.indisvalid || ' '
            || i.indkey::text || substring(pg_get_indexdef(i.indexrelid) FROM ' USING .*')
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid AND NOT c.relispartition
        JOIN part t ON t.oid = i.indrelid
        UNION ALL
        SELECT c.schema, c.relname || ' constraint ' || k.conname || ' ' || pg_get_constraintdef(k.oid)
        FROM pg_constraint k JOIN part c ON c.oid = k.conrelid WHERE k.contype <> 'n' AND k.conparentid = 0
        UNION ALL
        SELECT c.schema, c.relname || ' rule ' || r.rulename
        FROM pg_rewrite r JOIN part c ON c.oid = r.ev_class
        UNION ALL
        SELECT c.schema, c.relname || ' trigger ' || t.tgname
        FROM pg_trigger t JOIN part c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal)
    SELECT x.what FROM (
        SELECT what, array_agg(DISTINCT schema) AS schemas FROM thing
        WHERE schema IN (to_regnamespace(quote_ident($1)), pg_my_temp_schema())
        GROUP BY what) x
    WHERE cardinality(x.schemas) < 2",
);

pub(super) const ODD_VERSIONS: &str = "
    SELECT CAST(x.version AS text) FROM (
        SELECT * FROM (SELECT version, min_writer_version, steps_done, rederived_through_org, done FROM scratch._evidence_migrations
            EXCEPT SELECT version, min_writer_version, steps_done, rederived_through_org, done FROM evidence._evidence_migrations) a
        UNION ALL
        SELECT * FROM (SELECT version, min_writer_version, steps_done, rederived_through_org, done FROM evidence._evidence_migrations
            EXCEPT SELECT version, min_writer_version, steps_done, rederived_through_org, done FROM scratch._evidence_migrations) b) x";

/// The oldest version whose programs may write.
pub(super) const MIN_WRITER_VERSION: &str =
    "SELECT coalesce(max(min_writer_version), 0) FROM evidence._evidence_migrations";

/// Tells the stores that looked at the tables before to look again. In SQLite nobody looks without writing.
pub(super) const NOTE_REBUILT: Sql =
    Sql::each("", "UPDATE evidence._evidence_migrations SET rebuild_count = rebuild_count + 1");

/// Nothing where the version is done, or a newer one was begun. It stays so until the end of the transaction.
pub(super) const REDERIVED_THROUGH: Sql = Sql::each(
    "SELECT m.rederived_through_org FROM evidence._evidence_migrations m WHERE m.version = $1 AND NOT m.done
        AND NOT EXISTS (SELECT 1 FROM evidence._evidence_migrations n WHERE n.version > $1)",
    "SELECT m.rederived_through_org FROM evidence._evidence_migrations m WHERE m.version = $1 AND NOT m.done
        AND NOT EXISTS (SELECT 1 FROM evidence._evidence_migrations n WHERE n.version > $1) FOR UPDATE OF m",
);

pub(super) const NOTE_REDERIVED: &str =
    "UPDATE evidence._evidence_migrations SET rederived_through_org = $2 WHERE version = $1";

pub(super) const ALL_REDERIVED: &str =
    "UPDATE evidence._evidence_migrations SET done = true, rederived_through_org = NULL WHERE version <= $1";

/// The table, if it has rows of an organization that does not exist. No index of it begins with the organization.
pub(super) const ORPHANED_UNINDEXED: &str = "
    SELECT '{table}' WHERE EXISTS (
        SELECT 1 FROM evidence.\"{table}\" WHERE org NOT IN (SELECT key FROM evidence.organization))";

/// The same of a table with such an index: a step of it for each organization.
pub(super) const ORPHANED: &str = "
    WITH RECURSIVE x (org) AS (
        SELECT (SELECT org FROM evidence.\"{table}\" ORDER BY org LIMIT 1)
        UNION ALL
        SELECT (SELECT t.org FROM evidence.\"{table}\" t WHERE t.org > x.org ORDER BY t.org LIMIT 1)
        FROM x WHERE x.org IS NOT NULL)
    SELECT '{table}' WHERE EXISTS (
        SELECT 1 FROM x WHERE x.org IS NOT NULL AND x.org NOT IN (SELECT key FROM evidence.organization))";

/// Tables that are not derived from the ledgers and have rows of organizations.
pub(super) const OF_ORGANIZATIONS: [&str; 6] =
    ["ledger", "node", "head", "blob", "blob_chunk", "attachment_pending"];

/// What the ledger says of a key is the digest of its hash, so that the scratch tables agree with one that is gone.
pub(super) const HASHES_MISSING: &str = "SELECT id FROM evidence.api_key WHERE hash IS NULL AND {range}";

/// The contents that records name and that are not here, the first of them and how many there are: they may be kept
/// elsewhere.
pub(super) const BLOBS_MISSING: Sql = Sql::each(
    "SELECT coalesce(o.name, 'of key ' || x.org), x.sha256, count(*) OVER ()
    FROM scratch.attachment x LEFT JOIN scratch.organization o ON o.key = x.org
    WHERE NOT EXISTS (SELECT 1 FROM evidence.blob b WHERE b.org = x.org AND b.sha256 = x.sha256 AND b.size = x.size)
    ORDER BY x.org, x.sha256 LIMIT $1",
    "SELECT coalesce(o.name, encode(x.org, 'hex')), x.sha256, count(*) OVER ()
    FROM scratch.attachment x LEFT JOIN scratch.organization o ON o.key = x.org
    WHERE (SELECT b.size FROM evidence.blob b WHERE b.org = x.org AND b.sha256 = x.sha256) IS DISTINCT FROM x.size
    ORDER BY x.org, x.sha256 LIMIT $1",
);

/// Organizations of a range whose ledgers are gone: no scratch table has one of that name.
pub(super) const LEDGERS_GONE: &str = "
    SELECT o.name FROM evidence.organization o WHERE {range} AND NOT EXISTS (
        SELECT 1 FROM scratch.organization m WHERE m.id = o.id OR m.name = o.name)";

/// Keys of a range that no ledger of it tells of, whose hashes nothing could bring back.
pub(super) const KEYS_UNKNOWN: &str = "
    SELECT k.id FROM evidence.api_key k WHERE {range} AND k.hash IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM scratch.api_key m WHERE m.id = k.id OR m.hash = k.hash)";

/// Of these digests those of artifacts that were derived.
pub(super) const BUILT: Sql = Sql::each(
    "SELECT w.value FROM json_each($2) w
    WHERE EXISTS (SELECT 1 FROM scratch.artifact a WHERE a.org = $1 AND a.fingerprint = w.value)",
    "SELECT w.value FROM UNNEST($2::text[]) AS w (value)
    WHERE (SELECT true FROM scratch.artifact a WHERE a.org = $1 AND a.fingerprint = w.value LIMIT 1)",
);

/// Of the texts `$2` of the organization `$1`, those that no entry keeps.
pub(super) const TEXTS_MISSING: Sql = Sql::each(
    "SELECT json_array($1, w.value) FROM json_each($2) w WHERE NOT EXISTS (
        SELECT 1 FROM scratch.kept_text t WHERE t.org = $1 AND t.sha256 = w.value)",
    "SELECT coalesce((SELECT o.id FROM scratch.organization o WHERE o.key = $1), encode($1, 'hex')) || ' ' || w.value
    FROM UNNEST($2::text[]) AS w (value) WHERE NOT EXISTS (
        SELECT 1 FROM scratch.kept_text t WHERE t.org = $1 AND t.sha256 = w.value)",
);

/// The time, in microseconds. SQLite has whole seconds.
pub(super) const NOW: Sql = Sql::each("SELECT CAST(strftime('%s', 'now') AS integer) * 1000000", CLOCK);

/// Organizations that were created and are not there any more: no ledger tells of them, nor any other table.
pub(super) const VANISHED: &str = "
    SELECT k.name || ' (' || k.id || ')' FROM evidence.known_organization k
    WHERE NOT EXISTS (SELECT 1 FROM evidence.organization o WHERE o.id = k.id)
    ORDER BY k.name, k.id";

pub(super) const UNREGISTERED: &str = "
    SELECT o.name || ' (' || o.id || ')' FROM evidence.organization o
    WHERE NOT EXISTS (SELECT 1 FROM evidence.known_organization k WHERE k.id = o.id AND k.name = o.name)
    ORDER BY o.name, o.id";

/// A ledger tells of its organization, so that one that was forgotten is known again.
pub(super) const REGISTER: &str = "
    INSERT INTO evidence.known_organization (id, name) SELECT o.id, o.name FROM evidence.organization o WHERE true
    ON CONFLICT (id) DO UPDATE SET name = excluded.name";

/// The first contents that have chunks and neither a row nor a note that they are coming: nothing would remove them.
pub(super) const ORPHANED_CHUNKS: &str = "
    SELECT DISTINCT c.sha256 FROM evidence.blob_chunk c
    WHERE NOT EXISTS (SELECT 1 FROM evidence.blob b WHERE b.org = c.org AND b.sha256 = c.sha256)
        AND NOT EXISTS (SELECT 1 FROM evidence.attachment_pending p WHERE p.org = c.org AND p.sha256 = c.sha256)
    ORDER BY c.sha256 LIMIT 10";

pub(super) const FIRST_BLOB: &str =
    "SELECT b.org, b.sha256, b.size FROM evidence.blob b ORDER BY b.org, b.sha256 LIMIT 1";

pub(super) const NEXT_BLOB: &str = "
    SELECT b.org, b.sha256, b.size FROM evidence.blob b WHERE (b.org, b.sha256) > ($1, $2)
    ORDER BY b.org, b.sha256 LIMIT 1";

pub(super) const CHUNKS: &str = "
    SELECT seq, data FROM evidence.blob_chunk WHERE org = $1 AND sha256 = $2 AND seq >= $3 ORDER BY seq LIMIT $4";
