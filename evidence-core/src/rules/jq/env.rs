//! The names that a part of a filter sees. An environment lives on the stack: a part hands its results on while it runs, so
//! all that it refers to is still there.

use super::tree::{Function, Node};
use super::value::Value;

/// What a name stands for.
#[derive(Debug)]
pub(super) enum Bound<'e> {
    Value(Value),
    /// A function, which sees its own name and what is before it.
    Function(&'e Function),
    /// An argument of a function, which sees what its caller sees.
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

/// The name at this distance.
pub(super) fn find<'e>(env: Env<'e>, distance: usize) -> Env<'e> {
    (0..distance).fold(env, |env, _| env.and_then(|link| link.before))
}
