//! Requirements are met by name, in their scope, and by type.

use std::slice;

use super::*;

/// The types that a template may require, and the types that are reported.
const ASKED: [&str; 9] =
    ["generic", "junit", "snyk", "pull_request", "jira", "sonar", "decision", "custom:a", "*"];
const REPORTED: [&str; 9] =
    ["generic", "junit", "snyk", "pull_request", "jira", "sonar", "system:decision", "custom:a", "custom:b"];

/// The scopes of an attestation: the trail, content, and a template name with a commit.
fn bindings() -> [Binding; 3] {
    [Binding::Trail, on_artifact(), named("cli", COMMIT)]
}

/// Returns a template that requires `a` of this type in the scope of the binding.
fn asks_for(kind: &str, binding: &Binding) -> Template {
    let slot = json!([{"name": "a", "type": kind}]);
    let trail = match binding {
        Binding::Trail => json!({"attestations": slot, "artifacts": [{"name": "cli"}]}),
        _ => json!({"artifacts": [{"name": "cli", "attestations": slot}]}),
    };
    template(&json!({ "trail": trail }).to_string())
}

/// Returns the line of a trail with the artifact `cli`: the state of `a` in its scope, and the states of the
/// trail and the artifact.
fn trail_line(binding: &Binding, state: &str, a: &str) -> String {
    match binding {
        Binding::Trail => format!("{state} {a} cli:{state}"),
        _ => format!("{state} cli:{state} {a}"),
    }
}

#[test]
fn a_slot_is_satisfied_by_its_own_type_alone() {
    let verdicts = [true, false];
    for (kind, reported) in ASKED.into_iter().flat_map(|kind| REPORTED.map(|reported| (kind, reported))) {
        let fits = kind == "*" || kind == reported || (kind, reported) == ("decision", "system:decision");
        for (binding, verdict) in bindings().into_iter().flat_map(|one| verdicts.map(|it| (one.clone(), it)))
        {
            let given = typed(reported, attestation("a", verdict, binding.clone(), 2));
            let (state, a) = match (fits, verdict) {
                (true, true) => ("COMPLIANT", "a=true"),
                (true, false) => ("NON-COMPLIANT", "a=false"),
                (false, true) => ("INCOMPLETE", "a=? +a=true"),
                (false, false) => ("NON-COMPLIANT", "a=? +a=false"),
            };
            let expected = trail_line(&binding, state, a);
            check(&asks_for(kind, &binding), &[artifact("cli", 1)], &[given], &expected);
        }
    }
}

#[test]
fn a_right_type_that_a_wrong_one_follows_does_not_satisfy_its_slot_until_it_is_repeated() {
    for binding in bindings() {
        let of = |kind, index| typed(kind, attestation("a", true, binding.clone(), index));
        let given = [of("junit", 2), of("generic", 3), of("junit", 4)];
        let template = asks_for("junit", &binding);
        let after = |count: usize, state, a| {
            check(&template, &[artifact("cli", 1)], &given[..count], &trail_line(&binding, state, a));
        };
        after(1, "COMPLIANT", "a=true");
        after(2, "INCOMPLETE", "a=? +a=true");
        after(3, "COMPLIANT", "a=true");
    }
}

#[test]
fn an_override_decides_in_its_scope_whatever_came_before() {
    let verdicts = [true, false];
    for binding in bindings() {
        for (original, replaced) in verdicts.into_iter().flat_map(|one| verdicts.map(|other| (one, other))) {
            // An override meets the requirement whatever its type, because it is a decision about the slot.
            for kind in ["generic", "junit"] {
                let given = [
                    typed(kind, attestation("a", original, binding.clone(), 2)),
                    overriding(attestation("a", replaced, binding.clone(), 3)),
                ];
                let (state, a) =
                    if replaced { ("COMPLIANT", "a=true") } else { ("NON-COMPLIANT", "a=false") };
                let template = asks_for("generic", &binding);
                check(&template, &[artifact("cli", 1)], &given, &trail_line(&binding, state, a));
            }
        }
    }
}

#[test]
fn a_name_that_the_trail_and_an_artifact_ask_for_are_two_slots() {
    let template = template(
        "trail: {attestations: [{name: a, type: '*'}],
                 artifacts: [{name: cli, attestations: [{name: a, type: '*'}]}]}",
    );
    let cli = [artifact("cli", 1)];
    let (on_trail, on_cli) =
        (attestation("a", true, Binding::Trail, 2), attestation("a", true, on_artifact(), 3));
    check(&template, &cli, slice::from_ref(&on_trail), "INCOMPLETE a=true cli:INCOMPLETE a=?");
    check(&template, &cli, slice::from_ref(&on_cli), "INCOMPLETE a=? cli:INCOMPLETE a=true");
    check(&template, &cli, &[on_trail, on_cli], "COMPLIANT a=true cli:COMPLIANT a=true");
}

