//! The shape of the tree: how hashes combine, and the frontier, which appends without reading the tree.

use super::{Hash, LedgerError};

/// The root of a tree without leaves: the SHA-256 of no bytes (RFC 6962 §2.1).
pub const EMPTY_ROOT: Hash = Hash::from_bytes([
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
    0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
]);

/// The interval of levels whose nodes are stored (4, 8, 12, …). It costs one row for fifteen leaves, and a
/// proof still reads few rows.
pub const STORED_LEVEL_STEP: u32 = 4;

/// RFC 6962 §2.1: the prefix that separates node hashes from leaf hashes.
const NODE_PREFIX: [u8; 1] = [0x01];

/// Maximum number of leaves, because stores count them in signed 64-bit integers.
const MAX_SIZE: u64 = i64::MAX.unsigned_abs();

/// Returns the hash of the node above `left` and `right` (RFC 6962 §2.1).
#[must_use]
pub fn node_hash(left: Hash, right: Hash) -> Hash {
    Hash::of_parts(&[&NODE_PREFIX, left.as_bytes(), right.as_bytes()])
}

/// Returns the root over all `leaves` (leaf hashes), by the definition of RFC 6962 §2.1. It is slow and
/// simple, and the reference for the faster functions.
#[must_use]
pub fn root_of(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => EMPTY_ROOT,
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(1 << (leaves.len() - 1).ilog2());
            node_hash(root_of(left), root_of(right))
        }
    }
}

/// Returns the root over complete subtrees of decreasing size, largest first.
pub(super) fn root_of_peaks(peaks: impl DoubleEndedIterator<Item = Hash>) -> Hash {
    peaks.rev().reduce(|right, left| node_hash(left, right)).unwrap_or(EMPTY_ROOT)
}

/// A stored node of the tree: the root of the complete subtree over the leaves `index << level .. (index + 1)
/// << level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The height above the leaves, a multiple of [`STORED_LEVEL_STEP`].
    pub level: u32,
    /// The position within the level, from 0.
    pub index: u64,
    /// The hash of the node.
    pub hash: Hash,
}

/// The minimal state for appending to a tree and computing its root: its size and the hashes of its complete
/// subtrees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// One hash for each bit of `size`, the largest subtree first.
    peaks: Vec<Hash>,
}

impl Frontier {
    /// Creates the frontier of a tree of `size` leaves from the bytes that [`to_bytes`](Self::to_bytes)
    /// returned.
    ///
    /// # Errors
    ///
    /// The bytes are not one hash for each complete subtree, or `size` is larger than a store can count.
    pub fn from_bytes(size: u64, bytes: &[u8]) -> Result<Self, LedgerError> {
        if size > MAX_SIZE {
            return Err(LedgerError::TooLarge { size });
        }
        let (hashes, rest) = bytes.as_chunks::<32>();
        let expected = size.count_ones();
        if !rest.is_empty() || hashes.len() != expected as usize {
            let found = bytes.len();
            return Err(LedgerError::MalformedFrontier { size, expected, found });
        }
        Ok(Self { size, peaks: hashes.iter().copied().map(Hash::from_bytes).collect() })
    }

    /// Returns the concatenated hashes, largest subtree first, 32 bytes each; empty for an empty tree.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.peaks.iter().flat_map(Hash::as_bytes).copied().collect()
    }

    /// Returns the number of leaves, which is also the index of the next one.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the root of the whole tree.
    #[must_use]
    pub fn root(&self) -> Hash {
        root_of_peaks(self.peaks.iter().copied())
    }

    /// Appends one leaf hash and returns the completed nodes that must be stored, lowest first. Fifteen of
    /// sixteen leaves complete none, and the empty result is not allocated.
    pub fn append(&mut self, leaf: Hash) -> Vec<Node> {
        let index = self.size;
        let merges = index.trailing_ones();
        let kept = self.peaks.len().saturating_sub(merges as usize);
        let mut stored = Vec::new();
        let mut hash = leaf;
        for (level, left) in (1..=merges).zip(self.peaks.drain(kept..).rev()) {
            hash = node_hash(left, hash);
            if level.is_multiple_of(STORED_LEVEL_STEP) {
                stored.push(Node { level, index: index >> level, hash });
            }
        }
        self.peaks.push(hash);
        self.size += 1;
        stored
    }
}
