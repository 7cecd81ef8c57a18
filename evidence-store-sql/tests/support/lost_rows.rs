//! Tests of a store that has lost a row, or a row's number, outside its control. Nothing else must be hidden,
//! and nothing must be recorded that a rebuild could not restore.

use std::sync::Arc;

use evidence_conformance::checks;
use evidence_core::attestations::DecisionFilter;
use evidence_core::auth::{Actor, ActorKind};
use evidence_core::builds::BuildFilter;
use evidence_core::deployments::{Deployment, DeploymentFilter, DeploymentScope};

use evidence_core::id::{Id, SystemRandom};
use evidence_core::page::PageRequest;
use evidence_core::snapshots::Snapshot;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;
use evidence_core::trails::TrailFilter;
use evidence_core::{Entry, Fact, Key, Precondition, Store, StoreError, Write};

/// A store whose tables a test can change directly.
pub(crate) trait Damaged: Sized {
    async fn empty() -> Self;
    fn store(&self) -> Arc<dyn Store>;
    /// Executes a statement in which `{}` precedes the names of tables.
    async fn execute(&self, sql: &str);
    /// Rebuilds the tables. Returns the problems.
    async fn rebuild(&self) -> Vec<String>;

    /// Creates a store with the data of a check of the store contract.
    async fn after(check: &str) -> Self {
        let damaged = Self::empty().await;
        let check = checks().into_iter().find(|known| known.name.ends_with(check)).unwrap();
        (check.run)(damaged.store()).await.unwrap();
        damaged
    }

    async fn org(&self, name: &str) -> Id {
        let organizations = self.store().organizations_by_name("", 100).await.unwrap();
        organizations.records.into_iter().find(|org| org.name.as_str() == name).unwrap().id
    }
}

const BEGINNING: Timestamp = Timestamp::from_micros(i64::MIN);
const END: Timestamp = Timestamp::from_micros(i64::MAX);

fn deployments_from(scope: DeploymentScope, from: Timestamp) -> DeploymentFilter {
    DeploymentFilter { scope, environments: None, flow: None, from, to: END }
}

/// The environment `prod` of the organization.
async fn prod(store: &dyn Store, org: Id) -> Id {
    store.environment(org, "prod").await.unwrap().unwrap().record.id
}

/// The facts of an organization, oldest first.
async fn facts(store: &dyn Store, org: Id) -> Vec<Fact> {
    let entries = store.ledger_entries(org, 0, 1_000).await.unwrap();
    entries.iter().map(|entry| Fact::read(&entry.payload).unwrap()).collect()
}

async fn record(
    store: &dyn Store,
    org: Id,
    fact: Fact,
    preconditions: Vec<Precondition>,
) -> StoreResult<Vec<Entry>> {
    let by = Actor { id: org, name: "jane".to_owned(), kind: ActorKind::User };
    let (at, facts) = (Timestamp::from_seconds(1_000), vec![fact]);
    store.record(Write { preconditions, ..Write::new(org, by, at, facts, &SystemRandom) }).await
}

/// The results of binary searches in an environment: the latest snapshot at each time, the latest deployment
/// of each artifact, and the deployments from each time on.
#[derive(Debug, PartialEq)]
struct Searched {
    snapshots: Vec<u64>,
    latest: Vec<Option<Deployment>>,
    deployed: Vec<Vec<Deployment>>,
}

impl Searched {
    /// Searches at these times, and for and from these deployments.
    async fn of(store: &dyn Store, org: Id, times: &[Timestamp], all: &[Deployment]) -> Self {
        let environment = prod(store, org).await;
        let (mut snapshots, mut latest, mut deployed) = (Vec::new(), Vec::new(), Vec::new());
        for at in times {
            snapshots.push(store.snapshot_at(org, environment, *at).await.unwrap());
        }
        for one in all {
            let fingerprint = one.fingerprint.as_ref().unwrap();
            latest.push(store.latest_deployment(org, environment, fingerprint).await.unwrap());
            let filter = deployments_from(DeploymentScope::Environment(environment), one.at);
            deployed.push(store.deployments(org, &filter, PageRequest::ALL).await.unwrap().items);
        }
        Self { snapshots, latest, deployed }
    }
}

