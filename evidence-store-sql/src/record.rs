//! The write path, from a caller's write to its rows. The caller's task does the work that needs no database
//! ([`Submission`]). The writer then reads once ([`Prefetch`]), decides in memory ([`Plan`]) and writes
//! ([`Group`]).

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use evidence_core::fact::{Denoted, EncodedFact, RecordKind, Secrets};
use evidence_core::id::Id;
use evidence_core::ledger::{Frontier, Node};
use evidence_core::name_index::{Name, NameIndex, RecordRef, RequiredReads};
use evidence_core::queue::{Outcome, Reply};
use evidence_core::store::{Entry, Recorder, ReferenceClock, StoreResult};
use evidence_core::time::Timestamp;
use evidence_core::transfer::{Import, older_entries};
use evidence_core::{Fact, Key, Precondition, StoreError, Write};

use crate::driver::Driver;
use crate::group_rows::GroupRows;
use crate::ledger::frontier;
use crate::prefetch::{FLOW, HEAD, List, NAME, PrefetchStatement, RECORD, SERIES, VERSION};
use crate::row_builder::{Ordinals, RowBuilder, Series};
use crate::sql::Dialect;
use crate::store::SqlStore;
use crate::tables::TableWrite;
use crate::value::{Cell, Column, FromCell, FromRow, Row, Value, signed};
use crate::write_statements::WriteStatement;

/// The maximum number of writes in a group.
pub const MAX_GROUP: usize = 256;

/// The maximum payload bytes of a group. A single larger write forms its own group.
const MAX_GROUP_BYTES: usize = 32 << 20;

/// A write for the writer, with encoded and hashed payloads.
#[derive(Debug)]
pub struct Submission {
    /// The organization that the write belongs to.
    pub org: Id,
    begins: bool,
    /// The required index of the first fact. Only imports set it.
    first: Option<u64>,
    facts: Vec<EncodedFact>,
    preconditions: Vec<Precondition>,
    secrets: Secrets,
    /// The flows in which the write begins trails or reports artifacts or attestations. Each flow numbers
    /// these.
    flows: BTreeSet<Id>,
    /// The series that the write may extend with builds, decisions or deployments. Each series numbers its
    /// items.
    series: BTreeSet<Series>,
    /// The channel for the outcome.
    pub reply: Reply<Vec<Entry>>,
}

impl Submission {
    async fn new(write: Write, reply: Reply<Vec<Entry>>) -> StoreResult<Self> {
        let begins = write.begins_ledger();
        let Write { org, by, at, facts, preconditions, secrets, salts } = write;
        let facts = EncodedFact::all(facts, at, by, salts).await?;
        let (flows, series) = (numbered_flows(&facts), numbered_series(&facts));
        Ok(Self { org, begins, first: None, facts, preconditions, secrets, flows, series, reply })
    }

    pub(crate) fn of_import(import: Import, reply: Reply<Vec<Entry>>) -> Self {
        let begins = import.begins_ledger();
        let Import { org, first, facts, secrets, .. } = import;
        let (flows, series) = (numbered_flows(&facts), numbered_series(&facts));
        Self {
            org,
            begins,
            first: Some(first),
            facts,
            preconditions: Vec::new(),
            secrets,
            flows,
            series,
            reply,
        }
    }

    /// Returns the size of the payloads in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.facts.iter().map(|encoded| encoded.payload.len()).sum()
    }

    /// Returns whether the write corrects the clock. Such a write updates all rows of its organization, so
    /// its duration grows with their number.
    #[must_use]
    pub fn corrects_clock(&self) -> bool {
        self.facts().any(Fact::corrects_clock)
    }

    fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.facts.iter().map(|encoded| &encoded.fact)
    }
}

fn numbered_flows(facts: &[EncodedFact]) -> BTreeSet<Id> {
    let flow = |encoded: &EncodedFact| match &encoded.fact {
        Fact::TrailBegun { record } => Some(record.flow),
        Fact::ArtifactReported { record } => Some(record.flow),
        Fact::AttestationAdded { record } => Some(record.flow),
        _ => None,
    };
    facts.iter().filter_map(flow).collect()
}

fn numbered_series(facts: &[EncodedFact]) -> BTreeSet<Series> {
    facts.iter().flat_map(|encoded| Series::of(&encoded.fact)).collect()
}

