//! The API in a Rocket 0.5 application: [`Mount`] turns an [`EvidenceApi`] into routes, [`catchers`] make what Rocket
//! refuses before any route look like the API's own errors.
//!
//! ```
//! # use std::sync::Arc;
//! # use evidence_core::memory::MemoryStore;
//! # use evidence_core::{Evidence, Settings};
//! use evidence_tower::EvidenceApi;
//! use evidence_tower::rocket::{Mount, catchers};
//!
//! # let evidence = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
//! let api = EvidenceApi::new(evidence);
//! let app = rocket::build().mount("/api/v2", Mount::new(api)).register("/api/v2", catchers());
//! ```
//!
//! Rocket is no transparent carrier. What differs from the other hosts:
//!
//! - A method that Rocket does not know (`PROPFIND`) is answered 400 before any route, not 405; with [`catchers`] at
//!   least in JSON.
//! - Rocket turns a form-encoded `POST` into the verb that its field `_method` names. The API reads no such forms, so
//!   the content type `application/x-www-form-urlencoded` is refused with 415 whatever the request, so that no verb takes
//!   effect that was not sent.
//! - Rocket adds headers: `Server`, and those of its fairing `Shield` (`X-Frame-Options`, `X-Content-Type-Options`,
//!   `Permissions-Policy`). Attach `Shield::new()` without policies to send none of the latter.
//! - Request headers that are not UTF-8 are dropped by Rocket.
//! - Rocket asks a client that sent `Expect: 100-continue` for every body, also for one that the API then refuses.
//! - Rocket ends a body of unknown length alike whether it is complete or broke off. So an answer whose length is not known
//!   is gathered before it is sent, in memory up to 64 KiB and in a temporary file from then on: what fails meanwhile is
//!   answered 500, and 503 where the caller's temporary space is in use. Do not serve an endless one from Rocket.
//!
//! All other bodies stream in both directions, and the limits are the API's own: Rocket's `limits` do not apply.

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
use crate::{BoxError, EvidenceApi, IncomingBody, body};

/// Behind the host's own routes, which Rocket ranks from -12 to -1.
const RANK: isize = 100;

/// The methods that Rocket routes. It answers `HEAD` itself, by what `GET` answers, so that the host's own routes keep
/// theirs below the mount point.
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

/// How much Rocket looks at of every body before it routes; an error meanwhile is logged and then forgotten.
const PEEKED: usize = "_method=delete".len();

/// The most that is read or written at once, in bytes.
const PIECE: usize = 16 << 10;

/// The API as Rocket routes, for `rocket.mount("/api/v2", Mount::new(api))`. Routes of the host's below the same mount
/// point win.
#[derive(Debug, Clone)]
pub struct Mount<S> {
    api: EvidenceApi<S>,
}

impl<S: EvidenceService> Mount<S> {
    /// The API, for any mount point.
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
        // The very condition under which Rocket may have replaced the method.
        let asked = if request.content_type().is_some_and(|sent| sent.is_form()) {
            Err(Error::UnsupportedMediaType.into())
        } else {
            head(request).ok_or(ErrorResponse::UnknownPath)
        };
        if asked.is_ok() && !data.peek_complete() && data.peek(PEEKED).await.len() < PEEKED {
            return Outcome::Success(response(refusal(body::incomplete().into())));
        }
        let answer = |body| async {
            match asked {
                Ok(head) => self.answer(head.map(|()| body)).await,
                Err(error) => UnreadBody::of(http::Request::new(body)).1.settle(refusal(error)).await,
            }
        };
        if data.peek_complete() && data.peek(1).await.is_empty() {
            let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
            return Outcome::Success(complete(answer(body).await).await);
        }
        // What Rocket reads borrows from the connection, and a body of the API's must not: the two run side by side here.
        let (sender, body) = channel();
        let answered = pin!(answer(body));
        let fed = pin!(feed(sender, data.open(ByteUnit::max_value())));
        let answer = match future::select(answered, fed).await {
            Either::Left((answer, _)) => answer,
            Either::Right(((), answered)) => answered.await,
        };
        // Always `Outcome::Success`, also for a 404: on any other outcome Rocket would answer with a catcher.
        Outcome::Success(complete(answer).await)
    }
}

type HttpResponse = http::Response<ReplyBody>;

/// The request without its body, and with the path below the mount point as it was sent; `None` if the mount point is
/// spelt in another way, such as percent-encoded.
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
    // Rocket has asked for the body, for it looks at every one.
    head.headers_mut().remove(EXPECT);
    Some(head)
}

/// An error response that needs no operation.
fn refusal(error: ErrorResponse) -> HttpResponse {
    // The method matters in a 503 to a write alone, whose answers have lengths.
    error.into_response(&http::Method::GET, Wording::default())
}

type Piece = Result<Bytes, BoxError>;

/// A body, and the way to feed it.
fn channel() -> (mpsc::Sender<Piece>, IncomingBody) {
    let (sender, mut receiver) = mpsc::channel(1);
    let pieces = stream::poll_fn(move |cx| receiver.poll_recv(cx)).map_ok(Frame::data);
    (sender, StreamBody::new(pieces).boxed_unsync())
}

/// Feeds what Rocket reads, until it ends or the API wants no more.
async fn feed(body: mpsc::Sender<Piece>, data: DataStream<'_>) {
    let mut pieces = ReaderStream::with_capacity(data, PIECE).map_err(BoxError::from);
    while let Some(piece) = pieces.next().await {
        if body.send(piece).await.is_err() {
            return;
        }
    }
}

/// The answer, which counts against its caller's temporary space if it has to be gathered.
pub(crate) fn gathered_in(space: TemporarySpace, mut answer: HttpResponse) -> HttpResponse {
    answer.extensions_mut().insert(space);
    answer
}

/// An answer as Rocket sends it, once its length is known.
async fn complete(answer: HttpResponse) -> Response<'static> {
    if answer.body().length().is_some() {
        return response(answer);
    }
    let (mut head, body) = answer.into_parts();
    // Only answers of operations have no length, and these have their caller's.
    let space = head.extensions.remove::<TemporarySpace>().unwrap_or_default();
    match body.buffered(space).await {
        Ok(body) => {
            head.headers.extend(body.length().map(|length| (CONTENT_LENGTH, HeaderValue::from(length))));
            response(HttpResponse::from_parts(head, body))
        }
        Err(full) if full.kind() == ErrorKind::QuotaExceeded => {
            response(refusal(body::spill_error(full).into()))
        }
        Err(_) => response(refusal(ErrorResponse::BrokeOff)),
    }
}

/// An answer as Rocket sends it; its length is among the headers.
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

/// What Rocket refuses by itself, in the JSON form of the API's errors: unknown methods, unreadable requests. Register
/// them under the mount point, so that the host's own catchers serve its other paths.
pub fn catchers() -> Vec<Catcher> {
    vec![Catcher::new(None, caught)]
}

fn caught<'r>(status: Status, _: &'r Request<'_>) -> BoxFuture<'r> {
    let text = json!({ "message": status.reason_lossy() }).to_string();
    let mut response = response(reply::json_text(text));
    response.set_status(status);
    future::ready(Ok(response)).boxed()
}
