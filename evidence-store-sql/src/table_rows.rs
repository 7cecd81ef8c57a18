//! The rows that a group writes, table by table: each that a later fact replaces, once.

use std::collections::BTreeMap;

use evidence_core::id::Id;
use evidence_core::time::Timestamp;

use crate::tables::TableWrite;
use crate::value::{Column, Value};

/// Where a row of [`TableWrite::Trail`] has the index of its newest fact.
const LEDGER_INDEX: usize = 5;

/// The rows of one table.
#[derive(Debug, Default)]
struct TableRows {
    rows: Vec<Vec<Value>>,
    /// Where the row of a key is, for tables whose rows are replaced.
    positions: BTreeMap<Vec<String>, usize>,
}

impl TableRows {
    fn row(&mut self, key: &[String]) -> Option<&mut Vec<Value>> {
        self.positions.get(key).and_then(|position| self.rows.get_mut(*position))
    }
}

/// What tells a row apart: so many of its first values.
fn key(row: &[Value], key_columns: usize) -> Vec<String> {
    row.iter().take(key_columns).map(|value| format!("{value:?}")).collect()
}

/// The rows of a group, by table.
#[derive(Debug, Default)]
pub struct Rows {
    tables: BTreeMap<TableWrite, TableRows>,
    /// By organization the time that no earlier row may be later than: that of the earliest correction of a clock.
    corrections: BTreeMap<Id, Timestamp>,
}

impl Rows {
    /// Adds a row: the table's columns in their order. Of two rows with the same key the later one wins, but for its
    /// unchanged columns.
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

    /// Adds what makes an entry the newest about a trail, which may have begun in this group.
    pub(crate) fn push_trail_revision(&mut self, row: Vec<Value>) {
        let key = key(&row, 2);
        match self.tables.get_mut(&TableWrite::Trail).and_then(|trails| trails.row(&key)) {
            Some(begun) => begun.splice(LEDGER_INDEX..=LEDGER_INDEX, row.into_iter().skip(2)).for_each(drop),
            None => self.push(TableWrite::TrailRevision, row),
        }
    }

    /// Sets back the times of the rows of an organization that are later than this, also of those that are stored already
    /// ([`Self::corrections`]).
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

    /// The statements that set stored times back, with their values, for tables of a schema. They come before the rows, whose
    /// times are right already: a statement that did both would change a row twice, of which PostgreSQL does one.
    #[must_use]
    pub fn corrections(&self, schema: &str) -> Vec<(String, Vec<Value>)> {
        let of = |(org, at): (&Id, &Timestamp)| {
            let values = vec![Value::Org(*org), (*at).into()];
            Vec::from_iter(TableWrite::corrections(schema).map(|sql| (sql, values.clone())))
        };
        self.corrections.iter().flat_map(of).collect()
    }

    /// The rows, table by table, in the order in which they are to be written.
    pub fn tables(&self) -> impl Iterator<Item = (TableWrite, &[Vec<Value>])> {
        self.tables.iter().map(|(table, rows)| (*table, rows.rows.as_slice()))
    }

    /// The organizations that they make.
    pub fn organizations(&self) -> impl Iterator<Item = Id> {
        let rows = self.tables.get(&TableWrite::Organization).into_iter().flat_map(|rows| &rows.rows);
        rows.filter_map(|row| match row.first() {
            Some(Value::Org(org)) => Some(*org),
            _ => None,
        })
    }

    /// Whether all are of these tables.
    pub(crate) fn are_of(&self, tables: &[TableWrite]) -> bool {
        self.tables.keys().all(|table| tables.contains(table))
    }

    /// For PostgreSQL: the parameters of the statements that write these tables, of which some may have no rows.
    pub(crate) fn into_columns(mut self, tables: &[TableWrite], is_one: bool) -> Vec<Column> {
        let rows = tables.iter().map(|table| (table, self.tables.remove(table).unwrap_or_default().rows));
        rows.flat_map(|(table, rows)| table.transposed(rows, is_one)).collect()
    }
}
