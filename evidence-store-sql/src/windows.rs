//! Windows of time in what is numbered as it was recorded, and so by time: a window is a range of numbers, whose ends are looked
//! for by halves of the numbers that are left. An index by time would be one more that each row is written to.

use crate::sql::{Dialect, Sql};

/// Of the rows `b` of a table that a condition admits the number of the first that is not before, a scalar; the one after the
/// last where all are. They are numbered from `$first` on, by a column of an index, and without gaps unless a row was lost: for
/// that one the next one counts. The greatest is not asked for by `max`, for which PostgreSQL reads all where it thinks them few,
/// and a damaged row without a number, which PostgreSQL has last, is none.
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

/// The condition that rows lie in the window from `$4` to `$5`: a column of theirs, and of which rows `b` it is the number.
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

/// What is numbered from 1 on.
pub(crate) struct Numbered {
    /// All of it, as `x`.
    pub(crate) all: Sql,
    /// The column.
    pub(crate) number: &'static str,
    /// The first number of the window from `$4` to `$5`, and the one after its last.
    pub(crate) window: [Sql; 2],
    /// What lies in the window.
    pub(crate) in_window: Sql,
    /// The order of the numbers, the greatest first.
    pub(crate) newest_first: Sql,
}

/// How many there are between `bounds`.
pub(crate) const COUNT: &str = "CASE WHEN bounds.low < bounds.high THEN bounds.high - bounds.low ELSE 0 END";

impl Numbered {
    /// One row, with the first number of the window as `low` and the one after its last as `high`. By the limit PostgreSQL
    /// looks for each of them once.
    pub(crate) fn bounds(&self, dialect: Dialect) -> String {
        bounds(dialect, self.window)
    }
}

/// The same, of these two scalars.
pub(crate) fn bounds(dialect: Dialect, [first, end]: [Sql; 2]) -> String {
    format!("(SELECT {} AS low, {} AS high LIMIT 1)", first.text(dialect), end.text(dialect))
}

/// What a [`Numbered`] is made of: the rows `x` of a table that a condition admits, the column, and the condition for rows `b`.
macro_rules! numbered {
    ($table:literal, $of_x:literal, $number:literal, $of_b:literal) => {
        crate::windows::Numbered {
            all: Sql::same(concat!($table, " x WHERE ", $of_x)),
            number: concat!("x.", $number),
            newest_first: Sql::same(concat!("x.", $number, " DESC")),
            window: [
                Sql::same(crate::windows::first_not!("b.at < $4", $table, $number from "1", $of_b)),
                Sql::same(crate::windows::first_not!("b.at <= $5", $table, $number from "1", $of_b)),
            ],
            in_window: Sql::same(concat!(
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
