//! Builds: the first report of each artifact in an organization. Whoever reports the same content again has built nothing.

pub(crate) mod operations;
pub(crate) mod store;
pub(crate) mod view;

pub use operations::{GetBuildStatistics, ListBuilds};
pub use store::{Build, BuildFilter, BuildStore};
pub use view::{BuildLinks, BuildList, BuildRepo, BuildStatistics, BuildView};
