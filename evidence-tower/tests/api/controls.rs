//! Controls: created once, found by their identifiers, changed version by version.

use evidence_core::environments::Environment;
use evidence_core::id::Id;
use evidence_core::policies::{Policy, PolicyVersion};
use evidence_core::{Current, Fact};

use crate::intercepting_store::{InterceptingStore, take_queries};
use crate::support::prelude::*;
use crate::unreadable::inject;

const LIST: &str = "/controls/acme";
const REVIEW: &str = "/controls/acme/SDLC-4";

async fn given(api: &Api, identifier: &str, name: &str) {
    let control = json!({"identifier": identifier, "name": name});
    api.post(LIST).json(control).await.created();
}

async fn given_review(api: &Api) -> Value {
    let control = json!({
        "identifier": "SDLC-4", "name": "Code review", "description": "Somebody else reads it",
        "links": {"the.policy": "https://wiki.example.com/review"},
    });
    api.post(LIST).json(control).await.created()
}

/// One field of each item of a list.
fn each<'a>(list: &'a Value, items: &str, field: &str) -> Vec<&'a str> {
    list[items].as_array().unwrap().iter().map(|item| item[field].as_str().unwrap()).collect()
}

#[apply(on_every_store)]
async fn a_control_is_created_and_read_back(api: Api) {
    let created = given_review(&api).await;
    let told = [
        "archived",
        "created_at",
        "created_by",
        "description",
        "identifier",
        "links",
        "name",
        "policies_referencing",
        "tags",
        "version",
    ];
    assert_eq!(fields(&created), told);
    let expected = json!({
        "identifier": "SDLC-4", "name": "Code review", "description": "Somebody else reads it", "version": 1,
        "links": {"the.policy": "https://wiki.example.com/review"}, "created_by": "jane", "tags": {},
        "archived": false, "policies_referencing": [],
    });
    let found = api.get(REVIEW).await.expect(200, expected).ok();
    assert_eq!(found, created);
    assert!(found["created_at"].is_number(), "{found}");

    let bare = json!({"identifier": "~.-_", "name": "", "description": null, "links": null});
    let bare = api.post(LIST).json(bare).await.created();
    assert_eq!((&bare["description"], &bare["links"]), (&json!(""), &json!({})));
    assert_eq!(api.get("/controls/acme/~.-_").await.ok(), bare);
    assert_eq!(api.get("/controls/acme/%7E%2E-_").await.ok(), bare);
}

#[apply(on_every_store)]
async fn an_identifier_is_taken_once(api: Api) {
    let created = given_review(&api).await;
    let again = json!({"identifier": "SDLC-4", "name": "Another"});
    let text = "organization 'acme' has a control with identifier 'SDLC-4'";
    let refused = api.post(LIST).json(&again).await;
    refused.expect_errors(409, "A control with this identifier already exists", &[("identifier", text)]);
    assert_eq!(api.get(REVIEW).await.ok(), created);
    given(&api, "sdlc-4", "Another").await;
    api.post("/controls/foobar").key(JOHN).json(&again).await.created();
    assert_eq!(api.get(REVIEW).await.ok(), created);
}

#[apply(on_every_store)]
async fn what_breaks_the_rules_is_refused_and_nothing_is_created(api: Api) {
    let pattern = r"String should match pattern '^[a-zA-Z0-9\-._~]+$' [input: bad identifier]";
    let table = [
        (json!(null), "body", "Field required [input: None]"),
        (json!({"name": "x"}), "identifier", "Field required [input: None]"),
        (json!({"identifier": "c"}), "name", "Field required [input: None]"),
        (json!({"identifier": "bad identifier", "name": "x"}), "identifier", pattern),
        (json!({"identifier": "tags", "name": "x"}), "identifier", "'tags' is a reserved word of the API"),
        (json!({"identifier": "..", "name": "x"}), "identifier", "'..' is a reserved word of the API"),
        (
            json!({"identifier": "c", "name": "x", "version": 1}),
            "version",
            "Extra inputs are not permitted [input: 1]",
        ),
        (
            json!({"identifier": "c", "name": "x", "links": ["a"]}),
            "links",
            "Input should be a valid dictionary [input: [\"a\"]]",
        ),
        (
            json!({"identifier": "c", "name": "x", "links": {"a.b": 1}}),
            "links.a.b",
            "Input should be a valid string [input: 1]",
        ),
    ];
    for (body, field, text) in table {
        api.post(LIST).json(&body).await.expect_errors(400, INVALID, &[(field, text)]);
    }
    let links: Value = (0..101).map(|n| (n.to_string(), json!(""))).collect();
    let longest = "a".repeat(256);
    for (body, field) in [
        (json!({"identifier": format!("{longest}a"), "name": "x"}), "identifier"),
        (json!({"identifier": "", "name": "x"}), "identifier"),
        (json!({"identifier": "c", "name": "a".repeat(256)}), "name"),
        (json!({"identifier": "c", "name": "x", "links": links}), "links"),
    ] {
        api.post(LIST).json(&body).await.expect_field_error(400, field);
    }
    assert_eq!(api.get(LIST).await.ok()["total_count"], 0);
    given(&api, &longest, "as long as can be").await;
    api.get(&format!("{LIST}/{longest}")).await.expect(200, json!({"version": 1}));
}

