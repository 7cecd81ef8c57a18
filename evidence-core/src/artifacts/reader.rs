//! Reads artifacts for responses: each report with its state in its trail, its evidence, and its runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use futures_util::future::try_join3;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use crate::artifacts::record::Artifact;
use crate::artifacts::shown_attestations::{ShownAttestation, shown_attestations};
use crate::artifacts::store::Origin;
use crate::attestations::record::Attestation;
use crate::compute::MANY_EVALUATIONS;
use crate::context::{Context, OwnedContext};
use crate::error::{Error, Result};
use crate::flows::parsed::Parsed;
use crate::flows::record::Flow;
use crate::flows::templates::map_with_templates;
use crate::git::GitCommitInfo;
use crate::id::Id;
use crate::lock::locked;
use crate::name::Fingerprint;
use crate::page::{BatchBudget, MAX_BATCH_BYTES, in_batches};
use crate::rules::compliance::{self, ContentIndex, EarlierNames, ReportedArtifact, State};
use crate::rules::template::Template;
use crate::snapshots::store::Run;
use crate::store::batch::distinct;
use crate::texts::record::TextRef;
use crate::trails::events::runs;
use crate::trails::record::TrailVersion;
use crate::trails::reported::{MEMORY_PER_BYTE, ReportedTrail};

use crate::artifacts::view::{
    ArtifactView, EvidenceView, RepoInfoView, by_fingerprint, history, lead_times, places, state_info,
};

/// The assumed size in bytes of an attestation whose size is unknown.
const EVIDENCE: u64 = MAX_BATCH_BYTES / 64;

/// The approximate memory budget in bytes for the trails that one response holds at a time. A client that
/// reads slowly keeps even cached trails in memory. A single trail may be larger.
const MAX_TRAILS_BYTES: u64 = MEMORY_PER_BYTE * MAX_BATCH_BYTES;

/// The approximate number of trail versions that are held while a response is built.
const MAX_VERSIONS: usize = 4096;

/// The shared data of a response with artifacts.
pub(super) struct ArtifactReader {
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

impl ArtifactReader {
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
    context: Arc<ArtifactReader>,
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
    context: Arc<ArtifactReader>,
}

/// A batch of artifacts, with their trails: cached ones, and the versions of the others.
struct Part {
    artifacts: Vec<Artifact>,
    known: BTreeMap<Id, Arc<ReportedTrail>>,
    unknown: BTreeMap<Id, TrailVersion>,
}

impl Rest {
    async fn of(artifacts: Vec<Artifact>, context: Arc<ArtifactReader>) -> Result<Self> {
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
        let data = Arc::new(PartData { flows, origins, trails, runs, shows_evidence });
        let about = artifacts.iter().map(|artifact| data.evidence(artifact)).sum::<usize>();
        let join = {
            let data = Arc::clone(&data);
            move || {
                Vec::from_iter(
                    artifacts.into_iter().map(|artifact| ArtifactWithEvidence::new(artifact, &data)),
                )
            }
        };
        let items = cx.compute().run_if(about > MANY_EVALUATIONS, join).await?;
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
struct PartData {
    flows: BTreeMap<Id, Flow>,
    origins: Arc<Origins>,
    trails: Trails,
    runs: BTreeMap<Fingerprint, Vec<Run>>,
    shows_evidence: bool,
}

impl PartData {
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
    fn new(artifact: Artifact, data: &PartData) -> Self {
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
    data: Arc<PartData>,
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
    data: &PartData,
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
