//! Programs that crash jq or jaq, or make them use a whole core or all memory.

use super::*;

/// Half a megabyte: a list of numbers and a long string.
fn document() -> Value {
    let numbers = Vec::from_iter((0..50_000).map(|number| number.to_string())).join(",");
    value(&format!(r#"{{"big":[{numbers}],"long":"{}"}}"#, "a".repeat(200_000)))
}

#[test]
fn what_grows_without_end_meets_a_limit() {
    let doubled = |step: &str, then: &str| {
        format!("{}{then}", vec![step; 40].join(" | ") + if then.is_empty() { "" } else { " | " })
    };
    let products = |form: &dyn Fn(&str) -> String| form("(1,2,3,4,5,6,7,8)");
    let table = [
        "[range(0;1e9)] | length".to_owned(),
        "last(range(1e18))".to_owned(),
        "[range(0; 1e18; 1e17)]".replace("; 1e17", ""),
        doubled(". + .", "").replacen(". + .", ".long | . + .", 1),
        doubled(". + .", "").replacen(". + .", ".big | . + .", 1),
        doubled("[.,.]", "tojson"),
        doubled("[.,.]", "(. <= .)"),
        doubled("[.,.]", "(. as $x | contains($x))"),
        doubled("[.,.]", "[..] | length"),
        doubled("[.,.]", "flatten | length"),
        doubled("{a:.,b:.}", "tojson"),
        "[.big[] as $x | .big[] as $y | .big[] as $z | 1] | length".to_owned(),
        products(&|one| [one; 12].join("+")),
        products(&|one| {
            format!("{{{}}}", (0..12).map(|at| format!("a{at}:{one}")).collect::<Vec<_>>().join(","))
        }),
        products(&|one| format!("\"{}\"", format!("\\({one})").repeat(12))),
        "reduce .big[] as $x ([1]; . + .) | length".to_owned(),
        "reduce .big[] as $x (\"ab\"; . + .) | length".to_owned(),
        "reduce .big[] as $x ([]; . + [$x, $x]) | length".to_owned(),
        "reduce .big[] as $x (null; [.])".to_owned(),
        "reduce .big[] as $x (null; {a: .})".to_owned(),
        "foreach .big[] as $x (null; [.])".to_owned(),
        ".long as $l | .big | map(tostring) | join($l)".to_owned(),
        ". as $d | .big | map($d | tojson) | length".to_owned(),
        ".big | [.[] as $x | .[] | [$x, .]] | sort | length".to_owned(),
        ".big | [.[] as $x | .[] | [$x, .]] | group_by(.[0]) | length".to_owned(),
        ".big - (.big | map(. + 0.5)) | length".to_owned(),
        ".big as $b | ($b | map([.])) | contains($b | map([. + 0.5]))".to_owned(),
        ". as $d | [.big[] | $d.long | test(\"(a+)+$\")] | length".to_owned(),
        ". as $d | [.big[] | $d.long | test(\"^(feat|fix)(\\\\(.+\\\\))?: .{1,50}$\")] | length".to_owned(),
        ". as $d | [.big[] | $d.long | index(\"b\")] | length".to_owned(),
        ". as $d | [.big[] | $d.long | ltrimstr($d.long + \"b\")] | length".to_owned(),
        ". as $d | [.big[] | $d.long | split(\"\")] | length".to_owned(),
        ". as $d | [.big[] | $d | has($d.long)] | length".to_owned(),
        ". as $d | [.big[] | {($d.long): .}] | add | length".to_owned(),
        ". as $d | [.big[] | $d.long < $d.long] | length".to_owned(),
        "[limit(1e18; range(1e18))] | length".to_owned(),
        "first(range(1e18) | select(. < 0))".to_owned(),
        "isempty(range(1e18) | empty)".to_owned(),
        "any(range(1e18); false)".to_owned(),
        // Limits cannot be caught.
        "try ([range(1e18)]) catch true".to_owned(),
        "[range(1e18)]? // true".to_owned(),
        "([range(1e18)] // true)".to_owned(),
        "try (reduce .big[] as $x (null; [.])) catch true".to_owned(),
    ];
    let document = document();
    for source in table {
        let filter = Filter::compile(&source).unwrap_or_else(|refused| panic!("{source}: {refused}"));
        let result = filter.run(&document, now(), &mut Budget::new(FUEL / 8, MEMORY / 8));
        assert!(
            matches!(result, Err(Failure::Limit(_))),
            "{source}: {:?}",
            result.map(|results| results.len())
        );
    }
}

#[test]
fn numbers_do_not_grow() {
    let squared = format!("12345678901234567890 | {} > 1e300", vec![". * ."; 30].join(" | "));
    assert_eq!(answer(&squared, "0"), "true");
    assert_eq!(answer("reduce range(1000) as $x (10; . * .) | . > 1e300", "0"), "true");
    assert_eq!(answer("\"x\" * 1000000000", "0"), "<limit fuel>");
    assert_eq!(answer("[range(100)] | .[1000000000] = 1", "0"), "<limit fuel>");
    assert_eq!(answer("pow(10; 400) > 1e308, (exp10? // 0)", "1000"), "true 1.7976931348623157e+308");
    assert_eq!(answer("[range(\"a\")]", "0"), "<Range bounds must be numeric>");
}

#[test]
fn texts_that_overflow_a_parser_are_refused() {
    let table = [
        "(".repeat(2000),
        format!("{}1{}", "(".repeat(2000), ")".repeat(2000)),
        format!("{}1{}", "[".repeat(49), "]".repeat(49)),
        format!("\"{}1{}\"", "\\(\"".repeat(60), "\")".repeat(60)),
        // A closing bracket in a string closes no bracket outside of it.
        format!("\"{}\" | {}1{}", ")".repeat(100), "(".repeat(60), ")".repeat(60)),
        format!("# {}\n{}1{}", ")".repeat(100), "(".repeat(60), ")".repeat(60)),
        format!("{}1", "- ".repeat(1900)),
        format!("{}1", "try ".repeat(900)),
        format!("{}1 end", "if ".repeat(900)),
        format!("1{}", "|1".repeat(2000)),
        format!("1{}", ",1".repeat(2000)),
        format!("1{}", " as $x|1".repeat(400)),
        format!("1{}", "//1".repeat(1000)),
        format!(".{}", "[0]".repeat(1000)),
        format!(".{}", "?".repeat(4000)),
        format!("{}1", "def f: ".repeat(500)),
        format!("{}1", "reduce ".repeat(500)),
        format!("{}1", "label $a|".repeat(400)),
        "a".repeat(5000),
        format!("[{}1]", "1,".repeat(300)),
        format!("1{}", "+1".repeat(200)),
    ];
    for source in table {
        assert!(Filter::compile(&source).is_err(), "{source} is accepted");
    }
}

#[test]
fn the_largest_filters_fit_the_stack_of_a_thread() {
    let forms: [(&str, &dyn Fn(usize) -> String); 14] = [
        ("negation", &|many| format!("{}1", "- ".repeat(many))),
        ("try", &|many| format!("{}error", "try ".repeat(many))),
        ("pipe", &|many| format!(".{}", "|.".repeat(many))),
        ("comma", &|many| format!("[.{}]|length", ",.".repeat(many))),
        ("binding", &|many| format!("1{}", " as $x|1".repeat(many))),
        ("alternative", &|many| format!("null{}", "//null".repeat(many))),
        ("sum", &|many| format!("1{}", "+1".repeat(many))),
        ("and", &|many| format!("true{}", " and true".repeat(many))),
        ("list", &|many| format!("{}1{}", "[".repeat(many), "]".repeat(many))),
        ("select", &|many| format!(".{}", "|select(true)".repeat(many))),
        ("text", &|many| format!("{}1{}", "\"\\(".repeat(many), ")\"".repeat(many))),
        ("path", &|many| format!(".{}", "[0]?".repeat(many))),
        ("map", &|many| format!("{}.{}", "map(".repeat(many), ")".repeat(many))),
        ("if", &|many| format!("{}1{}", "if true then ".repeat(many), " else 2 end".repeat(many))),
    ];
    for (name, form) in forms {
        let accepted = (1..300).filter_map(|many| Filter::compile(&form(many)).ok()).last();
        let filter = accepted.unwrap_or_else(|| panic!("{name} is refused"));
        for input in [Value::Null, value("[[[[1]]]]")] {
            drop(filter.run(&input, now(), &mut budget()));
        }
    }
}

#[test]
fn a_pattern_reads_its_text_in_one_pass_or_is_refused() {
    let text = format!("\"{}!\"", "ab".repeat(20_000));
    for pattern in ["(a+)+$", "(?:a|b)*c", "[ab]*a[ab]{8}c", "(?i)(A|B)+$", "^(a|ab)*$", "[ab]*a[ab]{900}c"] {
        let found = answer(&format!("test(\"{pattern}\")"), &text);
        assert!(found == "false" || found == "<limit fuel>", "{pattern}: {found}");
    }
    // A pattern whose table would be too large.
    let subject = r#"test("^(feat|fix)(\\(.+\\))?: .{1,50}$")"#;
    assert_eq!(answer(subject, "\"feat(api): more\""), "true");
    assert_eq!(answer(subject, "\"more\""), "false");
    assert!(["false", "<limit fuel>"].contains(&answer(subject, &text).as_str()));
    for pattern in ["a{1000}{1000}", "(((a{100}){100}){100})", "\\\\pL{500}"] {
        assert!(Filter::compile(&format!("test(\"{pattern}\")")).is_err(), "{pattern}");
    }
    assert!(Filter::compile(&format!("test(\"{}\")", "a".repeat(513))).is_err());
    let many = |patterns: usize| vec!["test(\"a\")"; patterns].join(" and ");
    assert!(Filter::compile(&many(MAX_PATTERNS)).is_ok());
    assert!(Filter::compile(&many(MAX_PATTERNS + 1)).is_err());
}

/// Programs with infinite recursion or loops. Each reaches a limit, even in unoptimised builds.
#[test]
fn what_recurses_without_end_meets_a_limit() {
    let table = [
        "def f: f; f",
        "def f: 1 + f; f",
        "def f: f | f; f",
        "def f: f, f; f",
        "def f: [f]; f",
        "def f: {a: f}; f",
        "def f: \"\\(f)\"; f",
        "def f: try f catch f; f",
        "def f: f // f; f",
        "def f: if f then 1 else 2 end; f",
        "def f: reduce f as $x (0; f); f",
        "def f: first(f); f",
        "def f: path(f); f",
        "def f: (f |= 1); f",
        "def f: .a[f]; f",
        "def f: . as [$x, {(f): $y}] | 1; f",
        "def f(g): f(g | g); f(.)",
        "def f(g): f(f(g)); f(.)",
        "def f($x): f($x + 1); f(0)",
        "def f: def g: f; g; f",
        "def f: . + 1 | f; 0 | f",
        "def f: [., .] | f; 0 | f",
        "def f: sub(\"a\"; \"a\" | f); \"a\" | f",
        "def f: label $x | f, break $x; f",
        "def f(g): def h: f(g, h); h; f(1)",
        "def fib: if . < 2 then . else (. - 1 | fib) + (. - 2 | fib) end; 40 | fib",
        "def ack($m; $n): if $m == 0 then $n + 1 elif $n == 0 then ack($m - 1; 1) else ack($m - 1; ack($m; $n - 1)) end; ack(4; 4)",
        "last(repeat(.))",
        "[repeat(1)] | length",
        "last(recurse(.))",
        "last(recurse(., .))",
        "until(false; .)",
        "until(false; ., .)",
        "last(while(true; .))",
        "last(repeat(repeat(.)))",
        "first(repeat(empty, .) | select(false))",
        "[recurse([.])] | length",
        "last(recurse(.a))",
        "last(path(recurse(.a)))",
        "null | .a.b |= (. as $x | def f: [f]; f)",
        "walk(walk(def f: f; f))",
        "last(range(0; 1; 1e-18))",
        "[range(20) | [0, 1]] | last(combinations)",
        "[.[]?] | combinations(1e9)",
        "\"aaaaaaaaaa\" | def f: gsub(\"a\"; \"aa\") | f; f",
        "[limit(1000000; repeat(\"a\"))] | add | gsub(\"\"; \"b\" * 100000)",
        "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" | [gsub(\"a\"; \"1\", \"2\")] | length",
        "[range(100000) | tostring] | map(. as $p | \"x\" | test($p)) | length",
        "reduce range(1e9) as $i ({}; .[$i | tostring] = $i)",
        "reduce range(1e9) as $i ([]; .[$i] = .)",
        "last(repeat(now))",
        "[repeat(\"a\" | @base64)] | length",
        "\"x\" | last(recurse(@html + @uri + @base64))",
        "try (def f: f; f) catch 1",
        "(def f: f; f)?",
        "(def f: f; f) // 1",
        "isvalid(def f: f; f)",
    ];
    for source in table {
        let filter = Filter::compile(source).unwrap_or_else(|refused| panic!("{source}: {refused}"));
        let result = filter.run(&Value::Null, now(), &mut Budget::new(FUEL / 4, MEMORY / 4));
        let is_limit = matches!(result, Err(Failure::Limit(_)));
        assert!(is_limit, "{source}: {result:?}");
    }
}

#[test]
fn deep_recursion_ends_without_the_end_of_a_stack() {
    // The maximum nesting depth of calls, in each form that nests differently.
    let table = [
        "def f: if . == 0 then 0 else (. - 1 | f) end; f",
        "def f($n): if $n == 0 then 0 else f($n - 1) end; f(.)",
        "def f: if . == 0 then [] else [. - 1 | f] end; f",
        "def f: if . == 0 then {} else {a: (. - 1 | f)} end; f",
        "def f: if . == 0 then \"\" else \"\\(. - 1 | f)\" end; f",
        "def f: if . == 0 then 0 else try (. - 1 | f) catch 1 end; f",
        "def f: if . == 0 then 0 else (. - 1 | f) // 1 end; f",
        "def f: if . == 0 then 0 else 1 + (. - 1 | f) end; f",
        "def f: if . == 0 then 0 else reduce (. - 1 | f) as $x (0; 1) end; f",
        "def f: if . == 0 then 0 else . as $x | [$x - 1] | .[] | f end; f",
        "def f: if . == 0 then 0 else first(. - 1 | f) end; f",
        "def f: if . == 0 then \"\" else . as $n | \"a\" | sub(\"a\"; $n - 1 | f) end; f",
        "def f(g): if . == 0 then g else (. - 1 | f(g + 1)) end; f(0)",
    ];
    for source in table {
        let filter = Filter::compile(source).unwrap_or_else(|refused| panic!("{source}: {refused}"));
        let few = filter.run(&value("100"), now(), &mut budget());
        assert!(few.is_ok() || source.contains("{a:"), "{source}: {few:?}");
        let many = filter.run(&value("1000000"), now(), &mut budget());
        assert!(matches!(many, Err(Failure::Limit(_))), "{source}: {many:?}");
    }
}

#[test]
fn finding_many_places_takes_steps_for_what_is_read() {
    // Each search is decided only at the end of the text.
    let text = format!("\"{}\"", "a".repeat(100_000));
    assert_eq!(answer("[match(\"a.*z|a\"; \"g\")] | length", &text), "<limit fuel>");
    assert_eq!(answer("gsub(\"a.*z|a\"; \"b\") | length", &text), "<limit fuel>");
    assert_eq!(answer("gsub(\"(a+)+$\"; \"b\")", &text), "\"b\"");
    assert_eq!(answer("[scan(\"a{100}\")] | length", &text), "1000");
    assert_eq!(answer("gsub(\"[^a]\"; \"b\") | length", &text), "100000");
    assert_eq!(answer("gsub(\"a\"; \"\") | length", &text), "0");
}
