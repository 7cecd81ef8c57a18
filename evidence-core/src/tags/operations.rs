//! Operations that set, remove and list tags.

use futures_util::{TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::{Dictionary, List, ShortText, TagValue, Text};
use crate::context::{Context, Draft};
use crate::error::{Error, Missing, Resource, Result, at_most};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::name::{ControlIdentifier, OrgName, TagKey};
use crate::operation::{Acknowledged, Json, JsonList, Method, Operation};
use crate::store::entry::Current;
use crate::tags::record::{TagChoice, TaggedKind, Tags};

/// Sets and removes tags of a flow, an environment, a repo or a control; the other tags stay. The same patch
/// again changes nothing. A key that is both set and removed is 400. More tags than the host allows (100 by
/// default) are 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PatchTags {
    /// The organization's name.
    pub org: OrgName,
    /// The kind of resource. Plurals and `env` are accepted too.
    pub resource_type: TaggedKind,
    /// The name of a flow or environment, the identifier of a control, or the id of a repo.
    pub resource_id: Text<{ ControlIdentifier::MAX_LEN }>,
}

/// The tags to set and to remove.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TagPatchInput")]
pub struct TagPatch {
    /// Tags to add or to change.
    pub set_tags: Option<Dictionary<TagKey, TagValue>>,
    /// Keys to remove. Keys that do not exist are ignored.
    pub remove_tags: Option<List<ShortText>>,
}

impl TagPatch {
    /// Checks that no key is both set and removed.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a key is both set and removed, because the order would be a guess.
    fn check(&self) -> Result<()> {
        let set = self.set_tags.iter().flat_map(|tags| &tags.0);
        let removed: Vec<&str> = self.removed().collect();
        match set.map(|(key, _)| key.as_str()).find(|key| removed.contains(key)) {
            Some(key) => Err(Error::invalid("remove_tags", format!("'{key}' is in set_tags as well"))),
            None => Ok(()),
        }
    }

    fn removed(&self) -> impl Iterator<Item = &str> {
        self.remove_tags.iter().flat_map(|keys| &keys.0).map(ShortText::as_str)
    }

    fn apply(&self, tags: &Tags) -> Tags {
        let mut tags = tags.clone();
        for key in self.removed() {
            tags.remove(key);
        }
        tags.extend(
            self.set_tags
                .iter()
                .flat_map(|tags| &tags.0)
                .map(|(key, value)| (key.to_string(), value.to_string())),
        );
        tags
    }
}

