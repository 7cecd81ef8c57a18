//! The ledger's tables: entries, stored nodes and heads.

use async_trait::async_trait;
use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::ledger::{Frontier, LedgerHashes, Needs};
use evidence_core::store::{LEDGER_PAGE, LedgerStore, StoreResult, StoredEntry};
use evidence_core::time::Timestamp;

use crate::db::SqliteStore;
use crate::rows::{Payload, list, once, signed, unsigned, word};

pub(crate) const INSERT_ENTRIES: &str = "
    INSERT INTO ledger (org, idx, kind, at, actor, payload_sha256, leaf_hash, payload)
    SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6,
        CAST(substr($2, value->>7, value->>8) AS TEXT)
    FROM json_each($1)";

pub(crate) const INSERT_NODES: &str = "
    INSERT INTO node (org, level, idx, hash)
    SELECT value->>0, value->>1, value->>2, value->>3 FROM json_each($1)";

/// The heads were read in the same transaction, which excludes every other writer: nothing to compare.
pub(crate) const PUT_HEADS: &str = "
    INSERT INTO head (org, size, frontier)
    SELECT value->>0, value->>1, value->>2 FROM json_each($1) WHERE true
    ON CONFLICT (org) DO UPDATE SET size = excluded.size, frontier = excluded.frontier";

const HEAD: &str = "
    SELECT h.size, h.frontier FROM organization o JOIN head h ON h.org = o.key WHERE o.id = $1";

/// At most `$3` entries of a ledger from `$2` on, but none that `$4` bytes of others come before. The payloads are measured
/// without being read.
macro_rules! page_of_entries {
    ($ledger:literal, $org:literal) => {
        concat!(
            "SELECT l.idx, l.kind, l.at, l.actor, l.payload_sha256, l.leaf_hash, l.payload FROM (
                SELECT idx, sum(size) OVER (ORDER BY idx) - size AS bytes_before FROM (
                    SELECT idx, coalesce(octet_length(payload), 0) AS size FROM ",
            $ledger,
            " WHERE org = ",
            $org,
            " AND idx >= $2 ORDER BY idx LIMIT $3)) p CROSS JOIN ",
            $ledger,
            " l ON l.org = ",
            $org,
            " AND l.idx = p.idx WHERE p.bytes_before < $4 ORDER BY p.idx"
        )
    };
}
pub(crate) use page_of_entries;

const ENTRIES: &str = page_of_entries!("ledger", "(SELECT key FROM organization WHERE id = $1)");

const ENTRIES_AT: &str = "
    SELECT l.idx, l.kind, l.at, l.actor, l.payload_sha256, l.leaf_hash, l.payload
    FROM json_each($2) w CROSS JOIN ledger l
        ON l.org = (SELECT key FROM organization WHERE id = $1) AND l.idx = w.value";

const HASHES: &str = "
    SELECT 0, l.idx, l.leaf_hash FROM organization o CROSS JOIN json_each($2) r
        CROSS JOIN ledger l ON l.org = o.key AND l.idx >= r.value->>0 AND l.idx < r.value->>1 WHERE o.id = $1
    UNION ALL
    SELECT n.level, n.idx, n.hash FROM organization o CROSS JOIN json_each($3) r
        CROSS JOIN node n ON n.org = o.key AND n.level = r.value->>0 AND n.idx = r.value->>1 WHERE o.id = $1";

/// A row of the ledger: index, kind, time, actor, the payload's hash, the leaf's hash, payload.
pub(crate) type EntryRow = (i64, String, i64, String, String, String, Payload);

/// Reads an entry. A payload that is no text any more becomes one that its hash does not match, and a missing one is empty.
pub(crate) fn entry(row: EntryRow) -> StoreResult<StoredEntry> {
    let (index, kind, at, actor, payload_sha256, leaf_hash, payload) = row;
    let (payload_sha256, leaf_hash) = (word(&payload_sha256)?, word(&leaf_hash)?);
    let (index, at) = (unsigned(index)?, Timestamp::from_micros(at));
    let payload = String::from_utf8_lossy(payload.bytes().unwrap_or_default()).into_owned();
    Ok(StoredEntry { index, kind, at, actor, payload_sha256, leaf_hash, payload })
}

/// Reads a head.
pub(crate) fn frontier(size: i64, hex: &str) -> StoreResult<Frontier> {
    Frontier::from_hex(unsigned(size)?, hex)
        .map_err(|error| StoreError::corrupt(format_args!("the head of a ledger: {error}")))
}

#[async_trait]
impl LedgerStore for SqliteStore {
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>> {
        let head = self.ask_of(org, HEAD).first::<(i64, String)>().await?;
        head.map(|(size, hex)| frontier(size, &hex)).transpose()
    }

    async fn ledger_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        let question = self.ask_of(org, ENTRIES).bind(signed(first)).bind(signed(limit));
        question.bind(signed(LEDGER_PAGE)).long().all_as(entry).await
    }

    async fn ledger_entries_at(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<StoredEntry>> {
        let question = self.ask_of(org, ENTRIES_AT).bind(once(indexes)?);
        question.about(indexes.len()).all_as(entry).await
    }

    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<LedgerHashes> {
        let leaves: Vec<(u64, u64)> = needs.leaves.iter().map(|range| (range.start, range.end)).collect();
        let question = self.ask_of(org, HASHES).bind(list(&leaves)?).bind(list(&needs.nodes)?);
        let mut known = LedgerHashes::default();
        for (level, index, hash) in question.all::<(u32, i64, String)>().await? {
            let (index, hash) = (unsigned(index)?, word(&hash)?);
            match level {
                0 => known.leaves.insert(index, hash),
                level => known.nodes.insert((level, index), hash),
            };
        }
        Ok(known)
    }
}
