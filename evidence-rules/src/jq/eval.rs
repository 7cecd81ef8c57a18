//! Runs a lowered filter. Each part emits its results one by one while it runs. Every operation charges the
//! budget first, and the nesting of calls is limited.

use std::sync::Arc;

use super::budget::{Budget, Limit};
use super::env::{Bound, Env, Link, find};
use super::format::Format;
use super::matching::Patterns;
use super::native;
use super::tree::{Binding, Comparison, Fold, Function, Node, Part, Step};
use super::value::{Fields, ITEM, STRING, Value};
use evidence_values::time::Timestamp;

/// Maximum nesting depth of calls; one call of a function of the filter uses about ten. The stack of
/// [`deep`](crate::deep) has room for several times as many, even in unoptimised builds.
pub(super) const MAX_CALLS: usize = 10_000;

/// The reason why a run stops.
#[derive(Debug, Clone)]
pub(super) enum Stop {
    /// An error of the filter, which it may catch.
    Error(Value),
    /// An exceeded limit, which it may not catch.
    Limit(Limit),
    /// The part that marked the run with this number needs no more results.
    Cut(usize),
}

impl From<Limit> for Stop {
    fn from(limit: Limit) -> Self {
        Self::Limit(limit)
    }
}

pub(super) type Run<T = ()> = Result<T, Stop>;

/// A continuation that receives each result.
pub(super) type Emit<'e> = &'e mut dyn FnMut(&mut Machine<'_>, Value) -> Run;

/// The state of a run of a filter.
#[derive(Debug)]
pub(super) struct Machine<'b> {
    pub(super) budget: &'b mut Budget,
    /// The library functions that the filter calls.
    library: &'b [Function],
    /// The time of the record.
    pub(super) now: Timestamp,
    /// The patterns that were compiled in this run.
    pub(super) patterns: Patterns,
    cuts: usize,
    depth: usize,
}

/// Returns an error with this text.
pub(super) fn error<T>(text: impl AsRef<str>) -> Run<T> {
    Err(Stop::Error(Value::Str(text.as_ref().into())))
}

impl<'b> Machine<'b> {
    pub(super) fn new(library: &'b [Function], now: Timestamp, budget: &'b mut Budget) -> Self {
        Self { budget, library, now, patterns: Patterns::default(), cuts: 0, depth: 0 }
    }

