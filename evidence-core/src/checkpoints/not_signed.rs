//! The reasons why a checkpoint is not signed.

/// The reason why a checkpoint is not signed although there is a key, as a sentence with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSigned {
    /// The ledger lacks entries that a signed checkpoint covers.
    #[error(
        "the ledger has {size} entries, but a checkpoint of {signed} was signed. Was the database restored from an older \
         backup? Then 'evidence-server ledger new-origin' begins a log of another name"
    )]
    Behind {
        /// The number of entries of the signed checkpoint.
        signed: u64,
        /// The number of entries now.
        size: u64,
    },
    /// Entries that a signed checkpoint covers are others now.
    #[error(
        "the first {signed} entries of the ledger are not those of the checkpoint that was signed. If the database was \
         restored from a backup, 'evidence-server ledger new-origin' begins a log of another name; if not, somebody changed it"
    )]
    Rewritten {
        /// The number of entries of the signed checkpoint.
        signed: u64,
    },
    /// The last checkpoint was signed with another key, or for a log of another name.
    #[error(
        "the last checkpoint is of the log '{origin}', which this server's key does not sign. All servers of a database share \
         one directory for the key. If the key is lost, 'evidence-server ledger new-origin' begins a log of another name"
    )]
    OtherLog {
        /// The name of the log.
        origin: String,
    },
    /// The last signed checkpoint cannot be read.
    #[error(
        "the checkpoint that was signed last cannot be read: {reason}. If it is lost, 'evidence-server ledger new-origin' \
         begins a log of another name"
    )]
    Unreadable {
        /// The reason.
        reason: String,
    },
    /// The place of what was signed last cannot be read or written.
    #[error("what was signed last cannot be read or written; the log says why")]
    OutOfReach,
}
