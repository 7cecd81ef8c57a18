//! Snapshots and the intervals in which artifacts ran. A snapshot writes only changes, not everything that
//! runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::fact::decode_payload;
use evidence_core::id::Id;
use evidence_core::name::{EnvironmentName, Fingerprint};
use evidence_core::page::{Page, PageRequest, SortDirection};
use evidence_core::snapshots::{
    ArtifactKey, Event, EventSize, LiveBuild, Progress, REPLACED_AMONG, Replaced, Run, RunningArtifact,
    Snapshot, SnapshotEntry, SnapshotRow, SnapshotStore, Start,
};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;
use serde::Deserialize;

use crate::decode::{Payload, array, body};
use crate::driver::Driver;
use crate::events;
use crate::group_rows::GroupRows;
use crate::instances::{StoredInstance, StoredState, instance_json};
use crate::listing::decode_size;
use crate::sql::{Sql, id_text, payload, payload_size};
use crate::store::SqlStore;
use crate::tables::TableWrite;
use crate::value::{Column, Value, signed, texts};
use crate::windows::first_not;

/// The `until_idx` of an interval that has not ended.
pub(crate) const LASTING: i64 = i64::MAX;

const SNAPSHOT: Sql = Sql::portable(concat!(
    "SELECT s.ledger_index, ",
    payload!("s"),
    " FROM evidence.snapshot s WHERE s.org = $1 AND s.environment = $2 AND s.idx = $3"
));

/// Selects snapshots in any order. The next snapshot is a subquery, not a join, so it is an index probe
/// whatever the statistics are.
const SNAPSHOTS: Sql = Sql::per_dialect(
    "SELECT s.environment, s.idx, s.at,
        (SELECT n.at FROM evidence.snapshot n
            WHERE n.org = $1 AND n.environment = s.environment AND n.idx = s.idx + 1),
        s.compliant, s.events, s.ledger_index, s.logical
    FROM json_each($2) w
    CROSS JOIN evidence.snapshot s
        ON s.environment = w.value->>0 AND s.idx BETWEEN w.value->>1 AND w.value->>2 AND +s.org = $1",
    "SELECT s.environment, s.idx, s.at,
        (SELECT n.at FROM evidence.snapshot n
            WHERE n.org = $1 AND n.environment = s.environment AND n.idx = s.idx + 1),
        s.compliant, s.events, s.ledger_index, s.logical
    FROM UNNEST($2::bytea[], $3::bigint[], $4::bigint[]) AS w (environment, first, last)
    CROSS JOIN LATERAL (
        SELECT * FROM evidence.snapshot
        WHERE org = $1 AND environment = w.environment AND idx BETWEEN w.first AND w.last OFFSET 0) s",
);

/// Selects the last snapshot of each environment before an entry. Each is one index probe, whatever the
/// number of snapshots.
const PROGRESS: Sql = Sql::per_dialect(
    "SELECT w.key, s.idx, s.events
    FROM json_each($2) w
    CROSS JOIN evidence.snapshot s
        ON s.environment = w.value->>0 AND +s.org = $1 AND s.idx = (
            SELECT b.idx FROM evidence.snapshot b
            WHERE b.environment = w.value->>0 AND b.ledger_index < w.value->>1 AND +b.org = $1
            ORDER BY b.ledger_index DESC LIMIT 1)",
    "SELECT w.place - 1, s.idx, s.events
    FROM UNNEST($2::bytea[], $3::bigint[]) WITH ORDINALITY AS w (environment, entry, place)
    CROSS JOIN LATERAL (
        SELECT idx, events FROM evidence.snapshot
        WHERE org = $1 AND environment || '' = w.environment AND ledger_index < w.entry
        ORDER BY ledger_index DESC LIMIT 1) s",
);

