//! The artifacts of a repo that run in environments now.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Scope;
use crate::bounded::ShortText;
use crate::context::Context;
use crate::environments::operations::EnvironmentLabel;
use crate::environments::record::EnvironmentKind;
use crate::error::Result;
use crate::id::Id;
use crate::name::{CommitSha, EnvironmentName, Fingerprint, OrgName};
use crate::operation::{Json, Method, Operation};
use crate::page::{Link, Listed};
use crate::repos::record::{Repo, VcsProvider};
use crate::rules::compliance::State;
use crate::snapshots::store::LiveBuild;
use crate::store::batch::distinct;
use crate::time::Seconds;

/// Gets the artifacts of a repo that run in environments now: one entry for each artifact and each
/// environment that runs it. Entries are sorted by the environment's name and the fingerprint. If several
/// repos have the name, returns the newest, unless `provider` or `id` selects one. Returns at most the first
/// thousand entries; archived environments are left out. Only the newest ten thousand artifact reports of a
/// repo count.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetLiveArtifacts {
    /// The organization's name.
    pub org: OrgName,
    /// The repo's name. It may contain slashes: `owner/repo`. Ignored if `id` is given.
    pub repo_name: ShortText,
    /// The kind of host. Ignored if `id` is given.
    pub provider: Option<VcsProvider>,
    /// The repo's `id`, as in responses.
    pub id: Option<ShortText>,
}

/// The most entries in a response.
const MAX_LIVE: u64 = 1000;

/// The most reports of a repo that are examined.
const MAX_REPORTS: u64 = 10_000;

/// The artifacts of a repo that run now.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RepoLiveStatusResponse")]
#[non_exhaustive]
pub struct LiveStatus {
    /// Links to related resources.
    pub _links: LiveStatusLinks,
    /// The environments and artifacts that the entries refer to.
    pub _embedded: LiveStatusEmbedded,
    /// The entries: each artifact in each environment that runs it.
    pub live_artifacts: Vec<LiveArtifact>,
}

/// Links of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LiveStatusLinks {
    /// The repo.
    pub repo: Link,
}

/// The environments and artifacts that a list of running artifacts refers to, each once.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RepoLiveStatusEmbedded")]
#[non_exhaustive]
pub struct LiveStatusEmbedded {
    /// The artifacts, sorted by id.
    pub artifacts: Vec<EmbeddedArtifact>,
    /// The environments, sorted by name.
    pub environments: Vec<EmbeddedEnvironment>,
}

/// A running artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "EmbeddedArtifactResponse")]
#[non_exhaustive]
pub struct EmbeddedArtifact {
    /// The id of its first report from the repo.
    pub id: Id,
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// The full hash of the commit that it was built from; null if no full hash was reported.
    pub commit_sha: Option<CommitSha>,
    /// The URL of the commit's page, as reported; null if it is empty.
    pub commit_url: Option<String>,
    /// Links to related resources.
    pub _links: EmbeddedLinks,
}

/// An environment that runs artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "EmbeddedEnvironmentResponse")]
#[non_exhaustive]
pub struct EmbeddedEnvironment {
    /// Its id. It stays the same when the environment is renamed.
    pub id: Id,
    /// Its name.
    pub name: EnvironmentName,
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: EnvironmentKind,
    /// Links to related resources.
    pub _links: EmbeddedLinks,
}

/// Links of an artifact or an environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EmbeddedLinks {
    /// Its URL in this API.
    #[serde(rename = "self")]
    pub this: Link,
    /// Its page.
    pub html: Link,
}

/// An artifact in an environment that runs it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "LiveArtifactEntryResponse")]
#[non_exhaustive]
pub struct LiveArtifact {
    /// The environment's id, as in `_embedded.environments`.
    pub environment_id: Id,
    /// The artifact's id, as in `_embedded.artifacts`.
    pub artifact_id: Id,
    /// Its name in the environment.
    pub artifact_name: String,
    /// The number of the snapshot in which it started running.
    pub snapshot_index: u64,
    /// Whether the environment's policies allow it; null without policies.
    pub compliance: Option<State>,
    /// When it started running, in epoch seconds.
    pub started_at: Seconds,
    /// Links to related resources.
    pub _links: LiveArtifactLinks,
}

/// Links of a running artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct LiveArtifactLinks {
    /// The snapshot in which it started running.
    pub snapshot: Link,
}

