//! Environments: records, and what their reports made of them.

use async_trait::async_trait;
use evidence_core::environments::{EnvironmentStatus, EnvironmentStore, KnownEnvironment};
use evidence_core::id::Id;
use evidence_core::page::{Listed, PageRequest};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::db::SqliteStore;
use crate::rows::{Listing, Order, Payload, once, record, unsigned};

/// A report that comes late in a group does not turn time back.
pub(crate) const PUT_REPORTS: &str = "
    INSERT INTO environment_report (org, environment, at)
    SELECT value->>0, value->>1, value->>2 FROM json_each($1) WHERE true
    ON CONFLICT (environment) DO UPDATE SET at = max(at, excluded.at)";

/// What is answered of an environment `r` with its entry `l`.
macro_rules! columns {
    () => {
        "SELECT r.ledger_index, l.payload, r.archived, s.idx, s.at, s.compliant,
            (SELECT h.at FROM environment_report h WHERE h.environment = r.id),
            (SELECT h.ledger_index FROM record h WHERE h.org = r.org AND h.kind = 'report' AND h.id = r.id)"
    };
}

/// The latest snapshot, by its number.
macro_rules! latest {
    () => {
        "LEFT JOIN ledger l ON l.org = r.org AND l.idx = r.ledger_index
        LEFT JOIN snapshot s ON s.environment = r.id
            AND s.idx = (SELECT max(n.idx) FROM snapshot n WHERE n.environment = r.id)"
    };
}

const ENVIRONMENT: &str = concat!(
    columns!(),
    " FROM name n CROSS JOIN record r ON r.org = n.org AND r.kind = n.kind AND r.id = n.id ",
    latest!(),
    " WHERE n.org = (SELECT key FROM organization WHERE id = $1) AND n.kind = 'environment' AND n.name = $2"
);

const ENVIRONMENTS: &str = concat!(
    columns!(),
    " FROM record r ",
    latest!(),
    " WHERE r.org = (SELECT key FROM organization WHERE id = $1) AND r.kind = 'environment' AND NOT r.archived
    ORDER BY r.name"
);

const BY_ID: &str = concat!(
    columns!(),
    " FROM json_each($2) w CROSS JOIN record r
        ON r.org = (SELECT key FROM organization WHERE id = $1) AND r.kind = 'environment' AND r.id = w.value ",
    latest!()
);

const LISTED: &str = "
    record x WHERE x.org = (SELECT key FROM organization WHERE id = $1) AND x.kind = 'environment' AND NOT x.archived";

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
    Ok(KnownEnvironment { revision, reported, record: record(payload.text()?)?, status, archived })
}

#[async_trait]
impl EnvironmentStore for SqliteStore {
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<KnownEnvironment>> {
        self.ask_of(org, ENVIRONMENT).bind(name.to_owned()).first_as(known).await
    }

    async fn environments(&self, org: Id) -> StoreResult<Vec<KnownEnvironment>> {
        let question = self.ask_of(org, ENVIRONMENTS).long();
        question.readable_as(org, |row: Row| (row.0, known(row))).await
    }

    async fn environments_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let listing = Listing {
            from: LISTED,
            filter: Vec::new(),
            order: Order::By("x.name"),
            narrow: false,
            counted: false,
        };
        Ok(self.listed(org, &listing, PageRequest::ALL, Vec::new()).await?.items)
    }

    async fn environments_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<KnownEnvironment>> {
        let question = self.ask_of(org, BY_ID).bind(once(ids)?).about(ids.len());
        question.readable_as(org, |row: Row| (row.0, known(row))).await
    }
}
