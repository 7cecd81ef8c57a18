//! The write path, from a caller's write to its rows: what can be done without the database is done on the caller's
//! task ([`Submission`]), the rest on the writer's ([`Plan`]), in memory, between one statement that looks and one
//! that writes.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use evidence_core::auth::KeyHash;
use evidence_core::fact::Prepared;
use evidence_core::id::Id;
use evidence_core::ledger::Frontier;
use evidence_core::store::{Entry, Recorder, StoreResult};
use evidence_core::transfer::Import;
use evidence_core::{Fact, Guard, Key, StoreError, Write};
use sqlx::postgres::PgArguments;
use sqlx::query::QueryAs;
use sqlx::{Arguments, Postgres};
use tokio::sync::oneshot;

use crate::db::PostgresStore;
use crate::ledger::frontier;
use crate::rows::{Rows, Spot, Table, signed, unsigned};
use crate::snapshots::Intervals;
use crate::writer::Job;
use crate::{
    allowlists, artifacts, attestations, orgs, policies, repos, service_accounts, snapshots, trails,
};

/// A write on its way to the writer, its payloads written and hashed.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) org: Id,
    begins: bool,
    /// The index that its first fact must have: imports alone know.
    first: Option<u64>,
    facts: Vec<Prepared>,
    guards: Vec<Guard>,
    secrets: Vec<(Id, KeyHash)>,
    pub(crate) reply: oneshot::Sender<StoreResult<Vec<Entry>>>,
}

impl Submission {
    fn new(write: Write, reply: oneshot::Sender<StoreResult<Vec<Entry>>>) -> serde_json::Result<Self> {
        let begins = write.begins_ledger();
        let Write { org, by, at, facts, guards, secrets } = write;
        let prepare = |fact| Prepared::new(fact, at, by.to_string());
        let facts = facts.into_iter().map(prepare).collect::<serde_json::Result<_>>()?;
        Ok(Self { org, begins, first: None, facts, guards, secrets, reply })
    }

    pub(crate) fn of_import(import: Import, reply: oneshot::Sender<StoreResult<Vec<Entry>>>) -> Self {
        let begins = import.begins_ledger();
        let Import { org, first, facts, secrets, .. } = import;
        Self { org, begins, first: Some(first), facts, guards: Vec::new(), secrets, reply }
    }

    /// The size of its payloads, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.facts.iter().map(|prepared| prepared.payload.len()).sum()
    }

    /// The places whose names the facts take.
    fn taken(&self) -> impl Iterator<Item = Place> {
        let created = self.facts.iter().map(|prepared| &prepared.fact).filter(|fact| fact.creates());
        created.filter_map(Fact::subject).map(|(key, _)| Place::new(self.org, key))
    }

    /// The places that the guards name.
    fn guarded(&self) -> impl Iterator<Item = Place> {
        self.guards.iter().map(|guard| match guard {
            Guard::Absent(key) | Guard::Unchanged(key, _) => Place::new(self.org, key.clone()),
        })
    }
}

#[async_trait]
impl Recorder for PostgresStore {
    async fn record(&self, write: Write) -> StoreResult<Vec<Entry>> {
        let (reply, outcome) = oneshot::channel();
        let submission = Submission::new(write, reply).map_err(|error| StoreError::Failed(error.into()))?;
        self.submit(Job::Record(submission), outcome).await
    }
}

/// A name where it is unique: in an organization, or in the whole store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    org: Option<Id>,
    key: Key,
}

impl Place {
    fn new(org: Id, key: Key) -> Self {
        let whole_store = matches!(key, Key::Organization(_) | Key::User(_));
        Self { org: (!whole_store).then_some(org), key }
    }
}