/// Selects the last snapshot at a time, or 0 before the first. Snapshots are numbered by time; among equal
/// times the greatest number counts.
const SNAPSHOT_AT: Sql = Sql::per_dialect(
    concat!(
        "SELECT ",
        first_not!("b.at <= $3", "evidence.snapshot", "idx" from "1", "+b.org = $1 AND b.environment = $2"),
        " - 1"
    ),
    concat!(
        "SELECT ",
        first_not!("b.at <= $3", "evidence.snapshot", "idx" from "1", "b.org = $1 AND b.environment = $2"),
        " - 1"
    ),
);

/// Selects one row with everything, as a JSON array of pairs or null, in any order, because a row costs more
/// than its content. There is no join with the snapshot, because PostgreSQL might then read every instance
/// that ever ran.
const INSTANCES: Sql = Sql::portable(concat!(
    "SELECT '[' || string_agg('[' || ",
    instance_json!("i"),
    " || CASE WHEN i.until_idx = $3 THEN ',true]' ELSE ',false]' END, ',') || ']'
    FROM evidence.instance i
    WHERE i.org = $1 AND i.environment = $2 AND i.until_idx >= $3 AND i.from_idx <= $3
        AND (i.until_idx > $3 OR i.exited)
        AND EXISTS (SELECT 1 FROM evidence.snapshot WHERE org = $1 AND environment = $2 AND idx = $3)"
));

/// The common table expression `pair`: the environments in which some artifacts ran. `$artifacts` selects the
/// artifacts, as `a` with its column `artifact`. The environments are found one by one, so the cost depends on
/// the result.
macro_rules! ran_in {
    ($artifacts:literal) => {
        concat!(
            "pair (artifact, environment) AS (
                SELECT a.artifact, (
                    SELECT i.environment FROM evidence.instance i
                    WHERE i.org = $1 AND i.artifact = a.artifact AND (i.exited OR i.until_idx = 9223372036854775807)
                    ORDER BY i.environment LIMIT 1)
                FROM ",
            $artifacts,
            "
                UNION ALL
                SELECT p.artifact, (
                    SELECT i.environment FROM evidence.instance i
                    WHERE i.org = $1 AND i.artifact = p.artifact AND i.environment > p.environment
                        AND (i.exited OR i.until_idx = 9223372036854775807)
                    ORDER BY i.environment LIMIT 1)
                FROM pair p WHERE p.environment IS NOT NULL)"
        )
    };
}
pub(crate) use ran_in;

/// A scalar: the runs of each `pair`, the first and the newest `$newest`, as a JSON array of [`StoredRun`] or
/// null, in any order. The last interval of each run is found by an index of only these intervals. The
/// environment is read by subqueries, not by a join, so it is an index probe for each run.
macro_rules! runs_json {
    (sqlite, $newest:literal) => {
        concat!(
            "(SELECT json_group_array(json_array(i.artifact, i.environment, (
                    SELECT n.name FROM evidence.record n
                    WHERE n.org = $1 AND n.kind = 'environment' AND n.id = i.environment), json((
                    SELECT iif(n.archived, 'true', 'false') FROM evidence.record n
                    WHERE n.org = $1 AND n.kind = 'environment' AND n.id = i.environment)),
                b.idx, b.at, e.idx, e.at))
            FROM pair p CROSS JOIN evidence.instance i ON i.rowid IN (
                SELECT * FROM (
                    SELECT f.rowid FROM evidence.instance f
                    WHERE f.org = $1 AND f.artifact = p.artifact AND f.environment = p.environment
                        AND (f.exited OR f.until_idx = 9223372036854775807)
                    ORDER BY f.since_idx LIMIT 1)
                UNION
                SELECT * FROM (
                    SELECT l.rowid FROM evidence.instance l
                    WHERE l.org = $1 AND l.artifact = p.artifact AND l.environment = p.environment
                        AND (l.exited OR l.until_idx = 9223372036854775807)
                    ORDER BY l.since_idx DESC LIMIT ",
            $newest,
            "))
            CROSS JOIN evidence.snapshot b ON b.environment = i.environment AND b.idx = i.since_idx
            LEFT JOIN evidence.snapshot e ON e.environment = i.environment AND e.idx = i.until_idx)"
        )
    };
    (postgres, $newest:literal) => {
        concat!(
            "(SELECT json_agg(json_build_array(p.artifact, ",
            crate::sql::id_text!("p.environment"),
            ", (
                    SELECT n.name FROM evidence.record n
                    WHERE n.org = $1 AND n.kind = 'environment' AND n.id = ",
            crate::sql::id_text!("p.environment"),
            "), (
                    SELECT n.archived FROM evidence.record n
                    WHERE n.org = $1 AND n.kind = 'environment' AND n.id = ",
            crate::sql::id_text!("p.environment"),
            "),
                b.idx, b.at, e.idx, e.at))::text
            FROM pair p CROSS JOIN LATERAL (
                (SELECT f.since_idx, f.until_idx FROM evidence.instance f
                    WHERE f.org = $1 AND f.artifact = p.artifact AND f.environment = p.environment
                        AND (f.exited OR f.until_idx = 9223372036854775807)
                    ORDER BY f.since_idx LIMIT 1)
                UNION
                (SELECT l.since_idx, l.until_idx FROM evidence.instance l
                    WHERE l.org = $1 AND l.artifact = p.artifact AND l.environment = p.environment
                        AND (l.exited OR l.until_idx = 9223372036854775807)
                    ORDER BY l.since_idx DESC LIMIT ",
            $newest,
            ")) i
            CROSS JOIN LATERAL (
                SELECT * FROM evidence.snapshot
                WHERE org = $1 AND environment = p.environment AND idx = i.since_idx OFFSET 0) b
            LEFT JOIN LATERAL (
                SELECT * FROM evidence.snapshot
                WHERE org = $1 AND environment = p.environment AND idx = i.until_idx OFFSET 0) e ON true)"
        )
    };
}
pub(crate) use runs_json;

