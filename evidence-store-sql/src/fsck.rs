//! Checks and rebuilds a whole store. `fsck` recomputes every hash of every ledger, then compares the tables
//! that are derived from the ledgers (`scratch.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use evidence_core::StoreError;
use evidence_core::auth::KeyHash;
use evidence_core::ledger::note::SignedNote;
use evidence_core::ledger::{Checkpoint, Frontier, Hash, Node};
use evidence_core::queue::Refused;
use evidence_core::store::{MAX_CLOCK_LEAD, StoreResult, StoredEntry};
use evidence_core::time::Timestamp;
use futures_util::FutureExt;

use crate::driver::{Driver, Outdated, ScratchWork};
use crate::scratch::{Derivation, Ledger, MAX_NAMED, OrgRange, Scratch, ScratchSession};
use crate::store::SqlStore;
use crate::value::Cell;

/// The number of entries that are in memory at a time.
pub(crate) const PAGE: u64 = 256;

/// The number of parts into which a walk divides all entries. A part covers organizations until they have
/// this fraction of the entries (1/16). Small organizations share a part, because beginning and ending a part
/// takes longer than reading them. In SQLite, each part also scans the tables that have no index by
/// organization.
const MAX_PARTS: u64 = 16;

/// The number of attachment bytes between checkpoints of SQLite's write-ahead log.
const CHECKPOINT_AFTER: i64 = 64 << 20;

/// The result of a check of the whole store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FsckReport {
    /// The number of organizations whose ledgers were checked.
    pub organizations: u64,
    /// The number of checked ledger entries.
    pub entries: u64,
    /// The number of attachments that records reference but the store lacks. This is damage unless they are
    /// stored elsewhere.
    pub missing_attachments: u64,
    /// The first ten missing attachments, each as `organization <name>: <sha256>`.
    pub first_missing: Vec<String>,
    /// The size and the root of each ledger, in the order of the organizations in the store.
    pub ledgers: Vec<LedgerState>,
    /// The damage that was found, one line each; empty for a sound store.
    pub problems: Vec<String>,
}

/// The size and root of a ledger, computed from its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerState {
    /// The organization's name.
    pub organization: String,
    /// The number of entries in the ledger.
    pub size: u64,
    /// The root of the ledger's Merkle tree.
    pub root: Hash,
}

/// The result of rebuilding the tables from the ledgers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildReport {
    /// The number of organizations whose ledgers were read.
    pub organizations: u64,
    /// The number of ledger entries that the tables were derived from.
    pub entries: u64,
    /// The number of rows that differed from the ledgers and were corrected.
    pub rows: u64,
    /// The damage in the ledgers, one line each. If this is not empty, no row was changed.
    pub problems: Vec<String>,
}

impl<D: Driver> SqlStore<D> {
    /// Recomputes every payload hash, leaf, stored node, head and attachment, and reports mismatches. For
    /// each sound ledger it also checks the tables that are derived from it. Writes may continue meanwhile:
    /// each organization is checked in one snapshot.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if the store cannot be read. Damage is part of the report and not an error.
    pub async fn fsck(&self) -> StoreResult<FsckReport> {
        self.fsck_with(|_| {}).await
    }

    /// Checks the store like [`Self::fsck`] and calls `on_organization` with each organization's name before its
    /// check.
    ///
    /// # Errors
    /// As [`Self::fsck`].
    pub async fn fsck_with(
        &self,
        on_organization: impl FnMut(&str) + Send + 'static,
    ) -> StoreResult<FsckReport> {
        self.check_open()?;
        let on_organization: OnOrganization = Box::new(on_organization);
        let work: ScratchWork<D::ScratchSession, _> = Box::new(|session| {
            async move {
                let mut walk = Walk::new(session, on_organization).await?;
                walk.check().await?;
                walk.scratch.end().await?;
                Ok(walk.report)
            }
            .boxed()
        });
        self.driver.with_scratch(work).await
    }

