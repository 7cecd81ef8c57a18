//! One verdict wherever it is shown: a table of cases, from which `docs/verdicts.md` is made, and random histories that are
//! compared with a small model.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use evidence_core::fact::Fact;
use evidence_core::policies::PolicyVersion;
use evidence_core::texts::TextRef;
use evidence_core::{Limits, Settings, Store};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::mounts::Mount;
use crate::support::{Api, NOW, StoreUnderTest, acme, fixture, in_memory, stores, with_every_store};
use crate::unreadable::inject;

/// What an attestation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Trail,
    Artifact,
    /// Other content.
    Other,
}

/// Something that happens in a case. The artifact is the content that the case is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A report of the artifact, or of other content, by this template name.
    Report(On, &'static str),
    Attest(&'static str, On, bool),
    Override(&'static str, On, bool),
    /// A decision of this name about this control.
    Decide(&'static str, &'static str, On, bool),
    /// Test results without a test.
    NoTests(&'static str),
    Tag(&'static str, &'static str),
    Allow,
    /// The artifact runs in the environment, under all of these names.
    Run(&'static [&'static str]),
    /// The environment requires provenance.
    RequireProvenance,
    ArchiveFlow,
    BreakTemplate,
    BreakPolicy,
}

use On::{Artifact, Other, Trail};
use Step::{
    Allow, ArchiveFlow, Attest, BreakPolicy, BreakTemplate, Decide, NoTests, Override, Report,
    RequireProvenance, Run, Tag,
};

/// A case, and the verdict in each place.
struct Case {
    group: &'static str,
    text: &'static str,
    template: &'static str,
    /// The rules of the environment's policy; none for an environment without policies.
    policy: &'static str,
    steps: &'static [Step],
    /// `Artifact.state`; `–` for what was never reported.
    state: &'static str,
    /// The gate by flow, by policy and by environment, and what runs in the environment.
    places: [&'static str; 4],
    why: &'static str,
}

/// `app` needs the attestation `unit`.
const APP: &str = "trail: {artifacts: [{name: app, attestations: [{name: unit, type: generic}]}]}";
const NOTHING: &str = "version: 1";
const BOTH: &str = "{trail-compliance: {required: true}, attestations: [{name: unit, type: generic}]}";
const COMPLIANT: &str = "{trail-compliance: {required: true}}";
const UNIT: &str = "{attestations: [{name: unit, type: generic}]}";
const CONTROL: &str = "{attestations: [{type: decision, for_control: C-1}]}";
const PROVENANCE: &str = "{provenance: {required: true}}";
/// More rules than the service of these cases evaluates of one artifact.
const TOO_MANY: &str = "too many";
/// How many rules that are.
const MOST_RULES: usize = 20;

const YES: [&str; 4] = ["yes"; 4];
const NO: [&str; 4] = ["no"; 4];

const CASES: &[Case] = &[
    Case {
        group: "present",
        text: "The template's attestation is there and compliant",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, true)],
        state: "COMPLIANT",
        places: YES,
        why: "Everything that the template and the policy require is there and compliant.",
    },
    Case {
        group: "present",
        text: "It is there and failed",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, false)],
        state: "NON-COMPLIANT",
        places: NO,
        why: "",
    },
    Case {
        group: "present",
        text: "An attestation that nothing asks for failed",
        template: APP,
        policy: COMPLIANT,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, true), Attest("scan", Trail, false)],
        state: "NON-COMPLIANT",
        places: NO,
        why: "",
    },
    Case {
        group: "present",
        text: "The policy's attestation is on the trail, and the artifact has none of its name",
        template: NOTHING,
        policy: UNIT,
        steps: &[Report(Artifact, "app"), Attest("unit", Trail, true)],
        state: "COMPLIANT",
        places: YES,
        why: "An attestation of the trail counts for each of its artifacts that has none of its name.",
    },
    Case {
        group: "present",
        text: "The artifact's own attestation failed, the trail's of the same name is compliant",
        template: NOTHING,
        policy: UNIT,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, false), Attest("unit", Trail, true)],
        state: "NON-COMPLIANT",
        places: NO,
        why: "",
    },
    Case {
        group: "present",
        text: "Test results without any test",
        template: "trail: {artifacts: [{name: app, attestations: [{name: unit, type: junit}]}]}",
        policy: COMPLIANT,
        steps: &[Report(Artifact, "app"), NoTests("unit")],
        state: "COMPLIANT",
        places: YES,
        why: "No test failed; answers show that there were 0 tests.",
    },
    Case {
        group: "present",
        text: "A policy accepts a failed attestation (`must_be_compliant: false`)",
        template: NOTHING,
        policy: "{attestations: [{name: unit, type: generic, must_be_compliant: false}]}",
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, false)],
        state: "NON-COMPLIANT",
        places: ["no", "yes", "yes", "yes"],
        why: "The policy asks only that the attestation is there, and does not ask for trail compliance.",
    },
    Case {
        group: "present",
        text: "The artifact fails and is on the environment's allowlist",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app"), Allow],
        state: "INCOMPLETE",
        places: ["no", "no", "yes", "yes"],
        why: "Somebody allowed the artifact in this environment; answers name who and why.",
    },
    Case {
        group: "absent",
        text: "The template's attestation is missing",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app")],
        state: "INCOMPLETE",
        places: NO,
        why: "",
    },
    Case {
        group: "absent",
        text: "The template's attestation is on the trail only",
        template: APP,
        policy: COMPLIANT,
        steps: &[Report(Artifact, "app"), Attest("unit", Trail, true)],
        state: "INCOMPLETE",
        places: NO,
        why: "",
    },
    Case {
        group: "absent",
        text: "The policy's decision about a control is missing",
        template: NOTHING,
        policy: CONTROL,
        steps: &[Report(Artifact, "app")],
        state: "COMPLIANT",
        places: ["yes", "no", "no", "no"],
        why: "The template asks for nothing; the gate by flow asks no policy.",
    },
    Case {
        group: "absent",
        text: "Nothing is required",
        template: NOTHING,
        policy: PROVENANCE,
        steps: &[Report(Artifact, "app")],
        state: "COMPLIANT",
        places: YES,
        why: "The template asks for nothing, and the policy for a report to a flow, which there is.",
    },
    Case {
        group: "absent",
        text: "The artifact was never reported",
        template: NOTHING,
        policy: PROVENANCE,
        steps: &[],
        state: "–",
        places: ["404", "404", "404", "no"],
        why: "",
    },
    Case {
        group: "absent",
        text: "The environment has no policies, and the artifact complies in its flow",
        template: APP,
        policy: "",
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, true)],
        state: "COMPLIANT",
        places: ["yes", "–", "yes", "unknown"],
        why: "An environment without policies asks for nothing of its own, so that the flows decide at the gate.",
    },
    Case {
        group: "absent",
        text: "The environment has no policies, and the artifact does not comply in its flow",
        template: APP,
        policy: "",
        steps: &[Report(Artifact, "app")],
        state: "INCOMPLETE",
        places: ["no", "–", "no", "unknown"],
        why: "",
    },
    Case {
        group: "absent",
        text: "The environment has no policies and requires provenance, and the artifact complies in its flow",
        template: APP,
        policy: "",
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, true), RequireProvenance],
        state: "COMPLIANT",
        places: ["yes", "–", "yes", "yes"],
        why: "Without policies, an environment that requires provenance goes by the artifact's flows.",
    },
    Case {
        group: "absent",
        text: "The environment has no policies and requires provenance, and the artifact does not comply in its flow",
        template: APP,
        policy: "",
        steps: &[Report(Artifact, "app"), RequireProvenance],
        state: "INCOMPLETE",
        places: ["no", "–", "no", "no"],
        why: "",
    },
    Case {
        group: "absent",
        text: "The environment has no policies and requires provenance, and the artifact was never reported",
        template: NOTHING,
        policy: "",
        steps: &[RequireProvenance],
        state: "–",
        places: ["404", "–", "404", "no"],
        why: "",
    },
    Case {
        group: "absent",
        text: "The environment requires provenance, which its policy waives, and the artifact was never reported",
        template: NOTHING,
        policy: "{provenance: {required: true, exceptions: [{if: '${{ not exists(flow) }}'}]}}",
        steps: &[RequireProvenance],
        state: "–",
        places: ["404", "404", "404", "no"],
        why: "",
    },
    Case {
        group: "absent",
        text: "The environment requires provenance, and the artifact was never reported and is on the allowlist",
        template: NOTHING,
        policy: PROVENANCE,
        steps: &[RequireProvenance, Allow],
        state: "–",
        places: ["404", "404", "yes", "yes"],
        why: "Somebody allowed the artifact in this environment; answers name who and why.",
    },
    Case {
        group: "absent",
        text: "The attestation is missing, and somebody overrode it",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app"), Override("unit", Artifact, true)],
        state: "COMPLIANT",
        places: YES,
        why: "Somebody overrode the verdict of this attestation, with a reason; answers show both.",
    },
    Case {
        group: "absent",
        text: "The artifact was reported without a template reference name",
        template: APP,
        policy: COMPLIANT,
        steps: &[Report(Artifact, "")],
        state: "COMPLIANT",
        places: YES,
        why: "The template requires nothing of artifacts without a name; `state_info`, the gate and the PDF say so.",
    },
    Case {
        group: "superseded",
        text: "A failed attestation was repeated and is compliant",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, false), Attest("unit", Artifact, true)],
        state: "COMPLIANT",
        places: YES,
        why: "The newest attestation of a name decides in its scope.",
    },
    Case {
        group: "superseded",
        text: "A compliant attestation was repeated and failed",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, true), Attest("unit", Artifact, false)],
        state: "NON-COMPLIANT",
        places: NO,
        why: "",
    },
    Case {
        group: "superseded",
        text: "The artifact's failed attestation is overridden",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, false), Override("unit", Artifact, true)],
        state: "COMPLIANT",
        places: YES,
        why: "Somebody overrode the verdict of this attestation, with a reason; answers show both.",
    },
    Case {
        group: "superseded",
        text: "The artifact's compliant attestation is overridden as not compliant",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, true), Override("unit", Artifact, false)],
        state: "NON-COMPLIANT",
        places: NO,
        why: "",
    },
    Case {
        group: "superseded",
        text: "The attestation was reported again and failed after it was overridden",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app"), Override("unit", Artifact, true), Attest("unit", Artifact, false)],
        state: "NON-COMPLIANT",
        places: NO,
        why: "",
    },
    Case {
        group: "superseded",
        text: "The override is about the trail, and the failed attestation about the artifact",
        template: NOTHING,
        policy: UNIT,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, false), Override("unit", Trail, true)],
        state: "NON-COMPLIANT",
        places: NO,
        why: "",
    },
    Case {
        group: "superseded",
        text: "A decision is current",
        template: NOTHING,
        policy: CONTROL,
        steps: &[Report(Artifact, "app"), Decide("go", "C-1", Artifact, true)],
        state: "COMPLIANT",
        places: YES,
        why: "The newest decision about the control is compliant, and nothing of its name superseded it.",
    },
    Case {
        group: "superseded",
        text: "An attestation of its name that is no decision superseded the decision",
        template: NOTHING,
        policy: CONTROL,
        steps: &[Report(Artifact, "app"), Decide("go", "C-1", Artifact, true), Attest("go", Artifact, true)],
        state: "COMPLIANT",
        places: ["yes", "no", "no", "no"],
        why: "The template asks for nothing; the gate by flow asks no policy.",
    },
    Case {
        group: "superseded",
        text: "A decision about another control superseded the decision",
        template: NOTHING,
        policy: CONTROL,
        steps: &[
            Report(Artifact, "app"),
            Decide("go", "C-1", Artifact, true),
            Decide("go", "C-2", Artifact, true),
        ],
        state: "COMPLIANT",
        places: ["yes", "no", "no", "no"],
        why: "The template asks for nothing; the gate by flow asks no policy.",
    },
    Case {
        group: "superseded",
        text: "The artifact's own decision was negative, the trail's newer one of the same name is positive",
        template: NOTHING,
        policy: CONTROL,
        steps: &[
            Report(Artifact, "app"),
            Decide("go", "C-1", Artifact, false),
            Decide("go", "C-1", Trail, true),
        ],
        state: "NON-COMPLIANT",
        places: NO,
        why: "",
    },
    Case {
        group: "superseded",
        text: "The artifact was reported again by a name that needs nothing",
        template: APP,
        policy: COMPLIANT,
        steps: &[Report(Artifact, "app"), Report(Artifact, "zz")],
        state: "INCOMPLETE",
        places: NO,
        why: "",
    },
    Case {
        group: "superseded",
        text: "Other content was reported by the artifact's name",
        template: APP,
        policy: COMPLIANT,
        steps: &[Report(Artifact, "app"), Report(Other, "app"), Attest("unit", Other, true)],
        state: "INCOMPLETE",
        places: NO,
        why: "",
    },
    Case {
        group: "superseded",
        text: "The flow of the compliant artifact was archived",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, true), ArchiveFlow],
        state: "–",
        places: YES,
        why: "A flow that is archived is hidden, and takes no more reports. The verdicts in it stay.",
    },
    Case {
        group: "superseded",
        text: "The flow of the failed artifact was archived",
        template: APP,
        policy: BOTH,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, false), ArchiveFlow],
        state: "–",
        places: NO,
        why: "",
    },
    Case {
        group: "unknown",
        text: "The template expects no artifact of the name",
        template: APP,
        policy: COMPLIANT,
        steps: &[Report(Artifact, "mistyped")],
        state: "COMPLIANT",
        places: YES,
        why: "An unexpected artifact needs only what the trail needs; `state_info`, the gate and the PDF say so.",
    },
    Case {
        group: "unknown",
        text: "An exception is true",
        template: APP,
        policy: "{trail-compliance: {required: true, exceptions: [{if: \"${{ flow.tags.risk == 'low' }}\"}]}}",
        steps: &[Report(Artifact, "app"), Tag("risk", "low")],
        state: "INCOMPLETE",
        places: ["no", "yes", "yes", "yes"],
        why: "An exception of the policy waives the rule where it is true.",
    },
    Case {
        group: "unknown",
        text: "The artifact runs under several names, and an exception is true of each",
        template: APP,
        policy: "{trail-compliance: {required: true, exceptions: [{if: \"${{ artifact.name != 'db' }}\"}]}}",
        steps: &[Report(Artifact, "app"), Run(&["app", "web"])],
        state: "INCOMPLETE",
        places: ["no", "yes", "yes", "yes"],
        why: "An exception of the policy waives the rule where it is true of every name under which the artifact runs.",
    },
    Case {
        group: "unknown",
        text: "An exception is unknown: it is not true of each name under which the artifact runs",
        template: APP,
        policy: "{trail-compliance: {required: true, exceptions: [{if: \"${{ artifact.name == 'app' }}\"}]}}",
        steps: &[Report(Artifact, "app"), Run(&["app", "web"])],
        state: "INCOMPLETE",
        places: NO,
        why: "",
    },
    Case {
        group: "unknown",
        text: "An exception is unknown: the flow lacks the tag",
        template: APP,
        policy: "{trail-compliance: {required: true, exceptions: [{if: \"${{ flow.tags.risk != 'high' }}\"}]}}",
        steps: &[Report(Artifact, "app")],
        state: "INCOMPLETE",
        places: NO,
        why: "",
    },
    Case {
        group: "unknown",
        text: "An exception is unknown: the tag is not a number",
        template: APP,
        policy: "{trail-compliance: {required: true, exceptions: [{if: '${{ not flow.tags.risk > 3 }}'}]}}",
        steps: &[Report(Artifact, "app"), Tag("risk", "high")],
        state: "INCOMPLETE",
        places: NO,
        why: "",
    },
    Case {
        group: "unknown",
        text: "An exception is unknown: the artifact was reported in no flow",
        template: NOTHING,
        policy: "{provenance: {required: true, exceptions: [{if: \"${{ flow.name != 'critical' }}\"}]}}",
        steps: &[],
        state: "–",
        places: ["404", "404", "404", "no"],
        why: "",
    },
    Case {
        group: "unknown",
        text: "The policy waives provenance of artifacts that no flow knows (`not exists(flow)`)",
        template: NOTHING,
        policy: "{provenance: {required: true, exceptions: [{if: '${{ not exists(flow) }}'}]}}",
        steps: &[],
        state: "–",
        places: ["404", "404", "404", "yes"],
        why: "`exists(flow)` is always known, so that this exception is true of artifacts that no flow knows.",
    },
    Case {
        group: "unknown",
        text: "The `if` of a rule is false",
        template: NOTHING,
        policy: "{attestations: [{name: unit, type: generic, if: \"${{ flow.tags.kind == 'build' }}\"}]}",
        steps: &[Report(Artifact, "app"), Tag("kind", "text")],
        state: "COMPLIANT",
        places: YES,
        why: "A rule is not asked where its `if` is false.",
    },
    Case {
        group: "unknown",
        text: "The `if` of a rule is unknown",
        template: NOTHING,
        policy: "{attestations: [{name: unit, type: generic, if: \"${{ flow.tags.kind == 'build' }}\"}]}",
        steps: &[Report(Artifact, "app")],
        state: "COMPLIANT",
        places: ["yes", "no", "no", "no"],
        why: "The template asks for nothing; the gate by flow asks no policy.",
    },
    Case {
        group: "unreadable",
        text: "The template cannot be read",
        template: NOTHING,
        policy: COMPLIANT,
        steps: &[Report(Artifact, "app"), BreakTemplate],
        state: "INCOMPLETE",
        places: NO,
        why: "",
    },
    Case {
        group: "unreadable",
        text: "The policy cannot be read",
        template: NOTHING,
        policy: PROVENANCE,
        steps: &[Report(Artifact, "app"), BreakPolicy],
        state: "COMPLIANT",
        places: ["yes", "no", "no", "no"],
        why: "The template asks for nothing; the gate by flow asks no policy.",
    },
    Case {
        group: "too large",
        text: "The policy evaluates more than the host permits",
        template: NOTHING,
        policy: TOO_MANY,
        steps: &[Report(Artifact, "app"), Attest("unit", Artifact, true)],
        state: "COMPLIANT",
        places: ["yes", "no", "no", "no"],
        why: "The template asks for nothing; the gate by flow asks no policy.",
    },
];

