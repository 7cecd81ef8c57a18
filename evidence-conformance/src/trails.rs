//! Checks of [`evidence_core::trails::TrailStore`].

use std::sync::Arc;

use evidence_core::artifacts::{Artifact, ArtifactRow};
use evidence_core::attestations::{Attestation, AttestationRow, Binding, Details, OverrideDetails};
use evidence_core::fact::Fact;
use evidence_core::flows::Flow;
use evidence_core::id::Id;
use evidence_core::name::CommitSha;
use evidence_core::page::{Page, PageRequest};
use evidence_core::store::{Current, Store};
use evidence_core::tags::TagFilter;
use evidence_core::texts::TextRef;
use evidence_core::trails::{Reported, Trail, TrailContents, TrailEntry, TrailFilter, TrailLabel};

use super::fixtures::{
    Org, artifact, artifact_reported, at, attestation, attestation_added, awkward, bare_commit,
    external_urls, fingerprint, flow, flow_created, free_form, full_commit, full_repo_info, id, jane, named,
    robot, tags, trail, trail_begun, user_data,
};
use super::shared::{narrowed, paged};
use super::texts::kept;
use super::{Failure, Outcome, present, promises, same, same_set};

promises! {
    trails_read_back: "Trails are what was recorded last, absent options too.",
    trails_are_found_in_their_flow: "A trail is found by its name (bytes) in its flow and organization alone.",
    trails_are_listed_newest_first: "`trails` is ordered by when they were begun (by ledger index), the last first.",
    labels_are_of_these_trails: "`trail_labels` answers what these trails and their flows are called, as far as there are any.",
    trail_pages_have_the_right_total: "A page past the end is empty, with the right total.",
    trails_are_narrowed: "Everything given in a trail filter must match.",
    the_newest_trail_of_each_flow: "`newest_trails` answers one trail for each of the flows that has one.",
    contents_are_complete: "`trail_contents` answers every report to these trails, oldest first.",
    contents_pass_over_unknown_ids: "`trail_contents` passes over unknown ids and other organizations' trails.",
    labels_pass_over_unknown_ids: "`trail_labels` passes over unknown ids and other organizations' trails.",
    versions_tell_what_is_read: "`trail_versions` answers the revision of a trail's contents, how many reports they have, and the bytes of the trail's fact.",
    sizes_are_counted_up_to_a_limit: "`trail_report_count` counts a trail's artifacts or attestations, up to the limit.",
    entries_about_a_trail: "`trail_entries` answers the entries that are about this trail, oldest first.",
}

async fn trails_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let bare = trail(101, 100, "t");
    let full = Trail {
        description: awkward(),
        git_commit_info: Some(full_commit()),
        repo_info: Some(full_repo_info("owner/repo")),
        repo_ids: vec![id(102), id(103)],
        origin_url: "https://example.com".to_owned(),
        user_data: user_data(),
        external_urls: Some(external_urls()),
        template: Some(TextRef::of(&awkward())),
        created_by: robot(),
        last_modified_at: at(9),
        last_modified_by: jane(),
        ..bare.clone()
    };
    org.record(vec![kept(&awkward()), flow_created(100, "f"), Fact::TrailBegun { record: bare.clone() }])
        .await?;
    for (revision, record) in [(3, bare.clone()), (4, full), (5, bare)] {
        if revision > 3 {
            org.record(vec![Fact::TrailUpdated { record: record.clone(), changes: vec![] }]).await?;
        }
        let found = store.trail(org.id, id(100), "t").await?;
        same("by name", found, Some(Current { revision, record: record.clone() }))?;
        let listed = store.trails(org.id, &TrailFilter::default(), PageRequest::ALL).await?;
        let listed = listed.map(|listed| {
            // The fact says the record, and which fact it is.
            (listed.id, (0..100).contains(&(listed.bytes.saturating_sub(json_bytes(&record)))))
        });
        same("listed", listed, Page { items: vec![(record.id, true)], total: 1 })?;
        let contents = store.trail_contents(org.id, &[id(101)]).await?;
        let trails: Vec<_> =
            contents.into_iter().map(|contents| (contents.revision, contents.trail)).collect();
        same("with its contents", trails, vec![(revision, record.clone())])?;
        let versions = store.trail_versions(org.id, &[id(101)]).await?;
        let is_size = |bytes: u64| (0..100).contains(&bytes.saturating_sub(json_bytes(&record)));
        let versions = versions.iter().map(|found| (found.revision, found.reports, is_size(found.bytes)));
        same("its version", versions.collect(), vec![(revision, 0, true)])?;
        same("the newest", store.newest_trails(org.id, &[id(100)]).await?, vec![record.id])?;
    }
    Ok(())
}

