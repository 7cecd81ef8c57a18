//! The write path, from a caller's write to its rows: what can be done without the database is done on the caller's
//! task ([`Submission`]), the rest on the writer's ([`Plan`]), in memory, between one statement that looks and one
//! that writes.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use evidence_core::auth::KeyHash;
use evidence_core::directory::{Directory, Name, NameChanges, Needed, RecordRef};
use evidence_core::fact::{Denoted, EncodedFact, RecordKind};
use evidence_core::id::Id;
use evidence_core::index::IndexRow;
use evidence_core::ledger::Frontier;
use evidence_core::queue::Reply;
use evidence_core::store::{Entry, Recorder, StoreResult};
use evidence_core::time::Timestamp;
use evidence_core::transfer::Import;
use evidence_core::{Fact, Guard, Key, StoreError, Write};
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::{Arguments, Postgres};

use crate::db::PostgresStore;
use crate::ledger::frontier;
use crate::repos;
use crate::rows::{EntryRef, Rows, Table, signed, unsigned};
use crate::snapshots::Intervals;
use crate::writer::Job;

/// A write on its way to the writer, its payloads written and hashed.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) org: Id,
    begins: bool,
    /// The index that its first fact must have: imports alone know.
    first: Option<u64>,
    facts: Vec<EncodedFact>,
    guards: Vec<Guard>,
    secrets: Vec<(Id, KeyHash)>,
    pub(crate) reply: Reply<Vec<Entry>>,
}

impl Submission {
    async fn new(write: Write, reply: Reply<Vec<Entry>>) -> StoreResult<Self> {
        let begins = write.begins_ledger();
        let Write { org, by, at, facts, guards, secrets } = write;
        let facts = EncodedFact::all(facts, at, by.to_string()).await?;
        Ok(Self { org, begins, first: None, facts, guards, secrets, reply })
    }

    pub(crate) fn of_import(import: Import, reply: Reply<Vec<Entry>>) -> Self {
        let begins = import.begins_ledger();
        let Import { org, first, facts, secrets, .. } = import;
        Self { org, begins, first: Some(first), facts, guards: Vec::new(), secrets, reply }
    }

    /// The size of its payloads, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.facts.iter().map(|prepared| prepared.payload.len()).sum()
    }

    fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.facts.iter().map(|prepared| &prepared.fact)
    }
}

#[async_trait]
impl Recorder for PostgresStore {
    async fn record(&self, write: Write) -> StoreResult<Vec<Entry>> {
        let (reply, outcome) = self.queue.outcome();
        let submission = Submission::new(write, reply).await?;
        self.queue.submit(Job::Record(submission), outcome).await
    }
}

