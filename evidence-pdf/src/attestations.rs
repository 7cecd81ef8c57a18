//! The section of attestations: the common fields of each attestation, and the fields of its type.

use super::{
    blocks::{
        CardHeading, INSET, Table, Value, caption, code, fields, grouped, left, place_note, right,
        utc_if_known, when_and_who,
    },
    cover::commit_of_fact,
    data::{Approver, Attestation, Commit, Details, PullRequest, Suite},
    layout::{Flow, Row},
    style::Tone,
};

const SUITES: Table<6> = Table([
    left("Suite", 209.0),
    right("Tests", 54.0),
    right("Failures", 58.0),
    right("Errors", 54.0),
    right("Skipped", 56.0),
    right("Seconds", 62.0),
]);

const APPROVERS: Table<3> = Table([left("Reviewer", 263.0), left("Verdict", 120.0), left("When", 110.0)]);

const COMMITS: Table<4> =
    Table([left("Commit", 104.0), left("Author", 116.0), left("When", 104.0), left("Message", 169.0)]);

/// Places the section of all attestations.
pub(super) fn place(flow: &mut Flow, attestations: &[Attestation], trail: Option<&Commit>) {
    flow.section("Attestations");
    if attestations.is_empty() {
        place_note(flow, "No attestation has been reported.");
    }
    for attestation in attestations {
        place_one(flow, attestation, trail);
    }
    flow.note_replacements();
}

fn place_one(flow: &mut Flow, attestation: &Attestation, trail: Option<&Commit>) {
    let (state, tone) = verdict(attestation);
    let heading = CardHeading { name: &attestation.name, remark: &attestation.kind, state, tone };
    heading.hold(flow);
    let reminder = heading.reminder(flow);
    let mut rows = essentials(flow, attestation, trail);
    let user_data = user_data(flow, attestation.user_data.as_deref());
    match &attestation.details {
        Details::None => {
            rows.extend(user_data);
            flow.card(reminder, rows, |_| {});
        }
        Details::Facts(values) => {
            rows.extend(facts(flow, values));
            rows.extend(user_data);
            flow.card(reminder, rows, |_| {});
        }
        Details::PullRequests(pull_requests) => flow.card(reminder, rows, |flow| {
            for pull_request in pull_requests {
                place_pull_request(flow, pull_request);
            }
            flow.place_together(user_data);
        }),
        Details::Suites(suites) => flow.card(reminder, rows, |flow| {
            place_suites(flow, suites);
            flow.place_together(user_data);
        }),
    }
}

fn user_data(flow: &mut Flow, text: Option<&str>) -> Vec<Row> {
    text.filter(|text| !text.trim().is_empty())
        .map(|text| vec![caption(flow, "User data"), code(flow, text)])
        .unwrap_or_default()
}

/// Returns the verdict of an attestation and its colour. A superseded verdict no longer counts, so it has a
/// neutral colour.
const fn verdict(attestation: &Attestation) -> (&'static str, Tone) {
    match (attestation.is_compliant, attestation.superseded) {
        (true, false) => ("COMPLIANT", Tone::Good),
        (false, false) => ("NON-COMPLIANT", Tone::Bad),
        (true, true) => ("COMPLIANT", Tone::Neutral),
        (false, true) => ("NON-COMPLIANT", Tone::Neutral),
    }
}

fn essentials(flow: &mut Flow, attestation: &Attestation, trail: Option<&Commit>) -> Vec<Row> {
    let replaced = match (attestation.superseded, attestation.override_info.as_str()) {
        (false, "") => String::new(),
        (false, info) => format!("Override: {info}"),
        (true, "") => "Superseded by a newer attestation of the same name, or with its artifact".to_owned(),
        (true, info) => format!("Superseded: {info}"),
    };
    let mut rows = fields(
        flow,
        INSET,
        &[
            ("Standing", Value::Made(replaced)),
            ("Attests", Value::Text(&attestation.target)),
            ("Reported", Value::Made(when_and_who(Some(attestation.at), &attestation.by))),
            ("Identifier", Value::Text(&attestation.id)),
            ("Description", Value::Text(&attestation.description)),
            ("Origin", Value::Link(&attestation.origin_url)),
        ],
    );
    if let Some(commit) = &attestation.commit {
        rows.extend(commit_of_fact(flow, commit, trail));
    }
    rows.extend(facts(flow, &attestation.annotations));
    rows
}

