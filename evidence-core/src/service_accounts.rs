//! Service accounts and their API keys: principals that are not people, each in one shared organization.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::{Actor, ActorKind, Role, Scope};
use crate::error::{Error, Resource, Result};
use crate::fact::{Fact, Guard, Key, RecordKind, UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::{OrgName, ServiceAccountName};
use crate::operation::{Created, Json, Method, Operation};
use crate::orgs::OrgKind;
use crate::service::{Context, Draft};
use crate::shared::Text;
use crate::store::{Current, StoreResult};
use crate::time::{Timestamp, WholeSeconds};

/// A service account as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ServiceAccount {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: ServiceAccountName,
    /// What it is for.
    pub description: Option<String>,
    /// Its role.
    pub privilege: Role,
    /// Who created it.
    pub created_by: Actor,
    /// When.
    pub created_at: Timestamp,
    /// What a newer version of the program recorded beside.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(ServiceAccount);

/// An API key as it is recorded: everything but the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ApiKeyRecord {
    /// Its id.
    pub id: Id,
    /// Whose it is.
    pub owner: Actor,
    /// What it is for.
    pub description: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it ends; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// When it stops or stopped working before its time.
    pub revoked_at: Option<Timestamp>,
    /// The SHA-256 of the stored hash.
    pub hash_sha256: String,
    /// What a newer version of the program recorded beside.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(ApiKeyRecord);

/// Queries about service accounts and their keys.
#[async_trait]
pub trait ServiceAccountStore: Send + Sync {
    /// The service account of this name, one, with its revision.
    async fn service_account(&self, org: Id, name: &str) -> StoreResult<Option<Current<ServiceAccount>>>;
    /// All service accounts of the organization, by name (bytes).
    async fn service_accounts(&self, org: Id) -> StoreResult<Vec<ServiceAccount>>;
    /// The key of this id, one, with its revision; also one that no longer works.
    async fn api_key(&self, org: Id, id: Id) -> StoreResult<Option<Current<ApiKeyRecord>>>;
    /// All keys of this owner that work at this time, oldest first by `created_at`, then by id.
    async fn api_keys(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<Vec<Current<ApiKeyRecord>>>;
    /// How many keys of this owner work at this time: all are counted, those too whose records are damaged.
    async fn api_key_count(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<u64>;
}

impl ServiceAccount {
    /// The account, as facts remember it.
    pub(crate) fn actor(&self) -> Actor {
        Actor { id: self.id, name: self.name.to_string(), kind: ActorKind::ServiceAccount }
    }
}

impl Context<'_> {
    /// The service account of this name, or [`Error::NotFound`].
    pub(crate) async fn service_account(&self, name: &ServiceAccountName) -> Result<Current<ServiceAccount>> {
        let account = self.store().service_account(self.org()?, name.as_str()).await?;
        Ok(account.ok_or_else(|| self.missing(Resource::ServiceAccount, name.as_str()))?)
    }

    /// The service account of this name, for a caller who may manage it.
    pub(crate) async fn managed_account(&self, name: &ServiceAccountName) -> Result<Current<ServiceAccount>> {
        let account = self.service_account(name).await?;
        if may_manage(&self.caller().actor, self.role()?, &account.record) {
            Ok(account)
        } else {
            Err(Error::Forbidden)
        }
    }

    /// The caller's role in the organization.
    fn role(&self) -> Result<Role> {
        self.org_access()?.role.ok_or(Error::Forbidden)
    }

    /// Nobody grants more than they have.
    fn may_grant(&self, privilege: Role) -> Result<()> {
        if privilege <= self.role()? { Ok(()) } else { Err(Error::Forbidden) }
    }
}

/// Administrators manage every service account, others those they created; not beyond their own role, though, because
/// whoever may make a key of an account has its privilege.
fn may_manage(caller: &Actor, role: Role, account: &ServiceAccount) -> bool {
    role == Role::Admin || (account.created_by.id == caller.id && account.privilege <= role)
}

/// A service account: a program that calls the API with keys of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ServiceAccount")]
pub struct ServiceAccountView {
    /// Its name, unique in the organization.
    pub name: ServiceAccountName,
    /// What people see: the name.
    pub display_name: String,
    /// Its role in the organization.
    pub privilege: Role,
    /// What it is for; null where nothing was said.
    pub description: Option<String>,
    /// The id of the user or service account that created it.
    pub creating_user_id: Id,
    /// When it was created, in epoch seconds.
    pub created_at: WholeSeconds,
    /// Always false: the service creates no accounts for webhooks.
    pub for_webhook: bool,
}

impl From<ServiceAccount> for ServiceAccountView {
    fn from(account: ServiceAccount) -> Self {
        let ServiceAccount { name, description, privilege, created_by, created_at, .. } = account;
        Self {
            display_name: name.to_string(),
            name,
            privilege,
            description,
            creating_user_id: created_by.id,
            created_at: created_at.whole_seconds(),
            for_webhook: false,
        }
    }
}

/// Lists the service accounts of an organization, by name.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListServiceAccounts {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for ListServiceAccounts {
    const NAME: &'static str = "list_service_accounts";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/service-accounts/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the service accounts of an organization";
    type Body = ();
    type Output = Json<Vec<ServiceAccountView>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let accounts = cx.store().service_accounts(cx.org()?).await?;
        Ok(Json(accounts.into_iter().map(ServiceAccountView::from).collect()))
    }
}

