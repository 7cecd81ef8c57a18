//! The verdicts on running artifacts.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::policies::{PolicySet, lost};
use super::reported::{EvaluatedReports, EvaluationInputs, Source, deployed_from};
use super::work::{self, Places, Work};
use crate::context::Context;
use crate::environments::last_evaluation::{ArtifactEvaluation, EntryInForce, Evaluated};
use crate::environments::observed::{ObservedArtifact, ReportedState};
use crate::error::{Error, Result};
use crate::id::{Id, VersionKey};
use crate::ledger::Hash;
use crate::name::Fingerprint;
use crate::rules::policy::{self, FlowContext, RuleOutcomes};
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::{DeploymentSource, LogicalVerdict, PolicyOutcome, Provenance};
use crate::store::error::StoreError;

/// The running artifacts, evaluated.
pub(super) struct EvaluatedCandidates {
    pub(super) candidates: Vec<Candidate>,
    /// Whether a limit was exceeded, so that none was evaluated.
    pub(super) exceeds: bool,
}

/// Evaluates running artifacts against each of the policies, a few policies at a time. `others` are the sizes
/// of artifacts that were evaluated before.
pub(super) async fn evaluate_candidates(
    running: Arc<ReportedState>,
    states: EvaluatedReports,
    policies: &PolicySet,
    others: Vec<(usize, usize)>,
    heavy: bool,
    cx: &Context<'_>,
) -> Result<EvaluatedCandidates> {
    let mut exceeds = states.exceeds.clone().filter(|_| !policies.versions.is_empty());
    let find = move || Ok::<_, Error>(Candidate::all(&running, states.inputs()?));
    let mut candidates = cx.compute().run_if(heavy, find).await??;
    if !policies.versions.is_empty() {
        let with_inputs = |mut artifact: Candidate| {
            artifact.inputs = Some(artifact.digest_of_inputs());
            artifact
        };
        candidates = cx.compute().evaluate_each(candidates, Candidate::places, with_inputs).await?;
    }
    let parts = cx.policies_in_parts(&policies.versions()).await?;
    let mut work = Work::default();
    for part in &parts {
        work.add(cx.parsed_policies(part).await?.values());
    }
    let policies = policies.versions.len();
    for artifact in &mut candidates {
        if let Some(why) = work.exceeds_per_artifact(artifact.places(), cx.limits()) {
            artifact.is_not_evaluated(why, policies);
        }
    }
    let evaluated = candidates.iter().filter(|artifact| artifact.not_evaluated.is_none());
    let places: Places =
        evaluated.map(|artifact| (artifact.contexts.len(), artifact.names())).chain(others).collect();
    exceeds = exceeds.or_else(|| work.exceeds(places, cx.limits()));
    if let Some(why) = exceeds {
        candidates.iter_mut().for_each(|artifact| artifact.is_not_evaluated(why.clone(), policies));
        return Ok(EvaluatedCandidates { candidates, exceeds: true });
    }
    for part in parts {
        let parsed = cx.parsed_policies(&part).await?;
        let policy = |version: &VersionKey| parsed.get(version).cloned().ok_or_else(|| lost(version.0));
        let policies = part.iter().map(policy).collect::<Result<Vec<_>>>()?;
        for policies in work::for_jobs(&policies, places) {
            let many = work::evaluations(&policies);
            let evaluations = move |artifact: &Candidate| match artifact.not_evaluated {
                Some(_) => 0,
                None => many * artifact.places() * artifact.names(),
            };
            let evaluate = move |mut artifact: Candidate| {
                artifact.evaluate(&policies);
                artifact
            };
            candidates = cx.compute().evaluate_each(candidates, evaluations, evaluate).await?;
        }
    }
    Ok(EvaluatedCandidates { candidates, exceeds: false })
}

/// A running artifact with its evaluation.
#[derive(Debug, Clone)]
pub(super) struct EvaluatedArtifact {
    pub(super) key: ArtifactKey,
    pub(super) observed: ObservedArtifact,
    pub(super) found: Arc<ArtifactEvaluation>,
}

