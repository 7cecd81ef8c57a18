//! Environment policies: what an artifact must have to run in an environment. A policy is a YAML
//! text with three sorts of rules: provenance (the artifact was reported in a flow),
//! trail-compliance (it is compliant there) and attestations, each of which may depend on
//! conditions. [`evaluate`] answers for one artifact and the flows it was reported in, once for
//! each flow; the functions here combine the answers into the verdict on an artifact, a snapshot
//! and an environment.

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

pub use self::dump::*;
pub use self::evaluation::*;
pub use self::evidence::*;
use self::expression::Budget;
pub use self::expression::{Expression, ExpressionError, Scope, Truth};
pub use self::schema::{SCHEMA_ID, schema};
use super::compliance::State;
use super::document::{DocumentErrors, Examination, Fields};
use super::template::{self, Kind};
use crate::name::{AttestationName, ControlIdentifier};

/// Why a policy was refused. Displayed as `N validation errors for Policy` and the details.
pub type PolicyErrors = DocumentErrors;

const ANY_NAME: &str = "*";
const SCHEMA_VERSION: &str = "1";
/// A spelling of `pull_request` that published examples use.
const KIND_ALIASES: [(&str, &str); 1] = [("pull-request", "pull_request")];

/// Attestation rules of one policy.
const MAX_RULES: usize = 1_000;

/// Exceptions of one rule.
const MAX_EXCEPTIONS: usize = 100;

/// A condition, `${{ … }}` in YAML.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PolicyExpression")]
#[non_exhaustive]
pub struct Condition {
    /// The expression between the braces, trimmed.
    pub text: String,
    /// What it means.
    #[serde(skip)]
    pub expression: Arc<Expression>,
}

impl Condition {
    /// The condition that this expression is.
    fn parse(text: &str, budget: &mut Budget) -> Result<Self, ExpressionError> {
        let expression = Arc::new(Expression::parse_within(text, budget)?);
        Ok(Self { text: text.to_owned(), expression })
    }

    /// The field of a rule in one line.
    fn line(&self) -> String {
        let words = Vec::from_iter(self.text.split_whitespace());
        format!("if: ${{{{ {} }}}}", words.join(" "))
    }
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

    /// Whether parsing a policy of this text may take long, though the text is not: patterns are compiled, and with a
    /// backslash YAML can spell `matches` in other ways.
    pub(crate) fn is_slow_to_parse(yaml: &str) -> bool {
        yaml.contains("matches") || yaml.contains('\\')
    }

    /// Whether it is what was stored, rather than what stands in for a policy that cannot be read.
    pub const fn is_readable(&self) -> bool {
        self.unreadable.is_none()
    }

    /// Whether it asks for decisions about this control.
    pub fn asks_for(&self, control: &str) -> bool {
        self.attestations.iter().any(|rule| rule.for_control.as_deref() == Some(control))
    }

    /// The controls that it asks for decisions about, each once, in order.
    pub fn controls(&self) -> BTreeSet<&str> {
        self.attestations.iter().filter_map(|rule| rule.for_control.as_deref()).collect()
    }

    fn conditions(&self) -> impl Iterator<Item = &Condition> {
        let exceptions = self.provenance.exceptions.iter().chain(&self.trail_compliance.exceptions);
        let conditions = exceptions.map(|exception| &exception.condition);
        conditions.chain(self.attestations.iter().map(|rule| &rule.condition)).flatten()
    }

