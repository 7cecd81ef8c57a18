//! Signed checkpoints of ledgers ([C2SP tlog-checkpoint](https://c2sp.org/tlog-checkpoint@v1.0.0)): the keys, and the rule
//! that a server never signs a checkpoint that does not extend the last one that was signed.
//!
//! The last signed checkpoint of each ledger is kept twice. The store has it for all servers, and one of several servers
//! that sign at once succeeds. [`LedgerKeys`] has it outside of the store, beside the key, so that a store that was
//! restored from a backup is noticed: it is behind the checkpoints that others have seen.

pub(crate) mod keys;
pub(crate) mod not_signed;
pub(crate) mod signing;
pub(crate) mod store;

pub use keys::{LastSigned, LedgerKeys, LedgerKeysError, is_later};
pub use not_signed::NotSigned;
pub use store::CheckpointStore;
