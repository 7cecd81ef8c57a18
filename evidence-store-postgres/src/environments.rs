//! Environments: records, and what their reports made of them.

use async_trait::async_trait;
use evidence_core::environments::{EnvironmentStatus, EnvironmentStore, KnownEnvironment};
use evidence_core::id::Id;
use evidence_core::page::{Listed, PageRequest};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::db::PostgresStore;
use crate::rows::{Listing, Order, Payload, each, list, payload, record, text_of, unsigned};

/// A report that comes late does not turn time back.
pub(crate) const PUT_REPORTS: &str = "
    INSERT INTO evidence.environment_report AS h (org, environment, at)
    SELECT r.org, r.environment, max(r.at) FROM go, UNNEST($text, $text, $bigint) AS r (org, environment, at)
    GROUP BY r.org, r.environment
    ON CONFLICT (org, environment) DO UPDATE SET at = greatest(h.at, excluded.at)";

/// What is answered of an environment `r` with its latest snapshot `s`.
macro_rules! columns {
    () => {
        concat!(
            "SELECT r.ledger_index, ",
            payload!("r"),
            ", r.archived, s.idx, s.at, s.compliant,
            (SELECT h.at FROM evidence.environment_report h WHERE h.org = $1 AND h.environment = r.id),
            (SELECT h.ledger_index FROM evidence.record h WHERE h.org = $1 AND h.kind = 'report' AND h.id = r.id)"
        )
    };
}

/// The latest snapshot, by its number; a lateral subquery, so that it is a probe of the index.
macro_rules! latest {
    () => {
        " LEFT JOIN LATERAL (
            SELECT idx, at, compliant FROM evidence.snapshot
            WHERE org = $1 AND environment = r.id ORDER BY idx DESC LIMIT 1) s ON true"
    };
}

pub(crate) const ENVIRONMENT: &str = concat!(
    columns!(),
    " FROM evidence.name n CROSS JOIN LATERAL (
        SELECT * FROM evidence.record WHERE org = $1 AND id = n.id AND kind = 'environment' OFFSET 0) r",
    latest!(),
    " WHERE n.org = $1 AND n.kind = 'environment' AND n.name = $2"
);

const ENVIRONMENTS: &str = concat!(
    columns!(),
    " FROM evidence.record r",
    latest!(),
    " WHERE r.org = $1 AND r.kind || '' = 'environment' AND NOT r.archived ORDER BY r.name"
);

const BY_ID: &str =
    concat!(columns!(), " FROM ", each!("record", "id", "r"), latest!(), " WHERE r.kind = 'environment'");

const LISTED: &str = "evidence.record x WHERE x.org = $1 AND x.kind || '' = 'environment' AND NOT x.archived";

type Row = (i64, Payload, bool, Option<i64>, Option<i64>, Option<bool>, Option<i64>, Option<i64>);

fn known(
    (revision, payload, archived, snapshots, changed_at, compliant, reported_at, reported): Row,
) -> StoreResult<KnownEnvironment> {
    let status = EnvironmentStatus {
        snapshots: snapshots.map_or(Ok(0), unsigned)?,
        changed_at: changed_at.map(Timestamp::from_micros),
        compliant,
        reported_at: reported_at.map(Timestamp::from_micros),
    };
    let (revision, reported) = (unsigned(revision)?, reported.map(unsigned).transpose()?);
    Ok(KnownEnvironment { revision, reported, record: record(text_of(&payload)?)?, status, archived })
}

#[async_trait]
impl EnvironmentStore for PostgresStore {
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<KnownEnvironment>> {
        let row = self.ask_of(org, ENVIRONMENT).bind(name.to_owned()).first().await?;
        row.map(known).transpose()
    }

    async fn environments(&self, org: Id) -> StoreResult<Vec<KnownEnvironment>> {
        let question = self.ask_of(org, ENVIRONMENTS).long();
        question.readable_as(org, |row: Row| (row.0, known(row))).await
    }

    async fn environments_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let listing =
            Listing { from: LISTED, filter: Vec::new(), order: Order::By("x.name"), counted: false };
        Ok(self.listed(org, &listing, PageRequest::ALL, Vec::new()).await?.items)
    }

    async fn environments_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<KnownEnvironment>> {
        let question = self.ask_of(org, BY_ID).long().bind(list(ids));
        question.readable_as(org, |row: Row| (row.0, known(row))).await
    }
}
