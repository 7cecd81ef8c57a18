//! Verdicts and their spelling in the API.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

/// Verdict on a trail, or on a reported artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// Nothing expected is missing, and nothing failed.
    #[serde(rename = "COMPLIANT")]
    Compliant,
    /// Something failed.
    #[serde(rename = "NON-COMPLIANT")]
    NonCompliant,
    /// Nothing failed, but something expected is missing.
    #[serde(rename = "INCOMPLETE")]
    Incomplete,
}

impl State {
    /// Returns the verdict as the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compliant => "COMPLIANT",
            Self::NonCompliant => "NON-COMPLIANT",
            Self::Incomplete => "INCOMPLETE",
        }
    }

    /// Returns whether the verdict is `COMPLIANT`.
    pub const fn is_compliant(self) -> bool {
        matches!(self, Self::Compliant)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for State {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        [Self::Compliant, Self::NonCompliant, Self::Incomplete]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or(UnknownState)
    }
}

/// Error: the text is not a [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownState;

impl fmt::Display for UnknownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Input should be 'COMPLIANT', 'NON-COMPLIANT' or 'INCOMPLETE'")
    }
}

impl std::error::Error for UnknownState {}

/// Verdict on an artifact that the template expects or a client reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArtifactState {
    /// Expected, but never reported.
    Missing,
    /// Reported, with this verdict.
    Reported(State),
}

impl ArtifactState {
    /// Returns the verdict as the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "MISSING",
            Self::Reported(state) => state.as_str(),
        }
    }

    /// Returns whether the artifact is compliant, or `None` while it is missing.
    pub const fn is_compliant(self) -> Option<bool> {
        match self {
            Self::Missing => None,
            Self::Reported(state) => Some(state.is_compliant()),
        }
    }
}

impl fmt::Display for ArtifactState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl JsonSchema for ArtifactState {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ArtifactState".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let states = [State::Compliant, State::NonCompliant, State::Incomplete].map(Self::Reported);
        let values = states.iter().chain([&Self::Missing]).map(|state| state.as_str());
        schemars::json_schema!({ "type": "string", "enum": Vec::from_iter(values) })
    }
}

impl Serialize for ArtifactState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
