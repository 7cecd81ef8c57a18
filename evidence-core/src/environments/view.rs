//! Environments in responses: names instead of ids, and the state that a logical environment derives from its
//! members.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::{Context, OwnedContext};
use crate::environments::record::EnvironmentKind;
use crate::environments::store::KnownEnvironment;
use crate::error::Result;
use crate::id::Id;
use crate::name::{EnvironmentName, OrgName, PolicyName};
use crate::operation::{Envelope, json_text};
use crate::page::PageLinks;
use crate::rules::policy::Members;
use crate::snapshots::store::SnapshotRow;
use crate::store::batch::{distinct, sort_by_ids};
use crate::tags::record::Tags;
use crate::time::{Seconds, Timestamp};

impl KnownEnvironment {
    /// Returns the later of the last change of its settings and its last report.
    fn touched_at(&self) -> Timestamp {
        let modified = self.record.last_modified_at;
        self.status.reported_at.map_or(modified, |reported| reported.max(modified))
    }
}

/// An environment: a place that runs artifacts and gets reports, or a logical group of such places.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "GetEnvironmentResponse")]
#[non_exhaustive]
pub struct EnvironmentView {
    /// The organization's name.
    pub org: OrgName,
    /// Its name, unique in the organization.
    pub name: EnvironmentName,
    /// Its kind. It never changes.
    #[serde(rename = "type")]
    pub kind: EnvironmentKind,
    /// A description of its purpose.
    pub description: String,
    /// The later of the last change of its settings and its last report, in epoch seconds. For a logical
    /// environment, the last change in a member; before any report, the last change of its settings.
    pub last_modified_at: Seconds,
    /// When the last report arrived, in epoch seconds; null before the first report. Reports without changes
    /// are recorded once a minute by default.
    pub last_reported_at: Option<Seconds>,
    /// When its newest snapshot was taken, in epoch seconds; null without one. For a logical environment, the
    /// newest snapshot of its members.
    pub last_changed_at: Option<Seconds>,
    /// The verdict of the newest snapshot, or of the members together. Null (unknown) without policies or
    /// snapshots.
    pub state: Option<bool>,
    /// The value that was set. It has no effect.
    pub include_scaling: bool,
    /// Whether an artifact that was never reported to a flow is non-compliant there.
    pub require_provenance: bool,
    /// Its tags: key to value.
    pub tags: Tags,
    /// The names of the policies attached to it, sorted.
    pub policies: Vec<PolicyName>,
    /// The members of a logical environment, in the given order; null for a physical one.
    pub included_environments: Option<Vec<EnvironmentName>>,
}

/// The state of a physical environment, or the state that a logical one derives from its members.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveState {
    pub(super) modified_at: Timestamp,
    pub(super) changed_at: Option<Timestamp>,
    state: Option<bool>,
}

/// The small part of an environment's record that other responses and the sort order need.
pub(super) struct EnvironmentSummary {
    id: Id,
    pub(super) name: EnvironmentName,
    own: LiveState,
    /// The number of its snapshots.
    snapshots: u64,
    /// The members of a logical environment.
    included: Option<Vec<Id>>,
    /// Its own policies, sorted by id.
    policies: Vec<Id>,
}

impl EnvironmentSummary {
    fn of(known: &KnownEnvironment) -> Self {
        let (environment, status) = (&known.record, &known.status);
        let is_physical = environment.kind.is_physical();
        Self {
            id: environment.id,
            name: environment.name.clone(),
            own: LiveState {
                modified_at: if is_physical { known.touched_at() } else { environment.last_modified_at },
                changed_at: status.changed_at,
                state: known.state(),
            },
            snapshots: status.snapshots,
            included: (!is_physical).then(|| environment.included.clone()),
            policies: distinct(environment.policies.iter().copied()),
        }
    }
}

/// The environments that other environments refer to by id.
#[derive(Default)]
pub(super) struct EnvironmentSummaries {
    pub(super) environments: BTreeMap<Id, EnvironmentSummary>,
    /// Archived members of logical environments. They are ignored.
    archived: BTreeSet<Id>,
    /// The latest snapshots of the members of logical environments with policies.
    latest: BTreeMap<Id, SnapshotRow>,
}

/// The most member records that are read at once.
const MEMBERS: usize = 64;

impl EnvironmentSummaries {
    pub(super) fn add(&mut self, known: &KnownEnvironment) {
        self.environments.insert(known.record.id, EnvironmentSummary::of(known));
    }

    /// Adds the members of the environments that are present.
    pub(super) async fn add_members(&mut self, cx: &Context<'_>) -> Result<()> {
        let included = self.environments.values().filter_map(|summary| summary.included.as_ref());
        let mut members = distinct(included.flatten().copied());
        members.retain(|member| !self.environments.contains_key(member));
        for part in members.chunks(MEMBERS) {
            for member in cx.store().environments_by_id(cx.org()?, part).await? {
                if member.archived {
                    self.archived.insert(member.record.id);
                } else {
                    self.add(&member);
                }
            }
        }
        let demanding = self.environments.values().filter(|summary| !summary.policies.is_empty());
        let members = distinct(demanding.filter_map(|summary| summary.included.as_ref()).flatten().copied());
        let latest = members.into_iter().filter_map(|member| {
            let snapshots = self.environments.get(&member)?.snapshots;
            (snapshots > 0).then_some((member, snapshots..=snapshots))
        });
        let latest = Vec::from_iter(latest);
        if !latest.is_empty() {
            let rows = cx.store().snapshots(cx.org()?, &latest).await?;
            self.latest.extend(rows.into_iter().map(|row| (row.environment, row)));
        }
        Ok(())
    }

