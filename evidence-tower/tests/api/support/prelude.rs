//! The names that most cases use.

pub(crate) use std::sync::Arc;

pub(crate) use evidence_conformance::memory::MemoryStore;
pub(crate) use evidence_core::{Evidence, Limits, Settings, Store};
pub(crate) use serde_json::{Value, json};

pub(crate) use crate::mounts::Mount;
pub(crate) use crate::support::environments::{COMPLIANCE, PROVENANCE, ReportedArtifact, fingerprint};
pub(crate) use crate::support::given::merged;
pub(crate) use crate::support::json::{FORBIDDEN, INVALID, fields};
pub(crate) use crate::support::{
    Api, JANE, JOHN, ManualClock, NOW, Reply, RequestBuilder, StoreUnderTest, acme, block_on, fixture,
    in_memory, in_memory_with, on_every_mount, on_every_store, stores, with_every_store,
};
pub(crate) use crate::trails::{COMMIT, TEMPLATE};
