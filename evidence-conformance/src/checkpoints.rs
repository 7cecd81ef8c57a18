//! Checks of [`evidence_core::checkpoints::CheckpointStore`]: the last signed checkpoint of each ledger, replaced by
//! compare-and-swap.

use std::sync::Arc;

use evidence_core::store::Store;

use super::fixtures::{Org, id};
use super::races::on_tasks;
use super::{Outcome, promises, same};

promises! {
    a_checkpoint_replaces_the_last: "`replace_signed_checkpoint` stores a note in place of the one that the caller read, and refuses any other.",
    checkpoints_are_apart: "Each organization has a signed checkpoint of its own; one that does not exist has none.",
    one_replaces_a_checkpoint: "Of 16 that replace the same checkpoint at the same time one succeeds.",
}

async fn a_checkpoint_replaces_the_last(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    same("before", store.signed_checkpoint(org.id).await?, None)?;
    for (old, new, expected) in [
        (Some("none"), "a", false),
        (None, "a\n\nö", true),
        (None, "b", false),
        (Some("a"), "b", false),
        (Some("a\n\nö"), "b", true),
        (Some("a\n\nö"), "c", false),
        (Some("b"), "b", true),
    ] {
        let before = store.signed_checkpoint(org.id).await?;
        let replaced = store.replace_signed_checkpoint(org.id, old, new).await?;
        same(&format!("whether {new:?} replaces {old:?}"), replaced, expected)?;
        let after = if expected { Some(new.to_owned()) } else { before };
        same("the checkpoint", store.signed_checkpoint(org.id).await?, after)?;
    }
    Ok(())
}

async fn checkpoints_are_apart(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    same("of one", store.replace_signed_checkpoint(org.id, None, "a").await?, true)?;
    same("of the other", store.signed_checkpoint(other.id).await?, None)?;
    same("of the other, replaced", store.replace_signed_checkpoint(other.id, Some("a"), "b").await?, false)?;
    same("of nobody", store.replace_signed_checkpoint(id(3), None, "a").await?, false)?;
    same("of nobody, read", store.signed_checkpoint(id(3)).await?, None)?;
    same("of one, still", store.signed_checkpoint(org.id).await?, Some("a".to_owned()))
}

async fn one_replaces_a_checkpoint(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let mut old = None;
    for round in 0..4 {
        let racer = |n: u64| {
            let (store, old, new) = (Arc::clone(&store), old.clone(), format!("{round}, {n}"));
            async move { store.replace_signed_checkpoint(org.id, old.as_deref(), &new).await }
        };
        let mut replaced = 0;
        for answer in on_tasks((0..16).map(racer)).await? {
            replaced += u32::from(answer?);
        }
        same("how many replaced it", replaced, 1)?;
        old = store.signed_checkpoint(org.id).await?;
    }
    Ok(())
}
