//! What an operation has at hand, and the writes that it drafts.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::caches::Caches;
use super::names::{CacheUpdate, CacheUse};
use super::{MAX_WAITING_FOR_RECORD, Parts, Settings};
use crate::admission::RequestBudget;
use crate::auth::access::{Access, OrgAccess, Principal};
use crate::auth::actor::{Actor, Role, Scope};
use crate::auth::credentials::KeyHash;
use crate::blobs::{Blobs, Chunks};
use crate::budget::Reservation;
use crate::compute::{Compute, Progress};
use crate::error::{Error, Missing, Resource, Result};
use crate::fact::names::{Key, Precondition};
use crate::fact::{Fact, Write};
use crate::id::{Id, Random};
use crate::ledger::Frontier;
use crate::limits::Limits;
use crate::lock::locked;
use crate::name::{Fingerprint, OrgName, ServiceAccountName};
use crate::spill_buffer::TemporarySpace;
use crate::store::Store;
use crate::store::entry::Entry;
use crate::store::error::{StoreError, is_future};
use crate::sweep::pending;
use crate::time::{Clock, Timestamp};

/// What an operation has at hand. Nothing else reads the time or draws randomness.
pub struct Context<'a> {
    parts: &'a Arc<Parts>,
    store: &'a dyn Store,
    attachments: &'a Arc<dyn Blobs>,
    access: &'a Access,
    /// Whom an operation of [`Scope::Open`] acts as, once it knows.
    acting: Option<Acting>,
    clock: &'a dyn Clock,
    /// In microseconds.
    now: AtomicI64,
    cache_use: CacheUse,
    random: &'a dyn Random,
    settings: &'a Settings,
    compute: Compute,
    /// Whether something of the request was recorded, or may have been.
    has_recorded: Arc<AtomicBool>,
    answer_memory: Arc<Mutex<AnswerMemory>>,
}

/// The reservations of an answer that is not made piece by piece.
#[derive(Debug, Default)]
pub(super) struct AnswerMemory {
    /// Held until the answer is made.
    pub(super) making: Vec<Reservation>,
    /// Held until the answer is sent.
    pub(super) sending: Vec<Reservation>,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("access", &self.access)
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

/// Whom an operation of [`Scope::Open`] acts as.
#[derive(Debug, Clone)]
struct Acting {
    actor: Actor,
    /// The service account whose privilege is looked at again before anything is recorded, and the least that it needs.
    account: Option<(ServiceAccountName, Role)>,
}

/// A [`Context`] without a lifetime, for answers made while they are sent.
#[derive(Clone)]
pub(crate) struct OwnedContext {
    parts: Arc<Parts>,
    access: Access,
    now: Timestamp,
    compute: Compute,
}

impl OwnedContext {
    /// The context again, at the instant of the request.
    pub(crate) fn context(&self) -> Context<'_> {
        Context { compute: self.compute.clone(), ..Context::over(&self.parts, &self.access, self.now) }
    }
}

impl<'a> Context<'a> {
    pub(super) fn over(parts: &'a Arc<Parts>, access: &'a Access, now: Timestamp) -> Self {
        let Parts { store, blobs: attachments, clock, random, settings, .. } = &**parts;
        let (store, clock, random) = (&**store, &**clock, &**random);
        let now = AtomicI64::new(now.as_micros());
        let compute = parts.compute.clone().on_behalf_of(access.on_behalf_of());
        Self {
            parts,
            store,
            attachments,
            access,
            acting: None,
            clock,
            now,
            cache_use: CacheUse::default(),
            random,
            settings,
            compute,
            has_recorded: Arc::default(),
            answer_memory: Arc::default(),
        }
    }

    /// Reserves memory for making an answer of data of so many bytes, and for sending it.
    ///
    /// # Errors
    /// [`Error::Overloaded`] where there is not enough memory within ten seconds.
    pub(crate) async fn reserve_for_data(&self, bytes: u64) -> Result<()> {
        // In this order: an answer that waits for others to be sent takes no memory from requests.
        self.reserve_for_answer(bytes).await?;
        let making = self.budget().memory_for(bytes).await?;
        locked(&self.answer_memory).making.push(making);
        Ok(())
    }

