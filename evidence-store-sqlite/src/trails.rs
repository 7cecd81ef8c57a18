//! Trails, and what was reported to them.

use std::borrow::Cow;

use async_trait::async_trait;
use evidence_core::id::Id;
use evidence_core::name::TrailName;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::store::{StoreResult, readable};
use evidence_core::trails::{
    REPORT_BYTES, Reported, Trail, TrailContents, TrailEntry, TrailFilter, TrailStore,
};
use evidence_core::{Current, StoreError};

use crate::db::SqliteStore;
use crate::rows::{Listing, Order, Payload, array, current, id, once, record, signed, text, unsigned, word};
use crate::{artifacts, attestations};

/// A trail keeps its flow, its beginning and its places: what is no beginning is numbered apart, for nothing. The order
/// keeps updates behind the beginning.
pub(crate) const PUT_TRAILS: &str = "
    INSERT INTO trail (org, id, flow, name, begun, ledger_index, place, flow_place)
    SELECT r.org, r.id, r.flow, r.name, r.idx, r.idx,
        coalesce((SELECT max(t.place) FROM trail t WHERE t.org = r.org), 0)
            + row_number() OVER (PARTITION BY r.org, r.begins ORDER BY r.idx),
        coalesce((SELECT max(t.flow_place) FROM trail t WHERE t.flow = r.flow), 0)
            + row_number() OVER (PARTITION BY r.flow, r.begins ORDER BY r.idx)
    FROM (SELECT value->>0 AS org, value->>1 AS id, value->>2 AS flow, value->>3 AS name, value->>4 AS idx,
              value->>5 AS begins
          FROM json_each($1)) r
    WHERE true ORDER BY r.idx
    ON CONFLICT (id) DO UPDATE SET ledger_index = excluded.ledger_index";

pub(crate) const INSERT_ENTRIES: &str = "
    INSERT INTO trail_entry (org, trail, ledger_index)
    SELECT value->>0, value->>1, value->>2 FROM json_each($1)";

const BY_NAME: &str = "
    SELECT t.ledger_index, l.payload FROM trail t LEFT JOIN ledger l ON l.org = t.org AND l.idx = t.ledger_index
    WHERE t.flow = $2 AND t.name = $3 AND t.org = (SELECT key FROM organization WHERE id = $1)";

const TRAILS: &str = "trail x WHERE x.org = (SELECT key FROM organization WHERE id = $1)";

/// For conditions that have an index of their own: the plus keeps the planner from walking the whole organization.
const NARROWED: &str = "trail x WHERE +x.org = (SELECT key FROM organization WHERE id = $1)";

const OF_FLOW: &str = " AND x.flow = $4";

const OF_TAGGED_FLOWS: &str = " AND x.flow IN (
        SELECT n.id FROM record n, json_each(n.tags) t
        WHERE n.org = (SELECT key FROM organization WHERE id = $1) AND n.kind = 'flow'
            AND t.key = $5 AND ($6 IS NULL OR t.value = $6))";

/// Hex digits sort before 'g': the range is the prefix, and the index is used.
const WITH_FINGERPRINT: &str = " AND x.id IN (
        SELECT a.trail FROM artifact a
        WHERE a.org = (SELECT key FROM organization WHERE id = $1)
            AND a.fingerprint >= $7 AND a.fingerprint < $7 || 'g')";

const NEWEST: &str = "
    SELECT t.id FROM json_each($2) f
    CROSS JOIN trail t ON t.id = (
        SELECT n.id FROM trail n WHERE n.flow = f.value ORDER BY n.flow_place DESC LIMIT 1)
    WHERE t.org = (SELECT key FROM organization WHERE id = $1)";

/// Counted by indexes alone.
const SIZES: &str = "
    SELECT t.id, coalesce(octet_length(l.payload), 0),
        (SELECT count(*) FROM artifact a WHERE a.trail = t.id)
        + (SELECT count(*) FROM attestation a WHERE a.trail = t.id)
    FROM json_each($2) w CROSS JOIN trail t ON t.id = w.value
    LEFT JOIN ledger l ON l.org = t.org AND l.idx = t.ledger_index
    WHERE t.org = (SELECT key FROM organization WHERE id = $1)";

