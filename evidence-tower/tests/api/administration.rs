//! The effects of an operator's administration on the API.

use evidence_core::api_keys::ApiKeyInput;
use evidence_core::auth::{ApiKey, Role};
use evidence_core::fact::read_payload;
use evidence_core::name::OrgName;
use evidence_core::orgs::Member;
use evidence_core::seed::Seed;
use evidence_core::{Error, Result};

use crate::support::prelude::*;

/// Runs a case over every store, with the service behind the API.
fn each_service(case: impl AsyncFn(Evidence, Api)) {
    block_on(every_service(case));
}

async fn every_service(case: impl AsyncFn(Evidence, Api)) {
    for StoreUnderTest { name, store, guard, .. } in stores().await {
        let service = fixture(store, Settings::default()).await;
        let api = Api::new(service.clone(), Mount::Tower, name).await;
        case(service, api).await;
        drop(guard);
    }
}

fn name(name: &str) -> OrgName {
    name.parse().unwrap()
}

async fn set(service: &Evidence, user: &str, role: Role) -> Result<()> {
    service.administration(&name("ops")).set_member(&name("acme"), &name(user), role).await
}

async fn remove(service: &Evidence, user: &str) -> Result<()> {
    service.administration(&name("ops")).remove_member(&name("acme"), &name(user)).await
}

/// The members of acme, as `name role`.
async fn members(service: &Evidence) -> Vec<String> {
    let members = service.administration(&name("ops")).members(&name("acme")).await.unwrap();
    members.iter().map(|Member { user, role }| format!("{} {role}", user.name)).collect()
}

async fn size(service: &Evidence) -> u64 {
    service.store().ledger_head(acme(service.store()).await).await.unwrap().unwrap().size()
}

/// The status and the field that a refusal is about.
fn refusal(outcome: Result<()>) -> (u16, String) {
    let error = outcome.unwrap_err();
    let field = match &error {
        Error::Invalid { fields, .. } => fields.keys().next().cloned().unwrap_or_default(),
        Error::NotFound(missing) => missing.field.to_owned(),
        other => panic!("{other}"),
    };
    (error.status(), field)
}

#[test]
fn a_member_may_what_the_role_says_as_long_as_they_have_it() {
    each_service(async |service, api| {
        let before = size(&service).await;
        let reads = async || api.get("/flows/acme").key(JOHN).await.status.as_u16();
        let writes = async |name: &str| api.put_environment(name, "server").key(JOHN).await.status.as_u16();
        assert_eq!((reads().await, writes("a").await), (403, 403));
        set(&service, "john", Role::Reader).await.unwrap();
        assert_eq!((reads().await, writes("b").await), (200, 403));
        set(&service, "john", Role::Member).await.unwrap();
        set(&service, "john", Role::Member).await.unwrap();
        assert_eq!((reads().await, writes("c").await), (200, 201));
        assert_eq!(members(&service).await, ["jane admin", "john member"]);
        remove(&service, "john").await.unwrap();
        assert_eq!((reads().await, writes("d").await), (403, 403));
        assert_eq!(members(&service).await, ["jane admin"]);
        assert_eq!(refusal(remove(&service, "john").await), (404, "user".to_owned()));

        let entries = service.store().ledger_entries(acme(service.store()).await, before, 99).await.unwrap();
        let recorded: Vec<_> = entries
            .iter()
            .map(|entry| (entry.kind.as_str(), read_payload(&entry.payload).unwrap().1.unwrap()))
            .collect();
        let recorded: Vec<_> = recorded.iter().map(|(kind, by)| (*kind, by.as_str())).collect();
        assert_eq!(
            recorded,
            [
                ("member_added", "ops"),
                ("member_added", "ops"),
                ("environment_created", "john"),
                ("member_removed", "ops"),
            ]
        );
        // A role in another organization does not restore the removed role.
        assert_eq!(api.get("/flows/foobar").key(JOHN).await.status, 200);
    });
}

