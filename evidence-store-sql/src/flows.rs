//! Flows: named records. Lists can be filtered by name and tags.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::flows::{Flow, FlowFilter, FlowStore};
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::store::{StoreResult, distinct};

use crate::driver::Driver;
use crate::listing::{Listing, Order};
use crate::sql::{Sql, for_each};
use crate::store::SqlStore;
use crate::tags::{TAGGED, tag_columns};
use crate::value::texts;

const KIND: &str = "flow";

const FLOWS: Sql = Sql::per_dialect(
    "evidence.record x WHERE x.org = $1 AND x.kind = 'flow' AND NOT x.archived",
    "evidence.record x WHERE x.org = $1 AND x.kind || '' = 'flow' AND NOT x.archived",
);

const NAME_HAS: Sql = Sql::per_dialect(" AND instr(x.name, $4) > 0", " AND strpos(x.name, $4) > 0");

/// In PostgreSQL, the collation of the column changes the case of ASCII letters only.
const NAME_HAS_FOLDED: Sql = Sql::per_dialect(
    " AND instr(lower(x.name), lower($4)) > 0",
    " AND strpos(lower(x.name), lower($4 COLLATE \"C\")) > 0",
);

const REPO_URLS: Sql = for_each!(["r.flow, r.url"], "flow_repo", "flow", "r", "");

fn listing(filter: &FlowFilter) -> Listing {
    let has = if filter.ignore_case { NAME_HAS_FOLDED } else { NAME_HAS };
    let named = filter.name.as_ref().map(|_| has);
    let tagged = (!filter.tags.is_empty()).then_some(TAGGED);
    Listing {
        from: FLOWS,
        filter: named.into_iter().chain(tagged).collect(),
        order: Order::By(Sql::portable("x.name")),
        narrow: false,
        counted: true,
    }
}

#[async_trait]
impl<D: Driver> FlowStore for SqlStore<D> {
    async fn flow(&self, org: Id, name: &str) -> StoreResult<Option<Current<Flow>>> {
        self.by_name(org, KIND, name).await
    }

    async fn flows_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Flow>> {
        let flows = self.by_ids(org, KIND, ids).await?;
        Ok(flows.into_iter().map(|flow| flow.record).collect())
    }

    async fn flow_repo_urls(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<(Id, String)>> {
        let flows = distinct(flows.iter().copied());
        let query = self.query_org(org, REPO_URLS).bind(texts(&flows)).per_item(flows.len());
        query.all_as(|(flow, url): (Id, String)| Ok((flow, url))).await
    }

    async fn flows(&self, org: Id, filter: &FlowFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let values = vec![filter.name.clone().into(), tag_columns(&filter.tags)];
        self.listed(org, &listing(filter), request, values).await
    }
}
