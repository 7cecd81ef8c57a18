//! The table of cases, and its evaluation on every store.

use super::On::{Artifact, Other, Trail};
use super::Step::{
    Allow, ArchiveFlow, Attest, BreakPolicy, BreakTemplate, Decide, NoTests, Override, Report,
    RequireProvenance, Run, Tag,
};
use super::{Scene, Step};

use crate::support::prelude::*;

/// A case, and the verdict in each place.
pub(super) struct Case {
    pub(super) text: &'static str,
    template: &'static str,
    /// The rules of the environment's policy; empty for an environment without policies.
    policy: &'static str,
    steps: &'static [Step],
    /// `Artifact.state`; `–` if the artifact was never reported.
    pub(super) state: &'static str,
    /// The gate by flow, by policy and by environment, and the artifact that runs in the environment.
    pub(super) places: [&'static str; 4],
    /// The reason for a green cell; empty if there is none.
    pub(super) why: &'static str,
}

const fn case(text: &'static str, template: &'static str, policy: &'static str) -> Case {
    Case { text, template, policy, steps: &[], state: "–", places: NO, why: "" }
}

impl Case {
    const fn after(self, steps: &'static [Step]) -> Self {
        Self { steps, ..self }
    }

    const fn decides(self, state: &'static str, places: [&'static str; 4]) -> Self {
        Self { state, places, ..self }
    }

    const fn because(self, why: &'static str) -> Self {
        Self { why, ..self }
    }

    /// Asserts that answers name who let the artifact pass, with the reason.
    async fn shows_who_decided(&self, scene: &Scene<'_>) {
        let Scene { api, flow, environment, artifact, .. } = scene;
        let gate = format!("/asserts/acme/fingerprint/{artifact}?environment_name={environment}");
        if self.steps.contains(&Allow) {
            let snapshot = api.get(&format!("/snapshots/acme/{environment}/-1")).await.ok();
            for shown in [&snapshot["artifacts"][0], &api.get(&gate).await.ok()] {
                let allowed = &shown["allow_listing"];
                let by = (&allowed["allowed_by"], &allowed["description"]);
                assert_eq!(by, (&json!("jane"), &json!("it is known")), "{}: {shown}", self.text);
            }
        }
        if matches!(self.steps.last(), Some(Override(_, Artifact, _))) {
            let trail = api.get(&format!("/trails/acme/{flow}/t")).await.ok();
            for shown in [&trail, &api.get(&gate).await.ok()] {
                let info = r#""override_info":"overridden by jane: seen""#;
                assert!(shown.to_string().contains(info), "{}: {shown}", self.text);
            }
        }
    }
}

/// `app` needs the attestation `unit`.
const APP: &str = "trail: {artifacts: [{name: app, attestations: [{name: unit, type: generic}]}]}";
const NOTHING: &str = "version: 1";
const BOTH: &str = "{trail-compliance: {required: true}, attestations: [{name: unit, type: generic}]}";
const COMPLIANT: &str = "{trail-compliance: {required: true}}";
const UNIT: &str = "{attestations: [{name: unit, type: generic}]}";
const CONTROL: &str = "{attestations: [{type: decision, for_control: C-1}]}";
const PROVENANCE: &str = "{provenance: {required: true}}";
const UNIT_OF_BUILDS: &str =
    "{attestations: [{name: unit, type: generic, if: \"${{ flow.tags.kind == 'build' }}\"}]}";
/// More rules than the service of these cases evaluates of one artifact.
const TOO_MANY: &str = "too many";
/// The most rules that the service of these cases evaluates for one artifact.
const MOST_RULES: usize = 20;

/// Rules with an exception under this condition.
macro_rules! compliant_unless {
    ($condition:literal) => {
        concat!("{trail-compliance: {required: true, exceptions: [{if: \"${{ ", $condition, " }}\"}]}}")
    };
}

macro_rules! known_unless {
    ($condition:literal) => {
        concat!("{provenance: {required: true, exceptions: [{if: \"${{ ", $condition, " }}\"}]}}")
    };
}

const YES: [&str; 4] = ["yes"; 4];
const NO: [&str; 4] = ["no"; 4];

