//! Builds proofs in two steps, so that a store fetches all hashes of a proof in one or two statements.
//!
//! A function `…_needs` returns the leaves and stored nodes that a proof requires. The function of the same
//! name builds the path from them. Both use the same descent from the root. The verifiers share none of that
//! code: they implement RFC 9162 step by step, on hashes alone.

use std::collections::BTreeMap;
use std::ops::Range;

use super::tree::root_of_peaks;
use super::{EMPTY_ROOT, Hash, LedgerError, STORED_LEVEL_STEP, node_hash, root_of};

/// The hashes that a store must fetch for one proof: at most 31 leaves, and 31 nodes of each stored level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Leaves by index, as ascending ranges with gaps between them.
    pub leaves: Vec<Range<u64>>,
    /// Stored nodes as `(level, index)`, ascending, each once.
    pub nodes: Vec<(u32, u64)>,
}

impl Needs {
    /// Returns the hashes of several proofs, each once.
    #[must_use]
    pub fn merged(needs: impl IntoIterator<Item = Self>) -> Self {
        let (mut leaves, mut nodes) = (Vec::<Range<u64>>::new(), Vec::new());
        for need in needs {
            leaves.extend(need.leaves);
            nodes.extend(need.nodes);
        }
        nodes.sort_unstable();
        nodes.dedup();
        leaves.sort_unstable_by_key(|range| (range.start, range.end));
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in leaves {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Self { leaves: merged, nodes }
    }
}

/// The hashes that a store fetched. Additional hashes do no harm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerHashes {
    /// Leaf hashes by index.
    pub leaves: BTreeMap<u64, Hash>,
    /// Stored nodes by `(level, index)`.
    pub nodes: BTreeMap<(u32, u64), Hash>,
}

/// Returns the hashes that [`inclusion`] needs for these arguments; none if it would return an error.
#[must_use]
pub fn inclusion_needs(index: u64, size: u64) -> Needs {
    inclusion_path(index, size).map_or_else(|_| Needs::default(), |path| needs_of(&path))
}

/// Returns the audit path of leaf `index` in the tree of the first `size` leaves, from the leaf upwards (RFC
/// 6962 §2.1.1).
///
/// # Errors
///
/// There is no such leaf, or `known` lacks a hash of [`inclusion_needs`].
pub fn inclusion(index: u64, size: u64, known: &LedgerHashes) -> Result<Vec<Hash>, LedgerError> {
    hashes_of(&inclusion_path(index, size)?, known)
}

/// Returns the hashes that [`consistency`] needs for these arguments; none if it would return an error.
#[must_use]
pub fn consistency_needs(old: u64, new: u64) -> Needs {
    consistency_path(old, new).map_or_else(|_| Needs::default(), |path| needs_of(&path))
}

/// Returns the proof that the tree of the first `new` leaves extends that of the first `old` (RFC 6962
/// §2.1.2). The proof is empty for equal sizes and from the empty tree.
///
/// # Errors
///
/// `old` is larger than `new`, or `known` lacks a hash of [`consistency_needs`].
pub fn consistency(old: u64, new: u64, known: &LedgerHashes) -> Result<Vec<Hash>, LedgerError> {
    hashes_of(&consistency_path(old, new)?, known)
}

/// Returns the subtrees, as ranges of leaves, whose roots make up an audit path.
fn inclusion_path(index: u64, size: u64) -> Result<Vec<Range<u64>>, LedgerError> {
    if index >= size {
        return Err(LedgerError::NoSuchLeaf { index, size });
    }
    let (_, siblings) = descend(index, size, |subtree| subtree.end - subtree.start == 1);
    Ok(siblings)
}

/// Returns the subtrees, as ranges of leaves, whose roots make up a consistency proof.
fn consistency_path(old: u64, new: u64) -> Result<Vec<Range<u64>>, LedgerError> {
    if old > new {
        return Err(LedgerError::Shrinks { old, new });
    }
    let Some(last) = old.checked_sub(1) else {
        return Ok(Vec::new());
    };
    let (reached, siblings) = descend(last, new, |subtree| subtree.end == old);
    // A verifier knows the root of the old tree, so it is not sent if it is the subtree reached.
    let unknown = Some(reached).filter(|subtree| subtree.start > 0);
    Ok(unknown.into_iter().chain(siblings).collect())
}