#[apply(on_every_store)]
async fn a_change_makes_a_version_and_what_is_left_out_stays(api: Api) {
    let created = given_review(&api).await;
    let link = json!({"the.policy": "https://wiki.example.com/review"});
    let steps = [
        (json!({}), 1, "Code review", "Somebody else reads it", link.clone()),
        (json!({"name": null, "links": null}), 1, "Code review", "Somebody else reads it", link.clone()),
        (json!({"name": "Code review"}), 1, "Code review", "Somebody else reads it", link.clone()),
        (json!({"name": "Review"}), 2, "Review", "Somebody else reads it", link.clone()),
        (json!({"description": ""}), 3, "Review", "", link),
        (json!({"links": {"new": "b"}}), 4, "Review", "", json!({"new": "b"})),
        (json!({"links": {}, "name": "R", "description": "d"}), 5, "R", "d", json!({})),
    ];
    for (changes, version, name, description, links) in steps {
        let expected = json!({"version": version, "name": name, "description": description, "links": links});
        let changed = api.put(REVIEW).json(&changes).await.expect(200, expected).ok();
        assert_eq!(changed["created_at"], created["created_at"], "{changes}");
        assert_eq!(api.get(REVIEW).await.ok(), changed, "{changes}");
    }
    let refused = [
        (json!(null), "body", "Field required [input: None]"),
        (json!({"identifier": "x"}), "identifier", "Extra inputs are not permitted [input: x]"),
        (json!({"name": 1}), "name", "Input should be a valid string [input: 1]"),
    ];
    for (changes, field, text) in refused {
        api.put(REVIEW).json(&changes).await.expect_errors(400, INVALID, &[(field, text)]);
    }
    api.get(REVIEW).await.expect(200, json!({"version": 5}));
}

#[apply(on_every_store)]
async fn versions_are_listed_and_read(api: Api) {
    given_review(&api).await;
    for number in 2..=20 {
        let changes = json!({"description": format!("version {number}")});
        api.put(REVIEW).key("member-key").json(changes).await.ok();
    }
    let list = format!("{REVIEW}/versions");
    let numbers = async |query: &str| {
        let listed = api.get(&format!("{list}{query}")).await.ok();
        let versions = listed["versions"].as_array().unwrap();
        Vec::from_iter(versions.iter().map(|version| version["version"].as_u64().unwrap()))
    };
    assert_eq!(numbers("").await, Vec::from_iter((6..=20).rev()));
    assert_eq!(numbers("?page=2").await, Vec::from_iter((1..=5).rev()));
    assert_eq!(numbers("?page=2&per_page=3&sort_direction=asc").await, [4, 5, 6]);
    assert_eq!(numbers("?page=9223372036854775807&per_page=100").await, [0_u64; 0]);
    assert_eq!(numbers("?per_page=100").await, Vec::from_iter((1..=20).rev()));

    let first = json!({
        "identifier": "SDLC-4", "version": 1, "name": "Code review", "description": "Somebody else reads it",
        "links": {"the.policy": "https://wiki.example.com/review"}, "created_by": "jane", "status": "created",
    });
    let edited =
        json!({"version": 2, "description": "version 2", "created_by": "member-key", "status": "edited"});
    let listed = api.get(&format!("{list}?per_page=2&page=10")).await.ok();
    let told = ["_links", "page", "per_page", "total_count", "total_pages", "versions"];
    assert_eq!(fields(&listed), told);
    let page = json!({"page": 10, "per_page": 2, "total_pages": 10, "total_count": 20});
    api.get(&format!("{list}?per_page=2&page=10")).await.expect(200, page);
    let prev = format!("http://localhost:8001/api/v2{list}?page=9&per_page=2");
    assert_eq!((&listed["_links"]["prev"]["href"], listed["_links"].get("next")), (&json!(prev), None));
    for (number, expected) in [(1, first), (2, edited)] {
        let version = api.get(&format!("{list}/{number}")).await.expect(200, expected).ok();
        assert_eq!(listed["versions"][2 - number], version);
    }
}

