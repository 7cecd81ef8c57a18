//! JSON lists whose items are generated while they are sent.

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

/// A JSON response with status 200 whose items are generated while it is sent, so that memory does not grow
/// with the list. A failure before the first items are sent has an error status; a later one aborts the
/// connection.
pub struct JsonList<I, E = ()> {
    /// The items, in order.
    pub items: BoxStream<'static, Result<I>>,
    /// The document around the list: `()` for a plain array.
    pub envelope: E,
}

impl<I, E: std::fmt::Debug> std::fmt::Debug for JsonList<I, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonList").field("envelope", &self.envelope).finish_non_exhaustive()
    }
}

/// The document around a list of `I`.
pub trait Envelope<I>: Send + 'static {
    /// The type of the whole document, for the schema.
    type Document: JsonSchema;
    /// Returns the JSON text before and after the list.
    ///
    /// # Errors
    /// [`crate::Error::Internal`] if it cannot be serialized.
    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)>;

    /// Returns whether serializing that text takes about a millisecond.
    fn is_long(&self) -> bool {
        false
    }

    /// Returns further text before the list, in pieces that are generated in `compute` while they are sent.
    fn before(self, _: &Compute) -> BoxStream<'static, Result<Vec<u8>>>
    where
        Self: Sized,
    {
        stream::empty().boxed()
    }
}

/// Returns the JSON text around the items of a document. The list must be its last member, and empty.
///
/// # Errors
/// [`Error::Internal`] if the document cannot be serialized, or does not end with the list.
pub(crate) fn around_last(document: &impl Serialize) -> Result<(Vec<u8>, Vec<u8>)> {
    const END: &[u8] = b"[]}";
    let serialization_error =
        |source| Error::Internal { what: "a document could not be serialized to JSON", source };
    let mut text = serde_json::to_vec(document).map_err(|error| serialization_error(error.into()))?;
    if text.split_off(text.len().saturating_sub(END.len())) != END {
        return Err(serialization_error("the list is not its last member".into()));
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
    /// Creates a plain array of these items.
    pub fn of(items: impl Stream<Item = Result<I>> + Send + 'static) -> Self {
        Self { items: items.boxed(), envelope: () }
    }
}

impl<I: Send + 'static, E> JsonList<I, E> {
    /// Creates a list whose items are read by id in batches ([`Listed::batches`]) and serialized in
    /// `compute`.
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

    /// Creates a list from several lists of ids. Each next one is requested when it is needed.
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

    /// Creates a list whose items are generated in `compute` while it is sent. Waits for the first item, so
    /// that an unavailable store results in an error status.
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

/// The size in bytes at which a piece is sent.
pub(super) const PIECE: usize = 16 << 10;

/// The text of a list that is being sent.
struct ListText<I> {
    /// The text before the items; `None` after its end.
    before: Option<BoxStream<'static, Result<Vec<u8>>>>,
    items: BoxStream<'static, Result<I>>,
    /// The text after the items; `None` after its end.
    after: Option<Vec<u8>>,
    is_first: bool,
    compute: Compute,
}

impl<I: Serialize + Send + 'static> ListText<I> {
    /// Returns the next piece of at least [`PIECE`] bytes, except at the end.
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

/// A text whose first piece already exists.
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