/// Descends from the root of a tree of `size` leaves towards leaf `target` until `arrived`. Returns the
/// subtree reached and the siblings along the path, lowest first.
fn descend(target: u64, size: u64, arrived: impl Fn(&Range<u64>) -> bool) -> (Range<u64>, Vec<Range<u64>>) {
    let mut subtree = 0..size;
    let mut siblings = Vec::new();
    while !arrived(&subtree) {
        let middle = subtree.start + (1 << (subtree.end - subtree.start - 1).ilog2());
        let (left, right) = (subtree.start..middle, middle..subtree.end);
        let (next, sibling) = if target < middle { (left, right) } else { (right, left) };
        siblings.push(sibling);
        subtree = next;
    }
    siblings.reverse();
    (subtree, siblings)
}

/// A complete subtree, whose root or pieces are stored.
#[derive(Clone, Copy)]
struct Peak {
    level: u32,
    index: u64,
}

/// Returns the complete subtrees of a subtree, largest first.
fn peaks(subtree: &Range<u64>) -> impl Iterator<Item = Peak> + use<> {
    let Range { mut start, end } = *subtree;
    std::iter::from_fn(move || {
        let level = (end - start).checked_ilog2()?;
        let index = start >> level;
        start += 1 << level;
        Some(Peak { level, index })
    })
}

impl Peak {
    /// Returns the nearest stored level at or below this one; 0 means the leaves.
    fn stored_level(self) -> u32 {
        self.level - self.level % STORED_LEVEL_STEP
    }

    /// Returns the nodes of the stored level that make up this subtree: one, two, four or eight.
    fn pieces(self) -> Range<u64> {
        let height = self.level - self.stored_level();
        self.index << height..(self.index + 1) << height
    }

    fn hash(self, known: &LedgerHashes) -> Result<Hash, LedgerError> {
        let level = self.stored_level();
        let pieces: Vec<Hash> =
            self.pieces().map(|index| known.get(level, index)).collect::<Result<_, _>>()?;
        Ok(root_of(&pieces))
    }
}

impl LedgerHashes {
    pub(crate) fn get(&self, level: u32, index: u64) -> Result<Hash, LedgerError> {
        if level == 0 {
            let leaf = self.leaves.get(&index).copied();
            leaf.ok_or(LedgerError::MissingLeaf { index })
        } else {
            let node = self.nodes.get(&(level, index)).copied();
            node.ok_or(LedgerError::MissingNode { level, index })
        }
    }
}

fn needs_of(path: &[Range<u64>]) -> Needs {
    let mut needs = Needs::default();
    for peak in path.iter().flat_map(peaks) {
        match peak.stored_level() {
            0 => needs.leaves.push(peak.pieces()),
            level => needs.nodes.extend(peak.pieces().map(|index| (level, index))),
        }
    }
    needs.nodes.sort_unstable();
    needs.leaves = joined(needs.leaves);
    needs
}

/// Merges adjacent ranges. The input must be disjoint; the result is in ascending order.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

fn hashes_of(path: &[Range<u64>], known: &LedgerHashes) -> Result<Vec<Hash>, LedgerError> {
    path.iter().map(|subtree| subtree_hash(subtree, known)).collect()
}

fn subtree_hash(subtree: &Range<u64>, known: &LedgerHashes) -> Result<Hash, LedgerError> {
    let hashes: Vec<Hash> = peaks(subtree).map(|peak| peak.hash(known)).collect::<Result<_, _>>()?;
    Ok(root_of_peaks(hashes.into_iter()))
}

/// Returns the hashes that [`root_at`] needs, from a tree of at least `size` leaves.
#[must_use]
pub fn root_needs(size: u64) -> Needs {
    needs_of(std::slice::from_ref(&(0..size)))
}

