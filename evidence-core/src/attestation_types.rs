//! Custom attestation types: a team's own kinds of evidence, with a schema and rules, versioned.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::auth::{Actor, Scope};
use crate::compute::LONG_JSON;
use crate::decode::{self, InvalidField};
use crate::error::{Error, Resource, Result};
use crate::fact::{Fact, Guard, Key, RecordKind, UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::json::{self, EmptyObject, JsonText, JsonValue};
use crate::name::{AttestationTypeName, OrgName};
use crate::operation::{Created, Document, Form, FormParts, JsonStream, Method, Operation};
use crate::page::Listed;
use crate::service::{Context, Draft, Lasting};
use crate::shared::{Acknowledged, Description, List, ShortText, Text, sort_by_ids};
use crate::store::{Current, Store, StoreResult};
use crate::time::{Seconds, Timestamp};
use crate::versions::{Told, Version, Versioned};

pub use crate::versions::VersionKey;

/// A custom attestation type as it is recorded; its versions are records of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct AttestationType {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: AttestationTypeName,
    /// What it is for.
    pub description: Option<String>,
    /// The number of its latest version, from 1.
    pub version: u64,
    /// Whether it takes no more attestations.
    pub archived: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
    /// When it last changed.
    pub last_modified_at: Timestamp,
    /// What a newer version of the program recorded beside.
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
    /// The JSON Schema that its data must fit.
    pub type_schema: Option<JsonText>,
    /// How its data are evaluated: `{content_type: "jq", rules: […]}` or `{content_type: "default"}`,
    /// with `rules` where some were sent.
    pub evaluator: Value,
    /// What of the data is shown: a list of `{name, expression}`.
    pub summary: Option<Value>,
    /// When it was made.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
}

/// Queries about custom attestation types.
#[async_trait]
pub trait AttestationTypeStore: Send + Sync {
    /// The type of this name, one, with its revision.
    async fn attestation_type(&self, org: Id, name: &str) -> StoreResult<Option<Current<AttestationType>>>;
    /// All types of the organization, newest first by the ledger index of their first version, without what they say.
    async fn attestation_types_listed(&self, org: Id) -> StoreResult<Vec<Listed>>;
    /// The types of these ids, one an id, in any order; unknown ids are passed over.
    async fn attestation_types_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<AttestationType>>;
    /// How large these versions of types are, found by the type's id and their number, one each, in any order; unknown ones
    /// are passed over.
    async fn attestation_type_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>>;
    /// These versions, found in the same way, one each, in any order; unknown ones are passed over.
    async fn attestation_type_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<AttestationTypeVersion>>;
}

/// A custom attestation type. Asked for one version, it lacks who made the type and when.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "CustomAttestationType")]
pub struct AttestationTypeView {
    /// What comes before its versions.
    #[serde(flatten)]
    pub before: BeforeVersions,
    /// Its versions, newest first; the one alone that was asked for.
    pub versions: Vec<VersionView>,
}

/// What an answer says of a custom attestation type before it shows the versions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BeforeVersions {
    /// Its name, unique in the organization.
    pub name: AttestationTypeName,
    /// What it is for; absent when nothing was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The organization's name.
    pub org: OrgName,
    /// Whether it was archived; lists leave archived ones out.
    pub archived: bool,
    /// Who made its first version; absent where one version was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// When its first version was made, in epoch seconds; absent where one version was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Seconds>,
    /// When its newest version was made, in epoch seconds; absent where one version was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified_at: Option<Seconds>,
}

/// One version of a custom attestation type.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "CustomAttestationTypeVersion")]
pub struct VersionView {
    /// Its number, from 1.
    pub version: u64,
    /// When it was made, in epoch seconds.
    pub timestamp: Seconds,
    /// Who made it: the name of a user or service account.
    pub created_by: String,
    /// The JSON Schema, absent when there is none. It is JSON and not a string that holds JSON: the public clients
    /// either read it as the object it is or show its compact text as it came, and both are served by this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_schema: Option<JsonText>,
    /// How the data are evaluated.
    #[schemars(with = "Evaluator")]
    pub evaluator: Value,
    /// What of the data is shown; null where that was not told.
    #[schemars(with = "Option<List<SummaryItem>>")]
    pub summary: Option<Value>,
}

impl From<AttestationTypeVersion> for VersionView {
    fn from(version: AttestationTypeVersion) -> Self {
        let AttestationTypeVersion { version, type_schema, evaluator, summary, at, by, .. } = version;
        Self { version, timestamp: at.seconds(), created_by: by.name, type_schema, evaluator, summary }
    }
}

impl Version for AttestationTypeVersion {
    type View = VersionView;
    type Event = ();
    const OF: &'static str = "custom attestation type";

