//! Long texts, such as templates and the data of attestations: kept once an organization, in a ledger entry of their
//! own ([`Fact::TextKept`](crate::Fact::TextKept)), and referred to by digest.

pub(crate) mod draft;
pub(crate) mod record;
pub(crate) mod store;

pub use record::TextRef;
pub use store::TextStore;
