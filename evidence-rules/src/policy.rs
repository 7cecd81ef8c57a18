//! Environment policies define what an artifact needs to run in an environment.
//!
//! A policy is a YAML text with three kinds of rules, each of which may depend on conditions. The kinds are
//! provenance (the artifact was reported in a flow), trail-compliance (it is compliant there) and
//! attestations. [`evaluate`] evaluates a policy for one artifact, once for each flow it was reported in. The
//! functions here combine the results into the verdict on an artifact, a snapshot and an environment.

mod dump;
mod evaluation;
mod evidence;
mod expression;
mod schema;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

pub use self::dump::{
    AttestationRuleDump, BooleanRuleDump, ConditionalRuleDump, PolicyDump, PolicyDumpArtifacts,
};
pub use self::evaluation::{
    Evaluation, Resolution, ResolutionContext, ResolutionKind, Rule, RuleDefinition, RuleEvaluation,
    RuleKind, RuleOutcomes, UnknownCondition, evaluate, explain_outcome, is_satisfied, not_evaluated,
    unknown_conditions,
};
pub use self::evidence::{
    Artifact, FlowAttestation, FlowAttestations, FlowContext, FlowDecision, RequiredAttestations,
};
use self::expression::Budget;
pub use self::expression::{Expression, ExpressionError, Scope, Truth};
pub use self::schema::{SCHEMA_ID, schema};
use super::compliance::State;
use super::document::{DocumentErrors, Fields, Validator};
use super::template::{self, Kind};
use evidence_values::name::{AttestationName, ControlIdentifier};

/// The errors of a policy that was rejected. Displayed as `N validation errors for Policy`, followed by the
/// details.
pub type PolicyErrors = DocumentErrors;

const ANY_NAME: &str = "*";
const SCHEMA_VERSION: &str = "1";
/// A spelling of `pull_request` that published examples use.
const KIND_ALIASES: [(&str, &str); 1] = [("pull-request", "pull_request")];

/// Maximum number of attestation rules of a policy.
const MAX_RULES: usize = 1_000;

/// Maximum number of exceptions of a rule.
const MAX_EXCEPTIONS: usize = 100;

/// A condition, `${{ … }}` in YAML.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PolicyExpression")]
#[non_exhaustive]
pub struct Condition {
    /// The expression between the braces, trimmed.
    pub text: String,
    /// The parsed expression.
    #[serde(skip)]
    pub expression: Arc<Expression>,
}

impl Condition {
    /// Parses the text of an expression.
    fn parse(text: &str, budget: &mut Budget) -> Result<Self, ExpressionError> {
        let expression = Arc::new(Expression::parse_within(text, budget)?);
        Ok(Self { text: text.to_owned(), expression })
    }

    /// Returns the field of a rule as one line.
    fn line(&self) -> String {
        let words = Vec::from_iter(self.text.split_whitespace());
        format!("if: ${{{{ {} }}}}", words.join(" "))
    }
}

/// A rule that is on or off, with conditions under which it does not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BooleanRule {
    /// Whether the rule applies at all.
    pub required: bool,
    /// The rule is waived if any exception is true. An exception without a condition is never true.
    pub exceptions: Vec<ConditionalRule>,
}

/// An exception of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConditionalRule {
    /// The condition under which the rule does not apply; null without a condition.
    #[serde(rename = "if")]
    pub condition: Option<Condition>,
}

/// A rule that requires an attestation of the artifact or of its trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "RequiredAttestationRule")]
pub struct AttestationRule {
    /// The condition under which the rule applies; null if it always applies.
    #[serde(rename = "if")]
    pub condition: Option<Condition>,
    /// Name of the attestation; `*` matches any name.
    pub name: String,
    /// Type of the attestation; `*` matches any type.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Whether the attestation must be compliant. If false, it only has to exist.
    pub must_be_compliant: bool,
    /// The control that the attestation must be a decision about; null if no decision is required.
    pub for_control: Option<String>,
}

/// A parsed environment policy. The default has no rules, so everything complies with it. Nothing complies
/// with a stored policy that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The artifact must have been reported in a flow.
    pub provenance: BooleanRule,
    /// The artifact must be compliant in every flow it was reported in.
    pub trail_compliance: BooleanRule,
    /// Attestations that the artifact or its trail must have.
    pub attestations: Vec<AttestationRule>,
    /// The reason why it could not be read, as responses show it.
    unreadable: Option<String>,
}

