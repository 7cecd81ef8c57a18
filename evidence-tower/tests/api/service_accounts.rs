//! Service accounts and their keys (specification, Service account; PATCH /service-accounts/{org}/{name}).

use serde_json::{Value, json};

use crate::harness::{Api, FORBIDDEN, INVALID, PATTERN_SERVICE_ACCOUNT};

const ACCOUNTS: &str = "service-accounts/acme";
const CI: &str = "service-accounts/acme/ci";
const KEYS: &str = "service-accounts/acme/ci/api-keys";
/// An id in form that nothing has.
const NO_ID: &str = "00000000-0000-0000-0000-00000000";

/// The API with a service account `ci` that its administrator created.
async fn with_ci(privilege: &str) -> Api {
    let api = Api::start().await;
    let ci = json!({"name": "ci", "description": "builds", "privilege": privilege});
    api.post(ACCOUNTS, &ci).await.created();
    api
}

/// A caller with this role: a service account of its own.
async fn caller(api: &Api, name: &str, privilege: &str) -> Api {
    api.post(ACCOUNTS, &json!({"name": name, "privilege": privilege})).await.created();
    let keys = format!("{ACCOUNTS}/{name}/api-keys");
    let key = api.post(&keys, &json!({"description": "test"})).await.created();
    api.with_key(key["key"].as_str().unwrap())
}

#[tokio::test]
async fn an_account_has_every_field_of_the_table_in_its_order() {
    let api = Api::start().await;
    let body = json!({"name": "ci", "description": "builds", "privilege": "admin"});
    let account = api.post(ACCOUNTS, &body).await.created();
    let fields: Vec<&str> = account.as_object().unwrap().keys().map(String::as_str).collect();
    let mut table =
        ["name", "display_name", "privilege", "description", "creating_user_id", "created_at", "for_webhook"];
    table.sort_unstable();
    assert_eq!(fields, table);
    assert_eq!(account["name"], "ci");
    assert_eq!(account["display_name"], "ci");
    assert_eq!(account["privilege"], "admin");
    assert_eq!(account["description"], "builds");
    assert!(account["creating_user_id"].is_string());
    assert!(account["created_at"].is_i64(), "{}", account["created_at"]);
    assert_eq!(account["for_webhook"], false);
    assert_eq!(api.get(CI).await.ok(), account);
    assert_eq!(api.get(ACCOUNTS).await.ok(), json!([account]));
}

#[tokio::test]
async fn the_fields_of_a_new_account_have_their_borders() {
    let api = Api::start().await;
    let text = |length: usize| "a".repeat(length);
    let pattern = PATTERN_SERVICE_ACCOUNT;
    let refused = [
        (json!({}), "name", "Field required [input: None]".to_owned()),
        (json!({"name": null}), "name", "Input should be a valid string [input: None]".to_owned()),
        (json!({"name": ""}), "name", format!("String should match pattern '{pattern}' [input: ]")),
        (json!({"name": "a_b"}), "name", format!("String should match pattern '{pattern}' [input: a_b]")),
        (json!({"name": "a\n"}), "name", format!("String should match pattern '{pattern}' [input: a\n]")),
        (
            json!({"name": text(65)}),
            "name",
            format!("String should have at most 64 characters [input: {}]", text(65)),
        ),
        (
            json!({"name": "a", "privilege": "owner"}),
            "privilege",
            "Input should be 'reader', 'snapshotter', 'member' or 'admin' [input: owner]".to_owned(),
        ),
        (
            json!({"name": "a", "privilege": null}),
            "privilege",
            "Input should be 'reader', 'snapshotter', 'member' or 'admin' [input: None]".to_owned(),
        ),
        (json!({"name": "a", "description": 1}), "description", "Input should be a valid string [input: 1]".to_owned()),
    ];
    for (body, field, text) in refused {
        api.post(ACCOUNTS, &body).await.refused(400, INVALID, &[(field, &text)]);
    }
    let long = json!({"name": "a", "description": text(513)});
    api.post(ACCOUNTS, &long).await.refuses_field(400, "description");
    let accepted = [
        json!({"name": "a"}),
        json!({"name": text(64)}),
        json!({"name": "-Z9", "description": text(512)}),
        json!({"name": "b", "description": null, "other": 1}),
    ];
    for body in accepted {
        let account = api.post(ACCOUNTS, &body).await.created();
        assert_eq!(account["privilege"], "reader", "the default of {body}");
        assert_eq!(account["description"], body.get("description").cloned().unwrap_or(Value::Null));
    }
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let api = with_ci("member").await;
    api.post(ACCOUNTS, &json!({"name": "ci"})).await.refused(
        400,
        INVALID,
        &[("name", "A service account named 'ci' already exists")],
    );
}

