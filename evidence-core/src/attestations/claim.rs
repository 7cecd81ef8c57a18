//! The common parts of all types of attestations: the trait [`Claim`] that each implements, the document of a
//! report, and the verdict.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::attestations::details::Details;
use crate::attestations::record::{Annotations, Attachment, Binding};
use crate::blobs::Upload;
use crate::bounded::{Description, List, UserData, WebUrl};
use crate::decode::{self, InvalidField};
use crate::error::Result;
use crate::fact::names::Precondition;
use crate::git::GitCommit;
use crate::id::Id;
use crate::json::CheckedJson;
use crate::limits::Limits;
use crate::links::ExternalUrls;
use crate::name::{AttestationName, Fingerprint};
use crate::operation::{Body, Document, Form, FormParts, JsonDocument};
use crate::repos::record::RepoInfo;
use crate::service::Context;

/// A type of attestation: its input and its evaluation. The type's `///` text is appended to the description
/// of its operation in the OpenAPI document.
pub trait Claim: DeserializeOwned + JsonSchema + Send + Sync + Sized + 'static {
    /// The id of the operation that adds an attestation.
    const OPERATION: &'static str;
    /// The path of the operation.
    const PATH: &'static str;
    /// The summary of the operation.
    const SUMMARY: &'static str;
    /// The name of the input schema.
    const SCHEMA: &'static str;

    /// Whether empty elements of one of its lists are skipped. Allowed only if skipping cannot improve the
    /// verdict: a suite, a finding or an issue is never skipped.
    const IS_COLLECTED: bool = false;

    /// The body of the request: a [`Form`](crate::operation::Form) if files are allowed, otherwise a
    /// [`JsonDocument`].
    type Body: AttestationBody<Self>;

    /// Returns the size limit of the JSON document, in bytes.
    fn document_limit(limits: &Limits) -> u64 {
        limits.document
    }

    /// Reads the claim from the fields of the attestation's document that belong to the type.
    ///
    /// # Errors
    /// The first invalid field.
    fn read(text: CheckedJson<'_>, is_own: fn(&str) -> bool) -> Result<Self, InvalidField> {
        decode::from_fields(text, is_own)
    }

    /// Returns the number of list elements that were skipped.
    fn skipped(&self) -> usize {
        0
    }

    /// Evaluates the claim. It may query the store, and then adds preconditions to the verdict for what it
    /// depends on. If a precondition fails when the attestation is recorded, the claim is evaluated again.
    ///
    /// # Errors
    /// The reason to refuse the claim, usually [`crate::Error::Invalid`]. Nothing is recorded then.
    fn evaluate(&self, about: &Claimed<'_>, cx: &Context<'_>)
    -> impl Future<Output = Result<Verdict>> + Send;
}

/// The context of a claim: its attestation's name, trail, subject and files.
#[derive(Debug, Clone, Copy)]
pub struct Claimed<'a> {
    /// The attestation's name.
    pub name: &'a AttestationName,
    /// The id of the trail; `None` if the attestation creates the trail.
    pub trail: Option<Id>,
    /// The subject of the attestation within the trail.
    pub binding: &'a Binding,
    /// The files of the attestation.
    pub attachments: &'a [Attachment],
}

/// The result of evaluating a claim.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The name of the type, as stored and returned.
    pub kind: String,
    /// Whether the attestation is compliant.
    pub is_compliant: bool,
    /// The type's own part of the record.
    pub details: Details,
    /// The preconditions that must still hold when the verdict is recorded.
    pub preconditions: Vec<Precondition>,
}

impl Verdict {
    /// Returns a verdict that depends on the claim only.
    pub fn of(kind: impl Into<String>, is_compliant: bool, details: Details) -> Self {
        Self { kind: kind.into(), is_compliant, details, preconditions: Vec::new() }
    }
}

