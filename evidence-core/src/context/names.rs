//! A cache of the records that names lead to, for writes.
//!
//! An entry may be outdated, for example because another server changed the record. A write therefore has a
//! precondition for every entry that it uses. If one fails, the write reads the store and decides again. Reads do
//! not use the cache, because they have no preconditions.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::artifacts::record::Artifact;
use crate::artifacts::store::ArtifactFilter;
use crate::cache::{Cache, Weigh};
use crate::context::Context;
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::Key;
use crate::flows::record::Flow;
use crate::id::Id;
use crate::ledger;
use crate::limits::Limits;
use crate::name::{Fingerprint, FlowName, TemplateReferenceName, TrailName};
use crate::store::entry::Current;
use crate::store::error::{StoreError, StoreResult};
use crate::texts::record::TextRef;
use crate::trails::record::Trail;
use crate::trails::store::Reported;

/// The fields of a flow that writes use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownFlow {
    pub(crate) id: Id,
    pub(crate) template: Option<TextRef>,
    pub(crate) template_id: Id,
    archived: bool,
}

impl From<&Flow> for KnownFlow {
    fn from(flow: &Flow) -> Self {
        let Flow { id, template, template_id, archived_at, .. } = flow;
        Self { id: *id, template: *template, template_id: *template_id, archived: archived_at.is_some() }
    }
}

/// The fields of a trail that writes use.
#[derive(Debug)]
pub(crate) struct KnownTrail {
    pub(crate) id: Id,
    pub(crate) template: Option<TextRef>,
    artifacts: ReportQuota,
    attestations: ReportQuota,
}

impl KnownTrail {
    /// Creates the entry of a trail whose number of reports is unknown.
    fn new(trail: &Trail) -> Self {
        let (artifacts, attestations) = Default::default();
        Self { id: trail.id, template: trail.template, artifacts, attestations }
    }

    /// Creates the entry of a new trail, which has no reports.
    fn without_reports(trail: &Trail, limits: &Limits) -> Self {
        let (artifacts, attestations) = (ReportQuota::default(), ReportQuota::default());
        artifacts.set(limits.trail_artifacts);
        attestations.set(limits.trail_attestations);
        Self { artifacts, attestations, ..Self::new(trail) }
    }

    /// Returns the quota of reports of this kind.
    pub(crate) const fn report_quota(&self, kind: Reported) -> &ReportQuota {
        match kind {
            Reported::Artifacts => &self.artifacts,
            Reported::Attestations => &self.attestations,
        }
    }
}

/// The fields of an artifact that writes use. An artifact never changes.
#[derive(Debug)]
pub(crate) struct KnownArtifact {
    pub(crate) id: Id,
    pub(crate) fingerprint: Fingerprint,
    /// Its name in the template; `""` without one.
    pub(crate) name: String,
}

impl From<&Artifact> for KnownArtifact {
    fn from(artifact: &Artifact) -> Self {
        let Artifact { id, fingerprint, template_reference_name: name, .. } = artifact;
        Self { id: *id, fingerprint: fingerprint.clone(), name: name.clone() }
    }
}

/// The number of reports that a trail may still get before they have to be counted.
#[derive(Debug, Default)]
pub(crate) struct ReportQuota(AtomicU64);

/// A server accepts this fraction of the reports that a trail may still get before it counts the reports again. Each other
/// server may accept as many meanwhile, so the limit may be exceeded by that.
const SHARE: u64 = 16;

impl ReportQuota {
    /// Uses the quota of one report. Returns false if the reports have to be counted first.
    pub(crate) fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Sets the quota after a count found that the trail may get this many more reports.
    pub(crate) fn set(&self, more: u64) {
        self.0.store(more / SHARE, Ordering::Relaxed);
    }
}

