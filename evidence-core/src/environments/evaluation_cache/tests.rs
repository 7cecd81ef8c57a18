use super::*;
use crate::cache::Weigh;
use crate::environments::last_evaluation::LEAST;
use crate::ledger::{Hash, Salt, payload_hash};
use crate::rules::compliance::State;
use crate::snapshots::record::Provenance;

fn id(last: u8) -> Id {
    format!("00000000-0000-0000-0000-000000{last:02x}").parse().unwrap()
}

fn fingerprint(digit: char) -> Fingerprint {
    digit.to_string().repeat(64).parse().unwrap()
}

/// Returns an artifact from these trails of flow 9.
fn from_trails(trails: &[u8]) -> Arc<ArtifactEvaluation> {
    let provenance = Provenance {
        artifact: id(1),
        state: State::Compliant,
        reason: None,
        flow: Some(id(9)),
        reference: String::new(),
    };
    Arc::new(ArtifactEvaluation {
        compliant: Some(true),
        allowed: None,
        provenance: vec![provenance],
        source: None,
        trails: trails.iter().copied().map(id).collect(),
        judged_by: None,
        violates: vec![],
        outcomes: vec![],
        inputs: None,
        not_evaluated: None,
        names: vec!["api".to_owned()],
        is_final: true,
    })
}

