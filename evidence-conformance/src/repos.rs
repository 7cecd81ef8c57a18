//! Checks of [`evidence_core::repos::RepoStore`].

use std::sync::Arc;

use evidence_core::bounded::ShortText;
use evidence_core::fact::{Fact, UnknownFields};
use evidence_core::id::Id;
use evidence_core::page::{Page, PageRequest, SortDirection};
use evidence_core::repos::{Repo, RepoFacet, RepoFilter};
use evidence_core::repos::{RepoInfo, VcsProvider};
use evidence_core::store::{Current, Store};
use evidence_core::tags::{TagFilter, Tags};

use super::fixtures::{Org, at, bare_repo_info, full_repo_info, id, tags};
use super::shared::{narrowed, paged};
use super::{Failure, Outcome, promises, same};

promises! {
    repos_read_back: "Repos are what was reported or tagged last, absent options too.",
    repos_are_found_in_their_organization: "What does not exist, or is another organization's, is `None`.",
    repos_are_listed_by_name: "`repos`, like `repo_ids`, is ordered by name (bytes) in the direction asked, equal names by id ascending.",
    repo_pages_have_the_right_total: "A page past the end is empty, with the right total.",
    repos_are_narrowed: "Everything given in a repo filter must match.",
    the_newest_repo_of_a_name: "`newest_repo` answers, of the repos of this name and provider, that of the greatest id.",
    repos_are_found_by_name: "`repos_named` answers the first repos of each of these names, by name and id.",
    values_of_repos_are_told_once: "`repo_values` answers each value of a facet once, by bytes, of the repos that the filter admits.",
}

pub(super) fn repo(n: u64, name: &str) -> Repo {
    Repo {
        id: id(n),
        identity: format!("identity-{n}"),
        info: bare_repo_info(name),
        vcs_instance: None,
        short_name: name.to_owned(),
        namespace_path: Vec::new(),
        tags: Tags::new(),
        created_at: at(2),
        unknown: UnknownFields::default(),
    }
}

async fn repos_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let bare = repo(100, "owner/repo");
    let full = Repo {
        info: full_repo_info("owner/repo"),
        vcs_instance: Some("example.com".to_owned()),
        short_name: "repo".to_owned(),
        namespace_path: vec!["owner".to_owned(), "ünïcödé".to_owned()],
        tags: tags(&[("a", "1")]),
        ..bare.clone()
    };
    let facts = [
        Fact::RepoReported { record: bare.clone() },
        Fact::RepoReported { record: full.clone() },
        Fact::RepoTagged { record: bare.clone() },
    ];
    for (revision, (fact, record)) in (1..).zip(facts.into_iter().zip([bare.clone(), full, bare])) {
        org.record(vec![fact]).await?;
        let current = Some(Current { revision, record: record.clone() });
        same("by identity", store.repo_by_identity(org.id, "identity-100").await?, current.clone())?;
        same("by id", store.repo(org.id, id(100)).await?, current)?;
        let listed = store.repos(org.id, &RepoFilter::default(), PageRequest::ALL).await?;
        same("listed", listed, Page { items: vec![record], total: 1 })?;
    }
    Ok(())
}

/// Repos of `foo`, and one of `foobar` with the identity of another.
async fn several(store: &Arc<dyn Store>) -> Result<(Org, Org), Failure> {
    let (org, other) = Org::two(store).await?;
    let path = |segments: &[&str]| segments.iter().map(|segment| (*segment).to_owned()).collect();
    let records = [
        Repo { tags: tags(&[("team", "red"), ("tier", "1")]), ..repo(104, "acme/api") },
        Repo { vcs_instance: Some("example.com".to_owned()), ..repo(101, "acme/web") },
        Repo { namespace_path: path(&["acme", "sub"]), tags: tags(&[("team", "")]), ..repo(103, "acme/api") },
        Repo { namespace_path: path(&["acme"]), ..repo(102, "Acme/API") },
        Repo { namespace_path: path(&["acme-2"]), info: full_repo_info("b_c"), ..repo(105, "b_c") },
    ];
    org.record(records.map(|record| Fact::RepoReported { record }).to_vec()).await?;
    let same_identity = Repo { identity: "identity-101".to_owned(), ..repo(201, "acme/web") };
    other.record(vec![Fact::RepoReported { record: same_identity }]).await?;
    Ok((org, other))
}

async fn repos_are_found_in_their_organization(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    for (org, n) in [(&org, 101), (&other, 201)] {
        let found = store.repo_by_identity(org.id, "identity-101").await?;
        same("by identity", found.map(|repo| repo.record.id), Some(id(n)))?;
    }
    for identity in ["Identity-101", "identity_101", "identity-10", "%", ""] {
        same(identity, store.repo_by_identity(org.id, identity).await?, None)?;
    }
    for (org, n) in [(&org, 201), (&other, 101), (&org, 999)] {
        same("by another's id", store.repo(org.id, id(n)).await?, None)?;
    }
    for (org, wanted, found) in [
        (&org, vec![104, 201, 101, 104, 999], vec![101, 104]),
        (&other, vec![101, 201], vec![201]),
        (&other, vec![], vec![]),
    ] {
        let wanted: Vec<Id> = wanted.into_iter().map(id).collect();
        let mut repos: Vec<Id> =
            store.repos_by_id(org.id, &wanted).await?.into_iter().map(|repo| repo.id).collect();
        repos.sort_unstable();
        same("by ids", repos, found.into_iter().map(id).collect())?;
    }
    Ok(())
}

