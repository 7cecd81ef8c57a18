//! Flow templates define which attestations a trail and its artifacts must have.
//!
//! A template is a short YAML text that belongs to a flow or a trail. [`Template::parse`] validates it, and
//! [`schema`] describes the same rules for editors. This module holds the parsed form; the text itself is
//! stored elsewhere, byte for byte. [`compliance`](super::compliance) evaluates trails against templates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::document::{DocumentErrors, Fields, Validator};
use evidence_values::name::{AttestationName, AttestationTypeName, TemplateReferenceName};

/// Identifier of the JSON Schema of flow templates, its `$id`.
pub const SCHEMA_ID: &str = "https://evidence.dev/schemas/flow-template/v1";

/// The errors of a template that was rejected. Displayed as `N validation errors for Template`, followed by
/// the details.
pub type TemplateErrors = DocumentErrors;

const NAMED_KINDS: [&str; 9] =
    ["generic", "junit", "snyk", "pull_request", "jira", "sonar", "decision", "sbom", "sarif"];
/// Types as reported, and as templates spell them; both spellings are accepted.
const SYSTEM_KINDS: [(&str, &str); 3] =
    [("system:decision", "decision"), ("system:sbom", "sbom"), ("system:sarif", "sarif")];
const ANY_KIND: &str = "*";
const CUSTOM_PREFIX: &str = "custom:";

/// The attestation type that a template or a policy requires: a built-in type, `custom:<name>`, or `*` for
/// any type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(inline)]
pub struct Kind(String);

impl Kind {
    /// Returns whether an attestation of this reported type has the kind. Attestations of system types are
    /// reported as `system:<name>` and required as `<name>`.
    pub fn matches(&self, reported_type: &str) -> bool {
        self.is_any() || self.0 == Self::of_reported(reported_type)
    }

    /// Returns the spelling in templates of a reported type.
    pub(super) fn of_reported(reported_type: &str) -> &str {
        let is_it = |(reported, _): &&(&str, &str)| *reported == reported_type;
        SYSTEM_KINDS.iter().find(is_it).map_or(reported_type, |(_, kind)| *kind)
    }

    /// Returns the name of the custom attestation type, or `None` for other kinds.
    fn custom_name(&self) -> Option<&str> {
        self.0.strip_prefix(CUSTOM_PREFIX)
    }

    /// Returns whether the kind is `*`.
    pub fn is_any(&self) -> bool {
        self.0 == ANY_KIND
    }

    /// Returns the kind as spelled in a template.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let text = Self::of_reported(text);
        let known = NAMED_KINDS.contains(&text) || text == ANY_KIND;
        if known || text.starts_with(CUSTOM_PREFIX) { Ok(Self(text.to_owned())) } else { Err(UnknownKind) }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Error: the text is not an attestation type that a template or a policy may require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownKind;

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Input should be ")?;
        for kind in NAMED_KINDS {
            write!(f, "'{kind}', ")?;
        }
        write!(f, "'{CUSTOM_PREFIX}<name>' or '{ANY_KIND}'")
    }
}

impl std::error::Error for UnknownKind {}

/// One attestation that a template expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TemplateAttestation")]
pub struct Requirement {
    /// Name of the attestation, unique in its list.
    pub name: String,
    /// Type of the attestation: `generic`, `junit`, `pull_request`, …, `custom:<name>`, or `*` for any type.
    #[serde(rename = "type")]
    pub kind: Kind,
}

/// One artifact that a template expects, and the attestations it must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TemplateArtifact")]
pub struct ArtifactRequirement {
    /// Name by which reports refer to it (`template_reference_name`), unique in the template.
    pub name: String,
    /// Attestations expected of the artifact itself, in the order of the template.
    pub attestations: Vec<Requirement>,
}

/// The artifacts that a template expects, in its order, with an index by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ArtifactRequirements {
    list: Vec<ArtifactRequirement>,
    #[serde(skip)]
    by_name: BTreeMap<String, usize>,
}

impl FromIterator<ArtifactRequirement> for ArtifactRequirements {
    fn from_iter<I: IntoIterator<Item = ArtifactRequirement>>(artifacts: I) -> Self {
        let list = Vec::from_iter(artifacts);
        let by_name = list.iter().zip(0..).map(|(artifact, place)| (artifact.name.clone(), place)).collect();
        Self { list, by_name }
    }
}

impl Deref for ArtifactRequirements {
    type Target = [ArtifactRequirement];

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

/// The requirements of a template for a trail.
// The default, also written `version: 1`, has no requirements. A template that `Template::stored` could not
// read has unknown requirements, so no trail satisfies it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TemplateTrailDefinition")]
pub struct Template {
    /// Attestations expected of the trail itself, in the order of the template.
    pub attestations: Vec<Requirement>,
    /// Artifacts expected, in the order of the template.
    #[schemars(with = "Vec<ArtifactRequirement>")]
    pub artifacts: ArtifactRequirements,
    /// The names in the list, if the template is a list of names.
    #[serde(skip)]
    names: Option<Vec<String>>,
    /// The reason why it could not be read, as responses show it.
    #[serde(skip)]
    unreadable: Option<String>,
}

/// The artifact's own name in a list of names.
pub(super) const ARTIFACT: &str = "artifact";

/// The reason why nothing counts that was reported to an unreadable trail.
#[doc(hidden)]
pub const LOST_TRAIL: &str = "The trail cannot be read";

impl Template {
    /// Parses a template from YAML. Reports every error, not only the first.
    pub fn parse(yaml: &str) -> Result<Self, TemplateErrors> {
        let (mut validator, document) = Validator::read("Template", yaml)?;
        let template = parse_root(&mut validator, &document).unwrap_or_default();
        validator.finish(template)
    }

