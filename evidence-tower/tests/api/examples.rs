//! The examples of the OpenAPI document are calls that run: a team's first days, at fixed times and with fixed ids. Each
//! call and its answer is compared with what the document shows; `EVIDENCE_WRITE_EXAMPLES=1` writes that again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use evidence_conformance::memory::MemoryStore;
use evidence_core::auth::ApiKey;
use evidence_core::seed::Seed;
use evidence_tower::openapi;
use http::Method;
use serde_json::Map;

use crate::operation_paths::routes;
use crate::support::Counter;
use crate::support::LEDGERS;
use crate::support::prelude::*;
use crate::support::stubs::SignedInMemory;

const FINGERPRINT: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const COMMIT: &str = "3f786850e387550fdab836ed7e6dc881de23001b";
const TEMPLATE: &str = "\
version: 1
trail:
  attestations:
    - name: review
      type: pull_request
  artifacts:
    - name: shop
      attestations:
        - name: unit-tests
          type: junit
";
const POLICY: &str = "\
_schema: https://example.com/schemas/policy/v1
artifacts:
  provenance:
    required: true
  trail-compliance:
    required: true
";

/// The body of a call.
enum Sent {
    Nothing,
    Json(Value),
    /// The parts of a form: objects as JSON, texts as files.
    Form(Value),
}

/// The calls so far.
struct Calls {
    api: Api,
    clock: Arc<ManualClock>,
    routes: BTreeMap<&'static str, (Method, &'static str)>,
    shown: Map<String, Value>,
}

