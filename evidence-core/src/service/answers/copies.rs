//! Answers that are copied while they are sent, to be cached.

use std::collections::BTreeMap;
use std::mem::replace;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use super::Slot;
use crate::blobs::Chunks;
use crate::id::Id;
use crate::lock::locked;
use crate::operation::Header;

/// So many answers are copied at a time, and so many on behalf of one organization, or of one caller from outside
/// ([`Access::on_behalf_of`](crate::auth::access::Access::on_behalf_of)).
const MAX_COPIES: usize = 32;
const MAX_COPIES_OF_ONE: usize = 16;

/// A copy gives way to the next if no piece of it was taken for so long.
const MAX_STALL: Duration = Duration::from_secs(1);

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
    pieces: Vec<Bytes>,
    bytes: usize,
    /// When the last piece was taken.
    at: Instant,
}

/// The copies that were begun, oldest first. Some have ended.
#[derive(Default)]
pub(super) struct Copies(Mutex<Vec<BegunCopy>>);

struct BegunCopy {
    /// Whose share it is.
    of: Option<Id>,
    copy: Weak<Mutex<Option<PartialCopy>>>,
}

impl BegunCopy {
    /// When its last piece was taken, if it did not end.
    fn at(&self) -> Option<Instant> {
        let copy = self.copy.upgrade()?;
        locked(&copy).as_ref().map(|copy| copy.at)
    }
}

impl Copies {
    /// The same answer, copied for this slot while it is sent.
    pub(super) fn copied(
        &self,
        content: Box<dyn Chunks>,
        slot: Slot,
        headers: Vec<Header>,
    ) -> Box<dyn Chunks> {
        let copy =
            self.begin(PartialCopy { slot, headers, pieces: Vec::new(), bytes: 0, at: Instant::now() });
        Box::new(Copied { content, copy, is_reading: false })
    }

    /// Begins this copy, if there are not too many, or one of them gives way.
    fn begin(&self, copy: PartialCopy) -> Copy {
        let of = copy.slot.on_behalf_of;
        let copy = Arc::new(Mutex::new(Some(copy)));
        let mut begun = locked(&self.0);
        begun.retain(|one| one.at().is_some());
        let Some(room) = room(&begun, of) else {
            drop(begun);
            let ended = locked(&copy).take();
            // One of those who wait may have room by then: a share of its own, or that of a copy that has ended.
            drop(ended);
            return copy;
        };
        let gives_way = room.and_then(|place| begun.remove(place).copy.upgrade());
        begun.push(BegunCopy { of, copy: Arc::downgrade(&copy) });
        drop(begun);
        let ended = gives_way.and_then(|copy| locked(&copy).take());
        // Those who wait for it are woken without the locks.
        drop(ended);
        copy
    }
}

/// The place of the one that gives way to another of this share, if one has to; nothing where there is no room.
fn room(begun: &[BegunCopy], of: Option<Id>) -> Option<Option<usize>> {
    let mut counts = BTreeMap::from([(of, 0)]);
    for one in begun {
        *counts.entry(one.of).or_insert(0) += 1;
    }
    let own = counts[&of];
    let stalled = |one: &BegunCopy| one.at().is_none_or(|at| at.elapsed() > MAX_STALL);
    if own >= MAX_COPIES_OF_ONE {
        return begun.iter().position(|one| one.of == of && stalled(one)).map(Some);
    }
    if begun.len() < MAX_COPIES {
        return Some(None);
    }
    // Who has most gives way to who has less.
    let most = counts.into_iter().filter(|(_, count)| *count > own + 1).max_by_key(|(_, count)| *count);
    let of_most = |one: &BegunCopy| most.is_some_and(|(greedy, _)| one.of == greedy);
    begun.iter().position(stalled).or_else(|| begun.iter().position(of_most)).map(Some)
}

#[async_trait]
impl Chunks for Copied {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        if replace(&mut self.is_reading, true) {
            // It has not all of what was read.
            let left = locked(&self.copy).take();
            drop(left);
        }
        let piece = self.content.next().await?;
        self.is_reading = false;
        let mut place = locked(&self.copy);
        let ended = match (&piece, &mut *place) {
            (Some(piece), Some(copy)) if copy.slot.takes(copy.bytes + piece.len()) => {
                // It has no more room than it takes.
                copy.pieces.push(Bytes::copy_from_slice(piece));
                copy.bytes += piece.len();
                copy.at = Instant::now();
                None
            }
            (_, copy) => copy.take(),
        };
        drop(place);
        match (&piece, ended) {
            (Some(_), Some(copy)) => copy.slot.uncacheable(),
            (None, Some(PartialCopy { slot, headers, pieces, .. })) => {
                slot.put(headers, pieces.concat().into());
            }
            (_, None) => {}
        }
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::{BoxFuture, pending};
    use tokio::time::advance;