    /// Returns the state of a logical environment. A member that cannot be read has an unknown state.
    fn state(&self, logical: Id, included: &[Id], policies: &[Id]) -> Option<bool> {
        let mut members = Members::default();
        for id in included.iter().filter(|id| !self.archived.contains(*id)) {
            let state = self.environments.get(id).and_then(|member| member.own.state);
            members.add((state, self.latest.get(id).and_then(|row| row.policies_verdict_for(logical))));
        }
        members.state(Some(policies))
    }

    fn members<'a>(&'a self, included: &'a [Id]) -> impl Iterator<Item = &'a EnvironmentSummary> {
        included.iter().filter_map(|id| self.environments.get(id))
    }

    pub(super) fn live_state(&self, environment: &EnvironmentSummary) -> LiveState {
        let Some(included) = &environment.included else { return environment.own };
        let changed_at = self.members(included).filter_map(|member| member.own.changed_at).max();
        LiveState {
            modified_at: changed_at.unwrap_or(environment.own.modified_at),
            changed_at,
            state: self.state(environment.id, included, &environment.policies),
        }
    }

    /// Returns these environments for a response.
    pub(super) async fn views(
        &self,
        known: Vec<KnownEnvironment>,
        cx: &Context<'_>,
    ) -> Result<Vec<EnvironmentView>> {
        let policies = distinct(known.iter().flat_map(|known| &known.record.policies).copied());
        let policies = cx.store().policies_by_id(cx.org()?, &policies).await?;
        let policies = policies.into_iter().map(|policy| (policy.record.id, policy.record.name));
        let (policies, org) = (policies.collect(), &cx.org_access()?.name);
        Ok(known.into_iter().map(|known| self.view(known, &policies, org)).collect())
    }

    fn view(
        &self,
        known: KnownEnvironment,
        names: &BTreeMap<Id, PolicyName>,
        org: &OrgName,
    ) -> EnvironmentView {
        let summary = EnvironmentSummary::of(&known);
        let (live_state, environment) = (self.live_state(&summary), known.record);
        let mut policies: Vec<_> =
            environment.policies.iter().filter_map(|id| names.get(id)).cloned().collect();
        policies.sort();
        EnvironmentView {
            org: org.clone(),
            name: environment.name,
            kind: environment.kind,
            description: environment.description,
            last_modified_at: live_state.modified_at.seconds(),
            last_reported_at: known.status.reported_at.map(Timestamp::seconds),
            last_changed_at: live_state.changed_at.map(Timestamp::seconds),
            state: live_state.state,
            include_scaling: environment.include_scaling,
            require_provenance: environment.require_provenance,
            tags: environment.tags,
            policies,
            included_environments: summary
                .included
                .map(|included| self.members(&included).map(|member| member.name.clone()).collect()),
        }
    }
}

/// The sort key of a list of environments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are the fields")]
pub enum EnvironmentSort {
    #[default]
    Name,
    LastModifiedAt,
    LastChangedAt,
}

/// A list of environments: one page with `page` or `per_page`, otherwise all.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum EnvironmentList {
    /// Every environment.
    All(Vec<EnvironmentView>),
    /// One page.
    Page {
        /// Links to this page and its neighbours.
        _links: PageLinks,
        /// The environments of the page.
        environments: Vec<EnvironmentView>,
        /// This page's number, from 1.
        page: u64,
        /// Environments per page, as requested.
        per_page: u64,
        /// The number of pages.
        total_pages: u64,
        /// The number of environments on all pages.
        total_count: u64,
    },
}

/// The shared data of the environments in a list: those they refer to, and records that are already read.
type ViewContext = (EnvironmentSummaries, BTreeMap<Id, KnownEnvironment>, OwnedContext);

/// Returns the environments of a list for a response, in its order.
pub(super) async fn views(
    ids: Vec<Id>,
    (summaries, kept, owned): &ViewContext,
) -> Result<Vec<EnvironmentView>> {
    let cx = owned.context();
    let at_hand: Option<Vec<KnownEnvironment>> = ids.iter().map(|id| kept.get(id).cloned()).collect();
    let known = match at_hand {
        Some(known) => known,
        None => {
            let mut known = cx.store().environments_by_id(cx.org()?, &ids).await?;
            sort_by_ids(&mut known, &ids, |known| known.record.id);
            known
        }
    };
    summaries.views(known, &cx).await
}

/// The position of a page in a list of environments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EnvironmentPage {
    #[serde(skip)]
    pub(super) links: PageLinks,
    pub(super) page: u64,
    pub(super) per_page: u64,
    pub(super) total_pages: u64,
    pub(super) total_count: u64,
}

impl Envelope<EnvironmentView> for Option<EnvironmentPage> {
    type Document = EnvironmentList;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let Some(page) = self else { return Ok((Vec::new(), Vec::new())) };
        let before = [b"{\"_links\":".as_slice(), &json_text(&page.links)?, b",\"environments\":"].concat();
        let mut after = json_text(page)?;
        after.splice(..1, *b",");
        Ok((before, after))
    }
}
