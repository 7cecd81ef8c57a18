//! What a store answers about organizations, users, members and the holders of keys.

use async_trait::async_trait;

use crate::auth::actor::{Actor, Role};
use crate::auth::credentials::KeyHash;
use crate::id::Id;
use crate::orgs::record::{Organization, User, UserSettings};
use crate::page::{Page, PageRequest, SortDirection};
use crate::store::entry::{Current, StoredEntry};
use crate::store::error::{StoreResult, skip_corrupt};
use crate::time::Timestamp;

/// A user who has a role in an organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The user.
    pub user: User,
    /// The role there.
    pub role: Role,
}

/// The holder of an API key, as a store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHolder {
    /// The stored hash that was found, to be compared in constant time.
    pub hash: KeyHash,
    /// Who holds it.
    pub actor: Actor,
    /// For a service account, its organization and its present role.
    pub bound_to: Option<(Id, Role)>,
    /// When the key ends: it expires, or its grace period after a rotation is over. `None` for never.
    pub expires_at: Option<Timestamp>,
    /// When the key was revoked, by the clock of the server that did so.
    pub revoked_at: Option<Timestamp>,
}

impl KeyHolder {
    /// Whether the key is neither expired at this time nor revoked. A revocation holds whatever the clock says: it may be set
    /// back, or be behind that of the server that revoked.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A part of what the whole store has, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByName<T> {
    /// What can be read of it.
    pub records: Vec<T>,
    /// The name to go on after, of the last one whether or not it can be read; none where no more come.
    pub more: Option<String>,
}

impl<T> ByName<T> {
    /// The part that was asked for with this limit, of records that each come with their names.
    ///
    /// # Errors
    /// As [`skip_corrupt`].
    pub fn skip_corrupt(found: Vec<(String, StoreResult<T>)>, limit: u64) -> StoreResult<Self> {
        let more = found.last().filter(|_| found.len() as u64 >= limit).map(|(name, _)| name.clone());
        // The log says this in the place of an organization.
        Ok(Self { records: skip_corrupt("all", found)?, more })
    }
}

/// What a store says of a caller and an organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrgRole {
    /// The organization.
    pub organization: Organization,
    /// The user's role in it, if any.
    pub role: Option<Role>,
}

/// Queries about organizations, users and keys.
#[async_trait]
pub trait OrgStore: Send + Sync {
    /// The organization named `org`, found in the whole store, and the role in it of the user with the id `user`: one; `None`
    /// when there is no such organization.
    async fn org_role(&self, org: &str, user: Id) -> StoreResult<Option<OrgRole>>;
    /// The user of this name, found in the whole store: one.
    async fn user(&self, name: &str) -> StoreResult<Option<User>>;
    /// The users of the whole store whose names sort after `after`, by name (bytes): the first `limit`, and where to go on.
    async fn users_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<User>>;
    /// The organizations of the whole store whose names sort after `after`, by name (bytes): the first `limit`, and where to
    /// go on.
    async fn organizations_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<Organization>>;
    /// All users who have a role in the organization, by name (bytes), with the ledger index of the fact that gave it. A
    /// member of whom the store knows no user is passed over.
    async fn members(&self, org: Id) -> StoreResult<Vec<Current<Member>>>;
    /// The users of these ids, found in the whole store: one an id, in any order; unknown ids are passed over.
    async fn users_by_id(&self, ids: &[Id]) -> StoreResult<Vec<User>>;
    /// The entries of the organization's ledger about roles of users (`member_added`, `member_removed`) from index `first` on,
    /// by index: at most `limit`.
    async fn membership_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>>;
    /// The same entries, by index in this direction: a page, and the total.
    async fn membership_page(
        &self,
        org: Id,
        direction: SortDirection,
        request: PageRequest,
    ) -> StoreResult<Page<StoredEntry>>;
    /// What this user has set for themselves, one, with its revision; `org` is their personal organization.
    async fn user_settings(&self, org: Id, user: Id) -> StoreResult<Option<Current<UserSettings>>>;
    /// Who holds the key with this hash, found in the whole store: one. Expired and revoked keys are found too; those of
    /// deleted accounts are not.
    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>>;
}
