//! Facts are frozen: each kind has lines in `tests/golden`, as some version of the program wrote them into payloads, which
//! every later version reads and writes byte for byte. Together they have every form that a fact is recorded in: each
//! field absent and there, each variant of each enum. A line of a released version is never changed; what is new in a fact is
//! optional and left out where it is absent.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use evidence_conformance::checks;
use evidence_conformance::memory::MemoryStore;
use evidence_core::json::{self, JsonValue};
use evidence_core::store::LedgerStore;
use evidence_core::transfer::Transfer;
use evidence_core::{Fact, RecordKind, Store};

/// Fields whose texts are variants.
const VARIANTS: [&str; 11] = [
    "to",
    "type",
    "kind",
    "outcome",
    "provider",
    "git_provider",
    "state",
    "status",
    "role",
    "privilege",
    "visibility",
];

/// Fields with whatever somebody put into them, which is read as it is.
const FREE: [&str; 14] = [
    "user_data",
    "attestation_data",
    "issue_fields",
    "branch",
    "pullRequest",
    "additional_info",
    "annotations",
    "tags",
    "external_urls",
    "context",
    "values",
    "type_schema",
    "evaluator",
    "definition",
];

/// Forms that are there whatever the checks record: of what has variants that serde does not know of, all.
const ALL: [(&str, &[&str]); 4] = [
    (
        "attestation_added",
        &[
            "record.details.type=generic",
            "record.details.type=junit",
            "record.details.type=pull_request",
            "record.details.type=jira",
            "record.details.type=snyk",
            "record.details.type=sonar",
            "record.details.type=decision",
            "record.details.type=sbom",
            "record.details.type=sarif",
            "record.details.type=custom",
            "record.details.rule_results[].outcome=passed",
            "record.details.rule_results[].outcome=failed",
            "record.details.rule_results[].outcome=error",
            "record.details.rule_results[].outcome=limit",
            "record.details.type=override",
            "record.details.git_provider=github",
            "record.details.git_provider=azure",
            "record.binding.to=trail",
            "record.binding.to=artifact",
            "record.binding.to=named",
        ],
    ),
    ("snapshot_taken", &["snapshot.changes[].fingerprint=text", "snapshot.changes[].name=text"]),
    ("policy_updated", &["version=null", "version.policy_yaml=text"]),
    ("artifact_reported", &["record.trail=null", "record.trail=text"]),
];

/// What is particular about the form of a payload.
fn forms(value: &JsonValue, path: &str, found: &mut BTreeSet<String>) {
    let field = path.rsplit('.').next().unwrap_or_default();
    let form = match value {
        JsonValue::Null => "null",
        JsonValue::Bool(_) => "flag",
        JsonValue::Number(_) => "number",
        JsonValue::String(text) if VARIANTS.contains(&field) => text.as_str(),
        JsonValue::String(_) => "text",
        JsonValue::Array(items) if items.is_empty() => "[]",
        JsonValue::Object(fields) if fields.is_empty() => "{}",
        _ if FREE.contains(&field) => "free",
        JsonValue::Array(items) => {
            return items.iter().for_each(|item| forms(item, &format!("{path}[]"), found));
        }
        JsonValue::Object(fields) => {
            let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
            found.insert(format!("{path}={{{}}}", names.join(",")));
            let dot = if path.is_empty() { "" } else { "." };
            return fields
                .iter()
                .for_each(|(name, value)| forms(value, &format!("{path}{dot}{name}"), found));
        }
    };
    found.insert(format!("{path}={form}"));
}

/// The forms in what a payload says of its fact.
fn forms_of(payload: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let JsonValue::Object(fact) = json::parse(payload.as_bytes()).unwrap() else { panic!("{payload}") };
    forms(&fact[0].1, "", &mut found);
    found
}

fn all_forms(payloads: &[String]) -> BTreeSet<String> {
    payloads.iter().flat_map(|payload| forms_of(payload)).collect()
}

