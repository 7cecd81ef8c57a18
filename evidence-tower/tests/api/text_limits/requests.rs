//! A request of every operation that has a body, with every field that there is.

use http::Method;

use super::operations;

use crate::support::prelude::*;

/// A request whose body has every field that there is.
pub(crate) struct Full {
    pub(crate) operation: &'static str,
    path: String,
    pub(crate) body: Value,
    /// The parts of a form: that of the document, and that of a file and its content.
    form: Option<(&'static str, Option<(&'static str, &'static str)>)>,
}

pub(crate) fn fingerprint() -> String {
    "f".repeat(64)
}

fn commit(n: u32) -> Value {
    json!({
        "sha1": format!("{n:040x}"), "message": format!("message {n}"), "author": format!("author {n}"),
        "author_username": format!("username {n}"), "branch": format!("branch {n}"), "timestamp": 1_700_000_000 + n,
        "url": format!("https://e/{n}"), "parents": [format!("parent {n}")], "verified": true,
        "signature_state": format!("signed {n}"),
    })
}

fn repo() -> Value {
    json!({
        "name": "owner/repo", "url": "https://git.example.com/owner/repo", "id": "external 1", "description": "a repo",
        "provider": "gitlab", "namespace_path": ["owner namespace"], "additional_info": {"free": ["form", 71]},
    })
}

fn urls() -> Value {
    json!({"a label": {"href": "https://e/labelled", "fingerprint": "e".repeat(64)}})
}

fn attestation(name: &str, claim: Value) -> Value {
    let mut body = json!({
        "attestation_name": name, "origin_url": "https://e/origin", "description": "an attestation",
        "artifact_fingerprint": fingerprint(), "target_artifacts": ["target"], "git_commit_info": commit(5),
        "repo_info": repo(), "external_urls": urls(), "annotations": {"remark": "remarkable"},
        "user_data": {"anything": ["else", 72]},
    });
    let (Value::Object(body), Value::Object(claim)) = (&mut body, claim) else { unreachable!() };
    body.extend(claim);
    Value::Object(body.clone())
}

/// A target of an action with every field that there is; those that its type lacks are null.
fn target(given: Value) -> Value {
    let mut target = json!({
        "type": null, "webhook": null, "payload_version": null, "context": null, "emails": null,
        "last_success_at": null, "last_failure_at": null,
    });
    let (Value::Object(fields), Value::Object(given)) = (&mut target, given) else { unreachable!() };
    fields.extend(given);
    target
}

/// A finding of this severity.
fn found(severity: &str) -> Value {
    json!({
        "id": format!("a {severity} finding"), "message": format!("of {severity} severity"), "priority_score": 7.5,
        "locations": [{"uri": format!("{severity}.rs"), "lines": format!("1-{}", severity.len())}],
    })
}

/// A request of every operation that has a body, one after the other.
pub(crate) fn requests() -> Vec<Full> {
    let json = |operation, path: &str, body| Full { operation, path: path.to_owned(), body, form: None };
    let form = |operation, path: &str, body, part, file| Full {
        form: Some((part, file)),
        ..json(operation, path, body)
    };
    let attest = |operation, kind: &str, claim| {
        let path = format!("/attestations/acme/web/trail/t/{kind}");
        form(operation, &path, attestation(kind, claim), "data_json", None)
    };
    let running =
        |n: i64| json!([{"digests": {format!("image {n}"): format!("{n:064x}")}, "creationTimestamp": n}]);
    vec![
        form(
            "create_flow_with_template",
            "/flows/acme/template_file",
            json!({"name": "other", "description": "another flow", "visibility": "public"}),
            "data_json",
            None,
        ),
        json(
            "create_flow",
            "/flows/acme",
            json!({
                "name": "legacy", "description": "an older flow", "visibility": "public",
                "template": ["artifact", "unit-test"],
            }),
        ),
        json("rename_flow", "/flows/acme/legacy/rename", json!({"new_name": "renamed"})),
        form(
            "create_trail",
            "/trails/acme/web",
            json!({
                "name": "trail-2", "description": "a trail", "git_commit_info": commit(1), "repo_info": repo(),
                "origin_url": "https://e/begun", "external_urls": urls(), "user_data": {"a": [73, "trail's"]},
            }),
            "data_json",
            None,
        ),
        json(
            "create_artifact",
            "/artifacts/acme/web",
            json!({
                "trail_name": "t", "template_reference_name": "slot", "fingerprint": "c".repeat(64),
                "filename": "image:1", "description": "an artifact", "git_commit": format!("{:040x}", 2),
                "git_commit_info": commit(2), "repo_info": repo(), "commits_list": [commit(3), commit(4)],
                "repo_url": "https://e/repo", "is_compliant": true, "build_url": "https://e/build",
                "commit_url": "https://e/commit", "template": ["expected attestation"], "external_urls": urls(),
                "annotations": {"note": {"deep": [74]}}, "user_data": ["kept", 75],
            }),
        ),
        attest("post_generic_attestation", "generic", json!({"is_compliant": false})),
        attest(
            "post_junit_attestation",
            "junit",
            json!({"junit_results": [{
                "name": "a suite", "failures": 1, "errors": 2, "skipped": 3, "total": 4, "duration": 5.5,
                "timestamp": 1_700_000_100.25,
            }]}),
        ),
        attest(
            "post_jira_attestation",
            "jira",
            json!({"jira_results": [{
                "issue_id": "ML-50", "issue_url": "https://e/ML-50", "issue_exists": true,
                "issue_fields": {"summary": ["an issue", 78]},
            }]}),
        ),
        json(
            "post_override_attestation",
            "/attestations/acme/web/trail/t/override",
            attestation(
                "overridden",
                json!({
                    "reason": "another reason", "new_compliance_status": true,
                    "original_attestation_type": "custom:reviewed",
                }),
            ),
        ),
        attest(
            "post_pull_request_attestation",
            "pull_request",
            json!({"git_provider": "azure", "pull_requests": [{
                "url": "https://e/pr", "state": "merged", "title": "a title", "author": "an author",
                "head_ref": "a head", "base_ref": "a base", "merge_commit": format!("{:040x}", 77),
                "created_at": 1_700_000_200, "merged_at": 1_700_000_201,
                "approvers": [{"username": "an approver", "state": "APPROVED", "timestamp": 1_700_000_202}],
                "commits": [commit(6)],
            }]}),
        ),
        attest(
            "post_snyk_attestation",
            "snyk",
            json!({"snyk_results": {
                "schema_version": 7, "tool": {"name": "a scanner", "version": "1.0.0"}, "results": [{
                    "low_count": 1, "medium_count": 2, "high_count": 3,
                    "low": [found("low")], "medium": [found("medium")], "high": [found("high")],
                }],
            }}),
        ),
        attest(
            "post_sonar_attestation",
            "sonar",
            json!({"sonar_results": {
                "serverUrl": "https://e/sonar", "taskId": "a task", "status": "SUCCESS", "analysedAt": "1724052982",
                "revision": "a revision", "changedAt": "1724052983",
                "project": {"name": "a project", "key": "a key", "url": "https://e/project"},
                "branch": {"name": "a branch"}, "pullRequest": ["a pull request", 79],
                "qualityGate": {"name": "a gate", "status": "ERROR", "conditions": [{
                    "metric": "a metric", "errorThreshold": "80", "operator": "LESS_THAN", "status": "FAILED",
                    "value": "12.5", "onLeakPeriod": true,
                }]},
            }}),
        ),
        attest(
            "post_system_attestation",
            "system",
            json!({
                "type_name": "decision", "control": "SDLC-4",
                "attestation_data": {"is_compliant": true, "because": ["it was read", 80]},
            }),
        ),
        form(
            "post_custom_attestation_type",
            "/custom-attestation-types/acme",
            json!({
                "name": "review", "description": "a type", "evaluator": {"content_type": "jq", "rules": [".a"]},
                "summary": [{"name": "a summary", "expression": ".b"}],
            }),
            "data_json",
            None,
        ),
        attest(
            "post_custom_attestation",
            "custom",
            json!({"type_name": "review", "attestation_data": {"a": true, "found": ["nothing", 81]}}),
        ),
        json(
            "create_env",
            "/environments/acme",
            json!({
                "name": "all", "type": "logical", "description": "everything", "include_scaling": true,
                "require_provenance": false, "included_environments": ["e1"], "policies": [],
            }),
        ),
        json(
            "create_env",
            "/environments/acme",
            json!({
                "name": "e3", "type": "docker", "description": "more", "include_scaling": true,
                "require_provenance": true, "included_environments": [], "policies": ["p1"],
            }),
        ),
        json("join_physical_to_logical", "/environments/acme/all/join", json!({"physical_env_name": "e2"})),
        json("attach_policy_to_env", "/environments/acme/e1/policies", json!({"policy_names": ["p1"]})),
        json("detach_policy_from_env", "/environments/acme/e1/policies", json!({"policy_names": ["p1"]})),
        json(
            "update_env",
            "/environments/acme/all",
            json!({
                "description": "all of it", "include_scaling": false, "included_environments": ["e1"],
                "policies": [],
            }),
        ),
        json(
            "update_env",
            "/environments/acme/e3",
            json!({
                "description": "more of it", "include_scaling": false, "included_environments": [],
                "policies": ["p1"],
            }),
        ),
        json("rename_environment", "/environments/acme/old/rename", json!({"new_name": "renamed"})),
        json(
            "azure_apps_report",
            "/environments/acme/azure-apps/report/azure-apps",
            json!({"type": "azure-apps", "artifacts": [{
                "digests": {"shop": "a".repeat(64), "till": ""}, "digests_source": "acr", "app_name": "shop",
                "app_kind": "app", "creationTimestamp": 1,
            }]}),
        ),
        json(
            "cloud_run_report",
            "/environments/acme/cloud-run/report/cloud-run",
            json!({"type": "cloud-run", "artifacts": [{
                "digests": {"shop": ""}, "kind": "service", "serviceName": "shop", "revisionName": "shop-1",
                "jobName": "none", "creationTimestamp": 1,
            }]}),
        ),
        json(
            "ecs_report",
            "/environments/acme/ECS/report/ECS",
            json!({"type": "ECS", "artifacts": [{
                "digests": {"shop": ""}, "taskArn": "arn:aws:ecs:eu-central-1:1:task/t/1", "cluster_name": "c",
                "service_name": "s", "creationTimestamp": 1,
            }]}),
        ),
        json(
            "k8s_report",
            "/environments/acme/K8S/report/K8S",
            json!({"type": "K8S", "artifacts": [{
                "podName": "shop-1", "namespace": "default", "digests": {"shop": "a".repeat(64)}, "creationTimestamp": 1,
                "owners": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop", "uid": "u1", "controller": true,
                    "blockOwnerDeletion": true,
                }],
            }]}),
        ),
        json(
            "lambda_report",
            "/environments/acme/lambda/report/lambda",
            json!({"type": "lambda", "artifacts": running(83)}),
        ),
        json("s3_report", "/environments/acme/S3/report/S3", json!({"type": "S3", "artifacts": running(84)})),
        json(
            "docker_report",
            "/environments/acme/e1/report/docker",
            json!({"type": "docker", "artifacts": running(81)}),
        ),
        json(
            "server_report",
            "/environments/acme/s1/report/server",
            json!({"type": "server", "artifacts": running(82)}),
        ),
        form(
            "put_policy",
            "/policies/acme",
            json!({"name": "p2", "description": "a policy", "type": "env", "comment": "a comment"}),
            "payload",
            Some(("policy_file", PROVENANCE)),
        ),
        json(
            "create_or_update_env_action",
            "/actions/acme/environments",
            json!({
                "name": "an/action", "type": "env", "environments": ["e1"], "triggers": ["ON_STARTED_ARTIFACT"],
                "targets": [
                    target(json!({"type": "WEBHOOK", "webhook": "https://e.example/hook", "payload_version": "1.0"})),
                    target(json!({
                        "type": "SLACK", "webhook": "https://e.example/slack",
                        "context": {"channel_id": "C1", "channel_name": "releases", "team_id": "T1"},
                    })),
                    target(json!({"type": "EMAIL", "emails": ["jane@example.com"]})),
                    target(json!({"type": "SLACK", "webhook": "https://e.example/another"})),
                ],
            }),
        ),
        json(
            "create_or_update_flow_action",
            "/actions/acme/flows",
            json!({
                "name": "of-flows", "type": "flow", "flows": ["web"], "triggers": ["ON_ATTESTATION"],
                "targets": [target(json!({"type": "SLACK", "webhook": "https://e.example/flows"}))],
            }),
        ),
        json(
            "put_environment_notifications",
            "/organizations/acme/environments_notifications",
            json!({
                "name": "a-notification", "type": "env", "environments": ["e2"], "triggers": ["ON_EXITED_ARTIFACT"],
                "targets": [target(json!({"type": "SLACK", "webhook": "https://e.example/notified"}))],
            }),
        ),
        json(
            "update_environment_notification",
            "/organizations/acme/environments_notifications/1",
            json!({
                "name": "changed", "type": "env", "environments": ["e2"], "triggers": ["ON_COMPLIANT_ENV"],
                "targets": [target(json!({"type": "SLACK", "webhook": "https://e.example/changed"}))],
            }),
        ),
        json(
            "allow_artifact_for_env",
            "/allowlists/acme/e1",
            json!({
                "artifact_name": "allowed", "artifact_fingerprint": "d".repeat(64), "description": "a reason",
                "expires_at": 4_000_000_000_u64,
            }),
        ),
        json(
            "create_service_account",
            "/service-accounts/acme",
            json!({"name": "robot", "description": "a robot", "privilege": "reader"}),
        ),
        json(
            "update_service_account",
            "/service-accounts/acme/robot",
            json!({"description": "another robot", "privilege": "member"}),
        ),
        json(
            "create_service_account_api_key",
            "/service-accounts/acme/robot/api-keys",
            json!({"description": "a key", "expires_at": 4_000_000_000_u64}),
        ),
        json(
            "post_control",
            "/controls/acme",
            json!({
                "identifier": "SDLC-4", "name": "a control", "description": "a demand",
                "links": {"a link": "https://e/control"},
            }),
        ),
        json(
            "put_control",
            "/controls/acme/SDLC-4",
            json!({"name": "another control", "description": "another demand", "links": {"linked": "https://e/changed"}}),
        ),
        json(
            "patch_tags",
            "/tags/acme/flow/web",
            json!({"set_tags": {"tag": "tagged"}, "remove_tags": ["other-tag"]}),
        ),
    ]
}

