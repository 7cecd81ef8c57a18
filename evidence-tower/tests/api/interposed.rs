//! A store in which something happens before each question and each write: what it takes to have requests meet.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::allowlists::{Allowance, AllowlistStore};
use evidence_core::artifacts::{Artifact, ArtifactFilter, ArtifactRow, ArtifactStore, Matches, Origin};
use evidence_core::attestation_types::{AttestationType, AttestationTypeStore, AttestationTypeVersion};
use evidence_core::attestations::{Attestation, AttestationStore, NamedAttestation};
use evidence_core::auth::KeyHash;
use evidence_core::blobs::{Blobs, Chunks};
use evidence_core::environments::{EnvironmentStore, KnownEnvironment};
use evidence_core::feed::{Advance, FeedStore, Lease};
use evidence_core::flows::{Flow, FlowFilter, FlowStore};
use evidence_core::id::Id;
use evidence_core::ledger::{Frontier, Hash, LedgerHashes, Needs};
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
use evidence_core::{Current, Entry, Guard, RecordKind, Store, StoreError, Write};
use futures_util::future::BoxFuture;

/// What a store is called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// The question of this name.
    Question(&'static str),
    /// A question for so many texts.
    Texts(usize),
    Write,
}

/// The questions that were asked, and about how many bytes each was answered with.
pub(crate) type Answered = Arc<Mutex<Vec<(&'static str, usize)>>>;

/// The questions that were answered since this was last asked.
pub(crate) fn questions(answered: &Answered) -> Vec<&'static str> {
    std::mem::take(&mut *answered.lock().unwrap()).into_iter().map(|(question, _)| question).collect()
}

/// How often each of these questions was answered since this was last asked.
pub(crate) fn counts<const MANY: usize>(answered: &Answered, of: [&str; MANY]) -> [usize; MANY] {
    let questions = questions(answered);
    of.map(|name| questions.iter().filter(|question| **question == name).count())
}

/// A store that waits for `before` with each call.
pub(crate) struct Interposed {
    whole: Arc<dyn Store>,
    before: Box<dyn Fn(Call) -> BoxFuture<'static, ()> + Send + Sync>,
    unguarded: Option<RecordKind>,
    refuses: Arc<AtomicBool>,
    answered: Option<Answered>,
}

impl Interposed {
    pub(crate) fn new(
        whole: Arc<dyn Store>,
        before: impl Fn(Call) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        Self { whole, before: Box::new(before), unguarded: None, refuses: Arc::default(), answered: None }
    }

    /// The same that takes no writes while it is told to refuse them.
    pub(crate) fn refusing(self, refuses: Arc<AtomicBool>) -> Self {
        Self { refuses, ..self }
    }

    /// A store that notes how large its answers are.
    pub(crate) fn measured(whole: Arc<dyn Store>) -> (Self, Answered) {
        let answered = Answered::default();
        let store = Self::new(whole, |_| Box::pin(std::future::ready(())));
        (Self { answered: Some(Arc::clone(&answered)), ..store }, answered)
    }

    fn note(&self, question: &'static str, answer: &impl Debug) {
        if let Some(answered) = &self.answered {
            answered.lock().unwrap().push((question, format!("{answer:?}").len()));
        }
    }

    /// The same without the guards on the revisions and names of these records, as if operations forgot them.
    pub(crate) fn without_guards(self, unguarded: Option<RecordKind>) -> Self {
        Self { unguarded, ..self }
    }
}

#[async_trait]
impl Recorder for Interposed {
    async fn record(&self, mut write: Write) -> StoreResult<Vec<Entry>> {
        (self.before)(Call::Write).await;
        if self.refuses.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("it takes no writes".into()));
        }
        let kind = |guard: &Guard| match guard {
            Guard::Revision(kind, ..) => Some(*kind),
            Guard::Denotes(key, _) => key.kind(),
            Guard::Vacant(_) => None,
        };
        write.guards.retain(|guard| self.unguarded.is_none() || kind(guard) != self.unguarded);
        self.whole.record(write).await
    }
}

#[async_trait]
impl TextStore for Interposed {
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>> {
        (self.before)(Call::Texts(digests.len())).await;
        let texts = self.whole.texts(org, digests).await;
        self.note("texts", &texts);
        texts
    }
}

