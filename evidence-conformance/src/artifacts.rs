//! Checks of [`evidence_core::artifacts::ArtifactStore`].

use std::sync::Arc;

use evidence_core::artifacts::{
    Artifact, ArtifactFilter, ArtifactQuery, ArtifactRow, Found, Matches, TemplateNames,
};
use evidence_core::bounded::{FreeForm, List};
use evidence_core::fact::Fact;
use evidence_core::git::GitCommit;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Page, PageRequest};
use evidence_core::snapshots::{ArtifactKey, RunningArtifact, Snapshot};
use evidence_core::store::Store;
use evidence_core::texts::TextRef;

use super::fixtures::{
    Org, artifact, artifact_reported, at, awkward, bare_commit, environment, external_urls, fingerprint,
    flow, flow_created, free_form, full_commit, full_repo_info, id, named, robot, trail_begun, user_data,
};
use super::shared::{largest_is_long, long_text, narrowed, paged};
use super::snapshots::{instance, snapshot};
use super::texts::kept;
use super::{Failure, Outcome, ensure, promises, same, same_set};

promises! {
    artifacts_read_back: "Artifact reports are what was recorded, absent options too.",
    fingerprints_are_counted_once: "`fingerprints` counts different ones of this flow and gives the first by bytes.",
    what_begins_so_is_found: "`search` answers all fingerprints and commits in full of the organization that begin so, and of the reports that have one the newest of each fingerprint and flow.",
    what_is_found_is_limited: "`search` gives the first of each list, with the totals.",
    what_ran_unreported_is_found: "`search` answers what has run, too, and of what was never reported a name.",
    artifacts_are_listed_newest_first: "`artifacts` is ordered newest (by ledger index) first.",
    artifact_pages_have_the_right_total: "A page past the end is empty, with the right total.",
    artifacts_are_narrowed: "Everything given in an artifact filter must match.",
    an_artifact_of_a_flow_is_its_newest_report: "`artifact_of_flow` answers the flow of a name, and with it the newest report of a fingerprint that matches, with the version of its trail and the runs that are asked for.",
    artifacts_by_id_pass_over_unknown_ids: "`artifacts_by_id` passes over unknown ids and other organizations', and `artifact_sizes` does.",
    reports_of_an_artifact_are_listed_oldest_first: "`reports` of a fingerprint to a flow, oldest (by ledger index) first.",
    a_commit_told_in_any_words_is_what_an_artifact_was_built_from: "A row's commit is the report's, else what it says of one, as sent; lists are narrowed by commits in full.",
    provenance_is_the_newest_of_each_flow: "`provenance` answers the newest report of each fingerprint and flow.",
    content_has_all_names_that_flows_gave_it: "Of the names that content was given in a flow each comes once, with the ledger index of the first report by it: by reports to any trail and to none.",
    provenance_has_the_last_name_in_the_flow: "With it comes the name of the flow's newest report of the fingerprint that has one, whichever trail that was to. Of both only so many entries of the ledger count.",
    provenance_prefers_trails: "A report without a trail is `provenance` only where the flow has no other of the fingerprint.",
}

