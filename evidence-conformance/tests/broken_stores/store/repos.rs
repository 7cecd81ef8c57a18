//! Repos and builds of the store of the tests.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::builds::{Build, BuildFilter, BuildStore};
use evidence_core::deployments::{Deployment, DeploymentFilter, DeploymentStore, DeploymentTime};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Page, PageRequest};
use evidence_core::repos::{Repo, RepoFacet, RepoFilter, RepoStore, VcsProvider};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::{Broken, Defect};

#[async_trait]
impl BuildStore for Broken {
    async fn builds(&self, org: Id, filter: &BuildFilter, request: PageRequest) -> StoreResult<Page<Build>> {
        let to = match self.has(Defect::EndsWindowsEarly) {
            true => Timestamp::from_micros(filter.to.as_micros().saturating_sub(1)),
            false => filter.to,
        };
        let mut page = self.whole.builds(org, &BuildFilter { to, ..filter.clone() }, request).await?;
        if self.has(Defect::CountsBuildsOfAllRepos) {
            let all = BuildFilter { repos: None, to, from: filter.from };
            page.total = self.whole.builds(org, &all, PageRequest { offset: 0, limit: 0 }).await?.total;
        }
        Ok(page)
    }

    async fn build_times(&self, org: Id, filter: &BuildFilter, limit: u64) -> StoreResult<Page<Timestamp>> {
        self.whole.build_times(org, filter, limit).await
    }
}

#[async_trait]
impl DeploymentStore for Broken {
    async fn deployments(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Deployment>> {
        let flow = if self.has(Defect::ListsDeploymentsOfAllFlows) { None } else { filter.flow };
        self.whole.deployments(org, &DeploymentFilter { flow, ..filter.clone() }, request).await
    }

    async fn deployment_times(
        &self,
        org: Id,
        filter: &DeploymentFilter,
        limit: u64,
    ) -> StoreResult<Page<DeploymentTime>> {
        let mut page = self.whole.deployment_times(org, filter, limit).await?;
        if self.has(Defect::OldestDeploymentFirst) {
            page.items.reverse();
        }
        Ok(page)
    }

    async fn latest_deployment(
        &self,
        org: Id,
        environment: Id,
        fingerprint: &Fingerprint,
    ) -> StoreResult<Option<Deployment>> {
        let latest = self.whole.latest_deployment(org, environment, fingerprint).await?;
        let is_again = |one: &Deployment| one.snapshot > 1;
        Ok(latest.filter(|one| !(self.has(Defect::ForgetsLaterDeployments) && is_again(one))))
    }
}

#[async_trait]
impl RepoStore for Broken {
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>> {
        self.whole.repo_by_identity(org, identity).await
    }

    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>> {
        self.whole.repo(org, id).await
    }

    async fn repos_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Repo>> {
        self.whole.repos_by_id(org, ids).await
    }

    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>> {
        self.whole.repos(org, filter, request).await
    }

    async fn repo_ids(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Vec<Id>> {
        self.whole.repo_ids(org, filter, request).await
    }

    async fn newest_repo(
        &self,
        org: Id,
        name: &str,
        provider: Option<VcsProvider>,
    ) -> StoreResult<Option<Repo>> {
        self.whole.newest_repo(org, name, provider).await
    }

    async fn repos_named(&self, org: Id, names: &[&str], most: u64) -> StoreResult<Vec<(String, Id)>> {
        let names =
            if self.has(Defect::KnowsOneRepoOfAList) { names.get(..1).unwrap_or(names) } else { names };
        self.whole.repos_named(org, names, most).await
    }

    async fn repo_values(
        &self,
        org: Id,
        filter: &RepoFilter,
        facet: RepoFacet,
        limit: u64,
    ) -> StoreResult<Vec<String>> {
        self.whole.repo_values(org, filter, facet, limit).await
    }
}
