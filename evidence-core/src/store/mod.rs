//! The store contract. A store answers typed queries, and has exactly one way to change anything:
//! [`Recorder::record`].
//!
//! The conformance suite (`evidence-conformance`) checks these guarantees of a store, except for three that
//! its documentation names:
//!
//! - A call to `record` is one transaction: every fact, its ledger leaf and its rows, or nothing. On `Err`
//!   nothing changed, except that [`StoreError::OutcomeUnknown`] leaves it open.
//! - When it returns, the write is durable. A dropped future leaves all of it or none.
//! - Preconditions are checked against the store and against the earlier writes of the same group. If one
//!   fails, the result is [`StoreError::Conflict`]. The same applies to a fact that would create an existing
//!   name.
//! - Each organization has one ledger without fork or gap. Leaf, interior nodes and head change in the same
//!   transaction.
//! - A missing record is `None`, or absent from a list. Unknown ids are skipped.
//! - Names compare and sort by bytes. Case-insensitive searches fold ASCII only. `%` and `_` are ordinary
//!   characters.
//! - Every list has a total order, documented at its method. A page past the end is empty, with the correct
//!   total.
//! - Time and ids come from the caller. A store reads no clock and generates no random numbers.
//! - Queries and facts of one organization never show or affect data of another.
//! - A stored record that cannot be read is [`StoreError::Corrupt`] in a query for that record. A list leaves
//!   it out and logs it ([`skip_corrupt`]), so that it does not hide others. The lists
//!   [`artifacts`](ArtifactStore::artifacts) and [`instances`](SnapshotStore::instances) are exceptions,
//!   because decisions depend on all their items.
//! - A query uses a bounded number of statements, whatever the size of its result.
//!
//! # Writing a store
//!
//! `evidence_conformance::memory::MemoryStore` is a straightforward executable form of this contract; the
//! SQLite store implements it in SQL. Follow the steps in this order. Each has checks that pass when it is
//! complete (`cargo test --test conformance -- <part>`, see `evidence-conformance`). Methods that are not
//! implemented yet may return [`StoreError::Failed`].
//!
//! 1. [`LedgerStore`], and a [`Recorder`] that stores only entries (`ledger`). An organization has a head, a
//!    [`Frontier`]. Each fact becomes an [`EncodedFact`](crate::fact::EncodedFact) and its leaf hash is
//!    appended. Store the nodes that [`Frontier::append`] returns. Entries, nodes and head change in one
//!    transaction.
//! 2. Names and preconditions (`recording`, with the parts of [`FlowStore`] and [`TrailStore`] that these
//!    checks use). Then concurrent writes on several threads (`races`).
//! 3. The rows of the other facts, and the queries about them: `orgs`, `service_accounts`, `flows`, `trails`,
//!    `artifacts`, `builds`, `attestations`, `repos`, `environments`, `snapshots`, `policies`, `actions`,
//!    `allowlists`, `attestation_types`, `controls`, `texts`.
//! 4. [`Blobs`] (`blobs`), [`PendingStore`] (`pending`), [`LeaseStore`] (`leases`), and
//!    [`Transfer`](crate::transfer::Transfer) if stores can be copied (`transfer`).
//!
//! ## Recording
//!
//! Handle writes in the order of arrival, each in a transaction that excludes other writes to the same
//! organization:
//!
//! - If [`Write::begins_ledger`] is set, the organization begins with this write: its id must not exist yet.
//!   Otherwise it must exist; a write to a missing organization is [`StoreError::Failed`].
//! - Every [`Precondition`](crate::Precondition) holds, and no other record claims a name that a fact claims
//!   ([`Fact::name_effects`](crate::Fact)). Names of organizations and users are unique in the whole store,
//!   all others in the write's organization. The type [`NameIndex`](crate::name_index::NameIndex) makes this
//!   decision from the results of the look-ups. The hash of a key, from [`Write::secrets`], must be new too.
//!   If any of these conditions fails, the result is [`StoreError::Conflict`] and nothing is written.
//! - Each fact gets the next index. If it has a [`subject`](crate::Fact::subject), that index becomes the
//!   record's revision ([`Current::revision`]). Later facts about a record replace it; their `record` field
//!   has the new state.
//! - Its entry has the time of the write, or the time of the previous entry if that is later, so time never
//!   decreases. The exception is a fact with [`Fact::corrects_clock`](crate::Fact::corrects_clock): its
//!   entry has exactly the time of the write. No earlier entry then counts as recorded later
//!   ([`StoredEntry::effective_at`]).
//! - It updates the rows by which queries find it. The core derives them from the fact
//!   ([`Fact::index_rows`](crate::Fact::index_rows)), so a store need not know any fact. A body need not be
//!   stored twice: the entry's payload contains it, and a row can refer to it by index.
//!
//! ## Queries
//!
//! Each method of the `…Store` traits documents how it finds records, their order, and how many it returns:
//! one, all, a page with the total, or one for each requested item. If the first argument is the id of an
//! organization, the query covers only that organization. For an organization that does not exist, it finds
//! nothing.
//!
//! A snapshot's fact contains changes, not states. The artifacts of snapshot `n` are those that changed last
//! at or before it and have not exited. The stores hold an interval for each run of an artifact, from a
//! snapshot until before another.

pub(crate) mod batch;
pub(crate) mod entry;
pub(crate) mod error;

use async_trait::async_trait;

