//! The store contract. A store answers typed questions and changes in exactly one way: [`Recorder::record`].
//!
//! What a store promises, each sentence a check of the conformance suite:
//!
//! - A call to `record` is one transaction: every fact, its ledger leaf and its rows, or nothing. On `Err` nothing changed.
//! - When it answers, the write is durable. A dropped future leaves all of it or none.
//! - Guards are checked against the store and against the earlier writes of the same group. A failed one is
//!   [`StoreError::Conflict`]; so is a fact that would create a name which exists.
//! - Each organization has one ledger without fork or gap: leaf, interior nodes and head change in the same transaction.
//! - What does not exist is `None`, or absent from a list. Unknown ids are passed over.
//! - Names compare and sort by bytes; searches that ignore case fold ASCII only; `%` and `_` are ordinary characters.
//! - Every list has a total order, named at its question. A window past the end is empty, with the right total.
//! - Time and ids come from the caller. A store reads no clock and draws no randomness.
//! - Questions and facts of one organization never show or touch another's.
//! - A question takes a bounded number of statements, whatever the size of its answer.

use async_trait::async_trait;

use crate::allowlists::AllowlistStore;
use crate::artifacts::ArtifactStore;
use crate::attestation_types::AttestationTypeStore;
use crate::attestations::AttestationStore;
use crate::blobs::Blobs;
use crate::environments::EnvironmentStore;
use crate::fact::Write;
use crate::flows::FlowStore;
use crate::id::Id;
use crate::ledger::{Frontier, Hash, Known, Needs};
use crate::orgs::OrgStore;
use crate::policies::PolicyStore;
use crate::repos::RepoStore;
use crate::service_accounts::ServiceAccountStore;
use crate::snapshots::SnapshotStore;
use crate::time::Timestamp;
use crate::trails::TrailStore;

/// The result of asking a store.
pub type StoreResult<T> = Result<T, StoreError>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a store did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A guard no longer holds, or a name is taken: read and decide again.
    #[error("the state changed meanwhile")]
    Conflict,
    /// The store cannot be reached, is saturated, full or read-only: try again later.
    #[error("the store is not available: {0}")]
    Unavailable(#[source] Source),
    /// A stored record cannot be read.
    #[error("a stored record is damaged: {what}")]
    Corrupt {
        /// Which record, and what is wrong with it.
        what: String,
    },
    /// Anything else; a defect.
    #[error("the store failed: {0}")]
    Failed(#[source] Source),
}

impl StoreError {
    /// A record that cannot be read.
    pub fn corrupt(what: impl std::fmt::Display) -> Self {
        Self::Corrupt { what: what.to_string() }
    }
}

/// A record and the ledger index of the fact that last changed it, for [`crate::Guard::Unchanged`].
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

/// A ledger entry with its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its index, from 0.
    pub index: u64,
    /// The fact's kind.
    pub kind: String,
    /// When it happened.
    pub at: Timestamp,
    /// Who did it, as `user:<name>` or `service-account:<name>`.
    pub actor: String,
    /// The SHA-256 of the payload.
    pub payload_sha256: Hash,
    /// The leaf hash as stored.
    pub leaf_hash: Hash,
    /// The fact's JSON.
    pub payload: String,
}

/// The one way to change anything.
#[async_trait]
pub trait Recorder: Send + Sync {
    /// Records every fact of `write`, or none; answers their ledger entries once they are durable.
    async fn record(&self, write: Write) -> StoreResult<Vec<Entry>>;
}

/// Questions about the ledger.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// The head of an organization's ledger; `None` when there is no such organization.
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>>;
    /// At most `limit` entries from `first` on, by index.
    async fn ledger_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>>;
    /// The leaf hashes and stored nodes of `needs`, as far as they exist.
    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<Known>;
}

/// Questions about the store as a whole.
#[async_trait]
pub trait Health: Send + Sync {
    /// Answers once the store can be read.
    async fn ready(&self) -> StoreResult<()>;
}

/// Everything the service needs of a store: the sum of the small traits, implemented by whatever implements them.
pub trait Store:
    Recorder
    + LedgerStore
    + Health
    + Blobs
    + OrgStore
    + ServiceAccountStore
    + FlowStore
    + TrailStore
    + ArtifactStore
    + AttestationStore
    + RepoStore
    + EnvironmentStore
    + SnapshotStore
    + PolicyStore
    + AllowlistStore
    + AttestationTypeStore
    + 'static
{
}

impl<T> Store for T where
    T: Recorder
        + LedgerStore
        + Health
        + Blobs
        + OrgStore
        + ServiceAccountStore
        + FlowStore
        + TrailStore
        + ArtifactStore
        + AttestationStore
        + RepoStore
        + EnvironmentStore
        + SnapshotStore
        + PolicyStore
        + AllowlistStore
        + AttestationTypeStore
        + 'static
{
}
