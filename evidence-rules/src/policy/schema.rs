//! The JSON Schema of the policy format.

use serde_json::{Value, json};

use super::{ANY_NAME, KIND_ALIASES, MAX_RULES};
use crate::document::boolean_schema;
use crate::template;

/// Identifier of the JSON Schema of environment policies, its `$id`.
pub const SCHEMA_ID: &str = "https://evidence.dev/schemas/environment-policy/v1";

/// A text without NUL characters.
const TEXT: &str = r"^[^\u0000]*$";

/// Returns the JSON Schema (draft 2020-12) of the environment policy YAML. It covers everything that
/// [`Policy::parse`](super::Policy::parse) checks, except the text within the braces of a condition, which
/// JSON Schema cannot describe.
pub fn schema() -> Value {
    let aliases = Vec::from(KIND_ALIASES.map(|(alias, _)| alias));
    let rule = |description: &str| {
        json!({
            "allOf": [{ "$ref": "#/$defs/BooleanRule" }],
            "description": description,
            "default": { "required": false, "exceptions": [] },
        })
    };
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Environment Policy",
        "description": "What an artifact must have to run in an environment.",
        "type": "object",
        "additionalProperties": false,
        "required": ["_schema"],
        "properties": {
            "_schema": {
                "description": "A URL whose path ends in the version of the policy format, '/v1'.",
                "type": "string",
                "pattern": r"^[^:\u0000]*://[^?#\u0000]*/v1([?#][^\u0000]*)?$",
            },
            "artifacts": {
                "description": "What is asked of artifacts.",
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "provenance": rule("The artifact must have been reported in a flow."),
                    "trail-compliance": rule("The artifact must be compliant in every flow it was reported in."),
                    "attestations": {
                        "description": "Attestations that the artifact or its trail must have.",
                        "type": "array",
                        "default": [],
                        "maxItems": MAX_RULES,
                        "items": { "$ref": "#/$defs/AttestationRule" },
                    },
                },
            },
        },
        "$defs": {
            "Condition": {
                "description": "An expression in '${{ }}'.",
                "type": ["string", "null"],
                "pattern": r"^\s*\$\{\{[^\u0000]*[^\s\u0000][^\u0000]*\}\}\s*$",
                "default": null,
            },
            "BooleanRule": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "required": boolean_schema("Whether the rule applies at all.", false),
                    "exceptions": {
                        "description": "Any that is true waives the rule.",
                        "type": "array",
                        "default": [],
                        "items": {
                            "type": "object",
                            "additionalProperties": false,
                            "properties": { "if": { "$ref": "#/$defs/Condition" } },
                        },
                    },
                },
            },
            "AttestationRule": {
                "description": "A rule that asks for an attestation. One of its name and its type is not '*'.",
                "type": "object",
                "additionalProperties": false,
                "required": ["type"],
                "properties": {
                    "if": { "$ref": "#/$defs/Condition" },
                    "name": {
                        "description": "Name of the attestation; '*' is any.",
                        "type": "string",
                        "pattern": TEXT,
                        "default": ANY_NAME,
                    },
                    "type": template::kind_schema(&aliases),
                    "must_be_compliant":
                        boolean_schema("Whether the attestation must be compliant, or must only be there.", true),
                    "for_control": {
                        "description": "Control that the attestation, a decision, must be about.",
                        "type": ["string", "null"],
                        "pattern": TEXT,
                        "default": null,
                    },
                },
                "not": {
                    "properties": { "name": { "const": ANY_NAME }, "type": { "const": ANY_NAME } },
                },
                "if": { "properties": { "for_control": { "type": "string" } }, "required": ["for_control"] },
                "then": { "properties": { "type": { "enum": ["decision", "system:decision"] } } },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    /// The text after the `_schema` line, and whether the whole is a valid policy.
    const TABLE: [(&str, bool); 48] = [
        ("", true),
        ("artifacts: {}", true),
        ("artifacts: null", false),
        ("artifacts: []", false),
        ("artifacts: {more: 1}", false),
        ("more: 1", false),
        ("artifacts: {provenance: {}}", true),
        ("artifacts: {provenance: null}", false),
        ("artifacts: {provenance: {required: true}}", true),
        ("artifacts: {provenance: {required: yes}}", true),
        ("artifacts: {provenance: {required: maybe}}", false),
        ("artifacts: {provenance: {required: null}}", false),
        ("artifacts: {provenance: {more: 1}}", false),
        ("artifacts: {trail-compliance: {required: true, exceptions: []}}", true),
        ("artifacts: {trail_compliance: {required: true}}", false),
        ("artifacts: {provenance: {exceptions: [{}]}}", true),
        ("artifacts: {provenance: {exceptions: [{if: null}]}}", true),
        ("artifacts: {provenance: {exceptions: [{if: \"${{ flow.name == 'a' }}\"}]}}", true),
        ("artifacts: {provenance: {exceptions: [{if: \" ${{flow.name == 'a'}} \"}]}}", true),
        ("artifacts: {provenance: {exceptions: [{if: \"flow.name == 'a'\"}]}}", false),
        ("artifacts: {provenance: {exceptions: [{if: '${{ }}'}]}}", false),
        ("artifacts: {provenance: {exceptions: [{if: '${{}}'}]}}", false),
        ("artifacts: {provenance: {exceptions: [{if: 1}]}}", false),
        ("artifacts: {provenance: {exceptions: [{more: 1}]}}", false),
        ("artifacts: {provenance: {exceptions: [null]}}", false),
        ("artifacts: {provenance: {exceptions: null}}", false),
        ("artifacts: {attestations: []}", true),
        ("artifacts: {attestations: null}", false),
        ("artifacts: {attestations: [{type: junit}]}", true),
        ("artifacts: {attestations: [{type: pull_request}, {type: pull-request}]}", true),
        ("artifacts: {attestations: [{type: 'custom:coverage'}]}", true),
        ("artifacts: {attestations: [{type: unknown}]}", false),
        ("artifacts: {attestations: [{name: scan}]}", false),
        ("artifacts: {attestations: [{name: scan, type: '*'}]}", true),
        ("artifacts: {attestations: [{name: '*', type: snyk}]}", true),
        ("artifacts: {attestations: [{name: '*', type: '*'}]}", false),
        ("artifacts: {attestations: [{type: '*'}]}", false),
        ("artifacts: {attestations: [{name: null, type: snyk}]}", false),
        ("artifacts: {attestations: [{name: \"a\\0\", type: snyk}]}", false),
        ("artifacts: {attestations: [{type: snyk, must_be_compliant: false}]}", true),
        ("artifacts: {attestations: [{type: snyk, must_be_compliant: 0}]}", false),
        ("artifacts: {attestations: [{type: decision, for_control: C-1}]}", true),
        ("artifacts: {attestations: [{type: 'system:decision', for_control: C-1}]}", true),
        (
            "artifacts: {attestations: [{type: sbom}, {type: 'system:sbom'}, {type: sarif}, {type: 'system:sarif'}]}",
            true,
        ),
        ("artifacts: {attestations: [{type: 'system:junit'}]}", false),
        ("artifacts: {attestations: [{type: snyk, for_control: C-1}]}", false),
        ("artifacts: {attestations: [{type: snyk, for_control: null}]}", true),
        ("artifacts: {attestations: [{type: snyk, exceptions: []}]}", false),
    ];

    /// Values of `_schema`, and whether they are valid.
    const VERSIONS: [(&str, bool); 12] = [
        ("_schema: https://example.com/schemas/policy/v1", true),
        ("_schema: https://example.com/schemas/policy/environment/v1", true),
        ("_schema: https://example.com/v1?a#b", true),
        ("_schema: https://example.com/v2", false),
        ("_schema: https://example.com/v1/", false),
        ("_schema: https://example.com/?/v1", false),
        ("_schema: example.com/v1", false),
        ("_schema: ''", false),
        ("_schema: 1", false),
        ("_schema: null", false),
        ("{}", false),
        ("[]", false),
    ];

    #[test]
    fn schema_and_parser_agree_on_the_table() {
        let schema = jsonschema::validator_for(&schema()).unwrap();
        let in_format = |(policy, fits): &(&str, bool)| (format!("_schema: https://a.b/v1\n{policy}"), *fits);
        let whole = VERSIONS.iter().map(|(policy, fits)| ((*policy).to_owned(), *fits));
        for (yaml, fits) in TABLE.iter().map(in_format).chain(whole) {
            let value: Value = serde_saphyr::from_str(&yaml).expect(&yaml);
            assert_eq!(Policy::parse(&yaml).is_ok(), fits, "parser: {yaml}");
            assert_eq!(schema.is_valid(&value), fits, "schema: {yaml}");
        }
    }

    #[test]
    fn a_policy_has_a_thousand_rules_at_most() {
        let schema = jsonschema::validator_for(&schema()).unwrap();
        for (rules, fits) in [(MAX_RULES, true), (MAX_RULES + 1, false)] {
            let rules = vec![json!({ "type": "junit" }); rules];
            let policy = json!({ "_schema": "https://a.b/v1", "artifacts": { "attestations": rules } });
            assert_eq!(schema.is_valid(&policy), fits);
            assert_eq!(Policy::parse(&policy.to_string()).is_ok(), fits);
        }
    }
}