/// Answers, from one snapshot of the database: the heads of the organizations `$1`; what each name leads to, an alias
/// with a tilde before its id; the revision of each record; and the oldest version whose programs may write, with how often the
/// tables were made again. Names and records are subqueries, so that each is a probe of an index whatever the statistics
/// say.
pub(crate) const LOOK: &str = "
    SELECT 0 AS what, NULL::bigint, h.size, h.org, h.frontier,
        coalesce((SELECT l.at FROM evidence.ledger l WHERE l.org = h.org AND l.idx = h.size - 1), 0)
        FROM evidence.head h WHERE h.org = ANY($1)
    UNION ALL SELECT 1, j.number, 0,
        (SELECT CASE WHEN n.alias THEN '~' ELSE '' END || n.id
            FROM evidence.name n WHERE n.org = j.org AND n.kind = j.kind AND n.name = j.name),
        '', 0
        FROM UNNEST($2::bigint[], $3::text[], $4::text[], $5::text[]) AS j (number, org, kind, name)
    UNION ALL SELECT 1, j.number, 0,
        (SELECT t.id FROM evidence.trail t WHERE t.org = j.org AND t.flow = j.flow AND t.name = j.name), '', 0
        FROM UNNEST($6::bigint[], $7::text[], $8::text[], $9::text[]) AS j (number, org, flow, name)
    UNION ALL SELECT 1, j.number, 0, (SELECT o.id FROM evidence.organization o WHERE o.name = j.name), '', 0
        FROM UNNEST($10::bigint[], $11::text[]) AS j (number, name)
    UNION ALL SELECT 1, j.number, 0, (SELECT u.id FROM evidence.user u WHERE u.name = j.name), '', 0
        FROM UNNEST($12::bigint[], $13::text[]) AS j (number, name)
    UNION ALL SELECT 1, j.number, 0,
        (SELECT s.environment FROM evidence.snapshot s
            WHERE s.org = j.org AND s.environment = j.environment AND s.idx = j.idx::bigint), '', 0
        FROM UNNEST($22::bigint[], $23::text[], $24::text[], $25::text[]) AS j (number, org, environment, idx)
    UNION ALL SELECT 1, j.number, 0,
        (SELECT '~' || a.id FROM evidence.artifact a WHERE a.org = j.org AND a.trail = j.trail AND a.name = j.name AND a.name <> ''
            ORDER BY a.ledger_index DESC LIMIT 1), '', 0
        FROM UNNEST($26::bigint[], $27::text[], $28::text[], $29::text[]) AS j (number, org, trail, name)
    UNION ALL SELECT 2, j.number,
        (SELECT r.ledger_index FROM evidence.record r WHERE r.org = j.org AND r.id = j.id AND r.kind = j.kind),
        '', '', 0
        FROM UNNEST($14::bigint[], $15::text[], $16::text[], $17::text[]) AS j (number, org, kind, id)
    UNION ALL SELECT 2, j.number,
        (SELECT t.ledger_index FROM evidence.trail t WHERE t.org = j.org AND t.id = j.id), '', '', 0
        FROM UNNEST($18::bigint[], $19::text[], $20::text[], $21::text[]) AS j (number, org, kind, id)
    UNION ALL (
        SELECT 3, m.rebuilt, m.writer, NULL, '', 0 FROM evidence._evidence_migrations m ORDER BY m.version DESC LIMIT 1)";

/// A row of [`LOOK`]: what it is about, the number of a name or record, a size or revision, an id, a frontier, a time.
/// What is not there is null.
pub(crate) type Seen = (i32, Option<i64>, Option<i64>, Option<String>, String, i64);

/// Locks the heads `$1`, which stand in the order of their organizations, so that two servers never wait for each other,
/// and goes on only if each still has the size that was seen: everything that a guard rests on changes with its
/// organization's ledger alone. Organizations and users are named in the whole store; there the unique indexes decide.
/// Nor does it go on where a newer program lets this one, of version `$5`, write no more (`migrate.rs`), or the tables were
/// made again since it looked, `$6` times then: what was looked at may have been damaged.
const COMPARE_AND_SWAP: &str = "
    WITH locked AS MATERIALIZED (
        SELECT h.org, h.size FROM evidence.head h WHERE h.org = ANY($1) ORDER BY h.org FOR UPDATE),
    go AS MATERIALIZED (
        SELECT 1 WHERE ARRAY(SELECT l.size FROM locked l ORDER BY l.org) = $2
            AND coalesce((
                SELECT m.writer <= $5 AND m.rebuilt = $6
                FROM evidence._evidence_migrations m ORDER BY m.version DESC LIMIT 1), true)),
    swapped AS (
        UPDATE evidence.head h SET size = s.size, frontier = s.frontier
        FROM go, UNNEST($1::text[], $3::bigint[], $4::text[]) AS s (org, size, frontier) WHERE h.org = s.org)";

/// Whether it went on.
const WENT: &str = " SELECT EXISTS (SELECT 1 FROM go)";

/// What a batch has to know before it is planned.
#[derive(Debug)]
pub(crate) struct Questions {
    orgs: BTreeSet<Id>,
    names: Vec<Name>,
    records: Vec<RecordRef>,
}

/// Names to look for, column by column: their numbers, organizations, kinds or flows, and the names.
#[derive(Debug, Default)]
struct Asked {
    numbers: Vec<i64>,
    orgs: Vec<String>,
    scopes: Vec<String>,
    names: Vec<String>,
}