impl Calls {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let settings =
            Settings { public_url: "https://evidence.example.com".to_owned(), ..Settings::default() };
        let random = Arc::new(Counter::default());
        let store = Arc::new(MemoryStore::new());
        let service = Evidence::with_sources(store, settings, Arc::clone(&clock) as _, random);
        let service = service.with_ledger_keys(SignedInMemory::default().keys(LEDGERS, 7));
        let api_key = Some(ApiKey::imported(JANE.to_owned()));
        let orgs = vec!["acme".parse().unwrap()];
        service.seed(&Seed { user: "jane".parse().unwrap(), orgs, api_key }).await.unwrap();
        let api = Api::new(service, Mount::Tower, "memory").await;
        Self { api, clock, routes: routes(), shown: Map::new() }
    }

    /// Calls an operation, a minute after the last call: parameters that its path does not name are the query's.
    async fn call(&self, operation: &str, parameters: &Value, sent: &Sent) -> Reply {
        self.clock.advance(Duration::from_secs(60));
        let (method, template) = &self.routes[operation];
        let (mut path, mut query) = ((*template).to_owned(), Vec::new());
        for (name, value) in parameters.as_object().unwrap() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let parameter = format!("{{{name}}}");
            if path.contains(&parameter) {
                path = path.replace(&parameter, &text);
            } else {
                query.push(format!("{name}={text}"));
            }
        }
        assert!(!path.contains('{'), "{path}");
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        let request = self.api.request(method.clone(), &format!("{path}{query}"));
        match sent {
            Sent::Nothing => request.await,
            Sent::Json(body) => request.json(body).await,
            Sent::Form(parts) => {
                let part = |(name, content): (&String, &Value)| match content.as_str() {
                    Some(text) => (format!("name=\"{name}\"; filename=\"{name}.txt\""), text.to_owned()),
                    None => (format!("name=\"{name}\""), content.to_string()),
                };
                let parts = Vec::from_iter(parts.as_object().unwrap().iter().map(part));
                let parts = Vec::from_iter(parts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
                request.form(&parts).await
            }
        }
    }

    /// The same as an example, which answers with `status`.
    async fn show(&mut self, operation: &str, status: u16, parameters: Value, sent: Sent) -> Value {
        let reply = self.call(operation, &parameters, &sent).await;
        assert_eq!(reply.status, status, "{operation}: {:?}", reply.body);
        let mut example = json!({ "parameters": parameters });
        if let Sent::Json(body) | Sent::Form(body) = sent {
            example["body"] = body;
        }
        example["status"] = json!(status);
        let is_json = reply.headers.get("content-type").is_some_and(|kind| kind == "application/json");
        let answer = if is_json { reply.json() } else { Value::Null };
        if is_json {
            example["answer"] = answer.clone();
        }
        let before = self.shown.insert(operation.to_owned(), example);
        assert!(before.is_none(), "{operation} has one example");
        answer
    }

    async fn get(&mut self, operation: &str, parameters: Value) -> Value {
        self.show(operation, 200, parameters, Sent::Nothing).await
    }

    async fn build(&mut self) {
        let in_flow = json!({"org": "acme", "flow_name": "shop"});
        let in_trail = json!({"org": "acme", "flow_name": "shop", "trail_name": "build-812"});
        let commit = json!({
            "sha1": COMMIT, "message": "Show what is in stock", "author": "Ann Lee <ann@example.com>",
            "branch": "main", "timestamp": 1_783_538_000, "url": format!("https://github.com/acme/shop/commit/{COMMIT}"),
        });
        let repo = json!({"name": "acme/shop", "url": "https://github.com/acme/shop", "id": "4711", "provider": "github"});
        let flow = json!({"name": "shop", "description": "The web shop", "visibility": "private"});
        let flow = Sent::Form(json!({"data_json": flow, "template_file": TEMPLATE}));
        self.show("create_flow_with_template", 201, json!({"org": "acme"}), flow).await;
        let trail = json!({
            "name": "build-812", "description": "Show what is in stock", "git_commit_info": commit,
            "repo_info": repo, "origin_url": "https://ci.example.com/shop/812",
        });
        let trail = Sent::Form(json!({ "data_json": trail }));
        self.show("create_trail", 201, in_flow.clone(), trail).await;
        let artifact = json!({
            "trail_name": "build-812", "template_reference_name": "shop", "fingerprint": FINGERPRINT,
            "filename": "registry.example.com/shop:812", "git_commit": COMMIT, "git_commit_info": commit,
            "repo_info": repo, "build_url": "https://ci.example.com/shop/812",
            "commit_url": format!("https://github.com/acme/shop/commit/{COMMIT}"),
        });
        self.show("create_artifact", 201, in_flow, Sent::Json(artifact)).await;
        let pull_request = json!({
            "url": "https://github.com/acme/shop/pull/91", "state": "MERGED", "title": "Show what is in stock",
            "author": "ann", "head_ref": "stock", "base_ref": "main", "merge_commit": COMMIT,
            "created_at": 1_783_530_000, "merged_at": 1_783_538_000,
            "approvers": [{"username": "bob", "state": "APPROVED", "timestamp": 1_783_537_000}],
        });
        let review =
            json!({"attestation_name": "review", "git_provider": "github", "pull_requests": [pull_request]});
        let review = Sent::Form(json!({ "data_json": review }));
        self.show("post_pull_request_attestation", 201, in_trail.clone(), review).await;
        let suite = json!({
            "name": "shop", "failures": 0, "errors": 0, "skipped": 1, "total": 240, "duration": 12.5,
        });
        let tests = json!({
            "attestation_name": "unit-tests", "target_artifacts": ["shop"], "artifact_fingerprint": FINGERPRINT,
            "junit_results": [suite],
        });
        let tests = Sent::Form(json!({ "data_json": tests }));
        self.show("post_junit_attestation", 201, in_trail.clone(), tests).await;
        let licences = json!({
            "attestation_name": "licences", "is_compliant": true, "description": "No licence that we do not take",
        });
        let files = json!({"data_json": licences, "attachment_file": "serde MIT\ntokio MIT\n"});
        self.show("post_generic_attestation", 201, in_trail.clone(), Sent::Form(files)).await;
        self.scan(in_trail).await;
    }

    async fn scan(&mut self, in_trail: Value) {
        let issue = json!({
            "issue_id": "SHOP-17", "issue_url": "https://acme.atlassian.net/browse/SHOP-17", "issue_exists": true,
        });
        let issues = Sent::Form(json!({"data_json": {"attestation_name": "issue", "jira_results": [issue]}}));
        self.show("post_jira_attestation", 201, in_trail.clone(), issues).await;
        let found = json!({
            "schema_version": 1, "tool": {"name": "SnykCode", "version": "1.0.0"},
            "results": [{"high_count": 0, "medium_count": 0, "low_count": 0, "high": [], "medium": [], "low": []}],
        });
        let found = Sent::Form(json!({"data_json": {"attestation_name": "scan", "snyk_results": found}}));
        self.show("post_snyk_attestation", 201, in_trail.clone(), found).await;
        let condition = json!({
            "metric": "new_coverage", "errorThreshold": "80", "operator": "LESS_THAN", "status": "OK", "value": "91.4",
        });
        let analysis = json!({
            "serverUrl": "https://sonar.example.com", "taskId": "AZ81", "status": "SUCCESS", "analysedAt": "1783538400",
            "revision": COMMIT,
            "project": {"key": "shop", "name": "Shop", "url": "https://sonar.example.com/dashboard?id=shop"},
            "qualityGate": {"name": "Sonar way", "status": "OK", "conditions": [condition]},
        });
        let analysis = json!({"attestation_name": "analysis", "sonar_results": analysis});
        let analysis = Sent::Form(json!({ "data_json": analysis }));
        self.show("post_sonar_attestation", 201, in_trail.clone(), analysis).await;
        let overriding = Sent::Json(json!({
            "attestation_name": "scan", "reason": "The finding is not in what is shipped",
            "new_compliance_status": true, "original_attestation_type": "snyk",
        }));
        self.show("post_override_attestation", 201, in_trail.clone(), overriding).await;
        let decision = json!({
            "attestation_name": "reviewed", "type_name": "decision", "control": "SDLC-4",
            "attestation_data": {"is_compliant": true, "read_by": "bob"},
        });
        let decision = Sent::Form(json!({ "data_json": decision }));
        self.show("post_system_attestation", 201, in_trail, decision).await;
        self.get("list_system_attestation_types", json!({})).await;
    }

    async fn run(&mut self) {
        let org = json!({"org": "acme"});
        let put = |name: &str, kind: &str, description: &str| {
            Sent::Json(json!({"name": name, "type": kind, "description": description}))
        };
        let policy = json!({
            "payload": {"name": "release", "description": "What may run in production", "comment": "The first rules"},
            "policy_file": POLICY,
        });
        self.show("put_policy", 201, org.clone(), Sent::Form(policy)).await;
        let production = put("production", "docker", "What customers see");
        self.show("create_env", 201, org.clone(), production).await;
        for (name, kind) in [("till", "server"), ("everything", "logical")] {
            let reply = self.call("create_env", &org, &put(name, kind, "")).await;
            assert_eq!(reply.status, 201);
        }
        let production = json!({"org": "acme", "env_name": "production"});
        let join = Sent::Json(json!({"physical_env_name": "production"}));
        let everything = json!({"org": "acme", "env_name": "everything"});
        self.show("join_physical_to_logical", 200, everything, join).await;
        let names = Sent::Json(json!({"policy_names": ["release"]}));
        self.show("attach_policy_to_env", 200, production.clone(), names).await;
        let allowed = Sent::Json(json!({
            "artifact_name": "proxy", "artifact_fingerprint": "b".repeat(64), "description": "Comes from its vendor",
        }));
        self.show("allow_artifact_for_env", 201, production.clone(), allowed).await;
        let until = Sent::Json(json!({
            "artifact_name": "probe", "artifact_fingerprint": "d".repeat(64), "description": "For one night",
            "expires_at": 3_900_000_000_i64,
        }));
        assert_eq!(self.call("allow_artifact_for_env", &production, &until).await.status, 201);
        let probe = json!({"org": "acme", "env_name": "production", "fingerprint": "d".repeat(64)});
        self.show("withdraw_artifact_from_env", 200, probe, Sent::Nothing).await;
        self.notify().await;
        let running = |name: &str, fingerprint: &str| {
            Sent::Json(json!({
                "artifacts": [{"digests": {name: fingerprint}, "creationTimestamp": 1_783_539_000}],
            }))
        };
        let shop = running("registry.example.com/shop:812", FINGERPRINT);
        self.show("docker_report", 201, production, shop).await;
        let till = json!({"org": "acme", "env_name": "till"});
        self.show("server_report", 201, till, running("/opt/till", &"c".repeat(64))).await;
        self.run_elsewhere().await;
    }

    /// Actions, by either of their paths.
    async fn notify(&mut self) {
        let org = json!({"org": "acme"});
        let about_production = |name: &str, webhook: &str| {
            Sent::Json(json!({
                "name": name, "type": "env", "environments": ["production"],
                "triggers": ["ON_STARTED_ARTIFACT", "ON_NON_COMPLIANT_ENV"],
                "targets": [{"type": "WEBHOOK", "webhook": webhook, "payload_version": "1.0"}],
            }))
        };
        let hook = "https://hooks.example.com/deployments";
        let deployed = about_production("deployments", hook);
        self.show("create_or_update_env_action", 201, org.clone(), deployed).await;
        let trails = Sent::Json(json!({
            "name": "trails", "type": "flow", "flows": ["shop"], "triggers": ["ON_STARTED_TRAIL"],
            "targets": [{"type": "EMAIL", "emails": ["team@example.com"]}],
        }));
        self.show("create_or_update_flow_action", 201, org.clone(), trails).await;
        let violated = about_production("violations", "https://hooks.example.com/violations");
        self.show("put_environment_notifications", 201, org.clone(), violated).await;
        let third = json!({"org": "acme", "notification_number": 3});
        let renamed = about_production("production", "https://hooks.example.com/production");
        self.show("update_environment_notification", 200, third.clone(), renamed).await;
        self.get("list_actions", org.clone()).await;
        self.get("get_environment_notifications", org).await;
        self.get("get_environment_notification", third.clone()).await;
        self.get("get_action", json!({"org": "acme", "action_number": 2})).await;
        self.show("delete_environment_notification", 200, third, Sent::Nothing).await;
        self.show("delete_action", 200, json!({"org": "acme", "action_number": 2}), Sent::Nothing).await;
    }

    async fn run_elsewhere(&mut self) {
        let (org, image) = (json!({"org": "acme"}), "registry.example.com/shop:812");
        let of = |instance: Value| json!({ "artifacts": [instance] });
        for (operation, kind, report) in [
            (
                "s3_report",
                "S3",
                of(
                    json!({"digests": {"site/index.html": "d".repeat(64)}, "creationTimestamp": 1_783_539_000}),
                ),
            ),
            (
                "lambda_report",
                "lambda",
                of(json!({"digests": {"invoice": "e".repeat(64)}, "creationTimestamp": 1_783_539_000})),
            ),
            (
                "k8s_report",
                "K8S",
                of(json!({
                    "podName": "shop-7d9f", "namespace": "web", "digests": {image: FINGERPRINT},
                    "creationTimestamp": 1_783_539_000,
                    "owners": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop", "uid": "0b5c", "controller": true}],
                })),
            ),
            (
                "ecs_report",
                "ECS",
                of(json!({
                    "taskArn": "arn:aws:ecs:eu-central-1:123456789012:task/web/ef5609c2", "cluster_name": "web",
                    "service_name": "shop", "digests": {image: FINGERPRINT}, "creationTimestamp": 1_783_539_000,
                })),
            ),
            (
                "azure_apps_report",
                "azure-apps",
                of(json!({
                    "app_name": "shop", "app_kind": "app", "digests_source": "acr", "digests": {image: FINGERPRINT},
                    "creationTimestamp": 1_783_539_000,
                })),
            ),
            (
                "cloud_run_report",
                "cloud-run",
                of(json!({
                    "kind": "service", "serviceName": "shop", "revisionName": "shop-00042", "digests": {image: FINGERPRINT},
                    "creationTimestamp": 1_783_539_000,
                })),
            ),
        ] {
            let environment = Sent::Json(json!({"name": kind, "type": kind, "description": ""}));
            assert_eq!(self.call("create_env", &org, &environment).await.status, 201);
            self.show(operation, 201, json!({"org": "acme", "env_name": kind}), Sent::Json(report)).await;
        }
        let site = json!({"org": "acme", "env_name": "S3"});
        let patch = Sent::Json(json!({"description": "What is public", "policies": ["release"]}));
        self.show("update_env", 200, site.clone(), patch).await;
        let names = Sent::Json(json!({"policy_names": ["release"]}));
        self.show("detach_policy_from_env", 200, site.clone(), names).await;
        let renaming = Sent::Json(json!({"new_name": "site"}));
        self.show("rename_environment", 200, site, renaming).await;
        let functions = json!({"org": "acme", "env_name": "lambda"});
        self.show("archive_env", 200, functions, Sent::Nothing).await;
    }

    async fn accounts(&mut self) {
        let org = json!({"org": "acme"});
        let account = Sent::Json(json!({"name": "ci", "description": "Builds", "privilege": "member"}));
        self.show("create_service_account", 201, org, account).await;
        let ci = json!({"org": "acme", "name": "ci"});
        let patch = Sent::Json(json!({"description": "Builds and tests"}));
        self.show("update_service_account", 200, ci.clone(), patch).await;
        let key = Sent::Json(json!({"description": "The build server", "expires_at": 1_799_000_000}));
        let key = self.show("create_service_account_api_key", 201, ci.clone(), key).await;
        let of_key = json!({"org": "acme", "name": "ci", "key_id": key["id"]});
        self.get("list_service_account_api_keys", ci.clone()).await;
        self.get("get_service_account_api_key", of_key.clone()).await;
        let rotation = Sent::Json(json!({"grace_period_hours": 48, "expires_at": 1_830_000_000}));
        self.show("rotate_service_account_api_key", 201, of_key.clone(), rotation).await;
        self.show("delete_service_account_api_key", 200, of_key, Sent::Nothing).await;
        self.get("list_service_accounts", json!({"org": "acme"})).await;
        self.get("get_service_account", ci).await;
        let retired = Sent::Json(json!({"name": "jenkins"}));
        assert_eq!(self.call("create_service_account", &json!({"org": "acme"}), &retired).await.status, 201);
        let retired = json!({"org": "acme", "name": "jenkins"});
        self.show("delete_service_account", 200, retired, Sent::Nothing).await;
    }

    async fn settings(&mut self) {
        let org = json!({"org": "acme"});
        for name in ["webshop", "cellar"] {
            let document = Sent::Form(json!({"data_json": {"name": name, "description": ""}}));
            assert_eq!(self.call("create_flow_with_template", &org, &document).await.status, 201);
        }
        let legacy = json!({"name": "mill", "description": "Grinds", "template": ["artifact", "unit-test"]});
        self.show("create_flow", 201, org.clone(), Sent::Json(legacy)).await;
        let renaming = Sent::Json(json!({"new_name": "storefront"}));
        self.show("rename_flow", 200, json!({"org": "acme", "flow_name": "webshop"}), renaming).await;
        let cellar = json!({"org": "acme", "flow_name": "cellar"});
        self.show("archive_flow", 200, cellar, Sent::Nothing).await;
        let tags = Sent::Json(json!({"set_tags": {"team": "storefront"}, "remove_tags": ["owner"]}));
        let tagged = json!({"org": "acme", "resource_type": "flow", "resource_id": "shop"});
        self.show("patch_tags", 200, tagged, tags).await;
        let schema = json!({"type": "object", "required": ["score"]}).to_string();
        let coverage = json!({
            "name": "coverage", "description": "How much of the code the tests run",
            "evaluator": {"content_type": "jq", "rules": [".score >= 80"]},
            "summary": [{"name": "Score", "expression": ".score"}],
        });
        let coverage = Sent::Form(json!({"data_json": coverage, "type_schema": schema}));
        self.show("post_custom_attestation_type", 201, org.clone(), coverage).await;
        self.get("get_custom_attestation_types", org.clone()).await;
        let coverage = json!({"org": "acme", "custom_attestation_type_name": "coverage", "version": 1});
        self.get("get_custom_attestation_type", coverage).await;
        let coverage = json!({
            "attestation_name": "coverage", "type_name": "coverage", "attestation_data": {"score": 91.4},
        });
        let in_trail = json!({"org": "acme", "flow_name": "shop", "trail_name": "build-812"});
        self.show("post_custom_attestation", 201, in_trail, Sent::Form(json!({ "data_json": coverage })))
            .await;
        let retired = Sent::Form(json!({"data_json": {"name": "manual-scan"}}));
        assert_eq!(self.call("post_custom_attestation_type", &org, &retired).await.status, 201);
        let retired = json!({"org": "acme", "custom_attestation_type_name": "manual-scan"});
        self.show("archive_custom_attestation_type", 200, retired, Sent::Nothing).await;
        self.get("get_organization", org.clone()).await;
        self.show("put_user_default_org", 200, org.clone(), Sent::Nothing).await;
        self.get("get_user_default_org", json!({})).await;
        self.get("list_audit_log", json!({"org": "acme", "role": "admin"})).await;
        let review = Sent::Json(json!({
            "identifier": "SDLC-4", "name": "Code review", "description": "A second person reads every change",
            "links": {"policy": "https://wiki.example.com/code-review"},
        }));
        self.show("post_control", 201, org.clone(), review).await;
        let review = json!({"org": "acme", "identifier": "SDLC-4"});
        let wider =
            Sent::Json(json!({"description": "A second person reads every change, and who it was is known"}));
        self.show("put_control", 200, review.clone(), wider).await;
        let tags = Sent::Json(json!({"set_tags": {"framework": "sdlc"}}));
        let tagged = json!({"org": "acme", "resource_type": "control", "resource_id": "SDLC-4"});
        assert_eq!(self.call("patch_tags", &tagged, &tags).await.status, 200);
        self.get("list_control_tag_choices", org.clone()).await;
        self.show("archive_control", 200, review.clone(), Sent::Nothing).await;
        self.show("unarchive_control", 200, review.clone(), Sent::Nothing).await;
        self.get("get_control", review.clone()).await;
        self.get("list_control_versions", review.clone()).await;
        self.get("get_control_coverage", review.clone()).await;
        let decisions = self.call("list_control_decisions", &review, &Sent::Nothing).await.ok();
        let decision = json!({"org": "acme", "identifier": "SDLC-4", "decision_id": decisions["decisions"][0]["decision_id"]});
        self.get("list_control_decisions", review).await;
        self.get("get_control_decision", decision).await;
        let first = json!({"org": "acme", "identifier": "SDLC-4", "version_number": 1});
        self.get("get_control_version", first).await;
        self.get("list_controls", json!({"org": "acme", "search": "review"})).await;
        self.get("get_limits", json!({})).await;
        let limits = self.shown["get_limits"]["answer"]["limits"].as_array_mut().unwrap();
        limits.retain(|limit| ["attestation_data", "file"].contains(&limit["name"].as_str().unwrap()));
        // Their beginnings: the rest has references of its own, which tools would look for in the document.
        for (operation, shown) in
            [("environment_policy_schema_v1", "_schema"), ("flow_template_schema_v1", "version")]
        {
            self.get(operation, json!({})).await;
            let schema = self.shown[operation]["answer"].as_object_mut().unwrap();
            schema.retain(|key, _| !["$defs", "additionalProperties"].contains(&key.as_str()));
            schema["properties"].as_object_mut().unwrap().retain(|name, _| name == shown);
        }
    }

    async fn look(&mut self) {
        let org = json!({"org": "acme"});
        self.get("list_ledger_keys", json!({})).await;
        self.get("get_ledger_checkpoint", org.clone()).await;
        self.get("get_ledger_consistency", json!({"org": "acme", "from": 2, "to": 5})).await;
        self.get("get_ledger_entries", json!({"org": "acme", "index": 2})).await;
        self.get("get_ledger_proof", json!({"org": "acme", "record_id": "2"})).await;
        self.get(
            "download_trail_audit_package",
            json!({"org": "acme", "flow_name": "shop", "trail_name": "build-812"}),
        )
        .await;
        self.get("get_ledger_tile", json!({"org": "acme", "tile": "0/000.p/5"})).await;
        let in_flow = json!({"org": "acme", "flow_name": "shop"});
        let in_trail = json!({"org": "acme", "flow_name": "shop", "trail_name": "build-812"});
        let production = json!({"org": "acme", "env_name": "production"});
        let with = |base: &Value, name: &str, value: &str| {
            let mut parameters = base.clone();
            parameters[name] = json!(value);
            parameters
        };
        self.get("get_flows", with(&org, "tag", "team:storefront")).await;
        self.get("get_flow", in_flow.clone()).await;
        self.get("list_trails_for_org", with(&org, "flow", "shop")).await;
        self.get("list_trails", in_flow.clone()).await;
        self.get("get_trail", in_trail.clone()).await;
        self.get("list_artifacts", with(&org, "flow_name", "shop")).await;
        let short = &FINGERPRINT[..12];
        self.get("get_artifact_by_fingerprint", with(&in_flow, "fingerprint", short)).await;
        self.get("get_artifact_by_commit_sha", with(&in_flow, "commit_sha", &COMMIT[..7])).await;
        self.get("get_latest_artifact_commit", with(&in_flow, "fingerprint", short)).await;
        self.get("get_search", with(&org, "search_value", &COMMIT[..7])).await;
        let production_gate = with(&with(&org, "fingerprint", FINGERPRINT), "environment_name", "production");
        self.get("assert_artifact", production_gate).await;
        let named = with(&in_trail, "attestation_name", "licences");
        let found = self.get("get_trail_attestation", named).await;
        let id = found[0]["attestation_id"].as_str().unwrap();
        let named = with(&with(&in_flow, "fingerprint", short), "attestation_name", "unit-tests");
        self.get("get_artifact_attestation", named).await;
        self.get("get_attestations", with(&with(&org, "name_regex", "^unit"), "per_page", "1")).await;
        self.get("get_flow_attestations", with(&in_flow, "per_page", "1")).await;
        let criteria = with(&with(&org, "commit_list", COMMIT), "attestation_name", "licences");
        self.get("list_attestations_for_criteria", criteria).await;
        self.get("get_attestation_evidence", with(&in_trail, "attestation_id", id)).await;
        self.get("list_builds", with(&org, "repo_name", "acme/shop")).await;
        self.get("build_statistics", with(&org, "repo_name", "acme/shop")).await;
        let repos = self.call("list_repos", &org, &Sent::Nothing).await.ok();
        let of_repo = with(&org, "repo", repos["repos"][0]["id"].as_str().unwrap());
        self.get("list_deployments", with(&org, "env_name", "production")).await;
        let deployed = with(&production, "fingerprint", FINGERPRINT);
        self.get("get_deployment", deployed).await;
        self.get("list_env_deployments", with(&production, "page_size", "1")).await;
        self.get("get_deployment_frequency", production.clone()).await;
        self.get("list_repo_deployments", with(&of_repo, "env", "production")).await;
        self.get("get_repo_deployment_statistics", of_repo).await;
        self.get("list_repos", with(&org, "provider", "github")).await;
        self.get("list_repo_filter_options", with(&org, "namespace", "acme")).await;
        self.get("list_repo_tag_choices", org.clone()).await;
        self.get("get_repo_live_artifacts", with(&org, "repo_name", "acme/shop")).await;
        self.get("get_repo", with(&org, "repo_name", "acme/shop")).await;
        self.get("list_allowlist", with(&org, "include_ended", "true")).await;
        self.get("list_policies", org.clone()).await;
        self.get("get_policy", with(&org, "policy_name", "release")).await;
        self.get("list_envs", with(&org, "type", "docker")).await;
        self.get("get_environment", production.clone()).await;
        self.get("list_snapshots", with(&production, "interval", "1..NOW")).await;
        self.get("get_snapshot", with(&production, "snapshot_expression", "-1")).await;
        self.get("get_env_events", with(&production, "repo_name", "acme/shop")).await;
        self.get("get_env_auditlog", with(&production, "event_types", "started,exited")).await;
        let compared = with(&with(&org, "snappish1", "production%231"), "snappish2", "production");
        self.get("environment_diff", compared).await;
        if self.routes.contains_key("download_trail_audit_pdf") {
            self.get("download_trail_audit_pdf", in_trail).await;
        }
    }
}

