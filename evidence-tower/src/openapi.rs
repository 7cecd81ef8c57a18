//! Generates the OpenAPI 3.1 document from the list of operations and their schemas.

use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use evidence_core::auth::Scope;
use evidence_core::operation::{
    Body, BodyKind, FormParts, Method, Operation, Operations, Reply, header_field,
};
use evidence_core::{Visitor, api};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

#[cfg(test)]
mod tests;

/// Returns the OpenAPI 3.1 document of the API. Its paths are relative to the server's base address.
///
/// ```
/// let document = evidence_tower::openapi();
/// assert!(document["paths"]["/flows/{org}"]["get"]["operationId"].is_string());
/// ```
pub fn openapi() -> Value {
    ApiDescription::default().document()
}

/// The operations of the host, and the text of the document, which is generated once.
#[derive(Default)]
pub(crate) struct ApiDescription {
    added: Vec<fn(&mut OpenApiBuilder)>,
    text: OnceLock<Bytes>,
}

impl ApiDescription {
    /// Adds these operations.
    pub(crate) fn with<L: Operations>(&self) -> Self {
        let mut added = self.added.clone();
        added.push(L::visit);
        Self { added, text: OnceLock::new() }
    }

    /// Returns the document.
    pub(crate) fn document(&self) -> Value {
        let settings =
            SchemaSettings::draft2020_12().with(|s| s.definitions_path = "/components/schemas".into());
        let mut document = OpenApiBuilder { generator: settings.into_generator(), paths: Map::new() };
        api::operations(&mut document);
        self.added.iter().for_each(|visit| visit(&mut document));
        document.finish()
    }

    /// Returns the document as text.
    pub(crate) fn text(&self) -> Bytes {
        // All instances without host operations share this text.
        static PLAIN: OnceLock<Bytes> = OnceLock::new();
        let text = if self.added.is_empty() { &PLAIN } else { &self.text };
        text.get_or_init(|| self.document().to_string().into()).clone()
    }
}

/// An example call of each operation, by `operationId`: its parameters, its body, and the status and body of
/// the response. The test `examples` makes these calls and compares the responses.
/// `EVIDENCE_WRITE_EXAMPLES=1` updates the file.
static EXAMPLES: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("openapi/examples.json")).unwrap_or_default());

pub(crate) struct OpenApiBuilder {
    generator: SchemaGenerator,
    paths: Map<String, Value>,
}

impl Visitor for OpenApiBuilder {
    fn visit<O: Operation>(&mut self) {
        let operation = self.operation::<O>();
        let path = self.paths.entry(O::PATH).or_insert_with(|| json!({}));
        if let Value::Object(path) = path {
            path.insert(lower_case(O::METHOD).to_owned(), operation);
        }
    }
}

const fn lower_case(method: Method) -> &'static str {
    match method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Put => "put",
        Method::Patch => "patch",
        Method::Delete => "delete",
    }
}

