//! The snapshots of logical environments. Each snapshot of a member during its membership is one of theirs.
//! So is each visible change of the members, including the archiving of a member. They are numbered in the
//! order of their ledger entries, and have the times of these entries. The numbering follows from the records
//! of the members, and a snapshot keeps its number.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::compute::{LONG_JSON, MANY_EVALUATIONS};
use crate::context::Context;
use crate::environments::store::{EnvironmentStatus, KnownEnvironment, MemberChange};
use crate::error::Result;
use crate::fact::Fact;
use crate::id::Id;
use crate::name::EnvironmentName;
use crate::rules::policy::{Members, OwnPolicies};
use crate::snapshots::numbered_event::NumberedEvent;
use crate::snapshots::store::{Event, Progress, SnapshotRow};
use crate::store::batch::{RECORD_BATCH_SIZE, distinct};
use crate::store::entry::StoredEntry;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// The snapshots of a logical environment, for one size of the ledger.
pub(crate) struct LogicalSnapshots {
    environment: Id,
    /// The memberships, in the order in which they began.
    spans: Arc<[Span]>,
    /// The entries of the visible changes of the members.
    changes: Arc<BTreeSet<u64>>,
    /// The number of entries in the ledger.
    entries: u64,
    total: Progress,
    /// The total progress of ended memberships, by the entry that ended each.
    ended: BTreeMap<u64, Progress>,
    /// The highest number of members at one time.
    most: usize,
    names: BTreeMap<Id, EnvironmentName>,
    policies: PolicyHistory,
}

/// The ledger entries that define the policies of a logical environment.
struct PolicyHistory {
    /// The entries that may have changed the policies, ascending. Each records the whole environment.
    recorded: Vec<u64>,
    /// The entry that set the present policies, and their ids in order.
    present: (u64, Vec<Id>),
}

/// The policies of a logical environment, sorted by id, by the entry that set them. `None` for an unreadable
/// entry.
type PoliciesSince = BTreeMap<u64, Option<Vec<Id>>>;

impl PolicyHistory {
    /// Returns the policies at each entry in a range.
    async fn between(&self, first: u64, last: u64, cx: &Context<'_>) -> Result<PoliciesSince> {
        let (since, present) = &self.present;
        let recorded = |until: u64| self.recorded.partition_point(|entry| *entry <= until);
        let begin = recorded(first).saturating_sub(1);
        let asked = self.recorded.get(begin..recorded(last)).unwrap_or_default();
        // Entries before the present policies are irrelevant if these apply to the whole range.
        let counts = |entry: &u64| entry > since || (entry < since && first < *since);
        let asked = Vec::from_iter(asked.iter().copied().filter(counts));
        let mut policies: PoliciesSince = asked.iter().map(|entry| (*entry, None)).collect();
        policies.insert(*since, Some(present.clone()));
        for part in asked.chunks(RECORD_BATCH_SIZE) {
            let entries = cx.store().ledger_entries_at(cx.org()?, part).await?;
            let bytes: usize = entries.iter().map(|entry| entry.payload.len()).sum();
            let read = move || Vec::from_iter(entries.iter().map(|entry| (entry.index, policies_of(entry))));
            policies.extend(cx.compute().run_if(bytes > LONG_JSON, read).await?);
        }
        Ok(policies)
    }
}

/// Returns the policies that an entry about a logical environment records.
fn policies_of(entry: &StoredEntry) -> Option<Vec<Id>> {
    match Fact::read(&entry.payload).ok()? {
        Fact::EnvironmentCreated { record }
        | Fact::EnvironmentUpdated { record, .. }
        | Fact::EnvironmentJoined { record, .. }
        | Fact::PoliciesAttached { record, .. }
        | Fact::PoliciesDetached { record, .. } => Some(distinct(record.policies)),
        _ => None,
    }
}

/// A membership: the range of entries in which an environment is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    member: Id,
    since: u64,
    until: Option<u64>,
    /// The member's progress when it joined.
    before: Progress,
    /// The member's progress when it left, or its present progress.
    after: Progress,
}

impl Span {
    /// Returns whether it is a member when the ledger has this many entries.
    fn covers(&self, entries: u64) -> bool {
        self.since < entries && self.until.is_none_or(|until| entries <= until)
    }

    /// Returns the end of the entries that count for the member, with this many in the ledger.
    fn end(&self, entries: u64) -> u64 {
        self.until.map_or(entries, |until| until.min(entries))
    }