#[tokio::test]
async fn accounts_exist_in_shared_organizations() {
    let api = Api::start().await;
    api.post("service-accounts/jane", &json!({"name": "ci"})).await.refuses_field(400, "org");
    assert_eq!(api.get("service-accounts/jane").await.ok(), json!([]));
}

#[tokio::test]
async fn accounts_are_listed_by_name() {
    let api = Api::start().await;
    for name in ["b", "a", "C"] {
        api.post(ACCOUNTS, &json!({"name": name})).await.created();
    }
    let accounts = api.get(ACCOUNTS).await.ok();
    let names: Vec<&Value> = accounts.as_array().unwrap().iter().map(|account| &account["name"]).collect();
    assert_eq!(names, ["C", "a", "b"]);
}

#[tokio::test]
async fn patch_changes_what_is_sent_null_clears_the_description_and_nothing_else() {
    let api = with_ci("member").await;
    let steps = [
        (json!({}), json!("builds"), "member"),
        (json!({"description": "tests"}), json!("tests"), "member"),
        (json!({"privilege": "reader"}), json!("tests"), "reader"),
        (json!({"privilege": null}), json!("tests"), "reader"),
        (json!({"description": null}), json!(null), "reader"),
        (json!({"description": "", "privilege": "admin"}), json!(""), "admin"),
        (json!({"other": 1}), json!(""), "admin"),
        (json!({"privilege": "snapshotter"}), json!(""), "snapshotter"),
    ];
    for (body, description, privilege) in steps {
        let account = api.patch(CI, &body).await.ok();
        assert_eq!((&account["description"], account["privilege"].as_str()), (&description, Some(privilege)), "{body}");
        assert_eq!(api.get(CI).await.ok(), account);
    }
}

#[tokio::test]
async fn patch_refuses_what_does_not_fit() {
    let api = with_ci("member").await;
    let privileges = "Input should be 'reader', 'snapshotter', 'member' or 'admin'";
    let refused = [
        (json!(null), "body", "Field required [input: None]".to_owned()),
        (json!([]), "body", "Input should be a valid dictionary [input: []]".to_owned()),
        (json!("x"), "body", "Input should be a valid dictionary [input: x]".to_owned()),
        (json!({"description": 5}), "description", "Input should be a valid string [input: 5]".to_owned()),
        (json!({"privilege": "Admin"}), "privilege", format!("{privileges} [input: Admin]")),
        (json!({"privilege": ""}), "privilege", format!("{privileges} [input: ]")),
    ];
    for (body, field, text) in refused {
        api.patch(CI, &body).await.refused(400, INVALID, &[(field, &text)]);
    }
    let long = json!({"description": "x".repeat(513)});
    api.patch(CI, &long).await.refuses_field(400, "description");
    assert_eq!(api.patch(CI, &json!({"description": "é".repeat(512)})).await.status(), 200);
}

#[tokio::test]
async fn the_path_parameter_has_length_1_to_64_and_its_pattern() {
    let api = Api::start().await;
    let body = json!({});
    for name in ["a", &"a".repeat(64)] {
        api.patch(&format!("{ACCOUNTS}/{name}"), &body).await.refused(
            404,
            "Service account not found",
            &[("name", &format!("no service account named '{name}' in organization 'acme'"))],
        );
    }
    for name in ["a_b", "a%20b", &"a".repeat(65)] {
        api.patch(&format!("{ACCOUNTS}/{name}"), &body).await.refuses_field(400, "name");
    }
}

