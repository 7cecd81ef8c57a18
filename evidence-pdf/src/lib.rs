//! Renders the report of one trail as a PDF file for auditors.
//!
//! [`render`] is a pure function of a [`TrailReport`]: it uses no clock, no randomness and nothing from a
//! request. The file is PDF/A with an embedded typeface, bookmarks and page numbers.
//!
//! The texts of a report may contain anything. A character that the typeface lacks is shown as a box and counted, and
//! a long text is wrapped or visibly cut.
//!
//! ```
//! use evidence_pdf::{LedgerPosition, TrailReport, render};
//! use evidence_values::state::State;
//! use evidence_values::time::Timestamp;
//!
//! let begun = Timestamp::from_seconds(1_783_538_510);
//! let report = TrailReport {
//!     organization: "acme".to_owned(),
//!     flow: "shop".to_owned(),
//!     trail: "release-1".to_owned(),
//!     description: "The first release".to_owned(),
//!     state: State::Compliant,
//!     state_info: String::new(),
//!     origin_url: String::new(),
//!     html_url: None,
//!     created_at: begun,
//!     created_by: "jane".to_owned(),
//!     last_modified_at: begun,
//!     commit: None,
//!     ledger: LedgerPosition { index: 0, leaf_hash: "a".repeat(64), size: 1, root: "a".repeat(64) },
//!     expectations: Vec::new(),
//!     attestations: Vec::new(),
//!     artifacts: Vec::new(),
//!     newest_runs: None,
//!     events: Vec::new(),
//!     attachments: Vec::new(),
//! };
//! let file = render(&report)?;
//! assert!(file.starts_with(b"%PDF-"));
//! assert_eq!(file, render(&report)?, "equal reports give equal bytes");
//! # Ok::<(), evidence_pdf::ReportError>(())
//! ```

mod attestations;
mod blocks;
mod canvas;
mod cover;
mod data;
mod document;
mod font;
mod layout;
#[cfg(test)]
mod samples;
mod sections;
mod style;
#[cfg(test)]
mod tests;
mod text;

pub use data::{
    Approver, Artifact, Attachment, Attestation, Commit, Details, Event, Expectation, ExpectationStatus,
    LedgerPosition, PullRequest, Run, Suite, TrailReport,
};

use canvas::{Area, Canvas};
use document::Metadata;
use layout::Flow;
use style::{CONTENT_WIDTH, MARGIN, NOTE, RULE};
use text::shorten;

/// The reason why a report could not be rendered. None depends on the contents of the report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The embedded typeface cannot be read.
    #[error("the embedded typeface cannot be read")]
    Font,
    /// The PDF structure cannot be completed.
    #[error("the PDF cannot be assembled")]
    Structure(#[from] lopdf::Error),
    /// The PDF cannot be written out.
    #[error("the PDF cannot be written")]
    Write(#[from] std::io::Error),
}

/// Renders the report as a PDF file; equal reports give equal bytes.
///
/// # Errors
///
/// The embedded typeface or the PDF library failed; no content of a report causes that.
pub fn render(report: &TrailReport) -> Result<Vec<u8>, ReportError> {
    let mut flow = Flow::new()?;
    cover::place(&mut flow, report);
    sections::place_expectations(&mut flow, &report.expectations);
    attestations::place(&mut flow, &report.attestations, report.commit.as_ref());
    sections::place_artifacts(&mut flow, report);
    sections::place_events(&mut flow, report);
    sections::place_attachments(&mut flow, &report.attachments);
    let (mut canvas, bookmarks) = flow.finish();
    draw_footers(&mut canvas, report);
    let metadata = metadata(&canvas, report);
    document::write(canvas, &metadata, &bookmarks)
}

/// Draws the names of the trail and the page number at the bottom of each page.
fn draw_footers(canvas: &mut Canvas, report: &TrailReport) {
    const RULE_Y: f32 = 798.0;
    const BASELINE: f32 = 810.0;
    let width = CONTENT_WIDTH - 90.0;
    let name = full_name(canvas, report, width);
    let pages = canvas.page_count();
    for page in 0..pages {
        let number = format!("Page {} of {pages}", page + 1);
        let x = MARGIN + CONTENT_WIDTH - canvas.width(&number, NOTE);
        let rule = Area { x: MARGIN, y: RULE_Y, width: CONTENT_WIDTH, height: 0.5 };
        canvas.rectangle_on(page, rule, RULE);
        canvas.text_on(page, MARGIN, BASELINE, &name, NOTE);
        canvas.text_on(page, x, BASELINE, &number, NOTE);
    }
}

fn metadata(canvas: &Canvas, report: &TrailReport) -> Metadata {
    let width = 2.0 * CONTENT_WIDTH;
    let name = full_name(canvas, report, width);
    Metadata {
        title: format!("Trail evidence report: {name}"),
        subject: report.state.to_string(),
        author: one_line(canvas, &report.organization, width),
    }
}

/// Returns organization, flow and trail. Long names are shortened so that none hides the others.
fn full_name(canvas: &Canvas, report: &TrailReport, width: f32) -> String {
    const SEPARATOR: &str = " / ";
    let names = [&report.organization, &report.flow, &report.trail].map(|name| one_line(canvas, name, width));
    let whole = names.join(SEPARATOR);
    if canvas.width(&whole, NOTE) <= width {
        return whole;
    }
    let share = (width - 2.0 * canvas.width(SEPARATOR, NOTE)) / 3.0;
    names.map(|name| one_line(canvas, &name, share)).join(SEPARATOR)
}

fn one_line(canvas: &Canvas, text: &str, width: f32) -> String {
    shorten(text, canvas.fonts.get(NOTE.face), NOTE, width)
}
