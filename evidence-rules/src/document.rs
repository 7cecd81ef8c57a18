//! Parses the YAML documents that callers write: templates and policies.
//!
//! Parsing has two steps. The first converts YAML to a JSON value, under a budget, so that a hostile document
//! costs almost nothing. The second checks the value field by field and continues after an error, so it
//! reports all errors at once. A serde derive would stop at the first error and could not report its
//! position.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};
use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

use evidence_values::name::InvalidText;

/// Maximum number of nodes of a document. A thousand artifacts with ten attestations each fit.
const MAX_NODES: usize = 60_000;
/// Maximum nesting depth of a document. The deepest valid path has six levels.
const MAX_DEPTH: usize = 16;
/// Maximum number of uses of YAML aliases in a document, and of the nodes they expand to together.
const MAX_ALIASES: usize = 1_000;
/// Maximum total bytes of the texts of a document; a text behind an alias counts at each use. The largest
/// template or policy (1 MiB by default) cannot exceed it without aliases.
const MAX_SCALAR_BYTES: usize = 16 << 20;
/// Maximum number of reported errors of a document.
const MAX_PROBLEMS: usize = 100;
/// Maximum number of characters of an invalid value that an error quotes.
const MAX_SHOWN: usize = 100;
/// Maximum number of characters of the reason why a stored document cannot be read.
const MAX_REASON: usize = 400;
/// The path of an error that belongs to no field.
const WHOLE: &str = "document";

/// The errors of a document that was rejected, each with its path, at most a hundred.
///
/// Displayed as `N validation errors for <document>`, followed by a line `<path>: <text>` for each. The
/// public client searches for this phrase, which is in the plural even for one error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentErrors {
    document: &'static str,
    problems: Vec<(String, String)>,
}

impl DocumentErrors {
    /// Returns the errors as (path, text), such as `("trail.attestations[0].name", "Field required [input:
    /// None]")`.
    pub fn problems(&self) -> &[(String, String)] {
        &self.problems
    }

    /// Returns the message for a stored document with these errors. It has only the first error, because it
    /// is repeated in every explanation of non-compliance.
    pub(super) fn unreadable(&self, what: &str) -> String {
        let first = self.problems.first();
        let first = first.map(|(path, text)| format!("{path}: {text}")).unwrap_or_default();
        let short: String = first.chars().take(MAX_REASON).collect();
        format!("{what} cannot be read: {short}")
    }
}

impl fmt::Display for DocumentErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        write!(f, "{count} validation errors for {}", self.document)?;
        for (path, text) in &self.problems {
            write!(f, "\n{path}: {text}")?;
        }
        Ok(())
    }
}

impl std::error::Error for DocumentErrors {}

/// A document that is being checked, with the errors found so far.
#[derive(Debug)]
pub(super) struct Validator {
    document: &'static str,
    problems: Vec<(String, String)>,
}

/// The fields of one object of the document.
#[derive(Debug)]
pub(super) struct Fields<'v> {
    path: String,
    values: &'v Map<String, Value>,
}

impl<'v> Fields<'v> {
    /// Returns the value of a field, or `None` if it is absent.
    pub(super) fn get(&self, key: &str) -> Option<&'v Value> {
        self.values.get(key)
    }

    /// Returns the path of a field from the root of the document.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

impl Validator {
    /// Starts checking a document by parsing its YAML into a JSON value.
    pub(super) fn read(document: &'static str, yaml: &str) -> Result<(Self, Value), DocumentErrors> {
        let mut validator = Self { document, problems: Vec::new() };
        match parse(yaml) {
            Ok(value) => Ok((validator, value)),
            Err(text) => {
                validator.add(WHOLE.to_owned(), text);
                Err(validator.into_errors())
            }
        }
    }

    /// Ends the check and returns the value if there was no error.
    pub(super) fn finish<T>(self, value: T) -> Result<T, DocumentErrors> {
        if self.problems.is_empty() { Ok(value) } else { Err(self.into_errors()) }
    }

    /// Records an error and the value that caused it.
    pub(super) fn refuse(&mut self, path: String, text: &str, input: &Value) {
        self.add(path, format!("{text} [input: {}]", shown(input)));
    }

