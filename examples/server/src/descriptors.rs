//! File descriptors: the process takes as many as the system grants it, and connections leave some of them to all else.

/// What connections leave to the database, to attachments and to what is received in temporary files.
const RESERVE: u64 = 256;

/// How many connections may be open at a time, where so many are `wanted`. Raises the limit of this process to the greatest
/// that it may have.
pub(crate) fn places(wanted: usize) -> usize {
    let Some(granted) = granted() else { return wanted };
    let most = room(granted);
    if most < wanted {
        tracing::warn!(
            wanted,
            most,
            granted,
            "the limit of open files leaves room for fewer connections than --max-connections"
        );
    }
    wanted.min(most)
}

/// Of so many descriptors: at least a quarter stays with all else, at most [`RESERVE`].
fn room(granted: u64) -> usize {
    let reserve = RESERVE.min(granted.div_ceil(4));
    usize::try_from(granted - reserve).unwrap_or(usize::MAX).max(1)
}

/// How many files this process may have open; nothing where that has no limit.
#[cfg(unix)]
fn granted() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        // Some systems grant less than they name.
        Err(error) => {
            tracing::debug!(%error, "the limit of open files stays as it is");
            limit.current
        }
    }
}

#[cfg(not(unix))]
fn granted() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_left_to_all_else() {
        for (granted, connections) in [(0, 1), (1, 1), (128, 96), (1024, 768), (1 << 20, (1 << 20) - 256)] {
            assert_eq!(room(granted), connections, "{granted}");
        }
    }
}