/// Selects one row with all runs, because a row costs more than its content.
const RUNS: Sql = Sql::per_dialect(
    concat!(
        "WITH RECURSIVE ",
        ran_in!("(SELECT value AS artifact FROM json_each($2)) a"),
        " SELECT ",
        runs_json!(sqlite, "$3")
    ),
    concat!(
        "WITH RECURSIVE ",
        ran_in!("UNNEST($2::text[]) AS a (artifact)"),
        " SELECT ",
        runs_json!(postgres, "$3")
    ),
);

/// Selects the lasting intervals of the artifacts in the newest `$4` reports of a repo. Each is a probe of an
/// index of only lasting intervals, so the cost depends on these reports and not on the number of runs.
const LIVE_BUILDS: Sql = Sql::per_dialect(
    concat!(
        "WITH reported AS MATERIALIZED (
            SELECT newest.fingerprint, min(newest.ledger_index) AS ledger_index
            FROM (
                SELECT x.fingerprint, x.ledger_index FROM evidence.artifact x
                WHERE x.repo = $2 AND +x.org = $1 ORDER BY x.ledger_index DESC LIMIT $4) newest
            GROUP BY newest.fingerprint)
        SELECT a.ledger_index, a.id || ' ' || ",
        payload_size!("a"),
        ", i.environment, ",
        instance_json!("i"),
        ", (
            SELECT s.at FROM evidence.snapshot s
            WHERE s.org = $1 AND s.environment = i.environment AND s.idx = i.since_idx)
        FROM reported r
        CROSS JOIN evidence.instance i
            ON i.org = $1 AND i.artifact = r.fingerprint AND i.until_idx = 9223372036854775807
        CROSS JOIN evidence.record n
            ON n.org = $1 AND n.kind = 'environment' AND n.id = i.environment AND NOT n.archived
        CROSS JOIN evidence.artifact a
            ON a.repo = $2 AND a.ledger_index = r.ledger_index AND +a.org = $1
        ORDER BY n.name, i.artifact LIMIT $3"
    ),
    concat!(
        "WITH reported AS MATERIALIZED (
            SELECT newest.fingerprint, min(newest.ledger_index) AS ledger_index
            FROM (
                SELECT fingerprint, ledger_index FROM evidence.artifact
                WHERE org = $1 AND repo = $2 ORDER BY ledger_index DESC LIMIT $4) newest
            GROUP BY newest.fingerprint)
        SELECT a.ledger_index, a.id || ' ' || ",
        payload_size!("a"),
        ", i.environment, ",
        instance_json!("i"),
        ", (
            SELECT s.at FROM evidence.snapshot s
            WHERE s.org = $1 AND s.environment = i.environment AND s.idx = i.since_idx)
        FROM reported r
        CROSS JOIN LATERAL (
            SELECT * FROM evidence.instance
            WHERE org = $1 AND artifact = r.fingerprint AND until_idx = 9223372036854775807 OFFSET 0) i
        CROSS JOIN LATERAL (
            SELECT * FROM evidence.record
            WHERE org = $1 AND id = ",
        id_text!("i.environment"),
        " AND kind = 'environment' OFFSET 0) n
        CROSS JOIN LATERAL (
            SELECT * FROM evidence.artifact
            WHERE org = $1 AND repo = $2 AND ledger_index = r.ledger_index OFFSET 0) a
        WHERE NOT n.archived
        ORDER BY n.name, i.artifact LIMIT $3"
    ),
);