/// The records of the names in recent writes.
pub(crate) struct NameCache {
    flows: Cache<(Id, FlowName), Current<KnownFlow>>,
    trails: Cache<(Id, Id, TrailName), Current<KnownTrail>>,
    /// The newest artifacts, by name or fingerprint.
    artifacts: Cache<(Id, Key), KnownArtifact>,
    /// By the digest of a report that would not change the repo.
    repos: Cache<(Id, ledger::Hash), Current<Id>>,
}

/// The memory budget of each kind, in bytes.
const BUDGET: usize = 4 << 20;

/// An upper limit of the bytes of the texts in a key and its value.
const TEXTS: usize = 640;

const _: () = {
    let artifact = 2 * TemplateReferenceName::MAX_LEN + Fingerprint::MAX_LEN;
    assert!(FlowName::MAX_LEN <= TEXTS && TrailName::MAX_LEN <= TEXTS && artifact <= TEXTS);
};

impl<T> Weigh for Current<T> {
    fn bytes(&self) -> usize {
        TEXTS
    }
}

impl Weigh for KnownArtifact {
    fn bytes(&self) -> usize {
        TEXTS
    }
}

/// The cache entry of a recorded fact.
pub(crate) enum CacheUpdate {
    Flow(FlowName, KnownFlow),
    Trail(TrailName, Id, KnownTrail),
    Artifact(Vec<Key>, Arc<KnownArtifact>),
}

impl CacheUpdate {
    pub(crate) fn of(fact: &Fact, limits: &Limits) -> Option<Self> {
        Some(match fact {
            Fact::FlowCreated { record }
            | Fact::FlowUpdated { record }
            | Fact::FlowTagged { record }
            | Fact::FlowRenamed { record, .. }
            | Fact::FlowArchived { record, .. } => Self::Flow(record.name.clone(), record.into()),
            Fact::TrailBegun { record } => {
                Self::Trail(record.name.clone(), record.flow, KnownTrail::without_reports(record, limits))
            }
            Fact::TrailUpdated { record, .. } => {
                Self::Trail(record.name.clone(), record.flow, KnownTrail::new(record))
            }
            Fact::ArtifactReported { record } => {
                Self::Artifact(record.names().collect(), Arc::new(record.into()))
            }
            _ => return None,
        })
    }
}

impl NameCache {
    /// Creates an empty cache.
    pub(super) fn new() -> Self {
        Self {
            flows: Cache::new(BUDGET),
            trails: Cache::new(BUDGET),
            artifacts: Cache::new(BUDGET),
            repos: Cache::new(BUDGET),
        }
    }

    /// Adds a record of `org` that was written at this ledger index.
    pub(crate) fn insert(&self, org: Id, update: CacheUpdate, revision: u64) {
        match update {
            CacheUpdate::Flow(name, record) => {
                self.flows.insert((org, name), Arc::new(Current { revision, record }));
            }
            CacheUpdate::Trail(name, flow, record) => {
                self.trails.insert((org, flow, name), Arc::new(Current { revision, record }));
            }
            CacheUpdate::Artifact(names, record) => {
                for name in names {
                    self.artifacts.insert((org, name), Arc::clone(&record));
                }
            }
        }
    }
}

/// Whether an attempt at a write may use the cache, and whether it did.
#[derive(Debug, Default)]
pub(crate) struct CacheUse {
    is_allowed: AtomicBool,
    is_used: AtomicBool,
}

