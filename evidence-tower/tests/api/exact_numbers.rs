//! Numbers in free-form JSON come back as the characters that were sent, however long, from every field that takes such
//! JSON: in answers, in the ledger, and after the tables were made again.

use evidence_tower::openapi;

use crate::support::prelude::*;
use crate::text_limits::{body_schema, branches, fingerprint, is, operations, prepare, requests};

/// Numbers that no binary type keeps, or that one writes in another way.
const NUMBERS: &str = "123456789012345678901234567890,0.1000000000000000055511151231257827,1e400,-0,1.0,1E5,\
                       -9223372036854775809,18446744073709551616,2.50e-0007";

/// The value of every free-form field, made distinct by the field's name.
fn numbers(field: &str) -> String {
    format!(r#""in {field}":[{NUMBERS},{{"deep":[{NUMBERS}]}}]"#)
}

/// Puts the field's name into each free-form field of a body, and gathers the names.
fn mark(body: &mut Value, schema: &Value, document: &Value, path: &str, found: &mut Vec<String>) {
    for schema in branches(schema, document) {
        if schema.get("x-max-bytes").is_some() && !is(schema, "string") {
            match body {
                Value::Object(fields) => drop(fields.insert(path.to_owned(), json!("marked"))),
                other => *other = json!({ path: "marked" }),
            }
            found.push(path.to_owned());
            return;
        }
        for item in body.as_array_mut().into_iter().flatten() {
            mark(item, &schema["items"], document, path, found);
        }
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            if let Some(value) = body.get_mut(name.as_str()) {
                mark(value, schema, document, &format!("{path} {name}"), found);
            }
        }
    }
}

/// Sends the numbers in every free-form field that there is, and returns the fields.
async fn send_all(api: &Api) -> Vec<String> {
    prepare(api).await;
    let document = openapi();
    let mut fields = Vec::new();
    for request in requests() {
        let (.., operation) =
            operations(&document).find(|(.., one)| one["operationId"] == request.operation).unwrap();
        let (mut body, mut found) = (request.body.clone(), Vec::new());
        mark(&mut body, body_schema(operation).unwrap(), &document, request.operation, &mut found);
        let mut text = body.to_string();
        for field in &found {
            text = text.replace(&format!("{}:\"marked\"", json!(field)), &numbers(field));
        }
        let reply = request.send_text(api, &text, &document).await;
        assert!(reply.status.is_success(), "{}: {:?}", request.operation, reply.body);
        fields.extend(found);
    }
    let schema = format!("{{\n  {}\n}}", numbers("type_schema"));
    api.post("/custom-attestation-types/acme")
        .data_json(json!({"name":"exact"}))
        .file("type_schema", "s", &schema)
        .await
        .created();
    fields.push("type_schema".to_owned());
    fields
}

/// All responses that show the sent values.
async fn answers(api: &Api) -> String {
    let artifact = "/attestations/acme/web/artifact";
    let names =
        ["custom", "generic", "jira", "junit", "overridden", "pull_request", "snyk", "sonar", "system"];
    let attestations = names.map(|name| format!("{artifact}/{}/{name}", fingerprint()));
    let others = [
        "/trails/acme/web/trail-2".to_owned(),
        "/trails/acme?flow=web".to_owned(),
        format!("/artifacts/acme/web/fingerprint/{}", "c".repeat(64)),
        format!("/artifacts/acme/web/fingerprint/{}", fingerprint()),
        "/repos/acme".to_owned(),
        "/custom-attestation-types/acme/exact".to_owned(),
    ];
    let mut text = String::new();
    for path in attestations.into_iter().chain(others) {
        let reply = api.get(&path).await;
        assert_eq!(reply.status.as_u16(), 200, "{path}: {:?}", reply.body);
        text.push_str(std::str::from_utf8(&reply.body).unwrap());
    }
    text
}

fn assert_in(text: &str, fields: &[String], what: &str) {
    for field in fields {
        let begins =
            text.find(&format!("\"in {field}\":")).unwrap_or_else(|| panic!("{field} is not in {what}"));
        let found: String = text[begins..].chars().take(2 * NUMBERS.len() + 100).collect();
        assert!(text.contains(&numbers(field)), "{field} in {what}: {found}");
    }
}

#[apply(on_every_store)]
async fn numbers_come_back_as_they_were_sent(api: Api) {
    let fields = send_all(&api).await;
    assert!(fields.len() > 10, "{fields:?}");
    assert_in(&answers(&api).await, &fields, "the answers");
    let pdf = api.get("/trails/acme/web/t/audit_pdf").await;
    assert_eq!(pdf.status.as_u16(), 200, "{:?}", pdf.body);
}

#[apply(with_every_store)]
async fn numbers_are_recorded_as_they_were_sent(api: Api, store: Arc<dyn Store>) {
    let fields = send_all(&api).await;
    let entries = store.ledger_entries(acme(&*store).await, 0, 1000).await.unwrap();
    let payloads: String = entries.into_iter().map(|entry| entry.payload).collect();
    assert_in(&payloads, &fields, "the ledger");
}