impl Asked {
    fn push(&mut self, number: i64, org: Option<Id>, scope: String, name: String) {
        self.numbers.push(number);
        self.orgs.push(org.map(|org| org.to_string()).unwrap_or_default());
        self.scopes.push(scope);
        self.names.push(name);
    }
}

/// A statement that is being bound.
type Query<'a> = QueryAs<'a, Postgres, Seen, PgArguments>;

impl Questions {
    pub(crate) fn of(batch: &[Submission]) -> Self {
        let mut needed = Needed::default();
        for write in batch {
            needed.add(write.org, &write.guards, write.facts());
        }
        let Needed { names, revisions } = needed;
        let orgs = batch.iter().map(|write| write.org).collect();
        Self { orgs, names: names.into_iter().collect(), records: revisions.into_iter().collect() }
    }

    /// Binds the arguments of [`LOOK`].
    pub(crate) fn bind<'a>(&self, query: Query<'a>) -> Query<'a> {
        let [
            mut named,
            mut trails,
            mut orgs,
            mut users,
            mut records,
            mut trail_ids,
            mut snapshots,
            mut artifacts,
        ] = <[Asked; 8]>::default();
        for (number, Name { org, key }) in (0..).zip(&self.names) {
            let name = key.name().into_owned();
            match key {
                Key::Organization(_) => orgs.push(number, *org, String::new(), name),
                Key::User(_) => users.push(number, *org, String::new(), name),
                Key::Trail { flow, .. } => trails.push(number, *org, flow.to_string(), name),
                Key::Snapshot { environment, .. } => {
                    snapshots.push(number, *org, environment.to_string(), name);
                }
                Key::Artifact { trail, .. } => artifacts.push(number, *org, trail.to_string(), name),
                Key::ServiceAccount(_)
                | Key::Flow(_)
                | Key::Repo(_)
                | Key::Environment(_)
                | Key::Policy(_)
                | Key::AttestationType(_) => {
                    named.push(number, *org, key.kind().map_or("", RecordKind::as_str).to_owned(), name);
                }
            }
        }
        for (number, (org, kind, id)) in (0..).zip(&self.records) {
            let list = if *kind == RecordKind::Trail { &mut trail_ids } else { &mut records };
            list.push(number, Some(*org), kind.as_str().to_owned(), id.to_string());
        }
        let query = query.bind(self.orgs.iter().map(Id::to_string).collect::<Vec<_>>());
        let scoped = |query: Query<'a>, asked: Asked| {
            query.bind(asked.numbers).bind(asked.orgs).bind(asked.scopes).bind(asked.names)
        };
        let unscoped = |query: Query<'a>, asked: Asked| query.bind(asked.numbers).bind(asked.names);
        let query = unscoped(unscoped(scoped(scoped(query, named), trails), orgs), users);
        [records, trail_ids, snapshots, artifacts].into_iter().fold(query, scoped)
    }
}

/// The frontier of an organization's ledger, the time of its last entry, and the size that the database has; nothing for
/// a ledger that begins.
#[derive(Debug)]
struct Ledger {
    was: Option<u64>,
    frontier: Frontier,
    at: Timestamp,
    changed: bool,
}

/// What a batch will write: decided in memory, write by write, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    ledgers: BTreeMap<Id, Ledger>,
    directory: Directory,
    rows: Rows,
    names: NameChanges,
    intervals: Intervals,
    /// The oldest version whose programs may write.
    writer: i64,
    /// How often the tables were made again.
    rebuilt: i64,
}

