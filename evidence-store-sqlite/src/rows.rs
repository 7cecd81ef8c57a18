//! Between records and rows: the rows that a batch writes, table by table, and reading records back out of payloads.

use std::collections::{BTreeMap, BTreeSet};

use evidence_core::fact::{Recorded, said};
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::store::{StoreResult, readable};
use evidence_core::{Current, StoreError};
use rusqlite::Connection;
use rusqlite::types::{FromSql, FromSqlResult, Value, ValueRef};
use serde::Serialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};

use crate::db::SqliteStore;
use crate::question::{execute, rows};
use crate::{
    allowlists, artifacts, attestations, environments, ledger, orgs, pending, policies, repos,
    service_accounts, snapshots, texts, trails,
};

/// Where a fact stands: the organization's key, and the index in its ledger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryRef {
    pub(crate) org: i64,
    pub(crate) index: u64,
}

/// The tables that facts are written to, in the order in which a batch writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    Ledger,
    Node,
    Organization,
    User,
    Membership,
    Record,
    NameRelease,
    NameGone,
    Name,
    ApiKey,
    Trail,
    TrailEntry,
    Artifact,
    Attestation,
    Attachment,
    PendingGone,
    Repo,
    Snapshot,
    EnvironmentReport,
    InstanceEnd,
    Instance,
    Version,
    Allowance,
    Text,
    Head,
}

impl Table {
    /// The statement that writes the rows of the JSON array `$1`; `$2` is the batch's payloads end to end.
    const fn sql(self) -> &'static str {
        match self {
            Self::Ledger => ledger::INSERT_ENTRIES,
            Self::Node => ledger::INSERT_NODES,
            Self::Head => ledger::PUT_HEADS,
            Self::Organization => orgs::INSERT_ORGANIZATIONS,
            Self::User => orgs::INSERT_USERS,
            Self::Membership => orgs::PUT_MEMBERSHIPS,
            Self::Record => PUT_RECORDS,
            Self::NameRelease => RELEASE_NAMES,
            Self::NameGone => DELETE_NAMES,
            Self::Name => PUT_NAMES,
            Self::ApiKey => service_accounts::PUT_KEYS,
            Self::Trail => trails::PUT_TRAILS,
            Self::TrailEntry => trails::INSERT_ENTRIES,
            Self::Artifact => artifacts::INSERT_ARTIFACTS,
            Self::Attestation => attestations::INSERT_ATTESTATIONS,
            Self::Attachment => pending::INSERT_ATTACHMENTS,
            Self::PendingGone => pending::FORGET,
            Self::Repo => repos::PUT_REPOS,
            Self::Snapshot => snapshots::INSERT_SNAPSHOTS,
            Self::EnvironmentReport => environments::PUT_REPORTS,
            Self::InstanceEnd => snapshots::END_INSTANCES,
            Self::Instance => snapshots::INSERT_INSTANCES,
            Self::Version => policies::INSERT_VERSIONS,
            Self::Allowance => allowlists::PUT_ALLOWANCES,
            Self::Text => texts::INSERT_TEXTS,
        }
    }
}

/// The newest fact about a record wins.
const PUT_RECORDS: &str = "
    INSERT INTO record (org, kind, id, name, ledger_index, archived, tags)
    SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6 FROM json_each($1) WHERE true
    ON CONFLICT (org, kind, id) DO UPDATE SET
        name = excluded.name, ledger_index = excluded.ledger_index, archived = excluded.archived,
        tags = excluded.tags";

/// Gives up all names of records. Its rows come before those of [`PUT_NAMES`], which may be claimed since. SQLite would
/// rather read all names of the organization and kind.
const RELEASE_NAMES: &str = "
    DELETE FROM name INDEXED BY name_id
    WHERE (org, kind, id) IN (SELECT value->>0, value->>1, value->>2 FROM json_each($1))";

/// Deletes names, whatever they lead to.
const DELETE_NAMES: &str = "
    DELETE FROM name WHERE (org, kind, name) IN (SELECT value->>0, value->>1, value->>2 FROM json_each($1))";

