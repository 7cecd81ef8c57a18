//! Derives the events that an entry causes. Pure functions of a fact: the same entry always has the same
//! events, in the same order.

use std::collections::BTreeSet;

use crate::allowlists::record::AllowlistEntry;
use crate::artifacts::record::Artifact;
use crate::attestations::record::Attestation;
use crate::digest::sha256_hex;
use crate::fact::Fact;
use crate::id::Id;
use crate::ledger::Hash;
use crate::notifications::store::Position;
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::{LogicalVerdict, RunningArtifact, Snapshot};
use crate::store::entry::StoredEntry;
use crate::trails::record::Trail;

/// The kinds of facts that cause events.
const EVENT_KINDS: [&str; 5] =
    ["snapshot_taken", "artifact_allowed", "trail_begun", "artifact_reported", "attestation_added"];

/// Returns whether facts of this kind cause events. Others need not be read.
pub(super) fn causes_events(kind: &str) -> bool {
    EVENT_KINDS.contains(&kind)
}

/// Returns the fact of an entry if it causes events. An unreadable entry causes none.
pub(super) fn event_fact(entry: &StoredEntry) -> Option<Fact> {
    if !causes_events(&entry.kind) {
        return None;
    }
    let read = Fact::read(&entry.payload);
    read.inspect_err(
        |error| tracing::warn!(index = entry.index, %error, "an entry cannot be read; nobody is notified of it"),
    )
    .ok()
}

/// Something that an action may notify about.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event<'f> {
    /// The position among the events of its entry.
    pub(super) place: u64,
    /// The trigger.
    pub(super) trigger: &'static str,
    /// The environment or flow in which it happened.
    pub(super) at: Place,
    /// The change itself.
    pub(super) what: What<'f>,
}

/// The environment or flow in which an event happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Environment(Id),
    Flow(Id),
}

/// The change that an event reports.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum What<'f> {
    /// The environment became compliant or non-compliant, unless the previous snapshot had the same verdict.
    Verdict(&'f Snapshot),
    /// The artifacts in a member began to violate or comply with the policies of a logical environment.
    LogicalVerdict(&'f Snapshot, &'f LogicalVerdict),
    /// An artifact started, or its state changed.
    Changed(&'f Snapshot, &'f RunningArtifact),
    /// An artifact exited.
    Exited(&'f Snapshot, &'f ArtifactKey),
    /// An artifact was allowed.
    Allowed(&'f AllowlistEntry),
    /// A trail began.
    Begun(&'f Trail),
    /// An artifact was reported.
    Reported(&'f Artifact),
    /// An attestation was reported.
    Attested(&'f Attestation),
}

/// Returns the events of a fact, in order.
pub(super) fn events(fact: &Fact) -> Vec<Event<'_>> {
    let one = |trigger, at, what| vec![Event { place: 0, trigger, at, what }];
    match fact {
        Fact::SnapshotTaken { snapshot } => of_snapshot(snapshot),
        Fact::ArtifactAllowed { record } => {
            one("ON_ALLOWED_ARTIFACT", Place::Environment(record.environment), What::Allowed(record))
        }
        Fact::TrailBegun { record } => one("ON_STARTED_TRAIL", Place::Flow(record.flow), What::Begun(record)),
        Fact::ArtifactReported { record } => {
            one("ON_ATTESTED_PROVENANCE", Place::Flow(record.flow), What::Reported(record))
        }
        Fact::AttestationAdded { record } => {
            one("ON_ATTESTATION", Place::Flow(record.flow), What::Attested(record))
        }
        _ => Vec::new(),
    }
}

const fn verdict(compliant: bool) -> &'static str {
    if compliant { "ON_COMPLIANT_ENV" } else { "ON_NON_COMPLIANT_ENV" }
}

fn of_snapshot(snapshot: &Snapshot) -> Vec<Event<'_>> {
    let mut found = vec![(verdict(snapshot.compliant), What::Verdict(snapshot))];
    found.extend(snapshot.changes.iter().filter_map(|instance| {
        let trigger = match instance.annotation.kind.as_str() {
            "started-compliant" | "started-non-compliant" | "started-unknown" => "ON_STARTED_ARTIFACT",
            "became-compliant" | "became-non-compliant" | "updated-provenance" => "ON_SCALED_ARTIFACT",
            // Three changes cause no event: other policies, another outcome of a rule without another verdict
            // (`changed`), and another number of instances (`unchanged`).
            _ => return None,
        };
        Some((trigger, What::Changed(snapshot, instance)))
    }));
    found.extend(snapshot.exits.iter().map(|key| ("ON_EXITED_ARTIFACT", What::Exited(snapshot, key))));
    let here = Place::Environment(snapshot.environment);
    let here = found.into_iter().map(|(trigger, what)| (here, trigger, what));
    // A member that is not compliant itself cannot make a logical environment compliant.
    let is_told = |of: &&LogicalVerdict| !of.compliant || snapshot.state() != Some(false);
    let logical = snapshot.logical.iter().filter(is_told).map(|of| {
        (Place::Environment(of.environment), verdict(of.compliant), What::LogicalVerdict(snapshot, of))
    });
    let numbered = (0..).zip(here.chain(logical));
    numbered.map(|(place, (at, trigger, what))| Event { place, trigger, at, what }).collect()
}

impl Event<'_> {
    /// Returns whether the event is relevant to an action with these places and triggers.
    pub(super) fn concerns(&self, watched: &BTreeSet<Place>, triggers: &[String]) -> bool {
        watched.contains(&self.at) && triggers.iter().any(|trigger| trigger == self.trigger)
    }
}

