//! The caches that operations use, and their budgets. The methods that read through them are in `impl Context` blocks
//! beside the resources.

use super::callers::CallerCache;
use super::names::NameCache;
use crate::attestation_types::compiled::Compiled;
use crate::cache::{Cache, Weigh};
use crate::environments::last_evaluation::LastEvaluation;
use crate::flows::parsed::Parsed;
use crate::id::{Id, VersionKey};
use crate::ledger::Hash;
use crate::rules::policy::Policy;
use crate::trails::reported::ReportedTrail;

const MIB: usize = 1 << 20;

/// The caches that operations use.
pub(crate) struct Caches {
    pub(crate) callers: CallerCache,
    pub(super) names: NameCache,
    /// Templates, by the digests of their texts. Nearly every response needs a template, and a few texts serve
    /// most trails. Parsing the YAML costs more than the rest of a response.
    pub(crate) templates: Cache<Hash, Parsed>,
    /// Versions of policies, which never change. Every report is evaluated against some.
    pub(crate) policies: Cache<VersionKey, Policy>,
    /// Versions of custom attestation types, which never change.
    pub(crate) types: Cache<VersionKey, Compiled>,
    /// Trails with their reports, by organization and trail. A trail with the most reports allowed takes about
    /// half of the budget.
    pub(crate) trails: Cache<(Id, Id), ReportedTrail>,
    /// The last evaluations of environments, by organization and environment.
    pub(crate) evaluations: Cache<(Id, Id), LastEvaluation>,
}

impl Caches {
    /// Creates empty caches.
    pub(crate) fn new() -> Self {
        Self {
            callers: CallerCache::new(),
            names: NameCache::new(),
            templates: Cache::new(16 * MIB),
            policies: Cache::new(8 * MIB),
            types: Cache::new(64 * MIB),
            trails: Cache::new(64 * MIB),
            evaluations: Cache::new(64 * MIB),
        }
    }
}

impl Weigh for Policy {
    fn bytes(&self) -> usize {
        Self::bytes(self)
    }

    /// An unreadable policy is not cached, because damage may be repaired.
    fn is_cacheable(&self) -> bool {
        self.is_readable()
    }
}
