//! Artifact reports: the only table that is indexed by digest.

use std::collections::BTreeSet;

use async_trait::async_trait;
use evidence_core::StoreError;
use evidence_core::artifacts::{
    Artifact, ArtifactFilter, ArtifactPage, ArtifactQuery, ArtifactRow, ArtifactStore, ArtifactWithRuns,
    Found, GivenName, Matches, Origin, Unreported,
};
use evidence_core::flows::Flow;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::snapshots::RunningArtifact;
use evidence_core::store::StoreResult;
use evidence_core::texts::TextRef;
use evidence_core::time::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::decode::{Payload, array, listed_record, nested, record, text, word};
use crate::driver::Driver;
use crate::instances::{StoredInstance, instance_json};
use crate::listing::{Listing, Order, decode_size};
use crate::snapshots::{ran_in, runs, runs_json};
use crate::sql::{Sql, for_each, payload, payload_size};
use crate::store::SqlStore;
use crate::trails::{version, version_columns};
use crate::value::{Column, Value, texts};

/// The JSON of a row `a` that [`Row`] deserializes.
macro_rules! row_json {
    (sqlite) => {
        "json_array(a.id, a.flow, a.trail, a.fingerprint, a.name, a.commit_sha, a.repo, a.committed_at, a.template,
            a.at, a.ledger_index)"
    };
    (postgres) => {
        "json_build_array(a.id, a.flow, a.trail, a.fingerprint, a.name, a.commit_sha, a.repo,
            a.committed_at, a.template, a.at, a.ledger_index)::text"
    };
}
pub(crate) use row_json;

/// The columns that compliance depends on.
#[derive(Deserialize)]
pub(crate) struct Row(
    Id,
    Id,
    Option<Id>,
    Fingerprint,
    String,
    String,
    Option<Id>,
    Option<Timestamp>,
    #[serde(deserialize_with = "nested")] Option<TextRef>,
    Timestamp,
    u64,
);

impl Row {
    /// The position of the trail in a row.
    pub(crate) const TRAIL: usize = 2;

    pub(crate) fn artifact(self) -> ArtifactRow {
        let Self(id, flow, trail, fingerprint, name, commit, repo, committed_at, template, at, index) = self;
        ArtifactRow {
            id,
            flow,
            trail,
            fingerprint,
            template_reference_name: name,
            commit,
            repo,
            committed_at,
            template,
            at,
            index,
        }
    }
}

/// The condition that the commit of a row `x` is a full hash.
macro_rules! in_full {
    (sqlite) => {
        " AND length(x.commit_sha) = 40 AND x.commit_sha NOT GLOB '*[^0-9a-f]*'"
    };
    (postgres) => {
        " AND x.commit_sha ~ '^[0-9a-f]{40}$'"
    };
}

/// Hex digits sort before 'g', so this range is the prefix, and the index is used.
macro_rules! commit_begins {
    () => {
        " AND x.commit_sha >= $8 AND x.commit_sha < $8 || 'g'"
    };
}

const ARTIFACTS: Sql = Sql::portable("evidence.artifact x WHERE x.org = $1");
/// For conditions with an index of their own. In SQLite such an index does not begin with the organization;
/// the plus prevents a scan of the whole organization.
const NARROWED: Sql =
    Sql::per_dialect("evidence.artifact x WHERE +x.org = $1", "evidence.artifact x WHERE x.org = $1");
const OF_FLOW: Sql = Sql::portable(" AND x.flow = $4");
/// For use next to a digest condition. In PostgreSQL, an index that begins with the flow, or that has the
/// list's order, would otherwise be scanned completely.
const IN_FLOW: Sql = Sql::per_dialect(" AND x.flow = $4", " AND x.flow || '' = $4");
const OF_TRAIL: Sql = Sql::portable(" AND x.trail = $5");
/// The plus excludes the name from the choice of an index, so the index of the other condition is used.
const NAMED: Sql = Sql::per_dialect(" AND +x.name = $11", " AND x.name = $11");
const OF_ID: Sql = Sql::portable(" AND x.id = $6");
/// A range, like the one for commits.
const FINGERPRINT_BEGINS: Sql = Sql::portable(" AND x.fingerprint >= $7 AND x.fingerprint < $7 || 'g'");
/// Matches full hashes only. Reports may also name commits in other forms.
const COMMIT_BEGINS: Sql = Sql::per_dialect(
    concat!(commit_begins!(), in_full!(sqlite)),
    concat!(commit_begins!(), in_full!(postgres)),
);
const ON_BRANCH: Sql = Sql::portable(" AND x.branch = $9");
const FROM_REPOS: Sql =
    Sql::per_dialect(" AND x.repo IN (SELECT value FROM json_each($10))", " AND x.repo = ANY($10)");