/// The cases, by the heading under which the page shows them.
pub(super) const GROUPS: [(&str, &[Case]); 6] = [
    ("present", PRESENT),
    ("absent", ABSENT),
    ("superseded", SUPERSEDED),
    ("unknown", UNKNOWN),
    ("unreadable", UNREADABLE),
    ("too large", TOO_LARGE),
];

const PRESENT: &[Case] = &[
    case("The template's attestation is there and compliant", APP, BOTH)
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, true)])
        .decides("COMPLIANT", YES)
        .because("Everything that the template and the policy require is there and compliant."),
    case("It is there and failed", APP, BOTH)
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, false)])
        .decides("NON-COMPLIANT", NO),
    case("An attestation that nothing asks for failed", APP, COMPLIANT)
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, true), Attest("scan", Trail, false)])
        .decides("NON-COMPLIANT", NO),
    case("The policy's attestation is on the trail, and the artifact has none of its name", NOTHING, UNIT)
        .after(&[Report(Artifact, "app"), Attest("unit", Trail, true)])
        .decides("COMPLIANT", YES)
        .because("An attestation of the trail counts for each of its artifacts that has none of its name."),
    case("The artifact's own attestation failed, the trail's of the same name is compliant", NOTHING, UNIT)
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, false), Attest("unit", Trail, true)])
        .decides("NON-COMPLIANT", NO),
    case(
        "Test results without any test",
        "trail: {artifacts: [{name: app, attestations: [{name: unit, type: junit}]}]}",
        COMPLIANT,
    )
    .after(&[Report(Artifact, "app"), NoTests("unit")])
    .decides("COMPLIANT", YES)
    .because("No test failed; answers show that there were 0 tests."),
    case(
        "A policy accepts a failed attestation (`must_be_compliant: false`)",
        NOTHING,
        "{attestations: [{name: unit, type: generic, must_be_compliant: false}]}",
    )
    .after(&[Report(Artifact, "app"), Attest("unit", Artifact, false)])
    .decides("NON-COMPLIANT", ["no", "yes", "yes", "yes"])
    .because("The policy asks only that the attestation is there, and does not ask for trail compliance."),
    case("The artifact fails and is on the environment's allowlist", APP, BOTH)
        .after(&[Report(Artifact, "app"), Allow])
        .decides("INCOMPLETE", ["no", "no", "yes", "yes"])
        .because("Somebody allowed the artifact in this environment; answers name who and why."),
];

const ABSENT: &[Case] = &[
    case("The template's attestation is missing", APP, BOTH)
        .after(&[Report(Artifact, "app")])
        .decides("INCOMPLETE", NO),
    case("The template's attestation is on the trail only", APP, COMPLIANT)
        .after(&[Report(Artifact, "app"), Attest("unit", Trail, true)])
        .decides("INCOMPLETE", NO),
    case("The policy's decision about a control is missing", NOTHING, CONTROL)
        .after(&[Report(Artifact, "app")])
        .decides("COMPLIANT", ["yes", "no", "no", "no"])
        .because("The template asks for nothing; the gate by flow asks no policy."),
    case("Nothing is required", NOTHING, PROVENANCE)
        .after(&[Report(Artifact, "app")])
        .decides("COMPLIANT", YES)
        .because("The template asks for nothing, and the policy for a report to a flow, which there is."),
    case("The artifact was never reported", NOTHING, PROVENANCE)
        .after(&[])
        .decides("–", ["404", "404", "404", "no"]),
    case("The environment has no policies, and the artifact complies in its flow", APP, "")
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, true)])
        .decides("COMPLIANT", ["yes", "–", "yes", "unknown"])
        .because(
            "An environment without policies asks for nothing of its own, so that the flows \
             decide at the gate.",
        ),
    case("The environment has no policies, and the artifact does not comply in its flow", APP, "")
        .after(&[Report(Artifact, "app")])
        .decides("INCOMPLETE", ["no", "–", "no", "unknown"]),
    case(
        "The environment has no policies and requires provenance, and the artifact \
             complies in its flow",
        APP,
        "",
    )
    .after(&[Report(Artifact, "app"), Attest("unit", Artifact, true), RequireProvenance])
    .decides("COMPLIANT", ["yes", "–", "yes", "yes"])
    .because("Without policies, an environment that requires provenance goes by the artifact's flows."),
    case(
        "The environment has no policies and requires provenance, and the artifact does \
             not comply in its flow",
        APP,
        "",
    )
    .after(&[Report(Artifact, "app"), RequireProvenance])
    .decides("INCOMPLETE", ["no", "–", "no", "no"]),
    case(
        "The environment has no policies and requires provenance, and the artifact was \
             never reported",
        NOTHING,
        "",
    )
    .after(&[RequireProvenance])
    .decides("–", ["404", "–", "404", "no"]),
    case(
        "The environment requires provenance, which its policy waives, and the artifact \
             was never reported",
        NOTHING,
        known_unless!("not exists(flow)"),
    )
    .after(&[RequireProvenance])
    .decides("–", ["404", "404", "404", "no"]),
    case(
        "The environment requires provenance, and the artifact was never reported and \
             is on the allowlist",
        NOTHING,
        PROVENANCE,
    )
    .after(&[RequireProvenance, Allow])
    .decides("–", ["404", "404", "yes", "yes"])
    .because("Somebody allowed the artifact in this environment; answers name who and why."),
    case("The attestation is missing, and somebody overrode it", APP, BOTH)
        .after(&[Report(Artifact, "app"), Override("unit", Artifact, true)])
        .decides("COMPLIANT", YES)
        .because("Somebody overrode the verdict of this attestation, with a reason; answers show both."),
    case("The artifact was reported without a template reference name", APP, COMPLIANT)
        .after(&[Report(Artifact, "")])
        .decides("COMPLIANT", YES)
        .because(
            "The template requires nothing of artifacts without a name; `state_info`, the \
             gate and the PDF say so.",
        ),
];

