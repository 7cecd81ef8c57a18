//! A note beside the database file about the last write. If a write-ahead log is lost, its writes are lost
//! too, and the remaining file is a valid, older store. Only information outside the database can reveal the
//! missing entries.
//!
//! The note is written after each commit, without a sync. It may be older than the database but never newer,
//! because the database syncs. If the database is older than the note, the note is renamed and stays. `fsck`
//! then reports the loss until an operator has handled it and removes the note. The note identifies the file
//! by its lasting identity ([`lasting_id`]), so a backup that is restored as another file is not reported as
//! a loss.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use evidence_core::id::Id;
use rusqlite::Connection;

use crate::file::lasting_id;

/// The note of one database file.
#[derive(Debug)]
pub(crate) struct LastWrite {
    database: PathBuf,
    path: PathBuf,
    lost: PathBuf,
    /// Open after the first write.
    file: Option<std::fs::File>,
    failed: bool,
}

/// The content of a note.
#[derive(Debug, PartialEq, Eq)]
struct Note {
    org: Id,
    /// The number of entries in its ledger.
    size: u64,
    /// The identity of the database file ([`lasting_id`]).
    file: (u64, u64),
}

impl Note {
    /// Every note has the same length, so that one overwrites another completely.
    fn text(&self) -> String {
        let Self { org, size, file: (inode, made) } = self;
        format!("{org} {size:020} {inode:020} {made:020}\n")
    }

    fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let mut words = text.split_whitespace();
        let org = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(Self { org, size: number()?, file: (number()?, number()?) })
    }
}

impl LastWrite {
    /// Creates the note for this database file.
    pub(crate) fn beside(database: &Path) -> Self {
        let beside = |part: &str| {
            let mut path = database.as_os_str().to_owned();
            path.push(part);
            PathBuf::from(path)
        };
        let (path, lost) = (beside("-last"), beside("-lost"));
        Self { database: database.to_owned(), path, lost, file: None, failed: false }
    }

    /// Records the new size of an organization's ledger.
    pub(crate) fn note(&mut self, org: Id, size: u64) {
        if let Err(error) = self.write(org, size)
            && !std::mem::replace(&mut self.failed, true)
        {
            let file = self.path.display();
            tracing::warn!(%file, %error, "the last write cannot be noted: a lost write-ahead log would go unnoticed");
        }
    }

    fn write(&mut self, org: Id, size: u64) -> std::io::Result<()> {
        let note = Note { org, size, file: self.database_id() };
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut options = std::fs::OpenOptions::new();
                options.write(true).create(true).truncate(false);
                #[cfg(unix)]
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                none.insert(options.open(&self.path)?)
            }
        };
        file.seek(SeekFrom::Start(0))?;
        file.write_all(note.text().as_bytes())
    }

    fn database_id(&self) -> (u64, u64) {
        lasting_id(&self.database).unwrap_or_default()
    }

    /// Checks that the database contains the last write, and renames the note if it does not. An unreadable
    /// database is left for `fsck` to report.
    pub(crate) fn check(&self, connection: &Connection) {
        let Ok(Some(_)) = self.missing(connection, "main") else { return };
        let (file, lost) = (self.database.display(), self.lost.display());
        tracing::error!(
            %file,
            "ledger entries that were recorded are missing: the write-ahead log was lost, or an older copy of the file was put back"
        );
        // Do not overwrite the note of an earlier loss.
        if !self.lost.exists()
            && let Err(error) = std::fs::rename(&self.path, &self.lost)
        {
            tracing::error!(%file, %lost, %error, "the note of the last write cannot be put aside");
        }
    }

    /// Returns a sentence for each loss: writes that the database `schema` of a connection no longer
    /// contains.
    pub(crate) fn losses(&self, connection: &Connection, schema: &str) -> rusqlite::Result<Vec<String>> {
        let missing = self.missing(connection, schema)?;
        let missing = missing.map(|(note, found)| loss(&note, &format!("now it has {found}")));
        let lost = self.lost.display();
        let earlier =
            Note::read(&self.lost).map(|note| loss(&note, &format!("remove '{lost}' to end this report")));
        Ok(missing.into_iter().chain(earlier).collect())
    }

    /// Returns the note and the number of entries of its ledger, if the ledger has fewer entries than the
    /// note records.
    fn missing(&self, connection: &Connection, schema: &str) -> rusqlite::Result<Option<(Note, u64)>> {
        let Some(note) = Note::read(&self.path).filter(|note| note.file == self.database_id()) else {
            return Ok(None);
        };
        // If the rows of a known organization are gone, the log is not the cause, so this check does not
        // report it.
        let size = format!(
            "SELECT coalesce(
                (SELECT h.size FROM {schema}.organization o JOIN {schema}.head h ON h.org = o.key WHERE o.id = $1),
                (SELECT 9223372036854775807 FROM {schema}.known_organization k WHERE k.id = $1), 0)"
        );
        let found = connection.query_row(&size, [note.org.to_string()], |row| row.get::<_, i64>(0))?;
        let found = u64::try_from(found).unwrap_or_default();
        Ok((found < note.size).then_some((note, found)))
    }
}

fn loss(Note { org, size, .. }: &Note, then: &str) -> String {
    format!(
        "the write-ahead log was lost, or an older copy of the file was put back: the ledger of organization {org} had \
         {size} entries; {then}"
    )
}
