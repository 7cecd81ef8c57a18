//! Checks of [`evidence_core::deployments::DeploymentStore`].

use std::sync::Arc;

use evidence_core::artifacts::Artifact;
use evidence_core::deployments::{
    DeployedReport, Deployment, DeploymentFilter, DeploymentScope, DeploymentTime,
};
use evidence_core::fact::Fact;
use evidence_core::id::Id;
use evidence_core::page::{Page, PageRequest};
use evidence_core::snapshots::{ArtifactKey, DeploymentSource, RunningArtifact, Snapshot};
use evidence_core::store::Store;
use evidence_core::time::Timestamp;

use super::fixtures::{Org, artifact, at, environment, fingerprint, flow_created, id, request, trail_begun};
use super::shared::paged;
use super::snapshots::{instance, snapshot};
use super::{Failure, Outcome, promises, same};

promises! {
    a_deployment_begins_a_run: "`deployments` answers what began to run in each environment, with its report, and nothing of what went on.",
    deployments_are_listed_newest_first: "`deployments`, like `deployment_times`, is ordered by ledger index, newest first, of one snapshot by the last of its changes; a page past the end is empty, with the right total.",
    deployments_are_narrowed: "Everything given in a filter must match; both ends of the window are a part of it.",
    deployments_of_any_window_are_paged: "`deployments` of any scope in any window answers each page and the total, however many one write brought.",
    the_last_deployment_is_found: "`latest_deployment` answers the newest of an artifact in an environment, whether it still runs or not.",
}

/// Everything from the first instant to the last.
fn any() -> DeploymentFilter {
    DeploymentFilter {
        scope: DeploymentScope::Organization,
        environments: None,
        flow: None,
        from: Timestamp::from_micros(i64::MIN),
        to: Timestamp::from_micros(i64::MAX),
    }
}

fn of_repos(repos: &[u64]) -> DeploymentScope {
    DeploymentScope::Repos(repos.iter().map(|n| id(*n)).collect())
}

/// An artifact that began to run in a snapshot, from this report.
fn begun(start: &str, from: u64, source: Option<DeploymentSource>) -> RunningArtifact {
    RunningArtifact { source, compliant: Some(from.is_multiple_of(2)), ..instance(start, from) }
}

/// From a report to this flow.
fn source(report: u64, flow: u64, repo: Option<u64>) -> DeploymentSource {
    let committed_at = report.is_multiple_of(2).then(|| at(1));
    DeploymentSource { report: id(report), flow: id(flow), repo: repo.map(id), committed_at }
}

fn taken(environment: u64, index: u64, changes: Vec<RunningArtifact>, exits: &[&str]) -> Fact {
    let snapshot = Snapshot { changes, ..snapshot(environment, index, &[], exits) };
    Fact::SnapshotTaken { snapshot }
}

fn deployment(
    (environment, snapshot): (u64, u64),
    start: &str,
    instant: i64,
    report: Option<DeployedReport>,
) -> Deployment {
    Deployment {
        environment: id(environment),
        snapshot,
        fingerprint: Some(fingerprint(start)),
        name: start.to_owned(),
        compliant: Some(snapshot.is_multiple_of(2)),
        report,
        at: at(instant),
    }
}

/// Two environments of `foo`, and one of `foobar`. By `aa` and so on: `aa` runs in both, `bb` begins, changes, is gone and runs
/// again, nobody reported `cc`, and `dd` is of the second flow.
async fn several(store: &Arc<dyn Store>) -> Result<(Org, Org), Failure> {
    let (org, other) = Org::two(store).await?;
    org.record(vec![flow_created(100, "a"), trail_begun(110, 100, "t"), flow_created(101, "b")]).await?;
    let reports = [(120, 100, Some(110), "aa"), (121, 100, None, "bb"), (122, 101, None, "dd")];
    let report = |(n, flow, trail, start)| Fact::ArtifactReported { record: artifact(n, flow, trail, start) };
    org.record(reports.map(report).into()).await?;
    for (n, name) in [(300, "prod"), (301, "test")] {
        org.record(vec![Fact::EnvironmentCreated { record: environment(n, name) }]).await?;
    }
    other.record(vec![Fact::EnvironmentCreated { record: environment(302, "prod") }]).await?;
    let [aa, bb, dd] =
        [source(120, 100, Some(400)), source(121, 100, Some(401)), source(122, 101, Some(400))];
    let both = vec![begun("aa", 1, Some(aa.clone())), begun("bb", 1, Some(bb.clone()))];
    org.record_at(10, vec![taken(300, 1, both, &[])]).await?;
    let changed = RunningArtifact { since: 1, source: None, ..begun("bb", 2, None) };
    let second = vec![changed, begun("cc", 2, None)];
    org.record_at(20, vec![taken(300, 2, second, &[])]).await?;
    // A clock goes back, and the ledger's time does not; two snapshots come together.
    let together = [
        taken(300, 3, Vec::new(), &["bb", "aa"]),
        taken(301, 1, vec![begun("dd", 1, Some(dd)), begun("aa", 1, Some(aa))], &[]),
    ];
    org.record_at(15, together.into()).await?;
    org.record_at(30, vec![taken(300, 4, vec![begun("bb", 4, Some(bb))], &[])]).await?;
    other.record_at(10, vec![taken(302, 1, vec![begun("aa", 1, None)], &[])]).await?;
    Ok((org, other))
}

