//! Environments: records, and the state that results from their reports.

use async_trait::async_trait;
use evidence_core::environments::{EnvironmentStatus, EnvironmentStore, KnownEnvironment, MemberChange};
use evidence_core::id::Id;
use evidence_core::page::{Listed, PageRequest};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::decode::{Payload, record};
use crate::driver::Driver;
use crate::listing::{Listing, Order};
use crate::sql::{Sql, id_bytes, payload};
use crate::store::SqlStore;
use crate::value::{Cell, FromCell, texts};

/// The columns of an environment `r` with its latest snapshot `s`.
macro_rules! columns {
    () => {
        concat!(
            "SELECT r.ledger_index, ",
            payload!("r"),
            ", r.archived, s.idx, s.at, s.compliant, s.events,
            (SELECT h.at FROM evidence.environment_report h WHERE h.org = $1 AND h.environment = r.id),
            (SELECT h.ledger_index FROM evidence.record h WHERE h.org = $1 AND h.kind = 'report' AND h.id = r.id)"
        )
    };
}

/// Joins the latest snapshot, by its number. It is one index probe; PostgreSQL needs a lateral subquery for
/// it.
macro_rules! latest {
    (sqlite) => {
        " LEFT JOIN evidence.snapshot s ON s.environment = r.id
            AND s.idx = (SELECT max(n.idx) FROM evidence.snapshot n WHERE n.environment = r.id)"
    };
    (postgres) => {
        concat!(
            " LEFT JOIN LATERAL (
                SELECT idx, at, compliant, events FROM evidence.snapshot
                WHERE org = $1 AND environment = ",
            id_bytes!("r.id"),
            " ORDER BY idx DESC LIMIT 1) s ON true"
        )
    };
}

const ENVIRONMENT: Sql = Sql::per_dialect(
    concat!(
        columns!(),
        " FROM evidence.name n
        CROSS JOIN evidence.record r ON r.org = $1 AND r.kind = 'environment' AND r.id = n.id",
        latest!(sqlite),
        " WHERE n.org = $1 AND n.kind = 'environment' AND n.name = $2"
    ),
    concat!(
        columns!(),
        " FROM evidence.name n CROSS JOIN LATERAL (
            SELECT * FROM evidence.record WHERE org = $1 AND id = n.id AND kind = 'environment' OFFSET 0) r",
        latest!(postgres),
        " WHERE n.org = $1 AND n.kind = 'environment' AND n.name = $2"
    ),
);

/// Uses the index for lists.
const ARCHIVED: Sql = Sql::per_dialect(
    "SELECT 1 FROM evidence.record r
    WHERE r.org = $1 AND r.kind = 'environment' AND r.name = $2 AND r.archived LIMIT 1",
    "SELECT 1::bigint FROM evidence.record r
    WHERE r.org = $1 AND r.kind || '' = 'environment' AND r.name = $2 AND r.archived LIMIT 1",
);

const MEMBER_CHANGES: Sql = Sql::portable(
    "SELECT m.ledger_index, m.member, m.joined FROM evidence.environment_member m
    WHERE m.org = $1 AND m.environment = $2 ORDER BY m.ledger_index, m.member",
);

const LOGICAL_ENVIRONMENTS: Sql = Sql::per_dialect(
    "SELECT DISTINCT m.environment FROM json_each($2) w
    CROSS JOIN evidence.environment_member m ON m.org = $1 AND m.member = w.value",
    "SELECT DISTINCT m.environment FROM UNNEST($2::text[]) AS w (value)
    CROSS JOIN LATERAL (
        SELECT environment FROM evidence.environment_member WHERE org = $1 AND member = w.value OFFSET 0) m",
);

