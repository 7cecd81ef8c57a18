//! Why a store does not answer.

/// The result of asking a store.
pub type StoreResult<T> = Result<T, StoreError>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a store did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A guard no longer holds, or a name is taken: read and decide again.
    #[error("the state changed meanwhile")]
    Conflict,
    /// The store cannot be reached, is saturated, full or read-only: try again later.
    #[error("the store is not available: {0}")]
    Unavailable(#[source] Source),
    /// The store became unavailable during a write, and nobody knows whether it wrote. Only what changes something fails so.
    #[error("the store may or may not have written: {0}")]
    OutcomeUnknown(#[source] Source),
    /// A stored record cannot be read.
    #[error("a stored record is damaged: {what}")]
    Corrupt {
        /// Which record, and what is wrong with it.
        what: String,
    },
    /// Anything else; a defect.
    #[error("the store failed: {0}")]
    Failed(#[source] Source),
}

impl StoreError {
    /// A record that cannot be read.
    pub fn corrupt(what: impl std::fmt::Display) -> Self {
        Self::Corrupt { what: what.to_string() }
    }
}

/// What can be read of a list's records, each of which comes with the ledger index of its fact; of organizations and users,
/// which are listed in the whole store, with the name. One that is damaged is left out, so that it hides no other, and is
/// named in the log. Whoever rests a decision on what a list has checks that it is all there.
///
/// # Errors
/// What an item has failed with, where it is not [`StoreError::Corrupt`].
pub fn skip_corrupt<I: std::fmt::Display, T>(
    org: impl std::fmt::Display,
    records: impl IntoIterator<Item = (I, StoreResult<T>)>,
) -> StoreResult<Vec<T>> {
    let whole = |(index, record)| unless_corrupt(&org, index, record).transpose();
    records.into_iter().filter_map(whole).collect()
}

/// The record, or nothing where it is damaged, which is named in the log.
///
/// # Errors
/// What it has failed with, where that is not [`StoreError::Corrupt`].
pub(crate) fn unless_corrupt<T>(
    org: impl std::fmt::Display,
    index: impl std::fmt::Display,
    record: StoreResult<T>,
) -> StoreResult<Option<T>> {
    match record {
        Err(StoreError::Corrupt { what }) => {
            tracing::warn!(organization = %org, index = %index, what, "a list leaves out a damaged record: run fsck");
            Ok(None)
        }
        other => other.map(Some),
    }
}
