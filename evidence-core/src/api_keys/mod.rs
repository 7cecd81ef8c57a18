//! API keys of service accounts. A key is shown once, when it is created; it can be rotated with a grace
//! period, and revoked. Permission to manage an account includes its keys.

pub(crate) mod operations;
pub(crate) mod view;

pub use operations::{
    ApiKeyInput, ApiKeyRotation, CreateApiKey, Expiry, GetApiKey, GraceHours, KeyDescription, ListApiKeys,
    RevokeApiKey, RotateApiKey,
};
pub use view::{ApiKeyView, NewApiKey, RotatedApiKey};
