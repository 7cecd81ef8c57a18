//! The snapshots of logical environments. Each of a member's is one of theirs while it is a member, and so is each change of the
//! members that shows, archiving one included. They are numbered by their entries in the ledger: which they are follows from
//! what is recorded of the members, and once it has one each keeps its number.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::environments::store::{EnvironmentStatus, KnownEnvironment, MemberChange};
use crate::error::Result;
use crate::id::Id;
use crate::name::EnvironmentName;
use crate::service::Context;
use crate::snapshots::store::{Event, Progress, SnapshotRow};
use crate::snapshots::timeline::Told;
use crate::store::batch::distinct;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// The snapshots of a logical environment, as of one size of the ledger.
pub(crate) struct Combined {
    environment: Id,
    spans: Vec<Span>,
    /// The changes of the members that show: the indexes of their entries, and when they were.
    changes: BTreeMap<u64, Timestamp>,
    /// How many entries the ledger had.
    entries: u64,
    total: Progress,
    names: BTreeMap<Id, EnvironmentName>,
}

/// From one entry until another an environment is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    member: Id,
    since: u64,
    until: Option<u64>,
    /// How far the member was when it joined.
    before: Progress,
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

/// When members were archived: the entry, and its time.
type Archived = BTreeMap<Id, (u64, Timestamp)>;

