//! The API as its callers see it: request in, response out, over every store and at every mount.

mod access;
mod allowlists;
mod artifacts;
mod attestation_types;
mod attestations;
mod bodies;
mod documentation;
mod environments;
mod faults;
mod flows;
mod json;
mod orgs;
mod policies;
mod races;
mod reports;
mod repos;
mod routing;
mod scenery;
mod service_accounts;
mod snapshots;
mod support;
mod tags;
mod trails;
