//! Reading records back out of payloads and columns.

use evidence_core::fact::{Recorded, decode_payload};
use evidence_core::store::StoreResult;
use evidence_core::{Current, StoreError};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};
use serde::{Deserialize, Deserializer};

use crate::value::{Cell, FromCell};

/// The payload of a row's fact as it is stored: bytes, for damage may leave no text of them, or nothing where the ledger
/// lacks the entry. So one that cannot be read fails by itself, not the rows beside it.
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

/// Reads bytes that were stored as text.
pub(crate) fn text(bytes: &[u8]) -> StoreResult<&str> {
    std::str::from_utf8(bytes).map_err(StoreError::corrupt)
}

/// Reads the record of a fact's payload.
pub(crate) fn record<T: DeserializeOwned>(payload: &str) -> StoreResult<T> {
    decode_payload::<Recorded<T>>(payload).map(|recorded| recorded.record)
}

/// Reads JSON that the store keeps.
pub(crate) fn body<T: DeserializeOwned>(json: &str) -> StoreResult<T> {
    serde_json::from_str(json)
        .map_err(|error| StoreError::corrupt(format_args!("{}: {error}", std::any::type_name::<T>())))
}

/// Reads JSON that a row keeps, from the string that a statement made of it; null where there is none. A statement that took
/// it for JSON itself would fail for one that is damaged, with all other rows.
pub(crate) fn nested<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    serde_json::from_str(text.as_deref().unwrap_or("null")).map_err(serde::de::Error::custom)
}

/// Reads a JSON array that a statement put together; nothing is an empty one.
pub(crate) fn array<T: DeserializeOwned>(json: Option<String>) -> StoreResult<Vec<T>> {
    json.map_or(Ok(Vec::new()), |json| body(&json))
}

/// Reads a value that JSON would write as a string: a digest, a role, a provider.
pub(crate) fn word<T: DeserializeOwned>(text: &str) -> StoreResult<T> {
    let reader: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
    T::deserialize(reader).map_err(|error| StoreError::corrupt(format_args!("'{text}': {error}")))
}

/// A record and the index of its newest fact.
pub(crate) fn current<T: DeserializeOwned>((revision, payload): (u64, Payload)) -> StoreResult<Current<T>> {
    Ok(Current { revision, record: record(payload.text()?)? })
}

/// What a list shows of a row: its fact's index, and the record.
pub(crate) fn listed_record<T: DeserializeOwned>((index, payload): (i64, Payload)) -> (i64, StoreResult<T>) {
    (index, payload.text().and_then(record))
}

/// The same, with the record's revision.
pub(crate) fn listed_current<T: DeserializeOwned>(
    (index, payload): (i64, Payload),
) -> (i64, StoreResult<Current<T>>) {
    let read =
        || Ok(Current { revision: u64::from_cell(Cell::Int(index))?, record: record(payload.text()?)? });
    (index, read())
}
