//! Evaluates each kind of rule for each state of an artifact, with each value of its conditions, in no flow,
//! one flow and several flows. The results are checked for each rule and flow.

use super::*;

/// A rule, the flows, the results of the rule in each flow as letters, and the result for all flows.
type Row = (&'static str, &'static [&'static str], &'static str, Option<bool>);

/// The attestations of a scope, and the decisions about a control among them.
type Scope = (Vec<FlowAttestation>, Vec<FlowDecision>);

/// Returns the flow of a table by name: its state, tags and attestations.
fn context(name: &str) -> FlowContext {
    let one = |name: &str, kind: &str, is_compliant| FlowAttestation {
        name: name.to_owned(),
        kind: kind.to_owned(),
        is_compliant,
    };
    let decision = |name: &str, control: &str, is_compliant, index| FlowDecision {
        name: name.to_owned(),
        control: control.to_owned(),
        is_compliant,
        index,
    };
    // The attestations of the artifact, and those of its trail.
    let (own, on_trail): (Scope, Scope) = match name {
        "good" => (
            (vec![one("unit", "junit", true), one("review", "custom:review", true)], vec![]),
            (vec![one("go", "system:decision", true)], vec![decision("go", "C-1", true, 9)]),
        ),
        "failed" => (
            (vec![one("unit", "junit", false)], vec![]),
            (vec![one("go", "system:decision", false)], vec![decision("go", "C-1", false, 9)]),
        ),
        // One of several matching attestations is compliant, and so is the older decision.
        "mixed" => (
            (
                vec![one("unit", "junit", false), one("go", "system:decision", true)],
                vec![decision("go", "C-1", true, 3)],
            ),
            (
                vec![one("more", "junit", true), one("stop", "system:decision", false)],
                vec![decision("stop", "C-1", false, 5), decision("on", "C-2", true, 7)],
            ),
        ),
        // The attestations that the artifact's own ones hide are compliant.
        "hidden" => (
            (
                vec![
                    one("unit", "junit", false),
                    one("go", "system:decision", false),
                    one("scan", "generic", true),
                ],
                vec![decision("go", "C-1", false, 3)],
            ),
            (
                vec![
                    one("unit", "junit", true),
                    one("go", "system:decision", true),
                    one("scan", "snyk", true),
                ],
                vec![decision("go", "C-1", true, 9)],
            ),
        ),
        _ => Default::default(),
    };
    let state = match name {
        "good" | "bare" | "mixed" | "hidden" => State::Compliant,
        "failed" => State::NonCompliant,
        _ => State::Incomplete,
    };
    let level = match name {
        "good" => "1",
        "failed" => "5",
        _ => "none",
    };
    let tags = BTreeMap::from([("level".to_owned(), level.to_owned())]);
    let beneath = Arc::new(FlowAttestations::new(on_trail.0, on_trail.1, None));
    let attestations = Arc::new(FlowAttestations::new(own.0, own.1, Some(&beneath)));
    FlowContext { tags: Arc::new(tags), attestations, ..flow(name, state) }
}

/// Checks the results of the rule at this position of a policy.
fn check(place: usize, artifacts: impl Fn(&str) -> String, table: &[Row]) {
    for (rule, flows, letters, satisfied) in table {
        let policy = parse(&with(&artifacts(rule)));
        let contexts = Vec::from_iter(flows.iter().map(|name| context(name)));
        let evaluation = evaluate(&policy, APP, &contexts);
        let outcome = &evaluation.rules[place];
        let found: String = outcome.resolutions.iter().map(|one| letter(one.kind)).collect();
        assert_eq!((found.as_str(), outcome.satisfied), (*letters, *satisfied), "{rule} in {flows:?}");
        assert_eq!(outcome.ignored, satisfied.is_none(), "{rule} in {flows:?}");
        assert_eq!(evaluation.satisfied, *satisfied != Some(false), "{rule} in {flows:?}");
        let flow_names = outcome.resolutions.iter().map(|one| one.context.flow_name.as_deref());
        let expected = if flows.is_empty() { vec![None] } else { flows.iter().copied().map(Some).collect() };
        assert_eq!(Vec::from_iter(flow_names), expected, "{rule} in {flows:?}");
    }
}

/// Returns the letter of a result in the tables.
fn letter(kind: ResolutionKind) -> char {
    let text = json!(RuleOutcomes::of(&parse(&with("{attestations: [{type: junit}]}")), APP, &[]));
    assert_eq!(text, "--m");
    match kind {
        ResolutionKind::RuleNotApplicable => '-',
        ResolutionKind::RuleSatisfied => '+',
        ResolutionKind::MissingProvenance => 'p',
        ResolutionKind::NoProvenance => 'n',
        ResolutionKind::NonCompliantInTrail => 't',
        ResolutionKind::MissingAttestation => 'm',
        ResolutionKind::NonCompliantAttestation => 'a',
        ResolutionKind::UnreadablePolicy => 'u',
        ResolutionKind::NotEvaluated => 'x',
    }
}

const LOW: &str = "${{ flow.tags.level < 3 }}";

#[test]
fn provenance() {
    let rule = |text: &str| format!("{{provenance: {{{}}}}}", text.replace("LOW", &format!("'{LOW}'")));
    let table: [Row; 26] = [
        ("required: false", &[], "-", None),
        ("required: false", &["good", "failed"], "--", None),
        ("required: true", &[], "p", Some(false)),
        ("required: true", &["good"], "+", Some(true)),
        ("required: true", &["failed", "missing"], "++", Some(true)),
        // An exception without a condition waives no rule.
        ("required: true, exceptions: [{}]", &[], "p", Some(false)),
        ("required: true, exceptions: [{if: null}]", &["good"], "+", Some(true)),
        // An exception that uses only the artifact.
        ("required: true, exceptions: [{if: '${{ matches(artifact.name, \"^app:\") }}'}]", &[], "-", None),
        (
            "required: true, exceptions: [{if: '${{ matches(artifact.name, \"^db:\") }}'}]",
            &[],
            "p",
            Some(false),
        ),
        (
            "required: true, exceptions: [{if: '${{ artifact.fingerprint == \"aa\" }}'}]",
            &["good", "bare"],
            "--",
            None,
        ),
        ("required: true, exceptions: [{if: '${{ not exists(flow) }}'}]", &[], "-", None),
        ("required: true, exceptions: [{if: '${{ not exists(flow) }}'}]", &["good"], "+", Some(true)),
        // Each flow is evaluated separately.
        ("required: true, exceptions: [{if: LOW}]", &["good", "failed"], "-+", Some(true)),
        ("required: true, exceptions: [{if: LOW}]", &["failed", "good"], "+-", Some(true)),
        // An unknown exception waives no rule.
        ("required: true, exceptions: [{if: LOW}]", &["bare"], "+", Some(true)),
        ("required: true, exceptions: [{if: LOW}]", &["good", "bare"], "-+", Some(true)),
        ("required: true, exceptions: [{if: '${{ flow.name != \"critical\" }}'}]", &[], "p", Some(false)),
        ("required: true, exceptions: [{if: '${{ flow.name != \"critical\" }}'}]", &["good"], "-", None),
        ("required: true, exceptions: [{if: '${{ not matches(flow.name, \"x\") }}'}]", &[], "p", Some(false)),
        ("required: true, exceptions: [{if: '${{ not flow.name in [\"x\"] }}'}]", &[], "p", Some(false)),
        ("required: true, exceptions: [{if: '${{ flow.tags.risk != \"high\" }}'}]", &[], "p", Some(false)),
        ("required: true, exceptions: [{if: '${{ not exists(flow.tags.risk) }}'}]", &[], "p", Some(false)),
        ("required: true, exceptions: [{if: LOW}]", &[], "p", Some(false)),
        // One true exception is enough, at any position.
        (
            "required: true, exceptions: [{if: LOW}, {if: '${{ flow.name == \"bare\" }}'}]",
            &["bare"],
            "-",
            None,
        ),
        ("required: true, exceptions: [{}, {if: '${{ false }}'}, {if: '${{ true }}'}]", &[], "-", None),
        ("required: false, exceptions: [{if: LOW}]", &["bare"], "-", None),
    ];
    check(0, rule, &table);
}

#[test]
fn trail_compliance() {
    let rule = |text: &str| format!("{{trail-compliance: {{{}}}}}", text.replace("LOW", &format!("'{LOW}'")));
    let table: [Row; 21] = [
        ("required: false", &[], "-", None),
        ("required: false", &["failed"], "-", None),
        ("required: true", &[], "n", Some(false)),
        ("required: true", &["good"], "+", Some(true)),
        ("required: true", &["failed"], "t", Some(false)),
        ("required: true", &["missing"], "t", Some(false)),
        ("required: true", &["good", "bare"], "++", Some(true)),
        ("required: true", &["good", "failed"], "+t", Some(false)),
        ("required: true", &["missing", "good"], "t+", Some(false)),
        ("required: true, exceptions: [{}]", &["failed"], "t", Some(false)),
        (
            "required: true, exceptions: [{if: '${{ flow.name == \"failed\" }}'}]",
            &["good", "failed"],
            "+-",
            Some(true),
        ),
        ("required: true, exceptions: [{if: '${{ flow.name == \"failed\" }}'}]", &["failed"], "-", None),
        (
            "required: true, exceptions: [{if: '${{ flow.name == \"good\" }}'}]",
            &["good", "failed"],
            "-t",
            Some(false),
        ),
        ("required: true, exceptions: [{if: LOW}]", &["good", "failed", "bare"], "-t+", Some(false)),
        // An unknown exception waives no rule.
        (
            "required: true, exceptions: [{if: '${{ not flow.tags.risk > 3 }}'}]",
            &["missing"],
            "t",
            Some(false),
        ),
        (
            "required: true, exceptions: [{if: '${{ flow.tags.risk != \"high\" }}'}]",
            &["missing"],
            "t",
            Some(false),
        ),
        (
            "required: true, exceptions: [{if: '${{ not flow.tags.level > 3 }}'}]",
            &["missing"],
            "t",
            Some(false),
        ),
        ("required: true, exceptions: [{if: '${{ flow.name != \"critical\" }}'}]", &[], "n", Some(false)),
        ("required: true, exceptions: [{if: '${{ not exists(flow) }}'}]", &[], "-", None),
        ("required: true, exceptions: [{if: '${{ exists(flow) }}'}]", &[], "n", Some(false)),
        ("required: true, exceptions: [{if: '${{ flow.tags.level >= 5 }}'}]", &["failed"], "-", None),
    ];
    check(1, rule, &table);
}

#[test]
fn attestations() {
    let rule = |text: &str| format!("{{attestations: [{{{}}}]}}", text.replace("LOW", &format!("'{LOW}'")));
    let table: [Row; 42] = [
        ("type: junit", &[], "m", Some(false)),
        ("type: junit", &["good"], "+", Some(true)),
        ("type: junit", &["failed"], "a", Some(false)),
        ("type: junit", &["bare"], "m", Some(false)),
        ("type: junit", &["good", "failed", "bare"], "+am", Some(false)),
        ("type: junit", &["good", "mixed"], "++", Some(true)),
        ("type: junit, must_be_compliant: false", &["good", "failed"], "++", Some(true)),
        ("type: junit, must_be_compliant: false", &["failed", "bare"], "+m", Some(false)),
        // By name, with any type or one type.
        ("name: unit, type: '*'", &["good", "failed", "bare"], "+am", Some(false)),
        ("name: unit, type: junit", &["good", "mixed"], "+a", Some(false)),
        // The artifact's own attestation of a name hides the trail's, whatever its type.
        ("type: junit", &["hidden"], "a", Some(false)),
        ("name: unit, type: junit", &["hidden"], "a", Some(false)),
        ("name: unit, type: '*'", &["hidden"], "a", Some(false)),
        ("name: unit, type: junit, must_be_compliant: false", &["hidden"], "+", Some(true)),
        ("type: decision, for_control: C-1", &["hidden"], "a", Some(false)),
        ("name: go, type: decision, for_control: C-1", &["hidden"], "a", Some(false)),
        ("type: decision", &["hidden"], "a", Some(false)),
        ("type: snyk", &["hidden"], "m", Some(false)),
        ("name: scan, type: snyk", &["hidden"], "m", Some(false)),
        ("name: scan, type: generic", &["hidden"], "+", Some(true)),
        ("name: unit, type: snyk", &["good"], "m", Some(false)),
        ("name: review, type: junit", &["good"], "m", Some(false)),
        ("name: uni, type: '*'", &["good"], "m", Some(false)),
        // Custom types are distinct from one another.
        ("type: custom:review", &["good"], "+", Some(true)),
        ("type: custom:revie", &["good"], "m", Some(false)),
        ("name: review, type: custom:review", &["good", "failed"], "+m", Some(false)),
        // A decision is reported as `system:decision`. A rule without a control accepts any decision.
        ("type: decision", &["good", "failed", "mixed", "bare"], "+a+m", Some(false)),
        ("name: go, type: decision", &["good", "failed", "mixed"], "+a+", Some(false)),
        // Among decisions about a control the newest counts, whatever its name.
        ("type: decision, for_control: C-1", &["good", "failed", "mixed", "bare"], "+aam", Some(false)),
        ("name: go, type: decision, for_control: C-1", &["mixed"], "+", Some(true)),
        ("type: decision, for_control: C-2", &["mixed", "good"], "+m", Some(false)),
        (
            "type: decision, for_control: C-1, must_be_compliant: false",
            &["failed", "mixed"],
            "++",
            Some(true),
        ),
        ("type: decision, for_control: C-9", &[], "m", Some(false)),
        // If the condition is false, the rule does not apply.
        ("type: snyk, if: LOW", &["failed"], "-", None),
        ("type: snyk, if: LOW", &["good", "failed"], "m-", Some(false)),
        ("type: junit, if: LOW", &["good", "failed", "bare"], "+-m", Some(false)),
        // If the condition is unknown, the rule applies.
        ("type: junit, if: '${{ flow.name == \"good\" }}'", &[], "m", Some(false)),
        ("type: junit, if: '${{ flow.tags.risk == \"high\" }}'", &["failed", "bare"], "am", Some(false)),
        ("type: junit, if: '${{ flow.tags.risk > 3 }}'", &["good"], "+", Some(true)),
        ("type: junit, if: '${{ exists(flow) and flow.name == \"good\" }}'", &[], "-", None),
        ("type: junit, if: '${{ not exists(flow) }}'", &[], "m", Some(false)),
        ("type: junit, if: null", &["good"], "+", Some(true)),
    ];
    check(2, rule, &table);
}

#[test]
fn all_rules_are_told_in_their_order_also_those_that_do_not_apply() {
    let policy = parse(&with(
        "{trail-compliance: {required: true}, attestations: [{type: snyk, if: '${{ false }}'}, {type: junit}]}",
    ));
    let contexts = ["good", "failed"].map(context);
    let evaluation = evaluate(&policy, APP, &contexts);
    let told = evaluation.rules.iter().map(|rule| (rule.rule.kind, rule.satisfied, rule.ignored));
    assert_eq!(
        Vec::from_iter(told),
        [
            (RuleKind::Provenance, None, true),
            (RuleKind::TrailCompliance, Some(false), false),
            (RuleKind::Attestation, None, true),
            (RuleKind::Attestation, Some(false), false),
        ]
    );
    assert_eq!(json!(RuleOutcomes::of(&policy, APP, &contexts)), "-+-+/-t-a");
    assert_eq!(json!(RuleOutcomes::of(&policy, APP, &[])), "-n-m");
}

#[test]
fn an_exception_of_one_artifact_waives_nothing_of_another() {
    let policy = parse(&with(
        "{provenance: {required: true, exceptions: [{if: '${{ artifact.name == \"app:1\" }}'}]}}",
    ));
    for name in ["app:1", "db:1", "app:1", "app:12"] {
        let artifact = Artifact { name, other_names: &[], fingerprint: None };
        assert_eq!(evaluate(&policy, artifact, &[]).satisfied, name == "app:1", "{name}");
    }
}

#[test]
fn a_decision_that_a_newer_attestation_of_its_name_superseded_satisfies_nothing() {
    use crate::compliance::{Binding, ReportedAttestation};
    use evidence_values::time::Timestamp;
    let report = |index: u64, control: Option<&str>, is_compliant: bool, is_override: bool| {
        let kind = if control.is_some() { "system:decision" } else { "generic" };
        ReportedAttestation {
            id: index.to_string(),
            name: "go".to_owned(),
            kind: kind.to_owned(),
            is_compliant,
            at: Timestamp::default(),
            index,
            binding: Binding::Trail,
            override_info: is_override.then(|| "overridden by jane: seen by hand".into()),
            control: control.map(str::to_owned),
        }
    };
    let yes = report(1, Some("C-1"), true, false);
    let over = |is_compliant| report(2, None, is_compliant, true);
    type Case = (Vec<ReportedAttestation>, Option<(u64, bool)>, Option<(u64, bool)>);
    // The reports, and the effective decisions about C-1 and about C-2.
    let table: [Case; 9] = [
        (vec![yes.clone()], Some((1, true)), None),
        (vec![yes.clone(), report(2, Some("C-1"), false, false)], Some((2, false)), None),
        (vec![yes.clone(), over(false)], Some((2, false)), None),
        (vec![report(1, Some("C-1"), false, false), over(true)], Some((2, true)), None),
        // Superseded by a decision about another control, and by an attestation that is not a decision.
        (vec![yes.clone(), report(2, Some("C-2"), true, false)], None, Some((2, true))),
        (vec![yes.clone(), report(2, None, true, false)], None, None),
        (vec![yes.clone(), report(2, None, false, false), report(3, None, true, true)], None, None),
        (vec![yes, report(2, Some("C-2"), false, false), report(3, None, true, true)], None, Some((3, true))),
        (vec![over(true)], None, None),
    ];
    for (reports, first, second) in table {
        let mut reports = Vec::from_iter(&reports);
        for _ in 0..reports.len() {
            reports.rotate_left(1);
            let found = |control: &str, name: Option<&str>| {
                let mut required = RequiredAttestations::default();
                let rule = format!("{{type: decision, for_control: {control}}}");
                required.add(&parse(&with(&format!("{{attestations: [{rule}]}}"))));
                let list = FlowAttestations::of_scope(Vec::new(), &reports, None, &required);
                list.decision(control, name).map(|one| (one.index, one.is_compliant))
            };
            assert_eq!((found("C-1", None), found("C-2", None)), (first, second), "{reports:?}");
            assert_eq!((found("C-1", Some("other")), found("C-2", Some("go"))), (None, second));
        }
    }
}

#[test]
fn of_several_decisions_about_a_control_the_newest_counts_whatever_its_name() {
    let decision = |name: &str, index: u64, is_compliant: bool| FlowDecision {
        name: name.to_owned(),
        control: "C-1".to_owned(),
        is_compliant,
        index,
    };
    let decisions = [decision("b", 3, false), decision("a", 7, true), decision("c", 5, false)];
    for turn in 0..3 {
        let mut turned = decisions.to_vec();
        turned.rotate_left(turn);
        let list = FlowAttestations::new(Vec::new(), turned, None);
        let found = |name: Option<&str>| list.decision("C-1", name).map(|one| one.index);
        assert_eq!([None, Some("b"), Some("c"), Some("d")].map(found), [Some(7), Some(3), Some(5), None]);
        assert_eq!(list.digest(), FlowAttestations::new(Vec::new(), decisions.to_vec(), None).digest());
    }
}
