//! File descriptors. The process uses as many as the system permits. Connections and temporary files of
//! request bodies leave enough for the rest of the program.

use evidence_core::spill_buffer;

/// The maximum number of descriptors reserved for the database and attachments.
const RESERVE: u64 = 256;

/// The minimum number of temporary files that may be open.
const MIN_FILES: u64 = 64;

/// Raises the limit of open files to the highest possible one, and assigns a quarter of it to temporary
/// files. Returns the number of connections that may be open: `max_connections`, or fewer if the limit is too
/// low.
pub(crate) fn raise_and_divide_file_limit(max_connections: usize) -> usize {
    let Some(granted) = granted() else { return max_connections };
    let (most, files) = divide(granted);
    spill_buffer::limit_files(files);
    if most < max_connections {
        tracing::warn!(
            max_connections,
            most,
            granted,
            "the limit of open files allows fewer connections than --max-connections"
        );
    }
    max_connections.min(most)
}

/// Returns the shares of connections and of temporary files. The rest of the program gets a quarter, at most
/// [`RESERVE`].
fn divide(granted: u64) -> (usize, usize) {
    let quarter = granted.div_ceil(4);
    let files = quarter.max(MIN_FILES);
    let connections = granted.saturating_sub(RESERVE.min(quarter) + files).max(1);
    (connections.try_into().unwrap_or(usize::MAX), files.try_into().unwrap_or(usize::MAX))
}

/// Returns the number of files that this process may open; `None` for no limit.
#[cfg(unix)]
fn granted() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        // Some systems permit less than they announce.
        Err(error) => {
            tracing::debug!(%error, "the limit of open files could not be raised");
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
