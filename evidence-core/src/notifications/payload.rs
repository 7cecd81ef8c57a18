//! The payload of webhooks, version 1.0, and the same content as text for people. All values that look like
//! numbers are texts. Events that the public payload does not define have the same form: a flow takes the
//! place of the environment, and absent values are null.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::artifacts::record::Artifact;
use crate::attestations::record::Binding;
use crate::id::Id;
use crate::notifications::events::{Event, What};
use crate::snapshots::record::{Provenance, RunningArtifact, Snapshot};
use crate::time::Timestamp;

/// The body of a webhook request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Payload {
    version: &'static str,
    timestamp: String,
    org: String,
    #[serde(flatten)]
    place: PlaceName,
    event_type: &'static str,
    description: String,
    #[serde(flatten)]
    details: Details,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum PlaceName {
    Environment(String),
    Flow(String),
}

/// The subject of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Details {
    Environment {
        snapshot: Option<SnapshotDetails>,
        artifact: Option<ArtifactDetails>,
    },
    Flow {
        trail: Option<TrailDetails>,
        artifact: Option<ArtifactDetails>,
        attestation: Option<AttestationDetails>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct SnapshotDetails {
    index: String,
    status: &'static str,
    html_url: String,
    api_url: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ArtifactDetails {
    name: String,
    /// Null if the digest is unknown.
    fingerprint: Option<String>,
    /// Null if the origin is unknown.
    provenance: Option<ProvenanceDetails>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ProvenanceDetails {
    flow: String,
    status: String,
    commit: String,
    commit_url: String,
    html_url: String,
    api_url: String,
    build_url: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct TrailDetails {
    name: String,
    html_url: String,
    api_url: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct AttestationDetails {
    id: String,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    status: &'static str,
}

const fn status(compliant: bool) -> &'static str {
    if compliant { "compliant" } else { "non-compliant" }
}

/// The data for the names and links in an event.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The public address of the service.
    pub(super) public_url: String,
    /// The organization.
    pub(super) org: String,
    /// The environment or the flow.
    pub(super) place: String,
    /// The names of flows.
    pub(super) flows: BTreeMap<Id, String>,
    /// The names of trails.
    pub(super) trails: BTreeMap<Id, String>,
    /// Reports of artifacts.
    pub(super) reports: BTreeMap<Id, Artifact>,
    /// The artifacts that exited with the snapshot, by key.
    pub(super) exited: BTreeMap<String, RunningArtifact>,
    /// The state in the previous snapshot; `None` if there is none, or if it had no policies.
    pub(super) state_before: Option<bool>,
    /// The names of logical environments.
    pub(super) logical: BTreeMap<Id, String>,
    /// The verdicts of the previous snapshot for the policies of logical environments, as far as recorded.
    pub(super) logical_before: BTreeMap<Id, bool>,
}

impl Names {
    fn page(&self, path: &str) -> String {
        format!("{}/{}/{path}", self.public_url, self.org)
    }

    fn api(&self, resource: &str, path: &str) -> String {
        format!("{}/api/v2/{resource}/{}/{path}", self.public_url, self.org)
    }

    fn snapshot(&self, snapshot: &Snapshot) -> SnapshotDetails {
        self.judged_snapshot(snapshot, snapshot.compliant)
    }

    /// Returns the details of a snapshot with this verdict.
    fn judged_snapshot(&self, snapshot: &Snapshot, compliant: bool) -> SnapshotDetails {
        let (environment, index) = (&self.place, snapshot.index);
        SnapshotDetails {
            index: index.to_string(),
            status: status(compliant),
            html_url: self.page(&format!("environments/{environment}/snapshots/{index}")),
            api_url: self.api("snapshots", &format!("{environment}/{index}")),
        }
    }

    fn report(&self, report: &Artifact, status: &str) -> Option<ProvenanceDetails> {
        let flow = self.flows.get(&report.flow)?;
        let fingerprint = &report.fingerprint;
        Some(ProvenanceDetails {
            flow: flow.clone(),
            status: status.to_owned(),
            commit: report.commit().to_owned(),
            commit_url: report.commit_url.clone(),
            html_url: self.page(&format!("flows/{flow}/artifacts/{fingerprint}?artifact_id={}", report.id)),
            api_url: self.api("artifacts", &format!("{flow}/fingerprint/{fingerprint}")),
            build_url: report.build_url.clone(),
        })
    }

    fn provenance(&self, provenance: &[Provenance]) -> Option<ProvenanceDetails> {
        let known = |one: &Provenance| {
            self.report(self.reports.get(&one.artifact)?, &one.state.as_str().to_lowercase())
        };
        provenance.iter().find_map(known)
    }

    fn instance(&self, instance: &RunningArtifact) -> ArtifactDetails {
        ArtifactDetails {
            name: instance.name.clone(),
            fingerprint: instance.fingerprint.as_ref().map(ToString::to_string),
            provenance: self.provenance(&instance.provenance),
        }
    }

    fn trail(&self, flow: &str, id: Id) -> Option<TrailDetails> {
        let name = self.trails.get(&id)?;
        let html_url = self.page(&format!("flows/{flow}/trails/{name}"));
        Some(TrailDetails {
            name: name.clone(),
            html_url,
            api_url: self.api("trails", &format!("{flow}/{name}")),
        })
    }
}

/// Returns the payload of an event recorded at this time, or `None` if nothing changed.
pub(super) fn payload(event: &Event<'_>, at: Timestamp, names: &Names) -> Option<Payload> {
    let (description, details) = details(event, names)?;
    let in_environment = matches!(details, Details::Environment { .. });
    let place = if in_environment { PlaceName::Environment } else { PlaceName::Flow };
    Some(Payload {
        version: "1.0",
        timestamp: at.whole_seconds().0.to_string(),
        org: names.org.clone(),
        place: place(names.place.clone()),
        event_type: event.trigger.strip_prefix("ON_").unwrap_or(event.trigger),
        description,
        details,
    })
}

/// Returns whether a change of state causes a notification. An environment that becomes compliant must have
/// been non-compliant before. One that becomes non-compliant always causes one, also at its first verdict.
fn is_notified(before: Option<bool>, now: Option<bool>) -> bool {
    match now {
        Some(true) => before == Some(false),
        Some(false) => before != Some(false),
        None => false,
    }
}

fn details(event: &Event<'_>, names: &Names) -> Option<(String, Details)> {
    let place = &names.place;
    Some(match &event.what {
        What::Verdict(snapshot) => {
            if !is_notified(names.state_before, snapshot.state()) {
                return None;
            }
            let text = format!("Environment {place} is {} now", status(snapshot.compliant));
            (text, Details::Environment { snapshot: Some(names.snapshot(snapshot)), artifact: None })
        }
        What::LogicalVerdict(snapshot, verdict) => {
            let before = names.logical_before.get(&verdict.environment).copied();
            if !is_notified(before, Some(verdict.compliant)) {
                return None;
            }
            let logical = names.logical.get(&verdict.environment)?;
            let change = if verdict.compliant { "complies with" } else { "violates" };
            let text =
                format!("Environment {place} {change} the policies of logical environment {logical} now");
            let snapshot = Some(names.judged_snapshot(snapshot, verdict.compliant));
            (text, Details::Environment { snapshot, artifact: None })
        }
        What::Changed(snapshot, instance) => {
            let (was, now) = (instance.annotation.was, instance.annotation.now);
            let change = match instance.annotation.kind.as_str() {
                "became-compliant" => "became compliant".to_owned(),
                "became-non-compliant" => "became non-compliant".to_owned(),
                "updated-provenance" => "has new provenance".to_owned(),
                _ => format!("started: from {was} to {now} instances"),
            };
            let artifact = Some(names.instance(instance));
            let text = format!("Artifact {} {change} in environment {place}", instance.name);
            (text, Details::Environment { snapshot: Some(names.snapshot(snapshot)), artifact })
        }
        What::Exited(snapshot, key) => {
            let instance = names.exited.get(key.as_str());
            let artifact = match instance {
                Some(instance) => names.instance(instance),
                None => {
                    let fingerprint = Some(key.to_string()).filter(|key| !key.contains(':'));
                    ArtifactDetails { name: String::new(), fingerprint, provenance: None }
                }
            };
            let was = instance.map_or(0, |instance| instance.created.len());
            let text = format!(
                "Artifact {} exited: from {was} to 0 instances in environment {place}",
                artifact.name
            );
            (
                text,
                Details::Environment { snapshot: Some(names.snapshot(snapshot)), artifact: Some(artifact) },
            )
        }
        What::Allowed(allowlist_entry) => {
            let artifact = ArtifactDetails {
                name: allowlist_entry.artifact_name.clone(),
                fingerprint: Some(allowlist_entry.fingerprint.to_string()),
                provenance: None,
            };
            let text = format!(
                "Artifact {} is allowed in environment {place} by {}",
                allowlist_entry.artifact_name, allowlist_entry.by.name
            );
            (text, Details::Environment { snapshot: None, artifact: Some(artifact) })
        }
        What::Begun(trail) => {
            let (text, trail) =
                (format!("Trail {} began in flow {place}", trail.name), names.trail(place, trail.id));
            (text, Details::Flow { trail, artifact: None, attestation: None })
        }
        What::Reported(report) => {
            let artifact = ArtifactDetails {
                name: report.filename.clone(),
                fingerprint: Some(report.fingerprint.to_string()),
                provenance: names.report(report, ""),
            };
            let trail = report.trail.and_then(|trail| names.trail(place, trail));
            let text = format!("Artifact {} was reported to flow {place}", report.filename);
            (text, Details::Flow { trail, artifact: Some(artifact), attestation: None })
        }
        What::Attested(attestation) => {
            let artifact = match &attestation.binding {
                Binding::Artifact { fingerprint, target } => Some(ArtifactDetails {
                    name: target.clone(),
                    fingerprint: Some(fingerprint.to_string()),
                    provenance: None,
                }),
                _ => None,
            };
            let reported = AttestationDetails {
                id: attestation.id.to_string(),
                name: attestation.name.to_string(),
                kind: attestation.kind.clone(),
                status: status(attestation.is_compliant),
            };
            let text =
                format!("Attestation {} was reported to flow {place}: {}", reported.name, reported.status);
            let trail = names.trail(place, attestation.trail);
            (text, Details::Flow { trail, artifact, attestation: Some(reported) })
        }
    })
}

impl Payload {
    /// Returns the event as a sentence.
    pub(super) fn description(&self) -> &str {
        &self.description
    }

    /// Returns the subject of a mail about the event.
    pub(super) fn subject(&self) -> String {
        format!("[{}] {}", self.org, self.event_type)
    }

    /// Returns the link to the page about the event, if there is one.
    pub(super) fn link(&self) -> Option<&str> {
        match &self.details {
            Details::Environment { snapshot, .. } => {
                snapshot.as_ref().map(|snapshot| snapshot.html_url.as_str())
            }
            Details::Flow { trail, .. } => trail.as_ref().map(|trail| trail.html_url.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fact::Fact;
    use crate::notifications::events::events;
    use crate::snapshots::record::AppliedPolicy;

    const ID: &str = "00000000-0000-0000-0000-00000001";

    fn names() -> Names {
        let (public_url, org, place) = ("https://e".to_owned(), "acme".to_owned(), "prod".to_owned());
        Names { public_url, org, place, ..Names::default() }
    }

    /// Creates a snapshot in which an artifact has this state, and another exited.
    fn snapshot(compliant: bool, kind: &str, provenance: &Value) -> Fact {
        let change = json!({"fingerprint": "a".repeat(64), "name": "web", "created": [1], "from": 2, "since": 2,
                            "annotation": {"type": kind, "was": 0, "now": 1}, "compliant": null,
                            "provenance": provenance});
        let snapshot = json!({"environment": ID, "index": 2, "at": 1, "compliant": compliant, "reported": true,
                              "policies": [], "changes": [change], "exits": ["b".repeat(64)]});
        serde_json::from_value(json!({"snapshot_taken": {"snapshot": snapshot}})).unwrap()
    }

    /// Returns the posted payload of an event.
    fn posted(fact: &Fact, place: usize, names: &Names) -> Option<Value> {
        let sent = events(fact);
        let payload = payload(&sent[place], Timestamp::from_seconds(1_692_616_493), names)?;
        Some(serde_json::to_value(payload).unwrap())
    }

    fn report() -> Artifact {
        let golden = include_str!("../../tests/golden/artifact_reported.jsonl");
        match Fact::read(golden.lines().next().unwrap()).unwrap() {
            Fact::ArtifactReported { record } => record,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_payload_has_the_public_form() {
        let expected = json!({
            "version": "1.0", "timestamp": "1692616493", "org": "acme", "environment": "prod",
            "event_type": "STARTED_ARTIFACT",
            "description": "Artifact web started: from 0 to 1 instances in environment prod",
            "snapshot": {
                "index": "2", "status": "compliant", "html_url": "https://e/acme/environments/prod/snapshots/2",
                "api_url": "https://e/api/v2/snapshots/acme/prod/2",
            },
            "artifact": {"name": "web", "fingerprint": "a".repeat(64), "provenance": null},
        });
        let fact = snapshot(true, "started-unknown", &json!([]));
        assert_eq!(posted(&fact, 1, &names()), Some(expected));

        let report = report();
        let provenance = json!([{"artifact": report.id, "state": "NON-COMPLIANT"}]);
        let mut known = names();
        known.flows.insert(report.flow, "shop".to_owned());
        known.reports.insert(report.id, report.clone());
        let fact = snapshot(true, "became-non-compliant", &provenance);
        let sent = posted(&fact, 1, &known).unwrap();
        assert_eq!(sent["event_type"], "SCALED_ARTIFACT");
        assert_eq!(sent["description"], "Artifact web became non-compliant in environment prod");
        let (id, fingerprint) = (report.id, &report.fingerprint);
        let expected = json!({
            "flow": "shop", "status": "non-compliant", "commit": report.commit(), "commit_url": report.commit_url,
            "html_url": format!("https://e/acme/flows/shop/artifacts/{fingerprint}?artifact_id={id}"),
            "api_url": format!("https://e/api/v2/artifacts/acme/shop/fingerprint/{fingerprint}"),
            "build_url": report.build_url,
        });
        assert_eq!(sent["artifact"]["provenance"], expected);
    }

    #[test]
    fn a_verdict_is_told_where_the_state_is_another_than_before() {
        let policies = || vec![AppliedPolicy { policy: report().id, version: 1 }];
        for (before, policies, now, expected) in [
            (None, policies(), true, None),
            (None, policies(), false, Some("NON_COMPLIANT_ENV")),
            (Some(true), policies(), true, None),
            (Some(false), policies(), false, None),
            (Some(true), policies(), false, Some("NON_COMPLIANT_ENV")),
            (Some(false), policies(), true, Some("COMPLIANT_ENV")),
            // Without policies the state is unknown.
            (None, vec![], false, None),
            (Some(true), vec![], false, None),
            (Some(false), vec![], false, None),
        ] {
            let mut fact = snapshot(now, "changed", &json!([]));
            let Fact::SnapshotTaken { snapshot } = &mut fact else { unreachable!() };
            snapshot.policies = policies;
            let sent = posted(&fact, 0, &Names { state_before: before, ..names() });
            let kind = sent.as_ref().map(|sent| sent["event_type"].as_str().unwrap());
            assert_eq!(kind, expected, "{before:?} {now}");
            assert!(sent.is_none_or(|sent| sent["artifact"].is_null()));
        }
    }

    #[test]
    fn what_exited_is_told_by_its_digest_where_no_more_is_known() {
        let fact = snapshot(false, "changed", &json!([]));
        let sent = posted(&fact, 1, &names()).unwrap();
        assert_eq!(
            (&sent["event_type"], &sent["snapshot"]["status"]),
            (&json!("EXITED_ARTIFACT"), &json!("non-compliant"))
        );
        assert_eq!(sent["artifact"]["fingerprint"], "b".repeat(64));
    }

    #[test]
    fn a_flow_stands_in_the_place_of_the_environment() {
        let fact = Fact::ArtifactReported { record: report() };
        let sent = posted(&fact, 0, &Names { place: "shop".to_owned(), ..names() }).unwrap();
        assert_eq!((&sent["flow"], &sent["environment"]), (&json!("shop"), &Value::Null));
        assert_eq!(sent["event_type"], "ATTESTED_PROVENANCE");
        assert_eq!(sent["attestation"], Value::Null);
        assert_eq!(sent["artifact"]["fingerprint"], report().fingerprint.as_str());
    }
}
