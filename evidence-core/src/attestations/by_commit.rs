//! The list of attestations about commits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attestations::lists::{TypeFilter, read};
use crate::attestations::record::Binding;
use crate::attestations::store::AttestationRow;
use crate::attestations::view::AttestationView;
use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText};
use crate::context::{Context, OwnedContext};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::lock::locked;
use crate::name::{CommitSha, Fingerprint, OrgName};
use crate::operation::{JsonStream, Method, Operation, json_items};
use crate::page::{Listed, in_batches};
use crate::store::batch::{distinct, sort_by_ids};
use crate::store::error::StoreError;
use crate::trails::evaluation::memory_batches;
use crate::trails::store::TrailContents;

/// Lists the attestations about each of these commits. An attestation is about the commit that it names. If
/// it names none, it is about the commit of its artifact, or else of its trail. Attestations of the newest
/// trail come first; within a trail, the newest come first.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListAttestationsForCriteria {
    /// The organization's name.
    pub org: OrgName,
    /// A full commit hash. Repeatable; at least one is required.
    #[serde(default)]
    pub commit_list: List<CommitSha, 100>,
    /// Returns only attestations reported to this flow. A flow that does not exist is 404.
    pub flow_name: Option<ShortText>,
    /// Returns only attestations of this name.
    pub attestation_name: Option<ShortText>,
    /// Returns only attestations of this type: a built-in type, such as `junit` or `decision`, or `custom:`
    /// and the name of a custom type. A custom type that does not exist is 404.
    pub attestation_type: Option<TypeFilter>,
    /// Returns only the attestation of this id.
    pub attestation_id: Option<ShortText>,
}

/// The attestations about each commit, by commit. A commit without attestations has an empty list.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(rename = "AttestationsListForCommitsResponse", transparent)]
pub struct AttestationsByCommit(pub BTreeMap<String, Vec<AttestationView>>);

/// The wording that users of the public client know.
const NO_COMMITS: &str = "commit_list is required: provide one or more commit SHAs to search.";

impl Operation for ListAttestationsForCriteria {
    const NAME: &'static str = "list_attestations_for_criteria";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/attestations/{org}/list_attestations_for_criteria";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the attestations about commits";
    const CACHED: bool = true;
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
        cx.check_types_exist(self.attestation_type.as_slice(), "query.attestation_type").await?;
        let commits = distinct(self.commit_list.0);
        let search = Arc::new(Search {
            commits: commits.clone(),
            flow,
            criteria: Criteria {
                name: self.attestation_name,
                kind: self.attestation_type,
                id: self.attestation_id.as_deref().map_or(IdCriterion::Any, IdCriterion::parse),
            },
            owned: cx.to_owned_context(),
            remembered: Mutex::default(),
        });
        let compute = cx.compute();
        let of_commit = move |(place, commit): (usize, CommitSha)| {
            let begin = format!("{}\"{commit}\":[", if place > 0 { "," } else { "{" });
            let query = CommitQuery { search: Arc::clone(&search), commit, place };
            let items = json_items(query.attestations(), compute.clone());
            stream::iter([Ok(begin.into_bytes())]).chain(items).chain(stream::iter([Ok(b"]".to_vec())]))
        };
        let text = stream::iter(commits).enumerate().flat_map(of_commit);
        Ok(JsonStream::new(text.chain(stream::iter([Ok(b"}".to_vec())])), cx.compute()))
    }
}

/// The criteria besides the flow. All given criteria must match.
#[derive(Debug)]
struct Criteria {
    name: Option<ShortText>,
    kind: Option<TypeFilter>,
    id: IdCriterion,
}

/// The criterion for the id of an attestation.
#[derive(Debug, Clone, Copy)]
enum IdCriterion {
    Any,
    Exactly(Id),
    /// The text is not an id, so it matches no attestation.
    NoMatch,
}

impl IdCriterion {
    fn parse(text: &str) -> Self {
        text.parse().map_or(Self::NoMatch, Self::Exactly)
    }

    fn admits(self, id: Id) -> bool {
        match self {
            Self::Any => true,
            Self::Exactly(wanted) => wanted == id,
            Self::NoMatch => false,
        }
    }
}

impl Criteria {
    fn admits(&self, row: &AttestationRow) -> bool {
        self.name.as_deref().is_none_or(|name| name == row.name)
            && self.kind.as_ref().is_none_or(|kind| kind.admits(&row.kind))
            && self.id.admits(row.id)
    }
}

/// The most trails of a commit in one query.
const TRAILS: u64 = 500;

/// The most attestations that are read at once.
const ATTESTATIONS: usize = 64;

/// The most attestations whose sizes are queried at once.
const SIZES: usize = 1000;

/// Searches of more trail reports than this run off the async runtime.
const MANY_REPORTS: usize = 1000;

/// The limit of the cache of a search: trails, and their attestations about the commits.
const MAX_REMEMBERED: usize = 10_000;

/// A search for attestations about several commits.
struct Search {
    /// The commits in ascending order.
    commits: Vec<CommitSha>,
    flow: Option<Id>,
    criteria: Criteria,
    owned: OwnedContext,
    remembered: Mutex<Remembered>,
}

/// An attestation, and the index of the commit that it is about.
struct About {
    attestation: Id,
    commit: usize,
}

/// A cache of the trails' attestations about the commits. A trail that several commits name is read once.
#[derive(Default)]
struct Remembered {
    trails: BTreeMap<Id, Arc<[About]>>,
    size: usize,
}

