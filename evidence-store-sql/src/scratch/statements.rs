//! The statements of a scratch session. `evidence.` is the schema of the store's tables, and `scratch.` is
//! the schema of the scratch tables. `{range}` is a condition on organizations.

use crate::sql::{CLOCK, Sql};

/// All statements read one snapshot.
pub(super) const BEGIN: Sql = Sql::per_dialect("BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ");

/// Blocks other writers until the transaction ends. In PostgreSQL, a statement that writes a group locks rows
/// of this table, so it waits for the table lock before it takes its snapshot. Readers do not wait. If this
/// program is suspended meanwhile, the idle timeout releases the lock.
pub(super) const BEGIN_WRITING: Sql = Sql::per_dialect(
    "BEGIN IMMEDIATE",
    "BEGIN; SET LOCAL lock_timeout = '30s'; LOCK TABLE evidence.head IN EXCLUSIVE MODE; SET LOCAL lock_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = '60s'",
);

/// For data that nobody else writes, because a migration prepares it for a later version.
pub(super) const BEGIN_CHANGING: Sql = Sql::per_dialect("BEGIN IMMEDIATE", "BEGIN");

/// Without a savepoint, PostgreSQL aborts the whole transaction on an error.
pub(super) const SAVEPOINT: Sql = Sql::per_dialect("", "SAVEPOINT before_damage");

pub(super) const ROLLBACK_TO_SAVEPOINT: Sql = Sql::per_dialect("", "ROLLBACK TO SAVEPOINT before_damage");

pub(super) const RELEASE_SAVEPOINT: Sql = Sql::per_dialect("", "RELEASE SAVEPOINT before_damage");

pub(super) const KEY_HASHES: &str = "SELECT hash FROM evidence.api_key WHERE hash IS NOT NULL";

/// Selects the organizations of a range that have ledger entries. Each is one index step.
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

pub(super) const NODES: Sql = Sql::per_dialect(
    "SELECT n.level, n.idx, n.hash FROM json_each($2) j
    CROSS JOIN evidence.node n ON n.org = $1 AND n.level = j.value->>0 AND n.idx = j.value->>1",
    "SELECT n.level, n.idx, n.hash FROM UNNEST($2::bigint[], $3::bigint[]) AS r (level, idx)
    CROSS JOIN LATERAL (
        SELECT * FROM evidence.node WHERE org = $1 AND level = r.level::integer AND idx = r.idx OFFSET 0) n",
);

/// Selects the secret URLs of the derived organizations.
pub(super) const STORED_URLS: &str = "
    SELECT u.org, o.name, u.id, u.content FROM scratch.organization o JOIN evidence.secret_url u ON u.org = o.key";

/// Selects the present actions of the derived organizations.
pub(super) const ACTIONS: &str = "
    SELECT r.org, o.name, l.payload FROM scratch.organization o
    JOIN scratch.record r ON r.org = o.key AND r.kind = 'action' AND NOT r.archived
    JOIN evidence.ledger l ON l.org = r.org AND l.idx = r.ledger_index";

pub(super) const SIGNED_CHECKPOINTS: &str = "SELECT org, note FROM evidence.checkpoint";

pub(super) const ROWS_PAST_HEAD: &str = "
    SELECT (SELECT count(*) FROM evidence.ledger WHERE org = $1 AND idx >= $2),
        (SELECT count(*) FROM evidence.node WHERE org = $1)";

/// Selects the tables that are derived from the ledgers, with the columns of their primary keys as a JSON
/// array.
pub(super) const TABLES: Sql = Sql::per_dialect(
    "SELECT m.name, json_group_array(p.name) FROM main.sqlite_schema m, pragma_table_info(m.name, 'main') p
    WHERE m.type = 'table' AND p.pk > 0 AND m.name NOT IN
        ('ledger', 'node', 'head', 'blob', 'blob_chunk', 'attachment_pending', 'attachment_place', 'checkpoint', 'lease',
            'cursor', 'delivery', 'secret_url', 'known_organization', '_evidence_migrations')
    GROUP BY m.name ORDER BY m.name",
    "SELECT c.relname::text, json_agg(a.attname ORDER BY a.attnum)::text
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY((i.indkey::smallint[])[0:i.indnkeyatts - 1])
    WHERE i.indisprimary AND c.relnamespace = pg_my_temp_schema() AND c.relname NOT IN
        ('ledger', 'node', 'head', 'blob', 'blob_chunk', 'attachment_pending', 'attachment_place', 'checkpoint', 'lease',
            'cursor', 'delivery', 'secret_url', 'known_organization', '_evidence_migrations')
    GROUP BY c.relname ORDER BY c.relname",
);

