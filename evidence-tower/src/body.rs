//! Reading a request's body, as far as an operation wants it and within its limits.

use bytes::Bytes;
use evidence_core::operation::{BodyKind, RawBody};
use evidence_core::{Error, Result, decode};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use crate::{BoxError, multipart};

/// A body that has not been read yet, and what the headers say of it.
#[derive(Debug)]
pub(crate) struct Incoming {
    content_type: Option<String>,
    encoded: bool,
    announced: u64,
    body: UnsyncBoxBody<Bytes, BoxError>,
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

impl Incoming {
    /// The body of a request with these headers.
    pub(crate) fn new(headers: &HeaderMap, body: UnsyncBoxBody<Bytes, BoxError>) -> Self {
        let length = text(headers, &CONTENT_LENGTH).and_then(|length| length.parse().ok());
        Self {
            content_type: text(headers, &CONTENT_TYPE),
            encoded: text(headers, &CONTENT_ENCODING)
                .is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")),
            announced: length.unwrap_or_else(|| body.size_hint().lower()),
            body,
        }
    }

    /// Reads it as an operation with this kind of body does; `limit` is that of JSON, in bytes. The future's type is
    /// erased here, so that it is compiled once and not for each operation.
    pub(crate) fn read(self, kind: BodyKind, limit: usize) -> BoxFuture<'static, Result<RawBody>> {
        self.read_as(kind, limit).boxed()
    }

    async fn read_as(self, kind: BodyKind, limit: usize) -> Result<RawBody> {
        match kind {
            BodyKind::Empty => Ok(RawBody::Empty),
            BodyKind::Json => self.json(limit).await,
            // Whatever is no form lacks the form's parts, and is told so by name.
            BodyKind::Form(_) if !self.is("multipart/form-data") => Ok(RawBody::Empty),
            BodyKind::Form(parts) => {
                self.acceptable(multipart::WHOLE_LIMIT)?;
                let boundary = multipart::boundary(&self.content_type.unwrap_or_default())?;
                multipart::read(boundary, self.body, parts).await
            }
        }
    }

    /// Whether the content type is `media_type`, whatever its parameters.
    fn is(&self, media_type: &str) -> bool {
        let essence = self.content_type.as_deref().and_then(|sent| sent.split(';').next());
        essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(media_type))
    }

    /// Refuses what can be refused unread.
    fn acceptable(&self, limit: u64) -> Result<()> {
        if self.announced > limit {
            Err(Error::TooLarge { limit, file: false })
        } else if self.encoded {
            Err(Error::UnsupportedMediaType)
        } else {
            Ok(())
        }
    }

    async fn json(self, limit: usize) -> Result<RawBody> {
        self.acceptable(limit as u64)?;
        let readable = self.content_type.is_none() || self.is("application/json");
        // Of a foreign type, one byte is too many already.
        let limit = if readable { limit } else { 0 };
        let collected = limited(self.body, limit).collect().await;
        let bytes = match collected {
            Ok(collected) => collected.to_bytes(),
            Err(error) if !readable && error.is::<LengthLimitError>() => {
                return Err(Error::UnsupportedMediaType);
            }
            Err(error) => return Err(broken_off(error.as_ref(), limit as u64)),
        };
        if bytes.is_empty() {
            return Ok(RawBody::Empty);
        }
        match decode::parse(&bytes).map_err(|text| Error::invalid("body", text))? {
            Value::Null => Ok(RawBody::Empty),
            value => Ok(RawBody::Json(value)),
        }
    }
}

/// At most so many bytes of a body.
fn limited(body: UnsyncBoxBody<Bytes, BoxError>, limit: usize) -> UnsyncBoxBody<Bytes, BoxError> {
    Limited::new(body, limit).boxed_unsync()
}

/// A body that ended early: for its length, by a limit of ours or of the host's, or because the client left.
pub(crate) fn broken_off(error: &(dyn std::error::Error + 'static), limit: u64) -> Error {
    if error.is::<LengthLimitError>() {
        Error::TooLarge { limit, file: false }
    } else {
        tracing::debug!(%error, "a request body broke off");
        Error::invalid("body", "The body broke off")
    }
}
