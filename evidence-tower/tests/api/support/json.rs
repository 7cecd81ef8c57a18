//! Requests and answers in JSON, in few words.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Api, Ask, Reply};

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
    pub(crate) fn post(&self, path: &str) -> Ask {
        self.request(Method::POST, path)
    }

    /// A PATCH by jane.
    pub(crate) fn patch(&self, path: &str) -> Ask {
        self.request(Method::PATCH, path)
    }

    /// A DELETE by jane.
    pub(crate) fn delete(&self, path: &str) -> Ask {
        self.request(Method::DELETE, path)
    }

    /// Makes a docker environment.
    pub(crate) async fn environment(&self, name: &str) {
        let body = json!({"name": name, "type": "docker", "description": ""});
        self.put("/environments/acme").json(body).await.created();
    }

    /// Reports an artifact of the flow `shop` from this repo; both come into being with it.
    pub(crate) async fn report_from(&self, repo_info: &Value) {
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

impl Ask {
    /// Sent with this JSON.
    pub(crate) fn json(self, body: impl std::borrow::Borrow<Value>) -> Self {
        self.bytes("application/json", body.borrow().to_string())
    }
}

impl Reply {
    /// The JSON of a success with status 200.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        self.with_status(200)
    }

    /// The JSON of a success with status 201.
    #[track_caller]
    pub(crate) fn created(self) -> Value {
        self.with_status(201)
    }

    /// The message of a refusal.
    #[track_caller]
    pub(crate) fn message(self, status: u16) -> String {
        let body = self.with_status(status);
        body["message"].as_str().unwrap_or_else(|| panic!("no message in {body}")).to_owned()
    }

    /// Asserts that the request failed with this message.
    #[track_caller]
    pub(crate) fn fails(self, status: u16, message: &str) {
        self.expect(status, json!({"message": message}));
    }

    /// Asserts that the input is refused because it lacks this field.
    #[track_caller]
    pub(crate) fn lacks(self, field: &str) {
        self.expect(400, json!({"errors": {field: "Field required [input: None]"}}));
    }

    /// Asserts that the whole refusal is this message with these `errors`.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, message: &str, errors: &[(&str, &str)]) {
        let errors: Value = errors.iter().map(|(field, text)| ((*field).to_owned(), json!(text))).collect();
        self.expect_exactly(status, json!({"message": message, "errors": errors}));
    }

    /// Asserts that the input is refused for exactly this field.
    #[track_caller]
    pub(crate) fn refuses_field(self, status: u16, field: &str) {
        let body = self.with_status(status);
        assert_eq!(fields(&body["errors"]), [field], "{body}");
    }

    #[track_caller]
    fn with_status(self, status: u16) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status.as_u16(), status, "{text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}
