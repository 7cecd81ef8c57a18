//! The evidence API as a [`tower::Service`] over HTTP. It routes requests, reads bodies and writes responses,
//! and knows no resources. It serves the operations of [`evidence_core::api::operations`], and those that a
//! host adds ([`EvidenceApi::with_operations`]).
//!
//! The entry point is [`EvidenceApi`]. A request passes through `route` (the operation), `auth` (the caller),
//! `parameters` and `body` (the input), the [`EvidenceService`], and `reply` or `error` (the response).
//! `unread` reads the rest of the body.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `rocket` | no | `evidence_tower::rocket`, which mounts the API in a Rocket 0.5 application |

mod auth;
mod body;
mod body_buffer;
mod error;
mod multipart;
mod openapi;
mod parameters;
mod reply;
#[cfg(feature = "rocket")]
pub mod rocket;
mod route;
mod unread;

use std::convert::Infallible;
use std::fmt::{self, Debug};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use evidence_core::auth::{Principal, Scope};
use evidence_core::operation::Operations;
use evidence_core::{Error, EvidenceService};
use futures_util::FutureExt;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::body::Incoming;
use crate::error::ErrorResponse;
use crate::openapi::ApiDescription;
use crate::parameters::{IGNORED, Parameters};
use crate::route::{Found, Received, Routes, RunToCompletion};
use crate::unread::UnreadBody;

pub use crate::auth::Authenticator;
pub use crate::openapi::openapi;
pub use crate::reply::ReplyBody;

/// Any error, as in the request bodies of hosts.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request of any host.
type IncomingBody = UnsyncBoxBody<Bytes, BoxError>;

/// The path of the API on a server without a mount point.
const PREFIX: &str = "/api/v2";

/// The API over HTTP. It is cheap to clone, always ready, and infallible: every failure is a response. It
/// requires a Tokio runtime with timers.
///
/// ```
/// # use std::sync::Arc;
/// use evidence_conformance::memory::MemoryStore;
/// use evidence_core::{Evidence, Settings};
/// use evidence_tower::EvidenceApi;
///
/// let evidence = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
/// // A server of its own: `/api/v2/…`, `/ready`, `/live`.
/// let api = EvidenceApi::new(evidence);
/// // Below a host's mount point, such as axum's `nest_service("/evidence", …)`.
/// let mounted = api.clone().relative();
/// ```
#[derive(Debug, Clone)]
pub struct EvidenceApi<S> {
    inner: Arc<Inner<S>>,
}

#[derive(Clone)]
struct Inner<S> {
    service: S,
    authenticator: Option<Arc<dyn Authenticator>>,
    routes: Arc<Routes>,
    description: Arc<ApiDescription>,
    base_path: BasePath,
    /// The writes whose clients have disconnected.
    orphaned: TaskTracker,
}

impl<S: Debug> Debug for Inner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, base_path, .. } = self;
        f.debug_struct("Inner")
            .field("service", service)
            .field("base_path", base_path)
            .finish_non_exhaustive()
    }
}

/// The base of the API's paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BasePath {
    /// Below [`PREFIX`], with a server's health checks beside it.
    ApiPrefix,
    /// The root, because a host strips its mount point.
    Stripped,
}

impl<S: EvidenceService> EvidenceApi<S> {
    /// Creates the API at `/api/v2/…`, with `GET /ready` and `GET /live` beside it.
    pub fn new(service: S) -> Self {
        let (routes, description) = (Arc::new(Routes::new()), Arc::default());
        let base_path = BasePath::ApiPrefix;
        let orphaned = TaskTracker::new();
        let inner = Inner { service, authenticator: None, routes, description, base_path, orphaned };
        Self { inner: Arc::new(inner) }
    }

    /// Adds operations of the host. They are routed, checked, served and documented like those of the API.
    ///
    /// # Panics
    /// If an operation has the method and path of another.
    #[must_use]
    pub fn with_operations<L: Operations>(self) -> Self {
        let mut inner = Arc::unwrap_or_clone(self.inner);
        L::visit(Arc::make_mut(&mut inner.routes));
        inner.description = Arc::new(inner.description.with::<L>());
        Self { inner: Arc::new(inner) }
    }

    /// Returns the OpenAPI 3.1 document of this API, including the host's operations. Its paths are relative
    /// to the API's base address.
    pub fn openapi(&self) -> serde_json::Value {
        self.inner.description.document()
    }

    /// Serves the API below a mount point that the host strips from the path, such as axum's `nest_service`.
    #[must_use]
    pub fn relative(self) -> Self {
        let inner = Inner { base_path: BasePath::Stripped, ..Arc::unwrap_or_clone(self.inner) };
        Self { inner: Arc::new(inner) }
    }

    /// Lets the host authenticate callers, before API keys are checked.
    #[must_use]
    pub fn authenticated_by(self, authenticator: impl Authenticator) -> Self {
        let authenticator: Option<Arc<dyn Authenticator>> = Some(Arc::new(authenticator));
        let inner = Inner { authenticator, ..Arc::unwrap_or_clone(self.inner) };
        Self { inner: Arc::new(inner) }
    }

    /// Waits for the writes whose clients have disconnected. They continue as tasks of the runtime, so the
    /// end of the process would interrupt them. A host calls this after it stopped accepting requests, with a
    /// timeout.
    pub async fn finish_writes(&self) {
        self.inner.orphaned.close();
        self.inner.orphaned.wait().await;
    }
}

