//! Policies and their versions.

use std::collections::BTreeSet;

use async_trait::async_trait;

use evidence_core::fact::Key;
use evidence_core::id::Id;
use evidence_core::page::Listed;
use evidence_core::policies::{Policy, PolicyStore, PolicyVersion, VersionKey};
use evidence_core::store::{Current, StoreResult};

use super::{MemoryStore, bytes, records};

#[async_trait]
impl PolicyStore for MemoryStore {
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>> {
        self.by_name(org, name.parse().ok().map(Key::Policy), |tables| &tables.policies)
    }

    async fn policies_named(&self, org: Id, names: &[&str]) -> StoreResult<Vec<Current<Policy>>> {
        let mut named = Vec::new();
        for name in BTreeSet::from_iter(names) {
            named.extend(self.policy(org, name).await?);
        }
        Ok(named)
    }

    async fn policies_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let policies = self.query(org, |tables| records(&tables.policies, |policy| policy.name.clone()))?;
        policies.iter().map(|policy| Ok(Listed { id: policy.id, bytes: bytes(policy)? })).collect()
    }

    async fn policies_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Policy>>> {
        self.query(org, |tables| {
            let policies = tables.policies.values();
            policies.filter(|policy| ids.contains(&policy.record.id)).cloned().collect()
        })
    }

    async fn policy_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        let listed = |version: &PolicyVersion| {
            Ok(Listed { id: (version.policy, version.version), bytes: bytes(version)? })
        };
        self.policy_versions_by_number(org, versions).await?.iter().map(listed).collect()
    }

    async fn policy_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<PolicyVersion>> {
        self.query(org, |tables| {
            let all = tables.policy_versions.iter();
            all.filter(|one| versions.contains(&(one.policy, one.version))).cloned().collect()
        })
    }
}
