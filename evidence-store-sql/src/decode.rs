//! Decodes records from payloads and columns.

use evidence_core::fact::{Recorded, decode_payload};
use evidence_core::store::StoreResult;
use evidence_core::{Current, StoreError};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde::{Deserialize, Deserializer};

use crate::value::{Cell, FromCell};

/// The stored payload of a row's fact. Damaged text may not be UTF-8, so the payload is bytes; it is `None`
/// if the ledger entry is missing. A damaged payload therefore fails alone, without the rows next to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Payload(Option<Vec<u8>>);

impl FromCell for Payload {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        Option::<Vec<u8>>::from_cell(cell).map(Self)
    }
}

impl Payload {
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    pub(crate) fn text(&self) -> StoreResult<&str> {
        text(self.bytes().ok_or_else(|| StoreError::corrupt("its ledger entry is missing"))?)
    }
}

/// Decodes bytes that were stored as text.
pub(crate) fn text(bytes: &[u8]) -> StoreResult<&str> {
    std::str::from_utf8(bytes).map_err(StoreError::corrupt)
}

/// Decodes the record in a fact's payload.
pub(crate) fn record<T: DeserializeOwned>(payload: &str) -> StoreResult<T> {
    decode_payload::<Recorded<T>>(payload).map(|recorded| recorded.record)
}

/// Decodes JSON that the store holds.
pub(crate) fn body<T: DeserializeOwned>(json: &str) -> StoreResult<T> {
    serde_json::from_str(json)
        .map_err(|error| StoreError::corrupt(format_args!("{}: {error}", std::any::type_name::<T>())))
}

/// Deserializes a JSON column that a statement returned as a string; a missing string is null. If the
/// statement parsed the JSON itself, one damaged value would fail all rows.
pub(crate) fn nested<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    serde_json::from_str(text.as_deref().unwrap_or("null")).map_err(serde::de::Error::custom)
}

/// Decodes a JSON array that a statement built; `None` is an empty array.
pub(crate) fn array<T: DeserializeOwned>(json: Option<String>) -> StoreResult<Vec<T>> {
    json.map_or(Ok(Vec::new()), |json| body(&json))
}

/// Decodes a value that serializes to a JSON string: a digest, a role, a provider.
pub(crate) fn word<T: DeserializeOwned>(text: &str) -> StoreResult<T> {
    let reader: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    T::deserialize(reader).map_err(|error| StoreError::corrupt(format_args!("'{text}': {error}")))
}

/// Decodes a record with the index of its newest fact.
pub(crate) fn current<T: DeserializeOwned>((revision, payload): (u64, Payload)) -> StoreResult<Current<T>> {
    Ok(Current { revision, record: record(payload.text()?)? })
}

/// Decodes a row of a list: the index of its fact, and the record.
pub(crate) fn listed_record<T: DeserializeOwned>((index, payload): (i64, Payload)) -> (i64, StoreResult<T>) {
    (index, payload.text().and_then(record))
}

/// Decodes a row of a list: the index of its fact, and the record with its revision.
pub(crate) fn listed_current<T: DeserializeOwned>(
    (index, payload): (i64, Payload),
) -> (i64, StoreResult<Current<T>>) {
    let read =
        || Ok(Current { revision: u64::from_cell(Cell::Int(index))?, record: record(payload.text()?)? });
    (index, read())
}
