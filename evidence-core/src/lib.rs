//! Software delivery evidence: what was built, from which commit, with which reviews, tests and scans, and what runs
//! where; every record queryable, and provable by an RFC 6962 log per organization.
//!
//! This crate is the whole service but for transport and storage. Start at [`Evidence`] (the service over a
//! [`Store`]), [`api::operations`] (the API as a list of types) and [`fact::Fact`] (everything that can happen).
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `pdf` | yes | the trail report as PDF; without it the operation is not served |
//! | `memory` | no | `MemoryStore`, for tests and for a first try |
//! | `conformance` | no | the checks that every store has to pass, as a test program |
//! | `proptest` | no | strategies for every validated type and request, to test clients and stores with |

pub mod administration;
pub mod allowlists;
pub mod api;
pub mod api_keys;
pub mod artifacts;
pub mod attestation_types;
pub mod attestations;
pub mod auth;
pub mod background;
pub mod blobs;
mod cache;
pub mod compute;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod decode;
pub mod digest;
pub mod directory;
pub mod environments;
pub mod error;
mod evaluation;
pub mod fact;
pub mod feed;
pub mod flows;
pub mod id;
pub mod index;
pub mod json;
pub mod ledger;
pub mod limits;
#[cfg(feature = "memory")]
pub mod memory;
pub mod name;
mod names;
pub mod operation;
pub mod orgs;
pub mod page;
pub mod policies;
pub mod queue;
mod recording;
#[cfg(feature = "pdf")]
pub mod report;
pub mod reports;
pub mod repos;
pub mod rules;
pub mod schemas;
pub mod seed;
pub mod service;
pub mod service_accounts;
pub mod shared;
pub mod shares;
pub mod snapshots;
pub mod spool;
pub mod store;
#[cfg(feature = "proptest")]
pub mod strategies;
pub mod sweep;
pub mod tags;
mod templates;
pub mod texts;
pub mod time;
pub mod trails;
pub mod transfer;
mod ttl_cache;
mod turns;
mod versions;

pub use error::{Error, ErrorKind, Result, Wording};
pub use fact::{Fact, Guard, Key, RecordKind, Write};
pub use limits::Limits;
pub use operation::{Operation, Visitor};
pub use service::{Evidence, EvidenceService, Settings};
pub use store::{Current, Entry, Store, StoreError};
