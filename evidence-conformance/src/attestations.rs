//! Checks of [`evidence_core::attestations::AttestationStore`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evidence_core::artifacts::Artifact;
use evidence_core::attestations::{
    Attachment, Attestation, Binding, DecisionDetails, DecisionFilter, DecisionRow, Details, FlowPosition,
    ListedAttestation, TimeRange,
};
use evidence_core::blobs::Whole;
use evidence_core::bounded::Dictionary;
use evidence_core::fact::Fact;
use evidence_core::git::GitCommit;
use evidence_core::id::Id;
use evidence_core::json::JsonText;
use evidence_core::page::{PageRequest, SortDirection};
use evidence_core::store::Store;
use evidence_core::texts::TextRef;
use evidence_core::trails::{Trail, TrailLabel};

use super::fixtures::{
    Org, artifact, at, attestation, attestation_added, awkward, bare_commit, bare_repo_info, external_urls,
    fingerprint, flow_created, free_form, id, named, request, robot, trail, trail_begun, user_data,
};
use super::pending::{CONTENT, digest};
use super::shared::paged;
use super::{Failure, Outcome, ensure, promises, same};

promises! {
    attestations_read_back: "Attestations are what was recorded, absent options too.",
    large_attachments_read_back: "What is said of an attachment is what was recorded, however large it is.",
    attestations_are_found_by_id: "What does not exist, or is another organization's, is `None`.",
    attestations_are_listed_newest_first: "`attestations` of a name on these trails, newest (by ledger index) first.",
    attestations_are_walked_newest_first: "`attestations_before` and `flow_attestations_before` come by ledger index from where they are to go on, numbered in their flows.",
    attestations_of_a_flow_are_paged: "`flow_attestations` of a time: a page, newest first, and the total.",
    attestations_have_sizes: "`attestation_sizes` of ids of this organization.",
    trails_are_found_by_commit: "`commit_trails` finds trails of a flow or of all by what they, their artifacts and their attestations name in full, by id from the greatest on.",
    decisions_are_listed_in_the_order_asked: "`decisions` about a control come by ledger index in the direction asked: a page, and the total.",
    decisions_about_each_control_are_paged: "`decisions` answers each page and the total, however many decisions about however many controls one write brought.",
    decisions_are_narrowed: "Everything given in a decision filter must match; what is about another control, or another organization's, is left out.",
}

const JUNIT: &str = r#"{"type":"junit","junit_results":[
    {"name":"a","failures":1,"errors":2,"skipped":3,"total":9,"duration":0.25,"timestamp":1700000000.5},
    {"name":"","failures":-1,"errors":0,"skipped":0,"total":0,"duration":0.0}]}"#;

const PULL_REQUESTS: &str = r#"{"type":"pull_request","git_provider":"azure","pull_requests":[
    {"url":"u","state":"MERGED","title":"t","author":"a","head_ref":"h","base_ref":"b",
     "merge_commit":"0123456789abcdef0123456789abcdef01234567","created_at":1700000000,"merged_at":1700000000.25,
     "approvers":["ann",{"username":"bob","state":"APPROVED","timestamp":1700000000}],
     "commits":[{"sha1":"1","message":"m"}]},
    {"url":"","state":"","merge_commit":"","approvers":[],"commits":[]}]}"#;

const JIRA: &str = r#"{"type":"jira","jira_results":[
    {"issue_id":"ML-50","issue_url":"https://example.com/ML-50","issue_exists":true,"issue_fields":{"n":[1e400,null]}},
    {"issue_id":"","issue_url":"","issue_exists":false}]}"#;

const SNYK: &str = r#"{"type":"snyk","snyk_results":{"schema_version":1,"tool":{"name":"Snyk","version":"1.0"},"results":[
    {"low_count":0,"medium_count":-1,"high_count":2,"low":[],"high":[
        {"id":"a","message":"m","locations":[{"uri":"a.rs","lines":"1-2"}],"priority_score":7.25},
        {"id":"b","message":"","locations":[]}]},
    {"low_count":0,"medium_count":0,"high_count":0}]}}"#;

const SONAR: &str = r#"{"type":"sonar","sonar_results":{"serverUrl":"https://example.com","taskId":"t","status":"SUCCESS",
    "analysedAt":"1724052982","revision":"r","changedAt":"c","project":{"key":"k","url":"u","name":"n"},
    "branch":{"name":"main"},"pullRequest":1e400,"qualityGate":{"name":"g","status":"OK","conditions":[
        {"metric":"m","errorThreshold":"1","operator":"o","status":"OK","value":"0","onLeakPeriod":false},
        {"metric":"m","errorThreshold":"1","operator":"o","status":"OK"}]}}}"#;

