//! Operations that rename and archive environments.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::context::{Context, Draft};
use crate::environments::record::Environment;
use crate::environments::reevaluation::reevaluate_members;
use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{Acknowledged, Json, Method, Operation};

/// Renames an environment. It is also found by its former names, until another environment takes them. A
/// present name of another environment is 400; a former name of another environment is allowed.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct RenameEnvironment {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

/// The document that renames an environment.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RenameEnvironmentPutInput")]
pub struct EnvironmentRenaming {
    /// The new name, unique in the organization.
    pub new_name: EnvironmentName,
}

impl Operation for RenameEnvironment {
    const NAME: &'static str = "rename_environment";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/environments/{org}/{env_name}/rename";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Renames an environment";
    type Body = Json<EnvironmentRenaming>;
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        cx.retry(|| rename(&self.env_name, &input.new_name, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

async fn rename(name: &EnvironmentName, new_name: &EnvironmentName, cx: &Context<'_>) -> Result<()> {
    let known = cx.environment(name.as_str()).await?;
    if known.record.name == *new_name {
        return Ok(());
    }
    let holder = cx.store().environment(cx.org()?, new_name.as_str()).await?;
    if let Some(holder) = holder.filter(|holder| holder.record.name == *new_name) {
        // A concurrent request may have made the same change since the environment was read.
        if holder.record.id == known.record.id {
            return Ok(());
        }
        return Err(Error::invalid("new_name", format!("'{new_name}' is the name of another environment")));
    }
    let precondition = known.unchanged();
    let last_modified_at = cx.now_after(known.record.last_modified_at);
    let was = known.record.name.clone();
    let record = Environment { name: new_name.clone(), last_modified_at, ..known.record };
    cx.record(Draft::of(Fact::EnvironmentRenamed { record, was }, precondition)).await?;
    Ok(())
}

/// Archives an environment. Lists leave it out, logical environments ignore it, and it is no longer found by
/// its name. Its name becomes free for another environment, of any type. Archiving cannot be undone.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ArchiveEnvironment {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

impl Operation for ArchiveEnvironment {
    const NAME: &'static str = "archive_env";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/environments/{org}/{env_name}/archive";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Archives an environment";
    type Body = ();
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        cx.retry(|| archive(&self.env_name, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

async fn archive(name: &EnvironmentName, cx: &Context<'_>) -> Result<()> {
    let known = cx.environment(name.as_str()).await?;
    let precondition = known.unchanged();
    let last_modified_at = cx.now_after(known.record.last_modified_at);
    let record = Environment { last_modified_at, ..known.record };
    let has_policies = !record.kind.is_physical() && !record.policies.is_empty();
    // Its policies no longer apply to the members.
    let members = record.included.iter().copied().filter(|_| has_policies).collect();
    cx.record(Draft::of(Fact::EnvironmentArchived { record }, precondition)).await?;
    reevaluate_members(members, cx).await
}