/// Splits the writes into groups, in order. A group ends when its payloads would exceed the limit. A clock
/// correction gets its own group, because it may take long.
#[must_use]
pub fn groups_of(writes: Vec<Submission>) -> Vec<Vec<Submission>> {
    let mut groups: Vec<Vec<Submission>> = Vec::new();
    let (mut bytes, mut is_open) = (0, false);
    for write in writes {
        let is_alone = write.corrects_clock();
        bytes += write.size();
        match groups.last_mut() {
            Some(group) if is_open && !is_alone && bytes <= MAX_GROUP_BYTES => group.push(write),
            _ => {
                bytes = write.size();
                groups.push(vec![write]);
            }
        }
        is_open = !is_alone;
    }
    groups
}

#[async_trait]
impl<D: Driver> Recorder for SqlStore<D> {
    async fn record(&self, write: Write) -> StoreResult<Vec<Entry>> {
        let (reply, outcome) = self.driver.queue().outcome();
        self.submit(Submission::new(write, reply).await?, outcome).await
    }
}

impl<D: Driver> SqlStore<D> {
    /// Enqueues a write and waits for its outcome. A clock correction has no timeout, because it updates all
    /// rows of an organization.
    pub(crate) async fn submit(
        &self,
        submission: Submission,
        outcome: Outcome<Vec<Entry>>,
    ) -> StoreResult<Vec<Entry>> {
        let outcome = if submission.corrects_clock() { outcome.without_end() } else { outcome };
        self.driver.queue().submit(submission.into(), outcome).await
    }
}

/// A result row of the prefetch statement.
type PrefetchRow = (
    i64,
    Option<i64>,
    Option<Id>,
    Option<i64>,
    Option<Vec<u8>>,
    Option<i64>,
    Option<u64>,
    Option<u64>,
    Option<Id>,
);

/// Keys to look up, by column: number, organization, scope (a kind or a parent), and name.
#[derive(Debug, Default)]
struct PrefetchColumns {
    numbers: Vec<Option<i64>>,
    orgs: Vec<Option<Id>>,
    scopes: Vec<Option<String>>,
    names: Vec<Option<String>>,
}

impl PrefetchColumns {
    fn push(&mut self, number: i64, org: Option<Id>, scope: String, name: String) {
        self.numbers.push(Some(number));
        self.orgs.push(org);
        self.scopes.push(Some(scope));
        self.names.push(Some(name));
    }

    fn value(self) -> Value {
        let Self { numbers, orgs, scopes, names } = self;
        Value::Columns(vec![
            Column::Ints(numbers),
            Column::Orgs(orgs),
            Column::Texts(scopes),
            Column::Texts(names),
        ])
    }
}

/// The data that the writer reads before it plans a group.
#[derive(Debug)]
pub struct Prefetch {
    orgs: BTreeSet<Id>,
    names: Vec<Name>,
    records: Vec<RecordRef>,
    /// The flows whose trails, artifacts and attestations are numbered, each with its organization.
    flows: Vec<(Id, Id)>,
    /// The series of builds, decisions and deployments, each with its organization.
    series: Vec<(Id, Series)>,
}

impl Prefetch {
    /// Collects the data that these writes need.
    #[must_use]
    pub fn of(group: &[Submission]) -> Self {
        let mut reads = RequiredReads::default();
        for write in group {
            reads.add(write.org, &write.preconditions, write.facts());
        }
        let RequiredReads { names, revisions } = reads;
        let orgs = group.iter().map(|write| write.org).collect();
        let flows: BTreeSet<_> =
            group.iter().flat_map(|write| write.flows.iter().map(|flow| (write.org, *flow))).collect();
        let series: BTreeSet<_> = group
            .iter()
            .flat_map(|write| write.series.iter().map(|series| (write.org, series.clone())))
            .collect();
        Self {
            orgs,
            names: names.into_iter().collect(),
            records: revisions.into_iter().collect(),
            flows: flows.into_iter().collect(),
            series: series.into_iter().collect(),
        }
    }

