//! The ledger's tables: entries, stored nodes and heads.

use std::collections::BTreeSet;

use async_trait::async_trait;
use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::ledger::{Frontier, LedgerHashes, Needs};
use evidence_core::store::{LEDGER_PAGE, LedgerStore, StoreResult, StoredEntry};
use evidence_core::time::Timestamp;

use crate::db::PostgresStore;
use crate::rows::{signed, unsigned, word};

pub(crate) const INSERT_ENTRIES: &str = "
    INSERT INTO evidence.ledger (org, idx, kind, at, actor, payload_sha256, leaf_hash, payload)
    SELECT r.* FROM go, UNNEST($text, $bigint, $text, $bigint, $text, $text, $text, $text) r";

pub(crate) const INSERT_NODES: &str = "
    INSERT INTO evidence.node (org, level, idx, hash) SELECT r.* FROM go, UNNEST($text, $bigint, $bigint, $text) r";

/// Only of ledgers that begin: the other heads are compared and swapped (`record.rs`).
pub(crate) const INSERT_HEADS: &str = "
    INSERT INTO evidence.head (org, size, frontier) SELECT r.* FROM go, UNNEST($text, $bigint, $text) r";

const HEAD: &str = "SELECT size, frontier FROM evidence.head WHERE org = $1";

/// At most `$3` entries of a ledger from `$2` on, but none that `$4` bytes of others come before. The payloads are measured
/// without being read.
pub(crate) const ENTRIES: &str = "
    SELECT l.idx, l.kind, l.at, l.actor, l.payload_sha256, l.leaf_hash, l.payload FROM (
        SELECT idx, sum(size) OVER (ORDER BY idx) - size AS bytes_before FROM (
            SELECT idx, octet_length(payload) AS size FROM evidence.ledger
            WHERE org = $1 AND idx >= $2 ORDER BY idx LIMIT $3) s) p
    CROSS JOIN LATERAL (SELECT * FROM evidence.ledger WHERE org = $1 AND idx = p.idx OFFSET 0) l
    WHERE p.bytes_before < $4 ORDER BY p.idx";

const ENTRIES_AT: &str = "
    SELECT l.idx, l.kind, l.at, l.actor, l.payload_sha256, l.leaf_hash, l.payload
    FROM UNNEST($2::bigint[]) AS w (idx) CROSS JOIN LATERAL (
        SELECT * FROM evidence.ledger WHERE org = $1 AND idx = w.idx OFFSET 0) l";

/// Lateral subqueries that stay such (`OFFSET 0`): probes of an index, whatever the statistics say.
const HASHES: &str = "
    SELECT 0, l.idx, l.leaf_hash FROM UNNEST($2::bigint[], $3::bigint[]) AS r (first, past)
        CROSS JOIN LATERAL (
            SELECT idx, leaf_hash FROM evidence.ledger WHERE org = $1 AND idx >= r.first AND idx < r.past OFFSET 0) l
    UNION ALL
    SELECT n.level, n.idx, n.hash FROM UNNEST($4::integer[], $5::bigint[]) AS r (level, idx)
        CROSS JOIN LATERAL (
            SELECT * FROM evidence.node WHERE org = $1 AND level = r.level AND idx = r.idx OFFSET 0) n";

/// A row of the ledger.
#[derive(sqlx::FromRow)]
pub(crate) struct EntryRow {
    idx: i64,
    kind: String,
    at: i64,
    actor: String,
    payload_sha256: String,
    leaf_hash: String,
    payload: String,
}

impl TryFrom<EntryRow> for StoredEntry {
    type Error = StoreError;

    fn try_from(row: EntryRow) -> StoreResult<Self> {
        Ok(Self {
            index: unsigned(row.idx)?,
            kind: row.kind,
            at: Timestamp::from_micros(row.at),
            actor: row.actor,
            payload_sha256: word(&row.payload_sha256)?,
            leaf_hash: word(&row.leaf_hash)?,
            payload: row.payload,
        })
    }
}

/// A node's level, its place there and its hash.
pub(crate) type NodeRow = (i32, i64, String);

/// Levels and places of nodes, to bind.
pub(crate) fn node_columns(nodes: impl Iterator<Item = (u32, u64)>) -> (Vec<i32>, Vec<i64>) {
    nodes.map(|(level, index)| (i32::try_from(level).unwrap_or(i32::MAX), signed(index))).unzip()
}

/// Reads a head.
pub(crate) fn frontier(size: i64, hex: &str) -> StoreResult<Frontier> {
    Frontier::from_hex(unsigned(size)?, hex)
        .map_err(|error| StoreError::corrupt(format_args!("the head of a ledger: {error}")))
}

#[async_trait]
impl LedgerStore for PostgresStore {
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>> {
        let head = self.ask_of(org, HEAD).first::<(i64, String)>().await?;
        head.map(|(size, hex)| frontier(size, &hex)).transpose()
    }

    async fn ledger_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        let question = self.ask_of(org, ENTRIES).long().bind(signed(first)).bind(signed(limit));
        let question = question.bind(signed(LEDGER_PAGE));
        question.all_as(|row: EntryRow| StoredEntry::try_from(row)).await
    }

    async fn ledger_entries_at(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<StoredEntry>> {
        let indexes = BTreeSet::from_iter(indexes).into_iter().map(|index| signed(*index));
        let question = self.ask_of(org, ENTRIES_AT).long().bind(Vec::from_iter(indexes));
        question.all::<EntryRow>().await?.into_iter().map(StoredEntry::try_from).collect()
    }

    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<LedgerHashes> {
        let (first, past): (Vec<_>, Vec<_>) =
            needs.leaves.iter().map(|range| (signed(range.start), signed(range.end))).unzip();
        let (levels, places) = node_columns(needs.nodes.iter().copied());
        let question = self.ask_of(org, HASHES).bind(first).bind(past).bind(levels).bind(places);
        let mut known = LedgerHashes::default();
        for (level, index, hash) in question.all::<NodeRow>().await? {
            let (index, hash) = (unsigned(index)?, word(&hash)?);
            match unsigned(level.into())? {
                0 => known.leaves.insert(index, hash),
                level => known.nodes.insert((u32::try_from(level).unwrap_or(u32::MAX), index), hash),
            };
        }
        Ok(known)
    }
}
