//! The first page: the identity of the trail, its state, its commit, and its position in the ledger.

use evidence_values::state::State;

use super::{
    blocks::{INSET, Value, fields, note, subheading, utc, utc_if_known, when_and_who},
    data::{Commit, Expectation, ExpectationStatus, TrailReport},
    layout::{Align, Cell, Flow, Row, full_width},
    style::{
        BIG_BADGE, BODY, CONTENT_WIDTH, EYEBROW, FIGURE, LABEL, PANEL, STRONG_RULE, SUBTITLE, TITLE, Tone,
    },
    text::Limit,
};

const STATE_WIDTH: f32 = 130.0;

/// Places the title block and the most important fields.
pub(super) fn place(flow: &mut Flow, report: &TrailReport) {
    title(flow, report);
    figures(flow, report);
    overrides(flow, report);
    trail(flow, report);
    if let Some(commit) = &report.commit {
        subheading(flow, "Commit");
        for row in commit_fields(flow, 0.0, commit) {
            flow.place(row);
        }
    }
    ledger(flow, report);
    flow.note_replacements();
}

fn title(flow: &mut Flow, report: &TrailReport) {
    let eyebrow = flow.short_line("TRAIL EVIDENCE REPORT", EYEBROW, 240.0);
    let organization = flow.short_line(&report.organization, EYEBROW, 240.0);
    flow.place(Row {
        cells: vec![
            full_width(vec![eyebrow]),
            Cell { align: Align::Right, ..full_width(vec![organization]) },
        ],
        below: 6.0,
        rule: Some(STRONG_RULE),
        ..Row::default()
    });
    let name_width = CONTENT_WIDTH - STATE_WIDTH - 12.0;
    let name = flow.lines(&report.trail, TITLE, name_width, Limit::TITLE);
    let word = report.state.to_string();
    let badge = flow.solid_badge(&word, state_tone(report.state), BIG_BADGE, STATE_WIDTH);
    let cell = |x, width, align, lines| Cell { x, width, align, lines };
    flow.place(Row {
        cells: vec![
            cell(0.0, name_width, Align::Left, name),
            cell(CONTENT_WIDTH - STATE_WIDTH, STATE_WIDTH, Align::Right, vec![badge]),
        ],
        above: 12.0,
        ..Row::default()
    });
    let flow_name = format!("Trail of flow {}", report.flow);
    let subtitle = flow.lines(&flow_name, SUBTITLE, CONTENT_WIDTH, Limit::CELL);
    flow.place(Row { cells: vec![full_width(subtitle)], above: 1.0, below: 4.0, ..Row::default() });
    if !report.state_info.is_empty() {
        let info = flow.lines(&report.state_info, BODY, CONTENT_WIDTH, Limit::VALUE);
        flow.place(Row { cells: vec![full_width(info)], above: 3.0, below: 3.0, ..Row::default() });
    }
    if !report.description.trim().is_empty() {
        let description = flow.lines(&report.description, BODY, CONTENT_WIDTH, Limit::VALUE);
        flow.place(Row { cells: vec![full_width(description)], above: 3.0, below: 3.0, ..Row::default() });
    }
}

/// Places the counts of the report.
fn figures(flow: &mut Flow, report: &TrailReport) {
    let expected = report.expectations.iter().filter(|slot| !slot.unexpected);
    let is_met =
        |slot: &&Expectation| slot.status == ExpectationStatus::Compliant && slot.override_info.is_empty();
    let met = expected.clone().filter(is_met).count();
    let overridden = overridden(report).count();
    let failed = report
        .attestations
        .iter()
        .filter(|attestation| !attestation.is_compliant && !attestation.superseded)
        .count();
    let figures = [
        (format!("{met} of {}", expected.count()), "expectations met"),
        (overridden.to_string(), "overridden"),
        counted(report.attestations.len(), "attestation", "attestations"),
        (failed.to_string(), "non-compliant"),
        counted(report.artifacts.len(), "artifact", "artifacts"),
        counted(report.attachments.len(), "attachment", "attachments"),
    ];
    let width = CONTENT_WIDTH / figures.len() as f32;
    let mut x = 10.0;
    let mut cells = Vec::new();
    for (number, noun) in figures {
        let mut lines = flow.lines(&number, FIGURE, width - 12.0, Limit::CELL);
        lines.extend(flow.lines(noun, LABEL, width - 12.0, Limit::CELL));
        cells.push(Cell { x, width, align: Align::Left, lines });
        x += width;
    }
    flow.hold(Row::space(8.0));
    flow.place(Row { cells, above: 7.0, below: 8.0, fill: Some(PANEL), ..Row::default() });
}

/// Returns the overridden slots, expected or not.
fn overridden(report: &TrailReport) -> impl Iterator<Item = &Expectation> {
    report.expectations.iter().filter(|slot| !slot.override_info.is_empty())
}

