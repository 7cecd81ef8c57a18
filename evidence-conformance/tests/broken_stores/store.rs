//! The store of the tests: a memory store, and what each defect changes of it. A query that no defect changes is passed
//! on by a line like its neighbours.

mod actions;
mod artifacts;
mod attestations;
mod repos;
mod snapshots;
mod trails;

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::allowlists::{AllowedArtifact, AllowlistEntry, AllowlistStore, EndedAllowlistEntry};
use evidence_core::attestation_types::{AttestationType, AttestationTypeStore, AttestationTypeVersion};
use evidence_core::auth::{KeyHash, Role};
use evidence_core::blobs::{Blobs, Chunks};
use evidence_core::checkpoints::CheckpointStore;
use evidence_core::controls::{Control, ControlFilter, ControlStore, ControlVersion};
use evidence_core::environments::{EnvironmentStore, KnownEnvironment, MemberChange};
use evidence_core::fact::{EncodedFact, Write};
use evidence_core::flows::{Flow, FlowFilter, FlowStore};
use evidence_core::id::Id;
use evidence_core::leases::{Advance, Lease, LeaseStore};
use evidence_core::ledger::{Frontier, Hash, LedgerHashes, Needs};
use evidence_core::name::Fingerprint;
use evidence_core::orgs::{ByName, KeyHolder, Member, OrgRole, OrgStore, Organization, User, UserSettings};
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::policies::{Policy, PolicyStore, PolicyVersion, VersionKey};
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount, ServiceAccountStore};
use evidence_core::store::{Health, Leaf, LedgerStore, Recorder, StoreResult, StoredEntry};
use evidence_core::sweep::{AttachmentPlace, AttachmentState, Pending, PendingStore};
use evidence_core::tags::{TagChoice, TagStore, TaggedKind};
use evidence_core::texts::TextStore;
use evidence_core::time::Timestamp;
use evidence_core::transfer::{Import, Transfer};
use evidence_core::{Current, Entry, Fact, Key, Precondition, RecordKind, StoreError};

use crate::{Broken, Defect};

#[async_trait]
impl Recorder for Broken {
    async fn record(&self, mut write: Write) -> StoreResult<Vec<Entry>> {
        if self.has(Defect::DropsTheLastFact) && write.facts.len() > 1 {
            write.facts.pop();
        }
        if self.has(Defect::IgnoresPreconditions) {
            write.preconditions.clear();
        }
        if self.has(Defect::ChecksPreconditionsBeforehand) {
            return self.record_what_looked_right(write).await;
        }
        if self.has(Defect::WritesFactsOneByOne) {
            return self.record_one_by_one(write).await;
        }
        let guessed = self.whole.ledger_head(write.org).await?.map(|head| head.size()).unwrap_or_default();
        if self.has(Defect::GuessesIndexes) {
            tokio::task::yield_now().await;
        }
        let answer = self.whole.record(write.clone()).await;
        if answer.is_err() && self.has(Defect::KeepsPartOfARefusedWrite) {
            let part = Write {
                facts: write.facts.into_iter().take(1).collect(),
                preconditions: Vec::new(),
                ..write
            };
            self.whole.record(part).await?;
        } else if answer.is_err() && self.has(Defect::TellsLosersThatTheyWon) {
            return Ok(Vec::new());
        }
        answer.map(|mut entries| {
            if self.has(Defect::AnswersEntriesBackwards) {
                entries.reverse();
            }
            if self.has(Defect::GuessesIndexes) {
                (guessed..).zip(&mut entries).for_each(|(index, entry)| entry.index = index);
            }
            entries
        })
    }
}

impl Broken {
    /// Records as a transaction does that reads the preconditions from an older snapshot than it writes to.
    async fn record_what_looked_right(&self, mut write: Write) -> StoreResult<Vec<Entry>> {
        for precondition in std::mem::take(&mut write.preconditions) {
            let holds = match precondition {
                Precondition::Vacant(Key::Flow(name)) => {
                    self.whole.flow(write.org, name.as_str()).await?.is_none()
                }
                Precondition::Revision(RecordKind::Flow, id, revision) => {
                    let mut names =
                        self.whole.flows_by_id(write.org, &[id]).await?.into_iter().map(|flow| flow.name);
                    let Some(name) = names.next_back() else { return Err(StoreError::Conflict) };
                    let found = self.whole.flow(write.org, name.as_str()).await?;
                    found.is_some_and(|flow| flow.revision == revision)
                }
                _ => continue,
            };
            if !holds {
                return Err(StoreError::Conflict);
            }
        }
        tokio::task::yield_now().await;
        match self.whole.record(write.clone()).await {
            Err(StoreError::Conflict) => {
                self.whole.record(Write { facts: updates(write.facts), ..write }).await
            }
            answer => answer,
        }
    }

