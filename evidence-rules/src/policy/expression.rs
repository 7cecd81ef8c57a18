//! The conditions of policies: `flow.tags.kind == "build" and not matches(artifact.name, "^datadog:")`.
//!
//! A condition compares texts and numbers, and joins comparisons with `and`, `or` and `not`. It may use the
//! artifact's name and fingerprint. It may also use the name and tags of the flow that the artifact was
//! reported in.
//!
//! Conditions use Kleene's three-valued logic. A comparison, `in` or `matches` is [`Truth::Unknown`] if an
//! operand is missing, or if a text that is not a number is compared with a number. `exists(flow)` is always
//! known. `exists` of a property of a flow is unknown without a flow. Callers choose the safe side: an
//! exception waives a rule only if it is true, and an `if` excludes an artifact only if it is false.

mod number;
mod parse;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use self::number::Decimal;
pub(super) use self::parse::Budget;
use crate::pattern::Pattern;

/// The error of an expression that was rejected, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    text: String,
    /// Position within the expression, counted from 1.
    character: usize,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at character {} of the expression)", self.text, self.character)
    }
}

impl std::error::Error for ExpressionError {}

/// One of the three values of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Truth {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The condition cannot be decided, because an operand is missing or is not a number.
    Unknown,
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

impl std::ops::Not for Truth {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
        }
    }
}

impl Truth {
    /// Returns whether any value is true; false only if all are false.
    pub(super) fn any(all: impl IntoIterator<Item = Self>) -> Self {
        let mut any = Self::False;
        for one in all {
            match one {
                Self::True => return Self::True,
                Self::False => {}
                Self::Unknown => any = Self::Unknown,
            }
        }
        any
    }

    /// Returns the value that all have in common, or unknown if they differ.
    pub(super) fn alike(all: impl IntoIterator<Item = Self>) -> Self {
        let mut all = all.into_iter();
        let first = all.next().unwrap_or(Self::Unknown);
        if all.all(|other| other == first) { first } else { Self::Unknown }
    }

    /// Returns whether all values are true; false if any is false.
    fn all(all: impl IntoIterator<Item = Self>) -> Self {
        !Self::any(all.into_iter().map(|one| !one))
    }
}

/// The reason why a condition is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The condition uses a flow, and the artifact was reported in none.
    NoFlow,
    /// The flow has no such tag.
    NoTag(String),
    /// The artifact has no name.
    NoName,
    /// The artifact has no fingerprint.
    NoFingerprint,
    /// This operand is compared with a number but is not a number.
    NotANumber(String),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFlow => f.write_str("the artifact was reported in no flow"),
            Self::NoTag(key) => write!(f, "the flow has no tag '{key}'"),
            Self::NoName => f.write_str("the artifact has no name"),
            Self::NoFingerprint => f.write_str("the artifact has no fingerprint"),
            Self::NotANumber(operand) => write!(f, "{operand} is not a number"),
        }
    }
}

/// The inputs of an expression.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The artifact's name, as the environment reports it.
    pub artifact_name: &'a str,
    /// Its SHA-256; `None` for an artifact without a digest.
    pub fingerprint: Option<&'a str>,
    /// The name and the tags of the flow it was reported in; `None` for an artifact without provenance.
    pub flow: Option<(&'a str, &'a BTreeMap<String, String>)>,
}

