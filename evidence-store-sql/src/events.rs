//! What happened in environments, by the numbers of the events, and what replaced what there.

use evidence_core::id::Id;
use evidence_core::page::{Page, SortDirection};
use evidence_core::snapshots::{Event, Replaced, Start};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::decode::body;
use crate::snapshots::LASTING;
use crate::sql::Sql;
use crate::value::{Column, Value, signed};

/// The events of these numbers of environments: each tells of an interval that it begins, or of one that it ends.
pub(crate) const NUMBERED: Sql = Sql::each(
    "SELECT i.environment, i.event, i.from_idx, s.at, s.ledger_index, s.compliant, 0, i.state
    FROM json_each($2) w
    CROSS JOIN evidence.instance i
        ON i.environment = w.value->>0 AND i.event = w.value->>1 AND +i.org = $1
    CROSS JOIN evidence.snapshot s ON s.environment = w.value->>0 AND s.idx = i.from_idx AND +s.org = $1
    UNION ALL
    SELECT i.environment, i.exit_event, i.until_idx, s.at, s.ledger_index, s.compliant, 1, i.state
    FROM json_each($2) w
    CROSS JOIN evidence.instance i
        ON i.environment = w.value->>0 AND i.exit_event = w.value->>1 AND +i.org = $1
    CROSS JOIN evidence.snapshot s ON s.environment = w.value->>0 AND s.idx = i.until_idx AND +s.org = $1",
    "SELECT i.environment, i.event, i.from_idx, s.at, s.ledger_index, s.compliant, false, i.state
    FROM UNNEST($2::text[], $3::bigint[]) AS w (environment, number)
    CROSS JOIN LATERAL (
        SELECT * FROM evidence.instance
        WHERE org = $1 AND environment = w.environment AND event = w.number OFFSET 0) i
    CROSS JOIN LATERAL (
        SELECT * FROM evidence.snapshot
        WHERE org = $1 AND environment = w.environment AND idx = i.from_idx OFFSET 0) s
    UNION ALL
    SELECT i.environment, i.exit_event, i.until_idx, s.at, s.ledger_index, s.compliant, true, i.state
    FROM UNNEST($2::text[], $3::bigint[]) AS w (environment, number)
    CROSS JOIN LATERAL (
        SELECT * FROM evidence.instance
        WHERE org = $1 AND environment = w.environment AND exit_event = w.number OFFSET 0) i
    CROSS JOIN LATERAL (
        SELECT * FROM evidence.snapshot
        WHERE org = $1 AND environment = w.environment AND idx = i.until_idx OFFSET 0) s",
);

/// The numbers from `$3` to `$4` of the events about artifacts that reports of the repos `$5` are about: how many there are,
/// and `$7` of them after `$8`, in the order of the numbers times `$6`.
pub(crate) const OF_REPOS: Sql = Sql::each(
    "WITH found (number) AS MATERIALIZED (
        SELECT i.event FROM evidence.instance i
        WHERE i.environment = $2 AND i.event BETWEEN $3 AND $4 AND +i.org = $1 AND EXISTS (
            SELECT 1 FROM evidence.artifact a
            WHERE a.org = $1 AND a.fingerprint = i.artifact AND +a.repo IN (SELECT value FROM json_each($5)))
        UNION ALL
        SELECT i.exit_event FROM evidence.instance i
        WHERE i.environment = $2 AND i.exit_event BETWEEN $3 AND $4 AND +i.org = $1 AND EXISTS (
            SELECT 1 FROM evidence.artifact a
            WHERE a.org = $1 AND a.fingerprint = i.artifact AND +a.repo IN (SELECT value FROM json_each($5))))
    SELECT (SELECT count(*) FROM found), p.number FROM (SELECT 1) AS one
    LEFT JOIN (SELECT number FROM found ORDER BY number * $6 LIMIT $7 OFFSET $8) p ON true",
    "WITH found (number) AS MATERIALIZED (
        SELECT i.event FROM evidence.instance i
        WHERE i.org = $1 AND i.environment = $2 AND i.event BETWEEN $3 AND $4 AND EXISTS (
            SELECT 1 FROM evidence.artifact a
            WHERE a.org = $1 AND a.fingerprint = i.artifact
                AND a.repo IN (SELECT v.value FROM UNNEST($5::text[]) AS v (value)) OFFSET 0)
        UNION ALL
        SELECT i.exit_event FROM evidence.instance i
        WHERE i.org = $1 AND i.environment = $2 AND i.exit_event BETWEEN $3 AND $4 AND EXISTS (
            SELECT 1 FROM evidence.artifact a
            WHERE a.org = $1 AND a.fingerprint = i.artifact
                AND a.repo IN (SELECT v.value FROM UNNEST($5::text[]) AS v (value)) OFFSET 0))
    SELECT (SELECT count(*) FROM found), p.number FROM (SELECT 1) AS one
    LEFT JOIN (SELECT number FROM found ORDER BY number * $6 LIMIT $7 OFFSET $8) p ON true",
);