/// The payloads that the checks record, by kind, the longest first but for very long ones.
fn recorded() -> BTreeMap<String, Vec<String>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let mut recorded = BTreeMap::<String, Vec<String>>::new();
    for check in checks() {
        let store = Arc::new(MemoryStore::new());
        runtime.block_on((check.run)(Arc::clone(&store) as Arc<dyn Store>)).unwrap();
        for organization in runtime.block_on(store.organizations(None, 100)).unwrap() {
            for entry in runtime.block_on(store.ledger_entries(organization.id, 0, 1000)).unwrap() {
                let fact = serde_json::to_string(&Fact::read(&entry.payload).unwrap()).unwrap();
                recorded.entry(entry.kind).or_default().push(fact);
            }
        }
    }
    for payloads in recorded.values_mut() {
        payloads.sort_by_key(|payload| (payload.len() > 16 << 10, Reverse(payload.len())));
        payloads.dedup();
    }
    recorded
}

fn file(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{kind}.jsonl"))
}

fn golden(kind: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file(kind)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The variants that serde expects where it finds none of them.
fn expected(payload: &str) -> Option<Vec<String>> {
    let error = serde_json::from_str::<Fact>(payload).err()?.to_string();
    let (_, expected) = error.strip_prefix("unknown variant")?.split_once("expected ")?;
    Some(expected.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

/// The kinds of facts.
fn kinds() -> Vec<String> {
    expected(r#"{"?":{}}"#).expect("a fact is an enum")
}

/// A text in a payload that stands for a variant of an enum.
struct Choice {
    /// Which of the payload's texts it is.
    place: usize,
    chosen: String,
    variants: Vec<String>,
}

fn choices(payload: &str) -> Vec<Choice> {
    let mut fact = json::parse(payload.as_bytes()).unwrap();
    let texts: Vec<String> = texts(&mut fact).into_iter().map(|text| text.clone()).collect();
    let choice = |(place, chosen): (usize, String)| {
        let variants = expected(&with_text(payload, place, "?"))?;
        Some(Choice { place, chosen, variants })
    };
    texts.into_iter().enumerate().filter_map(choice).collect()
}

fn texts(value: &mut JsonValue) -> Vec<&mut String> {
    match value {
        JsonValue::Null | JsonValue::Bool(_) | JsonValue::Number(_) => Vec::new(),
        JsonValue::String(text) => vec![text],
        JsonValue::Array(items) => items.iter_mut().flat_map(texts).collect(),
        JsonValue::Object(fields) => fields.iter_mut().flat_map(|(_, value)| texts(value)).collect(),
    }
}

/// The payload with this text in the place of another.
fn with_text(payload: &str, place: usize, text: &str) -> String {
    let mut fact = json::parse(payload.as_bytes()).unwrap();
    *texts(&mut fact)[place] = text.to_owned();
    serde_json::to_string(&fact).unwrap()
}

/// The enums of which some variant is frozen, by all their variants, with those that are.
fn frozen_variants() -> BTreeMap<Vec<String>, BTreeSet<String>> {
    let mut frozen = BTreeMap::<_, BTreeSet<_>>::new();
    for (_, payload) in self::frozen() {
        for choice in choices(&payload) {
            frozen.entry(choice.variants).or_default().insert(choice.chosen);
        }
    }
    frozen
}

/// What the checks record. `EVIDENCE_WRITE_GOLDEN=1` freezes a payload for each form and each variant that has none yet.
static RECORDED: LazyLock<BTreeMap<String, Vec<String>>> = LazyLock::new(|| {
    let recorded = recorded();
    if std::env::var_os("EVIDENCE_WRITE_GOLDEN").is_some() {
        for (kind, payloads) in &recorded {
            freeze(kind, payloads);
        }
        freeze_variants();
    }
    recorded
});

/// Freezes payloads with the variants that no check records.
fn freeze_variants() {
    let mut frozen = frozen_variants();
    for kind in kinds() {
        let mut lines = golden(&kind);
        for payload in lines.clone() {
            for Choice { place, variants, .. } in choices(&payload) {
                let known = frozen.entry(variants.clone()).or_default();
                for variant in variants {
                    let other = with_text(&payload, place, &variant);
                    // Some variants have fields of their own: those have to be recorded.
                    if !known.contains(&variant) && serde_json::from_str::<Fact>(&other).is_ok() {
                        known.insert(variant);
                        lines.push(other);
                    }
                }
            }
        }
        std::fs::write(file(&kind), lines.join("\n") + "\n").unwrap();
    }
}

fn freeze(kind: &str, payloads: &[String]) {
    let mut lines = golden(kind);
    let mut frozen = all_forms(&lines);
    for payload in payloads {
        let forms = forms_of(payload);
        if !forms.is_subset(&frozen) {
            frozen.extend(forms);
            lines.push(payload.clone());
        }
    }
    std::fs::write(file(kind), lines.join("\n") + "\n").unwrap();
}

/// The frozen payloads, each with its kind.
fn frozen() -> impl Iterator<Item = (String, String)> {
    kinds().into_iter().flat_map(|kind| golden(&kind).into_iter().map(move |payload| (kind.clone(), payload)))
}

#[test]
fn every_kind_is_recorded_and_frozen() {
    assert_eq!(BTreeSet::from_iter(kinds()), RECORDED.keys().cloned().collect());
    for kind in kinds() {
        assert!(!golden(&kind).is_empty(), "{kind}");
    }
}

#[test]
fn every_variant_is_frozen() {
    LazyLock::force(&RECORDED);
    let frozen = frozen_variants();
    assert!(frozen.len() >= 8, "{frozen:?}");
    for (variants, frozen) in frozen {
        let missing: Vec<_> = variants.iter().filter(|variant| !frozen.contains(*variant)).collect();
        assert!(missing.is_empty(), "{missing:?} of {variants:?}");
    }
}

#[test]
fn every_form_that_is_recorded_is_frozen() {
    for (kind, payloads) in &*RECORDED {
        let (recorded, frozen) = (all_forms(payloads), all_forms(&golden(kind)));
        let new: Vec<_> = recorded.difference(&frozen).collect();
        assert!(new.is_empty(), "{kind}: {new:?}");
    }
    for (kind, variants) in ALL {
        let frozen = all_forms(&golden(kind));
        for variant in variants {
            assert!(frozen.contains(*variant), "{kind}: {variant} is in none of {frozen:?}");
        }
    }
}

#[test]
fn every_frozen_payload_is_read_and_written_as_it_was() {
    LazyLock::force(&RECORDED);
    for (kind, payload) in frozen() {
        let fact: Fact = serde_json::from_str(&payload).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(fact.kind(), kind);
        assert_eq!(serde_json::to_string(&fact).unwrap(), payload, "{kind}");
    }
}

#[test]
fn fields_of_a_record_that_are_not_known_survive_its_being_recorded_again() {
    LazyLock::force(&RECORDED);
    for (kind, payload) in frozen() {
        let fact: Fact = serde_json::from_str(&payload).unwrap();
        // Records without a revision are never recorded again, and a membership or a report is set anew.
        if fact.subject().is_none_or(|(kind, _)| matches!(kind, RecordKind::Member | RecordKind::Report)) {
            continue;
        }
        let newer = r#"{"record":{"from_a_newer_version":{"a":[1e400,-0,null,"b"]},"#;
        let payload = payload.replacen(r#"{"record":{"#, newer, 1);
        let fact: Fact = serde_json::from_str(&payload).unwrap();
        let written = serde_json::to_string(&fact).unwrap();
        assert!(written.contains(r#""from_a_newer_version":{"a":[1e400,-0,null,"b"]}"#), "{kind}: {written}");
        assert_eq!(serde_json::from_str::<Fact>(&written).unwrap(), fact, "{kind}");
        // Where it stands does not matter.
        assert_eq!(written.len(), payload.len(), "{kind}");
    }
}
