//! Checks of [`evidence_core::attestation_types::AttestationTypeStore`].

use std::sync::Arc;

use serde_json::json;

use evidence_core::attestation_types::{AttestationType, AttestationTypeVersion};
use evidence_core::fact::{Fact, UnknownFields};
use evidence_core::store::{Current, Store};

use super::fixtures::{Org, at, awkward, free_form, id, jane, named, robot, user_data};
use super::shared::{found_by_number, largest_is_long, long_text, sized};
use super::{Outcome, promises, same};

promises! {
    types_read_back: "Custom attestation types and versions are what was recorded last, absent options too.",
    types_are_listed_newest_first: "`attestation_types_listed` is ordered newest first, by the ledger index of the first version.",
    type_versions_are_found_by_number: "`attestation_type_versions_by_number` and `attestation_type_version_sizes` answer these versions of these types, each once.",
    sizes_are_of_whole_type_versions: "`attestation_type_version_sizes` answers no less than a version has.",
}

fn bare(n: u64, name: &str) -> AttestationType {
    AttestationType {
        id: id(n),
        name: named(name),
        description: None,
        version: 1,
        archived: false,
        created_at: at(2),
        created_by: jane(),
        last_modified_at: at(2),
        unknown: UnknownFields::default(),
    }
}

fn version(attestation_type: u64, version: u64) -> AttestationTypeVersion {
    AttestationTypeVersion {
        attestation_type: id(attestation_type),
        version,
        type_schema: None,
        evaluator: json!({ "content_type": "default" }),
        summary: None,
        at: at(10 * i64::try_from(version).unwrap_or_default()),
        by: jane(),
    }
}

pub(super) fn created(n: u64, name: &str) -> Fact {
    Fact::AttestationTypeCreated { record: bare(n, name), version: version(n, 1) }
}

async fn types_read_back(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![created(100, "t")]).await?;
    let current = Current { revision: 1, record: bare(100, "t") };
    same("created", store.attestation_type(org.id, "t").await?, Some(current))?;
    let full = AttestationType {
        description: Some(awkward()),
        version: 2,
        archived: true,
        created_by: robot(),
        last_modified_at: at(9),
        ..bare(100, "t")
    };
    let full_version = AttestationTypeVersion {
        type_schema: Some(user_data()),
        evaluator: json!({ "content_type": awkward() }),
        summary: Some(json!([])),
        by: robot(),
        ..version(100, 2)
    };
    org.record(vec![Fact::AttestationTypeVersioned { record: full.clone(), version: full_version.clone() }])
        .await?;
    let current = Current { revision: 2, record: full.clone() };
    same("versioned", store.attestation_type(org.id, "t").await?, Some(current))?;
    let found = store.attestation_types_by_id(org.id, &[100, 999, 100].map(id)).await?;
    same("by id", found, vec![full.clone()])?;
    for archived in [false, true] {
        let record = AttestationType { archived, ..full.clone() };
        let fact = match archived {
            true => Fact::AttestationTypeArchived { record: record.clone() },
            false => Fact::AttestationTypeVersioned { record: record.clone(), version: version(100, 3) },
        };
        let revision = org.record(vec![fact]).await?.first().map_or(0, |entry| entry.index);
        let current = Current { revision, record };
        same("archived", store.attestation_type(org.id, "t").await?, Some(current))?;
    }
    let mut versions =
        store.attestation_type_versions_by_number(org.id, &[(id(100), 1), (id(100), 2)]).await?;
    versions.sort_by_key(|version| version.version);
    same("the versions", versions, vec![version(100, 1), full_version])?;
    for (org, name) in [(&other, "t"), (&org, "T"), (&org, "%"), (&org, "_"), (&org, "")] {
        same(name, store.attestation_type(org.id, name).await?, None)?;
    }
    Ok(())
}

async fn types_are_listed_newest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    same("none", store.attestation_types_listed(org.id).await?, Vec::new())?;
    let types = [(103, "b"), (101, "a"), (104, "d"), (102, "c")].map(|(n, name)| bare(n, name));
    for record in &types {
        let version = AttestationTypeVersion { attestation_type: record.id, ..version(0, 1) };
        org.record(vec![Fact::AttestationTypeCreated { record: record.clone(), version }]).await?;
    }
    other.record(vec![created(200, "a")]).await?;
    let long = AttestationType { description: Some(long_text()), version: 2, ..bare(101, "a") };
    org.record(vec![Fact::AttestationTypeVersioned { record: long, version: version(101, 2) }]).await?;
    let listed = store.attestation_types_listed(org.id).await?;
    same("the types", listed.iter().map(|one| one.id).collect(), [102, 104, 101, 103].map(id).to_vec())?;
    largest_is_long(&listed)
}

async fn sizes_are_of_whole_type_versions(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let created = |n, text: String| {
        let type_schema = Some(free_form(&json!({ "description": text }).to_string()));
        let version = AttestationTypeVersion { type_schema, ..version(n, 1) };
        Fact::AttestationTypeCreated { record: bare(n, &format!("t{n}")), version }
    };
    let store = &store;
    sized(&org, created, |of| async move { store.attestation_type_version_sizes(org.id, &[of]).await }).await
}

async fn type_versions_are_found_by_number(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![created(100, "a"), created(101, "b"), created(102, "c")]).await?;
    other.record(vec![created(200, "a")]).await?;
    for n in 2..=11 {
        let record = AttestationType { version: n, ..bare(100, "a") };
        org.record(vec![Fact::AttestationTypeVersioned { record, version: version(100, n) }]).await?;
    }
    let store = &store;
    let read = |wanted: Vec<_>| async move {
        let sizes = store.attestation_type_version_sizes(org.id, &wanted).await?;
        Ok((sizes, store.attestation_type_versions_by_number(org.id, &wanted).await?))
    };
    found_by_number(read, |found| (found.attestation_type, found.version), version).await
}