impl Plan {
    /// A plan that begins with what [`LOOK`] saw.
    pub(crate) fn new(questions: &Questions, seen: Vec<Seen>) -> StoreResult<Self> {
        let mut plan = Self::default();
        let position = |number: Option<i64>| number.and_then(|number| usize::try_from(number).ok());
        for (what, number, value, text, hex, at) in seen {
            match (what, value, text) {
                (0, Some(size), Some(org)) => {
                    let (frontier, at) = (frontier(size, &hex)?, Timestamp::from_micros(at));
                    let ledger = Ledger { was: Some(frontier.size()), frontier, at, changed: false };
                    plan.ledgers.insert(crate::rows::id(&org)?, ledger);
                }
                (1, _, Some(text)) => {
                    let (alias, text) = text.strip_prefix('~').map_or((false, &*text), |id| (true, id));
                    let denoted = Denoted { id: crate::rows::id(text)?, alias };
                    if let Some(name) = position(number).and_then(|number| questions.names.get(number)) {
                        plan.directory.insert_name(name.clone(), denoted);
                    }
                }
                (2, Some(revision), _) => {
                    if let Some(record) = position(number).and_then(|number| questions.records.get(number)) {
                        plan.directory.insert_revision(*record, unsigned(revision)?);
                    }
                }
                (3, Some(writer), _) => {
                    (plan.writer, plan.rebuilt) = (writer, number.unwrap_or_default());
                }
                // A name that leads nowhere, a record that is not there.
                _ => {}
            }
        }
        Ok(plan)
    }

    /// Whether programs of this version may write.
    pub(crate) const fn may_be_written(&self, version: i64) -> bool {
        self.writer <= version
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.ledgers.values().all(|ledger| !ledger.changed)
    }

    /// Takes a write into the batch, or refuses it and stays as it was.
    pub(crate) fn accept(&mut self, write: &Submission) -> serde_json::Result<StoreResult<Vec<Entry>>> {
        if let Err(refusal) = self.check(write) {
            return Ok(Err(refusal));
        }
        if write.begins {
            let (frontier, at) = (Frontier::default(), Timestamp::from_micros(i64::MIN));
            let ledger = Ledger { was: None, frontier, at, changed: true };
            self.ledgers.insert(write.org, ledger);
        }
        write.facts.iter().map(|fact| self.append(write, fact)).collect::<Result<_, _>>().map(Ok)
    }

    fn check(&self, write: &Submission) -> StoreResult<()> {
        match (self.ledgers.contains_key(&write.org), write.begins) {
            (true, true) => return Err(StoreError::Conflict),
            (false, false) => {
                return Err(StoreError::Failed(format!("there is no organization {}", write.org).into()));
            }
            (true, false) | (false, true) => {}
        }
        let size = self.ledgers.get(&write.org).map_or(0, |ledger| ledger.frontier.size());
        let in_place = write.first.is_none_or(|first| first == size);
        let admitted = self.directory.admits(write.org, &write.guards, write.facts());
        if in_place && admitted { Ok(()) } else { Err(StoreError::Conflict) }
    }

    /// Gives a fact its place in the ledger, and its rows.
    fn append(&mut self, write: &Submission, prepared: &EncodedFact) -> serde_json::Result<Entry> {
        let missing = || serde::ser::Error::custom("the ledger was not looked at");
        let ledger = self.ledgers.get_mut(&write.org).ok_or_else(missing)?;
        let EncodedFact { fact, actor, payload, payload_sha256, .. } = prepared;
        let spot = EntryRef { org: write.org, index: ledger.frontier.size() };
        // Of two servers one's clock may be behind; time never goes back in a ledger. An import is as it is.
        let at = if write.first.is_some() { prepared.at } else { prepared.at.max(ledger.at) };
        ledger.at = at;
        let leaf_hash = prepared.leaf_hash(spot.index, at);
        let row = (spot.org, spot.index, fact.kind(), at, actor, payload_sha256, leaf_hash, payload);
        self.rows.push(Table::Ledger, &row)?;
        ledger.changed = true;
        for node in ledger.frontier.append(leaf_hash) {
            self.rows.push(Table::Node, &(spot.org, node.level, node.index, node.hash))?;
        }
        self.directory.apply(write.org, fact, spot.index);
        let mut batch =
            Batch { rows: &mut self.rows, names: &mut self.names, intervals: &mut self.intervals };
        batch.index(spot, at, fact, &write.secrets)?;
        Ok(Entry { index: spot.index, leaf_hash })
    }

