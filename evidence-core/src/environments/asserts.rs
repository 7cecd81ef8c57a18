//! The deployment gate: whether an artifact may go on, asked before it runs. By the templates of its flows, by the policies
//! of an environment, or by policies that the caller names.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::evaluation::{EvaluatedReport, InTrail, lost, without_trail};
use crate::artifacts::store::Origin;
use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText};
use crate::compute::MANY_EVALUATIONS;
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Resource, Result};
use crate::flows::templates::Parsed;
use crate::id::{Id, VersionKey};
use crate::name::{EnvironmentName, Fingerprint, FlowName, OrgName};
use crate::operation::{Json, Method, Operation};
use crate::policies::operations as policies;
use crate::policies::record::Policy;
use crate::rules::compliance::{self, ArtifactStatus, ReportedArtifact, ReportedAttestation};
use crate::rules::policy::{self, FlowContext};
use crate::service::Context;
use crate::snapshots::record::PolicyDecision;
use crate::store::batch::distinct;
use crate::store::error::StoreError;
use crate::time::Seconds;
use crate::trails::evaluation::evaluated;
use crate::trails::store::TrailContents;

/// Asserts that an artifact is compliant: in every flow it was reported to, or in the one that `flow_name` names. With
/// `environment_name`, that it may run there: that it is on the allowlist, or complies with every policy of the
/// environment; one without policies asks for nothing. With `policy_name`, that it complies with each of these policies,
/// attached or not. The answer is 200 whether it is or not; a fingerprint that nobody reported is 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AssertArtifact {
    /// The organization's name.
    pub org: OrgName,
    /// The artifact's fingerprint.
    pub fingerprint: Fingerprint,
    /// Looks at this flow alone.
    pub flow_name: Option<FlowName>,
    /// Asks the policies of this environment. Cannot be given with `policy_name`.
    pub environment_name: Option<ShortText>,
    /// Asks the policy of this name; repeatable, and answered in the same order.
    #[serde(default)]
    pub policy_name: List<ShortText, 100>,
}

/// By what an artifact is asserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AssertScope {
    /// By the templates of its flows.
    Flow,
    /// By the policies of an environment, and its allowlist.
    Environment,
    /// By policies that the caller names.
    Policy,
}

/// Whether an artifact is compliant. `flow`, `trail`, `compliance_status` and `html_url` repeat the first of `flows`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "AssertArtifactResponse")]
#[non_exhaustive]
pub struct AssertView {
    /// By what it was asserted.
    pub scope: AssertScope,
    /// The artifact.
    pub fingerprint: Fingerprint,
    /// The first flow's name.
    pub flow: String,
    /// The name of the trail there; `""` for a report to a flow as a whole.
    pub trail: String,
    /// Whether it is compliant.
    pub compliant: bool,
    /// What is asked of it in the first flow against what was reported; null for a report to a flow as a whole.
    pub compliance_status: Option<ArtifactStatus>,
    /// The address of its page in the first flow.
    pub html_url: String,
    /// Each flow that it was reported to, with its newest trail there.
    pub flows: Vec<AssertedFlow>,
    /// The environment's name, where one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentName>,
    /// What each policy says of it, where an environment or policies were named: those of an environment by id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_evaluations: Option<Vec<PolicyDecision>>,
    /// Its entry on the environment's allowlist, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_listing: Option<AllowListing>,
}

/// An artifact in a flow.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "AssertArtifactFlowResponse")]
#[non_exhaustive]
pub struct AssertedFlow {
    /// The flow's name.
    pub flow: String,
    /// The trail's name; `""` for a report to a flow as a whole.
    pub trail: String,
    /// Whether it is compliant there.
    pub compliant: bool,
    /// What is asked of it there, and of its trail, against what was reported; null for a report to a flow as a whole.
    pub compliance_status: Option<ArtifactStatus>,
    /// The address of its page there.
    pub html_url: String,
}

/// An entry of an allowlist that lets an artifact pass.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "AllowlistInformation")]
#[non_exhaustive]
pub struct AllowListing {
    /// The entry's id.
    pub allowlist_id: Id,
    /// The id of whoever allowed it.
    pub allowed_by_user_id: Id,
    /// When, in epoch seconds.
    pub timestamp: Seconds,
    /// Why.
    pub description: String,
}

const EXCLUSIVE: &str = "Cannot specify both 'environment_name' and 'policy_name' at the same time";

