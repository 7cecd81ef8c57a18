//! Artifacts as answers carry them: the report, its state in its trail, the evidence for it, and where it runs and ran.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::try_join3;
use futures_util::stream::BoxStream;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Artifact;
use crate::attestations::{Attestation, AttestationRow};
use crate::error::Result;
use crate::flows::Flow;
use crate::id::Id;
use crate::json::JsonText;
use crate::name::{Fingerprint, TrailName};
use crate::rules::compliance::{self, ReportedArtifact, ReportedAttestation, State, Subjects};
use crate::rules::template::Template;
use crate::service::Context;
use crate::shared::{ExternalUrls, FreeForm, GitCommitInfo, RepoInfo, ShortText, distinct, text};
use crate::snapshots::Run;
use crate::templates::{Parsed, each_with_template};
use crate::texts::TextRef;
use crate::time::{Seconds, Timestamp};
use crate::trails::{TrailContents, artifact_state, runs};

/// An artifact (specification, Artifact). Every key is there; what nobody reported is the empty value of its type.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Artifact")]
#[expect(missing_docs, reason = "the fields are the specification's, in its order")]
pub struct ArtifactView {
    pub id: Id,
    pub fingerprint: Fingerprint,
    pub filename: String,
    pub created_at: String,
    pub last_modified_at: String,
    /// Attestation name to what it says.
    #[schemars(with = "BTreeMap<String, Value>")]
    pub evidence: BTreeMap<String, EvidenceView>,
    pub flow_name: String,
    /// Environment name to the seconds from the commit until the artifact first ran there.
    pub commit_lead_times: BTreeMap<String, Seconds>,
    /// Environment name to the seconds from the report until the artifact first ran there.
    pub build_lead_times: BTreeMap<String, Seconds>,
    pub trail_name: String,
    pub template_reference_name: String,
    pub git_commit: String,
    pub git_commit_info: GitCommitInfo,
    pub repo_info: RepoInfoView,
    pub commit_url: String,
    pub build_url: String,
    pub repo_url: String,
    pub html_url: String,
    pub api_url: String,
    pub user_data: JsonText,
    pub external_urls: ExternalUrls,
    #[schemars(with = "Map<String, Value>")]
    pub annotations: FreeForm,
    pub state: State,
    /// The names of the attestations that its slot and its trail expect.
    pub template: Vec<String>,
    pub state_info: String,
    pub running: Vec<SnapshotPlace>,
    pub exited: Vec<SnapshotPlace>,
    pub history: Vec<HistoryEvent>,
}

/// Where an artifact came from (specification, repo_info), `id` being the external one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields are the specification's, in its order")]
pub struct RepoInfoView {
    pub name: String,
    pub url: String,
    pub id: String,
    pub description: String,
    pub provider: String,
    pub vcs_instance: String,
    pub namespace_path: Vec<String>,
    #[schemars(with = "Map<String, Value>")]
    pub additional_info: FreeForm,
    pub short_name: String,
}

impl From<&RepoInfo> for RepoInfoView {
    fn from(info: &RepoInfo) -> Self {
        Self {
            name: info.name.to_string(),
            url: info.url.to_string(),
            id: text(info.id.as_deref()),
            description: text(info.description.as_deref()),
            provider: info.provider.map(|provider| provider.as_str().to_owned()).unwrap_or_default(),
            vcs_instance: crate::repos::vcs_instance(&info.url).unwrap_or_default(),
            namespace_path: crate::repos::namespace_path(info),
            additional_info: info.additional_info.clone().unwrap_or_default(),
            short_name: crate::repos::short_name(&info.name),
        }
    }
}

/// A snapshot of an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SnapshotPlace {
    pub environment_name: String,
    pub snapshot_index: u64,
}

/// Something that happened to an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct HistoryEvent {
    pub event: String,
    pub timestamp: Seconds,
}

/// What the views of some artifacts rest on, read in a bounded number of questions.
struct Surroundings {
    flows: BTreeMap<Id, Flow>,
    trails: BTreeMap<Id, OnTrail>,
    runs: BTreeMap<Fingerprint, Vec<Run>>,
    /// What the attestations say that are shown: the newest of each name.
    shown: BTreeMap<Id, Attestation>,
}

