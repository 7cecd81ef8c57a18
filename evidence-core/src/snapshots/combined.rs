//! The snapshots of logical environments. Each of a member's is one of theirs while it is a member, and so is each change of the
//! members that shows, archiving one included. They are numbered by their entries in the ledger, and are of the time of these:
//! which they are follows from what is recorded of the members, and once it has one each keeps its number.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::compute::{LONG_JSON, MANY_EVALUATIONS};
use crate::environments::store::{EnvironmentStatus, KnownEnvironment, MemberChange};
use crate::error::Result;
use crate::fact::Fact;
use crate::id::Id;
use crate::name::EnvironmentName;
use crate::rules::policy::{Members, OwnPolicies};
use crate::service::Context;
use crate::snapshots::store::{Event, Progress, SnapshotRow};
use crate::snapshots::timeline::Told;
use crate::store::batch::{LONG_RECORDS, distinct};
use crate::store::entry::StoredEntry;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// The snapshots of a logical environment, as of one size of the ledger.
pub(crate) struct Combined {
    environment: Id,
    /// In the order in which they began.
    spans: Arc<[Span]>,
    /// The entries of the changes of the members that show.
    changes: Arc<BTreeSet<u64>>,
    /// How many entries the ledger had.
    entries: u64,
    total: Progress,
    /// Of the spans that ended: after which entry how much came of all that had by then.
    ended: BTreeMap<u64, Progress>,
    /// How many members there were at once, at most.
    most: usize,
    names: BTreeMap<Id, EnvironmentName>,
    policies: PolicyHistory,
}

/// Which entries tell the policies of a logical environment.
struct PolicyHistory {
    /// The entries that may have changed them, ascending. Each records the whole environment.
    recorded: Vec<u64>,
    /// The entry since which it has its present policies, and these by id.
    present: (u64, Vec<Id>),
}

/// The policies of a logical environment, in the order of their ids, by the entry that set them; nothing of an entry that cannot
/// be read.
type PoliciesSince = BTreeMap<u64, Option<Vec<Id>>>;

impl PolicyHistory {
    /// The policies at each entry from one to another.
    async fn between(&self, first: u64, last: u64, cx: &Context<'_>) -> Result<PoliciesSince> {
        let (since, present) = &self.present;
        let recorded = |until: u64| self.recorded.partition_point(|entry| *entry <= until);
        let begin = recorded(first).saturating_sub(1);
        let asked = self.recorded.get(begin..recorded(last)).unwrap_or_default();
        // What was recorded before the present policies does not count where these do from the beginning.
        let counts = |entry: &u64| entry > since || (entry < since && first < *since);
        let asked = Vec::from_iter(asked.iter().copied().filter(counts));
        let mut policies: PoliciesSince = asked.iter().map(|entry| (*entry, None)).collect();
        policies.insert(*since, Some(present.clone()));
        for part in asked.chunks(LONG_RECORDS) {
            let entries = cx.store().ledger_entries_at(cx.org()?, part).await?;
            let bytes: usize = entries.iter().map(|entry| entry.payload.len()).sum();
            let read = move || Vec::from_iter(entries.iter().map(|entry| (entry.index, policies_of(entry))));
            policies.extend(cx.compute().run_if(bytes > LONG_JSON, read).await?);
        }
        Ok(policies)
    }
}

/// The policies that an entry about a logical environment records.
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

/// From one entry until another an environment is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    member: Id,
    since: u64,
    until: Option<u64>,
    /// How far the member was when it joined.
    before: Progress,
    /// How far it was when it left, or is.
    after: Progress,
}

impl Span {
    /// Whether it is a member after so many entries of the ledger.
    fn covers(&self, entries: u64) -> bool {
        self.since < entries && self.until.is_none_or(|until| entries <= until)
    }

    /// The entries before which what the member did counts, of so many.
    fn end(&self, entries: u64) -> u64 {
        self.until.map_or(entries, |until| until.min(entries))
    }

    /// The entries by which it is asked how far the member was.
    fn ends(&self) -> impl Iterator<Item = u64> + use<> {
        std::iter::once(self.since).chain(self.until)
    }

    /// How far the member has come since it joined.
    fn gained(&self, progress: Progress) -> Progress {
        Progress {
            snapshots: progress.snapshots.saturating_sub(self.before.snapshots),
            events: progress.events.saturating_sub(self.before.events),
        }
    }
}

/// How a member is shown in a snapshot of a logical environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// As in its own snapshot: it is the one that changed.
    Own,
    /// As it was: another one changed.
    Unchanged,
    /// As begun: it joined.
    Joined,
    /// As exited: it left, or was archived.
    Left,
}

/// A member's part in a snapshot of a logical environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The member.
    pub(crate) environment: Id,
    /// Its own snapshot.
    pub(crate) index: u64,
    /// How it is shown.
    pub(crate) shown: Shown,
}

/// More records of members are not read at once.
const MEMBERS: usize = 64;

