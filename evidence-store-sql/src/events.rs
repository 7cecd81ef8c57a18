//! Events in environments by their numbers, and the runs that a start replaced.

use evidence_core::id::Id;
use evidence_core::page::{Page, SortDirection};
use evidence_core::snapshots::{ArtifactKey, Event, EventSize, Replaced, Start};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::decode::body;
use crate::instances::{StoredInstance, instance_json};
use crate::snapshots::LASTING;
use crate::sql::{Sql, id_text};
use crate::value::{Column, Value, signed};

/// Selects the events `w` of environments. Each event is an interval `i` that begins or ends with the
/// snapshot `s`.
macro_rules! numbered {
    (sqlite, $begins:expr, $ends:expr) => {
        concat!(
            "SELECT ",
            $begins,
            " FROM json_each($2) w
            CROSS JOIN evidence.instance i
                ON i.environment = w.value->>0 AND i.event = w.value->>1 AND +i.org = $1
            CROSS JOIN evidence.snapshot s ON s.environment = w.value->>0 AND s.idx = i.from_idx AND +s.org = $1
            UNION ALL
            SELECT ",
            $ends,
            " FROM json_each($2) w
            CROSS JOIN evidence.instance i
                ON i.environment = w.value->>0 AND i.exit_event = w.value->>1 AND +i.org = $1
            CROSS JOIN evidence.snapshot s ON s.environment = w.value->>0 AND s.idx = i.until_idx AND +s.org = $1"
        )
    };
    (postgres, $begins:expr, $ends:expr) => {
        concat!(
            "SELECT ",
            $begins,
            " FROM UNNEST($2::bytea[], $3::bigint[]) AS w (environment, number)
            CROSS JOIN LATERAL (
                SELECT * FROM evidence.instance
                WHERE org = $1 AND environment = w.environment AND event = w.number OFFSET 0) i
            CROSS JOIN LATERAL (
                SELECT * FROM evidence.snapshot
                WHERE org = $1 AND environment = w.environment AND idx = i.from_idx OFFSET 0) s
            UNION ALL
            SELECT ",
            $ends,
            " FROM UNNEST($2::bytea[], $3::bigint[]) AS w (environment, number)
            CROSS JOIN LATERAL (
                SELECT * FROM evidence.instance
                WHERE org = $1 AND environment = w.environment AND exit_event = w.number OFFSET 0) i
            CROSS JOIN LATERAL (
                SELECT * FROM evidence.snapshot
                WHERE org = $1 AND environment = w.environment AND idx = i.until_idx OFFSET 0) s"
        )
    };
}

/// Selects events by environment and number.
pub(crate) const NUMBERED: Sql = Sql::per_dialect(
    numbered!(
        sqlite,
        concat!(
            "i.environment, i.event, i.from_idx, s.at, s.ledger_index, s.compliant, 0, ",
            instance_json!("i")
        ),
        concat!(
            "i.environment, i.exit_event, i.until_idx, s.at, s.ledger_index, s.compliant, 1, ",
            instance_json!("i")
        )
    ),
    numbered!(
        postgres,
        concat!(
            "i.environment, i.event, i.from_idx, s.at, s.ledger_index, s.compliant, false, ",
            instance_json!("i")
        ),
        concat!(
            "i.environment, i.exit_event, i.until_idx, s.at, s.ledger_index, s.compliant, true, ",
            instance_json!("i")
        )
    ),
);

/// Selects the sizes of events. Neither database reads a text to compute its size.
pub(crate) const SIZES: Sql = Sql::per_dialect(
    numbered!(
        sqlite,
        "i.environment, i.event, s.ledger_index, octet_length(i.artifact) + octet_length(i.state)",
        "i.environment, i.exit_event, s.ledger_index, octet_length(i.artifact) + octet_length(i.state)"
    ),
    numbered!(
        postgres,
        "i.environment, i.event, s.ledger_index, (octet_length(i.artifact) + octet_length(i.state))::bigint",
        "i.environment, i.exit_event, s.ledger_index, (octet_length(i.artifact) + octet_length(i.state))::bigint"
    ),
);

