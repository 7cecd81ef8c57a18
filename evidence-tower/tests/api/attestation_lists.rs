//! Lists of attestations: of an organization, of a flow, and about commits.

use std::sync::atomic::{AtomicUsize, Ordering};

use evidence_core::Fact;
use evidence_core::attestations::Attestation;
use evidence_core::compute::{ComputePool, Job};
use evidence_core::git::GitCommit;
use evidence_core::id::Id;
use evidence_core::trails::Trail;

use crate::support::prelude::*;
use crate::unreadable::inject_all;

const ALL: &str = "/attestations/acme";
const BY_COMMIT: &str = "/attestations/acme/list_attestations_for_criteria";

/// Reports to the trail `t` of a flow a generic attestation with a description that tells it from others.
async fn attest(api: &Api, flow: &str, name: &str, is_compliant: bool, number: usize) {
    let document = json!({
        "attestation_name": name, "is_compliant": is_compliant, "user_data": {}, "description": number.to_string(),
    });
    api.post_attestation(flow, "t", "generic").data_json(&document).await.created();
}

/// The descriptions of a list, which tell its attestations.
fn numbers(list: &Value) -> String {
    let numbers = list.as_array().unwrap().iter().map(|one| one["description"].as_str().unwrap_or("-"));
    numbers.collect::<Vec<_>>().join(" ")
}

macro_rules! with_attestations {
    ($($case:tt)*) => { case_of! { with_attestations: $($case)* } };
}

/// Runs a case with six attestations in three flows, and one of another organization.
fn with_attestations(case: impl AsyncFn(Api)) {
    on_every_store(async |api| {
        for (number, (flow, name, is_compliant)) in (1..).zip([
            ("shop", "unit", true),
            ("tool", "unit", false),
            ("shop", "lint", true),
            ("site", "unit-test", true),
        ]) {
            attest(&api, flow, name, is_compliant, number).await;
        }
        let suite = json!([{"name": "s", "errors": 0, "failures": 0, "skipped": 0, "total": 1, "duration": 1.0, "timestamp": 1.0}]);
        let junit =
            json!({"attestation_name": "unit", "user_data": {}, "description": "5", "junit_results": suite});
        api.attest("junit", &junit).await.created();
        let data = json!({"is_compliant": true});
        let decision = json!({
            "attestation_name": "ok", "user_data": {}, "description": "6", "type_name": "decision",
            "control": "C-1", "attestation_data": data,
        });
        api.attest("system", &decision).await.created();
        api.post("/attestations/foobar/shop/trail/t/generic")
            .key(JOHN)
            .data_json(json!({"attestation_name": "unit", "is_compliant": true, "user_data": {}}))
            .await
            .created();
        case(api).await;
    });
}

#[apply(with_attestations)]
async fn attestations_of_an_organization_are_listed_newest_first(api: Api) {
    let list = api.get(ALL).await.ok();
    assert_eq!(numbers(&list["data"]), "6 5 4 3 2 1");
    let links = json!({"self": {"href": "http://localhost:8001/api/v2/attestations/acme"}});
    assert_eq!(list["_links"], links);
    let by_name = api.get("/attestations/acme/tool/trail/t/unit").await.ok();
    assert_eq!(list["data"][4], by_name[0]);
}

#[apply(with_attestations)]
async fn a_page_of_attestations_leads_to_the_next_until_there_is_none(api: Api) {
    for (query, pages) in [
        ("per_page=2", vec!["6 5", "4 3", "2 1"]),
        ("per_page=4", vec!["6 5 4 3", "2 1"]),
        ("per_page=6", vec!["6 5 4 3 2 1"]),
        ("per_page=1&flow=tool&flow=site", vec!["4", "2"]),
        ("per_page=2&flow=shop&flow=tool&flow=shop", vec!["6 5", "3 2", "1"]),
        ("per_page=1&type=system:decision&type=junit", vec!["6", "5", ""]),
        ("per_page=2&from_timestamp=1&to_timestamp=1783538510.5", vec!["6 5", "4 3", "2 1"]),
        ("per_page=1&name=unit", vec!["5", "2", "1"]),
        ("per_page=1&name_regex=%5Eunit&is_compliant=true&flow=shop", vec!["5", "1", ""]),
    ] {
        let (mut path, mut found) = (format!("{ALL}?{query}"), Vec::new());
        loop {
            let list = api.get(&path).await.ok();
            found.push(numbers(&list["data"]));
            let Some(next) = list["_links"]["next"]["href"].as_str() else { break };
            path = next.strip_prefix("http://localhost:8001/api/v2").unwrap().to_owned();
            assert_eq!(api.get(&path).await.ok()["_links"]["self"]["href"], next, "{query}");
        }
        assert_eq!(found, pages, "{query}");
    }
}

