//! An organization's ledger: its entries, and the tree nodes for proofs.

use std::collections::BTreeMap;

use async_trait::async_trait;

use evidence_core::fact::{EncodedFact, Fact};
use evidence_core::id::Id;
use evidence_core::ledger::{Frontier, Hash, LedgerHashes, Needs};
use evidence_core::store::{Entry, LEDGER_PAGE, Leaf, LedgerStore, StoreResult, StoredEntry, distinct};
use evidence_core::time::Timestamp;
use evidence_core::trails::TrailEntry;

use super::{MemoryStore, at_most};

/// The entries of a ledger, without gaps.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    frontier: Frontier,
    entries: Vec<Recorded>,
    nodes: BTreeMap<(u32, u64), Hash>,
}

/// An entry and its trail, if it has one.
#[derive(Debug)]
struct Recorded {
    entry: StoredEntry,
    trail: Option<Id>,
}

impl Ledger {
    pub(super) fn frontier(&self) -> &Frontier {
        &self.frontier
    }

    /// Appends an entry, and returns it with its time. That is the time of `prepared`; unless `exactly`, it is
    /// at least the time of the previous entry. If the fact corrects a clock, no earlier entry keeps a later
    /// effective time.
    pub(super) fn append(&mut self, prepared: EncodedFact, exactly: bool) -> (Entry, Timestamp) {
        let index = self.frontier.size();
        let exactly = exactly || prepared.fact.corrects_clock();
        let last = self.entries.last().filter(|_| !exactly);
        let at = last.map_or(prepared.at, |last| prepared.at.max(last.entry.at));
        let corrects_clock = prepared.fact.corrects_clock();
        let (trail, entry) = (trail_of(&prepared.fact), prepared.into_entry(index, at));
        let leaf_hash = entry.leaf_hash;
        for node in self.frontier.append(leaf_hash) {
            self.nodes.insert((node.level, node.index), node.hash);
        }
        if corrects_clock {
            for Recorded { entry, .. } in &mut self.entries {
                entry.effective_at = entry.effective_at.min(at);
            }
        }
        self.entries.push(Recorded { entry, trail });
        (Entry { index, leaf_hash }, at)
    }

    /// Returns the time of the last entry.
    pub(super) fn last(&self) -> Option<Timestamp> {
        self.entries.last().map(|recorded| recorded.entry.at)
    }

    /// Returns the effective time of a record of this entry: its own time, or that of the earliest later
    /// correction of a clock if that is earlier.
    pub(super) fn corrected(&self, index: u64, at: Timestamp) -> Timestamp {
        let later = self.entries.iter().map(|recorded| &recorded.entry).filter(|entry| entry.index > index);
        let corrections = later.filter(|entry| entry.kind == "clock_corrected").map(|entry| entry.at);
        corrections.fold(at, Timestamp::min)
    }

    /// Returns the effective time of this entry.
    pub(super) fn time(&self, index: u64) -> Option<Timestamp> {
        let entry = self.entries.get(usize::try_from(index).ok()?);
        entry.map(|recorded| recorded.entry.effective_at)
    }

    pub(super) fn entries(&self, first: u64, limit: u64) -> Vec<StoredEntry> {
        let wanted = first..first.saturating_add(limit);
        let entries = self.entries.iter().map(|recorded| &recorded.entry);
        let mut bytes = 0;
        let fits = |entry: &&StoredEntry| {
            let fits = bytes < LEDGER_PAGE;
            bytes += entry.payload.len() as u64;
            fits
        };
        entries.filter(|entry| wanted.contains(&entry.index)).take_while(fits).cloned().collect()
    }

    pub(super) fn leaves(&self, first: u64, limit: u64) -> Vec<Leaf> {
        let from = self.entries.iter().map(|recorded| &recorded.entry).filter(|entry| entry.index >= first);
        let leaf = |entry: &StoredEntry| Leaf {
            index: entry.index,
            kind: entry.kind.clone(),
            at: entry.at,
            actor: entry.actor.clone(),
            payload_hash: entry.payload_hash,
            bytes: entry.payload.len() as u64,
            leaf_hash: entry.leaf_hash,
        };
        from.take(at_most(limit)).map(leaf).collect()
    }

