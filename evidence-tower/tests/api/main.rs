//! The API as its callers see it: request in, response out, over every store, each at one mount.

// An async function without `#[apply]` is no test.
#![deny(dead_code)]

#[macro_use]
extern crate macro_rules_attribute;

#[macro_use]
mod support;

mod access;
mod actions;
mod administration;
mod allowlists;
mod artifacts;
mod asserts;
mod attachment_places;
mod attachments;
mod attestation_lists;
mod attestation_types;
mod attestations;
mod authorization_table;
mod background;
mod bodies;
mod builds;
mod bytes_read;
mod clocks;
mod compute;
mod concurrent_reports;
mod concurrent_requests;
mod controls;
mod damaged;
mod deployments;
mod documentation;
mod environment_events;
mod environment_lifecycle;
mod environments;
mod exact_numbers;
mod examples;
mod executed;
mod faults;
mod flows;
mod host_operations;
mod identity;
mod intercepting_store;
mod large_data;
mod ledger_checker;
mod limits;
mod logical_snapshots;
mod model;
mod mounts;
mod notifications;
mod operation_paths;
mod orgs;
mod packages;
mod policies;
mod policy_rules;
mod proofs;
mod public_flows;
mod races;
mod reasons;
mod rebuilding;
mod remembering;
mod replays;
mod report_kinds;
mod reports;
mod repos;
mod routing;
mod running_artifact_compliance;
mod service_accounts;
mod snapshots;
mod specification;
mod statements;
mod sweeping;
mod tags;
mod templates;
mod terraform;
mod text_limits;
mod trails;
mod unread;
mod unreadable;
mod verdicts;
mod wording;
mod writes;