    /// Reserves memory for sending an answer of so many bytes. The memory stays reserved until the answer is sent, which its
    /// client may delay.
    ///
    /// # Errors
    /// [`Error::Overloaded`] where there is not enough memory within ten seconds.
    pub(crate) async fn reserve_for_answer(&self, bytes: u64) -> Result<()> {
        let sending = self.budget().memory_for_sending(bytes).await?;
        locked(&self.answer_memory).sending.push(sending);
        Ok(())
    }

    /// What the request may hold in memory and in temporary files.
    fn budget(&self) -> RequestBudget {
        self.parts.admission.on_behalf_of(self.access.on_behalf_of())
    }

    /// Takes the reservations of the answer.
    pub(super) fn take_answer_memory(&self) -> AnswerMemory {
        std::mem::take(&mut *locked(&self.answer_memory))
    }

    /// Whether something of the request was recorded, or may have been.
    pub(super) fn has_recorded(&self) -> bool {
        self.has_recorded.load(Ordering::Relaxed)
    }

    /// The same context for an operation of [`Scope::Open`] that knows who calls: what it records with it, this service
    /// account of the organization has done. The account needs at least the privilege `least`, now and whenever something
    /// is recorded.
    ///
    /// # Errors
    /// [`Error::NotFound`] where there is no such account; [`Error::Forbidden`] where its privilege is less, and for an
    /// operation of another scope.
    pub async fn as_service_account(&self, name: &ServiceAccountName, least: Role) -> Result<Context<'a>> {
        let actor = self.privileged(name, least).await?;
        self.acting_as(Acting { actor, account: Some((name.clone(), least)) })
    }

    /// The same with `operator:<name>`, who has no role and no key. The name is what the host says; nothing proves it.
    ///
    /// # Errors
    /// [`Error::Forbidden`] for an operation of another scope.
    pub fn as_operator(&self, name: &OrgName) -> Result<Context<'a>> {
        self.acting_as(Acting { actor: Actor::operator(name.as_str()), account: None })
    }

    fn acting_as(&self, acting: Acting) -> Result<Context<'a>> {
        if self.access.target.scope() != Scope::Open {
            return Err(Error::Forbidden);
        }
        let (compute, has_recorded) = (self.compute.clone(), Arc::clone(&self.has_recorded));
        let answer_memory = Arc::clone(&self.answer_memory);
        let context = Context::over(self.parts, self.access, self.now());
        Ok(Context { acting: Some(acting), compute, has_recorded, answer_memory, ..context })
    }

    /// The service account of this name, if its privilege is enough.
    async fn privileged(&self, name: &ServiceAccountName, least: Role) -> Result<Actor> {
        let account = self.service_account(name).await?.record;
        if account.privilege < least {
            return Err(Error::Forbidden);
        }
        Ok(account.actor())
    }

    /// The same context for an operation that takes long ([`Compute::for_long_request`]) and only reads.
    #[cfg(feature = "pdf")]
    pub(crate) fn for_long_request(&self) -> Context<'a> {
        let (compute, answer_memory) = (self.compute().for_long_request(), Arc::clone(&self.answer_memory));
        Context { compute, answer_memory, ..Context::over(self.parts, self.access, self.now()) }
    }

    /// All of this, beyond the operation.
    pub(crate) fn to_owned_context(&self) -> OwnedContext {
        let (access, compute) = (self.access.clone(), self.compute.clone());
        OwnedContext { parts: Arc::clone(self.parts), access, now: self.now(), compute }
    }

    /// The store, for queries.
    pub const fn store(&self) -> &'a dyn Store {
        self.store
    }

    /// Keeps the content of an attachment, durably, for a record that is about to name it. Where none comes to name it, it
    /// is removed after a while ([`crate::sweep`]).
    ///
    /// # Errors
    /// [`Error::Store`], with [`StoreError::Unavailable`] where the same content is just being removed.
    pub async fn keep_attachment(&self, sha256: &Fingerprint, content: &mut dyn Chunks) -> Result<()> {
        let (places, now) = ((self.store, &**self.attachments), self.clock.now());
        // A note from the future would keep the content from being swept.
        self.store.check_clock(now).await?;
        let kept = pending::keep(places, (self.org()?, sha256), content, now).await;
        // Whether the content was written does not matter: no record names it.
        Ok(kept.map_err(|error| match error {
            StoreError::OutcomeUnknown(source) => StoreError::Unavailable(source),
            other => other,
        })?)
    }

    /// Where the content of attachments is kept; downloads keep it beyond the operation.
    pub const fn attachments(&self) -> &'a Arc<dyn Blobs> {
        self.attachments
    }

    /// The temporary space of the request, beside that of its body.
    pub(crate) fn temporary_space(&self) -> TemporarySpace {
        self.budget().temporary_space().clone()
    }

    /// The instant of the attempt: one for all that it decides, and a later one when it has to decide again.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::Relaxed))
    }

    /// The instant of a change to what last changed then: another server's clock may be ahead, and no record goes back in
    /// time, as its ledger does not. A time that lies far in the future was written by a clock that was wrong.
    pub(crate) fn now_after(&self, last: Timestamp) -> Timestamp {
        let now = self.now();
        if is_future(last, now) { now } else { now.max(last) }
    }

    /// The ledger of the organization.
    pub(crate) async fn ledger(&self) -> Result<Frontier> {
        let head = self.store().ledger_head(self.org()?).await?;
        Ok(head.ok_or_else(|| StoreError::corrupt("the ledger of the organization is missing"))?)
    }

    /// How many entries it has.
    pub(crate) async fn ledger_size(&self) -> Result<u64> {
        Ok(self.ledger().await?.size())
    }

    /// Runs `attempt`, again as long as it meets a conflict, at the time that it then is.
    ///
    /// # Errors
    /// Those of the last attempt, which is the second or not begun later than 30 seconds after the first.
    pub async fn retry<T, F>(&self, attempt: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.retry_until(Instant::now() + RETRYING, attempt).await
    }

    async fn retry_until<T, F>(&self, deadline: Instant, attempt: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.cache_use.allow();
        let attempt = || {
            self.now.fetch_max(self.clock.now().as_micros(), Ordering::Relaxed);
            let attempt = attempt();
            async { self.cache_use.settle(attempt.await) }
        };
        match attempt().await {
            // What the cache said may be over: the store is asked, however long that took.
            Err(Error::Store(StoreError::Conflict)) => retry_until(deadline, attempt).await,
            outcome => outcome,
        }
    }

    /// Does the same for a change of the record of this name, after all earlier requests of this server that change it.
    /// Otherwise each of them would conflict with each of the others, and retry.
    pub(crate) async fn retry_in_turn<T, F>(&self, record: Key, attempt: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (at, deadline) = ((self.org()?, record), Instant::now() + RETRYING);
        let lock = self.parts.record_locks.acquire(at, MAX_WAITING_FOR_RECORD, deadline).await;
        let _lock = lock.map_err(|_| Error::Store(StoreError::Conflict))?;
        self.retry_until(deadline, attempt).await
    }

    /// Whether a report that tells nothing new is to be noted, the last one having come in at this time.
    pub(crate) fn is_heartbeat_due(&self, last: Timestamp) -> bool {
        let interval = self.settings.heartbeat_interval.as_micros();
        let passed = self.now().as_micros().saturating_sub(last.as_micros());
        u128::try_from(passed).is_ok_and(|passed| passed > 0 && passed >= interval)
    }

    /// A fresh id.
    pub fn new_id(&self) -> Id {
        Id::new(self.now(), self.random)
    }

    /// The source of randomness, for keys.
    pub fn random(&self) -> &'a dyn Random {
        self.random
    }

    /// How the service behaves.
    pub const fn settings(&self) -> &'a Settings {
        self.settings
    }

    /// How much is taken in.
    pub const fn limits(&self) -> &'a Limits {
        &self.settings.limits
    }

    /// Where CPU-bound work is done, on behalf of the organization or of the caller.
    pub fn compute(&self) -> Compute {
        self.compute.clone()
    }

    /// Returns the caches of the service.
    pub(crate) fn caches(&self) -> &'a Caches {
        &self.parts.caches
    }

    /// Returns whether the attempt may use the name cache, and whether it did.
    pub(super) const fn cache_use(&self) -> &CacheUse {
        &self.cache_use
    }

    /// The caller.
    pub const fn caller(&self) -> &'a Principal {
        &self.access.caller
    }

    /// The caller, as facts remember it, or whom the operation acts as.
    pub fn actor(&self) -> Actor {
        self.acting.as_ref().map_or(&self.access.caller.actor, |acting| &acting.actor).clone()
    }

    /// The organization that the request concerns; an operation without one must not ask.
    pub fn org_access(&self) -> Result<&'a OrgAccess> {
        self.access.org_access.as_ref().ok_or(Error::Forbidden)
    }

    /// That organization's id.
    pub fn org(&self) -> Result<Id> {
        Ok(self.org_access()?.org)
    }

    /// Whether the caller may learn of the organization's environments: whoever has a role there, and so nobody who is
    /// let in for the sake of a public flow alone.
    pub fn sees_environments(&self) -> Result<bool> {
        Ok(self.org_access()?.role.is_some())
    }

    /// A thing of this kind and name is missing in the organization.
    pub fn missing(&self, resource: Resource, name: impl Into<String>) -> Missing {
        let org = self.access.org_access.as_ref().map(|access| access.name.to_string()).unwrap_or_default();
        Missing::new(resource, name, org)
    }

    /// The address of a page about something in the organization: `{public}/{org}/{path}`.
    pub fn page_url(&self, path: &str) -> String {
        let org = self.access.org_access.as_ref().map(|access| access.name.as_str()).unwrap_or_default();
        format!("{}/{org}/{path}", self.settings.public_url)
    }

    /// The address of an operation: `{public}/api/v2/{path}`.
    pub fn api_url(&self, path: &str) -> String {
        format!("{}/api/v2/{path}", self.settings.public_url)
    }

    /// Whether the caller still may, and as much as when the operation began: it may have decided by the role.
    async fn check_access(&self) -> Result<()> {
        let now = self.parts.authorize(&self.access.caller, &self.access.target).await?;
        let (now, then) = (now.org_access.as_ref(), self.access.org_access.as_ref());
        let same_org = now.map(|access| access.org) == then.map(|access| access.org);
        let role = |access: Option<&OrgAccess>| access.and_then(|access| access.role);
        if !same_org || role(now) < role(then) {
            return Err(Error::Forbidden);
        }
        if let Some(Acting { account: Some((name, least)), .. }) = &self.acting {
            self.privileged(name, *least).await?;
        }
        Ok(())
    }

    /// Records facts under preconditions, all or none.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] or [`Error::Forbidden`] where the caller's rights ended meanwhile;
    /// [`Error::Store`] with [`StoreError::Conflict`] where a precondition no longer holds.
    pub async fn record(&self, draft: Draft) -> Result<Vec<Entry>> {
        self.record_in(self.org()?, draft).await
    }

    /// The same in this organization: the caller's own, for an operation that concerns none.
    pub(crate) async fn record_in(&self, org: Id, draft: Draft) -> Result<Vec<Entry>> {
        if draft.facts.is_empty() {
            // No precondition is checked of what is not recorded.
            return if self.cache_use.is_used() { Err(StoreError::Conflict.into()) } else { Ok(Vec::new()) };
        }
        if self.access.target.scope() == Scope::Open && self.acting.is_none() {
            return Err(Error::Internal {
                what: "an operation without a credential did not say as whom it records",
                source: self.access.target.operation().into(),
            });
        }
        let Draft { facts, preconditions, secrets, .. } = draft;
        self.check_access().await?;
        let access = facts.iter().any(Fact::changes_access);
        let updates = Vec::from_iter(facts.iter().map(|fact| CacheUpdate::of(fact, self.limits())));
        let write = Write { org, by: self.actor(), at: self.now(), facts, preconditions, secrets };
        let recorded = self.store.record(write).await;
        if matches!(recorded, Ok(_) | Err(StoreError::OutcomeUnknown(_))) {
            self.has_recorded.store(true, Ordering::Relaxed);
        }
        if access {
            self.parts.caches.callers.clear();
        }
        let entries = recorded?;
        for (update, entry) in updates.into_iter().zip(&entries) {
            update.into_iter().for_each(|update| self.parts.caches.names.insert(org, update, entry.index));
        }
        self.compute.note(Progress::Recorded);
        Ok(entries)
    }
}

