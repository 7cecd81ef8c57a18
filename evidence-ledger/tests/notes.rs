//! Notes, checkpoints, tiles and proofs as files, with samples of other implementations.

use evidence_ledger::note::{NoteError, NoteSigner, SignatureType, SignedNote, VerifierKey, sign_note};
use evidence_ledger::tile::{Tile, TileContent, entries, push_entry};
use evidence_ledger::{Checkpoint, Frontier, Hash, LedgerHashes, ProofError, TlogProof, inclusion, root_of};
use proptest::prelude::*;

/// The sample of the Go package `golang.org/x/mod/sumdb/note`.
const GO_KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const GO_NOTE: &str = "If you think cryptography is the answer to your problem,\n\
    then you don't know what your problem is.\n\n\
    \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

const ORIGIN: &str = "evidence.example.com/log";

fn signer(name: &str, seed: u8) -> NoteSigner {
    NoteSigner::new(name, &[seed; 32]).unwrap()
}

fn open<'a>(note: &str, keys: &'a [VerifierKey]) -> Result<Vec<&'a str>, NoteError> {
    let note: SignedNote = note.parse()?;
    Ok(note.verify(keys)?.iter().map(|signed| signed.by.name()).collect())
}

#[test]
fn a_note_of_another_implementation_is_verified() {
    let key: VerifierKey = GO_KEY.parse().unwrap();
    assert_eq!(key.to_string(), GO_KEY);
    assert_eq!(open(GO_NOTE, std::slice::from_ref(&key)), Ok(vec!["PeterNeumann"]));
    let changed = GO_NOTE.replace("problem is", "problem was");
    assert_eq!(open(&changed, &[key]), Err(NoteError::WrongSignature("PeterNeumann".to_owned())));
}

#[test]
fn keys_that_are_none_are_refused_with_the_reason() {
    let good = signer(ORIGIN, 1).verifier().to_string();
    assert_eq!(good.parse::<VerifierKey>().unwrap().to_string(), good);
    let error = |key: &str| key.parse::<VerifierKey>().unwrap_err();
    assert_eq!(error(&good.replace("log+", "fog+")), NoteError::KeyId("evidence.example.com/fog".to_owned()));
    assert_eq!(error(&good.replace(ORIGIN, "")), NoteError::KeyName(String::new()));
    assert_eq!(error(&good.replace(ORIGIN, "a b")), NoteError::KeyName("a b".to_owned()));
    let unknown = NoteError::UnsupportedKey { name: "a".to_owned(), algorithm: 6 };
    assert_eq!(error("a+00000000+BgAA"), unknown);
    for malformed in ["", "a", "a+b", "a+00000000+", "a+00000000+AQ", "a+00000000+AQAA", "a+00000000+!"] {
        assert_eq!(error(malformed), NoteError::MalformedKey(malformed.to_owned()));
    }
}

#[test]
fn signatures_of_others_are_ignored_and_wrong_ones_are_not() {
    let (first, second) = (signer(ORIGIN, 1), signer("second.example", 2));
    let keys = [first.verifier().clone(), second.verifier().clone()];
    let note = sign_note("a\n\nb\n", [&first, &second]);
    assert_eq!(open(&note, &keys), Ok(vec![ORIGIN, "second.example"]));
    assert_eq!(open(&note, &keys[1..]), Ok(vec!["second.example"]));
    let only_first = sign_note("a\n\nb\n", [&first]);
    let unsigned = NoteError::NotSigned(format!("'{ORIGIN}'"));
    assert_eq!(open(&only_first, &keys[1..]), Err(unsigned));
    // A good signature beside a wrong one of a known key: someone changed something.
    let other = sign_note("c\n", [&second]);
    let mixed = format!("{only_first}{}", other.lines().next_back().unwrap()) + "\n";
    assert_eq!(open(&mixed, &keys), Err(NoteError::WrongSignature("second.example".to_owned())));
    // The same name with another key is somebody else.
    let namesake = signer(ORIGIN, 3);
    assert!(matches!(open(&only_first, &[namesake.verifier().clone()]), Err(NoteError::NotSigned(_))));
}