    /// Returns the fields of an object that may have only these keys.
    pub(super) fn object<'v>(&mut self, path: &str, value: &'v Value, keys: &[&str]) -> Option<Fields<'v>> {
        let Value::Object(values) = value else {
            let path = if path.is_empty() { WHOLE } else { path };
            self.refuse(path.to_owned(), "Input should be a valid dictionary", value);
            return None;
        };
        let fields = Fields { path: path.to_owned(), values };
        for (key, value) in values {
            if !keys.contains(&key.as_str()) {
                self.refuse(fields.path(key), "Extra inputs are not permitted", value);
            }
        }
        Some(fields)
    }

    /// Returns the items of an optional list, each with its path.
    pub(super) fn list<'v>(&mut self, fields: &Fields<'v>, key: &str) -> Vec<(String, &'v Value)> {
        let path = fields.path(key);
        match fields.get(key) {
            None => Vec::new(),
            Some(Value::Array(items)) => {
                items.iter().enumerate().map(|(at, item)| (format!("{path}[{at}]"), item)).collect()
            }
            Some(other) => {
                self.refuse(path, "Input should be a valid list", other);
                Vec::new()
            }
        }
    }

    /// Returns an optional text.
    pub(super) fn text<'v>(&mut self, fields: &Fields<'v>, key: &str) -> Option<&'v str> {
        let value = fields.get(key)?;
        match value.as_str() {
            Some(text) if text.contains('\0') => {
                self.refuse(fields.path(key), "NUL characters are not permitted", value);
                None
            }
            Some(text) => Some(text),
            None => {
                self.refuse(fields.path(key), "Input should be a valid string", value);
                None
            }
        }
    }

    /// Returns a required text.
    pub(super) fn required_text<'v>(&mut self, fields: &Fields<'v>, key: &str) -> Option<&'v str> {
        if fields.get(key).is_none() {
            self.refuse(fields.path(key), "Field required", &Value::Null);
        }
        self.text(fields, key)
    }

    /// Returns an optional boolean, as YAML 1.2 or 1.1 spells it: `true`, `yes`, `on` and their opposites.
    pub(super) fn boolean(&mut self, fields: &Fields<'_>, key: &str) -> Option<bool> {
        let value = fields.get(key)?;
        let read = value.as_bool().or_else(|| boolean_word(value.as_str()?));
        if read.is_none() {
            self.refuse(fields.path(key), "Input should be a valid boolean", value);
        }
        read
    }

    /// Records an error if the text of a field is not a valid name of this type.
    pub(super) fn fits<T: FromStr<Err = InvalidText>>(&mut self, fields: &Fields<'_>, key: &str, text: &str) {
        if let Err(misfit) = text.parse::<T>() {
            self.refuse(fields.path(key), &misfit.to_string(), &text.into());
        }
    }

    /// Returns whether no further error would be reported.
    pub(super) const fn is_full(&self) -> bool {
        self.problems.len() >= MAX_PROBLEMS
    }

    /// Records an error for each item that has the name of an earlier item.
    pub(super) fn unique_names(&mut self, items: &[(String, &Value)]) {
        let mut seen = BTreeSet::new();
        for (path, item) in items {
            let Some(name) = item.get("name") else {
                continue;
            };
            if name.as_str().is_some_and(|name| !seen.insert(name)) {
                self.refuse(format!("{path}.name"), "Names should be unique", name);
            }
        }
    }

    fn add(&mut self, path: String, text: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push((path, text));
        }
    }

    fn into_errors(self) -> DocumentErrors {
        DocumentErrors { document: self.document, problems: self.problems }
    }
}

/// The words for true and false in YAML 1.1, in any case.
const TRUE_WORDS: [&str; 4] = ["true", "yes", "on", "y"];
const FALSE_WORDS: [&str; 4] = ["false", "no", "off", "n"];

fn boolean_word(word: &str) -> Option<bool> {
    let is_in = |words: &[&str]| words.iter().any(|known| word.eq_ignore_ascii_case(known));
    if is_in(&TRUE_WORDS) { Some(true) } else { is_in(&FALSE_WORDS).then_some(false) }
}

