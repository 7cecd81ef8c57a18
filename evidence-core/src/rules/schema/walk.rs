//! Walks a schema before it is compiled: refuses what it may not say, and finds how large it is as a tree.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{BYTES_PER_STEP, SchemaError};
use crate::rules::folding;

/// What checking by a schema depends on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// How many schemas are in it.
    pub(super) subschemas: usize,
    /// How many patterns are in it.
    pub(super) patterns: usize,
    /// How many parts it has as a tree, in which each reference is what it refers to.
    pub(super) tree: usize,
    /// How many patterns this tree has.
    pub(super) pattern_tree: usize,
    /// The bytes of the places of its keywords: a compiled keyword knows its own.
    pub(super) place_bytes: usize,
    /// How many JSON values are compiled.
    pub(super) values: usize,
    /// The bytes of their strings and names.
    pub(super) bytes: usize,
}

const MAX_SUBSCHEMAS: usize = 2_000;

const MAX_DEFINITIONS: usize = 1_000;

const MAX_PATTERNS: usize = 100;

const MAX_PATTERN: usize = 512;

const MAX_CONSTANTS: usize = 1_000;

const MAX_TREE: usize = 5_000;

/// The places of a schema's keywords have at most so many bytes together: each repeats the names that it stands below.
const MAX_PLACE_BYTES: usize = 8 << 20;

/// Schemas stand in each other no deeper, whatever they refer to.
const MAX_NESTING: usize = 100;

/// Keywords whose value is a schema, or, of `items`, a list of some.
const ONE: [&str; 9] = [
    "not",
    "if",
    "then",
    "else",
    "additionalProperties",
    "additionalItems",
    "contains",
    "propertyNames",
    "items",
];

/// Keywords whose value is a list of schemas.
const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];

/// Keywords whose value has schemas by names.
const NAMED: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];

/// Keywords whose value has schemas by names that are only referred to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Other keywords that data are checked by, the dialect, and references. What is no keyword of any of these lists says nothing
/// about data.
const OTHERS: [&str; 24] = [
    "$schema",
    "$ref",
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
];

/// Keywords that lead elsewhere, or make the cost of checking hard to tell.
const REFUSED: [&str; 8] = [
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    "$anchor",
    "$vocabulary",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Finds how much a schema is.
pub(super) fn weigh(schema: &Value) -> Result<Weight, SchemaError> {
    for keyword in DEFINITIONS {
        let many = schema.get(keyword).and_then(Value::as_object).map_or(0, Map::len);
        if many > MAX_DEFINITIONS {
            let text = format!("There should be at most {MAX_DEFINITIONS} definitions");
            return Err(SchemaError::new(below("", keyword), text));
        }
    }
    let mut walk = Walk { root: schema, weight: Weight::default(), known: BTreeMap::new(), depth: 0 };
    let Size { parts, patterns, .. } = walk.schema(schema, "")?;
    for (keyword, name, definition) in definitions(schema) {
        walk.definition(keyword, name, definition, "")?;
    }
    Ok(Weight { tree: parts, pattern_tree: patterns, ..walk.weight })
}

/// What a schema can refer to.
fn definitions(root: &Value) -> impl Iterator<Item = (&'static str, &String, &Value)> {
    let named =
        |keyword: &'static str| root.get(keyword).and_then(Value::as_object).map(|named| (keyword, named));
    DEFINITIONS
        .into_iter()
        .filter_map(named)
        .flat_map(|(keyword, named)| named.iter().map(move |(name, schema)| (keyword, name, schema)))
}

struct Walk<'s> {
    root: &'s Value,
    weight: Weight,
    /// The size of definitions, by their place; none while one is being walked.
    known: BTreeMap<String, Option<Size>>,
    /// How deep it is.
    depth: usize,
}

/// How large a schema is as a tree.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    parts: usize,
    patterns: usize,
    height: usize,
}

impl Size {
    const fn parts(parts: usize) -> Self {
        Self { parts, patterns: 0, height: 0 }
    }

