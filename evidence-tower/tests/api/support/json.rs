//! Requests and responses with JSON bodies.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Api, Reply, RequestBuilder};

/// The message of a refused body or parameter (specification, Errors).
pub(crate) const INVALID: &str = "Input payload validation failed";
/// The message of a missing right (specification, Errors).
pub(crate) const FORBIDDEN: &str = "You don't have permission to access this resource";

/// The names of an object's fields, sorted.
#[track_caller]
pub(crate) fn fields(object: &Value) -> Vec<&str> {
    let mut fields: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    fields
}

impl Api {
    /// A POST by jane.
    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.request(Method::POST, path)
    }

    /// A PATCH by jane.
    pub(crate) fn patch(&self, path: &str) -> RequestBuilder {
        self.request(Method::PATCH, path)
    }

    /// A DELETE by jane.
    pub(crate) fn delete(&self, path: &str) -> RequestBuilder {
        self.request(Method::DELETE, path)
    }

    /// Creates a Docker environment.
    pub(crate) async fn given_environment(&self, name: &str) {
        let body = json!({"name": name, "type": "docker", "description": ""});
        self.put("/environments/acme").json(body).await.created();
    }

    /// Reports an artifact of the flow `shop` from this repository. This creates both.
    pub(crate) async fn given_artifact_from_repo(&self, repo_info: &Value) {
        let body = json!({
            "fingerprint": "a".repeat(64),
            "filename": "shop",
            "git_commit": "b".repeat(40),
            "build_url": "https://ci.example.com/1",
            "commit_url": "https://github.com/acme/shop/commit/1",
            "repo_info": repo_info,
        });
        self.post("/artifacts/acme/shop").json(body).await.created();
    }
}

impl RequestBuilder {
    /// Sent with this JSON.
    pub(crate) fn json(self, body: impl std::borrow::Borrow<Value>) -> Self {
        self.bytes("application/json", body.borrow().to_string())
    }
}

impl Reply {
    /// Asserts the status 200, and returns the JSON body.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        self.json_with_status(200)
    }

    /// Asserts the status 201, and returns the JSON body.
    #[track_caller]
    pub(crate) fn created(self) -> Value {
        self.json_with_status(201)
    }

    /// Asserts the status of an error, and returns its message.
    #[track_caller]
    pub(crate) fn error_message(self, status: u16) -> String {
        let body = self.json_with_status(status);
        body["message"].as_str().unwrap_or_else(|| panic!("no message in {body}")).to_owned()
    }

    /// Asserts the status and the message of an error.
    #[track_caller]
    pub(crate) fn expect_message(self, status: u16, message: &str) {
        self.expect(status, json!({"message": message}));
    }

    /// Asserts that the request is refused because this field is missing.
    #[track_caller]
    pub(crate) fn expect_missing_field(self, field: &str) {
        self.expect(400, json!({"errors": {field: "Field required [input: None]"}}));
    }

    /// Asserts that the error is exactly this message with these `errors`.
    #[track_caller]
    pub(crate) fn expect_errors(self, status: u16, message: &str, errors: &[(&str, &str)]) {
        let errors: Value = errors.iter().map(|(field, text)| ((*field).to_owned(), json!(text))).collect();
        self.expect_exactly(status, json!({"message": message, "errors": errors}));
    }

    /// Asserts that the error names exactly this field.
    #[track_caller]
    pub(crate) fn expect_field_error(self, status: u16, field: &str) {
        let body = self.json_with_status(status);
        assert_eq!(fields(&body["errors"]), [field], "{body}");
    }

    #[track_caller]
    fn json_with_status(self, status: u16) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status.as_u16(), status, "{text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}
