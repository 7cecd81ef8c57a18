//! Environment reports: the complete list of what runs somewhere, sent again and again. Each kind of environment has
//! a body of its own; all of them become one `Report`, and only a report that tells something new takes a snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Scope;
use crate::bounded::{List, LongText};
use crate::compute::MANY_EVALUATIONS;
use crate::environments::evaluation::{self, ObservedArtifact, ReportedState};
use crate::environments::record::{Environment, EnvironmentKind};
use crate::error::{Error, INVALID_REPORT, Result};
use crate::fact::Fact;
use crate::fact::names::Key;
use crate::json::JsonFields;
use crate::json::MAX_VALUES;
use crate::limits::{Limits, at_most};
use crate::name::{EnvironmentName, Fingerprint, OrgName};
use crate::operation::{Acknowledged, Json, Method, Operation, Put};
use crate::service::Context;
use crate::snapshots::key::ArtifactKey;

/// What runs in an environment of one kind.
#[derive(Debug)]
struct Report {
    kind: EnvironmentKind,
    running: Arc<ReportedState>,
}

impl Report {
    /// A report of these artifacts. What is reported of many is put together off the runtime.
    async fn of(kind: EnvironmentKind, artifacts: Vec<PlainArtifact>, cx: &Context<'_>) -> Result<Self> {
        let many =
            artifacts.iter().map(|artifact| artifact.digests.0.len()).sum::<usize>() > MANY_EVALUATIONS;
        let put_together = move || Self::new(kind, artifacts.iter().map(PlainArtifact::observed));
        cx.compute().run_if(many, put_together).await
    }

    /// The same. One fingerprint reported several times is one artifact with several instances, under the first name.
    fn new<'a>(kind: EnvironmentKind, artifacts: impl IntoIterator<Item = (&'a Digests, Creation)>) -> Self {
        let mut running = ReportedState::new();
        for (digests, created) in artifacts {
            let mut counted = BTreeSet::new();
            for (name, fingerprint) in &digests.0 {
                if counted.insert(fingerprint) {
                    let unseen = || ObservedArtifact {
                        fingerprint: Some(fingerprint.clone()),
                        name: name.to_string(),
                        created: Vec::new(),
                        context: JsonFields::default(),
                    };
                    let seen = running.entry(ArtifactKey::from(fingerprint)).or_insert_with(unseen);
                    seen.created.push(created.0);
                }
            }
        }
        running.values_mut().for_each(|seen| seen.created.sort_unstable());
        Self { kind, running: Arc::new(running) }
    }

    /// Takes the report in: status 201 when that took a snapshot.
    async fn receive(self, environment: &EnvironmentName, cx: &Context<'_>) -> Result<Put<Acknowledged>> {
        at_most(cx.limits().running_artifacts, self.running.len(), "artifacts")?;
        let record = Key::Environment(environment.clone());
        let created = cx.retry_in_turn(record, || self.receive_once(environment, cx)).await?;
        Ok(Put { created, body: Acknowledged::Ok })
    }

    /// Whether it took a snapshot.
    async fn receive_once(&self, environment: &EnvironmentName, cx: &Context<'_>) -> Result<bool> {
        let known = cx.environment(environment.as_str()).await?;
        self.check_kind(&known.record)?;
        let mut draft = evaluation::evaluate(&known, &self.running, cx).await?;
        let taken = !draft.facts.is_empty();
        if !taken && known.status.reported_at.is_none_or(|last| cx.is_heartbeat_due(last)) {
            draft.fact(Fact::EnvironmentReported { environment: known.record.id });
            draft.guards.extend(known.unreported());
        }
        cx.record(draft).await?;
        Ok(taken)
    }

    fn check_kind(&self, environment: &Environment) -> Result<()> {
        if environment.kind == self.kind {
            return Ok(());
        }
        let (name, is, takes) = (&environment.name, environment.kind.as_str(), self.kind.as_str());
        let text =
            format!("Environment '{name}' is of type '{is}', which takes no reports of type '{takes}'");
        Err(Error::invalid_with(INVALID_REPORT, "env_name", text))
    }
}

/// The names of one running artifact.
const MAX_DIGESTS: usize = 1000;

/// The artifacts of one report: each is four values of JSON at least.
const MAX_RUNNING: usize = MAX_VALUES / 4 - 1;

/// What an artifact consists of: names, and the SHA-256 of each; at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Digests(pub BTreeMap<LongText, Fingerprint>);

