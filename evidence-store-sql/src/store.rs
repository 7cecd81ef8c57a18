//! The store over any [`Driver`], and the query builder.

use std::borrow::Cow;

use async_trait::async_trait;
use evidence_core::digest::hex;
use evidence_core::id::{Id, Random, SystemRandom};
use evidence_core::store::{Current, Health, StoreResult, skip_corrupt};
use evidence_core::time::Timestamp;
use serde::de::DeserializeOwned;

use crate::decode::{current, listed_current};
use crate::driver::{Cost, Driver, Statement};
use crate::sql::{Sql, for_each, payload};
use crate::value::{FromRow, Row, Value, texts};

/// A store in an SQL database.
#[derive(Debug)]
pub struct SqlStore<D> {
    pub(crate) driver: D,
}

impl<D: Driver> SqlStore<D> {
    /// Creates a store over an open driver.
    pub const fn new(driver: D) -> Self {
        Self { driver }
    }

    /// Opens the store at this address. Creates it if it does not exist, and migrates its tables.
    ///
    /// # Errors
    /// Returns the driver's error, which explains the problem and the remedy.
    pub async fn connect(url: &str) -> Result<Self, D::ConnectError> {
        Self::connect_with(url, &D::Options::default()).await
    }

    /// Opens the store at this address with these options.
    ///
    /// # Errors
    /// Returns the driver's error, which explains the problem and the remedy.
    pub async fn connect_with(url: &str, options: &D::Options) -> Result<Self, D::ConnectError> {
        D::connect(url, options).await.map(Self::new)
    }

    /// Finishes the writes that are already enqueued and closes every connection. Later calls return
    /// [`evidence_core::StoreError::Unavailable`].
    pub async fn close(&self) {
        self.driver.close().await;
    }

    /// Returns the database driver.
    pub const fn driver(&self) -> &D {
        &self.driver
    }

    /// Creates a query without bound values.
    pub(crate) fn query(&self, sql: Sql) -> Query<'_, D> {
        self.query_text(sql.text(D::DIALECT))
    }

    pub(crate) fn query_text(&self, sql: impl Into<Cow<'static, str>>) -> Query<'_, D> {
        let statement = Statement { sql: sql.into(), values: Vec::new(), org: None, cost: Cost::Short };
        Query { driver: &self.driver, statement }
    }

    /// Creates a query about one organization and binds the organization as `$1`.
    pub(crate) fn query_org(&self, org: Id, sql: Sql) -> Query<'_, D> {
        self.query(sql).of(org)
    }

    /// Returns the record of this kind and name.
    pub(crate) async fn by_name<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        name: &str,
    ) -> StoreResult<Option<Current<T>>> {
        let row = self.driver.by_name(org, kind, None, name.to_owned()).await?;
        row.map(|row| current(FromRow::from_row(row)?)).transpose()
    }

    /// Returns the records of this kind with these names, in any order. A record that cannot be decoded is an
    /// error.
    pub(crate) async fn by_names<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        names: &[&str],
    ) -> StoreResult<Vec<Current<T>>> {
        let query = self.query_org(org, BY_NAMES).bind(kind).bind(texts(names)).per_item(names.len());
        query.all_as(current).await
    }

    /// Returns those of the given names that belong to records of this kind.
    pub(crate) async fn known_names(
        &self,
        org: Id,
        kind: &'static str,
        names: &[&str],
    ) -> StoreResult<Vec<String>> {
        let query = self.query_org(org, KNOWN_NAMES).bind(kind).bind(texts(names)).per_item(names.len());
        query.all_as(|(name,): (String,)| Ok(name)).await
    }

    /// Returns the records of this kind with these ids, in any order. Skips corrupt records.
    pub(crate) async fn by_ids<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        ids: &[Id],
    ) -> StoreResult<Vec<Current<T>>> {
        let query = self.query_org(org, BY_IDS).bind(texts(ids)).bind(kind).per_item(ids.len());
        query.readable_as(org, listed_current).await
    }

    /// Returns the record of this kind and id.
    pub(crate) async fn by_id<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        id: Id,
    ) -> StoreResult<Option<Current<T>>> {
        self.query_org(org, BY_IDS).bind(texts(&[id])).bind(kind).first_as(current).await
    }

    /// Returns every record of this kind that is not archived, sorted by name. Skips corrupt records.
    pub(crate) async fn all_named<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
    ) -> StoreResult<Vec<Current<T>>> {
        self.query_org(org, ALL_NAMED).bind(kind).long().readable_as(org, listed_current).await
    }
}

