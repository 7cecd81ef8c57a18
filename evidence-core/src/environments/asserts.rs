//! The deployment gate: whether an artifact may be deployed, asked before it runs. The verdict uses the
//! templates of its flows, the policies of an environment, or policies that the caller names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::evaluation::work::{self, Places, Work, required_by};
use super::evaluation::{EvaluatedReport, InTrail, lost, without_trail};
use crate::allowlists::record::AllowlistEntry;
use crate::allowlists::view::AllowListing;
use crate::artifacts::store::Origin;
use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText};
use crate::compute::MANY_EVALUATIONS;
use crate::context::Context;
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Resource, Result, at_most};
use crate::flows::parsed::Parsed;
use crate::id::{Id, VersionKey};
use crate::name::{EnvironmentName, Fingerprint, FlowName, OrgName};
use crate::operation::{Json, Method, Operation};
use crate::policies::operations as policies;
use crate::policies::record::Policy;
use crate::rules::compliance::{self, ArtifactState, ArtifactStatus, ReportedArtifact, ReportedAttestation};
use crate::rules::policy::{self, FlowContext, RequiredAttestations};
use crate::snapshots::applied::reasons_for_incompliance;
use crate::snapshots::record::PolicyDecision;
use crate::snapshots::sources::FlowReason;
use crate::snapshots::store::Run;
use crate::store::batch::distinct;
use crate::store::error::StoreError;
use crate::trails::evaluation::evaluated;
use crate::trails::store::TrailContents;

/// Asserts that an artifact is compliant in every flow it was reported to, or only in `flow_name`. The
/// response is 200 whether or not it is compliant. A fingerprint that was never reported is 404, unless it is
/// on the environment's allowlist.
///
/// With `environment_name`, asserts that the artifact may run there: it is on the allowlist, or complies with
/// every policy of the environment. If the environment has no policies, the artifact's flows decide, as
/// without `environment_name`. A logical environment applies its own policies and those of all its members,
/// and no allowlist. If a member has no policies, the flows decide too. With `policy_name`, asserts that the
/// artifact complies with each of these policies, attached or not.
///
/// Conditions are evaluated for the names by which the artifact runs in the environment, or, if it does not
/// run, for the file names in its reports. A condition whose results differ between names waives nothing. If
/// the evaluation exceeds the host's limit, the artifact is not compliant, and its policies give the reason.
/// If the response exceeds the limit, it is 400; use `flow_name` to request less.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AssertArtifact {
    /// The organization's name.
    pub org: OrgName,
    /// The artifact's fingerprint.
    pub fingerprint: Fingerprint,
    /// Asserts for this flow only.
    pub flow_name: Option<FlowName>,
    /// Applies the policies of this environment. Cannot be combined with `policy_name`.
    pub environment_name: Option<ShortText>,
    /// Applies the policy of this name. Repeatable; the response has the same order.
    #[serde(default)]
    pub policy_name: List<ShortText, 100>,
}

/// The basis of an assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AssertScope {
    /// The templates of the artifact's flows.
    Flow,
    /// The policies of an environment, and its allowlist.
    Environment,
    /// The policies that the caller names.
    Policy,
}

/// The result of an assertion. `flow`, `trail`, `compliance_status` and `html_url` repeat the first of
/// `flows`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "AssertArtifactResponse")]
#[non_exhaustive]
pub struct AssertView {
    /// The basis of the assertion.
    pub scope: AssertScope,
    /// The artifact.
    pub fingerprint: Fingerprint,
    /// The first flow's name. `""` if `flows` is empty, because an allowed artifact was never reported there.
    pub flow: String,
    /// The name of the trail in the first flow; `""` for a report to a flow as a whole, and if `flows` is
    /// empty.
    pub trail: String,
    /// Whether it is compliant.
    pub compliant: bool,
    /// The artifact's status in the first flow. Null for a report to a flow as a whole, if `flows` is empty,
    /// and if the trail cannot be read.
    pub compliance_status: Option<ArtifactStatus>,
    /// The URL of its page in the first flow; `""` if `flows` is empty.
    pub html_url: String,
    /// Each flow that it was reported to, with its newest trail there; only `flow_name` if that is given.
    pub flows: Vec<AssertedFlow>,
    /// The environment's name, if given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentName>,
    /// The decision of each policy, if policies or an environment with policies were given. Those of an
    /// environment are sorted by id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_evaluations: Option<Vec<PolicyDecision>>,
    /// The reasons why it is not compliant: a sentence for each policy rule that it violates in a flow. If
    /// its flows decide, a sentence for each flow in which it is not compliant. Empty if it is compliant.
    /// Snapshots show the same reasons.
    pub reasons_for_incompliance: Vec<String>,
    /// Its entry on the environment's allowlist, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_listing: Option<AllowListing>,
}

