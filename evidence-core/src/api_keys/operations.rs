//! Operations on the API keys of service accounts.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::api_keys::view::{ApiKeyView, NewApiKey, RotatedApiKey};
use crate::auth::actor::Scope;
use crate::auth::credentials::ApiKey;
use crate::bounded::{ShortText, Text};
use crate::context::{Context, Draft};
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Precondition, RecordKind};
use crate::name::{OrgName, ServiceAccountName};
use crate::operation::{Acknowledged, Created, Json, Method, Operation};
use crate::page::integer_between;
use crate::service_accounts::record::{ApiKeyRecord, ServiceAccount};
use crate::store::entry::Current;
use crate::time::{Timestamp, check_seconds};

impl Context<'_> {
    /// Returns the unrevoked key of this id, or [`Error::NotFound`]. A text that is not an id is not found.
    async fn unrevoked_key(&self, account: &ServiceAccount, key_id: &str) -> Result<Current<ApiKeyRecord>> {
        let key = match key_id.parse() {
            Ok(id) => self.store().api_key(self.org()?, id).await?,
            Err(_) => None,
        };
        let found = |key: &Current<ApiKeyRecord>| {
            key.record.owner.id == account.id && key.record.revoked_at.is_none()
        };
        Ok(key.filter(found).ok_or_else(|| self.missing(Resource::ApiKey, key_id))?)
    }

    /// Returns the active key of this id, or [`Error::NotFound`].
    async fn active_key(&self, account: &ServiceAccount, key_id: &str) -> Result<Current<ApiKeyRecord>> {
        let key = self.unrevoked_key(account, key_id).await?;
        if !key.record.is_active(self.now()) {
            return Err(self.missing(Resource::ApiKey, key_id).into());
        }
        Ok(key)
    }

    /// Refuses a key if its account already has the maximum number.
    async fn check_keys(&self, account: &ServiceAccount) -> Result<()> {
        let most = self.limits().api_keys;
        let keys = self.store().api_key_count(self.org()?, account.id, self.now()).await?;
        if keys < most as u64 {
            return Ok(());
        }
        let text = format!("Service account '{}' has {most} keys that work and takes no more", account.name);
        Err(Error::invalid("name", text))
    }
}

impl Draft {
    /// Adds a new key of an account. Returns the key with its record; the text of the key is stored nowhere.
    fn new_key(
        &mut self,
        account: &Current<ServiceAccount>,
        description: String,
        expires_at: Option<Timestamp>,
        cx: &Context<'_>,
    ) -> (ApiKey, ApiKeyRecord) {
        let key = ApiKey::generate(cx.random());
        let owner = account.record.actor();
        let record = ApiKeyRecord::of(&key, cx.new_id(), owner, description, cx.now(), expires_at);
        self.secrets.key_hashes.push((record.id, key.hash()));
        // The permission to create the key depends on the privilege of the account.
        let account = Precondition::Revision(RecordKind::ServiceAccount, account.record.id, account.revision);
        self.fact_if(Fact::ApiKeyCreated { record: record.clone() }, account);
        (key, record)
    }
}

/// The expiry of a key: epoch seconds, at most the beginning of the year 2100; 0 for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expiry(i64);

impl Expiry {
    const LATEST: i64 = 4_102_444_800;

    /// Returns the time of the expiry, or `None` for never.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the time is not in the future.
    pub(crate) fn after(self, now: Timestamp) -> Result<Option<Timestamp>> {
        let end = Timestamp::from_seconds(self.0);
        match self.0 {
            0 => Ok(None),
            _ if end <= now => Err(Error::invalid("expires_at", "expires_at cannot be in the past")),
            _ => Ok(Some(end)),
        }
    }
}

impl<'de> Deserialize<'de> for Expiry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = i64::deserialize(deserializer)?;
        check_seconds(seconds).map_err(serde::de::Error::custom)?;
        if seconds > Self::LATEST {
            let latest = Self::LATEST;
            return Err(serde::de::Error::custom(format_args!(
                "Input should be less than or equal to {latest}"
            )));
        }
        Ok(Self(seconds))
    }
}

impl JsonSchema for Expiry {
    fn schema_name() -> Cow<'static, str> {
        "Expiry".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "integer",
            "maximum": Self::LATEST,
            "description": "Epoch seconds, in the future; 0 for never.",
        })
    }
}

/// The number of hours for which a rotated key still works: 1 to 720.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct GraceHours(i64);

