use proptest::prelude::*;

use super::*;

/// 2026-03-31T12:00:00Z.
const NOW: Timestamp = Timestamp::from_micros(1_774_958_400_000_000);
const HOUR: i64 = 3_600_000_000;

fn before_now(micros: i64) -> Position {
    Position::At(Timestamp::from_micros(NOW.as_micros() - micros))
}

fn position(text: &str) -> Position {
    Expression::parse(text).unwrap_or_else(|bad| panic!("{bad}")).position(10, NOW)
}

#[test]
fn expressions_among_ten_snapshots() {
    let table = [
        ("1", Position::Index(1)),
        ("#7", Position::Index(7)),
        ("007", Position::Index(7)),
        ("0", Position::Index(0)),
        ("23", Position::Index(23)),
        ("-1", Position::Index(10)),
        ("-10", Position::Index(1)),
        ("-11", Position::Index(0)),
        ("#-1", Position::Index(10)),
        ("~0", Position::Index(10)),
        ("~1", Position::Index(9)),
        ("~12", Position::Index(-2)),
        ("NOW", Position::Index(10)),
        ("now", Position::Index(10)),
        ("@{now}", Position::Index(10)),
        ("@{2026-03-31T12:00:00}", before_now(0)),
        ("@{2026-03-31T11:00:00}", before_now(HOUR)),
        ("@{1.hour.ago}", before_now(HOUR)),
        ("@{3.hours.ago}", before_now(3 * HOUR)),
        ("@{1.hours.ago}", before_now(HOUR)),
        ("@{2.days.ago}", before_now(48 * HOUR)),
        ("@{1.week.ago}", before_now(7 * 24 * HOUR)),
        // The last of February, because it has no 31st.
        ("@{1.month.ago}", before_now(31 * 24 * HOUR)),
        ("@{12.months.ago}", before_now(365 * 24 * HOUR)),
    ];
    for (text, expected) in table {
        assert_eq!(position(text), expected, "{text}");
    }
}

#[test]
fn what_is_no_expression_is_refused() {
    let texts = [
        "",
        " ",
        "five",
        "#five",
        "+1",
        "#",
        "~",
        "-",
        "--1",
        "~-1",
        "~~1",
        "1 ",
        "1.5",
        "@",
        "@{",
        "@{}",
        "@{now",
        "@now",
        "@{yesterday}",
        "@{2026-13-01T00:00:00}",
        "@{2026-01-01T00:00:00Z}",
        "@{2026-01-01T00:00:00-01:00}",
        "@{2026-01-01}",
        "@{2026-01-01T00:00:00+01:00}",
        "@{1.hour}",
        "@{hour.ago}",
        "@{.hour.ago}",
        "@{-1.hour.ago}",
        "@{1.year.ago}",
        "@{1.hourss.ago}",
        "@{1.2.hours.ago}",
        "99999999999999999999",
        "-99999999999999999999",
        "~99999999999999999999",
        "@{99999999999999999999.hours.ago}",
        "1\0",
        "１",
        "1..2",
    ];
    for text in texts {
        let refused = Expression::parse(text).expect_err(text);
        assert_eq!(refused.to_string(), format!("Invalid snapshot expression: {text}"));
    }
}

#[test]
fn numbers_beyond_reach_stay_out_of_range() {
    let table = [
        (i64::MAX.to_string(), 10, Position::Index(i64::MAX)),
        (i64::MIN.to_string(), 10, Position::Index(i64::MIN + 11)),
        (format!("~{}", u64::MAX), 0, Position::Index(i64::MIN)),
        ("-1".to_owned(), u64::MAX, Position::Index(i64::MAX - 1)),
    ];
    for (text, count, expected) in table {
        let expression = Expression::parse(&text).expect(&text);
        assert_eq!(expression.position(count, NOW), expected, "{text}");
    }
    let long_ago = position(&format!("@{{{}.months.ago}}", u32::MAX));
    assert_eq!(long_ago, Position::At(Timestamp::from_micros(i64::MIN)));
}

