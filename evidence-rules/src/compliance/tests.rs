use serde_json::{Value, json};

use super::listing::MAX_LINES;
use super::*;

mod properties;
mod slots;
mod truth_table;

pub(super) static NONE: EarlierNames = EarlierNames::new();

/// Evaluates content that had no earlier names.
fn evaluate(
    template: &Template,
    begun_at: Timestamp,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
) -> TrailStatus {
    super::evaluate(template, begun_at, artifacts, attestations, &NONE)
}

fn evaluate_artifact(
    template: &Template,
    artifact: &ReportedArtifact,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
) -> ArtifactStatus {
    super::evaluate_artifact(template, artifact, artifacts, attestations, &NONE)
}

const BEGUN: Timestamp = Timestamp::from_micros(1_000_000);
const FINGERPRINT: &str = "f1";
const COMMIT: &str = "c1";

pub(super) fn template(yaml: &str) -> Template {
    Template::parse(yaml).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The template of most examples: `bar` on the trail, `cli` with `foo`.
fn sample() -> Template {
    template(
        "trail: {attestations: [{name: bar, type: generic}],
                 artifacts: [{name: cli, attestations: [{name: foo, type: generic}]}]}",
    )
}

pub(super) fn artifact(name: &str, index: u64) -> ReportedArtifact {
    ReportedArtifact {
        id: format!("artifact-{index}"),
        fingerprint: FINGERPRINT.to_owned(),
        name: name.to_owned(),
        commit: COMMIT.to_owned(),
        at: time_of(index),
        index,
    }
}

pub(super) fn attestation(
    name: &str,
    is_compliant: bool,
    binding: Binding,
    index: u64,
) -> ReportedAttestation {
    ReportedAttestation {
        id: format!("attestation-{index}"),
        name: name.to_owned(),
        kind: "generic".to_owned(),
        is_compliant,
        at: time_of(index),
        index,
        binding,
        override_info: None,
        control: None,
    }
}

fn overriding(mut attestation: ReportedAttestation) -> ReportedAttestation {
    attestation.override_info = Some(format!("overridden by jane: {}", attestation.id).into());
    attestation
}

fn typed(kind: &str, mut attestation: ReportedAttestation) -> ReportedAttestation {
    attestation.kind = kind.to_owned();
    attestation
}

fn time_of(index: u64) -> Timestamp {
    Timestamp::from_micros(BEGUN.as_micros() + 1_000_000 * index.cast_signed())
}

fn on_artifact() -> Binding {
    Binding::Artifact { fingerprint: FINGERPRINT.to_owned() }
}

fn named(name: &str, commit: &str) -> Binding {
    Binding::Named { name: name.to_owned(), commit: commit.to_owned() }
}

/// Returns a status as one line: `COMPLIANT bar=true cli:COMPLIANT foo=true`; `+` marks unexpected entries.
fn line(status: &TrailStatus) -> String {
    let mut words = vec![status.state.to_string()];
    words.extend(status.attestations.iter().map(word));
    for artifact in &status.artifacts {
        let mark = if artifact.unexpected { "+" } else { "" };
        words.push(format!("{mark}{}:{}", artifact.name, artifact.state));
        words.extend(artifact.attestations.iter().map(word));
    }
    words.join(" ")
}

fn word(attestation: &AttestationStatus) -> String {
    let mark = if attestation.unexpected { "+" } else { "" };
    match attestation.is_compliant {
        Some(verdict) => format!("{mark}{}={verdict}", attestation.name),
        None => format!("{mark}{}=?", attestation.name),
    }
}

fn check(
    template: &Template,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
    expected: &str,
) {
    let status = evaluate(template, BEGUN, artifacts, attestations);
    assert_eq!(line(&status), expected);
    assert_eq!(status.is_compliant, status.state == State::Compliant);
}

#[test]
fn an_empty_template_with_nothing_reported_is_compliant() {
    check(&Template::default(), &[], &[], "COMPLIANT");
}

#[test]
fn a_trail_with_nothing_reported_is_incomplete() {
    check(&sample(), &[], &[], "INCOMPLETE bar=? cli:MISSING foo=?");
}

#[test]
fn an_artifact_without_its_attestations_is_incomplete() {
    let expected = "INCOMPLETE bar=? cli:INCOMPLETE foo=?";
    check(&sample(), &[artifact("cli", 1)], &[], expected);
}