async fn artifacts_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let bare = artifact(110, 100, None, "ab");
    let full = Artifact {
        filename: awkward(),
        description: awkward(),
        template_reference_name: "app".to_owned(),
        git_commit: Some(named(&"5".repeat(40))),
        git_commit_info: Some(full_commit()),
        repo_info: Some(full_repo_info("owner/repo")),
        repo: Some(id(104)),
        commits_list: vec![full_commit(), bare_commit()],
        is_compliant: Some(false),
        reported_template: Some(TemplateNames::Several(List(vec![named("unit")]))),
        commit_url: "https://example.com/c".to_owned(),
        build_url: "https://example.com/b".to_owned(),
        repo_url: "https://example.com/r".to_owned(),
        user_data: user_data(),
        external_urls: Some(external_urls()),
        annotations: FreeForm(free_form(r#"{"n":null,"deep":[{"a":1.50}]}"#)),
        template: Some(TextRef::of(&awkward())),
        created_by: robot(),
        ..artifact(111, 100, Some(101), "cd")
    };
    org.record(vec![kept(&awkward()), flow_created(100, "f"), trail_begun(101, 100, "t")]).await?;
    let reported = |record: &Artifact| Fact::ArtifactReported { record: record.clone() };
    org.record(vec![reported(&bare), reported(&full)]).await?;
    let listed = store.artifacts(org.id, &ArtifactFilter::default(), PageRequest::ALL).await?;
    same("listed", listed, Page { items: vec![full.clone(), bare.clone()], total: 2 })?;
    same_set("by id", store.artifacts_by_id(org.id, &[id(110), id(111)]).await?, vec![bare, full])
}

/// Reports to two flows of `foo` and one of `foobar`; neither ids nor times follow the order of recording.
async fn several(store: &Arc<dyn Store>) -> Result<Org, Failure> {
    let (org, other) = Org::two(store).await?;
    org.record(vec![flow_created(100, "f"), flow_created(101, "g")]).await?;
    org.record(vec![trail_begun(102, 100, "t"), trail_begun(103, 101, "t")]).await?;
    other.record(vec![flow_created(200, "f"), artifact_reported(210, 200, None, "ab1")]).await?;
    let on_branch = |branch: &str| GitCommit { branch: Some(named(branch)), ..full_commit() };
    let built = Artifact {
        git_commit: Some(named(&"abc12".repeat(8))),
        git_commit_info: Some(on_branch("main")),
        repo: Some(id(106)),
        created_at: at(-50),
        ..artifact(113, 100, Some(102), "ab1")
    };
    let feature = Artifact {
        git_commit: Some(named(&"abc13".repeat(8))),
        git_commit_info: Some(on_branch("Main")),
        repo: Some(id(107)),
        template_reference_name: "app".to_owned(),
        ..artifact(112, 101, Some(103), "ab1")
    };
    let abbreviated = GitCommit { sha1: named("abc12"), ..on_branch("main") };
    let without_sha = Artifact { git_commit_info: Some(abbreviated), ..artifact(111, 100, None, "ab2") };
    org.record(vec![
        artifact_reported(115, 100, None, "ab1"),
        Fact::ArtifactReported { record: built },
        Fact::ArtifactReported { record: feature },
        Fact::ArtifactReported { record: without_sha },
        artifact_reported(114, 100, Some(102), "cd"),
    ])
    .await?;
    Ok(org)
}

async fn fingerprints_are_counted_once(store: Arc<dyn Store>) -> Outcome {
    let org = several(&store).await?;
    let whole = fingerprint("ab1").into_string();
    let cases: [(u64, &str, u64, u64, &[&str]); 8] = [
        (100, "ab", 10, 2, &["ab1", "ab2"]),
        (100, "ab", 1, 2, &["ab1"]),
        (100, "ab", 0, 2, &[]),
        (100, "", 10, 3, &["ab1", "ab2", "cd"]),
        (100, &whole, 10, 1, &["ab1"]),
        (101, "ab", 10, 1, &["ab1"]),
        (100, "b", 10, 0, &[]),
        (200, "ab", 10, 0, &[]),
    ];
    for (flow, prefix, limit, count, first) in cases {
        let found = store.fingerprints(org.id, id(flow), prefix, limit).await?;
        let first = first.iter().map(|start| fingerprint(start)).collect();
        same(&format!("{prefix:?} in flow {flow}"), found, Matches { count, first })?;
    }
    Ok(())
}

/// A search result in short: fingerprints and commits by their beginnings, and reports by their ids.
type Short = (u64, Vec<String>, u64, Vec<String>, Vec<Id>, Vec<(String, String)>);

fn short(found: &Found) -> Short {
    let start = |text: &str| text.chars().take(5).collect::<String>();
    let unreported = found.unreported.iter();
    (
        found.fingerprints.count,
        found.fingerprints.first.iter().map(|fingerprint| start(fingerprint.as_str())).collect(),
        found.commits.count,
        found.commits.first.iter().map(|commit| start(commit.as_str())).collect(),
        found.reports.iter().map(|report| report.id).collect(),
        unreported.map(|one| (start(one.fingerprint.as_str()), one.name.clone())).collect(),
    )
}

/// Asserts that these fingerprints, commits and reports are found, and nothing that was never reported.
async fn finds(org: &Org, prefix: &str, expected: (&[&str], &[&str], &[u64])) -> Outcome {
    let found = org.store.search(org.id, prefix, 10).await?;
    ensure(found.reports.iter().all(|report| report.bytes > 0), "all reports have a size")?;
    let (fingerprints, commits, reports) = expected;
    let texts = |texts: &[&str]| Vec::from_iter(texts.iter().map(|text| (*text).to_owned()));
    let expected = (
        fingerprints.len() as u64,
        texts(fingerprints),
        commits.len() as u64,
        texts(commits),
        reports.iter().map(|n| id(*n)).collect(),
        Vec::new(),
    );
    same(prefix, short(&found), expected)
}

async fn what_begins_so_is_found(store: Arc<dyn Store>) -> Outcome {
    let org = several(&store).await?;
    let whole = fingerprint("ab1").into_string();
    finds(&org, "ab", (&["ab100", "ab200"], &["abc12", "abc13"], &[111, 112, 113])).await?;
    finds(&org, "ab1", (&["ab100"], &[], &[112, 113])).await?;
    finds(&org, &whole, (&["ab100"], &[], &[112, 113])).await?;
    finds(&org, "cd", (&["cd000"], &[], &[114])).await?;
    finds(&org, "abc1", (&[], &["abc12", "abc13"], &[112, 113])).await?;
    finds(&org, &"abc12".repeat(8), (&[], &["abc12"], &[113])).await?;
    finds(&org, "b1", (&[], &[], &[])).await?;
    let commit = named(&"d".repeat(40));
    let again = Artifact { git_commit: Some(commit), ..artifact(116, 100, None, "ab1") };
    org.record(vec![Fact::ArtifactReported { record: again }]).await?;
    finds(&org, "ab1", (&["ab100"], &[], &[116, 112])).await?;
    finds(&org, "abc12", (&[], &["abc12"], &[113])).await?;
    finds(&org, "dd", (&[], &["ddddd"], &[116])).await?;
    let other = Org::create(&store, 3, "third").await?;
    finds(&other, "ab", (&[], &[], &[])).await
}

async fn what_is_found_is_limited(store: Arc<dyn Store>) -> Outcome {
    let org = several(&store).await?;
    let texts = |text: &str, limit: usize| vec![text.to_owned(); limit];
    for (limit, reports) in [(1, vec![id(111)]), (0, vec![])] {
        let found = store.search(org.id, "ab", limit).await?;
        let listed = reports.len();
        let expected = (2, texts("ab100", listed), 2, texts("abc12", listed), reports, vec![]);
        same(&format!("the first {limit}"), short(&found), expected)?;
    }
    Ok(())
}

async fn what_ran_unreported_is_found(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let begun = |n: u64| Fact::EnvironmentCreated { record: environment(n, "prod") };
    let taken = |environment: u64, index: u64, changes: &[(&str, &str, u64)], exits: &[&str]| {
        let change = |(start, name, since): &(&str, &str, u64)| RunningArtifact {
            name: (*name).to_owned(),
            since: *since,
            ..instance(start, index)
        };
        let changes = changes.iter().map(change).collect();
        Fact::SnapshotTaken { snapshot: Snapshot { changes, ..snapshot(environment, index, &[], exits) } }
    };
    let staging = Fact::EnvironmentCreated { record: environment(301, "a") };
    org.record(vec![flow_created(100, "f"), artifact_reported(110, 100, None, "abc"), begun(300), staging])
        .await?;
    let awkward = awkward();
    org.record(vec![taken(301, 1, &[("ab1", "elsewhere", 1)], &[])]).await?;
    let first = [("ab1", "old", 1), ("ab3", "before", 1), ("abc", "reported", 1), ("cd", "cd", 1)];
    org.record(vec![taken(300, 1, &first, &[])]).await?;
    org.record(vec![taken(300, 2, &[("ab1", "new", 1)], &["ab3"])]).await?;
    let unnamed = RunningArtifact { fingerprint: None, ..instance("ab", 3) };
    let key = ArtifactKey::new(None, &unnamed.name);
    let unnamed = Snapshot { changes: vec![unnamed], ..snapshot(300, 3, &[], &[]) };
    org.record(vec![Fact::SnapshotTaken { snapshot: unnamed }]).await?;
    // It runs once more, and ends.
    org.record(vec![taken(300, 4, &[("ab3", &*awkward, 4)], &[]), taken(300, 5, &[], &["ab3"])]).await?;
    let theirs = [("ab1", "theirs", 1), ("ab3", "theirs", 1), ("ab9", "theirs", 1)];
    other.record(vec![begun(299), taken(299, 1, &theirs, &["ab3"])]).await?;
    let finds = async |prefix: &str, limit: u64, expected: (&[&str], &[u64], &[(&str, &str)])| {
        let (fingerprints, reports, unreported) = expected;
        let found = short(&store.search(org.id, prefix, limit).await?);
        let expected = (
            found.0,
            fingerprints.iter().map(|text| (*text).to_owned()).collect(),
            0,
            vec![],
            reports.iter().map(|n| id(*n)).collect(),
            unreported.iter().map(|(start, name)| ((*start).to_owned(), (*name).to_owned())).collect(),
        );
        same(prefix, found.clone(), expected)?;
        Ok::<u64, Failure>(found.0)
    };
    let (new, three) = (("ab100", "new"), ("ab300", &*awkward));
    same("all", finds("ab", 10, (&["ab100", "ab300", "abc00"], &[110], &[new, three])).await?, 3)?;
    same("the first", finds("ab", 1, (&["ab100"], &[110], &[new])).await?, 3)?;
    same("another", finds("cd", 10, (&["cd000"], &[], &[("cd000", "cd")])).await?, 1)?;
    same("another organization's", finds("ab9", 10, (&[], &[], &[])).await?, 0)?;
    let digest = key.as_str().trim_start_matches("name:").to_owned();
    same("the digest of a name", finds(&digest, 10, (&[], &[], &[])).await?, 0)?;
    org.record(vec![artifact_reported(111, 100, None, "ab1")]).await?;
    same("once reported", finds("ab", 10, (&["ab100", "ab300", "abc00"], &[111, 110], &[three])).await?, 3)?;
    Ok(())
}

async fn listed(org: &Org, filter: &ArtifactFilter) -> Result<Vec<Id>, Failure> {
    let artifacts = org.store.artifacts(org.id, filter, PageRequest::ALL).await?;
    same("the total", artifacts.total, artifacts.items.len() as u64)?;
    let ids: Vec<Id> = artifacts.items.into_iter().map(|artifact| artifact.id).collect();
    let latest = org.store.latest_artifact(org.id, filter).await?;
    same("the latest", latest.map(|artifact| artifact.id), ids.first().copied())?;
    let alone = org.store.artifacts_listed(org.id, filter, PageRequest::ALL).await?;
    same("all have a size", alone.listed.iter().all(|listed| listed.bytes > 0), true)?;
    same("the ids alone", alone.listed.into_iter().map(|listed| listed.id).collect(), ids.clone())?;
    let page = org.store.artifacts_listed(org.id, filter, PageRequest { offset: 1, limit: 2 }).await?;
    let ids_of_page = Vec::from_iter(page.listed.iter().map(|listed| listed.id));
    same("the ids of a page", &ids_of_page, &ids.iter().skip(1).take(2).copied().collect())?;
    for artifact in page.content {
        let known = org.store.artifacts_by_id(org.id, &[artifact.id]).await?;
        same("content of the page", (ids_of_page.contains(&artifact.id), known), (true, vec![artifact]))?;
    }
    Ok(ids)
}

async fn artifacts_are_listed_newest_first(store: Arc<dyn Store>) -> Outcome {
    let org = several(&store).await?;
    let found = listed(&org, &ArtifactFilter::default()).await?;
    same("the reports", found, [114, 111, 112, 113, 115].map(id).to_vec())
}

async fn artifact_pages_have_the_right_total(store: Arc<dyn Store>) -> Outcome {
    let org = several(&store).await?;
    let filter = ArtifactFilter { flow: Some(id(100)), ..ArtifactFilter::default() };
    let reports = [114, 111, 113, 115].map(id);
    paged("the reports", &reports, |asked| store.artifacts(org.id, &filter, asked), |one| one.id).await
}

async fn artifacts_are_narrowed(store: Arc<dyn Store>) -> Outcome {
    let org = several(&store).await?;
    let text = |text: &str| Some(text.to_owned());
    let any = ArtifactFilter::default;
    let cases = [
        (ArtifactFilter { flow: Some(id(101)), ..any() }, vec![112]),
        (ArtifactFilter { flow: Some(id(200)), ..any() }, vec![]),
        (ArtifactFilter { trail: Some(id(102)), ..any() }, vec![114, 113]),
        (ArtifactFilter { id: Some(id(111)), ..any() }, vec![111]),
        (ArtifactFilter { name: text("app"), ..any() }, vec![112]),
        (ArtifactFilter { name: text("app"), trail: Some(id(102)), ..any() }, vec![]),
        (ArtifactFilter { id: Some(id(210)), ..any() }, vec![]),
        (ArtifactFilter { fingerprint: text("ab"), ..any() }, vec![111, 112, 113, 115]),
        (ArtifactFilter { fingerprint: text(fingerprint("ab1").as_str()), ..any() }, vec![112, 113, 115]),
        (ArtifactFilter { commit: text("abc1"), ..any() }, vec![112, 113]),
        (ArtifactFilter { commit: text(&"abc13".repeat(8)), ..any() }, vec![112]),
        (ArtifactFilter { commit: text("bc1"), ..any() }, vec![]),
        (ArtifactFilter { branch: text("main"), ..any() }, vec![111, 113]),
        (ArtifactFilter { branch: text("m%"), ..any() }, vec![]),
        (ArtifactFilter { repos: Some(vec![id(106), id(107), id(999)]), ..any() }, vec![112, 113]),
        (ArtifactFilter { repos: Some(Vec::new()), ..any() }, vec![]),
        (ArtifactFilter { with_commit: true, ..any() }, vec![112, 113]),
        (ArtifactFilter { with_commit: true, branch: text("main"), flow: Some(id(100)), ..any() }, vec![113]),
    ];
    let org = &org;
    narrowed(cases, |filter| async move { listed(org, &filter).await }).await
}

async fn an_artifact_of_a_flow_is_its_newest_report(store: Arc<dyn Store>) -> Outcome {
    let org = several(&store).await?;
    let fingerprint = fingerprint("ab1");
    let of_f =
        ArtifactQuery { flow: "f", fingerprint: &fingerprint, trail: None, id: None, newest_runs: Some(10) };
    let cases = [
        (of_f, Some(113)),
        (ArtifactQuery { flow: "g", ..of_f }, Some(112)),
        (ArtifactQuery { trail: Some("t"), ..of_f }, Some(113)),
        (ArtifactQuery { trail: Some("u"), ..of_f }, None),
        (ArtifactQuery { id: Some(id(115)), ..of_f }, Some(115)),
        (ArtifactQuery { id: Some(id(115)), trail: Some("t"), ..of_f }, None),
        (ArtifactQuery { id: Some(id(112)), ..of_f }, None),
    ];
    for (query, expected) in cases {
        let found = store.artifact_of_flow(org.id, query).await?;
        if let Some((_, Some(one))) = &found {
            let trail = Vec::from_iter(one.artifact.trail);
            let expected = store.trail_versions(org.id, &trail).await?;
            same(&format!("the version of the trail of {query:?}"), Vec::from_iter(one.version), expected)?;
        }
        let found =
            found.map(|(flow, artifact)| (flow.name.to_string(), artifact.map(|one| one.artifact.id)));
        same(&format!("{query:?}"), found, Some((query.flow.to_owned(), expected.map(id))))?;
    }
    org.record(vec![Fact::FlowRenamed { record: flow(100, "k"), was: named("f") }]).await?;
    let by_names = ["f", "k"].map(|flow| ArtifactQuery { flow, ..of_f });
    for query in by_names {
        let found = store.artifact_of_flow(org.id, query).await?;
        let found = found.map(|(flow, one)| (flow.name.to_string(), one.map(|one| one.artifact.id)));
        same(&format!("renamed, {query:?}"), found, Some(("k".to_owned(), Some(id(113)))))?;
    }
    let nowhere = store.artifact_of_flow(org.id, ArtifactQuery { flow: "h", ..of_f }).await?;
    same("without a flow", nowhere.is_none(), true)?;
    org.record(vec![
        Fact::EnvironmentCreated { record: environment(300, "prod") },
        Fact::SnapshotTaken { snapshot: snapshot(300, 1, &["ab1"], &[]) },
    ])
    .await?;
    let runs = store.runs(org.id, std::slice::from_ref(&fingerprint), 10).await?;
    same("one run", runs.len(), 1)?;
    for (newest_runs, expected) in [(Some(10), runs), (None, Vec::new())] {
        let found = store.artifact_of_flow(org.id, ArtifactQuery { newest_runs, ..of_f }).await?;
        let found = found.and_then(|(_, artifact)| artifact).map(|one| one.runs);
        same("the runs", found, Some(expected))?;
    }
    Ok(())
}

async fn artifacts_by_id_pass_over_unknown_ids(store: Arc<dyn Store>) -> Outcome {
    let org = several(&store).await?;
    let found = store.artifacts_by_id(org.id, &[114, 999, 210, 115, 115].map(id)).await?;
    let ids = found.into_iter().map(|artifact| artifact.id).collect();
    same_set("the reports", ids, [114, 115].map(id).to_vec())?;
    let found = store.artifact_sizes(org.id, &[114, 999, 210, 115, 115].map(id)).await?;
    let ids = found.into_iter().map(|listed| listed.id).collect();
    same_set("those that are measured", ids, [114, 115].map(id).to_vec())?;
    same("no sizes", store.artifact_sizes(org.id, &[]).await?, Vec::new())?;
    same("no ids", store.artifacts_by_id(org.id, &[]).await?, Vec::new())?;
    let long = Artifact { description: long_text(), ..artifact(190, 100, None, "ab") };
    org.record(vec![Fact::ArtifactReported { record: long }]).await?;
    largest_is_long(&store.artifact_sizes(org.id, &[id(190)]).await?)
}

async fn reports_of_an_artifact_are_listed_oldest_first(store: Arc<dyn Store>) -> Outcome {
    let org = several(&store).await?;
    let text = TextRef::of("a template");
    let with_template =
        |n: u64, trail: Option<u64>| Artifact { template: Some(text), ..artifact(n, 100, trail, "ab1") };
    let later = [with_template(130, None), with_template(131, Some(102))];
    org.record(vec![kept("a template")]).await?;
    org.record(later.map(|record| Fact::ArtifactReported { record }).into()).await?;
    let reports = async |flow: u64, start: &str| store.reports(org.id, id(flow), &fingerprint(start)).await;
    let found = reports(100, "ab1").await?;
    let indexes: Vec<u64> = found.iter().map(|row| row.index).collect();
    same("their order", indexes.clone(), sorted(&indexes))?;
    let last: Vec<_> = found.iter().rev().take(2).map(|row| (row.id, row.trail, row.template)).collect();
    let expected = vec![(id(131), Some(id(102)), None), (id(130), None, Some(text))];
    same("a template where there is no trail", last, expected)?;
    let all = org.store.artifacts(org.id, &ArtifactFilter::default(), PageRequest::ALL).await?.items;
    let of = |artifact: &&Artifact| artifact.flow == id(100) && artifact.fingerprint == fingerprint("ab1");
    same("the reports", indexes.len(), all.iter().filter(of).count())?;
    same("to another flow", reports(999, "ab1").await?, Vec::new())?;
    same("of another artifact", reports(100, "ffff").await?, Vec::new())
}

fn sorted(indexes: &[u64]) -> Vec<u64> {
    let mut sorted = indexes.to_vec();
    sorted.sort_unstable();
    sorted
}

async fn a_commit_told_in_any_words_is_what_an_artifact_was_built_from(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let own = "d".repeat(40);
    let told = ["abcdef123456", "ABCDEF123456", "abcdeg", "abcde\u{10ffff}", "", own.as_str()];
    let report = |(n, sha1): (u64, &&str)| {
        let info = GitCommit { sha1: named(sha1), ..bare_commit() };
        Artifact { git_commit_info: Some(info), ..artifact(n, 100, Some(101), "ab") }
    };
    let mut records = Vec::from_iter((110..).zip(&told).map(report));
    let both = Artifact { git_commit: Some(named(&own)), ..records[0].clone() };
    records.push(Artifact { id: id(116), ..both });
    let facts = records.into_iter().map(|record| Fact::ArtifactReported { record });
    org.record(vec![flow_created(100, "f"), trail_begun(101, 100, "t")]).await?;
    org.record(facts.collect()).await?;
    let expected: Vec<_> = told.iter().chain([&own.as_str()]).map(|text| (*text).to_owned()).collect();
    let commits = |rows: Vec<ArtifactRow>| Vec::from_iter(rows.into_iter().map(|row| row.commit));
    let found = store.reports(org.id, id(100), &fingerprint("ab")).await?;
    same("of the reports", commits(found), expected.clone())?;
    let contents = store.trail_contents(org.id, &[id(101)]).await?.remove(0);
    same("in the trail", commits(contents.artifacts), expected)?;
    let narrowed = |commit: Option<&str>, with_commit| {
        let commit = commit.map(ToOwned::to_owned);
        ArtifactFilter { flow: Some(id(100)), commit, with_commit, ..ArtifactFilter::default() }
    };
    same("with a commit", listed(&org, &narrowed(None, true)).await?, [116, 115].map(id).to_vec())?;
    same(
        "by its beginning",
        listed(&org, &narrowed(Some("ddddd"), false)).await?,
        [116, 115].map(id).to_vec(),
    )?;
    same("by another", listed(&org, &narrowed(Some("abcde"), false)).await?, Vec::new())
}

async fn provenance_is_the_newest_of_each_flow(store: Arc<dyn Store>) -> Outcome {
    let org = several(&store).await?;
    let asked = ["cd", "ab1", "ee", "ab1"].map(fingerprint);
    let rows = store.provenance(org.id, &asked, u64::MAX).await?;
    let names: Vec<_> = rows.iter().map(|origin| origin.last_name.clone()).collect();
    same("the last names", names, ["", "app", ""].map(str::to_owned).to_vec())?;
    let rows = Vec::from_iter(rows.into_iter().map(|origin| origin.report));
    let found: Vec<_> = rows.iter().map(|row| (row.id, row.flow, row.trail, row.index)).collect();
    let expected = vec![
        (id(113), id(100), Some(id(102)), 6),
        (id(112), id(101), Some(id(103)), 7),
        (id(114), id(100), Some(id(102)), 9),
    ];
    same("the rows", found, expected)?;
    let details: Vec<_> = rows.into_iter().map(|row| (row.fingerprint, row.commit, row.at)).collect();
    let expected = vec![
        (fingerprint("ab1"), "abc12".repeat(8), at(-50)),
        (fingerprint("ab1"), "abc13".repeat(8), at(4)),
        (fingerprint("cd"), String::new(), at(4)),
    ];
    same("their details", details, expected)?;
    same("of no fingerprints", store.provenance(org.id, &[], u64::MAX).await?, Vec::new())
}

async fn provenance_has_the_last_name_in_the_flow(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let named = |n, flow, trail, start: &str, name: &str| Fact::ArtifactReported {
        record: Artifact { template_reference_name: name.to_owned(), ..artifact(n, flow, trail, start) },
    };
    let first = vec![
        flow_created(100, "f"),
        flow_created(101, "g"),
        trail_begun(102, 100, "t"),
        trail_begun(103, 100, "u"),
    ];
    org.record(first).await?;
    let last = async |entries: u64, names: &[(u64, &str)]| {
        let found = store.provenance(org.id, &["ab", "cd"].map(fingerprint), entries).await?;
        let found = found.into_iter().map(|origin| (origin.report.id, origin.last_name));
        let names = names.iter().map(|(n, name)| (id(*n), (*name).to_owned()));
        same(&format!("the names in {entries} entries"), found.collect(), Vec::from_iter(names))
    };
    org.record(vec![
        named(110, 100, Some(102), "ab", "app"),
        named(111, 100, Some(102), "ab", "\"other\""),
        named(112, 100, Some(103), "cd", ""),
        named(113, 101, None, "ab", "elsewhere"),
        named(114, 100, Some(103), "ab", ""),
    ])
    .await?;
    let first = [(112, ""), (113, "elsewhere"), (114, "\"other\"")];
    last(u64::MAX, &first).await?;
    org.record(vec![named(115, 100, None, "ab", "alone"), named(116, 101, None, "ab", "")]).await?;
    last(u64::MAX, &[(112, ""), (114, "\"other\""), (116, "elsewhere")]).await?;
    // Later reports do not count.
    last(5, &[]).await?;
    last(6, &[(110, "app")]).await?;
    last(7, &[(111, "\"other\"")]).await?;
    last(9, &[(111, "\"other\""), (112, ""), (113, "elsewhere")]).await?;
    last(10, &first).await
}

async fn content_has_all_names_that_flows_gave_it(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let named = |n, flow, trail, start: &str, name: &str| Fact::ArtifactReported {
        record: Artifact { template_reference_name: name.to_owned(), ..artifact(n, flow, trail, start) },
    };
    org.record(vec![flow_created(100, "f"), flow_created(101, "g"), trail_begun(102, 100, "t")]).await?;
    org.record(vec![
        named(110, 100, Some(102), "ab", "app"),
        named(111, 100, None, "ab", "\"other\""),
        named(112, 100, Some(102), "ab", "app"),
        named(113, 100, Some(102), "ab", ""),
        named(114, 101, None, "ab", "elsewhere"),
        named(115, 100, Some(102), "cd", "lib"),
    ])
    .await?;
    let asked = |flow, start| (id(flow), fingerprint(start));
    let names = async |asked: &[(Id, Fingerprint)]| {
        let found = store.given_names(org.id, asked).await?.into_iter();
        let mut found = Vec::from_iter(found.map(|given| (given.flow, given.name, given.first)));
        found.sort();
        Ok::<_, Failure>(found)
    };
    let given = |flow, name: &str, first: u64| (id(flow), name.to_owned(), first);
    same("none", names(&[]).await?, Vec::new())?;
    // After the organization, two flows and a trail.
    let expected = vec![given(100, "", 7), given(100, "\"other\"", 5), given(100, "app", 4)];
    same("those in a flow", names(&[asked(100, "ab")]).await?, expected)?;
    let both = names(&[asked(101, "ab"), asked(100, "cd"), asked(101, "cd")]).await?;
    same("those of pairs", both, vec![given(100, "lib", 9), given(101, "elsewhere", 8)])
}

async fn provenance_prefers_trails(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![flow_created(100, "f"), flow_created(101, "g"), trail_begun(102, 100, "t")]).await?;
    org.record(vec![
        artifact_reported(110, 100, Some(102), "ab"),
        artifact_reported(111, 100, Some(102), "ab"),
        artifact_reported(112, 100, None, "ab"),
        artifact_reported(113, 100, None, "cd"),
        artifact_reported(114, 101, None, "ab"),
        artifact_reported(115, 101, None, "ab"),
    ])
    .await?;
    let asked = ["ab", "cd"].map(fingerprint);
    let found = async || -> Result<Vec<Id>, Failure> {
        Ok(store.provenance(org.id, &asked, u64::MAX).await?.iter().map(|origin| origin.report.id).collect())
    };
    same("the rows", found().await?, [111, 113, 115].map(id).to_vec())?;
    org.record(vec![artifact_reported(116, 100, Some(102), "cd")]).await?;
    same("once there is a trail", found().await?, [111, 115, 116].map(id).to_vec())?;
    let before = store.provenance(org.id, &asked, 10).await?;
    same(
        "before that",
        before.iter().map(|origin| origin.report.id).collect(),
        [111, 113, 115].map(id).to_vec(),
    )
}
