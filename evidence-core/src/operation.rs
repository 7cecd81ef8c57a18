//! Operations as types. The fields of an operation are its path and query parameters, its constants describe
//! the route, and `run` has the logic. Routing, OpenAPI, scopes, limits and documentation follow from the
//! list in [`crate::api`].

mod acknowledged;
mod body;
mod csv;
mod list;
pub(crate) mod paging;
mod reply;
mod stream;
mod target;
pub(crate) mod versions;

use std::future::Future;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::auth::actor::Scope;
use crate::error::{INVALID_PAYLOAD, Result};
use crate::limits::Limits;
use crate::name::{FlowName, OrgName};
use crate::service::Context;

pub use acknowledged::Acknowledged;
pub use body::*;
pub use csv::*;
pub use list::*;
pub use reply::*;
pub use stream::*;

/// The five HTTP methods of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the variants are HTTP's")]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// One operation of the API. The `///` text of the type and of its fields is their description in the OpenAPI
/// document. [`Operation::SCOPE`] decides who may call it.
pub trait Operation: DeserializeOwned + JsonSchema + Send + 'static {
    /// The `operationId`, which never changes once it is released.
    const NAME: &'static str;
    /// The HTTP method.
    const METHOD: Method;
    /// The path below the base address, such as `/flows/{org}/{flow_name}`.
    const PATH: &'static str;
    /// Whether the last path parameter matches the rest of the path, including slashes. Other
    /// operations that match take precedence.
    const CATCH_ALL: bool = false;
    /// The access that the caller needs.
    const SCOPE: Scope;
    /// The summary, in one line.
    const SUMMARY: &'static str;
    /// Whether it is deprecated.
    const DEPRECATED: bool = false;
    /// Whether it accepts HTTP Basic in addition to Bearer (specification, Authentication: the repo list).
    const BASIC_AUTH: bool = false;
    /// The first sentence of its validation errors (specification, Errors).
    const INVALID: &'static str = INVALID_PAYLOAD;
    /// The error statuses that are specific to this operation.
    const ERRORS: &'static [u16] = &[];
    /// The request headers that it reads, as documented, such as `Idempotency-Key`. Each is a field of the
    /// operation, named by [`header_field`], such as `idempotency_key`. Repeated headers are joined by `, `
    /// (RFC 9110, 5.3).
    const REQUEST_HEADERS: &'static [&'static str] = &[];
    /// Whether its responses are cached until the organization's ledger grows. They must depend on nothing
    /// but the ledger, the path, the query and the caller's role: not on the time, on headers, on the caller,
    /// or on data outside ledgers. Only for GET.
    const CACHED: bool = false;
    /// The headers of its responses in addition to the common ones, as documented; see [`WithHeaders`].
    const ANSWER_HEADERS: &'static [&'static str] = &[];
    /// The request body: `()`, [`Json`], [`Form`] or [`Raw`].
    type Body: Body;
    /// The response: [`Json`], [`Created`], [`Put`], [`JsonList`], [`JsonStream`], [`Raw`], [`Streamed`],
    /// [`Download`], [`Csv`] or [`Pdf`], or one of them with headers as [`WithHeaders`].
    type Output: Reply;

    /// Returns the maximum size of a JSON body, or of the JSON document of a form, in bytes: [`Limits::body`]
    /// or [`Limits::document`].
    fn body_limit(limits: &Limits) -> u64 {
        match Self::Body::KIND {
            BodyKind::Form(_) => limits.document,
            BodyKind::Empty | BodyKind::Json | BodyKind::Raw => limits.body,
        }
    }

    /// Returns the organization of the request, if it has one.
    fn org(&self) -> Option<&OrgName>;

    /// Returns the flow that a [`Scope::ReadFlow`] operation reads.
    fn flow(&self) -> Option<&FlowName> {
        None
    }

    /// Runs the operation. The caller is already authorized.
    fn run(self, body: Self::Body, cx: &Context<'_>) -> impl Future<Output = Result<Self::Output>> + Send;
}

/// Returns the field of an operation for a request header: `idempotency_key` for `Idempotency-Key`.
pub fn header_field(header: &str) -> String {
    header.to_ascii_lowercase().replace('-', "_")
}

/// Visits every operation of the API; see [`crate::api::operations`].
pub trait Visitor {
    /// Visits one operation.
    fn visit<O: Operation>(&mut self);
}

/// Operations that a host serves in addition to those of the API.
pub trait Operations {
    /// Passes each operation to `v`.
    fn visit(v: &mut impl Visitor);
}