#[test]
fn a_trail_with_everything_is_compliant() {
    let attestations =
        [attestation("foo", true, on_artifact(), 2), attestation("bar", true, Binding::Trail, 3)];
    let expected = "COMPLIANT bar=true cli:COMPLIANT foo=true";
    check(&sample(), &[artifact("cli", 1)], &attestations, expected);
}

#[test]
fn what_is_missing_on_the_trail_is_missing_for_its_artifacts() {
    let attestations = [attestation("foo", true, on_artifact(), 2)];
    let expected = "INCOMPLETE bar=? cli:INCOMPLETE foo=true";
    check(&sample(), &[artifact("cli", 1)], &attestations, expected);
}

#[test]
fn what_failed_outweighs_what_is_missing() {
    let attestations = [attestation("foo", false, on_artifact(), 2)];
    let expected = "NON-COMPLIANT bar=? cli:NON-COMPLIANT foo=false";
    check(&sample(), &[artifact("cli", 1)], &attestations, expected);
}

#[test]
fn an_unexpected_attestation_that_failed_counts() {
    let attestations = [attestation("scan", false, on_artifact(), 2)];
    let expected = "NON-COMPLIANT +cli:NON-COMPLIANT +scan=false";
    check(&Template::default(), &[artifact("cli", 1)], &attestations, expected);

    let attestations = [attestation("scan", false, Binding::Trail, 2)];
    let expected = "NON-COMPLIANT +scan=false +cli:NON-COMPLIANT";
    check(&Template::default(), &[artifact("cli", 1)], &attestations, expected);
}

#[test]
fn the_newest_of_a_name_decides_whatever_its_time() {
    let mut late = attestation("scan", false, Binding::Trail, 1);
    late.at = time_of(100);
    let attestations = [late, attestation("scan", true, Binding::Trail, 2)];
    check(&Template::default(), &[], &attestations, "COMPLIANT +scan=true");
}

#[test]
fn an_override_replaces_the_verdict_and_names_both() {
    let failed = attestation("bar", false, Binding::Trail, 1);
    let passed = overriding(attestation("bar", true, Binding::Trail, 2));
    let template = template("trail: {attestations: [{name: bar, type: generic}]}");
    let status = evaluate(&template, BEGUN, &[], &[failed, passed]);
    assert_eq!(line(&status), "COMPLIANT bar=true");
    assert_eq!(ids(&status), (Some("attestation-1"), Some("attestation-2")));
}

fn ids(status: &TrailStatus) -> (Option<&str>, Option<&str>) {
    let [attestation] = status.attestations.as_slice() else {
        panic!("one attestation: {status:?}");
    };
    (attestation.attestation_id.as_deref(), attestation.override_id.as_deref())
}

#[test]
fn the_last_word_has_the_newest_override_until_a_new_report() {
    let on_trail = |verdict, index| attestation("a", verdict, Binding::Trail, index);
    let overrides = [
        on_trail(true, 1),
        on_trail(true, 2),
        overriding(on_trail(true, 3)),
        overriding(on_trail(false, 4)),
        on_trail(true, 5),
    ];
    let upto = |count: usize| evaluate(&Template::default(), BEGUN, &[], &overrides[..count]);
    assert_eq!(ids(&upto(3)), (Some("attestation-2"), Some("attestation-3")));
    assert_eq!(ids(&upto(4)), (Some("attestation-2"), Some("attestation-4")));
    assert_eq!(line(&upto(4)), "NON-COMPLIANT +a=false");
    assert_eq!(ids(&upto(5)), (Some("attestation-5"), None));
    assert_eq!(line(&upto(5)), "COMPLIANT +a=true");
}

#[test]
fn an_override_without_an_original_stands_for_it_whatever_the_type() {
    let template = template("trail: {attestations: [{name: a, type: junit}]}");
    let alone = overriding(attestation("a", true, Binding::Trail, 1));
    let status = evaluate(&template, BEGUN, &[], &[alone]);
    assert_eq!(line(&status), "COMPLIANT a=true");
    assert_eq!(ids(&status), (Some("attestation-1"), Some("attestation-1")));
}

#[test]
fn a_right_name_of_a_wrong_type_leaves_the_slot_missing() {
    let template = template("trail: {attestations: [{name: a, type: junit}]}");
    let right = typed("junit", attestation("a", true, Binding::Trail, 1));
    let wrong = attestation("a", true, Binding::Trail, 2);
    check(&template, &[], &[right, wrong], "INCOMPLETE a=? +a=true");
}

