//! Organizations, and the schema that belongs to none.

use evidence_core::auth::Role;

use crate::intercepting_store::{InterceptingStore, take_queries};
use crate::support::prelude::*;

#[apply(on_every_store)]
async fn an_organization_tells_its_kind_and_when_it_was_made(api: Api) {
    for (name, kind) in [("acme", "shared"), ("jane", "personal")] {
        let org = api.get(&format!("/organizations/{name}")).await.ok();
        assert!(org["created_at"].is_number() && org["last_modified_at"].is_number(), "{org}");
        assert_eq!((&org["name"], &org["kind"]), (&json!(name), &json!(kind)));
        assert_eq!(org["experimental_features_enabled"], false);
        assert_eq!(org.as_object().unwrap().len(), 5);
    }
}

#[apply(on_every_store)]
async fn an_organization_answers_to_its_own(api: Api) {
    assert_eq!(api.get("/organizations/nowhere").await.error_message(404), "Organization not found");
    assert_eq!(api.get("/organizations/%20").await.error_message(404), "Organization not found");
    assert_eq!(api.get("/organizations/acme").anonymous().await.error_message(401), "Unauthorized");
    assert_eq!(api.get("/organizations/acme").key(JOHN).await.error_message(403), FORBIDDEN);
}

#[apply(on_every_store)]
async fn the_schemas_are_for_every_caller_with_a_credential(api: Api) {
    for (path, property) in
        [("/schemas/flow-template/v1", "trail"), ("/schemas/environment-policy/v1", "artifacts")]
    {
        let schema = api.get(path).key(JOHN).await.ok();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert!(schema["$id"].is_string() && schema["properties"][property].is_object());
        assert_eq!(api.get(path).anonymous().await.error_message(401), "Unauthorized");
    }
}

#[apply(with_every_store)]
async fn a_user_has_one_default_organization_as_long_as_they_have_a_role_there(
    api: Api,
    store: Arc<dyn Store>,
) {
    let default = async |key: &str| api.get("/user/default-org").key(key).await.ok();
    assert_eq!(default(JANE).await, json!({"default_org_name": ""}));
    for (org, times) in [("acme", 2), ("jane", 1), ("acme", 1)] {
        for _ in 0..times {
            let put = api.put(&format!("/user/{org}")).bytes("application/json", "null").await;
            put.expect_exactly(200, "OK");
        }
        assert_eq!(default(JANE).await, json!({"default_org_name": org}));
    }
    assert_eq!(default(JOHN).await, json!({"default_org_name": ""}));
    // The response does not show whether the organization exists.
    for org in ["foobar", "non-existing-org-abc123", "no%20name", "john"] {
        let denied = format!("Access denied to /api/v2/user/{}", org.replace("%20", " "));
        assert_eq!(api.put(&format!("/user/{org}")).await.error_message(403), denied);
    }
    assert_eq!(default(JANE).await, json!({"default_org_name": "acme"}));
    // A service account has none.
    assert_eq!(default("admin-key").await, json!({"default_org_name": ""}));
    let refused = api.put("/user/acme").key("admin-key").await;
    assert_eq!(refused.error_message(403), "You don't have permission to access this resource");

    let service = Evidence::new(Arc::clone(&store), Settings::default());
    let host = service.administration(&"host".parse().unwrap());
    let (acme, john) = ("acme".parse().unwrap(), "john".parse().unwrap());
    host.set_member(&acme, &john, Role::Reader).await.unwrap();
    api.put("/user/acme").key(JOHN).await.ok();
    assert_eq!(default(JOHN).await, json!({"default_org_name": "acme"}));
    host.remove_member(&acme, &john).await.unwrap();
    assert_eq!(default(JOHN).await, json!({"default_org_name": ""}));
}

