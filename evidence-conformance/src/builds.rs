//! Checks of [`evidence_core::builds::BuildStore`].

use std::sync::Arc;

use evidence_core::artifacts::Artifact;
use evidence_core::builds::{Build, BuildFilter};
use evidence_core::fact::Fact;
use evidence_core::id::Id;
use evidence_core::page::{Page, PageRequest};
use evidence_core::store::Store;
use evidence_core::time::Timestamp;

use super::fixtures::{Org, artifact, at, fingerprint, flow_created, id, trail_begun};
use super::shared::{narrowed, paged};
use super::{Failure, Outcome, promises, same};

promises! {
    a_build_is_the_first_report_of_an_artifact: "`builds` answers the first report of each artifact in an organization, whatever later ones say.",
    builds_are_listed_newest_first: "`builds`, like `build_times`, is ordered by ledger index, newest first; a page past the end is empty, with the right total.",
    builds_are_narrowed: "Everything given in a build filter must match; both ends of the window are a part of it.",
    builds_of_any_window_are_paged: "`builds` of any repos in any window answers each page and the total, however many builds one write brought.",
}

/// Everything from the first instant to the last.
fn any() -> BuildFilter {
    BuildFilter { repos: None, from: Timestamp::from_micros(i64::MIN), to: Timestamp::from_micros(i64::MAX) }
}

/// A report from this repo.
fn report(n: u64, start: &str, repo: Option<u64>) -> Artifact {
    let trail = n.is_multiple_of(2).then_some(110);
    Artifact { repo: repo.map(id), ..artifact(n, 100, trail, start) }
}

fn reported(n: u64, start: &str, repo: Option<u64>) -> Fact {
    Fact::ArtifactReported { record: report(n, start, repo) }
}

fn build(n: u64, start: &str, second: i64, repo: Option<u64>) -> Build {
    Build {
        report: id(n),
        flow: id(100),
        trail: report(n, start, repo).trail,
        fingerprint: fingerprint(start),
        repo: repo.map(id),
        at: at(second),
    }
}

/// Builds of `foo`, and one of `foobar` of the same content.
async fn several(store: &Arc<dyn Store>) -> Result<(Org, Org), Failure> {
    let (org, other) = Org::two(store).await?;
    org.record(vec![flow_created(100, "a"), trail_begun(110, 100, "t")]).await?;
    // Reports of one write are distinct, too. A clock may go back, but the ledger's time does not.
    let together = [("aa", Some(300)), ("aa", Some(301)), ("bb", None)];
    let together = (201..).zip(together).map(|(n, (start, repo))| reported(n, start, repo));
    org.record_at(10, together.collect()).await?;
    org.record_at(20, vec![reported(204, "cc", Some(301))]).await?;
    let late = vec![reported(205, "bb", Some(300)), reported(206, "dd", Some(300))];
    org.record_at(15, late).await?;
    other.record(vec![flow_created(101, "a")]).await?;
    let record = Artifact { flow: id(101), trail: None, ..report(250, "aa", Some(350)) };
    other.record(vec![Fact::ArtifactReported { record }]).await?;
    Ok((org, other))
}

async fn listed(org: &Org, filter: &BuildFilter) -> Result<Vec<Id>, Failure> {
    let Page { items, total } = org.store.builds(org.id, filter, PageRequest::ALL).await?;
    same("the total", total, items.len() as u64)?;
    let times = Page { items: items.iter().map(|build| build.at).collect(), total };
    same("the times", org.store.build_times(org.id, filter, 100).await?, times)?;
    Ok(items.into_iter().map(|build| build.report).collect())
}

async fn a_build_is_the_first_report_of_an_artifact(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    let found = store.builds(org.id, &any(), PageRequest::ALL).await?;
    let expected = vec![
        build(206, "dd", 20, Some(300)),
        build(204, "cc", 20, Some(301)),
        build(203, "bb", 10, None),
        build(201, "aa", 10, Some(300)),
    ];
    same("the builds", found, Page { items: expected, total: 4 })?;
    same("those of the other", listed(&other, &any()).await?, vec![id(250)])?;
    same("those of nobody", store.builds(id(3), &any(), PageRequest::ALL).await?.total, 0)
}

