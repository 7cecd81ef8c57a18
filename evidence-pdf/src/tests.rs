//! Tests the guarantees for readers of the report, and for programs that compare two reports.

use std::collections::BTreeSet;

use lopdf::{Document, Object};
use proptest::prelude::*;

use evidence_values::state::State;

use super::{
    Run, TrailReport,
    data::{Details, Expectation},
    font::{Fonts, REPLACEMENT},
    render, samples,
    style::{BODY, Face, MARGIN, PAGE_HEIGHT, PAGE_WIDTH, TOP},
    text::{Limit, shorten, wrap},
};

fn pdf(report: &TrailReport) -> Vec<u8> {
    render(report).expect("a report can always be rendered")
}

fn document(report: &TrailReport) -> Document {
    Document::load_mem(&pdf(report)).expect("a readable PDF")
}

/// Returns the text of each page, without the white space from line breaks.
fn pages(report: &TrailReport) -> Vec<String> {
    let document = document(report);
    document
        .get_pages()
        .keys()
        .map(|page| {
            let text = document.extract_text(&[*page]).expect("text of a page");
            text.split_whitespace().collect()
        })
        .collect()
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn an_equal_report_is_the_same_file_byte_for_byte() {
    for report in [samples::empty(), samples::usual(), samples::large(50)] {
        assert_eq!(pdf(&report), pdf(&report.clone()));
    }
}

#[test]
fn another_fact_is_another_file() {
    let report = samples::usual();
    let mut other = report.clone();
    other.ledger.index += 1;
    assert_ne!(pdf(&report), pdf(&other));
    let identifier = |report| document(report).trailer.get(b"ID").cloned().ok();
    assert_ne!(identifier(&report), identifier(&other));
}

#[test]
fn the_first_page_names_the_trail_its_state_its_commit_and_its_ledger_entry() {
    let report = samples::usual();
    let commit = report.commit.as_ref().expect("a sample with a commit");
    let pages = pages(&report);
    for fact in [
        report.organization.as_str(),
        &report.flow,
        &report.trail,
        &report.description,
        &report.origin_url,
        "NON-COMPLIANT",
        "2026-11-20 14:03:22 UTC by ci-pipelines",
        &commit.sha1,
        &commit.author,
        &commit.message,
        &commit.url,
        "index 48211",
        &report.ledger.leaf_hash,
        "48212 entries",
        &report.ledger.root,
    ] {
        assert!(pages[0].contains(&squeezed(fact)), "{fact} is missing");
    }
}

#[test]
fn every_recorded_fact_is_somewhere_in_the_report() {
    let report = samples::usual();
    let text = pages(&report).concat();
    let mut facts: Vec<&str> = vec!["MISSING", "not in the template", "no end recorded"];
    for attestation in &report.attestations {
        facts.extend([attestation.name.as_str(), &attestation.id, &attestation.kind]);
        match &attestation.details {
            Details::PullRequests(pull_requests) => {
                for request in pull_requests {
                    facts.extend([request.title.as_str(), &request.state, &request.url]);
                    facts.extend(request.approvers.iter().map(|reviewer| reviewer.name.as_str()));
                    facts.extend(request.commits.iter().map(|commit| commit.sha1.as_str()));
                }
            }
            Details::Suites(suites) => {
                facts.extend(suites.iter().map(|suite| suite.name.as_str()));
                facts.extend(["1,284", "311.500"]);
            }
            Details::Facts(values) => facts.extend(values.iter().map(|(name, _)| name.as_str())),
            Details::None => {}
        }
        facts.extend(attestation.user_data.as_deref());
    }
    for artifact in &report.artifacts {
        facts.extend([artifact.fingerprint.as_str(), &artifact.filename]);
        facts.extend(artifact.runs.iter().flatten().map(|run| run.environment.as_str()));
    }
    facts.extend(report.events.iter().map(|event| event.text.as_str()));
    for attachment in &report.attachments {
        facts.extend([attachment.file_name.as_str(), &attachment.sha256, "1,482,013"]);
    }
    for fact in facts {
        // Two columns may share a baseline, so a wrapped value is not one run of text.
        let found = fact.split_whitespace().all(|word| text.contains(word) || halves_occur(&text, word));
        assert!(found, "{fact} is missing");
    }
}

#[test]
fn a_count_below_zero_is_shown_as_it_was_recorded() {
    let mut report = samples::usual();
    for attestation in &mut report.attestations {
        if let Details::Suites(suites) = &mut attestation.details {
            suites[0].total = -1_234_567;
            suites[0].failures = -89;
        }
    }
    let text = pages(&report).concat();
    for count in ["-1,234,567", "-89"] {
        assert!(text.contains(count), "{count} is missing");
    }
}

#[test]
fn a_copy_that_leaves_out_where_artifacts_ran_says_so_and_not_that_they_ran_nowhere() {
    let text = |runs: Option<Vec<Run>>| {
        let mut report = samples::usual();
        report.artifacts[0].runs = runs;
        pages(&report).concat()
    };
    let (whole, nowhere, without) =
        (text(samples::usual().artifacts.remove(0).runs), text(Some(Vec::new())), text(None));
    let says = |phrase: &str| [&whole, &nowhere, &without].map(|text| text.contains(&squeezed(phrase)));
    assert_eq!(says("production-eu"), [true, false, false]);
    assert_eq!(says("Where it ran"), [true, false, false]);
    assert_eq!(says("No environment has reported it."), [false, true, false]);
    assert_eq!(says("This copy leaves out where artifacts ran"), [false, false, true]);
    let every_copy = "nothing about who asked for it: the same facts give the same file, byte for byte.";
    assert_eq!(says(every_copy), [true, true, false]);
}

#[test]
fn an_artifact_that_is_called_trail_is_told_from_the_trail() {
    let mut report = samples::usual();
    for expectation in &mut report.expectations {
        expectation.scope = expectation.scope.take().map(|_| "trail".to_owned());
    }
    let text = pages(&report).concat();
    // The heading is followed by that of its table.
    for heading in ["Trail", "Artifact trail"] {
        assert!(text.contains(&squeezed(&format!("{heading} Name Type State"))), "{heading}: {text}");
    }
}

/// Returns whether a long word occurs in two long parts, as when a narrow column breaks it.
fn halves_occur(text: &str, word: &str) -> bool {
    const SHORTEST: usize = 8;
    word.char_indices()
        .map(|(at, _)| word.split_at(at))
        .filter(|(start, end)| start.len() >= SHORTEST && end.len() >= SHORTEST)
        .any(|(start, end)| text.contains(start) && text.contains(end))
}

#[test]
fn each_state_is_a_word() {
    for (state, word) in [
        (State::Compliant, "COMPLIANT"),
        (State::NonCompliant, "NON-COMPLIANT"),
        (State::Incomplete, "INCOMPLETE"),
    ] {
        let report = TrailReport { state, ..samples::empty() };
        assert!(pages(&report)[0].contains(word));
    }
}

#[test]
fn the_first_page_says_why_a_trail_is_in_its_state_where_no_attestation_does() {
    let why = "The template cannot be read: trail: Input should be a valid dictionary [input: ]]";
    let report = TrailReport { state_info: why.to_owned(), ..samples::empty() };
    assert!(pages(&report)[0].contains(&squeezed(why)));
}

#[test]
fn a_report_says_that_there_are_more_runs_than_it_shows() {
    let more = squeezed("only the newest 12,345 runs are");
    let nowhere = squeezed("No environment has reported it.");
    for (newest_runs, times) in [(None, 0), (Some(12_345), 2)] {
        let mut report = TrailReport { newest_runs, ..samples::usual() };
        report.artifacts.iter_mut().for_each(|artifact| artifact.runs = Some(Vec::new()));
        let text = pages(&report).concat();
        assert_eq!((text.matches(&more).count(), text.contains(&nowhere)), (times, times == 0));
    }
}

#[test]
fn every_page_says_its_number_and_how_many_there_are() {
    let mut previous = 0;
    for report in [samples::empty(), samples::usual(), samples::large(60)] {
        let pages = pages(&report);
        assert!(pages.len() > previous, "more facts need more pages");
        previous = pages.len();
        for (number, page) in (1..).zip(&pages) {
            assert!(page.contains(&format!("Page{number}of{}", pages.len())));
        }
    }
}

#[test]
fn the_first_page_counts_overrides_apart_and_says_whose_they_are_and_why() {
    let mut report = samples::usual();
    let before = pages(&report)[0].clone();
    assert!(before.contains("3of5") && !before.contains("Overrides"), "{before}");
    let info = |number: usize| format!("overridden by jane: seen by hand, case {number}");
    report.expectations[3].override_info = info(0);
    let page = pages(&report)[0].clone();
    assert!(page.contains("2of5") && page.contains("Overrides"), "{page}");
    assert!(page.contains(&squeezed(&format!("COMPLIANT: {}", info(0)))), "{page}");
    assert!(
        pages(&report).concat().matches(&squeezed(&info(0))).count() > 1,
        "it is beside the verdict, too"
    );

    let one = report.expectations[3].clone();
    report
        .expectations
        .extend((1..9).map(|number| Expectation { override_info: info(number), ..one.clone() }));
    let page = pages(&report)[0].clone();
    assert!(page.contains(&squeezed(&info(4))) && !page.contains(&squeezed(&info(5))), "{page}");
    assert!(page.contains(&squeezed("4 more are under Expected and reported.")), "{page}");
}

#[test]
fn an_override_and_what_it_replaces_are_told_from_other_attestations() {
    let mut report = samples::usual();
    for (place, superseded) in [(0, true), (1, false)] {
        report.attestations[place].superseded = superseded;
        report.attestations[place].override_info = "overridden by jane: seen by hand".to_owned();
    }
    let text = pages(&report).concat();
    for standing in ["Superseded", "Override"] {
        let line = format!("{standing}: overridden by jane: seen by hand");
        assert!(text.contains(&squeezed(&line)), "{line}: {text}");
    }
}

#[test]
fn a_table_repeats_its_header_on_each_page() {
    let mut report = samples::empty();
    let event = samples::usual().events.remove(0);
    report.events = vec![event; 150];
    let with_rows: Vec<_> =
        pages(&report).into_iter().filter(|page| page.contains("Trailreported")).collect();
    assert!(with_rows.len() > 2);
    assert!(with_rows.iter().all(|page| page.contains("WhenEventBy")));
}

#[test]
fn the_file_has_no_date_and_no_random_identifier_of_its_own() {
    let document = document(&samples::usual());
    let info = document
        .trailer
        .get(b"Info")
        .and_then(Object::as_reference)
        .and_then(|id| document.get_dictionary(id))
        .expect("a description of the file");
    let keys: BTreeSet<_> = info.iter().map(|(key, _)| key.as_slice()).collect();
    let expected: [&[u8]; 5] = [b"Author", b"Creator", b"Producer", b"Subject", b"Title"];
    assert_eq!(keys, expected.into_iter().collect());
}

#[test]
fn both_typefaces_are_embedded_as_subsets() {
    let document = document(&samples::usual());
    let sizes: Vec<_> = document
        .objects
        .values()
        .filter_map(|object| object.as_stream().ok())
        .filter_map(|stream| stream.dict.get(b"Length1").and_then(Object::as_i64).ok())
        .collect();
    assert_eq!(sizes.len(), 2);
    assert!(sizes.iter().all(|size| (1..100_000).contains(size)));
}

#[test]
fn only_plain_web_addresses_are_clickable() {
    let clickable = |url: &str| {
        let report = TrailReport { origin_url: url.to_owned(), ..samples::empty() };
        let bytes = pdf(&report);
        bytes.windows(4).any(|window| window == b"/URI")
    };
    assert!(clickable("https://ci.example.com/run/1"));
    assert!(clickable("http://ci.example.com/run/1"));
    for url in [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://ci.example.com/\u{202e}gpj",
        "https://a b",
        " https://ci.example.com",
    ] {
        assert!(!clickable(url), "{url:?}");
    }
}

#[test]
fn characters_without_a_glyph_become_boxes_and_are_counted() {
    let report = TrailReport { description: "日本語 \u{202e}abc\u{200b}".to_owned(), ..samples::empty() };
    let text = pages(&report).concat();
    assert!(text.contains(&format!("{0}{0}{0}{0}abc{0}", REPLACEMENT)));
    assert!(text.contains("5charactersnotintheembeddedfontareshownas"));
    assert!(!pages(&samples::usual()).concat().contains(REPLACEMENT));
}

#[test]
fn nasty_texts_leave_nothing_but_text() {
    for text in [
        "x".repeat(65_536),
        "\n".repeat(65_536),
        " ".repeat(65_536),
        "\u{200b}".repeat(65_536),
        "🎉👩‍👩‍👧 مرحبا בעולם \u{202e}exe.gnp\u{202c} \u{0}\u{1}\u{7f}\r\n\t".repeat(100),
        ") Tj ET endstream endobj %PDF-1.7 <</S/JavaScript/JS(app.alert(1))>> \\".to_owned(),
    ] {
        let document = document(&samples::with_text_everywhere(&text));
        let actions = document.objects.values().filter(|object| {
            object.as_dict().is_ok_and(|dictionary| dictionary.has(b"JS") || dictionary.has(b"OpenAction"))
        });
        assert_eq!(actions.count(), 0);
        for page in document.get_pages().into_values() {
            let content = document.get_and_decode_page_content(page).expect("content");
            assert!(!content.operations.is_empty());
        }
    }
}

#[test]
fn nothing_is_written_outside_the_margins() {
    let number = |operand: &Object| operand.as_float().expect("a coordinate");
    for text in ["x".repeat(65_536), "a\n".repeat(5_000), "a b ".repeat(5_000)] {
        let document = document(&samples::with_text_everywhere(&text));
        for page in document.get_pages().into_values() {
            let content = document.get_and_decode_page_content(page).expect("content");
            for operation in content.operations.iter().filter(|op| op.operator == "Td") {
                let (x, y) = (number(&operation.operands[0]), number(&operation.operands[1]));
                assert!((MARGIN - 0.1..PAGE_WIDTH - MARGIN).contains(&x), "x = {x}");
                assert!((MARGIN / 2.0..PAGE_HEIGHT - TOP).contains(&y), "y = {y}");
            }
        }
    }
}

#[test]
fn a_cut_text_says_how_much_is_missing() {
    let report = TrailReport { description: "y".repeat(5_000), ..samples::empty() };
    let text = pages(&report).concat();
    assert!(text.contains("[cuthere:1000morecharacters]"));
}

/// Texts with unusual characters and lengths.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "\\PC{0,200}", "[ \\t\\n\\r/a-z0-9\u{200b}\u{202e}é漢-]{0,400}",]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_text_anywhere_gives_a_readable_file(text in any_text()) {
        let report = samples::with_text_everywhere(&text);
        let bytes = pdf(&report);
        prop_assert_eq!(&bytes, &pdf(&report));
        prop_assert!(Document::load_mem(&bytes).is_ok());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_line_is_wider_than_its_column(text in any_text(), width in 30.0_f32..PAGE_WIDTH - 2.0 * MARGIN) {
        let typeface = Fonts::embedded().expect("fonts").get(Face::Regular);
        let wrapped = wrap(&text, typeface, BODY, width, Limit::VALUE);
        for line in &wrapped.lines {
            prop_assert!(typeface.width(line, BODY.size) <= width, "{line:?}");
        }
        let line = shorten(&text, typeface, BODY, width);
        prop_assert!(typeface.width(&line, BODY.size) <= width, "{line:?}");
        prop_assert!(!line.contains('\n'));
    }

    #[test]
    fn wrapping_loses_no_letter(text in "[a-zA-Z0-9é /-]{0,300}", width in 30.0_f32..400.0) {
        let typeface = Fonts::embedded().expect("fonts").get(Face::Regular);
        let wrapped = wrap(&text, typeface, BODY, width, Limit::VALUE);
        prop_assert_eq!(squeezed(&wrapped.lines.concat()), squeezed(&text));
        prop_assert_eq!(wrapped.replaced, 0);
    }
}