impl Policy {
    /// Parses a policy from YAML. Reports every error, not only the first.
    pub fn parse(yaml: &str) -> Result<Self, PolicyErrors> {
        let (mut validator, document) = Validator::read("Policy", yaml)?;
        let policy = parse_root(&mut validator, &document).unwrap_or_default();
        validator.finish(policy)
    }

    /// Parses a stored policy. It was validated before it was stored. If it is unreadable nevertheless
    /// (damaged, or from a later version), returns a policy that nothing complies with.
    #[doc(hidden)]
    pub fn stored(yaml: &str) -> Self {
        Self::parse(yaml).unwrap_or_else(|errors| Self {
            unreadable: Some(errors.unreadable("The policy")),
            ..Self::default()
        })
    }

    /// Returns whether parsing this text may be slow even though the text is short. Patterns have to be
    /// compiled, and with a backslash YAML can spell `matches` in other ways.
    #[doc(hidden)]
    pub fn is_slow_to_parse(yaml: &str) -> bool {
        yaml.contains("matches") || yaml.contains('\\')
    }

    /// Returns whether the policy could be read, as opposed to a substitute for an unreadable one.
    pub const fn is_readable(&self) -> bool {
        self.unreadable.is_none()
    }

    /// Returns whether a rule requires decisions about this control.
    pub fn asks_for(&self, control: &str) -> bool {
        self.attestations.iter().any(|rule| rule.for_control.as_deref() == Some(control))
    }

    /// Returns the controls about which rules require decisions, sorted and without duplicates.
    pub fn controls(&self) -> BTreeSet<&str> {
        self.attestations.iter().filter_map(|rule| rule.for_control.as_deref()).collect()
    }

    fn conditions(&self) -> impl Iterator<Item = &Condition> {
        let exceptions = self.provenance.exceptions.iter().chain(&self.trail_compliance.exceptions);
        let conditions = exceptions.map(|exception| &exception.condition);
        conditions.chain(self.attestations.iter().map(|rule| &rule.condition)).flatten()
    }

    /// Returns whether a condition uses the artifact's name.
    #[doc(hidden)]
    pub fn looks_at_names(&self) -> bool {
        self.conditions().any(|condition| condition.expression.looks_at_name())
    }

    /// Returns the approximate memory use in bytes.
    #[doc(hidden)]
    pub fn bytes(&self) -> usize {
        let texts = |rule: &AttestationRule| {
            let control = rule.for_control.as_ref().map_or(0, String::len);
            rule.name.len() + rule.kind.as_str().len() + control
        };
        let exceptions = self.provenance.exceptions.len() + self.trail_compliance.exceptions.len();
        let condition = |condition: &Condition| condition.text.len() + condition.expression.bytes();
        size_of_val(self)
            + size_of_val(self.attestations.as_slice())
            + exceptions * size_of::<ConditionalRule>()
            + self.attestations.iter().map(texts).sum::<usize>()
            + self.conditions().map(condition).sum::<usize>()
    }

    /// Returns the number of rules.
    #[doc(hidden)]
    pub const fn rules(&self) -> usize {
        2 + self.attestations.len()
    }

    /// Returns the number of rules, exceptions and parts of expressions that an evaluation may visit.
    #[doc(hidden)]
    pub fn parts(&self) -> usize {
        let exceptions = self.provenance.exceptions.len() + self.trail_compliance.exceptions.len();
        let expressions = self.conditions().map(|condition| condition.expression.parts());
        self.rules() + exceptions + expressions.sum::<usize>()
    }
}

fn parse_root(validator: &mut Validator, document: &Value) -> Option<Policy> {
    let root = validator.object("", document, &["_schema", "artifacts"])?;
    parse_schema(validator, &root);
    match root.get("artifacts") {
        None => Some(Policy::default()),
        Some(artifacts) => parse_artifacts(validator, artifacts),
    }
}

