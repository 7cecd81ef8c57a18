//! Builds in responses.

use schemars::JsonSchema;
use serde::Serialize;

use crate::bounded::{ShortText, or_empty};
use crate::error::Result;
use crate::name::Fingerprint;
use crate::operation::{Envelope, around_last};
use crate::page::{Link, PageLinks};
use crate::repos::record::Repo;
use crate::time::Seconds;

/// The first report of an artifact in the organization.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "BuildItemResponse")]
#[non_exhaustive]
pub struct BuildView {
    /// When it was recorded, in epoch seconds.
    pub created_at: Seconds,
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// The flow it was reported to.
    pub flow_name: String,
    /// The name of the trail that it was reported to; `""` for a report to a flow as a whole.
    pub trail_name: String,
    /// The repo that it was reported from; null if the report names none.
    pub repo_info: Option<BuildRepo>,
    /// Links to related resources.
    pub _links: BuildLinks,
}

/// The repo of a build, as described by its newest reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "BuildRepoInfo")]
#[non_exhaustive]
pub struct BuildRepo {
    /// Its name, with its owner: `owner/repo`.
    pub name: String,
    /// Its id at the host; `""` if not reported.
    pub repo_id: String,
}

impl From<&Repo> for BuildRepo {
    fn from(repo: &Repo) -> Self {
        Self {
            name: repo.info.name.to_string(),
            repo_id: or_empty(repo.info.id.as_ref().map(ShortText::as_str)),
        }
    }
}

/// Links of a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct BuildLinks {
    /// The artifact in this API.
    pub artifact: Link,
    /// The page of the report.
    pub html: Link,
}

/// A page of builds. No other property is present.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "BuildListResponse", deny_unknown_fields)]
#[non_exhaustive]
pub struct BuildList {
    /// This page and its neighbours.
    pub _links: PageLinks,
    /// This page's number, from 1.
    pub page: u64,
    /// Builds per page, as requested.
    pub per_page: u64,
    /// The number of pages; 0 if `per_page` is 0.
    pub total_pages: u64,
    /// Number of builds on all pages.
    pub total_count: u64,
    /// The builds of the page, newest first.
    pub builds: Vec<BuildView>,
}

/// The builds in a time window.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct BuildStatistics {
    /// The start of the window, in epoch seconds.
    pub start_ts: Seconds,
    /// The end of the window, in epoch seconds.
    pub end_ts: Seconds,
    /// Number of builds in the window.
    pub count: u64,
    /// When each build was recorded, in epoch seconds, newest first; at most 100,000.
    // The last field, because the times are streamed.
    pub built_at: Vec<Seconds>,
}

impl Envelope<Seconds> for BuildStatistics {
    type Document = Self;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        around_last(self)
    }
}