impl GraceHours {
    const MIN: i64 = 1;
    const MAX: i64 = 720;

    /// Returns the end of the grace period that begins at `now`.
    const fn end(self, now: Timestamp) -> Timestamp {
        Timestamp::from_micros(now.as_micros().saturating_add(self.0 * 3_600_000_000))
    }
}

impl Default for GraceHours {
    fn default() -> Self {
        Self(24)
    }
}

impl<'de> Deserialize<'de> for GraceHours {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        integer_between(deserializer, Self::MIN, Self::MAX).map(Self)
    }
}

impl JsonSchema for GraceHours {
    fn schema_name() -> Cow<'static, str> {
        "GraceHours".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": Self::MIN, "maximum": Self::MAX })
    }
}

/// A description of a key's purpose: 1 to 256 characters.
pub type KeyDescription = Text<256, 1>;

/// Lists the active API keys of a service account, oldest first, without the keys themselves. Expired and
/// revoked keys are left out.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListApiKeys {
    /// The organization's name.
    pub org: OrgName,
    /// The service account's name.
    pub name: ServiceAccountName,
}

impl Operation for ListApiKeys {
    const NAME: &'static str = "list_service_account_api_keys";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/service-accounts/{org}/{name}/api-keys";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the active API keys of a service account";
    type Body = ();
    type Output = Json<Vec<ApiKeyView>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let account = cx.service_account(&self.name).await?.record;
        let keys = cx.store().api_keys(cx.org()?, account.id, cx.now()).await?;
        Ok(Json(keys.into_iter().map(|key| key.record.into()).collect()))
    }
}

/// Creates an API key of a service account. Only this response shows the key. Administrators can create keys
/// of every service account. Others can do so for accounts that they created, provided that the account's
/// role is not above their own; otherwise 403. An account has at most as many active keys as the host allows
/// (1,000 by default); more are 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct CreateApiKey {
    /// The organization's name.
    pub org: OrgName,
    /// The service account's name.
    pub name: ServiceAccountName,
}

/// The document that creates a key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ApiKeyPostInput")]
pub struct ApiKeyInput {
    /// A description of the key's purpose.
    pub description: KeyDescription,
    /// When the key expires, in epoch seconds: in the future, and not after the beginning of 2100. 0, null or
    /// left out means never.
    pub expires_at: Option<Expiry>,
}

impl Operation for CreateApiKey {
    const NAME: &'static str = "create_service_account_api_key";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/service-accounts/{org}/{name}/api-keys";
    const SCOPE: Scope = Scope::Report;
    const SUMMARY: &'static str = "Creates an API key of a service account, which is shown only once";
    type Body = Json<ApiKeyInput>;
    type Output = Created<NewApiKey>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let expiry = input.expires_at.unwrap_or_default();
        cx.retry(|| async { self.create(&input.description, expiry.after(cx.now())?, cx).await })
            .await
            .map(Created)
    }
}

impl CreateApiKey {
    async fn create(
        &self,
        description: &KeyDescription,
        expires_at: Option<Timestamp>,
        cx: &Context<'_>,
    ) -> Result<NewApiKey> {
        let account = cx.managed_account(&self.name).await?;
        cx.check_keys(&account.record).await?;
        let mut draft = Draft::default();
        let (key, record) = draft.new_key(&account, description.clone().into_string(), expires_at, cx);
        cx.record(draft).await?;
        Ok(NewApiKey { record: record.into(), key: key.reveal().to_owned() })
    }
}

/// Gets an active API key of a service account, without the key itself.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetApiKey {
    /// The organization's name.
    pub org: OrgName,
    /// The service account's name.
    pub name: ServiceAccountName,
    /// The key's id. An expired or revoked key is not found.
    pub key_id: ShortText,
}

impl Operation for GetApiKey {
    const NAME: &'static str = "get_service_account_api_key";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/service-accounts/{org}/{name}/api-keys/{key_id}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets an active API key of a service account";
    type Body = ();
    type Output = Json<ApiKeyView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let account = cx.service_account(&self.name).await?.record;
        Ok(Json(cx.active_key(&account, &self.key_id).await?.record.into()))
    }
}

/// Revokes an API key of a service account immediately, even if it has expired. Revoking it again is 404,
/// because a revoked key is not found. Administrators can revoke keys of every service account. Others can do
/// so for accounts that they created, provided that the account's role is not above their own; otherwise 403.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct RevokeApiKey {
    /// The organization's name.
    pub org: OrgName,
    /// The service account's name.
    pub name: ServiceAccountName,
    /// The key's id. A revoked key is not found.
    pub key_id: ShortText,
}

