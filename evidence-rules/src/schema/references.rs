//! Resolves the references of a schema to places in the same document. No document is fetched.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Draft;
use serde_json::{Map, Value};
use url::Url;

use super::keywords::{below, subschemas};
use super::{MAX_PLACE, MAX_PLACE_BYTES, SchemaError, dialect, too_long};

/// The URI of a document that does not declare one.
const UNNAMED: &str = "http://schema.invalid/";

/// Maximum number of URIs and anchors in a document.
const MAX_ADDRESSES: usize = 2_000;

/// The URIs and anchors of a document.
pub(super) struct References<'s> {
    root: &'s Value,
    draft: Draft,
    /// The pointers of schemas with a URI, by that URI.
    resources: BTreeMap<String, String>,
    /// The pointers of anchors, by the URI of their resource and their name.
    anchors: BTreeMap<(String, String), String>,
    /// The pointers of the schemas that declare each dynamic anchor.
    dynamic: BTreeMap<String, Vec<String>>,
    /// The pointers of the schemas with `$recursiveAnchor`.
    recursive: Vec<String>,
    /// The base URI of references below a pointer, by that pointer.
    bases: BTreeMap<String, Url>,
    /// The pointers of schemas of draft 6 or 7 within a newer document.
    older: BTreeSet<String>,
    /// Total bytes of the pointers of all schemas.
    place_bytes: usize,
}

/// Returns whether `$ref` replaces every keyword beside it.
pub(super) const fn replaces_siblings(draft: Draft) -> bool {
    matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7)
}

impl<'s> References<'s> {
    /// Collects the URIs and anchors of a document.
    pub(super) fn of(root: &'s Value, draft: Draft) -> Result<Self, SchemaError> {
        let base = Url::parse(UNNAMED).map_err(|error| SchemaError::new("", error.to_string()))?;
        let mut found = Self {
            root,
            draft,
            resources: BTreeMap::from([(UNNAMED.to_owned(), String::new())]),
            anchors: BTreeMap::new(),
            dynamic: BTreeMap::new(),
            recursive: Vec::new(),
            bases: BTreeMap::from([(String::new(), base.clone())]),
            older: BTreeSet::new(),
            place_bytes: 0,
        };
        found.index(root, String::new(), base)?;
        Ok(found)
    }