impl EvaluatedArtifact {
    /// Returns the running artifacts with their evaluations. A missing evaluation is an error: without it,
    /// the artifact would count as stopped.
    pub(super) fn all(
        running: &ReportedState,
        artifacts: &Evaluated,
        requirements: &OwnRequirements,
    ) -> Result<Vec<Self>> {
        let evaluated = |(key, observed): (&ArtifactKey, &ObservedArtifact)| {
            let missing = || StoreError::Failed(format!("{key} was not evaluated").into());
            let mut found = Arc::clone(artifacts.get(key).ok_or_else(missing)?);
            // Evaluations are cached without the environment's own requirements.
            let compliant = requirements.verdict(&found);
            if compliant != found.compliant {
                Arc::make_mut(&mut found).compliant = compliant;
            }
            Ok(Self { key: key.clone(), observed: observed.clone(), found })
        };
        running.iter().map(evaluated).collect()
    }
}

/// The environment's own requirements for running artifacts.
pub(super) struct OwnRequirements {
    /// The indexes of its own policies among all that it is evaluated against, as far as they are recorded.
    pub(super) own: Vec<Option<u16>>,
    pub(super) requires_provenance: bool,
}

impl OwnRequirements {
    /// Returns whether it has any requirement.
    pub(super) const fn is_any(&self) -> bool {
        !self.own.is_empty() || self.requires_provenance
    }

    /// Returns the verdict on an evaluation.
    fn verdict(&self, found: &ArtifactEvaluation) -> Option<bool> {
        let satisfied = self
            .own
            .iter()
            .map(|place| place.is_some_and(|place| found.violates.binary_search(&place).is_err()));
        let compliant = policy::artifact_verdict(found.allowed.is_some(), &Vec::from_iter(satisfied));
        match self.requires_provenance {
            true => found.with_required_provenance(compliant),
            false => compliant,
        }
    }
}

impl PolicySet {
    /// Returns whether the running artifacts comply with the policies of each logical environment.
    pub(super) fn verdicts(&self, artifacts: &[EvaluatedArtifact]) -> Vec<LogicalVerdict> {
        let violated = artifacts.iter().flat_map(|artifact| &artifact.found.violates);
        let violated: BTreeSet<u16> = violated.copied().collect();
        let is_violated =
            |place| u16::try_from(place).map_or(!artifacts.is_empty(), |it| violated.contains(&it));
        // Whether a policy beyond the recordable range is violated is unknown.
        let violated: BTreeSet<&Id> = self
            .versions
            .keys()
            .enumerate()
            .filter(|(place, _)| is_violated(*place))
            .map(|(_, id)| id)
            .collect();
        let verdict = |(environment, policies): (&Id, &Vec<Id>)| LogicalVerdict {
            environment: *environment,
            policies: policies.clone(),
            compliant: !policies.iter().any(|id| violated.contains(id)),
        };
        self.logical.iter().map(verdict).collect()
    }
}

/// A running artifact under evaluation.
pub(super) struct Candidate {
    key: ArtifactKey,
    observed: ObservedArtifact,
    allowed: Option<EntryInForce>,
    provenance: Vec<Provenance>,
    /// The trails of its reports.
    trails: Vec<Id>,
    /// The report that is recorded as the source of its deployment.
    source: Option<DeploymentSource>,
    contexts: Vec<FlowContext>,
    /// The digest of each of its flows.
    flows: Vec<Hash>,
    /// The digest of all its inputs, if there are policies.
    inputs: Option<Hash>,
    /// Whether it satisfies each of the policies so far, in their order.
    satisfied: Vec<bool>,
    /// The results of policy rules that do not follow from the provenance.
    outcomes: Vec<PolicyOutcome>,
    /// The reason why it is not evaluated. It then satisfies no policy.
    not_evaluated: Option<String>,
    /// Whether everything that it is evaluated against could be read.
    is_final: bool,
}

