//! Environment policies: what an artifact must have to run in an environment. A policy is a YAML
//! text with three sorts of rules: provenance (the artifact was reported in a flow),
//! trail-compliance (it is compliant there) and attestations. [`evaluate`] answers for one artifact
//! and the flows it was reported in, once for each flow; the functions after it combine the
//! answers into the verdict on an artifact, a snapshot and an environment.
//!
//! Conditions, exceptions and controls can be read and shown but not evaluated yet:
//! [`Policy::unsupported`] tells so, and such a policy must not be stored.

mod dump;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

pub use self::dump::*;
use super::compliance::State;
use super::document::{DocumentErrors, Examination, Fields};
use super::template::{self, Kind};

/// Why a policy was refused. Displayed as `N validation errors for Policy` and the details.
pub type PolicyErrors = DocumentErrors;

const ANY_NAME: &str = "*";
const SCHEMA_VERSION: &str = "1";
/// A spelling of `pull_request` that published examples use.
const KIND_ALIASES: [(&str, &str); 1] = [("pull-request", "pull_request")];

/// A condition, `${{ … }}` in YAML.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PolicyExpression")]
pub struct Condition {
    /// The expression between the braces, trimmed.
    pub text: String,
}

/// A rule that is on or off, and the conditions under which it does not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BooleanRule {
    /// Whether the rule applies at all.
    pub required: bool,
    /// Any true one waives the rule. An exception without a condition never does.
    pub exceptions: Vec<ConditionalRule>,
}

/// An exception of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConditionalRule {
    /// When the rule does not apply; null without a condition.
    #[serde(rename = "if")]
    pub condition: Option<Condition>,
}

/// A rule that asks for an attestation of the artifact or of its trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RequiredAttestationRule")]
pub struct AttestationRule {
    /// The rule applies only where this is true; null where it always does.
    #[serde(rename = "if")]
    pub condition: Option<Condition>,
    /// Name of the attestation; `*` is any.
    pub name: String,
    /// Type of the attestation; `*` is any.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Whether the attestation must be compliant, or must only be there.
    pub must_be_compliant: bool,
    /// The control that the attestation, a decision, must be about; null for what is no decision.
    pub for_control: Option<String>,
}

/// A parsed environment policy. The default has no rule, so everything complies with it; nothing
/// complies with what [`Policy::stored`] could not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The artifact must have been reported in a flow.
    pub provenance: BooleanRule,
    /// The artifact must be compliant in every flow it was reported in.
    pub trail_compliance: BooleanRule,
    /// Attestations that the artifact or its trail must have.
    pub attestations: Vec<AttestationRule>,
    /// Why it could not be read, as answers say it.
    unreadable: Option<String>,
}

impl Policy {
    /// Reads a policy from YAML and reports every mistake in it, not only the first.
    pub fn parse(yaml: &str) -> Result<Self, PolicyErrors> {
        let (mut examination, document) = Examination::read("Policy", yaml)?;
        let policy = parse_root(&mut examination, &document).unwrap_or_default();
        examination.finish(policy)
    }

    /// Reads a policy that was stored. It was checked before it was; where it cannot be read all the
    /// same (damaged, or of a later version), the policy is one with which nothing complies.
    pub fn stored(yaml: &str) -> Self {
        Self::parse(yaml).unwrap_or_else(|errors| Self {
            unreadable: Some(errors.unreadable("The policy")),
            ..Self::default()
        })
    }

    /// Whether it is what was stored, rather than what stands in for a policy that cannot be read.
    pub const fn is_readable(&self) -> bool {
        self.unreadable.is_none()
    }

    /// Whether it asks for decisions about this control.
    pub fn asks_for(&self, control: &str) -> bool {
        self.attestations.iter().any(|rule| rule.for_control.as_deref() == Some(control))
    }

    /// The first part of the policy that this version cannot evaluate, as (path, reason). To store
    /// the policy all the same would promise a gate that does not close.
    pub fn unsupported(&self) -> Option<(String, String)> {
        let parts = [
            ("provenance.exceptions", !self.provenance.exceptions.is_empty()),
            ("trail-compliance.exceptions", !self.trail_compliance.exceptions.is_empty()),
            ("attestations", !self.attestations.is_empty()),
        ];
        let (part, _) = parts.into_iter().find(|(_, used)| *used)?;
        Some((
            format!("artifacts.{part}"),
            "This version does not evaluate these rules yet, and so refuses to store a policy \
             that contains them"
                .to_owned(),
        ))
    }
}