const SONAR_WITHOUT_A_GATE: &str = r#"{"type":"sonar","sonar_results":{
    "analysedAt":"","revision":"","project":{"key":"","url":""}}}"#;

const DECISION: &str = r#"{"type":"decision","control":"SDLC-4","control_version":3,
    "attestation_data":{"is_compliant":false,"n":[1e400,null]}}"#;

const DECISION_ABOUT_NO_CONTROL: &str =
    r#"{"type":"decision","control":"","control_version":null,"attestation_data":null}"#;

const SBOM: &str = r#"{"type":"sbom","attestation_data":{"format":"spdx","n":-0}}"#;

const SBOM_WITH_A_SUMMARY: &str = r#"{"type":"sbom","attestation_data":{},"processed_sbom":{
    "format":"spdx","component_count":7,"tools":["syft"],"subject":"shop","subject_version":"1"}}"#;

const SBOM_WITH_A_SHORT_SUMMARY: &str =
    r#"{"type":"sbom","attestation_data":{},"processed_sbom":{"format":""}}"#;

const SARIF: &str = r#"{"type":"sarif","attestation_data":{"version":"2.1.0","runs":[]},"processed_sarif_results":{
    "tools":[{"name":"scan","version":"1"},{"name":""}],"error_count":1,"warning_count":2,"note_count":3,"none_count":4,
    "suppressed_count":5,"failed_run_count":6}}"#;

const SARIF_OF_NO_RUN: &str = r#"{"type":"sarif","attestation_data":{},"processed_sarif_results":{"tools":[],"error_count":0,
    "warning_count":0,"note_count":0,"none_count":0,"suppressed_count":0,"failed_run_count":0}}"#;

const CUSTOM: &str = r#"{"type":"custom","type_name":"coverage","type_id":"00000000-0000-0000-0000-00000070",
    "type_version":2,"attestation_data":[1e400,{"a":null}],"rule_results":[
        {"outcome":"passed"},{"outcome":"failed"},{"outcome":"error","message":"m"},{"outcome":"limit","message":"fuel"}]}"#;

const CUSTOM_WITHOUT_RULES: &str = r#"{"type":"custom","type_name":"","type_id":"00000000-0000-0000-0000-00000070",
    "type_version":1,"attestation_data":null,"rule_results":[]}"#;

const CUSTOM_WITH_SUMMARY: &str = r#"{"type":"custom","type_name":"s","type_id":"00000000-0000-0000-0000-00000070",
    "type_version":3,"attestation_data":[1],"rule_results":[],"summary":[
        {"name":"n","values":[1e400,{"a":null}]},{"name":"","item":7,"values":[],"error":"m"}]}"#;

fn full() -> Attestation {
    let file = |file_name: &str| Attachment {
        file_name: file_name.to_owned(),
        media_type: "text/plain; charset=utf-8".to_owned(),
        size: CONTENT.len() as u64,
        sha256: digest(CONTENT),
    };
    Attestation {
        kind: "custom:coverage".to_owned(),
        is_compliant: false,
        binding: Binding::Artifact { fingerprint: fingerprint("ab"), target: "app".to_owned() },
        description: Some(awkward()),
        origin_url: "https://example.com".to_owned(),
        git_commit_info: Some(bare_commit()),
        repo_info: Some(bare_repo_info("owner/repo")),
        repo: Some(id(104)),
        external_urls: Some(external_urls()),
        annotations: Some(Dictionary(BTreeMap::from([
            (named("b"), named(&awkward())),
            (named("a"), named("")),
        ]))),
        user_data: user_data(),
        details: Details::Other(user_data()),
        attachments: vec![file("b"), file("a")],
        evidence: Some(file(&awkward())),
        created_by: robot(),
        ..attestation(111, 100, 101, "full")
    }
}

