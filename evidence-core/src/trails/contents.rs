//! What was reported to trails, cached for as long as nothing more is reported to them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use crate::artifacts::store::{ArtifactRow, GivenName};
use crate::attestations::record::Binding;
use crate::attestations::store::AttestationRow;
use crate::cache::sized::Cache;
use crate::error::Result;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::rules::compliance::{ByContent, ReportedArtifact, ReportedAttestation};
use crate::service::Context;
use crate::store::batch::{distinct, sort_by_ids};
use crate::trails::store::{TrailContents, TrailVersion};

/// About so many bytes of trails are cached. A trail that has as much as may be reported to it fits in half of it.
const BUDGET: usize = 64 << 20;

/// The names of so much content are read at once.
const MOST_CONTENT: usize = 4096;

/// What was reported to trails, by the organization and the trail.
pub(crate) type TrailCache = Cache<(Id, Id), ReportedTrail>;

/// Nothing is cached yet.
pub(crate) const fn no_trails() -> TrailCache {
    Cache::new(BUDGET)
}

/// A trail with what was reported to it.
#[derive(Debug)]
pub(crate) struct ReportedTrail {
    pub(crate) contents: TrailContents,
    by_content: OnceLock<ByContent>,
    read_at: Instant,
    /// About how many bytes of memory it takes, all of it made.
    pub(crate) bytes: usize,
}

impl ReportedTrail {
    /// Whether it has all that this version has: revisions and reports only become more.
    fn covers(&self, version: &TrailVersion) -> bool {
        self.contents.revision >= version.revision && self.contents.reports() as u64 >= version.reports
    }

    /// What was reported, by the content that it is about. The places of attestations are those of the contents.
    pub(crate) fn by_content(&self) -> &ByContent {
        self.by_content.get_or_init(|| {
            let TrailContents { artifacts, attestations, earlier_names, .. } = &self.contents;
            let artifacts = Vec::from_iter(artifacts.iter().map(ReportedArtifact::from));
            let attestations = attestations.iter().map(ReportedAttestation::from).collect();
            ByContent::new(&artifacts, attestations, earlier_names)
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

/// About how many bytes of memory a byte of a fact takes: small values take more than text, a link four times as much.
pub(crate) const MEMORY_PER_BYTE: u64 = 4;

/// About how many bytes of memory a trail takes whose newest fact has so many, with what [`ReportedTrail`] makes of it.
fn memory(contents: &TrailContents, fact: u64) -> usize {
    /// Of a report: its row, what compliance is evaluated by, and the room that growing lists leave.
    const REPORT: usize = 1 << 10;
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
    // Texts are in the rows, and in what is evaluated.
    let reports = (contents.reports() + 1) * REPORT + 2 * (artifacts + attestations);
    reports.saturating_add(fact)
}

impl Context<'_> {
    /// These trails with what was reported to them, as the store answers, with the names that unnamed content of theirs was given
    /// in their flows.
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

    /// The names that this content was given in these flows, each with the ledger index of the first report by it; `""` where
    /// a report has none.
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

    /// Which versions these trails have, in order.
    pub(crate) async fn trail_versions(&self, ids: &[Id]) -> Result<Vec<TrailVersion>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut versions = self.store().trail_versions(self.org()?, ids).await?;
        sort_by_ids(&mut versions, ids, |version| version.id);
        Ok(versions)
    }

    /// A trail in this version or a later one, if it is cached and was read lately, or since `since`.
    ///
    /// It is for what is shown, and not for what is decided: in a store that was restored from a backup other reports may
    /// come to the same version.
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

    /// These trails, each as [`cached_trail`](Self::cached_trail), in order, without those that cannot be read: no query where
    /// all are cached, else one.
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
                let trail = ReportedTrail { contents, by_content: OnceLock::new(), read_at, bytes };
                let trail = Arc::new(trail);
                // How large a fact is that came in between is not known.
                if fact.is_some() {
                    self.trail_cache().put((org, id), bytes, Arc::clone(&trail));
                }
                found.insert(id, trail);
            }
        }
        Ok(versions.iter().filter_map(|version| found.get(&version.id).cloned()).collect())
    }
}
