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

use crate::db::SqliteStore;
use crate::rows::{Payload, Rows, Table, array, id, once, signed, unsigned, word};

pub(crate) const INSERT_SNAPSHOTS: &str = "
    INSERT INTO snapshot (org, environment, idx, at, compliant, ledger_index)
    SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5 FROM json_each($1)";

/// Ends what lasted before the batch. Its rows come before those of [`INSERT_INSTANCES`].
pub(crate) const END_INSTANCES: &str = "
    UPDATE instance SET until_idx = e.until, exited = e.exited
    FROM (SELECT value->>0 AS environment, value->>1 AS artifact, value->>2 AS until, value->>3 AS exited
          FROM json_each($1)) e
    WHERE instance.environment = e.environment AND instance.artifact = e.artifact
        AND instance.until_idx = 9223372036854775807";

pub(crate) const INSERT_INSTANCES: &str = "
    INSERT INTO instance (org, environment, artifact, from_idx, since_idx, until_idx, exited, state)
    SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->7 FROM json_each($1)";

/// `until_idx` of what lasts.
const LASTING: i64 = i64::MAX;

const SNAPSHOT: &str = "
    SELECT s.ledger_index, l.payload FROM snapshot s LEFT JOIN ledger l ON l.org = s.org AND l.idx = s.ledger_index
    WHERE s.environment = $2 AND s.idx = $3 AND s.org = (SELECT key FROM organization WHERE id = $1)";

const SNAPSHOTS: &str = "
    SELECT s.idx, s.at, (SELECT n.at FROM snapshot n WHERE n.environment = s.environment AND n.idx = s.idx + 1),
        s.compliant, s.ledger_index
    FROM snapshot s
    WHERE s.environment = $2 AND s.idx BETWEEN $3 AND $4
        AND s.org = (SELECT key FROM organization WHERE id = $1) ORDER BY s.idx";

/// Of equal times the greatest number: one probe of an index, however long ago.
const SNAPSHOT_AT: &str = "
    SELECT idx FROM snapshot
    WHERE environment = $2 AND at <= $3 AND +org = (SELECT key FROM organization WHERE id = $1)
    ORDER BY at DESC, idx DESC LIMIT 1";

/// One row with everything, as a JSON array of pairs or nothing: a row costs more than what is in it.
const INSTANCES: &str = "
    SELECT '[' || group_concat('[' || i.state || iif(i.until_idx = s.idx, ',true]', ',false]'), ','
            ORDER BY i.artifact, i.from_idx) || ']'
    FROM snapshot s
    CROSS JOIN instance i ON i.environment = s.environment AND i.until_idx >= s.idx AND i.from_idx <= s.idx
    WHERE s.environment = $2 AND s.idx = $3 AND s.org = (SELECT key FROM organization WHERE id = $1)
        AND (i.until_idx > s.idx OR i.exited)";

/// A row for the last interval of each run, by an index that has no others. An artifact's environments are found one after
/// the other, and of each its first run and its newest, so that the work is that of what is shown. The name is a
/// subquery, never a join: a probe of the index for each run, whatever else there is.
const RUNS: &str = "
    WITH RECURSIVE place (artifact, environment) AS (
        SELECT value, (
            SELECT min(i.environment) FROM instance i
            WHERE i.org = (SELECT key FROM organization WHERE id = $1) AND i.artifact = value
                AND (i.exited OR i.until_idx = 9223372036854775807))
        FROM json_each($2)
        UNION ALL
        SELECT p.artifact, (
            SELECT min(i.environment) FROM instance i
            WHERE i.org = (SELECT key FROM organization WHERE id = $1) AND i.artifact = p.artifact
                AND i.environment > p.environment AND (i.exited OR i.until_idx = 9223372036854775807))
        FROM place p WHERE p.environment IS NOT NULL)
    SELECT i.artifact, i.environment, (
            SELECT n.name FROM record n
            WHERE n.org = i.org AND n.kind = 'environment' AND n.id = i.environment),
        b.idx, b.at, e.idx, e.at
    FROM place p CROSS JOIN instance i ON i.rowid IN (
        SELECT * FROM (
            SELECT f.rowid FROM instance f
            WHERE f.org = (SELECT key FROM organization WHERE id = $1) AND f.artifact = p.artifact
                AND f.environment = p.environment AND (f.exited OR f.until_idx = 9223372036854775807)
            ORDER BY f.since_idx LIMIT 1)
        UNION
        SELECT * FROM (
            SELECT l.rowid FROM instance l
            WHERE l.org = (SELECT key FROM organization WHERE id = $1) AND l.artifact = p.artifact
                AND l.environment = p.environment AND (l.exited OR l.until_idx = 9223372036854775807)
            ORDER BY l.since_idx DESC LIMIT $3))
    CROSS JOIN snapshot b ON b.environment = i.environment AND b.idx = i.since_idx
    LEFT JOIN snapshot e ON e.environment = i.environment AND e.idx = i.until_idx
    ORDER BY i.environment, i.artifact, i.since_idx";

/// An interval that begins in a batch, and may end in it.
#[derive(Debug)]
struct Begun {
    org: i64,
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
    ended: Vec<(Id, ArtifactKey, u64, bool)>,
}