/// A parsed condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    root: Node,
    parts: usize,
    bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Constant(bool),
    Exists(Reference),
    Matches(Operand, Arc<Pattern>),
    Compare(Operand, Comparison, Operand),
    In(Operand, Vec<Operand>),
    Not(Box<Node>),
    /// All of two or more.
    All(Vec<Node>),
    /// Any of two or more.
    Any(Vec<Node>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operand {
    Text(String),
    /// A text that [`Decimal::read`] accepts.
    Number(String),
    Reference(Reference),
}

/// The inputs that an expression may refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reference {
    Flow,
    FlowName,
    FlowTag(String),
    ArtifactName,
    ArtifactFingerprint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The value of an operand.
#[derive(Clone, Copy)]
enum Value<'a> {
    Missing,
    Text(&'a str),
    Number(&'a str),
}

impl Expression {
    /// Parses an expression, without the braces around it.
    ///
    /// # Errors
    /// Returns the error and its position.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        Self::parse_within(text, &mut Budget::default())
    }

    /// Parses one of several expressions that share a budget.
    pub(super) fn parse_within(text: &str, budget: &mut Budget) -> Result<Self, ExpressionError> {
        parse::parse(text, budget)
    }

    /// Returns whether the condition holds for these inputs.
    pub fn evaluate(&self, scope: &Scope<'_>) -> Truth {
        self.root.evaluate(scope)
    }

    /// Returns why the condition is unknown: the first operand that makes it so. Returns `None` if it is
    /// known.
    pub(super) fn unknown_because(&self, scope: &Scope<'_>) -> Option<Unknown> {
        self.root.unknown_because(scope)
    }

    /// Returns whether the expression uses the artifact's name.
    pub(super) fn looks_at_name(&self) -> bool {
        self.root.looks_at_name()
    }

    /// Returns the number of parts, which bounds the time of an evaluation.
    pub(super) const fn parts(&self) -> usize {
        self.parts
    }

    /// Returns the approximate memory use in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Node {
    /// Evaluates the node. The recursion is bounded by the parser's depth limit.
    fn evaluate(&self, scope: &Scope<'_>) -> Truth {
        match self {
            Self::Constant(value) => (*value).into(),
            Self::Exists(reference) => reference.exists(scope),
            Self::Matches(operand, pattern) => match operand.value(scope) {
                Value::Missing => Truth::Unknown,
                Value::Text(text) | Value::Number(text) => pattern.is_in(text).into(),
            },
            Self::Compare(left, comparison, right) => {
                comparison.evaluate(left.value(scope), right.value(scope))
            }
            Self::In(operand, list) => is_in(operand.value(scope), list.iter().map(|item| item.value(scope))),
            Self::Not(node) => !node.evaluate(scope),
            Self::All(nodes) => Truth::all(nodes.iter().map(|node| node.evaluate(scope))),
            Self::Any(nodes) => Truth::any(nodes.iter().map(|node| node.evaluate(scope))),
        }
    }

    fn looks_at_name(&self) -> bool {
        let is_name = |operand: &Operand| matches!(operand, Operand::Reference(Reference::ArtifactName));
        match self {
            Self::Constant(_) => false,
            Self::Exists(reference) => *reference == Reference::ArtifactName,
            Self::Matches(operand, _) => is_name(operand),
            Self::Compare(left, _, right) => is_name(left) || is_name(right),
            Self::In(operand, list) => is_name(operand) || list.iter().any(is_name),
            Self::Not(node) => node.looks_at_name(),
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().any(Self::looks_at_name),
        }
    }

    fn unknown_because(&self, scope: &Scope<'_>) -> Option<Unknown> {
        if self.evaluate(scope) != Truth::Unknown {
            return None;
        }
        match self {
            Self::Constant(_) => None,
            Self::Exists(reference) => reference.missing(scope),
            Self::Matches(operand, _) => operand.missing(scope),
            Self::Compare(left, _, right) => why_incomparable(left, right, scope),
            Self::In(operand, list) => {
                let why = list.iter().find_map(|item| why_incomparable(operand, item, scope));
                operand.missing(scope).or(why)
            }
            Self::Not(node) => node.unknown_because(scope),
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().find_map(|node| node.unknown_because(scope)),
        }
    }
}

/// Returns whether a list contains the value. The result for a missing value is unknown, even if the list is
/// empty.
fn is_in<'v>(value: Value<'v>, list: impl Iterator<Item = Value<'v>>) -> Truth {
    match value {
        Value::Missing => Truth::Unknown,
        value => Truth::any(list.map(|item| Comparison::Equal.evaluate(value, item))),
    }
}

fn why_incomparable(left: &Operand, right: &Operand, scope: &Scope<'_>) -> Option<Unknown> {
    let missing = || [left, right].into_iter().find_map(|operand| operand.missing(scope));
    if left.value(scope).compare(right.value(scope)).is_some() {
        return None;
    }
    let is_no_number = |operand: &&&Operand| operand.value(scope).number().is_none();
    let text = || [left, right].iter().find(is_no_number).map(|operand| operand.described(scope));
    missing().or_else(|| text().map(Unknown::NotANumber))
}

