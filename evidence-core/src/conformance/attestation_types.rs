//! Checks of [`crate::attestation_types::AttestationTypeStore`].

use std::sync::Arc;

use serde_json::json;

use crate::attestation_types::{AttestationType, AttestationTypeVersion};
use crate::fact::{Fact, UnknownFields};
use crate::store::{Current, Store};

use super::fixtures::{Org, at, awkward, id, jane, named, robot, user_data};
use super::{Outcome, promises, same};

promises! {
    types_read_back: "Custom attestation types and versions are what was recorded last, absent options too.",
    types_are_listed_newest_first: "`attestation_types` is ordered newest first by `created_at`, then by id.",
    versions_are_listed_newest_first: "`attestation_type_versions` answers every version of these types, newest first.",
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
    same("listed", store.attestation_types(org.id).await?, vec![full])?;
    let versions = store.attestation_type_versions(org.id, &[id(100)]).await?;
    same("the versions", versions, vec![full_version, version(100, 1)])?;
    for (org, name) in [(&other, "t"), (&org, "T"), (&org, "%"), (&org, "_"), (&org, "")] {
        same(name, store.attestation_type(org.id, name).await?, None)?;
    }
    Ok(())
}

async fn types_are_listed_newest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    same("none", store.attestation_types(org.id).await?, Vec::new())?;
    let made = |n, name, when| AttestationType { created_at: at(when), ..bare(n, name) };
    let types = [made(103, "b", 5), made(101, "a", 9), made(104, "d", 5), made(102, "c", 7)];
    for record in &types {
        let version = AttestationTypeVersion { attestation_type: record.id, ..version(0, 1) };
        org.record(vec![Fact::AttestationTypeCreated { record: record.clone(), version }]).await?;
    }
    other.record(vec![created(200, "a")]).await?;
    let found: Vec<_> = store.attestation_types(org.id).await?.into_iter().map(|found| found.id).collect();
    same("the types", found, [101, 102, 104, 103].map(id).to_vec())
}

async fn versions_are_listed_newest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![created(100, "a"), created(101, "b"), created(102, "c")]).await?;
    other.record(vec![created(200, "a")]).await?;
    for n in 2..=11 {
        let record = AttestationType { version: n, ..bare(100, "a") };
        org.record(vec![Fact::AttestationTypeVersioned { record, version: version(100, n) }]).await?;
    }
    let found = store.attestation_type_versions(org.id, &[100, 200, 999, 100].map(id)).await?;
    same("of one type", found, (1..=11).rev().map(|n| version(100, n)).collect())?;
    let found = store.attestation_type_versions(org.id, &[100, 101].map(id)).await?;
    same("of two types", found.len(), 12)?;
    same("of none", store.attestation_type_versions(org.id, &[]).await?, Vec::new())
}
