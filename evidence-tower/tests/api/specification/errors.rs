//! Errors: each row of the table, with its status, its message and whether `errors` names a field.

use crate::support::prelude::*;

/// Asserts the row: the status, the message, and the one field that `errors` names.
#[track_caller]
fn expect_row(reply: Reply, status: u16, message: &str, field: &str) {
    let body = reply.expect(status, json!({ "message": message })).json();
    assert_eq!(crate::support::json::fields(&body["errors"]), [field], "{body}");
}

macro_rules! with_resources {
    ($($case:tt)*) => { case_of! { with_resources: $($case)* } };
}

/// Runs a case with a flow `shop`, a docker environment `prod` and a logical one, `all`.
fn with_resources(case: impl AsyncFn(Api)) {
    on_every_store(async |api| {
        api.given_flow("shop", "version: 1\n").await;
        api.given_environments("docker", &["prod"]).await;
        api.given_environments("logical", &["all"]).await;
        case(api).await;
    });
}

#[apply(with_resources)]
async fn error_400_payload_fails_validation(api: Api) {
    api.post("/service-accounts/acme").json(json!({"name": "ci"})).await.created();
    let reply = api.patch("/service-accounts/acme/ci").json(json!({"privilege": "owner"})).await;
    expect_row(reply, 400, "Input payload validation failed", "privilege");
}

#[apply(with_resources)]
async fn error_400_invalid_docker_report(api: Api) {
    let path = "/environments/acme/prod/report/docker";
    let reply = api.put(path).json(json!({"artifacts": 1})).await;
    expect_row(reply, 400, "Invalid report data", "artifacts");
    expect_row(api.put(path).bytes("application/json", "{").await, 400, "Invalid report data", "body");
}

#[apply(with_resources)]
async fn error_400_joining_a_non_physical_environment(api: Api) {
    let message = "Can only add physical environments to logical environments";
    let reply = api.put("/environments/acme/all/join").json(json!({"physical_env_name": "all"})).await;
    expect_row(reply, 400, message, "physical_env_name");
}

#[apply(with_resources)]
async fn error_400_repo_list_with_both_name_and_search(api: Api) {
    let reply = api.get("/repos/acme?name=a&search=b").await;
    assert_eq!(reply.error_message(400), "'name' and 'search' are mutually exclusive");
}

#[apply(with_resources)]
async fn error_403_no_permission(api: Api) {
    let refused: Value = json!({"message": "You don't have permission to access this resource"});
    api.get("/flows/acme/shop").key(JOHN).await.expect_exactly(403, refused.clone());
    api.put("/environments/acme/all/join")
        .key("reader-key")
        .json(json!({"physical_env_name": "prod"}))
        .await
        .expect_exactly(403, refused);
}

#[apply(with_resources)]
async fn error_404_unknown_organization(api: Api) {
    for path in ["/repos/nowhere", "/allowlists/nowhere", "/flows/nowhere/shop"] {
        expect_row(api.get(path).await, 404, "Organization not found", "org");
    }
}

#[apply(with_resources)]
async fn error_404_unknown_service_account(api: Api) {
    let reply = api.patch("/service-accounts/acme/none").json(json!({})).await;
    expect_row(reply, 404, "Service account not found", "name");
}

#[apply(with_resources)]
async fn error_404_unknown_environment(api: Api) {
    let report = json!({"artifacts": []});
    let reply = api.put("/environments/acme/none/report/docker").json(report).await;
    expect_row(reply, 404, "Environment not found", "env_name");
    for (path, physical, field) in [
        ("/environments/acme/none/join", "prod", "env_name"),
        ("/environments/acme/all/join", "none", "physical_env_name"),
    ] {
        let reply = api.put(path).json(json!({"physical_env_name": physical})).await;
        expect_row(reply, 404, "Environment not found", field);
    }
}

#[apply(with_resources)]
async fn error_404_unknown_flow(api: Api) {
    let rows = [
        ("/artifacts/acme/none/fingerprint/aaaaa", "flow_name"),
        ("/artifacts/acme/none/commit_sha/aaaaa", "flow_name"),
        ("/artifacts/acme/none/aaaaa/latest_commit", "flow_name"),
        ("/artifacts/acme?flow_name=none", "query.flow_name"),
        ("/flows/acme/none", "flow_name"),
        ("/trails/acme?flow=none", "query.flow"),
        ("/snapshots/acme/none", "env_name"),
    ];
    for (path, field) in rows {
        expect_row(api.get(path).await, 404, "Flow not found", field);
    }
}

#[apply(with_resources)]
async fn error_404_unknown_flow_or_trail(api: Api) {
    for (path, field) in
        [("/trails/acme/none/t/audit_pdf", "flow_name"), ("/trails/acme/shop/none/audit_pdf", "trail_name")]
    {
        expect_row(api.get(path).await, 404, "Flow or trail not found", field);
    }
}
