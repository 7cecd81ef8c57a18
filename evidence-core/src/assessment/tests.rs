use super::*;

use crate::id::Random;
use crate::time::Timestamp;

/// Gives the bytes of a small number, so that ids are told apart by it.
struct Numbered(u8);

impl Random for Numbered {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0);
    }
}

fn report(number: u8) -> Id {
    Id::new(Timestamp::from_seconds(0), &Numbered(number))
}

fn fingerprint(digit: char) -> Fingerprint {
    digit.to_string().repeat(64).parse().expect("a fingerprint")
}

/// Artifact `digit` with one instance, from report 1, judged by a policy.
fn judged(digit: char, compliant: Option<bool>) -> Judged {
    Judged {
        fingerprint: fingerprint(digit),
        sighting: Sighting { name: "api".to_owned(), created: vec![10] },
        compliant,
        provenance: vec![Provenance { artifact: report(1), state: State::Compliant }],
        decisions: vec![decision("p", 1)],
    }
}

/// What this version of a policy that demands nothing says.
fn decision(policy: &str, version: u64) -> PolicyDecision {
    let evaluation = policy::evaluate(&policy::Policy::default(), &[]);
    PolicyDecision {
        policy_name: policy.parse().expect("a name"),
        policy_version: version,
        status: evaluation.state(),
        rule_evaluations: evaluation.rules,
    }
}

/// What runs after these were judged in snapshot 1.
fn open(judged: &[Judged]) -> BTreeMap<Fingerprint, Instance> {
    let first = difference(&BTreeMap::new(), judged, 1);
    first.changes.into_iter().map(|instance| (instance.fingerprint.clone(), instance)).collect()
}

fn with(mut artifact: Judged, change: impl FnOnce(&mut Judged)) -> Judged {
    change(&mut artifact);
    artifact
}

#[test]
fn what_starts_is_annotated_with_its_verdict() {
    let table = [
        (Some(true), "started-compliant"),
        (Some(false), "started-non-compliant"),
        (None, "started-unknown"),
    ];
    for (compliant, kind) in table {
        let found = difference(&BTreeMap::new(), &[judged('a', compliant)], 1);
        let annotations: Vec<_> = found.changes.iter().map(|change| change.annotation.clone()).collect();
        assert_eq!(annotations, [Annotation { kind: kind.to_owned(), was: 0, now: 1 }]);
        assert!(found.tells_something && found.exits.is_empty());
    }
}

#[test]
fn the_same_fingerprints_take_a_snapshot_only_for_provenance_and_verdicts() {
    let yes = || judged('a', Some(true));
    let table: Vec<(&str, Judged, Judged, Option<&str>, bool)> = vec![
        ("nothing", yes(), yes(), None, false),
        ("counts", yes(), with(yes(), |now| now.sighting.created = vec![10, 11]), Some("unchanged"), false),
        ("times", yes(), with(yes(), |now| now.sighting.created = vec![11]), Some("unchanged"), false),
        ("names", yes(), with(yes(), |now| now.sighting.name = "web".to_owned()), Some("unchanged"), false),
        ("verdict lost", yes(), judged('a', Some(false)), Some("became-non-compliant"), true),
        ("verdict gained", judged('a', Some(false)), yes(), Some("became-compliant"), true),
        ("first verdict", judged('a', None), yes(), Some("became-compliant"), true),
        ("no verdict any more", yes(), judged('a', None), Some("changed"), true),
        (
            "another report",
            yes(),
            with(yes(), |now| now.provenance[0].artifact = report(2)),
            Some("updated-provenance"),
            true,
        ),
        (
            "a report in another flow too",
            yes(),
            with(yes(), |now| {
                now.provenance.push(Provenance { artifact: report(2), state: State::Compliant });
            }),
            Some("updated-provenance"),
            true,
        ),
        (
            "state in the trail",
            yes(),
            with(yes(), |now| now.provenance[0].state = State::Incomplete),
            Some("changed"),
            true,
        ),
        (
            "a new version",
            yes(),
            with(yes(), |now| now.decisions[0].policy_version = 2),
            Some("changed"),
            true,
        ),
        (
            "another policy",
            yes(),
            with(yes(), |now| now.decisions = vec![decision("q", 1)]),
            Some("changed"),
            true,
        ),
        (
            "one policy more",
            yes(),
            with(yes(), |now| now.decisions.push(decision("q", 1))),
            Some("changed"),
            true,
        ),
        ("no policy any more", yes(), with(yes(), |now| now.decisions.clear()), Some("changed"), true),
        (
            "verdict and report",
            yes(),
            with(judged('a', Some(false)), |now| now.provenance[0].artifact = report(2)),
            Some("became-non-compliant"),
            true,
        ),
    ];
    for (what, before, now, kind, tells_something) in table {
        let found = difference(&open(&[before]), &[now], 2);
        assert_eq!(found.tells_something, tells_something, "{what}");
        let kinds: Vec<_> = found.changes.iter().map(|change| change.annotation.kind.as_str()).collect();
        assert_eq!(kinds, Vec::from_iter(kind), "{what}");
        assert!(found.changes.iter().all(|change| change.from == 2), "{what}");
    }
}

#[test]
fn what_is_gone_exits_and_what_stays_the_same_is_not_written_again() {
    let before = open(&[judged('a', None), judged('b', None)]);
    let found = difference(&before, &[judged('b', None), judged('c', None)], 2);
    assert_eq!(found.exits, [fingerprint('a')]);
    let changed: Vec<_> = found.changes.iter().map(|change| &change.fingerprint).collect();
    assert_eq!(changed, [&fingerprint('c')]);
    assert!(found.tells_something);
}

#[test]
fn counts_are_noted_when_a_snapshot_is_taken_for_another_reason() {
    let before = open(&[judged('a', None)]);
    let scaled = with(judged('a', None), |now| now.sighting.created = vec![10, 11, 12]);
    let found = difference(&before, &[scaled, judged('b', None)], 2);
    let noted = found.changes.iter().find(|change| change.fingerprint == fingerprint('a'));
    let annotation = noted.map(|change| change.annotation.clone());
    assert_eq!(annotation, Some(Annotation { kind: "unchanged".to_owned(), was: 1, now: 3 }));
}
