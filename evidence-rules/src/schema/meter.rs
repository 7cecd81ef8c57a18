//! Counts the steps of a validation in advance, by the same traversal without any check. It counts every
//! branch, including those that the validation would skip.

use serde_json::Value;

use super::BYTES_PER_STEP;
use super::graph::Node;

/// The remaining steps.
pub(super) struct Meter<'g> {
    nodes: &'g [Node],
    left: usize,
    most_to_choose: usize,
}

/// The steps of a validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) all: usize,
    /// The steps of the most expensive choice, because the errors of all its schemas are collected.
    pub(super) to_choose: usize,
}

/// Error: there are no steps left.
pub(super) struct Exceeded;

type Counted<T = ()> = Result<T, Exceeded>;

impl<'g> Meter<'g> {
    /// Returns the steps of a validation, or `None` if it takes more than `most`.
    pub(super) fn count(nodes: &'g [Node], data: &Value, most: usize) -> Option<Steps> {
        let mut meter = Self { nodes, left: most, most_to_choose: 0 };
        meter.checked(0, data).ok()?;
        Some(Steps { all: most - meter.left, to_choose: meter.most_to_choose })
    }

    fn take(&mut self, steps: usize) -> Counted {
        self.left = self.left.checked_sub(steps).ok_or(Exceeded)?;
        Ok(())
    }

    /// Counts the validation of a value with a schema.
    fn checked(&mut self, at: usize, value: &Value) -> Counted {
        let Some(node) = self.nodes.get(at) else { return Ok(()) };
        self.take(node.parts)?;
        let before = self.left;
        for next in &node.applied {
            self.checked(*next, value)?;
        }
        if node.chooses {
            self.most_to_choose = self.most_to_choose.max(before - self.left);
        }
        for next in node.references.iter().chain(&node.branches) {
            self.checked(*next, value)?;
        }
        match value {
            Value::String(text) => {
                self.take(text.len() / BYTES_PER_STEP)?;
                self.take(text.len().saturating_mul(node.pattern))?;
            }
            Value::Array(items) => {
                self.take(items.len())?;
                if node.unique {
                    self.compared(value)?;
                }
                for (position, item) in items.iter().enumerate() {
                    let own = node.prefix.get(position);
                    for next in own.into_iter().chain(&node.items) {
                        self.checked(*next, item)?;
                    }
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.take(1 + name.len() / BYTES_PER_STEP)?;
                    self.take(name.len().saturating_mul(node.name_patterns))?;
                    if let Some(names) = node.names {
                        self.checked(names, &Value::String(name.clone()))?;
                    }
                    let own = node.properties.get(name).or(node.additional_properties.as_ref());
                    for next in own.into_iter().chain(&node.pattern_properties) {
                        self.checked(*next, value)?;
                    }
                }
            }
            _ => {}
        }
        if node.unevaluated_properties.is_some() || node.unevaluated_items.is_some() {
            self.marked(at, value)?;
            self.unevaluated(node, value)?;
        }
        Ok(())
    }

    /// Counts determining which properties and items a schema evaluates. Schemas such as those of `allOf` are
    /// checked again.
    fn marked(&mut self, at: usize, value: &Value) -> Counted {
        let Some(node) = self.nodes.get(at) else { return Ok(()) };
        let children = match value {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            _ => 0,
        };
        self.take(node.parts + children)?;
        if let Value::Object(fields) = value {
            for name in fields.keys() {
                self.take(name.len().saturating_mul(node.name_patterns))?;
            }
        }
        if let Value::Array(items) = value {
            // `contains` evaluates the items that match.
            for item in items {
                for next in &node.items {
                    self.checked(*next, item)?;
                }
            }
        }
        for next in node.references.iter().chain(&node.branches) {
            self.marked(*next, value)?;
        }
        for next in &node.applied {
            self.checked(*next, value)?;
            self.marked(*next, value)?;
        }
        self.unevaluated(node, value)
    }

    fn unevaluated(&mut self, node: &Node, value: &Value) -> Counted {
        match (value, node.unevaluated_items, node.unevaluated_properties) {
            (Value::Array(items), Some(at), _) => items.iter().try_for_each(|item| self.checked(at, item)),
            (Value::Object(fields), _, Some(at)) => {
                fields.values().try_for_each(|value| self.checked(at, value))
            }
            _ => Ok(()),
        }
    }

    /// Counts comparing all values within a value.
    fn compared(&mut self, value: &Value) -> Counted {
        self.take(1)?;
        match value {
            Value::String(text) => self.take(text.len() / BYTES_PER_STEP),
            Value::Array(items) => items.iter().try_for_each(|item| self.compared(item)),
            Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
                self.take(name.len() / BYTES_PER_STEP)?;
                self.compared(value)
            }),
            _ => Ok(()),
        }
    }
}
