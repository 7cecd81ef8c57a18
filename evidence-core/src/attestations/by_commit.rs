//! The attestations about commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attestations::lists::TypeFilter;
use crate::attestations::record::{Attestation, Binding};
use crate::attestations::store::AttestationRow;
use crate::attestations::view::{AttestationView, views};
use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::name::{CommitSha, Fingerprint, OrgName};
use crate::operation::{JsonStream, Method, Operation, json_items};
use crate::page::{Listed, in_batches};
use crate::service::{Context, OwnedContext};
use crate::store::batch::{distinct, sort_by_ids};
use crate::trails::evaluation::fitting;
use crate::trails::store::TrailContents;

/// Lists the attestations about each of these commits. An attestation is about the commit that it names; one that names none
/// is about that of its artifact, or else about that of its trail. Those of the newest trail come first, and of a trail the
/// newest.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListAttestationsForCriteria {
    /// The organization's name.
    pub org: OrgName,
    /// A commit in full; repeatable, and at least one is required.
    #[serde(default)]
    pub commit_list: List<CommitSha, 100>,
    /// Narrows the lists to attestations that were reported to this flow. A flow that does not exist is 404.
    pub flow_name: Option<ShortText>,
    /// Narrows the lists to attestations of this name.
    pub attestation_name: Option<ShortText>,
    /// Narrows the lists to attestations of this type: a built-in one, such as `junit` or `decision`, or `custom:` and the
    /// name of a custom one.
    pub attestation_type: Option<TypeFilter>,
    /// Ignored.
    pub attestation_id: Option<ShortText>,
}

/// By commit the attestations about it; an empty list for one that there are none about.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(rename = "AttestationsListForCommitsResponse", transparent)]
pub struct AttestationsByCommit(pub BTreeMap<String, Vec<AttestationView>>);

/// What users of the public client know.
const NO_COMMITS: &str = "commit_list is required: provide one or more commit SHAs to search.";

impl Operation for ListAttestationsForCriteria {
    const NAME: &'static str = "list_attestations_for_criteria";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/attestations/{org}/list_attestations_for_criteria";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the attestations about commits";
    type Body = ();
    type Output = JsonStream<AttestationsByCommit>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        if self.commit_list.0.is_empty() {
            return Err(Error::invalid_with(NO_COMMITS, "query.commit_list", "Field required"));
        }
        let flow = match &self.flow_name {
            Some(name) => {
                Some(cx.flow(name).await.map_err(|error| error.named_by("query.flow_name"))?.record.id)
            }
            None => None,
        };
        let commits = distinct(self.commit_list.0);
        let criteria = Criteria { flow, name: self.attestation_name, kind: self.attestation_type };
        let criteria = Arc::new(criteria);
        let owned = cx.to_owned_context();
        let of_commit = move |(number, commit): (usize, CommitSha)| {
            let begin = format!("{}\"{commit}\":[", if number > 0 { "," } else { "{" });
            let query = CommitQuery { commit, criteria: Arc::clone(&criteria), owned: owned.clone() };
            let items = json_items(query.attestations(), owned.context().compute());
            stream::iter([Ok(begin.into_bytes())]).chain(items).chain(stream::iter([Ok(b"]".to_vec())]))
        };
        let text = stream::iter(commits).enumerate().flat_map(of_commit);
        Ok(JsonStream::new(text.chain(stream::iter([Ok(b"}".to_vec())])), cx.compute()))
    }
}

/// What the lists are narrowed by; everything given must match.
#[derive(Debug)]
struct Criteria {
    flow: Option<Id>,
    name: Option<ShortText>,
    kind: Option<TypeFilter>,
}

impl Criteria {
    fn admits(&self, row: &AttestationRow) -> bool {
        self.name.as_deref().is_none_or(|name| name == row.name)
            && self.kind.as_ref().is_none_or(|kind| kind.admits(&row.kind))
    }
}

/// So many trails of a commit are found by one statement.
const TRAILS: u64 = 500;

/// More attestations are not read at once.
const ATTESTATIONS: usize = 64;

/// More reports to trails are not looked at on the runtime.
const MANY_REPORTS: usize = 1000;

/// What is asked about one commit.
#[derive(Clone)]
struct CommitQuery {
    commit: CommitSha,
    criteria: Arc<Criteria>,
    owned: OwnedContext,
}

/// An attestation that may be about the commit.
struct Candidate {
    id: Id,
    /// Whether it is if it names no commit itself.
    by_subject: bool,
}

