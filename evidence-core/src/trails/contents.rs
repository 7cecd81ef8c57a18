//! Reads trails with their reports through the cache. An entry is valid until something more is reported to its
//! trail.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use crate::artifacts::store::GivenName;
use crate::context::Context;
use crate::error::Result;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::store::batch::{distinct, sort_by_ids};
use crate::trails::record::TrailVersion;
use crate::trails::reported::ReportedTrail;
use crate::trails::store::TrailContents;

/// The most content whose names are read in one query.
const MOST_CONTENT: usize = 4096;

impl Context<'_> {
    /// Returns these trails with their reports, as the store returns them. Adds the names that their unnamed
    /// content was given in their flows.
    pub(crate) async fn trail_contents(&self, ids: &[Id]) -> Result<Vec<TrailContents>> {
        let org = self.org()?;
        let mut found = self.store().trail_contents(org, ids).await?;
        let unnamed = |contents: &TrailContents| {
            let flow = contents.trail.flow;
            Vec::from_iter(contents.unnamed_content().into_iter().map(|fingerprint| (flow, fingerprint)))
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
            trail.is_at_least(version) && (trail.read_at >= since || trail.read_at.elapsed() < ttl)
        };
        Ok(self.caches().trails.get(&(self.org()?, version.id)).filter(is_valid))
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
                let fact = facts.get(&(id, contents.revision)).copied();
                let trail = Arc::new(ReportedTrail::new(contents, fact, read_at));
                self.caches().trails.insert((org, id), Arc::clone(&trail));
                found.insert(id, trail);
            }
        }
        Ok(versions.iter().filter_map(|version| found.get(&version.id).cloned()).collect())
    }
}