impl<'de> Deserialize<'de> for Digests {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digests = BTreeMap::<LongText, Fingerprint>::deserialize(deserializer)?;
        if digests.len() > MAX_DIGESTS {
            let text = format_args!("Dictionary should have at most {MAX_DIGESTS} items");
            return Err(serde::de::Error::custom(text));
        }
        if digests.is_empty() {
            return Err(serde::de::Error::custom("Dictionary should have at least 1 item"));
        }
        Ok(Self(digests))
    }
}

impl JsonSchema for Digests {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Digests".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let digest = generator.subschema_for::<Fingerprint>();
        let name = generator.subschema_for::<LongText>();
        schemars::json_schema!({
            "type": "object", "minProperties": 1, "maxProperties": MAX_DIGESTS, "propertyNames": name,
            "additionalProperties": digest,
        })
    }
}

/// When something was created: an integer of epoch seconds, 0 or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Creation(pub i64);

impl<'de> Deserialize<'de> for Creation {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = i64::deserialize(deserializer)?;
        if seconds < 0 {
            return Err(serde::de::Error::custom("Input should be greater than or equal to 0"));
        }
        Ok(Self(seconds))
    }
}

impl JsonSchema for Creation {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Creation".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 0, "maximum": i64::MAX })
    }
}

/// An artifact running where nothing but its digests and its age is known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlainArtifact {
    /// Its names, and the SHA-256 of each: one at least.
    pub digests: Digests,
    /// When it was created, in epoch seconds: 0 or later.
    #[serde(rename = "creationTimestamp")]
    pub created: Creation,
}

impl PlainArtifact {
    fn observed(&self) -> (&Digests, Creation) {
        (&self.digests, self.created)
    }
}

/// The `type` of a Docker report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub enum DockerKind {
    /// The only one.
    #[default]
    #[serde(rename = "docker")]
    Docker,
}

/// All that runs in a Docker environment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DockerReport {
    /// `docker`, or left out.
    #[serde(default, rename = "type")]
    pub kind: DockerKind,
    /// The running containers. A fingerprint that is there several times is one artifact with several instances.
    pub artifacts: List<PlainArtifact, MAX_RUNNING>,
}

/// Reports all that runs in a Docker environment. A report by which other artifacts run, or by which where they come from
/// or a verdict differs, takes a snapshot (201), and so does the first. Any other, also one that tells only of more or
/// fewer instances, takes none (200) and may be sent again and again. An environment of another type is 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ReportDocker {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

impl Operation for ReportDocker {
    const NAME: &'static str = "docker_report";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/environments/{org}/{env_name}/report/docker";
    const SCOPE: Scope = Scope::Report;
    const SUMMARY: &'static str = "Reports what runs in a Docker environment";
    const INVALID: &'static str = INVALID_REPORT;
    type Body = Json<DockerReport>;
    type Output = Put<Acknowledged>;

    fn body_limit(limits: &Limits) -> u64 {
        limits.report
    }

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(body): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        Report::of(EnvironmentKind::Docker, body.artifacts.0, cx).await?.receive(&self.env_name, cx).await
    }
}

/// The `type` of a server report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub enum ServerKind {
    /// The only one.
    #[default]
    #[serde(rename = "server")]
    Server,
}

/// All that runs on a server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerReport {
    /// `server`, or left out.
    #[serde(default, rename = "type")]
    pub kind: ServerKind,
    /// The running artifacts. A fingerprint that is there several times is one artifact with several instances.
    pub artifacts: List<PlainArtifact, MAX_RUNNING>,
}

/// Reports all that runs on a server. A report by which other artifacts run, or by which where they come from or a
/// verdict differs, takes a snapshot (201), and so does the first. Any other, also one that tells only of more or fewer
/// instances, takes none (200) and may be sent again and again. An environment of another type is 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ReportServer {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

impl Operation for ReportServer {
    const NAME: &'static str = "server_report";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/environments/{org}/{env_name}/report/server";
    const SCOPE: Scope = Scope::Report;
    const SUMMARY: &'static str = "Reports what runs on a server";
    const INVALID: &'static str = INVALID_REPORT;
    type Body = Json<ServerReport>;
    type Output = Put<Acknowledged>;

