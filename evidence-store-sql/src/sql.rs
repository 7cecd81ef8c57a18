//! Statements in the words of both databases. House rules:
//!
//! - A table is named with its schema, `evidence.`: PostgreSQL has it under the name that the host chose, SQLite has none,
//!   and texts for SQLite alone may leave it out.
//! - A statement about one organization compares each table's `org` with `$1`; where a join repeats it, the planner must
//!   not choose by it.
//! - One text serves both databases where they agree. Where they do not, both stand side by side.
//! - Every look-up is a probe of an index, whatever the statistics say: a ledger's payload by a scalar subquery
//!   ([`payload!`](crate::sql::payload)), the things of a list one by one ([`for_each!`](crate::sql::for_each)). In SQLite
//!   `CROSS JOIN` keeps the order of the tables, and a plus (`+x.org = $1`) keeps a column from choosing the index; in
//!   PostgreSQL `OFFSET 0` keeps a subquery one, and `|| ''` matches the indexes over expressions that lists alone use.
//! - A row is written where a subquery found it (`ctid`) only where nobody else may have moved it, and by its organization
//!   besides: in another partition another row may lie at the same place.
//! - In PostgreSQL `environment`, `flow` and `report` are bytes in `snapshot`, `instance`, `deployment` and `run_origin`, and ids
//!   but those of organizations are text elsewhere: the former are bound as [`Value::Id`](crate::value::Value) and
//!   [`Value::Ids`](crate::value::Value), and where both meet, [`id_text!`](crate::sql::id_text) and [`id_bytes!`](crate::sql::id_bytes) make one of the other.
//! - Every value is bound. Texts are joined of constants alone.

use std::borrow::Cow;

/// Which database a statement is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// The schema in this crate's statements.
pub const SCHEMA: &str = "evidence.";

/// A statement, or a part of one, as each database has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sql {
    sqlite: &'static str,
    postgres: &'static str,
}

impl Sql {
    /// A text that serves both.
    pub(crate) const fn same(text: &'static str) -> Self {
        Self { sqlite: text, postgres: text }
    }

    /// A text for each.
    pub(crate) const fn each(sqlite: &'static str, postgres: &'static str) -> Self {
        Self { sqlite, postgres }
    }

    /// The text for a database, its tables in the schema [`SCHEMA`].
    pub(crate) const fn text(self, dialect: Dialect) -> &'static str {
        match dialect {
            Dialect::Sqlite => self.sqlite,
            Dialect::Postgres => self.postgres,
        }
    }
}

impl Dialect {
    /// A text of this crate with its tables in another schema, quoted or empty; as it is where that is the same.
    #[must_use]
    pub fn in_schema<'a>(text: impl Into<Cow<'a, str>>, schema: &str) -> Cow<'a, str> {
        let text = text.into();
        if schema == SCHEMA { text } else { Cow::Owned(text.replace(SCHEMA, schema)) }
    }
}

/// The time of PostgreSQL's clock, in microseconds.
macro_rules! clock {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    };
}
pub(crate) use clock;

/// Asks PostgreSQL for the time of its clock, in microseconds.
pub const CLOCK: &str = concat!("SELECT ", clock!());

/// The text of an id that PostgreSQL has as bytes.
macro_rules! id_text {
    ($id:literal) => {
        concat!(
            "overlay(overlay(overlay(overlay(encode(",
            $id,
            ", 'hex') PLACING '-' FROM 21 FOR 0) PLACING '-' FROM 17 FOR 0) PLACING '-' FROM 13 FOR 0)
                PLACING '-' FROM 9 FOR 0)"
        )
    };
}
pub(crate) use id_text;

/// The bytes of an id that PostgreSQL has as text.
macro_rules! id_bytes {
    ($id:literal) => {
        concat!("decode(replace(", $id, ", '-', ''), 'hex')")
    };
}
pub(crate) use id_bytes;

/// The payload of the fact of a row of the organization `$1`.
macro_rules! payload {
    ($row:literal) => {
        concat!(
            "(SELECT l.payload FROM evidence.ledger l WHERE l.org = $1 AND l.idx = ",
            $row,
            ".ledger_index)"
        )
    };
}
pub(crate) use payload;

/// The size of that payload, in bytes, 0 where the entry is missing. Neither database reads a text for its size.
macro_rules! payload_size {
    ($row:literal) => {
        concat!(
            "coalesce((SELECT octet_length(l.payload) FROM evidence.ledger l WHERE l.org = $1 AND l.idx = ",
            $row,
            ".ledger_index), 0)"
        )
    };
}
pub(crate) use payload_size;

/// A statement about the rows of `$1` whose column is in the list `$2`, each a probe of the index: what is selected of
/// them, the table, the column, the name of the row, and what comes after (`WHERE` or `ORDER BY`, perhaps).
macro_rules! for_each {
    ([$($select:tt)*], $table:literal, $column:literal, $row:literal, $after:literal) => {
        $crate::sql::Sql::each(
            concat!(
                "SELECT ", $($select)*, " FROM json_each($2) w CROSS JOIN evidence.", $table, " ", $row,
                " ON ", $row, ".org = $1 AND ", $row, ".", $column, " = w.value ", $after
            ),
            concat!(
                "SELECT ", $($select)*, " FROM UNNEST($2::text[]) AS w (value) CROSS JOIN LATERAL (
                    SELECT * FROM evidence.", $table, " WHERE org = $1 AND ", $column, " = w.value OFFSET 0) ", $row,
                " ", $after
            ),
        )
    };
}
pub(crate) use for_each;