impl Operation for AssertArtifact {
    const NAME: &'static str = "assert_artifact";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/asserts/{org}/fingerprint/{fingerprint}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Asserts that an artifact is compliant";
    type Body = ();
    type Output = Json<AssertView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        if self.environment_name.is_some() && !self.policy_name.0.is_empty() {
            let fields = ["query.environment_name", "query.policy_name"];
            let fields = fields.map(|field| (field.to_owned(), EXCLUSIVE.to_owned()));
            return Err(Error::Invalid { message: EXCLUSIVE.to_owned(), fields: fields.into() });
        }
        let environment = match &self.environment_name {
            Some(name) => {
                let known = cx.environment(name).await;
                Some(known.map_err(|error| error.named_by("query.environment_name"))?)
            }
            None => None,
        };
        let policies = self.policies(environment.as_ref(), cx).await?;
        let origins = self.origins(cx).await?;
        let standings = standings(&origins, policies.is_some(), cx).await?;
        let decisions = match policies {
            Some(policies) => Some(decisions(policies, &self.fingerprint, &standings, cx).await?),
            None => None,
        };
        let allow_listing = match &environment {
            Some(known) => allow_listing(known, &self.fingerprint, cx).await?,
            None => None,
        };
        Ok(Json(self.view(environment, standings, decisions, allow_listing, cx)?))
    }
}

impl AssertArtifact {
    /// The policies that are asked, if any are.
    async fn policies(
        &self,
        environment: Option<&KnownEnvironment>,
        cx: &Context<'_>,
    ) -> Result<Option<Vec<Policy>>> {
        let found = match environment {
            Some(known) if known.record.policies.is_empty() => Vec::new(),
            Some(known) => {
                let ids = distinct(known.record.policies.iter().copied());
                let mut found = cx.store().policies_by_id(cx.org()?, &ids).await?;
                found.sort_by_key(|policy| policy.record.id);
                let is_found = |id: &&Id| found.iter().any(|policy| policy.record.id == **id);
                if let Some(id) = ids.iter().find(|id| !is_found(id)) {
                    return Err(lost(*id));
                }
                found
            }
            None if self.policy_name.0.is_empty() => return Ok(None),
            None => policies::named(&self.policy_name.0, "query.policy_name", &mut Vec::new(), cx).await?,
        };
        Ok(Some(found.into_iter().map(|policy| policy.record).collect()))
    }

    /// Its newest report in each flow that counts.
    async fn origins(&self, cx: &Context<'_>) -> Result<Vec<Origin>> {
        let missing = || cx.missing(Resource::Artifact, self.fingerprint.as_str());
        let mut origins = cx.store().provenance(cx.org()?, std::slice::from_ref(&self.fingerprint)).await?;
        if let Some(name) = &self.flow_name {
            let flow = cx.flow(name.as_str()).await.map_err(|error| error.named_by("query.flow_name"))?;
            origins.retain(|origin| origin.report.flow == flow.record.id);
            if origins.is_empty() {
                return Err(missing().in_flow(name.as_str()).into());
            }
        }
        if origins.is_empty() { Err(missing().into()) } else { Ok(origins) }
    }

    fn view(
        self,
        environment: Option<KnownEnvironment>,
        standings: Vec<Standing>,
        decisions: Option<Vec<PolicyDecision>>,
        allow_listing: Option<AllowListing>,
        cx: &Context<'_>,
    ) -> Result<AssertView> {
        let flow = |standing: Standing| {
            let Standing { report, context, status } = standing;
            AssertedFlow {
                html_url: cx.artifact_url(&context.flow_name, &self.fingerprint, report),
                flow: context.flow_name,
                trail: context.trail_name,
                compliant: context.artifact_state.is_compliant(),
                compliance_status: status,
            }
        };
        let flows = Vec::from_iter(standings.into_iter().map(flow));
        let complies =
            |decisions: &Vec<PolicyDecision>| decisions.iter().all(|one| one.status.is_compliant());
        let compliant = match &decisions {
            Some(decisions) => allow_listing.is_some() || complies(decisions),
            None => flows.iter().all(|flow| flow.compliant),
        };
        let first = flows.first().cloned().ok_or_else(|| StoreError::corrupt("a report without a flow"))?;
        let AssertedFlow { flow, trail, compliance_status, html_url, .. } = first;
        Ok(AssertView {
            scope: match (&environment, &decisions) {
                (Some(_), _) => AssertScope::Environment,
                (None, Some(_)) => AssertScope::Policy,
                (None, None) => AssertScope::Flow,
            },
            fingerprint: self.fingerprint,
            flow,
            trail,
            compliant,
            compliance_status,
            html_url,
            flows,
            environment: environment.map(|known| known.record.name),
            policy_evaluations: decisions,
            allow_listing,
        })
    }
}

/// How an artifact stands in a flow.
struct Standing {
    report: Id,
    context: FlowContext,
    /// Line by line, where it was reported to a trail.
    status: Option<ArtifactStatus>,
}

