//! A cache of trails with their reports. An entry is valid until something more is reported to its trail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use crate::artifacts::store::{ArtifactRow, GivenName};
use crate::attestations::record::Binding;
use crate::attestations::store::AttestationRow;
use crate::cache::sized::Cache;
use crate::error::Result;
use crate::flows::templates::Parsed;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::rules::compliance::{self, ContentIndex, ReportedArtifact, ReportedAttestation};
use crate::service::Context;
use crate::store::batch::{distinct, sort_by_ids};
use crate::trails::compliance::ComplianceStatus;
use crate::trails::store::{TrailContents, TrailVersion};

/// The approximate memory budget of the trail cache, in bytes. A trail with the most reports allowed fits in
/// half of it.
const BUDGET: usize = 64 << 20;

/// The most content whose names are read in one query.
const MOST_CONTENT: usize = 4096;

/// Trails with their reports, by organization and trail.
pub(crate) type TrailCache = Cache<(Id, Id), ReportedTrail>;

/// Returns an empty cache.
pub(crate) const fn no_trails() -> TrailCache {
    Cache::new(BUDGET)
}

/// A trail with its reports.
#[derive(Debug)]
pub(crate) struct ReportedTrail {
    pub(crate) contents: TrailContents,
    by_content: OnceLock<ContentIndex>,
    /// The compliance by the template that was needed first.
    compliance: OnceLock<(Arc<Parsed>, Arc<ComplianceStatus>)>,
    read_at: Instant,
    /// The greatest size of the organization's ledger at which the contents are known to be current; 0 if none
    /// is known.
    current_at: AtomicU64,
    /// The size of the trail's newest fact as stored, in bytes.
    fact: u64,
    /// The approximate size in memory, in bytes, including what is derived lazily.
    pub(crate) bytes: usize,
}

impl ReportedTrail {
    /// Returns whether it is at least as new as this version. Revisions and report counts only grow.
    fn covers(&self, version: &TrailVersion) -> bool {
        self.contents.revision >= version.revision && self.contents.reports() as u64 >= version.reports
    }

    /// Returns the version of the contents.
    fn version(&self) -> TrailVersion {
        let TrailContents { trail, revision, .. } = &self.contents;
        let reports = self.contents.reports() as u64;
        TrailVersion { id: trail.id, revision: *revision, reports, bytes: self.fact }
    }

    /// Returns the compliance with this template.
    pub(crate) fn compliance(&self, template: &Arc<Parsed>) -> Arc<ComplianceStatus> {
        let evaluate = || {
            let TrailContents { trail, artifacts, attestations, earlier_names, .. } = &self.contents;
            let artifacts = Vec::from_iter(artifacts.iter().map(ReportedArtifact::from));
            let attestations = Vec::from_iter(attestations.iter().map(ReportedAttestation::from));
            let (parsed, begun_at) = (&template.template, trail.created_at);
            let status = compliance::evaluate(parsed, begun_at, &artifacts, &attestations, earlier_names);
            Arc::new(ComplianceStatus::new(status, trail.template_id))
        };
        let (known, status) = self.compliance.get_or_init(|| (Arc::clone(template), evaluate()));
        // The text of a template may have been lost or restored since.
        if Arc::ptr_eq(known, template) { Arc::clone(status) } else { evaluate() }
    }

    /// Returns the reports, grouped by the content that they are about. Attestation indexes are those of the
    /// contents.
    pub(crate) fn by_content(&self) -> &ContentIndex {
        self.by_content.get_or_init(|| {
            let TrailContents { artifacts, attestations, earlier_names, .. } = &self.contents;
            let artifacts = Vec::from_iter(artifacts.iter().map(ReportedArtifact::from));
            let attestations = attestations.iter().map(ReportedAttestation::from).collect();
            ContentIndex::new(&artifacts, attestations, earlier_names)
        })
    }

