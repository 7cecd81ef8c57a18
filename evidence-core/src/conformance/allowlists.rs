//! Checks of [`crate::allowlists::AllowlistStore`].

use std::sync::Arc;

use crate::allowlists::Allowance;
use crate::fact::Fact;
use crate::id::Id;
use crate::store::Store;

use super::fixtures::{Org, at, awkward, environment, fingerprint, id, robot};
use super::{Outcome, promises, same};

promises! {
    allowances_read_back: "Allowlist entries are what was recorded.",
    allowances_are_listed_newest_first: "`allowances` answers the newest of each environment and fingerprint, newest first.",
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
    same("all", store.allowances(org.id, None).await?, vec![full.clone()])?;
    same("of the environment", store.allowances(org.id, Some(id(100))).await?, vec![full])
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
    let cases: [(Option<Id>, &[u64]); 5] = [
        (None, &[110, 113, 114]),
        (Some(id(100)), &[110, 113]),
        (Some(id(101)), &[114]),
        (Some(id(200)), &[]),
        (Some(id(999)), &[]),
    ];
    for (environment, expected) in cases {
        let found = store.allowances(org.id, environment).await?;
        let found: Vec<_> = found.into_iter().map(|allowance| allowance.id).collect();
        same(&format!("of {environment:?}"), found, expected.iter().map(|n| id(*n)).collect())?;
    }
    Ok(())
}
