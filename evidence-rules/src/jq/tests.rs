//! Compares the results of filters with those of jq 1.6, and tests rejected filters and the limits on
//! tenants' programs.

use proptest::prelude::*;

use super::tree::{CONTROLS, NATIVES};
use super::*;
use evidence_values::json::parse;

mod attacks;

fn value(json: &str) -> Value {
    Value::of(&parse(json.as_bytes()).unwrap())
}

/// The time of the record in tests: 2026-07-08T19:21:50.25Z.
fn now() -> Timestamp {
    Timestamp::from_micros(1_783_538_510_250_000)
}

fn budget() -> Budget {
    Budget::new(FUEL, MEMORY)
}

/// Returns the results of a filter as JSON values; a final error or limit is in angle brackets.
fn answer(source: &str, input: &str) -> String {
    let filter = Filter::compile(source).unwrap_or_else(|refused| panic!("{source}: {refused}"));
    match filter.run(&value(input), now(), &mut budget()) {
        Ok(values) => Vec::from_iter(values.iter().map(|value| value.json(&mut budget()).unwrap())).join(" "),
        Err(Failure::Error(text)) => format!("<{text}>"),
        Err(Failure::Limit(limit)) => format!("<limit {}>", limit.as_str()),
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
        ("\"a\" * 2, \"a\" * 0, 2 * \"ab\"", "0", "\"aa\" null \"abab\""),
        ("\"a\" * []", "0", "<string (\"a\") and array ([]) cannot be multiplied>"),
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
fn definitions_see_themselves_their_arguments_and_what_is_before_them() {
    let table = [
        ("def f: . + 1; f | f", "1", "3"),
        ("def f(g): g | g; f(. * 2)", "3", "12"),
        ("def f($a; $b): [$a, $b, a, b]; f(1, 2; 3)", "0", "[1,3,1,2,3] [2,3,1,2,3]"),
        ("def f(a; $b): [a, $b]; [f(1, 2; 3, 4)]", "0", "[[1,2,3],[1,2,4]]"),
        ("def fac: if . <= 1 then 1 else . * (. - 1 | fac) end; [range(6) | fac]", "0", "[1,1,2,6,24,120]"),
        (
            "def even: if . == 0 then true else (. - 1 | if . == 0 then false else (. - 1 | even) end) end; even",
            "10",
            "true",
        ),
        ("1 as $x | def f: $x; 2 as $x | [f, $x]", "0", "[1,2]"),
        ("def f: 1; def g: f; def f: 2; [f, g]", "0", "[2,1]"),
        ("def f(g): def h: g; 5 | h; 3 | f(. + 1)", "0", "6"),
        ("2 as $n | def f(g): 7 as $n | g; f($n)", "0", "2"),
        ("def f(g): reduce range(3) as $i (0; . + ($i | g)); f(. * 10)", "0", "30"),
        ("def length: 7; \"ab\" | length", "0", "7"),
        ("def f(x): x * 2; def g(x): f(x + 1); g(3)", "0", "8"),
        ("def r(n): if n > 0 then n, r(n - 1) else empty end; [r(4)]", "0", "[4,3,2,1]"),
        ("[.[] | def f: . * 2; f]", "[1,2]", "[2,4]"),
        ("def f($a): def g($b): $a + $b; g(10); [f(1), f(2)]", "0", "[11,12]"),
        ("def f: reduce .[] as [$a, {$b}] (0; . + $a + $b); f", r#"[[1,{"b":2}],[3,{"b":4}]]"#, "10"),
        (
            "def depth: if type == \"array\" then 1 + (map(depth) | max // 0) else 0 end; depth",
            "[[1,[2]],3]",
            "3",
        ),
        ("[label $out | (1, 2, 3) | if . > 2 then break $out else . end]", "0", "[1,2]"),
        ("[(label $a | label $b | 1, break $a, 2), 3]", "0", "[1,3]"),
        ("def f(g): label $x | g | ., break $x; [f(1, 2)]", "0", "[1]"),
        ("[limit(3; def f: ., (. + 1 | f); 1 | f)]", "0", "[1,2,3]"),
        ("[limit(2; repeat(1)?)], [limit(2; repeat(1) // 2)]", "0", "[0,1] [0,1]"),
    ];
    for (source, input, expected) in table {
        assert_eq!(answer(source, input), expected, "{source} of {input}");
    }
}

#[test]
fn patterns_find_capture_and_replace() {
    let table = [
        (
            "match(\"b(?<n>.)?(x)?\")",
            "\"\u{e9}bcb\"",
            "{\"captures\":[{\"length\":1,\"name\":\"n\",\"offset\":2,\"string\":\"c\"},{\"length\":0,\"name\":null,\"offset\":-1,\"string\":null}],\"length\":2,\"offset\":1,\"string\":\"bc\"}",
        ),
        ("[match(\"a\"; \"g\").offset], [match(\"\"; \"g\").offset]", "\"abca\"", "[0,3] [0,1,2,3,4]"),
        ("[match(\"A\"; \"gi\").string], [match([\"A\", \"gi\"]).offset]", "\"abca\"", "[\"a\",\"a\"] [0,3]"),
        ("[match(\"a*\"; \"g\") | [.offset, .length]]", "\"aab\"", "[[0,2],[2,0],[3,0]]"),
        (
            "capture(\"(?<name>[a-z]+)-(?<n>[0-9]+)(?<rest>x)?\")",
            "\"abc-12\"",
            r#"{"n":"12","name":"abc","rest":null}"#,
        ),
        ("[capture(\"(?<a>[a-z])\"; \"g\") | .a]", "\"xy\"", r#"["x","y"]"#),
        (
            "[scan(\"[a-z]\\\\d\")], [scan(\"([a-z])(\\\\d)\")]",
            "\"a1b2\"",
            r#"["a1","b2"] [["a","1"],["b","2"]]"#,
        ),
        ("[scan(\"A\"; \"i\")], [scan(\"z\")]", "\"aba\"", r#"["a","a"] []"#),
        (
            "split(\", *\"; null), [splits(\",\")], split(\"B\"; \"i\")",
            "\"a, b,c\"",
            r#"["a","b","c"] ["a"," b","c"] ["a, ",",c"]"#,
        ),
        ("sub(\"b\"; \"X\"), gsub(\"b\"; \"X\"), gsub(\"\"; \"-\")", "\"abb\"", r#""aXb" "aXX" "-a-b-b-""#),
        ("sub(\"(?<x>b)\"; \"<\\(.x)\\(.x)>\"), sub(\"B\"; \"\"; \"gi\")", "\"abbc\"", r#""a<bb>bc" "ac""#),
        ("gsub(\"(?<l>[A-Z])\"; \"_\" + (.l | ascii_downcase))", "\"camelCaseName\"", r#""camel_case_name""#),
        ("[gsub(\"b\"; \"1\", \"2\")]", "\"abcb\"", r#"["a1c1","a2c1","a1c2","a2c2"]"#),
        ("[sub(\"z\"; error)], [sub(\"a\"; empty)]", "\"a\"", r#"["a"] []"#),
        ("[.[] | test(\"^a\", \"b$\")]", r#"["ab","c"]"#, "[true,true,false,false]"),
        (
            ". as $d | .names | map(test($d.pattern; $d.flags))",
            r#"{"pattern":"^A+$","flags":"i","names":["aa","b"]}"#,
            "[true,false]",
        ),
        ("def clean(re): gsub(re; \"\"); clean(\"[0-9]+\")", "\"a1b22\"", "\"ab\""),
        (
            "ascii_downcase | gsub(\"[^a-z0-9]+\"; \"-\") | ltrimstr(\"-\") | rtrimstr(\"-\")",
            "\" Hello, World! \"",
            "\"hello-world\"",
        ),
        ("test(\"a.b\"; \"p\"), test(\"a.b\")", "\"a\\nb\"", "true false"),
        ("gsub(\"a\"; 1)", "\"a\"", "<number (1) cannot be added to a string>"),
        ("1 | sub(\"a\"; \"b\")", "0", "<number (1) cannot be matched, as it is not a string>"),
        (
            ".p as $p | \"x\" | test($p)",
            r#"{"p":"("}"#,
            "<string (\"(\") is not a pattern that is allowed: error: unclosed group>",
        ),
        ("test(.p; \"q\")?, \"after\"", r#"{"p":"("}"#, "\"after\""),
    ];
    for (source, input, expected) in table {
        assert_eq!(answer(source, input), expected, "{source} of {input}");
    }
}

#[test]
fn formats_times_and_the_rest_of_the_functions_answer_what_jq_answers() {
    let table = [
        (
            "@csv, @tsv, @sh, @json, @text",
            r#"[1,"a,\"b",null,true,1.5]"#,
            r#""1,\"a,\"\"b\",,true,1.5" "1\ta,\"b\t\ttrue\t1.5" "1 'a,\"b' null true 1.5" "[1,\"a,\\\"b\",null,true,1.5]" "[1,\"a,\\\"b\",null,true,1.5]""#,
        ),
        (
            "@html, @uri, @base64",
            "\"<&>'\u{e9} \\\"\"",
            "\"&lt;&amp;&gt;&#39;\u{e9} &quot;\" \"%3C%26%3E%27%C3%A9%20%22\" \"PCY+J8OpICI=\"",
        ),
        ("@base64d, (\"YQ\" | @base64d)", "\"w6nigqw=\"", "\"\u{e9}\u{20ac}\" \"a\""),
        (
            "@uri \"?q=\\(.)&x\", @json \"v: \\(.)\", @sh \"echo \\(.)\"",
            "\"a b\"",
            r#""?q=a%20b&x" "v: \"a b\"" "echo 'a b'""#,
        ),
        ("@csv", "1", "<number (1) cannot be csv-formatted, only an array can be>"),
        ("[[1]] | @csv", "0", "<array ([1]) is not valid in a csv row>"),
        ("@base64d", "\"!\"", "<string (\"!\") is not valid base64 data>"),
        (
            "now, (now | floor | todate), (now | type)",
            "0",
            r#"1783538510.25 "2026-07-08T19:21:50Z" "number""#,
        ),
        (
            "gmtime, mktime?, (gmtime | mktime), todate",
            "1425599621.678",
            r#"[2015,2,5,23,53,41.67799997329712,4,63] 1425599621 "2015-03-05T23:53:41Z""#,
        ),
        (
            "fromdate, strptime(\"%Y-%m-%dT%H:%M:%SZ\"), (strptime(\"%Y-%m-%dT%H:%M:%SZ\") | mktime), dateadd(\"seconds\"; 1)?",
            "\"2015-03-05T23:51:47Z\"",
            "1425599507 [2015,2,5,23,51,47,4,63] 1425599507",
        ),
        (
            "strptime(\"%Y-%m-%d\") | mktime, strftime(\"%A, %B %d, %Y, %j\")",
            "\"2015-03-05\"",
            r#"1425513600 "Thursday, March 05, 2015, 064""#,
        ),
        ("strptime(\"%Y-%m-%dT%H:%M:%S%z\") | mktime", "\"2015-03-06T01:51:47+0200\"", "1425599507"),
        (
            "strftime(\"%H:%M %Z\"), todate, dateadd(\"seconds\"; 10), datesub(\"seconds\"; 1)",
            "0",
            r#""00:00 UTC" "1970-01-01T00:00:00Z" 10 -1"#,
        ),
        ("strptime(\"%Y\")", "\"x\"", "<date \"x\" does not match format \"%Y\">"),
        ("mktime", "[1]", "<mktime requires an array of 6 numbers>"),
        ("1e18 | todate", "0", "<number (1e+18) is a time beyond the year 9999>"),
        (
            "[recurse], [recurse(.[]?)], [recurse(.[]?; type == \"array\")]",
            "[[1]]",
            "[[[1]],[1],1] [[[1]],[1],1] [[[1]],[1]]",
        ),
        ("[recurse(if . < 3 then . + 1 else empty end)], [limit(3; repeat(. * 2))]", "1", "[1,2,3] [1,2,4]"),
        (
            "[while(. < 20; . * 3)], until(. > 100; . * 3), [recurse(. * 3; . < 20)]",
            "2",
            "[2,6,18] 162 [2,6,18]",
        ),
        (
            "walk(if type == \"number\" then . + 1 else . end), walk(if type == \"array\" then sort else . end)",
            r#"{"a":[3,1,{"b":2}]}"#,
            r#"{"a":[4,2,{"b":3}]} {"a":[1,3,{"b":2}]}"#,
        ),
        ("[range(0; 10; 3)], [range(5; 0; -2)], [range(0; 1; 0)]", "0", "[0,3,6,9] [5,3,1] []"),
        (
            "[path(..)], [path(.a[0], .b.c)], [path(.a[]?, .c // .d)]",
            r#"{"a":[1]}"#,
            r#"[[],["a"],["a",0]] [["a",0],["b","c"]] [["a",0],["d"]]"#,
        ),
        ("[path(.a[1:].x?)]", r#"{"a":[1,2]}"#, "[]"),
        (
            "[path(first(.[] | select(. > 1)))], [path(getpath([\"x\", 1]))?], [paths]",
            "[1,2,3]",
            "[[1]] [] [[0],[1],[2]]",
        ),
        ("path(1)", "0", "<Invalid path expression with result 1>"),
        (
            "del(.a), del(.b[0, 2]), del(.b[]), del(.b[1:]), del(.x.y)",
            r#"{"a":1,"b":[1,2,3]}"#,
            r#"{"b":[1,2,3]} {"a":1,"b":[2]} {"a":1,"b":[]} {"a":1,"b":[1]} {"a":1,"b":[1,2,3]}"#,
        ),
        (
            ".a = 5, .a |= . + 1, .a += 2, .x.y = 1, .b[1] *= 10, .x //= 7, .a //= 7",
            r#"{"a":1,"b":[1,2]}"#,
            r#"{"a":5,"b":[1,2]} {"a":2,"b":[1,2]} {"a":3,"b":[1,2]} {"a":1,"b":[1,2],"x":{"y":1}} {"a":1,"b":[1,20]} {"a":1,"b":[1,2],"x":7} {"a":1,"b":[1,2]}"#,
        ),
        (
            ".[] |= . * 2, (.[] | select(. > 2)) |= empty, .[1:] = [9], .[5] = 1, .[-1] = 0",
            "[1,2,3,4]",
            "[2,4,6,8] [1,2] [1,9] [1,2,3,4,null,1] [1,2,3,0]",
        ),
        (
            "(.. | numbers) |= . + 1, (.a, .b) = (7, 8)",
            r#"{"a":1,"b":[2]}"#,
            r#"{"a":2,"b":[3]} {"a":7,"b":7} {"a":8,"b":8}"#,
        ),
        (".a[\"x\"] = 1", "{\"a\":[]}", "<Cannot index array with string \"x\">"),
        (".[-5] = 1", "[1]", "<Out of bounds negative array index>"),
        (
            "setpath([\"a\", 0]; 1), delpaths([[\"b\"], [\"c\", 0]]), (to_entries | length)",
            r#"{"b":1,"c":[1,2]}"#,
            r#"{"a":[1],"b":1,"c":[1,2]} {"c":[2]} 2"#,
        ),
        ("pick(.a.b), [leaf_paths]", r#"{"a":{"b":1,"c":2}}"#, r#"{"a":{"b":1}} [["a","b"],["a","c"]]"#),
        ("indices(\"b\"), rindex(\"b\"), index(\"b\")", "\"abcb\"", "[1,3] 3 1"),
        ("indices(1), indices([1, 2]), rindex(2)", "[1,2,1,2]", "[0,2] [0,2] 3"),
        (
            "[combinations], ([1, 2] | [combinations(2)])",
            "[[1,2],[3]]",
            "[[1,3],[2,3]] [[1,1],[1,2],[2,1],[2,2]]",
        ),
        ("transpose", "[[1],[2,3]]", "[[1,2],[null,3]]"),
        ("explode, (explode | implode), (65 | ascii)", "\"a\u{e9}\"", "[97,233] \"a\u{e9}\" \"A\""),
        (
            "fromjson, (fromjson | tojson)",
            "\"{\\\"a\\\":[1,null]}\"",
            "{\"a\":[1,null]} \"{\\\"a\\\":[1,null]}\"",
        ),
        ("trim, ltrim, rtrim, trimstr(\" \")", "\" a \"", r#""a" "a " " a" "a""#),
        ("sqrt, trunc, fabs, log2, exp10?, pow(2; 3), (-1.5 | trunc)", "4", "2 4 4 2 10000 8 -1"),
        (
            "[nth(1; .[])], [skip(2; .[])], toarray, [isvalid(error), isvalid(1)]",
            "[1,2,3]",
            "[2] [3] [1,2,3] [false,true]",
        ),
        (
            "INDEX(.id), INDEX(.[]; .n)",
            r#"[{"id":1,"n":"a"}]"#,
            r#"{"1":{"id":1,"n":"a"}} {"a":{"id":1,"n":"a"}}"#,
        ),
        (
            "try error catch ., (try error({a: 1}) catch .a), [.[]? | try error catch 9]",
            "[1,2]",
            "[1,2] 1 [9,9]",
        ),
    ];
    for (source, input, expected) in table {
        assert_eq!(answer(source, input), expected, "{source} of {input}");
    }
    let unfinished = answer("fromjson", "\"[1\"");
    assert!(unfinished.starts_with("<\"[1\" (") && unfinished.contains("ends too early"), "{unfinished}");
}

#[test]
fn what_is_shown_is_as_long_as_it_may_be() {
    assert_eq!(value("[1,\"a\"]").to_json(7).as_deref(), Some("[1,\"a\"]"));
    assert_eq!(value("[1,\"a\"]").to_json(6), None);
    assert_eq!(value(&format!("\"{}\"", "a".repeat(5_000))).to_json(4_096), None);
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
        let found = Filter::compile(source).unwrap().holds(&value(data), now(), &mut Budget::of_rules());
        assert_eq!(found, expected, "{source} of {data}");
    }
}

#[test]
fn rules_share_their_steps_and_each_has_memory_of_its_own() {
    let endless = Filter::compile("[range(1e9)] | true").unwrap();
    let (large, small) = (Filter::compile("[range(1e5)] | true").unwrap(), Filter::compile("true").unwrap());
    let mut budget = Budget::of_rules();
    for _ in 0..3 {
        assert_eq!(large.holds(&Value::Null, now(), &mut budget), Outcome::True);
    }
    assert_eq!(endless.holds(&Value::Null, now(), &mut budget), Outcome::Limit(Limit::Fuel));
    assert_eq!(small.holds(&Value::Null, now(), &mut budget), Outcome::True);
    assert_eq!(endless.holds(&Value::Null, now(), &mut budget), Outcome::Limit(Limit::Fuel));
    assert_eq!(small.holds(&Value::Null, now(), &mut budget), Outcome::Limit(Limit::Fuel));
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
        let results = Filter::compile(source).unwrap().run(&Value::Null, now(), &mut budget);
        assert_eq!(results.unwrap().len(), 1, "{source}");
        let taken = |memory| {
            Filter::compile(source).unwrap().run(&Value::Null, now(), &mut Budget::new(FUEL, memory)).is_ok()
        };
        assert!(!taken(MANY * (32 + 24)), "{source}");
    }
}

#[test]
fn what_is_not_allowed_is_named() {
    let table = [
        (".a | env.HOME", "not allowed: env/0: a rule knows nothing of the server (at character 6)"),
        ("$ENV.HOME", "not allowed: $ENV: a rule knows nothing of the server (at character 1)"),
        ("def f: g; f", "not allowed: g/0"),
        ("def f(g): g; f", "not allowed: f/0"),
        ("def f: def g: 1; g; g", "not allowed: g/0"),
        ("def f($a): $b; f(1)", "not allowed: $b"),
        ("(label $out | 1), break $out", "not allowed: "),
        ("@base32", "not allowed: @base32/0: use @base64"),
        ("@sql \"\\(.)\"", "not allowed: @sql"),
        ("strflocaltime(\"%Y\")", "not allowed: strflocaltime/1: a rule knows no time zone but UTC"),
        ("tostream", "not allowed: tostream/0: the data are in memory"),
        ("infinite", "not allowed: infinite/0: each number is finite"),
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
        ("localtime", "not allowed: localtime/0"),
        ("$__prog_args", "not allowed: $__prog_args"),
        ("get_search_list", "not allowed: get_search_list/0"),
        ("import \"a\" as a; 1", "expected nothing"),
        ("include \"a\"; 1", "expected nothing"),
        ("a::b", "not allowed: a::b/0"),
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
    let library = library::LIBRARY.iter().map(|(name, arity, _)| (*name, *arity));
    let names = Vec::from_iter(names.into_iter().chain(library));
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
                let result = filter.run(&input, now(), &mut whole);
                let needed = 100_000 - whole.fuel();
                let ends = if matches!(result, Err(Failure::Limit(_))) { 200 } else { needed };
                for fuel in (0..ends.min(150)).chain([ends.saturating_sub(1)]) {
                    let stopped = filter.run(&input, now(), &mut Budget::new(fuel, 1 << 20));
                    let stopped = matches!(stopped, Err(Failure::Limit(Limit::Fuel)));
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

/// Texts assembled from pieces that are mostly valid filters.
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
        Just("[match(\"[a-z]\"; \"g\").offset]"),
        Just("gsub(\"a\"; \"bb\")"),
        Just("@csv"),
        Just("@base64d"),
        Just("gmtime"),
        Just("mktime"),
        Just("now"),
        Just("fromjson"),
        Just("[paths]"),
        Just("transpose"),
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
            inner.clone().prop_map(|of| format!("[limit(5; recurse({of}))]")),
            inner.clone().prop_map(|of| format!("walk({of})")),
            inner.clone().prop_map(|of| format!("del({of})")),
            inner.clone().prop_map(|of| format!("[path({of})]")),
            inner.clone().prop_map(|of| format!("(label $l | {of} | ., break $l)")),
            pair.clone().prop_map(|(of, then)| format!("({of} |= {then})")),
            pair.clone().prop_map(|(of, then)| format!("({of} += {then})")),
            pair.clone().prop_map(|(of, then)| format!("(def f(g): {of} | g; f({then}))")),
            pair.clone().prop_map(|(of, then)| format!("(def f: if . == null then {of} else {then} end; f)")),
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
            let again = filter.run(&value(inputs[input]), now(), &mut Budget::new(20_000, 1 << 20));
            let results = filter.run(&value(inputs[input]), now(), &mut budget);
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
