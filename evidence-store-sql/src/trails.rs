//! Trails and the reports to them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use async_trait::async_trait;
use evidence_core::id::Id;
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::store::{StoreResult, skip_corrupt};
use evidence_core::trails::{
    Reported, Trail, TrailContents, TrailEntry, TrailFilter, TrailLabel, TrailStore, TrailVersion,
};
use evidence_core::{Current, StoreError};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::decode::{Payload, body, current, record, text, word};
use crate::driver::Driver;
use crate::listing::{Listing, Order};
use crate::sql::{Sql, payload, payload_size};
use crate::store::SqlStore;
use crate::value::{FromRow, texts};
use crate::{artifacts, attestations};

const KIND: &str = "trail";

const TRAILS: Sql = Sql::portable("evidence.trail x WHERE x.org = $1");

/// For conditions with an index of their own. In SQLite such an index does not begin with the organization;
/// the plus prevents a scan of the whole organization.
const NARROWED: Sql =
    Sql::per_dialect("evidence.trail x WHERE +x.org = $1", "evidence.trail x WHERE x.org = $1");

/// In the form of the index for lists.
const OF_FLOW: Sql = Sql::per_dialect(" AND x.flow = $4", " AND x.flow || '' = $4");

const OF_TAGGED_FLOWS: Sql = Sql::per_dialect(
    " AND x.flow IN (
        SELECT n.id FROM evidence.record n, json_each(n.tags) t
        WHERE n.org = $1 AND n.kind = 'flow' AND t.key = $5 AND ($6 IS NULL OR t.value = $6))",
    " AND x.flow || '' IN (
        SELECT n.id FROM evidence.record n
        WHERE n.org = $1 AND n.kind || '' = 'flow' AND n.tags ? $5 AND ($6 IS NULL OR n.tags->>$5 = $6))",
);

/// Computes the total of those flows from the numbers of their trails.
const TOTAL_OF_TAGGED_FLOWS: Sql = Sql::per_dialect(
    "(SELECT coalesce(sum((SELECT max(t.flow_ordinal) FROM evidence.trail t WHERE t.flow = n.id)), 0)
        FROM evidence.record n WHERE n.org = $1 AND n.kind = 'flow' AND EXISTS (
            SELECT 1 FROM json_each(n.tags) tag WHERE tag.key = $5 AND ($6 IS NULL OR tag.value = $6)))",
    "(SELECT coalesce(sum((
            SELECT t.flow_ordinal FROM evidence.trail t WHERE t.org = $1 AND t.flow || '' = n.id
            ORDER BY t.flow_ordinal DESC LIMIT 1)), 0)::bigint
        FROM evidence.record n
        WHERE n.org = $1 AND n.kind || '' = 'flow' AND n.tags ? $5 AND ($6 IS NULL OR n.tags->>$5 = $6))",
);

/// The newest `$8` trails of each of those flows.
const NEWEST_OF_TAGGED_FLOWS: Sql = Sql::per_dialect(
    "evidence.record n CROSS JOIN evidence.trail x ON x.id IN (
        SELECT t.id FROM evidence.trail t WHERE t.flow = n.id ORDER BY t.flow_ordinal DESC LIMIT $8)
    WHERE n.org = $1 AND n.kind = 'flow' AND EXISTS (
        SELECT 1 FROM json_each(n.tags) tag WHERE tag.key = $5 AND ($6 IS NULL OR tag.value = $6))",
    "(SELECT t.* FROM evidence.record n CROSS JOIN LATERAL (
            SELECT * FROM evidence.trail WHERE org = $1 AND flow || '' = n.id
            ORDER BY flow_ordinal DESC LIMIT $8) t
        WHERE n.org = $1 AND n.kind || '' = 'flow' AND n.tags ? $5 AND ($6 IS NULL OR n.tags->>$5 = $6)) x
    WHERE true",
);

/// Hex digits sort before 'g', so this range is the prefix, and the index is used.
const WITH_FINGERPRINT: Sql = Sql::portable(
    " AND x.id IN (
        SELECT a.trail FROM evidence.artifact a
        WHERE a.org = $1 AND a.fingerprint >= $7 AND a.fingerprint < $7 || 'g')",
);

const NEWEST: Sql = Sql::per_dialect(
    "SELECT t.id FROM json_each($2) f CROSS JOIN evidence.trail t ON t.id = (
        SELECT n.id FROM evidence.trail n WHERE n.flow = f.value ORDER BY n.flow_ordinal DESC LIMIT 1)
    WHERE t.org = $1",
    "SELECT t.id FROM UNNEST($2::text[]) AS f (flow) CROSS JOIN LATERAL (
        SELECT id FROM evidence.trail
        WHERE org = $1 AND flow || '' = f.flow ORDER BY flow_ordinal DESC LIMIT 1) t",
);

