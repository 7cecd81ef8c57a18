//! Trails as far as their artifacts go, kept while an answer is sent.

use std::collections::BTreeMap;

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

    /// The newest of each name, of those at these places, which are oldest first.
    pub(super) fn newest(&self, places: &[usize]) -> Vec<usize> {
        let named = places.iter().filter_map(|place| Some((&self.attestations.get(*place)?.name, *place)));
        BTreeMap::from_iter(named).into_values().collect()
    }
}
