//! CSV files (RFC 4180) whose rows are generated while they are sent.

use futures_util::stream::{BoxStream, Stream, StreamExt};
use schemars::{Schema, SchemaGenerator};

use super::stream::TextChunks;
use super::{Answer, AnswerBody, Header, Raw, Reply, Streamed};
use crate::compute::{Compute, Progress};
use crate::error::Result;

/// A CSV file to download, with status 200. A failure before the first piece is sent has an error status; a
/// later one aborts the connection.
pub struct Csv {
    file_name: String,
    text: BoxStream<'static, Result<Vec<u8>>>,
}

impl std::fmt::Debug for Csv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Csv").field("file_name", &self.file_name).finish_non_exhaustive()
    }
}

impl Csv {
    /// The headers of its responses.
    pub const HEADERS: &'static [&'static str] = &["Content-Disposition"];

    /// Creates a file of this name, which may contain only letters, digits, `.`, `-` and `_`. `text` yields
    /// pieces of rows from [`csv_row`].
    pub fn new(
        file_name: impl Into<String>,
        text: impl Stream<Item = Result<Vec<u8>>> + Send + 'static,
    ) -> Self {
        Self { file_name: file_name.into(), text: text.boxed() }
    }
}

const MEDIA_TYPE: &str = "text/csv; charset=utf-8";

impl Reply for Csv {
    const STATUSES: &'static [u16] = &[200];
    const MEDIA_TYPE: &'static str = "text/csv";

    fn schema(_: &mut SchemaGenerator) -> Option<Schema> {
        None
    }

    async fn answer(self, compute: &Compute) -> Result<Answer> {
        let disposition = format!("attachment; filename=\"{}\"", self.file_name);
        let headers = vec![Header::new("Content-Disposition", disposition)?];
        let mut chunks = TextChunks { first: None, text: Some(self.text) };
        let first = chunks.piece().await?.unwrap_or_default();
        let media_type = MEDIA_TYPE.to_owned();
        let body = if chunks.text.is_none() {
            AnswerBody::Raw(Raw { media_type: Some(media_type), bytes: first.into() })
        } else {
            compute.note(Progress::Answering);
            let content = Box::new(TextChunks { first: Some(first), ..chunks });
            AnswerBody::Stream(Streamed { media_type, content })
        };
        Ok(Answer { headers, ..Answer::of(body) })
    }
}

/// The characters that a spreadsheet takes for the beginning of a formula, also in full width, and those that
/// it skips before one.
const BEGINS_A_FORMULA: [char; 11] =
    ['=', '+', '-', '@', '\t', '\r', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// Returns a row of these cells. An apostrophe before a possible formula makes a spreadsheet show it as text.
/// It is added at the beginning of a cell, and after a semicolon: in some countries spreadsheets split cells
/// there, quoted or not.
pub fn csv_row<'c>(cells: impl IntoIterator<Item = &'c str>) -> Vec<u8> {
    let guarded = |part: &str| {
        let is_formula = part.trim_start_matches([' ', '"']).starts_with(BEGINS_A_FORMULA);
        if is_formula { format!("'{part}") } else { part.to_owned() }
    };
    let cell = |cell: &str| {
        let cell = Vec::from_iter(cell.split(';').map(guarded)).join(";");
        if cell.contains([',', '"', '\r', '\n']) {
            format!("\"{}\"", cell.replace('"', "\"\""))
        } else {
            cell
        }
    };
    let cells = Vec::from_iter(cells.into_iter().map(cell));
    format!("{}\r\n", cells.join(",")).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_or_leaves_its_place() {
        let table = [
            ("", ""),
            ("prod", "prod"),
            ("a b;c", "a b;c"),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("a\r\n=b", "\"a\r\n=b\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("\r=1", "\"'\r=1\""),
            ("  =1", "'  =1"),
            ("\u{ff1d}1", "'\u{ff1d}1"),
            ("=HYPERLINK(\"http://x\",\"y\")", "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\""),
            ("1=1", "1=1"),
            ("x;=1+1", "x;'=1+1"),
            ("x; -1;y", "x;' -1;y"),
            ("x;\"=1", "\"x;'\"\"=1\""),
        ];
        for (text, cell) in table {
            assert_eq!(String::from_utf8(csv_row([text, "z"])).unwrap(), format!("{cell},z\r\n"));
        }
    }
}
