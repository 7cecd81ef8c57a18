//! Telling again what was told.

use std::time::Duration;

use crate::actions::record::{Action, Target};
use crate::error::Result;
use crate::id::Id;
use crate::notifications::job::{NAME, before};
use crate::notifications::store::{Channel, Delivery, DeliveryState, Position};
use crate::service::Evidence;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// How often a target is moved back that moves on meanwhile.
const TRIES: usize = 64;

/// Has the targets of an action told again what it was about since this time, each event under the id that it had. Answers how
/// many targets there are; none where there is no such action. A target that the action was given later is told nothing from
/// before.
///
/// # Errors
/// [`crate::Error::Store`] when the store fails; [`StoreError::Conflict`] where a target that is being told something moves on
/// each time.
pub async fn replay(evidence: &Evidence, org: Id, number: u64, since: Timestamp) -> Result<usize> {
    let store = evidence.store();
    let Some(action) = store.action_numbered(org, number).await?.map(|known| known.record) else {
        return Ok(0);
    };
    let entry = store.ledger_size_at(org, before(since, Duration::from_micros(1))).await?;
    // What is not planned yet comes by itself.
    let entry = entry.min(store.cursor(NAME, org).await?);
    let again = Position { entry, event: 0 };
    for target in &action.targets {
        again_from(evidence, org, &action, target, again).await?;
    }
    Ok(action.targets.len())
}

/// Moves a target back. What it is told meanwhile changes where it is: that is looked at again.
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
        // What waits for it still is told, too.
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
