//! The store, the settings, the caches and the other parts of a service that its requests share.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::caches::Caches;
use crate::admission::Admission;
use crate::auth::access::{Access, OrgAccess, Principal, Target};
use crate::auth::actor::Scope;
use crate::blobs::Blobs;
use crate::checkpoints::keys::LedgerKeys;
use crate::compute::Compute;
use crate::error::{Error, Missing, Resource, Result};
use crate::fact::names::Key;
use crate::id::{Id, Random};
use crate::limiter::{FairSemaphore, UNLIMITED};
use crate::settings::Settings;
use crate::store::Store;
use crate::sweep::pending::Attachments;
use crate::time::Clock;

/// The parts of a service that its requests share.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) attachments: Attachments,
    pub(crate) blobs: Arc<dyn Blobs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) settings: Settings,
    pub(crate) compute: Compute,
    pub(crate) admission: Admission,
    pub(crate) caches: Caches,
    pub(crate) record_locks: RecordLocks,
    /// The keys that sign checkpoints.
    pub(crate) ledger_keys: Option<Arc<LedgerKeys>>,
    /// The organizations whose last requested checkpoint was not signed.
    pub(crate) unsigned: Mutex<BTreeSet<Id>>,
}

/// One permit per record, for the request that changes it.
pub(crate) type RecordLocks = FairSemaphore<(Id, Key)>;

/// The number of requests that may wait to change one record.
pub(super) const MAX_WAITING_FOR_RECORD: usize = 127;

pub(crate) fn record_locks() -> RecordLocks {
    FairSemaphore::new(UNLIMITED, 1)
}

impl Parts {
    /// Returns the caller's current access to the target, at most half a second old ([`CallerCache`](super::callers::CallerCache)).
    pub(crate) async fn authorize(&self, caller: &Principal, target: &Target) -> Result<Access> {
        let Self { store, clock, caches: Caches { callers, .. }, .. } = self;
        let (caller, target, now) = (caller.clone(), target.clone(), clock.now());
        let is_open = target.scope() == Scope::Open;
        if caller.is_nobody() && !is_open {
            return Err(Error::Unauthenticated);
        }
        let bound_to = match &caller.key {
            Some(key) => callers.holder(key, now, &**store).await?.bound_to,
            None => None,
        };
        let account_org = bound_to.map(|(account_org, _)| account_org);
        let Some(name) = target.org() else {
            return Ok(Access { caller, target, org_access: None, account_org });
        };
        let org_role = callers.org_role(name.as_str(), caller.actor.id, &**store).await?;
        let org_role =
            org_role.ok_or_else(|| Missing::new(Resource::Organization, name.as_str(), name.as_str()))?;
        let org = org_role.organization.id;
        let role = match bound_to {
            Some((account_org, role)) => Some(role).filter(|_| account_org == org),
            None => org_role.role,
        };
        let is_allowed = match (role, target.scope(), target.flow()) {
            (Some(role), scope, _) => role >= scope.least_role(),
            (None, Scope::ReadFlow, Some(flow)) => {
                let flow = store.flow(org, flow.as_str()).await?;
                flow.is_some_and(|flow| flow.record.is_public())
            }
            (None, ..) => false,
        };
        if !is_allowed && !is_open {
            return Err(Error::Forbidden);
        }
        let org_access = OrgAccess { org, name: org_role.organization.name, role };
        Ok(Access { caller, target, org_access: Some(org_access), account_org })
    }
}
