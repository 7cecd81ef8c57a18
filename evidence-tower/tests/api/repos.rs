//! Repos (specification, Repo; Repo list response; GET /repos/{org}).

use http::header::AUTHORIZATION;

use crate::support::prelude::*;

const LIST: &str = "/repos/acme";

macro_rules! with_repos {
    ($($case:tt)*) => { case_of! { with_repos: $($case)* } };
}

/// Runs a case with four repos, each reported once: two of them tagged.
fn with_repos(case: impl AsyncFn(Api)) {
    on_every_store(async |api| {
        let reported = [
            json!({
                "name": "acme/platform/Shop", "url": "https://gitlab.acme.com:8443/acme/platform/Shop",
                "id": "1", "provider": "gitlab", "description": "sells", "additional_info": {"stars": 3},
            }),
            json!({"name": "acme/platform/backend/api", "url": "git@github.com:acme/api.git", "id": "2", "provider": "github"}),
            json!({"name": "acme/web", "url": "https://github.com/acme/web", "id": "3", "provider": "github"}),
            json!({"name": "tool", "url": "/srv/git/tool"}),
        ];
        for repo in &reported {
            api.given_artifact_from_repo(repo).await;
        }
        tag(&api, "acme/web", json!({"team": "web", "tier": "1"})).await;
        tag(&api, "acme/platform/Shop", json!({"team": "shop"})).await;
        case(api).await;
    });
}

async fn tag(api: &Api, name: &str, tags: Value) {
    let found = api.get(&format!("{LIST}?name={name}")).await.ok();
    let path = format!("/tags/acme/repo/{}", found["repos"][0]["id"].as_str().unwrap());
    api.patch(&path).json(json!({"set_tags": tags})).await.ok();
}

async fn names(api: &Api, query: &str) -> Vec<String> {
    let list = api.get(&format!("{LIST}?{query}")).await.ok();
    list["repos"].as_array().unwrap().iter().map(|repo| repo["name"].as_str().unwrap().to_owned()).collect()
}

const API: &str = "acme/platform/backend/api";
const SHOP: &str = "acme/platform/Shop";
const WEB: &str = "acme/web";
const TOOL: &str = "tool";

#[apply(with_repos)]
async fn a_repo_has_every_field_of_the_table(api: Api) {
    let list = api.get(&format!("{LIST}?name={SHOP}")).await.ok();
    let repo = &list["repos"][0];
    let expected = json!({
        "id": repo["id"],
        "name": SHOP,
        "short_name": "Shop",
        "url": "https://gitlab.acme.com:8443/acme/platform/Shop",
        "provider": "gitlab",
        "repo_id": "1",
        "vcs_instance": "gitlab.acme.com:8443",
        "namespace_path": ["acme", "platform"],
        "additional_info": {"stars": 3},
        "description": "sells",
        "tags": {"team": "shop"},
        "_links": repo["_links"],
    });
    assert_eq!(*repo, expected);
    assert!(repo["id"].is_string() && repo["_links"].is_object());
}

#[apply(with_repos)]
async fn what_a_report_does_not_tell_is_null_and_tags_are_an_object(api: Api) {
    let list = api.get(&format!("{LIST}?name={TOOL}")).await.ok();
    let repo = &list["repos"][0];
    for field in ["provider", "repo_id", "vcs_instance", "namespace_path", "additional_info", "description"] {
        assert_eq!(repo.get(field), Some(&Value::Null), "{field}");
    }
    assert_eq!((&repo["short_name"], &repo["tags"]), (&json!("tool"), &json!({})));
}

#[apply(with_repos)]
async fn the_list_is_closed_and_its_numbers_are_integers(api: Api) {
    let list = api.get(LIST).await.ok();
    assert_eq!(fields(&list), ["_links", "page", "per_page", "repos", "total_count", "total_pages"]);
    let numbers = ["page", "per_page", "total_pages", "total_count"].map(|field| list[field].as_i64());
    assert_eq!(numbers, [Some(1), Some(15), Some(1), Some(4)]);
}