#[tokio::test]
async fn a_caller_needs_a_credential_an_organization_and_a_role() {
    let api = with_ci("reader").await;
    let body = json!({"description": "x"});
    assert_eq!(api.anonymous().patch(CI, &body).await.message(401), "Unauthorized");
    assert_eq!(api.with_key("junk").patch(CI, &body).await.message(401), "Unauthorized");
    assert_eq!(api.patch("service-accounts/nowhere/ci", &body).await.message(404), "Organization not found");
    assert_eq!(api.outsider().await.patch(CI, &body).await.message(403), FORBIDDEN);
    let reader = caller(&api, "reader", "reader").await;
    assert_eq!(reader.patch(CI, &body).await.message(403), FORBIDDEN);
    assert_eq!(reader.post(ACCOUNTS, &json!({"name": "x"})).await.message(403), FORBIDDEN);
    assert_eq!(reader.get(KEYS).await.message(403), FORBIDDEN);
    assert_eq!(reader.get(CI).await.status(), 200);
}

#[tokio::test]
async fn members_and_snapshotters_manage_what_they_created() {
    let api = with_ci("reader").await;
    for role in ["member", "snapshotter"] {
        let other = caller(&api, role, role).await;
        let body = json!({"description": "x"});
        assert_eq!(other.patch(CI, &body).await.message(403), FORBIDDEN, "{role}");
        assert_eq!(other.post(KEYS, &body).await.message(403), FORBIDDEN, "{role}");
        let own = format!("{ACCOUNTS}/own-{role}");
        other.post(ACCOUNTS, &json!({"name": format!("own-{role}")})).await.created();
        other.patch(&own, &body).await.ok();
        other.post(&format!("{own}/api-keys"), &body).await.created();
        api.patch(&own, &body).await.ok();
    }
}

#[tokio::test]
async fn nobody_grants_more_than_they_have() {
    let api = Api::start().await;
    let member = caller(&api, "member", "member").await;
    let admin = json!({"name": "x", "privilege": "admin"});
    assert_eq!(member.post(ACCOUNTS, &admin).await.message(403), FORBIDDEN);
    member.post(ACCOUNTS, &json!({"name": "x", "privilege": "member"})).await.created();
    let x = format!("{ACCOUNTS}/x");
    assert_eq!(member.patch(&x, &json!({"privilege": "admin"})).await.message(403), FORBIDDEN);
    assert_eq!(member.get(&x).await.ok()["privilege"], "member");
    api.patch(&x, &json!({"privilege": "admin"})).await.ok();
    let key = json!({"description": "a way up"});
    assert_eq!(member.post(&format!("{x}/api-keys"), &key).await.message(403), FORBIDDEN);
}

#[tokio::test]
async fn a_key_is_shown_once_and_works_until_it_is_revoked() {
    let api = with_ci("reader").await;
    let made = api.post(KEYS, &json!({"description": "laptop"})).await.created();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    assert_eq!((&made["description"], &made["expires_at"]), (&json!("laptop"), &json!(0)));
    assert!(made["created_at"].is_number() && key.starts_with("ev_"));

    let mut shown = made.clone();
    shown.as_object_mut().unwrap().remove("key");
    let one = format!("{KEYS}/{id}");
    assert_eq!(api.get(&one).await.ok(), shown);
    assert_eq!(api.get(KEYS).await.ok(), json!([shown]));
    assert_eq!(api.with_key(key).get(CI).await.status(), 200);

    assert_eq!(api.delete(&one).await.ok(), "OK");
    assert_eq!(api.with_key(key).get(CI).await.status(), 401);
    assert_eq!(api.get(KEYS).await.ok(), json!([]));
    assert_eq!(api.get(&one).await.message(404), "API key not found");
    assert_eq!(api.delete(&one).await.message(404), "API key not found");
    assert_eq!(api.post(&format!("{one}/rotate"), &json!({})).await.message(404), "API key not found");
}

