//! The snapshots of logical environments. Each snapshot of a member during its membership is one of theirs.
//! So is each visible change of the members, including the archiving of a member. They are numbered in the
//! order of their ledger entries, and have the times of these entries. The numbering follows from the records
//! of the members, and a snapshot keeps its number.

mod policies;
mod spans;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::compute::MANY_EVALUATIONS;
use crate::context::Context;
use crate::environments::store::{EnvironmentStatus, KnownEnvironment};
use crate::error::Result;
use crate::id::Id;
use crate::name::EnvironmentName;
use crate::rules::policy::OwnPolicies;
use crate::snapshots::numbered_event::NumberedEvent;
use crate::snapshots::store::{Event, Progress, SnapshotRow};
use crate::store::batch::distinct;
use crate::store::error::StoreError;
use crate::time::Timestamp;

use policies::PolicyHistory;
use spans::{Archived, Span, joined, most_at_once, spans};
use verdicts::Verdicts;

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
