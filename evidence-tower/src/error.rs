//! Error responses: the status of the error's kind, a message, and the fields that are wrong. Causes go to the log, never to
//! the caller.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use evidence_core::error::FieldErrors;
use evidence_core::{Error, ErrorKind, StoreError, Wording};
use http::header::{ALLOW, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::reply::{self, ReplyBody};

/// Why a request is answered with an error.
#[derive(Debug)]
pub(crate) enum ErrorResponse {
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
    /// Something panicked; the panic hook has logged where.
    Panicked,
    /// An answer broke off before any of it was sent; the log says why.
    #[cfg(feature = "rocket")]
    BrokeOff,
}

impl From<Error> for ErrorResponse {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Status, message and `errors` of a response.
type ErrorParts = (StatusCode, Cow<'static, str>, FieldErrors);

fn plain(status: StatusCode, message: &'static str) -> ErrorParts {
    (status, Cow::Borrowed(message), FieldErrors::new())
}

impl ErrorResponse {
    /// The response, in the JSON form that every error has.
    pub(crate) fn into_response(self, wording: Wording) -> Response<ReplyBody> {
        let (status, message, errors) = self.parts(wording);
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

    fn parts(&self, wording: Wording) -> ErrorParts {
        match self {
            Self::LongUrl => plain(StatusCode::URI_TOO_LONG, "URL too long"),
            Self::UnknownPath => plain(StatusCode::NOT_FOUND, "Not found"),
            Self::WrongMethod { .. } => plain(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
            Self::Failed(error) => parts(error, wording),
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
                if let Some(suppressed) = OVERLOADS.allow(Instant::now()) {
                    tracing::warn!(suppressed, "requests are refused for overload: {refused}");
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

/// Overload refuses many requests at once.
static OVERLOADS: LogThrottle = LogThrottle::new(Duration::from_secs(5));

/// Allows one log line per interval and counts the suppressed ones.
#[derive(Debug)]
struct LogThrottle {
    interval: Duration,
    /// When a line was last allowed, and how many were suppressed since.
    state: Mutex<(Option<Instant>, u64)>,
}

impl LogThrottle {
    const fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::new((None, 0)) }
    }

    /// How many lines were suppressed since the last one, if one may be logged now.
    fn allow(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, suppressed) = &mut *state;
        if last.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            *suppressed += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(suppressed))
    }
}

fn internal() -> ErrorParts {
    plain(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error")
}

fn parts(error: &Error, wording: Wording) -> ErrorParts {
    let Ok(status) = StatusCode::from_u16(error.status()) else { return internal() };
    match (error.kind(), error) {
        (_, Error::Invalid { message, fields }) => (status, Cow::Owned(message.clone()), fields.clone()),
        (_, Error::NotFound(missing)) => {
            let (message, errors) = wording.missing(missing);
            (status, Cow::Owned(message), errors)
        }
        (_, Error::DuplicateControl(duplicate)) => {
            let (message, errors) = wording.duplicate(duplicate);
            (status, Cow::Owned(message), errors)
        }
        (_, Error::AccessDenied(path)) => {
            (status, Cow::Owned(format!("Access denied to {path}")), FieldErrors::new())
        }
        (_, Error::TooLarge { file: true, limit }) => {
            let message = format!("File size exceeds {}MB limit", limit >> 20);
            (status, Cow::Owned(message), FieldErrors::new())
        }
        (ErrorKind::TooLarge, _) => plain(status, "Request body too large"),
        (ErrorKind::Unauthenticated, _) => plain(status, "Unauthorized"),
        (ErrorKind::Forbidden, _) => plain(status, "You don't have permission to access this resource"),
        (ErrorKind::UnsupportedMediaType, _) => plain(status, "Unsupported media type"),
        (_, Error::Store(StoreError::ClockAhead(ahead))) => {
            (status, Cow::Owned(format!("Service unavailable: {ahead}")), FieldErrors::new())
        }
        (ErrorKind::Unavailable, _) => plain(status, "Service unavailable"),
        // Damaged records, failed statements, defects; and kinds that core learns before this function does, which are
        // defects of this function.
        _ => internal(),
    }
}

/// An error and its causes, on one line. A cause that ends the error's own text is not repeated.
struct Chain<'a>(&'a dyn std::error::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        for cause in std::iter::successors(self.0.source(), |cause| cause.source()).map(ToString::to_string) {
            if !text.ends_with(&cause) {
                text.extend([": ", &cause]);
            }
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_logged_once() {
        let refused = std::io::Error::other(std::fmt::Error);
        let failed = Error::from(evidence_core::StoreError::Unavailable(refused.into()));
        let text = format!("the store is not available: {}", std::fmt::Error);
        assert_eq!(Chain(&failed).to_string(), text);
    }

    #[test]
    fn a_line_is_allowed_once_per_interval_with_the_number_suppressed() {
        let (throttle, start) = (LogThrottle::new(Duration::from_secs(5)), Instant::now());
        for (second, allowed) in [(0, Some(0)), (1, None), (4, None), (5, Some(2)), (9, None), (20, Some(1))]
        {
            assert_eq!(throttle.allow(start + Duration::from_secs(second)), allowed, "after {second} s");
        }
    }
}
