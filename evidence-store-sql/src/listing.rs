//! Pages of lists.

use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::store::{StoreResult, skip_corrupt};
use serde::de::DeserializeOwned;

use crate::decode::{Payload, listed_record, record};
use crate::driver::Driver;
use crate::sql::{Dialect, Sql, payload};
use crate::store::SqlStore;
use crate::value::{Cell, FromCell, Value};
use crate::windows::{COUNT, bounds};

/// A list that can be read page by page.
pub(crate) struct Listing {
    /// The table, as `x` with its column `ledger_index`, and the base condition.
    pub(crate) from: Sql,
    /// Additional conditions of the request, each beginning with ` AND `.
    pub(crate) filter: Vec<Sql>,
    /// The total order.
    pub(crate) order: Order,
    /// Whether the list is usually short.
    pub(crate) narrow: bool,
    /// Whether the caller needs the total number of rows.
    pub(crate) counted: bool,
}

/// The order of a list.
pub(crate) enum Order {
    /// By these expressions.
    By(Sql),
    /// By expressions, with a separate source for the page. The source has no more rows of the list than a
    /// page may show. `rows` replaces the list's own source, which then only serves the count.
    Within {
        /// The total number of rows of the list, a scalar; `None` counts the rows.
        total: Option<Sql>,
        /// The source, as `x`, with its condition.
        rows: Sql,
        /// The expressions.
        by: Sql,
    },
    /// By a column that numbers all rows of the list from 1 without gaps. The greatest number is the total.
    Numbered(&'static str, SortDirection),
    /// By such a column, greatest number first, for a range of numbers.
    Range {
        /// The column.
        number: &'static str,
        /// The first number, a scalar.
        first: Sql,
        /// The number after the last, a scalar.
        end: Sql,
    },
    /// By a column of an index that also contains every filter column. Only the rows of the page are read.
    Indexed {
        /// The column.
        key: &'static str,
        /// Its direction.
        direction: SortDirection,
        /// The source of the row `x` with the key `found.key`.
        row: Sql,
    },
}

impl Listing {
    /// Returns the statement for a page of `$2` rows after `$3`. The result is the total and, per row, the
    /// ledger index and `column`. Payloads are fetched only for the rows of the page.
    fn sql(&self, dialect: Dialect, column: Sql) -> String {
        let Self { from, filter, order, counted, .. } = self;
        let filter: String = filter.iter().map(|condition| condition.text(dialect)).collect();
        let all = format!("{}{filter}", from.text(dialect));
        let counted_all = format!("(SELECT count(*) FROM {all})");
        // `max` is avoided: PostgreSQL reads all rows for it if it estimates few.
        let greatest = |number: &str| {
            format!(
                "coalesce((SELECT {number} FROM {all} AND {number} IS NOT NULL ORDER BY {number} DESC LIMIT 1), 0)"
            )
        };
        let in_order =
            |by: &str| (counted_all.clone(), format!("ORDER BY {by} LIMIT $2 OFFSET $3"), by.to_owned());
        // A page of numbered rows contains only the numbers of its range. If a row was lost, the page is
        // shorter; no row appears twice, and no additional row is read. `$2 + $3` may overflow, and
        // PostgreSQL computes it during planning regardless of the condition.
        let bound = |of_full_page: &str, of_last_page: &str| {
            format!("(SELECT CASE WHEN $2 < n - $3 THEN {of_full_page} ELSE {of_last_page} END FROM total)")
        };
        let (total, page, by) = match order {
            Order::By(by) | Order::Within { by, .. } => in_order(by.text(dialect)),
            Order::Indexed { key, direction: SortDirection::Asc, .. } => in_order(key),
            Order::Indexed { key, direction: SortDirection::Desc, .. } => in_order(&format!("{key} DESC")),
            Order::Numbered(number, SortDirection::Asc) => (
                greatest(number),
                format!(
                    "AND {number} > $3 AND {number} <= {} ORDER BY {number} LIMIT $2",
                    bound("n - (n - $3 - $2)", "n")
                ),
                (*number).to_owned(),
            ),
            Order::Numbered(number, SortDirection::Desc) => (
                greatest(number),
                format!(
                    "AND {number} <= (SELECT n - $3 FROM total) AND {number} > {}
                    ORDER BY {number} DESC LIMIT $2",
                    bound("n - $3 - $2", "0")
                ),
                format!("{number} DESC"),
            ),
            Order::Range { number, .. } => (
                COUNT.to_owned(),
                format!(
                    "AND {number} < (SELECT high - $3 FROM total) AND {number} >= {}
                    ORDER BY {number} DESC LIMIT $2",
                    bound("high - $3 - $2", "high - n")
                ),
                format!("{number} DESC"),
            ),
        };
        let total = match order {
            Order::By(_) | Order::Within { .. } if !counted => "SELECT 0 AS n".to_owned(),
            Order::Within { total: Some(total), .. } => format!("SELECT {} AS n", total.text(dialect)),
            Order::By(_) | Order::Within { .. } | Order::Numbered(..) | Order::Indexed { .. } => {
                format!("SELECT {total} AS n")
            }
            Order::Range { first, end, .. } => {
                format!("SELECT {total} AS n, bounds.high FROM {} bounds", bounds(dialect, [*first, *end]))
            }
        };
        let rows = match order {
            Order::Within { rows, .. } => format!("{}{filter} {page}", rows.text(dialect)),
            Order::By(_) | Order::Numbered(..) | Order::Range { .. } => format!("{all} {page}"),
            Order::Indexed { key, row, .. } => {
                format!("(SELECT {key} AS key FROM {all} {page}) AS found CROSS JOIN {}", row.text(dialect))
            }
        };
        let column = column.text(dialect);
        format!(
            "WITH total AS MATERIALIZED ({total}),
                page AS MATERIALIZED (SELECT x.* FROM {rows})
            SELECT (SELECT n FROM total), x.ledger_index, {column}
            FROM (SELECT 1) AS one LEFT JOIN page x ON true
            ORDER BY {by}"
        )
    }
}

/// Selects the whole payload of each row `x`.
const PAYLOAD: Sql = Sql::portable(payload!("x"));

/// Selects the id and the payload size of each row. A later read finds out whether the payload can be
/// decoded.
const SIZE: Sql = Sql::portable(concat!("x.id || ' ' || ", crate::sql::payload_size!("x")));

/// Decodes a value of [`SIZE`].
pub(crate) fn decode_size(text: &str) -> StoreResult<Listed> {
    let parts = text.split_once(' ').and_then(|(id, bytes)| Some((id, bytes.parse().ok()?)));
    let (id, bytes) = parts.ok_or_else(|| StoreError::corrupt("a list tells no size"))?;
    Ok(Listed { id: Id::from_cell(Cell::Text(id.to_owned()))?, bytes })
}

/// Decodes a page of an organization: for each row the index of its fact, and the selected column.
pub(crate) type ReadPage<T> = fn(Id, Vec<(i64, Payload)>) -> StoreResult<Vec<T>>;

/// Decodes the records of a page and skips corrupt ones.
fn readable_records<T: DeserializeOwned>(org: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<T>> {
    skip_corrupt(org, page.into_iter().map(listed_record))
}

/// Decodes all records of a page. A corrupt record is an error.
fn all_records<T: DeserializeOwned>(_: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<T>> {
    page.into_iter().map(|(_, payload)| record(payload.text()?)).collect()
}

/// Decodes the [`SIZE`] values of a page.
fn sizes(_: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<Listed>> {
    page.into_iter().map(|(_, text)| decode_size(text.text()?)).collect()
}

impl<D: Driver> SqlStore<D> {
    /// Returns a page of the records of `listing`, and the total. The values are bound from `$4` on. Skips
    /// corrupt records.
    pub(crate) async fn page<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        listing: &Listing,
        request: PageRequest,
        values: Vec<Value>,
    ) -> StoreResult<Page<T>> {
        self.read_page(org, listing, PAYLOAD, readable_records, request, values).await
    }

    /// Returns a page like [`Self::page`], for decisions: a corrupt record is an error.
    pub(crate) async fn whole_page<T: DeserializeOwned + Send + 'static>(
        &self,
        org: Id,
        listing: &Listing,
        request: PageRequest,
        values: Vec<Value>,
    ) -> StoreResult<Page<T>> {
        self.read_page(org, listing, PAYLOAD, all_records, request, values).await
    }

    /// Returns a page like [`Self::page`], with ids and payload sizes in place of records.
    pub(crate) async fn listed(
        &self,
        org: Id,
        listing: &Listing,
        request: PageRequest,
        values: Vec<Value>,
    ) -> StoreResult<Page<Listed>> {
        self.read_page(org, listing, SIZE, sizes, request, values).await
    }

    /// Returns a page and the total from one statement, so that the two agree.
    pub(crate) async fn read_page<T: Send + 'static>(
        &self,
        org: Id,
        listing: &Listing,
        column: Sql,
        read: ReadPage<T>,
        request: PageRequest,
        values: Vec<Value>,
    ) -> StoreResult<Page<T>> {
        let query = self.query_text(listing.sql(D::DIALECT, column)).of(org);
        let query = query.bind(request.limit).bind(request.offset);
        let query = values.into_iter().fold(query, |query, value| query.bind(value));
        let query = if listing.narrow { query.per_item(1) } else { query.long() };
        let page = move |rows: Vec<(u64, Option<i64>, Payload)>| {
            let total = rows.first().map_or(0, |(total, ..)| *total);
            let page = rows.into_iter().filter_map(|(_, index, text)| Some((index?, text))).collect();
            Ok(Page { items: read(org, page)?, total })
        };
        query.answer(page).await
    }
}
