//! Users, organizations, members and users' keys, which the operator of a host manages. No operation of the
//! API does, because all of them require a role in an existing organization.

use crate::api_keys::operations::ApiKeyInput;
use crate::api_keys::view::{ApiKeyView, NewApiKey};
use crate::auth::actor::{Actor, Role};
use crate::auth::credentials::ApiKey;
use crate::checkpoints::keys::{LastSigned, checkpoint};
use crate::context::{Draft, retry_on_conflict};
use crate::error::{Error, Missing, Resource, Result};
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::fact::{Fact, Write};
use crate::id::Id;
use crate::name::OrgName;
use crate::orgs::record::{Membership, OrgKind, Organization, User};
use crate::orgs::store::{ByName, Member};
use crate::service::Evidence;
use crate::service_accounts::record::ApiKeyRecord;
use crate::store::Store;
use crate::store::entry::Current;
use crate::store::error::{MAX_CLOCK_LEAD, StoreError, StoreResult};
use crate::time::Timestamp;

/// The number of organizations that are read at once.
const ORGANIZATIONS_AT_ONCE: u64 = 1000;

/// Organization names that would collide with a literal path.
const RESERVED: [&str; 2] = ["system-attestation-types", "default-org"];

/// The operations of the operator, who needs no role and no key: access to the store suffices. The ledgers
/// record the operator as `operator` with this name, and so never as a user.
///
/// Changes take effect at once in this service, and within a second in others on the same store.
///
/// ```
/// # use std::sync::Arc;
/// use evidence_core::auth::Role;
/// # use evidence_conformance::memory::MemoryStore;
/// use evidence_core::{Evidence, Settings};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// # let service = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
/// let (jane, john, acme) = ("jane".parse()?, "john".parse()?, "acme".parse()?);
/// let host = service.administration(&"portal".parse()?);
/// host.create_user(&jane).await?;
/// host.create_user(&john).await?;
/// host.create_organization(&acme, &jane).await?;
/// host.set_member(&acme, &john, Role::Reader).await?;
/// assert_eq!(host.members(&acme).await?.len(), 2);
/// host.remove_member(&acme, &john).await?;
/// assert!(host.remove_member(&acme, &jane).await.is_err(), "somebody has to administer it");
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct Administration<'a> {
    service: &'a Evidence,
    by: Actor,
}

impl Evidence {
    /// Returns the operations of an operator with this name. Nothing proves that name.
    pub fn administration(&self, operator: &OrgName) -> Administration<'_> {
        self.administered_by(operator.as_str())
    }

    pub(crate) fn administered_by(&self, operator: &str) -> Administration<'_> {
        Administration { service: self, by: Actor::operator(operator) }
    }
}

/// # Errors
/// [`Error::Invalid`] naming `field` if the name is a reserved path segment.
pub(crate) fn check_not_reserved(field: &str, name: &OrgName) -> Result<()> {
    if RESERVED.contains(&name.as_str()) {
        return Err(Error::invalid(field, format!("'{name}' is a reserved word of the API")));
    }
    Ok(())
}

/// Returns at most `limit` records, skipping unreadable ones.
async fn by_name<T>(
    after: Option<&OrgName>,
    limit: u64,
    read_page: impl AsyncFn(&str, u64) -> StoreResult<ByName<T>>,
) -> Result<Vec<T>> {
    let mut page = read_page(after.map_or("", OrgName::as_str), limit).await?;
    let mut found = page.records;
    while let Some(after) = page.more.filter(|_| (found.len() as u64) < limit) {
        page = read_page(&after, limit - found.len() as u64).await?;
        found.append(&mut page.records);
    }
    Ok(found)
}

/// Returns the precondition that another administrator remains. Required if the role of `user` is removed or
/// lowered, because every organization needs an administrator.
fn another_admin(members: &[Current<Member>], user: &User) -> Result<Precondition> {
    let is_other = |member: &Member| member.role == Role::Admin && member.user.id != user.id;
    match members.iter().find(|member| is_other(&member.record)) {
        Some(Current { revision, record }) => {
            Ok(Precondition::Revision(RecordKind::Member, record.user.id, *revision))
        }
        None => {
            Err(Error::invalid("user", format!("nobody but '{}' administers the organization", user.name)))
        }
    }
}

/// The result of [`Administration::end_future`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedFuture {
    /// The index of the first entry in the future.
    pub first: u64,
    /// The number of entries in the future.
    pub entries: u64,
    /// The time of the last of them.
    pub was: Timestamp,
    /// The time at which they now count as recorded.
    pub now: Timestamp,
}