impl Operation for GetLiveArtifacts {
    const NAME: &'static str = "get_repo_live_artifacts";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/repos/{org}/live-artifacts/{repo_name}";
    const CATCH_ALL: bool = true;
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets the artifacts of a repo that run now";
    type Body = ();
    type Output = Json<LiveStatus>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let repo = match &self.id {
            Some(id) => cx.repo_of_id(id, "query.id").await?,
            None => cx.newest_repo(&self.repo_name, self.provider).await?,
        };
        let live = cx.store().live_builds(cx.org()?, repo.id, MAX_REPORTS, MAX_LIVE).await?;
        let environments = distinct(live.iter().map(|live| live.environment));
        let environments = cx.environment_labels(&environments).await?;
        let artifacts = artifacts(&live, cx).await?;
        Ok(Json(status(&repo, live, artifacts, &environments, cx)?))
    }
}

/// The parts of a report that are shown: its flow, its id, the fingerprint, the commit, and the commit's URL.
type Built = (Id, Id, Fingerprint, Option<CommitSha>, Option<String>);

/// Returns the artifacts of these builds, by id. Reads their reports in batches, because they contain more
/// than is shown.
async fn artifacts(live: &[LiveBuild], cx: &Context<'_>) -> Result<BTreeMap<Id, EmbeddedArtifact>> {
    let (store, org) = (cx.store(), cx.org()?);
    let reports: BTreeMap<Id, Listed> = live.iter().map(|live| (live.report.id, live.report)).collect();
    let mut found: Vec<Built> = Vec::new();
    for ids in Listed::batches(reports.into_values().collect()) {
        for report in store.artifacts_by_id(org, &ids).await? {
            let commit_sha = report.commit_in_full().and_then(|commit| commit.parse().ok());
            let commit_url = Some(report.commit_url).filter(|url| !url.is_empty());
            found.push((report.flow, report.id, report.fingerprint, commit_sha, commit_url));
        }
    }
    let flows = cx.flow_labels(&distinct(found.iter().map(|(flow, ..)| *flow))).await?;
    let org_name = &cx.org_access()?.name;
    let embedded = |(flow, id, fingerprint, commit_sha, commit_url): Built| {
        let flow = &flows.get(&flow)?.name;
        let this = cx.api_url(&format!("artifacts/{org_name}/{flow}/fingerprint/{fingerprint}"));
        let html = cx.artifact_url(flow.as_str(), &fingerprint, id);
        let _links = EmbeddedLinks { this: Link { href: this }, html: Link { href: html } };
        Some((id, EmbeddedArtifact { id, fingerprint, commit_sha, commit_url, _links }))
    };
    Ok(found.into_iter().filter_map(embedded).collect())
}

/// Returns the response. Entries whose environment or artifact cannot be read are left out.
fn status(
    repo: &Repo,
    live: Vec<LiveBuild>,
    artifacts: BTreeMap<Id, EmbeddedArtifact>,
    environments: &BTreeMap<Id, EnvironmentLabel>,
    cx: &Context<'_>,
) -> Result<LiveStatus> {
    let org = &cx.org_access()?.name;
    let api = |path: String| Link { href: cx.api_url(&path) };
    let entry = |live: LiveBuild| {
        let environment = environments.get(&live.environment)?;
        let artifact = artifacts.get(&live.report.id)?;
        let (index, at) = live.since;
        Some(LiveArtifact {
            environment_id: live.environment,
            artifact_id: artifact.id,
            artifact_name: live.name,
            snapshot_index: index,
            compliance: live
                .compliant
                .map(|compliant| if compliant { State::Compliant } else { State::NonCompliant }),
            started_at: at.seconds(),
            _links: LiveArtifactLinks {
                snapshot: api(format!("snapshots/{org}/{}/{index}", environment.name)),
            },
        })
    };
    let live_artifacts = live.into_iter().filter_map(entry).collect();
    let embedded = |(id, environment): (&Id, &EnvironmentLabel)| {
        let EnvironmentLabel { name, kind } = environment;
        let html = Link { href: cx.page_url(&format!("environments/{name}")) };
        let _links = EmbeddedLinks { this: api(format!("environments/{org}/{name}")), html };
        EmbeddedEnvironment { id: *id, name: name.clone(), kind: *kind, _links }
    };
    let mut embedded_environments = Vec::from_iter(environments.iter().map(embedded));
    embedded_environments.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(LiveStatus {
        _links: LiveStatusLinks { repo: api(format!("repos/{org}/{0}?id={0}", repo.id)) },
        _embedded: LiveStatusEmbedded {
            artifacts: artifacts.into_values().collect(),
            environments: embedded_environments,
        },
        live_artifacts,
    })
}