#[apply(on_every_store)]
async fn what_does_not_exist_is_not_found(api: Api) {
    given_review(&api).await;
    let control = "no control named 'sdlc-4' in organization 'acme'";
    for path in ["", "/versions", "/versions/1"] {
        let missing = api.get(&format!("/controls/acme/sdlc-4{path}")).await;
        missing.expect_errors(404, "Control not found", &[("identifier", control)]);
    }
    let missing = api.put("/controls/acme/sdlc-4").json(json!({"name": "x"})).await;
    missing.expect_errors(404, "Control not found", &[("identifier", control)]);
    for number in ["0", "2", "-1", "9223372036854775807"] {
        let text = format!("version {number} does not exist for control 'SDLC-4'");
        let missing = api.get(&format!("{REVIEW}/versions/{number}")).await;
        missing.expect_errors(404, "Control or version not found", &[("version_number", &text)]);
    }
    for number in ["x", "1.5", "9223372036854775808"] {
        let refused = api.get(&format!("{REVIEW}/versions/{number}")).await;
        refused.expect_field_error(400, "version_number");
    }
    api.get("/controls/acme/a%20b").await.expect_field_error(400, "identifier");
    assert_eq!(api.get("/controls/nowhere/SDLC-4").await.error_message(404), "Organization not found");
    assert_eq!(api.get(REVIEW).key(JOHN).await.error_message(403), FORBIDDEN);
    assert_eq!(api.get("/controls/foobar/SDLC-4").key(JOHN).await.error_message(404), "Control not found");
}

#[apply(on_every_store)]
async fn controls_are_listed_by_name_and_narrowed(api: Api) {
    for (identifier, name) in [("c3", "b"), ("c1", "Scan"), ("SCAN-2", "a"), ("c4", "b")] {
        given(&api, identifier, name).await;
    }
    let other = json!({"identifier": "scan", "name": "theirs"});
    api.post("/controls/foobar").key(JOHN).json(other).await.created();
    let identifiers = async |query: &str| {
        let list = api.get(&format!("{LIST}?{query}")).await.ok();
        each(&list, "controls", "identifier").join(" ")
    };
    for (query, found) in [
        ("", "c1 SCAN-2 c3 c4"),
        ("sort_direction=desc", "c3 c4 SCAN-2 c1"),
        ("search=scan", "c1 SCAN-2"),
        ("search=SCAN-", "SCAN-2"),
        ("search=%25", ""),
        ("search=", "c1 SCAN-2 c3 c4"),
        ("tag=team", ""),
        ("tag=", ""),
        ("archived=true", ""),
        ("archived=false&search=B", "c3 c4"),
        ("per_page=2&page=2", "c3 c4"),
        ("page=999", ""),
    ] {
        assert_eq!(identifiers(query).await, found, "{query}");
    }
    let list = api.get(&format!("{LIST}?per_page=2&page=2&sort_direction=desc&search=a")).await.ok();
    assert_eq!(fields(&list), ["_links", "controls", "page", "per_page", "total_count", "total_pages"]);
    let link = |page: u64| {
        let query = format!("page={page}&per_page=2&sort_direction=desc&search=a");
        json!({"href": format!("http://localhost:8001/api/v2/controls/acme?{query}")})
    };
    let expected = json!({
        "page": 2, "per_page": 2, "total_pages": 1, "total_count": 2, "controls": [], "_links": {"self": link(2)},
    });
    assert_eq!(list, expected);
    let list = api.get(&format!("{LIST}?per_page=1")).await.ok();
    let told = ["created_at", "created_by", "description", "identifier", "links", "name", "tags", "version"];
    assert_eq!(fields(&list["controls"][0]), told);
    for (query, field) in [
        ("page=0", "query.page"),
        ("per_page=0", "query.per_page"),
        ("per_page=101", "query.per_page"),
        ("sort_direction=up", "query.sort_direction"),
        ("archived=maybe", "query.archived"),
    ] {
        api.get(&format!("{LIST}?{query}")).await.expect_field_error(400, field);
    }
}