#[test]
fn a_slot_shows_the_reported_type_and_while_missing_its_own() {
    let template = template("trail: {attestations: [{name: a, type: decision}]}");
    let decision = typed("system:decision", attestation("a", true, Binding::Trail, 1));
    let kind = |reported: &[ReportedAttestation]| {
        evaluate(&template, BEGUN, &[], reported).attestations[0].kind.clone()
    };
    assert_eq!(kind(&[]), "decision");
    assert_eq!(kind(&[decision]), "system:decision");
}

#[test]
fn unexpected_attestations_follow_in_the_order_reported() {
    let template = template("trail: {attestations: [{name: z, type: '*'}]}");
    let attestations = [
        attestation("y", true, Binding::Trail, 1),
        attestation("x", true, Binding::Trail, 2),
        attestation("y", true, Binding::Trail, 3),
        attestation("z", true, Binding::Trail, 4),
    ];
    check(&template, &[], &attestations, "COMPLIANT z=true +y=true +x=true");
}

#[test]
fn an_attestation_by_name_and_commit_waits_for_its_artifact() {
    let waiting =
        [attestation("foo", true, named("cli", COMMIT), 1), attestation("bar", true, Binding::Trail, 2)];
    let before = "INCOMPLETE bar=true cli:MISSING foo=true";
    check(&sample(), &[], &waiting, before);
    let after = "COMPLIANT bar=true cli:COMPLIANT foo=true";
    check(&sample(), &[artifact("cli", 3)], &waiting, after);
}

#[test]
fn an_attestation_of_another_commit_never_joins_and_still_counts() {
    for (commit, built_from, content) in [
        ("c2", COMMIT, "cli:INCOMPLETE foo=?"),
        // It is unknown whether these refer to one another.
        ("", "", "cli:NON-COMPLIANT foo=false"),
    ] {
        let astray = [attestation("foo", false, named("cli", commit), 1)];
        let cli = ReportedArtifact { commit: built_from.to_owned(), ..artifact("cli", 2) };
        let expected = format!("NON-COMPLIANT bar=? {content} +cli@{commit}:MISSING +foo=false");
        check(&sample(), &[cli], &astray, &expected);
    }
}

#[test]
fn what_waits_for_an_artifact_that_nothing_asks_for_is_listed_and_counts() {
    let waiting = |verdict| [attestation("scan", verdict, named("cli", COMMIT), 1)];
    let empty = Template::default();
    check(&empty, &[], &waiting(false), "NON-COMPLIANT +cli:MISSING +scan=false");
    check(&empty, &[], &waiting(true), "COMPLIANT +cli:MISSING +scan=true");
    check(&empty, &[artifact("cli", 2)], &waiting(false), "NON-COMPLIANT +cli:NON-COMPLIANT +scan=false");
    let nobodys = [attestation("scan", false, on_artifact(), 1)];
    check(&empty, &[], &nobodys, "NON-COMPLIANT +f1:MISSING +scan=false");
}

#[test]
fn each_commit_that_is_waited_for_is_a_scope_of_its_own_and_the_newest_has_the_slot() {
    let waiting = |first: &str, second: &str| {
        [
            attestation("bar", true, Binding::Trail, 1),
            attestation("foo", false, named("cli", first), 2),
            attestation("foo", true, named("cli", second), 3),
        ]
    };
    let apart = "NON-COMPLIANT bar=true cli:MISSING foo=true +cli@c1:MISSING +foo=false";
    check(&sample(), &[], &waiting("c1", "c2"), apart);
    check(&sample(), &[], &waiting("c1", "c1"), "INCOMPLETE bar=true cli:MISSING foo=true");
}

