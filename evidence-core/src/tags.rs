//! Tags: labels on flows, environments and repos.
