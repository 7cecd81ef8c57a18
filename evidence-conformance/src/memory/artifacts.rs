//! Artifacts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use evidence_core::artifacts::{
    Artifact, ArtifactFilter, ArtifactPage, ArtifactQuery, ArtifactRow, ArtifactStore, ArtifactWithRuns,
    Found, GivenName, Matches, Origin, Unreported,
};
use evidence_core::flows::{Flow, FlowStore};
use evidence_core::id::Id;
use evidence_core::name::{CommitSha, Fingerprint};
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::snapshots::SnapshotStore;
use evidence_core::store::{Current, StoreResult};
use evidence_core::trails::TrailStore;

use super::tables::Tables;
use super::{Admits, MemoryStore, bytes};

impl Admits<Artifact> for ArtifactFilter {
    fn admits(&self, artifact: &Artifact) -> bool {
        let commit = artifact.commit_in_full();
        let branch = artifact.git_commit_info.as_ref().and_then(|info| info.branch.as_deref());
        self.flow.is_none_or(|flow| flow == artifact.flow)
            && self.trail.is_none_or(|trail| artifact.trail == Some(trail))
            && self.name.as_ref().is_none_or(|name| *name == artifact.template_reference_name)
            && self.id.is_none_or(|id| id == artifact.id)
            && begins(self.fingerprint.as_deref(), Some(artifact.fingerprint.as_str()))
            && begins(self.commit.as_deref(), commit)
            && (self.branch.is_none() || self.branch.as_deref() == branch)
            && self.repos.as_ref().is_none_or(|repos| artifact.repo.is_some_and(|repo| repos.contains(&repo)))
            && (!self.with_commit || commit.is_some())
    }
}

/// Returns whether `text` begins with the prefix, or true without a prefix.
fn begins(prefix: Option<&str>, text: Option<&str>) -> bool {
    prefix.is_none_or(|prefix| text.is_some_and(|text| text.starts_with(prefix)))
}

/// Returns the first of these, and their total number.
fn matches<T: Ord>(found: BTreeSet<T>, limit: u64) -> Matches<T> {
    let first = Page::of(found.into_iter().collect(), PageRequest { offset: 0, limit });
    Matches { count: first.total, first: first.items }
}

impl Tables {
    /// Returns the part of an artifact report that compliance depends on.
    pub(super) fn artifact_row(&self, Current { revision, record }: &Current<Artifact>) -> ArtifactRow {
        let at = self.ledger.corrected(*revision, record.created_at);
        ArtifactRow { at, ..record.row(*revision) }
    }

    /// Returns the name under which each digest ran: that of its newest run in the environment with the lowest
    /// id.
    fn names_of_runs(&self) -> BTreeMap<Fingerprint, String> {
        let mut runs: Vec<_> =
            self.intervals.iter().filter(|one| one.exited || one.until.is_none()).collect();
        runs.sort_by_key(|one| (Reverse(one.environment), one.instance.since));
        let named = runs.into_iter().map(|one| &one.instance);
        named.filter_map(|instance| Some((instance.fingerprint.clone()?, instance.name.clone()))).collect()
    }
}

#[async_trait]
impl ArtifactStore for MemoryStore {
    async fn fingerprints(&self, org: Id, flow: Id, prefix: &str, limit: u64) -> StoreResult<Matches> {
        let found: BTreeSet<Fingerprint> = self.query(org, |tables| {
            let artifacts = tables.artifacts.iter().map(|artifact| &artifact.record);
            let found = artifacts.filter(|artifact| {
                artifact.flow == flow && artifact.fingerprint.as_str().starts_with(prefix)
            });
            found.map(|artifact| artifact.fingerprint.clone()).collect()
        })?;
        Ok(matches(found, limit))
    }

    async fn search(&self, org: Id, prefix: &str, limit: u64) -> StoreResult<Found> {
        let (reports, ran, reported) = self.query(org, |tables| {
            let newest_first = || tables.artifacts.iter().rev().map(|artifact| &artifact.record);
            let asked = |artifact: &&Artifact| {
                begins(Some(prefix), Some(artifact.fingerprint.as_str()))
                    || begins(Some(prefix), artifact.commit_in_full())
            };
            let reported: BTreeSet<Fingerprint> =
                newest_first().map(|artifact| artifact.fingerprint.clone()).collect();
            (Vec::from_iter(newest_first().filter(asked).cloned()), tables.names_of_runs(), reported)
        })?;
        let all = ran.keys().chain(reports.iter().map(|artifact| &artifact.fingerprint));
        let fingerprints: BTreeSet<Fingerprint> =
            all.filter(|fingerprint| fingerprint.as_str().starts_with(prefix)).cloned().collect();
        let commits: BTreeSet<CommitSha> = reports
            .iter()
            .filter_map(|artifact| artifact.commit_in_full().filter(|commit| commit.starts_with(prefix)))
            .filter_map(|commit| commit.parse().ok())
            .collect();
        let unreported = ran
            .into_iter()
            .filter(|(fingerprint, _)| fingerprints.contains(fingerprint) && !reported.contains(fingerprint));
        let unreported = unreported.map(|(fingerprint, name)| Unreported { fingerprint, name }).collect();
        let mut seen = BTreeSet::new();
        let newest = reports.iter().filter(|artifact| seen.insert((&artifact.fingerprint, artifact.flow)));
        let listed = newest.map(|artifact| Ok(Listed { id: artifact.id, bytes: bytes(artifact)? }));
        let first = PageRequest { offset: 0, limit };
        Ok(Found {
            reports: Page::of(listed.collect::<StoreResult<_>>()?, first).items,
            unreported: Page::of(unreported, first).items,
            fingerprints: matches(fingerprints, limit),
            commits: matches(commits, limit),
        })
    }

