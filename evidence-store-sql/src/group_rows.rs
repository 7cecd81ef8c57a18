//! The rows that a group writes, by table. Rows that later facts replace are written once.

use std::collections::BTreeMap;

use evidence_core::id::Id;
use evidence_core::time::Timestamp;

use crate::tables::TableWrite;
use crate::value::{Column, Value};

/// The position of the newest fact's index in a row of [`TableWrite::Trail`].
const LEDGER_INDEX: usize = 5;

/// The rows of one table.
#[derive(Debug, Default)]
struct TableRows {
    rows: Vec<Vec<Value>>,
    /// The position of each key's row, for tables whose rows are replaced.
    positions: BTreeMap<Vec<String>, usize>,
}

impl TableRows {
    fn row(&mut self, key: &[String]) -> Option<&mut Vec<Value>> {
        self.positions.get(key).and_then(|position| self.rows.get_mut(*position))
    }
}

/// Returns the key of a row: this many of its first values.
fn key(row: &[Value], key_columns: usize) -> Vec<String> {
    row.iter().take(key_columns).map(|value| format!("{value:?}")).collect()
}

/// The rows of a group, by table.
#[derive(Debug, Default)]
pub struct GroupRows {
    tables: BTreeMap<TableWrite, TableRows>,
    /// The time of the earliest clock correction by organization. No earlier row may have a later time.
    corrections: BTreeMap<Id, Timestamp>,
}

impl GroupRows {
    /// Adds a row: the table's columns in order. If a row with the same key exists, the later row replaces
    /// all but the unchanged columns.
    pub(crate) fn push(&mut self, table: TableWrite, row: Vec<Value>) {
        let of_table = self.tables.entry(table).or_default();
        if let Some((key_columns, unchanged_columns)) = table.replaces() {
            let key = key(&row, key_columns);
            if let Some(earlier) = of_table.row(&key) {
                earlier.splice(unchanged_columns.., row.into_iter().skip(unchanged_columns)).for_each(drop);
                return;
            }
            of_table.positions.insert(key, of_table.rows.len());
        }
        of_table.rows.push(row);
    }

    /// Sets the newest entry of a trail, which may have begun in this group.
    pub(crate) fn push_trail_revision(&mut self, row: Vec<Value>) {
        let key = key(&row, 2);
        match self.tables.get_mut(&TableWrite::Trail).and_then(|trails| trails.row(&key)) {
            Some(begun) => begun.splice(LEDGER_INDEX..=LEDGER_INDEX, row.into_iter().skip(2)).for_each(drop),
            None => self.push(TableWrite::TrailRevision, row),
        }
    }

    /// Sets back the times of an organization's rows that are later than `at`. Also registers the correction
    /// of the stored rows ([`Self::corrections`]).
    pub(crate) fn set_back(&mut self, org: Id, at: Timestamp) {
        let earliest = self.corrections.entry(org).or_insert(at);
        *earliest = at.min(*earliest);
        for table in TableWrite::DATED {
            let rows = self.tables.get_mut(&table).into_iter().flat_map(|of_table| &mut of_table.rows);
            for row in rows.filter(|row| matches!(row.first(), Some(Value::Org(of)) if *of == org)) {
                for (place, _) in table.times() {
                    if let Some(Value::Int(Some(time))) = row.get_mut(place) {
                        *time = at.as_micros().min(*time);
                    }
                }
            }
        }
    }

    /// Returns the statements that set stored times back, with their values, for tables of a schema. Run them
    /// before the rows are written. A single PostgreSQL statement would apply only one of two changes to a
    /// row; the times of the new rows are already correct.
    #[must_use]
    pub fn corrections(&self, schema: &str) -> Vec<(String, Vec<Value>)> {
        let of = |(org, at): (&Id, &Timestamp)| {
            let values = vec![Value::Org(*org), (*at).into()];
            Vec::from_iter(TableWrite::corrections(schema).map(|sql| (sql, values.clone())))
        };
        self.corrections.iter().flat_map(of).collect()
    }

    /// Returns the rows by table, in write order.
    pub fn tables(&self) -> impl Iterator<Item = (TableWrite, &[Vec<Value>])> {
        self.tables.iter().map(|(table, rows)| (*table, rows.rows.as_slice()))
    }

    /// Returns the organizations that the rows create.
    pub fn organizations(&self) -> impl Iterator<Item = Id> {
        let rows = self.tables.get(&TableWrite::Organization).into_iter().flat_map(|rows| &rows.rows);
        rows.filter_map(|row| match row.first() {
            Some(Value::Org(org)) => Some(*org),
            _ => None,
        })
    }

    /// Returns whether all rows belong to these tables.
    pub(crate) fn all_belong_to(&self, tables: &[TableWrite]) -> bool {
        self.tables.keys().all(|table| tables.contains(table))
    }

    /// Returns the parameters of PostgreSQL's statements for these tables. Tables without rows get empty
    /// columns.
    pub(crate) fn into_columns(mut self, tables: &[TableWrite], is_one: bool) -> Vec<Column> {
        let rows = tables.iter().map(|table| (table, self.tables.remove(table).unwrap_or_default().rows));
        rows.flat_map(|(table, rows)| table.transposed(rows, is_one)).collect()
    }
}
