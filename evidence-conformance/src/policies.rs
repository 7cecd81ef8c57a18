//! Checks of [`evidence_core::policies::PolicyStore`].

use std::sync::Arc;

use evidence_core::fact::{Fact, UnknownFields};
use evidence_core::policies::{DescriptionChange, Policy, PolicyVersion};
use evidence_core::store::{Current, Store};

use super::fixtures::{Org, at, awkward, id, jane, named, robot};
use super::shared::{found_by_number, largest_is_long, long_text, sized};
use super::{Outcome, promises, same};

promises! {
    policies_read_back: "Policies are what was recorded last.",
    policies_are_found_by_name: "`policies_named` answers the policies of these names, each once.",
    policies_are_listed_by_name: "`policies_listed` is ordered by name (bytes), and shows one organization's.",
    versions_are_found_by_number: "`policy_versions_by_number` and `policy_version_sizes` answer these versions of these policies, each once.",
    sizes_are_of_whole_versions: "`policy_version_sizes` answers no less than a version has.",
}

fn policy(n: u64, name: &str) -> Policy {
    Policy {
        id: id(n),
        name: named(name),
        description: String::new(),
        version: 1,
        created_at: at(2),
        created_by: jane(),
        last_modified_at: at(2),
        description_changes: Vec::new(),
        unknown: UnknownFields::default(),
    }
}

fn version(policy: u64, version: u64) -> PolicyVersion {
    let at = at(10 * i64::try_from(version).unwrap_or_default());
    PolicyVersion {
        policy: id(policy),
        version,
        comment: String::new(),
        policy_yaml: awkward(),
        at,
        by: robot(),
    }
}

pub(super) fn created(n: u64, name: &str) -> Fact {
    Fact::PolicyCreated { record: policy(n, name), version: version(n, 1) }
}

fn updated(record: Policy, version: Option<PolicyVersion>) -> Fact {
    Fact::PolicyUpdated { record, version, comment: None }
}

async fn policies_are_found_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![created(100, "a"), created(101, "b"), created(102, "B")]).await?;
    other.record(vec![created(200, "c")]).await?;
    let cases = [
        (vec![], vec![]),
        (vec!["c", "A", "%", ""], vec![]),
        (vec!["b", "a", "b"], vec![(100, 1), (101, 2)]),
        (vec!["B", "c", "a"], vec![(100, 1), (102, 3)]),
    ];
    for (names, expected) in cases {
        let mut found = store.policies_named(org.id, &names).await?;
        found.sort_by_key(|policy| policy.revision);
        let found = Vec::from_iter(found.into_iter().map(|policy| (policy.record.id, policy.revision)));
        let expected = expected.into_iter().map(|(n, revision)| (id(n), revision)).collect();
        same(&format!("{names:?}"), found, expected)?;
    }
    Ok(())
}

async fn policies_read_back(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let change = |version, comment| DescriptionChange { at: at(8), by: robot(), version, comment };
    let full = Policy {
        description: awkward(),
        version: 2,
        created_by: robot(),
        last_modified_at: at(9),
        description_changes: vec![change(1, String::new()), change(2, awkward())],
        ..policy(100, "p")
    };
    org.record(vec![created(100, "p")]).await?;
    let current = Current { revision: 1, record: policy(100, "p") };
    same("created", store.policy(org.id, "p").await?, Some(current))?;
    org.record(vec![updated(full.clone(), Some(version(100, 2)))]).await?;
    same("updated", store.policy(org.id, "p").await?, Some(Current { revision: 2, record: full.clone() }))?;
    let described = Fact::PolicyUpdated { record: full.clone(), version: None, comment: Some(awkward()) };
    org.record(vec![described]).await?;
    same("described", store.policy(org.id, "p").await?, Some(Current { revision: 3, record: full.clone() }))?;
    let found = store.policies_by_id(org.id, &[100, 999, 100].map(id)).await?;
    same("by id", found, vec![Current { revision: 3, record: full }])?;
    let mut versions = store.policy_versions_by_number(org.id, &[(id(100), 1), (id(100), 2)]).await?;
    versions.sort_by_key(|version| version.version);
    same("the versions", versions, vec![version(100, 1), version(100, 2)])?;
    for (org, name) in [(&other, "p"), (&org, "P"), (&org, "%"), (&org, "_"), (&org, "")] {
        same(name, store.policy(org.id, name).await?, None)?;
    }
    Ok(())
}

async fn policies_are_listed_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    same("none", store.policies_listed(org.id).await?, Vec::new())?;
    org.record(vec![created(100, "b"), created(101, "a"), created(102, "B"), created(103, "a~")]).await?;
    other.record(vec![created(200, "aa")]).await?;
    let long = Policy { description: long_text(), ..policy(100, "b") };
    org.record(vec![updated(long, None)]).await?;
    let listed = store.policies_listed(org.id).await?;
    same("the policies", listed.iter().map(|one| one.id).collect(), [102, 101, 103, 100].map(id).to_vec())?;
    largest_is_long(&listed)
}

async fn sizes_are_of_whole_versions(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let created = |n, policy_yaml| Fact::PolicyCreated {
        record: policy(n, &format!("p{n}")),
        version: PolicyVersion { policy_yaml, ..version(n, 1) },
    };
    let store = &store;
    sized(&org, created, |of| async move { store.policy_version_sizes(org.id, &[of]).await }).await
}

async fn versions_are_found_by_number(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![created(100, "a"), created(101, "b")]).await?;
    other.record(vec![created(200, "a")]).await?;
    for n in 2..=11 {
        let record = Policy { version: n, ..policy(100, "a") };
        org.record(vec![updated(record, Some(version(100, n)))]).await?;
    }
    let renamed = Policy { version: 11, description: awkward(), ..policy(100, "a") };
    org.record(vec![updated(renamed, None)]).await?;
    let store = &store;
    let read = |wanted: Vec<_>| async move {
        let sizes = store.policy_version_sizes(org.id, &wanted).await?;
        Ok((sizes, store.policy_versions_by_number(org.id, &wanted).await?))
    };
    found_by_number(read, |found| (found.policy, found.version), version).await
}