pub(super) const STORED_TABLES: &str =
    "SELECT name FROM evidence.sqlite_schema WHERE type = 'table' ORDER BY name";

/// Selects the tables, columns, constraints, indexes, rules and triggers that differ between the two schemas.
/// In PostgreSQL, `$1` is the name of the store's schema. There an unlogged table, which a crash empties,
/// differs from a logged one. So does a table whose row-level security hides rows. A partitioned table (for
/// example by organization) equals an unpartitioned one; additional objects of its partitions are reported
/// for the table.
pub(super) const ODD_SCHEMA: Sql = Sql::per_dialect(
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

/// Selects the oldest version whose programs may write.
pub(super) const MIN_WRITER_VERSION: &str =
    "SELECT coalesce(max(min_writer_version), 0) FROM evidence._evidence_migrations";

/// Increments the rebuild count, so that stores that prefetched before the rebuild prefetch again. SQLite
/// does not need it, because its writer reads within the write transaction.
pub(super) const NOTE_REBUILT: Sql =
    Sql::per_dialect("", "UPDATE evidence._evidence_migrations SET rebuild_count = rebuild_count + 1");

/// Selects no row if the version is done, or if a newer migration has begun. The row lock keeps this true
/// until the transaction ends.
pub(super) const REDERIVED_THROUGH: Sql = Sql::per_dialect(
    "SELECT m.rederived_through_org FROM evidence._evidence_migrations m WHERE m.version = $1 AND NOT m.done
        AND NOT EXISTS (SELECT 1 FROM evidence._evidence_migrations n WHERE n.version > $1)",
    "SELECT m.rederived_through_org FROM evidence._evidence_migrations m WHERE m.version = $1 AND NOT m.done
        AND NOT EXISTS (SELECT 1 FROM evidence._evidence_migrations n WHERE n.version > $1) FOR UPDATE OF m",
);

pub(super) const NOTE_REDERIVED: &str =
    "UPDATE evidence._evidence_migrations SET rederived_through_org = $2 WHERE version = $1";

pub(super) const ALL_REDERIVED: &str =
    "UPDATE evidence._evidence_migrations SET done = true, rederived_through_org = NULL WHERE version <= $1";

/// Selects the table if it has rows of an organization that does not exist. For tables without an index that
/// begins with the organization.
pub(super) const ORPHANED_UNINDEXED: &str = "
    SELECT '{table}' WHERE EXISTS (
        SELECT 1 FROM evidence.\"{table}\" WHERE org NOT IN (SELECT key FROM evidence.organization))";

/// The same for tables with such an index: one index step per organization.
pub(super) const ORPHANED: &str = "
    WITH RECURSIVE x (org) AS (
        SELECT (SELECT org FROM evidence.\"{table}\" ORDER BY org LIMIT 1)
        UNION ALL
        SELECT (SELECT t.org FROM evidence.\"{table}\" t WHERE t.org > x.org ORDER BY t.org LIMIT 1)
        FROM x WHERE x.org IS NOT NULL)
    SELECT '{table}' WHERE EXISTS (
        SELECT 1 FROM x WHERE x.org IS NOT NULL AND x.org NOT IN (SELECT key FROM evidence.organization))";

/// Tables with rows of organizations that are not derived from the ledgers.
pub(super) const OF_ORGANIZATIONS: [&str; 8] =
    ["ledger", "node", "head", "blob", "blob_chunk", "attachment_pending", "checkpoint", "secret_url"];

/// The ledger contains only the digest of a key's hash, so the scratch tables do not show that the hash
/// itself is missing.
pub(super) const HASHES_MISSING: &str = "SELECT id FROM evidence.api_key WHERE hash IS NULL AND {range}";

/// Selects the first attachments that records reference but this store lacks, and their total number. They
/// may be stored elsewhere.
pub(super) const BLOBS_MISSING: Sql = Sql::per_dialect(
    "SELECT coalesce(o.name, 'of key ' || x.org), x.sha256, count(*) OVER ()
    FROM scratch.attachment x LEFT JOIN scratch.organization o ON o.key = x.org
    WHERE NOT EXISTS (SELECT 1 FROM evidence.blob b WHERE b.org = x.org AND b.sha256 = x.sha256 AND b.size = x.size)
    ORDER BY x.org, x.sha256 LIMIT $1",
    "SELECT coalesce(o.name, encode(x.org, 'hex')), x.sha256, count(*) OVER ()
    FROM scratch.attachment x LEFT JOIN scratch.organization o ON o.key = x.org
    WHERE (SELECT b.size FROM evidence.blob b WHERE b.org = x.org AND b.sha256 = x.sha256) IS DISTINCT FROM x.size
    ORDER BY x.org, x.sha256 LIMIT $1",
);

/// Selects the organizations of a range whose ledgers are gone: no scratch table has one of that id or name.
pub(super) const LEDGERS_GONE: &str = "
    SELECT o.name FROM evidence.organization o WHERE {range} AND NOT EXISTS (
        SELECT 1 FROM scratch.organization m WHERE m.id = o.id OR m.name = o.name)";

/// Selects the API keys of a range that no ledger mentions. Their hashes could not be restored.
pub(super) const KEYS_UNKNOWN: &str = "
    SELECT k.id FROM evidence.api_key k WHERE {range} AND k.hash IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM scratch.api_key m WHERE m.id = k.id OR m.hash = k.hash)";

/// Selects those of the given digests that derived artifacts have.
pub(super) const BUILT: Sql = Sql::per_dialect(
    "SELECT w.value FROM json_each($2) w
    WHERE EXISTS (SELECT 1 FROM scratch.artifact a WHERE a.org = $1 AND a.fingerprint = w.value)",
    "SELECT w.value FROM UNNEST($2::text[]) AS w (value)
    WHERE (SELECT true FROM scratch.artifact a WHERE a.org = $1 AND a.fingerprint = w.value LIMIT 1)",
);

/// Selects those of the texts `$2` of the organization `$1` that no entry contains.
pub(super) const TEXTS_MISSING: Sql = Sql::per_dialect(
    "SELECT json_array($1, w.value) FROM json_each($2) w WHERE NOT EXISTS (
        SELECT 1 FROM scratch.interned_text t WHERE t.org = $1 AND t.sha256 = w.value)",
    "SELECT coalesce((SELECT o.id FROM scratch.organization o WHERE o.key = $1), encode($1, 'hex')) || ' ' || w.value
    FROM UNNEST($2::text[]) AS w (value) WHERE NOT EXISTS (
        SELECT 1 FROM scratch.interned_text t WHERE t.org = $1 AND t.sha256 = w.value)",
);

/// Selects the time in microseconds. SQLite's time has whole seconds.
pub(super) const NOW: Sql =
    Sql::per_dialect("SELECT CAST(strftime('%s', 'now') AS integer) * 1000000", CLOCK);

/// Selects organizations that were created and no longer exist in any ledger or other table.
pub(super) const VANISHED: &str = "
    SELECT k.name || ' (' || k.id || ')' FROM evidence.known_organization k
    WHERE NOT EXISTS (SELECT 1 FROM evidence.organization o WHERE o.id = k.id)
    ORDER BY k.name, k.id";

pub(super) const UNREGISTERED: &str = "
    SELECT o.name || ' (' || o.id || ')' FROM evidence.organization o
    WHERE NOT EXISTS (SELECT 1 FROM evidence.known_organization k WHERE k.id = o.id AND k.name = o.name)
    ORDER BY o.name, o.id";

/// Registers every organization that has a ledger, so that a forgotten one is known again.
pub(super) const REGISTER: &str = "
    INSERT INTO evidence.known_organization (id, name) SELECT o.id, o.name FROM evidence.organization o WHERE true
    ON CONFLICT (id) DO UPDATE SET name = excluded.name";

/// Selects the first blobs that have chunks but neither a blob row nor a pending upload. Nothing would remove
/// such chunks.
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
