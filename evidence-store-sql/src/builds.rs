//! Builds: the first report of each artifact, in a table of their own, numbered as they were recorded, and so by time: a
//! window of time is a range of numbers.

use async_trait::async_trait;
use evidence_core::builds::{Build, BuildFilter, BuildStore};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Page, PageRequest};
use evidence_core::store::{StoreResult, skip_corrupt};
use evidence_core::time::Timestamp;
use serde::Deserialize;

use crate::decode::{Payload, array, body};
use crate::driver::Driver;
use crate::listing::{Listing, Order};
use crate::sql::{Dialect, Sql};
use crate::store::SqlStore;
use crate::value::{Value, texts};

/// Of the builds `b` that a condition admits the first number whose time is not before; the one after the last where there is
/// none. It is looked for by halves of the numbers that are left, `size` from `low` on: an index by time would be one more
/// that each build is written to.
macro_rules! first_not {
    ($before:literal, $number:literal, $of:literal) => {
        concat!(
            "(WITH RECURSIVE half (low, size) AS (
                SELECT CAST(1 AS bigint), coalesce(max(b.",
            $number,
            "), 0) FROM evidence.build b WHERE ",
            $of,
            "
                UNION ALL
                SELECT h.low + CASE WHEN (
                        SELECT b.at ",
            $before,
            " FROM evidence.build b WHERE ",
            $of,
            " AND b.",
            $number,
            " = h.low + (h.size + 1) / 2 - 1) THEN (h.size + 1) / 2 ELSE 0 END, h.size / 2
                FROM half h WHERE h.size > 0)
            SELECT h.low FROM half h WHERE h.size = 0)"
        )
    };
}

/// The condition that builds lie in the window: a column of theirs, and of which builds `b` it is the number.
macro_rules! in_window {
    ($column:literal, $number:literal, $of:literal) => {
        concat!(
            $column,
            " >= ",
            first_not!("< $4", $number, $of),
            " AND ",
            $column,
            " < ",
            first_not!("<= $5", $number, $of)
        )
    };
}

/// Builds that are numbered: those of an organization, or of a repo.
struct Numbered {
    /// All of them, as `x`.
    all: Sql,
    number: &'static str,
    /// The first number of the window, and the one after its last.
    window: [Sql; 2],
    /// Those of the window.
    in_window: Sql,
}

macro_rules! numbered {
    ($all:literal, $column:literal is $number:literal of $of:literal) => {
        Numbered {
            all: Sql::same($all),
            number: $column,
            window: [
                Sql::same(first_not!("< $4", $number, $of)),
                Sql::same(first_not!("<= $5", $number, $of)),
            ],
            in_window: Sql::same(concat!($all, " AND ", in_window!($column, $number, $of))),
        }
    };
}

const OF_ORGANIZATION: Numbered =
    numbered!("evidence.build x WHERE x.org = $1", "x.ordinal" is "ordinal" of "b.org = $1");

const OF_REPO: Numbered = numbered!(
    "evidence.build x WHERE x.org = $1 AND x.repo = $6",
    "x.repo_ordinal" is "repo_ordinal" of "b.org = $1 AND b.repo = $6"
);

/// In the window, of several repos: one after the other.
const OF_REPOS: Sql = Sql::each(
    concat!(
        "(SELECT DISTINCT value FROM json_each($6)) w CROSS JOIN evidence.build x
            ON x.org = $1 AND x.repo = w.value AND ",
        in_window!("x.repo_ordinal", "repo_ordinal", "b.org = $1 AND b.repo = w.value"),
        " WHERE true"
    ),
    concat!(
        "(SELECT n.* FROM (SELECT DISTINCT v.value FROM UNNEST($6::text[]) AS v (value)) w CROSS JOIN LATERAL (
            SELECT * FROM evidence.build WHERE org = $1 AND repo = w.value AND ",
        in_window!("repo_ordinal", "repo_ordinal", "b.org = $1 AND b.repo = w.value"),
        " OFFSET 0) n) x
        WHERE true"
    ),
);

/// The newest `$7` of each of them.
const NEWEST_OF_REPOS: Sql = Sql::each(
    concat!(
        "(SELECT DISTINCT value FROM json_each($6)) w CROSS JOIN evidence.build x
            ON x.org = $1 AND x.ordinal IN (
                SELECT n.ordinal FROM evidence.build n WHERE n.org = $1 AND n.repo = w.value AND ",
        in_window!("n.repo_ordinal", "repo_ordinal", "b.org = $1 AND b.repo = w.value"),
        " ORDER BY n.repo_ordinal DESC LIMIT $7)
        WHERE true"
    ),
    concat!(
        "(SELECT n.* FROM (SELECT DISTINCT v.value FROM UNNEST($6::text[]) AS v (value)) w CROSS JOIN LATERAL (
            SELECT * FROM evidence.build WHERE org = $1 AND repo = w.value AND ",
        in_window!("repo_ordinal", "repo_ordinal", "b.org = $1 AND b.repo = w.value"),
        " ORDER BY repo_ordinal DESC LIMIT $7) n) x
        WHERE true"
    ),
);

/// What [`Row`] reads, of the report.
const ROW: Sql = Sql::each(
    "(SELECT json_array(a.id, a.flow, a.trail, a.fingerprint, a.repo, x.at) FROM evidence.artifact a
        WHERE a.id = x.id AND +a.org = $1)",
    "(SELECT json_build_array(a.id, a.flow, a.trail, a.fingerprint, a.repo, x.at)::text
        FROM evidence.artifact a WHERE a.org = $1 AND a.id = x.id)",
);