/// Creates a service account; its keys are created separately. Nobody gives a role above their own: 403. A name that
/// is taken is 400, and so is a personal organization, which has none.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct CreateServiceAccount {
    /// The organization's name.
    pub org: OrgName,
}

/// What a service account is created with.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ServiceAccountPostInput")]
pub struct ServiceAccountInput {
    /// Its name, which no other service account of the organization has.
    pub name: ServiceAccountName,
    /// What it is for.
    pub description: Option<Text<512>>,
    /// Its role: `reader` when left out.
    #[serde(default = "least_privilege")]
    pub privilege: Role,
}

const fn least_privilege() -> Role {
    Role::Reader
}

impl Operation for CreateServiceAccount {
    const NAME: &'static str = "create_service_account";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/service-accounts/{org}";
    const SCOPE: Scope = Scope::Report;
    const SUMMARY: &'static str = "Creates a service account";
    type Body = Json<ServiceAccountInput>;
    type Output = Created<ServiceAccountView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        if cx.organization().await?.kind == OrgKind::Personal {
            let text = format!("'{}' is personal; service accounts exist in shared organizations", self.org);
            return Err(Error::invalid("org", text));
        }
        cx.may_grant(input.privilege)?;
        cx.retry(|| create(&input, cx)).await.map(|account| Created(account.into()))
    }
}

async fn create(input: &ServiceAccountInput, cx: &Context<'_>) -> Result<ServiceAccount> {
    let name = &input.name;
    if cx.store().service_account(cx.org()?, name.as_str()).await?.is_some() {
        return Err(Error::invalid("name", format!("A service account named '{name}' already exists")));
    }
    let record = ServiceAccount {
        id: cx.new_id(),
        name: name.clone(),
        description: input.description.clone().map(Text::into_string),
        privilege: input.privilege,
        created_by: cx.actor(),
        created_at: cx.now(),
        unknown: UnknownFields::default(),
    };
    let fact = Fact::ServiceAccountCreated { record: record.clone() };
    cx.record(Draft::of(fact, Guard::Vacant(Key::ServiceAccount(name.clone())))).await?;
    Ok(record)
}

/// Gets a service account, without its keys.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetServiceAccount {
    /// The organization's name.
    pub org: OrgName,
    /// The service account's name.
    pub name: ServiceAccountName,
}

impl Operation for GetServiceAccount {
    const NAME: &'static str = "get_service_account";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/service-accounts/{org}/{name}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets a service account";
    type Body = ();
    type Output = Json<ServiceAccountView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        Ok(Json(cx.service_account(&self.name).await?.record.into()))
    }
}

/// Updates the description and the role of a service account. What is left out stays. An administrator may do it for
/// every account, others for those that they created, and nobody gives a role above their own: 403.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PatchServiceAccount {
    /// The organization's name.
    pub org: OrgName,
    /// The service account's name.
    pub name: ServiceAccountName,
}

