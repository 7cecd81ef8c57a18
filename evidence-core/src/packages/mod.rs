//! Audit packages: a tar with records, their ledger entries, proofs, attachments and the signed checkpoint, which outsiders
//! verify without this service. The same ledger gives the same bytes.

mod contents;
mod operations;
mod stream;
mod tar;

pub use operations::{GetArtifactPackage, GetAttestationPackage, GetTrailPackage};