    /// Builds the template that older clients send as a list of names. It expects an artifact called
    /// `artifact`, and an attestation of any type on that artifact for each other name. An empty list has no
    /// requirements.
    pub fn of_names(names: Vec<String>) -> Self {
        let expected: BTreeSet<&String> = names.iter().filter(|name| *name != ARTIFACT).collect();
        let any = |name: &String| Requirement { name: name.clone(), kind: Kind(ANY_KIND.to_owned()) };
        let attestations = expected.into_iter().map(any).collect();
        let artifact = ArtifactRequirement { name: ARTIFACT.to_owned(), attestations };
        let artifacts = (!names.is_empty()).then_some(artifact).into_iter().collect();
        Self { artifacts, names: Some(names), ..Self::default() }
    }

    /// Returns the names in the list, if the template is a list of names.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// Parses a stored template: YAML, or the JSON of a list of names, which cannot be confused with valid
    /// YAML templates. It was validated before it was stored. If it is unreadable nevertheless (damaged, or
    /// from a later version), returns a template that no trail satisfies.
    pub fn stored(text: &str) -> Self {
        if let Some(names) = text.starts_with('[').then(|| serde_json::from_str(text).ok()).flatten() {
            return Self::of_names(names);
        }
        Self::parse(text).unwrap_or_else(|errors| Self {
            unreadable: Some(errors.unreadable("The template")),
            ..Self::default()
        })
    }

    /// Returns the template of a trail that cannot be read; no trail satisfies it.
    #[doc(hidden)]
    pub fn of_lost_trail() -> Self {
        Self { unreadable: Some(LOST_TRAIL.to_owned()), ..Self::default() }
    }

    /// Returns a template whose text is missing; no trail satisfies it.
    #[doc(hidden)]
    pub fn lost() -> Self {
        let unreadable = Some("The template cannot be read: its text is not in the store".to_owned());
        Self { unreadable, ..Self::default() }
    }

    /// Returns the approximate memory use in bytes.
    pub fn bytes(&self) -> usize {
        let requirements = |list: &[Requirement]| -> usize {
            let texts = |one: &Requirement| one.name.len() + one.kind.as_str().len();
            list.iter().map(|one| size_of_val(one) + texts(one)).sum()
        };
        let artifact = |one: &ArtifactRequirement| {
            size_of_val(one) + 2 * one.name.len() + requirements(&one.attestations)
        };
        size_of_val(self)
            + requirements(&self.attestations)
            + self.artifacts.iter().map(artifact).sum::<usize>()
            + self.names.iter().flatten().map(|name| size_of_val(name) + name.len()).sum::<usize>()
    }

    /// Returns the number of required artifacts and attestations.
    #[doc(hidden)]
    pub fn requirements(&self) -> usize {
        let of_artifacts = self.artifacts.iter().map(|artifact| 1 + artifact.attestations.len());
        self.attestations.len() + of_artifacts.sum::<usize>()
    }

