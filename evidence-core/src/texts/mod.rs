//! Long texts, such as templates and the data of attestations. Each is stored once per organization, in its
//! own ledger entry ([`Fact::TextKept`](crate::Fact::TextKept)). Records refer to it by digest.

pub(crate) mod draft;
pub(crate) mod record;
pub(crate) mod store;

pub use record::TextRef;
pub use store::TextStore;
