//! Snapshots, and the intervals in which artifacts ran: a snapshot writes what changed, not what runs.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::fact::said;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::snapshots::{
    ArtifactKey, Instance, Run, Snapshot, SnapshotInstance, SnapshotRow, SnapshotStore,
};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;
use serde::Deserialize;

use crate::db::PostgresStore;
use crate::rows::{Payload, Rows, Table, array, id, list, payload, signed, text_of, unsigned, word};

pub(crate) const INSERT_SNAPSHOTS: &str = "
    INSERT INTO evidence.snapshot (org, environment, idx, at, compliant, ledger_index)
    SELECT r.* FROM go, UNNEST($text, $text, $bigint, $bigint, $boolean, $bigint) r";

/// Ends what lasted before the batch. It is one statement with [`INSERT_INSTANCES`] and so does not see its rows. What lasts
/// is looked up in a subquery (`OFFSET 0`) and updated where it lies: a probe of the index for each row, whatever the
/// statistics say, for nobody else writes to the ledger meanwhile.
pub(crate) const END_INSTANCES: &str = "
    UPDATE evidence.instance i SET until_idx = e.until_idx, exited = e.exited
    FROM (
        SELECT l.ctid AS place, r.until_idx, r.exited
        FROM go, UNNEST($text, $text, $text, $bigint, $boolean) AS r (org, environment, artifact, until_idx, exited)
        CROSS JOIN LATERAL (
            SELECT ctid FROM evidence.instance
            WHERE org = r.org AND environment = r.environment AND artifact = r.artifact
                AND until_idx = 9223372036854775807 OFFSET 0) l
        OFFSET 0) e
    WHERE i.ctid = e.place";

pub(crate) const INSERT_INSTANCES: &str = "
    INSERT INTO evidence.instance (org, environment, artifact, from_idx, since_idx, until_idx, exited, state)
    SELECT r.* FROM go, UNNEST($text, $text, $text, $bigint, $bigint, $bigint, $boolean, $text) r";

/// `until_idx` of what lasts.
const LASTING: i64 = i64::MAX;

const SNAPSHOT: &str = concat!(
    "SELECT s.ledger_index, ",
    payload!("s"),
    " FROM evidence.snapshot s WHERE s.org = $1 AND s.environment = $2 AND s.idx = $3"
);

/// The next one is a subquery, never a join: a probe of the index whatever the statistics say.
const SNAPSHOTS: &str = "
    SELECT s.idx, s.at,
        (SELECT n.at FROM evidence.snapshot n
            WHERE n.org = s.org AND n.environment = s.environment AND n.idx = s.idx + 1),
        s.compliant, s.ledger_index
    FROM evidence.snapshot s WHERE s.org = $1 AND s.environment = $2 AND s.idx BETWEEN $3 AND $4 ORDER BY s.idx";

/// Of equal times the greatest number: one probe of an index, however long ago.
pub(crate) const SNAPSHOT_AT: &str = "
    SELECT idx FROM evidence.snapshot
    WHERE org = $1 AND environment || '' = $2 AND at <= $3 ORDER BY at DESC, idx DESC LIMIT 1";

/// One row with everything, as a JSON array of pairs or nothing: a row costs more than what is in it. No join with the
/// snapshot, for which every instance that ever ran might be read.
pub(crate) const INSTANCES: &str = "
    SELECT '[' || string_agg(
            '[' || i.state || CASE WHEN i.until_idx = $3 THEN ',true]' ELSE ',false]' END, ',') || ']'
    FROM evidence.instance i
    WHERE i.org = $1 AND i.environment = $2 AND i.until_idx >= $3 AND i.from_idx <= $3
        AND (i.until_idx > $3 OR i.exited)
        AND EXISTS (SELECT 1 FROM evidence.snapshot WHERE org = $1 AND environment = $2 AND idx = $3)";

/// A row for the last interval of each run, by an index that has no others. An artifact's environments are found one after
/// the other, and of each its first run and its newest, so that the work is that of what is shown. The name is a
/// subquery, never a join: a probe of the index for each run, whatever else there is.
pub(crate) const RUNS: &str = "
    WITH RECURSIVE place AS (
        SELECT w.value AS artifact, (
            SELECT i.environment FROM evidence.instance i
            WHERE i.org = $1 AND i.artifact = w.value AND (i.exited OR i.until_idx = 9223372036854775807)
            ORDER BY i.environment LIMIT 1) AS environment
        FROM UNNEST($2::text[]) AS w (value)
        UNION ALL
        SELECT p.artifact, (
            SELECT i.environment FROM evidence.instance i
            WHERE i.org = $1 AND i.artifact = p.artifact AND i.environment > p.environment
                AND (i.exited OR i.until_idx = 9223372036854775807)
            ORDER BY i.environment LIMIT 1)
        FROM place p WHERE p.environment IS NOT NULL)
    SELECT p.artifact AS fingerprint, p.environment, (
            SELECT n.name FROM evidence.record n
            WHERE n.org = $1 AND n.kind = 'environment' AND n.id = p.environment) AS environment_name,
        b.idx AS from_idx, b.at AS from_at, e.idx AS until_idx, e.at AS until_at
    FROM place p CROSS JOIN LATERAL (
        (SELECT f.since_idx, f.until_idx FROM evidence.instance f
            WHERE f.org = $1 AND f.artifact = p.artifact AND f.environment = p.environment
                AND (f.exited OR f.until_idx = 9223372036854775807)
            ORDER BY f.since_idx LIMIT 1)
        UNION
        (SELECT l.since_idx, l.until_idx FROM evidence.instance l
            WHERE l.org = $1 AND l.artifact = p.artifact AND l.environment = p.environment
                AND (l.exited OR l.until_idx = 9223372036854775807)
            ORDER BY l.since_idx DESC LIMIT $3)) i
    CROSS JOIN LATERAL (
        SELECT * FROM evidence.snapshot
        WHERE org = $1 AND environment = p.environment AND idx = i.since_idx OFFSET 0) b
    LEFT JOIN LATERAL (
        SELECT * FROM evidence.snapshot
        WHERE org = $1 AND environment = p.environment AND idx = i.until_idx OFFSET 0) e ON true
    ORDER BY p.environment, p.artifact, i.since_idx";

