//! Software delivery evidence: what was built, from which commit, with which reviews, tests and scans, and what runs
//! where; every record queryable, and provable by an RFC 6962 log per organization.
//!
//! This crate is the whole service but for transport and storage. Start at [`Evidence`] (the service over a
//! [`Store`]), [`api::operations`] (the API as a list of types) and [`fact::Fact`] (everything that can happen).
//!
//! "The specification" in comments is the behaviour that the tests in `evidence-tower/tests/api/specification/` pin
//! down.
//!
//! Values, the ledger and the validation rules have crates of their own, which this one re-exports: [`evidence_values`]
//! (as [`name`], [`time`] and others), [`evidence_ledger`] (as [`ledger`]) and [`evidence_rules`] (as [`rules`]).
//! Stores are tested with `evidence-conformance`, which also has a store in memory:
//!
//! ```
//! use std::sync::Arc;
//!
//! use evidence_conformance::memory::MemoryStore;
//! use evidence_core::flows::{FlowInput, GetFlow, PutFlow};
//! use evidence_core::operation::{Form, Json};
//! use evidence_core::seed::Seed;
//! use evidence_core::{Evidence, EvidenceService, Settings};
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let service = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
//! let seed = Seed { user: "jane".parse()?, orgs: vec!["acme".parse()?], api_key: None };
//! service.seed(&seed).await?;
//! let caller = service.principal_of_user("jane").await?;
//!
//! let flow = FlowInput { name: "shop".parse()?, description: "The web shop".parse()?, visibility: None };
//! service.call(&caller, PutFlow { org: "acme".parse()? }, Form::of(flow)).await?;
//! let get = GetFlow { org: "acme".parse()?, flow_name: "shop".parse()? };
//! let Json(flow) = service.call(&caller, get, ()).await?;
//! assert_eq!(flow.description, "The web shop");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `pdf` | yes | the trail report as PDF; without it the operation is not served |
//! | `proptest` | no | strategies for every validated type and request, to test clients and stores with |
//! | `fixtures` | no | example records for the tests of this crate and of stores; not part of the stable interface |

#![cfg_attr(not(feature = "pdf"), expect(dead_code, reason = "some of what is read is for the PDF alone"))]

pub use evidence_ledger as ledger;
#[cfg(feature = "pdf")]
pub use evidence_pdf as pdf;
pub use evidence_rules as rules;
pub use evidence_values::{bounded, decode, digest, git, id, json, links, name, time};

mod cache;
mod coalesced;
mod lock;
mod settings;

pub mod compute;
pub mod error;
pub mod fact;
pub mod index;
pub mod limiter;
pub mod limits;
pub mod name_index;
pub mod page;

pub mod blobs;
pub mod leases;
pub mod store;

pub mod admission;
pub mod auth;
pub mod budget;
pub mod context;
pub mod operation;
pub mod queue;
pub mod service;
pub mod spill_buffer;

pub mod actions;
pub mod allowlists;
pub mod api_keys;
pub mod artifacts;
pub mod attestation_types;
pub mod attestations;
pub mod builds;
pub mod checkpoints;
pub mod controls;
pub mod deployments;
pub mod environments;
pub mod flows;
pub mod notifications;
pub mod orgs;
pub mod packages;
pub mod policies;
pub mod proofs;
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
#[cfg(any(test, feature = "fixtures"))]
#[doc(hidden)]
pub mod fixtures;
pub mod seed;
#[cfg(feature = "proptest")]
pub mod strategies;
pub mod transfer;

pub use error::{Error, ErrorKind, Result, Wording};
pub use fact::{Fact, Key, Precondition, RecordKind, Write};
pub use limits::Limits;
pub use operation::{Operation, Visitor};
pub use service::{Evidence, EvidenceService};
pub use settings::Settings;
pub use store::{Current, Entry, Store, StoreError};