    async fn record_one_by_one(&self, write: Write) -> StoreResult<Vec<Entry>> {
        let mut entries = Vec::new();
        let Write { org, by, at, facts, mut preconditions, secrets, salts } = write;
        for fact in facts {
            let (preconditions, secrets) = (std::mem::take(&mut preconditions), secrets.clone());
            let part = Write { org, by: by.clone(), at, facts: vec![fact], preconditions, secrets, salts };
            entries.extend(self.whole.record(part).await?);
            tokio::task::yield_now().await;
        }
        Ok(entries)
    }
}

/// Flows that are created, as if they were known already.
fn updates(facts: Vec<Fact>) -> Vec<Fact> {
    let update = |fact| match fact {
        Fact::FlowCreated { record } => Fact::FlowUpdated { record },
        fact => fact,
    };
    facts.into_iter().map(update).collect()
}

#[async_trait]
impl Transfer for Broken {
    async fn organizations(&self, after: Option<Id>, limit: u64) -> StoreResult<Vec<Organization>> {
        let page = self.whole.organizations(after, limit).await?;
        Ok(backwards(page, self.has(Defect::ListsOrganizationsBackwards) && after.is_none()))
    }

    async fn key_hashes(&self, org: Id, keys: &[Id]) -> StoreResult<Vec<(Id, KeyHash)>> {
        let mut hashes = self.whole.key_hashes(org, keys).await?;
        if self.has(Defect::ForgetsKeyHashes) {
            hashes.clear();
        }
        Ok(hashes)
    }

    async fn attachments(
        &self,
        org: Id,
        after: Option<&Fingerprint>,
        limit: u64,
    ) -> StoreResult<Vec<Fingerprint>> {
        let org = if self.has(Defect::ShowsOtherOrganizationsAttachments) { common() } else { org };
        self.whole.attachments(org, after, limit).await
    }

    async fn import(&self, mut import: Import) -> StoreResult<()> {
        if self.has(Defect::WritesImportsAnew) {
            for prepared in &mut import.facts {
                let EncodedFact { fact, at, actor, salt, .. } = prepared.clone();
                let payload =
                    serde_json::to_string(&fact).map_err(|error| StoreError::Failed(error.into()))?;
                *prepared = EncodedFact::of_payload(fact, at, actor, payload, salt);
            }
        }
        if self.has(Defect::ImportsAnywhere)
            && let Some(head) = self.whole.ledger_head(import.org).await?
        {
            import.first = head.size();
        }
        let answer = self.whole.import(import.clone()).await;
        if answer.is_err() && self.has(Defect::KeepsPartOfARefusedImport) {
            import.facts.truncate(1);
            self.whole.import(import).await?;
        }
        answer
    }
}

/// The id that all organizations share in a store that does not tell them apart.
fn common() -> Id {
    "00000000-0000-0000-0000-00000001".parse().unwrap()
}

#[async_trait]
impl Blobs for Broken {
    async fn put(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        let org = if self.has(Defect::SharesBlobs) { common() } else { org };
        self.whole.put(org, sha256, content).await
    }

    async fn get_chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
        if self.has(Defect::LosesAChunk) && number == 1 {
            return Ok(None);
        }
        let org = if self.has(Defect::SharesBlobs) { common() } else { org };
        self.whole.get_chunk(org, sha256, number).await
    }
}

#[async_trait]
impl CheckpointStore for Broken {
    async fn signed_checkpoint(&self, org: Id) -> StoreResult<Option<String>> {
        self.whole.signed_checkpoint(org).await
    }

    async fn has_signed_checkpoints(&self) -> StoreResult<bool> {
        self.whole.has_signed_checkpoints().await
    }

    async fn replace_signed_checkpoint(
        &self,
        org: Id,
        old: Option<&str>,
        new: Option<&str>,
    ) -> StoreResult<bool> {
        let stored = self.whole.signed_checkpoint(org).await?;
        let old = if self.has(Defect::CheckpointsAreReplacedByAnybody) { stored.as_deref() } else { old };
        self.whole.replace_signed_checkpoint(org, old, new).await
    }
}