/// More places in histories are not looked up at once.
const LOOK_UPS: usize = 4096;

/// The entries by which members were archived.
type Archived = BTreeMap<Id, u64>;

/// When environments were members, by these changes, and the entries of all changes.
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

/// How many of these spans there are at once, at most.
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

/// These ranges of the snapshots of members, those of one member in one where they touch or overlap: a store answers what lies
/// in two of them twice.
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

impl Combined {
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
            // Of members without snapshots nothing is shown: all that is looked up is whether they are archived.
            let listed = cx.store().environments_listed(org).await?;
            let listed: BTreeSet<Id> = listed.into_iter().map(|listed| listed.id).collect();
            members.extend(idle.into_iter().filter(|member| !listed.contains(member)));
        }
        let (mut archived, mut names) = (Archived::new(), BTreeMap::new());
        for part in members.chunks(MEMBERS) {
            for known in cx.store().environments_by_id(org, part).await? {
                // Nothing is recorded of the settings of an environment after it was archived.
                if known.archived && known.revision < entries {
                    archived.insert(known.record.id, known.revision);
                }
                names.insert(known.record.id, known.record.name);
            }
        }
        // Whether one that cannot be read was archived is not known, and so no number is.
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
        let (combined, others) = cx.compute().run_if(heavy, counted).await?;
        combined.with_changes(others, cx).await
    }

    /// The same, where of these other changes of the members those show that come after the first snapshot: of members that
    /// had no snapshot then, so that what is known of all members is another.
    async fn with_changes(mut self, others: Vec<u64>, cx: &Context<'_>) -> Result<Self> {
        let before = self.after(&others, cx).await?;
        let shown = others.into_iter().zip(before).filter(|(_, before)| before.snapshots > 0);
        let mut changes = BTreeSet::clone(&self.changes);
        changes.extend(shown.map(|(entry, _)| entry));
        self.total.snapshots += (changes.len() - self.changes.len()) as u64;
        self.changes = Arc::new(changes);
        Ok(self)
    }

    /// What follows from spans, from the entries of all changes, and from how far members were at the ends of each span
    /// ([`Span::ends`]); with the changes of members that had no snapshot then.
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

    /// How many snapshots there are, and how many events.
    pub(crate) const fn status(&self) -> EnvironmentStatus {
        EnvironmentStatus {
            snapshots: self.total.snapshots,
            events: self.total.events,
            changed_at: None,
            compliant: None,
            reported_at: None,
        }
    }

    /// How far each member was after so many entries, since it joined; nothing where it had not yet. As often as asked.
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

    /// Of each of these numbers of entries, how far those were that were members then.
    async fn progress_of_members(&self, entries: &[u64], cx: &Context<'_>) -> Result<Vec<Progress>> {
        let places = entries.iter().flat_map(|entries| {
            let members = self.spans.iter().filter(|span| span.covers(*entries));
            members.map(|span| (span.member, *entries))
        });
        progress(&Vec::from_iter(places), cx).await
    }

    /// How many snapshots and events there were after so many entries; as often as asked.
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

    /// The number of the snapshot that was current at a time; 0 before the first.
    pub(crate) async fn at(&self, at: Timestamp, cx: &Context<'_>) -> Result<u64> {
        let entries = cx.store().ledger_size_at(cx.org()?, at).await?.min(self.entries);
        Ok(self.after(&[entries], cx).await?.first().map_or(0, |after| after.snapshots))
    }

    /// The entry by which a count first comes to so many, which it does. By several places at once, so that it takes few
    /// queries, and the fewer of them the more members there are.
    async fn entry_of(&self, wanted: u64, count: impl Fn(&Progress) -> u64, cx: &Context<'_>) -> Result<u64> {
        let places = (LOOK_UPS / self.most.max(1)).clamp(3, 64) as u64;
        // After so many entries it is less, or not.
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

    /// The lines of the snapshots with these numbers, which exist.
    pub(crate) async fn rows(
        &self,
        range: RangeInclusive<u64>,
        cx: &Context<'_>,
    ) -> Result<Vec<SnapshotRow>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        // The one after the last tells until when that was current.
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

    /// When these entries were recorded.
    async fn times(&self, entries: impl Iterator<Item = u64> + Send, cx: &Context<'_>) -> Result<Times> {
        let entries = Vec::from_iter(entries);
        let times = if entries.is_empty() {
            Vec::new()
        } else {
            cx.store().ledger_times(cx.org()?, &entries).await?
        };
        Ok(Times(times.into_iter().collect()))
    }

    /// The entries of the snapshots from one to another, and of each whether the state of the environment was compliant then:
    /// that of a member without a snapshot is unknown, and so is that of one whose snapshot was not evaluated by the policies
    /// that the environment had then.
    async fn verdicts(&self, first: u64, last: u64, cx: &Context<'_>) -> Result<BTreeMap<u64, bool>> {
        let after = self.members_after(&[first, last.saturating_add(1)], cx).await?;
        let [from, to] = after.as_slice() else { return Ok(BTreeMap::new()) };
        // Of each span from the one that was current before, which tells how the member was: what it took while it was none
        // counts nowhere.
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

    /// What is shown in the snapshot that an entry led to, member by member in the order of joining.
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

    /// How many events there are with so many snapshots.
    pub(crate) async fn events_with(&self, snapshots: u64, cx: &Context<'_>) -> Result<u64> {
        if snapshots == 0 {
            return Ok(0);
        }
        let entry = self.entry_of(snapshots, |after| after.snapshots, cx).await?;
        Ok(self.after(&[entry + 1], cx).await?.first().map_or(0, |after| after.events))
    }

    /// Which events of the members those of these numbers are, which exist.
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
        // Of the first snapshot and of the last one, some may be on other pages.
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

    /// These events of the members, as this environment tells of them.
    pub(crate) async fn told(&self, events: Vec<Event>, cx: &Context<'_>) -> Result<Vec<Told>> {
        let entries = events.iter().map(|event| event.revision);
        let Some((first, last)) = entries.clone().min().zip(entries.clone().max()) else {
            return Ok(Vec::new());
        };
        let times = self.times(distinct(entries).into_iter(), cx).await?;
        let before = self.after(&[first], cx).await?.first().map_or(0, |before| before.snapshots);
        let verdicts = self.verdicts(first, last, cx).await?;
        let told = |(index, (entry, compliant))| (entry, (index, compliant));
        let told = BTreeMap::from_iter((before + 1..).zip(verdicts).map(told));
        let told = |event: Event| {
            let lost = || StoreError::corrupt(format_args!("an event of no snapshot: {}", event.revision));
            let (index, compliant) = *told.get(&event.revision).ok_or_else(lost)?;
            let member = self.names.get(&event.environment).cloned();
            Ok(Told { index, at: times.at(event.revision)?, compliant, member, event })
        };
        events.into_iter().map(told).collect()
    }
}

/// When entries of the ledger were recorded.
struct Times(BTreeMap<u64, Timestamp>);

impl Times {
    fn at(&self, entry: u64) -> Result<Timestamp> {
        let lost = || StoreError::corrupt(format_args!("ledger entry {entry} is missing"));
        Ok(self.0.get(&entry).copied().ok_or_else(lost)?)
    }
}

impl SnapshotRow {
    /// What it says of the policies of a logical environment.
    pub(crate) fn says_of(&self, logical: Id) -> OwnPolicies<'_, Id> {
        let verdict = self.logical.iter().find(|verdict| verdict.environment == logical)?;
        Some((&verdict.policies, verdict.compliant))
    }

    /// How the environment stands by it as a member of a logical one.
    fn standing(&self, logical: Id) -> (Option<bool>, OwnPolicies<'_, Id>) {
        (Some(self.compliant), self.says_of(logical))
    }
}

