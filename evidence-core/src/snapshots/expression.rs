//! The language in which callers name snapshots of an environment. An expression names one by its number, its
//! distance from the newest, or a time; an interval names a range. Parsing needs no store. Resolving needs
//! only the number of snapshots, the current time and, for a time, the number of the snapshot that was
//! current then. So it works the same for every store.

use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, Zoned};

use crate::time::Timestamp;

const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%S%.f";

/// An expression that names one snapshot of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expression {
    /// `N` or `#N`, counted from 1. `-k` is the k-th from the end, so `-1` is the newest.
    Index(i64),
    /// `~N`: the snapshot `N` before the newest.
    Back(u64),
    /// `@{YYYY-MM-DDTHH:MM:SS}` in UTC: the snapshot that was current then.
    At(Timestamp),
    /// `@{N.hours.ago}`: the snapshot that was current that long ago.
    Ago(u32, Unit),
    /// `NOW` or `@{now}`: the newest.
    Now,
}

/// A unit of time in `@{N.hours.ago}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Sixty minutes.
    Hours,
    /// Twenty-four hours.
    Days,
    /// Seven days.
    Weeks,
    /// A calendar month, in UTC.
    Months,
}

impl Unit {
    const ALL: [Self; 4] = [Self::Hours, Self::Days, Self::Weeks, Self::Months];

    const fn singular(self) -> &'static str {
        match self {
            Self::Hours => "hour",
            Self::Days => "day",
            Self::Weeks => "week",
            Self::Months => "month",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let singular = text.strip_suffix('s').unwrap_or(text);
        Self::ALL.into_iter().find(|unit| unit.singular() == singular)
    }

    fn span(self, count: u32) -> Result<Span, jiff::Error> {
        let span = Span::new();
        match self {
            Self::Hours => span.try_hours(count),
            Self::Days => span.try_days(count),
            Self::Weeks => span.try_weeks(count),
            Self::Months => span.try_months(count),
        }
    }
}

/// The target of an [`Expression`] in an environment with a known number of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// A number counted from 1. There may be no such snapshot: it may be 0, negative or too large.
    Index(i64),
    /// The snapshot that was current at this time, if there was one.
    At(Timestamp),
}

impl Expression {
    /// Parses an expression.
    pub fn parse(text: &str) -> Result<Self, InvalidExpression> {
        Self::read(text).ok_or_else(|| InvalidExpression(text.to_owned()))
    }

    fn read(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("now") {
            Some(Self::Now)
        } else if let Some(inner) = text.strip_prefix("@{") {
            Self::read_time(inner.strip_suffix('}')?)
        } else if let Some(distance) = text.strip_prefix('~') {
            digits(distance).map(Self::Back)
        } else {
            index(text.strip_prefix('#').unwrap_or(text)).map(Self::Index)
        }
    }

    fn read_time(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("now") {
            return Some(Self::Now);
        }
        if let Some(distance) = text.strip_suffix(".ago") {
            let (count, unit) = distance.split_once('.')?;
            return Some(Self::Ago(digits(count)?, Unit::parse(unit)?));
        }
        // `str::parse` would accept an offset and ignore it.
        let time = DateTime::strptime(TIME_FORMAT, text).ok()?;
        let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp();
        Some(Self::At(Timestamp::from_micros(time.as_microsecond())))
    }

    /// Returns the target among `count` snapshots. A time too early to be represented becomes the earliest
    /// possible one.
    pub fn position(&self, count: u64, now: Timestamp) -> Position {
        let newest = i64::try_from(count).unwrap_or(i64::MAX);
        match *self {
            Self::Index(index) if index < 0 => {
                Position::Index(newest.saturating_add(1).saturating_add(index))
            }
            Self::Index(index) => Position::Index(index),
            Self::Back(distance) => Position::Index(newest.saturating_sub_unsigned(distance)),
            Self::Now => Position::Index(newest),
            Self::At(time) => Position::At(time),
            Self::Ago(count, unit) => {
                Position::At(ago(now, count, unit).unwrap_or(const { Timestamp::from_micros(i64::MIN) }))
            }
        }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Back(distance) => write!(f, "~{distance}"),
            Self::At(time) => write!(f, "@{{{}}}", civil(*time).datetime()),
            Self::Ago(count, unit) => write!(f, "@{{{count}.{}s.ago}}", unit.singular()),
            Self::Now => f.write_str("NOW"),
        }
    }
}

