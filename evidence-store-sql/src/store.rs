//! The store, over whichever database, and the way to ask it.

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

/// A store in a database that speaks SQL.
#[derive(Debug)]
pub struct SqlStore<D> {
    pub(crate) driver: D,
}

impl<D: Driver> SqlStore<D> {
    /// The store that this driver opened.
    pub const fn new(driver: D) -> Self {
        Self { driver }
    }

    /// Opens the store at this address, making it if there is none and bringing its tables up to date.
    ///
    /// # Errors
    /// The driver's error says what is wrong and what to do.
    pub async fn connect(url: &str) -> Result<Self, D::ConnectError> {
        Self::connect_with(url, &D::Options::default()).await
    }

    /// Opens the store at this address with these options.
    ///
    /// # Errors
    /// The driver's error says what is wrong and what to do.
    pub async fn connect_with(url: &str, options: &D::Options) -> Result<Self, D::ConnectError> {
        D::connect(url, options).await.map(Self::new)
    }

    /// Finishes what was handed to the writer and closes every connection. Later calls answer
    /// [`evidence_core::StoreError::Unavailable`].
    pub async fn close(&self) {
        self.driver.close().await;
    }

    /// What the store lies in.
    pub const fn driver(&self) -> &D {
        &self.driver
    }

    /// A query, whose values are bound next.
    pub(crate) fn query(&self, sql: Sql) -> Query<'_, D> {
        self.query_text(sql.text(D::DIALECT))
    }

    pub(crate) fn query_text(&self, sql: impl Into<Cow<'static, str>>) -> Query<'_, D> {
        let statement = Statement { sql: sql.into(), values: Vec::new(), org: None, cost: Cost::Short };
        Query { driver: &self.driver, statement }
    }

    /// A query about one organization, which is its first value.
    pub(crate) fn query_org(&self, org: Id, sql: Sql) -> Query<'_, D> {
        self.query(sql).of(org)
    }

    /// The record of this kind and name.
    pub(crate) async fn by_name<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        name: &str,
    ) -> StoreResult<Option<Current<T>>> {
        let row = self.driver.by_name(org, kind, None, name.to_owned()).await?;
        row.map(|row| current(FromRow::from_row(row)?)).transpose()
    }

    /// The records of this kind and these names, in any order; one that cannot be read is an error.
    pub(crate) async fn by_names<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        names: &[&str],
    ) -> StoreResult<Vec<Current<T>>> {
        let query = self.query_org(org, BY_NAMES).bind(kind).bind(texts(names)).per_item(names.len());
        query.all_as(current).await
    }

    /// Which of these names records of this kind have.
    pub(crate) async fn known_names(
        &self,
        org: Id,
        kind: &'static str,
        names: &[&str],
    ) -> StoreResult<Vec<String>> {
        let query = self.query_org(org, KNOWN_NAMES).bind(kind).bind(texts(names)).per_item(names.len());
        query.all_as(|(name,): (String,)| Ok(name)).await
    }

    /// The records of this kind and these ids, in any order.
    pub(crate) async fn by_ids<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        ids: &[Id],
    ) -> StoreResult<Vec<Current<T>>> {
        let query = self.query_org(org, BY_IDS).bind(texts(ids)).bind(kind).per_item(ids.len());
        query.readable_as(org, listed_current).await
    }

    /// The record of this kind and id.
    pub(crate) async fn by_id<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        id: Id,
    ) -> StoreResult<Option<Current<T>>> {
        self.query_org(org, BY_IDS).bind(texts(&[id])).bind(kind).first_as(current).await
    }

    /// Every record of this kind, by name, but for the archived ones.
    pub(crate) async fn all_named<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
    ) -> StoreResult<Vec<Current<T>>> {
        self.query_org(org, ALL_NAMED).bind(kind).long().readable_as(org, listed_current).await
    }
}

/// The names `n` of the kind `$2` that are in the list `$3`: each a probe of the index.
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

