//! A cache of parsed policies, by version. A version never changes, and every report is evaluated against
//! some.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::sized::Cache;
use crate::compute::LONG_YAML;
use crate::error::Result;
use crate::id::VersionKey;
use crate::policies::record::PolicyVersion;
use crate::rules::policy::Policy;
use crate::service::Context;
use crate::texts::record::in_parts_by;

/// Parsed versions of policies.
pub(crate) type ParsedPolicies = Cache<VersionKey, Policy>;

/// The memory budget of the cache, in bytes.
const BUDGET: usize = 8 << 20;

/// The minimum size of a cached policy, in bytes.
const LEAST: usize = 1 << 10;

/// Returns an empty cache.
pub(crate) const fn no_policies() -> ParsedPolicies {
    ParsedPolicies::new(BUDGET)
}

impl Context<'_> {
    /// Splits these versions of policies, in order, into parts that fit in memory when read and parsed.
    /// Cached versions need no further memory.
    pub(crate) async fn policies_in_parts(&self, versions: &[VersionKey]) -> Result<Vec<Vec<VersionKey>>> {
        let cache = self.policy_cache();
        let unknown: Vec<VersionKey> =
            versions.iter().filter(|version| cache.get(version).is_none()).copied().collect();
        let sizes = match unknown.as_slice() {
            [] => Vec::new(),
            unknown => self.store().policy_version_sizes(self.org()?, unknown).await?,
        };
        let sizes: BTreeMap<VersionKey, u64> = sizes.into_iter().map(|size| (size.id, size.bytes)).collect();
        let size = |version: &VersionKey| sizes.get(version).map(|bytes| (*version, *bytes));
        Ok(in_parts_by(versions.iter().copied(), size))
    }

    /// Returns these versions of policies, from the cache or read and parsed. Unknown versions are left out.
    /// Nothing complies with a version that cannot be read.
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
        let texts = || read.iter().map(|version| version.policy_yaml.as_str());
        let heavy = texts().map(str::len).sum::<usize>() > LONG_YAML || texts().any(Policy::is_slow_to_parse);
        let parse = |version: PolicyVersion| {
            let policy = Arc::new(Policy::stored(&version.policy_yaml));
            ((version.policy, version.version), policy)
        };
        let parse = move || Vec::from_iter(read.into_iter().map(parse));
        for (key, policy) in self.compute().run_if(heavy, parse).await? {
            // Do not cache unreadable policies: damage may be repaired.
            if policy.is_readable() {
                cache.put(key, policy.bytes().max(LEAST), Arc::clone(&policy));
            }
            found.insert(key, policy);
        }
        Ok(found)
    }
}
