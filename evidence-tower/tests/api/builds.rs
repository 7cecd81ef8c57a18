//! Builds: the first report of each artifact, listed and counted.

use crate::support::prelude::*;

const LIST: &str = "/builds/acme";
const STATISTICS: &str = "/builds/acme/statistics";
/// When everything is reported.
const NOW: f64 = 1_783_538_510.0;

/// Reports the artifact whose fingerprint consists of this digit, to a trail where one is given.
async fn report(api: &Api, digit: char, trail: Option<&str>, repo: Option<&Value>) {
    let more = json!({"trail_name": trail, "repo_info": repo});
    api.post_artifact("shop", fingerprint(digit)).with(more).await.created();
}

fn shop() -> Value {
    json!({"name": "acme/shop", "url": "https://github.com/acme/shop", "id": "7", "provider": "github"})
}

fn tool() -> Value {
    json!({"name": "tool", "url": "/srv/git/tool"})
}

macro_rules! with_builds {
    ($($case:tt)*) => { case_of! { with_builds: $($case)* } };
}

/// Runs a case with three builds: of two repos and of none, and one of another artifact's content again.
fn with_builds(case: impl AsyncFn(Api)) {
    on_every_store(async |api| {
        report(&api, 'a', Some("t1"), Some(&shop())).await;
        report(&api, 'b', None, None).await;
        report(&api, 'a', Some("t2"), Some(&tool())).await;
        report(&api, 'c', Some("t1"), Some(&tool())).await;
        case(api).await;
    });
}

/// The first digits of the fingerprints of a list.
async fn digits(api: &Api, query: &str) -> String {
    let list = api.get(&format!("{LIST}?{query}")).await.ok();
    let statistics = api.get(&format!("{STATISTICS}?{query}")).await.ok();
    let builds = list["builds"].as_array().unwrap();
    let times: Vec<&Value> = builds.iter().map(|build| &build["created_at"]).collect();
    assert_eq!(statistics["count"], builds.len(), "{query}");
    assert_eq!(statistics["built_at"], json!(times), "{query}");
    builds.iter().map(|build| &build["fingerprint"].as_str().unwrap()[..1]).collect()
}

#[apply(with_builds)]
async fn a_build_is_the_first_report_of_an_artifact(api: Api) {
    let list = api.get(LIST).await.ok();
    let build = |digit: char, trail: &str, repo: Value| {
        json!({
            "created_at": NOW, "fingerprint": fingerprint(digit), "flow_name": "shop", "trail_name": trail,
            "repo_info": repo,
        })
    };
    let builds = [
        build('c', "t1", json!({"name": "tool", "repo_id": ""})),
        build('b', "", Value::Null),
        build('a', "t1", json!({"name": "acme/shop", "repo_id": "7"})),
    ];
    api.get(LIST).await.expect(
        200,
        json!({"page": 1, "per_page": 15, "total_pages": 1, "total_count": 3, "builds": builds}),
    );
    let known = ["_links", "builds", "page", "per_page", "total_count", "total_pages"];
    assert_eq!(fields(&list), known);
    let known = ["_links", "created_at", "fingerprint", "flow_name", "repo_info", "trail_name"];
    assert_eq!(fields(&list["builds"][0]), known);
    let links = &list["builds"][2]["_links"];
    let report =
        api.get(&format!("/artifacts/acme/shop/fingerprint/{}?trail=t1", fingerprint('a'))).await.ok();
    assert_eq!(
        (&links["html"]["href"], &links["artifact"]["href"]),
        (&report["html_url"], &report["api_url"])
    );
}

#[test]
fn builds_have_the_repo_as_it_is_called_now() {
    on_every_store(async |api| {
        report(&api, 'a', None, Some(&shop())).await;
        let mut renamed = shop();
        renamed["name"] = json!("corp/shop");
        report(&api, 'b', None, Some(&renamed)).await;
        let repo = json!({"repo_info": {"name": "corp/shop", "repo_id": "7"}});
        api.get(LIST).await.expect(200, json!({"builds": [repo, repo]}));
        assert_eq!(digits(&api, "repo_name=corp/shop").await, "ba");
        assert_eq!(
            api.get(&format!("{LIST}?repo_name=acme/shop")).await.error_message(404),
            "Repo not found"
        );
    });
}

