//! Organizations, users, memberships, and who holds a key: what every request asks first.

use async_trait::async_trait;
use evidence_core::auth::{Actor, KeyHash};
use evidence_core::id::Id;
use evidence_core::orgs::{KeyHolder, Membership, OrgStore, Organization, Standing, User};
use evidence_core::service_accounts::ServiceAccount;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::db::PostgresStore;
use crate::rows::{Rows, Spot, Table, body, id, payload, record, word};

pub(crate) const INSERT_ORGANIZATIONS: &str = "
    INSERT INTO evidence.organization (id, name, record) SELECT r.* FROM go, UNNEST($text, $text, $text) r";

pub(crate) const INSERT_USERS: &str = "
    INSERT INTO evidence.user (id, name, record, ledger_index)
    SELECT r.* FROM go, UNNEST($text, $text, $text, $bigint) r";

pub(crate) const PUT_MEMBERSHIPS: &str = "
    INSERT INTO evidence.membership (org, \"user\", role) SELECT r.* FROM go, UNNEST($text, $text, $text) r
    ON CONFLICT (org, \"user\") DO UPDATE SET role = excluded.role";

pub(crate) const STANDING: &str = "
    SELECT o.record, m.role
    FROM evidence.organization o LEFT JOIN evidence.membership m ON m.org = o.id AND m.user = $2
    WHERE o.name = $1";

const USER: &str = "SELECT record FROM evidence.user WHERE name = $1";

const ANY_ORGANIZATION: &str = "SELECT EXISTS (SELECT 1 FROM evidence.organization)";

pub(crate) const KEY_HOLDER: &str = concat!(
    "SELECT k.hash, k.owner::text, k.expires_at, k.revoked_at, k.org, ",
    payload!("n"),
    " AS account
    FROM evidence.api_key k
    LEFT JOIN LATERAL (SELECT * FROM evidence.named WHERE org = k.org AND id = k.owner_id OFFSET 0) n
        ON n.kind = 'service_account' AND k.owner->>'kind' = 'service-account'
    WHERE k.hash = $1 AND (n.id IS NOT NULL OR k.owner->>'kind' = 'user')"
);

pub(crate) fn created(record: &Organization, rows: &mut Rows) -> serde_json::Result<()> {
    rows.push(Table::Organization, &(record.id, &record.name, record))
}

pub(crate) fn user_created(spot: Spot, record: &User, rows: &mut Rows) -> serde_json::Result<()> {
    rows.push(Table::User, &(record.id, &record.name, record, spot.index))
}

pub(crate) fn member_added(spot: Spot, record: &Membership, rows: &mut Rows) -> serde_json::Result<()> {
    rows.push(Table::Membership, &(spot.org, record.user, record.role))
}

#[derive(sqlx::FromRow)]
struct HolderRow {
    hash: String,
    owner: String,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
    org: String,
    account: Option<String>,
}

impl HolderRow {
    fn holder(self) -> StoreResult<KeyHolder> {
        let account: Option<ServiceAccount> = self.account.as_deref().map(record).transpose()?;
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
    async fn standing(&self, org: &str, user: Id) -> StoreResult<Option<Standing>> {
        let question = self.ask(STANDING).bind(org).bind(user.to_string());
        let Some((organization, role)) = question.first::<(String, Option<String>)>().await? else {
            return Ok(None);
        };
        let role = role.as_deref().map(word).transpose()?;
        Ok(Some(Standing { organization: body(&organization)?, role }))
    }

    async fn user(&self, name: &str) -> StoreResult<Option<User>> {
        let user = self.ask(USER).bind(name).first::<(String,)>().await?;
        user.map(|(user,)| body(&user)).transpose()
    }

    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>> {
        let row = self.ask(KEY_HOLDER).bind(hash.as_str()).first::<HolderRow>().await?;
        row.map(HolderRow::holder).transpose()
    }
}
