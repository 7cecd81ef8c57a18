//! Tags of records.

use std::collections::BTreeSet;

use async_trait::async_trait;

use evidence_core::id::Id;
use evidence_core::store::{StoreError, StoreResult};
use evidence_core::tags::{TagChoice, TagStore, TaggedKind, Tags};

use super::{MemoryStore, at_most};

#[async_trait]
impl TagStore for MemoryStore {
    async fn tag_choices(
        &self,
        org: Id,
        kind: TaggedKind,
        after: Option<&TagChoice>,
        limit: u64,
    ) -> StoreResult<Vec<TagChoice>> {
        let choices = self.query(org, |tables| {
            let tags: Vec<&Tags> = match kind {
                TaggedKind::Flow => tables.flows.values().map(|flow| &flow.record.tags).collect(),
                TaggedKind::Environment => {
                    tables.environments.values().map(|environment| &environment.record.tags).collect()
                }
                TaggedKind::Repo => tables.repos.values().map(|repo| &repo.record.tags).collect(),
                TaggedKind::Control => tables.controls.values().map(|control| &control.record.tags).collect(),
                _ => return None,
            };
            let choice = |(key, value): (&String, &String)| TagChoice::new(key.clone(), value.clone());
            let choices: BTreeSet<_> = tags.into_iter().flatten().map(choice).collect();
            let later = choices.into_iter().filter(|choice| after.is_none_or(|after| choice > after));
            Some(later.take(at_most(limit)).collect())
        })?;
        choices.ok_or_else(|| StoreError::Failed(format!("the memory store has no tags of {kind:?}").into()))
    }
}
