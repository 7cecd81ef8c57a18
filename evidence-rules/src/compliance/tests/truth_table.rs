//! Compares every case of four names with a restatement of the rules.

use super::*;

/// The places where a template of the truth table may expect a name.
const EXPECTED: [Option<Place>; 3] = [None, Some(Place::Trail), Some(Place::Artifact)];
/// The reports of a name: scope, verdict, and whether the type is the expected one.
const GIVEN: [Option<(Place, bool, bool)>; 7] = [
    None,
    Some((Place::Trail, true, true)),
    Some((Place::Trail, false, true)),
    Some((Place::Trail, true, false)),
    Some((Place::Artifact, true, true)),
    Some((Place::Artifact, false, true)),
    Some((Place::Artifact, true, false)),
];

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Trail,
    Artifact,
}

type Case = [(Option<Place>, Option<(Place, bool, bool)>); 4];

/// Returns every combination of four names, expected and reported in every scope. Names are interchangeable,
/// so each combination occurs once.
fn cases() -> impl Iterator<Item = Case> {
    let per_name = EXPECTED.len() * GIVEN.len();
    let of = move |digit: usize| (EXPECTED[digit % EXPECTED.len()], GIVEN[digit / EXPECTED.len()]);
    (0..per_name.pow(4))
        .map(move |number| [0, 1, 2, 3].map(|place| number / per_name.pow(place) % per_name))
        .filter(|digits| digits.is_sorted())
        .map(move |digits| digits.map(of))
}

fn case_template(case: &Case, expects_artifact: bool) -> Template {
    let at = |place| {
        let names = NAMES.iter().zip(case);
        names
            .filter(|(_, (expected, _))| *expected == Some(place))
            .map(|(name, _)| json!({ "name": name, "type": "generic" }))
            .collect::<Vec<_>>()
    };
    let artifact = json!({ "name": "x", "attestations": at(Place::Artifact) });
    let artifacts = if expects_artifact { vec![artifact] } else { vec![] };
    let trail = json!({ "attestations": at(Place::Trail), "artifacts": artifacts });
    template(&json!({ "trail": trail }).to_string())
}

fn case_attestations(case: &Case) -> Vec<ReportedAttestation> {
    let names = NAMES.iter().zip(case).zip(1..);
    names
        .filter_map(|((name, (_, given)), index)| {
            let (place, verdict, right_type) = (*given)?;
            let binding = match place {
                Place::Trail => Binding::Trail,
                Place::Artifact => named("x", COMMIT),
            };
            let kind = if right_type { "generic" } else { "junit" };
            Some(typed(kind, attestation(name, verdict, binding, index)))
        })
        .collect()
}

/// Restates the rules of the trail and the artifact as plain queries about the case.
fn oracle(case: &Case, expects_artifact: bool, reported: bool) -> (State, Option<ArtifactState>) {
    let fails_at =
        |place| case.iter().any(|(_, given)| matches!(given, Some((at, false, _)) if *at == place));
    let lacks_at = |place| {
        case.iter().any(|(expected, given)| {
            *expected == Some(place) && !matches!(given, Some((at, _, true)) if *at == place)
        })
    };
    let awaited = case.iter().any(|(_, given)| matches!(given, Some((Place::Artifact, ..))));
    let seen = expects_artifact || reported || awaited;
    let fails = fails_at(Place::Trail) || fails_at(Place::Artifact);
    let lacks = lacks_at(Place::Trail) || (expects_artifact && lacks_at(Place::Artifact));
    let state = |lacks| match (fails, lacks) {
        (true, _) => State::NonCompliant,
        (false, true) => State::Incomplete,
        (false, false) => State::Compliant,
    };
    let artifact = match (seen, reported) {
        (false, _) => None,
        (true, false) => Some(ArtifactState::Missing),
        (true, true) => Some(ArtifactState::Reported(state(lacks))),
    };
    (state(lacks || (expects_artifact && !reported)), artifact)
}

#[test]
fn every_case_of_four_names_has_the_verdict_of_the_rules() {
    for case in cases() {
        let attestations = case_attestations(&case);
        let needs_artifact = case.iter().any(|(at, _)| *at == Some(Place::Artifact));
        for (expects_artifact, reported) in [(true, true), (true, false), (false, true), (false, false)] {
            if needs_artifact && !expects_artifact {
                continue;
            }
            let template = case_template(&case, expects_artifact);
            let artifacts: Vec<_> = reported.then(|| artifact("x", 9)).into_iter().collect();
            let status = evaluate(&template, BEGUN, &artifacts, &attestations);
            let artifact = status.artifacts.first().map(|artifact| artifact.state);
            let verdicts = (status.state, artifact);
            let expected = oracle(&case, expects_artifact, reported);
            assert_eq!(verdicts, expected, "{template:?} {attestations:?}");
        }
    }
}