fn json_bytes(trail: &Trail) -> u64 {
    serde_json::to_vec(trail).map_or(0, |json| json.len() as u64)
}

async fn trails_are_found_in_their_flow(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![flow_created(100, "f"), flow_created(101, "g"), trail_begun(102, 100, "t-1")]).await?;
    for (org, flow, name) in [
        (&org, 101, "t-1"),
        (&other, 100, "t-1"),
        (&org, 100, "T-1"),
        (&org, 100, "t_1"),
        (&org, 100, "t-"),
        (&org, 100, "%"),
        (&org, 999, "t-1"),
    ] {
        same(name, store.trail(org.id, id(flow), name).await?, None)?;
    }
    Ok(())
}

/// Two flows in `foo`, one in `foobar`; trails whose names, ids and times do not follow the order of recording, and the
/// first of which is changed at last.
async fn several(store: &Arc<dyn Store>) -> Result<(Org, Org), Failure> {
    let (org, other) = Org::two(store).await?;
    let begun = |n, flow, name, created| Fact::TrailBegun {
        record: Trail { created_at: at(created), ..trail(n, flow, name) },
    };
    let tagged = Fact::FlowCreated { record: Flow { tags: tags(&[("team", "red")]), ..flow(100, "f") } };
    org.record(vec![tagged, flow_created(101, "g"), flow_created(102, "empty")]).await?;
    org.record(vec![
        begun(113, 100, "a", 10),
        begun(112, 100, "c", 30),
        begun(111, 101, "b", 20),
        begun(115, 101, "d", 20),
        begun(114, 101, "e", 20),
    ])
    .await?;
    other.record(vec![flow_created(200, "f"), begun(211, 200, "a", 15), begun(212, 200, "z", 99)]).await?;
    let first = Trail { created_at: at(10), ..trail(113, 100, "a") };
    org.record(vec![Fact::TrailUpdated { record: first, changes: Vec::new() }]).await?;
    Ok((org, other))
}

async fn listed(org: &Org, filter: &TrailFilter) -> Result<Vec<Id>, Failure> {
    let trails = org.store.trails(org.id, filter, PageRequest::ALL).await?;
    same("the total", trails.total, trails.items.len() as u64)?;
    Ok(trails.items.into_iter().map(|trail| trail.id).collect())
}

async fn trails_are_listed_newest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    let all = TrailFilter::default();
    same("the trails", listed(&org, &all).await?, [114, 115, 111, 112, 113].map(id).to_vec())?;
    same("the other's trails", listed(&other, &all).await?, [212, 211].map(id).to_vec())
}

fn label(flow: &str, name: &str) -> TrailLabel {
    TrailLabel { flow: named(flow), name: named(name) }
}

async fn labels_are_of_these_trails(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![flow_created(100, "f"), flow_created(104, "g")]).await?;
    org.record(vec![trail_begun(101, 100, "t"), trail_begun(102, 100, "u"), trail_begun(103, 104, "t")])
        .await?;
    other.record(vec![flow_created(200, "f"), trail_begun(201, 200, "v")]).await?;
    let mut found = store.trail_labels(org.id, &[103, 201, 999, 101, 103].map(id)).await?;
    found.sort();
    same("the labels", found, vec![(id(101), label("f", "t")), (id(103), label("g", "t"))])?;
    same("of none", store.trail_labels(org.id, &[]).await?, Vec::new())
}

async fn trail_pages_have_the_right_total(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let filter = TrailFilter { flow: Some(id(101)), ..TrailFilter::default() };
    let trails = [114, 115, 111].map(id);
    paged("the trails", &trails, |asked| store.trails(org.id, &filter, asked), |trail| trail.id).await
}