    fn key(&self) -> VersionKey {
        (self.attestation_type, self.version)
    }

    fn made(&self) -> Option<()> {
        None
    }

    async fn sizes(
        store: &dyn Store,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        store.attestation_type_version_sizes(org, versions).await
    }

    async fn by_number(store: &dyn Store, org: Id, versions: &[VersionKey]) -> StoreResult<Vec<Self>> {
        store.attestation_type_versions_by_number(org, versions).await
    }
}

impl AttestationType {
    /// The type as an answer carries it, with all its versions.
    fn whole(self, org: &OrgName) -> Result<Versioned> {
        let versions = (1..=self.version).rev().map(|number| Told::<()>::Version((self.id, number)));
        let before = BeforeVersions {
            created_by: Some(self.created_by.name.clone()),
            created_at: Some(self.created_at.seconds()),
            last_modified_at: Some(self.last_modified_at.seconds()),
            ..self.before(org)
        };
        Versioned::new(&before, versions, &EmptyObject {})
    }

    /// The same with one of its versions, and without who made it and when.
    fn of_version(&self, number: u64, org: &OrgName) -> Result<Versioned> {
        Versioned::new(&self.before(org), [Told::<()>::Version((self.id, number))], &EmptyObject {})
    }

    fn before(&self, org: &OrgName) -> BeforeVersions {
        BeforeVersions {
            name: self.name.clone(),
            description: self.description.clone(),
            org: org.clone(),
            archived: self.archived,
            created_by: None,
            created_at: None,
            last_modified_at: None,
        }
    }
}

/// Lists the custom attestation types of an organization with all their versions, newest type first. Archived ones
/// are left out.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListAttestationTypes {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for ListAttestationTypes {
    const NAME: &'static str = "get_custom_attestation_types";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/custom-attestation-types/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the custom attestation types of an organization";
    type Body = ();
    type Output = JsonStream<Vec<AttestationTypeView>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let listed = cx.store().attestation_types_listed(cx.org()?).await?;
        let text = Versioned::list_text::<AttestationTypeVersion, _>(listed, in_list, cx);
        Ok(JsonStream::new(text, cx.compute()))
    }
}

/// Those of these types that are not archived, in order.
async fn in_list(ids: Vec<Id>, lasting: Lasting) -> Result<Vec<Versioned>> {
    let cx = lasting.context();
    let mut types = cx.store().attestation_types_by_id(cx.org()?, &ids).await?;
    sort_by_ids(&mut types, &ids, |known| known.id);
    types.retain(|known| !known.archived);
    let size = |known: &AttestationType| known.description.as_deref().map_or(0, str::len);
    let heavy = types.iter().map(size).sum::<usize>() > LONG_JSON;
    let org = cx.org_access()?.name.clone();
    let write = move || types.into_iter().map(|known| known.whole(&org)).collect();
    cx.compute().run_if(heavy, write).await?
}

/// Gets a custom attestation type with all its versions, or with the one that the query names; an unknown version is
/// 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetAttestationType {
    /// The organization's name.
    pub org: OrgName,
    /// The type's name.
    pub custom_attestation_type_name: AttestationTypeName,
    /// The number of the version to show; all when left out.
    pub version: Option<i64>,
}

impl Operation for GetAttestationType {
    const NAME: &'static str = "get_custom_attestation_type";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/custom-attestation-types/{org}/{custom_attestation_type_name}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets a custom attestation type";
    type Body = ();
    type Output = JsonStream<AttestationTypeView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let (store, org, name) = (cx.store(), cx.org()?, self.custom_attestation_type_name);
        let known = store.attestation_type(org, name.as_str()).await?;
        let known = known.ok_or_else(|| cx.missing(Resource::AttestationType, name.as_str()))?.record;
        let org = &cx.org_access()?.name;
        let versioned = match self.version {
            None => known.whole(org)?,
            Some(wanted) => {
                let number = u64::try_from(wanted).ok().filter(|number| (1..=known.version).contains(number));
                let missing = || {
                    let text =
                        format!("version {wanted} does not exist for custom attestation type '{name}'");
                    cx.missing(Resource::AttestationTypeVersion, text)
                };
                known.of_version(number.ok_or_else(missing)?, org)?
            }
        };
        Ok(JsonStream::new(versioned.text::<AttestationTypeVersion>(cx).await?, cx.compute()))
    }
}

/// Creates a custom attestation type, or a new version of one, which replaces the whole of the version before. What
/// equals the newest version changes nothing. The `type_schema` part is the JSON Schema that the data must fit, at
/// most 1 MiB. Attestations of such types are not taken over this API yet.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PostAttestationType {
    /// The organization's name.
    pub org: OrgName,
}