/// An interval that begins in a group, and may end in it.
#[derive(Debug)]
struct NewInterval {
    org: Id,
    environment: Id,
    artifact: ArtifactKey,
    instance: RunningArtifact,
    event: Option<u64>,
    end: Option<End>,
}

/// The end of an interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// The first snapshot after the interval.
    pub(crate) until: u64,
    /// The number of the event that reports the exit of the artifact. `None` if the artifact continues to run
    /// in another state.
    pub(crate) exit: Option<u64>,
}

/// The end of an interval that began before a group.
#[derive(Debug)]
struct Ended {
    org: Id,
    environment: Id,
    artifact: ArtifactKey,
    end: End,
}

/// The intervals that a group begins and ends. A group may contain several snapshots of one environment. An
/// interval that begins and ends in the same group is written once, with its end.
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    begun: Vec<NewInterval>,
    /// The artifacts that the group has changed: the position in `begun` of the lasting interval, or `None`
    /// if it has ended.
    touched: BTreeMap<(Id, ArtifactKey), Option<usize>>,
    ended: Vec<Ended>,
}

impl Intervals {
    pub(crate) fn end(&mut self, org: Id, environment: Id, artifact: ArtifactKey, end: End) {
        match self.touched.insert((environment, artifact.clone()), None) {
            Some(Some(position)) => {
                if let Some(begun) = self.begun.get_mut(position) {
                    begun.end = Some(end);
                }
            }
            Some(None) => {}
            None => self.ended.push(Ended { org, environment, artifact, end }),
        }
    }

    pub(crate) fn begin(&mut self, org: Id, environment: Id, instance: RunningArtifact, event: Option<u64>) {
        let artifact = instance.key();
        self.touched.insert((environment, artifact.clone()), Some(self.begun.len()));
        self.begun.push(NewInterval { org, environment, artifact, instance, event, end: None });
    }

    /// Writes the rows of the whole group.
    pub(crate) fn write(self, rows: &mut GroupRows) -> serde_json::Result<()> {
        for Ended { org, environment, artifact, end: End { until, exit } } in self.ended {
            rows.push(
                TableWrite::EndInstances,
                vec![
                    Value::Org(org),
                    Value::Id(Some(environment)),
                    artifact.as_str().into(),
                    until.into(),
                    exit.is_some().into(),
                    exit.into(),
                ],
            );
        }
        for NewInterval { org, environment, artifact, instance, event, end } in self.begun {
            let exit = end.and_then(|end| end.exit);
            let (from, since) = (instance.from, instance.since);
            // Serialize to text directly: an intermediate JSON value would round numbers.
            let state = serde_json::to_string(&StoredState::from(instance))?;
            rows.push(
                TableWrite::Instance,
                vec![
                    Value::Org(org),
                    Value::Id(Some(environment)),
                    artifact.as_str().into(),
                    from.into(),
                    since.into(),
                    end.map_or(LASTING, |end| signed(end.until)).into(),
                    exit.is_some().into(),
                    state.into(),
                    event.into(),
                    exit.into(),
                ],
            );
        }
        Ok(())
    }
}