#[apply(with_every_store)]
async fn changes_of_roles_are_told_by_the_ledger(api: Api, store: Arc<dyn Store>) {
    let service = Evidence::new(Arc::clone(&store), Settings::default());
    let host = service.administration(&"Host".parse().unwrap());
    let (acme, john) = ("acme".parse().unwrap(), "john".parse().unwrap());
    host.set_member(&acme, &john, Role::Reader).await.unwrap();
    host.set_member(&acme, &john, Role::Admin).await.unwrap();
    host.remove_member(&acme, &john).await.unwrap();
    let path = "/membership-audit-log/acme";
    let event = |event_type: &str, user: &str, old: Value, new: Value, by: &str| {
        json!({"event_type": event_type, "user": user, "old_role": old, "new_role": new, "changed_by": by,
               "source": "script"})
    };
    let seeded = event("added", "jane", json!(null), json!("admin"), "host");
    let added = event("added", "john", json!(null), json!("reader"), "Host");
    let changed = event("changed", "john", json!("reader"), json!("admin"), "Host");
    let removed = event("removed", "john", json!("admin"), json!(null), "Host");
    let all = [&removed, &changed, &added, &seeded];
    let list = api.get(path).key("reader-key").await;
    let list = list
        .expect(200, json!({"events": all, "page": 1, "per_page": 15, "total_pages": 1, "total_count": 4}));
    let list = list.json();
    assert_eq!(list.as_object().unwrap().len(), 6, "{list}");
    assert_eq!(list["events"][0].as_object().unwrap().len(), 7, "{list}");
    let when = |event: usize| list["events"][event]["when"].as_f64().unwrap();
    let table = [
        ("sort_dir=asc".to_owned(), vec![&seeded, &added, &changed, &removed]),
        ("event_type=changed".to_owned(), vec![&changed]),
        ("search=JANE".to_owned(), vec![&seeded]),
        ("search=hOS".to_owned(), all.to_vec()),
        ("search=nobody".to_owned(), vec![]),
        ("role=admin&role=reader".to_owned(), vec![&changed, &added, &seeded]),
        ("role=member".to_owned(), vec![]),
        ("source=app&source=script".to_owned(), all.to_vec()),
        ("source=scim".to_owned(), vec![]),
        ("sort_by=user&sort_dir=asc".to_owned(), vec![&seeded, &added, &changed, &removed]),
        ("sort_by=role&sort_dir=asc".to_owned(), vec![&removed, &added, &seeded, &changed]),
        ("sort_by=changed_by".to_owned(), vec![&seeded, &removed, &changed, &added]),
        ("sort_by=source".to_owned(), all.to_vec()),
        (format!("from_timestamp={}", when(2)), vec![&removed, &changed, &added]),
        (format!("to_timestamp={}", when(3)), vec![&seeded]),
        ("page=2&per_page=3".to_owned(), vec![&seeded]),
        ("page=9".to_owned(), vec![]),
    ];
    for (query, expected) in table {
        let found = api.get(&format!("{path}?{query}")).await.ok();
        assert_eq!(found["events"].as_array().map(Vec::len), Some(expected.len()), "{query}: {found}");
        api.get(&format!("{path}?{query}")).await.expect(200, json!({"events": expected}));
    }
    let page =
        api.get(&format!("{path}?per_page=1&page=2&role=admin&search=j&from_timestamp=1.5")).await.ok();
    let next = page["_links"]["self"]["href"].as_str().unwrap();
    assert!(next.ends_with("&search=j&from_timestamp=1.500000&sort_by=when&role=admin"), "{next}");
    for (query, field) in [
        ("page=0", "query.page"),
        ("per_page=101", "query.per_page"),
        ("event_type=x", "query.event_type"),
        ("role=x", "query.role[0]"),
        ("source=x", "query.source[0]"),
        ("sort_by=x", "query.sort_by"),
        ("from_timestamp=x", "query.from_timestamp"),
    ] {
        api.get(&format!("{path}?{query}")).await.expect_field_error(400, field);
    }
    assert_eq!(api.get(path).key(JOHN).await.error_message(403), FORBIDDEN);
}

#[tokio::test]
async fn a_page_of_the_changes_of_roles_is_all_that_is_read() {
    let (store, answered) = InterceptingStore::measured(Arc::new(MemoryStore::new()));
    let evidence = fixture(Arc::new(store), Settings::default()).await;
    let host = evidence.administration(&"host".parse().unwrap());
    let (acme, john) = ("acme".parse().unwrap(), "john".parse().unwrap());
    let roles = [Role::Reader, Role::Member, Role::Reader, Role::Admin];
    for role in roles {
        host.set_member(&acme, &john, role).await.unwrap();
    }
    let api = Api::new(evidence.clone(), Mount::Tower, "memory").await;
    let path = "/membership-audit-log/acme?per_page=2";
    let event = |old: Value, new: &str| json!({"user": "john", "old_role": old, "new_role": new});
    let pages = [
        (1, vec![event(json!("reader"), "admin"), event(json!("member"), "reader")]),
        (2, vec![event(json!("reader"), "member"), event(json!(null), "reader")]),
        (4, vec![]),
    ];
    for (page, expected) in pages {
        take_queries(&answered);
        let found = api.get(&format!("{path}&page={page}")).await;
        let read = take_queries(&answered);
        found.expect(200, json!({"events": expected, "total_count": 5, "total_pages": 3}));
        let read = ["membership_page", "membership_entries"].map(|query| read.contains(&query));
        assert_eq!(read, [true, false]);
    }
}