async fn builds_are_listed_newest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    // Of all, of one repo and of several, of which one is named twice.
    for (repos, all) in [
        (None, vec![206, 204, 203, 201]),
        (Some(vec![300]), vec![206, 201]),
        (Some(vec![300, 301, 300]), vec![206, 204, 201]),
    ] {
        let filter = BuildFilter { repos: repos.map(|repos| repos.into_iter().map(id).collect()), ..any() };
        let all = Vec::from_iter(all.into_iter().map(id));
        let page = |asked| store.builds(org.id, &filter, asked);
        paged(&format!("{filter:?}"), &all, page, |build| build.report).await?;
    }
    let times = [20, 20, 10, 10].map(at);
    for limit in [0, 1, 3, 4, 9] {
        let items = times.into_iter().zip(0..limit).map(|(at, _)| at).collect();
        let found = store.build_times(org.id, &any(), limit).await?;
        same(&format!("{limit} times"), found, Page { items, total: 4 })?;
    }
    Ok(())
}

async fn builds_are_narrowed(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let window = |from, to| BuildFilter { from, to, ..any() };
    let of = |repos: &[u64], filter: BuildFilter| BuildFilter {
        repos: Some(repos.iter().map(|n| id(*n)).collect()),
        ..filter
    };
    let just_before = |at: Timestamp| Timestamp::from_micros(at.as_micros() - 1);
    let cases = [
        (window(at(10), at(20)), vec![206, 204, 203, 201]),
        (window(at(10), just_before(at(20))), vec![203, 201]),
        (window(Timestamp::from_micros(at(10).as_micros() + 1), at(20)), vec![206, 204]),
        (window(at(11), at(19)), vec![]),
        (window(at(21), any().to), vec![]),
        (window(any().from, at(9)), vec![]),
        (window(at(20), at(10)), vec![]),
        (of(&[300], any()), vec![206, 201]),
        (of(&[300, 301], any()), vec![206, 204, 201]),
        (of(&[301, 301, 350, 999], any()), vec![204]),
        (of(&[300], window(at(11), at(30))), vec![206]),
        (of(&[300], window(at(10), at(19))), vec![201]),
        (of(&[300, 301], window(at(11), at(20))), vec![206, 204]),
        (of(&[350], any()), vec![]),
        (of(&[], any()), vec![]),
    ];
    let org = &org;
    narrowed(cases, |filter| async move { listed(org, &filter).await }).await
}

/// Writes of one to 24 reports of two repos and of none, each by a later clock; every fifth report is of known content. They
/// are more entries than stores read at a time where they derive their rows again.
async fn many(org: &Org) -> Result<Vec<Build>, Failure> {
    let (mut builds, mut n) = (Vec::new(), 0);
    for write in 1..=24 {
        let (mut facts, second) = (Vec::new(), 10 * write);
        for _ in 0..write {
            n += 1;
            let repo = [Some(300), Some(301)].into_iter().nth(n % 3).flatten();
            let (report, start) = (1000 + n as u64, format!("{n:03}"));
            if n.is_multiple_of(5) {
                facts.push(reported(report, "001", repo));
            } else {
                facts.push(reported(report, &start, repo));
                builds.push(build(report, &start, second, repo));
            }
        }
        org.record_at(second, facts).await?;
    }
    builds.reverse();
    Ok(builds)
}

async fn builds_of_any_window_are_paged(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![flow_created(100, "a"), trail_begun(110, 100, "t")]).await?;
    other.record(vec![flow_created(101, "a")]).await?;
    for (n, repo) in [(250, Some(300)), (251, None)] {
        let record = Artifact { flow: id(101), trail: None, ..report(n, "001", repo) };
        other.record(vec![Fact::ArtifactReported { record }]).await?;
    }
    let all = many(&org).await?;
    let bounds = [any().from, at(10), at(11), at(125), at(240), any().to];
    let windows = bounds.into_iter().flat_map(|from| bounds.into_iter().map(move |to| (from, to)));
    for (from, to) in windows {
        for repos in [None, Some(vec![300]), Some(vec![301, 300]), Some(vec![302])] {
            let filter =
                BuildFilter { repos: repos.map(|repos| repos.into_iter().map(id).collect()), from, to };
            let is_found = |build: &&Build| {
                let of_repo = |repos: &Vec<Id>| build.repo.is_some_and(|repo| repos.contains(&repo));
                from <= build.at && build.at <= to && filter.repos.as_ref().is_none_or(of_repo)
            };
            let found: Vec<_> = all.iter().filter(is_found).cloned().collect();
            let total = found.len() as u64;
            let page = |asked| store.builds(org.id, &filter, asked);
            paged(&format!("{filter:?}"), &found, page, |build| build).await?;
            let items = found.iter().map(|build| build.at).take(7).collect();
            same(
                &format!("times of {filter:?}"),
                store.build_times(org.id, &filter, 7).await?,
                Page { items, total },
            )?;
        }
    }
    Ok(())
}