impl Full {
    pub(super) async fn send(&self, api: &Api, body: &Value, document: &Value) -> Reply {
        self.send_text(api, &body.to_string(), document).await
    }

    /// Sends this text for the body.
    pub(crate) async fn send_text(&self, api: &Api, text: &str, document: &Value) -> Reply {
        let found = operations(document).find(|(.., operation)| operation["operationId"] == self.operation);
        let (method, ..) = found.unwrap();
        let request = api.request(method.to_uppercase().parse::<Method>().unwrap(), &self.path);
        let Some((part, file)) = self.form else {
            return request.bytes("application/json", text.to_owned()).await;
        };
        let document = format!("name=\"{part}\"");
        let file = file.map(|(part, content)| (format!("name=\"{part}\"; filename=\"f\""), content));
        let mut parts = vec![(document.as_str(), text)];
        parts.extend(file.as_ref().map(|(part, content)| (part.as_str(), *content)));
        request.form(&parts).await
    }
}

/// Makes the records that the requests need.
pub(crate) async fn prepare(api: &Api) {
    api.given_environments("docker", &["e1", "e2", "old"]).await;
    for kind in ["azure-apps", "cloud-run", "ECS", "K8S", "lambda", "S3"] {
        api.given_environments(kind, &[kind]).await;
    }
    api.given_environments("server", &["s1"]).await;
    api.put_policy("p1", PROVENANCE).await.created();
    api.post_artifact("web", fingerprint()).in_trail("t").await.created();
}
