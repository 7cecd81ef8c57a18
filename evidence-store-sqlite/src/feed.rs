//! Leases and cursors of background work: one statement each, by the writer, so that nobody comes between.

use async_trait::async_trait;
use evidence_core::feed::{Advance, FeedStore, Lease, too_far};
use evidence_core::id::Id;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::db::SqliteStore;
use crate::question::rows;
use crate::rows::{signed, unsigned};
use crate::writer::Job;

const ACQUIRE: &str = "
    INSERT INTO lease AS l (name, holder, expires_at) VALUES ($1, $2, $3)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = CASE
        WHEN l.expires_at > $5 THEN excluded.expires_at ELSE max(l.expires_at, excluded.expires_at) END
    WHERE l.holder = excluded.holder OR l.expires_at <= $4 OR l.expires_at > $5
    RETURNING 1";

const RELEASE: &str = "DELETE FROM lease WHERE name = $1 AND holder = $2 RETURNING 1";

const CURSOR: &str = "
    SELECT position FROM cursor WHERE org = (SELECT key FROM organization WHERE id = $2) AND consumer = $1";

const ADVANCE: &str = "
    INSERT INTO cursor AS c (org, consumer, position)
    SELECT o.key, l.name, $5 FROM lease l JOIN organization o ON o.id = $2
    WHERE l.name = $1 AND l.holder = $3 AND l.expires_at > $6 AND ($4 = 0
        OR EXISTS (SELECT 1 FROM cursor k WHERE k.org = o.key AND k.consumer = l.name AND k.position = $4))
    ON CONFLICT (org, consumer) DO UPDATE SET position = excluded.position WHERE c.position = $4
    RETURNING 1";

/// A statement of this module, for the writer: its own transaction.
#[derive(Debug)]
pub(crate) struct FeedWrite {
    sql: &'static str,
    values: Vec<Value>,
}

impl FeedWrite {
    /// Runs it; answers whether it changed anything.
    pub(crate) fn apply(&self, connection: &Connection) -> rusqlite::Result<bool> {
        rows::<(i64,)>(connection, self.sql, &self.values).map(|rows| !rows.is_empty())
    }
}

impl SqliteStore {
    async fn write_feed(&self, sql: &'static str, values: Vec<Value>) -> StoreResult<bool> {
        let (reply, outcome) = self.queue.outcome();
        self.queue.submit(Job::Feed(FeedWrite { sql, values }, reply), outcome).await
    }
}

#[async_trait]
impl FeedStore for SqliteStore {
    async fn acquire_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        let Lease { name, holder, expires_at } = lease;
        let names = [name.clone(), holder.to_string()].map(Value::from);
        let times = [*expires_at, now, too_far(now)].map(|time| Value::from(time.as_micros()));
        self.write_feed(ACQUIRE, names.into_iter().chain(times).collect()).await
    }

    async fn release_lease(&self, name: &str, holder: Id) -> StoreResult<()> {
        self.write_feed(RELEASE, vec![name.to_owned().into(), holder.to_string().into()]).await.map(drop)
    }

    async fn cursor(&self, consumer: &str, org: Id) -> StoreResult<u64> {
        let position = self.ask(CURSOR).bind(consumer.to_owned()).bind(org.to_string());
        position.first::<(i64,)>().await?.map_or(Ok(0), |(position,)| unsigned(position))
    }

    async fn advance_cursor(&self, advance: &Advance, now: Timestamp) -> StoreResult<bool> {
        let Advance { consumer, org, holder, from, to } = advance;
        if to <= from {
            return Ok(false);
        }
        let names = [consumer.clone(), org.to_string(), holder.to_string()].map(Value::from);
        let numbers = [signed(*from), signed(*to), now.as_micros()].map(Value::from);
        self.write_feed(ADVANCE, names.into_iter().chain(numbers).collect()).await
    }
}