    fn index(&mut self, schema: &Value, place: String, mut base: Url) -> Result<(), SchemaError> {
        self.place_bytes += place.len();
        if place.len() > MAX_PLACE || self.place_bytes > MAX_PLACE_BYTES {
            return Err(too_long());
        }
        let Value::Object(fields) = schema else { return Ok(()) };
        let text = |keyword: &str| fields.get(keyword).and_then(Value::as_str);
        let hides = replaces_siblings(self.draft) && fields.contains_key("$ref");
        let id = if self.draft == Draft::Draft4 { "id" } else { "$id" };
        if let Some(address) = text(id).filter(|_| !hides) {
            match address.strip_prefix('#') {
                Some(anchor) if replaces_siblings(self.draft) => {
                    self.anchors.insert((base.to_string(), anchor.to_owned()), place.clone());
                }
                _ => {
                    base = base.join(address).map_err(|_| {
                        SchemaError::new(below(&place, id), "Input should be an address (URI)")
                    })?;
                    base.set_fragment(None);
                    self.resources.insert(base.to_string(), place.clone());
                    self.bases.insert(place.clone(), base.clone());
                }
            }
        }
        if let Some(named) = fields.get("$schema").filter(|_| !place.is_empty()) {
            match dialect(named) {
                Some(draft) if draft == self.draft => {}
                Some(Draft::Draft6 | Draft::Draft7) if !replaces_siblings(self.draft) => {
                    self.older.insert(place.clone());
                }
                _ => {
                    let text = "Input should be the dialect of the whole document, or draft-06 or draft-07 within a newer one";
                    return Err(SchemaError::new(below(&place, "$schema"), text));
                }
            }
        }
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(anchor) = text(keyword) {
                self.anchors.insert((base.to_string(), anchor.to_owned()), place.clone());
            }
        }
        if let Some(anchor) = text("$dynamicAnchor") {
            self.dynamic.entry(anchor.to_owned()).or_default().push(place.clone());
        }
        if fields.get("$recursiveAnchor") == Some(&Value::Bool(true)) {
            self.recursive.push(place.clone());
        }
        let addresses = self.resources.len() + self.anchors.len();
        if addresses + self.recursive.len() + self.older.len() > MAX_ADDRESSES {
            let text = format!("There should be at most {MAX_ADDRESSES} addresses and anchors");
            return Err(SchemaError::new(place, text));
        }
        for (_, below, schema) in subschemas(fields) {
            self.index(schema, format!("{place}{below}"), base.clone())?;
        }
        Ok(())
    }

    /// Returns the pointers that the references of a schema lead to.
    pub(super) fn targets(
        &self,
        fields: &Map<String, Value>,
        place: &str,
    ) -> Result<Vec<String>, SchemaError> {
        let mut targets = Vec::new();
        for keyword in super::keywords::REFERENCES {
            let Some(Value::String(to)) = fields.get(keyword) else { continue };
            let at = below(place, keyword);
            targets.push(match keyword {
                "$ref" => self.target(to, place, &at)?,
                _ if replaces_siblings(self.draft) => continue,
                "$dynamicRef" => self.dynamic_target(to, place, &at)?,
                _ => self.recursive_target(place, &at)?,
            });
        }
        Ok(targets)
    }

    /// Returns the pointer of the resource that contains a place, and the base URI of its references.
    fn base(&self, place: &str) -> (&str, Option<&Url>) {
        let mut at = place;
        loop {
            if let Some((known, base)) = self.bases.get_key_value(at) {
                return (known, Some(base));
            }
            match at.rfind('/') {
                Some(end) => at = at.get(..end).unwrap_or_default(),
                None => return ("", None),
            }
        }
    }

    /// Returns whether this place is in a schema of draft 6 or 7 within a newer document.
    pub(super) fn is_older(&self, place: &str) -> bool {
        self.older.iter().any(|older| {
            place.strip_prefix(older.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    fn target(&self, to: &str, place: &str, at: &str) -> Result<String, SchemaError> {
        let (_, base) = self.base(place);
        let Some(mut address) = base.and_then(|base| base.join(to).ok()) else {
            return Err(SchemaError::new(at, "Input should be a reference (URI)"));
        };
        let fragment = address.fragment().unwrap_or_default().to_owned();
        address.set_fragment(None);
        let Some(resource) = self.resources.get(address.as_str()) else {
            let text = "Input should refer to this document: other documents are not fetched. Put the other schema under \
                        '$defs' or 'definitions', with its address as '$id'";
            return Err(SchemaError::new(at, text));
        };
        let fragment = decoded(&fragment);
        let missing = || SchemaError::new(at, "Input should refer to a schema of this document");
        if fragment.is_empty() || fragment.starts_with('/') {
            // Some schemas resolve pointers from the document root although they are in a schema with its own
            // URI.
            let places = [format!("{resource}{fragment}"), fragment];
            let found = places.into_iter().find(|place| self.schema(place).is_some());
            return found.ok_or_else(missing);
        }
        self.anchors.get(&(address.to_string(), fragment)).cloned().ok_or_else(missing)
    }

    /// Resolves a dynamic reference. If only one schema declares its anchor, it is a plain reference.
    fn dynamic_target(&self, to: &str, place: &str, at: &str) -> Result<String, SchemaError> {
        let anchor = to.rsplit_once('#').map_or("", |(_, anchor)| anchor);
        match self.dynamic.get(anchor).map_or(0, Vec::len) {
            0 | 1 => self.target(to, place, at),
            many => {
                let text = format!(
                    "not allowed: $dynamicRef to an anchor that {many} schemas declare, because the data decide which of them \
                     is meant"
                );
                Err(SchemaError::new(at, text))
            }
        }
    }

    fn recursive_target(&self, place: &str, at: &str) -> Result<String, SchemaError> {
        if self.recursive.len() > 1 {
            let text = "not allowed: $recursiveRef with more than one $recursiveAnchor";
            return Err(SchemaError::new(at, text));
        }
        Ok(self.base(place).0.to_owned())
    }

    /// Returns the schema at a pointer.
    pub(super) fn schema(&self, place: &str) -> Option<&'s Value> {
        if place.len() > MAX_PLACE {
            return None;
        }
        self.root.pointer(place).filter(|found| found.is_object() || found.is_boolean())
    }
}

/// Returns the text of a percent-encoded fragment.
fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = fragment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match hex.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the reference to a pointer in the same document.
pub(super) fn to_place(place: &str) -> String {
    let mut text = String::from("#");
    for byte in place.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~$".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