/// The columns of the version of a trail. Counts reports by indexes only. In SQLite these indexes do not contain
/// the organization.
macro_rules! version_columns {
    (sqlite, $trail:literal) => {
        version_columns!($trail, "")
    };
    (postgres, $trail:literal) => {
        version_columns!($trail, "a.org = $1 AND ")
    };
    ($trail:literal, $in_org:literal) => {
        concat!(
            $trail,
            ".id, ",
            $trail,
            ".ledger_index, ",
            payload_size!($trail),
            ", (SELECT count(*) FROM evidence.artifact a WHERE ",
            $in_org,
            "a.trail = ",
            $trail,
            ".id) + (SELECT count(*) FROM evidence.attestation a WHERE ",
            $in_org,
            "a.trail = ",
            $trail,
            ".id)"
        )
    };
}
pub(crate) use version_columns;

const VERSIONS: Sql = Sql::per_dialect(
    concat!(
        "SELECT ",
        version_columns!(sqlite, "t"),
        " FROM json_each($2) w CROSS JOIN evidence.trail t ON t.org = $1 AND t.id = w.value"
    ),
    concat!(
        "SELECT ",
        version_columns!(postgres, "t"),
        " FROM UNNEST($2::text[]) AS w (value) CROSS JOIN LATERAL (
            SELECT * FROM evidence.trail WHERE org = $1 AND id = w.value OFFSET 0) t"
    ),
);

/// Decodes the columns of a version. A negative index belongs to a damaged row, which its contents omit.
pub(crate) fn version((id, revision, bytes, reports): (Id, i64, u64, u64)) -> TrailVersion {
    let revision = u64::try_from(revision).unwrap_or_default();
    TrailVersion { id, revision, reports, bytes }
}

/// A trail's fact, preceded by its ledger index and a space.
macro_rules! trail_fact {
    () => {
        concat!("t.ledger_index || ' ' || coalesce(", payload!("t"), ", '')")
    };
}

