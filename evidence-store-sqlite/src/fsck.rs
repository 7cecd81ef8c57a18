//! Checking a whole store: every hash of every ledger computed again from what it stands for, then what follows from
//! the ledgers (`rebuild.rs`); and making again what follows from them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use evidence_core::StoreError;
use evidence_core::auth::KeyHash;
use evidence_core::ledger::{Frontier, Hash, Header, Node};
use evidence_core::queue::Refused;
use evidence_core::store::{StoreResult, StoredEntry};
use tokio::task::spawn_blocking;

use crate::db::SqliteStore;
use crate::error::store_error;
use crate::rebuild::{Ledger, NAMED, Range, Scratch, legible};
use crate::rows::unsigned;

/// How many entries are held in memory at a time.
const PAGE: u64 = 256;

/// Organizations are looked at together until they have this share of all entries: for each such part some tables are
/// read from end to end, which have no index by organization, and what is written meanwhile stays in the log.
const PARTS: u64 = 16;

/// After how many bytes of attachments the log may begin anew.
const RELIEVED: i64 = 64 << 20;

/// What a check of the whole store found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// How many organizations there are.
    pub organizations: u64,
    /// How many ledger entries were checked.
    pub entries: u64,
    /// How many attachments that records name are not in the store. Where they are not kept elsewhere, this is damage, too.
    pub missing_attachments: u64,
    /// The first of them: the names of their organizations, and their digests.
    pub first_missing: Vec<String>,
    /// What is damaged, one sentence each; empty for a sound store.
    pub problems: Vec<String>,
}

/// What making the tables again from the ledgers did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// How many organizations there are.
    pub organizations: u64,
    /// How many ledger entries the tables were made from.
    pub entries: u64,
    /// How many rows were not what the ledgers say and are now.
    pub rows: u64,
    /// What is damaged in the ledgers, one sentence each. If there is anything, no row was changed.
    pub problems: Vec<String>,
}

impl SqliteStore {
    /// Computes every payload hash, leaf, stored node, head and attachment again, and names what does not match; where
    /// a ledger is sound, so are the tables that follow from it. Writes may go on meanwhile: each organization is looked
    /// at as it is at some time.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be read; damage is reported, not an error.
    pub async fn fsck(&self) -> StoreResult<FsckReport> {
        self.fsck_with(|_| {}).await
    }

    /// The same, telling each organization's name, on a thread for slow work, before it is looked at.
    ///
    /// # Errors
    /// As [`Self::fsck`].
    pub async fn fsck_with(&self, begins: impl FnMut(&str) + Send + 'static) -> StoreResult<FsckReport> {
        self.walk(begins, |mut walk| {
            walk.check()?;
            Ok(walk.report)
        })
        .await
    }

    /// Makes every table that follows from the ledgers again, from them alone but for the hashes of API keys, which no
    /// ledger has. It is one transaction: nobody writes meanwhile, readers see the tables as they were until all are
    /// made, and if it breaks off nothing was changed. Nothing is changed either where a ledger is damaged.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be read or written; damage is reported, not an error.
    pub async fn rebuild(&self) -> StoreResult<RebuildReport> {
        self.walk(|_| {}, |mut walk| walk.rebuild()).await
    }

    async fn walk<T: Send + 'static>(
        &self,
        begins: impl FnMut(&str) + Send + 'static,
        work: impl FnOnce(Walk) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        if self.queue.is_closed() {
            return Err(Refused::Closed.into());
        }
        let file = Arc::clone(self.readers.opened());
        let (begins, migrations) = (Box::new(begins), self.migrations);
        let walk = move || {
            // Where there is none, one would be made.
            file.check().map_err(store_error)?;
            let scratch = Scratch::beside(file.name(), migrations)?;
            work(Walk { scratch, begins, report: FsckReport::default(), lost: BTreeSet::new() })
        };
        spawn_blocking(walk).await.map_err(|_| Refused::Closed)?
    }
}

/// How many entries are looked at together at least.
pub(crate) fn parts(ledgers: &[Ledger]) -> u64 {
    // Sizes as they are stored, which nobody has checked yet.
    let sizes = ledgers.iter().filter_map(|(.., size)| u64::try_from(*size).ok());
    sizes.fold(0, u64::saturating_add) / PARTS
}