    /// Rebuilds every table that is derived from the ledgers. The only other source is the stored hashes of
    /// API keys, which no ledger contains. The rebuild is one transaction: it blocks writers, readers see the
    /// old tables until it commits, and an interruption changes nothing. It also changes nothing if a ledger
    /// is damaged.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if the store cannot be read or written. Damage is part of the report and not
    /// an error.
    pub async fn rebuild(&self) -> StoreResult<RebuildReport> {
        self.check_open()?;
        let work: ScratchWork<D::ScratchSession, _> = Box::new(|session| {
            async move {
                let mut walk = Walk::new(session, Box::new(|_| {})).await?;
                let report = walk.rebuild().await?;
                walk.scratch.end().await?;
                Ok(report)
            }
            .boxed()
        });
        self.driver.with_scratch(work).await
    }

    fn check_open(&self) -> StoreResult<()> {
        if self.driver.queue().is_closed() { Err(Refused::Closed.into()) } else { Ok(()) }
    }
}

/// Returns the minimum number of entries in a part: a sixteenth of all entries.
pub(crate) fn entries_per_part(ledgers: &[Ledger]) -> u64 {
    // The stored sizes are not verified yet.
    let sizes = ledgers.iter().filter_map(|(.., size)| u64::try_from(*size).ok());
    sizes.fold(0, u64::saturating_add) / MAX_PARTS
}

/// Returns the mismatches between an entry and its hashes.
fn flaws(entry: &StoredEntry) -> impl Iterator<Item = String> {
    let index = entry.index;
    let payload = (!entry.payload_matches())
        .then(|| format!("the payload of ledger entry {index} does not match its hash"));
    let leaf = (entry.header().leaf_hash() != entry.leaf_hash)
        .then(|| format!("the leaf of ledger entry {index} does not match its header"));
    payload.into_iter().chain(leaf)
}

/// Checks that these are the entries of a ledger from an index on, without gaps and with matching hashes.
pub(crate) fn check_page(first: u64, page: &[StoredEntry]) -> StoreResult<()> {
    for (index, entry) in (first..).zip(page) {
        let missing = (entry.index != index).then(|| format!("ledger entry {index} is missing"));
        if let Some(flaw) = missing.or_else(|| flaws(entry).next()) {
            return Err(StoreError::corrupt(flaw));
        }
    }
    Ok(())
}

/// The kind of [`evidence_core::Fact::ClockCorrected`].
const CLOCK_CORRECTED: &str = "clock_corrected";

/// Entries with a time in the future.
#[derive(Debug, Default)]
struct FutureEntries {
    entries: u64,
    /// The index of the first such entry.
    first: Option<u64>,
}

impl FutureEntries {
    /// Resets the count at a clock correction, which corrects the times of the entries before it. A
    /// correction that is in the future itself does not.
    fn end_at(&mut self, at: Timestamp, latest: Timestamp) {
        if at <= latest {
            *self = Self::default();
        }
    }

    /// Counts an entry that is later than `latest`.
    fn add(&mut self, entry: &StoredEntry, latest: Timestamp) {
        if entry.at > latest {
            self.entries += 1;
            self.first.get_or_insert(entry.index);
        }
    }
}

/// A callback that receives each organization's name before its check.
type OnOrganization = Box<dyn FnMut(&str) + Send>;

/// What is stored beside the ledgers, and is compared with them.
struct BesideLedgers {
    /// The hashes of keys, by key id.
    key_hashes: BTreeMap<String, KeyHash>,
    /// The last signed checkpoints, by organization.
    checkpoints: BTreeMap<Cell, String>,
}

/// A walk through all ledgers. It derives the rows of the sound ones.
struct Walk<S> {
    scratch: Scratch<S>,
    on_organization: OnOrganization,
    report: FsckReport,
    /// The texts that facts refer to and that no entry contains.
    missing_texts: BTreeSet<String>,
    /// The problems of signed checkpoints, which neither hide others nor prevent a rebuild.
    unsigned: Vec<String>,
}

impl<S: ScratchSession> Walk<S> {
    async fn new(session: S, on_organization: OnOrganization) -> StoreResult<Self> {
        let scratch = Scratch::new(session).await?;
        Ok(Self {
            scratch,
            on_organization,
            report: FsckReport::default(),
            missing_texts: BTreeSet::new(),
            unsigned: Vec::new(),
        })
    }

