//! Trails as far as their artifacts go, kept while an answer is sent.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::attestations::store::AttestationRow;
use crate::cache::sized::Cache;
use crate::id::Id;
use crate::name::TrailName;
use crate::rules::compliance::{ByContent, ReportedArtifact, ReportedAttestation};
use crate::texts::record::TextRef;
use crate::trails::store::TrailContents;

/// About so many bytes of trails are kept for the artifacts that come later in answers, of all together.
/// A trail that has as much as may be reported to it fits in half of it.
const KEPT: usize = 64 << 20;

/// A report to a trail takes about so many, with what is made of it.
pub(super) const REPORT: usize = 1 << 10;

/// What was reported to trails, by the answer that it was read for and the trail.
pub(crate) type KeptTrails = Cache<(Id, Id), OnTrail>;

/// Nothing is kept yet.
pub(crate) const fn no_trails() -> KeptTrails {
    Cache::new(KEPT)
}

/// A trail as far as its artifacts go.
pub(crate) struct OnTrail {
    pub(super) name: TrailName,
    pub(super) template: Option<TextRef>,
    /// Oldest first, and once more as they are evaluated by.
    attestations: Vec<AttestationRow>,
    pub(super) reported: ByContent,
}

impl OnTrail {
    pub(super) fn new(contents: TrailContents) -> Self {
        let TrailContents { trail, artifacts, attestations, .. } = contents;
        let artifacts = Vec::from_iter(artifacts.iter().map(ReportedArtifact::from));
        let reported = attestations.iter().map(ReportedAttestation::from).collect();
        let reported = ByContent::new(&artifacts, reported);
        Self { name: trail.name, template: trail.template, attestations, reported }
    }

    /// The attestations at these places.
    pub(super) fn at<'a>(&'a self, places: &'a [usize]) -> impl Iterator<Item = &'a AttestationRow> {
        places.iter().filter_map(|place| self.attestations.get(*place))
    }

    /// The attestation at this place.
    pub(super) fn attestation(&self, place: usize) -> Option<&AttestationRow> {
        self.attestations.get(place)
    }

    /// What is shown of each name, of the attestations at these places, which are oldest first.
    pub(super) fn shown(&self, places: &[usize]) -> Vec<Shown> {
        let mut named: BTreeMap<&str, Shown> = BTreeMap::new();
        for place in places.iter().copied() {
            let Some(row) = self.attestations.get(place) else { continue };
            let shown = Shown { newest: place, evidence: place };
            match named.entry(&row.name) {
                Entry::Vacant(entry) => {
                    entry.insert(shown);
                }
                Entry::Occupied(mut entry) => {
                    let before = entry.get().evidence;
                    let overrides = row.is_override && !self.attestations[before].is_override;
                    entry.insert(Shown { evidence: if overrides { before } else { place }, ..shown });
                }
            }
        }
        named.into_values().collect()
    }
}

/// The places of what is shown of the attestations of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    /// The newest, whose verdict counts.
    pub(super) newest: usize,
    /// The newest that is no override, where there is one: what the verdict is about.
    pub(super) evidence: usize,
}