    /// Returns the entries at which the member's progress is needed.
    fn ends(&self) -> impl Iterator<Item = u64> + use<> {
        std::iter::once(self.since).chain(self.until)
    }

    /// Returns the member's progress since it joined.
    fn gained(&self, progress: Progress) -> Progress {
        Progress {
            snapshots: progress.snapshots.saturating_sub(self.before.snapshots),
            events: progress.events.saturating_sub(self.before.events),
        }
    }
}

/// The form in which a member is shown in a snapshot of a logical environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// As in its own snapshot: the member changed.
    Own,
    /// Unchanged: another member changed.
    Unchanged,
    /// As started: the member joined.
    Joined,
    /// As exited: the member left, or was archived.
    Left,
}

/// The part of a member in a snapshot of a logical environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The member.
    pub(crate) environment: Id,
    /// The number of its own snapshot.
    pub(crate) index: u64,
    /// The form in which it is shown.
    pub(crate) shown: Shown,
}

/// The most member records that are read at once.
const MEMBERS: usize = 64;

/// The most positions in histories that are looked up at once.
const LOOK_UPS: usize = 4096;

/// The entries that archived members.
type Archived = BTreeMap<Id, u64>;

/// Returns the memberships that these changes define, and the entries of all changes.
fn spans(changes: &[MemberChange], archived: &Archived) -> (Vec<Span>, BTreeSet<u64>) {
    let mut entries = BTreeSet::new();
    let (mut spans, mut open) = (Vec::<Span>::new(), BTreeMap::<Id, usize>::new());
    for &MemberChange { entry, member, joined } in changes {
        entries.insert(entry);
        if !joined {
            if let Some(span) = open.remove(&member).and_then(|place| spans.get_mut(place)) {
                span.until = Some(entry);
            }
        } else if let Entry::Vacant(vacant) = open.entry(member) {
            vacant.insert(spans.len());
            let none = Progress::default();
            spans.push(Span { member, since: entry, until: None, before: none, after: none });
        }
    }
    for span in &mut spans {
        if let Some(&entry) = archived.get(&span.member)
            && span.covers(entry)
        {
            span.until = Some(entry);
            entries.insert(entry);
        }
    }
    (spans, entries)
}

/// Returns the highest number of these memberships at one time.
fn most_at_once(spans: &[Span]) -> usize {
    let mut changes = BTreeMap::<u64, (usize, usize)>::new();
    for span in spans {
        changes.entry(span.since).or_default().0 += 1;
        if let Some(until) = span.until {
            changes.entry(until).or_default().1 += 1;
        }
    }
    let (mut now, mut most) = (0_usize, 0);
    for (begun, ended) in changes.into_values() {
        now = (now + begun).saturating_sub(ended);
        most = most.max(now);
    }
    most
}

/// Merges these ranges of the members' snapshots where those of one member touch or overlap. A store returns
/// an item once for each range that contains it.
fn joined(mut ranges: Vec<(Id, RangeInclusive<u64>)>) -> Vec<(Id, RangeInclusive<u64>)> {
    ranges.sort_unstable_by_key(|(member, range)| (*member, *range.start()));
    let mut joined: Vec<(Id, RangeInclusive<u64>)> = Vec::new();
    for (member, range) in ranges {
        match joined.last_mut() {
            Some((of, last)) if *of == member && *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => joined.push((member, range)),
        }
    }
    joined
}

async fn progress(asked: &[(Id, u64)], cx: &Context<'_>) -> Result<Vec<Progress>> {
    let mut found = Vec::new();
    for part in asked.chunks(LOOK_UPS) {
        found.extend(cx.store().progress(cx.org()?, part).await?);
    }
    Ok(found)
}