#[test]
fn texts_that_are_no_notes_are_refused() {
    let line = signer(ORIGIN, 1).line("a\n");
    for text in [
        "",
        "a\n",
        "a\n\n",
        &format!("a\n{line}"),
        &format!("\n{line}"),
        &format!("a\n\n{}", line.trim_end()),
        &format!("a\n\n{line}{}", line.replace('\u{2014}', "-")),
        &format!("a\t\n\n{line}"),
        &format!("a\n\n{}", line.repeat(101)),
        "a\n\n\u{2014} name\n",
        "a\n\n\u{2014} name !\n",
        "a\n\n\u{2014} name AAAA\n",
        &format!("{}\n\n{line}", "a".repeat(1 << 20)),
    ] {
        let error = text.parse::<SignedNote>().unwrap_err();
        assert!(matches!(error, NoteError::MalformedNote(_)), "{text:?}: {error}");
    }
    assert!(format!("a\n\n{}", line.repeat(100)).parse::<SignedNote>().is_ok());
}

#[test]
fn a_checkpoint_is_its_text() {
    let sample = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
    let checkpoint: Checkpoint = sample.parse().unwrap();
    assert_eq!((checkpoint.origin.as_str(), checkpoint.size), ("example.com/behind-the-sofa", 20_852_163));
    assert_eq!(checkpoint.to_string(), sample);
    assert_eq!(format!("{sample}more\n").parse::<Checkpoint>().unwrap(), checkpoint);
    for wrong in [
        "",
        "a\n",
        "a\n1\n",
        "a\n1\nAAAA\n",
        &sample.replace("20852163", "020852163"),
        &sample.replace("20852163", "+1"),
        sample.trim_end(),
        &format!("\n{sample}"),
        &format!("{sample}\n"),
        &format!("{sample}a\n\nb\n"),
    ] {
        assert!(wrong.parse::<Checkpoint>().is_err(), "{wrong:?}");
    }
}

/// A witness signs the text after a line with the time (C2SP tlog-cosignature).
#[test]
fn a_cosignature_covers_the_time() {
    let witness = ed25519_dalek::SigningKey::from_bytes(&[9; 32]);
    let log = signer(ORIGIN, 1);
    let text = Checkpoint { origin: ORIGIN.to_owned(), size: 7, root: Hash::of("a") }.to_string();
    let cosign = |time: u64, claimed: u64| {
        let message = format!("cosignature/v1\ntime {time}\n{text}");
        let signature = ed25519_dalek::Signer::sign(&witness, message.as_bytes()).to_bytes();
        let name = "witness.example";
        let key = [&[4], witness.verifying_key().as_bytes().as_slice()].concat();
        let id = Hash::of([name.as_bytes(), b"\n", &key].concat());
        let id = &id.as_bytes()[..4];
        use base64::Engine;
        let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
        let line = base64(&[id, &claimed.to_be_bytes(), &signature].concat());
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let key: VerifierKey = format!("{name}+{hex}+{}", base64(&key)).parse().unwrap();
        (key, format!("{}\u{2014} {name} {line}\n", sign_note(&text, [&log])))
    };
    let (key, note) = cosign(1_679_315_147, 1_679_315_147);
    assert_eq!(key.algorithm(), SignatureType::Cosignature);
    let note: SignedNote = note.parse().unwrap();
    let keys = [log.verifier().clone(), key];
    let signed = note.verify(&keys).unwrap();
    assert_eq!(signed.iter().map(|signed| signed.at).collect::<Vec<_>>(), [None, Some(1_679_315_147)]);
    let (key, note) = cosign(1_679_315_147, 1_679_315_148);
    assert_eq!(open(&note, &[key]), Err(NoteError::WrongSignature("witness.example".to_owned())));
}