#[async_trait]
impl LeaseStore for Broken {
    async fn acquire_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        let now = if self.has(Defect::LeasesNeverExpire) { Timestamp::default() } else { now };
        // Given back and taken again at once: only a holder can do that.
        if self.has(Defect::LeasesEndAsAskedLast) && self.whole.acquire_lease(lease, now).await? {
            self.whole.release_lease(&lease.name, lease.holder).await?;
        }
        Ok(self.whole.acquire_lease(lease, now).await? || self.has(Defect::LeasesAreEverybodys))
    }

    async fn renew_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        if self.has(Defect::RenewsLostLeases) {
            return self.whole.acquire_lease(lease, now).await;
        }
        self.whole.renew_lease(lease, now).await
    }

    async fn release_lease(&self, name: &str, holder: Id) -> StoreResult<()> {
        self.whole.release_lease(name, holder).await
    }

    async fn cursor(&self, consumer: &str, org: Id) -> StoreResult<u64> {
        self.whole.cursor(consumer, org).await
    }

    async fn advance_cursor(&self, advance: &Advance, now: Timestamp) -> StoreResult<bool> {
        let moved = self.whole.advance_cursor(advance, now).await?;
        Ok(moved || self.has(Defect::CursorsAreSetByAnybody))
    }
}

#[async_trait]
impl PendingStore for Broken {
    async fn attachment_state(&self, org: Id, sha256: &Fingerprint) -> StoreResult<AttachmentState> {
        self.whole.attachment_state(org, sha256).await
    }

    async fn put_pending(&self, org: Id, sha256: &Fingerprint, at: Timestamp) -> StoreResult<bool> {
        Ok(self.whole.put_pending(org, sha256, at).await? || self.has(Defect::NotesWhatIsBeingRemoved))
    }

    async fn pending(&self, after: Option<&Pending>, limit: u64) -> StoreResult<Vec<Pending>> {
        self.whole.pending(after, limit).await
    }

    async fn begin_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool> {
        self.whole.begin_removal(pending, at).await
    }

    async fn abandon_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool> {
        self.whole.abandon_removal(pending, at).await
    }

    async fn end_removal(&self, pending: &Pending) -> StoreResult<bool> {
        let mut notes = self.whole.pending(None, u64::MAX).await?;
        notes.retain(|note| note.sha256 == pending.sha256);
        if self.has(Defect::RemovesWhateverIsNoted) {
            notes.retain(|note| note.org == pending.org);
        } else if !self.has(Defect::RemovesWhatOthersHave) {
            notes = vec![pending.clone()];
        }
        let mut removed = false;
        for note in notes {
            removed |= self.whole.end_removal(&note).await?;
        }
        Ok(removed)
    }

    async fn attachment_place(&self) -> StoreResult<Option<AttachmentPlace>> {
        self.whole.attachment_place().await
    }

    async fn named_attachments(&self, limit: u64) -> StoreResult<Vec<(Id, Fingerprint)>> {
        let named = self.whole.named_attachments(limit).await?;
        Ok(if self.has(Defect::NamesNoAttachment) { Vec::new() } else { named })
    }

    async fn put_attachment_place(&self, place: AttachmentPlace) -> StoreResult<bool> {
        let noted = self.whole.put_attachment_place(place).await?;
        Ok(noted || self.has(Defect::NotesAnotherPlace))
    }
}

#[async_trait]
impl FlowStore for Broken {
    async fn flow(&self, org: Id, name: &str) -> StoreResult<Option<Current<Flow>>> {
        let mut answer = self.whole.flow(org, name).await?;
        if answer.is_none() && self.has(Defect::ShowsOtherOrganizationsFlows) {
            answer = self.whole.flow(common(), name).await?;
        }
        let more = u64::from(self.has(Defect::RevisionIsOffByOne));
        Ok(answer.map(|flow| Current { revision: flow.revision + more, ..flow }))
    }

    async fn flows_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Flow>> {
        self.whole.flows_by_id(org, ids).await
    }