    fn add(&mut self, more: Self) {
        self.parts = self.parts.saturating_add(more.parts);
        self.patterns = self.patterns.saturating_add(more.patterns);
        self.height = self.height.max(more.height);
    }
}

fn below(place: &str, key: &str) -> String {
    format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"))
}

impl<'s> Walk<'s> {
    /// The size of a schema as a tree.
    fn schema(&mut self, schema: &'s Value, place: &str) -> Result<Size, SchemaError> {
        self.weight.subschemas += 1;
        if self.weight.subschemas > MAX_SUBSCHEMAS {
            return Err(SchemaError::new(
                place,
                format!("There should be at most {MAX_SUBSCHEMAS} schemas in one"),
            ));
        }
        let deep = || {
            SchemaError::new(
                place,
                format!("With what they refer to schemas should nest at most {MAX_NESTING} levels"),
            )
        };
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(deep());
        }
        let mut size = Size::parts(1);
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            size.add(self.keyword(keyword, value, &below(place, keyword))?);
        }
        self.depth -= 1;
        size.height += 1;
        if size.height > MAX_NESTING {
            return Err(deep());
        }
        if size.parts > MAX_TREE {
            let text = format!("With what it refers to there should be at most {MAX_TREE} parts");
            return Err(SchemaError::new(place, text));
        }
        Ok(size)
    }

    fn keyword(&mut self, keyword: &str, value: &'s Value, place: &str) -> Result<Size, SchemaError> {
        let mut size = Size::default();
        if REFUSED.contains(&keyword) {
            return Err(SchemaError::new(place, format!("not allowed: {keyword}")));
        }
        self.weight.place_bytes += place.len();
        if self.weight.place_bytes > MAX_PLACE_BYTES {
            return Err(SchemaError::new("", "Names of properties that schemas stand below are too long"));
        }
        match (keyword, value) {
            ("$ref", Value::String(to)) => return self.reference(to, place),
            ("$schema", _) if place != "/$schema" => {
                return Err(SchemaError::new(place, "not allowed: $schema within a schema"));
            }
            ("pattern", Value::String(pattern)) => return self.pattern(pattern, place),
            ("enum" | "const", constant) => return constants(constant, place),
            ("required", Value::Array(names)) => size.add(Size::parts(constant_parts(names))),
            (keyword, Value::Array(schemas)) if LISTS.contains(&keyword) => {
                for (position, schema) in schemas.iter().enumerate() {
                    size.add(self.schema(schema, &below(place, &position.to_string()))?);
                }
            }
            (keyword, schema @ (Value::Object(_) | Value::Bool(_))) if ONE.contains(&keyword) => {
                size.add(self.schema(schema, place)?);
            }
            (keyword, Value::Object(named)) if NAMED.contains(&keyword) => {
                size.add(self.named(keyword, named, place)?);
            }
            // Of these what is referred to counts; those within a schema cannot be referred to.
            (keyword, Value::Object(_))
                if DEFINITIONS.contains(&keyword) && place.matches('/').count() > 1 =>
            {
                return Err(SchemaError::new(place, format!("not allowed: {keyword} within a schema")));
            }
            ("dependentRequired", Value::Object(named)) => {
                for names in named.values() {
                    size.add(Size::parts(1 + names.as_array().map_or(0, |names| constant_parts(names))));
                }
            }
            _ => {}
        }
        Ok(size)
    }

    fn named(
        &mut self,
        keyword: &str,
        named: &'s Map<String, Value>,
        place: &str,
    ) -> Result<Size, SchemaError> {
        let mut size = Size::default();
        for (name, schema) in named {
            let place = below(place, name);
            if keyword == "patternProperties" {
                size.add(self.pattern(name, &place)?);
            }
            size.add(match schema {
                Value::Array(names) => Size::parts(1 + constant_parts(names)),
                schema => self.schema(schema, &place)?,
            });
            size.add(Size::parts(name.len() / BYTES_PER_STEP));
        }
        Ok(size)
    }

    fn pattern(&mut self, pattern: &str, place: &str) -> Result<Size, SchemaError> {
        self.weight.patterns += 1;
        if self.weight.patterns > MAX_PATTERNS {
            return Err(SchemaError::new(place, format!("There should be at most {MAX_PATTERNS} patterns")));
        }
        if pattern.len() > MAX_PATTERN {
            return Err(SchemaError::new(
                place,
                format!("A pattern should have at most {MAX_PATTERN} bytes"),
            ));
        }
        folding::check(pattern, false).map_err(|text| SchemaError::new(place, text))?;
        Ok(Size { parts: 1, patterns: 1, height: 0 })
    }

    fn reference(&mut self, to: &str, place: &str) -> Result<Size, SchemaError> {
        let named = to.strip_prefix("#/").and_then(|to| to.split_once('/'));
        let found = named.filter(|(_, name)| !name.contains(['~', '%', '/'])).and_then(|(keyword, name)| {
            let keyword = DEFINITIONS.into_iter().find(|one| *one == keyword)?;
            Some((keyword, name, self.root.get(keyword)?.get(name)?))
        });
        let Some((keyword, name, definition)) = found else {
            let text =
                "$ref should be '#/$defs/<name>' or '#/definitions/<name>', of a definition in this schema";
            return Err(SchemaError::new(place, text));
        };
        self.definition(keyword, name, definition, place)
    }

    /// The size of a definition, walked once.
    fn definition(
        &mut self,
        keyword: &str,
        name: &str,
        definition: &'s Value,
        from: &str,
    ) -> Result<Size, SchemaError> {
        let place = below(&below("", keyword), name);
        match self.known.get(&place) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => return Err(SchemaError::new(from, "not allowed: $ref to what it is a part of")),
            None => {}
        }
        self.known.insert(place.clone(), None);
        let size = self.schema(definition, &place)?;
        self.known.insert(place, Some(size));
        Ok(size)
    }
}