impl CommitQuery {
    /// The attestations about the commit.
    fn attestations(self) -> impl Stream<Item = Result<AttestationView>> + Send + 'static {
        let (find, read) = (self.clone(), self.clone());
        let batches = self.trails().and_then(move |trails| find.clone().candidates(trails));
        let batches = batches.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten();
        let read = batches.and_then(move |batch| read.clone().views(batch));
        read.map_ok(|views| stream::iter(views.into_iter().map(Ok))).try_flatten()
    }

    /// The trails in which the commit is named, in parts whose contents fit memory.
    fn trails(self) -> impl Stream<Item = Result<Vec<Id>>> + Send + 'static {
        let pages = stream::try_unfold((Some(None), self), |(next, query)| async move {
            let Some(before) = next else { return Ok(None) };
            let cx = query.owned.context();
            let trails = cx.store().commit_trails(cx.org()?, &query.commit, before, TRAILS).await?;
            let next = (trails.len() as u64 == TRAILS).then(|| trails.last().copied());
            let parts = fitting(&trails, &cx).await?;
            drop(cx);
            Ok::<_, Error>(Some((parts, (next, query))))
        });
        pages.map_ok(|parts| stream::iter(parts.into_iter().map(Ok))).try_flatten()
    }

    /// The attestations in these trails that may be about the commit, in parts that fit memory.
    async fn candidates(self, trails: Vec<Id>) -> Result<Vec<Vec<Candidate>>> {
        let cx = self.owned.context();
        let mut contents = cx.store().trail_contents(cx.org()?, &trails).await?;
        sort_by_ids(&mut contents, &trails, |contents| contents.trail.id);
        contents.retain(|contents| self.criteria.flow.is_none_or(|flow| flow == contents.trail.flow));
        let reports = contents.iter().map(TrailContents::reports).sum::<usize>();
        let (criteria, commit) = (Arc::clone(&self.criteria), self.commit.clone());
        let choose = move || {
            let chosen = contents.iter().flat_map(|contents| in_trail(contents, &criteria, &commit));
            chosen.collect::<Vec<Candidate>>()
        };
        let candidates = cx.compute().run_if(reports > MANY_REPORTS, choose).await?;
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let ids = Vec::from_iter(candidates.iter().map(|one| one.id));
        let sizes = cx.store().attestation_sizes(cx.org()?, &ids).await?;
        let sizes: BTreeMap<Id, u64> = sizes.into_iter().map(|Listed { id, bytes }| (id, bytes)).collect();
        let sized = |one: Candidate| Some((sizes.get(&one.id).copied()?, one));
        let sized = candidates.into_iter().filter_map(sized).map(|(bytes, one)| (one, bytes));
        Ok(in_batches(sized, ATTESTATIONS))
    }

    async fn views(self, batch: Vec<Candidate>) -> Result<Vec<AttestationView>> {
        let cx = self.owned.context();
        let ids = Vec::from_iter(batch.iter().map(|one| one.id));
        let mut attestations = cx.store().attestations_by_id(cx.org()?, &ids).await?;
        sort_by_ids(&mut attestations, &ids, |one| one.id);
        let by_subject: BTreeMap<Id, bool> = batch.iter().map(|one| (one.id, one.by_subject)).collect();
        attestations.retain(|one| match named_commit(one) {
            Some(commit) => commit == self.commit.as_str(),
            None => by_subject.get(&one.id).copied().unwrap_or_default(),
        });
        views(attestations, &cx).await
    }
}

/// The commit that an attestation names itself.
fn named_commit(attestation: &Attestation) -> Option<&str> {
    let commit = attestation.git_commit_info.as_ref().map(|commit| commit.sha1.as_str());
    commit.filter(|sha1| !sha1.is_empty())
}

/// The attestations of a trail that may be about the commit, newest first.
fn in_trail(contents: &TrailContents, criteria: &Criteria, commit: &CommitSha) -> Vec<Candidate> {
    let of_trail = contents.trail.git_commit_info.as_ref().map(|commit| commit.sha1.as_str());
    // What was reported last of a content counts.
    let built = contents.artifacts.iter().map(|artifact| (&artifact.fingerprint, artifact.commit.as_str()));
    let built: BTreeMap<&Fingerprint, &str> = built.collect();
    let subject = |binding: &Binding| {
        let artifact = match binding {
            Binding::Artifact { fingerprint, .. } => built.get(fingerprint).copied(),
            Binding::Trail | Binding::Named { .. } => None,
        };
        artifact.filter(|commit| !commit.is_empty()).or(of_trail)
    };
    let newest_first = contents.attestations.iter().rev().filter(|row| criteria.admits(row));
    let candidate = |row: &AttestationRow| Candidate {
        id: row.id,
        by_subject: subject(&row.binding) == Some(commit.as_str()),
    };
    newest_first.map(candidate).collect()
}