impl Candidate {
    pub(super) fn all(running: &ReportedState, inputs: EvaluationInputs) -> Vec<Self> {
        let EvaluationInputs { allowed, mut sources } = inputs;
        let candidate = |(key, observed): (&ArtifactKey, &ObservedArtifact)| {
            let fingerprint = observed.fingerprint.as_ref();
            let sources = fingerprint.and_then(|fingerprint| sources.remove(fingerprint)).unwrap_or_default();
            let is_final = sources.iter().all(|source| source.is_final);
            let allowed = fingerprint.and_then(|fingerprint| allowed.get(fingerprint));
            Self {
                key: key.clone(),
                observed: observed.clone(),
                allowed: allowed.copied(),
                provenance: sources.iter().map(Source::provenance).collect(),
                trails: sources.iter().filter_map(|source| source.trail).collect(),
                source: deployed_from(&sources),
                flows: sources.iter().map(|source| source.flow).collect(),
                inputs: None,
                contexts: sources.into_iter().map(|source| source.context).collect(),
                satisfied: Vec::new(),
                outcomes: Vec::new(),
                not_evaluated: None,
                is_final,
            }
        };
        running.iter().map(candidate).collect()
    }

    /// Returns how many times each rule is evaluated for it.
    fn places(&self) -> usize {
        self.contexts.len().max(1)
    }

    fn names(&self) -> usize {
        1 + self.observed.other_names.len()
    }

    /// Records that it satisfies none of this many policies, for this reason.
    fn is_not_evaluated(&mut self, why: String, policies: usize) {
        (self.satisfied, self.outcomes) = (vec![false; policies], Vec::new());
        (self.not_evaluated, self.is_final) = (Some(why), false);
    }

    pub(super) fn evaluate(&mut self, policies: &[Arc<policy::Policy>]) {
        if self.not_evaluated.is_some() {
            return;
        }
        let (artifact, contexts) = (self.observed.to_policy_artifact(), &self.contexts);
        for policy in policies {
            self.is_final &= policy.is_readable();
            let place = self.satisfied.len();
            let rules = RuleOutcomes::of(policy, artifact, contexts);
            self.satisfied.push(match &rules {
                Some(rules) => rules.are_satisfied(),
                None => policy::is_satisfied(policy, artifact, contexts),
            });
            if let Some((place, rules)) = u16::try_from(place).ok().zip(rules) {
                let unknown = match rules.are_satisfied() {
                    true => Vec::new(),
                    false => policy::unknown_conditions(policy, artifact, contexts),
                };
                self.outcomes.push(PolicyOutcome { policy: place, rules, unknown });
            }
        }
    }

    /// Returns the digest of all its inputs except policies. Each input is one line, with texts as JSON.
    fn digest_of_inputs(&self) -> Hash {
        let json = |text: &str| serde_json::Value::from(text);
        let fingerprint = self.observed.fingerprint.as_ref().map_or("", Fingerprint::as_str);
        let mut lines = vec![format!(
            "artifact {} {fingerprint} {}\n",
            json(&self.observed.name),
            self.allowed.is_some()
        )];
        lines.extend(self.observed.other_names.iter().map(|name| format!("name {}\n", json(name))));
        let places = self.provenance.iter().zip(&self.contexts).zip(&self.flows);
        for ((provenance, context), flow) in places {
            lines.push(format!("report {} {}\n", provenance.artifact, provenance.state));
            lines.push(format!("flow {flow} {}\n", json(&context.trail_name)));
            let scopes = context.attestations.scopes();
            lines.extend(scopes.map(|scope| format!("attestations {}\n", scope.digest())));
        }
        Hash::of(lines.concat())
    }

    pub(super) fn evaluated(self, judged_by: Option<Hash>) -> (ArtifactKey, Arc<ArtifactEvaluation>) {
        let Self {
            key,
            observed,
            allowed,
            provenance,
            trails,
            source,
            satisfied,
            outcomes,
            inputs,
            not_evaluated,
            is_final,
            ..
        } = self;
        let compliant = policy::artifact_verdict(allowed.is_some(), &satisfied);
        let places = (0..=u16::MAX).zip(satisfied);
        let violates = places.filter(|(_, satisfied)| !satisfied).map(|(place, _)| place).collect();
        let names = observed.names().map(str::to_owned).collect();
        let evaluation = ArtifactEvaluation {
            compliant,
            allowed,
            provenance,
            source,
            trails,
            judged_by,
            violates,
            outcomes,
            inputs,
            not_evaluated,
            names,
            is_final,
        };
        (key, Arc::new(evaluation))
    }
}