    pub(super) fn entries_at(&self, indexes: &[u64]) -> Vec<StoredEntry> {
        let entries = self.entries.iter().map(|recorded| &recorded.entry);
        entries.filter(|entry| indexes.contains(&entry.index)).cloned().collect()
    }

    pub(super) fn size_at(&self, at: Timestamp) -> u64 {
        self.entries.iter().take_while(|recorded| recorded.entry.effective_at <= at).count() as u64
    }

    pub(super) fn about_members(&self, first: u64, limit: u64) -> Vec<StoredEntry> {
        let entries = self.entries.iter().map(|recorded| &recorded.entry);
        let is_about = |entry: &&StoredEntry| {
            entry.index >= first && ["member_added", "member_removed"].contains(&entry.kind.as_str())
        };
        entries.filter(is_about).take(at_most(limit)).cloned().collect()
    }

    pub(super) fn entry_about(&self, record: Id) -> Option<u64> {
        let mut entries = self.entries.iter().rev().map(|recorded| &recorded.entry);
        let is_about =
            |entry: &&StoredEntry| Fact::read(&entry.payload).is_ok_and(|fact| fact.record() == Some(record));
        entries.find(is_about).map(|entry| entry.index)
    }

    pub(super) fn about_trail(&self, trail: Id) -> Vec<TrailEntry> {
        let about = self.entries.iter().filter(|recorded| recorded.trail == Some(trail));
        let entry = |Recorded { entry, .. }: &Recorded| TrailEntry {
            index: entry.index,
            bytes: entry.payload.len() as u64,
        };
        about.map(entry).collect()
    }

    pub(super) fn hashes(&self, needs: &Needs) -> LedgerHashes {
        let entries = self.entries.iter().map(|recorded| &recorded.entry);
        let wanted = |index: u64| needs.leaves.iter().any(|range| range.contains(&index));
        let leaves = entries.filter(|entry| wanted(entry.index));
        let nodes = needs.nodes.iter().filter_map(|place| Some((*place, *self.nodes.get(place)?)));
        LedgerHashes {
            leaves: leaves.map(|entry| (entry.index, entry.leaf_hash)).collect(),
            nodes: nodes.collect(),
        }
    }
}

fn trail_of(fact: &Fact) -> Option<Id> {
    match fact {
        Fact::TrailBegun { record } | Fact::TrailUpdated { record, .. } => Some(record.id),
        Fact::ArtifactReported { record } => record.trail,
        Fact::AttestationAdded { record } => Some(record.trail),
        _ => None,
    }
}

#[async_trait]
impl LedgerStore for MemoryStore {
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>> {
        Ok(self.read()?.tables.get(&org).map(|tables| tables.ledger.frontier().clone()))
    }

    async fn ledger_sizes(&self, orgs: &[Id]) -> StoreResult<Vec<(Id, u64)>> {
        let state = self.read()?;
        let size = |org: &Id| Some((*org, state.tables.get(org)?.ledger.frontier().size()));
        Ok(distinct(orgs.iter().copied()).iter().filter_map(size).collect())
    }

    async fn ledger_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        self.query(org, |tables| tables.ledger.entries(first, limit))
    }

    async fn ledger_leaves(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<Leaf>> {
        Ok(self.read()?.tables.get(&org).map(|tables| tables.ledger.leaves(first, limit)).unwrap_or_default())
    }

    async fn ledger_entries_at(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<StoredEntry>> {
        self.query(org, |tables| tables.ledger.entries_at(indexes))
    }

    async fn ledger_times(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<(u64, Timestamp)>> {
        let entries = self.ledger_entries_at(org, indexes).await?;
        Ok(entries.into_iter().map(|entry| (entry.index, entry.effective_at)).collect())
    }

    async fn ledger_size_at(&self, org: Id, at: Timestamp) -> StoreResult<u64> {
        self.query(org, |tables| tables.ledger.size_at(at))
    }

    async fn record_entry(&self, org: Id, record: Id) -> StoreResult<Option<u64>> {
        self.query(org, |tables| tables.ledger.entry_about(record))
    }

    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<LedgerHashes> {
        self.query(org, |tables| tables.ledger.hashes(needs))
    }
}
