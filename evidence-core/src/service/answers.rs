//! The cache of responses. A response is valid while the ledger of its organization has the same head.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use crate::auth::access::Access;
use crate::auth::actor::Role;
use crate::blobs::Chunks;
use crate::budget::Reservation;
use crate::cache::{self, Cache, Weigh};
use crate::coalesced::Coalescer;
use crate::error::Result;
use crate::id::Id;
use crate::ledger::Hash;
use crate::operation::{Answer, AnswerBody, Header, Streamed, Success};
use crate::settings::Settings;
use crate::store::Store;
use crate::store::error::StoreError;

/// A longer response is not cached, nor is one that takes more than half of the cache.
pub(super) const LONGEST: usize = 512 << 10;

/// Responses by request.
pub(crate) struct AnswerCache {
    /// `None` if the host caches no responses.
    cached: Option<Cache<Request, Cached>>,
    heads: Coalescer<Id, Head>,
    /// The longest response that is cached, in bytes.
    longest: usize,
    ttl: Duration,
}

/// The size and the root of an organization's ledger, or the reason why they are not known.
#[derive(Debug, Clone)]
enum Head {
    Known(u64, Hash),
    /// There is no ledger, or it cannot be read.
    Unknown,
    Unavailable(Arc<dyn std::error::Error + Send + Sync>),
}

async fn read_head(store: Arc<dyn Store>, org: Id) -> Head {
    match store.ledger_head(org).await {
        Ok(Some(ledger)) => Head::Known(ledger.size(), ledger.root()),
        Err(StoreError::Unavailable(why)) => Head::Unavailable(why.into()),
        // A damaged ledger does not prevent reads.
        Ok(None) | Err(_) => Head::Unknown,
    }
}

/// A request and everything else that its response depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Request {
    operation: &'static str,
    org: Id,
    role: Option<Role>,
    /// The path and the query.
    text: String,
    /// The size and the root of the organization's ledger, read after the request arrived and before the
    /// response is built.
    ledger: (u64, Hash),
}

/// A response, or the fact that the response to a request is not cached.
struct Cached {
    /// When its construction began.
    since: Instant,
    /// `None` if the response is an error, too long, or not JSON. Requests then do not wait for each other.
    response: Option<(Vec<Header>, Bytes)>,
    /// The length of the request's path and query.
    request: usize,
}

impl Weigh for Cached {
    fn bytes(&self) -> usize {
        let response = self.response.as_ref();
        let header = |header: &Header| size_of::<Header>() + header.value().len();
        let bytes =
            |(headers, text): &(Vec<Header>, Bytes)| headers.iter().map(header).sum::<usize>() + text.len();
        self.request + response.map_or(0, bytes)
    }
}

/// The result of a look-up.
pub(super) enum Lookup<'c> {
    /// The response.
    Hit(Answer),
    /// The place of the response, which the caller builds. Equal requests wait for it.
    Miss(Slot<'c>),
    /// The response is not cached.
    Bypass,
}

/// The place of a response that is not cached yet. If it is dropped, an equal request that waits builds the
/// response.
pub(super) struct Slot<'c> {
    slot: cache::Slot<'c, Request, Cached>,
    since: Instant,
    longest: usize,
}

impl AnswerCache {
    /// Creates an empty cache.
    pub(super) fn new(settings: &Settings) -> Self {
        let Settings { answer_cache_bytes: bytes, cache_ttl: ttl, .. } = *settings;
        let cached = (bytes > 0 && !ttl.is_zero()).then(|| Cache::new(bytes));
        Self { cached, heads: Coalescer::default(), longest: LONGEST.min(bytes / 2), ttl }
    }

    /// Looks up the response to a request. Runs one query, for the head of the ledger, which concurrent requests of
    /// the organization share. If an equal request is being answered, waits up to a second for its response.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the head cannot be read, because the operation would wait for the store again.
    pub(super) async fn look_up(
        &self,
        (operation, request): (&'static str, &str),
        access: &Access,
        store: &Arc<dyn Store>,
    ) -> Result<Lookup<'_>> {
        let (Some(cached), Some(place)) = (&self.cached, &access.org_access) else {
            return Ok(Lookup::Bypass);
        };
        let head = self.heads.run(place.org, || read_head(Arc::clone(store), place.org));
        let ledger = match head.await {
            Head::Known(size, root) => (size, root),
            Head::Unknown => return Ok(Lookup::Bypass),
            Head::Unavailable(why) => return Err(StoreError::Unavailable(why.into()).into()),
        };
        let text = request.to_owned();
        let request = Request { operation, org: place.org, role: place.role, text, ledger };
        let holds = |cached: &Cached| cached.since.elapsed() < self.ttl;
        Ok(match cached.look_up(request, holds).await {
            cache::Lookup::Hit(cached) => match &cached.response {
                Some((headers, text)) => {
                    let body = AnswerBody::Json(text.clone());
                    Lookup::Hit(Answer { headers: headers.clone(), ..Answer::of(body) })
                }
                None => Lookup::Bypass,
            },
            cache::Lookup::Miss(slot) => {
                Lookup::Miss(Slot { slot, since: Instant::now(), longest: self.longest })
            }
        })
    }
}

