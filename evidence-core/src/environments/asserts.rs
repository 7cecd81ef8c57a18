//! The deployment gate: whether an artifact may go on, asked before it runs. By the templates of its flows, by the policies
//! of an environment, or by policies that the caller names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::evaluation::work::{self, Places, Work, asked_by};
use super::evaluation::{EvaluatedReport, InTrail, lost, without_trail};
use crate::allowlists::record::Allowance;
use crate::artifacts::store::Origin;
use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText};
use crate::compute::MANY_EVALUATIONS;
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Resource, Result, at_most};
use crate::flows::templates::Parsed;
use crate::id::{Id, VersionKey};
use crate::name::{EnvironmentName, Fingerprint, FlowName, OrgName};
use crate::operation::{Json, Method, Operation};
use crate::policies::operations as policies;
use crate::policies::record::Policy;
use crate::rules::compliance::{self, ArtifactState, ArtifactStatus, ReportedArtifact, ReportedAttestation};
use crate::rules::policy::{self, Asked, FlowContext};
use crate::service::Context;
use crate::snapshots::applied::reasons_for_incompliance;
use crate::snapshots::record::PolicyDecision;
use crate::snapshots::store::Run;
use crate::snapshots::view::FlowReason;
use crate::store::batch::distinct;
use crate::store::error::StoreError;
use crate::time::{Seconds, Timestamp, WholeSeconds};
use crate::trails::evaluation::evaluated;
use crate::trails::store::TrailContents;

/// Asserts that an artifact is compliant: in every flow it was reported to, or in the one that `flow_name` names. With
/// `environment_name`, that it may run there: that it is on the allowlist, or complies with every policy of the
/// environment. If that has no policies, the artifact's flows decide as they do without `environment_name`. Conditions look at
/// the names by which the artifact runs in the environment, or, if it does not, at the file names in its reports; a condition
/// that not all of them agree on waives nothing. A logical environment asks its own policies and those of all its members, and
/// no allowlist; for the members without policies the flows decide, too. With `policy_name`, that it complies with each of these
/// policies, attached or
/// not. The answer
/// is 200 whether it is or not; a fingerprint that nobody reported is 404, unless the environment's allowlist has it. An artifact of which more would have to be
/// evaluated than the host permits is not compliant, and its policies say so; if more would have to be shown, the answer is 400:
/// `flow_name` asks less.
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
    /// The first flow's name; `""` where `flows` is empty, of an artifact that is allowed and was not reported there.
    pub flow: String,
    /// The name of the trail there; `""` for a report to a flow as a whole, and where `flows` is empty.
    pub trail: String,
    /// Whether it is compliant.
    pub compliant: bool,
    /// What is asked of it in the first flow against what was reported; null for a report to a flow as a whole, and where
    /// `flows` is empty or the trail cannot be read.
    pub compliance_status: Option<ArtifactStatus>,
    /// The address of its page in the first flow; `""` where `flows` is empty.
    pub html_url: String,
    /// Each flow that it was reported to, with its newest trail there; of `flow_name` alone where one is named.
    pub flows: Vec<AssertedFlow>,
    /// The environment's name, where one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentName>,
    /// What each policy says of it, where policies or an environment that has some were named: those of an environment by id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_evaluations: Option<Vec<PolicyDecision>>,
    /// Why it is not compliant: a sentence for each rule of a policy that it violates in a flow, or, where its flows decide,
    /// for each flow in which it is not. Empty where it is compliant. Snapshots show the same.
    pub reasons_for_incompliance: Vec<String>,
    /// Its entry on the environment's allowlist, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_listing: Option<AllowListing>,
}

/// An artifact in a flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "AssertArtifactFlowResponse")]
#[non_exhaustive]
pub struct AssertedFlow {
    /// The flow's name.
    pub flow: String,
    /// The trail's name; `""` for a report to a flow as a whole.
    pub trail: String,
    /// Whether it is compliant there.
    pub compliant: bool,
    /// Why it is not: its state there, and why where that is known. Empty where it is.
    pub flow_reasons_for_non_compliance: Vec<FlowReason>,
    /// What is asked of it there, and of its trail, against what was reported; null for a report to a flow as a whole, and
    /// where the trail cannot be read.
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
    /// The name of the user or service account that allowed it.
    pub allowed_by: String,
    /// When, in epoch seconds.
    pub timestamp: Seconds,
    /// The reason.
    pub description: String,
    /// When it expires, in epoch seconds; left out where it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WholeSeconds>,
}

/// So many attestations an answer shows, each in every flow that it counts in.
const MAX_LINES: usize = 100_000;

/// Members of a logical environment that are read at once.
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
        let allowance = match &environment {
            Some(known) => allowance(known, &self.fingerprint, cx).await?,
            None => None,
        };
        let origins = self.origins(allowance.is_some(), cx).await?;
        let versions = policies.iter().map(|policy| (policy.id, policy.version));
        let asked = asked_by(&Vec::from_iter(versions), cx).await?;
        let looks_at_names = asked.looks_at_names();
        let standings = standings(&origins, asked, cx).await?;
        let decisions = match policies.is_empty() {
            true => Vec::new(),
            false => {
                let names = match looks_at_names {
                    true => self.names(environment.as_ref(), &standings, allowance.as_ref(), cx).await?,
                    false => Vec::new(),
                };
                decisions(policies, (names, &self.fingerprint), &standings, cx).await?
            }
        };
        Ok(Json(self.view(environment, standings, (decisions, flows_decide), allowance, cx)))
    }
}

