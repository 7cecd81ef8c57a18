//! Requests for the usual resources. A method named after the HTTP method and the resource, such as [`Api::put_flow`],
//! returns a request with defaults, which [`RequestBuilder::with`] overrides. A method named `given_…` also sends the
//! request, and asserts that it succeeds.

use std::fmt::Display;

use serde_json::{Value, json};

use crate::support::{Api, RequestBuilder};

impl Api {
    /// Creates or changes a flow, by default a private one without a template.
    pub(crate) fn put_flow(&self, name: impl Display) -> RequestBuilder {
        let flow = json!({"name": name.to_string(), "description": ""});
        self.put("/flows/acme/template_file").default_form(flow)
    }

    /// Creates a flow with this template.
    pub(crate) async fn given_flow(&self, name: &str, template: &str) {
        self.put_flow(name).template(template).await.created();
    }

    /// Begins or changes a trail of `flow` with this document.
    pub(crate) fn put_trail(&self, flow: &str, document: &Value) -> RequestBuilder {
        self.put(&format!("/trails/acme/{flow}")).data_json(document)
    }

    /// Reports an artifact to a flow, by default as `app` and to no trail.
    pub(crate) fn post_artifact(&self, flow: impl Display, fingerprint: impl Display) -> RequestBuilder {
        self.post(&format!("/artifacts/acme/{flow}")).default_json(json!({
            "fingerprint": fingerprint.to_string(), "filename": "app", "build_url": "b", "commit_url": "c",
        }))
    }

    /// Adds an attestation of this kind to a trail; the document follows.
    pub(crate) fn post_attestation(
        &self,
        flow: impl Display,
        trail: impl Display,
        kind: &str,
    ) -> RequestBuilder {
        self.post(&format!("/attestations/acme/{flow}/trail/{trail}/{kind}"))
    }

    /// Adds a generic attestation to the trail `t`. [`RequestBuilder::with`] may name an artifact.
    pub(crate) fn post_generic_attestation(
        &self,
        flow: impl Display,
        name: impl Display,
        is_compliant: bool,
    ) -> RequestBuilder {
        let attestation = json!({"attestation_name": name.to_string(), "is_compliant": is_compliant});
        self.post_attestation(flow, "t", "generic").default_form(attestation)
    }

    /// Creates or changes an environment.
    pub(crate) fn put_environment(&self, name: impl Display, kind: &str) -> RequestBuilder {
        let environment = json!({"name": name.to_string(), "type": kind, "description": ""});
        self.put("/environments/acme").default_json(environment)
    }

    /// Creates or changes a logical environment of these members.
    pub(crate) fn put_logical_environment(
        &self,
        name: impl Display,
        members: impl serde::Serialize,
    ) -> RequestBuilder {
        self.put_environment(name, "logical").with(json!({"included_environments": members}))
    }

    /// Creates a policy, or adds a version to it.
    pub(crate) fn put_policy(&self, name: impl Display, text: &str) -> RequestBuilder {
        let payload = json!({"name": name.to_string()});
        self.put("/policies/acme").payload(payload).file("policy_file", "policy.yaml", text)
    }

    /// Creates a control.
    pub(crate) fn post_control(&self, identifier: impl Display) -> RequestBuilder {
        let control = json!({"identifier": identifier.to_string(), "name": "A control"});
        self.post("/controls/acme").default_json(control)
    }
}

impl RequestBuilder {
    /// Sent with this template.
    pub(crate) fn template(self, text: impl Display) -> Self {
        self.file("template_file", "t.yml", text)
    }

    /// Reported as this artifact of the template.
    pub(crate) fn named(self, name: impl Display) -> Self {
        self.with(json!({"template_reference_name": name.to_string()}))
    }

    /// Reported to this trail.
    pub(crate) fn in_trail(self, trail: impl Display) -> Self {
        self.with(json!({"trail_name": trail.to_string()}))
    }
}

/// Returns the document with these fields, which replace its own.
pub(crate) fn merged(mut document: Value, fields: &Value) -> Value {
    document.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    document
}
