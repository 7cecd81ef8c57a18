//! The published test vectors for verifiers in other languages (`vectors.json`, explained in `docs/ledger.md`).

use evidence_ledger::{Hash, Header, Salt, payload_hash, root_of, verify_consistency, verify_inclusion};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    entries: Vec<Entry>,
    roots: Vec<Hash>,
    inclusion: Vec<Inclusion>,
    consistency: Vec<Consistency>,
}

#[derive(Deserialize)]
struct Entry {
    index: u64,
    kind: String,
    at: i64,
    actor: String,
    salt: String,
    payload: String,
    payload_hash: Hash,
    leaf: String,
    leaf_hash: Hash,
}

#[derive(Deserialize)]
struct Inclusion {
    index: u64,
    size: u64,
    path: Vec<Hash>,
}

#[derive(Deserialize)]
struct Consistency {
    old: u64,
    new: u64,
    path: Vec<Hash>,
}

#[test]
fn the_published_vectors_are_those_of_this_crate() {
    let vectors: Vectors = serde_json::from_str(include_str!("vectors.json")).unwrap();
    let mut leaves = Vec::new();
    for entry in &vectors.entries {
        let Entry { index, kind, at, actor, salt, payload, .. } = entry;
        let salt: Salt = salt.parse().unwrap();
        let header =
            Header { index: *index, kind, at: *at, actor, payload_hash: payload_hash(&salt, payload) };
        assert_eq!(header.payload_hash, entry.payload_hash, "{index}");
        assert_eq!(header.canonical(), entry.leaf, "{index}");
        assert_eq!(header.leaf_hash(), entry.leaf_hash, "{index}");
        leaves.push(entry.leaf_hash);
    }
    let root = |size: u64| vectors.roots[usize::try_from(size).unwrap()];
    for size in 0..vectors.roots.len() {
        assert_eq!(root_of(&leaves[..size]), vectors.roots[size], "{size}");
    }
    for Inclusion { index, size, path } in &vectors.inclusion {
        let leaf = leaves[usize::try_from(*index).unwrap()];
        assert!(verify_inclusion(leaf, *index, *size, path, root(*size)), "{index} of {size}");
    }
    for Consistency { old, new, path } in &vectors.consistency {
        assert!(verify_consistency(*old, *new, root(*old), root(*new), path), "{old} to {new}");
    }
}