/// The document of an attestation: the common fields and the type's own. The type decides whether other
/// fields are refused.
#[derive(Debug, Clone)]
pub struct AttestationInput<C> {
    /// The common fields.
    pub base: AttestationBase,
    /// The type's own fields.
    pub claim: C,
}

/// The fields that attestations of every type can have.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct AttestationBase {
    /// The attestation's name, by which templates refer to it.
    pub attestation_name: AttestationName,
    /// The URL of its origin, such as the build.
    pub origin_url: Option<WebUrl>,
    /// A description for readers.
    pub description: Option<Description>,
    /// The SHA-256 of the artifact that it is about. The artifact must have been reported to the trail
    /// before.
    pub artifact_fingerprint: Option<Fingerprint>,
    /// The template name of the artifact that it is about, as the only item. If no artifact has that name
    /// yet, `git_commit_info` must have the commit that it will be built from.
    pub target_artifacts: Option<List<AttestationName, 1>>,
    /// The commit of the attestation.
    pub git_commit_info: Option<GitCommit>,
    /// The repository that it comes from. The report adds it to the organization's repos.
    pub repo_info: Option<RepoInfo>,
    /// Labelled links: label to URL and, optionally, the fingerprint of the linked content.
    pub external_urls: Option<ExternalUrls>,
    /// Labelled remarks.
    pub annotations: Option<Annotations>,
    /// Free-form data to record with it.
    pub user_data: Option<UserData>,
}

const BASE_FIELDS: [&str; 10] = [
    "attestation_name",
    "origin_url",
    "description",
    "artifact_fingerprint",
    "target_artifacts",
    "git_commit_info",
    "repo_info",
    "external_urls",
    "annotations",
    "user_data",
];

impl<C: Claim> Document for AttestationInput<C> {
    const PARTS: FormParts = FormParts { document: "data_json", file: "attachment_file", many: true };

    fn read(text: CheckedJson<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            base: decode::from_fields(text, |field| BASE_FIELDS.contains(&field))?,
            claim: C::read(text, |field| !BASE_FIELDS.contains(&field))?,
        })
    }
}

impl<C: Claim> JsonSchema for AttestationInput<C> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        C::SCHEMA.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = AttestationBase::json_schema(generator);
        if let Some(own) = described::<C>(generator) {
            schema.insert("description".to_owned(), own.into());
        }
        let own = C::json_schema(generator);
        for part in ["properties", "required"] {
            match (schema.get_mut(part), own.get(part)) {
                (Some(Value::Object(all)), Some(Value::Object(more))) => all.extend(more.clone()),
                (Some(Value::Array(all)), Some(Value::Array(more))) => all.extend(more.iter().cloned()),
                _ => {}
            }
        }
        if let Some(closed) = own.get("additionalProperties") {
            schema.insert("additionalProperties".to_owned(), closed.clone());
        }
        schema
    }
}

/// Returns the description of an attestation type.
pub(super) fn described<C: Claim>(generator: &mut SchemaGenerator) -> Option<String> {
    Some(C::json_schema(generator).get("description")?.as_str()?.to_owned())
}

/// The body of an attestation request: a form with files as evidence, or JSON without files.
pub trait AttestationBody<C>: Body {
    /// Returns a body without files.
    fn of(input: AttestationInput<C>) -> Self;

    /// Returns the document and the files.
    fn into_parts(self) -> (AttestationInput<C>, Vec<Upload>);
}

impl<C: Claim> AttestationBody<C> for Form<AttestationInput<C>> {
    fn of(input: AttestationInput<C>) -> Self {
        Self::of(input)
    }

    fn into_parts(self) -> (AttestationInput<C>, Vec<Upload>) {
        (self.document, self.files)
    }
}

impl<C: Claim> AttestationBody<C> for JsonDocument<AttestationInput<C>> {
    fn of(input: AttestationInput<C>) -> Self {
        Self(input)
    }

    fn into_parts(self) -> (AttestationInput<C>, Vec<Upload>) {
        (self.0, Vec::new())
    }
}
