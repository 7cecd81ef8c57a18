//! A schema as a graph of subschemas, from which the cost of validating data is computed in advance.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Draft;
use regex_automata::util::syntax;
use serde_json::{Map, Value};

use super::keywords::{DEFINITIONS, LISTS, NAMED, ONE, below, is_checked, subschemas};
use super::references::{References, replaces_siblings, to_place};
use super::{BYTES_PER_STEP, MAX_PLACE_BYTES, SchemaError, too_long};
use crate::folding;
use crate::pattern::table;

const MAX_SUBSCHEMAS: usize = 10_000;

const MAX_DEFINITIONS: usize = 2_000;

const MAX_PATTERNS: usize = 200;

const MAX_PATTERN: usize = 1 << 10;

const MAX_CONSTANTS: usize = 5_000;

/// Maximum number of parts of one schema. Parts are keywords, constants, and the steps to compare the bytes
/// of constants.
const MAX_PARTS: usize = 20_000;

/// Maximum number of schemas that apply to one value itself.
const MAX_IN_PLACE: usize = 5_000;

/// Maximum nesting depth of schemas that apply to the same value, including those they refer to.
const MAX_HEIGHT: usize = 100;

/// Maximum number of compiled schemas. The crate compiles a schema again for each `unevaluatedProperties` or
/// `unevaluatedItems` that revisits it.
const MAX_COMPILED: usize = 30_000;

/// The allowed sizes of a compiled pattern in bytes, with the steps it takes for each byte of text.
const PATTERN_SIZES: [(usize, usize); 3] =
    [(16 << 10, 16), (64 << 10, 64), (super::MAX_PATTERN_BYTES, LARGEST_PATTERN)];

const LARGEST_PATTERN: usize = 256;

/// A pattern whose complete table is at most this large takes one step for each byte, because the engine
/// keeps the table.
const MAX_TABLE: usize = 128 << 10;

/// Maximum number of `enum` texts that are compared one by one; longer lists are hashed.
const MAX_COMPARED: usize = 10;

/// A schema, and how its subschemas apply.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Number of its keywords and constants.
    pub(super) parts: usize,
    /// Steps that its `pattern` takes for each byte of a string.
    pub(super) pattern: usize,
    /// Steps that its `patternProperties` take for each byte of a property name.
    pub(super) name_patterns: usize,
    /// Whether it collects the errors of several alternative schemas.
    pub(super) chooses: bool,
    /// Whether it compares the items of a list with one another.
    pub(super) unique: bool,
    /// Schemas that it refers to.
    pub(super) references: Vec<usize>,
    /// Schemas of `allOf`, `anyOf`, `oneOf` and `if`, which `unevaluated…` checks again.
    pub(super) applied: Vec<usize>,
    /// Other schemas that apply to the same value.
    pub(super) branches: Vec<usize>,
    pub(super) properties: BTreeMap<String, usize>,
    /// Schemas of properties whose names match a pattern.
    pub(super) pattern_properties: Vec<usize>,
    pub(super) additional_properties: Option<usize>,
    pub(super) names: Option<usize>,
    pub(super) prefix: Vec<usize>,
    /// Schemas of `items`, `additionalItems` and `contains`.
    pub(super) items: Vec<usize>,
    pub(super) unevaluated_properties: Option<usize>,
    pub(super) unevaluated_items: Option<usize>,
}

impl Node {
    /// Returns the schemas that apply to the same value.
    fn in_place(&self) -> impl Iterator<Item = usize> {
        self.references.iter().chain(&self.applied).chain(&self.branches).copied()
    }

    /// Returns the schemas that are contained in it.
    fn within(&self) -> impl Iterator<Item = usize> {
        let many = [&self.applied, &self.branches, &self.pattern_properties, &self.prefix, &self.items];
        let one =
            [self.additional_properties, self.names, self.unevaluated_properties, self.unevaluated_items];
        let many = many.into_iter().flatten().copied();
        many.chain(self.properties.values().copied()).chain(one.into_iter().flatten())
    }

    fn is_unevaluated(&self) -> bool {
        self.unevaluated_properties.is_some() || self.unevaluated_items.is_some()
    }
}

/// The memory use of a compiled schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// Number of compiled schemas.
    pub(super) subschemas: usize,
    /// Number of patterns.
    pub(super) patterns: usize,
    /// Bytes of the pointers of its keywords.
    pub(super) place_bytes: usize,
    /// Number of JSON values.
    pub(super) values: usize,
    /// Bytes of the strings and names in these values.
    pub(super) bytes: usize,
}

