use std::cell::Cell;
use std::slice::from_ref;

use proptest::prelude::*;

use super::super::tests::{arbitrary_reports, artifact, attestation, template, template_of_names};
use super::super::{ArtifactState, Binding, evaluate_artifact};
use super::*;

fn reported(fingerprint: &str, name: &str, index: u64) -> ReportedArtifact {
    ReportedArtifact { fingerprint: fingerprint.to_owned(), ..artifact(name, index) }
}

/// What was reported, in order: content and name; and what `f1` is then.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);

#[test]
fn content_is_what_nothing_else_is_since_and_what_it_was_last_called() {
    let table: [Case<'_>; 9] = [
        (&[("f1", "")], &[""]),
        (&[("f1", "x")], &["x"]),
        (&[("f1", "x"), ("f1", "")], &["", "x"]),
        (&[("f1", "x"), ("f1", "y")], &["x", "y"]),
        (&[("f1", "x"), ("f2", "x")], &["x"]),
        (&[("f1", "x"), ("f2", "x"), ("f1", "")], &["", "x"]),
        (&[("f1", "x"), ("f2", "x"), ("f1", "y")], &["y"]),
        (&[("f1", "x"), ("f1", "y"), ("f2", "x"), ("f2", "y")], &["y"]),
        (&[("f2", "x")], &[]),
    ];
    for (reports, expected) in table {
        let reports = Vec::from_iter((0..).zip(reports).map(|(index, (of, name))| reported(of, name, index)));
        for reports in [reports.clone(), Vec::from_iter(reports.into_iter().rev())] {
            let found = names(&reports, &BTreeMap::from([("f1", "")])).remove("f1").unwrap_or_default();
            assert_eq!(Vec::from_iter(found), expected, "{reports:?}");
        }
    }
}

#[test]
fn content_is_evaluated_by_the_names_that_it_had_and_the_one_to_blame_is_told() {
    let template = template("trail: {artifacts: [{name: cli, attestations: [{name: scan, type: generic}]}]}");
    let of_trail = self::template(
        "trail: {attestations: [{name: review, type: generic}], artifacts: [{name: cli, attestations: [{name: scan, type: generic}]}]}",
    );
    let scan = attestation("scan", true, Binding::Artifact { fingerprint: "f1".to_owned() }, 9);
    let table: [(&[&str], &str, State, Option<&str>); 9] = [
        (&[""], "", State::Compliant, None),
        (&[""], "cli", State::Incomplete, Some("cli")),
        (&[""], "other", State::Compliant, None),
        (&["", ""], "cli", State::Incomplete, Some("cli")),
        (&["other"], "cli", State::Compliant, None),
        (&["other", ""], "cli", State::Compliant, None),
        (&["cli"], "", State::Incomplete, None),
        (&["cli", "other"], "cli", State::Incomplete, Some("cli")),
        (&["cli", "other", "cli"], "cli", State::Incomplete, None),
    ];
    for (reports, before, expected, worse_as) in table {
        let artifacts = Vec::from_iter((0..).zip(reports).map(|(index, name)| reported("f1", name, index)));
        let content = BTreeMap::from([("f1", before)]);
        let status = |template: &Template, attestations: &[ReportedAttestation]| {
            let found =
                content_statuses(template, &artifacts, attestations, &content, usize::MAX, |lines, _| lines);
            (found["f1"].state, found["f1"].worse_as.map(str::to_owned))
        };
        let worse_as = worse_as.map(str::to_owned);
        assert_eq!(status(&template, &[]), (expected, worse_as), "{reports:?} {before}");
        // Nor is a name to blame where nothing is missing, or the trail lacks something too.
        assert_eq!(status(&template, from_ref(&scan)), (State::Compliant, None), "{reports:?} {before}");
        assert_eq!(status(&of_trail, &[]), (State::Incomplete, None), "{reports:?} {before}");
    }
}