/// A place where a case or a history happens: a flow, a trail, an environment and a policy of its own, in one organization.
struct Scene<'a> {
    api: &'a Api,
    flow: String,
    environment: String,
    policy: String,
    artifact: String,
    other: String,
    /// The names under which the artifact runs.
    runs_as: Mutex<&'static [&'static str]>,
}

impl<'a> Scene<'a> {
    async fn new(api: &'a Api, number: usize, template: &str, rules: &str) -> Self {
        let scene = Self {
            api,
            flow: format!("flow-{number}"),
            environment: format!("environment-{number}"),
            policy: format!("policy-{number}"),
            artifact: format!("{number:063}a"),
            other: format!("{number:063}b"),
            runs_as: Mutex::new(&["app"]),
        };
        let document = json!({"name": scene.flow, "description": ""}).to_string();
        let file = ("name=\"template_file\"; filename=\"t.yml\"", template);
        let flow = api.put("/flows/acme/template_file").form(&[("name=\"data_json\"", &document), file]);
        flow.await.created();
        let environment = json!({"name": scene.environment, "type": "docker", "description": ""});
        api.put("/environments/acme").json(environment).await.created();
        if !rules.is_empty() {
            let text = format!("_schema: https://example.com/v1\nartifacts: {rules}\n");
            api.put_policy(&scene.policy, &text).await.created();
            api.attach(&scene.environment, &scene.policy).await;
        }
        scene
    }