impl Operation for RevokeApiKey {
    const NAME: &'static str = "delete_service_account_api_key";
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/service-accounts/{org}/{name}/api-keys/{key_id}";
    const SCOPE: Scope = Scope::Report;
    const SUMMARY: &'static str = "Revokes an API key of a service account";
    type Body = ();
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        cx.retry(|| self.revoke(cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

impl RevokeApiKey {
    async fn revoke(&self, cx: &Context<'_>) -> Result<()> {
        let account = cx.managed_account(&self.name).await?.record;
        // A key that has expired by this server's clock may still work by another's.
        let Current { revision, record } = cx.unrevoked_key(&account, &self.key_id).await?;
        let precondition = Precondition::Revision(RecordKind::ApiKey, record.id, revision);
        cx.record(Draft::of(Fact::ApiKeyRevoked { record: record.revoked(cx.now()) }, precondition)).await?;
        Ok(())
    }
}

/// Creates an API key that replaces another, with the same description. The old key works for another
/// `grace_period_hours`, unless it expires before or the grace period of an earlier rotation ends. Only this
/// response shows the new key.
///
/// Administrators can rotate keys of every service account. Others can do so for accounts that they created,
/// provided that the account's role is not above their own; otherwise 403. An account has at most as many
/// active keys as the host allows; more are 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct RotateApiKey {
    /// The organization's name.
    pub org: OrgName,
    /// The service account's name.
    pub name: ServiceAccountName,
    /// The key's id. An expired or revoked key is not found.
    pub key_id: ShortText,
}

/// The document that rotates a key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ApiKeyRotateInput")]
pub struct ApiKeyRotation {
    /// The number of hours for which the old key still works. Defaults to 24.
    #[serde(default)]
    pub grace_period_hours: GraceHours,
    /// When the new key expires, in epoch seconds: in the future, and not after the beginning of 2100. 0,
    /// null or left out means never.
    pub expires_at: Option<Expiry>,
}

impl Operation for RotateApiKey {
    const NAME: &'static str = "rotate_service_account_api_key";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/service-accounts/{org}/{name}/api-keys/{key_id}/rotate";
    const SCOPE: Scope = Scope::Report;
    const SUMMARY: &'static str = "Replaces an API key of a service account, with a grace period";
    type Body = Json<ApiKeyRotation>;
    type Output = Created<RotatedApiKey>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let (expiry, grace) = (input.expires_at.unwrap_or_default(), input.grace_period_hours);
        cx.retry(|| async { self.rotate(grace, expiry.after(cx.now())?, cx).await }).await.map(Created)
    }
}

impl RotateApiKey {
    async fn rotate(
        &self,
        grace: GraceHours,
        expires_at: Option<Timestamp>,
        cx: &Context<'_>,
    ) -> Result<RotatedApiKey> {
        let account = cx.managed_account(&self.name).await?;
        let Current { revision, record } = cx.active_key(&account.record, &self.key_id).await?;
        cx.check_keys(&account.record).await?;
        let precondition = Precondition::Revision(RecordKind::ApiKey, record.id, revision);
        let old = record.rotated(grace.end(cx.now()));
        let grace_period_expires_at = old.grace_period_expires_at.unwrap_or_default().seconds();
        let mut draft = Draft::default();
        let (key, new) = draft.new_key(&account, old.description.clone(), expires_at, cx);
        draft.fact_if(Fact::ApiKeyRevoked { record: old }, precondition);
        cx.record(draft).await?;
        let key = key.reveal().to_owned();
        let new = NewApiKey { record: new.into(), key: key.clone() };
        Ok(RotatedApiKey { new, api_key: key, grace_period_expires_at })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::auth::actor::Actor;
    use crate::auth::actor::ActorKind;
    use crate::decode::UnknownFields;
    use crate::decode::from_value;
    use crate::id::Id;
    use crate::id::SystemRandom;

    const NOW: Timestamp = Timestamp::from_seconds(1_000_000);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn key(expires_at: Option<i64>, grace_period_expires_at: Option<i64>) -> ApiKeyRecord {
        let id = Id::new(NOW, &SystemRandom);
        ApiKeyRecord {
            id,
            owner: Actor { id, name: "ci".to_owned(), kind: ActorKind::ServiceAccount },
            description: "laptop".to_owned(),
            created_at: at(1),
            expires_at: expires_at.map(at),
            grace_period_expires_at: grace_period_expires_at.map(at),
            revoked_at: None,
            hash_sha256: String::new(),
            unknown: UnknownFields::default(),
        }
    }

    #[test]
    fn a_key_works_until_it_expires_or_its_grace_period_is_over_or_it_is_revoked() {
        let table = [
            (None, None, true),
            (Some(1_000_001), None, true),
            (Some(1_000_000), None, false),
            (None, Some(1_000_001), true),
            (None, Some(1_000_000), false),
            (Some(1_000_001), Some(999_999), false),
        ];
        for (expires_at, grace, active) in table {
            let key = key(expires_at, grace);
            assert_eq!(key.is_active(NOW), active, "expires {expires_at:?}, grace {grace:?}");
            for clock in [0, 1_000_000, 2_000_000] {
                assert!(!key.clone().revoked(at(clock)).is_active(NOW), "revoked at {clock}");
            }
        }
    }

    #[test]
    fn a_rotation_never_makes_a_key_work_longer() {
        let table = [
            (key(None, None), 5, 5),
            (key(Some(3), None), 5, 3),
            (key(Some(9), Some(4)), 5, 4),
            (key(Some(9), Some(7)), 5, 5),
        ];
        for (key, end, expected) in table {
            let key = key.rotated(at(end));
            assert_eq!(
                (key.grace_period_expires_at, key.ends_at()),
                (Some(at(expected)), Some(at(expected)))
            );
        }
    }

    #[test]
    fn a_key_ends_in_the_future_or_never() {
        let ends = |seconds: i64| Expiry(seconds).after(NOW);
        assert_eq!(ends(0).unwrap(), None);
        assert_eq!(ends(1_000_001).unwrap(), Some(at(1_000_001)));
        for past in [1_000_000, 1, -1, i64::MIN] {
            let Err(Error::Invalid { fields, .. }) = ends(past) else { panic!("{past} is accepted") };
            let text = fields.get("expires_at").map(String::as_str);
            assert_eq!(text, Some("expires_at cannot be in the past"), "{past}");
        }
    }

    #[test]
    fn every_field_of_a_key_has_its_borders() {
        let text = |length: usize| Value::from("x".repeat(length));
        let create = [
            (json!({"description": ""}), Some("description")),
            (json!({"description": text(1)}), None),
            (json!({"description": "é".repeat(256)}), None),
            (json!({"description": text(257)}), Some("description")),
            (json!({"description": null}), Some("description")),
            (json!({}), Some("description")),
            (json!({"description": "x", "expires_at": 4_102_444_800_i64}), None),
            (json!({"description": "x", "expires_at": 4_102_444_801_i64}), Some("expires_at")),
            (json!({"description": "x", "expires_at": "1"}), Some("expires_at")),
            (json!({"description": "x", "expires_at": 1.5}), Some("expires_at")),
            (json!({"description": "x", "expires_at": null, "other": 1}), None),
        ];
        for (body, field) in create {
            let refused = from_value::<ApiKeyInput>(&body).err().map(|misfit| misfit.field());
            assert_eq!(refused.as_deref(), field, "{body}");
        }
        let rotate = [
            (json!({}), None),
            (json!({"grace_period_hours": 0}), Some("grace_period_hours")),
            (json!({"grace_period_hours": 1}), None),
            (json!({"grace_period_hours": 720}), None),
            (json!({"grace_period_hours": 721}), Some("grace_period_hours")),
            (json!({"grace_period_hours": null}), Some("grace_period_hours")),
            (json!({"expires_at": 4_102_444_801_i64}), Some("expires_at")),
        ];
        for (body, field) in rotate {
            let refused = from_value::<ApiKeyRotation>(&body).err().map(|misfit| misfit.field());
            assert_eq!(refused.as_deref(), field, "{body}");
        }
    }

    #[test]
    fn no_answer_prints_its_secret() {
        let record = ApiKeyView::from(key(None, None));
        let new = NewApiKey { record, key: "hunter2".to_owned() };
        let rotated = RotatedApiKey {
            new: new.clone(),
            api_key: "hunter2".to_owned(),
            grace_period_expires_at: NOW.seconds(),
        };
        assert!(!format!("{new:?} {rotated:?}").contains("hunter2"));
    }
}