/// Ten snapshots, one per hour, the newest now.
fn index_at(time: Timestamp) -> u64 {
    let hours = (time.as_micros() - NOW.as_micros()).div_euclid(HOUR);
    hours.saturating_add(10).clamp(0, 10).unsigned_abs()
}

#[test]
fn intervals_of_ten_snapshots() {
    let table = [
        ("", Some((1, 10))),
        ("3", Some((3, 3))),
        ("NOW", Some((10, 10))),
        ("0", None),
        ("11", None),
        ("~10", None),
        ("@{2.hours.ago}", Some((8, 8))),
        ("@{1.month.ago}", None),
        ("3..5", Some((3, 5))),
        ("3..3", Some((3, 3))),
        ("3..NOW", Some((3, 10))),
        ("3..", Some((3, 10))),
        ("..", Some((10, 10))),
        ("..5", None),
        ("..10", Some((10, 10))),
        ("~2..~1", Some((8, 9))),
        ("-2..-1", Some((9, 10))),
        ("5..3", None),
        ("0..2", Some((1, 2))),
        ("-99..99", Some((1, 10))),
        ("11..20", None),
        ("@{1.month.ago}..@{2.hours.ago}", Some((1, 8))),
    ];
    for (text, expected) in table {
        let interval = Interval::parse(text).unwrap_or_else(|bad| panic!("{bad}"));
        assert_eq!(interval.range(10, NOW, index_at), expected, "{text:?}");
    }
}

#[test]
fn no_interval_reaches_into_an_environment_without_snapshots() {
    for text in ["", "NOW", "1", "1..NOW", "..", "-1", "@{now}..@{now}"] {
        let interval = Interval::parse(text).expect(text);
        assert_eq!(interval.range(0, NOW, |_| 0), None, "{text:?}");
    }
}

#[test]
fn what_is_no_interval_is_refused() {
    for text in ["1..2..3", "...", "1...3", "a..b", "1-3", "1.3", " ", "1 .. 2"] {
        let refused = Interval::parse(text).expect_err(text);
        assert_eq!(refused.to_string(), format!("Invalid interval value: {text}"));
    }
}

fn arbitrary_expression() -> impl Strategy<Value = Expression> {
    // Years 0 to 9999, the range of expressions.
    let times = -62_167_219_200_000_000_i64..253_402_207_200_000_000;
    prop_oneof![
        any::<i64>().prop_map(Expression::Index),
        any::<u64>().prop_map(Expression::Back),
        times.prop_map(|micros| Expression::At(Timestamp::from_micros(micros))),
        (any::<u32>(), prop::sample::select(&Unit::ALL[..]))
            .prop_map(|(count, unit)| Expression::Ago(count, unit)),
        Just(Expression::Now),
    ]
}

fn arbitrary_interval() -> impl Strategy<Value = Interval> {
    let sides = (arbitrary_expression(), arbitrary_expression());
    prop_oneof![
        Just(Interval::Everything),
        arbitrary_expression().prop_map(Interval::Only),
        sides.prop_map(|(first, last)| Interval::Between(first, last)),
    ]
}

proptest! {
    #[test]
    fn a_rendered_expression_reads_back(expression in arbitrary_expression()) {
        prop_assert_eq!(Expression::parse(&expression.to_string()), Ok(expression));
    }

    #[test]
    fn a_rendered_interval_reads_back(interval in arbitrary_interval()) {
        prop_assert_eq!(Interval::parse(&interval.to_string()), Ok(interval));
    }

    #[test]
    fn a_range_holds_existing_snapshots(
        interval in arbitrary_interval(),
        count in any::<u64>(),
        now in any::<i64>(),
        found in any::<u64>(),
    ) {
        let now = Timestamp::from_micros(now);
        if let Some((first, last)) = interval.range(count, now, |_| found) {
            prop_assert!(1 <= first && first <= last && last <= count);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in prop_oneof!["\\PC{0,30}", "[-#~@{}0-9.:Tadhnosuwy]{0,30}"]) {
        let expression = Expression::parse(&text);
        let interval = Interval::parse(&text);
        if let Ok(expression) = expression {
            prop_assert_eq!(interval, Ok(Interval::Only(expression)));
        }
    }
}
