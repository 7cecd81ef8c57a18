//! The conformance suite bites: a store that breaks any one promise fails it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::allowlists::{Allowance, AllowlistStore};
use evidence_core::artifacts::{Artifact, ArtifactFilter, ArtifactRow, ArtifactStore, Matches, Origin};
use evidence_core::attestation_types::{AttestationType, AttestationTypeStore, AttestationTypeVersion};
use evidence_core::attestations::{Attestation, AttestationStore, NamedAttestation};
use evidence_core::auth::{KeyHash, Role};
use evidence_core::blobs::{Blobs, Chunks};
use evidence_core::conformance::{checks, transfer_checks};
use evidence_core::environments::{EnvironmentStore, KnownEnvironment};
use evidence_core::fact::{EncodedFact, Write};
use evidence_core::feed::{Advance, FeedStore, Lease};
use evidence_core::flows::{Flow, FlowFilter, FlowStore};
use evidence_core::id::Id;
use evidence_core::ledger::{Frontier, Hash, LedgerHashes, Needs};
use evidence_core::memory::MemoryStore;
use evidence_core::name::{Fingerprint, TrailName};
use evidence_core::orgs::{ByName, KeyHolder, Member, OrgRole, OrgStore, Organization, User};
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::policies::{Policy, PolicyStore, PolicyVersion, VersionKey};
use evidence_core::repos::{Repo, RepoFilter, RepoStore};
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount, ServiceAccountStore};
use evidence_core::snapshots::{Run, Snapshot, SnapshotInstance, SnapshotRow, SnapshotStore};
use evidence_core::store::{Health, LedgerStore, Recorder, StoreResult, StoredEntry};
use evidence_core::sweep::{AttachmentState, Pending, PendingStore};
use evidence_core::texts::TextStore;
use evidence_core::time::Timestamp;
use evidence_core::trails::{Reported, Trail, TrailContents, TrailEntry, TrailFilter, TrailStore};
use evidence_core::transfer::{Import, Transfer};
use evidence_core::{Current, Entry, Fact, Guard, Key, RecordKind, StoreError};
use tokio::runtime::Builder;

/// One way to break the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    DropsTheLastFact,
    IgnoresGuards,
    KeepsPartOfARefusedWrite,
    AnswersEntriesBackwards,
    RevisionIsOffByOne,
    LeafHashIsAnother,
    HeadIsEmpty,
    UnknownLedgerHasAHead,
    LosesStoredNodes,
    ShowsOtherOrganizationsFlows,
    SharesBlobs,
    LosesAChunk,
    SearchesMindCase,
    PercentIsAWildcard,
    TotalIsOfTheWindow,
    FlowsAreBackwards,
    OldestTrailFirst,
    OneNewestTrailOnly,
    ForgetsOptions,
    OldestAttestationFirst,
    ForgetsTheOverride,
    CountsOnePastTheLimit,
    RoleIsNeverUpdated,
    MembersAreBackwards,
    ForgetsExits,
    DropsWhatHasNoDigest,
    RunsAreBackwards,
    ForgetsTheFirstRun,
    RepeatsAllowances,
    LooksAtGuardsBeforehand,
    TellsLosersThatTheyWon,
    GuessesIndexes,
    WritesFactsOneByOne,
    LeasesNeverExpire,
    LeasesAreEverybodys,
    LeasesEndAsAskedLast,
    CursorsAreSetByAnybody,
    RemovesWhateverIsNoted,
    NotesWhatIsBeingRemoved,
    RemovesWhatOthersHave,
    WritesImportsAnew,
    ImportsAnywhere,
    KeepsPartOfARefusedImport,
    ListsOrganizationsBackwards,
    ForgetsKeyHashes,
    ShowsOtherOrganizationsAttachments,
    ShowsOtherOrganizationsTexts,
    RepeatsTexts,
    AnswersPagesOfAnySize,
}