/// Selects the rows `n` of the table `name` with the kind `$2` and a name in the list `$3`. Each name is one
/// index probe.
macro_rules! names {
    (sqlite, $select:expr, $joined:literal) => {
        concat!(
            "SELECT ",
            $select,
            " FROM json_each($3) w CROSS JOIN evidence.name n ON n.org = $1 AND n.kind = $2 AND n.name = w.value ",
            $joined
        )
    };
    (postgres, $select:expr, $joined:literal) => {
        concat!(
            "SELECT ",
            $select,
            " FROM UNNEST($3::text[]) AS w (value) CROSS JOIN LATERAL (
                SELECT name, id FROM evidence.name WHERE org = $1 AND kind = $2 AND name = w.value OFFSET 0) n ",
            $joined
        )
    };
}

const BY_NAMES: Sql = Sql::per_dialect(
    names!(
        sqlite,
        concat!("r.ledger_index, ", payload!("r")),
        "CROSS JOIN evidence.record r ON r.org = $1 AND r.kind = $2 AND r.id = n.id"
    ),
    names!(
        postgres,
        concat!("r.ledger_index, ", payload!("r")),
        "CROSS JOIN LATERAL (
            SELECT * FROM evidence.record WHERE org = $1 AND id = n.id AND kind = $2 OFFSET 0) r"
    ),
);

const KNOWN_NAMES: Sql = Sql::per_dialect(names!(sqlite, "n.name", ""), names!(postgres, "n.name", ""));

const BY_IDS: Sql = for_each!(["n.ledger_index, ", payload!("n")], "record", "id", "n", "WHERE n.kind = $3");

const ALL_NAMED: Sql = Sql::per_dialect(
    concat!(
        "SELECT n.ledger_index, ",
        payload!("n"),
        " FROM evidence.record n WHERE n.org = $1 AND n.kind = $2 AND NOT n.archived ORDER BY n.name"
    ),
    concat!(
        "SELECT n.ledger_index, ",
        payload!("n"),
        " FROM evidence.record n WHERE n.org = $1 AND n.kind || '' = $2 AND NOT n.archived ORDER BY n.name"
    ),
);

/// Returns the newest entry time of all ledgers. The last entry of each ledger is one primary key probe.
const NEWEST_ENTRY: Sql = Sql::per_dialect(
    "SELECT max((SELECT l.at FROM ledger l WHERE l.org = h.org AND l.idx = h.size - 1)) FROM head h",
    "SELECT x.at FROM (
        SELECT (SELECT l.at FROM evidence.ledger l WHERE l.org = h.org AND l.idx = h.size - 1) AS at
        FROM evidence.head h) x
    ORDER BY x.at DESC NULLS LAST LIMIT 1",
);

/// A statement with its values, ready to run.
#[derive(Debug)]
pub(crate) struct Query<'a, D> {
    driver: &'a D,
    statement: Statement,
}

