//! Builds: the first report of each artifact, in a table of their own. They are numbered in the order of
//! recording, and so by time. A time window is therefore a range of numbers.

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
use crate::windows::{COUNT, Numbered, in_window, numbered};

const OF_ORGANIZATION: Numbered = numbered!("evidence.build", "x.org = $1", "ordinal", "b.org = $1");

const OF_REPO: Numbered =
    numbered!("evidence.build", "x.org = $1 AND x.repo = $6", "repo_ordinal", "b.org = $1 AND b.repo = $6");

/// The window for several repos, one repo after the other.
const OF_REPOS: Sql = Sql::per_dialect(
    concat!(
        "(SELECT DISTINCT value FROM json_each($6)) w CROSS JOIN evidence.build x
            ON x.org = $1 AND x.repo = w.value AND ",
        in_window!("x.repo_ordinal", "evidence.build", "repo_ordinal", "b.org = $1 AND b.repo = w.value"),
        " WHERE true"
    ),
    concat!(
        "(SELECT n.* FROM (SELECT DISTINCT v.value FROM UNNEST($6::text[]) AS v (value)) w CROSS JOIN LATERAL (
            SELECT * FROM evidence.build WHERE org = $1 AND repo = w.value AND ",
        in_window!("repo_ordinal", "evidence.build", "repo_ordinal", "b.org = $1 AND b.repo = w.value"),
        " OFFSET 0) n) x
        WHERE true"
    ),
);

/// The newest `$7` builds of each of these repos.
const NEWEST_OF_REPOS: Sql = Sql::per_dialect(
    concat!(
        "(SELECT DISTINCT value FROM json_each($6)) w CROSS JOIN evidence.build x
            ON x.org = $1 AND x.ordinal IN (
                SELECT n.ordinal FROM evidence.build n WHERE n.org = $1 AND n.repo = w.value AND ",
        in_window!("n.repo_ordinal", "evidence.build", "repo_ordinal", "b.org = $1 AND b.repo = w.value"),
        " ORDER BY n.repo_ordinal DESC LIMIT $7)
        WHERE true"
    ),
    concat!(
        "(SELECT n.* FROM (SELECT DISTINCT v.value FROM UNNEST($6::text[]) AS v (value)) w CROSS JOIN LATERAL (
            SELECT * FROM evidence.build WHERE org = $1 AND repo = w.value AND ",
        in_window!("repo_ordinal", "evidence.build", "repo_ordinal", "b.org = $1 AND b.repo = w.value"),
        " ORDER BY repo_ordinal DESC LIMIT $7) n) x
        WHERE true"
    ),
);

/// The JSON of the report that [`Row`] deserializes.
const ROW: Sql = Sql::per_dialect(
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

/// Returns the numbering of the builds that the filter selects, unless it selects several repos.
const fn numbered(filter: &BuildFilter) -> Option<Numbered> {
    match &filter.repos {
        None => Some(OF_ORGANIZATION),
        Some(repos) if repos.len() == 1 => Some(OF_REPO),
        Some(_) => None,
    }
}

/// Returns the list of the builds that the filter selects, newest first.
fn listing(filter: &BuildFilter) -> Listing {
    let (from, order) = match numbered(filter) {
        Some(Numbered { all, number, window: [first, end], .. }) => {
            (all, Order::Range { number, first, end })
        }
        None => {
            let by = Sql::portable("x.ordinal DESC");
            (OF_REPOS, Order::Within { total: None, rows: NEWEST_OF_REPOS, by })
        }
    };
    Listing { from, filter: Vec::new(), order, narrow: false, counted: true }
}

/// Returns the values of the conditions, from `$4` on.
fn values(filter: &BuildFilter, request: PageRequest) -> Vec<Value> {
    let repos = match filter.repos.as_deref() {
        Some([repo]) => (*repo).into(),
        repos => texts(repos.unwrap_or_default()),
    };
    let newest = request.limit.saturating_add(request.offset);
    vec![filter.from.into(), filter.to.into(), repos, newest.into()]
}

/// Decodes the builds of a page and skips corrupt ones.
fn builds(org: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<Build>> {
    let build = |text: &Payload| text.text().and_then(body::<Row>).map(Build::from);
    skip_corrupt(org, page.into_iter().map(|(index, text)| (index, build(&text))))
}

/// Returns a statement with one result row: the total, and the newest `$2`.
fn times_text(dialect: Dialect, filter: &BuildFilter) -> String {
    let newest = |rows: &str, by: &str| {
        format!(
            "(SELECT '[' || string_agg(CAST(t.at AS text), ',') || ']'
            FROM (SELECT x.at FROM {rows} ORDER BY {by} DESC LIMIT $2) t)"
        )
    };
    match numbered(filter) {
        Some(of) => {
            let (bounds, number) = (of.bounds(dialect), of.number);
            let rows =
                format!("{} AND {number} >= bounds.low AND {number} < bounds.high", of.all.text(dialect));
            format!("SELECT {COUNT}, {} FROM {bounds} bounds", newest(&rows, number))
        }
        None => {
            let (all, rows) = (OF_REPOS.text(dialect), NEWEST_OF_REPOS.text(dialect));
            format!("SELECT (SELECT count(*) FROM {all}), {}", newest(rows, "x.ordinal"))
        }
    }
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