#[apply(with_repos)]
async fn pages_follow_each_other_and_one_past_the_end_is_empty(api: Api) {
    let mut found = Vec::new();
    let mut next = Some("/repos/acme?page=1&per_page=3&search=a".to_owned());
    while let Some(path) = next {
        let list = api.get(&path).await.ok();
        let repos = list["repos"].as_array().unwrap();
        found.extend(repos.iter().map(|repo| repo["name"].as_str().unwrap().to_owned()));
        let link = list["_links"]["next"]["href"].as_str();
        next = link.map(|link| link.strip_prefix("http://localhost:8001/api/v2").unwrap().to_owned());
    }
    assert_eq!(found, [SHOP, API, WEB]);
    let past = api.get(&format!("{LIST}?page=9223372036854775807&per_page=50")).await;
    past.expect(200, json!({"repos": [], "total_pages": 1, "total_count": 4, "per_page": 50}));
    let links = api.get(&format!("{LIST}?page=2&per_page=1&tag=team&sort_direction=desc")).await.ok();
    let page = "http://localhost:8001/api/v2/repos/acme?page=1&per_page=1&sort_direction=desc&tag=team";
    assert_eq!(links["_links"]["prev"]["href"], page);
    assert_eq!(links["_links"].get("next"), None);
}

#[test]
fn an_empty_list_has_no_pages() {
    on_every_store(async |api| {
        let list = json!({"page": 1, "per_page": 15, "total_pages": 0, "total_count": 0, "repos": []});
        api.get(LIST).await.expect(200, list);
    });
}

#[apply(with_repos)]
async fn page_and_per_page_have_their_borders(api: Api) {
    let integer = "Input should be a valid integer, unable to parse string as an integer";
    let refused = [
        ("page", "0", "Input should be greater than or equal to 1"),
        ("page", "-1", "Input should be greater than or equal to 1"),
        ("page", "9223372036854775808", "Input should be a valid integer"),
        ("page", "", integer),
        ("page", "1.5", integer),
        ("per_page", "0", "Input should be greater than or equal to 1"),
        ("per_page", "51", "Input should be less than or equal to 50"),
        ("per_page", "x", integer),
    ];
    for (name, value, text) in refused {
        let reply = api.get(&format!("{LIST}?{name}={value}")).await;
        reply.expect_errors(400, INVALID, &[(&format!("query.{name}"), &format!("{text} [input: {value}]"))]);
    }
    for query in
        ["page=1", "page=9223372036854775807", "per_page=1", "per_page=50", "page=0&page=1", "other=x"]
    {
        api.get(&format!("{LIST}?{query}")).await.ok();
    }
}

#[apply(with_repos)]
async fn every_filter_narrows_the_list_and_all_must_match(api: Api) {
    let table: [(&str, &[&str]); 32] = [
        ("", &[SHOP, API, WEB, TOOL]),
        ("name=acme/web", &[WEB]),
        ("name=acme/WEB", &[]),
        ("name=web", &[]),
        ("name=", &[]),
        ("search=shop", &[SHOP]),
        ("search=PLATFORM", &[SHOP, API]),
        ("search=", &[SHOP, API, WEB, TOOL]),
        ("search=%25", &[]),
        ("search=_", &[]),
        ("provider=github", &[API, WEB]),
        ("provider=gitlab", &[SHOP]),
        ("provider=subversion", &[]),
        ("repo_id=2", &[API]),
        ("repo_id=9", &[]),
        ("repo_id=2&name=acme/web", &[API]),
        ("repo_id=2&provider=gitlab", &[]),
        ("vcs_instance=github.com", &[API, WEB]),
        ("vcs_instance=gitlab.acme.com:8443", &[SHOP]),
        ("vcs_instance=gitlab.acme.com", &[]),
        ("namespace=acme", &[SHOP, API, WEB]),
        ("namespace=acme/platform", &[SHOP, API]),
        ("namespace=acme/platform/backend", &[API]),
        ("namespace=acme/plat", &[]),
        ("namespace=ACME", &[]),
        ("tag=team", &[SHOP, WEB]),
        ("tag=team:web", &[WEB]),
        ("tag=team&tag=tier", &[WEB]),
        ("tag=team:shop&tag=tier", &[]),
        ("tag=", &[]),
        ("search=acme&provider=github&tag=team", &[WEB]),
        ("sort_direction=desc", &[TOOL, WEB, API, SHOP]),
    ];
    for (query, expected) in table {
        assert_eq!(names(&api, query).await, expected, "{query}");
    }
    assert_eq!(names(&api, "sort_direction=asc").await, [SHOP, API, WEB, TOOL]);
}

