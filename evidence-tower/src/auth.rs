//! Authentication: the credential in the request's headers, or the caller from the host.

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evidence_core::auth::{Credential, Principal};
use evidence_core::{Error, EvidenceService, Result};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;

/// Identifies callers for hosts with their own tokens or sessions; see
/// [`EvidenceApi::authenticated_by`](crate::EvidenceApi::authenticated_by).
///
/// ```
/// use async_trait::async_trait;
/// use evidence_core::auth::Principal;
/// use evidence_core::{Error, Evidence, Result};
/// use evidence_tower::Authenticator;
/// use http::request::Parts;
///
/// /// Trusts a proxy that has authenticated the user.
/// struct BehindProxy {
///     evidence: Evidence,
/// }
///
/// #[async_trait]
/// impl Authenticator for BehindProxy {
///     async fn authenticate(&self, request: &Parts) -> Result<Option<Principal>> {
///         let Some(user) = request.headers.get("x-authenticated-user") else { return Ok(None) };
///         let user = user.to_str().map_err(|_| Error::Unauthenticated)?;
///         self.evidence.principal_of_user(user).await.map(Some)
///     }
/// }
/// ```
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// Returns the caller of the request with this head. Returns `None` to fall back to the API key in the
    /// `Authorization` header. `request.uri` is relative to the mount point.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`] for an invalid credential. There is no fallback then.
    async fn authenticate(&self, request: &Parts) -> Result<Option<Principal>>;
}

/// Returns the caller of the `Authorization` header. Basic is accepted only if `basic` is set: its user name
/// is the key, and its password is ignored.
pub(crate) async fn authenticate<S: EvidenceService>(
    service: &S,
    headers: &HeaderMap,
    basic: bool,
) -> Result<Principal> {
    let (scheme, value) = authorization(headers).ok_or(Error::Unauthenticated)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        service.authenticate(Credential::Bearer(value)).await
    } else if basic && scheme.eq_ignore_ascii_case("basic") {
        let key = user_name(value).ok_or(Error::Unauthenticated)?;
        service.authenticate(Credential::Basic { key: &key }).await
    } else {
        Err(Error::Unauthenticated)
    }
}

/// Returns the scheme and the value. Returns `None` for several headers, because it is unclear which of them
/// counts.
fn authorization(headers: &HeaderMap) -> Option<(&str, &str)> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    let (scheme, value) = value.to_str().ok()?.split_once(' ')?;
    Some((scheme, value.trim()))
}

fn user_name(encoded: &str) -> Option<String> {
    let decoded = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
    decoded.split_once(':').map(|(user, _)| user.to_owned())
}

#[cfg(test)]
mod tests {
    use super::user_name;

    #[test]
    fn the_user_name_of_basic_ends_at_the_first_colon() {
        let table = [
            ("a2V5OnBhc3N3b3Jk", Some("key")),
            ("a2V5Og==", Some("key")),
            ("a2V5OmE6Yg==", Some("key")),
            ("OnBhc3N3b3Jk", Some("")),
            ("a2V5", None),
            ("a2V5Og", None),
            ("a2V5\nOg==", None),
            ("/zo=", None),
            ("", None),
        ];
        for (encoded, user) in table {
            assert_eq!(user_name(encoded).as_deref(), user, "{encoded:?}");
        }
    }
}
