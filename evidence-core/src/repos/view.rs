//! Repos as answers carry them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::bounded::{Description, FreeForm, ShortText};
use crate::error::Result;
use crate::id::Id;
use crate::page::{Link, PageLinks};
use crate::repos::record::{Repo, VcsProvider};
use crate::service::Context;
use crate::tags::record::Tags;
use serde_json::{Map, Value};

/// A repo as the newest reports describe it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RepoResponse")]
#[non_exhaustive]
pub struct RepoView {
    /// The id it has here, which leads to its tags. It is not the host's: that is `repo_id`.
    pub id: Id,
    /// Its name, with its owner: `owner/repo`.
    pub name: String,
    /// The part of the name after the last `/`.
    pub short_name: String,
    /// Its URL.
    pub url: String,
    /// The kind of host; null if not reported.
    pub provider: Option<VcsProvider>,
    /// Its id at the host, by which it is recognised when its name changes; null if not reported.
    pub repo_id: Option<String>,
    /// The host of `url`, in lower case, with a port that is not the usual one; null where it names none.
    pub vcs_instance: Option<String>,
    /// The groups it lies in: as reported, else the segments of the name before the last; null where there are none.
    pub namespace_path: Option<Vec<String>>,
    /// Further data, as reported; null if nothing was.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub additional_info: Option<FreeForm>,
    /// What it is about; null if not reported.
    pub description: Option<String>,
    /// Its tags: key to value.
    pub tags: Tags,
    /// Links to related resources.
    pub _links: RepoLinks,
}

/// Where to go from a repo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoLinks {
    /// Where its tags are changed.
    pub tags: Link,
}

impl RepoView {
    pub(super) fn new(repo: Repo, cx: &Context<'_>) -> Result<Self> {
        let Repo { id, info, vcs_instance, short_name, namespace_path, tags, .. } = repo;
        let href = cx.api_url(&format!("tags/{}/repo/{id}", cx.org_access()?.name));
        Ok(Self {
            id,
            name: info.name.into_string(),
            short_name,
            url: info.url.into_string(),
            provider: info.provider,
            repo_id: info.id.map(ShortText::into_string),
            vcs_instance,
            namespace_path: Some(namespace_path).filter(|path| !path.is_empty()),
            additional_info: info.additional_info,
            description: info.description.map(Description::into_string),
            tags,
            _links: RepoLinks { tags: Link { href } },
        })
    }
}

/// What repos can be narrowed by, each list in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoFilterOptions {
    /// The kinds of hosts.
    pub providers: Vec<String>,
    /// The hosts.
    pub vcs_instances: Vec<String>,
    /// The segments that follow `namespace` in the namespaces beneath it; the first segments where it was not given.
    pub namespace_values: Vec<String>,
}

/// A page of repos; no other property is present.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RepoListResponse", deny_unknown_fields)]
#[non_exhaustive]
pub struct RepoList {
    /// This page's number, from 1.
    pub page: u64,
    /// Repos per page, as requested.
    pub per_page: u64,
    /// Number of pages.
    pub total_pages: u64,
    /// Number of repos on all pages.
    pub total_count: u64,
    /// The repos of the page.
    pub repos: Vec<RepoView>,
    /// This page and its neighbours.
    pub _links: PageLinks,
}
