//! Flows.

use async_trait::async_trait;

use evidence_core::fact::Key;
use evidence_core::flows::{Flow, FlowFilter, FlowStore};
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::store::{Current, StoreResult};

use super::{Admits, MemoryStore, bytes, contains_folded, records};

impl Admits<Flow> for FlowFilter {
    fn admits(&self, flow: &Flow) -> bool {
        let name = flow.name.as_str();
        let named =
            |part: &str| if self.ignore_case { contains_folded(name, part) } else { name.contains(part) };
        let is_listed = flow.archived_at.is_none();
        is_listed
            && self.name.as_deref().is_none_or(named)
            && self.tags.iter().all(|tag| tag.matches(&flow.tags))
    }
}

#[async_trait]
impl FlowStore for MemoryStore {
    async fn flow(&self, org: Id, name: &str) -> StoreResult<Option<Current<Flow>>> {
        self.by_name(org, name.parse().ok().map(Key::Flow), |tables| &tables.flows)
    }

    async fn flows_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Flow>> {
        let flows = self.query(org, |tables| records(&tables.flows, |flow| flow.name.clone()))?;
        Ok(flows.into_iter().filter(|flow| ids.contains(&flow.id)).collect())
    }

    async fn flow_repo_urls(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<(Id, String)>> {
        self.query(org, |tables| {
            let named = tables.flow_repos.iter().filter(|(flow, _)| flows.contains(flow));
            named.map(|(flow, url)| (*flow, url.clone())).collect()
        })
    }

    async fn flows(&self, org: Id, filter: &FlowFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let flows = self.query(org, |tables| records(&tables.flows, |flow| flow.name.clone()))?;
        let found = Page::of(flows.into_iter().filter(|flow| filter.admits(flow)).collect(), request);
        let listed = |flow: &Flow| Ok(Listed { id: flow.id, bytes: bytes(flow)? });
        Ok(Page { items: found.items.iter().map(listed).collect::<StoreResult<_>>()?, total: found.total })
    }
}
