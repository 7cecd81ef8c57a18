//! Operations on allowlists, and their responses.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::allowlists::record::{AllowlistEntry, Withdrawal};
use crate::allowlists::view::AllowlistEntryView;
use crate::auth::actor::Scope;
use crate::bounded::{Description, LongText};
use crate::context::{Context, Draft};
use crate::environments::evaluation::Changed;
use crate::environments::record::Environment;
use crate::environments::reevaluation::reevaluate;
use crate::error::{Error, Missing, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition};
use crate::name::{EnvironmentName, Fingerprint, OrgName};
use crate::operation::{Acknowledged, Created, Json, JsonList, Method, Operation};
use crate::page::Listed;
use crate::time::Timestamp;

/// Lists the allowlist entries of an organization that are in force, newest first. For each environment and
/// fingerprint, only the newest entry is listed. With `include_ended`, the list also has entries that expired
/// or were withdrawn.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListAllowlist {
    /// The organization's name.
    pub org: OrgName,
    /// Whether to include entries that expired or were withdrawn. Defaults to false.
    pub include_ended: Option<bool>,
}

impl Operation for ListAllowlist {
    const NAME: &'static str = "list_allowlist";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/allowlists/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the artifacts that are allowed in environments";
    type Body = ();
    type Output = JsonList<AllowlistEntryView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let in_force_at = (!self.include_ended.unwrap_or_default()).then(|| cx.now());
        let listed = cx.store().allowlist_entries_listed(cx.org()?, in_force_at).await?;
        let (labels, owned) = (Arc::new(cx.all_environment_labels().await?), cx.to_owned_context());
        let read = move |indexes: Vec<u64>| {
            let (labels, owned) = (Arc::clone(&labels), owned.clone());
            async move {
                let cx = owned.context();
                let allowlist_entries = cx.store().allowlist_entries(cx.org()?, &indexes).await?;
                let record = |allowlist_entry: AllowlistEntry| {
                    let name = labels.get(&allowlist_entry.environment)?.name.clone();
                    Some(Ok(AllowlistEntryView::new(allowlist_entry, name, cx.now())))
                };
                Ok::<_, Error>(stream::iter(
                    allowlist_entries.into_iter().filter_map(record).collect::<Vec<_>>(),
                ))
            }
        };
        let items = stream::iter(Listed::batches(listed)).then(read).try_flatten();
        JsonList::with_first_item(items, (), &cx.compute()).await
    }
}

/// Allows an artifact in an environment, by its fingerprint. The artifact need not be known. Allowing it
/// again adds an entry that replaces the earlier one. The entry counts from the environment's next report,
/// until it expires (`expires_at`) or is withdrawn.
///
/// An environment with as many allowed artifacts as the host permits (10,000 by default) accepts no others:
/// 400. A logical environment has no allowlist, because artifacts are allowed in its members: 400. The
/// response repeats the request.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AllowArtifact {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

/// The artifact to allow, and the reason.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AllowlistPutInput")]
pub struct AllowlistInput {
    /// The artifact's name, for readers.
    pub artifact_name: LongText,
    /// The SHA-256 of the artifact.
    pub artifact_fingerprint: Fingerprint,
    /// The reason why the artifact is allowed.
    pub description: Description,
    /// When the entry expires, in epoch seconds. It must be in the future. After that, the entry allows
    /// nothing, and the environment is evaluated again. Null or left out means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<AllowlistEntryEnd>,
}

/// The time when an allowlist entry expires, in epoch seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct AllowlistEntryEnd(i64);

impl AllowlistEntryEnd {
    /// The last second of the year 9999. The present time in milliseconds exceeds it, so a wrong unit is
    /// detected.
    const LATEST: i64 = 253_402_300_799;

    fn after(self, now: Timestamp) -> Result<Timestamp> {
        let end = Timestamp::from_seconds(self.0);
        if end <= now {
            return Err(Error::invalid(
                "expires_at",
                "expires_at cannot be in the past; it is in epoch seconds",
            ));
        }
        Ok(end)
    }
}

impl<'de> Deserialize<'de> for AllowlistEntryEnd {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = i64::deserialize(deserializer)?;
        if seconds > Self::LATEST {
            let text = "Input should be in epoch seconds, not in milliseconds, microseconds or nanoseconds";
            return Err(serde::de::Error::custom(text));
        }
        Ok(Self(seconds))
    }
}

impl JsonSchema for AllowlistEntryEnd {
    fn schema_name() -> Cow<'static, str> {
        "AllowanceEnd".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "integer",
            "maximum": Self::LATEST,
            "description": "Epoch seconds, in the future.",
        })
    }
}