fn constants(value: &Value, place: &str) -> Result<Size, SchemaError> {
    match constant_values(value) {
        many if many > MAX_CONSTANTS + 1 => {
            Err(SchemaError::new(place, format!("There should be at most {MAX_CONSTANTS} values")))
        }
        many => Ok(Size::parts(many + constant_bytes(value) / BYTES_PER_STEP)),
    }
}

/// How many parts constants are: each, and so many as comparing their bytes takes.
fn constant_parts(constants: &[Value]) -> usize {
    let bytes: usize = constants.iter().map(constant_bytes).sum();
    constants.len() + bytes / BYTES_PER_STEP
}

fn constant_values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(constant_values).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(constant_values).sum::<usize>(),
        _ => 1,
    }
}

/// The bytes of strings and names.
fn constant_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(constant_bytes).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| name.len() + constant_bytes(value)).sum::<usize>()
        }
        _ => 0,
    }
}

/// Removes from a schema that was walked, and from those in it, what data are not checked by, which would be kept with what
/// is compiled: remarks, unknown keywords, and addresses, which stand under `id` in draft 4.
pub(super) fn prune(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    fields.retain(|keyword, _| is_checked(keyword));
    for (keyword, value) in fields {
        let keyword = keyword.as_str();
        match value {
            Value::Array(schemas) if LISTS.contains(&keyword) => schemas.iter_mut().for_each(prune),
            Value::Object(named) if NAMED.contains(&keyword) || DEFINITIONS.contains(&keyword) => {
                named.values_mut().for_each(prune);
            }
            schema if ONE.contains(&keyword) => prune(schema),
            _ => {}
        }
    }
}

/// Whether data are checked by what stands under this keyword.
fn is_checked(keyword: &str) -> bool {
    let lists: [&[&str]; 5] = [&ONE, &LISTS, &NAMED, &DEFINITIONS, &OTHERS];
    lists.iter().any(|list| list.contains(&keyword))
}

impl Weight {
    /// This weight, with the values of what is left to compile.
    pub(super) fn with_values_of(self, pruned: &Value) -> Self {
        Self { values: constant_values(pruned), bytes: constant_bytes(pruned), ..self }
    }
}
