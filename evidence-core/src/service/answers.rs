//! The cache of answers, each of which is valid until the ledger of its organization grows.

mod copies;
mod flights;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::auth::access::Access;
use crate::auth::actor::Role;
use crate::cache::sized::Cache;
use crate::coalesced::Coalescer;
use crate::error::Result;
use crate::id::Id;
use crate::ledger::Hash;
use crate::operation::{Answer, AnswerBody, Header, Streamed, Success};
use crate::service::Settings;
use crate::store::Store;
use crate::store::error::StoreError;
use copies::Copies;
use flights::{Flights, Joined, Leader};

/// What an answer takes besides its text and the request's: the entry, and what the allocator adds.
const OVERHEAD: usize = size_of::<(Request, Cached)>() + 128;

/// For how long nobody waits for an answer, or caches it, after it was found to be one that is not cached.
const UNCACHEABLE_FOR: Duration = Duration::from_secs(10);

/// What takes more is not cached, nor what takes more than half of the cache.
const LONGEST: usize = 512 << 10;

/// Answers by request; nothing where none is cached.
pub(super) struct AnswerCache(Option<Arc<Answers>>);

struct Answers {
    heads: Coalescer<Id, Head>,
    cached: Cache<Request, Cached>,
    /// The most that an answer may take.
    longest: usize,
    /// When an answer was found to be too long to be cached, or not of the kind: nobody waits for the next.
    uncacheable: Cache<Request, Instant>,
    flights: Arc<Flights<Version, Arc<Cached>>>,
    ttl: Duration,
    copies: Copies,
}

/// A request, and the size and the root of the ledger before it is answered.
type Version = (Request, (u64, Hash));

/// The size and the root of an organization's ledger, or why they are not known.
#[derive(Debug, Clone)]
enum Head {
    Known(u64, Hash),
    /// There is none, or it cannot be read.
    Unknown,
    /// The store is away.
    Unavailable(Arc<dyn std::error::Error + Send + Sync>),
}

/// The head of this organization's ledger, as it is now.
async fn read_head(store: Arc<dyn Store>, org: Id) -> Head {
    match store.ledger_head(org).await {
        Ok(Some(ledger)) => Head::Known(ledger.size(), ledger.root()),
        Err(StoreError::Unavailable(why)) => Head::Unavailable(why.into()),
        // A damaged ledger keeps nobody from reading records.
        Ok(None) | Err(_) => Head::Unknown,
    }
}

/// The key of the cache.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    operation: &'static str,
    org: Id,
    role: Option<Role>,
    /// The request's path and query.
    text: String,
}

impl Request {
    /// How many bytes it takes with an answer of so many.
    const fn bytes(&self, text: usize) -> usize {
        text + self.text.len() + OVERHEAD
    }
}

/// An answer, with the size and the root of the ledger before it was made, and the time.
#[derive(Debug)]
struct Cached {
    ledger: (u64, Hash),
    since: Instant,
    headers: Vec<Header>,
    text: Bytes,
}

/// Where an answer that is not cached yet goes.
pub(super) struct Slot {
    answers: Arc<Answers>,
    request: Request,
    ledger: (u64, Hash),
    /// When the answer is begun.
    since: Instant,
    /// Whose share of the copies its own is.
    on_behalf_of: Option<Id>,
    /// For those who wait for it; nothing where nobody can.
    _leader: Option<Leader<Version, Arc<Cached>>>,
}

impl Answers {
    /// Whether this answer may be given: the ledger is what it was then, and it is not too old.
    fn holds(&self, cached: &Cached, ledger: (u64, Hash)) -> bool {
        cached.ledger == ledger && cached.since.elapsed() < self.ttl
    }

    /// The cached answer to this request, if it holds.
    fn cached(&self, request: &Request, ledger: (u64, Hash)) -> Option<Arc<Cached>> {
        self.cached.get(request).filter(|cached| self.holds(cached, ledger))
    }
}

impl From<&Cached> for Answer {
    fn from(cached: &Cached) -> Self {
        let body = AnswerBody::Json(cached.text.clone());
        Self { headers: cached.headers.clone(), ..Self::of(body) }
    }
}

/// What a look into the cache came to.
pub(super) enum Lookup {
    /// The answer.
    Hit(Answer),
    /// Where it goes once it is made.
    Miss(Slot),
    /// It cannot be cached.
    Bypass,
}

impl AnswerCache {
    /// An empty cache.
    pub(super) fn new(settings: &Settings) -> Self {
        let Settings { answer_cache_bytes: bytes, cache_ttl: ttl, .. } = *settings;
        let answers = || Answers {
            heads: Coalescer::default(),
            cached: Cache::new(bytes),
            longest: LONGEST.min(bytes / 2),
            uncacheable: Cache::new(bytes / 32),
            flights: Arc::default(),
            ttl,
            copies: Copies::default(),
        };
        Self((bytes > 0 && !ttl.is_zero()).then(|| Arc::new(answers())))
    }

