//! The environments and flows that actions watch. A watched logical environment includes the members that it
//! has at that time. An archived one has none, because archived environments are not watched.

use std::collections::{BTreeMap, BTreeSet};

use crate::actions::record::{Action, Watched};
use crate::error::Result;
use crate::id::Id;
use crate::notifications::events::Place;
use crate::service::Evidence;
use crate::store::batch::{RECORD_BATCH_SIZE, distinct};

/// Returns the members of the logical ones of these environments. Includes only `wanted` members.
pub(super) async fn members(
    evidence: &Evidence,
    org: Id,
    environments: &[Id],
    wanted: impl Fn(&Id) -> bool + Send,
) -> Result<BTreeMap<Id, Vec<Id>>> {
    let mut members = BTreeMap::new();
    for part in environments.chunks(RECORD_BATCH_SIZE) {
        let known = evidence.store().environments_by_id(org, part).await?.into_iter();
        for known in known.filter(|known| !known.record.kind.is_physical() && !known.archived) {
            let included = known.record.included.into_iter().filter(&wanted).collect();
            members.insert(known.record.id, included);
        }
    }
    Ok(members)
}

/// Returns the places that an action watches.
pub(super) async fn places(evidence: &Evidence, org: Id, action: &Action) -> Result<BTreeSet<Place>> {
    match &action.watched {
        Watched::Flows(ids) => Ok(ids.iter().copied().map(Place::Flow).collect()),
        Watched::Environments(ids) => {
            let ids = distinct(ids.iter().copied());
            let members = members(evidence, org, &ids, |_| true).await?;
            Ok(ids.into_iter().chain(members.into_values().flatten()).map(Place::Environment).collect())
        }
    }
}
