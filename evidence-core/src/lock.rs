//! Locks that outlive the panic of a holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what no holder leaves half changed, whether or not one of them panicked.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
