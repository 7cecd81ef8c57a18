//! Artifacts in responses: the report, its state in its trail, its evidence, and its runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use futures_util::future::try_join3;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use crate::artifacts::record::Artifact;
use crate::artifacts::shown_attestations::{ShownAttestation, shown_attestations};
use crate::artifacts::store::Origin;
use crate::attestations::details::JunitSuite;
use crate::attestations::jira::JiraItem;
use crate::attestations::pull_requests::{GitProvider, PullRequestView};
use crate::attestations::record::Attestation;
use crate::attestations::snyk::ProcessedSnykResults;
use crate::attestations::store::AttestationRow;
use crate::bounded::{FreeForm, ShortText, or_empty};
use crate::compute::MANY_EVALUATIONS;
use crate::context::{Context, OwnedContext};
use crate::error::{Error, Result};
use crate::flows::parsed::Parsed;
use crate::flows::record::Flow;
use crate::flows::templates::map_with_templates;
use crate::git::GitCommitInfo;
use crate::id::Id;
use crate::json::JsonText;
use crate::links::ExternalUrls;
use crate::lock::locked;
use crate::name::Fingerprint;
use crate::page::{BatchBudget, MAX_BATCH_BYTES, in_batches};
use crate::repos::record::RepoInfo;
use crate::rules::compliance::{self, ContentIndex, EarlierNames, ReportedArtifact, State};
use crate::rules::template::Template;
use crate::snapshots::store::Run;
use crate::store::batch::distinct;
use crate::texts::record::TextRef;
use crate::time::{Seconds, Timestamp};
use crate::trails::events::runs;
use crate::trails::record::TrailVersion;
use crate::trails::reported::{MEMORY_PER_BYTE, ReportedTrail};
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

/// The assumed size in bytes of an attestation whose size is unknown.
const EVIDENCE: u64 = MAX_BATCH_BYTES / 64;

/// The approximate memory budget in bytes for the trails that one response holds at a time. A client that
/// reads slowly keeps even cached trails in memory. A single trail may be larger.
const MAX_TRAILS_BYTES: u64 = MEMORY_PER_BYTE * MAX_BATCH_BYTES;

/// The approximate number of trail versions that are held while a response is built.
const MAX_VERSIONS: usize = 4096;

/// The shared data of a response with artifacts.
pub(super) struct ViewContext {
    owned: OwnedContext,
    /// The flow of all artifacts, if it is the same and known.
    flow: Option<Flow>,
    /// The versions of the trails of earlier artifacts. Later artifacts use the same versions or newer ones.
    /// A trail that gets reports all the time is therefore read once.
    versions: Mutex<BTreeMap<Id, TrailVersion>>,
    /// When the response was started.
    since: Instant,
    /// Whether the response shows evidence. The content of attestations is read only then.
    shows_evidence: bool,
    /// Reports that were read with their list, by id.
    content: Mutex<BTreeMap<Id, Artifact>>,
    /// The runs of all artifacts, if known.
    runs: Option<Vec<Run>>,
}

/// The trails of some artifacts, by id.
type Trails = BTreeMap<Id, Arc<ReportedTrail>>;

impl ViewContext {
    /// Creates the shared data. `flow` is the flow of all artifacts, if known.
    pub(super) fn new(flow: Option<Flow>, cx: &Context<'_>) -> Self {
        Self::of(flow, true, cx)
    }

    /// Creates the shared data for artifacts of any flow, in a response without evidence.
    pub(super) fn without_evidence(cx: &Context<'_>) -> Self {
        Self::of(None, false, cx)
    }

    fn of(flow: Option<Flow>, shows_evidence: bool, cx: &Context<'_>) -> Self {
        let (owned, since) = (cx.to_owned_context(), Instant::now());
        let (versions, content) = Default::default();
        Self { owned, flow, versions, since, shows_evidence, content, runs: None }
    }

    /// Adds reports that were read with their list.
    pub(super) fn with_content(self, content: Vec<Artifact>) -> Self {
        let content = content.into_iter().map(|artifact| (artifact.id, artifact)).collect();
        Self { content: Mutex::new(content), ..self }
    }

    /// Adds what was read with the only artifact: the version of its trail, and its runs.
    pub(super) fn with_related(self, version: Option<TrailVersion>, runs: Vec<Run>) -> Self {
        let versions = version.into_iter().map(|version| (version.id, version)).collect();
        Self { versions: Mutex::new(versions), runs: Some(runs), ..self }
    }