/// A write in the making: facts, and the preconditions they rest on.
#[derive(Debug, Default)]
pub struct Draft {
    /// What will have happened, in order.
    pub facts: Vec<Fact>,
    /// What must still be so then.
    pub preconditions: Vec<Precondition>,
    /// Hashes of new keys.
    pub secrets: Vec<(Id, KeyHash)>,
    /// Holds while the flow that was read is as it was: for a trail that begins with its template.
    pub(crate) flow: Option<Precondition>,
}

impl Draft {
    /// A draft of one fact under one precondition.
    pub fn of(fact: Fact, precondition: Precondition) -> Self {
        Self { facts: vec![fact], preconditions: vec![precondition], ..Self::default() }
    }

    /// Adds what another draft has.
    pub fn extend(&mut self, other: Self) {
        let Self { facts, preconditions, secrets, flow } = other;
        self.facts.extend(facts);
        self.preconditions.extend(preconditions);
        self.secrets.extend(secrets);
        self.flow = self.flow.take().or(flow);
    }

    /// Adds a fact that needs no precondition.
    pub fn fact(&mut self, fact: Fact) {
        self.facts.push(fact);
    }

    /// Adds a fact under a precondition.
    pub fn fact_if(&mut self, fact: Fact, precondition: Precondition) {
        self.facts.push(fact);
        self.preconditions.push(precondition);
    }
}

