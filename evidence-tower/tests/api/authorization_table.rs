//! Rights: every operation is requested by every caller, for existing and missing records. An operation without a
//! row in the table fails.

use std::collections::BTreeMap;

use evidence_core::auth::{ApiKey, Role};
use evidence_core::seed::Seed;
use http::Method;
use http::header::AUTHORIZATION;

use crate::operation_paths::{self, routes};
use crate::support::{EXPIRED, KEYS, REVOKED};

/// The callers that get a response other than 401, 403 or 404 `Organization not found`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Allowed {
    /// Callers without a credential, too.
    ToStrangers,
    /// Callers with a credential.
    ToAnybody,
    /// Callers with at least this role in the organization.
    From(Role),
    /// Users who have a role in the organization; the others learn nothing of whether there is one: 403.
    ToItsUsers,
    /// The same, and outsiders where the flow is public.
    FromOrPublic(Role),
    /// Needs this role; on an existing account also admin, or having created it (jane created the test account).
    ToItsManagers(Role),
}
use Allowed::{From, FromOrPublic, ToAnybody, ToItsManagers, ToItsUsers, ToStrangers};

/// The body of a request.
#[derive(Debug, Clone, Copy)]
enum Sent {
    Nothing,
    Json(&'static str),
    Form(&'static str, &'static str),
}
use crate::support::prelude::*;
use Sent::{Form, Json, Nothing};

/// A row of the table.
struct Row {
    operation: &'static str,
    allowed: Allowed,
    sent: Sent,
    /// The status if all records in the path exist.
    found: u16,
    /// A parameter of the path, and what is answered when nothing has its name.
    missing: Option<(&'static str, u16)>,
}

const fn row(operation: &'static str, allowed: Allowed, sent: Sent, found: u16) -> Row {
    Row { operation, allowed, sent, found, missing: None }
}

impl Row {
    const fn without(self, parameter: &'static str, status: u16) -> Self {
        Self { missing: Some((parameter, status)), ..self }
    }