    /// Returns every attestation that was reported to the trail, oldest first.
    pub(crate) fn attestations(&self) -> &[AttestationRow] {
        &self.contents.attestations
    }

    /// Returns how many reports [`by_content`](Self::by_content) still has to process; 0 once it has run.
    pub(crate) fn unprepared(&self) -> usize {
        if self.by_content.get().is_some() { 0 } else { self.contents.reports() }
    }
}

/// The approximate bytes of memory per byte of a fact. Small values take more memory than text; a link takes
/// four times its size.
pub(crate) const MEMORY_PER_BYTE: u64 = 4;

/// Returns the approximate size in memory of a trail whose newest fact has `fact` bytes, with what
/// [`ReportedTrail`] derives from it.
fn memory(contents: &TrailContents, fact: u64) -> usize {
    /// Bytes for a report: its row, the values that compliance evaluation uses, its line in the result, and the
    /// spare capacity of growing lists.
    const REPORT: usize = 3 << 9;
    let artifact = |row: &ArtifactRow| row.template_reference_name.len() + row.commit.len();
    let attestation = |row: &AttestationRow| {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let about = match &row.binding {
            Binding::Trail => 0,
            Binding::Artifact { target, .. } => target.len(),
            Binding::Named { target, commit } => target.len() + commit.len(),
        };
        row.name.len() + row.kind.len() + of(&row.control) + of(&row.commit) + about
    };
    let artifacts = contents.artifacts.iter().map(artifact).sum::<usize>();
    let attestations = contents.attestations.iter().map(attestation).sum::<usize>();
    let fact = usize::try_from(fact.saturating_mul(MEMORY_PER_BYTE)).unwrap_or(usize::MAX);
    // Texts exist twice: in the rows and in the evaluated form.
    let reports = (contents.reports() + 1) * REPORT + 2 * (artifacts + attestations);
    reports.saturating_add(fact)
}