    /// The statement by which a program of this version writes everything if the ledgers are as they were seen, and that
    /// answers whether they were; and its arguments.
    pub(crate) fn into_statement(self, version: i64) -> serde_json::Result<(String, PgArguments)> {
        let Self { ledgers, mut rows, names, intervals, rebuilt, .. } = self;
        let mut heads = Heads::default();
        for (org, Ledger { was, frontier, .. }) in ledgers.iter().filter(|(_, ledger)| ledger.changed) {
            let Some(was) = was else {
                rows.push(Table::Head, &(org, frontier.size(), frontier.to_hex()))?;
                continue;
            };
            heads.orgs.push(org.to_string());
            heads.sizes_before.push(signed(*was));
            heads.sizes.push(signed(frontier.size()));
            heads.frontiers.push(frontier.to_hex());
        }
        intervals.write(&mut rows)?;
        write_names(&names, &mut rows)?;
        swap(heads, rows, version, rebuilt)
    }
}

/// The heads of ledgers that have grown, column by column: what is bound first.
#[derive(Debug, Default)]
struct Heads {
    orgs: Vec<String>,
    sizes_before: Vec<i64>,
    sizes: Vec<i64>,
    frontiers: Vec<String>,
}

/// One statement that writes these heads and rows, together or not at all; and its arguments.
fn swap(heads: Heads, rows: Rows, version: i64, rebuilt: i64) -> serde_json::Result<(String, PgArguments)> {
    let Heads { orgs, sizes_before, sizes, frontiers } = heads;
    let mut arguments = PgArguments::default();
    let bound = [
        arguments.add(orgs),
        arguments.add(sizes_before),
        arguments.add(sizes),
        arguments.add(frontiers),
        arguments.add(version),
        arguments.add(rebuilt),
    ];
    bound.into_iter().collect::<Result<(), _>>().map_err(serde::ser::Error::custom)?;
    let named = |(number, statement)| format!(", write_{number} AS ({statement})");
    let parts: String = (0..).zip(rows.into_statements(&mut arguments)?).map(named).collect();
    Ok(([COMPARE_AND_SWAP, &parts, WENT].concat(), arguments))
}

/// Writes the rows of facts whose ledger is written already, on a connection that nobody shares.
pub(crate) fn rows_alone(rows: Rows) -> serde_json::Result<(String, PgArguments)> {
    swap(Heads::default(), rows, i64::MAX, 0)
}

/// Writes what became of names.
pub(crate) fn write_names(names: &NameChanges, rows: &mut Rows) -> serde_json::Result<()> {
    for (org, kind, id) in names.released() {
        let claimed = names.put().map(|(name, _)| name).filter(|name| name.org == Some(org));
        let claimed = claimed.filter(|name| name.key.kind() == Some(kind)).map(|name| name.key.name());
        rows.push(Table::NameRelease, &(org, kind.as_str(), id, claimed.collect::<Vec<_>>()))?;
    }
    for Name { org, key } in names.gone() {
        if let (Some(org), Some(kind)) = (org, key.kind()) {
            rows.push(Table::NameGone, &(org, kind.as_str(), key.name()))?;
        }
    }
    for (Name { org, key }, Denoted { id, alias }) in names.put() {
        // Others are columns of tables of their own.
        if let (Some(org), Some(kind)) = (org, key.kind().filter(|kind| !kind.names_itself())) {
            rows.push(Table::Name, &(org, kind.as_str(), key.name(), id, alias))?;
        }
    }
    Ok(())
}

/// The rows of facts, as they gather.
pub(crate) struct Batch<'a> {
    pub(crate) rows: &'a mut Rows,
    pub(crate) names: &'a mut NameChanges,
    pub(crate) intervals: &'a mut Intervals,
}