async fn listed(org: &Org, filter: &RepoFilter) -> Result<Vec<Id>, Failure> {
    let repos = org.store.repos(org.id, filter, PageRequest::ALL).await?;
    same("the total", repos.total, repos.items.len() as u64)?;
    let repos = repos.map(|repo| repo.id).items;
    same("their ids", org.store.repo_ids(org.id, filter, PageRequest::ALL).await?, repos.clone())?;
    Ok(repos)
}

async fn repos_are_listed_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let ascending = RepoFilter { direction: SortDirection::Asc, ..RepoFilter::default() };
    same("ascending", listed(&org, &ascending).await?, [102, 103, 104, 101, 105].map(id).to_vec())?;
    let descending = RepoFilter { direction: SortDirection::Desc, ..RepoFilter::default() };
    same("descending", listed(&org, &descending).await?, [105, 101, 103, 104, 102].map(id).to_vec())
}

async fn repo_pages_have_the_right_total(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let (filter, repos) = (RepoFilter::default(), [102, 103, 104, 101, 105].map(id));
    paged("the repos", &repos, |asked| store.repos(org.id, &filter, asked), |repo| repo.id).await?;
    let (store, filter) = (&store, &filter);
    let ids = |asked| async move {
        let items = store.repo_ids(org.id, filter, asked).await?;
        Ok(Page { items, total: repos.len() as u64 })
    };
    paged("their ids", &repos, ids, |id| id).await
}

async fn repos_are_narrowed(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let text = |text: &str| Some(text.to_owned());
    let path = |segments: &[&str]| Some(segments.iter().map(|segment| (*segment).to_owned()).collect());
    let tagged = |tags: &[&str]| tags.iter().map(|tag| TagFilter::parse(tag, ':')).collect();
    let any = RepoFilter::default;
    let RepoInfo { id: external, .. } = full_repo_info("b_c");
    let cases = [
        (RepoFilter { name: text("acme/api"), ..any() }, vec![103, 104]),
        (RepoFilter { name: text("acme/%"), ..any() }, vec![]),
        (RepoFilter { search: text("API"), ..any() }, vec![102, 103, 104]),
        (RepoFilter { search: text("_"), ..any() }, vec![105]),
        (RepoFilter { search: text("%"), ..any() }, vec![]),
        (RepoFilter { search: text("ÄPI"), ..any() }, vec![]),
        (RepoFilter { provider: Some(VcsProvider::AzureDevops), ..any() }, vec![105]),
        (RepoFilter { provider: Some(VcsProvider::Github), ..any() }, vec![]),
        (RepoFilter { repo_id: external.map(ShortText::into_string), ..any() }, vec![105]),
        (RepoFilter { repo_id: text("471"), ..any() }, vec![]),
        (RepoFilter { vcs_instance: text("example.com"), ..any() }, vec![101]),
        (RepoFilter { vcs_instance: text("Example.com"), ..any() }, vec![]),
        (RepoFilter { namespace: path(&["acme"]), ..any() }, vec![102, 103]),
        (RepoFilter { namespace: path(&["acme", "sub"]), ..any() }, vec![103]),
        (RepoFilter { namespace: path(&["acme", "su"]), ..any() }, vec![]),
        (RepoFilter { namespace: path(&["Acme"]), ..any() }, vec![]),
        (RepoFilter { namespace: path(&["sub"]), ..any() }, vec![]),
        (RepoFilter { namespace: path(&[]), ..any() }, vec![102, 103, 104, 101, 105]),
        (RepoFilter { tags: tagged(&["team"]), ..any() }, vec![103, 104]),
        (RepoFilter { tags: tagged(&["team:red", "tier"]), ..any() }, vec![104]),
        (RepoFilter { tags: tagged(&["team:"]), search: text("api"), ..any() }, vec![103]),
    ];
    let org = &org;
    narrowed(cases, |filter| async move { listed(org, &filter).await }).await
}