impl Operation for AllowArtifact {
    const NAME: &'static str = "allow_artifact_for_env";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/allowlists/{org}/{env_name}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Allows an artifact in an environment";
    type Body = Json<AllowlistInput>;
    type Output = Created<AllowlistInput>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        cx.retry(|| allow(&self.env_name, input.clone(), cx)).await?;
        Ok(Created(input))
    }
}

/// Refuses an artifact if the environment already allows the maximum number.
async fn check_size(environment: &Environment, artifact: &Fingerprint, cx: &Context<'_>) -> Result<()> {
    let (store, org, most) = (cx.store(), cx.org()?, cx.limits().environment_allowances);
    let (artifact, now) = (std::slice::from_ref(artifact), cx.now());
    let is_known = !store.allowed(org, environment.id, artifact, u64::MAX, now).await?.is_empty();
    if is_known || store.allowlist_entry_count(org, environment.id, now, most).await? < most {
        return Ok(());
    }
    let text = format!("Environment '{}' allows {most} artifacts and takes no more", environment.name);
    Err(Error::invalid("artifact_fingerprint", text))
}

async fn allow(environment: &EnvironmentName, input: AllowlistInput, cx: &Context<'_>) -> Result<()> {
    let expires_at = input.expires_at.map(|end| end.after(cx.now())).transpose()?;
    let known = cx.environment(environment.as_str()).await?;
    if !known.record.kind.is_physical() {
        let text = format!("'{environment}' is a logical environment: allow the artifact in its members");
        return Err(Error::invalid("env_name", text));
    }
    check_size(&known.record, &input.artifact_fingerprint, cx).await?;
    let record = AllowlistEntry {
        id: cx.new_id(),
        environment: known.record.id,
        fingerprint: input.artifact_fingerprint,
        artifact_name: input.artifact_name.into_string(),
        description: input.description.into_string(),
        at: cx.now(),
        by: cx.actor(),
        expires_at,
        withdrawn: None,
    };
    let leads_there = Precondition::Denotes(Key::Environment(environment.clone()), known.record.id);
    cx.record(Draft::of(Fact::ArtifactAllowed { record }, leads_there)).await.map(drop)
}

/// Withdraws the entry of an artifact from the allowlist of an environment. Running artifacts are evaluated
/// again, and a snapshot is taken if a verdict changes. The entry stays in the ledger, and in the list with
/// `include_ended=true`. An artifact without an entry in force is 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct WithdrawAllowlistEntry {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
    /// The fingerprint of the artifact.
    pub fingerprint: Fingerprint,
}

impl Operation for WithdrawAllowlistEntry {
    const NAME: &'static str = "withdraw_artifact_from_env";
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/allowlists/{org}/{env_name}/{fingerprint}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Withdraws an artifact from the allowlist of an environment";
    type Body = ();
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let name = cx.retry(|| self.withdraw(cx)).await?;
        // In a separate write, because an evaluation reads recorded data. If this is interrupted, the job
        // does it.
        reevaluate(&name, Changed::Allowlist, cx).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

impl WithdrawAllowlistEntry {
    /// Records the withdrawal, and returns the present name of the environment. If the artifact is allowed at
    /// the same time, the entry recorded later counts.
    async fn withdraw(&self, cx: &Context<'_>) -> Result<EnvironmentName> {
        let (store, org) = (cx.store(), cx.org()?);
        let known = cx.environment(self.env_name.as_str()).await?;
        let fingerprint = std::slice::from_ref(&self.fingerprint);
        let allowed = store.allowed(org, known.record.id, fingerprint, u64::MAX, cx.now()).await?;
        let missing = || self.missing(cx);
        let entry = allowed.first().ok_or_else(missing)?.entry;
        let entry = store.allowlist_entries(org, &[entry]).await?.pop().ok_or_else(missing)?;
        let record = AllowlistEntry { withdrawn: Some(Withdrawal { at: cx.now(), by: cx.actor() }), ..entry };
        let leads_there = Precondition::Denotes(Key::Environment(self.env_name.clone()), known.record.id);
        cx.record(Draft::of(Fact::AllowanceWithdrawn { record }, leads_there)).await?;
        Ok(known.record.name)
    }

    fn missing(&self, cx: &Context<'_>) -> Missing {
        let Self { org: _, env_name, fingerprint } = self;
        let text =
            format!("the allowlist of environment '{env_name}' has no entry in force for '{fingerprint}'");
        cx.missing(Resource::AllowlistEntry, text)
    }
}
