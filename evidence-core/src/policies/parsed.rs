//! Policies parsed once a version: a version never changes, and every report is judged by some.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Cache;
use crate::compute::LONG_YAML;
use crate::error::Result;
use crate::id::Id;
use crate::policies::PolicyVersion;
use crate::rules::policy::Policy;
use crate::service::Context;

/// A policy's id, and the number of one of its versions.
pub(crate) type VersionKey = (Id, u64);

/// Versions of policies, parsed.
pub(crate) type ParsedPolicies = Cache<VersionKey, Policy>;

/// How much the texts of the policies that are remembered come to, in bytes; what they were parsed into is of that order.
const BUDGET: usize = 8 << 20;

/// A small text's policy takes about so many bytes all the same.
const LEAST: usize = 1 << 10;

/// A service remembers nothing at first.
pub(crate) const fn no_policies() -> ParsedPolicies {
    ParsedPolicies::new(BUDGET)
}

impl Context<'_> {
    /// These versions of policies, each read and parsed if it is not remembered; unknown ones are left out. Nothing complies
    /// with one that cannot be read.
    pub(crate) async fn parsed_policies(
        &self,
        versions: &[VersionKey],
    ) -> Result<BTreeMap<VersionKey, Arc<Policy>>> {
        let cache = self.policy_cache();
        let (mut found, mut unknown) = (BTreeMap::new(), Vec::new());
        for key in versions {
            match cache.get(key) {
                Some(policy) => drop(found.insert(*key, policy)),
                None => unknown.push(*key),
            }
        }
        if unknown.is_empty() {
            return Ok(found);
        }
        let read = self.store().policy_versions_by_number(self.org()?, &unknown).await?;
        let heavy = read.iter().map(|version| version.policy_yaml.len()).sum::<usize>() > LONG_YAML;
        let parse = |version: PolicyVersion| {
            let policy = Arc::new(Policy::stored(&version.policy_yaml));
            ((version.policy, version.version), version.policy_yaml.len(), policy)
        };
        let parse = move || Vec::from_iter(read.into_iter().map(parse));
        for (key, bytes, policy) in self.compute().run_if(heavy, parse).await? {
            cache.put(key, bytes.max(LEAST), Arc::clone(&policy));
            found.insert(key, policy);
        }
        Ok(found)
    }
}