    /// Returns the prefetch statement and its values. If all writes belong to one organization and `mixed` is
    /// false, the organization is a scalar parameter.
    #[must_use]
    pub fn statement(&self, dialect: Dialect, mixed: bool) -> (&'static str, Vec<Value>) {
        let mut lists = BTreeMap::<List, PrefetchColumns>::new();
        let mut push = |list, number, org, scope: String, name: String| {
            lists.entry(list).or_default().push(number, org, scope, name);
        };
        for (number, Name { org, key }) in (0..).zip(&self.names) {
            let (list, scope) = match key {
                Key::Organization(_) => (List::Organizations, String::new()),
                Key::User(_) => (List::Users, String::new()),
                Key::Trail { flow, .. } => (List::Trails, flow.to_string()),
                Key::Snapshot { environment, .. } => (List::Snapshots, environment.to_string()),
                Key::Artifact { trail, .. } => (List::Artifacts, trail.to_string()),
                Key::Content { trail, .. } => (List::Contents, trail.to_string()),
                Key::Member(_)
                | Key::UserSettings(_)
                | Key::ServiceAccount(_)
                | Key::Flow(_)
                | Key::Repo(_)
                | Key::Environment(_)
                | Key::Policy(_)
                | Key::AttestationType(_)
                | Key::Control(_)
                | Key::Action(_)
                | Key::ActionNumber(_) => (List::Named, key.kind().map_or("", RecordKind::as_str).to_owned()),
            };
            push(list, number, *org, scope, key.name().into_owned());
        }
        for (number, (org, kind, id)) in (0..).zip(&self.records) {
            let list = if *kind == RecordKind::Trail { List::TrailIds } else { List::Records };
            push(list, number, Some(*org), kind.as_str().to_owned(), id.to_string());
        }
        for (number, (org, flow)) in (0..).zip(&self.flows) {
            push(List::Flows, number, Some(*org), flow.to_string(), String::new());
        }
        for (number, (org, of)) in (0..).zip(&self.series) {
            let (kind, name) = of.key();
            push(List::Series, number, Some(*org), kind.to_owned(), name);
        }
        let statement = PrefetchStatement::of(&Vec::from_iter(lists.keys().copied()));
        let single = (!mixed && self.orgs.len() == 1 && dialect == Dialect::Postgres)
            .then(|| self.orgs.first())
            .flatten();
        let wanted_orgs = single.map_or_else(
            || Value::Columns(vec![Column::Orgs(self.orgs.iter().copied().map(Some).collect())]),
            |org| Value::Org(*org),
        );
        let values = statement.lists.iter().map(|list| lists.remove(list).unwrap_or_default().value());
        let values = std::iter::once(wanted_orgs).chain(values).collect();
        (statement.text(dialect, single.is_some()), values)
    }
}

/// The frontier of a ledger, the time of its last entry, and its size in the database. `was` is `None` for a
/// new ledger.
#[derive(Debug)]
struct Ledger {
    was: Option<u64>,
    frontier: Frontier,
    at: Timestamp,
    changed: bool,
}

/// The rows that a group will write. The plan decides in memory, write by write, in the order of arrival.
#[derive(Debug, Default)]
pub struct Plan {
    ledgers: BTreeMap<Id, Ledger>,
    name_index: NameIndex,
    rows: RowBuilder,
    ordinals: Ordinals,
    min_writer_version: i64,
    rebuild_count: i64,
    /// The reference clock and its time, for the check of write times.
    clock: Option<(ReferenceClock, Timestamp)>,
}

/// The head of a ledger after a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The organization.
    pub org: Id,
    /// The size before the group.
    pub was: u64,
    /// The size after the group.
    pub size: u64,
    /// The frontier after the group ([`Frontier::to_bytes`]).
    pub frontier: Vec<u8>,
}

/// The data that a group writes atomically.
#[derive(Debug)]
pub struct Group {
    /// The heads of the ledgers that grow. Each is a compare-and-swap on the size that the writer read.
    pub heads: Vec<Head>,
    /// The rows of all tables, including the heads of new ledgers.
    pub rows: GroupRows,
    /// The rebuild count of the tables when the group was planned.
    pub rebuild_count: i64,
}