#[async_trait]
impl FeedStore for Interposed {
    /// As a database does, it goes on where nobody waits for the answer any more.
    async fn acquire_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        let (whole, lease) = (Arc::clone(&self.whole), lease.clone());
        let before = (self.before)(Call::Question("acquire_lease"));
        let acquired = async move {
            before.await;
            whole.acquire_lease(&lease, now).await
        };
        tokio::spawn(acquired).await.unwrap()
    }

    async fn release_lease(&self, name: &str, holder: Id) -> StoreResult<()> {
        self.whole.release_lease(name, holder).await
    }

    async fn cursor(&self, consumer: &str, org: Id) -> StoreResult<u64> {
        self.whole.cursor(consumer, org).await
    }

    async fn advance_cursor(&self, advance: &Advance, now: Timestamp) -> StoreResult<bool> {
        self.whole.advance_cursor(advance, now).await
    }
}

/// Passes the questions of these traits on.
macro_rules! delegate {
    ($($trait:ident { $(fn $question:ident($($argument:ident: $of:ty),*) -> $answer:ty;)* })*) => {$(
        #[async_trait]
        impl $trait for Interposed {
            $(async fn $question(&self, $($argument: $of),*) -> StoreResult<$answer> {
                (self.before)(Call::Question(stringify!($question))).await;
                let answer = self.whole.$question($($argument),*).await;
                self.note(stringify!($question), &answer);
                answer
            })*
        }
    )*};
}

