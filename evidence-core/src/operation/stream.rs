//! JSON documents whose text is made while it is sent, for what comes to more than is held at once.

use std::marker::PhantomData;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::{Answer, AnswerBody, PIECE, Put, Reply, Streamed, Success, unwritable, write_json};
use crate::blobs::Chunks;
use crate::compute::{Compute, Progress};
use crate::error::Result;

/// A JSON answer with status 200 whose text is made while it is sent; `D` is the document as the schema tells it. What
/// fails before the first piece is sent is told by the status; what fails later breaks the connection off.
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
    /// The document that has this text, which is made by means of `compute`.
    pub fn new(text: impl Stream<Item = Result<Vec<u8>>> + Send + 'static, compute: Compute) -> Self {
        Self { text: text.boxed(), compute, document: PhantomData }
    }

    async fn body(self) -> Result<AnswerBody> {
        let mut gathered = Gathered { first: None, text: Some(self.text) };
        let first = gathered.piece().await?.unwrap_or_default();
        if gathered.text.is_none() {
            return Ok(AnswerBody::Json(first.into()));
        }
        self.compute.note(Progress::Answering);
        let content = Box::new(Gathered { first: Some(first), ..gathered });
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

/// A value's JSON.
pub(crate) fn json_text(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(unwritable)
}

/// The JSON of these items with commas between them, one after the other, made by means of `compute`.
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

/// A text in pieces of about [`PIECE`] bytes, or longer ones as they come.
pub(super) struct Gathered {
    /// What was gathered already.
    pub(super) first: Option<Vec<u8>>,
    /// Nothing once it has ended.
    pub(super) text: Option<BoxStream<'static, Result<Vec<u8>>>>,
}

impl Gathered {
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
impl Chunks for Gathered {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first.into()));
        }
        Ok(self.piece().await.map_err(std::io::Error::other)?.map(Bytes::from))
    }
}