/// Answers, from one snapshot of the database: the heads of the organizations `$1`, and the revision of each name that
/// exists by its number. A name is a subquery, so that it is a probe of an index whatever the statistics say.
pub(crate) const LOOK: &str = "
    SELECT NULL::bigint, h.size, h.org, h.frontier FROM evidence.head h WHERE h.org = ANY($1)
    UNION ALL SELECT j.number,
        (SELECT n.ledger_index FROM evidence.named n WHERE n.org = j.org AND n.kind = j.kind AND n.name = j.name),
        '', ''
        FROM UNNEST($2::bigint[], $3::text[], $4::text[], $5::text[]) AS j (number, org, kind, name)
    UNION ALL SELECT j.number,
        (SELECT t.ledger_index FROM evidence.trail t WHERE t.org = j.org AND t.flow = j.flow AND t.name = j.name),
        '', ''
        FROM UNNEST($6::bigint[], $7::text[], $8::text[], $9::text[]) AS j (number, org, flow, name)
    UNION ALL SELECT j.number, (SELECT 0 FROM evidence.organization o WHERE o.name = j.name), '', ''
        FROM UNNEST($10::bigint[], $11::text[]) AS j (number, name)
    UNION ALL SELECT j.number, (SELECT u.ledger_index FROM evidence.user u WHERE u.name = j.name), '', ''
        FROM UNNEST($12::bigint[], $13::text[]) AS j (number, name)";

/// A row of [`LOOK`]: the number of a name or nothing for a head, a revision or size, an organization, a frontier.
pub(crate) type Seen = (Option<i64>, Option<i64>, String, String);

/// Locks the heads `$1`, which stand in the order of their organizations, so that two servers never wait for each other,
/// and goes on only if each still has the size that was seen: everything that a guard rests on changes with its
/// organization's ledger alone. Organizations and users are named in the whole store; there the unique indexes decide.
const SWAP: &str = "
    WITH locked AS MATERIALIZED (
        SELECT h.org, h.size FROM evidence.head h WHERE h.org = ANY($1) ORDER BY h.org FOR UPDATE),
    go AS MATERIALIZED (SELECT 1 WHERE ARRAY(SELECT l.size FROM locked l ORDER BY l.org) = $2),
    swapped AS (
        UPDATE evidence.head h SET size = s.size, frontier = s.frontier
        FROM go, UNNEST($1::text[], $3::bigint[], $4::text[]) AS s (org, size, frontier) WHERE h.org = s.org)";

/// Whether it went on.
const WENT: &str = " SELECT EXISTS (SELECT 1 FROM go)";

/// What a batch has to know before it is planned.
#[derive(Debug)]
pub(crate) struct Questions {
    orgs: BTreeSet<Id>,
    places: Vec<Place>,
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
        let places: BTreeSet<_> =
            batch.iter().flat_map(|write| write.taken().chain(write.guarded())).collect();
        let orgs = batch.iter().map(|write| write.org).collect();
        Self { orgs, places: places.into_iter().collect() }
    }

    /// Binds the arguments of [`LOOK`].
    pub(crate) fn bind<'a>(&self, query: Query<'a>) -> Query<'a> {
        let [mut named, mut trails, mut orgs, mut users] = <[Asked; 4]>::default();
        for (number, Place { org, key }) in (0..).zip(&self.places) {
            let (kind, scope, name) = key.parts();
            match key {
                Key::Organization(_) => orgs.push(number, *org, scope, name),
                Key::User(_) => users.push(number, *org, scope, name),
                Key::Trail { .. } => trails.push(number, *org, scope, name),
                Key::ServiceAccount(_)
                | Key::ApiKey(_)
                | Key::Flow(_)
                | Key::Repo(_)
                | Key::Environment(_)
                | Key::Policy(_)
                | Key::AttestationType(_) => named.push(number, *org, kind.to_owned(), name),
            }
        }
        let query = query.bind(self.orgs.iter().map(Id::to_string).collect::<Vec<_>>());
        let scoped = |query: Query<'a>, asked: Asked| {
            query.bind(asked.numbers).bind(asked.orgs).bind(asked.scopes).bind(asked.names)
        };
        let unscoped = |query: Query<'a>, asked: Asked| query.bind(asked.numbers).bind(asked.names);
        unscoped(unscoped(scoped(scoped(query, named), trails), orgs), users)
    }
}

