//! Operations on custom attestation types.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::attestation_types::compiled::{compile_rules, compile_schema, compile_summary};
use crate::attestation_types::record::{AttestationType, AttestationTypeVersion, Evaluator, SummaryItem};
use crate::attestation_types::view::{AttestationTypeView, in_list};
use crate::auth::actor::Scope;
use crate::bounded::{Description, List};
use crate::context::{Context, Draft};
use crate::decode::InvalidField;
use crate::decode::UnknownFields;
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::json::{CheckedJson, JsonText};
use crate::name::{AttestationTypeName, OrgName};
use crate::operation::versions::{Version, Versioned};
use crate::operation::{
    Acknowledged, Created, Document, Form, FormParts, Json, JsonStream, Method, Operation,
};
use crate::store::entry::Current;
use crate::{decode, json};

/// Lists the custom attestation types of an organization with all their versions, newest type first. Archived
/// types are left out.
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

/// Gets a custom attestation type with all its versions, or only the requested one. An unknown version is
/// 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetAttestationType {
    /// The organization's name.
    pub org: OrgName,
    /// The type's name.
    pub custom_attestation_type_name: AttestationTypeName,
    /// The number of the version to return. Without it, returns all versions.
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
        let name = self.custom_attestation_type_name;
        let known = known(&name, cx).await?.record;
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

/// Refuses a request that an archived type does not accept. `field` is the field that names the type.
///
/// # Errors
/// [`Error::Invalid`] if the type is archived.
pub(crate) fn refuse_archived(
    known: &AttestationType,
    field: &str,
    text: &str,
    cx: &Context<'_>,
) -> Result<()> {
    if !known.archived {
        return Ok(());
    }
    let org = &cx.org_access()?.name;
    let message = format!("Custom attestation type '{}' is archived for org '{org}'", known.name);
    Err(Error::invalid_with(message, field, text))
}

/// Returns the type of this name, archived or not.
async fn known(name: &AttestationTypeName, cx: &Context<'_>) -> Result<Current<AttestationType>> {
    let known = cx.store().attestation_type(cx.org()?, name.as_str()).await?;
    Ok(known.ok_or_else(|| cx.missing(Resource::AttestationType, name.as_str()))?)
}

/// Archives a custom attestation type. It accepts no further attestations, and lists leave it out. Its
/// existing attestations do not change. Archiving it again has no effect.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ArchiveAttestationType {
    /// The organization's name.
    pub org: OrgName,
    /// The type's name.
    pub custom_attestation_type_name: AttestationTypeName,
}

impl Operation for ArchiveAttestationType {
    const NAME: &'static str = "archive_custom_attestation_type";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/custom-attestation-types/{org}/{custom_attestation_type_name}/archive";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Archives a custom attestation type";
    type Body = ();
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let archive = async || {
            let Current { revision, record } = known(&self.custom_attestation_type_name, cx).await?;
            if record.archived {
                return Ok(());
            }
            let precondition = Precondition::Revision(RecordKind::AttestationType, record.id, revision);
            let record = AttestationType { archived: true, ..record };
            cx.record(Draft::of(Fact::AttestationTypeArchived { record }, precondition)).await?;
            Ok(())
        };
        let record = Key::AttestationType(self.custom_attestation_type_name.clone());
        cx.retry_exclusively(record, archive).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

/// Creates a custom attestation type, or a new version that replaces the previous one as a whole. Content
/// equal to the newest version changes nothing.
///
/// The `type_schema` part is the JSON Schema of the data, of draft 7 by default. It may refer to any part of
/// itself and may recurse; other documents are not fetched. Rules and summary expressions are jq filters
/// whose only inputs are the data and the time of the record. The work of an evaluation is limited. A
/// construct that is not allowed is refused with its name or place. An archived type accepts no new version.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PostAttestationType {
    /// The organization's name.
    pub org: OrgName,
}

/// The document of a custom attestation type, without its schema. It replaces the previous version as a
/// whole.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CustomAttestationTypePostInput")]
pub struct AttestationTypeInput {
    /// The type's name. An existing type of this name gets a new version.
    pub name: AttestationTypeName,
    /// A description of its purpose.
    pub description: Option<Description>,
    /// The evaluation of its data. Defaults to the schema only.
    pub evaluator: Option<Evaluator>,
    /// The values to show, by name: jq expressions, whose results attestations have as `summary`. They do not
    /// affect the verdict.
    pub summary: Option<List<SummaryItem>>,
}

impl Document for AttestationTypeInput {
    const PARTS: FormParts = FormParts { document: "data_json", file: "type_schema", many: false };

    fn read(text: CheckedJson<'_>) -> Result<Self, InvalidField> {
        decode::from_json(text)
    }
}

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
        // A single pattern may take milliseconds to compile, and a type may have many.
        let has_filters = matches!(input.evaluator, Some(Evaluator::Jq { .. })) || input.summary.is_some();
        let is_long = schema.is_some() || has_filters;
        let compile = move || {
            let schema = schema.as_deref().map(read_schema).transpose()?;
            schema.as_ref().map(compile_schema).transpose()?;
            input.evaluator.as_ref().map(compile_rules).transpose()?;
            input.summary.as_ref().map(compile_summary).transpose()?;
            Ok::<_, Error>(Content::new(input, schema))
        };
        let content = if is_long { cx.compute().run_long(compile).await? } else { compile() }?;
        let record = Key::AttestationType(content.name.clone());
        cx.retry_exclusively(record, || content.post(cx)).await?;
        Ok(Created(Acknowledged::Ok))
    }
}

/// Parses a type schema. It can be any JSON object.
fn read_schema(text: &str) -> Result<JsonText> {
    let text = json::check(text.as_bytes()).map_err(|text| Error::invalid("type_schema", text))?;
    if !text.is_object() {
        return Err(Error::invalid("type_schema", "Input should be a valid dictionary"));
    }
    decode::from_json(text).map_err(|error| Error::invalid_field(&error, "type_schema"))
}

/// The content of a type that a version records.
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
            cx.record(Draft::of(fact, Precondition::Vacant(key))).await?;
            return Ok(());
        };
        let latest = AttestationTypeVersion::one((known.record.id, known.record.version), cx).await?;
        if self.is_in(&known.record, &latest) {
            return Ok(());
        }
        refuse_archived(&known.record, "name", "An archived type takes no new version", cx)?;
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
        let precondition = Precondition::Revision(RecordKind::AttestationType, record.id, known.revision);
        cx.record(Draft::of(Fact::AttestationTypeVersioned { record, version }, precondition)).await?;
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

    /// Returns whether the type already has this content.
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
                decode::from_value(&json!({"name": "x", "evaluator": sent})).unwrap();
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
            let refused =
                decode::from_value::<AttestationTypeInput>(&sent).err().map(|misfit| misfit.field());
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
