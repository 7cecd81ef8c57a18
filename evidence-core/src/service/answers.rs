//! The cache of answers, each of which is valid until the ledger of its organization grows.

use std::collections::BTreeMap;
use std::mem::replace;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

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

/// So many answers are copied at a time while they are sent, and so many of one organization.
const MAX_COPIES: usize = 64;
const MAX_COPIES_OF_ORG: usize = 16;

/// A copy that takes longer makes room for the next: it ends when its client has read the answer.
const MAX_COPYING: Duration = Duration::from_secs(1);

/// How long a request waits for an equal one whose answer it may share: most are made sooner, and one whose client reads slowly
/// holds up nobody for longer.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// Answers by request; nothing where none is cached.
pub(super) struct AnswerCache(Option<Arc<Answers>>);

struct Answers {
    heads: Coalescer<Id, Head>,
    cached: Cache<Request, Cached>,
    /// The answers that are being made, and a channel for each that closes when it is there, or will not be.
    pending: Mutex<BTreeMap<Version, watch::Receiver<()>>>,
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
    _pending: Option<Pending>,
}

/// An answer that is being made, for which equal requests wait until this is dropped.
struct Pending {
    answers: Arc<Answers>,
    version: Version,
    _closes: watch::Sender<()>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        locked(&self.answers.pending).remove(&self.version);
    }
}

impl Answers {
    /// The cached answer to this request, if the ledger is what it was then.
    fn hit(&self, request: &Request, ledger: (u64, Hash), now: Timestamp) -> Option<Answer> {
        let cached = self.cached.get(request).filter(|cached| {
            let age = now.as_micros().checked_sub(cached.at.as_micros());
            let age = age.and_then(|age| u64::try_from(age).ok()).map(Duration::from_micros);
            cached.ledger == ledger && age.is_some_and(|age| age < self.ttl)
        })?;
        let body = AnswerBody::Json(cached.text.clone());
        Some(Answer { headers: cached.headers.clone(), ..Answer::of(body) })
    }

    /// What equal requests wait for from now on. `None` where another is being answered: once that has its answer, or was waited
    /// for long enough.
    async fn begin(self: &Arc<Self>, version: Version) -> Option<Pending> {
        let mut other = {
            let mut pending = locked(&self.pending);
            let Some(other) = pending.get(&version) else {
                let (closes, closed) = watch::channel(());
                pending.insert(version.clone(), closed);
                return Some(Pending { answers: Arc::clone(self), version, _closes: closes });
            };
            other.clone()
        };
        // A timer takes a Tokio runtime.
        if Handle::try_current().is_ok() {
            timeout(MAX_WAIT, other.changed()).await.ok();
        }
        None
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
            pending: Mutex::default(),
            ttl,
            copies: Copies::default(),
        };
        Self((bytes > 0 && !ttl.is_zero()).then(|| Arc::new(answers())))
    }

    /// The answer that was made to this request, if the ledger is what it was then: one query, which is shared by all that
    /// ask about this organization while another such query is on its way. Where an equal request is being answered, that
    /// answer is waited for.
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
        let request = Request { operation, org: place.org, role: place.role, text: request.to_owned() };
        // Time passes while the head is read.
        let at = clock.now();
        if let Some(answer) = answers.hit(&request, ledger, at) {
            return Ok(Lookup::Hit(answer));
        }
        let pending = answers.begin((request.clone(), ledger)).await;
        let now = clock.now();
        if pending.is_none()
            && let Some(answer) = answers.hit(&request, ledger, now)
        {
            return Ok(Lookup::Hit(answer));
        }
        Ok(Lookup::Miss(Slot { answers: Arc::clone(answers), request, ledger, at: now, _pending: pending }))
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
                let answers = Arc::clone(&self.answers);
                let copy = PartialCopy { slot: self, headers: headers.clone(), text: Vec::new() };
                let content =
                    Box::new(Copied { content, copy: answers.copies.begin(copy), is_reading: false });
                AnswerBody::Stream(Streamed { media_type, content })
            }
            body => body,
        };
        Answer { status, headers, body }
    }

    fn put(self, headers: Vec<Header>, text: &[u8]) {
        let Self { answers, request, ledger, at, _pending } = self;
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
    copy: Copy,
    /// Whether a piece is being read, or was not read to its end.
    is_reading: bool,
}

/// Nothing where it is not cached.
type Copy = Arc<Mutex<Option<PartialCopy>>>;

/// What was sent of an answer so far, and where all of it goes.
struct PartialCopy {
    slot: Slot,
    headers: Vec<Header>,
    text: Vec<u8>,
}

/// The copies that were begun, oldest first. Some have ended.
#[derive(Default)]
struct Copies(Mutex<Vec<BegunCopy>>);

struct BegunCopy {
    at: Instant,
    org: Id,
    copy: Weak<Mutex<Option<PartialCopy>>>,
}

impl Copies {
    /// Begins this copy, in the place of one that takes long if there are too many; else it is not made.
    fn begin(&self, copy: PartialCopy) -> Copy {
        let (at, org) = (Instant::now(), copy.slot.request.org);
        let copy = Arc::new(Mutex::new(Some(copy)));
        let mut begun = locked(&self.0);
        begun.retain(|one| one.copy.upgrade().is_some_and(|copy| locked(&copy).is_some()));
        let has_many = begun.iter().filter(|one| one.org == org).count() >= MAX_COPIES_OF_ORG;
        if has_many || begun.len() >= MAX_COPIES {
            let gives_way =
                |one: &BegunCopy| at.duration_since(one.at) > MAX_COPYING && (one.org == org || !has_many);
            let Some(slow) = begun.iter().position(gives_way) else { return Copy::default() };
            if let Some(slow) = begun.remove(slow).copy.upgrade() {
                locked(&slow).take();
            }
        }
        begun.push(BegunCopy { at, org, copy: Arc::downgrade(&copy) });
        copy
    }
}

