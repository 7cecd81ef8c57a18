//! The questions, each a look-up or a scan.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use async_trait::async_trait;
use bytes::Bytes;

use crate::allowlists::{Allowance, AllowlistStore};
use crate::artifacts::{Artifact, ArtifactFilter, ArtifactRow, ArtifactStore, Matches};
use crate::attestation_types::{AttestationType, AttestationTypeStore, AttestationTypeVersion};
use crate::attestations::{Attestation, AttestationStore};
use crate::auth::{ActorKind, KeyHash, Role};
use crate::blobs::{Blobs, CHUNK, Chunks};
use crate::environments::{Environment, EnvironmentStore};
use crate::flows::{Flow, FlowFilter, FlowStore};
use crate::id::Id;
use crate::ledger::{Frontier, Known, Needs};
use crate::name::Fingerprint;
use crate::orgs::{KeyHolder, OrgStore, Standing, User};
use crate::page::{Slice, SortDirection, Window};
use crate::policies::{Policy, PolicyStore, PolicyVersion};
use crate::repos::{Repo, RepoFilter, RepoStore};
use crate::service_accounts::{ApiKeyRecord, ServiceAccount, ServiceAccountStore};
use crate::snapshots::{Placed, Snapshot, SnapshotRow, SnapshotStore, Stretch};
use crate::store::{Current, Health, LedgerStore, StoreError, StoreResult, StoredEntry};
use crate::time::Timestamp;
use crate::trails::{Trail, TrailContents, TrailEvidence, TrailFilter, TrailStore};

use super::tables::{Run, Tables};
use super::{MemoryStore, State};

/// Clones of the records, in the order of the map.
fn records<K, T: Clone>(table: &BTreeMap<K, Current<T>>) -> Vec<T> {
    table.values().map(|current| current.record.clone()).collect()
}

#[async_trait]
impl LedgerStore for MemoryStore {
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>> {
        Ok(self.read()?.tables.get(&org).map(|tables| tables.ledger.frontier().clone()))
    }

    async fn ledger_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        self.ask(org, |tables| tables.ledger.entries(first, limit))
    }

    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<Known> {
        self.ask(org, |tables| tables.ledger.hashes(needs))
    }
}

#[async_trait]
impl Health for MemoryStore {
    async fn ready(&self) -> StoreResult<()> {
        self.read().map(drop)
    }
}

#[async_trait]
impl Blobs for MemoryStore {
    async fn keep(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        let mut bytes = Vec::new();
        while let Some(piece) = content.next().await.map_err(|error| StoreError::Failed(error.into()))? {
            bytes.extend_from_slice(&piece);
        }
        self.write()?.blobs.insert((org, sha256.clone()), bytes.into());
        Ok(())
    }

    async fn chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
        let state = self.read()?;
        let blob = state.blobs.get(&(org, sha256.clone()));
        let start = usize::try_from(number).ok().and_then(|number| number.checked_mul(CHUNK));
        Ok(blob
            .zip(start)
            .filter(|(blob, start)| *start < blob.len())
            .map(|(blob, start)| blob.slice(start..blob.len().min(start.saturating_add(CHUNK)))))
    }
}

impl State {
    fn holder(&self, hash: &KeyHash) -> Option<KeyHolder> {
        let (hash, (org, key)) = self.hashes.get_key_value(hash)?;
        let tables = self.tables.get(org)?;
        let ApiKeyRecord { owner, expires_at, revoked_at, .. } = tables.keys.get(key)?.record.clone();
        let bound_to = match owner.kind {
            ActorKind::User => None,
            ActorKind::ServiceAccount => Some((*org, tables.role_of(owner.id)?)),
        };
        Some(KeyHolder { hash: hash.clone(), actor: owner, bound_to, expires_at, revoked_at })
    }
}

impl Tables {
    fn role_of(&self, service_account: Id) -> Option<Role> {
        let mut accounts = self.service_accounts.values().map(|current| &current.record);
        accounts.find(|account| account.id == service_account).map(|account| account.privilege)
    }
}

