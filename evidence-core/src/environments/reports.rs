//! Environment reports: complete lists of running artifacts, sent again and again. Each kind of environment
//! has its own body. All of them become one `Report`, and only a report with something new takes a snapshot.

mod kinds;

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::compute::MANY_EVALUATIONS;
use crate::context::Context;
use crate::environments::evaluation;
use crate::environments::evaluation::work::too_large;
use crate::environments::observed::{ObservedArtifact, ReportedState};
use crate::environments::record::{Environment, EnvironmentKind};
use crate::error::{Error, INVALID_REPORT, Result, at_most};
use crate::fact::Fact;
use crate::fact::names::Key;
use crate::json::JsonFields;
use crate::limits::Limits;
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{Acknowledged, Json, Method, Operation, Put, SKIPPED_ELEMENTS, WithHeaders};
use crate::snapshots::key::ArtifactKey;

pub use kinds::{
    AzureApp, AzureApps, AzureDigests, CloudRun, CloudRunKind, CloudRunResource, Creation, DigestOrNone,
    Digests, Docker, ECS, EcsTask, EnvironmentReport, Instance, K8S, Lambda, PlainArtifact, Pod, PodOwner,
    ReportType, S3, Server,
};

/// Reports all running artifacts of an environment of this type. A report takes a snapshot (201) if it is the
/// first, or if the artifacts, their origin or a verdict differ. Any other report takes none (200), also if
/// only numbers of instances differ, and may be sent again and again. An environment of another type is 400.
///
/// An element of `artifacts` that is null or has no `digests`, such as an evicted pod, is skipped. The
/// response header `Evidence-Skipped-Elements` and `skipped_elements` of the snapshot have the number of
/// skipped elements. If all elements are skipped, the report is 400. An environment without artifacts
/// complies with every policy, so only an empty list reports that nothing runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(bound = "T: ReportType")]
pub struct ReportRunning<T> {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
    #[serde(skip)]
    #[schemars(skip)]
    kind: PhantomData<fn(T)>,
}

impl<T: ReportType> Operation for ReportRunning<T> {
    const NAME: &'static str = T::NAME;
    const METHOD: Method = Method::Put;
    const PATH: &'static str = T::PATH;
    const SCOPE: Scope = Scope::Report;
    const SUMMARY: &'static str = T::SUMMARY;
    const INVALID: &'static str = INVALID_REPORT;
    const ANSWER_HEADERS: &'static [&'static str] = &[SKIPPED_ELEMENTS];
    type Body = Json<EnvironmentReport<T>>;
    type Output = WithHeaders<Put<Acknowledged>>;

    fn body_limit(limits: &Limits) -> u64 {
        limits.report
    }

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(report): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let report = Report::of(report, cx).await?;
        let skipped = report.skipped;
        let reply = report.receive(&self.env_name, cx).await?;
        if skipped > 0 {
            let (org, environment) = (&self.org, &self.env_name);
            tracing::info!(%org, %environment, skipped, "elements of a report were skipped: they have no digest");
        }
        WithHeaders::skipping(reply, skipped)
    }
}

/// The running artifacts of an environment of one kind.
#[derive(Debug)]
struct Report {
    kind: EnvironmentKind,
    running: Arc<ReportedState>,
    /// The number of skipped elements.
    skipped: usize,
}

impl Report {
    /// Builds the report, off the async runtime if it has many artifacts.
    async fn of<T: ReportType>(report: EnvironmentReport<T>, cx: &Context<'_>) -> Result<Self> {
        let artifacts = report.artifacts.items.iter().map(|instance| instance.artifacts().count());
        let many = artifacts.sum::<usize>() > MANY_EVALUATIONS;
        let limits = *cx.limits();
        let put_together = move || {
            check_size(&report, &limits)?;
            let skipped = skipped(&report)?;
            let what = "the data of a running artifact cannot be serialized to JSON";
            Self::new(&report, skipped).map_err(|error| Error::Internal { what, source: error.into() })
        };
        cx.compute().run_if(many, put_together).await?
    }

