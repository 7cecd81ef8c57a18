//! The statements that ran in this process, for tests of their plans.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The statements that ran in this process.
pub(crate) static RUN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Records a statement.
pub(crate) fn note(sql: &str) {
    RUN.lock().unwrap_or_else(PoisonError::into_inner).insert(sql.to_owned());
}