    async fn flow_repo_urls(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<(Id, String)>> {
        self.whole.flow_repo_urls(org, flows).await
    }

    async fn flows(&self, org: Id, filter: &FlowFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let mut filter = filter.clone();
        if self.has(Defect::SearchesMindCase) {
            filter.ignore_case = false;
        }
        if self.has(Defect::PercentIsAWildcard) {
            filter.name = filter.name.and_then(|name| name.split('%').next().map(ToOwned::to_owned));
        }
        let mut answer = self.whole.flows(org, &filter, request).await?;
        if self.has(Defect::FlowsAreBackwards) {
            answer.items.reverse();
        }
        if self.has(Defect::TotalIsOfTheWindow) {
            answer.total = answer.items.len() as u64;
        }
        Ok(answer)
    }
}

fn backwards<T>(mut list: Vec<T>, really: bool) -> Vec<T> {
    if really {
        list.reverse();
    }
    list
}

#[async_trait]
impl Health for Broken {
    async fn ready(&self) -> StoreResult<()> {
        self.whole.ready().await
    }

    async fn check_clock(&self, now: Timestamp) -> StoreResult<()> {
        self.whole.check_clock(now).await
    }

    async fn newest_entry(&self) -> StoreResult<Option<Timestamp>> {
        self.whole.newest_entry().await
    }
}

#[async_trait]
impl LedgerStore for Broken {
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>> {
        Ok(match self.whole.ledger_head(org).await? {
            Some(_) if self.has(Defect::HeadIsEmpty) => Some(Frontier::default()),
            None if self.has(Defect::UnknownLedgerHasAHead) => Some(Frontier::default()),
            head => head,
        })
    }

    async fn ledger_sizes(&self, orgs: &[Id]) -> StoreResult<Vec<(Id, u64)>> {
        self.whole.ledger_sizes(orgs).await
    }

    async fn ledger_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        let mut entries = self.whole.ledger_entries(org, first, limit).await?;
        while self.has(Defect::AnswersPagesOfAnySize) && !entries.is_empty() {
            let (next, room) = (first + entries.len() as u64, limit - entries.len() as u64);
            let more = self.whole.ledger_entries(org, next, room).await?;
            if more.is_empty() {
                break;
            }
            entries.extend(more);
        }
        if self.has(Defect::LeafHashIsAnother) {
            entries.iter_mut().for_each(|entry| entry.leaf_hash = entry.payload_hash);
        }
        Ok(entries)
    }

