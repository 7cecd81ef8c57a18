//! Checks of [`evidence_core::flows::FlowStore`].

use std::sync::Arc;

use evidence_core::artifacts::Artifact;
use evidence_core::attestations::Attestation;
use evidence_core::fact::{Fact, Key, Precondition};
use evidence_core::flows::{Flow, FlowFilter, Visibility};
use evidence_core::id::Id;
use evidence_core::page::PageRequest;
use evidence_core::repos::RepoInfo;
use evidence_core::store::{Current, Store};
use evidence_core::tags::TagFilter;
use evidence_core::texts::TextRef;
use evidence_core::trails::Trail;

use super::fixtures::{
    Org, artifact, at, attestation, awkward, bare_repo_info, flow, flow_created, id, named, robot, tags,
    trail, trail_begun,
};
use super::shared::paged;
use super::texts::kept;
use super::{Failure, Outcome, conflict, ensure, promises, same, same_set};

promises! {
    flows_read_back: "Flows are what was recorded last.",
    names_compare_by_bytes: "Names compare by bytes; what does not exist is `None`.",
    flows_by_id_pass_over_unknown_ids: "`flows_by_id` passes over unknown ids and other organizations' flows.",
    flows_are_listed_by_name: "`flows` is ordered by name (bytes), with the total of the whole.",
    pages_have_the_right_total: "A page past the end is empty, with the right total.",
    searches_take_characters_literally: "`%` and `_` are ordinary characters; case matters unless it is ignored.",
    renamed_flows_answer_to_former_names: "A flow is found by a former name until another flow claims that.",
    archived_flows_are_in_no_list: "A flow that was archived is found by its new name and its id, and is in no list.",
    repos_of_flows_follow_the_reports: "`flow_repo_urls` tells the address that a trail, an artifact or an attestation of the flow named last.",
    tags_must_all_match: "Tag filters must all match, by key or by key and value.",
}

/// A template.
const TEXT: &str = "version: 1\ntrail:\r\n  attestations: []\n";

async fn flows_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let full = Flow {
        description: awkward(),
        visibility: Visibility::Public,
        template: Some(TextRef::of(TEXT)),
        tags: tags(&[("a", "1"), ("b.c", &awkward())]),
        created_by: robot(),
        ..flow(100, "known")
    };
    org.record(vec![kept(TEXT), Fact::FlowCreated { record: full.clone() }]).await?;
    same("created", store.flow(org.id, "known").await?, Some(Current { revision: 2, record: full.clone() }))?;
    let updated = Flow { template_id: id(101), ..flow(100, "known") };
    org.record(vec![Fact::FlowUpdated { record: updated.clone() }]).await?;
    same("updated", store.flow(org.id, "known").await?, Some(Current { revision: 3, record: updated }))?;
    org.record(vec![Fact::FlowTagged { record: full.clone() }]).await?;
    same("tagged", store.flow(org.id, "known").await?, Some(Current { revision: 4, record: full.clone() }))?;
    same("by id", store.flows_by_id(org.id, &[id(100)]).await?, vec![full.clone()])?;
    let listed = store.flows(org.id, &FlowFilter::default(), PageRequest::ALL).await?;
    same("listed", (listed.items.len(), listed.total), (1, 1))?;
    let (found, least) = (&listed.items[0], full.description.len() as u64);
    same("the flow", found.id, full.id)?;
    ensure((least..least + 2_000).contains(&found.bytes), &format!("{} bytes of a flow", found.bytes))
}

async fn names_compare_by_bytes(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![flow_created(100, "known")]).await?;
    for name in ["Known", "know", "knownn", "%", "k_own", "", "known\n", "knöwn"] {
        same(name, store.flow(org.id, name).await?, None)?;
    }
    same("in another organization", store.flow(other.id, "known").await?, None)?;
    same("in no organization", store.flow(id(3), "known").await?, None)
}

async fn flows_by_id_pass_over_unknown_ids(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![flow_created(100, "a"), flow_created(101, "b"), flow_created(102, "c")]).await?;
    other.record(vec![flow_created(200, "a")]).await?;
    let asked = [102, 999, 200, 100, 100].map(id);
    let expected = vec![flow(100, "a"), flow(102, "c")];
    same_set("the flows", store.flows_by_id(org.id, &asked).await?, expected)?;
    same("no ids", store.flows_by_id(org.id, &[]).await?, Vec::new())
}

async fn listed(org: &Org, filter: FlowFilter) -> Result<Vec<String>, Failure> {
    let flows = org.store.flows(org.id, &filter, PageRequest::ALL).await?;
    same("the total", flows.total, flows.items.len() as u64)?;
    let mut names = Vec::with_capacity(flows.items.len());
    for flow in flows.items {
        let found = org.store.flows_by_id(org.id, &[flow.id]).await?;
        names.extend(found.into_iter().map(|flow| flow.name.into_string()));
    }
    Ok(names)
}

