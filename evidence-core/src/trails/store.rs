//! The queries about trails and their reports that a store answers.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::artifacts::store::ArtifactRow;
use crate::attestations::store::AttestationRow;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::page::{Listed, Page, PageRequest};
use crate::rules::compliance::EarlierNames;
use crate::rules::template::Template;
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::tags::record::TagFilter;
use crate::trails::record::{Trail, TrailLabel, TrailVersion};

/// A filter for lists of trails. All given conditions must match.
#[derive(Debug, Clone, Default)]
pub struct TrailFilter {
    /// Trails of this flow.
    pub flow: Option<Id>,
    /// Trails of flows that carry this tag.
    pub flow_tag: Option<TagFilter>,
    /// Trails to which an artifact was reported whose fingerprint begins with this.
    pub fingerprint: Option<String>,
}

/// A trail with the part of its reports that its compliance depends on.
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
    /// The names that the flow gave before to content that has no name here. Stores leave it empty.
    pub earlier_names: EarlierNames,
}

impl TrailContents {
    /// Returns the number of reports to the trail.
    pub(crate) fn reports(&self) -> usize {
        self.artifacts.len() + self.attestations.len()
    }

    /// Returns the approximate number of evaluations needed to compare the reports with the template.
    pub(crate) fn evaluations(&self, template: &Template) -> usize {
        self.reports() + template.requirements()
    }

    /// Returns the ledger index of the newest fact about the trail, its reports included.
    pub(crate) fn newest(&self) -> u64 {
        let artifacts = self.artifacts.iter().map(|row| row.index);
        let attestations = self.attestations.iter().map(|row| row.index);
        artifacts.chain(attestations).fold(self.revision, u64::max)
    }

    /// Returns the contents as they were when the ledger had this many entries.
    pub(crate) fn truncated_to(mut self, entries: u64) -> Self {
        self.artifacts.retain(|row| row.index < entries);
        self.attestations.retain(|row| row.index < entries);
        self
    }

    /// Returns the content that was first reported here without a name, in any order. Includes content of
    /// trails without a template, because attestations may name it.
    pub(crate) fn unnamed_content(&self) -> Vec<Fingerprint> {
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

    /// Joins trails with their reports, in any order, for stores that read them separately.
    pub fn join_reports(
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

/// A ledger entry about a trail, without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailEntry {
    /// Its index.
    pub index: u64,
    /// The size of its payload as stored, in bytes.
    pub bytes: u64,
}

/// A kind of report to a trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants are the kinds")]
pub enum Reported {
    Artifacts,
    Attestations,
}

/// Queries about trails.
#[async_trait]
pub trait TrailStore: Send + Sync {
    /// Returns the trail of this name in this flow, with its revision.
    async fn trail(&self, org: Id, flow: Id, name: &str) -> StoreResult<Option<Current<Trail>>>;
    /// Returns one page of the trails that match the filter, and their total. Trails are in descending order
    /// of the ledger index of their first fact, and listed without their content.
    async fn trails(&self, org: Id, filter: &TrailFilter, request: PageRequest) -> StoreResult<Page<Listed>>;
    /// Returns the id of the newest trail of each of these flows, in any order. Flows without trails have no
    /// entry.
    async fn newest_trails(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<Id>>;
    /// Returns the versions of these trails' contents, one per id, in any order. Unknown ids are skipped.
    async fn trail_versions(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailVersion>>;
    /// Returns the trails of these ids with their reports, one per id, in any order. Unknown ids are skipped.
    /// If any part of a trail cannot be read, the whole trail is left out: missing data must never improve a
    /// verdict.
    async fn trail_contents(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailContents>>;
    /// Returns the names of these trails, one per id, in any order. Unknown ids, and trails whose flow is
    /// missing, are skipped.
    async fn trail_labels(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<(Id, TrailLabel)>>;
    /// Returns the number of reports of this kind to the trail, counted up to `most`; 0 if there is no such
    /// trail.
    async fn trail_report_count(&self, org: Id, trail: Id, kind: Reported, most: u64) -> StoreResult<u64>;
    /// Returns all ledger entries about this trail (begun, updated, artifacts, attestations), sorted by
    /// ledger index, without their payloads. Includes entries that the ledger has lost, so that a partial
    /// history does not look complete.
    async fn trail_entries(&self, org: Id, trail: Id) -> StoreResult<Vec<TrailEntry>>;
}
