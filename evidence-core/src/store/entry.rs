//! Ledger entries as stores return them, and records with their revision: the index of their newest entry.

use crate::ledger::Hash;
use crate::time::Timestamp;

/// A record, with the ledger index of the fact that last changed it, for [`crate::Precondition::Revision`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current<T> {
    /// The ledger index of its newest fact.
    pub revision: u64,
    /// The record.
    pub record: T,
}

/// The position of a fact in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its index, from 0.
    pub index: u64,
    /// The hash of its leaf.
    pub leaf_hash: Hash,
}

/// The data about an entry in the ledger's tree, with the kind and the size of its payload. These show
/// whether the payload is worth reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The entry's index, from 0.
    pub index: u64,
    /// The fact's kind.
    pub kind: String,
    /// The size of the payload, in bytes.
    pub bytes: u64,
    /// The stored leaf hash.
    pub leaf_hash: Hash,
}

/// A ledger entry with its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its index, from 0.
    pub index: u64,
    /// The fact's kind.
    pub kind: String,
    /// When it was recorded, by the clock of the server that recorded it.
    pub at: Timestamp,
    /// The time for time ranges and ordering: `at` or, if the clock was ahead, the time of the correction
    /// ([`Fact::ClockCorrected`](crate::Fact::ClockCorrected)). It never decreases in a ledger.
    pub effective_at: Timestamp,
    /// The actor: `user:<name>`, `service-account:<name>` or `operator:<name>`.
    pub actor: String,
    /// The SHA-256 of the payload.
    pub payload_sha256: Hash,
    /// The stored leaf hash.
    pub leaf_hash: Hash,
    /// The fact as JSON.
    pub payload: String,
}
