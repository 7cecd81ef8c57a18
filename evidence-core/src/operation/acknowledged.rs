//! The answer of an operation that has nothing to tell.

use schemars::JsonSchema;
use serde::Serialize;

/// The JSON string `"OK"` that acknowledges a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Acknowledged {
    /// Done.
    #[serde(rename = "OK")]
    Ok,
}
