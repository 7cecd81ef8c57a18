//! The write path, from a caller's write to its rows: what can be done without the database is done on the caller's
//! task ([`Submission`]), the rest in the writer's transaction ([`Plan`]), in memory, between one call that looks and
//! one that writes.

use std::borrow::Cow;
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

use crate::db::SqliteStore;
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
impl Recorder for SqliteStore {
    async fn record(&self, write: Write) -> StoreResult<Vec<Entry>> {
        let (reply, outcome) = self.queue.outcome();
        let submission = Submission::new(write, reply).await?;
        self.queue.submit(Job::Record(submission), outcome).await
    }
}

/// Answers the heads of the organizations `$1`, the greatest key of an organization, what each name leads to that
/// exists, and the revision of each record: `[number, organization, kind or scope, name or id]`.
pub(crate) const LOOK: &str = "
    SELECT 0, o.key, h.size, o.id, h.frontier,
            coalesce((SELECT l.at FROM ledger l WHERE l.org = h.org AND l.idx = h.size - 1), 0)
        FROM json_each($1) j CROSS JOIN organization o ON o.id = j.value CROSS JOIN head h ON h.org = o.key
    UNION ALL SELECT 1, coalesce(max(key), 0), 0, '', '', 0 FROM organization
    UNION ALL SELECT 2, j.value->>0, n.alias, n.id, '', 0
        FROM json_each($2) j CROSS JOIN organization o ON o.id = j.value->>1
        CROSS JOIN name n ON n.org = o.key AND n.kind = j.value->>2 AND n.name = j.value->>3
    UNION ALL SELECT 2, j.value->>0, 0, t.id, '', 0
        FROM json_each($3) j CROSS JOIN organization o ON o.id = j.value->>1
        CROSS JOIN trail t ON t.flow = j.value->>2 AND t.name = j.value->>3 AND t.org = o.key
    UNION ALL SELECT 2, j.value->>0, 0, s.environment, '', 0
        FROM json_each($8) j CROSS JOIN organization o ON o.id = j.value->>1
        CROSS JOIN snapshot s ON s.environment = j.value->>2 AND s.idx = CAST(j.value->>3 AS INTEGER) AND s.org = o.key
    UNION ALL SELECT 2, j.value->>0, 1, a.id, '', 0
        FROM json_each($9) j CROSS JOIN organization o ON o.id = j.value->>1
        CROSS JOIN artifact a ON +a.org = o.key AND a.ledger_index = (
            SELECT max(n.ledger_index) FROM artifact n WHERE n.trail = j.value->>2 AND n.name = j.value->>3 AND n.name <> '')
            AND a.trail = j.value->>2
    UNION ALL SELECT 2, j.value->>0, 0, o.id, '', 0
        FROM json_each($4) j CROSS JOIN organization o ON o.name = j.value->>3
    UNION ALL SELECT 2, j.value->>0, 0, u.id, '', 0
        FROM json_each($5) j CROSS JOIN user u ON u.name = j.value->>3
    UNION ALL SELECT 3, j.value->>0, r.ledger_index, '', '', 0
        FROM json_each($6) j CROSS JOIN organization o ON o.id = j.value->>1
        CROSS JOIN record r ON r.org = o.key AND r.kind = j.value->>2 AND r.id = j.value->>3
    UNION ALL SELECT 3, j.value->>0, t.ledger_index, '', '', 0
        FROM json_each($7) j CROSS JOIN organization o ON o.id = j.value->>1
        CROSS JOIN trail t ON t.id = j.value->>3 AND t.org = o.key";

/// A row of [`LOOK`].
pub(crate) type Seen = (i64, i64, i64, String, String, i64);

/// What a batch has to know before it is planned.
#[derive(Debug)]
pub(crate) struct Questions {
    orgs: BTreeSet<Id>,
    names: Vec<Name>,
    records: Vec<RecordRef>,
}

/// Something to look for, as [`LOOK`] takes it.
type Asked<'a> = (usize, String, String, Cow<'a, str>);

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

    /// The arguments of [`LOOK`].
    pub(crate) fn arguments(&self) -> serde_json::Result<[String; 9]> {
        let [
            mut named,
            mut trails,
            mut orgs,
            mut users,
            mut records,
            mut trail_ids,
            mut snapshots,
            mut artifacts,
        ] = <[Vec<Asked<'_>>; 8]>::default();
        for (number, Name { org, key }) in self.names.iter().enumerate() {
            let (list, scope) = match key {
                Key::Organization(_) => (&mut orgs, String::new()),
                Key::User(_) => (&mut users, String::new()),
                Key::Trail { flow, .. } => (&mut trails, flow.to_string()),
                Key::Snapshot { environment, .. } => (&mut snapshots, environment.to_string()),
                Key::Artifact { trail, .. } => (&mut artifacts, trail.to_string()),
                Key::ServiceAccount(_)
                | Key::Flow(_)
                | Key::Repo(_)
                | Key::Environment(_)
                | Key::Policy(_)
                | Key::AttestationType(_) => {
                    (&mut named, key.kind().map_or("", RecordKind::as_str).to_owned())
                }
            };
            list.push((number, org.map(|org| org.to_string()).unwrap_or_default(), scope, key.name()));
        }
        for (number, (org, kind, id)) in self.records.iter().enumerate() {
            let list = if *kind == RecordKind::Trail { &mut trail_ids } else { &mut records };
            list.push((number, org.to_string(), kind.as_str().to_owned(), id.to_string().into()));
        }
        let json = |list: &[Asked<'_>]| serde_json::to_string(list);
        Ok([
            serde_json::to_string(&self.orgs)?,
            json(&named)?,
            json(&trails)?,
            json(&orgs)?,
            json(&users)?,
            json(&records)?,
            json(&trail_ids)?,
            json(&snapshots)?,
            json(&artifacts)?,
        ])
    }
}

/// An organization's key, the frontier of its ledger, and the time of the last entry.
#[derive(Debug)]
struct Ledger {
    key: i64,
    frontier: Frontier,
    at: Timestamp,
    changed: bool,
}

/// What a batch will write: decided in memory, write by write, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    ledgers: BTreeMap<Id, Ledger>,
    last_key: i64,
    directory: Directory,
    rows: Rows,
    names: NameChanges,
    intervals: Intervals,
    payloads: Vec<u8>,
}