async fn trails_are_narrowed(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    org.record(vec![
        artifact_reported(120, 100, Some(112), "abcde"),
        artifact_reported(121, 100, Some(112), "abcdf"),
        artifact_reported(122, 101, Some(111), "abcde"),
        artifact_reported(123, 100, None, "abc"),
    ])
    .await?;
    other.record(vec![artifact_reported(220, 200, Some(211), "abcde")]).await?;
    let whole = fingerprint("abcde").into_string();
    // Flow, tag and prefix to narrow by, and the trails that are left.
    let cases = [
        (Some(100), None, None, vec![112, 113]),
        (Some(102), None, None, vec![]),
        (Some(200), None, None, vec![]),
        (None, Some("team"), None, vec![112, 113]),
        (None, Some("team:blue"), None, vec![]),
        (Some(101), Some("team:red"), None, vec![]),
        (None, None, Some("abcd"), vec![111, 112]),
        (None, None, Some(whole.as_str()), vec![111, 112]),
        (None, None, Some("bcde"), vec![]),
        (Some(101), None, Some("abcde"), vec![111]),
        (None, Some("team:red"), Some("abcdf"), vec![112]),
    ];
    let filter = |(flow, tag, prefix, expected): (Option<u64>, Option<&str>, Option<&str>, _)| {
        let flow_tag = tag.map(|tag| TagFilter::parse(tag, ':'));
        (TrailFilter { flow: flow.map(id), flow_tag, fingerprint: prefix.map(ToOwned::to_owned) }, expected)
    };
    let org = &org;
    narrowed(cases.map(filter), |filter| async move { listed(org, &filter).await }).await
}

async fn the_newest_trail_of_each_flow(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let newest = |asked: Vec<Id>| {
        let store = Arc::clone(&store);
        async move { Ok::<_, Failure>(store.newest_trails(org.id, &asked).await?) }
    };
    let asked = [100, 101, 102, 200, 999, 100].map(id).to_vec();
    same_set("the newest", newest(asked).await?, [112, 114].map(id).to_vec())?;
    same("of no flows", newest(Vec::new()).await?, Vec::new())
}