    async fn check(&mut self) -> StoreResult<()> {
        // Losses come first. With an older snapshot, writes during the check would look lost.
        let losses = self.scratch.losses().await?;
        self.note(losses);
        let file = self.scratch.integrity().await?;
        self.note(file);
        self.scratch.begin().await?;
        let ledgers = self.scratch.readable_ledgers(None, &mut self.report.problems).await?;
        self.scratch.end_reading().await?;
        let (quota, mut after) = (entries_per_part(&ledgers), None);
        loop {
            self.scratch.begin().await?;
            let range = self.read(after, quota).await?;
            let differences = self.scratch.differences(&range).await?;
            self.note(differences);
            self.note_missing().await?;
            self.check_secret_urls(&range).await?;
            let unrecoverable_rows = self.scratch.unrecoverable_rows(&range).await?;
            self.note(unrecoverable_rows);
            self.scratch.end_reading().await?;
            self.scratch.clear().await?;
            self.scratch.checkpoint_wal().await?;
            after = range.upto;
            if after.is_none() {
                break;
            }
        }
        let unsigned = std::mem::take(&mut self.unsigned);
        self.note(unsigned);
        self.check_blobs(&ledgers).await?;
        let lost = std::mem::take(&mut self.missing_texts)
            .into_iter()
            .map(|text| format!("a text is missing: {text}"));
        self.report.problems.extend(lost);
        let whole_store_problems = self.scratch.whole_store_problems().await?;
        self.note(whole_store_problems);
        Ok(())
    }

    async fn rebuild(&mut self) -> StoreResult<RebuildReport> {
        self.scratch.begin_writing().await?;
        self.read(None, u64::MAX).await?;
        let unrecoverable_rows = self.scratch.unrecoverable_rows(&OrgRange::default()).await?;
        self.report.problems.extend(unrecoverable_rows);
        let sound = self.report.problems.is_empty();
        // If there are problems, the transaction is rolled back when the connection closes.
        let mut rows = 0;
        if sound {
            rows = self.scratch.swap_in_all().await?.ok_or(Outdated)?;
            self.scratch.commit().await?;
        }
        let FsckReport { organizations, entries, problems, .. } = std::mem::take(&mut self.report);
        Ok(RebuildReport { organizations, entries, rows, problems })
    }

    /// Reads the ledgers after an organization until `quota` entries were read. Returns the range of
    /// organizations that it covered.
    async fn read(&mut self, after: Option<Cell>, quota: u64) -> StoreResult<OrgRange> {
        self.scratch.savepoint().await?;
        let hashes = self.scratch.key_hashes().await;
        let key_hashes =
            self.scratch.or_report_damage("table api_key", hashes, &mut self.report.problems).await?;
        self.scratch.savepoint().await?;
        let checkpoints = self.scratch.signed_checkpoints().await;
        let checkpoints =
            self.scratch.or_report_damage("table checkpoint", checkpoints, &mut self.unsigned).await?;
        let beside = BesideLedgers { key_hashes, checkpoints };
        let mut range = OrgRange::after(after);
        let before = self.report.entries;
        let ledgers = self.scratch.readable_ledgers(range.after.clone(), &mut self.report.problems).await?;
        if self.scratch.hit_damaged_page().await? {
            self.scratch.roll_back().await?;
            self.scratch.begin().await?;
        }
        for ledger in ledgers {
            if range.upto.is_some() && self.report.entries - before >= quota {
                return Ok(range);
            }
            range.upto = Some(ledger.0.clone());
            (self.on_organization)(&ledger.1);
            self.report.organizations += 1;
            let problems = self.report.problems.len();
            self.scratch.savepoint().await?;
            let read = self.ledger(&ledger, &beside).await;
            let part = format!("organization {}: its ledger", ledger.1);
            self.scratch.or_report_damage(&part, read, &mut self.report.problems).await?;
            if self.report.problems.len() > problems {
                range.damaged.push(ledger.0);
                // SQLite cannot derive anything more in this part.
                if self.scratch.hit_damaged_page().await? {
                    return Ok(range);
                }
            }
        }
        Ok(OrgRange { upto: None, ..range })
    }

    fn problem(&mut self, (_, name, _): &Ledger, what: impl Display) {
        self.report.problems.push(format!("organization {name}: {what}"));
    }