const WITH_COMMIT: Sql = Sql::per_dialect(in_full!(sqlite), in_full!(postgres));

/// Returns the rows in any order, like the queries below: sorting a few rows would need a temporary table in
/// SQLite.
const REPORTS: Sql = Sql::per_dialect(
    concat!(
        "SELECT '[' || group_concat(",
        row_json!(sqlite),
        ") || ']' FROM evidence.artifact a WHERE a.org = $1 AND a.flow = $2 AND a.fingerprint = $3"
    ),
    concat!(
        "SELECT '[' || string_agg(",
        row_json!(postgres),
        ", ',') || ']' FROM evidence.artifact a WHERE a.org = $1 AND a.flow || '' = $2 AND a.fingerprint = $3"
    ),
);

/// Selects the flow of the name `$2`, the newest report of the fingerprint `$3` to it, to the trail of the name
/// `$4` and with the id `$5` if these are given, the runs of that content: the first and the newest `$6`, or
/// none if that is null, and the version of the report's trail. Without the flow, there is no row.
macro_rules! of_flow {
    ($dialect:ident, $flow:literal, $reports:literal, $trail:literal) => {
        concat!(
            "WITH RECURSIVE flow AS MATERIALIZED (",
            $flow,
            "),
            found AS MATERIALIZED (
                SELECT x.fingerprint, x.trail, x.ledger_index FROM flow g CROSS JOIN ",
            $reports,
            "), ",
            ran_in!("(SELECT fingerprint AS artifact FROM found WHERE $6 IS NOT NULL) a"),
            "
            SELECT g.ledger_index, ",
            payload!("g"),
            ", z.ledger_index, ",
            payload!("z"),
            ", ",
            runs_json!($dialect, "coalesce($6, 0)"),
            ", ",
            version_columns!($dialect, "t"),
            " FROM flow g LEFT JOIN found z ON true LEFT JOIN ",
            $trail
        )
    };
}

const OF_FLOW_WITH_RUNS: Sql = Sql::per_dialect(
    of_flow!(
        sqlite,
        "SELECT r.id, r.ledger_index FROM evidence.name n
        CROSS JOIN evidence.record r ON r.org = $1 AND r.kind = 'flow' AND r.id = n.id
        WHERE n.org = $1 AND n.kind = 'flow' AND n.name = $2",
        "evidence.artifact x ON x.org = $1 AND x.fingerprint = $3 AND x.flow = g.id
        WHERE ($4 IS NULL OR x.trail = (
                SELECT t.id FROM evidence.trail t WHERE t.flow = g.id AND t.name = $4 AND +t.org = $1))
            AND ($5 IS NULL OR x.id = $5)
        ORDER BY x.ledger_index + 0 DESC LIMIT 1",
        "evidence.trail t ON t.org = $1 AND t.id = z.trail"
    ),
    of_flow!(
        postgres,
        "SELECT r.id, r.ledger_index FROM evidence.name n
        CROSS JOIN LATERAL (
            SELECT * FROM evidence.record WHERE org = $1 AND id = n.id AND kind = 'flow' OFFSET 0) r
        WHERE n.org = $1 AND n.kind = 'flow' AND n.name = $2",
        "LATERAL (
            SELECT * FROM evidence.artifact a
            WHERE a.org = $1 AND a.fingerprint = $3 AND a.flow || '' = g.id
                AND ($4 IS NULL OR a.trail = (
                    SELECT t.id FROM evidence.trail t WHERE t.org = $1 AND t.flow = g.id AND t.name = $4))
                AND ($5 IS NULL OR a.id = $5)
            ORDER BY a.ledger_index + 0 DESC LIMIT 1) x",
        "LATERAL (SELECT * FROM evidence.trail WHERE org = $1 AND id = z.trail OFFSET 0) t ON true"
    ),
);

/// A row of [`OF_FLOW_WITH_RUNS`].
type OfFlow = (u64, Payload, Option<u64>, Payload, Option<String>, Option<Id>, Option<i64>, u64, u64);

