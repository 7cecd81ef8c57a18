//! Reads request bodies, of the kind that an operation needs and within its limits.

use bytes::Bytes;
use evidence_core::admission::RequestBudget;
use evidence_core::operation::{BodyKind, Raw, RawBody};
use evidence_core::spill_buffer::IN_MEMORY;
use evidence_core::{Error, Limits, Result};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Limited};

use crate::body_buffer::{BODY, BodyBuffer, Loaded, interrupted, spill_error};
use crate::{BoxError, multipart};

/// A body that was not read yet, with the headers that describe it.
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

/// Returns the `Content-Length`, otherwise the size hint, in bytes.
pub(crate) fn declared_length(headers: &HeaderMap, body: &impl Body) -> u64 {
    let length = text(headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
    length.unwrap_or_else(|| body.size_hint().lower())
}

impl Incoming {
    /// Creates the body of a request with these headers.
    pub(crate) fn new(headers: &HeaderMap, body: UnsyncBoxBody<Bytes, BoxError>) -> Self {
        Self {
            content_type: text(headers, &CONTENT_TYPE),
            encoded: text(headers, &CONTENT_ENCODING)
                .is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")),
            declared_length: declared_length(headers, &body),
            body,
        }
    }

    /// Reads a body of this kind. `limit`, in bytes, applies to the JSON of a form, otherwise to the whole
    /// body. Memory for loaded content is reserved in the request's budget. The future is boxed here, so that
    /// it is compiled once and not per operation.
    pub(crate) fn read(
        self,
        kind: BodyKind,
        limit: u64,
        limits: &Limits,
        budget: &RequestBudget,
    ) -> BoxFuture<'static, Result<Loaded<RawBody>>> {
        self.read_as(kind, limit, *limits, budget.clone()).boxed()
    }

    async fn read_as(
        self,
        kind: BodyKind,
        limit: u64,
        limits: Limits,
        budget: RequestBudget,
    ) -> Result<Loaded<RawBody>> {
        match kind {
            BodyKind::Empty => Ok((RawBody::Empty, None)),
            BodyKind::Json => self.json(limit, &budget).await,
            BodyKind::Raw => self.raw(limit, &budget).await,
            // Treated as an empty form, so that the error names the missing part (400, not 415).
            BodyKind::Form(_) if !self.is("multipart/form-data") => Ok((RawBody::Empty, None)),
            BodyKind::Form(parts) => {
                self.check_headers(multipart::max_form_size(&limits), &budget)?;
                let boundary = multipart::boundary(&self.content_type.unwrap_or_default())?;
                multipart::read(boundary, self.body, parts, limit, &limits, &budget).await
            }
        }
    }

    /// Returns whether the content type is `media_type`, ignoring parameters.
    fn is(&self, media_type: &str) -> bool {
        let essence = self.content_type.as_deref().and_then(|sent| sent.split(';').next());
        essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(media_type))
    }

    /// Checks the headers, and reserves temporary space for the declared length before reading.
    ///
    /// # Errors
    /// `TooLarge` for the declared length, then `UnsupportedMediaType` for an encoded body, then
    /// `Overloaded`.
    fn check_headers(&self, limit: u64, budget: &RequestBudget) -> Result<()> {
        if self.declared_length > limit {
            Err(Error::TooLarge { limit, file: false, part: BODY })
        } else if self.encoded {
            Err(Error::UnsupportedMediaType)
        } else if self.declared_length > IN_MEMORY as u64 {
            budget.temporary_space().reserve(self.declared_length).map_err(spill_error)
        } else {
            Ok(())
        }
    }

    async fn raw(self, limit: u64, budget: &RequestBudget) -> Result<Loaded<RawBody>> {
        self.check_headers(limit, budget)?;
        let (bytes, memory) = buffered(limited(self.body, limit), limit, budget).await?;
        Ok((RawBody::Bytes(Raw { media_type: self.content_type, bytes }), memory))
    }

    async fn json(self, limit: u64, budget: &RequestBudget) -> Result<Loaded<RawBody>> {
        self.check_headers(limit, budget)?;
        let readable = self.content_type.is_none() || self.is("application/json");
        // With another content type, only an empty body is accepted.
        let limit = if readable { limit } else { 0 };
        let (bytes, memory) = match buffered(limited(self.body, limit), limit, budget).await {
            Err(Error::TooLarge { .. }) if !readable => return Err(Error::UnsupportedMediaType),
            outcome => outcome?,
        };
        Ok((if bytes.is_empty() { RawBody::Empty } else { RawBody::Json(bytes) }, memory))
    }
}

/// Returns a complete body of at most `limit` bytes.
async fn buffered(
    mut body: UnsyncBoxBody<Bytes, BoxError>,
    limit: u64,
    budget: &RequestBudget,
) -> Result<Loaded<Bytes>> {
    let mut text = BodyBuffer::new(budget);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| interrupted(error.as_ref(), limit))?;
        if let Ok(piece) = frame.into_data() {
            text.push(&piece).await?;
        }
    }
    text.load(budget).await
}