#[test]
fn the_case_of_a_commit_makes_no_difference_where_it_is_a_hash_in_full() {
    for (commit, other, is_same) in [
        ("ab".repeat(20), "AB".repeat(20), true),
        ("aB".repeat(32), "Ab".repeat(32), true),
        ("ab".repeat(20), "AC".repeat(20), false),
        ("ab".repeat(19), "AB".repeat(19), false),
        ("xb".repeat(20), "XB".repeat(20), false),
    ] {
        let cli = ReportedArtifact { commit: other.clone(), ..artifact("cli", 3) };
        let failed = [attestation("foo", false, named("cli", &commit), 2)];
        let (of_cli, waiting) = if is_same {
            ("NON-COMPLIANT foo=false", String::new())
        } else {
            ("INCOMPLETE foo=?", format!(" +cli@{commit}:MISSING +foo=false"))
        };
        let expected = format!("NON-COMPLIANT bar=? cli:{of_cli}{waiting}");
        check(&sample(), &[cli], &failed, &expected);
        // A waiting attestation is listed with the commit as it was sent.
        let waiting = [failed[0].clone(), attestation("foo", true, named("cli", &other), 4)];
        let expected = if is_same { String::new() } else { format!(" +cli@{commit}:MISSING +foo=false") };
        let state = if is_same { "INCOMPLETE" } else { "NON-COMPLIANT" };
        check(&sample(), &[], &waiting, &format!("{state} bar=? cli:MISSING foo=true{expected}"));
    }
}

#[test]
fn a_later_artifact_of_the_name_replaces_the_earlier_one() {
    let earlier = artifact("cli", 1);
    let later = ReportedArtifact { fingerprint: "f2".to_owned(), ..artifact("cli", 3) };
    let failed = [attestation("foo", false, on_artifact(), 2)];
    let artifacts = [earlier.clone(), later];
    let expected = "INCOMPLETE bar=? cli:INCOMPLETE foo=?";
    check(&sample(), &artifacts, &failed, expected);

    let asked = evaluate_artifact(&sample(), &earlier, &artifacts, &failed);
    assert_eq!(asked.state, ArtifactState::Reported(State::NonCompliant));
    assert_eq!(asked.artifact_id.as_deref(), Some("artifact-1"));
}

#[test]
fn the_same_content_reported_again_stays_what_was_said_of_it() {
    let failed = [attestation("scan", false, named("cli", COMMIT), 2)];
    let bare = |index| ReportedArtifact { commit: String::new(), ..artifact("cli", index) };
    let other =
        ReportedArtifact { fingerprint: "f2".to_owned(), commit: String::new(), ..artifact("cli", 3) };
    let listed = "NON-COMPLIANT +cli:NON-COMPLIANT +scan=false";
    check(&Template::default(), &[artifact("cli", 1), bare(3)], &failed, listed);
    // The failed attestation may refer to other content without a commit.
    check(&Template::default(), &[artifact("cli", 1), other.clone()], &failed, listed);
    check(&Template::default(), &[artifact("cli", 1), other, bare(4)], &failed, listed);
}

#[test]
fn content_that_stands_under_any_name_stays_what_was_said_of_it() {
    let template = template("trail: {artifacts: [{name: cli, attestations: [{name: scan, type: generic}]}]}");
    let other = |fingerprint: &str, name: &str, commit: &str, index| ReportedArtifact {
        fingerprint: fingerprint.to_owned(),
        commit: commit.to_owned(),
        ..artifact(name, index)
    };
    let said = [
        attestation("scan", false, named("cli", COMMIT), 2),
        attestation("scan", true, named("cli", "c2"), 5),
    ];
    for commit in [COMMIT, ""] {
        let mut artifacts =
            vec![artifact("cli", 1), other("f1", "other", commit, 3), other("f2", "cli", "c2", 4)];
        let listed = "NON-COMPLIANT cli:COMPLIANT scan=true +other:NON-COMPLIANT scan=false";
        check(&template, &artifacts, &said, listed);
        // It no longer counts once the content is replaced in every slot.
        artifacts.push(other("f3", "other", "c3", 6));
        check(&template, &artifacts, &said, "COMPLIANT cli:COMPLIANT scan=true +other:COMPLIANT");
    }
}

#[test]
fn artifacts_without_a_name_are_listed_by_content() {
    let other = ReportedArtifact { fingerprint: "f0".to_owned(), ..artifact("", 2) };
    let artifacts = [artifact("", 1), other, artifact("", 3)];
    let expected = "COMPLIANT +f1:COMPLIANT +f0:COMPLIANT";
    check(&Template::default(), &artifacts, &[], expected);
}

#[test]
fn an_evaluation_is_as_old_as_the_newest_report_that_bears_on_it() {
    let attestations =
        [attestation("bar", true, Binding::Trail, 2), attestation("foo", true, on_artifact(), 3)];
    let artifacts =
        [artifact("cli", 1), ReportedArtifact { fingerprint: "f2".to_owned(), ..artifact("other", 4) }];
    let status = evaluate(&sample(), BEGUN, &artifacts, &attestations);
    assert_eq!(status.evaluated_at, time_of(4));
    assert_eq!(status.artifacts[0].evaluated_at, time_of(3));
    assert_eq!(status.artifacts[1].evaluated_at, time_of(4));
    assert_eq!(evaluate(&sample(), BEGUN, &[], &[]).evaluated_at, BEGUN);
    let missing = &evaluate(&sample(), BEGUN, &[], &attestations).artifacts[0];
    assert_eq!(missing.evaluated_at, time_of(2));
}