impl Context<'_> {
    /// Returns these trails with their reports, as the store returns them. Adds the names that their unnamed
    /// content was given in their flows.
    pub(crate) async fn trail_contents(&self, ids: &[Id]) -> Result<Vec<TrailContents>> {
        let org = self.org()?;
        let mut found = self.store().trail_contents(org, ids).await?;
        let unnamed = |contents: &TrailContents| {
            let flow = contents.trail.flow;
            Vec::from_iter(contents.unnamed().into_iter().map(|fingerprint| (flow, fingerprint)))
        };
        let asked = distinct(found.iter().flat_map(unnamed));
        if asked.is_empty() {
            return Ok(found);
        }
        let names = self.names_in_flows(&asked).await?;
        for contents in &mut found {
            let of_it = unnamed(contents).into_iter().filter_map(|content| names.get_key_value(&content));
            contents.earlier_names =
                of_it.map(|((_, content), names)| (content.to_string(), names.clone())).collect();
        }
        Ok(found)
    }

    /// Returns the names that this content was given in these flows, each with the ledger index of the first
    /// report by that name. A report without a name has `""`.
    pub(crate) async fn names_in_flows(
        &self,
        asked: &[(Id, Fingerprint)],
    ) -> Result<BTreeMap<(Id, Fingerprint), BTreeMap<String, u64>>> {
        let mut names = BTreeMap::<_, BTreeMap<String, u64>>::new();
        for part in asked.chunks(MOST_CONTENT) {
            for GivenName { flow, fingerprint, name, first } in
                self.store().given_names(self.org()?, part).await?
            {
                names.entry((flow, fingerprint)).or_default().insert(name, first);
            }
        }
        Ok(names)
    }

    /// Returns the versions of these trails, in the order of `ids`.
    pub(crate) async fn trail_versions(&self, ids: &[Id]) -> Result<Vec<TrailVersion>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut versions = self.store().trail_versions(self.org()?, ids).await?;
        sort_by_ids(&mut versions, ids, |version| version.id);
        Ok(versions)
    }

    /// Returns the versions of these trails for display, in the order of `ids`. Runs no query for cached trails
    /// that are known to be current at the size of the ledger when the request began, and that `covers` accepts.
    ///
    /// A request may read records that are newer than that size. `covers` tells whether a trail includes them.
    pub(crate) async fn shown_versions(
        &self,
        ids: &[Id],
        covers: impl Fn(&ReportedTrail) -> bool,
    ) -> Result<Vec<TrailVersion>> {
        let Some(ledger) = self.ledger_size_at_start() else { return self.trail_versions(ids).await };
        let (org, ttl) = (self.org()?, self.settings().cache_ttl);
        let (mut versions, mut unknown) = (Vec::with_capacity(ids.len()), Vec::new());
        for id in ids {
            let is_current = |trail: &Arc<ReportedTrail>| {
                trail.current_at.load(Ordering::Relaxed) >= ledger
                    && trail.read_at.elapsed() < ttl
                    && covers(trail)
            };
            match self.trail_cache().get(&(org, *id)).filter(is_current) {
                Some(trail) => versions.push(trail.version()),
                None => unknown.push(*id),
            }
        }
        for version in self.trail_versions(&unknown).await? {
            if let Some(trail) =
                self.trail_cache().get(&(org, version.id)).filter(|trail| trail.covers(&version))
            {
                trail.current_at.fetch_max(ledger, Ordering::Relaxed);
            }
            versions.push(version);
        }
        sort_by_ids(&mut versions, ids, |version| version.id);
        Ok(versions)
    }

    /// Returns a trail in this version or a later one if it is cached and was read recently, or since
    /// `since`.
    ///
    /// Use it for display, not for decisions: in a store that was restored from a backup, other reports may
    /// reach the same version.
    pub(crate) fn cached_trail(
        &self,
        version: &TrailVersion,
        since: Instant,
    ) -> Result<Option<Arc<ReportedTrail>>> {
        let ttl = self.settings().cache_ttl;
        let is_valid = |trail: &Arc<ReportedTrail>| {
            trail.covers(version) && (trail.read_at >= since || trail.read_at.elapsed() < ttl)
        };
        Ok(self.trail_cache().get(&(self.org()?, version.id)).filter(is_valid))
    }

    /// Returns these trails in order, each as [`cached_trail`](Self::cached_trail) does. Trails that cannot
    /// be read are left out. Runs one query, or none if all are cached.
    pub(crate) async fn reported_trails(
        &self,
        versions: &[TrailVersion],
        since: Instant,
    ) -> Result<Vec<Arc<ReportedTrail>>> {
        let org = self.org()?;
        let (mut found, mut unknown) = (BTreeMap::new(), Vec::new());
        for version in versions {
            match self.cached_trail(version, since)? {
                Some(trail) => drop(found.insert(version.id, trail)),
                None => unknown.push(version.id),
            }
        }
        if !unknown.is_empty() {
            let facts = versions.iter().map(|version| ((version.id, version.revision), version.bytes));
            let facts: BTreeMap<_, _> = facts.collect();
            let read_at = Instant::now();
            for contents in self.trail_contents(&unknown).await? {
                let id = contents.trail.id;
                let fact = facts.get(&(id, contents.revision));
                let bytes = memory(&contents, fact.copied().unwrap_or_default());
                let trail = Arc::new(ReportedTrail {
                    contents,
                    by_content: OnceLock::new(),
                    compliance: OnceLock::new(),
                    read_at,
                    current_at: AtomicU64::new(self.ledger_size_at_start().unwrap_or_default()),
                    fact: fact.copied().unwrap_or_default(),
                    bytes,
                });
                // A concurrent write may have recorded a newer fact, whose size is unknown: then do not cache.
                if fact.is_some() {
                    self.trail_cache().put((org, id), bytes, Arc::clone(&trail));
                }
                found.insert(id, trail);
            }
        }
        Ok(versions.iter().filter_map(|version| found.get(&version.id).cloned()).collect())
    }
}