impl LogicalSnapshots {
    pub(crate) async fn read(environment: &KnownEnvironment, cx: &Context<'_>) -> Result<Self> {
        let present = (environment.revision, distinct(environment.record.policies.iter().copied()));
        let (org, environment) = (cx.org()?, environment.record.id);
        let entries = cx.ledger_size().await?;
        let mut changes = cx.store().member_changes(org, environment).await?;
        let heavy = changes.len() > MANY_EVALUATIONS;
        let with_members = move || {
            changes.retain(|change| change.entry < entries);
            let recorded = distinct(changes.iter().map(|change| change.entry));
            changes.retain(|change| change.member != environment);
            let members = distinct(changes.iter().map(|change| (change.member, entries)));
            (changes, recorded, members)
        };
        let (changes, recorded, asked) = cx.compute().run_if(heavy, with_members).await?;
        let policies = PolicyHistory { recorded, present };
        let found = progress(&asked, cx).await?.into_iter();
        let now = asked.into_iter().zip(found);
        let now = BTreeMap::from_iter(now.map(|((member, _), now)| (member, now)));
        let is_idle = |now: &Progress| now.snapshots == 0;
        let mut members = Vec::from_iter(now.iter().filter(|(_, now)| !is_idle(now)).map(|(id, _)| *id));
        let idle = Vec::from_iter(now.iter().filter(|(_, now)| is_idle(now)).map(|(id, _)| *id));
        if !idle.is_empty() {
            // Members without snapshots are not shown. Only whether they are archived matters.
            let listed = cx.store().environments_listed(org).await?;
            let listed: BTreeSet<Id> = listed.into_iter().map(|listed| listed.id).collect();
            members.extend(idle.into_iter().filter(|member| !listed.contains(member)));
        }
        let (mut archived, mut names) = (Archived::new(), BTreeMap::new());
        for part in members.chunks(MEMBERS) {
            for known in cx.store().environments_by_id(org, part).await? {
                // The settings of an archived environment no longer change.
                if known.archived && known.revision < entries {
                    archived.insert(known.record.id, known.revision);
                }
                names.insert(known.record.id, known.record.name);
            }
        }
        // Without knowing whether an unreadable member was archived, snapshots cannot be numbered.
        if let Some(lost) = members.iter().find(|member| !names.contains_key(member)) {
            return Err(StoreError::corrupt(format_args!("the member {lost} of an environment")).into());
        }
        let begun = move || {
            let (mut spans, changes) = spans(&changes, &archived);
            let mut asked = Vec::new();
            for span in &mut spans {
                span.after = now.get(&span.member).copied().unwrap_or_default();
                asked.extend(span.ends().map(|entry| (span.member, entry)));
            }
            ((spans, changes), asked)
        };
        let (spans, asked) = cx.compute().run_if(heavy, begun).await?;
        let found = progress(&asked, cx).await?;
        let counted = move || Self::counted(environment, entries, spans, found, names, policies);
        let (logical, others) = cx.compute().run_if(heavy, counted).await?;
        logical.with_changes(others, cx).await
    }

    /// Adds those of `others` that are visible. They are changes of members that had no snapshot at that time.
    /// After the first snapshot, such a change is visible: it changes the state of the members as a whole.
    async fn with_changes(mut self, others: Vec<u64>, cx: &Context<'_>) -> Result<Self> {
        let before = self.after(&others, cx).await?;
        let shown = others.into_iter().zip(before).filter(|(_, before)| before.snapshots > 0);
        let mut changes = BTreeSet::clone(&self.changes);
        changes.extend(shown.map(|(entry, _)| entry));
        self.total.snapshots += (changes.len() - self.changes.len()) as u64;
        self.changes = Arc::new(changes);
        Ok(self)
    }

    /// Derives the snapshots from memberships, the entries of all changes, and the members' progress at the
    /// ends of each membership ([`Span::ends`]). Includes the changes of members that had no snapshot then.
    fn counted(
        environment: Id,
        entries: u64,
        (mut spans, mut changes): (Vec<Span>, BTreeSet<u64>),
        found: Vec<Progress>,
        names: BTreeMap<Id, EnvironmentName>,
        policies: PolicyHistory,
    ) -> (Self, Vec<u64>) {
        let mut found = found.into_iter();
        let (mut total, mut shown, mut ended) = (Progress::default(), BTreeSet::new(), BTreeMap::new());
        for span in &mut spans {
            span.before = found.next().unwrap_or_default();
            if span.until.is_some() {
                span.after = found.next().unwrap_or_default();
            }
            let gained = span.gained(span.after);
            total += gained;
            shown.extend((span.before.snapshots > 0).then_some(span.since));
            if let Some(until) = span.until {
                shown.extend((span.after.snapshots > 0).then_some(until));
                *ended.entry(until).or_default() += gained;
            }
        }
        let mut all = Progress::default();
        for of_entry in ended.values_mut() {
            all += *of_entry;
            *of_entry = all;
        }
        let others = changes.extract_if(.., |entry| !shown.contains(entry)).collect();
        total.snapshots += changes.len() as u64;
        let most = most_at_once(&spans);
        let (spans, changes) = (spans.into(), Arc::new(changes));
        (Self { environment, spans, changes, entries, total, ended, most, names, policies }, others)
    }

    /// Returns the numbers of snapshots and events.
    pub(crate) const fn status(&self) -> EnvironmentStatus {
        EnvironmentStatus {
            snapshots: self.total.snapshots,
            events: self.total.events,
            changed_at: None,
            compliant: None,
            reported_at: None,
        }
    }