/// An interval that begins in a batch, and may end in it.
#[derive(Debug)]
struct Begun {
    org: Id,
    environment: Id,
    artifact: ArtifactKey,
    instance: Instance,
    until: i64,
    exited: bool,
}

/// The intervals that a batch begins and ends. Several snapshots of one environment may meet in a batch: what such a
/// batch both begins and ends is written once, ended.
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    begun: Vec<Begun>,
    /// What the batch has touched: the position of what lasts in `begun`, or nothing where it has ended.
    touched: BTreeMap<(Id, ArtifactKey), Option<usize>>,
    ended: Vec<(Id, Id, ArtifactKey, u64, bool)>,
}

impl Intervals {
    pub(crate) fn end(&mut self, org: Id, environment: Id, artifact: ArtifactKey, until: u64, exited: bool) {
        match self.touched.insert((environment, artifact.clone()), None) {
            Some(Some(position)) => {
                if let Some(begun) = self.begun.get_mut(position) {
                    begun.until = signed(until);
                    begun.exited = exited;
                }
            }
            Some(None) => {}
            None => self.ended.push((org, environment, artifact, until, exited)),
        }
    }

    pub(crate) fn begin(&mut self, org: Id, environment: Id, instance: Instance) {
        let artifact = instance.key();
        self.touched.insert((environment, artifact.clone()), Some(self.begun.len()));
        self.begun.push(Begun { org, environment, artifact, instance, until: LASTING, exited: false });
    }

    /// Writes the rows of the whole batch.
    pub(crate) fn write(self, rows: &mut Rows) -> serde_json::Result<()> {
        for end in &self.ended {
            rows.push(Table::InstanceEnd, end)?;
        }
        for Begun { org, environment, artifact, instance, until, exited } in &self.begun {
            // As text: a JSON value in between would round its numbers.
            let state = serde_json::to_string(instance)?;
            let row = (org, environment, artifact, instance.from, instance.since, until, exited, state);
            rows.push(Table::Instance, &row)?;
        }
        Ok(())
    }
}

/// A payload, as far as its snapshot goes.
#[derive(Deserialize)]
struct TakenFact {
    snapshot: Snapshot,
}

fn line(row: (i64, i64, Option<i64>, bool, i64)) -> StoreResult<SnapshotRow> {
    let (index, at, until, compliant, revision) = row;
    let (at, until) = (Timestamp::from_micros(at), until.map(Timestamp::from_micros));
    Ok(SnapshotRow { index: unsigned(index)?, at, until, compliant, revision: unsigned(revision)? })
}

#[derive(sqlx::FromRow)]
struct RunRow {
    fingerprint: String,
    environment: String,
    environment_name: String,
    from_idx: i64,
    from_at: i64,
    until_idx: Option<i64>,
    until_at: Option<i64>,
}

impl RunRow {
    fn run(self) -> StoreResult<Run> {
        let until_idx = self.until_idx.map(unsigned).transpose()?;
        Ok(Run {
            fingerprint: word(&self.fingerprint)?,
            environment: id(&self.environment)?,
            environment_name: word(&self.environment_name)?,
            from: (unsigned(self.from_idx)?, Timestamp::from_micros(self.from_at)),
            until: until_idx.zip(self.until_at.map(Timestamp::from_micros)),
        })
    }
}

#[async_trait]
impl SnapshotStore for PostgresStore {
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>> {
        let question = self.ask_of(org, SNAPSHOT).bind(environment.to_string());
        let taken = |(revision, payload): (i64, Payload)| {
            let TakenFact { snapshot } = said(text_of(&payload)?)?;
            Ok(Current { revision: unsigned(revision)?, record: snapshot })
        };
        question.bind(signed(index)).first_as(taken).await
    }

    async fn snapshots(
        &self,
        org: Id,
        environment: Id,
        range: RangeInclusive<u64>,
    ) -> StoreResult<Vec<SnapshotRow>> {
        let question = self.ask_of(org, SNAPSHOTS).long().bind(environment.to_string());
        let rows = question.bind(signed(*range.start())).bind(signed(*range.end())).all().await?;
        rows.into_iter().map(line).collect()
    }

    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64> {
        let question = self.ask_of(org, SNAPSHOT_AT).bind(environment.to_string());
        let row = question.bind(at.as_micros()).first::<(i64,)>().await?;
        row.map_or(Ok(0), |(index,)| unsigned(index))
    }

    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<SnapshotInstance>> {
        let question = self.ask_of(org, INSTANCES).long().bind(environment.to_string());
        let placed = |(json,): (Option<String>,)| {
            let mut placed: Vec<(Instance, bool)> = array(json)?;
            placed.sort_by_cached_key(|(instance, _)| (instance.key(), instance.from));
            Ok(placed.into_iter().map(|(instance, exited)| SnapshotInstance { instance, exited }).collect())
        };
        Ok(question.bind(signed(index)).first_as(placed).await?.unwrap_or_default())
    }

    async fn runs(&self, org: Id, fingerprints: &[Fingerprint], newest: u32) -> StoreResult<Vec<Run>> {
        let question = self.ask_of(org, RUNS).long().bind(list(fingerprints)).bind(i64::from(newest));
        question.all_as(RunRow::run).await
    }
}
