//! Comparison of stored and derived rows, in the tables that are derived from the ledgers, for a range of
//! organizations.

use evidence_core::digest::hex;
use serde_json::Value;

use super::SCRATCH;
use crate::sql::{Dialect, SCHEMA};
use crate::value::Cell;

/// The organizations greater than `after` and up to `upto`. A damaged row may belong to any organization,
/// also to one that does not exist.
#[derive(Debug, Clone, Default)]
pub(crate) struct OrgRange {
    /// The exclusive start; `None` starts at the least.
    pub(crate) after: Option<Cell>,
    /// The inclusive end; `None` has no end.
    pub(crate) upto: Option<Cell>,
    /// The organizations in the range with damaged ledgers. Their rows cannot be compared.
    pub(crate) damaged: Vec<Cell>,
}

impl OrgRange {
    pub(crate) fn after(after: Option<Cell>) -> Self {
        Self { after, ..Self::default() }
    }

    /// Returns the condition that this column is an organization of the range.
    pub(super) fn has(&self, column: &str, dialect: Dialect) -> String {
        let literal = |org| literal(org, dialect);
        let after = self.after.as_ref().map(|after| format!(" AND {column} > {}", literal(after)));
        let upto = self.upto.as_ref().map(|upto| format!(" AND {column} <= {}", literal(upto)));
        let damaged = self.damaged.iter().map(|org| format!(" AND {column} <> {}", literal(org)));
        ["true".to_owned()].into_iter().chain(after).chain(upto).chain(damaged).collect()
    }
}

/// Returns an organization as an SQL literal.
fn literal(org: &Cell, dialect: Dialect) -> String {
    match (org, dialect) {
        (Cell::Null, _) => "NULL".to_owned(),
        (Cell::Int(key), _) => key.to_string(),
        (Cell::Text(text), _) => quoted(text),
        (Cell::Bytes(bytes), Dialect::Sqlite) => format!("x'{}'", hex(bytes)),
        (Cell::Bytes(bytes), Dialect::Postgres) => format!("'\\x{}'::bytea", hex(bytes)),
    }
}

/// Returns text as an SQL literal that contains no schema placeholder.
fn quoted(text: &str) -> String {
    let text = text.replace('\'', "''").replace('.', "'||'.'||'");
    format!("('{text}')")
}

/// A table that is derived from the ledgers.
#[derive(Debug, Clone)]
pub(crate) struct Derived {
    pub(crate) name: String,
    /// The columns of the primary key, quoted.
    pub(super) key: Vec<String>,
    /// The column with the organization.
    pub(super) org: &'static str,
}

impl Derived {
    /// Returns the columns of the primary key, separated by commas.
    pub(super) fn columns(&self) -> String {
        self.key.join(", ")
    }

    /// Returns a subquery for the rows that only one of the two tables has.
    pub(super) fn difference(&self, range: &OrgRange, dialect: Dialect) -> String {
        let Self { name, org, .. } = self;
        let range = range.has(org, dialect);
        let of = |schema: &str| format!("SELECT * FROM {schema}\"{name}\" WHERE {range}");
        let (stored, derived) = (of(SCHEMA), of(SCRATCH));
        format!(
            "(SELECT * FROM ({derived} EXCEPT {stored}) a UNION ALL SELECT * FROM ({stored} EXCEPT {derived}) b) x"
        )
    }
}

/// Rewrites the key of a row, a JSON array. Ids that PostgreSQL stores as bytes become text.
pub(super) fn key_with_ids(key: String) -> String {
    let as_text = |value: Value| {
        let digits = value.as_str().and_then(|text| text.strip_prefix("\\x"));
        let id = digits.and_then(|digits| {
            let group = |range| digits.get(range);
            let groups = [group(0..8)?, group(8..12)?, group(12..16)?, group(16..20)?, group(20..28)?];
            (digits.len() == 28).then(|| groups.join("-"))
        });
        id.map_or(value, Value::String)
    };
    match serde_json::from_str::<Vec<Value>>(&key) {
        Ok(values) => Value::Array(values.into_iter().map(as_text).collect()).to_string(),
        Err(_) => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_by_the_text_of_its_ids() {
        let table = [
            (
                r#"["\\x00000000000000000000000000ab", "aa", 7]"#,
                r#"["00000000-0000-0000-0000-000000ab","aa",7]"#,
            ),
            (r#"["\\x00ab", null]"#, r#"["\\x00ab",null]"#),
            ("damaged", "damaged"),
        ];
        for (key, named) in table {
            assert_eq!(key_with_ids(key.to_owned()), named);
        }
    }
}