fn of_flow(
    (_, flow, report, artifact, ran, trail, revision, bytes, reports): OfFlow,
) -> StoreResult<(Flow, Option<ArtifactWithRuns>)> {
    let found = match report {
        Some(_) => {
            let version =
                trail.zip(revision).map(|(trail, revision)| version((trail, revision, bytes, reports)));
            Some(ArtifactWithRuns { artifact: record(artifact.text()?)?, version, runs: runs(ran)? })
        }
        None => None,
    };
    Ok((record(flow.text()?)?, found))
}

/// The most reports of a page that has the content of small reports.
const SHORT_PAGE: u64 = 64;

/// Selects the id and the payload size of each report, and its payload if it is small. At most a megabyte comes
/// with a short page.
const SIZE_AND_SMALL_PAYLOAD: Sql = Sql::portable(
    "x.id || ' ' || coalesce((
        SELECT octet_length(l.payload)
            || CASE WHEN octet_length(l.payload) <= 16384 THEN ' ' || l.payload ELSE '' END
        FROM evidence.ledger l WHERE l.org = $1 AND l.idx = x.ledger_index), '0')",
);

/// Decodes the [`SIZE_AND_SMALL_PAYLOAD`] values of a page. A payload that cannot be decoded is left out, and
/// fails when it is read by its id.
fn sizes_and_content(_: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<(Listed, Option<Artifact>)>> {
    let one = |(_, column): (i64, Payload)| {
        let column = column.bytes().unwrap_or_default();
        let end = column.iter().enumerate().filter(|(_, byte)| **byte == b' ').map(|(place, _)| place).nth(1);
        let (listed, payload) = column.split_at(end.unwrap_or(column.len()));
        let content = text(payload).and_then(|payload| record(payload.trim_start())).ok();
        Ok((decode_size(text(listed)?)?, content.filter(|_| end.is_some())))
    };
    page.into_iter().map(one).collect()
}

const BY_ID: Sql = for_each!(["a.ledger_index, ", payload!("a")], "artifact", "id", "a", "");

const SIZES: Sql = for_each!(["a.id, ", payload_size!("a")], "artifact", "id", "a", "");

/// The expression excludes the indexes on flows, so that the index on digests is used, which covers all
/// columns.
const FINGERPRINTS: Sql = Sql::portable(
    "WITH found AS MATERIALIZED (
        SELECT DISTINCT fingerprint FROM evidence.artifact
        WHERE org = $1 AND flow || '' = $2 AND fingerprint >= $3 AND fingerprint < $3 || 'g')
    SELECT (SELECT count(*) FROM found), f.fingerprint
    FROM (SELECT 1) AS one LEFT JOIN (SELECT fingerprint FROM found ORDER BY fingerprint LIMIT $4) f ON true
    ORDER BY f.fingerprint",
);

/// The flow of a row, in the form of the indexes that begin with digests or commits.
macro_rules! flow {
    (sqlite, $row:literal) => {
        concat!($row, ".flow")
    };
    (postgres, $row:literal) => {
        concat!($row, ".flow || ''")
    };
}

/// Joins the newest report `r` that satisfies a condition, as `a`.
macro_rules! newest {
    (sqlite, $fits:expr) => {
        concat!(
            "CROSS JOIN evidence.artifact a ON a.id = (
                SELECT r.id FROM evidence.artifact r WHERE r.org = $1 AND ",
            $fits,
            " ORDER BY r.ledger_index DESC LIMIT 1)"
        )
    };
    (postgres, $fits:expr) => {
        concat!(
            "CROSS JOIN LATERAL (
                SELECT * FROM evidence.artifact r WHERE r.org = $1 AND ",
            $fits,
            " ORDER BY r.ledger_index DESC LIMIT 1) a"
        )
    };
}

