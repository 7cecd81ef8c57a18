//! Repos: where code comes from. They come into being when a report names one, and follow what the newest report
//! says of them; what it leaves out stays as it was told.

pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod store;
pub(crate) mod view;

pub use operations::ListRepos;
pub use record::{Repo, RepoInfo, VcsProvider};
pub use store::{RepoFilter, RepoStore};
pub use view::{RepoLinks, RepoList, RepoView};
