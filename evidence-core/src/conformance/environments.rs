//! Checks of [`crate::environments::EnvironmentStore`].

use std::sync::Arc;

use crate::environments::{Environment, EnvironmentKind};
use crate::fact::Fact;
use crate::store::{Current, Store};

use super::fixtures::{Org, at, awkward, environment, id, robot, tags};
use super::{Outcome, promises, same};

promises! {
    environments_read_back: "Environments are what the last fact about them says, absent options too.",
    environments_are_listed_by_name: "`environments` is ordered by name (bytes), and shows one organization's.",
}

async fn environments_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let bare = environment(100, "prod");
    let full = Environment {
        kind: EnvironmentKind::Logical,
        description: awkward(),
        included: vec![id(103), id(101)],
        policies: vec![id(105), id(104)],
        tags: tags(&[("a", "1")]),
        created_by: robot(),
        last_modified_at: at(8),
        last_reported_at: Some(at(9)),
        last_changed_at: Some(at(10)),
        snapshots: 12,
        state: Some(false),
        ..bare.clone()
    };
    let changed = |record: &Environment| record.clone();
    let facts = [
        (Fact::EnvironmentCreated { record: changed(&bare) }, &bare),
        (Fact::EnvironmentUpdated { record: changed(&full) }, &full),
        (Fact::EnvironmentTagged { record: changed(&bare) }, &bare),
        (Fact::EnvironmentJoined { record: changed(&full), member: id(101) }, &full),
        (Fact::EnvironmentReported { record: changed(&bare) }, &bare),
        (Fact::PoliciesAttached { record: changed(&full), policies: vec![id(104)] }, &full),
    ];
    for (revision, (fact, record)) in (1..).zip(facts) {
        let kind = fact.kind();
        org.record(vec![fact]).await?;
        let current = Current { revision, record: record.clone() };
        same(kind, store.environment(org.id, "prod").await?, Some(current.clone()))?;
        same(kind, store.environments(org.id).await?, vec![current])?;
    }
    Ok(())
}

async fn environments_are_listed_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let created = |n, name| Fact::EnvironmentCreated { record: environment(n, name) };
    same("none", store.environments(org.id).await?, Vec::new())?;
    org.record(vec![created(100, "b"), created(101, "a"), created(102, "B"), created(103, "a.b")]).await?;
    other.record(vec![created(200, "aa")]).await?;
    let found = store.environments(org.id).await?.into_iter().map(|found| (found.record.id, found.revision));
    same("the environments", found.collect(), vec![(id(102), 3), (id(101), 2), (id(103), 4), (id(100), 1)])?;
    for name in ["A", "aa", "%", "_", ""] {
        same(name, store.environment(org.id, name).await?, None)?;
    }
    Ok(())
}