impl Slot<'_> {
    /// Caches a response if it is JSON and not too long, and returns it. Reads a streamed one into memory until
    /// it ends or is too long. `reserve` reserves the memory of [`LONGEST`] bytes for that. Without it, the response is
    /// returned as it is. A response that was read holds its memory until it is sent.
    pub(super) async fn fill(self, answer: Answer, reserve: impl FnOnce() -> Option<Reservation>) -> Answer {
        let Answer { status, headers, body } = answer;
        let body = match (body, status) {
            (AnswerBody::Json(text), Success::Ok) if text.len() <= self.longest => {
                // The copy has no spare capacity.
                self.put(Some((headers.clone(), Bytes::copy_from_slice(&text))));
                AnswerBody::Json(text)
            }
            (AnswerBody::Stream(Streamed { media_type, content }), Success::Ok) if media_type == JSON => {
                let Some(memory) = reserve() else {
                    // Another request may get memory, so this one leaves its slot.
                    return Answer {
                        status,
                        headers,
                        body: AnswerBody::Stream(Streamed { media_type, content }),
                    };
                };
                match Buffered::read(content, self.longest, memory).await {
                    Ok((text, memory)) => {
                        self.put(Some((headers.clone(), text.clone())));
                        let answer = Answer { status, headers, body: AnswerBody::Json(text) };
                        return answer.with_reservations(vec![memory]);
                    }
                    Err(buffered) => {
                        self.uncacheable();
                        AnswerBody::Stream(Streamed { media_type, content: Box::new(buffered) })
                    }
                }
            }
            (body, _) => {
                self.uncacheable();
                body
            }
        };
        Answer { status, headers, body }
    }

    /// Records that the response is not cached, so that equal requests do not wait.
    pub(super) fn uncacheable(self) {
        self.put(None);
    }

    fn put(self, response: Option<(Vec<Header>, Bytes)>) {
        let request = self.slot.key().text.len();
        self.slot.fill(Cached { since: self.since, response, request });
    }
}

/// A streamed response whose beginning was read into memory.
struct Buffered {
    pieces: VecDeque<Bytes>,
    /// The error of the first piece that could not be read.
    error: Option<io::Error>,
    rest: Box<dyn Chunks>,
    /// The memory of the pieces, until all of them are sent.
    memory: Option<Reservation>,
}

impl Buffered {
    /// Reads a response of at most this many bytes, and returns its text with the memory of that. Returns a longer or
    /// broken one as a stream.
    async fn read(
        mut content: Box<dyn Chunks>,
        longest: usize,
        mut memory: Reservation,
    ) -> Result<(Bytes, Reservation), Self> {
        let (mut pieces, mut bytes, mut error) = (VecDeque::new(), 0, None);
        while bytes <= longest && error.is_none() {
            match content.next().await {
                Ok(Some(piece)) => {
                    bytes += piece.len();
                    pieces.push_back(piece);
                }
                Ok(None) => {
                    memory.shrink(bytes as u64);
                    return Ok((Vec::from(pieces).concat().into(), memory));
                }
                Err(broken) => error = Some(broken),
            }
        }
        Err(Self { pieces, error, rest: content, memory: Some(memory) })
    }
}

#[async_trait]
impl Chunks for Buffered {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(piece) = self.pieces.pop_front() {
            return Ok(Some(piece));
        }
        self.memory = None;
        match self.error.take() {
            Some(error) => Err(error),
            None => self.rest.next().await,
        }
    }
}

