//! Tests of the values derived from reported repositories.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn info(name: &str, url: &str) -> RepoInfo {
    RepoInfo {
        name: name.parse().unwrap(),
        url: url.parse().unwrap(),
        id: None,
        description: None,
        provider: None,
        namespace_path: None,
        additional_info: None,
    }
}

#[test]
fn the_vcs_instance_is_the_host_of_the_url() {
    let table = [
        ("https://github.com/acme/shop", Some("github.com")),
        ("https://GitHub.COM/acme/shop", Some("github.com")),
        ("HTTPS://github.com", Some("github.com")),
        ("https://github.com:443/acme/shop", Some("github.com")),
        ("http://github.com:80/acme/shop", Some("github.com")),
        ("http://github.com:443/acme/shop", Some("github.com:443")),
        ("https://gitlab.company.com:8443/acme/shop.git", Some("gitlab.company.com:8443")),
        ("https://gitlab.company.com:/acme/shop.git", Some("gitlab.company.com")),
        ("https://user:secret@gitlab.company.com/acme/shop", Some("gitlab.company.com")),
        ("https://user:p@ss@gitlab.company.com/acme/shop", Some("gitlab.company.com")),
        ("https://dev.azure.com?path=x", Some("dev.azure.com")),
        ("https://m%C3%BCller.example/shop", Some("müller.example")),
        ("https://M%C3%9Cller.example/shop", Some("müller.example")),
        ("https://a%2Fb/shop", None),
        ("ssh://git@bitbucket.org/acme/shop.git", Some("bitbucket.org")),
        ("ssh://git@bitbucket.org:22/acme/shop.git", Some("bitbucket.org")),
        ("ssh://git@bitbucket.org:7999/acme/shop.git", Some("bitbucket.org:7999")),
        ("git://git.kernel.org:9418/linux.git", Some("git.kernel.org")),
        ("svn://svn.example.org:3691/trunk", Some("svn.example.org:3691")),
        ("git@github.com:acme/shop.git", Some("github.com")),
        ("GitHub.com:acme/shop.git", Some("github.com")),
        ("git@[2001:db8::1]:acme/shop.git", Some("[2001:db8::1]")),
        ("https://[2001:DB8::1]:8443/acme", Some("[2001:db8::1]:8443")),
        ("https://[2001:db8::1]/acme", Some("[2001:db8::1]")),
        ("http://localhost:3000/acme", Some("localhost:3000")),
        ("https://gitlab.company.com:port/acme", None),
        ("https://gitlab.company.com:70000/acme", None),
        ("https:///acme", None),
        ("https://exa mple.com/acme", None),
        ("https://[junk]/acme", None),
        ("file:///srv/git/shop.git", None),
        ("/srv/git/shop.git", None),
        ("./shop:old/.git", None),
        (r"C:\git\shop", None),
        ("shop", None),
        ("", None),
    ];
    for (url, expected) in table {
        assert_eq!(vcs_instance(url).as_deref(), expected, "{url}");
    }
}

#[test]
fn the_name_tells_the_short_name_and_the_namespace_unless_one_was_sent() {
    let table: [(&str, &str, &[&str]); 5] = [
        ("acme/platform/shop", "shop", &["acme", "platform"]),
        ("acme/shop", "shop", &["acme"]),
        ("shop", "shop", &[]),
        ("/acme//shop", "shop", &["acme"]),
        ("", "", &[]),
    ];
    for (name, short, namespace) in table {
        let info = info(name, "");
        assert_eq!(short_name(name), short, "{name}");
        assert_eq!(namespace_path(&info), namespace, "{name}");
    }
    let sent =
        RepoInfo { namespace_path: Some(List(vec!["group".parse().unwrap()])), ..info("acme/shop", "") };
    assert_eq!(namespace_path(&sent), ["group"]);
}

#[test]
fn an_external_id_identifies_a_repo_whatever_its_name_and_url() {
    let with_id = |name: &str, url: &str| RepoInfo {
        id: Some("42".parse().unwrap()),
        provider: Some(VcsProvider::Github),
        ..info(name, url)
    };
    assert_eq!(identity(&with_id("a/b", "https://one")), identity(&with_id("c/d", "https://two")));
    let elsewhere = RepoInfo { provider: Some(VcsProvider::Gitlab), ..with_id("a/b", "https://one") };
    assert_ne!(identity(&with_id("a/b", "https://one")), identity(&elsewhere));
}

