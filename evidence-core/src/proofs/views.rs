//! The JSON of proofs and entries.

use schemars::JsonSchema;
use serde::Serialize;

use crate::ledger::Hash;
use crate::store::entry::StoredEntry;

/// An entry of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "LedgerEntry")]
#[non_exhaustive]
pub struct EntryView {
    /// The index, from 0.
    pub index: u64,
    /// The leaf: the text whose hash is in the tree.
    pub leaf: String,
    /// The hash of the leaf: SHA-256 of a zero byte and the leaf, as 64 hexadecimal digits.
    #[schemars(with = "String")]
    pub leaf_hash: Hash,
    /// The payload: a JSON document, as a text. The `payload_hash` in the leaf is the SHA-256 of the salt and the payload.
    pub payload: String,
    /// The salt of the payload: 16 bytes, as 32 hexadecimal digits.
    pub salt: String,
}

impl From<StoredEntry> for EntryView {
    fn from(entry: StoredEntry) -> Self {
        let leaf = entry.header().canonical();
        let StoredEntry { index, leaf_hash, salt, payload, .. } = entry;
        Self { index, leaf, leaf_hash, payload, salt: salt.to_string() }
    }
}

/// Entries of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "LedgerEntries")]
#[non_exhaustive]
pub struct EntryPage {
    /// The entries, by index, without a gap.
    pub entries: Vec<EntryView>,
    /// The index of the next requested entry, if these are not all. Ask for it to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The number of entries of the ledger.
    pub size: u64,
}

/// A proof that a ledger only grew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ConsistencyProof")]
#[non_exhaustive]
pub struct ConsistencyView {
    /// The smaller size.
    pub from: u64,
    /// The larger size.
    pub to: u64,
    /// The root of the first `from` entries.
    #[schemars(with = "String")]
    pub from_root: Hash,
    /// The root of the first `to` entries.
    #[schemars(with = "String")]
    pub to_root: Hash,
    /// The proof (RFC 6962, 2.1.2).
    #[schemars(with = "Vec<String>")]
    pub proof: Vec<Hash>,
}

/// A proof that a ledger has an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "InclusionProof")]
#[non_exhaustive]
pub struct ProofView {
    /// The entry.
    pub entry: EntryView,
    /// The number of entries that the checkpoint covers.
    pub size: u64,
    /// The root of their tree.
    #[schemars(with = "String")]
    pub root: Hash,
    /// The audit path from the leaf to the root (RFC 6962, 2.1.1).
    #[schemars(with = "Vec<String>")]
    pub path: Vec<Hash>,
    /// The signed checkpoint (C2SP tlog-checkpoint).
    pub checkpoint: String,
}
