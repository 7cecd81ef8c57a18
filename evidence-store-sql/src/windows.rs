//! Time windows over rows that are numbered in the order of recording, and so by time. A window is a range of
//! numbers, and a binary search finds its ends. An index by time would be one more index to write for each
//! row.

use crate::sql::{Dialect, Sql};

/// A scalar: the number of the first row `b` that satisfies a condition and is not before a time. If all rows
/// are before it, this is the number after the last. The rows are numbered by an indexed column from `$first`
/// on, without gaps unless a row was lost. The next row then counts in its place. The greatest number is not
/// selected by `max`, for which PostgreSQL reads all rows if it estimates few. A damaged row without a number
/// is ignored; PostgreSQL sorts it last.
macro_rules! first_not {
    ($is_before:literal, $table:literal, $number:literal from $first:literal, $of:literal) => {
        concat!(
            "(WITH RECURSIVE half (low, size) AS (
                SELECT CAST(",
            $first,
            " AS bigint), coalesce((
                    SELECT b.",
            $number,
            " FROM ",
            $table,
            " b WHERE ",
            $of,
            " AND b.",
            $number,
            " IS NOT NULL ORDER BY b.",
            $number,
            " DESC LIMIT 1) + 1 - ",
            $first,
            ", 0)
                UNION ALL
                SELECT h.low + CASE WHEN (
                        SELECT ",
            $is_before,
            " FROM ",
            $table,
            " b WHERE ",
            $of,
            " AND b.",
            $number,
            " >= h.low + (h.size + 1) / 2 - 1 ORDER BY b.",
            $number,
            " LIMIT 1) THEN (h.size + 1) / 2 ELSE 0 END, h.size / 2
                FROM half h WHERE h.size > 0)
            SELECT h.low FROM half h WHERE h.size = 0)"
        )
    };
}
pub(crate) use first_not;

/// The condition that a column is in the window from `$4` to `$5`. The column is the number of rows `b`.
macro_rules! in_window {
    ($column:expr, $table:literal, $number:literal, $of:literal) => {
        concat!(
            $column,
            " >= ",
            crate::windows::first_not!("b.at < $4", $table, $number from "1", $of),
            " AND ",
            $column,
            " < ",
            crate::windows::first_not!("b.at <= $5", $table, $number from "1", $of)
        )
    };
}
pub(crate) use in_window;

/// A list that is numbered from 1 on.
pub(crate) struct Numbered {
    /// All rows, as `x`.
    pub(crate) all: Sql,
    /// The column.
    pub(crate) number: &'static str,
    /// The first number of the window from `$4` to `$5`, and the number after its last.
    pub(crate) window: [Sql; 2],
    /// The rows in the window.
    pub(crate) in_window: Sql,
    /// The order by number, greatest first.
    pub(crate) newest_first: Sql,
}

/// The number of rows between `bounds`.
pub(crate) const COUNT: &str = "CASE WHEN bounds.low < bounds.high THEN bounds.high - bounds.low ELSE 0 END";

impl Numbered {
    /// Returns a subquery with one row: the first number of the window as `low`, and the number after its
    /// last as `high`. The limit makes PostgreSQL compute each of them once.
    pub(crate) fn bounds(&self, dialect: Dialect) -> String {
        bounds(dialect, self.window)
    }
}

/// Returns the subquery of [`Numbered::bounds`] for two scalars.
pub(crate) fn bounds(dialect: Dialect, [first, end]: [Sql; 2]) -> String {
    format!("(SELECT {} AS low, {} AS high LIMIT 1)", first.text(dialect), end.text(dialect))
}

/// Creates a [`Numbered`] from a table, the condition on its rows `x`, the number column, and the condition
/// on rows `b`.
macro_rules! numbered {
    ($table:literal, $of_x:literal, $number:literal, $of_b:literal) => {
        crate::windows::Numbered {
            all: Sql::portable(concat!($table, " x WHERE ", $of_x)),
            number: concat!("x.", $number),
            newest_first: Sql::portable(concat!("x.", $number, " DESC")),
            window: [
                Sql::portable(crate::windows::first_not!("b.at < $4", $table, $number from "1", $of_b)),
                Sql::portable(crate::windows::first_not!("b.at <= $5", $table, $number from "1", $of_b)),
            ],
            in_window: Sql::portable(concat!(
                $table,
                " x WHERE ",
                $of_x,
                " AND ",
                crate::windows::in_window!(concat!("x.", $number), $table, $number, $of_b)
            )),
        }
    };
}
pub(crate) use numbered;