    fn body_limit(limits: &Limits) -> u64 {
        limits.report
    }

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(body): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        Report::of(EnvironmentKind::Server, body.artifacts.0, cx).await?.receive(&self.env_name, cx).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decode::from_value;
    use crate::fact::EncodedFact;
    use crate::id::{Id, SystemRandom};
    use crate::time::Timestamp;

    const ONE: &str = "1111111111111111111111111111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222222222222222222222222222";

    fn running(artifacts: &Value) -> Vec<(String, String, Vec<i64>)> {
        let body: DockerReport = from_value(&json!({ "artifacts": artifacts })).expect("a valid report");
        let report =
            Report::new(EnvironmentKind::Docker, body.artifacts.0.iter().map(PlainArtifact::observed));
        let flat = |(key, seen): (&ArtifactKey, &ObservedArtifact)| {
            assert_eq!(Some(key.as_str()), seen.fingerprint.as_ref().map(Fingerprint::as_str));
            (key.to_string(), seen.name.clone(), seen.created.clone())
        };
        report.running.iter().map(flat).collect()
    }

    #[test]
    fn a_heartbeat_costs_a_hundred_bytes_at_most() {
        let environment = Id::new(Timestamp::default(), &SystemRandom);
        let heartbeat = Fact::EnvironmentReported { environment };
        let payload = EncodedFact::new(heartbeat, Timestamp::default(), String::new()).unwrap().payload;
        assert!(payload.len() <= 100, "{payload}");
    }

    #[test]
    fn one_fingerprint_in_several_entries_is_one_artifact_with_several_instances() {
        let entry = |name: &str, digest: &str, created: i64| json!({ "digests": { name: digest }, "creationTimestamp": created });
        let seen = |digest: &str, name: &str, created: &[i64]| {
            (digest.to_owned(), name.to_owned(), created.to_vec())
        };
        let table = [
            (json!([]), vec![]),
            (json!([entry("a", ONE, 5)]), vec![seen(ONE, "a", &[5])]),
            (json!([entry("b", ONE, 9), entry("a", ONE, 5)]), vec![seen(ONE, "b", &[5, 9])]),
            (json!([entry("a", ONE, 5), entry("a", ONE, 5)]), vec![seen(ONE, "a", &[5, 5])]),
            (
                json!([entry("b", TWO, 1), entry("a", ONE, 2)]),
                vec![seen(ONE, "a", &[2]), seen(TWO, "b", &[1])],
            ),
            (
                json!([{ "digests": { "a": ONE, "b": ONE, "c": TWO }, "creationTimestamp": 0 }]),
                vec![seen(ONE, "a", &[0]), seen(TWO, "c", &[0])],
            ),
        ];
        for (artifacts, expected) in table {
            assert_eq!(running(&artifacts), expected, "{artifacts}");
        }
    }

    #[test]
    fn what_is_no_docker_report_is_refused_by_field() {
        let table = [
            (json!({}), "artifacts"),
            (json!({ "artifacts": {} }), "artifacts"),
            (json!({ "artifacts": [], "type": "server" }), "type"),
            (json!({ "artifacts": [], "type": null }), "type"),
            (json!({ "artifacts": [], "more": 1 }), "more"),
            (json!({ "artifacts": [""] }), "artifacts[0]"),
            (json!({ "artifacts": [{ "creationTimestamp": 1 }] }), "artifacts[0].digests"),
            (json!({ "artifacts": [{ "digests": {}, "creationTimestamp": 1 }] }), "artifacts[0].digests"),
            (
                json!({ "artifacts": [{ "digests": { "a": "" }, "creationTimestamp": 1 }] }),
                "artifacts[0].digests.a",
            ),
            (json!({ "artifacts": [{ "digests": { "a": ONE } }] }), "artifacts[0].creationTimestamp"),
            (
                json!({ "artifacts": [{ "digests": { "a": ONE }, "creationTimestamp": -1 }] }),
                "artifacts[0].creationTimestamp",
            ),
            (
                json!({ "artifacts": [{ "digests": { "a": ONE }, "creationTimestamp": 1.5 }] }),
                "artifacts[0].creationTimestamp",
            ),
            (
                json!({ "artifacts": [{ "digests": { "a": ONE }, "creationTimestamp": 1, "podName": "p" }] }),
                "artifacts[0].podName",
            ),
        ];
        for (body, field) in table {
            let misfit = from_value::<DockerReport>(&body).expect_err(&body.to_string());
            assert_eq!(misfit.field(), field, "{body}");
        }
    }
}
