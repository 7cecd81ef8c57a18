//! Checks of [`evidence_core::orgs::OrgStore`]: organizations, users, memberships, and who holds a key.

use std::sync::Arc;

use evidence_core::auth::{Actor, ActorKind, KeyHash, Role};
use evidence_core::fact::{Fact, Key, Precondition, RecordKind, UnknownFields, Write};
use evidence_core::orgs::{
    ByName, KeyHolder, Member, Membership, OrgKind, OrgRole, Organization, User, UserSettings,
};
use evidence_core::page::{Page, SortDirection};
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount};
use evidence_core::store::{Current, Store, StoreError};

use super::fixtures::{Org, at, flow_created, id, jane, named, organization, request};
use super::service_accounts::{bare, give_key, key};
use super::shared::paged;
use super::{Failure, Outcome, promises, same, same_set};

promises! {
    organizations_and_users_read_back: "Organizations and users are what was recorded; what does not exist is `None`.",
    names_compare_by_bytes: "Names of organizations and users compare by bytes.",
    org_role_tells_the_newest_role: "`org_role` answers the user's present role in this organization alone.",
    users_and_organizations_are_listed_by_name: "`users_by_name` and `organizations_by_name` begin after a name, are so many, and tell where to go on.",
    members_are_listed_by_name: "`members` lists the users who have a role in this organization, by name.",
    a_removed_member_has_no_role: "`member_removed` ends a role, and what rested on the role with it; it can be given anew.",
    users_are_found_by_id: "`users_by_id` finds users of the whole store and passes over unknown ids.",
    changes_of_roles_are_listed: "`membership_entries` answers the ledger's entries about roles from an index on, by index, so many.",
    changes_of_roles_come_in_pages: "`membership_page` answers the same entries by index in either direction: a page, and the total.",
    settings_read_back: "A user's settings are what was recorded last, in the organization that was asked for.",
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
        Fact::MemberAdded { record: Membership { user: user.id, role: Role::Admin }, was: None },
    ];
    store.record(Write { org: id(2), ..shared.write(facts, Vec::new()) }).await?;
    same("the user", store.user("jane").await?, Some(user))?;
    same("a user who is an organization", store.user("foo").await?, None)?;
    let personal = OrgRole { organization: record, role: Some(Role::Admin) };
    same("the personal organization", store.org_role("jane", id(90)).await?, Some(personal))?;
    let other = OrgRole { organization: organization(1, "foo"), role: None };
    same("an organization of others", store.org_role("foo", id(90)).await?, Some(other))?;
    same("no organization", store.org_role("nobody", id(90)).await?, None)
}

async fn names_compare_by_bytes(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![Fact::UserCreated {
        record: User { id: id(90), name: named("jane"), created_at: at(1) },
    }])
    .await?;
    for name in ["Foo", "fo", "foo ", "f%", "fo_", "", "föö", "fooo"] {
        same(name, store.org_role(name, id(90)).await?, None)?;
    }
    for name in ["Jane", "jan", "j%", "jan_", "jäne", ""] {
        same(name, store.user(name).await?, None)?;
    }
    Ok(())
}

async fn org_role_tells_the_newest_role(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
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
        let org_role = store.org_role(org, id(user)).await?.map(|org_role| org_role.role);
        same(&format!("the role of {user} in {org}"), org_role, Some(role))?;
    }
    Ok(())
}

fn user(n: u64, name: &str) -> User {
    User { id: id(n), name: named(name), created_at: at(8) }
}

fn joins(n: u64, role: Role) -> Fact {
    Fact::MemberAdded { record: Membership { user: id(n), role }, was: None }
}

