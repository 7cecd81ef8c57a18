use std::collections::BTreeMap;
use std::slice::from_ref;

use serde_json::json;

use super::reported::{EvaluationInputs, Source};
use super::verdicts::Candidate;
use super::*;
use crate::environments::last_evaluation::EntryInForce;
use crate::id::Random;
use crate::ledger::Hash;
use crate::name::Fingerprint;
use crate::rules::compliance::State;
use crate::rules::policy::FlowContext;
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::{Annotation, DeploymentSource, PolicyOutcome, Provenance, RunningArtifact};
use crate::time::Timestamp;

/// Fills buffers with a small number, so that ids are predictable.
struct Numbered(u8);

impl Random for Numbered {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0);
    }
}

fn report(number: u8) -> Id {
    Id::new(Timestamp::from_seconds(0), &Numbered(number))
}

/// Returns the source of an artifact.
fn source(number: u8) -> DeploymentSource {
    DeploymentSource { report: report(number), flow: report(0), repo: None, committed_at: None }
}

fn fingerprint(digit: char) -> Fingerprint {
    digit.to_string().repeat(64).parse().expect("a fingerprint")
}

/// Returns artifact `digit` with one instance, from report 1, evaluated against a policy.
fn evaluated(digit: char, compliant: Option<bool>) -> EvaluatedArtifact {
    EvaluatedArtifact {
        key: ArtifactKey::from(&fingerprint(digit)),
        observed: ObservedArtifact {
            fingerprint: Some(fingerprint(digit)),
            name: "api".to_owned(),
            other_names: vec![],
            created: vec![10],
            context: JsonFields::default(),
        },
        found: Arc::new(ArtifactEvaluation {
            compliant,
            allowed: None,
            provenance: vec![from_report(1)],
            source: Some(source(1)),
            trails: vec![],
            judged_by: policies(&[(1, 1)]),
            violates: if compliant == Some(false) { vec![0] } else { vec![] },
            outcomes: vec![],
            inputs: None,
            not_evaluated: None,
            names: vec!["api".to_owned()],
            is_final: true,
        }),
    }
}

impl EvaluatedArtifact {
    fn found_mut(&mut self) -> &mut ArtifactEvaluation {
        Arc::make_mut(&mut self.found)
    }
}

/// Returns an artifact without a digest, evaluated against a policy.
fn undigested(name: &str, compliant: Option<bool>) -> EvaluatedArtifact {
    let mut seen = evaluated('a', compliant);
    seen.found_mut().provenance.clear();
    EvaluatedArtifact {
        key: ArtifactKey::new(None, name),
        observed: ObservedArtifact { fingerprint: None, name: name.to_owned(), ..seen.observed },
        ..seen
    }
}

fn context(value: &serde_json::Value) -> JsonFields {
    serde_json::from_str(&value.to_string()).unwrap()
}

/// Returns the digest of these policies at these versions.
fn policies(applied: &[(u8, u64)]) -> Option<Hash> {
    let applied =
        applied.iter().map(|(policy, version)| AppliedPolicy { policy: report(*policy), version: *version });
    AppliedPolicy::digest(&Vec::from_iter(applied))
}

/// Returns the results of the first policy's rules.
fn outcome(rules: &str) -> PolicyOutcome {
    PolicyOutcome { policy: 0, rules: rules.into(), unknown: Vec::new() }
}

/// Returns a compliant report.
fn from_report(number: u8) -> Provenance {
    Provenance {
        artifact: report(number),
        state: State::Compliant,
        reason: None,
        flow: Some(report(0)),
        reference: String::new(),
    }
}

/// Returns what runs after these were evaluated in snapshot 1.
fn open(evaluated: &[EvaluatedArtifact]) -> BTreeMap<ArtifactKey, RunningArtifact> {
    let first = difference(&BTreeMap::new(), evaluated, 1);
    first.changes.into_iter().map(|instance| (instance.key(), instance)).collect()
}

fn with(mut artifact: EvaluatedArtifact, change: impl FnOnce(&mut EvaluatedArtifact)) -> EvaluatedArtifact {
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
        let found = difference(&BTreeMap::new(), &[evaluated('a', compliant)], 1);
        let annotations: Vec<_> = found.changes.iter().map(|change| change.annotation.clone()).collect();
        assert_eq!(annotations, [Annotation { kind: kind.to_owned(), was: 0, now: 1 }]);
        assert!(found.has_events && found.exits.is_empty());
    }
}

