//! Operations on allowlists, and their answers.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::allowlists::record::Allowance;
use crate::auth::actor::Scope;
use crate::bounded::{Description, LongText};
use crate::environments::record::Environment;
use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::fact::names::{Guard, Key};
use crate::name::{EnvironmentName, Fingerprint, OrgName};
use crate::operation::{Created, Json, JsonList, Method, Operation};
use crate::page::Listed;
use crate::service::{Context, Draft};
use crate::time::WholeSeconds;

/// An entry of the allowlist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AllowlistResponse")]
#[non_exhaustive]
pub struct AllowanceView {
    /// What the artifact is called, as whoever allowed it wrote it; nothing is looked up by it.
    pub artifact_name: String,
    /// Why the artifact is allowed.
    pub description: String,
    /// The environment in which the artifact is allowed.
    pub environment_name: EnvironmentName,
    /// The SHA-256 of the allowed artifact.
    pub fingerprint: Fingerprint,
    /// When the artifact was allowed, in epoch seconds.
    pub timestamp: WholeSeconds,
    /// Who allowed it: the name of a user or service account.
    pub user_name: String,
}

impl AllowanceView {
    fn new(allowance: Allowance, environment_name: EnvironmentName) -> Self {
        let Allowance { artifact_name, description, fingerprint, at, by, .. } = allowance;
        let timestamp = at.whole_seconds();
        Self { artifact_name, description, environment_name, fingerprint, timestamp, user_name: by.name }
    }
}

/// Lists the allowlist of an organization, newest first. Of each environment and fingerprint the newest record alone
/// is listed.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListAllowlist {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for ListAllowlist {
    const NAME: &'static str = "list_allowlist";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/allowlists/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the artifacts that are allowed in environments";
    type Body = ();
    type Output = JsonList<AllowanceView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let listed = cx.store().allowances_listed(cx.org()?).await?;
        let (labels, owned) = (Arc::new(cx.all_environment_labels().await?), cx.to_owned_context());
        let read = move |indexes: Vec<u64>| {
            let (labels, owned) = (Arc::clone(&labels), owned.clone());
            async move {
                let cx = owned.context();
                let allowances = cx.store().allowances(cx.org()?, &indexes).await?;
                let record = |allowance: Allowance| {
                    let name = labels.get(&allowance.environment)?.name.clone();
                    Some(Ok(AllowanceView::new(allowance, name)))
                };
                Ok::<_, Error>(stream::iter(allowances.into_iter().filter_map(record).collect::<Vec<_>>()))
            }
        };
        let items = stream::iter(Listed::batches(listed)).then(read).try_flatten();
        JsonList::with_first_item(items, (), &cx.compute()).await
    }
}

/// Allows an artifact, by its fingerprint, in an environment. Nothing else need be known of the artifact. Allowing it
/// again adds a record, which is listed in the place of the earlier one. An environment that allows as many artifacts
/// as the host permits (10,000 unless it says otherwise) takes no further ones: 400. What runs in members of a logical
/// environment is allowed in these alone. Answers with what was sent.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AllowArtifact {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

/// What is allowed, and why.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AllowlistPutInput")]
pub struct AllowlistInput {
    /// What the artifact is called, for people.
    pub artifact_name: LongText,
    /// The SHA-256 of the artifact.
    pub artifact_fingerprint: Fingerprint,
    /// Why the artifact is allowed.
    pub description: Description,
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

/// Refuses an artifact that would be one too many for the environment.
async fn check_size(environment: &Environment, artifact: &Fingerprint, cx: &Context<'_>) -> Result<()> {
    let (store, org, most) = (cx.store(), cx.org()?, cx.limits().environment_allowances);
    let is_known =
        !store.allowed(org, environment.id, std::slice::from_ref(artifact), u64::MAX).await?.is_empty();
    if is_known || store.allowance_count(org, environment.id, most).await? < most {
        return Ok(());
    }
    let text = format!("Environment '{}' allows {most} artifacts and takes no more", environment.name);
    Err(Error::invalid("artifact_fingerprint", text))
}

async fn allow(environment: &EnvironmentName, input: AllowlistInput, cx: &Context<'_>) -> Result<()> {
    let known = cx.environment(environment.as_str()).await?;
    check_size(&known.record, &input.artifact_fingerprint, cx).await?;
    let record = Allowance {
        id: cx.new_id(),
        environment: known.record.id,
        fingerprint: input.artifact_fingerprint,
        artifact_name: input.artifact_name.into_string(),
        description: input.description.into_string(),
        at: cx.now(),
        by: cx.actor(),
    };
    let leads_there = Guard::Denotes(Key::Environment(environment.clone()), known.record.id);
    cx.record(Draft::of(Fact::ArtifactAllowed { record }, leads_there)).await.map(drop)
}