#[test]
fn what_is_said_of_the_name_before_is_said_of_content_without_one() {
    let artifacts = [reported("f1", "", 0)];
    let of = |name: &str, commit: &str| Binding::Named { name: name.to_owned(), commit: commit.to_owned() };
    let built = artifacts[0].commit.clone();
    for (binding, before, expected) in [
        (of("cli", &built), "cli", State::NonCompliant),
        (of("cli", &built), "other", State::Compliant),
        (of("cli", "another"), "cli", State::Compliant),
    ] {
        let failing = [attestation("scan", false, binding.clone(), 9)];
        let content = BTreeMap::from([("f1", before)]);
        let found =
            content_statuses(&Template::default(), &artifacts, &failing, &content, usize::MAX, |lines, _| {
                lines
            });
        assert_eq!(found["f1"].state, expected, "{binding:?} {before}");
    }
}

proptest! {
    #[test]
    fn content_is_no_better_than_any_artifact_that_it_is((artifacts, attestations) in arbitrary_reports()) {
        let template = template_of_names();
        let wanted = BTreeMap::from([("f1", "")]);
        let found = content_statuses(&template, &artifacts, &attestations, &wanted, usize::MAX, |lines, _| lines);
        let is_reported = artifacts.iter().any(|artifact| artifact.fingerprint == "f1");
        prop_assert_eq!(found.len(), usize::from(is_reported));
        for (fingerprint, names) in names(&artifacts, &wanted) {
            let of = |name: &&str| {
                let same = |one: &&ReportedArtifact| one.fingerprint == fingerprint && one.name == **name;
                let report = artifacts.iter().find(same).expect("it was reported so");
                evaluate_artifact(&template, report, &artifacts, &attestations)
            };
            let each = Vec::from_iter(names.iter().map(of));
            let is = |state| each.iter().any(|status| status.state == ArtifactState::Reported(state));
            let worst = [State::NonCompliant, State::Incomplete].into_iter().find(|state| is(*state));
            let content = &found[fingerprint];
            prop_assert_eq!(content.state, worst.unwrap_or(State::Compliant));
            let own: Vec<_> = each.into_iter().map(|status| status.attestations).collect();
            prop_assert_eq!(&content.attestations[..own.len()], &own[..]);
            prop_assert_eq!(content.attestations.len(), own.len() + 1);
        }
    }
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
    let running = artifacts.iter().map(|artifact| (artifact.fingerprint.as_str(), "")).collect();
    let lists = Cell::new(0);
    let count = |lines: Vec<AttestationStatus>, _: &[&ReportedAttestation]| {
        lists.set(lists.get() + 1);
        lines.len()
    };
    let found = content_statuses(&template, &artifacts, &attestations, &running, usize::MAX, count);
    let failing = found.iter().filter(|(_, status)| !status.state.is_compliant());
    assert_eq!(Vec::from_iter(failing.map(|(fingerprint, _)| *fingerprint)), ["f7"]);
    assert!(found.values().all(|status| status.attestations == [1, 10_000]));
    assert_eq!(found.len(), artifacts.len());
    // The trail's, that of all artifacts but one, and that one's.
    assert_eq!(lists.get(), 3);
}

/// Attestations that wait for all artifacts of a name and commit, and one of each artifact's own: each has all of these.
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
    let running = artifacts.iter().map(|artifact| (artifact.fingerprint.as_str(), "")).collect();
    let of = |most: usize| {
        let template = Template::default();
        let found =
            content_statuses(&template, &artifacts, &attestations, &running, most, |lines, _| lines.len());
        let is = |status: &ContentStatus<'_, usize>| (status.state.is_compliant(), status.is_too_much);
        Vec::from_iter(found.values().map(is))
    };
    let each = MANY as usize + 1;
    assert_eq!(of(MANY as usize * each), [(true, false); MANY as usize]);
    let found = of(30 * each + 1);
    assert_eq!(found[..30], [(true, false); 30]);
    assert_eq!(found[30..], [(false, true); MANY as usize - 30]);
}
