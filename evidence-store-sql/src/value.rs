//! Values that are bound to statements, and cells that are decoded from result rows.

use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::ledger::{Hash, Salt};
use evidence_core::name::Fingerprint;
use evidence_core::store::{StoreResult, distinct};
use evidence_core::time::Timestamp;

/// A value that is bound to a parameter or written to a column. Nulls are typed, because some databases need
/// the type of a null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text, or null.
    Text(Option<String>),
    /// An integer, or null.
    Int(Option<i64>),
    /// A boolean, or null.
    Bool(Option<bool>),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An organization in the column `org`: an integer key in SQLite, the bytes of the id in PostgreSQL. An
    /// unknown organization binds a value that matches no row.
    Org(Id),
    /// Null in place of an organization.
    NoOrg,
    /// An id, or null, in tables that grow with each snapshot: text in SQLite, bytes in PostgreSQL.
    Id(Option<Id>),
    /// A list of ids, in the form of [`Value::Id`], bound like [`Value::Texts`].
    Ids(Vec<Id>),
    /// A list of texts: `json_each($n)` in SQLite, `UNNEST($n::text[])` in PostgreSQL.
    Texts(Vec<Option<String>>),
    /// A list of integers, bound like [`Value::Texts`].
    Ints(Vec<i64>),
    /// Rows by column; all columns have the same length. SQLite binds one parameter (`json_each($n)`, columns
    /// `value->>0` and so on). PostgreSQL binds one parameter per column (`UNNEST($n::text[], …)`).
    Columns(Vec<Column>),
}

/// A column of [`Value::Columns`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// Texts.
    Texts(Vec<Option<String>>),
    /// Integers.
    Ints(Vec<Option<i64>>),
    /// Booleans.
    Bools(Vec<Option<bool>>),
    /// Bytes; lower-case hex in SQLite's JSON.
    Bytes(Vec<Option<Vec<u8>>>),
    /// Organizations.
    Orgs(Vec<Option<Id>>),
    /// Ids in the form of [`Value::Id`].
    Ids(Vec<Option<Id>>),
}

impl Column {
    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(texts) => texts.len(),
            Self::Ints(numbers) => numbers.len(),
            Self::Bools(truths) => truths.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Orgs(ids) | Self::Ids(ids) => ids.len(),
        }
    }

    /// Returns whether the column has no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        Self::Text(text)
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<Id> for Value {
    fn from(id: Id) -> Self {
        Self::Text(Some(id.to_string()))
    }
}

impl From<Option<Id>> for Value {
    fn from(id: Option<Id>) -> Self {
        Self::Text(id.map(|id| id.to_string()))
    }
}

impl From<&Fingerprint> for Value {
    fn from(fingerprint: &Fingerprint) -> Self {
        fingerprint.as_str().into()
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        signed(number).into()
    }
}

impl From<Option<u64>> for Value {
    fn from(number: Option<u64>) -> Self {
        Self::Int(number.map(signed))
    }
}

impl From<Timestamp> for Value {
    fn from(at: Timestamp) -> Self {
        at.as_micros().into()
    }
}

impl From<Option<Timestamp>> for Value {
    fn from(at: Option<Timestamp>) -> Self {
        Self::Int(at.map(Timestamp::as_micros))
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(Some(truth))
    }
}

impl From<Option<bool>> for Value {
    fn from(truth: Option<bool>) -> Self {
        Self::Bool(truth)
    }
}

impl From<Hash> for Value {
    fn from(hash: Hash) -> Self {
        Self::Bytes(hash.as_bytes().to_vec())
    }
}

impl From<Salt> for Value {
    fn from(salt: Salt) -> Self {
        Self::Bytes(salt.as_bytes().to_vec())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// Binds the distinct items of a list as texts.
pub(crate) fn texts<T: ToString>(items: &[T]) -> Value {
    Value::Texts(distinct(items.iter().map(T::to_string).map(Some)))
}

/// Binds the distinct ids of a list.
pub(crate) fn ids(items: &[Id]) -> Value {
    Value::Ids(distinct(items.iter().copied()))
}

/// Binds the distinct numbers of a list.
pub(crate) fn ints(items: &[u64]) -> Value {
    Value::Ints(distinct(items.iter().copied().map(signed)))
}

/// Converts a number to the signed integers of the databases. Saturates, but no stored number exceeds the
/// range.
#[must_use]
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A value in a result row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// Null.
    Null,
    /// An integer, or a boolean as 0 or 1.
    Int(i64),
    /// Text.
    Text(String),
    /// Bytes, or damaged text that is not UTF-8.
    Bytes(Vec<u8>),
}

impl Cell {
    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Int(_) => 8,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    fn unexpected(&self, expected: &str) -> StoreError {
        let found = match self {
            Self::Null => "nothing",
            Self::Int(_) => "an integer",
            Self::Text(_) => "text",
            Self::Bytes(_) => "bytes",
        };
        StoreError::corrupt(format_args!("a column has {found} in the place of {expected}"))
    }
}

impl From<Cell> for Value {
    fn from(cell: Cell) -> Self {
        match cell {
            Cell::Null => Self::Text(None),
            Cell::Int(number) => number.into(),
            Cell::Text(text) => text.into(),
            Cell::Bytes(bytes) => bytes.into(),
        }
    }
}

/// A result row: its cells in column order.
pub type Row = Vec<Cell>;

/// A type that can be decoded from a cell.
pub trait FromCell: Sized {
    /// Decodes a cell.
    ///
    /// # Errors
    /// Returns [`StoreError::Corrupt`] if the cell has another type, or a value outside the range of this
    /// type.
    fn from_cell(cell: Cell) -> StoreResult<Self>;
}

impl FromCell for i64 {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        match cell {
            Cell::Int(number) => Ok(number),
            other => Err(other.unexpected("an integer")),
        }
    }
}