#[apply(with_attestations)]
async fn what_comes_in_meanwhile_is_on_no_later_page(api: Api) {
    for query in ["per_page=4", "per_page=4&flow=shop&flow=tool&flow=site"] {
        let first = api.get(&format!("{ALL}?{query}")).await.ok();
        let next = first["_links"]["next"]["href"].as_str().unwrap();
        attest(&api, "tool", "late", true, 7).await;
        let second = api.get(next.strip_prefix("http://localhost:8001/api/v2").unwrap()).await.ok();
        let shown = format!("{} {}", numbers(&first["data"]), numbers(&second["data"]));
        assert!(shown.ends_with("6 5 4 3 2 1"), "{shown}");
    }
}

#[test]
fn a_list_of_many_flows_is_read_to_its_end() {
    on_every_store(async |api| {
        let flows = Vec::from_iter((1..=20).map(|number| format!("flow{number}")));
        for (number, flow) in (1..).zip(&flows) {
            attest(&api, flow, "unit", true, number).await;
        }
        let flows: String = flows.iter().map(|flow| format!("&flow={flow}")).collect();
        let (mut path, mut found) = (format!("{ALL}?per_page=7{flows}"), Vec::new());
        loop {
            let list = api.get(&path).await.ok();
            found.push(numbers(&list["data"]));
            let Some(next) = list["_links"]["next"]["href"].as_str() else { break };
            path = next.strip_prefix("http://localhost:8001/api/v2").unwrap().to_owned();
        }
        assert_eq!(found, ["20 19 18 17 16 15 14", "13 12 11 10 9 8 7", "6 5 4 3 2 1"]);
    });
}

#[apply(with_attestations)]
async fn attestations_are_narrowed_by_all_that_is_given(api: Api) {
    let id = api.get("/attestations/acme/tool/trail/t/unit").await.ok()[0]["attestation_id"].clone();
    let id = id.as_str().unwrap();
    api.post("/custom-attestation-types/acme").data_json(json!({"name": "known"})).await.created();
    for path in [
        format!("{ALL}?type=junit&type=custom:unknown"),
        format!("{BY_COMMIT}?commit_list={COMMIT}&attestation_type=custom:unknown"),
    ] {
        assert_eq!(api.get(&path).await.error_message(404), "Custom attestation type not found", "{path}");
    }
    for (query, expected) in [
        ("name=unit".to_owned(), "5 2 1"),
        ("name=Unit".to_owned(), ""),
        ("name=".to_owned(), ""),
        ("name_regex=unit".to_owned(), "5 4 2 1"),
        ("name_regex=^unit$".to_owned(), "5 2 1"),
        ("name_regex=(?i)LINT|^ok".to_owned(), "6 3"),
        ("flow=shop".to_owned(), "6 5 3 1"),
        ("flow=tool&flow=site".to_owned(), "4 2"),
        ("type=junit".to_owned(), "5"),
        ("type=decision".to_owned(), "6"),
        ("type=system:decision&type=junit".to_owned(), "6 5"),
        ("type=custom:known".to_owned(), ""),
        ("type=system:junit".to_owned(), ""),
        ("is_compliant=false".to_owned(), "2"),
        ("is_compliant=true&type=generic".to_owned(), "4 3 1"),
        ("from_timestamp=1783538510&to_timestamp=1783538510".to_owned(), "6 5 4 3 2 1"),
        ("from_timestamp=1783538511".to_owned(), ""),
        ("to_timestamp=1783538509".to_owned(), ""),
        (format!("attestation_id={id}"), "2"),
        (format!("attestation_id={id}&name=unit&flow=tool"), "2"),
        (format!("attestation_id={id}&flow=shop"), ""),
        (format!("attestation_id={id}&is_compliant=true"), ""),
        ("attestation_id=999".to_owned(), ""),
    ] {
        let list = api.get(&format!("{ALL}?{query}")).await.ok();
        assert_eq!(numbers(&list["data"]), expected, "{query}");
        assert_eq!(list["_links"]["next"], Value::Null, "{query}");
    }
}

