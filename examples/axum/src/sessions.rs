//! The application's own authentication: a session header identifies a user, who has the same name in the
//! API.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use evidence_core::auth::Principal;
use evidence_core::{Error, Evidence, Result};
use evidence_tower::Authenticator;
use http::HeaderMap;
use http::request::Parts;

/// The header with the session.
const SESSION: &str = "x-session";

/// The signed-in users: user names by session. A real application has them in a store or in a signed token.
#[derive(Debug, Default)]
pub struct Sessions(BTreeMap<String, String>);

impl FromIterator<(String, String)> for Sessions {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(sessions: I) -> Self {
        Self(sessions.into_iter().collect())
    }
}

/// Authenticates callers by session. A caller without a session may have an API key.
#[derive(Debug, Clone)]
pub struct SignedIn {
    evidence: Evidence,
    sessions: Arc<Sessions>,
}

impl SignedIn {
    /// Authenticates users of this service by these sessions.
    pub fn new(evidence: Evidence, sessions: Sessions) -> Self {
        Self { evidence, sessions: Arc::new(sessions) }
    }

    /// Returns the caller of the session in these headers; `None` without a session.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] for an unknown session or user.
    pub async fn caller(&self, headers: &HeaderMap) -> Result<Option<Principal>> {
        let Some(session) = headers.get(SESSION) else { return Ok(None) };
        let user = session.to_str().ok().and_then(|session| self.sessions.0.get(session));
        self.evidence.principal_of_user(user.ok_or(Error::Unauthenticated)?).await.map(Some)
    }
}

#[async_trait]
impl Authenticator for SignedIn {
    async fn authenticate(&self, request: &Parts) -> Result<Option<Principal>> {
        self.caller(&request.headers).await
    }
}
