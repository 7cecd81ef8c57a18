//! Callers whom the host knows by itself, before the API's own keys are looked at.

use async_trait::async_trait;
use evidence_core::auth::Principal;
use evidence_core::{Error, Result};
use evidence_tower::{Authenticator, EvidenceApi};
use http::header::{COOKIE, HeaderValue};
use http::request::Parts;

use crate::mounts::MOUNTS;
use crate::support::prelude::*;

/// Believes a cookie that is a user's name.
struct Cookies(Evidence);

#[async_trait]
impl Authenticator for Cookies {
    async fn authenticate(&self, request: &Parts) -> Result<Option<Principal>> {
        let Some(cookie) = request.headers.get(COOKIE).map(HeaderValue::to_str) else { return Ok(None) };
        let name = cookie.map_err(|_| Error::Unauthenticated)?;
        self.0.principal_of_user(name).await.map(Some)
    }
}

#[tokio::test]
async fn a_host_says_who_calls_and_leaves_the_rest_to_keys() {
    for mount in MOUNTS {
        let evidence = in_memory().await;
        let host = Cookies(evidence.clone());
        let api = Api::of(EvidenceApi::new(evidence).authenticated_by(host), mount, "memory").await;
        let get = || api.get("/flows/acme");
        let known = get().anonymous().header(COOKIE, "jane").await;
        known.expect_exactly(200, json!([]));
        get().header(COOKIE, "john").await.expect(403, json!({}));
        for nobody in ["nobody", "jane; a=b", "-", ""] {
            get().header(COOKIE, nobody).await.expect_message(401, "Unauthorized");
        }
        get().await.expect_exactly(200, json!([]));
        get().anonymous().await.expect_message(401, "Unauthorized");
    }
}
