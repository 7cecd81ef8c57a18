//! Time: one type for instants, its three representations in JSON, and the only function that reads the
//! system clock.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decode::is_recorded;

const MICROS: i64 = 1_000_000;

/// An instant: microseconds since the Unix epoch, UTC. Facts and stores hold this integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates an instant from microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Creates an instant from whole seconds since the epoch; saturates at the ends of the range.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(MICROS))
    }

    /// Returns the microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the whole seconds since the epoch, rounded down.
    pub const fn whole_seconds(self) -> WholeSeconds {
        WholeSeconds(self.0.div_euclid(MICROS))
    }

    /// Returns the seconds since the epoch with their fraction.
    pub fn seconds(self) -> Seconds {
        Seconds::of_micros(self.0)
    }

    /// Returns the seconds between an earlier instant and this one; negative if `earlier` is later.
    pub fn since(self, earlier: Self) -> Seconds {
        Seconds::of_micros(self.0.saturating_sub(earlier.0))
    }

    /// Returns the instant later by `duration`; saturates at the end of the range.
    pub fn plus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// Returns by how much this instant is later than another, or `None` if it is not.
    pub const fn later_than(self, other: Self) -> Option<Duration> {
        if self.0 > other.0 { Some(Duration::from_micros(self.0.abs_diff(other.0))) } else { None }
    }

    /// Formats epoch seconds with six decimals, the form of an artifact's `created_at`.
    pub fn decimal(self) -> String {
        let (sign, micros) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        format!("{sign}{}.{:06}", micros / MICROS.unsigned_abs(), micros % MICROS.unsigned_abs())
    }
}

impl std::fmt::Display for Timestamp {
    /// Formats the instant as RFC 3339 in UTC, or as decimal epoch seconds outside the range of RFC 3339.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => time.fmt(f),
            Err(_) => f.write_str(&self.decimal()),
        }
    }
}

/// A JSON number of seconds with at most six decimals.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Seconds(f64);

impl Seconds {
    #[expect(clippy::cast_precision_loss, reason = "microseconds fit a double exactly until the year 2255")]
    fn of_micros(micros: i64) -> Self {
        Self(micros as f64 / MICROS as f64)
    }

    /// Returns the value as a double.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// Whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct WholeSeconds(pub i64);

/// The latest time that callers may send, in epoch seconds. Since the year 2001, times in milliseconds exceed
/// it.
#[doc(hidden)]
pub const MAX_SECONDS: i64 = 1_000_000_000_000;

/// Rejects a number that is a time in milliseconds or a smaller unit instead of seconds.
#[doc(hidden)]
pub fn check_seconds(seconds: i64) -> Result<(), String> {
    let unit = match seconds.unsigned_abs() {
        0..=1_000_000_000_000 => return Ok(()),
        1_000_000_000_001..100_000_000_000_000 => "milliseconds",
        100_000_000_000_000..100_000_000_000_000_000 => "microseconds",
        _ => "nanoseconds",
    };
    Err(format!("Input should be a time in seconds since 1970-01-01, and looks like {unit}"))
}

/// An instant that a caller sent: a JSON integer or decimal of epoch seconds, within ±10¹² seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SentSeconds(pub Timestamp);

impl<'de> Deserialize<'de> for SentSeconds {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        #[expect(clippy::cast_possible_truncation, reason = "a larger number is the largest")]
        let whole = seconds.trunc() as i64;
        if !is_recorded() {
            check_seconds(whole).map_err(serde::de::Error::custom)?;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a larger number is the largest")]
        let micros = (seconds * 1e6).round() as i64;
        Ok(Self(Timestamp(micros)))
    }
}

impl Serialize for SentSeconds {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.seconds().serialize(serializer)
    }
}

impl JsonSchema for SentSeconds {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EpochSeconds".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "number", "minimum": -MAX_SECONDS, "maximum": MAX_SECONDS,
            "description": "Seconds since 1970-01-01T00:00:00Z.",
        })
    }
}