/// What of an entry does not match its hashes.
fn flaws(entry: &StoredEntry) -> impl Iterator<Item = String> {
    let StoredEntry { index, kind, at, actor, payload_sha256, leaf_hash, payload } = entry;
    let payload = (Hash::of(payload) != *payload_sha256)
        .then(|| format!("the payload of ledger entry {index} does not match its hash"));
    let header = Header { index: *index, kind, at: at.as_micros(), actor, payload_sha256: *payload_sha256 };
    let leaf = (header.leaf_hash() != *leaf_hash)
        .then(|| format!("the leaf of ledger entry {index} does not match its header"));
    payload.into_iter().chain(leaf)
}

/// Whether these are the entries of a ledger from an index on, as they were recorded.
pub(crate) fn check_page(first: u64, page: &[StoredEntry]) -> StoreResult<()> {
    for (index, entry) in (first..).zip(page) {
        let missing = (entry.index != index).then(|| format!("ledger entry {index} is missing"));
        if let Some(flaw) = missing.or_else(|| flaws(entry).next()) {
            return Err(StoreError::corrupt(flaw));
        }
    }
    Ok(())
}

/// A walk through all ledgers. What follows from those that are sound is made again on the way.
struct Walk {
    scratch: Scratch,
    begins: Box<dyn FnMut(&str) + Send>,
    report: FsckReport,
    /// The texts that facts refer to and none keeps.
    lost: BTreeSet<String>,
}

impl Walk {
    fn check(&mut self) -> StoreResult<()> {
        let file = self.scratch.integrity();
        let file = legible("the schema", file, &mut self.report.problems)?;
        self.note(file);
        let ledgers = self.scratch.legible_ledgers(None, &mut self.report.problems)?;
        let (quota, mut after) = (parts(&ledgers), None);
        while after < Some(i64::MAX) {
            self.scratch.begin()?;
            let range = self.read(after, quota)?;
            let differences = self.scratch.differences(&range)?;
            self.note(differences);
            self.note_missing()?;
            let unaccounted = self.scratch.unaccounted(&range)?;
            self.note(unaccounted);
            self.scratch.end_reading()?;
            self.scratch.clear()?;
            self.scratch.relieve_log()?;
            after = Some(range.upto);
        }
        self.check_blobs()?;
        let lost =
            std::mem::take(&mut self.lost).into_iter().map(|text| format!("a text is missing: {text}"));
        self.report.problems.extend(lost);
        let strays = self.scratch.strays()?;
        self.note(strays);
        Ok(())
    }

    fn rebuild(&mut self) -> StoreResult<RebuildReport> {
        self.scratch.begin_writing()?;
        self.read(None, u64::MAX)?;
        let unaccounted = self.scratch.unaccounted(&Range::ALL)?;
        self.report.problems.extend(unaccounted);
        let sound = self.report.problems.is_empty();
        // Otherwise the transaction ends with the connection, undone.
        let rows = if sound { self.scratch.restore()? } else { 0 };
        if sound {
            self.scratch.commit()?;
        }
        let FsckReport { organizations, entries, problems, .. } = std::mem::take(&mut self.report);
        Ok(RebuildReport { organizations, entries, rows, problems })
    }

    /// Reads the ledgers after an organization until so many entries were read, and answers how far that was.
    fn read(&mut self, after: Option<i64>, quota: u64) -> StoreResult<Range> {
        let hashes = legible("table api_key", self.scratch.key_hashes(), &mut self.report.problems)?;
        let mut range = Range::after(after);
        let before = self.report.entries;
        let ledgers = self.scratch.legible_ledgers(after, &mut self.report.problems)?;
        if self.scratch.is_spoilt()? {
            self.scratch.roll_back()?;
            self.scratch.begin()?;
        }
        for ledger in ledgers {
            if range.upto < i64::MAX && self.report.entries - before >= quota {
                return Ok(range);
            }
            range.upto = ledger.0;
            (self.begins)(&ledger.1);
            self.report.organizations += 1;
            let problems = self.report.problems.len();
            match self.ledger(&ledger, &hashes) {
                Err(StoreError::Corrupt { what }) => {
                    self.problem(&ledger, format_args!("its ledger cannot be read: {what}"));
                }
                outcome => outcome?,
            }
            if self.report.problems.len() > problems {
                range.damaged.push(ledger.0);
                // Nothing can be made again any more before the next part.
                if self.scratch.is_spoilt()? {
                    return Ok(range);
                }
            }
        }
        Ok(Range { upto: i64::MAX, ..range })
    }

