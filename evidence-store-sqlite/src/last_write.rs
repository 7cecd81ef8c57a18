//! A note beside the database file of what was written last. Whatever a write-ahead log has is gone with it, and what is left
//! of the file is a sound, older store: only something outside of the database can tell that entries are missing.
//!
//! The note is written after each commit, without waiting for the disk: it may be older than the database, and is never
//! newer, for the database waits for the disk. Where the database is older than the note says, the note is renamed and
//! stays, so that `fsck` reports the loss until somebody has dealt with it and removes it. It names the file by what no other
//! file has ([`lasting_id`]): a backup that is put back as another file has lost nothing.

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
    /// Open from the first write on.
    file: Option<std::fs::File>,
    failed: bool,
}

/// What a note says.
#[derive(Debug, PartialEq, Eq)]
struct Note {
    org: Id,
    /// The number of entries of its ledger.
    size: u64,
    /// The database file ([`lasting_id`]).
    file: (u64, u64),
}

impl Note {
    /// Every note has the same length, so that one takes the place of another.
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
    /// The note beside this database file.
    pub(crate) fn beside(database: &Path) -> Self {
        let beside = |part: &str| {
            let mut path = database.as_os_str().to_owned();
            path.push(part);
            PathBuf::from(path)
        };
        let (path, lost) = (beside("-last"), beside("-lost"));
        Self { database: database.to_owned(), path, lost, file: None, failed: false }
    }

    /// Notes that the ledger of an organization has this size now.
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

    /// Looks whether the database has what was written last, and puts the note aside where it has not. What cannot be read
    /// is for `fsck` to report.
    pub(crate) fn check(&self, connection: &Connection) {
        let Ok(Some(_)) = self.missing(connection, "main") else { return };
        let (file, lost) = (self.database.display(), self.lost.display());
        tracing::error!(
            %file,
            "ledger entries that were recorded are missing: the write-ahead log was lost, or an older copy of the file was put back"
        );
        // An earlier loss is not overwritten.
        if !self.lost.exists()
            && let Err(error) = std::fs::rename(&self.path, &self.lost)
        {
            tracing::error!(%file, %lost, %error, "the note of the last write cannot be put aside");
        }
    }

    /// What is missing of what was written to the database `schema` of a connection, a sentence for each loss.
    pub(crate) fn losses(&self, connection: &Connection, schema: &str) -> rusqlite::Result<Vec<String>> {
        let missing = self.missing(connection, schema)?;
        let missing = missing.map(|(note, found)| loss(&note, &format!("now it has {found}")));
        let lost = self.lost.display();
        let earlier =
            Note::read(&self.lost).map(|note| loss(&note, &format!("remove '{lost}' to end this report")));
        Ok(missing.into_iter().chain(earlier).collect())
    }

    /// The note of a ledger that has fewer entries than it says, and how many these are.
    fn missing(&self, connection: &Connection, schema: &str) -> rusqlite::Result<Option<(Note, u64)>> {
        let Some(note) = Note::read(&self.path).filter(|note| note.file == self.database_id()) else {
            return Ok(None);
        };
        // Where the rows of a known organization are gone, that is what is wrong, and not the log.
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
