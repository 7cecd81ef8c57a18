//! Shapes that several bodies share: commits, repos, links, annotations and user data.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::texts::{self, PROVIDERS};
use crate::name::{CommitSha, Fingerprint};
use evidence_values::strategies::{Invalid, Object, Shape};

/// A description of at most 64 Ki characters.
pub fn description() -> Shape {
    Shape::text_between(0, 64 << 10)
}

/// A URL as reported, of any form: at most 2,048 bytes.
pub fn address() -> Shape {
    let valid = prop_oneof![9 => texts::printable(), 9 => texts::addresses(), 1 => Just("a".repeat(2048))];
    Shape::with_invalid(valid.prop_map(Value::from), vec![json!("é".repeat(1025)), json!(7), json!([])])
}

/// An absolute `http` or `https` URL.
pub fn web_url() -> Shape {
    let wrong = [
        "",
        "example.com",
        "ftp://example.com",
        "https://",
        "https://user@:80/",
        "https://e e/",
        "https://e:port/",
    ];
    let longer = format!("https://e/{}", "a".repeat(2048));
    let wrong = wrong.map(Value::from).into_iter().chain([json!(longer), json!(7), json!([])]);
    Shape::with_invalid(texts::addresses().prop_map(Value::from), wrong.collect())
}

/// An instant that callers send: epoch seconds with or without a fraction.
pub fn sent_seconds() -> Shape {
    let valid = prop_oneof![
        (0..4_102_444_800_i64).prop_map(Value::from),
        (0..4_102_444_800_000_i64).prop_map(|millis| json!(millis as f64 / 1e3)),
        select(vec![json!(1e12), json!(-1e12)]),
    ];
    Shape::with_invalid(valid, vec![json!(1.1e12), json!(-1.1e12), json!("1"), json!(true), json!([])])
}

/// A git commit.
pub fn commit() -> Shape {
    commit_of(prop_oneof![4 => texts::fitting::<CommitSha>(), 1 => texts::printable()].boxed())
}

/// A git commit with such a hash.
pub(super) fn commit_of(sha1: BoxedStrategy<String>) -> Shape {
    Object::new()
        .required("sha1", Shape::with_invalid(sha1.prop_map(Value::from), vec![json!(7), json!([])]))
        .optional("message", Shape::text())
        .optional("author", Shape::text())
        .optional("author_username", Shape::text())
        .optional("branch", Shape::text().or_valid(select(&["main", "release"]).prop_map(Value::from)))
        .optional("timestamp", sent_seconds())
        .optional("url", address())
        .optional("parents", Shape::list(&Shape::text(), 0..3))
        .optional("verified", Shape::boolean())
        .optional("signature_state", Shape::text())
        .shape()
}

/// The repository that a report comes from.
pub fn repo() -> Shape {
    let names = prop_oneof![8 => "[a-c]{1,2}/[a-c]{1,2}(/[a-c])?", 1 => texts::printable()]
        .prop_filter("not a reserved word", |name| !RESERVED.contains(&name.as_str()));
    let reserved = RESERVED.map(Value::from).to_vec();
    let urls = prop_oneof![
        "https://(git|hub)\\.example\\.com(:8443)?/[a-c]/[a-c]",
        "git@[a-c]\\.example\\.com:[a-c]/[a-c]",
        texts::printable(),
    ];
    Object::new()
        .required(
            "name",
            Shape::with_invalid(names.prop_map(Value::from), [vec![json!(7)], reserved].concat()),
        )
        .required("url", Shape::with_invalid(urls.prop_map(Value::from), vec![json!(7), json!([])]))
        .optional("id", Shape::with_invalid("[0-9]{0,2}".prop_map(Value::from), vec![json!(7)]))
        .optional("description", Shape::text())
        .optional("provider", Shape::choice(PROVIDERS))
        .optional("namespace_path", Shape::list(&Shape::text(), 0..3))
        .optional("additional_info", any_object())
        .shape()
}

/// Names of repositories that the API's own paths would shadow.
const RESERVED: [&str; 2] = ["tags", "filter-options"];

/// Labelled links.
pub fn external_urls() -> Shape {
    let link = Object::new()
        .required("href", Shape::text().or_valid(texts::addresses().prop_map(Value::from)))
        .optional("fingerprint", Shape::of::<Fingerprint>())
        .closed();
    let bad_label = select(vec!["a=b", "a.b"])
        .prop_map(|label| Invalid { field: label.to_owned(), value: json!({label: {"href": "h"}}) });
    Shape::map(&"[a-zA-Z][a-zA-Z0-9 _-]{0,8}".boxed(), &link.shape(), 0..3).or_invalid(bad_label)
}

/// Short annotations of an attestation.
pub fn annotations() -> Shape {
    let bad_key = select(vec!["a b", "a.b", "é"])
        .prop_map(|key| Invalid { field: key.to_owned(), value: json!({key: "x"}) });
    Shape::map(&"[A-Za-z0-9_-]{1,8}".boxed(), &Shape::text(), 0..3).or_invalid(bad_key)
}

/// Arbitrary data of a reporter: an object or a list.
pub fn user_data() -> Shape {
    Shape::with_invalid(
        prop_oneof![objects(), vec(json_values(), 0..3).prop_map(Value::from)],
        vec![json!("x"), json!(1), json!(true)],
    )
}

/// Any JSON object.
pub fn any_object() -> Shape {
    Shape::with_invalid(objects(), vec![json!("x"), json!(1), json!([])])
}

fn objects() -> BoxedStrategy<Value> {
    btree_map(texts::printable(), json_values(), 0..3).prop_map(|fields| json!(fields)).boxed()
}

/// JSON values of a few levels, without NUL characters.
pub fn json_values() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(|number: f64| json!(number)),
        texts::printable().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(texts::printable(), inner, 0..3).prop_map(|fields| json!(fields)),
        ]
    })
    .boxed()
}
