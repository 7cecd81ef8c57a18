mod truth_table;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::compliance::State;

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
            "{provenance: {required: maybe}}",
            "artifacts.provenance.required: Input should be a valid boolean [input: maybe]",
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
fn booleans_are_those_of_yaml_1_1_too() {
    for (word, required) in [("yes", true), ("On", true), ("TRUE", true), ("no", false), ("OFF", false)] {
        let policy = parse(&with(&format!(
            "{{provenance: {{required: {word}}}, attestations: [{{type: junit, name: on, must_be_compliant: {word}}}]}}"
        )));
        assert_eq!(policy.provenance.required, required, "{word}");
        assert_eq!(policy.attestations[0].must_be_compliant, required, "{word}");
        assert_eq!(policy.attestations[0].name, "on");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let errors = Policy::parse("{rules: [], artifacts: {provenance: 1, trail-compliance: 2}}");
    let text = errors.expect_err("no policy").to_string();
    assert!(text.starts_with("4 validation errors for Policy\n"), "{text}");
}

#[test]
fn an_expression_is_checked_with_the_policy() {
    let table = [
        (
            "{provenance: {exceptions: [{if: '${{ flow.name }}'}]}}",
            "artifacts.provenance.exceptions[0].if: Expected what is true or false, as a comparison is (at character 1 \
             of the expression) [input: ${{ flow.name }}]",
        ),
        (
            "{attestations: [{type: junit}, {type: snyk, if: '${{ flow.name == }}'}]}",
            "artifacts.attestations[1].if: Expected a text, a number, a list, 'flow', 'artifact', 'exists' or \
             'matches', found the end (at character 13 of the expression) [input: ${{ flow.name == }}]",
        ),
        (
            "{attestations: [{type: snyk, if: '${{ true }} or ${{ true }}'}]}",
            "artifacts.attestations[0].if: Unexpected character '}' (at character 6 of the expression) \
             [input: ${{ true }} or ${{ true }}]",
        ),
    ];
    for (artifacts, expected) in table {
        assert_eq!(problems(&with(artifacts)), [expected]);
    }
}

#[test]
fn a_policy_has_a_bounded_number_of_rules_and_parts() {
    let rules = |count: usize| {
        let rules = vec!["{type: junit}"; count].join(", ");
        with(&format!("{{attestations: [{rules}]}}"))
    };
    assert_eq!(parse(&rules(1000)).attestations.len(), 1000);
    let expected = "artifacts.attestations: List should have at most 1000 items [input: 1001]";
    assert_eq!(problems(&rules(1001)), [expected]);
    let exceptions = |exception: &str, count: usize| {
        let exceptions = vec![exception; count].join(", ");
        with(&format!("{{provenance: {{exceptions: [{exceptions}]}}}}"))
    };
    let condition = "{if: '${{ flow.name in [1, 2, 3, 4, 5, 6, 7, 8] }}'}";
    assert_eq!(parse(&exceptions(condition, 100)).parts(), 2 + 100 + 100 * 10);
    assert_eq!(parse(&exceptions("{}", 100)).parts(), 2 + 100);
    let expected = "artifacts.provenance.exceptions: List should have at most 100 items [input: 101]";
    assert_eq!(problems(&exceptions("{}", 101)), [expected]);
    let condition = format!("{{if: '${{{{ flow.name in [{}] }}}}'}}", vec!["1"; 100].join(","));
    let expected = "The policy's expressions have too many parts";
    assert!(problems(&exceptions(&condition, 100))[0].contains(expected));
}

#[test]
fn a_rule_asks_for_nothing_that_cannot_be_reported() {
    let long = "a".repeat(256);
    let table = [
        ("type: junit, name: unit test".to_owned(), "name", "pattern '^[a-zA-Z0-9\\-_,]+$'"),
        (format!("type: junit, name: {long}"), "name", "at most 255 characters"),
        ("type: 'custom:'".to_owned(), "type", "pattern '^[a-zA-Z0-9][a-zA-Z0-9\\-_~.]*$'"),
        (format!("type: 'custom:{long}'"), "type", "at most 255 characters"),
        ("type: decision, for_control: a b".to_owned(), "for_control", "pattern '^[a-zA-Z0-9\\-._~]+$'"),
        (format!("type: decision, for_control: {long}a"), "for_control", "at most 256 characters"),
    ];
    for (rule, field, text) in table {
        let found = problems(&with(&format!("{{attestations: [{{{rule}}}]}}")));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with(&format!("artifacts.attestations[0].{field}: String should ")),
            "{found:?}"
        );
        assert!(found[0].contains(text), "{found:?}");
    }
    for rule in ["type: 'custom:scan.v1~2', name: 'a,b-c_d'", "type: decision, for_control: ~.C-1, name: '*'"]
    {
        parse(&with(&format!("{{attestations: [{{{rule}}}]}}")));
    }
}