/// A relation of the distinct values of a column that begin with `$2`. Each is found from the previous one;
/// the last row is null.
macro_rules! values_of {
    ($name:literal, $table:literal, $column:literal, $condition:literal) => {
        concat!(
            $name,
            " (value) AS (
                SELECT (
                    SELECT f.",
            $column,
            " FROM evidence.",
            $table,
            " f WHERE f.org = $1 AND f.",
            $column,
            " >= $2 AND f.",
            $column,
            " < $2 || 'g'",
            $condition,
            " ORDER BY f.",
            $column,
            " LIMIT 1)
                UNION ALL
                SELECT (
                    SELECT f.",
            $column,
            " FROM evidence.",
            $table,
            " f WHERE f.org = $1 AND f.",
            $column,
            " > w.value AND f.",
            $column,
            " < $2 || 'g'",
            $condition,
            " ORDER BY f.",
            $column,
            " LIMIT 1)
                FROM ",
            $name,
            " w WHERE w.value IS NOT NULL)"
        )
    };
}

/// The text of [`SEARCH`] for each database. For each value that begins with the prefix, it finds the flows
/// one by one, and the newest report in each, as in [`PROVENANCE`]. Indexes have the rows in this order.
macro_rules! search {
    ($dialect:ident) => {
        concat!(
            "WITH RECURSIVE ",
            values_of!("reported", "artifact", "fingerprint", ""),
            ", ",
            values_of!(
                "ran",
                "instance",
                "artifact",
                " AND (f.exited OR f.until_idx = 9223372036854775807)"
            ),
            ", ",
            values_of!("written", "artifact", "commit_sha", " AND f.commit_sha <> ''"),
            ",
            fingerprint AS MATERIALIZED (
                SELECT value FROM reported WHERE value IS NOT NULL
                UNION SELECT value FROM ran WHERE value IS NOT NULL),
            built AS MATERIALIZED (
                SELECT x.commit_sha AS value FROM (SELECT value AS commit_sha FROM written) x
                WHERE x.commit_sha IS NOT NULL",
            in_full!($dialect),
            "),
            content (commit_sha, fingerprint) AS (
                SELECT b.value, (
                    SELECT f.fingerprint FROM evidence.artifact f
                    WHERE f.org = $1 AND f.commit_sha = b.value AND f.commit_sha <> ''
                    ORDER BY f.fingerprint LIMIT 1)
                FROM built b
                UNION ALL
                SELECT c.commit_sha, (
                    SELECT f.fingerprint FROM evidence.artifact f
                    WHERE f.org = $1 AND f.commit_sha = c.commit_sha AND f.commit_sha <> ''
                        AND f.fingerprint > c.fingerprint
                    ORDER BY f.fingerprint LIMIT 1)
                FROM content c WHERE c.fingerprint IS NOT NULL),
            of_commit (commit_sha, fingerprint, flow) AS (
                SELECT c.commit_sha, c.fingerprint, (
                    SELECT ",
            flow!($dialect, "f"),
            " FROM evidence.artifact f
                    WHERE f.org = $1 AND f.commit_sha = c.commit_sha AND f.commit_sha <> ''
                        AND f.fingerprint = c.fingerprint
                    ORDER BY ",
            flow!($dialect, "f"),
            " LIMIT 1)
                FROM content c WHERE c.fingerprint IS NOT NULL
                UNION ALL
                SELECT p.commit_sha, p.fingerprint, (
                    SELECT ",
            flow!($dialect, "f"),
            " FROM evidence.artifact f
                    WHERE f.org = $1 AND f.commit_sha = p.commit_sha AND f.commit_sha <> ''
                        AND f.fingerprint = p.fingerprint AND ",
            flow!($dialect, "f"),
            " > p.flow
                    ORDER BY ",
            flow!($dialect, "f"),
            " LIMIT 1)
                FROM of_commit p WHERE p.flow IS NOT NULL),
            of_fingerprint (fingerprint, flow) AS (
                SELECT w.value, (
                    SELECT ",
            flow!($dialect, "f"),
            " FROM evidence.artifact f WHERE f.org = $1 AND f.fingerprint = w.value
                    ORDER BY ",
            flow!($dialect, "f"),
            " LIMIT 1)
                FROM reported w WHERE w.value IS NOT NULL
                UNION ALL
                SELECT p.fingerprint, (
                    SELECT ",
            flow!($dialect, "f"),
            " FROM evidence.artifact f
                    WHERE f.org = $1 AND f.fingerprint = p.fingerprint AND ",
            flow!($dialect, "f"),
            " > p.flow
                    ORDER BY ",
            flow!($dialect, "f"),
            " LIMIT 1)
                FROM of_fingerprint p WHERE p.flow IS NOT NULL),
            report AS MATERIALIZED (
                SELECT ranked.id, ranked.ledger_index FROM (
                    SELECT m.id, m.ledger_index, row_number() OVER (
                        PARTITION BY m.fingerprint, m.flow ORDER BY m.ledger_index DESC) AS place
                    FROM (
                        SELECT a.id, a.fingerprint, a.flow, a.ledger_index
                        FROM of_fingerprint p CROSS JOIN (SELECT true AS on_trail UNION ALL SELECT false) t ",
            newest!(
                $dialect,
                concat!(
                    "r.fingerprint = p.fingerprint AND ",
                    flow!($dialect, "r"),
                    " = p.flow AND (r.trail IS NOT NULL) = t.on_trail"
                )
            ),
            " UNION ALL
                        SELECT a.id, a.fingerprint, a.flow, a.ledger_index FROM of_commit p ",
            newest!(
                $dialect,
                concat!(
                    "r.commit_sha = p.commit_sha AND r.commit_sha <> '' AND r.fingerprint = p.fingerprint AND ",
                    flow!($dialect, "r"),
                    " = p.flow"
                )
            ),
            ") m) ranked
                WHERE ranked.place = 1 ORDER BY ranked.ledger_index DESC LIMIT $3),
            unreported AS MATERIALIZED (
                SELECT w.value FROM (
                    SELECT value FROM ran WHERE value IS NOT NULL EXCEPT SELECT value FROM reported) w
                ORDER BY w.value LIMIT $3)
            SELECT (SELECT count(*) FROM fingerprint),
                (SELECT string_agg(w.value, ' ' ORDER BY w.value)
                    FROM (SELECT value FROM fingerprint ORDER BY value LIMIT $3) w),
                (SELECT count(*) FROM built),
                (SELECT string_agg(w.value, ' ' ORDER BY w.value)
                    FROM (SELECT value FROM built ORDER BY value LIMIT $3) w),
                (SELECT string_agg(newest.id || ' ' || ",
            payload_size!("newest"),
            ", ',' ORDER BY newest.ledger_index DESC) FROM report newest),
                (SELECT '[' || string_agg((
                        SELECT ",
            instance_json!("i"),
            " FROM evidence.instance i
                        WHERE i.org = $1 AND i.artifact = w.value
                            AND (i.exited OR i.until_idx = 9223372036854775807) AND i.environment = (
                                SELECT e.environment FROM evidence.instance e
                                WHERE e.org = $1 AND e.artifact = w.value
                                    AND (e.exited OR e.until_idx = 9223372036854775807)
                                ORDER BY e.environment LIMIT 1)
                        ORDER BY i.since_idx DESC LIMIT 1), ',' ORDER BY w.value) || ']'
                    FROM unreported w)"
        )
    };
}

/// Selects one row with everything that begins with the prefix. Hex digits sort before 'g', and before the
/// names of artifacts that run without a digest. So the search reads one range of each index: on digests, on
/// runs, and on commits.
const SEARCH: Sql = Sql::per_dialect(search!(sqlite), search!(postgres));

/// Selects one row with everything, as a JSON array or null, because a row costs more than its content. For
/// each fingerprint it finds the flows one by one, and the newest report in each. An index has the rows in
/// this order, so the cost depends on the result and not on the number of reports.
const PROVENANCE: Sql = Sql::per_dialect(
    concat!(
        "WITH RECURSIVE pair (fingerprint, flow) AS (
            SELECT value, (
                SELECT min(f.flow) FROM evidence.artifact f WHERE f.org = $1 AND f.fingerprint = value)
            FROM json_each($2)
            UNION ALL
            SELECT p.fingerprint, (
                SELECT min(n.flow) FROM evidence.artifact n
                WHERE n.org = $1 AND n.fingerprint = p.fingerprint AND n.flow > p.flow)
            FROM pair p WHERE p.flow IS NOT NULL)
        SELECT '[' || group_concat(json_array(",
        row_json!(sqlite),
        ", (
                SELECT m.name FROM evidence.artifact m
                WHERE m.org = $1 AND m.fingerprint = a.fingerprint AND m.flow = a.flow AND m.name <> ''
                    AND m.ledger_index < $3
                ORDER BY (m.trail IS NOT NULL) DESC, m.ledger_index DESC LIMIT 1))) || ']'
        FROM pair p CROSS JOIN evidence.artifact a ON a.id = (
            SELECT r.id FROM evidence.artifact r
            WHERE r.org = $1 AND r.fingerprint = p.fingerprint AND r.flow = p.flow AND r.ledger_index < $3
            ORDER BY (r.trail IS NOT NULL) DESC, r.ledger_index DESC LIMIT 1)"
    ),
    concat!(
        "WITH RECURSIVE pair AS (
            SELECT w.value AS fingerprint, (
                SELECT f.flow || '' FROM evidence.artifact f
                WHERE f.org = $1 AND f.fingerprint = w.value ORDER BY f.flow || '' LIMIT 1) AS flow
            FROM UNNEST($2::text[]) AS w (value)
            UNION ALL
            SELECT p.fingerprint, (
                SELECT n.flow || '' FROM evidence.artifact n
                WHERE n.org = $1 AND n.fingerprint = p.fingerprint AND n.flow || '' > p.flow
                ORDER BY n.flow || '' LIMIT 1)
            FROM pair p WHERE p.flow IS NOT NULL)
        SELECT '[' || string_agg('[' || ",
        row_json!(postgres),
        " || ',' || coalesce((
                SELECT to_json(m.name)::text FROM evidence.artifact m
                WHERE m.org = $1 AND m.fingerprint = p.fingerprint AND m.flow || '' = p.flow AND m.name <> ''
                    AND m.ledger_index < $3
                ORDER BY (m.trail IS NOT NULL) DESC, m.ledger_index DESC LIMIT 1), 'null') || ']', ',') || ']'
        FROM pair p CROSS JOIN LATERAL (
            SELECT * FROM evidence.artifact r
            WHERE r.org = $1 AND r.fingerprint = p.fingerprint AND r.flow || '' = p.flow AND r.ledger_index < $3
            ORDER BY (r.trail IS NOT NULL) DESC, r.ledger_index DESC LIMIT 1) a"
    ),
);

/// The text of [`GIVEN_NAMES`] for each database.
macro_rules! given_names {
    ($dialect:ident, $asked:literal) => {
        concat!(
            "WITH RECURSIVE given (flow, fingerprint, name) AS (
                SELECT w.flow, w.fingerprint, (
                    SELECT f.name FROM evidence.artifact f
                    WHERE f.org = $1 AND f.fingerprint = w.fingerprint AND ",
            flow!($dialect, "f"),
            " = w.flow
                    ORDER BY f.name LIMIT 1)
                FROM ",
            $asked,
            "
                UNION ALL
                SELECT g.flow, g.fingerprint, (
                    SELECT n.name FROM evidence.artifact n
                    WHERE n.org = $1 AND n.fingerprint = g.fingerprint AND ",
            flow!($dialect, "n"),
            " = g.flow
                        AND n.name > g.name
                    ORDER BY n.name LIMIT 1)
                FROM given g WHERE g.name IS NOT NULL)
            SELECT g.flow, g.fingerprint, g.name, (
                SELECT m.ledger_index FROM evidence.artifact m
                WHERE m.org = $1 AND m.fingerprint = g.fingerprint AND ",
            flow!($dialect, "m"),
            " = g.flow AND m.name = g.name
                ORDER BY m.ledger_index LIMIT 1)
            FROM given g WHERE g.name IS NOT NULL"
        )
    };
}

/// Selects the first report of content by each name that the content has in a flow. The names are found one
/// by one, by an index in this order, so the cost does not depend on the number of reports.
const GIVEN_NAMES: Sql = Sql::per_dialect(
    given_names!(sqlite, "(SELECT value->>0 AS flow, value->>1 AS fingerprint FROM json_each($2)) w"),
    given_names!(postgres, "UNNEST($2::text[], $3::text[]) AS w (flow, fingerprint)"),
);

fn listing(filter: &ArtifactFilter) -> Listing {
    let conditions = [
        filter.flow.map(|_| if filter.fingerprint.is_some() { IN_FLOW } else { OF_FLOW }),
        filter.trail.map(|_| OF_TRAIL),
        filter.name.as_ref().map(|_| NAMED),
        filter.id.map(|_| OF_ID),
        filter.fingerprint.as_ref().map(|_| FINGERPRINT_BEGINS),
        filter.commit.as_ref().map(|_| COMMIT_BEGINS),
        filter.branch.as_ref().map(|_| ON_BRANCH),
        filter.repos.as_ref().map(|_| FROM_REPOS),
        filter.with_commit.then_some(WITH_COMMIT),
    ];
    let narrowed = filter.flow.or(filter.trail).or(filter.id).is_some() || filter.repos.is_some();
    // The index on digests begins with the organization.
    let from = if narrowed && filter.fingerprint.is_none() { NARROWED } else { ARTIFACTS };
    let narrow = filter.fingerprint.is_some() || filter.id.is_some() || filter.trail.is_some();
    let conditions = conditions.into_iter().flatten().collect();
    Listing { from, filter: conditions, order: order(filter), narrow, counted: true }
}

/// Returns the order, newest first, by the key of the index that narrows the list most. A range in that index
/// is not in this order, so the order then is an expression that no other index matches.
const fn order(filter: &ArtifactFilter) -> Order {
    let ArtifactFilter { flow, trail, name, id, fingerprint, commit, branch, repos, with_commit } = filter;
    if fingerprint.is_some() || commit.is_some() {
        return Order::By(Sql::portable("x.ledger_index + 0 DESC"));
    }
    if trail.is_some() || id.is_some() || repos.is_some() {
        return Order::By(Sql::portable("x.ledger_index DESC"));
    }
    match (flow, name.is_some() || branch.is_some() || *with_commit) {
        (None, false) => Order::Numbered("x.ordinal", SortDirection::Desc),
        (Some(_), false) => Order::Numbered("x.flow_ordinal", SortDirection::Desc),
        (None, true) => Order::By(Sql::portable("x.ordinal DESC")),
        (Some(_), true) => Order::By(Sql::portable("x.flow_ordinal DESC")),
    }
}

/// Returns the values of the conditions, from `$4` on.
fn values(filter: &ArtifactFilter) -> Vec<Value> {
    vec![
        filter.flow.into(),
        filter.trail.into(),
        filter.id.into(),
        filter.fingerprint.clone().into(),
        filter.commit.clone().into(),
        filter.branch.clone().into(),
        texts(filter.repos.as_deref().unwrap_or_default()),
        filter.name.clone().into(),
    ]
}

/// Decodes the result of [`REPORTS`], oldest first.
fn reports((json,): (Option<String>,)) -> StoreResult<Vec<ArtifactRow>> {
    let mut rows: Vec<_> = array(json)?.into_iter().map(Row::artifact).collect();
    rows.sort_unstable_by_key(|row| row.index);
    Ok(rows)
}

/// Decodes the result of [`PROVENANCE`], oldest first.
fn origins((json,): (Option<String>,)) -> StoreResult<Vec<Origin>> {
    let origin = |(row, last): (Row, Option<String>)| Origin {
        report: row.artifact(),
        last_name: last.unwrap_or_default(),
    };
    let mut origins: Vec<_> = array(json)?.into_iter().map(origin).collect();
    origins.sort_unstable_by_key(|origin| origin.report.index);
    Ok(origins)
}

/// Decodes the rows of [`FINGERPRINTS`]: each has the total and one of the first fingerprints.
fn matches(rows: &[(u64, Option<String>)]) -> StoreResult<Matches> {
    let count = rows.first().map_or(0, |(count, _)| *count);
    let first = rows.iter().filter_map(|(_, fingerprint)| fingerprint.as_deref());
    Ok(Matches { count, first: first.map(word).collect::<StoreResult<_>>()? })
}

/// The row of [`SEARCH`].
type FoundRow = (u64, Option<String>, u64, Option<String>, Option<String>, Option<String>);

/// Decodes the row of [`SEARCH`].
fn found(row: FoundRow) -> StoreResult<Found> {
    let (fingerprints, first, commits, first_commits, reports, unreported) = row;
    let unreported = array::<StoredInstance>(unreported)?.into_iter().map(|running| {
        let RunningArtifact { fingerprint, name, .. } = running.into();
        let fingerprint = fingerprint.ok_or_else(|| StoreError::corrupt("a digest of what has none"))?;
        Ok(Unreported { fingerprint, name })
    });
    Ok(Found {
        fingerprints: Matches { count: fingerprints, first: words(first.as_deref())? },
        commits: Matches { count: commits, first: words(first_commits.as_deref())? },
        reports: reports
            .iter()
            .flat_map(|text| text.split(','))
            .map(decode_size)
            .collect::<StoreResult<_>>()?,
        unreported: unreported.collect::<StoreResult<_>>()?,
    })
}

/// Decodes values that are separated by spaces.
fn words<T: DeserializeOwned>(text: Option<&str>) -> StoreResult<Vec<T>> {
    text.into_iter().flat_map(|text| text.split(' ')).map(word).collect()
}

#[async_trait]
impl<D: Driver> ArtifactStore for SqlStore<D> {
    async fn fingerprints(&self, org: Id, flow: Id, prefix: &str, limit: u64) -> StoreResult<Matches> {
        let query = self.query_org(org, FINGERPRINTS).bind(flow).bind(prefix).bind(limit);
        query.long().answer(|rows: Vec<_>| matches(&rows)).await
    }

    async fn search(&self, org: Id, prefix: &str, limit: u64) -> StoreResult<Found> {
        let query = self.query_org(org, SEARCH).bind(prefix).bind(limit);
        let row = query.long().first_as(found).await?;
        row.ok_or_else(|| StoreError::corrupt("a search has no row"))
    }

    async fn artifacts(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Artifact>> {
        self.whole_page(org, &listing(filter), request, values(filter)).await
    }

    async fn artifacts_listed(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<ArtifactPage> {
        let listing = Listing { counted: false, ..listing(filter) };
        if request.limit > SHORT_PAGE {
            let listed = self.listed(org, &listing, request, values(filter)).await?.items;
            return Ok(ArtifactPage { listed, content: Vec::new() });
        }
        let (column, read) = (SIZE_AND_SMALL_PAYLOAD, sizes_and_content);
        let page = self.read_page(org, &listing, column, read, request, values(filter)).await?;
        let (listed, content): (_, Vec<_>) = page.items.into_iter().unzip();
        Ok(ArtifactPage { listed, content: content.into_iter().flatten().collect() })
    }

    async fn artifact_of_flow(
        &self,
        org: Id,
        query: ArtifactQuery<'_>,
    ) -> StoreResult<Option<(Flow, Option<ArtifactWithRuns>)>> {
        let ArtifactQuery { flow, fingerprint, trail, id, newest_runs } = query;
        let query = self.query_org(org, OF_FLOW_WITH_RUNS).bind(flow).bind(fingerprint).bind(trail).bind(id);
        query.bind(newest_runs.map(u64::from)).per_item(1).first_as(of_flow).await
    }

    async fn latest_artifact(&self, org: Id, filter: &ArtifactFilter) -> StoreResult<Option<Artifact>> {
        let listing = Listing { counted: false, ..listing(filter) };
        let latest =
            self.whole_page(org, &listing, PageRequest { offset: 0, limit: 1 }, values(filter)).await?;
        Ok(latest.items.into_iter().next())
    }

    async fn artifacts_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Artifact>> {
        let query = self.query_org(org, BY_ID).bind(texts(ids)).per_item(ids.len());
        query.readable_as(org, listed_record).await
    }

    async fn artifact_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>> {
        let query = self.query_org(org, SIZES).bind(texts(ids)).per_item(ids.len());
        query.all_as(|(id, bytes): (Id, u64)| Ok(Listed { id, bytes })).await
    }

    async fn reports(&self, org: Id, flow: Id, fingerprint: &Fingerprint) -> StoreResult<Vec<ArtifactRow>> {
        let query = self.query_org(org, REPORTS).bind(flow).bind(fingerprint);
        Ok(query.long().first_as(reports).await?.unwrap_or_default())
    }

    async fn provenance(
        &self,
        org: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
    ) -> StoreResult<Vec<Origin>> {
        let query = self.query_org(org, PROVENANCE).bind(texts(fingerprints)).bind(entries);
        Ok(query.per_item(fingerprints.len()).first_as(origins).await?.unwrap_or_default())
    }

    async fn given_names(&self, org: Id, asked: &[(Id, Fingerprint)]) -> StoreResult<Vec<GivenName>> {
        let asked = BTreeSet::from_iter(asked).into_iter();
        let (flows, fingerprints) =
            asked.map(|(flow, content)| (Some(flow.to_string()), Some(content.to_string()))).unzip();
        let columns = Value::Columns(vec![Column::Texts(flows), Column::Texts(fingerprints)]);
        let given = |(flow, fingerprint, name, first): (Id, String, String, u64)| {
            Ok(GivenName { flow, fingerprint: word(&fingerprint)?, name, first })
        };
        self.query_org(org, GIVEN_NAMES).bind(columns).long().all_as(given).await
    }
}
