//! Checks of [`crate::builds::BuildStore`].

use std::sync::Arc;

use crate::artifacts::Artifact;
use crate::builds::{Build, BuildFilter};
use crate::fact::Fact;
use crate::id::Id;
use crate::page::{Page, PageRequest};
use crate::store::Store;
use crate::time::Timestamp;

use super::fixtures::{Org, artifact, at, fingerprint, flow_created, id, request, trail_begun};
use super::{Failure, Outcome, promises, same};

promises! {
    a_build_is_the_first_report_of_an_artifact: "`builds` answers the first report of each artifact in an organization, whatever later ones say.",
    builds_are_listed_newest_first: "`builds`, like `build_times`, is ordered by time and ledger index, newest first; a page past the end is empty, with the right total.",
    builds_are_narrowed: "Everything given in a build filter must match; both ends of the window are a part of it.",
}

/// Everything from the first instant to the last.
fn any() -> BuildFilter {
    BuildFilter { repos: None, from: Timestamp::from_micros(i64::MIN), to: Timestamp::from_micros(i64::MAX) }
}

/// A report at this time, from this repo.
fn report(n: u64, start: &str, second: i64, repo: Option<u64>) -> Artifact {
    let trail = n.is_multiple_of(2).then_some(110);
    Artifact { repo: repo.map(id), created_at: at(second), ..artifact(n, 100, trail, start) }
}

fn reported(n: u64, start: &str, second: i64, repo: Option<u64>) -> Fact {
    Fact::ArtifactReported { record: report(n, start, second, repo) }
}

fn build(n: u64, start: &str, second: i64, repo: Option<u64>) -> Build {
    Build {
        report: id(n),
        flow: id(100),
        trail: report(n, start, second, repo).trail,
        fingerprint: fingerprint(start),
        repo: repo.map(id),
        at: at(second),
    }
}

/// Builds of `foo`, and one of `foobar` of the same content.
async fn several(store: &Arc<dyn Store>) -> Result<(Org, Org), Failure> {
    let (org, other) = Org::two(store).await?;
    org.record(vec![flow_created(100, "a"), trail_begun(110, 100, "t")]).await?;
    // What comes together is told apart, too; a clock may go back.
    org.record(vec![
        reported(201, "aa", 10, Some(300)),
        reported(202, "aa", 11, Some(301)),
        reported(203, "bb", 20, None),
    ])
    .await?;
    org.record(vec![reported(204, "cc", 20, Some(301))]).await?;
    org.record(vec![reported(205, "bb", 30, Some(300)), reported(206, "dd", 15, Some(300))]).await?;
    other.record(vec![flow_created(101, "a")]).await?;
    let record = Artifact { flow: id(101), trail: None, ..report(250, "aa", 12, Some(350)) };
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
        build(204, "cc", 20, Some(301)),
        build(203, "bb", 20, None),
        build(206, "dd", 15, Some(300)),
        build(201, "aa", 10, Some(300)),
    ];
    same("the builds", found, Page { items: expected, total: 4 })?;
    same("those of the other", listed(&other, &any()).await?, vec![id(250)])?;
    same("those of nobody", store.builds(id(3), &any(), PageRequest::ALL).await?.total, 0)
}

async fn builds_are_listed_newest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    for (asked, expected) in [
        (request(0, 2), vec![204, 203]),
        (request(1, 2), vec![203, 206]),
        (request(3, 5), vec![201]),
        (request(4, 1), vec![]),
        (request(0, 0), vec![]),
        (request(PageRequest::ALL.limit, 1), vec![]),
    ] {
        let found = store.builds(org.id, &any(), asked).await?.map(|build| build.report);
        let items = expected.into_iter().map(id).collect();
        same(&format!("{asked:?}"), found, Page { items, total: 4 })?;
    }
    // Pages of one repo and of several, of which a repo may be named twice.
    for (repos, all) in [(vec![300], vec![206, 201]), (vec![300, 301, 300], vec![204, 206, 201])] {
        let filter = BuildFilter { repos: Some(repos.into_iter().map(id).collect()), ..any() };
        let total = all.len() as u64;
        for (offset, limit) in (0..=total).flat_map(|offset| (0..=total).map(move |limit| (offset, limit))) {
            let found = store.builds(org.id, &filter, request(offset, limit)).await?;
            let items = all.iter().skip(offset as usize).take(limit as usize).map(|n| id(*n)).collect();
            let page = Page { items, total };
            same(&format!("{limit} after {offset} of {filter:?}"), found.map(|build| build.report), page)?;
        }
    }
    let times = [20, 20, 15, 10].map(at);
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
        (window(at(10), at(15)), vec![206, 201]),
        (window(at(10), just_before(at(15))), vec![201]),
        (window(Timestamp::from_micros(at(10).as_micros() + 1), at(20)), vec![204, 203, 206]),
        (window(at(16), at(19)), vec![]),
        (window(at(20), at(10)), vec![]),
        (of(&[300], any()), vec![206, 201]),
        (of(&[300, 301], any()), vec![204, 206, 201]),
        (of(&[301, 301, 350, 999], any()), vec![204]),
        (of(&[300], window(at(11), at(30))), vec![206]),
        (of(&[350], any()), vec![]),
        (of(&[], any()), vec![]),
    ];
    for (filter, expected) in cases {
        let expected = expected.into_iter().map(id).collect();
        same(&format!("{filter:?}"), listed(&org, &filter).await?, expected)?;
    }
    Ok(())
}
