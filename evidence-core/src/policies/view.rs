//! Policies in responses. All versions are included, so the text is streamed: it may be too long to hold in
//! memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::actor::Actor;
use crate::compute::LONG_JSON;
use crate::context::{Context, OwnedContext};
use crate::environments::record::Environment;
use crate::error::Result;
use crate::id::Id;
use crate::id::VersionKey;
use crate::name::{EnvironmentName, PolicyName};
use crate::operation::versions::{HistoryItem, Version, Versioned};
use crate::page::Listed;
use crate::policies::record::{Policy, PolicyVersion};
use crate::store::Store;
use crate::store::batch::{distinct, sort_by_ids};
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::time::{Seconds, Timestamp};

/// A policy with all its versions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "PolicyResponse")]
#[non_exhaustive]
pub struct PolicyView {
    /// The keys before its versions.
    #[serde(flatten)]
    pub before: BeforeVersions,
    /// Its versions, oldest first.
    pub versions: Vec<PolicyVersionView>,
    /// The keys after its versions.
    #[serde(flatten)]
    pub after: AfterVersions,
}

/// The keys of a policy that precede its versions in a response.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct BeforeVersions {
    /// Its name, unique in the organization.
    pub name: PolicyName,
    /// A description of its purpose.
    pub description: String,
    /// The name of the user or service account that created it.
    pub created_by: String,
    /// When it was created, in epoch seconds.
    pub created_at: Seconds,
    /// When its description changed, a version was added, or a comment was made, in epoch seconds.
    pub last_modified_at: Seconds,
    /// Always false: policies cannot be archived.
    pub archived: bool,
}

/// The keys of a policy that follow its versions in a response.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AfterVersions {
    /// Its events, oldest first. Of the changes without a new version, contains the newest 100, with up to 16
    /// KiB of their newest comments.
    pub events: Vec<PolicyEventView>,
    /// The names of the environments that it is attached to, sorted.
    pub consuming_envs: Vec<EnvironmentName>,
}

/// A version of a policy.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "VersionedPolicy")]
#[non_exhaustive]
pub struct PolicyVersionView {
    /// Its number, from 1.
    pub version: u64,
    /// The author's comment on the change.
    pub comment: String,
    /// When it was made, in epoch seconds.
    pub timestamp: Seconds,
    /// The name of the user or service account that made it.
    pub created_by: String,
    /// The YAML text as uploaded, byte for byte.
    pub policy_yaml: String,
}

/// An event of a policy.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "PolicyEvent")]
#[non_exhaustive]
pub struct PolicyEventView {
    /// The kind of event: `creation`, `new_version` or `metadata_update`. The latter is a new description, a
    /// comment, or both.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// When it happened, in epoch seconds.
    pub timestamp: Seconds,
    /// The name of the user or service account.
    pub user: String,
    /// The details of the event.
    pub data: PolicyEventData,
}

/// The details of a policy event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PolicyEventData {
    /// The comment on a change without a new version; absent if there is none. Versions have their own
    /// comments.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

impl From<PolicyVersion> for PolicyVersionView {
    fn from(version: PolicyVersion) -> Self {
        Self {
            version: version.version,
            comment: version.comment,
            timestamp: version.at.seconds(),
            created_by: version.by.name,
            policy_yaml: version.policy_yaml,
        }
    }
}

impl PolicyEventView {
    fn new(kind: &'static str, at: Timestamp, by: &Actor) -> Self {
        Self { kind, timestamp: at.seconds(), user: by.name.clone(), data: PolicyEventData::default() }
    }
}

impl Version for PolicyVersion {
    type View = PolicyVersionView;
    type Event = PolicyEventView;
    const OF: &'static str = "policy";

    fn key(&self) -> VersionKey {
        (self.policy, self.version)
    }

    fn creation_event(&self) -> Option<PolicyEventView> {
        let kind = if self.version == 1 { "creation" } else { "new_version" };
        Some(PolicyEventView::new(kind, self.at, &self.by))
    }

    async fn sizes(
        store: &dyn Store,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        store.policy_version_sizes(org, versions).await
    }

    async fn by_number(store: &dyn Store, org: Id, versions: &[VersionKey]) -> StoreResult<Vec<Self>> {
        store.policy_versions_by_number(org, versions).await
    }
}