    /// Returns the reports of these ids, in any order. Runs no query if all were read with their list.
    pub(super) async fn artifacts(&self, ids: &[Id]) -> Result<Vec<Artifact>> {
        let (mut found, mut unread) = (Vec::with_capacity(ids.len()), Vec::new());
        {
            let mut content = locked(&self.content);
            for id in ids {
                match content.remove(id) {
                    Some(artifact) => found.push(artifact),
                    None => unread.push(*id),
                }
            }
        }
        if !unread.is_empty() {
            let cx = self.owned.context();
            found.extend(cx.store().artifacts_by_id(cx.org()?, &unread).await?);
        }
        Ok(found)
    }

    /// Returns the runs of these artifacts.
    async fn runs(&self, artifacts: &[Artifact], cx: &Context<'_>) -> Result<Vec<Run>> {
        match &self.runs {
            Some(runs) => Ok(runs.clone()),
            None => runs(&distinct(artifacts.iter().map(|artifact| artifact.fingerprint.clone())), cx).await,
        }
    }

    async fn flows(&self, artifacts: &[Artifact], cx: &Context<'_>) -> Result<BTreeMap<Id, Flow>> {
        let flows = match &self.flow {
            Some(flow) => vec![flow.clone()],
            None => {
                let ids = distinct(artifacts.iter().map(|artifact| artifact.flow));
                cx.store().flows_by_id(cx.org()?, &ids).await?
            }
        };
        Ok(flows.into_iter().map(|flow| (flow.id, flow)).collect())
    }

    /// Returns the origins of the content that was reported without a trail. Runs no query if all reports are
    /// to trails.
    async fn origins(&self, artifacts: &[Artifact], cx: &Context<'_>) -> Result<Origins> {
        let alone = artifacts.iter().filter(|artifact| artifact.trail.is_none());
        let alone = distinct(alone.map(|artifact| artifact.fingerprint.clone()));
        let mut origins = Origins::default();
        for part in alone.chunks(MAX_VERSIONS) {
            for origin in cx.store().provenance(cx.org()?, part, u64::MAX).await? {
                origins.content.insert((origin.report.flow, origin.report.fingerprint.clone()), origin);
            }
        }
        let decided_alone = artifacts.iter().filter(|artifact| origins.deciding_trail(artifact).is_none());
        let content = decided_alone.map(|artifact| (artifact.flow, artifact.fingerprint.clone()));
        origins.names = cx.names_in_flows(&distinct(content)).await?;
        Ok(origins)
    }

    /// Ensures that the versions of these artifacts' trails are known. Runs no query if they are known from
    /// earlier artifacts.
    async fn learn_versions(
        &self,
        artifacts: &[Artifact],
        origins: &Origins,
        cx: &Context<'_>,
    ) -> Result<()> {
        let mut trails = distinct(artifacts.iter().filter_map(|artifact| origins.deciding_trail(artifact)));
        {
            let mut versions = locked(&self.versions);
            if versions.len() > MAX_VERSIONS {
                versions.clear();
            }
            trails.retain(|trail| !versions.contains_key(trail));
        }
        let found = cx.trail_versions(&trails).await?.into_iter().map(|version| (version.id, version));
        locked(&self.versions).extend(found);
        Ok(())
    }

    fn version(&self, trail: Id) -> Option<TrailVersion> {
        locked(&self.versions).get(&trail).copied()
    }

    /// Returns these trails and the `known` ones, with their reports grouped by content.
    async fn trails(
        &self,
        known: Vec<Arc<ReportedTrail>>,
        versions: &[TrailVersion],
        cx: &Context<'_>,
    ) -> Result<Trails> {
        let mut found = cx.reported_trails(versions, self.since).await?;
        found.extend(known);
        let heavy = found.iter().map(|trail| trail.unprepared()).sum::<usize>() > MANY_EVALUATIONS;
        let prepare = move || {
            let prepared = |trail: Arc<ReportedTrail>| {
                trail.by_content();
                (trail.contents.trail.id, trail)
            };
            found.into_iter().map(prepared).collect()
        };
        cx.compute().run_if(heavy, prepare).await
    }
}

/// Streams these artifacts in order. Holds only as many trails at a time as fit in memory.
pub(super) fn views(
    artifacts: Vec<Artifact>,
    context: Arc<ViewContext>,
) -> BoxStream<'static, Result<Box<ArtifactView>>> {
    let parts = |rest| {
        stream::try_unfold(rest, |mut rest: Rest| async move {
            Ok::<_, Error>(rest.part().await?.map(|part| (part, rest)))
        })
    };
    stream::once(Rest::of(artifacts, context)).map_ok(parts).try_flatten().try_flatten().boxed()
}