/// What a custom attestation type is made of, beside its schema. It replaces the whole of the version before.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CustomAttestationTypePostInput")]
pub struct AttestationTypeInput {
    /// The type's name. One that exists gets a new version.
    pub name: AttestationTypeName,
    /// What it is for.
    pub description: Option<Description>,
    /// How its data are evaluated: by nothing but the schema when left out.
    pub evaluator: Option<Evaluator>,
    /// What of the data is shown, and under which names.
    pub summary: Option<List<SummaryItem>>,
}

impl Document for AttestationTypeInput {
    const PARTS: FormParts = FormParts { document: "data_json", file: "type_schema", many: false };

    fn read(value: &JsonValue) -> Result<Self, InvalidField> {
        decode::from_json(value)
    }
}

/// How the data of a custom attestation are evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "content_type", rename_all = "lowercase", try_from = "SentEvaluator")]
pub enum Evaluator {
    /// By nothing but the schema.
    Default {
        /// Programs that were sent all the same, kept and not run.
        #[serde(skip_serializing_if = "Option::is_none")]
        rules: Option<List<Program>>,
    },
    /// By jq programs that must all be true.
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

/// An evaluator as it is sent: `content_type` may be left out.
#[derive(Deserialize, JsonSchema)]
struct SentEvaluator {
    /// `jq` or `default`. Left out, it is `jq` where there are `rules`.
    content_type: Option<ContentType>,
    /// The jq programs, all of which must be true. With `default` they are kept and not run.
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

/// One thing of the data that is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SummaryItem {
    /// What it is called.
    pub name: ShortText,
    /// The jq program that finds it.
    pub expression: Program,
}

/// A jq program: 1 to 4,096 characters, kept as they are.
pub type Program = Text<{ 4 << 10 }, 1>;

impl Operation for PostAttestationType {
    const NAME: &'static str = "post_custom_attestation_type";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/custom-attestation-types/{org}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Creates a custom attestation type, or a new version of one";
    type Body = Form<AttestationTypeInput>;
    type Output = Created<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, body: Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let (input, schema) = body.into_text("type_schema", cx.limits().type_schema).await?;
        let heavy = schema.as_ref().is_some_and(|text| text.len() > LONG_JSON);
        let read = move || schema.as_deref().map(read_schema).transpose();
        let content = Content::new(input, cx.compute().run_if(heavy, read).await??);
        cx.retry(|| content.post(cx)).await?;
        Ok(Created(Acknowledged::Ok))
    }
}

/// Reads a type schema: a JSON object, of whatever form.
fn read_schema(text: &str) -> Result<JsonText> {
    let value = json::parse(text.as_bytes()).map_err(|text| Error::invalid("type_schema", text))?;
    if !matches!(value, JsonValue::Object(_)) {
        return Err(Error::invalid("type_schema", "Input should be a valid dictionary"));
    }
    decode::from_json(&value).map_err(|misfit| Error::invalid_field(&misfit, "type_schema"))
}

/// Everything of a type that a version keeps.
#[derive(Debug)]
struct Content {
    name: AttestationTypeName,
    description: Option<String>,
    type_schema: Option<JsonText>,
    evaluator: Value,
    summary: Option<Value>,
}

impl Content {
    fn new(input: AttestationTypeInput, type_schema: Option<JsonText>) -> Self {
        Self {
            name: input.name,
            description: input.description.map(Description::into_string),
            type_schema,
            evaluator: json!(input.evaluator.unwrap_or_default()),
            summary: input.summary.map(|summary| json!(summary)),
        }
    }

    async fn post(&self, cx: &Context<'_>) -> Result<()> {
        let (store, org, key) = (cx.store(), cx.org()?, Key::AttestationType(self.name.clone()));
        let Some(known) = store.attestation_type(org, self.name.as_str()).await? else {
            let record = self.first(cx);
            let version = self.version(&record, cx);
            let fact = Fact::AttestationTypeCreated { record, version };
            cx.record(Draft::of(fact, Guard::Vacant(key))).await?;
            return Ok(());
        };
        let latest = AttestationTypeVersion::one((known.record.id, known.record.version), cx).await?;
        if self.is_in(&known.record, &latest) {
            return Ok(());
        }
        let most = cx.limits().attestation_type_versions;
        if known.record.version >= most {
            let text =
                format!("Custom attestation type '{}' has {most} versions and takes no more", self.name);
            return Err(Error::invalid("name", text));
        }
        let record = AttestationType {
            description: self.description.clone(),
            version: known.record.version + 1,
            last_modified_at: cx.now_after(known.record.last_modified_at),
            ..known.record
        };
        let version = self.version(&record, cx);
        let guard = Guard::Revision(RecordKind::AttestationType, record.id, known.revision);
        cx.record(Draft::of(Fact::AttestationTypeVersioned { record, version }, guard)).await?;
        Ok(())
    }