#[test]
fn every_provider_is_known_and_no_other() {
    on_every_store(async |api| {
        let providers = [
            "github",
            "gitlab",
            "bitbucket",
            "bitbucket_cloud",
            "bitbucket_dc",
            "azure-devops",
            "azure_devops_services",
            "azure_devops_server",
            "circleci",
            "git",
            "subversion",
        ];
        for provider in providers {
            api.given_artifact_from_repo(
                &json!({"name": provider, "url": "https://x.org", "id": "1", "provider": provider}),
            )
            .await;
            assert_eq!(names(&api, &format!("provider={provider}")).await, [provider]);
        }
        for (name, value) in [
            ("provider", ""),
            ("provider", "GitHub"),
            ("provider", "azure"),
            ("sort_direction", ""),
            ("sort_direction", "ASC"),
        ] {
            let reply = api.get(&format!("{LIST}?{name}={value}")).await;
            reply.expect_field_error(400, &format!("query.{name}"));
        }
        let direction = api.get(&format!("{LIST}?sort_direction=up")).await;
        direction.expect_errors(
            400,
            INVALID,
            &[("query.sort_direction", "Input should be 'asc' or 'desc' [input: up]")],
        );
    });
}

#[apply(with_repos)]
async fn name_and_search_exclude_each_other(api: Api) {
    let text = "'name' and 'search' are mutually exclusive";
    for query in ["name=a&search=b", "name=&search=", "name=a&search=b&repo_id=2"] {
        let reply = api.get(&format!("{LIST}?{query}")).await;
        reply.expect_errors(400, text, &[("query.name", text), ("query.search", text)]);
    }
}

#[test]
fn the_external_id_identifies_a_repo_and_the_newest_report_describes_it() {
    on_every_store(async |api| {
        let repo = |name: &str, url: &str| json!({"name": name, "url": url, "id": "7", "provider": "github"});
        api.given_artifact_from_repo(&repo("acme/old", "https://github.com/acme/old")).await;
        let before = api.get(LIST).await.ok();
        tag(&api, "acme/old", json!({"kept": "yes"})).await;
        api.given_artifact_from_repo(&repo("corp/new", "https://git.corp.com/new")).await;
        let after = api.get(LIST).await.ok();
        let expected = json!({
            "id": before["repos"][0]["id"], "name": "corp/new", "short_name": "new", "vcs_instance": "git.corp.com",
            "namespace_path": ["corp"], "tags": {"kept": "yes"},
        });
        api.get(LIST).await.expect(200, json!({"total_count": 1, "repos": [expected]}));
        assert_eq!(names(&api, "name=acme/old").await, Vec::<String>::new());
        api.given_artifact_from_repo(&repo("corp/new", "https://git.corp.com/new")).await;
        assert_eq!(api.get(LIST).await.ok(), after);
    });
}

#[apply(on_every_store)]
async fn a_report_that_tells_less_leaves_what_was_told(api: Api) {
    let report = json!({
        "name": "acme/shop", "url": "https://github.com/acme/shop", "id": "8", "provider": "github",
        "description": "about", "namespace_path": ["group", "acme"], "additional_info": {"k": 1},
    });
    api.given_artifact_from_repo(&report).await;
    let listed = api.get(LIST).await.ok();
    let repo = |name: &str| json!({"name": name, "url": "https://github.com/acme/shop", "id": "8", "provider": "github"});
    api.given_artifact_from_repo(&repo("acme/shop")).await;
    assert_eq!(api.get(LIST).await.ok(), listed);

    let mut newer = repo("acme/shop");
    newer["description"] = json!("");
    newer["additional_info"] = json!({});
    api.given_artifact_from_repo(&newer).await;
    let expected = json!({"description": "", "additional_info": {}, "namespace_path": ["group", "acme"]});
    api.get(LIST).await.expect(200, json!({"repos": [expected]}));
    // A path goes with the name that it was reported with.
    api.given_artifact_from_repo(&repo("corp/shop")).await;
    let expected = json!({"description": "", "additional_info": {}, "namespace_path": ["corp"]});
    api.get(LIST).await.expect(200, json!({"repos": [expected]}));
}