/// Returns the root that the tree had when it held `size` leaves.
///
/// # Errors
/// [`LedgerError::MissingLeaf`] or [`LedgerError::MissingNode`] if `known` lacks a hash of [`root_needs`].
pub fn root_at(size: u64, known: &LedgerHashes) -> Result<Hash, LedgerError> {
    if size == 0 { Ok(super::EMPTY_ROOT) } else { subtree_hash(&(0..size), known) }
}

/// Returns whether `path` proves that `leaf` is leaf `index` of the tree of `size` leaves with this `root`
/// (RFC 9162 §2.1.3.2).
#[must_use]
pub fn verify_inclusion(leaf: Hash, index: u64, size: u64, path: &[Hash], root: Hash) -> bool {
    root_of_inclusion(leaf, index, size, path) == Some(root)
}

/// Returns the root to which `path` leads from leaf `index` of a tree of `size` leaves; `None` if no such tree has a path of
/// this length there.
pub(crate) fn root_of_inclusion(leaf: Hash, index: u64, size: u64, path: &[Hash]) -> Option<Hash> {
    if index >= size {
        return None;
    }
    let mut way = Climb::new(index, size - 1);
    let mut hash = leaf;
    for &sibling in path {
        hash = match way.step()? {
            Side::Left => node_hash(sibling, hash),
            Side::Right => node_hash(hash, sibling),
        };
    }
    way.at_root().then_some(hash)
}

/// Returns whether `path` proves that the tree of `new` leaves with `new_root` extends the tree of `old`
/// leaves with `old_root` (RFC 9162 §2.1.4.2). Every tree extends the empty one, so `new_root` is not checked
/// in that case.
#[must_use]
pub fn verify_consistency(old: u64, new: u64, old_root: Hash, new_root: Hash, path: &[Hash]) -> bool {
    if old > new {
        return false;
    }
    if old == new {
        return path.is_empty() && old_root == new_root && (old > 0 || old_root == EMPTY_ROOT);
    }
    if old == 0 {
        return path.is_empty() && old_root == EMPTY_ROOT;
    }
    let (first, rest) = if old.is_power_of_two() {
        (old_root, path)
    } else if let Some((&first, rest)) = path.split_first() {
        (first, rest)
    } else {
        return false;
    };
    let mut way = Climb::new(old - 1, new - 1);
    way.skip_right_children();
    let (mut old_hash, mut new_hash) = (first, first);
    for &sibling in rest {
        match way.step() {
            Some(Side::Left) => {
                old_hash = node_hash(sibling, old_hash);
                new_hash = node_hash(sibling, new_hash);
            }
            Some(Side::Right) => new_hash = node_hash(new_hash, sibling),
            None => return false,
        }
    }
    way.at_root() && old_hash == old_root && new_hash == new_root
}

/// The side of the current node on which the next hash of a proof is.
enum Side {
    Left,
    Right,
}

/// The path of a verifier from a node up to the root. RFC 9162 calls these two numbers `fn` and `sn`.
struct Climb {
    /// The position of the current node within its level.
    node: u64,
    /// The position of the last node of that level.
    last: u64,
}

impl Climb {
    fn new(node: u64, last: u64) -> Self {
        Self { node, last }
    }

    fn at_root(&self) -> bool {
        self.last == 0
    }

    fn rise(&mut self) {
        self.node >>= 1;
        self.last >>= 1;
    }

    fn is_right_child(&self) -> bool {
        self.node & 1 == 1
    }

    /// Ascends to the root of the largest complete subtree that ends here.
    fn skip_right_children(&mut self) {
        while self.is_right_child() {
            self.rise();
        }
    }

    /// Ascends past the next sibling and returns its side; `None` at the root, which has no sibling.
    fn step(&mut self) -> Option<Side> {
        if self.at_root() {
            return None;
        }
        let side = if self.is_right_child() || self.node == self.last {
            // The last node of a level has no right sibling. It represents its parents until it is a right
            // child.
            while !self.is_right_child() && self.node > 0 {
                self.rise();
            }
            Side::Left
        } else {
            Side::Right
        };
        self.rise();
        Some(side)
    }
}
