//! The commits of the demo: the newest ones of the repository in the working directory, or a sample.

use std::process::Command;

/// The maximum number of commits.
const COMMITS: &str = "20";
/// The separators of a commit's fields and of commits: bytes that do not occur in messages.
const FIELD: char = '\u{1f}';
const RECORD: char = '\u{1e}';

/// Some commits and their source.
#[derive(Debug)]
pub(crate) struct History {
    /// The name of the source for people.
    pub(crate) source: String,
    /// The branch; empty without one.
    pub(crate) branch: String,
    /// The commits, oldest first. Never empty.
    pub(crate) commits: Vec<Commit>,
}

/// One commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) sha1: String,
    pub(crate) author: String,
    /// The time, in epoch seconds.
    pub(crate) timestamp: i64,
    pub(crate) message: String,
}

/// Returns the repository's commits. Returns a built-in sample without git, without a repository or commits,
/// and in a SHA-256 repository.
pub(crate) fn history() -> History {
    from_repository().unwrap_or_else(sample)
}

fn from_repository() -> Option<History> {
    let log = git(&["log", "-n", COMMITS, "--format=%H%x1f%an <%ae>%x1f%ct%x1f%B%x1e"])?;
    let commits: Vec<Commit> = log.split(RECORD).rev().filter_map(commit).collect();
    if commits.is_empty() {
        return None;
    }
    let source = git(&["rev-parse", "--show-toplevel"])?;
    let branch = git(&["rev-parse", "--abbrev-ref", "HEAD"])?;
    let source = format!("the last {} commits of {}", commits.len(), source.trim());
    Some(History { source, branch: branch.trim().to_owned(), commits })
}

/// Returns the output of git; `None` if git is not installed or fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

fn commit(record: &str) -> Option<Commit> {
    let mut fields = record.trim_start().splitn(4, FIELD).map(str::to_owned);
    Some(Commit {
        sha1: fields.next().filter(|sha1| sha1.len() == 40)?,
        author: fields.next()?,
        timestamp: fields.next()?.parse().ok()?,
        message: fields.next()?.trim_end().to_owned(),
    })
}

fn sample() -> History {
    let day = |day: i64| 1_767_600_000 + day * 86_400;
    let commit = |sha1: &str, author: &str, timestamp, message: &str| Commit {
        sha1: sha1.to_owned(),
        author: author.to_owned(),
        timestamp,
        message: message.to_owned(),
    };
    let (ada, alan) = ("Ada <ada@example.com>", "Alan <alan@example.com>");
    History {
        source: "a built-in sample, because no SHA-1 commits could be read here".to_owned(),
        branch: "main".to_owned(),
        commits: vec![
            commit("3b1a7e0c5d92f4868e0b7c1d2a3f4e5d6c7b8a90", ada, day(0), "Add the order service"),
            commit("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", alan, day(1), "Reject orders without items"),
            commit("c1dfd96eea8cc2b62785275bca38ac261256e278", ada, day(2), "Retry payments once"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_read_with_its_whole_message() {
        let sha1 = "a".repeat(40);
        let record = format!("\n{sha1}\u{1f}Ada <ada@example.com>\u{1f}1767600000\u{1f}Subject\n\nBody\n");
        let expected = Commit {
            sha1,
            author: "Ada <ada@example.com>".to_owned(),
            timestamp: 1_767_600_000,
            message: "Subject\n\nBody".to_owned(),
        };
        assert_eq!(commit(&record), Some(expected));
    }

    #[test]
    fn what_is_no_commit_is_passed_over() {
        for record in ["", "\n", "abc\u{1f}Ada\u{1f}0\u{1f}x", "fatal: not a git repository"] {
            assert_eq!(commit(record), None, "{record:?}");
        }
    }

    #[test]
    fn the_sample_is_made_of_whole_commits() {
        let history = sample();
        assert!(history.commits.iter().all(|commit| commit.sha1.len() == 40));
        assert!(history.commits.is_sorted_by_key(|commit| commit.timestamp));
    }
}
