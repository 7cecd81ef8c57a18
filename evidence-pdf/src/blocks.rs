//! The two patterns that every section uses: named values and tables.

use super::{
    layout::{Align, Cell, Flow, Line, Row, full_width},
    style::{
        BODY, CELL, CELL_HEAD, CELL_MUTED, CELL_STRONG, CODE, CONTENT_WIDTH, HEADER_FILL, LABEL, NOTE, PANEL,
        RULE, STRONG, SUBSECTION, Style, Tone,
    },
    text::Limit,
};
use evidence_values::time::Timestamp;

/// Printed in a table cell without a value.
const NOTHING: &str = "–";

/// Horizontal position of the values of named values.
const VALUE_X: f32 = 100.0;

/// Space to the left of the first column of a table, and between columns.
const GUTTER: f32 = 7.0;

/// A value to print beside a name or in a table.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    /// Plain text.
    Text(&'a str),
    /// Text created for the report, such as a time or a number.
    Made(String),
    /// Emphasized text.
    Strong(&'a str),
    /// Emphasized text, with a remark under it.
    Remarked(&'a str, &'a str),
    /// A hash, in small type.
    Hash(&'a str),
    /// A web address.
    Link(&'a str),
    /// A word in the colour of its meaning.
    Badge(&'a str, Tone),
    /// A word created for the report, in the colour of its meaning.
    MadeBadge(String, Tone),
}

impl Value<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Text(text)
            | Self::Strong(text)
            | Self::Remarked(text, _)
            | Self::Hash(text)
            | Self::Link(text)
            | Self::Badge(text, _) => text,
            Self::Made(text) | Self::MadeBadge(text, _) => text,
        }
    }

    fn is_empty(&self) -> bool {
        self.text().trim().is_empty()
    }

    fn lines(&self, flow: &mut Flow, width: f32, look: &Look) -> Vec<Line> {
        let text = self.text();
        match self {
            Self::Text(_) | Self::Made(_) => flow.lines(text, look.plain, width, look.limit),
            Self::Strong(_) => flow.lines(text, look.strong, width, look.limit),
            Self::Remarked(_, remark) => {
                let mut lines = flow.lines(text, look.strong, width, look.limit);
                lines.extend(flow.lines(remark, CELL_MUTED, width, look.limit));
                lines
            }
            Self::Hash(_) => flow.lines(text, look.hash, width, look.limit),
            Self::Link(_) => flow.link_lines(text, look.plain, width),
            Self::Badge(_, tone) | Self::MadeBadge(_, tone) => {
                vec![flow.badge(text, *tone, width)]
            }
        }
    }
}

/// Type sizes and text limit of values in one kind of place.
struct Look {
    plain: Style,
    strong: Style,
    hash: Style,
    limit: Limit,
}

const FIELD_LOOK: Look = Look { plain: BODY, strong: STRONG, hash: BODY, limit: Limit::VALUE };

const CELL_LOOK: Look = Look { plain: CELL, strong: CELL_STRONG, hash: CODE, limit: Limit::CELL };

/// Returns named values, one below another; empty values are omitted.
pub(super) fn fields(flow: &mut Flow, indent: f32, fields: &[(&str, Value<'_>)]) -> Vec<Row> {
    fields
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(label, value)| field(flow, indent, label, value))
        .collect()
}

fn field(flow: &mut Flow, indent: f32, label: &str, value: &Value<'_>) -> Row {
    let label_width = VALUE_X - indent - GUTTER;
    let value_width = CONTENT_WIDTH - VALUE_X - GUTTER;
    let cells = vec![
        Cell {
            x: indent,
            width: label_width,
            align: Align::Left,
            lines: flow.lines(label, LABEL, label_width, Limit::CELL),
        },
        Cell {
            x: VALUE_X,
            width: value_width,
            align: Align::Left,
            lines: value.lines(flow, value_width, &FIELD_LOOK),
        },
    ];
    Row { cells, above: 1.4, below: 1.4, ..Row::default() }
}

/// A column of a table.
#[derive(Debug)]
pub(super) struct Column {
    title: &'static str,
    width: f32,
    align: Align,
}

/// Returns a column of text.
pub(super) const fn left(title: &'static str, width: f32) -> Column {
    Column { title, width, align: Align::Left }
}

/// Returns a column of numbers.
pub(super) const fn right(title: &'static str, width: f32) -> Column {
    Column { title, width, align: Align::Right }
}

/// The columns of a table.
#[derive(Debug)]
pub(super) struct Table<const N: usize>(pub(super) [Column; N]);

impl<const N: usize> Table<N> {
    /// Returns the row of column titles.
    pub(super) fn header(&self, flow: &mut Flow) -> Row {
        Row {
            cells: self.cells(|column, width| flow.lines(column.title, CELL_HEAD, width, Limit::CELL)),
            above: 3.2,
            below: 3.4,
            fill: Some(HEADER_FILL),
            ..Row::default()
        }
    }

    /// Returns one row of values.
    pub(super) fn row(&self, flow: &mut Flow, values: [Value<'_>; N]) -> Row {
        let mut values = values.into_iter();
        Row {
            cells: self.cells(|_, width| {
                let value = values.next().filter(|value| !value.is_empty());
                value.unwrap_or(Value::Text(NOTHING)).lines(flow, width, &CELL_LOOK)
            }),
            above: 3.4,
            below: 3.8,
            rule: Some(RULE),
            ..Row::default()
        }
    }

    /// Places the whole table.
    pub(super) fn place(&self, flow: &mut Flow, rows: Vec<Row>) {
        let header = self.header(flow);
        flow.table(header, rows);
    }

    fn cells(&self, mut lines: impl FnMut(&Column, f32) -> Vec<Line>) -> Vec<Cell> {
        let mut x = GUTTER;
        self.0
            .iter()
            .map(|column| {
                let width = column.width - GUTTER;
                let cell = Cell { x, width, align: column.align, lines: lines(column, width) };
                x += column.width;
                cell
            })
            .collect()
    }
}

/// Holds a heading within a section until its contents are placed.
pub(super) fn subheading(flow: &mut Flow, title: &str) {
    let lines = flow.lines(title, SUBSECTION, CONTENT_WIDTH, Limit::CELL);
    flow.hold(Row::space(14.0));
    flow.hold(Row { cells: vec![full_width(lines)], below: 3.5, ..Row::default() });
}

/// Returns a small heading inside an attestation or artifact, aligned with the names of its values.
pub(super) fn caption(flow: &mut Flow, title: &str) -> Row {
    let lines = flow.lines(title, CELL_HEAD, CONTENT_WIDTH, Limit::CELL);
    Row { cells: vec![inset(lines)], above: 6.0, below: 2.5, ..Row::default() }
}

/// Returns a remark in small type.
pub(super) fn note(flow: &mut Flow, text: &str) -> Row {
    let lines = flow.lines(text, NOTE, CONTENT_WIDTH, Limit::VALUE);
    Row { cells: vec![full_width(lines)], below: 3.0, ..Row::default() }
}

/// Places a remark instead of the contents of a section.
pub(super) fn place_note(flow: &mut Flow, text: &str) {
    let note = note(flow, text);
    flow.place(note);
}

/// Returns a block of preformatted text on a light background.
pub(super) fn code(flow: &mut Flow, text: &str) -> Row {
    let width = CONTENT_WIDTH - 2.0 * INSET;
    let lines = flow.lines(text, CODE, width, Limit::DATA);
    Row { cells: vec![inset(lines)], above: 4.0, below: 5.0, fill: Some(PANEL), ..Row::default() }
}

/// Distance from the margin to the contents of an attestation or artifact.
pub(super) const INSET: f32 = GUTTER;

fn inset(lines: Vec<Line>) -> Cell {
    Cell { x: INSET, width: CONTENT_WIDTH - 2.0 * INSET, align: Align::Left, lines }
}

/// The heading of an attestation or artifact: its name, a remark, and its state on the right.
pub(super) struct CardHeading<'a> {
    pub(super) name: &'a str,
    pub(super) remark: &'a str,
    pub(super) state: &'a str,
    pub(super) tone: Tone,
}

impl CardHeading<'_> {
    /// Holds the heading until its contents are placed.
    pub(super) fn hold(&self, flow: &mut Flow) {
        const NAME_WIDTH: f32 = 290.0;
        const REMARK_WIDTH: f32 = 90.0;
        const STATE_WIDTH: f32 = 95.0;
        let remark = flow.lines(self.remark, CELL_MUTED, REMARK_WIDTH, Limit::CELL);
        let state = flow.badge(self.state, self.tone, STATE_WIDTH);
        let cell = |x, width, align, lines| Cell { x, width, align, lines };
        let name = flow.lines(self.name, SUBSECTION, NAME_WIDTH, Limit::CELL);
        flow.hold(Row::space(13.0));
        flow.hold(Row {
            cells: vec![
                cell(INSET, NAME_WIDTH, Align::Left, name),
                cell(306.0, REMARK_WIDTH, Align::Left, remark),
                cell(CONTENT_WIDTH - STATE_WIDTH - GUTTER, STATE_WIDTH, Align::Right, vec![state]),
            ],
            above: 3.0,
            below: 3.0,
            fill: Some(PANEL),
            accent: Some(self.tone.solid()),
            ..Row::default()
        });
        flow.hold(Row::space(2.5));
    }

    /// Returns the row that repeats the heading on later pages.
    pub(super) fn reminder(&self, flow: &Flow) -> Row {
        let name = flow.short_line(self.name, CELL_HEAD, 380.0);
        let continued = flow.short_line("continued", CELL_MUTED, 80.0);
        let mut row = Row {
            cells: vec![inset(vec![name]), inset(vec![continued])],
            above: 2.0,
            below: 3.0,
            fill: Some(PANEL),
            accent: Some(self.tone.solid()),
            ..Row::default()
        };
        if let Some(cell) = row.cells.last_mut() {
            cell.align = Align::Right;
        }
        row
    }
}

/// Formats a time as `2026-11-20 14:03:22 UTC`.
pub(super) fn utc(at: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(at.as_micros()).map_or_else(
        |_| format!("{} µs since 1970-01-01 UTC", at.as_micros()),
        |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

/// Formats a time that may be unknown; an unknown time is empty.
pub(super) fn utc_if_known(at: Option<Timestamp>) -> String {
    at.map(utc).unwrap_or_default()
}

/// Formats a time and the person, omitting whichever is unknown.
pub(super) fn when_and_who(at: Option<Timestamp>, who: &str) -> String {
    match (utc_if_known(at), who.trim()) {
        (time, "") => time,
        (time, who) if time.is_empty() => who.to_owned(),
        (time, who) => format!("{time} by {who}"),
    }
}

/// Formats a whole number with a comma between thousands.
pub(super) fn grouped(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(1 + digits.len() + digits.len() / 3);
    if number < 0 {
        text.push('-');
    }
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
