//! Operations that attach policies to environments and detach them.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText};
use crate::context::Context;
use crate::environments::operations::record_settings;
use crate::error::{Error, Result, at_most};
use crate::fact::Fact;
use crate::fact::names::Key;
use crate::id::Id;
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{Acknowledged, Json, Method, Operation};
use crate::policies::operations as policies;

/// Attaches policies to an environment. Running artifacts of a physical environment are evaluated again, and
/// a snapshot is taken if there was one before. Policies of a logical environment apply to the artifacts of
/// its members, so snapshots of the members are taken. They count for the verdict of the logical environment,
/// not for that of the member. Policies that are already attached stay attached. An environment has at most
/// as many policies as the host allows (100 by default); more are 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AttachPolicies {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

/// The policies to attach or detach.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "AttachPoliciesPutInput")]
#[serde(deny_unknown_fields)]
pub struct PolicyNames {
    /// The names of the policies. At least one is required, and each must exist.
    #[schemars(length(min = 1))]
    pub policy_names: List<ShortText>,
}

impl PolicyNames {
    fn some(&self) -> Result<&[ShortText]> {
        match &*self.policy_names.0 {
            [] => Err(Error::invalid("policy_names", "List should have at least 1 item")),
            names => Ok(names),
        }
    }
}

impl Operation for AttachPolicies {
    const NAME: &'static str = "attach_policy_to_env";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/environments/{org}/{env_name}/policies";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Attaches policies to an environment";
    type Body = Json<PolicyNames>;
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let names = input.some()?;
        let record = Key::Environment(self.env_name.clone());
        cx.retry_exclusively(record, || change(&self.env_name, names, Change::Attach, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

/// Detaches policies from an environment. Running artifacts are evaluated again, and a snapshot is taken if
/// there was one before. Policies that are not attached are ignored.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct DetachPolicies {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

impl Operation for DetachPolicies {
    const NAME: &'static str = "detach_policy_from_env";
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/environments/{org}/{env_name}/policies";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Detaches policies from an environment";
    type Body = Json<PolicyNames>;
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let names = input.some()?;
        let record = Key::Environment(self.env_name.clone());
        cx.retry_exclusively(record, || change(&self.env_name, names, Change::Detach, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

/// The change to the named policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Attach,
    Detach,
}

const FIELD: &str = "policy_names";

async fn change(
    environment: &EnvironmentName,
    names: &[ShortText],
    change: Change,
    cx: &Context<'_>,
) -> Result<()> {
    let known = cx.environment(environment.as_str()).await?;
    let mut preconditions = Vec::new();
    let mut named = policies::named(names, FIELD, &mut preconditions, cx).await?;
    let is_attached = |id: &Id| known.record.policies.contains(id);
    named.retain(|policy| is_attached(&policy.record.id) == (change == Change::Detach));
    let policies: Vec<Id> = named.iter().map(|policy| policy.record.id).collect();
    if policies.is_empty() {
        return Ok(());
    }
    let mut record = known.record.clone();
    match change {
        Change::Attach => {
            record.policies.extend(&policies);
            at_most(cx.limits().environment_policies, record.policies.len(), FIELD)?;
        }
        Change::Detach => record.policies.retain(|policy| !policies.contains(policy)),
    }
    let fact = |record| match change {
        Change::Attach => Fact::PoliciesAttached { record, policies },
        Change::Detach => Fact::PoliciesDetached { record, policies },
    };
    record_settings(known, record, fact, (named, preconditions), cx).await
}