/// Limits a body to this many bytes.
fn limited(body: UnsyncBoxBody<Bytes, BoxError>, limit: u64) -> UnsyncBoxBody<Bytes, BoxError> {
    Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX)).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use evidence_core::admission::Admission;
    use evidence_core::compute::Refused;
    use http_body_util::{Full, StreamBody};

    const LIMIT: usize = 32;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), http::HeaderValue::from_static(value))).collect()
    }

    fn budget() -> RequestBudget {
        Admission::new(&Limits::default()).on_behalf_of(None)
    }

    /// Reads a body of this kind.
    async fn read(incoming: Incoming, kind: BodyKind, limit: usize) -> Result<RawBody> {
        incoming.read(kind, limit as u64, &Limits::default(), &budget()).await.map(|(body, _)| body)
    }

    fn whole(bytes: &[u8]) -> UnsyncBoxBody<Bytes, BoxError> {
        Full::new(Bytes::copy_from_slice(bytes)).map_err(|never| match never {}).boxed_unsync()
    }

    async fn json(sent: &[(HeaderName, &'static str)], bytes: &[u8]) -> Result<Option<Bytes>, String> {
        match read(Incoming::new(&headers(sent), whole(bytes)), BodyKind::Json, LIMIT).await {
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
            let (received, memory) = buffered(body, u64::MAX, &budget()).await.unwrap();
            assert!(received == bytes && memory.is_some(), "pieces of {piece}");
        }
    }

    #[tokio::test]
    async fn a_body_is_refused_before_it_is_read_where_the_tenant_has_no_temporary_space() {
        let limits = Limits { temporary_space: 8 << 20, ..Limits::default() };
        let admission = Admission::new(&limits);
        let polled = Arc::new(AtomicUsize::new(0));
        // `size` is in mebibytes, with or without `Content-Length`.
        let read = async |tenant: u8, size: usize, declared: Option<&'static str>| {
            let tenant = Some(format!("00000000-0000-0000-0000-0000000{tenant}").parse().unwrap());
            let counter = Arc::clone(&polled);
            let pieces = std::iter::repeat_with(move || {
                counter.fetch_add(1, Ordering::Relaxed);
                Ok(http_body::Frame::data(Bytes::from_static(&[b' '; 1 << 20])))
            });
            let body = StreamBody::new(futures_util::stream::iter(pieces.take(size))).boxed_unsync();
            let sent = Vec::from_iter(declared.map(|length| (CONTENT_LENGTH, length)));
            let budget = admission.on_behalf_of(tenant);
            let read = Incoming::new(&headers(&sent), body).read(BodyKind::Json, 4 << 20, &limits, &budget);
            (read.await, budget)
        };
        let (first, held) = read(1, 3, Some("3145728")).await;
        assert!(first.is_ok());
        let before = polled.load(Ordering::Relaxed);
        // Each tenant may use 4 MiB.
        let (refused, _) = read(1, 3, Some("3145728")).await;
        assert!(matches!(refused, Err(Error::Overloaded(Refused::Disk))), "{refused:?}");
        assert_eq!(polled.load(Ordering::Relaxed), before);
        let (refused, _) = read(1, 3, None).await;
        assert!(matches!(refused, Err(Error::Overloaded(Refused::Disk))), "{refused:?}");
        assert!(polled.load(Ordering::Relaxed) < before + 3);
        // Another tenant has its own limit: half of the rest.
        assert!(read(2, 2, Some("2097152")).await.0.is_ok());
        drop((first, held));
        assert!(read(1, 3, Some("3145728")).await.0.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_loaded_once_there_is_memory_for_it_and_refused_where_there_is_none_in_time() {
        let limits = Limits { request_memory: 16 << 20, ..Limits::default() };
        let budget = Admission::new(&limits).on_behalf_of(None);
        let read = async || {
            let pieces = [Ok(http_body::Frame::data(Bytes::from_static(&[b' '; 1 << 20])))];
            let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
            Incoming::new(&HeaderMap::new(), body).read(BodyKind::Json, 2 << 20, &limits, &budget).await
        };
        // Each body takes four times its length, of eight mebibytes.
        let (first, _second) = (read().await.unwrap(), read().await.unwrap());
        let refused = read().await;
        assert!(matches!(refused, Err(Error::Overloaded(Refused::Memory))), "{refused:?}");
        let (third, ()) = tokio::join!(read(), async {
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            drop(first);
        });
        assert!(third.is_ok());
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
        let outcome = read(Incoming::new(&HeaderMap::new(), body), BodyKind::Json, LIMIT).await;
        assert!(matches!(outcome, Err(Error::TooLarge { file: false, .. })), "{outcome:?}");
        assert_eq!(polled.load(Ordering::Relaxed), LIMIT / 8 + 1);
    }

    #[tokio::test]
    async fn a_limit_of_the_host_is_answered_as_too_large_and_a_lost_client_is_not() {
        let hosts = limited(whole(b"\"0123456789\""), 4);
        let outcome = read(Incoming::new(&HeaderMap::new(), hosts), BodyKind::Json, LIMIT).await;
        assert!(matches!(outcome, Err(Error::TooLarge { .. })), "{outcome:?}");

        let gone = [Err::<http_body::Frame<Bytes>, BoxError>("connection reset".into())];
        let gone = StreamBody::new(futures_util::stream::iter(gone)).boxed_unsync();
        let outcome = read(Incoming::new(&HeaderMap::new(), gone), BodyKind::Json, LIMIT).await;
        assert!(matches!(outcome, Err(Error::Invalid { .. })), "{outcome:?}");
    }

    #[tokio::test]
    async fn an_operation_without_a_body_leaves_it_alone() {
        let incoming = Incoming::new(&headers(&[(CONTENT_TYPE, "text/plain")]), whole(b"junk"));
        assert!(matches!(read(incoming, BodyKind::Empty, 0).await, Ok(RawBody::Empty)));
    }
}
