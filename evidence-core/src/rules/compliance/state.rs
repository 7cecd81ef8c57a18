//! Verdicts, and how the API spells them.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

/// Verdict over a trail, or over an artifact that was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// All that is expected is there, and nothing failed.
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
    /// The verdict as the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compliant => "COMPLIANT",
            Self::NonCompliant => "NON-COMPLIANT",
            Self::Incomplete => "INCOMPLETE",
        }
    }

    /// Whether the verdict is `COMPLIANT`.
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

/// The text is no [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownState;

impl fmt::Display for UnknownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Input should be 'COMPLIANT', 'NON-COMPLIANT' or 'INCOMPLETE'")
    }
}

impl std::error::Error for UnknownState {}

/// Verdict over an artifact that the template expects or somebody reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArtifactState {
    /// Expected, and never reported.
    Missing,
    /// Reported, with this verdict.
    Reported(State),
}

impl ArtifactState {
    /// The verdict as the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "MISSING",
            Self::Reported(state) => state.as_str(),
        }
    }

    /// Whether the artifact is compliant; unknown while it is missing.
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
