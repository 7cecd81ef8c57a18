//! What was reported to trails, cached for as long as nothing more is reported to them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::attestations::store::AttestationRow;
use crate::cache::sized::Cache;
use crate::error::Result;
use crate::id::Id;
use crate::rules::compliance::{ByContent, ReportedArtifact, ReportedAttestation};
use crate::service::Context;
use crate::store::batch::sort_by_ids;
use crate::time::Timestamp;
use crate::trails::store::{TrailContents, TrailVersion};

/// About so many bytes of trails are cached. A trail that has as much as may be reported to it fits in half of it.
const BUDGET: usize = 64 << 20;

/// A report to a trail takes about so many bytes, with what is made of it.
const REPORT: usize = 1 << 10;

/// What was reported to trails, by the trail.
pub(crate) type TrailCache = Cache<Id, ReportedTrail>;

/// Nothing is cached yet.
pub(crate) const fn no_trails() -> TrailCache {
    Cache::new(BUDGET)
}

/// A trail with what was reported to it.
#[derive(Debug)]
pub(crate) struct ReportedTrail {
    pub(crate) contents: TrailContents,
    by_content: OnceLock<ByContent>,
    read_at: Timestamp,
}

impl ReportedTrail {
    fn new(contents: TrailContents, read_at: Timestamp) -> Self {
        Self { contents, by_content: OnceLock::new(), read_at }
    }

    fn is_of(&self, version: &TrailVersion) -> bool {
        self.contents.revision == version.revision && self.contents.reports() as u64 == version.reports
    }

    /// What was reported, by the content that it is about. The places of attestations are those of the contents.
    pub(crate) fn by_content(&self) -> &ByContent {
        self.by_content.get_or_init(|| {
            let TrailContents { artifacts, attestations, .. } = &self.contents;
            let artifacts = Vec::from_iter(artifacts.iter().map(ReportedArtifact::from));
            ByContent::new(&artifacts, attestations.iter().map(ReportedAttestation::from).collect())
        })
    }

    /// Every attestation that was reported to it, oldest first.
    pub(crate) fn attestations(&self) -> &[AttestationRow] {
        &self.contents.attestations
    }

    /// How many reports [`by_content`](Self::by_content) still has to go through.
    pub(crate) fn unprepared(&self) -> usize {
        if self.by_content.get().is_some() { 0 } else { self.contents.reports() }
    }
}

impl Context<'_> {
    /// Which versions these trails have, in order.
    pub(crate) async fn trail_versions(&self, ids: &[Id]) -> Result<Vec<TrailVersion>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut versions = self.store().trail_versions(self.org()?, ids).await?;
        sort_by_ids(&mut versions, ids, |version| version.id);
        Ok(versions)
    }

    /// These trails in these versions or later ones, in order, without those that cannot be read: no query where all are
    /// cached, else one. For what is shown, and not for what is decided: a store that was put back to a backup has other
    /// reports in a version that looks the same.
    pub(crate) async fn trail_contents(&self, versions: &[TrailVersion]) -> Result<Vec<Arc<ReportedTrail>>> {
        let (cache, now) = (self.trail_cache(), self.now());
        let ttl = self.settings().cache_ttl;
        let (mut found, mut unknown) = (BTreeMap::new(), Vec::new());
        for version in versions {
            // What another request read meanwhile is newer than the version.
            let is_valid = |trail: &Arc<ReportedTrail>| {
                (trail.is_of(version) || trail.read_at > now) && trail.read_at.is_within(ttl, now)
            };
            match cache.get(&version.id).filter(is_valid) {
                Some(trail) => drop(found.insert(version.id, trail)),
                None => unknown.push(version.id),
            }
        }
        if !unknown.is_empty() {
            let bytes: BTreeMap<Id, u64> =
                versions.iter().map(|version| (version.id, version.bytes)).collect();
            for contents in self.store().trail_contents(self.org()?, &unknown).await? {
                let id = contents.trail.id;
                let fact = bytes.get(&id).map_or(0, |bytes| usize::try_from(*bytes).unwrap_or(usize::MAX));
                let size = fact.saturating_add((contents.reports() + 1) * REPORT);
                let trail = Arc::new(ReportedTrail::new(contents, now));
                if !ttl.is_zero() {
                    cache.put(id, size, Arc::clone(&trail));
                }
                found.insert(id, trail);
            }
        }
        Ok(versions.iter().filter_map(|version| found.get(&version.id).cloned()).collect())
    }
}