    /// Returns each member's progress since it joined at each of these numbers of entries; `None` before it
    /// joined.
    async fn members_after(&self, entries: &[u64], cx: &Context<'_>) -> Result<Vec<Vec<Option<Progress>>>> {
        let mut found = self.progress_of_members(entries, cx).await?.into_iter();
        let mut after = Vec::new();
        for entries in entries {
            let member = |span: &Span| match span {
                _ if span.since >= *entries => None,
                _ if span.covers(*entries) => found.next(),
                _ => Some(span.after),
            };
            after.push(self.spans.iter().map(member).collect());
        }
        Ok(after)
    }

    /// Returns the progress of the members at each of these numbers of entries.
    async fn progress_of_members(&self, entries: &[u64], cx: &Context<'_>) -> Result<Vec<Progress>> {
        let places = entries.iter().flat_map(|entries| {
            let members = self.spans.iter().filter(|span| span.covers(*entries));
            members.map(|span| (span.member, *entries))
        });
        progress(&Vec::from_iter(places), cx).await
    }

    /// Returns the numbers of snapshots and events at each of these numbers of entries.
    async fn after(&self, entries: &[u64], cx: &Context<'_>) -> Result<Vec<Progress>> {
        let mut found = self.progress_of_members(entries, cx).await?.into_iter();
        let after = |entries: &u64| {
            let members = self.spans.iter().filter(|span| span.covers(*entries)).zip(found.by_ref());
            let gained = members.map(|(span, progress)| span.gained(progress));
            let ended = self.ended.range(..*entries).next_back().map(|(_, ended)| *ended);
            let changes = self.changes.range(..*entries).count() as u64;
            gained.chain(ended).fold(Progress { snapshots: changes, events: 0 }, |sum, more| sum + more)
        };
        Ok(entries.iter().map(after).collect())
    }

    /// Returns the number of the snapshot that was current at a time; 0 before the first.
    pub(crate) async fn at(&self, at: Timestamp, cx: &Context<'_>) -> Result<u64> {
        let entries = cx.store().ledger_size_at(cx.org()?, at).await?.min(self.entries);
        Ok(self.after(&[entries], cx).await?.first().map_or(0, |after| after.snapshots))
    }

    /// Returns the entry at which a count first reaches `wanted`, which it must reach. Each query checks
    /// several positions, to need few queries; with more members, it checks fewer positions.
    async fn entry_of(&self, wanted: u64, count: impl Fn(&Progress) -> u64, cx: &Context<'_>) -> Result<u64> {
        let places = (LOOK_UPS / self.most.max(1)).clamp(3, 64) as u64;
        // After `less` entries, the count is too small; after `enough`, it is not.
        let (mut less, mut enough) = (0, self.entries);
        while enough - less > 1 {
            let step = (enough - less).div_ceil(places + 1);
            let entries =
                Vec::from_iter((1..=places).map(|place| less + place * step).take_while(|it| *it < enough));
            for (entries, after) in entries.iter().zip(self.after(&entries, cx).await?) {
                if count(&after) < wanted {
                    less = *entries;
                } else {
                    enough = *entries;
                    break;
                }
            }
        }
        Ok(enough.saturating_sub(1))
    }