/// The result for an artifact in one flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "AssertArtifactFlowResponse")]
#[non_exhaustive]
pub struct AssertedFlow {
    /// The flow's name.
    pub flow: String,
    /// The trail's name; `""` for a report to a flow as a whole.
    pub trail: String,
    /// Whether it is compliant in this flow.
    pub compliant: bool,
    /// The reasons why it is not compliant: its state in this flow, with the cause if known. Empty if it is
    /// compliant.
    pub flow_reasons_for_non_compliance: Vec<FlowReason>,
    /// The status of the artifact and its trail. Null for a report to a flow as a whole, and if the trail
    /// cannot be read.
    pub compliance_status: Option<ArtifactStatus>,
    /// The URL of its page in this flow.
    pub html_url: String,
}

/// The most attestations that a response shows. An attestation counts once for each flow.
const MAX_LINES: usize = 100_000;

/// The most members of a logical environment that are read at once.
const MEMBERS: usize = 64;

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
            let fields = [ENVIRONMENT, POLICY].map(|field| (field.to_owned(), EXCLUSIVE.to_owned()));
            return Err(Error::Invalid { message: EXCLUSIVE.to_owned(), fields: fields.into() });
        }
        let environment = match &self.environment_name {
            Some(name) => {
                let known = cx.environment(name).await;
                Some(known.map_err(|error| error.named_by(ENVIRONMENT))?)
            }
            None => None,
        };
        let (policies, flows_decide) = self.policies(environment.as_ref(), cx).await?;
        let allowlist_entry = match &environment {
            Some(known) => allowlist_entry(known, &self.fingerprint, cx).await?,
            None => None,
        };
        let origins = self.origins(allowlist_entry.is_some(), cx).await?;
        let versions = policies.iter().map(|policy| (policy.id, policy.version));
        let required = required_by(&Vec::from_iter(versions), cx).await?;
        let looks_at_names = required.looks_at_names();
        let standings = standings(&origins, required, cx).await?;
        let decisions = match policies.is_empty() {
            true => Vec::new(),
            false => {
                let names = match looks_at_names {
                    true => {
                        self.names(environment.as_ref(), &standings, allowlist_entry.as_ref(), cx).await?
                    }
                    false => Vec::new(),
                };
                decisions(policies, (names, &self.fingerprint), &standings, cx).await?
            }
        };
        Ok(Json(self.view(environment, standings, (decisions, flows_decide), allowlist_entry, cx)))
    }
}

impl AssertArtifact {
    /// Returns the policies to apply, and whether the artifact's flows decide too.
    async fn policies(
        &self,
        environment: Option<&KnownEnvironment>,
        cx: &Context<'_>,
    ) -> Result<(Vec<Policy>, bool)> {
        let (found, flows_decide) = match environment {
            Some(known) => {
                let (ids, flows_decide) = policies_of(known, cx).await?;
                let mut found = match ids.as_slice() {
                    [] => Vec::new(),
                    some => cx.store().policies_by_id(cx.org()?, some).await?,
                };
                found.sort_by_key(|policy| policy.record.id);
                let is_found = |id: &&Id| found.iter().any(|policy| policy.record.id == **id);
                if let Some(id) = ids.iter().find(|id| !is_found(id)) {
                    return Err(lost(*id));
                }
                (found, flows_decide)
            }
            None if self.policy_name.0.is_empty() => return Ok((Vec::new(), true)),
            None => (policies::named(&self.policy_name.0, POLICY, &mut Vec::new(), cx).await?, false),
        };
        Ok((found.into_iter().map(|policy| policy.record).collect(), flows_decide))
    }

    /// Returns its newest report in each flow that counts. There is at least one, unless `is_allowed`.
    async fn origins(&self, is_allowed: bool, cx: &Context<'_>) -> Result<Vec<Origin>> {
        let mut origins =
            cx.store().provenance(cx.org()?, std::slice::from_ref(&self.fingerprint), u64::MAX).await?;
        let mut missing = cx.missing(Resource::Artifact, self.fingerprint.as_str());
        if let Some(name) = &self.flow_name {
            let flow = cx.flow(name.as_str()).await.map_err(|error| error.named_by("query.flow_name"))?;
            origins.retain(|origin| origin.report.flow == flow.record.id);
            missing = missing.in_flow(name.as_str());
        }
        if origins.is_empty() && !is_allowed { Err(missing.into()) } else { Ok(origins) }
    }

