//! Error responses: the status, a message, and the errors by field. Causes are logged, and never sent to the
//! caller.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use evidence_core::error::FieldErrors;
use evidence_core::{Error, ErrorKind, StoreError, Wording};
use http::header::{ALLOW, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::json;

use crate::reply::{self, ReplyBody};

/// The reason for an error response.
#[derive(Debug)]
pub(crate) enum ErrorResponse {
    /// The path and the query are too long.
    LongUrl,
    /// No operation has this path.
    UnknownPath,
    /// An operation would have this path if names could contain slashes.
    SlashInName {
        /// The parameter with slashes in its value.
        parameter: &'static str,
        /// Its value.
        value: String,
    },
    /// Operations have this path, but not with this method.
    WrongMethod {
        /// The methods of this path, for `Allow`.
        allow: String,
    },
    /// The operation failed.
    Failed(Error),
    /// Writes cannot succeed, for this reason.
    NotReady(Error),
    /// A handler panicked. The panic hook has logged the location.
    Panicked,
    /// A response failed before any of it was sent. The cause was logged.
    #[cfg(feature = "rocket")]
    BrokeOff,
}

impl From<Error> for ErrorResponse {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The header of a 503 to a write, with the outcome of the write.
const WRITE_OUTCOME: HeaderName = HeaderName::from_static("evidence-write-outcome");

/// The outcome of a write with status 503.
#[derive(Debug, Clone, Copy)]
enum WriteOutcome {
    /// The write was not recorded and will not be.
    NotWritten,
    /// The write may have been recorded, or may still be, in part or as a whole.
    Unknown,
}

impl WriteOutcome {
    /// Returns the value of [`WRITE_OUTCOME`].
    const fn value(self) -> &'static str {
        match self {
            Self::NotWritten => "not-written",
            Self::Unknown => "unknown",
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::NotWritten => "nothing was recorded, so try again later",
            Self::Unknown => "it is not known whether this was recorded, so check before trying again",
        }
    }
}

/// The status, the message and the `errors` of a response.
type ErrorParts = (StatusCode, Cow<'static, str>, FieldErrors);

fn plain(status: StatusCode, message: &'static str) -> ErrorParts {
    (status, Cow::Borrowed(message), FieldErrors::new())
}

impl ErrorResponse {
    /// Returns the response to a request with this method, as JSON like every error.
    pub(crate) fn into_response(self, method: &Method, wording: Wording) -> Response<ReplyBody> {
        let (status, mut message, errors) = self.parts(wording);
        self.log(status);
        let outcome = self.write_outcome(method, status);
        if let Some(outcome) = outcome {
            message = Cow::Owned(format!("{message}: {}", outcome.sentence()));
        }
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
        if let Some(outcome) = outcome {
            response.headers_mut().insert(WRITE_OUTCOME, HeaderValue::from_static(outcome.value()));
        }
        response
    }

    /// Returns the outcome of a write with status 503.
    fn write_outcome(&self, method: &Method, status: StatusCode) -> Option<WriteOutcome> {
        if status != StatusCode::SERVICE_UNAVAILABLE || matches!(*method, Method::GET | Method::HEAD) {
            return None;
        }
        match self {
            Self::Failed(error) if error.may_have_recorded() => Some(WriteOutcome::Unknown),
            _ => Some(WriteOutcome::NotWritten),
        }
    }

    fn parts(&self, wording: Wording) -> ErrorParts {
        match self {
            Self::LongUrl => plain(StatusCode::URI_TOO_LONG, "URL too long"),
            Self::UnknownPath => plain(StatusCode::NOT_FOUND, "Not found"),
            Self::SlashInName { parameter, value } => slash_in_name(parameter, value),
            Self::WrongMethod { .. } => plain(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
            Self::Failed(error) => parts(error, wording),
            Self::NotReady(error) => not_ready(error),
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
            Self::NotReady(error) => tracing::warn!("not ready: {}", Chain(error)),
            Self::Failed(error) if status.is_server_error() => {
                tracing::error!(status = status.as_u16(), "{}", Chain(error));
            }
            Self::Panicked => tracing::error!(status = status.as_u16(), "a request panicked"),
            Self::Failed(_)
            | Self::LongUrl
            | Self::UnknownPath
            | Self::SlashInName { .. }
            | Self::WrongMethod { .. } => {}
            #[cfg(feature = "rocket")]
            Self::BrokeOff => {}
        }
    }
}

/// Returns the error for a path with additional slashes. Clients send some names without encoding them.
fn slash_in_name(parameter: &str, value: &str) -> ErrorParts {
    let called = match parameter {
        "env_name" => "environment name".to_owned(),
        parameter => parameter.replace('_', " "),
    };
    let text = format!("{called} '{}' should not contain '/'", beginning(value));
    let errors = FieldErrors::from_iter([(parameter.to_owned(), format!("The {text}"))]);
    (StatusCode::NOT_FOUND, Cow::Owned(format!("Not found: the {text}")), errors)
}

/// Returns the first characters of a text.
fn beginning(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// Throttled, because overload rejects many requests at once.
static OVERLOADS: LogThrottle = LogThrottle::new(Duration::from_secs(5));

/// Allows one log line per interval, and counts the suppressed ones.
#[derive(Debug)]
struct LogThrottle {
    interval: Duration,
    /// The time of the last allowed line, and the number of lines suppressed since.
    state: Mutex<(Option<Instant>, u64)>,
}

impl LogThrottle {
    const fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::new((None, 0)) }
    }

    /// Returns whether a line may be logged now: the number of lines suppressed since the last one, or
    /// `None`.
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

fn not_ready(error: &Error) -> ErrorParts {
    let reason = match error {
        Error::Store(StoreError::Unavailable(reason)) => reason.to_string(),
        other => other.to_string(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, Cow::Owned(format!("Not ready: {reason}")), FieldErrors::new())
}

fn internal() -> ErrorParts {
    plain(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error")
}

/// The size of a megabyte in the specification.
const MEGABYTE: u64 = 1 << 20;

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
        (_, Error::TooLarge { file: true, limit, .. }) => {
            let message = match limit % MEGABYTE {
                0 => format!("File size exceeds {}MB limit", limit / MEGABYTE),
                _ => format!("File size exceeds the limit of {limit} bytes"),
            };
            (status, Cow::Owned(message), FieldErrors::new())
        }
        (_, Error::TooLarge { file: false, limit, part }) => {
            let text = format!("Input should have at most {limit} bytes");
            let fields = FieldErrors::from([((*part).to_owned(), text)]);
            (status, Cow::Borrowed("Request body too large"), fields)
        }
        (ErrorKind::Unauthenticated, _) => plain(status, "Unauthorized"),
        (ErrorKind::Forbidden, _) => plain(status, "You don't have permission to access this resource"),
        (ErrorKind::UnsupportedMediaType, _) => plain(status, "Unsupported media type"),
        (_, Error::Store(StoreError::ClockAhead(ahead))) => {
            (status, Cow::Owned(format!("Service unavailable: {ahead}")), FieldErrors::new())
        }
        (_, Error::NotSigned(reason)) => {
            (status, Cow::Owned(format!("Not signed: {reason}")), FieldErrors::new())
        }
        (ErrorKind::Unavailable, _) => plain(status, "Service unavailable"),
        // Damaged records, failed statements and defects. Also kinds that were added to the core but not
        // here, which is a defect.
        _ => internal(),
    }
}

/// An error and its causes, on one line. Omits a cause that the error's own text ends with.
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
