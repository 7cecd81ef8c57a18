//! A large stack for recursion whose depth depends on a tenant's rules.

use std::io;
use std::thread;

/// Stack size in bytes. The operating system allocates pages only when they are used.
const STACK: usize = 256 << 20;

/// Runs work on a separate thread with a large stack, and waits for it.
///
/// # Errors
/// The thread could not be started.
pub(super) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("rules".to_owned()).stack_size(STACK);
        match thread.spawn_scoped(scope, work)?.join() {
            Ok(done) => Ok(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
