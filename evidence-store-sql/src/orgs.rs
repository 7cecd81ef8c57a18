//! Organizations, users, memberships, and the holders of API keys: the first queries of every request.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::auth::{Actor, KeyHash};
use evidence_core::id::Id;
use evidence_core::ledger::{Hash, Salt};
use evidence_core::orgs::{ByName, KeyHolder, Member, OrgRole, OrgStore, Organization, User, UserSettings};
use evidence_core::page::{Page, PageRequest, SortDirection};
use evidence_core::service_accounts::ServiceAccount;
use evidence_core::store::{StoreResult, StoredEntry};
use evidence_core::time::Timestamp;
use serde::de::DeserializeOwned;

use crate::decode::{Payload, body, record, word};
use crate::driver::Driver;
use crate::ledger::{effective_at, entry, entry_columns};
use crate::sql::Sql;
use crate::store::SqlStore;
use crate::value::{Cell, FromCell, texts};

const SETTINGS: &str = "user_settings";

const ORG_ROLE: Sql = Sql::portable(
    "SELECT o.record, m.role
    FROM evidence.organization o LEFT JOIN evidence.membership m ON m.org = o.key AND m.user = $2
    WHERE o.name = $1",
);

const USER: Sql = Sql::portable("SELECT record FROM evidence.user WHERE name = $1");

const USERS: Sql =
    Sql::portable("SELECT name, record FROM evidence.user WHERE name > $1 ORDER BY name LIMIT $2");

const ORGANIZATIONS: Sql =
    Sql::portable("SELECT name, record FROM evidence.organization WHERE name > $1 ORDER BY name LIMIT $2");

const MEMBERS: Sql = Sql::per_dialect(
    "SELECT r.ledger_index, m.role, u.record
    FROM evidence.membership m CROSS JOIN evidence.user u ON u.id = m.user
    CROSS JOIN evidence.record r ON r.org = $1 AND r.kind = 'member' AND r.id = m.user
    WHERE m.org = $1 AND m.role IS NOT NULL ORDER BY u.name",
    "SELECT r.ledger_index, m.role, u.record
    FROM evidence.membership m CROSS JOIN LATERAL (SELECT * FROM evidence.user WHERE id = m.user OFFSET 0) u
    CROSS JOIN LATERAL (
        SELECT ledger_index FROM evidence.record WHERE org = $1 AND id = m.user AND kind = 'member' OFFSET 0) r
    WHERE m.org = $1 AND m.role IS NOT NULL ORDER BY u.name",
);

const USERS_BY_ID: Sql = Sql::per_dialect(
    "SELECT u.name, u.record FROM json_each($1) w CROSS JOIN evidence.user u ON u.id = w.value",
    "SELECT u.name, u.record FROM UNNEST($1::text[]) AS w (value)
    CROSS JOIN LATERAL (SELECT * FROM evidence.user WHERE id = w.value OFFSET 0) u",
);

/// Uses an index of these entries only. The ledger's own index would read all others too.
const MEMBERSHIP_ENTRIES: Sql = Sql::per_dialect(
    concat!(
        "SELECT ",
        entry_columns!(),
        " FROM evidence.ledger l INDEXED BY ledger_member
        WHERE l.org = $1 AND l.kind IN ('member_added', 'member_removed') AND l.idx >= $2 ORDER BY l.idx LIMIT $3"
    ),
    concat!(
        "SELECT ",
        entry_columns!(),
        " FROM evidence.ledger l
        WHERE l.org = $1 AND l.kind IN ('member_added', 'member_removed') AND l.idx + 0 >= $2
        ORDER BY l.idx + 0 LIMIT $3"
    ),
);

