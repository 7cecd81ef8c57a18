//! The API as its callers see it: request in, response out, over every store and at every mount.

mod access;
mod bodies;
mod documentation;
mod faults;
mod flows;
mod routing;
mod support;