/// When environments were members, by these changes, and when which of the changes were.
fn spans(changes: &[MemberChange], archived: &Archived) -> (Vec<Span>, BTreeMap<u64, Timestamp>) {
    let mut times = BTreeMap::new();
    let (mut spans, mut open) = (Vec::<Span>::new(), BTreeMap::<Id, usize>::new());
    for &MemberChange { entry, at, member, joined } in changes {
        times.insert(entry, at);
        if !joined {
            if let Some(span) = open.remove(&member).and_then(|place| spans.get_mut(place)) {
                span.until = Some(entry);
            }
        } else if let Entry::Vacant(vacant) = open.entry(member) {
            vacant.insert(spans.len());
            spans.push(Span { member, since: entry, until: None, before: Progress::default() });
        }
    }
    for span in &mut spans {
        if let Some(&(entry, at)) = archived.get(&span.member)
            && span.covers(entry)
        {
            span.until = Some(entry);
            times.insert(entry, at);
        }
    }
    (spans, times)
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
        let (org, environment) = (cx.org()?, environment.record.id);
        let entries = cx.ledger_size().await?;
        let mut changes = cx.store().member_changes(org, environment).await?;
        changes.retain(|change| change.entry < entries);
        let members = distinct(changes.iter().map(|change| change.member));
        let (mut archived, mut names) = (Archived::new(), BTreeMap::new());
        for part in members.chunks(MEMBERS) {
            for known in cx.store().environments_by_id(org, part).await? {
                // Nothing is recorded of the settings of an environment after it was archived.
                if known.archived && known.revision < entries {
                    archived.insert(known.record.id, (known.revision, known.record.last_modified_at));
                }
                names.insert(known.record.id, known.record.name);
            }
        }
        let (mut spans, times) = spans(&changes, &archived);
        let ends = |span: &Span| [(span.member, span.since), (span.member, span.until.unwrap_or(entries))];
        let found = progress(&Vec::from_iter(spans.iter().flat_map(ends)), cx).await?;
        let (mut total, mut shown) = (Progress::default(), BTreeSet::new());
        for (span, found) in spans.iter_mut().zip(found.chunks_exact(2)) {
            let [before, end] = *found else { continue };
            span.before = before;
            total.snapshots += end.snapshots - before.snapshots;
            total.events += end.events - before.events;
            shown.extend((before.snapshots > 0).then_some(span.since));
            shown.extend(span.until.filter(|_| end.snapshots > 0));
        }
        let changes = BTreeMap::from_iter(times.into_iter().filter(|(entry, _)| shown.contains(entry)));
        total.snapshots += changes.len() as u64;
        Ok(Self { environment, spans, changes, entries, total, names })
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
        let places = entries.iter().flat_map(|entries| {
            let begun = self.spans.iter().filter(|span| span.since < *entries);
            begun.map(|span| (span.member, span.end(*entries)))
        });
        let mut found = progress(&Vec::from_iter(places), cx).await?.into_iter();
        let mut after = Vec::new();
        for entries in entries {
            let member = |span: &Span| if span.since < *entries { found.next() } else { None };
            after.push(self.spans.iter().map(member).collect());
        }
        Ok(after)
    }

    /// How many snapshots and events there were after so many entries, where the members were so far.
    fn sum(&self, entries: u64, members: &[Option<Progress>]) -> Progress {
        let mut sum =
            Progress { snapshots: self.changes.range(..entries).count() as u64, ..Progress::default() };
        for (span, progress) in self.spans.iter().zip(members) {
            let Some(progress) = progress else { continue };
            sum.snapshots += progress.snapshots.saturating_sub(span.before.snapshots);
            sum.events += progress.events.saturating_sub(span.before.events);
        }
        sum
    }

    /// How many snapshots and events there were after so many entries; as often as asked.
    async fn after(&self, entries: &[u64], cx: &Context<'_>) -> Result<Vec<Progress>> {
        let members = self.members_after(entries, cx).await?;
        Ok(entries.iter().zip(members).map(|(entries, members)| self.sum(*entries, &members)).collect())
    }

    /// The number of the snapshot that was current at a time; 0 before the first.
    pub(crate) async fn at(&self, at: Timestamp, cx: &Context<'_>) -> Result<u64> {
        let entries = cx.store().ledger_size_at(cx.org()?, at).await?.min(self.entries);
        Ok(self.after(&[entries], cx).await?.first().map_or(0, |after| after.snapshots))
    }

    /// The entry by which a count first comes to so many, which it does. By several places at once, so that it takes few
    /// queries, and the fewer of them the more members there are.
    async fn entry_of(&self, wanted: u64, count: impl Fn(&Progress) -> u64, cx: &Context<'_>) -> Result<u64> {
        let places = (LOOK_UPS / self.spans.len().max(1)).clamp(3, 64) as u64;
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
        Ok(enough - 1)
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
        let last_entry = self.entry_of(last, |after| after.snapshots, cx).await?;
        let states = self.states(first_entry, last_entry, cx).await?;
        let mut rows: Vec<SnapshotRow> = Vec::new();
        for (index, (revision, (at, compliant))) in (*range.start()..).zip(states) {
            if let Some(before) = rows.last_mut() {
                before.until = Some(at);
            }
            let environment = self.environment;
            rows.push(SnapshotRow { environment, index, at, until: None, compliant, events: 0, revision });
        }
        rows.retain(|row| range.contains(&row.index));
        Ok(rows)
    }

    /// The snapshots from one entry to another: when each was taken, and whether all that ran was allowed to.
    async fn states(
        &self,
        first: u64,
        last: u64,
        cx: &Context<'_>,
    ) -> Result<BTreeMap<u64, (Timestamp, bool)>> {
        let after = self.members_after(&[first, last.saturating_add(1)], cx).await?;
        let [from, to] = after.as_slice() else { return Ok(BTreeMap::new()) };
        let mut ranges = Vec::new();
        for (span, (from, to)) in self.spans.iter().zip(from.iter().zip(to)) {
            let Some(to) = to.filter(|to| to.snapshots > 0) else { continue };
            if span.until.is_some_and(|until| until < first) {
                continue;
            }
            // From the one that was current before, which tells how the member was.
            let begin = from.unwrap_or(span.before).snapshots.max(1);
            ranges.push((span.member, begin..=to.snapshots));
        }
        let mut rows =
            if ranges.is_empty() { Vec::new() } else { cx.store().snapshots(cx.org()?, &ranges).await? };
        rows.dedup();
        let mut entries = BTreeSet::from_iter(self.changes.range(first..=last).map(|(entry, _)| *entry));
        let mut by_member = BTreeMap::<Id, Vec<&SnapshotRow>>::new();
        for row in &rows {
            by_member.entry(row.environment).or_default().push(row);
        }
        let is_told = |row: &&SnapshotRow| {
            let mut spans = self.spans.iter().filter(|span| span.member == row.environment);
            (first..=last).contains(&row.revision)
                && spans.any(|span| span.since < row.revision && row.revision < span.end(self.entries))
        };
        let taken = BTreeMap::from_iter(rows.iter().filter(is_told).map(|row| (row.revision, row)));
        entries.extend(taken.keys());
        let mut states = BTreeMap::new();
        let mut verdicts = BTreeMap::<Id, bool>::new();
        // How the member stands after an entry.
        let verdict = |member: Id, entry: u64| {
            let rows = by_member.get(&member)?;
            let after = rows.partition_point(|row| row.revision <= entry);
            Some(rows.get(after.checked_sub(1)?)?.compliant)
        };
        let mut before = None;
        for entry in entries {
            let changed = self.changes.get(&entry);
            if before.is_none() || changed.is_some() {
                let now = self.spans.iter().filter(|span| span.covers(entry + 1));
                let now = now.filter_map(|span| Some((span.member, verdict(span.member, entry)?)));
                verdicts = now.collect();
            } else if let Some(row) = taken.get(&entry) {
                verdicts.insert(row.environment, row.compliant);
            }
            before = Some(entry);
            let at = changed.copied().or_else(|| taken.get(&entry).map(|row| row.at));
            let compliant = !verdicts.is_empty() && verdicts.values().all(|compliant| *compliant);
            states.extend(at.map(|at| (entry, (at, compliant))));
        }
        Ok(states)
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
        let skipped = numbers.start() - 1 - self.sum(first, before_first).events;
        let left_out = self.sum(last + 1, with_last).events - numbers.end();
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
        let entries = distinct(events.iter().map(|event| event.revision + 1));
        let indexes = self.after(&entries, cx).await?;
        let indexes = BTreeMap::from_iter(entries.into_iter().zip(indexes));
        let told = |event: Event| {
            let index = indexes.get(&(event.revision + 1)).map(|after| after.snapshots);
            let lost = || StoreError::corrupt(format_args!("an event of no snapshot: {}", event.revision));
            let member = self.names.get(&event.environment).cloned();
            Ok(Told { index: index.ok_or_else(lost)?, member, event })
        };
        events.into_iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(n: u8) -> Id {
        format!("00000000-0000-0000-0000-0000000{n:x}").parse().unwrap()
    }

    #[test]
    fn a_member_is_one_from_joining_until_it_leaves_or_is_archived() {
        let change = |(entry, number, joined)| MemberChange {
            entry,
            at: Timestamp::from_micros(10 * i64::try_from(entry).unwrap()),
            member: member(number),
            joined,
        };
        let archived = |entry| Archived::from([(member(1), (entry, Timestamp::from_micros(7)))]);
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
            let (found, times) = spans(&Vec::from_iter(changes.iter().copied().map(change)), &archived);
            let found = Vec::from_iter(found.iter().map(|span| (span.member, span.since, span.until)));
            let expected = expected.iter().map(|(number, since, until)| (member(*number), *since, *until));
            assert_eq!(found, Vec::from_iter(expected), "{changes:?}");
            assert_eq!(Vec::from_iter(times.into_keys()), entries, "{changes:?}");
        }
    }
}