/// The addresses of the specification.
#[test]
fn tiles_have_one_address_each() {
    for (path, positions, least_size) in [
        ("0/000", 0..256, 256),
        ("0/x001/x234/067", 315_921_152..315_921_408, 315_921_408),
        ("0/273.p/112", 69_888..70_000, 70_000),
        ("1/001.p/17", 256..273, 69_888),
        ("2/000.p/1", 0..1, 65_536),
        ("entries/x001/000.p/255", 256_000..256_255, 256_255),
    ] {
        let tile: Tile = path.parse().unwrap();
        assert_eq!((tile.positions(), tile.least_size()), (positions, least_size), "{path}");
        assert_eq!(tile.to_string(), path);
        assert_eq!(tile.is_full(), !path.contains(".p/"));
        assert_eq!(tile.content() == TileContent::Entries, path.starts_with("entries"));
    }
    for path in [
        "",
        "0",
        "0/",
        "0/0",
        "0/0000",
        "0/x000/001",
        "0/001/002",
        "0/x001",
        "00/000",
        "8/000",
        "-1/000",
        "x/000",
        "0/000.p/0",
        "0/000.p/256",
        "0/000.p/01",
        "0/000.p/",
        "0/000/",
        "0//000",
        "0/+00",
        "0/000.p/1.p/1",
        "7/x001/000",
        "0/x999/x999/x999/x999/x999/x999/999",
        "entries/0/000",
        "0/x1/000",
    ] {
        assert!(path.parse::<Tile>().is_err(), "{path:?}");
    }
}

#[test]
fn a_tile_of_entries_is_read_as_it_was_written() {
    let mut tile = Vec::new();
    assert!(
        push_entry(&mut tile, b"first") && push_entry(&mut tile, b"") && push_entry(&mut tile, &[7; 65_535])
    );
    assert!(!push_entry(&mut tile, &[7; 65_536]));
    let read = entries(&tile).unwrap();
    assert_eq!(read, [b"first".as_slice(), b"", &[7; 65_535]]);
    for end in [1, 3, 6, 8, tile.len() - 1] {
        assert_eq!(entries(&tile[..end]), None, "{end}");
    }
}

/// A log of this many leaves with all stored nodes.
fn log(size: u64) -> (Vec<Hash>, LedgerHashes) {
    let leaves: Vec<Hash> = (0..size).map(|index| Hash::of(index.to_be_bytes())).collect();
    let mut known =
        LedgerHashes { leaves: (0..).zip(leaves.iter().copied()).collect(), ..LedgerHashes::default() };
    let mut frontier = Frontier::default();
    for leaf in &leaves {
        for node in frontier.append(*leaf) {
            known.nodes.insert((node.level, node.index), node.hash);
        }
    }
    (leaves, known)
}

#[test]
fn tiles_of_all_levels_are_the_roots_of_their_subtrees() {
    let (leaves, known) = log(70_000);
    let of = |path: &str| {
        let tile: Tile = path.parse().unwrap();
        let needs = tile.needs();
        let all = needs.leaves.iter().cloned().flatten().all(|index| known.leaves.contains_key(&index));
        assert!(all && needs.nodes.iter().all(|node| known.nodes.contains_key(node)), "{path}");
        tile.hashes(&known).unwrap()
    };
    let bytes = |hashes: &[Hash]| hashes.iter().flat_map(|hash| *hash.as_bytes()).collect::<Vec<_>>();
    assert_eq!(of("0/000"), bytes(&leaves[..256]));
    assert_eq!(of("0/273.p/112"), bytes(&leaves[69_888..]));
    let of_level = |height: u64, range: std::ops::Range<u64>| {
        let root = |index: u64| root_of(&leaves[(index * height) as usize..((index + 1) * height) as usize]);
        bytes(&range.map(root).collect::<Vec<_>>())
    };
    assert_eq!(of("1/000"), of_level(256, 0..256));
    assert_eq!(of("1/001.p/17"), of_level(256, 256..273));
    assert_eq!(of("2/000.p/1"), of_level(65_536, 0..1));
}