#[tokio::test]
async fn the_examples_of_the_document_are_calls_that_run() {
    let mut calls = Calls::new().await;
    calls.build().await;
    calls.run().await;
    calls.accounts().await;
    calls.settings().await;
    calls.look().await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/openapi/examples.json");
    if std::env::var_os("EVIDENCE_WRITE_EXAMPLES").is_some() {
        std::fs::write(file, serde_json::to_string_pretty(&calls.shown).unwrap() + "\n").unwrap();
        return;
    }
    let document = openapi();
    for (operation, example) in &calls.shown {
        let (method, path) = &calls.routes[operation.as_str()];
        let operation = &document["paths"][path][method.as_str().to_lowercase()];
        let response = &operation["responses"][example["status"].to_string()]["content"]["application/json"];
        // As text: the order of the keys counts, too.
        let text = |answer: Option<&Value>| answer.map(Value::to_string);
        assert_eq!(text(response.get("example")), text(example.get("answer")), "{operation}: the answer");
        let content = operation["requestBody"]["content"].as_object();
        let body = content.and_then(|content| content.values().next()?.get("example"));
        assert_eq!(body, example.get("body"), "{operation}: the body");
        for parameter in operation["parameters"].as_array().unwrap() {
            let sent = example["parameters"].get(parameter["name"].as_str().unwrap());
            assert_eq!(parameter.get("example"), sent, "{operation}: {}", parameter["name"]);
        }
    }
}
