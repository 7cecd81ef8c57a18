//! The failures of commands, as one sentence for standard error.

use std::net::SocketAddr;
use std::path::PathBuf;

use evidence_core::transfer::{AttachmentCounts, Summary};
use evidence_core::{Error, Wording};

/// The failure of a command. `Display` is the text for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the database URL must begin with sqlite:// or postgres://")]
    UnknownStore,
    #[error("there is no database file '{}'", .0.display())]
    NoDatabase(PathBuf),
    #[error("the store cannot be opened: {0}")]
    Sqlite(#[from] evidence_store_sqlite::ConnectError),
    #[error("the store cannot be opened: {0}")]
    Postgres(#[from] evidence_store_postgres::ConnectError),
    #[error("{0}")]
    Attachments(#[from] evidence_object_store::OpenError),
    #[error("{0}")]
    LedgerKeys(#[from] evidence_core::checkpoints::LedgerKeysError),
    #[error(
        "the ledgers of {} are named '{name}', not '{given}': 'evidence-server ledger new-origin' names them anew",
        directory.display()
    )]
    OtherLedgerName { directory: PathBuf, name: String, given: String },
    #[error(
        "the database has signed checkpoints, and there is no key in {}: is the directory mounted? If it is lost, \
         'evidence-server ledger new-origin' begins logs of another name", .0.display()
    )]
    LostLedgerDirectory(PathBuf),
    #[error("a PostgreSQL database has no directory for ledger keys: set --ledger-dir")]
    NoLedgerDirectory,
    #[error("notifications cannot be sent: {0}")]
    Notifications(#[from] evidence_notify::NoNotifier),
    #[error("the store failed: {0}")]
    Store(#[from] evidence_core::StoreError),
    #[error(
        "nothing was changed, because this machine's clock is behind the database's clock: set the clock"
    )]
    ClockBehind,
    #[error("there is nothing to copy: the source has no organization")]
    NothingToCopy,
    #[error("the copy failed: {0}")]
    Copy(#[from] evidence_core::transfer::CopyError),
    #[error("the copy is incomplete: {}", not_copied(.0))]
    NotAll(Summary),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
    #[error("{0}")]
    Limits(#[from] evidence_core::limits::InvalidLimit),
    #[error("the log filter is not understood: {0}")]
    LogFilter(#[from] tracing_subscriber::filter::ParseError),
    #[error("{}", with_fields(.0))]
    Refused(#[from] Error),
    #[error("the store is damaged: {0} problems")]
    Damaged(usize),
    #[error("nothing was rebuilt, because the ledgers are damaged: {0} problems; restore them from a backup")]
    NotRebuilt(usize),
    #[error("the demo database cannot be created: {0}")]
    DemoFile(std::io::Error),
    #[error("this program's file cannot be read: {0}")]
    OwnBinary(std::io::Error),
    #[error("the demo could not be filled: {0}")]
    Demo(#[from] crate::demo::DemoError),
}

/// Lists what was not copied, with a remedy for each.
fn not_copied(summary: &Summary) -> String {
    let AttachmentCounts { missing, altered, unreadable, .. } = summary.attachments;
    let sentences = [
        (
            summary.damaged_organizations,
            "organizations are damaged in the source, or their attachments cannot be read (fsck of the source says more)",
        ),
        (
            summary.late_entries,
            "entries were recorded in the source meanwhile (stop its servers and copy again)",
        ),
        (
            missing,
            "attachments of the source have no content there (if it is elsewhere, set --from-attachments)",
        ),
        (
            altered,
            "attachments were altered in the source (upload the same files again there, and copy again)",
        ),
        (unreadable, "attachments of the source cannot be read (copy again when they can)"),
    ];
    let apply = sentences.iter().filter(|(count, _)| *count > 0);
    apply.map(|(count, sentence)| format!("{count} {sentence}")).collect::<Vec<_>>().join("; ")
}

/// Returns an error with its fields.
fn with_fields(error: &Error) -> String {
    let (message, fields) = match error {
        Error::Invalid { message, fields } => (message.clone(), fields.clone()),
        Error::NotFound(missing) => Wording::Documented.missing(missing),
        other => return other.to_string(),
    };
    let fields: Vec<String> = fields.iter().map(|(field, text)| format!("{field}: {text}")).collect();
    format!("{message}: {}", fields.join("; "))
}

/// Removes everything that may be a password in the arguments and settings of this process from a text for
/// standard error, which often ends in a log. Any message may quote a mistyped URL.
pub(crate) fn without_credentials(text: &str) -> String {
    let settings = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EVIDENCE_"));
    let values = std::env::args_os().skip(1).chain(settings.map(|(_, value)| value));
    let values = values.map(|value| value.to_string_lossy().into_owned());
    values.fold(text.to_owned(), |text, value| match secret(&value) {
        Some(secret) => text.replace(secret, "…"),
        None => text,
    })
}

/// Returns the part of a value that may contain a password. A password may have any character.
///
/// The part is one of these:
///
/// - everything after the `=` of a parameter whose name begins like "password"
/// - the query of a URL, even before a later `@`
/// - everything in a URL between its scheme, if any, and its last `@`
fn secret(value: &str) -> Option<&str> {
    let after_scheme = value.find("://").map(|at| at + 3);
    let begin = after_scheme.or_else(|| value.find('=').map(|at| at + 1)).unwrap_or(0);
    let url = value.get(begin..)?;
    if let Some((before, _)) = url.rsplit_once('@')
        && before.contains(':')
    {
        return if url.contains('?') { Some(url) } else { Some(before) };
    }
    let query = url.find('?').filter(|_| after_scheme.is_some());
    let lower = value.to_ascii_lowercase();
    let parameter = lower.find("pas").and_then(|name| Some(name + lower.get(name..)?.find('=')?));
    let secret = match (query, parameter) {
        (Some(query), _) => url.get(query..)?,
        (None, Some(equals)) => value.get(equals..)?,
        (None, None) => return None,
    };
    Some(secret).filter(|secret| secret.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_all_that_may_be_part_of_a_password() {
        for (value, expected) in [
            ("postgres://user:pass@host/db", Some("user:pass")),
            ("--database-url=postgre://user:p@ss/w rd@host", Some("user:p@ss/w rd")),
            ("user:pass@host/db", Some("user:pass")),
            ("--database-url=user:pass@host/db", Some("user:pass")),
            ("postgres://user@host/db", None),
            ("jane@example.com", None),
            ("sqlite://evidence.db", None),
            ("postgresql:///db?user=u&password=p", Some("?user=u&password=p")),
            ("--database-url=postgres://u@h/db?pasword=p", Some("?pasword=p")),
            ("postgres://h:1/db?user=u&password=p@ss", Some("h:1/db?user=u&password=p@ss")),
            ("postgres://user:p?ss@host/db", Some("user:p?ss@host/db")),
            ("postgres://h/db?user=u&password=p@ss", Some("?user=u&password=p@ss")),
            ("postgres:/h/db?Password=p", Some("=p")),
            ("host=h password=p w dbname=db", Some("=p w dbname=db")),
            ("https://example.com/?", None),
        ] {
            assert_eq!(secret(value), expected, "{value}");
        }
    }
}
