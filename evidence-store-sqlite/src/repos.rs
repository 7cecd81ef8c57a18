//! Repos: named by their identity, listed by their name.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::repos::{Repo, RepoFilter, RepoStore};
use evidence_core::store::StoreResult;

use crate::db::SqliteStore;
use crate::flows::tag_list;
use crate::rows::{Listing, Order};

const KIND: &str = "repo";

pub(crate) const PUT_REPOS: &str = "
    INSERT INTO repo (org, id, name, provider, external_id, vcs_instance, namespace, ledger_index)
    SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7
    FROM json_each($1) WHERE true
    ON CONFLICT (id) DO UPDATE SET
        name = excluded.name, provider = excluded.provider, external_id = excluded.external_id,
        vcs_instance = excluded.vcs_instance, namespace = excluded.namespace,
        ledger_index = excluded.ledger_index";

const REPOS: &str = "repo x WHERE x.org = (SELECT key FROM organization WHERE id = $1)";
const NAMED: &str = " AND x.name = $4";
const NAME_HAS_FOLDED: &str = " AND instr(lower(x.name), lower($5)) > 0";
const OF_PROVIDER: &str = " AND x.provider = $6";
const WITH_EXTERNAL_ID: &str = " AND x.external_id = $7";
const OF_INSTANCE: &str = " AND x.vcs_instance = $8";
const IN_NAMESPACE: &str = " AND substr(x.namespace, 1, length($9)) = $9";
const TAGGED: &str = " AND NOT EXISTS (
        SELECT 1 FROM json_each($10) f WHERE NOT EXISTS (
            SELECT 1 FROM record n, json_each(n.tags) t
            WHERE n.org = x.org AND n.kind = 'repo' AND n.id = x.id
                AND t.key = f.value->>0 AND (f.value->>1 IS NULL OR t.value = f.value->>1)))";

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
    Listing {
        from: REPOS,
        filter: conditions.into_iter().flatten().collect(),
        order,
        narrow: false,
        counted: true,
    }
}

#[async_trait]
impl RepoStore for SqliteStore {
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>> {
        self.by_name(org, KIND, identity).await
    }

    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>> {
        self.by_id(org, KIND, id).await
    }

    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>> {
        self.page(org, &listing(filter), request, values(filter)?).await
    }

    async fn repos_listed(
        &self,
        org: Id,
        filter: &RepoFilter,
        request: PageRequest,
    ) -> StoreResult<Vec<Listed>> {
        let listing = Listing { counted: false, ..listing(filter) };
        Ok(self.listed(org, &listing, request, values(filter)?).await?.items)
    }
}

/// What a list is narrowed by, to bind.
fn values(filter: &RepoFilter) -> StoreResult<Vec<Option<String>>> {
    Ok(vec![
        filter.name.clone(),
        filter.search.clone(),
        filter.provider.map(|provider| provider.as_str().to_owned()),
        filter.repo_id.clone(),
        filter.vcs_instance.clone(),
        filter.namespace.as_deref().map(path),
        Some(tag_list(&filter.tags)?),
    ])
}
