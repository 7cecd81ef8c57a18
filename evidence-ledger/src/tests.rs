//! Tests the ledger against known answers of other implementations, then properties of all logs.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// A log as stored: every leaf, and only those nodes that an append returns.
#[derive(Default)]
struct Log {
    leaves: Vec<Hash>,
    nodes: BTreeMap<(u32, u64), Hash>,
    frontier: Frontier,
}

impl Log {
    fn of(leaves: impl IntoIterator<Item = Hash>) -> Self {
        let mut log = Self::default();
        for leaf in leaves {
            let nodes = log.frontier.append(leaf);
            log.nodes.extend(nodes.into_iter().map(|node| ((node.level, node.index), node.hash)));
            log.leaves.push(leaf);
        }
        log
    }

    fn numbered(size: u64) -> Self {
        Self::of((0..size).map(|index| leaf_of(&index.to_be_bytes())))
    }

    fn root_at(&self, size: u64) -> Hash {
        root_of(&self.leaves[..size as usize])
    }

    /// Returns exactly the requested hashes, so that a proof that uses any other hash fails.
    fn fetch(&self, needs: &Needs) -> LedgerHashes {
        let leaves = needs.leaves.iter().cloned().flatten();
        LedgerHashes {
            leaves: leaves.map(|index| (index, self.leaves[index as usize])).collect(),
            nodes: needs.nodes.iter().map(|key| (*key, self.nodes[key])).collect(),
        }
    }

    fn inclusion(&self, index: u64, size: u64) -> Vec<Hash> {
        inclusion(index, size, &self.fetch(&inclusion_needs(index, size))).expect("a proof")
    }

    fn consistency(&self, old: u64, new: u64) -> Vec<Hash> {
        consistency(old, new, &self.fetch(&consistency_needs(old, new))).expect("a proof")
    }
}

fn leaf_of(data: &[u8]) -> Hash {
    Hash::of([&[0x00], data].concat())
}

fn hash(hex: &str) -> Hash {
    hex.parse().expect("a hash")
}

fn hashes(hex: &[&str]) -> Vec<Hash> {
    hex.iter().map(|hex| hash(hex)).collect()
}

// ---- Header and hash: exact bytes ----------------------------------------------------------------

/// The bytes 0 to 15.
const SALT: Salt = Salt::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

