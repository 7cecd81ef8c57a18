//! The JSON Schemas of the documents that people write by hand, for editors and checks in their pipelines.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::auth::actor::Scope;
use crate::context::Context;
use crate::error::Result;
use crate::name::OrgName;
use crate::operation::{Json, Method, Operation};
use crate::rules::{policy, template};

/// Gets the JSON Schema of the flow template format, version 1, for editors and checks. The YAML text of a template
/// fits it once it is read.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetFlowTemplateSchema {}

impl Operation for GetFlowTemplateSchema {
    const NAME: &'static str = "flow_template_schema_v1";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/schemas/flow-template/v1";
    const SCOPE: Scope = Scope::Authenticated;
    const SUMMARY: &'static str = "Gets the JSON Schema of the flow template format, version 1";
    type Body = ();
    type Output = Json<Value>;

    fn org(&self) -> Option<&OrgName> {
        None
    }

    async fn run(self, (): (), _: &Context<'_>) -> Result<Self::Output> {
        Ok(Json(template::schema()))
    }
}

/// Gets the JSON Schema of the environment policy format, version 1, for editors and checks. The YAML text of a policy fits
/// it once it is read; what stands within the braces of a condition is checked when the policy is put.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetEnvironmentPolicySchema {}

impl Operation for GetEnvironmentPolicySchema {
    const NAME: &'static str = "environment_policy_schema_v1";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/schemas/environment-policy/v1";
    const SCOPE: Scope = Scope::Authenticated;
    const SUMMARY: &'static str = "Gets the JSON Schema of the environment policy format, version 1";
    type Body = ();
    type Output = Json<Value>;

    fn org(&self) -> Option<&OrgName> {
        None
    }

    async fn run(self, (): (), _: &Context<'_>) -> Result<Self::Output> {
        Ok(Json(policy::schema()))
    }
}