#[test]
fn what_narrows_no_list_of_attestations_is_refused() {
    on_every_store(async |api| {
        attest(&api, "shop", "unit", true, 1).await;
        let regex = "query.name_regex";
        for (query, field, text) in [
            ("name=a&name_regex=b", regex, "name_regex cannot be combined with name"),
            ("name_regex=(", regex, "error: unclosed group"),
            ("name_regex=(a)%5C1", regex, "error: backreferences are not supported"),
            ("after=x", "query.after", "Input should be the cursor of a page of this list"),
            ("after=f1", "query.after", "Input should be the cursor of a page of this list"),
            ("flow=shop&after=1", "query.after", "Input should be the cursor of a page of this list"),
            ("flow=shop&after=f1.2", "query.after", "Input should be the cursor of a page of this list"),
            ("per_page=0", "query.per_page", "Input should be greater than or equal to 1 [input: 0]"),
            ("per_page=101", "query.per_page", "Input should be less than or equal to 100 [input: 101]"),
        ] {
            api.get(&format!("{ALL}?{query}")).await.expect_errors(400, INVALID, &[(field, text)]);
        }
        for kind in ["unit", "", "custom:", "*", "system:a%20b"] {
            api.get(&format!("{ALL}?type={kind}")).await.expect_field_error(400, "query.type[0]");
        }
        for query in ["is_compliant=maybe", "from_timestamp=x", "to_timestamp=x"] {
            let field = format!("query.{}", query.split('=').next().unwrap());
            api.get(&format!("{ALL}?{query}")).await.expect_field_error(400, &field);
        }
        for path in
            [format!("{ALL}?flow=shop&flow=none"), format!("{BY_COMMIT}?commit_list={COMMIT}&flow_name=none")]
        {
            assert_eq!(api.get(&path).await.error_message(404), "Flow not found", "{path}");
        }
        let flows: String = (0..21).map(|_| "&flow=shop").collect();
        api.get(&format!("{ALL}?per_page=1{flows}")).await.expect_field_error(400, "query.flow");
    });
}

#[apply(with_attestations)]
async fn attestations_of_a_flow_are_listed_in_pages(api: Api) {
    let page = |page: u64, per_page: u64, page_count: u64| json!({"total": 4, "page": page, "per_page": per_page, "page_count": page_count});
    for (query, expected, pagination) in [
        ("", "6 5 3 1", page(1, 20, 1)),
        ("?per_page=3", "6 5 3", page(1, 3, 2)),
        ("?per_page=3&page=2", "1", page(2, 3, 2)),
        ("?per_page=3&page=3", "", page(3, 3, 2)),
        ("?from_timestamp=1783538510", "6 5 3 1", page(1, 20, 1)),
    ] {
        let list = api.get(&format!("{ALL}/shop{query}")).await.ok();
        assert_eq!(
            (numbers(&list["data"]), &list["pagination"]),
            (expected.to_owned(), &pagination),
            "{query}"
        );
    }
    let none = api.get(&format!("{ALL}/shop?to_timestamp=1783538509")).await.ok();
    assert_eq!((&none["data"], &none["pagination"]["total"]), (&json!([]), &json!(0)));
    assert_eq!(api.get(&format!("{ALL}/none")).await.error_message(404), "Flow not found");
    api.get(&format!("{ALL}/shop?page=0")).await.expect_field_error(400, "query.page");
    api.get(&format!("{ALL}/shop?per_page=101")).await.expect_field_error(400, "query.per_page");
}

/// Reports an attestation that is about a trail, or about the artifact with this fingerprint, and names a commit or none.
async fn about(api: &Api, trail: &str, number: usize, fingerprint: Option<&str>, commit: Option<&str>) {
    let commit = commit.map(|sha1| json!({"sha1": sha1, "message": "m", "author": "a", "timestamp": 1}));
    let document = json!({
        "attestation_name": format!("check{number}"), "is_compliant": true, "user_data": {},
        "description": number.to_string(), "artifact_fingerprint": fingerprint, "git_commit_info": commit,
    });
    api.post_attestation("shop", trail, "generic").data_json(&document).await.created();
}

