//! Actions: records with a name and a number, and the delivery state of their targets.

use async_trait::async_trait;
use evidence_core::actions::{Action, ActionStore, StoredUrl};
use evidence_core::id::Id;
use evidence_core::leases::HeldLease;
use evidence_core::notifications::{Channel, Delivery, DeliveryStore};
use evidence_core::page::{Listed, PageRequest};
use evidence_core::store::{StoreResult, distinct};
use evidence_core::time::Timestamp;
use evidence_core::{Current, Key, StoreError};

use crate::decode::word;
use crate::driver::Driver;
use crate::listing::{Listing, Order};
use crate::sql::{Sql, for_each};
use crate::store::SqlStore;
use crate::value::{Value, texts};

const KIND: &str = "action";

const LISTED: Sql = Sql::per_dialect(
    "evidence.record x WHERE x.org = $1 AND x.kind = 'action' AND NOT x.archived",
    "evidence.record x WHERE x.org = $1 AND x.kind || '' = 'action' AND NOT x.archived",
);

/// The lists' name column contains the number, with leading zeros.
const GREATEST: Sql = Sql::per_dialect(
    "SELECT max(r.name) FROM evidence.record r WHERE r.org = $1 AND r.kind = 'action'",
    "SELECT (SELECT r.name FROM evidence.record r WHERE r.org = $1 AND r.kind || '' = 'action'
        ORDER BY r.name DESC LIMIT 1)",
);

const STORED_URLS: Sql = for_each!(["u.id, u.content"], "secret_url", "id", "u", "");

#[async_trait]
impl<D: Driver> ActionStore for SqlStore<D> {
    async fn action(&self, org: Id, name: &str) -> StoreResult<Option<Current<Action>>> {
        // Names are looked up as clients send them. A stored number begins with `#`, which no name does.
        if name.starts_with('#') { Ok(None) } else { self.by_name(org, KIND, name).await }
    }

    async fn action_numbered(&self, org: Id, number: u64) -> StoreResult<Option<Current<Action>>> {
        self.by_name(org, KIND, &Key::ActionNumber(number).name()).await
    }

    async fn actions_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let order = Order::By(Sql::portable("x.name"));
        let listing = Listing { from: LISTED, filter: Vec::new(), order, narrow: false, counted: false };
        Ok(self.listed(org, &listing, PageRequest::ALL, Vec::new()).await?.items)
    }

    async fn actions_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Action>>> {
        self.by_ids(org, KIND, ids).await
    }

    async fn greatest_action_number(&self, org: Id) -> StoreResult<u64> {
        let greatest = self.query_org(org, GREATEST).first::<(Option<String>,)>().await?;
        let greatest = greatest.and_then(|(greatest,)| greatest);
        greatest.map_or(Ok(0), |number| number.parse().map_err(StoreError::corrupt))
    }

    async fn secret_urls(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<(Id, StoredUrl)>> {
        let query =
            self.query_org(org, STORED_URLS).bind(texts(&distinct(ids.iter().copied()))).per_item(ids.len());
        query.all_as(|(id, kept): (Id, String)| Ok((id, StoredUrl::stored(kept)))).await
    }
}

const DELIVERIES: Sql = Sql::per_dialect(
    "SELECT $3, d.target, d.mail, d.due_at, d.state, d.revision FROM json_each($2) w
    CROSS JOIN evidence.delivery d ON d.org = $1 AND d.target = w.value",
    "SELECT $3::text, d.target, d.mail, d.due_at, d.state, d.revision FROM UNNEST($2::text[]) AS w (value) CROSS JOIN LATERAL (
        SELECT * FROM evidence.delivery WHERE org = $1 AND target = w.value OFFSET 0) d",
);

/// Finds the organizations with waiting deliveries one by one, each with one index probe, whatever the number
/// of deliveries. The due deliveries of an organization are then read in the order of its index, up to the
/// limit.
const DUE: Sql = Sql::per_dialect(
    "WITH RECURSIVE waiting (org) AS (
        SELECT (
            SELECT n.org FROM delivery n INDEXED BY delivery_due
            WHERE n.mail = $4 AND n.org > coalesce($1, -1) AND n.due_at IS NOT NULL ORDER BY n.org LIMIT 1)
        UNION ALL
        SELECT (
            SELECT n.org FROM delivery n INDEXED BY delivery_due
            WHERE n.mail = $4 AND n.org > w.org AND n.due_at IS NOT NULL ORDER BY n.org LIMIT 1)
        FROM waiting w WHERE w.org IS NOT NULL)
    SELECT o.id, d.target, d.mail, d.due_at, d.state, d.revision
    FROM delivery d INDEXED BY delivery_due CROSS JOIN organization o ON o.key = d.org
    WHERE d.mail = $4 AND d.due_at <= $2 AND d.org = (
        SELECT w.org FROM waiting w
        WHERE EXISTS (
                SELECT 1 FROM delivery n INDEXED BY delivery_due
                WHERE n.mail = $4 AND n.org = w.org AND n.due_at <= $2)
            AND EXISTS (SELECT 1 FROM organization g WHERE g.key = w.org)
        LIMIT 1)
    ORDER BY d.due_at, d.target LIMIT $3",
    "WITH RECURSIVE waiting (org) AS (
        SELECT (
            SELECT n.org FROM evidence.delivery n
            WHERE n.mail = $4 AND n.org > coalesce($1, '') AND n.due_at IS NOT NULL ORDER BY n.org LIMIT 1)
        UNION ALL
        SELECT (
            SELECT n.org FROM evidence.delivery n
            WHERE n.mail = $4 AND n.org > w.org AND n.due_at IS NOT NULL ORDER BY n.org LIMIT 1)
        FROM waiting w WHERE w.org IS NOT NULL)
    SELECT o.id, d.target, d.mail, d.due_at, d.state, d.revision
    FROM evidence.delivery d CROSS JOIN LATERAL (SELECT id FROM evidence.organization WHERE key = d.org OFFSET 0) o
    WHERE d.mail = $4 AND d.due_at <= $2 AND d.org = (
        SELECT w.org FROM waiting w
        WHERE EXISTS (
                SELECT 1 FROM evidence.delivery n WHERE n.mail = $4 AND n.org = w.org AND n.due_at <= $2)
            AND EXISTS (SELECT 1 FROM evidence.organization g WHERE g.key = w.org)
        LIMIT 1)
    ORDER BY d.due_at, d.target LIMIT $3",
);

