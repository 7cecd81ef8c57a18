//! The memberships of a logical environment.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::environments::store::MemberChange;
use crate::id::Id;
use crate::snapshots::store::Progress;

/// A membership: the range of entries in which an environment is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) member: Id,
    pub(super) since: u64,
    pub(super) until: Option<u64>,
    /// The member's progress when it joined.
    pub(super) before: Progress,
    /// The member's progress when it left, or its present progress.
    pub(super) after: Progress,
}

impl Span {
    /// Returns whether it is a member when the ledger has this many entries.
    pub(super) fn covers(&self, entries: u64) -> bool {
        self.since < entries && self.until.is_none_or(|until| entries <= until)
    }

    /// Returns the end of the entries that count for the member, with this many in the ledger.
    pub(super) fn end(&self, entries: u64) -> u64 {
        self.until.map_or(entries, |until| until.min(entries))
    }

    /// Returns the entries at which the member's progress is needed.
    pub(super) fn ends(&self) -> impl Iterator<Item = u64> + use<> {
        std::iter::once(self.since).chain(self.until)
    }

    /// Returns the member's progress since it joined.
    pub(super) fn gained(&self, progress: Progress) -> Progress {
        Progress {
            snapshots: progress.snapshots.saturating_sub(self.before.snapshots),
            events: progress.events.saturating_sub(self.before.events),
        }
    }
}

/// The entries that archived members.
pub(super) type Archived = BTreeMap<Id, u64>;

/// Returns the memberships that these changes define, and the entries of all changes.
pub(super) fn spans(changes: &[MemberChange], archived: &Archived) -> (Vec<Span>, BTreeSet<u64>) {
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
pub(super) fn most_at_once(spans: &[Span]) -> usize {
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
pub(super) fn joined(mut ranges: Vec<(Id, RangeInclusive<u64>)>) -> Vec<(Id, RangeInclusive<u64>)> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
            let (found, entries_of_changes) =
                spans(&Vec::from_iter(changes.iter().copied().map(change)), &archived);
            let found = Vec::from_iter(found.iter().map(|span| (span.member, span.since, span.until)));
            let expected = expected.iter().map(|(number, since, until)| (member(*number), *since, *until));
            assert_eq!(found, Vec::from_iter(expected), "{changes:?}");
            assert_eq!(Vec::from_iter(entries_of_changes), entries, "{changes:?}");
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
}
