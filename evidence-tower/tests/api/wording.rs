//! Refusals in both wordings: the documented message with the field and its value, and in its place the
//! sentence that users of the public command-line client know. Statuses do not differ, nor does what is said of input
//! that breaks a rule.

use evidence_core::Wording;

use crate::support::prelude::*;

/// A service in this wording.
async fn worded(wording: Wording) -> Api {
    let settings = Settings { wording, ..Settings::default() };
    Api::new(in_memory_with(settings).await, Mount::Tower, "memory").await
}

macro_rules! in_each_wording {
    ($($case:tt)*) => { case_of! { in_each_wording: $($case)* } };
}

/// Runs a case in each wording, on a service of its own.
fn in_each_wording(case: impl AsyncFn(Api, Wording)) {
    block_on(async {
        for wording in [Wording::Named, Wording::Documented] {
            case(worded(wording).await, wording).await;
        }
    });
}

/// The texts about a missing record: the sentence, and the documented message, the field and its value.
#[derive(Clone, Copy)]
struct Told<'a>(&'a str, [&'a str; 3]);

impl Told<'_> {
    fn body(self, wording: Wording) -> Value {
        let Self(sentence, [message, field, looked_for]) = self;
        match wording {
            Wording::Named => json!({ "message": sentence }),
            Wording::Documented => json!({"message": message, "errors": {field: looked_for}}),
        }
    }

    /// The same, where another field named it.
    const fn by(self, field: &'static str) -> Self {
        let Self(sentence, [message, _, looked_for]) = self;
        Self(sentence, [message, field, looked_for])
    }
}

/// Asserts that each path is answered with status 404 and nothing but this.
async fn expect_missing(api: &Api, wording: Wording, rows: &[(&str, Told<'_>)]) {
    for (path, told) in rows {
        api.get(path).await.expect_exactly(404, told.body(wording));
    }
}

const FLOW: Told<'_> = Told(
    "Flow named 'non-existing' does not exist for organization 'acme'",
    ["Flow not found", "flow_name", "no flow named 'non-existing' in organization 'acme'"],
);
const TRAIL: Told<'_> = Told(
    "Trail with name 'foo' does not exist for Organization 'acme' and Flow 'shop'",
    ["Trail not found", "trail_name", "no trail named 'foo' in flow 'shop' in organization 'acme'"],
);
const TYPE: Told<'_> = Told(
    "Custom attestation type 'foo' does not exist for org 'acme'",
    [
        "Custom attestation type not found",
        "custom_attestation_type_name",
        "no custom attestation type named 'foo' in organization 'acme'",
    ],
);
const CONTROL: Told<'_> = Told(
    "Control 'no-such-control' does not exist in organization 'acme'",
    ["Control not found", "identifier", "no control named 'no-such-control' in organization 'acme'"],
);
const REPO: Told<'_> = Told(
    "Repo 'non-existing' not found",
    ["Repo not found", "repo_name", "no repo named 'non-existing' in organization 'acme'"],
);
const ACCOUNT: Told<'_> = Told(
    "Service account not found",
    ["Service account not found", "name", "no service account named 'none' in organization 'acme'"],
);
const KEY: Told<'_> = Told(
    "API key not found",
    ["API key not found", "key_id", "no API key named 'none' in organization 'acme'"],
);

#[apply(in_each_wording)]
async fn flows_and_trails(api: Api, wording: Wording) {
    api.given_flow("shop", TEMPLATE).await;
    let unnamed = Told(
        "Flow named '' does not exist for organization 'acme'",
        ["Flow not found", "query.flow", "no flow named '' in organization 'acme'"],
    );
    let rows = [
        ("/flows/acme/non-existing", FLOW),
        ("/artifacts/acme?flow_name=non-existing", FLOW.by("query.flow_name")),
        ("/artifacts/acme/non-existing/aaaaa/latest_commit", FLOW),
        ("/artifacts/acme/non-existing/commit_sha/aaaaa", FLOW),
        ("/artifacts/acme/non-existing/fingerprint/aaaaa", FLOW),
        ("/trails/acme?flow=", unnamed),
        ("/trails/acme?flow=non-existing", FLOW.by("query.flow")),
        ("/trails/acme/non-existing/foo", FLOW),
        ("/trails/acme/shop/foo", TRAIL),
        ("/attestations/acme/shop/trail/foo/x", TRAIL),
        ("/attestations/acme/non-existing/trail/foo/x", FLOW),
    ];
    expect_missing(&api, wording, &rows).await;
    for what in ["archive", "rename"] {
        let request = api.put(&format!("/flows/acme/non-existing/{what}")).json(json!({"new_name": "x"}));
        request.await.expect_exactly(404, FLOW.body(wording));
    }
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    api.put("/flows/acme/shop/archive").await.ok();
    let trails = api.get("/trails/acme").await.ok();
    let name = trails["data"][0]["flow"]["name"].as_str().unwrap();
    let sentence = format!("Flow named '{name}' has been archived for organization 'acme'");
    let looked_for = format!("flow '{name}' in organization 'acme' is archived");
    let told = Told(&sentence, ["Flow not found", "flow_name", &looked_for]);
    api.put_trail(name, &json!({"name": "u"})).await.expect_exactly(404, told.body(wording));
}

