//! The reference clock of a store that no database server shares a clock with: a monotonic one, which no change of the
//! system's time moves.

use std::time::Duration;

use evidence_core::time::{Clock, SystemClock, Timestamp};

/// The system's time when the store was opened, and the time that has passed since then.
#[derive(Debug)]
pub(crate) struct SteadyClock {
    opened_at: Timestamp,
    opened: Uptime,
}

impl SteadyClock {
    pub(crate) fn start() -> Self {
        Self { opened_at: SystemClock.now(), opened: Uptime::now() }
    }

    /// The time that it is if the system's clock was right when the store was opened.
    pub(crate) fn now(&self) -> Timestamp {
        self.opened_at.plus(self.opened.elapsed())
    }
}

/// On Linux the time since the system was started, which goes on while the machine sleeps: `Instant` does not there, so that
/// a laptop's clock would seem to jump whenever it wakes up.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Uptime(Duration);

#[cfg(target_os = "linux")]
impl Uptime {
    fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Self(now.try_into().unwrap_or_default())
    }

    fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
struct Uptime(std::time::Instant);

#[cfg(not(target_os = "linux"))]
impl Uptime {
    fn now() -> Self {
        Self(std::time::Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_with_the_time_that_passes() {
        let clock = SteadyClock { opened_at: Timestamp::from_seconds(7), opened: Uptime::now() };
        let first = clock.now();
        std::thread::sleep(Duration::from_millis(20));
        let passed = clock.now().later_than(first).unwrap();
        assert!(first >= clock.opened_at && passed >= Duration::from_millis(20), "{passed:?}");
        assert!(passed < Duration::from_secs(60), "{passed:?}");
    }
}
