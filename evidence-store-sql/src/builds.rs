//! Builds: the first report of each artifact, in a table of their own, so that a window of time is a range of an index.

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

/// By the expression no index but that of all builds by time is of use.
const BUILDS: Sql = Sql::each(
    "evidence.build x WHERE x.org = $1 AND x.at BETWEEN $4 AND $5",
    "evidence.build x WHERE x.org = $1 AND x.at + 0 BETWEEN $4 AND $5",
);
/// By the index of a repo's builds, which begins with no organization in SQLite.
const OF_REPO: Sql = Sql::each(
    "evidence.build x WHERE +x.org = $1 AND x.at BETWEEN $4 AND $5 AND x.repo = $6",
    "evidence.build x WHERE x.org = $1 AND x.at BETWEEN $4 AND $5 AND x.repo = $6",
);
/// By that index, in PostgreSQL one repo after the other.
const OF_REPOS: Sql = Sql::each(
    "evidence.build x WHERE +x.org = $1 AND x.at BETWEEN $4 AND $5 AND x.repo IN (SELECT value FROM json_each($6))",
    "(SELECT b.* FROM (SELECT DISTINCT v.value FROM UNNEST($6::text[]) AS v (value)) w CROSS JOIN LATERAL (
            SELECT * FROM evidence.build
            WHERE org = $1 AND repo = w.value AND at BETWEEN $4 AND $5 OFFSET 0) b) x
        WHERE true",
);
/// The newest `$7` of each of them.
const NEWEST_OF_REPOS: Sql = Sql::each(
    "(SELECT DISTINCT value FROM json_each($6)) w CROSS JOIN evidence.build x
        ON x.org = $1 AND x.fingerprint IN (
            SELECT b.fingerprint FROM evidence.build b
            WHERE +b.org = $1 AND b.repo = w.value AND b.at BETWEEN $4 AND $5
            ORDER BY b.at DESC, b.ledger_index DESC LIMIT $7)
        WHERE true",
    "(SELECT b.* FROM (SELECT DISTINCT v.value FROM UNNEST($6::text[]) AS v (value)) w CROSS JOIN LATERAL (
            SELECT * FROM evidence.build
            WHERE org = $1 AND repo = w.value AND at BETWEEN $4 AND $5
            ORDER BY at DESC, ledger_index DESC LIMIT $7) b) x
        WHERE true",
);

/// What [`Row`] reads, of the report.
const ROW: Sql = Sql::each(
    "(SELECT json_array(a.id, a.flow, a.trail, a.fingerprint, a.repo, a.at) FROM evidence.artifact a
        WHERE a.id = x.id AND +a.org = $1)",
    "(SELECT json_build_array(a.id, a.flow, a.trail, a.fingerprint, a.repo, a.at)::text
        FROM evidence.artifact a WHERE a.org = $1 AND a.id = x.id)",
);

#[derive(Deserialize)]
struct Row(Id, Id, Option<Id>, Fingerprint, Option<Id>, Timestamp);

impl From<Row> for Build {
    fn from(Row(report, flow, trail, fingerprint, repo, at): Row) -> Self {
        Self { report, flow, trail, fingerprint, repo, at }
    }
}

/// The builds that the filter admits; of these at least as many of the newest as a page may show; and their order, newest
/// first.
fn listed(filter: &BuildFilter) -> (Sql, Sql, Sql) {
    let by_time = Sql::same("x.at DESC, x.ledger_index DESC");
    match filter.repos.as_deref() {
        Some([_]) => (OF_REPO, OF_REPO, by_time),
        Some(_) => (OF_REPOS, NEWEST_OF_REPOS, by_time),
        None => (
            BUILDS,
            BUILDS,
            Sql::each("x.at DESC, x.ledger_index DESC", "x.at + 0 DESC, x.ledger_index DESC"),
        ),
    }
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
    let (all, rows, by) = listed(filter);
    let (all, rows, by) = (all.text(dialect), rows.text(dialect), by.text(dialect));
    format!(
        "SELECT (SELECT count(*) FROM {all}), (
            SELECT '[' || string_agg(CAST(t.at AS text), ',') || ']'
            FROM (SELECT x.at FROM {rows} ORDER BY {by} LIMIT $2) t)"
    )
}

#[async_trait]
impl<D: Driver> BuildStore for SqlStore<D> {
    async fn builds(&self, org: Id, filter: &BuildFilter, request: PageRequest) -> StoreResult<Page<Build>> {
        let (from, rows, by) = listed(filter);
        let order = Order::Within { rows, by };
        let listing = Listing { from, filter: Vec::new(), order, narrow: false, counted: true };
        self.read_page(org, &listing, ROW, builds, request, values(filter, request)).await
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