/// Checks that a lost row does not hide later rows from a binary search.
pub(crate) async fn are_passed_over_by_binary_searches<D: Damaged>() {
    let whole = D::after("the_last_deployment_is_found").await;
    let (store, org) = (whole.store(), whole.org("foo").await);
    let environment = prod(&*store, org).await;
    let mut times = Vec::new();
    for number in 1.. {
        let Some(snapshot) = store.snapshot(org, environment, number).await.unwrap() else { break };
        times.push(snapshot.record.at);
    }
    let everything = deployments_from(DeploymentScope::Environment(environment), BEGINNING);
    let all = store.deployments(org, &everything, PageRequest::ALL).await.unwrap().items;
    assert_eq!((times.len(), all.len()), (4, 4));
    let whole = Searched::of(&*store, org, &times, &all).await;
    assert_eq!(whole.snapshots, [1, 2, 3, 4]);
    // The last row is excluded: without it, the store looks as if it had never existed.
    for lost in 1..4 {
        let damaged = D::after("the_last_deployment_is_found").await;
        damaged.execute(&format!("DELETE FROM {{}}deployment WHERE environment_ordinal = {lost}")).await;
        damaged.execute(&format!("DELETE FROM {{}}snapshot WHERE idx = {lost}")).await;
        let mut left = Searched::of(&*damaged.store(), org, &times, &all).await;
        let is_left = |one: &Deployment| *one != all[all.len() - lost];
        for (place, (number, one)) in (1..).zip(&all).enumerate() {
            let expected: Vec<_> = whole.deployed[place].iter().filter(|one| is_left(one)).cloned().collect();
            assert_eq!(left.deployed[place], expected, "{number} without {lost}");
            let newest = all.iter().find(|other| other.fingerprint == one.fingerprint).unwrap();
            if is_left(newest) {
                assert_eq!(left.latest[place], whole.latest[place], "{number} without {lost}");
            }
        }
        left.snapshots.remove(lost - 1);
        let expected: Vec<_> = (1..=4).filter(|number| *number != lost as u64).collect();
        assert_eq!(left.snapshots, expected, "without {lost}");
    }
}

/// Checks that the numbers of lost snapshots are not reused if a run began or ended with them. Otherwise the
/// ledger would have a number twice. After a rebuild, the next snapshot can be recorded.
pub(crate) async fn of_snapshots_give_no_number_again<D: Damaged>() {
    for lost in 1..=5 {
        let damaged = D::after("the_last_deployment_is_found").await;
        let (store, org) = (damaged.store(), damaged.org("foo").await);
        let environment = prod(&*store, org).await;
        damaged.execute(&format!("DELETE FROM {{}}snapshot WHERE idx >= {lost}")).await;
        let known = store.environment(org, "prod").await.unwrap().unwrap();
        assert_eq!(known.status.snapshots, lost - 1);
        let before = facts(&*store, org).await;
        let newest = before.iter().rev().find_map(|fact| match fact {
            Fact::SnapshotTaken { snapshot } if snapshot.environment == environment => Some(snapshot),
            _ => None,
        });
        let again = |index| {
            let snapshot = Snapshot { index, changes: Vec::new(), ..newest.unwrap().clone() };
            let precondition = Precondition::Vacant(Key::Snapshot { environment, index });
            record(&*store, org, Fact::SnapshotTaken { snapshot }, vec![precondition])
        };
        if lost < 5 {
            let refused = again(lost).await;
            assert!(matches!(refused, Err(StoreError::Conflict)), "{lost}: {refused:?}");
            assert_eq!(facts(&*store, org).await, before);
        }
        assert_eq!(damaged.rebuild().await, Vec::<String>::new(), "{lost}");
        again(5).await.unwrap();
        assert_eq!(damaged.rebuild().await, Vec::<String>::new(), "{lost}");
    }
}

