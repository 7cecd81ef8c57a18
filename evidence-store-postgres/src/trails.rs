//! Trails, and what was reported to them.

use async_trait::async_trait;
use evidence_core::id::Id;
use evidence_core::name::TrailName;
use evidence_core::page::{Listed, Page, PageRequest};
use evidence_core::store::{StoreResult, readable};
use evidence_core::trails::{
    REPORT_BYTES, Reported, Trail, TrailContents, TrailEntry, TrailFilter, TrailStore,
};
use evidence_core::{Current, StoreError};

use crate::db::PostgresStore;
use crate::rows::{Bound, Listing, Order, array, each, id, list, payload, record, signed, unsigned, word};
use crate::{artifacts, attestations};

/// A trail keeps its flow, its beginning and its places: what is no beginning is numbered apart, for nothing.
/// How many there are is looked up for all rows first (`OFFSET 0`, below the sorting): afterwards each would have to pass
/// over those that the statement has inserted.
pub(crate) const PUT_TRAILS: &str = "
    INSERT INTO evidence.trail (org, id, flow, name, begun, ledger_index, place, flow_place)
    SELECT r.org, r.id, r.flow, r.name, r.begun, r.ledger_index,
        r.places + row_number() OVER (PARTITION BY r.org, r.begins ORDER BY r.begun),
        r.flow_places + row_number() OVER (PARTITION BY r.org, r.flow, r.begins ORDER BY r.begun)
    FROM (
        SELECT b.*,
            coalesce((SELECT max(t.place) FROM evidence.trail t WHERE t.org = b.org), 0) AS places,
            coalesce((SELECT max(t.flow_place) FROM evidence.trail t WHERE t.org = b.org AND t.flow || '' = b.flow), 0)
                AS flow_places
        FROM go, UNNEST($text, $text, $text, $text, $bigint, $boolean, $bigint)
            AS b (org, id, flow, name, begun, begins, ledger_index)
        OFFSET 0) r
    ON CONFLICT (org, id) DO UPDATE SET ledger_index = excluded.ledger_index";

pub(crate) const INSERT_ENTRIES: &str = "
    INSERT INTO evidence.trail_entry (org, trail, ledger_index) SELECT r.* FROM go, UNNEST($text, $text, $bigint) r";

const TRAILS: &str = "evidence.trail x WHERE x.org = $1";

/// As the index of lists has it.
const OF_FLOW: &str = " AND x.flow || '' = $4";

const OF_TAGGED_FLOWS: &str = " AND x.flow || '' IN (
        SELECT n.id FROM evidence.record n
        WHERE n.org = $1 AND n.kind || '' = 'flow' AND n.tags ? $5 AND ($6 IS NULL OR n.tags->>$5 = $6))";

/// Hex digits sort before 'g': the range is the prefix, and the index is used.
const WITH_FINGERPRINT: &str = " AND x.id IN (
        SELECT a.trail FROM evidence.artifact a
        WHERE a.org = $1 AND a.fingerprint >= $7 AND a.fingerprint < $7 || 'g')";

const NEWEST: &str = "
    SELECT t.id FROM UNNEST($2::text[]) AS f (flow) CROSS JOIN LATERAL (
        SELECT id FROM evidence.trail
        WHERE org = $1 AND flow || '' = f.flow ORDER BY flow_place DESC LIMIT 1) t";

/// Counted by indexes alone; a text that is stored apart is not read for its size.
pub(crate) const SIZES: &str = concat!(
    "SELECT t.id, coalesce(octet_length(",
    payload!("t"),
    "), 0)::bigint,
        (SELECT count(*) FROM evidence.artifact a WHERE a.org = $1 AND a.trail = t.id)
        + (SELECT count(*) FROM evidence.attestation a WHERE a.org = $1 AND a.trail = t.id) FROM ",
    each!("trail", "id", "t")
);

/// The facts of the trails `$2` with their indexes, told apart by what stands in no JSON, so that one that is damaged
/// spoils no other; or nothing.
macro_rules! trail_facts {
    () => {
        concat!(
            "(SELECT string_agg(t.ledger_index || ' ' || coalesce(",
            payload!("t"),
            ", ''), chr(30)) FROM ",
            each!("trail", "id", "t"),
            ")"
        )
    };
}