impl Plan {
    /// Creates a plan from the rows of the [`Prefetch`] statement.
    ///
    /// # Errors
    /// Returns [`StoreError::Corrupt`] if a row cannot be decoded.
    pub fn new(prefetch: &Prefetch, rows: Vec<Row>) -> StoreResult<Self> {
        let mut plan = Self::default();
        for row in rows {
            let (what, number, id, value, hashes, at, trails, artifacts, org) = PrefetchRow::from_row(row)?;
            let position = number.and_then(|number| usize::try_from(number).ok()).unwrap_or(usize::MAX);
            match (what, org.or(id), value) {
                (HEAD, Some(org), Some(size)) => {
                    let frontier = frontier(size, &hashes.unwrap_or_default())?;
                    let (was, at) = (Some(frontier.size()), Timestamp::from_micros(at.unwrap_or_default()));
                    plan.ledgers.insert(org, Ledger { was, frontier, at, changed: false });
                    plan.ordinals.set_greatest((org, None), trails, artifacts);
                }
                (NAME, Some(id), alias) => {
                    if let Some(name) = prefetch.names.get(position) {
                        plan.name_index.insert_name(name.clone(), Denoted { id, alias: alias == Some(1) });
                    }
                }
                (RECORD, _, Some(revision)) => {
                    if let Some(record) = prefetch.records.get(position) {
                        plan.name_index.insert_revision(*record, u64::from_cell(Cell::Int(revision))?);
                    }
                }
                (VERSION, _, Some(version)) => {
                    (plan.min_writer_version, plan.rebuild_count) = (version, number.unwrap_or_default());
                    plan.clock = at.map(|at| (ReferenceClock::Database, Timestamp::from_micros(at)));
                }
                (FLOW, _, attestations) => {
                    if let Some((org, flow)) = prefetch.flows.get(position) {
                        plan.ordinals.set_greatest((*org, Some(*flow)), trails, artifacts);
                        let attestations = u64::from_cell(Cell::Int(attestations.unwrap_or_default()))?;
                        plan.ordinals.set_greatest_attestation((*org, Some(*flow)), attestations);
                    }
                }
                (SERIES, _, Some(greatest)) => {
                    if let Some((org, series)) = prefetch.series.get(position) {
                        let greatest = u64::from_cell(Cell::Int(greatest))?;
                        plan.ordinals.set_greatest_of(*org, series.clone(), greatest);
                    }
                }
                // An unused name, or a record that does not exist.
                _ => {}
            }
        }
        Ok(plan)
    }

    /// Sets the clock for the check of write times.
    #[must_use]
    pub fn with_clock(mut self, clock: ReferenceClock, time: Timestamp) -> Self {
        self.clock = Some((clock, time));
        self
    }

    /// Returns whether programs of this version may write.
    #[must_use]
    pub const fn admits_version(&self, version: i64) -> bool {
        self.min_writer_version <= version
    }

