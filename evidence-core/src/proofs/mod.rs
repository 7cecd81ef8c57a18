//! Proofs over HTTP: the signed checkpoint of a ledger, its tiles, its entries, and proofs that an entry is in it and that
//! it only grew.

mod operations;
mod parameters;
mod views;

pub use operations::{GetCheckpoint, GetConsistency, GetEntries, GetProof, GetTile, ListLedgerKeys};
pub use parameters::{LedgerIndex, ProofFormat, RecordOrIndex, TilePath};
pub use views::{ConsistencyView, EntryPage, EntryView, ProofView};