impl<S: EvidenceService> Inner<S> {
    /// Responds to a request, even if a handler panics. A caller never sees a connection that just ends.
    async fn respond(&self, request: Request<IncomingBody>) -> Response<ReplyBody> {
        let method = request.method().clone();
        let outcome = AssertUnwindSafe(self.answer(request)).catch_unwind().await;
        let response = match outcome {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => error.into_response(&method, self.service.wording()),
            Err(_) => ErrorResponse::Panicked.into_response(&method, self.service.wording()),
        };
        if method == Method::HEAD { reply::without_body(response) } else { response }
    }

    async fn answer(&self, request: Request<IncomingBody>) -> Result<Response<ReplyBody>, ErrorResponse> {
        let (head, body) = request.into_parts();
        let limit = self.service.limits().url;
        if head.uri.path_and_query().is_some_and(|url| url.as_str().len() > limit) {
            return Err(ErrorResponse::LongUrl);
        }
        // A HEAD is a GET whose body is not sent.
        let method = if head.method == Method::HEAD { Method::GET } else { head.method.clone() };
        let path = match self.base_path {
            BasePath::Stripped => head.uri.path(),
            BasePath::ApiPrefix => match head.uri.path() {
                "/ready" => return self.ready(&method).await,
                "/live" => return read_only(&method, reply::ok),
                path => path.strip_prefix(PREFIX).ok_or(ErrorResponse::UnknownPath)?,
            },
        };
        if path == "/openapi.json" {
            return read_only(&method, || reply::json_text(self.description.text()));
        }
        let found = self.routes.find(&method, path)?;
        let query = head.uri.query().unwrap_or_default();
        let ignored = if query.is_empty() { None } else { parameters::ignored(query, &found.endpoint.query) };
        let mut response = match self.operate(&head, path, found, body).await {
            Ok(response) if method == Method::GET => reply::apply_conditional_get(response, &head.headers),
            Ok(response) => response,
            Err(error) => error.into_response(&method, self.service.wording()),
        };
        response.headers_mut().extend(ignored.map(|names| (IGNORED.clone(), names)));
        Ok(response)
    }

    /// Responds with the result of an operation.
    async fn operate(
        &self,
        head: &Parts,
        path: &str,
        found: Found<'_>,
        body: IncomingBody,
    ) -> Result<Response<ReplyBody>, ErrorResponse> {
        let caller = match found.endpoint.scope {
            Scope::Open => Principal::nobody(),
            _ => self.caller(head, found.endpoint.basic_auth).await?,
        };
        let declared = found.endpoint.headers;
        let parameters = Parameters::new(&found.path, head.uri.query(), &head.headers, declared);
        let target = (found.endpoint.target)(&parameters)?;
        let access = self.service.authorize(&caller, &target).await?;
        let body = Incoming::new(&head.headers, body);
        let budget = self.service.admission().on_behalf_of(access.on_behalf_of());
        let compute = self.service.compute().on_behalf_of(access.on_behalf_of());
        #[cfg(feature = "rocket")]
        let space = budget.temporary_space().clone();
        let limits = self.service.limits();
        let received = Received { parameters, body, limits, compute: compute.clone(), budget };
        let (call, memory) = (found.endpoint.read)(received).await?;
        let request = head.uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        let service = self.service.clone();
        let is_write = call.method() != evidence_core::operation::Method::Get;
        let work = async move {
            // Held until the end, even if the client of a write disconnects.
            let _memory = memory;
            service.answer(&access, call, &request, &compute).await
        };
        let answer = match is_write {
            true => RunToCompletion::new(work, self.orphaned.clone()).await,
            false => work.await,
        };
        let response = reply::response(answer?);
        #[cfg(feature = "rocket")]
        let response = rocket::with_temporary_space(space, response);
        Ok(response)
    }

    /// Returns the caller that the host authenticates, otherwise the owner of the API key.
    async fn caller(&self, head: &Parts, basic: bool) -> Result<Principal, Error> {
        if let Some(authenticator) = &self.authenticator
            && let Some(caller) = authenticator.authenticate(head).await?
        {
            return Ok(caller);
        }
        auth::authenticate(&self.service, &head.headers, basic).await
    }

    async fn ready(&self, method: &Method) -> Result<Response<ReplyBody>, ErrorResponse> {
        let response = read_only(method, reply::ok)?;
        self.service.ready().await.map_err(ErrorResponse::NotReady)?;
        let warnings = self.service.warnings().await;
        Ok(if warnings.is_empty() { response } else { reply::ok_with(&warnings) })
    }
}

/// Responds for a path that supports only reading.
fn read_only(
    method: &Method,
    answer: impl FnOnce() -> Response<ReplyBody>,
) -> Result<Response<ReplyBody>, ErrorResponse> {
    if method == Method::GET {
        Ok(answer())
    } else {
        Err(ErrorResponse::WrongMethod { allow: route::READ_ONLY.to_owned() })
    }
}

impl<S, B> tower::Service<Request<B>> for EvidenceApi<S>
where
    S: EvidenceService,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ReplyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let span = tracing::info_span!("request", method = %request.method(), path = request.uri().path());
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let (request, unread) = UnreadBody::of(request);
        let inner = Arc::clone(&self.inner);
        let answering = async move {
            let response = inner.respond(request).await;
            Ok(unread.finish(response).await)
        };
        Box::pin(answering.instrument(span))
    }
}