#[apply(in_each_wording)]
async fn artifacts_and_their_attestations(api: Api, wording: Wording) {
    api.given_flow("shop", TEMPLATE).await;
    let fingerprint = "a".repeat(64);
    let gone = format!(
        "Artifact with fingerprint '{fingerprint}' does not exist in flow 'shop' belonging to organization 'acme'"
    );
    let looked_for = format!("no artifact named '{fingerprint}' in flow 'shop' in organization 'acme'");
    let rows = [
        (
            &*format!("/artifacts/acme/shop/fingerprint/{fingerprint}"),
            Told(&gone, ["Artifact not found", "fingerprint", &looked_for]),
        ),
        ("/artifacts/acme?repo_name=non-existing", REPO.by("query.repo_name")),
        (
            "/search/acme/sha/fffff",
            Told(
                "No matches for 'fffff'.",
                [
                    "No matches for 'fffff'.",
                    "search_value",
                    "no fingerprint or commit begins with 'fffff' in organization 'acme'",
                ],
            ),
        ),
    ];
    expect_missing(&api, wording, &rows).await;
    let sentence = format!(
        "Artifact with fingerprint {fingerprint} does not exist in trail \"t\" of flow \"shop\" belonging to organization \"acme\""
    );
    let looked_for =
        format!("no artifact named '{fingerprint}' in trail 't' of flow 'shop' in organization 'acme'");
    let told = Told(&sentence, ["Artifact not found", "artifact_fingerprint", &looked_for]);
    let document = json!({"name": "review"}).to_string();
    api.post("/custom-attestation-types/acme").data_json(&document).await.created();
    let sonar = json!({
        "serverUrl": "https://s.org", "taskId": "1", "status": "SUCCESS", "analysedAt": "2026-01-02T03:04:05+0000",
        "revision": "a".repeat(40), "project": {"key": "k", "name": "k", "url": "https://s.org/k"},
        "branch": {"name": "main", "type": "BRANCH"}, "qualityGate": {"status": "OK", "conditions": []},
    });
    let result = json!({"high_count": 0, "medium_count": 0, "low_count": 0});
    let snyk = json!({"schema_version": 1, "tool": {"name": "snyk", "version": "1"}, "results": [result]});
    let kinds = [
        ("generic", json!({"is_compliant": true})),
        ("custom", json!({"type_name": "review", "attestation_data": {}})),
        ("junit", json!({"junit_results": []})),
        ("snyk", json!({ "snyk_results": snyk })),
        ("sonar", json!({ "sonar_results": sonar })),
        ("jira", json!({"jira_results": []})),
        ("pull_request", json!({"git_provider": "github", "pull_requests": []})),
    ];
    for (kind, mut document) in kinds {
        document["attestation_name"] = json!("x");
        document["artifact_fingerprint"] = json!(fingerprint);
        api.attest(kind, &document).await.expect_exactly(404, told.body(wording));
    }
}