impl Intervals {
    pub(crate) fn end(&mut self, environment: Id, artifact: ArtifactKey, until: u64, exited: bool) {
        match self.touched.insert((environment, artifact.clone()), None) {
            Some(Some(position)) => {
                if let Some(begun) = self.begun.get_mut(position) {
                    begun.until = signed(until);
                    begun.exited = exited;
                }
            }
            Some(None) => {}
            None => self.ended.push((environment, artifact, until, exited)),
        }
    }

    pub(crate) fn begin(&mut self, org: i64, environment: Id, instance: Instance) {
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
            let row = (org, environment, artifact, instance.from, instance.since, until, exited, instance);
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

/// A row of [`RUNS`].
type RunRow = (String, String, String, i64, i64, Option<i64>, Option<i64>);

fn run(row: RunRow) -> StoreResult<Run> {
    let (fingerprint, environment, name, from, from_at, until, until_at) = row;
    let until = until.map(unsigned).transpose()?;
    Ok(Run {
        fingerprint: word(&fingerprint)?,
        environment: id(&environment)?,
        environment_name: word(&name)?,
        from: (unsigned(from)?, Timestamp::from_micros(from_at)),
        until: until.zip(until_at.map(Timestamp::from_micros)),
    })
}

#[async_trait]
impl SnapshotStore for SqliteStore {
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>> {
        let question = self.ask_of(org, SNAPSHOT).bind(environment.to_string());
        let row = question.bind(signed(index)).first::<(i64, Payload)>().await?;
        let Some((revision, payload)) = row else { return Ok(None) };
        let TakenFact { snapshot } = said(payload.text()?)?;
        Ok(Some(Current { revision: unsigned(revision)?, record: snapshot }))
    }

    async fn snapshots(
        &self,
        org: Id,
        environment: Id,
        range: RangeInclusive<u64>,
    ) -> StoreResult<Vec<SnapshotRow>> {
        let question = self.ask_of(org, SNAPSHOTS).bind(environment.to_string());
        let question = question.bind(signed(*range.start())).bind(signed(*range.end()));
        let lines = range.end().saturating_sub(*range.start());
        let question = question.about(usize::try_from(lines).unwrap_or(usize::MAX));
        question.all_as(line).await
    }

    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64> {
        let question = self.ask_of(org, SNAPSHOT_AT).bind(environment.to_string());
        let row = question.bind(at.as_micros()).first::<(i64,)>().await?;
        row.map_or(Ok(0), |(index,)| unsigned(index))
    }

    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<SnapshotInstance>> {
        let question = self.ask_of(org, INSTANCES).bind(environment.to_string());
        let placed = |(json,): (Option<String>,)| {
            let placed = array(json)?.into_iter();
            Ok(placed
                .map(|(instance, exited): (Instance, bool)| SnapshotInstance { instance, exited })
                .collect())
        };
        Ok(question.bind(signed(index)).long().first_as(placed).await?.unwrap_or_default())
    }

    async fn runs(&self, org: Id, fingerprints: &[Fingerprint], newest: u32) -> StoreResult<Vec<Run>> {
        let question = self.ask_of(org, RUNS).bind(once(fingerprints)?).bind(i64::from(newest));
        question.about(fingerprints.len()).all_as(run).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::rows;

    #[test]
    fn what_lasts_is_found_without_what_has_ended() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("../migrations/0001_first.sql")).unwrap();
        let explain = format!("EXPLAIN QUERY PLAN {END_INSTANCES}");
        let steps: Vec<(i64, i64, i64, String)> = rows(&connection, &explain, &[]).unwrap();
        let search =
            steps.into_iter().map(|(.., step)| step).find(|step| step.starts_with("SEARCH instance "));
        let wanted = "SEARCH instance USING COVERING INDEX instance_lasting (environment=? AND artifact=?)";
        assert_eq!(search.as_deref(), Some(wanted));
    }

    #[test]
    fn runs_are_found_without_their_parts() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("../migrations/0001_first.sql")).unwrap();
        let explain = format!("EXPLAIN QUERY PLAN {RUNS}");
        let steps: Vec<(i64, i64, i64, String)> = rows(&connection, &explain, &[]).unwrap();
        let found: Vec<&str> = steps.iter().map(|(.., step)| step.as_str()).collect();
        for (instance, conditions) in [
            ("i", "org=? AND artifact=?"),
            ("i", "org=? AND artifact=? AND environment>?"),
            ("f", "org=? AND artifact=? AND environment=?"),
            ("l", "org=? AND artifact=? AND environment=?"),
        ] {
            let wanted = format!("SEARCH {instance} USING INDEX instance_run ({conditions})");
            assert!(found.contains(&wanted.as_str()), "{wanted}: {found:#?}");
        }
        assert!(found.contains(&"SEARCH i USING INTEGER PRIMARY KEY (rowid=?)"), "{found:#?}");
        // Nothing is walked through but what was found.
        let known = |step: &str| step.starts_with("SCAN p") || step.starts_with("SCAN (subquery");
        let whole = |step: &&&str| step.starts_with("SCAN") && !step.contains("VIRTUAL TABLE");
        let scans: Vec<_> = found.iter().filter(whole).filter(|step| !known(step)).collect();
        assert_eq!(scans, Vec::<&&str>::new(), "{found:#?}");
    }
}
