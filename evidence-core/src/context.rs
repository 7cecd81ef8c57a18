//! The context in which an operation runs, and the writes that it drafts.

pub(crate) mod caches;
pub(crate) mod callers;
pub(crate) mod names;
pub(crate) mod parts;

use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use caches::Caches;
use names::{CacheUpdate, CacheUse};
use parts::{MAX_WAITING_FOR_RECORD, Parts};

use crate::admission::RequestBudget;
use crate::auth::access::{Access, OrgAccess, Principal};
use crate::auth::actor::{Actor, Role, Scope};
use crate::blobs::{Blobs, Chunks};
use crate::budget::Reservation;
use crate::checkpoints::keys::LedgerKeys;
use crate::compute::{Compute, Progress};
use crate::error::{Error, Missing, Resource, Result};
use crate::fact::names::{Key, Precondition};
use crate::fact::{Fact, Secrets, Write};
use crate::id::{Id, Random};
use crate::ledger::Frontier;
use crate::limits::Limits;
use crate::lock::locked;
use crate::name::{Fingerprint, OrgName, ServiceAccountName};
use crate::settings::Settings;
use crate::spill_buffer::TemporarySpace;
use crate::store::Store;
use crate::store::entry::Entry;
use crate::store::error::{StoreError, is_future};
use crate::sweep::pending;
use crate::time::{Clock, Timestamp};

/// The context of one run of an operation: the store, the caller, the time and a source of ids. An operation gets time and
/// randomness from here only.
pub struct Context<'a> {
    parts: &'a Arc<Parts>,
    store: &'a dyn Store,
    attachments: &'a Arc<dyn Blobs>,
    access: &'a Access,
    /// The actor of an operation of [`Scope::Open`], once the operation knows it.
    acting: Option<Acting>,
    clock: &'a dyn Clock,
    /// The time of the attempt in microseconds.
    now: AtomicI64,
    cache_use: CacheUse,
    random: &'a dyn Random,
    settings: &'a Settings,
    compute: Compute,
    recorded: Arc<Mutex<Recorded>>,
    answer_memory: Arc<Mutex<AnswerMemory>>,
}

/// What a request recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded {
    /// Whether it recorded something, or may have.
    may_have: bool,
    /// Its first entry.
    pub(crate) first: Option<Entry>,
    /// The record that it created; of several, the last, for which the others were created.
    pub(crate) created: Option<Id>,
}

/// The reservations of a response that is not built in pieces.
#[derive(Debug, Default)]
pub(crate) struct AnswerMemory {
    /// Held until the response is built.
    pub(crate) making: Vec<Reservation>,
    /// Held until the response is sent.
    pub(crate) sending: Vec<Reservation>,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("access", &self.access)
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

/// The actor of an operation of [`Scope::Open`].
#[derive(Debug, Clone)]
struct Acting {
    actor: Actor,
    /// The service account, and the least privilege that it needs. The privilege is checked again before each write.
    account: Option<(ServiceAccountName, Role)>,
}

/// A [`Context`] without a lifetime, for responses that are built while they are sent.
#[derive(Clone)]
pub(crate) struct OwnedContext {
    parts: Arc<Parts>,
    access: Access,
    now: Timestamp,
    compute: Compute,
}

impl OwnedContext {
    /// Returns the context, at the time of the request.
    pub(crate) fn context(&self) -> Context<'_> {
        Context { compute: self.compute.clone(), ..Context::over(&self.parts, &self.access, self.now) }
    }
}

