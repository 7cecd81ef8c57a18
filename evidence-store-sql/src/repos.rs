//! Repos: named by their identity, listed by their name.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::id::Id;
use evidence_core::page::{Page, PageRequest, SortDirection};
use evidence_core::repos::{Repo, RepoFacet, RepoFilter, RepoStore, VcsProvider};
use evidence_core::store::StoreResult;

use crate::decode::{Payload, current};
use crate::driver::Driver;
use crate::listing::{Listing, Order};
use crate::sql::{Dialect, Sql, payload};
use crate::store::SqlStore;
use crate::tags::tag_columns;
use crate::value::{Cell, FromCell, Value, texts};

const KIND: &str = "repo";

const REPOS: Sql = Sql::portable("evidence.repo x WHERE x.org = $1");
const NAMED: Sql = Sql::portable(" AND x.name = $4");
/// In PostgreSQL, the collation of the column changes the case of ASCII letters only.
const NAME_HAS_FOLDED: Sql = Sql::per_dialect(
    " AND instr(lower(x.name), lower($5)) > 0",
    " AND strpos(lower(x.name), lower($5 COLLATE \"C\")) > 0",
);
const OF_PROVIDER: Sql = Sql::portable(" AND x.provider = $6");
const WITH_EXTERNAL_ID: Sql = Sql::portable(" AND x.external_id = $7");
const OF_INSTANCE: Sql = Sql::portable(" AND x.vcs_instance = $8");
const IN_NAMESPACE: Sql =
    Sql::per_dialect(" AND substr(x.namespace, 1, length($9)) = $9", " AND starts_with(x.namespace, $9)");
const TAGGED: Sql = Sql::per_dialect(
    " AND NOT EXISTS (
        SELECT 1 FROM json_each($10) f WHERE NOT EXISTS (
            SELECT 1 FROM evidence.record n, json_each(n.tags) t
            WHERE n.org = $1 AND n.kind = 'repo' AND n.id = x.id
                AND t.key = f.value->>0 AND (f.value->>1 IS NULL OR t.value = f.value->>1)))",
    " AND NOT EXISTS (
        SELECT 1 FROM UNNEST($10::text[], $11::text[]) AS f (key, value)
        WHERE NOT EXISTS (
            SELECT 1 FROM evidence.record n
            WHERE n.org = $1 AND n.kind = 'repo' AND n.id = x.id
                AND n.tags ? f.key AND (f.value IS NULL OR n.tags->>f.key = f.value)))",
);

/// Encodes a path so that it is a string prefix of another path exactly if its segments are a prefix of the
/// other's segments.
pub(crate) fn path(segments: &[String]) -> String {
    segments.iter().map(|segment| format!("{},", serde_json::Value::from(segment.as_str()))).collect()
}

const PROVIDER: Sql = Sql::portable("x.provider");
const INSTANCE: Sql = Sql::portable("x.vcs_instance");
/// Selects the segment at the position `$3`.
const SEGMENT: Sql = Sql::per_dialect(
    "json_extract('[' || rtrim(x.namespace, ',') || ']', '$[' || $3 || ']')",
    "(('[' || rtrim(x.namespace, ',') || ']')::json->>($3::bigint)::int) COLLATE \"C\"",
);

/// Reads the end of the index of names.
const NEWEST: Sql = Sql::portable(concat!(
    "SELECT x.ledger_index, ",
    payload!("x"),
    " FROM evidence.repo x WHERE x.org = $1 AND x.name = $2 AND ($3 IS NULL OR x.provider = $3)
    ORDER BY x.id DESC LIMIT 1"
));

/// Selects the first ids of each name, by an index of both.
const OF_NAMES: Sql = Sql::per_dialect(
    "SELECT x.name, x.id FROM json_each($2) w CROSS JOIN evidence.repo x
        ON x.org = $1 AND x.name = w.value AND x.id IN (
            SELECT r.id FROM evidence.repo r WHERE r.org = $1 AND r.name = w.value ORDER BY r.id LIMIT $3)",
    "SELECT x.name, x.id FROM UNNEST($2::text[]) AS w (value) CROSS JOIN LATERAL (
        SELECT name, id FROM evidence.repo WHERE org = $1 AND name = w.value ORDER BY id LIMIT $3) x",
);

/// Selects the id only, without the fact.
const ID: Sql = Sql::portable("x.id");