impl OpenApiBuilder {
    fn finish(mut self) -> Value {
        let mut schemas = self.generator.take_definitions(true);
        schemas.insert("Error".to_owned(), error_schema());
        let headers = [("Evidence-Ignored-Parameters", IGNORED_PARAMETERS), ("ETag", E_TAG)].into_iter();
        let headers = headers.chain(HEADERS_OF_WRITES).map(|(name, description)| {
            (name.to_owned(), json!({ "description": description, "schema": { "type": "string" } }))
        });
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Software delivery evidence",
                "version": "2",
                "description": "Records what was built from which commit, how it was checked, and where it runs.",
            },
            "servers": [{ "url": "/api/v2" }],
            "paths": self.paths,
            "components": {
                "schemas": schemas,
                "headers": Value::Object(headers.collect()),
                "responses": {
                    "NotModified": {
                        "description": "The caller has this content, because `If-None-Match` has its `ETag`",
                        "headers": { "ETag": { "$ref": "#/components/headers/ETag" } },
                    },
                    "Error": {
                        "description": "The request was rejected",
                        "headers": Value::Object(common_headers().collect()),
                        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
                    },
                    "UnavailableForWrite": {
                        "description": "The service is unavailable. A header says whether the write happened.",
                        "headers": {
                            "Retry-After": { "schema": { "type": "integer" }, "description": "The number of seconds after which to retry." },
                            "Evidence-Write-Outcome": {
                                "schema": { "enum": ["not-written", "unknown"] },
                                "description": "`not-written`: nothing was recorded, nor will be. `unknown`: the write may have been \
                                    recorded, in part or as a whole; check before you send it again.",
                            },
                        },
                        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
                    },
                    "LongUrl": { "description": "The URL is too long" },
                    "LongHead": { "description": "The URL and the headers are too long together" },
                },
                "securitySchemes": {
                    "bearer": { "type": "http", "scheme": "bearer" },
                    "basic": { "type": "http", "scheme": "basic" },
                },
            },
        })
    }

    fn operation<O: Operation>(&mut self) -> Value {
        let mut operation = Map::new();
        let mut set = |key: &str, value: Value| operation.insert(key.to_owned(), value);
        set("operationId", json!(O::NAME));
        set("summary", json!(O::SUMMARY));
        set("description", json!(self.description::<O>()));
        if O::DEPRECATED {
            set("deprecated", json!(true));
        }
        set("tags", json!([tag(O::PATH)]));
        set("parameters", Value::Array(self.parameters::<O>()));
        if let Some(body) = self.request_body::<O>() {
            set("requestBody", body);
        }
        set("responses", self.responses::<O>());
        let bearer = (O::SCOPE != Scope::Open).then(|| json!({ "bearer": [] }));
        let basic = O::BASIC_AUTH.then(|| json!({ "basic": [] }));
        set("security", json!(bearer.into_iter().chain(basic).collect::<Vec<_>>()));
        Value::Object(operation)
    }

    /// Returns the description: the doc comment of the operation's type, and the required access.
    fn description<O: Operation>(&mut self) -> String {
        let schema = O::json_schema(&mut self.generator);
        let what = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        format!("{what}\n\n{}", who_may_call(O::SCOPE)).trim_start().to_owned()
    }

    /// Returns the parameters, from the fields of the operation's type: those in the path, the declared
    /// headers, and the query.
    fn parameters<O: Operation>(&mut self) -> Vec<Value> {
        let schema = O::json_schema(&mut self.generator);
        let examples = &EXAMPLES[O::NAME]["parameters"];
        let required = |name: &str| {
            let required = schema.get("required").and_then(Value::as_array);
            required.is_some_and(|names| names.iter().any(|required| required == name))
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let parameter = |(name, schema): (&String, &Value)| {
            let in_path = O::PATH.contains(&format!("{{{name}}}"));
            let header = O::REQUEST_HEADERS.iter().find(|header| header_field(header) == *name);
            let (location, spelt) = match header {
                _ if in_path => ("path", name.as_str()),
                Some(header) => ("header", *header),
                None => ("query", name.as_str()),
            };
            let mut schema = schema.clone();
            let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            let mut parameter = json!({
                "name": spelt,
                "in": location,
                "required": in_path || required(name),
                "schema": schema,
            });
            put(&mut parameter, "description", description.as_ref());
            put(&mut parameter, "example", examples.get(name));
            parameter
        };
        properties.into_iter().flatten().map(parameter).collect()
    }

    fn request_body<O: Operation>(&mut self) -> Option<Value> {
        let schema = O::Body::schema(&mut self.generator);
        let (media_type, schema) = match O::Body::KIND {
            BodyKind::Empty => return None,
            BodyKind::Json => ("application/json", schema?.to_value()),
            BodyKind::Form(parts) => ("multipart/form-data", form_schema(parts, &schema?)),
            BodyKind::Raw => return Some(json!({ "content": { "*/*": {} } })),
        };
        let mut content = json!({ "schema": schema });
        put(&mut content, "example", EXAMPLES[O::NAME].get("body"));
        Some(json!({ "required": true, "content": { media_type: content } }))
    }

    fn responses<O: Operation>(&mut self) -> Value {
        let schema = O::Output::schema(&mut self.generator);
        let example = &EXAMPLES[O::NAME];
        let success = O::Output::STATUSES.iter().map(|status| {
            let description = match (&schema, *status) {
                (None, _) => "The content, of the type in `Content-Type`",
                (Some(_), 201) => "Created",
                (Some(_), _) => "Done",
            };
            let mut content = json!({});
            put(&mut content, "schema", schema.as_ref().map(Schema::as_value));
            put(&mut content, "example", example.get("answer").filter(|_| example["status"] == *status));
            let content = json!({ O::Output::MEDIA_TYPE: content });
            let header = |name: &&str| ((*name).to_owned(), json!({ "schema": { "type": "string" } }));
            let mut headers: Map<String, Value> = O::ANSWER_HEADERS.iter().map(header).collect();
            headers.extend(common_headers());
            if O::METHOD != Method::Get {
                headers.extend(HEADERS_OF_WRITES.map(|(name, _)| reference_to_header(name)));
            }
            if O::Output::HAS_ETAG {
                headers.insert("ETag".to_owned(), json!({ "$ref": "#/components/headers/ETag" }));
            }
            let response = json!({ "description": description, "headers": headers, "content": content });
            (status.to_string(), response)
        });
        let known = O::Output::HAS_ETAG
            .then(|| ("304".to_owned(), json!({ "$ref": "#/components/responses/NotModified" })));
        let success = success.chain(known);
        let errors = error_statuses(O::Body::KIND).map(str::to_owned);
        let errors = errors.chain(O::ERRORS.iter().map(u16::to_string)).map(|status| {
            // A host may refuse what is too long before the API sees it, in its own way.
            let response = match status.as_str() {
                "414" => "LongUrl",
                "431" => "LongHead",
                "503" if O::METHOD != Method::Get => "UnavailableForWrite",
                _ => "Error",
            };
            (status, json!({ "$ref": format!("#/components/responses/{response}") }))
        });
        Value::Object(success.chain(errors).collect())
    }
}

