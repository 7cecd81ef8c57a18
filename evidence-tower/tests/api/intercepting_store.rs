//! A store in which something happens before each query and each write, so that tests can interleave requests. Every query
//! is a line like its neighbours, leases and cursors excepted: `self.ask("its_name", self.inner.its_name(…)).await`.

mod actions;
mod demands;

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::artifacts::{
    Artifact, ArtifactFilter, ArtifactRow, ArtifactStore, Found, GivenName, Matches, Origin,
};
use evidence_core::attestations::{
    Attestation, AttestationStore, DecisionFilter, DecisionRow, FlowPosition, ListedAttestation,
    NamedAttestation, TimeRange,
};
use evidence_core::auth::KeyHash;
use evidence_core::blobs::{Blobs, Chunks};
use evidence_core::builds::{Build, BuildFilter, BuildStore};
use evidence_core::deployments::{Deployment, DeploymentFilter, DeploymentStore, DeploymentTime};
use evidence_core::environments::{EnvironmentStore, KnownEnvironment, MemberChange};
use evidence_core::feed::{Advance, FeedStore, Lease};
use evidence_core::flows::{Flow, FlowFilter, FlowStore};
use evidence_core::id::Id;
use evidence_core::ledger::{Frontier, Hash, LedgerHashes, Needs};
use evidence_core::name::{CommitSha, Fingerprint};
use evidence_core::orgs::{ByName, KeyHolder, Member, OrgRole, OrgStore, Organization, User, UserSettings};
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::repos::{Repo, RepoFacet, RepoFilter, RepoStore, VcsProvider};
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount, ServiceAccountStore};
use evidence_core::snapshots::{
    Event, EventSize, LiveBuild, Progress, Replaced, Run, Snapshot, SnapshotEntry, SnapshotRow,
    SnapshotStore, Start,
};
use evidence_core::store::{Health, Leaf, LedgerStore, Recorder, StoreResult, StoredEntry};
use evidence_core::sweep::{AttachmentPlace, AttachmentState, Pending, PendingStore};
use evidence_core::tags::{TagChoice, TagStore, TaggedKind};
use evidence_core::texts::TextStore;
use evidence_core::time::Timestamp;
use evidence_core::trails::{
    Reported, Trail, TrailContents, TrailEntry, TrailFilter, TrailLabel, TrailStore, TrailVersion,
};
use evidence_core::{Current, Entry, Precondition, RecordKind, Store, StoreError, Write};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

/// What a store is called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// The query of this name.
    Query(&'static str),
    /// A query for so many texts.
    Texts(usize),
    Write,
}

/// The queries that were asked, and about how many bytes each was answered with.
pub(crate) type Answered = Arc<Mutex<Vec<(&'static str, usize)>>>;

/// Takes the queries that were answered so far.
pub(crate) fn take_queries(answered: &Answered) -> Vec<&'static str> {
    std::mem::take(&mut *answered.lock().unwrap()).into_iter().map(|(query, _)| query).collect()
}

/// Takes the queries that were answered so far, and counts these.
pub(crate) fn take_counts<const MANY: usize>(answered: &Answered, of: [&str; MANY]) -> [usize; MANY] {
    let queries = take_queries(answered);
    of.map(|name| queries.iter().filter(|query| **query == name).count())
}

/// What a query fails with, if it does.
pub(crate) type Failure = Arc<Mutex<Option<fn() -> StoreError>>>;

/// The calls of one query, each of which waits for a permit while they are held.
pub(crate) struct Held {
    holds: AtomicBool,
    /// How many began.
    pub(crate) begun: AtomicUsize,
    pub(crate) permits: Semaphore,
}

impl Held {
    /// From now on calls are held, and counted anew.
    pub(crate) fn hold(&self) {
        self.holds.store(true, Ordering::Relaxed);
        self.take_begun();
    }

    /// Calls that begin from now on are held no more.
    pub(crate) fn release(&self) {
        self.holds.store(false, Ordering::Relaxed);
    }