#[derive(Deserialize)]
struct Row(Id, Id, Option<Id>, Fingerprint, Option<Id>, Timestamp);

impl From<Row> for Build {
    fn from(Row(report, flow, trail, fingerprint, repo, at): Row) -> Self {
        Self { report, flow, trail, fingerprint, repo, at }
    }
}

/// How the builds are numbered of which the filter admits a window, unless they are of several repos.
const fn numbered(filter: &BuildFilter) -> Option<Numbered> {
    match &filter.repos {
        None => Some(OF_ORGANIZATION),
        Some(repos) if repos.len() == 1 => Some(OF_REPO),
        Some(_) => None,
    }
}

/// The builds that the filter admits, newest first.
fn listing(filter: &BuildFilter) -> Listing {
    let (from, order) = match numbered(filter) {
        Some(Numbered { all, number, window: [first, end], .. }) => {
            (all, Order::Range { number, first, end })
        }
        None => (OF_REPOS, Order::Within { rows: NEWEST_OF_REPOS, by: Sql::same("x.ordinal DESC") }),
    };
    Listing { from, filter: Vec::new(), order, narrow: false, counted: true }
}

/// What the conditions are bound to, from `$4` on.
fn values(filter: &BuildFilter, request: PageRequest) -> Vec<Value> {
    let repos = match filter.repos.as_deref() {
        Some([repo]) => (*repo).into(),
        repos => texts(repos.unwrap_or_default()),
    };
    let newest = request.limit.saturating_add(request.offset);
    vec![filter.from.into(), filter.to.into(), repos, newest.into()]
}

/// The builds of a page that can be read.
fn builds(org: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<Build>> {
    let build = |text: &Payload| text.text().and_then(body::<Row>).map(Build::from);
    skip_corrupt(org, page.into_iter().map(|(index, text)| (index, build(&text))))
}

/// One row: how many there are, and the newest `$2`.
fn times_text(dialect: Dialect, filter: &BuildFilter) -> String {
    let (all, rows, by) = match numbered(filter) {
        Some(Numbered { in_window, number, .. }) => (in_window, in_window, number),
        None => (OF_REPOS, NEWEST_OF_REPOS, "x.ordinal"),
    };
    let (all, rows) = (all.text(dialect), rows.text(dialect));
    format!(
        "SELECT (SELECT count(*) FROM {all}), (
            SELECT '[' || string_agg(CAST(t.at AS text), ',') || ']'
            FROM (SELECT x.at FROM {rows} ORDER BY {by} DESC LIMIT $2) t)"
    )
}

#[async_trait]
impl<D: Driver> BuildStore for SqlStore<D> {
    async fn builds(&self, org: Id, filter: &BuildFilter, request: PageRequest) -> StoreResult<Page<Build>> {
        self.read_page(org, &listing(filter), ROW, builds, request, values(filter, request)).await
    }

    async fn build_times(&self, org: Id, filter: &BuildFilter, limit: u64) -> StoreResult<Page<Timestamp>> {
        let request = PageRequest { offset: 0, limit };
        let query = self.query_text(times_text(D::DIALECT, filter)).of(org).bind(limit).bind(0_u64);
        let query = values(filter, request).into_iter().fold(query, |query, value| query.bind(value)).long();
        let page = |(total, times): (u64, Option<String>)| {
            let mut items: Vec<Timestamp> = array(times)?;
            items.sort_unstable_by(|one, other| other.cmp(one));
            Ok(Page { items, total })
        };
        Ok(query.first_as(page).await?.unwrap_or(Page { items: Vec::new(), total: 0 }))
    }
}
