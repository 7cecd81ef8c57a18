//! Artifacts in responses.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::artifacts::record::Artifact;
use crate::attestations::details::JunitSuite;
use crate::attestations::jira::JiraItem;
use crate::attestations::pull_requests::{GitProvider, PullRequestView};
use crate::attestations::record::Attestation;
use crate::attestations::snyk::ProcessedSnykResults;
use crate::attestations::store::AttestationRow;
use crate::bounded::{FreeForm, ShortText, or_empty};
use crate::context::Context;
use crate::git::GitCommitInfo;
use crate::id::Id;
use crate::json::JsonText;
use crate::links::ExternalUrls;
use crate::name::Fingerprint;
use crate::repos::record::RepoInfo;
use crate::rules::compliance::State;
use crate::snapshots::store::Run;
use crate::time::{Seconds, Timestamp};
use serde_json::{Map, Value};

/// One report of an artifact to a flow, with what is known about it now. Every key is present; a value that
/// was not reported is the empty value of its type.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ArtifactResponse")]
#[non_exhaustive]
pub struct ArtifactView {
    /// The id of this report. A fingerprint may be reported many times, each time with a new id.
    pub id: Id,
    /// The SHA-256 of the content, which identifies the artifact.
    pub fingerprint: Fingerprint,
    /// The file's name, or the image's reference.
    pub filename: String,
    /// When it was reported: decimal epoch seconds, as a string.
    pub created_at: String,
    /// The later of the time of the report and of its newest attestation: decimal epoch seconds, as a string.
    pub last_modified_at: String,
    /// The newest attestation of each name that is about the artifact, by name. An overridden attestation has
    /// the verdict of its override.
    pub evidence: BTreeMap<String, EvidenceView>,
    /// The flow it was reported to.
    pub flow_name: String,
    /// The seconds from the commit until the artifact first ran in an environment, by environment name. Empty
    /// for callers of other organizations.
    pub commit_lead_times: BTreeMap<String, Seconds>,
    /// The seconds from the report until the artifact first ran in an environment, by environment name. Empty
    /// for callers of other organizations.
    pub build_lead_times: BTreeMap<String, Seconds>,
    /// The name of the trail that it was reported to; `""` for a report to a flow as a whole.
    pub trail_name: String,
    /// Its name in the trail's template; `""` without one.
    pub template_reference_name: String,
    /// The full hash of the commit that it was built from; `""` if no full hash was reported.
    pub git_commit: String,
    /// The details of that commit, as reported.
    pub git_commit_info: GitCommitInfo,
    /// The repository that it was reported from.
    pub repo_info: RepoInfoView,
    /// The URL of the commit's page, as reported.
    pub commit_url: String,
    /// The URL of the build's page, as reported.
    pub build_url: String,
    /// The URL of the repository, as reported.
    pub repo_url: String,
    /// The URL of the artifact's page.
    pub html_url: String,
    /// The URL of the artifact in this API.
    pub api_url: String,
    /// Free-form data from the reporter: an object or a list; null if not reported.
    pub user_data: JsonText,
    /// Labelled links: label to URL and, optionally, the fingerprint of the linked content.
    pub external_urls: ExternalUrls,
    /// The reporter's remarks, as an object.
    #[schemars(with = "Map<String, Value>")]
    pub annotations: FreeForm,
    /// Whether the attestations that the template expects of the artifact and of its trail are present and
    /// compliant.
    pub state: State,
    /// The names of the attestations that the trail's template expects of the artifact and of the trail. All
    /// names that the trail reported the artifact by count.
    pub template: Vec<String>,
    /// The state in a sentence, with further remarks. They say that the template cannot be read or expects no
    /// artifact of this name, that an earlier report gave another name, or that the report to a trail
    /// decides.
    pub state_info: String,
    /// The environments where it runs now, each with the snapshot in which this run started. Archived
    /// environments are left out, because their present state is unknown. Empty for callers of other
    /// organizations.
    pub running: Vec<SnapshotPlace>,
    /// The environments where it ran, each with the snapshot in which the run had ended. Empty for callers of
    /// other organizations.
    pub exited: Vec<SnapshotPlace>,
    /// Its events, oldest first. Empty for callers of other organizations.
    pub history: Vec<HistoryEvent>,
}