/// Two reports of each kind to trail 101, others elsewhere; the rows that they make.
fn reports() -> (Vec<Fact>, Vec<ArtifactRow>, Vec<AttestationRow>) {
    let commit: CommitSha = named(&"5".repeat(40));
    let first = artifact(110, 100, Some(101), "ab");
    let second = Artifact {
        template_reference_name: "app".to_owned(),
        git_commit: Some(commit.clone()),
        created_at: at(1),
        ..artifact(111, 100, Some(101), "ab")
    };
    let bound = |n, binding, details| Attestation {
        binding,
        details,
        is_compliant: false,
        kind: "junit".to_owned(),
        ..attestation(n, 100, 101, "unit")
    };
    let to_artifact = Binding::Artifact { fingerprint: fingerprint("ab"), target: String::new() };
    let by_name = Binding::Named { target: "app".to_owned(), commit: commit.to_string() };
    let overriding = Details::Override(OverrideDetails {
        reason: "seen by hand".to_owned(),
        original_attestation_type: "junit".to_owned(),
        original_attestation_id: None,
    });
    let claims = [
        Attestation { git_commit_info: Some(bare_commit()), ..attestation(120, 100, 101, "scan") },
        bound(121, to_artifact, overriding),
        bound(122, by_name, Details::Other(free_form(r#"{"override":true,"type":"other"}"#))),
    ];
    let [plain, overriding, named] = claims.clone();
    let facts = vec![
        Fact::ArtifactReported { record: first.clone() },
        Fact::AttestationAdded { record: plain },
        artifact_reported(112, 100, Some(102), "ab"),
        Fact::AttestationAdded { record: overriding },
        artifact_reported(113, 100, None, "ab"),
        attestation_added(123, 100, 102, "scan"),
        Fact::ArtifactReported { record: second.clone() },
        Fact::AttestationAdded { record: named },
    ];
    let artifact_row = |artifact: &Artifact, index| ArtifactRow {
        id: artifact.id,
        flow: artifact.flow,
        trail: artifact.trail,
        fingerprint: artifact.fingerprint.clone(),
        template_reference_name: artifact.template_reference_name.clone(),
        commit: artifact.commit().to_owned(),
        repo: artifact.repo,
        committed_at: artifact.committed_at(),
        template: None,
        at: artifact.created_at,
        index,
    };
    let artifacts = vec![artifact_row(&first, 4), artifact_row(&second, 10)];
    let rows = claims.iter().zip([(5, None), (7, Some("overridden by jane: seen by hand")), (11, None)]);
    let attestations = rows
        .map(|(claim, (index, override_info))| AttestationRow {
            id: claim.id,
            trail: claim.trail,
            name: claim.name.to_string(),
            kind: claim.kind.clone(),
            is_compliant: claim.is_compliant,
            override_info: override_info.map(Into::into),
            control: None,
            binding: claim.binding.clone(),
            commit: claim.git_commit_info.as_ref().map(|commit| commit.sha1.to_string()),
            at: claim.created_at,
            index,
        })
        .collect();
    (facts, artifacts, attestations)
}

async fn with_reports(store: &Arc<dyn Store>) -> Result<(Org, Org), Failure> {
    let (org, other) = Org::two(store).await?;
    org.record(vec![flow_created(100, "f"), trail_begun(101, 100, "t"), trail_begun(102, 100, "u")]).await?;
    org.record(reports().0).await?;
    other.record(vec![flow_created(200, "f"), trail_begun(201, 200, "t")]).await?;
    other
        .record(vec![artifact_reported(210, 200, Some(201), "ab"), attestation_added(220, 200, 201, "scan")])
        .await?;
    Ok((org, other))
}

async fn contents_are_complete(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = with_reports(&store).await?;
    let contents = store.trail_contents(org.id, &[id(101)]).await?.pop();
    let TrailContents { trail: found, artifacts, attestations, .. } = present("the contents", contents)?;
    let (_, expected_artifacts, expected_attestations) = reports();
    same("the trail", found, trail(101, 100, "t"))?;
    same("the artifacts", artifacts, expected_artifacts)?;
    same("the attestations", attestations, expected_attestations)
}

async fn contents_pass_over_unknown_ids(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = with_reports(&store).await?;
    let sizes = |contents: Vec<TrailContents>| {
        let size = |found: TrailContents| (found.trail.id, found.artifacts.len(), found.attestations.len());
        contents.into_iter().map(size).collect::<Vec<_>>()
    };
    let found = store.trail_contents(org.id, &[102, 201, 999, 101, 101].map(id)).await?;
    same_set("the contents", sizes(found), vec![(id(101), 2, 3), (id(102), 1, 1)])?;
    same("of no trails", sizes(store.trail_contents(org.id, &[]).await?), Vec::new())
}

async fn labels_pass_over_unknown_ids(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = with_reports(&store).await?;
    let found = store.trail_labels(org.id, &[102, 201, 999, 101, 101].map(id)).await?;
    same_set("the labels", found, vec![(id(101), label("f", "t")), (id(102), label("f", "u"))])?;
    same("of no trails", store.trail_labels(org.id, &[]).await?, Vec::new())
}

async fn versions_tell_what_is_read(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = with_reports(&store).await?;
    let ids = [102, 201, 999, 101, 101].map(id);
    let contents = store.trail_contents(org.id, &ids).await?;
    let version = |contents: &TrailContents| {
        let reports = (contents.artifacts.len() + contents.attestations.len()) as u64;
        (contents.trail.id, contents.revision, reports, true)
    };
    let base = json_bytes(&trail(101, 100, "t"));
    let is_size = |bytes| (base..base + 100).contains(&bytes);
    let found = store.trail_versions(org.id, &ids).await?;
    let found = found.iter().map(|found| (found.id, found.revision, found.reports, is_size(found.bytes)));
    same_set("the versions", found.collect(), contents.iter().map(version).collect())?;
    same("of no trails", store.trail_versions(org.id, &[]).await?, Vec::new())
}

async fn sizes_are_counted_up_to_a_limit(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = with_reports(&store).await?;
    for (what, org, trail, most, artifacts, attestations) in [
        ("all", &org, 101, 9, 2, 3),
        ("as many as may be", &org, 101, 3, 2, 3),
        ("up to a limit", &org, 101, 2, 2, 2),
        ("none", &org, 101, 0, 0, 0),
        ("another trail's", &org, 102, u64::MAX, 1, 1),
        ("no trail's", &org, 999, 9, 0, 0),
        ("by another organization", &other, 101, 9, 0, 0),
    ] {
        for (kind, size) in [(Reported::Artifacts, artifacts), (Reported::Attestations, attestations)] {
            let what = format!("{what}: {kind:?}");
            same(&what, store.trail_report_count(org.id, id(trail), kind, most).await?, size)?;
        }
    }
    Ok(())
}

async fn entries_about_a_trail(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = with_reports(&store).await?;
    org.record(vec![Fact::TrailUpdated { record: trail(101, 100, "t"), changes: vec!["x".to_owned()] }])
        .await?;
    let entries = store.trail_entries(org.id, id(101)).await?;
    let indexes: Vec<u64> = entries.iter().map(|entry| entry.index).collect();
    same("the indexes", indexes, vec![2, 4, 5, 7, 10, 11, 12])?;
    for TrailEntry { index, bytes } in entries {
        let stored = store.ledger_entries(org.id, index, 1).await?;
        let sizes: Vec<u64> = stored.iter().map(|entry| entry.payload.len() as u64).collect();
        same("the bytes of an entry", vec![bytes], sizes)?;
    }
    same("of another organization", store.trail_entries(other.id, id(101)).await?, Vec::new())?;
    same("of no trail", store.trail_entries(org.id, id(999)).await?, Vec::new())
}
