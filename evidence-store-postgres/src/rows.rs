//! Between records and rows: the rows that a batch writes, table by table, and reading records back out of payloads.

use std::collections::{BTreeMap, BTreeSet};

use evidence_core::fact::{Recorded, said};
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::store::{StoreResult, readable};
use evidence_core::{Current, StoreError};
use serde::Serialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde::ser::Error as _;
use serde_json::Value;
use sqlx::Arguments;
use sqlx::postgres::PgArguments;

use crate::db::PostgresStore;
use crate::{
    allowlists, artifacts, attestations, environments, ledger, orgs, pending, policies, repos,
    service_accounts, snapshots, texts, trails,
};

/// Where a fact stands: the organization, and the index in its ledger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryRef {
    pub(crate) org: Id,
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
    /// The statement that writes rows. Each of `$text`, `$bigint` and `$boolean` is a column of them, in their order;
    /// `go` is a relation of one row, or of none if nothing may be written.
    const fn sql(self) -> &'static str {
        match self {
            Self::Ledger => ledger::INSERT_ENTRIES,
            Self::Node => ledger::INSERT_NODES,
            Self::Head => ledger::INSERT_HEADS,
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

    /// For the tables whose statement replaces what it finds, which PostgreSQL does once a row and statement: how many
    /// of the first columns tell rows apart, and how many of them a later row leaves as they were.
    const fn replaces(self) -> Option<(usize, usize)> {
        match self {
            Self::Membership | Self::Repo => Some((2, 2)),
            Self::Record | Self::Allowance => Some((3, 3)),
            Self::ApiKey | Self::Trail => Some((2, 6)),
            Self::Ledger
            | Self::Node
            | Self::Organization
            | Self::User
            | Self::NameRelease
            | Self::NameGone
            | Self::Name
            | Self::TrailEntry
            | Self::Artifact
            | Self::Attestation
            | Self::Attachment
            | Self::PendingGone
            | Self::Snapshot
            | Self::EnvironmentReport
            | Self::InstanceEnd
            | Self::Instance
            | Self::Version
            | Self::Text
            | Self::Head => None,
        }
    }
}

/// The newest fact about a record wins.
const PUT_RECORDS: &str = "
    INSERT INTO evidence.record (org, kind, id, name, ledger_index, archived, tags)
    SELECT r.org, r.kind, r.id, r.name, r.ledger_index, r.archived, r.tags::jsonb
    FROM go, UNNEST($text, $text, $text, $text, $bigint, $boolean, $text)
        AS r (org, kind, id, name, ledger_index, archived, tags)
    ON CONFLICT (org, id, kind) DO UPDATE SET
        name = excluded.name, ledger_index = excluded.ledger_index, archived = excluded.archived,
        tags = excluded.tags";

/// Gives up all names of records but those that are claimed since: one statement cannot delete a row and write it anew.
const RELEASE_NAMES: &str = "
    DELETE FROM evidence.name n USING go, UNNEST($text, $text, $text, $text) AS r (org, kind, id, claimed)
    WHERE n.org = r.org AND n.kind = r.kind AND n.id = r.id AND NOT jsonb_exists(r.claimed::jsonb, n.name)";

/// Deletes names, whatever they lead to.
const DELETE_NAMES: &str = "
    DELETE FROM evidence.name n USING go, UNNEST($text, $text, $text) AS r (org, kind, name)
    WHERE n.org = r.org AND n.kind = r.kind AND n.name = r.name";

/// Whether a name may be claimed is decided before.
const PUT_NAMES: &str = "
    INSERT INTO evidence.name (org, kind, name, id, alias)
    SELECT r.* FROM go, UNNEST($text, $text, $text, $text, $boolean) r
    ON CONFLICT (org, kind, name) DO UPDATE SET id = excluded.id, alias = excluded.alias";

/// The rows of one table.
#[derive(Debug, Default)]
struct TableRows {
    rows: Vec<Vec<Value>>,
    /// Where the row of a key is, for the tables that replace.
    places: BTreeMap<String, usize>,
}