/// The repository that an artifact was reported from. Every key is present; a value that was not reported is
/// the empty value of its type.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(rename = "RepoInfoResponse")]
#[non_exhaustive]
pub struct RepoInfoView {
    /// The repository's name, with its owner: `owner/repo`.
    pub name: String,
    /// Its URL.
    pub url: String,
    /// Its id at the host. Unlike its name, the id does not change.
    pub id: String,
    /// Its description.
    pub description: String,
    /// The kind of host, such as `github`.
    pub provider: String,
    /// The host of `url`, in lower case, with any port that is not the default.
    pub vcs_instance: String,
    /// The groups that contain it: as reported, otherwise the segments of the name before the last.
    pub namespace_path: Vec<String>,
    /// Further data, as reported.
    #[schemars(with = "Map<String, Value>")]
    pub additional_info: FreeForm,
    /// The part of the name after the last `/`.
    pub short_name: String,
}

impl From<&RepoInfo> for RepoInfoView {
    fn from(info: &RepoInfo) -> Self {
        Self {
            name: info.name.to_string(),
            url: info.url.to_string(),
            id: or_empty(info.id.as_deref()),
            description: or_empty(info.description.as_deref()),
            provider: info.provider.map(|provider| provider.as_str().to_owned()).unwrap_or_default(),
            vcs_instance: crate::repos::record::vcs_instance(&info.url).unwrap_or_default(),
            namespace_path: crate::repos::record::namespace_path(info),
            additional_info: info.additional_info.clone().unwrap_or_default(),
            short_name: crate::repos::record::short_name(&info.name),
        }
    }
}

/// A snapshot of an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SnapshotPlace {
    /// The environment's name.
    pub environment_name: String,
    /// The snapshot's number in that environment, from 1.
    pub snapshot_index: u64,
}

/// An event of an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct HistoryEvent {
    /// The event as a sentence for readers.
    pub event: String,
    /// When it happened, in epoch seconds.
    pub timestamp: Seconds,
}

/// Returns the state as a sentence.
pub(crate) const fn state_info(state: State) -> &'static str {
    match state {
        State::Compliant => "All expected attestations are there and compliant.",
        State::NonCompliant => "An attestation of the artifact or of its trail is not compliant.",
        State::Incomplete => "An expected attestation of the artifact or of its trail is missing.",
    }
}

pub(super) fn by_fingerprint(runs: Vec<Run>) -> BTreeMap<Fingerprint, Vec<Run>> {
    let mut found: BTreeMap<Fingerprint, Vec<Run>> = BTreeMap::new();
    for run in runs {
        found.entry(run.fingerprint.clone()).or_default().push(run);
    }
    found
}

pub(super) fn places(runs: &[Run], index: impl Fn(&Run) -> Option<u64>) -> Vec<SnapshotPlace> {
    let place = |run: &Run| {
        let snapshot_index = index(run)?;
        Some(SnapshotPlace { environment_name: run.environment_name.to_string(), snapshot_index })
    };
    runs.iter().filter_map(place).collect()
}

/// Returns the seconds from `since` until the first run in each environment.
pub(super) fn lead_times(runs: &[Run], since: Timestamp) -> BTreeMap<String, Seconds> {
    let mut first: BTreeMap<String, Timestamp> = BTreeMap::new();
    for run in runs {
        let started = first.entry(run.environment_name.to_string()).or_insert(run.from.1);
        *started = run.from.1.min(*started);
    }
    first.into_iter().map(|(environment, started)| (environment, started.since(since))).collect()
}

pub(super) fn history(artifact: &Artifact, evidence: &[&AttestationRow], runs: &[Run]) -> Vec<HistoryEvent> {
    let created = match artifact.template_reference_name.as_str() {
        "" => "Artifact created".to_owned(),
        name => format!("{name} reported"),
    };
    let mut events = vec![(artifact.created_at, created)];
    events.extend(evidence.iter().map(|one| {
        let event = one.override_info.as_deref().unwrap_or("evidence received");
        (one.at, format!("{} {event}", one.name))
    }));
    events.extend(run_events(runs));
    events.sort_by_key(|(at, _)| *at);
    events.into_iter().map(|(at, event)| HistoryEvent { event, timestamp: at.seconds() }).collect()
}