#[apply(on_every_store)]
async fn a_control_is_archived_and_brought_back(api: Api) {
    given_review(&api).await;
    given(&api, "SDLC-5", "Tests").await;
    let identifiers = async |query: &str| {
        let list = api.get(&format!("{LIST}{query}")).await.ok();
        each(&list, "controls", "identifier").join(" ")
    };
    let (archive, unarchive) = (format!("{REVIEW}/archive"), format!("{REVIEW}/unarchive"));
    let as_it_is = json!({"archived": false, "version": 1});
    api.post(&unarchive).await.expect(200, as_it_is);
    let archived = json!({"identifier": "SDLC-4", "archived": true, "version": 2});
    // The public client sends `null`.
    let found = api.post(&archive).bytes("application/json", "null").await.expect(200, archived).ok();
    assert_eq!(api.post(&archive).await.ok(), found);
    assert_eq!(api.get(REVIEW).await.ok(), found);
    assert_eq!(identifiers("").await, "SDLC-5");
    assert_eq!(identifiers("?archived=true").await, "SDLC-4");
    let again = json!({"identifier": "SDLC-4", "name": "Another"});
    let message = "A control with this identifier already exists";
    assert_eq!(api.post(LIST).json(again).await.error_message(409), message);

    let edited = json!({"archived": true, "version": 3, "name": "Review"});
    api.put(REVIEW).json(json!({"name": "Review"})).await.expect(200, edited);
    let back = json!({"archived": false, "version": 4, "name": "Review"});
    api.post(&unarchive).key("member-key").await.expect(200, back);
    assert_eq!(identifiers("").await, "SDLC-4 SDLC-5");
    assert_eq!(identifiers("?archived=true").await, "");
    let versions = api.get(&format!("{REVIEW}/versions")).await.ok();
    assert_eq!(each(&versions, "versions", "status"), ["unarchived", "edited", "archived", "created"]);
    for path in ["/controls/acme/none/archive", "/controls/acme/none/unarchive"] {
        assert_eq!(api.post(path).await.error_message(404), "Control not found", "{path}");
    }
}

#[apply(on_every_store)]
async fn tags_narrow_the_list_and_are_offered_once(api: Api) {
    let choices = "/controls/acme/tags";
    assert_eq!(api.get(choices).await.ok(), json!([]));
    for (identifier, tags) in [
        ("c1", json!({"team": "a:b", "framework": "sdlc"})),
        ("c2", json!({"team": "red"})),
        ("c3", json!({"team": "red"})),
    ] {
        given(&api, identifier, identifier).await;
        api.patch(&format!("/tags/acme/control/{identifier}")).json(json!({ "set_tags": tags })).await.ok();
    }
    api.get("/controls/acme/c1").await.expect(200, json!({"version": 1}));
    api.post("/controls/acme/c3/archive").await.ok();
    let tag = |key: &str, value: &str| json!({"key": key, "value": value});
    let offered = json!([tag("framework", "sdlc"), tag("team", "a:b"), tag("team", "red")]);
    assert_eq!(api.get(choices).await.ok(), offered);
    for (query, found) in [
        ("tag=team", "c1 c2"),
        ("tag=team:red", "c2"),
        ("tag=team:a:b", "c1"),
        ("tag=team&tag=framework", "c1"),
        ("tag=team:red&archived=true", "c3"),
        ("tag=TEAM", ""),
    ] {
        let list = api.get(&format!("{LIST}?{query}")).await.ok();
        assert_eq!(each(&list, "controls", "identifier").join(" "), found, "{query}");
    }
    api.patch("/tags/acme/control/c1").json(json!({"remove_tags": ["team", "framework"]})).await.ok();
    assert_eq!(api.get(choices).await.ok(), json!([tag("team", "red")]));
}