/// Of each start, what began last before it under the same name, and that as it ran last, without its context, which may be
/// long and is the same for many starts.
pub(crate) const REPLACED: Sql = Sql::each(
    "SELECT w.key, o.report, i.until_idx, json_remove(i.state, '$.context')
    FROM json_each($3) w
    CROSS JOIN evidence.run_origin o
        ON o.environment = $2 AND o.flow = w.value->>0 AND o.reference = w.value->>1 AND +o.org = $1
        AND (o.since_idx, o.artifact) = (
            SELECT p.since_idx, p.artifact FROM evidence.run_origin p
            WHERE p.environment = $2 AND p.flow = w.value->>0 AND p.reference = w.value->>1
                AND p.since_idx < w.value->>2 AND p.artifact <> w.value->>3 AND +p.org = $1
            ORDER BY p.since_idx DESC, p.artifact DESC LIMIT 1)
    CROSS JOIN evidence.instance i
        ON i.org = $1 AND i.artifact = o.artifact AND i.environment = $2 AND i.since_idx = o.since_idx
        AND (i.exited OR i.until_idx = 9223372036854775807)",
    "SELECT w.place - 1, o.report, i.until_idx, (i.state::jsonb - 'context')::text
    FROM UNNEST($3::text[], $4::text[], $5::bigint[], $6::text[])
        WITH ORDINALITY AS w (flow, reference, since, artifact, place)
    CROSS JOIN LATERAL (
        SELECT p.since_idx, p.artifact, p.report FROM evidence.run_origin p
        WHERE p.org = $1 AND p.environment = $2 AND p.flow = w.flow AND p.reference = w.reference
            AND p.since_idx < w.since AND p.artifact <> w.artifact
        ORDER BY p.since_idx DESC, p.artifact DESC LIMIT 1) o
    CROSS JOIN LATERAL (
        SELECT * FROM evidence.instance
        WHERE org = $1 AND artifact = o.artifact AND environment = $2 AND since_idx = o.since_idx
            AND (exited OR until_idx = 9223372036854775807) OFFSET 0) i",
);

/// A row of [`NUMBERED`].
pub(crate) type EventRow = (Id, u64, u64, Timestamp, u64, bool, bool, String);

pub(crate) fn event(
    (environment, number, index, at, revision, compliant, exited, state): EventRow,
) -> StoreResult<Event> {
    let (snapshot, instance) = ((index, at), body(&state)?);
    Ok(Event { environment, number, snapshot, revision, compliant, instance, exited })
}

/// What the rows of [`OF_REPOS`] say.
pub(crate) fn page(rows: Vec<(u64, Option<u64>)>, direction: SortDirection) -> Page<u64> {
    let total = rows.first().map_or(0, |(total, _)| *total);
    let mut items = Vec::from_iter(rows.into_iter().filter_map(|(_, number)| number));
    items.sort_unstable();
    if direction == SortDirection::Desc {
        items.reverse();
    }
    Page { items, total }
}

/// What [`REPLACED`] is asked about.
pub(crate) fn columns(starts: &[Start]) -> Value {
    let texts = |text: fn(&Start) -> String| Column::Texts(starts.iter().map(text).map(Some).collect());
    let since = starts.iter().map(|start| Some(signed(start.since)));
    Value::Columns(vec![
        texts(|start| start.flow.to_string()),
        texts(|start| start.reference.clone()),
        Column::Ints(since.collect()),
        texts(|start| start.artifact.to_string()),
    ])
}

/// A row of [`REPLACED`].
pub(crate) type ReplacedRow = (u64, Id, u64, String);

pub(crate) fn replaced((place, report, until, state): ReplacedRow) -> StoreResult<Replaced> {
    let until = (signed(until) != LASTING).then_some(until);
    Ok(Replaced { place, report, instance: body(&state)?, until })
}