    /// How many began since this was asked the last time.
    pub(crate) fn take_begun(&self) -> usize {
        self.begun.swap(0, Ordering::Relaxed)
    }
}

/// A store that waits for `before` with each call.
pub(crate) struct InterceptingStore {
    inner: Arc<dyn Store>,
    before: Box<dyn Fn(Call) -> BoxFuture<'static, ()> + Send + Sync>,
    unguarded: Option<RecordKind>,
    refuses: Arc<AtomicBool>,
    failing: Option<(&'static str, Failure)>,
    answered: Option<Answered>,
}

impl InterceptingStore {
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        before: impl Fn(Call) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner,
            before: Box::new(before),
            unguarded: None,
            refuses: Arc::default(),
            failing: None,
            answered: None,
        }
    }

    /// A store that counts the calls of this query, and may hold them.
    pub(crate) fn holding(inner: Arc<dyn Store>, query: &'static str) -> (Self, Arc<Held>) {
        let (holds, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
        let held = Arc::new(Held { holds, begun, permits: Semaphore::new(0) });
        let calls = Arc::clone(&held);
        let store = Self::new(inner, move |call| {
            let calls = Arc::clone(&calls);
            Box::pin(async move {
                if call == Call::Query(query) {
                    calls.begun.fetch_add(1, Ordering::Relaxed);
                    if calls.holds.load(Ordering::Relaxed) {
                        calls.permits.acquire().await.unwrap().forget();
                    }
                }
            })
        });
        (store, held)
    }

    /// The same, which takes no writes while `refuses` is set.
    pub(crate) fn refusing(self, refuses: Arc<AtomicBool>) -> Self {
        Self { refuses, ..self }
    }

    /// The same, where this query fails so.
    pub(crate) fn failing(self, query: &'static str, failure: Failure) -> Self {
        Self { failing: Some((query, failure)), ..self }
    }

    /// A store that notes how large its answers are.
    pub(crate) fn measured(inner: Arc<dyn Store>) -> (Self, Answered) {
        let answered = Answered::default();
        let store = Self::new(inner, |_| Box::pin(std::future::ready(())));
        (Self { answered: Some(Arc::clone(&answered)), ..store }, answered)
    }

    fn note(&self, query: &'static str, answer: &impl Debug) {
        if let Some(answered) = &self.answered {
            answered.lock().unwrap().push((query, format!("{answer:?}").len()));
        }
    }

    /// Passes a query on, which is begun when it is awaited.
    async fn ask<T: Debug>(
        &self,
        query: &'static str,
        answer: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        (self.before)(Call::Query(query)).await;
        if let Some((failing, failure)) = &self.failing
            && *failing == query
            && let Some(error) = *failure.lock().unwrap()
        {
            return Err(error());
        }
        let answer = answer.await;
        self.note(query, &answer);
        answer
    }

    /// The same without the preconditions on the revisions and names of these records, as if operations
    /// forgot them.
    pub(crate) fn without_preconditions(self, unguarded: Option<RecordKind>) -> Self {
        Self { unguarded, ..self }
    }
}

#[async_trait]
impl Recorder for InterceptingStore {
    async fn record(&self, mut write: Write) -> StoreResult<Vec<Entry>> {
        (self.before)(Call::Write).await;
        if self.refuses.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("it takes no writes".into()));
        }
        let kind = |precondition: &Precondition| match precondition {
            Precondition::Revision(kind, ..) => Some(*kind),
            Precondition::Denotes(key, _) => key.kind(),
            Precondition::Vacant(_) => None,
        };
        write
            .preconditions
            .retain(|precondition| self.unguarded.is_none() || kind(precondition) != self.unguarded);
        self.inner.record(write).await
    }
}

#[async_trait]
impl TagStore for InterceptingStore {
    async fn tag_choices(
        &self,
        org: Id,
        kind: TaggedKind,
        after: Option<&TagChoice>,
        limit: u64,
    ) -> StoreResult<Vec<TagChoice>> {
        self.ask("tag_choices", self.inner.tag_choices(org, kind, after, limit)).await
    }
}

