//! The queries, each a look-up or a scan.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;

use crate::artifacts::{Artifact, ArtifactFilter, ArtifactRow, ArtifactStore, Matches, Origin};
use crate::attestation_types::{AttestationType, AttestationTypeStore, AttestationTypeVersion, VersionKey};
use crate::attestations::{Attestation, AttestationStore, NamedAttestation};
use crate::auth::{ActorKind, KeyHash, Role};
use crate::blobs::{Blobs, CHUNK, Chunks};
use crate::digest::sha256_hex;
use crate::fact::Key;
use crate::flows::{Flow, FlowFilter, FlowStore};
use crate::id::Id;
use crate::ledger::{Frontier, Hash, LedgerHashes, Needs};
use crate::name::{Fingerprint, TrailName};
use crate::orgs::{ByName, KeyHolder, Member, OrgRole, OrgStore, Organization, User};
use crate::page::{Listed, Page, PageRequest, SortDirection};
use crate::repos::{Repo, RepoFilter, RepoStore};
use crate::service_accounts::{ApiKeyRecord, ServiceAccount, ServiceAccountStore};
use crate::store::{Current, Health, LedgerStore, StoreError, StoreResult, StoredEntry};
use crate::texts::TextStore;
use crate::time::Timestamp;
use crate::trails::{REPORT_BYTES, Reported, Trail, TrailContents, TrailEntry, TrailFilter, TrailStore};

use super::tables::Tables;
use super::{MemoryStore, State};

/// Clones of the records, by name.
pub(super) fn records<T: Clone, N: Ord>(table: &BTreeMap<Id, Current<T>>, name: impl Fn(&T) -> N) -> Vec<T> {
    let mut records: Vec<_> = table.values().map(|current| current.record.clone()).collect();
    records.sort_by_key(name);
    records
}

#[async_trait]
impl LedgerStore for MemoryStore {
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>> {
        Ok(self.read()?.tables.get(&org).map(|tables| tables.ledger.frontier().clone()))
    }