#[test]
fn an_artifact_needs_what_its_slot_and_its_trail_expect() {
    assert_eq!(expected_names(&sample(), ["cli"]), ["foo", "bar"]);
    assert_eq!(expected_names(&sample(), ["other"]), ["bar"]);
    assert_eq!(expected_names(&sample(), ["other", "cli"]), ["foo", "bar"]);
    assert!(expected_names(&Template::default(), [""]).is_empty());
    let both = template(
        "trail: {attestations: [{name: a, type: '*'}],
                 artifacts: [{name: x, attestations: [{name: a, type: '*'}]}]}",
    );
    assert_eq!(expected_names(&both, ["x"]), ["a"]);
}

#[test]
fn states_read_back_as_they_are_written() {
    for state in [State::Compliant, State::NonCompliant, State::Incomplete] {
        assert_eq!(state.to_string().parse(), Ok(state));
    }
    for text in ["MISSING", "compliant", "", "NON_COMPLIANT"] {
        assert_eq!(text.parse::<State>(), Err(UnknownState), "{text}");
    }
}

#[test]
fn a_status_has_the_keys_of_the_api() {
    let attestations = [attestation("bar", false, Binding::Trail, 2)];
    let status = evaluate(&sample(), BEGUN, &[artifact("cli", 1)], &attestations);
    let bar = json!({
        "attestation_name": "bar",
        "attestation_type": "generic",
        "attestation_id": "attestation-2",
        "overridden_attestation_id": null,
        "status": "COMPLETE",
        "is_compliant": false,
        "unexpected": false,
    });
    let foo = json!({
        "attestation_name": "foo",
        "attestation_type": "generic",
        "attestation_id": null,
        "overridden_attestation_id": null,
        "status": "MISSING",
        "is_compliant": null,
        "unexpected": false,
    });
    let cli = json!({
        "artifact_fingerprint": FINGERPRINT,
        "artifact_id": "artifact-1",
        "status": "NON-COMPLIANT",
        "is_compliant": false,
        "attestations_statuses": [foo],
        "unexpected": false,
        "evaluated_at": time_of(2).seconds(),
    });
    let expected = json!({
        "status": "NON-COMPLIANT",
        "is_compliant": false,
        "evaluated_at": time_of(2).seconds(),
        "attestations_statuses": [bar],
        "artifacts_statuses": { "cli": cli },
    });
    assert_eq!(serde_json::to_value(status).expect("plain data"), expected);

    let missing = evaluate(&sample(), BEGUN, &[], &[]);
    let missing = serde_json::to_value(&missing.artifacts[0]).expect("plain data");
    assert_eq!(missing["status"], "MISSING");
    for key in ["artifact_fingerprint", "artifact_id", "is_compliant"] {
        assert_eq!(missing[key], Value::Null, "{key}");
    }
}

/// A name that looks like a fingerprint does not replace the content with that fingerprint.
#[test]
fn a_name_that_spells_a_fingerprint_hides_nothing() {
    let content = |fingerprint: &str| Binding::Artifact { fingerprint: fingerprint.to_owned() };
    let unnamed = ReportedArtifact { fingerprint: "f1".into(), ..artifact("", 1) };
    let spelled = ReportedArtifact { fingerprint: "f2".into(), ..artifact("f1", 3) };
    let artifacts = [unnamed, spelled];
    let failing = [attestation("scan", false, content("f1"), 2)];
    for template in [Template::default(), template("trail: {artifacts: [{name: f1}]}")] {
        let status = evaluate(&template, BEGUN, &artifacts, &failing);
        assert_eq!(status.state, State::NonCompliant);
        let names = Vec::from_iter(status.artifacts.iter().map(|artifact| artifact.name.as_str()));
        assert_eq!(BTreeSet::from_iter(names), BTreeSet::from(["f1", "sha256:f1"]));
    }
}