/// Each defect, and a check that has to find it where no other promise is about the same.
const DEFECTS: [(Defect, &[&str]); 49] = [
    (Defect::DropsTheLastFact, &[]),
    (Defect::IgnoresGuards, &[]),
    (Defect::KeepsPartOfARefusedWrite, &[]),
    (Defect::AnswersEntriesBackwards, &[]),
    (Defect::RevisionIsOffByOne, &[]),
    (Defect::LeafHashIsAnother, &[]),
    (Defect::HeadIsEmpty, &[]),
    (Defect::UnknownLedgerHasAHead, &[]),
    (Defect::LosesStoredNodes, &[]),
    (Defect::ShowsOtherOrganizationsFlows, &[]),
    (Defect::SharesBlobs, &[]),
    (Defect::LosesAChunk, &[]),
    (Defect::SearchesMindCase, &[]),
    (Defect::PercentIsAWildcard, &[]),
    (Defect::TotalIsOfTheWindow, &[]),
    (Defect::FlowsAreBackwards, &[]),
    (Defect::OldestTrailFirst, &[]),
    (Defect::OneNewestTrailOnly, &[]),
    (Defect::ForgetsOptions, &[]),
    (Defect::OldestAttestationFirst, &[]),
    (Defect::ForgetsTheOverride, &[]),
    (Defect::CountsOnePastTheLimit, &["sizes_are_counted_up_to_a_limit"]),
    (Defect::RoleIsNeverUpdated, &[]),
    (Defect::MembersAreBackwards, &[]),
    (Defect::ForgetsExits, &[]),
    (Defect::DropsWhatHasNoDigest, &["what_has_no_digest_runs_by_its_name"]),
    (Defect::RunsAreBackwards, &[]),
    (Defect::ForgetsTheFirstRun, &["the_first_run_is_shown_with_the_newest"]),
    (Defect::RepeatsAllowances, &[]),
    (Defect::LooksAtGuardsBeforehand, &["one_takes_a_name", "no_update_is_lost"]),
    (Defect::TellsLosersThatTheyWon, &["one_makes_an_organization", "one_makes_a_user"]),
    (Defect::GuessesIndexes, &["ledgers_neither_fork_nor_gap"]),
    (Defect::LeasesNeverExpire, &["a_lease_that_expired_is_taken_over"]),
    (Defect::LeasesAreEverybodys, &["one_holds_a_lease"]),
    (Defect::LeasesEndAsAskedLast, &["a_late_renewal_shortens_nothing"]),
    (
        Defect::CursorsAreSetByAnybody,
        &["a_cursor_goes_on_by_compare_and_swap", "who_lost_the_lease_moves_nothing"],
    ),
    (
        Defect::RemovesWhateverIsNoted,
        &["only_what_is_as_it_was_read_is_removed", "who_keeps_it_again_has_it"],
    ),
    (Defect::NotesWhatIsBeingRemoved, &["what_is_being_removed_is_not_kept"]),
    (Defect::RemovesWhatOthersHave, &["an_organizations_notes_are_its_own"]),
    (Defect::WritesImportsAnew, &["imports_keep_the_leaves"]),
    (Defect::ImportsAnywhere, &["imports_go_on_at_the_end"]),
    (Defect::KeepsPartOfARefusedImport, &["imports_are_whole"]),
    (Defect::ListsOrganizationsBackwards, &["organizations_come_by_id"]),
    (Defect::ForgetsKeyHashes, &["key_hashes_are_answered", "copies_are_equal"]),
    (Defect::ShowsOtherOrganizationsAttachments, &["attachments_come_by_digest"]),
    (Defect::ShowsOtherOrganizationsTexts, &["texts_are_an_organizations_own"]),
    (Defect::AnswersPagesOfAnySize, &["pages_end_after_some_megabytes"]),
    (Defect::RepeatsTexts, &["a_text_that_is_kept_twice_is_one"]),
    (Defect::WritesFactsOneByOne, &["ledgers_neither_fork_nor_gap", "readers_see_whole_writes"]),
];

/// A memory store with at most one defect.
struct Broken {
    whole: MemoryStore,
    defect: Option<Defect>,
}

impl Broken {
    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }
}

/// The names of those checks that fail, one by one as they are asked for.
fn failures(
    defect: Option<Defect>,
    wanted: impl Fn(&str) -> bool + Copy,
) -> impl Iterator<Item = &'static str> {
    let runtime = Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let fresh = move || Arc::new(Broken { whole: MemoryStore::new(), defect });
    let of_stores = checks().into_iter().map(move |check| (check.name, (check.run)(fresh())));
    let of_transfer = transfer_checks().into_iter().map(move |check| (check.name, (check.run)(fresh())));
    let named = of_stores.chain(of_transfer).filter_map(move |(name, running)| {
        let name = name.rsplit("::").next().filter(|name| wanted(name))?;
        Some((name, running))
    });
    named.filter_map(move |(name, running)| runtime.block_on(running).is_err().then_some(name))
}

