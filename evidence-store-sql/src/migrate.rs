//! Versions of the tables, and deriving tables again from the ledgers for a new one. Each version names the oldest program
//! that may write beside it, and every transaction that writes looks: so an older one that is still running stops. Where it
//! breaks off, a migration goes on when a program is started again.

use std::collections::BTreeSet;

use evidence_core::StoreError;
use evidence_core::store::StoreResult;

use crate::fsck::{PAGE, check_page, entries_per_part};
use crate::scratch::{Derivation, OrgRange, Scratch, ScratchSession};
use crate::value::Cell;

/// What brings the tables from one version to the next.
#[derive(Debug)]
pub struct Migration {
    /// The oldest version whose programs may write from the first step on: this one, unless what older ones write is what
    /// the tables should hold. Never older than that of the version before.
    pub min_writer_version: i64,
    /// In their order. They are never changed once a program with them was released.
    pub steps: &'static [Step],
}

/// A step of a migration.
#[derive(Debug)]
pub enum Step {
    /// Statements, in one transaction.
    Sql(&'static str),
    /// Derives these tables again from the ledgers, a few organizations at a time, once every step of every version is
    /// done: what makes rows makes those of the latest version.
    RederiveTables(&'static [&'static str]),
    /// Builds an index of this name, on a table and columns.
    Index {
        /// Its name.
        name: &'static str,
        /// The table, and its columns.
        on: &'static str,
    },
}

/// Whether the oldest version that may write never decreases, never exceeds its version, and equals it where tables are
/// derived again.
#[must_use]
pub const fn writers_are_consistent(migrations: &[Migration]) -> bool {
    let (mut version, mut oldest) = (0, 0);
    while version < migrations.len() {
        let Migration { min_writer_version, steps } = &migrations[version];
        version += 1;
        if *min_writer_version < oldest || *min_writer_version > version as i64 {
            return false;
        }
        oldest = *min_writer_version;
        let mut step = 0;
        while step < steps.len() {
            if matches!(steps[step], Step::RederiveTables(_)) && *min_writer_version < version as i64 {
                return false;
            }
            step += 1;
        }
    }
    true
}

/// The version that these migrations lead to.
#[must_use]
pub fn latest(migrations: &[Migration]) -> i64 {
    i64::try_from(migrations.len()).unwrap_or(i64::MAX)
}

/// How many rows of a table one transaction puts in their place.
const ROWS: usize = 4096;

/// Tables that are due to be derived again for a version.
#[derive(Debug, Clone)]
pub struct Rederivation {
    /// The version.
    pub version: i64,
    /// The tables.
    pub tables: Vec<&'static str>,
    /// How many rows of a table one transaction puts in their place.
    pub part: usize,
}

impl Rederivation {
    /// What these versions are behind with, in the form that the last one gives the tables.
    #[must_use]
    pub fn due(migrations: &[Migration], behind: &[i64]) -> Self {
        let steps = (1..).zip(migrations).filter(|(version, _)| behind.contains(version));
        let tables = steps.flat_map(|(_, migration)| migration.steps).filter_map(|step| match step {
            Step::RederiveTables(tables) => Some(*tables),
            Step::Sql(_) | Step::Index { .. } => None,
        });
        let tables = BTreeSet::from_iter(tables.flatten().copied()).into_iter().collect();
        Self { version: latest(migrations), tables, part: ROWS }
    }

    /// Derives the tables again from the ledgers, in scratch tables, and swaps them in. Nobody writes facts meanwhile:
    /// programs of older versions may not, those of this one wait for the end. Where two of them do this at once, each
    /// transaction finds out whether the other was faster, or a newer one has begun, which derives them again then.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read or written, or a ledger is damaged.
    pub async fn run(&self, session: impl ScratchSession) -> StoreResult<()> {
        let mut scratch = Scratch::new(session).await?;
        let quota = entries_per_part(&scratch.ledgers(None).await?);
        while let Some(after) = scratch.rederived_through(self.version).await? {
            scratch.begin().await?;
            let range = derive_some(&mut scratch, after.clone(), quota).await?;
            let mut marked = Vec::new();
            for table in &self.tables {
                // A later version may have dropped it.
                if scratch.has(table) {
                    marked.push((*table, scratch.record_differing_keys(table, &range).await?));
                }
            }
            scratch.commit().await?;
            for (table, rows) in marked {
                let ours =
                    match self.swap_in_parts(&mut scratch, self.part, after.as_ref(), table, rows).await {
                        // What is unique goes from a row of one part to a row of another: all of them are one part then.
                        Err(StoreError::Conflict) => {
                            scratch.roll_back().await?;
                            self.swap_in_parts(&mut scratch, usize::MAX, after.as_ref(), table, rows).await?
                        }
                        ours => ours?,
                    };
                if !ours {
                    // What is open ends with the connection.
                    return scratch.end().await;
                }
            }
            scratch.begin_changing().await?;
            if scratch.rederived_through(self.version).await?.as_ref() == Some(&after) {
                scratch.note_rederived(self.version, &range).await?;
            }
            scratch.commit().await?;
            scratch.clear().await?;
        }
        scratch.end().await
    }

    /// Puts the rows of a table that differ in their place, part by part; answers whether nobody else was faster.
    async fn swap_in_parts(
        &self,
        scratch: &mut Scratch<impl ScratchSession>,
        part: usize,
        after: Option<&Cell>,
        table: &str,
        rows: u64,
    ) -> StoreResult<bool> {
        for from in (0..rows).step_by(part) {
            scratch.begin_changing().await?;
            if scratch.rederived_through(self.version).await?.as_ref().map(Option::as_ref) != Some(after) {
                return Ok(false);
            }
            scratch.swap_in(table, from, from.saturating_add(part as u64).min(rows)).await?;
            scratch.commit().await?;
        }
        Ok(true)
    }
}

/// Derives the rows of the ledgers after an organization until so many entries were read, and answers how far that was.
async fn derive_some(
    scratch: &mut Scratch<impl ScratchSession>,
    after: Option<Cell>,
    quota: u64,
) -> StoreResult<OrgRange> {
    let hashes = scratch.key_hashes().await?;
    let mut problems = Vec::new();
    let ledgers = scratch.readable_ledgers(after.clone(), &mut problems).await?;
    if let Some(problem) = problems.pop() {
        return Err(StoreError::corrupt(problem));
    }
    let (mut range, mut read) = (OrgRange::after(after), 0);
    for (org, name, _) in ledgers {
        if range.upto.is_some() && read >= quota {
            return Ok(range);
        }
        let (mut next, mut derivation) = (0, Derivation::default());
        loop {
            let page = scratch.entries(&org, next, PAGE).await?;
            if page.is_empty() {
                break;
            }
            check_page(next, &page).map_err(|error| of(&name, error))?;
            next += page.len() as u64;
            scratch.derive(&org, &mut derivation, &page, &hashes).await.map_err(|error| of(&name, error))?;
        }
        read += next;
        range.upto = Some(org);
    }
    Ok(OrgRange { upto: None, ..range })
}

/// Names the organization whose ledger is damaged.
fn of(name: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { what } => StoreError::corrupt(format_args!("organization {name}: {what}")),
        error => error,
    }
}