/// A proof of entry 5 of 10, signed.
fn proof() -> (TlogProof, Hash, VerifierKey) {
    let (leaves, known) = log(10);
    let log = signer(ORIGIN, 1);
    let checkpoint = Checkpoint { origin: ORIGIN.to_owned(), size: 10, root: root_of(&leaves) };
    let path = inclusion(5, 10, &known).unwrap();
    let checkpoint = checkpoint.sign([&log]);
    (TlogProof { extra: b"id".to_vec(), index: 5, path, checkpoint }, leaves[5], log.verifier().clone())
}

#[test]
fn a_proof_is_its_file() {
    let (proof, leaf, key) = proof();
    let read: TlogProof = proof.to_string().parse().unwrap();
    assert_eq!(read, proof);
    let (checkpoint, signed) = read.verify(leaf, [&key]).unwrap();
    assert_eq!((checkpoint.size, signed[0].by), (10, &key));
    assert_eq!(read.verify(Hash::of("b"), [&key]), Err(ProofError::NotIncluded(5)));
    let stranger = signer("stranger.example", 2);
    assert!(matches!(read.verify(leaf, [stranger.verifier()]), Err(ProofError::Checkpoint(_))));
    // Only the log itself speaks for the log.
    let (_, text) = ((), read.checkpoint.split_once("\n\n").unwrap().0.to_owned() + "\n");
    let foreign = TlogProof { checkpoint: sign_note(&text, [&stranger]), ..read.clone() };
    assert_eq!(foreign.verify(leaf, [stranger.verifier()]), Err(ProofError::Origin(ORIGIN.to_owned())));
    let file = proof.to_string();
    for wrong in [
        "",
        "c2sp.org/tlog-proof@v1\n",
        &file.replace("@v1", "@v2"),
        &file.replace("index 5", "index 05"),
        &file.replace("index 5\n", ""),
        &file.replace("extra aWQ=", "extra !"),
        &file.replacen("\n\n", "\n", 1),
        &file.replace("index 5\n", &format!("index 5\n{}", format!("{}\n", "A".repeat(43) + "=").repeat(64))),
    ] {
        assert!(matches!(wrong.parse::<TlogProof>(), Err(ProofError::Malformed(_))), "{wrong}");
    }
}

proptest! {
    /// A file with one changed byte is refused, or is the same in all that it proves.
    #[test]
    fn a_changed_proof_proves_nothing_else(at in 0_usize..10_000, to in any::<u8>()) {
        let (proof, leaf, key) = proof();
        let mut file = proof.to_string().into_bytes();
        let at = at % file.len();
        file[at] = to;
        let Ok(file) = String::from_utf8(file) else { return Ok(()) };
        let Ok(read) = file.parse::<TlogProof>() else { return Ok(()) };
        if let Ok((checkpoint, _)) = read.verify(leaf, [&key]) {
            prop_assert_eq!((read.index, read.path, checkpoint.size), (5, proof.path, 10));
        }
    }

    #[test]
    fn every_tile_address_is_read_as_it_is_written(level in 0_u64..4, index in 0_u64..1 << 30, width in 1_u64..257) {
        let digits = format!("{index:0>9}");
        let groups = digits.as_bytes().chunks(3).map(|group| std::str::from_utf8(group).unwrap()).collect::<Vec<_>>();
        let significant = groups.iter().position(|group| *group != "000").unwrap_or(2).min(2);
        let (last, before) = groups[significant..].split_last().unwrap();
        let before: String = before.iter().map(|group| format!("x{group}/")).collect();
        let width = if width == 256 { String::new() } else { format!(".p/{width}") };
        let path = format!("{level}/{before}{last}{width}");
        if digits.len() == 9 {
            prop_assert_eq!(path.parse::<Tile>().unwrap().to_string(), path);
        }
    }
}
