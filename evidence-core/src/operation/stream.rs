//! JSON documents that are generated while they are sent, because they do not fit in memory.

use std::marker::PhantomData;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::reply::serialization_error;
use super::{Answer, AnswerBody, PIECE, Put, Reply, Streamed, Success, write_json};
use crate::blobs::Chunks;
use crate::compute::{Compute, Progress};
use crate::error::Result;

/// A JSON response with status 200 whose text is generated while it is sent. `D` is the type of the document,
/// for the schema. A failure before the first piece is sent has an error status; a later one aborts the
/// connection.
pub struct JsonStream<D> {
    /// The text, in pieces.
    pub text: BoxStream<'static, Result<Vec<u8>>>,
    compute: Compute,
    document: PhantomData<fn() -> D>,
}

impl<D> std::fmt::Debug for JsonStream<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonStream").finish_non_exhaustive()
    }
}

impl<D> JsonStream<D> {
    /// Creates a document from its text, which is generated in `compute`.
    pub fn new(text: impl Stream<Item = Result<Vec<u8>>> + Send + 'static, compute: Compute) -> Self {
        Self { text: text.boxed(), compute, document: PhantomData }
    }

    async fn body(self) -> Result<AnswerBody> {
        let mut chunks = TextChunks { first: None, text: Some(self.text) };
        let first = chunks.piece().await?.unwrap_or_default();
        if chunks.text.is_none() {
            return Ok(AnswerBody::Json(first.into()));
        }
        self.compute.note(Progress::Answering);
        let content = Box::new(TextChunks { first: Some(first), ..chunks });
        Ok(AnswerBody::Stream(Streamed { media_type: "application/json".to_owned(), content }))
    }
}

impl<D: JsonSchema + 'static> Reply for JsonStream<D> {
    const STATUSES: &'static [u16] = &[200];

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<D>())
    }

    async fn answer(self, _: &Compute) -> Result<Answer> {
        Ok(Answer::of(self.body().await?))
    }
}

impl<D: JsonSchema + 'static> Reply for Put<JsonStream<D>> {
    const STATUSES: &'static [u16] = &[200, 201];

    fn schema(generator: &mut SchemaGenerator) -> Option<Schema> {
        Some(generator.subschema_for::<D>())
    }

    async fn answer(self, _: &Compute) -> Result<Answer> {
        let status = if self.created { Success::Created } else { Success::Ok };
        Ok(Answer { status, ..Answer::of(self.body.body().await?) })
    }
}

/// Returns the JSON of a value.
pub(crate) fn json_text(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(serialization_error)
}

/// Streams the JSON of these items, with commas between them. Serializes them in `compute`.
pub(crate) fn json_items<I: Serialize + Send + 'static>(
    items: impl Stream<Item = Result<I>> + Send + 'static,
    compute: Compute,
) -> impl Stream<Item = Result<Vec<u8>>> + Send + 'static {
    let written = move |(number, item): (usize, Result<I>)| {
        let (compute, mut text) = (compute.clone(), Vec::from(if number > 0 { "," } else { "" }));
        async move { write_json(&mut text, item?, &compute).await.map(|()| text) }
    };
    items.enumerate().then(written)
}

/// A text in pieces of about [`PIECE`] bytes; a single long piece is not split.
pub(super) struct TextChunks {
    /// The first piece, if it was already read.
    pub(super) first: Option<Vec<u8>>,
    /// The rest of the text; `None` after its end.
    pub(super) text: Option<BoxStream<'static, Result<Vec<u8>>>>,
}

impl TextChunks {
    pub(super) async fn piece(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(text) = &mut self.text else { return Ok(None) };
        let mut piece = Vec::new();
        while piece.len() < PIECE {
            let Some(more) = text.next().await.transpose()? else {
                self.text = None;
                break;
            };
            piece.extend(more);
        }
        Ok(Some(piece))
    }
}

#[async_trait]
impl Chunks for TextChunks {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first.into()));
        }
        Ok(self.piece().await.map_err(std::io::Error::other)?.map(Bytes::from))
    }
}
