use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::json;

use super::*;
use crate::bounded::{List, ShortText, UserData};
use crate::json::{JsonFields, JsonValue, MAX_DEPTH, check, parse};
use crate::name::{FlowName, TagKey};
use crate::quote::MAX_ECHO;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only read")]
struct Body {
    name: FlowName,
    kind: Option<Kind>,
    #[serde(default)]
    counts: Vec<u64>,
    #[serde(default)]
    tags: BTreeMap<TagKey, String>,
    inner: Option<Inner>,
}

#[derive(Debug, Deserialize)]
struct Inner {
    flag: bool,
    size: Option<f64>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Public,
    Private,
}

#[test]
fn every_misfit_names_its_field_and_quotes_its_input() {
    let table = [
        (json!({}), "name", "Field required [input: None]"),
        (json!({"name": null}), "name", "Input should be a valid string [input: None]"),
        (json!({"name": 5}), "name", "Input should be a valid string [input: 5]"),
        (
            json!({"name": "foo bar"}),
            "name",
            r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\.\-_~]*$' [input: foo bar]",
        ),
        (json!({"name": "x", "kind": ""}), "kind", "Input should be 'public' or 'private' [input: ]"),
        (
            json!({"name": "x", "kind": {"a": 1}}),
            "kind",
            "Input should be 'public' or 'private' [input: {\"a\":1}]",
        ),
        (json!({"name": "x", "more": 1}), "more", "Extra inputs are not permitted [input: 1]"),
        (json!({"name": "x", "counts": [1, "2"]}), "counts[1]", "Input should be a valid integer [input: 2]"),
        (
            json!({"name": "x", "counts": [-1]}),
            "counts[0]",
            "Input should be greater than or equal to 0 [input: -1]",
        ),
        (json!({"name": "x", "counts": [1.5]}), "counts[0]", "Input should be a valid integer [input: 1.5]"),
        (json!({"name": "x", "counts": ""}), "counts", "Input should be a valid list [input: ]"),
        (json!({"name": "x", "tags": ""}), "tags", "Input should be a valid dictionary [input: ]"),
        (json!({"name": "x", "tags": {"a": 1}}), "tags.a", "Input should be a valid string [input: 1]"),
        (
            json!({"name": "x", "tags": {"a": "\u{0}"}}),
            "tags.a",
            "String should not contain the NUL character [input: \u{0}]",
        ),
        (
            json!({"name": "x", "inner": [true]}),
            "inner",
            "Input should be a valid dictionary [input: [true]]",
        ),
        (
            json!({"name": "x", "inner": {"flag": "true"}}),
            "inner.flag",
            "Input should be a valid boolean [input: true]",
        ),
        (
            json!({"name": "x", "inner": {"flag": true, "size": ""}}),
            "inner.size",
            "Input should be a valid number [input: ]",
        ),
        (json!([]), "", "Input should be a valid dictionary [input: []]"),
    ];
    for (input, field, message) in table {
        let misfit = from_value::<Body>(&input).expect_err(&input.to_string());
        assert_eq!((misfit.field().as_str(), misfit.message().as_str()), (field, message), "{input}");
    }
    let misfit = from_value::<Body>(&json!({"name": "x", "tags": {"a b": ""}})).unwrap_err();
    assert_eq!(misfit.field(), "tags.a b");
}

