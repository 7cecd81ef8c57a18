//! Repos: named by their identity, listed by their name.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::repos::{Repo, RepoFilter, RepoStore};
use evidence_core::store::StoreResult;

use crate::db::PostgresStore;
use crate::flows::tag_columns;
use crate::rows::{Bound, Listing, Order};

const KIND: &str = "repo";

pub(crate) const PUT_REPOS: &str = "
    INSERT INTO evidence.repo (org, id, name, provider, external_id, vcs_instance, namespace, ledger_index)
    SELECT r.* FROM go, UNNEST($text, $text, $text, $text, $text, $text, $text, $bigint) r
    ON CONFLICT (org, id) DO UPDATE SET
        name = excluded.name, provider = excluded.provider, external_id = excluded.external_id,
        vcs_instance = excluded.vcs_instance, namespace = excluded.namespace,
        ledger_index = excluded.ledger_index";

const REPOS: &str = "evidence.repo x WHERE x.org = $1";
const NAMED: &str = " AND x.name = $4";
const NAME_HAS_FOLDED: &str = " AND strpos(lower(x.name), lower($5 COLLATE \"C\")) > 0";
const OF_PROVIDER: &str = " AND x.provider = $6";
const WITH_EXTERNAL_ID: &str = " AND x.external_id = $7";
const OF_INSTANCE: &str = " AND x.vcs_instance = $8";
const IN_NAMESPACE: &str = " AND starts_with(x.namespace, $9)";
const TAGGED: &str = " AND NOT EXISTS (
        SELECT 1 FROM UNNEST($10::text[], $11::text[]) AS f (key, value)
        WHERE NOT EXISTS (
            SELECT 1 FROM evidence.record n
            WHERE n.org = x.org AND n.kind = 'repo' AND n.id = x.id
                AND n.tags ? f.key AND (f.value IS NULL OR n.tags->>f.key = f.value)))";

/// A path so written that one begins another exactly if its segments do.
pub(crate) fn path(segments: &[String]) -> String {
    segments.iter().map(|segment| format!("{},", serde_json::Value::from(segment.as_str()))).collect()
}

fn listing(filter: &RepoFilter) -> Listing {
    let conditions = [
        filter.name.as_ref().map(|_| NAMED),
        filter.search.as_ref().map(|_| NAME_HAS_FOLDED),
        filter.provider.map(|_| OF_PROVIDER),
        filter.repo_id.as_ref().map(|_| WITH_EXTERNAL_ID),
        filter.vcs_instance.as_ref().map(|_| OF_INSTANCE),
        filter.namespace.as_ref().map(|_| IN_NAMESPACE),
        (!filter.tags.is_empty()).then_some(TAGGED),
    ];
    let order = match filter.direction {
        SortDirection::Asc => Order::By("x.name, x.id"),
        SortDirection::Desc => Order::By("x.name DESC, x.id"),
    };
    Listing { from: REPOS, filter: conditions.into_iter().flatten().collect(), order, counted: true }
}

#[async_trait]
impl RepoStore for PostgresStore {
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>> {
        self.by_name(org, KIND, identity).await
    }

    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>> {
        self.by_id(org, KIND, id).await
    }

    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>> {
        self.page(org, &listing(filter), request, values(filter)).await
    }

    async fn repos_listed(
        &self,
        org: Id,
        filter: &RepoFilter,
        request: PageRequest,
    ) -> StoreResult<Vec<Listed>> {
        let listing = Listing { counted: false, ..listing(filter) };
        Ok(self.listed(org, &listing, request, values(filter)).await?.items)
    }
}

/// What a list is narrowed by, to bind.
fn values(filter: &RepoFilter) -> Vec<Bound> {
    let texts = [
        filter.name.clone(),
        filter.search.clone(),
        filter.provider.map(|provider| provider.as_str().to_owned()),
        filter.repo_id.clone(),
        filter.vcs_instance.clone(),
        filter.namespace.as_deref().map(path),
    ];
    texts.into_iter().map(Bound::Text).chain(tag_columns(&filter.tags)).collect()
}
