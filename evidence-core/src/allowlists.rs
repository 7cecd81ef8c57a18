//! The allowlist: artifacts that may run in an environment whatever its policies say.

use std::collections::BTreeMap;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::{Actor, Scope};
use crate::error::Result;
use crate::fact::{Fact, Guard, Key};
use crate::id::Id;
use crate::name::{EnvironmentName, Fingerprint, OrgName};
use crate::operation::{Created, Json, Method, Operation};
use crate::service::{Context, Draft};
use crate::shared::{Acknowledged, Description, ShortText};
use crate::store::StoreResult;
use crate::time::{Timestamp, WholeSeconds};

/// An allowlist entry as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    /// Its id.
    pub id: Id,
    /// The environment.
    pub environment: Id,
    /// The artifact allowed.
    pub fingerprint: Fingerprint,
    /// The artifact's name.
    pub artifact_name: String,
    /// Why.
    pub description: String,
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
}

/// Questions about the allowlist.
#[async_trait]
pub trait AllowlistStore: Send + Sync {
    /// The newest entry of each environment and fingerprint, newest first (by ledger index); of one environment or all.
    async fn allowances(&self, org: Id, environment: Option<Id>) -> StoreResult<Vec<Allowance>>;
}

/// An allowlist entry as answers carry it (specification, Allowlist record).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AllowlistResponse")]
#[expect(missing_docs, reason = "the fields are the specification's, in its order")]
pub struct AllowlistRecord {
    pub artifact_name: String,
    pub description: String,
    pub environment_name: EnvironmentName,
    pub fingerprint: Fingerprint,
    pub timestamp: WholeSeconds,
    pub user_name: String,
}

impl AllowlistRecord {
    fn new(allowance: Allowance, environment_name: EnvironmentName) -> Self {
        let Allowance { artifact_name, description, fingerprint, at, by, .. } = allowance;
        let timestamp = at.whole_seconds();
        Self { artifact_name, description, environment_name, fingerprint, timestamp, user_name: by.name }
    }
}

/// Lists the allowlist of an organization, newest first: the newest record of each environment and fingerprint
/// (specification, Allowlists).
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "parameters, described by the API's documentation")]
pub struct ListAllowlist {
    pub org: OrgName,
}

impl Operation for ListAllowlist {
    const NAME: &'static str = "list_allowlist";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/allowlists/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the artifacts that are allowed in environments";
    type Body = ();
    type Output = Json<Vec<AllowlistRecord>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let allowances = cx.store().allowances(cx.org()?, None).await?;
        let environments = cx.store().environments(cx.org()?).await?;
        let names: BTreeMap<Id, EnvironmentName> =
            environments.into_iter().map(|known| (known.record.id, known.record.name)).collect();
        let record = |allowance: Allowance| {
            let name = names.get(&allowance.environment)?.clone();
            Some(AllowlistRecord::new(allowance, name))
        };
        Ok(Json(allowances.into_iter().filter_map(record).collect()))
    }
}

/// Allows an artifact in an environment; nothing else need be known of the artifact.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "parameters, described by the API's documentation")]
pub struct AllowArtifact {
    pub org: OrgName,
    pub env_name: EnvironmentName,
}

/// What is allowed, and why.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AllowlistPutInput")]
#[expect(missing_docs, reason = "the names say it")]
pub struct AllowlistInput {
    pub artifact_name: ShortText,
    pub artifact_fingerprint: Fingerprint,
    pub description: Description,
}

impl Operation for AllowArtifact {
    const NAME: &'static str = "allow_artifact_for_env";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/allowlists/{org}/{env_name}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Allows an artifact in an environment";
    type Body = Json<AllowlistInput>;
    type Output = Created<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        cx.retry(|| allow(&self.env_name, input.clone(), cx)).await?;
        Ok(Created(Acknowledged::Ok))
    }
}

async fn allow(environment: &EnvironmentName, input: AllowlistInput, cx: &Context<'_>) -> Result<()> {
    let known = cx.environment(environment.as_str()).await?;
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
