//! The policies that environments are evaluated by: attached, and detached.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText};
use crate::environments::evaluation;
use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::fact::names::Key;
use crate::id::Id;
use crate::limits::at_most;
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{Acknowledged, Json, Method, Operation};
use crate::policies::operations as policies;
use crate::service::{Context, Draft};

/// Attaches policies to an environment. What runs there is evaluated anew, and a snapshot is taken of it where there was
/// one. Those attached already stay, and nothing changes. An environment has at most as many policies as the host
/// permits (100 unless it says otherwise): 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AttachPolicies {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

/// Which policies are attached or detached.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "AttachPoliciesPutInput")]
#[serde(deny_unknown_fields)]
pub struct PolicyNames {
    /// The names of the policies: one at least, and each must exist.
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
        cx.retry_in_turn(record, || attach(&self.env_name, names, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

async fn attach(environment: &EnvironmentName, names: &[ShortText], cx: &Context<'_>) -> Result<()> {
    let mut known = cx.environment(environment.as_str()).await?;
    let mut guards = vec![known.unchanged()];
    let mut attached = policies::named(names, "policy_names", &mut guards, cx).await?;
    attached.retain(|policy| !known.record.policies.contains(&policy.record.id));
    let policies: Vec<Id> = attached.iter().map(|policy| policy.record.id).collect();
    if policies.is_empty() {
        return Ok(());
    }
    known.record.policies.extend(&policies);
    at_most(cx.limits().environment_policies, known.record.policies.len(), "policy_names")?;
    known.record.last_modified_at = cx.now_after(known.record.last_modified_at);
    let facts = vec![Fact::PoliciesAttached { record: known.record.clone(), policies }];
    let mut draft = Draft { facts, guards, ..Draft::default() };
    draft.extend(evaluation::reevaluate(&known, attached, cx).await?);
    cx.record(draft).await.map_err(|error| error.of_field("policy_names"))?;
    Ok(())
}

/// Detaches policies from an environment. What runs there is evaluated anew, and a snapshot is taken of it where there was
/// one. Those that are not attached are passed over.
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
        cx.retry_in_turn(record, || detach(&self.env_name, names, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

async fn detach(environment: &EnvironmentName, names: &[ShortText], cx: &Context<'_>) -> Result<()> {
    let mut known = cx.environment(environment.as_str()).await?;
    let mut guards = vec![known.unchanged()];
    let named = policies::named(names, "policy_names", &mut guards, cx).await?;
    let mut policies: Vec<Id> = named.iter().map(|policy| policy.record.id).collect();
    policies.retain(|policy| known.record.policies.contains(policy));
    if policies.is_empty() {
        return Ok(());
    }
    known.record.policies.retain(|policy| !policies.contains(policy));
    known.record.last_modified_at = cx.now_after(known.record.last_modified_at);
    let facts = vec![Fact::PoliciesDetached { record: known.record.clone(), policies }];
    let mut draft = Draft { facts, guards, ..Draft::default() };
    draft.extend(evaluation::reevaluate(&known, Vec::new(), cx).await?);
    cx.record(draft).await.map_err(|error| error.of_field("policy_names"))?;
    Ok(())
}
