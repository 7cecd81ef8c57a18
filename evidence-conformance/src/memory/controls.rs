//! Controls and their versions.

use std::collections::BTreeSet;

use async_trait::async_trait;

use evidence_core::controls::{Control, ControlFilter, ControlStore, ControlVersion, VersionKey};
use evidence_core::fact::Key;
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::store::{Current, StoreResult};

use super::{Admits, MemoryStore, bytes, contains_folded, records};

impl Admits<Control> for ControlFilter {
    fn admits(&self, control: &Control) -> bool {
        let has = |part: &String| {
            contains_folded(&control.name, part) || contains_folded(control.identifier.as_str(), part)
        };
        self.archived == control.archived
            && self.search.as_ref().is_none_or(has)
            && self.tags.iter().all(|tag| tag.matches(&control.tags))
    }
}

fn order(filter: &ControlFilter, left: &Control, right: &Control) -> std::cmp::Ordering {
    let by_name = left.name.cmp(&right.name);
    let by_name = match filter.direction {
        SortDirection::Asc => by_name,
        SortDirection::Desc => by_name.reverse(),
    };
    by_name.then(left.id.cmp(&right.id))
}

#[async_trait]
impl ControlStore for MemoryStore {
    async fn control(&self, org: Id, identifier: &str) -> StoreResult<Option<Current<Control>>> {
        self.by_name(org, identifier.parse().ok().map(Key::Control), |tables| &tables.controls)
    }

    async fn controls_named(&self, org: Id, identifiers: &[&str]) -> StoreResult<Vec<String>> {
        let mut named = Vec::new();
        for identifier in BTreeSet::from_iter(identifiers) {
            named.extend(self.control(org, identifier).await?.map(|_| (*identifier).to_owned()));
        }
        Ok(named)
    }

    async fn controls(
        &self,
        org: Id,
        filter: &ControlFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>> {
        let mut controls = self.query(org, |tables| records(&tables.controls, |control| control.id))?;
        controls.retain(|control| filter.admits(control));
        controls.sort_by(|left, right| order(filter, left, right));
        let listed = controls.iter().map(|one| Ok(Listed { id: one.id, bytes: bytes(one)? }));
        Ok(Page::of(listed.collect::<StoreResult<_>>()?, request))
    }

    async fn controls_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Control>> {
        self.query(org, |tables| {
            let controls = tables.controls.values().map(|current| &current.record);
            controls.filter(|control| ids.contains(&control.id)).cloned().collect()
        })
    }

    async fn control_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        let listed = |version: &ControlVersion| {
            Ok(Listed { id: (version.control, version.version), bytes: bytes(version)? })
        };
        self.control_versions_by_number(org, versions).await?.iter().map(listed).collect()
    }

    async fn control_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<ControlVersion>> {
        self.query(org, |tables| {
            let all = tables.control_versions.iter();
            all.filter(|one| versions.contains(&(one.control, one.version))).cloned().collect()
        })
    }
}