impl Operation for PatchTags {
    const NAME: &'static str = "patch_tags";
    const METHOD: Method = Method::Patch;
    const PATH: &'static str = "/tags/{org}/{resource_type}/{resource_id}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Sets and removes tags of a resource";
    type Body = Json<TagPatch>;
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(patch): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        patch.check()?;
        let record = self.key().ok_or_else(|| self.missing(cx))?;
        cx.retry_exclusively(record, || self.tag(&patch, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

impl PatchTags {
    /// Returns the key that serializes changes to the resource; `None` if no resource can have this name.
    fn key(&self) -> Option<Key> {
        let name = &*self.resource_id;
        Some(match self.resource_type {
            TaggedKind::Flow => Key::Flow(name.parse().ok()?),
            TaggedKind::Environment => Key::Environment(name.parse().ok()?),
            TaggedKind::Repo => Key::Repo(name.to_owned()),
            TaggedKind::Control => Key::Control(name.parse().ok()?),
        })
    }

    async fn tag(&self, patch: &TagPatch, cx: &Context<'_>) -> Result<()> {
        if let Some(draft) = self.draft(patch, cx).await? {
            cx.record(draft).await?;
        }
        Ok(())
    }

    /// Returns the write for the patch; `None` if it changes nothing.
    async fn draft(&self, patch: &TagPatch, cx: &Context<'_>) -> Result<Option<Draft>> {
        let (store, org, most) = (cx.store(), cx.org()?, cx.limits().tags);
        let missing = || self.missing(cx);
        match self.resource_type {
            TaggedKind::Flow => {
                let known = store.flow(org, &self.resource_id).await?;
                let known = known.filter(|known| known.record.archived_at.is_none());
                let Current { revision, mut record } = known.ok_or_else(missing)?;
                let precondition = Precondition::Revision(RecordKind::Flow, record.id, revision);
                let changed = retagged(&mut record.tags, patch, most)?;
                Ok(changed.then(|| Draft::of(Fact::FlowTagged { record }, precondition)))
            }
            TaggedKind::Environment => {
                let known = store.environment(org, &self.resource_id).await?.ok_or_else(missing)?;
                let precondition = known.unchanged();
                let mut record = known.record;
                let changed = retagged(&mut record.tags, patch, most)?;
                Ok(changed.then(|| Draft::of(Fact::EnvironmentTagged { record }, precondition)))
            }
            TaggedKind::Repo => {
                let id = self.resource_id.parse().map_err(|_| missing())?;
                let Current { revision, mut record } = store.repo(org, id).await?.ok_or_else(missing)?;
                let precondition = Precondition::Revision(RecordKind::Repo, record.id, revision);
                let changed = retagged(&mut record.tags, patch, most)?;
                Ok(changed.then(|| Draft::of(Fact::RepoTagged { record }, precondition)))
            }
            TaggedKind::Control => {
                let Current { revision, mut record } =
                    store.control(org, &self.resource_id).await?.ok_or_else(missing)?;
                let precondition = Precondition::Revision(RecordKind::Control, record.id, revision);
                let changed = retagged(&mut record.tags, patch, most)?;
                Ok(changed.then(|| Draft::of(Fact::ControlTagged { record }, precondition)))
            }
        }
    }

    fn missing(&self, cx: &Context<'_>) -> Missing {
        cx.missing(Resource::Tagged(self.resource_type), self.resource_id.as_str())
    }
}

/// Applies the patch. Returns whether it changed anything.
///
/// # Errors
/// [`Error::Invalid`] if there would be more than `most` tags.
fn retagged(tags: &mut Tags, patch: &TagPatch, most: usize) -> Result<bool> {
    let patched = patch.apply(tags);
    at_most(most, patched.len(), "set_tags")?;
    let changed = patched != *tags;
    *tags = patched;
    Ok(changed)
}

/// The number of tags that are read at once.
const PAGE: u64 = 1_000;

/// Lists the tags of records of this kind. Each key has each of its values once, sorted by key and value. The
/// tags are read while the response is sent.
pub(crate) async fn list_choices(kind: TaggedKind, cx: &Context<'_>) -> Result<JsonList<TagChoice>> {
    let owned = cx.to_owned_context();
    let page = move |after: Option<TagChoice>, is_last: bool| {
        let owned = owned.clone();
        async move {
            if is_last {
                return Ok::<_, Error>(None);
            }
            let cx = owned.context();
            let choices = cx.store().tag_choices(cx.org()?, kind, after.as_ref(), PAGE).await?;
            let next = (choices.last().cloned(), (choices.len() as u64) < PAGE);
            Ok(Some((stream::iter(choices.into_iter().map(Ok)), next)))
        }
    };
    let choices = stream::try_unfold((None, false), move |(after, is_last)| page(after, is_last));
    JsonList::with_first_item(choices.try_flatten(), (), &cx.compute()).await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patch(set: &[(&str, &str)], remove: &[&str]) -> TagPatch {
        let key = |text: &str| text.parse::<TagKey>().unwrap();
        TagPatch {
            set_tags: Some(Dictionary(
                set.iter().map(|(name, value)| (key(name), value.parse().unwrap())).collect(),
            )),
            remove_tags: Some(List(remove.iter().map(|name| name.parse().unwrap()).collect())),
        }
    }

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_patch_sets_replaces_and_removes_and_leaves_the_rest() {
        let table = [
            (patch(&[], &[]), tags(&[("a", "1"), ("b", "2")]), false),
            (TagPatch::default(), tags(&[("a", "1"), ("b", "2")]), false),
            (patch(&[("c", "3")], &[]), tags(&[("a", "1"), ("b", "2"), ("c", "3")]), true),
            (patch(&[("a", "9")], &["b"]), tags(&[("a", "9")]), true),
            (patch(&[("a", "1")], &["absent", ""]), tags(&[("a", "1"), ("b", "2")]), false),
        ];
        for (patch, expected, changed) in table {
            let mut found = tags(&[("a", "1"), ("b", "2")]);
            assert_eq!(retagged(&mut found, &patch, 3).unwrap(), changed, "{patch:?}");
            assert_eq!(found, expected, "{patch:?}");
        }
    }

    #[test]
    fn a_resource_has_so_many_tags_and_no_more() {
        let mut found = tags(&[("a", "1"), ("b", "2")]);
        assert!(matches!(retagged(&mut found, &patch(&[("c", "3")], &[]), 2), Err(Error::Invalid { .. })));
        assert!(retagged(&mut found, &patch(&[("c", "3")], &["a"]), 2).unwrap());
        assert_eq!(found, tags(&[("b", "2"), ("c", "3")]));
    }

    #[test]
    fn a_key_may_not_be_set_and_removed_at_once() {
        assert!(patch(&[("a", "1")], &["b"]).check().is_ok());
        assert!(matches!(patch(&[("a", "1")], &["a"]).check(), Err(Error::Invalid { .. })));
    }

    #[test]
    fn every_spelling_of_a_kind_is_understood() {
        let table = [
            (TaggedKind::Flow, vec!["flow", "flows"]),
            (TaggedKind::Environment, vec!["environment", "environments", "env"]),
            (TaggedKind::Repo, vec!["repo", "repos"]),
            (TaggedKind::Control, vec!["control", "controls"]),
        ];
        for (kind, spellings) in table {
            for spelling in spellings {
                let read = serde_json::from_value::<TaggedKind>(spelling.into());
                assert_eq!(read.ok(), Some(kind), "{spelling}");
            }
        }
        assert!(serde_json::from_value::<TaggedKind>("Flow".into()).is_err());
    }

    proptest! {
        #[test]
        fn a_patch_applied_twice_is_as_good_as_once(
            before in prop::collection::btree_map("[a-e]", "[0-9]", 0..5),
            set in prop::collection::btree_map("[a-c]", "[0-9]", 0..4),
            removed in prop::collection::vec("[d-f]", 0..4),
        ) {
            let set = Dictionary(set.into_iter().map(|(key, value)| (key.parse().unwrap(), value.parse().unwrap())).collect());
            let removed = List(removed.iter().map(|key| key.parse().unwrap()).collect());
            let patch = TagPatch { set_tags: Some(set), remove_tags: Some(removed) };
            let once = patch.apply(&before);
            prop_assert_eq!(patch.apply(&once), once);
        }
    }
}