    async fn ledger_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        self.ask(org, |tables| tables.ledger.entries(first, limit))
    }

    async fn ledger_entries_at(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<StoredEntry>> {
        self.ask(org, |tables| tables.ledger.entries_at(indexes))
    }

    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<LedgerHashes> {
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
    async fn put(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        let kept = self.read()?.blobs.get(&(org, sha256.clone())).cloned();
        if kept.is_some_and(|kept| sha256_hex(&kept) == sha256.as_str()) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        while let Some(piece) = content.next().await.map_err(|error| StoreError::Failed(error.into()))? {
            bytes.extend_from_slice(&piece);
        }
        self.write()?.blobs.insert((org, sha256.clone()), bytes.into());
        Ok(())
    }

    async fn get_chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
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
    /// The roles of an organization.
    fn members(&self, org: Id) -> &BTreeMap<Id, Current<Role>> {
        static NOBODY: BTreeMap<Id, Current<Role>> = BTreeMap::new();
        self.tables.get(&org).map_or(&NOBODY, |tables| &tables.members)
    }

    fn holder(&self, hash: &KeyHash) -> Option<KeyHolder> {
        let (hash, (org, key)) = self.hashes.get_key_value(hash)?;
        let tables = self.tables.get(org)?;
        let ApiKeyRecord { owner, expires_at, revoked_at, .. } = tables.keys.get(key)?.record.clone();
        let bound_to = match owner.kind {
            ActorKind::User => None,
            ActorKind::Operator => return None,
            ActorKind::ServiceAccount => Some((*org, tables.role_of(owner.id)?)),
        };
        Some(KeyHolder { hash: hash.clone(), actor: owner, bound_to, expires_at, revoked_at })
    }
}

/// At most so many of what is named after `after`.
fn following<T: Clone>(named: &BTreeMap<String, T>, after: &str, limit: u64) -> StoreResult<ByName<T>> {
    let further = named.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
    let further = further.take(usize::try_from(limit).unwrap_or(usize::MAX));
    ByName::readable(further.map(|(name, record)| (name.clone(), Ok(record.clone()))).collect(), limit)
}

impl Tables {
    fn role_of(&self, service_account: Id) -> Option<Role> {
        let mut accounts = self.service_accounts.values().map(|current| &current.record);
        accounts.find(|account| account.id == service_account).map(|account| account.privilege)
    }
}

#[async_trait]
impl OrgStore for MemoryStore {
    async fn org_role(&self, org: &str, user: Id) -> StoreResult<Option<OrgRole>> {
        let state = self.read()?;
        let org_role = state.organizations.get(org).map(|organization| OrgRole {
            role: state.members(organization.id).get(&user).map(|role| role.record),
            organization: organization.clone(),
        });
        Ok(org_role)
    }

    async fn user(&self, name: &str) -> StoreResult<Option<User>> {
        Ok(self.read()?.users.get(name).cloned())
    }

    async fn users_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<User>> {
        following(&self.read()?.users, after, limit)
    }

    async fn organizations_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<Organization>> {
        following(&self.read()?.organizations, after, limit)
    }

    async fn members(&self, org: Id) -> StoreResult<Vec<Current<Member>>> {
        let state = self.read()?;
        let member = |user: &User| {
            let Current { revision, record: role } = *state.members(org).get(&user.id)?;
            Some(Current { revision, record: Member { user: user.clone(), role } })
        };
        Ok(state.users.values().filter_map(member).collect())
    }

    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>> {
        Ok(self.read()?.holder(hash))
    }
}

#[async_trait]
impl ServiceAccountStore for MemoryStore {
    async fn service_account(&self, org: Id, name: &str) -> StoreResult<Option<Current<ServiceAccount>>> {
        self.by_name(org, name.parse().ok().map(Key::ServiceAccount), |tables| &tables.service_accounts)
    }

    async fn service_accounts(&self, org: Id) -> StoreResult<Vec<ServiceAccount>> {
        self.ask(org, |tables| records(&tables.service_accounts, |account| account.name.clone()))
    }

    async fn api_key(&self, org: Id, id: Id) -> StoreResult<Option<Current<ApiKeyRecord>>> {
        self.ask(org, |tables| tables.keys.get(&id).cloned())
    }

    async fn api_keys(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<Vec<Current<ApiKeyRecord>>> {
        let works = |key: &&Current<ApiKeyRecord>| key.record.owner.id == owner && key.record.is_active(at);
        let mut keys: Vec<_> =
            self.ask(org, |tables| tables.keys.values().filter(works).cloned().collect())?;
        keys.sort_by_key(|key: &Current<ApiKeyRecord>| (key.record.created_at, key.record.id));
        Ok(keys)
    }

    async fn api_key_count(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<u64> {
        Ok(self.api_keys(org, owner, at).await?.len() as u64)
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
        self.by_name(org, name.parse().ok().map(Key::Flow), |tables| &tables.flows)
    }

    async fn flows_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Flow>> {
        let flows = self.ask(org, |tables| records(&tables.flows, |flow| flow.name.clone()))?;
        Ok(flows.into_iter().filter(|flow| ids.contains(&flow.id)).collect())
    }

    async fn flows(&self, org: Id, filter: &FlowFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let flows = self.ask(org, |tables| records(&tables.flows, |flow| flow.name.clone()))?;
        let found = Page::of(flows.into_iter().filter(|flow| filter.admits(flow)).collect(), request);
        let listed = |flow: &Flow| Ok(Listed { id: flow.id, bytes: bytes(flow)? });
        Ok(Page { items: found.items.iter().map(listed).collect::<StoreResult<_>>()?, total: found.total })
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
    fn trails_of<'a>(&'a self, ids: &'a [Id]) -> impl Iterator<Item = &'a Current<Trail>> {
        self.trails.values().filter(|trail| ids.contains(&trail.record.id))
    }

    fn contents(&self, Current { revision, record: trail }: &Current<Trail>) -> TrailContents {
        TrailContents {
            trail: trail.clone(),
            revision: *revision,
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
}

#[async_trait]
impl TrailStore for MemoryStore {
    async fn trail(&self, org: Id, flow: Id, name: &str) -> StoreResult<Option<Current<Trail>>> {
        self.ask(org, |tables| {
            let mut trails = tables.trails.values();
            trails.find(|trail| trail.record.flow == flow && trail.record.name.as_str() == name).cloned()
        })
    }

    async fn trails(&self, org: Id, filter: &TrailFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let found = self.ask(org, |tables| {
            let trails = tables.trails_newest_first();
            Page::of(trails.filter(|trail| tables.admits_trail(filter, trail)).collect(), request)
        })?;
        let listed = |trail: &Trail| Ok(Listed { id: trail.id, bytes: bytes(trail)? });
        Ok(Page { items: found.items.iter().map(listed).collect::<StoreResult<_>>()?, total: found.total })
    }

    async fn newest_trails(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<Id>> {
        self.ask(org, |tables| {
            let (mut seen, trails) = (BTreeSet::new(), tables.trails_newest_first());
            let newest = trails.filter(|trail| flows.contains(&trail.flow) && seen.insert(trail.flow));
            newest.map(|trail| trail.id).collect()
        })
    }

    async fn trail_sizes(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<Listed>> {
        let contents = self.trail_contents(org, trails).await?;
        let size = |TrailContents { trail, artifacts, attestations, .. }: &TrailContents| {
            let reports = (artifacts.len() + attestations.len()) as u64;
            Ok(Listed { id: trail.id, bytes: bytes(trail)? + reports * REPORT_BYTES })
        };
        contents.iter().map(size).collect()
    }

    async fn trail_contents(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailContents>> {
        self.ask(org, |tables| tables.trails_of(trails).map(|trail| tables.contents(trail)).collect())
    }

    async fn trail_names(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<(Id, TrailName)>> {
        let name = |trail: &Current<Trail>| (trail.record.id, trail.record.name.clone());
        self.ask(org, |tables| tables.trails_of(trails).map(name).collect())
    }

    async fn trail_size(&self, org: Id, trail: Id, kind: Reported, most: u64) -> StoreResult<u64> {
        self.ask(org, |tables| {
            let count = match kind {
                Reported::Artifacts => tables.artifacts_of(trail).count(),
                Reported::Attestations => tables.attestations_of(trail).count(),
            };
            most.min(count as u64)
        })
    }

    async fn trail_entries(&self, org: Id, trail: Id) -> StoreResult<Vec<TrailEntry>> {
        self.ask(org, |tables| tables.ledger.about_trail(trail))
    }
}

/// The bytes of a record, as other stores keep it.
pub(super) fn bytes(record: &impl Serialize) -> StoreResult<u64> {
    let text = serde_json::to_vec(record).map_err(StoreError::corrupt)?;
    Ok(text.len() as u64)
}

impl ArtifactFilter {
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
        let first = Page::of(found.into_iter().collect(), PageRequest { offset: 0, limit });
        Ok(Matches { count: first.total, first: first.items })
    }

    async fn artifacts(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Artifact>> {
        self.ask(org, |tables| {
            let newest_first = tables.artifacts.iter().rev().map(|artifact| &artifact.record);
            Page::of(newest_first.filter(|artifact| filter.admits(artifact)).cloned().collect(), request)
        })
    }

    async fn artifacts_listed(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Vec<Listed>> {
        let found = self.artifacts(org, filter, request).await?;
        let listed = |artifact: &Artifact| Ok(Listed { id: artifact.id, bytes: bytes(artifact)? });
        found.items.iter().map(listed).collect()
    }

    async fn latest_artifact(&self, org: Id, filter: &ArtifactFilter) -> StoreResult<Option<Artifact>> {
        self.ask(org, |tables| {
            let mut newest_first = tables.artifacts.iter().rev().map(|artifact| &artifact.record);
            newest_first.find(|artifact| filter.admits(artifact)).cloned()
        })
    }

    async fn artifacts_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Artifact>> {
        self.ask(org, |tables| {
            let artifacts = tables.artifacts.iter().map(|artifact| &artifact.record);
            artifacts.filter(|artifact| ids.contains(&artifact.id)).cloned().collect()
        })
    }

    async fn artifact_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>> {
        let listed = |artifact: &Artifact| Ok(Listed { id: artifact.id, bytes: bytes(artifact)? });
        self.artifacts_by_id(org, ids).await?.iter().map(listed).collect()
    }

    async fn reports(&self, org: Id, flow: Id, fingerprint: &Fingerprint) -> StoreResult<Vec<ArtifactRow>> {
        self.ask(org, |tables| {
            let rows = tables.artifacts.iter().map(|artifact| artifact.record.row(artifact.revision));
            rows.filter(|row| row.flow == flow && row.fingerprint == *fingerprint).collect()
        })
    }

    async fn provenance(&self, org: Id, fingerprints: &[Fingerprint]) -> StoreResult<Vec<Origin>> {
        let by_flow: BTreeMap<_, Vec<ArtifactRow>> = self.ask(org, |tables| {
            let rows = tables.artifacts.iter().map(|artifact| artifact.record.row(artifact.revision));
            let mut by_flow: BTreeMap<_, Vec<ArtifactRow>> = BTreeMap::new();
            for row in rows.filter(|row| fingerprints.contains(&row.fingerprint)) {
                by_flow.entry((row.fingerprint.clone(), row.flow)).or_default().push(row);
            }
            by_flow
        })?;
        let origin = |rows: Vec<ArtifactRow>| {
            let named = rows.iter().filter(|row| !row.template_reference_name.is_empty());
            let last = named
                .max_by_key(|row| (row.trail.is_some(), row.index))
                .map(|row| row.template_reference_name.clone());
            let report = rows.into_iter().max_by_key(|row| (row.trail.is_some(), row.index))?;
            Some(Origin { report, last_name: last.unwrap_or_default() })
        };
        let mut origins: Vec<_> = by_flow.into_values().filter_map(origin).collect();
        origins.sort_by_key(|origin| origin.report.index);
        Ok(origins)
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

    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>> {
        self.ask(org, |tables| {
            let attestations = tables.attestations.iter().map(|attestation| &attestation.record);
            attestations.filter(|attestation| ids.contains(&attestation.id)).cloned().collect()
        })
    }

    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<NamedAttestation>> {
        let found: Vec<Current<Attestation>> = self.ask(org, |tables| {
            let newest_first = tables.attestations.iter().rev();
            let named = newest_first.filter(|attestation| attestation.record.name.as_str() == name);
            named.filter(|attestation| trails.contains(&attestation.record.trail)).cloned().collect()
        })?;
        let named = |Current { revision, record }: &Current<Attestation>| {
            Ok(NamedAttestation { row: record.row(*revision), bytes: bytes(record)? })
        };
        found.iter().map(named).collect()
    }
}

impl RepoFilter {
    fn admits(&self, repo: &Repo) -> bool {
        let Repo { info, vcs_instance, namespace_path, tags, .. } = repo;
        self.name.as_ref().is_none_or(|name| *name == *info.name)
            && self.search.as_ref().is_none_or(|part| contains_folded(&info.name, part))
            && self.provider.is_none_or(|provider| info.provider == Some(provider))
            && self.repo_id.as_deref().is_none_or(|id| info.id.as_deref() == Some(id))
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
        self.by_name(org, Some(Key::Repo(identity.to_owned())), |tables| &tables.repos)
    }

    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>> {
        self.ask(org, |tables| tables.repos.get(&id).cloned())
    }

    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>> {
        let mut repos = self.ask(org, |tables| records(&tables.repos, |repo| repo.id))?;
        repos.retain(|repo| filter.admits(repo));
        repos.sort_by(|left, right| filter.order(left, right));
        Ok(Page::of(repos, request))
    }

    async fn repos_listed(
        &self,
        org: Id,
        filter: &RepoFilter,
        request: PageRequest,
    ) -> StoreResult<Vec<Listed>> {
        let found = self.repos(org, filter, request).await?;
        found.items.iter().map(|repo| Ok(Listed { id: repo.id, bytes: bytes(repo)? })).collect()
    }
}

#[async_trait]
impl AttestationTypeStore for MemoryStore {
    async fn attestation_type(&self, org: Id, name: &str) -> StoreResult<Option<Current<AttestationType>>> {
        self.by_name(org, name.parse().ok().map(Key::AttestationType), |tables| &tables.attestation_types)
    }

    async fn attestation_types_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let newest_first = self.ask(org, |tables| {
            let first = tables.attestation_type_versions.iter().filter(|version| version.version == 1);
            let types = first.rev().filter_map(|first| tables.attestation_types.get(&first.attestation_type));
            types.map(|current| current.record.clone()).collect::<Vec<_>>()
        })?;
        newest_first.iter().map(|record| Ok(Listed { id: record.id, bytes: bytes(record)? })).collect()
    }

    async fn attestation_types_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<AttestationType>> {
        self.ask(org, |tables| {
            let types = tables.attestation_types.values().map(|current| &current.record);
            types.filter(|record| ids.contains(&record.id)).cloned().collect()
        })
    }

    async fn attestation_type_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        let listed = |version: &AttestationTypeVersion| {
            Ok(Listed { id: (version.attestation_type, version.version), bytes: bytes(version)? })
        };
        self.attestation_type_versions_by_number(org, versions).await?.iter().map(listed).collect()
    }

    async fn attestation_type_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<AttestationTypeVersion>> {
        self.ask(org, |tables| {
            let all = tables.attestation_type_versions.iter();
            all.filter(|one| versions.contains(&(one.attestation_type, one.version))).cloned().collect()
        })
    }
}

#[async_trait]
impl TextStore for MemoryStore {
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>> {
        let digests: BTreeSet<&Hash> = digests.iter().collect();
        self.ask(org, |tables| {
            digests.into_iter().filter_map(|text| tables.texts.get(text).cloned()).collect()
        })
    }
}
