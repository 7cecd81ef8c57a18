//! The API in a Rocket 0.5 application. [`Mount`] turns an [`EvidenceApi`] into routes. [`catchers`] give
//! Rocket's own errors the form of the API's errors.
//!
//! ```
//! # use std::sync::Arc;
//! # use evidence_conformance::memory::MemoryStore;
//! # use evidence_core::{Evidence, Settings};
//! use evidence_tower::EvidenceApi;
//! use evidence_tower::rocket::{Mount, catchers};
//!
//! # let evidence = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
//! let api = EvidenceApi::new(evidence);
//! let app = rocket::build().mount("/api/v2", Mount::new(api)).register("/api/v2", catchers());
//! ```
//!
//! Rocket does not carry HTTP transparently. The differences to other hosts:
//!
//! - Rocket responds to an unknown method (`PROPFIND`) with 400 before routing, not with 405. With
//!   [`catchers`], this response is JSON.
//! - Rocket changes the method of a form-encoded `POST` to the one in its field `_method`. The API accepts no
//!   such forms. It therefore rejects the content type `application/x-www-form-urlencoded` with 415, so that
//!   no method takes effect that was not sent.
//! - Rocket adds headers: `Server`, and those of its fairing `Shield` (`X-Frame-Options`,
//!   `X-Content-Type-Options`, `Permissions-Policy`). Attach `Shield::new()` without policies to omit the
//!   latter.
//! - Rocket drops request headers that are not UTF-8.
//! - For `Expect: 100-continue`, Rocket requests every body, even if the API then rejects it.
//! - Rocket ends a body of unknown length in the same way whether it is complete or not. Such a response is
//!   therefore buffered before it is sent: in memory up to 64 KiB, beyond that in a temporary file. A failure
//!   meanwhile results in 500, or in 503 if the caller's temporary space is used up. Do not serve an endless
//!   response with Rocket.
//!
//! All other bodies are streamed in both directions. The API's own limits apply, and Rocket's `limits` do
//! not.

use std::io::ErrorKind;
use std::pin::pin;

use ::rocket::catcher::BoxFuture;
use ::rocket::data::{ByteUnit, DataStream};
use ::rocket::http::{Method, Status};
use ::rocket::route::{Handler, Outcome};
use ::rocket::{Catcher, Data, Request, Response, Route};
use bytes::Bytes;
use evidence_core::spill_buffer::TemporarySpace;
use evidence_core::{Error, EvidenceService, Wording};
use futures_util::future::{self, Either};
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use http::HeaderValue;
use http::header::{CONTENT_LENGTH, EXPECT};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, StreamBody};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::io::{ReaderStream, StreamReader};
use tower::ServiceExt;

use crate::error::ErrorResponse;
use crate::reply::{self, ReplyBody};
use crate::unread::UnreadBody;
use crate::{BoxError, EvidenceApi, IncomingBody, body_buffer};

/// After the host's own routes, which Rocket ranks from -12 to -1.
const RANK: isize = 100;

/// The methods that Rocket routes. Rocket handles `HEAD` itself by calling `GET`, so the host's own routes
/// keep theirs below the mount point.
const METHODS: [Method; 8] = [
    Method::Get,
    Method::Put,
    Method::Post,
    Method::Delete,
    Method::Options,
    Method::Trace,
    Method::Connect,
    Method::Patch,
];

/// The number of bytes of a body that Rocket reads before routing. It logs and then ignores an error
/// meanwhile.
const PEEKED: usize = "_method=delete".len();

/// The maximum number of bytes that are read or written at once.
const PIECE: usize = 16 << 10;

/// The API as Rocket routes, for `rocket.mount("/api/v2", Mount::new(api))`. Routes of the host below the
/// same mount point take precedence.
#[derive(Debug, Clone)]
pub struct Mount<S> {
    api: EvidenceApi<S>,
}

impl<S: EvidenceService> Mount<S> {
    /// Creates routes for any mount point.
    pub fn new(api: EvidenceApi<S>) -> Self {
        Self { api: api.relative() }
    }

    fn answer(&self, request: http::Request<IncomingBody>) -> impl Future<Output = HttpResponse> + use<S> {
        self.api.clone().oneshot(request).map(|Ok(answer)| answer)
    }
}

impl<S: EvidenceService> From<Mount<S>> for Vec<Route> {
    fn from(mount: Mount<S>) -> Self {
        let route = |method| {
            let mut route = Route::ranked(RANK, method, "/<path..>", mount.clone());
            route.name = Some("evidence".into());
            route
        };
        METHODS.into_iter().map(route).collect()
    }
}

