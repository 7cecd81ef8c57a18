//! Snapshots, and the artifacts in them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use async_trait::async_trait;

use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Listed, Page, PageRequest, SortDirection};
use evidence_core::snapshots::{
    Event, EventSize, LiveBuild, Progress, REPLACED_AMONG, Replaced, Run, Snapshot, SnapshotEntry,
    SnapshotRow, SnapshotStore, Start,
};
use evidence_core::store::{Current, StoreResult};
use evidence_core::time::Timestamp;

use super::tables::{Interval, Tables};
use super::{MemoryStore, at_most, bytes};

impl Tables {
    pub(super) fn snapshots_of(
        &self,
        environment: Id,
    ) -> impl DoubleEndedIterator<Item = &Current<Snapshot>> {
        self.snapshots.range((environment, 0)..=(environment, u64::MAX)).map(|(_, snapshot)| snapshot)
    }

    /// Returns the effective time of a snapshot. The record itself stays unchanged.
    pub(super) fn taken_at(&self, Current { revision, record }: &Current<Snapshot>) -> Timestamp {
        self.ledger.corrected(*revision, record.at)
    }

    fn line(&self, taken: &Current<Snapshot>) -> SnapshotRow {
        let Current { revision, record: snapshot } = taken;
        let next = snapshot.index.checked_add(1).map(|next| (snapshot.environment, next));
        SnapshotRow {
            environment: snapshot.environment,
            index: snapshot.index,
            at: self.taken_at(taken),
            until: next.and_then(|next| self.snapshots.get(&next)).map(|next| self.taken_at(next)),
            compliant: snapshot.compliant,
            events: snapshot.events_with(),
            revision: *revision,
            logical: snapshot.logical.clone(),
        }
    }

    /// Returns the events of an environment.
    fn events_of(&self, environment: Id) -> impl Iterator<Item = Event> {
        let event = move |number: u64, index: u64, one: &Interval| {
            let taken = self.snapshots.get(&(environment, index))?;
            Some(Event {
                environment,
                number,
                snapshot: (index, self.taken_at(taken)),
                revision: taken.revision,
                compliant: taken.record.compliant,
                instance: one.instance.clone(),
                exited: false,
            })
        };
        self.intervals.iter().filter(move |one| one.environment == environment).flat_map(move |one| {
            let began = one.event.and_then(|number| event(number, one.instance.from, one));
            let ended = one.exit_event.zip(one.until);
            let ended = ended.and_then(|(number, (until, _))| event(number, until, one));
            let ended = ended.map(|ended| Event { exited: true, ..ended });
            began.into_iter().chain(ended)
        })
    }

    /// Returns what this start replaces: the previous content with the same name in the same flow, if there
    /// is one.
    fn replaced(&self, place: u64, start: &Start) -> Option<Replaced> {
        let there = || self.intervals.iter().filter(|one| one.environment == start.environment);
        // By start: the last report with the name.
        let mut before = BTreeMap::new();
        for one in there().filter(|one| one.instance.since < start.since) {
            let of_flow = one.instance.provenance.iter().filter(|from| from.flow == Some(start.flow));
            for from in of_flow.filter(|from| start.reference.is_empty() || from.reference == start.reference)
            {
                before.insert((one.instance.since, &one.artifact, &from.reference), from.artifact);
            }
        }
        let mut newest = before.into_iter().rev().take(at_most(REPLACED_AMONG));
        let ((since, artifact, _), report) =
            newest.find(|((_, artifact, _), _)| **artifact != start.artifact)?;
        let last = |one: &&Interval| {
            one.artifact == *artifact && one.instance.since == since && (one.exited || one.until.is_none())
        };
        let Interval { instance, until, .. } = there().find(last)?;
        let from = instance.provenance.iter().find(|from| from.artifact == report);
        Some(Replaced {
            place,
            report,
            fingerprint: instance.fingerprint.clone(),
            name: instance.name.clone(),
            state: from.map(|from| from.state),
            until: until.map(|(until, _)| until),
        })
    }

    /// Returns the run that ends with this interval.
    fn run(&self, interval: &Interval) -> Option<Run> {
        let environment = &self.environments.get(&interval.environment)?.record;
        let since = interval.instance.since;
        Some(Run {
            fingerprint: interval.instance.fingerprint.clone()?,
            environment: interval.environment,
            environment_name: environment.name.clone(),
            archived: self.archived.contains(&interval.environment),
            from: (since, self.taken_at(self.snapshots.get(&(interval.environment, since))?)),
            until: interval.until,
        })
    }
}

#[async_trait]
impl SnapshotStore for MemoryStore {
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>> {
        self.query(org, |tables| tables.snapshots.get(&(environment, index)).cloned())
    }

    async fn snapshots(
        &self,
        org: Id,
        ranges: &[(Id, RangeInclusive<u64>)],
    ) -> StoreResult<Vec<SnapshotRow>> {
        self.query(org, |tables| {
            let within = ranges.iter().flat_map(|(environment, range)| {
                let snapshots = tables.snapshots_of(*environment);
                snapshots.filter(|snapshot| range.contains(&snapshot.record.index))
            });
            let mut rows = Vec::from_iter(within.map(|snapshot| tables.line(snapshot)));
            rows.sort_by_key(|row| (row.environment, row.index));
            rows
        })
    }

