//! The built-in system types of attestations, with their data schemas.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::attestations::claims::{DecisionData, SbomData};
use crate::attestations::details::{DECISION, SARIF, SBOM};
use crate::attestations::sarif::SarifData;
use crate::auth::actor::Scope;
use crate::context::Context;
use crate::error::Result;
use crate::name::OrgName;
use crate::operation::{Json, Method, Operation};

/// Lists the built-in system types of attestations, sorted by name, each with its versions.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListSystemAttestationTypes {}

/// A built-in system type of attestation.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "SystemAttestationType")]
#[non_exhaustive]
pub struct SystemTypeView {
    /// The name to use as the `type_name` of an attestation.
    pub name: &'static str,
    /// A description of its purpose.
    pub description: &'static str,
    /// Its versions, newest first.
    pub versions: Vec<SystemTypeVersionView>,
}

/// A version of a system type.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "SystemAttestationTypeVersion")]
#[non_exhaustive]
pub struct SystemTypeVersionView {
    /// Its number, from 1.
    pub version: u64,
    /// The JSON Schema of its attestations' data.
    pub type_schema: Value,
}

fn first_version<T: JsonSchema>() -> Vec<SystemTypeVersionView> {
    // Inline all subschemas, so that the schema can be used elsewhere without looking up references.
    let whole = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    let type_schema = whole.into_generator().into_root_schema_for::<T>().to_value();
    vec![SystemTypeVersionView { version: 1, type_schema }]
}

fn types() -> Vec<SystemTypeView> {
    vec![
        SystemTypeView {
            name: DECISION,
            description: "Whether what a control demands was done",
            versions: first_version::<DecisionData>(),
        },
        SystemTypeView {
            name: SARIF,
            description: "What a scanner found",
            versions: first_version::<SarifData>(),
        },
        SystemTypeView {
            name: SBOM,
            description: "What something is made of",
            versions: first_version::<SbomData>(),
        },
    ]
}

impl Operation for ListSystemAttestationTypes {
    const NAME: &'static str = "list_system_attestation_types";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/attestations/system-attestation-types";
    const SCOPE: Scope = Scope::Authenticated;
    const SUMMARY: &'static str = "Lists the built-in types of attestations";
    type Body = ();
    type Output = Json<Vec<SystemTypeView>>;

    fn org(&self) -> Option<&OrgName> {
        None
    }

    async fn run(self, (): (), _: &Context<'_>) -> Result<Self::Output> {
        Ok(Json(types()))
    }
}
