//! The store contract. A store answers typed queries and changes in exactly one way: [`Recorder::record`].
//!
//! What a store promises, checked by the conformance suite but for the three that [`crate::conformance`] names:
//!
//! - A call to `record` is one transaction: every fact, its ledger leaf and its rows, or nothing. On `Err` nothing changed.
//! - When it answers, the write is durable. A dropped future leaves all of it or none.
//! - Guards are checked against the store and against the earlier writes of the same group. A failed one is
//!   [`StoreError::Conflict`]; so is a fact that would create a name which exists.
//! - Each organization has one ledger without fork or gap: leaf, interior nodes and head change in the same transaction.
//! - What does not exist is `None`, or absent from a list. Unknown ids are passed over.
//! - Names compare and sort by bytes; searches that ignore case fold ASCII only; `%` and `_` are ordinary characters.
//! - Every list has a total order, named at its method. A page past the end is empty, with the right total.
//! - Time and ids come from the caller. A store reads no clock and draws no randomness.
//! - Queries and facts of one organization never show or touch another's.
//! - A stored record that cannot be read is [`StoreError::Corrupt`] where it is asked for alone; a list leaves it out and
//!   names it in the log ([`skip_corrupt`]), so that it hides no other. [`artifacts`](ArtifactStore::artifacts) and
//!   [`instances`](SnapshotStore::instances) are no such lists: decisions rest on all that they answer.
//! - A query takes a bounded number of statements, whatever the size of its answer.
//!
//! # Writing a store
//!
//! [`MemoryStore`](crate::memory::MemoryStore) is this contract, executable, in the obvious way; the SQLite store is it
//! in SQL. In this order each step has checks that pass when it is done (`cargo test --test conformance -- <part>`, see
//! [`crate::conformance`]), and everything that is not written yet may answer [`StoreError::Failed`]:
//!
//! 1. [`LedgerStore`] and a [`Recorder`] that keeps entries alone (`ledger`): an organization has a head, a
//!    [`Frontier`]; each fact becomes an [`EncodedFact`](crate::fact::EncodedFact), its leaf hash is appended, and what
//!    [`Frontier::append`] answers are the nodes to keep. Entries, nodes and head change in one transaction.
//! 2. Names and guards (`recording`, with [`FlowStore`] and [`TrailStore`] as far as these checks ask), then writes that
//!    meet on several threads (`races`).
//! 3. The rows of the other facts, and the queries about them: `orgs`, `service_accounts`, `flows`, `trails`,
//!    `artifacts`, `builds`, `attestations`, `repos`, `environments`, `snapshots`, `policies`, `actions`, `allowlists`, `attestation_types`,
//!    `controls`, `texts`.
//! 4. [`Blobs`] (`blobs`), [`PendingStore`] (`pending`), [`FeedStore`] (`feed`), and [`Transfer`](crate::transfer::Transfer)
//!    if it is to be copied (`transfer`).
//!
//! ## What recording has to do
//!
//! For each write in the order of arrival, in a transaction that excludes other writes to the same organization:
//!
//! - [`Write::begins_ledger`] says that the organization begins with this write: there must be none with its id yet.
//!   Without it there must be one; a write to an organization that does not exist is [`StoreError::Failed`].
//! - Every [`Guard`](crate::Guard) holds, and no name that a fact claims ([`Fact::name_effects`](crate::Fact)) is
//!   claimed by another record. Names of organizations and users are looked for in the whole store, everything else in
//!   the write's organization. [`Directory`](crate::directory::Directory) decides this from what was looked up. The hash
//!   of a key, from [`Write::secrets`], must be new, too. If anything of this does not hold, it is
//!   [`StoreError::Conflict`] and nothing is written.
//! - Each fact gets the next index. Where it has a [`subject`](crate::Fact::subject), that index is the record's revision
//!   from then on ([`Current::revision`]): later facts about a record replace it, and say in `record` how it is.
//! - Its entry has the time of the write, or that of the entry before where that is later: time never goes back, but for a
//!   fact that says so ([`Fact::turns_time_back`](crate::Fact::turns_time_back)): its entry has exactly the time of the
//!   write, and no entry before counts as recorded later ([`StoredEntry::effective_at`]).
//! - It enters the rows by which the queries find it: those that the core derives from it
//!   ([`Fact::index_rows`](crate::Fact::index_rows)), so that a store knows no fact. A body need not be stored twice: the
//!   entry's payload holds it, and a row that points there by index is enough.
//!
//! ## What the rows have to answer
//!
//! Each method of the `…Store` traits says by what it finds records, in which order it answers them, and how many: one,
//! all, a page and the total, or one for each thing that was asked for. Where the id of an organization is the first
//! argument, the query is about that organization alone; of one that does not exist nothing is found.
//!
//! A snapshot's fact tells changes, not states: what runs in snapshot `n` is what changed last at or before it and has
//! not exited. The stores keep an interval for each run of an artifact, from a snapshot until before another.

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
use crate::controls::store::ControlStore;
use crate::deployments::store::DeploymentStore;
use crate::environments::store::EnvironmentStore;
use crate::fact::Write;
use crate::feed::FeedStore;
use crate::flows::store::FlowStore;
use crate::id::Id;
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