/// The part of a payload that contains the snapshot.
#[derive(Deserialize)]
struct SnapshotFact {
    snapshot: Snapshot,
}

fn snapshot_fact((revision, payload): (u64, Payload)) -> StoreResult<Current<Snapshot>> {
    let SnapshotFact { snapshot } = decode_payload(payload.text()?)?;
    Ok(Current { revision, record: snapshot })
}

/// A row of [`SNAPSHOTS`].
type SnapshotLine = (Id, u64, Timestamp, Option<Timestamp>, bool, u64, u64, Option<String>);

fn line(
    (environment, index, at, until, compliant, events, revision, logical): SnapshotLine,
) -> StoreResult<SnapshotRow> {
    let logical = logical.as_deref().map(body).transpose()?.unwrap_or_default();
    Ok(SnapshotRow { environment, index, at, until, compliant, events, revision, logical })
}

/// Binds ids with one or more numbers each.
fn numbered<const N: usize>(asked: impl Iterator<Item = (Id, [u64; N])>) -> Value {
    let mut ids = Vec::new();
    let mut columns: [Vec<Option<i64>>; N] = std::array::from_fn(|_| Vec::new());
    for (id, numbers) in asked {
        ids.push(Some(id));
        for (column, number) in columns.iter_mut().zip(numbers) {
            column.push(Some(signed(number)));
        }
    }
    Value::Columns(std::iter::once(Column::Ids(ids)).chain(columns.map(Column::Ints)).collect())
}

/// Binds environments with the numbers of events. Each pair is bound once.
fn distinct_pairs(asked: &[(Id, u64)]) -> Value {
    let asked = BTreeSet::from_iter(asked);
    numbered(asked.into_iter().map(|(environment, number)| (*environment, [*number])))
}

/// Decodes the result of [`INSTANCES`], sorted by artifact key.
fn instances((json,): (Option<String>,)) -> StoreResult<Vec<SnapshotEntry>> {
    let found = array::<(StoredInstance, bool)>(json)?.into_iter();
    let mut entries =
        Vec::from_iter(found.map(|(stored, exited)| SnapshotEntry { instance: stored.into(), exited }));
    entries.sort_by_cached_key(|entry| (entry.instance.key(), entry.instance.from));
    Ok(entries)
}

/// An item of [`runs_json!`].
#[derive(Deserialize)]
struct StoredRun(Fingerprint, Id, EnvironmentName, bool, u64, Timestamp, Option<u64>, Option<Timestamp>);

impl From<StoredRun> for Run {
    fn from(run: StoredRun) -> Self {
        let StoredRun(fingerprint, environment, environment_name, archived, from, from_at, until, until_at) =
            run;
        let (from, until) = ((from, from_at), until.zip(until_at));
        Self { fingerprint, environment, environment_name, archived, from, until }
    }
}

/// Decodes the result of [`runs_json!`], sorted by environment, fingerprint and first snapshot.
pub(crate) fn runs(json: Option<String>) -> StoreResult<Vec<Run>> {
    let mut runs: Vec<Run> = array::<StoredRun>(json)?.into_iter().map(Run::from).collect();
    runs.sort_by_cached_key(|run| (run.environment, run.fingerprint.clone(), run.from.0));
    Ok(runs)
}

/// A row of [`LIVE_BUILDS`].
type LiveRow = (i64, String, Id, String, Timestamp);

fn live_build((index, report, environment, running, at): LiveRow) -> (i64, StoreResult<LiveBuild>) {
    let read = || {
        let RunningArtifact { name, since, compliant, .. } = body::<StoredInstance>(&running)?.into();
        Ok(LiveBuild { report: decode_size(&report)?, environment, name, since: (since, at), compliant })
    };
    (index, read())
}

