//! The OpenAPI document says what the API does.

use std::collections::BTreeSet;

use evidence_core::api;
use evidence_core::operation::{Operation, Visitor};
use evidence_tower::openapi;

use crate::support::prelude::*;

#[derive(Default)]
struct Operations(Vec<(&'static str, String, &'static str)>);

impl Visitor for Operations {
    fn visit<O: Operation>(&mut self) {
        self.0.push((O::NAME, format!("{:?}", O::METHOD).to_lowercase(), O::PATH));
    }
}

fn operations() -> Vec<(&'static str, String, &'static str)> {
    let mut operations = Operations::default();
    api::operations(&mut operations);
    operations.0
}

#[apply(on_every_store)]
async fn anybody_may_read_it(api: Api) {
    api.get("/openapi.json").anonymous().await.expect_exactly(200, openapi());
}

#[test]
fn every_operation_is_documented_under_a_name_of_its_own() {
    let document = openapi();
    let documented: usize =
        document["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len()).sum();
    assert_eq!(documented, operations().len());
    for (name, method, path) in operations() {
        assert_eq!(document["paths"][path][&method]["operationId"], name, "{method} {path}");
    }
    let names: BTreeSet<&str> = operations().iter().map(|(name, ..)| *name).collect();
    assert_eq!(names.len(), operations().len());
}

/// The contract test of the public command-line client compares what it sends with the schemas of these names: what it
/// always sends, and what it sends at times.
#[test]
fn the_public_client_finds_the_schemas_of_what_it_sends() {
    let environment_options = &["include_scaling", "require_provenance", "included_environments"][..];
    let table = [
        ("CreateEnvironmentPutInput", &["name", "type", "description"][..], environment_options),
        ("ControlPostInput", &["identifier", "name"], &["description"]),
    ];
    for (name, always, at_times) in table {
        let schema = &openapi()["components"]["schemas"][name];
        for field in always.iter().chain(at_times) {
            assert!(schema["properties"][field].is_object(), "{name}: {field}");
        }
        for field in schema["required"].as_array().unwrap() {
            assert!(always.contains(&field.as_str().unwrap()), "{name}: {field}");
        }
    }
}

#[test]
fn every_parameter_of_a_path_is_a_field_of_its_operation() {
    let document = openapi();
    for (_, method, path) in operations() {
        let parameters = document["paths"][path][&method]["parameters"].as_array().unwrap();
        let documented: BTreeSet<&str> = parameters
            .iter()
            .filter(|parameter| parameter["in"] == "path" && parameter["required"] == true)
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        let named: BTreeSet<&str> =
            path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}')).collect();
        assert_eq!(documented, named, "{method} {path}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = openapi();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads outside"));
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

/// A second type of the same name is given a number by the generator: rename one of them.
#[test]
fn no_two_types_share_a_name() {
    let document = openapi();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for name in schemas.keys() {
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit());
        assert!(plain == name || !schemas.contains_key(plain), "{name} beside {plain}");
    }
}

#[test]
fn a_form_has_its_document_and_its_file() {
    let body = &openapi()["paths"]["/flows/{org}/template_file"]["put"]["requestBody"]["content"];
    let schema = &body["multipart/form-data"]["schema"];
    let file = &schema["properties"]["template_file"];
    assert_eq!((&file["type"], &file["format"]), (&json!("string"), &json!("binary")));
    assert_eq!(schema["properties"]["data_json"]["$ref"], "#/components/schemas/CreateFlow");
    assert_eq!(schema["required"], json!(["data_json"]));
}

