//! The JSON Schema keywords that validate data, grouped by the form of their value.

/// Keywords whose value is a schema; the value of `items` may also be a list of schemas.
pub(super) const ONE: [&str; 11] = [
    "not",
    "if",
    "then",
    "else",
    "additionalProperties",
    "additionalItems",
    "contains",
    "propertyNames",
    "items",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords whose value is a list of schemas.
pub(super) const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];

/// Keywords whose value maps names to schemas.
pub(super) const NAMED: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];

/// Keywords whose value maps names to schemas that only references use.
pub(super) const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// References, which are rewritten before a schema is compiled.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords that validate data without another schema.
const ASSERTIONS: [&str; 23] = [
    "type",
    "enum",
    "const",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
    "required",
    "dependentRequired",
    // Drafts 6 and 7 validate strings with these.
    "contentMediaType",
    "contentEncoding",
    "$ref",
];

/// Returns whether data are validated with this keyword. Other keywords are annotations, or identifiers that
/// are resolved in advance.
pub(super) fn is_checked(keyword: &str) -> bool {
    let lists: [&[&str]; 5] = [&ONE, &LISTS, &NAMED, &DEFINITIONS, &ASSERTIONS];
    lists.iter().any(|list| list.contains(&keyword))
}

/// Returns the direct subschemas of a schema, each with its keyword and its pointer relative to the schema.
pub(super) fn subschemas(
    schema: &serde_json::Map<String, serde_json::Value>,
) -> impl Iterator<Item = (&str, String, &serde_json::Value)> {
    use serde_json::Value;
    schema.iter().flat_map(|(keyword, value)| {
        let keyword = keyword.as_str();
        let place = below("", keyword);
        let found: Vec<(&str, String, &Value)> = match value {
            Value::Array(schemas) if LISTS.contains(&keyword) => schemas
                .iter()
                .enumerate()
                .map(|(position, schema)| (keyword, format!("{place}/{position}"), schema))
                .collect(),
            Value::Object(named) if NAMED.contains(&keyword) || DEFINITIONS.contains(&keyword) => named
                .iter()
                .filter(|(_, schema)| !schema.is_array())
                .map(|(name, schema)| (keyword, below(&place, name), schema))
                .collect(),
            Value::Object(_) | Value::Bool(_) if ONE.contains(&keyword) => vec![(keyword, place, value)],
            _ => Vec::new(),
        };
        found
    })
}

/// Returns the JSON pointer of a field below another pointer.
pub(super) fn below(place: &str, key: &str) -> String {
    format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"))
}
