//! Facts are frozen: each kind has a payload in `tests/golden`, as some version of the program wrote it, which every later
//! version reads and writes byte for byte. A golden file of a released version is never changed; what is new in a fact is
//! optional and left out where it is absent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use evidence_core::conformance::checks;
use evidence_core::memory::MemoryStore;
use evidence_core::transfer::Transfer;
use evidence_core::{Fact, RecordKind, Store};
use serde_json::{Value, json};

/// Kinds that a check records, each with the longest payload that it has there.
fn recorded() -> BTreeMap<String, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let mut longest = BTreeMap::<String, String>::new();
    for check in checks() {
        let store = Arc::new(MemoryStore::new());
        runtime.block_on((check.run)(Arc::clone(&store) as Arc<dyn Store>)).unwrap();
        let entries = runtime.block_on(async {
            let mut entries = Vec::new();
            for organization in store.organizations(None, 100).await.unwrap() {
                entries.extend(
                    evidence_core::store::LedgerStore::ledger_entries(&*store, organization.id, 0, 1000)
                        .await
                        .unwrap(),
                );
            }
            entries
        });
        for entry in entries {
            let known = longest.entry(entry.kind).or_default();
            if entry.payload.len() > known.len() {
                *known = entry.payload;
            }
        }
    }
    longest
}

fn file(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{kind}.json"))
}

fn golden(kind: &str) -> String {
    std::fs::read_to_string(file(kind)).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

/// Every kind that the checks record, which are all kinds. `EVIDENCE_WRITE_GOLDEN=1` writes the files that are missing,
/// for a kind that is new.
fn kinds() -> Vec<String> {
    let recorded = recorded();
    if std::env::var_os("EVIDENCE_WRITE_GOLDEN").is_some() {
        for (kind, payload) in &recorded {
            if !file(kind).exists() {
                std::fs::write(file(kind), payload).unwrap();
            }
        }
    }
    recorded.into_keys().collect()
}

#[test]
fn every_kind_of_fact_is_read_and_written_as_it_was() {
    for kind in kinds() {
        let payload = golden(&kind);
        let fact: Fact = serde_json::from_str(&payload).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(fact.kind(), kind);
        assert_eq!(serde_json::to_string(&fact).unwrap(), payload, "{kind}");
    }
}

#[test]
fn fields_of_a_record_that_are_not_known_survive_its_being_recorded_again() {
    for kind in kinds() {
        let mut payload: Value = serde_json::from_str(&golden(&kind)).unwrap();
        let fact: Fact = serde_json::from_value(payload.clone()).unwrap();
        // Records without a revision are never recorded again, and a membership or a report is set anew.
        if fact.subject().is_none_or(|(kind, _)| matches!(kind, RecordKind::Member | RecordKind::Report)) {
            continue;
        }
        payload["record"]["from_a_newer_version"] = json!({"a": [1, null, "b"]});
        let fact: Fact = serde_json::from_value(payload.clone()).unwrap();
        assert_eq!(serde_json::to_value(&fact).unwrap(), payload, "{kind}");
    }
}
