//! The audit log of an organization's members: the users whose roles were added, changed or removed,
//! according to the ledger.

use std::collections::BTreeMap;
use std::fmt::Display;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::{OPERATOR, Role, Scope};
use crate::bounded::{List, ShortText};
use crate::context::Context;
use crate::error::Result;
use crate::fact::{Fact, read_payload};
use crate::id::Id;
use crate::name::OrgName;
use crate::operation::{Json, Method, Operation};
use crate::orgs::record::Membership;
use crate::page::{Page, PageLinks, PageNumber, PageRequest, PerPage, SortDirection};
use crate::store::batch::distinct;
use crate::store::entry::StoredEntry;
use crate::store::error::{StoreError, StoreResult, unless_corrupt};
use crate::time::{Seconds, SentSeconds, Timestamp};

/// Lists the changes of users' roles in an organization: added, changed and removed. Returns one page at a
/// time, the latest first by default.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ListMembershipEvents {
    /// The organization's name.
    pub org: OrgName,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Events per page. Defaults to 15.
    pub per_page: Option<PerPage<100>>,
    /// A substring of the user's name or of the name of the actor who changed the role, case-insensitive.
    pub search: Option<ShortText>,
    /// The type of event.
    pub event_type: Option<MembershipEventType>,
    /// The role after the change. Repeatable; any may match.
    #[serde(default)]
    pub role: List<Role>,
    /// The source of the change. Repeatable; any may match.
    #[serde(default)]
    pub source: List<MembershipSource>,
    /// The start of the range, inclusive, in epoch seconds.
    pub from_timestamp: Option<SentSeconds>,
    /// The end of the range, inclusive, in epoch seconds.
    pub to_timestamp: Option<SentSeconds>,
    /// The sort key. Defaults to `when`. Events with equal keys are sorted by time.
    #[serde(default)]
    pub sort_by: MembershipSort,
    /// The order. Defaults to `desc`.
    pub sort_dir: Option<SortDirection>,
}

/// A kind of change to a user's role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MembershipEventType {
    /// The user had no role before.
    Added,
    /// The user had another role before.
    Changed,
    /// The user no longer has a role.
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

/// The source of a change to a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MembershipSource {
    /// An administrator of the organization.
    App,
    /// An accepted invitation.
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

    /// Returns the source of a change, given the actor in the ledger's leaf.
    fn of(actor: &str) -> Self {
        if actor == OPERATOR { Self::Script } else { Self::App }
    }
}

/// The sort key of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MembershipSort {
    /// The time.
    #[default]
    When,
    /// The user whose role changed.
    User,
    /// The role after the change.
    Role,
    /// The actor who changed it.
    ChangedBy,
    /// The source of the change.
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
    /// The type of event.
    pub event_type: MembershipEventType,
    /// The user's name.
    pub user: String,
    /// The role before the change; null without one.
    pub old_role: Option<Role>,
    /// The role after the change; null without one.
    pub new_role: Option<Role>,
    /// The name of the user or of the host's operator who changed it.
    pub changed_by: String,
    /// The source of the change.
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
    /// Events per page, as requested.
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

/// The default number of events on a page.
const PER_PAGE: u64 = 15;

/// The most ledger entries that are read at once.
const ENTRIES: u64 = 1_000;

/// The most entries before a page that are held at once.
const KEPT: u64 = 10_000;

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
        let found = if self.is_whole() {
            self.page_of_all(request, cx).await?
        } else {
            self.selected(request, cx).await?
        };
        let (total_pages, total_count) = (found.pages(per_page), found.total);
        let address = cx.api_url(&format!("membership-audit-log/{}", self.org));
        let _links = {
            let query = self.query();
            let query = query.iter().map(|(name, value)| (*name, value.as_str()));
            PageLinks::new(&address, query, page.get(), per_page, total_pages)
        };
        let events = found.items.into_iter().filter_map(Entry::event).collect();
        let page = page.get();
        Ok(Json(MembershipEventList { page, per_page, total_pages, total_count, _links, events }))
    }
}

/// A ledger entry about a role.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    index: u64,
    at: Timestamp,
    /// The name of the actor who made the change; empty if the entry cannot be read.
    by: String,
    source: MembershipSource,
    /// The change; `None` if the entry cannot be read. Such an entry is not returned, but it has its place in
    /// the list, as far as it is known to match.
    change: Option<Change>,
}

/// A change of a role.
#[derive(Debug, Clone, PartialEq)]
struct Change {
    user: Id,
    /// The user's name.
    name: String,
    before: Option<Role>,
    after: Option<Role>,
}

impl Change {
    fn event_type(&self) -> MembershipEventType {
        match (self.before, self.after) {
            (_, None) => MembershipEventType::Removed,
            (None, Some(_)) => MembershipEventType::Added,
            (Some(_), Some(_)) => MembershipEventType::Changed,
        }
    }