/// A page of a ledger ends once its payloads have so many bytes. It always has an entry, however long.
pub const LEDGER_PAGE: u64 = 4 << 20;

/// The one way to change anything.
#[async_trait]
pub trait Recorder: Send + Sync {
    /// Records every fact of `write`, or none; answers their ledger entries once they are durable.
    async fn record(&self, write: Write) -> StoreResult<Vec<Entry>>;
}

/// Queries about the ledger.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// The head of an organization's ledger, one; `None` when there is no such organization.
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>>;
    /// How many entries the ledgers of these organizations have, one an organization, in any order; unknown organizations are
    /// passed over.
    async fn ledger_sizes(&self, orgs: &[Id]) -> StoreResult<Vec<(Id, u64)>>;
    /// The entries from index `first` on, ordered by index: at most `limit`, and none that [`LEDGER_PAGE`] bytes of others
    /// come before.
    async fn ledger_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>>;
    /// The leaves from index `first` on, ordered by index: at most `limit`. No payload is read for them.
    async fn ledger_leaves(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<Leaf>>;
    /// The entries at these indexes, one an index, in any order; unknown indexes are passed over.
    async fn ledger_entries_at(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<StoredEntry>>;
    /// The effective times of the entries at these indexes ([`StoredEntry::effective_at`]), one an index, in any order;
    /// unknown indexes are passed over.
    async fn ledger_times(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<(u64, Timestamp)>>;
    /// How many entries were recorded at or before this time, by their effective times; 0 where there is no such
    /// organization.
    async fn ledger_size_at(&self, org: Id, at: Timestamp) -> StoreResult<u64>;
    /// The leaf hashes and stored nodes of `needs`, one each, as far as they exist.
    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<LedgerHashes>;
}

/// Queries about the store as a whole.
#[async_trait]
pub trait Health: Send + Sync {
    /// Answers once the store was read and written. What it writes is a row that every call overwrites: neither a ledger nor
    /// the store grows.
    async fn ready(&self) -> StoreResult<()>;
    /// Refuses a time that is too far ahead of the store's reference clock ([`ReferenceClock`]) with
    /// [`StoreError::ClockAhead`], as recording does. A store without such a clock accepts every time.
    async fn check_clock(&self, now: Timestamp) -> StoreResult<()>;
    /// The time of the newest entry: of the last entries of all ledgers, the latest time.
    async fn newest_entry(&self) -> StoreResult<Option<Timestamp>>;
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
    + FeedStore
    + DeliveryStore
    + PendingStore
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
        + FeedStore
        + DeliveryStore
        + PendingStore
        + 'static
{
}
