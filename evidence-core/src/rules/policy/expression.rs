//! The conditions of policies: `flow.tags.kind == "build" and not matches(artifact.name, "^datadog:")`. Comparisons of
//! texts and numbers, joined by `and`, `or` and `not`; what a policy may look at is the artifact's name and fingerprint, and
//! the name and the tags of the flow it was reported in. Every expression ends up true or false, which its types show
//! before it is stored, but for one thing that a tag alone decides: whether a text that is ordered against a number is one.
//!
//! What is missing (a tag that the flow has not, the flow of an artifact without provenance) is equal to nothing, not even
//! to what else is missing, neither less nor greater than anything, and in no list.

mod number;
mod parse;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use self::number::Decimal;
pub(super) use self::parse::Budget;
use crate::rules::pattern::Pattern;

/// Why an expression was refused, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    text: String,
    /// From 1, within the expression.
    character: usize,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at character {} of the expression)", self.text, self.character)
    }
}

impl std::error::Error for ExpressionError {}

/// A tag was to be less or greater than a number, and is none, so that the expression comes to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotANumber;

impl fmt::Display for NotANumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("A condition orders a text that is no number against a number")
    }
}

impl std::error::Error for NotANumber {}

/// What an expression looks at.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The artifact's name, as the environment reports it.
    pub artifact_name: &'a str,
    /// Its SHA-256; nothing for what has no digest.
    pub fingerprint: Option<&'a str>,
    /// The name and the tags of the flow it was reported in; nothing for an artifact without provenance.
    pub flow: Option<(&'a str, &'a BTreeMap<String, String>)>,
}

/// A condition that was parsed: true or false of everything, but for [`NotANumber`].
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
    /// What [`Decimal::read`] reads.
    Number(String),
    Reference(Reference),
}

/// What an expression may look at.
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

/// What an operand comes to.
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
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        Self::parse_within(text, &mut Budget::default())
    }

    /// The same of one of the expressions that share a budget.
    pub(super) fn parse_within(text: &str, budget: &mut Budget) -> Result<Self, ExpressionError> {
        parse::parse(text, budget)
    }

    /// Whether it is true here.
    ///
    /// # Errors
    /// [`NotANumber`] where that cannot be told.
    pub fn holds(&self, scope: &Scope<'_>) -> Result<bool, NotANumber> {
        self.root.holds(scope)
    }

    /// How many parts it has, each of which takes a moment to evaluate.
    pub(super) const fn parts(&self) -> usize {
        self.parts
    }

    /// About how many bytes of memory it takes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Node {
    /// It nests no deeper than the parser lets it.
    fn holds(&self, scope: &Scope<'_>) -> Result<bool, NotANumber> {
        match self {
            Self::Constant(value) => Ok(*value),
            Self::Exists(reference) => Ok(reference.exists(scope)),
            Self::Matches(operand, pattern) => Ok(match operand.value(scope) {
                Value::Missing => false,
                Value::Text(text) | Value::Number(text) => pattern.is_in(text),
            }),
            Self::Compare(left, comparison, right) => comparison.holds(left.value(scope), right.value(scope)),
            Self::In(operand, list) => Ok(is_in(operand, list, scope)),
            Self::Not(node) => node.holds(scope).map(|holds| !holds),
            Self::All(nodes) => {
                for node in nodes {
                    if !node.holds(scope)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(nodes) => {
                for node in nodes {
                    if node.holds(scope)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

fn is_in(operand: &Operand, list: &[Operand], scope: &Scope<'_>) -> bool {
    let value = operand.value(scope);
    list.iter().any(|item| value.equals(item.value(scope)))
}

impl Reference {
    fn exists(&self, scope: &Scope<'_>) -> bool {
        match self {
            Self::Flow => scope.flow.is_some(),
            other => !matches!(other.value(scope), Value::Missing),
        }
    }

    fn value<'v>(&self, scope: &Scope<'v>) -> Value<'v> {
        let text = match self {
            // It has no value of its own; the parser takes it where it is asked whether it exists.
            Self::Flow => None,
            Self::FlowName => scope.flow.map(|(name, _)| name),
            Self::FlowTag(key) => scope.flow.and_then(|(_, tags)| tags.get(key)).map(String::as_str),
            Self::ArtifactName => Some(scope.artifact_name),
            Self::ArtifactFingerprint => scope.fingerprint,
        };
        text.map_or(Value::Missing, Value::Text)
    }
}

impl Operand {
    fn value<'v>(&'v self, scope: &Scope<'v>) -> Value<'v> {
        match self {
            Self::Text(text) => Value::Text(text),
            Self::Number(text) => Value::Number(text),
            Self::Reference(reference) => reference.value(scope),
        }
    }

    /// What it is whatever it is evaluated of.
    fn constant(&self) -> Option<Value<'_>> {
        match self {
            Self::Text(text) => Some(Value::Text(text)),
            Self::Number(text) => Some(Value::Number(text)),
            Self::Reference(_) => None,
        }
    }
}

impl Value<'_> {
    fn equals(self, other: Self) -> bool {
        // What is no number is equal to none.
        self.compare(other).is_ok_and(|order| order == Some(Ordering::Equal))
    }

    /// A text is compared with a number as the number that it is; texts are compared by their bytes.
    fn compare(self, other: Self) -> Result<Option<Ordering>, NotANumber> {
        let number = |text| Decimal::read(text).ok_or(NotANumber);
        Ok(match (self, other) {
            (Self::Missing, _) | (_, Self::Missing) => None,
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            (Self::Text(one) | Self::Number(one), Self::Text(other) | Self::Number(other)) => {
                Some(number(one)?.cmp(&number(other)?))
            }
        })
    }
}

impl Comparison {
    fn holds(self, one: Value<'_>, other: Value<'_>) -> Result<bool, NotANumber> {
        let ordered = |fits: fn(Ordering) -> bool| Ok(one.compare(other)?.is_some_and(fits));
        match self {
            Self::Equal => Ok(one.equals(other)),
            Self::Unequal => Ok(!one.equals(other)),
            Self::Less => ordered(Ordering::is_lt),
            Self::LessOrEqual => ordered(Ordering::is_le),
            Self::Greater => ordered(Ordering::is_gt),
            Self::GreaterOrEqual => ordered(Ordering::is_ge),
        }
    }
}

#[cfg(test)]
mod tests;