    /// Returns whether the plan has nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ledgers.values().all(|ledger| !ledger.changed)
    }

    /// Adds a write to the group. A refused write leaves the plan unchanged.
    ///
    /// # Errors
    /// Returns an error if a row cannot be encoded. This is a defect, and the plan must not be used
    /// afterwards.
    pub fn accept(&mut self, write: &Submission) -> serde_json::Result<StoreResult<Vec<Entry>>> {
        if let Err(refusal) = self.check(write) {
            return Ok(Err(refusal));
        }
        if write.begins {
            let (frontier, at) = (Frontier::default(), Timestamp::from_micros(i64::MIN));
            self.ledgers.insert(write.org, Ledger { was: None, frontier, at, changed: true });
        }
        for (id, stored) in &write.secrets.urls {
            self.rows.set_url(write.org, *id, stored.clone());
        }
        write.facts.iter().map(|fact| self.append(write, fact)).collect::<Result<_, _>>().map(Ok)
    }

    fn check(&self, write: &Submission) -> StoreResult<()> {
        // Imported facts were recorded elsewhere, so they may have any time.
        if let (Some((clock, time)), None, Some(first)) = (self.clock, write.first, write.facts.first()) {
            clock.check(first.at, time)?;
        }
        match (self.ledgers.contains_key(&write.org), write.begins) {
            (true, true) => return Err(StoreError::Conflict),
            (false, false) => {
                return Err(StoreError::Failed(format!("there is no organization {}", write.org).into()));
            }
            (true, false) | (false, true) => {}
        }
        let ledger = self.ledgers.get(&write.org);
        let size = ledger.map_or(0, |ledger| ledger.frontier.size());
        let in_place = write.first.is_none_or(|first| first == size);
        if !in_place || !self.name_index.admits(write.org, &write.preconditions, write.facts()) {
            return Err(StoreError::Conflict);
        }
        let last = ledger.map(|ledger| ledger.at);
        let is_older =
            write.first.is_some() && write.facts.first().is_some_and(|one| one.is_older_than(last));
        if is_older { Err(older_entries()) } else { Ok(()) }
    }

    /// Appends a fact to the ledger and adds its rows.
    fn append(&mut self, write: &Submission, encoded: &EncodedFact) -> serde_json::Result<Entry> {
        let missing = || serde::ser::Error::custom("the ledger was not prefetched");
        let ledger = self.ledgers.get_mut(&write.org).ok_or_else(missing)?;
        let EncodedFact { fact, actor, payload, salt, payload_hash, .. } = encoded;
        let index = ledger.frontier.size();
        // The clock of one server may be behind another's. A ledger's time goes back only if the fact
        // corrects the clock. An import keeps its times.
        let exactly = write.first.is_some() || fact.corrects_clock();
        let at = if exactly { encoded.at } else { encoded.at.max(ledger.at) };
        ledger.at = at;
        let leaf_hash = encoded.leaf_hash(index, at);
        self.rows.push(
            TableWrite::Ledger,
            vec![
                Value::Org(write.org),
                index.into(),
                fact.kind().into(),
                at.into(),
                actor.as_str().into(),
                (*payload_hash).into(),
                leaf_hash.into(),
                (*salt).into(),
                payload.as_str().into(),
            ],
        );
        ledger.changed = true;
        for node in ledger.frontier.append(leaf_hash) {
            let Node { level, index, hash } = node;
            let row = vec![Value::Org(write.org), u64::from(level).into(), index.into(), hash.into()];
            self.rows.push(TableWrite::Node, row);
        }
        self.name_index.apply(write.org, fact, index);
        self.rows.index((write.org, index), at, fact, &write.secrets.key_hashes, &mut self.ordinals)?;
        Ok(Entry { index, leaf_hash })
    }

    /// Returns the data to write.
    ///
    /// # Errors
    /// Returns an error if a row cannot be encoded, which is a defect.
    pub fn into_group(self) -> serde_json::Result<Group> {
        let Self { ledgers, rows, rebuild_count, .. } = self;
        let (mut rows, mut heads) = (rows.into_rows()?, Vec::new());
        for (org, Ledger { was, frontier, .. }) in ledgers.into_iter().filter(|(_, ledger)| ledger.changed) {
            let (size, frontier) = (frontier.size(), frontier.to_bytes());
            match was {
                Some(was) => heads.push(Head { org, was, size, frontier }),
                None => rows.push(TableWrite::Head, vec![Value::Org(org), size.into(), frontier.into()]),
            }
        }
        Ok(Group { heads, rows, rebuild_count })
    }
}

impl Group {
    /// Creates a group of rows only, for ledgers that are already written.
    #[must_use]
    pub const fn of_rows(rows: GroupRows) -> Self {
        Self { heads: Vec::new(), rows, rebuild_count: 0 }
    }

    /// Returns PostgreSQL's single statement for the group, with its values. The statement writes everything
    /// if the ledgers are unchanged since the prefetch and this version may write, and returns whether it
    /// did. Unless `mixed` is set, a group of one organization passes the organization as a scalar.
    #[must_use]
    pub fn into_statement(self, version: i64, mixed: bool) -> (&'static str, Vec<Value>) {
        let Self { heads, rows, rebuild_count } = self;
        let orgs: Vec<_> = heads.iter().map(|head| head.org).chain(rows.organizations()).collect();
        let single = match orgs.as_slice() {
            [org] if !mixed => Some(*org),
            _ => None,
        };
        let (mut orgs, mut before, mut sizes, mut frontiers) = (vec![], vec![], vec![], vec![]);
        for Head { org, was, size, frontier } in heads {
            orgs.push(Some(org));
            before.push(signed(was));
            sizes.push(signed(size));
            frontiers.push(Some(frontier));
        }
        let statement = WriteStatement::of(&rows);
        let values = vec![
            single.map_or_else(|| Value::Columns(vec![Column::Orgs(orgs)]), Value::Org),
            Value::Ints(before),
            Value::Ints(sizes),
            Value::Columns(vec![Column::Bytes(frontiers)]),
            version.into(),
            rebuild_count.into(),
            Value::Columns(rows.into_columns(statement.tables, single.is_some())),
        ];
        (statement.text(single.is_some()), values)
    }
}
