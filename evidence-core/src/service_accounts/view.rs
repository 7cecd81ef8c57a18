//! Service accounts in responses.

use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::actor::Role;
use crate::id::Id;
use crate::name::ServiceAccountName;
use crate::service_accounts::record::ServiceAccount;
use crate::time::WholeSeconds;

/// A service account: a program that calls the API with its own keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ServiceAccount")]
#[non_exhaustive]
pub struct ServiceAccountView {
    /// Its name, unique in the organization.
    pub name: ServiceAccountName,
    /// The display name, which is the name.
    pub display_name: String,
    /// Its role in the organization.
    pub privilege: Role,
    /// A description of its purpose; null if not given.
    pub description: Option<String>,
    /// The id of the user or service account that created it.
    pub creating_user_id: Id,
    /// When it was created, in epoch seconds.
    pub created_at: WholeSeconds,
    /// Always false: no accounts are created for webhooks.
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
