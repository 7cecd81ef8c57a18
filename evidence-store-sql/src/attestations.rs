//! Attestations: one narrow row each; the body is in the ledger.

use std::sync::Arc;

use async_trait::async_trait;
use evidence_core::StoreError;
use evidence_core::attestations::{
    Attestation, AttestationRow, AttestationStore, Binding, DecisionFilter, DecisionRow, FlowPosition,
    ListedAttestation, NamedAttestation, TimeRange,
};
use evidence_core::id::Id;
use evidence_core::name::{AttestationName, CommitSha};
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::store::{StoreResult, skip_corrupt};
use evidence_core::time::Timestamp;
use evidence_core::trails::TrailLabel;
use serde::Deserialize;

use crate::decode::{Payload, body, listed_record, nested, record, word};
use crate::driver::Driver;
use crate::listing::{Listing, Order};
use crate::sql::{Sql, for_each, payload, payload_size};
use crate::store::SqlStore;
use crate::value::{Column, Value, signed, texts};
use crate::windows::first_not;

/// The JSON of a row `a` that [`Row`] deserializes.
macro_rules! row_json {
    (sqlite) => {
        "json_array(a.id, a.trail, a.name, a.kind, json(iif(a.is_compliant, 'true', 'false')),
            a.override_info, a.control, a.binding, a.commit_sha, a.at, a.ledger_index)"
    };
    (postgres) => {
        "json_build_array(a.id, a.trail, a.name, a.kind, a.is_compliant, a.override_info, a.control, a.binding,
            a.commit_sha, a.at, a.ledger_index)::text"
    };
}
pub(crate) use row_json;

/// The columns that compliance depends on.
#[derive(Deserialize)]
pub(crate) struct Row(
    Id,
    Id,
    String,
    String,
    bool,
    Option<String>,
    Option<String>,
    #[serde(deserialize_with = "nested")] Binding,
    Option<String>,
    Timestamp,
    u64,
);

impl Row {
    /// The position of the trail in a row.
    pub(crate) const TRAIL: usize = 1;

    pub(crate) fn attestation(self) -> AttestationRow {
        let Self(id, trail, name, kind, is_compliant, override_info, control, binding, commit, at, index) =
            self;
        AttestationRow {
            id,
            trail,
            name,
            kind,
            is_compliant,
            override_info: override_info.map(Arc::from),
            control,
            binding,
            commit,
            at,
            index,
        }
    }
}

const ATTESTATION: Sql = Sql::portable(concat!(
    "SELECT ",
    payload!("a"),
    " FROM evidence.attestation a WHERE a.org = $1 AND a.id = $2"
));

const LABELLED: Sql = Sql::per_dialect(
    concat!(
        "SELECT ",
        payload!("a"),
        ", r.name, t.name FROM evidence.attestation a
        CROSS JOIN evidence.trail t ON t.org = $1 AND t.id = a.trail
        CROSS JOIN evidence.record r ON r.org = $1 AND r.kind = 'flow' AND r.id = a.flow
        WHERE a.org = $1 AND a.id = $2"
    ),
    concat!(
        "SELECT ",
        payload!("a"),
        ", r.name, t.name FROM evidence.attestation a
        CROSS JOIN LATERAL (SELECT name FROM evidence.trail WHERE org = $1 AND id = a.trail OFFSET 0) t
        CROSS JOIN LATERAL (
            SELECT name FROM evidence.record WHERE org = $1 AND id = a.flow AND kind = 'flow' OFFSET 0) r
        WHERE a.org = $1 AND a.id = $2"
    ),
);

const BY_ID: Sql = for_each!(["a.ledger_index, ", payload!("a")], "attestation", "id", "a", "");

const ON_TRAILS: Sql = Sql::per_dialect(
    concat!(
        "SELECT ",
        row_json!(sqlite),
        ", ",
        payload_size!("a"),
        " FROM json_each($2) w
        CROSS JOIN evidence.attestation a ON +a.org = $1 AND a.trail = w.value AND a.name = $3
        ORDER BY a.ledger_index DESC"
    ),
    concat!(
        "SELECT ",
        row_json!(postgres),
        ", ",
        payload_size!("a"),
        " FROM UNNEST($2::text[]) AS w (value) CROSS JOIN LATERAL (
            SELECT * FROM evidence.attestation WHERE org = $1 AND trail = w.value OFFSET 0) a
        WHERE a.name = $3 ORDER BY a.ledger_index DESC"
    ),
);

