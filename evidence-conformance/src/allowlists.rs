//! Checks of [`evidence_core::allowlists::AllowlistStore`].

use std::collections::BTreeSet;
use std::sync::Arc;

use evidence_core::allowlists::{AllowedArtifact, AllowlistEntry, EndedAllowlistEntry, Withdrawal};
use evidence_core::fact::Fact;
use evidence_core::name::Fingerprint;
use evidence_core::store::Store;
use evidence_core::time::Timestamp;

use super::fixtures::{Org, at, awkward, environment, fingerprint, id, named, robot};
use super::{Failure, Outcome, ensure, promises, same};

promises! {
    allowlist_entries_read_back: "Allowlist entries are what was recorded.",
    allowlist_entries_are_listed_newest_first: "`allowlist_entries_listed` answers the newest of each environment and fingerprint, newest first.",
    artifacts_are_allowed_where_they_are: "`allowed` and `allowlist_entry_count` answer what is allowed in one environment, the former by so many entries of the ledger.",
    allowlist_entries_end: "Entries that expired or were withdrawn allow nothing from then on, and are listed with those in force alone where none is asked for by time.",
    ended_allowlist_entries_are_found: "`ended_allowlist_entries` answers the environments in which entries ended within a time, by that time.",
}

fn allowlist_entry(n: u64, environment: u64, start: &str) -> AllowlistEntry {
    AllowlistEntry {
        id: id(n),
        environment: id(environment),
        fingerprint: fingerprint(start),
        artifact_name: "app".to_owned(),
        description: String::new(),
        at: at(3),
        by: robot(),
        expires_at: None,
        withdrawn: None,
    }
}

/// Until the `end`-th second.
fn until(n: u64, environment: u64, start: &str, end: i64) -> Fact {
    Fact::ArtifactAllowed {
        record: AllowlistEntry { expires_at: Some(at(end)), ..allowlist_entry(n, environment, start) },
    }
}

/// Withdrawn in the `when`-th second.
fn withdrawn(n: u64, environment: u64, start: &str, when: i64) -> Fact {
    let withdrawn = Some(Withdrawal { at: at(when), by: robot() });
    Fact::AllowanceWithdrawn {
        record: AllowlistEntry { withdrawn, ..allowlist_entry(n, environment, start) },
    }
}

fn allowed(n: u64, environment: u64, start: &str) -> Fact {
    Fact::ArtifactAllowed { record: allowlist_entry(n, environment, start) }
}

fn environment_created(n: u64, name: &str) -> Fact {
    Fact::EnvironmentCreated { record: environment(n, name) }
}

async fn allowlist_entries_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let full = AllowlistEntry {
        artifact_name: awkward(),
        description: awkward(),
        ..allowlist_entry(110, 100, "ab")
    };
    org.record(vec![environment_created(100, "prod"), Fact::ArtifactAllowed { record: full.clone() }])
        .await?;
    same("by its index", store.allowlist_entries(org.id, &[2, 2]).await?, vec![full])?;
    same("by none", store.allowlist_entries(org.id, &[]).await?, Vec::new())?;
    same("by an unknown one", store.allowlist_entries(org.id, &[3]).await?, Vec::new())
}

async fn allowlist_entries_are_listed_newest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![environment_created(100, "prod"), environment_created(101, "test")]).await?;
    other.record(vec![environment_created(200, "prod"), allowed(210, 200, "ab")]).await?;
    let early = AllowlistEntry { at: at(-50), ..allowlist_entry(110, 100, "ab") };
    org.record(vec![
        allowed(112, 100, "ab"),
        allowed(114, 101, "ab"),
        allowed(113, 100, "cd"),
        Fact::ArtifactAllowed { record: early },
    ])
    .await?;
    let listed = store.allowlist_entries_listed(org.id, None).await?;
    same("those in force", store.allowlist_entries_listed(org.id, Some(at(9))).await?, listed.clone())?;
    // After the organization and two environments.
    same("the list", listed.iter().map(|listed| listed.id).collect(), vec![6, 5, 4])?;
    ensure(listed.iter().all(|listed| listed.bytes >= 64), "an entry is larger than its fingerprint")?;
    let indexes = Vec::from_iter(listed.iter().rev().map(|listed| listed.id));
    let found = store.allowlist_entries(org.id, &indexes).await?;
    same(
        "the entries",
        found.into_iter().map(|allowlist_entry| allowlist_entry.id).collect(),
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
        let found = entries(store.allowed(org.id, id(environment), &asked, u64::MAX, at(9)).await?);
        let size = expected.len() as u64;
        let expected = expected.into_iter().map(|(start, index)| (fingerprint(start), index)).collect();
        same("what is allowed, and since which entry", found, expected)?;
        same("how many are", store.allowlist_entry_count(org.id, id(environment), at(9), 9).await?, size)?;
        let one = store.allowlist_entry_count(org.id, id(environment), at(9), 1).await?;
        same("counted up to 1", one, size.min(1))?;
    }
    same("of none", store.allowed(org.id, id(100), &[], u64::MAX, at(9)).await?, Vec::new())?;
    // By the newest of these entries, whatever came later.
    for (first, expected) in [
        (0, vec![]),
        (3, vec![]),
        (4, vec![("ab", 3)]),
        (6, vec![("ab", 3), ("cd", 4)]),
        (7, vec![("ab", 6), ("cd", 4)]),
    ] {
        let found = entries(store.allowed(org.id, id(100), &asked, first, at(9)).await?);
        let expected = expected.into_iter().map(|(start, index)| (fingerprint(start), index)).collect();
        same(&format!("what {first} entries allow"), found, expected)?;
    }
    Ok(())
}

