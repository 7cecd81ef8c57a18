//! Converts between the store's values and PostgreSQL's: bound values and cells of rows.

use evidence_core::id::Id;
use evidence_store_sql::{Cell, Column, Row, Value};
use sqlx::postgres::{PgArguments, PgRow, PgTypeInfo, PgValueRef};
use sqlx::{Arguments, FromRow, Row as _, TypeInfo, ValueRef};

/// Encodes the arguments of a statement.
pub(crate) fn arguments(values: &[Value]) -> Result<PgArguments, sqlx::Error> {
    let mut arguments = PgArguments::default();
    // A buffer that grows is copied each time, and may reach twice the required size.
    arguments.reserve(values.len(), values.iter().map(size).sum());
    for value in values {
        add(&mut arguments, value).map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

/// The length prefix of each value.
const LENGTH: usize = size_of::<i32>();
/// The maximum size of a value of fixed length: an id.
const FIXED: usize = size_of::<Id>();
/// The header of an array: its length, dimensions, null flag, type, size and lower bound.
const ARRAY: usize = LENGTH + 5 * size_of::<i32>();

/// Returns the maximum size of a value as an argument, in bytes.
fn size(value: &Value) -> usize {
    match value {
        Value::Text(text) => sizes(std::slice::from_ref(text)),
        Value::Bytes(bytes) => LENGTH + bytes.len(),
        Value::Int(_) | Value::Bool(_) | Value::Org(_) | Value::NoOrg | Value::Id(_) => LENGTH + FIXED,
        Value::Ids(ids) => ARRAY + ids.len() * (LENGTH + FIXED),
        Value::Ints(numbers) => ARRAY + numbers.len() * (LENGTH + FIXED),
        Value::Texts(texts) => ARRAY + sizes(texts),
        Value::Columns(columns) => columns.iter().map(|column| ARRAY + column_size(column)).sum(),
    }
}

fn column_size(column: &Column) -> usize {
    match column {
        Column::Texts(texts) => sizes(texts),
        Column::Bytes(bytes) => sizes(bytes),
        Column::Ints(_) | Column::Bools(_) | Column::Orgs(_) | Column::Ids(_) => {
            column.len() * (LENGTH + FIXED)
        }
    }
}

fn sizes<T: AsRef<[u8]>>(values: &[Option<T>]) -> usize {
    values.iter().map(|value| LENGTH + value.as_ref().map_or(0, |value| value.as_ref().len())).sum()
}

fn add(arguments: &mut PgArguments, value: &Value) -> Result<(), sqlx::error::BoxDynError> {
    match value {
        Value::Text(text) => arguments.add(text),
        Value::Int(number) => arguments.add(number),
        Value::Bool(truth) => arguments.add(truth),
        Value::Bytes(bytes) => arguments.add(bytes),
        Value::Org(org) => arguments.add(org.as_bytes().as_slice()),
        Value::NoOrg => arguments.add(None::<Vec<u8>>),
        Value::Id(id) => arguments.add(id.as_ref().map(|id| id.as_bytes().as_slice())),
        Value::Ids(ids) => arguments.add(Vec::from_iter(ids.iter().map(|id| id.as_bytes().as_slice()))),
        Value::Texts(texts) => arguments.add(texts),
        Value::Ints(numbers) => arguments.add(numbers),
        Value::Columns(columns) => columns.iter().try_for_each(|column| match column {
            Column::Texts(texts) => arguments.add(texts),
            Column::Ints(numbers) => arguments.add(numbers),
            Column::Bools(truths) => arguments.add(truths),
            Column::Bytes(bytes) => arguments.add(bytes),
            Column::Orgs(ids) | Column::Ids(ids) => {
                let ids = ids.iter().map(|id| id.as_ref().map(|id| id.as_bytes().as_slice()));
                arguments.add(ids.collect::<Vec<_>>())
            }
        }),
    }
}

/// A row and its size in bytes.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) row: Row,
    pub(crate) bytes: usize,
}

impl<'r> FromRow<'r, PgRow> for Cells {
    fn from_row(row: &'r PgRow) -> Result<Self, sqlx::Error> {
        let cells = (0..row.len()).map(|column| cell(&row.try_get_raw(column)?));
        let row = cells.collect::<Result<Row, sqlx::Error>>()?;
        Ok(Self { bytes: row.iter().map(Cell::size).sum(), row })
    }
}

fn cell(value: &PgValueRef<'_>) -> Result<Cell, sqlx::Error> {
    if value.is_null() {
        return Ok(Cell::Null);
    }
    let bytes = value.as_bytes().map_err(sqlx::Error::Decode)?;
    read(value.type_info().as_ref(), bytes)
}

/// Decodes a value from PostgreSQL's binary format.
fn read(kind: &PgTypeInfo, bytes: &[u8]) -> Result<Cell, sqlx::Error> {
    let unreadable =
        || sqlx::Error::Decode(format!("a column of type {kind} has {} bytes", bytes.len()).into());
    Ok(match kind.name() {
        "BOOL" => Cell::Int(i64::from(bytes.first().copied().ok_or_else(unreadable)?)),
        "INT2" => Cell::Int(i16::from_be_bytes(bytes.try_into().map_err(|_| unreadable())?).into()),
        "INT4" => Cell::Int(i32::from_be_bytes(bytes.try_into().map_err(|_| unreadable())?).into()),
        "INT8" => Cell::Int(i64::from_be_bytes(bytes.try_into().map_err(|_| unreadable())?)),
        "BYTEA" => Cell::Bytes(bytes.to_vec()),
        // The first byte is the version of the format.
        "JSONB" => text(bytes.get(1..).ok_or_else(unreadable)?),
        "TEXT" | "VARCHAR" | "NAME" | "JSON" | "UNKNOWN" => text(bytes),
        _ => return Err(unreadable()),
    })
}

fn text(bytes: &[u8]) -> Cell {
    std::str::from_utf8(bytes)
        .map_or_else(|_| Cell::Bytes(bytes.to_vec()), |text| Cell::Text(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgArgumentBuffer;
    use sqlx::{Encode, Postgres};

    use super::*;

    fn encoded<'q>(value: impl Encode<'q, Postgres>) -> usize {
        let mut buffer = PgArgumentBuffer::default();
        let _ = value.encode(&mut buffer).unwrap();
        LENGTH + buffer.len()
    }

    #[test]
    fn arguments_have_room() {
        for count in [0, 1, 1000] {
            let (texts, numbers) = (vec![Some("a text".to_owned()); count], vec![Some(7_i64); count]);
            let bytes = vec![Some(b"bytes".to_vec()); count];
            let id: Id = "00000000-0000-0000-0000-00000007".parse().unwrap();
            let ids = encoded(vec![id.as_bytes().as_slice(); count]);
            assert_eq!(size(&Value::Texts(texts.clone())), encoded(texts.clone()));
            assert_eq!(size(&Value::Ids(vec![id; count])), ids);
            let columns = [
                Column::Texts(texts.clone()),
                Column::Bytes(bytes.clone()),
                Column::Ids(vec![Some(id); count]),
            ];
            let exact = encoded(texts) + encoded(bytes) + ids;
            assert_eq!(size(&Value::Columns(columns.to_vec())), exact);
            assert!(size(&Value::Columns(vec![Column::Ints(numbers.clone())])) >= encoded(numbers));
        }
        assert_eq!(size(&Value::Text(Some("a text".to_owned()))), encoded("a text"));
        assert!(size(&Value::Int(Some(7))) >= encoded(7_i64));
    }
}