/// Everything about some trails in one statement, so that it fits together, and in one row, for a row costs more than
/// what is in it: the trails' facts, and the artifacts and the attestations as a JSON array or nothing each.
pub(crate) const CONTENTS: &str = concat!(
    "SELECT ",
    trail_facts!(),
    ", (SELECT '[' || string_agg(",
    artifacts::row_json!(),
    ", ',') || ']' FROM ",
    each!("artifact", "trail", "a"),
    "),
    (SELECT '[' || string_agg(",
    attestations::row_json!(),
    ", ',') || ']' FROM ",
    each!("attestation", "trail", "a"),
    ")"
);

/// A row of [`CONTENTS`].
type Contents = (Option<String>, Option<String>, Option<String>);

pub(crate) const NAMES: &str = concat!("SELECT t.id, t.name FROM ", each!("trail", "id", "t"));

/// Counted by an index alone.
const ARTIFACTS: &str = "
    SELECT count(*) FROM (SELECT FROM evidence.artifact WHERE org = $1 AND trail = $2 LIMIT $3::bigint) a";
pub(crate) const ATTESTATIONS: &str = "
    SELECT count(*) FROM (SELECT FROM evidence.attestation WHERE org = $1 AND trail = $2 LIMIT $3::bigint) a";

/// A text that is stored apart is not read for its size.
const ENTRIES: &str = "
    WITH entry AS (
        SELECT begun AS idx FROM evidence.trail WHERE org = $1 AND id = $2
        UNION ALL SELECT ledger_index FROM evidence.trail_entry WHERE org = $1 AND trail = $2
        UNION ALL SELECT ledger_index FROM evidence.artifact WHERE org = $1 AND trail = $2
        UNION ALL SELECT ledger_index FROM evidence.attestation WHERE org = $1 AND trail = $2)
    SELECT e.idx, coalesce(
            (SELECT octet_length(l.payload) FROM evidence.ledger l WHERE l.org = $1 AND l.idx = e.idx), 0)::bigint
    FROM entry e ORDER BY e.idx";

fn listing(filter: &TrailFilter) -> Listing {
    let conditions = [
        filter.flow.map(|_| OF_FLOW),
        filter.flow_tag.as_ref().map(|_| OF_TAGGED_FLOWS),
        filter.fingerprint.as_ref().map(|_| WITH_FINGERPRINT),
    ];
    Listing {
        from: TRAILS,
        filter: conditions.into_iter().flatten().collect(),
        order: order(filter),
        counted: true,
    }
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
const SEPARATOR: char = '\u{1e}';

/// A fact of [`CONTENTS`]: its index, and the record.
fn trail_fact(text: &str) -> (&str, StoreResult<Current<Trail>>) {
    let (index, payload) = text.split_once(' ').unwrap_or((text, ""));
    let revision = || index.parse().map_err(|_| StoreError::corrupt(format_args!("'{index}' is no index")));
    (index, record(payload).and_then(|record| Ok(Current { revision: revision()?, record })))
}

/// What [`CONTENTS`] found, trail by trail.
fn contents(org: Id, (trails, artifacts, attestations): Contents) -> StoreResult<Vec<TrailContents>> {
    let trails = trails.as_deref().unwrap_or_default().split_terminator(SEPARATOR).map(trail_fact);
    let trails: Vec<Current<Trail>> = readable(org, trails)?;
    let artifacts = array(artifacts)?.into_iter().map(artifacts::Row::artifact).collect();
    let attestations = array(attestations)?.into_iter().map(attestations::Row::attestation).collect();
    Ok(TrailContents::together(trails, artifacts, attestations))
}

#[async_trait]
impl TrailStore for PostgresStore {
    async fn trail(&self, org: Id, flow: Id, name: &str) -> StoreResult<Option<Current<Trail>>> {
        self.trail_by_name(org, flow, name).await
    }

    async fn trails(&self, org: Id, filter: &TrailFilter, request: PageRequest) -> StoreResult<Page<Listed>> {
        let tag = filter.flow_tag.as_ref();
        let values = [
            filter.flow.map(|flow| flow.to_string()),
            tag.map(|tag| tag.key.clone()),
            tag.and_then(|tag| tag.value.clone()),
            filter.fingerprint.clone(),
        ];
        self.listed(org, &listing(filter), request, values.map(Bound::Text).into()).await
    }

    async fn newest_trails(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<Id>> {
        let rows = self.ask_of(org, NEWEST).long().bind(list(flows)).all::<(String,)>().await?;
        rows.into_iter().map(|(trail,)| id(&trail)).collect()
    }

    async fn trail_sizes(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<Listed>> {
        let size = |(trail, bytes, reports): (String, i64, i64)| {
            Ok(Listed { id: id(&trail)?, bytes: unsigned(bytes)? + unsigned(reports)? * REPORT_BYTES })
        };
        let question = self.ask_of(org, SIZES).long().bind(list(trails));
        question.all().await?.into_iter().map(size).collect()
    }

    async fn trail_contents(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<TrailContents>> {
        let question = self.ask_of(org, CONTENTS).long().bind(list(trails));
        let found = question.first_as(move |row: Contents| contents(org, row)).await?;
        Ok(found.unwrap_or_default())
    }

    async fn trail_names(&self, org: Id, trails: &[Id]) -> StoreResult<Vec<(Id, TrailName)>> {
        let rows = self.ask_of(org, NAMES).long().bind(list(trails)).all::<(String, String)>().await?;
        rows.into_iter().map(|(trail, name)| Ok((id(&trail)?, word(&name)?))).collect()
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
        let question = self.ask_of(org, ENTRIES).long().bind(trail.to_string());
        let entry =
            |(index, bytes): (i64, i64)| Ok(TrailEntry { index: unsigned(index)?, bytes: unsigned(bytes)? });
        question.all().await?.into_iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[ignore = "needs PostgreSQL: cargo xtask test"]
    async fn every_list_is_read_by_the_index_that_narrows_it_most() {
        let flow = "00000000-0000-0000-0000-00000000".parse().ok();
        // By a tag or fingerprint the statistics decide.
        let cases = [
            (TrailFilter::default(), ["trail_org", "place <= "]),
            (
                TrailFilter { flow, ..TrailFilter::default() },
                ["trail_flow", "''::text) = $4) AND (flow_place <= "],
            ),
        ];
        for (filter, used) in cases {
            let plan = listing(&filter).plan().await;
            assert!(used.iter().all(|part| plan.contains(part)), "{filter:?}: {plan}");
        }
    }
}
