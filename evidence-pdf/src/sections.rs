//! The sections of expectations, artifacts, events and attachments.

use super::{
    blocks::{
        CardHeading, INSET, Table, Value, caption, fields, grouped, left, place_note, right, utc,
        utc_if_known, when_and_who,
    },
    cover::commit_of_fact,
    data::{Artifact, Attachment, Expectation, ExpectationStatus, Run, TrailReport},
    layout::{Flow, Row, full_width},
    style::{CELL_STRONG, CONTENT_WIDTH, Tone},
    text::Limit,
};

const EXPECTATIONS: Table<5> = Table([
    left("Name", 140.0),
    left("Type", 82.0),
    left("State", 88.0),
    left("When", 106.0),
    left("By", 77.0),
]);

const RUNS: Table<4> = Table([
    left("Environment", 173.0),
    left("From snapshot", 80.0),
    left("Since", 112.0),
    left("Until", 128.0),
]);

const EVENTS: Table<3> = Table([left("When", 112.0), left("Event", 281.0), left("By", 100.0)]);

const ATTACHMENTS: Table<5> = Table([
    left("Attestation", 98.0),
    left("File", 102.0),
    left("Media type", 76.0),
    left("SHA-256", 155.0),
    right("Bytes", 62.0),
]);

/// Places the expectations of the template and their status.
pub(super) fn place_expectations(flow: &mut Flow, expectations: &[Expectation]) {
    flow.section("Expected and reported");
    if expectations.is_empty() {
        place_note(flow, "The template expects nothing, and nothing was reported.");
    }
    for group in expectations.chunk_by(|a, b| a.scope == b.scope) {
        if let Some(first) = group.first() {
            place_scope_heading(flow, first.scope.as_deref());
        }
        let rows = group.iter().map(|expectation| expectation_row(flow, expectation)).collect();
        EXPECTATIONS.place(flow, rows);
    }
    flow.note_replacements();
}

fn place_scope_heading(flow: &mut Flow, artifact: Option<&str>) {
    let title = artifact.map_or_else(|| "Trail".to_owned(), |name| format!("Artifact {name}"));
    let lines = flow.lines(&title, CELL_STRONG, CONTENT_WIDTH, Limit::CELL);
    flow.hold(Row::space(8.0));
    flow.hold(Row { cells: vec![full_width(lines)], below: 3.0, ..Row::default() });
}

fn expectation_row(flow: &mut Flow, expectation: &Expectation) -> Row {
    let tone = match expectation.status {
        ExpectationStatus::Missing => Tone::Warn,
        ExpectationStatus::Compliant => Tone::Good,
        ExpectationStatus::NonCompliant => Tone::Bad,
    };
    let remark = match (expectation.unexpected, expectation.override_info.as_str()) {
        (false, "") => None,
        (true, "") => Some("not in the template".to_owned()),
        (false, info) => Some(info.to_owned()),
        (true, info) => Some(format!("not in the template; {info}")),
    };
    let name = match &remark {
        Some(remark) => Value::Remarked(&expectation.name, remark),
        None => Value::Strong(&expectation.name),
    };
    let values = [
        name,
        Value::Text(&expectation.kind),
        Value::MadeBadge(expectation.status.to_string(), tone),
        Value::Made(utc_if_known(expectation.at)),
        Value::Text(&expectation.by),
    ];
    EXPECTATIONS.row(flow, values)
}

/// Places each artifact with its fingerprint and its runs.
pub(super) fn place_artifacts(flow: &mut Flow, report: &TrailReport) {
    flow.section("Artifacts");
    if report.artifacts.is_empty() {
        place_note(flow, "No artifact has been reported.");
    }
    place_note_of_runs(flow, report);
    for artifact in &report.artifacts {
        place_artifact(flow, artifact, report);
    }
    flow.note_replacements();
}