/// Selects events about artifacts whose newest report in a flow names one of the repos `$5`. The events have
/// the numbers `$3` to `$4`. The result is the total, and `$7` events after `$8` in the order of their
/// numbers times `$6`. The query finds the flows of each artifact one by one, and the newest report in each.
/// Its cost does not depend on the number of reports, nor on the number of events of an artifact.
pub(crate) const OF_REPOS: Sql = Sql::per_dialect(
    "WITH RECURSIVE about (artifact) AS MATERIALIZED (
        SELECT i.artifact FROM evidence.instance i
        WHERE i.environment = $2 AND i.event BETWEEN $3 AND $4 AND +i.org = $1
        UNION
        SELECT i.artifact FROM evidence.instance i
        WHERE i.environment = $2 AND i.exit_event BETWEEN $3 AND $4 AND +i.org = $1),
    pair (artifact, flow) AS (
        SELECT t.artifact, (
            SELECT min(f.flow) FROM evidence.artifact f WHERE f.org = $1 AND f.fingerprint = t.artifact)
        FROM about t
        UNION ALL
        SELECT p.artifact, (
            SELECT min(n.flow) FROM evidence.artifact n
            WHERE n.org = $1 AND n.fingerprint = p.artifact AND n.flow > p.flow)
        FROM pair p WHERE p.flow IS NOT NULL),
    of_repos (artifact) AS MATERIALIZED (
        SELECT DISTINCT p.artifact FROM pair p CROSS JOIN evidence.artifact a ON a.id = (
            SELECT r.id FROM evidence.artifact r
            WHERE r.org = $1 AND r.fingerprint = p.artifact AND r.flow = p.flow
            ORDER BY (r.trail IS NOT NULL) DESC, r.ledger_index DESC LIMIT 1)
        WHERE +a.repo IN (SELECT value FROM json_each($5))),
    found (number) AS MATERIALIZED (
        SELECT i.event FROM of_repos o
        CROSS JOIN evidence.instance i ON i.environment = $2 AND i.artifact = o.artifact AND +i.org = $1
        WHERE +i.event BETWEEN $3 AND $4
        UNION ALL
        SELECT i.exit_event FROM of_repos o
        CROSS JOIN evidence.instance i ON i.environment = $2 AND i.artifact = o.artifact AND +i.org = $1
        WHERE +i.exit_event BETWEEN $3 AND $4)
    SELECT (SELECT count(*) FROM found), p.number FROM (SELECT 1) AS one
    LEFT JOIN (SELECT number FROM found ORDER BY number * $6 LIMIT $7 OFFSET $8) p ON true",
    "WITH RECURSIVE about AS MATERIALIZED (
        SELECT i.artifact FROM evidence.instance i
        WHERE i.org = $1 AND i.environment = $2 AND i.event BETWEEN $3 AND $4
        UNION
        SELECT i.artifact FROM evidence.instance i
        WHERE i.org = $1 AND i.environment = $2 AND i.exit_event BETWEEN $3 AND $4),
    pair AS (
        SELECT t.artifact, (
            SELECT f.flow || '' FROM evidence.artifact f
            WHERE f.org = $1 AND f.fingerprint = t.artifact ORDER BY f.flow || '' LIMIT 1) AS flow
        FROM about t
        UNION ALL
        SELECT p.artifact, (
            SELECT n.flow || '' FROM evidence.artifact n
            WHERE n.org = $1 AND n.fingerprint = p.artifact AND n.flow || '' > p.flow
            ORDER BY n.flow || '' LIMIT 1)
        FROM pair p WHERE p.flow IS NOT NULL),
    of_repos AS MATERIALIZED (
        SELECT DISTINCT p.artifact FROM pair p CROSS JOIN LATERAL (
            SELECT * FROM evidence.artifact r
            WHERE r.org = $1 AND r.fingerprint = p.artifact AND r.flow || '' = p.flow
            ORDER BY (r.trail IS NOT NULL) DESC, r.ledger_index DESC LIMIT 1) a
        WHERE a.repo IN (SELECT v.value FROM UNNEST($5::text[]) AS v (value))),
    found (number) AS MATERIALIZED (
        SELECT i.event FROM of_repos o CROSS JOIN LATERAL (
            SELECT event FROM evidence.instance
            WHERE org = $1 AND environment = $2 AND artifact = o.artifact OFFSET 0) i
        WHERE i.event BETWEEN $3 AND $4
        UNION ALL
        SELECT i.exit_event FROM of_repos o CROSS JOIN LATERAL (
            SELECT exit_event FROM evidence.instance
            WHERE org = $1 AND environment = $2 AND artifact = o.artifact OFFSET 0) i
        WHERE i.exit_event BETWEEN $3 AND $4)
    SELECT (SELECT count(*) FROM found), p.number FROM (SELECT 1) AS one
    LEFT JOIN (SELECT number FROM found ORDER BY number * $6 LIMIT $7 OFFSET $8) p ON true",
);

/// Selects the columns of a run `o` whose last interval is `i`.
macro_rules! as_it_ran_last {
    (sqlite) => {
        "SELECT w.key, o.report, i.until_idx, json_array(i.artifact, json(i.state->'$[0]'), json((
            SELECT v.value->'$[1]' FROM json_each(i.state, '$[5]') v
            WHERE v.value->>'$[0]' = o.report LIMIT 1)))"
    };
    (postgres) => {
        concat!(
            "SELECT w.place - 1, o.report, i.until_idx, json_build_array(i.artifact, i.state::json->0, (
                SELECT v.value->1 FROM json_array_elements(i.state::json->5) v
                WHERE v.value->>0 = ",
            id_text!("o.report"),
            " LIMIT 1))::text"
        )
    };
}