fn parse_schema(validator: &mut Validator, root: &Fields<'_>) {
    if let Some(uri) = validator.required_text(root, "_schema")
        && schema_version(uri) != Some(SCHEMA_VERSION)
    {
        validator.refuse(
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

fn parse_artifacts(validator: &mut Validator, artifacts: &Value) -> Option<Policy> {
    let keys = ["provenance", "trail-compliance", "attestations"];
    let fields = validator.object("artifacts", artifacts, &keys)?;
    let mut budget = Budget::default();
    let provenance = parse_boolean_rule(validator, &fields, "provenance", &mut budget);
    let trail_compliance = parse_boolean_rule(validator, &fields, "trail-compliance", &mut budget);
    let rules = at_most(MAX_RULES, validator, &fields, "attestations");
    let mut attestations = Vec::new();
    for (path, rule) in rules {
        // Later items would add no errors to the report.
        if validator.is_full() {
            break;
        }
        attestations.extend(parse_attestation_rule(validator, &path, rule, &mut budget));
    }
    Some(Policy { provenance, trail_compliance, attestations, unreadable: None })
}

/// Returns the items of an optional list, each with its path. Returns none and records an error if there are
/// more than `most`.
fn at_most<'v>(
    most: usize,
    validator: &mut Validator,
    fields: &Fields<'v>,
    key: &str,
) -> Vec<(String, &'v Value)> {
    let items = validator.list(fields, key);
    if items.len() > most {
        let text = format!("List should have at most {most} items");
        validator.refuse(fields.path(key), &text, &items.len().into());
        return Vec::new();
    }
    items
}

fn parse_boolean_rule(
    validator: &mut Validator,
    artifacts: &Fields<'_>,
    key: &str,
    budget: &mut Budget,
) -> BooleanRule {
    let rule = artifacts
        .get(key)
        .and_then(|rule| validator.object(&artifacts.path(key), rule, &["required", "exceptions"]));
    let Some(fields) = rule else {
        return BooleanRule::default();
    };
    let required = validator.boolean(&fields, "required").unwrap_or(false);
    let exceptions = at_most(MAX_EXCEPTIONS, validator, &fields, "exceptions")
        .into_iter()
        .filter_map(|(path, exception)| {
            let fields = validator.object(&path, exception, &["if"])?;
            Some(ConditionalRule { condition: parse_condition(validator, &fields, budget) })
        })
        .collect();
    BooleanRule { required, exceptions }
}

fn parse_attestation_rule(
    validator: &mut Validator,
    path: &str,
    rule: &Value,
    budget: &mut Budget,
) -> Option<AttestationRule> {
    let keys = ["if", "name", "type", "must_be_compliant", "for_control"];
    let fields = validator.object(path, rule, &keys)?;
    let condition = parse_condition(validator, &fields, budget);
    let name = validator.text(&fields, "name").unwrap_or(ANY_NAME);
    // Attestations cannot be reported under any other name.
    if name != ANY_NAME {
        validator.fits::<AttestationName>(&fields, "name", name);
    }
    let kind = template::parse_kind(validator, &fields, &KIND_ALIASES);
    let must_be_compliant = validator.boolean(&fields, "must_be_compliant").unwrap_or(true);
    let for_control = optional_text(validator, &fields, "for_control");
    if let Some(control) = for_control {
        validator.fits::<ControlIdentifier>(&fields, "for_control", control);
    }
    let kind = kind?;
    if name == ANY_NAME && kind.is_any() {
        validator.refuse(path.to_owned(), "One of 'name' and 'type' should not be '*'", rule);
    }
    if let Some(control) = for_control.filter(|_| kind.as_str() != "decision") {
        validator.refuse(
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

fn optional_text<'v>(validator: &mut Validator, fields: &Fields<'v>, key: &str) -> Option<&'v str> {
    match fields.get(key) {
        Some(Value::Null) => None,
        _ => validator.text(fields, key),
    }
}

fn parse_condition(validator: &mut Validator, fields: &Fields<'_>, budget: &mut Budget) -> Option<Condition> {
    let written = optional_text(validator, fields, "if")?;
    let inner = written
        .trim()
        .strip_prefix("${{")
        .and_then(|rest| rest.strip_suffix("}}"))
        .map(str::trim)
        .filter(|inner| !inner.is_empty());
    let Some(inner) = inner else {
        validator.refuse(fields.path("if"), "Input should be an expression in '${{ }}'", &written.into());
        return None;
    };
    let condition = Condition::parse(inner, budget);
    condition.map_err(|error| validator.refuse(fields.path("if"), &error.to_string(), &written.into())).ok()
}

/// Returns whether an artifact may run in an environment: it is on the allowlist, or every attached policy is
/// satisfied. Returns `None` without policies.
#[doc(hidden)]
pub fn artifact_verdict(allow_listed: bool, satisfied: &[bool]) -> Option<bool> {
    if allow_listed {
        return Some(true);
    }
    (!satisfied.is_empty()).then(|| satisfied.iter().all(|satisfied| *satisfied))
}

/// Returns the verdict on a running artifact of an environment that requires provenance. It combines the
/// result of the policies with the states of the artifact in its flows. Without policies, the artifact must
/// be compliant in each flow, as the gate requires.
#[doc(hidden)]
pub fn required_provenance_verdict(
    allow_listed: bool,
    by_policies: Option<bool>,
    mut in_flows: impl ExactSizeIterator<Item = State>,
) -> Option<bool> {
    if allow_listed {
        return Some(true);
    }
    if in_flows.len() == 0 {
        return Some(false);
    }
    by_policies.or_else(|| Some(in_flows.all(State::is_compliant)))
}

/// Returns whether a snapshot is compliant. It is if policies or required provenance apply and every running
/// artifact is compliant. An empty snapshot is compliant if they apply.
#[doc(hidden)]
pub fn snapshot_compliant(mut verdicts: impl Iterator<Item = Option<bool>>, is_judged: bool) -> bool {
    is_judged && verdicts.all(|verdict| verdict == Some(true))
}

/// Returns the `state` of a physical environment: whether its latest snapshot is compliant. Returns `None`
/// without snapshots, and if neither policies nor required provenance apply.
#[doc(hidden)]
pub fn environment_state(latest_compliant: Option<bool>, is_judged: bool) -> Option<bool> {
    latest_compliant.filter(|_| is_judged)
}

/// The number of members of a logical environment in each state.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemberStates {
    compliant: usize,
    violating: usize,
    unknown: usize,
}

impl MemberStates {
    const fn count(&mut self, state: Option<bool>) -> &mut usize {
        match state {
            Some(true) => &mut self.compliant,
            Some(false) => &mut self.violating,
            None => &mut self.unknown,
        }
    }

    /// Adds the state of a member.
    pub fn add(&mut self, state: Option<bool>) {
        *self.count(state) += 1;
    }

    /// Removes a state that was added.
    pub fn remove(&mut self, state: Option<bool>) {
        let count = self.count(state);
        *count = count.saturating_sub(1);
    }

    /// Returns the `state` of the logical environment: false if a member is not compliant, true if all are,
    /// otherwise unknown. It is unknown without members.
    pub const fn state(&self) -> Option<bool> {
        match self {
            Self { violating: 1.., .. } => Some(false),
            Self { compliant: 1.., unknown: 0, .. } => Some(true),
            _ => None,
        }
    }
}

/// The result of a logical environment's own policies in the snapshot of a member: the policies, and whether
/// everything that runs complies with them. `None` if no such policy evaluated the snapshot.
#[doc(hidden)]
pub type OwnPolicies<'p, I> = Option<(&'p [I], bool)>;

/// The number of members of a logical environment by state, and by the results of its own policies in their
/// snapshots.
#[doc(hidden)]
#[derive(Debug)]
pub struct Members<'p, I> {
    states: MemberStates,
    own: BTreeMap<Option<&'p [I]>, MemberStates>,
}