/// Checks that a deployment without its number does not hide others, and does not prevent the recording of
/// others.
pub(crate) async fn of_numbers_hide_no_other_deployment<D: Damaged>() {
    let whole = D::after("the_last_deployment_is_found").await;
    let (store, org) = (whole.store(), whole.org("foo").await);
    let everything = deployments_from(DeploymentScope::Organization, BEGINNING);
    let all = store.deployments(org, &everything, PageRequest::ALL).await.unwrap().items;
    let repo = |one: &Deployment| one.report.as_ref().and_then(|report| report.repo);
    let repo_of_most = repo(all.last().unwrap()).unwrap();
    let of_repo = |from| deployments_from(DeploymentScope::Repos(vec![repo_of_most]), from);
    let oldest_first: Vec<_> = all.iter().rev().filter(|one| repo(one) == Some(repo_of_most)).collect();
    assert_eq!(oldest_first.len(), 3);
    for (lost, number) in oldest_first.iter().zip(1..) {
        let damaged = D::after("the_last_deployment_is_found").await;
        let store = damaged.store();
        damaged
            .execute(&format!("UPDATE {{}}deployment SET repo_ordinal = NULL WHERE repo_ordinal = {number}"))
            .await;
        for from in [BEGINNING, oldest_first[0].at, oldest_first[1].at] {
            let found = store.deployments(org, &of_repo(from), PageRequest::ALL).await.unwrap().items;
            let left = oldest_first.iter().rev().filter(|one| one.at >= from && one != &lost);
            let left: Vec<_> = left.map(|one| (*one).clone()).collect();
            assert_eq!(found, left, "from {from:?} without {number}");
            let mut paged = Vec::new();
            for offset in 0..oldest_first.len() as u64 {
                let request = PageRequest { offset, limit: 1 };
                paged.extend(store.deployments(org, &of_repo(from), request).await.unwrap().items);
            }
            assert_eq!(paged, left, "by pages from {from:?} without {number}");
        }
        let begins = facts(&*store, org).await.into_iter().find_map(|fact| match fact {
            Fact::SnapshotTaken { snapshot } if !snapshot.changes.is_empty() => Some(snapshot),
            _ => None,
        });
        let mut snapshot = Snapshot { index: 5, exits: Vec::new(), ..begins.unwrap() };
        for change in &mut snapshot.changes {
            (change.from, change.since) = (5, 5);
        }
        record(&*store, org, Fact::SnapshotTaken { snapshot }, Vec::new()).await.unwrap();
        let found = store.deployments(org, &of_repo(BEGINNING), PageRequest::ALL).await.unwrap().items;
        let numbers: Vec<_> = found.iter().map(|one| one.snapshot).collect();
        let left = oldest_first.iter().rev().filter(|one| one != &lost).map(|one| one.snapshot);
        assert_eq!(numbers, [5].into_iter().chain(left).collect::<Vec<_>>(), "without {number}");
        assert_eq!(damaged.rebuild().await, Vec::<String>::new());
    }
}

/// Checks that a build without its number does not hide others, and does not prevent the recording of others.
pub(crate) async fn of_numbers_hide_no_other_build<D: Damaged>() {
    for lost in 1..=2 {
        let damaged = D::after("a_build_is_the_first_report_of_an_artifact").await;
        let (store, org) = (damaged.store(), damaged.org("foo").await);
        let reported = facts(&*store, org).await.into_iter().find_map(|fact| match fact {
            Fact::ArtifactReported { record } if record.repo.is_some() => Some(record),
            _ => None,
        });
        let mut report = reported.unwrap();
        let filter = BuildFilter { repos: Some(report.repo.into_iter().collect()), from: BEGINNING, to: END };
        let listed = async || {
            let found = store.builds(org, &filter, PageRequest::ALL).await.unwrap().items;
            found.into_iter().map(|build| build.report).collect::<Vec<_>>()
        };
        let mut expected = listed().await;
        assert_eq!(expected.len(), 2);
        damaged
            .execute(&format!(
                "UPDATE {{}}build SET repo_ordinal = NULL WHERE repo_ordinal = {lost} AND repo = '{}'",
                filter.repos.as_ref().unwrap()[0]
            ))
            .await;
        expected.remove(2 - lost);
        assert_eq!(listed().await, expected, "without {lost}");
        report.id = "00000000-0000-0000-0000-0000ffff".parse().unwrap();
        report.fingerprint = "ab".repeat(32).parse().unwrap();
        expected.insert(0, report.id);
        record(&*store, org, Fact::ArtifactReported { record: report }, Vec::new()).await.unwrap();
        assert_eq!(listed().await, expected, "without {lost}");
        assert_eq!(damaged.rebuild().await, Vec::<String>::new());
        assert_eq!(listed().await.len(), 3);
    }
}