    /// Whether a condition looks at the artifact's name.
    pub(crate) fn looks_at_names(&self) -> bool {
        self.conditions().any(|condition| condition.expression.looks_at_name())
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn bytes(&self) -> usize {
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

    /// How many rules it has.
    pub(crate) const fn rules(&self) -> usize {
        2 + self.attestations.len()
    }

    /// How many rules, exceptions and parts of expressions an evaluation goes through.
    pub(crate) fn parts(&self) -> usize {
        let exceptions = self.provenance.exceptions.len() + self.trail_compliance.exceptions.len();
        let expressions = self.conditions().map(|condition| condition.expression.parts());
        self.rules() + exceptions + expressions.sum::<usize>()
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
    let mut budget = Budget::default();
    let provenance = parse_boolean_rule(examination, &fields, "provenance", &mut budget);
    let trail_compliance = parse_boolean_rule(examination, &fields, "trail-compliance", &mut budget);
    let rules = at_most(MAX_RULES, examination, &fields, "attestations");
    let mut attestations = Vec::new();
    for (path, rule) in rules {
        // Nothing is said of what comes after.
        if examination.is_full() {
            break;
        }
        attestations.extend(parse_attestation_rule(examination, &path, rule, &mut budget));
    }
    Some(Policy { provenance, trail_compliance, attestations, unreadable: None })
}

/// The items of an optional list, each with its path; none where there are more than `most`, which is refused.
fn at_most<'v>(
    most: usize,
    examination: &mut Examination,
    fields: &Fields<'v>,
    key: &str,
) -> Vec<(String, &'v Value)> {
    let items = examination.list(fields, key);
    if items.len() > most {
        let text = format!("List should have at most {most} items");
        examination.refuse(fields.path(key), &text, &items.len().into());
        return Vec::new();
    }
    items
}

fn parse_boolean_rule(
    examination: &mut Examination,
    artifacts: &Fields<'_>,
    key: &str,
    budget: &mut Budget,
) -> BooleanRule {
    let rule = artifacts
        .get(key)
        .and_then(|rule| examination.object(&artifacts.path(key), rule, &["required", "exceptions"]));
    let Some(fields) = rule else {
        return BooleanRule::default();
    };
    let required = examination.boolean(&fields, "required").unwrap_or(false);
    let exceptions = at_most(MAX_EXCEPTIONS, examination, &fields, "exceptions")
        .into_iter()
        .filter_map(|(path, exception)| {
            let fields = examination.object(&path, exception, &["if"])?;
            Some(ConditionalRule { condition: parse_condition(examination, &fields, budget) })
        })
        .collect();
    BooleanRule { required, exceptions }
}

fn parse_attestation_rule(
    examination: &mut Examination,
    path: &str,
    rule: &Value,
    budget: &mut Budget,
) -> Option<AttestationRule> {
    let keys = ["if", "name", "type", "must_be_compliant", "for_control"];
    let fields = examination.object(path, rule, &keys)?;
    let condition = parse_condition(examination, &fields, budget);
    let name = examination.text(&fields, "name").unwrap_or(ANY_NAME);
    // Nothing can be reported that has another.
    if name != ANY_NAME {
        examination.fits::<AttestationName>(&fields, "name", name);
    }
    let kind = template::parse_kind(examination, &fields, &KIND_ALIASES);
    let must_be_compliant = examination.boolean(&fields, "must_be_compliant").unwrap_or(true);
    let for_control = optional_text(examination, &fields, "for_control");
    if let Some(control) = for_control {
        examination.fits::<ControlIdentifier>(&fields, "for_control", control);
    }
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

fn parse_condition(
    examination: &mut Examination,
    fields: &Fields<'_>,
    budget: &mut Budget,
) -> Option<Condition> {
    let written = optional_text(examination, fields, "if")?;
    let inner = written
        .trim()
        .strip_prefix("${{")
        .and_then(|rest| rest.strip_suffix("}}"))
        .map(str::trim)
        .filter(|inner| !inner.is_empty());
    let Some(inner) = inner else {
        examination.refuse(fields.path("if"), "Input should be an expression in '${{ }}'", &written.into());
        return None;
    };
    let condition = Condition::parse(inner, budget);
    condition.map_err(|error| examination.refuse(fields.path("if"), &error.to_string(), &written.into())).ok()
}

/// Whether an artifact may run in an environment: it is on the allowlist, or every attached policy
/// is satisfied. Unknown without policies.
pub(crate) fn artifact_verdict(allow_listed: bool, satisfied: &[bool]) -> Option<bool> {
    if allow_listed {
        return Some(true);
    }
    (!satisfied.is_empty()).then(|| satisfied.iter().all(|satisfied| *satisfied))
}

/// The verdict on a running artifact of an environment that requires provenance, from what the policies say and
/// the states of the artifact in its flows. Without policies it must be compliant in each of them, as
/// the gate asks.
pub(crate) fn required_provenance_verdict(
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

/// Whether a snapshot is compliant: policies or required provenance judge what runs, and every running artifact is
/// compliant. An empty snapshot that is judged is.
pub(crate) fn snapshot_compliant(mut verdicts: impl Iterator<Item = Option<bool>>, is_judged: bool) -> bool {
    is_judged && verdicts.all(|verdict| verdict == Some(true))
}

/// The `state` of a physical environment: whether its latest snapshot is compliant. Unknown without
/// snapshots, and where nothing judges what runs.
pub(crate) fn environment_state(latest_compliant: Option<bool>, is_judged: bool) -> Option<bool> {
    latest_compliant.filter(|_| is_judged)
}

/// The states of the members of a logical environment, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MemberStates {
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

    pub(crate) fn add(&mut self, state: Option<bool>) {
        *self.count(state) += 1;
    }

    /// Takes out what was added.
    pub(crate) fn remove(&mut self, state: Option<bool>) {
        let count = self.count(state);
        *count = count.saturating_sub(1);
    }

    /// The `state` of the logical environment: false if a member is not compliant, true if all are, else unknown; so also
    /// without members.
    pub(crate) const fn state(&self) -> Option<bool> {
        match self {
            Self { violating: 1.., .. } => Some(false),
            Self { compliant: 1.., unknown: 0, .. } => Some(true),
            _ => None,
        }
    }
}

/// What a member's snapshot says of the own policies of a logical environment: these, and whether what runs complies with
/// them. Nothing where it was not evaluated by any.
pub(crate) type OwnPolicies<'p, I> = Option<(&'p [I], bool)>;

/// The members of a logical environment, counted: by their states, and by what their snapshots say of its own policies.
#[derive(Debug)]
pub(crate) struct Members<'p, I> {
    states: MemberStates,
    own: BTreeMap<Option<&'p [I]>, MemberStates>,
}

impl<I> Default for Members<'_, I> {
    fn default() -> Self {
        Self { states: MemberStates::default(), own: BTreeMap::new() }
    }
}

impl<'p, I: Ord> Members<'p, I> {
    pub(crate) fn add(&mut self, (state, own): (Option<bool>, OwnPolicies<'p, I>)) {
        self.states.add(state);
        self.own
            .entry(own.map(|(policies, _)| policies))
            .or_default()
            .add(own.map(|(_, compliant)| compliant));
    }

    /// Takes out what was added.
    pub(crate) fn remove(&mut self, (state, own): (Option<bool>, OwnPolicies<'p, I>)) {
        self.states.remove(state);
        let policies = own.map(|(policies, _)| policies);
        if let Some(states) = self.own.get_mut(&policies) {
            states.remove(own.map(|(_, compliant)| compliant));
            if *states == MemberStates::default() {
                self.own.remove(&policies);
            }
        }
    }

    /// The verdict where `policies` are those of the logical environment, in order; nothing where they cannot be read. False if
    /// a member is not compliant or something does not comply with these policies; true if all are and everything does; else
    /// unknown. A member that was not evaluated by the same policies is unknown, and so is everything without members.
    pub(crate) fn state(&self, policies: Option<&[I]>) -> Option<bool> {
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

/// False if one is, true if all are, else unknown.
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