    async fn ledger_times(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<(u64, Timestamp)>> {
        let mut times = self.whole.ledger_times(org, indexes).await?;
        if self.has(Defect::EntriesAreOfOneTime) {
            let first = times.iter().map(|(_, at)| *at).min();
            times.iter_mut().for_each(|(_, at)| *at = first.unwrap_or(*at));
        }
        Ok(times)
    }

    async fn ledger_size_at(&self, org: Id, at: Timestamp) -> StoreResult<u64> {
        let size = self.whole.ledger_size_at(org, at).await?;
        Ok(if self.has(Defect::LedgersEndEarly) { size.saturating_sub(1) } else { size })
    }

    async fn ledger_leaves(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<Leaf>> {
        let mut leaves = self.whole.ledger_leaves(org, first, limit).await?;
        if self.has(Defect::LeavesAreOfOneSize) {
            leaves.iter_mut().for_each(|leaf| leaf.bytes = 100);
        }
        Ok(leaves)
    }

    async fn ledger_entries_at(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<StoredEntry>> {
        self.whole.ledger_entries_at(org, indexes).await
    }

    async fn record_entry(&self, org: Id, record: Id) -> StoreResult<Option<u64>> {
        let entry = self.whole.record_entry(org, record).await?;
        Ok(if self.has(Defect::RecordsAreEverybodys) { entry.or(Some(0)) } else { entry })
    }

    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<LedgerHashes> {
        let mut known = self.whole.ledger_hashes(org, needs).await?;
        if self.has(Defect::LosesStoredNodes) {
            known.nodes.clear();
        }
        Ok(known)
    }
}

#[async_trait]
impl OrgStore for Broken {
    async fn org_role(&self, org: &str, user: Id) -> StoreResult<Option<OrgRole>> {
        self.whole.org_role(org, user).await
    }

    async fn user(&self, name: &str) -> StoreResult<Option<User>> {
        self.whole.user(name).await
    }

    async fn users_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<User>> {
        self.whole.users_by_name(after, limit).await
    }

    async fn organizations_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<Organization>> {
        self.whole.organizations_by_name(after, limit).await
    }

    async fn members(&self, org: Id) -> StoreResult<Vec<Current<Member>>> {
        let members = self.whole.members(org).await?;
        Ok(backwards(members, self.has(Defect::MembersAreBackwards)))
    }

    async fn users_by_id(&self, ids: &[Id]) -> StoreResult<Vec<User>> {
        self.whole.users_by_id(ids).await
    }

    async fn membership_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        self.whole.membership_entries(org, first, limit).await
    }

    async fn membership_page(
        &self,
        org: Id,
        direction: SortDirection,
        request: PageRequest,
    ) -> StoreResult<Page<StoredEntry>> {
        let direction = match self.has(Defect::ChangesOfRolesAreOldestFirst) {
            true => SortDirection::Asc,
            false => direction,
        };
        let request = if self.has(Defect::ChangesOfRolesAreOnePage) { PageRequest::ALL } else { request };
        self.whole.membership_page(org, direction, request).await
    }

    async fn user_settings(&self, org: Id, user: Id) -> StoreResult<Option<Current<UserSettings>>> {
        self.whole.user_settings(org, user).await
    }

    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>> {
        let mut holder = self.whole.key_holder(hash).await?;
        if self.has(Defect::RoleIsNeverUpdated)
            && let Some(holder) = &mut holder
        {
            holder.bound_to = holder.bound_to.map(|(org, _)| (org, Role::Reader));
        }
        Ok(holder)
    }
}

#[async_trait]
impl ServiceAccountStore for Broken {
    async fn service_account(&self, org: Id, name: &str) -> StoreResult<Option<Current<ServiceAccount>>> {
        self.whole.service_account(org, name).await
    }

    async fn service_accounts(&self, org: Id) -> StoreResult<Vec<ServiceAccount>> {
        self.whole.service_accounts(org).await
    }

    async fn api_key(&self, org: Id, id: Id) -> StoreResult<Option<Current<ApiKeyRecord>>> {
        self.whole.api_key(org, id).await
    }

    async fn api_keys(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<Vec<Current<ApiKeyRecord>>> {
        self.whole.api_keys(org, owner, at).await
    }

    async fn api_key_count(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<u64> {
        self.whole.api_key_count(org, owner, at).await
    }
}

#[async_trait]
impl EnvironmentStore for Broken {
    async fn logical_environments(&self, org: Id, members: &[Id]) -> StoreResult<Vec<Id>> {
        self.whole.logical_environments(org, members).await
    }

    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<KnownEnvironment>> {
        self.whole.environment(org, name).await
    }

    async fn archived_environment(&self, org: Id, name: &str) -> StoreResult<bool> {
        self.whole.archived_environment(org, name).await
    }
    async fn environments(&self, org: Id) -> StoreResult<Vec<KnownEnvironment>> {
        self.whole.environments(org).await
    }

    async fn environments_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        self.whole.environments_listed(org).await
    }

    async fn member_changes(&self, org: Id, environment: Id) -> StoreResult<Vec<MemberChange>> {
        let mut changes = self.whole.member_changes(org, environment).await?;
        changes.retain(|change| change.joined || !self.has(Defect::TellsNobodyLeft));
        Ok(changes)
    }

    async fn environments_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<KnownEnvironment>> {
        self.whole.environments_by_id(org, ids).await
    }
}

#[async_trait]
impl PolicyStore for Broken {
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>> {
        self.whole.policy(org, name).await
    }

    async fn policies_named(&self, org: Id, names: &[&str]) -> StoreResult<Vec<Current<Policy>>> {
        let first = names.get(..1).unwrap_or(names);
        let names = if self.has(Defect::KnowsOnePolicyOfAList) { first } else { names };
        self.whole.policies_named(org, names).await
    }

    async fn policies_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        self.whole.policies_listed(org).await
    }

    async fn policies_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Policy>>> {
        self.whole.policies_by_id(org, ids).await
    }

    async fn policy_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        self.whole.policy_version_sizes(org, versions).await
    }

    async fn policy_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<PolicyVersion>> {
        self.whole.policy_versions_by_number(org, versions).await
    }
}

#[async_trait]
impl AllowlistStore for Broken {
    async fn allowlist_entries_listed(
        &self,
        org: Id,
        in_force_at: Option<Timestamp>,
    ) -> StoreResult<Vec<Listed<u64>>> {
        let in_force_at = in_force_at.filter(|_| !self.has(Defect::ListsEndedAllowlistEntries));
        let listed = self.whole.allowlist_entries_listed(org, in_force_at).await?;
        Ok(if self.has(Defect::RepeatsAllowlistEntries) { [listed.clone(), listed].concat() } else { listed })
    }

