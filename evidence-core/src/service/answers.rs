//! Answers that are kept until the ledger of their organization grows.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::access::Access;
use crate::auth::actor::Role;
use crate::blobs::Chunks;
use crate::cache::sized::Cache;
use crate::error::Result;
use crate::id::Id;
use crate::ledger::Hash;
use crate::operation::{Answer, AnswerBody, Header, Streamed, Success};
use crate::store::Store;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// What an answer takes besides its text and the request's: the entry, and what the allocator adds.
const OVERHEAD: usize = size_of::<(Request, Kept)>() + 128;

/// A longer answer is not kept.
const LONGEST: usize = 512 << 10;

/// So many answers that are being sent are gathered at a time: as long as their clients read, what was gathered stays.
const GATHERED: usize = 16;

/// How long an answer is kept at most, in microseconds: a rebuild mends rows, and no ledger grows by it.
const TTL: i64 = 10_000_000;

/// Answers by what they are to; nothing where none is kept.
pub(super) struct AnswerCache(Option<Arc<Answers>>);

struct Answers {
    kept: Cache<Request, Kept>,
    gathered: Arc<Semaphore>,
}

/// What an answer is to: the request, where, and by which right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    operation: &'static str,
    org: Id,
    role: Option<Role>,
    /// The request's path and query.
    text: String,
}

/// An answer, and when its organization had which ledger, of this size and root: before it was made.
#[derive(Debug)]
struct Kept {
    ledger: (u64, Hash),
    at: Timestamp,
    headers: Vec<Header>,
    text: Bytes,
}

/// Where an answer that is about to be made is kept.
pub(super) struct Place {
    answers: Arc<Answers>,
    request: Request,
    ledger: (u64, Hash),
    at: Timestamp,
}

/// What is known of an answer before it is made.
pub(super) enum Known {
    /// All of it.
    Answer(Answer),
    /// Where it is kept.
    Place(Place),
    /// Nothing: none is kept.
    Nothing,
}

impl AnswerCache {
    /// An empty cache of about so many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let answers = || Answers { kept: Cache::new(bytes), gathered: Arc::new(Semaphore::new(GATHERED)) };
        Self((bytes > 0).then(|| Arc::new(answers())))
    }

    /// The answer that was made to this request, if the ledger is what it was then: one query.
    ///
    /// # Errors
    /// Where the store is away: the operation would wait for it once more.
    pub(super) async fn known(
        &self,
        (operation, request): (&'static str, &str),
        access: &Access,
        now: Timestamp,
        store: &dyn Store,
    ) -> Result<Known> {
        let (Some(answers), Some(place)) = (&self.0, &access.org_access) else { return Ok(Known::Nothing) };
        let ledger = match store.ledger_head(place.org).await {
            Ok(Some(ledger)) => (ledger.size(), ledger.root()),
            Err(away @ StoreError::Unavailable(_)) => return Err(away.into()),
            // A damaged ledger keeps nobody from reading records.
            Ok(None) | Err(_) => return Ok(Known::Nothing),
        };
        let request = Request { operation, org: place.org, role: place.role, text: request.to_owned() };
        let holds = |kept: &Arc<Kept>| {
            let age = now.as_micros().checked_sub(kept.at.as_micros());
            kept.ledger == ledger && age.is_some_and(|age| (0..TTL).contains(&age))
        };
        if let Some(kept) = answers.kept.get(&request).filter(holds) {
            let body = AnswerBody::Json(kept.text.clone());
            return Ok(Known::Answer(Answer { headers: kept.headers.clone(), ..Answer::of(body) }));
        }
        Ok(Known::Place(Place { answers: Arc::clone(answers), request, ledger, at: now }))
    }
}

impl Place {
    /// The same answer, which is kept once all of it was made.
    pub(super) fn keep(self, answer: Answer) -> Answer {
        let Answer { status, headers, body } = answer;
        let body = match body {
            AnswerBody::Json(text) if status == Success::Ok => {
                self.put(headers.clone(), &text);
                AnswerBody::Json(text)
            }
            AnswerBody::Stream(Streamed { media_type, content })
                if status == Success::Ok && media_type == JSON =>
            {
                let permit = Arc::clone(&self.answers.gathered).try_acquire_owned().ok();
                let gathered = |permit| Gathered {
                    place: self,
                    headers: headers.clone(),
                    text: Vec::new(),
                    _permit: permit,
                };
                let content = Box::new(Keeping { content, gathered: permit.map(gathered) });
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
            answers.kept.put(request, bytes, Arc::new(Kept { ledger, at, headers, text }));
        }
    }
}

const JSON: &str = "application/json";

/// An answer that is kept once it was sent as a whole.
struct Keeping {
    content: Box<dyn Chunks>,
    /// Nothing where it is not kept.
    gathered: Option<Gathered>,
}

/// What was sent of an answer so far, and where all of it is kept.
struct Gathered {
    place: Place,
    headers: Vec<Header>,
    text: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

#[async_trait]
impl Chunks for Keeping {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        // One that breaks off here is not kept.
        let gathered = self.gathered.take();
        let piece = self.content.next().await?;
        match (&piece, gathered) {
            (Some(piece), Some(mut gathered)) if gathered.text.len() + piece.len() <= LONGEST => {
                gathered.text.extend_from_slice(piece);
                self.gathered = Some(gathered);
            }
            (None, Some(Gathered { place, headers, text, .. })) => place.put(headers, &text),
            (_, Some(_) | None) => {}
        }
        Ok(piece)
    }
}