impl<I> Default for Members<'_, I> {
    fn default() -> Self {
        Self { states: MemberStates::default(), own: BTreeMap::new() }
    }
}

impl<'p, I: Ord> Members<'p, I> {
    /// Adds a member: its state, and the result of the logical environment's own policies.
    pub fn add(&mut self, (state, own): (Option<bool>, OwnPolicies<'p, I>)) {
        self.states.add(state);
        self.own
            .entry(own.map(|(policies, _)| policies))
            .or_default()
            .add(own.map(|(_, compliant)| compliant));
    }

    /// Removes a member that was added.
    pub fn remove(&mut self, (state, own): (Option<bool>, OwnPolicies<'p, I>)) {
        self.states.remove(state);
        let policies = own.map(|(policies, _)| policies);
        if let Some(states) = self.own.get_mut(&policies) {
            states.remove(own.map(|(_, compliant)| compliant));
            if *states == MemberStates::default() {
                self.own.remove(&policies);
            }
        }
    }

    /// Returns the verdict for a logical environment whose own policies are `policies`, in order; `None`
    /// means that they cannot be read.
    ///
    /// - False if a member is not compliant or something violates these policies.
    /// - True if all members are compliant and everything complies with the policies.
    /// - Unknown otherwise, without members, and for a member that was evaluated by other policies.
    pub fn state(&self, policies: Option<&[I]>) -> Option<bool> {
        let own = match policies {
            None => None,
            Some([]) => Some(true),
            Some(policies) => {
                let counted = self.own.iter().map(|(by, states)| match *by == Some(policies) {
                    true => states.state(),
                    false => None,
                });
                worst(counted)
            }
        };
        worst([self.states.state(), own])
    }
}

/// Returns false if one is false, true if all are true, otherwise unknown.
fn worst(states: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut worst = Some(true);
    for state in states {
        match state {
            Some(false) => return state,
            None => worst = None,
            Some(true) => {}
        }
    }
    worst
}

#[cfg(test)]
mod tests;
