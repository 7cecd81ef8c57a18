//! Checks of [`crate::allowlists::AllowlistStore`].

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::allowlists::Allowance;
use crate::fact::Fact;
use crate::store::Store;

use super::fixtures::{Org, at, awkward, environment, fingerprint, id, robot};
use super::{Outcome, ensure, promises, same};

promises! {
    allowances_read_back: "Allowlist entries are what was recorded.",
    allowances_are_listed_newest_first: "`allowances_listed` answers the newest of each environment and fingerprint, newest first.",
    artifacts_are_allowed_where_they_are: "`allowed` and `allowance_count` answer what is allowed in one environment, the former by so many entries of the ledger.",
}

fn allowance(n: u64, environment: u64, start: &str) -> Allowance {
    Allowance {
        id: id(n),
        environment: id(environment),
        fingerprint: fingerprint(start),
        artifact_name: "app".to_owned(),
        description: String::new(),
        at: at(3),
        by: robot(),
    }
}

fn allowed(n: u64, environment: u64, start: &str) -> Fact {
    Fact::ArtifactAllowed { record: allowance(n, environment, start) }
}

fn environment_created(n: u64, name: &str) -> Fact {
    Fact::EnvironmentCreated { record: environment(n, name) }
}

async fn allowances_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let full = Allowance { artifact_name: awkward(), description: awkward(), ..allowance(110, 100, "ab") };
    org.record(vec![environment_created(100, "prod"), Fact::ArtifactAllowed { record: full.clone() }])
        .await?;
    same("by its index", store.allowances(org.id, &[2, 2]).await?, vec![full])?;
    same("by none", store.allowances(org.id, &[]).await?, Vec::new())?;
    same("by an unknown one", store.allowances(org.id, &[3]).await?, Vec::new())
}

async fn allowances_are_listed_newest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![environment_created(100, "prod"), environment_created(101, "test")]).await?;
    other.record(vec![environment_created(200, "prod"), allowed(210, 200, "ab")]).await?;
    let early = Allowance { at: at(-50), ..allowance(110, 100, "ab") };
    org.record(vec![
        allowed(112, 100, "ab"),
        allowed(114, 101, "ab"),
        allowed(113, 100, "cd"),
        Fact::ArtifactAllowed { record: early },
    ])
    .await?;
    let listed = store.allowances_listed(org.id).await?;
    // After the organization and two environments.
    same("the list", listed.iter().map(|listed| listed.id).collect(), vec![6, 5, 4])?;
    ensure(listed.iter().all(|listed| listed.bytes >= 64), "an entry is larger than its fingerprint")?;
    let indexes = Vec::from_iter(listed.iter().rev().map(|listed| listed.id));
    let found = store.allowances(org.id, &indexes).await?;
    same(
        "the entries",
        found.into_iter().map(|allowance| allowance.id).collect(),
        [110, 113, 114].map(id).to_vec(),
    )
}

async fn artifacts_are_allowed_where_they_are(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![environment_created(100, "prod"), environment_created(101, "test")]).await?;
    other.record(vec![environment_created(200, "prod"), allowed(210, 200, "ef")]).await?;
    org.record(vec![allowed(112, 100, "ab"), allowed(113, 100, "cd"), allowed(114, 101, "cd")]).await?;
    org.record(vec![allowed(115, 100, "ab")]).await?;
    let asked = ["ab", "cd", "ef", "ab"].map(fingerprint);
    // After the organization and two environments.
    for (environment, expected) in
        [(100, vec![("ab", 6), ("cd", 4)]), (101, vec![("cd", 5)]), (200, vec![]), (999, vec![])]
    {
        let found = BTreeSet::from_iter(store.allowed(org.id, id(environment), &asked, u64::MAX).await?);
        let size = expected.len() as u64;
        let expected = expected.into_iter().map(|(start, index)| (fingerprint(start), index)).collect();
        same("what is allowed, and since which entry", found, expected)?;
        same("how many are", store.allowance_count(org.id, id(environment), 9).await?, size)?;
        same("counted up to 1", store.allowance_count(org.id, id(environment), 1).await?, size.min(1))?;
    }
    same("of none", store.allowed(org.id, id(100), &[], u64::MAX).await?, Vec::new())?;
    // By the first entry of each, whatever came later.
    for (entries, expected) in
        [(0, vec![]), (3, vec![]), (4, vec![("ab", 6)]), (6, vec![("ab", 6), ("cd", 4)])]
    {
        let found = BTreeSet::from_iter(store.allowed(org.id, id(100), &asked, entries).await?);
        let expected = expected.into_iter().map(|(start, index)| (fingerprint(start), index)).collect();
        same(&format!("what {entries} entries allow"), found, expected)?;
    }
    Ok(())
}
