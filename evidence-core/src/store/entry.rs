//! Ledger entries as stores return them, and records with their revision: the index of their newest entry.

use crate::ledger::{Hash, Header, Salt, payload_hash};
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

/// An entry without its payload, whose size shows whether it is worth reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The entry's index, from 0.
    pub index: u64,
    /// The fact's kind.
    pub kind: String,
    /// When it was recorded, by the clock of the server that recorded it.
    pub at: Timestamp,
    /// The actor, without a name: `user:<id>`, `service-account:<id>` or `operator`.
    pub actor: String,
    /// The [salted digest](payload_hash) of the payload.
    pub payload_hash: Hash,
    /// The size of the payload, in bytes.
    pub bytes: u64,
    /// The stored leaf hash.
    pub leaf_hash: Hash,
}

impl Leaf {
    /// Returns the header that the leaf hash covers.
    pub fn header(&self) -> Header<'_> {
        let Self { index, kind, at, actor, payload_hash, .. } = self;
        Header { index: *index, kind, at: at.as_micros(), actor, payload_hash: *payload_hash }
    }
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
    /// The actor, without a name: `user:<id>`, `service-account:<id>` or `operator`.
    pub actor: String,
    /// The [salted digest](payload_hash) of the payload.
    pub payload_hash: Hash,
    /// The stored leaf hash.
    pub leaf_hash: Hash,
    /// The salt of the payload's hash.
    pub salt: Salt,
    /// The JSON of the fact and of its actor's name.
    pub payload: String,
}

impl StoredEntry {
    /// Returns the header that the leaf hash covers.
    pub fn header(&self) -> Header<'_> {
        let Self { index, kind, at, actor, payload_hash, .. } = self;
        Header { index: *index, kind, at: at.as_micros(), actor, payload_hash: *payload_hash }
    }

    /// Returns whether the payload is the one that the header names.
    pub fn payload_matches(&self) -> bool {
        payload_hash(&self.salt, &self.payload) == self.payload_hash
    }
}
