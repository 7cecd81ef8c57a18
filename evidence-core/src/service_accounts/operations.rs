//! Operations on service accounts, and the permissions for them.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::{Actor, Role, Scope};
use crate::bounded::Text;
use crate::context::{Context, Draft};
use crate::decode::UnknownFields;
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::name::{OrgName, ServiceAccountName};
use crate::operation::{Acknowledged, Created, Json, Method, Operation};
use crate::orgs::record::OrgKind;
use crate::service_accounts::record::ServiceAccount;
use crate::service_accounts::view::ServiceAccountView;
use crate::store::entry::Current;

impl Context<'_> {
    /// Returns the service account of this name, or [`Error::NotFound`].
    pub(crate) async fn service_account(&self, name: &ServiceAccountName) -> Result<Current<ServiceAccount>> {
        let account = self.store().service_account(self.org()?, name.as_str()).await?;
        Ok(account.ok_or_else(|| self.missing(Resource::ServiceAccount, name.as_str()))?)
    }

    /// Returns the service account of this name if the caller may manage it.
    pub(crate) async fn managed_account(&self, name: &ServiceAccountName) -> Result<Current<ServiceAccount>> {
        let account = self.service_account(name).await?;
        if may_manage(&self.caller().actor, self.role()?, &account.record) {
            Ok(account)
        } else {
            Err(Error::Forbidden)
        }
    }

    /// Returns the caller's role in the organization.
    fn role(&self) -> Result<Role> {
        self.org_access()?.role.ok_or(Error::Forbidden)
    }

    /// Refuses to grant a role above the caller's own.
    fn may_grant(&self, privilege: Role) -> Result<()> {
        if privilege <= self.role()? { Ok(()) } else { Err(Error::Forbidden) }
    }
}

/// Returns whether the caller may manage the account. Administrators manage every account; others manage
/// those they created. The account's role must not exceed the caller's, because creating a key gives the
/// account's privilege.
fn may_manage(caller: &Actor, role: Role, account: &ServiceAccount) -> bool {
    role == Role::Admin || (account.created_by.id == caller.id && account.privilege <= role)
}

/// Lists the service accounts of an organization, sorted by name.
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

/// Creates a service account; its keys are created separately. A role above the caller's own is 403. A name
/// that is already in use is 400. A personal organization cannot have service accounts: 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct CreateServiceAccount {
    /// The organization's name.
    pub org: OrgName,
}

/// The document that creates a service account.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ServiceAccountPostInput")]
pub struct ServiceAccountInput {
    /// Its name, unique among the organization's service accounts.
    pub name: ServiceAccountName,
    /// A description of its purpose.
    pub description: Option<Text<512>>,
    /// Its role. Defaults to `reader`.
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
    cx.record(Draft::of(fact, Precondition::Vacant(Key::ServiceAccount(name.clone())))).await?;
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

/// Updates the description and the role of a service account. Fields that are left out keep their values.
/// Administrators can update every account; others can update accounts that they created. A role above the
/// caller's own is 403.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PatchServiceAccount {
    /// The organization's name.
    pub org: OrgName,
    /// The service account's name.
    pub name: ServiceAccountName,
}

/// The document that changes a service account.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ServiceAccountPatchInput")]
pub struct ServiceAccountPatch {
    /// The new description. Null clears it; left out, it stays.
    #[serde(default)]
    #[schemars(with = "Option<Text<512>>")]
    pub description: FieldPatch<Text<512>>,
    /// The new role. Null or left out keeps the present one.
    pub privilege: Option<Role>,
}

/// A change of an optional field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FieldPatch<T> {
    /// The field is absent, and keeps its value.
    #[default]
    Keep,
    /// The field is null, and loses its value.
    Clear,
    /// The field gets this value.
    Set(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FieldPatch<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Clear, Self::Set))
    }
}

impl ServiceAccountPatch {
    fn apply(&self, account: &ServiceAccount) -> ServiceAccount {
        let mut patched = account.clone();
        match &self.description {
            FieldPatch::Keep => {}
            FieldPatch::Clear => patched.description = None,
            FieldPatch::Set(description) => patched.description = Some(description.clone().into_string()),
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
        let precondition = Precondition::Revision(RecordKind::ServiceAccount, record.id, revision);
        cx.record(Draft::of(fact, precondition)).await?;
    }
    Ok(patched)
}

/// Deletes a service account. Its keys stop working immediately, and its name becomes free. Records of its
/// actions keep its name. Administrators can delete every account; others can delete accounts that they
/// created.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct DeleteServiceAccount {
    /// The organization's name.
    pub org: OrgName,
    /// The service account's name.
    pub name: ServiceAccountName,
}

impl Operation for DeleteServiceAccount {
    const NAME: &'static str = "delete_service_account";
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/service-accounts/{org}/{name}";
    const SCOPE: Scope = Scope::Report;
    const SUMMARY: &'static str = "Deletes a service account";
    type Body = ();
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let delete = async || {
            let Current { revision, record } = cx.managed_account(&self.name).await?;
            let precondition = Precondition::Revision(RecordKind::ServiceAccount, record.id, revision);
            cx.record(Draft::of(Fact::ServiceAccountDeleted { record }, precondition)).await
        };
        cx.retry(delete).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::actor::ActorKind;
    use crate::id::Id;
    use crate::id::SystemRandom;
    use crate::time::Timestamp;

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