    /// The answer that was made to this request, if the ledger is what it was then: one query, which is shared by all that
    /// ask about this organization while another such query is on its way. Where an equal request is being answered, that
    /// answer is waited for, for a while.
    ///
    /// # Errors
    /// Where the store is away: the operation would wait for it once more.
    pub(super) async fn look_up(
        &self,
        (operation, request): (&'static str, &str),
        access: &Access,
        store: &Arc<dyn Store>,
    ) -> Result<Lookup> {
        let (Some(answers), Some(place)) = (&self.0, &access.org_access) else {
            return Ok(Lookup::Bypass);
        };
        let head = answers.heads.ask(place.org, || read_head(Arc::clone(store), place.org));
        let ledger = match head.await {
            Head::Known(size, root) => (size, root),
            Head::Unknown => return Ok(Lookup::Bypass),
            Head::Unavailable(why) => return Err(StoreError::Unavailable(why.into()).into()),
        };
        let request = Request { operation, org: place.org, role: place.role, text: request.to_owned() };
        if let Some(cached) = answers.cached(&request, ledger) {
            return Ok(Lookup::Hit(Answer::from(&*cached)));
        }
        if answers.uncacheable.get(&request).is_some_and(|found| found.elapsed() < UNCACHEABLE_FOR) {
            return Ok(Lookup::Bypass);
        }
        let leader = match answers.flights.join((request.clone(), ledger)).await {
            Joined::Shared(cached) if answers.holds(&cached, ledger) => {
                return Ok(Lookup::Hit(Answer::from(&*cached)));
            }
            Joined::Leader(leader) => Some(leader),
            Joined::Shared(_) | Joined::Alone => None,
        };
        if let Some(cached) = answers.cached(&request, ledger) {
            // It was made between the two looks.
            let answer = Answer::from(&*cached);
            answers.flights.share(&(request, ledger), cached);
            return Ok(Lookup::Hit(answer));
        }
        let on_behalf_of = access.on_behalf_of();
        Ok(Lookup::Miss(Slot {
            answers: Arc::clone(answers),
            request,
            ledger,
            since: Instant::now(),
            on_behalf_of,
            _leader: leader,
        }))
    }
}

impl Slot {
    /// Returns the size of the ledger before the answer is made.
    pub(super) const fn ledger_size(&self) -> u64 {
        self.ledger.0
    }

    /// The same answer, which is cached once all of it was made.
    pub(super) fn fill(self, answer: Answer) -> Answer {
        let Answer { status, headers, body } = answer;
        let body = match body {
            AnswerBody::Json(text) if status == Success::Ok && self.takes(text.len()) => {
                // A copy has no more room than it takes.
                self.put(headers.clone(), Bytes::copy_from_slice(&text));
                AnswerBody::Json(text)
            }
            AnswerBody::Stream(Streamed { media_type, content })
                if status == Success::Ok && media_type == JSON =>
            {
                let answers = Arc::clone(&self.answers);
                let content = answers.copies.copied(content, self, headers.clone());
                AnswerBody::Stream(Streamed { media_type, content })
            }
            body => {
                self.uncacheable();
                body
            }
        };
        Answer { status, headers, body }
    }

    /// The answer is one that is never cached. A later one that is cached tells that the next may be, too.
    fn uncacheable(self) {
        if !self.is_outdated() {
            let found = Arc::new(Instant::now());
            self.answers.uncacheable.put(self.request.clone(), self.request.bytes(0), found);
        }
        self.unshareable();
    }

    /// The answer is not cached, whoever makes it: nobody waits for it any longer. A slot that is dropped is for another to fill.
    pub(super) fn unshareable(self) {
        self.answers.flights.unshareable(&(self.request, self.ledger));
    }

    /// Whether an answer of so many bytes can be cached.
    fn takes(&self, text: usize) -> bool {
        self.request.bytes(text) <= self.answers.longest
    }

    /// Whether an answer of a longer ledger is cached, or one of as long a ledger that was begun later; for a TTL at most, for a
    /// database may be restored.
    fn is_outdated(&self) -> bool {
        let is_later = |other: Arc<Cached>| {
            (other.ledger.0, other.since) > (self.ledger.0, self.since)
                && other.since.elapsed() < self.answers.ttl
        };
        self.answers.cached.get(&self.request).is_some_and(is_later)
    }

    /// Caches the answer, which it takes, unless it is outdated, and gives it to those who wait for it.
    fn put(self, headers: Vec<Header>, text: Bytes) {
        if self.since.elapsed() >= self.answers.ttl {
            // It took so long to make or to send that it holds no more.
            return;
        }
        let is_outdated = self.is_outdated();
        let Self { answers, request, ledger, since, .. } = self;
        let bytes = request.bytes(text.len());
        let cached = Arc::new(Cached { ledger, since, headers, text });
        if !is_outdated {
            answers.cached.put(request.clone(), bytes, Arc::clone(&cached));
        }
        answers.flights.share(&(request, ledger), cached);
    }
}

const JSON: &str = "application/json";