    pub(super) const fn library(&self) -> &'b [Function] {
        self.library
    }

    pub(super) fn step(&mut self) -> Run {
        Ok(self.budget.steps(1)?)
    }

    /// Adds a value to a list that is kept in memory.
    pub(super) fn keep(&mut self, values: &mut Vec<Value>, value: Value) -> Run {
        self.budget.steps(1)?;
        self.budget.allocate(ITEM)?;
        values.push(value);
        Ok(())
    }

    pub(super) fn list(&mut self, items: Vec<Value>) -> Run<Value> {
        Ok(Value::array(items, self.budget)?)
    }

    pub(super) fn object(&mut self, fields: Fields) -> Run<Value> {
        Ok(Value::object(fields, self.budget)?)
    }

    pub(super) fn string(&mut self, text: &str) -> Run<Value> {
        Ok(Value::string(text, self.budget)?)
    }

    /// Runs a closure one level deeper.
    pub(super) fn nested<T>(&mut self, run: impl FnOnce(&mut Self) -> Run<T>) -> Run<T> {
        self.step()?;
        if self.depth == MAX_CALLS {
            return Err(Limit::Depth.into());
        }
        self.depth += 1;
        let ended = run(self);
        self.depth -= 1;
        ended
    }

    /// Runs a part with an input.
    pub(super) fn run(&mut self, node: &Node, env: Env<'_>, input: Value, emit: Emit<'_>) -> Run {
        self.nested(|this| this.node(node, env, input, emit))
    }

    fn node(&mut self, node: &Node, env: Env<'_>, input: Value, emit: Emit<'_>) -> Run {
        match node {
            Node::Identity => emit(self, input),
            Node::Descend => self.descend(input, emit),
            Node::Constant(value) => emit(self, value.clone()),
            Node::Text(format, parts) => self.text(*format, parts, env, &input, "", emit),
            Node::Format(format) => self.formatted(*format, &input, emit),
            Node::List(items) => self.collected(items, env, input, emit),
            Node::Object(entries) => self.entries(entries, env, &input, &Fields::new(), emit),
            Node::Negate(of) => self.negate(of, env, input, emit),
            Node::Pipe(first, then) => {
                self.run(first, env, input, &mut |this, value| this.run(then, env, value, emit))
            }
            Node::Comma(first, then) => {
                self.run(first, env, input.clone(), emit)?;
                self.run(then, env, input, emit)
            }
            Node::Alternative(first, otherwise) => self.alternative(first, otherwise, env, input, emit),
            Node::Or(left, right) => self.logic(left, right, true, env, &input, emit),
            Node::And(left, right) => self.logic(left, right, false, env, &input, emit),
            Node::Math(left, op, right) => self.pairs(left, right, env, &input, &mut |this, left, right| {
                let value = native::math(this, *op, &left, &right)?;
                emit(this, value)
            }),
            Node::Compare(left, op, right) => {
                self.pairs(left, right, env, &input, &mut |this, left, right| {
                    let holds = compared(this, *op, &left, &right)?;
                    emit(this, Value::Bool(holds))
                })
            }
            Node::Assign(paths, how, value) => self.assign(paths, *how, value, env, &input, emit),
            Node::Reduce(fold) => self.reduce(fold, env, &input, emit),
            Node::Foreach(fold, extract) => self.foreach(fold, extract, env, &input, emit),
            Node::Try(tried, caught) => self.attempt(tried, caught.as_deref(), env, input, emit),
            Node::If(cases, otherwise) => self.branch(cases, otherwise, env, &input, emit),
            Node::Variable(distance) => match find(env, *distance) {
                Some(Link { bound: Bound::Value(value), .. }) => emit(self, value.clone()),
                _ => lost(),
            },
            Node::Bind(of, binding, then) => self.run(of, env, input.clone(), &mut |this, value| {
                this.bind(&[(binding, value)], env, &input, &mut |this, env| {
                    this.run(then, env, input.clone(), emit)
                })
            }),
            Node::Path(of, steps) => self
                .run(of, env, input.clone(), &mut |this, value| this.path(value, steps, env, &input, emit)),
            Node::Call(native, arguments) => {
                self.arguments(arguments, env, &input, &mut Vec::new(), &mut |this, values| {
                    let value = native::call(this, *native, &input, values)?;
                    emit(this, value)
                })
            }
            Node::Control(control, arguments) => self.control(*control, arguments, env, input, emit),
            Node::Match(matching, source, replacement) => {
                self.matched(*matching, source, replacement.as_deref(), env, &input, emit)
            }
            Node::Define(functions, rest) => {
                self.define(functions, env, &mut |this, env| this.run(rest, env, input.clone(), emit))
            }
            Node::Apply(distance, arguments) => {
                self.apply(*distance, arguments, env, &mut |this, body, env| {
                    this.run(body, env, input.clone(), emit)
                })
            }
            Node::Library(position, arguments) => {
                let Some(function) = self.library.get(*position) else { return lost() };
                let itself = Link { bound: Bound::Function(function), before: None };
                self.call(function, Some(&itself), arguments, env, &mut |this, body, env| {
                    this.run(body, env, input.clone(), emit)
                })
            }
            Node::Label(body) => self.cut(|this, mark| {
                this.run(body, Some(&Link { bound: Bound::Label(mark), before: env }), input, emit)
            }),
            Node::Break(distance) => match find(env, *distance) {
                Some(Link { bound: Bound::Label(mark), .. }) => Err(Stop::Cut(*mark)),
                _ => lost(),
            },
        }
    }

    /// Continues with an environment that has these functions.
    pub(super) fn define(
        &mut self,
        functions: &[Function],
        env: Env<'_>,
        then: &mut dyn FnMut(&mut Machine<'_>, Env<'_>) -> Run,
    ) -> Run {
        let Some((function, rest)) = functions.split_first() else { return then(self, env) };
        self.nested(|this| {
            this.define(rest, Some(&Link { bound: Bound::Function(function), before: env }), then)
        })
    }

    /// Continues with the body of a name, and the environment of that body.
    pub(super) fn apply(&mut self, distance: usize, arguments: &[Node], env: Env<'_>, then: Body<'_>) -> Run {
        self.budget.steps(distance / 8)?;
        match find(env, distance) {
            Some(Link { bound: Bound::Closure(node, env), .. }) => then(self, node, *env),
            Some(link @ Link { bound: Bound::Function(function), .. }) => {
                self.call(function, Some(link), arguments, env, then)
            }
            _ => lost(),
        }
    }

    /// Continues with the body of a function, which sees its arguments and then `scope`.
    pub(super) fn call(
        &mut self,
        function: &Function,
        scope: Env<'_>,
        arguments: &[Node],
        env: Env<'_>,
        then: Body<'_>,
    ) -> Run {
        let Some((argument, rest)) = arguments.split_first() else {
            return then(self, &function.body, scope);
        };
        let mut bound = Bound::Closure(argument, env);
        if let Node::Apply(distance, own) = argument
            && own.is_empty()
            && let Some(Link { bound: Bound::Closure(node, env), .. }) = find(env, *distance)
        {
            // If an argument is passed on unchanged, its own closure is bound, which keeps chains short.
            bound = Bound::Closure(node, *env);
        }
        self.nested(|this| this.call(function, Some(&Link { bound, before: scope }), rest, env, then))
    }

    /// Collects the results of a part, including those before an error.
    pub(super) fn kept(&mut self, node: &Node, env: Env<'_>, input: Value) -> (Vec<Value>, Run) {
        let mut values = Vec::new();
        let ended = self.run(node, env, input, &mut |this, value| this.keep(&mut values, value));
        (values, ended)
    }

    /// Returns all results of a part, or the error in which it ends.
    pub(super) fn all(&mut self, node: &Node, env: Env<'_>, input: Value) -> Run<Vec<Value>> {
        let (values, ended) = self.kept(node, env, input);
        ended.map(|()| values)
    }

    /// Runs `body`, which may end early with [`Stop::Cut`] and the number it receives.
    pub(super) fn cut(&mut self, body: impl FnOnce(&mut Self, usize) -> Run) -> Run {
        self.cuts += 1;
        let mark = self.cuts;
        match body(self, mark) {
            Err(Stop::Cut(cut)) if cut == mark => Ok(()),
            other => other,
        }
    }

    /// Runs `body`, which emits its results to a continuation that may stop. Returns how the continuation
    /// stopped, if it did; otherwise the inner result is how `body` itself ended.
    pub(super) fn guarded<V>(
        &mut self,
        emit: &mut dyn FnMut(&mut Machine<'_>, V) -> Run,
        body: impl FnOnce(&mut Self, &mut dyn FnMut(&mut Machine<'_>, V) -> Run) -> Run,
    ) -> Run<Run> {
        let mut beyond = None;
        let mut ended = Ok(());
        self.cut(|this, mark| {
            ended = body(this, &mut |this, value| {
                emit(this, value).map_err(|stop| {
                    beyond = Some(stop);
                    Stop::Cut(mark)
                })
            });
            Ok(())
        })?;
        match beyond {
            Some(stop) => Err(stop),
            None => Ok(ended),
        }
    }

    fn descend(&mut self, input: Value, emit: Emit<'_>) -> Run {
        let mut left = Vec::new();
        self.keep(&mut left, input)?;
        while let Some(value) = left.pop() {
            match &value {
                Value::Array(array) => {
                    for item in array.items.iter().rev() {
                        self.keep(&mut left, item.clone())?;
                    }
                }
                Value::Object(object) => {
                    for item in object.fields.values().rev() {
                        self.keep(&mut left, item.clone())?;
                    }
                }
                _ => {}
            }
            emit(self, value)?;
        }
        Ok(())
    }

    /// Builds a string from its last part to its first; `tail` is the text that follows.
    fn text(
        &mut self,
        format: Format,
        parts: &[Part],
        env: Env<'_>,
        input: &Value,
        tail: &str,
        emit: Emit<'_>,
    ) -> Run {
        self.nested(|this| match parts.split_last() {
            None => {
                let text = this.string(tail)?;
                emit(this, text)
            }
            Some((Part::Text(text), parts)) => {
                this.budget.bytes(text.len() + tail.len())?;
                this.text(format, parts, env, input, &format!("{text}{tail}"), emit)
            }
            Some((Part::Filter(node), parts)) => this.run(node, env, input.clone(), &mut |this, value| {
                let text = format.of(this, &value)?;
                this.budget.bytes(text.len() + tail.len())?;
                this.text(format, parts, env, input, &format!("{text}{tail}"), emit)
            }),
        })
    }

    fn formatted(&mut self, format: Format, input: &Value, emit: Emit<'_>) -> Run {
        let text = format.of(self, input)?;
        let text = self.string(&text)?;
        emit(self, text)
    }

    fn collected(&mut self, items: &Node, env: Env<'_>, input: Value, emit: Emit<'_>) -> Run {
        let items = self.all(items, env, input)?;
        let list = self.list(items)?;
        emit(self, list)
    }

    fn entries(
        &mut self,
        entries: &[(Node, Node)],
        env: Env<'_>,
        input: &Value,
        before: &Fields,
        emit: Emit<'_>,
    ) -> Run {
        let Some(((key, value), rest)) = entries.split_first() else {
            let object = self.object(before.clone())?;
            return emit(self, object);
        };
        self.run(key, env, input.clone(), &mut |this, key| {
            let Value::Str(name) = key else {
                return error(format!("Object keys must be strings, not {} ({})", key.kind(), key.shown()));
            };
            this.run(value, env, input.clone(), &mut |this, value| {
                this.budget.steps(1 + before.len())?;
                this.budget.read(name.len())?;
                this.budget.allocate((1 + before.len()).saturating_mul(2 * ITEM))?;
                let mut fields = before.clone();
                fields.insert(Arc::clone(&name), value);
                this.entries(rest, env, input, &fields, emit)
            })
        })
    }

    fn negate(&mut self, of: &Node, env: Env<'_>, input: Value, emit: Emit<'_>) -> Run {
        self.run(of, env, input, &mut |this, value| {
            let negated = match value {
                Value::Int(number) => number
                    .checked_neg()
                    .map(Value::Int)
                    .or_else(|| Value::Int(number).as_float().and_then(|f| Value::number(-f))),
                Value::Float(number) => Value::number(-number),
                _ => None,
            };
            match negated {
                Some(negated) => emit(this, negated),
                None => error(format!("{} ({}) cannot be negated", value.kind(), value.shown())),
            }
        })
    }

    fn alternative(
        &mut self,
        first: &Node,
        otherwise: &Node,
        env: Env<'_>,
        input: Value,
        emit: Emit<'_>,
    ) -> Run {
        let mut found = false;
        let ended = self.guarded(emit, |this, emit| {
            this.run(first, env, input.clone(), &mut |this, value| {
                if !value.is_truthy() {
                    return Ok(());
                }
                found = true;
                emit(this, value)
            })
        })?;
        match ended {
            Ok(()) | Err(Stop::Error(_)) if found => Ok(()),
            Ok(()) | Err(Stop::Error(_)) => self.run(otherwise, env, input, emit),
            stop => stop,
        }
    }

    /// Evaluates `or` if `decides` is true, and `and` otherwise. If the left side decides the result, the
    /// right side is not evaluated.
    fn logic(
        &mut self,
        left: &Node,
        right: &Node,
        decides: bool,
        env: Env<'_>,
        input: &Value,
        emit: Emit<'_>,
    ) -> Run {
        self.run(left, env, input.clone(), &mut |this, left| {
            if left.is_truthy() == decides {
                return emit(this, Value::Bool(decides));
            }
            this.run(right, env, input.clone(), &mut |this, right| emit(this, Value::Bool(right.is_truthy())))
        })
    }

    /// Emits the results of two parts in all combinations, in the order of jq: the left varies fastest.
    fn pairs(
        &mut self,
        left: &Node,
        right: &Node,
        env: Env<'_>,
        input: &Value,
        then: &mut dyn FnMut(&mut Machine<'_>, Value, Value) -> Run,
    ) -> Run {
        self.run(right, env, input.clone(), &mut |this, right| {
            this.run(left, env, input.clone(), &mut |this, left| {
                this.step()?;
                then(this, left, right.clone())
            })
        })
    }

    /// Emits the results of the arguments in all combinations; the last varies fastest.
    pub(super) fn arguments(
        &mut self,
        arguments: &[Node],
        env: Env<'_>,
        input: &Value,
        values: &mut Vec<Value>,
        then: &mut dyn FnMut(&mut Machine<'_>, &[Value]) -> Run,
    ) -> Run {
        self.step()?;
        let Some((argument, rest)) = arguments.split_first() else { return then(self, values) };
        self.run(argument, env, input.clone(), &mut |this, value| {
            values.push(value);
            let ended = this.arguments(rest, env, input, values, then);
            values.pop();
            ended
        })
    }

    fn reduce(&mut self, fold: &Fold, env: Env<'_>, input: &Value, emit: Emit<'_>) -> Run {
        let Fold { source, binding, first, update } = fold;
        self.run(first, env, input.clone(), &mut |this, first| {
            let mut state = first;
            this.run(source, env, input.clone(), &mut |this, value| {
                this.bind(&[(binding, value)], env, input, &mut |this, env| {
                    let mut next = Value::Null;
                    let before = std::mem::replace(&mut state, Value::Null);
                    this.run(update, env, before, &mut |_, value| {
                        next = value;
                        Ok(())
                    })?;
                    state = next;
                    Ok(())
                })
            })?;
            emit(this, state)
        })
    }

    fn foreach(&mut self, fold: &Fold, extract: &Node, env: Env<'_>, input: &Value, emit: Emit<'_>) -> Run {
        let Fold { source, binding, first, update } = fold;
        self.run(first, env, input.clone(), &mut |this, first| {
            let mut state = first;
            this.run(source, env, input.clone(), &mut |this, value| {
                this.bind(&[(binding, value)], env, input, &mut |this, env| {
                    let before = state.clone();
                    this.run(update, env, before, &mut |this, value| {
                        state = value.clone();
                        this.run(extract, env, value, emit)
                    })
                })
            })
        })
    }

    fn attempt(
        &mut self,
        tried: &Node,
        caught: Option<&Node>,
        env: Env<'_>,
        input: Value,
        emit: Emit<'_>,
    ) -> Run {
        let ended = self.guarded(emit, |this, emit| this.run(tried, env, input, emit))?;
        match (self.failed(ended)?, caught) {
            (Some(value), Some(caught)) => self.run(caught, env, value, emit),
            _ => Ok(()),
        }
    }

    /// Returns the value of an error that may be caught.
    pub(super) fn failed(&mut self, ended: Run) -> Run<Option<Value>> {
        match ended {
            Ok(()) => Ok(None),
            Err(Stop::Error(value)) => {
                // The text of an error is created before it is known whether it is kept.
                if let Value::Str(text) = &value {
                    self.budget.allocate(STRING + text.len())?;
                }
                Ok(Some(value))
            }
            // A limit cannot be caught.
            Err(stop) => Err(stop),
        }
    }

    fn branch(
        &mut self,
        cases: &[(Node, Node)],
        otherwise: &Node,
        env: Env<'_>,
        input: &Value,
        emit: Emit<'_>,
    ) -> Run {
        let Some(((condition, then), rest)) = cases.split_first() else {
            return self.run(otherwise, env, input.clone(), emit);
        };
        self.run(condition, env, input.clone(), &mut |this, holds| {
            this.step()?;
            match holds.is_truthy() {
                true => this.run(then, env, input.clone(), emit),
                false => this.branch(rest, otherwise, env, input, emit),
            }
        })
    }

    /// Destructures values into variables, for each combination of the keys' results.
    pub(super) fn bind(
        &mut self,
        bindings: &[(&Binding, Value)],
        env: Env<'_>,
        input: &Value,
        then: &mut dyn FnMut(&mut Machine<'_>, Env<'_>) -> Run,
    ) -> Run {
        let Some(((binding, value), rest)) = bindings.split_first() else { return then(self, env) };
        self.nested(|this| match binding {
            Binding::Variable => {
                let link = Link { bound: Bound::Value(value.clone()), before: env };
                this.bind(rest, Some(&link), input, then)
            }
            Binding::Array(items) => {
                let mut inner = Vec::new();
                for (position, item) in (0_i64..).zip(items) {
                    inner.push((item, native::index(this, value, &Value::Int(position))?));
                }
                inner.extend(rest.iter().cloned());
                this.budget.steps(inner.len())?;
                this.bind(&inner, env, input, then)
            }
            Binding::Object(entries) => this.bind_fields(entries, value, rest, env, input, then),
        })
    }

    fn bind_fields(
        &mut self,
        entries: &[(Node, Binding)],
        of: &Value,
        rest: &[(&Binding, Value)],
        env: Env<'_>,
        input: &Value,
        then: &mut dyn FnMut(&mut Machine<'_>, Env<'_>) -> Run,
    ) -> Run {
        let Some(((key, binding), others)) = entries.split_first() else {
            return self.bind(rest, env, input, then);
        };
        self.run(key, env, input.clone(), &mut |this, key| {
            let Value::Str(_) = key else {
                return error(format!("Cannot index {} with {}", of.kind(), key.kind()));
            };
            let value = native::index(this, of, &key)?;
            this.bind(&[(binding, value)], env, input, &mut |this, env| {
                this.bind_fields(others, of, rest, env, input, then)
            })
        })
    }

    fn path(
        &mut self,
        value: Value,
        steps: &[(Step, bool)],
        env: Env<'_>,
        input: &Value,
        emit: Emit<'_>,
    ) -> Run {
        let Some(((step, optional), rest)) = steps.split_first() else { return emit(self, value) };
        self.nested(|this| match step {
            Step::Each => {
                this.each(&value, *optional, &mut |this, value| this.path(value, rest, env, input, emit))
            }
            Step::Index(index) => this.run(index, env, input.clone(), &mut |this, index| match (
                native::index(this, &value, &index),
                optional,
            ) {
                (Err(Stop::Error(_)), true) => Ok(()),
                (found, _) => this.path(found?, rest, env, input, emit),
            }),
            Step::Slice(from, to) => {
                this.bounds(from.as_ref(), to.as_ref(), env, input, &mut |this, from, to| match (
                    native::slice(this, &value, from, to),
                    optional,
                ) {
                    (Err(Stop::Error(_)), true) => Ok(()),
                    (found, _) => this.path(found?, rest, env, input, emit),
                })
            }
        })
    }

    /// Emits the bounds of a slice; a missing bound is null.
    pub(super) fn bounds(
        &mut self,
        from: Option<&Node>,
        to: Option<&Node>,
        env: Env<'_>,
        input: &Value,
        then: &mut dyn FnMut(&mut Machine<'_>, &Value, &Value) -> Run,
    ) -> Run {
        let mut begun = |this: &mut Machine<'_>, from: Value| match to {
            Some(to) => this.run(to, env, input.clone(), &mut |this, to| then(this, &from, &to)),
            None => then(this, &from, &Value::Null),
        };
        match from {
            Some(from) => self.run(from, env, input.clone(), &mut begun),
            None => begun(self, Value::Null),
        }
    }

    /// Emits the items of a list, or the values of an object.
    pub(super) fn each(&mut self, value: &Value, optional: bool, emit: Emit<'_>) -> Run {
        match value {
            Value::Array(array) => {
                for item in &array.items {
                    self.step()?;
                    emit(self, item.clone())?;
                }
                Ok(())
            }
            Value::Object(object) => {
                for item in object.fields.values() {
                    self.step()?;
                    emit(self, item.clone())?;
                }
                Ok(())
            }
            _ if optional => Ok(()),
            other => error(format!("Cannot iterate over {} ({})", other.kind(), other.shown())),
        }
    }
}

/// A continuation that receives the body of a function and its environment.
pub(super) type Body<'f> = &'f mut dyn FnMut(&mut Machine<'_>, &Node, Env<'_>) -> Run;

/// Returns the error of a missing name, which is unreachable because lowering resolves each name.
pub(super) fn lost<T>() -> Run<T> {
    error("a name is lost")
}

fn compared(machine: &mut Machine<'_>, op: Comparison, left: &Value, right: &Value) -> Run<bool> {
    let order = left.compare(right, machine.budget)?;
    Ok(match op {
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
    })
}