impl<'a> Context<'a> {
    pub(crate) fn over(parts: &'a Arc<Parts>, access: &'a Access, now: Timestamp) -> Self {
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
            recorded: Arc::default(),
            answer_memory: Arc::default(),
        }
    }

    /// Reserves memory for building a response from this many bytes of data, and for sending it.
    ///
    /// # Errors
    /// [`Error::Overloaded`] if there is not enough memory within ten seconds.
    pub(crate) async fn reserve_for_data(&self, bytes: u64) -> Result<()> {
        // In this order, so that a response that waits for others to be sent takes no memory from requests.
        self.reserve_for_answer(bytes).await?;
        let making = self.budget().memory_for(bytes).await?;
        locked(&self.answer_memory).making.push(making);
        Ok(())
    }

    /// Reserves memory for sending a response of this many bytes. The memory stays reserved until the response is sent,
    /// which its client may delay.
    ///
    /// # Errors
    /// [`Error::Overloaded`] if there is not enough memory within ten seconds.
    pub(crate) async fn reserve_for_answer(&self, bytes: u64) -> Result<()> {
        let sending = self.budget().memory_for_sending(bytes).await?;
        locked(&self.answer_memory).sending.push(sending);
        Ok(())
    }

    /// Returns the budget of the request for memory and temporary files.
    fn budget(&self) -> RequestBudget {
        self.parts.admission.on_behalf_of(self.access.on_behalf_of())
    }

    /// Takes the reservations of the response.
    pub(crate) fn take_answer_memory(&self) -> AnswerMemory {
        std::mem::take(&mut *locked(&self.answer_memory))
    }

    /// Returns whether the request recorded something, or may have.
    pub(crate) fn has_recorded(&self) -> bool {
        locked(&self.recorded).may_have
    }

    /// Returns what the request recorded.
    pub(crate) fn recorded(&self) -> Recorded {
        locked(&self.recorded).clone()
    }

    /// Returns this context with a service account of the organization as the actor, for an operation of [`Scope::Open`]
    /// that identifies its caller itself. The account needs at least the privilege `least`, now and at each write.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such account; [`Error::Forbidden`] if its privilege is lower, or if the operation
    /// has another scope.
    pub async fn as_service_account(&self, name: &ServiceAccountName, least: Role) -> Result<Context<'a>> {
        let actor = self.privileged(name, least).await?;
        self.acting_as(Acting { actor, account: Some((name.clone(), least)) })
    }

    /// Returns this context with the operator of this name as the actor, who has no role and no key. The host vouches for the name.
    ///
    /// # Errors
    /// [`Error::Forbidden`] if the operation has another scope.
    pub fn as_operator(&self, name: &OrgName) -> Result<Context<'a>> {
        self.acting_as(Acting { actor: Actor::operator(name.as_str()), account: None })
    }

    fn acting_as(&self, acting: Acting) -> Result<Context<'a>> {
        if self.access.target.scope() != Scope::Open {
            return Err(Error::Forbidden);
        }
        let (compute, recorded) = (self.compute.clone(), Arc::clone(&self.recorded));
        let answer_memory = Arc::clone(&self.answer_memory);
        let context = Context::over(self.parts, self.access, self.now());
        Ok(Context { acting: Some(acting), compute, recorded, answer_memory, ..context })
    }

    /// Returns the service account of this name, if it has the privilege.
    async fn privileged(&self, name: &ServiceAccountName, least: Role) -> Result<Actor> {
        let account = self.service_account(name).await?.record;
        if account.privilege < least {
            return Err(Error::Forbidden);
        }
        Ok(account.actor())
    }

    /// Returns this context for an operation that takes long ([`Compute::for_long_request`]) and only reads.
    #[cfg(feature = "pdf")]
    pub(crate) fn for_long_request(&self) -> Context<'a> {
        let (compute, answer_memory) = (self.compute().for_long_request(), Arc::clone(&self.answer_memory));
        Context { compute, answer_memory, ..Context::over(self.parts, self.access, self.now()) }
    }

    /// Returns a context that may outlive the operation.
    pub(crate) fn to_owned_context(&self) -> OwnedContext {
        let (access, compute) = (self.access.clone(), self.compute.clone());
        OwnedContext { parts: Arc::clone(self.parts), access, now: self.now(), compute }
    }

    /// Returns the store, for queries.
    pub const fn store(&self) -> &'a dyn Store {
        self.store
    }

    /// Stores the content of an attachment durably, before a record names it. Content that no record names is deleted after
    /// a while ([`crate::sweep`]).
    ///
    /// # Errors
    /// [`Error::Store`], with [`StoreError::Unavailable`] while the same content is being deleted.
    pub async fn store_attachment(&self, sha256: &Fingerprint, content: &mut dyn Chunks) -> Result<()> {
        let (places, now) = ((self.store, &**self.attachments), self.clock.now());
        // A note from the future would keep the content from being swept.
        self.store.check_clock(now).await?;
        let kept = pending::store_pending(places, (self.org()?, sha256), content, now).await;
        // Whether the content was written does not matter: no record names it.
        Ok(kept.map_err(|error| match error {
            StoreError::OutcomeUnknown(source) => StoreError::Unavailable(source),
            other => other,
        })?)
    }

    /// Returns the place of the contents of attachments. Downloads use it after the operation has returned.
    pub const fn attachments(&self) -> &'a Arc<dyn Blobs> {
        self.attachments
    }

    /// Returns the temporary space of the request, in addition to that of its body.
    pub(crate) fn temporary_space(&self) -> TemporarySpace {
        self.budget().temporary_space().clone()
    }

    /// Returns the time of the attempt. It stays the same during an attempt, and is later in a repeated attempt.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::Relaxed))
    }

    /// Returns the time of a change to a record that last changed at `last`. It is not before `last`, because another
    /// server's clock may be ahead and a record must not go back in time. A `last` far in the future is ignored, because a
    /// wrong clock wrote it.
    pub(crate) fn now_after(&self, last: Timestamp) -> Timestamp {
        let now = self.now();
        if is_future(last, now) { now } else { now.max(last) }
    }

    /// Returns the frontier of the organization's ledger.
    pub(crate) async fn ledger(&self) -> Result<Frontier> {
        let head = self.store().ledger_head(self.org()?).await?;
        Ok(head.ok_or_else(|| StoreError::corrupt("the ledger of the organization is missing"))?)
    }

    /// Returns the number of entries of the organization's ledger.
    pub(crate) async fn ledger_size(&self) -> Result<u64> {
        Ok(self.ledger().await?.size())
    }

    /// Runs `attempt`, and repeats it at the then current time while it fails with a conflict.
    ///
    /// # Errors
    /// The error of the last attempt. Apart from the second, no attempt begins later than 30 seconds after the first.
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
            async { self.cache_use.finish_attempt(attempt.await) }
        };
        match attempt().await {
            // The cached values may be outdated, so the store is always read once, however long the first attempt took.
            Err(Error::Store(StoreError::Conflict)) => retry_until(deadline, attempt).await,
            outcome => outcome,
        }
    }

    /// Does the same as [`Self::retry`] for a change of the record of this name, after all earlier requests of this server
    /// that change it. Otherwise concurrent changes would conflict with each other and retry.
    pub(crate) async fn retry_exclusively<T, F>(&self, record: Key, attempt: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (at, deadline) = ((self.org()?, record), Instant::now() + RETRYING);
        let lock = self.parts.record_locks.acquire(at, MAX_WAITING_FOR_RECORD, deadline).await;
        let _lock = lock.map_err(|_| Error::Store(StoreError::Conflict))?;
        self.retry_until(deadline, attempt).await
    }

    /// Returns whether an unchanged report should be recorded, if the last recorded one is from this time.
    pub(crate) fn is_heartbeat_due(&self, last: Timestamp) -> bool {
        let interval = self.settings.heartbeat_interval.as_micros();
        let passed = self.now().as_micros().saturating_sub(last.as_micros());
        u128::try_from(passed).is_ok_and(|passed| passed > 0 && passed >= interval)
    }

    /// Generates an id.
    pub fn new_id(&self) -> Id {
        Id::new(self.now(), self.random)
    }

    /// Returns the random source, for keys.
    pub fn random(&self) -> &'a dyn Random {
        self.random
    }

    /// Returns the settings of the service.
    pub const fn settings(&self) -> &'a Settings {
        self.settings
    }

    /// Returns the limits of requests.
    pub const fn limits(&self) -> &'a Limits {
        &self.settings.limits
    }

    /// Returns the pool for CPU-bound work, with the organization or the caller as the tenant.
    pub fn compute(&self) -> Compute {
        self.compute.clone()
    }

    /// Returns the keys that sign checkpoints.
    pub(crate) fn ledger_keys(&self) -> Option<&'a Arc<LedgerKeys>> {
        self.parts.ledger_keys.as_ref()
    }

    /// Notes whether the checkpoint of an organization could not be signed, for the warnings of the service.
    pub(crate) fn set_unsigned(&self, org: Id, is_unsigned: bool) {
        let mut unsigned = locked(&self.parts.unsigned);
        if is_unsigned {
            unsigned.insert(org)
        } else {
            unsigned.remove(&org)
        };
    }

    /// Returns the caches of the service.
    pub(crate) fn caches(&self) -> &'a Caches {
        &self.parts.caches
    }

    /// Returns whether the attempt may use the name cache, and whether it did.
    pub(crate) const fn cache_use(&self) -> &CacheUse {
        &self.cache_use
    }

    /// Returns the caller.
    pub const fn caller(&self) -> &'a Principal {
        &self.access.caller
    }

    /// Returns the actor that facts record: the caller, or the one that the operation acts as.
    pub fn actor(&self) -> Actor {
        self.acting.as_ref().map_or(&self.access.caller.actor, |acting| &acting.actor).clone()
    }

    /// Returns the organization of the request, with the caller's role in it.
    ///
    /// # Errors
    /// [`Error::Forbidden`] if the operation concerns no organization.
    pub fn org_access(&self) -> Result<&'a OrgAccess> {
        self.access.org_access.as_ref().ok_or(Error::Forbidden)
    }

    /// Returns the id of the organization of the request.
    ///
    /// # Errors
    /// The errors of [`Self::org_access`].
    pub fn org(&self) -> Result<Id> {
        Ok(self.org_access()?.org)
    }

    /// Returns whether the caller may see the organization's environments. Callers with a role in the organization may. A
    /// caller who only reads a public flow may not.
    ///
    /// # Errors
    /// The errors of [`Self::org_access`].
    pub fn sees_environments(&self) -> Result<bool> {
        Ok(self.org_access()?.role.is_some())
    }

    /// Returns the error that a resource of this kind and name is missing in the organization.
    pub fn missing(&self, resource: Resource, name: impl Into<String>) -> Missing {
        let org = self.access.org_access.as_ref().map(|access| access.name.to_string()).unwrap_or_default();
        Missing::new(resource, name, org)
    }

    /// Returns the address of a page of the organization: `{public}/{org}/{path}`.
    pub fn page_url(&self, path: &str) -> String {
        let org = self.access.org_access.as_ref().map(|access| access.name.as_str()).unwrap_or_default();
        format!("{}/{org}/{path}", self.settings.public_url)
    }

    /// Returns the address of an operation: `{public}/api/v2/{path}`.
    pub fn api_url(&self, path: &str) -> String {
        format!("{}/api/v2/{path}", self.settings.public_url)
    }

    /// Checks that the caller still has at least the role that it had when the operation began. The operation may have used
    /// the role in its decisions.
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

    /// Records all facts of the draft if its preconditions hold, otherwise none.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] or [`Error::Forbidden`] if the caller's rights were revoked meanwhile;
    /// [`Error::Store`] with [`StoreError::Conflict`] if a precondition no longer holds.
    pub async fn record(&self, draft: Draft) -> Result<Vec<Entry>> {
        self.record_in(self.org()?, draft).await
    }

    /// Does the same as [`Self::record`] in this organization. An operation without an organization uses the caller's own.
    pub(crate) async fn record_in(&self, org: Id, draft: Draft) -> Result<Vec<Entry>> {
        if draft.facts.is_empty() {
            // An empty write checks no preconditions, so cached values may be outdated.
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
        let created = facts.iter().rev().find_map(Fact::created);
        let updates = Vec::from_iter(facts.iter().map(|fact| CacheUpdate::of(fact, self.limits())));
        let write = Write::new(org, self.actor(), self.now(), facts, self.random);
        let write = Write { preconditions, secrets, ..write };
        let recorded = self.store.record(write).await;
        {
            let mut noted = locked(&self.recorded);
            noted.may_have |= matches!(recorded, Ok(_) | Err(StoreError::OutcomeUnknown(_)));
            if let Ok(entries) = &recorded {
                noted.first = noted.first.or(entries.first().copied());
                noted.created = created.or(noted.created);
            }
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

/// A write before it is recorded: facts and their preconditions.
#[derive(Debug, Default)]
pub struct Draft {
    /// The facts, in order.
    pub facts: Vec<Fact>,
    /// The preconditions of the facts.
    pub preconditions: Vec<Precondition>,
    /// The secrets that the facts introduce.
    pub secrets: Secrets,
    /// The precondition that the flow is unchanged, for a trail that begins with the flow's template.
    pub(crate) flow: Option<Precondition>,
}

impl Draft {
    /// Creates a draft of one fact under one precondition.
    pub fn of(fact: Fact, precondition: Precondition) -> Self {
        Self { facts: vec![fact], preconditions: vec![precondition], ..Self::default() }
    }

    /// Adds the contents of another draft.
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

/// Maximum number of attempts. In each round of a race for a record one request wins, so 128 concurrent requests all
/// succeed.
const MAX_ATTEMPTS: u8 = 128;

/// The time after the first attempt in which further attempts begin. After that the caller gets 503, and nothing was
/// recorded.
const RETRYING: Duration = Duration::from_secs(30);

/// Runs `attempt`, and repeats it while it fails with a conflict, a bounded number of times and in bounded time. Returns the
/// last outcome.
pub(crate) async fn retry_on_conflict<T, F>(attempt: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    retry_until(Instant::now() + RETRYING, attempt).await
}

/// Does the same as [`retry_on_conflict`] until `deadline`. A running attempt is not cancelled, because it may have recorded
/// something.
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