const SUPERSEDED: &[Case] = &[
    case("A failed attestation was repeated and is compliant", APP, BOTH)
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, false), Attest("unit", Artifact, true)])
        .decides("COMPLIANT", YES)
        .because("The newest attestation of a name decides in its scope."),
    case("A compliant attestation was repeated and failed", APP, BOTH)
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, true), Attest("unit", Artifact, false)])
        .decides("NON-COMPLIANT", NO),
    case("The artifact's failed attestation is overridden", APP, BOTH)
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, false), Override("unit", Artifact, true)])
        .decides("COMPLIANT", YES)
        .because("Somebody overrode the verdict of this attestation, with a reason; answers show both."),
    case("The artifact's compliant attestation is overridden as not compliant", APP, BOTH)
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, true), Override("unit", Artifact, false)])
        .decides("NON-COMPLIANT", NO),
    case("The attestation was reported again and failed after it was overridden", APP, BOTH)
        .after(&[Report(Artifact, "app"), Override("unit", Artifact, true), Attest("unit", Artifact, false)])
        .decides("NON-COMPLIANT", NO),
    case("The override is about the trail, and the failed attestation about the artifact", NOTHING, UNIT)
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, false), Override("unit", Trail, true)])
        .decides("NON-COMPLIANT", NO),
    case("A decision is current", NOTHING, CONTROL)
        .after(&[Report(Artifact, "app"), Decide("go", "C-1", Artifact, true)])
        .decides("COMPLIANT", YES)
        .because(
            "The newest decision about the control is compliant, and nothing of its name superseded it.",
        ),
    case("An attestation of its name that is no decision superseded the decision", NOTHING, CONTROL)
        .after(&[Report(Artifact, "app"), Decide("go", "C-1", Artifact, true), Attest("go", Artifact, true)])
        .decides("COMPLIANT", ["yes", "no", "no", "no"])
        .because("The template asks for nothing; the gate by flow asks no policy."),
    case("A decision about another control superseded the decision", NOTHING, CONTROL)
        .after(&[
            Report(Artifact, "app"),
            Decide("go", "C-1", Artifact, true),
            Decide("go", "C-2", Artifact, true),
        ])
        .decides("COMPLIANT", ["yes", "no", "no", "no"])
        .because("The template asks for nothing; the gate by flow asks no policy."),
    case(
        "The artifact's own decision was negative, the trail's newer one of the same name is positive",
        NOTHING,
        CONTROL,
    )
    .after(&[Report(Artifact, "app"), Decide("go", "C-1", Artifact, false), Decide("go", "C-1", Trail, true)])
    .decides("NON-COMPLIANT", NO),
    case("The artifact was reported again by a name that needs nothing", APP, COMPLIANT)
        .after(&[Report(Artifact, "app"), Report(Artifact, "zz")])
        .decides("INCOMPLETE", NO),
    case("Other content was reported by the artifact's name", APP, COMPLIANT)
        .after(&[Report(Artifact, "app"), Report(Other, "app"), Attest("unit", Other, true)])
        .decides("INCOMPLETE", NO),
    case("The flow of the compliant artifact was archived", APP, BOTH)
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, true), ArchiveFlow])
        .decides("–", YES)
        .because("A flow that is archived is hidden, and takes no more reports. The verdicts in it stay."),
    case("The flow of the failed artifact was archived", APP, BOTH)
        .after(&[Report(Artifact, "app"), Attest("unit", Artifact, false), ArchiveFlow])
        .decides("–", NO),
];