/// The origins of content that was reported to flows as a whole, by flow and fingerprint.
#[derive(Default)]
struct Origins {
    content: BTreeMap<(Id, Fingerprint), Origin>,
    /// The names of the content that is evaluated without a trail.
    names: BTreeMap<(Id, Fingerprint), BTreeMap<String, u64>>,
}

impl Origins {
    fn of(&self, artifact: &Artifact) -> Option<&Origin> {
        self.content.get(&(artifact.flow, artifact.fingerprint.clone()))
    }

    fn names(&self, artifact: &Artifact) -> Option<&BTreeMap<String, u64>> {
        self.names.get(&(artifact.flow, artifact.fingerprint.clone()))
    }

    /// Returns the trail that decides the artifact's state. A report without a trail uses the newest trail in
    /// the flow that its content was reported to.
    fn deciding_trail(&self, artifact: &Artifact) -> Option<Id> {
        artifact.trail.or_else(|| self.of(artifact)?.report.trail)
    }
}

/// The artifacts that still have to be sent.
struct Rest {
    artifacts: VecDeque<Artifact>,
    origins: Arc<Origins>,
    context: Arc<ViewContext>,
}

/// A batch of artifacts, with their trails: cached ones, and the versions of the others.
struct Part {
    artifacts: Vec<Artifact>,
    known: BTreeMap<Id, Arc<ReportedTrail>>,
    unknown: BTreeMap<Id, TrailVersion>,
}

impl Rest {
    async fn of(artifacts: Vec<Artifact>, context: Arc<ViewContext>) -> Result<Self> {
        let cx = context.owned.context();
        let origins = context.origins(&artifacts, &cx).await?;
        context.learn_versions(&artifacts, &origins, &cx).await?;
        Ok(Self { artifacts: artifacts.into(), origins: Arc::new(origins), context })
    }

    /// Takes the artifacts whose trails fit in memory together. Cached trails stay in memory while this batch
    /// is sent.
    fn take(&mut self) -> Result<Part> {
        let cx = self.context.owned.context();
        let (mut artifacts, mut known, mut unknown) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut budget = BatchBudget::of(MAX_TRAILS_BYTES);
        while let Some(artifact) = self.artifacts.pop_front() {
            let trail = self.origins.deciding_trail(&artifact);
            let trail = trail.filter(|trail| !known.contains_key(trail) && !unknown.contains_key(trail));
            if let Some(version) = trail.and_then(|trail| self.context.version(trail)) {
                let cached = cx.cached_trail(&version, self.context.since)?;
                let unread = version.size().saturating_mul(MEMORY_PER_BYTE);
                if !budget.try_reserve(cached.as_ref().map_or(unread, |trail| trail.bytes as u64)) {
                    self.artifacts.push_front(artifact);
                    break;
                }
                match cached {
                    Some(trail) => drop(known.insert(version.id, trail)),
                    None => drop(unknown.insert(version.id, version)),
                }
            }
            artifacts.push(artifact);
        }
        Ok(Part { artifacts, known, unknown })
    }

    /// Returns the next batch for the response, or `None` if none is left.
    async fn part(&mut self) -> Result<Option<BoxStream<'static, Result<Box<ArtifactView>>>>> {
        if self.artifacts.is_empty() {
            return Ok(None);
        }
        let Part { artifacts, known, unknown } = self.take()?;
        let (known, unknown) = (known.into_values().collect(), Vec::from_iter(unknown.into_values()));
        let context = Arc::clone(&self.context);
        let cx = context.owned.context();
        let (flows, trails, ran) = try_join3(
            context.flows(&artifacts, &cx),
            context.trails(known, &unknown, &cx),
            context.runs(&artifacts, &cx),
        )
        .await?;
        let shows_evidence = context.shows_evidence;
        let runs = by_fingerprint(ran);
        let origins = Arc::clone(&self.origins);
        let data = Arc::new(ViewData { flows, origins, trails, runs, shows_evidence });
        let about = artifacts.iter().map(|artifact| data.evidence(artifact)).sum::<usize>();
        let tell = {
            let data = Arc::clone(&data);
            move || {
                Vec::from_iter(
                    artifacts.into_iter().map(|artifact| ArtifactWithEvidence::new(artifact, &data)),
                )
            }
        };
        let items = cx.compute().run_if(about > MANY_EVALUATIONS, tell).await?;
        let weighed = items.into_iter().map(|item| {
            let bytes = item.shown.len() as u64 * EVIDENCE;
            (item, bytes)
        });
        let parts = stream::iter(in_batches(weighed, usize::MAX));
        let owned = context.owned.clone();
        let read = move |part| with_shown(part, Arc::clone(&data), owned.clone());
        Ok(Some(parts.then(read).try_flatten().boxed()))
    }
}

