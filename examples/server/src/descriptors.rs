//! File descriptors: the process takes as many as the system grants it, and neither connections nor temporary files of request
//! bodies take those that the rest of the program needs.

use evidence_core::spill_buffer;

/// The most descriptors that are kept for the database and attachments.
const RESERVE: u64 = 256;

/// The least number of temporary files that may be open.
const MIN_FILES: u64 = 64;

/// Raises the limit of open files to the highest that this process may have, and gives temporary files a quarter of it.
/// Returns how many connections may be open at a time: `max_connections`, or fewer where the limit has no room for them.
pub(crate) fn raise_and_divide_file_limit(max_connections: usize) -> usize {
    let Some(granted) = granted() else { return max_connections };
    let (most, files) = divide(granted);
    spill_buffer::limit_files(files);
    if most < max_connections {
        tracing::warn!(
            max_connections,
            most,
            granted,
            "the limit of open files leaves room for fewer connections than --max-connections"
        );
    }
    max_connections.min(most)
}

/// The shares of connections and of temporary files; the rest of the program keeps a quarter, at most [`RESERVE`].
fn divide(granted: u64) -> (usize, usize) {
    let quarter = granted.div_ceil(4);
    let files = quarter.max(MIN_FILES);
    let connections = granted.saturating_sub(RESERVE.min(quarter) + files).max(1);
    (connections.try_into().unwrap_or(usize::MAX), files.try_into().unwrap_or(usize::MAX))
}

/// How many files this process may have open; `None` for no limit.
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
    fn some_descriptors_are_left_to_the_rest_of_the_program() {
        for (granted, connections, files) in
            [(0, 1, 64), (1, 1, 64), (128, 32, 64), (1024, 512, 256), (1 << 20, (3 << 18) - 256, 1 << 18)]
        {
            assert_eq!(divide(granted), (connections, files), "{granted}");
        }
    }
}
