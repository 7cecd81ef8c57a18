//! The keywords of JSON Schema that data are checked by, grouped by the form of their value.

/// Keywords whose value is a schema, or, of `items`, a list of schemas.
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

/// Keywords whose value has schemas by name.
pub(super) const NAMED: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];

/// Keywords whose value has schemas by name that only references use.
pub(super) const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// References, which are rewritten before a schema is compiled.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords that check data without another schema.
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
    // Drafts 6 and 7 check the text of strings by these.
    "contentMediaType",
    "contentEncoding",
    "$ref",
];

/// Whether data are checked by this keyword. Other keywords are remarks, or addresses that are resolved beforehand.
pub(super) fn is_checked(keyword: &str) -> bool {
    let lists: [&[&str]; 5] = [&ONE, &LISTS, &NAMED, &DEFINITIONS, &ASSERTIONS];
    lists.iter().any(|list| list.contains(&keyword))
}

/// The schemas directly within a schema, each with the keyword it stands under and its pointer below the schema.
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

/// The JSON pointer of a field below another pointer.
pub(super) fn below(place: &str, key: &str) -> String {
    format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"))
}