#[apply(with_every_store)]
async fn a_report_that_tells_less_of_a_repo_records_nothing_about_it(api: Api, store: Arc<dyn Store>) {
    let repo =
        json!({"name": "acme/shop", "url": "https://github.com/acme/shop", "id": "8", "provider": "github"});
    let mut full = repo.clone();
    full["description"] = json!("about");
    for report in [&full, &repo, &full] {
        api.given_artifact_from_repo(report).await;
    }
    let entries = store.ledger_entries(acme(&*store).await, 0, 1_000).await.unwrap();
    let reported = entries.iter().filter(|entry| entry.kind == "repo_reported");
    assert_eq!(reported.count(), 1);
}

#[apply(on_every_store)]
async fn equal_names_are_by_age_in_both_directions(api: Api) {
    for provider in ["gitlab", "github", "bitbucket"] {
        let repo = json!({"name": "acme/shop", "url": "https://x.org", "id": "1", "provider": provider});
        api.given_artifact_from_repo(&repo).await;
    }
    for direction in ["asc", "desc"] {
        let list = api.get(&format!("{LIST}?sort_direction={direction}")).await;
        let repos = json!([{"provider": "gitlab"}, {"provider": "github"}, {"provider": "bitbucket"}]);
        list.expect(200, json!({"repos": repos}));
    }
}

#[apply(on_every_store)]
async fn a_name_that_the_paths_of_the_api_would_hide_is_refused(api: Api) {
    for name in ["tags", "filter-options", "live-artifacts/shop"] {
        api.post_artifact("shop", "a".repeat(64))
            .with(json!({
                "git_commit": "b".repeat(40), "repo_info": {"name": name, "url": "https://x.org"},
            }))
            .await
            .expect_field_error(400, "repo_info.name");
    }
    assert_eq!(names(&api, "").await, Vec::<String>::new());
}

#[apply(with_repos)]
async fn the_list_takes_bearer_or_basic_and_needs_a_known_organization_and_a_member(api: Api) {
    // The user name is jane's key; the password does not matter.
    for basic in ["Basic amFuZS1rZXk6", "Basic amFuZS1rZXk6eA==", "basic amFuZS1rZXk6eA=="] {
        api.get(LIST).header(AUTHORIZATION, basic).await.expect(200, json!({"total_count": 4}));
    }
    for basic in ["Basic eDpqYW5lLWtleQ==", "Basic !", "Basic "] {
        assert_eq!(api.get(LIST).header(AUTHORIZATION, basic).await.error_message(401), "Unauthorized");
    }
    api.get(LIST).key("reader-key").await.expect(200, json!({"total_count": 4}));
    assert_eq!(api.get(LIST).anonymous().await.error_message(401), "Unauthorized");
    assert_eq!(api.get("/repos/nowhere").await.error_message(404), "Organization not found");
    assert_eq!(api.get("/repos/nowhere?page=0").await.error_message(404), "Organization not found");
    assert_eq!(api.get(LIST).key(JOHN).await.error_message(403), FORBIDDEN);
    api.get("/repos/foobar").key(JOHN).await.expect(200, json!({"total_count": 0}));
}

#[test]
fn what_two_reports_tell_does_not_make_one_repo_another() {
    on_every_store(async |api| {
        let url = "https://github.com/acme/shop";
        api.given_artifact_from_repo(&json!({"name": "acme/shop", "url": url, "id": "7"})).await;
        api.given_artifact_from_repo(&json!({"name": "acme/shop", "url": url, "provider": "github"})).await;
        let known = json!({"repos": [{"url": url, "provider": null, "repo_id": "7"}], "total_count": 1});
        api.get(LIST).await.expect(200, known);
        api.given_artifact_from_repo(
            &json!({"name": "acme/shop", "url": url, "id": "7", "provider": "github"}),
        )
        .await;
        api.get(&format!("{LIST}?repo_id=7&provider=github")).await.expect(200, json!({"total_count": 1}));
    });
}