    /// Returns the change, and the name of the actor who made it.
    fn read(entry: &StoredEntry) -> StoreResult<(Self, String)> {
        let corrupt =
            |what: &dyn Display| StoreError::corrupt(format_args!("ledger entry {}: {what}", entry.index));
        let (fact, by) = read_payload(&entry.payload).map_err(|error| corrupt(&error))?;
        let (user, before, after) = match fact {
            Fact::MemberAdded { record: Membership { user, role }, was } => (user, was, Some(role)),
            Fact::MemberRemoved { user, was } => (user, Some(was), None),
            _ => return Err(corrupt(&"it is about something else")),
        };
        let by = by.unwrap_or_else(|| entry.actor.clone());
        Ok((Self { user, name: String::new(), before, after }, by))
    }
}

impl Entry {
    fn read(org: Id, entry: StoredEntry) -> StoreResult<Self> {
        let (change, by) = unless_corrupt(org, entry.index, Change::read(&entry))?.unzip();
        let StoredEntry { index, effective_at: at, actor, .. } = entry;
        Ok(Self { index, at, by: by.unwrap_or_default(), source: MembershipSource::of(&actor), change })
    }

    fn event(self) -> Option<MembershipEvent> {
        let change = self.change?;
        Some(MembershipEvent {
            event_type: change.event_type(),
            user: change.name,
            old_role: change.before,
            new_role: change.after,
            changed_by: self.by,
            source: self.source,
            when: self.at.seconds(),
        })
    }
}

/// Reads these entries, with the names of their users.
async fn read(entries: Vec<StoredEntry>, cx: &Context<'_>) -> Result<Vec<Entry>> {
    let org = cx.org()?;
    let entries = entries.into_iter().map(|entry| Entry::read(org, entry));
    let mut entries = entries.collect::<StoreResult<Vec<_>>>()?;
    let users = distinct(entries.iter().filter_map(|entry| Some(entry.change.as_ref()?.user)));
    if !users.is_empty() {
        let users = cx.store().users_by_id(&users).await?;
        let names: BTreeMap<Id, OrgName> = users.into_iter().map(|user| (user.id, user.name)).collect();
        for change in entries.iter_mut().filter_map(|entry| entry.change.as_mut()) {
            change.name = names.get(&change.user).map(OrgName::to_string).unwrap_or_default();
        }
    }
    Ok(entries)
}

/// The sort key of an entry.
type SortKey = (Option<Role>, String, u64);

/// Collects the first entries of a list after `after`, up to `room`. Entries may be added in any order.
#[derive(Debug)]
struct First {
    direction: SortDirection,
    after: Option<SortKey>,
    room: usize,
    entries: BTreeMap<SortKey, Entry>,
}

impl First {
    fn add(&mut self, key: SortKey, entry: Entry) {
        let is_after = self.after.as_ref().is_none_or(|after| match self.direction {
            SortDirection::Asc => key > *after,
            SortDirection::Desc => key < *after,
        });
        if is_after {
            self.entries.insert(key, entry);
        }
        if self.entries.len() > self.room {
            match self.direction {
                SortDirection::Asc => self.entries.pop_last(),
                SortDirection::Desc => self.entries.pop_first(),
            };
        }
    }

    fn into_sorted(self) -> Vec<(SortKey, Entry)> {
        match self.direction {
            SortDirection::Asc => self.entries.into_iter().collect(),
            SortDirection::Desc => self.entries.into_iter().rev().collect(),
        }
    }
}

/// A search for a page in repeated readings of the list. Each starts where the previous one ended.
#[derive(Debug)]
struct PageSearch {
    request: PageRequest,
    /// The number of entries before the page that one reading holds.
    kept: u64,
    /// The number of entries between `after` and the page.
    before: u64,
    after: Option<SortKey>,
    total: Option<u64>,
}

impl PageSearch {
    const fn new(request: PageRequest, kept: u64) -> Self {
        Self { request, kept, before: request.offset, after: None, total: None }
    }

    /// Returns how many entries the next reading holds.
    fn room(&self) -> usize {
        let page = if self.before <= self.kept { self.request.limit } else { 0 };
        usize::try_from(self.before.min(self.kept) + page).unwrap_or(usize::MAX)
    }

    /// Returns the page if the first entries after `after` contain it. `count` is the total number of
    /// entries.
    fn found(&mut self, entries: Vec<(SortKey, Entry)>, count: u64) -> Option<Page<Entry>> {
        let total = *self.total.get_or_insert(count);
        if self.before <= self.kept || self.request.offset >= total {
            let page = entries.into_iter().skip(usize::try_from(self.before).unwrap_or(usize::MAX));
            return Some(Page { items: page.map(|(_, entry)| entry).collect(), total });
        }
        self.before -= self.kept;
        self.after = entries.into_iter().next_back().map(|(key, _)| key);
        None
    }
}

impl ListMembershipEvents {
    fn direction(&self) -> SortDirection {
        self.sort_dir.unwrap_or(SortDirection::Desc)
    }