/// Maximum number of overrides on the first page; the section of expectations lists all of them.
const MAX_OVERRIDES: usize = 5;

/// Places the overridden verdicts with their reasons.
fn overrides(flow: &mut Flow, report: &TrailReport) {
    let count = overridden(report).count();
    if count == 0 {
        return;
    }
    subheading(flow, "Overrides");
    for slot in overridden(report).take(MAX_OVERRIDES) {
        let about = slot.scope.as_ref().map(|artifact| format!(" of artifact {artifact}"));
        let name = format!("{}{}", slot.name, about.unwrap_or_default());
        let info = format!("{}: {}", slot.status, slot.override_info);
        for row in fields(flow, 0.0, &[(name.as_str(), Value::Made(info))]) {
            flow.place(row);
        }
    }
    if count > MAX_OVERRIDES {
        let text = format!("{} more are under Expected and reported.", count - MAX_OVERRIDES);
        let row = note(flow, &text);
        flow.place(row);
    }
}

fn counted(count: usize, one: &'static str, many: &'static str) -> (String, &'static str) {
    (count.to_string(), if count == 1 { one } else { many })
}

fn trail(flow: &mut Flow, report: &TrailReport) {
    subheading(flow, "Trail");
    let state = report.state.to_string();
    let rows = fields(
        flow,
        0.0,
        &[
            ("Organization", Value::Text(&report.organization)),
            ("Flow", Value::Text(&report.flow)),
            ("Trail", Value::Text(&report.trail)),
            ("State", Value::Badge(&state, state_tone(report.state))),
            ("Created", Value::Made(when_and_who(Some(report.created_at), &report.created_by))),
            ("Last modified", Value::Made(utc(report.last_modified_at))),
            ("Origin", Value::Link(&report.origin_url)),
            ("Web page", Value::Link(report.html_url.as_deref().unwrap_or_default())),
        ],
    );
    for row in rows {
        flow.place(row);
    }
}

/// Returns the commit of a fact: in full, unless it is the commit of the trail, which the first page shows.
pub(super) fn commit_of_fact(flow: &mut Flow, commit: &Commit, trail: Option<&Commit>) -> Vec<Row> {
    if trail == Some(commit) {
        let sha1 = format!("{} (the commit of the trail)", commit.sha1);
        return fields(flow, INSET, &[("Commit", Value::Made(sha1))]);
    }
    commit_fields(flow, INSET, commit)
}

/// Returns all known fields of a commit.
fn commit_fields(flow: &mut Flow, indent: f32, commit: &Commit) -> Vec<Row> {
    fields(
        flow,
        indent,
        &[
            ("Commit", Value::Strong(&commit.sha1)),
            ("Author", Value::Text(&commit.author)),
            ("Committed", Value::Made(utc_if_known(commit.timestamp))),
            ("Branch", Value::Text(&commit.branch)),
            ("Message", Value::Text(&commit.message)),
            ("Link", Value::Link(&commit.url)),
        ],
    )
}

/// Returns the note about copies of the report.
fn about_copies(report: &TrailReport) -> &'static str {
    if report.artifacts.iter().any(|artifact| artifact.runs.is_none()) {
        "All times are UTC. This copy leaves out where artifacts ran: environments are shown to the \
         organization's own people and accounts alone. It holds no time of printing and nothing else \
         about who asked for it: among copies that leave the same out, the same facts give the same \
         file, byte for byte."
    } else {
        "All times are UTC. The report holds no time of printing and nothing about who asked for \
         it: the same facts give the same file, byte for byte."
    }
}

fn ledger(flow: &mut Flow, report: &TrailReport) {
    let ledger = &report.ledger;
    subheading(flow, "Ledger");
    let size = match ledger.size {
        1 => "1 entry".to_owned(),
        size => format!("{size} entries"),
    };
    let mut rows = vec![note(
        flow,
        "Every fact in this report is an entry of the organization's append-only ledger. These \
         are the last entry shown here, and the tree right after it; later entries leave both \
         unchanged.",
    )];
    rows.extend(fields(
        flow,
        0.0,
        &[
            ("Last entry", Value::Made(format!("index {}", ledger.index))),
            ("Leaf hash", Value::Text(&ledger.leaf_hash)),
            ("Tree size", Value::Made(size)),
            ("Root hash", Value::Text(&ledger.root)),
        ],
    ));
    rows.push(Row::space(6.0));
    rows.push(note(flow, about_copies(report)));
    flow.place_together(rows);
}

const fn state_tone(state: State) -> Tone {
    match state {
        State::Compliant => Tone::Good,
        State::NonCompliant => Tone::Bad,
        State::Incomplete => Tone::Warn,
    }
}