delegate! {
    Health {
        fn ready() -> ();
    }
    Blobs {
        fn put(org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> ();
        fn get_chunk(org: Id, sha256: &Fingerprint, number: u64) -> Option<Bytes>;
    }
    PendingStore {
        fn attachment_state(org: Id, sha256: &Fingerprint) -> AttachmentState;
        fn put_pending(org: Id, sha256: &Fingerprint, at: Timestamp) -> bool;
        fn pending(after: Option<&Pending>, limit: u64) -> Vec<Pending>;
        fn begin_removal(pending: &Pending, at: Timestamp) -> bool;
        fn abandon_removal(pending: &Pending, at: Timestamp) -> bool;
        fn end_removal(pending: &Pending) -> bool;
    }
    LedgerStore {
        fn ledger_head(org: Id) -> Option<Frontier>;
        fn ledger_entries(org: Id, first: u64, limit: u64) -> Vec<StoredEntry>;
        fn ledger_entries_at(org: Id, indexes: &[u64]) -> Vec<StoredEntry>;
        fn ledger_hashes(org: Id, needs: &Needs) -> LedgerHashes;
    }
    OrgStore {
        fn org_role(org: &str, user: Id) -> Option<OrgRole>;
        fn user(name: &str) -> Option<User>;
        fn users_by_name(after: &str, limit: u64) -> ByName<User>;
        fn organizations_by_name(after: &str, limit: u64) -> ByName<Organization>;
        fn members(org: Id) -> Vec<Current<Member>>;
        fn key_holder(hash: &KeyHash) -> Option<KeyHolder>;
    }
    ServiceAccountStore {
        fn service_account(org: Id, name: &str) -> Option<Current<ServiceAccount>>;
        fn service_accounts(org: Id) -> Vec<ServiceAccount>;
        fn api_key(org: Id, id: Id) -> Option<Current<ApiKeyRecord>>;
        fn api_keys(org: Id, owner: Id, at: Timestamp) -> Vec<Current<ApiKeyRecord>>;
        fn api_key_count(org: Id, owner: Id, at: Timestamp) -> u64;
    }
    FlowStore {
        fn flow(org: Id, name: &str) -> Option<Current<Flow>>;
        fn flows_by_id(org: Id, ids: &[Id]) -> Vec<Flow>;
        fn flows(org: Id, filter: &FlowFilter, request: PageRequest) -> Page<Listed>;
    }
    TrailStore {
        fn trail(org: Id, flow: Id, name: &str) -> Option<Current<Trail>>;
        fn trails(org: Id, filter: &TrailFilter, request: PageRequest) -> Page<Listed>;
        fn newest_trails(org: Id, flows: &[Id]) -> Vec<Id>;
        fn trail_sizes(org: Id, trails: &[Id]) -> Vec<Listed>;
        fn trail_contents(org: Id, trails: &[Id]) -> Vec<TrailContents>;
        fn trail_names(org: Id, trails: &[Id]) -> Vec<(Id, TrailName)>;
        fn trail_size(org: Id, trail: Id, kind: Reported, most: u64) -> u64;
        fn trail_entries(org: Id, trail: Id) -> Vec<TrailEntry>;
    }
    ArtifactStore {
        fn fingerprints(org: Id, flow: Id, prefix: &str, limit: u64) -> Matches;
        fn artifacts(org: Id, filter: &ArtifactFilter, request: PageRequest) -> Page<Artifact>;
        fn artifacts_listed(org: Id, filter: &ArtifactFilter, request: PageRequest) -> Vec<Listed>;
        fn latest_artifact(org: Id, filter: &ArtifactFilter) -> Option<Artifact>;
        fn artifacts_by_id(org: Id, ids: &[Id]) -> Vec<Artifact>;
        fn artifact_sizes(org: Id, ids: &[Id]) -> Vec<Listed>;
        fn reports(org: Id, flow: Id, fingerprint: &Fingerprint) -> Vec<ArtifactRow>;
        fn provenance(org: Id, fingerprints: &[Fingerprint]) -> Vec<Origin>;
    }
    AttestationStore {
        fn attestation(org: Id, id: Id) -> Option<Attestation>;
        fn attestations_by_id(org: Id, ids: &[Id]) -> Vec<Attestation>;
        fn attestations(org: Id, trails: &[Id], name: &str) -> Vec<NamedAttestation>;
    }
    RepoStore {
        fn repo_by_identity(org: Id, identity: &str) -> Option<Current<Repo>>;
        fn repo(org: Id, id: Id) -> Option<Current<Repo>>;
        fn repos(org: Id, filter: &RepoFilter, request: PageRequest) -> Page<Repo>;
        fn repos_listed(org: Id, filter: &RepoFilter, request: PageRequest) -> Vec<Listed>;
    }
    EnvironmentStore {
        fn environment(org: Id, name: &str) -> Option<KnownEnvironment>;
        fn environments(org: Id) -> Vec<KnownEnvironment>;
        fn environments_listed(org: Id) -> Vec<Listed>;
        fn environments_by_id(org: Id, ids: &[Id]) -> Vec<KnownEnvironment>;
    }
    SnapshotStore {
        fn snapshot(org: Id, environment: Id, index: u64) -> Option<Current<Snapshot>>;
        fn snapshots(org: Id, environment: Id, range: RangeInclusive<u64>) -> Vec<SnapshotRow>;
        fn snapshot_at(org: Id, environment: Id, at: Timestamp) -> u64;
        fn instances(org: Id, environment: Id, index: u64) -> Vec<SnapshotInstance>;
        fn runs(org: Id, fingerprints: &[Fingerprint], newest: u32) -> Vec<Run>;
    }
    PolicyStore {
        fn policy(org: Id, name: &str) -> Option<Current<Policy>>;
        fn policies_listed(org: Id) -> Vec<Listed>;
        fn policies_by_id(org: Id, ids: &[Id]) -> Vec<Current<Policy>>;
        fn policy_version_sizes(org: Id, versions: &[VersionKey]) -> Vec<Listed<VersionKey>>;
        fn policy_versions_by_number(org: Id, versions: &[VersionKey]) -> Vec<PolicyVersion>;
    }
    AllowlistStore {
        fn allowances_listed(org: Id) -> Vec<Listed<u64>>;
        fn allowances(org: Id, indexes: &[u64]) -> Vec<Allowance>;
        fn allowed(org: Id, environment: Id, fingerprints: &[Fingerprint]) -> Vec<Fingerprint>;
        fn allowlist_size(org: Id, environment: Id, most: u64) -> u64;
    }
    AttestationTypeStore {
        fn attestation_type(org: Id, name: &str) -> Option<Current<AttestationType>>;
        fn attestation_types_listed(org: Id) -> Vec<Listed>;
        fn attestation_types_by_id(org: Id, ids: &[Id]) -> Vec<AttestationType>;
        fn attestation_type_version_sizes(org: Id, versions: &[VersionKey]) -> Vec<Listed<VersionKey>>;
        fn attestation_type_versions_by_number(org: Id, versions: &[VersionKey]) -> Vec<AttestationTypeVersion>;
    }
}