    fn problem(&mut self, (_, name, _): &Ledger, what: impl Display) {
        self.report.problems.push(format!("organization {name}: {what}"));
    }

    /// Adds the attachments that are not there, of which a few are named.
    fn note_missing(&mut self) -> StoreResult<()> {
        let missing = self.scratch.missing_attachments();
        let (count, first) = legible("table blob", missing, &mut self.report.problems)?;
        self.report.missing_attachments += count;
        self.report.first_missing.extend(first);
        self.report.first_missing.truncate(usize::from(NAMED));
        Ok(())
    }

    /// Adds what was found and is not told yet.
    fn note(&mut self, found: Vec<String>) {
        for problem in found {
            if !self.report.problems.contains(&problem) {
                self.report.problems.push(problem);
            }
        }
    }

    /// Checks a ledger, page after page, and makes again what follows from it for as long as it is sound.
    fn ledger(&mut self, ledger: &Ledger, hashes: &BTreeMap<String, KeyHash>) -> StoreResult<()> {
        let org = ledger.0;
        let before = self.report.problems.len();
        let head = match self.scratch.head(org) {
            Err(StoreError::Corrupt { what }) => {
                self.problem(ledger, format_args!("its head cannot be read: {what}"));
                None
            }
            head => head?,
        };
        if head.is_none() && self.report.problems.len() == before {
            self.problem(ledger, "its ledger has no head");
        }
        // Without a head the entries are checked as far as they go.
        let size = head.as_ref().map(Frontier::size);
        let (mut frontier, mut completed, mut id) = (Frontier::default(), 0, None);
        while size.is_none_or(|size| frontier.size() < size) {
            let next = frontier.size();
            let limit = size.map_or(PAGE, |size| PAGE.min(size - next));
            let page = match self.scratch.entries(org, next, limit) {
                Err(StoreError::Corrupt { what }) => {
                    self.problem(
                        ledger,
                        format_args!("ledger entries from {next} on cannot be read: {what}"),
                    );
                    return Ok(());
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
                nodes.extend(frontier.append(entry.leaf_hash));
            }
            completed += nodes.len() as u64;
            self.nodes(ledger, &nodes)?;
            if frontier.size() < next + page.len() as u64 || page.is_empty() {
                let of = size.map(|size| format!(" of {size}")).unwrap_or_default();
                self.problem(ledger, format_args!("ledger entry {}{of} is missing", frontier.size()));
                return Ok(());
            }
            if self.report.problems.len() == before {
                match self.scratch.replay(org, &mut id, &page, hashes) {
                    Err(error @ StoreError::Unavailable(_)) => return Err(error),
                    Err(error) => self.problem(
                        ledger,
                        format_args!("the tables cannot be made again from its ledger: {error}"),
                    ),
                    Ok(lost) => self.lost.extend(lost),
                }
            }
        }
        if head.is_some_and(|head| head != frontier) {
            self.problem(ledger, "its head does not match its entries");
        }
        let (entries, nodes) = self.scratch.surplus(org, frontier.size())?;
        if entries > 0 {
            self.problem(ledger, format_args!("{entries} ledger entries lie past its head"));
        }
        if unsigned(nodes)? > completed {
            self.problem(ledger, "nodes are stored that belong to no entry");
        }
        Ok(())
    }

    /// Checks an entry. The tree goes on from the leaf as it is stored, so that one damaged payload is one problem.
    fn entry(&mut self, ledger: &Ledger, entry: &StoredEntry) {
        flaws(entry).for_each(|flaw| self.problem(ledger, flaw));
        self.report.entries += 1;
    }

    fn nodes(&mut self, ledger: &Ledger, nodes: &[Node]) -> StoreResult<()> {
        let places: Vec<_> = nodes.iter().map(|node| (node.level, node.index)).collect();
        let stored = self.scratch.nodes(ledger.0, &places)?;
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

    /// Whether every attachment still has the content that it is named after.
    fn check_blobs(&mut self) -> StoreResult<()> {
        let (mut last, mut read) = (None, 0_i64);
        loop {
            let next = legible("table blob", self.scratch.next_blob(last), &mut self.report.problems)?;
            let Some(((org, sha256, size), whole)) = next else { return Ok(()) };
            if !whole {
                self.report.problems.push(format!("the attachment {sha256} does not match its hash"));
            }
            read = read.saturating_add(size.max(0));
            if read > RELIEVED {
                self.scratch.relieve_log()?;
                read = 0;
            }
            last = Some((org, sha256));
        }
    }
}