/// Decodes the ids of a page.
fn ids(_: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<Id>> {
    page.into_iter().map(|(_, id)| Id::from_cell(Cell::Text(id.text()?.to_owned()))).collect()
}

fn conditions(filter: &RepoFilter) -> impl Iterator<Item = Sql> {
    let conditions = [
        filter.name.as_ref().map(|_| NAMED),
        filter.search.as_ref().map(|_| NAME_HAS_FOLDED),
        filter.provider.map(|_| OF_PROVIDER),
        filter.repo_id.as_ref().map(|_| WITH_EXTERNAL_ID),
        filter.vcs_instance.as_ref().map(|_| OF_INSTANCE),
        filter.namespace.as_ref().map(|_| IN_NAMESPACE),
        (!filter.tags.is_empty()).then_some(TAGGED),
    ];
    conditions.into_iter().flatten()
}

fn listing(filter: &RepoFilter) -> Listing {
    let order = match filter.direction {
        SortDirection::Asc => Order::By(Sql::portable("x.name, x.id")),
        SortDirection::Desc => Order::By(Sql::portable("x.name DESC, x.id")),
    };
    Listing { from: REPOS, filter: conditions(filter).collect(), order, narrow: false, counted: true }
}

/// Returns the statement for the first `$2` distinct values of a facet, among the repos that the filter
/// selects.
fn different_values(dialect: Dialect, filter: &RepoFilter, facet: RepoFacet) -> String {
    let column = match facet {
        RepoFacet::Provider => PROVIDER,
        RepoFacet::VcsInstance => INSTANCE,
        RepoFacet::NamespaceSegment(_) => SEGMENT,
    };
    let (column, repos) = (column.text(dialect), REPOS.text(dialect));
    let conditions: String = conditions(filter).map(|condition| condition.text(dialect)).collect();
    format!(
        "SELECT DISTINCT {column} AS value FROM {repos} AND {column} IS NOT NULL{conditions} ORDER BY value LIMIT $2"
    )
}

/// Returns the values of the filter, bound from `$4` on.
fn values(filter: &RepoFilter) -> Vec<Value> {
    vec![
        filter.name.clone().into(),
        filter.search.clone().into(),
        filter.provider.map(|provider| provider.as_str()).into(),
        filter.repo_id.clone().into(),
        filter.vcs_instance.clone().into(),
        filter.namespace.as_deref().map(path).into(),
        tag_columns(&filter.tags),
    ]
}

#[async_trait]
impl<D: Driver> RepoStore for SqlStore<D> {
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>> {
        self.by_name(org, KIND, identity).await
    }

    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>> {
        self.by_id(org, KIND, id).await
    }

    async fn repos_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Repo>> {
        let repos = self.by_ids(org, KIND, ids).await?;
        Ok(repos.into_iter().map(|known| known.record).collect())
    }

    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>> {
        self.page(org, &listing(filter), request, values(filter)).await
    }

    async fn repo_ids(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Vec<Id>> {
        let listing = Listing { counted: false, ..listing(filter) };
        Ok(self.read_page(org, &listing, ID, ids, request, values(filter)).await?.items)
    }

    async fn newest_repo(
        &self,
        org: Id,
        name: &str,
        provider: Option<VcsProvider>,
    ) -> StoreResult<Option<Repo>> {
        let query = self.query_org(org, NEWEST).bind(name).bind(provider.map(VcsProvider::as_str));
        Ok(query.first_as(current).await?.map(|newest: Current<Repo>| newest.record))
    }

    async fn repos_named(&self, org: Id, names: &[&str], most: u64) -> StoreResult<Vec<(String, Id)>> {
        let query = self.query_org(org, OF_NAMES).bind(texts(names)).bind(most).per_item(names.len());
        let mut named: Vec<(String, Id)> = query.all().await?;
        named.sort_unstable();
        Ok(named)
    }

    async fn repo_values(
        &self,
        org: Id,
        filter: &RepoFilter,
        facet: RepoFacet,
        limit: u64,
    ) -> StoreResult<Vec<String>> {
        let place = match facet {
            RepoFacet::NamespaceSegment(place) => u64::from(place),
            RepoFacet::Provider | RepoFacet::VcsInstance => 0,
        };
        let query = self.query_text(different_values(D::DIALECT, filter, facet)).of(org);
        let query = query.bind(limit).bind(place);
        let query = values(filter).into_iter().fold(query, |query, value| query.bind(value));
        query.long().all_as(|(value,): (String,)| Ok(value)).await
    }
}
