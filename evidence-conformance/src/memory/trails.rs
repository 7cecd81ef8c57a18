//! Trails, and the reports to them.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use evidence_core::artifacts::Artifact;
use evidence_core::attestations::Attestation;
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::store::{Current, StoreResult};
use evidence_core::trails::{
    Reported, Trail, TrailContents, TrailEntry, TrailFilter, TrailLabel, TrailStore, TrailVersion,
};

use super::tables::Tables;
use super::{MemoryStore, bytes};

impl Tables {
    fn trails_newest_first(&self) -> impl Iterator<Item = Trail> {
        let trails = self.trails_begun.iter().rev().filter_map(|key| self.trails.get(key));
        trails.map(|trail| trail.record.clone())
    }

    fn admits_trail(&self, filter: &TrailFilter, trail: &Trail) -> bool {
        filter.flow.is_none_or(|flow| flow == trail.flow)
            && filter.flow_tag.as_ref().is_none_or(|tag| {
                let mut flows = self.flows.values().map(|flow| &flow.record);
                flows.any(|flow| flow.id == trail.flow && tag.matches(&flow.tags))
            })
            && filter.fingerprint.as_ref().is_none_or(|prefix| {
                let mut artifacts = self.artifacts_of(trail.id);
                artifacts.any(|artifact| artifact.record.fingerprint.as_str().starts_with(prefix))
            })
    }

    fn artifacts_of(&self, trail: Id) -> impl Iterator<Item = &Current<Artifact>> {
        self.artifacts.iter().filter(move |artifact| artifact.record.trail == Some(trail))
    }

    fn attestations_of(&self, trail: Id) -> impl Iterator<Item = &Current<Attestation>> {
        self.attestations.iter().filter(move |attestation| attestation.record.trail == trail)
    }

    /// Returns the trails with these ids.
    pub(super) fn trails_of<'a>(&'a self, ids: &'a [Id]) -> impl Iterator<Item = &'a Current<Trail>> {
        self.trails.values().filter(|trail| ids.contains(&trail.record.id))
    }

    /// Returns the label of a trail, if its flow exists.
    pub(super) fn label(&self, trail: &Current<Trail>) -> Option<TrailLabel> {
        let Trail { flow, name, .. } = &trail.record;
        Some(TrailLabel { flow: self.flows.get(flow)?.record.name.clone(), name: name.clone() })
    }

    fn contents(&self, Current { revision, record: trail }: &Current<Trail>) -> TrailContents {
        TrailContents {
            trail: trail.clone(),
            revision: *revision,
            artifacts: self.artifacts_of(trail.id).map(|artifact| self.artifact_row(artifact)).collect(),
            attestations: self
                .attestations_of(trail.id)
                .map(|attestation| self.attestation_row(attestation))
                .collect(),
            earlier_names: BTreeMap::new(),
        }
    }
}

#[async_trait]
impl TrailStore for MemoryStore {
    async fn trail(&self, org: Id, flow: Id, name: &str) -> StoreResult<Option<Current<Trail>>> {
        self.query(org, |tables| {
            let mut trails = tables.trails.values();
            trails.find(|trail| trail.record.flow == flow && trail.record.name.as_str() == name).cloned()
        })
    }

    async fn trails(&self, org: Id, filter: &TrailFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let found = self.query(org, |tables| {
            let trails = tables.trails_newest_first();
            Page::of(trails.filter(|trail| tables.admits_trail(filter, trail)).collect(), request)
        })?;
        let listed = |trail: &Trail| Ok(Listed { id: trail.id, bytes: bytes(trail)? });
        Ok(Page { items: found.items.iter().map(listed).collect::<StoreResult<_>>()?, total: found.total })
    }

    async fn newest_trails(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<Id>> {
        self.query(org, |tables| {
            let (mut seen, trails) = (BTreeSet::new(), tables.trails_newest_first());
            let newest = trails.filter(|trail| flows.contains(&trail.flow) && seen.insert(trail.flow));
            newest.map(|trail| trail.id).collect()
        })
    }

    async fn trail_versions(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailVersion>> {
        let contents = self.trail_contents(org, trails).await?;
        let version = |TrailContents { trail, revision, artifacts, attestations, .. }: &TrailContents| {
            let reports = (artifacts.len() + attestations.len()) as u64;
            Ok(TrailVersion { id: trail.id, revision: *revision, reports, bytes: bytes(trail)? })
        };
        contents.iter().map(version).collect()
    }

    async fn trail_contents(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailContents>> {
        self.query(org, |tables| tables.trails_of(trails).map(|trail| tables.contents(trail)).collect())
    }

    async fn trail_labels(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<(Id, TrailLabel)>> {
        self.query(org, |tables| {
            let label = |trail: &Current<Trail>| Some((trail.record.id, tables.label(trail)?));
            tables.trails_of(trails).filter_map(label).collect()
        })
    }

    async fn trail_report_count(&self, org: Id, trail: Id, kind: Reported, most: u64) -> StoreResult<u64> {
        self.query(org, |tables| {
            let count = match kind {
                Reported::Artifacts => tables.artifacts_of(trail).count(),
                Reported::Attestations => tables.attestations_of(trail).count(),
            };
            most.min(count as u64)
        })
    }

    async fn trail_entries(&self, org: Id, trail: Id) -> StoreResult<Vec<TrailEntry>> {
        self.query(org, |tables| tables.ledger.about_trail(trail))
    }
}