impl TableRows {
    fn push(&mut self, row: Vec<Value>, replaces: Option<(usize, usize)>) -> serde_json::Result<()> {
        let Some((key, kept)) = replaces else {
            self.rows.push(row);
            return Ok(());
        };
        let key = serde_json::to_string(&row.get(..key))?;
        match self.places.get(&key).and_then(|place| self.rows.get_mut(*place)) {
            Some(earlier) => earlier.splice(kept.., row.into_iter().skip(kept)).for_each(drop),
            None => {
                self.places.insert(key, self.rows.len());
                self.rows.push(row);
            }
        }
        Ok(())
    }
}

/// The rows of one batch.
#[derive(Debug, Default)]
pub(crate) struct Rows(BTreeMap<Table, TableRows>);

impl Rows {
    /// Adds a row: a tuple of the table's columns in the order of its statement. What is written as an object or a list
    /// in JSON is a column of JSON text.
    pub(crate) fn push(&mut self, table: Table, row: &impl Serialize) -> serde_json::Result<()> {
        let Value::Array(row) = serde_json::to_value(row)? else {
            return Err(serde_json::Error::custom("a row is a tuple"));
        };
        self.0.entry(table).or_default().push(row, table.replaces())
    }

    /// The statements that write the rows, each to be given a name, with their columns bound after `arguments`.
    pub(crate) fn into_statements(self, arguments: &mut PgArguments) -> serde_json::Result<Vec<String>> {
        self.0.into_iter().map(|(table, rows)| bound(table.sql(), rows.rows, arguments)).collect()
    }
}

/// Binds the columns of the rows, in place of the statement's markers.
fn bound(sql: &str, mut rows: Vec<Vec<Value>>, arguments: &mut PgArguments) -> serde_json::Result<String> {
    let mut statement = String::with_capacity(sql.len() + 64);
    let mut pieces = sql.split('$');
    statement.push_str(pieces.next().unwrap_or_default());
    for (column, piece) in pieces.enumerate() {
        let length = piece.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(piece.len());
        let (kind, rest) = piece.split_at(length);
        let values = rows.iter_mut().map(|row| row.get_mut(column).map(Value::take).unwrap_or_default());
        let added = match kind {
            "text" => arguments.add(values.map(text).collect::<Result<Vec<_>, _>>()?),
            "bigint" => arguments.add(values.map(|value| value.as_i64()).collect::<Vec<_>>()),
            _ => arguments.add(values.map(|value| value.as_bool()).collect::<Vec<_>>()),
        };
        added.map_err(serde_json::Error::custom)?;
        statement.push_str(&format!("${}::{kind}[]{rest}", arguments.len()));
    }
    Ok(statement)
}

/// A value of a text column.
fn text(value: Value) -> serde_json::Result<Option<String>> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        json => serde_json::to_string(&json).map(Some),
    }
}

/// The payload of a row's fact, or nothing where the ledger lacks the entry: such a one fails by itself, not the rows
/// beside it.
pub(crate) type Payload = Option<String>;