/// Whether a name may be claimed is decided before.
const PUT_NAMES: &str = "
    INSERT INTO name (org, kind, name, id, alias)
    SELECT value->>0, value->>1, value->>2, value->>3, value->>4 FROM json_each($1) WHERE true
    ON CONFLICT (org, kind, name) DO UPDATE SET id = excluded.id, alias = excluded.alias";

/// The rows of one batch.
#[derive(Debug, Default)]
pub(crate) struct Rows(BTreeMap<Table, String>);

impl Rows {
    /// Adds a row: a tuple of the table's columns in the order of its statement.
    pub(crate) fn push(&mut self, table: Table, row: &impl Serialize) -> serde_json::Result<()> {
        let row = serde_json::to_string(row)?;
        let rows = self.0.entry(table).or_default();
        rows.push(if rows.is_empty() { '[' } else { ',' });
        rows.push_str(&row);
        Ok(())
    }

    /// Writes them. `payloads` are the facts, end to end.
    pub(crate) fn write(self, connection: &Connection, payloads: Vec<u8>) -> rusqlite::Result<()> {
        let mut values = [Value::Null, payloads.into()];
        for (table, mut rows) in self.0 {
            rows.push(']');
            values[0] = rows.into();
            execute(connection, table.sql(), &values)?;
        }
        Ok(())
    }
}

/// The payload of a row's fact as it is stored: bytes, for damage may leave no text of them, or nothing where the ledger
/// lacks the entry. So one that cannot be read fails by itself, not the rows beside it.
#[derive(Debug)]
pub(crate) struct Payload(Option<Vec<u8>>);

impl FromSql for Payload {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(Self(value.as_bytes_or_null()?.map(<[u8]>::to_vec)))
    }
}

impl Payload {
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    pub(crate) fn text(&self) -> StoreResult<&str> {
        text(self.bytes().ok_or_else(|| StoreError::corrupt("its ledger entry is missing"))?)
    }
}

/// Reads bytes that were stored as text.
pub(crate) fn text(bytes: &[u8]) -> StoreResult<&str> {
    std::str::from_utf8(bytes).map_err(StoreError::corrupt)
}

/// Reads the record of a fact's payload.
pub(crate) fn record<T: DeserializeOwned>(payload: &str) -> StoreResult<T> {
    said::<Recorded<T>>(payload).map(|recorded| recorded.record)
}

/// Reads JSON that the store keeps.
pub(crate) fn body<T: DeserializeOwned>(json: &str) -> StoreResult<T> {
    serde_json::from_str(json)
        .map_err(|error| StoreError::corrupt(format_args!("{}: {error}", std::any::type_name::<T>())))
}

/// Reads a JSON array that a statement put together; nothing is an empty one.
pub(crate) fn array<T: DeserializeOwned>(json: Option<String>) -> StoreResult<Vec<T>> {
    json.map_or(Ok(Vec::new()), |json| body(&json))
}

/// Reads a value that JSON would write as a string: a digest, a role, a provider.
pub(crate) fn word<T: DeserializeOwned>(text: &str) -> StoreResult<T> {
    let reader: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    T::deserialize(reader).map_err(|error| StoreError::corrupt(format_args!("'{text}': {error}")))
}

/// Reads an id.
pub(crate) fn id(text: &str) -> StoreResult<Id> {
    text.parse().map_err(|error| StoreError::corrupt(format_args!("'{text}': {error}")))
}

/// A number as SQLite counts; nothing stored exceeds its range.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A count or index that was stored.
pub(crate) fn unsigned(number: i64) -> StoreResult<u64> {
    u64::try_from(number).map_err(|_| StoreError::corrupt(format_args!("{number} is no index")))
}

/// A list to bind for `json_each`.
pub(crate) fn list(items: &(impl Serialize + ?Sized)) -> StoreResult<String> {
    serde_json::to_string(items).map_err(|error| StoreError::Failed(error.into()))
}

