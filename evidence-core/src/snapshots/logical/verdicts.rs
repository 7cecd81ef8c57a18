//! The verdicts of snapshots of a logical environment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::policies::PoliciesSince;
use super::spans::Span;
use crate::id::Id;
use crate::rules::policy::{Members, OwnPolicies};
use crate::snapshots::store::SnapshotRow;

/// The inputs of the verdicts of snapshots.
pub(super) struct Verdicts {
    /// The logical environment.
    pub(super) environment: Id,
    pub(super) spans: Arc<[Span]>,
    pub(super) changes: Arc<BTreeSet<u64>>,
    pub(super) entries: u64,
    /// The snapshots of members, sorted by member and number.
    pub(super) rows: Vec<SnapshotRow>,
    pub(super) policies: PoliciesSince,
}

impl Verdicts {
    /// Returns the entries of the snapshots in a range, each with whether everything in it was allowed.
    pub(super) fn between(self, first: u64, last: u64) -> BTreeMap<u64, bool> {
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
            let takes_snapshot = |row: &&&SnapshotRow| {
                (first..=last).contains(&row.revision)
                    && spans.iter().any(|span| span.since < row.revision && row.revision < span.end(entries))
            };
            taken.extend(rows.iter().filter(takes_snapshot).map(|row| (row.revision, *row)));
        }
        // Returns the state of a member after this many entries.
        let state_after = |member: &Id, entries: u64| {
            let found = of_member.get(member).and_then(|(rows, _)| {
                let after = rows.partition_point(|row| row.revision < entries);
                rows.get(after.checked_sub(1)?).copied()
            });
            found.map_or((None, None), |row: &SnapshotRow| row.state_and_verdict(environment))
        };
        let now = spans.iter().filter(|span| span.covers(first));
        let now = now.map(|span| (span.member, state_after(&span.member, first)));
        let mut members = BTreeMap::<Id, (Option<bool>, OwnPolicies<'_, Id>)>::from_iter(now);
        let mut states = Members::default();
        members.values().for_each(|member| states.add(*member));
        let mut verdicts = BTreeMap::new();
        let numbered = changes.range(first..=last).copied().chain(taken.keys().copied());
        let numbered = BTreeSet::from_iter(numbered);
        // A change that takes no snapshot affects the verdicts of later ones.
        let unnumbered = begun.range(first..=last).chain(ended.range(first..=last)).map(|(entry, _)| *entry);
        for entry in numbered.iter().copied().chain(unnumbered).collect::<BTreeSet<_>>() {
            for member in ended.get(&entry).into_iter().flatten() {
                if let Some(was) = members.remove(member) {
                    states.remove(was);
                }
            }
            let mut put = |member: &Id, state| {
                if let Some(was) = members.insert(*member, state) {
                    states.remove(was);
                }
                states.add(state);
            };
            for member in begun.get(&entry).into_iter().flatten() {
                put(member, state_after(member, entry));
            }
            if let Some(row) = taken.get(&entry) {
                put(&row.environment, row.state_and_verdict(environment));
            }
            if numbered.contains(&entry) {
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

    use super::super::spans::{Archived, spans};
    use super::*;
    use crate::environments::store::MemberChange;
    use crate::snapshots::record::LogicalVerdict;
    use crate::time::Timestamp;

    fn member(n: u8) -> Id {
        format!("00000000-0000-0000-0000-0000000{n:x}").parse().unwrap()
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