    fn content(&self, on: On) -> Option<&str> {
        match on {
            Trail => None,
            Artifact => Some(&self.artifact),
            Other => Some(&self.other),
        }
    }

    /// Makes the step, and tells whether the API did so.
    async fn make(&self, step: Step, store: Option<&dyn Store>) -> bool {
        let (api, flow) = (self.api, &self.flow);
        let attest = async |kind: &str, on: On, mut data: Value| {
            if let Some(content) = self.content(on) {
                data["artifact_fingerprint"] = json!(content);
            }
            let path = format!("/attestations/acme/{flow}/trail/t/{kind}");
            api.post(&path).form(&[("name=\"data_json\"", &data.to_string())]).await.status.is_success()
        };
        match step {
            Report(on, name) => {
                let mut artifact = json!({
                    "trail_name": "t", "fingerprint": self.content(on), "filename": "app", "build_url": "", "commit_url": "",
                });
                if !name.is_empty() {
                    artifact["template_reference_name"] = json!(name);
                }
                api.post(&format!("/artifacts/acme/{flow}")).json(artifact).await.status.is_success()
            }
            Attest(name, on, is_compliant) => {
                let data = json!({"attestation_name": name, "is_compliant": is_compliant});
                attest("generic", on, data).await
            }
            NoTests(name) => {
                let suite =
                    json!({"name": "s", "failures": 0, "errors": 0, "skipped": 0, "total": 0, "duration": 0});
                attest("junit", Artifact, json!({"attestation_name": name, "junit_results": [suite]})).await
            }
            Decide(name, control, on, is_compliant) => {
                let data = json!({
                    "attestation_name": name, "type_name": "decision", "control": control,
                    "attestation_data": {"is_compliant": is_compliant},
                });
                attest("system", on, data).await
            }
            Override(name, on, is_compliant) => {
                let mut data = json!({
                    "attestation_name": name, "reason": "seen", "new_compliance_status": is_compliant,
                    "original_attestation_type": "generic",
                });
                if let Some(content) = self.content(on) {
                    data["artifact_fingerprint"] = json!(content);
                }
                let path = format!("/attestations/acme/{flow}/trail/t/override");
                api.post(&path).json(data).await.status.is_success()
            }
            Tag(key, value) => {
                let tags = json!({"set_tags": {key: value}});
                api.patch(&format!("/tags/acme/flow/{flow}")).json(tags).await.status.is_success()
            }
            Allow => {
                let allowed = json!({
                    "artifact_name": "app", "artifact_fingerprint": self.artifact, "description": "it is known",
                });
                let path = format!("/allowlists/acme/{}", self.environment);
                api.put(&path).json(allowed).await.status.is_success()
            }
            Run(names) => {
                *self.runs_as.lock().unwrap() = names;
                self.run().await;
                true
            }
            RequireProvenance => {
                let required = json!({
                    "name": self.environment, "type": "docker", "description": "", "require_provenance": true,
                });
                api.put("/environments/acme").json(required).await.status.is_success()
            }
            ArchiveFlow => api.put(&format!("/flows/acme/{flow}/archive")).await.status.is_success(),
            BreakTemplate | BreakPolicy => {
                self.damage(step, store.unwrap()).await;
                true
            }
        }
    }