    async fn allowlist_entries(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<AllowlistEntry>> {
        self.whole.allowlist_entries(org, indexes).await
    }

    async fn allowed(
        &self,
        org: Id,
        environment: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
        at: Timestamp,
    ) -> StoreResult<Vec<AllowedArtifact>> {
        let newest = self.has(Defect::AllowsByTheNewestEntry);
        let within = if newest { u64::MAX } else { entries };
        let at =
            if self.has(Defect::AllowlistEntriesNeverExpire) { Timestamp::from_micros(i64::MIN) } else { at };
        let mut allowed = self.whole.allowed(org, environment, fingerprints, within, at).await?;
        allowed.retain(|one| one.entry < entries);
        let first = allowed.iter().map(|one| one.entry).min().unwrap_or_default();
        if self.has(Defect::AllowsSinceTheFirst) {
            allowed.iter_mut().for_each(|one| one.entry = first);
        }
        Ok(allowed)
    }

    async fn allowlist_entry_count(
        &self,
        org: Id,
        environment: Id,
        at: Timestamp,
        most: u64,
    ) -> StoreResult<u64> {
        self.whole.allowlist_entry_count(org, environment, at, most).await
    }

    async fn ended_allowlist_entries(
        &self,
        after: Timestamp,
        until: Timestamp,
        limit: u64,
    ) -> StoreResult<Vec<EndedAllowlistEntry>> {
        let mut ended = self.whole.ended_allowlist_entries(after, until, limit).await?;
        if self.has(Defect::CutsEndedAllowlistEntriesAtTheLimit) {
            ended.truncate(usize::try_from(limit).unwrap());
        }
        Ok(ended)
    }
}

#[async_trait]
impl TagStore for Broken {
    async fn tag_choices(
        &self,
        org: Id,
        kind: TaggedKind,
        after: Option<&TagChoice>,
        limit: u64,
    ) -> StoreResult<Vec<TagChoice>> {
        self.whole.tag_choices(org, kind, after, limit).await
    }
}

#[async_trait]
impl TextStore for Broken {
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>> {
        let org = if self.has(Defect::ShowsOtherOrganizationsTexts) { common() } else { org };
        let texts = self.whole.texts(org, digests).await?;
        Ok(if self.has(Defect::RepeatsTexts) { [texts.clone(), texts].concat() } else { texts })
    }
}

#[async_trait]
impl AttestationTypeStore for Broken {
    async fn attestation_type(&self, org: Id, name: &str) -> StoreResult<Option<Current<AttestationType>>> {
        self.whole.attestation_type(org, name).await
    }

    async fn attestation_types_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        self.whole.attestation_types_listed(org).await
    }

    async fn attestation_types_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<AttestationType>> {
        self.whole.attestation_types_by_id(org, ids).await
    }

    async fn attestation_type_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        self.whole.attestation_type_version_sizes(org, versions).await
    }

    async fn attestation_type_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<AttestationTypeVersion>> {
        self.whole.attestation_type_versions_by_number(org, versions).await
    }
}

#[async_trait]
impl ControlStore for Broken {
    async fn control(&self, org: Id, identifier: &str) -> StoreResult<Option<Current<Control>>> {
        self.whole.control(org, identifier).await
    }

    async fn controls_named(&self, org: Id, identifiers: &[&str]) -> StoreResult<Vec<String>> {
        let mut named = self.whole.controls_named(org, identifiers).await?;
        if self.has(Defect::ForgetsArchivedControls) {
            let mut current = Vec::new();
            for identifier in named {
                let control = self.whole.control(org, &identifier).await?;
                current.extend(control.filter(|control| !control.record.archived).map(|_| identifier));
            }
            named = current;
        }
        Ok(named)
    }

    async fn controls(
        &self,
        org: Id,
        filter: &ControlFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>> {
        self.whole.controls(org, filter, request).await
    }

    async fn controls_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Control>> {
        self.whole.controls_by_id(org, ids).await
    }

    async fn control_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        self.whole.control_version_sizes(org, versions).await
    }

    async fn control_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<ControlVersion>> {
        self.whole.control_versions_by_number(org, versions).await
    }
}
