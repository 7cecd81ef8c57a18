//! Repos.

use std::collections::BTreeSet;

use async_trait::async_trait;

use evidence_core::fact::Key;
use evidence_core::id::Id;
use evidence_core::page::{Page, PageRequest, SortDirection};
use evidence_core::repos::{Repo, RepoFacet, RepoFilter, RepoStore, VcsProvider};
use evidence_core::store::{Current, StoreResult};

use super::{Admits, MemoryStore, at_most, contains_folded, records};

impl Admits<Repo> for RepoFilter {
    fn admits(&self, repo: &Repo) -> bool {
        let Repo { info, vcs_instance, namespace_path, tags, .. } = repo;
        self.name.as_ref().is_none_or(|name| *name == *info.name)
            && self.search.as_ref().is_none_or(|part| contains_folded(&info.name, part))
            && self.provider.is_none_or(|provider| info.provider == Some(provider))
            && self.repo_id.as_deref().is_none_or(|id| info.id.as_deref() == Some(id))
            && (self.vcs_instance.is_none() || self.vcs_instance == *vcs_instance)
            && self.namespace.as_ref().is_none_or(|start| namespace_path.starts_with(start))
            && self.tags.iter().all(|tag| tag.matches(tags))
    }
}

fn order(filter: &RepoFilter, left: &Repo, right: &Repo) -> std::cmp::Ordering {
    let by_name = left.info.name.cmp(&right.info.name);
    let by_name = match filter.direction {
        SortDirection::Asc => by_name,
        SortDirection::Desc => by_name.reverse(),
    };
    by_name.then(left.id.cmp(&right.id))
}

#[async_trait]
impl RepoStore for MemoryStore {
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>> {
        self.by_name(org, Some(Key::Repo(identity.to_owned())), |tables| &tables.repos)
    }

    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>> {
        self.query(org, |tables| tables.repos.get(&id).cloned())
    }

    async fn repos_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Repo>> {
        let mut repos = self.query(org, |tables| records(&tables.repos, |repo| repo.id))?;
        repos.retain(|repo| ids.contains(&repo.id));
        Ok(repos)
    }

    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>> {
        let mut repos = self.query(org, |tables| records(&tables.repos, |repo| repo.id))?;
        repos.retain(|repo| filter.admits(repo));
        repos.sort_by(|left, right| order(filter, left, right));
        Ok(Page::of(repos, request))
    }

    async fn repo_ids(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Vec<Id>> {
        Ok(self.repos(org, filter, request).await?.map(|repo| repo.id).items)
    }

    async fn newest_repo(
        &self,
        org: Id,
        name: &str,
        provider: Option<VcsProvider>,
    ) -> StoreResult<Option<Repo>> {
        let repos = self.query(org, |tables| records(&tables.repos, |repo| repo.id))?;
        let filter = RepoFilter { name: Some(name.to_owned()), provider, ..RepoFilter::default() };
        Ok(repos.into_iter().rfind(|repo| filter.admits(repo)))
    }

    async fn repos_named(&self, org: Id, names: &[&str], most: u64) -> StoreResult<Vec<(String, Id)>> {
        self.query(org, |tables| {
            let repos = tables.repos.values().map(|repo| &repo.record);
            let named = repos.filter(|repo| names.contains(&repo.info.name.as_str()));
            let mut named = Vec::from_iter(named.map(|repo| (repo.info.name.to_string(), repo.id)));
            named.sort_unstable();
            let of_a_name = named.chunk_by(|(one, _), (other, _)| one == other);
            of_a_name.flat_map(|named| named.iter().take(at_most(most)).cloned()).collect()
        })
    }

    async fn repo_values(
        &self,
        org: Id,
        filter: &RepoFilter,
        facet: RepoFacet,
        limit: u64,
    ) -> StoreResult<Vec<String>> {
        let repos = self.query(org, |tables| records(&tables.repos, |repo| repo.id))?;
        let value = |repo: Repo| match facet {
            RepoFacet::Provider => repo.info.provider.map(|provider| provider.as_str().to_owned()),
            RepoFacet::VcsInstance => repo.vcs_instance,
            RepoFacet::NamespaceSegment(place) => repo.namespace_path.into_iter().nth(place.into()),
        };
        let values: BTreeSet<_> =
            repos.into_iter().filter(|repo| filter.admits(repo)).filter_map(value).collect();
        Ok(values.into_iter().take(at_most(limit)).collect())
    }
}