/// The text of a payload.
pub(crate) fn text_of(payload: &Payload) -> StoreResult<&str> {
    payload.as_deref().ok_or_else(|| StoreError::corrupt("its ledger entry is missing"))
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

/// A number as PostgreSQL counts; nothing stored exceeds its range.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A count or index that was stored.
pub(crate) fn unsigned(number: i64) -> StoreResult<u64> {
    u64::try_from(number).map_err(|_| StoreError::corrupt(format_args!("{number} is no index")))
}

/// A list to bind as `text[]`, each item once.
pub(crate) fn list(items: &[impl ToString]) -> Vec<String> {
    let items: BTreeSet<_> = items.iter().map(ToString::to_string).collect();
    items.into_iter().collect()
}

/// A record and the index of its newest fact.
pub(crate) fn current<T: DeserializeOwned>((revision, payload): (i64, Payload)) -> StoreResult<Current<T>> {
    Ok(Current { revision: unsigned(revision)?, record: record(text_of(&payload)?)? })
}

/// What a list shows of a row: its fact's index, and the record.
pub(crate) fn listed_record<T: DeserializeOwned>((index, payload): (i64, Payload)) -> (i64, StoreResult<T>) {
    (index, text_of(&payload).and_then(record))
}

/// The same, with the record's revision.
pub(crate) fn listed_current<T: DeserializeOwned>(row: (i64, Payload)) -> (i64, StoreResult<Current<T>>) {
    (row.0, current(row))
}

/// The payload of a row's fact. A subquery, never a join: PostgreSQL may read a whole ledger for a join with it, while a
/// subquery is a probe of the index whatever the statistics say.
macro_rules! payload {
    ($row:literal) => {
        concat!(
            "(SELECT l.payload FROM evidence.ledger l WHERE l.org = ",
            $row,
            ".org AND l.idx = ",
            $row,
            ".ledger_index)"
        )
    };
}
pub(crate) use payload;

/// The rows of the organization `$1` whose column is in the list `$2`, which names each value once. A subquery for each
/// value (`OFFSET 0` keeps it one), for then each is a probe of the index: of `= ANY($2)` PostgreSQL may think that all
/// rows of the organization are as quickly read, where it has no statistics or old ones.
macro_rules! each {
    ($table:literal, $column:literal, $row:literal) => {
        concat!(
            "UNNEST($2::text[]) AS wanted (value) CROSS JOIN LATERAL (SELECT * FROM evidence.",
            $table,
            " WHERE org = $1 AND ",
            $column,
            " = wanted.value OFFSET 0) ",
            $row
        )
    };
}
pub(crate) use each;

pub(crate) const BY_IDS: &str = concat!(
    "SELECT n.ledger_index, ",
    payload!("n"),
    " FROM ",
    each!("record", "id", "n"),
    " WHERE n.kind = $3"
);

pub(crate) const ALL_NAMED: &str = concat!(
    "SELECT n.ledger_index, ",
    payload!("n"),
    " FROM evidence.record n WHERE n.org = $1 AND n.kind || '' = $2 AND NOT n.archived ORDER BY n.name"
);

impl PostgresStore {
    /// The records of this kind and these ids, in any order.
    pub(crate) async fn by_ids<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
        ids: &[Id],
    ) -> StoreResult<Vec<Current<T>>> {
        let question = self.ask_of(org, BY_IDS).long().bind(list(ids)).bind(kind);
        question.readable_as(org, listed_current).await
    }

    /// The record of this kind and id.
    pub(crate) async fn by_id<T: DeserializeOwned>(
        &self,
        org: Id,
        kind: &'static str,
        id: Id,
    ) -> StoreResult<Option<Current<T>>> {
        let question = self.ask_of(org, BY_IDS).bind(list(&[id])).bind(kind);
        question.first().await?.map(current).transpose()
    }

    /// Every record of this kind, by name, but for the archived ones.
    pub(crate) async fn all_named<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        kind: &'static str,
    ) -> StoreResult<Vec<Current<T>>> {
        self.ask_of(org, ALL_NAMED).long().bind(kind).readable_as(org, listed_current).await
    }

    /// A page of the records whose facts `listing` finds, and how many there are. The values are those of `$4` onwards.
    pub(crate) async fn page<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        listing: &Listing,
        request: PageRequest,
        values: Vec<Bound>,
    ) -> StoreResult<Page<T>> {
        self.request(org, &listing.sql(PAYLOAD), readable_records, request, values).await
    }

    /// The same, for what decisions rest on: nothing is left out.
    pub(crate) async fn whole_page<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        listing: &Listing,
        request: PageRequest,
        values: Vec<Bound>,
    ) -> StoreResult<Page<T>> {
        self.request(org, &listing.sql(PAYLOAD), all_records, request, values).await
    }

    /// The same, without what the facts say.
    pub(crate) async fn listed(
        &self,
        org: Id,
        listing: &Listing,
        request: PageRequest,
        values: Vec<Bound>,
    ) -> StoreResult<Page<Listed>> {
        self.request(org, &listing.sql(SIZE), sizes, request, values).await
    }

    /// A page, and how many there are: one statement, so that the two agree.
    async fn request<T: Send + 'static>(
        &self,
        org: Id,
        sql: &str,
        read: ReadPage<T>,
        request: PageRequest,
        values: Vec<Bound>,
    ) -> StoreResult<Page<T>> {
        let question = self.ask_of(org, sql).long();
        let question = question.bind(signed(request.limit)).bind(signed(request.offset));
        let question = values.into_iter().fold(question, |question, value| match value {
            Bound::Text(text) => question.bind(text),
            Bound::List(list) => question.bind(list),
        });
        let slice = move |rows: Vec<(i64, Option<i64>, Payload)>| {
            let total = rows.first().map_or(Ok(0), |(total, ..)| unsigned(*total))?;
            let page = rows.into_iter().filter_map(|(_, index, text)| Some((index?, text))).collect();
            Ok(Page { items: read(org, page)?, total })
        };
        question.answer(slice).await
    }
}