/// The frontier of an organization's ledger, and the size that the database has; nothing for a ledger that begins.
#[derive(Debug)]
struct Ledger {
    was: Option<u64>,
    frontier: Frontier,
    changed: bool,
}

/// What a batch will write: decided in memory, write by write, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    ledgers: BTreeMap<Id, Ledger>,
    revisions: BTreeMap<Place, u64>,
    rows: Rows,
    intervals: Intervals,
}

impl Plan {
    /// A plan that begins with what [`LOOK`] saw.
    pub(crate) fn new(questions: Questions, seen: Vec<Seen>) -> StoreResult<Self> {
        let mut plan = Self::default();
        let mut found = BTreeMap::new();
        for (number, value, org, hex) in seen {
            // A name that nothing has.
            let Some(value) = value else { continue };
            if let Some(number) = number {
                found.insert(unsigned(number)?, unsigned(value)?);
            } else {
                let frontier = frontier(value, &hex)?;
                let ledger = Ledger { was: Some(frontier.size()), frontier, changed: false };
                plan.ledgers.insert(crate::rows::id(&org)?, ledger);
            }
        }
        let places = (0..).zip(questions.places);
        plan.revisions = places.filter_map(|(number, place)| Some((place, *found.get(&number)?))).collect();
        Ok(plan)
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
            let ledger = Ledger { was: None, frontier: Frontier::default(), changed: true };
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
        let mut guards = write.guards.iter().zip(write.guarded());
        let guarded = guards.all(|(guard, place)| match guard {
            Guard::Absent(_) => !self.revisions.contains_key(&place),
            Guard::Unchanged(_, revision) => self.revisions.get(&place) == Some(revision),
        });
        let mut taken = BTreeSet::new();
        let mut names = write.taken();
        let free = names.all(|place| !self.revisions.contains_key(&place) && taken.insert(place));
        if in_place && guarded && free { Ok(()) } else { Err(StoreError::Conflict) }
    }

    /// Gives a fact its place in the ledger, and its rows.
    fn append(&mut self, write: &Submission, prepared: &Prepared) -> serde_json::Result<Entry> {
        let missing = || serde::ser::Error::custom("the ledger was not looked at");
        let ledger = self.ledgers.get_mut(&write.org).ok_or_else(missing)?;
        let Prepared { fact, at, actor, payload, payload_sha256 } = prepared;
        let spot = Spot { org: write.org, index: ledger.frontier.size() };
        let leaf_hash = prepared.leaf_hash(spot.index);
        let row = (spot.org, spot.index, fact.kind(), at, actor, payload_sha256, leaf_hash, payload);
        self.rows.push(Table::Ledger, &row)?;
        ledger.changed = true;
        for node in ledger.frontier.append(leaf_hash) {
            self.rows.push(Table::Node, &(spot.org, node.level, node.index, node.hash))?;
        }
        if let Some((key, _)) = fact.subject() {
            self.revisions.insert(Place::new(write.org, key), spot.index);
        }
        index(spot, fact, &write.secrets, &mut self.rows, &mut self.intervals)?;
        Ok(Entry { index: spot.index, leaf_hash })
    }

