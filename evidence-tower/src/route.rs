//! Finds the operation of a request. There is one router per method, filled from the list of operations.
//!
//! With a single router, some paths would get 405 although an operation has them: `POST …/trail/{t}/snyk`
//! would hide `GET …/trail/{t}/{name}` for an attestation named `snyk`.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{self, Poll};

use evidence_core::admission::RequestBudget;
use evidence_core::auth::{Scope, Target};
use evidence_core::budget::Reservation;
use evidence_core::compute::Compute;
use evidence_core::operation::{Body, Method};
use evidence_core::service::Call;
use evidence_core::{Limits, Operation, Result, Visitor, api};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use percent_encoding::percent_decode_str;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::body::Incoming;
use crate::error::ErrorResponse;
use crate::parameters::{Parameters, query_names};

/// The value of `Allow` for a path that supports only reading.
pub(crate) const READ_ONLY: &str = "GET, HEAD";

/// The routes of all operations.
#[derive(Clone)]
pub(crate) struct Routes {
    by_method: BTreeMap<Method, Router>,
}

/// The operations of one method.
#[derive(Clone, Default)]
struct Router {
    exact: matchit::Router<Endpoint>,
    /// The operations whose last parameter matches the rest of the path. If `exact` has
    /// `/repos/{org}/{repo}/deployments`, matchit rejects `/repos/{org}/{*repo_name}` in the same router.
    catch_all: matchit::Router<Endpoint>,
    /// The paths of the operations.
    paths: Vec<&'static str>,
}

impl Router {
    fn insert<O: Operation>(&mut self, endpoint: Endpoint) -> Result<(), matchit::InsertError> {
        self.paths.push(O::PATH);
        match O::PATH.rsplit_once('{') {
            Some((before, last)) if O::CATCH_ALL => {
                self.catch_all.insert(format!("{before}{{*{last}"), endpoint)
            }
            _ => self.exact.insert(O::PATH, endpoint),
        }
    }

    fn at<'a>(&'a self, path: &'a str) -> Option<matchit::Match<'a, 'a, &'a Endpoint>> {
        self.exact.at(path).or_else(|_| self.catch_all.at(path)).ok()
    }
}

/// An operation without its type.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) target: fn(&Parameters) -> Result<Target>,
    pub(crate) scope: Scope,
    pub(crate) basic_auth: bool,
    /// The request headers that it declares.
    pub(crate) headers: &'static [&'static str],
    /// The names of its query parameters. Derived from its schema for the first request with a query.
    pub(crate) query: Arc<LazyLock<BTreeSet<String>>>,
    pub(crate) read: fn(Received) -> BoxFuture<'static, Result<ReadCall>>,
}

/// The input of an operation as received.
pub(crate) struct Received {
    pub(crate) parameters: Parameters,
    pub(crate) body: Incoming,
    pub(crate) limits: Limits,
    pub(crate) compute: Compute,
    /// The limits of the request's memory and temporary space.
    pub(crate) budget: RequestBudget,
}

/// A decoded request, with the reservation of its memory.
pub(crate) type ReadCall = (Call, Option<Reservation>);

/// An endpoint with the path parameters as sent.
pub(crate) struct Found<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) path: matchit::Params<'a, 'a>,
}

impl Routes {
    /// Creates the routes of all operations.
    ///
    /// # Panics
    /// If two operations have the same method and path. That is a defect of the list, which the first test
    /// finds.
    pub(crate) fn new() -> Self {
        let mut routes = Self { by_method: BTreeMap::new() };
        api::operations(&mut routes);
        routes
    }

    /// Returns the endpoint for this method and path.
    pub(crate) fn find<'a>(
        &'a self,
        method: &http::Method,
        path: &'a str,
    ) -> Result<Found<'a>, ErrorResponse> {
        let router = supported(method).and_then(|method| self.by_method.get(&method));
        match router.and_then(|router| router.at(path)) {
            Some(found) => Ok(Found { endpoint: found.value, path: found.params }),
            None => Err(self.not_found(method, path)),
        }
    }

    fn not_found(&self, method: &http::Method, path: &str) -> ErrorResponse {
        let methods =
            self.by_method.iter().filter(|(_, router)| router.at(path).is_some()).map(|(method, _)| {
                match method {
                    Method::Get => READ_ONLY,
                    Method::Post => "POST",
                    Method::Put => "PUT",
                    Method::Patch => "PATCH",
                    Method::Delete => "DELETE",
                }
            });
        let methods: Vec<&str> = methods.collect();
        if !methods.is_empty() {
            return ErrorResponse::WrongMethod { allow: methods.join(", ") };
        }
        match self.name_with_slash(method, path) {
            Some(NameWithSlash { parameter, value, .. }) => ErrorResponse::SlashInName { parameter, value },
            None => ErrorResponse::UnknownPath,
        }
    }

    /// Returns the parameter that would contain slashes if this were the path of an operation with this
    /// method.
    fn name_with_slash(&self, method: &http::Method, path: &str) -> Option<NameWithSlash> {
        let router = self.by_method.get(&supported(method)?)?;
        let candidates = router.paths.iter().filter_map(|operation| NameWithSlash::find(operation, path));
        candidates.max_by_key(|candidate| candidate.literals)
    }
}

/// A path parameter whose value contains slashes, as sent.
#[derive(Debug, PartialEq, Eq)]
struct NameWithSlash {
    /// The parameter.
    parameter: &'static str,
    /// Its value.
    value: String,
    /// The number of literal segments in the operation's path.
    literals: usize,
}

