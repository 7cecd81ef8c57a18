//! Labelled links, on trails, artifacts and attestations alike.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::{Address, Dictionary, LinkLabel};
use crate::decode::closed_in_requests;
use crate::name::Fingerprint;

/// Labelled links: label to address and, optionally, the fingerprint of what is there; at most 1,000.
pub type ExternalUrls = Dictionary<LinkLabel, ExternalUrl>;

/// One labelled link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct ExternalUrl {
    /// The address.
    pub href: Address,
    /// The SHA-256 of what is there.
    #[serde(default)]
    pub fingerprint: Option<Fingerprint>,
}

closed_in_requests!(ExternalUrl);
