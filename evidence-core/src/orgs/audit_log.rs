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
use crate::page::{Page, PageLinks, PageNumber, PageRequest, PerPage, SortDirection};
use crate::service::Context;
use crate::store::batch::distinct;
use crate::store::entry::StoredEntry;
use crate::store::error::{StoreError, StoreResult, skip_corrupt};
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
const ENTRIES: u64 = 1_000;

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
        let (page, per_page) = (self.page.unwrap_or_default(), self.per_page.map_or(PER_PAGE, PerPage::get));
        let request = page.request(per_page);
        let (this, Selected { changes, names }) = match self.page_of_all(request, cx).await? {
            Some(found) => (self, found),
            None => self.selected(request, cx).await?,
        };
        let slice = changes.map(|change| change.event(&names));
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

    fn event(self, names: &Names) -> MembershipEvent {
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

/// What an entry tells of a change: what the role was before where the program told that.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    index: u64,
    at: Timestamp,
    user: Id,
    was: Option<Option<Role>>,
    after: Option<Role>,
    by: String,
}

impl Told {
    /// Nothing where the entry is about something else.
    fn read(entry: StoredEntry) -> StoreResult<Option<Self>> {
        let StoredEntry { index, at, actor: by, payload, .. } = entry;
        let fact = Fact::read(&payload)
            .map_err(|error| StoreError::corrupt(format_args!("ledger entry {index}: {error}")))?;
        let (user, was, after) = match fact {
            Fact::MemberAdded { record: Membership { user, role }, was } => (user, was, Some(role)),
            Fact::MemberRemoved { user, was } => (user, was.map(Some), None),
            _ => return Ok(None),
        };
        Ok(Some(Self { index, at, user, was, after, by }))
    }

    /// What these entries tell: one that cannot be read is left out.
    fn all(org: Id, entries: Vec<StoredEntry>) -> StoreResult<Vec<Self>> {
        let told = skip_corrupt(org, entries.into_iter().map(|entry| (entry.index, Self::read(entry))))?;
        Ok(told.into_iter().flatten().collect())
    }

    fn change(self, before: Option<Role>) -> Change {
        let Self { index, at, user, after, by, .. } = self;
        Change { index, at, user, before, after, by }
    }
}

/// The names of users.
type Names = BTreeMap<Id, String>;

/// A page of changes, and the names of the users whom they are about.
#[derive(Debug)]
struct Selected {
    changes: Page<Change>,
    names: Names,
}

/// Adds the names of those of these users who have none yet.
async fn add_names(names: &mut Names, users: impl Iterator<Item = Id>, cx: &Context<'_>) -> Result<()> {
    let unknown = distinct(users.filter(|user| !names.contains_key(user)));
    if !unknown.is_empty() {
        let users = cx.store().users_by_id(&unknown).await?;
        names.extend(users.into_iter().map(|user| (user.id, user.name.into_string())));
    }
    Ok(())
}

impl ListMembershipEvents {
    /// Whether all changes are asked for, in the order of their time.
    fn is_whole(&self) -> bool {
        let Self { search, event_type, role, source, from_timestamp, to_timestamp, sort_by, .. } = self;
        search.as_deref().is_none_or(str::is_empty)
            && event_type.is_none()
            && (role.0.is_empty() && source.0.is_empty())
            && (from_timestamp.is_none() && to_timestamp.is_none())
            && *sort_by == MembershipSort::When
    }

    /// The page where all changes are asked for and each of those shown tells what the role was before: nothing else is read.
    async fn page_of_all(&self, request: PageRequest, cx: &Context<'_>) -> Result<Option<Selected>> {
        if !self.is_whole() {
            return Ok(None);
        }
        let (org, direction) = (cx.org()?, self.sort_dir.unwrap_or(SortDirection::Desc));
        let Page { items, total } = cx.store().membership_page(org, direction, request).await?;
        let changes = Told::all(org, items)?.into_iter().map(|told| told.was.map(|was| told.change(was)));
        let Some(items) = changes.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let mut names = Names::new();
        add_names(&mut names, items.iter().map(|change| change.user), cx).await?;
        Ok(Some(Selected { changes: Page { items, total }, names }))
    }

    /// The page of those that are asked for. All entries are read, some at a time, and what is not asked for is let go.
    async fn selected(self, request: PageRequest, cx: &Context<'_>) -> Result<(Self, Selected)> {
        let (org, mut first) = (cx.org()?, 0);
        let (this, mut found, mut names) = (self, Vec::new(), Names::new());
        // What the entries before leave.
        let mut roles: BTreeMap<Id, Role> = BTreeMap::new();
        loop {
            let entries = cx.store().membership_entries(org, first, ENTRIES).await?;
            let next = entries.last().map(|last| last.index + 1);
            let is_last = (entries.len() as u64) < ENTRIES;
            let mut changes = Vec::new();
            for told in Told::all(org, entries)? {
                let known = match told.after {
                    Some(role) => roles.insert(told.user, role),
                    None => roles.remove(&told.user),
                };
                let before = told.was.unwrap_or(known);
                changes.push(told.change(before));
            }
            add_names(&mut names, changes.iter().map(|change| change.user), cx).await?;
            found.extend(changes.into_iter().filter(|change| this.admits(change, &names)));
            match next.filter(|_| !is_last) {
                Some(next) => first = next,
                None => break,
            }
        }
        let heavy = found.len() > MANY_EVALUATIONS;
        let sort = move || {
            this.sort(&mut found, &names);
            (this, Selected { changes: Page::of(found, request), names })
        };
        cx.compute().run_if(heavy, sort).await
    }

    /// Whether the change is asked for.
    fn admits(&self, change: &Change, names: &Names) -> bool {
        let search = self.search.as_deref().unwrap_or_default().to_ascii_lowercase();
        let has = |text: &str| text.to_ascii_lowercase().contains(&search);
        self.event_type.is_none_or(|event_type| event_type == change.event_type())
            && (self.role.0.is_empty() || change.after.is_some_and(|role| self.role.0.contains(&role)))
            && (self.source.0.is_empty() || self.source.0.contains(&MembershipSource::of(&change.by)))
            && self.from_timestamp.is_none_or(|from| from.0 <= change.at)
            && self.to_timestamp.is_none_or(|to| change.at <= to.0)
            && (has(names.get(&change.user).map_or("", String::as_str)) || has(change.changed_by()))
    }

    /// Puts changes in the order that is asked for.
    fn sort(&self, changes: &mut [Change], names: &Names) {
        let text = |change: &Change| match self.sort_by {
            MembershipSort::When | MembershipSort::Role => String::new(),
            MembershipSort::User => names.get(&change.user).cloned().unwrap_or_default(),
            MembershipSort::ChangedBy => change.changed_by().to_owned(),
            MembershipSort::Source => MembershipSource::of(&change.by).as_str().to_owned(),
        };
        let role = |change: &Change| change.after.filter(|_| self.sort_by == MembershipSort::Role);
        let key = |change: &Change| (role(change), text(change), change.index);
        match self.sort_dir.unwrap_or(SortDirection::Desc) {
            SortDirection::Asc => changes.sort_by_cached_key(key),
            SortDirection::Desc => changes.sort_by_cached_key(|change| Reverse(key(change))),
        }
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