/// In PostgreSQL, a required lease is locked until the statement ends, so nobody else can acquire it
/// meanwhile. In SQLite nobody else writes.
const PUT: Sql = Sql::per_dialect(
    "INSERT INTO evidence.delivery AS d (org, target, mail, due_at, state, revision)
    SELECT o.key, $2, $8, $3, $4, $5 + 1 FROM evidence.organization o
    WHERE o.key = $1 AND ($5 = 0 OR EXISTS (
        SELECT 1 FROM evidence.delivery k WHERE k.org = $1 AND k.target = $2 AND k.revision = $5))
        AND ($6 IS NULL OR EXISTS (SELECT 1 FROM evidence.lease l WHERE l.name = $6 AND l.holder = $7))
    ON CONFLICT (org, target) DO UPDATE SET
        due_at = excluded.due_at, state = excluded.state, revision = excluded.revision
    WHERE d.revision = $5
    RETURNING 1",
    "WITH held AS (SELECT name FROM evidence.lease WHERE name = $6 AND holder = $7 FOR SHARE)
    INSERT INTO evidence.delivery AS d (org, target, mail, due_at, state, revision)
    SELECT o.key, $2, $8, $3, $4, $5 + 1 FROM evidence.organization o
    WHERE o.key = $1 AND ($5 = 0 OR EXISTS (
        SELECT 1 FROM evidence.delivery k WHERE k.org = $1 AND k.target = $2 AND k.revision = $5))
        AND ($6::text IS NULL OR EXISTS (SELECT 1 FROM held))
    ON CONFLICT (org, target) DO UPDATE SET
        due_at = excluded.due_at, state = excluded.state, revision = excluded.revision
    WHERE d.revision = $5
    RETURNING 1",
);

const FORGET: Sql = Sql::portable("DELETE FROM evidence.delivery WHERE org = $1 AND target = $2 RETURNING 1");

/// The stored row of a target: the organization, the target, and the rest.
type Row = (String, String, bool, Option<Timestamp>, String, u64);

/// Decodes a delivery. A corrupt row is logged and skipped, so that it does not block others.
fn readable((org, target, mail, due_at, state, revision): Row) -> Option<Delivery> {
    let read = || {
        let state = serde_json::from_str(&state).map_err(StoreError::corrupt)?;
        let channel = if mail { Channel::Mail } else { Channel::Http };
        Ok(Delivery { org: word(&org)?, target: word(&target)?, channel, due_at, state, revision })
    };
    let unread = |error: &StoreError| tracing::warn!(%error, org, target, "a delivery cannot be read");
    read().inspect_err(unread).ok()
}

#[async_trait]
impl<D: Driver> DeliveryStore for SqlStore<D> {
    async fn deliveries(&self, org: Id, targets: &[Id]) -> StoreResult<Vec<Delivery>> {
        let query = self.query_org(org, DELIVERIES).bind(texts(targets)).bind(org.to_string());
        let rows = query.per_item(targets.len()).all::<Row>().await?;
        Ok(rows.into_iter().filter_map(readable).collect())
    }

    async fn due_deliveries(
        &self,
        channel: Channel,
        now: Timestamp,
        after: Option<Id>,
        limit: u64,
    ) -> StoreResult<Option<(Id, Vec<Delivery>)>> {
        let rows = self
            .query(DUE)
            .bind(after.map_or(Value::NoOrg, Value::Org))
            .bind(now)
            .bind(limit)
            .bind(channel == Channel::Mail)
            .all::<Row>()
            .await?;
        let Some((org, ..)) = rows.first() else { return Ok(None) };
        Ok(Some((word(org)?, rows.into_iter().filter_map(readable).collect())))
    }

    async fn put_delivery(&self, delivery: &Delivery, lease: Option<&HeldLease>) -> StoreResult<bool> {
        let Delivery { org, target, channel, due_at, state, revision } = delivery;
        let state = serde_json::to_string(state).map_err(|error| StoreError::Failed(error.into()))?;
        let query = self.query_org(*org, PUT).bind(*target).bind(*due_at).bind(state).bind(*revision);
        let query = query.bind(lease.map(|lease| lease.name.as_str())).bind(lease.map(|lease| lease.holder));
        let query = query.bind(*channel == Channel::Mail);
        query.change().await
    }

    async fn forget_delivery(&self, org: Id, target: Id) -> StoreResult<()> {
        self.query_org(org, FORGET).bind(target).change().await.map(drop)
    }
}