#[test]
fn attestations_are_found_by_the_commit_that_they_are_about() {
    let [own, built, begun] = ["a", "b", "c"].map(|digit| digit.repeat(40));
    let [with, without] = ["d", "e"].map(|digit| digit.repeat(64));
    on_every_store(async |api| {
        let commit = json!({"sha1": begun, "message": "m", "author": "a", "timestamp": 1});
        api.put_trail("shop", &json!({"name": "t", "description": "", "git_commit_info": commit}))
            .await
            .created();
        for (fingerprint, commit) in [(&with, Some(&built)), (&without, None)] {
            api.post_artifact("shop", fingerprint)
                .with(json!({
                    "trail_name": "t", "git_commit": commit, "build_url": "https://b/1",
                    "commit_url": "https://c/1",
                }))
                .await
                .created();
        }
        about(&api, "t", 1, None, None).await;
        about(&api, "t", 2, Some(&with), None).await;
        about(&api, "t", 3, Some(&without), None).await;
        about(&api, "t", 4, Some(&with), Some(&own)).await;
        about(&api, "t", 5, None, Some(&own)).await;
        about(&api, "u", 6, None, Some(&own)).await;
        about(&api, "u", 7, None, None).await;
        about(&api, "u", 8, None, Some("aaaaaaa")).await;
        let five = api.get("/attestations/acme/shop/trail/t/check5").await.ok()[0]["attestation_id"].clone();
        let five = five.as_str().unwrap();
        for (query, expected) in [
            (format!("commit_list={own}"), vec![(&own, "6 5 4")]),
            (format!("commit_list={built}"), vec![(&built, "2")]),
            (format!("commit_list={begun}"), vec![(&begun, "3 1")]),
            (
                format!("commit_list={built}&commit_list={own}&commit_list={built}"),
                vec![(&built, "2"), (&own, "6 5 4")],
            ),
            (format!("commit_list={own}&attestation_name=check5"), vec![(&own, "5")]),
            (format!("commit_list={own}&attestation_type=junit"), vec![(&own, "")]),
            (format!("commit_list={own}&attestation_type=generic&flow_name=shop"), vec![(&own, "6 5 4")]),
            (format!("commit_list={own}&attestation_id={five}"), vec![(&own, "5")]),
            (
                format!("commit_list={built}&commit_list={own}&attestation_id={five}"),
                vec![(&built, ""), (&own, "5")],
            ),
            (format!("commit_list={own}&attestation_id=x"), vec![(&own, "")]),
        ] {
            let found = api.get(&format!("{BY_COMMIT}?{query}")).await.ok();
            let expected: Vec<_> =
                expected.into_iter().map(|(commit, list)| (commit.clone(), list.to_owned())).collect();
            let mut wanted = expected.clone();
            wanted.sort();
            let found =
                found.as_object().unwrap().iter().map(|(commit, list)| (commit.clone(), numbers(list)));
            let mut found = Vec::from_iter(found);
            found.sort();
            assert_eq!(found, wanted, "{query}");
        }
        let of_shop = api.get(&format!("{BY_COMMIT}?commit_list={own}")).await.ok();
        let newest = api.get("/attestations/acme/shop/trail/u/check6").await.ok();
        assert_eq!(of_shop[&own][0], newest[0]);

        api.given_flow("tool", TEMPLATE).await;
        let elsewhere = api.get(&format!("{BY_COMMIT}?commit_list={own}&flow_name=tool")).await.ok();
        assert_eq!(elsewhere, json!({ &own: [] }));
    });
}

/// An id that a service of the tests does not give.
fn numbered_id(number: usize) -> Id {
    format!("00000000-0000-0000-0000-{number:08x}").parse().unwrap()
}

/// The newest attestation.
async fn newest(store: &dyn Store, org: Id) -> Attestation {
    let newest = store.attestations_before(org, u64::MAX, 1).await.unwrap();
    store.attestation(org, newest[0].id).await.unwrap().unwrap()
}

fn described(number: usize) -> Option<String> {
    Some(number.to_string())
}

#[apply(with_every_store)]
async fn all_trails_of_a_commit_are_gone_through(api: Api, store: Arc<dyn Store>) {
    const MANY: usize = 501;
    attest(&api, "tool", "unit", true, 0).await;
    let org = acme(&*store).await;
    attest(&api, "shop", "unit", true, 0).await;
    let attestation = newest(&*store, org).await;
    let trail = store.trail(org, attestation.flow, "t").await.unwrap().unwrap().record;
    let commit: GitCommit = serde_json::from_value(json!({"sha1": COMMIT})).unwrap();
    let reported = |number: usize| {
        let trail = Trail {
            id: numbered_id(2 * number),
            name: format!("t{number}").parse().unwrap(),
            git_commit_info: Some(commit.clone()),
            ..trail.clone()
        };
        let attestation = Attestation {
            id: numbered_id(2 * number + 1),
            trail: trail.id,
            description: described(number),
            ..attestation.clone()
        };
        [Fact::TrailBegun { record: trail }, Fact::AttestationAdded { record: attestation }]
    };
    inject_all(&*store, org, (1..=MANY).flat_map(reported).collect()).await;
    let all = Vec::from_iter((1..=MANY).rev().map(|number| number.to_string())).join(" ");
    for (query, expected) in [("", &*all), ("&flow_name=shop", &all), ("&flow_name=tool", "")] {
        let found = api.get(&format!("{BY_COMMIT}?commit_list={COMMIT}{query}")).await.ok();
        assert_eq!(numbers(&found[COMMIT]), expected, "{query}");
    }
}