/// What the verdicts of snapshots follow from.
struct Verdicts {
    /// The logical environment.
    environment: Id,
    spans: Arc<[Span]>,
    changes: Arc<BTreeSet<u64>>,
    entries: u64,
    /// The snapshots of members, by member and number.
    rows: Vec<SnapshotRow>,
    policies: PoliciesSince,
}

impl Verdicts {
    /// The entries of the snapshots from one to another, and of each whether all that ran was allowed to.
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
        // How a member stands by a snapshot, and how after so many entries.
        let stands = |member: &Id, entries: u64| {
            let found = of_member.get(member).and_then(|(rows, _)| {
                let after = rows.partition_point(|row| row.revision < entries);
                rows.get(after.checked_sub(1)?).copied()
            });
            found.map_or((None, None), |row: &SnapshotRow| row.standing(environment))
        };
        let now = spans.iter().filter(|span| span.covers(first));
        let now = now.map(|span| (span.member, stands(&span.member, first)));
        let mut members = BTreeMap::<Id, (Option<bool>, OwnPolicies<'_, Id>)>::from_iter(now);
        let mut states = Members::default();
        members.values().for_each(|member| states.add(*member));
        let mut verdicts = BTreeMap::new();
        let told = changes.range(first..=last).copied().chain(taken.keys().copied());
        let told = BTreeSet::from_iter(told);
        // A change that takes no snapshot shows in the verdicts of later ones.
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
                put(&row.environment, row.standing(environment));
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
        /// The changes, when the member was archived, the spans, and the entries.
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
            // It left before that, and its name was dropped from the list after it.
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
        /// The ranges of members, and what is asked for.
        type Case<'c> = (&'c [(u8, u64, u64)], &'c [(u8, u64, u64)]);
        let table: [Case<'_>; 8] = [
            (&[], &[]),
            (&[(1, 4, 6)], &[(1, 4, 6)]),
            // It was away in between.
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

    /// What an entry of the ledger is about: a member joins or leaves, or has a snapshot that is compliant or not, by itself and
    /// by the policy of the logical environment; or that is attached or detached.
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