#[test]
fn the_same_fingerprints_take_a_snapshot_only_for_provenance_and_verdicts() {
    let yes = || evaluated('a', Some(true));
    let named = |name: &str, others: &[&str]| {
        with(yes(), |now| {
            now.observed.name = name.to_owned();
            now.observed.other_names = others.iter().map(|other| (*other).to_owned()).collect();
        })
    };
    let table: Vec<(&str, EvaluatedArtifact, EvaluatedArtifact, Option<&str>, bool)> = vec![
        ("nothing", yes(), yes(), None, false),
        ("counts", yes(), with(yes(), |now| now.observed.created = vec![10, 11]), Some("unchanged"), false),
        ("times", yes(), with(yes(), |now| now.observed.created = vec![11]), Some("unchanged"), false),
        ("names", yes(), with(yes(), |now| now.observed.name = "web".to_owned()), Some("unchanged"), false),
        ("a name more", yes(), named("api", &["web"]), Some("changed"), true),
        ("a name more, first", yes(), named("app", &["api"]), Some("changed"), true),
        ("a name for another of two", named("api", &["web"]), named("api", &["app"]), Some("changed"), true),
        ("other names for two", named("api", &["web"]), named("app", &[]), Some("changed"), true),
        ("a name less", named("api", &["web"]), named("web", &[]), Some("unchanged"), false),
        ("another order of names", named("api", &["web"]), named("web", &["api"]), Some("unchanged"), false),
        (
            "context",
            yes(),
            with(yes(), |now| now.observed.context = context(&json!({"pods": {"api-1": {}}}))),
            Some("unchanged"),
            false,
        ),
        ("verdict lost", yes(), evaluated('a', Some(false)), Some("became-non-compliant"), true),
        ("verdict gained", evaluated('a', Some(false)), yes(), Some("became-compliant"), true),
        ("first verdict", evaluated('a', None), yes(), Some("became-compliant"), true),
        ("no verdict any more", yes(), evaluated('a', None), Some("changed"), true),
        (
            "another report",
            yes(),
            with(yes(), |now| now.found_mut().provenance[0].artifact = report(2)),
            Some("updated-provenance"),
            true,
        ),
        (
            "a report in another flow too",
            yes(),
            with(yes(), |now| {
                now.found_mut().provenance.push(from_report(2));
            }),
            Some("updated-provenance"),
            true,
        ),
        (
            "state in the trail",
            yes(),
            with(yes(), |now| now.found_mut().provenance[0].state = State::Incomplete),
            Some("updated-provenance"),
            true,
        ),
        (
            "a new version",
            yes(),
            with(yes(), |now| now.found_mut().judged_by = policies(&[(1, 2)])),
            Some("changed"),
            true,
        ),
        (
            "another policy",
            yes(),
            with(yes(), |now| now.found_mut().judged_by = policies(&[(2, 1)])),
            Some("changed"),
            true,
        ),
        (
            "one policy more",
            yes(),
            with(yes(), |now| now.found_mut().judged_by = policies(&[(1, 1), (2, 1)])),
            Some("changed"),
            true,
        ),
        (
            "no policy any more",
            yes(),
            with(yes(), |now| now.found_mut().judged_by = None),
            Some("changed"),
            true,
        ),
        (
            "another policy is violated",
            evaluated('a', Some(false)),
            with(evaluated('a', Some(false)), |now| now.found_mut().violates = vec![1]),
            Some("changed"),
            true,
        ),
        (
            "a rule says something else",
            yes(),
            with(yes(), |now| now.found_mut().outcomes = vec![outcome("--+")]),
            Some("changed"),
            true,
        ),
        (
            "inputs of which nothing else comes",
            yes(),
            with(yes(), |now| now.found_mut().inputs = policies(&[(2, 2)])),
            None,
            false,
        ),
        (
            "verdict and report",
            yes(),
            with(evaluated('a', Some(false)), |now| now.found_mut().provenance[0].artifact = report(2)),
            Some("became-non-compliant"),
            true,
        ),
    ];
    for (what, before, now, kind, has_events) in table {
        let found = difference(&open(&[before]), &[now], 2);
        assert_eq!(found.has_events, has_events, "{what}");
        let kinds: Vec<_> = found.changes.iter().map(|change| change.annotation.kind.as_str()).collect();
        assert_eq!(kinds, Vec::from_iter(kind), "{what}");
        assert!(found.changes.iter().all(|change| change.from == 2), "{what}");
    }
}

#[test]
fn what_is_gone_exits_and_what_stays_the_same_is_not_written_again() {
    let before = open(&[evaluated('a', None), evaluated('b', None)]);
    let found = difference(&before, &[evaluated('b', None), evaluated('c', None)], 2);
    assert_eq!(found.exits, [ArtifactKey::from(&fingerprint('a'))]);
    let changed: Vec<_> = found.changes.iter().map(|change| change.fingerprint.clone()).collect();
    assert_eq!(changed, [Some(fingerprint('c'))]);
    assert!(found.has_events);
}