#[test]
fn a_trail_has_no_more_lines_than_its_limit_and_each_attestation_has_one() {
    let (named, about): (Vec<_>, Vec<_>) = (0..400)
        .map(|n| {
            let name = format!("a{n}");
            (artifact(&name, n), attestation(&name, n % 2 == 0, on_artifact(), 400 + n))
        })
        .unzip();
    let status = evaluate(&template("{}"), BEGUN, &named, &about);
    assert!(
        status
            .artifacts
            .iter()
            .all(|artifact| artifact.state == ArtifactState::Reported(State::NonCompliant))
    );
    let lines: Vec<_> = status.artifacts.iter().flat_map(|artifact| &artifact.attestations).collect();
    assert_eq!(lines.len(), MAX_LINES);
    let listed: BTreeSet<_> = lines.iter().filter_map(|line| line.attestation_id.as_deref()).collect();
    assert_eq!(listed.len(), 400);
    let last = status.artifacts.last().map(|artifact| artifact.attestations.len());
    assert_eq!(last, Some(0), "all of its lines are listed before");
    // A line that appears only after the limit is still listed once.
    let late = ReportedArtifact { fingerprint: "f2".to_owned(), ..artifact("z", 3_000) };
    let binding = Binding::Artifact { fingerprint: "f2".to_owned() };
    let (named, about) =
        ([named, vec![late]].concat(), [about, vec![attestation("z", false, binding, 3_001)]].concat());
    let status = evaluate(&template("{}"), BEGUN, &named, &about);
    let [.., late] = status.artifacts.as_slice() else { panic!("no artifacts") };
    assert_eq!((late.name.as_str(), late.attestations.len()), ("z", 1));
}

#[test]
fn what_is_asked_of_each_name_does_not_multiply_what_is_kept() {
    let names: Vec<_> = (0..800).map(|n| format!("a{n}")).collect();
    let asked =
        names.iter().map(|name| format!("{{name: {name}, attestations: [{{name: q, type: generic}}]}}"));
    let template = template(&format!("trail: {{artifacts: [{}]}}", asked.collect::<Vec<_>>().join(",")));
    let artifacts: Vec<_> = (0..).zip(&names).map(|(n, name)| artifact(name, n)).collect();
    let about: Vec<_> =
        (0..).zip(&names).map(|(n, name)| attestation(name, true, on_artifact(), 800 + n)).collect();
    let scopes = Scopes::new(&artifacts, &about, &NONE);
    let trail = ScopeStatus::new(&template.attestations, scopes.on_trail());
    let mut listing = Listing::default();
    let mut lines = 0;
    for artifact in &artifacts {
        let status = listing.of(&template, &trail, artifact, &scopes).unwrap();
        assert_eq!(status.state, ArtifactState::Reported(State::Incomplete));
        let missing = status.attestations.iter().filter(|line| line.status == Completeness::Missing).count();
        assert_eq!(missing, 1, "{}", status.name);
        lines += status.attestations.capacity();
    }
    let kept: usize = listing.known.iter().map(|known| known.own.lines.capacity()).sum();
    // A list of one has room for four elements; a list that grew has room for twice its length.
    let most = 2 * MAX_LINES + 4 * names.len();
    assert!(kept <= most && lines <= most, "{kept} {lines}");
}

