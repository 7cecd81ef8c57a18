//! Operations on artifacts.

use std::sync::Arc;

use futures_util::future::ready;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, TryFutureExt, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reader::{ArtifactReader, views};
use crate::artifacts::record::{Artifact, TemplateNames};
use crate::artifacts::store::{ArtifactFilter, ArtifactPage, ArtifactQuery, ArtifactWithRuns};
use crate::artifacts::view::ArtifactView;
use crate::auth::actor::Scope;
use crate::bounded::{Address, Description, FreeForm, ShortText, Text, UserData};
use crate::context::{Context, Draft, OwnedContext};
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Precondition, RecordKind};
use crate::flows::record::Flow;
use crate::git::{Commits, GitCommit};
use crate::id::Id;
use crate::limits::Limits;
use crate::links::ExternalUrls;
use crate::name::{
    CommitPrefix, CommitSha, Fingerprint, FingerprintPrefix, FlowName, OrgName, TemplateReferenceName,
    TrailName,
};
use crate::operation::{Created, Json, JsonList, Method, Operation};
use crate::page::{Listed, MAX_LISTED, Page, PageNumber, PageRequest, PerPage, in_pages};
use crate::repos::operations::RepoChoice;
use crate::repos::record::RepoInfo;
use crate::store::batch::sort_by_ids;
use crate::store::entry::Current;
use crate::trails::draft::check_report_quota;
use crate::trails::store::Reported;

/// Reports an artifact to a flow, and with `trail_name` to a trail of it. A flow or trail that does not exist
/// is created, unless the host disables that. Every report is recorded with its own id, even if the
/// fingerprint was reported before.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ReportArtifact {
    /// The organization's name.
    pub org: OrgName,
    /// The flow to report to.
    pub flow_name: FlowName,
}

/// The name of a file, or the reference of an image: 1 to 4,096 characters.
pub type FileName = Text<4096, 1>;

/// An artifact to report. Without `trail_name`, it belongs to the flow as a whole.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "CreateArtifact")]
pub struct ArtifactInput {
    /// The trail to report to. Without it, the artifact belongs to the flow as a whole.
    pub trail_name: Option<TrailName>,
    /// The artifact's name in the trail's template. Other names are accepted too; such an artifact is not an
    /// expected one.
    pub template_reference_name: Option<TemplateReferenceName>,
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// The file's name, or the image's reference.
    pub filename: FileName,
    /// A description for readers. The trail's events show it.
    pub description: Option<Description>,
    /// The commit that the artifact was built from. Defaults to `git_commit_info.sha1`; if the two differ,
    /// `git_commit` takes precedence.
    pub git_commit: Option<CommitSha>,
    /// The details of the commit. Defaults to the entry for `git_commit` in `commits_list`.
    pub git_commit_info: Option<GitCommit>,
    /// The repository that it comes from. The report adds it to the organization's repos.
    pub repo_info: Option<RepoInfo>,
    /// The commits since the previous artifact. The trail's events show them.
    pub commits_list: Option<Commits>,
    /// The URL of the repository.
    pub repo_url: Option<Address>,
    /// `true`, or left out: the compliance of an artifact follows from its attestations. `false` is 400;
    /// report an attestation of the artifact that is not compliant instead.
    pub is_compliant: Option<bool>,
    /// The URL of the build's page.
    pub build_url: Address,
    /// The URL of the commit's page.
    pub commit_url: Address,
    /// The value that responses show, so that a response can be sent back. It is recorded but has no effect
    /// on evaluation: the template of the trail or flow defines the requirements.
    pub template: Option<TemplateNames>,
    /// Labelled links: label to URL and, optionally, the fingerprint of the linked content.
    pub external_urls: Option<ExternalUrls>,
    /// Remarks in any form.
    pub annotations: Option<FreeForm>,
    /// Free-form data to record with it.
    pub user_data: Option<UserData>,
}

impl ArtifactInput {
    /// Returns an artifact input with a fingerprint and a file name only.
    pub fn new(fingerprint: Fingerprint, filename: FileName) -> Self {
        Self {
            trail_name: None,
            template_reference_name: None,
            fingerprint,
            filename,
            description: None,
            git_commit: None,
            git_commit_info: None,
            repo_info: None,
            commits_list: None,
            repo_url: None,
            is_compliant: None,
            build_url: Address::default(),
            commit_url: Address::default(),
            template: None,
            external_urls: None,
            annotations: None,
            user_data: None,
        }
    }
}

/// The acknowledgement of an artifact report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ArtifactReported {
    /// Always `OK`.
    pub message: &'static str,
}

impl Operation for ReportArtifact {
    const NAME: &'static str = "create_artifact";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/artifacts/{org}/{flow_name}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Reports an artifact to a flow, and optionally to a trail";
    type Body = Json<ArtifactInput>;
    type Output = Created<ArtifactReported>;

