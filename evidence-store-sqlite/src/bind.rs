//! Converts between the store's values and SQLite's: bound values and cells of rows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use evidence_core::digest::hex;
use evidence_core::id::Id;
use evidence_store_sql::{Cell, Column, Row, SCHEMA, Value};
use rusqlite::types::{ToSqlOutput, Value as Owned, ValueRef};
use rusqlite::{Connection, OptionalExtension, Statement};
use serde::Serialize;

/// A key that no organization has.
const NOBODY: i64 = -1;

/// Selects the key of an organization.
const KEY: &str = "SELECT key FROM organization WHERE id = $1";

/// Returns the key of an organization, or a key that matches no row if it does not exist. The key is looked
/// up in the transaction that uses it, because restored tables may have other keys.
pub(crate) fn key_of(connection: &Connection, org: Id) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached(KEY)?;
    Ok(statement.query_row([org.to_string()], |row| row.get(0)).optional()?.unwrap_or(NOBODY))
}

/// Returns every row of a statement.
pub(crate) fn rows(
    connection: &Connection,
    sql: &str,
    values: &[Value],
    key: impl FnMut(Id) -> rusqlite::Result<i64>,
) -> rusqlite::Result<Vec<Row>> {
    #[cfg(test)]
    crate::statements_run::note(sql);
    let mut statement = connection.prepare_cached(sql)?;
    bind(&mut statement, values, key)?;
    let columns = statement.column_count();
    let (mut rows, mut found) = (statement.raw_query(), Vec::new());
    while let Some(row) = rows.next()? {
        found.push(
            (0..columns).map(|column| Ok(cell(row.get_ref(column)?))).collect::<rusqlite::Result<_>>()?,
        );
    }
    Ok(found)
}

/// A cache of query texts for SQLite. The tables have no schema prefix, and each organization is looked up in
/// the query itself. The key and the rows then come from one snapshot without a transaction. Building a text
/// takes a quarter of the time of the query.
#[derive(Debug, Default)]
pub(crate) struct QueryTexts(Mutex<BTreeMap<Query, Arc<str>>>);

/// The text of a query, and a bit set of its organization parameters.
type Query = (Cow<'static, str>, Parameters);

/// The parameters of a query that are organizations, one bit each.
type Parameters = u32;

const _: () = assert!(PARAMETERS.len() < 32, "each has a bit");

/// The maximum number of cached texts. Queries are constants, and lists combine some of them, so there are
/// far fewer.
const MAX_TEXTS: usize = 512;

impl QueryTexts {
    /// Returns the text of a query, and converts its values for that text.
    pub(crate) fn resolved(&self, sql: Cow<'static, str>, values: &mut [Value]) -> Arc<str> {
        let mut orgs = 0;
        for (place, value) in values.iter_mut().enumerate().take(PARAMETERS.len()) {
            if let Value::Org(org) = value {
                orgs |= 1 << place;
                *value = org.to_string().into();
            }
        }
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let query = (sql, orgs);
        if let Some(text) = texts.get(&query) {
            return Arc::clone(text);
        }
        if texts.len() >= MAX_TEXTS {
            texts.clear();
        }
        let text: Arc<str> = resolve(&query.0, orgs).into();
        texts.insert(query, Arc::clone(&text));
        text
    }
}

fn resolve(sql: &str, orgs: Parameters) -> String {
    let mut parts = sql.split('$');
    let mut text = parts.next().unwrap_or_default().replace(SCHEMA, "");
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = part.split_at(digits);
        let is_org = number.parse().is_ok_and(|number: usize| {
            (1..=PARAMETERS.len()).contains(&number) && orgs >> (number - 1) & 1 == 1
        });
        text.push_str(if is_org { "(SELECT key FROM organization WHERE id = $" } else { "$" });
        text.push_str(number);
        if is_org {
            text.push(')');
        }
        text.push_str(&rest.replace(SCHEMA, ""));
    }
    text
}

/// Runs a statement without result rows, once for each row of values.
pub(crate) fn execute(
    connection: &Connection,
    sql: &str,
    rows: &[Vec<Value>],
    mut key: impl FnMut(Id) -> rusqlite::Result<i64>,
) -> rusqlite::Result<()> {
    #[cfg(test)]
    crate::statements_run::note(sql);
    let mut statement = connection.prepare_cached(sql)?;
    for row in rows {
        bind(&mut statement, row, &mut key)?;
        statement.raw_execute()?;
    }
    Ok(())
}

/// The parameters of statements. SQLite treats these as names and numbers them in the order of their first
/// use in the text.
const PARAMETERS: [&str; 20] = [
    "$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10", "$11", "$12", "$13", "$14", "$15", "$16",
    "$17", "$18", "$19", "$20",
];

fn bind(
    statement: &mut Statement<'_>,
    values: &[Value],
    mut key: impl FnMut(Id) -> rusqlite::Result<i64>,
) -> rusqlite::Result<()> {
    if values.len() > PARAMETERS.len() {
        return Err(rusqlite::Error::InvalidParameterCount(values.len(), PARAMETERS.len()));
    }
    for (name, value) in PARAMETERS.into_iter().zip(values) {
        if let Some(index) = statement.parameter_index(name)? {
            statement.raw_bind_parameter(index, output(value, &mut key)?)?;
        }
    }
    Ok(())
}