impl BooleanRule {
    /// Whether the rule, where it is required, holds in each of these flows, of which there must be one.
    fn holds(&self, contexts: &[FlowContext], in_flow: impl Fn(&FlowContext) -> bool) -> bool {
        !self.required || (!contexts.is_empty() && contexts.iter().all(in_flow))
    }
}

impl AttestationRule {
    /// Whether the rule holds in each of these flows, of which there must be one.
    fn holds(&self, contexts: &[FlowContext]) -> bool {
        let in_flow = |flow| self.resolve(flow) == ResolutionKind::RuleSatisfied;
        !contexts.is_empty() && contexts.iter().all(in_flow)
    }

    /// What comes of the rule where the artifact has these attestations: of several that fit, any compliant one will do.
    fn resolve(&self, flow: &FlowContext) -> ResolutionKind {
        let fits = |one: &&FlowAttestation| {
            (self.name == ANY_NAME || self.name == one.name) && self.kind.matches(&one.kind)
        };
        let is_plain = self.condition.is_none() && self.for_control.is_none();
        let attestations = flow.attestations.iter().flat_map(|list| list.iter());
        let mut fitting = attestations.filter(fits).filter(|_| is_plain).peekable();
        if fitting.peek().is_none() {
            ResolutionKind::MissingAttestation
        } else if !self.must_be_compliant || fitting.any(|one| one.is_compliant) {
            ResolutionKind::RuleSatisfied
        } else {
            ResolutionKind::NonCompliantAttestation
        }
    }
}

fn parse_root(examination: &mut Examination, document: &Value) -> Option<Policy> {
    let root = examination.object("", document, &["_schema", "artifacts"])?;
    parse_schema(examination, &root);
    match root.get("artifacts") {
        None => Some(Policy::default()),
        Some(artifacts) => parse_artifacts(examination, artifacts),
    }
}

fn parse_schema(examination: &mut Examination, root: &Fields<'_>) {
    if let Some(uri) = examination.required_text(root, "_schema")
        && schema_version(uri) != Some(SCHEMA_VERSION)
    {
        examination.refuse(
            root.path("_schema"),
            "Input should be a URL whose path ends in '/v1', the only version",
            &uri.into(),
        );
    }
}

fn schema_version(uri: &str) -> Option<&str> {
    let (_, rest) = uri.split_once("://")?;
    let path = rest.split(['?', '#']).next()?;
    let (_, last) = path.rsplit_once('/')?;
    last.strip_prefix('v')
}

fn parse_artifacts(examination: &mut Examination, artifacts: &Value) -> Option<Policy> {
    let keys = ["provenance", "trail-compliance", "attestations"];
    let fields = examination.object("artifacts", artifacts, &keys)?;
    let provenance = parse_boolean_rule(examination, &fields, "provenance");
    let trail_compliance = parse_boolean_rule(examination, &fields, "trail-compliance");
    let attestations = examination
        .list(&fields, "attestations")
        .into_iter()
        .filter_map(|(path, rule)| parse_attestation_rule(examination, &path, rule))
        .collect();
    Some(Policy { provenance, trail_compliance, attestations, unreadable: None })
}

fn parse_boolean_rule(examination: &mut Examination, artifacts: &Fields<'_>, key: &str) -> BooleanRule {
    let rule = artifacts
        .get(key)
        .and_then(|rule| examination.object(&artifacts.path(key), rule, &["required", "exceptions"]));
    let Some(fields) = rule else {
        return BooleanRule::default();
    };
    let required = examination.boolean(&fields, "required").unwrap_or(false);
    let exceptions = examination
        .list(&fields, "exceptions")
        .into_iter()
        .filter_map(|(path, exception)| {
            let fields = examination.object(&path, exception, &["if"])?;
            Some(ConditionalRule { condition: parse_condition(examination, &fields) })
        })
        .collect();
    BooleanRule { required, exceptions }
}