/// The value of an alias is stored at each use.
#[test]
fn a_policy_with_aliases_takes_as_much_memory_as_one_without() {
    // Ten uses of each anchor, because YAML may use each no more often.
    let rules = |anchors: usize, first: &dyn Fn(usize) -> String, others: &dyn Fn(usize) -> String| {
        let rules = (0..anchors)
            .flat_map(|anchor| std::iter::once(first(anchor)).chain(std::iter::repeat_n(others(anchor), 9)));
        let rules = rules.map(|field| format!("{{type: junit, {field}}}"));
        with(&format!("{{attestations: [{}]}}", Vec::from_iter(rules).join(", ")))
    };
    let name = "a".repeat(255);
    let spelled = |_| format!("name: {name}");
    let aliased = rules(100, &|at| format!("name: &n{at} {name}"), &|at| format!("name: *n{at} "));
    assert!(aliased.len() < 100_000);
    let aliased = parse(&aliased);
    assert_eq!(aliased, parse(&rules(100, &spelled, &spelled)));
    assert!(aliased.bytes() > 1000 * 255, "{}", aliased.bytes());
    let text = format!("'${{{{ flow.name == \"{}\" }}}}'", "a".repeat(4000));
    let found = problems(&rules(30, &|at| format!("if: &c{at} {text}"), &|at| format!("if: *c{at} ")));
    assert!(found[0].contains("The policy's expressions are too long together"), "{}", found[0]);
}

/// Input after the maximum number of reported errors is not read, and neither are the rules of a list that is
/// too long.
#[test]
fn nothing_is_compiled_that_nothing_is_said_of() {
    let pattern = "{type: junit, if: \"${{ matches(flow.name, '(a|b|c)*abc.{6}') }}\"}";
    let rules = |count: usize| with(&format!("{{attestations: [{}]}}", vec![pattern; count].join(", ")));
    assert_eq!(problems(&rules(1001)).len(), 1);
    let found = problems(&rules(1000));
    assert_eq!(found.len(), 100);
    assert!(found.iter().all(|text| text.contains("The policy's patterns are too large once compiled")));
}

#[test]
fn the_controls_that_a_policy_names_are_listed_once() {
    let rule = |control: &str| format!("{{type: decision, for_control: {control}}}");
    let rules = [rule("C-2"), rule("C-1"), rule("C-2"), "{type: decision}".to_owned()].join(", ");
    let policy = parse(&with(&format!("{{attestations: [{rules}]}}")));
    assert_eq!(Vec::from_iter(policy.controls()), ["C-1", "C-2"]);
    assert!(policy.asks_for("C-1") && !policy.asks_for("C-3"));
}

fn policy(provenance: bool, trail_compliance: bool) -> Policy {
    parse(&with(&format!(
        "{{provenance: {{required: {provenance}}}, trail-compliance: {{required: {trail_compliance}}}}}"
    )))
}

const APP: Artifact<'_> = Artifact { name: "app:1", other_names: &[], fingerprint: Some("aa") };

fn flow(name: &str, artifact_state: State) -> FlowContext {
    FlowContext {
        flow_name: name.to_owned(),
        condition_names: Arc::default(),
        trail_name: format!("{name}-7"),
        artifact_state,
        reason: None,
        tags: Arc::default(),
        attestations: Arc::default(),
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
        let evaluation = evaluate(&policy(provenance, trail_compliance), APP, &flows);
        assert_eq!(evaluation.satisfied, expected, "{provenance} {trail_compliance} {states:?}");
        assert_eq!(evaluation.state().is_compliant(), expected);
    }
}

