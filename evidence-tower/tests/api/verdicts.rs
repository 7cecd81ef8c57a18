//! One verdict wherever it is shown: a table of cases, from which `docs/verdicts.md` is made, and random histories that are
//! compared with a small model.

mod cases;
mod histories;
mod page;

use std::sync::Mutex;

use evidence_core::fact::Fact;
use evidence_core::policies::PolicyVersion;
use evidence_core::texts::TextRef;

use crate::unreadable::inject;

/// The subject of an attestation.
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

use crate::support::prelude::*;
use On::{Artifact, Other, Trail};
use Step::{
    Allow, ArchiveFlow, Attest, BreakPolicy, BreakTemplate, Decide, NoTests, Override, Report,
    RequireProvenance, Run, Tag,
};

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
        api.put_flow(&scene.flow).template(template).await.created();
        api.put_environment(&scene.environment, "docker").await.created();
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
            api.post_attestation(flow, "t", kind).data_json(&data).await.status.is_success()
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
                api.post_attestation(flow, "t", "override").json(data).await.status.is_success()
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
            RequireProvenance => api
                .put_environment(&self.environment, "docker")
                .with(json!({"require_provenance": true}))
                .await
                .status
                .is_success(),
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
