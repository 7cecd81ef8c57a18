//! What a database has to do for the store: ask, write a group, and take steps of other writes. Everything else is here.

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

/// A statement with its values: a query, or (see [`Statement::change`]) one that writes.
#[derive(Debug, Clone)]
pub struct Statement {
    /// The text, with `$1` and so on for the values.
    pub sql: Cow<'static, str>,
    /// The values. What the text does not name is passed over.
    pub values: Vec<Value>,
    /// The organization it is about, in whose share of the connections a long one is answered.
    pub org: Option<Id>,
    /// How long the answer may be.
    pub cost: Cost,
}

impl Statement {
    /// A statement that changes something by itself.
    #[must_use]
    pub fn change(sql: &'static str, values: Vec<Value>) -> Self {
        Self { sql: sql.into(), values, org: None, cost: Cost::Short }
    }
}

/// The record of the kind `$2` and the name `$4`.
const BY_NAME: Sql = Sql::each(
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

/// The trail of the flow `$3` and the name `$4`.
const TRAIL_BY_NAME: Sql = Sql::each(
    "SELECT t.ledger_index, l.payload FROM trail t LEFT JOIN ledger l ON l.org = t.org AND l.idx = t.ledger_index
    WHERE t.flow = $3 AND t.name = $4 AND +t.org = $1",
    concat!(
        "SELECT t.ledger_index, ",
        payload!("t"),
        " FROM evidence.trail t WHERE t.org = $1 AND t.flow = $3 AND t.name = $4"
    ),
);

impl Statement {
    /// Asks for the row of a record by its name ([`Driver::by_name`]).
    #[must_use]
    pub fn by_name(dialect: Dialect, org: Id, kind: &str, flow: Option<Id>, name: String) -> Self {
        let sql = if flow.is_some() { TRAIL_BY_NAME } else { BY_NAME };
        let values = vec![Value::Org(org), kind.into(), flow.into(), name.into()];
        Self { sql: sql.text(dialect).into(), values, org: Some(org), cost: Cost::Short }
    }
}

/// How long an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// A row or two.
    Short,
    /// A few rows for each of so many things.
    PerItem(usize),
    /// Any number of rows.
    Long,
}

/// Work in a session with scratch tables.
pub type ScratchWork<S, T> = Box<dyn FnOnce(S) -> BoxFuture<'static, StoreResult<T>> + Send>;

/// A database that a [`SqlStore`](crate::SqlStore) lies in.
pub trait Driver: Debug + Send + Sync + Sized + 'static {
    /// Its dialect.
    const DIALECT: Dialect;
    /// How it is used.
    type Options: Default + Sync;
    /// Why it cannot be used.
    type ConnectError: std::error::Error + Send + Sync + 'static;
    /// A session with scratch tables.
    type ScratchSession: ScratchSession;
    /// What its writer does.
    type Job: evidence_core::queue::Task + From<Submission>;

    /// Opens the store at this address, making it if there is none and bringing its tables up to date.
    fn connect(
        url: &str,
        options: &Self::Options,
    ) -> impl Future<Output = Result<Self, Self::ConnectError>> + Send;

    /// Asks for rows, and reads them: on a thread for slow work where they are many.
    fn read<T: Send + 'static>(
        &self,
        statement: Statement,
        read: impl FnOnce(Vec<Row>) -> StoreResult<T> + Send + 'static,
    ) -> impl Future<Output = StoreResult<T>> + Send;

    /// The row of a record by its name, if there is one: the index of its newest fact, and the fact. `flow` is given
    /// exactly if `kind` is that of trails.
    fn by_name(
        &self,
        org: Id,
        kind: &'static str,
        flow: Option<Id>,
        name: String,
    ) -> impl Future<Output = StoreResult<Option<Row>>> + Send;

    /// The way to the writer, which records each group of writes together or not at all.
    fn queue(&self) -> &Queue<Self::Job>;

    /// Writes a step of a blob, by the writer.
    fn write_blob(&self, write: BlobWrite) -> impl Future<Output = StoreResult<()>> + Send;

    /// Runs statements on tables that no ledger covers (leases, cursors, pending attachments) in one transaction. The rest
    /// run only if the first returns a row; answers whether it did. PostgreSQL takes exactly one.
    fn change(&self, statements: Vec<Statement>) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Does work in a session of its own, with empty scratch tables beside the store's: on a thread for slow work where its
    /// statements block.
    fn with_scratch<T: Send + 'static>(
        &self,
        work: ScratchWork<Self::ScratchSession, T>,
    ) -> impl Future<Output = StoreResult<T>> + Send;

    /// The version of the tables that this program writes.
    fn version(&self) -> i64;

    /// Answers once the database can be read, and may be written.
    fn ready(&self) -> impl Future<Output = StoreResult<()>> + Send;

    /// Runs a statement that changes a row of no importance, by the writer and durably.
    fn write_probe(&self, statement: Statement) -> impl Future<Output = StoreResult<()>> + Send;

    /// Checks a time against the reference clock ([`evidence_core::store::ReferenceClock`]).
    fn check_clock(&self, now: Timestamp) -> impl Future<Output = StoreResult<()>> + Send;

    /// Finishes what was handed to the writer and closes every connection.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// A program of a later version has brought the tables up to date.
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