/// How the artifact of these reports stands in the flow of each; its attestations are kept where policies are `asked`.
async fn standings(origins: &[Origin], asked: bool, cx: &Context<'_>) -> Result<Vec<Standing>> {
    let flows = distinct(origins.iter().map(|origin| origin.report.flow));
    let flows = cx.flow_labels(&flows).await?;
    let mut alone = without_trail(origins, cx).await?;
    let trails = distinct(origins.iter().filter_map(|origin| origin.report.trail));
    let reports = origins.iter().filter_map(|origin| Some((origin.report.trail?, origin.clone())));
    let reports: Arc<BTreeMap<Id, Origin>> = Arc::new(reports.collect());
    let stand = move |(contents, parsed): (TrailContents, Arc<Parsed>)| {
        let origin = reports.get(&contents.trail.id)?;
        Some((contents.trail.id, in_trail(origin, &contents, &parsed, asked)))
    };
    let found = evaluated(&trails, cx, stand).await?;
    let mut found: BTreeMap<Id, _> = found.into_iter().flatten().collect();
    let standing = |Origin { report, .. }: &Origin| {
        let gone = || StoreError::corrupt(format_args!("the flow or the trail of report {}", report.id));
        let flow = flows.get(&report.flow).ok_or_else(gone)?;
        let (trail_name, reported, status) = match report.trail {
            None => (String::new(), alone.remove(&report.id).ok_or_else(gone)?, None),
            Some(trail) => {
                let (trail_name, reported, status) = found.remove(&trail).ok_or_else(gone)?;
                (trail_name, reported, Some(status))
            }
        };
        Ok(Standing { report: report.id, context: reported.in_flow(flow, trail_name), status })
    };
    origins.iter().map(standing).collect()
}

/// The trail's name, how the artifact stands there, and what that rests on.
fn in_trail(
    Origin { report, last_name, .. }: &Origin,
    contents: &TrailContents,
    parsed: &Parsed,
    asked: bool,
) -> (String, EvaluatedReport, ArtifactStatus) {
    let artifacts = Vec::from_iter(contents.artifacts.iter().map(ReportedArtifact::from));
    let attestations = Vec::from_iter(contents.attestations.iter().map(ReportedAttestation::from));
    let running = BTreeMap::from([(report.fingerprint.as_str(), last_name.as_str())]);
    let InTrail { name, mut states } = InTrail::new(contents, &parsed.template, &running, asked);
    let mut status = compliance::evaluate_artifact_with_trail(
        &parsed.template,
        &ReportedArtifact::from(report),
        &artifacts,
        &attestations,
    );
    let reported = states.remove(report.fingerprint.as_str()).unwrap_or_else(EvaluatedReport::unknown);
    // More may be asked of it by another name that it has.
    status.set_state(reported.state, reported.reason.clone());
    (name, reported, status)
}

/// What these policies say of the artifact, in their order.
async fn decisions(
    policies: Vec<Policy>,
    fingerprint: &Fingerprint,
    standings: &[Standing],
    cx: &Context<'_>,
) -> Result<Vec<PolicyDecision>> {
    // It is called what its newest report calls its file, for no environment says.
    let newest = standings.iter().map(|standing| standing.report).max();
    let reports = cx.store().artifacts_by_id(cx.org()?, newest.as_slice()).await?;
    let name: Arc<str> = reports.into_iter().map(|report| report.filename).collect::<String>().into();
    let fingerprint = fingerprint.clone();
    let contexts: Arc<[FlowContext]> = standings.iter().map(|standing| standing.context.clone()).collect();
    let key = |policy: &Policy| (policy.id, policy.version);
    let versions = Vec::from_iter(policies.iter().map(key));
    let mut decided: BTreeMap<VersionKey, policy::Evaluation> = BTreeMap::new();
    for part in cx.policies_in_parts(&versions).await? {
        let parsed = cx.parsed_policies(&part).await?;
        let many = parsed.values().map(|policy| policy.parts() / 2).sum::<usize>() * contexts.len();
        let (name, contexts, fingerprint) = (Arc::clone(&name), Arc::clone(&contexts), fingerprint.clone());
        let evaluate = move || {
            let artifact = policy::Artifact { name: &name, fingerprint: Some(fingerprint.as_str()) };
            let evaluation = |(key, policy): (_, Arc<policy::Policy>)| {
                (key, policy::evaluate(&policy, artifact, &contexts))
            };
            Vec::from_iter(parsed.into_iter().map(evaluation))
        };
        decided.extend(cx.compute().run_if(many > MANY_EVALUATIONS, evaluate).await?);
    }
    let decision = |policy: Policy| {
        let evaluation = decided.remove(&key(&policy)).ok_or_else(|| lost(policy.id))?;
        Ok(PolicyDecision {
            policy_name: policy.name,
            policy_version: policy.version,
            status: evaluation.state(),
            rule_evaluations: evaluation.rules,
        })
    };
    policies.into_iter().map(decision).collect()
}

/// The artifact's entry on the environment's allowlist.
async fn allow_listing(
    known: &KnownEnvironment,
    fingerprint: &Fingerprint,
    cx: &Context<'_>,
) -> Result<Option<AllowListing>> {
    let (store, org) = (cx.store(), cx.org()?);
    let allowed = store.allowed(org, known.record.id, std::slice::from_ref(fingerprint)).await?;
    let Some((_, index)) = allowed.first() else { return Ok(None) };
    let entry = store.allowances(org, &[*index]).await?.pop();
    Ok(entry.map(|entry| AllowListing {
        allowlist_id: entry.id,
        allowed_by_user_id: entry.by.id,
        timestamp: entry.at.seconds(),
        description: entry.description,
    }))
}