/// The same for things that are asked about, each once: for SQLite to leave out what comes twice takes it a temporary
/// table.
pub(crate) fn once(items: &[impl Serialize + Ord]) -> StoreResult<String> {
    list(&BTreeSet::from_iter(items))
}

/// A record and the index of its newest fact.
pub(crate) fn current<T: DeserializeOwned>((revision, payload): (i64, Payload)) -> StoreResult<Current<T>> {
    Ok(Current { revision: unsigned(revision)?, record: record(payload.text()?)? })
}

/// What a list shows of a row: its fact's index, and the record.
pub(crate) fn listed_record<T: DeserializeOwned>((index, payload): (i64, Payload)) -> (i64, StoreResult<T>) {
    (index, payload.text().and_then(record))
}

/// The same, with the record's revision.
pub(crate) fn listed_current<T: DeserializeOwned>(row: (i64, Payload)) -> (i64, StoreResult<Current<T>>) {
    (row.0, current(row))
}

const BY_NAME: &str = "
    SELECT r.ledger_index, l.payload FROM name n
    CROSS JOIN record r ON r.org = n.org AND r.kind = n.kind AND r.id = n.id
    LEFT JOIN ledger l ON l.org = r.org AND l.idx = r.ledger_index
    WHERE n.org = (SELECT key FROM organization WHERE id = $1) AND n.kind = $2 AND n.name = $3";

const BY_IDS: &str = "
    SELECT n.ledger_index, l.payload FROM json_each($3) w
    CROSS JOIN record n ON n.org = (SELECT key FROM organization WHERE id = $1) AND n.kind = $2 AND n.id = w.value
    LEFT JOIN ledger l ON l.org = n.org AND l.idx = n.ledger_index";

const ALL_NAMED: &str = "
    SELECT n.ledger_index, l.payload FROM record n LEFT JOIN ledger l ON l.org = n.org AND l.idx = n.ledger_index
    WHERE n.org = (SELECT key FROM organization WHERE id = $1) AND n.kind = $2 AND NOT n.archived
    ORDER BY n.name";

impl SqliteStore {
    /// The record of this kind and name.
    pub(crate) async fn by_name<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        name: &str,
    ) -> StoreResult<Option<Current<T>>> {
        let question = self.ask_of(org, BY_NAME).bind(kind.to_owned()).bind(name.to_owned());
        question.first_as(current).await
    }

    /// The records of this kind and these ids, in any order.
    pub(crate) async fn by_ids<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        ids: &[Id],
    ) -> StoreResult<Vec<Current<T>>> {
        let question = self.ask_of(org, BY_IDS).bind(kind.to_owned()).bind(once(ids)?);
        question.about(ids.len()).readable_as(org, listed_current).await
    }

    /// The record of this kind and id.
    pub(crate) async fn by_id<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        id: Id,
    ) -> StoreResult<Option<Current<T>>> {
        let question = self.ask_of(org, BY_IDS).bind(kind.to_owned()).bind(once(&[id])?);
        question.first_as(current).await
    }

    /// Every record of this kind, by name, but for the archived ones.
    pub(crate) async fn all_named<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
    ) -> StoreResult<Vec<Current<T>>> {
        let question = self.ask_of(org, ALL_NAMED).bind(kind.to_owned()).long();
        question.readable_as(org, listed_current).await
    }

    /// A page of the records whose facts `listing` finds, and how many there are. The values are those of `$4` onwards.
    pub(crate) async fn page<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        listing: &Listing,
        request: PageRequest,
        values: Vec<Option<String>>,
    ) -> StoreResult<Page<T>> {
        self.request(org, listing, PAYLOAD, readable_records, request, values).await
    }

    /// The same, for what decisions rest on: nothing is left out.
    pub(crate) async fn whole_page<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        listing: &Listing,
        request: PageRequest,
        values: Vec<Option<String>>,
    ) -> StoreResult<Page<T>> {
        self.request(org, listing, PAYLOAD, all_records, request, values).await
    }

    /// The same, without what the facts say.
    pub(crate) async fn listed(
        &self,
        org: Id,
        listing: &Listing,
        request: PageRequest,
        values: Vec<Option<String>>,
    ) -> StoreResult<Page<Listed>> {
        self.request(org, listing, SIZE, sizes, request, values).await
    }

    /// A page of what `column` says, and how many there are, read in one transaction, so that the two agree.
    async fn request<T: Send + 'static>(
        &self,
        org: Id,
        listing: &Listing,
        column: &'static str,
        read: ReadPage<T>,
        request: PageRequest,
        values: Vec<Option<String>>,
    ) -> StoreResult<Page<T>> {
        let mut bound =
            vec![org.to_string().into(), signed(request.limit).into(), signed(request.offset).into()];
        bound.extend(values.into_iter().map(Value::from));
        let (total, page) = (listing.counted.then(|| listing.total()), listing.page(column));
        let statements = 1 + u64::from(listing.counted);
        let found = move |connection: &Connection| {
            let snapshot = connection.unchecked_transaction()?;
            let total = total.as_ref().map(|total| rows::<(i64,)>(&snapshot, total, &bound)).transpose()?;
            Ok((total.unwrap_or_default(), rows::<(i64, Payload)>(&snapshot, &page, &bound)?))
        };
        let read = move |(total, page): (Vec<(i64,)>, Vec<(i64, Payload)>)| {
            let total = total.first().map_or(Ok(0), |(total,)| unsigned(*total))?;
            Ok(Page { items: read(org, page)?, total })
        };
        self.readers.read(Some(org), statements, !listing.narrow, found, read).await
    }
}