use crate::actions::store::ActionStore;
use crate::allowlists::store::AllowlistStore;
use crate::artifacts::store::ArtifactStore;
use crate::attestation_types::store::AttestationTypeStore;
use crate::attestations::store::AttestationStore;
use crate::blobs::Blobs;
use crate::builds::store::BuildStore;
use crate::checkpoints::store::CheckpointStore;
use crate::controls::store::ControlStore;
use crate::deployments::store::DeploymentStore;
use crate::environments::store::EnvironmentStore;
use crate::fact::Write;
use crate::flows::store::FlowStore;
use crate::id::Id;
use crate::leases::LeaseStore;
use crate::ledger::{Frontier, LedgerHashes, Needs};
use crate::notifications::store::DeliveryStore;
use crate::orgs::store::OrgStore;
use crate::policies::store::PolicyStore;
use crate::repos::store::RepoStore;
use crate::service_accounts::store::ServiceAccountStore;
use crate::snapshots::store::SnapshotStore;
use crate::sweep::store::PendingStore;
use crate::tags::store::TagStore;
use crate::texts::store::TextStore;
use crate::time::Timestamp;
use crate::trails::store::TrailStore;

pub use batch::distinct;
pub use entry::{Current, Entry, Leaf, StoredEntry};
pub use error::{
    ClockAhead, MAX_CLOCK_JUMP, MAX_CLOCK_LEAD, ReferenceClock, StoreError, StoreResult, skip_corrupt,
};

/// A page of a ledger ends when its payloads have this many bytes. It always has at least one entry, whatever
/// its size.
pub const LEDGER_PAGE: u64 = 4 << 20;

/// The only way to change anything.
#[async_trait]
pub trait Recorder: Send + Sync {
    /// Records every fact of `write`, or none. Returns their ledger entries once they are durable.
    async fn record(&self, write: Write) -> StoreResult<Vec<Entry>>;
}

/// Queries about the ledger.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// Returns the head of an organization's ledger; `None` if there is no such organization.
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>>;
    /// Returns the numbers of entries in the ledgers of these organizations, one per organization, in any
    /// order. Unknown organizations are skipped.
    async fn ledger_sizes(&self, orgs: &[Id]) -> StoreResult<Vec<(Id, u64)>>;
    /// Returns the entries from index `first` on, sorted by index: at most `limit`, and none after
    /// [`LEDGER_PAGE`] bytes of others.
    async fn ledger_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>>;
    /// Returns the leaves from index `first` on, sorted by index: at most `limit`. Reads no payloads.
    async fn ledger_leaves(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<Leaf>>;
    /// Returns the entries at these indexes, one per index, in any order. Unknown indexes are skipped.
    async fn ledger_entries_at(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<StoredEntry>>;
    /// Returns the effective times of the entries at these indexes ([`StoredEntry::effective_at`]), one per
    /// index, in any order. Unknown indexes are skipped.
    async fn ledger_times(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<(u64, Timestamp)>>;
    /// Returns the number of entries recorded at or before this time, by their effective times; 0 if there is
    /// no such organization.
    async fn ledger_size_at(&self, org: Id, at: Timestamp) -> StoreResult<u64>;
    /// Returns the index of the last entry about the record with this id: a trail, an artifact report, an attestation or a
    /// record of another [kind](crate::RecordKind) that is not named after its user. `None` if there is no such record.
    async fn record_entry(&self, org: Id, record: Id) -> StoreResult<Option<u64>>;
    /// Returns the existing ones of the leaf hashes and stored nodes in `needs`, each once.
    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<LedgerHashes>;
}

/// Queries about the store as a whole.
#[async_trait]
pub trait Health: Send + Sync {
    /// Returns once the store has been read and written. The write overwrites the same row in every call, so
    /// neither a ledger nor the store grows.
    async fn ready(&self) -> StoreResult<()>;
    /// Refuses a time that is too far ahead of the store's reference clock ([`ReferenceClock`]) with
    /// [`StoreError::ClockAhead`], as recording does. A store without such a clock accepts every time.
    async fn check_clock(&self, now: Timestamp) -> StoreResult<()>;
    /// Returns the time of the newest entry: the latest time among the last entries of all ledgers.
    async fn newest_entry(&self) -> StoreResult<Option<Timestamp>>;
}

/// Everything that the service needs from a store: the sum of the small traits. Implemented for every type
/// that implements them.
pub trait Store:
    Recorder
    + LedgerStore
    + CheckpointStore
    + Health
    + Blobs
    + OrgStore
    + ServiceAccountStore
    + FlowStore
    + TrailStore
    + ArtifactStore
    + BuildStore
    + AttestationStore
    + RepoStore
    + EnvironmentStore
    + SnapshotStore
    + DeploymentStore
    + PolicyStore
    + ActionStore
    + AllowlistStore
    + AttestationTypeStore
    + ControlStore
    + TagStore
    + TextStore
    + LeaseStore
    + DeliveryStore
    + PendingStore
    + 'static
{
}

impl<T> Store for T where
    T: Recorder
        + LedgerStore
        + CheckpointStore
        + Health
        + Blobs
        + OrgStore
        + ServiceAccountStore
        + FlowStore
        + TrailStore
        + ArtifactStore
        + BuildStore
        + AttestationStore
        + RepoStore
        + EnvironmentStore
        + SnapshotStore
        + DeploymentStore
        + PolicyStore
        + ActionStore
        + AllowlistStore
        + AttestationTypeStore
        + ControlStore
        + TagStore
        + TextStore
        + LeaseStore
        + DeliveryStore
        + PendingStore
        + 'static
{
}
