//! Deployments: one row for each artifact that began to run. They are numbered in the order of recording, and
//! so by time: in the organization, in the environment, and per repo.

use std::cmp::Reverse;

use async_trait::async_trait;
use evidence_core::deployments::{
    DeployedReport, Deployment, DeploymentFilter, DeploymentScope, DeploymentStore, DeploymentTime,
};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Page, PageRequest};
use evidence_core::snapshots::ArtifactKey;
use evidence_core::store::{StoreResult, skip_corrupt};
use evidence_core::time::Timestamp;
use serde::Deserialize;

use crate::decode::{Payload, array, body};
use crate::driver::Driver;
use crate::listing::{Listing, Order};
use crate::sql::{Dialect, Sql, id_text};
use crate::store::SqlStore;
use crate::value::{Value, ids, texts};
use crate::windows::{COUNT, Numbered, first_not, in_window, numbered};

const OF_ORGANIZATION: Numbered = numbered!("evidence.deployment", "x.org = $1", "ordinal", "b.org = $1");

const OF_ENVIRONMENT: Numbered = numbered!(
    "evidence.deployment",
    "x.org = $1 AND x.environment = $6",
    "environment_ordinal",
    "b.org = $1 AND b.environment = $6"
);

const OF_REPO: Numbered = numbered!(
    "evidence.deployment",
    "x.org = $1 AND x.repo = $6",
    "repo_ordinal",
    "b.org = $1 AND b.repo = $6"
);

/// The window for several repos, one repo after the other.
const OF_REPOS: Sql = Sql::per_dialect(
    concat!(
        "(SELECT DISTINCT value FROM json_each($6)) w CROSS JOIN evidence.deployment x
            ON x.org = $1 AND x.repo = w.value AND ",
        in_window!("x.repo_ordinal", "evidence.deployment", "repo_ordinal", "b.org = $1 AND b.repo = w.value"),
        " WHERE true"
    ),
    concat!(
        "(SELECT n.* FROM (SELECT DISTINCT v.value FROM UNNEST($6::text[]) AS v (value)) w CROSS JOIN LATERAL (
            SELECT * FROM evidence.deployment WHERE org = $1 AND repo = w.value AND ",
        in_window!("repo_ordinal", "evidence.deployment", "repo_ordinal", "b.org = $1 AND b.repo = w.value"),
        " OFFSET 0) n) x
        WHERE true"
    ),
);

const IN_ENVIRONMENTS: Sql = Sql::per_dialect(
    " AND x.environment IN (SELECT value FROM json_each($7))",
    " AND x.environment = ANY($7)",
);
const OF_FLOW: Sql = Sql::portable(" AND x.flow = $8");

/// The JSON of a row `x` that [`Row`] deserializes.
const ROW: Sql = Sql::per_dialect(
    "json_array(x.environment, x.snapshot, x.artifact, x.name, x.compliant, x.report, x.flow, x.repo, x.committed_at,
        x.at, json((SELECT json_array(a.trail, a.name, a.commit_sha) FROM evidence.artifact a
            WHERE a.id = x.report AND +a.org = $1)))",
    concat!(
        "json_build_array(",
        id_text!("x.environment"),
        ", x.snapshot, x.artifact, x.name, x.compliant::integer, ",
        id_text!("x.report"),
        ", ",
        id_text!("x.flow"),
        ", x.repo, x.committed_at, x.at, (SELECT json_build_array(a.trail, a.name, a.commit_sha)
            FROM evidence.artifact a WHERE a.org = $1 AND a.id = ",
        id_text!("x.report"),
        "))::text"
    ),
);

#[derive(Deserialize)]
struct Row(
    Id,
    u64,
    ArtifactKey,
    String,
    Option<u8>,
    Option<Id>,
    Option<Id>,
    Option<Id>,
    Option<Timestamp>,
    Timestamp,
    Option<(Option<Id>, String, String)>,
);

impl From<Row> for Deployment {
    fn from(row: Row) -> Self {
        let Row(
            environment,
            snapshot,
            artifact,
            name,
            compliant,
            report,
            flow,
            repo,
            committed_at,
            at,
            reported,
        ) = row;
        let report = report.zip(flow).map(|(id, flow)| {
            let (trail, reference, commit) = reported.unwrap_or_default();
            DeployedReport { id, flow, trail, reference, commit, repo, committed_at }
        });
        let compliant = compliant.map(|compliant| compliant == 1);
        Self { environment, snapshot, fingerprint: artifact.fingerprint(), name, compliant, report, at }
    }
}

/// Returns the numbering of the deployments that the filter selects, unless it selects several repos.
const fn numbered(filter: &DeploymentFilter) -> Option<Numbered> {
    match &filter.scope {
        DeploymentScope::Organization => Some(OF_ORGANIZATION),
        DeploymentScope::Environment(_) => Some(OF_ENVIRONMENT),
        DeploymentScope::Repos(repos) if repos.len() == 1 => Some(OF_REPO),
        DeploymentScope::Repos(_) => None,
    }
}

/// Returns the conditions besides the window.
fn conditions(filter: &DeploymentFilter) -> Vec<Sql> {
    let given = [filter.environments.as_ref().map(|_| IN_ENVIRONMENTS), filter.flow.map(|_| OF_FLOW)];
    given.into_iter().flatten().collect()
}

/// Returns the list of the deployments that the filter selects, newest first.
fn listing(filter: &DeploymentFilter) -> Listing {
    let conditions = conditions(filter);
    let (from, order) = match numbered(filter) {
        Some(Numbered { all, number, window: [first, end], .. }) if conditions.is_empty() => {
            (all, Order::Range { number, first, end })
        }
        Some(Numbered { in_window, newest_first, .. }) => (in_window, Order::By(newest_first)),
        None => (OF_REPOS, Order::By(Sql::portable("x.ordinal DESC"))),
    };
    Listing { from, filter: conditions, order, narrow: false, counted: true }
}

