//! The append-only Merkle log of an organization of [`evidence`](https://docs.rs/evidence-core), as pure functions over
//! hashes and signatures. It builds for `wasm32-unknown-unknown`.
//!
//! - A [`Header`] names one entry and the [salted digest](payload_hash) of its payload. The tree contains its [leaf
//!   hash](Header::leaf_hash), so a payload can be redacted with its salt and every proof stays valid.
//! - [`Frontier`] appends without reading the tree.
//! - [`inclusion`] and [`consistency`] build proofs from stored hashes.
//! - [`verify_inclusion`] and [`verify_consistency`] verify proofs from hashes alone.
//! - A [`Checkpoint`] states the size and the root of a log. [`note`]s sign it, and a [`TlogProof`] leads from an entry to it.
//! - [`tile`]s are the pieces in which clients fetch a log.
//!
//! Hashing follows RFC 6962 §2.1 with SHA-256, so anyone can verify a log without this code. Nothing here
//! performs I/O: a store asks which hashes a proof needs, fetches them, and passes them in.
//!
//! ```
//! use evidence_ledger::{Hash, LedgerHashes, inclusion, root_of, verify_consistency, verify_inclusion};
//!
//! let leaves: Vec<Hash> = ["a", "b", "c"].map(Hash::of).to_vec();
//! let known = LedgerHashes { leaves: (0..).zip(leaves.iter().copied()).collect(), ..LedgerHashes::default() };
//! let path = inclusion(1, 3, &known)?;
//! assert!(verify_inclusion(leaves[1], 1, 3, &path, root_of(&leaves)));
//! assert!(!verify_inclusion(leaves[0], 1, 3, &path, root_of(&leaves)));
//! assert!(verify_consistency(0, 3, root_of(&[]), root_of(&leaves), &[]));
//! # Ok::<(), evidence_ledger::LedgerError>(())
//! ```
//!
//! The feature `serde` serializes hashes as hexadecimal text.

mod checkpoint;
pub mod cose;
mod hash;
mod header;
pub mod note;
mod proof;
mod salt;
pub mod tile;
mod tlog_proof;
mod tree;

#[cfg(test)]
mod tests;

pub use checkpoint::Checkpoint;
pub use hash::Hash;
pub use header::{Header, payload_hash};
pub use proof::{
    LedgerHashes, Needs, consistency, consistency_needs, inclusion, inclusion_needs, root_at, root_needs,
    verify_consistency, verify_inclusion,
};
pub use salt::Salt;
pub use tlog_proof::{ProofError, TlogProof};
pub use tree::{EMPTY_ROOT, Frontier, Node, STORED_LEVEL_STEP, node_hash, root_of};

/// The reason why a hash, a frontier or a proof is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A text that should be a hash is not 64 lower-case hexadecimal digits.
    #[error("a hash is 64 lower-case hexadecimal digits")]
    MalformedHash,
    /// A text that should be a salt is not 32 lower-case hexadecimal digits.
    #[error("a salt is 32 lower-case hexadecimal digits")]
    MalformedSalt,
    /// A text that should be the path of a tile is none, or is of a tile that no log can have.
    #[error("this is not the path of a tile, such as '0/x001/234.p/17' or 'entries/000'")]
    MalformedTile,
    /// A frontier does not have one hash for each complete subtree of its size.
    #[error("the frontier of {size} leaves has {expected} hashes, found {found} characters")]
    MalformedFrontier {
        /// The number of leaves that the frontier should cover.
        size: u64,
        /// The number of hashes that a frontier of this size has.
        expected: u32,
        /// The length in characters of the text found instead; it should be 64 for each hash.
        found: usize,
    },
    /// A tree is larger than a store can count.
    #[error("a tree of {size} leaves is larger than any store can hold")]
    TooLarge {
        /// The number of leaves claimed.
        size: u64,
    },
    /// The tree has no such leaf, so there is no inclusion proof.
    #[error("a tree of {size} leaves has no leaf {index}")]
    NoSuchLeaf {
        /// The requested leaf.
        index: u64,
        /// The number of leaves of the tree.
        size: u64,
    },
    /// The older tree is larger than the newer one, so no append leads from one to the other.
    #[error("a tree of {old} leaves cannot grow into one of {new}")]
    Shrinks {
        /// The number of leaves of the older tree.
        old: u64,
        /// The number of leaves of the newer tree.
        new: u64,
    },
    /// A leaf that the proof needs was not supplied.
    #[error("leaf {index} is missing from the ledger")]
    MissingLeaf {
        /// The position of the leaf.
        index: u64,
    },
    /// A stored node that the proof needs was not supplied.
    #[error("node {index} of level {level} is missing from the ledger")]
    MissingNode {
        /// The level of the node; leaves are level 0.
        level: u32,
        /// The position of the node within its level.
        index: u64,
    },
}