/// Each case reports content by name, in order. Every function must return the same state for the first
/// content.
#[test]
fn content_needs_what_the_template_asks_of_every_name_that_the_trail_reported_it_by() {
    let template = template(
        "trail: {artifacts: [{name: app, attestations: [{name: unit, type: generic}]},
                             {name: lib, attestations: [{name: lint, type: generic}]}, {name: doc}]}",
    );
    let (f, g) = ("f1", "f2");
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], State, Option<&'a str>);
    let by_app = "It is evaluated as 'app' too, which an earlier report called it";
    let by_lib = "It is evaluated as 'lib' too, which an earlier report called it";
    let unknown = "The template expects no artifact named 'zz', so that it needs only what the trail needs";
    let unnamed =
        "It was reported without a template reference name, so that it needs only what the trail needs";
    let table: [Case<'_>; 14] = [
        (&[(f, "app")], &[], State::Incomplete, None),
        (&[(f, "app")], &["unit"], State::Compliant, None),
        (&[(f, "zz")], &[], State::Compliant, Some(unknown)),
        (&[(f, "")], &[], State::Compliant, Some(unnamed)),
        (&[(f, "doc")], &[], State::Compliant, None),
        // A report of the same content under another name lifts no requirement.
        (&[(f, "app"), (f, "zz")], &[], State::Incomplete, Some(by_app)),
        (&[(f, "app"), (f, "")], &[], State::Incomplete, Some(by_app)),
        (&[(f, "zz"), (f, "app")], &[], State::Incomplete, None),
        (&[(f, "app"), (f, "lib")], &["lint"], State::Incomplete, Some(by_app)),
        (&[(f, "lib"), (f, "app")], &["unit"], State::Incomplete, Some(by_lib)),
        (&[(f, "app"), (f, "lib")], &["lint", "unit"], State::Compliant, None),
        // A report of other content under that name lifts no requirement either.
        (&[(f, "app"), (g, "app")], &[], State::Incomplete, None),
        (&[(f, "app"), (g, "app"), (f, "zz")], &[], State::Incomplete, Some(by_app)),
        (&[(f, "app"), (g, "app"), (f, "zz")], &["unit"], State::Compliant, None),
    ];
    for (reports, attested, expected, info) in table {
        let report = |(index, (content, name)): (u64, &(&str, &str))| ReportedArtifact {
            fingerprint: (*content).to_owned(),
            ..artifact(name, index)
        };
        let artifacts = Vec::from_iter((0..).zip(reports).map(report));
        let attested =
            (50..).zip(attested).map(|(index, name)| attestation(name, true, on_artifact(), index));
        let attestations = Vec::from_iter(attested);
        let newest = artifacts.iter().rfind(|artifact| artifact.fingerprint == f).expect("a report of f1");
        let status = evaluate_artifact(&template, newest, &artifacts, &attestations);
        let found = (status.state, status.state_info.as_deref());
        assert_eq!(found, (ArtifactState::Reported(expected), info), "{reports:?}");
        let states = artifact_states(&template, &artifacts, &attestations, &NONE);
        assert_eq!(states[f], (expected, info.map(str::to_owned)), "{reports:?}");
        let wanted = BTreeSet::from([f]);
        let both = (&artifacts[..], &attestations[..]);
        let content = content_statuses(&template, both, &NONE, &wanted, usize::MAX, |_, _, _| ());
        assert_eq!(content[f].state, expected, "{reports:?}");
        let is_reason =
            |info: &&str| !info.starts_with("The template") && !info.starts_with("It was reported");
        assert_eq!(content[f].reason.as_deref(), info.filter(is_reason), "{reports:?}");
        let by_content = ContentIndex::new(&artifacts, attestations, &NONE).state(&template, f, &newest.name);
        assert_eq!(by_content, (expected, info.map(str::to_owned)), "{reports:?}");
    }
}

/// Returns the state of content, after checking that all functions agree on it.
fn content_state(
    template: &Template,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
    earlier: &EarlierNames,
) -> State {
    let newest = artifacts.iter().rfind(|artifact| artifact.fingerprint == FINGERPRINT).expect("a report");
    let status = super::evaluate_artifact(template, newest, artifacts, attestations, earlier);
    let ArtifactState::Reported(state) = status.state else { panic!("{:?}", status.state) };
    assert_eq!(artifact_states(template, artifacts, attestations, earlier)[FINGERPRINT].0, state);
    let trail = super::evaluate(template, BEGUN, artifacts, attestations, earlier);
    let listed = trail.artifacts.iter().find(|artifact| artifact.fingerprint.as_deref() == Some(FINGERPRINT));
    assert_eq!(listed.expect("a line").state, ArtifactState::Reported(state));
    let (wanted, both) = (BTreeSet::from([FINGERPRINT]), (artifacts, attestations));
    let content = content_statuses(template, both, earlier, &wanted, usize::MAX, |_, _, _| ());
    assert_eq!(content[FINGERPRINT].state, state);
    let by_content = ContentIndex::new(artifacts, attestations.to_vec(), earlier);
    assert_eq!(by_content.state(template, FINGERPRINT, &newest.name).0, state);
    state
}

