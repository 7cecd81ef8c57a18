//! Checks of [`evidence_core::service_accounts::ServiceAccountStore`].

use std::sync::Arc;

use evidence_core::auth::{Actor, ActorKind, KeyHash, Role};
use evidence_core::fact::{Fact, Key, Precondition, Secrets, UnknownFields, Write};
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount};
use evidence_core::store::{Current, Store};
use evidence_core::time::Timestamp;

use super::fixtures::{Org, at, awkward, id, jane, named, robot};
use super::{Failure, Outcome, promises, same};

promises! {
    service_accounts_read_back: "Service accounts are what was recorded last, absent options too.",
    service_accounts_are_listed_by_name: "`service_accounts` is ordered by name, and shows one organization's.",
    deleted_accounts_are_gone: "A deleted service account is found by no name, is in no list and holds no key; its name is free.",
    keys_read_back: "API keys are what was recorded last, absent options too.",
    keys_are_listed_oldest_first: "`api_keys` lists this owner's keys that work, oldest first, and `api_key_count` counts them.",
}

pub(super) fn bare(n: u64, name: &str) -> ServiceAccount {
    ServiceAccount {
        id: id(n),
        name: named(name),
        description: None,
        privilege: Role::Reader,
        created_by: jane(),
        created_at: at(2),
        unknown: UnknownFields::default(),
    }
}

pub(super) fn key(n: u64, owner: Actor, created_at: Timestamp) -> ApiKeyRecord {
    ApiKeyRecord {
        id: id(n),
        owner,
        description: String::new(),
        created_at,
        expires_at: None,
        grace_period_expires_at: None,
        revoked_at: None,
        hash_sha256: String::new(),
        unknown: UnknownFields::default(),
    }
}

/// Records a key that has this hash, and answers its record.
pub(super) async fn give_key(
    org: &Org,
    record: ApiKeyRecord,
    hash: &KeyHash,
) -> Result<ApiKeyRecord, Failure> {
    let record = ApiKeyRecord { hash_sha256: hash.fingerprint(), ..record };
    let secrets = Secrets { key_hashes: vec![(record.id, hash.clone())], ..Secrets::default() };
    let facts = vec![Fact::ApiKeyCreated { record: record.clone() }];
    org.store.record(Write { secrets, ..org.write(facts, Vec::new()) }).await?;
    Ok(record)
}

async fn service_accounts_read_back(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let full = ServiceAccount {
        description: Some(awkward()),
        privilege: Role::Snapshotter,
        created_by: robot(),
        ..bare(100, "robot")
    };
    org.record(vec![Fact::ServiceAccountCreated { record: full.clone() }]).await?;
    let found = store.service_account(org.id, "robot").await?;
    same("a full one", found, Some(Current { revision: 1, record: full }))?;
    for description in [Some(String::new()), None] {
        let record = ServiceAccount { description, ..bare(100, "robot") };
        org.record(vec![Fact::ServiceAccountUpdated { record: record.clone() }]).await?;
        let found = store.service_account(org.id, "robot").await?.map(|found| found.record);
        same("an updated one", found, Some(record))?;
    }
    for (org, name) in [(&other, "robot"), (&org, "Robot"), (&org, "robo"), (&org, "%"), (&org, "rob_t")] {
        same(name, store.service_account(org.id, name).await?, None)?;
    }
    Ok(())
}

async fn service_accounts_are_listed_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let created = |n, name| Fact::ServiceAccountCreated { record: bare(n, name) };
    same("none", store.service_accounts(org.id).await?, Vec::new())?;
    org.record(vec![created(100, "b"), created(101, "a"), created(102, "B"), created(103, "a-b")]).await?;
    other.record(vec![created(104, "aa")]).await?;
    let expected = vec![bare(102, "B"), bare(101, "a"), bare(103, "a-b"), bare(100, "b")];
    same("the accounts", store.service_accounts(org.id).await?, expected)
}

