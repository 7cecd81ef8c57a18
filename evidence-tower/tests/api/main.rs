//! The API as its callers see it: request in, response out, over every store and at every mount.

mod access;
mod artifacts;
mod attestations;
mod bodies;
mod documentation;
mod faults;
mod flows;
mod json;
mod routing;
mod support;
mod trails;
