//! Checks of [`crate::orgs::OrgStore`]: organizations, users, memberships, and who holds a key.

use std::sync::Arc;

use crate::auth::{Actor, ActorKind, KeyHash, Role};
use crate::fact::{Fact, Write};
use crate::orgs::{KeyHolder, Membership, OrgKind, Organization, Standing, User};
use crate::service_accounts::{ApiKeyRecord, ServiceAccount};
use crate::store::Store;

use super::fixtures::{Org, at, id, jane, named, organization};
use super::service_accounts::{bare, give_key, key};
use super::{Outcome, promises, same};

promises! {
    organizations_and_users_read_back: "Organizations and users are what was recorded; what does not exist is `None`.",
    names_compare_by_bytes: "Names of organizations and users compare by bytes.",
    standing_tells_the_newest_role: "`standing` answers the user's present role in this organization alone.",
    a_users_key_is_found: "`key_holder` finds a user's key by its hash.",
    a_service_accounts_role_is_the_present_one: "A service account's key is bound to its organization and present role.",
    ended_keys_are_found: "`key_holder` finds expired and revoked keys too.",
}

async fn organizations_and_users_read_back(store: Arc<dyn Store>) -> Outcome {
    let shared = Org::create(&store, 1, "foo").await?;
    let record = Organization { kind: OrgKind::Personal, ..organization(2, "jane") };
    let user = User { id: id(90), name: named("jane"), created_at: at(8) };
    let facts = vec![
        Fact::OrganizationCreated { record: record.clone() },
        Fact::UserCreated { record: user.clone() },
        Fact::MemberAdded { record: Membership { user: user.id, role: Role::Admin } },
    ];
    store.record(Write { org: id(2), ..shared.write(facts, Vec::new()) }).await?;
    same("the user", store.user("jane").await?, Some(user))?;
    same("a user who is an organization", store.user("foo").await?, None)?;
    let personal = Standing { organization: record, role: Some(Role::Admin) };
    same("the personal organization", store.standing("jane", id(90)).await?, Some(personal))?;
    let other = Standing { organization: organization(1, "foo"), role: None };
    same("an organization of others", store.standing("foo", id(90)).await?, Some(other))?;
    same("no organization", store.standing("nobody", id(90)).await?, None)
}

async fn names_compare_by_bytes(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![Fact::UserCreated {
        record: User { id: id(90), name: named("jane"), created_at: at(1) },
    }])
    .await?;
    for name in ["Foo", "fo", "foo ", "f%", "fo_", "", "föö", "fooo"] {
        same(name, store.standing(name, id(90)).await?, None)?;
    }
    for name in ["Jane", "jan", "j%", "jan_", "jäne", ""] {
        same(name, store.user(name).await?, None)?;
    }
    Ok(())
}

async fn standing_tells_the_newest_role(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let joins = |n, role| Fact::MemberAdded { record: Membership { user: id(n), role } };
    org.record(vec![joins(90, Role::Reader), joins(92, Role::Admin)]).await?;
    other.record(vec![joins(90, Role::Snapshotter)]).await?;
    org.record(vec![joins(90, Role::Member)]).await?;
    for (org, user, role) in [
        ("foo", 90, Some(Role::Member)),
        ("foo", 92, Some(Role::Admin)),
        ("foo", 93, None),
        ("foobar", 90, Some(Role::Snapshotter)),
        ("foobar", 92, None),
    ] {
        let standing = store.standing(org, id(user)).await?.map(|standing| standing.role);
        same(&format!("the role of {user} in {org}"), standing, Some(role))?;
    }
    Ok(())
}

async fn a_users_key_is_found(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let (hash, other) = (KeyHash::of("secret"), KeyHash::of("another"));
    same("no key", store.key_holder(&hash).await?, None)?;
    give_key(&org, key(100, jane(), at(1)), &hash).await?;
    give_key(&org, key(101, Actor { id: id(92), ..jane() }, at(1)), &other).await?;
    let holder =
        KeyHolder { hash: hash.clone(), actor: jane(), bound_to: None, expires_at: None, revoked_at: None };
    same("the holder", store.key_holder(&hash).await?, Some(holder))?;
    let holder = store.key_holder(&other).await?.map(|holder| (holder.actor.id, holder.hash));
    same("the holder of another key", holder, Some((id(92), other)))?;
    same("an unknown hash", store.key_holder(&KeyHash::of("guess")).await?, None)
}

async fn a_service_accounts_role_is_the_present_one(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let (hash, second) = (KeyHash::of("secret"), KeyHash::of("another"));
    let account = |n, privilege| ServiceAccount { privilege, ..bare(n, "robot") };
    let owner = |n| Actor { id: id(n), name: "robot".to_owned(), kind: ActorKind::ServiceAccount };
    for (org, n, hash) in [(&org, 100, &hash), (&other, 200, &second)] {
        org.record(vec![Fact::ServiceAccountCreated { record: account(n, Role::Reader) }]).await?;
        give_key(org, key(n + 1, owner(n), at(1)), hash).await?;
    }
    org.record(vec![Fact::ServiceAccountUpdated { record: account(100, Role::Admin) }]).await?;
    for (hash, n, bound_to) in [(&hash, 100, (org.id, Role::Admin)), (&second, 200, (other.id, Role::Reader))]
    {
        let holder = store.key_holder(hash).await?.map(|holder| (holder.actor, holder.bound_to));
        same("the holder", holder, Some((owner(n), Some(bound_to))))?;
    }
    Ok(())
}

async fn ended_keys_are_found(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let hash = KeyHash::of("secret");
    let record = ApiKeyRecord { expires_at: Some(at(-1000)), ..key(100, jane(), at(-2000)) };
    let record = give_key(&org, record, &hash).await?;
    let ends = store.key_holder(&hash).await?.map(|holder| (holder.expires_at, holder.revoked_at));
    same("an expired key", ends, Some((Some(at(-1000)), None)))?;
    org.record(vec![Fact::ApiKeyRevoked { record: ApiKeyRecord { revoked_at: Some(at(50)), ..record } }])
        .await?;
    let ends = store.key_holder(&hash).await?.map(|holder| (holder.expires_at, holder.revoked_at));
    same("a revoked key", ends, Some((Some(at(-1000)), Some(at(50)))))
}
