//! Trails: single executions of a flow, and what was reported to them.

mod evaluation;
mod events;
mod operations;
#[cfg(feature = "pdf")]
mod report;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::artifacts::ArtifactRow;
use crate::attestations::AttestationRow;
use crate::auth::Actor;
use crate::fact::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::json::JsonText;
use crate::name::TrailName;
use crate::page::{Listed, Page, PageRequest};
use crate::rules::template::Template;
use crate::shared::{ExternalUrls, GitCommit, RepoInfo, TagFilter};
use crate::store::{Current, StoreResult};
use crate::texts::TextRef;
use crate::time::Timestamp;

pub(crate) use evaluation::{Activity, EvaluatedTrail, evaluated, fitting, newest_of_flows};
pub(crate) use events::runs;
pub use events::{
    AttestationEvent, EventCommit, EventDetails, EventRepo, EventSource, EventView, RunEvent, TrailData,
};
pub use operations::*;
#[cfg(feature = "pdf")]
pub use report::GetAuditPdf;

/// A trail as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Trail {
    /// Its id.
    pub id: Id,
    /// The flow it is an execution of.
    pub flow: Id,
    /// Its name, unique in the flow.
    pub name: TrailName,
    /// What it is about.
    pub description: String,
    /// The commit it is for.
    pub git_commit_info: Option<GitCommit>,
    /// The repository, as reported.
    pub repo_info: Option<RepoInfo>,
    /// The repos it was reported from, the newest 100 of them, the last reported at the end.
    pub repo_ids: Vec<Id>,
    /// Where it came from.
    pub origin_url: String,
    /// Whatever the reporter added.
    pub user_data: JsonText,
    /// Labelled links.
    pub external_urls: Option<ExternalUrls>,
    /// The template's YAML text that it was begun with; nothing for
    /// [`EMPTY_TEMPLATE`](crate::flows::EMPTY_TEMPLATE).
    pub template: Option<TextRef>,
    /// The id of that text.
    pub template_id: Id,
    /// When it was begun.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
    /// When it was begun or last changed.
    pub last_modified_at: Timestamp,
    /// Who began it or last changed it.
    pub last_modified_by: Actor,
    /// What a newer version of the program recorded beside.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Trail);

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

/// A ledger entry about a trail, which is read apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailEntry {
    /// Its index.
    pub index: u64,
    /// The bytes of its payload, as stored.
    pub bytes: u64,
}

/// About as many bytes of memory a report to a trail takes, as far as compliance depends on it.
pub const REPORT_BYTES: u64 = 256;

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
    /// About how much [`trail_contents`](Self::trail_contents) reads of these trails, each: the bytes of its newest fact, and
    /// [`REPORT_BYTES`] for each report to it. One an id, in any order; unknown ids are passed over.
    async fn trail_sizes(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<Listed>>;
    /// The trails of these ids and what was reported to them, one an id, in any order; unknown ids are passed over.
    async fn trail_contents(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailContents>>;
    /// The names of the trails of these ids, one an id, in any order; unknown ids are passed over.
    async fn trail_names(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<(Id, TrailName)>>;
    /// How many reports of this kind the trail has, counted up to `most`; none where there is no such trail.
    async fn trail_size(&self, org: Id, trail: Id, kind: Reported, most: u64) -> StoreResult<u64>;
    /// All ledger entries that are about this trail (begun, updated, artifacts, attestations), by ledger index, without what
    /// they say. One that the ledger has lost is among them: nobody should take the others for the whole history.
    async fn trail_entries(&self, org: Id, trail: Id) -> StoreResult<Vec<TrailEntry>>;
}