fn entries(allowed: Vec<AllowedArtifact>) -> BTreeSet<(Fingerprint, u64)> {
    allowed.into_iter().map(|one| (one.fingerprint, one.entry)).collect()
}

/// The ledger indexes of what is listed.
async fn listed(
    store: &Arc<dyn Store>,
    org: &Org,
    in_force_at: Option<Timestamp>,
) -> Result<Vec<u64>, Failure> {
    let listed = store.allowlist_entries_listed(org.id, in_force_at).await?;
    Ok(listed.into_iter().map(|listed| listed.id).collect())
}

async fn allowlist_entries_end(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![environment_created(100, "prod")]).await?;
    // The entries 2 to 5.
    org.record(vec![until(110, 100, "ab", 10), allowed(111, 100, "cd"), until(112, 100, "ef", 10)]).await?;
    org.record(vec![withdrawn(111, 100, "cd", 20)]).await?;
    let asked = ["ab", "cd", "ef"].map(fingerprint);
    let micro = |micros: i64| Timestamp::from_micros(at(10).as_micros() + micros);
    // By so many entries, at a time.
    for (first, now, expected) in [
        (5, at(9), vec![("ab", 2), ("cd", 3), ("ef", 4)]),
        (5, micro(-1), vec![("ab", 2), ("cd", 3), ("ef", 4)]),
        (5, at(10), vec![("cd", 3)]),
        (u64::MAX, at(9), vec![("ab", 2), ("ef", 4)]),
        // It was withdrawn, whatever the clock says.
        (u64::MAX, at(-9), vec![("ab", 2), ("ef", 4)]),
        (u64::MAX, at(10), vec![]),
    ] {
        let found = store.allowed(org.id, id(100), &asked, first, now).await?;
        let ends = BTreeSet::from_iter(found.iter().map(|one| (one.fingerprint.clone(), one.expires_at)));
        let expected: BTreeSet<_> =
            expected.into_iter().map(|(start, index)| (fingerprint(start), index)).collect();
        let expires = |(content, _): &(Fingerprint, u64)| {
            (content.clone(), (*content != fingerprint("cd")).then(|| at(10)))
        };
        same("when they expire", ends, expected.iter().map(expires).collect())?;
        same(&format!("what {first} entries allow at {now:?}"), entries(found), expected)?;
    }
    same("all", listed(&store, &org, None).await?, vec![5, 4, 2])?;
    same("in force before", listed(&store, &org, Some(micro(-1))).await?, vec![4, 2])?;
    same("in force after", listed(&store, &org, Some(at(10))).await?, vec![])?;
    for (now, size) in [(at(9), 2), (at(10), 0)] {
        same("how many are", store.allowlist_entry_count(org.id, id(100), now, 9).await?, size)?;
    }
    let found = store.allowlist_entries(org.id, &[5]).await?;
    let by = Some(Withdrawal { at: at(20), by: robot() });
    same(
        "the withdrawn entry",
        found,
        vec![AllowlistEntry { withdrawn: by, ..allowlist_entry(111, 100, "cd") }],
    )?;
    // Allowed again.
    org.record(vec![allowed(113, 100, "cd"), until(114, 100, "ab", 30)]).await?;
    same("all", listed(&store, &org, None).await?, vec![7, 6, 4])?;
    same("in force", listed(&store, &org, Some(at(10))).await?, vec![7, 6])?;
    let found = entries(store.allowed(org.id, id(100), &asked, u64::MAX, at(10)).await?);
    same("what is allowed", found, BTreeSet::from([(fingerprint("ab"), 7), (fingerprint("cd"), 6)]))
}

async fn ended_allowlist_entries_are_found(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![environment_created(100, "prod"), environment_created(101, "test")]).await?;
    let recorded = async |org: &Org, facts| {
        Ok::<_, Failure>(org.record(facts).await?.into_iter().map(|entry| entry.index))
    };
    let theirs = recorded(&other, vec![environment_created(200, "prod"), until(210, 200, "ef", 10)])
        .await?
        .next_back();
    let entries = Vec::from_iter(
        recorded(
            &org,
            vec![
                until(110, 100, "ab", 10),
                until(111, 100, "cd", 10),
                until(112, 101, "ab", 10),
                allowed(113, 101, "cd"),
                until(114, 101, "ef", 30),
            ],
        )
        .await?,
    );
    let withdrawal = recorded(&org, vec![withdrawn(113, 101, "cd", 20)]).await?.next_back();
    let ended = |org: &str, environment: u64, when: i64, entry: Option<u64>| EndedAllowlistEntry {
        at: at(when),
        org: named(org),
        environment: id(environment),
        entry: entry.unwrap_or_default(),
    };
    let ours = |environment, when, place: usize| ended("foo", environment, when, entries.get(place).copied());
    // Of two that ended at the same time the newer one.
    let tenth = vec![ours(100, 10, 1), ours(101, 10, 2), ended("foobar", 200, 10, theirs)];
    let twentieth = vec![ended("foo", 101, 20, withdrawal)];
    for (after, until, limit, expected) in [
        (0, 9, 9, vec![]),
        (0, 10, 9, tenth.clone()),
        // The entries that ended at that time.
        (0, 30, 1, tenth.clone()),
        (0, 20, 9, [tenth, twentieth.clone()].concat()),
        (10, 29, 9, twentieth),
        (20, 30, 9, vec![ours(101, 30, 4)]),
        (30, 99, 9, vec![]),
    ] {
        let found = store.ended_allowlist_entries(at(after), at(until), limit).await?;
        same(&format!("what ended after {after} until {until}"), found, expected)?;
    }
    Ok(())
}