/// What a list shows of each fact `l` of a row `x`: all of it.
const PAYLOAD: &str = "l.payload";

/// Its id and its size: a header is read for it, not the text. Whoever reads on finds out whether it can be read.
const SIZE: &str = "x.id || ' ' || coalesce(octet_length(l.payload), 0)";

/// What [`SIZE`] says.
fn sized(text: &str) -> StoreResult<Listed> {
    let parts = text.split_once(' ').and_then(|(id, bytes)| Some((id, bytes.parse().ok()?)));
    let (text, bytes) = parts.ok_or_else(|| StoreError::corrupt("a list tells no size"))?;
    Ok(Listed { id: id(text)?, bytes })
}

/// Reads a page of an organization: of each row the index of its fact, and the column that was asked for.
type ReadPage<T> = fn(Id, Vec<(i64, Payload)>) -> StoreResult<Vec<T>>;

/// The records of a page that can be read.
fn readable_records<T: DeserializeOwned>(org: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<T>> {
    readable(org, page.into_iter().map(listed_record))
}

/// All records of a page.
fn all_records<T: DeserializeOwned>(_: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<T>> {
    page.into_iter().map(|(_, payload)| record(payload.text()?)).collect()
}

/// What [`SIZE`] says of a page.
fn sizes(_: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<Listed>> {
    page.into_iter().map(|(_, text)| sized(text.text()?)).collect()
}

/// A list to take a page of: constant pieces of SQL alone, values are bound.
pub(crate) struct Listing {
    /// The table, as `x` with its columns `org` and `ledger_index`, and the condition that every list has.
    pub(crate) from: &'static str,
    /// The further conditions that were asked for, each beginning with ` AND `.
    pub(crate) filter: Vec<&'static str>,
    /// The total order.
    pub(crate) order: Order,
    /// Whether few are found as a rule.
    pub(crate) narrow: bool,
    /// Whether anybody asks how many there are.
    pub(crate) counted: bool,
}

/// The order of a list.
pub(crate) enum Order {
    /// By these expressions.
    By(&'static str),
    /// By a column that numbers all that the list has, from 1 on and without gaps: the greatest number first, which is
    /// how many there are.
    Numbered(&'static str),
}

impl Listing {
    fn all(&self) -> String {
        format!("{}{}", self.from, self.filter.concat())
    }

    /// The statement that answers how many there are.
    fn total(&self) -> String {
        let total = match self.order {
            Order::By(_) => "count(*)".to_owned(),
            Order::Numbered(number) => format!("coalesce(max({number}), 0)"),
        };
        format!("SELECT {total} FROM {}", self.all())
    }

    /// The statement that answers the index and `column` of the page `$2`, `$3`. Bodies are fetched for that alone.
    fn page(&self, column: &str) -> String {
        let all = self.all();
        let (request, order) = match self.order {
            Order::By(order) => (format!("ORDER BY {order} LIMIT $2 OFFSET $3"), order.to_owned()),
            Order::Numbered(number) => (
                format!("AND {number} <= ({}) - $3 ORDER BY {number} DESC LIMIT $2", self.total()),
                format!("{number} DESC"),
            ),
        };
        format!(
            "SELECT x.ledger_index, {column} FROM (SELECT x.* FROM {all} {request}) x
            LEFT JOIN ledger l ON l.org = x.org AND l.idx = x.ledger_index ORDER BY {order}"
        )
    }

    /// Which index the page is read by, in SQLite's words.
    #[cfg(test)]
    pub(crate) fn plan(&self) -> String {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("../migrations/0001_first.sql")).unwrap();
        let explain = format!("EXPLAIN QUERY PLAN {}", self.page(SIZE));
        let steps: Vec<(i64, i64, i64, String)> = rows(&connection, &explain, &[]).unwrap();
        let details = steps.into_iter().map(|(.., detail)| detail);
        details
            .skip_while(|detail| !detail.starts_with("CO-ROUTINE"))
            .find(|detail| detail.starts_with("SEARCH x "))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("../migrations/0001_first.sql")).unwrap();
        connection
    }

    #[test]
    fn names_are_deleted_by_every_column_of_an_index() {
        let cases = [
            (RELEASE_NAMES, "name_id (org=? AND kind=? AND id=?)"),
            (DELETE_NAMES, "PRIMARY KEY (org=? AND kind=? AND name=?)"),
        ];
        for (sql, index) in cases {
            let steps: Vec<(i64, i64, i64, String)> =
                rows(&tables(), &format!("EXPLAIN QUERY PLAN {sql}"), &[]).unwrap();
            let search =
                steps.into_iter().map(|(.., step)| step).find(|step| step.starts_with("SEARCH name "));
            assert!(search.as_ref().is_some_and(|step| step.ends_with(index)), "{search:?}");
        }
    }

    #[test]
    fn only_names_that_a_row_tells_whole_are_deleted() {
        let connection = tables();
        let names =
            [(1, "flow", "a", "x"), (1, "flow", "b", "y"), (1, "repo", "a", "y"), (2, "flow", "a", "x")];
        let put = |names: &[(i64, &str, &str, &str)]| {
            let names: Vec<_> = names.iter().map(|(org, kind, name, id)| (org, kind, name, id, 0)).collect();
            execute(&connection, PUT_NAMES, &[list(&names).unwrap().into()]).unwrap();
        };
        let left = || -> Vec<(i64, String, String)> {
            rows(&connection, "SELECT org, kind, name FROM name ORDER BY org, kind, name", &[]).unwrap()
        };
        let told = |names: &[(i64, &str, &str)]| -> Vec<(i64, String, String)> {
            names.iter().map(|(org, kind, name)| (*org, (*kind).to_owned(), (*name).to_owned())).collect()
        };
        // Each column of the names that stay is one of a row's: no row has them all.
        for (sql, keys) in [
            (RELEASE_NAMES, [(1, "flow", "y"), (2, "repo", "y"), (2, "flow", "x")]),
            (DELETE_NAMES, [(1, "flow", "b"), (2, "repo", "b"), (2, "flow", "a")]),
        ] {
            put(&names);
            execute(&connection, sql, &[list(&keys).unwrap().into()]).unwrap();
            assert_eq!(left(), told(&[(1, "flow", "a"), (1, "repo", "a")]), "{sql}");
        }
    }
}