/// Parses a number that consists of digits only. `parse` alone would accept a `+`.
fn digits<N: FromStr>(text: &str) -> Option<N> {
    is_digits(text).then(|| text.parse().ok()).flatten()
}

fn index(text: &str) -> Option<i64> {
    let distance = text.strip_prefix('-').unwrap_or(text);
    is_digits(distance).then(|| text.parse().ok()).flatten()
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the calendar time. A time after the year 9999 becomes the last time of that year.
fn civil(time: Timestamp) -> Zoned {
    let micros = time.as_micros();
    let end = if micros < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    jiff::Timestamp::from_microsecond(micros).unwrap_or(end).to_zoned(TimeZone::UTC)
}

fn ago(now: Timestamp, count: u32, unit: Unit) -> Result<Timestamp, jiff::Error> {
    let then = civil(now).checked_sub(unit.span(count)?)?;
    Ok(Timestamp::from_micros(then.timestamp().as_microsecond()))
}

/// The text is not a snapshot expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidExpression(String);

impl fmt::Display for InvalidExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invalid snapshot expression: {}", self.0)
    }
}

impl std::error::Error for InvalidExpression {}

/// A range of snapshots of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// The empty text: all snapshots.
    Everything,
    /// One expression: only that snapshot.
    Only(Expression),
    /// `a..b`, both inclusive. A missing side means [`Expression::Now`].
    Between(Expression, Expression),
}

impl Interval {
    /// Parses an interval.
    pub fn parse(text: &str) -> Result<Self, InvalidInterval> {
        let side = |side: &str| match side {
            "" => Some(Expression::Now),
            side => Expression::read(side),
        };
        let interval = match text.split_once("..") {
            None if text.is_empty() => Some(Self::Everything),
            None => Expression::read(text).map(Self::Only),
            Some((first, last)) => {
                side(first).zip(side(last)).map(|(first, last)| Self::Between(first, last))
            }
        };
        interval.ok_or_else(|| InvalidInterval(text.to_owned()))
    }

    /// Returns the first and last number of the existing snapshots in the interval; `None` if there are none.
    ///
    /// `index_at` returns the number of the snapshot that was current at a time, or 0 before the first.
    pub fn range(
        &self,
        count: u64,
        now: Timestamp,
        index_at: impl Fn(Timestamp) -> u64,
    ) -> Option<(u64, u64)> {
        let resolve = |expression: &Expression| match expression.position(count, now) {
            Position::Index(index) => index,
            Position::At(time) => i64::try_from(index_at(time)).unwrap_or(i64::MAX),
        };
        let (first, last) = match self {
            Self::Everything => return (count > 0).then_some((1, count)),
            Self::Only(one) => {
                let index = resolve(one);
                (index, index)
            }
            Self::Between(first, last) => (resolve(first), resolve(last)),
        };
        let first = u64::try_from(first).unwrap_or(0).max(1);
        let last = u64::try_from(last).unwrap_or(0).min(count);
        (first <= last).then_some((first, last))
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => Ok(()),
            Self::Only(one) => write!(f, "{one}"),
            Self::Between(first, last) => write!(f, "{first}..{last}"),
        }
    }
}

/// The text is not an interval of snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidInterval(pub(super) String);

impl fmt::Display for InvalidInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invalid interval value: {}", self.0)
    }
}

impl std::error::Error for InvalidInterval {}

#[cfg(test)]
mod tests;