fn parse_attestation_rule(
    examination: &mut Examination,
    path: &str,
    rule: &Value,
) -> Option<AttestationRule> {
    let keys = ["if", "name", "type", "must_be_compliant", "for_control"];
    let fields = examination.object(path, rule, &keys)?;
    let condition = parse_condition(examination, &fields);
    let name = examination.text(&fields, "name").unwrap_or(ANY_NAME);
    let kind = template::parse_kind(examination, &fields, &KIND_ALIASES);
    let must_be_compliant = examination.boolean(&fields, "must_be_compliant").unwrap_or(true);
    let for_control = optional_text(examination, &fields, "for_control");
    let kind = kind?;
    if name == ANY_NAME && kind.is_any() {
        examination.refuse(path.to_owned(), "One of 'name' and 'type' should not be '*'", rule);
    }
    if let Some(control) = for_control.filter(|_| kind.as_str() != "decision") {
        examination.refuse(
            fields.path("for_control"),
            "Permitted for the type 'decision' only",
            &control.into(),
        );
    }
    Some(AttestationRule {
        condition,
        name: name.to_owned(),
        kind,
        must_be_compliant,
        for_control: for_control.map(str::to_owned),
    })
}

fn optional_text<'v>(examination: &mut Examination, fields: &Fields<'v>, key: &str) -> Option<&'v str> {
    match fields.get(key) {
        Some(Value::Null) => None,
        _ => examination.text(fields, key),
    }
}

fn parse_condition(examination: &mut Examination, fields: &Fields<'_>) -> Option<Condition> {
    let written = optional_text(examination, fields, "if")?;
    let inner = written
        .trim()
        .strip_prefix("${{")
        .and_then(|rest| rest.strip_suffix("}}"))
        .map(str::trim)
        .filter(|inner| !inner.is_empty());
    if inner.is_none() {
        examination.refuse(fields.path("if"), "Input should be an expression in '${{ }}'", &written.into());
    }
    inner.map(|text| Condition { text: text.to_owned() })
}

/// A flow that an artifact was reported in, with the newest trail of the artifact there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowContext {
    /// Name of the flow.
    pub flow_name: String,
    /// Name of the trail.
    pub trail_name: String,
    /// State of the artifact, not of the trail.
    pub artifact_state: State,
    /// Why it is in that state, where no attestation accounts for it.
    pub reason: Option<String>,
    /// The flow's tags.
    pub tags: Arc<BTreeMap<String, String>>,
    /// Every attestation that counts for the artifact: lists of its own and of those of its trail, of each the newest of
    /// each name. Artifacts of one trail share them.
    pub attestations: Vec<Arc<[FlowAttestation]>>,
}

/// An attestation as policies see it: its standing, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowAttestation {
    /// Its name.
    pub name: String,
    /// Its type as reported: `generic`, `custom:<name>`, ….
    pub kind: String,
    /// Its verdict, or that of the override that stands in for it.
    pub is_compliant: bool,
}

/// What a policy says of one artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evaluation {
    /// Whether no rule is violated.
    pub satisfied: bool,
    /// The rules in fixed order, `rule_evaluations` in a snapshot: provenance, trail-compliance,
    /// then the attestation rules; also those that do not apply.
    pub rules: Vec<RuleEvaluation>,
}

impl Evaluation {
    /// `COMPLIANT` or `NON-COMPLIANT`.
    pub const fn state(&self) -> State {
        if self.satisfied { State::Compliant } else { State::NonCompliant }
    }
}

/// What one rule of a policy says of one artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RuleEvaluationResponse")]
#[non_exhaustive]
pub struct RuleEvaluation {
    /// The rule.
    pub rule: Rule,
    /// Whether it holds in every flow where it applies; null if it applies in none.
    pub satisfied: Option<bool>,
    /// Whether it applies in no flow.
    pub ignored: bool,
    /// One for each flow, or one without a flow for an artifact without provenance.
    pub resolutions: Vec<Resolution>,
}

impl RuleEvaluation {
    fn new(rule: Rule, resolutions: Vec<Resolution>) -> Self {
        let mut applicable = resolutions
            .iter()
            .filter(|resolution| resolution.kind != ResolutionKind::RuleNotApplicable)
            .peekable();
        let ignored = applicable.peek().is_none();
        let holds = applicable.all(|resolution| resolution.kind == ResolutionKind::RuleSatisfied);
        Self { rule, satisfied: (!ignored).then_some(holds), ignored, resolutions }
    }
}

