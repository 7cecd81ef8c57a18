//! Places rows of cells on pages from top to bottom.
//!
//! Everything on a page is a [`Row`]: a heading, a name with its value, a row of a table. The [`Flow`] keeps
//! a row on one page if possible, and a heading on the page of its contents. It splits a row that is taller
//! than a page, and repeats the header of a table on each page.

use super::{
    ReportError,
    canvas::{Area, Canvas},
    document::Bookmark,
    style::{BADGE, BOTTOM, CONTENT_WIDTH, LINK, MARGIN, NOTE, RULE, Rgb, SECTION, Style, TOP, Tone, WHITE},
    text::{Limit, count_replaced, replacement_note, shorten, wrap},
};

/// A row up to this height moves to the next page as a whole; a taller one is split.
const KEEP_WHOLE: f32 = (BOTTOM - TOP) / 3.0;

/// Thickness of a hairline.
const HAIRLINE: f32 = 0.5;

/// Horizontal space between the edge of a badge and its word.
const BADGE_PADDING: f32 = 5.5;

/// The decoration of a line of text.
#[derive(Clone, Debug)]
enum Decoration {
    Plain,
    /// A rounded background of this colour.
    Badge(Rgb),
    /// A clickable link.
    Link(String),
}

/// One printed line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    text: String,
    style: Style,
    decoration: Decoration,
}

impl Line {
    /// Returns the distance from the top of the line to its baseline.
    fn baseline(&self) -> f32 {
        match self.decoration {
            Decoration::Badge(_) => self.style.size * 1.22,
            Decoration::Plain | Decoration::Link(_) => self.style.baseline(),
        }
    }

    fn height(&self) -> f32 {
        match self.decoration {
            Decoration::Badge(_) => self.style.size * 1.8,
            Decoration::Plain | Decoration::Link(_) => self.style.leading(),
        }
    }
}

/// The horizontal alignment of a cell in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Lines in one column.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// Distance from the left margin.
    pub(super) x: f32,
    pub(super) width: f32,
    pub(super) align: Align,
    pub(super) lines: Vec<Line>,
}

impl Cell {
    fn baseline(&self) -> f32 {
        self.lines.first().map_or(0.0, Line::baseline)
    }

    fn height(&self) -> f32 {
        self.lines.iter().map(Line::height).sum()
    }

    /// Removes and returns the lines that do not fit a height.
    fn split_off(&mut self, height: f32) -> Self {
        let mut used = 0.0;
        let fitting = self
            .lines
            .iter()
            .take_while(|line| {
                used += line.height();
                used <= height
            })
            .count();
        Self { lines: self.lines.split_off(fitting), ..*self }
    }
}

/// Cells side by side.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) cells: Vec<Cell>,
    pub(super) above: f32,
    pub(super) below: f32,
    pub(super) fill: Option<Rgb>,
    /// A hairline under the row.
    pub(super) rule: Option<Rgb>,
    /// A bar at the left edge.
    pub(super) accent: Option<Rgb>,
    /// The name of the row in the outline of the document.
    pub(super) bookmark: Option<String>,
}

impl Row {
    /// Returns empty space, which is dropped at the top of a page.
    pub(super) fn space(height: f32) -> Self {
        Self { above: height, ..Self::default() }
    }

    /// Returns the total height.
    pub(super) fn height(&self) -> f32 {
        let content = self.cells.iter().map(|cell| self.drop(cell) + cell.height()).fold(0.0, f32::max);
        self.above + content + self.below
    }

    /// Returns the offset of a cell within the row, so that the first lines share a baseline.
    fn drop(&self, cell: &Cell) -> f32 {
        self.baseline() - cell.baseline()
    }

    fn baseline(&self) -> f32 {
        self.cells.iter().map(Cell::baseline).fold(0.0, f32::max)
    }

    fn is_space(&self) -> bool {
        self.cells.is_empty()
    }

    /// Cuts the row so that it fits a height, and returns the rest; returns `None` if no line would fit.
    fn split_off(&mut self, height: f32) -> Option<Self> {
        let available = height - self.above - self.below;
        let first_lines = self
            .cells
            .iter()
            .filter_map(|cell| Some(self.drop(cell) + cell.lines.first()?.height()))
            .fold(0.0, f32::max);
        if first_lines > available {
            return None;
        }
        let baseline = self.baseline();
        let cells = self
            .cells
            .iter_mut()
            .map(|cell| cell.split_off(available - baseline + cell.baseline()))
            .collect();
        Some(Self { cells, ..self.clone() })
    }
}

