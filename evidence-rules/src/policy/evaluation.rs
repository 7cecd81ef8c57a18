//! Evaluates the rules of a policy for an artifact, in each flow that it was reported in. A query for one
//! artifact gets the full evaluation; a report of many artifacts records one letter for each rule and flow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::evidence::{Artifact, FlowContext, Found};
use super::{ANY_NAME, AttestationRule, BooleanRule, Condition, Policy, PolicyDump, Truth};
use crate::compliance::State;

/// The result of a policy for one artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evaluation {
    /// Whether no rule is violated.
    pub satisfied: bool,
    /// The rules in fixed order: provenance, trail-compliance, then the attestation rules. They include rules
    /// that do not apply. Snapshots show them as `rule_evaluations`.
    pub rules: Vec<RuleEvaluation>,
}

impl Evaluation {
    /// Returns `COMPLIANT` or `NON-COMPLIANT`.
    pub const fn state(&self) -> State {
        if self.satisfied { State::Compliant } else { State::NonCompliant }
    }
}

/// The result of one rule of a policy for one artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RuleEvaluationResponse")]
#[non_exhaustive]
pub struct RuleEvaluation {
    /// The rule.
    pub rule: Rule,
    /// Whether the rule holds in every flow where it applies; null if it applies in none.
    pub satisfied: Option<bool>,
    /// Whether the rule applies in no flow.
    pub ignored: bool,
    /// One resolution for each flow, or one without a flow for an artifact without provenance.
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

    /// Returns the violations of the rule, one sentence for each flow.
    pub fn violations(&self) -> impl Iterator<Item = String> {
        let violated = self.resolutions.iter().filter(|resolution| !resolution.kind.is_passed());
        violated.map(|resolution| self.rule.violated(resolution))
    }
}

impl Rule {
    /// Returns the violation that a resolution reports.
    fn violated(&self, Resolution { kind, context }: &Resolution) -> String {
        let place = match (&context.flow_name, context.trail_name.as_deref()) {
            (Some(flow), Some(trail)) if !trail.is_empty() => format!("in trail '{trail}' of flow '{flow}'"),
            (Some(flow), _) => format!("in flow '{flow}'"),
            (None, _) => "in any flow".to_owned(),
        };
        let what = match &self.definition {
            RuleDefinition::Attestation(rule) => rule.asked_for(),
            RuleDefinition::Boolean(_) | RuleDefinition::Policy(_) => "compliance in a trail".to_owned(),
        };
        let said = match kind {
            ResolutionKind::RuleNotApplicable | ResolutionKind::RuleSatisfied => {
                format!("{what} holds {place}")
            }
            ResolutionKind::MissingProvenance => {
                "provenance is required, and the artifact was reported in no flow".to_owned()
            }
            ResolutionKind::NoProvenance => {
                format!("{what} is missing, for the artifact was reported in no flow")
            }
            ResolutionKind::NonCompliantInTrail => {
                let state = context.artifact_status.unwrap_or(State::NonCompliant);
                format!("the artifact is {state} {place}")
            }
            ResolutionKind::MissingAttestation => format!("{what} is missing {place}"),
            ResolutionKind::NonCompliantAttestation => format!("{what} is not compliant {place}"),
            ResolutionKind::UnreadablePolicy => "the policy cannot be read".to_owned(),
            ResolutionKind::NotEvaluated => "the artifact was not evaluated".to_owned(),
        };
        match &context.reason {
            Some(reason) => format!("{said}: {reason}"),
            None => said,
        }
    }
}

impl BooleanRule {
    /// Returns its fields as one line.
    fn text(&self) -> String {
        let conditions = self.exceptions.iter().map(|exception| match &exception.condition {
            Some(condition) => condition.line(),
            None => "{}".to_owned(),
        });
        let exceptions = Vec::from_iter(conditions);
        match exceptions.is_empty() {
            true => format!("required: {}", self.required),
            false => format!("required: {}, exceptions: [{}]", self.required, exceptions.join(", ")),
        }
    }
}

impl AttestationRule {
    /// Returns its fields as one line, without those that have their default values.
    fn text(&self) -> String {
        let named = (self.name != ANY_NAME).then(|| format!("name: {}", self.name));
        let optional = (!self.must_be_compliant).then(|| "must_be_compliant: false".to_owned());
        let control = self.for_control.as_ref().map(|control| format!("for_control: {control}"));
        let condition = self.condition.as_ref().map(Condition::line);
        let kind = format!("type: {}", self.kind.as_str());
        let fields = named.into_iter().chain([kind]).chain(optional).chain(control).chain(condition);
        Vec::from_iter(fields).join(", ")
    }