#[tokio::test]
async fn environments_and_snapshots() {
    let api = worded(Wording::Named).await;
    api.given_environments("docker", &["empty", "prod"]).await;
    for running in [&[][..], &[('1', &[1][..])], &[]] {
        api.report_running("prod", running).await.created();
    }
    let environment = "Environment named 'non-existing' does not exist for organization 'acme'";
    let snapshot = |asked: &str, resolved: &str, count: usize| {
        format!(
            "Org: 'acme'. Snapshot '{asked}' resolves to '{resolved}'. len(snapshots) == {count}. Indexes are 1-based"
        )
    };
    let rows = [
        ("/environments/acme/non-existing", environment),
        ("/snapshots/acme/non-existing", environment),
        ("/snapshots/acme/non-existing/-1", environment),
        ("/snapshots/acme/empty/-1", &*snapshot("empty#-1", "empty#0", 0)),
        ("/snapshots/acme/prod/23", &*snapshot("prod#23", "prod#23", 3)),
        ("/environments/acme/non-existing/events", environment),
        ("/environments/acme/non-existing/auditlog", environment),
        ("/environments/acme/prod/events?repo_name=X", "Repo 'X' not found"),
        ("/environments/acme/prod/events?repo_name=", "Repo '' not found"),
        ("/env-diff/acme?snappish1=non-existing&snappish2=prod", environment),
        ("/env-diff/acme?snappish1=empty&snappish2=prod%2323", &*snapshot("empty", "empty#0", 0)),
        ("/env-diff/acme?snappish1=prod&snappish2=prod%2323", &*snapshot("prod#23", "prod#23", 3)),
        ("/env-diff/acme?snappish1=prod~3&snappish2=prod", &*snapshot("prod~3", "prod#0", 3)),
    ];
    for (path, sentence) in rows {
        api.get(path).await.expect_exactly(404, json!({ "message": sentence }));
    }
    for (path, sentence) in [
        ("/env-diff/acme?snappish1=&snappish2=prod", "Bad snappish "),
        ("/env-diff/acme?snappish1=prod&snappish2=prod%23", "Bad snappish prod#"),
    ] {
        api.get(path).await.expect(400, json!({ "message": sentence }));
    }
    for bound in ["start=", "end=soon", "interval=1..2..3"] {
        let (name, text) = bound.split_once('=').unwrap();
        let events = api.get(&format!("/environments/acme/prod/events?{bound}")).await;
        let refused = format!("Invalid interval value: {text}");
        events.expect(400, json!({"errors": {format!("query.{name}"): refused}}));
    }
    let body = json!({"name": "all", "type": "logical", "description": "", "included_environments": [""]});
    let sentence = "Environment named '' does not exist for organization 'acme'";
    api.put("/environments/acme").json(body).await.expect_exactly(404, json!({"message": sentence}));
    for (path, body) in [("rename", json!({"new_name": "a"})), ("archive", Value::Null)] {
        let request = api.put(&format!("/environments/acme/non-existing/{path}")).json(body);
        request.await.expect_exactly(404, json!({ "message": environment }));
    }
    let put = api.put("/environments/acme/prod/rename").json(json!({"new_name": "new illegal name"}));
    let pattern = r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\.\-_]*$' [input: new illegal name]";
    put.await.expect(400, json!({"errors": {"new_name": pattern}}));
    api.put("/environments/acme/prod/archive").await.expect_exactly(200, json!("OK"));
    let sentence = "Environment named 'prod' has been archived for organization 'acme'";
    for path in ["/environments/acme/prod", "/snapshots/acme/prod/-1"] {
        api.get(path).await.expect_exactly(404, json!({ "message": sentence }));
    }
}

#[apply(in_each_wording)]
async fn policies_and_custom_attestation_types(api: Api, wording: Wording) {
    api.put_policy("p", PROVENANCE).await.created();
    api.post("/custom-attestation-types/acme").data_json(json!({"name": "review"})).await.created();
    let policy = Told(
        "Policy 'non-existing' does not exist in organization 'acme'",
        ["Policy not found", "policy_name", "no policy named 'non-existing' in organization 'acme'"],
    );
    let version = "version 10 does not exist for custom attestation type 'review'";
    let version = Told(version, ["Custom attestation type version not found", "query.version", version]);
    let rows = [
        ("/policies/acme/non-existing", policy),
        ("/custom-attestation-types/acme/foo", TYPE),
        ("/custom-attestation-types/acme/review?version=10", version),
    ];
    expect_missing(&api, wording, &rows).await;
    let attest = |name: &str| {
        api.attest("custom", &json!({"attestation_name": "x", "type_name": name, "attestation_data": {}}))
    };
    attest("foo").await.expect_exactly(404, TYPE.by("type_name").body(wording));
    api.put("/custom-attestation-types/acme/foo/archive").await.expect_exactly(404, TYPE.body(wording));
    api.put("/custom-attestation-types/acme/review/archive").await.expect_exactly(200, json!("OK"));
    let archived = "Custom attestation type 'review' is archived for org 'acme'";
    let refused =
        json!({"message": archived, "errors": {"type_name": "An archived type takes no attestations"}});
    attest("review").await.expect_exactly(400, refused);
}