/// Returns the policy with all its versions. Its events follow from the versions and from the changes without
/// a version. Each of these changes comes after the version that was the latest at its time.
fn versioned(policy: Policy, consumers: &Consumers) -> Result<Versioned> {
    let after = AfterVersions { events: Vec::new(), consuming_envs: consumers.of(policy.id) };
    let mut history = Vec::new();
    let mut changes = policy.description_changes.iter().peekable();
    for number in 1..=policy.version {
        history.push(HistoryItem::Version((policy.id, number)));
        while let Some(change) = changes.next_if(|change| change.version <= number) {
            let event = PolicyEventView::new("metadata_update", change.at, &change.by);
            let data = PolicyEventData { comment: change.comment.clone() };
            history.push(HistoryItem::Event(PolicyEventView { data, ..event }));
        }
    }
    let before = BeforeVersions {
        name: policy.name,
        description: policy.description,
        created_by: policy.created_by.name,
        created_at: policy.created_at.seconds(),
        last_modified_at: policy.last_modified_at.seconds(),
        archived: false,
    };
    Versioned::new(&before, history, &after)
}

/// The environments to which policies are attached.
struct Consumers {
    /// The names of all environments, sorted.
    names: Vec<EnvironmentName>,
    /// The indexes of the environments that each policy is attached to, ascending.
    by_policy: BTreeMap<Id, Vec<usize>>,
}

impl Consumers {
    /// Reads environments in batches, and holds only the needed parts.
    async fn read(cx: &Context<'_>) -> Result<Self> {
        let mut consumers = Self { names: Vec::new(), by_policy: BTreeMap::new() };
        for ids in Listed::batches(cx.store().environments_listed(cx.org()?).await?) {
            let mut environments = cx.store().environments_by_id(cx.org()?, &ids).await?;
            sort_by_ids(&mut environments, &ids, |known| known.record.id);
            for Environment { name, policies, .. } in environments.into_iter().map(|known| known.record) {
                for policy in distinct(policies) {
                    consumers.by_policy.entry(policy).or_default().push(consumers.names.len());
                }
                consumers.names.push(name);
            }
        }
        Ok(consumers)
    }

    /// Returns the names of the environments with this policy, sorted.
    fn of(&self, policy: Id) -> Vec<EnvironmentName> {
        let places = self.by_policy.get(&policy).into_iter().flatten();
        places.filter_map(|place| self.names.get(*place).cloned()).collect()
    }

    /// Returns the approximate size of these names, in bytes.
    fn bytes(&self, policy: Id) -> u64 {
        const NAME: u64 = 32;
        self.by_policy.get(&policy).map_or(0, |places| places.len() as u64 * NAME)
    }
}

/// Streams a policy as JSON text.
pub(super) async fn text(policy: Policy, cx: &Context<'_>) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
    versioned(policy, &Consumers::read(cx).await?)?.text::<PolicyVersion>(cx).await
}

/// Streams a list of all policies as JSON text.
pub(super) async fn list_text(cx: &Context<'_>) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
    let consumers = Arc::new(Consumers::read(cx).await?);
    let mut listed = cx.store().policies_listed(cx.org()?).await?;
    listed.iter_mut().for_each(|policy| policy.bytes += consumers.bytes(policy.id));
    let read = move |ids, owned| in_list(ids, Arc::clone(&consumers), owned);
    Ok(Versioned::list_text::<PolicyVersion, _>(listed, read, cx))
}

/// Returns these policies, in order.
async fn in_list(ids: Vec<Id>, consumers: Arc<Consumers>, owned: OwnedContext) -> Result<Vec<Versioned>> {
    let cx = owned.context();
    let mut policies = cx.store().policies_by_id(cx.org()?, &ids).await?;
    sort_by_ids(&mut policies, &ids, |policy| policy.record.id);
    let size = |Current { record, .. }: &Current<Policy>| {
        record.description.len() as u64 + consumers.bytes(record.id)
    };
    let heavy = policies.iter().map(size).sum::<u64>() > LONG_JSON as u64;
    let write = move || policies.into_iter().map(|policy| versioned(policy.record, &consumers)).collect();
    cx.compute().run_if(heavy, write).await?
}