    async fn progress(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Progress>> {
        self.query(org, |tables| {
            let progress = |(environment, before): &(Id, u64)| {
                let mut taken = tables.snapshots_of(*environment).take_while(|one| one.revision < *before);
                let last = taken.by_ref().last().map(|last| &last.record);
                last.map_or_else(Progress::default, |last| Progress {
                    snapshots: last.index,
                    events: last.events_with(),
                })
            };
            asked.iter().map(progress).collect()
        })
    }

    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64> {
        self.query(org, |tables| {
            let taken = tables.snapshots_of(environment);
            let taken = taken.map(|snapshot| (tables.taken_at(snapshot), snapshot.record.index));
            taken.filter(|(taken, _)| *taken <= at).max().map_or(0, |(_, index)| index)
        })
    }

    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<SnapshotEntry>> {
        self.query(org, |tables| {
            if !tables.snapshots.contains_key(&(environment, index)) {
                return Vec::new();
            }
            let there = |one: &&Interval| one.covers(index) || one.exited_in(index);
            let intervals = tables.intervals.iter().filter(|one| one.environment == environment);
            let mut intervals: Vec<_> = intervals.filter(there).collect();
            intervals.sort_by(|left, right| left.artifact.cmp(&right.artifact));
            let placed = |one: &Interval| SnapshotEntry {
                instance: one.instance.clone(),
                exited: one.exited_in(index),
            };
            intervals.into_iter().map(placed).collect()
        })
    }

    async fn runs(&self, org: Id, fingerprints: &[Fingerprint], newest: u32) -> StoreResult<Vec<Run>> {
        let mut runs: Vec<_> = self.query(org, |tables| {
            let asked = |one: &&Interval| {
                let fingerprint = one.instance.fingerprint.as_ref();
                (one.exited || one.until.is_none()) && fingerprint.is_some_and(|it| fingerprints.contains(it))
            };
            tables.intervals.iter().filter(asked).filter_map(|last| tables.run(last)).collect()
        })?;
        let place = |run: &Run| (run.environment, run.fingerprint.clone());
        runs.sort_by_cached_key(|run| (place(run), run.from.0));
        let newest = newest as usize;
        let shown = |runs: &[Run]| match runs.len().checked_sub(newest) {
            Some(older @ 1..) => [&runs[..1], &runs[older..]].concat(),
            _ => runs.to_vec(),
        };
        Ok(runs.chunk_by(|left, right| place(left) == place(right)).flat_map(shown).collect())
    }

    async fn live_builds(&self, org: Id, repo: Id, reports: u64, limit: u64) -> StoreResult<Vec<LiveBuild>> {
        self.query(org, |tables| {
            let mut named =
                Vec::from_iter(tables.artifacts.iter().filter(|one| one.record.repo == Some(repo)));
            named.sort_unstable_by_key(|one| Reverse(one.revision));
            // Of several reports of an artifact, the first counts.
            let first: BTreeMap<_, _> = named
                .into_iter()
                .take(at_most(reports))
                .map(|one| (one.record.fingerprint.clone(), one))
                .collect();
            let mut live = Vec::new();
            let lasting = tables.intervals.iter().filter(|one| one.until.is_none());
            for Interval { environment, instance, .. } in lasting {
                let report = instance.fingerprint.as_ref().and_then(|print| first.get(print));
                let known = tables.environments.get(environment);
                let known = known.filter(|known| !tables.archived.contains(&known.record.id));
                let begun = tables.snapshots.get(&(*environment, instance.since));
                let (Some(report), Some(known), Some(begun)) = (report, known, begun) else { continue };
                let build = LiveBuild {
                    report: Listed { id: report.record.id, bytes: bytes(&report.record)? },
                    environment: *environment,
                    name: instance.name.clone(),
                    since: (instance.since, tables.taken_at(begun)),
                    compliant: instance.compliant,
                };
                live.push((known.record.name.clone(), instance.fingerprint.clone(), build));
            }
            live.sort_by(|(name, print, _), (other, other_print, _)| {
                (name, print).cmp(&(other, other_print))
            });
            Ok(live.into_iter().map(|(.., build)| build).take(at_most(limit)).collect())
        })?
    }

    async fn event_sizes(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<EventSize>> {
        let sized = |event: &Event| {
            let (environment, number, revision) = (event.environment, event.number, event.revision);
            Ok(EventSize { environment, number, revision, bytes: bytes(&event.instance)? })
        };
        self.events(org, asked).await?.iter().map(sized).collect()
    }

    async fn events(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Event>> {
        self.query(org, |tables| {
            let environments = BTreeSet::from_iter(asked.iter().map(|(environment, _)| *environment));
            let events = environments.into_iter().flat_map(|environment| tables.events_of(environment));
            events.filter(|event| asked.contains(&(event.environment, event.number))).collect()
        })
    }

    async fn event_numbers(
        &self,
        org: Id,
        environment: Id,
        (range, direction): (RangeInclusive<u64>, SortDirection),
        repos: &[Id],
        request: PageRequest,
    ) -> StoreResult<Page<u64>> {
        self.query(org, |tables| {
            let origins = tables.origins(u64::MAX, |_| true);
            let named = origins.iter().map(|origin| &origin.report);
            let named = named.filter(|one| one.repo.is_some_and(|repo| repos.contains(&repo)));
            let named: BTreeSet<&Fingerprint> = named.map(|one| &one.fingerprint).collect();
            let about = |event: &Event| {
                event.instance.fingerprint.as_ref().is_some_and(|fingerprint| named.contains(fingerprint))
            };
            let events = tables.events_of(environment).filter(|event| range.contains(&event.number));
            let mut numbers = Vec::from_iter(events.filter(about).map(|event| event.number));
            numbers.sort_unstable();
            if direction == SortDirection::Desc {
                numbers.reverse();
            }
            Page::of(numbers, request)
        })
    }

    async fn replaced(&self, org: Id, starts: &[Start]) -> StoreResult<Vec<Replaced>> {
        self.query(org, |tables| {
            (0..).zip(starts).filter_map(|(place, start)| tables.replaced(place, start)).collect()
        })
    }
}