/// Returns the values of the conditions, from `$4` on.
fn values(filter: &DeploymentFilter) -> Vec<Value> {
    let scope = match &filter.scope {
        DeploymentScope::Organization => Value::Text(None),
        DeploymentScope::Environment(environment) => Value::Id(Some(*environment)),
        DeploymentScope::Repos(repos) => match repos.as_slice() {
            [repo] => (*repo).into(),
            repos => texts(repos),
        },
    };
    let environments = ids(filter.environments.as_deref().unwrap_or_default());
    vec![filter.from.into(), filter.to.into(), scope, environments, Value::Id(filter.flow)]
}

/// Decodes the deployments of a page and skips corrupt ones.
fn deployments(org: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<Deployment>> {
    let deployment = |text: &Payload| text.text().and_then(body::<Row>).map(Deployment::from);
    skip_corrupt(org, page.into_iter().map(|(index, text)| (index, deployment(&text))))
}

/// Returns a statement with one result row: the total, and the newest `$2`.
fn times_text(dialect: Dialect, filter: &DeploymentFilter) -> String {
    let conditions: String = conditions(filter).iter().map(|condition| condition.text(dialect)).collect();
    let environment = match dialect {
        Dialect::Sqlite => "t.environment",
        Dialect::Postgres => id_text!("t.environment"),
    };
    let newest = |rows: &str, by: &str| {
        format!(
            "(SELECT '[' || string_agg('[\"' || {environment} || '\",' || t.at || ','
                || coalesce(CAST(t.committed_at AS text), 'null') || ',' || t.ordinal || ']', ',') || ']'
            FROM (SELECT x.environment, x.at, x.committed_at, x.ordinal FROM {rows}
                ORDER BY {by} DESC LIMIT $2) t)"
        )
    };
    match numbered(filter) {
        Some(of) if conditions.is_empty() => {
            let (bounds, number) = (of.bounds(dialect), of.number);
            let rows =
                format!("{} AND {number} >= bounds.low AND {number} < bounds.high", of.all.text(dialect));
            format!("SELECT {COUNT}, {} FROM {bounds} bounds", newest(&rows, number))
        }
        of => {
            let (rows, number) = of.map_or((OF_REPOS, "x.ordinal"), |of| (of.in_window, of.number));
            let rows = format!("{}{conditions}", rows.text(dialect));
            format!("SELECT (SELECT count(*) FROM {rows}), {}", newest(&rows, number))
        }
    }
}

/// A row of [`times_text`]: the environment, the time, the commit time, and the number.
type TimeRow = (Id, Timestamp, Option<Timestamp>, u64);

/// Selects the start of the newest run, by an index of the last intervals of runs.
macro_rules! last_run {
    () => {
        "SELECT i.since_idx FROM evidence.instance i
        WHERE i.org = $1 AND i.artifact = $3 AND i.environment = $2
            AND (i.exited OR i.until_idx = 9223372036854775807)
        ORDER BY i.since_idx DESC LIMIT 1"
    };
}

/// In PostgreSQL this reads only the deployments of the run's snapshot, and finds their numbers by binary
/// search.
const LATEST: Sql = Sql::per_dialect(
    concat!(
        "evidence.deployment x WHERE x.org = $1 AND x.environment = $2 AND x.artifact = $3 AND x.snapshot = (",
        last_run!(),
        ")"
    ),
    concat!(
        "(",
        last_run!(),
        ") run CROSS JOIN LATERAL (
            SELECT * FROM evidence.deployment WHERE org = $1 AND environment = $2 AND environment_ordinal >= ",
        first_not!("b.snapshot < run.since_idx", "evidence.deployment", "environment_ordinal" from "1", "b.org = $1 AND b.environment = $2"),
        " AND environment_ordinal < ",
        first_not!("b.snapshot <= run.since_idx", "evidence.deployment", "environment_ordinal" from "1", "b.org = $1 AND b.environment = $2"),
        " OFFSET 0) x
        WHERE x.artifact = $3"
    ),
);

fn latest_text(dialect: Dialect) -> String {
    format!("SELECT {} FROM {}", ROW.text(dialect), LATEST.text(dialect))
}

#[async_trait]
impl<D: Driver> DeploymentStore for SqlStore<D> {
    async fn deployments(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Deployment>> {
        self.read_page(org, &listing(filter), ROW, deployments, request, values(filter)).await
    }

    async fn deployment_times(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        limit: u64,
    ) -> StoreResult<Page<DeploymentTime>> {
        let query = self.query_text(times_text(D::DIALECT, filter)).of(org).bind(limit).bind(0_u64);
        let query = values(filter).into_iter().fold(query, |query, value| query.bind(value)).long();
        let page = |(total, times): (u64, Option<String>)| {
            let mut times: Vec<TimeRow> = array(times)?;
            times.sort_unstable_by_key(|(.., ordinal)| Reverse(*ordinal));
            let time = |(environment, at, committed_at, _)| DeploymentTime { environment, at, committed_at };
            Ok(Page { items: times.into_iter().map(time).collect(), total })
        };
        Ok(query.first_as(page).await?.unwrap_or(Page { items: Vec::new(), total: 0 }))
    }

    async fn latest_deployment(
        &self,
        org: Id,
        environment: Id,
        fingerprint: &Fingerprint,
    ) -> StoreResult<Option<Deployment>> {
        let query = self
            .query_text(latest_text(D::DIALECT))
            .of(org)
            .bind(Value::Id(Some(environment)))
            .bind(fingerprint);
        query.first_as(|(row,): (String,)| body::<Row>(&row).map(Deployment::from)).await
    }
}
