//! Runs a lowered filter. Each part hands its results on one by one, to what goes on with them; nothing is called that
//! does not ask the budget first.

use std::sync::Arc;

use super::budget::{Budget, Limit};
use super::native;
use super::text;
use super::tree::{Binding, Comparison, Fold, Node, Part, Step};
use super::value::{Fields, ITEM, STRING, Value};

/// Why a run does not go on.
#[derive(Debug, Clone)]
pub(super) enum Stop {
    /// An error of the filter's, which it may catch.
    Error(Value),
    /// A limit, which it may not.
    Limit(Limit),
    /// Whoever marked the run with this number has what it needs.
    Cut(usize),
}

impl From<Limit> for Stop {
    fn from(limit: Limit) -> Self {
        Self::Limit(limit)
    }
}

pub(super) type Run<T = ()> = Result<T, Stop>;

/// What goes on with a result.
pub(super) type Emit<'e> = &'e mut dyn FnMut(&mut Machine<'_>, Value) -> Run;

/// A run of a filter.
#[derive(Debug)]
pub(super) struct Machine<'b> {
    pub(super) budget: &'b mut Budget,
    slots: Vec<Value>,
    cuts: usize,
}

/// An error with this text.
pub(super) fn error<T>(text: impl AsRef<str>) -> Run<T> {
    Err(Stop::Error(Value::Str(text.as_ref().into())))
}

impl<'b> Machine<'b> {
    pub(super) fn new(slots: usize, budget: &'b mut Budget) -> Self {
        Self { budget, slots: vec![Value::Null; slots], cuts: 0 }
    }

    pub(super) fn step(&mut self) -> Run {
        Ok(self.budget.steps(1)?)
    }

    /// Adds a value to those that are kept.
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

    /// Runs a part on an input.
    pub(super) fn run(&mut self, node: &Node, input: Value, emit: Emit<'_>) -> Run {
        self.step()?;
        match node {
            Node::Identity => emit(self, input),
            Node::Descend => self.descend(input, emit),
            Node::Constant(value) => emit(self, value.clone()),
            Node::Text(parts) => self.text(parts, &input, "", emit),
            Node::List(items) => self.collected(items, input, emit),
            Node::Object(entries) => self.entries(entries, &input, &Fields::new(), emit),
            Node::Negate(of) => self.negate(of, input, emit),
            Node::Pipe(first, then) => self.run(first, input, &mut |this, value| this.run(then, value, emit)),
            Node::Comma(first, then) => {
                self.run(first, input.clone(), emit)?;
                self.run(then, input, emit)
            }
            Node::Alternative(first, otherwise) => self.alternative(first, otherwise, input, emit),
            Node::Or(left, right) => self.logic(left, right, true, &input, emit),
            Node::And(left, right) => self.logic(left, right, false, &input, emit),
            Node::Math(left, op, right) => self.pairs(left, right, &input, &mut |this, left, right| {
                let value = native::math(this, *op, &left, &right)?;
                emit(this, value)
            }),
            Node::Compare(left, op, right) => self.pairs(left, right, &input, &mut |this, left, right| {
                let order = left.compare(&right, this.budget)?;
                let holds = match op {
                    Comparison::Less => order.is_lt(),
                    Comparison::LessOrEqual => order.is_le(),
                    Comparison::Greater => order.is_gt(),
                    Comparison::GreaterOrEqual => order.is_ge(),
                    Comparison::Equal => order.is_eq(),
                    Comparison::NotEqual => order.is_ne(),
                };
                emit(this, Value::Bool(holds))
            }),
            Node::Reduce(fold) => self.reduce(fold, &input, emit),
            Node::Foreach(fold, extract) => self.foreach(fold, extract, &input, emit),
            Node::Try(tried, caught) => self.attempt(tried, caught.as_deref(), input, emit),
            Node::If(cases, otherwise) => self.branch(cases, otherwise, &input, emit),
            Node::Variable(slot) => {
                let value = self.slots.get(*slot).cloned().unwrap_or(Value::Null);
                emit(self, value)
            }
            Node::Bind(of, binding, then) => self.run(of, input.clone(), &mut |this, value| {
                this.bind(&[(binding, value)], &input, &mut |this| this.run(then, input.clone(), emit))
            }),
            Node::Path(of, steps) => {
                self.run(of, input.clone(), &mut |this, value| this.path(value, steps, &input, emit))
            }
            Node::Call(native, arguments) => {
                self.arguments(arguments, &input, &mut Vec::new(), &mut |this, values| {
                    let value = native::call(this, *native, &input, values)?;
                    emit(this, value)
                })
            }
            Node::Control(control, arguments) => self.control(*control, arguments, input, emit),
            Node::Test(pattern) => match &input {
                Value::Str(text) => {
                    let found = pattern.is_in(text, self.budget)?;
                    emit(self, Value::Bool(found))
                }
                other => error(format!(
                    "{} ({}) cannot be matched, as it is not a string",
                    other.kind(),
                    other.shown()
                )),
            },
        }
    }