#[async_trait]
impl TextStore for InterceptingStore {
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>> {
        (self.before)(Call::Texts(digests.len())).await;
        let texts = self.inner.texts(org, digests).await;
        self.note("texts", &texts);
        texts
    }
}

#[async_trait]
impl FeedStore for InterceptingStore {
    /// As a database does, it goes on where nobody waits for the answer any more.
    async fn acquire_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        let (inner, lease) = (Arc::clone(&self.inner), lease.clone());
        let before = (self.before)(Call::Query("acquire_lease"));
        let acquired = async move {
            before.await;
            inner.acquire_lease(&lease, now).await
        };
        tokio::spawn(acquired).await.unwrap()
    }

    /// The same.
    async fn renew_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        let (inner, lease) = (Arc::clone(&self.inner), lease.clone());
        let before = (self.before)(Call::Query("renew_lease"));
        let renewed = async move {
            before.await;
            inner.renew_lease(&lease, now).await
        };
        tokio::spawn(renewed).await.unwrap()
    }

    async fn release_lease(&self, name: &str, holder: Id) -> StoreResult<()> {
        self.inner.release_lease(name, holder).await
    }

    async fn cursor(&self, consumer: &str, org: Id) -> StoreResult<u64> {
        self.inner.cursor(consumer, org).await
    }

    async fn advance_cursor(&self, advance: &Advance, now: Timestamp) -> StoreResult<bool> {
        self.inner.advance_cursor(advance, now).await
    }
}

#[async_trait]
impl Health for InterceptingStore {
    async fn ready(&self) -> StoreResult<()> {
        self.ask("ready", self.inner.ready()).await
    }

    async fn check_clock(&self, now: Timestamp) -> StoreResult<()> {
        self.ask("check_clock", self.inner.check_clock(now)).await
    }

    async fn newest_entry(&self) -> StoreResult<Option<Timestamp>> {
        self.ask("newest_entry", self.inner.newest_entry()).await
    }
}

#[async_trait]
impl Blobs for InterceptingStore {
    async fn put(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        self.ask("put", self.inner.put(org, sha256, content)).await
    }

    async fn get_chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
        self.ask("get_chunk", self.inner.get_chunk(org, sha256, number)).await
    }
}

#[async_trait]
impl PendingStore for InterceptingStore {
    async fn attachment_state(&self, org: Id, sha256: &Fingerprint) -> StoreResult<AttachmentState> {
        self.ask("attachment_state", self.inner.attachment_state(org, sha256)).await
    }

    async fn put_pending(&self, org: Id, sha256: &Fingerprint, at: Timestamp) -> StoreResult<bool> {
        self.ask("put_pending", self.inner.put_pending(org, sha256, at)).await
    }

    async fn pending(&self, after: Option<&Pending>, limit: u64) -> StoreResult<Vec<Pending>> {
        self.ask("pending", self.inner.pending(after, limit)).await
    }

    async fn begin_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool> {
        self.ask("begin_removal", self.inner.begin_removal(pending, at)).await
    }

    async fn abandon_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool> {
        self.ask("abandon_removal", self.inner.abandon_removal(pending, at)).await
    }

    async fn end_removal(&self, pending: &Pending) -> StoreResult<bool> {
        self.ask("end_removal", self.inner.end_removal(pending)).await
    }

    async fn attachment_place(&self) -> StoreResult<Option<AttachmentPlace>> {
        self.ask("attachment_place", self.inner.attachment_place()).await
    }

    async fn named_attachments(&self, limit: u64) -> StoreResult<Vec<(Id, Fingerprint)>> {
        self.ask("named_attachments", self.inner.named_attachments(limit)).await
    }

    async fn put_attachment_place(&self, place: AttachmentPlace) -> StoreResult<bool> {
        self.ask("put_attachment_place", self.inner.put_attachment_place(place)).await
    }
}