/// Places a note if not all runs are shown.
fn place_note_of_runs(flow: &mut Flow, report: &TrailReport) {
    if let Some(shown) = report.newest_runs {
        let shown = grouped(shown);
        place_note(
            flow,
            &format!("The artifacts ran more often than is shown: only the newest {shown} runs are."),
        );
    }
}

fn place_artifact(flow: &mut Flow, artifact: &Artifact, report: &TrailReport) {
    let heading = CardHeading {
        name: &artifact.name,
        remark: "artifact",
        state: &artifact.state,
        tone: word_tone(&artifact.state),
    };
    heading.hold(flow);
    let reminder = heading.reminder(flow);
    let mut rows = fields(
        flow,
        INSET,
        &[
            ("Note", Value::Text(&artifact.state_info)),
            ("Fingerprint", Value::Strong(&artifact.fingerprint)),
            ("File or image", Value::Text(&artifact.filename)),
            ("Reported", Value::Made(when_and_who(Some(artifact.at), &artifact.by))),
            ("Build", Value::Link(&artifact.build_url)),
        ],
    );
    if let Some(commit) = &artifact.commit {
        rows.extend(commit_of_fact(flow, commit, report.commit.as_ref()));
    }
    let nowhere = match report.newest_runs {
        None => "No environment has reported it.",
        Some(_) => "None of the newest runs is its.",
    };
    flow.card(reminder, rows, |flow| {
        if let Some(runs) = &artifact.runs {
            place_runs(flow, runs, nowhere);
        }
    });
}

fn place_runs(flow: &mut Flow, runs: &[Run], nowhere: &str) {
    if runs.is_empty() {
        let rows = fields(flow, INSET, &[("Ran in", Value::Text(nowhere))]);
        flow.place_together(rows);
        return;
    }
    let caption = caption(flow, "Where it ran");
    flow.hold(caption);
    let rows = runs
        .iter()
        .map(|run| {
            let until = match run.until {
                Some((snapshot, at)) => format!("{}\nsnapshot {snapshot}", utc(at)),
                None => "no end recorded".to_owned(),
            };
            let values = [
                Value::Strong(&run.environment),
                Value::Made(run.from_snapshot.to_string()),
                Value::Made(utc(run.since)),
                Value::Made(until),
            ];
            RUNS.row(flow, values)
        })
        .collect();
    RUNS.place(flow, rows);
}

/// Places the event history.
pub(super) fn place_events(flow: &mut Flow, report: &TrailReport) {
    flow.section("Event history");
    if report.events.is_empty() {
        place_note(flow, "No event has been recorded.");
        return;
    }
    place_note_of_runs(flow, report);
    let rows = report
        .events
        .iter()
        .map(|event| {
            let values = [Value::Made(utc(event.at)), Value::Text(&event.text), Value::Text(&event.by)];
            EVENTS.row(flow, values)
        })
        .collect();
    EVENTS.place(flow, rows);
    flow.note_replacements();
}

/// Places the attached files.
pub(super) fn place_attachments(flow: &mut Flow, attachments: &[Attachment]) {
    flow.section("Attachments");
    if attachments.is_empty() {
        place_note(flow, "No file is attached.");
        return;
    }
    let rows = attachments
        .iter()
        .map(|attachment| {
            let values = [
                Value::Text(&attachment.attestation),
                Value::Strong(&attachment.file_name),
                Value::Text(&attachment.media_type),
                Value::Hash(&attachment.sha256),
                Value::Made(grouped(attachment.size)),
            ];
            ATTACHMENTS.row(flow, values)
        })
        .collect();
    ATTACHMENTS.place(flow, rows);
    flow.note_replacements();
}

/// Returns the colour of a compliance word.
fn word_tone(word: &str) -> Tone {
    match word {
        "COMPLIANT" => Tone::Good,
        "NON-COMPLIANT" => Tone::Bad,
        "INCOMPLETE" | "MISSING" => Tone::Warn,
        _ => Tone::Neutral,
    }
}
