//! Strategies for [proptest](https://docs.rs/proptest): values of every validated type, and the body of every request,
//! as the service accepts it and with exactly one thing wrong. A team tests its own client with them, or its own store.
//!
//! - Small types, such as names, digests, ids and roles, are [`proptest::arbitrary::Arbitrary`]: `any::<FlowName>()`.
//! - [`Requests::of`] an operation gives what may be sent with it, and what is refused, with the field that the refusal
//!   names. What a body mentions must exist: [`ExistingNames`] says what does.
//! - [`bodies`] has the shape of each body by itself; [`Shape::typed`] gives it as the type that the service reads.
//! - [`documents`] has flow templates, policies and type schemas, which are uploaded as files.
//!
//! ```
//! use evidence_core::artifacts::ArtifactInput;
//! use evidence_core::name::FlowName;
//! use evidence_core::strategies::bodies;
//! use proptest::prelude::*;
//!
//! proptest! {
//!     fn a_report_says_what_was_built(flow: FlowName, report in bodies::artifact().typed::<ArtifactInput>()) {
//!         prop_assert!(!flow.as_str().is_empty() && !report.filename.is_empty());
//!     }
//! }
//! # a_report_says_what_was_built();
//! ```

pub mod bodies;
pub mod documents;
mod request;
mod shape;
pub mod shared;
pub mod texts;

pub use request::{Refused, Requests, Sent};
pub use shape::{Broken, Object, Shape};

/// What exists already, for bodies that mention it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExistingNames {
    /// Names of physical environments.
    pub environments: Vec<String>,
    /// Names of policies.
    pub policies: Vec<String>,
    /// Fingerprints of artifacts that were reported to the trail.
    pub fingerprints: Vec<String>,
    /// Names of custom attestation types that take any data.
    pub attestation_types: Vec<String>,
    /// Identifiers of controls.
    pub controls: Vec<String>,
}

impl Requests {
    /// What may be sent with the operation of this name ([`crate::Operation::NAME`]); nothing for one without a body.
    pub fn of(operation: &str, known: &ExistingNames) -> Option<Self> {
        bodies::requests(operation, known)
    }
}