async fn attestations_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let nulls = Attestation {
        description: Some(String::new()),
        annotations: Some(Dictionary::default()),
        user_data: JsonText::default(),
        details: Details::Other(JsonText::default()),
        binding: Binding::Named { target: "app".to_owned(), commit: "5".repeat(40) },
        ..attestation(112, 100, 101, "nulls")
    };
    let of_type = |n, name, text: &str| {
        let details = Details::from(free_form(text));
        same("the type is known", matches!(details, Details::Other(_)), false)?;
        Ok::<_, Failure>(Attestation { details, ..attestation(n, 100, 101, name) })
    };
    let junit = of_type(113, "junit", JUNIT)?;
    let pull_requests = of_type(114, "pull-requests", PULL_REQUESTS)?;
    let jira = of_type(115, "jira", JIRA)?;
    let snyk = of_type(116, "snyk", SNYK)?;
    let others = [
        (117, "sonar", SONAR),
        (118, "sonar-2", SONAR_WITHOUT_A_GATE),
        (119, "decision", DECISION),
        (120, "decision-2", DECISION_ABOUT_NO_CONTROL),
        (121, "sbom", SBOM),
        (122, "custom", CUSTOM),
        (123, "custom-2", CUSTOM_WITHOUT_RULES),
        (124, "sbom-2", SBOM_WITH_A_SUMMARY),
        (125, "sbom-3", SBOM_WITH_A_SHORT_SUMMARY),
        (126, "sarif", SARIF),
        (127, "sarif-2", SARIF_OF_NO_RUN),
        (128, "custom-3", CUSTOM_WITH_SUMMARY),
    ];
    let others: Result<Vec<_>, _> =
        others.into_iter().map(|(n, name, text)| of_type(n, name, text)).collect();
    org.record(vec![flow_created(100, "f"), trail_begun(101, 100, "t")]).await?;
    org.record(vec![Fact::TextKept { text: "[]".to_owned() }]).await?;
    store.put(org.id, &digest(CONTENT), &mut Whole::new(CONTENT)).await?;
    let data = Some(TextRef::of("[]"));
    let apart = Attestation { data, ..of_type(129, "apart", r#"{"type":"junit","junit_results":[]}"#)? };
    let records =
        [attestation(110, 100, 101, "bare"), full(), nulls, junit, pull_requests, jira, snyk, apart];
    for record in records.into_iter().chain(others?) {
        org.record(vec![Fact::AttestationAdded { record: record.clone() }]).await?;
        let listed = store.attestations(org.id, &[id(101)], record.name.as_str()).await?;
        let index = store.ledger_head(org.id).await?.map_or(0, |head| head.size() - 1);
        let rows = listed.iter().map(|one| one.row.clone()).collect();
        same("listed", rows, vec![record.row(index)])?;
        let fact = Fact::AttestationAdded { record: record.clone() };
        let fact = serde_json::to_string(&fact).map(|fact| fact.len() as u64).unwrap_or_default();
        // A store may count what is around a record, or not.
        let told = listed.first().is_some_and(|one| one.bytes.abs_diff(fact) < 64);
        ensure(told, "the bytes of a fact")?;
        same("by id", store.attestation(org.id, record.id).await?, Some(record))?;
    }
    Ok(())
}

async fn large_attachments_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let file = Attachment {
        file_name: "image.iso".to_owned(),
        media_type: "application/octet-stream".to_owned(),
        size: 1 << 40,
        sha256: fingerprint("ef"),
    };
    let record = Attestation {
        attachments: vec![file.clone()],
        evidence: Some(file),
        ..attestation(110, 100, 101, "image")
    };
    org.record(vec![flow_created(100, "f"), trail_begun(101, 100, "t")]).await?;
    org.record(vec![Fact::AttestationAdded { record: record.clone() }]).await?;
    same("by id", store.attestation(org.id, record.id).await?, Some(record))
}

/// Attestations of three names on two trails; neither ids nor times follow the order of recording.
async fn several(store: &Arc<dyn Store>) -> Result<(Org, Org), Failure> {
    let (org, other) = Org::two(store).await?;
    org.record(vec![flow_created(100, "f"), trail_begun(101, 100, "t"), trail_begun(102, 100, "u")]).await?;
    let early = Attestation { created_at: at(-50), ..attestation(110, 100, 101, "scan") };
    org.record(vec![
        attestation_added(112, 100, 101, "scan"),
        attestation_added(113, 100, 102, "scan"),
        attestation_added(114, 100, 101, "Scan"),
        attestation_added(115, 100, 101, "scan_"),
        Fact::AttestationAdded { record: early },
    ])
    .await?;
    other.record(vec![flow_created(200, "f"), trail_begun(201, 200, "t")]).await?;
    other.record(vec![attestation_added(210, 200, 201, "scan")]).await?;
    Ok((org, other))
}