    /// Builds the report. An artifact that is reported several times becomes one, with all its instances and
    /// names.
    fn new<T: ReportType>(report: &EnvironmentReport<T>, skipped: usize) -> serde_json::Result<Self> {
        let mut running = BTreeMap::new();
        for instance in &report.artifacts.items {
            let mut counted = BTreeSet::new();
            for (name, fingerprint) in instance.artifacts() {
                let key = ArtifactKey::new(fingerprint, name);
                let unseen = || {
                    let observed = ObservedArtifact {
                        fingerprint: fingerprint.cloned(),
                        name: name.to_string(),
                        other_names: Vec::new(),
                        created: Vec::new(),
                        context: JsonFields::default(),
                    };
                    (observed, <T::Instance as Instance>::Context::default())
                };
                let (seen, context) = running.entry(key.clone()).or_insert_with(unseen);
                if seen.name != **name {
                    seen.other_names.push(name.to_string());
                }
                if counted.insert(key) {
                    seen.created.push(instance.created().0);
                    instance.describe(context);
                }
            }
        }
        let observed = |(key, (mut seen, context)): (ArtifactKey, (ObservedArtifact, _))| {
            seen.created.sort_unstable();
            seen.other_names.sort_unstable();
            seen.other_names.dedup();
            seen.context = T::Instance::fields(context)?;
            Ok((key, seen))
        };
        let running = running.into_iter().map(observed).collect::<serde_json::Result<_>>()?;
        Ok(Self { kind: T::KIND, running: Arc::new(running), skipped })
    }

    /// Handles the report. Returns the status 201 if it took a snapshot.
    async fn receive(self, environment: &EnvironmentName, cx: &Context<'_>) -> Result<Put<Acknowledged>> {
        let record = Key::Environment(environment.clone());
        let created = cx.retry_exclusively(record, || self.receive_once(environment, cx)).await?;
        Ok(Put { created, body: Acknowledged::Ok })
    }