/// A trail as far as its artifacts go.
struct OnTrail {
    name: TrailName,
    template: Option<TextRef>,
    artifacts: Vec<ReportedArtifact>,
    /// Oldest first, and once more as they are judged by.
    attestations: Vec<AttestationRow>,
    reported: Vec<ReportedAttestation>,
}

impl OnTrail {
    fn new(contents: TrailContents) -> Self {
        let TrailContents { trail, artifacts, attestations, .. } = contents;
        Self {
            name: trail.name,
            template: trail.template,
            artifacts: artifacts.iter().map(ReportedArtifact::from).collect(),
            reported: attestations.iter().map(ReportedAttestation::from).collect(),
            attestations,
        }
    }
}

impl Surroundings {
    /// `flow` is that of all these artifacts, where it is known.
    async fn read(artifacts: &[Artifact], flow: Option<&Flow>, cx: &Context<'_>) -> Result<Self> {
        let trails = distinct(artifacts.iter().filter_map(|artifact| artifact.trail));
        let fingerprints = distinct(artifacts.iter().map(|artifact| artifact.fingerprint.clone()));
        let (flows, trails, runs) =
            try_join3(flows(artifacts, flow, cx), on_trails(&trails, cx), runs(&fingerprints, cx)).await?;
        let flows = flows.into_iter().map(|flow| (flow.id, flow)).collect();
        let mut around = Self { flows, trails, runs: BTreeMap::new(), shown: BTreeMap::new() };
        for run in runs {
            around.runs.entry(run.fingerprint.clone()).or_default().push(run);
        }
        let newest = |artifact| newest(&around.evidence(artifact)).into_values();
        let shown = distinct(artifacts.iter().flat_map(newest));
        if !shown.is_empty() {
            let shown = cx.store().attestations_by_id(cx.org()?, &shown).await?;
            around.shown = shown.into_iter().map(|attestation| (attestation.id, attestation)).collect();
        }
        Ok(around)
    }

    fn flow_name(&self, artifact: &Artifact) -> &str {
        self.flows.get(&artifact.flow).map(|flow| flow.name.as_str()).unwrap_or_default()
    }

    fn trail(&self, artifact: &Artifact) -> Option<&OnTrail> {
        self.trails.get(&artifact.trail?)
    }

    /// The template that it is judged by: its trail's, else the one that it came with.
    fn template(&self, artifact: &Artifact) -> Option<TextRef> {
        self.trail(artifact).map_or(artifact.template, |trail| trail.template)
    }

    /// The attestations that are about this artifact, oldest first.
    fn evidence(&self, artifact: &Artifact) -> Vec<&AttestationRow> {
        let Some(trail) = self.trail(artifact) else { return Vec::new() };
        let report = ReportedArtifact::from(artifact);
        let subjects = Subjects::of(&report, &trail.artifacts);
        let on_trail = trail.attestations.iter().zip(&trail.reported);
        on_trail.filter(|(_, reported)| subjects.include(&reported.binding)).map(|(row, _)| row).collect()
    }
}

/// The newest of each name, of attestations oldest first.
fn newest<'a>(evidence: &[&'a AttestationRow]) -> BTreeMap<&'a str, Id> {
    evidence.iter().map(|attestation| (attestation.name.as_str(), attestation.id)).collect()
}

async fn flows(artifacts: &[Artifact], flow: Option<&Flow>, cx: &Context<'_>) -> Result<Vec<Flow>> {
    match flow {
        Some(flow) => Ok(vec![flow.clone()]),
        None => {
            let ids = distinct(artifacts.iter().map(|artifact| artifact.flow));
            Ok(cx.store().flows_by_id(cx.org()?, &ids).await?)
        }
    }
}

async fn on_trails(trails: &[Id], cx: &Context<'_>) -> Result<BTreeMap<Id, OnTrail>> {
    if trails.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found = cx.store().trail_contents(cx.org()?, trails).await?;
    let by_id = |contents: TrailContents| (contents.trail.id, OnTrail::new(contents));
    Ok(found.into_iter().map(by_id).collect())
}