#[test]
fn a_number_beyond_all_types_is_told_what_is_wanted_like_any_other() {
    for (text, field, message) in [
        (r#"{"name": 1e400}"#, "name", "Input should be a valid string [input: 1e400]"),
        (
            r#"{"name": "x", "counts": [1e400]}"#,
            "counts[0]",
            "Input should be a valid integer [input: 1e400]",
        ),
        (r#"{"name": "x", "tags": 1e400}"#, "tags", "Input should be a valid dictionary [input: 1e400]"),
        (
            r#"{"name": "x", "inner": {"flag": -1e400}}"#,
            "inner.flag",
            "Input should be a valid boolean [input: -1e400]",
        ),
        (
            r#"{"name": "x", "inner": {"flag": true, "size": 1e400}}"#,
            "inner.size",
            "Input should be a valid number [input: 1e400]",
        ),
    ] {
        let misfit = from_json::<Body>(crate::json::check(text.as_bytes()).unwrap()).expect_err(text);
        assert_eq!((misfit.field().as_str(), misfit.message().as_str()), (field, message), "{text}");
    }
}

#[test]
fn an_integer_may_be_written_with_a_fraction_or_an_exponent_and_none_is_rounded() {
    for (number, expected) in [
        ("70.0", Some(70)),
        ("0.0", Some(0)),
        ("-0.0", Some(0)),
        ("-0", Some(0)),
        ("0e400", Some(0)),
        ("-7.00", Some(-7)),
        ("1e2", Some(100)),
        ("1.2E+2", Some(120)),
        ("120e-1", Some(12)),
        ("0.05e2", Some(5)),
        ("9007199254740993.0", Some(9_007_199_254_740_993)),
        ("9223372036854775807.0", Some(i64::MAX)),
        ("-9223372036854775808.0", Some(i64::MIN)),
        ("9223372036854775808.0", None),
        ("0.5", None),
        ("120e-2", None),
        ("1e400", None),
        ("1e-400", None),
        ("1e9999999999999999999999", None),
        ("9007199254740992.000000000000000001", None),
    ] {
        let body = format!("{{\"page\": {number}, \"tag\": []}}");
        let read = from_json::<Query>(check(body.as_bytes()).unwrap());
        assert_eq!(read.as_ref().ok().and_then(|read| read.page), expected, "{number}");
        if let Err(misfit) = read {
            assert!(misfit.message().starts_with("Input should be a valid integer"), "{misfit}");
        }
        let Value::Object(parameters) = json!({ "page": number }) else { unreachable!() };
        assert_eq!(
            from_parameters::<Query>(parameters).ok().and_then(|read| read.page),
            expected,
            "{number}"
        );
    }
    let body = |number: &str| format!("{{\"name\": \"x\", \"counts\": [{number}, 1]}}");
    let counts =
        |number: &str| from_json::<Body>(check(body(number).as_bytes()).unwrap()).map(|read| read.counts);
    assert_eq!(counts("18446744073709551615.0"), Ok(vec![u64::MAX, 1]));
    assert_eq!(
        counts("-1.0").unwrap_err().message(),
        "Input should be greater than or equal to 0 [input: -1.0]"
    );
    for text in [
        "7.", ".5", "1e", "e1", "-", "1.0.0", "1 ", "0x1.0", "+-1.0", "0e", "0ejunk", "-0.0e", "0e1e1",
        "0e+-1",
    ] {
        let Value::Object(parameters) = json!({ "page": text }) else { unreachable!() };
        from_parameters::<Query>(parameters).expect_err(text);
    }
}

#[derive(Debug, Deserialize)]
struct Query {
    page: Option<i64>,
    reverse: Option<bool>,
    #[serde(default)]
    tag: Vec<String>,
    kind: Option<Kind>,
}

#[test]
fn parameters_read_as_what_the_type_wants() {
    let Value::Object(parameters) = json!({"page": ["1", "2"], "reverse": "True", "tag": "one", "kind": ["junk", "private"], "other": ""})
    else {
        unreachable!()
    };
    let query: Query = from_parameters(parameters).unwrap();
    assert_eq!((query.page, query.reverse, query.kind), (Some(2), Some(true), Some(Kind::Private)));
    assert_eq!(query.tag, ["one"]);
}

#[test]
fn parameters_of_the_wrong_form_are_named() {
    let table = [
        (
            json!({"page": ""}),
            "page",
            "Input should be a valid integer, unable to parse string as an integer [input: ]",
        ),
        (
            json!({"page": "99999999999999999999"}),
            "page",
            "Input should be a valid integer, unable to parse string as an integer [input: 99999999999999999999]",
        ),
        (
            json!({"page": "9223372036854775808"}),
            "page",
            "Input should be a valid integer [input: 9223372036854775808]",
        ),
        (
            json!({"reverse": ""}),
            "reverse",
            "Input should be a valid boolean, unable to interpret input [input: ]",
        ),
    ];
    for (input, field, message) in table {
        let Value::Object(parameters) = input.clone() else { unreachable!() };
        let misfit = from_parameters::<Query>(parameters).unwrap_err();
        assert_eq!((misfit.field().as_str(), misfit.message().as_str()), (field, message), "{input}");
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Closed {}

#[test]
fn a_long_key_is_told_by_its_beginning_wherever_it_is() {
    let (key, told) = ("é".repeat(100_000), format!("{}…", "é".repeat(MAX_ECHO)));
    let misfit = from_value::<Closed>(&json!({ &key: 1 })).unwrap_err();
    assert_eq!(misfit.field(), told);
    let misfit = from_value::<BTreeMap<String, Query>>(&json!({ &key: {"page": []} })).unwrap_err();
    assert_eq!(misfit.field(), format!("{told}.page"));
    let misfit = from_value::<BTreeMap<u64, u64>>(&json!({ &key: 1 })).unwrap_err();
    assert_eq!(misfit.field(), told);
    assert!(misfit.message().ends_with(&format!("[input: {told}]")), "{}", misfit.message());
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Strict {
    a: String,
    b: Option<u64>,
    #[serde(default)]
    c: Vec<Kind>,
    d: Option<Box<Lenient>>,
    e: Option<UserData>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Lenient {
    a: Option<i64>,
    b: Option<bool>,
    c: Option<BTreeMap<String, Strict>>,
    d: Option<f64>,
    e: Option<JsonText>,
}

fn strings() -> impl Strategy<Value = String> {
    let names = ["a", "b", "c", "d", "e", r"\u0061", "public"].map(|text| format!("\"{text}\""));
    let odd = [r"\u0000", r"\\u0000", r"\ud800", r"\ud83d\ude00", r#"\/\n\"\\"#, "é😀\u{7f}"];
    prop_oneof![
        8 => select(names.to_vec()),
        1 => select(odd.map(|text| format!("\"{text}\"")).to_vec()),
        1 => any::<String>().prop_map(|text| Value::from(text).to_string()),
    ]
}

/// JSON text that may have strings that are not valid text, and duplicate keys.
fn texts() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        strings(),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?",
        "[0-9]",
        select(vec!["null", "true", "false"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        let space = || prop_oneof![4 => Just(String::new()), 1 => "[ \t\r\n]{0,3}"];
        let field = (strings(), space(), inner.clone())
            .prop_map(|(name, space, value)| format!("{space}{name}{space}:{space}{value}"));
        prop_oneof![
            2 => (space(), proptest::collection::vec(field, 0..5))
                .prop_map(|(space, fields)| format!("{{{}{space}}}{space}", fields.join(","))),
            1 => (space(), proptest::collection::vec(inner, 0..4))
                .prop_map(|(space, items)| format!("{space}[{}{space}]", items.join(","))),
        ]
    })
}

/// JSON text, deeply nested text, and text with one byte changed.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let nested = |(depth, text): (usize, String)| format!("{}{text}{}", "[".repeat(depth), "]".repeat(depth));
    let altered = |(text, place, byte): (String, Index, u8)| {
        let mut bytes = text.into_bytes();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        bytes
    };
    prop_oneof![
        4 => texts().prop_map(String::into_bytes),
        1 => (1..=MAX_DEPTH + 1, texts()).prop_map(nested).prop_map(String::into_bytes),
        2 => (texts(), any::<Index>(), any::<u8>()).prop_map(altered),
    ]
}

fn depth(value: &JsonValue) -> usize {
    match value {
        JsonValue::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        JsonValue::Object(fields) => {
            1 + fields.iter().map(|(_, value)| depth(value)).max().unwrap_or_default()
        }
        JsonValue::Null | JsonValue::Bool(_) | JsonValue::Number(_) | JsonValue::String(_) => 0,
    }
}

/// Errors of inputs that only serde_json accepts.
const STRICTER: [&str; 3] =
    ["String should not contain the NUL", "Input should be a valid dict", "Input should be 'pu"];

fn with_plain_integers(value: &JsonValue) -> JsonValue {
    match value {
        JsonValue::Array(items) => JsonValue::Array(items.iter().map(with_plain_integers).collect()),
        JsonValue::Object(fields) => JsonValue::Object(
            fields.iter().map(|(name, value)| (name.clone(), with_plain_integers(value))).collect(),
        ),
        JsonValue::Number(number) => {
            // serde_json parses this as a floating-point number.
            let differs = number.parse::<i64>().is_err() || number == "-0";
            let plain = integral(number).filter(|_| differs);
            JsonValue::Number(plain.unwrap_or_else(|| number.clone()))
        }
        other => other.clone(),
    }
}

/// A text decodes like the one serialized from its values, with the same errors, and as serde_json decodes
/// it.
fn reads_alike<T: DeserializeOwned + PartialEq + Debug>(text: CheckedJson<'_>, tree: &JsonValue) {
    let read = from_json::<T>(text);
    let written = serde_json::to_string(tree).unwrap();
    assert_eq!(from_json::<T>(check(written.as_bytes()).unwrap()), read);
    match (read, serde_json::from_str::<T>(&written)) {
        (Ok(read), Ok(by_serde)) => assert_eq!(read, by_serde),
        // The text has an integer in another spelling.
        (Ok(_), Err(_)) => {
            let plain = serde_json::to_string(&with_plain_integers(tree)).unwrap();
            let read = from_json::<T>(check(plain.as_bytes()).unwrap());
            assert_eq!(read.unwrap(), serde_json::from_str::<T>(&plain).unwrap());
        }
        (Err(misfit), Ok(by_serde)) => {
            let told = misfit.message();
            assert!(STRICTER.iter().any(|begin| told.starts_with(begin)), "{told}: {by_serde:?}");
        }
        (Err(_), Err(_)) => {}
    }
}

proptest! {
    #[test]
    fn text_reads_like_its_values_and_like_serde_json_reads_it(text in texts()) {
        if let Ok(tree) = parse(text.as_bytes()) {
            let text = check(text.as_bytes()).unwrap();
            reads_alike::<Strict>(text, &tree);
            reads_alike::<Lenient>(text, &tree);
            reads_alike::<Vec<Lenient>>(text, &tree);
            reads_alike::<BTreeMap<String, Option<Kind>>>(text, &tree);
            reads_alike::<List<ShortText, 2>>(text, &tree);
            reads_alike::<JsonFields>(text, &tree);
            reads_alike::<JsonText>(text, &tree);
        }
    }

    #[test]
    fn text_passes_where_it_is_json_of_which_nothing_would_be_lost(bytes in bytes()) {
        let whole = |value: &Value| {
            let written = value.to_string();
            compact(std::str::from_utf8(&bytes).unwrap()).unwrap() == written
        };
        match (check(&bytes), serde_json::from_slice::<Value>(&bytes)) {
            (Ok(_), _) => {
                let tree = parse(&bytes).unwrap();
                prop_assert!(depth(&tree) <= MAX_DEPTH);
                let written = serde_json::to_string(&tree).unwrap();
                prop_assert_eq!(written, compact(std::str::from_utf8(&bytes).unwrap()).unwrap());
            }
            (Err(told), Ok(value)) if whole(&value) => prop_assert!(told.contains("nest at most"), "{}", told),
            (Err(_), _) => {}
        }
    }
}

#[test]
fn a_nul_is_found_wherever_it_is_and_what_looks_like_one_is_none() {
    let refused = |text: &str| from_json::<Lenient>(check(text.as_bytes()).unwrap()).unwrap_err();
    for (text, field, input) in [
        (r#"{"e": {"x": [1, {"y": "\u0000z"}]}}"#, "e.x[1].y", "\0z"),
        (r#"{"e": ["\\u0000", {"y\u0000": 1}]}"#, "e[1].y\0", "y\0"),
        (r#"{"other": [["\u0000"]]}"#, "other[0][0]", "\0"),
        (r#"{"c": {"\u0000": {}}}"#, "c.\0", "\0"),
    ] {
        let misfit = refused(text);
        let told = format!("String should not contain the NUL character [input: {input}]");
        assert_eq!((misfit.field(), misfit.message()), (field.to_owned(), told), "{text}");
    }
    let read = from_json::<Lenient>(check(br#"{"e": "\\u0000", "other": "\\u0000"}"#).unwrap()).unwrap();
    assert_eq!(read.e.unwrap().as_str(), r#""\\u0000""#);
}

#[test]
fn reading_goes_on_behind_a_list_that_was_not_read_to_its_end() {
    let text = check(br#"{"pair": [1, 2, {"x": ["]"]}], "next": [[3, 4], [5, 6, 7]]}"#).unwrap();
    let read: BTreeMap<String, (Value, Value)> = from_json(text).unwrap();
    assert_eq!(read["pair"], (json!(1), json!(2)));
    assert_eq!(read["next"], (json!([3, 4]), json!([5, 6, 7])));
}

#[test]
fn some_fields_are_read_as_if_there_were_no_others() {
    let text = check(br#"{"flag": true, "x": [{"flag": 1}], "size": 2.5, "y": "}"}"#).unwrap();
    let read: Inner = from_fields(text, |name| ["flag", "size"].contains(&name)).unwrap();
    assert!(read.flag && read.size == Some(2.5));
    let misfit = from_fields::<Closed>(text, |name| !["flag", "size"].contains(&name)).unwrap_err();
    assert_eq!(
        (misfit.field(), misfit.message()),
        ("x".to_owned(), r#"Extra inputs are not permitted [input: [{"flag":1}]]"#.to_owned())
    );
    assert_eq!(
        from_fields::<Inner>(check(b"[]").unwrap(), |_| true).unwrap_err().message(),
        "Input should be a valid dictionary"
    );
}