#[apply(in_each_wording)]
async fn controls(api: Api, wording: Wording) {
    let control = json!({"identifier": "my-control", "name": "x"});
    api.post("/controls/acme").json(&control).await.created();
    let version = "version 2 does not exist for control 'my-control'";
    let decision = "no decision named 'none' in organization 'acme'";
    let rows = [
        ("/controls/acme/no-such-control", CONTROL),
        ("/controls/acme/no-such-control/versions/1", CONTROL),
        (
            "/controls/acme/my-control/versions/2",
            Told(version, ["Control or version not found", "version_number", version]),
        ),
        ("/controls/acme/no-such-control/coverage", CONTROL),
        ("/controls/acme/no-such-control/decisions", CONTROL),
        (
            "/controls/acme/my-control/decisions/none",
            Told("Decision not found", ["Decision not found", "decision_id", decision]),
        ),
    ];
    expect_missing(&api, wording, &rows).await;
    let missing = CONTROL.body(wording);
    let request = api.put("/controls/acme/no-such-control").json(json!({"name": "x"}));
    request.await.expect_exactly(404, missing.clone());
    for what in ["archive", "unarchive"] {
        api.post(&format!("/controls/acme/no-such-control/{what}"))
            .await
            .expect_exactly(404, missing.clone());
    }
    let exists = Told(
        "A control with identifier 'my-control' already exists in organization 'acme'",
        [
            "A control with this identifier already exists",
            "identifier",
            "organization 'acme' has a control with identifier 'my-control'",
        ],
    );
    for what in ["archive", "unarchive"] {
        // An archived one, too.
        api.post("/controls/acme").json(&control).await.expect_exactly(409, exists.body(wording));
        api.post(&format!("/controls/acme/my-control/{what}")).await.ok();
    }
}

#[apply(in_each_wording)]
async fn repos(api: Api, wording: Wording) {
    let named = |name: &str| {
        (format!("Repo '{name}' not found"), format!("no repo named '{name}' in organization 'acme'"))
    };
    let rows = [
        ("/repos/acme/no/such-repo", "no/such-repo", "repo_name"),
        ("/repos/acme/shop?provider=gitlab", "shop", "repo_name"),
        ("/repos/acme/shop?id=no-such-id", "no-such-id", "query.id"),
        ("/repos/acme/live-artifacts/a/b", "a/b", "repo_name"),
        ("/builds/acme?repo_name=non-existing", "non-existing", "query.repo_name"),
        ("/builds/acme/statistics?repo_id=8", "8", "query.repo_id"),
        ("/deployments/acme?repo_name=non-existing", "non-existing", "query.repo_name"),
        ("/repos/acme/no-such-id/deployments", "no-such-id", "repo"),
        ("/repos/acme/no-such-id/deployment-statistics", "no-such-id", "repo"),
    ];
    for (path, name, field) in rows {
        let (sentence, looked_for) = named(name);
        let told = Told(&sentence, ["Repo not found", field, &looked_for]);
        expect_missing(&api, wording, &[(path, told)]).await;
    }
    for id in ["1", "2"] {
        api.given_artifact_from_repo(
            &json!({"name": "a/b", "url": "https://x.org", "id": id, "provider": "github"}),
        )
        .await;
    }
    let sentence = "Multiple repos named 'a/b' exist (github). Specify the 'provider'";
    assert!(api.get("/repos/acme/a/b").await.error_message(400).starts_with(sentence));
}

/// The quotation marks around these sentences are a part of them.
#[apply(in_each_wording)]
async fn tags(api: Api, wording: Wording) {
    let rows = [
        ("control/no-such", "\"Control 'no-such' does not exist in organization 'acme'\""),
        ("controls/no-such", "\"Control 'no-such' does not exist in organization 'acme'\""),
        ("repo/no-such", "\"Repo 'no-such' does not exist in organization 'acme'\""),
        ("flow/no-such", "\"Flow 'no-such' does not exist in organization 'acme'\""),
    ];
    for (resource, sentence) in rows {
        let documented =
            ["Resource not found", "resource_id", "no resource named 'no-such' in organization 'acme'"];
        let patch = api.patch(&format!("/tags/acme/{resource}")).json(json!({"set_tags": {"a": "b"}}));
        patch.await.expect_exactly(404, Told(sentence, documented).body(wording));
    }
}