/// Selects the total, and a page of `$2` entries after `$3`, in either direction.
macro_rules! membership_page {
    ($index:literal, $order:literal, $direction:literal) => {
        concat!(
            "WITH total AS MATERIALIZED (
                SELECT count(*) AS n FROM evidence.ledger l ",
            $index,
            " WHERE l.org = $1 AND l.kind IN ('member_added', 'member_removed')),
            page AS MATERIALIZED (
                SELECT l.*, ",
            effective_at!(),
            " AS effective_at FROM evidence.ledger l ",
            $index,
            " WHERE l.org = $1 AND l.kind IN ('member_added', 'member_removed')
                ORDER BY ",
            $order,
            $direction,
            " LIMIT $2 OFFSET $3)
            SELECT (SELECT n FROM total), x.idx, x.kind, x.at, x.effective_at, x.actor, x.payload_hash, x.leaf_hash, x.salt, x.payload
            FROM (SELECT 1) AS one LEFT JOIN page x ON true
            ORDER BY x.idx",
            $direction
        )
    };
}

const MEMBERSHIP_ASCENDING: Sql = Sql::per_dialect(
    membership_page!("INDEXED BY ledger_member", "l.idx", ""),
    membership_page!("", "l.idx + 0", ""),
);

const MEMBERSHIP_DESCENDING: Sql = Sql::per_dialect(
    membership_page!("INDEXED BY ledger_member", "l.idx", " DESC"),
    membership_page!("", "l.idx + 0", " DESC"),
);

/// A row of these pages: the total, and an entry if the page has one.
type MembershipRow = (
    u64,
    Option<u64>,
    Option<String>,
    Option<Timestamp>,
    Option<Timestamp>,
    Option<String>,
    Option<Hash>,
    Option<Hash>,
    Option<Salt>,
    Payload,
);

fn membership_page(rows: Vec<MembershipRow>) -> StoreResult<Page<StoredEntry>> {
    let total = rows.first().map_or(0, |(total, ..)| *total);
    let entry = |(_, index, kind, at, effective_at, actor, digest, leaf, salt, payload): MembershipRow| {
        Some(entry((index?, kind?, at?, effective_at?, actor?, digest?, leaf?, salt?, payload)))
    };
    Ok(Page { items: rows.into_iter().filter_map(entry).collect::<StoreResult<_>>()?, total })
}

const ANY_ORGANIZATION: Sql = Sql::portable("SELECT EXISTS (SELECT 1 FROM evidence.organization)");

/// This query finds the organization, so it has no organization condition.
const KEY_HOLDER: Sql = Sql::per_dialect(
    "SELECT k.hash, k.owner, k.expires_at, k.revoked_at, o.id, n.id IS NOT NULL,
        (SELECT l.payload FROM evidence.ledger l WHERE l.org = n.org AND l.idx = n.ledger_index)
    FROM evidence.api_key k CROSS JOIN evidence.organization o ON o.key = k.org
    LEFT JOIN evidence.record n ON n.org = k.org AND n.kind = 'service_account' AND n.id = k.owner_id
        AND k.owner->>'kind' = 'service-account' AND NOT n.archived
    WHERE k.hash = $1 AND (n.id IS NOT NULL OR k.owner->>'kind' = 'user')",
    "SELECT k.hash, k.owner::text, k.expires_at, k.revoked_at, k.org, n.id IS NOT NULL,
        (SELECT l.payload FROM evidence.ledger l WHERE l.org = n.org AND l.idx = n.ledger_index)
    FROM evidence.api_key k
    LEFT JOIN LATERAL (SELECT * FROM evidence.record WHERE org = k.org AND id = k.owner_id OFFSET 0) n
        ON n.kind = 'service_account' AND k.owner->>'kind' = 'service-account' AND NOT n.archived
    WHERE k.hash = $1 AND (n.id IS NOT NULL OR k.owner->>'kind' = 'user')",
);

/// A row of [`KEY_HOLDER`].
type HolderRow = (String, String, Option<Timestamp>, Option<Timestamp>, Id, bool, Payload);

fn holder(
    (hash, owner, expires_at, revoked_at, org, is_account, account): HolderRow,
) -> StoreResult<KeyHolder> {
    let account: Option<ServiceAccount> = is_account.then(|| account.text().and_then(record)).transpose()?;
    Ok(KeyHolder {
        hash: KeyHash::stored(hash),
        actor: body::<Actor>(&owner)?,
        bound_to: account.map(|account| (org, account.privilege)),
        expires_at,
        revoked_at,
    })
}

/// Decodes a row of [`MEMBERS`].
fn member((revision, role, user): (i64, Payload, Payload)) -> (i64, StoreResult<Current<Member>>) {
    let read = || {
        let record = Member { user: body(user.text()?)?, role: word(role.text()?)? };
        Ok(Current { revision: u64::from_cell(Cell::Int(revision))?, record })
    };
    (revision, read())
}

/// Decodes a record of a list over the whole store, with its name.
fn listed<T: DeserializeOwned>((name, record): (String, Payload)) -> (String, StoreResult<T>) {
    (name, record.text().and_then(body))
}

/// Decodes a list with at most `limit` records and skips corrupt ones.
fn by_name<T: DeserializeOwned>(rows: Vec<(String, Payload)>, limit: u64) -> StoreResult<ByName<T>> {
    ByName::skip_corrupt(rows.into_iter().map(listed).collect(), limit)
}

impl<D: Driver> SqlStore<D> {
    /// Returns whether the store has no organization yet, and so is not seeded.
    ///
    /// # Errors
    /// Returns a [`evidence_core::StoreError`] if the store cannot be read.
    pub async fn is_empty(&self) -> StoreResult<bool> {
        let any = self.query(ANY_ORGANIZATION).first::<(bool,)>().await?;
        Ok(any.is_none_or(|(any,)| !any))
    }
}

#[async_trait]
impl<D: Driver> OrgStore for SqlStore<D> {
    async fn org_role(&self, org: &str, user: Id) -> StoreResult<Option<OrgRole>> {
        let role = |(organization, role): (String, Option<String>)| {
            let role = role.as_deref().map(word).transpose()?;
            Ok(OrgRole { organization: body(&organization)?, role })
        };
        self.query(ORG_ROLE).bind(org).bind(user).first_as(role).await
    }

    async fn user(&self, name: &str) -> StoreResult<Option<User>> {
        self.query(USER).bind(name).first_as(|(user,): (String,)| body(&user)).await
    }

    async fn users_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<User>> {
        let query = self.query(USERS).bind(after).bind(limit).long();
        query.answer(move |rows| by_name(rows, limit)).await
    }

    async fn organizations_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<Organization>> {
        let query = self.query(ORGANIZATIONS).bind(after).bind(limit).long();
        query.answer(move |rows| by_name(rows, limit)).await
    }

    async fn members(&self, org: Id) -> StoreResult<Vec<Current<Member>>> {
        self.query_org(org, MEMBERS).long().readable_as(org, member).await
    }

    async fn users_by_id(&self, ids: &[Id]) -> StoreResult<Vec<User>> {
        let query = self.query(USERS_BY_ID).bind(texts(ids)).long();
        query.answer(|rows: Vec<(String, Payload)>| Ok(by_name(rows, u64::MAX)?.records)).await
    }

    async fn membership_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        let query = self.query_org(org, MEMBERSHIP_ENTRIES).bind(first).bind(limit);
        query.long().all_as(entry).await
    }

    async fn membership_page(
        &self,
        org: Id,
        direction: SortDirection,
        request: PageRequest,
    ) -> StoreResult<Page<StoredEntry>> {
        let statement = match direction {
            SortDirection::Asc => MEMBERSHIP_ASCENDING,
            SortDirection::Desc => MEMBERSHIP_DESCENDING,
        };
        let query = self.query_org(org, statement).bind(request.limit).bind(request.offset);
        query.long().answer(membership_page).await
    }

    async fn user_settings(&self, org: Id, user: Id) -> StoreResult<Option<Current<UserSettings>>> {
        self.by_id(org, SETTINGS, user).await
    }

    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>> {
        self.query(KEY_HOLDER).bind(hash.as_str()).first_as(holder).await
    }
}