/// The columns of [`listed_attestation`].
macro_rules! listed {
    () => {
        "SELECT x.id, x.flow, x.flow_ordinal, x.ledger_index, x.name, x.kind, x.is_compliant, x.recorded_at "
    };
}

const BEFORE: Sql = Sql::portable(concat!(
    listed!(),
    "FROM evidence.attestation x WHERE x.org = $1 AND x.ledger_index < $2 ORDER BY x.ledger_index DESC LIMIT $3"
));

/// Selects the newest of each flow, and from these the newest of all flows.
const OF_FLOWS_BEFORE: Sql = Sql::per_dialect(
    concat!(
        listed!(),
        "FROM json_each($2) w CROSS JOIN evidence.attestation x ON x.id IN (
            SELECT n.id FROM evidence.attestation n
            WHERE n.flow = w.value->>0 AND n.flow_ordinal < w.value->>1 ORDER BY n.flow_ordinal DESC LIMIT $3)
        WHERE +x.org = $1 ORDER BY x.ledger_index DESC LIMIT $3"
    ),
    concat!(
        listed!(),
        "FROM UNNEST($2::text[], $3::bigint[]) AS w (flow, before) CROSS JOIN LATERAL (
            SELECT * FROM evidence.attestation
            WHERE org = $1 AND flow = w.flow AND flow_ordinal < w.before ORDER BY flow_ordinal DESC LIMIT $4) x
        ORDER BY x.ledger_index DESC LIMIT $4"
    ),
);

const OF_FLOW: Sql = Sql::per_dialect(
    "evidence.attestation x WHERE +x.org = $1 AND x.flow = $4",
    "evidence.attestation x WHERE x.org = $1 AND x.flow = $4",
);

/// A time window in a flow, as numbers: the first attestation that was not recorded before `$5`, and the one
/// after the last that was not recorded after `$6`.
const WINDOW: [Sql; 2] = [
    Sql::per_dialect(
        first_not!("b.recorded_at < $5", "evidence.attestation", "flow_ordinal" from "1", "+b.org = $1 AND b.flow = $4"),
        first_not!("b.recorded_at < $5", "evidence.attestation", "flow_ordinal" from "1", "b.org = $1 AND b.flow = $4"),
    ),
    Sql::per_dialect(
        first_not!("b.recorded_at <= $6", "evidence.attestation", "flow_ordinal" from "1", "+b.org = $1 AND b.flow = $4"),
        first_not!("b.recorded_at <= $6", "evidence.attestation", "flow_ordinal" from "1", "b.org = $1 AND b.flow = $4"),
    ),
];

/// Returns the list of a flow's attestations, newest first, by their numbers in the flow.
const fn of_flow(time: &TimeRange) -> Listing {
    let order = match time {
        TimeRange { from: None, to: None } => Order::Numbered("x.flow_ordinal", SortDirection::Desc),
        TimeRange { .. } => {
            let [first, end] = WINDOW;
            Order::Range { number: "x.flow_ordinal", first, end }
        }
    };
    Listing { from: OF_FLOW, filter: Vec::new(), order, narrow: false, counted: true }
}

const SIZES: Sql = for_each!(["a.id, ", payload_size!("a")], "attestation", "id", "a", "");

/// Hex digits sort before 'g'.
const COMMIT_TRAILS: Sql = Sql::portable(
    "SELECT c.trail FROM evidence.commit_trail c
    WHERE c.org = $1 AND c.commit_sha = $2 AND c.trail < coalesce($3, 'g') AND ($5 IS NULL OR c.flow = $5)
    ORDER BY c.trail DESC LIMIT $4",
);

/// Uses the index of decisions only, which contains their numbers per control and the filter columns.
const DECISIONS: Sql = Sql::portable("evidence.attestation x WHERE x.org = $1 AND x.control = $4");