async fn flows_are_listed_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let names = ["b", "a", "B", "a.b", "a-b", "A", "aa", "1", "a~", "a_b", "10", "2"];
    org.record((100..).zip(names).map(|(n, name)| flow_created(n, name)).collect()).await?;
    other.record(vec![flow_created(200, "a"), flow_created(201, "0")]).await?;
    let mut sorted = names.map(ToOwned::to_owned).to_vec();
    sorted.sort();
    same("the flows", listed(&org, FlowFilter::default()).await?, sorted)
}

async fn pages_have_the_right_total(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record((0..5).map(|n| flow_created(100 + n, &format!("f{n}"))).collect()).await?;
    other.record(vec![flow_created(200, "f9")]).await?;
    let filter = FlowFilter::default();
    let flows = [100, 101, 102, 103, 104].map(id);
    paged("the flows", &flows, |asked| store.flows(org.id, &filter, asked), |flow| flow.id).await
}

async fn searches_take_characters_literally(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let names = ["Backend", "a_b", "axb", "backend-2", "front~end"];
    org.record((100..).zip(names).map(|(n, name)| flow_created(n, name)).collect()).await?;
    other.record(vec![flow_created(200, "backend")]).await?;
    let cases: [(&str, bool, &[&str]); 14] = [
        ("backend", false, &["backend-2"]),
        ("backend", true, &["Backend", "backend-2"]),
        ("BACKEND", false, &[]),
        ("BACKEND", true, &["Backend", "backend-2"]),
        ("end", false, &["Backend", "backend-2", "front~end"]),
        ("_", false, &["a_b"]),
        ("_", true, &["a_b"]),
        ("a_b", false, &["a_b"]),
        ("%", false, &[]),
        ("b%d", true, &[]),
        ("\\", false, &[]),
        ("*", false, &[]),
        ("BÄCK", true, &[]),
        ("\u{212a}", true, &[]),
    ];
    for (part, ignore_case, expected) in cases {
        let filter = FlowFilter { name: Some(part.to_owned()), ignore_case, tags: Vec::new() };
        let found = listed(&org, filter).await?;
        let expected: Vec<_> = expected.iter().map(|name| (*name).to_owned()).collect();
        same(&format!("flows with {part:?}, case ignored: {ignore_case}"), found, expected)?;
    }
    Ok(())
}

async fn tags_must_all_match(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let tagged = |n, name, pairs: &[(&str, &str)]| Fact::FlowCreated {
        record: Flow { tags: tags(pairs), ..flow(n, name) },
    };
    org.record(vec![
        tagged(100, "a", &[("team", "red"), ("tier", "1")]),
        tagged(101, "b", &[("team", "Red")]),
        tagged(102, "c", &[("team", ""), ("x.y", "100%")]),
        tagged(103, "d", &[]),
    ])
    .await?;
    let cases: [(&[&str], &[&str]); 9] = [
        (&["team"], &["a", "b", "c"]),
        (&["team:red"], &["a"]),
        (&["team:"], &["c"]),
        (&["team", "tier"], &["a"]),
        (&["team:red", "tier:2"], &[]),
        (&["Team"], &[]),
        (&["te_m"], &[]),
        (&["x.y:100%"], &["c"]),
        (&["x"], &[]),
    ];
    for (asked, expected) in cases {
        let filters = asked.iter().map(|tag| TagFilter::parse(tag, ':')).collect();
        let found = listed(&org, FlowFilter { tags: filters, ..FlowFilter::default() }).await?;
        same(&format!("{asked:?}"), found, expected.iter().map(|name| (*name).to_owned()).collect())?;
    }
    Ok(())
}

/// The ids of the flows that these names lead to.
async fn named_flows(org: &Org, names: &[&str]) -> Result<Vec<Option<Id>>, Failure> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        found.push(org.store.flow(org.id, name).await?.map(|flow| flow.record.id));
    }
    Ok(found)
}

async fn renamed_flows_answer_to_former_names(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![flow_created(100, "a"), flow_created(101, "x")]).await?;
    other.record(vec![flow_created(200, "a")]).await?;
    let renamed = Fact::FlowRenamed { record: flow(100, "b"), was: named("a") };
    org.record(vec![renamed]).await?;
    let expected = Some(Current { revision: 3, record: flow(100, "b") });
    same("by the former name", store.flow(org.id, "a").await?, expected.clone())?;
    same("by the name", store.flow(org.id, "b").await?, expected)?;
    same("the list", listed(&org, FlowFilter::default()).await?, vec!["b".to_owned(), "x".to_owned()])?;
    same("another organization's", named_flows(&other, &["a", "b"]).await?, vec![Some(id(200)), None])?;
    let denotes = vec![Precondition::Denotes(Key::Flow(named("a")), id(100))];
    org.attempt(vec![trail_begun(110, 100, "t")], denotes.clone()).await?;
    org.attempt(vec![flow_created(102, "a")], vec![Precondition::Vacant(Key::Flow(named("a")))]).await?;
    conflict("the former name", org.attempt(vec![trail_begun(111, 100, "u")], denotes).await)?;
    let expected = vec![Some(id(102)), Some(id(100)), Some(id(101))];
    same("after another flow claimed it", named_flows(&org, &["a", "b", "x"]).await?, expected)
}

