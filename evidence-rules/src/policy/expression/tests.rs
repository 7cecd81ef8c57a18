use proptest::prelude::*;

use super::*;

fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn parse(text: &str) -> Expression {
    Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Evaluates the expression for `datadog:7` in the flow `runner`, and again without a flow and a fingerprint.
fn of_both(text: &str) -> (Truth, Truth) {
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
    (expression.evaluate(&in_flow), expression.evaluate(&nowhere))
}

#[test]
fn an_expression_is_true_false_or_unknown_of_an_artifact_in_a_flow() {
    use Truth::{False as N, True as Y, Unknown as U};
    let table = [
        ("true", Y, Y),
        ("false", N, N),
        // Expressions of the published examples.
        (r#"flow.tags.kind == "build""#, Y, U),
        (r#"flow.name == "snyk-aws-prod-per-artifact""#, N, U),
        (r#"exists(flow.tags.env) and flow.tags.env != "aws-prod""#, N, U),
        (r#"matches(artifact.name, "^datadog:.*")"#, Y, Y),
        (r#"flow.name in ["runner", "saver"]"#, Y, U),
        (r#"not flow.tags.risk-level == "high""#, N, U),
        ("flow.tags.priority < 3", N, U),
        ("exists(flow)", Y, N),
        ("not exists(flow)", N, Y),
        // Either kind of quote; the text between them is literal.
        ("flow.tags.kind == 'build'", Y, U),
        (r#"artifact.name == '"'"#, N, N),
        (r"matches(artifact.name, '\d$')", Y, Y),
        ("''==flow.tags.empty", Y, U),
        // Without a flow, it is unknown whether the flow has a property.
        ("flow.tags.key.with.dots == 'x'", Y, U),
        ("exists(flow.tags.empty)", Y, U),
        ("exists(flow.name)", Y, U),
        ("not exists(flow.name)", N, U),
        ("exists(artifact.name)", Y, Y),
        ("exists(artifact.fingerprint)", Y, N),
        ("exists(flow.tags.none)", N, U),
        ("not exists(flow.tags.none)", Y, U),
        // A comparison with a missing value is unknown.
        ("flow.tags.none == flow.tags.none", U, U),
        ("flow.tags.none != flow.tags.none", U, U),
        ("flow.tags.none == ''", U, U),
        ("flow.tags.none != 'high'", U, U),
        ("flow.tags.none < 3", U, U),
        ("not flow.tags.none < 3", U, U),
        ("not flow.tags.none > 3", U, U),
        ("flow.tags.none >= 'a'", U, U),
        ("flow.tags.none in ['', 0]", U, U),
        ("not flow.tags.none in ['', 0]", U, U),
        ("matches(flow.tags.none, '')", U, U),
        ("not matches(flow.tags.none, 'x')", U, U),
        ("'a' in [flow.tags.none, 'a']", Y, Y),
        ("'b' in [flow.tags.none, 'a']", U, U),
        ("flow.name in []", N, U),
        ("not flow.name in ['critical']", Y, U),
        ("flow.name != 'critical'", Y, U),
        ("not matches(flow.name, '^critical')", Y, U),
        ("artifact.fingerprint != 'b'", Y, U),
        ("not artifact.fingerprint == 'b'", Y, U),
        // Tags may be numbers.
        ("flow.tags.priority > 9", Y, U),
        ("flow.tags.priority > '9'", N, U),
        ("9 < flow.tags.priority", Y, U),
        ("flow.tags.priority >= 10.0", Y, U),
        ("flow.tags.version == 1.5", Y, U),
        ("flow.tags.version == '1.5'", N, U),
        ("flow.tags.version in [1.5]", Y, U),
        ("flow.tags.priority > -1", Y, U),
        ("flow.tags.kind == 3", U, U),
        ("flow.tags.kind != 3", U, U),
        ("flow.tags.kind < 3", U, U),
        ("not flow.tags.kind < 3", U, U),
        ("flow.tags.empty <= 3", U, U),
        ("flow.tags.kind in [3]", U, U),
        ("flow.tags.kind in [3, 'build']", Y, U),
        // One operand may decide the result, whatever the other one is.
        ("exists(flow.tags.none) and flow.tags.kind < 3", N, U),
        ("flow.tags.kind < 3 and exists(flow.tags.none)", N, U),
        ("exists(flow) or flow.tags.kind < 3", Y, U),
        ("flow.tags.kind < 3 or exists(flow)", Y, U),
        ("exists(flow) and flow.tags.kind < 3", U, N),
        ("not exists(flow) or flow.name != 'critical'", Y, Y),
        ("not (flow.tags.none > 3 and true)", U, U),
        ("not (flow.tags.none > 3 and false)", Y, Y),
        // `not` binds before `and`, and `and` before `or`.
        ("true or false and false", Y, Y),
        ("(true or false) and false", N, N),
        ("not false or true", Y, Y),
        ("not (false or true)", N, N),
        ("not not true", Y, Y),
        ("not false and false", N, N),
        ("false or not false", Y, Y),
        ("(flow.name) == ('runner')", Y, U),
        ("true\nand\ttrue", Y, Y),
        // Constants.
        ("1 < 2", Y, Y),
        ("'1' == 1.0", Y, Y),
        ("2 in [1, '2',]", Y, Y),
        ("2 in ['b', '1']", U, U),
        ("'b' > 'a'", Y, Y),
    ];
    for (text, in_flow, nowhere) in table {
        assert_eq!(of_both(text), (in_flow, nowhere), "{text}");
    }
}

#[test]
fn an_unknown_condition_names_the_operand_that_is_missing() {
    let tags = tags(&[("risk", "high")]);
    let scope = Scope { artifact_name: "", fingerprint: None, flow: Some(("web", &tags)) };
    let nowhere = Scope { flow: None, ..scope };
    let table = [
        ("flow.tags.none != 'a'", scope, Some("the flow has no tag 'none'")),
        ("true and not 3 < flow.tags.risk", scope, Some("flow.tags.risk ('high') is not a number")),
        ("flow.tags.risk in [3, flow.tags.none]", scope, Some("flow.tags.risk ('high') is not a number")),
        ("false or artifact.name == 'a'", scope, Some("the artifact has no name")),
        ("matches(artifact.fingerprint, 'a')", scope, Some("the artifact has no fingerprint")),
        ("flow.name in []", nowhere, Some("the artifact was reported in no flow")),
        ("exists(flow.tags.risk)", nowhere, Some("the artifact was reported in no flow")),
        ("flow.tags.none == 'a' and false", scope, None),
        ("flow.tags.risk == 'high'", scope, None),
    ];
    for (text, scope, expected) in table {
        let why = parse(text).unknown_because(&scope).map(|why| why.to_string());
        assert_eq!(why.as_deref(), expected, "{text}");
    }
    let long = BTreeMap::from([("risk".to_owned(), "\u{fc}".repeat(50))]);
    let scope = Scope { flow: Some(("web", &long)), ..scope };
    let why = parse("flow.tags.risk > 3").unknown_because(&scope).map(|why| why.to_string());
    assert_eq!(why, Some(format!("flow.tags.risk ('{}…') is not a number", "\u{fc}".repeat(40))));
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
        ("'a' < 3", "It compares a text that is not a number with a number, which is never known", 1),
        (
            "true or 3 != 'a'",
            "It compares a text that is not a number with a number, which is never known",
            9,
        ),
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
    // A rejected pattern was compiled at least in part.
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

    /// A text is rejected with a position, or it is an expression with one value. It has a reason only if it
    /// is unknown.
    #[test]
    fn whatever_is_sent_is_refused_or_evaluated(text in prop_oneof![any_expression(), "\\PC{0,60}"], tag in "\\PC{0,4}") {
        match Expression::parse(&text) {
            Ok(expression) => {
                let tags = tags(&[("a", &tag)]);
                for flow in [None, Some(("a", &tags))] {
                    let scope = Scope { artifact_name: &tag, fingerprint: None, flow };
                    let truth = expression.evaluate(&scope);
                    prop_assert_eq!(expression.evaluate(&scope), truth);
                    prop_assert_eq!(expression.unknown_because(&scope).is_some(), truth == Truth::Unknown);
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
            prop_assert_eq!(negated.evaluate(&scope), !expression.evaluate(&scope));
        }
    }
}

mod kleene {
    //! Evaluates the expressions a second time with an independent evaluator. It has its own formula type and
    //! computes in numbers: false is 0, unknown is 1 and true is 2.

    use super::*;

    #[derive(Clone, Debug)]
    enum Formula {
        Atom(Atom),
        Not(Box<Formula>),
        And(Vec<Formula>),
        Or(Vec<Formula>),
    }

    #[derive(Clone, Debug)]
    enum Atom {
        Compare(Term, &'static str, Term),
        In(Term, Vec<Term>),
        Matches(Term, char),
        Exists(Term),
        ExistsFlow,
    }

    #[derive(Clone, Debug)]
    enum Term {
        Text(&'static str),
        Number(i32),
        /// In the spelling of expressions.
        Reference(&'static str),
    }

    /// An artifact and its flow: its name, its fingerprint, the flow's name, and the flow's tag `t`.
    #[derive(Clone, Debug)]
    struct World {
        name: &'static str,
        fingerprint: Option<&'static str>,
        flow: Option<(&'static str, Option<&'static str>)>,
    }

    impl Term {
        fn written(&self) -> String {
            match self {
                Self::Text(text) => format!("'{text}'"),
                Self::Number(number) => number.to_string(),
                Self::Reference(name) => (*name).to_owned(),
            }
        }

        fn text(&self, world: &World) -> Option<String> {
            match self {
                Self::Text(text) => Some((*text).to_owned()),
                Self::Number(number) => Some(number.to_string()),
                Self::Reference("artifact.name") => (!world.name.is_empty()).then(|| world.name.to_owned()),
                Self::Reference("artifact.fingerprint") => world.fingerprint.map(str::to_owned),
                Self::Reference("flow.name") => world.flow.map(|(name, _)| name.to_owned()),
                Self::Reference(_) => world.flow.and_then(|(_, tag)| tag).map(str::to_owned),
            }
        }

        fn is_literal(&self) -> bool {
            !matches!(self, Self::Reference(_))
        }
    }

    /// Returns -1, 0 or 1, or `None` if it is unknown.
    fn order(one: &Term, other: &Term, world: &World) -> Option<i32> {
        let (left, right) = (one.text(world)?, other.text(world)?);
        let is_numeric = [one, other].iter().any(|term| matches!(term, Term::Number(_)));
        let order = if is_numeric {
            let (left, right): (i64, i64) = (left.parse().ok()?, right.parse().ok()?);
            left.cmp(&right)
        } else {
            left.cmp(&right)
        };
        Some(order as i32)
    }

    fn known(value: bool) -> u8 {
        if value { 2 } else { 0 }
    }

    impl Atom {
        fn written(&self) -> String {
            match self {
                Self::Compare(left, sign, right) => format!("{} {sign} {}", left.written(), right.written()),
                Self::In(term, list) => {
                    let list = Vec::from_iter(list.iter().map(Term::written));
                    format!("{} in [{}]", term.written(), list.join(", "))
                }
                Self::Matches(term, letter) => format!("matches({}, '{letter}')", term.written()),
                Self::Exists(term) => format!("exists({})", term.written()),
                Self::ExistsFlow => "exists(flow)".to_owned(),
            }
        }

        fn value(&self, world: &World) -> u8 {
            match self {
                Self::Compare(left, sign, right) => match order(left, right, world) {
                    None => 1,
                    Some(order) => known(match *sign {
                        "==" => order == 0,
                        "!=" => order != 0,
                        "<" => order < 0,
                        "<=" => order <= 0,
                        ">" => order > 0,
                        _ => order >= 0,
                    }),
                },
                Self::In(term, _) if term.text(world).is_none() => 1,
                Self::In(term, list) => {
                    let equal = |item: &Term| order(term, item, world).map_or(1, |order| known(order == 0));
                    list.iter().map(equal).max().unwrap_or(0)
                }
                Self::Matches(term, letter) => {
                    term.text(world).map_or(1, |text| known(text.contains(*letter)))
                }
                Self::Exists(Term::Reference(name)) if name.starts_with("flow") && world.flow.is_none() => 1,
                Self::Exists(term) => known(term.text(world).is_some()),
                Self::ExistsFlow => known(world.flow.is_some()),
            }
        }
    }

    impl Formula {
        fn written(&self) -> String {
            let joined = |all: &[Formula], word: &str| {
                let all = Vec::from_iter(all.iter().map(|one| format!("({})", one.written())));
                all.join(word)
            };
            match self {
                Self::Atom(atom) => atom.written(),
                Self::Not(inner) => format!("not ({})", inner.written()),
                Self::And(all) => joined(all, " and "),
                Self::Or(all) => joined(all, " or "),
            }
        }

        fn value(&self, world: &World) -> u8 {
            match self {
                Self::Atom(atom) => atom.value(world),
                Self::Not(inner) => 2 - inner.value(world),
                Self::And(all) => all.iter().map(|one| one.value(world)).min().unwrap_or(2),
                Self::Or(all) => all.iter().map(|one| one.value(world)).max().unwrap_or(0),
            }
        }
    }

    const TEXTS: [&str; 5] = ["a", "b", "3", "7", ""];

    fn term() -> impl Strategy<Value = Term> {
        use proptest::sample::select;
        prop_oneof![
            1 => select(TEXTS.to_vec()).prop_map(Term::Text),
            1 => select(vec![3, 5]).prop_map(Term::Number),
            3 => reference(),
        ]
    }

    fn reference() -> impl Strategy<Value = Term> {
        let names = ["artifact.name", "artifact.fingerprint", "flow.name", "flow.tags.t"];
        proptest::sample::select(names.to_vec()).prop_map(Term::Reference)
    }

    fn atom() -> impl Strategy<Value = Atom> {
        use proptest::{collection::vec, sample::select};
        let sign = select(vec!["==", "!=", "<", "<=", ">", ">="]);
        // A comparison of two literals may be rejected.
        let compare = (term(), sign, term())
            .prop_filter("literals", |(left, _, right)| !(left.is_literal() && right.is_literal()));
        prop_oneof![
            4 => compare.prop_map(|(left, sign, right)| Atom::Compare(left, sign, right)),
            2 => (term(), vec(term(), 0..3)).prop_map(|(term, list)| Atom::In(term, list)),
            1 => (reference(), select(vec!['a', '3'])).prop_map(|(term, letter)| Atom::Matches(term, letter)),
            1 => reference().prop_map(Atom::Exists),
            1 => Just(Atom::ExistsFlow),
        ]
    }

    fn formula() -> impl Strategy<Value = Formula> {
        use proptest::collection::vec;
        atom().prop_map(Formula::Atom).prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(|one| Formula::Not(Box::new(one))),
                vec(inner.clone(), 2..4).prop_map(Formula::And),
                vec(inner, 2..4).prop_map(Formula::Or),
            ]
        })
    }

    fn world() -> impl Strategy<Value = World> {
        use proptest::{option, sample::select};
        let flow = option::of((select(TEXTS.to_vec()), option::of(select(TEXTS.to_vec()))));
        (select(TEXTS.to_vec()), option::of(select(TEXTS.to_vec())), flow)
            .prop_map(|(name, fingerprint, flow)| World { name, fingerprint, flow })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..Default::default() })]

        #[test]
        fn an_expression_has_the_value_of_kleenes_logic(formula in formula(), world in world()) {
            let text = formula.written();
            let tags = world.flow.and_then(|(_, tag)| tag).map(|tag| ("t".to_owned(), tag.to_owned()));
            let tags = BTreeMap::from_iter(tags);
            let scope = Scope {
                artifact_name: world.name,
                fingerprint: world.fingerprint,
                flow: world.flow.map(|(name, _)| (name, &tags)),
            };
            let expected = [Truth::False, Truth::Unknown, Truth::True][usize::from(formula.value(&world))];
            prop_assert_eq!(parse(&text).evaluate(&scope), expected, "{}", text);
        }
    }
}