const UNKNOWN: &[Case] = &[
    case("The template expects no artifact of the name", APP, COMPLIANT)
        .after(&[Report(Artifact, "mistyped")])
        .decides("COMPLIANT", YES)
        .because(
            "An unexpected artifact needs only what the trail needs; `state_info`, the gate \
             and the PDF say so.",
        ),
    case("An exception is true", APP, compliant_unless!("flow.tags.risk == 'low'"))
        .after(&[Report(Artifact, "app"), Tag("risk", "low")])
        .decides("INCOMPLETE", ["no", "yes", "yes", "yes"])
        .because("An exception of the policy waives the rule where it is true."),
    case(
        "The artifact runs under several names, and an exception is true of each",
        APP,
        compliant_unless!("artifact.name != 'db'"),
    )
    .after(&[Report(Artifact, "app"), Run(&["app", "web"])])
    .decides("INCOMPLETE", ["no", "yes", "yes", "yes"])
    .because(
        "An exception of the policy waives the rule where it is true of every name \
             under which the artifact runs.",
    ),
    case(
        "An exception is unknown: it is not true of each name under which the artifact runs",
        APP,
        compliant_unless!("artifact.name == 'app'"),
    )
    .after(&[Report(Artifact, "app"), Run(&["app", "web"])])
    .decides("INCOMPLETE", NO),
    case(
        "An exception is unknown: the flow lacks the tag",
        APP,
        compliant_unless!("flow.tags.risk != 'high'"),
    )
    .after(&[Report(Artifact, "app")])
    .decides("INCOMPLETE", NO),
    case(
        "An exception is unknown: the tag is not a number",
        APP,
        compliant_unless!("not flow.tags.risk > 3"),
    )
    .after(&[Report(Artifact, "app"), Tag("risk", "high")])
    .decides("INCOMPLETE", NO),
    case(
        "An exception is unknown: the artifact was reported in no flow",
        NOTHING,
        known_unless!("flow.name != 'critical'"),
    )
    .after(&[])
    .decides("–", ["404", "404", "404", "no"]),
    case(
        "The policy waives provenance of artifacts that no flow knows (`not exists(flow)`)",
        NOTHING,
        known_unless!("not exists(flow)"),
    )
    .after(&[])
    .decides("–", ["404", "404", "404", "yes"])
    .because(
        "`exists(flow)` is always known, so that this exception is true of artifacts \
             that no flow knows.",
    ),
    case("The `if` of a rule is false", NOTHING, UNIT_OF_BUILDS)
        .after(&[Report(Artifact, "app"), Tag("kind", "text")])
        .decides("COMPLIANT", YES)
        .because("A rule is not asked where its `if` is false."),
    case("The `if` of a rule is unknown", NOTHING, UNIT_OF_BUILDS)
        .after(&[Report(Artifact, "app")])
        .decides("COMPLIANT", ["yes", "no", "no", "no"])
        .because("The template asks for nothing; the gate by flow asks no policy."),
];

