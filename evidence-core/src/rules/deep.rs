//! Stack for work whose recursion a tenant's rules decide.

use std::io;
use std::thread;

/// The pages of a stack are only taken when they are used.
const STACK: usize = 256 << 20;

/// Runs work on a thread of its own that has a large stack, and waits for it.
///
/// # Errors
/// There is no thread to run it on.
pub(super) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("rules".to_owned()).stack_size(STACK);
        match thread.spawn_scoped(scope, work)?.join() {
            Ok(done) => Ok(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
