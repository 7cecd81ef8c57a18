//! What is answered when something goes wrong: the status of the error's kind, and what its caller is told. Causes go to
//! the log, never to the caller.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use evidence_core::error::FieldErrors;
use evidence_core::{Error, ErrorKind, Wording};
use http::header::{ALLOW, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::reply::{self, ReplyBody};

/// Why a request is not answered as its caller hoped.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The path and the query are longer than the API takes.
    LongUrl,
    /// No operation has this path.
    UnknownPath,
    /// Some do, but not with this method.
    WrongMethod {
        /// The methods they have, for `Allow`.
        allow: String,
    },
    /// The operation was refused, or failed.
    Failed(Error),
    /// Something panicked; the panic hook has told where.
    Panicked,
    /// An answer broke off before any of it was sent; the log has told why.
    #[cfg(feature = "rocket")]
    BrokeOff,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Status, message and `errors` of an answer.
type Told = (StatusCode, Cow<'static, str>, FieldErrors);

fn plain(status: StatusCode, message: &'static str) -> Told {
    (status, Cow::Borrowed(message), FieldErrors::new())
}

impl Refusal {
    /// The answer, in the JSON form that every refusal has (specification, Errors).
    pub(crate) fn into_response(self, wording: Wording) -> Response<ReplyBody> {
        let (status, message, errors) = self.told(wording);
        self.log(status);
        let body = if errors.is_empty() {
            json!({ "message": message })
        } else {
            json!({ "message": message, "errors": errors })
        };
        let mut response = reply::json_text(body.to_string());
        *response.status_mut() = status;
        if let Some((name, value)) = self.header(status) {
            response.headers_mut().insert(name, value);
        }
        response
    }

    fn told(&self, wording: Wording) -> Told {
        match self {
            Self::LongUrl => plain(StatusCode::URI_TOO_LONG, "URL too long"),
            Self::UnknownPath => plain(StatusCode::NOT_FOUND, "Not found"),
            Self::WrongMethod { .. } => plain(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
            Self::Failed(error) => told(error, wording),
            Self::Panicked => internal(),
            #[cfg(feature = "rocket")]
            Self::BrokeOff => internal(),
        }
    }

    fn header(&self, status: StatusCode) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::WrongMethod { allow } => Some((ALLOW, HeaderValue::from_str(allow).ok()?)),
            _ if status == StatusCode::UNAUTHORIZED => {
                Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
            }
            _ if status == StatusCode::SERVICE_UNAVAILABLE => {
                Some((RETRY_AFTER, HeaderValue::from_static("1")))
            }
            _ => None,
        }
    }

    fn log(&self, status: StatusCode) {
        match self {
            Self::Failed(Error::Overloaded(refused)) => {
                if let Some(unsaid) = OVERLOADS.tell(Instant::now()) {
                    tracing::warn!(unsaid, "requests are refused for overload: {refused}");
                }
            }
            Self::Failed(error) if status.is_server_error() => {
                tracing::error!(status = status.as_u16(), "{}", Chain(error));
            }
            Self::Panicked => tracing::error!(status = status.as_u16(), "a request panicked"),
            Self::Failed(_) | Self::LongUrl | Self::UnknownPath | Self::WrongMethod { .. } => {}
            #[cfg(feature = "rocket")]
            Self::BrokeOff => {}
        }
    }
}

/// Overload refuses many requests at once: a line now and then tells of them, and how many more there were since the last.
static OVERLOADS: Sparse = Sparse::new(Duration::from_secs(5));

/// What is told once in an interval at most.
struct Sparse {
    interval: Duration,
    /// When it was told last, and how often it was not since.
    told: Mutex<(Option<Instant>, u64)>,
}

impl Sparse {
    const fn new(interval: Duration) -> Self {
        Self { interval, told: Mutex::new((None, 0)) }
    }

    /// Whether it is to be told now: how often it was not since the last time.
    fn tell(&self, now: Instant) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, unsaid) = &mut *told;
        if last.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            *unsaid += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(unsaid))
    }
}

fn internal() -> Told {
    plain(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error")
}

fn told(error: &Error, wording: Wording) -> Told {
    let Ok(status) = StatusCode::from_u16(error.status()) else { return internal() };
    match (error.kind(), error) {
        (_, Error::Invalid { message, fields }) => (status, Cow::Owned(message.clone()), fields.clone()),
        (_, Error::NotFound(missing)) => {
            let (message, errors) = wording.missing(missing);
            (status, Cow::Owned(message), errors)
        }
        (_, Error::TooLarge { file: true, limit }) => {
            let message = format!("File size exceeds {}MB limit", limit >> 20);
            (status, Cow::Owned(message), FieldErrors::new())
        }
        (ErrorKind::TooLarge, _) => plain(status, "Request body too large"),
        (ErrorKind::Unauthenticated, _) => plain(status, "Unauthorized"),
        (ErrorKind::Forbidden, _) => plain(status, "You don't have permission to access this resource"),
        (ErrorKind::UnsupportedMediaType, _) => plain(status, "Unsupported media type"),
        (ErrorKind::Unavailable, _) => plain(status, "Service unavailable"),
        // Damaged records, failed statements, defects; and kinds that core learns before this function does, which are
        // defects of this function.
        _ => internal(),
    }
}

/// An error and its causes, on one line. Some errors end with what their causes say: that is not said again.
struct Chain<'a>(&'a dyn std::error::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.0.to_string();
        for cause in std::iter::successors(self.0.source(), |cause| cause.source()).map(ToString::to_string) {
            if !told.ends_with(&cause) {
                told.extend([": ", &cause]);
            }
        }
        f.write_str(&told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_wrong_is_told_once() {
        let refused = std::io::Error::other(std::fmt::Error);
        let failed = Error::from(evidence_core::StoreError::Unavailable(refused.into()));
        let told = format!("the store is not available: {}", std::fmt::Error);
        assert_eq!(Chain(&failed).to_string(), told);
    }

    #[test]
    fn what_happens_often_is_told_once_in_an_interval_with_how_often_it_was_not() {
        let (sparse, start) = (Sparse::new(Duration::from_secs(5)), Instant::now());
        for (second, told) in [(0, Some(0)), (1, None), (4, None), (5, Some(2)), (9, None), (20, Some(1))] {
            assert_eq!(sparse.tell(start + Duration::from_secs(second)), told, "after {second} s");
        }
    }
}
