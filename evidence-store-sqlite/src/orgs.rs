//! Organizations, users, memberships, and who holds a key: what every request asks first.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::auth::{Actor, KeyHash};
use evidence_core::id::Id;
use evidence_core::orgs::{ByName, KeyHolder, Member, OrgRole, OrgStore, Organization, User};
use evidence_core::service_accounts::ServiceAccount;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;
use serde::de::DeserializeOwned;

use crate::db::SqliteStore;
use crate::rows::{Payload, body, id, record, signed, unsigned, word};

pub(crate) const INSERT_ORGANIZATIONS: &str = "
    INSERT INTO organization (key, id, name, record)
    SELECT value->>0, value->>1, value->>2, value->3 FROM json_each($1)";

pub(crate) const INSERT_USERS: &str = "
    INSERT INTO user (org, id, name, record, ledger_index)
    SELECT value->>0, value->>1, value->>2, value->3, value->>4 FROM json_each($1)";

pub(crate) const PUT_MEMBERSHIPS: &str = "
    INSERT INTO membership (org, user, role)
    SELECT value->>0, value->>1, value->>2 FROM json_each($1) WHERE true
    ON CONFLICT (org, user) DO UPDATE SET role = excluded.role";

const ORG_ROLE: &str = "
    SELECT o.record, m.role FROM organization o LEFT JOIN membership m ON m.org = o.key AND m.user = $2
    WHERE o.name = $1";

const USER: &str = "SELECT record FROM user WHERE name = $1";

const USERS: &str = "SELECT name, record FROM user WHERE name > $1 ORDER BY name LIMIT $2";

const ORGANIZATIONS: &str = "SELECT name, record FROM organization WHERE name > $1 ORDER BY name LIMIT $2";

const MEMBERS: &str = "
    SELECT r.ledger_index, m.role, u.record FROM membership m CROSS JOIN user u ON u.id = m.user
    CROSS JOIN record r ON r.org = m.org AND r.kind = 'member' AND r.id = m.user
    WHERE m.org = (SELECT key FROM organization WHERE id = $1) AND m.role IS NOT NULL ORDER BY u.name";

const ANY_ORGANIZATION: &str = "SELECT EXISTS (SELECT 1 FROM organization)";

const KEY_HOLDER: &str = "
    SELECT k.hash, k.owner, k.expires_at, k.revoked_at, o.id, n.id IS NOT NULL, l.payload
    FROM api_key k JOIN organization o ON o.key = k.org
    LEFT JOIN record n ON n.org = k.org AND n.kind = 'service_account' AND n.id = k.owner->>'id'
        AND k.owner->>'kind' = 'service-account'
    LEFT JOIN ledger l ON l.org = n.org AND l.idx = n.ledger_index
    WHERE k.hash = $1 AND (n.id IS NOT NULL OR k.owner->>'kind' = 'user')";

/// A row of [`KEY_HOLDER`].
type HolderRow = (String, String, Option<i64>, Option<i64>, String, bool, Payload);

fn holder(
    (hash, owner, expires_at, revoked_at, org, is_account, account): HolderRow,
) -> StoreResult<KeyHolder> {
    let account: Option<ServiceAccount> = is_account.then(|| account.text().and_then(record)).transpose()?;
    let org = id(&org)?;
    Ok(KeyHolder {
        hash: KeyHash::stored(hash),
        actor: body::<Actor>(&owner)?,
        bound_to: account.map(|account| (org, account.privilege)),
        expires_at: expires_at.map(Timestamp::from_micros),
        revoked_at: revoked_at.map(Timestamp::from_micros),
    })
}

/// Reads a row of [`MEMBERS`].
fn member((revision, role, user): (i64, Payload, Payload)) -> (i64, StoreResult<Current<Member>>) {
    let read = || {
        let record = Member { user: body(user.text()?)?, role: word(role.text()?)? };
        Ok(Current { revision: unsigned(revision)?, record })
    };
    (revision, read())
}

/// Reads a record that is listed in the whole store, by its name.
fn listed<T: DeserializeOwned>((name, record): (String, Payload)) -> (String, StoreResult<T>) {
    (name, record.text().and_then(body))
}

impl SqliteStore {
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
impl OrgStore for SqliteStore {
    async fn org_role(&self, org: &str, user: Id) -> StoreResult<Option<OrgRole>> {
        let question = self.ask(ORG_ROLE).bind(org.to_owned()).bind(user.to_string());
        let Some((organization, role)) = question.first::<(String, Option<String>)>().await? else {
            return Ok(None);
        };
        let role = role.as_deref().map(word).transpose()?;
        Ok(Some(OrgRole { organization: body(&organization)?, role }))
    }

    async fn user(&self, name: &str) -> StoreResult<Option<User>> {
        let user = self.ask(USER).bind(name.to_owned()).first::<(String,)>().await?;
        user.map(|(user,)| body(&user)).transpose()
    }

    async fn users_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<User>> {
        let question = self.ask(USERS).bind(after.to_owned()).bind(signed(limit)).long();
        question.answer(move |rows| ByName::readable(rows.into_iter().map(listed).collect(), limit)).await
    }

    async fn organizations_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<Organization>> {
        let question = self.ask(ORGANIZATIONS).bind(after.to_owned()).bind(signed(limit)).long();
        question.answer(move |rows| ByName::readable(rows.into_iter().map(listed).collect(), limit)).await
    }

    async fn members(&self, org: Id) -> StoreResult<Vec<Current<Member>>> {
        self.ask_of(org, MEMBERS).long().readable_as(org, member).await
    }

    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>> {
        let row = self.ask(KEY_HOLDER).bind(hash.as_str().to_owned()).first::<HolderRow>().await?;
        row.map(holder).transpose()
    }
}