    /// Returns its requirement in words.
    fn asked_for(&self) -> String {
        if let Some(control) = &self.for_control {
            return format!("a decision about control '{control}'");
        }
        match (self.name.as_str(), self.kind.as_str()) {
            (ANY_NAME, kind) => format!("an attestation of type '{kind}'"),
            (name, _) if self.kind.is_any() => format!("the attestation '{name}'"),
            (name, kind) => format!("the attestation '{name}' of type '{kind}'"),
        }
    }
}

/// A rule as shown beside its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PolicyRuleDefinition")]
#[non_exhaustive]
pub struct Rule {
    /// The kind of rule.
    #[serde(rename = "type")]
    pub kind: RuleKind,
    /// The rule as one line, in the spelling of a policy: `trail-compliance: required: true`.
    pub text: String,
    /// Its parsed form.
    pub definition: RuleDefinition,
}

/// The parsed form of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum RuleDefinition {
    /// A provenance or trail-compliance rule.
    Boolean(BooleanRule),
    /// An attestation rule.
    Attestation(AttestationRule),
    /// A policy that cannot be read.
    Policy(PolicyDump),
}

/// The kinds of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RuleKind {
    /// The policy can be read and evaluated. Shown only for a policy that cannot.
    Policy,
    /// The artifact was reported in a flow.
    Provenance,
    /// The artifact is compliant in its trail.
    TrailCompliance,
    /// The attestation exists.
    Attestation,
}

/// The result of one rule in one flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RuleResolutionResponse")]
#[non_exhaustive]
pub struct Resolution {
    /// The kind of result.
    #[serde(rename = "type")]
    pub kind: ResolutionKind,
    /// The flow and trail of the result.
    pub context: ResolutionContext,
}

/// The kinds of results of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResolutionKind {
    /// The rule is not required, its condition is false, or an exception is true. An unknown condition waives
    /// no rule.
    RuleNotApplicable,
    /// The rule holds.
    RuleSatisfied,
    /// Provenance is required, and the artifact was reported in no flow.
    MissingProvenance,
    /// The artifact was reported in no flow, so there is no trail to check.
    NoProvenance,
    /// The artifact is not compliant in its trail.
    NonCompliantInTrail,
    /// The attestation does not exist.
    MissingAttestation,
    /// The attestation exists but is not compliant, as the rule requires.
    NonCompliantAttestation,
    /// The policy cannot be read, so nothing complies with it.
    UnreadablePolicy,
    /// The evaluation would exceed a limit of the host, so the artifact complies with no policy. The reason
    /// names the limit.
    NotEvaluated,
}

impl ResolutionKind {
    /// The letters under which the kinds are recorded. A released letter must never change.
    const LETTERS: [(Self, u8); 9] = [
        (Self::RuleNotApplicable, b'-'),
        (Self::RuleSatisfied, b'+'),
        (Self::MissingProvenance, b'p'),
        (Self::NoProvenance, b'n'),
        (Self::NonCompliantInTrail, b't'),
        (Self::MissingAttestation, b'm'),
        (Self::NonCompliantAttestation, b'a'),
        (Self::UnreadablePolicy, b'u'),
        (Self::NotEvaluated, b'x'),
    ];

    fn letter(self) -> char {
        let letter = Self::LETTERS.iter().find(|(kind, _)| *kind == self);
        // An unknown kind must not be read as passed.
        letter.map_or('?', |(_, letter)| char::from(*letter))
    }

    fn of_letter(letter: u8) -> Option<Self> {
        Self::LETTERS.iter().find(|(_, known)| *known == letter).map(|(kind, _)| *kind)
    }

    /// Returns whether the result does not violate the rule.
    const fn is_passed(self) -> bool {
        matches!(self, Self::RuleNotApplicable | Self::RuleSatisfied)
    }
}