/// The facts of the trails `$2` with their indexes, told apart by what stands in no JSON, so that one that is damaged
/// spoils no other; or nothing.
macro_rules! trail_facts {
    () => {
        "(SELECT group_concat(t.ledger_index || ' ' || coalesce(l.payload, ''), char(30)) FROM json_each($2) w
            CROSS JOIN trail t ON t.id = w.value LEFT JOIN ledger l ON l.org = t.org AND l.idx = t.ledger_index
            WHERE t.org = (SELECT key FROM organization WHERE id = $1))"
    };
}

/// Everything about some trails in one statement, so that it fits together, and in one row, for a row costs more than
/// what is in it: the trails' facts, and the artifacts and the attestations as a JSON array or nothing each, in any order:
/// sorting a few rows takes SQLite a temporary table.
const CONTENTS: &str = concat!(
    "SELECT ",
    trail_facts!(),
    ", (SELECT '[' || group_concat(",
    artifacts::row_json!(),
    ") || ']' FROM json_each($2) w CROSS JOIN artifact a ON a.trail = w.value
        WHERE +a.org = (SELECT key FROM organization WHERE id = $1)),
    (SELECT '[' || group_concat(",
    attestations::row_json!(),
    ") || ']' FROM json_each($2) w CROSS JOIN attestation a ON a.trail = w.value
        WHERE a.org = (SELECT key FROM organization WHERE id = $1))"
);

/// A row of [`CONTENTS`].
type Contents = (Payload, Option<String>, Option<String>);

const NAMES: &str = "
    SELECT t.id, t.name FROM json_each($2) w CROSS JOIN trail t ON t.id = w.value
    WHERE t.org = (SELECT key FROM organization WHERE id = $1)";

/// Counted by an index alone.
const ARTIFACTS: &str = "
    SELECT (SELECT count(*) FROM (SELECT 1 FROM artifact WHERE trail = $2 LIMIT $3))
    FROM trail WHERE id = $2 AND org = (SELECT key FROM organization WHERE id = $1)";
const ATTESTATIONS: &str = "
    SELECT (SELECT count(*) FROM (SELECT 1 FROM attestation WHERE trail = $2 LIMIT $3))
    FROM trail WHERE id = $2 AND org = (SELECT key FROM organization WHERE id = $1)";

const ENTRIES: &str = "
    WITH entry AS (
        SELECT org, begun AS idx FROM trail WHERE id = $2
        UNION ALL SELECT org, ledger_index FROM trail_entry WHERE trail = $2
        UNION ALL SELECT org, ledger_index FROM artifact WHERE trail = $2
        UNION ALL SELECT org, ledger_index FROM attestation WHERE trail = $2)
    SELECT e.idx, coalesce(octet_length(l.payload), 0) FROM entry e
    LEFT JOIN ledger l ON l.org = e.org AND l.idx = e.idx
    WHERE e.org = (SELECT key FROM organization WHERE id = $1) ORDER BY e.idx";

fn listing(filter: &TrailFilter) -> Listing {
    let conditions = [
        filter.flow.map(|_| OF_FLOW),
        filter.flow_tag.as_ref().map(|_| OF_TAGGED_FLOWS),
        filter.fingerprint.as_ref().map(|_| WITH_FINGERPRINT),
    ];
    let conditions: Vec<_> = conditions.into_iter().flatten().collect();
    let from = if conditions.is_empty() { TRAILS } else { NARROWED };
    Listing { from, filter: conditions, order: order(filter), narrow: false, counted: true }
}

/// The last begun first.
const fn order(filter: &TrailFilter) -> Order {
    match filter {
        TrailFilter { flow: None, flow_tag: None, fingerprint: None } => Order::Numbered("x.place"),
        TrailFilter { flow: Some(_), flow_tag: None, fingerprint: None } => Order::Numbered("x.flow_place"),
        _ => Order::By("x.begun DESC"),
    }
}

/// What stands between two facts, as [`CONTENTS`] writes it.
const SEPARATOR: u8 = 0x1e;

/// A fact of [`CONTENTS`]: its index, and the record.
fn trail_fact(fact: &[u8]) -> (Cow<'_, str>, StoreResult<Current<Trail>>) {
    let middle = fact.iter().position(|byte| *byte == b' ').unwrap_or(fact.len());
    let (index, payload) = fact.split_at(middle);
    let index = String::from_utf8_lossy(index);
    let revision = || index.parse().map_err(|_| StoreError::corrupt(format_args!("'{index}' is no index")));
    let trail =
        text(payload).and_then(record).and_then(|record| Ok(Current { revision: revision()?, record }));
    (index, trail)
}