/// Clients that were generated for hosted services have types of these names.
#[test]
fn schemas_have_the_names_that_generated_clients_know() {
    let document = openapi();
    let schema = |operation: &str, pointer: &str| {
        let (_, method, path) = operations().into_iter().find(|(name, ..)| *name == operation).unwrap();
        let found = document["paths"][path][method].pointer(pointer).and_then(Value::as_str).unwrap();
        found.rsplit('/').next().unwrap().to_owned()
    };
    let json = "content/application~1json/schema";
    for (operation, name) in [
        ("create_artifact", "CreateArtifact"),
        ("join_physical_to_logical", "JoinPhysicalToLogicalPutInput"),
        ("attach_policy_to_env", "AttachPoliciesPutInput"),
        ("detach_policy_from_env", "AttachPoliciesPutInput"),
        ("update_env", "UpdateEnvironmentPatchInput"),
        ("rename_environment", "RenameEnvironmentPutInput"),
        ("azure_apps_report", "AzureAppsReport"),
        ("cloud_run_report", "CloudRunReport"),
        ("docker_report", "DockerReport"),
        ("ecs_report", "ECSReport"),
        ("k8s_report", "K8SReport"),
        ("lambda_report", "LambdaReport"),
        ("s3_report", "S3Report"),
        ("server_report", "ServerReport"),
        ("post_control", "ControlPostInput"),
        ("create_env", "CreateEnvironmentPutInput"),
        ("allow_artifact_for_env", "AllowlistPutInput"),
        ("create_or_update_env_action", "EnvActionPutInput"),
        ("put_environment_notifications", "EnvActionPutInput"),
        ("update_environment_notification", "EnvActionPutInput"),
        ("create_or_update_flow_action", "FlowActionPutInput"),
    ] {
        assert_eq!(schema(operation, &format!("/requestBody/{json}/$ref")), name, "{operation}");
    }
    for (operation, part, name) in [
        ("create_flow_with_template", "data_json", "CreateFlow"),
        ("put_policy", "payload", "PolicyPutInput"),
    ] {
        let pointer = format!("/requestBody/content/multipart~1form-data/schema/properties/{part}/$ref");
        assert_eq!(schema(operation, &pointer), name, "{operation}");
    }
    for (operation, name) in [
        ("assert_artifact", "AssertArtifactResponse"),
        ("get_artifact_by_fingerprint", "ArtifactResponse"),
        ("get_latest_artifact_commit", "LatestCommitResponse"),
        ("get_attestations", "AttestationsPaginatedResponse"),
        ("environment_diff", "EnvironmentDiffResponse"),
        ("get_environment", "GetEnvironmentResponse"),
        ("get_flow", "FlowGet"),
        ("get_organization", "GetOrganization"),
        ("get_policy", "PolicyResponse"),
        ("list_repos", "RepoListResponse"),
        ("get_search", "SearchResultGetResponse"),
        ("get_snapshot", "GetSnapshotResponse"),
        ("list_trails_for_org", "ListTrails"),
        ("get_trail", "GetTrail"),
    ] {
        assert_eq!(schema(operation, &format!("/responses/200/{json}/$ref")), name, "{operation}");
    }
}

#[test]
fn every_operation_tells_of_its_refusals_and_downloads_of_their_types() {
    let paths = &openapi()["paths"];
    let statuses = |path: &str, method: &str| -> Vec<String> {
        paths[path][method]["responses"].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(statuses("/flows/{org}", "get"), ["200", "400", "401", "403", "404", "414", "431", "503"]);
    let put = statuses("/environments/{org}", "put");
    assert_eq!(put, ["201", "400", "401", "403", "404", "413", "414", "415", "431", "503"]);
    let pdf = &paths["/trails/{org}/{flow_name}/{trail_name}/audit_pdf"]["get"]["responses"]["200"];
    assert_eq!(pdf["content"], json!({"application/pdf": {}}));
}

/// Collects the properties without a description, of a schema and of its parts.
fn undescribed(name: &str, schema: &Value, found: &mut Vec<String>) {
    for (field, property) in schema["properties"].as_object().into_iter().flatten() {
        if !is_told(&property["description"]) {
            found.push(format!("{name}.{field}"));
        }
    }
    let parts = schema.as_object().into_iter().flatten().filter(|(key, _)| *key != "example");
    for (_, part) in parts {
        match part {
            Value::Object(_) => undescribed(name, part, found),
            Value::Array(items) => items.iter().for_each(|item| undescribed(name, item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

fn is_told(description: &Value) -> bool {
    description.as_str().is_some_and(|text| !text.trim().is_empty())
}

#[test]
fn every_property_of_every_schema_is_described() {
    let document = openapi();
    let mut found = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        undescribed(name, schema, &mut found);
    }
    undescribed("paths", &document["paths"], &mut found);
    assert_eq!(found, Vec::<String>::new(), "a line of `///` on the field says what it is");
}

#[test]
fn every_operation_has_a_description_and_examples_and_describes_its_parameters() {
    let document = openapi();
    let mut found = Vec::new();
    for (name, method, path) in operations() {
        let operation = &document["paths"][path][&method];
        // The last paragraph says who may call.
        let description = operation["description"].as_str().unwrap_or_default().split_once("\n\n");
        if !description.is_some_and(|(what, who)| !what.trim().is_empty() && !who.trim().is_empty()) {
            found.push(format!("{name}: a description, from the `///` of its type"));
        }
        for parameter in operation["parameters"].as_array().unwrap() {
            if !is_told(&parameter["description"]) {
                found.push(format!("{name}: a description of the parameter {}", parameter["name"]));
            }
        }
        let contents = |of: &Value| {
            Vec::from_iter(of["content"].as_object().into_iter().flatten().map(|(_, one)| one.clone()))
        };
        if !contents(&operation["requestBody"]).iter().all(|content| content["example"].is_object()) {
            found.push(format!("{name}: an example of its body, from tests/api/examples.rs"));
        }
        let answers = ["200", "201"].map(|status| contents(&operation["responses"][status])).concat();
        // Files have a type and no example.
        let is_json = answers.iter().any(|content| content.get("schema").is_some());
        if is_json && !answers.iter().any(|content| content.get("example").is_some()) {
            found.push(format!("{name}: an example of its answer, from tests/api/examples.rs"));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}