/// Of the callers who race for one record, one wins each time: enough for so many at the same time.
const MAX_ATTEMPTS: u8 = 128;

/// How long attempts are begun after the first. The caller is told to come again later, and nothing was recorded.
const RETRYING: Duration = Duration::from_secs(30);

/// Runs `attempt` again as long as it meets a conflict, a bounded number of times in bounded time, and answers its last
/// outcome.
pub(crate) async fn retry_on_conflict<T, F>(attempt: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    retry_until(Instant::now() + RETRYING, attempt).await
}

/// The same until `deadline`. What was begun is not broken off, for it may have been recorded.
async fn retry_until<T, F>(deadline: Instant, attempt: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut attempts = 1;
    loop {
        let outcome = attempt().await;
        let is_lost = matches!(outcome, Err(Error::Store(StoreError::Conflict)));
        if !is_lost || attempts == MAX_ATTEMPTS || Instant::now() >= deadline {
            return outcome;
        }
        attempts += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_loses_every_race_is_told_so_in_time() {
        for (each, expected) in [(1_000, 31), (60_000, 1), (1, u64::from(MAX_ATTEMPTS))] {
            let attempts = AtomicU64::new(0);
            let lost = retry_on_conflict(|| async {
                attempts.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(each)).await;
                Err::<(), _>(Error::Store(StoreError::Conflict))
            });
            assert_eq!(lost.await.unwrap_err().status(), 503);
            let attempts = attempts.into_inner();
            assert!((1..=expected).contains(&attempts), "{attempts} of {each} ms");
        }
    }
}