    /// The statement that writes everything if the ledgers are as they were seen, and answers whether they were; and
    /// its arguments.
    pub(crate) fn into_statement(self) -> serde_json::Result<(String, PgArguments)> {
        let Self { ledgers, mut rows, intervals, .. } = self;
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
        swap(heads, rows)
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
fn swap(heads: Heads, rows: Rows) -> serde_json::Result<(String, PgArguments)> {
    let Heads { orgs, sizes_before, sizes, frontiers } = heads;
    let mut arguments = PgArguments::default();
    let bound =
        [arguments.add(orgs), arguments.add(sizes_before), arguments.add(sizes), arguments.add(frontiers)];
    bound.into_iter().collect::<Result<(), _>>().map_err(serde::ser::Error::custom)?;
    let named = |(number, statement)| format!(", write_{number} AS ({statement})");
    let parts: String = (0..).zip(rows.into_statements(&mut arguments)?).map(named).collect();
    Ok(([SWAP, &parts, WENT].concat(), arguments))
}

/// Writes the rows of facts whose ledger is written already, on a connection that nobody shares.
pub(crate) fn rows_alone(rows: Rows) -> serde_json::Result<(String, PgArguments)> {
    swap(Heads::default(), rows)
}

/// Enters a named record in the directory of names; organizations, users and trails have tables of their own.
fn name(spot: Spot, fact: &Fact, key: &Key, id: Id, rows: &mut Rows) -> serde_json::Result<()> {
    if matches!(key, Key::Organization(_) | Key::User(_) | Key::Trail { .. }) {
        return Ok(());
    }
    let tags = match fact {
        Fact::FlowCreated { record } | Fact::FlowUpdated { record } | Fact::FlowTagged { record } => {
            serde_json::to_string(&record.tags)?
        }
        Fact::RepoReported { record } | Fact::RepoTagged { record } => serde_json::to_string(&record.tags)?,
        _ => "{}".to_owned(),
    };
    let (kind, _, name) = key.parts();
    rows.push(Table::Named, &(spot.org, kind, id, name, spot.index, tags))
}

/// Writes the rows by which the fact is found: everything besides the ledger that follows from it.
pub(crate) fn index(
    spot: Spot,
    fact: &Fact,
    secrets: &[(Id, KeyHash)],
    rows: &mut Rows,
    intervals: &mut Intervals,
) -> serde_json::Result<()> {
    if let Some((key, id)) = fact.subject() {
        name(spot, fact, &key, id, rows)?;
    }
    match fact {
        Fact::OrganizationCreated { record } => orgs::created(record, rows),
        Fact::UserCreated { record } => orgs::user_created(spot, record, rows),
        Fact::MemberAdded { record } => orgs::member_added(spot, record, rows),
        Fact::ApiKeyCreated { record } | Fact::ApiKeyRevoked { record } => {
            service_accounts::key(spot, record, secrets, rows)
        }
        Fact::TrailBegun { record } => trails::begun(spot, record, rows),
        Fact::TrailUpdated { record, .. } => trails::updated(spot, record, rows),
        Fact::ArtifactReported { record } => artifacts::reported(spot, record, rows),
        Fact::AttestationAdded { record } => attestations::added(spot, record, rows),
        Fact::RepoReported { record } | Fact::RepoTagged { record } => repos::reported(spot, record, rows),
        Fact::SnapshotTaken { snapshot, .. } => snapshots::taken(spot, snapshot, rows, intervals),
        Fact::PolicyCreated { version, .. } | Fact::PolicyUpdated { version: Some(version), .. } => {
            policies::version(spot, version.policy, version.version, rows)
        }
        Fact::AttestationTypeCreated { version, .. } | Fact::AttestationTypeVersioned { version, .. } => {
            policies::version(spot, version.attestation_type, version.version, rows)
        }
        Fact::ArtifactAllowed { record } => allowlists::allowed(spot, record, rows),
        // Their name is all they are found by.
        Fact::ServiceAccountCreated { .. }
        | Fact::ServiceAccountUpdated { .. }
        | Fact::FlowCreated { .. }
        | Fact::FlowUpdated { .. }
        | Fact::FlowTagged { .. }
        | Fact::EnvironmentCreated { .. }
        | Fact::EnvironmentUpdated { .. }
        | Fact::EnvironmentTagged { .. }
        | Fact::EnvironmentJoined { .. }
        | Fact::EnvironmentReported { .. }
        | Fact::PoliciesAttached { .. }
        | Fact::PolicyUpdated { version: None, .. } => Ok(()),
    }
}
