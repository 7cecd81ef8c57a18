//! Entries of a ledger as a store answers them, and records with the revision that is their newest entry's index.

use crate::ledger::Hash;
use crate::time::Timestamp;

/// A record and the ledger index of the fact that last changed it, for [`crate::Guard::Revision`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current<T> {
    /// The ledger index of its newest fact.
    pub revision: u64,
    /// The record.
    pub record: T,
}

/// Where a fact stands in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its index, from 0.
    pub index: u64,
    /// The hash of its leaf.
    pub leaf_hash: Hash,
}

/// What the ledger's tree has of an entry, and what tells whether its payload is worth reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The entry's index, from 0.
    pub index: u64,
    /// The fact's kind.
    pub kind: String,
    /// Bytes of the payload.
    pub bytes: u64,
    /// The leaf hash as stored.
    pub leaf_hash: Hash,
}

/// A ledger entry with its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its index, from 0.
    pub index: u64,
    /// The fact's kind.
    pub kind: String,
    /// When it was recorded, by the clock of the server that did so.
    pub at: Timestamp,
    /// The time that windows and order go by: `at`, or, where the clock was ahead, the time at which that was corrected
    /// ([`Fact::ClockCorrected`](crate::Fact::ClockCorrected)). It never goes back in a ledger.
    pub effective_at: Timestamp,
    /// Who did it, as `user:<name>`, `service-account:<name>` or `operator:<name>`.
    pub actor: String,
    /// The SHA-256 of the payload.
    pub payload_sha256: Hash,
    /// The leaf hash as stored.
    pub leaf_hash: Hash,
    /// The fact's JSON.
    pub payload: String,
}
