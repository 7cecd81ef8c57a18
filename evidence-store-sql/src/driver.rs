//! The operations that a database provides to the store: run queries, write a group, and run single steps of
//! other writes. Everything else is in this crate, independent of the database.

use std::borrow::Cow;
use std::fmt::Debug;
use std::future::Future;

use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::queue::Queue;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;
use futures_util::future::BoxFuture;

use crate::blobs::BlobWrite;
use crate::record::Submission;
use crate::scratch::ScratchSession;
use crate::sql::{Dialect, Sql, payload};
use crate::value::{Row, Value};

/// A statement with its values: a query, or a write (see [`Statement::change`]).
#[derive(Debug, Clone)]
pub struct Statement {
    /// The SQL text, with the placeholders `$1`, `$2` and so on.
    pub sql: Cow<'static, str>,
    /// The values. A value that the text does not reference is ignored.
    pub values: Vec<Value>,
    /// The organization that the statement is about. Long statements count against its share of the
    /// connections.
    pub org: Option<Id>,
    /// The expected length of the result.
    pub cost: Cost,
}

impl Statement {
    /// Creates a statement that writes on its own, outside a group.
    #[must_use]
    pub fn change(sql: &'static str, values: Vec<Value>) -> Self {
        Self { sql: sql.into(), values, org: None, cost: Cost::Short }
    }
}

/// Selects the record of the kind `$2` and the name `$4`.
const BY_NAME: Sql = Sql::per_dialect(
    "SELECT r.ledger_index, l.payload FROM name n
    CROSS JOIN record r ON r.org = n.org AND r.kind = n.kind AND r.id = n.id
    LEFT JOIN ledger l ON l.org = r.org AND l.idx = r.ledger_index
    WHERE n.org = $1 AND n.kind = $2 AND n.name = $4",
    concat!(
        "SELECT r.ledger_index, ",
        payload!("r"),
        " FROM evidence.name n CROSS JOIN LATERAL (
            SELECT * FROM evidence.record WHERE org = $1 AND id = n.id AND kind = $2 OFFSET 0) r
        WHERE n.org = $1 AND n.kind = $2 AND n.name = $4"
    ),
);

/// Selects the trail of the flow `$3` and the name `$4`.
const TRAIL_BY_NAME: Sql = Sql::per_dialect(
    "SELECT t.ledger_index, l.payload FROM trail t LEFT JOIN ledger l ON l.org = t.org AND l.idx = t.ledger_index
    WHERE t.flow = $3 AND t.name = $4 AND +t.org = $1",
    concat!(
        "SELECT t.ledger_index, ",
        payload!("t"),
        " FROM evidence.trail t WHERE t.org = $1 AND t.flow = $3 AND t.name = $4"
    ),
);

impl Statement {
    /// Creates the query for the row of a record by its name ([`Driver::by_name`]).
    #[must_use]
    pub fn by_name(dialect: Dialect, org: Id, kind: &str, flow: Option<Id>, name: String) -> Self {
        let sql = if flow.is_some() { TRAIL_BY_NAME } else { BY_NAME };
        let values = vec![Value::Org(org), kind.into(), flow.into(), name.into()];
        Self { sql: sql.text(dialect).into(), values, org: Some(org), cost: Cost::Short }
    }
}

/// The expected length of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// One or two rows.
    Short,
    /// A few rows for each of this many items.
    PerItem(usize),
    /// Any number of rows.
    Long,
}

/// Work that runs in a session with scratch tables.
pub type ScratchWork<S, T> = Box<dyn FnOnce(S) -> BoxFuture<'static, StoreResult<T>> + Send>;

/// A database that holds a [`SqlStore`](crate::SqlStore).
pub trait Driver: Debug + Send + Sync + Sized + 'static {
    /// The SQL dialect of the database.
    const DIALECT: Dialect;
    /// The connection options.
    type Options: Default + Sync;
    /// The error of a failed connect.
    type ConnectError: std::error::Error + Send + Sync + 'static;
    /// A session with scratch tables.
    type ScratchSession: ScratchSession;
    /// A job of the writer.
    type Job: evidence_core::queue::Task + From<Submission>;

    /// Opens the store at this address. Creates it if it does not exist, and migrates its tables.
    fn connect(
        url: &str,
        options: &Self::Options,
    ) -> impl Future<Output = Result<Self, Self::ConnectError>> + Send;

    /// Runs a query and decodes its rows. Large results are decoded on a thread for slow work.
    fn read<T: Send + 'static>(
        &self,
        statement: Statement,
        read: impl FnOnce(Vec<Row>) -> StoreResult<T> + Send + 'static,
    ) -> impl Future<Output = StoreResult<T>> + Send;

    /// Returns the row of a record by its name, if it exists: the index of the newest fact, and the fact.
    /// `flow` must be set exactly if `kind` is the kind of trails.
    fn by_name(
        &self,
        org: Id,
        kind: &'static str,
        flow: Option<Id>,
        name: String,
    ) -> impl Future<Output = StoreResult<Option<Row>>> + Send;

    /// Returns the queue of the writer. The writer commits each group of writes atomically.
    fn queue(&self) -> &Queue<Self::Job>;

    /// Writes one step of a blob through the writer.
    fn write_blob(&self, write: BlobWrite) -> impl Future<Output = StoreResult<()>> + Send;

    /// Runs statements on tables outside the ledger (leases, cursors, pending attachments) in one
    /// transaction. The other statements run only if the first returns a row. Returns whether it did.
    /// PostgreSQL accepts exactly one statement.
    fn change(&self, statements: Vec<Statement>) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Runs work in a session of its own, with empty scratch tables next to the store's tables. If its
    /// statements block, the work runs on a thread for slow work.
    fn with_scratch<T: Send + 'static>(
        &self,
        work: ScratchWork<Self::ScratchSession, T>,
    ) -> impl Future<Output = StoreResult<T>> + Send;

    /// Returns the version of the tables that this program writes.
    fn version(&self) -> i64;

    /// Returns once the database is readable and writable.
    fn ready(&self) -> impl Future<Output = StoreResult<()>> + Send;

    /// Runs a statement that changes an unimportant row, through the writer and durably.
    fn write_probe(&self, statement: Statement) -> impl Future<Output = StoreResult<()>> + Send;

    /// Checks a time against the reference clock ([`evidence_core::store::ReferenceClock`]).
    fn check_clock(&self, now: Timestamp) -> impl Future<Output = StoreResult<()>> + Send;

    /// Finishes the enqueued writes and closes every connection.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// The error after a program of a later version has migrated the tables.
#[derive(Debug, thiserror::Error)]
#[error(
    "a newer program has changed the tables, and this one must not write to them any more: start the newer one"
)]
pub struct Outdated;

impl From<Outdated> for StoreError {
    fn from(outdated: Outdated) -> Self {
        Self::Unavailable(outdated.into())
    }
}