#[apply(with_every_store)]
async fn all_tags_of_controls_are_offered_however_many(api: Api, _: Arc<dyn Store>) {
    let mut all = Vec::new();
    for control in 0..11 {
        let identifier = format!("c{control}");
        api.post_control(&identifier).await.created();
        let value = |number: usize| format!("{:04}", control * 100 + number);
        // Every control has the first of them, too.
        let tags = (0..99).map(|number| (format!("k{}", number % 99), value(number)));
        let tags: serde_json::Map<_, _> = tags
            .chain([("all".to_owned(), "same".to_owned())])
            .map(|(key, value)| (key, json!(value)))
            .collect();
        all.extend(tags.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())));
        api.patch(&format!("/tags/acme/control/{identifier}")).json(json!({ "set_tags": tags })).await.ok();
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 11 * 99 + 1);
    let all = Vec::from_iter(all.into_iter().map(|(key, value)| json!({"key": key, "value": value})));
    api.get("/controls/acme/tags").await.expect_exactly(200, json!(all));
}

/// Makes a version of the policy that says this, which the API would not take yet.
async fn given_version(store: &dyn Store, org: Id, policy: &str, text: &str) {
    let Current { record, .. } = store.policy(org, policy).await.unwrap().unwrap();
    let record = Policy { version: record.version + 1, ..record };
    let version = PolicyVersion {
        policy: record.id,
        version: record.version,
        policy_yaml: text.to_owned(),
        comment: String::new(),
        at: record.last_modified_at,
        by: record.created_by.clone(),
    };
    inject(store, org, Fact::PolicyUpdated { record, version: Some(version), comment: None }).await;
}

const ASKING: &str = "_schema: https://example.com/v1\nartifacts:\n  attestations:\n    \
    - {type: decision, for_control: SDLC-4}\n    - {type: decision, name: other, for_control: SDLC-5}\n";

#[apply(with_every_store)]
async fn environments_are_covered_by_the_latest_versions_of_their_policies(api: Api, store: Arc<dyn Store>) {
    given_review(&api).await;
    let coverage = "/controls/acme/SDLC-4/coverage";
    let bar = async |query: &str| {
        let found = api.get(&format!("{coverage}{query}")).await.ok();
        let names = Vec::from_iter(each(&found, "environments", "name").into_iter().map(str::to_owned));
        (found["covered"].as_u64().unwrap(), found["total"].as_u64().unwrap(), names)
    };
    assert_eq!(bar("").await, (0, 0, vec![]));
    assert_eq!(api.get(coverage).await.ok()["coverage_percent"], 0.0);

    for policy in ["asks", "asked", "plain"] {
        api.put_policy(policy, PROVENANCE).await.created();
    }
    api.given_environments("docker", &["prod-eu", "Prod-us", "staging", "old"]).await;
    api.put_logical_environment("all", ["prod-eu"]).await.created();
    for (environment, policies) in
        [("prod-eu", vec!["asks", "plain", "asked"]), ("Prod-us", vec!["plain"]), ("old", vec!["asks"])]
    {
        api.post(&format!("/environments/acme/{environment}/policies"))
            .json(json!({"policy_names": policies}))
            .await
            .ok();
    }
    let org = acme(&*store).await;
    let record = store.environment(org, "old").await.unwrap().unwrap().record;
    inject(&*store, org, Fact::EnvironmentArchived { record }).await;
    given_version(&*store, org, "asks", ASKING).await;
    given_version(&*store, org, "asked", ASKING).await;

    let (eu, us, staging) = ("prod-eu".to_owned(), "Prod-us".to_owned(), "staging".to_owned());
    assert_eq!(bar("").await, (1, 3, vec![us.clone(), eu.clone(), staging.clone()]));
    assert_eq!(bar("?covered=true").await, (1, 3, vec![eu.clone()]));
    assert_eq!(bar("?covered=false").await, (1, 3, vec![us.clone(), staging.clone()]));
    assert_eq!(bar("?search=PROD").await, (1, 3, vec![us.clone(), eu.clone()]));
    assert_eq!(bar("?search=%25").await, (1, 3, vec![]));
    assert_eq!(bar("?per_page=2&page=2").await, (1, 3, vec![staging.clone()]));
    let page = api.get(&format!("{coverage}?covered=true&per_page=1")).await.ok();
    let link = "http://localhost:8001/api/v2/controls/acme/SDLC-4/coverage?page=1&per_page=1&covered=true";
    assert_eq!(page["_links"]["self"]["href"], link);
    let expected = json!({
        "total": 3, "covered": 1, "coverage_percent": 100.0 / 3.0, "page": 1, "per_page": 1, "total_pages": 1,
        "total_count": 1, "_links": page["_links"],
        "environments": [
            {"name": "prod-eu", "type": "docker", "covered": true, "policies": ["asked", "asks"]},
        ],
    });
    assert_eq!(page, expected);
    // The newest version alone counts, and nobody's but the organization's.
    given_version(&*store, org, "asks", PROVENANCE).await;
    let found = api.get(coverage).await.ok();
    assert_eq!(found["environments"][1]["policies"], json!(["asked"]));
    given_version(&*store, org, "asked", "no policy").await;
    assert_eq!(bar("").await, (0, 3, vec![us, eu, staging]));
    let missing = api.get("/controls/acme/SDLC-6/coverage").await;
    assert_eq!(missing.error_message(404), "Control not found");
}