    /// The results of a part, kept; an error after some of them too.
    pub(super) fn kept(&mut self, node: &Node, input: Value) -> (Vec<Value>, Run) {
        let mut values = Vec::new();
        let ended = self.run(node, input, &mut |this, value| this.keep(&mut values, value));
        (values, ended)
    }

    /// The results of a part; an error where it ends in one.
    pub(super) fn all(&mut self, node: &Node, input: Value) -> Run<Vec<Value>> {
        let (values, ended) = self.kept(node, input);
        ended.map(|()| values)
    }

    /// Runs `body`, which may end early by [`Stop::Cut`] with the number that it is given.
    pub(super) fn cut(&mut self, body: impl FnOnce(&mut Self, usize) -> Run) -> Run {
        self.cuts += 1;
        let mark = self.cuts;
        match body(self, mark) {
            Err(Stop::Cut(cut)) if cut == mark => Ok(()),
            other => other,
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

    /// The parts of a string from the last to the first, each with those that come behind it.
    fn text(&mut self, parts: &[Part], input: &Value, tail: &str, emit: Emit<'_>) -> Run {
        self.step()?;
        match parts.split_last() {
            None => {
                let text = self.string(tail)?;
                emit(self, text)
            }
            Some((Part::Text(text), parts)) => {
                self.budget.bytes(text.len() + tail.len())?;
                self.text(parts, input, &format!("{text}{tail}"), emit)
            }
            Some((Part::Filter(node), parts)) => self.run(node, input.clone(), &mut |this, value| {
                let text = text::to_text(this, &value)?;
                this.budget.bytes(text.len() + tail.len())?;
                this.text(parts, input, &format!("{text}{tail}"), emit)
            }),
        }
    }

    fn collected(&mut self, items: &Node, input: Value, emit: Emit<'_>) -> Run {
        let items = self.all(items, input)?;
        let list = self.list(items)?;
        emit(self, list)
    }

    fn entries(&mut self, entries: &[(Node, Node)], input: &Value, before: &Fields, emit: Emit<'_>) -> Run {
        let Some(((key, value), rest)) = entries.split_first() else {
            let object = self.object(before.clone())?;
            return emit(self, object);
        };
        self.run(key, input.clone(), &mut |this, key| {
            let Value::Str(name) = key else {
                return error(format!("Object keys must be strings, not {} ({})", key.kind(), key.shown()));
            };
            this.run(value, input.clone(), &mut |this, value| {
                this.budget.steps(1 + before.len())?;
                this.budget.read(name.len())?;
                this.budget.allocate((1 + before.len()).saturating_mul(2 * ITEM))?;
                let mut fields = before.clone();
                fields.insert(Arc::clone(&name), value);
                this.entries(rest, input, &fields, emit)
            })
        })
    }

    fn negate(&mut self, of: &Node, input: Value, emit: Emit<'_>) -> Run {
        self.run(of, input, &mut |this, value| {
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

    fn alternative(&mut self, first: &Node, otherwise: &Node, input: Value, emit: Emit<'_>) -> Run {
        let (values, ended) = self.kept(first, input.clone());
        match ended {
            Ok(()) | Err(Stop::Error(_)) => {}
            stop => return stop,
        }
        let mut found = false;
        for value in values {
            self.step()?;
            if value.is_truthy() {
                found = true;
                emit(self, value)?;
            }
        }
        if found { Ok(()) } else { self.run(otherwise, input, emit) }
    }

    /// `or` where `decides` is true, and else `and`: what decides it by itself needs no right side.
    fn logic(&mut self, left: &Node, right: &Node, decides: bool, input: &Value, emit: Emit<'_>) -> Run {
        self.run(left, input.clone(), &mut |this, left| {
            if left.is_truthy() == decides {
                return emit(this, Value::Bool(decides));
            }
            this.run(right, input.clone(), &mut |this, right| emit(this, Value::Bool(right.is_truthy())))
        })
    }

    /// The results of two parts in all combinations, in the order of jq: those of the left vary first.
    fn pairs(
        &mut self,
        left: &Node,
        right: &Node,
        input: &Value,
        then: &mut dyn FnMut(&mut Machine<'_>, Value, Value) -> Run,
    ) -> Run {
        self.run(right, input.clone(), &mut |this, right| {
            this.run(left, input.clone(), &mut |this, left| {
                this.step()?;
                then(this, left, right.clone())
            })
        })
    }

    /// The results of arguments in all combinations, those of the last vary first.
    pub(super) fn arguments(
        &mut self,
        arguments: &[Node],
        input: &Value,
        values: &mut Vec<Value>,
        then: &mut dyn FnMut(&mut Machine<'_>, &[Value]) -> Run,
    ) -> Run {
        self.step()?;
        let Some((argument, rest)) = arguments.split_first() else { return then(self, values) };
        self.run(argument, input.clone(), &mut |this, value| {
            values.push(value);
            let ended = this.arguments(rest, input, values, then);
            values.pop();
            ended
        })
    }

    fn reduce(&mut self, fold: &Fold, input: &Value, emit: Emit<'_>) -> Run {
        let Fold { source, binding, first, update } = fold;
        self.run(first, input.clone(), &mut |this, first| {
            let mut state = first;
            this.run(source, input.clone(), &mut |this, value| {
                this.bind(&[(binding, value)], input, &mut |this| {
                    let mut next = Value::Null;
                    let before = std::mem::replace(&mut state, Value::Null);
                    this.run(update, before, &mut |_, value| {
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

    fn foreach(&mut self, fold: &Fold, extract: &Node, input: &Value, emit: Emit<'_>) -> Run {
        let Fold { source, binding, first, update } = fold;
        self.run(first, input.clone(), &mut |this, first| {
            let mut state = first;
            this.run(source, input.clone(), &mut |this, value| {
                this.bind(&[(binding, value)], input, &mut |this| {
                    // What is emitted goes on only once the update is done, so that it finds the variables as they are.
                    let updates = this.all(update, state.clone())?;
                    for value in updates {
                        state = value.clone();
                        this.run(extract, value, emit)?;
                    }
                    Ok(())
                })
            })
        })
    }

    fn attempt(&mut self, tried: &Node, caught: Option<&Node>, input: Value, emit: Emit<'_>) -> Run {
        let (values, ended) = self.kept(tried, input);
        let failed = match ended {
            Ok(()) => None,
            Err(Stop::Error(value)) => {
                // What errors say is made before anybody keeps it.
                if let Value::Str(text) = &value {
                    self.budget.allocate(STRING + text.len())?;
                }
                Some(value)
            }
            // Nobody asks for more of what it has already, and a limit is nobody's to catch.
            Err(stop) => return Err(stop),
        };
        for value in values {
            self.step()?;
            emit(self, value)?;
        }
        match (failed, caught) {
            (Some(value), Some(caught)) => self.run(caught, value, emit),
            _ => Ok(()),
        }
    }

    fn branch(&mut self, cases: &[(Node, Node)], otherwise: &Node, input: &Value, emit: Emit<'_>) -> Run {
        let Some(((condition, then), rest)) = cases.split_first() else {
            return self.run(otherwise, input.clone(), emit);
        };
        self.run(condition, input.clone(), &mut |this, holds| {
            this.step()?;
            match holds.is_truthy() {
                true => this.run(then, input.clone(), emit),
                false => this.branch(rest, otherwise, input, emit),
            }
        })
    }

    /// Takes values apart to variables, for each combination of the keys' results.
    fn bind(
        &mut self,
        bindings: &[(&Binding, Value)],
        input: &Value,
        then: &mut dyn FnMut(&mut Machine<'_>) -> Run,
    ) -> Run {
        self.step()?;
        let Some(((binding, value), rest)) = bindings.split_first() else { return then(self) };
        match binding {
            Binding::Variable(slot) => {
                if let Some(place) = self.slots.get_mut(*slot) {
                    *place = value.clone();
                }
                self.bind(rest, input, then)
            }
            Binding::Array(items) => {
                let mut inner = Vec::new();
                for (position, item) in (0_i64..).zip(items) {
                    inner.push((item, native::index(self, value, &Value::Int(position))?));
                }
                inner.extend(rest.iter().cloned());
                self.budget.steps(inner.len())?;
                self.bind(&inner, input, then)
            }
            Binding::Object(entries) => self.bind_fields(entries, value, rest, input, then),
        }
    }

    fn bind_fields(
        &mut self,
        entries: &[(Node, Binding)],
        of: &Value,
        rest: &[(&Binding, Value)],
        input: &Value,
        then: &mut dyn FnMut(&mut Machine<'_>) -> Run,
    ) -> Run {
        let Some(((key, binding), others)) = entries.split_first() else {
            return self.bind(rest, input, then);
        };
        self.run(key, input.clone(), &mut |this, key| {
            let Value::Str(_) = key else {
                return error(format!("Cannot index {} with {}", of.kind(), key.kind()));
            };
            let value = native::index(this, of, &key)?;
            this.bind(&[(binding, value)], input, &mut |this| this.bind_fields(others, of, rest, input, then))
        })
    }

    fn path(&mut self, value: Value, steps: &[(Step, bool)], input: &Value, emit: Emit<'_>) -> Run {
        self.step()?;
        let Some(((step, optional), rest)) = steps.split_first() else { return emit(self, value) };
        match step {
            Step::Each => {
                self.each(&value, *optional, &mut |this, value| this.path(value, rest, input, emit))
            }
            Step::Index(index) => self.run(index, input.clone(), &mut |this, index| match (
                native::index(this, &value, &index),
                optional,
            ) {
                (Err(Stop::Error(_)), true) => Ok(()),
                (found, _) => this.path(found?, rest, input, emit),
            }),
            Step::Slice(from, to) => {
                let mut none = |this: &mut Machine<'_>, from: Value| {
                    let mut sliced = |this: &mut Machine<'_>, to: Value| match (
                        native::slice(this, &value, &from, &to),
                        optional,
                    ) {
                        (Err(Stop::Error(_)), true) => Ok(()),
                        (found, _) => this.path(found?, rest, input, emit),
                    };
                    match to {
                        Some(to) => this.run(to, input.clone(), &mut sliced),
                        None => sliced(this, Value::Null),
                    }
                };
                match from {
                    Some(from) => self.run(from, input.clone(), &mut none),
                    None => none(self, Value::Null),
                }
            }
        }
    }

    /// The items of a list, or the values of an object.
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