/// The data that the views of some artifacts need, read in a bounded number of queries.
struct ViewData {
    flows: BTreeMap<Id, Flow>,
    origins: Arc<Origins>,
    trails: Trails,
    runs: BTreeMap<Fingerprint, Vec<Run>>,
    shows_evidence: bool,
}

impl ViewData {
    fn flow_name(&self, artifact: &Artifact) -> &str {
        self.flows.get(&artifact.flow).map(|flow| flow.name.as_str()).unwrap_or_default()
    }

    fn trail(&self, artifact: &Artifact) -> Option<&ReportedTrail> {
        self.trails.get(&artifact.trail?).map(Arc::as_ref)
    }

    /// Returns the trail that decides the artifact's state.
    fn deciding_trail(&self, artifact: &Artifact) -> Option<&ReportedTrail> {
        self.trails.get(&self.origins.deciding_trail(artifact)?).map(Arc::as_ref)
    }

    /// Returns the template to evaluate it by: that of the deciding trail, otherwise its own.
    fn template(&self, artifact: &Artifact) -> Option<TextRef> {
        self.deciding_trail(artifact).map_or(artifact.template, |trail| trail.contents.trail.template)
    }

    /// Returns the artifact's state, its remarks, and the names by which the template has requirements for
    /// it.
    fn verdict<'a>(
        &'a self,
        artifact: &'a Artifact,
        template: &Template,
    ) -> (State, Option<String>, BTreeSet<&'a str>) {
        let (fingerprint, name) = (artifact.fingerprint.as_str(), artifact.template_reference_name.as_str());
        if let Some(trail) = self.deciding_trail(artifact) {
            let (state, info) = trail.by_content().state(template, fingerprint, name);
            let other = artifact.trail.is_none().then_some(&trail.contents.trail.name);
            let other = other.map(|trail| format!("The verdict is that of its report to trail '{trail}'"));
            return (state, other.or(info), trail.by_content().names(fingerprint, name));
        }
        let names = self.origins.names(artifact);
        let report = ReportedArtifact {
            id: artifact.id.to_string(),
            fingerprint: fingerprint.to_owned(),
            name: name.to_owned(),
            commit: String::new(),
            at: artifact.created_at,
            // All names of the content count, whichever of its reports is shown.
            index: u64::MAX,
        };
        let reports =
            names.map_or_else(|| vec![report.clone()], |names| report.clone().after_those_by(names));
        let alone = ContentIndex::new(&reports, Vec::new(), &EarlierNames::new());
        let (state, info) = alone.state(template, fingerprint, name);
        let names = names.into_iter().flatten().map(|(name, _)| name.as_str());
        (state, info, names.chain([name]).collect())
    }

    /// Returns the number of attestations about this artifact.
    fn evidence(&self, artifact: &Artifact) -> usize {
        self.trail(artifact).map_or(0, |trail| trail.by_content().count(artifact.fingerprint.as_str()))
    }
}

/// An artifact, and the indexes of its trail's attestations that are about it, oldest first.
struct ArtifactWithEvidence {
    artifact: Artifact,
    about: Vec<usize>,
    /// The attestations to show for each name.
    shown: Vec<ShownAttestation>,
}

impl ArtifactWithEvidence {
    fn new(artifact: Artifact, data: &ViewData) -> Self {
        let trail = data.trail(&artifact);
        let about = trail.map(|trail| trail.by_content().about(artifact.fingerprint.as_str()));
        let about = about.unwrap_or_default();
        let shown = trail
            .filter(|_| data.shows_evidence)
            .map(|trail| shown_attestations(trail.attestations(), &about));
        let shown = shown.unwrap_or_default();
        Self { artifact, about, shown }
    }
}