    /// Reports that the artifact runs, and nothing else.
    async fn run(&self) {
        let names = *self.runs_as.lock().unwrap();
        let one = |name: &&str| json!({"digests": {*name: self.artifact}, "creationTimestamp": 1});
        let running = json!({"artifacts": names.iter().map(one).collect::<Vec<_>>()});
        let path = format!("/environments/acme/{}/report/docker", self.environment);
        let report = self.api.put(&path).json(running).await;
        assert!(report.status.is_success(), "{report:?}");
    }

    /// Makes the template or the policy one that cannot be read, as damage does.
    async fn damage(&self, step: Step, store: &dyn Store) {
        let (acme, broken) = (acme(store).await, "trail: ]".to_owned());
        if step == BreakTemplate {
            inject(store, acme, Fact::TextKept { text: broken.clone() }).await;
            let flow = store.flow(acme, &self.flow).await.unwrap().unwrap().record.id;
            let mut record = store.trail(acme, flow, "t").await.unwrap().unwrap().record;
            record.template = Some(TextRef::of(&broken));
            inject(store, acme, Fact::TrailUpdated { record, changes: vec![] }).await;
            return;
        }
        let mut record = store.policy(acme, &self.policy).await.unwrap().unwrap().record;
        record.version += 1;
        let version = PolicyVersion {
            policy: record.id,
            version: record.version,
            comment: String::new(),
            policy_yaml: broken,
            at: NOW,
            by: record.created_by.clone(),
        };
        inject(store, acme, Fact::PolicyUpdated { record, version: Some(version), comment: None }).await;
    }