#[async_trait]
impl<D: Driver> SnapshotStore for SqlStore<D> {
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>> {
        self.query_org(org, SNAPSHOT)
            .bind(Value::Id(Some(environment)))
            .bind(index)
            .first_as(snapshot_fact)
            .await
    }

    async fn snapshots(
        &self,
        org: Id,
        ranges: &[(Id, RangeInclusive<u64>)],
    ) -> StoreResult<Vec<SnapshotRow>> {
        let bounds = ranges.iter().map(|(environment, range)| (*environment, [*range.start(), *range.end()]));
        let counts =
            ranges.iter().map(|(_, range)| range.end().saturating_add(1).saturating_sub(*range.start()));
        let count = counts.fold(0, u64::saturating_add);
        let query = self.query_org(org, SNAPSHOTS).bind(numbered(bounds));
        let mut rows = query.per_item(usize::try_from(count).unwrap_or(usize::MAX)).all_as(line).await?;
        rows.sort_unstable_by_key(|row| (row.environment, row.index));
        Ok(rows)
    }

    async fn progress(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Progress>> {
        let before = asked.iter().map(|(environment, entry)| (*environment, [*entry]));
        let query = self.query_org(org, PROGRESS).bind(numbered(before)).per_item(asked.len());
        let mut progress = vec![Progress::default(); asked.len()];
        for (place, snapshots, events) in query.all::<(u64, u64, u64)>().await? {
            if let Some(of) = usize::try_from(place).ok().and_then(|place| progress.get_mut(place)) {
                *of = Progress { snapshots, events };
            }
        }
        Ok(progress)
    }

    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64> {
        let query = self.query_org(org, SNAPSHOT_AT).bind(Value::Id(Some(environment))).bind(at);
        Ok(query.first::<(u64,)>().await?.map_or(0, |(index,)| index))
    }

    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<SnapshotEntry>> {
        let query = self.query_org(org, INSTANCES).bind(Value::Id(Some(environment))).bind(index);
        Ok(query.long().first_as(instances).await?.unwrap_or_default())
    }

    async fn runs(&self, org: Id, fingerprints: &[Fingerprint], newest: u32) -> StoreResult<Vec<Run>> {
        let query = self.query_org(org, RUNS).bind(texts(fingerprints)).bind(u64::from(newest));
        let found = query.per_item(fingerprints.len()).first_as(|(json,)| runs(json)).await?;
        Ok(found.unwrap_or_default())
    }

    async fn live_builds(&self, org: Id, repo: Id, reports: u64, limit: u64) -> StoreResult<Vec<LiveBuild>> {
        let query = self.query_org(org, LIVE_BUILDS).bind(repo).bind(limit).bind(reports).long();
        query.readable_as(org, live_build).await
    }

    async fn event_sizes(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<EventSize>> {
        let query = self.query_org(org, events::SIZES).bind(distinct_pairs(asked));
        query.per_item(asked.len()).all_as(events::size).await
    }

    async fn events(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Event>> {
        let query = self.query_org(org, events::NUMBERED).bind(distinct_pairs(asked));
        query.per_item(asked.len()).all_as(events::event).await
    }

    async fn event_numbers(
        &self,
        org: Id,
        environment: Id,
        (range, direction): (RangeInclusive<u64>, SortDirection),
        repos: &[Id],
        request: PageRequest,
    ) -> StoreResult<Page<u64>> {
        let query = self.query_org(org, events::OF_REPOS).bind(Value::Id(Some(environment)));
        let query = query.bind(*range.start()).bind(*range.end()).bind(texts(repos));
        let sign: i64 = if direction == SortDirection::Desc { -1 } else { 1 };
        let query = query.bind(sign).bind(request.limit).bind(request.offset).long();
        query.answer(move |rows| Ok(events::page(rows, direction))).await
    }

    async fn replaced(&self, org: Id, starts: &[Start]) -> StoreResult<Vec<Replaced>> {
        let query = self.query_org(org, events::REPLACED).bind(REPLACED_AMONG).bind(events::columns(starts));
        query.per_item(starts.len()).all_as(events::replaced).await
    }
}
