//! A client of the API without a socket. Each call is one HTTP request to the service in this process.

use bytes::Bytes;
use evidence_core::Evidence;
use evidence_tower::EvidenceApi;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::ServiceExt;

/// The error of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// The service returned an error.
    #[error("{method} {path} returned {status}: {body}")]
    Answered { method: Method, path: String, status: StatusCode, body: String },
    /// The request could not be created.
    #[error("a request could not be created: {0}")]
    Request(#[from] http::Error),
    /// The response was incomplete.
    #[error("a response could not be read: {0}")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Sends requests for one organization with one key.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    api: EvidenceApi<Evidence>,
    org: &'a str,
    key: &'a str,
}

/// A file part of a form: the names of the part and of the file, and the content.
pub(crate) type FilePart<'a> = (&'a str, &'a str, &'a str);

/// The end of a form's part. It is longer than any run of hyphens in the demo's texts, so it does not occur
/// in them.
const BOUNDARY: &str = "------------------------evidence-demo";

impl<'a> Client<'a> {
    pub(crate) const fn new(api: EvidenceApi<Evidence>, org: &'a str, key: &'a str) -> Self {
        Self { api, org, key }
    }

    /// Sends JSON to `/{resource}/{org}{rest}`.
    pub(crate) async fn json(
        &self,
        method: Method,
        resource: &str,
        rest: &str,
        body: &Value,
    ) -> Result<(), DemoError> {
        self.send(method, resource, rest, "application/json", body.to_string()).await
    }

    /// Sends a form with a JSON document (part name and value) and optionally a file.
    pub(crate) async fn form(
        &self,
        method: Method,
        resource: &str,
        rest: &str,
        document: (&str, &Value),
        file: Option<FilePart<'_>>,
    ) -> Result<(), DemoError> {
        let media_type = format!("multipart/form-data; boundary={BOUNDARY}");
        self.send(method, resource, rest, &media_type, form(document, file)).await
    }

    async fn send(
        &self,
        method: Method,
        resource: &str,
        rest: &str,
        media_type: &str,
        body: String,
    ) -> Result<(), DemoError> {
        let path = format!("/api/v2/{resource}/{}{rest}", self.org);
        let request = Request::builder()
            .method(method.clone())
            .uri(&path)
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", media_type)
            .body(Full::new(Bytes::from(body)))?;
        let Ok(answer) = self.api.clone().oneshot(request).await;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let body = answer.into_body().collect().await.map_err(|error| DemoError::Answer(error.into()))?;
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        Err(DemoError::Answered { method, path, status, body })
    }
}

fn form((name, document): (&str, &Value), file: Option<FilePart<'_>>) -> String {
    let mut form =
        format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{document}\r\n");
    if let Some((part, file_name, content)) = file {
        form += &format!(
            "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{part}\"; filename=\"{file_name}\"\r\n\
             content-type: application/octet-stream\r\n\r\n{content}\r\n"
        );
    }
    form + &format!("--{BOUNDARY}--\r\n")
}
