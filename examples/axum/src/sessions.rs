//! The application's own identity: a session header that names a person, who is a user of the same name to the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use evidence_core::auth::Principal;
use evidence_core::{Error, Evidence, Result};
use evidence_tower::Authenticator;
use http::HeaderMap;
use http::request::Parts;

/// The header that carries a session.
const SESSION: &str = "x-session";

/// Who is signed in: user names by session. An application has them in a store or a signed token.
#[derive(Debug, Default)]
pub struct Sessions(BTreeMap<String, String>);

impl FromIterator<(String, String)> for Sessions {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(sessions: I) -> Self {
        Self(sessions.into_iter().collect())
    }
}

/// Tells the API who calls by the application's sessions; those without one may still have an API key.
#[derive(Debug, Clone)]
pub struct SignedIn {
    evidence: Evidence,
    sessions: Arc<Sessions>,
}

impl SignedIn {
    /// By these sessions, of users of this service.
    pub fn new(evidence: Evidence, sessions: Sessions) -> Self {
        Self { evidence, sessions: Arc::new(sessions) }
    }

    /// The caller whose session these headers carry; `None` if they carry none.
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
