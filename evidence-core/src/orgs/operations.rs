//! Operations on organizations, and their responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::{Actor, ActorKind, Scope};
use crate::bounded::ShortText;
use crate::context::{Context, Draft};
use crate::decode::UnknownFields;
use crate::error::{Error, Missing, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::id::Id;
use crate::name::OrgName;
use crate::operation::{Acknowledged, Json, Method, Operation};
use crate::orgs::record::{OrgKind, Organization, UserSettings};
use crate::time::Seconds;

impl Context<'_> {
    /// Returns the organization of the request.
    pub(crate) async fn organization(&self) -> Result<Organization> {
        let name = &self.org_access()?.name;
        let org_role = self.store().org_role(name.as_str(), self.caller().actor.id).await?;
        Ok(org_role.ok_or_else(|| self.missing(Resource::Organization, name.as_str()))?.organization)
    }
}

/// An organization.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "GetOrganization")]
#[non_exhaustive]
pub struct OrganizationView {
    /// Its name.
    pub name: OrgName,
    /// Whether it is shared, or belongs to one user.
    pub kind: OrgKind,
    /// Always false: there are no experimental features. Older clients expect this key.
    pub experimental_features_enabled: bool,
    /// When it was created, in epoch seconds.
    pub created_at: Seconds,
    /// When it last changed, in epoch seconds. It never changes, so this equals `created_at`.
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
            // An organization cannot change yet.
            last_modified_at: created_at.seconds(),
        }
    }
}

/// Gets an organization. Organizations are created by the operator of the host, not through this API.
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

impl Context<'_> {
    /// Returns the id of this user's personal organization.
    async fn personal_org(&self, user: &Actor) -> Result<Id> {
        let personal = self.store().org_role(&user.name, user.id).await?;
        let missing = || Missing::new(Resource::Organization, user.name.as_str(), user.name.as_str());
        Ok(personal.ok_or_else(missing)?.organization.id)
    }
}

/// The default organization of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DefaultOrg {
    /// Its name; `""` if none is set, or if the user no longer has a role there.
    pub default_org_name: String,
}

/// Gets the default organization of the caller, which clients use if none is given. A service account has
/// none.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetDefaultOrg {}

impl Operation for GetDefaultOrg {
    const NAME: &'static str = "get_user_default_org";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/user/default-org";
    const SCOPE: Scope = Scope::Authenticated;
    const SUMMARY: &'static str = "Gets the caller's default organization";
    type Body = ();
    type Output = Json<DefaultOrg>;

    fn org(&self) -> Option<&OrgName> {
        None
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let caller = &cx.caller().actor;
        let mut default_org_name = String::new();
        if caller.kind == ActorKind::User {
            let settings = cx.store().user_settings(cx.personal_org(caller).await?, caller.id).await?;
            if let Some(settings) = settings {
                let name = settings.record.default_org;
                let org_role = cx.store().org_role(name.as_str(), caller.id).await?;
                if org_role.is_some_and(|found| found.role.is_some()) {
                    default_org_name = name.into_string();
                }
            }
        }
        Ok(Json(DefaultOrg { default_org_name }))
    }
}

/// Sets the default organization of the caller. The caller needs a role in it; an organization that does not
/// exist gives the same error. For a service account, this is 403.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PutDefaultOrg {
    /// The organization's name.
    pub org: ShortText,
}

impl Operation for PutDefaultOrg {
    const NAME: &'static str = "put_user_default_org";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/user/{org}";
    const SCOPE: Scope = Scope::Authenticated;
    const SUMMARY: &'static str = "Sets the caller's default organization";
    type Body = ();
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        None
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        cx.retry(|| self.set(cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

impl PutDefaultOrg {
    async fn set(&self, cx: &Context<'_>) -> Result<()> {
        let caller = &cx.caller().actor;
        if caller.kind != ActorKind::User {
            return Err(Error::Forbidden);
        }
        let org_role = cx.store().org_role(&self.org, caller.id).await?;
        let denied = || Error::AccessDenied(format!("/api/v2/user/{}", self.org));
        let chosen = org_role.filter(|found| found.role.is_some()).ok_or_else(denied)?.organization;
        let home = cx.personal_org(caller).await?;
        let known = cx.store().user_settings(home, caller.id).await?;
        let mut draft = Draft::default();
        let record = match known {
            Some(known) if known.record.default_org == chosen.name => return Ok(()),
            Some(known) => {
                draft.preconditions.push(Precondition::Revision(
                    RecordKind::UserSettings,
                    caller.id,
                    known.revision,
                ));
                UserSettings { default_org: chosen.name, ..known.record }
            }
            None => {
                draft.preconditions.push(Precondition::Vacant(Key::UserSettings(caller.id)));
                let unknown = UnknownFields::default();
                UserSettings { user: caller.id, default_org: chosen.name, unknown }
            }
        };
        draft.fact(Fact::UserSettingsChanged { record });
        cx.record_in(home, draft).await?;
        Ok(())
    }
}
