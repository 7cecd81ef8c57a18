//! Checking a whole store: every hash of every ledger computed again from what it stands for, then what follows from
//! the ledgers (`rebuild.rs`).

use std::collections::BTreeMap;

use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::ledger::{Frontier, Hash, Header, Node};
use evidence_core::queue::Refused;
use evidence_core::store::{LedgerStore, StoreResult, StoredEntry};
use tokio::task::spawn_blocking;

use crate::db::SqliteStore;
use crate::rebuild::Rebuild;
use crate::rows::{id, list, signed, unsigned, word};

/// How many entries are held in memory at a time.
const PAGE: u64 = 256;

const ORGANIZATIONS: &str = "SELECT id, name FROM organization ORDER BY key";

const NODES: &str = "
    SELECT n.level, n.idx, n.hash FROM organization o CROSS JOIN json_each($2) j
    CROSS JOIN node n ON n.org = o.key AND n.level = j.value->>0 AND n.idx = j.value->>1 WHERE o.id = $1";

const SURPLUS: &str = "
    SELECT (SELECT count(*) FROM ledger l WHERE l.org = o.key AND l.idx >= $2),
        (SELECT count(*) FROM node n WHERE n.org = o.key)
    FROM organization o WHERE o.id = $1";

/// What a check of the whole store found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// How many organizations there are.
    pub organizations: u64,
    /// How many ledger entries were checked.
    pub entries: u64,
    /// What is damaged, one sentence each; empty for a sound store.
    pub problems: Vec<String>,
}

/// The check of one ledger, page after page.
struct Check<'a> {
    name: &'a str,
    frontier: Frontier,
    nodes: u64,
    report: &'a mut FsckReport,
}

impl Check<'_> {
    fn problem(&mut self, what: impl std::fmt::Display) {
        self.report.problems.push(format!("organization {}: {what}", self.name));
    }

    /// Checks an entry and answers the nodes that it completes. The tree goes on from the leaf as it is stored, so
    /// that one damaged payload is one problem.
    fn entry(&mut self, entry: &StoredEntry) -> Vec<Node> {
        let StoredEntry { index, kind, at, actor, payload_sha256, leaf_hash, payload } = entry;
        if Hash::of(payload) != *payload_sha256 {
            self.problem(format_args!("the payload of ledger entry {index} does not match its hash"));
        }
        let (at, payload_sha256) = (at.as_micros(), *payload_sha256);
        if (Header { index: *index, kind, at, actor, payload_sha256 }).leaf_hash() != *leaf_hash {
            self.problem(format_args!("the leaf of ledger entry {index} does not match its header"));
        }
        self.report.entries += 1;
        self.frontier.append(*leaf_hash)
    }
}

impl SqliteStore {
    /// Computes every payload hash, leaf, stored node, head and attachment again, and names what does not match; where
    /// the ledger is sound, so are the tables that follow from it. Writes may go on meanwhile: ledger entries past the
    /// head that was read first are not looked at.
    ///
    /// # Errors
    /// [`StoreError`] when the file cannot be read; damage is reported, not an error.
    pub async fn fsck(&self) -> StoreResult<FsckReport> {
        let mut report = FsckReport::default();
        for (org, name) in self.ask(ORGANIZATIONS).long().all::<(String, String)>().await? {
            report.organizations += 1;
            match self.fsck_ledger(&org, &name, &mut report).await {
                Err(StoreError::Corrupt { what }) => {
                    report.problems.push(format!("organization {name}: {what}"));
                }
                outcome => outcome?,
            }
        }
        let (file, sound) = (self.file().to_owned(), report.problems.is_empty());
        let check = spawn_blocking(move || Rebuild::begin(&file)?.problems(sound));
        report.problems.extend(check.await.map_err(|_| Refused::Closed)??);
        Ok(report)
    }

    async fn fsck_ledger(&self, org: &str, name: &str, report: &mut FsckReport) -> StoreResult<()> {
        let org = id(org)?;
        let Some(head) = self.ledger_head(org).await? else {
            report.problems.push(format!("organization {name}: its ledger has no head"));
            return Ok(());
        };
        let mut check = Check { name, frontier: Frontier::default(), nodes: 0, report };
        while check.frontier.size() < head.size() {
            let next = check.frontier.size();
            let page = self.ledger_entries(org, next, PAGE.min(head.size() - next)).await?;
            let mut nodes = Vec::new();
            for (index, entry) in (next..).zip(&page) {
                if entry.index != index {
                    break;
                }
                nodes.extend(check.entry(entry));
            }
            self.fsck_nodes(org, &nodes, &mut check).await?;
            if check.frontier.size() < next + page.len() as u64 || page.is_empty() {
                let gap = check.frontier.size();
                check.problem(format_args!("ledger entry {gap} of {} is missing", head.size()));
                return Ok(());
            }
        }
        if check.frontier != head {
            check.problem("its head does not match its entries");
        }
        self.fsck_surplus(org, &head, &mut check).await
    }

    async fn fsck_nodes(&self, org: Id, nodes: &[Node], check: &mut Check<'_>) -> StoreResult<()> {
        let places: Vec<_> = nodes.iter().map(|node| (node.level, node.index)).collect();
        let question = self.ask(NODES).bind(org.to_string()).bind(list(&places)?).long();
        let mut stored: BTreeMap<(u32, u64), Hash> = BTreeMap::new();
        for (level, index, hash) in question.all::<(u32, i64, String)>().await? {
            stored.insert((level, unsigned(index)?), word(&hash)?);
        }
        for Node { level, index, hash } in nodes {
            check.nodes += 1;
            match stored.get(&(*level, *index)) {
                Some(found) if found == hash => {}
                Some(_) => {
                    check.problem(format_args!("node {index} of level {level} does not match its leaves"))
                }
                None => check.problem(format_args!("node {index} of level {level} is missing")),
            }
        }
        Ok(())
    }

    /// Looks for entries past the head and nodes that belong to no leaf, unless the ledger has grown meanwhile.
    async fn fsck_surplus(&self, org: Id, head: &Frontier, check: &mut Check<'_>) -> StoreResult<()> {
        let question = self.ask(SURPLUS).bind(org.to_string()).bind(signed(head.size())).long();
        let Some((entries, nodes)) = question.first::<(i64, i64)>().await? else { return Ok(()) };
        if self.ledger_head(org).await?.as_ref() != Some(head) {
            return Ok(());
        }
        if entries > 0 {
            check.problem(format_args!("{entries} ledger entries lie past its head"));
        }
        if unsigned(nodes)? > check.nodes {
            check.problem("nodes are stored that belong to no entry");
        }
        Ok(())
    }
}