/// The flow and trail in which a rule was evaluated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "ContextResponse")]
#[non_exhaustive]
pub struct ResolutionContext {
    /// The flow; null for an artifact without provenance.
    pub flow_name: Option<String>,
    /// The trail; null for an artifact without provenance.
    pub trail_name: Option<String>,
    /// State of the artifact in the trail, if the rule used it.
    pub artifact_status: Option<State>,
    /// The control that the rule names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_control: Option<String>,
    /// The reason, if the type alone does not show it. Examples: a template or the policy cannot be read; the
    /// rule applies because its condition is unknown; an earlier report gave the artifact a name with more
    /// requirements.
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

/// A rule of a policy.
#[derive(Clone, Copy)]
enum RuleRef<'p> {
    Provenance(&'p BooleanRule),
    TrailCompliance(&'p BooleanRule),
    Attestation(&'p AttestationRule),
}

impl<'p> RuleRef<'p> {
    /// Returns the rules of a policy, in the order in which they are shown.
    fn all(policy: &'p Policy) -> impl Iterator<Item = Self> + Clone {
        let boolean = [Self::Provenance(&policy.provenance), Self::TrailCompliance(&policy.trail_compliance)];
        boolean.into_iter().chain(policy.attestations.iter().map(Self::Attestation))
    }

    /// Returns the result for an artifact in this flow, or for one that was reported in no flow. It allocates
    /// nothing, because every policy calls it for everything that runs.
    fn resolve(self, artifact: Artifact<'_>, flow: Option<&FlowContext>) -> ResolutionKind {
        match (self.applies(artifact, flow), self, flow) {
            (Truth::False, ..) => ResolutionKind::RuleNotApplicable,
            // An unknown condition waives no rule.
            (_, Self::Provenance(_), None) => ResolutionKind::MissingProvenance,
            (_, Self::TrailCompliance(_), None) => ResolutionKind::NoProvenance,
            (_, Self::Attestation(_), None) => ResolutionKind::MissingAttestation,
            (_, Self::TrailCompliance(_), Some(flow)) if !flow.artifact_state.is_compliant() => {
                ResolutionKind::NonCompliantInTrail
            }
            (_, Self::Provenance(_) | Self::TrailCompliance(_), Some(_)) => ResolutionKind::RuleSatisfied,
            (_, Self::Attestation(rule), Some(flow)) => rule.resolve(flow),
        }
    }

    /// Returns whether the rule applies. A rule with exceptions applies unless one of them is true.
    fn applies(self, artifact: Artifact<'_>, flow: Option<&FlowContext>) -> Truth {
        match self {
            Self::Provenance(rule) | Self::TrailCompliance(rule) if !rule.required => Truth::False,
            Self::Provenance(_) | Self::TrailCompliance(_) => {
                !Truth::any(self.conditions().map(|condition| artifact.truth(condition, flow)))
            }
            Self::Attestation(_) => {
                self.conditions().next().map_or(Truth::True, |condition| artifact.truth(condition, flow))
            }
        }
    }

    /// Returns its exceptions, or its `if`.
    fn conditions(self) -> impl Iterator<Item = &'p Condition> {
        let (exceptions, own) = match self {
            Self::Provenance(rule) | Self::TrailCompliance(rule) => (rule.exceptions.as_slice(), None),
            Self::Attestation(rule) => (&[][..], rule.condition.as_ref()),
        };
        exceptions.iter().filter_map(|exception| exception.condition.as_ref()).chain(own)
    }

    /// Returns why the first unknown condition is unknown, if it makes unknown whether the rule applies.
    fn unknown_because(self, artifact: Artifact<'_>, flow: Option<&FlowContext>) -> Option<String> {
        if self.applies(artifact, flow) != Truth::Unknown {
            return None;
        }
        self.conditions().find_map(|condition| artifact.unknown_because(condition, flow))
    }

    fn shown(self) -> Rule {
        let (kind, definition) = match self {
            Self::Provenance(rule) => (RuleKind::Provenance, RuleDefinition::Boolean(rule.clone())),
            Self::TrailCompliance(rule) => (RuleKind::TrailCompliance, RuleDefinition::Boolean(rule.clone())),
            Self::Attestation(rule) => (RuleKind::Attestation, RuleDefinition::Attestation(rule.clone())),
        };
        Rule { kind, text: self.text(), definition }
    }

    /// Returns the rule as one line, without fields that have their default values.
    fn text(self) -> String {
        match self {
            Self::Provenance(rule) => format!("provenance: {}", rule.text()),
            Self::TrailCompliance(rule) => format!("trail-compliance: {}", rule.text()),
            Self::Attestation(rule) => format!("attestations: {}", rule.text()),
        }
    }

    /// Returns the result with its context and reason.
    fn resolution(
        self,
        kind: ResolutionKind,
        flow: Option<&FlowContext>,
        unknown: Option<&UnknownCondition>,
    ) -> Resolution {
        let mut context = flow.map(ResolutionContext::of).unwrap_or_default();
        let is_decided = matches!(kind, ResolutionKind::RuleSatisfied | ResolutionKind::NonCompliantInTrail);
        match self {
            Self::TrailCompliance(_) if is_decided => {
                context.artifact_status = flow.map(|flow| flow.artifact_state);
                context.reason = flow.and_then(|flow| flow.reason.clone());
            }
            Self::Attestation(rule) => context.for_control.clone_from(&rule.for_control),
            Self::Provenance(_) | Self::TrailCompliance(_) => {}
        }
        if let Some(UnknownCondition { why, .. }) = unknown {
            context.reason = Some(match context.reason {
                Some(reason) => format!("{reason}; {why}"),
                None => why.clone(),
            });
        }
        Resolution { kind, context }
    }
}

impl AttestationRule {
    /// Returns the result of the rule for these attestations. For each name, the nearest scope counts. If
    /// several names match, one compliant attestation is enough. Among decisions about the rule's control,
    /// the newest counts.
    fn resolve(&self, flow: &FlowContext) -> ResolutionKind {
        let list = &flow.attestations;
        let name = Some(self.name.as_str()).filter(|name| *name != ANY_NAME);
        let found = match (&self.for_control, name) {
            (Some(control), name) => {
                list.decision(control, name).map_or(Found::Nothing, |decision| decision.is_compliant.into())
            }
            (None, None) => list.of_kind(&self.kind),
            (None, Some(name)) => list.named(name, &self.kind),
        };
        match found {
            Found::Nothing => ResolutionKind::MissingAttestation,
            Found::NonCompliant if self.must_be_compliant => ResolutionKind::NonCompliantAttestation,
            Found::NonCompliant | Found::Compliant => ResolutionKind::RuleSatisfied,
        }
    }
}

/// Returns the flows in which a rule is evaluated, or a single `None` if there are none.
fn places(contexts: &[FlowContext]) -> impl Iterator<Item = Option<&FlowContext>> + Clone {
    contexts.iter().map(Some).chain(contexts.is_empty().then_some(None))
}

/// The reason why a violated rule applied although its condition is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownCondition {
    /// Position of the rule in the policy.
    pub rule: u16,
    /// Position of the flow among those that the artifact was reported in; 0 without a flow.
    pub flow: u32,
    /// The reason, as responses show it.
    pub why: String,
}

/// Maximum number of recorded reasons for one policy and one artifact.
const MAX_UNKNOWN: usize = 20;

/// Returns why rules that this artifact violates applied although their conditions are unknown, up to
/// `MAX_UNKNOWN`.
#[doc(hidden)]
pub fn unknown_conditions(
    policy: &Policy,
    artifact: Artifact<'_>,
    contexts: &[FlowContext],
) -> Vec<UnknownCondition> {
    let rules = (0..=u16::MAX).zip(RuleRef::all(policy));
    let unknown = rules.flat_map(|(place, rule)| {
        (0..=u32::MAX).zip(places(contexts)).filter_map(move |(flow, context)| {
            let is_violated = !rule.resolve(artifact, context).is_passed();
            let why = is_violated.then(|| rule.unknown_because(artifact, context))??;
            Some(UnknownCondition { rule: place, flow, why })
        })
    });
    unknown.take(MAX_UNKNOWN).collect()
}

/// Evaluates a policy for an artifact that was reported in these flows.
pub fn evaluate(policy: &Policy, artifact: Artifact<'_>, contexts: &[FlowContext]) -> Evaluation {
    let unknown = unknown_conditions(policy, artifact, contexts);
    explain(policy, contexts, &unknown, |rule, flow| Some(rule.resolve(artifact, flow)))
        .unwrap_or_else(|| Evaluation { satisfied: false, rules: Vec::new() })
}

/// Rebuilds the evaluation from a recorded outcome. Returns `None` if the outcome does not fit this policy.
#[doc(hidden)]
pub fn explain_outcome(
    policy: &Policy,
    outcome: &RuleOutcomes,
    unknown: &[UnknownCondition],
    contexts: &[FlowContext],
) -> Option<Evaluation> {
    let rules = RuleRef::all(policy).count();
    let parts = Vec::from_iter(outcome.0.split(BETWEEN));
    let fits = parts.len() == places(contexts).count() && parts.iter().all(|part| part.len() == rules);
    // The outcome is recorded flow by flow, but is read rule by rule.
    let letters = (0..rules).flat_map(|rule| parts.iter().map(move |part| part.as_bytes().get(rule)));
    let mut kinds = letters.map(|letter| ResolutionKind::of_letter(*letter?));
    fits.then(|| explain(policy, contexts, unknown, |_, _| kinds.next().flatten())).flatten()
}

fn explain(
    policy: &Policy,
    contexts: &[FlowContext],
    unknown: &[UnknownCondition],
    mut resolve: impl FnMut(RuleRef<'_>, Option<&FlowContext>) -> Option<ResolutionKind>,
) -> Option<Evaluation> {
    if let Some(why) = &policy.unreadable {
        return Some(Evaluation { satisfied: false, rules: vec![unreadable(policy, why)] });
    }
    let evaluate = |(place, rule): (u16, RuleRef<'_>)| {
        let resolution = |(at, flow)| {
            let here = unknown.iter().find(|one| (one.rule, one.flow) == (place, at));
            Some(rule.resolution(resolve(rule, flow)?, flow, here))
        };
        let resolutions = (0..=u32::MAX).zip(places(contexts)).map(resolution).collect::<Option<_>>()?;
        Some(RuleEvaluation::new(rule.shown(), resolutions))
    };
    let rules = (0..=u16::MAX).zip(RuleRef::all(policy)).map(evaluate).collect::<Option<Vec<_>>>()?;
    Some(Evaluation { satisfied: rules.iter().all(|rule| rule.satisfied != Some(false)), rules })
}

/// Returns whether [`evaluate`] would find the policy satisfied, without building the explanation.
pub fn is_satisfied(policy: &Policy, artifact: Artifact<'_>, contexts: &[FlowContext]) -> bool {
    let holds = |rule: RuleRef<'_>| places(contexts).all(|flow| rule.resolve(artifact, flow).is_passed());
    policy.is_readable() && RuleRef::all(policy).all(holds)
}

/// The results of each rule of a policy in each flow, as letters: one for each rule, flow after flow. They
/// are recorded if the result does not follow from the states of the artifact in its flows, because the other
/// inputs may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleOutcomes(String);

impl From<&str> for RuleOutcomes {
    /// Wraps letters that were recorded.
    fn from(letters: &str) -> Self {
        Self(letters.to_owned())
    }
}

/// The separator between the letters of two flows.
const BETWEEN: char = '/';

impl RuleOutcomes {
    /// Returns the outcomes of an artifact that was reported in these flows. Returns `None` if they follow
    /// from the states of the artifact there, which are recorded anyway.
    pub fn of(policy: &Policy, artifact: Artifact<'_>, contexts: &[FlowContext]) -> Option<Self> {
        if policy.follows_from_states() {
            return None;
        }
        let letters = |flow| RuleRef::all(policy).map(move |rule| rule.resolve(artifact, flow).letter());
        let parts = Vec::from_iter(places(contexts).map(|flow| letters(flow).collect::<String>()));
        Some(Self(parts.join(&BETWEEN.to_string())))
    }

    /// Returns the length of the recorded text, separators included.
    #[doc(hidden)]
    pub const fn text_len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the policy is satisfied.
    #[doc(hidden)]
    pub fn are_satisfied(&self) -> bool {
        let passed = |letter: u8| ResolutionKind::of_letter(letter).is_some_and(ResolutionKind::is_passed);
        self.0.bytes().filter(|letter| char::from(*letter) != BETWEEN).all(passed)
    }
}

impl Policy {
    /// Returns whether the result for an artifact follows from its states in its flows. For an unreadable
    /// policy it does, because nothing complies with it.
    #[doc(hidden)]
    pub fn follows_from_states(&self) -> bool {
        !self.is_readable() || self.attestations.is_empty() && self.conditions().next().is_none()
    }
}

/// Returns the evaluation of an artifact that was not evaluated for this reason: it does not comply.
pub fn not_evaluated(policy: &Policy, why: &str) -> Evaluation {
    Evaluation { satisfied: false, rules: vec![no_answer(policy, ResolutionKind::NotEvaluated, why)] }
}

fn unreadable(policy: &Policy, why: &str) -> RuleEvaluation {
    no_answer(policy, ResolutionKind::UnreadablePolicy, why)
}

fn no_answer(policy: &Policy, kind: ResolutionKind, why: &str) -> RuleEvaluation {
    let resolution = Resolution {
        kind,
        context: ResolutionContext { reason: Some(why.to_owned()), ..ResolutionContext::default() },
    };
    RuleEvaluation::new(
        Rule {
            kind: RuleKind::Policy,
            text: "the policy as a whole".to_owned(),
            definition: RuleDefinition::Policy(policy.into()),
        },
        vec![resolution],
    )
}