impl Batch<'_> {
    /// Adds the rows by which a fact of this time is found: everything besides the ledger that follows from it.
    pub(crate) fn index(
        &mut self,
        spot: EntryRef,
        at: Timestamp,
        fact: &Fact,
        secrets: &[(Id, KeyHash)],
    ) -> serde_json::Result<()> {
        fact.index_rows(at).into_iter().try_for_each(|row| self.add(spot, row, secrets))
    }

    fn add(
        &mut self,
        spot: EntryRef,
        row: IndexRow<'_>,
        secrets: &[(Id, KeyHash)],
    ) -> serde_json::Result<()> {
        let rows = &mut *self.rows;
        match row {
            IndexRow::Organization(record) => {
                rows.push(Table::Organization, &(record.id, &record.name, record))
            }
            IndexRow::User(record) => {
                rows.push(Table::User, &(spot.org, record.id, &record.name, record, spot.index))
            }
            IndexRow::Member { user, role } => rows.push(Table::Membership, &(spot.org, user, role)),
            IndexRow::Name(effect) => {
                self.names.apply(spot.org, effect);
                Ok(())
            }
            IndexRow::Record { kind, id, name, tags, archived } => {
                let tags = tags.map_or(Ok("{}".to_owned()), serde_json::to_string)?;
                rows.push(Table::Record, &(spot.org, kind.as_str(), id, name, spot.index, archived, tags))
            }
            IndexRow::ApiKey { id, owner, created_at, expires_at, revoked_at } => {
                let hash = secrets.iter().find(|(key, _)| *key == id).map(|(_, hash)| hash);
                let row = (spot.org, id, owner, owner.id, hash, created_at, expires_at, revoked_at);
                rows.push(Table::ApiKey, &row)
            }
            IndexRow::Trail { id, flow, name, begins } => {
                rows.push(Table::Trail, &(spot.org, id, flow, name, spot.index, begins, spot.index))?;
                if begins { Ok(()) } else { rows.push(Table::TrailEntry, &(spot.org, id, spot.index)) }
            }
            IndexRow::Artifact { id, flow, trail, fingerprint, name, commit, branch, repo, template, at } => {
                let (org, index) = (spot.org, spot.index);
                let row =
                    (org, id, flow, trail, fingerprint, name, commit, branch, repo, template, at, index);
                rows.push(Table::Artifact, &row)
            }
            IndexRow::Attestation { id, trail, name, kind, is_compliant, is_override, binding, at } => {
                let row =
                    (spot.org, id, trail, name, kind, is_compliant, is_override, binding, at, spot.index);
                rows.push(Table::Attestation, &row)
            }
            IndexRow::Repo { id, name, provider, external_id, vcs_instance, namespace } => {
                let namespace = repos::path(namespace);
                let row = (spot.org, id, name, provider, external_id, vcs_instance, namespace, spot.index);
                rows.push(Table::Repo, &row)
            }
            IndexRow::Snapshot { environment, index, at, compliant } => {
                rows.push(Table::Snapshot, &(spot.org, environment, index, at, compliant, spot.index))
            }
            IndexRow::Reported { environment, at } => {
                rows.push(Table::EnvironmentReport, &(spot.org, environment, at))
            }
            IndexRow::InstanceEnded { environment, artifact, until, exited } => {
                self.intervals.end(spot.org, environment, artifact, until, exited);
                Ok(())
            }
            IndexRow::InstanceBegun { environment, instance } => {
                self.intervals.begin(spot.org, environment, instance.clone());
                Ok(())
            }
            IndexRow::Version { of, number } => {
                rows.push(Table::Version, &(spot.org, of, number, spot.index))
            }
            IndexRow::Allowed { environment, fingerprint } => {
                rows.push(Table::Allowance, &(spot.org, environment, fingerprint, spot.index))
            }
            IndexRow::Text { sha256 } => rows.push(Table::Text, &(spot.org, sha256, spot.index)),
            IndexRow::Attachment(file) => {
                rows.push(Table::Attachment, &(spot.org, &file.sha256, file.size))?;
                rows.push(Table::PendingGone, &(spot.org, &file.sha256))
            }
            // What is expected to be there follows from the ledger.
            IndexRow::TextUse { .. } => Ok(()),
        }
    }
}