    /// Returns whether all changes are requested, in the order of their time.
    fn is_whole(&self) -> bool {
        let Self { search, event_type, role, source, from_timestamp, to_timestamp, sort_by, .. } = self;
        search.as_deref().is_none_or(str::is_empty)
            && event_type.is_none()
            && (role.0.is_empty() && source.0.is_empty())
            && (from_timestamp.is_none() && to_timestamp.is_none())
            && *sort_by == MembershipSort::When
    }

    /// Returns the page if all changes are requested. Reads only the page.
    async fn page_of_all(&self, request: PageRequest, cx: &Context<'_>) -> Result<Page<Entry>> {
        let Page { items, total } = cx.store().membership_page(cx.org()?, self.direction(), request).await?;
        Ok(Page { items: read(items, cx).await?, total })
    }

    /// Returns the page of matching entries. Reads all entries in batches, and holds only the page. A page
    /// after more than [`KEPT`] others needs a further reading for each such number.
    async fn selected(&self, request: PageRequest, cx: &Context<'_>) -> Result<Page<Entry>> {
        let mut search = PageSearch::new(request, KEPT);
        loop {
            let (entries, count) = self.first(search.room(), search.after.take(), cx).await?;
            if let Some(page) = search.found(entries, count) {
                return Ok(page);
            }
        }
    }

    /// Returns the first matching entries after `after`, up to `room`, and the total number of matching
    /// entries.
    async fn first(
        &self,
        room: usize,
        after: Option<SortKey>,
        cx: &Context<'_>,
    ) -> Result<(Vec<(SortKey, Entry)>, u64)> {
        let mut first = First { direction: self.direction(), after, room, entries: BTreeMap::new() };
        let (mut next, mut count) = (Some(0), 0);
        while let Some(index) = next {
            let entries = cx.store().membership_entries(cx.org()?, index, ENTRIES).await?;
            let is_full = entries.len() as u64 == ENTRIES;
            next = entries.last().filter(|_| is_full).map(|last| last.index + 1);
            for entry in read(entries, cx).await?.into_iter().filter(|entry| self.admits(entry)) {
                count += 1;
                first.add(self.sort_key(&entry), entry);
            }
        }
        Ok((first.into_sorted(), count))
    }

    /// Returns whether the entry matches the filters, as far as that is known.
    fn admits(&self, entry: &Entry) -> bool {
        let search = self.search.as_deref().unwrap_or_default().to_ascii_lowercase();
        let has = |text: &str| text.to_ascii_lowercase().contains(&search);
        let change = entry.change.as_ref();
        let after = change.and_then(|change| change.after);
        self.event_type.is_none_or(|wanted| change.is_some_and(|change| change.event_type() == wanted))
            && (self.role.0.is_empty() || after.is_some_and(|role| self.role.0.contains(&role)))
            && (self.source.0.is_empty() || self.source.0.contains(&entry.source))
            && self.from_timestamp.is_none_or(|from| from.0 <= entry.at)
            && self.to_timestamp.is_none_or(|to| entry.at <= to.0)
            && (has(&entry.by) || change.is_some_and(|change| has(&change.name)))
    }

    fn sort_key(&self, entry: &Entry) -> SortKey {
        let change = entry.change.as_ref();
        let role = change.filter(|_| self.sort_by == MembershipSort::Role).and_then(|change| change.after);
        let text = match self.sort_by {
            MembershipSort::When | MembershipSort::Role => "",
            MembershipSort::User => change.map_or("", |change| &change.name),
            MembershipSort::ChangedBy => &entry.by,
            MembershipSort::Source => entry.source.as_str(),
        };
        (role, text.to_owned(), entry.index)
    }

    /// Returns the filter and sort parameters, for links to other pages.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_however_few_entries_before_it_are_kept() {
        let (by, source) = (String::new, MembershipSource::App);
        let entry = |index| Entry { index, at: Timestamp::default(), by: by(), source, change: None };
        for direction in [SortDirection::Asc, SortDirection::Desc] {
            for (offset, limit, kept) in (0..9).flat_map(|offset| {
                (1..4).flat_map(move |limit| (1..5).map(move |kept| (offset, limit, kept)))
            }) {
                let mut search = PageSearch::new(PageRequest { offset, limit }, kept);
                let Page { items, total } = loop {
                    let (room, after) = (search.room(), search.after.take());
                    let mut first = First { direction, after, room, entries: BTreeMap::new() };
                    // In random order.
                    for index in [3, 0, 6, 2, 5, 1, 4] {
                        first.add((None, String::new(), index), entry(index));
                    }
                    if let Some(page) = search.found(first.into_sorted(), 7) {
                        break page;
                    }
                };
                let mut expected: Vec<u64> = (0..7).collect();
                if direction == SortDirection::Desc {
                    expected.reverse();
                }
                let expected = Page::of(expected, PageRequest { offset, limit }).items;
                let found: Vec<u64> = items.iter().map(|entry| entry.index).collect();
                assert_eq!((found, total), (expected, 7), "{direction:?} {offset} {limit} {kept}");
            }
        }
    }
}