    /// Handles the report once. Returns whether it took a snapshot.
    async fn receive_once(&self, environment: &EnvironmentName, cx: &Context<'_>) -> Result<bool> {
        let known = cx.environment(environment.as_str()).await?;
        self.check_kind(&known.record)?;
        let mut draft = evaluation::evaluate(&known, &self.running, self.skipped as u64, cx).await?;
        let taken = !draft.facts.is_empty();
        if !taken && known.status.reported_at.is_none_or(|last| cx.is_heartbeat_due(last)) {
            draft.fact(Fact::EnvironmentReported { environment: known.record.id });
            draft.preconditions.extend(known.unreported());
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

/// Returns the number of elements to skip, because they are null or have no digest: it is unknown whether
/// anything of them runs. A report with only such elements is refused. Its reporter may be unable to read
/// digests, and an empty snapshot would comply with every policy.
fn skipped<T: ReportType>(report: &EnvironmentReport<T>) -> Result<usize> {
    let elements = &report.artifacts.items;
    let without_digest = elements.iter().filter(|instance| instance.artifacts().next().is_none()).count();
    let skipped = report.artifacts.skipped() + without_digest;
    if skipped > 0 && without_digest == elements.len() {
        let field = if report.artifacts.skipped() == 0 { "artifacts[0].digests" } else { "artifacts" };
        let text = "At least one element should have a digest. If nothing runs, send an empty list";
        return Err(Error::invalid(field, text));
    }
    Ok(skipped)
}

/// The approximate size of an instance's creation time, in bytes.
const CREATED: usize = 12;

/// Refuses a report with too many artifacts, or one that would become too large when each artifact gets the
/// data of its instances. Checks this before the expansion, because an instance's data apply to all its
/// artifacts.
fn check_size<T: ReportType>(report: &EnvironmentReport<T>, limits: &Limits) -> Result<()> {
    let instances = &report.artifacts.items;
    let keys = instances.iter().flat_map(|instance| {
        instance.artifacts().map(|(name, fingerprint)| ArtifactKey::new(fingerprint, name))
    });
    at_most(limits.running_artifacts, keys.collect::<BTreeSet<_>>().len(), "artifacts")?;
    let told = instances.iter().map(|instance| {
        let names = instance.artifacts().map(|(name, _)| name.len() + CREATED).sum::<usize>();
        names + instance.artifacts().count() * instance.context_bytes()
    });
    if told.sum::<usize>() as u64 > limits.snapshot {
        return Err(Error::invalid("artifacts", too_large(limits.snapshot)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decode::from_value;
    use crate::fact::payload;
    use crate::id::{Id, SystemRandom};
    use crate::name::Fingerprint;
    use crate::time::Timestamp;

    const ONE: &str = "1111111111111111111111111111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222222222222222222222222222";

    fn running(artifacts: &Value) -> Vec<(String, Vec<String>, Vec<i64>)> {
        let body: EnvironmentReport<Docker> =
            from_value(&json!({ "artifacts": artifacts })).expect("a valid report");
        let report = Report::new(&body, 0).unwrap();
        let flat = |(key, seen): (&ArtifactKey, &ObservedArtifact)| {
            assert_eq!(Some(key.as_str()), seen.fingerprint.as_ref().map(Fingerprint::as_str));
            (key.to_string(), seen.names().map(str::to_owned).collect(), seen.created.clone())
        };
        report.running.iter().map(flat).collect()
    }

    #[test]
    fn a_heartbeat_costs_a_hundred_bytes_at_most() {
        let environment = Id::new(Timestamp::default(), &SystemRandom);
        let heartbeat = Fact::EnvironmentReported { environment };
        let payload = payload::write(&heartbeat, "robot").unwrap();
        assert!(payload.len() <= 100, "{payload}");
    }

    #[test]
    fn one_fingerprint_in_several_entries_is_one_artifact_with_several_instances_and_names() {
        let entry = |name: &str, digest: &str, created: i64| json!({ "digests": { name: digest }, "creationTimestamp": created });
        let seen = |digest: &str, names: &[&str], created: &[i64]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            (digest.to_owned(), names, created.to_vec())
        };
        let table = [
            (json!([]), vec![]),
            (json!([entry("a", ONE, 5)]), vec![seen(ONE, &["a"], &[5])]),
            (json!([entry("b", ONE, 9), entry("a", ONE, 5)]), vec![seen(ONE, &["b", "a"], &[5, 9])]),
            (
                json!([entry("c", ONE, 1), entry("b", ONE, 2), entry("a", ONE, 3), entry("b", ONE, 4)]),
                vec![seen(ONE, &["c", "a", "b"], &[1, 2, 3, 4])],
            ),
            (json!([entry("a", ONE, 5), entry("a", ONE, 5)]), vec![seen(ONE, &["a"], &[5, 5])]),
            (
                json!([entry("b", TWO, 1), entry("a", ONE, 2)]),
                vec![seen(ONE, &["a"], &[2]), seen(TWO, &["b"], &[1])],
            ),
            (
                json!([{ "digests": { "a": ONE, "b": ONE, "c": TWO }, "creationTimestamp": 0 }]),
                vec![seen(ONE, &["a", "b"], &[0]), seen(TWO, &["c"], &[0])],
            ),
        ];
        for (artifacts, expected) in table {
            assert_eq!(running(&artifacts), expected, "{artifacts}");
        }
    }

    #[test]
    fn elements_without_a_digest_are_skipped_unless_there_are_no_others() {
        let pod = |digests: Value| json!({"podName": "p", "namespace": "n", "creationTimestamp": 1, "digests": digests});
        let (running, evicted, unknown) = (pod(json!({"a": ONE})), pod(json!({})), pod(json!({"a": null})));
        let table = [
            (json!([]), Some(0)),
            (json!([running]), Some(0)),
            (json!([evicted, running, evicted]), Some(2)),
            (json!([pod(Value::Null), running]), Some(1)),
            (json!([null, running]), Some(1)),
            // It runs, although its digest is unknown.
            (json!([unknown]), Some(0)),
            (json!([unknown, evicted]), Some(1)),
            (json!([evicted]), None),
            (json!([null]), None),
            (json!([null, evicted]), None),
        ];
        for (artifacts, expected) in table {
            let report: EnvironmentReport<K8S> = from_value(&json!({"artifacts": artifacts})).unwrap();
            assert_eq!(skipped(&report).ok(), expected, "{artifacts}");
        }
    }

    /// Each of its artifacts gets the data of a pod.
    #[test]
    fn a_report_that_grows_too_large_is_refused_before_it_does() {
        let owner = |at: usize| json!({"apiVersion": "v1", "kind": "x".repeat(200), "name": format!("{at}"), "uid": ""});
        let report = |digests: usize, owners: usize| {
            let digests: serde_json::Map<_, _> =
                (0..digests).map(|at| (format!("image-{at}"), json!(format!("{at:064x}")))).collect();
            let owners = Vec::from_iter((0..owners).map(owner));
            let pod = json!({"podName": "p", "namespace": "n", "creationTimestamp": 1, "digests": digests, "owners": owners});
            from_value::<EnvironmentReport<K8S>>(&json!({"artifacts": [pod]})).expect("a valid report")
        };
        let limits = Limits { snapshot: 10_000, running_artifacts: 50, ..Limits::default() };
        let table = [
            (50, 0, None),
            (51, 0, Some("There should be at most 50 items, not 51")),
            (10, 2, None),
            (10, 4, Some("The artifacts and their origins need more than 10000 bytes")),
        ];
        for (digests, owners, expected) in table {
            let refused = check_size(&report(digests, owners), &limits).err();
            let text = refused.map(|error| match error {
                Error::Invalid { fields, .. } => fields.get("artifacts").cloned().unwrap(),
                other => panic!("{other}"),
            });
            assert_eq!(text.as_deref(), expected, "{digests} digests, {owners} owners");
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
            (json!({ "artifacts": [{ "digests": [], "creationTimestamp": 1 }] }), "artifacts[0].digests"),
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
            let misfit = from_value::<EnvironmentReport<Docker>>(&body).expect_err(&body.to_string());
            assert_eq!(misfit.field(), field, "{body}");
        }
    }
}