/// All of `foo`, newest first.
fn all() -> Vec<Deployment> {
    let report = |n: u64, flow: u64, start: &str, repo: u64| {
        let record: Artifact = artifact(n, flow, (n == 120).then_some(110), start);
        let DeploymentSource { report, flow, repo, committed_at } = source(n, flow, Some(repo));
        let (commit, reference) = (record.commit().to_owned(), record.template_reference_name.clone());
        Some(DeployedReport { id: report, flow, trail: record.trail, reference, commit, repo, committed_at })
    };
    let aa = || report(120, 100, "aa", 400);
    let bb = || report(121, 100, "bb", 401);
    vec![
        deployment((300, 4), "bb", 30, bb()),
        deployment((301, 1), "aa", 20, aa()),
        deployment((301, 1), "dd", 20, report(122, 101, "dd", 400)),
        deployment((300, 2), "cc", 20, None),
        deployment((300, 1), "bb", 10, bb()),
        deployment((300, 1), "aa", 10, aa()),
    ]
}

/// Lists the deployments, and compares their times.
async fn listed(org: &Org, filter: &DeploymentFilter) -> Result<Vec<Deployment>, Failure> {
    let Page { items, total } = org.store.deployments(org.id, filter, PageRequest::ALL).await?;
    same("the total", total, items.len() as u64)?;
    let time = |one: &Deployment| DeploymentTime {
        environment: one.environment,
        at: one.at,
        committed_at: one.report.as_ref().and_then(|report| report.committed_at),
    };
    let times = Page { items: items.iter().map(time).collect(), total };
    same("the times", org.store.deployment_times(org.id, filter, 100).await?, times)?;
    Ok(items)
}

async fn a_deployment_begins_a_run(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    same("all", listed(&org, &any()).await?, all())?;
    same("those of the other", listed(&other, &any()).await?, vec![deployment((302, 1), "aa", 10, None)])?;
    same("those of nobody", store.deployments(id(3), &any(), PageRequest::ALL).await?.total, 0)?;
    let undigested = RunningArtifact { fingerprint: None, name: "task".to_owned(), ..begun("", 5, None) };
    org.record_at(40, vec![taken(300, 5, vec![undigested], &[])]).await?;
    let found = store.deployments(org.id, &any(), request(0, 1)).await?;
    let newest = found.items.into_iter().map(|one| (one.fingerprint, one.name)).collect::<Vec<_>>();
    same("what has no digest", newest, vec![(None, "task".to_owned())])
}

async fn deployments_are_listed_newest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let scopes = [
        DeploymentScope::Organization,
        DeploymentScope::Environment(id(300)),
        of_repos(&[400]),
        of_repos(&[401, 400, 401]),
    ];
    for scope in scopes {
        let filter = DeploymentFilter { scope, ..any() };
        let found = listed(&org, &filter).await?;
        let total = found.len() as u64;
        let page = |asked| store.deployments(org.id, &filter, asked);
        paged(&format!("{filter:?}"), &found, page, |one| one).await?;
        for limit in 0..=total {
            let times = store.deployment_times(org.id, &filter, limit).await?;
            let expected = found.iter().take(limit as usize).map(|one| one.at).collect();
            same(&format!("{limit} times"), times.map(|time| time.at), Page { items: expected, total })?;
        }
    }
    Ok(())
}