#[apply(on_every_store)]
async fn decisions_about_a_control_are_listed_and_read_one_by_one(api: Api) {
    let decide = |control: &str, is_compliant: bool, more: Value| {
        let decision = json!({
            "attestation_name": "reviewed", "type_name": "decision", "control": control,
            "attestation_data": {"is_compliant": is_compliant, "by": [1.50, null]},
        });
        let decision = merged(decision, &more);
        api.attest("system", &decision)
    };
    decide("SDLC-4", false, json!({})).await.created();
    given_review(&api).await;
    api.given_artifact('a', "t").await;
    let about = json!({"artifact_fingerprint": "a".repeat(64)});
    api.post_attestation("web", "t", "system")
        .data_json(json!({
            "attestation_name": "checked", "type_name": "decision", "control": "SDLC-4",
            "attestation_data": {"is_compliant": true}, "artifact_fingerprint": about["artifact_fingerprint"],
        }))
        .await
        .created();
    decide("sdlc-4", true, json!({})).await.created();
    let list = "/controls/acme/SDLC-4/decisions";
    let found = api.get(list).await.ok();
    let flow = |name: &str| {
        let flows = api.get("/flows/acme").into_future();
        let name = name.to_owned();
        async move {
            let flows = flows.await.ok();
            let flows = flows.get("data").unwrap_or(&flows);
            let flow = flows.as_array().unwrap().iter().find(|flow| flow["name"] == name).unwrap();
            flow["id"].as_str().unwrap().to_owned()
        }
    };
    let (web, shop) = (flow("web").await, flow("shop").await);
    let decisions = found["decisions"].as_array().unwrap().clone();
    let ids = Vec::from_iter(decisions.iter().map(|decision| decision["decision_id"].as_str().unwrap()));
    let [newest, oldest] = ids[..] else { panic!("{found}") };
    let expected = json!({
        "page": 1, "per_page": 15, "total_pages": 1, "total_count": 2, "_links": found["_links"],
        "decisions": [
            {"decision_id": newest, "attestation_name": "checked", "is_compliant": true, "superseded": false, "control_version": 1,
             "created_at": 1_783_538_510.0, "created_by": "jane", "flow_id": web, "flow_name": "web",
             "trail_name": "t", "artifact_name": "api", "artifact_fingerprint": "a".repeat(64)},
            {"decision_id": oldest, "attestation_name": "reviewed", "is_compliant": false, "superseded": true, "control_version": null,
             "created_at": 1_783_538_510.0, "created_by": "jane", "flow_id": shop, "flow_name": "shop",
             "trail_name": "t", "artifact_name": null, "artifact_fingerprint": null},
        ],
    });
    assert_eq!(found, expected);
    for (query, expected) in [
        ("sort_direction=asc", vec![oldest, newest]),
        ("is_compliant=true", vec![newest]),
        ("is_compliant=false", vec![oldest]),
        ("from_timestamp=1783538510&to_timestamp=1783538510", vec![newest, oldest]),
        ("from_timestamp=1783538510.5", vec![]),
        ("to_timestamp=1783538509.5", vec![]),
        (&format!("flow_id={shop}"), vec![oldest]),
        (&format!("flow_id={shop}&flow_id={web}"), vec![newest, oldest]),
        ("per_page=1&page=2", vec![oldest]),
        ("page=9", vec![]),
    ] {
        let found = api.get(&format!("{list}?{query}")).await.ok();
        assert_eq!(each(&found, "decisions", "decision_id"), expected, "{query}");
    }
    for (query, field) in [("per_page=101", "query.per_page"), ("from_timestamp=x", "query.from_timestamp")] {
        api.get(&format!("{list}?{query}")).await.expect_field_error(400, field);
    }
    for unknown in ["x", "", "00000000-0000-0000-0000-00000001"] {
        let query = format!("{list}?flow_id={shop}&flow_id={unknown}");
        api.get(&query).await.expect_field_error(404, "query.flow_id");
    }
    let page = api.get(&format!("{list}?per_page=1&is_compliant=true&from_timestamp=1.5")).await.ok();
    let link = format!(
        "http://localhost:8001/api/v2{list}?page=1&per_page=1&is_compliant=true&from_timestamp=1.500000"
    );
    assert_eq!(page["_links"]["self"]["href"], link);

    let one = api.get(&format!("{list}/{oldest}")).await.ok();
    let attestation = api.get(&format!("/attestations/acme?attestation_id={oldest}")).await.ok();
    let mut expected = decisions[1].clone();
    expected["attestation"] = attestation["data"][0].clone();
    assert_eq!(one, expected);
    api.post_generic_attestation("shop", "generic", true).await.created();
    let generic = api.get("/attestations/acme/shop/trail/t/generic").await.ok();
    for missing in ["x", "00000000-0000-0000-0000-00000001", generic[0]["attestation_id"].as_str().unwrap()] {
        assert_eq!(api.get(&format!("{list}/{missing}")).await.error_message(404), "Decision not found");
    }
    assert_eq!(api.get("/controls/acme/sdlc-4/decisions").await.error_message(404), "Control not found");
    given(&api, "sdlc-4", "another").await;
    assert_eq!(
        api.get(&format!("/controls/acme/sdlc-4/decisions/{oldest}")).await.error_message(404),
        "Decision not found"
    );
}