/// Streams these artifacts, whose attestations fit in memory together.
async fn with_shown(
    part: Vec<ArtifactWithEvidence>,
    data: Arc<ViewData>,
    owned: OwnedContext,
) -> Result<impl Stream<Item = Result<Box<ArtifactView>>> + Send + 'static> {
    let shown = |item: &ArtifactWithEvidence| {
        let trail = data.trail(&item.artifact);
        let row = |shown: &ShownAttestation| trail?.attestations().get(shown.evidence);
        Vec::from_iter(item.shown.iter().filter_map(row).map(|row| row.id))
    };
    let ids = distinct(part.iter().flat_map(shown));
    let mut shown = BTreeMap::new();
    if !ids.is_empty() {
        let cx = owned.context();
        let found = cx.store().attestations_by_id(cx.org()?, &ids).await?;
        shown.extend(found.into_iter().map(|attestation| (attestation.id, attestation)));
    }
    let with_template = |item: ArtifactWithEvidence| (data.template(&item.artifact), item);
    let part = part.into_iter().map(with_template).collect();
    let evaluations = {
        let data = Arc::clone(&data);
        move |item: &ArtifactWithEvidence, template: &Template| {
            let artifact = &item.artifact;
            let deciding = data.deciding_trail(artifact);
            let named = template.artifact(&artifact.template_reference_name);
            let own = deciding.map_or(named.map_or(0, |expected| expected.attestations.len()), |trail| {
                let names = trail.by_content().names(artifact.fingerprint.as_str(), "");
                let expected = names.iter().filter_map(|name| template.artifact(name));
                expected.map(|expected| expected.attestations.len()).sum()
            });
            let of_trail = deciding.map(|trail| trail.by_content().unevaluated(template));
            item.about.len() + own + of_trail.unwrap_or(template.attestations.len())
        }
    };
    let shown = Arc::new(shown);
    let view = move |item: ArtifactWithEvidence, parsed: Arc<Parsed>, cx: &Context<'_>| {
        let is_lost = data.origins.deciding_trail(&item.artifact).is_some()
            && data.deciding_trail(&item.artifact).is_none();
        if is_lost {
            return view(&item, &Template::of_lost_trail(), &data, &shown, cx);
        }
        view(&item, &parsed.template, &data, &shown, cx)
    };
    Ok(map_with_templates(part, owned, evaluations, view))
}

fn view(
    item: &ArtifactWithEvidence,
    template: &Template,
    data: &ViewData,
    shown: &BTreeMap<Id, Attestation>,
    cx: &Context<'_>,
) -> Result<Box<ArtifactView>> {
    let ArtifactWithEvidence { artifact, about, shown: named } = item;
    let trail = data.trail(artifact);
    let attestations = trail.map_or(&[][..], ReportedTrail::attestations);
    let evidence = Vec::from_iter(about.iter().filter_map(|place| attestations.get(*place)));
    let fingerprint = &artifact.fingerprint;
    let (state, info, names) = data.verdict(artifact, template);
    let sentence = state_info(state);
    let state_info = match (template.unreadable(), info) {
        (Some(why), _) => why.to_owned(),
        (None, Some(info)) => format!("{sentence} {info}."),
        (None, None) => sentence.to_owned(),
    };
    let said = |named: &ShownAttestation| {
        let (newest, evidence) = (attestations.get(named.newest)?, attestations.get(named.evidence)?);
        let evidence = EvidenceView::from(shown.get(&evidence.id)?);
        let override_info = newest.override_info.as_deref().map(str::to_owned);
        Some((
            newest.name.clone(),
            EvidenceView { is_compliant: newest.is_compliant, override_info, ..evidence },
        ))
    };
    let runs = data.runs.get(&artifact.fingerprint).map(Vec::as_slice).unwrap_or_default();
    let committed = artifact.git_commit_info.as_ref().and_then(|commit| commit.timestamp).map(|at| at.0);
    let last = evidence.iter().map(|attestation| attestation.at).fold(artifact.created_at, Ord::max);
    let (org, flow_name) = (&cx.org_access()?.name, data.flow_name(artifact));
    Ok(Box::new(ArtifactView {
        id: artifact.id,
        fingerprint: fingerprint.clone(),
        filename: artifact.filename.clone(),
        created_at: artifact.created_at.decimal(),
        last_modified_at: last.decimal(),
        evidence: named.iter().filter_map(said).collect(),
        flow_name: flow_name.to_owned(),
        commit_lead_times: committed.map(|at| lead_times(runs, at)).unwrap_or_default(),
        build_lead_times: lead_times(runs, artifact.created_at),
        trail_name: trail.map(|trail| trail.contents.trail.name.to_string()).unwrap_or_default(),
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
        template: compliance::expected_names(template, names),
        state_info,
        running: places(runs, |run| run.lasts().then_some(run.from.0)),
        exited: places(runs, |run| run.until.map(|(index, _)| index)),
        history: if cx.sees_environments()? { history(artifact, &evidence, runs) } else { Vec::new() },
    }))
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