#[test]
fn a_store_without_defect_passes() {
    assert_eq!(failures(None, |_| true).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn every_defect_is_found() {
    for (defect, named) in DEFECTS {
        let mut failed = failures(Some(defect), |name| named.is_empty() || named.contains(&name));
        if named.is_empty() {
            assert!(failed.next().is_some(), "the suite passes a store that {defect:?}");
        } else {
            assert_eq!(failed.count(), named.len(), "of {named:?} one passes a store that {defect:?}");
        }
    }
}

#[async_trait]
impl Recorder for Broken {
    async fn record(&self, mut write: Write) -> StoreResult<Vec<Entry>> {
        if self.has(Defect::DropsTheLastFact) && write.facts.len() > 1 {
            write.facts.pop();
        }
        if self.has(Defect::IgnoresGuards) {
            write.guards.clear();
        }
        if self.has(Defect::LooksAtGuardsBeforehand) {
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
            let part =
                Write { facts: write.facts.into_iter().take(1).collect(), guards: Vec::new(), ..write };
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
    /// What a transaction does that reads the guards from an older snapshot than it writes to, and leaves names to them.
    async fn record_what_looked_right(&self, mut write: Write) -> StoreResult<Vec<Entry>> {
        for guard in std::mem::take(&mut write.guards) {
            let holds = match guard {
                Guard::Vacant(Key::Flow(name)) => self.whole.flow(write.org, name.as_str()).await?.is_none(),
                Guard::Revision(RecordKind::Flow, id, revision) => {
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
        let Write { org, by, at, facts, mut guards, secrets } = write;
        for fact in facts {
            let (guards, secrets) = (std::mem::take(&mut guards), secrets.clone());
            let part = Write { org, by: by.clone(), at, facts: vec![fact], guards, secrets };
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
                *prepared = EncodedFact::new(prepared.fact.clone(), prepared.at, prepared.actor.clone())
                    .map_err(|error| StoreError::Failed(error.into()))?;
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
impl FeedStore for Broken {
    async fn acquire_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        let now = if self.has(Defect::LeasesNeverExpire) { Timestamp::default() } else { now };
        // Given back and taken again at once: only a holder can do that.
        if self.has(Defect::LeasesEndAsAskedLast) && self.whole.acquire_lease(lease, now).await? {
            self.whole.release_lease(&lease.name, lease.holder).await?;
        }
        Ok(self.whole.acquire_lease(lease, now).await? || self.has(Defect::LeasesAreEverybodys))
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

/// Passes questions on to the whole store; `=> twist` lets the defect at the answer.
macro_rules! delegate {
    ($trait:ident { $(fn $question:ident($($argument:ident: $of:ty),*) -> $answer:ty $(=> $twist:expr)?;)* }) => {
        #[async_trait]
        impl $trait for Broken {
            $(async fn $question(&self, $($argument: $of),*) -> StoreResult<$answer> {
                let answer = self.whole.$question($($argument),*).await?;
                $(let twist: fn(&Self, $answer) -> $answer = $twist; let answer = twist(self, answer);)?
                Ok(answer)
            })*
        }
    };
}

fn backwards<T>(mut list: Vec<T>, really: bool) -> Vec<T> {
    if really {
        list.reverse();
    }
    list
}

delegate! { Health { fn ready() -> (); } }
#[async_trait]
impl LedgerStore for Broken {
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>> {
        Ok(match self.whole.ledger_head(org).await? {
            Some(_) if self.has(Defect::HeadIsEmpty) => Some(Frontier::default()),
            None if self.has(Defect::UnknownLedgerHasAHead) => Some(Frontier::default()),
            head => head,
        })
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
            entries.iter_mut().for_each(|entry| entry.leaf_hash = entry.payload_sha256);
        }
        Ok(entries)
    }

    async fn ledger_entries_at(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<StoredEntry>> {
        self.whole.ledger_entries_at(org, indexes).await
    }

    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<LedgerHashes> {
        let mut known = self.whole.ledger_hashes(org, needs).await?;
        if self.has(Defect::LosesStoredNodes) {
            known.nodes.clear();
        }
        Ok(known)
    }
}
delegate! { OrgStore {
    fn org_role(org: &str, user: Id) -> Option<OrgRole>;
    fn user(name: &str) -> Option<User>;
    fn users_by_name(after: &str, limit: u64) -> ByName<User>;
    fn organizations_by_name(after: &str, limit: u64) -> ByName<Organization>;
    fn members(org: Id) -> Vec<Current<Member>> => |store, members| {
        backwards(members, store.has(Defect::MembersAreBackwards))
    };
    fn key_holder(hash: &KeyHash) -> Option<KeyHolder> => |store, mut holder| {
        if store.has(Defect::RoleIsNeverUpdated) && let Some(holder) = &mut holder {
            holder.bound_to = holder.bound_to.map(|(org, _)| (org, Role::Reader));
        }
        holder
    };
} }
delegate! { ServiceAccountStore {
    fn service_account(org: Id, name: &str) -> Option<Current<ServiceAccount>>;
    fn service_accounts(org: Id) -> Vec<ServiceAccount>;
    fn api_key(org: Id, id: Id) -> Option<Current<ApiKeyRecord>>;
    fn api_keys(org: Id, owner: Id, at: Timestamp) -> Vec<Current<ApiKeyRecord>>;
    fn api_key_count(org: Id, owner: Id, at: Timestamp) -> u64;
} }
delegate! { TrailStore {
    fn trail(org: Id, flow: Id, name: &str) -> Option<Current<Trail>>;
    fn trails(org: Id, filter: &TrailFilter, request: PageRequest) -> Page<Listed> => |store, slice| {
        Page { items: backwards(slice.items, store.has(Defect::OldestTrailFirst)), ..slice }
    };
    fn newest_trails(org: Id, flows: &[Id]) -> Vec<Id> => |store, mut trails| {
        if store.has(Defect::OneNewestTrailOnly) {
            trails.truncate(1);
        }
        trails
    };
    fn trail_names(org: Id, trails: &[Id]) -> Vec<(Id, TrailName)>;
    fn trail_contents(org: Id, trails: &[Id]) -> Vec<TrailContents> => |store, mut contents| {
        if store.has(Defect::ForgetsTheOverride) {
            let rows = contents.iter_mut().flat_map(|contents| &mut contents.attestations);
            rows.for_each(|row| row.is_override = false);
        }
        contents
    };
    fn trail_sizes(org: Id, trails: &[Id]) -> Vec<Listed>;
    fn trail_size(org: Id, trail: Id, kind: Reported, most: u64) -> u64 => |store, size| {
        size + u64::from(store.has(Defect::CountsOnePastTheLimit) && size > 0)
    };
    fn trail_entries(org: Id, trail: Id) -> Vec<TrailEntry>;
} }
delegate! { ArtifactStore {
    fn fingerprints(org: Id, flow: Id, prefix: &str, limit: u64) -> Matches;
    fn artifacts(org: Id, filter: &ArtifactFilter, request: PageRequest) -> Page<Artifact>;
    fn artifacts_listed(org: Id, filter: &ArtifactFilter, request: PageRequest) -> Vec<Listed>;
    fn latest_artifact(org: Id, filter: &ArtifactFilter) -> Option<Artifact>;
    fn artifacts_by_id(org: Id, ids: &[Id]) -> Vec<Artifact>;
    fn artifact_sizes(org: Id, ids: &[Id]) -> Vec<Listed>;
    fn reports(org: Id, flow: Id, fingerprint: &Fingerprint) -> Vec<ArtifactRow>;
    fn provenance(org: Id, fingerprints: &[Fingerprint]) -> Vec<Origin>;
} }
delegate! { AttestationStore {
    fn attestation(org: Id, id: Id) -> Option<Attestation> => |store, mut attestation| {
        if store.has(Defect::ForgetsOptions) && let Some(attestation) = &mut attestation {
            attestation.annotations = None;
        }
        attestation
    };
    fn attestations_by_id(org: Id, ids: &[Id]) -> Vec<Attestation>;
    fn attestations(org: Id, trails: &[Id], name: &str) -> Vec<NamedAttestation> => |store, attestations| {
        backwards(attestations, store.has(Defect::OldestAttestationFirst))
    };
} }
delegate! { RepoStore {
    fn repo_by_identity(org: Id, identity: &str) -> Option<Current<Repo>>;
    fn repo(org: Id, id: Id) -> Option<Current<Repo>>;
    fn repos(org: Id, filter: &RepoFilter, request: PageRequest) -> Page<Repo>;
    fn repos_listed(org: Id, filter: &RepoFilter, request: PageRequest) -> Vec<Listed>;
} }
delegate! { EnvironmentStore {
    fn environment(org: Id, name: &str) -> Option<KnownEnvironment>;
    fn environments(org: Id) -> Vec<KnownEnvironment>;
    fn environments_listed(org: Id) -> Vec<Listed>;
    fn environments_by_id(org: Id, ids: &[Id]) -> Vec<KnownEnvironment>;
} }
delegate! { SnapshotStore {
    fn snapshot(org: Id, environment: Id, index: u64) -> Option<Current<Snapshot>>;
    fn snapshots(org: Id, environment: Id, range: RangeInclusive<u64>) -> Vec<SnapshotRow>;
    fn snapshot_at(org: Id, environment: Id, at: Timestamp) -> u64;
    fn instances(org: Id, environment: Id, index: u64) -> Vec<SnapshotInstance> => |store, mut placed| {
        placed.retain(|placed| !(store.has(Defect::ForgetsExits) && placed.exited));
        placed.retain(|placed| !store.has(Defect::DropsWhatHasNoDigest) || placed.instance.fingerprint.is_some());
        placed
    };
    fn runs(org: Id, fingerprints: &[Fingerprint], newest: u32) -> Vec<Run> => |store, runs| {
        let place = |run: &Run| (run.environment, run.fingerprint.clone());
        let runs = match store.has(Defect::ForgetsTheFirstRun) {
            true => runs.chunk_by(|left, right| place(left) == place(right)).flat_map(|of| &of[1..]).cloned().collect(),
            false => runs,
        };
        backwards(runs, store.has(Defect::RunsAreBackwards))
    };
} }
delegate! { PolicyStore {
    fn policy(org: Id, name: &str) -> Option<Current<Policy>>;
    fn policies_listed(org: Id) -> Vec<Listed>;
    fn policies_by_id(org: Id, ids: &[Id]) -> Vec<Current<Policy>>;
    fn policy_version_sizes(org: Id, versions: &[VersionKey]) -> Vec<Listed<VersionKey>>;
    fn policy_versions_by_number(org: Id, versions: &[VersionKey]) -> Vec<PolicyVersion>;
} }
delegate! { AllowlistStore {
    fn allowances_listed(org: Id) -> Vec<Listed<u64>> => |store, listed| {
        if store.has(Defect::RepeatsAllowances) { [listed.clone(), listed].concat() } else { listed }
    };
    fn allowances(org: Id, indexes: &[u64]) -> Vec<Allowance>;
    fn allowed(org: Id, environment: Id, fingerprints: &[Fingerprint]) -> Vec<Fingerprint>;
    fn allowlist_size(org: Id, environment: Id, most: u64) -> u64;
} }
#[async_trait]
impl TextStore for Broken {
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>> {
        let org = if self.has(Defect::ShowsOtherOrganizationsTexts) { common() } else { org };
        let texts = self.whole.texts(org, digests).await?;
        Ok(if self.has(Defect::RepeatsTexts) { [texts.clone(), texts].concat() } else { texts })
    }
}

delegate! { AttestationTypeStore {
    fn attestation_type(org: Id, name: &str) -> Option<Current<AttestationType>>;
    fn attestation_types_listed(org: Id) -> Vec<Listed>;
    fn attestation_types_by_id(org: Id, ids: &[Id]) -> Vec<AttestationType>;
    fn attestation_type_version_sizes(org: Id, versions: &[VersionKey]) -> Vec<Listed<VersionKey>>;
    fn attestation_type_versions_by_number(org: Id, versions: &[VersionKey]) -> Vec<AttestationTypeVersion>;
} }