    fn body_limit(limits: &Limits) -> u64 {
        limits.document
    }

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        if input.is_compliant == Some(false) {
            return Err(Error::invalid("is_compliant", NOT_COMPLIANT));
        }
        cx.retry(|| report(&self.flow_name, &input, cx)).await?;
        Ok(Created(ArtifactReported { message: "OK" }))
    }
}

/// The error for an artifact reported as not compliant. If it were recorded, the artifact could still be
/// compliant.
const NOT_COMPLIANT: &str = "Whether an artifact is compliant follows from its attestations: report the artifact without \
                             this, and an attestation of it that is not compliant";

async fn report(flow: &FlowName, input: &ArtifactInput, cx: &Context<'_>) -> Result<()> {
    let mut draft = Draft::default();
    let flow = draft.flow(flow, cx).await?;
    // A report takes the template of its trail. Without a trail, and for a new trail, that is the flow's
    // template.
    let mut template = flow.template;
    let trail = match &input.trail_name {
        Some(name) => {
            let known = cx.known_trail(flow.id, name).await?;
            if let Some(Current { revision, record: trail }) = known.as_deref() {
                check_report_quota(trail, name, Reported::Artifacts, cx).await?;
                draft.preconditions.push(Precondition::Revision(RecordKind::Trail, trail.id, *revision));
                template = trail.template;
            }
            Some(draft.known_or_new_trail(known.as_deref(), &flow, name, cx))
        }
        None => {
            draft.preconditions.extend(draft.flow.take());
            None
        }
    };
    let repo = draft.repo(input.repo_info.as_ref(), cx).await?;
    let told = || input.git_commit_info.as_ref().and_then(|commit| commit.sha1.parse().ok());
    let git_commit = input.git_commit.clone().or_else(told);
    // Older clients send the details of the commit only in the list.
    let listed = || {
        let mut commits = input.commits_list.iter().flat_map(|commits| &commits.0);
        commits.find(|commit| Some(&*commit.sha1) == git_commit.as_ref().map(CommitSha::as_str))
    };
    let git_commit_info = input.git_commit_info.as_ref().or_else(listed).cloned();
    let input = input.clone();
    draft.fact(Fact::ArtifactReported {
        record: Artifact {
            id: cx.new_id(),
            flow: flow.id,
            trail,
            fingerprint: input.fingerprint,
            filename: input.filename.into_string(),
            description: input.description.map(Description::into_string).unwrap_or_default(),
            template_reference_name: input
                .template_reference_name
                .map(|name| name.to_string())
                .unwrap_or_default(),
            git_commit,
            git_commit_info,
            repo_info: input.repo_info,
            repo,
            commits_list: input.commits_list.unwrap_or_default().0,
            is_compliant: input.is_compliant,
            reported_template: input.template,
            commit_url: input.commit_url.into_string(),
            build_url: input.build_url.into_string(),
            repo_url: input.repo_url.unwrap_or_default().into_string(),
            user_data: input.user_data.map(|UserData(data)| data).unwrap_or_default(),
            external_urls: input.external_urls,
            annotations: input.annotations.unwrap_or_default(),
            template,
            created_at: cx.now(),
            created_by: cx.actor(),
        },
    });
    cx.record(draft).await?;
    Ok(())
}

/// Returns the flow of a look-up, and the trail that narrows it. The trail is `Err` if it does not exist: the
/// look-up then finds nothing.
async fn narrowed(
    flow: &FlowName,
    trail: Option<&str>,
    cx: &Context<'_>,
) -> Result<(Flow, Result<Option<Id>, ()>)> {
    let flow = cx.flow(flow.as_str()).await?.record;
    let trail = match trail.filter(|name| !name.is_empty()) {
        None => Ok(None),
        Some(name) => {
            let trail = cx.store().trail(cx.org()?, flow.id, name).await?;
            trail.map(|trail| Some(trail.record.id)).ok_or(())
        }
    };
    Ok((flow, trail))
}

const MAX_NAMED: u64 = 10;

/// Returns the only fingerprint in the flow that begins with `prefix`.
pub(crate) async fn resolve(
    flow: &Flow,
    prefix: &FingerprintPrefix,
    cx: &Context<'_>,
) -> Result<Fingerprint> {
    if let Ok(whole) = prefix.as_str().parse() {
        return Ok(whole);
    }
    let matches = cx.store().fingerprints(cx.org()?, flow.id, prefix.as_str(), MAX_NAMED).await?;
    match matches.first.as_slice() {
        [] => Err(missing(flow, prefix, cx)),
        [only] => Ok(only.clone()),
        several => {
            let named: Vec<&str> = several.iter().map(AsRef::as_ref).collect();
            let text = format!("matches {} fingerprints: {}", matches.count, named.join(", "));
            Err(Error::invalid("fingerprint", text))
        }
    }
}