/// Returns the example facts of a kind.
fn examples(kind: &str) -> Vec<Fact> {
    let path = format!("{}/tests/golden/{kind}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let facts = std::fs::read_to_string(path).unwrap();
    let facts = Vec::from_iter(facts.lines().map(|line| Fact::read(line).unwrap()));
    assert!(!facts.is_empty(), "{kind}");
    facts
}

fn affected(fact: &Fact) -> Affected {
    let mut affected = Affected::default();
    affected.add(fact, id(0));
    affected
}

#[test]
fn kinds_that_are_not_read_affect_nothing() {
    for kind in UNRELATED {
        for fact in examples(kind) {
            assert_eq!((fact.kind(), affected(&fact)), (kind, Affected::default()));
        }
    }
}

#[test]
fn a_fact_affects_what_comes_from_its_content_trail_or_flow() {
    let one = ArtifactKey::from(&fingerprint('1'));
    for (kind, flow, trail, content) in [
        ("flow_created", true, false, false),
        ("flow_updated", true, false, false),
        ("flow_tagged", true, false, false),
        ("flow_renamed", true, false, false),
        ("flow_archived", true, false, false),
        ("trail_begun", false, true, false),
        ("trail_updated", false, true, false),
        ("attestation_added", false, true, false),
        ("artifact_reported", false, true, true),
        ("control_created", false, false, false),
        ("attestation_type_versioned", false, false, false),
        ("environment_renamed", false, false, false),
    ] {
        for mut fact in examples(kind) {
            match &mut fact {
                Fact::FlowCreated { record }
                | Fact::FlowUpdated { record }
                | Fact::FlowTagged { record }
                | Fact::FlowRenamed { record, .. }
                | Fact::FlowArchived { record, .. } => record.id = id(9),
                Fact::TrailBegun { record } | Fact::TrailUpdated { record, .. } => record.id = id(5),
                Fact::AttestationAdded { record } => record.trail = id(5),
                Fact::ArtifactReported { record } => {
                    (record.trail, record.fingerprint) = (Some(id(5)), fingerprint('1'));
                }
                _ => {}
            }
            let affected = affected(&fact);
            let other = ArtifactKey::from(&fingerprint('2'));
            assert_eq!(affected.has(&other, &from_trails(&[4])), flow, "{kind}: its flow");
            assert_eq!(affected.has(&other, &from_trails(&[4, 5])), flow || trail, "{kind}: its trail");
            assert_eq!(affected.has(&one, &from_trails(&[4])), flow || content, "{kind}: its content");
        }
    }
}

#[test]
fn what_is_allowed_or_no_longer_allowed_affects_its_environment_alone() {
    for mut fact in ["artifact_allowed", "allowance_withdrawn"].into_iter().flat_map(examples) {
        for environment in [0, 1] {
            if let Fact::ArtifactAllowed { record } | Fact::AllowanceWithdrawn { record } = &mut fact {
                (record.environment, record.fingerprint) = (id(environment), fingerprint('1'));
            }
            let key = ArtifactKey::from(&fingerprint('1'));
            assert_eq!(affected(&fact).has(&key, &from_trails(&[])), environment == 0);
        }
    }
}

#[test]
fn what_cannot_be_read_affects_everything() {
    const SALT: Salt = Salt::from_bytes([7; Salt::LEN]);
    let entry = |payload: &str, digest: &str| StoredEntry {
        index: 7,
        kind: "text_kept".to_owned(),
        at: Timestamp::from_seconds(0),
        effective_at: Timestamp::from_seconds(0),
        actor: "operator".to_owned(),
        payload_hash: payload_hash(&SALT, digest),
        leaf_hash: Hash::of(""),
        salt: SALT,
        payload: payload.to_owned(),
    };
    let sound = r#"{"text_kept":{"text":"a"}}"#;
    let newer = r#"{"something_happened":{}}"#;
    for (payload, digest, everything) in
        [(sound, sound, false), (sound, "{}", true), (newer, newer, true), ("", "", true)]
    {
        assert_eq!(Affected::of(&[entry(payload, digest)], id(0)).everything, everything, "{payload}");
    }
}

#[test]
fn a_trail_is_taken_out_with_all_that_shares_one() {
    let keys = ['1', '2', '3', '4', '5'].map(|digit| ArtifactKey::from(&fingerprint(digit)));
    let trails: [&[u8]; 5] = [&[1], &[1, 2], &[2, 3], &[4], &[]];
    for (taken, gone) in
        [(vec![], 0), (vec![9], 0), (vec![1], 3), (vec![3], 3), (vec![4], 1), (vec![3, 4], 4)]
    {
        let mut artifacts: Evaluated = keys.iter().cloned().zip(trails.map(from_trails)).collect();
        let found = take_artifacts_of_trails(&mut artifacts, &taken.iter().copied().map(id).collect());
        assert_eq!((found.len(), artifacts.len()), (gone, 5 - gone), "{taken:?}");
        assert!(found.iter().all(|key| !artifacts.contains_key(key)));
    }
}

#[test]
fn every_evaluation_takes_room() {
    let nothing = LastEvaluation {
        since: Timestamp::from_seconds(0),
        ledger: Frontier::default(),
        policies: vec![],
        open: (0, Arc::default()),
        artifacts: Evaluated::new(),
        kept: BTreeMap::new(),
        bytes: 0,
    }
    .with_size();
    let least = nothing.bytes();
    let one = LastEvaluation {
        policies: vec![(id(1), 1)],
        artifacts: Evaluated::from([(ArtifactKey::from(&fingerprint('1')), from_trails(&[1]))]),
        ..nothing
    }
    .with_size();
    assert!(one.bytes() > least + LEAST, "{least}, {}", one.bytes());
}

#[test]
fn an_evaluation_is_as_old_as_the_oldest_part_that_it_reuses() {
    let at = Timestamp::from_seconds(7);
    let artifacts = Evaluated::from([(ArtifactKey::from(&fingerprint('1')), from_trails(&[1]))]);
    let last = LastEvaluation {
        since: at,
        ledger: Frontier::default(),
        policies: vec![],
        open: (3, Arc::default()),
        artifacts: artifacts.clone(),
        kept: BTreeMap::new(),
        bytes: 0,
    };
    let (last, affected) = (Arc::new(last), Affected::default());
    let cached = CachedEvaluation { last, affected, same_policies: true, now: at };
    let none = Evaluated::new();
    for (reused, snapshots, since) in
        [(&none, 3, Some(at)), (&none, 4, None), (&artifacts, 4, Some(at)), (&artifacts, 3, Some(at))]
    {
        assert_eq!(cached.since(reused, snapshots), since, "{} of {snapshots}", reused.len());
    }
}