#[async_trait]
impl OrgStore for MemoryStore {
    async fn standing(&self, org: &str, user: Id) -> StoreResult<Option<Standing>> {
        let state = self.read()?;
        let standing = state.organizations.get(org).map(|organization| Standing {
            role: state.tables.get(&organization.id).and_then(|tables| tables.members.get(&user).copied()),
            organization: organization.clone(),
        });
        Ok(standing)
    }

    async fn user(&self, name: &str) -> StoreResult<Option<User>> {
        Ok(self.read()?.users.get(name).cloned())
    }

    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>> {
        Ok(self.read()?.holder(hash))
    }
}

#[async_trait]
impl ServiceAccountStore for MemoryStore {
    async fn service_account(&self, org: Id, name: &str) -> StoreResult<Option<Current<ServiceAccount>>> {
        self.ask(org, |tables| tables.service_accounts.get(name).cloned())
    }

    async fn service_accounts(&self, org: Id) -> StoreResult<Vec<ServiceAccount>> {
        self.ask(org, |tables| records(&tables.service_accounts))
    }

    async fn api_keys(&self, org: Id, owner: Id) -> StoreResult<Vec<Current<ApiKeyRecord>>> {
        let mut keys: Vec<_> = self.ask(org, |tables| {
            tables.keys.values().filter(|key| key.record.owner.id == owner).cloned().collect()
        })?;
        keys.sort_by_key(|key: &Current<ApiKeyRecord>| (key.record.created_at, key.record.id));
        Ok(keys)
    }
}

impl FlowFilter {
    fn admits(&self, flow: &Flow) -> bool {
        let name = flow.name.as_str();
        let named =
            |part: &str| if self.ignore_case { contains_folded(name, part) } else { name.contains(part) };
        self.name.as_deref().is_none_or(named) && self.tags.iter().all(|tag| tag.matches(&flow.tags))
    }
}

/// Whether `part` occurs in `text`, whatever the case of ASCII letters.
fn contains_folded(text: &str, part: &str) -> bool {
    text.to_ascii_lowercase().contains(&part.to_ascii_lowercase())
}

#[async_trait]
impl FlowStore for MemoryStore {
    async fn flow(&self, org: Id, name: &str) -> StoreResult<Option<Current<Flow>>> {
        self.ask(org, |tables| tables.flows.get(name).cloned())
    }

    async fn flows_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Flow>> {
        let flows = self.ask(org, |tables| records(&tables.flows))?;
        Ok(flows.into_iter().filter(|flow| ids.contains(&flow.id)).collect())
    }

    async fn flows(&self, org: Id, filter: &FlowFilter, window: Window) -> StoreResult<Slice<Flow>> {
        let flows = self.ask(org, |tables| records(&tables.flows))?;
        Ok(Slice::of(flows.into_iter().filter(|flow| filter.admits(flow)).collect(), window))
    }
}

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

    /// The trails of these ids.
    fn trails_of<'a>(&'a self, ids: &'a [Id]) -> impl Iterator<Item = &'a Trail> {
        self.trails.values().map(|trail| &trail.record).filter(|trail| ids.contains(&trail.id))
    }

    fn contents(&self, trail: &Trail) -> TrailContents {
        TrailContents {
            trail: trail.clone(),
            artifacts: self
                .artifacts_of(trail.id)
                .map(|artifact| artifact.record.row(artifact.revision))
                .collect(),
            attestations: self
                .attestations_of(trail.id)
                .map(|attestation| attestation.record.row(attestation.revision))
                .collect(),
        }
    }

    fn evidence(&self, trail: &Trail) -> TrailEvidence {
        TrailEvidence {
            trail: trail.clone(),
            attestations: self.attestations_of(trail.id).cloned().collect(),
        }
    }
}

#[async_trait]
impl TrailStore for MemoryStore {
    async fn trail(&self, org: Id, flow: Id, name: &str) -> StoreResult<Option<Current<Trail>>> {
        self.ask(org, |tables| {
            let mut trails = tables.trails.values();
            trails.find(|trail| trail.record.flow == flow && trail.record.name.as_str() == name).cloned()
        })
    }

