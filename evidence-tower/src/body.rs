//! Reading a request's body, as far as an operation wants it and within its limits.

use bytes::{Bytes, BytesMut};
use evidence_core::operation::{BodyKind, Raw, RawBody};
use evidence_core::spool::Spool;
use evidence_core::{Error, Limits, Result, StoreError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::{BoxError, multipart};

/// A body that has not been read yet, and the headers that describe it.
#[derive(Debug)]
pub(crate) struct Incoming {
    content_type: Option<String>,
    encoded: bool,
    declared_length: u64,
    body: UnsyncBoxBody<Bytes, BoxError>,
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// `Content-Length`, else the size hint, in bytes.
pub(crate) fn declared_length(headers: &HeaderMap, body: &impl Body) -> u64 {
    let length = text(headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
    length.unwrap_or_else(|| body.size_hint().lower())
}

impl Incoming {
    /// The body of a request with these headers.
    pub(crate) fn new(headers: &HeaderMap, body: UnsyncBoxBody<Bytes, BoxError>) -> Self {
        Self {
            content_type: text(headers, &CONTENT_TYPE),
            encoded: text(headers, &CONTENT_ENCODING)
                .is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")),
            declared_length: declared_length(headers, &body),
            body,
        }
    }

    /// Reads a body of this kind; `limit`, in bytes, applies to the JSON of a form, else to the whole. The future is boxed here, so that it is compiled
    /// once and not per operation.
    pub(crate) fn read(
        self,
        kind: BodyKind,
        limit: u64,
        limits: &Limits,
    ) -> BoxFuture<'static, Result<RawBody>> {
        self.read_as(kind, limit, *limits).boxed()
    }

    async fn read_as(self, kind: BodyKind, limit: u64, limits: Limits) -> Result<RawBody> {
        match kind {
            BodyKind::Empty => Ok(RawBody::Empty),
            BodyKind::Json => self.json(limit).await,
            BodyKind::Raw => self.raw(limit).await,
            // Read as an empty form, so that the error names the missing part (400, not 415).
            BodyKind::Form(_) if !self.is("multipart/form-data") => Ok(RawBody::Empty),
            BodyKind::Form(parts) => {
                self.check_headers(multipart::whole_limit(&limits))?;
                let boundary = multipart::boundary(&self.content_type.unwrap_or_default())?;
                multipart::read(boundary, self.body, parts, limit, &limits).await
            }
        }
    }

    /// Whether the content type is `media_type`, whatever its parameters.
    fn is(&self, media_type: &str) -> bool {
        let essence = self.content_type.as_deref().and_then(|sent| sent.split(';').next());
        essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(media_type))
    }

    /// # Errors
    /// `TooLarge` by the declared length, else `UnsupportedMediaType` if encoded.
    fn check_headers(&self, limit: u64) -> Result<()> {
        if self.declared_length > limit {
            Err(Error::TooLarge { limit, file: false, part: BODY })
        } else if self.encoded {
            Err(Error::UnsupportedMediaType)
        } else {
            Ok(())
        }
    }

    async fn raw(self, limit: u64) -> Result<RawBody> {
        self.check_headers(limit)?;
        let bytes = gathered(limited(self.body, limit), limit).await?;
        Ok(RawBody::Bytes(Raw { media_type: self.content_type, bytes }))
    }

    async fn json(self, limit: u64) -> Result<RawBody> {
        self.check_headers(limit)?;
        let readable = self.content_type.is_none() || self.is("application/json");
        // With another content type only an empty body is accepted.
        let limit = if readable { limit } else { 0 };
        let bytes = match gathered(limited(self.body, limit), limit).await {
            Err(Error::TooLarge { .. }) if !readable => return Err(Error::UnsupportedMediaType),
            gathered => gathered?,
        };
        Ok(if bytes.is_empty() { RawBody::Empty } else { RawBody::Json(bytes) })
    }
}

/// The name of a body that is too large, as errors give it.
pub(crate) const BODY: &str = "body";

/// How much of a text that is still being received is held in memory.
const IN_MEMORY: usize = 64 << 10;

/// A text that is being received. A long one is spooled to a temporary file until all of it is there, so that many slow ones
/// cost disk rather than memory.
#[derive(Default)]
pub(crate) struct Gathering {
    memory: BytesMut,
    spool: Option<Spool>,
}

impl Gathering {
    /// The bytes received so far.
    pub(crate) fn size(&self) -> u64 {
        self.spool.as_ref().map_or(0, Spool::size) + self.memory.len() as u64
    }

    /// Takes the next piece.
    pub(crate) async fn push(&mut self, piece: &[u8]) -> Result<()> {
        if self.spool.is_none() && self.memory.len() + piece.len() <= IN_MEMORY {
            self.memory.extend_from_slice(piece);
            return Ok(());
        }
        let spool = self.spool.get_or_insert_default();
        if !self.memory.is_empty() {
            spool.push(&std::mem::take(&mut self.memory)).await.map_err(not_spooled)?;
        }
        spool.push(piece).await.map_err(not_spooled)
    }

    /// The whole text.
    pub(crate) async fn finish(self) -> Result<Bytes> {
        let Some(spool) = self.spool else { return Ok(self.memory.freeze()) };
        let mut spooled = spool.finish().await.map_err(not_spooled)?;
        let mut whole = BytesMut::with_capacity(usize::try_from(spooled.size).unwrap_or_default());
        while let Some(piece) = spooled.content.next().await.map_err(not_spooled)? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }
}

/// The whole of a body that is limited to so many bytes.
async fn gathered(mut body: UnsyncBoxBody<Bytes, BoxError>, limit: u64) -> Result<Bytes> {
    let mut text = Gathering::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken_off(error.as_ref(), limit))?;
        if let Ok(piece) = frame.into_data() {
            text.push(&piece).await?;
        }
    }
    text.finish().await
}

