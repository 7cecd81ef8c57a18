//! The tables of the ledger: entries, stored nodes and heads.

use async_trait::async_trait;
use evidence_core::id::Id;
use evidence_core::ledger::{Frontier, Hash, LedgerHashes, Needs, Salt};
use evidence_core::store::{LEDGER_PAGE, Leaf, LedgerStore, StoreResult, StoredEntry, distinct};
use evidence_core::time::Timestamp;
use evidence_core::{RecordKind, StoreError};

use crate::decode::Payload;
use crate::driver::Driver;
use crate::sql::Sql;
use crate::store::SqlStore;
use crate::value::{Cell, Column, FromCell, Value, ints, signed, texts};
use crate::windows::first_not;

/// The effective time of the ledger entry `l`: the minimum of its own time and the times of later clock
/// corrections. Corrections are rare.
macro_rules! effective_at {
    () => {
        "coalesce((
            SELECT min(c.at) FROM evidence.clock_correction c
            WHERE c.org = $1 AND c.ledger_index > l.idx AND c.at < l.at), l.at)"
    };
}
pub(crate) use effective_at;

/// The columns of [`EntryRow`], of the ledger entry `l`.
macro_rules! entry_columns {
    () => {
        concat!(
            "l.idx, l.kind, l.at, ",
            crate::ledger::effective_at!(),
            ", l.actor, l.payload_hash, l.leaf_hash, l.salt, l.payload"
        )
    };
}
pub(crate) use entry_columns;

const HEAD: Sql = Sql::portable("SELECT size, frontier FROM evidence.head WHERE org = $1");

const SIZES: Sql = Sql::per_dialect(
    "SELECT o.id, h.size FROM json_each($1) w CROSS JOIN evidence.organization o ON o.id = w.value
    CROSS JOIN evidence.head h ON h.org = o.key",
    "SELECT w.value, h.size FROM UNNEST($1::text[]) AS w (value)
    CROSS JOIN LATERAL (SELECT key FROM evidence.organization WHERE id = w.value OFFSET 0) o
    CROSS JOIN LATERAL (SELECT size FROM evidence.head WHERE org = o.key OFFSET 0) h",
);

/// Selects at most `$3` entries of a ledger from `$2` on. Stops at the first entry that `$4` bytes of other
/// payloads precede. `$columns` are columns of the entry `l`. The payloads are measured without being read.
macro_rules! entries {
    ($($columns:tt)*) => {
        Sql::per_dialect(
            concat!(
                "SELECT ",
                $($columns)*,
                " FROM (
        SELECT idx, sum(size) OVER (ORDER BY idx) - size AS bytes_before FROM (
            SELECT idx, coalesce(octet_length(payload), 0) AS size FROM evidence.ledger
            WHERE org = $1 AND idx >= $2 ORDER BY idx LIMIT $3) s) p
    CROSS JOIN evidence.ledger l ON l.org = $1 AND l.idx = p.idx
    WHERE p.bytes_before < $4 ORDER BY p.idx"
            ),
            concat!(
                "SELECT ",
                $($columns)*,
                " FROM (
        SELECT idx, sum(size) OVER (ORDER BY idx) - size AS bytes_before FROM (
            SELECT idx, octet_length(payload) AS size FROM evidence.ledger
            WHERE org = $1 AND idx >= $2 ORDER BY idx LIMIT $3) s) p
    CROSS JOIN LATERAL (SELECT * FROM evidence.ledger WHERE org = $1 AND idx = p.idx OFFSET 0) l
    WHERE p.bytes_before < $4 ORDER BY p.idx"
            ),
        )
    };
}

const ENTRIES: Sql = entries!(entry_columns!());

/// Selects entries with their recorded times, for checks. The effective time is the entry's own time, so
/// damage in the table of corrections does not hide a ledger.
pub(crate) const RECORDED_ENTRIES: Sql =
    entries!("l.idx, l.kind, l.at, l.at, l.actor, l.payload_hash, l.leaf_hash, l.salt, l.payload");

/// Neither database reads a text to compute its size.
const LEAVES: Sql = Sql::portable(
    "SELECT idx, kind, at, actor, payload_hash, coalesce(octet_length(payload), 0), leaf_hash FROM evidence.ledger
    WHERE org = $1 AND idx >= $2 ORDER BY idx LIMIT $3",
);

