//! The API keys of service accounts: made, shown once, rotated with a period of grace, revoked. Who may manage an
//! account manages its keys.

pub(crate) mod operations;
pub(crate) mod view;

pub use operations::{
    ApiKeyInput, ApiKeyRotation, CreateApiKey, Expiry, GetApiKey, GraceHours, KeyDescription, ListApiKeys,
    RevokeApiKey, RotateApiKey,
};
pub use view::{ApiKeyView, NewApiKey, RotatedApiKey};
