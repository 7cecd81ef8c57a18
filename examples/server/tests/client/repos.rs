//! Repos.

use serde_json::json;

use crate::fixture::Fixture;

/// Returns the options for a repo with this id at this host.
fn of_repo<'a>(id: &'a str, url: &'a str, provider: &'a str) -> [&'a str; 8] {
    ["--repo-id", id, "--repository", "acme/app", "--repo-url", url, "--repo-provider", provider]
}

pub(crate) fn a_repo_and_what_was_built_of_it(fixture: &mut Fixture) {
    let list = |options: &[&'static str]| [&["list", "repos"], options].concat();
    fixture.prints(&list(&[]), "No repos were found.");
    fixture.create_flow();
    let url = "https://git.example.com/acme/app";
    let of_first = of_repo("17", url, "gitlab");
    let begin = ["begin", "trail", "trail-1", "--flow", "delivery", "--commit", "HEAD"];
    fixture.says(&[&begin[..], &of_first].concat(), "trail 'trail-1' was begun");
    let (_, fingerprint) = fixture.attest_artifact(&of_first);

    let get = ["get", "repo", "acme/app"];
    fixture.prints(&get, &format!("Name: acme/app\nID: ID\nURL: {url}\nProvider: gitlab\nTags: None"));
    let repo = fixture.reads(&get);
    assert_eq!((&repo["repo_id"], &repo["tags"]), (&json!("17"), &json!({})));
    let id = repo["id"].as_str().unwrap();
    assert_eq!(fixture.reads(&["get", "repo", "--repo-id", id]), repo);
    fixture.says(&["tag", "repo", "acme/app", "--set", "team=a"], "Tag(s) [team] added for repo 'acme/app'");
    let both = ["tag", "repos", "--repo-id", id, "--set", "tier=one", "--unset", "team"];
    fixture.says(&both, "Tag(s) [tier] added, and Tag(s) [team] removed");
    assert_eq!(fixture.reads(&get)["tags"], json!({"tier": "one"}));
    fixture.says(&get, "tier=one");

    let row = format!("acme/app {url} gitlab tier=one");
    let table = format!("NAME URL PROVIDER TAGS\n{row}\nShowing page 1 of 1, total 1 repos");
    let found = [
        &[][..],
        &["--name", "acme/app"],
        &["--search", "ME/A"],
        &["--provider", "gitlab"],
        &["--repo-id", "17"],
        &["--tag", "tier:one"],
        &["--sort-direction", "desc"],
    ];
    for options in found {
        fixture.prints(&list(options), &table);
    }
    for options in [["--name", "app"], ["--provider", "github"], ["--repo-id", "7"], ["--tag", "team"]] {
        fixture.prints(&list(&options), "No repos were found.");
    }
    fixture.prints(&list(&["--page", "9"]), "No repos were found at page number 9.");
    let listed = fixture.reads(&list(&["--page", "1", "--page-limit", "5"]));
    assert_eq!((&listed["repos"][0]["id"], &listed["per_page"]), (&json!(id), &json!(5)));
    fixture.refuses(
        &list(&["--provider", "nonsense"]),
        "Input payload validation failed: map[query.provider:Input should be 'github', 'gitlab', 'bitbucket'…",
    );

    let artifacts = ["list", "artifacts", "--repo", "acme/app"];
    assert_eq!(fixture.reads(&artifacts)[0]["fingerprint"], fingerprint);
    let short = &fixture.commit[..7];
    fixture.prints(
        &artifacts,
        &format!(
            "COMMIT ARTIFACT STATE CREATED_AT\n{short} Name: binary INCOMPLETE THEN\nFingerprint: {fingerprint}"
        ),
    );

    // Another repo with the same name.
    let of_second = of_repo("18", "https://github.example.com/acme/app", "github");
    fixture.attest_artifact(&of_second);
    let several = "Multiple repos named 'acme/app' exist (github, gitlab). Specify the 'provider'…";
    fixture.refuses(&get, several);
    fixture.refuses(&["tag", "repo", "acme/app", "--set", "a=b"], several);
    let of_github = ["get", "repo", "acme/app", "--provider", "github"];
    assert_eq!(fixture.reads(&of_github)["repo_id"], "18");
    fixture.does(&["tag", "repo", "acme/app", "--provider", "github", "--set", "a=b"]);
    assert_eq!(fixture.reads(&of_github)["tags"], json!({"a": "b"}));

    let unknown = "Repo 'nowhere' not found";
    fixture.refuses(&["get", "repo", "nowhere"], unknown);
    fixture.refuses(&["tag", "repo", "nowhere", "--set", "a=b"], unknown);
    fixture.refuses(&["list", "artifacts", "--repo", "nowhere"], unknown);
    fixture.refuses(&["get", "repo", "acme/app", "--provider", "bitbucket"], "Repo 'acme/app' not found");
    fixture.refuses(&["get", "repo", "--repo-id", "no-such-id"], "Repo 'no-such-id' not found");
    fixture.refuses(
        &["tag", "repo", "--repo-id", "no-such-id", "--set", "a=b"],
        "\"Repo 'no-such-id' does not exist in organization 'acme'\"",
    );
}
