//! Reads parsed versions of policies through the cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compute::LONG_YAML;
use crate::error::Result;
use crate::id::VersionKey;
use crate::policies::record::PolicyVersion;
use crate::rules::policy::Policy;
use crate::service::Context;
use crate::texts::record::in_parts_by;

impl Context<'_> {
    /// Splits these versions of policies, in order, into parts that fit in memory when read and parsed.
    /// Cached versions need no further memory.
    pub(crate) async fn policies_in_parts(&self, versions: &[VersionKey]) -> Result<Vec<Vec<VersionKey>>> {
        let cache = &self.caches().policies;
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
    /// No artifact complies with a version that cannot be read.
    pub(crate) async fn parsed_policies(
        &self,
        versions: &[VersionKey],
    ) -> Result<BTreeMap<VersionKey, Arc<Policy>>> {
        let load = async |missing: Vec<VersionKey>| {
            let read = self.store().policy_versions_by_number(self.org()?, &missing).await?;
            let texts = || read.iter().map(|version| version.policy_yaml.as_str());
            let heavy =
                texts().map(str::len).sum::<usize>() > LONG_YAML || texts().any(Policy::is_slow_to_parse);
            let parse = |version: PolicyVersion| {
                ((version.policy, version.version), Policy::stored(&version.policy_yaml))
            };
            let parse = move || Vec::from_iter(read.into_iter().map(parse));
            self.compute().run_if(heavy, parse).await
        };
        self.caches().policies.get_many(versions.iter().copied(), load).await
    }
}