const ENVIRONMENTS: Sql = Sql::per_dialect(
    concat!(
        columns!(),
        " FROM evidence.record r",
        latest!(sqlite),
        " WHERE r.org = $1 AND r.kind = 'environment' AND NOT r.archived ORDER BY r.name"
    ),
    concat!(
        columns!(),
        " FROM evidence.record r",
        latest!(postgres),
        " WHERE r.org = $1 AND r.kind || '' = 'environment' AND NOT r.archived ORDER BY r.name"
    ),
);

const BY_ID: Sql = Sql::per_dialect(
    concat!(
        columns!(),
        " FROM json_each($2) w
        CROSS JOIN evidence.record r ON r.org = $1 AND r.kind = 'environment' AND r.id = w.value",
        latest!(sqlite)
    ),
    concat!(
        columns!(),
        " FROM UNNEST($2::text[]) AS w (value) CROSS JOIN LATERAL (
            SELECT * FROM evidence.record WHERE org = $1 AND id = w.value AND kind = 'environment' OFFSET 0) r",
        latest!(postgres)
    ),
);

const LISTED: Sql = Sql::per_dialect(
    "evidence.record x WHERE x.org = $1 AND x.kind = 'environment' AND NOT x.archived",
    "evidence.record x WHERE x.org = $1 AND x.kind || '' = 'environment' AND NOT x.archived",
);

/// A row of an environment. The numbers are as stored, so that a damaged one does not hide other
/// environments.
type Row = (
    i64,
    Payload,
    bool,
    Option<i64>,
    Option<Timestamp>,
    Option<bool>,
    Option<i64>,
    Option<Timestamp>,
    Option<i64>,
);

fn known(
    (revision, payload, archived, snapshots, changed_at, compliant, events, reported_at, reported): Row,
) -> StoreResult<KnownEnvironment> {
    let unsigned = |number| u64::from_cell(Cell::Int(number));
    let snapshots = snapshots.map_or(Ok(0), unsigned)?;
    let events = events.map_or(Ok(0), unsigned)?;
    let status = EnvironmentStatus { snapshots, events, changed_at, compliant, reported_at };
    let (revision, reported) = (unsigned(revision)?, reported.map(unsigned).transpose()?);
    Ok(KnownEnvironment { revision, reported, record: record(payload.text()?)?, status, archived })
}

fn listed(row: Row) -> (i64, StoreResult<KnownEnvironment>) {
    (row.0, known(row))
}

#[async_trait]
impl<D: Driver> EnvironmentStore for SqlStore<D> {
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<KnownEnvironment>> {
        self.query_org(org, ENVIRONMENT).bind(name).first_as(known).await
    }

    async fn archived_environment(&self, org: Id, name: &str) -> StoreResult<bool> {
        Ok(self.query_org(org, ARCHIVED).bind(name).first::<(u64,)>().await?.is_some())
    }

    async fn environments(&self, org: Id) -> StoreResult<Vec<KnownEnvironment>> {
        self.query_org(org, ENVIRONMENTS).long().readable_as(org, listed).await
    }

    async fn environments_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let order = Order::By(Sql::portable("x.name"));
        let listing = Listing { from: LISTED, filter: Vec::new(), order, narrow: false, counted: false };
        Ok(self.listed(org, &listing, PageRequest::ALL, Vec::new()).await?.items)
    }

    async fn member_changes(&self, org: Id, environment: Id) -> StoreResult<Vec<MemberChange>> {
        let change = |(entry, member, joined)| Ok(MemberChange { entry, member, joined });
        self.query_org(org, MEMBER_CHANGES).bind(environment).long().all_as(change).await
    }

    async fn logical_environments(&self, org: Id, members: &[Id]) -> StoreResult<Vec<Id>> {
        let query = self.query_org(org, LOGICAL_ENVIRONMENTS).bind(texts(members)).per_item(members.len());
        query.all_as(|(environment,): (Id,)| Ok(environment)).await
    }

    async fn environments_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<KnownEnvironment>> {
        let query = self.query_org(org, BY_ID).bind(texts(ids)).per_item(ids.len());
        query.readable_as(org, listed).await
    }
}