impl CacheUse {
    /// Allows the next attempt to use the cache.
    pub(crate) fn allow(&self) {
        self.is_allowed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the attempt used the cache, so that its decisions may be outdated.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Returns the outcome of an attempt, and disables the cache for later attempts. An error of an attempt that used the
    /// cache becomes a conflict, because no precondition was checked. The next attempt then decides from the store.
    pub(crate) fn finish_attempt<T>(&self, outcome: Result<T>) -> Result<T> {
        self.is_allowed.store(false, Ordering::Relaxed);
        match (self.is_used.swap(false, Ordering::Relaxed), outcome) {
            (true, Err(error)) if !matches!(error, Error::Store(_)) => Err(StoreError::Conflict.into()),
            (_, outcome) => outcome,
        }
    }

    /// Returns the cached value of a key, in the first attempt.
    fn get<K: Clone + Eq + Hash, T: Weigh>(&self, cache: &Cache<K, T>, key: &K) -> Option<Arc<T>> {
        let cached = self.is_allowed.load(Ordering::Relaxed).then(|| cache.get(key)).flatten();
        self.is_used.fetch_or(cached.is_some(), Ordering::Relaxed);
        cached
    }

    /// Returns the cached value as [`Self::get`] does, otherwise reads the store and caches the result.
    async fn get_or_read<K: Clone + Eq + Hash, T: Weigh>(
        &self,
        cache: &Cache<K, T>,
        key: K,
        read: impl Future<Output = StoreResult<Option<T>>>,
    ) -> Result<Option<Arc<T>>> {
        if let Some(cached) = self.get(cache, &key) {
            return Ok(Some(cached));
        }
        let found = read.await?.map(Arc::new);
        match &found {
            Some(found) => cache.insert(key, Arc::clone(found)),
            None => cache.remove(&key),
        }
        Ok(found)
    }
}

impl<T> Current<T> {
    fn map<U>(self, of: impl FnOnce(T) -> U) -> Current<U> {
        Current { revision: self.revision, record: of(self.record) }
    }
}

impl Context<'_> {
    /// Returns the flow of this name, for a write with a precondition for it.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the flow is archived, because it accepts no more reports.
    pub(crate) async fn known_flow(&self, name: &FlowName) -> Result<Option<Arc<Current<KnownFlow>>>> {
        let org = self.org()?;
        let read = async {
            let flow = self.store().flow(org, name.as_str()).await?;
            Ok(flow.map(|flow| flow.map(|flow| KnownFlow::from(&flow))))
        };
        let known =
            self.cache_use().get_or_read(&self.caches().names.flows, (org, name.clone()), read).await?;
        if known.as_ref().is_some_and(|known| known.record.archived) {
            return Err(self.missing(Resource::ArchivedFlow, name.as_str()).into());
        }
        Ok(known)
    }

    /// Returns the trail of this name in this flow, for a write with a precondition for it.
    pub(crate) async fn known_trail(
        &self,
        flow: Id,
        name: &TrailName,
    ) -> Result<Option<Arc<Current<KnownTrail>>>> {
        let org = self.org()?;
        let read = async {
            let trail = self.store().trail(org, flow, name.as_str()).await?;
            Ok(trail.map(|trail| trail.map(|trail| KnownTrail::new(&trail))))
        };
        self.cache_use().get_or_read(&self.caches().names.trails, (org, flow, name.clone()), read).await
    }

    /// Returns the newest artifact with this key that matches the filter, for a write with a precondition for it.
    pub(crate) async fn known_artifact(
        &self,
        key: &Key,
        filter: &ArtifactFilter,
    ) -> Result<Option<Arc<KnownArtifact>>> {
        let org = self.org()?;
        let read = async {
            let artifact = self.store().latest_artifact(org, filter).await?;
            Ok(artifact.as_ref().map(KnownArtifact::from))
        };
        self.cache_use().get_or_read(&self.caches().names.artifacts, (org, key.clone()), read).await
    }

    /// Returns the repo that a report with this digest would not change, for a write with a precondition for it.
    pub(crate) fn known_repo(&self, reported: ledger::Hash) -> Result<Option<Arc<Current<Id>>>> {
        Ok(self.cache_use().get(&self.caches().names.repos, &(self.org()?, reported)))
    }

    /// Caches that a report with this digest does not change the repo.
    pub(crate) fn cache_repo(&self, reported: ledger::Hash, repo: Current<Id>) -> Result<()> {
        self.caches().names.repos.insert((self.org()?, reported), Arc::new(repo));
        Ok(())
    }
}