/// The description of a header that every response may have.
const IGNORED_PARAMETERS: &str = "Unknown query parameters of the request, such as misspelled ones: percent-encoded, \
     separated by commas. Absent if there are none. Lists at most 20, each cut to at most 100 characters; `...` \
     stands for the others.";

const E_TAG: &str =
    "Identifies the content. A request with this value in `If-None-Match` gets 304 without the content.";

/// Returns the headers that every response may have.
fn common_headers() -> impl Iterator<Item = (String, Value)> {
    std::iter::once(reference_to_header("Evidence-Ignored-Parameters"))
}

fn reference_to_header(name: &str) -> (String, Value) {
    (name.to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }))
}

/// The headers of a response to a write, with their descriptions.
const HEADERS_OF_WRITES: [(&str, &str); 3] = [
    (
        "Evidence-Ledger-Index",
        "The index of the first ledger entry that the request recorded. Absent if it recorded nothing.",
    ),
    (
        "Evidence-Leaf-Hash",
        "The hash of that entry's leaf, as 64 hexadecimal digits. Absent if the request recorded nothing.",
    ),
    (
        "Evidence-Record-Id",
        "The id of the record that the request created, for `GET /ledger/{org}/proof/{record_id}`. Absent if it created none.",
    ),
];

/// Sets a key, if there is a value.
fn put(object: &mut Value, key: &str, value: Option<&Value>) {
    if let Some(value) = value {
        object[key] = value.clone();
    }
}

/// Returns the sentence about the required access for the description of an operation.
const fn who_may_call(scope: Scope) -> &'static str {
    match scope {
        Scope::Open => "Requires no API key.",
        Scope::Authenticated => "Requires any valid API key.",
        Scope::Read => "Requires any role in the organization: `reader` or above.",
        Scope::ReadFlow => {
            "Requires any role in the organization: `reader` or above. A public flow requires any valid API key."
        }
        Scope::Report => "Requires the role `snapshotter` or above.",
        Scope::Write => "Requires the role `member` or above.",
        Scope::Admin => "Requires the role `admin`.",
    }
}

/// Returns the documented error statuses of an operation with this kind of body.
fn error_statuses(body: BodyKind) -> impl Iterator<Item = &'static str> {
    let reads = !matches!(body, BodyKind::Empty);
    let all = ["400", "401", "403", "404", "413", "414", "415", "431", "503"].into_iter();
    all.filter(move |status| reads || !matches!(*status, "413" | "415"))
}

/// Returns the first segment of a path.
fn tag(path: &str) -> &str {
    path.trim_start_matches('/').split('/').next().unwrap_or_default()
}

fn form_schema(parts: FormParts, document: &Schema) -> Value {
    let file = json!({ "type": "string", "format": "binary", "description": "A file." });
    let mut document = document.clone();
    document.insert("description".to_owned(), "The document, as JSON text.".into());
    let mut schema = json!({
        "type": "object",
        "properties": { parts.document: document, parts.file: file },
        "required": [parts.document],
    });
    if parts.many {
        let numbered = format!("^{}\\.[0-9]+$", parts.file);
        schema["patternProperties"] = json!({ numbered: file });
    }
    schema
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "message": { "type": "string", "description": "The error as a sentence." },
            "errors": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "The errors by field. Absent if no field is the cause.",
            },
        },
        "required": ["message"],
        "description": "The reason why a request was rejected.",
    })
}