#[tokio::test]
async fn coverage_is_of_so_many_environments_however_many_there_are() {
    let evidence = in_memory().await;
    let (api, store) = (Api::new(evidence.clone(), Mount::Tower, "memory").await, evidence.store());
    given_review(&api).await;
    api.given_environments("docker", &["prod"]).await;
    let org = acme(store).await;
    let prod = store.environment(org, "prod").await.unwrap().unwrap().record;
    for number in 0..1_001 {
        let id = format!("00000000-0000-0000-0000-{number:08x}").parse().unwrap();
        let name = format!("env{number:04}").parse().unwrap();
        let record = Environment { id, name, ..prod.clone() };
        inject(store, org, Fact::EnvironmentCreated { record }).await;
    }
    let last = api.get("/controls/acme/SDLC-4/coverage?per_page=100&page=10").await.ok();
    assert_eq!((&last["total"], &last["total_count"]), (&json!(1_000), &json!(1_000)));
    let names = each(&last, "environments", "name");
    assert_eq!((names[0], names[99], names.len()), ("env0900", "env0999", 100));
}

#[apply(on_every_store)]
async fn a_decision_that_is_overridden_says_by_whom_and_why(api: Api) {
    given_review(&api).await;
    let decide = || {
        api.attest(
            "system",
            &json!({
                "attestation_name": "r", "type_name": "decision", "control": "SDLC-4",
                "attestation_data": {"is_compliant": false},
            }),
        )
    };
    decide().await.created();
    let list = "/controls/acme/SDLC-4/decisions";
    let decision = api.get(list).await.ok()["decisions"][0].clone();
    assert_eq!((decision.get("override_info"), &decision["superseded"]), (None, &json!(false)));
    let body = json!({
        "attestation_name": "r", "reason": "seen by hand", "new_compliance_status": true,
        "original_attestation_type": "system:decision",
    });
    api.post("/attestations/acme/shop/trail/t/override").json(body).await.created();
    let info = json!("overridden by jane: seen by hand");
    let one = format!("{list}/{}", decision["decision_id"].as_str().unwrap());
    for found in [api.get(list).await.ok()["decisions"][0].clone(), api.get(&one).await.ok()] {
        assert_eq!((&found["is_compliant"], &found["override_info"]), (&json!(false), &info), "{found}");
        assert_eq!(found["superseded"], true, "{found}");
    }
    // A newer decision counts again.
    decide().await.created();
    let decisions = api.get(list).await.ok()["decisions"].clone();
    assert_eq!([0, 1].map(|place| decisions[place].get("override_info")), [None, None]);
    assert_eq!([0, 1].map(|place| &decisions[place]["superseded"]), [&json!(false), &json!(true)]);
}