const ENTRIES_AT: Sql = Sql::per_dialect(
    concat!(
        "SELECT ",
        entry_columns!(),
        "
    FROM json_each($2) w CROSS JOIN evidence.ledger l ON l.org = $1 AND l.idx = w.value"
    ),
    concat!(
        "SELECT ",
        entry_columns!(),
        "
    FROM UNNEST($2::bigint[]) AS w (idx) CROSS JOIN LATERAL (
        SELECT * FROM evidence.ledger WHERE org = $1 AND idx = w.idx OFFSET 0) l"
    ),
);

const TIMES: Sql = Sql::per_dialect(
    concat!(
        "SELECT l.idx, ",
        effective_at!(),
        "
    FROM json_each($2) w CROSS JOIN evidence.ledger l ON l.org = $1 AND l.idx = w.value"
    ),
    concat!(
        "SELECT l.idx, ",
        effective_at!(),
        " FROM UNNEST($2::bigint[]) AS w (idx) CROSS JOIN LATERAL (
        SELECT idx, at FROM evidence.ledger WHERE org = $1 AND idx = w.idx OFFSET 0) l"
    ),
);

/// Selects the hashes of leaves in ranges, as level 0, and the hashes of nodes.
const HASHES: Sql = Sql::per_dialect(
    "SELECT 0, l.idx, l.leaf_hash FROM json_each($2) r
        CROSS JOIN evidence.ledger l ON l.org = $1 AND l.idx >= r.value->>0 AND l.idx < r.value->>1
    UNION ALL
    SELECT n.level, n.idx, n.hash FROM json_each($3) r
        CROSS JOIN evidence.node n ON n.org = $1 AND n.level = r.value->>0 AND n.idx = r.value->>1",
    "SELECT 0, l.idx, l.leaf_hash FROM UNNEST($2::bigint[], $3::bigint[]) AS r (first, past)
        CROSS JOIN LATERAL (
            SELECT idx, leaf_hash FROM evidence.ledger WHERE org = $1 AND idx >= r.first AND idx < r.past OFFSET 0) l
    UNION ALL
    SELECT n.level, n.idx, n.hash FROM UNNEST($4::bigint[], $5::bigint[]) AS r (level, idx)
        CROSS JOIN LATERAL (
            SELECT * FROM evidence.node WHERE org = $1 AND level = r.level AND idx = r.idx OFFSET 0) n",
);

/// Selects the last entry about a record, from the tables that have one row per record. No two records have
/// one id. `$3` has the kinds of records in the table of records.
macro_rules! record_entry {
    ($of_kinds:literal) => {
        concat!(
            "SELECT i FROM (
        SELECT ledger_index AS i FROM evidence.trail WHERE org = $1 AND id = $2
        UNION ALL SELECT ledger_index FROM evidence.artifact WHERE org = $1 AND id = $2
        UNION ALL SELECT ledger_index FROM evidence.attestation WHERE org = $1 AND id = $2
        UNION ALL SELECT ledger_index FROM evidence.repo WHERE org = $1 AND id = $2
        UNION ALL ",
            $of_kinds,
            ") found LIMIT 1"
        )
    };
}

const RECORD_ENTRY: Sql = Sql::per_dialect(
    record_entry!(
        "SELECT r.ledger_index FROM json_each($3) k
        CROSS JOIN evidence.record r ON r.org = $1 AND r.kind = k.value AND r.id = $2"
    ),
    record_entry!(
        "SELECT r.ledger_index FROM UNNEST($3::text[]) AS k (kind) CROSS JOIN LATERAL (
            SELECT ledger_index FROM evidence.record WHERE org = $1 AND kind = k.kind AND id = $2 OFFSET 0) r"
    ),
);

/// Searches by the effective times of the entries, which never decrease.
const SIZE_AT: Sql = Sql::portable(concat!(
    "SELECT ",
    first_not!(
        "b.at <= $2 OR EXISTS (
            SELECT 1 FROM evidence.clock_correction c WHERE c.org = $1 AND c.ledger_index > b.idx AND c.at <= $2)",
        "evidence.ledger", "idx" from "0", "b.org = $1"
    )
));

