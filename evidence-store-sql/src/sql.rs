//! SQL for both databases. House rules:
//!
//! - Tables are named with the schema `evidence.`. PostgreSQL replaces it with the schema that the host
//!   configured; SQLite has no schema, so texts for SQLite alone may omit it.
//! - A statement about one organization compares the `org` of each table with `$1`. If a join repeats that
//!   condition, the planner must not choose an index by it.
//! - One text serves both databases if they agree. Otherwise both texts stand next to each other.
//! - Every lookup is an index probe, whatever the statistics are. The payload of a ledger entry is a scalar
//!   subquery ([`payload!`](crate::sql::payload)); the items of a list are probed one by one
//!   ([`for_each!`](crate::sql::for_each)). In SQLite, `CROSS JOIN` fixes the order of the tables, and a plus
//!   (`+x.org = $1`) excludes a column from the choice of an index. In PostgreSQL, `OFFSET 0` prevents
//!   flattening of a subquery, and `|| ''` matches the expression indexes that only lists use.
//! - A write addresses a row by the position that a subquery returned (`ctid`) only if no other writer can
//!   have moved the row. It also compares the organization, because another partition may have a different
//!   row at the same position.
//! - In PostgreSQL, the columns `environment`, `flow` and `report` of `snapshot`, `instance`, `deployment`
//!   and `run_origin` are bytes. All other ids except those of organizations are text. Byte ids are bound as
//!   [`Value::Id`](crate::value::Value) and [`Value::Ids`](crate::value::Value). To compare both forms,
//!   convert with [`id_text!`](crate::sql::id_text) or [`id_bytes!`](crate::sql::id_bytes).
//! - Every value is bound. SQL text is concatenated from constants only.

use std::borrow::Cow;

/// The SQL dialect of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// The schema prefix in the statements of this crate.
pub const SCHEMA: &str = "evidence.";

/// A statement, or a part of one, for each database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sql {
    sqlite: &'static str,
    postgres: &'static str,
}

impl Sql {
    /// Uses the same text for both databases.
    pub(crate) const fn portable(text: &'static str) -> Self {
        Self { sqlite: text, postgres: text }
    }

    /// Uses a separate text for each database.
    pub(crate) const fn per_dialect(sqlite: &'static str, postgres: &'static str) -> Self {
        Self { sqlite, postgres }
    }

    /// Returns the text for a database, with its tables in the schema [`SCHEMA`].
    pub(crate) const fn text(self, dialect: Dialect) -> &'static str {
        match dialect {
            Dialect::Sqlite => self.sqlite,
            Dialect::Postgres => self.postgres,
        }
    }
}

impl Dialect {
    /// Moves the tables of a statement to another schema. `schema` is the quoted prefix, or empty. Borrows
    /// the text if the schema is [`SCHEMA`].
    #[must_use]
    pub fn in_schema<'a>(text: impl Into<Cow<'a, str>>, schema: &str) -> Cow<'a, str> {
        let text = text.into();
        if schema == SCHEMA { text } else { Cow::Owned(text.replace(SCHEMA, schema)) }
    }
}

/// The current time of PostgreSQL's clock, in microseconds.
macro_rules! clock {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    };
}
pub(crate) use clock;

/// Selects the current time of PostgreSQL's clock, in microseconds.
pub const CLOCK: &str = concat!("SELECT ", clock!());

/// Converts an id that PostgreSQL stores as bytes to text.
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

/// Converts an id that PostgreSQL stores as text to bytes.
macro_rules! id_bytes {
    ($id:literal) => {
        concat!("decode(replace(", $id, ", '-', ''), 'hex')")
    };
}
pub(crate) use id_bytes;

/// Selects the payload of a row's fact, in the organization `$1`.
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

/// Selects the size of a row's payload in bytes, or 0 if the ledger entry is missing. Neither database reads
/// the text to compute its size.
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

/// Selects the rows of the organization `$1` whose column is in the list `$2`; each item is one index probe.
/// Arguments: the selected expressions, the table, the column, the alias of the row, and trailing SQL such as
/// `WHERE` or `ORDER BY`.
macro_rules! for_each {
    ([$($select:tt)*], $table:literal, $column:literal, $row:literal, $after:literal) => {
        $crate::sql::Sql::per_dialect(
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
