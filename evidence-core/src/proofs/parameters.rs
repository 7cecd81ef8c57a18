//! The parameters of the operations.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::id::Id;
use crate::ledger::tile::Tile;
use crate::page::integer_between;

/// The index of an entry, or the size of a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerIndex(u64);

impl LedgerIndex {
    /// Returns the number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for LedgerIndex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        integer_between(deserializer, 0, i64::MAX).map(|number| Self(number.unsigned_abs()))
    }
}

impl JsonSchema for LedgerIndex {
    fn schema_name() -> Cow<'static, str> {
        "LedgerIndex".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 0, "maximum": i64::MAX })
    }
}

/// The id of a record, or the index of a ledger entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordOrIndex {
    /// The id of a record.
    Record(Id),
    /// The index of an entry.
    Entry(u64),
}

impl fmt::Display for RecordOrIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(id) => id.fmt(f),
            Self::Entry(index) => index.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for RecordOrIndex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let index = || text.parse::<u64>().ok().filter(|index| index.to_string() == text);
        let id = text.parse().map(Self::Record).ok();
        let found = id.or_else(|| index().map(Self::Entry));
        found.ok_or_else(|| {
            D::Error::custom("Input should be the id of a record, or the index of a ledger entry")
        })
    }
}

impl JsonSchema for RecordOrIndex {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "RecordOrIndex".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "maxLength": 32 })
    }
}

/// The path of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TilePath(pub Tile);

impl<'de> Deserialize<'de> for TilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map(Self).map_err(|_| {
            D::Error::custom("Input should be the path of a tile, such as '0/x001/234.p/17' or 'entries/000'")
        })
    }
}

impl JsonSchema for TilePath {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "TilePath".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^([0-7]|entries)/(x[0-9]{3}/)*[0-9]{3}(\.p/[0-9]{1,3})?$",
            "maxLength": 64,
        })
    }
}

/// The format of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProofFormat {
    /// A file for verifiers (C2SP tlog-proof).
    #[default]
    TlogProof,
    /// JSON, with the entry.
    Json,
    /// A COSE receipt (RFC 9942).
    Cose,
}
