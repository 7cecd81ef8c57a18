//! Leases and cursors of background work. Each operation is one statement and therefore atomic. After a lost
//! connection, the driver may resend a statement, which changes nothing more. A resent advance that had
//! already succeeded reports failure, which the trait allows.

use async_trait::async_trait;
use evidence_core::id::Id;
use evidence_core::leases::{Advance, Lease, LeaseStore, latest_lease_end};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::driver::Driver;
use crate::sql::Sql;
use crate::store::SqlStore;

const ACQUIRE: Sql = Sql::per_dialect(
    "INSERT INTO evidence.lease AS l (name, holder, expires_at) VALUES ($1, $2, $3)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = CASE
        WHEN l.expires_at > $5 THEN excluded.expires_at ELSE max(l.expires_at, excluded.expires_at) END
    WHERE l.holder = excluded.holder OR l.expires_at <= $4 OR l.expires_at > $5
    RETURNING 1",
    "INSERT INTO evidence.lease AS l (name, holder, expires_at) VALUES ($1, $2, $3)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = CASE
        WHEN l.expires_at > $5 THEN excluded.expires_at ELSE greatest(l.expires_at, excluded.expires_at) END
    WHERE l.holder = excluded.holder OR l.expires_at <= $4 OR l.expires_at > $5
    RETURNING 1",
);

const RENEW: Sql = Sql::per_dialect(
    "UPDATE evidence.lease AS l SET expires_at = CASE
        WHEN l.expires_at > $4 THEN $3 ELSE max(l.expires_at, $3) END
    WHERE l.name = $1 AND l.holder = $2
    RETURNING 1",
    "UPDATE evidence.lease AS l SET expires_at = CASE
        WHEN l.expires_at > $4 THEN $3 ELSE greatest(l.expires_at, $3) END
    WHERE l.name = $1 AND l.holder = $2
    RETURNING 1",
);

const RELEASE: Sql = Sql::portable("DELETE FROM evidence.lease WHERE name = $1 AND holder = $2 RETURNING 1");

const CURSOR: Sql = Sql::portable("SELECT position FROM evidence.cursor WHERE org = $1 AND consumer = $2");

/// Writes nothing for an organization that does not exist. In PostgreSQL the statement locks the lease until
/// it ends, so nobody else can acquire it meanwhile. In SQLite nobody else writes.
const ADVANCE: Sql = Sql::per_dialect(
    "INSERT INTO evidence.cursor AS c (org, consumer, position)
    SELECT o.key, l.name, $5 FROM evidence.lease l CROSS JOIN evidence.organization o ON o.key = $1
    WHERE l.name = $2 AND l.holder = $3 AND l.expires_at > $6 AND ($4 = 0 OR EXISTS (
        SELECT 1 FROM evidence.cursor k WHERE k.org = $1 AND k.consumer = l.name AND k.position = $4))
    ON CONFLICT (org, consumer) DO UPDATE SET position = excluded.position WHERE c.position = $4
    RETURNING 1",
    "WITH held AS (
        SELECT name FROM evidence.lease WHERE name = $2 AND holder = $3 AND expires_at > $6 FOR SHARE)
    INSERT INTO evidence.cursor AS c (org, consumer, position)
    SELECT o.key, l.name, $5 FROM held l JOIN evidence.organization o ON o.key = $1
    WHERE $4 = 0 OR EXISTS (
        SELECT 1 FROM evidence.cursor k WHERE k.org = $1 AND k.consumer = l.name AND k.position = $4)
    ON CONFLICT (org, consumer) DO UPDATE SET position = excluded.position WHERE c.position = $4
    RETURNING 1",
);

#[async_trait]
impl<D: Driver> LeaseStore for SqlStore<D> {
    async fn acquire_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        // Background work depends on elapsed time. A server whose clock is ahead would abandon deliveries and
        // delete content early.
        self.driver.check_clock(now).await?;
        let Lease { name, holder, expires_at } = lease;
        let query = self.query(ACQUIRE).bind(name.as_str()).bind(*holder);
        query.bind(*expires_at).bind(now).bind(latest_lease_end(now)).change().await
    }

    async fn renew_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        self.driver.check_clock(now).await?;
        let Lease { name, holder, expires_at } = lease;
        let query = self.query(RENEW).bind(name.as_str()).bind(*holder);
        query.bind(*expires_at).bind(latest_lease_end(now)).change().await
    }

    async fn release_lease(&self, name: &str, holder: Id) -> StoreResult<()> {
        self.query(RELEASE).bind(name).bind(holder).change().await.map(drop)
    }

    async fn cursor(&self, consumer: &str, org: Id) -> StoreResult<u64> {
        let position = self.query_org(org, CURSOR).bind(consumer).first::<(u64,)>().await?;
        Ok(position.map_or(0, |(position,)| position))
    }

    async fn advance_cursor(&self, advance: &Advance, now: Timestamp) -> StoreResult<bool> {
        let Advance { consumer, org, holder, from, to } = advance;
        if to <= from {
            return Ok(false);
        }
        let query = self.query_org(*org, ADVANCE).bind(consumer.as_str()).bind(*holder);
        query.bind(*from).bind(*to).bind(now).change().await
    }
}
