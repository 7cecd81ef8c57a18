//! Leases and cursors of background work: one statement each. Asked again on a dead connection, as questions are, it
//! changes nothing more: only an advance that had happened is then told as one that did not, which its trait allows.

use async_trait::async_trait;
use evidence_core::feed::{Advance, FeedStore, Lease, too_far};
use evidence_core::id::Id;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::db::PostgresStore;
use crate::rows::{signed, unsigned};

const ACQUIRE: &str = "
    INSERT INTO evidence.lease AS l (name, holder, expires_at) VALUES ($1, $2, $3)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = CASE
        WHEN l.expires_at > $5 THEN excluded.expires_at ELSE greatest(l.expires_at, excluded.expires_at) END
    WHERE l.holder = excluded.holder OR l.expires_at <= $4 OR l.expires_at > $5
    RETURNING l.expires_at";

const RELEASE: &str = "DELETE FROM evidence.lease WHERE name = $1 AND holder = $2 RETURNING expires_at";

const CURSOR: &str = "SELECT position FROM evidence.cursor WHERE org = $2 AND consumer = $1";

/// The lease is locked until the statement ends, so that nobody takes it meanwhile.
const ADVANCE: &str = "
    WITH held AS (
        SELECT name FROM evidence.lease WHERE name = $1 AND holder = $3 AND expires_at > $6 FOR SHARE)
    INSERT INTO evidence.cursor AS c (org, consumer, position)
    SELECT o.id, l.name, $5 FROM held l JOIN evidence.organization o ON o.id = $2
    WHERE $4 = 0 OR EXISTS (
        SELECT 1 FROM evidence.cursor k WHERE k.org = o.id AND k.consumer = l.name AND k.position = $4)
    ON CONFLICT (org, consumer) DO UPDATE SET position = excluded.position WHERE c.position = $4
    RETURNING c.position";

#[async_trait]
impl FeedStore for PostgresStore {
    async fn acquire_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        let Lease { name, holder, expires_at } = lease;
        let question = self.ask(ACQUIRE).bind(name.as_str()).bind(holder.to_string());
        let question = question.bind(expires_at.as_micros()).bind(now.as_micros());
        let question = question.bind(too_far(now).as_micros());
        Ok(question.first::<(i64,)>().await?.is_some())
    }

    async fn release_lease(&self, name: &str, holder: Id) -> StoreResult<()> {
        self.ask(RELEASE).bind(name).bind(holder.to_string()).first::<(i64,)>().await.map(drop)
    }

    async fn cursor(&self, consumer: &str, org: Id) -> StoreResult<u64> {
        let position = self.ask(CURSOR).bind(consumer).bind(org.to_string());
        position.first::<(i64,)>().await?.map_or(Ok(0), |(position,)| unsigned(position))
    }

    async fn advance_cursor(&self, advance: &Advance, now: Timestamp) -> StoreResult<bool> {
        let Advance { consumer, org, holder, from, to } = advance;
        if to <= from {
            return Ok(false);
        }
        let question =
            self.ask(ADVANCE).bind(consumer.as_str()).bind(org.to_string()).bind(holder.to_string());
        let question = question.bind(signed(*from)).bind(signed(*to)).bind(now.as_micros());
        Ok(question.first::<(i64,)>().await?.is_some())
    }
}
