//! The write path, from a caller's write to its rows: what can be done without the database is done on the caller's
//! task ([`Submission`]), the rest in the writer's transaction ([`Plan`]), in memory, between one call that looks and
//! one that writes.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use evidence_core::auth::KeyHash;
use evidence_core::fact::Prepared;
use evidence_core::id::Id;
use evidence_core::ledger::Frontier;
use evidence_core::store::{Entry, Recorder, StoreResult};
use evidence_core::transfer::Import;
use evidence_core::{Fact, Guard, Key, StoreError, Write};
use tokio::sync::oneshot;

use crate::db::SqliteStore;
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
    org: Id,
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
impl Recorder for SqliteStore {
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

/// Answers the heads of the organizations `$1`, the greatest key
/// of an organization, and the revision of each name that exists: `[number, organization, kind, scope, name]`.
pub(crate) const LOOK: &str = "
    SELECT 0, o.key, h.size, o.id, h.frontier
        FROM json_each($1) j CROSS JOIN organization o ON o.id = j.value CROSS JOIN head h ON h.org = o.key
    UNION ALL SELECT 1, coalesce(max(key), 0), 0, '', '' FROM organization
    UNION ALL SELECT 2, j.value->>0, n.ledger_index, '', ''
        FROM json_each($2) j CROSS JOIN organization o ON o.id = j.value->>1
        CROSS JOIN named n ON n.org = o.key AND n.kind = j.value->>2 AND n.name = j.value->>4
    UNION ALL SELECT 2, j.value->>0, t.ledger_index, '', ''
        FROM json_each($3) j CROSS JOIN organization o ON o.id = j.value->>1
        CROSS JOIN trail t ON t.flow = j.value->>3 AND t.name = j.value->>4 AND t.org = o.key
    UNION ALL SELECT 2, j.value->>0, 0, '', ''
        FROM json_each($4) j CROSS JOIN organization o ON o.name = j.value->>4
    UNION ALL SELECT 2, j.value->>0, u.ledger_index, '', ''
        FROM json_each($5) j CROSS JOIN user u ON u.name = j.value->>4";

/// A row of [`LOOK`].
pub(crate) type Seen = (i64, i64, i64, String, String);

/// What a batch has to know before it is planned.
#[derive(Debug)]
pub(crate) struct Questions {
    orgs: BTreeSet<Id>,
    places: Vec<Place>,
}

/// A name to look for, as [`LOOK`] takes it.
type Asked = (usize, String, &'static str, String, String);

impl Questions {
    pub(crate) fn of(batch: &[Submission]) -> Self {
        let places: BTreeSet<_> =
            batch.iter().flat_map(|write| write.taken().chain(write.guarded())).collect();
        let orgs = batch.iter().map(|write| write.org).collect();
        Self { orgs, places: places.into_iter().collect() }
    }

    /// The arguments of [`LOOK`].
    pub(crate) fn arguments(&self) -> serde_json::Result<[String; 5]> {
        let (mut named, mut trails, mut orgs, mut users) = (vec![], vec![], vec![], vec![]);
        for (number, Place { org, key }) in self.places.iter().enumerate() {
            let (kind, scope, name) = key.parts();
            let org = org.map(|org| org.to_string()).unwrap_or_default();
            let list = match key {
                Key::Organization(_) => &mut orgs,
                Key::User(_) => &mut users,
                Key::Trail { .. } => &mut trails,
                Key::ServiceAccount(_)
                | Key::ApiKey(_)
                | Key::Flow(_)
                | Key::Repo(_)
                | Key::Environment(_)
                | Key::Policy(_)
                | Key::AttestationType(_) => &mut named,
            };
            list.push((number, org, kind, scope, name));
        }
        let json = |list: &[Asked]| serde_json::to_string(list);
        Ok([serde_json::to_string(&self.orgs)?, json(&named)?, json(&trails)?, json(&orgs)?, json(&users)?])
    }
}

/// An organization's key and the frontier of its ledger.
#[derive(Debug)]
struct Ledger {
    key: i64,
    frontier: Frontier,
    changed: bool,
}

/// What a batch will write: decided in memory, write by write, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    ledgers: BTreeMap<Id, Ledger>,
    last_key: i64,
    revisions: BTreeMap<Place, u64>,
    rows: Rows,
    intervals: Intervals,
    payloads: Vec<u8>,
}

impl Plan {
    /// A plan that begins with what [`LOOK`] saw.
    pub(crate) fn new(questions: Questions, seen: Vec<Seen>) -> StoreResult<Self> {
        let mut plan = Self::default();
        let mut found = BTreeMap::new();
        for (what, number, value, id, hex) in seen {
            match what {
                0 => {
                    let ledger = Ledger { key: number, frontier: frontier(value, &hex)?, changed: false };
                    plan.ledgers.insert(crate::rows::id(&id)?, ledger);
                }
                1 => plan.last_key = number,
                _ => {
                    found.insert(unsigned(number)?, unsigned(value)?);
                }
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
            self.last_key += 1;
            let ledger = Ledger { key: self.last_key, frontier: Frontier::default(), changed: true };
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
        let spot = Spot { org: ledger.key, index: ledger.frontier.size() };
        let leaf_hash = prepared.leaf_hash(spot.index);
        let (start, length) = (self.payloads.len() + 1, payload.len());
        self.payloads.extend_from_slice(payload.as_bytes());
        let row = (spot.org, spot.index, fact.kind(), at, actor, payload_sha256, leaf_hash, start, length);
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

    /// The rows of each table, and the payloads end to end.
    pub(crate) fn into_rows(self) -> serde_json::Result<(Rows, Vec<u8>)> {
        let Self { ledgers, mut rows, intervals, payloads, .. } = self;
        intervals.write(&mut rows)?;
        for Ledger { key, frontier, .. } in ledgers.values().filter(|ledger| ledger.changed) {
            rows.push(Table::Head, &(key, signed(frontier.size()), frontier.to_hex()))?;
        }
        Ok((rows, payloads))
    }
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
    rows.push(Table::Named, &(spot.org, kind, name, id, spot.index, tags))
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
        Fact::OrganizationCreated { record } => orgs::created(spot, record, rows),
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