#[test]
fn content_without_a_name_in_its_trail_has_all_those_that_it_was_given_before() {
    let given = |names: &[(&str, u64)]| {
        let names = names.iter().map(|(name, first)| ((*name).to_owned(), *first));
        EarlierNames::from([(FINGERPRINT.to_owned(), names.collect())])
    };
    let bar = attestation("bar", true, Binding::Trail, 30);
    let foo = |verdict, binding| vec![bar.clone(), attestation("foo", verdict, binding, 50)];
    let only = || vec![bar.clone()];
    /// The names under which the trail reported the content, each with its index; the earlier names; the
    /// attestations.
    type Case<'c> = (&'c [(&'c str, u64)], &'c [(&'c str, u64)], Vec<ReportedAttestation>, State);
    let table: [Case<'_>; 13] = [
        (&[("", 10)], &[("cli", 1)], only(), State::Incomplete),
        (&[("", 10)], &[("other", 1)], only(), State::Compliant),
        // All earlier names count, not only the last one.
        (&[("", 10)], &[("cli", 1), ("other", 5)], only(), State::Incomplete),
        (&[("", 10)], &[("cli", 5), ("other", 1)], only(), State::Incomplete),
        // Later names change nothing.
        (&[("", 10)], &[("other", 1), ("cli", 11)], only(), State::Compliant),
        (&[("", 10), ("", 12)], &[("other", 1), ("cli", 11)], only(), State::Incomplete),
        (&[("", 10), ("other", 12)], &[("cli", 1), ("other", 12)], only(), State::Incomplete),
        (&[("other", 10)], &[("cli", 1), ("other", 10)], only(), State::Compliant),
        (&[("other", 10), ("", 12)], &[("cli", 1), ("other", 10)], only(), State::Compliant),
        (&[("", 10)], &[("cli", 1)], foo(true, on_artifact()), State::Compliant),
        (&[("", 10)], &[("cli", 1)], foo(true, named("cli", COMMIT)), State::Compliant),
        (&[("", 10)], &[("cli", 1)], foo(false, named("cli", COMMIT)), State::NonCompliant),
        (&[("", 10)], &[("other", 1)], foo(false, named("cli", COMMIT)), State::Compliant),
    ];
    for (reported, before, attestations, expected) in table {
        let artifacts = Vec::from_iter(reported.iter().map(|(name, index)| artifact(name, *index)));
        let state = content_state(&sample(), &artifacts, &attestations, &given(before));
        assert_eq!(state, expected, "{reported:?} {before:?}");
    }
}

/// An attestation by name and commit may or may not refer to content that was reported under that name
/// without a commit.
#[test]
fn what_failed_by_a_name_counts_for_content_that_was_reported_by_it_without_a_commit() {
    let other = "e".repeat(40);
    let bare = || ReportedArtifact { commit: String::new(), ..artifact("cli", 10) };
    let bar = attestation("bar", true, Binding::Trail, 1);
    let own = |verdict, index| attestation("foo", verdict, on_artifact(), index);
    let by = |commit: &str, verdict, index| attestation("foo", verdict, named("cli", commit), index);
    let elsewhere = |index| attestation("foo", false, named("other", COMMIT), index);
    let table = [
        // A failure counts, and a pass does not.
        (vec![bare()], vec![by(COMMIT, false, 2)], State::NonCompliant),
        (vec![bare()], vec![by(COMMIT, true, 2)], State::Incomplete),
        (vec![bare()], vec![own(true, 20), by(COMMIT, true, 30)], State::Compliant),
        (vec![bare()], vec![own(true, 20), by(COMMIT, false, 30)], State::NonCompliant),
        // The newest report of a name decides, as it does with a commit.
        (vec![bare()], vec![by(COMMIT, false, 2), by(COMMIT, true, 3)], State::Incomplete),
        (vec![bare()], vec![by(COMMIT, false, 2), by(&other, true, 3)], State::NonCompliant),
        (vec![bare()], vec![by(COMMIT, false, 2), own(true, 20)], State::Compliant),
        (vec![bare()], vec![own(true, 20), elsewhere(30)], State::Compliant),
        // A later report does not remove the uncertainty of an earlier one.
        (
            vec![bare(), artifact("cli", 15)],
            vec![by(&other, false, 2), by(COMMIT, true, 3)],
            State::Compliant,
        ),
        (
            vec![bare(), artifact("cli", 15)],
            vec![by(COMMIT, true, 2), by(&other, false, 3)],
            State::NonCompliant,
        ),
        (vec![artifact("cli", 15)], vec![by(COMMIT, true, 2), by(&other, false, 3)], State::Compliant),
    ];
    for (artifacts, mut attestations, expected) in table {
        let case = format!("{artifacts:?} {attestations:?}");
        attestations.push(bar.clone());
        assert_eq!(content_state(&sample(), &artifacts, &attestations, &NONE), expected, "{case}");
    }
}