/// Selects decisions with columns of that index only, for lists that are filtered by them. The order forces
/// PostgreSQL to use this index; by its statistics it may choose an index of all attestations and fetch each
/// row. A damaged row without a number is excluded.
macro_rules! decisions_by_index {
    ($order:literal) => {
        Sql::per_dialect(
            "evidence.attestation x WHERE x.org = $1 AND x.control = $4 AND +x.control_ordinal IS NOT NULL",
            concat!(
                "(SELECT control_ordinal, is_compliant, at, flow FROM evidence.attestation
                    WHERE org = $1 AND control = $4 AND control_ordinal IS NOT NULL ORDER BY ",
                $order,
                " OFFSET 0) x WHERE true"
            ),
        )
    };
}

const OLDEST_DECISIONS_BY_INDEX: Sql = decisions_by_index!("control_ordinal");
const NEWEST_DECISIONS_BY_INDEX: Sql = decisions_by_index!("control_ordinal DESC");

const DECISION_AT_NUMBER: Sql = Sql::per_dialect(
    "evidence.attestation x ON x.org = $1 AND x.control = $4 AND x.control_ordinal = found.key",
    "LATERAL (
        SELECT * FROM evidence.attestation
        WHERE org = $1 AND control = $4 AND control_ordinal = found.key OFFSET 0) x",
);

/// The JSON that [`Decision`] deserializes.
const DECISION: Sql = Sql::per_dialect(
    "json_array(x.id, x.flow, x.trail, x.name, json(iif(x.is_compliant, 'true', 'false')), x.control_version,
        x.binding, x.at, x.decided_by)",
    "json_build_array(x.id, x.flow, x.trail, x.name, x.is_compliant, x.control_version, x.binding, x.at,
        x.decided_by)::text",
);

#[derive(Deserialize)]
struct Decision(
    Id,
    Id,
    Id,
    AttestationName,
    bool,
    Option<u64>,
    #[serde(deserialize_with = "nested")] Binding,
    Timestamp,
    Option<String>,
);

impl Decision {
    fn row(self) -> StoreResult<DecisionRow> {
        let Self(id, flow, trail, name, is_compliant, control_version, binding, at, by) = self;
        let by = by.ok_or_else(|| StoreError::corrupt("the decision has no actor"))?;
        Ok(DecisionRow { id, flow, trail, name, is_compliant, control_version, binding, at, by })
    }
}

/// Decodes the decisions of a page and skips corrupt ones.
fn decision_rows(org: Id, page: Vec<(i64, Payload)>) -> StoreResult<Vec<DecisionRow>> {
    let decision = |text: &Payload| text.text().and_then(body::<Decision>).and_then(Decision::row);
    skip_corrupt(org, page.into_iter().map(|(index, text)| (index, decision(&text))))
}

const COMPLIANT: Sql = Sql::portable(" AND x.is_compliant");
const NOT_COMPLIANT: Sql = Sql::portable(" AND NOT x.is_compliant");
const FROM: Sql = Sql::portable(" AND x.at >= $5");
const TO: Sql = Sql::portable(" AND x.at <= $6");
const IN_FLOWS: Sql =
    Sql::per_dialect(" AND x.flow IN (SELECT value FROM json_each($7))", " AND x.flow = ANY($7)");

fn decisions(filter: &DecisionFilter) -> Listing {
    let DecisionFilter { is_compliant, from, to, flows, direction } = filter;
    let conditions = [
        is_compliant.map(|is_compliant| if is_compliant { COMPLIANT } else { NOT_COMPLIANT }),
        from.map(|_| FROM),
        to.map(|_| TO),
        flows.as_ref().map(|_| IN_FLOWS),
    ];
    let filter: Vec<_> = conditions.into_iter().flatten().collect();
    let (from, order) = if filter.is_empty() {
        (DECISIONS, Order::Numbered("x.control_ordinal", *direction))
    } else {
        let by_index = match direction {
            SortDirection::Asc => OLDEST_DECISIONS_BY_INDEX,
            SortDirection::Desc => NEWEST_DECISIONS_BY_INDEX,
        };
        (
            by_index,
            Order::Indexed { key: "x.control_ordinal", direction: *direction, row: DECISION_AT_NUMBER },
        )
    };
    Listing { from, filter, order, narrow: false, counted: true }
}