    use super::super::{AnswerCache, Answers, Cached, Joined, OVERHEAD, Request, Version};
    use super::*;
    use crate::ledger::Hash;
    use crate::operation::{Answer, AnswerBody, Streamed};
    use crate::service::Settings;

    const PIECES: [&str; 3] = ["[1", ",2", "]"];

    /// An answer in pieces, of which one does not come at first, or fails.
    struct Pieces {
        left: Vec<&'static str>,
        waits: bool,
        fails: bool,
    }

    impl Pieces {
        fn new(waits: bool) -> Self {
            Self { left: PIECES.into_iter().rev().collect(), waits, fails: false }
        }
    }

    #[async_trait]
    impl Chunks for Pieces {
        async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
            if std::mem::take(&mut self.waits) {
                self.left.pop();
                pending::<()>().await;
            }
            if std::mem::take(&mut self.fails) {
                self.left.pop();
                return Err(std::io::Error::other("damaged"));
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

    fn ledger(size: u64) -> (u64, Hash) {
        (size, Hash::of(b""))
    }

    fn id(number: u8) -> Id {
        format!("00000000-0000-0000-0000-{number:08}").parse().unwrap()
    }

    /// For the answer to this request, which others wait for if none does yet.
    fn slot(answers: &Arc<Answers>, of: u8, text: &str, size: u64) -> Slot {
        let request = Request { operation: "list", org: id(1), role: None, text: text.to_owned() };
        let joined = answers.flights.join((request.clone(), ledger(size))).now_or_never();
        Slot {
            answers: Arc::clone(answers),
            request,
            ledger: ledger(size),
            since: Instant::now(),
            on_behalf_of: Some(id(of)),
            _leader: match joined {
                Some(Joined::Leader(leader)) => Some(leader),
                _ => None,
            },
        }
    }

    impl Asked {
        /// Of organization 1.
        fn new(cache: &AnswerCache, of: u8, text: &str) -> Self {
            Self::with(cache, of, text, Pieces::new(false), 7)
        }

        fn with(cache: &AnswerCache, of: u8, text: &str, pieces: Pieces, size: u64) -> Self {
            let answers = Arc::clone(cache.0.as_ref().unwrap());
            Self::of(slot(&answers, of, text, size), pieces)
        }

        fn of(slot: Slot, pieces: Pieces) -> Self {
            let (answers, request) = (Arc::clone(&slot.answers), slot.request.clone());
            let answer = answers.copies.copied(Box::new(pieces), slot, Vec::new());
            Self { answers, request, answer }
        }

        async fn read(&mut self, pieces: usize) -> &mut Self {
            for _ in 0..pieces {
                self.answer.next().await.unwrap();
            }
            self
        }

        async fn read_all(&mut self) -> &mut Self {
            while self.answer.next().await.unwrap().is_some() {}
            self
        }

        fn is_cached(&self) -> bool {
            self.answers.cached.get(&self.request).is_some_and(|cached| cached.text == PIECES.concat())
        }
    }

    async fn is_cached(cache: &AnswerCache, of: u8, text: &str) -> bool {
        Asked::new(cache, of, text).read_all().await.is_cached()
    }

    /// So many of which one piece is read.
    async fn begin(cache: &AnswerCache, of: u8, copies: usize) -> Vec<Asked> {
        let mut begun = Vec::new();
        for number in 0..copies {
            let mut asked = Asked::new(cache, of, &format!("{of} {number}"));
            asked.read(1).await;
            begun.push(asked);
        }
        begun
    }

    #[tokio::test(start_paused = true)]
    async fn copies_of_one_share_keep_no_other_from_being_cached_and_those_that_stall_give_way() {
        let cache = AnswerCache::new(&Settings::default());
        let mut others = begin(&cache, 2, 1).await;
        advance(MAX_STALL * 2).await;
        let mut slow = begin(&cache, 1, MAX_COPIES_OF_ONE).await;
        assert!(!is_cached(&cache, 1, "next").await, "it has as many as it may");
        assert!(is_cached(&cache, 3, "next of another").await);
        advance(MAX_STALL / 2).await;
        for asked in &mut slow[1..] {
            asked.read(1).await;
        }
        advance(MAX_STALL * 3 / 4).await;
        assert!(is_cached(&cache, 1, "next").await);
        let mut cached = Vec::new();
        for asked in slow.iter_mut().chain(&mut others) {
            cached.push(asked.read_all().await.is_cached());
        }
        assert!(!cached[0], "no piece of it was taken");
        assert!(cached[1..].iter().all(|cached| *cached), "{cached:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_most_copies_gives_way_where_there_are_too_many() {
        let cache = AnswerCache::new(&Settings::default());
        let mut begun = begin(&cache, 1, MAX_COPIES_OF_ONE).await;
        begun.extend(begin(&cache, 2, MAX_COPIES - MAX_COPIES_OF_ONE - 1).await);
        begun.extend(begin(&cache, 3, 1).await);
        assert!(is_cached(&cache, 4, "next").await);
        let mut lost = Vec::new();
        for (number, asked) in begun.iter_mut().enumerate() {
            if !asked.read_all().await.is_cached() {
                lost.push(number);
            }
        }
        assert_eq!(lost, [0], "the oldest of the first");

        let mut begun = Vec::new();
        for of in 0..MAX_COPIES {
            begun.extend(begin(&cache, 100 + u8::try_from(of).unwrap(), 1).await);
        }
        assert!(!is_cached(&cache, 4, "next but one").await, "none has more than this would");
        for asked in &mut begun {
            assert!(asked.read_all().await.is_cached());
        }
    }

    #[tokio::test]
    async fn what_broke_off_is_not_cached() {
        let cache = AnswerCache::new(&Settings::default());
        let mut asked = Asked::with(&cache, 1, "list", Pieces::new(true), 7);
        assert!(asked.answer.next().now_or_never().is_none());
        assert!(!asked.read_all().await.is_cached());
    }

    /// Three that wait for an answer.
    struct Waiting(Vec<BoxFuture<'static, Joined<Version, Arc<Cached>>>>);

    /// What came to those who waited: the answer, to make it, to make it each alone, or nothing yet.
    #[derive(Debug, PartialEq, Eq)]
    enum Came {
        Shared,
        HandedOn,
        Alone,
        Nothing,
    }

    impl Waiting {
        fn for_slot(slot: &Slot) -> Self {
            let join = |_| {
                let (flights, key) = (Arc::clone(&slot.answers.flights), (slot.request.clone(), slot.ledger));
                async move { flights.join(key).await }.boxed()
            };
            let mut waiting = Self((0..3).map(join).collect());
            assert_eq!(waiting.came(), Came::Nothing);
            waiting
        }

        fn came(&mut self) -> Came {
            let came = Vec::from_iter(self.0.iter_mut().map(FutureExt::now_or_never));
            match &came[..] {
                [None, None, None] => Came::Nothing,
                [Some(Joined::Leader(_)), None, None] => Came::HandedOn,
                [Some(Joined::Shared(_)), Some(Joined::Shared(_)), Some(Joined::Shared(_))] => Came::Shared,
                [Some(Joined::Alone), Some(Joined::Alone), Some(Joined::Alone)] => Came::Alone,
                _ => panic!("not all of them came to the same, or more than one makes it"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_answer_has_it_or_makes_it_or_waits_no_longer() {
        let cache = AnswerCache::new(&Settings::default());
        let answers = cache.0.as_ref().unwrap();
        let asked = || {
            let slot = slot(answers, 1, "list", 7);
            let waiting = Waiting::for_slot(&slot);
            (Asked::of(slot, Pieces::new(false)), waiting)
        };
        for (pieces, expected) in [(0, Came::HandedOn), (1, Came::HandedOn), (4, Came::Shared)] {
            let (mut asked, mut waiting) = asked();
            asked.read(pieces).await;
            drop(asked);
            assert_eq!(waiting.came(), expected, "after {pieces} pieces, the last of which is the end");
        }

        let slot_half_read = slot(answers, 1, "half read", 7);
        let mut waiting = Waiting::for_slot(&slot_half_read);
        let mut half_read = Asked::of(slot_half_read, Pieces::new(true));
        assert!(half_read.answer.next().now_or_never().is_none());
        half_read.read(1).await;
        assert_eq!(waiting.came(), Came::HandedOn, "a piece is missing");

        let failed = slot(answers, 1, "failed", 7);
        let mut waiting = Waiting::for_slot(&failed);
        let mut failed = Asked::of(failed, Pieces { fails: true, ..Pieces::new(false) });
        assert!(failed.answer.next().await.is_err());
        failed.read_all().await;
        assert_eq!(
            (waiting.came(), failed.is_cached()),
            (Came::HandedOn, false),
            "a piece could not be read"
        );

        let mut begun = vec![];
        let (oldest, mut waiting) = asked();
        begun.extend(begin(&cache, 1, MAX_COPIES_OF_ONE - 1).await);
        let full = slot(answers, 1, "next", 7);
        let mut no_room = Waiting::for_slot(&full);
        let full = Asked::of(full, Pieces::new(false));
        assert_eq!(no_room.came(), Came::HandedOn, "others may have room");
        begun.extend(begin(&cache, 2, MAX_COPIES - MAX_COPIES_OF_ONE - 1).await);
        begun.extend(begin(&cache, 3, 1).await);
        assert_eq!(waiting.came(), Came::Nothing);
        begun.extend(begin(&cache, 4, 1).await);
        assert_eq!(waiting.came(), Came::HandedOn, "it gave way");
        drop((oldest, full, begun));

        let not_json = slot(answers, 1, "csv", 7);
        let mut waiting = Waiting::for_slot(&not_json);
        let body = AnswerBody::Stream(Streamed {
            media_type: "text/csv".to_owned(),
            content: Box::new(Pieces::new(false)),
        });
        not_json.fill(Answer::of(body));
        assert_eq!(waiting.came(), Came::Alone);

        let small = AnswerCache::new(&Settings { answer_cache_bytes: OVERHEAD, ..Settings::default() });
        let too_long = slot(small.0.as_ref().unwrap(), 1, "list", 7);
        let mut waiting = Waiting::for_slot(&too_long);
        Asked::of(too_long, Pieces::new(false)).read(1).await;
        assert_eq!(waiting.came(), Came::Alone);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_sent_for_longer_than_it_holds_is_for_nobody() {
        let settings = Settings::default();
        let cache = AnswerCache::new(&settings);
        let answers = cache.0.as_ref().unwrap();
        let mut slow = Asked::new(&cache, 1, "list");
        slow.read(3).await;
        advance(settings.cache_ttl).await;
        let next = slot(answers, 1, "list", 7);
        let mut waiting = Waiting::for_slot(&next);
        assert!(!slow.read_all().await.is_cached());
        assert_eq!(waiting.came(), Came::Nothing);
        drop(next);
        assert_eq!(waiting.came(), Came::HandedOn);
    }

    #[tokio::test(start_paused = true)]
    async fn who_makes_an_answer_alone_shares_it_too() {
        let cache = AnswerCache::new(&Settings::default());
        let answers = cache.0.as_ref().unwrap();
        let stalled = slot(answers, 1, "list", 7);
        let alone = slot(answers, 1, "list", 7);
        assert!(alone._leader.is_none());
        let mut waiting = Waiting::for_slot(&stalled);
        Asked::of(alone, Pieces::new(false)).read_all().await;
        assert_eq!(waiting.came(), Came::Shared);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_a_shorter_ledger_or_begun_earlier_does_not_take_the_place_of_a_later_one() {
        let settings = Settings::default();
        let cache = AnswerCache::new(&settings);
        let answers = cache.0.as_ref().unwrap();
        let mut begun = Vec::new();
        for size in [7, 8, 8, 8, 7] {
            let slot = slot(answers, 1, "list", size);
            let since = slot.since;
            begun.push((Asked::of(slot, Pieces::new(false)), since));
            advance(Duration::from_millis(1)).await;
        }
        let request = begun[0].0.request.clone();
        let cached = || answers.cached.get(&request).unwrap().since;
        for (ends, expected) in [(2, 2), (1, 2), (0, 2), (3, 3), (4, 3)] {
            begun[ends].0.read_all().await;
            assert_eq!(cached(), begun[expected].1, "after number {ends}");
        }
        advance(settings.cache_ttl).await;
        let restored = slot(answers, 1, "list", 7);
        let since = restored.since;
        Asked::of(restored, Pieces::new(false)).read_all().await;
        assert_eq!(cached(), since, "of the database as it was restored");
    }

    #[tokio::test]
    async fn what_was_too_long_once_keeps_no_later_answer_from_being_cached() {
        let bytes = 128 * OVERHEAD;
        let cache = AnswerCache::new(&Settings { answer_cache_bytes: bytes, ..Settings::default() });
        let answers = cache.0.as_ref().unwrap();
        let long = || Pieces { left: vec!["0123456789"; bytes / 10], ..Pieces::new(false) };
        let before = slot(answers, 1, "list", 7);
        Asked::with(&cache, 1, "list", Pieces::new(false), 8).read_all().await;
        for (slot, expected) in [(before, false), (slot(answers, 1, "list", 8), true)] {
            let mut asked = Asked::of(slot, long());
            asked.read_all().await;
            assert_eq!(answers.uncacheable.get(&asked.request).is_some(), expected);
        }
    }

    #[tokio::test]
    async fn what_takes_more_than_half_of_the_cache_is_not_copied() {
        for (bytes, expected) in [(4 * (OVERHEAD + 10), true), (OVERHEAD, false)] {
            let cache = AnswerCache::new(&Settings { answer_cache_bytes: bytes, ..Settings::default() });
            assert_eq!(is_cached(&cache, 1, "list").await, expected);
        }
    }
}
