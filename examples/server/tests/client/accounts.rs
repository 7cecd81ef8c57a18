//! The service, and access to it: the default organization of a user, service accounts and their keys.

use serde_json::json;

use crate::fixture::Fixture;

pub(crate) fn the_server_is_found_and_a_stranger_is_refused(fixture: &mut Fixture) {
    fixture.prints(&["status"], "OK");
    fixture.prints(&["assert", "status"], "OK");
    fixture.server.key = "ev_wrong".to_owned();
    fixture.refuses(&["list", "flows"], "Unauthorized");
}

pub(crate) fn a_user_has_a_default_organization(fixture: &mut Fixture) {
    let get = ["get", "default-org"];
    fixture.prints(&get, "Default user organization: (none set)");
    assert_eq!(fixture.reads(&get), json!({"default_org_name": ""}));
    fixture.says(&["update", "default-org", "acme"], "default organization is set to: acme");
    fixture.prints(&get, "Default user organization: acme");
    assert_eq!(fixture.reads(&get), json!({"default_org_name": "acme"}));
    let elsewhere = ["update", "default-org", "non-existing-org-abc123"];
    fixture.refuses(&elsewhere, "Access denied to /api/v2/user/non-existing-org-abc123");
}

/// There is nothing to turn on or off. The client reports this without a retry.
pub(crate) fn nothing_is_experimental(fixture: &mut Fixture) {
    fixture.refuses(&["enable", "beta"], "Not found");
    fixture.refuses(&["disable", "beta"], "Not found");
}

pub(crate) fn service_accounts(fixture: &mut Fixture) {
    let (get, list) = (["get", "service-account", "ci"], ["list", "service-accounts"]);
    fixture.prints(&list, "No service accounts were found.");
    assert_eq!(fixture.reads(&list), json!([]));
    let create =
        ["create", "service-account", "ci", "--privilege", "reader", "--description", "The pipeline"];
    fixture.says(&create, "service account ci was created");
    fixture.refuses(&create, "Input payload validation failed: map[name:…");
    fixture.prints(&get, "Name: ci\nDescription: The pipeline\nPrivilege: reader\nCreated At: THEN");
    let update = ["update", "service-account", "ci", "--privilege", "member"];
    fixture.says(&update, "service account ci was updated");
    let account = fixture.reads(&get);
    assert_eq!(account["privilege"], "member");
    assert_eq!(account["description"], "The pipeline");
    fixture.prints(&list, "NAME DESCRIPTION PRIVILEGE CREATED\nci The pipeline member THEN");
    assert_eq!(fixture.reads(&list), json!([account]));
    let illegal = ["create", "service-account", "b d", "--privilege", "reader"];
    let pattern = r"String should match pattern '^[a-zA-Z0-9\-]+$' [input: b d]";
    fixture.refuses(&illegal, &format!("Input payload validation failed: map[name:{pattern}]"));

    let delete = ["delete", "service-account", "ci", "--assume-yes"];
    fixture.says(&delete, "service account ci was deleted!");
    fixture.refuses(&delete, "failed to delete service account: Service account not found");
    fixture.refuses(&get, "Service account not found");
    fixture.refuses(&update, "Service account not found");
    fixture.refuses(&["list", "api-keys", "--service-account", "ci"], "Service account not found");
}

pub(crate) fn keys_of_service_accounts(fixture: &mut Fixture) {
    fixture.does(&["create", "service-account", "ci", "--privilege", "member"]);
    let of = ["--service-account", "ci"];
    let create = [&["create", "api-key", "--description", "for CI"], &of[..]].concat();
    let made = fixture.reads(&create);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    assert_eq!((&made["description"], &made["expires_at"]), (&json!("for CI"), &json!(0)));
    let get = [&["get", "api-key", id], &of[..]].concat();
    fixture.prints(&get, "ID: ID\nDescription: for CI\nCreated At: THEN\nExpires At: N/A\nLast Used: N/A");
    assert_eq!(fixture.reads(&get)["id"], id);
    let list = [&["list", "api-keys"], &of[..]].concat();
    fixture.prints(&list, "ID DESCRIPTION CREATED EXPIRES LAST USED\nID for CI THEN N/A N/A");
    assert_eq!(fixture.reads(&list)[0]["id"], id);

    let ends = [&create[..], &["--expires-at", "2030-01-01"]].concat();
    fixture.says(&ends, "Key:");
    assert_eq!(fixture.reads(&list)[1]["expires_at"], 1_893_456_000);

    let rotated = fixture.reads(&[&["rotate", "api-key", id], &of[..]].concat());
    let next = rotated[0]["key"].as_str().unwrap();
    assert_ne!(next, key);
    assert!(rotated[0]["grace_period_expires_at"].is_number(), "{rotated}");
    let delete = |id| [&["delete", "api-key", id, "--assume-yes"], &of[..]].concat();
    let said = format!("API key {id} for service account ci was deleted!");
    let (administrator, next) = (fixture.server.key.clone(), next.to_owned());
    // Both keys work until the old one is deleted.
    for works in [key, &next] {
        fixture.server.key = works.to_owned();
        fixture.prints(&["list", "flows"], "No flows were found.");
    }
    fixture.server.key = administrator;
    fixture.says(&delete(id), &said);
    fixture.refuses(&delete("none"), "failed to delete API key: API key not found");
    fixture.refuses(&[&["get", "api-key", "none"], &of[..]].concat(), "API key not found");
    fixture.server.key = next;
    fixture.prints(&["list", "flows"], "No flows were found.");
    fixture.server.key = key.to_owned();
    fixture.refuses(&["list", "flows"], "Unauthorized");
}