    fn first(&self, cx: &Context<'_>) -> AttestationType {
        AttestationType {
            id: cx.new_id(),
            name: self.name.clone(),
            description: self.description.clone(),
            version: 1,
            archived: false,
            created_at: cx.now(),
            created_by: cx.actor(),
            last_modified_at: cx.now(),
            unknown: UnknownFields::default(),
        }
    }

    fn version(&self, of: &AttestationType, cx: &Context<'_>) -> AttestationTypeVersion {
        AttestationTypeVersion {
            attestation_type: of.id,
            version: of.version,
            type_schema: self.type_schema.clone(),
            evaluator: self.evaluator.clone(),
            summary: self.summary.clone(),
            at: of.last_modified_at,
            by: cx.actor(),
        }
    }

    /// Whether the type has this content already.
    fn is_in(&self, known: &AttestationType, latest: &AttestationTypeVersion) -> bool {
        self.description == known.description
            && self.type_schema == latest.type_schema
            && self.evaluator == latest.evaluator
            && self.summary == latest.summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluator_is_told_by_its_content_type_or_by_its_rules() {
        let default = json!({"content_type": "default"});
        let table = [
            (json!(null), default.clone()),
            (json!({}), default.clone()),
            (json!({"content_type": "default"}), default),
            (
                json!({"content_type": "default", "rules": [".a"], "more": 1}),
                json!({"content_type": "default", "rules": [".a"]}),
            ),
            (json!({"rules": [".a"]}), json!({"content_type": "jq", "rules": [".a"]})),
            (json!({"content_type": "jq", "rules": []}), json!({"content_type": "jq", "rules": []})),
            (
                json!({"content_type": "jq", "rules": [".a", ".b > 1"]}),
                json!({"content_type": "jq", "rules": [".a", ".b > 1"]}),
            ),
        ];
        for (sent, kept) in table {
            let input: AttestationTypeInput =
                decode::from_json(&json!({"name": "x", "evaluator": sent}).into()).unwrap();
            assert_eq!(Content::new(input, None).evaluator, kept, "{sent}");
        }
    }

    #[test]
    fn every_field_of_a_type_has_its_borders() {
        let program = |length: usize| "x".repeat(length);
        let table = [
            (json!({"name": "x"}), None),
            (json!({"name": "x", "description": null, "evaluator": null, "summary": null}), None),
            (json!({}), Some("name")),
            (json!({"name": null}), Some("name")),
            (json!({"name": "-x"}), Some("name")),
            (json!({"name": "x", "more": 1}), Some("more")),
            (json!({"name": "x", "description": 1}), Some("description")),
            (json!({"name": "x", "evaluator": ""}), Some("evaluator")),
            (json!({"name": "x", "evaluator": {"content_type": "jq"}}), Some("evaluator")),
            (json!({"name": "x", "evaluator": {"content_type": "rego"}}), Some("evaluator.content_type")),
            (json!({"name": "x", "evaluator": {"rules": [""]}}), Some("evaluator.rules[0]")),
            (json!({"name": "x", "evaluator": {"rules": [program(1)]}}), None),
            (json!({"name": "x", "evaluator": {"rules": [program(4096)]}}), None),
            (json!({"name": "x", "evaluator": {"rules": [".", program(4097)]}}), Some("evaluator.rules[1]")),
            (json!({"name": "x", "evaluator": {"rules": [1]}}), Some("evaluator.rules[0]")),
            (json!({"name": "x", "summary": []}), None),
            (json!({"name": "x", "summary": [{"name": "a", "expression": ".a"}]}), None),
            (json!({"name": "x", "summary": [{"name": "a"}]}), Some("summary[0].expression")),
            (
                json!({"name": "x", "summary": [{"name": "a", "expression": ""}]}),
                Some("summary[0].expression"),
            ),
        ];
        for (sent, field) in table {
            let refused = decode::from_json::<AttestationTypeInput>(&sent.clone().into())
                .err()
                .map(|misfit| misfit.field());
            assert_eq!(refused.as_deref(), field, "{sent}");
        }
    }

    #[test]
    fn a_type_schema_is_a_json_object() {
        assert_eq!(read_schema(r#"{"maximum": 1e400}"#).unwrap().as_str(), r#"{"maximum":1e400}"#);
        for text in ["", "[]", "null", "\"x\"", "{", r#"{"a": "\u0000"}"#] {
            let Err(Error::Invalid { fields, .. }) = read_schema(text) else { panic!("{text} is accepted") };
            assert!(!fields.is_empty(), "{text}");
        }
    }
}