#[test]
fn counts_are_noted_when_a_snapshot_is_taken_for_another_reason() {
    let before = open(&[evaluated('a', None)]);
    let scaled = with(evaluated('a', None), |now| now.observed.created = vec![10, 11, 12]);
    let found = difference(&before, &[scaled, evaluated('b', None)], 2);
    let noted = found.changes.iter().find(|change| change.fingerprint == Some(fingerprint('a')));
    let annotation = noted.map(|change| change.annotation.clone());
    assert_eq!(annotation, Some(Annotation { kind: "unchanged".to_owned(), was: 1, now: 3 }));
}

/// The name of the case; the artifact before, the artifacts now; exits, annotations, and whether a snapshot
/// is required.
type Case<'a> = (&'a str, EvaluatedArtifact, Vec<EvaluatedArtifact>, Vec<ArtifactKey>, &'a [&'a str], bool);

#[test]
fn what_has_no_digest_is_the_same_while_its_name_is() {
    let task = || undigested("task", None);
    let renamed = vec![undigested("job", None)];
    let table: Vec<Case<'_>> = vec![
        ("nothing", task(), vec![task()], vec![], &[], false),
        (
            "context",
            task(),
            vec![with(task(), |now| {
                now.observed.context = context(&json!({"ecs_context": {"task_arn": "2"}}));
            })],
            vec![],
            &["unchanged"],
            false,
        ),
        ("verdict", task(), vec![undigested("task", Some(false))], vec![], &["became-non-compliant"], true),
        ("name", task(), renamed, vec![task().key], &["started-unknown"], true),
    ];
    for (what, before, now, exits, kinds, has_events) in table {
        let found = difference(&open(&[before]), &now, 2);
        assert_eq!(found.exits, exits, "{what}");
        let annotated: Vec<_> = found.changes.iter().map(|change| change.annotation.kind.as_str()).collect();
        assert_eq!(annotated, kinds, "{what}");
        assert_eq!(found.has_events, has_events, "{what}");
    }
}

#[test]
fn a_digest_makes_another_artifact_of_what_had_none_whatever_its_name() {
    let bare = undigested("api", None);
    let digested = evaluated('a', None);
    let found = difference(&open(from_ref(&bare)), from_ref(&digested), 2);
    assert_eq!(found.exits, from_ref(&bare.key));
    assert_eq!(found.changes.len(), 1);
    assert!(found.has_events);

    let both = difference(&open(from_ref(&digested)), &[digested, bare.clone()], 2);
    assert_eq!(both.exits, []);
    let started: Vec<_> = both.changes.iter().map(RunningArtifact::key).collect();
    assert_eq!(started, [bare.key]);
}

#[test]
fn what_has_no_digest_has_no_provenance_and_is_on_no_allowlist() {
    let yaml =
        "_schema: https://example.com/schemas/policy/v1\nartifacts:\n  provenance:\n    required: true\n";
    let rules = [Arc::new(policy::Policy::stored(yaml))];
    let known = fingerprint('a');
    let flow = FlowContext {
        flow_name: "web".to_owned(),
        condition_names: Arc::default(),
        trail_name: String::new(),
        artifact_state: State::Compliant,
        reason: None,
        tags: Arc::default(),
        attestations: Arc::default(),
    };
    let reported = |context| {
        let (reference, flow) = (String::new(), Hash::of("web"));
        Source { report: source(1), trail: None, reference, flow, context, is_final: true }
    };
    let running = |artifact: EvaluatedArtifact| ReportedState::from([(artifact.key, artifact.observed)]);
    let findings = |allowed: bool| EvaluationInputs {
        allowed: allowed
            .then(|| (known.clone(), EntryInForce { index: 1, expires_at: None }))
            .into_iter()
            .collect(),
        sources: [(known.clone(), vec![reported(flow.clone())])].into(),
    };
    // Its name is the text of a fingerprint that has provenance.
    let disguised = || running(undigested(known.as_str(), None));
    let table = [
        (running(evaluated('a', None)), false, Some(true), 1),
        (disguised(), false, Some(false), 0),
        (disguised(), true, Some(false), 0),
    ];
    for (running, allowed, compliant, origins) in table {
        let evaluated = |mut artifact: Candidate| {
            artifact.evaluate(&rules);
            artifact.evaluated(policies(&[(9, 1)]))
        };
        let found = Candidate::all(&running, findings(allowed)).into_iter().map(evaluated);
        let found: Vec<_> =
            found.map(|(_, evaluated)| (evaluated.compliant, evaluated.provenance.len())).collect();
        assert_eq!(found, [(compliant, origins)], "{running:?}, allowed: {allowed}");
    }
}