/// What of a service account changes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ServiceAccountPatchInput")]
pub struct ServiceAccountPatch {
    /// The new description; null clears it, left out it stays.
    #[serde(default, deserialize_with = "sent")]
    #[schemars(with = "Option<Text<512>>")]
    pub description: Option<Option<Text<512>>>,
    /// The new role; null or left out, it stays.
    pub privilege: Option<Role>,
}

/// Tells null, `Some(None)`, from absent, `None`.
fn sent<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer).map(Some)
}

impl ServiceAccountPatch {
    fn apply(&self, account: &ServiceAccount) -> ServiceAccount {
        let mut patched = account.clone();
        if let Some(description) = &self.description {
            patched.description = description.clone().map(Text::into_string);
        }
        patched.privilege = self.privilege.unwrap_or(patched.privilege);
        patched
    }
}

impl Operation for PatchServiceAccount {
    const NAME: &'static str = "update_service_account";
    const METHOD: Method = Method::Patch;
    const PATH: &'static str = "/service-accounts/{org}/{name}";
    const SCOPE: Scope = Scope::Report;
    const SUMMARY: &'static str = "Updates the description and the privilege of a service account";
    type Body = Json<ServiceAccountPatch>;
    type Output = Json<ServiceAccountView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        cx.retry(|| patch(&self.name, &input, cx)).await.map(|account| Json(account.into()))
    }
}

async fn patch(
    name: &ServiceAccountName,
    input: &ServiceAccountPatch,
    cx: &Context<'_>,
) -> Result<ServiceAccount> {
    let Current { revision, record } = cx.managed_account(name).await?;
    let patched = input.apply(&record);
    cx.may_grant(patched.privilege)?;
    if patched != record {
        let fact = Fact::ServiceAccountUpdated { record: patched.clone() };
        let guard = Guard::Revision(RecordKind::ServiceAccount, record.id, revision);
        cx.record(Draft::of(fact, guard)).await?;
    }
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::id::SystemRandom;

    fn somebody(name: &str) -> Actor {
        let id = Id::new(Timestamp::from_seconds(1), &SystemRandom);
        Actor { id, name: name.to_owned(), kind: ActorKind::User }
    }

    fn account(created_by: &Actor, privilege: Role) -> ServiceAccount {
        ServiceAccount {
            id: Id::new(Timestamp::from_seconds(2), &SystemRandom),
            name: "ci".parse().unwrap(),
            description: Some("builds".to_owned()),
            privilege,
            created_by: created_by.clone(),
            created_at: Timestamp::from_seconds(2),
            unknown: UnknownFields::default(),
        }
    }

    #[test]
    fn administrators_manage_every_account_and_others_those_they_created_up_to_their_own_role() {
        let (jane, joe) = (somebody("jane"), somebody("joe"));
        let table = [
            (&joe, Role::Admin, Role::Admin, true),
            (&joe, Role::Member, Role::Reader, false),
            (&jane, Role::Member, Role::Member, true),
            (&jane, Role::Member, Role::Admin, false),
            (&jane, Role::Snapshotter, Role::Snapshotter, true),
            (&jane, Role::Snapshotter, Role::Member, false),
        ];
        for (caller, role, privilege, expected) in table {
            let found = may_manage(caller, role, &account(&jane, privilege));
            assert_eq!(found, expected, "{} as {role:?} manages jane's {privilege:?}", caller.name);
        }
    }

    #[test]
    fn a_patch_tells_null_from_absent() {
        let before = account(&somebody("jane"), Role::Member);
        let table = [
            (json!({}), Some("builds"), Role::Member),
            (json!({"description": null}), None, Role::Member),
            (json!({"description": ""}), Some(""), Role::Member),
            (json!({"description": "tests", "privilege": null}), Some("tests"), Role::Member),
            (json!({"privilege": "reader"}), Some("builds"), Role::Reader),
            (json!({"other": 1}), Some("builds"), Role::Member),
        ];
        for (body, description, privilege) in table {
            let patch: ServiceAccountPatch = crate::decode::from_value(&body).unwrap();
            let after = patch.apply(&before);
            assert_eq!((after.description.as_deref(), after.privilege), (description, privilege), "{body}");
        }
    }
}