/// A schema that may be compiled.
#[derive(Debug)]
pub(super) struct Graph {
    /// Its subschemas. The first is the whole schema.
    pub(super) nodes: Vec<Node>,
    pub(super) weight: Weight,
    /// The schema with references only to places of the document, and without annotations.
    pub(super) schema: Value,
}

impl Graph {
    /// Builds the graph of a schema before it is compiled.
    ///
    /// # Errors
    /// Returns the place of the first part that is not allowed.
    pub(super) fn of(schema: &Value, draft: Draft) -> Result<Self, SchemaError> {
        let references = References::of(schema, draft)?;
        let mut build = Build {
            draft,
            references: &references,
            nodes: Vec::new(),
            known: BTreeMap::new(),
            open: Vec::new(),
            rewritten: BTreeMap::new(),
            weight: Weight::default(),
        };
        build.node(schema, "")?;
        for keyword in DEFINITIONS {
            let Some(Value::Object(named)) = schema.get(keyword) else { continue };
            for (name, definition) in named {
                build.node(definition, &below(&below("", keyword), name))?;
            }
        }
        let Build { nodes, known, rewritten, mut weight, .. } = build;
        let places = Places::new(&nodes, &known);
        places.check_heights()?;
        weight.subschemas = places.compiled()?;
        let targets = BTreeSet::from_iter(rewritten.values().flatten().cloned());
        let mut schema = schema.clone();
        Prune { draft, rewritten: &rewritten, targets: &targets }.schema(&mut schema, "");
        weight.values = constant_values(&schema);
        weight.bytes = constant_bytes(&schema);
        Ok(Self { nodes, weight, schema })
    }
}

struct Build<'s> {
    draft: Draft,
    references: &'s References<'s>,
    nodes: Vec<Node>,
    /// Nodes by the pointers of their schemas.
    known: BTreeMap<String, usize>,
    /// Schemas that are referred to and not visited yet.
    open: Vec<(usize, String)>,
    /// The targets of the references of a schema, by the pointer of that schema.
    rewritten: BTreeMap<String, Vec<String>>,
    weight: Weight,
}

