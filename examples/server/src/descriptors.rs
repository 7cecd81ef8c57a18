//! File descriptors: the process takes as many as the system grants it, and neither connections nor the temporary files of
//! what is received take those that all else needs.

use evidence_core::spool;

/// What is left to the database and to attachments.
const RESERVE: u64 = 256;

/// So many temporary files may be open in any case.
const FILES: u64 = 64;

/// How many connections may be open at a time, where so many are `wanted`. Raises the limit of this process to the greatest
/// that it may have, and lets temporary files have a quarter of it.
pub(crate) fn places(wanted: usize) -> usize {
    let Some(granted) = granted() else { return wanted };
    let (most, files) = room(granted);
    spool::limit_files(files);
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

/// How many of so many descriptors connections have, and temporary files: a quarter stays with all else, at most
/// [`RESERVE`].
fn room(granted: u64) -> (usize, usize) {
    let quarter = granted.div_ceil(4);
    let files = quarter.max(FILES);
    let connections = granted.saturating_sub(RESERVE.min(quarter) + files).max(1);
    (connections.try_into().unwrap_or(usize::MAX), files.try_into().unwrap_or(usize::MAX))
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
        for (granted, connections, files) in
            [(0, 1, 64), (1, 1, 64), (128, 32, 64), (1024, 512, 256), (1 << 20, (3 << 18) - 256, 1 << 18)]
        {
            assert_eq!(room(granted), (connections, files), "{granted}");
        }
    }
}