impl Administration<'_> {
    /// Creates a user, and the personal organization of the same name.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is taken or reserved. [`Error::Store`] if the store fails.
    pub async fn create_user(&self, name: &OrgName) -> Result<User> {
        retry_on_conflict(|| self.try_create_user(name)).await
    }

    async fn try_create_user(&self, name: &OrgName) -> Result<User> {
        self.check_free(name).await?;
        self.begin_user(name).await
    }

    /// Returns at most `limit` users, sorted by name, after the one named `after`.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails.
    pub async fn users(&self, after: Option<&OrgName>, limit: u64) -> Result<Vec<User>> {
        by_name(after, limit, async |after, limit| self.store().users_by_name(after, limit).await).await
    }

    /// Creates a shared organization with this user as its administrator.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is taken or reserved. [`Error::NotFound`] if the user does not exist.
    /// [`Error::Store`] if the store fails.
    pub async fn create_organization(&self, name: &OrgName, owner: &OrgName) -> Result<Organization> {
        retry_on_conflict(|| self.try_create_organization(name, owner)).await
    }

    async fn try_create_organization(&self, name: &OrgName, owner: &OrgName) -> Result<Organization> {
        self.check_free(name).await?;
        let owner = self.user(owner).await?;
        self.begin_organization(name, OrgKind::Shared, &owner, Vec::new()).await
    }

    /// Returns at most `limit` organizations, sorted by name, after the one named `after`. Includes personal
    /// ones.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails.
    pub async fn organizations(&self, after: Option<&OrgName>, limit: u64) -> Result<Vec<Organization>> {
        by_name(after, limit, async |after, limit| self.store().organizations_by_name(after, limit).await)
            .await
    }

    /// Sets a user's role in a shared organization. Records nothing if the user already has that role.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the organization or the user does not exist. [`Error::Invalid`] for a personal
    /// organization, or if no administrator would remain. [`Error::Store`] if the store fails.
    pub async fn set_member(&self, org: &OrgName, user: &OrgName, role: Role) -> Result<()> {
        retry_on_conflict(|| self.try_set_member(org, user, role)).await
    }

    async fn try_set_member(&self, org: &OrgName, user: &OrgName, role: Role) -> Result<()> {
        let (org, user) = (self.shared_organization(org).await?, self.user(user).await?);
        let members = self.store().members(org.id).await?;
        let known = members.iter().find(|member| member.record.user.id == user.id);
        let was = known.map(|member| member.record.role);
        if was == Some(role) {
            return Ok(());
        }
        let mut draft = Draft::default();
        draft.fact(Fact::MemberAdded { record: Membership { user: user.id, role }, was });
        // The record contains the previous role, which must be unchanged.
        draft.preconditions.push(match known {
            Some(known) => Precondition::Revision(RecordKind::Member, user.id, known.revision),
            None => {
                // The list skips unreadable members.
                self.store().org_role(org.name.as_str(), user.id).await?;
                Precondition::Vacant(Key::Member(user.id))
            }
        });
        if role != Role::Admin {
            draft.preconditions.push(another_admin(&members, &user)?);
        }
        self.record(org.id, draft).await
    }

    /// Removes a user's role in a shared organization. Service accounts that the user created stay, because
    /// they belong to the organization.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the organization, the user or the member does not exist. [`Error::Invalid`] for
    /// a personal organization, or if no administrator would remain. [`Error::Store`] if the store fails.
    pub async fn remove_member(&self, org: &OrgName, user: &OrgName) -> Result<()> {
        retry_on_conflict(|| self.try_remove_member(org, user)).await
    }

    async fn try_remove_member(&self, org: &OrgName, user: &OrgName) -> Result<()> {
        let (org, user) = (self.shared_organization(org).await?, self.user(user).await?);
        let members = self.store().members(org.id).await?;
        let member = members.iter().find(|member| member.record.user.id == user.id);
        let member =
            member.ok_or_else(|| Missing::new(Resource::Member, user.name.as_str(), org.name.as_str()))?;
        let precondition = Precondition::Revision(RecordKind::Member, user.id, member.revision);
        let mut draft =
            Draft::of(Fact::MemberRemoved { user: user.id, was: member.record.role }, precondition);
        if member.record.role == Role::Admin {
            draft.preconditions.push(another_admin(&members, &user)?);
        }
        self.record(org.id, draft).await
    }

    /// Returns the members of an organization, sorted by name.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the organization does not exist. [`Error::Store`] if the store fails.
    pub async fn members(&self, org: &OrgName) -> Result<Vec<Member>> {
        let members = self.store().members(self.organization(org).await?.id).await?;
        Ok(members.into_iter().map(|member| member.record).collect())
    }

    /// Creates a key with the permissions of a user. Its text is stored nowhere. The ledger of the personal
    /// organization records the key.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the user does not exist. [`Error::Invalid`] for a key that would already be
    /// expired. [`Error::Store`] if the store fails.
    pub async fn create_key(&self, user: &OrgName, input: &ApiKeyInput) -> Result<NewApiKey> {
        let user = self.user(user).await?;
        let expires_at = input.expires_at.unwrap_or_default().after(self.service.now())?;
        let key = self.service.new_key();
        let record = self.add_key(&user, &key, input.description.to_string(), expires_at).await?;
        Ok(NewApiKey { record: record.into(), key: key.reveal().to_owned() })
    }

    /// Returns the valid keys of a user, oldest first.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the user does not exist. [`Error::Store`] if the store fails.
    pub async fn keys(&self, user: &OrgName) -> Result<Vec<ApiKeyView>> {
        let user = self.user(user).await?;
        let (personal_org, now) = (self.personal_org(&user).await?, self.service.now());
        let keys = self.store().api_keys(personal_org, user.id, now).await?;
        Ok(keys.into_iter().map(|key| key.record.into()).collect())
    }

    /// Revokes a key of a user at once, even an expired one.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the user does not exist, or has no unrevoked key with this id. [`Error::Store`]
    /// if the store fails.
    pub async fn revoke_key(&self, user: &OrgName, key: Id) -> Result<()> {
        retry_on_conflict(|| self.try_revoke_key(user, key)).await
    }

    async fn try_revoke_key(&self, user: &OrgName, key: Id) -> Result<()> {
        let user = self.user(user).await?;
        let (personal_org, now) = (self.personal_org(&user).await?, self.service.now());
        let found = self.store().api_key(personal_org, key).await?;
        let Current { revision, record } = found
            .filter(|found| found.record.owner.id == user.id && found.record.revoked_at.is_none())
            .ok_or_else(|| Missing::new(Resource::ApiKey, key.to_string(), user.name.as_str()))?;
        let precondition = Precondition::Revision(RecordKind::ApiKey, record.id, revision);
        let record = record.revoked(now);
        self.record(personal_org, Draft::of(Fact::ApiKeyRevoked { record }, precondition)).await
    }

    /// Corrects the ledger of an organization after a clock was ahead: records now that the clock was
    /// corrected. Entries from the future stay unchanged, but count as recorded now. Later entries have the
    /// true time.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the organization does not exist. [`Error::Invalid`] if no entry is more than
    /// [`MAX_CLOCK_LEAD`] in the future. [`Error::Store`] if the store fails, or if the clocks of this
    /// machine and of the database differ too much.
    pub async fn end_future(&self, org: &OrgName) -> Result<EndedFuture> {
        retry_on_conflict(|| self.try_end_future(org)).await
    }

    async fn try_end_future(&self, org: &OrgName) -> Result<EndedFuture> {
        let (id, store, now) = (self.organization(org).await?.id, self.store(), self.service.now());
        let missing = || StoreError::corrupt(format_args!("the ledger of '{org}' is missing"));
        let size = store.ledger_head(id).await?.ok_or_else(missing)?.size();
        let first = store.ledger_size_at(id, now.plus(MAX_CLOCK_LEAD)).await?;
        if first >= size {
            let text = format!("the ledger of '{org}' has no entries in the future: it is {now} now");
            return Err(Error::invalid("org", text));
        }
        let last = store.ledger_times(id, &[size.saturating_sub(1)]).await?;
        let (_, was) = last.into_iter().next().ok_or_else(missing)?;
        let fact = Fact::ClockCorrected { first, was };
        store.record(Write::new(id, self.by.clone(), now, vec![fact], self.service.random())).await?;
        Ok(EndedFuture { first, entries: size - first, was, now })
    }

    /// Ends the logs of all ledgers, before they are [named anew](crate::checkpoints::LedgerKeys::rename): records the last signed checkpoint in
    /// each ledger, and removes it from the store. `signed` has what was signed last outside of the store. Returns the number of
    /// ledgers that had one. May be repeated.
    ///
    /// # Errors
    /// [`Error::Store`] if the store fails, or if what was signed last cannot be read.
    pub async fn end_logs(&self, name: &str, signed: &dyn LastSigned) -> Result<u64> {
        let (store, mut ended, mut after) = (self.store(), 0, Some(String::new()));
        while let Some(last) = after {
            let page = store.organizations_by_name(&last, ORGANIZATIONS_AT_ONCE).await?;
            after = page.more;
            for Organization { id, .. } in page.records {
                let kept = signed.last_signed(id).map_err(|error| StoreError::Failed(error.into()))?;
                let stored = store.signed_checkpoint(id).await?;
                let origin = format!("{name}/{id}");
                let others = [&stored, &kept].into_iter().flatten();
                let others = others.filter(|note| note.lines().next() != Some(&origin));
                let Some(former) = others.max_by_key(|note| checkpoint(note).map(|last| last.size)) else {
                    continue;
                };
                let fact = Fact::LedgerNamed { name: origin.clone(), former: former.clone() };
                let (at, random) = (self.service.now(), self.service.random());
                store.record(Write::new(id, self.by.clone(), at, vec![fact], random)).await?;
                if let Some(stored) = stored.as_deref().filter(|note| note.lines().next() != Some(&origin)) {
                    store.replace_signed_checkpoint(id, Some(stored), None).await?;
                }
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// Creates the user. Returns [`StoreError::Conflict`] if the name is taken.
    pub(crate) async fn begin_user(&self, name: &OrgName) -> Result<User> {
        let user = User { id: self.service.new_id(), name: name.clone(), created_at: self.service.now() };
        let facts = vec![Fact::UserCreated { record: user.clone() }];
        self.begin_organization(name, OrgKind::Personal, &user, facts).await?;
        Ok(user)
    }

    /// Starts an organization's ledger with its first administrator. Returns [`StoreError::Conflict`] if the
    /// name is taken.
    pub(crate) async fn begin_organization(
        &self,
        name: &OrgName,
        kind: OrgKind,
        owner: &User,
        more: Vec<Fact>,
    ) -> Result<Organization> {
        let (id, created_at) = (self.service.new_id(), self.service.now());
        let record = Organization { id, name: name.clone(), kind, created_at };
        let vacant = Precondition::Vacant(Key::Organization(name.clone()));
        let mut draft = Draft::of(Fact::OrganizationCreated { record: record.clone() }, vacant);
        draft.facts.extend(more);
        let owner = Membership { user: owner.id, role: Role::Admin };
        draft.fact(Fact::MemberAdded { record: owner, was: None });
        self.record(id, draft).await?;
        Ok(record)
    }

    /// Records a key in the user's personal organization.
    pub(crate) async fn add_key(
        &self,
        user: &User,
        key: &ApiKey,
        description: String,
        expires_at: Option<Timestamp>,
    ) -> Result<ApiKeyRecord> {
        let (id, now) = (self.service.new_id(), self.service.now());
        let record = ApiKeyRecord::of(key, id, user.actor(), description, now, expires_at);
        let mut draft = Draft::default();
        draft.secrets.key_hashes.push((id, key.hash()));
        draft.fact(Fact::ApiKeyCreated { record: record.clone() });
        self.record(self.personal_org(user).await?, draft).await?;
        Ok(record)
    }

    fn store(&self) -> &dyn Store {
        self.service.store()
    }

    async fn record(&self, org: Id, draft: Draft) -> Result<()> {
        let Draft { facts, preconditions, secrets, .. } = draft;
        let (by, at) = (self.by.clone(), self.service.now());
        let write = Write::new(org, by, at, facts, self.service.random());
        let write = Write { preconditions, secrets, ..write };
        let recorded = self.store().record(write).await;
        // Everything that is recorded here changes permissions.
        self.service.forget_callers();
        recorded?;
        Ok(())
    }

    /// Checks that an organization, or a user, may have this name.
    async fn check_free(&self, name: &OrgName) -> Result<()> {
        check_not_reserved("name", name)?;
        match self.store().org_role(name.as_str(), self.by.id).await? {
            Some(_) => Err(Error::invalid("name", format!("'{name}' is taken"))),
            None => Ok(()),
        }
    }

    async fn user(&self, name: &OrgName) -> Result<User> {
        let user = self.store().user(name.as_str()).await?;
        Ok(user.ok_or_else(|| Missing::new(Resource::User, name.as_str(), name.as_str()))?)
    }

    /// Returns the organization of this name.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it does not exist. [`Error::Store`] if the store fails.
    pub async fn organization(&self, name: &OrgName) -> Result<Organization> {
        let org_role = self.store().org_role(name.as_str(), self.by.id).await?;
        let missing = || Missing::new(Resource::Organization, name.as_str(), name.as_str());
        Ok(org_role.ok_or_else(missing)?.organization)
    }

    async fn shared_organization(&self, name: &OrgName) -> Result<Organization> {
        let organization = self.organization(name).await?;
        match organization.kind {
            OrgKind::Shared => Ok(organization),
            OrgKind::Personal => Err(Error::invalid(
                "org",
                format!("'{name}' is a personal organization, whose members cannot change"),
            )),
        }
    }

    /// Returns the personal organization of a user, whose ledger records their keys.
    async fn personal_org(&self, user: &User) -> Result<Id> {
        Ok(self.organization(&user.name).await?.id)
    }
}
