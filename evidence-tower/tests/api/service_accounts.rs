//! Service accounts and their keys (specification, Service account; PATCH /service-accounts/{org}/{name}).

use crate::support::prelude::*;

const ACCOUNTS: &str = "/service-accounts/acme";
const CI: &str = "/service-accounts/acme/ci";
const KEYS: &str = "/service-accounts/acme/ci/api-keys";
/// An id in form that nothing has.
const NO_ID: &str = "00000000-0000-0000-0000-00000000";

/// Makes a service account `ci` that jane created.
async fn make_ci(api: &Api, privilege: &str) {
    let ci = json!({"name": "ci", "description": "builds", "privilege": privilege});
    api.post(ACCOUNTS).json(ci).await.created();
}

/// Runs a case with that account, over every store.
fn with_ci(privilege: &str, case: impl AsyncFn(Api)) {
    on_every_store(async |api| {
        make_ci(&api, privilege).await;
        case(api).await;
    });
}

#[apply(on_every_store)]
async fn an_account_has_every_field_of_the_table(api: Api) {
    let body = json!({"name": "ci", "description": "builds", "privilege": "admin"});
    let account = api.post(ACCOUNTS).json(&body).await.created();
    let table =
        ["created_at", "creating_user_id", "description", "display_name", "for_webhook", "name", "privilege"];
    assert_eq!(fields(&account), table);
    assert_eq!(account["name"], "ci");
    assert_eq!(account["display_name"], "ci");
    assert_eq!(account["privilege"], "admin");
    assert_eq!(account["description"], "builds");
    assert!(account["creating_user_id"].is_string());
    assert!(account["created_at"].is_i64(), "{}", account["created_at"]);
    assert_eq!(account["for_webhook"], false);
    assert_eq!(api.get(CI).await.ok(), account);
    assert!(api.get(ACCOUNTS).await.ok().as_array().unwrap().contains(&account));
}

#[apply(on_every_store)]
async fn the_fields_of_a_new_account_have_their_borders(api: Api) {
    let text = |length: usize| "a".repeat(length);
    let pattern = r"^[a-zA-Z0-9\-]+$";
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
        (
            json!({"name": "a", "description": 1}),
            "description",
            "Input should be a valid string [input: 1]".to_owned(),
        ),
    ];
    for (body, field, text) in refused {
        api.post(ACCOUNTS).json(&body).await.expect_errors(400, INVALID, &[(field, &text)]);
    }
    let long = json!({"name": "a", "description": text(513)});
    api.post(ACCOUNTS).json(&long).await.expect_field_error(400, "description");
    let accepted = [
        json!({"name": "a"}),
        json!({"name": text(64)}),
        json!({"name": "-Z9", "description": text(512)}),
        json!({"name": "b", "description": null, "other": 1}),
    ];
    for body in accepted {
        let account = api.post(ACCOUNTS).json(&body).await.created();
        assert_eq!(account["privilege"], "reader", "the default of {body}");
        assert_eq!(account["description"], body.get("description").cloned().unwrap_or(Value::Null));
    }
}

#[test]
fn a_name_is_taken_once() {
    with_ci("member", async |api| {
        api.post(ACCOUNTS).json(json!({"name": "ci"})).await.expect_errors(
            400,
            INVALID,
            &[("name", "A service account named 'ci' already exists")],
        );
    });
}

#[test]
fn accounts_exist_in_shared_organizations() {
    on_every_store(async |api| {
        api.post("/service-accounts/jane").json(json!({"name": "ci"})).await.expect_field_error(400, "org");
        assert_eq!(api.get("/service-accounts/jane").await.ok(), json!([]));
    });
}

#[apply(on_every_store)]
async fn accounts_are_listed_by_name(api: Api) {
    let path = "/service-accounts/foobar";
    for name in ["b", "a", "C"] {
        api.post(path).json(json!({"name": name})).key(JOHN).await.created();
    }
    let accounts = api.get(path).key(JOHN).await.ok();
    let names: Vec<&Value> = accounts.as_array().unwrap().iter().map(|account| &account["name"]).collect();
    assert_eq!(names, ["C", "a", "b"]);
}