impl Remembered {
    fn insert(&mut self, trail: Id, about: Arc<[About]>) {
        let size = 1 + about.len();
        if size > MAX_REMEMBERED {
            return;
        }
        if self.size + size > MAX_REMEMBERED {
            *self = Self::default();
        }
        self.size += size;
        self.trails.insert(trail, about);
    }
}

/// The part of a search for one of the commits.
#[derive(Clone)]
struct CommitQuery {
    search: Arc<Search>,
    commit: CommitSha,
    /// The index of the commit.
    place: usize,
}

impl CommitQuery {
    /// Streams the attestations about the commit.
    fn attestations(self) -> impl Stream<Item = Result<AttestationView>> + Send + 'static {
        let owned = self.search.owned.clone();
        let find = self.clone();
        let batches = self.trails().and_then(move |trails| find.clone().in_trails(trails));
        let batches =
            batches.map_ok(|batches| stream::iter(batches.into_iter().map(Ok::<_, Error>))).try_flatten();
        batches.map_ok(move |ids| read(ids, owned.clone())).try_flatten()
    }

    /// Streams the trails that name the commit, in batches whose contents fit in memory.
    fn trails(self) -> impl Stream<Item = Result<Vec<Id>>> + Send + 'static {
        let pages = stream::try_unfold((Some(None), self), |(next, query)| async move {
            let Some(before) = next else { return Ok(None) };
            let CommitQuery { search, commit, .. } = &query;
            let cx = search.owned.context();
            let trails = cx.store().commit_trails(cx.org()?, commit, search.flow, before, TRAILS).await?;
            let next = (trails.len() as u64 == TRAILS).then(|| trails.last().copied());
            let parts = match search.recall(&trails).len() == trails.len() {
                true => vec![trails],
                false => memory_batches(&trails, &cx).await?,
            };
            drop(cx);
            Ok::<_, Error>(Some((parts, (next, query))))
        });
        pages.map_ok(|parts| stream::iter(parts.into_iter().map(Ok))).try_flatten()
    }

    /// Returns the attestations in these trails that are about the commit, in batches that fit in memory.
    async fn in_trails(self, trails: Vec<Id>) -> Result<Vec<Vec<Id>>> {
        let Self { search, place, .. } = self;
        let mut known = search.recall(&trails);
        let unknown = trails.iter().filter(|trail| !known.contains_key(*trail)).copied();
        known.extend(search.read(Vec::from_iter(unknown)).await?);
        let mut ids = Vec::new();
        for trail in &trails {
            // An unreadable trail is an error: it may contain a wanted attestation.
            let lost = || StoreError::corrupt(format_args!("trail {trail} cannot be read any more"));
            let about = known.get(trail).ok_or_else(lost)?.iter();
            ids.extend(about.filter(|one| one.commit == place).map(|one| one.attestation));
        }
        let cx = search.owned.context();
        let mut batches = Vec::new();
        for ids in ids.chunks(SIZES) {
            let mut sizes = cx.store().attestation_sizes(cx.org()?, ids).await?;
            sort_by_ids(&mut sizes, ids, |listed| listed.id);
            batches
                .extend(in_batches(sizes.into_iter().map(|Listed { id, bytes }| (id, bytes)), ATTESTATIONS));
        }
        Ok(batches)
    }
}

impl Search {
    /// Returns the cached ones of these trails.
    fn recall(&self, trails: &[Id]) -> BTreeMap<Id, Arc<[About]>> {
        let remembered = locked(&self.remembered);
        let recall = |trail: &Id| Some((*trail, Arc::clone(remembered.trails.get(trail)?)));
        trails.iter().filter_map(recall).collect()
    }

    /// Reads these trails, and returns their attestations about any of the commits.
    async fn read(self: &Arc<Self>, trails: Vec<Id>) -> Result<Vec<(Id, Arc<[About]>)>> {
        if trails.is_empty() {
            return Ok(Vec::new());
        }
        let cx = self.owned.context();
        let contents = cx.store().trail_contents(cx.org()?, &trails).await?;
        let reports = contents.iter().map(TrailContents::reports).sum::<usize>();
        let search = Arc::clone(self);
        let choose = move || {
            let about = contents.iter().map(|contents| (contents.trail.id, search.in_trail(contents)));
            about.collect::<Vec<_>>()
        };
        let read = cx.compute().run_if(reports > MANY_REPORTS, choose).await?;
        let mut remembered = locked(&self.remembered);
        read.iter().for_each(|(trail, about)| remembered.insert(*trail, Arc::clone(about)));
        drop(remembered);
        Ok(read)
    }

    /// Returns the attestations of a trail that are about any of the commits, newest first.
    fn in_trail(&self, contents: &TrailContents) -> Arc<[About]> {
        let of_trail = contents.trail.git_commit_info.as_ref().map(|commit| commit.sha1.as_str());
        // The last report of a content takes precedence.
        let built =
            contents.artifacts.iter().map(|artifact| (&artifact.fingerprint, artifact.commit.as_str()));
        let built: BTreeMap<&Fingerprint, &str> = built.collect();
        let of_subject = |binding: &Binding| {
            let artifact = match binding {
                Binding::Artifact { fingerprint, .. } => built.get(fingerprint).copied(),
                Binding::Trail | Binding::Named { .. } => None,
            };
            artifact.filter(|commit| !commit.is_empty()).or(of_trail)
        };
        let about = |row: &AttestationRow| {
            let commit = row.commit.as_deref().or_else(|| of_subject(&row.binding))?;
            let commit = self.commits.binary_search_by(|asked| asked.as_str().cmp(commit)).ok()?;
            Some(About { attestation: row.id, commit })
        };
        let newest_first = contents.attestations.iter().rev().filter(|row| self.criteria.admits(row));
        newest_first.filter_map(about).collect()
    }
}
