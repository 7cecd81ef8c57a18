//! Repos: where code comes from. They come into being when a report names one, and follow what the newest report
//! says of them; what it leaves out stays as it was told.

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
