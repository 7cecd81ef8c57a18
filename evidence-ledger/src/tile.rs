//! Tiles ([C2SP tlog-tiles](https://c2sp.org/tlog-tiles)): pieces of a log at fixed addresses, from which clients compute
//! any proof.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::checkpoint::decimal;
use crate::{LedgerError, LedgerHashes, Needs};

/// The number of hashes or entries of a full tile.
const FULL: u64 = 256;
/// The number of tree levels from one level of tiles to the next.
const TILE_HEIGHT: u32 = 8;
/// The largest level of tiles in a tree that a store can count.
const MAX_LEVEL: u8 = 7;

/// The content of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TileContent {
    /// Hashes of this level of tiles: level 0 has those of leaves.
    Hashes(u8),
    /// The leaves themselves.
    Entries,
}

/// The address of a tile. Its text is the path below `tile/`, such as `0/x001/234.p/17` or `entries/000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    content: TileContent,
    index: u64,
    /// 1 to 256.
    width: u64,
}

impl Tile {
    /// Returns the content.
    pub const fn content(self) -> TileContent {
        self.content
    }

    /// Returns whether it is a full tile. A full tile never changes, and replaces each partial one of the same index.
    pub const fn is_full(self) -> bool {
        self.width == FULL
    }

    /// Returns the positions of its hashes or entries within their level of the tree.
    pub const fn positions(self) -> Range<u64> {
        let first = self.index * FULL;
        first..first + self.width
    }

    /// Returns the smallest size of a log that has this tile.
    pub const fn least_size(self) -> u64 {
        self.positions().end << self.tree_level()
    }

    const fn tree_level(self) -> u32 {
        match self.content {
            TileContent::Hashes(level) => level as u32 * TILE_HEIGHT,
            TileContent::Entries => 0,
        }
    }

    /// Returns the hashes of the tile, which a store must fetch.
    #[must_use]
    pub fn needs(self) -> Needs {
        match self.tree_level() {
            0 => Needs { leaves: vec![self.positions()], ..Needs::default() },
            level => {
                Needs { nodes: self.positions().map(|index| (level, index)).collect(), ..Needs::default() }
            }
        }
    }

    /// Returns the bytes of a tile of hashes.
    ///
    /// # Errors
    /// [`LedgerError::MissingLeaf`] or [`LedgerError::MissingNode`] if `known` lacks a hash of [`Self::needs`].
    pub fn hashes(self, known: &LedgerHashes) -> Result<Vec<u8>, LedgerError> {
        let level = self.tree_level();
        let hashes = self.positions().map(|index| known.get(level, index).map(|hash| *hash.as_bytes()));
        Ok(hashes.collect::<Result<Vec<_>, _>>()?.concat())
    }
}

/// Appends a leaf to a tile of entries. Returns `false` if it is longer than a tile can have.
#[must_use]
pub fn push_entry(tile: &mut Vec<u8>, leaf: &[u8]) -> bool {
    let Ok(length) = u16::try_from(leaf.len()) else { return false };
    tile.extend_from_slice(&length.to_be_bytes());
    tile.extend_from_slice(leaf);
    true
}

/// Reads the leaves of a tile of entries; `None` if it ends within one.
#[must_use]
pub fn entries(mut tile: &[u8]) -> Option<Vec<&[u8]>> {
    let mut leaves = Vec::new();
    while !tile.is_empty() {
        let (length, rest) = tile.split_first_chunk()?;
        let (leaf, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        leaves.push(leaf);
        tile = rest;
    }
    Some(leaves)
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.content {
            TileContent::Hashes(level) => write!(f, "{level}/")?,
            TileContent::Entries => f.write_str("entries/")?,
        }
        let digits = self.index.to_string();
        let digits = format!("{:0>1$}", digits, digits.len().next_multiple_of(3));
        let (last, groups) = (&digits[digits.len() - 3..], digits.len() / 3 - 1);
        (0..groups).try_for_each(|group| write!(f, "x{}/", &digits[group * 3..group * 3 + 3]))?;
        f.write_str(last)?;
        if self.is_full() { Ok(()) } else { write!(f, ".p/{}", self.width) }
    }
}

impl FromStr for Tile {
    type Err = LedgerError;

    fn from_str(path: &str) -> Result<Self, LedgerError> {
        let tile = || {
            let (content, rest) = path.split_once('/')?;
            let content = match content {
                "entries" => TileContent::Entries,
                level => {
                    let level = decimal(level).and_then(|level| u8::try_from(level).ok());
                    TileContent::Hashes(level.filter(|level| *level <= MAX_LEVEL)?)
                }
            };
            let (index, width) = match rest.split_once(".p/") {
                Some((index, width)) => (index, decimal(width).filter(|width| (1..FULL).contains(width))?),
                None => (rest, FULL),
            };
            let digits = index.replace(['x', '/'], "");
            let index = digits.parse::<u64>().ok()?;
            let tile = Self { content, index, width };
            // Larger ones are in no log, because a size has 63 bits.
            let end = index.checked_add(1)?.checked_mul(FULL)?.checked_mul(1 << tile.tree_level())?;
            i64::try_from(end).ok()?;
            // Each tile has one address.
            (tile.to_string() == path).then_some(tile)
        };
        tile().ok_or(LedgerError::MalformedTile)
    }
}