#[test]
fn what_is_said_of_one_artifact_is_no_other_ones_and_what_is_said_of_the_trail_is_every_ones() {
    let template = template(
        "trail: {attestations: [{name: t, type: '*'}],
                 artifacts: [{name: x, attestations: [{name: a, type: '*'}]}, {name: y}]}",
    );
    let y = ReportedArtifact { fingerprint: "f2".to_owned(), ..artifact("y", 2) };
    let artifacts = [artifact("x", 1), y];
    let table = [
        // The report on the trail, the report on `x`, and the result.
        (None, None, "INCOMPLETE t=? x:INCOMPLETE a=? y:INCOMPLETE"),
        (None, Some(true), "INCOMPLETE t=? x:INCOMPLETE a=true y:INCOMPLETE"),
        (None, Some(false), "NON-COMPLIANT t=? x:NON-COMPLIANT a=false y:INCOMPLETE"),
        (Some(true), None, "INCOMPLETE t=true x:INCOMPLETE a=? y:COMPLIANT"),
        (Some(true), Some(true), "COMPLIANT t=true x:COMPLIANT a=true y:COMPLIANT"),
        (Some(true), Some(false), "NON-COMPLIANT t=true x:NON-COMPLIANT a=false y:COMPLIANT"),
        (Some(false), None, "NON-COMPLIANT t=false x:NON-COMPLIANT a=? y:NON-COMPLIANT"),
        (Some(false), Some(true), "NON-COMPLIANT t=false x:NON-COMPLIANT a=true y:NON-COMPLIANT"),
        (Some(false), Some(false), "NON-COMPLIANT t=false x:NON-COMPLIANT a=false y:NON-COMPLIANT"),
    ];
    for (on_trail, on_x, expected) in table {
        let on_trail = on_trail.map(|verdict| attestation("t", verdict, Binding::Trail, 3));
        let on_x = on_x.map(|verdict| attestation("a", verdict, on_artifact(), 4));
        let given = Vec::from_iter(on_trail.into_iter().chain(on_x));
        check(&template, &artifacts, &given, expected);
    }
}

#[test]
fn whatever_is_built_under_a_name_from_a_commit_has_what_was_said_of_them() {
    let waiting =
        [attestation("foo", false, named("cli", COMMIT), 1), attestation("bar", true, Binding::Trail, 2)];
    let of = |fingerprint: &str, commit: &str, index| ReportedArtifact {
        fingerprint: fingerprint.to_owned(),
        commit: commit.to_owned(),
        ..artifact("cli", index)
    };
    // A rebuild is other content of the same name and commit.
    let artifacts = [of("f1", COMMIT, 3), of("f2", COMMIT, 4)];
    let failed = "NON-COMPLIANT bar=true cli:NON-COMPLIANT foo=false";
    for count in [1, 2] {
        check(&sample(), &artifacts[..count], &waiting, failed);
    }
    for artifact in &artifacts {
        let status = evaluate_artifact(&sample(), artifact, &artifacts, &waiting);
        assert_eq!(status.state, ArtifactState::Reported(State::NonCompliant), "{}", artifact.fingerprint);
    }
    // Content of another commit does not have them, unlike the content it replaces.
    let later = [artifacts.as_slice(), &[of("f3", "c2", 5)]].concat();
    check(&sample(), &later, &waiting, "INCOMPLETE bar=true cli:INCOMPLETE foo=?");
}

#[test]
fn a_truth_value_stands_beside_each_state() {
    let lines = |given: &[ReportedAttestation], artifacts: &[ReportedArtifact]| {
        let status = evaluate(&sample(), BEGUN, artifacts, given);
        let json = serde_json::to_value(&status).expect("plain data");
        let cli = &json["artifacts_statuses"]["cli"];
        let foo = &cli["attestations_statuses"][0];
        [&json, cli, foo].map(|one| (one["status"].clone(), one["is_compliant"].clone()))
    };
    let foo = |verdict| {
        [attestation("foo", verdict, on_artifact(), 2), attestation("bar", true, Binding::Trail, 3)]
    };
    let cli = [artifact("cli", 1)];
    let row = |words: [(&str, Option<bool>); 3]| words.map(|(state, truth)| (json!(state), json!(truth)));
    let missing = ("MISSING", None);
    assert_eq!(lines(&[], &[]), row([("INCOMPLETE", Some(false)), missing, missing]));
    assert_eq!(lines(&[], &cli), row([("INCOMPLETE", Some(false)), ("INCOMPLETE", Some(false)), missing]));
    let failed = ("NON-COMPLIANT", Some(false));
    assert_eq!(lines(&foo(false), &cli), row([failed, failed, ("COMPLETE", Some(false))]));
    let passed = ("COMPLIANT", Some(true));
    assert_eq!(lines(&foo(true), &cli), row([passed, passed, ("COMPLETE", Some(true))]));
}