async fn attestations_are_found_by_id(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    let found = store.attestation(org.id, id(112)).await?;
    same("by id", found, Some(attestation(112, 100, 101, "scan")))?;
    let found = store.labelled_attestation(org.id, id(113)).await?;
    let label = TrailLabel { flow: named("f"), name: named("u") };
    same("by id with its label", found, Some((attestation(113, 100, 102, "scan"), label)))?;
    let found = store.attestations_by_id(org.id, &[112, 999, 210, 112].map(id)).await?;
    same("by ids", found, vec![attestation(112, 100, 101, "scan")])?;
    same("by no ids", store.attestations_by_id(org.id, &[]).await?, Vec::new())?;
    for (org, n) in [(&other, 112), (&org, 210), (&org, 999), (&org, 101)] {
        same("by an id of something else", store.attestation(org.id, id(n)).await?, None)?;
        let found = store.labelled_attestation(org.id, id(n)).await?;
        same("by an id of something else, with its label", found, None)?;
    }
    Ok(())
}

async fn attestations_are_listed_newest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let cases: [(&[u64], &str, &[u64]); 7] = [
        (&[101, 102], "scan", &[110, 113, 112]),
        (&[101], "scan", &[110, 112]),
        (&[101], "Scan", &[114]),
        (&[101, 101, 201, 999], "scan_", &[115]),
        (&[101], "sca%", &[]),
        (&[201], "scan", &[]),
        (&[], "scan", &[]),
    ];
    for (trails, name, expected) in cases {
        let asked: Vec<Id> = trails.iter().map(|n| id(*n)).collect();
        let found = store.attestations(org.id, &asked, name).await?;
        let found: Vec<_> = found.into_iter().map(|attestation| attestation.row.id).collect();
        same(&format!("{name} on {trails:?}"), found, expected.iter().map(|n| id(*n)).collect())?;
    }
    Ok(())
}

/// Attestations in two flows, recorded at these seconds, whatever their reporters' servers say, and one of another
/// organization. A clock may go back, and the ledger's time does not.
async fn in_flows(store: &Arc<dyn Store>) -> Result<(Org, Org), Failure> {
    let (org, other) = Org::two(store).await?;
    org.record(vec![flow_created(100, "f"), trail_begun(101, 100, "t")]).await?;
    org.record(vec![flow_created(102, "g"), trail_begun(103, 102, "t")]).await?;
    let added = |n, flow| {
        let record = Attestation { created_at: at(1), ..attestation(n, flow, flow + 1, "scan") };
        Fact::AttestationAdded { record }
    };
    org.record_at(15, vec![added(115, 100), added(110, 102)]).await?;
    other.record_at(15, vec![flow_created(200, "f"), trail_begun(201, 200, "t"), added(210, 200)]).await?;
    org.record_at(18, vec![added(113, 100)]).await?;
    org.record_at(17, vec![added(111, 100), added(114, 102)]).await?;
    Ok((org, other))
}