    /// Returns the rows of the snapshots with these numbers, which must exist.
    pub(crate) async fn rows(
        &self,
        range: RangeInclusive<u64>,
        cx: &Context<'_>,
    ) -> Result<Vec<SnapshotRow>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        // The time of the next snapshot is the end of the last one.
        let last = range.end().saturating_add(1).min(self.total.snapshots);
        let first_entry = self.entry_of(*range.start(), |after| after.snapshots, cx).await?;
        let last_entry = if last == *range.start() {
            first_entry
        } else {
            self.entry_of(last, |after| after.snapshots, cx).await?
        };
        let verdicts = self.verdicts(first_entry, last_entry, cx).await?;
        let times = self.times(verdicts.keys().copied(), cx).await?;
        let mut rows: Vec<SnapshotRow> = Vec::new();
        for (index, (revision, compliant)) in (*range.start()..).zip(verdicts) {
            let at = times.at(revision)?;
            if let Some(before) = rows.last_mut() {
                before.until = Some(at);
            }
            let environment = self.environment;
            let logical = Vec::new();
            rows.push(SnapshotRow {
                environment,
                index,
                at,
                until: None,
                compliant,
                events: 0,
                revision,
                logical,
            });
        }
        rows.retain(|row| range.contains(&row.index));
        Ok(rows)
    }

    /// Returns the times of these entries.
    async fn times(&self, entries: impl Iterator<Item = u64> + Send, cx: &Context<'_>) -> Result<Times> {
        let entries = Vec::from_iter(entries);
        let times = if entries.is_empty() {
            Vec::new()
        } else {
            cx.store().ledger_times(cx.org()?, &entries).await?
        };
        Ok(Times(times.into_iter().collect()))
    }

    /// Returns the entries of the snapshots in a range, each with whether the environment was compliant. A
    /// member without a snapshot has an unknown state. So has a member whose snapshot was not evaluated
    /// against the environment's policies at that time.
    async fn verdicts(&self, first: u64, last: u64, cx: &Context<'_>) -> Result<BTreeMap<u64, bool>> {
        let after = self.members_after(&[first, last.saturating_add(1)], cx).await?;
        let [from, to] = after.as_slice() else { return Ok(BTreeMap::new()) };
        // Start each membership with the snapshot that was current before, which has the member's state.
        // Snapshots from times without membership are ignored.
        let mut ranges = Vec::new();
        let told = |span: &Span| span.until.is_none_or(|until| until >= first);
        for (span, (from, to)) in self.spans.iter().zip(from.iter().zip(to)).filter(|(span, _)| told(span)) {
            let Some(to) = to.filter(|to| to.snapshots > 0) else { continue };
            let begin = from.unwrap_or(span.before).snapshots.max(1);
            ranges.push((span.member, begin..=to.snapshots));
        }
        let ranges = joined(ranges);
        let rows =
            if ranges.is_empty() { Vec::new() } else { cx.store().snapshots(cx.org()?, &ranges).await? };
        let policies = self.policies.between(first, last, cx).await?;
        let heavy = rows.len() + self.spans.len() > MANY_EVALUATIONS;
        let work = Verdicts {
            environment: self.environment,
            spans: Arc::clone(&self.spans),
            changes: Arc::clone(&self.changes),
            entries: self.entries,
            rows,
            policies,
        };
        cx.compute().run_if(heavy, move || work.between(first, last)).await
    }

    /// Returns the parts of the snapshot that an entry created, in the order in which the members joined.
    pub(crate) async fn parts(&self, entry: u64, cx: &Context<'_>) -> Result<Vec<Part>> {
        let after = self.members_after(&[entry, entry.saturating_add(1)], cx).await?;
        let [before, after] = after.as_slice() else { return Ok(Vec::new()) };
        let mut parts = Vec::new();
        for (span, (before, after)) in self.spans.iter().zip(before.iter().zip(after)) {
            let Some(after) = after.filter(|after| after.snapshots > 0) else { continue };
            let shown = match (span.covers(entry), span.covers(entry + 1)) {
                (false, false) => continue,
                (false, true) => Shown::Joined,
                (true, false) => Shown::Left,
                (true, true) if *before == Some(after) => Shown::Unchanged,
                (true, true) => Shown::Own,
            };
            parts.push(Part { environment: span.member, index: after.snapshots, shown });
        }
        Ok(parts)
    }

    /// Returns the number of events in this many snapshots.
    pub(crate) async fn events_with(&self, snapshots: u64, cx: &Context<'_>) -> Result<u64> {
        if snapshots == 0 {
            return Ok(0);
        }
        let entry = self.entry_of(snapshots, |after| after.snapshots, cx).await?;
        Ok(self.after(&[entry + 1], cx).await?.first().map_or(0, |after| after.events))
    }

    /// Returns the members' events with these numbers, which must exist.
    pub(crate) async fn events(
        &self,
        numbers: RangeInclusive<u64>,
        cx: &Context<'_>,
    ) -> Result<Vec<(Id, u64)>> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.entry_of(*numbers.start(), |after| after.events, cx).await?;
        let last = self.entry_of(*numbers.end(), |after| after.events, cx).await?;
        let after = self.members_after(&[first, first + 1, last, last + 1], cx).await?;
        let [before_first, with_first, before_last, with_last] = after.as_slice() else {
            return Ok(Vec::new());
        };
        // Events of the first and of the last snapshot may belong to other pages.
        let counts = self.after(&[first, last + 1], cx).await?;
        let [before, with] = counts.as_slice() else { return Ok(Vec::new()) };
        let skipped = numbers.start().saturating_sub(1).saturating_sub(before.events);
        let left_out = with.events.saturating_sub(*numbers.end());
        let count = |progress: &Option<Progress>, span: &Span| progress.unwrap_or(span.before).events;
        let mut asked = Vec::new();
        for (place, span) in self.spans.iter().enumerate() {
            let events = |after: &[Option<Progress>]| after.get(place).map_or(0, |it| count(it, span));
            let (mut begin, mut end) = (events(before_first), events(with_last));
            if events(with_first) > begin {
                begin += skipped;
            }
            if events(before_last) < end {
                end -= left_out;
            }
            asked.extend((begin + 1..=end).map(|number| (span.member, number)));
        }
        Ok(asked)
    }

    /// Returns these events of the members in the form of this environment's events.
    pub(crate) async fn numbered(&self, events: Vec<Event>, cx: &Context<'_>) -> Result<Vec<NumberedEvent>> {
        let entries = events.iter().map(|event| event.revision);
        let Some((first, last)) = entries.clone().min().zip(entries.clone().max()) else {
            return Ok(Vec::new());
        };
        let times = self.times(distinct(entries).into_iter(), cx).await?;
        let before = self.after(&[first], cx).await?.first().map_or(0, |before| before.snapshots);
        let verdicts = self.verdicts(first, last, cx).await?;
        let numbered = |(index, (entry, compliant))| (entry, (index, compliant));
        let numbered = BTreeMap::from_iter((before + 1..).zip(verdicts).map(numbered));
        let numbered = |event: Event| {
            let lost = || StoreError::corrupt(format_args!("an event of no snapshot: {}", event.revision));
            let (index, compliant) = *numbered.get(&event.revision).ok_or_else(lost)?;
            let member = self.names.get(&event.environment).cloned();
            Ok(NumberedEvent { index, at: times.at(event.revision)?, compliant, member, event })
        };
        events.into_iter().map(numbered).collect()
    }
}