fn facts(flow: &mut Flow, facts: &[(String, String)]) -> Vec<Row> {
    let facts: Vec<_> = facts.iter().map(|(name, value)| (name.as_str(), Value::Text(value))).collect();
    fields(flow, INSET, &facts)
}

fn place_pull_request(flow: &mut Flow, pull_request: &PullRequest) {
    let caption = caption(flow, "Pull request");
    flow.hold(caption);
    let rows = fields(
        flow,
        INSET,
        &[
            ("Title", Value::Strong(&pull_request.title)),
            ("State", Value::Badge(&pull_request.state, Tone::Neutral)),
            ("Opened", Value::Made(when_and_who(pull_request.created_at, &pull_request.author))),
            ("Merged", Value::Made(utc_if_known(pull_request.merged_at))),
            ("Head branch", Value::Text(&pull_request.head_ref)),
            ("Merge commit", Value::Text(&pull_request.merge_commit)),
            ("Link", Value::Link(&pull_request.url)),
        ],
    );
    flow.place_together(rows);
    place_approvers(flow, &pull_request.approvers);
    place_commits(flow, &pull_request.commits);
}

fn place_approvers(flow: &mut Flow, approvers: &[Approver]) {
    let caption = caption(flow, "Approvers");
    flow.hold(caption);
    if approvers.is_empty() {
        let rows = fields(flow, INSET, &[("", Value::Text("Nobody"))]);
        flow.place_together(rows);
        return;
    }
    let rows = approvers
        .iter()
        .map(|approver| {
            let values = [
                Value::Strong(&approver.name),
                Value::Badge(&approver.state, review_tone(&approver.state)),
                Value::Made(utc_if_known(approver.at)),
            ];
            APPROVERS.row(flow, values)
        })
        .collect();
    APPROVERS.place(flow, rows);
}

/// Returns the colour of a review verdict, in the wording of the known code hosts.
fn review_tone(state: &str) -> Tone {
    if state.eq_ignore_ascii_case("approved") {
        Tone::Good
    } else if state.eq_ignore_ascii_case("changes_requested") {
        Tone::Bad
    } else {
        Tone::Neutral
    }
}

fn place_commits(flow: &mut Flow, commits: &[Commit]) {
    if commits.is_empty() {
        return;
    }
    let caption = caption(flow, "Commits");
    flow.hold(caption);
    let rows = commits
        .iter()
        .map(|commit| {
            let values = [
                Value::Hash(&commit.sha1),
                Value::Text(&commit.author),
                Value::Made(utc_if_known(commit.timestamp)),
                Value::Text(&commit.message),
            ];
            COMMITS.row(flow, values)
        })
        .collect();
    COMMITS.place(flow, rows);
}

fn place_suites(flow: &mut Flow, suites: &[Suite]) {
    let caption = caption(flow, "Test suites");
    flow.hold(caption);
    let rows = suites
        .iter()
        .map(|suite| {
            let values = [
                Value::Strong(&suite.name),
                Value::Made(grouped(suite.total)),
                count_of_failures(suite.failures),
                count_of_failures(suite.errors),
                Value::Made(grouped(suite.skipped)),
                Value::Made(format!("{:.3}", suite.duration)),
            ];
            SUITES.row(flow, values)
        })
        .collect();
    SUITES.place(flow, rows);
}

fn count_of_failures(count: i64) -> Value<'static> {
    match count {
        0 => Value::Text("0"),
        _ => Value::MadeBadge(grouped(count), Tone::Bad),
    }
}