    async fn artifacts(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Artifact>> {
        self.query(org, |tables| {
            let newest_first = tables.artifacts.iter().rev().map(|artifact| &artifact.record);
            Page::of(newest_first.filter(|artifact| filter.admits(artifact)).cloned().collect(), request)
        })
    }

    async fn artifacts_listed(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<ArtifactPage> {
        let found = self.artifacts(org, filter, request).await?;
        let listed = |artifact: &Artifact| Ok(Listed { id: artifact.id, bytes: bytes(artifact)? });
        let listed = found.items.iter().map(listed).collect::<StoreResult<_>>()?;
        Ok(ArtifactPage { listed, content: Vec::new() })
    }

    async fn artifact_of_flow(
        &self,
        org: Id,
        query: ArtifactQuery<'_>,
    ) -> StoreResult<Option<(Flow, Option<ArtifactWithRuns>)>> {
        let Some(Current { record: flow, .. }) = self.flow(org, query.flow).await? else { return Ok(None) };
        let trail = match query.trail {
            None => None,
            Some(name) => match self.trail(org, flow.id, name).await? {
                Some(trail) => Some(trail.record.id),
                None => return Ok(Some((flow, None))),
            },
        };
        let fingerprint = Some(query.fingerprint.to_string());
        let filter =
            ArtifactFilter { flow: Some(flow.id), trail, id: query.id, fingerprint, ..Default::default() };
        let Some(artifact) = self.latest_artifact(org, &filter).await? else { return Ok(Some((flow, None))) };
        let runs = match query.newest_runs {
            None => Vec::new(),
            Some(newest) => self.runs(org, std::slice::from_ref(query.fingerprint), newest).await?,
        };
        let version = self.trail_versions(org, artifact.trail.as_slice()).await?.pop();
        Ok(Some((flow, Some(ArtifactWithRuns { artifact, version, runs }))))
    }

    async fn latest_artifact(&self, org: Id, filter: &ArtifactFilter) -> StoreResult<Option<Artifact>> {
        self.query(org, |tables| {
            let mut newest_first = tables.artifacts.iter().rev().map(|artifact| &artifact.record);
            newest_first.find(|artifact| filter.admits(artifact)).cloned()
        })
    }

    async fn artifacts_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Artifact>> {
        self.query(org, |tables| {
            let artifacts = tables.artifacts.iter().map(|artifact| &artifact.record);
            artifacts.filter(|artifact| ids.contains(&artifact.id)).cloned().collect()
        })
    }

    async fn artifact_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>> {
        let listed = |artifact: &Artifact| Ok(Listed { id: artifact.id, bytes: bytes(artifact)? });
        self.artifacts_by_id(org, ids).await?.iter().map(listed).collect()
    }

    async fn reports(&self, org: Id, flow: Id, fingerprint: &Fingerprint) -> StoreResult<Vec<ArtifactRow>> {
        self.query(org, |tables| {
            let rows = tables.artifacts.iter().map(|artifact| tables.artifact_row(artifact));
            rows.filter(|row| row.flow == flow && row.fingerprint == *fingerprint).collect()
        })
    }

    async fn provenance(
        &self,
        org: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
    ) -> StoreResult<Vec<Origin>> {
        self.query(org, |tables| tables.origins(entries, |fingerprint| fingerprints.contains(fingerprint)))
    }

    async fn given_names(&self, org: Id, asked: &[(Id, Fingerprint)]) -> StoreResult<Vec<GivenName>> {
        self.query(org, |tables| {
            let mut names = BTreeMap::new();
            for Current { revision, record } in &tables.artifacts {
                let content = (record.flow, record.fingerprint.clone());
                if asked.contains(&content) {
                    names.entry((content, record.template_reference_name.clone())).or_insert(*revision);
                }
            }
            let given = |(((flow, fingerprint), name), first)| GivenName { flow, fingerprint, name, first };
            names.into_iter().map(given).collect()
        })
    }
}

impl Tables {
    /// Returns the origins of these fingerprints in each flow, among the first `entries` of the ledger.
    pub(super) fn origins(&self, entries: u64, asked: impl Fn(&Fingerprint) -> bool) -> Vec<Origin> {
        let reports = self.artifacts.iter().filter(|report| report.revision < entries);
        let mut by_flow: BTreeMap<_, Vec<ArtifactRow>> = BTreeMap::new();
        for report in reports.filter(|report| asked(&report.record.fingerprint)) {
            let of = by_flow.entry((report.record.fingerprint.clone(), report.record.flow)).or_default();
            of.push(self.artifact_row(report));
        }
        let origin = |rows: Vec<ArtifactRow>| {
            let named = rows.iter().filter(|row| !row.template_reference_name.is_empty());
            let last = named.max_by_key(|row| (row.trail.is_some(), row.index));
            let last_name = last.map(|row| row.template_reference_name.clone()).unwrap_or_default();
            let report = rows.into_iter().max_by_key(|row| (row.trail.is_some(), row.index))?;
            Some(Origin { report, last_name })
        };
        let mut origins: Vec<_> = by_flow.into_values().filter_map(origin).collect();
        origins.sort_by_key(|origin| origin.report.index);
        origins
    }
}