impl Build<'_> {
    /// Returns the node of a schema, and builds the nodes of all schemas it refers to.
    fn node(&mut self, schema: &Value, place: &str) -> Result<usize, SchemaError> {
        let node = self.inner(schema, place)?;
        while let Some((at, place)) = self.open.pop() {
            if let Some(schema) = self.references.schema(&place) {
                self.fill(at, schema, &place)?;
            }
        }
        Ok(node)
    }

    fn reserve(&mut self, place: &str) -> Result<usize, SchemaError> {
        if self.nodes.len() == MAX_SUBSCHEMAS {
            return Err(SchemaError::new(
                place,
                format!("There should be at most {MAX_SUBSCHEMAS} schemas in one"),
            ));
        }
        self.place(place)?;
        self.nodes.push(Node::default());
        self.known.insert(place.to_owned(), self.nodes.len() - 1);
        Ok(self.nodes.len() - 1)
    }

    /// Adds the bytes of a pointer.
    fn place(&mut self, place: &str) -> Result<(), SchemaError> {
        self.weight.place_bytes += place.len();
        if self.weight.place_bytes > MAX_PLACE_BYTES { Err(too_long()) } else { Ok(()) }
    }

    fn inner(&mut self, schema: &Value, place: &str) -> Result<usize, SchemaError> {
        if let Some(known) = self.known.get(place) {
            // A reference came first. Its target is visited from the queue.
            return Ok(*known);
        }
        let at = self.reserve(place)?;
        self.fill(at, schema, place)?;
        Ok(at)
    }

    fn fill(&mut self, at: usize, schema: &Value, place: &str) -> Result<(), SchemaError> {
        let mut node = Node { parts: 1, ..Node::default() };
        if let Value::Object(fields) = schema {
            self.fields(&mut node, fields, place)?;
        }
        if node.parts > MAX_PARTS {
            return Err(SchemaError::new(
                place,
                format!("One schema should have at most {MAX_PARTS} keywords and constants"),
            ));
        }
        if let Some(found) = self.nodes.get_mut(at) {
            *found = node;
        }
        Ok(())
    }

    fn fields(
        &mut self,
        node: &mut Node,
        fields: &Map<String, Value>,
        place: &str,
    ) -> Result<(), SchemaError> {
        let is_older = self.references.is_older(place);
        let targets = self.references.targets(fields, place)?;
        for target in &targets {
            let to = match self.known.get(target) {
                Some(known) => *known,
                None => {
                    let to = self.reserve(target)?;
                    self.open.push((to, target.clone()));
                    to
                }
            };
            node.references.push(to);
        }
        let stands_alone = !targets.is_empty() && replaces_siblings(self.draft);
        if !targets.is_empty() {
            self.rewritten.insert(place.to_owned(), targets);
        }
        for (keyword, value) in fields {
            if !is_checked(keyword) {
                continue;
            }
            let at = below(place, keyword);
            if is_older && changed_its_meaning(keyword, value, fields) {
                let text = format!(
                    "not allowed: {keyword} in a schema of an older dialect within the document; write it in the document's"
                );
                return Err(SchemaError::new(at, text));
            }
            if stands_alone && keyword != "$ref" && !DEFINITIONS.contains(&keyword.as_str()) {
                continue;
            }
            node.parts += 1;
            node.chooses |= matches!(keyword.as_str(), "anyOf" | "oneOf");
            self.place(&at)?;
            self.keyword(node, keyword, value, &at)?;
        }
        for (keyword, within, schema) in subschemas(fields) {
            if DEFINITIONS.contains(&keyword) || stands_alone {
                continue;
            }
            let at = self.inner(schema, &format!("{place}{within}"))?;
            let name = || unescaped(within.rsplit('/').next().unwrap_or_default());
            match keyword {
                "allOf" | "anyOf" | "oneOf" | "if" => node.applied.push(at),
                "properties" => drop(node.properties.insert(name(), at)),
                "patternProperties" => node.pattern_properties.push(at),
                "additionalProperties" => node.additional_properties = Some(at),
                "propertyNames" => node.names = Some(at),
                "prefixItems" => node.prefix.push(at),
                "items" if fields.get("items").is_some_and(Value::is_array) => node.prefix.push(at),
                "items" | "additionalItems" | "contains" => node.items.push(at),
                "unevaluatedProperties" => node.unevaluated_properties = Some(at),
                "unevaluatedItems" => node.unevaluated_items = Some(at),
                _ => node.branches.push(at),
            }
        }
        Ok(())
    }

    fn keyword(
        &mut self,
        node: &mut Node,
        keyword: &str,
        value: &Value,
        place: &str,
    ) -> Result<(), SchemaError> {
        match (keyword, value) {
            ("pattern", Value::String(pattern)) => node.pattern += self.pattern(pattern, place)?,
            ("enum" | "const", constant) => {
                if constant_values(constant) > MAX_CONSTANTS + 1 {
                    let text = format!("There should be at most {MAX_CONSTANTS} values");
                    return Err(SchemaError::new(place, text));
                }
                node.parts += match constant {
                    Value::Array(texts) if keyword == "enum" && is_hashed(texts) => 2,
                    other => constant_values(other) + constant_bytes(other) / BYTES_PER_STEP,
                };
            }
            ("required", Value::Array(names)) => node.parts += constant_parts(names),
            ("uniqueItems", Value::Bool(true)) => node.unique = true,
            ("dependentRequired" | "dependencies", Value::Object(named)) => {
                for names in named.values() {
                    node.parts += 1 + names.as_array().map_or(0, |names| constant_parts(names));
                }
            }
            ("patternProperties", Value::Object(named)) => {
                for pattern in named.keys() {
                    node.name_patterns += self.pattern(pattern, &below(place, pattern))?;
                }
            }
            ("$defs" | "definitions", Value::Object(named)) if named.len() > MAX_DEFINITIONS => {
                let text = format!("There should be at most {MAX_DEFINITIONS} definitions");
                return Err(SchemaError::new(place, text));
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the steps that a pattern takes for each byte of text.
    fn pattern(&mut self, pattern: &str, place: &str) -> Result<usize, SchemaError> {
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
        let syntax = syntax::Config::new().nest_limit(folding::MAX_NESTING);
        if table(pattern, syntax, MAX_TABLE).is_some() {
            return Ok(1);
        }
        let fits = |size: usize| {
            let mut builder = regex::RegexBuilder::new(pattern);
            builder.nest_limit(folding::MAX_NESTING).size_limit(size).build().is_ok()
        };
        let steps = PATTERN_SIZES.into_iter().find(|(size, _)| fits(*size)).map(|(_, steps)| steps);
        // The crate parses ECMAScript syntax, which differs: a pattern that only it accepts counts as a large
        // one.
        Ok(steps.unwrap_or(LARGEST_PATTERN))
    }
}

/// Returns whether a keyword of draft 6 or 7 has another meaning in newer dialects.
fn changed_its_meaning(keyword: &str, value: &Value, fields: &Map<String, Value>) -> bool {
    match keyword {
        "items" => value.is_array(),
        "additionalItems" | "dependencies" => true,
        "$ref" => fields.keys().any(|other| other != "$ref" && is_checked(other)),
        _ => false,
    }
}

fn unescaped(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

/// Computes how the schemas of a document apply to one value.
struct Places<'g> {
    nodes: &'g [Node],
    names: Vec<&'g str>,
}

/// The schemas that apply to one value.
#[derive(Debug, Clone, Copy, Default)]
struct InPlace {
    height: usize,
    schemas: usize,
}

impl<'g> Places<'g> {
    fn new(nodes: &'g [Node], known: &'g BTreeMap<String, usize>) -> Self {
        let mut names = vec![""; nodes.len()];
        for (name, at) in known {
            if let Some(place) = names.get_mut(*at) {
                *place = name;
            }
        }
        Self { nodes, names }
    }

    fn refuse<T>(&self, at: usize, text: impl Into<String>) -> Result<T, SchemaError> {
        Err(SchemaError::new(self.names.get(at).copied().unwrap_or_default(), text))
    }

    /// Rejects schemas that apply themselves to the same value again, and schemas of which too many apply to
    /// one value.
    fn check_heights(&self) -> Result<(), SchemaError> {
        let mut known: Vec<Option<InPlace>> = vec![None; self.nodes.len()];
        for at in 0..self.nodes.len() {
            self.in_place(at, &mut known, &mut Vec::new())?;
        }
        Ok(())
    }

    fn in_place(
        &self,
        at: usize,
        known: &mut Vec<Option<InPlace>>,
        open: &mut Vec<usize>,
    ) -> Result<InPlace, SchemaError> {
        if let Some(Some(found)) = known.get(at) {
            return Ok(*found);
        }
        if open.contains(&at) {
            let text = "not allowed: $ref to itself that does not descend into the data (by 'properties', 'items' and the like), \
                        because checking would not end";
            return self.refuse(at, text);
        }
        let too_deep = || {
            self.refuse(
                at,
                format!("Schemas that apply to one value should nest at most {MAX_HEIGHT} levels"),
            )
        };
        if open.len() > MAX_HEIGHT {
            return too_deep();
        }
        open.push(at);
        let mut all = InPlace { height: 1, schemas: 1 };
        for next in self.nodes.get(at).into_iter().flat_map(Node::in_place) {
            let found = self.in_place(next, known, open)?;
            all.height = all.height.max(found.height + 1);
            all.schemas += found.schemas;
            if all.schemas > MAX_IN_PLACE {
                return self.refuse(
                    at,
                    format!(
                        "With those it refers to, at most {MAX_IN_PLACE} schemas should apply to one value"
                    ),
                );
            }
        }
        open.pop();
        if all.height > MAX_HEIGHT {
            return too_deep();
        }
        if let Some(place) = known.get_mut(at) {
            *place = Some(all);
        }
        Ok(all)
    }

    /// Returns the number of compiled schemas. It exceeds the number of schemas if `unevaluated…` revisits
    /// some.
    fn compiled(&self) -> Result<usize, SchemaError> {
        let mut known = vec![Compiled::default(); self.nodes.len()];
        let mut all = 0_usize;
        for (at, node) in self.nodes.iter().enumerate() {
            let own = if node.is_unevaluated() { self.compiled_at(at, &mut known) } else { 1 };
            all = all.saturating_add(own);
            if all > MAX_COMPILED {
                return self
                    .refuse(at, "unevaluatedProperties and unevaluatedItems look at too many schemas again");
            }
        }
        Ok(all)
    }

    /// Returns the number of schemas that are compiled with one, without those it refers to.
    fn compiled_at(&self, at: usize, known: &mut Vec<Compiled>) -> usize {
        if let Some(found) = known.get(at).and_then(|known| known.itself) {
            return found;
        }
        let Some(node) = self.nodes.get(at) else { return 1 };
        let mut all = 1_usize;
        for next in node.within() {
            all = all.saturating_add(self.compiled_at(next, known));
        }
        if node.is_unevaluated() {
            all = all.saturating_add(self.marked_at(at, known));
        }
        if let Some(known) = known.get_mut(at) {
            known.itself = Some(all);
        }
        all
    }

    /// Returns the number of schemas that are compiled to determine which properties or items a schema
    /// evaluates.
    fn marked_at(&self, at: usize, known: &mut Vec<Compiled>) -> usize {
        if let Some(found) = known.get(at).and_then(|known| known.marked) {
            return found;
        }
        let Some(node) = self.nodes.get(at) else { return 1 };
        // A cycle of references leads back here below the data; the crate compiles it once.
        if let Some(known) = known.get_mut(at) {
            known.marked = Some(1);
        }
        let mut all = 1_usize;
        for next in node.within() {
            all = all.saturating_add(self.compiled_at(next, known));
        }
        for next in node.in_place() {
            all = all.saturating_add(self.marked_at(next, known));
        }
        if let Some(known) = known.get_mut(at) {
            known.marked = Some(all);
        }
        all
    }
}

/// The number of schemas that are compiled with one.
#[derive(Debug, Clone, Default)]
struct Compiled {
    itself: Option<usize>,
    marked: Option<usize>,
}

/// Removes everything that is not used to validate data, because the compiled schema would retain it. These
/// are annotations, unknown keywords and identifiers. References are rewritten to places of the document.
struct Prune<'p> {
    draft: Draft,
    rewritten: &'p BTreeMap<String, Vec<String>>,
    targets: &'p BTreeSet<String>,
}

impl Prune<'_> {
    /// Returns whether a reference leads to a pointer, or below it.
    fn leads_to(&self, place: &str) -> bool {
        self.targets.contains(place) || self.leads_below(place)
    }

    fn leads_below(&self, place: &str) -> bool {
        let below = format!("{place}/");
        self.targets.range(below.clone()..).next().is_some_and(|target| target.starts_with(&below))
    }

    fn schema(&self, schema: &mut Value, place: &str) {
        let Value::Object(fields) = schema else { return };
        let leads_below = self.leads_below(place);
        fields.retain(|keyword, _| {
            is_checked(keyword)
                || (keyword == "$schema" && place.is_empty())
                || (leads_below && self.leads_to(&below(place, keyword)))
        });
        for (keyword, value) in fields.iter_mut() {
            let (keyword, place) = (keyword.as_str(), below(place, keyword));
            match value {
                Value::Array(schemas) if LISTS.contains(&keyword) => {
                    for (position, schema) in schemas.iter_mut().enumerate() {
                        self.schema(schema, &format!("{place}/{position}"));
                    }
                }
                Value::Object(named) if NAMED.contains(&keyword) || DEFINITIONS.contains(&keyword) => {
                    for (name, schema) in named {
                        self.schema(schema, &below(&place, name));
                    }
                }
                schema if ONE.contains(&keyword) => self.schema(schema, &place),
                other if !is_checked(keyword) => self.other(other, &place),
                _ => {}
            }
        }
        self.reference(fields, place);
    }

    /// Prunes a value of an unknown keyword; only schemas that references lead to remain.
    fn other(&self, value: &mut Value, place: &str) {
        if self.targets.contains(place) {
            return self.schema(value, place);
        }
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| self.leads_to(&below(place, name)));
                for (name, value) in fields {
                    self.other(value, &below(place, name));
                }
            }
            Value::Array(items) => {
                for (position, item) in items.iter_mut().enumerate() {
                    let place = format!("{place}/{position}");
                    if self.leads_to(&place) { self.other(item, &place) } else { *item = Value::Null }
                }
            }
            _ => {}
        }
    }

    fn reference(&self, fields: &mut Map<String, Value>, place: &str) {
        let Some(targets) = self.rewritten.get(place) else { return };
        if replaces_siblings(self.draft) {
            fields.retain(|keyword, _| {
                DEFINITIONS.contains(&keyword.as_str())
                    || keyword == "$schema"
                    || self.leads_to(&below(place, keyword))
            });
        }
        if let Some((first, others)) = targets.split_first() {
            fields.insert("$ref".to_owned(), Value::String(to_place(first)));
            if others.is_empty() {
                return;
            }
            let others = others.iter().map(|target| serde_json::json!({"$ref": to_place(target)}));
            match fields.entry("allOf").or_insert_with(|| Value::Array(Vec::new())) {
                Value::Array(schemas) => schemas.extend(others),
                other => *other = Value::Array(others.collect()),
            }
        }
    }
}

/// Returns whether the crate looks up a text by its hash.
fn is_hashed(texts: &[Value]) -> bool {
    texts.len() > MAX_COMPARED && texts.iter().all(Value::is_string)
}

/// Returns the number of parts of constants: one for each, and the steps to compare their bytes.
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

/// Returns the total bytes of strings and names.
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