async fn attestations_are_walked_newest_first(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = in_flows(&store).await?;
    let numbers =
        |found: &[ListedAttestation]| Vec::from_iter(found.iter().map(|one| (one.id, one.flow_ordinal)));
    let expected = |of: &[(u64, u64)]| Vec::from_iter(of.iter().map(|(n, ordinal)| (id(*n), *ordinal)));
    let all = store.attestations_before(org.id, u64::MAX, 9).await?;
    same("all", numbers(&all), expected(&[(114, 2), (111, 3), (113, 2), (110, 1), (115, 1)]))?;
    ensure(all.is_sorted_by(|newer, older| newer.index > older.index), "by ledger index")?;
    let [first, second, third, ..] = all.as_slice() else { return ensure(false, "there are five") };
    let record = attestation(111, 100, 101, "scan");
    let row = ListedAttestation {
        id: id(111),
        flow: id(100),
        flow_ordinal: 3,
        index: first.index - 1,
        name: "scan".to_owned(),
        kind: record.kind,
        is_compliant: record.is_compliant,
        at: at(18),
    };
    same("a row", second.clone(), row)?;
    let rest = store.attestations_before(org.id, second.index, 2).await?;
    same("two from there", numbers(&rest), expected(&[(113, 2), (110, 1)]))?;
    same("none", store.attestations_before(org.id, 0, 9).await?, vec![])?;
    same("none are asked for", store.attestations_before(org.id, third.index, 0).await?, vec![])?;
    let of_other = store.attestations_before(other.id, u64::MAX, 9).await?;
    same("of the other", numbers(&of_other), expected(&[(210, 1)]))?;
    for (flows, limit, wanted) in [
        (vec![(100, u64::MAX)], 9, vec![(111, 3), (113, 2), (115, 1)]),
        (vec![(100, 3)], 1, vec![(113, 2)]),
        (vec![(102, u64::MAX), (100, u64::MAX)], 3, vec![(114, 2), (111, 3), (113, 2)]),
        (vec![(102, 2), (100, 3)], 9, vec![(113, 2), (110, 1), (115, 1)]),
        (vec![(100, 1), (200, u64::MAX), (999, u64::MAX)], 9, vec![]),
        (vec![], 9, vec![]),
    ] {
        let positions = flows.iter().map(|(flow, before)| FlowPosition { flow: id(*flow), before: *before });
        let found = store.flow_attestations_before(org.id, &Vec::from_iter(positions), limit).await?;
        ensure(found.is_sorted_by(|newer, older| newer.index > older.index), "by ledger index")?;
        same(&format!("of {flows:?}"), numbers(&found), expected(&wanted))?;
    }
    Ok(())
}

async fn attestations_of_a_flow_are_paged(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = in_flows(&store).await?;
    let time = |from: Option<i64>, to: Option<i64>| TimeRange { from: from.map(at), to: to.map(at) };
    for (org, flow, range, asked, expected, total) in [
        (&org, 100, time(None, None), PageRequest::ALL, vec![111, 113, 115], 3),
        (&org, 100, time(None, None), request(1, 1), vec![113], 3),
        (&org, 100, time(None, None), request(3, 1), vec![], 3),
        (&org, 100, time(Some(18), None), PageRequest::ALL, vec![111, 113], 2),
        (&org, 100, time(Some(16), None), request(1, 5), vec![113], 2),
        (&org, 100, time(None, Some(18)), request(1, 1), vec![113], 3),
        (&org, 100, time(None, Some(17)), PageRequest::ALL, vec![115], 1),
        (&org, 100, time(Some(15), Some(15)), PageRequest::ALL, vec![115], 1),
        (&org, 100, time(Some(18), Some(18)), PageRequest::ALL, vec![111, 113], 2),
        (&org, 100, time(Some(16), Some(17)), PageRequest::ALL, vec![], 0),
        (&org, 100, time(Some(19), Some(14)), PageRequest::ALL, vec![], 0),
        (&org, 100, time(Some(19), None), PageRequest::ALL, vec![], 0),
        (&org, 100, time(None, Some(14)), PageRequest::ALL, vec![], 0),
        (&org, 102, time(None, None), PageRequest::ALL, vec![114, 110], 2),
        (&org, 200, time(None, None), PageRequest::ALL, vec![], 0),
        (&other, 200, time(None, None), PageRequest::ALL, vec![210], 1),
        (&other, 100, time(Some(10), None), PageRequest::ALL, vec![], 0),
    ] {
        let found = store.flow_attestations(org.id, id(flow), &range, asked).await?;
        ensure(found.items.iter().all(|one| one.bytes > 0), "all have a size")?;
        let ids = Vec::from_iter(found.items.into_iter().map(|one| one.id));
        let expected = expected.into_iter().map(id).collect();
        same(&format!("{flow} {range:?} {asked:?}"), (ids, found.total), (expected, total))?;
    }
    Ok(())
}

async fn attestations_have_sizes(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = in_flows(&store).await?;
    for (org, expected) in [(&org, vec![115, 110]), (&other, vec![210])] {
        let found = store.attestation_sizes(org.id, &[115, 210, 999, 110, 115].map(id)).await?;
        ensure(found.iter().all(|one| one.bytes > 0), "all have a size")?;
        let ids = BTreeSet::from_iter(found.iter().map(|one| one.id));
        same("once each", (found.len(), ids), (expected.len(), expected.into_iter().map(id).collect()))?;
    }
    Ok(())
}