#[test]
fn each_rule_is_resolved_for_each_flow() {
    let flows = [flow("a", State::Compliant), flow("b", State::Incomplete)];
    let evaluation = evaluate(&policy(false, true), APP, &flows);
    let context = |flow: &str, status: Option<&str>| json!({ "flow_name": flow, "trail_name": format!("{flow}-7"), "artifact_status": status });
    assert_eq!(
        serde_json::to_value(&evaluation.rules).expect("plain data"),
        json!([
            {
                "rule": {
                    "type": "provenance",
                    "text": "provenance: required: false",
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
                    "text": "trail-compliance: required: true",
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
    let evaluation = evaluate(&policy(true, true), APP, &[]);
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
fn a_condition_that_the_names_of_a_flow_do_not_agree_on_is_unknown() {
    let waived = |condition: &str| {
        parse(&with(&format!(
            "{{trail-compliance: {{required: true, exceptions: [{{if: \"${{{{ {condition} }}}}\"}}]}}}}"
        )))
    };
    let asked = |condition: &str| {
        parse(&with(&format!("{{attestations: [{{type: junit, if: \"${{{{ {condition} }}}}\"}}]}}")))
    };
    let named = |names: &[&str]| FlowContext {
        condition_names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..flow(names[0], State::NonCompliant)
    };
    let table: [(&str, &[&str], bool, bool); 7] = [
        // The condition, the names, and whether it waives a rule as an exception and as an `if`.
        ("flow.name != 'critical'", &["web"], true, false),
        ("flow.name != 'critical'", &["web", "critical"], false, false),
        ("flow.name == 'critical'", &["critical"], true, false),
        ("flow.name == 'critical'", &["critical", "web"], false, false),
        ("flow.name == 'critical'", &["web", "api"], false, true),
        ("flow.name in ['critical', 'web']", &["critical", "web"], true, false),
        ("exists(flow.name)", &["critical", "web"], true, false),
    ];
    for (condition, names, as_exception, as_if) in table {
        let contexts = [named(names)];
        assert_eq!(is_satisfied(&waived(condition), APP, &contexts), as_exception, "{condition} {names:?}");
        assert_eq!(is_satisfied(&asked(condition), APP, &contexts), as_if, "{condition} {names:?}");
    }
    let evaluation = evaluate(&waived("flow.name != 'critical'"), APP, &[named(&["web", "critical"])]);
    let reason = evaluation.rules[1].resolutions[0].context.reason.as_deref().expect("a reason");
    assert!(reason.ends_with("it does not hold alike for the flow's names 'critical', 'web'"), "{reason}");
}

#[test]
fn a_rule_whose_condition_is_unknown_applies_and_says_why() {
    let asking = parse(&with("{attestations: [{type: junit, if: '${{ flow.tags.level < 3 }}'}]}"));
    let tags = |level: &str| Arc::new(BTreeMap::from([("level".to_owned(), level.to_owned())]));
    let tagged = |level| FlowContext { tags: tags(level), ..flow("a", State::Compliant) };
    let resolution = |contexts: &[FlowContext]| {
        let evaluation = evaluate(&asking, APP, contexts);
        let resolution = evaluation.rules[2].resolutions[0].clone();
        (evaluation.satisfied, resolution.kind, resolution.context.reason)
    };
    let why = |what: &str| Some(format!("the condition 'flow.tags.level < 3' is unknown, because {what}"));
    let missing = ResolutionKind::MissingAttestation;
    let not_a_number = why("flow.tags.level ('high') is not a number");
    assert_eq!(resolution(&[tagged("high")]), (false, missing, not_a_number.clone()));
    let no_tag = why("the flow has no tag 'level'");
    assert_eq!(resolution(&[flow("a", State::Compliant)]), (false, missing, no_tag));
    assert_eq!(resolution(&[]), (false, missing, why("the artifact was reported in no flow")));
    assert_eq!(resolution(&[tagged("2")]), (false, missing, None));
    assert_eq!(resolution(&[tagged("3")]), (true, ResolutionKind::RuleNotApplicable, None));
    // A rule that holds needs no reason.
    let list = Arc::new(FlowAttestations::new(
        vec![FlowAttestation { name: "a".to_owned(), kind: "junit".to_owned(), is_compliant: true }],
        Vec::new(),
        None,
    ));
    let tested = FlowContext { attestations: list, ..tagged("high") };
    assert_eq!(resolution(&[tested]), (true, ResolutionKind::RuleSatisfied, None));
    // The record explains the result even if the tags have changed.
    let outcome = RuleOutcomes::of(&asking, APP, &[tagged("high")]).unwrap();
    assert_eq!(json!(outcome), "--m");
    let unknown = unknown_conditions(&asking, APP, &[tagged("high")]);
    assert_eq!(json!(unknown), json!([{"rule": 2, "flow": 0, "why": not_a_number}]));
    let explained = explain_outcome(&asking, &outcome, &unknown, &[tagged("2")]).unwrap();
    assert_eq!(explained.rules[2].resolutions[0].context.reason, not_a_number);
}

#[test]
fn a_condition_that_not_all_names_agree_on_is_unknown() {
    let asking = parse(&with(
        "{provenance: {required: true, exceptions: [{if: '${{ matches(artifact.name, \"^db\") }}'}]}}",
    ));
    let others = ["db:2".to_owned(), "app:1".to_owned()];
    for (name, other_names, satisfied) in [
        ("db:1", &others[..0], true),
        ("db:1", &others[..1], true),
        ("db:1", &others[..], false),
        ("app:1", &others[..1], false),
        ("app:1", &others[..0], false),
        ("", &others[..0], false),
    ] {
        let artifact = Artifact { name, other_names, fingerprint: None };
        assert_eq!(evaluate(&asking, artifact, &[]).satisfied, satisfied, "{name} {other_names:?}");
        assert_eq!(is_satisfied(&asking, artifact, &[]), satisfied, "{name} {other_names:?}");
    }
    let artifact = Artifact { name: "db:1", other_names: &others[1..], fingerprint: None };
    let reason = evaluate(&asking, artifact, &[]).rules[0].resolutions[0].context.reason.clone();
    let expected = "the condition 'matches(artifact.name, \"^db\")' is unknown, because it does not hold alike for the \
                    artifact's names 'app:1', 'db:1'";
    assert_eq!(reason.as_deref(), Some(expected));
}

#[test]
fn the_control_is_named_beside_what_came_of_its_rule() {
    let asking = parse(&with("{attestations: [{type: decision, for_control: C-1}]}"));
    for contexts in [vec![flow("a", State::Compliant)], vec![]] {
        let evaluation = evaluate(&asking, APP, &contexts);
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
    }
}

#[test]
fn an_artifact_may_run_if_it_is_allow_listed_or_every_policy_is_satisfied() {
    let satisfied = || evaluate(&policy(false, false), APP, &[]).satisfied;
    let violated = || evaluate(&policy(true, false), APP, &[]).satisfied;
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
    let (good, bad, open) = (State::Compliant, State::NonCompliant, State::Incomplete);
    type Case<'c> = (bool, Option<bool>, &'c [State], Option<bool>);
    let table: [Case<'_>; 10] = [
        (false, None, &[], Some(false)),
        (false, Some(true), &[], Some(false)),
        (true, None, &[], Some(true)),
        (true, Some(false), &[bad], Some(true)),
        (false, None, &[good], Some(true)),
        (false, None, &[good, open], Some(false)),
        (false, None, &[bad], Some(false)),
        (false, Some(true), &[bad], Some(true)),
        (false, Some(false), &[good], Some(false)),
        (false, None, &[good, good], Some(true)),
    ];
    for (allow_listed, by_policies, in_flows, expected) in table {
        let states = in_flows.iter().copied();
        let found = required_provenance_verdict(allow_listed, by_policies, states);
        assert_eq!(found, expected, "{allow_listed}, {by_policies:?}, {in_flows:?}");
    }
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
        let mut counted = Members::<u8>::default();
        members.iter().for_each(|member| counted.add((*member, None)));
        // If its policies cannot be read, it is never compliant.
        assert_eq!(counted.state(None), expected.filter(|state| !state), "{members:?}");
        assert_eq!(counted.state(Some(&[])), expected, "{members:?}");
    }
}

#[test]
fn what_runs_in_the_members_of_a_logical_environment_complies_with_its_own_policies() {
    const P: &[u8] = &[1];
    const PQ: &[u8] = &[1, 2];
    const YES: Option<bool> = Some(true);
    const NO: Option<bool> = Some(false);
    type Member = (Option<bool>, OwnPolicies<'static, u8>);
    /// The members, the state with the policies `P`, and the state without policies.
    type Case<'c> = (&'c [Member], Option<bool>, Option<bool>);
    let table: [Case<'_>; 10] = [
        (&[], None, None),
        (&[(YES, Some((P, true)))], YES, YES),
        (&[(YES, Some((P, false)))], NO, YES),
        (&[(None, Some((P, true)))], None, None),
        (&[(NO, Some((P, true)))], NO, NO),
        (&[(YES, Some((P, true))), (YES, Some((P, false)))], NO, YES),
        // A member was not evaluated by the policies yet, or was evaluated by others.
        (&[(YES, None)], None, YES),
        (&[(YES, Some((P, true))), (YES, None)], None, YES),
        (&[(YES, Some((PQ, true)))], None, YES),
        (&[(YES, Some((P, true))), (YES, Some((PQ, true)))], None, YES),
    ];
    for (members, expected, without) in table {
        let mut counted = Members::default();
        counted.add((NO, Some((PQ, false))));
        members.iter().for_each(|member| counted.add(*member));
        counted.remove((NO, Some((PQ, false))));
        assert_eq!(counted.state(Some(P)), expected, "{members:?}");
        assert_eq!(counted.state(Some(&[])), without, "{members:?}");
        // Policies that cannot be read make nothing compliant.
        let unreadable = without.filter(|compliant| !compliant);
        assert_eq!(counted.state(None), unreadable, "{members:?}");
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
            let evaluation = evaluate(&policy, APP, &contexts);
            assert_eq!(evaluation.state(), State::NonCompliant, "{broken}");
            let [rule] = evaluation.rules.as_slice() else { panic!("{evaluation:?}") };
            assert_eq!((rule.rule.kind, rule.satisfied), (RuleKind::Policy, Some(false)));
            let reason = rule.resolutions[0].context.reason.as_deref().unwrap_or_default();
            assert!(reason.starts_with("The policy cannot be read: ") && reason.len() > 30, "{reason}");
        }
    }
}

/// A policy of any kind.
fn any_policy() -> impl Strategy<Value = Policy> {
    use proptest::{collection::vec, option::weighted, sample::select};
    let condition = || {
        let texts = [
            "true",
            "false",
            "exists(flow)",
            "not exists(flow.tags.level)",
            "flow.tags.level < 3",
            "not flow.tags.level > 3",
            "flow.tags.level == 'high'",
            "flow.tags.level != 'high'",
            "matches(artifact.name, '^app')",
            "flow.name in ['web', 'api']",
        ];
        select(texts.to_vec()).prop_map(|text| Condition::parse(text, &mut Budget::default()).unwrap())
    };
    let boolean = move || {
        let exception = weighted(0.8, condition()).prop_map(|condition| ConditionalRule { condition });
        (any::<bool>(), vec(exception, 0..3))
            .prop_map(|(required, exceptions)| BooleanRule { required, exceptions })
    };
    let kind = select(vec!["*", "generic", "decision"]);
    let control = weighted(0.2, select(vec!["C-1", "C-2"]).prop_map(str::to_owned));
    let rule = (weighted(0.3, condition()), select(vec!["*", "a", "b"]), kind, any::<bool>(), control);
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

/// A flow in which an artifact has any state.
fn any_context() -> impl Strategy<Value = FlowContext> {
    use proptest::{collection::vec, sample::select};
    let kind = select(vec!["generic", "system:decision", "junit"]);
    let attestation = (select(vec!["a", "b", "c"]), kind, any::<bool>());
    let attestation = attestation.prop_map(|(name, kind, is_compliant)| FlowAttestation {
        name: name.to_owned(),
        kind: kind.to_owned(),
        is_compliant,
    });
    let decision = (select(vec!["a", "b"]), select(vec!["C-1", "C-2"]), any::<bool>(), 0..4_u64);
    let decision = decision.prop_map(|(name, control, is_compliant, index)| FlowDecision {
        name: name.to_owned(),
        control: control.to_owned(),
        is_compliant,
        index,
    });
    let list = || (vec(attestation.clone(), 0..4), vec(decision.clone(), 0..3));
    let lists = (list(), list()).prop_map(|((on_trail, of_trail), (own, of_own))| {
        let beneath = Arc::new(FlowAttestations::new(on_trail, of_trail, None));
        Arc::new(FlowAttestations::new(own, of_own, Some(&beneath)))
    });
    let level = proptest::option::of(select(vec!["high", "2", "10"]));
    let tags = level.prop_map(|level| {
        let tag = level.map(|level| ("level".to_owned(), level.to_owned()));
        Arc::new(tag.into_iter().collect::<BTreeMap<_, _>>())
    });
    let state = select(vec![State::Compliant, State::Compliant, State::NonCompliant, State::Incomplete]);
    (state, lists, tags).prop_map(|(state, attestations, tags)| FlowContext {
        attestations,
        tags,
        ..flow("web", state)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_policy_is_satisfied_as_its_explanation_says(
        policy in any_policy(),
        contexts in proptest::collection::vec(any_context(), 0..3),
    ) {
        prop_assert_eq!(is_satisfied(&policy, APP, &contexts), evaluate(&policy, APP, &contexts).satisfied);
    }

    /// A record explains the same result, whatever the tags and attestations are later.
    #[test]
    fn what_is_recorded_of_an_evaluation_explains_it(
        policy in any_policy(),
        contexts in proptest::collection::vec(any_context(), 0..3),
    ) {
        let evaluation = evaluate(&policy, APP, &contexts);
        let states = Vec::from_iter(contexts.iter().map(|context| FlowContext {
            tags: Arc::default(),
            attestations: Arc::default(),
            ..context.clone()
        }));
        let explained = match RuleOutcomes::of(&policy, APP, &contexts) {
            Some(outcome) => {
                prop_assert_eq!(outcome.are_satisfied(), evaluation.satisfied);
                let text = serde_json::to_string(&outcome).unwrap();
                let unknown = unknown_conditions(&policy, APP, &contexts);
                explain_outcome(&policy, &serde_json::from_str(&text).unwrap(), &unknown, &states).unwrap()
            }
            None => evaluate(&policy, APP, &states),
        };
        prop_assert_eq!(explained, evaluation);
    }
}

proptest::proptest! {
    /// A stored policy that can be read is evaluated as usual; nothing complies with any other.
    #[test]
    fn a_stored_policy_is_read_or_demands_what_nothing_meets(yaml in "\\PC{0,40}") {
        let stored = Policy::stored(&yaml);
        let evaluation = evaluate(&stored, APP, &[flow("web", State::Compliant)]);
        match Policy::parse(&yaml) {
            Ok(policy) => proptest::prop_assert_eq!(stored, policy),
            Err(_) => proptest::prop_assert!(!evaluation.satisfied),
        }
    }
}

#[test]
fn what_cannot_be_the_outcome_of_a_policy_explains_nothing() {
    let asking = parse(&with("{attestations: [{type: junit}]}"));
    let contexts = [flow("a", State::Compliant), flow("b", State::Compliant)];
    for (letters, explains) in [
        ("--m/--m", true),
        ("--m", false),
        ("--m/--", false),
        ("--m/--?", false),
        ("", false),
        ("--m/--m/--m", false),
    ] {
        let outcome = serde_json::from_value(json!(letters)).unwrap();
        assert_eq!(explain_outcome(&asking, &outcome, &[], &contexts).is_some(), explains, "{letters}");
    }
}