/// Checks that a decision without its number does not hide others, and does not prevent the recording of
/// others.
pub(crate) async fn of_numbers_hide_no_other_decision<D: Damaged>() {
    for lost in 1..=3 {
        let damaged = D::after("decisions_are_listed_in_the_order_asked").await;
        let (store, org) = (damaged.store(), damaged.org("foo").await);
        let decided = facts(&*store, org).await.into_iter().find_map(|fact| match fact {
            Fact::AttestationAdded { record } if record.details.control() == Some("SDLC-4") => Some(record),
            _ => None,
        });
        let mut decision = decided.unwrap();
        let listed = async |filter: DecisionFilter| {
            let found = store.decisions(org, "SDLC-4", &filter, PageRequest::ALL).await.unwrap().items;
            found.into_iter().map(|decision| decision.id).collect::<Vec<_>>()
        };
        let narrowed =
            || DecisionFilter { from: Some(BEGINNING), to: Some(END), ..DecisionFilter::default() };
        let mut expected = listed(DecisionFilter::default()).await;
        assert_eq!(expected.len(), 3);
        damaged
            .execute(&format!(
                "UPDATE {{}}attestation SET control_ordinal = NULL
                WHERE control_ordinal = {lost} AND id = '{}'",
                expected[lost - 1]
            ))
            .await;
        expected.remove(lost - 1);
        assert_eq!(listed(DecisionFilter::default()).await, expected, "without {lost}");
        assert_eq!(listed(narrowed()).await, expected, "narrowed, without {lost}");
        decision.id = "00000000-0000-0000-0000-0000ffff".parse().unwrap();
        expected.push(decision.id);
        record(&*store, org, Fact::AttestationAdded { record: decision }, Vec::new()).await.unwrap();
        assert_eq!(listed(DecisionFilter::default()).await, expected, "without {lost}");
        assert_eq!(listed(narrowed()).await, expected, "narrowed, without {lost}");
        assert_eq!(damaged.rebuild().await, Vec::<String>::new());
        assert_eq!(listed(DecisionFilter::default()).await.len(), 4);
    }
}

/// Checks that the pages of an organization have every other trail exactly once after the loss of a trail's
/// row.
pub(crate) async fn of_trails_leave_all_others_in_pages<D: Damaged>() {
    let check = "trails_are_listed_newest_first";
    let whole = D::after(check).await;
    let (store, org) = (whole.store(), whole.org("foo").await);
    let listed = async |store: &dyn Store, request| {
        let filter = TrailFilter::default();
        store
            .trails(org, &filter, request)
            .await
            .unwrap()
            .items
            .into_iter()
            .map(|one| one.id)
            .collect::<Vec<_>>()
    };
    let all = listed(&*store, PageRequest::ALL).await;
    assert!(all.len() > 2, "{all:?}");
    for lost in &all {
        let damaged = D::after(check).await;
        damaged.execute(&format!("DELETE FROM {{}}trail WHERE id = '{lost}'")).await;
        let store = damaged.store();
        let left: Vec<_> = all.iter().filter(|one| *one != lost).copied().collect();
        assert_eq!(listed(&*store, PageRequest::ALL).await, left);
        for limit in 1..=all.len() as u64 {
            let mut paged = Vec::new();
            for offset in (0..all.len() as u64).step_by(usize::try_from(limit).unwrap()) {
                paged.extend(listed(&*store, PageRequest { offset, limit }).await);
            }
            assert_eq!(paged, left, "without {lost}, {limit} a page");
        }
        let far = PageRequest { offset: PageRequest::ALL.limit, limit: PageRequest::ALL.limit };
        assert_eq!(listed(&*store, far).await, []);
    }
}