impl NameWithSlash {
    /// Returns the last parameter with which the operation's path matches if the parameter spans several
    /// segments.
    fn find(operation: &'static str, path: &str) -> Option<Self> {
        let segments = Vec::from_iter(path.split('/'));
        let parts = Vec::from_iter(operation.split('/'));
        let more = segments.len().checked_sub(parts.len()).filter(|more| *more > 0)?;
        let parameter = |part: &'static str| part.strip_prefix('{')?.strip_suffix('}');
        let fits = |parts: &[&'static str], segments: &[&str]| {
            parts.iter().zip(segments).all(|(part, segment)| {
                if parameter(part).is_some() { !segment.is_empty() } else { part == segment }
            })
        };
        (0..parts.len()).rev().find_map(|at| {
            let name = parameter(parts.get(at)?)?;
            let (before, rest) = segments.split_at_checked(at)?;
            let (value, after) = rest.split_at_checked(more + 1)?;
            let fits = fits(parts.get(..at)?, before) && fits(parts.get(at + 1..)?, after);
            let is_name = value.iter().all(|segment| !segment.is_empty());
            (fits && is_name).then(|| Self {
                parameter: name,
                value: percent_decode_str(&value.join("/")).decode_utf8_lossy().into_owned(),
                literals: parts.iter().filter(|part| parameter(part).is_none()).count(),
            })
        })
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes").field("methods", &self.by_method.keys()).finish_non_exhaustive()
    }
}

impl Visitor for Routes {
    fn visit<O: Operation>(&mut self) {
        let endpoint = Endpoint {
            target: Parameters::target::<O>,
            scope: O::SCOPE,
            basic_auth: O::BASIC_AUTH,
            headers: O::REQUEST_HEADERS,
            query: Arc::new(LazyLock::new(query_names::<O>)),
            read: read::<O>,
        };
        let router = self.by_method.entry(O::METHOD).or_default();
        router.insert::<O>(endpoint).expect("each operation has a path of its own");
    }
}

fn supported(method: &http::Method) -> Option<Method> {
    match *method {
        http::Method::GET => Some(Method::Get),
        http::Method::POST => Some(Method::Post),
        http::Method::PUT => Some(Method::Put),
        http::Method::PATCH => Some(Method::Patch),
        http::Method::DELETE => Some(Method::Delete),
        _ => None,
    }
}

fn read<O: Operation>(received: Received) -> BoxFuture<'static, Result<ReadCall>> {
    Box::pin(async move { decode::<O>(received).await.map_err(|error| error.with_summary(O::INVALID)) })
}

async fn decode<O: Operation>(received: Received) -> Result<ReadCall> {
    let Received { parameters, body, limits, compute, budget } = received;
    let operation: O = parameters.read()?;
    let (body, memory) = body.read(O::Body::KIND, O::body_limit(&limits), &limits, &budget).await?;
    Ok((Call::new(operation, O::Body::read_in(body, limits, &compute).await?), memory))
}

/// A write that runs as part of its request. If the request is dropped because the client disconnected, the
/// rest of the write becomes a task. A write in several steps is thus completed, as long as the server runs
/// or waits for it ([`EvidenceApi::finish_writes`](crate::EvidenceApi::finish_writes)).
pub(crate) struct RunToCompletion<T: Send + 'static> {
    work: Option<BoxFuture<'static, T>>,
    /// The runtime of the request, which may be dropped anywhere.
    runtime: Option<Handle>,
    orphaned: TaskTracker,
}

impl<T: Send + 'static> RunToCompletion<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static, orphaned: TaskTracker) -> Self {
        Self { work: Some(work.in_current_span().boxed()), runtime: Handle::try_current().ok(), orphaned }
    }
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<T> {
        // After a panic, the work is not continued.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let outcome = work.poll_unpin(cx);
        if outcome.is_pending() {
            self.work = Some(work);
        }
        outcome
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        if let (Some(work), Some(runtime)) = (self.work.take(), &self.runtime) {
            self.orphaned.spawn_on(work.map(drop), runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_with_slashes_is_the_last_one_that_makes_the_path_fit() {
        const GENERIC: &str = "/attestations/{org}/{flow_name}/trail/{trail_name}/generic";
        let table = [
            (
                GENERIC,
                "/attestations/acme/app/trail/feature/login/generic",
                Some(("trail_name", "feature/login")),
            ),
            (GENERIC, "/attestations/acme/my/app/trail/t/generic", Some(("flow_name", "my/app"))),
            (GENERIC, "/attestations/acme/app/trail/a/b/c%20d/generic", Some(("trail_name", "a/b/c d"))),
            (GENERIC, "/attestations/acme/app/trail/t/generic", None),
            (GENERIC, "/attestations/acme/app/trail/feature/login/junit", None),
            (GENERIC, "/attestations/acme/app/trail/feature//generic", None),
            ("/trails/{org}/{flow_name}/{trail_name}", "/trails/acme/app/a/b", Some(("trail_name", "a/b"))),
            ("/flows/{org}", "/flows/acme/", None),
            ("/flows/{org}", "/nothing/acme/a", None),
            ("/user/default-org", "/user/default-org/a", None),
        ];
        for (operation, path, expected) in table {
            let found = NameWithSlash::find(operation, path);
            let found = found.as_ref().map(|found| (found.parameter, found.value.as_str()));
            assert_eq!(found, expected, "{path}");
        }
    }
}
