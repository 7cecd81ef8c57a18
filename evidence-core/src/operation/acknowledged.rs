//! The response of an operation without a result.

use schemars::JsonSchema;
use serde::Serialize;

/// The JSON string `"OK"` that acknowledges a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Acknowledged {
    /// Done.
    #[serde(rename = "OK")]
    Ok,
}