#[test]
fn patch_changes_what_is_sent_null_clears_the_description_and_nothing_else() {
    with_ci("member", async |api| {
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
            let account = api.patch(CI).json(&body).await.ok();
            assert_eq!(
                (&account["description"], account["privilege"].as_str()),
                (&description, Some(privilege)),
                "{body}"
            );
            assert_eq!(api.get(CI).await.ok(), account);
        }
    });
}

#[test]
fn patch_refuses_what_does_not_fit() {
    with_ci("member", async |api| {
        let privileges = "Input should be 'reader', 'snapshotter', 'member' or 'admin'";
        let refused = [
            (json!(null), "body", "Field required [input: None]".to_owned()),
            (json!([]), "body", "Input should be a valid dictionary [input: []]".to_owned()),
            (json!("x"), "body", "Input should be a valid dictionary [input: x]".to_owned()),
            (
                json!({"description": 5}),
                "description",
                "Input should be a valid string [input: 5]".to_owned(),
            ),
            (json!({"privilege": "Admin"}), "privilege", format!("{privileges} [input: Admin]")),
            (json!({"privilege": ""}), "privilege", format!("{privileges} [input: ]")),
        ];
        for (body, field, text) in refused {
            api.patch(CI).json(&body).await.expect_errors(400, INVALID, &[(field, &text)]);
        }
        let long = json!({"description": "x".repeat(513)});
        api.patch(CI).json(&long).await.expect_field_error(400, "description");
        assert_eq!(api.patch(CI).json(json!({"description": "é".repeat(512)})).await.status.as_u16(), 200);
    });
}

#[test]
fn the_path_parameter_has_length_1_to_64_and_its_pattern() {
    on_every_store(async |api| {
        let body = json!({});
        for name in ["a", &"a".repeat(64)] {
            api.patch(&format!("{ACCOUNTS}/{name}")).json(&body).await.expect_errors(
                404,
                "Service account not found",
                &[("name", &format!("no service account named '{name}' in organization 'acme'"))],
            );
        }
        for name in ["a_b", "a%20b", &"a".repeat(65)] {
            api.patch(&format!("{ACCOUNTS}/{name}")).json(&body).await.expect_field_error(400, "name");
        }
    });
}

#[test]
fn a_caller_needs_a_credential_an_organization_and_a_role() {
    with_ci("reader", async |api| {
        let body = json!({"description": "x"});
        assert_eq!(api.patch(CI).json(&body).anonymous().await.error_message(401), "Unauthorized");
        assert_eq!(api.patch(CI).json(&body).key("junk").await.error_message(401), "Unauthorized");
        assert_eq!(
            api.patch("/service-accounts/nowhere/ci").json(&body).await.error_message(404),
            "Organization not found"
        );
        assert_eq!(api.patch(CI).json(&body).key(JOHN).await.error_message(403), FORBIDDEN);
        let reader = "reader-key";
        assert_eq!(api.patch(CI).json(&body).key(reader).await.error_message(403), FORBIDDEN);
        assert_eq!(
            api.post(ACCOUNTS).json(json!({"name": "x"})).key(reader).await.error_message(403),
            FORBIDDEN
        );
        assert_eq!(
            api.post(KEYS).json(json!({"description": "x"})).key(reader).await.error_message(403),
            FORBIDDEN
        );
        assert_eq!(api.get(KEYS).key(reader).await.ok(), json!([]));
        assert_eq!(api.get(CI).key(reader).await.status.as_u16(), 200);
    });
}