impl Plan {
    /// A plan that begins with what [`LOOK`] saw.
    pub(crate) fn new(questions: &Questions, seen: Vec<Seen>) -> StoreResult<Self> {
        let mut plan = Self::default();
        let number = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        for (what, key, value, text, hex, at) in seen {
            match what {
                0 => {
                    let (frontier, at) = (frontier(value, &hex)?, Timestamp::from_micros(at));
                    let ledger = Ledger { key, frontier, at, changed: false };
                    plan.ledgers.insert(crate::rows::id(&text)?, ledger);
                }
                1 => plan.last_key = key,
                2 => {
                    if let Some(name) = questions.names.get(number(key)) {
                        let denoted = Denoted { id: crate::rows::id(&text)?, alias: value != 0 };
                        plan.directory.insert_name(name.clone(), denoted);
                    }
                }
                _ => {
                    if let Some(record) = questions.records.get(number(key)) {
                        plan.directory.insert_revision(*record, unsigned(value)?);
                    }
                }
            }
        }
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
            let (frontier, at) = (Frontier::default(), Timestamp::from_micros(i64::MIN));
            let ledger = Ledger { key: self.last_key, frontier, at, changed: true };
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
        let spot = EntryRef { org: ledger.key, index: ledger.frontier.size() };
        // Of two servers one's clock may be behind; time never goes back in a ledger. An import is as it is.
        let at = if write.first.is_some() { prepared.at } else { prepared.at.max(ledger.at) };
        ledger.at = at;
        let leaf_hash = prepared.leaf_hash(spot.index, at);
        let (start, length) = (self.payloads.len() + 1, payload.len());
        self.payloads.extend_from_slice(payload.as_bytes());
        let row = (spot.org, spot.index, fact.kind(), at, actor, payload_sha256, leaf_hash, start, length);
        self.rows.push(Table::Ledger, &row)?;
        ledger.changed = true;
        for node in ledger.frontier.append(leaf_hash) {
            self.rows.push(Table::Node, &(spot.org, node.level, node.index, node.hash))?;
        }
        self.directory.apply(write.org, fact, spot.index);
        let mut batch =
            Batch { rows: &mut self.rows, names: &mut self.names, intervals: &mut self.intervals };
        batch.index(write.org, spot, at, fact, &write.secrets)?;
        Ok(Entry { index: spot.index, leaf_hash })
    }

    /// The rows of each table, and the payloads end to end.
    pub(crate) fn into_rows(self) -> serde_json::Result<(Rows, Vec<u8>)> {
        let Self { ledgers, mut rows, names, intervals, payloads, .. } = self;
        intervals.write(&mut rows)?;
        let keys = |org: Id| ledgers.get(&org).map_or(0, |ledger| ledger.key);
        write_names(&names, keys, &mut rows)?;
        for Ledger { key, frontier, .. } in ledgers.values().filter(|ledger| ledger.changed) {
            rows.push(Table::Head, &(key, signed(frontier.size()), frontier.to_hex()))?;
        }
        Ok((rows, payloads))
    }
}

/// Writes what became of names; `keys` are those of organizations.
pub(crate) fn write_names(
    names: &NameChanges,
    keys: impl Fn(Id) -> i64,
    rows: &mut Rows,
) -> serde_json::Result<()> {
    for (org, kind, id) in names.released() {
        rows.push(Table::NameRelease, &(keys(org), kind.as_str(), id))?;
    }
    for Name { org, key } in names.gone() {
        if let (Some(org), Some(kind)) = (org, key.kind()) {
            rows.push(Table::NameGone, &(keys(*org), kind.as_str(), key.name()))?;
        }
    }
    for (Name { org, key }, Denoted { id, alias }) in names.put() {
        // Others are columns of tables of their own.
        let (Some(org), Some(kind)) = (org, key.kind().filter(|kind| !kind.names_itself())) else {
            continue;
        };
        rows.push(Table::Name, &(keys(*org), kind.as_str(), key.name(), id, alias))?;
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
        org: Id,
        spot: EntryRef,
        at: Timestamp,
        fact: &Fact,
        secrets: &[(Id, KeyHash)],
    ) -> serde_json::Result<()> {
        fact.index_rows(at).into_iter().try_for_each(|row| self.add(org, spot, row, secrets))
    }

    fn add(
        &mut self,
        org: Id,
        spot: EntryRef,
        row: IndexRow<'_>,
        secrets: &[(Id, KeyHash)],
    ) -> serde_json::Result<()> {
        let rows = &mut *self.rows;
        match row {
            IndexRow::Organization(record) => {
                rows.push(Table::Organization, &(spot.org, record.id, &record.name, record))
            }
            IndexRow::User(record) => {
                rows.push(Table::User, &(spot.org, record.id, &record.name, record, spot.index))
            }
            IndexRow::Member { user, role } => rows.push(Table::Membership, &(spot.org, user, role)),
            IndexRow::Name(effect) => {
                self.names.apply(org, effect);
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
                rows.push(Table::Trail, &(spot.org, id, flow, name, spot.index, begins))?;
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
                self.intervals.end(environment, artifact, until, exited);
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
