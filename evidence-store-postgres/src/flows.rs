//! Flows: named records, whose lists are narrowed by name and tags.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::flows::{Flow, FlowFilter, FlowStore};
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::shared::TagFilter;
use evidence_core::store::StoreResult;

use crate::db::PostgresStore;
use crate::rows::{Bound, Listing, Order};

const KIND: &str = "flow";

const FLOWS: &str = "evidence.record x WHERE x.org = $1 AND x.kind || '' = 'flow' AND NOT x.archived";

const NAME_HAS: &str = " AND strpos(x.name, $4) > 0";

/// Under the collation of the column only ASCII letters have another case.
const NAME_HAS_FOLDED: &str = " AND strpos(lower(x.name), lower($4 COLLATE \"C\")) > 0";

const TAGGED: &str = " AND NOT EXISTS (
        SELECT 1 FROM UNNEST($5::text[], $6::text[]) AS f (key, value)
        WHERE NOT (x.tags ? f.key AND (f.value IS NULL OR x.tags->>f.key = f.value)))";

/// Tag filters as the keys, and the values as far as any are asked for.
pub(crate) fn tag_columns(tags: &[TagFilter]) -> [Bound; 2] {
    let keys = tags.iter().map(|tag| Some(tag.key.clone())).collect();
    let values = tags.iter().map(|tag| tag.value.clone()).collect();
    [Bound::List(keys), Bound::List(values)]
}

fn listing(filter: &FlowFilter) -> Listing {
    let has = if filter.ignore_case { NAME_HAS_FOLDED } else { NAME_HAS };
    let named = filter.name.as_ref().map(|_| has);
    let tagged = (!filter.tags.is_empty()).then_some(TAGGED);
    let filter = named.into_iter().chain(tagged).collect();
    Listing { from: FLOWS, filter, order: Order::By("x.name"), counted: true }
}

#[async_trait]
impl FlowStore for PostgresStore {
    async fn flow(&self, org: Id, name: &str) -> StoreResult<Option<Current<Flow>>> {
        self.by_name(org, KIND, name).await
    }

    async fn flows_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Flow>> {
        let flows = self.by_ids(org, KIND, ids).await?;
        Ok(flows.into_iter().map(|flow| flow.record).collect())
    }

    async fn flows(&self, org: Id, filter: &FlowFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let [keys, tag_values] = tag_columns(&filter.tags);
        let values = vec![Bound::Text(filter.name.clone()), keys, tag_values];
        self.listed(org, &listing(filter), request, values).await
    }
}
