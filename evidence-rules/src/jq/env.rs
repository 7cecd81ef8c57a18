//! The names that are visible to a part of a filter. An environment lives on the stack. A part emits its
//! results while it runs, so everything it refers to is still alive.

use super::tree::{Function, Node};
use super::value::Value;

/// The meaning of a name.
#[derive(Debug)]
pub(super) enum Bound<'e> {
    Value(Value),
    /// A function, which sees its own name and the names before it.
    Function(&'e Function),
    /// An argument of a function, which sees the names that its caller sees.
    Closure(&'e Node, Env<'e>),
    /// The number of a label.
    Label(usize),
}

/// One name, and those before it.
#[derive(Debug)]
pub(super) struct Link<'e> {
    pub(super) bound: Bound<'e>,
    pub(super) before: Env<'e>,
}

/// Names, the newest first.
pub(super) type Env<'e> = Option<&'e Link<'e>>;

/// Returns the name at this distance.
pub(super) fn find<'e>(env: Env<'e>, distance: usize) -> Env<'e> {
    (0..distance).fold(env, |env, _| env.and_then(|link| link.before))
}