async fn archived_flows_are_in_no_list(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let created = vec![flow_created(100, "a"), flow_created(101, "c")];
    org.record(created.clone()).await?;
    other.record(vec![flow_created(200, "a"), flow_created(201, "c")]).await?;
    org.record(vec![Fact::FlowRenamed { record: flow(100, "b"), was: named("a") }]).await?;
    let archived =
        Flow { archived_at: Some(at(9)), tags: tags(&[("team", "red")]), ..flow(100, "b-archived") };
    org.record(vec![Fact::FlowArchived { record: archived.clone(), was: named("b") }]).await?;
    let found = vec![None, None, Some(id(100)), Some(id(101))];
    same("the names", named_flows(&org, &["a", "b", "b-archived", "c"]).await?, found)?;
    let expected = Some(Current { revision: 4, record: archived.clone() });
    same("the flow", store.flow(org.id, "b-archived").await?, expected)?;
    same("by id", store.flows_by_id(org.id, &[id(100)]).await?, vec![archived])?;
    same("the list", listed(&org, FlowFilter::default()).await?, vec!["c".to_owned()])?;
    let tagged = FlowFilter { tags: vec![TagFilter::parse("team", ':')], ..FlowFilter::default() };
    same("a narrowed list", listed(&org, tagged).await?, Vec::new())?;
    let other_names = named_flows(&other, &["a", "c"]).await?;
    same("another organization's", other_names, vec![Some(id(200)), Some(id(201))])?;
    // A name is given up and claimed, and claimed by another, in one write.
    let again = Flow { archived_at: Some(at(9)), ..flow(102, "b") };
    org.record(vec![
        flow_created(102, "b"),
        Fact::FlowArchived { record: again, was: named("b") },
        flow_created(103, "a"),
    ])
    .await?;
    same("the names", named_flows(&org, &["a", "b"]).await?, vec![Some(id(103)), Some(id(102))])?;
    same("the list", listed(&org, FlowFilter::default()).await?, vec!["a".to_owned(), "c".to_owned()])
}

async fn repos_of_flows_follow_the_reports(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let flows = vec![flow_created(100, "a"), flow_created(101, "b"), flow_created(102, "c")];
    org.record(flows).await?;
    other.record(vec![flow_created(200, "a")]).await?;
    let repo = |url: &str| Some(RepoInfo { url: named(url), ..bare_repo_info("acme/r") });
    let of =
        |n: u64, flow: u64, url: &str| Trail { repo_info: repo(url), ..trail(n, flow, &format!("t{n}")) };
    let begun = |record: Trail| vec![Fact::TrailBegun { record }];
    let updated =
        |record: Trail, change: &str| vec![Fact::TrailUpdated { record, changes: vec![change.to_owned()] }];
    let reported = |n: u64, flow: u64, trail: u64, url: &str, told: &str| {
        let record = Artifact {
            repo_url: url.to_owned(),
            repo_info: repo(told).filter(|_| !told.is_empty()),
            ..artifact(n, flow, Some(trail), "aa")
        };
        vec![Fact::ArtifactReported { record }]
    };
    let attested = |n: u64, flow: u64, trail: u64, url: &str| {
        let record = Attestation { repo_info: repo(url), ..attestation(n, flow, trail, "x") };
        vec![Fact::AttestationAdded { record }]
    };
    let steps = [
        (begun(of(110, 100, "")), [None, None]),
        (begun(of(111, 101, "https://e/b")), [None, Some("https://e/b")]),
        (reported(120, 100, 110, "https://e/1", ""), [Some("https://e/1"), Some("https://e/b")]),
        (reported(121, 100, 110, "https://e/1", "https://e/2"), [Some("https://e/2"), Some("https://e/b")]),
        (reported(122, 100, 110, "", ""), [Some("https://e/2"), Some("https://e/b")]),
        (attested(130, 100, 110, "https://e/3"), [Some("https://e/3"), Some("https://e/b")]),
        (updated(of(111, 101, "https://e/b"), "description"), [Some("https://e/3"), Some("https://e/b")]),
        (updated(of(110, 100, "https://e/4"), "description"), [Some("https://e/3"), Some("https://e/b")]),
        (updated(of(110, 100, "https://e/5"), "repo_info"), [Some("https://e/5"), Some("https://e/b")]),
        (attested(131, 100, 110, ""), [Some("https://e/5"), Some("https://e/b")]),
        (
            [attested(132, 101, 111, "https://e/6"), attested(133, 101, 111, "https://e/7")].concat(),
            [Some("https://e/5"), Some("https://e/7")],
        ),
    ];
    let asked = [101, 999, 200, 102, 100, 100].map(id);
    for (number, (facts, expected)) in steps.into_iter().enumerate() {
        org.record(facts).await?;
        let named = [100, 101].into_iter().zip(expected);
        let expected = named.filter_map(|(flow, url)| Some((id(flow), url?.to_owned()))).collect();
        same_set(&format!("step {number}"), store.flow_repo_urls(org.id, &asked).await?, expected)?;
        same("in another organization", store.flow_repo_urls(other.id, &asked).await?, Vec::new())?;
    }
    same("no flows", store.flow_repo_urls(org.id, &[]).await?, Vec::new())
}