/// Selects everything about some trails: their facts, artifacts and attestations. One statement makes the
/// parts consistent, and one row is cheaper than many. The items are in any order, because sorting a few rows
/// would need a temporary table in SQLite. A character that JSON never contains separates them, so a damaged
/// item does not affect others.
const CONTENTS: Sql = Sql::per_dialect(
    concat!(
        "SELECT (SELECT group_concat(",
        trail_fact!(),
        ", char(30)) FROM json_each($2) w CROSS JOIN evidence.trail t ON t.org = $1 AND t.id = w.value),
        (SELECT group_concat(",
        artifacts::row_json!(sqlite),
        ", char(30)) FROM json_each($2) w CROSS JOIN evidence.artifact a ON +a.org = $1 AND a.trail = w.value),
        (SELECT group_concat(",
        attestations::row_json!(sqlite),
        ", char(30)) FROM json_each($2) w CROSS JOIN evidence.attestation a ON +a.org = $1 AND a.trail = w.value)"
    ),
    concat!(
        "SELECT (SELECT string_agg(",
        trail_fact!(),
        ", chr(30)) FROM UNNEST($2::text[]) AS w (value) CROSS JOIN LATERAL (
            SELECT * FROM evidence.trail WHERE org = $1 AND id = w.value OFFSET 0) t),
        (SELECT string_agg(",
        artifacts::row_json!(postgres),
        ", chr(30)) FROM UNNEST($2::text[]) AS w (value) CROSS JOIN LATERAL (
            SELECT * FROM evidence.artifact WHERE org = $1 AND trail = w.value OFFSET 0) a),
        (SELECT string_agg(",
        attestations::row_json!(postgres),
        ", chr(30)) FROM UNNEST($2::text[]) AS w (value) CROSS JOIN LATERAL (
            SELECT * FROM evidence.attestation WHERE org = $1 AND trail = w.value OFFSET 0) a)"
    ),
);

/// A row of [`CONTENTS`].
type Contents = (Payload, Payload, Payload);

const LABELS: Sql = Sql::per_dialect(
    "SELECT t.id, r.name, t.name FROM json_each($2) w CROSS JOIN evidence.trail t ON t.org = $1 AND t.id = w.value
    CROSS JOIN evidence.record r ON r.org = $1 AND r.kind = 'flow' AND r.id = t.flow",
    "SELECT t.id, r.name, t.name FROM UNNEST($2::text[]) AS w (value)
    CROSS JOIN LATERAL (SELECT id, flow, name FROM evidence.trail WHERE org = $1 AND id = w.value OFFSET 0) t
    CROSS JOIN LATERAL (
        SELECT name FROM evidence.record WHERE org = $1 AND id = t.flow AND kind = 'flow' OFFSET 0) r",
);

/// Counts the reports of this table to the trail `$2` by an index only, up to `$3`. In SQLite that index does
/// not contain the organization.
macro_rules! count {
    ($table:literal) => {
        Sql::per_dialect(
            concat!(
                "SELECT (SELECT count(*) FROM (SELECT 1 FROM evidence.",
                $table,
                " WHERE trail = $2 LIMIT $3)) FROM evidence.trail WHERE id = $2 AND org = $1"
            ),
            concat!(
                "SELECT count(*) FROM (SELECT FROM evidence.",
                $table,
                " WHERE org = $1 AND trail = $2 LIMIT $3) a"
            ),
        )
    };
}

const ARTIFACTS: Sql = count!("artifact");

const ATTESTATIONS: Sql = count!("attestation");

/// Selects all ledger entries about the trail `$2` with their sizes. `$of_org` is the organization condition
/// for reports; SQLite's indexes of reports by trail do not contain the organization.
macro_rules! entries {
    ($of_org:literal) => {
        concat!(
            "WITH entry AS (
                SELECT begun AS idx FROM evidence.trail WHERE org = $1 AND id = $2
                UNION ALL SELECT ledger_index FROM evidence.trail_entry WHERE org = $1 AND trail = $2
                UNION ALL SELECT ledger_index FROM evidence.artifact WHERE ",
            $of_org,
            " AND trail = $2
                UNION ALL SELECT ledger_index FROM evidence.attestation WHERE ",
            $of_org,
            " AND trail = $2)
            SELECT e.idx, coalesce(
                    (SELECT octet_length(l.payload) FROM evidence.ledger l WHERE l.org = $1 AND l.idx = e.idx), 0)
            FROM entry e ORDER BY e.idx"
        )
    };
}

const ENTRIES: Sql = Sql::per_dialect(entries!("+org = $1"), entries!("org = $1"));

fn listing(filter: &TrailFilter) -> Listing {
    let conditions = [
        filter.flow.map(|_| OF_FLOW),
        filter.flow_tag.as_ref().map(|_| OF_TAGGED_FLOWS),
        filter.fingerprint.as_ref().map(|_| WITH_FINGERPRINT),
    ];
    let conditions: Vec<_> = conditions.into_iter().flatten().collect();
    let from = if conditions.is_empty() { TRAILS } else { NARROWED };
    let order = order(filter);
    let conditions = if matches!(order, Order::Within { .. }) { Vec::new() } else { conditions };
    Listing { from, filter: conditions, order, narrow: false, counted: true }
}

/// Returns the order: the most recently begun trail first.
const fn order(filter: &TrailFilter) -> Order {
    match filter {
        TrailFilter { flow: None, flow_tag: None, fingerprint: None } => {
            Order::Numbered("x.ordinal", SortDirection::Desc)
        }
        TrailFilter { flow: Some(_), flow_tag: None, fingerprint: None } => {
            Order::Numbered("x.flow_ordinal", SortDirection::Desc)
        }
        TrailFilter { flow: None, flow_tag: Some(_), fingerprint: None } => Order::Within {
            total: Some(TOTAL_OF_TAGGED_FLOWS),
            rows: NEWEST_OF_TAGGED_FLOWS,
            by: Sql::portable("x.begun DESC"),
        },
        _ => Order::By(Sql::portable("x.begun DESC")),
    }
}

/// The separator between facts or rows in [`CONTENTS`].
const SEPARATOR: u8 = 0x1e;

/// Splits a column of [`CONTENTS`] into facts or rows.
fn each(column: &Payload) -> impl Iterator<Item = &[u8]> {
    column.bytes().into_iter().flat_map(|all| all.split(|byte| *byte == SEPARATOR))
}

/// Decodes the rows in a column of [`CONTENTS`]. `trail` is the position of the trail in a row. If a row is
/// corrupt, its whole trail is unreadable: skipping the row could hide a failure and make the trail appear
/// compliant.
fn rows<T: DeserializeOwned>(
    column: &Payload,
    trail: usize,
    unreadable: &mut BTreeMap<Id, StoreError>,
) -> StoreResult<Vec<T>> {
    let mut rows = Vec::new();
    for row in each(column) {
        match text(row).and_then(body) {
            Ok(row) => rows.push(row),
            Err(why) => match trail_of(row, trail) {
                Some(trail) => drop(unreadable.insert(trail, why)),
                None => return Err(why),
            },
        }
    }
    Ok(rows)
}

/// Returns the trail of a corrupt row.
fn trail_of(row: &[u8], place: usize) -> Option<Id> {
    let row: Vec<Value> = serde_json::from_str(&String::from_utf8_lossy(row)).ok()?;
    row.get(place)?.as_str()?.parse().ok()
}

/// Decodes a fact of [`CONTENTS`]: its index, and the record.
fn trail_fact(fact: &[u8]) -> (Cow<'_, str>, StoreResult<Current<Trail>>) {
    let middle = fact.iter().position(|byte| *byte == b' ').unwrap_or(fact.len());
    let (index, payload) = fact.split_at(middle);
    let index = String::from_utf8_lossy(index);
    let revision = || index.parse().map_err(|_| StoreError::corrupt(format_args!("'{index}' is no index")));
    let trail =
        text(payload).and_then(record).and_then(|record| Ok(Current { revision: revision()?, record }));
    (index, trail)
}

/// Decodes the result of [`CONTENTS`] by trail.
fn contents(org: Id, (trails, artifacts, attestations): Contents) -> StoreResult<Vec<TrailContents>> {
    let mut unreadable = BTreeMap::new();
    let artifacts = rows(&artifacts, artifacts::Row::TRAIL, &mut unreadable)?;
    let attestations = rows(&attestations, attestations::Row::TRAIL, &mut unreadable)?;
    // A trail may appear twice if its id was requested twice; both are refused.
    let readable = |trail: Current<Trail>| match unreadable.get(&trail.record.id) {
        Some(why) => Err(StoreError::corrupt(format_args!("a report to it: {why}"))),
        None => Ok(trail),
    };
    let trails = each(&trails).map(trail_fact);
    let trails = trails.map(|(index, trail)| (index, trail.and_then(readable)));
    let trails: Vec<Current<Trail>> = skip_corrupt(org, trails)?;
    let artifacts = artifacts.into_iter().map(artifacts::Row::artifact).collect();
    let attestations = attestations.into_iter().map(attestations::Row::attestation).collect();
    Ok(TrailContents::join_reports(trails, artifacts, attestations))
}

#[async_trait]
impl<D: Driver> TrailStore for SqlStore<D> {
    async fn trail(&self, org: Id, flow: Id, name: &str) -> StoreResult<Option<Current<Trail>>> {
        let row = self.driver.by_name(org, KIND, Some(flow), name.to_owned()).await?;
        row.map(|row| current(FromRow::from_row(row)?)).transpose()
    }

    async fn trails(&self, org: Id, filter: &TrailFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let tag = filter.flow_tag.as_ref();
        let values = vec![
            filter.flow.into(),
            tag.map(|tag| tag.key.clone()).into(),
            tag.and_then(|tag| tag.value.clone()).into(),
            filter.fingerprint.clone().into(),
            request.limit.saturating_add(request.offset).into(),
        ];
        self.listed(org, &listing(filter), request, values).await
    }

    async fn newest_trails(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<Id>> {
        let query = self.query_org(org, NEWEST).bind(texts(flows)).per_item(flows.len());
        query.all_as(|(trail,): (Id,)| Ok(trail)).await
    }

    async fn trail_versions(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailVersion>> {
        let query = self.query_org(org, VERSIONS).bind(texts(trails)).per_item(trails.len());
        query.all_as(|row| Ok(version(row))).await
    }

    async fn trail_contents(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailContents>> {
        let query = self.query_org(org, CONTENTS).bind(texts(trails)).per_item(trails.len());
        Ok(query.first_as(move |row: Contents| contents(org, row)).await?.unwrap_or_default())
    }

    async fn trail_labels(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<(Id, TrailLabel)>> {
        let query = self.query_org(org, LABELS).bind(texts(trails)).per_item(trails.len());
        let label = |(trail, flow, name): (Id, String, String)| {
            Ok((trail, TrailLabel { flow: word(&flow)?, name: word(&name)? }))
        };
        query.all_as(label).await
    }

    async fn trail_report_count(&self, org: Id, trail: Id, kind: Reported, most: u64) -> StoreResult<u64> {
        let sql = match kind {
            Reported::Artifacts => ARTIFACTS,
            Reported::Attestations => ATTESTATIONS,
        };
        let count = self.query_org(org, sql).bind(trail).bind(most).first::<(u64,)>().await?;
        Ok(count.map_or(0, |(count,)| count))
    }

    async fn trail_entries(&self, org: Id, trail: Id) -> StoreResult<Vec<TrailEntry>> {
        let query = self.query_org(org, ENTRIES).bind(trail).long();
        query.all_as(|(index, bytes): (u64, u64)| Ok(TrailEntry { index, bytes })).await
    }
}
