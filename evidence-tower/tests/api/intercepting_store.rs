//! A store in which something happens before each query and each write, so that tests can interleave requests. A new
//! query of a store is a line in `queries.rs`.

mod queries;

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use evidence_core::id::Id;
use evidence_core::leases::{Advance, Lease, LeaseStore};
use evidence_core::ledger::Hash;
use evidence_core::store::{Recorder, StoreResult};
use evidence_core::texts::TextStore;
use evidence_core::time::Timestamp;
use evidence_core::{Entry, Precondition, RecordKind, Store, StoreError, Write};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

/// A call of a store.
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

/// The error of a failing query, if it is to fail.
pub(crate) type Failure = Arc<Mutex<Option<fn() -> StoreError>>>;

/// The calls of one query, each of which waits for a permit while they are held.
pub(crate) struct HeldCalls {
    holds: AtomicBool,
    /// How many began.
    pub(crate) begun: AtomicUsize,
    pub(crate) permits: Semaphore,
}

impl HeldCalls {
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
    pub(crate) fn holding(inner: Arc<dyn Store>, query: &'static str) -> (Self, Arc<HeldCalls>) {
        let (holds, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
        let held = Arc::new(HeldCalls { holds, begun, permits: Semaphore::new(0) });
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
    async fn intercept<T: Debug>(
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
impl TextStore for InterceptingStore {
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>> {
        (self.before)(Call::Texts(digests.len())).await;
        let texts = self.inner.texts(org, digests).await;
        self.note("texts", &texts);
        texts
    }
}

#[async_trait]
impl LeaseStore for InterceptingStore {
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
