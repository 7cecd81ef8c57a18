//! The reference clock of a store without a database server to share a clock with. It is monotonic, so
//! changes of the system time do not affect it.

use std::time::Duration;

use evidence_core::time::{Clock, SystemClock, Timestamp};

/// The system time at the opening of the store, and the time since then.
#[derive(Debug)]
pub(crate) struct SteadyClock {
    opened_at: Timestamp,
    opened: Uptime,
}

impl SteadyClock {
    pub(crate) fn start() -> Self {
        Self { opened_at: SystemClock.now(), opened: Uptime::now() }
    }

    /// Returns the current time, assuming that the system clock was right when the store was opened.
    pub(crate) fn now(&self) -> Timestamp {
        self.opened_at.plus(self.opened.elapsed())
    }
}

/// On Linux, the time since boot, which includes suspend. `Instant` does not include it on Linux, so a
/// laptop's clock would seem to jump after each wake-up.
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