/// A value of a list's condition.
pub(crate) enum Bound {
    Text(Option<String>),
    List(Vec<Option<String>>),
}

/// What a list shows of the fact of each row `x`: all of it.
const PAYLOAD: &str = payload!("x");

/// Its id and its size, for which a text that is stored apart is not read. Whoever reads on finds out whether it can be
/// read.
const SIZE: &str = concat!("x.id || ' ' || coalesce(octet_length(", payload!("x"), "), 0)");

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
    page.into_iter().map(|(_, payload)| record(text_of(&payload)?)).collect()
}

/// What [`SIZE`] says of a page.
fn sizes(_: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<Listed>> {
    page.into_iter().map(|(_, text)| sized(text_of(&text)?)).collect()
}

/// A list to take a page of: constant pieces of SQL alone, values are bound.
pub(crate) struct Listing {
    /// The table, as `x` with its columns `org` and `ledger_index`, and the condition that every list has.
    pub(crate) from: &'static str,
    /// The further conditions that were asked for, each beginning with ` AND `.
    pub(crate) filter: Vec<&'static str>,
    /// The total order.
    pub(crate) order: Order,
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
    /// The statement that answers how many there are and, row by row, the index and `column` of the page `$2`, `$3`.
    fn sql(&self, column: &str) -> String {
        let Self { from, filter, order, counted } = self;
        let all = format!("{from}{}", filter.concat());
        let (total, page, by) = match order {
            Order::By(order) => {
                ("count(*)".to_owned(), format!("ORDER BY {order} LIMIT $2 OFFSET $3"), (*order).to_owned())
            }
            Order::Numbered(number) => (
                format!("coalesce(max({number}), 0)"),
                format!("AND {number} <= (SELECT n FROM total) - $3 ORDER BY {number} DESC LIMIT $2"),
                format!("{number} DESC"),
            ),
        };
        let total = match order {
            Order::By(_) if !counted => "SELECT 0::bigint AS n".to_owned(),
            Order::By(_) | Order::Numbered(_) => format!("SELECT {total} AS n FROM {all}"),
        };
        format!(
            "WITH total AS MATERIALIZED ({total}),
                page AS MATERIALIZED (SELECT x.* FROM {all} {page})
            SELECT (SELECT n FROM total), x.ledger_index, {column}
            FROM (SELECT 1) AS one LEFT JOIN page x ON true
            ORDER BY {by}"
        )
    }

    /// By which index, and by which of its columns, the page is read from tables with some thousand rows.
    #[cfg(test)]
    pub(crate) async fn plan(&self) -> String {
        // The types of the values, as `page` binds them.
        let types =
            ["text", "bigint", "bigint", "text", "text", "text", "text", "text", "text", "text[]", "text"];
        let mut planner = crate::plans::Planner::filled().await;
        planner.execute("SET enable_bitmapscan = off").await;
        let lines = planner.steps(&self.sql(SIZE), &types).await;
        let page = lines.iter().skip_while(|line| !line.contains("CTE page"));
        let scan = page.skip_while(|line| !(line.contains(" on ") && line.contains(" x")));
        scan.take(2).map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}