    /// Adds the missing attachments to the report, and names a few of them.
    async fn note_missing(&mut self) -> StoreResult<()> {
        self.scratch.savepoint().await?;
        let missing = self.scratch.missing_attachments().await;
        let (count, first) =
            self.scratch.or_report_damage("table blob", missing, &mut self.report.problems).await?;
        self.report.missing_attachments += count;
        self.report.first_missing.extend(first);
        self.report.first_missing.truncate(usize::from(MAX_NAMED));
        Ok(())
    }

    /// Adds the problems of the secret URLs to the report.
    async fn check_secret_urls(&mut self, range: &OrgRange) -> StoreResult<()> {
        self.scratch.savepoint().await?;
        let found = self.scratch.secret_url_problems(range).await;
        let found =
            self.scratch.or_report_damage("table secret_url", found, &mut self.report.problems).await?;
        self.note(found);
        Ok(())
    }

    /// Adds problems that are not in the report yet.
    fn note(&mut self, found: Vec<String>) {
        for problem in found {
            if !self.report.problems.contains(&problem) {
                self.report.problems.push(problem);
            }
        }
    }

    /// Checks a ledger page by page, and derives its rows as long as it is sound.
    async fn ledger(&mut self, ledger: &Ledger, beside: &BesideLedgers) -> StoreResult<()> {
        let org = &ledger.0;
        let before = self.report.problems.len();
        let head = match self.scratch.head(org).await {
            Err(StoreError::Corrupt { what }) => {
                self.problem(ledger, format_args!("its head cannot be read: {what}"));
                self.scratch.rollback_to_savepoint().await?;
                None
            }
            head => head?,
        };
        if head.is_none() && self.report.problems.len() == before {
            self.problem(ledger, "its ledger has no head");
        }
        let mut signed = beside.checkpoints.get(org).and_then(|note| self.signed_checkpoint(ledger, note));
        // Without a head, the entries are checked to their end.
        let size = head.as_ref().map(Frontier::size);
        let (mut frontier, mut completed, mut derivation) = (Frontier::default(), 0, Derivation::default());
        let latest = self.scratch.now().await?.plus(MAX_CLOCK_LEAD);
        let mut future = FutureEntries::default();
        let mut last = Timestamp::from_micros(i64::MIN);
        while size.is_none_or(|size| frontier.size() < size) {
            let next = frontier.size();
            let limit = size.map_or(PAGE, |size| PAGE.min(size - next));
            let page = match self.scratch.entries(org, next, limit).await {
                Err(StoreError::Corrupt { what }) => {
                    self.problem(
                        ledger,
                        format_args!("ledger entries from {next} on cannot be read: {what}"),
                    );
                    return self.scratch.rollback_to_savepoint().await;
                }
                page => page?,
            };
            if page.is_empty() && size.is_none() {
                break;
            }
            let mut nodes = Vec::new();
            for (index, entry) in (next..).zip(&page) {
                if entry.index != index {
                    break;
                }
                self.entry(ledger, entry);
                // A damaged kind is reported separately.
                if entry.kind == CLOCK_CORRECTED {
                    future.end_at(entry.at, latest);
                } else if entry.at < last {
                    self.problem(ledger, format_args!("ledger entry {index} is older than the one before"));
                }
                last = entry.at;
                future.add(entry, latest);
                nodes.extend(frontier.append(entry.leaf_hash));
                if let Some(Checkpoint { size, root, .. }) = signed.take_if(|it| it.size == frontier.size())
                    && root != frontier.root()
                {
                    let what = format!("its first {size} entries are not those of the signed checkpoint");
                    self.unsigned.push(format!("organization {}: {what}", ledger.1));
                }
            }
            completed += nodes.len() as u64;
            self.nodes(ledger, &nodes).await?;
            if frontier.size() < next + page.len() as u64 || page.is_empty() {
                let of = size.map(|size| format!(" of {size}")).unwrap_or_default();
                self.problem(ledger, format_args!("ledger entry {}{of} is missing", frontier.size()));
                return Ok(());
            }
            if self.report.problems.len() == before {
                match self.scratch.derive(org, &mut derivation, &page, &beside.key_hashes).await {
                    Err(error @ StoreError::Unavailable(_)) => return Err(error),
                    Err(error) => {
                        self.problem(
                            ledger,
                            format_args!("the tables cannot be made again from its ledger: {error}"),
                        );
                        self.scratch.rollback_to_savepoint().await?;
                    }
                    Ok(lost) => self.missing_texts.extend(lost),
                }
            }
        }
        if let Some(first) = future.first {
            let FutureEntries { entries, .. } = future;
            self.problem(
                ledger,
                format_args!(
                    "{entries} ledger entries lie in the future, from entry {first} on, the last of {last}: \
                     'evidence-server ledger end-future' ends that"
                ),
            );
        }
        let state =
            LedgerState { organization: ledger.1.clone(), size: frontier.size(), root: frontier.root() };
        self.report.ledgers.push(state);
        if let Some(Checkpoint { size, .. }) = signed {
            let what = format!("a checkpoint of {size} entries was signed, but it has {}", frontier.size());
            self.unsigned.push(format!("organization {}: {what}", ledger.1));
        }
        if head.is_some_and(|head| head != frontier) {
            self.problem(ledger, "its head does not match its entries");
        }
        let (entries, nodes) = self.scratch.rows_past_head(org, frontier.size()).await?;
        if entries > 0 {
            self.problem(ledger, format_args!("{entries} ledger entries lie past its head"));
        }
        if nodes > completed {
            self.problem(ledger, "nodes are stored that belong to no entry");
        }
        Ok(())
    }

