//! Tests accepted data, rejected schemas, and the limits of validation.

use super::*;
use evidence_values::json::parse;

fn json(text: &str) -> JsonValue {
    parse(text.as_bytes()).unwrap()
}

fn refused(schema: &str) -> String {
    match Schema::compile(&json(schema)) {
        Ok(_) => panic!("{schema} is accepted"),
        Err(misfit) => misfit.to_string(),
    }
}

const TOO_LARGE: &str = "The data are too large to be checked by this schema: it would take too many steps";

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
        // A URI within a schema does not change the target of a reference.
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
        // Formats are annotations.
        (r#"{"format":"email"}"#, "\"x\"", &[]),
        (
            r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","prefixItems":[{"type":"null"}]}"#,
            "[1]",
            &["at /0:"],
        ),
        // Draft 7 is the default, and it does not have this keyword.
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
        (r#"{"$ref":"https://example.com/schema"}"#, "at /$ref: Input should refer to this document: other"),
        (r#"{"$ref":"file:///etc/passwd"}"#, "at /$ref: Input should refer to this document: other"),
        (r#"{"$ref":"other.json#/definitions/a"}"#, "at /$ref: Input should refer to this document: other"),
        (
            r##"{"$ref":"http://json-schema.org/draft-07/schema#"}"##,
            "at /$ref: Input should refer to this document",
        ),
        (r##"{"$ref":"#/$defs/a"}"##, "at /$ref: Input should refer to a schema of this document"),
        (r##"{"$ref":"#a"}"##, "at /$ref: Input should refer to a schema of this document"),
        (
            r##"{"items":{"$ref":"#/required"},"required":["a"]}"##,
            "at /items/$ref: Input should refer to a schema",
        ),
        (r##"{"$ref":"#"}"##, "not allowed: $ref to itself that does not descend into the data"),
        (r##"{"$defs":{"a":{"$ref":"#/$defs/a"}}}"##, "at /$defs/a: not allowed: $ref to itself"),
        (r##"{"allOf":[{"$ref":"#"},{"$ref":"#"}]}"##, "not allowed: $ref to itself"),
        (r##"{"if":{"not":{"anyOf":[{},{"$ref":"#"}]}}}"##, "not allowed: $ref to itself"),
        (
            r##"{"$defs":{"a":{"oneOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}},"items":{"$ref":"#/$defs/a"}}"##,
            "at /$defs/a: not allowed: $ref to itself",
        ),
        (
            r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","items":{"$dynamicRef":"#a"},
                "$defs":{"x":{"$dynamicAnchor":"a"},"y":{"$dynamicAnchor":"a"}}}"##,
            "at /items/$dynamicRef: not allowed: $dynamicRef to an anchor that 2 schemas declare",
        ),
        (
            r##"{"$schema":"https://json-schema.org/draft/2020-12/schema",
                "$defs":{"x":{"$schema":"http://json-schema.org/draft-07/schema#","items":[{}]}}}"##,
            "at /$defs/x/items: not allowed: items in a schema of an older dialect",
        ),
        (
            r##"{"$defs":{"x":{"$schema":"https://json-schema.org/draft/2020-12/schema"}}}"##,
            "at /$defs/x/$schema: Input should be the dialect of the whole",
        ),
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
        assert!(refused(&levels(keyword, 35)).contains("at most 5000 schemas should apply to one value"));
    }
    let chain = |keyword: &str, many: usize| {
        let link = |at: usize| format!(r##""l{at}":{{"{keyword}":{{"$ref":"#/$defs/l{}"}}}}"##, at + 1);
        let links = Vec::from_iter((0..many).map(link)).join(",");
        format!(r##"{{"$defs":{{{links},"l{many}":{{}}}},"$ref":"#/$defs/l0"}}"##)
    };
    assert!(Schema::compile(&json(&chain("items", 500))).is_ok());
    assert!(Schema::compile(&json(&chain("not", 40))).is_ok());
    assert!(refused(&chain("not", 200)).contains("Schemas that apply to one value should nest at most 100"));
    let many = |item: &str, count: usize| vec![item; count].join(",");
    let named = |item: &dyn Fn(usize) -> String, count: usize| Vec::from_iter((0..count).map(item)).join(",");
    let table = [
        (
            format!(r#"{{"allOf":[{}]}}"#, many("{}", 10_000)),
            "at /allOf/9999: There should be at most 10000 schemas",
        ),
        (
            format!(r#"{{"properties":{{{}}}}}"#, named(&|at| format!(r#""p{at}":{{}}"#), 20_000)),
            "There should be at most 10000 schemas",
        ),
        (format!(r#"{{"enum":[{}]}}"#, many("1", 5_001)), "at /enum: There should be at most 5000 values"),
        (
            format!(r#"{{"patternProperties":{{{}}}}}"#, named(&|at| format!(r#""p{at}":{{}}"#), 201)),
            "There should be at most 200 patterns",
        ),
        (
            format!(r#"{{"$defs":{{{}}}}}"#, named(&|at| format!(r#""d{at}":1"#), 2_001)),
            "at /$defs: There should be at most 2000 definitions",
        ),
        (
            format!(r#"{{"enum":["{}","b"]}}"#, "a".repeat(64 * 20_000)),
            "One schema should have at most 20000 keywords and constants",
        ),
        (
            format!(r#"{{"required":["{}"]}}"#, "a".repeat(64 * 20_000)),
            "One schema should have at most 20000 keywords and constants",
        ),
        (
            format!(r#"{{"pattern":"{}"}}"#, "a".repeat(1_025)),
            "at /pattern: A pattern should have at most 1024 bytes",
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
    assert_eq!(found, [TOO_LARGE]);
    let some = format!("[{}]", vec!["-1"; 1_000].join(","));
    let found = misfits(&format!(r#"{{"items":{{"enum":[{constants}]}}}}"#), &some);
    assert!(found.len() == 1 && found[0].starts_with("at /0: "), "{found:?}");
    let found = misfits(&format!(r#"{{"anyOf":[{{"items":{{"enum":[{constants}]}}}}]}}"#), &some);
    assert_eq!(found, ["The data do not fit the type's schema; they are too large to say where"]);
    let few = format!("[{}]", vec!["-1"; 100].join(","));
    assert_eq!(misfits(&format!(r#"{{"items":{{"enum":[{constants}]}}}}"#), &few).len(), MAX_MISFITS);
    // Lengths are counted, and constants compared, character by character.
    let lengths = vec![r#"{"maxLength":1}"#; 2_000].join(",");
    let text = format!("\"{}\"", "a".repeat(1_000_000));
    let found = misfits(&format!(r#"{{"anyOf":[{}]}}"#, &lengths[..lengths.len() - 16]), &text);
    assert_eq!(found, [TOO_LARGE]);
    let constant = format!(r#"{{"items":{{"const":"{}"}}}}"#, "a".repeat(64_000));
    let list = format!("[{}]", vec![format!("\"{}b\"", "a".repeat(63_999)); 24].join(","));
    let found = misfits(&constant, &list);
    assert_eq!(found.len(), MAX_MISFITS);
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

const DRAFT_2019: &str = r#""$schema":"https://json-schema.org/draft/2019-09/schema""#;
const DRAFT_2020: &str = r#""$schema":"https://json-schema.org/draft/2020-12/schema""#;

/// The shapes of public schemas:
///
/// - CycloneDX: draft 7, components within components, references to other files.
/// - CSAF: 2020-12, branches within branches, CVSS of draft 7.
/// - OpenAPI: `$dynamicRef`, `unevaluatedProperties`.
#[test]
fn schemas_refer_to_any_part_of_their_document_and_recurse() {
    let cyclonedx = r##"{"$schema":"http://json-schema.org/draft-07/schema#","$id":"http://cyclonedx.org/schema/bom-1.5.schema.json",
        "type":"object","required":["bomFormat"],"properties":{"bomFormat":{"enum":["CycloneDX"]},
            "components":{"type":"array","items":{"$ref":"#/definitions/component"},"uniqueItems":true},
            "signature":{"$ref":"jsf-0.82.schema.json#/definitions/signature"}},
        "definitions":{
            "component":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},
                "licenses":{"oneOf":[{"items":{"$ref":"spdx.schema.json"}},{"type":"null"}]},
                "components":{"type":"array","items":{"$ref":"#/definitions/component"}}}},
            "spdx":{"$schema":"http://json-schema.org/draft-07/schema#","$id":"http://cyclonedx.org/schema/spdx.schema.json","enum":["MIT","0BSD"]},
            "jsf":{"$id":"http://cyclonedx.org/schema/jsf-0.82.schema.json","definitions":{
                "signature":{"oneOf":[{"required":["signers"],"properties":{"signers":{"items":{"$ref":"#/definitions/signer"}}}},{"$ref":"#/definitions/signer"}]},
                "signer":{"type":"object","required":["value"],"additionalProperties":false,"properties":{"value":{"type":"string"}}}}}}}"##;
    let csaf = format!(
        r##"{{{DRAFT_2020},"$id":"https://docs.oasis-open.org/csaf/csaf/v2.0/csaf_json_schema.json","type":"object",
        "$defs":{{"branches_t":{{"type":"array","minItems":1,"items":{{"type":"object","required":["name"],
            "properties":{{"name":{{"type":"string"}},"branches":{{"$ref":"#/$defs/branches_t"}}}}}}}},
            "cvss":{{"$schema":"http://json-schema.org/draft-07/schema#","$id":"https://www.first.org/cvss/cvss-v3.1.json",
                "definitions":{{"score":{{"type":"number","maximum":10}}}},"properties":{{"baseScore":{{"$ref":"#/definitions/score"}}}}}}}},
        "properties":{{"product_tree":{{"properties":{{"branches":{{"$ref":"#/$defs/branches_t"}}}}}},
            "cvss_v3":{{"oneOf":[{{"$ref":"https://www.first.org/cvss/cvss-v3.1.json"}}]}}}}}}"##
    );
    let openapi = format!(
        r##"{{{DRAFT_2020},"$id":"https://spec.openapis.org/oas/3.1/schema/2022-10-07","type":"object",
        "properties":{{"openapi":{{"pattern":"^3\\.1\\.\\d+(-.+)?$"}},"components":{{"$ref":"#/$defs/components"}}}},
        "$ref":"#/$defs/specification-extensions","unevaluatedProperties":false,
        "$defs":{{"components":{{"type":"object","properties":{{"schemas":{{"additionalProperties":{{"$dynamicRef":"#meta"}}}},
                "parameters":{{"additionalProperties":{{"$ref":"#/$defs/parameter"}}}}}},
                "patternProperties":{{"^(schemas|parameters)$":{{"propertyNames":{{"pattern":"^[a-zA-Z0-9._-]+$"}}}}}},
                "$ref":"#/$defs/specification-extensions","unevaluatedProperties":false}},
            "parameter":{{"type":"object","properties":{{"name":{{"type":"string"}},"in":{{"enum":["query","path"]}}}},
                "allOf":[{{"if":{{"properties":{{"in":{{"const":"path"}}}}}},"then":{{"properties":{{"style":{{"const":"simple"}}}}}}}}],
                "dependentSchemas":{{"schema":{{"properties":{{"schema":{{"$dynamicRef":"#meta"}}}}}}}},
                "$ref":"#/$defs/specification-extensions","unevaluatedProperties":false}},
            "specification-extensions":{{"patternProperties":{{"^x-":true}}}},
            "schema":{{"$dynamicAnchor":"meta","type":["object","boolean"],
                "properties":{{"properties":{{"additionalProperties":{{"$dynamicRef":"#meta"}}}},"type":{{"type":"string"}}}}}}}}}}"##
    );
    let recursive = format!(
        r##"{{{DRAFT_2019},"$id":"https://example.com/tree","$recursiveAnchor":true,"type":"object",
            "properties":{{"children":{{"items":{{"$recursiveRef":"#"}}}}}},"required":["v"]}}"##
    );
    let anchors = format!(
        r##"{{{DRAFT_2020},"items":{{"$ref":"#leaf"}},"$defs":{{"a b":{{"$anchor":"leaf","type":"null"}}}}}}"##
    );
    let (csaf, openapi) = (csaf.as_str(), openapi.as_str());
    let (recursive, anchors) = (recursive.as_str(), anchors.as_str());
    let table = [
        (
            cyclonedx,
            r#"{"bomFormat":"CycloneDX","components":[{"name":"a","licenses":["MIT"],"components":[{"name":"b"}]}],"signature":{"value":"x"}}"#,
            0,
        ),
        (
            cyclonedx,
            r#"{"bomFormat":"CycloneDX","components":[{"name":"a","components":[{"name":"b","components":[{"name":1}]}]}]}"#,
            1,
        ),
        (cyclonedx, r#"{"bomFormat":"CycloneDX","components":[{"name":"a","licenses":["GPL"]}]}"#, 1),
        (cyclonedx, r#"{"bomFormat":"CycloneDX","signature":{"signers":[{"value":1}]}}"#, 1),
        (
            csaf,
            r#"{"product_tree":{"branches":[{"name":"a","branches":[{"name":"b"}]}]},"cvss_v3":{"baseScore":9.8}}"#,
            0,
        ),
        (csaf, r#"{"product_tree":{"branches":[{"name":"a","branches":[{"nam":"b"}]}]}}"#, 1),
        (csaf, r#"{"cvss_v3":{"baseScore":11}}"#, 1),
        (
            openapi,
            r#"{"openapi":"3.1.0","x-a":1,"components":{"schemas":{"A":{"properties":{"b":{"type":"string"}}}},"parameters":{"p":{"name":"p","in":"path","style":"simple","schema":true,"x-b":2}}}}"#,
            0,
        ),
        (openapi, r#"{"openapi":"3.1.0","more":1}"#, 1),
        (
            openapi,
            r#"{"components":{"parameters":{"p":{"name":"p","in":"query","style":"simple","more":1}}}}"#,
            1,
        ),
        (
            openapi,
            r#"{"components":{"schemas":{"A":{"properties":{"b":{"properties":{"c":{"type":1}}}}}}}}"#,
            1,
        ),
        (openapi, r#"{"components":{"schemas":{"A b":{}}}}"#, 1),
        (recursive, r#"{"v":1,"children":[{"v":2,"children":[{"v":3}]}]}"#, 0),
        (recursive, r#"{"v":1,"children":[{"v":2,"children":[{}]}]}"#, 1),
        (anchors, "[null,1]", 1),
        (r##"{"properties":{"a":{"type":"null"},"b":{"$ref":"#/properties/a"}}}"##, r#"{"a":null,"b":1}"#, 1),
        (
            r##"{"x-types":{"t~/ %":{"type":"null","title":"kept"}},"items":{"$ref":"#/x-types/t~0~1%20%25"}}"##,
            "[1]",
            1,
        ),
        (r##"{"items":{"$defs":{"a":{"type":"null"}},"$ref":"#/items/$defs/a"}}"##, "[1]", 1),
        (r##"{"definitions":{"t":{"$id":"#t","type":"null"}},"items":{"$ref":"#t"}}"##, "[1]", 1),
        (r##"{"items":{"$ref":"#"},"maxItems":1}"##, "[[[[1,2]]]]", 1),
    ];
    for (schema, data, expected) in table {
        assert_eq!(
            misfits(schema, data).is_empty(),
            expected == 0,
            "{schema} of {data}: {:?}",
            misfits(schema, data)
        );
    }
    let case = r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"suite":{"$ref":"#/definitions/suite"}},
        "definitions":{"suite":{"type":"object","properties":{"name":{"type":"string"},"suites":{"type":"array","items":{"$ref":"#/definitions/suite"}}}}}}"##;
    assert_eq!(
        misfits(case, r#"{"suite":{"suites":[{"suites":[{"name":1}]}]}}"#),
        ["at /suite/suites/0/suites/0/name: value is not of type \"string\""]
    );
}

/// Draft 7 ignores the keywords beside a reference, and 2020-12 does not.
#[test]
fn the_dialect_decides_about_what_is_beside_a_reference() {
    let both = r##""$defs":{"a":{"type":"integer"}},"items":{"$ref":"#/$defs/a","minimum":5}"##;
    assert_eq!(misfits(&format!("{{{both}}}"), "[1]").len(), 0);
    assert_eq!(misfits(&format!("{{{DRAFT_2020},{both}}}"), "[1]").len(), 1);
    let two = format!(
        r##"{{{DRAFT_2020},"$defs":{{"a":{{"type":"integer"}},"b":{{"$dynamicAnchor":"b","minimum":5}}}},
            "items":{{"$ref":"#/$defs/a","$dynamicRef":"#b"}}}}"##
    );
    assert_eq!(misfits(&two, "[1]").len(), 1);
    assert_eq!(misfits(&two, "[5.5]").len(), 1);
    assert_eq!(misfits(&two, "[6]").len(), 0);
}

#[test]
fn work_is_bounded_and_not_the_form() {
    let nested =
        |levels: usize, end: &str| format!("{}{end}{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    // Each level is checked twice, so the depth of the data determines how often the cost doubles.
    let doubling = r##"{"allOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}]}"##;
    assert_eq!(misfits(doubling, &nested(10, "1")).len(), 0);
    assert_eq!(misfits(doubling, &nested(60, "1")), [TOO_LARGE]);
    for keyword in ["anyOf", "oneOf"] {
        let either = format!(
            r##"{{"type":"object","{keyword}":[{{"properties":{{"a":{{"$ref":"#"}}}}}},{{"properties":{{"a":{{"$ref":"#"}}}}}}]}}"##
        );
        assert_eq!(misfits(&either, &nested(60, "1")), [TOO_LARGE]);
    }
    let unevaluated = format!(
        r##"{{{DRAFT_2020},"allOf":[{{"properties":{{"a":{{"$ref":"#"}}}}}}],"unevaluatedProperties":false}}"##
    );
    assert_eq!(misfits(&unevaluated, &nested(5, "1")).len(), 0);
    assert_eq!(misfits(&unevaluated, &nested(60, "1")), [TOO_LARGE]);
    // If each level is checked once, depth costs nothing more.
    let once = r##"{"properties":{"a":{"$ref":"#"}},"type":["object","integer"]}"##;
    assert_eq!(misfits(once, &nested(62, "1")).len(), 0);
    assert_eq!(misfits(once, &nested(62, "null")).len(), 1);
    // Schemas of which many revisit one another's properties are not compiled.
    let again = |levels: usize| {
        let begin = r#"{"unevaluatedProperties":false,"allOf":["#;
        format!(r#"{{{DRAFT_2020},"allOf":[{}true{}]}}"#, begin.repeat(levels), "]}".repeat(levels))
    };
    assert!(Schema::compile(&json(&again(5))).is_ok());
    assert!(refused(&again(25)).contains("look at too many schemas again"));
    // Definitions that are used repeatedly are compiled once.
    let level = |at: usize| {
        format!(
            r##""l{at}":{{"properties":{{"a":{{"$ref":"#/$defs/l{0}"}},"b":{{"$ref":"#/$defs/l{0}"}}}}}}"##,
            at + 1
        )
    };
    let levels = Vec::from_iter((0..60).map(level)).join(",");
    let shared = format!(r##"{{"$defs":{{{levels},"l60":{{"type":"null"}}}},"$ref":"#/$defs/l0"}}"##);
    assert_eq!(misfits(&shared, &nested(60, "1")).len(), 1);
    // Real documents are large. A list of a thousand names and a pattern cost a few steps for each value.
    let names = Vec::from_iter((0..1_000).map(|at| format!("\"name-{at}\""))).join(",");
    let sbom = format!(
        r##"{{"definitions":{{"c":{{"properties":{{"id":{{"enum":[{names}]}},"hash":{{"pattern":"^([a-f0-9]{{32}}|[a-f0-9]{{64}}|[a-f0-9]{{128}})$"}},
            "components":{{"$ref":"#/definitions/cs"}}}}}},"cs":{{"items":{{"$ref":"#/definitions/c"}}}}}},"$ref":"#/definitions/cs"}}"##
    );
    let component =
        |id: &str| format!(r#"{{"id":"{id}","hash":"{0}","components":[{{"hash":"{0}"}}]}}"#, "a".repeat(64));
    let many = vec![component("name-7"); 10_000].join(",");
    assert_eq!(misfits(&sbom, &format!("[{many}]")).len(), 0);
    let found = misfits(&sbom, &format!("[{many},{}]", component("name-x")));
    assert!(found.len() == 1 && found[0].starts_with("at /10000/id: "), "{found:?}");
    // Comparing all items with one another costs the size of all items.
    let lists = format!("[{}]", vec!["[1,2,3]"; 200_000].join(","));
    assert_eq!(misfits(r##"{"items":{"$ref":"#"},"uniqueItems":true}"##, &lists).len(), 1);
}
