//! A decoded request for an operation, without the operation's type.

use std::fmt;

use futures_util::future::BoxFuture;

use super::Evidence;
use crate::auth::access::{Access, Target};
use crate::compute::Compute;
use crate::error::Result;
use crate::operation::{Answer, Method, Operation};

/// A request for an operation, as a transport decoded it. [`EvidenceService::answer`](crate::EvidenceService::answer)
/// runs it.
///
/// It hides the type of the operation, so that the code of an operation is compiled once, and not for each
/// [`EvidenceService`](crate::EvidenceService).
pub struct Call {
    operation: &'static str,
    method: Method,
    typed: Box<dyn AnyCall>,
}

impl Call {
    /// Creates the call of an operation with this body.
    pub fn new<O: Operation>(operation: O, body: O::Body) -> Self {
        Self { operation: O::NAME, method: O::METHOD, typed: Box::new(TypedCall { operation, body }) }
    }

    /// Returns the `operationId`.
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the HTTP method of the operation. All but GET may write.
    pub const fn method(&self) -> Method {
        self.method
    }

    /// Returns the target, with the organization and the flow in the path.
    pub fn target(&self) -> Target {
        self.typed.target()
    }

    /// Runs the operation and builds its response.
    pub(super) fn answer<'a>(
        self,
        evidence: &'a Evidence,
        access: &'a Access,
        request: &'a str,
        compute: &'a Compute,
    ) -> BoxFuture<'a, Result<Answer>> {
        self.typed.answer(evidence, access, request, compute)
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("target", &self.target()).finish_non_exhaustive()
    }
}

/// A call of an operation of any type.
trait AnyCall: Send {
    fn target(&self) -> Target;

    fn answer<'a>(
        self: Box<Self>,
        evidence: &'a Evidence,
        access: &'a Access,
        request: &'a str,
        compute: &'a Compute,
    ) -> BoxFuture<'a, Result<Answer>>;
}

struct TypedCall<O: Operation> {
    operation: O,
    body: O::Body,
}

impl<O: Operation> AnyCall for TypedCall<O> {
    fn target(&self) -> Target {
        Target::of(&self.operation)
    }

    fn answer<'a>(
        self: Box<Self>,
        evidence: &'a Evidence,
        access: &'a Access,
        request: &'a str,
        compute: &'a Compute,
    ) -> BoxFuture<'a, Result<Answer>> {
        let Self { operation, body } = *self;
        Box::pin(evidence.answer_typed(access, operation, body, request, compute))
    }
}
