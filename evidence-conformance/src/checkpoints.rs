//! Checks of [`evidence_core::checkpoints::CheckpointStore`]: the last signed checkpoint of each ledger, replaced by
//! compare-and-swap.

use std::sync::Arc;

use evidence_core::ledger::Checkpoint;
use evidence_core::ledger::note::NoteSigner;
use evidence_core::store::Store;

use super::fixtures::{Org, id};
use super::races::on_tasks;
use super::{Failure, Outcome, ensure, present, promises, same};

promises! {
    a_checkpoint_replaces_the_last: "`replace_signed_checkpoint` stores a note in place of the one that the caller read, and refuses any other.",
    checkpoints_are_apart: "Each organization has a signed checkpoint of its own; one that does not exist has none.",
    one_replaces_a_checkpoint: "Of 16 that replace the same checkpoint at the same time one succeeds.",
}

/// Returns the checkpoint of the ledger, signed with this key.
pub(super) async fn note(store: &Arc<dyn Store>, org: &Org, key: u8) -> Result<String, Failure> {
    let head = present("the head", store.ledger_head(org.id).await?)?;
    let name = format!("größer.example/{key}");
    let signer = NoteSigner::new(&name, &[key; 32]);
    ensure(signer.is_ok(), "a signer can have this name")?;
    Ok(Checkpoint { origin: name, size: head.size(), root: head.root() }.sign(&signer))
}

async fn a_checkpoint_replaces_the_last(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    same("before", store.signed_checkpoint(org.id).await?, None)?;
    same("whether there is any", store.has_signed_checkpoints().await?, false)?;
    let (a, b, c) =
        (note(&store, &org, 1).await?, note(&store, &org, 2).await?, note(&store, &org, 3).await?);
    for (old, new, expected) in [
        (Some(&c), &a, false),
        (None, &a, true),
        (None, &b, false),
        (Some(&c), &b, false),
        (Some(&a), &b, true),
        (Some(&a), &c, false),
        (Some(&b), &b, true),
    ] {
        let old = old.map(String::as_str);
        let before = store.signed_checkpoint(org.id).await?;
        let replaced = store.replace_signed_checkpoint(org.id, old, Some(new)).await?;
        same(&format!("whether {new:?} replaces {old:?}"), replaced, expected)?;
        let after = if expected { Some(new.clone()) } else { before };
        same("the checkpoint", store.signed_checkpoint(org.id).await?, after)?;
    }
    same("whether there is one now", store.has_signed_checkpoints().await?, true)?;
    same("removed by a stale note", store.replace_signed_checkpoint(org.id, Some(&a), None).await?, false)?;
    same("removed", store.replace_signed_checkpoint(org.id, Some(&b), None).await?, true)?;
    same("the removed one", store.signed_checkpoint(org.id).await?, None)
}

async fn checkpoints_are_apart(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let a = note(&store, &org, 1).await?;
    same("of one", store.replace_signed_checkpoint(org.id, None, Some(&a)).await?, true)?;
    same("of the other", store.signed_checkpoint(other.id).await?, None)?;
    same(
        "of the other, replaced",
        store.replace_signed_checkpoint(other.id, Some(&a), Some(&a)).await?,
        false,
    )?;
    same("of nobody", store.replace_signed_checkpoint(id(3), None, Some(&a)).await?, false)?;
    same("of nobody, read", store.signed_checkpoint(id(3)).await?, None)?;
    same("of one, still", store.signed_checkpoint(org.id).await?, Some(a))
}

async fn one_replaces_a_checkpoint(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let mut old = None;
    for round in 0..4 {
        let mut notes = Vec::new();
        for n in 0..16 {
            notes.push(note(&store, &org, 16 * round + n).await?);
        }
        let racer = |new: String| {
            let (store, old, org) = (Arc::clone(&store), old.clone(), org.id);
            async move { store.replace_signed_checkpoint(org, old.as_deref(), Some(&new)).await }
        };
        let mut replaced = 0;
        for answer in on_tasks(notes.into_iter().map(racer)).await? {
            replaced += u32::from(answer?);
        }
        same("how many replaced it", replaced, 1)?;
        old = store.signed_checkpoint(org.id).await?;
    }
    Ok(())
}
