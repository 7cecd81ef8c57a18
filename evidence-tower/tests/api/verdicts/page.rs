//! The page `docs/verdicts.md`, which is generated from the rules and the table of cases.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::cases::{Case, GROUPS, LOGICAL_CASES, LogicalCase};

/// The page, with the table of the cases.
fn page() -> String {
    let mut text = include_str!("rules.md").to_owned();
    for (group, cases) in GROUPS {
        let (first, rest) = group.split_at(1);
        write!(text, "\n### {}{rest}\n\n", first.to_uppercase()).unwrap();
        text.push_str("| case | artifact state | gate by flow | gate by policy | gate by environment | runs in the environment | why it is green |\n");
        text.push_str("|---|---|---|---|---|---|---|\n");
        for Case { text: case, state, places, why, .. } in cases {
            let [flow, policy, environment, runs] = places;
            writeln!(text, "| {case} | {state} | {flow} | {policy} | {environment} | {runs} | {why} |")
                .unwrap();
        }
    }
    text.push_str("\n### Logical environments\n\n");
    text.push_str(
        "| case | state | latest snapshot | gate by environment | why it is green |\n|---|---|---|---|---|\n",
    );
    for LogicalCase { text: case, places: [state, snapshot, gate], why, .. } in LOGICAL_CASES {
        writeln!(text, "| {case} | {state} | {snapshot} | {gate} | {why} |").unwrap();
    }
    text
}

/// `EVIDENCE_WRITE_VERDICTS=1` writes the page.
#[test]
fn the_page_about_verdicts_has_the_table_of_the_tests() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/verdicts.md");
    if std::env::var_os("EVIDENCE_WRITE_VERDICTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).expect("docs/verdicts.md");
    assert!(written == page(), "docs/verdicts.md is not that of the tests: set EVIDENCE_WRITE_VERDICTS=1");
}
