//! Long lists: JSON whose items are made while it is sent.

use std::future::ready;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::{Answer, AnswerBody, Reply, Streamed, write_json};
use crate::blobs::Chunks;
use crate::compute::{Compute, Progress};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::page::Listed;

/// A JSON answer with status 200 whose items are made while it is sent, so that memory does not grow with the list. Items
/// that fail before the first are sent are told by the status; later ones break the connection off.
pub struct JsonList<I, E = ()> {
    /// The items, in order.
    pub items: BoxStream<'static, Result<I>>,
    /// What the list stands in: `()` for nothing.
    pub envelope: E,
}

impl<I, E: std::fmt::Debug> std::fmt::Debug for JsonList<I, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonList").field("envelope", &self.envelope).finish_non_exhaustive()
    }
}

/// What a list of `I` stands in.
pub trait Envelope<I>: Send + 'static {
    /// The whole document, as the schema tells it.
    type Document: JsonSchema;
    /// The JSON text before the list and after it.
    ///
    /// # Errors
    /// [`crate::Error::Internal`] when it cannot be written.
    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)>;

    /// Whether writing that text takes about a millisecond.
    fn is_long(&self) -> bool {
        false
    }

    /// What the text before the list goes on with, in pieces that are made while they are sent, by means of `compute`.
    fn before(self, _: &Compute) -> BoxStream<'static, Result<Vec<u8>>>
    where
        Self: Sized,
    {
        stream::empty().boxed()
    }
}

/// The JSON text around the items of a document whose last member is the list, which is empty in it.
///
/// # Errors
/// [`Error::Internal`] when it cannot be written, or does not end so.
pub(crate) fn around_last(document: &impl Serialize) -> Result<(Vec<u8>, Vec<u8>)> {
    const END: &[u8] = b"[]}";
    let unwritable = |source| Error::Internal { what: "a document could not be written as JSON", source };
    let mut text = serde_json::to_vec(document).map_err(|error| unwritable(error.into()))?;
    if text.split_off(text.len().saturating_sub(END.len())) != END {
        return Err(unwritable("its list is not its end".into()));
    }
    Ok((text, b"}".to_vec()))
}

impl<I: JsonSchema> Envelope<I> for () {
    type Document = Vec<I>;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        Ok((Vec::new(), Vec::new()))
    }
}

impl<I: Serialize + Send + 'static> JsonList<I> {
    /// A plain array of these items.
    pub fn of(items: impl Stream<Item = Result<I>> + Send + 'static) -> Self {
        Self { items: items.boxed(), envelope: () }
    }
}

impl<I: Send + 'static, E> JsonList<I, E> {
    /// A list whose items `read` makes of their ids, some at a time ([`Listed::batches`]), by means of `compute`.
    pub(crate) async fn in_batches<S>(
        listed: Vec<Listed>,
        envelope: E,
        compute: &Compute,
        read: impl Fn(Vec<Id>) -> S + Send + 'static,
    ) -> Result<Self>
    where
        S: Stream<Item = Result<I>> + Send + 'static,
    {
        Self::of_lists(stream::once(ready(Ok(listed))), envelope, compute, read).await
    }

    /// The same of several lists, one after the other, of which the next is asked for when it is needed.
    pub(crate) async fn of_lists<S>(
        lists: impl Stream<Item = Result<Vec<Listed>>> + Send + 'static,
        envelope: E,
        compute: &Compute,
        read: impl Fn(Vec<Id>) -> S + Send + 'static,
    ) -> Result<Self>
    where
        S: Stream<Item = Result<I>> + Send + 'static,
    {
        let batches =
            lists.map_ok(|listed| stream::iter(Listed::batches(listed)).map(Ok::<_, Error>)).try_flatten();
        Self::with_first_item(batches.map_ok(read).try_flatten(), envelope, compute).await
    }

    /// A list of items that are made while it is sent, by means of `compute`. The first is made before this answers, so that
    /// a store which is away is told by the status.
    pub(crate) async fn with_first_item(
        items: impl Stream<Item = Result<I>> + Send + 'static,
        envelope: E,
        compute: &Compute,
    ) -> Result<Self> {
        let mut items = items.boxed();
        let first = items.next().await.transpose()?;
        compute.note(Progress::Answering);
        let items = stream::iter(first).map(Ok).chain(items).boxed();
        Ok(Self { items, envelope })
    }
}

impl<I: Serialize + Send + 'static, E: Envelope<I>> Reply for JsonList<I, E> {
    const STATUSES: &'static [u16] = &[200];

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<E::Document>())
    }

    async fn answer(self, compute: &Compute) -> Result<Answer> {
        let Self { items, envelope } = self;
        let is_long = envelope.is_long();
        let around = move || envelope.around().map(|around| (around, envelope));
        let ((begin, after), envelope) = compute.run_if(is_long, around).await??;
        let (begin, open) = (stream::iter([Ok(begin)]), stream::iter([Ok(b"[".to_vec())]));
        let before = begin.chain(envelope.before(compute)).chain(open).boxed();
        let compute = compute.clone();
        let mut text = ListText { before: Some(before), items, after: Some(after), is_first: true, compute };
        let first = text.piece().await?.unwrap_or_default();
        Ok(Answer::of(if text.after.is_none() {
            AnswerBody::Json(first.into())
        } else {
            text.compute.note(Progress::Answering);
            let content = Box::new(Continued { first: Some(first), text });
            AnswerBody::Stream(Streamed { media_type: "application/json".to_owned(), content })
        }))
    }
}

/// Items are gathered until they are so many bytes.
pub(super) const PIECE: usize = 16 << 10;

/// The text of a list in the making.
struct ListText<I> {
    /// What comes before the items; nothing once it has ended.
    before: Option<BoxStream<'static, Result<Vec<u8>>>>,
    items: BoxStream<'static, Result<I>>,
    /// What ends it; nothing once it has ended.
    after: Option<Vec<u8>>,
    is_first: bool,
    compute: Compute,
}

impl<I: Serialize + Send + 'static> ListText<I> {
    /// The next piece of text: what comes before, and items of [`PIECE`] bytes together, or one that is longer.
    async fn piece(&mut self) -> Result<Option<Vec<u8>>> {
        if self.after.is_none() {
            return Ok(None);
        }
        let mut piece = Vec::with_capacity(PIECE);
        while piece.len() < PIECE {
            if let Some(before) = &mut self.before {
                match before.next().await.transpose()? {
                    Some(text) => piece.extend(text),
                    None => self.before = None,
                }
                continue;
            }
            let Some(item) = self.items.next().await else {
                piece.push(b']');
                piece.extend(self.after.take().unwrap_or_default());
                break;
            };
            if !std::mem::take(&mut self.is_first) {
                piece.push(b',');
            }
            write_json(&mut piece, item?, &self.compute).await?;
        }
        Ok(Some(piece))
    }
}

/// A text whose beginning is at hand.
struct Continued<I> {
    first: Option<Vec<u8>>,
    text: ListText<I>,
}

#[async_trait]
impl<I: Serialize + Send + 'static> Chunks for Continued<I> {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first.into()));
        }
        Ok(self.text.piece().await.map_err(std::io::Error::other)?.map(Bytes::from))
    }
}