#[apply(in_each_wording)]
async fn accounts_keys_and_organizations(api: Api, wording: Wording) {
    api.post("/service-accounts/acme").json(json!({"name": "ci"})).await.created();
    let organization = ["Organization not found", "org", "no organization named 'nowhere'"];
    let rows = [
        ("/service-accounts/acme/none", ACCOUNT),
        ("/service-accounts/acme/none/api-keys", ACCOUNT),
        ("/service-accounts/acme/ci/api-keys/none", KEY),
        ("/repos/nowhere", Told("Organization not found", organization)),
    ];
    expect_missing(&api, wording, &rows).await;
    let patch = api.patch("/service-accounts/acme/none").json(json!({"description": "x"}));
    patch.await.expect_exactly(404, ACCOUNT.body(wording));
    api.delete("/service-accounts/acme/none").await.expect_exactly(404, ACCOUNT.body(wording));
    api.delete("/service-accounts/acme/ci/api-keys/none").await.expect_exactly(404, KEY.body(wording));
    // Messages without a name are the same in both wordings.
    let refused = json!({"message": "You don't have permission to access this resource"});
    api.get("/service-accounts/acme").key(JOHN).await.expect_exactly(403, refused);
    let denied = json!({"message": "Access denied to /api/v2/user/non-existing-org-abc123"});
    api.put("/user/non-existing-org-abc123").await.expect_exactly(403, denied);
    api.get("/flows/acme").key("ev_wrong").await.expect_exactly(401, json!({"message": "Unauthorized"}));
}