/// The times of ledger entries.
struct Times(BTreeMap<u64, Timestamp>);

impl Times {
    fn at(&self, entry: u64) -> Result<Timestamp> {
        let lost = || StoreError::corrupt(format_args!("ledger entry {entry} is missing"));
        Ok(self.0.get(&entry).copied().ok_or_else(lost)?)
    }
}

impl SnapshotRow {
    /// Returns its verdict for the policies of a logical environment.
    pub(crate) fn policies_verdict_for(&self, logical: Id) -> OwnPolicies<'_, Id> {
        let verdict = self.logical.iter().find(|verdict| verdict.environment == logical)?;
        Some((&verdict.policies, verdict.compliant))
    }

    /// Returns the environment's state by this snapshot, as a member of a logical environment.
    fn state_and_verdict(&self, logical: Id) -> (Option<bool>, OwnPolicies<'_, Id>) {
        (Some(self.compliant), self.policies_verdict_for(logical))
    }
}

/// The inputs of the verdicts of snapshots.
struct Verdicts {
    /// The logical environment.
    environment: Id,
    spans: Arc<[Span]>,
    changes: Arc<BTreeSet<u64>>,
    entries: u64,
    /// The snapshots of members, sorted by member and number.
    rows: Vec<SnapshotRow>,
    policies: PoliciesSince,
}