#[test]
fn an_organization_keeps_an_administrator() {
    each_service(async |service, api| {
        let refused = (400, "user".to_owned());
        let before = size(&service).await;
        assert_eq!(refusal(remove(&service, "jane").await), refused);
        assert_eq!(refusal(set(&service, "jane", Role::Member).await), refused);
        assert_eq!(size(&service).await, before);
        set(&service, "john", Role::Admin).await.unwrap();
        set(&service, "jane", Role::Reader).await.unwrap();
        assert_eq!(refusal(remove(&service, "john").await), refused);
        remove(&service, "jane").await.unwrap();
        assert_eq!(members(&service).await, ["john admin"]);
        assert_eq!(api.get("/flows/acme").key(JANE).await.status, 403);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_administrators_who_leave_at_once_one_stays() {
    every_service(async |service, _| {
        for round in 0..20 {
            // One of the two is there.
            for user in ["jane", "john"] {
                set(&service, user, Role::Admin).await.unwrap();
            }
            let leave = |user: &'static str| {
                let service = service.clone();
                tokio::spawn(async move {
                    match round % 2 {
                        0 => remove(&service, user).await,
                        _ => set(&service, user, Role::Reader).await,
                    }
                })
            };
            let outcomes = [leave("jane"), leave("john")];
            let mut left = 0;
            for outcome in outcomes {
                match outcome.await.unwrap() {
                    Ok(()) => left += 1,
                    refused => assert_eq!(refusal(refused), (400, "user".to_owned())),
                }
            }
            let members = members(&service).await;
            let admins = members.iter().filter(|member| member.ends_with(" admin")).count();
            assert_eq!((left, admins), (1, 1), "round {round}: {members:?}");
        }
    })
    .await;
}

#[test]
fn what_cannot_be_is_told_with_the_field_and_nothing_is_recorded() {
    each_service(async |service, _| {
        let by = service.administration(&name("ops"));
        let named = |text: &str, field: &str| (text.to_owned(), field.to_owned());
        let missing = |field: &str| (404, field.to_owned());
        let invalid = |field: &str| (400, field.to_owned());
        let (acme, jane, nobody) = (name("acme"), name("jane"), name("nobody"));
        let reserved = ["system-attestation-types", "default-org"].map(name);
        for taken in [&jane, &acme, &reserved[0], &reserved[1]] {
            assert_eq!(refusal(by.create_user(taken).await.map(drop)), invalid("name"));
            assert_eq!(refusal(by.create_organization(taken, &jane).await.map(drop)), invalid("name"));
        }
        assert_eq!(refusal(by.create_organization(&nobody, &nobody).await.map(drop)), missing("user"));
        assert_eq!(refusal(by.set_member(&nobody, &jane, Role::Reader).await), missing("org"));
        assert_eq!(refusal(by.set_member(&acme, &nobody, Role::Reader).await), missing("user"));
        assert_eq!(refusal(by.set_member(&jane, &name("john"), Role::Reader).await), invalid("org"));
        assert_eq!(refusal(by.remove_member(&jane, &jane).await), invalid("org"));
        assert_eq!(refusal(by.remove_member(&acme, &name("john")).await), missing("user"));
        assert_eq!(refusal(by.members(&nobody).await.map(drop)), missing("org"));
        assert_eq!(refusal(by.keys(&nobody).await.map(drop)), missing("user"));
        let names = async || {
            let users = by.users(None, 99).await.unwrap().into_iter().map(|user| user.name.to_string());
            let orgs = by.organizations(None, 99).await.unwrap().into_iter().map(|org| org.name.to_string());
            (users.collect::<Vec<_>>().join(" "), orgs.collect::<Vec<_>>().join(" "))
        };
        assert_eq!(names().await, named("jane john", "acme foobar jane john"));
        by.create_user(&name("alice")).await.unwrap();
        by.create_organization(&name("beta"), &name("alice")).await.unwrap();
        assert_eq!(names().await, named("alice jane john", "acme alice beta foobar jane john"));
        let after = by.users(Some(&name("alice")), 1).await.unwrap();
        assert_eq!(after.iter().map(|user| user.name.as_str()).collect::<Vec<_>>(), ["jane"]);
    });
}

#[test]
fn a_users_key_works_until_it_is_revoked() {
    each_service(async |service, api| {
        let by = service.administration(&name("ops"));
        let (jane, john) = (name("jane"), name("john"));
        let input = |expires_at: serde_json::Value| -> ApiKeyInput {
            serde_json::from_value(json!({"description": "laptop", "expires_at": expires_at})).unwrap()
        };
        let past = by.create_key(&john, &input(json!(1))).await;
        assert_eq!(refusal(past.map(drop)), (400, "expires_at".to_owned()));
        let made = by.create_key(&john, &input(json!(NOW.as_micros() / 1_000_000 + 9))).await.unwrap();
        let status = async || api.get("/flows/foobar").key(&made.key).await.status.as_u16();
        assert_eq!(status().await, 200);
        let descriptions = async || {
            let keys = by.keys(&john).await.unwrap().into_iter();
            keys.map(|key| key.description).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(descriptions().await, "seeded laptop");
        let id = made.record.id;
        assert_eq!(refusal(by.revoke_key(&jane, id).await), (404, "key_id".to_owned()));
        assert_eq!(status().await, 200);
        by.revoke_key(&john, id).await.unwrap();
        assert_eq!(status().await, 401);
        assert_eq!(refusal(by.revoke_key(&john, id).await), (404, "key_id".to_owned()));
        assert_eq!(descriptions().await, "seeded");

        let seed =
            Seed { user: john.clone(), orgs: vec![], api_key: Some(ApiKey::imported(made.key.clone())) };
        assert_eq!(refusal(service.seed(&seed).await.map(drop)), (400, "api_key".to_owned()));
    });
}
