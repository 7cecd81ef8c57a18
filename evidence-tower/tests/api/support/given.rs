//! The resources that cases begin with. A builder is a request with defaults; [`Ask::with`] overrides them.

use std::fmt::Display;

use serde_json::{Value, json};

use crate::support::{Api, Ask};

impl Api {
    /// Puts a flow, by default a private one without a template.
    pub(crate) fn put_flow(&self, name: impl Display) -> Ask {
        let flow = json!({"name": name.to_string(), "description": ""});
        self.put("/flows/acme/template_file").form_of(flow)
    }

    /// Makes a flow with this template.
    pub(crate) async fn flow(&self, name: &str, template: &str) {
        self.put_flow(name).template(template).await.created();
    }

    /// Begins a trail of `flow` with this document.
    pub(crate) fn begin(&self, flow: &str, document: &Value) -> Ask {
        self.put(&format!("/trails/acme/{flow}")).data(document)
    }

    /// Reports an artifact to a flow, by default as `app` and to no trail.
    pub(crate) fn report(&self, flow: impl Display, fingerprint: impl Display) -> Ask {
        self.post(&format!("/artifacts/acme/{flow}")).json_of(json!({
            "fingerprint": fingerprint.to_string(), "filename": "app", "build_url": "b", "commit_url": "c",
        }))
    }

    /// Adds an attestation of this kind to a trail; the document follows.
    pub(crate) fn attest_in(&self, flow: impl Display, trail: impl Display, kind: &str) -> Ask {
        self.post(&format!("/attestations/acme/{flow}/trail/{trail}/{kind}"))
    }

    /// Adds a generic attestation to the trail `t`. [`Ask::with`] may name an artifact.
    pub(crate) fn generic(&self, flow: impl Display, name: impl Display, is_compliant: bool) -> Ask {
        let attestation = json!({"attestation_name": name.to_string(), "is_compliant": is_compliant});
        self.attest_in(flow, "t", "generic").form_of(attestation)
    }

    /// Makes or changes an environment.
    pub(crate) fn put_environment(&self, name: impl Display, kind: &str) -> Ask {
        let environment = json!({"name": name.to_string(), "type": kind, "description": ""});
        self.put("/environments/acme").json_of(environment)
    }

    /// Makes or changes a logical environment of these members.
    pub(crate) fn put_logical(&self, name: impl Display, members: impl serde::Serialize) -> Ask {
        self.put_environment(name, "logical").with(json!({"included_environments": members}))
    }

    /// Creates a policy, or adds a version to it.
    pub(crate) fn policy(&self, name: impl Display, text: impl Display) -> Ask {
        let payload = json!({"name": name.to_string()});
        self.put("/policies/acme").payload(payload).file("policy_file", "policy.yaml", text)
    }

    /// Creates a control.
    pub(crate) fn post_control(&self, identifier: impl Display) -> Ask {
        let control = json!({"identifier": identifier.to_string(), "name": "A control"});
        self.post("/controls/acme").json_of(control)
    }
}

impl Ask {
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