    /// Whoever let the artifact pass is named, with the reason.
    async fn shows_who_decided(&self, case: &Case) {
        let Self { api, flow, environment, artifact, .. } = self;
        let gate = format!("/asserts/acme/fingerprint/{artifact}?environment_name={environment}");
        if case.steps.contains(&Allow) {
            let snapshot = api.get(&format!("/snapshots/acme/{environment}/-1")).await.ok();
            for shown in [&snapshot["artifacts"][0], &api.get(&gate).await.ok()] {
                let allowed = &shown["allow_listing"];
                let by = (&allowed["allowed_by"], &allowed["description"]);
                assert_eq!(by, (&json!("jane"), &json!("it is known")), "{}: {shown}", case.text);
            }
        }
        if matches!(case.steps.last(), Some(Override(_, Artifact, _))) {
            let trail = api.get(&format!("/trails/acme/{flow}/t")).await.ok();
            for shown in [&trail, &api.get(&gate).await.ok()] {
                let info = r#""override_info":"overridden by jane: seen""#;
                assert!(shown.to_string().contains(info), "{}: {shown}", case.text);
            }
        }
    }

    /// The gate's answer to this query.
    async fn gate(&self, query: &str) -> &'static str {
        let reply = self.api.get(&format!("/asserts/acme/fingerprint/{}{query}", self.artifact)).await;
        match (reply.status.as_u16(), reply.json()["compliant"].as_bool()) {
            (404, _) => "404",
            (200, Some(true)) => "yes",
            (200, Some(false)) => "no",
            answer => panic!("{answer:?}"),
        }
    }

    /// The verdicts in all places; those that have to agree whatever happened are compared.
    async fn verdicts(&self, has_policy: bool) -> (String, [&'static str; 4]) {
        let Self { api, flow, environment, policy, artifact, .. } = self;
        let found = api.get(&format!("/artifacts/acme/{flow}/fingerprint/{artifact}")).await;
        let state = match found.status.as_u16() {
            404 => "–".to_owned(),
            _ => found.json()["state"].as_str().unwrap().to_owned(),
        };
        let by_flow = self.gate("").await;
        let by_policy = if has_policy { self.gate(&format!("?policy_name={policy}")).await } else { "–" };
        let before = self.gate(&format!("?environment_name={environment}")).await;
        self.run().await;
        let by_environment = self.gate(&format!("?environment_name={environment}")).await;
        assert_eq!(before, by_environment, "the gate before and after the artifact runs");
        let snapshot = api.get(&format!("/snapshots/acme/{environment}/-1")).await.ok();
        let runs = match snapshot["artifacts"][0]["compliant"].as_bool() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        let shown = api.get(&format!("/environments/acme/{environment}")).await.ok();
        let expected = match runs {
            "unknown" => json!([null, false]),
            runs => json!([runs == "yes", runs == "yes"]),
        };
        assert_eq!(json!([shown["state"], snapshot["compliant"]]), expected, "{snapshot}");
        let reasons = snapshot["artifacts"][0]["reasons_for_incompliance"].as_array().unwrap();
        assert_eq!(reasons.is_empty(), runs != "no", "{snapshot}");
        if state != "–" {
            // The trail lists the artifact by each name that it still has.
            let trail = api.get(&format!("/trails/acme/{flow}/t")).await.ok();
            let listed = trail["compliance_status"]["artifacts_statuses"].as_object().unwrap().values();
            for listed in listed.filter(|listed| listed["artifact_fingerprint"] == *artifact) {
                assert_eq!(listed["status"], *state, "{trail}");
            }
            assert_eq!(by_flow == "yes", state == "COMPLIANT", "{state}");
            if by_environment != "404" && runs != "unknown" {
                assert_eq!(by_environment, runs, "{snapshot}");
            }
        }
        (state, [by_flow, by_policy, by_environment, runs])
    }
}

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
            let control = json!({"identifier": control, "name": "A control"});
            api.post("/controls/acme").json(control).await.created();
        }
        for (number, case) in (1..).zip(CASES) {
            let rules = if case.policy == TOO_MANY { too_many.as_str() } else { case.policy };
            let scene = Scene::new(&api, number, case.template, rules).await;
            for step in case.steps {
                assert!(scene.make(*step, Some(&*store)).await, "{} in {}: {step:?}", name, case.text);
            }
            let (state, places) = scene.verdicts(!case.policy.is_empty()).await;
            scene.shows_who_decided(case).await;
            assert_eq!((state.as_str(), places), (case.state, case.places), "{} in {}", name, case.text);
            let is_green = case.state == "COMPLIANT" || case.places.contains(&"yes");
            assert_eq!(is_green, !case.why.is_empty(), "a green cell says why: {}", case.text);
        }
        drop(guard);
    }
}

