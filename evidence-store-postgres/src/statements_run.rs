//! The statements that ran in this process, for tests of their plans.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use evidence_store_sql::{Column, Value};

use crate::schema::Schema;

/// Statements, with the types of their values.
pub(crate) type Statements = BTreeMap<String, Vec<&'static str>>;

/// The statements that ran in this process, by schema.
static RUN: Mutex<BTreeMap<String, Statements>> = Mutex::new(BTreeMap::new());

/// Records a statement.
pub(crate) fn note(schema: &Schema, sql: &str, values: &[Value]) {
    let types = values.iter().flat_map(|value| match value {
        Value::Text(_) => vec!["text"],
        Value::Int(_) => vec!["bigint"],
        Value::Bool(_) => vec!["boolean"],
        Value::Bytes(_) | Value::Org(_) | Value::NoOrg | Value::Id(_) => vec!["bytea"],
        Value::Ids(_) => vec!["bytea[]"],
        Value::Texts(_) => vec!["text[]"],
        Value::Ints(_) => vec!["bigint[]"],
        Value::Columns(columns) => columns.iter().map(of_column).collect(),
    });
    let mut run = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    run.entry(schema.name().to_owned()).or_default().insert(sql.to_owned(), types.collect());
}

/// Returns the statements that ran in these schemas.
pub(crate) fn run_in<'s>(schemas: impl IntoIterator<Item = &'s str>) -> Statements {
    let run = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    schemas.into_iter().filter_map(|schema| run.get(schema).cloned()).flatten().collect()
}

fn of_column(column: &Column) -> &'static str {
    match column {
        Column::Texts(_) => "text[]",
        Column::Ints(_) => "bigint[]",
        Column::Bools(_) => "boolean[]",
        Column::Bytes(_) | Column::Orgs(_) | Column::Ids(_) => "bytea[]",
    }
}