    async fn trails(&self, org: Id, filter: &TrailFilter, window: Window) -> StoreResult<Slice<Trail>> {
        self.ask(org, |tables| {
            let trails = tables.trails_newest_first();
            Slice::of(trails.filter(|trail| tables.admits_trail(filter, trail)).collect(), window)
        })
    }

    async fn newest_trails(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<Trail>> {
        self.ask(org, |tables| {
            let (mut seen, trails) = (BTreeSet::new(), tables.trails_newest_first());
            trails.filter(|trail| flows.contains(&trail.flow) && seen.insert(trail.flow)).collect()
        })
    }

    async fn trail_contents(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailContents>> {
        self.ask(org, |tables| tables.trails_of(trails).map(|trail| tables.contents(trail)).collect())
    }

    async fn trail_evidence(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailEvidence>> {
        self.ask(org, |tables| tables.trails_of(trails).map(|trail| tables.evidence(trail)).collect())
    }

    async fn trail_entries(&self, org: Id, trail: Id) -> StoreResult<Vec<StoredEntry>> {
        self.ask(org, |tables| tables.ledger.about_trail(trail))
    }
}

impl ArtifactFilter {
    fn admits(&self, artifact: &Artifact) -> bool {
        let commit = artifact.git_commit.as_ref().map(AsRef::<str>::as_ref);
        let branch = artifact.git_commit_info.as_ref().and_then(|info| info.branch.as_deref());
        self.flow.is_none_or(|flow| flow == artifact.flow)
            && self.trail.is_none_or(|trail| artifact.trail == Some(trail))
            && self.id.is_none_or(|id| id == artifact.id)
            && begins(self.fingerprint.as_deref(), Some(artifact.fingerprint.as_str()))
            && begins(self.commit.as_deref(), commit)
            && (self.branch.is_none() || self.branch.as_deref() == branch)
            && self.repos.as_ref().is_none_or(|repos| artifact.repo.is_some_and(|repo| repos.contains(&repo)))
            && (!self.with_commit || commit.is_some())
    }
}

/// Whether `text` begins with the prefix, if one is asked for.
fn begins(prefix: Option<&str>, text: Option<&str>) -> bool {
    prefix.is_none_or(|prefix| text.is_some_and(|text| text.starts_with(prefix)))
}

#[async_trait]
impl ArtifactStore for MemoryStore {
    async fn fingerprints(&self, org: Id, flow: Id, prefix: &str, limit: u64) -> StoreResult<Matches> {
        let found: BTreeSet<Fingerprint> = self.ask(org, |tables| {
            let artifacts = tables.artifacts.iter().map(|artifact| &artifact.record);
            let found = artifacts.filter(|artifact| {
                artifact.flow == flow && artifact.fingerprint.as_str().starts_with(prefix)
            });
            found.map(|artifact| artifact.fingerprint.clone()).collect()
        })?;
        let first = Slice::of(found.into_iter().collect(), Window { offset: 0, limit });
        Ok(Matches { count: first.total, first: first.items })
    }

    async fn artifacts(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        window: Window,
    ) -> StoreResult<Slice<Artifact>> {
        self.ask(org, |tables| {
            let newest_first = tables.artifacts.iter().rev().map(|artifact| &artifact.record);
            Slice::of(newest_first.filter(|artifact| filter.admits(artifact)).cloned().collect(), window)
        })
    }

    async fn artifacts_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Artifact>> {
        self.ask(org, |tables| {
            let artifacts = tables.artifacts.iter().map(|artifact| &artifact.record);
            artifacts.filter(|artifact| ids.contains(&artifact.id)).cloned().collect()
        })
    }

    async fn provenance(&self, org: Id, fingerprints: &[Fingerprint]) -> StoreResult<Vec<ArtifactRow>> {
        let newest: BTreeMap<_, ArtifactRow> = self.ask(org, |tables| {
            let rows = tables.artifacts.iter().map(|artifact| artifact.record.row(artifact.revision));
            let wanted = rows.filter(|row| fingerprints.contains(&row.fingerprint));
            wanted.map(|row| ((row.fingerprint.clone(), row.flow), row)).collect()
        })?;
        let mut rows: Vec<_> = newest.into_values().collect();
        rows.sort_by_key(|row| row.index);
        Ok(rows)
    }
}

#[async_trait]
impl AttestationStore for MemoryStore {
    async fn attestation(&self, org: Id, id: Id) -> StoreResult<Option<Attestation>> {
        self.ask(org, |tables| {
            let mut attestations = tables.attestations.iter().map(|attestation| &attestation.record);
            attestations.find(|attestation| attestation.id == id).cloned()
        })
    }

    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<Attestation>> {
        self.ask(org, |tables| {
            let newest_first = tables.attestations.iter().rev().map(|attestation| &attestation.record);
            let named = newest_first.filter(|attestation| attestation.name.as_str() == name);
            named.filter(|attestation| trails.contains(&attestation.trail)).cloned().collect()
        })
    }
}

impl RepoFilter {
    fn admits(&self, repo: &Repo) -> bool {
        let Repo { info, vcs_instance, namespace_path, tags, .. } = repo;
        self.name.as_ref().is_none_or(|name| *name == info.name)
            && self.search.as_ref().is_none_or(|part| contains_folded(&info.name, part))
            && self.provider.is_none_or(|provider| info.provider == Some(provider))
            && (self.repo_id.is_none() || self.repo_id == info.id)
            && (self.vcs_instance.is_none() || self.vcs_instance == *vcs_instance)
            && self.namespace.as_ref().is_none_or(|start| namespace_path.starts_with(start))
            && self.tags.iter().all(|tag| tag.matches(tags))
    }

    fn order(&self, left: &Repo, right: &Repo) -> std::cmp::Ordering {
        let by_name = left.info.name.cmp(&right.info.name);
        let by_name = match self.direction {
            SortDirection::Asc => by_name,
            SortDirection::Desc => by_name.reverse(),
        };
        by_name.then(left.id.cmp(&right.id))
    }
}

#[async_trait]
impl RepoStore for MemoryStore {
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>> {
        self.ask(org, |tables| tables.repos.get(identity).cloned())
    }

    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>> {
        self.ask(org, |tables| tables.repos.values().find(|repo| repo.record.id == id).cloned())
    }

    async fn repos(&self, org: Id, filter: &RepoFilter, window: Window) -> StoreResult<Slice<Repo>> {
        let mut repos = self.ask(org, |tables| records(&tables.repos))?;
        repos.retain(|repo| filter.admits(repo));
        repos.sort_by(|left, right| filter.order(left, right));
        Ok(Slice::of(repos, window))
    }
}

#[async_trait]
impl EnvironmentStore for MemoryStore {
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<Current<Environment>>> {
        self.ask(org, |tables| tables.environments.get(name).cloned())
    }

    async fn environments(&self, org: Id) -> StoreResult<Vec<Current<Environment>>> {
        self.ask(org, |tables| tables.environments.values().cloned().collect())
    }
}

impl Tables {
    fn snapshots_of(&self, environment: Id) -> impl DoubleEndedIterator<Item = &Snapshot> {
        self.snapshots.range((environment, 0)..=(environment, u64::MAX)).map(|(_, snapshot)| &snapshot.record)
    }

    fn line(&self, snapshot: &Snapshot) -> SnapshotRow {
        let next = snapshot.index.checked_add(1).map(|next| (snapshot.environment, next));
        SnapshotRow {
            index: snapshot.index,
            at: snapshot.at,
            until: next.and_then(|next| self.snapshots.get(&next)).map(|next| next.record.at),
            compliant: snapshot.compliant,
        }
    }
}

impl Run {
    fn stretch(&self) -> Stretch {
        Stretch {
            fingerprint: self.instance.fingerprint.clone(),
            environment: self.environment,
            environment_name: self.environment_name.clone(),
            from: self.instance.from,
            from_at: self.from_at,
            until: self.until,
            exited: self.exited,
        }
    }
}

#[async_trait]
impl SnapshotStore for MemoryStore {
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>> {
        self.ask(org, |tables| tables.snapshots.get(&(environment, index)).cloned())
    }

    async fn snapshots(
        &self,
        org: Id,
        environment: Id,
        range: RangeInclusive<u64>,
    ) -> StoreResult<Vec<SnapshotRow>> {
        self.ask(org, |tables| {
            let snapshots = tables.snapshots_of(environment);
            let within = snapshots.filter(|snapshot| range.contains(&snapshot.index));
            within.map(|snapshot| tables.line(snapshot)).collect()
        })
    }

    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64> {
        self.ask(org, |tables| {
            let mut newest_first = tables.snapshots_of(environment).rev();
            newest_first.find(|snapshot| snapshot.at <= at).map_or(0, |snapshot| snapshot.index)
        })
    }

    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<Placed>> {
        self.ask(org, |tables| {
            if !tables.snapshots.contains_key(&(environment, index)) {
                return Vec::new();
            }
            let runs = tables.runs.iter().filter(|run| run.environment == environment);
            let placed = runs.filter(|run| run.covers(index) || run.exited_in(index));
            let mut placed: Vec<_> = placed
                .map(|run| Placed { instance: run.instance.clone(), exited: run.exited_in(index) })
                .collect();
            placed.sort_by(|left, right| left.instance.fingerprint.cmp(&right.instance.fingerprint));
            placed
        })
    }

    async fn stretches(&self, org: Id, fingerprints: &[Fingerprint]) -> StoreResult<Vec<Stretch>> {
        let mut stretches: Vec<_> = self.ask(org, |tables| {
            let runs = tables.runs.iter().filter(|run| fingerprints.contains(&run.instance.fingerprint));
            runs.map(Run::stretch).collect()
        })?;
        stretches.sort_by_cached_key(|run| (run.environment, run.fingerprint.clone(), run.from));
        Ok(stretches)
    }
}

#[async_trait]
impl PolicyStore for MemoryStore {
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>> {
        self.ask(org, |tables| tables.policies.get(name).cloned())
    }

    async fn policies(&self, org: Id) -> StoreResult<Vec<Policy>> {
        self.ask(org, |tables| records(&tables.policies))
    }

    async fn policy_versions(&self, org: Id, policies: &[Id]) -> StoreResult<Vec<PolicyVersion>> {
        self.ask(org, |tables| {
            let versions = tables.policy_versions.iter();
            versions.filter(|version| policies.contains(&version.policy)).cloned().collect()
        })
    }
}

#[async_trait]
impl AllowlistStore for MemoryStore {
    async fn allowances(&self, org: Id, environment: Option<Id>) -> StoreResult<Vec<Allowance>> {
        self.ask(org, |tables| {
            let mut seen = BTreeSet::new();
            let newest_first = tables.allowances.iter().rev();
            newest_first
                .filter(|allowance| environment.is_none_or(|wanted| wanted == allowance.environment))
                .filter(|allowance| seen.insert((allowance.environment, &allowance.fingerprint)))
                .cloned()
                .collect()
        })
    }
}

#[async_trait]
impl AttestationTypeStore for MemoryStore {
    async fn attestation_type(&self, org: Id, name: &str) -> StoreResult<Option<Current<AttestationType>>> {
        self.ask(org, |tables| tables.attestation_types.get(name).cloned())
    }

    async fn attestation_types(&self, org: Id) -> StoreResult<Vec<AttestationType>> {
        let mut types = self.ask(org, |tables| records(&tables.attestation_types))?;
        types.sort_by_key(|attestation_type| Reverse((attestation_type.created_at, attestation_type.id)));
        Ok(types)
    }

    async fn attestation_type_versions(
        &self,
        org: Id,
        types: &[Id],
    ) -> StoreResult<Vec<AttestationTypeVersion>> {
        self.ask(org, |tables| {
            let newest_first = tables.attestation_type_versions.iter().rev();
            newest_first.filter(|version| types.contains(&version.attestation_type)).cloned().collect()
        })
    }
}
