//! Repos.

use async_trait::async_trait;

use crate::fact::Key;
use crate::id::Id;
use crate::page::{Listed, Page, PageRequest, SortDirection};
use crate::repos::{Repo, RepoFilter, RepoStore};
use crate::store::{Current, StoreResult};

use super::{MemoryStore, bytes, contains_folded, records};

impl RepoFilter {
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

    fn order(&self, left: &Repo, right: &Repo) -> std::cmp::Ordering {
        let by_name = left.info.name.cmp(&right.info.name);
        let by_name = match self.direction {
            SortDirection::Asc => by_name,
            SortDirection::Desc => by_name.reverse(),
        };
        by_name.then(left.id.cmp(&right.id))
    }
}

#[async_trait]
impl RepoStore for MemoryStore {
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>> {
        self.by_name(org, Some(Key::Repo(identity.to_owned())), |tables| &tables.repos)
    }

    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>> {
        self.ask(org, |tables| tables.repos.get(&id).cloned())
    }

    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>> {
        let mut repos = self.ask(org, |tables| records(&tables.repos, |repo| repo.id))?;
        repos.retain(|repo| filter.admits(repo));
        repos.sort_by(|left, right| filter.order(left, right));
        Ok(Page::of(repos, request))
    }

    async fn repos_listed(
        &self,
        org: Id,
        filter: &RepoFilter,
        request: PageRequest,
    ) -> StoreResult<Vec<Listed>> {
        let found = self.repos(org, filter, request).await?;
        found.items.iter().map(|repo| Ok(Listed { id: repo.id, bytes: bytes(repo)? })).collect()
    }
}