#[apply(with_builds)]
async fn builds_are_narrowed_by_repo_and_window(api: Api) {
    let repos = api.get("/repos/acme?name=tool").await.ok();
    let inner = repos["repos"][0]["id"].as_str().unwrap();
    let table = [
        (String::new(), "cba"),
        ("repo_name=acme/shop".to_owned(), "a"),
        ("repo_id=7".to_owned(), "a"),
        (format!("repo_inner_id={inner}"), "c"),
        // The first of the three decides.
        (format!("repo_inner_id={inner}&repo_id=7&repo_name=none"), "c"),
        ("repo_id=7&repo_name=none".to_owned(), "a"),
        ("repo_inner_id=&repo_id=&repo_name=".to_owned(), "cba"),
        ("start_ts=1783538510&end_ts=1783538510".to_owned(), "cba"),
        ("start_ts=1783538510.000001&end_ts=1783538511".to_owned(), ""),
        ("end_ts=1783538509.999999".to_owned(), ""),
        ("end_ts=1785957710".to_owned(), "cba"),
        ("end_ts=1785957711".to_owned(), ""),
        ("start_ts=1783538511&end_ts=1783538509".to_owned(), ""),
        ("start_ts=-1000000000000&end_ts=1e12&repo_name=tool".to_owned(), "c"),
    ];
    for (query, expected) in table {
        assert_eq!(digits(&api, &query).await, expected, "{query}");
    }
}

#[apply(with_builds)]
async fn builds_come_in_pages_and_may_only_be_counted(api: Api) {
    let page = |query: &str| api.get(&format!("{LIST}?{query}"));
    let second = page("page=2&per_page=2&repo_name=&start_ts=0.5").await;
    let link = |page: u64| {
        format!("http://localhost:8001/api/v2{LIST}?page={page}&per_page=2&repo_name=&start_ts=0.500000")
    };
    let links = json!({"self": {"href": link(2)}, "prev": {"href": link(1)}});
    let expected = json!({
        "page": 2, "per_page": 2, "total_pages": 2, "total_count": 3, "_links": links,
        "builds": [{"fingerprint": fingerprint('a')}],
    });
    second.expect(200, expected);
    let counted = json!({"page": 1, "per_page": 0, "total_pages": 0, "total_count": 3, "builds": []});
    page("per_page=0").await.expect(200, counted);
    page("page=9223372036854775807").await.expect(200, json!({"total_count": 3, "builds": []}));
}

#[apply(with_builds)]
async fn statistics_tell_the_window_that_they_are_of(api: Api) {
    let all =
        json!({"start_ts": NOW - 28.0 * 86_400.0, "end_ts": NOW, "count": 3, "built_at": [NOW, NOW, NOW]});
    api.get(STATISTICS).await.expect_exactly(200, all);
    let before = json!({"start_ts": 80_800.25, "end_ts": 2_500_000.25, "count": 0, "built_at": []});
    api.get(&format!("{STATISTICS}?end_ts=2500000.25")).await.expect_exactly(200, before);
}

#[apply(with_builds)]
async fn parameters_are_checked_and_a_repo_that_is_named_exists(api: Api) {
    for path in [LIST, STATISTICS] {
        let refused = ["start_ts=x", "end_ts=", "start_ts=NaN", "end_ts=inf", "end_ts=1e13", "repo_name=%00"];
        for query in refused {
            let (field, _) = query.split_once('=').unwrap();
            api.get(&format!("{path}?{query}")).await.expect_field_error(400, &format!("query.{field}"));
        }
        let unknown = ["repo_name=none", "repo_id=8", "repo_inner_id=7", "repo_inner_id=acme/shop"];
        for query in unknown {
            let (field, name) = query.split_once('=').unwrap();
            let text = format!("no repo named '{name}' in organization 'acme'");
            let reply = api.get(&format!("{path}?{query}")).await;
            reply.expect_errors(404, "Repo not found", &[(&format!("query.{field}"), &text)]);
        }
        assert_eq!(api.get(path).key(JOHN).await.error_message(403), FORBIDDEN);
    }
    for query in ["page=0", "per_page=51", "per_page=-1"] {
        let (field, _) = query.split_once('=').unwrap();
        api.get(&format!("{LIST}?{query}")).await.expect_field_error(400, &format!("query.{field}"));
    }
    api.get("/builds/jane").await.expect(200, json!({"total_count": 0, "total_pages": 0, "builds": []}));
}