fn missing(flow: &Flow, fingerprint: &FingerprintPrefix, cx: &Context<'_>) -> Error {
    cx.missing(Resource::Artifact, fingerprint.as_str()).in_flow(flow.name.as_str()).into()
}

/// Gets an artifact of a flow by its fingerprint or a prefix of it. Returns the newest report, or the one
/// that the query names. A prefix of several fingerprints is 400, and the error lists some of them.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetArtifact {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The artifact's fingerprint, or at least its first 5 digits if they match only one artifact of the
    /// flow.
    pub fingerprint: FingerprintPrefix,
    /// Returns only reports to this trail.
    pub trail: Option<ShortText>,
    /// Returns the report with this `id`.
    pub attestation_id: Option<Id>,
}

impl Operation for GetArtifact {
    const NAME: &'static str = "get_artifact_by_fingerprint";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/artifacts/{org}/{flow_name}/fingerprint/{fingerprint}";
    const SCOPE: Scope = Scope::ReadFlow;
    const SUMMARY: &'static str = "Gets an artifact of a flow by fingerprint";
    const CACHED: bool = true;
    type Body = ();
    type Output = Json<Box<ArtifactView>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    fn flow(&self) -> Option<&FlowName> {
        Some(&self.flow_name)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let name = self.flow_name.as_str();
        let fingerprint = match self.fingerprint.as_str().parse() {
            Ok(whole) => whole,
            Err(_) => resolve(&cx.flow(name).await?.record, &self.fingerprint, cx).await?,
        };
        let query = ArtifactQuery {
            flow: name,
            fingerprint: &fingerprint,
            trail: self.trail.as_deref().filter(|name| !name.is_empty()),
            id: self.attestation_id,
            newest_runs: cx.sees_environments()?.then_some(cx.limits().runs),
        };
        let found = cx.store().artifact_of_flow(cx.org()?, query).await?;
        let (flow, found) = found.ok_or_else(|| cx.missing(Resource::Flow, name))?;
        cx.expect_readable(&flow)?;
        let gone = missing(&flow, &self.fingerprint, cx);
        let Some(ArtifactWithRuns { artifact, version, runs }) = found else { return Err(gone) };
        let context = ArtifactReader::new(Some(flow), cx).with_related(version, runs);
        let view = views(vec![artifact], Arc::new(context)).next().await.transpose()?;
        view.map(Json).ok_or(gone)
    }
}

/// Lists the artifacts of a flow that were built from a commit, newest report first. Without a match, returns
/// an empty list. An abbreviated hash matches every commit that begins with it.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetArtifactsByCommit {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The hash of the commit, or at least its first 5 digits.
    pub commit_sha: CommitPrefix,
    /// Returns only reports to this trail. A trail that does not exist gives an empty list.
    pub trail: Option<ShortText>,
}

impl Operation for GetArtifactsByCommit {
    const NAME: &'static str = "get_artifact_by_commit_sha";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/artifacts/{org}/{flow_name}/commit_sha/{commit_sha}";
    const SCOPE: Scope = Scope::ReadFlow;
    const SUMMARY: &'static str = "Gets the artifacts of a flow that were built from a commit";
    const CACHED: bool = true;
    type Body = ();
    type Output = JsonList<Box<ArtifactView>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    fn flow(&self) -> Option<&FlowName> {
        Some(&self.flow_name)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let (flow, trail) = narrowed(&self.flow_name, self.trail.as_deref(), cx).await?;
        let Ok(trail) = trail else { return Ok(JsonList::of(stream::empty())) };
        let filter = ArtifactFilter {
            flow: Some(flow.id),
            trail,
            commit: Some(self.commit_sha.into_string()),
            ..ArtifactFilter::default()
        };
        let owned = cx.to_owned_context();
        let read_page = move |request| listed(filter.clone(), request, owned.clone());
        list(in_pages(MAX_LISTED, read_page), ArtifactReader::new(Some(flow), cx), cx).await
    }
}

/// Gets the commit of the newest report of an artifact that names a full commit hash. Returns an empty string
/// if the artifact is unknown or no report of it names such a commit.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetLatestCommit {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The artifact's fingerprint, or at least its first 5 digits if they match only one artifact of the
    /// flow.
    pub fingerprint: FingerprintPrefix,
    /// Considers only reports of commits on this branch.
    pub branch: Option<ShortText>,
}

/// The latest commit of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "LatestCommitResponse")]
#[non_exhaustive]
pub struct LatestCommit {
    /// The commit's 40 hex digits; `""` if there is none.
    pub latest_commit: String,
}

