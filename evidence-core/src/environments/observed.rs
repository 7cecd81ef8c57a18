//! The artifacts seen running in an environment, before their evaluation.

use std::collections::BTreeMap;

use crate::json::JsonFields;
use crate::name::Fingerprint;
use crate::rules::policy;
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::RunningArtifact;

/// The running artifacts, by key.
pub(crate) type ReportedState = BTreeMap<ArtifactKey, ObservedArtifact>;

/// An artifact as seen running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObservedArtifact {
    /// Its SHA-256, if known.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Its name in the environment; if there are several, the first in the report.
    pub(crate) name: String,
    /// Its other names in the environment, sorted.
    pub(crate) other_names: Vec<String>,
    /// When its instances were created, in epoch seconds, ascending.
    pub(crate) created: Vec<i64>,
    /// Data that only environments of its kind report.
    pub(crate) context: JsonFields,
}

impl ObservedArtifact {
    /// Returns the observation that led to this record.
    pub(crate) fn of(instance: &RunningArtifact) -> Self {
        let RunningArtifact { fingerprint, name, other_names, created, context, .. } = instance.clone();
        Self { fingerprint, name, other_names, created, context }
    }

    /// Returns all its names, starting with the first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.other_names.iter().map(String::as_str))
    }

    pub(crate) fn to_policy_artifact(&self) -> policy::Artifact<'_> {
        policy::Artifact {
            name: &self.name,
            other_names: &self.other_names,
            fingerprint: self.fingerprint.as_ref().map(Fingerprint::as_str),
        }
    }
}