/// Returns the JSON Schema of a boolean.
pub(super) fn boolean_schema(description: &str, default: bool) -> Value {
    let letter = |c: char| format!("[{}{}]", c.to_ascii_uppercase(), c.to_ascii_lowercase());
    let any_case = |word: &&str| word.chars().map(letter).collect::<String>();
    let words = Vec::from_iter(TRUE_WORDS.iter().chain(&FALSE_WORDS).map(any_case)).join("|");
    json!({
        "description": description,
        "anyOf": [{ "type": "boolean" }, { "type": "string", "pattern": format!("^({words})$") }],
        "default": default,
    })
}

/// Converts YAML 1.2 to JSON. Only `true` and `false` become booleans, so an artifact may be named `no`.
/// Duplicate keys are rejected.
fn parse(yaml: &str) -> Result<Value, String> {
    if yaml.contains('\0') {
        return Err("NUL characters are not permitted".to_owned());
    }
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_documents: 1,
            max_total_scalar_bytes: MAX_SCALAR_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 4 * MAX_ALIASES,
        },
    };
    serde_saphyr::from_str_with_options(yaml, options)
        .map_err(|error| format!("Input should be valid YAML: {}", explained(&error)))
}

/// Returns an error and its position, in terms of YAML rather than of the parser.
fn explained(error: &Error) -> String {
    let error = match error.without_snippet() {
        Error::AliasError { error, .. } => error.without_snippet(),
        error => error,
    };
    let text = match error {
        Error::Eof { .. } => "the document is empty".into(),
        Error::MultipleDocuments { .. } | Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            "only one document is allowed, and here a second begins".into()
        }
        Error::Budget { breach: BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. }, .. } => {
            format!("the document should have at most {MAX_NODES} values")
        }
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => {
            format!("values should nest at most {MAX_DEPTH} levels deep")
        }
        Error::Budget { breach: BudgetBreach::ScalarBytes { .. }, .. } => {
            format!("all texts together should have at most {MAX_SCALAR_BYTES} bytes")
        }
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            format!(
                "the document should have at most {MAX_ALIASES} anchors and aliases, for few values together"
            )
        }
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key '{}' is given twice", one_line(key))
        }
        Error::DuplicateMappingKey { .. } => "a key is given twice".into(),
        Error::UnknownAnchor { .. } => "the alias has no anchor".into(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "a value should not contain its own alias".into()
        }
        Error::MergeValueNotMapOrSeqOfMaps { .. } | Error::MergeKeyNotAllowed { .. } => {
            "'<<' should be followed by the alias of a dictionary".into()
        }
        Error::UnsupportedTag { .. }
        | Error::InvalidBinaryBase64 { .. }
        | Error::BinaryNotUtf8 { .. }
        | Error::TaggedScalarCannotDeserializeIntoString { .. } => "this tag cannot be used here".into(),
        Error::SerdeInvalidType { .. } | Error::NullIntoString { .. } => "a key should be a text".into(),
        Error::ExternalMessage { msg, .. } => syntax(msg).into(),
        Error::Unexpected { .. } => "a text should stand here, not a list or dictionary".into(),
        Error::InvalidScalar { .. } | Error::InvalidBooleanStrict { .. } => {
            "the value is not of the type that its tag names".into()
        }
        Error::NonFiniteFloat { .. } => "numbers should be finite".into(),
        _ => "this part cannot be read".into(),
    };
    match error.location().filter(|place| place.line() > 0) {
        Some(place) => format!("{text} (line {}, column {})", place.line(), place.column()),
        None => text,
    }
}

/// Returns the description of a syntax error, by keywords of the parser's message.
fn syntax(message: &str) -> &'static str {
    let table: [(&[&str], &str); 11] = [
        (&["recursion"], "values nest too deep"),
        (&["eof", "EOF"], "the text ends before a bracket or quote is closed"),
        (&["tab"], "a tab cannot stand here; indent with spaces"),
        (
            &["escape", "surrogate", "hexadecimal"],
            "a backslash in a text in double quotes begins no escape sequence",
        ),
        (&["quote"], "a text in quotes is not closed, or is followed by more than a comma"),
        (&["bracket", "flow"], "brackets do not match, or a comma between them is missing"),
        (&["indent"], "the indentation fits none of the lines before"),
        (
            &["key", "mapping", "':'"],
            "a key, or the ':' after it, stands where none can be; texts with ': ' need quotes",
        ),
        (&["block sequence", "block collection"], "an item of a list stands where none can be"),
        (&["anchor", "alias"], "an anchor or alias is not written correctly"),
        (&["tag", "TAG", "directive", "document"], "a tag or directive is not written correctly"),
    ];
    let is_meant = |(words, _): &&(&[&str], &str)| words.iter().any(|word| message.contains(word));
    table
        .iter()
        .find(is_meant)
        .map_or("this character cannot stand here; the text may need quotes", |(_, text)| text)
}