/// What a member of a logical environment runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    Artifact,
    Nothing,
    /// Nobody knows: it never reported.
    Unknown,
}

/// A logical environment, and its verdict in each place. The artifact has a compliant `unit` in its flow, and no decision.
struct LogicalCase {
    text: &'static str,
    template: &'static str,
    /// The rules of the policy that is attached to the logical environment; empty without one.
    own: &'static str,
    /// The rules of each member's policy, whether it requires provenance, and what runs there.
    members: &'static [(&'static str, bool, Runs)],
    /// The state, the latest snapshot, and the gate.
    places: [&'static str; 3],
    why: &'static str,
}

/// `app` needs the attestation `scan`, which the artifact of these cases lacks.
const LACKING: &str = "trail: {artifacts: [{name: app, attestations: [{name: scan, type: generic}]}]}";

const LOGICAL_CASES: &[LogicalCase] = &[
    LogicalCase {
        text: "Each member complies",
        template: NOTHING,
        own: "",
        members: &[(UNIT, false, Runs::Artifact), (COMPLIANT, false, Runs::Artifact)],
        places: ["yes", "yes", "yes"],
        why: "The artifact satisfies the policies of every member.",
    },
    LogicalCase {
        text: "The artifact violates a policy of a member",
        template: NOTHING,
        own: "",
        members: &[(UNIT, false, Runs::Artifact), (CONTROL, false, Runs::Artifact)],
        places: ["no", "no", "no"],
        why: "",
    },
    LogicalCase {
        text: "The artifact violates a policy of a member in which it does not run",
        template: NOTHING,
        own: "",
        members: &[(UNIT, false, Runs::Artifact), (CONTROL, false, Runs::Nothing)],
        places: ["yes", "yes", "no"],
        why: "What runs satisfies the policies of the member in which it runs.",
    },
    LogicalCase {
        text: "A member has no policies, and the artifact complies in its flow",
        template: NOTHING,
        own: "",
        members: &[(UNIT, false, Runs::Artifact), ("", false, Runs::Artifact)],
        places: ["unknown", "no", "yes"],
        why: "A member without policies asks for nothing of its own, so that the flows decide for it at the gate.",
    },
    LogicalCase {
        text: "A member has no policies, and the artifact does not comply in its flow",
        template: LACKING,
        own: "",
        members: &[(UNIT, false, Runs::Artifact), ("", false, Runs::Artifact)],
        places: ["unknown", "no", "no"],
        why: "",
    },
    LogicalCase {
        text: "A member without policies requires provenance, and the artifact does not comply in its flow",
        template: LACKING,
        own: "",
        members: &[(UNIT, false, Runs::Artifact), ("", true, Runs::Artifact)],
        places: ["no", "no", "no"],
        why: "",
    },
    LogicalCase {
        text: "A member never reported what runs there",
        template: NOTHING,
        own: "",
        members: &[(UNIT, false, Runs::Artifact), (UNIT, false, Runs::Unknown)],
        places: ["unknown", "no", "yes"],
        why: "The gate looks at what policies say of the artifact, not at what runs.",
    },
    LogicalCase {
        text: "The artifact satisfies the policy of the logical environment, too",
        template: NOTHING,
        own: UNIT,
        members: &[(COMPLIANT, false, Runs::Artifact)],
        places: ["yes", "yes", "yes"],
        why: "The artifact satisfies the policies of every member, and those of the logical environment.",
    },
    LogicalCase {
        text: "The artifact violates the policy of the logical environment",
        template: NOTHING,
        own: CONTROL,
        members: &[(UNIT, false, Runs::Artifact)],
        places: ["no", "no", "no"],
        why: "",
    },
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
            let member = json!({
                "name": name, "type": "docker", "description": "", "require_provenance": requires_provenance,
            });
            api.put("/environments/acme").json(member).await.created();
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
        let all =
            json!({"name": logical, "type": "logical", "description": "", "included_environments": names});
        api.put("/environments/acme").json(all).await.created();
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

#[tokio::test]
async fn a_logical_environment_has_one_verdict_in_all_places() {
    with_every_store(async |api, _| {
        api.post("/controls/acme").json(json!({"identifier": "C-1", "name": "A control"})).await.created();
        for (number, case) in LOGICAL_CASES.iter().enumerate() {
            assert_eq!(case.verdicts(&api, number).await, case.places, "{}", case.text);
            let is_green = case.places.contains(&"yes");
            assert_eq!(is_green, !case.why.is_empty(), "a green cell says why: {}", case.text);
        }
    })
    .await;
}

/// The page, with the table of the cases.
fn page() -> String {
    let mut text = include_str!("verdicts/rules.md").to_owned();
    let mut group = "";
    for Case { group: of, text: case, state, places, why, .. } in CASES {
        if *of != group {
            group = of;
            let (first, rest) = of.split_at(1);
            write!(text, "\n### {}{rest}\n\n", first.to_uppercase()).unwrap();
            text.push_str("| case | artifact state | gate by flow | gate by policy | gate by environment | runs in the environment | why it is green |\n");
            text.push_str("|---|---|---|---|---|---|---|\n");
        }
        let [flow, policy, environment, runs] = places;
        writeln!(text, "| {case} | {state} | {flow} | {policy} | {environment} | {runs} | {why} |").unwrap();
    }
    text.push_str("\n### Logical environments\n\n");
    text.push_str(
        "| case | state | latest snapshot | gate by environment | why it is green |\n|---|---|---|---|---|\n",
    );
    for LogicalCase { text: case, places: [state, snapshot, gate], why, .. } in LOGICAL_CASES {
        writeln!(text, "| {case} | {state} | {snapshot} | {gate} | {why} |").unwrap();
    }
    text
}

/// `EVIDENCE_WRITE_VERDICTS=1` writes the page.
#[test]
fn the_page_about_verdicts_has_the_table_of_the_tests() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/verdicts.md");
    if std::env::var_os("EVIDENCE_WRITE_VERDICTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).expect("docs/verdicts.md");
    assert!(written == page(), "docs/verdicts.md is not that of the tests: set EVIDENCE_WRITE_VERDICTS=1");
}

/// What a history is evaluated by: a template, and a policy of four rules.
const HISTORY_TEMPLATE: &str = "trail: {attestations: [{name: go, type: '*'}], \
                                artifacts: [{name: app, attestations: [{name: unit, type: generic}]}]}";
const HISTORY_RULES: [&str; 4] = [
    "{trail-compliance: {required: true}}",
    "{attestations: [{name: unit, type: generic}]}",
    "{attestations: [{type: generic}]}",
    "{attestations: [{type: decision, for_control: C-1}]}",
];

/// Random histories of one trail.
fn histories() -> impl Strategy<Value = Vec<Step>> {
    use proptest::sample::select;
    let on = || select(vec![Trail, Artifact, Artifact, Other]);
    let name = || select(vec!["unit", "go"]);
    let content = select(vec![Artifact, Artifact, Other]);
    let step = prop_oneof![
        2 => (content, select(vec!["app", "zz", ""])).prop_map(|(on, name)| Report(on, name)),
        3 => (name(), on(), any::<bool>()).prop_map(|(name, on, verdict)| Attest(name, on, verdict)),
        1 => (name(), on(), any::<bool>()).prop_map(|(name, on, verdict)| Override(name, on, verdict)),
        2 => (name(), select(vec!["C-1", "C-2"]), on(), any::<bool>())
            .prop_map(|(name, control, on, verdict)| Decide(name, control, on, verdict)),
    ];
    proptest::collection::vec(step, 1..12)
}

/// An attestation that counts: its verdict, its type, its control, and its place in the history.
#[derive(Debug, Clone, Copy)]
struct Counts {
    is_compliant: bool,
    is_override: bool,
    is_decision: bool,
    control: Option<&'static str>,
    at: usize,
}

/// What counts of a name in a scope: the newest attestation, or an override of it.
fn counts(history: &[Step], name: &str, scope: On) -> Option<Counts> {
    let mut found: Option<Counts> = None;
    for (at, step) in history.iter().enumerate() {
        match *step {
            Attest(of, on, is_compliant) if of == name && on == scope => {
                let (is_override, is_decision, control) = (false, false, None);
                found = Some(Counts { is_compliant, is_override, is_decision, control, at });
            }
            Decide(of, control, on, is_compliant) if of == name && on == scope => {
                let (is_override, is_decision, control) = (false, true, Some(control));
                found = Some(Counts { is_compliant, is_override, is_decision, control, at });
            }
            Override(of, on, is_compliant) if of == name && on == scope => {
                let (is_decision, control) =
                    found.map_or((false, None), |known| (known.is_decision, known.control));
                found = Some(Counts { is_compliant, is_override: true, is_decision, control, at });
            }
            _ => {}
        }
    }
    found
}

/// The state of the artifact, and whether it satisfies each of the policies, once more.
fn model(history: &[Step]) -> (&'static str, [bool; 4]) {
    let names = ["unit", "go"];
    let own = names.map(|name| counts(history, name, Artifact));
    let trail = names.map(|name| counts(history, name, Trail));
    let nearest = [0, 1].map(|at| own[at].or(trail[at]));
    let is_app = history.contains(&Report(Artifact, "app"));
    let fails = own.iter().chain(&trail).flatten().any(|one| !one.is_compliant);
    let lacks_unit = is_app && !own[0].is_some_and(|unit| unit.is_override || !unit.is_decision);
    let lacks = lacks_unit || trail[1].is_none();
    let state = match (fails, lacks) {
        (true, _) => "NON-COMPLIANT",
        (false, true) => "INCOMPLETE",
        (false, false) => "COMPLIANT",
    };
    let is_generic = |one: &&Counts| !one.is_decision;
    let generic = nearest.iter().flatten().filter(is_generic).any(|one| one.is_compliant);
    let about = nearest.iter().flatten().filter(|one| one.control == Some("C-1"));
    let decided = about.max_by_key(|one| one.at).is_some_and(|one| one.is_compliant);
    let unit = nearest[0].is_some_and(|unit| !unit.is_decision && unit.is_compliant);
    (state, [state == "COMPLIANT", unit, generic, decided])
}

#[test]
fn every_place_has_the_verdict_of_the_model_whatever_happened() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: 96, failure_persistence: None, ..Config::default() };
    let run = |history: Vec<Step>| {
        runtime.block_on(async {
            let api = Api::new(in_memory().await, Mount::Tower, "memory").await;
            for control in ["C-1", "C-2"] {
                let control = json!({"identifier": control, "name": "A control"});
                api.post("/controls/acme").json(control).await.created();
            }
            for (number, rules) in HISTORY_RULES.iter().enumerate() {
                let scene = Scene::new(&api, number, HISTORY_TEMPLATE, rules).await;
                let mut made = Vec::new();
                for step in &history {
                    if scene.make(*step, None).await {
                        made.push(*step);
                    }
                }
                let reported = made.iter().any(|step| matches!(step, Report(Artifact, _)));
                let (state, places) = scene.verdicts(true).await;
                let (expected, satisfied) = model(&made);
                let yes = |satisfied: bool| if satisfied { "yes" } else { "no" };
                let expected = match reported {
                    true => {
                        let says = yes(satisfied[number]);
                        (expected, [yes(expected == "COMPLIANT"), says, says, says])
                    }
                    // Nothing is known of what nobody reported.
                    false => ("–", ["404", "404", "404", "no"]),
                };
                assert_eq!((state.as_str(), places), expected, "{rules} {made:?}");
            }
        });
        Ok(())
    };
    TestRunner::new(config).run(&histories(), run).unwrap();
}
