//! The allowlist. `allowance` has a row for each entry and each withdrawal. `allowed` has the newest of these
//! for each environment and fingerprint, which is the effective one.

use async_trait::async_trait;
use evidence_core::allowlists::{AllowedArtifact, AllowlistEntry, AllowlistStore, EndedAllowlistEntry};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::Listed;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::decode::{listed_record, word};
use crate::driver::Driver;
use crate::sql::{Sql, payload_size};
use crate::store::SqlStore;
use crate::value::{ints, texts};

const ALL: Sql = Sql::portable(concat!(
    "SELECT a.ledger_index, ",
    payload_size!("a"),
    " FROM evidence.allowed a WHERE a.org = $1 ORDER BY a.ledger_index DESC"
));

const IN_FORCE: Sql = Sql::portable(concat!(
    "SELECT a.ledger_index, ",
    payload_size!("a"),
    " FROM evidence.allowed a WHERE a.org = $1 AND a.ends_at > $2 ORDER BY a.ledger_index DESC"
));

const BY_INDEX: Sql = Sql::per_dialect(
    "SELECT w.value, (SELECT l.payload FROM evidence.ledger l WHERE l.org = $1 AND l.idx = w.value)
    FROM json_each($2) w ORDER BY w.value DESC",
    "SELECT w.value, (SELECT l.payload FROM evidence.ledger l WHERE l.org = $1 AND l.idx = w.value)
    FROM UNNEST($2::bigint[]) AS w (value) ORDER BY w.value DESC",
);

/// The environment is part of the subquery, so that every column of the index is used.
const ALLOWED: Sql = Sql::per_dialect(
    "SELECT a.fingerprint, a.ledger_index, a.ends_at FROM json_each($4) w CROSS JOIN allowance a
        ON a.org = $1 AND a.environment = $3 AND a.fingerprint = w.value AND a.ledger_index = (
            SELECT max(b.ledger_index) FROM allowance b
            WHERE b.org = $1 AND b.environment = $3 AND b.fingerprint = w.value AND b.ledger_index < $5)
    WHERE NOT a.withdrawn AND (a.ends_at IS NULL OR a.ends_at > $2)",
    "SELECT a.fingerprint, a.ledger_index, a.ends_at FROM UNNEST($4::text[]) AS w (value) CROSS JOIN LATERAL (
        SELECT * FROM evidence.allowance
        WHERE org = $1 AND environment = $3 AND fingerprint = w.value AND ledger_index < $5
        ORDER BY ledger_index DESC LIMIT 1) a
    WHERE NOT a.withdrawn AND (a.ends_at IS NULL OR a.ends_at > $2)",
);

const SIZE: Sql = Sql::portable(
    "SELECT count(*) FROM (
        SELECT 1 FROM evidence.allowed a WHERE a.org = $1 AND a.environment = $3 AND a.ends_at > $2 LIMIT $4) counted",
);

/// Reads up to the end time of the `$3`-th row, including all rows that end at that time.
const ENDED: Sql = Sql::per_dialect(
    "SELECT a.ends_at, o.name, a.environment, max(a.ledger_index) FROM allowance a CROSS JOIN organization o ON o.key = a.org
    WHERE a.ends_at > $1 AND a.ends_at <= min($2, coalesce((
        SELECT b.ends_at FROM allowance b WHERE b.ends_at > $1 ORDER BY b.ends_at LIMIT 1 OFFSET $3), $2))
    GROUP BY a.ends_at, o.name, a.environment ORDER BY a.ends_at, o.name, a.environment",
    "SELECT a.ends_at, o.name, a.environment, max(a.ledger_index) FROM evidence.allowance a
    CROSS JOIN LATERAL (SELECT name FROM evidence.organization WHERE key = a.org OFFSET 0) o
    WHERE a.ends_at > $1 AND a.ends_at <= least($2, coalesce((
        SELECT b.ends_at FROM evidence.allowance b WHERE b.ends_at > $1 ORDER BY b.ends_at LIMIT 1 OFFSET $3), $2))
    GROUP BY a.ends_at, o.name, a.environment ORDER BY a.ends_at, o.name, a.environment",
);

#[async_trait]
impl<D: Driver> AllowlistStore for SqlStore<D> {
    async fn allowlist_entries_listed(
        &self,
        org: Id,
        in_force_at: Option<Timestamp>,
    ) -> StoreResult<Vec<Listed<u64>>> {
        let listed = |(id, bytes): (u64, u64)| Ok(Listed { id, bytes });
        let query = match in_force_at {
            Some(at) => self.query_org(org, IN_FORCE).bind(at),
            None => self.query_org(org, ALL),
        };
        query.long().all_as(listed).await
    }

    async fn allowlist_entries(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<AllowlistEntry>> {
        self.query_org(org, BY_INDEX).bind(ints(indexes)).long().readable_as(org, listed_record).await
    }

    async fn allowed(
        &self,
        org: Id,
        environment: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
        at: Timestamp,
    ) -> StoreResult<Vec<AllowedArtifact>> {
        let query = self.query_org(org, ALLOWED).bind(at).bind(environment).bind(texts(fingerprints));
        let allowed = |(fingerprint, entry, ends_at): (String, u64, Option<i64>)| {
            let expires_at = ends_at.map(Timestamp::from_micros);
            Ok(AllowedArtifact { fingerprint: word(&fingerprint)?, entry, expires_at })
        };
        query.bind(entries).per_item(fingerprints.len()).all_as(allowed).await
    }

    async fn allowlist_entry_count(
        &self,
        org: Id,
        environment: Id,
        at: Timestamp,
        most: u64,
    ) -> StoreResult<u64> {
        let query = self.query_org(org, SIZE).bind(at).bind(environment).bind(most);
        let count = query.first::<(u64,)>().await?;
        Ok(count.map_or(0, |(count,)| count))
    }

    async fn ended_allowlist_entries(
        &self,
        after: Timestamp,
        until: Timestamp,
        limit: u64,
    ) -> StoreResult<Vec<EndedAllowlistEntry>> {
        let query = self.query(ENDED).bind(after).bind(until).bind(limit.saturating_sub(1)).long();
        let ended = |(at, org, environment, entry): (i64, String, String, u64)| {
            let at = Timestamp::from_micros(at);
            Ok(EndedAllowlistEntry { at, org: word(&org)?, environment: word(&environment)?, entry })
        };
        query.all_as(ended).await
    }
}
