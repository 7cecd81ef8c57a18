//! What a store answers about trails, and what was reported to them.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::artifacts::store::ArtifactRow;
use crate::attestations::store::AttestationRow;
use crate::id::Id;
use crate::name::{Fingerprint, FlowName, TrailName};
use crate::page::{Listed, Page, PageRequest};
use crate::rules::compliance::EarlierNames;
use crate::rules::template::Template;
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::tags::record::TagFilter;
use crate::trails::record::Trail;

/// How a list of trails is narrowed; everything given must match.
#[derive(Debug, Clone, Default)]
pub struct TrailFilter {
    /// Trails of this flow.
    pub flow: Option<Id>,
    /// Trails of flows that carry this tag.
    pub flow_tag: Option<TagFilter>,
    /// Trails to which an artifact was reported whose fingerprint begins so.
    pub fingerprint: Option<String>,
}

/// What a trail is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrailLabel {
    /// The name of its flow.
    pub flow: FlowName,
    /// Its name there.
    pub name: TrailName,
}

/// A trail with what was reported to it, as far as its compliance depends on it.
#[derive(Debug, Clone)]
pub struct TrailContents {
    /// The trail.
    pub trail: Trail,
    /// The ledger index of its newest fact.
    pub revision: u64,
    /// Every artifact reported to it, oldest first.
    pub artifacts: Vec<ArtifactRow>,
    /// Every attestation reported to it, oldest first.
    pub attestations: Vec<AttestationRow>,
    /// The names that content without one here was given in the flow before. Stores leave it empty.
    pub earlier_names: EarlierNames,
}

impl TrailContents {
    /// How much was reported to the trail.
    pub(crate) fn reports(&self) -> usize {
        self.artifacts.len() + self.attestations.len()
    }

    /// About how many evaluations it takes to say what the trail has of what its template asks for.
    pub(crate) fn evaluations(&self, template: &Template) -> usize {
        self.reports() + template.requirements()
    }

    /// The ledger index of the newest fact about the trail.
    pub(crate) fn newest(&self) -> u64 {
        let artifacts = self.artifacts.iter().map(|row| row.index);
        let attestations = self.attestations.iter().map(|row| row.index);
        artifacts.chain(attestations).fold(self.revision, u64::max)
    }

    /// What had been reported when the ledger had so many entries.
    pub(crate) fn within(mut self, entries: u64) -> Self {
        self.artifacts.retain(|row| row.index < entries);
        self.attestations.retain(|row| row.index < entries);
        self
    }

    /// The content that was reported here without a name before it was by one, in any order. Without a template, too:
    /// attestations may name it.
    pub(crate) fn unnamed(&self) -> Vec<Fingerprint> {
        let mut first = BTreeMap::<&Fingerprint, &ArtifactRow>::new();
        for artifact in &self.artifacts {
            let known = first.entry(&artifact.fingerprint).or_insert(artifact);
            if artifact.index < known.index {
                *known = artifact;
            }
        }
        first.retain(|_, artifact| artifact.template_reference_name.is_empty());
        first.into_keys().cloned().collect()
    }

    /// Puts trails and what was reported to them together, for stores that read each apart, in any order.
    pub fn together(
        trails: impl IntoIterator<Item = Current<Trail>>,
        mut artifacts: Vec<ArtifactRow>,
        mut attestations: Vec<AttestationRow>,
    ) -> Vec<Self> {
        let bare = |Current { revision, record: trail }| Self {
            trail,
            revision,
            artifacts: Vec::new(),
            attestations: Vec::new(),
            earlier_names: EarlierNames::new(),
        };
        let mut contents = Vec::from_iter(trails.into_iter().map(bare));
        contents.sort_unstable_by_key(|of| of.trail.id);
        artifacts.sort_unstable_by_key(|artifact| artifact.index);
        attestations.sort_unstable_by_key(|attestation| attestation.index);
        let place =
            |contents: &[Self], trail: Id| contents.binary_search_by_key(&trail, |of| of.trail.id).ok();
        for artifact in artifacts {
            let place = artifact.trail.and_then(|trail| place(&contents, trail));
            if let Some(of) = place.and_then(|place| contents.get_mut(place)) {
                of.artifacts.push(artifact);
            }
        }
        for attestation in attestations {
            if let Some(of) = place(&contents, attestation.trail).and_then(|place| contents.get_mut(place)) {
                of.attestations.push(attestation);
            }
        }
        contents
    }
}

/// Which version of a trail's contents there is, and how much it takes to read it. Reports are added, and never changed or
/// removed: two versions with the same revision and as many reports are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailVersion {
    /// The trail's id.
    pub id: Id,
    /// The ledger index of its newest fact.
    pub revision: u64,
    /// How many artifacts and attestations were reported to it.
    pub reports: u64,
    /// The bytes of its newest fact, as stored.
    pub bytes: u64,
}

impl TrailVersion {
    /// About how many bytes [`trail_contents`](TrailStore::trail_contents) reads of it.
    pub const fn size(&self) -> u64 {
        self.bytes.saturating_add(self.reports.saturating_mul(REPORT_BYTES))
    }
}

/// A ledger entry about a trail, which is read apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailEntry {
    /// Its index.
    pub index: u64,
    /// The bytes of its payload, as stored.
    pub bytes: u64,
}

/// About as many bytes of memory a report to a trail takes, as far as compliance depends on it.
const REPORT_BYTES: u64 = 256;

/// A kind of reports to a trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are the kinds")]
pub enum Reported {
    Artifacts,
    Attestations,
}

/// Queries about trails.
#[async_trait]
pub trait TrailStore: Send + Sync {
    /// The trail of this name in this flow, one, with its revision.
    async fn trail(&self, org: Id, flow: Id, name: &str) -> StoreResult<Option<Current<Trail>>>;
    /// The trails that the filter admits (flow and what else is asked), the last begun first, by the ledger index of their
    /// beginning, without what they say: a page, and the total.
    async fn trails(&self, org: Id, filter: &TrailFilter, request: PageRequest) -> StoreResult<Page<Listed>>;
    /// The id of the newest trail of each of these flows, one a flow that has any, in any order.
    async fn newest_trails(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<Id>>;
    /// Which version of their contents these trails have. One an id, in any order; unknown ids are passed over.
    async fn trail_versions(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailVersion>>;
    /// The trails of these ids and what was reported to them, one an id, in any order; unknown ids are passed over. A trail
    /// is left out with whatever of it cannot be read, for no verdict may be better for what is missing.
    async fn trail_contents(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailContents>>;
    /// What the trails of these ids are called, one an id, in any order; unknown ids, and trails whose flow is missing, are
    /// passed over.
    async fn trail_labels(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<(Id, TrailLabel)>>;
    /// How many reports of this kind the trail has, counted up to `most`; none where there is no such trail.
    async fn trail_report_count(&self, org: Id, trail: Id, kind: Reported, most: u64) -> StoreResult<u64>;
    /// All ledger entries that are about this trail (begun, updated, artifacts, attestations), by ledger index, without what
    /// they say. One that the ledger has lost is among them: nobody should take the others for the whole history.
    async fn trail_entries(&self, org: Id, trail: Id) -> StoreResult<Vec<TrailEntry>>;
}
