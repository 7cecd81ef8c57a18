//! What was seen running in an environment, before it is evaluated.

use std::collections::BTreeMap;

use crate::json::JsonFields;
use crate::name::Fingerprint;
use crate::rules::policy;
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::RunningArtifact;

/// What runs.
pub(crate) type ReportedState = BTreeMap<ArtifactKey, ObservedArtifact>;

/// An artifact as it was seen running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObservedArtifact {
    /// Its SHA-256, where it has one.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Its name in the environment: of several the first in the report.
    pub(crate) name: String,
    /// Its other names there, in order.
    pub(crate) other_names: Vec<String>,
    /// When its instances were created, in epoch seconds, ascending.
    pub(crate) created: Vec<i64>,
    /// What only environments of its kind tell.
    pub(crate) context: JsonFields,
}

impl ObservedArtifact {
    /// What was seen, when this was recorded.
    pub(crate) fn of(instance: &RunningArtifact) -> Self {
        let RunningArtifact { fingerprint, name, other_names, created, context, .. } = instance.clone();
        Self { fingerprint, name, other_names, created, context }
    }

    /// All its names, the first one first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.other_names.iter().map(String::as_str))
    }

    pub(crate) fn as_policies_see_it(&self) -> policy::Artifact<'_> {
        policy::Artifact {
            name: &self.name,
            other_names: &self.other_names,
            fingerprint: self.fingerprint.as_ref().map(Fingerprint::as_str),
        }
    }
}