#[async_trait]
impl Chunks for Copied {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        if replace(&mut self.is_reading, true) {
            // It has not all of what was read.
            locked(&self.copy).take();
        }
        let piece = self.content.next().await?;
        self.is_reading = false;
        let mut place = locked(&self.copy);
        match (&piece, place.take()) {
            (Some(piece), Some(mut copy)) if copy.text.len() + piece.len() <= LONGEST => {
                copy.text.extend_from_slice(piece);
                *place = Some(copy);
            }
            (None, Some(PartialCopy { slot, headers, text })) => slot.put(headers, &text),
            (_, Some(_) | None) => {}
        }
        drop(place);
        Ok(piece)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is half written when a holder of the lock panics.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::pending;
    use tokio::time::advance;

    use super::*;

    const PIECES: [&str; 3] = ["[1", ",2", "]"];

    /// An answer in pieces, of which one does not come at first.
    struct Pieces {
        left: Vec<&'static str>,
        waits: bool,
    }

    #[async_trait]
    impl Chunks for Pieces {
        async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
            if std::mem::take(&mut self.waits) {
                self.left.pop();
                pending::<()>().await;
            }
            Ok(self.left.pop().map(|piece| Bytes::from_static(piece.as_bytes())))
        }
    }

    /// A request that is being answered.
    struct Asked {
        answers: Arc<Answers>,
        request: Request,
        answer: Box<dyn Chunks>,
    }

    const LEDGER: fn() -> (u64, Hash) = || (7, Hash::of(b""));

    impl Asked {
        async fn new(cache: &AnswerCache, org: u8, text: &str) -> Self {
            Self::of_pieces(cache, org, text, false).await
        }

        async fn of_pieces(cache: &AnswerCache, org: u8, text: &str, waits: bool) -> Self {
            let answers = Arc::clone(cache.0.as_ref().unwrap());
            let org = format!("00000000-0000-0000-0000-{org:08}").parse().unwrap();
            let request = Request { operation: "list", org, role: None, text: text.to_owned() };
            let pending = answers.begin((request.clone(), LEDGER())).await;
            let slot = Slot {
                answers: Arc::clone(&answers),
                request: request.clone(),
                ledger: LEDGER(),
                at: Timestamp::default(),
                _pending: pending,
            };
            let left = Vec::from_iter(PIECES.into_iter().rev());
            let content = Box::new(Pieces { left, waits });
            let answer =
                slot.fill(Answer::of(AnswerBody::Stream(Streamed { media_type: JSON.to_owned(), content })));
            let AnswerBody::Stream(Streamed { content: answer, .. }) = answer.body else { unreachable!() };
            Self { answers, request, answer }
        }

        async fn read(&mut self, pieces: usize) -> &mut Self {
            for _ in 0..pieces {
                self.answer.next().await.unwrap();
            }
            self
        }

        fn is_cached(&self) -> bool {
            let hit = self.answers.hit(&self.request, LEDGER(), Timestamp::default());
            hit.is_some_and(|answer| matches!(answer.body, AnswerBody::Json(text) if text == PIECES.concat()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn copies_that_take_long_keep_others_from_being_cached_for_no_more_than_a_second() {
        let cache = AnswerCache::new(&Settings::default());
        let mut slow = Vec::new();
        for number in 0..MAX_COPIES_OF_ORG {
            let mut asked = Asked::new(&cache, 1, &number.to_string()).await;
            asked.read(1).await;
            slow.push(asked);
        }
        let is_cached = async |org: u8, text: &str| {
            Asked::new(&cache, org, text).await.read(PIECES.len() + 1).await.is_cached()
        };
        assert!(!is_cached(1, "next").await, "the organization has as many as it may");
        assert!(is_cached(2, "next").await, "another has none");
        advance(MAX_COPYING * 2).await;
        assert!(is_cached(1, "next").await);
        let mut cached = Vec::new();
        for asked in &mut slow {
            cached.push(asked.read(PIECES.len()).await.is_cached());
        }
        assert!(!cached[0] && cached[1..].iter().all(|cached| *cached), "the oldest gave way: {cached:?}");
        assert!(locked(&cache.0.unwrap().pending).is_empty());
    }

    #[tokio::test]
    async fn what_broke_off_is_not_cached_and_nobody_waits_for_it() {
        let cache = AnswerCache::new(&Settings::default());
        let asked = Asked::new(&cache, 1, "list").await;
        let (answers, version) = (Arc::clone(&asked.answers), (asked.request.clone(), LEDGER()));
        assert!(answers.begin(version.clone()).now_or_never().is_none(), "it is being made");
        drop(asked.answer);
        assert!(answers.begin(version).now_or_never().flatten().is_some());

        let mut asked = Asked::of_pieces(&cache, 1, "list", true).await;
        assert!(asked.answer.next().now_or_never().is_none());
        asked.read(PIECES.len()).await;
        assert!(answers.cached.get(&asked.request).is_none());
    }
}
