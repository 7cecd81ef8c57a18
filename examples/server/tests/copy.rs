//! `copy`: a store in another place is the same store, however often it took to get there.
#![cfg(unix)]

#[path = "support/copying.rs"]
mod copying;
mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use copying::{command, copied, fill, sound, trail};
use support::{Database, Server, program};

#[test]
fn a_copy_answers_as_the_original_does_and_has_the_same_ledgers() {
    let (from, to) = (Database::default(), Database::default());
    let key = fill(&from);
    let (summary, progress) = copied(&from, &to);
    assert_eq!(summary, "2 organizations, 9 entries (9 new), 1 new attachments\n");
    let progress: Vec<_> = progress.lines().map(|line| line.split(':').next()).collect();
    assert_eq!(progress, [Some("jane"), Some("acme")]);
    assert_eq!(sound(&to), sound(&from));
    assert_eq!(trail(&to, &key), trail(&from, &key));
    let (summary, _) = copied(&from, &to);
    assert_eq!(summary, "2 organizations, 9 entries (0 new), 0 new attachments\n");
}

#[test]
fn a_copy_that_was_killed_goes_on() {
    let (from, to) = (Database::default(), Database::default());
    let names: Vec<String> = (0..200).map(|number| format!("org{number}")).collect();
    let seed = ["seed", "--database-url", &from.url, "--user", "jane", "--org", &names.join(",")];
    assert!(program(&seed).output().unwrap().status.success());
    for lines in [1, 20, 60] {
        let mut copy = command(&from, &to).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let told = BufReader::new(copy.stderr.take().unwrap()).lines().take(lines).count();
        assert_eq!(told, lines);
        // It may have ended already.
        let _ = copy.kill();
        copy.wait().unwrap();
    }
    let (summary, _) = copied(&from, &to);
    assert!(summary.starts_with("201 organizations, 404 entries"), "{summary}");
    assert_eq!(sound(&to), sound(&from));
}

/// The file of a database.
fn file(database: &Database) -> &Path {
    Path::new(database.url.strip_prefix("sqlite://").expect("a file"))
}

#[test]
fn what_cannot_be_copied_is_told_in_a_sentence() {
    let [filled, other, empty, missing] = std::array::from_fn(|_| Database::default());
    fill(&filled);
    fill(&other);
    // The start of a server makes it.
    drop(Server::serve(&empty, ""));
    let nowhere = Database::from("oracle://host/db".to_owned());
    for (from, to, sentence) in [
        (&missing, &other, "there is no database file"),
        (&empty, &missing, "there is nothing to copy"),
        (&nowhere, &other, "the database URL must begin with sqlite:// or postgres://"),
        (&filled, &nowhere, "the database URL must begin with sqlite:// or postgres://"),
        (&filled, &other, "the copy failed: the target has a name of organization 'jane' already"),
    ] {
        let refused = command(from, to).output().unwrap();
        let told = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.starts_with(sentence) && told.lines().count() == 1, "{told}");
    }
    assert!(!file(&missing).exists(), "a source is never made, nor a target for no source");
}
