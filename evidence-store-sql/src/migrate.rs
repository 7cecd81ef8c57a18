//! Versions of the tables, and rederivation of tables from the ledgers for a new version. Each version names
//! the oldest program that may write beside it. Every write transaction checks this, so an older program that
//! is still running stops writing. An interrupted migration continues at the next start of a program.

use std::collections::BTreeSet;

use evidence_core::StoreError;
use evidence_core::store::StoreResult;

use crate::fsck::{PAGE, check_page, entries_per_part};
use crate::scratch::{Derivation, OrgRange, RederivationProgress, Scratch, ScratchSession};
use crate::value::Cell;

/// The steps from one version of the tables to the next.
#[derive(Debug)]
pub struct Migration {
    /// The oldest version whose programs may write from the first step on. It is this version, unless rows of
    /// older programs are correct in the new tables. It is never older than that of the version before.
    pub min_writer_version: i64,
    /// The steps in order. They never change after the release of a program that contains them.
    pub steps: &'static [Step],
}

/// A step of a migration.
#[derive(Debug)]
pub enum Step {
    /// Statements, in one transaction.
    Sql(&'static str),
    /// Rederives these tables from the ledgers, a few organizations at a time. This runs after the other
    /// steps of all versions, because the code that builds rows builds those of the latest version.
    RederiveTables(&'static [&'static str]),
    /// Builds an index of this name, on a table and columns.
    Index {
        /// The name of the index.
        name: &'static str,
        /// The table and its columns.
        on: &'static str,
    },
}

/// Returns whether the oldest version that may write is consistent. It must never decrease, must not exceed
/// its version, and must equal its version if tables are rederived.
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

/// Returns the version that these migrations lead to.
#[must_use]
pub fn latest(migrations: &[Migration]) -> i64 {
    i64::try_from(migrations.len()).unwrap_or(i64::MAX)
}

/// The number of rows that one transaction replaces.
const ROWS: usize = 4096;

/// Tables to rederive for a version.
#[derive(Debug, Clone)]
pub struct Rederivation {
    /// The version.
    pub version: i64,
    /// The tables.
    pub tables: Vec<&'static str>,
    /// The number of rows that one transaction replaces.
    pub part: usize,
}

impl Rederivation {
    /// Returns the rederivation that the versions in `behind` still need, for the tables of the latest
    /// version.
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

    /// Rederives the tables from the ledgers into scratch tables, and swaps them in. Facts cannot be written
    /// meanwhile: older programs are excluded, and programs of this version wait for the end. Several
    /// programs may do this at once. Each transaction checks whether another program was faster, or whether a
    /// newer program has begun and will rederive the tables itself.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if the store cannot be read or written, or if a ledger is damaged.
    pub async fn run(&self, session: impl ScratchSession) -> StoreResult<()> {
        let mut scratch = Scratch::new(session).await?;
        let quota = entries_per_part(&scratch.ledgers(None).await?);
        while let RederivationProgress::Through(after) = scratch.rederivation_progress(self.version).await? {
            let before = RederivationProgress::Through(after.clone());
            scratch.begin().await?;
            let range = derive_some(&mut scratch, after, quota).await?;
            let mut marked = Vec::new();
            for table in &self.tables {
                // A later version may have dropped it.
                if scratch.has(table) {
                    marked.push((*table, scratch.record_differing_keys(table, &range).await?));
                }
            }
            scratch.commit().await?;
            for (table, rows) in marked {
                let ours = match self.swap_in_parts(&mut scratch, self.part, &before, table, rows).await {
                    // A unique value moved from a row of one part to a row of another. Retry with all
                    // rows in one part.
                    Err(StoreError::Conflict) => {
                        scratch.roll_back().await?;
                        self.swap_in_parts(&mut scratch, usize::MAX, &before, table, rows).await?
                    }
                    ours => ours?,
                };
                if !ours {
                    // The open transaction is rolled back when the connection closes.
                    return scratch.end().await;
                }
            }
            scratch.begin_changing().await?;
            if scratch.rederivation_progress(self.version).await? == before {
                scratch.note_rederived(self.version, &range).await?;
            }
            scratch.commit().await?;
            scratch.clear().await?;
        }
        scratch.end().await
    }

    /// Replaces the differing rows of a table, part by part. Returns false if another program was faster.
    async fn swap_in_parts(
        &self,
        scratch: &mut Scratch<impl ScratchSession>,
        part: usize,
        before: &RederivationProgress,
        table: &str,
        rows: u64,
    ) -> StoreResult<bool> {
        for from in (0..rows).step_by(part) {
            scratch.begin_changing().await?;
            if scratch.rederivation_progress(self.version).await? != *before {
                return Ok(false);
            }
            scratch.swap_in(table, from, from.saturating_add(part as u64).min(rows)).await?;
            scratch.commit().await?;
        }
        Ok(true)
    }
}

/// Derives the rows of the ledgers after an organization until `quota` entries were read. Returns the range
/// of organizations that it covered.
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

/// Adds the organization's name to the error of a damaged ledger.
fn of(name: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { what } => StoreError::corrupt(format_args!("organization {name}: {what}")),
        error => error,
    }
}