#[::rocket::async_trait]
impl<S: EvidenceService> Handler for Mount<S> {
    async fn handle<'r>(&self, request: &'r Request<'_>, mut data: Data<'r>) -> Outcome<'r> {
        // Under exactly this condition, Rocket may have replaced the method.
        let asked = if request.content_type().is_some_and(|sent| sent.is_form()) {
            Err(Error::UnsupportedMediaType.into())
        } else {
            head(request).ok_or(ErrorResponse::UnknownPath)
        };
        if asked.is_ok() && !data.peek_complete() && data.peek(PEEKED).await.len() < PEEKED {
            return Outcome::Success(response(refusal(body_buffer::incomplete().into())));
        }
        let answer = |body| async {
            match asked {
                Ok(head) => self.answer(head.map(|()| body)).await,
                Err(error) => UnreadBody::of(http::Request::new(body)).1.finish(refusal(error)).await,
            }
        };
        if data.peek_complete() && data.peek(1).await.is_empty() {
            let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
            return Outcome::Success(complete(answer(body).await).await);
        }
        // Rocket's body borrows from the connection, and the API's body must not. Both run concurrently here.
        let (sender, body) = channel();
        let answered = pin!(answer(body));
        let fed = pin!(feed(sender, data.open(ByteUnit::max_value())));
        let answer = match future::select(answered, fed).await {
            Either::Left((answer, _)) => answer,
            Either::Right(((), answered)) => answered.await,
        };
        // Always `Outcome::Success`, even for a 404. With any other outcome, Rocket would call a catcher.
        Outcome::Success(complete(answer).await)
    }
}

type HttpResponse = http::Response<ReplyBody>;

/// Returns the request without its body, with the path below the mount point as sent. Returns `None` if the
/// mount point is written differently, such as percent-encoded.
fn head(request: &Request<'_>) -> Option<http::Request<()>> {
    let base = request.route()?.uri.base().trim_end_matches('/');
    let path = request.uri().path().as_str().strip_prefix(base)?;
    let path = if path.is_empty() { "/" } else { path };
    let uri = match request.uri().query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let builder = http::Request::builder().method(request.method().as_str()).uri(uri);
    let headers = request.headers().iter();
    let builder = headers
        .fold(builder, |builder, header| builder.header(header.name.as_str(), header.value.as_bytes()));
    let mut head = builder.body(()).ok()?;
    // Rocket has already requested the body, because it reads from every body.
    head.headers_mut().remove(EXPECT);
    Some(head)
}

/// Returns an error response that does not depend on an operation.
fn refusal(error: ErrorResponse) -> HttpResponse {
    // The method matters only for the 503 of a write, which has a known length.
    error.into_response(&http::Method::GET, Wording::default())
}

type Piece = Result<Bytes, BoxError>;

/// Creates a body and the channel that feeds it.
fn channel() -> (mpsc::Sender<Piece>, IncomingBody) {
    let (sender, mut receiver) = mpsc::channel(1);
    let pieces = stream::poll_fn(move |cx| receiver.poll_recv(cx)).map_ok(Frame::data);
    (sender, StreamBody::new(pieces).boxed_unsync())
}

/// Feeds the body from Rocket until it ends or the API drops it.
async fn feed(body: mpsc::Sender<Piece>, data: DataStream<'_>) {
    let mut pieces = ReaderStream::with_capacity(data, PIECE).map_err(BoxError::from);
    while let Some(piece) = pieces.next().await {
        if body.send(piece).await.is_err() {
            return;
        }
    }
}

/// Makes the response use its caller's temporary space if it has to be buffered.
pub(crate) fn with_temporary_space(space: TemporarySpace, mut answer: HttpResponse) -> HttpResponse {
    answer.extensions_mut().insert(space);
    answer
}

/// Returns the response for Rocket, with a known length.
async fn complete(answer: HttpResponse) -> Response<'static> {
    if answer.body().length().is_some() {
        return response(answer);
    }
    let (mut head, body) = answer.into_parts();
    // Only responses of operations have unknown lengths, and these have their caller's space.
    let space = head.extensions.remove::<TemporarySpace>().unwrap_or_default();
    match body.buffered(space).await {
        Ok(body) => {
            head.headers.extend(body.length().map(|length| (CONTENT_LENGTH, HeaderValue::from(length))));
            response(HttpResponse::from_parts(head, body))
        }
        Err(full) if full.kind() == ErrorKind::QuotaExceeded => {
            response(refusal(body_buffer::spill_error(full).into()))
        }
        Err(_) => response(refusal(ErrorResponse::BrokeOff)),
    }
}

/// Returns the response for Rocket. Its length is among the headers.
fn response(answer: HttpResponse) -> Response<'static> {
    let (head, body) = answer.into_parts();
    let mut response = Response::new();
    response.set_status(Status::new(head.status.as_u16()));
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        response.adjoin_raw_header(name.as_str().to_owned(), value);
    }
    let length = usize::try_from(body.size_hint().lower()).unwrap_or(PIECE);
    response.set_max_chunk_size(length.clamp(1, PIECE));
    response.set_streamed_body(StreamReader::new(body.into_data_stream()));
    response
}

/// Returns catchers that give Rocket's own errors, such as unknown methods and unreadable requests, the JSON
/// form of the API's errors. Register them under the mount point, so that the host's own catchers serve other
/// paths.
pub fn catchers() -> Vec<Catcher> {
    vec![Catcher::new(None, caught)]
}

fn caught<'r>(status: Status, _: &'r Request<'_>) -> BoxFuture<'r> {
    let text = json!({ "message": status.reason_lossy() }).to_string();
    let mut response = response(reply::json_text(text));
    response.set_status(status);
    future::ready(Ok(response)).boxed()
}