/// A rule as it is shown beside its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PolicyRuleDefinition")]
#[non_exhaustive]
pub struct Rule {
    /// The sort of rule.
    #[serde(rename = "type")]
    pub kind: RuleKind,
    /// Its parsed form.
    pub definition: RuleDefinition,
}

/// What a rule asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum RuleDefinition {
    /// Of provenance and trail compliance.
    Boolean(BooleanRule),
    /// Of an attestation.
    Attestation(AttestationRule),
    /// Of a policy that cannot be read.
    Policy(PolicyDump),
}

/// The sorts of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RuleKind {
    /// The policy can be read at all. Told only of one that cannot.
    Policy,
    /// The artifact was reported in a flow.
    Provenance,
    /// The artifact is compliant in its trail.
    TrailCompliance,
    /// An attestation is there.
    Attestation,
}

/// What came of one rule in one flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RuleResolutionResponse")]
#[non_exhaustive]
pub struct Resolution {
    /// What came of it.
    #[serde(rename = "type")]
    pub kind: ResolutionKind,
    /// Where.
    pub context: ResolutionContext,
}

/// What can come of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResolutionKind {
    /// The rule is not required.
    RuleNotApplicable,
    /// The rule holds.
    RuleSatisfied,
    /// Provenance is required, and the artifact was reported in no flow.
    MissingProvenance,
    /// The artifact was reported in no flow, so there is nothing to look at.
    NoProvenance,
    /// The artifact is not compliant in its trail.
    NonCompliantInTrail,
    /// The attestation is not there.
    MissingAttestation,
    /// It is there, and not compliant as it must be.
    NonCompliantAttestation,
    /// The policy cannot be read, so nothing complies with it.
    UnreadablePolicy,
}

/// Where a rule was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ContextResponse")]
#[non_exhaustive]
pub struct ResolutionContext {
    /// The flow; null for an artifact without provenance.
    pub flow_name: Option<String>,
    /// The trail; null for an artifact without provenance.
    pub trail_name: Option<String>,
    /// State of the artifact there, if the rule looked at it.
    pub artifact_status: Option<State>,
    /// The control that the rule names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_control: Option<String>,
    /// Why, where the type alone does not say it: a template or the policy cannot be read, or more is asked of the artifact by
    /// a name that an earlier report gave it than by that of its newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ResolutionContext {
    fn of(flow: &FlowContext) -> Self {
        Self {
            flow_name: Some(flow.flow_name.clone()),
            trail_name: Some(flow.trail_name.clone()),
            ..Self::default()
        }
    }
}

/// What a policy says of an artifact that was reported in these flows.
///
/// It never says more than it knows: exceptions are not looked at, so they waive nothing, and an
/// attestation rule with a condition or a control counts as violated. [`Policy::unsupported`] keeps
/// such policies out.
pub fn evaluate(policy: &Policy, contexts: &[FlowContext]) -> Evaluation {
    if let Some(why) = &policy.unreadable {
        return Evaluation { satisfied: false, rules: vec![unreadable(policy, why)] };
    }
    let mut rules = vec![
        evaluate_provenance(&policy.provenance, contexts),
        evaluate_trail_compliance(&policy.trail_compliance, contexts),
    ];
    rules.extend(policy.attestations.iter().map(|rule| evaluate_attestation(rule, contexts)));
    Evaluation { satisfied: rules.iter().all(|rule| rule.satisfied != Some(false)), rules }
}

/// Whether [`evaluate`] says that the policy is satisfied, without an explanation: it allocates nothing, for it is asked of
/// everything that runs by every policy.
pub(crate) fn is_satisfied(policy: &Policy, contexts: &[FlowContext]) -> bool {
    policy.is_readable()
        && policy.provenance.holds(contexts, |_| true)
        && policy.trail_compliance.holds(contexts, |flow| flow.artifact_state.is_compliant())
        && policy.attestations.iter().all(|rule| rule.holds(contexts))
}