/// Counts what it is given.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl ComputePool for Counting {
    fn parallelism(&self) -> usize {
        2
    }

    fn spawn(&self, job: Job) {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::thread::spawn(job);
    }
}

#[tokio::test]
async fn a_page_ends_after_many_that_do_not_match_and_the_next_goes_on_there() {
    // Of these a page looks at some more than fifty thousand.
    const MANY: usize = 70_000;
    let (store, pool) = (Arc::new(MemoryStore::new()), Counting::default());
    let evidence = fixture(Arc::clone(&store) as _, Settings::default()).await;
    let api = Api::new(evidence.with_compute_pool(pool.clone()), Mount::Tower, "memory").await;
    attest(&api, "tool", "unit", true, 0).await;
    let org = acme(&*store).await;
    let of_tool = newest(&*store, org).await;
    attest(&api, "shop", "unit", true, 0).await;
    let of_shop = newest(&*store, org).await;
    let is_rare = |number: usize| number % 9_000 == 5;
    let reported = |number: usize| {
        let like = if number.is_multiple_of(3) { &of_tool } else { &of_shop };
        let name = if is_rare(number) { "rare" } else { "frequent" };
        let record = Attestation {
            id: numbered_id(number),
            name: name.parse().unwrap(),
            description: described(number),
            ..like.clone()
        };
        Fact::AttestationAdded { record }
    };
    inject_all(&*store, org, (1..=MANY).map(reported).collect()).await;
    let all = (1..=MANY).rev().filter(|number| is_rare(*number)).map(|number| number.to_string());
    let all = Vec::from_iter(all).join(" ");
    for flows in ["", "&flow=shop&flow=tool"] {
        let mut by_filter = Vec::new();
        for (filter, in_pool) in [("name=rare", false), ("name_regex=%5Erare$", true)] {
            let before = pool.0.load(Ordering::Relaxed);
            let (mut after, mut pages) = (String::new(), Vec::new());
            loop {
                let list = api.get(&format!("{ALL}?{filter}{flows}&per_page=10{after}")).await.ok();
                pages.push((numbers(&list["data"]), after));
                let Some(next) = list["_links"]["next"]["href"].as_str() else { break };
                let (_, cursor) = next.split_once("&after=").or(next.split_once("?after=")).unwrap();
                after = format!("&after={}", cursor.split('&').next().unwrap());
            }
            assert_eq!(pool.0.load(Ordering::Relaxed) > before, in_pool, "{filter}{flows}");
            by_filter.push(pages);
        }
        let pages = &by_filter[0];
        assert_eq!(&by_filter[1], pages, "{flows}");
        assert!(pages.len() > 1, "{flows}: {pages:?}");
        let shown = pages.iter().map(|(numbers, _)| numbers.as_str());
        assert_eq!(Vec::from_iter(shown).join(" "), all, "{flows}");
    }
}

#[apply(on_every_store)]
async fn commits_are_required_and_in_full(api: Api) {
    let text = "commit_list is required: provide one or more commit SHAs to search.";
    api.get(BY_COMMIT).await.expect_errors(400, text, &[("query.commit_list", "Field required")]);
    for wrong in ["", "aaaaaaa", &"A".repeat(40), &"a".repeat(41)] {
        api.get(&format!("{BY_COMMIT}?commit_list={wrong}"))
            .await
            .expect_field_error(400, "query.commit_list[0]");
    }
    let many: String = (0..101).map(|number| format!("&commit_list={number:040x}")).collect();
    api.get(&format!("{BY_COMMIT}?{}", &many[1..])).await.expect_field_error(400, "query.commit_list");
    let kind = format!("{BY_COMMIT}?commit_list={COMMIT}&attestation_type=none");
    api.get(&kind).await.expect_field_error(400, "query.attestation_type");
}
