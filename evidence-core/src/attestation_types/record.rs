//! The recorded form of custom attestation types and their versions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::auth::actor::Actor;
use crate::bounded::{List, ShortText, Text};
use crate::decode::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::json::JsonText;
use crate::name::AttestationTypeName;
use crate::time::Timestamp;

/// A custom attestation type as recorded. Its versions are separate records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct AttestationType {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: AttestationTypeName,
    /// A description of its purpose.
    pub description: Option<String>,
    /// The number of its latest version, from 1.
    pub version: u64,
    /// Whether it no longer accepts attestations.
    pub archived: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// The user or service account that created it.
    pub created_by: Actor,
    /// When it last changed.
    pub last_modified_at: Timestamp,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(AttestationType);

/// One immutable version of a custom attestation type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttestationTypeVersion {
    /// The type.
    pub attestation_type: Id,
    /// Its number, from 1.
    pub version: u64,
    /// The JSON Schema that its data must match.
    pub type_schema: Option<JsonText>,
    /// The evaluation of its data: `{content_type: "jq", rules: […]}` or `{content_type: "default"}`, with
    /// `rules` if any were sent.
    pub evaluator: Value,
    /// The values to show: a list of `{name, expression}`.
    pub summary: Option<Value>,
    /// When it was made.
    pub at: Timestamp,
    /// The user or service account that made it.
    pub by: Actor,
}

/// The evaluation of a custom attestation's data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "content_type", rename_all = "lowercase", try_from = "SentEvaluator")]
pub enum Evaluator {
    /// The schema only.
    Default {
        /// Programs that were sent nevertheless. They are recorded but not run.
        #[serde(skip_serializing_if = "Option::is_none")]
        rules: Option<List<Program>>,
    },
    /// The schema, and jq programs that must all be true.
    Jq {
        /// The programs.
        rules: List<Program>,
    },
}

impl Default for Evaluator {
    fn default() -> Self {
        Self::Default { rules: None }
    }
}

/// An evaluator as sent: `content_type` is optional.
#[derive(Deserialize, JsonSchema)]
struct SentEvaluator {
    /// `jq` or `default`. Defaults to `jq` if there are `rules`.
    content_type: Option<ContentType>,
    /// The jq programs, all of which must be true. With `default`, they are recorded but not run.
    rules: Option<List<Program>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ContentType {
    Jq,
    Default,
}

impl TryFrom<SentEvaluator> for Evaluator {
    type Error = &'static str;

    fn try_from(sent: SentEvaluator) -> Result<Self, Self::Error> {
        match (sent.content_type, sent.rules) {
            (Some(ContentType::Default), rules) => Ok(Self::Default { rules }),
            (None, None) => Ok(Self::default()),
            (Some(ContentType::Jq) | None, Some(rules)) => Ok(Self::Jq { rules }),
            (Some(ContentType::Jq), None) => Err("Input should have 'rules' for the content type 'jq'"),
        }
    }
}

/// A value to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SummaryItem {
    /// The label of the value.
    pub name: ShortText,
    /// The jq program that computes it.
    pub expression: Program,
}

/// A jq program: 1 to 4,096 characters, recorded unchanged.
pub type Program = Text<{ 4 << 10 }, 1>;