#[test]
fn without_an_external_id_the_url_identifies_a_repo_and_without_one_the_name() {
    assert_eq!(identity(&info("a/b", "https://one")), identity(&info("c/d", "https://one")));
    assert_ne!(identity(&info("a/b", "https://one")), identity(&info("a/b", "https://two")));
    assert_ne!(identity(&info("a/b", "")), identity(&info("c/d", "")));
    let half = RepoInfo { id: Some("42".parse().unwrap()), ..info("a/b", "https://one") };
    assert_eq!(identity(&half), identity(&info("a/b", "https://one")));
}

/// Generates repositories that share names, URLs, ids and providers. Each of these may be missing.
fn reported() -> impl Strategy<Value = RepoInfo> {
    let id = prop::option::of("[12]?");
    let provider = prop::option::of(prop::sample::select(vec![VcsProvider::Github, VcsProvider::Gitlab]));
    ("[ab]", "([xy])?", id, provider).prop_map(|(name, url, id, provider)| RepoInfo {
        id: id.map(|id| id.parse().unwrap()),
        provider,
        ..info(&name, &url)
    })
}

/// Returns the repo of a first report.
fn of(report: RepoInfo) -> Repo {
    Repo {
        id: "00000000-0000-0000-0000-00000001".parse().unwrap(),
        identity: identity(&report),
        vcs_instance: None,
        short_name: String::new(),
        namespace_path: Vec::new(),
        tags: Tags::new(),
        created_at: Timestamp::default(),
        unknown: UnknownFields::default(),
        info: report,
    }
}

#[test]
fn two_who_tell_half_of_a_repo_each_change_nothing_in_turn() {
    let told = |provider, id: Option<&str>| RepoInfo {
        provider,
        id: id.map(|id| id.parse().unwrap()),
        ..info("a/b", "https://one")
    };
    let (github, seven) = (told(Some(VcsProvider::Github), None), told(None, Some("7")));
    let known = of(github.clone()).reported_again(&seven);
    for report in [&github, &seven, &github] {
        assert_eq!(known.reported_again(report).info, known.info);
    }
}

proptest! {
    #[test]
    fn a_repo_that_is_reported_again_tells_of_itself_what_it_is_recognised_by(
        reports in prop::collection::vec(reported(), 1..20)
    ) {
        let mut known: BTreeMap<String, Repo> = BTreeMap::new();
        for report in reports {
            let repo = match known.remove(&identity(&report)) {
                Some(repo) => repo.reported_again(&report),
                None => of(report),
            };
            prop_assert_eq!(identity(&repo.info), repo.identity.clone(), "{:?}", repo.info);
            known.insert(repo.identity.clone(), repo);
        }
    }

    #[test]
    fn any_url_has_at_most_one_host_and_that_is_lower_case_without_path_or_user(
        url in "\\PC*|[a-z@:/\\[\\]0-9.]{0,24}|(https?|ssh)://([a-z]{1,3}@)?[A-Za-z0-9.]{1,9}(:[0-9]{0,6})?(/.*)?"
    ) {
        if let Some(host) = vcs_instance(&url) {
            prop_assert!(!host.is_empty() && !host.contains(['/', '@', '?', '#']), "{}", host);
            prop_assert_eq!(host.to_ascii_lowercase(), host);
        }
    }

    #[test]
    fn the_case_of_the_host_and_the_schemes_own_port_do_not_matter(host in "[a-z]([a-z0-9-]{0,5}[.])?[a-z]{2,5}") {
        let plain = vcs_instance(&format!("https://{host}/a/b"));
        prop_assert_eq!(plain.as_deref(), Some(host.as_str()));
        prop_assert_eq!(&plain, &vcs_instance(&format!("https://{}:443/a/b", host.to_ascii_uppercase())));
        prop_assert_eq!(&plain, &vcs_instance(&format!("git@{host}:a/b.git")));
    }
}