async fn trails_are_found_by_commit(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let (a, b, c) = ("a".repeat(40), "b".repeat(40), "c".repeat(40));
    let named_commit = |sha1: &str| Some(GitCommit { sha1: named(sha1), ..bare_commit() });
    let on = |n, flow, name: &str, sha1: &str| {
        let git_commit_info = named_commit(sha1);
        Trail { git_commit_info, ..trail(n, flow, name) }
    };
    let begun = |n, flow, name: &str, sha1: &str| Fact::TrailBegun { record: on(n, flow, name, sha1) };
    let attested = |n, trail, sha1: &str| {
        let git_commit_info = named_commit(sha1);
        Fact::AttestationAdded {
            record: Attestation { git_commit_info, ..attestation(n, 100, trail, "scan") },
        }
    };
    org.record(vec![flow_created(100, "f"), begun(103, 100, "t", &a), trail_begun(101, 100, "u")]).await?;
    org.record(vec![begun(102, 100, "v", "aaaaaaa"), attested(110, 101, &a), attested(111, 101, &a)]).await?;
    org.record(vec![attested(112, 101, &b), attested(113, 101, ""), attested(114, 103, &a)]).await?;
    let artifact = Artifact { git_commit: Some(named(&c)), ..artifact(120, 100, Some(102), "ab") };
    org.record(vec![Fact::ArtifactReported { record: artifact }]).await?;
    let changes = vec!["git_commit_info".to_owned()];
    org.record(vec![Fact::TrailUpdated { record: on(103, 100, "t", &b), changes }]).await?;
    org.record(vec![flow_created(130, "g"), begun(131, 130, "t", &a)]).await?;
    other.record(vec![flow_created(200, "f"), begun(201, 200, "t", &a)]).await?;
    for (org, sha1, flow, before, limit, expected) in [
        (&org, &a, None, None, 9, vec![131, 103, 101]),
        (&org, &a, None, None, 2, vec![131, 103]),
        (&org, &a, None, Some(103), 9, vec![101]),
        (&org, &a, None, Some(101), 9, vec![]),
        (&org, &a, Some(100), None, 1, vec![103]),
        (&org, &a, Some(100), Some(103), 9, vec![101]),
        (&org, &a, Some(130), None, 9, vec![131]),
        (&org, &a, Some(200), None, 9, vec![]),
        (&org, &b, None, None, 9, vec![103, 101]),
        (&org, &b, Some(130), None, 9, vec![]),
        (&org, &c, Some(100), None, 9, vec![102]),
        (&org, &"d".repeat(40), None, None, 9, vec![]),
        (&other, &a, None, None, 9, vec![201]),
        (&other, &c, None, None, 9, vec![]),
    ] {
        let found = store.commit_trails(org.id, &named(sha1), flow.map(id), before.map(id), limit).await?;
        same(
            &format!("{sha1} of {flow:?} before {before:?}"),
            found,
            expected.into_iter().map(id).collect(),
        )?;
    }
    Ok(())
}

/// A decision about a control, recorded at this time.
fn decided(n: u64, flow: u64, control: &str, is_compliant: bool, seconds: i64) -> Fact {
    let details = DecisionDetails {
        control: control.to_owned(),
        control_version: is_compliant.then_some(n),
        attestation_data: JsonText::empty_object(),
    };
    let record = Attestation {
        details: Details::Decision(details),
        is_compliant,
        created_at: at(seconds),
        ..attestation(n, flow, flow + 1, "review")
    };
    Fact::AttestationAdded { record }
}

/// Decisions in two flows, and in another organization; neither ids nor times follow the order of recording.
async fn decisions(store: &Arc<dyn Store>) -> Result<(Org, Org), Failure> {
    let (org, other) = Org::two(store).await?;
    org.record(vec![flow_created(100, "f"), trail_begun(101, 100, "t")]).await?;
    org.record(vec![flow_created(102, "g"), trail_begun(103, 102, "t")]).await?;
    org.record(vec![
        decided(112, 100, "SDLC-4", true, 5),
        decided(110, 102, "SDLC-4", false, -50),
        attestation_added(114, 100, 101, "review"),
        decided(113, 100, "sdlc-4", true, 5),
        decided(111, 100, "SDLC-4", true, 9),
    ])
    .await?;
    other.record(vec![flow_created(200, "f"), trail_begun(201, 200, "t")]).await?;
    other.record(vec![decided(210, 200, "SDLC-4", true, 5)]).await?;
    Ok((org, other))
}