#[apply(on_every_store)]
async fn a_decision_that_a_newer_attestation_of_its_name_superseded_is_shown_as_superseded(api: Api) {
    given_review(&api).await;
    given(&api, "SDLC-5", "another").await;
    let report = api.post_artifact("shop", "a".repeat(64)).in_trail("t").named("app");
    report.with(json!({"filename": "x"})).await.created();
    let decide = async |name: &str, control: &str, on_artifact: bool, is_compliant: bool| {
        let mut document = json!({
            "attestation_name": name, "type_name": "decision", "control": control,
            "attestation_data": {"is_compliant": is_compliant},
        });
        if on_artifact {
            document["artifact_fingerprint"] = json!("a".repeat(64));
        }
        api.attest("system", &document).await.created();
    };
    let list = "/controls/acme/SDLC-4/decisions";
    // Newest first: whether each is compliant, and superseded.
    let shown = async |query: &str| {
        let decisions = api.get(&format!("{list}{query}")).await.ok()["decisions"].clone();
        let shown = decisions
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["is_compliant"].as_bool().unwrap(), one["superseded"].as_bool().unwrap()));
        shown.collect::<Vec<_>>()
    };
    decide("r", "SDLC-4", false, true).await;
    assert_eq!(shown("").await, [(true, false)]);
    // Another scope, and another name, supersede nothing.
    decide("r", "SDLC-4", true, true).await;
    decide("s", "SDLC-4", false, true).await;
    assert_eq!(shown("").await, [(true, false), (true, false), (true, false)]);
    decide("r", "SDLC-4", false, false).await;
    assert_eq!(shown("").await, [(false, false), (true, false), (true, false), (true, true)]);
    assert_eq!(shown("?is_compliant=true").await, [(true, false), (true, false), (true, true)]);
    // A decision about another control, and an attestation that is no decision, supersede it all the same.
    decide("r", "SDLC-5", true, true).await;
    api.post_generic_attestation("shop", "s", true).await.created();
    assert_eq!(shown("").await, [(false, false), (true, true), (true, true), (true, true)]);
    let oldest = api.get(&format!("{list}?sort_direction=asc")).await.ok()["decisions"][0].clone();
    let one = api.get(&format!("{list}/{}", oldest["decision_id"].as_str().unwrap())).await.ok();
    assert_eq!((&one["superseded"], &one["attestation"]["is_compliant"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn a_list_of_decisions_reads_no_more_than_it_shows() {
    let (store, answered) = InterceptingStore::measured(Arc::new(MemoryStore::new()));
    let api = Api::new(fixture(Arc::new(store), Settings::default()).await, Mount::Tower, "memory").await;
    given_review(&api).await;
    let data = json!({"is_compliant": true, "more": "x".repeat(100_000)});
    let decision = json!({"attestation_name": "r", "type_name": "decision", "control": "SDLC-4", "attestation_data": data});
    api.attest("system", &decision).await.created();
    take_queries(&answered);
    let list = api.get("/controls/acme/SDLC-4/decisions").await.ok();
    assert_eq!(
        (&list["decisions"][0]["control_version"], &list["decisions"][0]["created_by"]),
        (&json!(1), &json!("jane"))
    );
    let read = take_queries(&answered);
    assert!(read.contains(&"decisions") && !read.contains(&"attestations_by_id"), "{read:?}");
}