/// A report in progress: its pages, and the position on the newest one.
#[derive(Debug)]
pub(super) struct Flow {
    canvas: Canvas,
    y: f32,
    /// Rows that are printed only together with the next row.
    held: Vec<Row>,
    /// Rows that are repeated at the top of each new page.
    repeated: Vec<Row>,
    /// Number of characters replaced since the last note.
    replaced: usize,
    bookmarks: Vec<Bookmark>,
    /// Number of section headings so far.
    sections: usize,
}

impl Flow {
    /// Creates a flow at the top of its first page.
    pub(super) fn new() -> Result<Self, ReportError> {
        let mut canvas = Canvas::new()?;
        canvas.start_page();
        Ok(Self {
            canvas,
            y: TOP,
            held: Vec::new(),
            repeated: Vec::new(),
            replaced: 0,
            bookmarks: Vec::new(),
            sections: 0,
        })
    }

    /// Ends the flow and returns its pages and headings.
    pub(super) fn finish(mut self) -> (Canvas, Vec<Bookmark>) {
        self.release(0.0);
        (self.canvas, self.bookmarks)
    }

    /// Returns the lines of a text in a column.
    pub(super) fn lines(&mut self, text: &str, style: Style, width: f32, limit: Limit) -> Vec<Line> {
        let typeface = self.canvas.fonts.get(style.face);
        let wrapped = wrap(text, typeface, style, width, limit);
        self.replaced += wrapped.replaced;
        wrapped.lines.into_iter().map(|text| Line { text, style, decoration: Decoration::Plain }).collect()
    }

    /// Returns the lines of a text, as a link if it is a plain web address.
    pub(super) fn link_lines(&mut self, url: &str, style: Style, width: f32) -> Vec<Line> {
        if !is_web_address(url) {
            return self.lines(url, style, width, Limit::VALUE);
        }
        let mut lines = self.lines(url, style.colored(LINK), width, Limit::VALUE);
        for line in &mut lines {
            line.decoration = Decoration::Link(url.to_owned());
        }
        lines
    }

    /// Returns one line of text, shortened to the column.
    pub(super) fn short_line(&self, text: &str, style: Style, width: f32) -> Line {
        let typeface = self.canvas.fonts.get(style.face);
        Line { text: shorten(text, typeface, style, width), style, decoration: Decoration::Plain }
    }

    /// Returns a word in the colour of its meaning, on a light background.
    pub(super) fn badge(&mut self, word: &str, tone: Tone, width: f32) -> Line {
        let style = BADGE.colored(tone.solid());
        self.replaced += count_replaced(word, self.canvas.fonts.get(style.face));
        Line {
            decoration: Decoration::Badge(tone.tint()),
            ..self.short_line(word, style, width - 2.0 * BADGE_PADDING)
        }
    }

    /// Returns a white word on a background in the colour of its meaning.
    pub(super) fn solid_badge(&self, word: &str, tone: Tone, style: Style, width: f32) -> Line {
        Line {
            decoration: Decoration::Badge(tone.solid()),
            ..self.short_line(word, style.colored(WHITE), width - 2.0 * BADGE_PADDING)
        }
    }

    /// Holds a row until the next one is placed, so that both are on one page.
    pub(super) fn hold(&mut self, row: Row) {
        match self.held.last_mut() {
            Some(last) if last.is_space() && row.is_space() => {
                last.above = last.above.max(row.above);
            }
            _ => self.held.push(row),
        }
    }

    /// Adds a numbered heading, which stays with its contents and is listed in the outline.
    pub(super) fn section(&mut self, title: &str) {
        self.sections += 1;
        let title = format!("{}  {title}", self.sections);
        let lines = self.lines(&title, SECTION, CONTENT_WIDTH, Limit::CELL);
        self.hold(Row::space(22.0));
        self.hold(Row {
            cells: vec![full_width(lines)],
            below: 5.0,
            rule: Some(RULE),
            bookmark: Some(title),
            ..Row::default()
        });
        self.hold(Row::space(7.0));
    }

    /// Places a row after the held rows.
    pub(super) fn place(&mut self, row: Row) {
        self.release(row.height());
        self.place_in_parts(row);
    }

    /// Places rows that belong together: on one page, unless they are tall.
    pub(super) fn place_together(&mut self, rows: Vec<Row>) {
        self.release(rows.iter().map(Row::height).sum());
        for row in rows {
            self.place_in_parts(row);
        }
    }

    /// Places the rows of a table under a header that is repeated on each page.
    pub(super) fn table(&mut self, header: Row, rows: Vec<Row>) {
        self.hold(header.clone());
        self.release(rows.first().map_or(0.0, Row::height));
        self.repeated.push(header);
        for row in rows {
            self.place(row);
        }
        self.repeated.pop();
    }

