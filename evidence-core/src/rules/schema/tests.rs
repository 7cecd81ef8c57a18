//! What schemas accept, what is refused of them, and that none makes checking take long.

use super::*;
use crate::json::parse;

fn json(text: &str) -> JsonValue {
    parse(text.as_bytes()).unwrap()
}

fn refused(schema: &str) -> String {
    match Schema::compile(&json(schema)) {
        Ok(_) => panic!("{schema} is accepted"),
        Err(misfit) => misfit.to_string(),
    }
}

fn misfits(schema: &str, data: &str) -> Vec<String> {
    let schema = Schema::compile(&json(schema)).unwrap_or_else(|misfit| panic!("{schema}: {misfit}"));
    let checked = schema.check(&Data::of(&json(data)));
    checked.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn what_does_not_fit_is_named_with_its_place() {
    let person = r#"{"type":"object","required":["age"],"properties":{"age":{"type":"integer","minimum":18},
        "mail":{"type":"string","pattern":"^[^@]+@[^@]+$"}},"additionalProperties":false}"#;
    let table: [(&str, &str, &[&str]); 16] = [
        (person, r#"{"age":21,"mail":"a@b"}"#, &[]),
        (person, r#"{"age":21.0}"#, &[]),
        (person, "{}", &["\"age\" is a required property"]),
        (person, r#"{"age":"x","mail":"b"}"#, &["at /age:", "at /mail:"]),
        (person, r#"{"age":1}"#, &["at /age: value is less than the minimum of 18"]),
        ("{}", "[1,2]", &[]),
        (r#"{"maximum":1e400}"#, "1e500", &[]),
        (r##"{"$defs":{"a":{"type":"string"}},"items":{"$ref":"#/$defs/a"}}"##, "[\"x\",1]", &["at /1:"]),
        (
            r##"{"$id":"https://example.com/s","definitions":{"a":{"type":"null"}},"$ref":"#/definitions/a"}"##,
            "1",
            &[""],
        ),
        // An address within a schema changes nothing of what is referred to.
        (
            r##"{"$defs":{"a":{"$id":"/a","type":"string"}},"items":{"$id":"https://example.com/a","$ref":"#/$defs/a"}}"##,
            "[\"x\",1]",
            &["at /1:"],
        ),
        (
            r##"{"$schema":"http://json-schema.org/draft-04/schema#","definitions":{"a":{"id":"#b","type":"null"}},
                "allOf":[{"id":"http://example.com/","properties":{"id":{"$ref":"#/definitions/a"}}}]}"##,
            r#"{"id":1}"#,
            &["at /id:"],
        ),
        (
            r#"{"properties":{"$id":{"type":"null"},"id":{"type":"null"}}}"#,
            r#"{"$id":1,"id":2}"#,
            &["at /$id:", "at /id:"],
        ),
        (r#"{"const":{"$id":"x","id":"y"}}"#, r#"{"$id":"x","id":"y"}"#, &[]),
        // Formats are remarks.
        (r#"{"format":"email"}"#, "\"x\"", &[]),
        (
            r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","prefixItems":[{"type":"null"}]}"#,
            "[1]",
            &["at /0:"],
        ),
        // Draft 7, where none is named, knows no such keyword.
        (r#"{"prefixItems":[{"type":"null"}]}"#, "[1]", &[]),
    ];
    for (schema, data, expected) in table {
        let found = misfits(schema, data);
        assert_eq!(found.len(), expected.len(), "{schema} of {data}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{schema} of {data}: {found}");
        }
    }
}

#[test]
fn what_a_schema_may_not_say_is_named_with_its_place() {
    let table = [
        (r#"{"type":"strin"}"#, "at /type: "),
        (r#"{"properties":{"a":{"minimum":"x"}}}"#, "at /properties/a/minimum: "),
        (r#"{"properties":{"a":{"pattern":"("}}}"#, "at /properties/a/pattern: "),
        (r#"{"pattern":"(?=a)b"}"#, "at /pattern: "),
        (r#"{"pattern":"a{1000}{1000}"}"#, ""),
        (
            r#"{"patternProperties":{"(?i)\\pL\\pL\\pL\\pL\\pL":{}}}"#,
            "at /patternProperties/(?i)\\pL\\pL\\pL\\pL\\pL: there should be at most 4 classes",
        ),
        (r#"{"$ref":"https://example.com/schema"}"#, "at /$ref: $ref should be"),
        (r#"{"$ref":"file:///etc/passwd"}"#, "at /$ref: $ref should be"),
        (r#"{"$ref":"other.json#/definitions/a"}"#, "at /$ref: $ref should be"),
        (r##"{"$ref":"#"}"##, "at /$ref: $ref should be"),
        (r##"{"$ref":"#/$defs/a"}"##, "at /$ref: $ref should be"),
        (r##"{"$ref":"#/properties/a","properties":{"a":{}}}"##, "at /$ref: $ref should be"),
        (
            r##"{"$defs":{"a":{"$ref":"#/$defs/a"}}}"##,
            "at /$defs/a/$ref: not allowed: $ref to what it is a part of",
        ),
        (
            r##"{"$defs":{"a":{"items":{"$ref":"#/$defs/b"}},"b":{"not":{"$ref":"#/$defs/a"}}},"$ref":"#/$defs/a"}"##,
            "at /$defs/b/not/$ref: not allowed: $ref to what it is a part of",
        ),
        (r##"{"$dynamicRef":"#a"}"##, "at /$dynamicRef: not allowed: $dynamicRef"),
        (r#"{"items":{"unevaluatedProperties":false}}"#, "at /items/unevaluatedProperties: not allowed"),
        (r#"{"items":{"$defs":{"a":{}}}}"#, "at /items/$defs: not allowed: $defs within a schema"),
        (r#"{"$schema":"https://example.com/own"}"#, "at /$schema: Input should be draft-04"),
        (r#"{"$schema":1}"#, "at /$schema: Input should be draft-04"),
    ];
    for (schema, expected) in table {
        let found = refused(schema);
        assert!(found.starts_with(expected), "{schema}: {found}");
    }
}

#[test]
fn schemas_that_grow_while_data_are_checked_are_refused() {
    let levels = |keyword: &str, many: usize| {
        let level = |at: usize| {
            format!(
                r##""l{at}":{{"{keyword}":[{{"$ref":"#/$defs/l{0}"}},{{"$ref":"#/$defs/l{0}"}}]}}"##,
                at + 1
            )
        };
        let levels = Vec::from_iter((0..many).map(level)).join(",");
        format!(r##"{{"$defs":{{{levels},"l{many}":{{"type":"null"}}}},"$ref":"#/$defs/l0"}}"##)
    };
    for keyword in ["allOf", "anyOf", "oneOf"] {
        assert!(Schema::compile(&json(&levels(keyword, 8))).is_ok());
        assert!(
            refused(&levels(keyword, 35))
                .contains("With what it refers to there should be at most 5000 parts")
        );
    }
    let chain = |many: usize| {
        let link = |at: usize| format!(r##""l{at}":{{"items":{{"$ref":"#/$defs/l{}"}}}}"##, at + 1);
        let links = Vec::from_iter((0..many).map(link)).join(",");
        format!(r##"{{"$defs":{{{links},"l{many}":{{}}}},"$ref":"#/$defs/l0"}}"##)
    };
    assert!(Schema::compile(&json(&chain(40))).is_ok());
    assert!(refused(&chain(200)).contains("schemas should nest at most 100 levels"));
    // Wherever the walk begins.
    let backwards = |many: usize| {
        let link = |at: usize| format!(r##""l{at}":{{"items":{{"$ref":"#/$defs/l{}"}}}}"##, at - 1);
        let links = Vec::from_iter((1..many).map(link)).join(",");
        format!(r##"{{"$defs":{{"l0":{{}},{links}}}}}"##)
    };
    assert!(refused(&backwards(200)).contains("schemas should nest at most 100 levels"));
    let many = |item: &str, count: usize| vec![item; count].join(",");
    let named = |item: &dyn Fn(usize) -> String, count: usize| Vec::from_iter((0..count).map(item)).join(",");
    let table = [
        (
            format!(r#"{{"allOf":[{}]}}"#, many("{}", 2_000)),
            "at /allOf/1999: There should be at most 2000 schemas",
        ),
        (
            format!(r#"{{"properties":{{{}}}}}"#, named(&|at| format!(r#""p{at}":{{}}"#), 10_000)),
            "There should be at most 2000 schemas",
        ),
        (format!(r#"{{"enum":[{}]}}"#, many("1", 1_001)), "at /enum: There should be at most 1000 values"),
        (
            format!(r#"{{"patternProperties":{{{}}}}}"#, named(&|at| format!(r#""p{at}":{{}}"#), 101)),
            "There should be at most 100 patterns",
        ),
        (
            format!(r#"{{"$defs":{{{}}}}}"#, named(&|at| format!(r#""d{at}":1"#), 1_001)),
            "at /$defs: There should be at most 1000 definitions",
        ),
        (
            format!(r#"{{"enum":["{}","b"]}}"#, "a".repeat(64 * 5_000)),
            "With what it refers to there should be at most 5000 parts",
        ),
        (
            format!(r#"{{"required":["{}"]}}"#, "a".repeat(64 * 5_000)),
            "With what it refers to there should be at most 5000 parts",
        ),
        (
            format!(r#"{{"pattern":"{}"}}"#, "a".repeat(513)),
            "at /pattern: A pattern should have at most 512 bytes",
        ),
    ];
    for (schema, expected) in table {
        let found = refused(&schema);
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn data_that_a_schema_would_take_long_for_are_refused() {
    let constants = Vec::from_iter((0..1_000).map(|at| at.to_string())).join(",");
    let list = format!("[{}]", vec!["-1"; 30_000].join(","));
    let found = misfits(&format!(r#"{{"items":{{"enum":[{constants}]}}}}"#), &list);
    assert_eq!(found, ["The data are too large to be checked by a schema of this size"]);
    let some = format!("[{}]", vec!["-1"; 1_000].join(","));
    let found = misfits(&format!(r#"{{"items":{{"enum":[{constants}]}}}}"#), &some);
    assert_eq!(found, ["The data do not fit the type's schema"]);
    let few = format!("[{}]", vec!["-1"; 100].join(","));
    assert_eq!(misfits(&format!(r#"{{"items":{{"enum":[{constants}]}}}}"#), &few).len(), MAX_MISFITS);
    // A length is counted, and a constant compared, letter by letter.
    let lengths = vec![r#"{"maxLength":1}"#; 2_000].join(",");
    let text = format!("\"{}\"", "a".repeat(1_000_000));
    let found = misfits(&format!(r#"{{"anyOf":[{}]}}"#, &lengths[..lengths.len() - 16]), &text);
    assert_eq!(found, ["The data are too large to be checked by a schema of this size"]);
    let constant = format!(r#"{{"items":{{"const":"{}"}}}}"#, "a".repeat(64_000));
    let list = format!("[{}]", vec![format!("\"{}b\"", "a".repeat(63_999)); 24].join(","));
    let found = misfits(&constant, &list);
    assert_eq!(found, ["The data are too large to be checked by a schema of this size"]);
    let text = format!("\"{}!\"", "a".repeat(400_000));
    assert_eq!(misfits(r#"{"pattern":"(a+)+$"}"#, &text).len(), 1);
    assert_eq!(misfits(r#"{"uniqueItems":true}"#, &list).len(), 1);
    assert_eq!(misfits(r#"{"multipleOf":1e-300}"#, "1e300").len(), 0);
}

#[test]
fn the_deepest_schema_and_the_deepest_data_fit_the_stack_of_a_thread() {
    let nested = |begin: &str, end: &str| format!("{}{{}}{}", begin.repeat(62), end.repeat(62));
    let data = format!("{}1{}", "[".repeat(63), "]".repeat(63));
    for (begin, end) in [(r#"{"items":"#, "}"), (r#"{"not":"#, "}"), (r#"{"if":"#, "}")] {
        misfits(&nested(begin, end), &data);
    }
}

fn bytes(schema: &str) -> usize {
    Schema::compile(&json(schema)).unwrap_or_else(|why| panic!("{schema}: {why}")).bytes()
}

#[test]
fn constants_and_names_are_charged_and_what_says_nothing_about_data_is_not_kept() {
    let zeros = format!("[{}]", vec!["0"; 100_000].join(","));
    let plain = bytes("{}");
    for keyword in ["x", "examples", "default", "title", "$comment", "contentSchema", "id", "$id", "nullable"]
    {
        assert!(bytes(&format!(r#"{{"{keyword}":{zeros}}}"#)) < plain + 100, "{keyword}");
        let within = |value: &str| bytes(&format!(r#"{{"properties":{{"a":{{"{keyword}":{value}}}}}}}"#));
        assert_eq!(within(&zeros), within("0"), "{keyword}");
    }
    let numbers = |many: usize| Vec::from_iter((0..many).map(|at| at.to_string())).join(",");
    for (small, large, least) in [
        (r#"{"enum":[0]}"#.to_owned(), format!(r#"{{"enum":[{}]}}"#, numbers(900)), 899 * VALUE_BYTES),
        (r#"{"const":[0]}"#.to_owned(), format!(r#"{{"const":[{}]}}"#, numbers(900)), 899 * VALUE_BYTES),
        (r#"{"const":""}"#.to_owned(), format!(r#"{{"const":"{}"}}"#, "a".repeat(9_000)), 9_000 * COPIES),
        (
            r#"{"required":[]}"#.to_owned(),
            format!(r#"{{"required":["{}"]}}"#, "a".repeat(9_000)),
            9_000 * COPIES,
        ),
        (
            r#"{"properties":{"a":{"not":{}}}}"#.to_owned(),
            format!(r#"{{"properties":{{"{}":{{"not":{{}}}}}}}}"#, "a".repeat(9_000)),
            8_999 * (COPIES + 1),
        ),
    ] {
        assert!(bytes(&large) >= bytes(&small) + least, "{small}");
    }
}

#[test]
fn each_keyword_repeats_the_names_that_it_stands_below() {
    let below = |name: usize| {
        let schemas = vec![r#"{"type":"null"}"#; 100].join(",");
        format!(r#"{{"properties":{{"{}":{{"anyOf":[{schemas}]}}}}}}"#, "a".repeat(name))
    };
    assert!(bytes(&below(10_000)) > 1_000_000);
    assert!(refused(&below(200_000)).contains("are too long"));
}

#[test]
fn properties_that_are_called_like_remarks_are_kept() {
    for keyword in ["properties", "patternProperties", "dependencies"] {
        let schema = format!(r#"{{"{keyword}":{{"title":{{"not":{{}},"title":"t"}}}}}}"#);
        assert_eq!(misfits(&schema, r#"{"title":1}"#).len(), 1, "{keyword}");
    }
    for keyword in ["$defs", "definitions"] {
        let schema = format!(
            r##"{{"{keyword}":{{"title":{{"type":"null","x":1}}}},"items":{{"$ref":"#/{keyword}/title"}}}}"##
        );
        assert_eq!(misfits(&schema, "[1]").len(), 1, "{keyword}");
    }
    let schema = r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","dependentSchemas":{"x":{"not":{}}},
        "dependentRequired":{"default":["x"]},"if":{"required":["y"]},"then":{"maxProperties":1},"contains":{},"minContains":2}"#;
    assert_eq!(misfits(schema, r#"{"x":1}"#).len(), 1);
    assert_eq!(misfits(schema, r#"{"default":1}"#).len(), 1);
    assert_eq!(misfits(schema, r#"{"y":1,"z":1}"#).len(), 1);
    assert_eq!(misfits(schema, "[1]").len(), 1);
}