async fn decisions_are_listed_in_the_order_asked(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = decisions(&store).await?;
    for (direction, expected) in
        [(SortDirection::Asc, [112, 110, 111]), (SortDirection::Desc, [111, 110, 112])]
    {
        let filter = DecisionFilter { direction, ..DecisionFilter::default() };
        let page = |asked| store.decisions(org.id, "SDLC-4", &filter, asked);
        paged(&format!("{direction:?}"), &expected.map(id), page, |one| one.id).await?;
        for asked in [PageRequest::ALL, request(1, 1), request(2, 5)] {
            for decision in page(asked).await?.items {
                let whole = store.attestation(org.id, decision.id).await?;
                same("the decision", Some(decision), whole.as_ref().map(DecisionRow::from))?;
            }
        }
    }
    Ok(())
}

async fn decisions_are_narrowed(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = decisions(&store).await?;
    let any = DecisionFilter::default;
    let flows = |flows: &[u64]| Some(flows.iter().map(|n| id(*n)).collect());
    let cases = [
        (&org, "SDLC-4", any(), vec![112, 110, 111]),
        (&org, "sdlc-4", any(), vec![113]),
        (&org, "SDLC-", any(), vec![]),
        (&org, "", any(), vec![]),
        (&other, "SDLC-4", any(), vec![210]),
        (&other, "sdlc-4", any(), vec![]),
        (&org, "SDLC-4", DecisionFilter { is_compliant: Some(true), ..any() }, vec![112, 111]),
        (&org, "SDLC-4", DecisionFilter { is_compliant: Some(false), ..any() }, vec![110]),
        (&org, "SDLC-4", DecisionFilter { from: Some(at(5)), ..any() }, vec![112, 111]),
        (&org, "SDLC-4", DecisionFilter { to: Some(at(5)), ..any() }, vec![112, 110]),
        (&org, "SDLC-4", DecisionFilter { from: Some(at(6)), to: Some(at(8)), ..any() }, vec![]),
        (&org, "SDLC-4", DecisionFilter { flows: flows(&[]), ..any() }, vec![]),
        (&org, "SDLC-4", DecisionFilter { flows: flows(&[102, 200, 999]), ..any() }, vec![110]),
        (&org, "SDLC-4", DecisionFilter { flows: flows(&[102, 100, 102]), ..any() }, vec![112, 110, 111]),
        (&org, "SDLC-4", DecisionFilter { is_compliant: Some(true), flows: flows(&[102]), ..any() }, vec![]),
    ];
    for (org, control, filter, expected) in cases {
        let found = store.decisions(org.id, control, &filter, PageRequest::ALL).await?;
        let ids: Vec<Id> = found.items.into_iter().map(|one| one.id).collect();
        let expected: Vec<Id> = expected.into_iter().map(id).collect();
        let total = expected.len() as u64;
        same(&format!("{control:?} {filter:?}"), (ids, found.total), (expected, total))?;
    }
    Ok(())
}

async fn decisions_about_each_control_are_paged(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![flow_created(100, "f"), trail_begun(101, 100, "t")]).await?;
    other.record(vec![flow_created(200, "f"), trail_begun(201, 200, "t")]).await?;
    let (mut all, mut n) = (Vec::new(), 1000);
    for write in 0..6 {
        let mut facts = Vec::new();
        for _ in 0..=write {
            n += 1;
            let control = if n % 3 == 0 { "SDLC-1" } else { "SDLC-2" };
            facts.push(decided(n, 100, control, n % 2 == 0, 5));
            all.push((control, n));
        }
        org.record(facts).await?;
        other.record(vec![decided(2000 + write, 200, "SDLC-1", true, 5)]).await?;
    }
    for control in ["SDLC-1", "SDLC-2", "SDLC-3"] {
        for (direction, is_compliant) in [SortDirection::Asc, SortDirection::Desc]
            .into_iter()
            .flat_map(|direction| [None, Some(true)].map(|is_compliant| (direction, is_compliant)))
        {
            let filter = DecisionFilter { direction, is_compliant, ..DecisionFilter::default() };
            let about = all.iter().filter(|(of, n)| *of == control && (is_compliant.is_none() || n % 2 == 0));
            let mut about: Vec<Id> = about.map(|(_, n)| id(*n)).collect();
            if direction == SortDirection::Desc {
                about.reverse();
            }
            let page = |asked| store.decisions(org.id, control, &filter, asked);
            paged(&format!("{control} by {filter:?}"), &about, page, |one| one.id).await?;
        }
    }
    Ok(())
}