impl<D: Driver> Query<'_, D> {
    /// Binds the next value. A value that the statement does not reference is ignored.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.statement.values.push(value.into());
        self
    }

    /// Sets the organization of the query and binds it as the next value.
    pub(crate) fn of(mut self, org: Id) -> Self {
        self.statement.org = Some(org);
        self.bind(Value::Org(org))
    }

    /// Marks the result as possibly long.
    pub(crate) fn long(mut self) -> Self {
        self.statement.cost = Cost::Long;
        self
    }

    /// Sets the approximate number of items that the query asks for.
    pub(crate) fn per_item(mut self, things: usize) -> Self {
        self.statement.cost = Cost::PerItem(things);
        self
    }

    /// Returns the first row, if any. The statement must return at most one row.
    pub(crate) async fn first<R: FromRow + Send + 'static>(self) -> StoreResult<Option<R>> {
        self.first_as(Ok).await
    }

    /// Decodes the first row, if any.
    pub(crate) async fn first_as<R: FromRow, T: Send + 'static>(
        self,
        read: impl FnOnce(R) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<Option<T>> {
        let read = |rows: Vec<Row>| rows.into_iter().next().map(|row| read(R::from_row(row)?)).transpose();
        self.driver.read(self.statement, read).await
    }

    /// Returns every row.
    pub(crate) async fn all<R: FromRow + Send + 'static>(self) -> StoreResult<Vec<R>> {
        self.all_as(Ok).await
    }

    /// Decodes every row.
    pub(crate) async fn all_as<R: FromRow, T: Send + 'static>(
        self,
        mut read: impl FnMut(R) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<Vec<T>> {
        let read = move |rows: Vec<Row>| rows.into_iter().map(|row| read(R::from_row(row)?)).collect();
        self.driver.read(self.statement, read).await
    }

    /// Decodes the rows of a list and skips corrupt ones. `read` returns each item with the ledger index of
    /// its fact.
    pub(crate) async fn readable_as<R: FromRow, T: Send + 'static>(
        self,
        org: Id,
        mut read: impl FnMut(R) -> (i64, StoreResult<T>) + Send + 'static,
    ) -> StoreResult<Vec<T>> {
        self.answer(move |rows: Vec<R>| skip_corrupt(org, rows.into_iter().map(&mut read))).await
    }

    /// Returns the statement with its values.
    pub(crate) fn statement(self) -> Statement {
        self.statement
    }

    /// Runs a statement that writes. Returns whether it changed something, in which case it returned a row.
    pub(crate) async fn change(self) -> StoreResult<bool> {
        self.driver.change(vec![self.statement]).await
    }

    /// Decodes all rows together into one value.
    pub(crate) async fn answer<R: FromRow, T: Send + 'static>(
        self,
        read: impl FnOnce(Vec<R>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let read = |rows: Vec<Row>| read(rows.into_iter().map(R::from_row).collect::<StoreResult<_>>()?);
        self.driver.read(self.statement, read).await
    }
}

#[async_trait]
impl<D: Driver> Health for SqlStore<D> {
    async fn ready(&self) -> StoreResult<()> {
        self.driver.ready().await?;
        let mut filler = [0; PROBE_BYTES / 2];
        SystemRandom.fill(&mut filler);
        self.driver.write_probe(self.query(PROBE).bind(hex(&filler)).statement()).await
    }

    async fn check_clock(&self, now: Timestamp) -> StoreResult<()> {
        self.driver.check_clock(now).await
    }

    async fn newest_entry(&self) -> StoreResult<Option<Timestamp>> {
        let newest = self.query(NEWEST_ENTRY).long().first::<(Option<Timestamp>,)>().await?;
        Ok(newest.and_then(|(at,)| at))
    }
}

/// The number of bytes that a write probe writes. Recording an attestation takes about as much in SQLite's
/// log, so a disk without room for an attestation also fails the probe. The bytes are random, because
/// databases do not write unchanged values and compress repetitive ones.
const PROBE_BYTES: usize = 32 << 10;

/// Overwrites one row of the lease table. No job uses the name of this lease.
const PROBE: Sql = Sql::portable(
    "INSERT INTO evidence.lease (name, holder, expires_at) VALUES ('write-probe', $1, 0)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder",
);
