use std::cell::Cell;

use super::super::Binding;
use super::super::tests::{NONE, artifact, attestation, template};
use super::*;

fn reported(fingerprint: &str, name: &str, index: u64) -> ReportedArtifact {
    ReportedArtifact { fingerprint: fingerprint.to_owned(), ..artifact(name, index) }
}

fn contents(artifacts: &[ReportedArtifact]) -> BTreeSet<&str> {
    artifacts.iter().map(|artifact| artifact.fingerprint.as_str()).collect()
}

#[test]
fn what_a_trail_says_is_worked_out_once_however_much_of_it_runs() {
    const MANY: u64 = 20_000;
    let template = template("trail: {artifacts: [{name: cli, attestations: [{name: scan, type: generic}]}]}");
    let artifacts = Vec::from_iter((0..MANY).map(|n| reported(&format!("f{n}"), "cli", n)));
    let check = |n: u64| attestation(&format!("check-{}", n % 10_000), true, Binding::Trail, MANY + n);
    let mut attestations = Vec::from_iter((0..MANY).map(check));
    let scan = Binding::Named { name: "cli".to_owned(), commit: artifacts[0].commit.clone() };
    attestations.push(attestation("scan", true, scan, 2 * MANY));
    let of_one = Binding::Artifact { fingerprint: "f7".to_owned() };
    attestations.push(attestation("scan", false, of_one, 2 * MANY + 1));
    let (running, reports) = (contents(&artifacts), (&artifacts[..], &attestations[..]));
    let lists = Cell::new(0);
    let count = |lines: Vec<AttestationStatus>, _: &[&ReportedAttestation], on_trail: Option<&[usize; 2]>| {
        lists.set(lists.get() + 1);
        [lines.len(), on_trail.map_or(0, |[lines, _]| *lines)]
    };
    let found = content_statuses(&template, reports, &NONE, &running, usize::MAX, count);
    let failing = found.iter().filter(|(_, status)| !status.state.is_compliant());
    assert_eq!(Vec::from_iter(failing.map(|(fingerprint, _)| *fingerprint)), ["f7"]);
    assert!(found.values().all(|status| status.attestations == Some([1, 10_000])));
    assert_eq!(found.len(), artifacts.len());
    // One list for the trail, one for all artifacts but one, and one for that artifact.
    assert_eq!(lists.get(), 3);
}

/// Each artifact has all attestations that await its name and commit, and one of its own.
#[test]
fn what_is_too_much_of_a_trail_is_incomplete_and_says_so() {
    const MANY: u64 = 100;
    let artifacts = Vec::from_iter((0..MANY).map(|n| reported(&format!("f{n:03}"), "cli", n)));
    let waiting = Binding::Named { name: "cli".to_owned(), commit: artifacts[0].commit.clone() };
    let waiting = |n: u64| attestation(&format!("w{n}"), true, waiting.clone(), MANY + n);
    let own = |n: u64| {
        let binding = Binding::Artifact { fingerprint: format!("f{n:03}") };
        attestation("own", true, binding, 2 * MANY + n)
    };
    let attestations = Vec::from_iter((0..MANY).map(waiting).chain((0..MANY).map(own)));
    let (running, reports) = (contents(&artifacts), (&artifacts[..], &attestations[..]));
    let of = |most: usize| {
        let template = Template::default();
        let found = content_statuses(&template, reports, &NONE, &running, most, |lines, _, _| lines.len());
        let is = |status: &ContentStatus<usize>| {
            // Without its own attestations, no attestation may count for it.
            assert_eq!(status.attestations.is_none(), status.is_too_much);
            (status.state.is_compliant(), status.is_too_much)
        };
        Vec::from_iter(found.values().map(is))
    };
    let each = MANY as usize + 1;
    assert_eq!(of(MANY as usize * each), [(true, false); MANY as usize]);
    let found = of(30 * each + 1);
    assert_eq!(found[..30], [(true, false); 30]);
    assert_eq!(found[30..], [(false, true); MANY as usize - 30]);
}
