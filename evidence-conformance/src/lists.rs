//! Checks of the lists that grow longest, trails and artifacts: a store may number what is on them instead of counting
//! it, so several write to them at the same time, and several at once.

use std::sync::Arc;

use futures_util::future::try_join_all;

use evidence_core::artifacts::ArtifactFilter;
use evidence_core::fact::Fact;
use evidence_core::id::Id;
use evidence_core::page::{Page, PageRequest};
use evidence_core::store::{Store, StoreResult};
use evidence_core::trails::TrailFilter;

use super::fixtures::{Org, artifact_reported, flow_created, id, request, trail, trail_begun};
use super::ledger::whole;
use super::races::on_tasks;
use super::{Failure, Outcome, promises, same};

promises! {
    lists_follow_the_ledger: "Trails and artifacts of an organization, and those of a flow, are listed as their ledger has them, backwards: each once, in pages of any size, however many write.",
    updates_move_no_trail: "A trail keeps its place in the lists, also when it is updated by the write that begins others.",
}

const WRITERS: u64 = 6;
const WRITES: u64 = 6;

#[derive(Debug, Clone, Copy)]
enum List {
    Trails,
    Artifacts,
}

impl List {
    async fn page(self, org: &Org, flow: Option<Id>, request: PageRequest) -> StoreResult<Page<Id>> {
        Ok(match self {
            Self::Trails => {
                let filter = TrailFilter { flow, ..TrailFilter::default() };
                org.store.trails(org.id, &filter, request).await?.map(|trail| trail.id)
            }
            Self::Artifacts => {
                let filter = ArtifactFilter { flow, ..ArtifactFilter::default() };
                org.store.artifacts(org.id, &filter, request).await?.map(|artifact| artifact.id)
            }
        })
    }

    /// The flow of a fact, and the item that the fact adds to the list.
    fn item(self, fact: &Fact) -> Option<(Id, Id)> {
        match (self, fact) {
            (Self::Trails, Fact::TrailBegun { record }) => Some((record.flow, record.id)),
            (Self::Artifacts, Fact::ArtifactReported { record }) => Some((record.flow, record.id)),
            _ => None,
        }
    }
}

/// The two flows of an organization; ids are unique in the whole store.
fn flows(org: u64) -> [u64; 2] {
    [10_000 * org, 10_000 * org + 1]
}

/// Begins a trail in each flow, reports to the second, and updates both.
fn facts(org: u64, first: u64) -> Vec<Fact> {
    let [left, right] = flows(org);
    let name = format!("t{first}");
    vec![
        trail_begun(first, left, &name),
        artifact_reported(first + 2, left, None, "ab"),
        trail_begun(first + 1, right, &name),
        Fact::TrailUpdated { record: trail(first, left, &name), changes: Vec::new() },
        artifact_reported(first + 3, right, Some(first + 1), "ab"),
        Fact::TrailUpdated { record: trail(first + 1, right, &name), changes: Vec::new() },
    ]
}

async fn write(org: Org, number: u64, writer: u64) -> Outcome {
    for first in (10_000 * number + 1000 * writer..).step_by(10).take(WRITES as usize) {
        org.record(facts(number, first)).await?;
    }
    Ok(())
}

async fn lists_follow_the_ledger(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let orgs = [(1, org), (2, other)];
    for (number, org) in &orgs {
        let [left, right] = flows(*number);
        org.record(vec![flow_created(left, "f"), flow_created(right, "g")]).await?;
    }
    let writers =
        (1..=WRITERS).flat_map(|writer| orgs.iter().map(move |(n, org)| write(org.clone(), *n, writer)));
    on_tasks(writers.collect::<Vec<_>>()).await?.into_iter().collect::<Outcome>()?;
    for (number, org) in &orgs {
        let [left, right] = flows(*number).map(id);
        for flow in [None, Some(left), Some(right)] {
            follows_the_ledger(List::Trails, org, flow).await?;
            follows_the_ledger(List::Artifacts, org, flow).await?;
        }
    }
    Ok(())
}

async fn follows_the_ledger(list: List, org: &Org, flow: Option<Id>) -> Outcome {
    let mut expected = Vec::new();
    for entry in whole(&org.store, org.id).await? {
        let fact = Fact::read(&entry.payload).map_err(|error| Failure(format!("a payload: {error}")))?;
        expected.extend(list.item(&fact).filter(|(of, _)| flow.is_none_or(|flow| flow == *of)));
    }
    let expected: Vec<Id> = expected.into_iter().rev().map(|(_, id)| id).collect();
    let total = expected.len() as u64;
    for limit in [7, total, PageRequest::ALL.limit] {
        let offsets = (0..=total).step_by(usize::try_from(limit).unwrap_or(usize::MAX));
        let pages = offsets.map(|offset| list.page(org, flow, request(offset, limit)));
        let pages = try_join_all(pages).await?;
        let what = format!("{list:?} of {flow:?}, {limit} at a time");
        same(&what, pages.iter().map(|page| page.total).find(|found| *found != total), None)?;
        same(&what, pages.into_iter().flat_map(|page| page.items).collect::<Vec<_>>(), expected.clone())?;
    }
    Ok(())
}

async fn updates_move_no_trail(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![flow_created(100, "f"), trail_begun(110, 100, "a"), trail_begun(111, 100, "b")]).await?;
    let updated = |n, name| Fact::TrailUpdated { record: trail(n, 100, name), changes: Vec::new() };
    let facts = vec![
        updated(110, "a"),
        trail_begun(113, 100, "c"),
        updated(111, "b"),
        updated(113, "c"),
        trail_begun(112, 100, "d"),
        updated(110, "a"),
    ];
    org.record(facts).await?;
    org.record(vec![trail_begun(114, 100, "e")]).await?;
    for flow in [None, Some(id(100))] {
        let found = List::Trails.page(&org, flow, PageRequest::ALL).await?;
        let items = [114, 112, 113, 111, 110].map(id).to_vec();
        same("the trails", found, Page { items, total: 5 })?;
    }
    Ok(())
}
