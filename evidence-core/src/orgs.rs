//! Organizations, users and memberships: who there is. Every other record belongs to one organization.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::{Actor, ActorKind, KeyHash, Role, Scope};
use crate::error::{Resource, Result};
use crate::id::Id;
use crate::name::OrgName;
use crate::operation::{Json, Method, Operation};
use crate::service::Context;
use crate::store::{Current, StoreResult, readable};
use crate::time::{Seconds, Timestamp};

/// An organization: the boundary of access, and of one ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Organization {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the store.
    pub name: OrgName,
    /// Whether it is shared or one user's own.
    pub kind: OrgKind,
    /// When it was created.
    pub created_at: Timestamp,
}

/// The two kinds of organizations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OrgKind {
    /// Several users and service accounts with roles.
    Shared,
    /// One user's, named as the user.
    Personal,
}

/// A person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user's id.
    pub id: Id,
    /// The login name, which is also the name of the personal organization.
    pub name: OrgName,
    /// When the user was created.
    pub created_at: Timestamp,
}

impl User {
    /// The user, as facts remember who did something.
    pub fn actor(&self) -> Actor {
        Actor { id: self.id, name: self.name.to_string(), kind: ActorKind::User }
    }
}

/// A user's role in an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The user.
    pub user: Id,
    /// The role there.
    pub role: Role,
}

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
    /// When the key ends; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// When the key was revoked; it may lie in the future, after a rotation.
    pub revoked_at: Option<Timestamp>,
}

impl KeyHolder {
    /// Whether the key is neither expired nor revoked at this time.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        [self.expires_at, self.revoked_at].into_iter().flatten().all(|end| now < end)
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
    /// As [`readable`].
    pub fn readable(found: Vec<(String, StoreResult<T>)>, limit: u64) -> StoreResult<Self> {
        let more = found.last().filter(|_| found.len() as u64 >= limit).map(|(name, _)| name.clone());
        // The log says this in the place of an organization.
        Ok(Self { records: readable("all", found)?, more })
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
    /// Who holds the key with this hash, found in the whole store: one. Expired and revoked keys are found too; those of
    /// deleted accounts are not.
    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>>;
}

impl Context<'_> {
    /// The organization that the request concerns.
    pub(crate) async fn organization(&self) -> Result<Organization> {
        let name = &self.org_access()?.name;
        let org_role = self.store().org_role(name.as_str(), self.caller().actor.id).await?;
        Ok(org_role.ok_or_else(|| self.missing(Resource::Organization, name.as_str()))?.organization)
    }
}

/// An organization.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Organization")]
pub struct OrganizationView {
    /// Its name.
    pub name: OrgName,
    /// Whether it is shared, or one user's own.
    pub kind: OrgKind,
    /// Always false: there is nothing experimental to turn on. Older clients look for it.
    pub experimental_features_enabled: bool,
    /// When it was created, in epoch seconds.
    pub created_at: Seconds,
    /// When it last changed, in epoch seconds: nothing of it changes, so this is `created_at`.
    pub last_modified_at: Seconds,
}

impl From<Organization> for OrganizationView {
    fn from(organization: Organization) -> Self {
        let Organization { name, kind, created_at, .. } = organization;
        Self {
            name,
            kind,
            experimental_features_enabled: false,
            created_at: created_at.seconds(),
            // Nothing of an organization can change yet.
            last_modified_at: created_at.seconds(),
        }
    }
}

/// Gets an organization. Organizations are created by the operator of the host, and not over this API.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetOrganization {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for GetOrganization {
    const NAME: &'static str = "get_organization";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/organizations/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets an organization";
    type Body = ();
    type Output = Json<OrganizationView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        Ok(Json(cx.organization().await?.into()))
    }
}
