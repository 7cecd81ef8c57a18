//! Repos in responses.

use schemars::JsonSchema;
use serde::Serialize;

use crate::bounded::{Description, FreeForm, ShortText};
use crate::context::Context;
use crate::error::Result;
use crate::id::Id;
use crate::page::{Link, PageLinks};
use crate::repos::record::{Repo, VcsProvider};
use crate::tags::record::Tags;
use serde_json::{Map, Value};

/// A repo, as described by its newest reports.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RepoResponse")]
#[non_exhaustive]
pub struct RepoView {
    /// Its id in this API, by which its tags are changed. The id at the host is `repo_id`.
    pub id: Id,
    /// Its name, with its owner: `owner/repo`.
    pub name: String,
    /// The part of the name after the last `/`.
    pub short_name: String,
    /// Its URL.
    pub url: String,
    /// The kind of host; null if not reported.
    pub provider: Option<VcsProvider>,
    /// Its id at the host; null if not reported. The repo is recognised by it if its name changes.
    pub repo_id: Option<String>,
    /// The host of `url`, in lower case, with any port that is not the default; null if it has none.
    pub vcs_instance: Option<String>,
    /// The groups that contain it: as reported, otherwise the segments of the name before the last; null if
    /// there are none.
    pub namespace_path: Option<Vec<String>>,
    /// Further data, as reported; null if nothing was.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub additional_info: Option<FreeForm>,
    /// Its description; null if not reported.
    pub description: Option<String>,
    /// Its tags: key to value.
    pub tags: Tags,
    /// Links to related resources.
    pub _links: RepoLinks,
}

/// Links of a repo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoLinks {
    /// The URL at which its tags are changed.
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

/// The values by which repos can be filtered, each list in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct RepoFilterOptions {
    /// The kinds of hosts.
    pub providers: Vec<String>,
    /// The hosts.
    pub vcs_instances: Vec<String>,
    /// The namespace segments that follow `namespace`; without it, the first segments.
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
