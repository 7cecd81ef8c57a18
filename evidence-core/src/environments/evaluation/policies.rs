//! The policies that an environment is evaluated against.

use std::collections::{BTreeMap, BTreeSet};

use crate::context::Context;
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Result};
use crate::fact::names::{Precondition, RecordKind};
use crate::id::{Id, VersionKey};
use crate::policies::record::Policy;
use crate::snapshots::record::{AppliedPolicy, Snapshot};
use crate::store::batch::{RECORD_BATCH_SIZE, distinct};
use crate::store::entry::Current;
use crate::store::error::StoreError;

/// The policies that an environment is evaluated against, by id: its own, and those of the logical
/// environments that contain it.
#[derive(Debug, Clone, Default)]
pub(super) struct PolicySet {
    pub(super) versions: BTreeMap<Id, u64>,
    /// The policies that are not its own.
    pub(super) demanded: BTreeSet<Id>,
    /// The policies of each logical environment that has some, sorted by id.
    pub(super) logical: BTreeMap<Id, Vec<Id>>,
    /// Preconditions that hold while these are the latest versions, and while these logical environments
    /// demand them.
    pub(super) preconditions: Vec<Precondition>,
}

/// Returns the logical environments with policies that have this member.
async fn logical_with_policies(member: Id, cx: &Context<'_>) -> Result<Vec<KnownEnvironment>> {
    let ids = cx.store().logical_environments(cx.org()?, &[member]).await?;
    let mut demanding = Vec::new();
    for part in ids.chunks(RECORD_BATCH_SIZE) {
        let known = cx.store().environments_by_id(cx.org()?, part).await?;
        let demands = |known: &KnownEnvironment| {
            !known.archived && !known.record.policies.is_empty() && known.record.included.contains(&member)
        };
        demanding.extend(known.into_iter().filter(demands));
    }
    Ok(demanding)
}

/// Returns the error for a missing policy. Skipping the policy could improve a verdict.
pub(in crate::environments) fn lost(policy: Id) -> Error {
    StoreError::corrupt(format_args!("the latest version of policy {policy} is missing")).into()
}

impl PolicySet {
    /// Reads the policies of an environment at their latest versions. Policies in `read` are not read again.
    pub(super) async fn read(
        known: &KnownEnvironment,
        read: Vec<Current<Policy>>,
        cx: &Context<'_>,
    ) -> Result<Self> {
        let mut policies = Self::default();
        let (member, own) = (known.record.id, BTreeSet::from_iter(known.record.policies.iter().copied()));
        for logical in logical_with_policies(member, cx).await? {
            policies.preconditions.push(logical.unchanged());
            let demanded = distinct(logical.record.policies);
            policies.demanded.extend(demanded.iter().filter(|id| !own.contains(id)));
            policies.logical.insert(logical.record.id, demanded);
        }
        let ids = Vec::from_iter(own.union(&policies.demanded).copied());
        let mut known: BTreeMap<Id, Current<Policy>> =
            read.into_iter().map(|policy| (policy.record.id, policy)).collect();
        let unknown: Vec<Id> = ids.iter().filter(|id| !known.contains_key(id)).copied().collect();
        if !unknown.is_empty() {
            let read = cx.store().policies_by_id(cx.org()?, &unknown).await?;
            known.extend(read.into_iter().map(|policy| (policy.record.id, policy)));
        }
        for id in ids {
            let Current { revision, record } = known.remove(&id).ok_or_else(|| lost(id))?;
            policies.preconditions.push(Precondition::Revision(RecordKind::Policy, id, revision));
            policies.versions.insert(id, record.version);
        }
        Ok(policies)
    }

    /// Returns the indexes of its own policies. An index beyond the recordable range is `None`.
    pub(super) fn own_indexes(&self) -> Vec<Option<u16>> {
        let places = self.versions.keys().enumerate();
        let own = places.filter(|(_, id)| !self.demanded.contains(id));
        own.map(|(place, _)| u16::try_from(place).ok()).collect()
    }

    /// Returns whether a snapshot was evaluated against these policies, for the same logical environments.
    pub(super) fn match_snapshot(&self, snapshot: &Snapshot) -> bool {
        let logical = snapshot.logical.iter().map(|verdict| (&verdict.environment, &verdict.policies));
        snapshot.policies == self.applied()
            && snapshot.demanded.iter().eq(&self.demanded)
            && logical.eq(&self.logical)
    }

    /// Returns whether a ledger with this many entries has all of these versions.
    pub(super) fn exist_within(&self, entries: u64) -> bool {
        self.preconditions
            .iter()
            .all(|precondition| !matches!(precondition, Precondition::Revision(_, _, at) if *at >= entries))
    }

    /// Returns the versions, sorted by policy id.
    pub(super) fn versions(&self) -> Vec<VersionKey> {
        self.versions.iter().map(|(policy, version)| (*policy, *version)).collect()
    }

    pub(super) fn applied(&self) -> Vec<AppliedPolicy> {
        let applied = |(policy, version)| AppliedPolicy { policy, version };
        self.versions().into_iter().map(applied).collect()
    }
}