#[test]
fn a_leaf_is_exactly_these_bytes() {
    let cases = [
        (
            Header {
                index: 0,
                kind: "trail_begun",
                at: 1_776_252_299_785_510,
                actor: "user:019d9a3b-4c5d-6e7f-8091-a2b3c4d5",
                payload_hash: payload_hash(&SALT, "{}"),
            },
            concat!(
                r#"{"index":0,"kind":"trail_begun","at":1776252299785510,"actor":"user:019d9a3b-4c5d-6e7f-8091-a2b3c4d5","#,
                r#""payload_hash":"b5c1f9361eb9fbedd3e628a72d1c8fef46544361fd79fa6781baf6d932b1c3f6"}"#,
            ),
            "ce206e0689cdd75fa78f8483d02327c56fa3d37563edf53043dad51d9249d264",
        ),
        (
            Header {
                index: 1,
                kind: "attestation_added",
                at: -1,
                actor: "tab\t quote\" back\\slash \u{1} \u{7f} é 🦀 /",
                payload_hash: payload_hash(&SALT, ""),
            },
            concat!(
                r#"{"index":1,"kind":"attestation_added","at":-1,"actor":"tab\t quote\" back\\slash \u0001 "#,
                "\u{7f}",
                r#" é 🦀 /","payload_hash":"be45cb2605bf36bebde684841a28f0fd43c69850a3dce5fedba69928ee3a8991"}"#,
            ),
            "95fc5b7d3f7628323c7db394d0d33c63c7f07485ae670835f90ee11cb98654c1",
        ),
        (
            Header {
                index: u64::MAX,
                kind: "",
                at: i64::MIN,
                actor: "",
                payload_hash: payload_hash(&SALT, r#"{"a":1}"#),
            },
            concat!(
                r#"{"index":18446744073709551615,"kind":"","at":-9223372036854775808,"actor":"","#,
                r#""payload_hash":"aed8a0ebb5f60a8aa06554873318b8e888584ebddf7878258719930ae328cbb2"}"#,
            ),
            "217da2ddca53e36020c47f9498eb7c43189cfc8463e9d0027fe5675198caad2f",
        ),
    ];
    for (header, bytes, leaf) in cases {
        assert_eq!(header.canonical(), bytes);
        assert_eq!(header.leaf_hash(), hash(leaf), "{bytes}");
    }
    assert_eq!(
        node_hash(cases[0].0.leaf_hash(), cases[1].0.leaf_hash()),
        hash("ed54003be6c7ffdf1e9637d0aa837d8936e6e19350efac37652f10d1ee1dcb1b"),
    );
}

proptest! {
    #[test]
    fn no_text_breaks_out_of_its_string(index: u64, kind: String, at: i64, actor: String) {
        let payload_hash = Hash::of(&kind);
        let header = Header { index, kind: &kind, at, actor: &actor, payload_hash };
        let canonical = header.canonical();
        prop_assert!(canonical.contains(&serde_json::to_string(&actor)?), "{}", canonical);
        let read: serde_json::Value = serde_json::from_str(&canonical)?;
        prop_assert_eq!(read, serde_json::json!({
            "index": index, "kind": kind, "at": at, "actor": actor, "payload_hash": payload_hash,
        }));
    }

    #[test]
    fn a_hash_survives_text_and_json(bytes: [u8; 32]) {
        let hash = Hash::from_bytes(bytes);
        prop_assert_eq!(hash.to_string().parse(), Ok(hash));
        prop_assert_eq!(format!("{hash:?}"), hash.to_string());
        let json = serde_json::to_string(&hash)?;
        prop_assert_eq!(&json, &format!("\"{hash}\""));
        prop_assert_eq!(serde_json::from_str::<Hash>(&json)?, hash);
    }
}

proptest! {
    #[test]
    fn a_salt_survives_text_and_hides_a_payload(bytes: [u8; 16], other: [u8; 16], payload: String) {
        let salt = Salt::from_bytes(bytes);
        prop_assert_eq!(salt.to_string().parse(), Ok(salt));
        prop_assert_eq!(salt.to_string().len(), 32);
        prop_assert!((salt.to_string() + "0").parse::<Salt>().is_err());
        let hash = payload_hash(&salt, &payload);
        prop_assert_eq!(hash == payload_hash(&Salt::from_bytes(other), &payload), bytes == other);
        prop_assert_ne!(hash, Hash::of(&payload));
    }
}

#[test]
fn each_character_below_u_0100_is_escaped_as_serde_json_does() {
    for character in '\0'..='\u{ff}' {
        let actor = character.to_string();
        let header = Header { index: 0, kind: "", at: 0, actor: &actor, payload_hash: EMPTY_ROOT };
        let json = serde_json::to_string(&actor).unwrap();
        assert!(header.canonical().contains(&format!(r#""actor":{json},"#)), "{json}");
    }
}

#[test]
fn a_hash_has_one_spelling() {
    let good = EMPTY_ROOT.to_string();
    assert_eq!(good, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    let bad = [
        String::new(),
        good.to_uppercase(),
        good[1..].to_owned(),
        format!("{good}0"),
        format!(" {}", &good[1..]),
        format!("g{}", &good[1..]),
        format!("é{}", &good[2..]),
    ];
    for text in bad {
        assert_eq!(text.parse::<Hash>(), Err(LedgerError::MalformedHash), "{text}");
        assert!(serde_json::from_value::<Hash>(text.clone().into()).is_err(), "{text}");
    }
}

// ---- Known answers: the eight leaves that Certificate Transparency implementations share ---------

fn shared_log() -> Log {
    let data: [&[u8]; 8] = [
        b"",
        b"\x00",
        b"\x10",
        b"\x20\x21",
        b"\x30\x31",
        b"\x40\x41\x42\x43",
        b"\x50\x51\x52\x53\x54\x55\x56\x57",
        b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
    ];
    Log::of(data.map(leaf_of))
}

#[test]
fn roots_are_those_of_rfc_6962() {
    let roots = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];
    let log = shared_log();
    for (size, root) in (0..).zip(roots) {
        assert_eq!(log.root_at(size), hash(root), "size {size}");
    }
    assert_eq!(log.frontier.root(), log.root_at(8));
}

#[test]
fn audit_paths_are_those_of_rfc_6962() {
    let cases: [(u64, u64, &[&str]); 5] = [
        (0, 1, &[]),
        (
            0,
            8,
            &[
                "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            ],
        ),
        (
            5,
            8,
            &[
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ],
        ),
        (2, 3, &["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
        (
            1,
            5,
            &[
                "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            ],
        ),
    ];
    let log = shared_log();
    for (index, size, path) in cases {
        assert_eq!(log.inclusion(index, size), hashes(path), "leaf {index} of {size}");
    }
}

#[test]
fn consistency_proofs_are_those_of_rfc_6962() {
    let cases: [(u64, u64, &[&str]); 4] = [
        (1, 1, &[]),
        (
            1,
            8,
            &[
                "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            ],
        ),
        (
            6,
            8,
            &[
                "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ],
        ),
        (
            2,
            5,
            &[
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            ],
        ),
    ];
    let log = shared_log();
    for (old, new, path) in cases {
        assert_eq!(log.consistency(old, new), hashes(path), "{old} to {new}");
    }
}

// ---- Frontier ------------------------------------------------------------------------------------

#[test]
fn a_frontier_has_the_root_of_its_leaves() {
    let log = Log::numbered(300);
    let mut frontier = Frontier::default();
    assert_eq!(frontier.root(), EMPTY_ROOT);
    for (size, leaf) in (1..).zip(&log.leaves) {
        frontier.append(*leaf);
        assert_eq!((frontier.size(), frontier.root()), (size, log.root_at(size)));
    }
}

#[test]
fn an_append_hands_over_each_complete_node_of_every_fourth_level_once() {
    let mut frontier = Frontier::default();
    let leaves = Log::numbered(600).leaves;
    let nodes: Vec<Node> = leaves.iter().flat_map(|leaf| frontier.append(*leaf)).collect();

    let keys: Vec<_> = nodes.iter().map(|node| (node.level, node.index)).collect();
    let mut expected: Vec<_> = (0..37).map(|index| (4, index)).collect();
    expected.insert(16, (8, 0));
    expected.insert(33, (8, 1));
    assert_eq!(keys, expected);
    for Node { level, index, hash } in nodes {
        let (start, end) = (index << level, (index + 1) << level);
        assert_eq!(hash, root_of(&leaves[start as usize..end as usize]), "{level} {index}");
    }
}

#[test]
fn a_frontier_read_back_continues_the_tree() {
    let leaves = Log::numbered(70).leaves;
    let mut frontier = Frontier::default();
    for leaf in &leaves {
        let mut read = Frontier::from_bytes(frontier.size(), &frontier.to_bytes()).expect("a frontier");
        assert_eq!(read, frontier);
        assert_eq!(read.append(*leaf), frontier.append(*leaf));
        assert_eq!(read, frontier);
    }
}

#[test]
fn a_frontier_is_one_hash_for_each_bit_of_its_size() {
    let one = EMPTY_ROOT.as_bytes();
    let malformed = |size, expected, found| Err(LedgerError::MalformedFrontier { size, expected, found });
    let cases = [
        (0, vec![], Ok(vec![])),
        (0, one.to_vec(), malformed(0, 0, 32)),
        (3, one.repeat(2), Ok(one.repeat(2))),
        (3, one.to_vec(), malformed(3, 2, 32)),
        (4, one.repeat(2), malformed(4, 1, 64)),
        (1, one[1..].to_vec(), malformed(1, 1, 31)),
        (1, [one.as_slice(), &[0]].concat(), malformed(1, 1, 33)),
        (u64::MAX, one.repeat(64), Err(LedgerError::TooLarge { size: u64::MAX })),
    ];
    for (size, bytes, expected) in cases {
        let read = Frontier::from_bytes(size, &bytes).map(|frontier| frontier.to_bytes());
        assert_eq!(read, expected, "{size} {bytes:?}");
    }
}

// ---- Proofs --------------------------------------------------------------------------------------

/// Large enough for nodes at levels 4, 8 and 12.
static LARGE: LazyLock<Log> = LazyLock::new(|| Log::numbered(5_000));

#[test]
fn every_leaf_of_every_tree_has_a_proof() {
    let log = Log::numbered(130);
    for size in 1..=130 {
        let root = log.root_at(size);
        for index in 0..size {
            let path = log.inclusion(index, size);
            assert!(
                verify_inclusion(log.leaves[index as usize], index, size, &path, root),
                "{index} of {size}"
            );
        }
    }
}

#[test]
fn every_tree_has_a_proof_that_it_continues_every_smaller_one() {
    let log = Log::numbered(70);
    let roots: Vec<Hash> = (0..=70).map(|size| log.root_at(size)).collect();
    for (new, new_root) in (0..).zip(&roots) {
        for (old, old_root) in (0..=new).zip(&roots) {
            let path = log.consistency(old, new);
            assert!(verify_consistency(old, new, *old_root, *new_root, &path), "{old} to {new}");
        }
    }
}

#[test]
fn a_proof_of_the_impossible_is_refused() {
    let known = LedgerHashes::default();
    for (index, size) in [(0, 0), (1, 1), (u64::MAX, u64::MAX), (9, 8)] {
        assert_eq!(inclusion_needs(index, size), Needs::default());
        assert_eq!(inclusion(index, size, &known), Err(LedgerError::NoSuchLeaf { index, size }));
    }
    for (old, new) in [(1, 0), (9, 8), (u64::MAX, 1)] {
        assert_eq!(consistency_needs(old, new), Needs::default());
        assert_eq!(consistency(old, new, &known), Err(LedgerError::Shrinks { old, new }));
    }
}

#[test]
fn whatever_the_store_lacks_is_named() {
    let log = Log::numbered(300);
    let needs = inclusion_needs(20, 300);
    for index in needs.leaves.iter().cloned().flatten() {
        let mut known = log.fetch(&needs);
        known.leaves.remove(&index);
        assert_eq!(inclusion(20, 300, &known), Err(LedgerError::MissingLeaf { index }));
    }
    for (level, index) in needs.nodes.iter().copied() {
        let mut known = log.fetch(&needs);
        known.nodes.remove(&(level, index));
        assert_eq!(inclusion(20, 300, &known), Err(LedgerError::MissingNode { level, index }));
    }
}

#[test]
fn needs_of_several_proofs_are_merged() {
    let size = 5000;
    let each = Vec::from_iter((0..size).step_by(37).map(|index| inclusion_needs(index, size)));
    let merged = Needs::merged(each.clone());
    let flat =
        |needs: &Needs| needs.leaves.iter().cloned().flatten().collect::<std::collections::BTreeSet<_>>();
    let all = each.iter().flat_map(&flat).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(flat(&merged), all);
    assert!(merged.leaves.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", merged.leaves);
    assert!(merged.nodes.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(each.iter().flat_map(|needs| &needs.nodes).all(|node| merged.nodes.contains(node)));
    assert_eq!(Needs::merged([]), Needs::default());
}

#[test]
fn needs_are_few_and_whole() {
    let needs = inclusion_needs(20, 300);
    // The rest of the leaf's own sixteen and the incomplete end; level 4 beside it and at the end; the second
    // half.
    assert_eq!(needs.leaves, [16..20, 21..32, 288..300]);
    let level_4 = (0..16).filter(|index| *index != 1).chain([16, 17]).map(|index| (4, index));
    assert_eq!(needs.nodes, level_4.collect::<Vec<_>>());
}

/// Any number; the ends of the range and powers of two are far more frequent than by chance.
fn edgy() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..20_u64,
        u64::MAX - 20..=u64::MAX,
        (0..64_u32, 0..3_u64).prop_map(|(bit, off)| (1_u64 << bit).wrapping_add(off).wrapping_sub(1)),
    ]
}

/// The sizes of a tree and of a larger or equal one.
fn sizes(limit: u64) -> impl Strategy<Value = (u64, u64)> {
    (1..=limit).prop_flat_map(|new| (1..=new, Just(new)))
}

fn assert_few(needs: &Needs) -> Result<(), TestCaseError> {
    const MAX_HASHES: usize = 31;
    let leaves = needs.leaves.iter().cloned().flatten().count();
    prop_assert!(leaves <= MAX_HASHES, "{leaves} leaves");
    prop_assert!(needs.leaves.iter().all(|range| range.start < range.end));
    prop_assert!(needs.leaves.windows(2).all(|pair| pair[0].end < pair[1].start));
    prop_assert!(needs.nodes.is_sorted_by(|a, b| a < b));
    for level in (4..64).step_by(4) {
        let nodes = needs.nodes.iter().filter(|(found, _)| *found == level).count();
        prop_assert!(nodes <= MAX_HASHES, "{nodes} nodes of level {level}");
    }
    prop_assert!(needs.nodes.iter().all(|(level, _)| level.is_multiple_of(STORED_LEVEL_STEP)));
    Ok(())
}

proptest! {
    #[test]
    fn needs_stay_few_in_trees_of_any_size(a in edgy(), b in edgy()) {
        let (small, large) = (a.min(b), a.max(b));
        assert_few(&inclusion_needs(small, large))?;
        assert_few(&consistency_needs(small, large))?;
    }

    #[test]
    fn proofs_hold_across_stored_levels((old, new) in sizes(5_000)) {
        let log = &*LARGE;
        let (old_root, new_root) = (log.root_at(old), log.root_at(new));
        let (index, leaf) = (old - 1, log.leaves[old as usize - 1]);
        prop_assert!(verify_inclusion(leaf, index, new, &log.inclusion(index, new), new_root));
        prop_assert!(verify_consistency(old, new, old_root, new_root, &log.consistency(old, new)));
    }

    #[test]
    fn no_arguments_upset_the_verifiers(
        a in edgy(), b in edgy(), path in prop::collection::vec(any::<[u8; 32]>(), 0..70),
        first: [u8; 32], second: [u8; 32],
    ) {
        prop_assume!(first != second);
        let path: Vec<Hash> = path.into_iter().map(Hash::from_bytes).collect();
        let (first, second) = (Hash::from_bytes(first), Hash::from_bytes(second));
        prop_assert!(!verify_inclusion(first, a, b, &path, second));
        prop_assert!(!verify_consistency(a, b, first, second, &path));
    }
}

// ---- Forgery -------------------------------------------------------------------------------------

/// One way to tamper with a list of hashes.
#[derive(Debug, Clone)]
enum Tampering {
    Flip(Index, usize),
    Drop(Index),
    Repeat(Index),
    Insert(Index, [u8; 32]),
    Swap(Index, Index),
}

fn tampering() -> impl Strategy<Value = Tampering> {
    prop_oneof![
        (any::<Index>(), 0..256_usize).prop_map(|(at, bit)| Tampering::Flip(at, bit)),
        any::<Index>().prop_map(Tampering::Drop),
        any::<Index>().prop_map(Tampering::Repeat),
        any::<(Index, [u8; 32])>().prop_map(|(at, hash)| Tampering::Insert(at, hash)),
        any::<(Index, Index)>().prop_map(|(a, b)| Tampering::Swap(a, b)),
    ]
}

impl Tampering {
    /// Applies the tampering to a list that is not empty.
    fn of(&self, path: &[Hash]) -> Vec<Hash> {
        let mut path = path.to_vec();
        let len = path.len();
        match self {
            Self::Flip(at, bit) => path[at.index(len)] = flipped(path[at.index(len)], *bit),
            Self::Drop(at) => drop(path.remove(at.index(len))),
            Self::Repeat(at) => path.insert(at.index(len), path[at.index(len)]),
            Self::Insert(at, bytes) => path.insert(at.index(len + 1), Hash::from_bytes(*bytes)),
            Self::Swap(a, b) => path.swap(a.index(len), b.index(len)),
        }
        path
    }
}

fn flipped(hash: Hash, bit: usize) -> Hash {
    let mut bytes = *hash.as_bytes();
    bytes[bit / 8] ^= 1 << (bit % 8);
    Hash::from_bytes(bytes)
}

proptest! {
    #[test]
    fn a_tampered_inclusion_proof_fails(
        (position, size) in sizes(5_000), tampering in tampering(), bit in 0..256_usize, other: Index,
    ) {
        prop_assume!(size > 1);
        let log = &*LARGE;
        let (index, leaf, root) = (position - 1, log.leaves[position as usize - 1], log.root_at(size));
        let path = log.inclusion(index, size);

        let tampered = tampering.of(&path);
        prop_assert!(tampered == path || !verify_inclusion(leaf, index, size, &tampered, root));
        prop_assert!(!verify_inclusion(flipped(leaf, bit), index, size, &path, root));
        prop_assert!(!verify_inclusion(leaf, index, size, &path, flipped(root, bit)));
        let other = other.index(size as usize) as u64;
        prop_assert!(other == index || !verify_inclusion(leaf, other, size, &path, root));
    }

    #[test]
    fn a_tampered_consistency_proof_fails(
        (old, new) in sizes(5_000), tampering in tampering(), bit in 0..256_usize,
    ) {
        prop_assume!(old < new);
        let log = &*LARGE;
        let (old_root, new_root) = (log.root_at(old), log.root_at(new));
        let path = log.consistency(old, new);

        let tampered = tampering.of(&path);
        prop_assert!(tampered == path || !verify_consistency(old, new, old_root, new_root, &tampered));
        prop_assert!(!verify_consistency(old, new, flipped(old_root, bit), new_root, &path));
        prop_assert!(!verify_consistency(old, new, old_root, flipped(new_root, bit), &path));
        prop_assert!(!verify_consistency(new, old, new_root, old_root, &path));
    }

    #[test]
    fn a_log_that_rewrote_its_past_cannot_prove_that_it_did_not(
        (old, new) in sizes(600), at: Index, bit in 0..256_usize,
    ) {
        let mut leaves = LARGE.leaves[..new as usize].to_vec();
        let rewritten = at.index(old as usize);
        leaves[rewritten] = flipped(leaves[rewritten], bit);
        let forged = Log::of(leaves);
        let path = forged.consistency(old, new);
        prop_assert!(!verify_consistency(old, new, LARGE.root_at(old), forged.root_at(new), &path));
    }
}

#[test]
fn nothing_is_proved_about_the_empty_tree_but_that_it_is_empty() {
    let (leaf, root) = (leaf_of(b"a"), leaf_of(b"b"));
    assert!(!verify_inclusion(leaf, 0, 0, &[], leaf));
    let cases = [
        (0, EMPTY_ROOT, 0, EMPTY_ROOT, vec![], true),
        (0, EMPTY_ROOT, 7, root, vec![], true),
        (0, EMPTY_ROOT, 7, root, vec![leaf], false),
        (0, leaf, 7, root, vec![], false),
        (0, leaf, 0, leaf, vec![], false),
        (0, EMPTY_ROOT, 0, root, vec![], false),
        (7, root, 7, root, vec![], true),
        (7, root, 7, root, vec![leaf], false),
        (7, root, 0, EMPTY_ROOT, vec![], false),
    ];
    for (old, old_root, new, new_root, path, holds) in cases {
        let verdict = verify_consistency(old, new, old_root, new_root, &path);
        assert_eq!(verdict, holds, "{old} to {new} with {} hashes", path.len());
    }
}

// ---- Another implementation ----------------------------------------------------------------------

#[test]
fn another_implementation_agrees() {
    use ct_merkle::mem_backed_tree::MemoryBackedTree;
    use ct_merkle::{ConsistencyProof, InclusionProof};
    use sha2::Sha256;

    const SIZE: u64 = 80;
    let bytes_of = |path: Vec<Hash>| path.iter().flat_map(|hash| *hash.as_bytes()).collect::<Vec<u8>>();
    let log = Log::numbered(SIZE);
    let mut tree = MemoryBackedTree::<Sha256, [u8; 8]>::new();
    let mut roots = Vec::new();
    for size in 1..=SIZE {
        tree.push((size - 1).to_be_bytes());
        let root = tree.root();
        assert_eq!(root.as_bytes().as_slice(), log.root_at(size).as_bytes(), "size {size}");
        for index in 0..size {
            let proof = InclusionProof::from_bytes(bytes_of(log.inclusion(index, size)));
            let verdict = root.verify_inclusion(&index.to_be_bytes(), index, &proof);
            assert!(verdict.is_ok(), "{index} of {size}: {verdict:?}");
        }
        for (old, old_root) in (1..).zip(&roots) {
            let proof = ConsistencyProof::try_from_bytes(bytes_of(log.consistency(old, size)));
            let verdict = root.verify_consistency(old_root, &proof.expect("whole hashes"));
            assert!(verdict.is_ok(), "{old} to {size}: {verdict:?}");
        }
        roots.push(root);
    }
}

#[test]
fn the_root_at_an_earlier_size_follows_from_what_is_stored() {
    let log = Log::numbered(300);
    for size in 0..=300 {
        let known = log.fetch(&root_needs(size));
        assert_eq!(root_at(size, &known), Ok(log.root_at(size)), "{size}");
    }
    assert!(root_at(5, &LedgerHashes::default()).is_err());
}