/// An instant that a caller sent in ISO 8601: `2026-11-23T08:30:00Z`, with another offset, or without one
/// (UTC). A date stands for its first instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SentTime(pub Timestamp);

/// Maximum length of a time in characters.
const SENT_TIME: usize = 64;

impl SentTime {
    fn parse(text: &str) -> Option<Self> {
        if text.len() > SENT_TIME {
            return None;
        }
        // `str::parse` is not used for times without an offset, because it accepts an offset and ignores it.
        let without_offset = || {
            let read = |format| DateTime::strptime(format, text).ok();
            let time = read("%Y-%m-%dT%H:%M:%S%.f").or_else(|| {
                let date = jiff::civil::Date::strptime("%Y-%m-%d", text).ok()?;
                Some(date.to_datetime(jiff::civil::Time::midnight()))
            })?;
            Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
        };
        let time = text.parse::<jiff::Timestamp>().ok().or_else(without_offset)?;
        Some(Self(Timestamp::from_micros(time.as_microsecond())))
    }
}

impl<'de> Deserialize<'de> for SentTime {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let refused = "Input should be a time in ISO 8601, such as 2026-11-23T08:30:00Z";
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(refused))
    }
}

impl JsonSchema for SentTime {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SentTime".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time", "maxLength": SENT_TIME })
    }
}

/// Returns the current time. Each attempt of an operation uses one instant for all its decisions
/// (`Context::now` of evidence-core).
pub trait Clock: Send + Sync + 'static {
    /// Returns the current instant.
    fn now(&self) -> Timestamp;
}

/// The system clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
    fn now(&self) -> Timestamp {
        let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_has_three_spellings() {
        let at = Timestamp::from_micros(1_776_252_299_785_510);
        assert_eq!(at.decimal(), "1776252299.785510");
        assert_eq!(serde_json::to_string(&at.seconds()).unwrap(), "1776252299.78551");
        assert_eq!(serde_json::to_string(&at.whole_seconds()).unwrap(), "1776252299");
    }

    #[test]
    fn whole_seconds_before_the_epoch_are_cut_downwards_and_decimals_are_exact() {
        assert_eq!(Timestamp::from_micros(-1).whole_seconds(), WholeSeconds(-1));
        for (micros, decimal) in [
            (-1, "-0.000001"),
            (-1_500_000, "-1.500000"),
            (0, "0.000000"),
            (i64::MIN, "-9223372036854.775808"),
        ] {
            assert_eq!(Timestamp::from_micros(micros).decimal(), decimal);
        }
    }

    #[test]
    fn sent_seconds_are_integers_or_decimals_within_bounds() {
        let sent = |text: &str| serde_json::from_str::<SentSeconds>(text).map(|s| s.0.as_micros());
        assert_eq!(sent("1783538510").unwrap(), 1_783_538_510_000_000);
        assert_eq!(sent("1.5").unwrap(), 1_500_000);
        assert_eq!(sent("1e12").unwrap(), 1_000_000_000_000_000_000);
        assert!(sent("\"1\"").is_err());
    }

    #[test]
    fn a_time_in_a_smaller_unit_than_seconds_is_refused_and_the_unit_named() {
        let refused = |text: &str| serde_json::from_str::<SentSeconds>(text).unwrap_err().to_string();
        for (sent, unit) in [
            ("1776252299785", "milliseconds"),
            ("-1776252299785.5", "milliseconds"),
            ("1.1e12", "milliseconds"),
            ("1776252299785510", "microseconds"),
            ("1776252299785510123", "nanoseconds"),
            ("1e300", "nanoseconds"),
        ] {
            let text = refused(sent);
            assert!(text.starts_with("Input should be a time in seconds since 1970-01-01"), "{sent}: {text}");
            assert!(text.contains(unit), "{sent}: {text}");
        }
    }
}
