//! Strategies for [proptest](https://docs.rs/proptest): values of every validated type, and the body of every
//! request, both valid and with exactly one error. Teams can use them to test their own clients or stores.
//!
//! - Small types, such as names, digests, ids and roles, implement [`proptest::arbitrary::Arbitrary`]:
//!   `any::<FlowName>()`.
//! - [`Requests::of`] returns the valid and invalid requests of an operation; an invalid one comes with the
//!   field that the error names. Everything that a body refers to must exist, and is listed in
//!   [`ExistingNames`].
//! - [`bodies`] has the shape of each body; [`Shape::typed`] converts it to the type that the service
//!   decodes.
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
mod request;
pub mod shared;
pub mod texts;

pub use evidence_rules::strategies as documents;
pub use evidence_values::strategies::{Invalid, Object, Shape};
pub use request::{Refused, Requests, Sent};

/// Existing records that bodies may refer to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExistingNames {
    /// Names of physical environments.
    pub environments: Vec<String>,
    /// Names of policies.
    pub policies: Vec<String>,
    /// Fingerprints of artifacts that were reported to the trail.
    pub fingerprints: Vec<String>,
    /// Names of custom attestation types that accept any data.
    pub attestation_types: Vec<String>,
    /// Identifiers of controls.
    pub controls: Vec<String>,
}

impl Requests {
    /// Returns the requests of the operation of this name ([`crate::Operation::NAME`]), or `None` for one
    /// without a body.
    pub fn of(operation: &str, known: &ExistingNames) -> Option<Self> {
        bodies::requests(operation, known)
    }
}
