//! The errors of stores.

use std::fmt;
use std::time::Duration;

use crate::time::Timestamp;

/// The result of a store operation.
pub type StoreResult<T> = Result<T, StoreError>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a store operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A precondition no longer holds, or a name is already in use. Read again and repeat the decision.
    #[error("the state changed meanwhile")]
    Conflict,
    /// The store cannot be reached, is saturated, full or read-only. Try again later.
    #[error("the store is not available: {0}")]
    Unavailable(#[source] Source),
    /// The store became unavailable during a write, and it is unknown whether it wrote. Only writes fail in
    /// this way.
    #[error("the store may or may not have written: {0}")]
    OutcomeUnknown(#[source] Source),
    /// The time of a write is ahead of the store's reference clock. Nothing was written.
    #[error("{0}")]
    ClockAhead(ClockAhead),
    /// A stored record cannot be read.
    #[error("a stored record is damaged: {what}")]
    Corrupt {
        /// The record, and the problem with it.
        what: String,
    },
    /// Any other failure; a defect.
    #[error("the store failed: {0}")]
    Failed(#[source] Source),
}

/// A time that is too far ahead of a reference clock to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockAhead {
    /// The difference.
    pub by: Duration,
    /// The reference clock.
    pub of: ReferenceClock,
}

/// The clock with which a store compares the times of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceClock {
    /// The clock of the database server, shared by all servers.
    Database,
    /// The time when the store was opened, plus the elapsed time of a monotonic clock.
    Monotonic,
}

/// The maximum lead of a server's clock over the database's clock.
pub const MAX_CLOCK_LEAD: Duration = Duration::from_secs(5 * 60);

/// Returns whether a recorded time is so far in the future that a clock must have been wrong.
pub(crate) fn is_future(at: Timestamp, now: Timestamp) -> bool {
    at.later_than(now).is_some_and(|by| by > MAX_CLOCK_LEAD)
}

/// The maximum forward jump of a clock while the store is open.
pub const MAX_CLOCK_JUMP: Duration = Duration::from_secs(60 * 60);

impl ReferenceClock {
    /// Checks a time against the time of this clock.
    ///
    /// # Errors
    /// [`StoreError::ClockAhead`] if it is more than [`MAX_CLOCK_LEAD`] ahead of a database's clock, or more
    /// than [`MAX_CLOCK_JUMP`] ahead of a monotonic one.
    pub fn check(self, at: Timestamp, reference: Timestamp) -> StoreResult<()> {
        let most = match self {
            Self::Database => MAX_CLOCK_LEAD,
            Self::Monotonic => MAX_CLOCK_JUMP,
        };
        match at.later_than(reference) {
            Some(by) if by > most => Err(StoreError::ClockAhead(ClockAhead { by, of: self })),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ClockAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = Rounded(self.by);
        match self.of {
            ReferenceClock::Database => write!(
                f,
                "nothing was written, because this server's clock is {by} ahead of the database's clock: set the clock"
            ),
            ReferenceClock::Monotonic => write!(
                f,
                "nothing was written, because this server's clock has jumped {by} ahead since the server started: \
                 set the clock, or start the server anew if the clock is right"
            ),
        }
    }
}

/// A duration, displayed in the largest unit of which it has at least two.
pub(crate) struct Rounded(pub(crate) Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let units = [(24 * 60 * 60, "days"), (60 * 60, "hours"), (60, "minutes")];
        let unit = units.into_iter().find(|(unit, _)| seconds >= 2 * unit);
        let (unit, name) = unit.unwrap_or((1, "seconds"));
        write!(f, "{} {name}", seconds / unit)
    }
}

impl StoreError {
    /// Returns the error for a record that cannot be read.
    pub fn corrupt(what: impl std::fmt::Display) -> Self {
        Self::Corrupt { what: what.to_string() }
    }
}

/// Returns the readable records of a list. Each record comes with the ledger index of its fact; organizations
/// and users, which are listed for the whole store, come with their names. A damaged record is left out, so
/// that it does not hide others, and is logged. Callers whose decisions depend on the list must check that it
/// is complete.
///
/// # Errors
/// The first error of an item other than [`StoreError::Corrupt`].
pub fn skip_corrupt<I: std::fmt::Display, T>(
    org: impl std::fmt::Display,
    records: impl IntoIterator<Item = (I, StoreResult<T>)>,
) -> StoreResult<Vec<T>> {
    let whole = |(index, record)| unless_corrupt(&org, index, record).transpose();
    records.into_iter().filter_map(whole).collect()
}

/// Returns the record, or `None` if it is damaged. Logs the damage.
///
/// # Errors
/// The error of the item, unless it is [`StoreError::Corrupt`].
pub(crate) fn unless_corrupt<T>(
    org: impl std::fmt::Display,
    index: impl std::fmt::Display,
    record: StoreResult<T>,
) -> StoreResult<Option<T>> {
    match record {
        Err(StoreError::Corrupt { what }) => {
            tracing::warn!(organization = %org, index = %index, what, "a list leaves out a damaged record: run fsck");
            Ok(None)
        }
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_be_a_little_ahead_of_a_reference_clock() {
        let at = |seconds: u64| Timestamp::from_seconds(1_000_000).plus(Duration::from_secs(seconds));
        for (clock, seconds, refused) in [
            (ReferenceClock::Database, 300, None),
            (ReferenceClock::Database, 301, Some("5 minutes ahead of the database's clock")),
            (ReferenceClock::Database, 1100 * 86_400, Some("1100 days ahead")),
            (ReferenceClock::Monotonic, 3600, None),
            (ReferenceClock::Monotonic, 2 * 3600, Some("jumped 2 hours ahead since the server started")),
        ] {
            let checked = clock.check(at(seconds), at(0)).map_err(|error| error.to_string());
            match refused {
                None => assert_eq!(checked, Ok(()), "{clock:?} {seconds}"),
                Some(text) => {
                    let error = checked.unwrap_err();
                    assert!(error.contains(text) && error.contains("nothing was written"), "{error}");
                }
            }
        }
        ReferenceClock::Database.check(at(0), at(1_000_000)).unwrap();
    }
}