async fn deployments_are_narrowed(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let window = |from, to| DeploymentFilter { from, to, ..any() };
    let of = |scope| DeploymentFilter { scope, ..any() };
    let to = |environments: &[u64], filter: DeploymentFilter| DeploymentFilter {
        environments: Some(environments.iter().map(|n| id(*n)).collect()),
        ..filter
    };
    let flow = |n, filter: DeploymentFilter| DeploymentFilter { flow: Some(id(n)), ..filter };
    let prod = || of(DeploymentScope::Environment(id(300)));
    let just_before = |at: Timestamp| Timestamp::from_micros(at.as_micros() - 1);
    let cases = [
        (window(at(10), at(20)), vec![1, 2, 3, 4, 5]),
        (window(at(10), just_before(at(20))), vec![4, 5]),
        (window(at(21), any().to), vec![0]),
        (window(at(31), any().to), vec![]),
        (window(at(20), at(10)), vec![]),
        (prod(), vec![0, 3, 4, 5]),
        (DeploymentFilter { from: at(20), to: at(29), ..prod() }, vec![3]),
        (of(DeploymentScope::Environment(id(302))), vec![]),
        (of(of_repos(&[400])), vec![1, 2, 5]),
        (of(of_repos(&[401, 400])), vec![0, 1, 2, 4, 5]),
        (DeploymentFilter { to: at(10), ..of(of_repos(&[401, 400])) }, vec![4, 5]),
        (of(of_repos(&[402])), vec![]),
        (of(of_repos(&[])), vec![]),
        (to(&[301, 302], any()), vec![1, 2]),
        (to(&[], any()), vec![]),
        (to(&[300], of(of_repos(&[400]))), vec![5]),
        (to(&[301], of(of_repos(&[400, 401]))), vec![1, 2]),
        (flow(100, any()), vec![0, 1, 4, 5]),
        (flow(101, any()), vec![2]),
        (flow(100, prod()), vec![0, 4, 5]),
        (flow(100, DeploymentFilter { to: at(10), ..prod() }), vec![4, 5]),
        (flow(109, any()), vec![]),
    ];
    for (filter, expected) in cases {
        let expected = expected.into_iter().filter_map(|place: usize| all().get(place).cloned()).collect();
        same(&format!("{filter:?}"), listed(&org, &filter).await?, expected)?;
    }
    Ok(())
}

async fn deployments_of_any_window_are_paged(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![Fact::EnvironmentCreated { record: environment(300, "prod") }]).await?;
    let mut expected: Vec<(ArtifactKey, i64, Option<Id>)> = Vec::new();
    let mut n = 0;
    for index in 1..=24 {
        let instant = 10 * index as i64;
        let mut changes = Vec::new();
        for _ in 0..index {
            n += 1;
            let repo = [Some(400), Some(401)].into_iter().nth(n % 3).flatten();
            let artifact = begun(&format!("{n:03}"), index, Some(source(120, 100, repo)));
            expected.push((artifact.key(), instant, repo.map(id)));
            changes.push(artifact);
        }
        org.record_at(instant, vec![taken(300, index, changes, &[])]).await?;
    }
    expected.reverse();
    let bounds = [any().from, at(10), at(11), at(125), at(240), any().to];
    for (from, to) in bounds.into_iter().flat_map(|from| bounds.into_iter().map(move |to| (from, to))) {
        let environment = DeploymentScope::Environment(id(300));
        for scope in [DeploymentScope::Organization, environment, of_repos(&[400]), of_repos(&[400, 401])] {
            let filter = DeploymentFilter { scope, from, to, ..any() };
            let is_found = |(_, instant, repo): &&(ArtifactKey, i64, Option<Id>)| {
                let of_scope = match &filter.scope {
                    DeploymentScope::Repos(repos) => repo.is_some_and(|repo| repos.contains(&repo)),
                    _ => true,
                };
                of_scope && (from..=to).contains(&at(*instant))
            };
            let found = expected.iter().filter(is_found).map(|(key, ..)| key.clone());
            let page = |asked| store.deployments(org.id, &filter, asked);
            let key = |one: Deployment| ArtifactKey::new(one.fingerprint.as_ref(), &one.name);
            paged(&format!("{filter:?}"), &Vec::from_iter(found), page, key).await?;
        }
    }
    Ok(())
}

async fn the_last_deployment_is_found(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    let place = |place: usize| all().get(place).cloned();
    for (environment, start, expected) in [
        (300, "bb", place(0)),
        (300, "aa", place(5)),
        (301, "aa", place(1)),
        (300, "cc", place(3)),
        (301, "cc", None),
        (302, "aa", None),
        (300, "ee", None),
    ] {
        let found = store.latest_deployment(org.id, id(environment), &fingerprint(start)).await?;
        same(&format!("{start} in {environment}"), found, expected)?;
    }
    let of_other = store.latest_deployment(other.id, id(300), &fingerprint("aa")).await?;
    same("of the other", of_other, None)
}