const JSON: &str = "application/json";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::FairBudget;

    const PIECES: [&str; 3] = ["[1", ",2", "]"];

    /// A response in pieces. After them it ends, or fails.
    struct Pieces {
        left: VecDeque<&'static str>,
        fails: bool,
    }

    #[async_trait]
    impl Chunks for Pieces {
        async fn next(&mut self) -> io::Result<Option<Bytes>> {
            match self.left.pop_front() {
                None if self.fails => Err(io::Error::other("damaged")),
                piece => Ok(piece.map(|piece| Bytes::from_static(piece.as_bytes()))),
            }
        }
    }

    fn stream(pieces: impl IntoIterator<Item = &'static str>, fails: bool) -> Answer {
        let content = Box::new(Pieces { left: pieces.into_iter().collect(), fails });
        Answer::of(AnswerBody::Stream(Streamed { media_type: JSON.to_owned(), content }))
    }

    /// Returns the text of a response up to its end or an error, and whether there was one.
    async fn text(answer: Answer) -> (String, bool) {
        let mut all = Vec::new();
        match answer.body {
            AnswerBody::Json(text) => all.extend(text),
            AnswerBody::Stream(Streamed { mut content, .. }) => loop {
                match content.next().await {
                    Ok(Some(piece)) => all.extend(piece),
                    Ok(None) => break,
                    Err(_) => return (String::from_utf8(all).unwrap(), true),
                }
            },
            body => panic!("{body:?}"),
        }
        (String::from_utf8(all).unwrap(), false)
    }

    fn cache() -> AnswerCache {
        AnswerCache::new(&Settings::default())
    }

    /// Looks up a request at this size of the ledger.
    async fn look_up(answers: &AnswerCache, size: u64) -> cache::Lookup<'_, Request, Cached> {
        let org = "00000000-0000-0000-0000-00000001".parse().unwrap();
        let ledger = (size, Hash::of(b""));
        let request = Request { operation: "list", org, role: None, text: "/list".to_owned(), ledger };
        answers.cached.as_ref().unwrap().look_up(request, |_| true).await
    }

    async fn slot_at(answers: &AnswerCache, size: u64) -> Slot<'_> {
        let cache::Lookup::Miss(slot) = look_up(answers, size).await else { panic!("it is cached") };
        Slot { slot, since: Instant::now(), longest: answers.longest }
    }

    async fn slot(answers: &AnswerCache) -> Slot<'_> {
        slot_at(answers, 7).await
    }

    /// Returns the cached text, or `None` if it is known that the response is not cached.
    async fn cached(answers: &AnswerCache) -> Option<Bytes> {
        let cache::Lookup::Hit(cached) = look_up(answers, 7).await else { panic!("nothing is known") };
        cached.response.as_ref().map(|(_, text)| text.clone())
    }

    #[tokio::test]
    async fn a_list_is_cached_when_all_of_it_was_read() {
        let (answers, budget) = (cache(), FairBudget::new(4 << 20));
        let memory = budget.try_reserve(None, 1000);
        let answer = slot(&answers).await.fill(stream(PIECES, false), || memory).await;
        assert_eq!(cached(&answers).await.unwrap(), PIECES.concat());
        assert_eq!(budget.used(), PIECES.concat().len() as u64, "until it is sent");
        assert_eq!((text(answer).await, budget.used()), ((PIECES.concat(), false), 0));
    }

    #[tokio::test]
    async fn a_list_that_is_too_long_or_broken_is_sent_and_not_cached() {
        let long = || vec!["0123456789"; LONGEST / 10 + 7];
        for (pieces, fails) in [(long(), false), (long(), true), (PIECES.to_vec(), true), (vec![], true)] {
            let (answers, budget) = (cache(), FairBudget::new(4 << 20));
            let memory = budget.try_reserve(None, 1000);
            let answer = slot(&answers).await.fill(stream(pieces.clone(), fails), || memory).await;
            assert_eq!((cached(&answers).await, budget.used()), (None, 1000));
            assert_eq!((text(answer).await, budget.used()), ((pieces.concat(), fails), 0));
        }
    }

    #[tokio::test]
    async fn without_memory_a_list_is_sent_as_it_is_read_and_another_may_cache_it() {
        let answers = cache();
        let answer = slot(&answers).await.fill(stream(PIECES, false), || None).await;
        assert!(matches!(answer.body, AnswerBody::Stream(_)));
        assert_eq!(text(answer).await, (PIECES.concat(), false));
        slot(&answers).await;
    }

    #[tokio::test]
    async fn other_responses_than_short_json_are_not_cached() {
        let memory = || FairBudget::new(4 << 20).try_reserve(None, 1000);
        let csv = AnswerBody::Stream(Streamed {
            media_type: "text/csv".to_owned(),
            content: Box::new(Pieces { left: VecDeque::new(), fails: false }),
        });
        let long = AnswerBody::Json(vec![b' '; LONGEST + 1].into());
        let created = Answer { status: Success::Created, ..Answer::of(AnswerBody::Json(Bytes::new())) };
        for answer in [Answer::of(csv), Answer::of(long), created] {
            let answers = cache();
            slot(&answers).await.fill(answer, memory).await;
            assert_eq!(cached(&answers).await, None);
        }
        let small = AnswerCache::new(&Settings { answer_cache_bytes: 4000, ..Settings::default() });
        slot(&small).await.fill(Answer::of(AnswerBody::Json(vec![b' '; 2001].into())), || None).await;
        assert_eq!(cached(&small).await, None, "it takes more than half of the cache");
    }

    #[test]
    fn a_cache_without_room_or_time_is_none() {
        for (bytes, ttl) in [(0, Duration::from_secs(1)), (1000, Duration::ZERO)] {
            let settings = Settings { answer_cache_bytes: bytes, cache_ttl: ttl, ..Settings::default() };
            assert!(AnswerCache::new(&settings).cached.is_none());
        }
    }

    #[tokio::test]
    async fn all_cached_responses_fit_in_the_budget() {
        const BUDGET: usize = 1 << 20;
        let answers = AnswerCache::new(&Settings { answer_cache_bytes: BUDGET, ..Settings::default() });
        let cached = answers.cached.as_ref().unwrap();
        for size in 0..100_u64 {
            let slot = slot_at(&answers, size).await;
            slot.fill(Answer::of(AnswerBody::Json(vec![b' '; 100 << 10].into())), || None).await;
            assert!(cached.bytes() <= BUDGET as u64, "after {size}");
        }
        assert!(cached.bytes() > BUDGET as u64 / 2);
    }
}
