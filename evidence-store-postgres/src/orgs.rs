//! Organizations, users, memberships, and who holds a key: what every request asks first.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::auth::{Actor, KeyHash};
use evidence_core::id::Id;
use evidence_core::orgs::{ByName, KeyHolder, Member, OrgRole, OrgStore, Organization, User};
use evidence_core::service_accounts::ServiceAccount;
use evidence_core::store::{StoreResult, readable};
use evidence_core::time::Timestamp;
use serde::de::DeserializeOwned;

use crate::db::PostgresStore;
use crate::rows::{Payload, body, id, payload, record, signed, text_of, unsigned, word};

pub(crate) const INSERT_ORGANIZATIONS: &str = "
    INSERT INTO evidence.organization (id, name, record) SELECT r.* FROM go, UNNEST($text, $text, $text) r";

pub(crate) const INSERT_USERS: &str = "
    INSERT INTO evidence.user (org, id, name, record, ledger_index)
    SELECT r.* FROM go, UNNEST($text, $text, $text, $text, $bigint) r";

pub(crate) const PUT_MEMBERSHIPS: &str = "
    INSERT INTO evidence.membership (org, \"user\", role) SELECT r.* FROM go, UNNEST($text, $text, $text) r
    ON CONFLICT (org, \"user\") DO UPDATE SET role = excluded.role";

pub(crate) const ORG_ROLE: &str = "
    SELECT o.record, m.role
    FROM evidence.organization o LEFT JOIN evidence.membership m ON m.org = o.id AND m.user = $2
    WHERE o.name = $1";

const USER: &str = "SELECT record FROM evidence.user WHERE name = $1";

const USERS: &str = "SELECT name, record FROM evidence.user WHERE name > $1 ORDER BY name LIMIT $2";

const ORGANIZATIONS: &str =
    "SELECT name, record FROM evidence.organization WHERE name > $1 ORDER BY name LIMIT $2";

const MEMBERS: &str = "
    SELECT (SELECT r.ledger_index FROM evidence.record r WHERE r.org = m.org AND r.id = m.user AND r.kind = 'member'),
        m.role, u.record
    FROM evidence.membership m CROSS JOIN LATERAL (SELECT * FROM evidence.user WHERE id = m.user OFFSET 0) u
    WHERE m.org = $1 AND m.role IS NOT NULL ORDER BY u.name";

const ANY_ORGANIZATION: &str = "SELECT EXISTS (SELECT 1 FROM evidence.organization)";

pub(crate) const KEY_HOLDER: &str = concat!(
    "SELECT k.hash, k.owner::text, k.expires_at, k.revoked_at, k.org, n.id IS NOT NULL AS is_account, ",
    payload!("n"),
    " AS account
    FROM evidence.api_key k
    LEFT JOIN LATERAL (SELECT * FROM evidence.record WHERE org = k.org AND id = k.owner_id OFFSET 0) n
        ON n.kind = 'service_account' AND k.owner->>'kind' = 'service-account'
    WHERE k.hash = $1 AND (n.id IS NOT NULL OR k.owner->>'kind' = 'user')"
);

#[derive(sqlx::FromRow)]
struct HolderRow {
    hash: String,
    owner: String,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
    org: String,
    is_account: bool,
    account: Payload,
}

impl HolderRow {
    fn holder(self) -> StoreResult<KeyHolder> {
        let account: Option<ServiceAccount> =
            self.is_account.then(|| text_of(&self.account).and_then(record)).transpose()?;
        let org = id(&self.org)?;
        Ok(KeyHolder {
            hash: KeyHash::stored(self.hash),
            actor: body::<Actor>(&self.owner)?,
            bound_to: account.map(|account| (org, account.privilege)),
            expires_at: self.expires_at.map(Timestamp::from_micros),
            revoked_at: self.revoked_at.map(Timestamp::from_micros),
        })
    }
}

/// Reads a row of [`MEMBERS`].
fn member((revision, role, user): (i64, String, String)) -> (i64, StoreResult<Current<Member>>) {
    let read = || {
        let record = Member { user: body(&user)?, role: word(&role)? };
        Ok(Current { revision: unsigned(revision)?, record })
    };
    (revision, read())
}

/// Reads a record that is listed in the whole store, by its name.
fn listed<T: DeserializeOwned>((name, record): (String, String)) -> (String, StoreResult<T>) {
    (name, body(&record))
}

impl PostgresStore {
    /// Whether nobody has seeded the store yet: there is no organization.
    ///
    /// # Errors
    /// [`evidence_core::StoreError`] when the store cannot be read.
    pub async fn is_empty(&self) -> StoreResult<bool> {
        let any = self.ask(ANY_ORGANIZATION).first::<(bool,)>().await?;
        Ok(any.is_none_or(|(any,)| !any))
    }
}

#[async_trait]
impl OrgStore for PostgresStore {
    async fn org_role(&self, org: &str, user: Id) -> StoreResult<Option<OrgRole>> {
        let question = self.ask(ORG_ROLE).bind(org).bind(user.to_string());
        let Some((organization, role)) = question.first::<(String, Option<String>)>().await? else {
            return Ok(None);
        };
        let role = role.as_deref().map(word).transpose()?;
        Ok(Some(OrgRole { organization: body(&organization)?, role }))
    }

    async fn user(&self, name: &str) -> StoreResult<Option<User>> {
        let user = self.ask(USER).bind(name).first::<(String,)>().await?;
        user.map(|(user,)| body(&user)).transpose()
    }

    async fn users_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<User>> {
        let users = self.ask(USERS).bind(after).bind(signed(limit)).all().await?;
        ByName::readable(users.into_iter().map(listed).collect(), limit)
    }

    async fn organizations_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<Organization>> {
        let organizations = self.ask(ORGANIZATIONS).bind(after).bind(signed(limit)).all().await?;
        ByName::readable(organizations.into_iter().map(listed).collect(), limit)
    }

    async fn members(&self, org: Id) -> StoreResult<Vec<Current<Member>>> {
        let members = self.ask_of(org, MEMBERS).long().all().await?;
        readable(org, members.into_iter().map(member))
    }

    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>> {
        let row = self.ask(KEY_HOLDER).bind(hash.as_str()).first::<HolderRow>().await?;
        row.map(HolderRow::holder).transpose()
    }
}