#[apply(with_repos)]
async fn a_repo_is_got_by_its_name_with_slashes_as_they_are_or_encoded(api: Api) {
    for name in [SHOP, API, WEB, TOOL] {
        let listed = api.get(&format!("{LIST}?name={name}")).await.ok();
        let encoded = name.replace('/', "%2F");
        for path in [name, &encoded] {
            assert_eq!(api.get(&format!("{LIST}/{path}")).await.ok(), listed["repos"][0], "{path}");
        }
    }
    for name in ["none", "acme", "acme/platform", "acme/web/", "ACME/web", "acme/platform/Shop/x/y"] {
        let reply = api.get(&format!("{LIST}/{name}")).await;
        let text = format!("no repo named '{name}' in organization 'acme'");
        reply.expect_errors(404, "Repo not found", &[("repo_name", &text)]);
    }
    api.get(&format!("{LIST}/{}", "x".repeat(256))).await.expect_field_error(400, "repo_name");
    api.get(&format!("{LIST}/tool?provider=GitHub")).await.expect_field_error(400, "query.provider");
    assert_eq!(api.post(&format!("{LIST}/acme/web")).await.error_message(405), "Method not allowed");
    assert_eq!(api.get("/repos/jane/acme/web").await.error_message(404), "Repo not found");
    assert_eq!(api.get("/repos/nowhere/acme/web").await.error_message(404), "Organization not found");
    assert_eq!(api.get(&format!("{LIST}/acme/web")).key(JOHN).await.error_message(403), FORBIDDEN);
}

