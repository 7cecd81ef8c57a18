use proptest::prelude::*;

use super::*;

fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn parse(text: &str) -> Expression {
    Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// What the expression comes to of `datadog:7` in the flow `runner`, and of the same without a flow.
fn of_both(text: &str) -> (Result<bool, NotANumber>, Result<bool, NotANumber>) {
    let tags = tags(&[
        ("kind", "build"),
        ("risk-level", "high"),
        ("key.with.dots", "x"),
        ("priority", "10"),
        ("version", "1.50"),
        ("empty", ""),
    ]);
    let fingerprint = "a".repeat(64);
    let in_flow =
        Scope { artifact_name: "datadog:7", fingerprint: Some(&fingerprint), flow: Some(("runner", &tags)) };
    let expression = parse(text);
    let nowhere = Scope { flow: None, fingerprint: None, ..in_flow };
    (expression.holds(&in_flow), expression.holds(&nowhere))
}

#[test]
fn an_expression_is_true_or_false_of_an_artifact_in_a_flow() {
    const YES: Result<bool, NotANumber> = Ok(true);
    const NO: Result<bool, NotANumber> = Ok(false);
    const NEITHER: Result<bool, NotANumber> = Err(NotANumber);
    let table = [
        ("true", YES, YES),
        ("false", NO, NO),
        // What the published examples have.
        (r#"flow.tags.kind == "build""#, YES, NO),
        (r#"flow.name == "snyk-aws-prod-per-artifact""#, NO, NO),
        (r#"exists(flow.tags.env) and flow.tags.env != "aws-prod""#, NO, NO),
        (r#"matches(artifact.name, "^datadog:.*")"#, YES, YES),
        (r#"flow.name in ["runner", "saver"]"#, YES, NO),
        (r#"not flow.tags.risk-level == "high""#, NO, YES),
        ("flow.tags.priority < 3", NO, NO),
        ("exists(flow)", YES, NO),
        // Either quote, and what is between them as it stands.
        ("flow.tags.kind == 'build'", YES, NO),
        (r#"artifact.name == '"'"#, NO, NO),
        (r"matches(artifact.name, '\d$')", YES, YES),
        ("''==flow.tags.empty", YES, NO),
        // Tags.
        ("flow.tags.key.with.dots == 'x'", YES, NO),
        ("exists(flow.tags.empty)", YES, NO),
        ("exists(flow.name)", YES, NO),
        ("exists(artifact.name)", YES, YES),
        ("exists(artifact.fingerprint)", YES, NO),
        ("exists(flow.tags.none)", NO, NO),
        // What is missing is equal to nothing.
        ("flow.tags.none == flow.tags.none", NO, NO),
        ("flow.tags.none != flow.tags.none", YES, YES),
        ("flow.tags.none == ''", NO, NO),
        ("flow.tags.none < 3", NO, NO),
        ("not flow.tags.none < 3", YES, YES),
        ("flow.tags.none >= 'a'", NO, NO),
        ("flow.tags.none in ['', 0]", NO, NO),
        ("matches(flow.tags.none, '')", NO, NO),
        ("'a' in [flow.tags.none, 'a']", YES, YES),
        ("flow.name in []", NO, NO),
        // Numbers, which a tag may be.
        ("flow.tags.priority > 9", YES, NO),
        ("flow.tags.priority > '9'", NO, NO),
        ("9 < flow.tags.priority", YES, NO),
        ("flow.tags.priority >= 10.0", YES, NO),
        ("flow.tags.version == 1.5", YES, NO),
        ("flow.tags.version == '1.5'", NO, NO),
        ("flow.tags.version in [1.5]", YES, NO),
        ("flow.tags.priority > -1", YES, NO),
        ("flow.tags.kind == 3", NO, NO),
        ("flow.tags.kind != 3", YES, YES),
        ("flow.tags.kind < 3", NEITHER, NO),
        ("not flow.tags.kind < 3", NEITHER, YES),
        ("flow.tags.empty <= 3", NEITHER, NO),
        // From left to right, and no further than needed.
        ("exists(flow.tags.none) and flow.tags.kind < 3", NO, NO),
        ("flow.tags.kind < 3 and exists(flow.tags.none)", NEITHER, NO),
        ("exists(flow) or flow.tags.kind < 3", YES, NO),
        ("flow.tags.kind < 3 or exists(flow)", NEITHER, NO),
        // `not` before `and` before `or`.
        ("true or false and false", YES, YES),
        ("(true or false) and false", NO, NO),
        ("not false or true", YES, YES),
        ("not (false or true)", NO, NO),
        ("not not true", YES, YES),
        ("not false and false", NO, NO),
        ("false or not false", YES, YES),
        ("(flow.name) == ('runner')", YES, NO),
        ("true\nand\ttrue", YES, YES),
        // What comes to the same of everything.
        ("1 < 2", YES, YES),
        ("'1' == 1.0", YES, YES),
        ("2 in [1, '2',]", YES, YES),
        ("'b' > 'a'", YES, YES),
    ];
    for (text, in_flow, nowhere) in table {
        assert_eq!(of_both(text), (in_flow, nowhere), "{text}");
    }
}

#[test]
fn what_is_no_expression_is_refused_where_it_goes_wrong() {
    let table = [
        (
            "",
            "Expected a text, a number, a list, 'flow', 'artifact', 'exists' or 'matches', found the end",
            1,
        ),
        ("flow.name", "Expected what is true or false, as a comparison is", 1),
        ("'a'", "Expected what is true or false, as a comparison is", 1),
        ("3", "Expected what is true or false, as a comparison is", 1),
        ("[1]", "Expected what is true or false, as a comparison is", 1),
        ("flow", "Expected what is true or false, as a comparison is", 1),
        ("true and flow.name", "Expected what is true or false, as a comparison is", 10),
        ("not flow.name", "Expected what is true or false, as a comparison is", 5),
        ("flow == 'a'", "'flow' stands in exists(flow) alone", 1),
        ("flow.name == [1]", "Expected a text, a number, or what has one", 14),
        ("true == true", "Expected a text, a number, or what has one", 1),
        ("flow.name in 'a'", "Expected a list: [\"a\", \"b\"]", 14),
        ("flow.name in [[1]]", "Expected a text, a number, or what has one, found '['", 15),
        ("flow.name in [true]", "Expected a text, a number, or what has one", 15),
        ("flow.name in ['a' 'b']", "Expected ',' or ']', found ''b''", 19),
        (
            "flow.name == ",
            "Expected a text, a number, a list, 'flow', 'artifact', 'exists' or 'matches', found the end",
            14,
        ),
        ("flow.name = 'a'", "Unexpected character '='", 11),
        ("flow.name == 'a", "The text has no ' at its end", 14),
        ("flow.name == 'a' && true", "Unexpected character '&'", 18),
        ("flow.name == 'a' 'b'", "Expected 'and', 'or' or the end, found ''b''", 18),
        ("1 < 2 < 3", "Comparisons cannot be chained", 7),
        ("'a' == flow.name in []", "Comparisons cannot be chained", 18),
        ("'a' < 3", "A condition orders a text that is no number against a number", 1),
        (
            "flow.tag.x == 'a'",
            "'flow.tag.x' is not known: it is none of flow, flow.name, flow.tags.<key>, artifact.name or artifact.fingerprint",
            1,
        ),
        (
            "flow.tags == 'a'",
            "'flow.tags' is not known: it is none of flow, flow.name, flow.tags.<key>, artifact.name or artifact.fingerprint",
            1,
        ),
        ("exists('a')", "Expected 'flow' or 'artifact', found ''a''", 8),
        (
            "exists(artifact)",
            "'artifact' is not known: it is none of flow, flow.name, flow.tags.<key>, artifact.name or artifact.fingerprint",
            8,
        ),
        ("exists flow", "Expected '(', found 'flow'", 8),
        ("(true", "Expected ')', found the end", 6),
        (
            "True",
            "'True' is not known: it is none of flow, flow.name, flow.tags.<key>, artifact.name or artifact.fingerprint",
            1,
        ),
        ("matches(artifact.name, flow.name)", "Expected a pattern in quotes, found 'flow.name'", 24),
        ("matches(artifact.name, '(')", "error: unclosed group", 24),
        (
            "matches(artifact.name, '(?=a)')",
            "error: look-around, including look-ahead and look-behind, is not supported",
            24,
        ),
        ("matches(3, 'a')", "A number matches no pattern", 1),
        ("1.2.3 == 4", "'1.2.3' is no number", 1),
        ("3a == 4", "'3a' is no number", 1),
        ("- 3 == 4", "'-' is no number", 1),
        ("\u{fc} == '\u{fc}' or ]", "Unexpected character '\u{fc}'", 1),
        (
            "'\u{fc}' == '\u{fc}' or ]",
            "Expected a text, a number, a list, 'flow', 'artifact', 'exists' or 'matches', found ']'",
            15,
        ),
    ];
    for (text, expected, character) in table {
        let error = Expression::parse(text).expect_err(text);
        assert_eq!((error.text.as_str(), error.character), (expected, character), "{text}");
        assert_eq!(error.to_string(), format!("{expected} (at character {character} of the expression)"));
    }
    let key = Expression::parse("flow.tags.-x == 'a'").unwrap_err().to_string();
    assert!(key.starts_with("The key of the tag: String should match pattern"), "{key}");
}

#[test]
fn an_expression_is_bounded_in_length_depth_parts_and_patterns() {
    let refused = |text: &str| Expression::parse(text).expect_err("too much").text;
    assert_eq!(refused(&" ".repeat(4097)), "An expression should have at most 4096 bytes");
    for (open, close) in [("(", ")"), ("not ", ""), ("not (", ")")] {
        let nested = |depth: usize| format!("{}true{}", open.repeat(depth), close.repeat(depth));
        assert_eq!(refused(&nested(33)), "It should nest at most 32 levels deep", "{open}");
        parse(&nested(16));
    }
    let mut budget = Budget::default();
    let long = vec!["flow.name<'a'"; 200].join(" or ");
    let refused =
        (0..100).find_map(|_| Expression::parse_within(&long, &mut budget).err()).expect("too many");
    assert_eq!(refused.text, "The policy's expressions have too many parts");
    let mut budget = Budget::default();
    let pattern = "matches(flow.name, '(a|b|c)*abc.{6}')";
    let refused = (0..1000).find_map(|_| Expression::parse_within(pattern, &mut budget).err());
    assert_eq!(refused.expect("too many").text, "The policy's patterns are too large once compiled");
    // What is refused was compiled, too, or began to be.
    let mut budget = Budget::default();
    let mut refusals = std::iter::repeat_with(|| {
        let pattern = "matches(flow.name, '((a{50}){50}){50}')";
        Expression::parse_within(pattern, &mut budget).expect_err("too large").text
    });
    let refusals = Vec::from_iter(refusals.by_ref().take(5));
    assert_eq!(refusals[..4], ["the pattern is too large once it is compiled"; 4]);
    assert_eq!(refusals[4], "The policy's patterns are too large once compiled");
}

/// Texts that look like expressions.
fn any_expression() -> impl Strategy<Value = String> {
    let pieces = [
        "and",
        "or",
        "not",
        "in",
        "true",
        "false",
        "exists",
        "matches",
        "flow",
        "flow.name",
        "flow.tags.a",
        "flow.tags.a-b.c",
        "artifact.name",
        "artifact.fingerprint",
        "'a'",
        "\"3\"",
        "3",
        "-1.5",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "(",
        ")",
        "[",
        "]",
        ",",
        " ",
        "'^a+$'",
        "\u{fc}",
        "exists(flow)",
        "flow.tags.a < 3",
        "matches(flow.name, 'a')",
        "flow.name in ['a', 3]",
    ];
    let piece = prop_oneof![20 => proptest::sample::select(pieces.to_vec()).prop_map(str::to_owned), 1 => "\\PC{0,3}"];
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..Default::default() })]

    /// What is taken comes to true, false, or a text that is no number, whatever it is asked of; the place of what is
    /// refused is in the text.
    #[test]
    fn whatever_is_sent_is_refused_or_evaluated(text in prop_oneof![any_expression(), "\\PC{0,60}"], tag in "\\PC{0,4}") {
        match Expression::parse(&text) {
            Ok(expression) => {
                let tags = tags(&[("a", &tag)]);
                for flow in [None, Some(("a", &tags))] {
                    let scope = Scope { artifact_name: &tag, fingerprint: None, flow };
                    let holds = expression.holds(&scope);
                    prop_assert_eq!(expression.holds(&scope), holds);
                    if !text.contains(['<', '>']) {
                        prop_assert!(holds.is_ok());
                    }
                }
            }
            Err(error) => prop_assert!((1..=text.chars().count() + 1).contains(&error.character), "{}", error),
        }
    }

    #[test]
    fn a_negation_is_the_opposite(text in any_expression(), tag in "[0-9a]{0,2}") {
        if let (Ok(expression), Ok(negated)) = (Expression::parse(&text), Expression::parse(&format!("not ({text})"))) {
            let tags = tags(&[("a", &tag)]);
            let scope = Scope { artifact_name: "a", fingerprint: None, flow: Some(("a", &tags)) };
            prop_assert_eq!(negated.holds(&scope), expression.holds(&scope).map(|holds| !holds));
        }
    }
}