const BY_NAMES: Sql = Sql::each(
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

const KNOWN_NAMES: Sql = Sql::each(names!(sqlite, "n.name", ""), names!(postgres, "n.name", ""));

const BY_IDS: Sql = for_each!(["n.ledger_index, ", payload!("n")], "record", "id", "n", "WHERE n.kind = $3");

const ALL_NAMED: Sql = Sql::each(
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

/// The last entry of each ledger is a probe of its primary key.
const NEWEST_ENTRY: Sql = Sql::each(
    "SELECT max((SELECT l.at FROM ledger l WHERE l.org = h.org AND l.idx = h.size - 1)) FROM head h",
    "SELECT x.at FROM (
        SELECT (SELECT l.at FROM evidence.ledger l WHERE l.org = h.org AND l.idx = h.size - 1) AS at
        FROM evidence.head h) x
    ORDER BY x.at DESC NULLS LAST LIMIT 1",
);

/// A statement on its way to the database, and its values.
#[derive(Debug)]
pub(crate) struct Query<'a, D> {
    driver: &'a D,
    statement: Statement,
}

impl<D: Driver> Query<'_, D> {
    /// Binds the next value; one that the statement does not name is passed over.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.statement.values.push(value.into());
        self
    }

    /// Says which organization it is about, as its next value too.
    pub(crate) fn of(mut self, org: Id) -> Self {
        self.statement.org = Some(org);
        self.bind(Value::Org(org))
    }

    /// Says that the answer may be long.
    pub(crate) fn long(mut self) -> Self {
        self.statement.cost = Cost::Long;
        self
    }

    /// Says about how many things it asks.
    pub(crate) fn per_item(mut self, things: usize) -> Self {
        self.statement.cost = Cost::PerItem(things);
        self
    }

    /// The first row, if there is one. The statement answers one at most.
    pub(crate) async fn first<R: FromRow + Send + 'static>(self) -> StoreResult<Option<R>> {
        self.first_as(Ok).await
    }

    /// What the first row says.
    pub(crate) async fn first_as<R: FromRow, T: Send + 'static>(
        self,
        read: impl FnOnce(R) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<Option<T>> {
        let read = |rows: Vec<Row>| rows.into_iter().next().map(|row| read(R::from_row(row)?)).transpose();
        self.driver.read(self.statement, read).await
    }

    /// Every row.
    pub(crate) async fn all<R: FromRow + Send + 'static>(self) -> StoreResult<Vec<R>> {
        self.all_as(Ok).await
    }

    /// What each row says.
    pub(crate) async fn all_as<R: FromRow, T: Send + 'static>(
        self,
        mut read: impl FnMut(R) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<Vec<T>> {
        let read = move |rows: Vec<Row>| rows.into_iter().map(|row| read(R::from_row(row)?)).collect();
        self.driver.read(self.statement, read).await
    }

    /// What the rows of a list say, each with the ledger index of its fact: all that can be read.
    pub(crate) async fn readable_as<R: FromRow, T: Send + 'static>(
        self,
        org: Id,
        mut read: impl FnMut(R) -> (i64, StoreResult<T>) + Send + 'static,
    ) -> StoreResult<Vec<T>> {
        self.answer(move |rows: Vec<R>| skip_corrupt(org, rows.into_iter().map(&mut read))).await
    }

    /// The statement with its values.
    pub(crate) fn statement(self) -> Statement {
        self.statement
    }

    /// Whether it changed something: it answers a row then.
    pub(crate) async fn change(self) -> StoreResult<bool> {
        self.driver.change(vec![self.statement]).await
    }

    /// What all rows say together.
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

/// How much a probe writes: about as much as recording an attestation takes in the log of SQLite, so that a disk which has no
/// room for that has none for the probe. It is random, for databases neither write nor allocate what stays the same or
/// compresses well.
const PROBE_BYTES: usize = 32 << 10;

/// Overwrites one row, which is no job's lease.
const PROBE: Sql = Sql::same(
    "INSERT INTO evidence.lease (name, holder, expires_at) VALUES ('write-probe', $1, 0)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder",
);
