//! The queries about organizations, users, members and key holders that a store answers.

use async_trait::async_trait;

use crate::auth::actor::{Actor, Role};
use crate::auth::credentials::KeyHash;
use crate::id::Id;
use crate::orgs::record::{Organization, User, UserSettings};
use crate::page::{Page, PageRequest, SortDirection};
use crate::store::entry::{Current, StoredEntry};
use crate::store::error::{StoreResult, skip_corrupt};
use crate::time::Timestamp;

/// A user with a role in an organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The user.
    pub user: User,
    /// The role there.
    pub role: Role,
}

/// The holder of an API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHolder {
    /// The stored hash that was found. Compare it in constant time.
    pub hash: KeyHash,
    /// The user or service account that holds the key.
    pub actor: Actor,
    /// For a service account, its organization and its present role.
    pub bound_to: Option<(Id, Role)>,
    /// When the key ends, by expiry or because its grace period after a rotation is over; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// When the key was revoked, by the clock of the server that revoked it.
    pub revoked_at: Option<Timestamp>,
}

impl KeyHolder {
    /// Returns whether the key is neither expired at this time nor revoked. A revocation holds regardless of
    /// the clock, which may be set back or be behind that of the revoking server.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A part of a store-wide list, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByName<T> {
    /// The readable records.
    pub records: Vec<T>,
    /// The name after which the list continues: that of the last record, readable or not. `None` if there are
    /// no more.
    pub more: Option<String>,
}

impl<T> ByName<T> {
    /// Returns the part for this limit, from records with their names.
    ///
    /// # Errors
    /// As [`skip_corrupt`].
    pub fn skip_corrupt(found: Vec<(String, StoreResult<T>)>, limit: u64) -> StoreResult<Self> {
        let more = found.last().filter(|_| found.len() as u64 >= limit).map(|(name, _)| name.clone());
        // The log shows this instead of an organization.
        Ok(Self { records: skip_corrupt("all", found)?, more })
    }
}

/// An organization, with a caller's role in it.
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
    /// Returns the organization of this name in the whole store, and the role of `user` in it; `None` if
    /// there is no such organization.
    async fn org_role(&self, org: &str, user: Id) -> StoreResult<Option<OrgRole>>;
    /// Returns the user of this name in the whole store.
    async fn user(&self, name: &str) -> StoreResult<Option<User>>;
    /// Returns the users of the whole store whose names sort after `after`, sorted by name (bytes): the first
    /// `limit`, and the position to continue.
    async fn users_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<User>>;
    /// Returns the organizations of the whole store whose names sort after `after`, sorted by name (bytes):
    /// the first `limit`, and the position to continue.
    async fn organizations_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<Organization>>;
    /// Returns all users with a role in the organization, sorted by name (bytes), with the ledger index of
    /// the fact that gave the role. Members whose user is unknown to the store are skipped.
    async fn members(&self, org: Id) -> StoreResult<Vec<Current<Member>>>;
    /// Returns the users of these ids in the whole store, one per id, in any order. Unknown ids are skipped.
    async fn users_by_id(&self, ids: &[Id]) -> StoreResult<Vec<User>>;
    /// Returns the entries of the organization's ledger about users' roles (`member_added`, `member_removed`)
    /// from index `first` on, sorted by index: at most `limit`.
    async fn membership_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>>;
    /// Returns one page of the same entries, and their total. The order is by index in this direction.
    async fn membership_page(
        &self,
        org: Id,
        direction: SortDirection,
        request: PageRequest,
    ) -> StoreResult<Page<StoredEntry>>;
    /// Returns the settings of this user, with their revision. `org` is the user's personal organization.
    async fn user_settings(&self, org: Id, user: Id) -> StoreResult<Option<Current<UserSettings>>>;
    /// Returns the holder of the key with this hash in the whole store. Expired and revoked keys are found
    /// too; those of deleted accounts are not.
    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>>;
}