impl Verdicts {
    /// Returns the entries of the snapshots in a range, each with whether everything in it was allowed.
    fn between(self, first: u64, last: u64) -> BTreeMap<u64, bool> {
        let Self { environment, spans, changes, entries, rows, policies } = self;
        let mut of_member = BTreeMap::<Id, (Vec<&SnapshotRow>, Vec<&Span>)>::new();
        for row in &rows {
            of_member.entry(row.environment).or_default().0.push(row);
        }
        let (mut begun, mut ended) = (BTreeMap::<u64, Vec<Id>>::new(), BTreeMap::<u64, Vec<Id>>::new());
        for span in &*spans {
            of_member.entry(span.member).or_default().1.push(span);
            begun.entry(span.since).or_default().push(span.member);
            if let Some(until) = span.until {
                ended.entry(until).or_default().push(span.member);
            }
        }
        let mut taken = BTreeMap::new();
        for (rows, spans) in of_member.values() {
            let is_told = |row: &&&SnapshotRow| {
                (first..=last).contains(&row.revision)
                    && spans.iter().any(|span| span.since < row.revision && row.revision < span.end(entries))
            };
            taken.extend(rows.iter().filter(is_told).map(|row| (row.revision, *row)));
        }
        // Returns the state of a member after this many entries.
        let stands = |member: &Id, entries: u64| {
            let found = of_member.get(member).and_then(|(rows, _)| {
                let after = rows.partition_point(|row| row.revision < entries);
                rows.get(after.checked_sub(1)?).copied()
            });
            found.map_or((None, None), |row: &SnapshotRow| row.state_and_verdict(environment))
        };
        let now = spans.iter().filter(|span| span.covers(first));
        let now = now.map(|span| (span.member, stands(&span.member, first)));
        let mut members = BTreeMap::<Id, (Option<bool>, OwnPolicies<'_, Id>)>::from_iter(now);
        let mut states = Members::default();
        members.values().for_each(|member| states.add(*member));
        let mut verdicts = BTreeMap::new();
        let told = changes.range(first..=last).copied().chain(taken.keys().copied());
        let told = BTreeSet::from_iter(told);
        // A change that takes no snapshot affects the verdicts of later ones.
        let untold = begun.range(first..=last).chain(ended.range(first..=last)).map(|(entry, _)| *entry);
        for entry in told.iter().copied().chain(untold).collect::<BTreeSet<_>>() {
            for member in ended.get(&entry).into_iter().flatten() {
                if let Some(was) = members.remove(member) {
                    states.remove(was);
                }
            }
            let mut put = |member: &Id, stands| {
                if let Some(was) = members.insert(*member, stands) {
                    states.remove(was);
                }
                states.add(stands);
            };
            for member in begun.get(&entry).into_iter().flatten() {
                put(member, stands(member, entry));
            }
            if let Some(row) = taken.get(&entry) {
                put(&row.environment, row.state_and_verdict(environment));
            }
            if told.contains(&entry) {
                let policies =
                    policies.range(..=entry).next_back().and_then(|(_, policies)| policies.as_deref());
                verdicts.insert(entry, states.state(policies) == Some(true));
            }
        }
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshots::record::LogicalVerdict;

    fn member(n: u8) -> Id {
        format!("00000000-0000-0000-0000-0000000{n:x}").parse().unwrap()
    }

    #[test]
    fn a_member_is_one_from_joining_until_it_leaves_or_is_archived() {
        let change = |(entry, number, joined)| MemberChange { entry, member: member(number), joined };
        let archived = |entry| Archived::from([(member(1), entry)]);
        /// The changes, when the member was archived, the expected memberships, and the entries.
        type Case<'c> = (&'c [(u64, u8, bool)], Archived, &'c [(u8, u64, Option<u64>)], &'c [u64]);
        let table: [Case<'_>; 7] = [
            (&[], Archived::new(), &[], &[]),
            (&[(3, 1, true), (3, 2, true)], Archived::new(), &[(1, 3, None), (2, 3, None)], &[3]),
            (&[(3, 1, true), (5, 1, false)], Archived::new(), &[(1, 3, Some(5))], &[3, 5]),
            (
                &[(3, 1, true), (5, 1, false), (8, 1, true)],
                Archived::new(),
                &[(1, 3, Some(5)), (1, 8, None)],
                &[3, 5, 8],
            ),
            (&[(3, 1, true)], archived(6), &[(1, 3, Some(6))], &[3, 6]),
            // It left before that, and was removed from the list later.
            (&[(3, 1, true), (5, 1, false)], archived(6), &[(1, 3, Some(5))], &[3, 5]),
            (&[(3, 1, true), (9, 1, false)], archived(6), &[(1, 3, Some(6))], &[3, 6, 9]),
        ];
        for (changes, archived, expected, entries) in table {
            let (found, told) = spans(&Vec::from_iter(changes.iter().copied().map(change)), &archived);
            let found = Vec::from_iter(found.iter().map(|span| (span.member, span.since, span.until)));
            let expected = expected.iter().map(|(number, since, until)| (member(*number), *since, *until));
            assert_eq!(found, Vec::from_iter(expected), "{changes:?}");
            assert_eq!(Vec::from_iter(told), entries, "{changes:?}");
        }
    }

    #[test]
    fn ranges_of_a_member_are_one_where_they_touch_or_overlap() {
        let ranges = |of: &[(u8, u64, u64)]| {
            Vec::from_iter(of.iter().map(|(number, first, last)| (member(*number), *first..=*last)))
        };
        /// The ranges of members, and the merged ranges.
        type Case<'c> = (&'c [(u8, u64, u64)], &'c [(u8, u64, u64)]);
        let table: [Case<'_>; 8] = [
            (&[], &[]),
            (&[(1, 4, 6)], &[(1, 4, 6)]),
            // It was not a member in between.
            (&[(1, 1, 2), (1, 900, 901)], &[(1, 1, 2), (1, 900, 901)]),
            (&[(1, 1, 2), (1, 3, 4)], &[(1, 1, 4)]),
            (&[(1, 1, 3), (1, 3, 4), (1, 5, 5)], &[(1, 1, 5)]),
            (&[(1, 1, 9), (1, 2, 3), (1, 12, 13)], &[(1, 1, 9), (1, 12, 13)]),
            (&[(2, 3, 4), (1, 5, 6), (2, 1, 2), (1, 1, 2)], &[(1, 1, 2), (1, 5, 6), (2, 1, 4)]),
            (&[(1, 1, u64::MAX), (1, 2, 3)], &[(1, 1, u64::MAX)]),
        ];
        for (given, expected) in table {
            assert_eq!(joined(ranges(given)), ranges(expected), "{given:?}");
        }
    }

    /// The content of a ledger entry. A member joins, leaves, or has a snapshot, with the verdicts of its own
    /// and of the logical environment's policy. Or that policy is attached or detached.
    #[derive(Debug, Clone, Copy)]
    enum Happens {
        Joins,
        Leaves,
        Has(bool, bool),
        Asks(bool),
    }

    fn happens() -> impl Strategy<Value = (u8, Happens)> {
        let has = any::<(bool, bool)>().prop_map(|(compliant, complies)| Happens::Has(compliant, complies));
        let asks = any::<bool>().prop_map(Happens::Asks);
        let what = prop_oneof![Just(Happens::Joins), Just(Happens::Leaves), has, asks];
        (1..4_u8, what)
    }

    proptest! {
        #[test]
        fn verdicts_are_those_of_going_through_the_ledger(
            ledger in proptest::collection::vec(happens(), 0..40),
            window in (0..40_u64, 0..40_u64),
        ) {
            let (mut changes, mut rows) = (Vec::new(), Vec::new());
            let (mut shown, mut expected) = (BTreeSet::new(), BTreeMap::new());
            let (mut members, mut stand) = (BTreeSet::new(), BTreeMap::<u8, (bool, Option<bool>)>::new());
            let (mut asks, mut policies) = (false, PoliciesSince::new());
            policies.insert(0, Some(Vec::new()));
            for (entry, (number, what)) in (0_u64..).zip(&ledger) {
                let is_shown = |number: &u8| stand.contains_key(number) || !expected.is_empty();
                let shows = match what {
                    Happens::Joins => members.insert(*number) && is_shown(number),
                    Happens::Leaves => members.remove(number) && is_shown(number),
                    Happens::Has(compliant, complies) => {
                        let is_member = members.contains(number);
                        stand.insert(*number, (*compliant, (is_member && asks).then_some(*complies)));
                        is_member
                    }
                    Happens::Asks(_) => false,
                };
                match what {
                    Happens::Has(compliant, _) => {
                        let (environment, at) = (member(*number), Timestamp::from_micros(0));
                        let (index, compliant) = (rows.len() as u64 + 1, *compliant);
                        let says = |compliant| {
                            LogicalVerdict { environment: member(15), policies: vec![member(14)], compliant }
                        };
                        let logical = stand[number].1.map(says).into_iter().collect();
                        rows.push(SnapshotRow {
                            environment, index, at, until: None, compliant, events: 0, revision: entry, logical,
                        });
                    }
                    Happens::Asks(now) => {
                        asks = *now;
                        policies.insert(entry, Some(Vec::from_iter(now.then(|| member(14)))));
                    }
                    Happens::Joins | Happens::Leaves => {
                        let joined = matches!(what, Happens::Joins);
                        changes.push(MemberChange { entry, member: member(*number), joined });
                        shown.extend(shows.then_some(entry));
                    }
                }
                if shows {
                    let complies = |state: &(bool, Option<bool>)| state.0 && (!asks || state.1 == Some(true));
                    let mut states = members.iter().map(|number| stand.get(number));
                    let is_compliant = !members.is_empty() && states.all(|state| state.is_some_and(complies));
                    expected.insert(entry, is_compliant);
                }
            }
            let (spans, _) = spans(&changes, &Archived::new());
            let entries = ledger.len() as u64;
            let environment = member(15);
            let (spans, changes) = (spans.into(), Arc::new(shown));
            let work = Verdicts { environment, spans, changes, entries, rows, policies };
            let (first, last) = (window.0.min(window.1), window.0.max(window.1));
            expected.retain(|entry, _| (first..=last).contains(entry));
            prop_assert_eq!(work.between(first, last), expected);
        }
    }
}