    fn view(
        self,
        environment: Option<KnownEnvironment>,
        standings: Vec<Standing>,
        (decisions, flows_decide): (Vec<PolicyDecision>, bool),
        allowlist_entry: Option<AllowlistEntry>,
        cx: &Context<'_>,
    ) -> AssertView {
        let flow = |standing: Standing| {
            let Standing { report, context, status } = standing;
            AssertedFlow {
                html_url: cx.artifact_url(&context.flow_name, &self.fingerprint, report),
                flow: context.flow_name,
                trail: context.trail_name,
                compliant: context.artifact_state.is_compliant(),
                flow_reasons_for_non_compliance: FlowReason::of(
                    context.artifact_state,
                    context.reason.as_deref(),
                ),
                compliance_status: status,
            }
        };
        let flows = Vec::from_iter(standings.into_iter().map(flow));
        let complies_in_flows = !flows.is_empty() && flows.iter().all(|flow| flow.compliant);
        let complies = decisions.iter().all(|one| one.status.is_compliant());
        let compliant = allowlist_entry.is_some() || complies && (complies_in_flows || !flows_decide);
        let deciding = flows.iter().filter(|_| flows_decide);
        let deciding =
            deciding.map(|flow| (flow.flow.as_str(), flow.flow_reasons_for_non_compliance.as_slice()));
        let reasons_for_incompliance = match compliant {
            true => Vec::new(),
            false => reasons_for_incompliance(deciding, &decisions),
        };
        let AssertedFlow { flow, trail, compliance_status, html_url, .. } =
            flows.first().cloned().unwrap_or_default();
        AssertView {
            scope: match (&environment, flows_decide) {
                (Some(_), _) => AssertScope::Environment,
                (None, false) => AssertScope::Policy,
                (None, true) => AssertScope::Flow,
            },
            fingerprint: self.fingerprint,
            flow,
            trail,
            compliant,
            compliance_status,
            html_url,
            flows,
            environment: environment.map(|known| known.record.name),
            policy_evaluations: Some(decisions).filter(|decisions| !decisions.is_empty()),
            reasons_for_incompliance,
            allow_listing: allowlist_entry.map(AllowListing::from),
        }
    }
}

const ENVIRONMENT: &str = "query.environment_name";
const POLICY: &str = "query.policy_name";

/// Returns the policies that an environment applies, each once, and whether the artifact's flows decide. A
/// logical environment applies its own policies and those of its members. In an environment without policies,
/// the flows decide.
async fn policies_of(known: &KnownEnvironment, cx: &Context<'_>) -> Result<(Vec<Id>, bool)> {
    let mut policies = known.record.policies.clone();
    let mut flows_decide = false;
    for part in known.record.included.chunks(MEMBERS) {
        let members = cx.store().environments_by_id(cx.org()?, part).await?;
        if members.len() < part.len() {
            // A missing member is an error, because its policies may be the violated ones.
            let text = format_args!("a member of environment {}", known.record.id);
            return Err(StoreError::corrupt(text).into());
        }
        for member in members.into_iter().filter(|member| !member.archived) {
            flows_decide |= member.record.policies.is_empty();
            policies.extend(member.record.policies);
        }
    }
    let policies = distinct(policies);
    at_most(cx.limits().environment_policies, policies.len(), ENVIRONMENT)?;
    flows_decide |= policies.is_empty();
    Ok((policies, flows_decide))
}

/// The state of an artifact in a flow.
struct Standing {
    report: Id,
    context: FlowContext,
    /// The status of each requirement, if it was reported to a trail.
    status: Option<ArtifactStatus>,
}