/// A row of the ledger: index, kind, time, effective time, actor, the payload's hash, the leaf's hash, salt,
/// payload.
pub(crate) type EntryRow = (u64, String, Timestamp, Timestamp, String, Hash, Hash, Salt, Payload);

/// Decodes an entry. A payload that is not UTF-8 becomes a text that does not match its hash; a missing
/// payload becomes empty.
pub(crate) fn entry(row: EntryRow) -> StoreResult<StoredEntry> {
    let (index, kind, at, effective_at, actor, payload_hash, leaf_hash, salt, payload) = row;
    let payload = String::from_utf8_lossy(payload.bytes().unwrap_or_default()).into_owned();
    Ok(StoredEntry { index, kind, at, effective_at, actor, payload_hash, leaf_hash, salt, payload })
}

/// Decodes a head.
pub(crate) fn frontier(size: i64, hashes: &[u8]) -> StoreResult<Frontier> {
    Frontier::from_bytes(u64::from_cell(Cell::Int(size))?, hashes)
        .map_err(|error| StoreError::corrupt(format_args!("the head of a ledger: {error}")))
}

/// Converts pairs of numbers to columns for binding.
fn pairs(pairs: impl Iterator<Item = (u64, u64)>) -> Value {
    let (first, second) = pairs.map(|(first, second)| (Some(signed(first)), Some(signed(second)))).unzip();
    Value::Columns(vec![Column::Ints(first), Column::Ints(second)])
}

#[async_trait]
impl<D: Driver> LedgerStore for SqlStore<D> {
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>> {
        let head = |(size, hashes): (i64, Vec<u8>)| frontier(size, &hashes);
        self.query_org(org, HEAD).first_as(head).await
    }

    async fn ledger_sizes(&self, orgs: &[Id]) -> StoreResult<Vec<(Id, u64)>> {
        self.query(SIZES).bind(texts(&distinct(orgs.iter().copied()))).per_item(orgs.len()).all().await
    }

    async fn ledger_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        let query = self.query_org(org, ENTRIES).bind(first).bind(limit).bind(LEDGER_PAGE);
        query.long().all_as(entry).await
    }

    async fn ledger_leaves(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<Leaf>> {
        let leaf = |(index, kind, at, actor, payload_hash, bytes, leaf_hash)| {
            Ok(Leaf { index, kind, at, actor, payload_hash, bytes, leaf_hash })
        };
        self.query_org(org, LEAVES).bind(first).bind(limit).all_as(leaf).await
    }

    async fn ledger_entries_at(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<StoredEntry>> {
        let query = self.query_org(org, ENTRIES_AT).bind(ints(indexes));
        query.per_item(indexes.len()).all_as(entry).await
    }

    async fn ledger_times(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<(u64, Timestamp)>> {
        self.query_org(org, TIMES).bind(ints(indexes)).per_item(indexes.len()).all().await
    }

    async fn ledger_size_at(&self, org: Id, at: Timestamp) -> StoreResult<u64> {
        let query = self.query_org(org, SIZE_AT).bind(at);
        Ok(query.first::<(u64,)>().await?.map_or(0, |(size,)| size))
    }

    async fn record_entry(&self, org: Id, record: Id) -> StoreResult<Option<u64>> {
        let query = self.query_org(org, RECORD_ENTRY).bind(record);
        let query = query.bind(texts(&RecordKind::WITH_OWN_ID.map(RecordKind::as_str)));
        Ok(query.first::<(u64,)>().await?.map(|(index,)| index))
    }

    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<LedgerHashes> {
        let leaves = pairs(needs.leaves.iter().map(|range| (range.start, range.end)));
        let nodes = pairs(needs.nodes.iter().map(|(level, index)| (u64::from(*level), *index)));
        let query = self.query_org(org, HASHES).bind(leaves).bind(nodes);
        let mut known = LedgerHashes::default();
        for (level, index, hash) in query.all::<(u32, u64, Hash)>().await? {
            match level {
                0 => known.leaves.insert(index, hash),
                level => known.nodes.insert((level, index), hash),
            };
        }
        Ok(known)
    }
}