#[test]
fn members_and_snapshotters_manage_what_they_created() {
    with_ci("reader", async |api| {
        for role in ["member", "snapshotter"] {
            let other = &format!("{role}-key");
            let body = json!({"description": "x"});
            assert_eq!(api.patch(CI).json(&body).key(other).await.error_message(403), FORBIDDEN, "{role}");
            assert_eq!(api.post(KEYS).json(&body).key(other).await.error_message(403), FORBIDDEN, "{role}");
            let own = format!("{ACCOUNTS}/own-{role}");
            api.post(ACCOUNTS).json(json!({"name": format!("own-{role}")})).key(other).await.created();
            api.patch(&own).json(&body).key(other).await.ok();
            api.post(&format!("{own}/api-keys")).json(&body).key(other).await.created();
            api.patch(&own).json(&body).await.ok();
        }
    });
}

#[test]
fn nobody_grants_more_than_they_have() {
    on_every_store(async |api| {
        let member = "member-key";
        let admin = json!({"name": "x", "privilege": "admin"});
        assert_eq!(api.post(ACCOUNTS).json(&admin).key(member).await.error_message(403), FORBIDDEN);
        api.post(ACCOUNTS).json(json!({"name": "x", "privilege": "member"})).key(member).await.created();
        let x = format!("{ACCOUNTS}/x");
        assert_eq!(
            api.patch(&x).json(json!({"privilege": "admin"})).key(member).await.error_message(403),
            FORBIDDEN
        );
        assert_eq!(api.get(&x).key(member).await.ok()["privilege"], "member");
        api.patch(&x).json(json!({"privilege": "admin"})).await.ok();
        let key = json!({"description": "a way up"});
        assert_eq!(
            api.post(&format!("{x}/api-keys")).json(&key).key(member).await.error_message(403),
            FORBIDDEN
        );
    });
}

#[test]
fn a_key_is_shown_once_and_works_until_it_is_revoked() {
    with_ci("reader", async |api| {
        let made = api.post(KEYS).json(json!({"description": "laptop"})).await.created();
        let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
        assert_eq!((&made["description"], &made["expires_at"]), (&json!("laptop"), &json!(0)));
        assert!(made["created_at"].is_number() && key.starts_with("ev_"));

        let mut shown = made.clone();
        shown.as_object_mut().unwrap().remove("key");
        let one = format!("{KEYS}/{id}");
        assert_eq!(api.get(&one).await.ok(), shown);
        assert_eq!(api.get(KEYS).await.ok(), json!([shown]));
        assert_eq!(api.get(CI).key(key).await.status.as_u16(), 200);

        assert_eq!(api.delete(&one).await.ok(), "OK");
        assert_eq!(api.get(CI).key(key).await.status.as_u16(), 401);
        assert_eq!(api.get(KEYS).await.ok(), json!([]));
        assert_eq!(api.get(&one).await.error_message(404), "API key not found");
        assert_eq!(api.delete(&one).await.error_message(404), "API key not found");
        assert_eq!(
            api.post(&format!("{one}/rotate")).json(json!({})).await.error_message(404),
            "API key not found"
        );
    });
}

#[test]
fn the_fields_of_a_key_are_checked() {
    with_ci("reader", async |api| {
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
            api.post(KEYS).json(&body).await.expect_errors(400, INVALID, &[(field, text)]);
        }
        for expires_at in [json!(null), json!(0)] {
            let body = json!({"description": "x", "expires_at": expires_at, "other": 1});
            assert_eq!(api.post(KEYS).json(&body).await.created()["expires_at"], 0);
        }
        let last = json!({"description": "x".repeat(256), "expires_at": 4_102_444_800_i64});
        assert_eq!(api.post(KEYS).json(&last).await.created()["expires_at"], 4_102_444_800_i64);
    });
}

