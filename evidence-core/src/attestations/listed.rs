//! Lists of attestations. Their content is read while the response is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{FutureExt, Stream, StreamExt, TryStreamExt, stream};

use crate::attestations::record::Attestation;
use crate::attestations::store::{AttestationRow, NamedAttestation};
use crate::attestations::view::AttestationView;
use crate::context::{Context, OwnedContext};
use crate::error::Result;
use crate::flows::record::Flow;
use crate::id::Id;
use crate::name::TrailName;
use crate::operation::JsonList;
use crate::page::Listed;
use crate::store::error::StoreError;

/// The shared data of the attestations in a list.
struct ViewContext {
    flow: Flow,
    trails: BTreeMap<Id, TrailName>,
    /// The attestations that the list cannot omit.
    needed: BTreeSet<Id>,
    owned: OwnedContext,
}

/// Lists these attestations of one name, newest first: all are about one content, or about the trail. A
/// damaged attestation is left out if a newer one of its trail supersedes it. Otherwise it decides the
/// verdict, and the list fails.
pub(super) async fn listed(
    named: Vec<NamedAttestation>,
    flow: Flow,
    trails: BTreeMap<Id, TrailName>,
    cx: &Context<'_>,
) -> Result<JsonList<AttestationView>> {
    let needed = needed(named.iter().map(|one| &one.row));
    let context = Arc::new(ViewContext { flow, trails, needed, owned: cx.to_owned_context() });
    let listed = named.into_iter().map(|one| Listed { id: one.row.id, bytes: one.bytes }).collect();
    JsonList::in_batches(listed, (), &cx.compute(), move |ids| Arc::clone(&context).read(ids)).await
}

/// Streams all of these attestations of a trail, in order. One that cannot be read is an error.
pub(crate) fn all_of_trail(
    listed: Vec<Listed>,
    flow: Flow,
    trail: (Id, TrailName),
    owned: OwnedContext,
) -> impl Stream<Item = Result<AttestationView>> + Send + 'static {
    let needed = listed.iter().map(|one| one.id).collect();
    let context = Arc::new(ViewContext { flow, trails: BTreeMap::from([trail]), needed, owned });
    stream::iter(Listed::batches(listed)).flat_map(move |ids| Arc::clone(&context).read(ids))
}

/// Returns the attestations that decide verdicts: for each trail, the newest that is not an override, and the
/// overrides newer than it.
fn needed<'a>(newest_first: impl Iterator<Item = &'a AttestationRow>) -> BTreeSet<Id> {
    let mut decided = BTreeSet::new();
    let mut decides = |row: &AttestationRow| {
        let is_open = !decided.contains(&row.trail);
        if !row.is_override() {
            decided.insert(row.trail);
        }
        is_open
    };
    newest_first.filter(|row| decides(row)).map(|row| row.id).collect()
}

impl ViewContext {
    fn read(self: Arc<Self>, ids: Vec<Id>) -> impl Stream<Item = Result<AttestationView>> + Send + 'static {
        async move { self.views(ids).await.map(stream::iter) }.into_stream().try_flatten()
    }

    async fn views(&self, ids: Vec<Id>) -> Result<Vec<Result<AttestationView>>> {
        let cx = self.owned.context();
        let found = cx.store().attestations_by_id(cx.org()?, &ids).await?;
        let mut found: BTreeMap<Id, Attestation> = found.into_iter().map(|one| (one.id, one)).collect();
        let view = |id: Id| match found.remove(&id) {
            Some(attestation) => {
                let trail = self.trails.get(&attestation.trail)?;
                Some(AttestationView::new(attestation, &self.flow.name, trail, &cx))
            }
            None if self.needed.contains(&id) => {
                Some(Err(StoreError::corrupt(format_args!("the attestation {id} cannot be read")).into()))
            }
            None => None,
        };
        Ok(ids.into_iter().filter_map(view).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attestations::record::Binding;

    #[test]
    fn what_decides_in_a_trail_is_needed_however_it_names_what_the_list_is_about() {
        let id = |n: u64| -> Id { format!("00000000-0000-0000-0000-{n:08x}").parse().unwrap() };
        let row = |n: u64, trail: u64, binding: &Binding, is_override: bool| AttestationRow {
            id: id(n),
            trail: id(trail),
            name: "scan".to_owned(),
            kind: "generic".to_owned(),
            is_compliant: true,
            override_info: is_override.then(|| "overridden by jane: seen by hand".into()),
            control: None,
            binding: binding.clone(),
            commit: None,
            at: crate::time::Timestamp::default(),
            index: n,
        };
        let content = |target: &str| Binding::Artifact {
            fingerprint: "f".repeat(64).parse().unwrap(),
            target: target.to_owned(),
        };
        let built = |commit: &str| Binding::Named { target: "cli".to_owned(), commit: commit.repeat(40) };
        let rows = [
            row(9, 1, &content("cli"), true),
            row(8, 1, &built("c"), false),
            row(7, 1, &content("cli"), false),
            row(6, 2, &content("other"), false),
            row(5, 1, &built("C"), true),
            row(4, 2, &content("cli"), false),
            row(3, 2, &built("c"), false),
        ];
        assert_eq!(needed(rows.iter()), BTreeSet::from([9, 8, 6].map(id)));
    }
}