#[tokio::test]
async fn the_fields_of_a_key_are_checked() {
    let api = with_ci("reader").await;
    let refused = [
        (json!(null), "body", "Field required [input: None]"),
        (json!({}), "description", "Field required [input: None]"),
        (json!({"description": ""}), "description", "String should have at least 1 character [input: ]"),
        (json!({"description": "x", "expires_at": 1}), "expires_at", "expires_at cannot be in the past"),
        (json!({"description": "x", "expires_at": -1}), "expires_at", "expires_at cannot be in the past"),
        (
            json!({"description": "x", "expires_at": 4_102_444_801_i64}),
            "expires_at",
            "Input should be less than or equal to 4102444800 [input: 4102444801]",
        ),
        (
            json!({"description": "x", "expires_at": "soon"}),
            "expires_at",
            "Input should be a valid integer [input: soon]",
        ),
    ];
    for (body, field, text) in refused {
        api.post(KEYS, &body).await.refused(400, INVALID, &[(field, text)]);
    }
    for expires_at in [json!(null), json!(0)] {
        let body = json!({"description": "x", "expires_at": expires_at, "other": 1});
        assert_eq!(api.post(KEYS, &body).await.created()["expires_at"], 0);
    }
    let last = json!({"description": "x".repeat(256), "expires_at": 4_102_444_800_i64});
    assert_eq!(api.post(KEYS, &last).await.created()["expires_at"], 4_102_444_800_i64);
}

#[tokio::test]
async fn a_rotated_key_works_beside_the_new_one_until_the_grace_period_ends() {
    let api = with_ci("reader").await;
    let old = api.post(KEYS, &json!({"description": "laptop"})).await.created();
    let rotate = format!("{KEYS}/{}/rotate", old["id"].as_str().unwrap());
    for hours in [json!(0), json!(721), json!(null), json!("x")] {
        let body = json!({"grace_period_hours": hours});
        api.post(&rotate, &body).await.refuses_field(400, "grace_period_hours");
    }
    api.post(&rotate, &json!({"expires_at": 1})).await.refuses_field(400, "expires_at");
    api.post(&rotate, &json!(null)).await.refuses_field(400, "body");

    let new = api.post(&rotate, &json!({"grace_period_hours": 1})).await.created();
    assert_eq!((&new["key"], &new["description"]), (&new["api_key"], &json!("laptop")));
    assert_ne!(new["id"], old["id"]);
    let grace = new["grace_period_expires_at"].as_f64().unwrap() - new["created_at"].as_f64().unwrap();
    assert!((grace - 3600.0).abs() < 1.0, "{grace}");
    for key in [&old["key"], &new["key"]] {
        assert_eq!(api.with_key(key.as_str().unwrap()).get(CI).await.status(), 200);
    }
    assert_eq!(api.get(KEYS).await.ok().as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn unknown_accounts_and_keys_are_not_found() {
    let api = with_ci("reader").await;
    let other = "service-accounts/acme/other/api-keys";
    let body = json!({"description": "x"});
    assert_eq!(api.get(other).await.message(404), "Service account not found");
    assert_eq!(api.post(other, &body).await.message(404), "Service account not found");
    for id in [NO_ID, "junk", "%20"] {
        let one = format!("{KEYS}/{id}");
        assert_eq!(api.get(&one).await.message(404), "API key not found", "{id}");
        assert_eq!(api.delete(&one).await.message(404), "API key not found", "{id}");
        assert_eq!(api.post(&format!("{one}/rotate"), &json!({})).await.message(404), "API key not found", "{id}");
    }
}

#[tokio::test]
async fn a_key_of_another_account_is_not_found() {
    let api = with_ci("reader").await;
    api.post(ACCOUNTS, &json!({"name": "other"})).await.created();
    let key = api.post(KEYS, &json!({"description": "x"})).await.created();
    let elsewhere = format!("{ACCOUNTS}/other/api-keys/{}", key["id"].as_str().unwrap());
    assert_eq!(api.delete(&elsewhere).await.message(404), "API key not found");
}