fn output<'v>(
    value: &'v Value,
    key: &mut impl FnMut(Id) -> rusqlite::Result<i64>,
) -> rusqlite::Result<ToSqlOutput<'v>> {
    let owned = |json: String| ToSqlOutput::Owned(Owned::Text(json));
    Ok(match value {
        Value::NoOrg | Value::Id(None) | Value::Text(None) | Value::Int(None) | Value::Bool(None) => {
            ToSqlOutput::Borrowed(ValueRef::Null)
        }
        Value::Text(Some(text)) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        Value::Int(Some(number)) => ToSqlOutput::Borrowed(ValueRef::Integer(*number)),
        Value::Bool(Some(truth)) => ToSqlOutput::Borrowed(ValueRef::Integer(i64::from(*truth))),
        Value::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        Value::Org(org) => ToSqlOutput::Borrowed(ValueRef::Integer(key(*org)?)),
        Value::Id(Some(id)) => owned(id.to_string()),
        Value::Ids(ids) => owned(json(ids)?),
        Value::Texts(texts) => owned(json(texts)?),
        Value::Ints(numbers) => owned(json(numbers)?),
        Value::Columns(columns) => owned(transposed(columns, key)?),
    })
}

/// Converts columns to a JSON array of rows.
fn transposed(
    columns: &[Column],
    key: &mut impl FnMut(Id) -> rusqlite::Result<i64>,
) -> rusqlite::Result<String> {
    let rows = columns.iter().map(Column::len).max().unwrap_or_default();
    let mut text = String::from("[");
    for row in 0..rows {
        for (number, column) in columns.iter().enumerate() {
            text.push_str(match (row, number) {
                (0, 0) => "[",
                (_, 0) => "],[",
                _ => ",",
            });
            text.push_str(&match column {
                Column::Texts(texts) => json(&texts.get(row))?,
                Column::Ints(numbers) => json(&numbers.get(row))?,
                Column::Bools(truths) => json(&truths.get(row))?,
                Column::Bytes(bytes) => json(&bytes.get(row).and_then(Option::as_deref).map(hex))?,
                Column::Ids(ids) => json(&ids.get(row).copied().flatten())?,
                Column::Orgs(orgs) => match orgs.get(row).copied().flatten() {
                    Some(org) => key(org)?.to_string(),
                    None => "null".to_owned(),
                },
            });
        }
    }
    text.push_str(if rows > 0 { "]]" } else { "]" });
    Ok(text)
}

fn json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Int(number),
        // No column contains a real number.
        ValueRef::Real(number) => Cell::Text(number.to_string()),
        ValueRef::Text(text) => {
            String::from_utf8(text.to_vec()).map_or_else(|error| Cell::Bytes(error.into_bytes()), Cell::Text)
        }
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_looks_up_the_keys_of_its_organizations() {
        let org: Id = "00000000-0000-0000-0000-00000000".parse().unwrap();
        let values = || [Value::Org(org), Value::Int(Some(7)), Value::Org(org)];
        let sql = "SELECT $2 FROM evidence.trail WHERE org = $1 AND a = $10 AND $3=b -- $";
        let of_both = "SELECT $2 FROM trail WHERE org = (SELECT key FROM organization WHERE id = $1) AND a = $10 \
                       AND (SELECT key FROM organization WHERE id = $3)=b -- $";
        let text = || Value::from(org.to_string());
        let texts = QueryTexts::default();
        for _ in ["made", "kept"] {
            let mut values = values();
            assert_eq!(&*texts.resolved(sql.into(), &mut values), of_both);
            assert_eq!(values, [text(), Value::Int(Some(7)), text()]);
        }
        let mut one = values();
        one[2] = Value::Int(Some(7));
        assert_eq!(
            &*texts.resolved(sql.into(), &mut one),
            of_both.replace("(SELECT key FROM organization WHERE id = $3)", "$3")
        );
        assert_eq!(&*texts.resolved(sql.into(), &mut values()), of_both);
    }

    #[test]
    fn no_more_texts_are_kept_than_there_is_room_for() {
        let texts = QueryTexts::default();
        for number in 0..2 * MAX_TEXTS {
            texts.resolved(format!("SELECT {number}").into(), &mut []);
            assert!(texts.0.lock().unwrap().len() <= MAX_TEXTS);
        }
    }

    #[test]
    fn columns_become_rows() {
        let nobody = |_: Id| Ok(7);
        let columns = [
            Column::Ints(vec![Some(1), None]),
            Column::Texts(vec![Some("a\"".to_owned()), None]),
            Column::Bools(vec![Some(true), Some(false)]),
            Column::Orgs(vec![None, "00000000-0000-0000-0000-00000000".parse().ok()]),
            Column::Ids(vec!["00000000-0000-0000-0000-00000001".parse().ok(), None]),
        ];
        assert_eq!(
            transposed(&columns, &mut { nobody }).unwrap(),
            r#"[[1,"a\"",true,null,"00000000-0000-0000-0000-00000001"],[null,null,false,7,null]]"#
        );
        assert_eq!(transposed(&[Column::Ints(vec![])], &mut { nobody }).unwrap(), "[]");
    }
}