    /// Returns why it could not be read (`The template cannot be read: …`), or `None` if it could.
    pub fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    /// Returns the requirements of the artifact with this name.
    pub fn artifact(&self, name: &str) -> Option<&ArtifactRequirement> {
        self.artifacts.get(*self.artifacts.by_name.get(name)?)
    }
}

fn parse_root(validator: &mut Validator, document: &Value) -> Option<Template> {
    let root = validator.object("", document, &["version", "trail"])?;
    parse_version(validator, &root);
    match root.get("trail") {
        None | Some(Value::Null) => Some(Template::default()),
        Some(trail) => parse_trail(validator, trail),
    }
}

fn parse_version(validator: &mut Validator, root: &Fields<'_>) {
    if let Some(version) = root.get("version")
        // JSON Schema treats 1 and 1.0 as the same number.
        && version.as_f64() != Some(1.0)
    {
        let text = match version {
            Value::String(_) => "Input should be the number 1, without quotes",
            _ => "Input should be 1",
        };
        validator.refuse(root.path("version"), text, version);
    }
}

fn parse_trail(validator: &mut Validator, trail: &Value) -> Option<Template> {
    let trail = validator.object("trail", trail, &["attestations", "artifacts"])?;
    let attestations = parse_attestations(validator, &trail);
    let artifacts = validator.list(&trail, "artifacts");
    validator.unique_names(&artifacts);
    let artifacts = artifacts
        .into_iter()
        .filter_map(|(path, artifact)| parse_artifact(validator, &path, artifact))
        .collect();
    Some(Template { attestations, artifacts, ..Template::default() })
}

fn parse_artifact(validator: &mut Validator, path: &str, artifact: &Value) -> Option<ArtifactRequirement> {
    let fields = validator.object(path, artifact, &["name", "attestations"])?;
    let name = validator.required_text(&fields, "name");
    // Reports cannot use other names, so an artifact with such a name could never be reported.
    if let Some(name) = name {
        validator.fits::<TemplateReferenceName>(&fields, "name", name);
    }
    let attestations = parse_attestations(validator, &fields);
    Some(ArtifactRequirement { name: name?.to_owned(), attestations })
}

fn parse_attestations(validator: &mut Validator, parent: &Fields<'_>) -> Vec<Requirement> {
    let attestations = validator.list(parent, "attestations");
    validator.unique_names(&attestations);
    attestations
        .into_iter()
        .filter_map(|(path, attestation)| parse_requirement(validator, &path, attestation))
        .collect()
}

fn parse_requirement(validator: &mut Validator, path: &str, attestation: &Value) -> Option<Requirement> {
    let fields = validator.object(path, attestation, &["name", "type"])?;
    let name = validator.required_text(&fields, "name");
    // Attestations cannot have other names, so one with such a name could never be reported.
    if let Some(name) = name {
        validator.fits::<AttestationName>(&fields, "name", name);
    }
    let kind = parse_kind(validator, &fields, &[]);
    Some(Requirement { name: name?.to_owned(), kind: kind? })
}

/// Parses the `type` of a required attestation. `aliases` are additional spellings of kinds.
pub(super) fn parse_kind(
    validator: &mut Validator,
    fields: &Fields<'_>,
    aliases: &[(&str, &str)],
) -> Option<Kind> {
    let written = validator.required_text(fields, "type")?;
    let meant =
        aliases.iter().find_map(|(alias, kind)| (*alias == written).then_some(*kind)).unwrap_or(written);
    let kind: Kind = match meant.parse() {
        Ok(kind) => kind,
        Err(unknown) => {
            let unknown: UnknownKind = unknown;
            validator.refuse(fields.path("type"), &unknown.to_string(), &written.into());
            return None;
        }
    };
    // Custom types cannot have other names, so an attestation of such a type could never be reported.
    if let Some(name) = kind.custom_name() {
        validator.fits::<AttestationTypeName>(fields, "type", name);
    }
    Some(kind)
}

/// Returns the JSON Schema of a required attestation type, including additional spellings.
pub(super) fn kind_schema(aliases: &[&str]) -> Value {
    let known = [NAMED_KINDS.as_slice(), &SYSTEM_KINDS.map(|(reported, _)| reported), aliases].concat();
    let custom = AttestationTypeName::PATTERN.replacen('^', &format!("^{CUSTOM_PREFIX}"), 1);
    json!({
        "description": "Type that the attestation must have; '*' is any type.",
        "type": "string",
        "anyOf": [
            { "enum": known },
            { "pattern": custom, "maxLength": CUSTOM_PREFIX.len() + AttestationTypeName::MAX_LEN },
            { "const": ANY_KIND },
        ],
    })
}

/// Returns the JSON Schema (draft 2020-12) of the flow template YAML. It covers everything that
/// [`Template::parse`] checks, except that names must be unique, which JSON Schema cannot express.
pub fn schema() -> Value {
    let attestations = json!({
        "type": "array",
        "default": [],
        "description": "Attestations that must be reported. Their names should be unique.",
        "items": { "$ref": "#/$defs/Attestation" },
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Flow Template",
        "description": "What a trail of a flow must contain to be compliant.",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "version": {
                "description": "Version of the template format.",
                "type": "integer",
                "const": 1,
                "default": 1,
            },
            "trail": {
                "description": "What is expected of the trail and of its artifacts.",
                "anyOf": [{ "$ref": "#/$defs/Trail" }, { "type": "null" }],
                "default": { "attestations": [], "artifacts": [] },
            },
        },
        "$defs": {
            "Trail": {
                "description": "Expectations of one trail.",
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "attestations": attestations,
                    "artifacts": {
                        "description":
                            "Artifacts that must be reported. Their names should be unique.",
                        "type": "array",
                        "default": [],
                        "items": { "$ref": "#/$defs/Artifact" },
                    },
                },
            },
            "Artifact": {
                "description": "An expected artifact.",
                "type": "object",
                "additionalProperties": false,
                "required": ["name"],
                "properties": {
                    "name": {
                        "description": "Name by which reports refer to the artifact.",
                        "type": "string",
                        "pattern": TemplateReferenceName::PATTERN,
                        "maxLength": TemplateReferenceName::MAX_LEN,
                    },
                    "attestations": attestations,
                },
            },
            "Attestation": {
                "description": "An expected attestation.",
                "type": "object",
                "additionalProperties": false,
                "required": ["name", "type"],
                "properties": {
                    "name": {
                        "description": "Name under which the attestation is reported.",
                        "type": "string",
                        "pattern": AttestationName::PATTERN,
                        "maxLength": AttestationName::MAX_LEN,
                    },
                    "type": kind_schema(&[]),
                },
            },
        },
    })
}

#[cfg(test)]
mod tests;
