//! The search for artifacts by a prefix of a fingerprint or of a commit.

use std::sync::Arc;

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reader::ArtifactReader;
use super::view::{by_fingerprint, places, run_events};
use crate::artifacts::operations::read;
use crate::artifacts::store::{Found, Unreported};
use crate::artifacts::view::{ArtifactView, HistoryEvent, SnapshotPlace};
use crate::auth::actor::Scope;
use crate::context::{Context, OwnedContext};
use crate::error::{Error, Resource, Result};
use crate::name::{Fingerprint, FingerprintPrefix, OrgName};
use crate::operation::{Envelope, JsonList, Method, Operation, around_last};
use crate::page::Listed;
use crate::rules::compliance::State;
use crate::snapshots::store::Run;
use crate::time::Timestamp;
use crate::trails::events::runs;

/// Searches the artifacts of an organization by a prefix of a fingerprint or of a git commit. Reported
/// artifacts come first: the newest report of each fingerprint to each flow, newest first. Artifacts that ran
/// in an environment but were never reported follow, sorted by fingerprint. Shows at most 100 artifacts, 100
/// fingerprints and 100 commits; the counts include every match. Without a match, returns 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Search {
    /// The organization's name.
    pub org: OrgName,
    /// A fingerprint, a commit, or at least the first 5 digits of either.
    pub search_value: FingerprintPrefix,
}

/// The most artifacts, fingerprints or commits that are shown.
const MAX_SHOWN: usize = 100;

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "SearchResultGetResponse")]
#[non_exhaustive]
pub struct SearchResult {
    /// The fingerprints and commits that match the value.
    pub resolved_to: ResolvedTo,
    /// The artifacts with one of these fingerprints or built from one of these commits; at most 100.
    // The last field, because the artifacts are streamed.
    pub artifacts: Vec<FoundArtifact>,
}

/// The fingerprints and commits that begin with a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "SearchResolvedModel")]
#[non_exhaustive]
pub struct ResolvedTo {
    /// The kind of the only match, or `multiple` if there are several.
    #[serde(rename = "type")]
    pub kind: ResolvedKind,
    /// The only match, or the first of several, in full.
    pub full_match: String,
    /// The fingerprints that begin with the value.
    pub fingerprints: ResolvedMatches,
    /// The commits that begin with the value.
    pub commits: ResolvedMatches,
}

/// The kind of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ResolvedKind {
    /// A fingerprint.
    Fingerprint,
    /// A commit.
    Commit,
    /// Several matches.
    Multiple,
}

/// The matches of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ResolvedMatches {
    /// Their kind: `fingerprint` or `commit`.
    #[serde(rename = "type")]
    pub kind: ResolvedKind,
    /// The number of different matches, including those that are not shown.
    pub count: u64,
    /// The matches in full, in ascending order; at most 100.
    pub matches: Vec<String>,
}

/// An artifact that a search found. Every key is present; a value that was not reported is the empty value of
/// its type.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "SearchFoundArtifactModel")]
#[non_exhaustive]
pub struct FoundArtifact {
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// The file's name or the image's reference. For an artifact that was never reported, the name that it
    /// ran under.
    pub name: String,
    /// Whether it was reported to a flow. Otherwise it is known only from the environment that it ran in.
    pub has_provenance: bool,
    /// The full hash of the commit that it was built from; `""` if no full hash was reported.
    pub git_commit: String,
    /// The same as `flow`.
    pub pipeline: String,
    /// The flow it was reported to.
    pub flow: String,
    /// The name of the trail that it was reported to; `""` for a report to a flow as a whole.
    pub trail: String,
    /// Its name in the trail's template; `""` without one.
    pub template_reference_name: String,
    /// The URL of the build's page, as reported.
    pub build_url: String,
    /// The URL of the commit's page, as reported.
    pub commit_url: String,
    /// Whether the attestations that the template expects of the artifact and of its trail are present and
    /// compliant. An artifact that was never reported is `NON-COMPLIANT`.
    pub compliance_state: State,
    /// The names of the environments that it runs in.
    pub running_in: Vec<String>,
    /// The names of the environments in which it stopped running. It may run there again.
    pub exited_from: Vec<String>,
    /// The URL of the artifact's page; `""` if it was never reported.
    pub html_url: String,
    /// The URL of the artifact in this API; `""` if it was never reported.
    pub api_url: String,
    /// Its events, oldest first. If the time of its commit is known, the commit is the first event.
    pub history: Vec<HistoryEvent>,
}

impl Envelope<FoundArtifact> for SearchResult {
    type Document = Self;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        around_last(self)
    }
}

