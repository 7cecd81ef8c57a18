//! `copy`: the copy of a store is equivalent to it, regardless of the number of attempts.
#![cfg(unix)]

#[path = "support/copying.rs"]
mod copying;
mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use copying::{attest, command, copied, fill, sound, trail};
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
        let printed = BufReader::new(copy.stderr.take().unwrap()).lines().take(lines).count();
        assert_eq!(printed, lines);
        // It may have ended already.
        let _ = copy.kill();
        copy.wait().unwrap();
    }
    let (summary, _) = copied(&from, &to);
    assert!(summary.starts_with("201 organizations, 404 entries"), "{summary}");
    // Organizations of the same millisecond are copied in the order of their ids.
    let sorted = |database: &Database| BTreeSet::from_iter(sound(database).lines().map(str::to_owned));
    assert_eq!(sorted(&to), sorted(&from));
}

/// Verifies a store whose attachments are in a directory. Returns whether it is sound, and the output.
fn checked(database: &Database, attachments: Option<&Path>) -> (bool, String) {
    let mut fsck = program(&["fsck", "--database-url", &database.url]);
    if let Some(directory) = attachments {
        fsck.args(["--attachments", &url(directory)]);
    }
    let checked = fsck.output().unwrap();
    let text = String::from_utf8(checked.stdout).unwrap();
    // Ids, and therefore roots, differ between runs.
    let lines = text.lines().filter(|line| !line.starts_with("ledger of "));
    (checked.status.success(), lines.map(|line| format!("{line}\n")).collect())
}

fn url(directory: &Path) -> String {
    format!("file://{}", directory.display())
}

#[test]
fn attachments_in_a_directory_are_checked_and_copied_there() {
    let (from, to) = (Database::default(), Database::default());
    let [ours, theirs] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let (ours, theirs) = (ours.path(), theirs.path());
    let key = Server::start(&from).key.clone();
    let mut serve = program(&[]);
    serve.env("EVIDENCE_ATTACHMENTS", url(ours));
    attest(&Server::run(serve, &from, &key));
    let sound = "2 organizations, 9 entries, 0 problems\n";
    assert_eq!(checked(&from, Some(ours)), (true, sound.to_owned()));
    let (is_sound, stdout) = checked(&from, None);
    let elsewhere = "1 attachments are not in the database: if they are elsewhere, set --attachments\n";
    let named = "an attachment is missing: organization acme: ";
    assert!(!is_sound && stdout.starts_with(named) && stdout.contains(elsewhere), "{stdout}");
    assert!(stdout.ends_with("1 problems\n"), "{stdout}");

    let refused = command(&from, &to).output().unwrap();
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && stderr.contains("set --from-attachments"), "{stderr}");
    let both = ["--from-attachments", &url(ours), "--to-attachments", &url(theirs)];
    for copied in [1, 0] {
        let copy = command(&from, &to).args(both).output().unwrap();
        let stdout = String::from_utf8(copy.stdout).unwrap();
        assert!(
            copy.status.success() && stdout.ends_with(&format!(" {copied} new attachments\n")),
            "{stdout}"
        );
    }
    assert_eq!(checked(&to, Some(theirs)), (true, sound.to_owned()));
    // Into the database of a store that already has all entries.
    let copy = command(&from, &to).args(["--from-attachments", &url(ours)]).output().unwrap();
    assert!(copy.status.success());
    assert_eq!(checked(&to, None), (true, sound.to_owned()));

    let below = std::fs::read_dir(theirs).unwrap().map(|entry| entry.unwrap().path());
    let of_acme = below.into_iter().find(|path| path.is_dir()).unwrap();
    let file = std::fs::read_dir(of_acme).unwrap().next().unwrap().unwrap().path();
    let third = Database::default();
    for (damage, found) in [
        (Some("nothing was f0und"), "does not match its hash"),
        (Some("nothing was foun"), "does not match its hash"),
        (Some(""), "is missing or empty"),
        (None, "is missing or empty"),
        (Some("itself"), "cannot be read: "),
    ] {
        match damage {
            // No user can read a file that links to itself.
            Some("itself") => std::os::unix::fs::symlink(&file, &file).unwrap(),
            Some(content) => std::fs::write(&file, content).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let (is_sound, stdout) = checked(&to, Some(theirs));
        assert!(!is_sound && stdout.starts_with("organization acme: ") && stdout.contains(found), "{stdout}");
        let copy = command(&to, &third).args(["--from-attachments", &url(theirs)]).output().unwrap();
        let stderr = String::from_utf8(copy.stderr).unwrap();
        let digest = file.file_name().unwrap().to_str().unwrap();
        assert!(stderr.contains(&format!("organization acme: the attachment {digest} {found}")), "{stderr}");
        assert!(
            !copy.status.success() && stderr.contains("the copy is incomplete: 1 attachments"),
            "{stderr}"
        );
        let (_, stdout) = checked(&third, None);
        assert!(!stdout.contains("does not match"), "{stdout}");
    }
    // A copy restores attachments that its target has lost.
    std::fs::remove_file(&file).unwrap();
    let copy = command(&from, &to).args(both).output().unwrap();
    let stdout = String::from_utf8(copy.stdout).unwrap();
    assert!(copy.status.success() && stdout.ends_with(" 1 new attachments\n"), "{stdout}");
    assert_eq!(checked(&to, Some(theirs)), (true, sound.to_owned()));
}

/// A copy writes the marker of its target, so that no server mistakes the mount point of a volume for it.
#[test]
fn a_server_on_a_copy_takes_no_directory_but_the_one_that_was_filled() {
    let (from, to) = (Database::default(), Database::default());
    let key = fill(&from);
    let directory = tempfile::tempdir().unwrap();
    let [filled, empty] = ["filled", "empty"].map(|name| directory.path().join(name));
    for path in [&filled, &empty] {
        std::fs::create_dir(path).unwrap();
    }
    let copy = command(&from, &to).args(["--to-attachments", &url(&filled)]).output().unwrap();
    assert!(copy.status.success(), "{}", String::from_utf8_lossy(&copy.stderr));
    assert!(filled.join("evidence-marker").is_file());
    for (attachments, status) in [(&empty, 503), (&filled, 200)] {
        let mut serve = program(&[]);
        serve.env("EVIDENCE_ATTACHMENTS", url(attachments));
        let server = Server::run(serve, &to, &key);
        let (found, text) = server.call("GET", "/ready", "text/plain", "");
        assert_eq!(found, status, "{text}");
    }
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
}

#[test]
fn a_copy_that_the_target_refuses_leaves_no_marker() {
    let [from, to]: [Database; 2] = std::array::from_fn(|_| Database::default());
    fill(&from);
    fill(&to);
    let directory = tempfile::tempdir().unwrap();
    let copy = command(&from, &to).args(["--to-attachments", &url(directory.path())]).output().unwrap();
    let stderr = String::from_utf8(copy.stderr).unwrap();
    assert!(stderr.contains("the target has a name of organization 'jane' already"), "{stderr}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Returns the file of a database.
fn file(database: &Database) -> &Path {
    Path::new(database.url.strip_prefix("sqlite://").expect("a file"))
}

#[test]
fn what_cannot_be_copied_is_reported_in_a_sentence() {
    let [filled, other, empty, missing] = std::array::from_fn(|_| Database::default());
    fill(&filled);
    fill(&other);
    // The start of a server creates the file.
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
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{stderr}");
        assert!(stderr.starts_with(sentence) && stderr.lines().count() == 1, "{stderr}");
    }
    assert!(!file(&missing).exists(), "a source is never made, nor a target for no source");
}
