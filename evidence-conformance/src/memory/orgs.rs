//! Organizations, users, members, and the owners of keys.

use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;

use evidence_core::auth::{ActorKind, KeyHash, Role};
use evidence_core::id::Id;
use evidence_core::orgs::{ByName, KeyHolder, Member, OrgRole, OrgStore, Organization, User, UserSettings};
use evidence_core::page::{Page, PageRequest, SortDirection};
use evidence_core::store::{Current, StoreResult, StoredEntry};

use super::tables::Tables;
use super::{MemoryStore, State, at_most};

impl State {
    /// Returns the roles in an organization.
    fn members(&self, org: Id) -> &BTreeMap<Id, Current<Role>> {
        static NOBODY: BTreeMap<Id, Current<Role>> = BTreeMap::new();
        self.tables.get(&org).map_or(&NOBODY, |tables| &tables.members)
    }

    fn holder(&self, hash: &KeyHash) -> Option<KeyHolder> {
        let (hash, (org, key)) = self.hashes.get_key_value(hash)?;
        let tables = self.tables.get(org)?;
        let record = &tables.keys.get(key)?.record;
        let bound_to = match record.owner.kind {
            ActorKind::User => None,
            ActorKind::Operator => return None,
            ActorKind::ServiceAccount => Some((*org, tables.role_of(record.owner.id)?)),
        };
        Some(KeyHolder {
            hash: hash.clone(),
            actor: record.owner.clone(),
            bound_to,
            expires_at: record.ends_at(),
            revoked_at: record.revoked_at,
        })
    }
}

/// Returns at most `limit` records after `after`, sorted by name.
fn following<T: Clone>(named: &BTreeMap<String, T>, after: &str, limit: u64) -> StoreResult<ByName<T>> {
    let further = named.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
    let further = further.take(at_most(limit));
    ByName::skip_corrupt(further.map(|(name, record)| (name.clone(), Ok(record.clone()))).collect(), limit)
}

impl Tables {
    fn role_of(&self, service_account: Id) -> Option<Role> {
        let mut accounts = self.service_accounts.values().map(|current| &current.record);
        accounts.find(|account| account.id == service_account).map(|account| account.privilege)
    }
}

#[async_trait]
impl OrgStore for MemoryStore {
    async fn org_role(&self, org: &str, user: Id) -> StoreResult<Option<OrgRole>> {
        let state = self.read()?;
        let org_role = state.organizations.get(org).map(|organization| OrgRole {
            role: state.members(organization.id).get(&user).map(|role| role.record),
            organization: organization.clone(),
        });
        Ok(org_role)
    }

    async fn user(&self, name: &str) -> StoreResult<Option<User>> {
        Ok(self.read()?.users.get(name).cloned())
    }

    async fn users_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<User>> {
        following(&self.read()?.users, after, limit)
    }

    async fn organizations_by_name(&self, after: &str, limit: u64) -> StoreResult<ByName<Organization>> {
        following(&self.read()?.organizations, after, limit)
    }

    async fn members(&self, org: Id) -> StoreResult<Vec<Current<Member>>> {
        let state = self.read()?;
        let member = |user: &User| {
            let Current { revision, record: role } = *state.members(org).get(&user.id)?;
            Some(Current { revision, record: Member { user: user.clone(), role } })
        };
        Ok(state.users.values().filter_map(member).collect())
    }

    async fn users_by_id(&self, ids: &[Id]) -> StoreResult<Vec<User>> {
        Ok(self.read()?.users.values().filter(|user| ids.contains(&user.id)).cloned().collect())
    }

    async fn membership_entries(&self, org: Id, first: u64, limit: u64) -> StoreResult<Vec<StoredEntry>> {
        self.query(org, |tables| tables.ledger.about_members(first, limit))
    }

    async fn membership_page(
        &self,
        org: Id,
        direction: SortDirection,
        request: PageRequest,
    ) -> StoreResult<Page<StoredEntry>> {
        self.query(org, |tables| {
            let mut entries = tables.ledger.about_members(0, u64::MAX);
            if direction == SortDirection::Desc {
                entries.reverse();
            }
            Page::of(entries, request)
        })
    }

    async fn user_settings(&self, org: Id, user: Id) -> StoreResult<Option<Current<UserSettings>>> {
        self.query(org, |tables| tables.user_settings.get(&user).cloned())
    }

    async fn key_holder(&self, hash: &KeyHash) -> StoreResult<Option<KeyHolder>> {
        Ok(self.read()?.holder(hash))
    }
}