impl Operation for GetLatestCommit {
    const NAME: &'static str = "get_latest_artifact_commit";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/artifacts/{org}/{flow_name}/{fingerprint}/latest_commit";
    const SCOPE: Scope = Scope::ReadFlow;
    const SUMMARY: &'static str = "Gets the latest git commit of an artifact";
    type Body = ();
    type Output = Json<LatestCommit>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    fn flow(&self) -> Option<&FlowName> {
        Some(&self.flow_name)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let flow = cx.flow(self.flow_name.as_str()).await?.record;
        let fingerprint = match resolve(&flow, &self.fingerprint, cx).await {
            Err(Error::NotFound(_)) => return Ok(Json(LatestCommit { latest_commit: String::new() })),
            resolved => resolved?,
        };
        let filter = ArtifactFilter {
            flow: Some(flow.id),
            fingerprint: Some(fingerprint.into_string()),
            branch: self.branch.filter(|branch| !branch.is_empty()).map(ShortText::into_string),
            with_commit: true,
            ..ArtifactFilter::default()
        };
        let found = cx.store().latest_artifact(cx.org()?, &filter).await?;
        let commit = found.as_ref().and_then(Artifact::commit_in_full);
        Ok(Json(LatestCommit { latest_commit: commit.unwrap_or_default().to_owned() }))
    }
}

/// Lists the artifact reports of an organization, newest first, optionally of one flow or repo. A flow or
/// repo that does not exist is 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListArtifacts {
    /// The organization's name.
    pub org: OrgName,
    /// Returns only artifacts of this flow.
    pub flow_name: Option<FlowName>,
    /// Returns only artifacts of the repos of this name.
    pub repo_name: Option<ShortText>,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Reports per page. Defaults to 15. A page has at most 1,000, even if more are requested.
    pub per_page: Option<PerPage<{ i64::MAX }>>,
}

/// The most items on a page.
const MAX_PER_PAGE: u64 = 1000;

impl Operation for ListArtifacts {
    const NAME: &'static str = "list_artifacts";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/artifacts/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists artifacts, newest first";
    const CACHED: bool = true;
    type Body = ();
    type Output = JsonList<Box<ArtifactView>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let flow = match &self.flow_name {
            Some(name) => {
                let flow = cx.flow(name.as_str()).await.map_err(|error| error.named_by("query.flow_name"));
                Some(flow?.record)
            }
            None => None,
        };
        let repos = RepoChoice { inner_id: None, repo_id: None, name: self.repo_name.as_deref() };
        let repos = cx.chosen_repos(repos).await?;
        let filter =
            ArtifactFilter { flow: flow.as_ref().map(|flow| flow.id), repos, ..ArtifactFilter::default() };
        let per_page = self.per_page.map_or(15, PerPage::get).min(MAX_PER_PAGE);
        let request = self.page.unwrap_or_default().request(per_page);
        let ArtifactPage { listed, content } =
            cx.store().artifacts_listed(cx.org()?, &filter, request).await?;
        let context = ArtifactReader::new(flow, cx).with_content(content);
        list(stream::once(ready(Ok(listed))), context, cx).await
    }
}

/// Returns the artifacts of these lists, one list after another.
async fn list(
    lists: impl Stream<Item = Result<Vec<Listed>>> + Send + 'static,
    context: ArtifactReader,
    cx: &Context<'_>,
) -> Result<JsonList<Box<ArtifactView>>> {
    let context = Arc::new(context);
    let read = move |ids| read(ids, Arc::clone(&context)).try_flatten_stream();
    JsonList::of_lists(lists, (), &cx.compute(), read).await
}

/// Returns a page of a list. Unlike a range of numbers, a page is short only at the end of the list, even if
/// a row was lost.
async fn listed(filter: ArtifactFilter, request: PageRequest, owned: OwnedContext) -> Result<Page<Listed>> {
    let cx = owned.context();
    let (store, org) = (cx.store(), cx.org()?);
    let items = store.artifacts_listed(org, &filter, request).await?.listed;
    let end = request.offset + items.len() as u64;
    let total = if (items.len() as u64) < request.limit {
        end
    } else {
        // Count after the read: a concurrent report then adds a page, and nothing is left out.
        store.artifacts(org, &filter, PageRequest { limit: 0, ..request }).await?.total
    };
    Ok(Page { items, total })
}

/// Returns the artifacts of these ids for a response, in order.
pub(super) async fn read(
    ids: Vec<Id>,
    context: Arc<ArtifactReader>,
) -> Result<BoxStream<'static, Result<Box<ArtifactView>>>> {
    let mut found = context.artifacts(&ids).await?;
    sort_by_ids(&mut found, &ids, |artifact| artifact.id);
    Ok(views(found, context))
}
