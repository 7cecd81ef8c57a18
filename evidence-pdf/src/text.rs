//! Turns any text into harmless lines that fit a width.
//!
//! Names and descriptions come from reporters and may contain anything: control characters, scripts that the
//! embedded typeface lacks, or 64 KiB without a space. A character that cannot be shown is replaced with a
//! visible box and counted, so that an audit document never hides one silently.

use super::{
    font::{REPLACEMENT, Typeface},
    style::Style,
};

/// The replacement of a tab.
const TAB: &str = "    ";

/// Characters after which a word that is too long for a line may be broken.
const BREAK_AFTER: [char; 12] = ['/', '-', '_', '.', ':', ',', ';', '@', '=', '&', '?', '+'];

/// The maximum printed length of a text, after which it is cut visibly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) chars: usize,
    pub(super) lines: usize,
}

impl Limit {
    /// For the title of the document; the full name is printed below.
    pub(super) const TITLE: Self = Self::new(160, 4);
    /// For a cell of a table.
    pub(super) const CELL: Self = Self::new(600, 40);
    /// For a value as wide as the page.
    pub(super) const VALUE: Self = Self::new(4_000, 120);
    /// For user data.
    pub(super) const DATA: Self = Self::new(6_000, 160);

    const fn new(chars: usize, lines: usize) -> Self {
        Self { chars, lines }
    }
}

/// A text prepared for printing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wrapped {
    pub(super) lines: Vec<String>,
    /// Number of characters shown as [`REPLACEMENT`].
    pub(super) replaced: usize,
}

/// Wraps a text into lines of a width.
pub(super) fn wrap(text: &str, typeface: &Typeface, style: Style, width: f32, limit: Limit) -> Wrapped {
    let shown = visible(&cut(text.trim_end(), limit), typeface);
    let mut lines = Lines::new(typeface, typeface.capacity(width, style.size));
    for line in shown.text.split('\n') {
        lines.add(line);
    }
    Wrapped { lines: lines.done, replaced: shown.replaced }
}

/// Returns a text as one line, shortened with an ellipsis to fit a width.
pub(super) fn shorten(text: &str, typeface: &Typeface, style: Style, width: f32) -> String {
    let shown = visible(text, typeface).text.replace('\n', " ");
    let capacity = typeface.capacity(width, style.size);
    if typeface.units(&shown) <= capacity {
        return shown;
    }
    let mut kept = String::new();
    let mut units = typeface.units("…");
    for c in shown.chars() {
        units = units.saturating_add(typeface.units(c.encode_utf8(&mut [0; 4])));
        if units > capacity {
            break;
        }
        kept.push(c);
    }
    format!("{}…", kept.trim_end())
}

/// Returns the number of characters of a text that cannot be shown.
pub(super) fn count_replaced(text: &str, typeface: &Typeface) -> usize {
    visible(text, typeface).replaced
}

/// Cuts a text at its limit and appends the number of hidden characters.
fn cut(text: &str, limit: Limit) -> String {
    let by_lines =
        text.match_indices('\n').nth(limit.lines.saturating_sub(1)).map_or(text.len(), |(at, _)| at);
    let by_chars = text.char_indices().nth(limit.chars).map_or(text.len(), |(at, _)| at);
    match text.split_at_checked(by_lines.min(by_chars)) {
        Some((shown, hidden)) if !hidden.is_empty() => {
            format!("{shown}… [cut here: {} more characters]", hidden.chars().count())
        }
        _ => text.to_owned(),
    }
}

struct Visible {
    text: String,
    replaced: usize,
}

/// Replaces characters without a visible form. The result has only glyphs, spaces and line feeds.
fn visible(text: &str, typeface: &Typeface) -> Visible {
    let mut shown = Visible { text: String::with_capacity(text.len()), replaced: 0 };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' => shown.text.push('\n'),
            '\t' => shown.text.push_str(TAB),
            c if is_space(c) => shown.text.push(' '),
            c if c == REPLACEMENT || (typeface.has(c) && !is_invisible(c)) => shown.text.push(c),
            _ => {
                shown.text.push(REPLACEMENT);
                shown.replaced += 1;
            }
        }
    }
    shown
}

/// Returns whether a character is a Unicode space (category Zs). All are printed as one plain space.
const fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}

/// Returns whether a character is invisible or changes how others are printed. Such characters could make two
/// names look alike.
const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{0}'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{fff0}'..='\u{fffc}'
    )
}

/// Wraps text greedily.
struct Lines<'a> {
    typeface: &'a Typeface,
    /// Width of a line in font units.
    capacity: u32,
    done: Vec<String>,
    current: String,
    units: u32,
}

impl<'a> Lines<'a> {
    fn new(typeface: &'a Typeface, capacity: u32) -> Self {
        Self { typeface, capacity, done: Vec::new(), current: String::new(), units: 0 }
    }

    /// Adds a line of the text, which becomes at least one printed line.
    fn add(&mut self, line: &str) {
        for word in line.split_inclusive(' ') {
            if self.typeface.units(word.trim_end()) <= self.capacity {
                self.push(word);
            } else {
                self.push_long(word);
            }
        }
        self.finish_line();
    }

    /// Adds a word wider than a line, broken after punctuation if possible.
    fn push_long(&mut self, word: &str) {
        for part in word.split_inclusive(BREAK_AFTER) {
            if self.typeface.units(part.trim_end()) <= self.capacity {
                self.push(part);
            } else {
                for c in part.chars() {
                    self.push(c.encode_utf8(&mut [0; 4]));
                }
            }
        }
    }

    fn push(&mut self, piece: &str) {
        let needed = self.typeface.units(piece.trim_end());
        let overflows = needed > 0 && self.units.saturating_add(needed) > self.capacity;
        if overflows && !self.current.is_empty() {
            self.finish_line();
        }
        self.current.push_str(piece);
        self.units = self.units.saturating_add(self.typeface.units(piece));
    }

    fn finish_line(&mut self) {
        self.done.push(self.current.trim_end().to_owned());
        self.current.clear();
        self.units = 0;
    }
}

/// Returns the note that explains replaced characters, or `None` if there were none.
pub(super) fn replacement_note(replaced: usize) -> Option<String> {
    let subject = match replaced {
        0 => return None,
        1 => "1 character not in the embedded font is".to_owned(),
        n => format!("{n} characters not in the embedded font are"),
    };
    Some(format!("{subject} shown as {REPLACEMENT}"))
}
