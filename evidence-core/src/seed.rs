//! Seeding: the first users, organizations and keys of a store, which no operation of the API can make.

use crate::auth::{Actor, ApiKey, Role};
use crate::error::{Error, Result};
use crate::fact::{Fact, Guard, Key, Write};
use crate::id::Id;
use crate::name::OrgName;
use crate::orgs::{Membership, OrgKind, Organization, User};
use crate::service::{Evidence, Race};
use crate::service_accounts::ApiKeyRecord;

/// Whom to seed a store with.
#[derive(Debug, Clone)]
pub struct Seed {
    /// The user; the personal organization has the same name.
    pub user: OrgName,
    /// Shared organizations that the user administers.
    pub orgs: Vec<OrgName>,
    /// A key to take instead of a fresh one.
    pub api_key: Option<ApiKey>,
}

/// An organization's name that a literal path would shadow.
const RESERVED: &str = "system-attestation-types";

impl Evidence {
    /// Makes the user, the organizations and a key, as far as they do not exist yet, and answers the key. A key that
    /// this user already has is answered as it is.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key or an organization of somebody else; [`Error::Store`] when the store fails.
    pub async fn seed(&self, seed: &Seed) -> Result<ApiKey> {
        Race::run(|| self.seed_once(seed)).await
    }

    async fn seed_once(&self, seed: &Seed) -> Result<ApiKey> {
        if seed.orgs.iter().any(|org| org.as_str() == RESERVED) || seed.user.as_str() == RESERVED {
            return Err(Error::invalid("org", format!("'{RESERVED}' is a reserved word of the API")));
        }
        let user = match self.store().user(seed.user.as_str()).await? {
            Some(user) => user,
            None => self.create_user(&seed.user).await?,
        };
        let actor = user.actor();
        for org in &seed.orgs {
            match self.store().standing(org.as_str(), user.id).await? {
                None => {
                    let id = self.new_id();
                    self.create_org(id, org, OrgKind::Shared, &actor, Vec::new()).await?;
                }
                Some(standing) if standing.role == Some(Role::Admin) => {}
                Some(_) => {
                    return Err(Error::invalid(
                        "org",
                        format!("'{org}' is not administered by '{}'", user.name),
                    ));
                }
            }
        }
        self.add_key(seed, &actor).await
    }

    async fn create_user(&self, name: &OrgName) -> Result<User> {
        let user = User { id: self.new_id(), name: name.clone(), created_at: self.now() };
        let actor = user.actor();
        let facts = vec![Fact::UserCreated { record: user.clone() }];
        self.create_org(self.new_id(), name, OrgKind::Personal, &actor, facts).await?;
        Ok(user)
    }

    /// Begins an organization's ledger, with its first administrator.
    async fn create_org(
        &self,
        id: Id,
        name: &OrgName,
        kind: OrgKind,
        by: &Actor,
        more: Vec<Fact>,
    ) -> Result<()> {
        let record = Organization { id, name: name.clone(), kind, created_at: self.now() };
        let mut facts = vec![Fact::OrganizationCreated { record }];
        facts.extend(more);
        facts.push(Fact::MemberAdded { record: Membership { user: by.id, role: Role::Admin } });
        let guards = vec![Guard::Absent(Key::Organization(name.clone()))];
        let write = Write { org: id, by: by.clone(), at: self.now(), facts, guards, secrets: Vec::new() };
        self.store().record(write).await?;
        Ok(())
    }

    async fn add_key(&self, seed: &Seed, owner: &Actor) -> Result<ApiKey> {
        let key = seed.api_key.clone().unwrap_or_else(|| self.new_key());
        match self.store().key_holder(&key.hash()).await? {
            Some(holder) if holder.actor.id == owner.id => return Ok(key),
            Some(_) => return Err(Error::invalid("api_key", "this key belongs to somebody else")),
            None => {}
        }
        let home = self.store().standing(&owner.name, owner.id).await?;
        let org = home
            .ok_or_else(|| Error::invalid("user", "the user has no personal organization"))?
            .organization
            .id;
        let record = ApiKeyRecord {
            id: self.new_id(),
            owner: owner.clone(),
            description: "seeded".to_owned(),
            created_at: self.now(),
            expires_at: None,
            revoked_at: None,
            hash_sha256: key.hash().fingerprint(),
        };
        let secrets = vec![(record.id, key.hash())];
        let facts = vec![Fact::ApiKeyCreated { record }];
        let write = Write { org, by: owner.clone(), at: self.now(), facts, guards: Vec::new(), secrets };
        self.store().record(write).await?;
        Ok(key)
    }
}