#[async_trait]
impl LedgerStore for InterceptingStore {
    async fn ledger_head(&self, org: Id) -> StoreResult<Option<Frontier>> {
        self.ask("ledger_head", self.inner.ledger_head(org)).await
    }

    async fn ledger_sizes(&self, orgs: &[Id]) -> StoreResult<Vec<(Id, u64)>> {
        self.ask("ledger_sizes", self.inner.ledger_sizes(orgs)).await
    }

    async fn ledger_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        self.ask("ledger_entries", self.inner.ledger_entries(org, first, limit)).await
    }

    async fn ledger_times(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<(u64, Timestamp)>> {
        self.ask("ledger_times", self.inner.ledger_times(org, indexes)).await
    }

    async fn ledger_size_at(&self, org: Id, at: Timestamp) -> StoreResult<u64> {
        self.ask("ledger_size_at", self.inner.ledger_size_at(org, at)).await
    }

    async fn ledger_leaves(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<Leaf>> {
        self.ask("ledger_leaves", self.inner.ledger_leaves(org, first, limit)).await
    }

    async fn ledger_entries_at(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<StoredEntry>> {
        self.ask("ledger_entries_at", self.inner.ledger_entries_at(org, indexes)).await
    }

    async fn ledger_hashes(&self, org: Id, needs: &Needs) -> StoreResult<LedgerHashes> {
        self.ask("ledger_hashes", self.inner.ledger_hashes(org, needs)).await
    }
}

#[async_trait]
impl OrgStore for InterceptingStore {
    async fn org_role(&self, org: &str, user: Id) -> StoreResult<Option<OrgRole>> {
        self.ask("org_role", self.inner.org_role(org, user)).await
    }

    async fn user(&self, name: &str) -> StoreResult<Option<User>> {
        self.ask("user", self.inner.user(name)).await
    }

    async fn users_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<User>> {
        self.ask("users_by_name", self.inner.users_by_name(after, limit)).await
    }

    async fn organizations_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<Organization>> {
        self.ask("organizations_by_name", self.inner.organizations_by_name(after, limit)).await
    }

    async fn members(&self, org: Id) -> StoreResult<Vec<Current<Member>>> {
        self.ask("members", self.inner.members(org)).await
    }

    async fn users_by_id(&self, ids: &[Id]) -> StoreResult<Vec<User>> {
        self.ask("users_by_id", self.inner.users_by_id(ids)).await
    }

    async fn membership_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        self.ask("membership_entries", self.inner.membership_entries(org, first, limit)).await
    }

    async fn membership_page(
        &self,
        org: Id,
        direction: SortDirection,
        request: PageRequest,
    ) -> StoreResult<Page<StoredEntry>> {
        self.ask("membership_page", self.inner.membership_page(org, direction, request)).await
    }

    async fn user_settings(&self, org: Id, user: Id) -> StoreResult<Option<Current<UserSettings>>> {
        self.ask("user_settings", self.inner.user_settings(org, user)).await
    }

    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>> {
        self.ask("key_holder", self.inner.key_holder(hash)).await
    }
}

#[async_trait]
impl ServiceAccountStore for InterceptingStore {
    async fn service_account(&self, org: Id, name: &str) -> StoreResult<Option<Current<ServiceAccount>>> {
        self.ask("service_account", self.inner.service_account(org, name)).await
    }

    async fn service_accounts(&self, org: Id) -> StoreResult<Vec<ServiceAccount>> {
        self.ask("service_accounts", self.inner.service_accounts(org)).await
    }

    async fn api_key(&self, org: Id, id: Id) -> StoreResult<Option<Current<ApiKeyRecord>>> {
        self.ask("api_key", self.inner.api_key(org, id)).await
    }

    async fn api_keys(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<Vec<Current<ApiKeyRecord>>> {
        self.ask("api_keys", self.inner.api_keys(org, owner, at)).await
    }

    async fn api_key_count(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<u64> {
        self.ask("api_key_count", self.inner.api_key_count(org, owner, at)).await
    }
}

#[async_trait]
impl FlowStore for InterceptingStore {
    async fn flow(&self, org: Id, name: &str) -> StoreResult<Option<Current<Flow>>> {
        self.ask("flow", self.inner.flow(org, name)).await
    }

    async fn flows_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Flow>> {
        self.ask("flows_by_id", self.inner.flows_by_id(org, ids)).await
    }

    async fn flow_repo_urls(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<(Id, String)>> {
        self.ask("flow_repo_urls", self.inner.flow_repo_urls(org, flows)).await
    }

    async fn flows(&self, org: Id, filter: &FlowFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        self.ask("flows", self.inner.flows(org, filter, request)).await
    }
}

#[async_trait]
impl TrailStore for InterceptingStore {
    async fn trail(&self, org: Id, flow: Id, name: &str) -> StoreResult<Option<Current<Trail>>> {
        self.ask("trail", self.inner.trail(org, flow, name)).await
    }

    async fn trails(&self, org: Id, filter: &TrailFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        self.ask("trails", self.inner.trails(org, filter, request)).await
    }

    async fn newest_trails(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<Id>> {
        self.ask("newest_trails", self.inner.newest_trails(org, flows)).await
    }

    async fn trail_versions(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailVersion>> {
        self.ask("trail_versions", self.inner.trail_versions(org, trails)).await
    }

    async fn trail_contents(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailContents>> {
        self.ask("trail_contents", self.inner.trail_contents(org, trails)).await
    }

    async fn trail_labels(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<(Id, TrailLabel)>> {
        self.ask("trail_labels", self.inner.trail_labels(org, trails)).await
    }

    async fn trail_report_count(&self, org: Id, trail: Id, kind: Reported, most: u64) -> StoreResult<u64> {
        self.ask("trail_report_count", self.inner.trail_report_count(org, trail, kind, most)).await
    }

    async fn trail_entries(&self, org: Id, trail: Id) -> StoreResult<Vec<TrailEntry>> {
        self.ask("trail_entries", self.inner.trail_entries(org, trail)).await
    }
}

#[async_trait]
impl ArtifactStore for InterceptingStore {
    async fn fingerprints(&self, org: Id, flow: Id, prefix: &str, limit: u64) -> StoreResult<Matches> {
        self.ask("fingerprints", self.inner.fingerprints(org, flow, prefix, limit)).await
    }

    async fn search(&self, org: Id, prefix: &str, limit: u64) -> StoreResult<Found> {
        self.ask("search", self.inner.search(org, prefix, limit)).await
    }

    async fn artifacts(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Artifact>> {
        self.ask("artifacts", self.inner.artifacts(org, filter, request)).await
    }

    async fn artifacts_listed(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Vec<Listed>> {
        self.ask("artifacts_listed", self.inner.artifacts_listed(org, filter, request)).await
    }

    async fn latest_artifact(&self, org: Id, filter: &ArtifactFilter) -> StoreResult<Option<Artifact>> {
        self.ask("latest_artifact", self.inner.latest_artifact(org, filter)).await
    }

    async fn artifacts_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Artifact>> {
        self.ask("artifacts_by_id", self.inner.artifacts_by_id(org, ids)).await
    }

    async fn artifact_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>> {
        self.ask("artifact_sizes", self.inner.artifact_sizes(org, ids)).await
    }

    async fn reports(&self, org: Id, flow: Id, fingerprint: &Fingerprint) -> StoreResult<Vec<ArtifactRow>> {
        self.ask("reports", self.inner.reports(org, flow, fingerprint)).await
    }

    async fn provenance(
        &self,
        org: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
    ) -> StoreResult<Vec<Origin>> {
        self.ask("provenance", self.inner.provenance(org, fingerprints, entries)).await
    }

    async fn given_names(&self, org: Id, asked: &[(Id, Fingerprint)]) -> StoreResult<Vec<GivenName>> {
        self.ask("given_names", self.inner.given_names(org, asked)).await
    }
}

#[async_trait]
impl AttestationStore for InterceptingStore {
    async fn attestation(&self, org: Id, id: Id) -> StoreResult<Option<Attestation>> {
        self.ask("attestation", self.inner.attestation(org, id)).await
    }

    async fn labelled_attestation(&self, org: Id, id: Id) -> StoreResult<Option<(Attestation, TrailLabel)>> {
        self.ask("labelled_attestation", self.inner.labelled_attestation(org, id)).await
    }

    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>> {
        self.ask("attestations_by_id", self.inner.attestations_by_id(org, ids)).await
    }

    async fn attestations_before(
        &self,
        org: Id,
        before: u64,
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>> {
        self.ask("attestations_before", self.inner.attestations_before(org, before, limit)).await
    }

    async fn flow_attestations_before(
        &self,
        org: Id,
        flows: &[FlowPosition],
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>> {
        self.ask("flow_attestations_before", self.inner.flow_attestations_before(org, flows, limit)).await
    }

    async fn flow_attestations(
        &self,
        org: Id,
        flow: Id,
        time: &TimeRange,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>> {
        self.ask("flow_attestations", self.inner.flow_attestations(org, flow, time, request)).await
    }

    async fn attestation_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>> {
        self.ask("attestation_sizes", self.inner.attestation_sizes(org, ids)).await
    }

    async fn commit_trails(
        &self,
        org: Id,
        commit: &CommitSha,
        flow: Option<Id>,
        before: Option<Id>,
        limit: u64,
    ) -> StoreResult<Vec<Id>> {
        self.ask("commit_trails", self.inner.commit_trails(org, commit, flow, before, limit)).await
    }

    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<NamedAttestation>> {
        self.ask("attestations", self.inner.attestations(org, trails, name)).await
    }

    async fn decisions(
        &self,
        org: Id,
        control: &str,
        filter: &DecisionFilter,
        request: PageRequest,
    ) -> StoreResult<Page<DecisionRow>> {
        self.ask("decisions", self.inner.decisions(org, control, filter, request)).await
    }
}

#[async_trait]
impl BuildStore for InterceptingStore {
    async fn builds(&self, org: Id, filter: &BuildFilter, request: PageRequest) -> StoreResult<Page<Build>> {
        self.ask("builds", self.inner.builds(org, filter, request)).await
    }

    async fn build_times(&self, org: Id, filter: &BuildFilter, limit: u64) -> StoreResult<Page<Timestamp>> {
        self.ask("build_times", self.inner.build_times(org, filter, limit)).await
    }
}

#[async_trait]
impl DeploymentStore for InterceptingStore {
    async fn deployments(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Deployment>> {
        self.ask("deployments", self.inner.deployments(org, filter, request)).await
    }

    async fn deployment_times(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        limit: u64,
    ) -> StoreResult<Page<DeploymentTime>> {
        self.ask("deployment_times", self.inner.deployment_times(org, filter, limit)).await
    }

    async fn latest_deployment(
        &self,
        org: Id,
        environment: Id,
        fingerprint: &Fingerprint,
    ) -> StoreResult<Option<Deployment>> {
        let latest = self.inner.latest_deployment(org, environment, fingerprint);
        self.ask("latest_deployment", latest).await
    }
}

#[async_trait]
impl RepoStore for InterceptingStore {
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>> {
        self.ask("repo_by_identity", self.inner.repo_by_identity(org, identity)).await
    }

    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>> {
        self.ask("repo", self.inner.repo(org, id)).await
    }

    async fn repos_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Repo>> {
        self.ask("repos_by_id", self.inner.repos_by_id(org, ids)).await
    }

    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>> {
        self.ask("repos", self.inner.repos(org, filter, request)).await
    }

    async fn repo_ids(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Vec<Id>> {
        self.ask("repo_ids", self.inner.repo_ids(org, filter, request)).await
    }

    async fn newest_repo(
        &self,
        org: Id,
        name: &str,
        provider: Option<VcsProvider>,
    ) -> StoreResult<Option<Repo>> {
        self.ask("newest_repo", self.inner.newest_repo(org, name, provider)).await
    }

    async fn repos_named(&self, org: Id, names: &[&str], most: u64) -> StoreResult<Vec<(String, Id)>> {
        self.ask("repos_named", self.inner.repos_named(org, names, most)).await
    }

    async fn repo_values(
        &self,
        org: Id,
        filter: &RepoFilter,
        facet: RepoFacet,
        limit: u64,
    ) -> StoreResult<Vec<String>> {
        self.ask("repo_values", self.inner.repo_values(org, filter, facet, limit)).await
    }
}

#[async_trait]
impl EnvironmentStore for InterceptingStore {
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<KnownEnvironment>> {
        self.ask("environment", self.inner.environment(org, name)).await
    }

    async fn archived_environment(&self, org: Id, name: &str) -> StoreResult<bool> {
        self.ask("archived_environment", self.inner.archived_environment(org, name)).await
    }
    async fn environments(&self, org: Id) -> StoreResult<Vec<KnownEnvironment>> {
        self.ask("environments", self.inner.environments(org)).await
    }

    async fn environments_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        self.ask("environments_listed", self.inner.environments_listed(org)).await
    }

    async fn member_changes(&self, org: Id, environment: Id) -> StoreResult<Vec<MemberChange>> {
        self.ask("member_changes", self.inner.member_changes(org, environment)).await
    }

    async fn logical_environments(&self, org: Id, members: &[Id]) -> StoreResult<Vec<Id>> {
        self.ask("logical_environments", self.inner.logical_environments(org, members)).await
    }

    async fn environments_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<KnownEnvironment>> {
        self.ask("environments_by_id", self.inner.environments_by_id(org, ids)).await
    }
}

#[async_trait]
impl SnapshotStore for InterceptingStore {
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>> {
        self.ask("snapshot", self.inner.snapshot(org, environment, index)).await
    }

    async fn snapshots(
        &self,
        org: Id,
        ranges: &[(Id, RangeInclusive<u64>)],
    ) -> StoreResult<Vec<SnapshotRow>> {
        self.ask("snapshots", self.inner.snapshots(org, ranges)).await
    }

    async fn progress(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Progress>> {
        self.ask("progress", self.inner.progress(org, asked)).await
    }

    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64> {
        self.ask("snapshot_at", self.inner.snapshot_at(org, environment, at)).await
    }

    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<SnapshotEntry>> {
        self.ask("instances", self.inner.instances(org, environment, index)).await
    }

    async fn live_builds(&self, org: Id, repo: Id, reports: u64, limit: u64) -> StoreResult<Vec<LiveBuild>> {
        self.ask("live_builds", self.inner.live_builds(org, repo, reports, limit)).await
    }

    async fn event_sizes(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<EventSize>> {
        self.ask("event_sizes", self.inner.event_sizes(org, asked)).await
    }

    async fn events(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Event>> {
        self.ask("events", self.inner.events(org, asked)).await
    }

    async fn event_numbers(
        &self,
        org: Id,
        environment: Id,
        range: (RangeInclusive<u64>, SortDirection),
        repos: &[Id],
        request: PageRequest,
    ) -> StoreResult<Page<u64>> {
        let numbers = self.inner.event_numbers(org, environment, range, repos, request);
        self.ask("event_numbers", numbers).await
    }

    async fn replaced(&self, org: Id, starts: &[Start]) -> StoreResult<Vec<Replaced>> {
        self.ask("replaced", self.inner.replaced(org, starts)).await
    }

    async fn runs(&self, org: Id, fingerprints: &[Fingerprint], newest: u32) -> StoreResult<Vec<Run>> {
        self.ask("runs", self.inner.runs(org, fingerprints, newest)).await
    }
}
