//! The bounds of a window of events, as callers write them.

use crate::snapshots::expression::{Expression, InvalidInterval};
use crate::time::Timestamp;

/// The start or the end of a window of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A snapshot.
    Snapshot(Expression),
    /// A time ago, in microseconds: `1hour`, `2days`, `30mins`.
    Ago(i64),
    /// A point in time.
    At(Timestamp),
}

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// The units in the singular. Each may also end in `s`.
const UNITS: [(&str, i64); 11] = [
    ("second", SECOND),
    ("sec", SECOND),
    ("minute", MINUTE),
    ("min", MINUTE),
    ("m", MINUTE),
    ("hour", HOUR),
    ("h", HOUR),
    ("day", DAY),
    ("d", DAY),
    ("week", 7 * DAY),
    ("w", 7 * DAY),
];

impl Bound {
    /// Parses a snapshot expression or a time ago.
    pub fn parse(text: &str) -> Result<Self, InvalidInterval> {
        let snapshot = || Expression::parse(text).ok().map(Self::Snapshot);
        snapshot().or_else(|| Self::read_distance(text)).ok_or_else(|| InvalidInterval(text.to_owned()))
    }

    fn read_distance(text: &str) -> Option<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (count, unit) = text.split_at_checked(digits)?;
        let count: u32 = count.parse().ok()?;
        let is_named = |(name, _): &&(&str, i64)| unit == *name || unit.strip_suffix('s') == Some(*name);
        let (_, length) = UNITS.iter().find(is_named)?;
        Some(Self::Ago(length.saturating_mul(i64::from(count))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bound_is_a_snapshot_or_a_distance_in_time() {
        let index = |index| Some(Bound::Snapshot(Expression::Index(index)));
        let table = [
            ("1", index(1)),
            ("-2", index(-2)),
            ("#7", index(7)),
            ("~3", Some(Bound::Snapshot(Expression::Back(3)))),
            ("NOW", Some(Bound::Snapshot(Expression::Now))),
            ("now", Some(Bound::Snapshot(Expression::Now))),
            ("1hour", Some(Bound::Ago(HOUR))),
            ("1h", Some(Bound::Ago(HOUR))),
            ("2days", Some(Bound::Ago(2 * DAY))),
            ("30mins", Some(Bound::Ago(30 * MINUTE))),
            ("90seconds", Some(Bound::Ago(90 * SECOND))),
            ("3weeks", Some(Bound::Ago(21 * DAY))),
            ("0min", Some(Bound::Ago(0))),
            ("4294967295w", Some(Bound::Ago(i64::MAX))),
            ("4294967296d", None),
            ("", None),
            ("hour", None),
            ("1", index(1)),
            ("-1hour", None),
            ("+1h", None),
            ("1 hour", None),
            ("1hourss", None),
            ("1fortnight", None),
            ("1.5h", None),
            ("\u{663}h", None),
            ("1..2", None),
        ];
        for (text, bound) in table {
            assert_eq!(Bound::parse(text).ok(), bound, "{text}");
        }
        let refusal = Bound::parse("soon").unwrap_err().to_string();
        assert_eq!(refusal, "Invalid interval value: soon");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,12}|[0-9]{0,12}[a-z]{0,7}") {
            if let Ok(Bound::Ago(distance)) = Bound::parse(&text) {
                prop_assert!(distance >= 0);
            }
        }
    }
}