async fn the_newest_repo_of_a_name(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    let of = |n, provider| {
        let info = RepoInfo { provider: Some(provider), ..bare_repo_info("acme/api") };
        Fact::RepoReported { record: Repo { info, ..repo(n, "acme/api") } }
    };
    // The order of ids counts, not that of the reports.
    org.record(vec![
        of(112, VcsProvider::Github),
        of(111, VcsProvider::Gitlab),
        of(110, VcsProvider::Github),
    ])
    .await?;
    for (org, name, provider, expected) in [
        (&org, "acme/api", None, Some(112)),
        (&org, "acme/api", Some(VcsProvider::Github), Some(112)),
        (&org, "acme/api", Some(VcsProvider::Gitlab), Some(111)),
        (&org, "acme/api", Some(VcsProvider::Git), None),
        (&org, "Acme/API", None, Some(102)),
        (&org, "acme/ap%", None, None),
        (&org, "", None, None),
        (&other, "acme/web", None, Some(201)),
        (&other, "acme/api", None, None),
    ] {
        let found = store.newest_repo(org.id, name, provider).await?;
        same(&format!("{name} of {provider:?}"), found.map(|repo| repo.id), expected.map(id))?;
    }
    Ok(())
}

async fn repos_are_found_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let named = |n, name| Fact::RepoReported { record: repo(n, name) };
    org.record(vec![named(113, "acme/api"), named(112, "acme/api"), named(114, "B"), named(115, "a")])
        .await?;
    other.record(vec![named(212, "acme/web")]).await?;
    let cases = [
        (vec![], vec![]),
        (vec!["acme/web", "b", "acme"], vec![]),
        (vec!["a", "acme/api", "a"], vec![("a", 115), ("acme/api", 112), ("acme/api", 113)]),
        (vec!["a", "B"], vec![("B", 114), ("a", 115)]),
    ];
    for (names, expected) in cases {
        let found = store.repos_named(org.id, &names, 9).await?;
        let expected = Vec::from_iter(expected.iter().map(|(name, n)| ((*name).to_owned(), id(*n))));
        same(&format!("{names:?}"), found, expected)?;
    }
    let first = store.repos_named(org.id, &["acme/api", "B"], 1).await?;
    same("the first of each", first, vec![("B".to_owned(), id(114)), ("acme/api".to_owned(), id(112))])
}

async fn values_of_repos_are_told_once(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let reported = |n, provider, instance: &str, path: &[&str], team: &str| {
        let info = RepoInfo { provider, ..bare_repo_info("r") };
        let record = Repo {
            info,
            vcs_instance: Some(instance.to_owned()).filter(|instance| !instance.is_empty()),
            namespace_path: path.iter().map(|segment| (*segment).to_owned()).collect(),
            tags: tags(&[("team", team)]),
            ..repo(n, "r")
        };
        Fact::RepoReported { record }
    };
    let (hub, lab) = (Some(VcsProvider::Github), Some(VcsProvider::Gitlab));
    org.record(vec![
        reported(101, hub, "b.org", &["a", "x"], "red"),
        reported(102, hub, "b.org", &["a", "\",\"", "deep"], "red"),
        reported(103, lab, "B.org", &["a"], "blue"),
        reported(104, None, "", &[], "red"),
        reported(105, lab, "c.org", &["a,b", "é"], "blue"),
    ])
    .await?;
    other.record(vec![reported(201, Some(VcsProvider::Git), "z.org", &["z"], "red")]).await?;
    let any = RepoFilter::default;
    let path = |segments: &[&str]| Some(segments.iter().map(|segment| (*segment).to_owned()).collect());
    let tagged = |tag: &str| vec![TagFilter::parse(tag, ':')];
    let segment = RepoFacet::NamespaceSegment;
    let cases: Vec<(RepoFilter, RepoFacet, Vec<&str>)> = vec![
        (any(), RepoFacet::Provider, vec!["github", "gitlab"]),
        (any(), RepoFacet::VcsInstance, vec!["B.org", "b.org", "c.org"]),
        (any(), segment(0), vec!["a", "a,b"]),
        (any(), segment(1), vec!["\",\"", "x", "é"]),
        (any(), segment(3), vec![]),
        (any(), segment(u16::MAX), vec![]),
        (RepoFilter { namespace: path(&["a"]), ..any() }, segment(1), vec!["\",\"", "x"]),
        (RepoFilter { namespace: path(&["a", "x"]), ..any() }, segment(2), vec![]),
        (RepoFilter { namespace: path(&["a,b"]), ..any() }, RepoFacet::Provider, vec!["gitlab"]),
        (RepoFilter { provider: lab, ..any() }, RepoFacet::VcsInstance, vec!["B.org", "c.org"]),
        (RepoFilter { tags: tagged("team:blue"), ..any() }, RepoFacet::Provider, vec!["gitlab"]),
        (
            RepoFilter { tags: tagged("team:red"), vcs_instance: Some("b.org".to_owned()), ..any() },
            segment(0),
            vec!["a"],
        ),
        (RepoFilter { tags: tagged("gone"), ..any() }, RepoFacet::Provider, vec![]),
    ];
    for (filter, facet, expected) in cases {
        for limit in [0, 1, 100] {
            let found = store.repo_values(org.id, &filter, facet, limit).await?;
            let first = expected.iter().zip(0..limit).map(|(value, _)| (*value).to_owned());
            same(&format!("{limit} of {facet:?} with {filter:?}"), found, first.collect())?;
        }
    }
    Ok(())
}
