//! Tests of the checks on imported entries.

use proptest::prelude::*;

use super::*;
use crate::auth::actor::{Actor, ActorKind};
use crate::decode::UnknownFields;
use crate::fixtures::jane;
use crate::ledger::Salt;
use crate::orgs::record::{OrgKind, User};
use crate::time::Timestamp;

const NOW: Timestamp = Timestamp::from_seconds(1_776_252_299);

fn id(n: u64) -> Id {
    format!("00000000-0000-0000-0000-{n:08x}").parse().unwrap()
}

fn entry(index: u64, fact: Fact) -> StoredEntry {
    let salt = Salt::from_bytes([7; Salt::LEN]);
    EncodedFact::new(fact, NOW, &jane(), salt).unwrap().into_entry(index, NOW)
}

fn key_created() -> Fact {
    Fact::ApiKeyCreated {
        record: ApiKeyRecord {
            id: id(3),
            owner: Actor { id: id(2), name: "jane".to_owned(), kind: ActorKind::User },
            description: String::new(),
            created_at: NOW,
            expires_at: None,
            grace_period_expires_at: None,
            revoked_at: None,
            hash_sha256: KeyHash::of("secret").fingerprint(),
            unknown: UnknownFields::default(),
        },
    }
}

fn ledger() -> Vec<StoredEntry> {
    let name = || "jane".parse().unwrap();
    let organization = Organization { id: id(1), name: name(), kind: OrgKind::Personal, created_at: NOW };
    let facts = [
        Fact::OrganizationCreated { record: organization },
        Fact::UserCreated { record: User { id: id(2), name: name(), created_at: NOW } },
        key_created(),
    ];
    (0..).zip(facts).map(|(index, fact)| entry(index, fact)).collect()
}

#[test]
fn entries_of_a_ledger_are_accepted_from_any_of_them_on() {
    for first in 0..3_u64 {
        let part = ledger().split_off(usize::try_from(first).unwrap());
        let import = Import::new(id(1), part.clone()).unwrap();
        assert_eq!((import.first, import.begins_ledger()), (first, first == 0));
        let payloads = import.facts.into_iter().map(|prepared| prepared.payload);
        assert!(payloads.eq(part.into_iter().map(|entry| entry.payload)));
    }
}

type Change = fn(&mut StoredEntry);

#[test]
fn an_entry_that_its_leaf_does_not_cover_is_refused() {
    let changes: [(&str, Change); 7] = [
        ("payload", |entry| entry.payload.push(' ')),
        ("payload of another kind", |entry| entry.payload = ledger().swap_remove(0).payload),
        ("no fact", |entry| entry.payload = "{}".to_owned()),
        ("time", |entry| entry.at = Timestamp::from_seconds(1)),
        ("actor", |entry| entry.actor.push('t')),
        ("salt", |entry| entry.salt = Salt::from_bytes([8; Salt::LEN])),
        ("leaf hash", |entry| entry.leaf_hash = entry.payload_hash),
    ];
    for (what, change) in changes {
        let mut entries = ledger();
        change(&mut entries[1]);
        assert!(matches!(Import::new(id(1), entries), Err(StoreError::Corrupt { .. })), "{what}");
    }
}

#[test]
fn entries_that_do_not_follow_each_other_are_refused() {
    for order in [[0, 2, 1], [0, 1, 1], [1, 0, 2]] {
        let entries = order.map(|n: usize| ledger().swap_remove(n)).to_vec();
        assert!(Import::new(id(1), entries).is_err(), "{order:?}");
    }
}

#[test]
fn only_the_hash_that_the_ledger_knows_a_key_by_is_taken_along() {
    let import = || Import::new(id(1), ledger()).unwrap();
    assert!(import().with_key_hashes(vec![(id(3), KeyHash::of("secret"))]).is_ok());
    for (key, secret) in [(3, "another"), (4, "secret")] {
        assert!(import().with_key_hashes(vec![(id(key), KeyHash::of(secret))]).is_err(), "{key} {secret}");
    }
    assert!(import().with_key_hashes(Vec::new()).is_err(), "a key that nobody can use any more");
}

proptest! {
    #[test]
    fn no_changed_byte_of_a_payload_passes(at in any::<prop::sample::Index>(), byte in 0x20_u8..0x7f) {
        let mut entries = ledger();
        let mut payload = std::mem::take(&mut entries[1].payload).into_bytes();
        let at = at.index(payload.len());
        let changed = payload[at] != byte;
        payload[at] = byte;
        entries[1].payload = String::from_utf8(payload).unwrap();
        prop_assert_eq!(Import::new(id(1), entries).is_err(), changed);
    }
}