/// Selects the run that began last before a start `w`, in its last state. It considers the newest `$2` runs
/// that satisfy a condition, in the order of an index.
macro_rules! replaced {
    (sqlite, $named:literal) => {
        concat!(
            as_it_ran_last!(sqlite),
            " FROM json_each($3) w
            CROSS JOIN evidence.run_origin o
                ON o.environment = w.value->>0 AND o.flow = w.value->>1 AND +o.org = $1
                AND (o.reference, o.since_idx, o.artifact) = (
                    SELECT q.reference, q.since_idx, q.artifact FROM (
                        SELECT p.reference, p.since_idx, p.artifact FROM evidence.run_origin p
                        WHERE p.environment = w.value->>0 AND p.flow = w.value->>1 AND ",
            $named,
            " AND p.since_idx < w.value->>3 AND +p.org = $1
                        ORDER BY p.since_idx DESC, p.artifact DESC, p.reference DESC LIMIT $2) q
                    WHERE q.artifact <> w.value->>4 LIMIT 1)
            CROSS JOIN evidence.instance i
                ON i.org = $1 AND i.artifact = o.artifact AND i.environment = o.environment AND i.since_idx = o.since_idx
                AND (i.exited OR i.until_idx = 9223372036854775807)"
        )
    };
    (postgres, $named:literal) => {
        concat!(
            as_it_ran_last!(postgres),
            " FROM UNNEST($3::bytea[], $4::bytea[], $5::text[], $6::bigint[], $7::text[])
                WITH ORDINALITY AS w (environment, flow, reference, since, artifact, place)
            CROSS JOIN LATERAL (
                SELECT * FROM (
                    SELECT p.reference, p.since_idx, p.artifact, p.report FROM evidence.run_origin p
                    WHERE p.org = $1 AND p.environment = w.environment AND p.flow = w.flow AND ",
            $named,
            " AND p.since_idx < w.since
                    ORDER BY p.since_idx DESC, p.artifact DESC, p.reference DESC LIMIT $2) q
                WHERE q.artifact <> w.artifact
                ORDER BY q.since_idx DESC, q.artifact DESC, q.reference DESC LIMIT 1) o
            CROSS JOIN LATERAL (
                SELECT * FROM evidence.instance
                WHERE org = $1 AND artifact = o.artifact AND environment = w.environment AND since_idx = o.since_idx
                    AND (exited OR until_idx = 9223372036854775807) OFFSET 0) i"
        )
    };
}

/// Selects for each start the run that began last before it: under the same name, or under any name if the
/// start has none.
pub(crate) const REPLACED: Sql = Sql::per_dialect(
    concat!(
        replaced!(sqlite, "p.reference = w.value->>2 AND w.value->>2 <> ''"),
        " UNION ALL ",
        replaced!(sqlite, "w.value->>2 = ''")
    ),
    concat!(
        replaced!(postgres, "p.reference = w.reference AND w.reference <> ''"),
        " UNION ALL ",
        replaced!(postgres, "w.reference = ''")
    ),
);

/// A row of [`NUMBERED`].
pub(crate) type EventRow = (Id, u64, u64, Timestamp, u64, bool, bool, String);

pub(crate) fn event(
    (environment, number, index, at, revision, compliant, exited, running): EventRow,
) -> StoreResult<Event> {
    let (snapshot, instance) = ((index, at), body::<StoredInstance>(&running)?.into());
    Ok(Event { environment, number, snapshot, revision, compliant, instance, exited })
}

/// Decodes a row of [`SIZES`].
pub(crate) const fn size(
    (environment, number, revision, bytes): (Id, u64, u64, u64),
) -> StoreResult<EventSize> {
    Ok(EventSize { environment, number, revision, bytes })
}

/// Decodes the rows of [`OF_REPOS`].
pub(crate) fn page(rows: Vec<(u64, Option<u64>)>, direction: SortDirection) -> Page<u64> {
    let total = rows.first().map_or(0, |(total, _)| *total);
    let mut items = Vec::from_iter(rows.into_iter().filter_map(|(_, number)| number));
    items.sort_unstable();
    if direction == SortDirection::Desc {
        items.reverse();
    }
    Page { items, total }
}

/// Converts starts to the input columns of [`REPLACED`].
pub(crate) fn columns(starts: &[Start]) -> Value {
    let ids = |id: fn(&Start) -> Id| Column::Ids(starts.iter().map(id).map(Some).collect());
    let texts = |text: fn(&Start) -> String| Column::Texts(starts.iter().map(text).map(Some).collect());
    let since = starts.iter().map(|start| Some(signed(start.since)));
    Value::Columns(vec![
        ids(|start| start.environment),
        ids(|start| start.flow),
        texts(|start| start.reference.clone()),
        Column::Ints(since.collect()),
        texts(|start| start.artifact.to_string()),
    ])
}

/// A row of [`REPLACED`].
pub(crate) type ReplacedRow = (u64, Id, u64, String);

pub(crate) fn replaced((place, report, until, told): ReplacedRow) -> StoreResult<Replaced> {
    let until = (signed(until) != LASTING).then_some(until);
    let (artifact, name, state): (ArtifactKey, _, _) = body(&told)?;
    Ok(Replaced { place, report, fingerprint: artifact.fingerprint(), name, state, until })
}
