//! API keys in responses. The key itself is shown once, when it is created.

use schemars::JsonSchema;
use serde::Serialize;

use crate::id::Id;
use crate::service_accounts::record::ApiKeyRecord;
use crate::time::{Seconds, Timestamp, WholeSeconds};

/// An API key, without the key itself.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ApiKeyListItemResponse")]
#[non_exhaustive]
pub struct ApiKeyView {
    /// The key's id, for use in paths of the API. It is not a secret.
    pub id: Id,
    /// A description of the key's purpose.
    pub description: String,
    /// When the key was created, in epoch seconds.
    pub created_at: Seconds,
    /// When the key expires, in epoch seconds; 0 for never.
    pub expires_at: WholeSeconds,
}

impl From<ApiKeyRecord> for ApiKeyView {
    fn from(key: ApiKeyRecord) -> Self {
        Self {
            id: key.id,
            description: key.description,
            created_at: key.created_at.seconds(),
            expires_at: key.expires_at.map(Timestamp::whole_seconds).unwrap_or_default(),
        }
    }
}

/// A new API key with its text. No other response ever shows it.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ApiKeyCreatedResponse")]
#[non_exhaustive]
pub struct NewApiKey {
    /// The data about the key.
    #[serde(flatten)]
    pub record: ApiKeyView,
    /// The key itself, for use in `Authorization: Bearer`. No other response ever shows it.
    pub key: String,
}

/// A new API key that replaces another.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ApiKeyRotatedResponse")]
#[non_exhaustive]
pub struct RotatedApiKey {
    /// The new key.
    #[serde(flatten)]
    pub new: NewApiKey,
    /// The same as `key`. Some clients expect this name.
    pub api_key: String,
    /// When the old key stops working, in epoch seconds.
    pub grace_period_expires_at: Seconds,
}

impl std::fmt::Debug for NewApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewApiKey").field("record", &self.record).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RotatedApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RotatedApiKey").field("new", &self.new).finish_non_exhaustive()
    }
}
