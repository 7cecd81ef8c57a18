//! The reports of the demo, in a team's usual order.

use http::Method;
use serde_json::{Value, json};

use super::client::{Client, DemoError};
use super::git::{Commit, History};

/// The flow of the demo.
pub(crate) const FLOW: &str = "delivery";
/// The environment of the demo.
pub(crate) const ENVIRONMENT: &str = "production";

const POLICY: &str = "from-ci";
const TEMPLATE: &str = "\
version: 1
trail:
  attestations:
    - name: tests
      type: junit
  artifacts:
    - name: server
      attestations:
        - name: review
          type: generic
";
/// The fingerprint of an artifact that was reported to no trail. The environment is not compliant while it
/// runs.
const UNKNOWN_ARTIFACT: &str = "0f7d3b0a9c5e41d2860f4b7c1e9a5d3826b4f0c7e1a9d5b3827c6f4e0a1d9b58";

/// The reports of the demo.
#[derive(Debug)]
pub(crate) struct Story<'a> {
    history: &'a History,
    /// The fingerprint of the artifact.
    pub(crate) fingerprint: String,
    url: &'a str,
}

impl<'a> Story<'a> {
    /// Creates the reports for `history`. The artifact is the program with this fingerprint; links begin with
    /// `url`.
    pub(crate) const fn new(history: &'a History, fingerprint: String, url: &'a str) -> Self {
        Self { history, fingerprint, url }
    }

    /// Returns the name of the newest trail.
    pub(crate) fn newest_trail(&self) -> &str {
        self.history.commits.last().map(trail_name).unwrap_or_default()
    }

    /// Reports everything.
    pub(crate) async fn report_all(&self, client: &Client<'_>) -> Result<(), DemoError> {
        let flow =
            json!({ "name": FLOW, "description": "From commit to production", "visibility": "private" });
        let template = Some(("template_file", "template.yml", TEMPLATE));
        client.form(Method::PUT, "flows", "/template_file", ("data_json", &flow), template).await?;
        for (position, commit) in self.history.commits.iter().enumerate() {
            // One trail has a failing test.
            let failures = u8::from(position == 1);
            self.deliver(client, commit, failures).await?;
        }
        self.run_in_production(client).await
    }

    /// Reports a trail: its commit, the artifact, the review of the artifact and the tests.
    async fn deliver(&self, client: &Client<'_>, commit: &Commit, failures: u8) -> Result<(), DemoError> {
        let trail = trail_name(commit);
        let git = self.commit_info(commit);
        let begun = json!({ "name": trail, "description": subject(commit), "git_commit_info": git });
        client.form(Method::PUT, "trails", &format!("/{FLOW}"), ("data_json", &begun), None).await?;
        let artifact = json!({
            "trail_name": trail,
            "template_reference_name": "server",
            "fingerprint": self.fingerprint,
            "filename": "evidence-server",
            "git_commit": commit.sha1,
            "git_commit_info": git,
            "build_url": format!("{}/builds/{trail}", self.url),
            "commit_url": format!("{}/commits/{}", self.url, commit.sha1),
            "repo_url": "",
        });
        client.json(Method::POST, "artifacts", &format!("/{FLOW}"), &artifact).await?;
        let attestations = format!("/{FLOW}/trail/{trail}");
        let review = json!({
            "attestation_name": "review",
            "target_artifacts": ["server"],
            "artifact_fingerprint": self.fingerprint,
            "git_commit_info": git,
            "is_compliant": true,
            "description": "Read and approved by a second person",
            "user_data": { "reviewer": "grace@example.com" },
        });
        let kind = format!("{attestations}/generic");
        client.form(Method::POST, "attestations", &kind, ("data_json", &review), None).await?;
        let tests = json!({
            "attestation_name": "tests",
            "git_commit_info": git,
            "junit_results": [{
                "name": "unit", "failures": failures, "errors": 0, "skipped": 0, "total": 128, "duration": 4.2,
            }],
            "user_data": {},
        });
        let kind = format!("{attestations}/junit");
        let results = junit_xml(failures);
        let file = Some(("attachment_file", "junit.xml", results.as_str()));
        client.form(Method::POST, "attestations", &kind, ("data_json", &tests), file).await
    }

    fn commit_info(&self, commit: &Commit) -> Value {
        json!({
            "sha1": commit.sha1,
            "message": commit.message,
            "author": commit.author,
            "timestamp": commit.timestamp,
            "branch": self.history.branch,
        })
    }

    /// Creates a server environment with a policy, and sends three reports.
    async fn run_in_production(&self, client: &Client<'_>) -> Result<(), DemoError> {
        let environment =
            json!({ "name": ENVIRONMENT, "type": "server", "description": "Where customers are served" });
        client.json(Method::PUT, "environments", "", &environment).await?;
        let policy =
            json!({ "name": POLICY, "description": "Only what a trail knows", "comment": "", "type": "env" });
        let yaml = format!(
            "_schema: {}/api/v2/schemas/environment-policy/v1\nartifacts:\n  provenance:\n    required: true\n",
            self.url
        );
        let file = Some(("policy_file", "policy.yml", yaml.as_str()));
        client.form(Method::PUT, "policies", "", ("payload", &policy), file).await?;
        let attached = json!({ "policy_names": [POLICY] });
        client.json(Method::POST, "environments", &format!("/{ENVIRONMENT}/policies"), &attached).await?;
        let server = ("evidence-server", self.fingerprint.as_str());
        for running in [&[server][..], &[server, ("debug-shell", UNKNOWN_ARTIFACT)], &[server]] {
            self.report(client, running).await?;
        }
        Ok(())
    }

    async fn report(&self, client: &Client<'_>, running: &[(&str, &str)]) -> Result<(), DemoError> {
        let since = self.history.commits.last().map_or(0, |commit| commit.timestamp);
        let artifacts: Vec<Value> = running
            .iter()
            .map(|(name, digest)| json!({ "digests": { *name: digest }, "creationTimestamp": since }))
            .collect();
        let report = json!({ "artifacts": artifacts });
        client.json(Method::PUT, "environments", &format!("/{ENVIRONMENT}/report/server"), &report).await
    }
}

/// Returns the trail's name, which is its commit.
fn trail_name(commit: &Commit) -> &str {
    commit.sha1.get(..12).unwrap_or(&commit.sha1)
}

fn subject(commit: &Commit) -> &str {
    commit.message.lines().next().unwrap_or_default()
}

fn junit_xml(failures: u8) -> String {
    let failure = if failures > 0 { "<failure message=\"expected 2, found 3\"/>" } else { "" };
    format!(
        "<testsuite name=\"unit\" tests=\"128\" failures=\"{failures}\" errors=\"0\" time=\"4.2\">\
         <testcase name=\"totals_add_up\">{failure}</testcase></testsuite>\n"
    )
}