const UNREADABLE: &[Case] = &[
    case("The template cannot be read", NOTHING, COMPLIANT)
        .after(&[Report(Artifact, "app"), BreakTemplate])
        .decides("INCOMPLETE", NO),
    case("The policy cannot be read", NOTHING, PROVENANCE)
        .after(&[Report(Artifact, "app"), BreakPolicy])
        .decides("COMPLIANT", ["yes", "no", "no", "no"])
        .because("The template asks for nothing; the gate by flow asks no policy."),
];

const TOO_LARGE: &[Case] = &[case("The policy evaluates more than the host permits", NOTHING, TOO_MANY)
    .after(&[Report(Artifact, "app"), Attest("unit", Artifact, true)])
    .decides("COMPLIANT", ["yes", "no", "no", "no"])
    .because("The template asks for nothing; the gate by flow asks no policy.")];

#[tokio::test]
async fn each_case_has_one_verdict_in_all_places() {
    let rules = vec!["{type: junit}"; MOST_RULES].join(", ");
    let too_many = format!("{{attestations: [{rules}]}}");
    let settings = || Settings {
        limits: Limits { resolutions: MOST_RULES, ..Limits::default() },
        ..Settings::default()
    };
    for StoreUnderTest { name, store, guard, .. } in stores().await {
        let evidence = fixture(Arc::clone(&store), settings()).await;
        let api = Api::new(evidence, Mount::Tower, name).await;
        for control in ["C-1", "C-2"] {
            api.post_control(control).await.created();
        }
        for (number, case) in (1..).zip(GROUPS.into_iter().flat_map(|(_, cases)| cases)) {
            let rules = if case.policy == TOO_MANY { too_many.as_str() } else { case.policy };
            let scene = Scene::new(&api, number, case.template, rules).await;
            for step in case.steps {
                assert!(scene.make(*step, Some(&*store)).await, "{} in {}: {step:?}", name, case.text);
            }
            let (state, places) = scene.verdicts(!case.policy.is_empty()).await;
            case.shows_who_decided(&scene).await;
            assert_eq!((state.as_str(), places), (case.state, case.places), "{} in {}", name, case.text);
            let is_green = case.state == "COMPLIANT" || case.places.contains(&"yes");
            assert_eq!(is_green, !case.why.is_empty(), "a green cell says why: {}", case.text);
        }
        drop(guard);
    }
}

/// The artifact that a member of a logical environment runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    Artifact,
    Nothing,
    /// The member never reported.
    Unknown,
}

