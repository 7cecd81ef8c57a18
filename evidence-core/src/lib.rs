//! Software delivery evidence: what was built, from which commit, with which reviews, tests and scans, and what runs
//! where; every record queryable, and provable by an RFC 6962 log per organization.
//!
//! This crate is the whole service but for transport and storage. Start at [`Evidence`] (the service over a
//! [`Store`]), [`api::operations`] (the API as a list of types) and [`fact::Fact`] (everything that can happen).
//!
//! Where comments cite "the specification", they mean the behaviour that the tests in
//! `evidence-tower/tests/api/specification/` pin down.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `pdf` | yes | the trail report as PDF; without it the operation is not served |
//! | `memory` | no | `MemoryStore`, for tests and for a first try |
//! | `conformance` | no | the checks that every store has to pass, as a test program |
//! | `proptest` | no | strategies for every validated type and request, to test clients and stores with |

#![cfg_attr(not(feature = "pdf"), expect(dead_code, reason = "some of what is read is for the PDF alone"))]

// The layers of ARCHITECTURE.md, from the lowest: files import from their own layer and those below.

pub mod bounded;
mod cache;
mod coalesced;
pub mod decode;
pub mod digest;
pub mod git;
pub mod id;
pub mod json;
pub mod ledger;
pub mod links;
mod lock;
pub mod name;
pub mod time;

#[cfg(feature = "pdf")]
pub mod pdf;
pub mod rules;

pub mod compute;
pub mod directory;
pub mod error;
pub mod fact;
pub mod index;
pub mod limits;
pub mod page;

pub mod blobs;
pub mod feed;
pub mod store;

pub mod admission;
pub mod auth;
pub mod budget;
pub mod operation;
pub mod queue;
pub mod service;
pub mod shares;
pub mod spool;
mod turns;

pub mod actions;
pub mod allowlists;
pub mod api_keys;
pub mod artifacts;
pub mod attestation_types;
pub mod attestations;
pub mod builds;
pub mod controls;
pub mod deployments;
pub mod environments;
pub mod flows;
pub mod notifications;
pub mod orgs;
pub mod policies;
pub mod repos;
pub mod schemas;
pub mod service_accounts;
pub mod snapshots;
pub mod sweep;
pub mod tags;
pub mod texts;
pub mod trails;

pub mod administration;
pub mod api;
pub mod background;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "memory")]
pub mod memory;
pub mod seed;
#[cfg(feature = "proptest")]
pub mod strategies;
pub mod transfer;

pub use error::{Error, ErrorKind, Result, Wording};
pub use fact::{Fact, Guard, Key, RecordKind, Write};
pub use limits::Limits;
pub use operation::{Operation, Visitor};
pub use service::{Evidence, EvidenceService, Settings};
pub use store::{Current, Entry, Store, StoreError};
