use proptest::prelude::*;
use serde_json::json;

use super::*;

const FULL: &str = r#"
_schema: https://example.com/schemas/policy/v1
artifacts:
  provenance:
    required: true
    exceptions:
      - if: ${{ matches(artifact.name, "^datadog:.*") }}
      - {}
  trail-compliance:
    required: true
  attestations:
    - if: ${{ flow.tags.kind == "build" }}
      type: pull-request
    - {name: approval, type: decision, must_be_compliant: false, for_control: C-1}
    - {name: scan, type: "*"}
"#;

fn with(artifacts: &str) -> String {
    format!("_schema: https://example.com/v1\nartifacts: {artifacts}")
}

fn parse(yaml: &str) -> Policy {
    Policy::parse(yaml).unwrap_or_else(|errors| panic!("{yaml}\n{errors}"))
}

fn problems(yaml: &str) -> Vec<String> {
    match Policy::parse(yaml) {
        Ok(policy) => panic!("{yaml}\nwas read as {policy:?}"),
        Err(errors) => errors.problems().iter().map(|(path, text)| format!("{path}: {text}")).collect(),
    }
}

#[test]
fn a_policy_is_dumped_as_snapshots_show_it() {
    let matching = r#"matches(artifact.name, "^datadog:.*")"#;
    assert_eq!(
        json!(PolicyDump::from(&parse(FULL))),
        json!({
            "schema_version": "1",
            "artifacts": {
                "provenance": {
                    "required": true,
                    "exceptions": [
                        { "if_condition": { "text": matching } },
                        { "if_condition": null },
                    ],
                },
                "trail_compliance": { "required": true, "exceptions": [] },
                "attestations": [
                    {
                        "if_condition": { "text": r#"flow.tags.kind == "build""# },
                        "name": "*",
                        "type": "pull_request",
                        "must_be_compliant": true,
                        "for_control": null,
                    },
                    {
                        "if_condition": null,
                        "name": "approval",
                        "type": "decision",
                        "must_be_compliant": false,
                        "for_control": "C-1",
                    },
                    {
                        "if_condition": null,
                        "name": "scan",
                        "type": "*",
                        "must_be_compliant": true,
                        "for_control": null,
                    },
                ],
            },
        })
    );
}

#[test]
fn the_smallest_policy_names_its_schema_and_has_no_rules() {
    for uri in [
        "https://example.com/schemas/policy/v1",
        "https://example.com/schemas/policy/environment/v1",
        "https://example.com/v1?raw=true#top",
    ] {
        assert_eq!(parse(&format!("_schema: {uri}")), Policy::default());
    }
    assert_eq!(parse(&with("{}")), Policy::default());
}

#[test]
fn a_schema_of_another_version_or_none_is_refused() {
    for uri in [
        "https://example.com/schemas/policy/v2",
        "https://example.com/schemas/policy/v11",
        "https://example.com/schemas/policy/v1/",
        "https://example.com/schemas/policy",
        "https://example.com/?x=/v1",
        "policy/v1",
        "v1",
    ] {
        let expected = format!(
            "_schema: Input should be a URL whose path ends in '/v1', the only version \
             [input: {uri}]"
        );
        assert_eq!(problems(&format!("_schema: {uri}")), [expected]);
    }
    assert_eq!(problems("artifacts: {}"), ["_schema: Field required [input: None]"]);
    assert_eq!(problems("_schema: 1"), ["_schema: Input should be a valid string [input: 1]"]);
}

#[test]
fn mistakes_are_named_with_their_place() {
    let table = [
        ("null", "artifacts: Input should be a valid dictionary [input: None]"),
        ("{trail_compliance: {}}", "artifacts.trail_compliance: Extra inputs are not permitted [input: {}]"),
        ("{provenance: true}", "artifacts.provenance: Input should be a valid dictionary [input: True]"),
        (
            "{provenance: {required: yes}}",
            "artifacts.provenance.required: Input should be a valid boolean [input: yes]",
        ),
        (
            "{provenance: {needed: true}}",
            "artifacts.provenance.needed: Extra inputs are not permitted [input: True]",
        ),
        (
            "{provenance: {exceptions: {}}}",
            "artifacts.provenance.exceptions: Input should be a valid list [input: {}]",
        ),
        (
            "{provenance: {exceptions: [{when: x}]}}",
            "artifacts.provenance.exceptions[0].when: Extra inputs are not permitted [input: x]",
        ),
        (
            "{provenance: {exceptions: [{if: x}]}}",
            "artifacts.provenance.exceptions[0].if: Input should be an expression in '${{ }}' [input: x]",
        ),
        (
            "{provenance: {exceptions: [{if: '${{ }}'}]}}",
            "artifacts.provenance.exceptions[0].if: Input should be an expression in '${{ }}' [input: ${{ }}]",
        ),
        ("{attestations: [{name: a}]}", "artifacts.attestations[0].type: Field required [input: None]"),
        (
            "{attestations: [{name: null, type: junit}]}",
            "artifacts.attestations[0].name: Input should be a valid string [input: None]",
        ),
        (
            "{attestations: [{type: '*'}]}",
            "artifacts.attestations[0]: One of 'name' and 'type' should not be '*' [input: {'type': '*'}]",
        ),
        (
            "{attestations: [{type: junit, for_control: C}]}",
            "artifacts.attestations[0].for_control: Permitted for the type 'decision' only [input: C]",
        ),
        (
            "{attestations: [{type: junit, exceptions: []}]}",
            "artifacts.attestations[0].exceptions: Extra inputs are not permitted [input: []]",
        ),
        (
            "{attestations: [{type: junit, must_be_compliant: 1}]}",
            "artifacts.attestations[0].must_be_compliant: Input should be a valid boolean [input: 1]",
        ),
    ];
    for (artifacts, expected) in table {
        assert_eq!(problems(&with(artifacts)), [expected]);
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let errors = Policy::parse("{rules: [], artifacts: {provenance: 1, trail-compliance: 2}}");
    let text = errors.expect_err("no policy").to_string();
    assert!(text.starts_with("4 validation errors for Policy\n"), "{text}");
}

#[test]
fn rules_that_this_version_does_not_evaluate_are_named() {
    let table = [
        ("{provenance: {exceptions: [{}]}}", "artifacts.provenance.exceptions"),
        ("{trail-compliance: {exceptions: [{}]}}", "artifacts.trail-compliance.exceptions"),
        ("{attestations: [{type: junit}]}", "artifacts.attestations"),
    ];
    for (artifacts, expected) in table {
        let (path, reason) = parse(&with(artifacts)).unsupported().expect(artifacts);
        assert_eq!(path, expected);
        assert!(reason.contains("refuses to store"), "{reason}");
    }
    let simple = with("{provenance: {required: true, exceptions: []}, attestations: []}");
    assert_eq!(parse(&simple).unsupported(), None);
}

fn policy(provenance: bool, trail_compliance: bool) -> Policy {
    parse(&with(&format!(
        "{{provenance: {{required: {provenance}}}, trail-compliance: {{required: {trail_compliance}}}}}"
    )))
}

fn flow(name: &str, artifact_state: State) -> FlowContext {
    FlowContext {
        flow_name: name.to_owned(),
        trail_name: format!("{name}-7"),
        artifact_state,
        reason: None,
        tags: Arc::default(),
        attestations: Vec::new(),
    }
}

#[test]
fn a_policy_asks_for_provenance_and_for_compliance_in_every_flow() {
    use State::{Compliant, Incomplete, NonCompliant};
    let table: [(bool, bool, &[State], bool); 11] = [
        (false, false, &[], true),
        (false, false, &[NonCompliant], true),
        (true, false, &[], false),
        (true, false, &[NonCompliant], true),
        (false, true, &[], false),
        (false, true, &[Compliant], true),
        (false, true, &[NonCompliant], false),
        (false, true, &[Incomplete], false),
        (true, true, &[Compliant, Compliant], true),
        (true, true, &[Compliant, Incomplete], false),
        (true, true, &[], false),
    ];
    for (provenance, trail_compliance, states, expected) in table {
        let flows: Vec<_> = states.iter().map(|state| flow("f", *state)).collect();
        let evaluation = evaluate(&policy(provenance, trail_compliance), &flows);
        assert_eq!(evaluation.satisfied, expected, "{provenance} {trail_compliance} {states:?}");
        assert_eq!(evaluation.state().is_compliant(), expected);
    }
}

#[test]
fn each_rule_is_resolved_for_each_flow() {
    let flows = [flow("a", State::Compliant), flow("b", State::Incomplete)];
    let evaluation = evaluate(&policy(false, true), &flows);
    let context = |flow: &str, status: Option<&str>| json!({ "flow_name": flow, "trail_name": format!("{flow}-7"), "artifact_status": status });
    assert_eq!(
        serde_json::to_value(&evaluation.rules).expect("plain data"),
        json!([
            {
                "rule": {
                    "type": "provenance",
                    "definition": { "required": false, "exceptions": [] },
                },
                "satisfied": null,
                "ignored": true,
                "resolutions": [
                    { "type": "rule_not_applicable", "context": context("a", None) },
                    { "type": "rule_not_applicable", "context": context("b", None) },
                ],
            },
            {
                "rule": {
                    "type": "trail-compliance",
                    "definition": { "required": true, "exceptions": [] },
                },
                "satisfied": false,
                "ignored": false,
                "resolutions": [
                    { "type": "rule_satisfied", "context": context("a", Some("COMPLIANT")) },
                    { "type": "non_compliant_in_trail", "context": context("b", Some("INCOMPLETE")) },
                ],
            },
        ])
    );
}

#[test]
fn an_artifact_without_provenance_has_one_resolution_without_a_flow() {
    let evaluation = evaluate(&policy(true, true), &[]);
    let kinds: Vec<_> = evaluation
        .rules
        .iter()
        .flat_map(|rule| &rule.resolutions)
        .map(|resolution| (resolution.kind, resolution.context.clone()))
        .collect();
    let nowhere = ResolutionContext::default();
    assert_eq!(
        kinds,
        [(ResolutionKind::MissingProvenance, nowhere.clone()), (ResolutionKind::NoProvenance, nowhere),]
    );
}

#[test]
fn a_rule_that_cannot_be_evaluated_is_not_satisfied() {
    let asking = parse(&with("{attestations: [{type: decision, for_control: C-1}]}"));
    let evaluation = evaluate(&asking, &[flow("a", State::Compliant)]);
    assert!(!evaluation.satisfied);
    let rules = serde_json::to_value(&evaluation.rules).expect("plain data");
    assert_eq!(
        rules[2]["rule"]["definition"],
        json!({
            "if": null,
            "name": "*",
            "type": "decision",
            "must_be_compliant": true,
            "for_control": "C-1",
        })
    );
    assert_eq!(rules[2]["resolutions"][0]["context"]["for_control"], "C-1");

    let waived = parse(&with("{provenance: {required: true, exceptions: [{if: '${{ exists(flow) }}'}]}}"));
    assert!(!evaluate(&waived, &[]).satisfied);
}

#[test]
fn an_artifact_may_run_if_it_is_allow_listed_or_every_policy_is_satisfied() {
    let satisfied = || evaluate(&policy(false, false), &[]).satisfied;
    let violated = || evaluate(&policy(true, false), &[]).satisfied;
    let table = [
        (false, vec![], None),
        (true, vec![], Some(true)),
        (true, vec![violated()], Some(true)),
        (false, vec![satisfied()], Some(true)),
        (false, vec![satisfied(), violated()], Some(false)),
    ];
    for (allow_listed, satisfied, expected) in table {
        assert_eq!(artifact_verdict(allow_listed, &satisfied), expected);
    }
}

#[test]
fn a_snapshot_needs_policies_and_only_compliant_artifacts() {
    let table: [(&[Option<bool>], bool, bool); 6] = [
        (&[], true, true),
        (&[], false, false),
        (&[Some(true), Some(true)], true, true),
        (&[Some(true), Some(false)], true, false),
        (&[Some(true), None], true, false),
        (&[Some(true)], false, false),
    ];
    for (verdicts, has_policies, expected) in table {
        let compliant = snapshot_compliant(verdicts.iter().copied(), has_policies);
        assert_eq!(compliant, expected, "{verdicts:?} {has_policies}");
    }
}

#[test]
fn an_environment_has_no_state_without_policies_or_snapshots() {
    assert_eq!(environment_state(Some(true), true), Some(true));
    assert_eq!(environment_state(Some(false), true), Some(false));
    assert_eq!(environment_state(Some(false), false), None);
    assert_eq!(environment_state(None, true), None);
}

#[test]
fn a_logical_environment_is_as_good_as_its_members() {
    let table: [(&[Option<bool>], Option<bool>); 6] = [
        (&[], None),
        (&[None], None),
        (&[Some(true), Some(true)], Some(true)),
        (&[Some(true), None], None),
        (&[None, Some(false), Some(true)], Some(false)),
        (&[Some(true), None, Some(true)], None),
    ];
    for (members, expected) in table {
        let state = logical_environment_state(members.iter().copied());
        assert_eq!(state, expected, "{members:?}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[\\PC\n\t\0]{0,80}") {
        if let Err(errors) = Policy::parse(&text) {
            prop_assert!(!errors.problems().is_empty());
        }
    }
}

#[test]
fn nothing_complies_with_a_policy_that_cannot_be_read() {
    for broken in ["]", "artifacts: {}", "_schema: https://example.com/v2"] {
        let policy = Policy::stored(broken);
        for contexts in [vec![], vec![flow("web", State::Compliant)]] {
            let evaluation = evaluate(&policy, &contexts);
            assert_eq!(evaluation.state(), State::NonCompliant, "{broken}");
            let [rule] = evaluation.rules.as_slice() else { panic!("{evaluation:?}") };
            assert_eq!((rule.rule.kind, rule.satisfied), (RuleKind::Policy, Some(false)));
            let reason = rule.resolutions[0].context.reason.as_deref().unwrap_or_default();
            assert!(reason.starts_with("The policy cannot be read: ") && reason.len() > 30, "{reason}");
        }
    }
}

/// A policy of any sort, also of those that are not stored yet.
fn any_policy() -> impl Strategy<Value = Policy> {
    use proptest::{collection::vec, option::weighted, sample::select};
    let boolean = || {
        (any::<bool>(), 0..2_usize).prop_map(|(required, exceptions)| BooleanRule {
            required,
            exceptions: vec![ConditionalRule::default(); exceptions],
        })
    };
    let condition = weighted(0.2, Just(Condition { text: "true".to_owned() }));
    let kind = select(vec!["*", "generic", "decision"]);
    let control = weighted(0.2, Just("C-1".to_owned()));
    let rule = (condition, select(vec!["*", "a", "b"]), kind, any::<bool>(), control);
    let rule = rule.prop_map(|(condition, name, kind, must_be_compliant, for_control)| AttestationRule {
        condition,
        name: name.to_owned(),
        kind: kind.parse().unwrap(),
        must_be_compliant,
        for_control,
    });
    let unreadable = weighted(0.1, Just("The policy cannot be read: …".to_owned()));
    (boolean(), boolean(), vec(rule, 0..3), unreadable).prop_map(
        |(provenance, trail_compliance, attestations, unreadable)| Policy {
            provenance,
            trail_compliance,
            attestations,
            unreadable,
        },
    )
}

/// A flow where an artifact stands in any way.
fn any_context() -> impl Strategy<Value = FlowContext> {
    use proptest::{collection::vec, sample::select};
    let kind = select(vec!["generic", "system:decision", "junit"]);
    let attestation = (select(vec!["a", "b", "c"]), kind, any::<bool>());
    let attestation = attestation.prop_map(|(name, kind, is_compliant)| FlowAttestation {
        name: name.to_owned(),
        kind: kind.to_owned(),
        is_compliant,
    });
    let lists = vec(vec(attestation, 0..4).prop_map(Arc::from), 0..3);
    let state = select(vec![State::Compliant, State::Compliant, State::NonCompliant, State::Incomplete]);
    (state, lists).prop_map(|(state, attestations)| FlowContext { attestations, ..flow("web", state) })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_policy_is_satisfied_as_its_explanation_says(
        policy in any_policy(),
        contexts in proptest::collection::vec(any_context(), 0..3),
    ) {
        prop_assert_eq!(is_satisfied(&policy, &contexts), evaluate(&policy, &contexts).satisfied);
    }
}

proptest::proptest! {
    /// Whatever is stored: what can be read is evaluated as it always is, and nothing complies with the rest.
    #[test]
    fn a_stored_policy_is_read_or_demands_what_nothing_meets(yaml in "\\PC{0,40}") {
        let stored = Policy::stored(&yaml);
        let evaluation = evaluate(&stored, &[flow("web", State::Compliant)]);
        match Policy::parse(&yaml) {
            Ok(policy) => proptest::prop_assert_eq!(stored, policy),
            Err(_) => proptest::prop_assert!(!evaluation.satisfied),
        }
    }
}

#[test]
fn an_attestation_rule_looks_at_what_counts_for_the_artifact() {
    let rule = |text: &str| {
        let yaml =
            format!("_schema: https://example.com/v1\nartifacts:\n  attestations:\n    - {{{text}}}\n");
        Policy::parse(&yaml).unwrap_or_else(|errors| panic!("{errors}"))
    };
    let one = |name: &str, kind: &str, is_compliant| FlowAttestation {
        name: name.to_owned(),
        kind: kind.to_owned(),
        is_compliant,
    };
    let given = [one("unit", "junit", false), one("scan", "generic", true), one("smoke", "generic", false)];
    let table = [
        ("name: unit, type: junit", ResolutionKind::NonCompliantAttestation),
        ("name: unit, type: junit, must_be_compliant: false", ResolutionKind::RuleSatisfied),
        ("name: unit, type: generic", ResolutionKind::MissingAttestation),
        ("name: other, type: junit", ResolutionKind::MissingAttestation),
        ("name: scan, type: \"*\"", ResolutionKind::RuleSatisfied),
        ("name: \"*\", type: generic", ResolutionKind::RuleSatisfied),
        ("name: \"*\", type: snyk", ResolutionKind::MissingAttestation),
        ("name: scan, type: generic, if: \"${{ true }}\"", ResolutionKind::MissingAttestation),
    ];
    for (text, expected) in table {
        let context =
            FlowContext { attestations: vec![Arc::from(given.clone())], ..flow("web", State::Compliant) };
        let evaluation = evaluate(&rule(text), &[context]);
        assert_eq!(evaluation.rules[2].resolutions[0].kind, expected, "{text}");
        assert_eq!(evaluation.satisfied, expected == ResolutionKind::RuleSatisfied, "{text}");
    }
}