/// A logical environment, and its verdict in each place. The artifact has a compliant `unit` in its flow, and no decision.
pub(super) struct LogicalCase {
    pub(super) text: &'static str,
    template: &'static str,
    /// The rules of the policy that is attached to the logical environment; empty without one.
    own: &'static str,
    members: &'static [Member],
    /// The state, the latest snapshot, and the gate.
    pub(super) places: [&'static str; 3],
    pub(super) why: &'static str,
}

/// The rules of a member's policy, whether it requires provenance, and what runs there.
type Member = (&'static str, bool, Runs);

const fn logical(
    text: &'static str,
    (template, own): (&'static str, &'static str),
    members: &'static [Member],
    places: [&'static str; 3],
    why: &'static str,
) -> LogicalCase {
    LogicalCase { text, template, own, members, places, why }
}

/// `app` needs the attestation `scan`, which the artifact of these cases lacks.
const LACKING: &str = "trail: {artifacts: [{name: app, attestations: [{name: scan, type: generic}]}]}";

pub(super) const LOGICAL_CASES: &[LogicalCase] = &[
    logical(
        "Each member complies",
        (NOTHING, ""),
        &[(UNIT, false, Runs::Artifact), (COMPLIANT, false, Runs::Artifact)],
        ["yes", "yes", "yes"],
        "The artifact satisfies the policies of every member.",
    ),
    logical(
        "The artifact violates a policy of a member",
        (NOTHING, ""),
        &[(UNIT, false, Runs::Artifact), (CONTROL, false, Runs::Artifact)],
        ["no", "no", "no"],
        "",
    ),
    logical(
        "The artifact violates a policy of a member in which it does not run",
        (NOTHING, ""),
        &[(UNIT, false, Runs::Artifact), (CONTROL, false, Runs::Nothing)],
        ["yes", "yes", "no"],
        "What runs satisfies the policies of the member in which it runs.",
    ),
    logical(
        "A member has no policies, and the artifact complies in its flow",
        (NOTHING, ""),
        &[(UNIT, false, Runs::Artifact), ("", false, Runs::Artifact)],
        ["unknown", "no", "yes"],
        "A member without policies asks for nothing of its own, so that the flows decide for it at the gate.",
    ),
    logical(
        "A member has no policies, and the artifact does not comply in its flow",
        (LACKING, ""),
        &[(UNIT, false, Runs::Artifact), ("", false, Runs::Artifact)],
        ["unknown", "no", "no"],
        "",
    ),
    logical(
        "A member without policies requires provenance, and the artifact does not comply in its flow",
        (LACKING, ""),
        &[(UNIT, false, Runs::Artifact), ("", true, Runs::Artifact)],
        ["no", "no", "no"],
        "",
    ),
    logical(
        "A member never reported what runs there",
        (NOTHING, ""),
        &[(UNIT, false, Runs::Artifact), (UNIT, false, Runs::Unknown)],
        ["unknown", "no", "yes"],
        "The gate looks at what policies say of the artifact, not at what runs.",
    ),
    logical(
        "The artifact satisfies the policy of the logical environment, too",
        (NOTHING, UNIT),
        &[(COMPLIANT, false, Runs::Artifact)],
        ["yes", "yes", "yes"],
        "The artifact satisfies the policies of every member, and those of the logical environment.",
    ),
    logical(
        "The artifact violates the policy of the logical environment",
        (NOTHING, CONTROL),
        &[(UNIT, false, Runs::Artifact)],
        ["no", "no", "no"],
        "",
    ),
];

impl LogicalCase {
    async fn verdicts(&self, api: &Api, number: usize) -> [&'static str; 3] {
        let scene = Scene::new(api, number, self.template, "").await;
        assert!(scene.make(Report(Artifact, "app"), None).await);
        assert!(scene.make(Attest("unit", Artifact, true), None).await);
        let (logical, artifact) = (format!("logical-{number}"), &scene.artifact);
        let attach = async |environment: &str, rules: &str| {
            if !rules.is_empty() {
                let (name, text) = (
                    format!("of-{environment}"),
                    format!("_schema: https://example.com/v1\nartifacts: {rules}\n"),
                );
                api.put_policy(&name, &text).await.created();
                api.attach(environment, &name).await;
            }
        };
        let mut names = Vec::new();
        for (place, (rules, requires_provenance, runs)) in self.members.iter().enumerate() {
            let name = format!("member-{number}-{place}");
            let put = api.put_environment(&name, "docker");
            put.with(json!({"require_provenance": requires_provenance})).await.created();
            attach(&name, rules).await;
            let running = match runs {
                Runs::Artifact => json!([{"digests": {"app": artifact}, "creationTimestamp": 1}]),
                Runs::Nothing => json!([]),
                Runs::Unknown => Value::Null,
            };
            if !running.is_null() {
                let report = api.put(&format!("/environments/acme/{name}/report/docker"));
                report.json(json!({"artifacts": running})).await.created();
            }
            names.push(name);
        }
        api.put_logical_environment(&logical, &names).await.created();
        attach(&logical, self.own).await;
        let yes_or_no = |verdict: &Value| match verdict.as_bool() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        let state = api.get(&format!("/environments/acme/{logical}")).await.ok()["state"].clone();
        let snapshot = api.get(&format!("/snapshots/acme/{logical}/-1")).await.ok()["compliant"].clone();
        let gate = scene.gate(&format!("?environment_name={logical}")).await;
        [yes_or_no(&state), yes_or_no(&snapshot), gate]
    }
}

#[apply(with_every_store)]
async fn a_logical_environment_has_one_verdict_in_all_places(api: Api, _: Arc<dyn Store>) {
    api.post_control("C-1").await.created();
    for (number, case) in LOGICAL_CASES.iter().enumerate() {
        assert_eq!(case.verdicts(&api, number).await, case.places, "{}", case.text);
        let is_green = case.places.contains(&"yes");
        assert_eq!(is_green, !case.why.is_empty(), "a green cell says why: {}", case.text);
    }
}
