//! Repos: the sources of code. A report that names a repo creates it, and the newest report updates it;
//! values that a report leaves out keep their present values.

pub(crate) mod live;
pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod store;
pub(crate) mod view;

pub use live::{
    EmbeddedArtifact, EmbeddedEnvironment, EmbeddedLinks, GetLiveArtifacts, LiveArtifact, LiveArtifactLinks,
    LiveStatus, LiveStatusEmbedded, LiveStatusLinks,
};
pub use operations::{GetRepo, ListRepoFilterOptions, ListRepoTags, ListRepos};
pub use record::{Repo, RepoInfo, VcsProvider};
pub use store::{RepoFacet, RepoFilter, RepoStore};
pub use view::{RepoFilterOptions, RepoLinks, RepoList, RepoView};