async fn deleted_accounts_are_gone(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let created = |n, name| Fact::ServiceAccountCreated { record: bare(n, name) };
    let (hash, kept) = (KeyHash::of("secret"), KeyHash::of("kept"));
    for (org, n, hash) in [(&org, 100, &hash), (&other, 200, &kept)] {
        org.record(vec![created(n, "a"), created(n + 1, "b")]).await?;
        let owner = Actor { id: id(n), name: "a".to_owned(), kind: ActorKind::ServiceAccount };
        give_key(org, key(n + 10, owner, at(1)), hash).await?;
    }
    let holder = async |hash| Ok::<_, Failure>(store.key_holder(hash).await?.map(|holder| holder.actor.id));
    same("the key", holder(&hash).await?, Some(id(100)))?;
    org.record(vec![Fact::ServiceAccountDeleted { record: bare(100, "a") }]).await?;
    same("the key of a deleted account", holder(&hash).await?, None)?;
    same("another's key", holder(&kept).await?, Some(id(200)))?;
    same("the account", store.service_account(org.id, "a").await?, None)?;
    same("the list", store.service_accounts(org.id).await?, vec![bare(101, "b")])?;
    let vacant = vec![Precondition::Vacant(Key::ServiceAccount(named("a")))];
    org.attempt(vec![created(102, "a")], vacant).await?;
    same("the list", store.service_accounts(org.id).await?, vec![bare(102, "a"), bare(101, "b")])?;
    same("the key of the name", holder(&hash).await?, None)
}

async fn keys_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let record = give_key(&org, key(100, robot(), at(1)), &KeyHash::of("secret")).await?;
    let bare = vec![Current { revision: 1, record: record.clone() }];
    same("a bare one", store.api_keys(org.id, robot().id, at(1)).await?, bare)?;
    let (expires_at, grace_period_expires_at) = (Some(at(5)), Some(at(4)));
    let record = ApiKeyRecord { description: awkward(), expires_at, grace_period_expires_at, ..record };
    org.record(vec![Fact::ApiKeyRevoked { record: record.clone() }]).await?;
    let full = Current { revision: 2, record: record.clone() };
    same("a full one", store.api_keys(org.id, robot().id, at(3)).await?, vec![full])?;
    same("after its grace period", store.api_keys(org.id, robot().id, at(4)).await?, Vec::new())?;
    same("how many work then", store.api_key_count(org.id, robot().id, at(4)).await?, 0)?;
    let revoked = ApiKeyRecord { revoked_at: Some(at(3)), ..record };
    org.record(vec![Fact::ApiKeyRevoked { record: revoked.clone() }]).await?;
    same("one that was revoked later", store.api_keys(org.id, robot().id, at(1)).await?, Vec::new())?;
    same("how many work", store.api_key_count(org.id, robot().id, at(1)).await?, 0)?;
    let revoked = Current { revision: 3, record: revoked };
    same("by its id", store.api_key(org.id, id(100)).await?, Some(revoked))?;
    same("by another id", store.api_key(org.id, id(101)).await?, None)
}

async fn keys_are_listed_oldest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let stranger = Actor { id: id(92), name: "robot".to_owned(), kind: ActorKind::ServiceAccount };
    let keys = [(103, 3, robot()), (102, 1, robot()), (101, 2, robot()), (104, 1, stranger)];
    for (n, created, owner) in keys {
        let record = ApiKeyRecord { expires_at: Some(at(10 * created)), ..key(n, owner, at(created)) };
        give_key(&org, record, &KeyHash::of(&n.to_string())).await?;
    }
    give_key(&other, key(200, robot(), at(0)), &KeyHash::of("200")).await?;
    let ids =
        |keys: Vec<Current<ApiKeyRecord>>| keys.into_iter().map(|key| key.record.id).collect::<Vec<_>>();
    same("the keys", ids(store.api_keys(org.id, id(91), at(9)).await?), [102, 101, 103].map(id).to_vec())?;
    same("those that work yet", ids(store.api_keys(org.id, id(91), at(20)).await?), vec![id(103)])?;
    same("another's keys", ids(store.api_keys(org.id, id(92), at(9)).await?), vec![id(104)])?;
    same("nobody's keys", ids(store.api_keys(org.id, id(93), at(9)).await?), Vec::new())?;
    let count = async |n, seconds| store.api_key_count(org.id, id(n), at(seconds)).await;
    same("how many keys", count(91, 9).await?, 3)?;
    same("how many work yet", count(91, 20).await?, 1)?;
    same("how many of another's", count(92, 9).await?, 1)?;
    same("how many of nobody's", count(93, 9).await?, 0)?;
    same("another organization's key", store.api_key(org.id, id(200)).await?, None)
}
