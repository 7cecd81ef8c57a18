//! The audit log of an organization's members: who was given, changed or lost a role, told by the ledger.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::{Role, Scope};
use crate::bounded::{List, ShortText};
use crate::compute::MANY_EVALUATIONS;
use crate::error::Result;
use crate::fact::Fact;
use crate::id::Id;
use crate::name::OrgName;
use crate::operation::{Json, Method, Operation};
use crate::orgs::record::Membership;
use crate::page::{Page, PageLinks, PageNumber, PerPage, SortDirection};
use crate::service::Context;
use crate::store::batch::distinct;
use crate::store::entry::StoredEntry;
use crate::store::error::{StoreError, StoreResult};
use crate::time::{Seconds, SentSeconds, Timestamp};

/// Lists who was given a role in an organization, has another one since, or lost it: a page at a time, the latest first
/// unless another order is asked for.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ListMembershipEvents {
    /// The organization's name.
    pub org: OrgName,
    /// Which page, from 1; the first when left out.
    pub page: Option<PageNumber>,
    /// Events a page: 15 when left out.
    pub per_page: Option<PerPage<100>>,
    /// A substring of the name of the user or of who changed the role, whatever its case.
    pub search: Option<ShortText>,
    /// What happened.
    pub event_type: Option<MembershipEventType>,
    /// The role that the user has since; repeatable, any may match.
    #[serde(default)]
    pub role: List<Role>,
    /// Where the change came from; repeatable, any may match.
    #[serde(default)]
    pub source: List<MembershipSource>,
    /// What happened then or later, in epoch seconds.
    pub from_timestamp: Option<SentSeconds>,
    /// What happened then or before, in epoch seconds.
    pub to_timestamp: Option<SentSeconds>,
    /// What the list is sorted by: `when` when left out. Those equal in it come in the order of their time.
    #[serde(default)]
    pub sort_by: MembershipSort,
    /// The order: `desc` when left out.
    pub sort_dir: Option<SortDirection>,
}

/// What can happen to a user's role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MembershipEventType {
    /// The user had no role before.
    Added,
    /// The user had another role before.
    Changed,
    /// The user has no role any more.
    Removed,
}

impl MembershipEventType {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

/// Where a change of a role comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MembershipSource {
    /// Somebody who administers the organization.
    App,
    /// An invitation that was accepted.
    Invitation,
    /// A directory of users.
    Scim,
    /// The operator of the host.
    Script,
}

impl MembershipSource {
    const fn as_str(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Invitation => "invitation",
            Self::Scim => "scim",
            Self::Script => "script",
        }
    }

    /// Where a change comes from that this actor, as a ledger names it, has made.
    fn of(actor: &str) -> Self {
        if actor.starts_with("operator:") { Self::Script } else { Self::App }
    }
}

/// What the list is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MembershipSort {
    /// When it happened.
    #[default]
    When,
    /// Whose role it is.
    User,
    /// The role that the user has since.
    Role,
    /// Who changed it.
    ChangedBy,
    /// Where the change came from.
    Source,
}

impl MembershipSort {
    const fn as_str(self) -> &'static str {
        match self {
            Self::When => "when",
            Self::User => "user",
            Self::Role => "role",
            Self::ChangedBy => "changed_by",
            Self::Source => "source",
        }
    }
}

/// A change of a user's role.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct MembershipEvent {
    /// What happened.
    pub event_type: MembershipEventType,
    /// The user's name.
    pub user: String,
    /// The role that the user had before; null without one.
    pub old_role: Option<Role>,
    /// The role that the user has since; null without one.
    pub new_role: Option<Role>,
    /// Who changed it: the name of a user or of the operator of the host.
    pub changed_by: String,
    /// Where the change came from.
    pub source: MembershipSource,
    /// When it happened, in epoch seconds.
    pub when: Seconds,
}

/// A page of the audit log of members.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct MembershipEventList {
    /// This page's number, from 1.
    pub page: u64,
    /// Events a page, as asked.
    pub per_page: u64,
    /// Number of pages.
    pub total_pages: u64,
    /// Number of events on all pages.
    pub total_count: u64,
    /// This page and its neighbours.
    pub _links: PageLinks,
    /// The events of the page.
    pub events: Vec<MembershipEvent>,
}

/// Events a page when the caller does not say.
const PER_PAGE: u64 = 15;

/// More entries of the ledger are not read at once.
const ENTRIES: u64 = 10_000;

impl Operation for ListMembershipEvents {
    const NAME: &'static str = "list_audit_log";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/membership-audit-log/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the changes of the roles of an organization's members";
    type Body = ();
    type Output = Json<MembershipEventList>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let changes = Changes::read(cx).await?;
        let users = distinct(changes.all.iter().map(|change| change.user));
        let users = cx.store().users_by_id(&users).await?;
        let names = users.into_iter().map(|user| (user.id, user.name.into_string())).collect();
        let (page, per_page) = (self.page.unwrap_or_default(), self.per_page.map_or(PER_PAGE, PerPage::get));
        let heavy = changes.all.len() > MANY_EVALUATIONS;
        let select = move || {
            let slice = Page::of(self.select(changes.all, &names), page.request(per_page));
            (slice.map(|change| change.event(&names)), self)
        };
        let (slice, this) = cx.compute().run_if(heavy, select).await?;
        let (total_pages, total_count) = (slice.pages(per_page), slice.total);
        let address = cx.api_url(&format!("membership-audit-log/{}", this.org));
        let _links = {
            let query = this.query();
            let query = query.iter().map(|(name, value)| (*name, value.as_str()));
            PageLinks::new(&address, query, page.get(), per_page, total_pages)
        };
        let (page, events) = (page.get(), slice.items);
        Ok(Json(MembershipEventList { page, per_page, total_pages, total_count, _links, events }))
    }
}

