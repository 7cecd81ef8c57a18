//! The sizes and counts that a host may set, and the operation that shows them.

pub mod operations;

pub use evidence_values::limits::*;
