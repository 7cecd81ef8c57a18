//! Flows: named records, whose lists are narrowed by name and tags.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::flows::{Flow, FlowFilter, FlowStore};
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::shared::TagFilter;
use evidence_core::store::StoreResult;

use crate::db::SqliteStore;
use crate::rows::{Listing, Order, list};

const KIND: &str = "flow";

const FLOWS: &str = "
    record x WHERE x.org = (SELECT key FROM organization WHERE id = $1) AND x.kind = 'flow' AND NOT x.archived";

const NAME_HAS: &str = " AND instr(x.name, $4) > 0";

const NAME_HAS_FOLDED: &str = " AND instr(lower(x.name), lower($4)) > 0";

const TAGGED: &str = " AND NOT EXISTS (
        SELECT 1 FROM json_each($5) f WHERE NOT EXISTS (
            SELECT 1 FROM json_each(x.tags) t
            WHERE t.key = f.value->>0 AND (f.value->>1 IS NULL OR t.value = f.value->>1)))";

/// Tag filters as `[key, value or null]` pairs.
pub(crate) fn tag_list(tags: &[TagFilter]) -> StoreResult<String> {
    let pairs: Vec<_> = tags.iter().map(|tag| (&tag.key, &tag.value)).collect();
    list(&pairs)
}

fn listing(filter: &FlowFilter) -> Listing {
    let has = if filter.ignore_case { NAME_HAS_FOLDED } else { NAME_HAS };
    let named = filter.name.as_ref().map(|_| has);
    let tagged = (!filter.tags.is_empty()).then_some(TAGGED);
    Listing {
        from: FLOWS,
        filter: named.into_iter().chain(tagged).collect(),
        order: Order::By("x.name"),
        narrow: false,
        counted: true,
    }
}

#[async_trait]
impl FlowStore for SqliteStore {
    async fn flow(&self, org: Id, name: &str) -> StoreResult<Option<Current<Flow>>> {
        self.by_name(org, KIND, name).await
    }

    async fn flows_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Flow>> {
        let flows = self.by_ids(org, KIND, ids).await?;
        Ok(flows.into_iter().map(|flow| flow.record).collect())
    }

    async fn flows(&self, org: Id, filter: &FlowFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let values = vec![filter.name.clone(), Some(tag_list(&filter.tags)?)];
        self.listed(org, &listing(filter), request, values).await
    }
}