/// These artifacts, in order, as answers carry them, one after the other; `flow` is that of all of them, where it is known.
pub(super) async fn views(
    artifacts: Vec<Artifact>,
    flow: Option<&Flow>,
    cx: &Context<'_>,
) -> Result<BoxStream<'static, Result<ArtifactView>>> {
    let around = Arc::new(Surroundings::read(&artifacts, flow, cx).await?);
    let with_template = |artifact: Artifact| (around.template(&artifact), artifact);
    let artifacts = artifacts.into_iter().map(with_template).collect();
    let view = move |artifact: Artifact, parsed: Arc<Parsed>, cx: &Context<'_>| {
        if artifact.trail.is_some() && around.trail(&artifact).is_none() {
            return view(&artifact, &Template::of_lost_trail(), &around, cx);
        }
        view(&artifact, &parsed.template, &around, cx)
    };
    Ok(each_with_template(artifacts, cx.lasting(), view).boxed())
}

fn view(
    artifact: &Artifact,
    template: &Template,
    around: &Surroundings,
    cx: &Context<'_>,
) -> Result<ArtifactView> {
    let trail = around.trail(artifact);
    let (artifacts, attestations) =
        trail.map(|trail| (trail.artifacts.as_slice(), trail.reported.as_slice())).unwrap_or_default();
    let state = artifact_state(template, &artifact.into(), artifacts, attestations);
    let evidence = around.evidence(artifact);
    let said = |(name, id): (&str, Id)| Some((name.to_owned(), EvidenceView::from(around.shown.get(&id)?)));
    let runs = around.runs.get(&artifact.fingerprint).map(Vec::as_slice).unwrap_or_default();
    let committed = artifact.git_commit_info.as_ref().and_then(|commit| commit.timestamp).map(|at| at.0);
    let last = evidence.iter().map(|attestation| attestation.at).fold(artifact.created_at, Ord::max);
    let (org, flow_name, fingerprint) =
        (&cx.place()?.name, around.flow_name(artifact), &artifact.fingerprint);
    Ok(ArtifactView {
        id: artifact.id,
        fingerprint: fingerprint.clone(),
        filename: artifact.filename.clone(),
        created_at: artifact.created_at.decimal(),
        last_modified_at: last.decimal(),
        evidence: newest(&evidence).into_iter().filter_map(said).collect(),
        flow_name: flow_name.to_owned(),
        commit_lead_times: committed.map(|at| lead_times(runs, at)).unwrap_or_default(),
        build_lead_times: lead_times(runs, artifact.created_at),
        trail_name: trail.map(|trail| trail.name.to_string()).unwrap_or_default(),
        template_reference_name: artifact.template_reference_name.clone(),
        git_commit: artifact.git_commit.as_ref().map(ToString::to_string).unwrap_or_default(),
        git_commit_info: GitCommitInfo::of(artifact.git_commit_info.as_ref()),
        repo_info: artifact.repo_info.as_ref().map(RepoInfoView::from).unwrap_or_default(),
        commit_url: artifact.commit_url.clone(),
        build_url: artifact.build_url.clone(),
        repo_url: artifact.repo_url.clone(),
        html_url: cx.artifact_url(flow_name, fingerprint, artifact.id),
        api_url: cx.api_url(&format!("artifacts/{org}/{flow_name}/fingerprint/{fingerprint}")),
        user_data: artifact.user_data.clone(),
        external_urls: artifact.external_urls.clone().unwrap_or_default(),
        annotations: artifact.annotations.clone(),
        state,
        template: compliance::expected_names(template, &artifact.template_reference_name),
        state_info: template.unreadable().unwrap_or(state_info(state)).to_owned(),
        running: places(runs, |run| run.until.is_none().then_some(run.from.0)),
        exited: places(runs, |run| run.until.map(|(index, _)| index)),
        history: if cx.sees_environments()? { history(artifact, &evidence, runs) } else { Vec::new() },
    })
}

