//! The operation on organizations, and its answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Scope;
use crate::error::{Resource, Result};
use crate::name::OrgName;
use crate::operation::{Json, Method, Operation};
use crate::orgs::record::{OrgKind, Organization};
use crate::service::Context;
use crate::time::Seconds;

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
#[non_exhaustive]
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
