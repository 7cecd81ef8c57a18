//! What filters answer, compared with what jq 1.6 answers; what is refused; and that nothing a tenant writes takes more
//! than it may.

use proptest::prelude::*;

use super::tree::{CONTROLS, NATIVES};
use super::*;
use crate::json::parse;

mod attacks;

fn value(json: &str) -> Value {
    Value::of(&parse(json.as_bytes()).unwrap())
}

fn budget() -> Budget {
    Budget::new(FUEL, MEMORY)
}

/// What a filter answers, as lines of jq; an error or a limit in the end in brackets.
fn answer(source: &str, input: &str) -> String {
    let filter = Filter::compile(source).unwrap_or_else(|refused| panic!("{source}: {refused}"));
    match filter.run(&value(input), &mut budget()) {
        Ok(values) => Vec::from_iter(values.iter().map(|value| value.json(&mut budget()).unwrap())).join(" "),
        Err(Failed::Error(text)) => format!("<{text}>"),
        Err(Failed::Limit(limit)) => format!("<limit {}>", limit.as_str()),
    }
}

#[test]
fn filters_answer_what_jq_answers() {
    let table = [
        (".", r#"{"b":1,"a":[1.50,1e3]}"#, r#"{"a":[1.5,1000],"b":1}"#),
        (".a.b.c", "{}", "null"),
        (".a?", "1", ""),
        (".[\"a\"]?", "[1]", ""),
        (".[-1], .[5], .[1.7], .[1:], .[:-1]", "[1,2,3]", "3 null 2 [2,3] [1,2]"),
        (".[1:], .[:1]", "\"\u{e9}bc\"", "\"bc\" \"\u{e9}\""),
        ("[..]", r#"{"a":[1,{"b":2}]}"#, r#"[{"a":[1,{"b":2}]},[1,{"b":2}],1,{"b":2},2]"#),
        ("{a:(1,2), b:(3,4)}", "0", r#"{"a":1,"b":3} {"a":1,"b":4} {"a":2,"b":3} {"a":2,"b":4}"#),
        ("{(\"a\",\"b\"):(1,2)}", "0", r#"{"a":1} {"a":2} {"b":1} {"b":2}"#),
        ("[(1,2)+(10,20)]", "0", "[11,12,21,22]"),
        ("[\"\\(1,2) \\(3,4)\"]", "0", r#"["1 3","2 3","1 4","2 4"]"#),
        ("[(true,false) and (true,false)], (null or 1)", "0", "[true,false,false] true"),
        ("[range(0,1;3,4)], [range(3)], [range(0;1.5)]", "0", "[0,1,2,0,1,2,3,1,2,1,2,3] [0,1,2] [0,1]"),
        ("[.[(0,1):(1,2)]]", "[1,2]", "[[1],[1,2],[],[2]]"),
        ("5%3,-5%3,5%-3,5.9%3", "0", "2 -2 2 2"),
        ("6/4, 4/2, 0.1+0.2, 7-10, 2*3", "0", "1.5 2 0.30000000000000004 -3 6"),
        ("\"a,b\"/\",\"", "0", r#"["a","b"]"#),
        (
            "[1,2,1]-[1], {a:1}+{a:2,b:3}, null+1, 1+null, [1]+[2], \"a\"+\"b\"",
            "0",
            r#"[2] {"a":2,"b":3} 1 1 [1,2] "ab""#,
        ),
        ("{a:{c:1}}*{a:{b:2}}", "0", r#"{"a":{"b":2,"c":1}}"#),
        ("9223372036854775807 + 1 > 9223372036854775806", "0", "true"),
        (
            "1 == 1.0, 1 < 1.5, [] < {}, \"a\" < [], null < false, {b:1,a:2} < {a:1,c:1}",
            "0",
            "true true true true true true",
        ),
        ("[1,2] | first, last, nth(1)", "0", "1 2 2"),
        (
            "[first(range(10)), last(1,2)], [limit(2; 1,2,3)], [limit(0; 1)], first(empty)",
            "0",
            "[0,2] [1,2] []",
        ),
        ("isempty(empty), isempty(1, error(\"x\"))", "0", "true false"),
        ("any(1, error; . == 1), all(1, 2; . == 1)", "0", "true false"),
        ("(map(. > 1) | any, all), any(. > 1), all(. > 0)", "[1,2]", "true false true true"),
        (
            "[foreach (1,2,3) as $x (0; . + $x)], [foreach (1,2) as $x (0; . + $x; [$x, .])]",
            "0",
            "[1,3,6] [[1,1],[2,3]]",
        ),
        ("reduce (1,2) as $x (0; . + $x, . * 2), reduce (1,2) as $x (0; empty)", "0", "0 null"),
        ("add, (map([.]) | add), add(.[] * 2)", "[1,2,3]", "6 [1,2,3] 12"),
        ("([] | add), ({\"a\":1,\"b\":2} | add), ([\"a\",\"b\",null] | add)", "0", "null 3 \"ab\""),
        ("[[1],null,[2],[3]] | add", "0", "[1,2,3]"),
        (
            "try error(\"x\") catch ., try error(null) catch ., (try error({a:1}) catch .a)",
            "0",
            "\"x\" null 1",
        ),
        ("[.[] | try (if . > 1 then error(\"big\") else . end) catch .]", "[1,2]", "[1,\"big\"]"),
        ("[(1, error(\"x\"))?], [.a?], (error(\"x\") // 3)", "0", "[1] [] 3"),
        (".a // .b // \"none\", (false, 1 // 2), [empty // 1]", "{\"b\":2}", "2 false 1 [1]"),
        ("if . then 1 elif . == null then 2 else 3 end, if false then 1 end", "null", "2 null"),
        ("if (true,false) then 1 else 2 end", "0", "1 2"),
        ("[1,[2]] as [$a,[$b]] | $a+$b", "0", "3"),
        (". as {a:$x} | . as {a:{$b}} | $x, $b", r#"{"a":{"b":2}}"#, r#"{"b":2} 2"#),
        (". as {(\"a\"):$z} | $z | {$z}", "{\"a\":1}", r#"{"z":1}"#),
        ("1 as $x | 2 as $x | [$x, (3 as $x | $x), $x]", "0", "[2,3,2]"),
        ("{\"a b\", c}", "{\"a b\":1}", r#"{"a b":1,"c":null}"#),
        ("length", "\"\u{e9}a\"", "2"),
        ("[.[] | length], (.[1] | utf8bytelength)", "[null,\"\u{e9}\",[1],{\"a\":1},-3]", "[0,1,1,1,3] 2"),
        ("keys, has(\"a\"), has(\"c\")", r#"{"b":1,"a":2}"#, r#"["a","b"] true false"#),
        ("keys, has(0), has(2), (1 | in([5,6]))", "[5,6]", "[0,1] true false true"),
        (
            "contains({a:[\"x\"]}), contains({b:1}), inside({a:[\"xy\",1],c:1})",
            r#"{"a":["xy"]}"#,
            "true false true",
        ),
        (
            "contains(\"bar\"), index(\"b\"), index(\"z\"), startswith(\"foo\"), endswith(\"x\")",
            "\"foobar\"",
            "true 3 null true false",
        ),
        ("index(2), index(9)", "[1,2,3]", "1 null"),
        (
            "map(type)",
            "[null,true,1,\"a\",[],{}]",
            r#"["null","boolean","number","string","array","object"]"#,
        ),
        ("min, max, sort, unique, reverse", "[3,1,2,1]", "1 3 [1,1,2,3] [1,2,3] [1,2,1,3]"),
        ("sort", r#"[{"a":1},[1],"a",2,true,false,null]"#, r#"[null,false,true,2,"a",[1],{"a":1}]"#),
        ("min_by(.a), max_by(.a)", r#"[{"a":1,"b":2},{"a":1,"b":1}]"#, r#"{"a":1,"b":2} {"a":1,"b":1}"#),
        (
            "group_by(.a), unique_by(.a), sort_by(.a)",
            r#"[{"a":1,"b":1},{"a":1,"b":2},{"a":0}]"#,
            r#"[[{"a":0}],[{"a":1,"b":1},{"a":1,"b":2}]] [{"a":0},{"a":1,"b":1}] [{"a":0},{"a":1,"b":1},{"a":1,"b":2}]"#,
        ),
        ("flatten, flatten(1), flatten(0)", "[1,[2,[3]]]", "[1,2,3] [1,2,[3]] [1,[2,[3]]]"),
        (
            "to_entries, (to_entries | from_entries), with_entries(select(.value > 1))",
            r#"{"a":1,"b":2}"#,
            r#"[{"key":"a","value":1},{"key":"b","value":2}] {"a":1,"b":2} {"b":2}"#,
        ),
        (
            "from_entries",
            r#"[{"name":"a","value":1},{"k":"b","v":null},{"key":1}]"#,
            r#"{"1":null,"a":1,"b":null}"#,
        ),
        ("map_values(. + 1), map_values(empty), map_values(., 9)", r#"{"a":1}"#, r#"{"a":2} {} {"a":1}"#),
        ("getpath([\"a\",\"b\"]), getpath([\"x\",\"y\"])", r#"{"a":{"b":1}}"#, "1 null"),
        (
            "ltrimstr(\"a\"), rtrimstr(\"c\"), ltrimstr(1), ascii_upcase, (\"Ab\" | ascii_downcase)",
            "\"abc\"",
            r#""bc" "ab" "abc" "ABC" "ab""#,
        ),
        (
            "split(\",\"), (\"abc\" | split(\"\")), (\"\" | split(\",\"))",
            "\"a,b\"",
            r#"["a","b"] ["a","b","c"] []"#,
        ),
        ("join(\"-\"), ([] | join(\",\"))", r#"["a",1,null,true]"#, r#""a-1--true" """#),
        ("map(tonumber)", r#"["1.5","-2","1e3",7]"#, "[1.5,-2,1000,7]"),
        ("map(tostring), tojson", r#"[1.5,"a\n",null]"#, r#"["1.5","a\n","null"] "[1.5,\"a\\n\",null]""#),
        (
            "map(floor), map(ceil), map(round), map(abs)",
            "[1.5,-1.5,2.5]",
            "[1,-2,2] [2,-1,3] [2,-2,3] [1.5,1.5,2.5]",
        ),
        (
            "[.[] | values], [.[] | nulls], [.[] | strings], [.[] | numbers], [.[] | scalars] | length",
            r#"[null,1,"a",[]]"#,
            "3 1 1 1 3",
        ),
        (
            "[.[] | arrays], [.[] | objects], [.[] | iterables], [.[] | booleans]",
            "[[],{},true]",
            "[[]] [{}] [[],{}] [true]",
        ),
        (
            "test(\"b+\"), test(\"^b\"), test(\"ABBC\"; \"i\"), test(\"a b\"; \"x\")",
            "\"abbc\"",
            "true false true true",
        ),
        ("test(\"^b\")", "\"a\\nb\"", "false"),
        ("test(\"B\"; \"gin\"), test(\"c+\"; \"n\")", "\"abb\"", "true false"),
        (
            "IN(1, 2), (.[0] | IN(1, error)), IN(.[]; 5, 3), IN([]; .[]), IN(empty), IN(.[]; empty)",
            "[1,3]",
            "false true true false false false",
        ),
        (
            "[paths], [paths(type == \"number\")]",
            r#"{"b":[1,{"c":null}],"a":2}"#,
            r#"[["a"],["b"],["b",0],["b",1],["b",1,"c"]] [["a"],["b",0]]"#,
        ),
        ("[paths], [paths(true, true)]", "[[]]", "[[0]] [[0],[0]]"),
        ("[paths]", "1", "[]"),
        ("keys_unsorted, ([4] | keys_unsorted)", r#"{"b":1,"a":2}"#, r#"["a","b"] [0]"#),
        (
            "map(fromdateiso8601)",
            r#"["2015-03-05T23:51:47Z","1970-01-01T00:00:00Z","1969-12-31T23:59:59Z"]"#,
            "[1425599507,0,-1]",
        ),
        ("not, (null | not)", "1", "false true"),
        ("-. , -(1,2)", "3", "-3 -1 -2"),
        ("[0.1,1e17,1e-7,100000000000000000000] | tojson", "0", "\"[0.1,1e+17,1e-7,1e+20]\""),
        ("1e1000", "0", "1.7976931348623157e+308"),
        ("1 # the rest is said to nobody\n + 1", "0", "2"),
        // Errors.
        (
            "fromdateiso8601",
            "\"2015-02-30T00:00:00Z\"",
            "<date \"2015-02-30T00:00:00Z\" does not match format \"%Y-%m-%dT%H:%M:%SZ\">",
        ),
        ("fromdateiso8601", "1", "<number (1) is no time: strptime/1 requires string inputs>"),
        (".a", "[1]", "<Cannot index array with string \"a\">"),
        (".[0]", "{}", "<Cannot index object with number>"),
        (".[]", "1", "<Cannot iterate over number (1)>"),
        ("1 + \"a\"", "0", "<number (1) and string (\"a\") cannot be added>"),
        ("\"a\" * 2", "0", "<string (\"a\") and number (2) cannot be multiplied>"),
        ("1 / 0", "0", "<number (1) and number (0) cannot be divided>"),
        ("1e308 * 10 == 1e309", "0", "true"),
        ("length", "true", "<boolean (true) has no length>"),
        ("contains(1)", "\"a\"", "<string (\"a\") and number (1) cannot have their containment checked>"),
        ("tonumber", "\"nan\"", "<string (\"nan\") cannot be parsed as a number>"),
        ("error(\"no\")", "0", "<no>"),
        ("[range(2000)] | .[]", "0", "<limit outputs>"),
        ("{(1): 2}", "0", "<Object keys must be strings, not number (1)>"),
        ("limit(-1; 1)", "0", "<limit takes a count, not number (-1)>"),
        ("1 | test(\"a\")", "0", "<number (1) cannot be matched, as it is not a string>"),
        ("index([1])", "[[1]]", "<array ([1]) cannot be looked for in an array: it is one itself>"),
    ];
    for (source, input, expected) in table {
        assert_eq!(answer(source, input), expected, "{source} of {input}");
    }
}

#[test]
fn a_rule_holds_when_all_its_results_are_true_and_there_is_one() {
    let table = [
        (".age > 21", r#"{"age":22}"#, Outcome::True),
        (".age > 21", r#"{"age":21}"#, Outcome::False),
        (".age > 21", "{}", Outcome::False),
        (".[] | . > 1", "[2,3]", Outcome::True),
        (".[] | . > 1", "[2,1]", Outcome::False),
        (".[] | . > 1", "[]", Outcome::False),
        (".", "1", Outcome::False),
        (".", "\"true\"", Outcome::False),
        ("error(\"why\")", "1", Outcome::Error("why".to_owned())),
        ("error({a:1})", "1", Outcome::Error(r#"{"a":1}"#.to_owned())),
        ("true, error(\"late\")", "1", Outcome::Error("late".to_owned())),
        ("[range(1e9)] | length > 1", "1", Outcome::Limit(Limit::Fuel)),
    ];
    for (source, data, expected) in table {
        let found = Filter::compile(source).unwrap().holds(&value(data), &mut Budget::of_rules());
        assert_eq!(found, expected, "{source} of {data}");
    }
}

#[test]
fn rules_share_their_steps_and_each_has_memory_of_its_own() {
    let endless = Filter::compile("[range(1e9)] | true").unwrap();
    let (large, small) = (Filter::compile("[range(1e5)] | true").unwrap(), Filter::compile("true").unwrap());
    let mut budget = Budget::of_rules();
    for _ in 0..3 {
        assert_eq!(large.holds(&Value::Null, &mut budget), Outcome::True);
    }
    assert_eq!(endless.holds(&Value::Null, &mut budget), Outcome::Limit(Limit::Fuel));
    assert_eq!(small.holds(&Value::Null, &mut budget), Outcome::True);
    assert_eq!(endless.holds(&Value::Null, &mut budget), Outcome::Limit(Limit::Fuel));
    assert_eq!(small.holds(&Value::Null, &mut budget), Outcome::Limit(Limit::Fuel));
}

#[test]
fn a_string_takes_more_memory_than_its_bytes() {
    const MANY: usize = 1_000;
    for source in [
        "[range(1000) | \"a\" + \"b\"]",
        "[range(1000) | type]",
        "[range(1000) | tojson]",
        "[range(1000) | try keys catch .]",
        "[range(1000) | try error(\"a\" + \"b\") catch .]",
    ] {
        let mut budget = budget();
        let results = Filter::compile(source).unwrap().run(&Value::Null, &mut budget);
        assert_eq!(results.unwrap().len(), 1, "{source}");
        let taken = |memory| {
            Filter::compile(source).unwrap().run(&Value::Null, &mut Budget::new(FUEL, memory)).is_ok()
        };
        assert!(!taken(MANY * (32 + 24)), "{source}");
    }
}

#[test]
fn what_is_not_allowed_is_named() {
    let table = [
        ("def f: f; f", "not allowed: def f"),
        ("def f: 1 + f; f", "not allowed: def f"),
        (".a | env.HOME", "not allowed: env/0 (at character 6)"),
        ("$ENV.HOME", "not allowed: $ENV"),
        ("$__loc__", "not allowed: $__loc__"),
        ("$x", "not allowed: $x"),
        ("(1 as $x | 2) | $x", "not allowed: $x"),
        ("input", "not allowed: input/0"),
        ("inputs", "not allowed: inputs/0"),
        ("[inputs]", "not allowed: inputs/0"),
        ("debug", "not allowed: debug/0"),
        ("stderr", "not allowed: stderr/0"),
        ("input_filename", "not allowed: input_filename/0"),
        ("input_line_number", "not allowed: input_line_number/0"),
        ("halt", "not allowed: halt/0"),
        ("halt_error(1)", "not allowed: halt_error/1"),
        ("now", "not allowed: now/0"),
        ("localtime", "not allowed: localtime/0"),
        ("mktime", "not allowed: mktime/0"),
        ("$__prog_args", "not allowed: $__prog_args"),
        ("get_search_list", "not allowed: get_search_list/0"),
        ("repeat(.)", "not allowed: repeat/1"),
        ("until(false; .)", "not allowed: until/2"),
        ("while(true; .)", "not allowed: while/2"),
        ("recurse(.)", "not allowed: recurse/1"),
        ("recurse", "not allowed: recurse/0"),
        ("label $out | 1, break $out", "not allowed: label $out"),
        ("import \"a\" as a; 1", "expected nothing"),
        ("include \"a\"; 1", "expected nothing"),
        ("a::b", "not allowed: a::b/0"),
        (".a = 1", "not allowed: ="),
        (".a |= 1", "not allowed: |="),
        (".a += 1", "not allowed: +="),
        (".a //= 1", "not allowed: //="),
        ("@base64", "not allowed: @base64/0"),
        ("@csv \"\\(.)\"", "not allowed: @csv"),
        ("gsub(\"a\"; \"aa\")", "not allowed: gsub/2"),
        ("[.[] | splits(\"a\")]", "not allowed: splits/1"),
        ("combinations", "not allowed: combinations/0"),
        ("fromjson", "not allowed: fromjson/0"),
        ("range(0; 1; 1)", "not allowed: range/3"),
        ("test(.a)", "not allowed: test with a pattern or flags that are no literal string (at character 1)"),
        ("test(\"a\"; .f)", "not allowed: test with a pattern or flags that are no literal string"),
        ("test(\"a\"; \"l\")", "not allowed: test with the flag 'l'"),
        (
            "test(\"a*\"; \"n\")",
            "not allowed: test with this pattern: with the flag 'n' it should not fit an empty text",
        ),
        (
            "test(\"\\\\pL\\\\pL\\\\pL\\\\pL\\\\pL\"; \"i\")",
            "not allowed: test with this pattern: there should be at most 4 classes",
        ),
        ("test(\"(?=a)\")", "not allowed: test with this pattern"),
        ("test(\"(a)\\\\1\")", "not allowed: test with this pattern"),
        ("test(\"(\")", "not allowed: test with this pattern"),
        ("reduce . as $x (0)", "not allowed: reduce with 1 arguments"),
        ("foreach . as $x (0; 1; 2; 3)", "not allowed: foreach with 4 arguments"),
        ("", "expected term"),
        (".age >", "expected term"),
        (".a b", "expected nothing"),
        (".a)", "unexpected ')' (at character 3)"),
        ("(.a", "expected ')'"),
        ("[.a}", "unexpected '}'"),
        ("\"a", "a string without its end"),
        ("\"\\x\"", "expected string escape sequence"),
        ("\"\\ud800\"", "expected 4-digit hexadecimal"),
        ("if . then 1", "expected else or end"),
        ("1e", "expected digit"),
        ("&", "expected token"),
        ("# \\\n1", "not allowed: a comment with a backslash"),
    ];
    for (source, expected) in table {
        match Filter::compile(source) {
            Ok(_) => panic!("{source} is accepted"),
            Err(refused) => {
                let refused = refused.to_string();
                assert!(refused.starts_with(expected), "{source}: {refused}");
            }
        }
    }
}

#[test]
fn every_function_has_a_name_of_its_own_and_stops_wherever_its_steps_end() {
    let inputs = [
        r#"[3,1,[2,"a"],{"a":[1]},null]"#,
        r#"{"a":[1,2],"b":"abc"}"#,
        r#"[{"key":"a","value":1},{"key":"b","value":2}]"#,
        r#"["a","b"]"#,
        "\"a,b\"",
        "12.5",
        "null",
    ];
    let arguments = ["(. as $x | $x, 1)", "(\"a\", 0)", "(.[]?)"];
    let names = NATIVES.iter().map(|(name, arity, _)| (*name, *arity));
    let names = Vec::from_iter(names.chain(CONTROLS.iter().map(|(name, arity, _)| (*name, *arity))));
    for (position, name) in names.iter().enumerate() {
        assert!(!names[..position].contains(name), "{name:?} is there twice");
    }
    for (name, arity) in names {
        for argument in arguments {
            let source = match arity {
                0 => format!("[try {name} catch .]"),
                arity => format!("[try {name}({}) catch .]", vec![argument; arity].join("; ")),
            };
            let filter = Filter::compile(&source).unwrap();
            for input in inputs {
                let input = value(input);
                let mut whole = Budget::new(100_000, 1 << 20);
                let result = filter.run(&input, &mut whole);
                let needed = 100_000 - whole.fuel();
                let ends = if matches!(result, Err(Failed::Limit(_))) { 200 } else { needed };
                for fuel in (0..ends.min(150)).chain([ends.saturating_sub(1)]) {
                    let stopped = filter.run(&input, &mut Budget::new(fuel, 1 << 20));
                    let stopped = matches!(stopped, Err(Failed::Limit(Limit::Fuel)));
                    assert!(
                        stopped || fuel >= needed,
                        "{source} of {} with {fuel} of {needed}",
                        input.shown()
                    );
                }
            }
        }
    }
}

/// Texts of filters: what is put together of parts that are, mostly, filters.
fn sources() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("."),
        Just(".."),
        Just(".a"),
        Just(".[]?"),
        Just(".[0]"),
        Just("1"),
        Just("-2.5"),
        Just("\"a,b\""),
        Just("null"),
        Just("true"),
        Just("[]"),
        Just("{}"),
        Just("length"),
        Just("keys"),
        Just("sort"),
        Just("unique"),
        Just("add"),
        Just("tojson"),
        Just("to_entries"),
        Just("from_entries"),
        Just("flatten"),
        Just("reverse"),
        Just("type"),
        Just("any"),
        Just("not"),
        Just("min"),
        Just("tonumber"),
        Just("tostring"),
        Just("error"),
        Just("split(\",\")"),
        Just("test(\"a+\")"),
        Just("range(5)"),
        Just("empty"),
        Just("ascii_upcase"),
    ]
    .prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 3, |inner| {
        let pair = (inner.clone(), inner.clone());
        let operators = prop_oneof![
            Just("|"),
            Just(","),
            Just("+"),
            Just("-"),
            Just("*"),
            Just("/"),
            Just("%"),
            Just("=="),
            Just("<"),
            Just("//"),
            Just("and"),
            Just("or"),
        ];
        prop_oneof![
            (pair.clone(), operators).prop_map(|((left, right), op)| format!("({left} {op} {right})")),
            inner.clone().prop_map(|of| format!("[{of}]")),
            inner.clone().prop_map(|of| format!("({of})?")),
            inner.clone().prop_map(|of| format!("-({of})")),
            inner.clone().prop_map(|of| format!("\"x\\({of})\"")),
            inner.clone().prop_map(|of| format!("map({of})")),
            inner.clone().prop_map(|of| format!("select({of})")),
            inner.clone().prop_map(|of| format!("group_by({of})")),
            inner.clone().prop_map(|of| format!("with_entries({of})")),
            inner.clone().prop_map(|of| format!("first({of})")),
            inner.clone().prop_map(|of| format!("contains({of})")),
            pair.clone().prop_map(|(of, then)| format!("(({of}) as $x | {then}, $x)")),
            pair.clone().prop_map(|(of, then)| format!("{{a: ({of}), b: ({then})}}")),
            pair.clone().prop_map(|(of, then)| format!("reduce ({of}) as $x (0; {then})")),
            pair.clone().prop_map(|(of, then)| format!("[foreach ({of}) as [$x] ({then}; [., $x])]")),
            pair.clone().prop_map(|(of, then)| format!("(.[{of}:{then}])")),
            (pair, inner).prop_map(|((condition, then), otherwise)| {
                format!("if {condition} then {then} else {otherwise} end")
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn filters_end_within_their_budget(source in sources(), input in 0..5_usize) {
        let inputs = ["null", r#"{"a":[1,"b,c",{"a":null}]}"#, "[[3,1],[2],\"a\"]", "\"a,b\"", "[1,2.5,null,true]"];
        if let Ok(filter) = Filter::compile(&source) {
            let mut budget = Budget::new(20_000, 1 << 20);
            let again = filter.run(&value(inputs[input]), &mut Budget::new(20_000, 1 << 20));
            let results = filter.run(&value(inputs[input]), &mut budget);
            prop_assert_eq!(format!("{results:?}"), format!("{again:?}"), "a verdict is reached again");
            for result in results.iter().flatten() {
                let text = result.json(&mut Budget::new(FUEL, MEMORY)).unwrap();
                let read = value(&text);
                prop_assert!(read.equals(result, &mut Budget::new(FUEL, MEMORY)).unwrap(), "{}", text);
            }
        }
    }

    #[test]
    fn any_text_is_compiled_or_refused(source in "[\\PC\n\"\\\\()\\[\\]{}#|,.$@a-z0-9 -]{0,60}") {
        drop(Filter::compile(&source));
    }

    #[test]
    fn pieces_of_filters_are_compiled_or_refused(
        pieces in proptest::collection::vec(prop_oneof![
            Just("("), Just(")"), Just("["), Just("]"), Just("{"), Just("}"), Just("\""), Just("\\("), Just("\\"),
            Just("#"), Just("\n"), Just("if "), Just("then "), Just("else "), Just("end "), Just("try "), Just("as "),
            Just("$x"), Just("|"), Just("."), Just(".."), Just("?"), Just("//"), Just("-"), Just(":"), Just(";"),
            Just("reduce "), Just("foreach "), Just("def "), Just("label "), Just("@json "), Just("map"), Just("a"),
            Just("1e"), Just("::"), Just("catch "), Just("elif "), Just("import "),
        ], 0..40),
    ) {
        drop(Filter::compile(&pieces.concat()));
    }

    #[test]
    fn comparing_orders_all_values(texts in proptest::collection::vec(
        "(null|true|false|-?[1-9][0-9]{0,18}(\\.[0-9]{1,3})?|9007199254740993|9007199254740992\\.0|\"[ab]{0,2}\"|\\[(1(,2)?)?\\]|\\{(\"[ab]\":1)?\\})", 3)
    ) {
        let values = Vec::from_iter(texts.iter().map(|text| value(text)));
        let order = |one: usize, other: usize| values[one].compare(&values[other], &mut budget()).unwrap();
        prop_assert_eq!(order(0, 1), order(1, 0).reverse());
        if order(0, 1).is_le() && order(1, 2).is_le() {
            prop_assert!(order(0, 2).is_le(), "{:?}", texts);
        }
    }
}
