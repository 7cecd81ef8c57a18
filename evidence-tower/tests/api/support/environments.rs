//! Fixtures of the cases about environments: environments, policies and running artifacts.

use serde_json::{Value, json};

use crate::support::{Api, Reply};

/// A policy that asks for provenance.
pub(crate) const PROVENANCE: &str =
    "_schema: https://example.com/schemas/policy/v1\nartifacts:\n  provenance:\n    required: true\n";
/// A policy that asks for compliance in every trail.
pub(crate) const COMPLIANCE: &str =
    "_schema: https://example.com/schemas/policy/v1\nartifacts:\n  trail-compliance:\n    required: true\n";

/// An artifact that runs: the digit its fingerprint consists of, and when its instances were created.
pub(crate) type ReportedArtifact<'a> = (char, &'a [i64]);

/// The fingerprint that consists of one hex digit.
pub(crate) fn fingerprint(digit: char) -> String {
    digit.to_string().repeat(64)
}

impl Api {
    /// Creates environments of one type.
    pub(crate) async fn given_environments(&self, kind: &str, names: &[&str]) {
        for name in names {
            self.put_environment(name, kind).await.expect_exactly(201, json!("OK"));
        }
    }

    /// Attaches a policy.
    pub(crate) async fn attach(&self, environment: &str, policy: &str) {
        self.post(&format!("/environments/acme/{environment}/policies"))
            .json(json!({"policy_names": [policy]}))
            .await
            .expect_exactly(200, json!("OK"));
    }

    /// Reports what runs in a Docker environment.
    pub(crate) async fn report_running(&self, environment: &str, running: &[ReportedArtifact<'_>]) -> Reply {
        let entry = |digit: char, created: &i64| json!({"digests": {format!("image-{digit}"): fingerprint(digit)}, "creationTimestamp": created});
        let artifacts: Vec<Value> = running
            .iter()
            .flat_map(|(digit, created)| created.iter().map(|created| entry(*digit, created)))
            .collect();
        self.put(&format!("/environments/acme/{environment}/report/docker"))
            .json(json!({ "artifacts": artifacts }))
            .await
    }

    /// Reports an artifact to a trail of the flow `web`, as the template's `api`.
    pub(crate) async fn given_artifact(&self, digit: char, trail: &str) {
        let report = self.post_artifact("web", fingerprint(digit)).in_trail(trail).named("api").with(json!({
            "filename": "api:1", "git_commit": "c".repeat(40), "build_url": "http://b/1", "commit_url": "http://c/1",
            "git_commit_info": {"sha1": "c".repeat(40), "message": "m", "author": "a", "branch": "main", "timestamp": 1000},
        }));
        report.await.expect(201, json!({"message": "OK"}));
    }

    /// Attests `test` of an artifact.
    pub(crate) async fn given_test(&self, digit: char, trail: &str, is_compliant: bool) {
        let data = json!({"attestation_name": "test", "artifact_fingerprint": fingerprint(digit), "is_compliant": is_compliant});
        self.post_attestation("web", trail, "generic")
            .data_json(&data)
            .await
            .expect_exactly(201, json!("OK"));
    }

    /// Makes the flow `web`, whose artifact `api` needs the attestation `test`.
    pub(crate) async fn given_flow_with_template(&self) {
        let template =
            "version: 1\ntrail: {artifacts: [{name: api, attestations: [{name: test, type: generic}]}]}\n";
        self.put_flow("web").template(template).await.expect_exactly(201, json!("OK"));
    }

    /// Asserts that the environment has exactly the snapshots 1 to `count`.
    pub(crate) async fn expect_snapshots(&self, environment: &str, count: usize) {
        let indexes: Vec<_> = (1..=count).rev().map(|index| json!({ "index": index })).collect();
        self.get(&format!("/snapshots/acme/{environment}")).await.expect(200, json!(indexes));
    }
}