impl FromCell for u64 {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        let number = i64::from_cell(cell)?;
        Self::try_from(number).map_err(|_| StoreError::corrupt(format_args!("{number} is out of range")))
    }
}

impl FromCell for u32 {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        let number = i64::from_cell(cell)?;
        Self::try_from(number).map_err(|_| StoreError::corrupt(format_args!("{number} is out of range")))
    }
}

impl FromCell for bool {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        i64::from_cell(cell).map(|number| number != 0)
    }
}

impl FromCell for Timestamp {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        i64::from_cell(cell).map(Self::from_micros)
    }
}

impl FromCell for String {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        match cell {
            Cell::Text(text) => Ok(text),
            Cell::Bytes(bytes) => Self::from_utf8(bytes).map_err(StoreError::corrupt),
            other => Err(other.unexpected("text")),
        }
    }
}

/// Decodes text, or the bytes that PostgreSQL stores for organizations and for [`Value::Id`].
impl FromCell for Id {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        if let Cell::Bytes(bytes) = &cell
            && let Ok(bytes) = bytes.as_slice().try_into()
        {
            return Ok(Self::from_bytes(bytes));
        }
        let text = String::from_cell(cell)?;
        text.parse().map_err(|error| StoreError::corrupt(format_args!("'{text}': {error}")))
    }
}

impl FromCell for Hash {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        let bytes = match cell {
            Cell::Bytes(bytes) => bytes,
            other => return Err(other.unexpected("bytes")),
        };
        let bytes = bytes.try_into().map_err(|bytes: Vec<u8>| {
            StoreError::corrupt(format_args!("a hash has {} bytes", bytes.len()))
        })?;
        Ok(Self::from_bytes(bytes))
    }
}

impl FromCell for Salt {
    /// A salt that was destroyed or damaged becomes zeros, with which no payload matches its hash.
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        let bytes = match cell {
            Cell::Bytes(bytes) => bytes,
            Cell::Null => Vec::new(),
            other => return Err(other.unexpected("bytes")),
        };
        Ok(Self::from_bytes(bytes.try_into().unwrap_or_default()))
    }
}

impl FromCell for Vec<u8> {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        match cell {
            Cell::Bytes(bytes) => Ok(bytes),
            Cell::Text(text) => Ok(text.into_bytes()),
            other => Err(other.unexpected("bytes")),
        }
    }
}

impl<T: FromCell> FromCell for Option<T> {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        if cell == Cell::Null { Ok(None) } else { T::from_cell(cell).map(Some) }
    }
}

impl FromCell for Cell {
    fn from_cell(cell: Cell) -> StoreResult<Self> {
        Ok(cell)
    }
}

/// A type that can be decoded from a row: a tuple of its columns.
pub trait FromRow: Sized {
    /// Decodes a row.
    ///
    /// # Errors
    /// Returns [`StoreError::Corrupt`] if a column is missing or cannot be decoded.
    fn from_row(row: Row) -> StoreResult<Self>;
}

impl FromRow for Row {
    fn from_row(row: Row) -> StoreResult<Self> {
        Ok(row)
    }
}

macro_rules! tuples {
    ($(($($column:ident),+))+) => {$(
        impl<$($column: FromCell),+> FromRow for ($($column,)+) {
            fn from_row(row: Row) -> StoreResult<Self> {
                let mut cells = row.into_iter();
                Ok(($($column::from_cell(cells.next().unwrap_or(Cell::Null))?,)+))
            }
        }
    )+};
}

tuples! {
    (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G) (A, B, C, D, E, F, G, H)
    (A, B, C, D, E, F, G, H, I) (A, B, C, D, E, F, G, H, I, J)
}