async fn users_and_organizations_are_listed_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = Org::two(&store).await?;
    same("no users", store.users_by_name("", 9).await?, ByName { records: Vec::new(), more: None })?;
    let created = [(92, "b"), (90, "a"), (93, "B"), (91, "a-b")].map(|(n, name)| user(n, name));
    org.record(created.iter().cloned().map(|record| Fact::UserCreated { record }).collect()).await?;
    let all = ["B", "a", "a-b", "b"];
    for (after, limit, expected) in
        [("", 9, &all[..]), ("", 3, &all[..3]), ("a", 9, &all[2..]), ("a", 1, &all[2..3]), ("b", 9, &[])]
    {
        let users = store.users_by_name(after, limit).await?;
        let names: Vec<_> = users.records.iter().map(|user| user.name.as_str()).collect();
        same(&format!("{limit} users after '{after}'"), names, expected.to_vec())?;
        let more = expected.last().filter(|_| expected.len() as u64 == limit).map(|name| (*name).to_owned());
        same(&format!("where {limit} users after '{after}' go on"), users.more, more)?;
    }
    same("a user in the list", store.users_by_name("a-b", 1).await?.records, vec![user(92, "b")])?;
    let both = [organization(1, "foo"), organization(2, "foobar")];
    for (after, limit, records, more) in
        [("", 9, &both[..], None), ("", 1, &both[..1], Some("foo".to_owned())), ("foo", 9, &both[1..], None)]
    {
        let expected = ByName { records: records.to_vec(), more };
        let what = format!("{limit} organizations after '{after}'");
        same(&what, store.organizations_by_name(after, limit).await?, expected)?;
    }
    Ok(())
}

async fn users_are_found_by_id(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let created = |n, name| Fact::UserCreated { record: user(n, name) };
    org.record(vec![created(90, "jane"), created(91, "Zoe")]).await?;
    other.record(vec![created(92, "ann")]).await?;
    let found = store.users_by_id(&[92, 999, 90, 90].map(id)).await?;
    same_set("the users", found, vec![user(90, "jane"), user(92, "ann")])?;
    same("no ids", store.users_by_id(&[]).await?, Vec::new())
}

async fn changes_of_roles_are_listed(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![joins(90, Role::Reader), flow_created(100, "a"), joins(90, Role::Admin)]).await?;
    org.record(vec![
        flow_created(101, "b"),
        Fact::MemberRemoved { user: id(90), was: Role::Admin },
        joins(91, Role::Member),
    ])
    .await?;
    other.record(vec![joins(90, Role::Reader)]).await?;
    let all = store.ledger_entries(org.id, 0, 100).await?;
    let largest = i64::MAX.unsigned_abs();
    for (first, limit, expected) in [
        (0, largest, vec![1, 3, 5, 6]),
        (0, 2, vec![1, 3]),
        (3, 2, vec![3, 5]),
        (4, 9, vec![5, 6]),
        (7, 9, vec![]),
        (0, 0, vec![]),
        (largest, largest, vec![]),
    ] {
        let expected = all.iter().filter(|entry| expected.contains(&entry.index)).cloned().collect();
        let found = store.membership_entries(org.id, first, limit).await?;
        same(&format!("{limit} from {first} on"), found, expected)?;
    }
    let found = store.membership_entries(other.id, 0, 9).await?;
    same("another organization's", found.len(), 1)?;
    same("of no organization", store.membership_entries(id(3), 0, 9).await?, Vec::new())
}

async fn changes_of_roles_come_in_pages(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let again = |role, was| Fact::MemberAdded { record: Membership { user: id(90), role }, was };
    org.record(vec![
        again(Role::Reader, None),
        flow_created(100, "a"),
        again(Role::Admin, Some(Role::Reader)),
    ])
    .await?;
    let removed = Fact::MemberRemoved { user: id(90), was: Role::Admin };
    org.record(vec![flow_created(101, "b"), removed, joins(91, Role::Member)]).await?;
    other.record(vec![joins(90, Role::Reader)]).await?;
    let all = store.ledger_entries(org.id, 0, 100).await?;
    let entry = |index: u64| all.iter().find(|entry| entry.index == index).cloned();
    for (direction, indexes) in [(SortDirection::Asc, [1, 3, 5, 6]), (SortDirection::Desc, [6, 5, 3, 1])] {
        let entries: Vec<_> = indexes.into_iter().filter_map(entry).collect();
        same("the number of entries", entries.len(), indexes.len())?;
        let page = |asked| store.membership_page(org.id, direction, asked);
        paged(&format!("{direction:?}"), &entries, page, |entry| entry).await?;
    }
    let found = store.membership_page(other.id, SortDirection::Desc, request(0, 9)).await?;
    same("another organization's", (found.items.len(), found.total), (1, 1))?;
    let found = store.membership_page(id(3), SortDirection::Desc, request(0, 9)).await?;
    same("of no organization", found, Page { items: Vec::new(), total: 0 })
}