/// The error of a body that cannot be spooled: the disk for temporary files is full, or away.
#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
pub(crate) fn not_spooled(source: std::io::Error) -> Error {
    StoreError::Unavailable(format!("what is received cannot be held: {source}").into()).into()
}

/// At most so many bytes of a body.
fn limited(body: UnsyncBoxBody<Bytes, BoxError>, limit: u64) -> UnsyncBoxBody<Bytes, BoxError> {
    Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX)).boxed_unsync()
}

/// A body that ended early: for its length, by a limit of ours or of the host's, or because the client left.
pub(crate) fn broken_off(error: &(dyn std::error::Error + 'static), limit: u64) -> Error {
    if error.is::<LengthLimitError>() {
        Error::TooLarge { limit, file: false, part: BODY }
    } else {
        tracing::debug!(%error, "a request body broke off");
        incomplete()
    }
}

/// The error of a body of which only the beginning came.
pub(crate) fn incomplete() -> Error {
    Error::invalid("body", "The body broke off")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use http_body_util::{Full, StreamBody};

    const LIMIT: usize = 32;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), http::HeaderValue::from_static(value))).collect()
    }

    fn whole(bytes: &[u8]) -> UnsyncBoxBody<Bytes, BoxError> {
        Full::new(Bytes::copy_from_slice(bytes)).map_err(|never| match never {}).boxed_unsync()
    }

    async fn json(sent: &[(HeaderName, &'static str)], bytes: &[u8]) -> Result<Option<Bytes>, String> {
        match Incoming::new(&headers(sent), whole(bytes))
            .read(BodyKind::Json, LIMIT as u64, &Limits::default())
            .await
        {
            Ok(RawBody::Empty) => Ok(None),
            Ok(RawBody::Json(text)) => Ok(Some(text)),
            Ok(RawBody::Form { .. } | RawBody::Bytes(_)) => Err("no JSON".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[tokio::test]
    async fn json_is_read_whatever_its_parameters() {
        let type_of = |value| [(CONTENT_TYPE, value)];
        assert_eq!(json(&[], b"{\"a\":1}").await, Ok(Some("{\"a\":1}".into())));
        for sent in ["application/json", "Application/JSON; charset=utf-8", "application/json;x=y"] {
            assert_eq!(json(&type_of(sent), b" [] ").await, Ok(Some(" [] ".into())), "{sent}");
        }
        assert_eq!(json(&type_of("application/json"), b"").await, Ok(None));
        assert_eq!(json(&type_of("text/plain"), b"").await, Ok(None));
    }

    #[tokio::test]
    async fn a_body_of_another_type_is_refused() {
        let foreign = Err(Error::UnsupportedMediaType.to_string());
        for sent in ["text/plain", "multipart/form-data; boundary=b", "application/x-www-form-urlencoded", ""]
        {
            assert_eq!(json(&[(CONTENT_TYPE, sent)], b"{}").await, foreign, "{sent}");
        }
        assert_eq!(json(&[(CONTENT_ENCODING, "gzip")], b"{}").await, foreign);
        assert_eq!(json(&[(CONTENT_ENCODING, "identity")], b"{}").await, Ok(Some("{}".into())));
    }

    #[tokio::test]
    async fn a_long_body_is_what_was_sent_however_it_came() {
        let bytes: Vec<u8> = (b'a'..=b'z').cycle().take(3 * IN_MEMORY).collect();
        for piece in [1 << 10, IN_MEMORY, IN_MEMORY + 1, 3 * IN_MEMORY] {
            let frames: Vec<_> = bytes.chunks(piece).map(Bytes::copy_from_slice).collect();
            let frames = frames.into_iter().map(|piece| Ok(http_body::Frame::data(piece)));
            let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
            let gathered = gathered(body, u64::MAX).await.unwrap();
            assert!(gathered == bytes, "pieces of {piece}");
        }
    }

    #[tokio::test]
    async fn a_body_may_be_as_long_as_the_limit_and_no_longer() {
        let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
        let too_large = Err(Error::TooLarge { limit: LIMIT as u64, file: false, part: BODY }.to_string());
        assert!(json(&[], text(LIMIT).as_bytes()).await.is_ok());
        assert_eq!(json(&[], text(LIMIT + 1).as_bytes()).await, too_large);
        assert_eq!(json(&[(CONTENT_LENGTH, "33")], b"{}").await, too_large);
    }

    #[tokio::test]
    async fn a_stream_is_dropped_where_it_exceeds_the_limit() {
        let polled = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&polled);
        let pieces = std::iter::repeat_with(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(http_body::Frame::data(Bytes::from_static(b"\"xxxxxxx")))
        });
        let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
        let outcome = Incoming::new(&HeaderMap::new(), body)
            .read(BodyKind::Json, LIMIT as u64, &Limits::default())
            .await;
        assert!(matches!(outcome, Err(Error::TooLarge { file: false, .. })), "{outcome:?}");
        assert_eq!(polled.load(Ordering::Relaxed), LIMIT / 8 + 1);
    }

    #[tokio::test]
    async fn a_limit_of_the_host_is_answered_as_too_large_and_a_lost_client_is_not() {
        let hosts = limited(whole(b"\"0123456789\""), 4);
        let outcome = Incoming::new(&HeaderMap::new(), hosts)
            .read(BodyKind::Json, LIMIT as u64, &Limits::default())
            .await;
        assert!(matches!(outcome, Err(Error::TooLarge { .. })), "{outcome:?}");

        let gone = [Err::<http_body::Frame<Bytes>, BoxError>("connection reset".into())];
        let gone = StreamBody::new(futures_util::stream::iter(gone)).boxed_unsync();
        let outcome = Incoming::new(&HeaderMap::new(), gone)
            .read(BodyKind::Json, LIMIT as u64, &Limits::default())
            .await;
        assert!(matches!(outcome, Err(Error::Invalid { .. })), "{outcome:?}");
    }

    #[tokio::test]
    async fn an_operation_without_a_body_leaves_it_alone() {
        let incoming = Incoming::new(&headers(&[(CONTENT_TYPE, "text/plain")]), whole(b"junk"));
        assert!(matches!(incoming.read(BodyKind::Empty, 0, &Limits::default()).await, Ok(RawBody::Empty)));
    }
}
