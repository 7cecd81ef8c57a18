//! Custom attestation types: a team's own kinds of evidence, versioned, with a schema and rules.

pub(crate) mod compiled;
pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod store;
pub(crate) mod view;

pub use crate::id::VersionKey;
pub use operations::{
    ArchiveAttestationType, AttestationTypeInput, GetAttestationType, ListAttestationTypes,
    PostAttestationType,
};
pub use record::{AttestationType, AttestationTypeVersion, Evaluator, Program, SummaryItem};
pub use store::AttestationTypeStore;
pub use view::{AttestationTypeView, BeforeVersions, VersionView};