/// Repos of one name: their ids by the order in which they were reported.
async fn of_one_name(api: &Api) -> Vec<String> {
    for (id, provider) in [("1", "gitlab"), ("2", "github"), ("3", "github")] {
        let repo = json!({"name": "acme/shop", "url": "https://x.org", "id": id, "provider": provider});
        api.given_artifact_from_repo(&repo).await;
    }
    let list = api.get(LIST).await.ok();
    list["repos"].as_array().unwrap().iter().map(|repo| repo["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_name_of_several_repos_needs_a_provider_or_an_id() {
    on_every_store(async |api| {
        let ids = of_one_name(&api).await;
        let message =
            "Multiple repos named 'acme/shop' exist (github, gitlab). Specify the 'provider' or the 'id'.";
        let text = format!("one of: {} (gitlab), {} (github), {} (github)", ids[0], ids[1], ids[2]);
        let path = format!("{LIST}/acme/shop");
        api.get(&path).await.expect_errors(400, message, &[("query.id", &text)]);
        let table = [
            ("provider=gitlab".to_owned(), "1"),
            ("provider=github".to_owned(), "3"),
            (format!("id={}", ids[1]), "2"),
            (format!("id={}&provider=git", ids[0]), "1"),
        ];
        for (query, external) in table {
            let found = api.get(&format!("{path}?{query}")).await;
            found.expect(200, json!({"repo_id": external}));
        }
        assert_eq!(api.get(&format!("{path}?provider=git")).await.error_message(404), "Repo not found");
        // An id decides alone, whatever the path says.
        api.get(&format!("{LIST}/ignored?id={}", ids[2])).await.expect(200, json!({"repo_id": "3"}));
        for id in ["none", "", "00000000-0000-0000-0000-00000000"] {
            let reply = api.get(&format!("{path}?id={id}")).await;
            let text = format!("no repo named '{id}' in organization 'acme'");
            reply.expect_errors(404, "Repo not found", &[("query.id", &text)]);
        }
    });
}

#[apply(on_every_store)]
async fn repos_without_a_provider_are_told_apart_by_id_alone(api: Api) {
    for place in ["a", "b"] {
        api.given_artifact_from_repo(&json!({"name": "shop", "url": format!("https://x.org/{place}")})).await;
    }
    let message = "Multiple repos named 'shop' exist (no provider). Specify the 'provider' or the 'id'.";
    assert_eq!(api.get(&format!("{LIST}/shop")).await.error_message(400), message);
}

#[apply(with_repos)]
async fn filters_offer_what_the_other_filters_leave(api: Api) {
    let all = json!({
        "providers": ["github", "gitlab"],
        "vcs_instances": ["github.com", "gitlab.acme.com:8443"],
        "namespace_values": ["acme"],
    });
    let path = format!("{LIST}/filter-options");
    api.get(&path).await.expect_exactly(200, all);
    let table = [
        (
            "provider=gitlab",
            json!({"providers": ["github", "gitlab"], "vcs_instances": ["gitlab.acme.com:8443"]}),
        ),
        (
            "vcs_instance=github.com",
            json!({"providers": ["github"], "vcs_instances": ["github.com", "gitlab.acme.com:8443"]}),
        ),
        ("namespace=acme", json!({"namespace_values": ["platform"]})),
        (
            "namespace=acme/platform",
            json!({"providers": ["github", "gitlab"], "namespace_values": ["backend"]}),
        ),
        ("namespace=/acme//platform/backend/", json!({"providers": ["github"], "namespace_values": []})),
        ("namespace=acm", json!({"providers": [], "vcs_instances": [], "namespace_values": []})),
        ("tag=team", json!({"providers": ["github", "gitlab"], "namespace_values": ["acme"]})),
        ("tag=team&tag=tier:1", json!({"providers": ["github"], "vcs_instances": ["github.com"]})),
        ("tag=team:shop&provider=github", json!({"providers": ["gitlab"], "vcs_instances": []})),
    ];
    for (query, expected) in table {
        api.get(&format!("{path}?{query}")).await.expect(200, expected);
    }
    api.get(&format!("{path}?provider=x")).await.expect_field_error(400, "query.provider");
    let none = json!({"providers": [], "vcs_instances": [], "namespace_values": []});
    api.get("/repos/jane/filter-options").await.expect_exactly(200, none);
}

#[apply(with_repos)]
async fn the_tags_of_repos_are_listed_once(api: Api) {
    tag(&api, TOOL, json!({"team": "web"})).await;
    let choice = |key: &str, value: &str| json!({"key": key, "value": value});
    let all = json!([choice("team", "shop"), choice("team", "web"), choice("tier", "1")]);
    api.get(&format!("{LIST}/tags")).await.expect_exactly(200, all);
    api.get("/repos/jane/tags").await.expect_exactly(200, json!([]));
}

/// Runs a case where an artifact of a repo runs in two environments, and another in one of them. `strict` has a policy
/// that neither satisfies; `loose` has none.
fn with_live_artifacts(case: impl AsyncFn(Api)) {
    on_every_store(async |api| {
        api.given_environments("docker", &["strict", "loose", "old"]).await;
        api.given_flow("shop", TEMPLATE).await;
        api.put_policy("complete", COMPLIANCE).await.created();
        api.attach("strict", "complete").await;
        for (digit, repo) in [('a', WEB), ('b', WEB), ('c', TOOL)] {
            api.post_artifact("shop", fingerprint(digit))
                .with(json!({
                    "build_url": "",
                    "git_commit": "b".repeat(40),
                    "commit_url": if digit == 'a' { "https://x.org/commit" } else { "" },
                    "repo_info": {"name": repo, "url": format!("https://x.org/{repo}")},
                }))
                .await
                .created();
        }
        api.report_running("strict", &[('a', &[1]), ('c', &[1])]).await.created();
        api.report_running("loose", &[('c', &[1])]).await.created();
        api.report_running("loose", &[('a', &[1, 2]), ('b', &[1])]).await.created();
        case(api).await;
    });
}

#[test]
fn what_of_a_repo_runs_now_is_told_with_its_environments() {
    with_live_artifacts(async |api| {
        let id = async |path: &str, key: &str| api.get(path).await.ok()[key].as_str().unwrap().to_owned();
        let artifact = async |digit: char| {
            id(&format!("/artifacts/acme/shop/fingerprint/{}", fingerprint(digit)), "id").await
        };
        let (a, b) = (artifact('a').await, artifact('b').await);
        let live = api.get(&format!("{LIST}/live-artifacts/{WEB}")).await.ok();
        let environments = live["_embedded"]["environments"].clone();
        let [loose, strict] = [0, 1].map(|place: usize| environments[place]["id"].clone());
        let expected = json!([
            {"environment_id": loose, "artifact_id": a, "artifact_name": "image-a", "snapshot_index": 2, "compliance": null,
                "started_at": 1_783_538_510.0},
            {"environment_id": loose, "artifact_id": b, "artifact_name": "image-b", "snapshot_index": 2, "compliance": null},
            {"environment_id": strict, "artifact_id": a, "artifact_name": "image-a", "snapshot_index": 1,
                "compliance": "NON-COMPLIANT"},
        ]);
        let embedded = json!({
            "environments": [{"name": "loose", "type": "docker"}, {"name": "strict", "type": "docker"}],
            "artifacts": [
                {"id": a, "fingerprint": fingerprint('a'), "commit_sha": "b".repeat(40), "commit_url": "https://x.org/commit"},
                {"id": b, "fingerprint": fingerprint('b'), "commit_sha": "b".repeat(40), "commit_url": null},
            ],
        });
        let reply = api.get(&format!("{LIST}/live-artifacts/{WEB}")).await;
        reply.expect(200, json!({"live_artifacts": expected, "_embedded": embedded}));
        assert_eq!(fields(&live), ["_embedded", "_links", "live_artifacts"]);
        let linked =
            |link: &Value| link["href"].as_str().unwrap().replace("http://localhost:8001/api/v2", "");
        let followed = [
            (linked(&live["_links"]["repo"]), json!({"name": WEB})),
            (linked(&environments[0]["_links"]["self"]), json!({"name": "loose"})),
            (linked(&live["_embedded"]["artifacts"][1]["_links"]["self"]), json!({"id": b})),
            (linked(&live["live_artifacts"][0]["_links"]["snapshot"]), json!({"index": 2})),
        ];
        for (path, expected) in followed {
            api.get(&path).await.expect(200, expected);
        }
    });
}

#[test]
fn what_stopped_or_runs_elsewhere_is_not_live() {
    with_live_artifacts(async |api| {
        api.report_running("loose", &[('b', &[1])]).await.created();
        api.report_running("strict", &[]).await.created();
        let path = format!("{LIST}/live-artifacts/{WEB}");
        let b = json!({"artifact_name": "image-b"});
        api.get(&path).await.expect(200, json!({"live_artifacts": [b], "_embedded": {"artifacts": [{}]}}));
        api.report_running("loose", &[]).await.created();
        let nothing = json!({"live_artifacts": [], "_embedded": {"artifacts": [], "environments": []}});
        api.get(&path).await.expect(200, nothing);
        // The first report and every later one set its repo.
        api.report_running("loose", &[('c', &[1])]).await.created();
        api.post_artifact("shop", fingerprint('c'))
            .with(json!({"repo_info": {"name": WEB, "url": format!("https://x.org/{WEB}")}}))
            .await
            .created();
        let c = json!({"live_artifacts": [{"artifact_name": "image-c"}]});
        for repo in [WEB, TOOL] {
            api.get(&format!("{LIST}/live-artifacts/{repo}")).await.expect(200, c.clone());
        }
    });
}

#[test]
fn live_artifacts_are_of_the_newest_repo_of_a_name() {
    on_every_store(async |api| {
        let ids = of_one_name(&api).await;
        let path = format!("{LIST}/live-artifacts/acme/shop");
        let table = [
            (String::new(), &ids[2]),
            ("?provider=gitlab".to_owned(), &ids[0]),
            (format!("?id={}", ids[1]), &ids[1]),
        ];
        for (query, id) in table {
            let href = format!("http://localhost:8001/api/v2{LIST}/{id}?id={id}");
            let repo = json!({"_links": {"repo": {"href": href}}, "live_artifacts": []});
            api.get(&format!("{path}{query}")).await.expect(200, repo);
        }
        for query in ["?provider=git", "?id=none"] {
            assert_eq!(api.get(&format!("{path}{query}")).await.error_message(404), "Repo not found");
        }
        // It is a repo of this name without anything behind it.
        assert_eq!(api.get(&format!("{LIST}/live-artifacts")).await.error_message(404), "Repo not found");
    });
}