/// The field, and what is said of what was sent, which both wordings quote.
#[apply(in_each_wording)]
async fn what_breaks_a_rule_is_said_alike(api: Api, _: Wording) {
    let control = json!({"identifier": "my-control", "name": "x"});
    api.post("/controls/acme").json(&control).await.created();
    api.given_flow("shop", TEMPLATE).await;
    api.post("/service-accounts/acme").json(json!({"name": "ci"})).await.created();
    let flow_name = r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\.\-_~]*$'";
    let trail_name = r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\-_.~]*$'";
    let dictionary = "Input should be a valid dictionary [input: ]";
    let fingerprint = "String should match pattern '^[a-f0-9]{64}$' [input: 7509e5bda0]";
    let required = "Field required [input: None]";
    let template = || json!({"name": "x", "description": ""});
    let with = |mut document: Value, key: &str, value: Value| {
        document[key] = value;
        document
    };
    let artifact = json!({"fingerprint": "a".repeat(64), "filename": "a", "build_url": "", "commit_url": ""});
    let link = json!({"log": {"href": "https://x.org", "fingerprint": "7509e5bda0"}});
    let bodies = [
        (
            api.put("/flows/acme"),
            with(template(), "name", json!("foo bar")),
            "name",
            format!("{flow_name} [input: foo bar]"),
        ),
        (api.put("/flows/acme"), json!({"name": "x"}), "description", required.to_owned()),
        (
            api.put("/flows/acme"),
            with(template(), "visibility", json!("")),
            "visibility",
            "Input should be 'public' or 'private' [input: ]".to_owned(),
        ),
        (
            api.put("/flows/acme/shop/rename"),
            json!({"new_name": "new illegal name"}),
            "new_name",
            format!("{flow_name} [input: new illegal name]"),
        ),
        (api.put("/trails/acme/shop"), json!({"name": "t"}), "data_json", required.to_owned()),
        (api.post("/custom-attestation-types/acme"), json!({"name": "t"}), "data_json", required.to_owned()),
        (
            api.post("/artifacts/acme/shop"),
            with(artifact.clone(), "external_urls", link),
            "external_urls.log.fingerprint",
            fingerprint.to_owned(),
        ),
        (
            api.post("/artifacts/acme/shop"),
            with(artifact, "external_urls", json!("")),
            "external_urls",
            dictionary.to_owned(),
        ),
        (
            api.post("/controls/acme"),
            json!({"identifier": "bad identifier", "name": "x"}),
            "identifier",
            r"String should match pattern '^[a-zA-Z0-9\-._~]+$' [input: bad identifier]".to_owned(),
        ),
        (api.put("/controls/acme/my-control"), json!({"links": ""}), "links", dictionary.to_owned()),
        (api.patch("/tags/acme/flow/shop"), json!({"set_tags": ""}), "set_tags", dictionary.to_owned()),
        (
            api.post("/service-accounts/acme"),
            json!({"name": "ci2", "privilege": ""}),
            "privilege",
            "Input should be 'reader', 'snapshotter', 'member' or 'admin' [input: ]".to_owned(),
        ),
        (
            api.post("/service-accounts/acme/ci/api-keys"),
            json!({"description": "x", "expires_at": ""}),
            "expires_at",
            "Input should be a valid integer [input: ]".to_owned(),
        ),
    ];
    for (request, body, field, text) in bodies {
        request.json(body).await.expect_exactly(400, json!({"message": INVALID, "errors": {field: text}}));
    }
    let wrong = api.put_trail("shop", &json!({"name": "foo?$bar"})).await;
    let text = format!("{trail_name} [input: foo?$bar]");
    wrong.expect_exactly(400, json!({"message": INVALID, "errors": {"name": text}}));

    let attestation = json!({"attestation_name": "x", "is_compliant": true});
    let url = "Input should be a valid URL, input is empty [input: ]";
    let unbound = "An attestation for an artifact that is not reported yet requires at least one of: \
        artifact_fingerprint or git_commit_info.";
    let attestations = [
        ("annotations", json!(""), dictionary),
        ("external_urls", json!(""), dictionary),
        ("git_commit_info", json!(""), dictionary),
        ("user_data", json!(""), "Input should be a valid dictionary or list [input: ]"),
        ("origin_url", json!(""), url),
        ("artifact_fingerprint", json!("7509e5bda0"), fingerprint),
        ("target_artifacts", json!(["cli"]), unbound),
    ];
    for (field, value, text) in attestations {
        let refused = api.attest("generic", &with(attestation.clone(), field, value)).await;
        refused.expect_exactly(400, json!({"message": INVALID, "errors": {field: text}}));
    }

    let integer = "Input should be a valid integer, unable to parse string as an integer [input: ]";
    let boolean = "Input should be a valid boolean, unable to interpret input [input: ]";
    let direction = "Input should be 'asc' or 'desc' [input: ]";
    let a_b = format!("{flow_name} [input: a b]");
    let queries = [
        ("/flows/acme?page=", "query.page", integer),
        ("/trails/acme?per_page=", "query.per_page", integer),
        ("/controls/acme?archived=", "query.archived", boolean),
        ("/controls/acme?sort_direction=", "query.sort_direction", direction),
        ("/repos/acme?sort_direction=", "query.sort_direction", direction),
        (
            "/repos/acme?provider=",
            "query.provider",
            "Input should be 'github', 'gitlab', 'bitbucket', 'bitbucket_cloud', 'bitbucket_dc', 'azure-devops', \
             'azure_devops_services', 'azure_devops_server', 'circleci', 'git' or 'subversion' [input: ]",
        ),
        ("/artifacts/acme?flow_name=a%20b", "query.flow_name", &a_b[..]),
        (
            "/search/acme/sha/abc",
            "search_value",
            "String should match pattern '^[a-f0-9]{5,64}$' [input: abc]",
        ),
    ];
    for (path, field, text) in queries {
        api.get(path).await.expect_exactly(400, json!({"message": INVALID, "errors": {field: text}}));
    }
    let empty = api.get("/flows/acme?search_by_name=").await;
    empty.expect_exactly(400, json!({"message": "Empty string is not allowed for flow names."}));

    // More than one error, each on a line of its own after this one.
    let wrong = "version: 1\ntrail:\n  attestations: [{name: x, type: not-supported}, {type: generic}]\n";
    for path in ["/trails/acme/shop", "/flows/acme/template_file"] {
        let refused =
            api.put(path).data_json(json!({"name": "t", "description": ""})).template(wrong).await.json();
        assert_eq!(refused["message"], INVALID);
        let text = refused["errors"]["template_file"].as_str().unwrap();
        assert!(text.starts_with("2 validation errors for Template\n"), "{text}");
    }
}