/// Formats a value as the reference service does: plain text, `None`, `True`, `['a']`. A text that would
/// parse as another value without quotes is quoted.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if is_ambiguous(text) => one_line(&format!("'{text}'")),
        Value::String(text) => one_line(text),
        other => one_line(&python(other)),
    }
}

fn is_ambiguous(text: &str) -> bool {
    text.parse::<f64>().is_ok() || ["true", "false", "null", "~"].contains(&text)
}

fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("'{text}'"),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(python).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(key, value)| format!("'{key}': {}", python(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// Returns the start of a text as a single line, without control characters.
fn one_line(text: &str) -> String {
    let mut line: String =
        text.chars().take(MAX_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_that_is_no_yaml_is_explained_in_words_of_yaml_files() {
        let table = [
            ("a: 1\n---\nb: 2", "only one document is allowed, and here a second begins (line 2, column 1)"),
            ("a: 1\nb: 2\na: 3", "the key 'a' is given twice (line 3, column 1)"),
            ("a: *b", "the alias has no anchor (line 1, column 4)"),
            ("a:\n\tb: 1", "a tab cannot stand here; indent with spaces (line 2, column 2)"),
            ("a: [1, 2", "brackets do not match, or a comma between them is missing"),
            ("a: {b: 1}}", "brackets do not match"),
            ("a: \"\\q\"", "begins no escape sequence"),
            ("[1]: 2", "a text should stand here, not a list or dictionary"),
            ("a: .inf", "numbers should be finite"),
            ("a: 'b", "is not closed"),
            ("a: b: c", "texts with ': ' need quotes"),
            ("a: [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]", "values nest too deep"),
            ("a: [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]", "values should nest at most 16 levels deep"),
        ];
        for (yaml, expected) in table {
            let text = parse(yaml).unwrap_err();
            assert!(text.starts_with("Input should be valid YAML: "), "{text}");
            assert!(text.contains(expected), "{yaml:?}: {text}");
        }
    }

    proptest! {
        #[test]
        fn no_error_has_words_of_the_parser(yaml in "[a-b:,*&!<>|'\"{}\\[\\]%@#?~ \n\t0-9-]{0,24}|\\PC{0,24}") {
            let words = ["budget", "breach", "scalar", "serde", "Options", "deserialize", "mapping", "policy", "::", "Error"];
            if let Err(text) = parse(&yaml) {
                let told = words.iter().find(|word| text.contains(**word));
                prop_assert!(told.is_none(), "{:?}: {}", yaml, text);
                prop_assert!(!text.contains("this part cannot be read"), "{:?}: {}", yaml, text);
            }
        }

        #[test]
        fn words_of_yaml_1_1_are_booleans_where_one_is_expected_and_texts_elsewhere(
            word in "([Tt][Rr][Uu][Ee]|[Yy][Ee][Ss]|[Oo][Nn])|[Ff][Aa][Ll][Ss][Ee]|[Nn][Oo]|[Oo][Ff][Ff]",
        ) {
            let (mut validator, value) =
                Validator::read("Test", &format!("flag: {word}\non: {word}\nname: '{word}'")).unwrap();
            let fields = validator.object("", &value, &["flag", "on", "name"]).unwrap();
            let truth = ["true", "yes", "on"].contains(&word.to_lowercase().as_str());
            prop_assert_eq!(validator.boolean(&fields, "flag"), Some(truth));
            prop_assert_eq!(validator.boolean(&fields, "on"), Some(truth));
            prop_assert_eq!(validator.text(&fields, "name"), Some(word.as_str()));
            prop_assert!(validator.finish(()).is_ok());
        }
    }
}