impl Operation for Search {
    const NAME: &'static str = "get_search";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/search/{org}/sha/{search_value}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Searches artifacts by fingerprint or commit";
    type Body = ();
    type Output = JsonList<FoundArtifact, SearchResult>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let found = cx.store().search(cx.org()?, self.search_value.as_str(), MAX_SHOWN as u64).await?;
        let Some(resolved_to) = ResolvedTo::of(&found) else {
            return Err(cx.missing(Resource::Match, self.search_value.as_str()).into());
        };
        let Found { reports, mut unreported, .. } = found;
        unreported.truncate(MAX_SHOWN.saturating_sub(reports.len()));
        let context = Arc::new(ArtifactReader::without_evidence(cx));
        let (owned, page) = (cx.to_owned_context(), cx.to_owned_context());
        let batches = stream::iter(Listed::batches(reports)).map(Ok);
        let reported = batches.and_then(move |ids| read(ids, Arc::clone(&context))).try_flatten();
        let reported = reported.map_ok(move |artifact| FoundArtifact::reported(*artifact, &page.context()));
        let items = reported.chain(never_reported(unreported, owned));
        let result = SearchResult { resolved_to, artifacts: Vec::new() };
        JsonList::with_first_item(items, result, &cx.compute()).await
    }
}

impl ResolvedTo {
    /// Returns the matches, or `None` if there are none.
    fn of(found: &Found) -> Option<Self> {
        let Found { fingerprints, commits, .. } = found;
        let fingerprints = ResolvedMatches {
            kind: ResolvedKind::Fingerprint,
            count: fingerprints.count,
            matches: fingerprints.first.iter().map(ToString::to_string).collect(),
        };
        let commits = ResolvedMatches {
            kind: ResolvedKind::Commit,
            count: commits.count,
            matches: commits.first.iter().map(ToString::to_string).collect(),
        };
        let kind = match (fingerprints.count, commits.count) {
            (1, 0) => ResolvedKind::Fingerprint,
            (0, 1) => ResolvedKind::Commit,
            _ => ResolvedKind::Multiple,
        };
        let full_match = fingerprints.matches.first().or(commits.matches.first())?.clone();
        Some(Self { kind, full_match, fingerprints, commits })
    }
}

/// Streams artifacts that ran but were never reported. They are read together when the stream is first
/// polled.
fn never_reported(
    unreported: Vec<Unreported>,
    owned: OwnedContext,
) -> impl Stream<Item = Result<FoundArtifact>> + Send + 'static {
    let read = async move {
        let cx = owned.context();
        let fingerprints = Vec::from_iter(unreported.iter().map(|one| one.fingerprint.clone()));
        let mut ran = by_fingerprint(runs(&fingerprints, &cx).await?);
        let found = unreported.into_iter().map(move |one| {
            let runs = ran.remove(&one.fingerprint).unwrap_or_default();
            Ok(FoundArtifact::never_reported(one, &runs))
        });
        Ok::<_, Error>(stream::iter(found))
    };
    stream::once(read).try_flatten()
}

impl FoundArtifact {
    fn never_reported(Unreported { fingerprint, name }: Unreported, runs: &[Run]) -> Self {
        let mut events = run_events(runs);
        events.sort_by_key(|(at, _)| *at);
        let event = |(at, event): (Timestamp, String)| HistoryEvent { event, timestamp: at.seconds() };
        Self {
            fingerprint,
            name,
            has_provenance: false,
            git_commit: String::new(),
            pipeline: String::new(),
            flow: String::new(),
            trail: String::new(),
            template_reference_name: String::new(),
            build_url: String::new(),
            commit_url: String::new(),
            compliance_state: State::NonCompliant,
            running_in: names(places(runs, |run| run.lasts().then_some(run.from.0))),
            exited_from: names(places(runs, |run| run.until.map(|(index, _)| index))),
            html_url: String::new(),
            api_url: String::new(),
            history: events.into_iter().map(event).collect(),
        }
    }

    fn reported(artifact: ArtifactView, cx: &Context<'_>) -> Self {
        let committed = committed(&artifact);
        let html_url = cx.artifact_page_url(&artifact.flow_name, &artifact.fingerprint);
        Self {
            fingerprint: artifact.fingerprint,
            name: artifact.filename,
            has_provenance: true,
            git_commit: artifact.git_commit,
            pipeline: artifact.flow_name.clone(),
            flow: artifact.flow_name,
            trail: artifact.trail_name,
            template_reference_name: artifact.template_reference_name,
            build_url: artifact.build_url,
            commit_url: artifact.commit_url,
            compliance_state: artifact.state,
            running_in: names(artifact.running),
            exited_from: names(artifact.exited),
            html_url,
            api_url: artifact.api_url,
            history: committed.into_iter().chain(artifact.history).collect(),
        }
    }
}

/// Returns the commit of a report as an event, if its time was reported.
fn committed(artifact: &ArtifactView) -> Option<HistoryEvent> {
    let info = &artifact.git_commit_info;
    // Details of another commit do not give the time of this one.
    let told = !info.sha1.is_empty() && artifact.git_commit.starts_with(&info.sha1) && info.timestamp.0 != 0;
    let event = format!("Commit {}", artifact.git_commit.get(..7)?);
    let at = Timestamp::from_micros(info.timestamp.0.saturating_mul(1_000_000));
    told.then(|| HistoryEvent { event, timestamp: at.seconds() })
}

/// Returns the name of each environment once, sorted.
fn names(places: Vec<SnapshotPlace>) -> Vec<String> {
    let mut names = Vec::from_iter(places.into_iter().map(|place| place.environment_name));
    names.sort_unstable();
    names.dedup();
    names
}