/// Returns the id of a delivery. It is the same for every attempt and on every server, and unique. It
/// includes the entry's hash: a store restored from a backup records other entries at the same indexes.
pub(super) fn delivery_id(org: Id, target: Id, at: Position, entry: Hash) -> String {
    let mut digest = sha256_hex(format!("{org} {target} {} {} {entry}", at.entry, at.event).as_bytes());
    digest.truncate(32);
    digest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(compliant: bool, kinds: &[&str], exits: usize) -> Fact {
        let change = |(at, kind): (usize, &&str)| {
            json!({"fingerprint": format!("{at:064x}"), "name": "app", "created": [1], "from": 2, "since": 2,
                   "annotation": {"type": kind, "was": 0, "now": 1}, "compliant": null, "provenance": []})
        };
        let changes: Vec<_> = kinds.iter().enumerate().map(change).collect();
        let exits: Vec<_> = (0..exits).map(|at| format!("{:064x}", at + 100)).collect();
        let snapshot = json!({"environment": ID, "index": 2, "at": 1, "compliant": compliant, "reported": true,
                              "policies": [], "changes": changes, "exits": exits});
        serde_json::from_value(json!({"snapshot_taken": {"snapshot": snapshot}})).unwrap()
    }

    const ID: &str = "00000000-0000-0000-0000-00000001";
    const OTHER: &str = "00000000-0000-0000-0000-00000002";

    #[test]
    fn a_snapshot_tells_of_its_verdict_and_of_each_artifact_that_started_changed_or_exited() {
        let fact = snapshot(
            false,
            &[
                "started-unknown",
                "changed",
                "became-compliant",
                "updated-provenance",
                "unchanged",
                "started-compliant",
            ],
            2,
        );
        let reported: Vec<_> = events(&fact).iter().map(|event| (event.place, event.trigger)).collect();
        let expected = [
            (0, "ON_NON_COMPLIANT_ENV"),
            (1, "ON_STARTED_ARTIFACT"),
            (2, "ON_SCALED_ARTIFACT"),
            (3, "ON_SCALED_ARTIFACT"),
            (4, "ON_STARTED_ARTIFACT"),
            (5, "ON_EXITED_ARTIFACT"),
            (6, "ON_EXITED_ARTIFACT"),
        ];
        assert_eq!(reported, expected);
        let fact = snapshot(true, &["became-non-compliant"], 0);
        let reported: Vec<_> = events(&fact).iter().map(|event| event.trigger).collect();
        assert_eq!(reported, ["ON_COMPLIANT_ENV", "ON_SCALED_ARTIFACT"]);
    }

    #[test]
    fn a_snapshot_tells_of_the_policies_of_each_logical_environment() {
        let places: [Id; 2] = [ID, OTHER].map(|id| id.parse().unwrap());
        let [here, there] = places.map(Place::Environment);
        // The columns: whether the member requires provenance, whether it is compliant, and whether its
        // artifacts comply with the policies.
        let table = [
            (false, false, false, Some("ON_NON_COMPLIANT_ENV")),
            (false, false, true, Some("ON_COMPLIANT_ENV")),
            (true, true, false, Some("ON_NON_COMPLIANT_ENV")),
            (true, true, true, Some("ON_COMPLIANT_ENV")),
            (true, false, false, Some("ON_NON_COMPLIANT_ENV")),
            (true, false, true, None),
        ];
        for (requires_provenance, compliant, complies, expected) in table {
            let Fact::SnapshotTaken { mut snapshot } = snapshot(compliant, &[], 1) else { panic!() };
            snapshot.requires_provenance = requires_provenance;
            let [_, environment] = places;
            snapshot.logical = vec![LogicalVerdict { environment, policies: vec![], compliant: complies }];
            let fact = Fact::SnapshotTaken { snapshot };
            let reported = events(&fact);
            let found =
                reported.iter().find(|event| event.at == there).map(|event| (event.place, event.trigger));
            assert_eq!(found, expected.map(|trigger| (2, trigger)), "{compliant} {complies}");
            assert_eq!(reported.iter().filter(|event| event.at == here).count(), 2);
        }
    }

    #[test]
    fn an_action_is_about_what_it_watches_and_names() {
        let fact = snapshot(true, &["started-unknown"], 0);
        let [id, other]: [Id; 2] = [ID, OTHER].map(|id| id.parse().unwrap());
        let environment = Place::Environment;
        let table = [
            (&[environment(other), environment(id)][..], &["ON_STARTED_ARTIFACT"][..], vec![1]),
            (&[environment(id)], &["ON_COMPLIANT_ENV", "ON_STARTED_ARTIFACT"], vec![0, 1]),
            (&[environment(id)], &["ON_NON_COMPLIANT_ENV", "ON_EXITED_ARTIFACT"], vec![]),
            (&[environment(other)], &["ON_STARTED_ARTIFACT"], vec![]),
            (&[], &["ON_STARTED_ARTIFACT"], vec![]),
            (&[Place::Flow(id)], &["ON_STARTED_ARTIFACT"], vec![]),
        ];
        for (watched, triggers, expected) in table {
            let watched = BTreeSet::from_iter(watched.iter().copied());
            let triggers: Vec<String> = triggers.iter().map(ToString::to_string).collect();
            let events = events(&fact);
            let concerned = events.iter().filter(|one| one.concerns(&watched, &triggers));
            let found: Vec<_> = concerned.map(|one| one.place).collect();
            assert_eq!(found, expected, "{watched:?} {triggers:?}");
        }
    }

    #[test]
    fn every_delivery_has_an_id_of_its_own_that_stays() {
        let (org, target): (Id, Id) = (ID.parse().unwrap(), OTHER.parse().unwrap());
        let at = |entry, event| Position { entry, event };
        let leaf = Hash::of("an entry");
        let ids = [
            delivery_id(org, target, at(1, 1), leaf),
            delivery_id(org, target, at(11, 1), leaf),
            delivery_id(org, target, at(1, 11), leaf),
            delivery_id(target, org, at(1, 1), leaf),
            delivery_id(org, org, at(1, 1), leaf),
            delivery_id(org, target, at(1, 1), Hash::of("another")),
        ];
        let different: BTreeSet<_> = ids.iter().collect();
        assert_eq!(different.len(), ids.len());
        assert_eq!(ids[0], delivery_id(org, target, at(1, 1), leaf));
        assert!(ids[0].len() == 32, "{}", ids[0]);
    }
}