    /// The organizations and records that the operation is requested for.
    fn queries(&self) -> Vec<Of> {
        let mut queries = vec![Of::WhatExists];
        queries.extend(self.missing.map(|_| Of::WhatIsMissing));
        queries.extend(matches!(self.allowed, FromOrPublic(_)).then_some(Of::WhatIsPublic));
        queries
            .extend((!matches!(self.allowed, ToAnybody | ToStrangers)).then_some(Of::AnUnknownOrganization));
        queries
    }
}

const READS: Allowed = From(Role::Reader);
const READS_FLOW: Allowed = FromOrPublic(Role::Reader);
const REPORTS: Allowed = From(Role::Snapshotter);
const WRITES: Allowed = From(Role::Member);
const MANAGES: Allowed = ToItsManagers(Role::Snapshotter);

const ALLOWLIST_ENTRY: Sent = Json(
    r#"{"artifact_name": "x", "description": "known", "artifact_fingerprint": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#,
);
const ENVIRONMENT_ACTION: Sent =
    Json(r#"{"name": "a", "environments": ["prod"], "triggers": ["ON_STARTED_ARTIFACT"], "targets": []}"#);
const FLOW_ACTION: Sent =
    Json(r#"{"name": "f", "flows": ["shop"], "triggers": ["ON_STARTED_TRAIL"], "targets": []}"#);
const ARTIFACT: Sent = Json(
    r#"{"filename": "x", "build_url": "", "commit_url": "", "fingerprint": "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}"#,
);
const ENVIRONMENT: Sent = Json(r#"{"name": "new", "type": "docker", "description": ""}"#);
const GENERIC: Sent = Form("data_json", r#"{"attestation_name": "x", "is_compliant": true}"#);
const CUSTOM: Sent =
    Form("data_json", r#"{"attestation_name": "x", "type_name": "review", "attestation_data": {"a": 1}}"#);
const JIRA: Sent = Form("data_json", r#"{"attestation_name": "x", "jira_results": []}"#);
const JUNIT: Sent = Form("data_json", r#"{"attestation_name": "x", "junit_results": []}"#);
const OVERRIDE: Sent = Json(
    r#"{"attestation_name": "x", "reason": "r", "new_compliance_status": true, "original_attestation_type": "generic"}"#,
);
const PULL_REQUESTS: Sent =
    Form("data_json", r#"{"attestation_name": "x", "git_provider": "github", "pull_requests": []}"#);
const SNYK: Sent = Form(
    "data_json",
    r#"{"attestation_name": "x", "snyk_results": {"tool": {"name": "Snyk", "version": "1"}, "results": []}}"#,
);
const SONAR: Sent = Form(
    "data_json",
    r#"{"attestation_name": "x", "sonar_results": {"analysedAt": "1", "revision": "r", "project": {"key": "k", "url": "u"}}}"#,
);
const DECISION: Sent = Form(
    "data_json",
    r#"{"attestation_name": "x", "type_name": "decision", "control": "c1", "attestation_data": {"is_compliant": true}}"#,
);

/// The table, in the order of the documentation.
const TABLE: &[Row] = &[
    row("list_actions", READS, Nothing, 200),
    row("create_or_update_env_action", WRITES, ENVIRONMENT_ACTION, 200),
    row("create_or_update_flow_action", WRITES, FLOW_ACTION, 200),
    row("delete_action", WRITES, Nothing, 200).without("action_number", 404),
    row("get_action", READS, Nothing, 200).without("action_number", 404),
    row("list_allowlist", READS, Nothing, 200),
    row("allow_artifact_for_env", WRITES, ALLOWLIST_ENTRY, 201).without("env_name", 404),
    row("withdraw_artifact_from_env", WRITES, Nothing, 200).without("env_name", 404),
    row("list_artifacts", READS, Nothing, 200),
    row("create_artifact", WRITES, ARTIFACT, 201).without("flow_name", 201),
    row("get_artifact_by_commit_sha", READS_FLOW, Nothing, 200).without("flow_name", 404),
    row("get_artifact_by_fingerprint", READS_FLOW, Nothing, 200).without("flow_name", 404),
    row("get_latest_artifact_commit", READS_FLOW, Nothing, 200).without("flow_name", 404),
    row("get_audit_package", READS, Nothing, 200).without("flow_name", 404),
    row("assert_artifact", READS, Nothing, 200).without("fingerprint", 400),
    row("list_system_attestation_types", ToAnybody, Nothing, 200),
    row("get_attestations", READS, Nothing, 200),
    row("get_flow_attestations", READS, Nothing, 200).without("flow_name", 404),
    row("list_attestations_for_criteria", READS, Nothing, 200),
    row("get_artifact_attestation", READS_FLOW, Nothing, 200).without("flow_name", 404),
    row("get_attestation_evidence", READS_FLOW, Nothing, 200).without("attestation_id", 404),
    row("post_custom_attestation", WRITES, CUSTOM, 201).without("trail_name", 201),
    row("post_generic_attestation", WRITES, GENERIC, 201).without("trail_name", 201),
    row("post_jira_attestation", WRITES, JIRA, 201).without("flow_name", 201),
    row("post_junit_attestation", WRITES, JUNIT, 201).without("trail_name", 201),
    row("post_override_attestation", WRITES, OVERRIDE, 201).without("trail_name", 201),
    row("post_pull_request_attestation", WRITES, PULL_REQUESTS, 201).without("flow_name", 201),
    row("post_snyk_attestation", WRITES, SNYK, 201).without("trail_name", 201),
    row("post_sonar_attestation", WRITES, SONAR, 201).without("flow_name", 201),
    row("post_system_attestation", WRITES, DECISION, 201).without("trail_name", 201),
    row("get_trail_attestation", READS_FLOW, Nothing, 200).without("trail_name", 404),
    row("get_attestation_audit_package", READS, Nothing, 200).without("attestation_id", 404),
    row("list_builds", READS, Nothing, 200),
    row("build_statistics", READS, Nothing, 200),
    row("list_controls", READS, Nothing, 200),
    row("post_control", WRITES, Json(r#"{"identifier": "new", "name": "x"}"#), 201),
    row("list_control_tag_choices", READS, Nothing, 200),
    row("get_control", READS, Nothing, 200).without("identifier", 404),
    row("put_control", WRITES, Json("{}"), 200).without("identifier", 404),
    row("archive_control", WRITES, Nothing, 200).without("identifier", 404),
    row("unarchive_control", WRITES, Nothing, 200).without("identifier", 404),
    row("list_control_versions", READS, Nothing, 200).without("identifier", 404),
    row("get_control_version", READS, Nothing, 200).without("version_number", 404),
    row("get_control_coverage", READS, Nothing, 200).without("identifier", 404),
    row("list_control_decisions", READS, Nothing, 200).without("identifier", 404),
    row("get_control_decision", READS, Nothing, 200).without("decision_id", 404),
    row("list_deployments", READS, Nothing, 200),
    row("get_deployment", READS, Nothing, 200).without("env_name", 404),
    row("get_custom_attestation_types", READS, Nothing, 200),
    row("post_custom_attestation_type", WRITES, Form("data_json", r#"{"name": "x"}"#), 201),
    row("get_custom_attestation_type", READS, Nothing, 200).without("custom_attestation_type_name", 404),
    row("archive_custom_attestation_type", WRITES, Nothing, 200).without("custom_attestation_type_name", 404),
    row("list_envs", READS, Nothing, 200),
    row("create_env", REPORTS, ENVIRONMENT, 201),
    row("get_environment", READS, Nothing, 200).without("env_name", 404),
    row("get_deployment_frequency", READS, Nothing, 200).without("env_name", 404),
    row("list_env_deployments", READS, Nothing, 200).without("env_name", 404),
    row("join_physical_to_logical", WRITES, Json(r#"{"physical_env_name": "prod"}"#), 200)
        .without("env_name", 404),
    row("attach_policy_to_env", WRITES, Json(r#"{"policy_names": ["p"]}"#), 200).without("env_name", 404),
    row("detach_policy_from_env", WRITES, Json(r#"{"policy_names": ["p"]}"#), 200).without("env_name", 404),
    row("update_env", WRITES, Json(r#"{"description": "new"}"#), 200).without("env_name", 404),
    row("rename_environment", WRITES, Json(r#"{"new_name": "renamed"}"#), 200).without("env_name", 404),
    row("get_env_events", READS, Nothing, 200).without("env_name", 404),
    row("get_env_auditlog", READS, Nothing, 200).without("env_name", 404),
    row("archive_env", WRITES, Nothing, 200).without("env_name", 404),
    row("docker_report", REPORTS, Json(r#"{"artifacts": []}"#), 200).without("env_name", 404),
    row("azure_apps_report", REPORTS, Json(r#"{"artifacts": []}"#), 201).without("env_name", 404),
    row("cloud_run_report", REPORTS, Json(r#"{"artifacts": []}"#), 201).without("env_name", 404),
    row("ecs_report", REPORTS, Json(r#"{"artifacts": []}"#), 201).without("env_name", 404),
    row("k8s_report", REPORTS, Json(r#"{"artifacts": []}"#), 201).without("env_name", 404),
    row("lambda_report", REPORTS, Json(r#"{"artifacts": []}"#), 201).without("env_name", 404),
    row("s3_report", REPORTS, Json(r#"{"artifacts": []}"#), 201).without("env_name", 404),
    row("server_report", REPORTS, Json(r#"{"artifacts": []}"#), 201).without("env_name", 404),
    row("get_flows", READS, Nothing, 200),
    row("create_flow_with_template", WRITES, Form("data_json", r#"{"name": "new", "description": ""}"#), 201),
    row("create_flow", WRITES, Json(r#"{"name": "new", "description": "", "template": []}"#), 201),
    row("get_flow", READS_FLOW, Nothing, 200).without("flow_name", 404),
    row("archive_flow", WRITES, Nothing, 200).without("flow_name", 404),
    row("rename_flow", WRITES, Json(r#"{"new_name": "renamed"}"#), 200).without("flow_name", 404),
    row("list_ledger_keys", ToStrangers, Nothing, 200),
    row("get_ledger_checkpoint", READS, Nothing, 200),
    row("get_ledger_consistency", READS, Nothing, 200),
    row("get_ledger_entries", READS, Nothing, 200).without("index", 404),
    row("get_ledger_proof", READS, Nothing, 200).without("record_id", 404),
    row("get_ledger_tile", READS, Nothing, 200).without("tile", 400),
    row("get_limits", ToAnybody, Nothing, 200),
    row("list_audit_log", READS, Nothing, 200),
    row("get_organization", READS, Nothing, 200),
    row("get_environment_notifications", READS, Nothing, 200),
    row("put_environment_notifications", WRITES, ENVIRONMENT_ACTION, 200),
    row("delete_environment_notification", WRITES, Nothing, 200).without("notification_number", 404),
    row("get_environment_notification", READS, Nothing, 200).without("notification_number", 404),
    row("update_environment_notification", WRITES, ENVIRONMENT_ACTION, 200)
        .without("notification_number", 404),
    row("list_policies", READS, Nothing, 200),
    row("put_policy", WRITES, Form("payload", r#"{"name": "p"}"#), 200),
    row("get_policy", READS, Nothing, 200).without("policy_name", 404),
    row("list_repos", READS, Nothing, 200),
    row("list_repo_filter_options", READS, Nothing, 200),
    row("list_repo_tag_choices", READS, Nothing, 200),
    row("get_repo_live_artifacts", READS, Nothing, 200).without("repo_name", 404),
    row("get_repo_deployment_statistics", READS, Nothing, 200).without("repo", 404),
    row("list_repo_deployments", READS, Nothing, 200).without("repo", 404),
    row("get_repo", READS, Nothing, 200).without("repo_name", 404),
    row("environment_policy_schema_v1", ToAnybody, Nothing, 200),
    row("flow_template_schema_v1", ToAnybody, Nothing, 200),
    row("get_search", READS, Nothing, 200).without("search_value", 404),
    row("list_service_accounts", READS, Nothing, 200),
    row("create_service_account", REPORTS, Json(r#"{"name": "new"}"#), 201),
    row("get_service_account", READS, Nothing, 200).without("name", 404),
    row("update_service_account", MANAGES, Json("{}"), 200).without("name", 404),
    row("delete_service_account", MANAGES, Nothing, 200).without("name", 404),
    row("list_service_account_api_keys", READS, Nothing, 200).without("name", 404),
    row("create_service_account_api_key", MANAGES, Json(r#"{"description": "x"}"#), 201).without("name", 404),
    row("delete_service_account_api_key", MANAGES, Nothing, 200).without("name", 404),
    row("get_service_account_api_key", READS, Nothing, 200).without("key_id", 404),
    row("rotate_service_account_api_key", MANAGES, Json("{}"), 201).without("name", 404),
    row("list_snapshots", READS, Nothing, 200).without("env_name", 404),
    row("get_snapshot", READS, Nothing, 200).without("snapshot_expression", 404),
    row("environment_diff", READS, Nothing, 200),
    row("patch_tags", WRITES, Json("{}"), 200).without("resource_id", 404),
    row("list_trails_for_org", READS, Nothing, 200),
    row("list_trails", READS, Nothing, 200).without("flow_name", 404),
    row("create_trail", WRITES, Form("data_json", r#"{"name": "new"}"#), 201).without("flow_name", 201),
    row("get_trail", READS_FLOW, Nothing, 200).without("trail_name", 404),
    row("download_trail_audit_package", READS, Nothing, 200).without("trail_name", 404),
    row("download_trail_audit_pdf", READS_FLOW, Nothing, 200).without("trail_name", 404),
    row("get_user_default_org", ToAnybody, Nothing, 200),
    row("put_user_default_org", ToItsUsers, Nothing, 200),
];

/// A caller.
#[derive(Debug, Clone)]
enum Caller {
    /// An unknown caller with this header.
    Stranger(Option<String>),
    /// Somebody of another organization, with this key.
    Outsider(String),
    /// Somebody of `acme`.
    Insider(Role, &'static str),
}

impl Caller {
    fn strangers() -> Vec<Self> {
        let headers = [
            "Bearer".to_owned(),
            "Token jane-key".to_owned(),
            "Bearer unknown".to_owned(),
            format!("Bearer {EXPIRED}"),
            format!("Bearer {REVOKED}"),
        ];
        headers.into_iter().map(Some).chain([None]).map(Self::Stranger).collect()
    }

    fn insiders() -> Vec<Self> {
        let accounts = KEYS.map(|(role, key)| Self::Insider(role, key));
        accounts.into_iter().chain([Self::Insider(Role::Admin, JANE)]).collect()
    }

    fn send(&self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Self::Stranger(None) => request.anonymous(),
            Self::Stranger(Some(header)) => request.header(AUTHORIZATION, header.as_str()),
            Self::Outsider(key) => request.key(key),
            Self::Insider(_, key) => request.key(key),
        }
    }
}

/// Of what the operation is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Of {
    WhatExists,
    WhatIsPublic,
    WhatIsMissing,
    AnUnknownOrganization,
}

/// The status that the table expects.
fn expected(row: &Row, caller: &Caller, of: Of) -> u16 {
    let status = match (of, row.missing) {
        (Of::WhatIsMissing, Some((_, status))) => status,
        _ => row.found,
    };
    match (caller, row.allowed) {
        (_, ToStrangers) => status,
        (Caller::Stranger(_), _) => 401,
        (_, ToAnybody) => status,
        (Caller::Insider(_, JANE), ToItsUsers) if of == Of::WhatExists => status,
        (_, ToItsUsers) => 403,
        _ if of == Of::AnUnknownOrganization => 404,
        (Caller::Outsider(_), FromOrPublic(_)) if of == Of::WhatIsPublic => status,
        (Caller::Outsider(_), _) => 403,
        (Caller::Insider(role, _), From(least) | FromOrPublic(least)) if *role >= least => status,
        (Caller::Insider(Role::Admin, _), ToItsManagers(_)) => status,
        (Caller::Insider(role, _), ToItsManagers(least)) if *role >= least && of == Of::WhatIsMissing => {
            status
        }
        (Caller::Insider(..), _) => 403,
    }
}

/// A service in which everything exists once, and the names of it.
struct World {
    api: Api,
    names: BTreeMap<&'static str, String>,
    outsiders: Vec<Caller>,
}

impl World {
    async fn new() -> Self {
        let evidence = in_memory().await;
        // An organization whose name begins as the other's does.
        let (user, orgs) = ("joan".parse().unwrap(), vec!["acmeshop".parse().unwrap()]);
        let api_key = Some(ApiKey::imported("joan-key".to_owned()));
        evidence.seed(&Seed { user, orgs, api_key }).await.unwrap();
        let api = Api::new(evidence, Mount::Tower, "memory").await;
        api.given_environments("docker", &["prod"]).await;
        api.given_environments("server", &["machine"]).await;
        for kind in ["logical", "azure-apps", "cloud-run", "ECS", "K8S", "lambda", "S3"] {
            api.given_environments(kind, &[kind]).await;
        }
        api.report_running("prod", &[]).await.created();
        api.put_policy("p", crate::support::environments::PROVENANCE).await.created();
        api.post("/custom-attestation-types/acme").data_json(json!({"name": "review"})).await.created();
        api.post_control("c1").await.created();
        api.post("/service-accounts/acme").json(json!({"name": "ci"})).await.created();
        let key =
            api.post("/service-accounts/acme/ci/api-keys").json(json!({"description": "x"})).await.created();
        for (flow, visibility) in [("shop", "private"), ("open", "public")] {
            let document = json!({"name": flow, "description": "", "visibility": visibility}).to_string();
            api.put("/flows/acme/template_file").data_json(&document).await.created();
            api.post_artifact(flow, "a".repeat(64))
                .with(json!({
                    "trail_name": "t", "git_commit": COMMIT,
                    "repo_info": {"name": "acme/shop", "url": "https://git.example.com/acme/shop"},
                }))
                .await
                .created();
            let attest =
                api.post_generic_attestation(flow, "bar", true).file("attachment_file", "a.txt", "hello");
            attest.await.created();
        }
        for (path, sent) in [("environments", ENVIRONMENT_ACTION), ("flows", FLOW_ACTION)] {
            let Json(text) = sent else { unreachable!() };
            api.put(&format!("/actions/acme/{path}")).bytes("application/json", text).await.created();
        }
        let decision = r#"{"attestation_name": "decided", "type_name": "decision", "control": "c1",
            "attestation_data": {"is_compliant": true}}"#;
        api.post_attestation("shop", "t", "system").data_json(decision).await.created();
        let Json(allowlist_entry) = ALLOWLIST_ENTRY else { unreachable!() };
        api.put("/allowlists/acme/prod").bytes("application/json", allowlist_entry).await.created();
        let decisions = api.get("/controls/acme/c1/decisions").await.ok();
        let repos = api.get("/repos/acme").await.ok();
        api.report_running("prod", &[('a', &[1])]).await.created();
        api.report_running("prod", &[]).await.created();
        let names = [
            ("repo", repos["repos"][0]["id"].as_str().unwrap()),
            ("decision_id", decisions["decisions"][0]["decision_id"].as_str().unwrap()),
            ("flow_name", "shop"),
            ("trail_name", "t"),
            ("fingerprint", &"a".repeat(64)),
            ("commit_sha", COMMIT),
            ("search_value", &COMMIT[..7]),
            ("attestation_name", "bar"),
            ("custom_attestation_type_name", "review"),
            ("identifier", "c1"),
            ("version_number", "1"),
            ("action_number", "1"),
            ("notification_number", "1"),
            ("env_name", "prod"),
            ("snapshot_expression", "1"),
            ("policy_name", "p"),
            ("repo_name", "acme/shop"),
            ("name", "ci"),
            ("key_id", key["id"].as_str().unwrap()),
            ("resource_type", "flow"),
            ("index", "0"),
            ("record_id", "0"),
            ("tile", "0/000.p/1"),
            ("resource_id", "shop"),
        ];
        let names = names.map(|(parameter, name)| (parameter, name.to_owned())).into();
        let outsiders = outsiders(&api).await;
        Self { api, names, outsiders }
    }

    /// The path of an operation, with names put in.
    async fn path(&self, row: &Row, template: &str, of: Of) -> String {
        let mut names = self.names.clone();
        let org = if of == Of::AnUnknownOrganization { "acme-shop" } else { "acme" };
        names.insert("org", org.to_owned());
        match row.operation {
            "server_report" => names.insert("env_name", "machine".to_owned()),
            "azure_apps_report" => names.insert("env_name", "azure-apps".to_owned()),
            "cloud_run_report" => names.insert("env_name", "cloud-run".to_owned()),
            "ecs_report" => names.insert("env_name", "ECS".to_owned()),
            "k8s_report" => names.insert("env_name", "K8S".to_owned()),
            "lambda_report" => names.insert("env_name", "lambda".to_owned()),
            "s3_report" => names.insert("env_name", "S3".to_owned()),
            "join_physical_to_logical" => names.insert("env_name", "logical".to_owned()),
            _ => None,
        };
        if of == Of::WhatIsPublic {
            names.insert("flow_name", "open".to_owned());
        }
        if let (Of::WhatIsMissing, Some((parameter, _))) = (of, row.missing) {
            // As long as the shortest beginning of a digest that is looked for.
            names.insert(parameter, "99999".to_owned());
        }
        if template.contains("{attestation_id}") && !names.contains_key("attestation_id") {
            let attestation = format!("/attestations/acme/{}/trail/t/bar", names["flow_name"]);
            let found = self.api.get(&attestation).await.ok();
            names.insert("attestation_id", found[0]["attestation_id"].as_str().unwrap().to_owned());
        }
        let path = operation_paths::path(template, &names, file!());
        // The operations that do not work without a parameter of the query.
        match row.operation {
            "list_attestations_for_criteria" => format!("{path}?commit_list={}", "9".repeat(40)),
            "get_ledger_consistency" => format!("{path}?from=1"),
            "environment_diff" => format!("{path}?snappish1=prod&snappish2=prod%7E0"),
            _ => path,
        }
    }
}

/// Administrators of the other organizations, and a service account of each role in one of them.
async fn outsiders(api: &Api) -> Vec<Caller> {
    let mut outsiders = vec![Caller::Outsider(JOHN.to_owned()), Caller::Outsider("joan-key".to_owned())];
    for privilege in ["reader", "snapshotter", "member", "admin"] {
        let account = json!({"name": privilege, "privilege": privilege});
        api.post("/service-accounts/foobar").key(JOHN).json(account).await.created();
        let keys = format!("/service-accounts/foobar/{privilege}/api-keys");
        let key = api.post(&keys).key(JOHN).json(json!({"description": "x"})).await.created();
        outsiders.push(Caller::Outsider(key["key"].as_str().unwrap().to_owned()));
    }
    outsiders
}

impl World {
    async fn request(
        &self,
        row: &Row,
        (method, template): &(Method, &str),
        caller: &Caller,
        of: Of,
    ) -> Reply {
        let path = self.path(row, template, of).await;
        let request = caller.send(self.api.request(method.clone(), &path));
        match row.sent {
            Nothing => request.await,
            Json(text) => request.bytes("application/json", text).await,
            Form(part, text) => request.form(&[(&format!("name=\"{part}\""), text)]).await,
        }
    }
}

#[test]
fn every_operation_has_one_row() {
    let mut wrong = Vec::new();
    let mut left = routes();
    for Row { operation, .. } in TABLE {
        if left.remove(operation).is_none() {
            wrong.push(format!(
                "{operation}: it has two rows, or is no operation of the API: remove this row"
            ));
        }
    }
    let missing = |(operation, (method, path))| {
        format!("{operation} ({method} {path}): it has no row: add one that says who may call it")
    };
    wrong.extend(left.into_iter().map(missing));
    assert!(wrong.is_empty(), "TABLE in {}:\n{}", file!(), wrong.join("\n"));
}

#[tokio::test]
async fn everybody_gets_what_the_table_says_and_nothing_else() {
    let routes = routes();
    let mut world = World::new().await;
    for row in TABLE {
        let route = &routes[row.operation];
        let callers = [Caller::strangers(), world.outsiders.clone(), Caller::insiders()].concat();
        for caller in &callers {
            for of in row.queries() {
                let reply = world.request(row, route, caller, of).await;
                let wanted = expected(row, caller, of);
                let context = format!("{} asked by {caller:?} of {of:?}", row.operation);
                assert_eq!(reply.status.as_u16(), wanted, "{context}: {reply:?}");
                // A refused request changes nothing. After a successful write the world is made again, with the same keys.
                if reply.status.is_success() && route.0 != Method::GET {
                    world = World::new().await;
                }
            }
        }
    }
}

/// The user name is jane's key.
#[tokio::test]
async fn only_the_repo_list_takes_basic() {
    let routes = routes();
    let world = World::new().await;
    let caller = Caller::Stranger(Some("Basic amFuZS1rZXk6".to_owned()));
    for row in TABLE {
        let reply = world.request(row, &routes[row.operation], &caller, Of::WhatExists).await;
        let status = if ["list_ledger_keys", "list_repos"].contains(&row.operation) { 200 } else { 401 };
        assert_eq!(reply.status, status, "{}: {reply:?}", row.operation);
    }
}

/// The ids of an artifact, an attestation, a repo and an API key of `acme`, all of them in the private flow `shop` where
/// they are in one.
async fn ids(world: &World) -> [String; 4] {
    let id = |value: &Value| value.as_str().unwrap().to_owned();
    let artifact = world.api.get("/artifacts/acme/shop/fingerprint/aaaaa").await.ok();
    let attestation = world.api.get("/attestations/acme/shop/trail/t/bar").await.ok();
    world
        .api
        .given_artifact_from_repo(&json!({"name": "acme/shop", "url": "https://git.example.com/acme/shop"}))
        .await;
    let repos = world.api.get("/repos/acme").await.ok();
    let key = world.names["key_id"].clone();
    [id(&artifact["id"]), id(&attestation[0]["attestation_id"]), id(&repos["repos"][0]["id"]), key]
}

#[tokio::test]
async fn a_public_flow_opens_nothing_of_a_private_one() {
    let world = World::new().await;
    let [artifact, attestation, ..] = ids(&world).await;
    let rows = [
        (format!("/artifacts/acme/open/fingerprint/aaaaa?attestation_id={artifact}"), "Artifact not found"),
        (
            format!("/attestations/acme/open/trail/t/attestation/{attestation}/evidence"),
            "Attestation not found",
        ),
    ];
    for (path, message) in rows {
        assert_eq!(world.api.get(&path).key(JOHN).await.error_message(404), message, "{path}");
    }
}

#[tokio::test]
async fn an_id_means_nothing_in_another_organization() {
    let world = World::new().await;
    let [artifact, attestation, repo, key] = ids(&world).await;
    let api = &world.api;
    let same = json!({"fingerprint": "a".repeat(64), "filename": "x", "trail_name": "t", "build_url": "", "commit_url": ""});
    api.post("/artifacts/foobar/shop").key(JOHN).json(same).await.created();
    api.post("/service-accounts/foobar").key(JOHN).json(json!({"name": "ci"})).await.created();

    let listed = api.get(&format!("/attestations/foobar?attestation_id={attestation}")).key(JOHN).await;
    assert_eq!(listed.ok()["data"], json!([]));
    let reads = [
        (format!("/artifacts/foobar/shop/fingerprint/aaaaa?attestation_id={artifact}"), "Artifact not found"),
        (
            format!("/attestations/foobar/shop/trail/t/attestation/{attestation}/evidence"),
            "Attestation not found",
        ),
        (format!("/service-accounts/foobar/ci/api-keys/{key}"), "API key not found"),
    ];
    for (path, message) in reads {
        assert_eq!(api.get(&path).key(JOHN).await.error_message(404), message, "{path}");
    }
    let key = format!("/service-accounts/foobar/ci/api-keys/{key}");
    assert_eq!(api.delete(&key).key(JOHN).await.error_message(404), "API key not found");
    let tag = api.patch(&format!("/tags/foobar/repo/{repo}")).key(JOHN).json(json!({"set_tags": {"a": "b"}}));
    assert_eq!(tag.await.error_message(404), "Resource not found");
}