/// Decodes a row of [`ON_TRAILS`].
fn named((json, bytes): (String, u64)) -> StoreResult<NamedAttestation> {
    Ok(NamedAttestation { row: body::<Row>(&json)?.attestation(), bytes })
}

fn as_len(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Decodes a row of [`listed!`].
fn listed_attestation(
    (id, flow, flow_ordinal, index, name, kind, is_compliant, at): (
        Id,
        Id,
        u64,
        u64,
        String,
        String,
        bool,
        Timestamp,
    ),
) -> StoreResult<ListedAttestation> {
    Ok(ListedAttestation { id, flow, flow_ordinal, index, name, kind, is_compliant, at })
}

#[async_trait]
impl<D: Driver> AttestationStore for SqlStore<D> {
    async fn attestation(&self, org: Id, id: Id) -> StoreResult<Option<Attestation>> {
        let query = self.query_org(org, ATTESTATION).bind(id);
        query.first_as(|(payload,): (Payload,)| record(payload.text()?)).await
    }

    async fn labelled_attestation(&self, org: Id, id: Id) -> StoreResult<Option<(Attestation, TrailLabel)>> {
        let labelled = |(payload, flow, trail): (Payload, String, String)| {
            Ok((record(payload.text()?)?, TrailLabel { flow: word(&flow)?, name: word(&trail)? }))
        };
        self.query_org(org, LABELLED).bind(id).first_as(labelled).await
    }

    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>> {
        let query = self.query_org(org, BY_ID).bind(texts(ids)).per_item(ids.len());
        query.readable_as(org, listed_record).await
    }

    async fn attestations_before(
        &self,
        org: Id,
        before: u64,
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>> {
        let query = self.query_org(org, BEFORE).bind(before).bind(limit);
        query.per_item(as_len(limit)).all_as(listed_attestation).await
    }

    async fn flow_attestations_before(
        &self,
        org: Id,
        flows: &[FlowPosition],
        limit: u64,
    ) -> StoreResult<Vec<ListedAttestation>> {
        let columns = vec![
            Column::Texts(flows.iter().map(|of| Some(of.flow.to_string())).collect()),
            Column::Ints(flows.iter().map(|of| Some(signed(of.before))).collect()),
        ];
        let query = self.query_org(org, OF_FLOWS_BEFORE).bind(Value::Columns(columns)).bind(limit);
        query.per_item(flows.len().max(as_len(limit))).all_as(listed_attestation).await
    }

    async fn flow_attestations(
        &self,
        org: Id,
        flow: Id,
        time: &TimeRange,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>> {
        // A missing start is before the first time; a missing end is after the last.
        let from = time.from.map_or(i64::MIN, Timestamp::as_micros);
        let to = time.to.map_or(i64::MAX, Timestamp::as_micros);
        let values = vec![flow.into(), from.into(), to.into()];
        self.listed(org, &of_flow(time), request, values).await
    }

    async fn attestation_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>> {
        let query = self.query_org(org, SIZES).bind(texts(ids)).per_item(ids.len());
        query.all_as(|(id, bytes): (Id, u64)| Ok(Listed { id, bytes })).await
    }

    async fn commit_trails(
        &self,
        org: Id,
        commit: &CommitSha,
        flow: Option<Id>,
        before: Option<Id>,
        limit: u64,
    ) -> StoreResult<Vec<Id>> {
        let query =
            self.query_org(org, COMMIT_TRAILS).bind(commit.as_str()).bind(before).bind(limit).bind(flow);
        query.per_item(as_len(limit)).all_as(|(trail,): (Id,)| Ok(trail)).await
    }

    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<NamedAttestation>> {
        let query = self.query_org(org, ON_TRAILS).bind(texts(trails)).bind(name);
        query.per_item(trails.len()).all_as(named).await
    }

    async fn decisions(
        &self,
        org: Id,
        control: &str,
        filter: &DecisionFilter,
        request: PageRequest,
    ) -> StoreResult<Page<DecisionRow>> {
        let DecisionFilter { from, to, flows, .. } = filter;
        let flows = texts(flows.as_deref().unwrap_or_default());
        let values = vec![control.into(), (*from).into(), (*to).into(), flows];
        self.read_page(org, &decisions(filter), DECISION, decision_rows, request, values).await
    }
}