impl AssertArtifact {
    /// The policies that are asked, and whether the artifact's flows are, too.
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

    /// Its newest report in each flow that counts: one at least, unless it `is_allowed` without.
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
        allowance: Option<Allowance>,
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
        let compliant = allowance.is_some() || complies && (complies_in_flows || !flows_decide);
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
            allow_listing: allowance.map(AllowListing::from),
        }
    }
}

const ENVIRONMENT: &str = "query.environment_name";
const POLICY: &str = "query.policy_name";

/// The policies that an environment asks, each once, and whether it asks the artifact's flows. A logical one asks its own
/// policies and what each of its members asks; an environment without policies asks the flows.
async fn policies_of(known: &KnownEnvironment, cx: &Context<'_>) -> Result<(Vec<Id>, bool)> {
    let mut policies = known.record.policies.clone();
    let mut flows_decide = false;
    for part in known.record.included.chunks(MEMBERS) {
        let members = cx.store().environments_by_id(cx.org()?, part).await?;
        if members.len() < part.len() {
            // The one that is left out may be the one whose policies it does not comply with.
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

/// How an artifact stands in a flow.
struct Standing {
    report: Id,
    context: FlowContext,
    /// Line by line, where it was reported to a trail.
    status: Option<ArtifactStatus>,
}

/// How the artifact of these reports stands in the flow of each, with its attestations that are `asked` for.
async fn standings(origins: &[Origin], asked: Arc<Asked>, cx: &Context<'_>) -> Result<Vec<Standing>> {
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
        // They are not held beyond what is shown.
        let is_shown = lines.load(Ordering::Relaxed) <= MAX_LINES;
        let found = is_shown.then(|| in_trail(origin, &contents, &parsed, &asked))?;
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

/// The trail's name, how the artifact stands there, and what that rests on.
fn in_trail(
    Origin { report, .. }: &Origin,
    contents: &TrailContents,
    parsed: &Parsed,
    asked: &Asked,
) -> (String, EvaluatedReport, ArtifactStatus) {
    let artifacts = Vec::from_iter(contents.artifacts.iter().map(ReportedArtifact::from));
    let attestations = Vec::from_iter(contents.attestations.iter().map(ReportedAttestation::from));
    let running = BTreeSet::from([report.fingerprint.as_str()]);
    let InTrail { name, mut states, .. } = InTrail::new(contents, &parsed.template, &running, asked);
    let mut status = compliance::evaluate_artifact_with_trail(
        &parsed.template,
        &ReportedArtifact::from(report),
        &artifacts,
        &attestations,
        &contents.earlier_names,
    );
    let reported = states.remove(report.fingerprint.as_str()).unwrap_or_else(EvaluatedReport::unknown);
    // More may count for it than is evaluated.
    if status.state != ArtifactState::Reported(reported.state) {
        status.set_state(reported.state, reported.reason.clone());
    }
    (name, reported, status)
}

/// In more environments the names by which an artifact runs are not looked up, and so one is not known.
const MOST_ENVIRONMENTS: usize = 32;

impl AssertArtifact {
    /// What the artifact is called: as it runs in the environment, or in the members of a logical one, or, where none is named,
    /// in any. Of what does not run there: all that its newest reports call its file, or what the one who allowed it calls it.
    async fn names(
        &self,
        environment: Option<&KnownEnvironment>,
        standings: &[Standing],
        allowance: Option<&Allowance>,
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
            return Ok(allowance.map(|allowance| allowance.artifact_name.clone()).into_iter().collect());
        }
        let found = cx.store().artifacts_by_id(org, &reports).await?;
        if found.len() < reports.len() {
            return Err(StoreError::corrupt(format_args!("a report of artifact {}", self.fingerprint)).into());
        }
        names.extend(found.into_iter().map(|report| report.filename));
        Ok(names.into_iter().collect())
    }
}

/// What these policies say of the artifact of these names, in their order.
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
    // What is too much complies with nothing, as it does where it runs.
    let exceeds = work.exceeds_of_one(contexts.len().max(1), cx.limits());
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

/// The artifact's entry on the environment's allowlist.
async fn allowance(
    known: &KnownEnvironment,
    fingerprint: &Fingerprint,
    cx: &Context<'_>,
) -> Result<Option<Allowance>> {
    let (store, org) = (cx.store(), cx.org()?);
    let fingerprint = std::slice::from_ref(fingerprint);
    let allowed = store.allowed(org, known.record.id, fingerprint, u64::MAX, cx.now()).await?;
    let Some(allowed) = allowed.first() else { return Ok(None) };
    Ok(store.allowances(org, &[allowed.entry]).await?.pop())
}

impl From<Allowance> for AllowListing {
    fn from(entry: Allowance) -> Self {
        Self {
            allowlist_id: entry.id,
            allowed_by_user_id: entry.by.id,
            allowed_by: entry.by.name,
            timestamp: entry.at.seconds(),
            description: entry.description,
            expires_at: entry.expires_at.map(Timestamp::whole_seconds),
        }
    }
}
