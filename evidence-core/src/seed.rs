//! Seeding: creates the first user, organizations and key of a store. The call can be repeated.

use crate::administration::check_not_reserved;
use crate::auth::actor::Role;
use crate::auth::credentials::ApiKey;
use crate::context::retry_on_conflict;
use crate::error::{Error, Result};
use crate::name::OrgName;
use crate::orgs::record::OrgKind;
use crate::service::Evidence;

/// The records to create.
#[derive(Debug, Clone)]
pub struct Seed {
    /// The user; the personal organization has the same name.
    pub user: OrgName,
    /// Shared organizations that the user administers.
    pub orgs: Vec<OrgName>,
    /// The key to use instead of a new one.
    pub api_key: Option<ApiKey>,
}

/// The name of the operator in ledgers.
const OPERATOR: &str = "host";

impl Evidence {
    /// Creates the user, the organizations and a key, unless they exist, and returns the key. An existing key
    /// of this user is returned unchanged. The ledgers record the operator `host`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another user's key or organization, a revoked or expired key, or a reserved
    /// name. [`Error::Store`] if the store fails.
    pub async fn seed(&self, seed: &Seed) -> Result<ApiKey> {
        retry_on_conflict(|| self.seed_once(seed)).await
    }

    async fn seed_once(&self, seed: &Seed) -> Result<ApiKey> {
        check_not_reserved("user", &seed.user)?;
        seed.orgs.iter().try_for_each(|org| check_not_reserved("org", org))?;
        let host = self.administered_by(OPERATOR);
        let user = match self.store().user(seed.user.as_str()).await? {
            Some(user) => user,
            None => host.begin_user(&seed.user).await?,
        };
        for org in &seed.orgs {
            match self.store().org_role(org.as_str(), user.id).await? {
                None => {
                    host.begin_organization(org, OrgKind::Shared, &user, Vec::new()).await?;
                }
                Some(org_role) if org_role.role == Some(Role::Admin) => {}
                Some(_) => {
                    return Err(Error::invalid(
                        "org",
                        format!("'{org}' is not administered by '{}'", user.name),
                    ));
                }
            }
        }
        let key = seed.api_key.clone().unwrap_or_else(|| self.new_key());
        match self.store().key_holder(&key.hash()).await? {
            Some(holder) if holder.actor.id == user.id && holder.is_valid(self.now()) => return Ok(key),
            Some(holder) if holder.actor.id == user.id => {
                return Err(Error::invalid("api_key", "this key was revoked or has expired"));
            }
            Some(_) => return Err(Error::invalid("api_key", "this key belongs to another user")),
            None => {}
        }
        host.add_key(&user, &key, "seeded".to_owned(), None).await?;
        Ok(key)
    }
}