const fn state_info(state: State) -> &'static str {
    match state {
        State::Compliant => "All expected attestations are there and compliant.",
        State::NonCompliant => "An attestation of the artifact or of its trail is not compliant.",
        State::Incomplete => "An expected attestation of the artifact or of its trail is missing.",
    }
}

fn places(runs: &[Run], index: impl Fn(&Run) -> Option<u64>) -> Vec<SnapshotPlace> {
    let place = |run: &Run| {
        let snapshot_index = index(run)?;
        Some(SnapshotPlace { environment_name: run.environment_name.to_string(), snapshot_index })
    };
    runs.iter().filter_map(place).collect()
}

/// The seconds from `since` until the first run in each environment.
fn lead_times(runs: &[Run], since: Timestamp) -> BTreeMap<String, Seconds> {
    let mut first: BTreeMap<String, Timestamp> = BTreeMap::new();
    for run in runs {
        let started = first.entry(run.environment_name.to_string()).or_insert(run.from.1);
        *started = run.from.1.min(*started);
    }
    first.into_iter().map(|(environment, started)| (environment, started.since(since))).collect()
}

fn history(artifact: &Artifact, evidence: &[&AttestationRow], runs: &[Run]) -> Vec<HistoryEvent> {
    let created = match artifact.template_reference_name.as_str() {
        "" => "Artifact created".to_owned(),
        name => format!("{name} reported"),
    };
    let mut events = vec![(artifact.created_at, created)];
    events.extend(evidence.iter().map(|one| (one.at, format!("{} evidence received", one.name))));
    for run in runs {
        let name = &run.environment_name;
        events.push((run.from.1, format!("Started running in {name}#{} environment", run.from.0)));
        if let Some((index, at)) = run.until {
            events.push((at, format!("No longer running in {name}#{index} environment")));
        }
    }
    events.sort_by_key(|(at, _)| *at);
    events.into_iter().map(|(at, event)| HistoryEvent { event, timestamp: at.seconds() }).collect()
}

impl Context<'_> {
    /// The address of an artifact's page.
    pub(crate) fn artifact_url(&self, flow: &str, fingerprint: &Fingerprint, id: Id) -> String {
        self.page_url(&format!("flows/{flow}/artifacts/{fingerprint}?artifact_id={id}"))
    }
}

/// An attestation among an artifact's evidence. Absent parts are null.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct EvidenceView {
    pub evidence_type: String,
    pub is_compliant: bool,
    pub created_at: String,
    pub has_audit_package: bool,
    pub build_url: Option<String>,
    pub evidence_archive_fingerprint: Option<Fingerprint>,
    pub user_data: JsonText,
    pub description: Option<String>,
    pub evidence_url: String,
    pub evidence_fingerprint: Option<Fingerprint>,
    pub commit_sha: Option<ShortText>,
    pub snyk_results: JsonText,
    pub junit_results: JsonText,
    pub jira_results: JsonText,
    pub git_provider: JsonText,
    pub pull_requests: JsonText,
}

impl From<&Attestation> for EvidenceView {
    fn from(attestation: &Attestation) -> Self {
        let mut fields = attestation.details.answered();
        let mut detail = |key: &str| fields.remove(key).unwrap_or_default();
        Self {
            evidence_type: attestation.kind.clone(),
            is_compliant: attestation.is_compliant,
            created_at: attestation.created_at.decimal(),
            has_audit_package: true,
            build_url: None,
            evidence_archive_fingerprint: attestation.evidence.as_ref().map(|file| file.sha256.clone()),
            user_data: attestation.user_data.clone(),
            description: attestation.description.clone(),
            evidence_url: attestation.origin_url.clone(),
            evidence_fingerprint: None,
            commit_sha: attestation.git_commit_info.as_ref().map(|commit| commit.sha1.clone()),
            snyk_results: detail("snyk_results"),
            junit_results: detail("junit_results"),
            jira_results: detail("jira_results"),
            git_provider: detail("git_provider"),
            pull_requests: detail("pull_requests"),
        }
    }
}
