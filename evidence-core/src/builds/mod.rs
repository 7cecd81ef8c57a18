//! Builds: the first report of each artifact in an organization. A later report of the same content is not a
//! build.

pub(crate) mod operations;
pub(crate) mod store;
pub(crate) mod view;

pub use operations::{GetBuildStatistics, ListBuilds};
pub use store::{Build, BuildFilter, BuildStore};
pub use view::{BuildLinks, BuildList, BuildRepo, BuildStatistics, BuildView};
