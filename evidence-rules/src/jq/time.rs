//! Functions of times. All times are in UTC.

use jiff::Timestamp;
use jiff::civil::{DateTime, Time, date};
use jiff::fmt::strtime::{self, BrokenDownTime};
use jiff::tz::TimeZone;

use super::eval::{Machine, Run, error};
use super::native::{refuse, text};
use super::value::Value;

const ISO: &str = "%Y-%m-%dT%H:%M:%SZ";

/// Maximum length of a format in bytes.
const MAX_FORMAT: usize = 256;

/// Returns the seconds since the epoch of a time in the form `2015-03-05T23:51:47Z`.
pub(super) fn from_date(machine: &mut Machine<'_>, input: &Value) -> Run<Value> {
    let at = parsed(machine, input, ISO)?;
    Ok(Value::Int(seconds_of(at)))
}

fn parsed(machine: &mut Machine<'_>, input: &Value, format: &str) -> Run<DateTime> {
    let Value::Str(text) = input else {
        return refuse(input, "is no time: strptime/1 requires string inputs");
    };
    machine.budget.read(text.len() + format.len())?;
    match check_format(format).and_then(|()| read_time(format, text)) {
        Some(at) => Ok(at),
        None => error(format!(
            "date {} does not match format \"{}\"",
            input.shown(),
            evidence_values::decode::shortened(format)
        )),
    }
}

/// Parses a time in UTC. The default time is midnight, and the default date is 1 January 1900.
fn read_time(format: &str, text: &str) -> Option<DateTime> {
    let read = BrokenDownTime::parse(format, text.as_bytes()).ok()?;
    if read.offset().is_some() {
        return read.to_timestamp().ok().map(|at| TimeZone::UTC.to_datetime(at));
    }
    let time = read.to_time().ok();
    match read.to_date() {
        Ok(date) => Some(date.to_datetime(time.unwrap_or_else(Time::midnight))),
        // An invalid date, such as 30 February, is not replaced by the default.
        Err(_) if read.year().is_some() || read.month().is_some() || read.day().is_some() => None,
        Err(_) => time.map(|time| date(1900, 1, 1).to_datetime(time)),
    }
}

fn check_format(format: &str) -> Option<()> {
    (format.len() <= MAX_FORMAT).then_some(())
}

/// Returns whole seconds since the epoch.
fn seconds_of(at: DateTime) -> i64 {
    TimeZone::UTC.to_timestamp(at).map_or(0, Timestamp::as_second)
}

/// `mktime`
pub(super) fn make_time(input: &Value) -> Run<Value> {
    Ok(Value::Int(seconds_of(broken_down(input, "mktime")?)))
}

/// Returns the time of an array in the form that `gmtime` returns.
fn broken_down(input: &Value, name: &str) -> Run<DateTime> {
    let wrong = || error(format!("{name} requires an array of 6 numbers"));
    let Value::Array(array) = input else { return wrong() };
    let mut parts = [0_i64; 6];
    for (part, item) in parts.iter_mut().zip(&array.items) {
        match item.as_float() {
            Some(number) => *part = number.floor() as i64,
            None => return wrong(),
        }
    }
    if array.items.len() < parts.len() {
        return wrong();
    }
    let [year, month, day, hour, minute, second] = parts;
    let small = |part: i64| i8::try_from(part).unwrap_or(i8::MIN);
    let year = i16::try_from(year).unwrap_or(i16::MIN);
    DateTime::new(
        year,
        small(month.saturating_add(1)),
        small(day),
        small(hour),
        small(minute),
        small(second.min(59)),
        0,
    )
    .or_else(|_| wrong())
}

/// Returns the time for seconds since the epoch, and the fraction of a second.
fn from_seconds(input: &Value) -> Run<(DateTime, f64)> {
    let Some(seconds) = input.as_float() else { return refuse(input, "is no number of seconds") };
    let whole = seconds.floor();
    match Timestamp::from_second(whole as i64) {
        Ok(at) => Ok((TimeZone::UTC.to_datetime(at), seconds - whole)),
        Err(_) => refuse(input, "is a time beyond the year 9999"),
    }
}

fn array(machine: &mut Machine<'_>, at: DateTime, fraction: f64) -> Run<Value> {
    let second = Value::number(f64::from(at.second()) + fraction).unwrap_or(Value::Null);
    let parts = [
        Value::Int(i64::from(at.year())),
        Value::Int(i64::from(at.month()) - 1),
        Value::Int(i64::from(at.day())),
        Value::Int(i64::from(at.hour())),
        Value::Int(i64::from(at.minute())),
        second,
        Value::Int(i64::from(at.weekday().to_sunday_zero_offset())),
        Value::Int(i64::from(at.day_of_year()) - 1),
    ];
    let mut items = Vec::new();
    for part in parts {
        machine.keep(&mut items, part)?;
    }
    machine.list(items)
}

/// `gmtime`
pub(super) fn gmtime(machine: &mut Machine<'_>, input: &Value) -> Run<Value> {
    let (at, fraction) = from_seconds(input)?;
    array(machine, at, fraction)
}

/// `strptime`
pub(super) fn parse_time(machine: &mut Machine<'_>, input: &Value, format: &Value) -> Run<Value> {
    let at = parsed(machine, input, text(format)?)?;
    array(machine, at, 0.0)
}

/// `strftime`
pub(super) fn format_time(machine: &mut Machine<'_>, input: &Value, format: &Value) -> Run<Value> {
    let at = match input {
        Value::Array(_) => broken_down(input, "strftime/1")?,
        other => from_seconds(other)?.0,
    };
    let format = text(format)?;
    machine.budget.bytes(format.len())?;
    let zoned = TimeZone::UTC.to_zoned(at);
    let made =
        check_format(format).and_then(|()| zoned.ok()).and_then(|at| strtime::format(&**format, &at).ok());
    match made {
        Some(made) => machine.string(&made),
        None => error(format!(
            "a time cannot be written in the format \"{}\"",
            evidence_values::decode::shortened(format)
        )),
    }
}