/// Returns the events of runs, in the order of the runs.
pub(super) fn run_events(runs: &[Run]) -> Vec<(Timestamp, String)> {
    let mut events = Vec::new();
    for run in runs {
        let name = &run.environment_name;
        events.push((run.from.1, format!("Started running in {name}#{} environment", run.from.0)));
        if let Some((index, at)) = run.until {
            events.push((at, format!("No longer running in {name}#{index} environment")));
        }
    }
    events
}

impl Context<'_> {
    /// Returns the URL of an artifact's page.
    pub(super) fn artifact_page_url(&self, flow: &str, fingerprint: &Fingerprint) -> String {
        self.page_url(&format!("flows/{flow}/artifacts/{fingerprint}"))
    }

    /// Returns the URL of the part of that page about one report.
    pub(crate) fn artifact_url(&self, flow: &str, fingerprint: &Fingerprint, id: Id) -> String {
        format!("{}?artifact_id={id}", self.artifact_page_url(flow, fingerprint))
    }
}

/// An attestation in an artifact's evidence. Every key is present.
// The type-specific keys are JSON texts: data of a type that a newer version recorded are returned unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ArtifactEvidence")]
#[non_exhaustive]
pub struct EvidenceView {
    /// The attestation's type: `generic`, `junit`, `pull_request`, ….
    pub evidence_type: String,
    /// Its verdict, or the verdict of the override that replaces it.
    pub is_compliant: bool,
    /// The author and the reason of the override: `overridden by NAME: REASON`. Absent without an override.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub override_info: Option<String>,
    /// When it was reported: decimal epoch seconds, as a string.
    pub created_at: String,
    /// Always false: audit packages cannot be downloaded yet.
    pub has_audit_package: bool,
    /// Always null.
    pub build_url: (),
    /// The SHA-256 of its evidence: of its only file, or of the archive of several files; null without files.
    pub evidence_archive_fingerprint: Option<Fingerprint>,
    /// Free-form data from the reporter: an object or a list; null if not reported.
    pub user_data: JsonText,
    /// Its description for readers; null without one.
    pub description: Option<String>,
    /// The URL of its origin, such as the build; `""` if not given.
    pub evidence_url: String,
    /// Always null.
    pub evidence_fingerprint: (),
    /// The commit that it names; null without one.
    pub commit_sha: Option<ShortText>,
    /// The number of findings of a scan; null for other types.
    #[schemars(with = "Option<ProcessedSnykResults>")]
    pub snyk_results: JsonText,
    /// Test results; null for other types, and if they are longer than 64 KiB.
    #[schemars(with = "Option<Vec<JunitSuite>>")]
    pub junit_results: JsonText,
    /// Issues; null for other types, and if they are longer than 64 KiB.
    #[schemars(with = "Option<Vec<JiraItem>>")]
    pub jira_results: JsonText,
    /// The kind of host of its pull requests; null for other types.
    #[schemars(with = "Option<GitProvider>")]
    pub git_provider: JsonText,
    /// Pull requests; null for other types, and if they are longer than 64 KiB.
    #[schemars(with = "Option<Vec<PullRequestView>>")]
    pub pull_requests: JsonText,
}

impl From<&Attestation> for EvidenceView {
    fn from(attestation: &Attestation) -> Self {
        let details = attestation.details.clone();
        let view = if attestation.data.is_some() { details.view_without_data() } else { details.view() };
        let mut fields = view.fields();
        let mut detail = |key: &str| fields.remove(key).unwrap_or_default();
        Self {
            evidence_type: attestation.kind.clone(),
            is_compliant: attestation.is_compliant,
            override_info: None,
            created_at: attestation.created_at.decimal(),
            has_audit_package: false,
            build_url: (),
            evidence_archive_fingerprint: attestation.evidence.as_ref().map(|file| file.sha256.clone()),
            user_data: attestation.user_data.clone(),
            description: attestation.description.clone(),
            evidence_url: attestation.origin_url.clone(),
            evidence_fingerprint: (),
            commit_sha: attestation.git_commit_info.as_ref().map(|commit| commit.sha1.clone()),
            snyk_results: detail("processed_snyk_results"),
            junit_results: detail("junit_results"),
            jira_results: detail("jira_results"),
            git_provider: detail("git_provider"),
            pull_requests: detail("pull_requests"),
        }
    }
}