    /// Places the rows that follow a heading, then calls `content`. Later pages that they reach start with
    /// `reminder`.
    pub(super) fn card(&mut self, reminder: Row, rows: Vec<Row>, content: impl FnOnce(&mut Self)) {
        self.release(rows.iter().map(Row::height).sum());
        self.repeated.push(reminder);
        for row in rows {
            self.place_in_parts(row);
        }
        content(self);
        self.repeated.pop();
    }

    /// Places a note with the number of characters that could not be shown since the last note.
    pub(super) fn note_replacements(&mut self) {
        let Some(note) = replacement_note(std::mem::take(&mut self.replaced)) else {
            return;
        };
        let lines = self.lines(&note, NOTE, CONTENT_WIDTH, Limit::VALUE);
        self.place(Row { cells: vec![full_width(lines)], above: 5.0, ..Row::default() });
    }

    /// Reserves a height and prints the held rows.
    fn release(&mut self, next: f32) {
        let held = std::mem::take(&mut self.held);
        self.reserve(next.min(KEEP_WHOLE) + held.iter().map(Row::height).sum::<f32>());
        for row in held {
            self.draw(&row);
        }
    }

    fn reserve(&mut self, height: f32) {
        if height > BOTTOM - self.y {
            self.start_page();
        }
    }

    fn start_page(&mut self) {
        self.canvas.start_page();
        self.y = TOP;
        let repeated = std::mem::take(&mut self.repeated);
        for row in &repeated {
            self.draw(row);
        }
        self.repeated = repeated;
    }

    /// Draws a row, on as many pages as it needs.
    fn place_in_parts(&mut self, mut row: Row) {
        let mut fresh_page = false;
        while row.height() > BOTTOM - self.y {
            match row.split_off(BOTTOM - self.y) {
                Some(rest) => {
                    self.draw(&row);
                    row = rest;
                }
                // A line taller than an empty page does not fit on any page.
                None if fresh_page => break,
                None => {}
            }
            self.start_page();
            fresh_page = true;
        }
        self.draw(&row);
    }

    fn draw(&mut self, row: &Row) {
        if row.is_space() && self.y <= TOP {
            return;
        }
        if let Some(title) = row.bookmark.clone() {
            let page = self.canvas.page_count();
            self.bookmarks.push(Bookmark { title, page });
        }
        let height = row.height();
        let area = Area { x: MARGIN, y: self.y, width: CONTENT_WIDTH, height };
        if let Some(color) = row.fill {
            self.canvas.rectangle(area, color);
        }
        if let Some(color) = row.accent {
            let width = 2.5;
            self.canvas.rectangle(Area { width, ..area }, color);
        }
        if let Some(color) = row.rule {
            let rule = Area { y: self.y + height - HAIRLINE, height: HAIRLINE, ..area };
            self.canvas.rectangle(rule, color);
        }
        for cell in &row.cells {
            self.draw_cell(cell, self.y + row.above + row.drop(cell));
        }
        self.y += height;
    }

    fn draw_cell(&mut self, cell: &Cell, top: f32) {
        let mut y = top;
        for line in &cell.lines {
            let width = self.canvas.width(&line.text, line.style);
            let padding = match line.decoration {
                Decoration::Badge(_) => BADGE_PADDING,
                Decoration::Plain | Decoration::Link(_) => 0.0,
            };
            let x = match cell.align {
                Align::Left => MARGIN + cell.x + padding,
                Align::Right => MARGIN + cell.x + cell.width - width - padding,
            };
            self.draw_line(line, x, y, width);
            y += line.height();
        }
    }

    fn draw_line(&mut self, line: &Line, x: f32, y: f32, width: f32) {
        let size = line.style.size;
        match &line.decoration {
            Decoration::Plain => {}
            Decoration::Badge(color) => {
                let area =
                    Area { x: x - BADGE_PADDING, y, width: width + 2.0 * BADGE_PADDING, height: size * 1.7 };
                self.canvas.rounded(area, size * 0.4, *color);
            }
            Decoration::Link(url) => {
                let height = line.height();
                let area = Area { x, y, width, height };
                self.canvas.link(area, url);
            }
        }
        self.canvas.text(x, y + line.baseline(), &line.text, line.style);
    }
}

/// Returns a cell of the whole width.
pub(super) const fn full_width(lines: Vec<Line>) -> Cell {
    Cell { x: 0.0, width: CONTENT_WIDTH, align: Align::Left, lines }
}

/// Returns whether a text may become a link: `http` or `https`, at most 2,000 bytes, and only visible ASCII
/// characters.
fn is_web_address(url: &str) -> bool {
    (url.starts_with("https://") || url.starts_with("http://"))
        && url.len() <= 2_000
        && url.bytes().all(|byte| byte.is_ascii_graphic())
}
