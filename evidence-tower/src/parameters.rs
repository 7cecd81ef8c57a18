//! Path and query parameters, percent-decoded, and the headers that an operation declares. The core decodes
//! their texts as fields of the operation.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use evidence_core::auth::Target;
use evidence_core::operation::header_field;
use evidence_core::{Error, Operation, Result, decode};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use schemars::SchemaGenerator;
use serde_json::{Map, Value};

/// The parameters of a request.
#[derive(Debug)]
pub(crate) struct Parameters {
    path: BTreeMap<String, Decoded>,
    query: String,
    /// The declared headers by field: the header's name, and its value if it was sent.
    headers: BTreeMap<String, (&'static str, Option<Decoded>)>,
}

/// A decoded text; `Err` holds the lossy text of bytes that are not UTF-8.
type Decoded = Result<String, String>;

fn decoded(encoded: &str) -> Decoded {
    let bytes: Cow<'_, [u8]> = percent_decode_str(encoded).into();
    text(bytes.into_owned())
}

fn text(bytes: Vec<u8>) -> Decoded {
    String::from_utf8(bytes).map_err(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Returns the value of a header. Repeated headers are joined (RFC 9110, 5.3).
fn header(headers: &HeaderMap, name: &str) -> Option<Decoded> {
    let sent: Vec<&[u8]> = headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
    (!sent.is_empty()).then(|| text(sent.join(b", ".as_slice())))
}

/// Returns the text, possibly lossy.
fn lossy(decoded: &Decoded) -> &str {
    match decoded {
        Ok(text) | Err(text) => text,
    }
}

fn not_utf8(field: impl Into<String>, text: &str) -> Error {
    Error::invalid(field, format!("Input should be valid UTF-8 [input: {text}]"))
}

impl Parameters {
    /// Creates the parameters from those of a routed path, a query string, and the `declared` headers.
    pub(crate) fn new(
        path: &matchit::Params<'_, '_>,
        query: Option<&str>,
        headers: &HeaderMap,
        declared: &'static [&'static str],
    ) -> Self {
        let path = path.iter().map(|(name, value)| (name.to_owned(), decoded(value))).collect();
        let headers =
            declared.iter().map(|name| (header_field(name), (*name, header(headers, name)))).collect();
        Self { path, query: query.unwrap_or_default().to_owned(), headers }
    }

    /// Returns the target of an operation at this path.
    pub(crate) fn target<O: Operation>(&self) -> Result<Target> {
        Target::at::<O>(|name| self.path.get(name).map(lossy))
    }

    /// Decodes the parameters as the fields of an operation. A path parameter takes precedence over a query
    /// parameter, and a query parameter cannot set a header.
    pub(crate) fn read<O: Operation>(&self) -> Result<O> {
        let mut fields = query_fields(&self.query)?;
        for (field, (_, value)) in &self.headers {
            fields.remove(field);
            if let Some(value) = value {
                let text = value.as_ref().map_err(|text| not_utf8(self.error_field(field), text))?;
                fields.insert(field.clone(), Value::String(text.clone()));
            }
        }
        for (name, segment) in &self.path {
            let text = segment.as_ref().map_err(|text| not_utf8(name, text))?;
            fields.insert(name.clone(), Value::String(text.clone()));
        }
        decode::from_parameters(fields)
            .map_err(|misfit| Error::invalid(self.error_field(&misfit.field()), misfit.message()))
    }

    /// Returns the name of a field in `errors`: `header.<name>`, `query.<name>`, or the plain name of a path
    /// parameter.
    fn error_field(&self, field: &str) -> String {
        match self.headers.get(field) {
            _ if self.path.contains_key(field) => field.to_owned(),
            Some((name, _)) => format!("header.{name}"),
            None => format!("query.{field}"),
        }
    }
}

/// The response header with the names of unknown query parameters.
pub(crate) static IGNORED: HeaderName = HeaderName::from_static("evidence-ignored-parameters");

/// The maximum number of names in [`IGNORED`]. `...` stands for the others.
const MAX_IGNORED: usize = 20;

/// The maximum length of a name in bytes, after encoding. Longer names are cut.
const MAX_IGNORED_NAME: usize = 100;

/// The bytes of a name that are percent-encoded in [`IGNORED`].
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the names of an operation's query parameters: its fields, except those of the path and of headers.
pub(crate) fn query_names<O: Operation>() -> BTreeSet<String> {
    let schema = O::json_schema(&mut SchemaGenerator::default());
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    let is_header = |field: &str| O::REQUEST_HEADERS.iter().any(|header| header_field(header) == field);
    let is_elsewhere = |field: &str| O::PATH.contains(&format!("{{{field}}}")) || is_header(field);
    fields.filter(|field| !is_elsewhere(field)).cloned().collect()
}

/// Returns the value of [`IGNORED`] for a query: the percent-encoded names that are not `known`; `None` if
/// all are.
pub(crate) fn ignored(query: &str, known: &BTreeSet<String>) -> Option<HeaderValue> {
    let mut names: Vec<String> = Vec::new();
    for pair in query.split('&') {
        let name = pair.split('=').next().unwrap_or_default().replace('+', " ");
        let decoded: Cow<'_, [u8]> = percent_decode_str(&name).into();
        let is_known = std::str::from_utf8(&decoded).is_ok_and(|name| known.contains(name));
        let encoded = cut(&decoded);
        if is_known || encoded.is_empty() || names.contains(&encoded) {
            continue;
        }
        if names.len() == MAX_IGNORED {
            names.push("...".to_owned());
            break;
        }
        names.push(encoded);
    }
    HeaderValue::try_from(names.join(", ")).ok().filter(|value| !value.is_empty())
}

/// Returns a name for [`IGNORED`].
fn cut(name: &[u8]) -> String {
    let mut text = String::new();
    for piece in percent_encode(name, ENCODED) {
        if text.len() + piece.len() > MAX_IGNORED_NAME {
            // Plain bytes are one piece, and an encoded byte is never cut.
            let room = MAX_IGNORED_NAME - text.len();
            text.extend(piece.get(..room).filter(|_| !piece.starts_with('%')));
            break;
        }
        text.push_str(piece);
    }
    text
}

/// Returns the query's values by name, as a list for a repeated name.
fn query_fields(query: &str) -> Result<Map<String, Value>> {
    let mut fields = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        // No parameter has a name that is not UTF-8.
        let Ok(name) = form_decoded(name) else { continue };
        let value = form_decoded(value).map_err(|text| not_utf8(format!("query.{name}"), &text))?;
        add(&mut fields, name, value);
    }
    Ok(fields)
}

/// Decodes `+` as a space, as in a form.
fn form_decoded(encoded: &str) -> Decoded {
    decoded(&encoded.replace('+', " "))
}

fn add(fields: &mut Map<String, Value>, name: String, value: String) {
    let value = Value::String(value);
    match fields.get_mut(&name) {
        Some(Value::Array(values)) => values.push(value),
        Some(first) => *first = Value::Array(vec![first.take(), value]),
        None => {
            fields.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{BTreeSet, ignored, query_fields};

    #[test]
    fn a_query_is_read_pair_by_pair() {
        let table = [
            ("", json!({})),
            ("&&", json!({})),
            ("a", json!({"a": ""})),
            ("a=", json!({"a": ""})),
            ("a=b=c", json!({"a": "b=c"})),
            ("a=1&b=2&a=3&a=4", json!({"a": ["1", "3", "4"], "b": "2"})),
            ("a=b+c%2Bd%20%26", json!({"a": "b c+d &"})),
            ("%61=%C3%A9", json!({"a": "é"})),
            ("a=%zz%", json!({"a": "%zz%"})),
            ("%ff=1&a=2", json!({"a": "2"})),
        ];
        for (query, fields) in table {
            assert_eq!(serde_json::Value::Object(query_fields(query).unwrap()), fields, "{query}");
        }
    }

    #[test]
    fn names_that_are_not_known_are_listed_once_encoded_and_bounded() {
        let known = BTreeSet::from(["page".to_owned(), "a b".to_owned()]);
        let many: String = (0..30).map(|n| format!("x{n:02}=&")).collect();
        let listed: Vec<String> = (0..20).map(|n| format!("x{n:02}")).collect();
        let table = [
            ("", None),
            ("page=1&a+b=2&%70age=3&a%20b", None),
            ("&&=1&", None),
            ("Page=1", Some("Page".to_owned())),
            ("b=1&page=1&a=2&b=3", Some("b, a".to_owned())),
            (
                "a%0d%0aSet-Cookie:x=1&%ff=2&%C3%A9&a,b",
                Some("a%0D%0ASet-Cookie%3Ax, %FF, %C3%A9, a%2Cb".to_owned()),
            ),
            (many.as_str(), Some(format!("{}, ...", listed.join(", ")))),
        ];
        for (query, expected) in table {
            let found = ignored(query, &known).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(found, expected, "{query}");
        }
        for long in ["a".repeat(5000), "%41é".repeat(1000), "%ff".repeat(1000)] {
            assert!(ignored(&long, &known).unwrap().len() <= 100, "{long}");
        }
    }

    #[test]
    fn a_value_that_is_not_utf8_is_named() {
        let error = query_fields("tag=%ff").unwrap_err();
        assert!(format!("{error:?}").contains("query.tag"), "{error:?}");
    }
}
