//! Repeats notifications.

use std::time::Duration;

use crate::actions::record::{Action, Target};
use crate::error::Result;
use crate::id::Id;
use crate::notifications::deliverer::{NAME, before};
use crate::notifications::store::{Channel, Delivery, DeliveryState, Position};
use crate::service::Evidence;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// The number of attempts to move a target that makes progress meanwhile.
const TRIES: usize = 64;

/// Repeats the events since this time for all targets of an action, with their original delivery ids. Returns
/// the number of targets, which is 0 without such an action. A target never receives events from before it
/// was added.
///
/// # Errors
/// [`crate::Error::Store`] if the store fails. [`StoreError::Conflict`] if a target keeps making progress.
pub async fn replay(evidence: &Evidence, org: Id, number: u64, since: Timestamp) -> Result<usize> {
    let store = evidence.store();
    let Some(action) = store.action_numbered(org, number).await?.map(|known| known.record) else {
        return Ok(0);
    };
    let entry = store.ledger_size_at(org, before(since, Duration::from_micros(1))).await?;
    // Events that are not planned yet follow anyway.
    let entry = entry.min(store.cursor(NAME, org).await?);
    let again = Position { entry, event: 0 };
    for target in &action.targets {
        again_from(evidence, org, &action, target, again).await?;
    }
    Ok(action.targets.len())
}

/// Moves a target back. Tries again if a delivery changes its position meanwhile.
async fn again_from(
    evidence: &Evidence,
    org: Id,
    action: &Action,
    target: &Target,
    again: Position,
) -> Result<()> {
    let store = evidence.store();
    for _ in 0..TRIES {
        let known = store.deliveries(org, &[target.id]).await?.pop();
        let mut state = match &known {
            Some(known) => known.state.clone(),
            None => DeliveryState::first(action.id, again),
        };
        // A target that waits at an earlier event stays there.
        let waits = known.as_ref().is_some_and(|known| known.due_at.is_some());
        state.next = if waits { state.next.min(again) } else { again };
        state.attempts = 0;
        let state = state.at_destination(&target.destination);
        let revision = known.map_or(0, |known| known.revision);
        let channel = Channel::of(&target.destination);
        let due_at = Some(evidence.now());
        let moved = Delivery { org, target: target.id, channel, due_at, state, revision };
        if store.put_delivery(&moved, None).await? {
            return Ok(());
        }
    }
    Err(StoreError::Conflict.into())
}