async fn settings_read_back(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let settings = |name: &str| UserSettings {
        user: id(90),
        default_org: named(name),
        unknown: UnknownFields::default(),
    };
    same("none", store.user_settings(org.id, id(90)).await?, None)?;
    for (revision, name) in [(1, "foo"), (2, "foobar")] {
        org.record(vec![Fact::UserSettingsChanged { record: settings(name) }]).await?;
        let expected = Some(Current { revision, record: settings(name) });
        same(name, store.user_settings(org.id, id(90)).await?, expected)?;
    }
    same("another user's", store.user_settings(org.id, id(91)).await?, None)?;
    same("in another organization", store.user_settings(other.id, id(90)).await?, None)
}

async fn members_are_listed_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let created = [(90, "jane"), (91, "Zoe"), (92, "ann")].map(|(n, name)| user(n, name));
    other.record(created.into_iter().map(|record| Fact::UserCreated { record }).collect()).await?;
    same("nobody", store.members(org.id).await?, Vec::new())?;
    // User 93 is unknown.
    org.record(vec![joins(90, Role::Reader), joins(91, Role::Admin), joins(93, Role::Admin)]).await?;
    org.record(vec![joins(92, Role::Member), joins(90, Role::Snapshotter)]).await?;
    other.record(vec![joins(92, Role::Reader)]).await?;
    let member = |n, name, role, revision| Current { revision, record: Member { user: user(n, name), role } };
    let expected = vec![
        member(91, "Zoe", Role::Admin, 2),
        member(92, "ann", Role::Member, 4),
        member(90, "jane", Role::Snapshotter, 5),
    ];
    same("the members", store.members(org.id).await?, expected)?;
    let expected = vec![member(92, "ann", Role::Reader, 4)];
    same("the members of another organization", store.members(other.id).await?, expected)?;
    same("the members of none", store.members(id(3)).await?, Vec::new())
}

async fn a_removed_member_has_no_role(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![Fact::UserCreated { record: user(90, "jane") }, joins(90, Role::Admin)]).await?;
    other.record(vec![joins(90, Role::Reader)]).await?;
    let removed = || vec![Fact::MemberRemoved { user: id(90), was: Role::Admin }];
    let rests_on = |revision| vec![Precondition::Revision(RecordKind::Member, id(90), revision)];
    let unknown = org.attempt(removed(), vec![Precondition::Revision(RecordKind::Member, id(91), 2)]).await;
    same("resting on nobody", matches!(unknown, Err(StoreError::Conflict)), true)?;
    org.attempt(removed(), rests_on(2)).await?;
    let role = async |org: &str| -> Result<_, Failure> {
        Ok(store.org_role(org, id(90)).await?.map(|org_role| org_role.role))
    };
    same("the role", role("foo").await?, Some(None))?;
    same("the members", store.members(org.id).await?, Vec::new())?;
    same("the role elsewhere", role("foobar").await?, Some(Some(Role::Reader)))?;
    let late = org.attempt(removed(), rests_on(2)).await;
    same("resting on a former role", matches!(late, Err(StoreError::Conflict)), true)?;
    let no_member = || vec![Precondition::Vacant(Key::Member(id(90)))];
    org.attempt(vec![joins(90, Role::Reader)], no_member()).await?;
    let second = org.attempt(vec![joins(90, Role::Reader)], no_member()).await;
    same("resting on nobody's being there", matches!(second, Err(StoreError::Conflict)), true)?;
    // In one write as well as in several.
    org.record(vec![
        joins(90, Role::Admin),
        Fact::MemberRemoved { user: id(90), was: Role::Admin },
        joins(90, Role::Member),
    ])
    .await?;
    same("the new role", role("foo").await?, Some(Some(Role::Member)))?;
    let member = Current { revision: 7, record: Member { user: user(90, "jane"), role: Role::Member } };
    same("the new member", store.members(org.id).await?, vec![member])
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
    let ends = async || {
        let holder = store.key_holder(&hash).await?;
        Ok::<_, Failure>(holder.map(|holder| (holder.expires_at, holder.revoked_at)))
    };
    same("an expired key", ends().await?, Some((Some(at(-1000)), None)))?;
    let record = ApiKeyRecord { grace_period_expires_at: Some(at(-1500)), ..record };
    org.record(vec![Fact::ApiKeyRevoked { record: record.clone() }]).await?;
    same("a key after its grace period", ends().await?, Some((Some(at(-1500)), None)))?;
    org.record(vec![Fact::ApiKeyRevoked { record: ApiKeyRecord { revoked_at: Some(at(50)), ..record } }])
        .await?;
    same("a revoked key", ends().await?, Some((Some(at(-1500)), Some(at(50)))))
}