    /// Returns the signed checkpoint of a ledger from this note. Its signature is not checked, because the keys are elsewhere.
    fn signed_checkpoint(&mut self, ledger: &Ledger, note: &str) -> Option<Checkpoint> {
        let read = |note: &str| note.parse::<SignedNote>()?.text().parse::<Checkpoint>();
        let checkpoint = read(note);
        if let Err(error) = &checkpoint {
            self.unsigned
                .push(format!("organization {}: its signed checkpoint cannot be read: {error}", ledger.1));
        }
        checkpoint.ok()
    }

    /// Checks an entry. The tree continues from the stored leaf, so one damaged payload is one problem.
    fn entry(&mut self, ledger: &Ledger, entry: &StoredEntry) {
        flaws(entry).for_each(|flaw| self.problem(ledger, flaw));
        self.report.entries += 1;
    }

    async fn nodes(&mut self, ledger: &Ledger, nodes: &[Node]) -> StoreResult<()> {
        let places = nodes.iter().map(|node| (node.level, node.index));
        let stored = self.scratch.nodes(&ledger.0, places).await?;
        for Node { level, index, hash } in nodes {
            match stored.get(&(*level, *index)) {
                Some(found) if found == hash => {}
                Some(_) => self
                    .problem(ledger, format_args!("node {index} of level {level} does not match its leaves")),
                None => self.problem(ledger, format_args!("node {index} of level {level} is missing")),
            }
        }
        Ok(())
    }

    /// Checks that the content of every attachment still matches its hash.
    async fn check_blobs(&mut self, ledgers: &[Ledger]) -> StoreResult<()> {
        let (mut last, mut read) = (None::<(Cell, String)>, 0_i64);
        loop {
            let next = match self.scratch.next_blob(last.clone()).await {
                Err(StoreError::Corrupt { what }) => {
                    self.note(vec![format!("table blob cannot be read: {what}")]);
                    // After an unreadable attachment, the check continues with the next organization.
                    let past = |org: &&Cell| last.as_ref().is_none_or(|(last, _)| last < *org);
                    let next = ledgers.iter().map(|(org, ..)| org).find(past);
                    next.map(|org| (org.clone(), String::new()))
                }
                next => match next? {
                    Some(((org, sha256, size), whole)) => {
                        let flaw = match whole {
                            Err(StoreError::Corrupt { what }) => Some(format!("cannot be read: {what}")),
                            whole => (!whole?).then(|| "does not match its hash".to_owned()),
                        };
                        let problem = flaw.map(|flaw| format!("the attachment {sha256} {flaw}"));
                        self.report.problems.extend(problem);
                        read = read.saturating_add(size.max(0));
                        Some((org, sha256))
                    }
                    None => None,
                },
            };
            if next.is_none() {
                return Ok(());
            }
            if read > CHECKPOINT_AFTER {
                self.scratch.checkpoint_wal().await?;
                read = 0;
            }
            last = next;
        }
    }
}