#[test]
fn a_rotated_key_works_beside_the_new_one_until_the_grace_period_ends() {
    with_ci("reader", async |api| {
        let old = api.post(KEYS).json(json!({"description": "laptop"})).await.created();
        let rotate = format!("{KEYS}/{}/rotate", old["id"].as_str().unwrap());
        for hours in [json!(0), json!(721), json!(null), json!("x")] {
            let body = json!({"grace_period_hours": hours});
            api.post(&rotate).json(&body).await.expect_field_error(400, "grace_period_hours");
        }
        api.post(&rotate).json(json!({"expires_at": 1})).await.expect_field_error(400, "expires_at");
        api.post(&rotate).json(json!(null)).await.expect_field_error(400, "body");

        let new = api.post(&rotate).json(json!({"grace_period_hours": 1})).await.created();
        assert_eq!((&new["key"], &new["description"]), (&new["api_key"], &json!("laptop")));
        assert_ne!(new["id"], old["id"]);
        let grace = new["grace_period_expires_at"].as_f64().unwrap() - new["created_at"].as_f64().unwrap();
        assert!((grace - 3600.0).abs() < 1.0, "{grace}");
        for key in [&old["key"], &new["key"]] {
            assert_eq!(api.get(CI).key(key.as_str().unwrap()).await.status.as_u16(), 200);
        }
        assert_eq!(api.get(KEYS).await.ok().as_array().unwrap().len(), 2);
    });
}

#[test]
fn unknown_accounts_and_keys_are_not_found() {
    with_ci("reader", async |api| {
        let other = "/service-accounts/acme/other/api-keys";
        let body = json!({"description": "x"});
        assert_eq!(api.get(other).await.error_message(404), "Service account not found");
        assert_eq!(api.post(other).json(&body).await.error_message(404), "Service account not found");
        for id in [NO_ID, "junk", "%20"] {
            let one = format!("{KEYS}/{id}");
            assert_eq!(api.get(&one).await.error_message(404), "API key not found", "{id}");
            assert_eq!(api.delete(&one).await.error_message(404), "API key not found", "{id}");
            assert_eq!(
                api.post(&format!("{one}/rotate")).json(json!({})).await.error_message(404),
                "API key not found",
                "{id}"
            );
        }
    });
}

#[test]
fn a_key_of_another_account_is_not_found() {
    with_ci("reader", async |api| {
        api.post(ACCOUNTS).json(json!({"name": "other"})).await.created();
        let key = api.post(KEYS).json(json!({"description": "x"})).await.created();
        let elsewhere = format!("{ACCOUNTS}/other/api-keys/{}", key["id"].as_str().unwrap());
        assert_eq!(api.delete(&elsewhere).await.error_message(404), "API key not found");
    });
}

#[test]
fn the_keys_of_a_deleted_account_stop_working_and_its_name_is_free() {
    on_every_store(async |api| {
        let account = json!({"name": "ci", "privilege": "member"});
        let create = async || {
            api.post("/service-accounts/acme").json(&account).await.created();
            let key = api.post("/service-accounts/acme/ci/api-keys").json(json!({"description": "x"})).await;
            key.created()["key"].as_str().unwrap().to_owned()
        };
        let key = create().await;
        api.put("/flows/acme/template_file")
            .key(&key)
            .data_json(json!({"name": "web", "description": ""}))
            .await
            .created();
        let path = "/service-accounts/acme/ci";
        // The account itself may not: its own creator, and administrators, may.
        assert_eq!(api.delete(path).key(&key).await.status, 403);
        api.delete(path).bytes("application/json", "null").await.expect_exactly(200, "OK");
        assert_eq!(api.get("/flows/acme").key(&key).await.status, 401);
        for gone in [path.to_owned(), format!("{path}/api-keys")] {
            assert_eq!(api.get(&gone).await.error_message(404), "Service account not found");
        }
        assert_eq!(api.delete(path).await.error_message(404), "Service account not found");
        let listed = api.get("/service-accounts/acme").await.ok();
        assert!(listed.as_array().unwrap().iter().all(|one| one["name"] != "ci"), "{listed}");

        // Another account of the name has none of its keys.
        let other = create().await;
        assert_eq!(api.get("/flows/acme").key(&key).await.status, 401);
        api.get("/flows/acme").key(&other).await.ok();
        let keys = api.get(&format!("{path}/api-keys")).await.ok();
        assert_eq!(keys.as_array().map(Vec::len), Some(1));
    });
}