/// Returns the states of these reports in their flows, with the `required` attestations.
async fn standings(
    origins: &[Origin],
    required: Arc<RequiredAttestations>,
    cx: &Context<'_>,
) -> Result<Vec<Standing>> {
    let flows = distinct(origins.iter().map(|origin| origin.report.flow));
    let flows = cx.flow_labels(&flows).await?;
    let mut alone = without_trail(origins, cx).await?;
    let trails = distinct(origins.iter().filter_map(|origin| origin.report.trail));
    let reports = origins.iter().filter_map(|origin| Some((origin.report.trail?, origin.clone())));
    let reports: Arc<BTreeMap<Id, Origin>> = Arc::new(reports.collect());
    let lines = Arc::new(AtomicUsize::new(0));
    let all_lines = Arc::clone(&lines);
    let stand = move |(contents, parsed): (TrailContents, Arc<Parsed>)| {
        let origin = reports.get(&contents.trail.id)?;
        // Do not hold more than can be shown.
        let is_shown = lines.load(Ordering::Relaxed) <= MAX_LINES;
        let found = is_shown.then(|| in_trail(origin, &contents, &parsed, &required))?;
        lines.fetch_add(found.2.attestations.len(), Ordering::Relaxed);
        Some((contents.trail.id, found))
    };
    let found = evaluated(&trails, cx, stand).await?;
    if trails.len() > 1 && all_lines.load(Ordering::Relaxed) > MAX_LINES {
        let text = format!("Its trails have more than {MAX_LINES} attestations that count for it");
        return Err(Error::invalid("query.flow_name", text));
    }
    let mut found: BTreeMap<Id, _> = found.into_iter().flatten().collect();
    let standing = |Origin { report, .. }: &Origin| {
        let gone = || StoreError::corrupt(format_args!("the flow of report {}", report.id));
        let flow = flows.get(&report.flow).ok_or_else(gone)?;
        let (trail_name, reported, status) = match report.trail {
            None => (String::new(), alone.remove(&report.id).ok_or_else(gone)?, None),
            Some(trail) => match found.remove(&trail) {
                Some((trail_name, reported, status)) => (trail_name, reported, Some(status)),
                None => (String::new(), EvaluatedReport::of_lost_trail(), None),
            },
        };
        Ok(Standing { report: report.id, context: reported.in_flow(flow, trail_name), status })
    };
    origins.iter().map(standing).collect()
}

/// Returns the trail's name, the artifact's state there, and its status.
fn in_trail(
    Origin { report, .. }: &Origin,
    contents: &TrailContents,
    parsed: &Parsed,
    required: &RequiredAttestations,
) -> (String, EvaluatedReport, ArtifactStatus) {
    let artifacts = Vec::from_iter(contents.artifacts.iter().map(ReportedArtifact::from));
    let attestations = Vec::from_iter(contents.attestations.iter().map(ReportedAttestation::from));
    let running = BTreeSet::from([report.fingerprint.as_str()]);
    let InTrail { name, mut states, .. } = InTrail::new(contents, &parsed.template, &running, required);
    let mut status = compliance::evaluate_artifact_with_trail(
        &parsed.template,
        &ReportedArtifact::from(report),
        &artifacts,
        &attestations,
        &contents.earlier_names,
    );
    let reported = states.remove(report.fingerprint.as_str()).unwrap_or_else(EvaluatedReport::unknown);
    // More attestations may count for it than are evaluated.
    if status.state != ArtifactState::Reported(reported.state) {
        status.set_state(reported.state, reported.reason.clone());
    }
    (name, reported, status)
}

/// The most environments in which the artifact's names are looked up. With more, one of its names counts as
/// unknown.
const MOST_ENVIRONMENTS: usize = 32;

impl AssertArtifact {
    /// Returns the artifact's names: those by which it runs in the environment, in the members of a logical
    /// one, or in any if none is given. If it does not run there, returns the file names in its newest
    /// reports. If it was never reported, returns its name on the allowlist.
    async fn names(
        &self,
        environment: Option<&KnownEnvironment>,
        standings: &[Standing],
        allowlist_entry: Option<&AllowlistEntry>,
        cx: &Context<'_>,
    ) -> Result<Vec<String>> {
        let (org, fingerprint) = (cx.org()?, std::slice::from_ref(&self.fingerprint));
        let runs = cx.store().runs(org, fingerprint, 1).await?.into_iter();
        let counts = |run: &Run| match environment {
            Some(known) if known.record.kind.is_physical() => run.environment == known.record.id,
            Some(known) => known.record.included.contains(&run.environment),
            None => true,
        };
        let runs = runs.filter(|run| run.lasts() && counts(run));
        let running = distinct(runs.map(|run| run.environment));
        let mut names = BTreeSet::new();
        if running.len() > MOST_ENVIRONMENTS {
            names.insert(String::new());
        }
        let running = running.get(..MOST_ENVIRONMENTS).unwrap_or(&running);
        let running = match running {
            [] => Vec::new(),
            some => cx.store().environments_by_id(org, some).await?,
        };
        for known in running {
            let (id, latest) = (known.record.id, known.status.snapshots);
            let placed = cx.store().instances(org, id, latest).await?.into_iter();
            let of_it = placed.filter(|placed| !placed.exited).map(|placed| placed.instance);
            let of_it = of_it.filter(|instance| instance.fingerprint.as_ref() == Some(&self.fingerprint));
            names.extend(of_it.flat_map(|instance| [vec![instance.name], instance.other_names].concat()));
        }
        if !names.is_empty() {
            return Ok(names.into_iter().collect());
        }
        let reports = Vec::from_iter(standings.iter().map(|standing| standing.report));
        if reports.is_empty() {
            return Ok(allowlist_entry
                .map(|allowlist_entry| allowlist_entry.artifact_name.clone())
                .into_iter()
                .collect());
        }
        let found = cx.store().artifacts_by_id(org, &reports).await?;
        if found.len() < reports.len() {
            return Err(StoreError::corrupt(format_args!("a report of artifact {}", self.fingerprint)).into());
        }
        names.extend(found.into_iter().map(|report| report.filename));
        Ok(names.into_iter().collect())
    }
}