/// What [`CONTENTS`] found, trail by trail.
fn contents(org: Id, (trails, artifacts, attestations): Contents) -> StoreResult<Vec<TrailContents>> {
    let facts = trails.bytes().into_iter().flat_map(|facts| facts.split(|byte| *byte == SEPARATOR));
    let trails: Vec<Current<Trail>> = readable(org, facts.map(trail_fact))?;
    let artifacts = array(artifacts)?.into_iter().map(artifacts::Row::artifact).collect();
    let attestations = array(attestations)?.into_iter().map(attestations::Row::attestation).collect();
    Ok(TrailContents::together(trails, artifacts, attestations))
}

#[async_trait]
impl TrailStore for SqliteStore {
    async fn trail(&self, org: Id, flow: Id, name: &str) -> StoreResult<Option<Current<Trail>>> {
        let question = self.ask_of(org, BY_NAME).bind(flow.to_string()).bind(name.to_owned());
        question.first_as(current).await
    }

    async fn trails(&self, org: Id, filter: &TrailFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let tag = filter.flow_tag.as_ref();
        let values = vec![
            filter.flow.map(|flow| flow.to_string()),
            tag.map(|tag| tag.key.clone()),
            tag.and_then(|tag| tag.value.clone()),
            filter.fingerprint.clone(),
        ];
        self.listed(org, &listing(filter), request, values).await
    }

    async fn newest_trails(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<Id>> {
        let question = self.ask_of(org, NEWEST).bind(once(flows)?).about(flows.len());
        question.all_as(|(trail,): (String,)| id(&trail)).await
    }

    async fn trail_sizes(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<Listed>> {
        let question = self.ask_of(org, SIZES).bind(once(trails)?).about(trails.len());
        let size = |(trail, bytes, reports): (String, i64, i64)| {
            Ok(Listed { id: id(&trail)?, bytes: unsigned(bytes)? + unsigned(reports)? * REPORT_BYTES })
        };
        question.all_as(size).await
    }

    async fn trail_names(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<(Id, TrailName)>> {
        let question = self.ask_of(org, NAMES).bind(once(trails)?).about(trails.len());
        question.all_as(|(trail, name): (String, String)| Ok((id(&trail)?, word(&name)?))).await
    }

    async fn trail_contents(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailContents>> {
        let question = self.ask_of(org, CONTENTS).bind(once(trails)?).about(trails.len());
        Ok(question.first_as(move |row: Contents| contents(org, row)).await?.unwrap_or_default())
    }

    async fn trail_size(&self, org: Id, trail: Id, kind: Reported, most: u64) -> StoreResult<u64> {
        let sql = match kind {
            Reported::Artifacts => ARTIFACTS,
            Reported::Attestations => ATTESTATIONS,
        };
        let question = self.ask_of(org, sql).bind(trail.to_string()).bind(signed(most));
        question.first().await?.map_or(Ok(0), |(count,): (i64,)| unsigned(count))
    }

    async fn trail_entries(&self, org: Id, trail: Id) -> StoreResult<Vec<TrailEntry>> {
        let question = self.ask_of(org, ENTRIES).bind(trail.to_string()).long();
        let entry =
            |(index, bytes): (i64, i64)| Ok(TrailEntry { index: unsigned(index)?, bytes: unsigned(bytes)? });
        question.all_as(entry).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evidence_core::shared::TagFilter;

    #[test]
    fn every_list_is_read_by_the_index_that_narrows_it_most() {
        let flow = "00000000-0000-0000-0000-00000000".parse().ok();
        let flow_tag = Some(TagFilter::parse("team:a", ':'));
        let fingerprint = Some("abcde".to_owned());
        let cases = [
            (TrailFilter::default(), "trail_org (org=? AND place<?)"),
            (TrailFilter { flow, ..TrailFilter::default() }, "trail_flow (flow=? AND flow_place<?)"),
            (TrailFilter { flow_tag, ..TrailFilter::default() }, "trail_flow (flow=?)"),
            (TrailFilter { fingerprint, ..TrailFilter::default() }, "PRIMARY KEY (id=?)"),
        ];
        for (filter, index) in cases {
            let plan = listing(&filter).plan();
            assert!(plan.contains(index), "{filter:?}: {plan}");
        }
    }
}