fn unreadable(policy: &Policy, why: &str) -> RuleEvaluation {
    let resolution = Resolution {
        kind: ResolutionKind::UnreadablePolicy,
        context: ResolutionContext { reason: Some(why.to_owned()), ..ResolutionContext::default() },
    };
    RuleEvaluation::new(
        Rule { kind: RuleKind::Policy, definition: RuleDefinition::Policy(policy.into()) },
        vec![resolution],
    )
}

fn evaluate_provenance(rule: &BooleanRule, contexts: &[FlowContext]) -> RuleEvaluation {
    evaluate_boolean(RuleKind::Provenance, rule, contexts, ResolutionKind::MissingProvenance, |flow| {
        Resolution { kind: ResolutionKind::RuleSatisfied, context: ResolutionContext::of(flow) }
    })
}

fn evaluate_trail_compliance(rule: &BooleanRule, contexts: &[FlowContext]) -> RuleEvaluation {
    evaluate_boolean(RuleKind::TrailCompliance, rule, contexts, ResolutionKind::NoProvenance, |flow| {
        Resolution {
            kind: if flow.artifact_state.is_compliant() {
                ResolutionKind::RuleSatisfied
            } else {
                ResolutionKind::NonCompliantInTrail
            },
            context: ResolutionContext {
                artifact_status: Some(flow.artifact_state),
                reason: flow.reason.clone(),
                ..ResolutionContext::of(flow)
            },
        }
    })
}

fn evaluate_boolean(
    kind: RuleKind,
    rule: &BooleanRule,
    contexts: &[FlowContext],
    without_provenance: ResolutionKind,
    in_flow: impl Fn(&FlowContext) -> Resolution,
) -> RuleEvaluation {
    let resolutions = if rule.required {
        resolutions(contexts, without_provenance, in_flow)
    } else {
        let kind = ResolutionKind::RuleNotApplicable;
        resolutions(contexts, kind, |flow| Resolution { kind, context: ResolutionContext::of(flow) })
    };
    let definition = RuleDefinition::Boolean(rule.clone());
    RuleEvaluation::new(Rule { kind, definition }, resolutions)
}

fn evaluate_attestation(rule: &AttestationRule, contexts: &[FlowContext]) -> RuleEvaluation {
    let missing = ResolutionKind::MissingAttestation;
    let resolutions = resolutions(contexts, missing, |flow| Resolution {
        kind: rule.resolve(flow),
        context: ResolutionContext { for_control: rule.for_control.clone(), ..ResolutionContext::of(flow) },
    });
    let rule = Rule { kind: RuleKind::Attestation, definition: RuleDefinition::Attestation(rule.clone()) };
    RuleEvaluation::new(rule, resolutions)
}

fn resolutions(
    contexts: &[FlowContext],
    without_provenance: ResolutionKind,
    in_flow: impl Fn(&FlowContext) -> Resolution,
) -> Vec<Resolution> {
    if contexts.is_empty() {
        return vec![Resolution { kind: without_provenance, context: ResolutionContext::default() }];
    }
    contexts.iter().map(in_flow).collect()
}

/// Whether an artifact may run in an environment: it is on the allowlist, or every attached policy
/// is satisfied. Unknown without policies.
pub(crate) fn artifact_verdict(allow_listed: bool, satisfied: &[bool]) -> Option<bool> {
    if allow_listed {
        return Some(true);
    }
    (!satisfied.is_empty()).then(|| satisfied.iter().all(|satisfied| *satisfied))
}

/// Whether a snapshot is compliant: a policy is attached, and every running artifact is compliant.
/// An empty snapshot with policies is.
pub(crate) fn snapshot_compliant(
    mut verdicts: impl Iterator<Item = Option<bool>>,
    has_policies: bool,
) -> bool {
    has_policies && verdicts.all(|verdict| verdict == Some(true))
}

/// The `state` of a physical environment: whether its latest snapshot is compliant. Unknown without
/// policies or without snapshots.
pub(crate) fn environment_state(latest_compliant: Option<bool>, has_policies: bool) -> Option<bool> {
    latest_compliant.filter(|_| has_policies)
}

/// The `state` of a logical environment: false if a member is not compliant, true if all are, else
/// unknown; so also without members.
pub(crate) fn logical_environment_state(members: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    members
        .into_iter()
        .reduce(|all, member| match (all, member) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        })
        .flatten()
}

#[cfg(test)]
mod tests;
