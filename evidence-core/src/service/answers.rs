//! The cache of answers, each of which is valid until the ledger of its organization grows.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::access::Access;
use crate::auth::actor::Role;
use crate::blobs::Chunks;
use crate::cache::sized::Cache;
use crate::coalesced::Coalescer;
use crate::error::Result;
use crate::id::Id;
use crate::ledger::Hash;
use crate::operation::{Answer, AnswerBody, Header, Streamed, Success};
use crate::service::Settings;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::time::{Clock, Timestamp};

/// What an answer takes besides its text and the request's: the entry, and what the allocator adds.
const OVERHEAD: usize = size_of::<(Request, Cached)>() + 128;

/// A longer answer is not cached.
const LONGEST: usize = 512 << 10;

/// So many answers are copied at a time while they are sent: each copy stays in memory as long as its client reads.
const MAX_COPIES: usize = 16;

/// Answers by request; nothing where none is cached.
pub(super) struct AnswerCache(Option<Arc<Answers>>);

struct Answers {
    heads: Coalescer<Id, Head>,
    cached: Cache<Request, Cached>,
    ttl: Duration,
    copies: Arc<Semaphore>,
}

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

/// An answer, with the size and the root of the ledger before it was made, and the time.
#[derive(Debug)]
struct Cached {
    ledger: (u64, Hash),
    at: Timestamp,
    headers: Vec<Header>,
    text: Bytes,
}

/// Where an answer that is not cached yet goes.
pub(super) struct Slot {
    answers: Arc<Answers>,
    request: Request,
    ledger: (u64, Hash),
    at: Timestamp,
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
            ttl,
            copies: Arc::new(Semaphore::new(MAX_COPIES)),
        };
        Self((bytes > 0 && !ttl.is_zero()).then(|| Arc::new(answers())))
    }

    /// The answer that was made to this request, if the ledger is what it was then: one query, which is shared by all that
    /// ask about this organization while another such query is on its way.
    ///
    /// # Errors
    /// Where the store is away: the operation would wait for it once more.
    pub(super) async fn look_up(
        &self,
        (operation, request): (&'static str, &str),
        access: &Access,
        clock: &dyn Clock,
        store: &Arc<dyn Store>,
    ) -> Result<Lookup> {
        let (Some(answers), Some(place)) = (&self.0, &access.org_access) else { return Ok(Lookup::Bypass) };
        let head = answers.heads.ask(place.org, || read_head(Arc::clone(store), place.org));
        let ledger = match head.await {
            Head::Known(size, root) => (size, root),
            Head::Unknown => return Ok(Lookup::Bypass),
            Head::Unavailable(why) => return Err(StoreError::Unavailable(why.into()).into()),
        };
        // Time passes while the head is read.
        let now = clock.now();
        let request = Request { operation, org: place.org, role: place.role, text: request.to_owned() };
        let holds = |cached: &Arc<Cached>| {
            let age = now.as_micros().checked_sub(cached.at.as_micros());
            let age = age.and_then(|age| u64::try_from(age).ok()).map(Duration::from_micros);
            cached.ledger == ledger && age.is_some_and(|age| age < answers.ttl)
        };
        if let Some(cached) = answers.cached.get(&request).filter(holds) {
            let body = AnswerBody::Json(cached.text.clone());
            return Ok(Lookup::Hit(Answer { headers: cached.headers.clone(), ..Answer::of(body) }));
        }
        Ok(Lookup::Miss(Slot { answers: Arc::clone(answers), request, ledger, at: now }))
    }
}

impl Slot {
    /// The same answer, which is cached once all of it was made.
    pub(super) fn fill(self, answer: Answer) -> Answer {
        let Answer { status, headers, body } = answer;
        let body = match body {
            AnswerBody::Json(text) if status == Success::Ok => {
                self.put(headers.clone(), &text);
                AnswerBody::Json(text)
            }
            AnswerBody::Stream(Streamed { media_type, content })
                if status == Success::Ok && media_type == JSON =>
            {
                let permit = Arc::clone(&self.answers.copies).try_acquire_owned().ok();
                let copy = |permit| PartialCopy {
                    slot: self,
                    headers: headers.clone(),
                    text: Vec::new(),
                    _permit: permit,
                };
                let content = Box::new(Copied { content, copy: permit.map(copy) });
                AnswerBody::Stream(Streamed { media_type, content })
            }
            body => body,
        };
        Answer { status, headers, body }
    }

    fn put(self, headers: Vec<Header>, text: &[u8]) {
        let Self { answers, request, ledger, at } = self;
        let bytes = text.len() + request.text.len() + OVERHEAD;
        if bytes <= LONGEST {
            // A copy has no more room than it takes.
            let text = Bytes::copy_from_slice(text);
            answers.cached.put(request, bytes, Arc::new(Cached { ledger, at, headers, text }));
        }
    }
}

const JSON: &str = "application/json";

/// An answer that is copied while it is sent, and cached where all of it was.
struct Copied {
    content: Box<dyn Chunks>,
    /// Nothing where it is not cached.
    copy: Option<PartialCopy>,
}

/// What was sent of an answer so far, and where all of it goes.
struct PartialCopy {
    slot: Slot,
    headers: Vec<Header>,
    text: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

#[async_trait]
impl Chunks for Copied {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        // One that breaks off here is not cached.
        let copy = self.copy.take();
        let piece = self.content.next().await?;
        match (&piece, copy) {
            (Some(piece), Some(mut copy)) if copy.text.len() + piece.len() <= LONGEST => {
                copy.text.extend_from_slice(piece);
                self.copy = Some(copy);
            }
            (None, Some(PartialCopy { slot, headers, text, .. })) => slot.put(headers, &text),
            (_, Some(_) | None) => {}
        }
        Ok(piece)
    }
}
