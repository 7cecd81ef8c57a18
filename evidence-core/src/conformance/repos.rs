//! Checks of [`crate::repos::RepoStore`].

use std::sync::Arc;

use crate::bounded::ShortText;
use crate::fact::{Fact, UnknownFields};
use crate::id::Id;
use crate::page::{Page, PageRequest, SortDirection};
use crate::repos::{Repo, RepoFilter};
use crate::repos::{RepoInfo, VcsProvider};
use crate::store::{Current, Store};
use crate::tags::{TagFilter, Tags};

use super::fixtures::{Org, at, bare_repo_info, full_repo_info, id, request, tags};
use super::{Failure, Outcome, promises, same};

promises! {
    repos_read_back: "Repos are what was reported or tagged last, absent options too.",
    repos_are_found_in_their_organization: "What does not exist, or is another organization's, is `None`.",
    repos_are_listed_by_name: "`repos`, like `repos_listed`, is ordered by name (bytes) in the direction asked, equal names by id ascending.",
    repo_pages_have_the_right_total: "A page past the end is empty, with the right total.",
    repos_are_narrowed: "Everything given in a repo filter must match.",
}

fn repo(n: u64, name: &str) -> Repo {
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
    Ok(())
}

async fn listed(org: &Org, filter: &RepoFilter) -> Result<Vec<Id>, Failure> {
    let repos = org.store.repos(org.id, filter, PageRequest::ALL).await?;
    same("the total", repos.total, repos.items.len() as u64)?;
    let repos = repos.map(|repo| repo.id).items;
    let named = org.store.repos_listed(org.id, filter, PageRequest::ALL).await?;
    same("without what they say", named.into_iter().map(|repo| repo.id).collect(), repos.clone())?;
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
    for (asked, expected) in [
        (request(1, 2), vec![103, 104]),
        (request(4, 2), vec![105]),
        (request(5, 2), vec![]),
        (request(PageRequest::ALL.limit, 1), vec![]),
    ] {
        let found = store.repos(org.id, &RepoFilter::default(), asked).await?.map(|repo| repo.id);
        let expected = Page { items: expected.into_iter().map(id).collect(), total: 5 };
        same(&format!("{asked:?}"), found, expected.clone())?;
        let found = store.repos_listed(org.id, &RepoFilter::default(), asked).await?;
        let found = found.into_iter().map(|repo| repo.id).collect();
        same(&format!("{asked:?}, without what they say"), found, expected.items)?;
    }
    Ok(())
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
    for (filter, expected) in cases {
        let expected = expected.into_iter().map(id).collect();
        same(&format!("{filter:?}"), listed(&org, &filter).await?, expected)?;
    }
    Ok(())
}
