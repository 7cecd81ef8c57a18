//! The store contract, executable: a store that keeps everything in memory.
