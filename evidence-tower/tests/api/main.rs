//! The API as its callers see it: request in, response out, over every store and at every mount.

mod access;
mod bodies;
mod documentation;
mod environments;
mod faults;
mod flows;
mod policies;
mod reports;
mod routing;
mod scenery;
mod snapshots;
mod support;