/// A change of a role, as the ledger tells it.
#[derive(Debug, Clone, PartialEq)]
struct Change {
    index: u64,
    at: Timestamp,
    user: Id,
    before: Option<Role>,
    after: Option<Role>,
    /// As the ledger names them: `user:<name>`.
    by: String,
}

impl Change {
    fn event_type(&self) -> MembershipEventType {
        match (self.before, self.after) {
            (_, None) => MembershipEventType::Removed,
            (None, Some(_)) => MembershipEventType::Added,
            (Some(_), Some(_)) => MembershipEventType::Changed,
        }
    }

    /// The name of who made it.
    fn changed_by(&self) -> &str {
        self.by.split_once(':').map_or(&self.by, |(_, name)| name)
    }

    fn event(self, names: &BTreeMap<Id, String>) -> MembershipEvent {
        MembershipEvent {
            event_type: self.event_type(),
            user: names.get(&self.user).cloned().unwrap_or_default(),
            old_role: self.before,
            new_role: self.after,
            changed_by: self.changed_by().to_owned(),
            source: MembershipSource::of(&self.by),
            when: self.at.seconds(),
        }
    }
}

/// All changes of an organization, oldest first.
#[derive(Debug, Default)]
struct Changes {
    all: Vec<Change>,
    /// The roles that they leave.
    roles: BTreeMap<Id, Role>,
}

impl Changes {
    async fn read(cx: &Context<'_>) -> Result<Self> {
        let mut changes = Self::default();
        loop {
            let first = changes.all.last().map_or(0, |last| last.index + 1);
            let entries = cx.store().membership_entries(cx.org()?, first, ENTRIES).await?;
            let is_last = (entries.len() as u64) < ENTRIES;
            let heavy = entries.len() > MANY_EVALUATIONS;
            changes = cx.compute().run_if(heavy, move || changes.with(entries)).await??;
            if is_last {
                return Ok(changes);
            }
        }
    }

    /// The same, and what the next entries tell. Where one cannot be read nobody knows what a role was before.
    fn with(mut self, entries: Vec<StoredEntry>) -> StoreResult<Self> {
        for StoredEntry { index, at, actor: by, payload, .. } in entries {
            let fact = serde_json::from_str(&payload)
                .map_err(|error| StoreError::corrupt(format_args!("ledger entry {index}: {error}")))?;
            let (user, after) = match fact {
                Fact::MemberAdded { record: Membership { user, role } } => (user, Some(role)),
                Fact::MemberRemoved { user } => (user, None),
                _ => continue,
            };
            let before = match after {
                Some(role) => self.roles.insert(user, role),
                None => self.roles.remove(&user),
            };
            self.all.push(Change { index, at, user, before, after, by });
        }
        Ok(self)
    }
}

impl ListMembershipEvents {
    /// Those of the changes that are asked for, in the order that is asked for.
    fn select(&self, mut changes: Vec<Change>, names: &BTreeMap<Id, String>) -> Vec<Change> {
        let name = |change: &Change| names.get(&change.user).map_or("", String::as_str).to_owned();
        let search = self.search.as_deref().unwrap_or_default().to_ascii_lowercase();
        let has = |text: &str| text.to_ascii_lowercase().contains(&search);
        changes.retain(|change| {
            self.event_type.is_none_or(|event_type| event_type == change.event_type())
                && (self.role.0.is_empty() || change.after.is_some_and(|role| self.role.0.contains(&role)))
                && (self.source.0.is_empty() || self.source.0.contains(&MembershipSource::of(&change.by)))
                && self.from_timestamp.is_none_or(|from| from.0 <= change.at)
                && self.to_timestamp.is_none_or(|to| change.at <= to.0)
                && (has(&name(change)) || has(change.changed_by()))
        });
        let text = |change: &Change| match self.sort_by {
            MembershipSort::When | MembershipSort::Role => String::new(),
            MembershipSort::User => name(change),
            MembershipSort::ChangedBy => change.changed_by().to_owned(),
            MembershipSort::Source => MembershipSource::of(&change.by).as_str().to_owned(),
        };
        let role = |change: &Change| change.after.filter(|_| self.sort_by == MembershipSort::Role);
        let key = |change: &Change| (role(change), text(change), change.index);
        match self.sort_dir.unwrap_or(SortDirection::Desc) {
            SortDirection::Asc => changes.sort_by_cached_key(key),
            SortDirection::Desc => changes.sort_by_cached_key(|change| Reverse(key(change))),
        }
        changes
    }

    /// The parameters that narrow and sort, for the links to other pages.
    fn query(&self) -> Vec<(&'static str, String)> {
        let seconds = |at: SentSeconds| at.0.decimal();
        let given = [
            ("search", self.search.as_deref().map(str::to_owned)),
            ("event_type", self.event_type.map(|event_type| event_type.as_str().to_owned())),
            ("from_timestamp", self.from_timestamp.map(seconds)),
            ("to_timestamp", self.to_timestamp.map(seconds)),
            ("sort_by", Some(self.sort_by.as_str().to_owned())),
            ("sort_dir", self.sort_dir.map(|direction| direction.as_str().to_owned())),
        ];
        let mut query: Vec<_> = given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        query.extend(self.role.0.iter().map(|role| ("role", role.to_string())));
        query.extend(self.source.0.iter().map(|source| ("source", source.as_str().to_owned())));
        query
    }
}