/// Returns the decisions of these policies on the artifact with these names, in the order of the policies.
async fn decisions(
    policies: Vec<Policy>,
    (names, fingerprint): (Vec<String>, &Fingerprint),
    standings: &[Standing],
    cx: &Context<'_>,
) -> Result<Vec<PolicyDecision>> {
    let (names, fingerprint): (Arc<[String]>, _) = (names.into(), fingerprint.clone());
    let contexts: Arc<[FlowContext]> = standings.iter().map(|standing| standing.context.clone()).collect();
    let key = |policy: &Policy| (policy.id, policy.version);
    let versions = Vec::from_iter(policies.iter().map(key));
    let places: Places = [(contexts.len(), names.len())].into_iter().collect();
    let (mut work, mut decided) = (Work::default(), BTreeMap::new());
    let parts = cx.policies_in_parts(&versions).await?;
    for part in &parts {
        work.add(cx.parsed_policies(part).await?.values());
    }
    // Work beyond the limits makes the artifact non-compliant, as in an environment.
    let exceeds = work.exceeds_per_artifact(contexts.len().max(1), cx.limits());
    let exceeds = exceeds.or_else(|| work.exceeds(places, cx.limits()));
    for part in parts {
        let (versions, policies): (Vec<VersionKey>, Vec<_>) =
            cx.parsed_policies(&part).await?.into_iter().unzip();
        if let Some(why) = &exceeds {
            let not_evaluated = |policy: &Arc<_>| policy::not_evaluated(policy, why);
            let evaluations = Vec::from_iter(policies.iter().map(not_evaluated));
            decided.extend(versions.into_iter().zip(evaluations));
            continue;
        }
        let mut evaluated = Vec::with_capacity(policies.len());
        for policies in work::for_jobs(&policies, places) {
            let many = work::evaluations(&policies) * contexts.len().max(1) * names.len().max(1);
            let (names, contexts) = (Arc::clone(&names), Arc::clone(&contexts));
            let fingerprint = fingerprint.clone();
            let evaluate = move || {
                let fingerprint = Some(fingerprint.as_str());
                let (name, other_names) = match &*names {
                    [] => ("", &[][..]),
                    [first, rest @ ..] => (first.as_str(), rest),
                };
                let artifact = policy::Artifact { name, other_names, fingerprint };
                let evaluation = |policy: &Arc<_>| policy::evaluate(policy, artifact, &contexts);
                Vec::from_iter(policies.iter().map(evaluation))
            };
            evaluated.extend(cx.compute().run_if(many > MANY_EVALUATIONS, evaluate).await?);
        }
        decided.extend(versions.into_iter().zip(evaluated));
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

/// Returns the artifact's entry on the environment's allowlist.
async fn allowlist_entry(
    known: &KnownEnvironment,
    fingerprint: &Fingerprint,
    cx: &Context<'_>,
) -> Result<Option<AllowlistEntry>> {
    let (store, org) = (cx.store(), cx.org()?);
    let fingerprint = std::slice::from_ref(fingerprint);
    let allowed = store.allowed(org, known.record.id, fingerprint, u64::MAX, cx.now()).await?;
    let Some(allowed) = allowed.first() else { return Ok(None) };
    Ok(store.allowlist_entries(org, &[allowed.entry]).await?.pop())
}