impl Reference {
    fn exists(&self, scope: &Scope<'_>) -> Truth {
        match self {
            Self::Flow => scope.flow.is_some().into(),
            Self::FlowName | Self::FlowTag(_) if scope.flow.is_none() => Truth::Unknown,
            other => (!matches!(other.value(scope), Value::Missing)).into(),
        }
    }

    fn value<'v>(&self, scope: &Scope<'v>) -> Value<'v> {
        let text = match self {
            // A flow has no value of its own; the parser accepts it only in `exists`.
            Self::Flow => None,
            Self::FlowName => scope.flow.map(|(name, _)| name),
            Self::FlowTag(key) => scope.flow.and_then(|(_, tags)| tags.get(key)).map(String::as_str),
            Self::ArtifactName => Some(scope.artifact_name).filter(|name| !name.is_empty()),
            Self::ArtifactFingerprint => scope.fingerprint,
        };
        text.map_or(Value::Missing, Value::Text)
    }

    /// Returns why it has no value for these inputs.
    fn missing(&self, scope: &Scope<'_>) -> Option<Unknown> {
        if !matches!(self.value(scope), Value::Missing) {
            return None;
        }
        Some(match self {
            Self::FlowTag(key) if scope.flow.is_some() => Unknown::NoTag(key.clone()),
            Self::Flow | Self::FlowName | Self::FlowTag(_) => Unknown::NoFlow,
            Self::ArtifactName => Unknown::NoName,
            Self::ArtifactFingerprint => Unknown::NoFingerprint,
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flow => f.write_str("flow"),
            Self::FlowName => f.write_str("flow.name"),
            Self::FlowTag(key) => write!(f, "flow.tags.{key}"),
            Self::ArtifactName => f.write_str("artifact.name"),
            Self::ArtifactFingerprint => f.write_str("artifact.fingerprint"),
        }
    }
}

/// Maximum number of characters of a text that a reason quotes.
const QUOTED: usize = 40;

impl Operand {
    fn value<'v>(&'v self, scope: &Scope<'v>) -> Value<'v> {
        match self {
            Self::Text(text) => Value::Text(text),
            Self::Number(text) => Value::Number(text),
            Self::Reference(reference) => reference.value(scope),
        }
    }

    /// Returns why it has no value for these inputs.
    fn missing(&self, scope: &Scope<'_>) -> Option<Unknown> {
        match self {
            Self::Text(_) | Self::Number(_) => None,
            Self::Reference(reference) => reference.missing(scope),
        }
    }

    /// Returns the operand with its value, as a reason names it.
    fn described(&self, scope: &Scope<'_>) -> String {
        let text = match self.value(scope) {
            Value::Missing => "",
            Value::Text(text) | Value::Number(text) => text,
        };
        let mut quoted: String = text.chars().take(QUOTED).collect();
        if quoted.len() < text.len() {
            quoted.push('…');
        }
        match self {
            Self::Text(_) | Self::Number(_) => format!("'{quoted}'"),
            Self::Reference(reference) => format!("{reference} ('{quoted}')"),
        }
    }

    /// Returns its value if the value does not depend on the inputs.
    fn constant(&self) -> Option<Value<'_>> {
        match self {
            Self::Text(text) => Some(Value::Text(text)),
            Self::Number(text) => Some(Value::Number(text)),
            Self::Reference(_) => None,
        }
    }
}

impl<'v> Value<'v> {
    fn number(self) -> Option<Decimal<'v>> {
        match self {
            Self::Missing => None,
            Self::Text(text) | Self::Number(text) => Decimal::read(text),
        }
    }

    /// Compares two values. A text is compared with a number by its numeric value; texts are compared by
    /// their bytes. Returns `None` if a value is missing, or is not a number where one is required.
    fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            _ => Some(self.number()?.cmp(&other.number()?)),
        }
    }
}

impl Comparison {
    fn evaluate(self, one: Value<'_>, other: Value<'_>) -> Truth {
        let fits: fn(Ordering) -> bool = match self {
            Self::Equal => Ordering::is_eq,
            Self::Unequal => Ordering::is_ne,
            Self::Less => Ordering::is_lt,
            Self::LessOrEqual => Ordering::is_le,
            Self::Greater => Ordering::is_gt,
            Self::GreaterOrEqual => Ordering::is_ge,
        };
        one.compare(other).map_or(Truth::Unknown, |order| fits(order).into())
    }
}

#[cfg(test)]
mod tests;
