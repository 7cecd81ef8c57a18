//! Paths within a value: `path(f)`, `del(f)`, and assignments, whose left side selects paths.

use std::sync::Arc;

use super::budget::Limit;
use super::env::{Bound, Env, Link, find};
use super::eval::{Emit, Machine, Run, Stop, error, lost};
use super::native;
use super::order;
use super::tree::{Assignment, Control, Native, Node, Step};
use super::value::{Array, Fields, ITEM, MAX_DEPTH, Object, Value};

/// A value and its path.
#[derive(Debug, Clone)]
struct Place {
    path: Vec<Value>,
    value: Value,
}

type EmitPlace<'e> = &'e mut dyn FnMut(&mut Machine<'_>, Place) -> Run;

impl Machine<'_> {
    /// Emits the paths of a filter's results within its input.
    pub(super) fn located(
        &mut self,
        node: &Node,
        env: Env<'_>,
        input: &Value,
        emit: &mut dyn FnMut(&mut Machine<'_>, Vec<Value>) -> Run,
    ) -> Run {
        let whole = Place { path: Vec::new(), value: input.clone() };
        self.locate(node, env, whole, &mut |this, place| emit(this, place.path))
    }

    fn locate(&mut self, node: &Node, env: Env<'_>, at: Place, emit: EmitPlace<'_>) -> Run {
        self.nested(|this| this.locate_node(node, env, at, emit))
    }

    fn locate_node(&mut self, node: &Node, env: Env<'_>, at: Place, emit: EmitPlace<'_>) -> Run {
        match node {
            Node::Identity => emit(self, at),
            Node::Descend => self.locate_all(at, emit),
            Node::Pipe(first, then) => {
                self.locate(first, env, at, &mut |this, place| this.locate(then, env, place, emit))
            }
            Node::Comma(first, then) => {
                self.locate(first, env, at.clone(), emit)?;
                self.locate(then, env, at, emit)
            }
            Node::Alternative(first, otherwise) => {
                let mut found = false;
                let ended = self.guarded(emit, |this, emit| {
                    this.locate(first, env, at.clone(), &mut |this, place| {
                        if !place.value.is_truthy() {
                            return Ok(());
                        }
                        found = true;
                        emit(this, place)
                    })
                })?;
                match ended {
                    Ok(()) | Err(Stop::Error(_)) if found => Ok(()),
                    Ok(()) | Err(Stop::Error(_)) => self.locate(otherwise, env, at, emit),
                    stop => stop,
                }
            }
            Node::Try(tried, caught) => {
                let ended = self.guarded(emit, |this, emit| this.locate(tried, env, at, emit))?;
                match (self.failed(ended)?, caught) {
                    (Some(value), Some(caught)) => {
                        self.run(caught, env, value, &mut |_, value| no_path(&value))
                    }
                    _ => Ok(()),
                }
            }
            Node::If(cases, otherwise) => self.locate_branch(cases, otherwise, env, &at, emit),
            Node::Bind(of, binding, then) => self.run(of, env, at.value.clone(), &mut |this, value| {
                this.bind(&[(binding, value)], env, &at.value, &mut |this, env| {
                    this.locate(then, env, at.clone(), emit)
                })
            }),
            Node::Path(of, steps) => {
                let input = at.value.clone();
                self.locate(of, env, at, &mut |this, place| {
                    this.locate_steps(place, steps, env, &input, emit)
                })
            }
            Node::Define(functions, rest) => {
                self.define(functions, env, &mut |this, env| this.locate(rest, env, at.clone(), emit))
            }
            Node::Apply(distance, arguments) => {
                self.apply(*distance, arguments, env, &mut |this, body, env| {
                    this.locate(body, env, at.clone(), emit)
                })
            }
            Node::Library(position, arguments) => {
                let Some(function) = self.library().get(*position) else { return lost() };
                let itself = Link { bound: Bound::Function(function), before: None };
                self.call(function, Some(&itself), arguments, env, &mut |this, body, env| {
                    this.locate(body, env, at.clone(), emit)
                })
            }
            Node::Label(body) => self.cut(|this, mark| {
                this.locate(body, Some(&Link { bound: Bound::Label(mark), before: env }), at, emit)
            }),
            Node::Break(distance) => match find(env, *distance) {
                Some(Link { bound: Bound::Label(mark), .. }) => Err(Stop::Cut(*mark)),
                _ => lost(),
            },
            Node::Call(native, arguments) => self.locate_call(*native, arguments, env, &at, emit),
            Node::Control(control, arguments) => self.locate_control(*control, arguments, env, at, emit),
            other => self.run(other, env, at.value, &mut |_, value| no_path(&value)),
        }
    }

    /// Returns the place below another one.
    fn below(&mut self, at: &Place, key: Value, value: Value) -> Run<Place> {
        if at.path.len() == MAX_DEPTH {
            return Err(Limit::Depth.into());
        }
        self.budget.steps(1 + at.path.len())?;
        self.budget.allocate((1 + at.path.len()).saturating_mul(ITEM))?;
        let mut path = at.path.clone();
        path.push(key);
        Ok(Place { path, value })
    }

    fn locate_each(&mut self, at: &Place, optional: bool, emit: EmitPlace<'_>) -> Run {
        match &at.value {
            Value::Array(array) => {
                for (position, item) in array.items.iter().enumerate() {
                    let place = self.below(at, native::count(position), item.clone())?;
                    emit(self, place)?;
                }
                Ok(())
            }
            Value::Object(object) => {
                for (name, value) in &object.fields {
                    let place = self.below(at, Value::Str(Arc::clone(name)), value.clone())?;
                    emit(self, place)?;
                }
                Ok(())
            }
            _ if optional => Ok(()),
            other => error(format!("Cannot iterate over {} ({})", other.kind(), other.shown())),
        }
    }

    fn locate_all(&mut self, at: Place, emit: EmitPlace<'_>) -> Run {
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            let mut within = Vec::new();
            self.locate_each(&at, true, &mut |_, place| {
                within.push(place);
                Ok(())
            })?;
            open.extend(within.into_iter().rev());
            emit(self, at)?;
        }
        Ok(())
    }

    fn locate_branch(
        &mut self,
        cases: &[(Node, Node)],
        otherwise: &Node,
        env: Env<'_>,
        at: &Place,
        emit: EmitPlace<'_>,
    ) -> Run {
        let Some(((condition, then), rest)) = cases.split_first() else {
            return self.locate(otherwise, env, at.clone(), emit);
        };
        self.run(condition, env, at.value.clone(), &mut |this, holds| match holds.is_truthy() {
            true => this.locate(then, env, at.clone(), emit),
            false => this.locate_branch(rest, otherwise, env, at, emit),
        })
    }

    fn locate_steps(
        &mut self,
        at: Place,
        steps: &[(Step, bool)],
        env: Env<'_>,
        input: &Value,
        emit: EmitPlace<'_>,
    ) -> Run {
        let Some(((step, optional), rest)) = steps.split_first() else { return emit(self, at) };
        self.nested(|this| match step {
            Step::Each => this.locate_each(&at, *optional, &mut |this, place| {
                this.locate_steps(place, rest, env, input, emit)
            }),
            Step::Index(index) => this.run(index, env, input.clone(), &mut |this, key| match this
                .step_to(&at, key, *optional)?
            {
                Some(place) => this.locate_steps(place, rest, env, input, emit),
                None => Ok(()),
            }),
            Step::Slice(from, to) => {
                this.bounds(from.as_ref(), to.as_ref(), env, input, &mut |this, from, to| {
                    let bounds = [("start".into(), from.clone()), ("end".into(), to.clone())];
                    let key = this.object(Fields::from(bounds))?;
                    match this.step_to(&at, key, *optional)? {
                        Some(place) => this.locate_steps(place, rest, env, input, emit),
                        None => Ok(()),
                    }
                })
            }
        })
    }

    /// Returns the place under a key. Returns `None` if the value does not support such keys and the step is
    /// optional.
    fn step_to(&mut self, at: &Place, key: Value, optional: bool) -> Run<Option<Place>> {
        match (get(self, &at.value, &key), optional) {
            (Err(Stop::Error(_)), true) => Ok(None),
            (found, _) => {
                let found = found?;
                self.below(at, key, found).map(Some)
            }
        }
    }

    fn locate_call(
        &mut self,
        native: Native,
        arguments: &[Node],
        env: Env<'_>,
        at: &Place,
        emit: EmitPlace<'_>,
    ) -> Run {
        self.arguments(arguments, env, &at.value, &mut Vec::new(), &mut |this, values| {
            let first = values.first().cloned().unwrap_or(Value::Null);
            let key = match native {
                Native::FirstOf => Value::Int(0),
                Native::LastOf => Value::Int(-1),
                Native::Nth => first,
                Native::GetPath => {
                    let Value::Array(path) = first else {
                        return error("Path must be specified as an array");
                    };
                    let mut place = at.clone();
                    for key in &path.items {
                        let value = get(this, &place.value, key)?;
                        place = this.below(&place, key.clone(), value)?;
                    }
                    return emit(this, place);
                }
                other => {
                    let value = native::call(this, other, &at.value, values)?;
                    return no_path(&value);
                }
            };
            match this.step_to(at, key, false)? {
                Some(place) => emit(this, place),
                None => Ok(()),
            }
        })
    }

    fn locate_control(
        &mut self,
        control: Control,
        arguments: &[Node],
        env: Env<'_>,
        at: Place,
        emit: EmitPlace<'_>,
    ) -> Run {
        match (control, arguments) {
            (Control::Select, [condition]) => {
                self.run(condition, env, at.value.clone(), &mut |this, holds| {
                    if holds.is_truthy() { emit(this, at.clone()) } else { Ok(()) }
                })
            }
            (Control::Recurse, [of]) => self.locate_recursion(of, None, env, at, emit),
            (Control::RecurseIf, [of, condition]) => {
                self.locate_recursion(of, Some(condition), env, at, emit)
            }
            (Control::First, [of]) => self.locate_first(1, of, env, at, emit),
            (Control::Limit, [most, of]) => {
                self.run(most, env, at.value.clone(), &mut |this, most| match most.as_float() {
                    Some(most) if most >= 0.0 => {
                        this.locate_first(most.ceil() as usize, of, env, at.clone(), emit)
                    }
                    _ => error(format!("limit takes a count, not {} ({})", most.kind(), most.shown())),
                })
            }
            (Control::Last, [of]) => {
                let mut last = None;
                self.locate(of, env, at, &mut |_, place| {
                    last = Some(place);
                    Ok(())
                })?;
                last.map_or(Ok(()), |last| emit(self, last))
            }
            (
                Control::Values
                | Control::Nulls
                | Control::Booleans
                | Control::Numbers
                | Control::Strings
                | Control::Arrays
                | Control::Objects
                | Control::Scalars
                | Control::Iterables
                | Control::Empty,
                _,
            ) => {
                self.control(control, arguments, env, at.value.clone(), &mut |this, _| emit(this, at.clone()))
            }
            _ => self.control(control, arguments, env, at.value, &mut |_, value| no_path(&value)),
        }
    }

    fn locate_first(&mut self, most: usize, of: &Node, env: Env<'_>, at: Place, emit: EmitPlace<'_>) -> Run {
        if most == 0 {
            return Ok(());
        }
        let mut left = most;
        self.cut(|this, mark| {
            this.locate(of, env, at, &mut |this, place| {
                left -= 1;
                emit(this, place)?;
                if left == 0 { Err(Stop::Cut(mark)) } else { Ok(()) }
            })
        })
    }

    fn locate_recursion(
        &mut self,
        of: &Node,
        only: Option<&Node>,
        env: Env<'_>,
        at: Place,
        emit: EmitPlace<'_>,
    ) -> Run {
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            emit(self, at.clone())?;
            let mut next = Vec::new();
            self.locate(of, env, at, &mut |_, place| {
                next.push(place);
                Ok(())
            })?;
            for place in next.into_iter().rev() {
                let fits = match only {
                    Some(only) => self.all(only, env, place.value.clone())?.iter().any(Value::is_truthy),
                    None => true,
                };
                if fits {
                    open.push(place);
                }
            }
        }
        Ok(())
    }

    /// Runs assignments such as `f = g`.
    pub(super) fn assign(
        &mut self,
        paths: &Node,
        how: Assignment,
        value: &Node,
        env: Env<'_>,
        input: &Value,
        emit: Emit<'_>,
    ) -> Run {
        if how == Assignment::Modify {
            let changed = self.modify(paths, env, input, &mut |this, before| {
                let mut first = None;
                this.first(1, value, env, before, &mut |_, value| {
                    first = Some(value);
                    Ok(())
                })?;
                Ok(first)
            })?;
            return emit(self, changed);
        }
        self.run(value, env, input.clone(), &mut |this, value| {
            let changed = this.modify(paths, env, input, &mut |this, before| {
                Ok(Some(match how {
                    Assignment::Math(op) => native::math(this, op, &before, &value)?,
                    Assignment::Alternative if before.is_truthy() => before,
                    _ => value.clone(),
                }))
            })?;
            emit(this, changed)
        })
    }

    /// Returns the input with a change at each path; a place is deleted if `change` returns `None`.
    fn modify(
        &mut self,
        paths: &Node,
        env: Env<'_>,
        input: &Value,
        change: &mut dyn FnMut(&mut Machine<'_>, Value) -> Run<Option<Value>>,
    ) -> Run<Value> {
        let mut places = Vec::new();
        self.located(paths, env, input, &mut |_, path| {
            places.push(path);
            Ok(())
        })?;
        let (mut state, mut deleted) = (input.clone(), Vec::new());
        for path in places {
            self.step()?;
            let mut before = state.clone();
            for key in &path {
                before = get(self, &before, key)?;
            }
            match change(self, before)? {
                Some(value) => state = set(self, state, &path, value)?,
                None => {
                    let path = self.list(path)?;
                    self.keep(&mut deleted, path)?;
                }
            }
        }
        delete_all(self, state, deleted)
    }
}

fn no_path(value: &Value) -> Run {
    error(format!("Invalid path expression with result {}", value.shown()))
}

/// Returns the value under a key; an object key selects a slice.
fn get(machine: &mut Machine<'_>, of: &Value, key: &Value) -> Run<Value> {
    match key {
        Value::Object(bounds) => {
            let bound = |name: &str| bounds.fields.get(name).cloned().unwrap_or(Value::Null);
            native::slice(machine, of, &bound("start"), &bound("end"))
        }
        key => native::index(machine, of, key),
    }
}

/// `setpath`
pub(super) fn set_path(machine: &mut Machine<'_>, input: &Value, path: &Value, value: &Value) -> Run<Value> {
    let Value::Array(path) = path else { return error("Path must be specified as an array") };
    if path.items.len() > MAX_DEPTH {
        return Err(Limit::Depth.into());
    }
    set(machine, input.clone(), &path.items, value.clone())
}

/// Returns a value with another one at a path. Containers without other owners are changed in place.
fn set(machine: &mut Machine<'_>, of: Value, path: &[Value], new: Value) -> Run<Value> {
    machine.step()?;
    let Some((key, rest)) = path.split_first() else { return Ok(new) };
    match (of, key) {
        (of @ (Value::Null | Value::Object(_)), Value::Str(name)) => {
            let mut object = owned_object(machine, of)?;
            let Some(own) = Arc::get_mut(&mut object) else { return lost() };
            machine.budget.read(name.len())?;
            machine.budget.allocate(3 * ITEM)?;
            let before = own.fields.remove(name).unwrap_or(Value::Null);
            let after = set(machine, before, rest, new)?;
            own.put(name, after);
            shallow(Value::Object(object))
        }
        (of @ (Value::Null | Value::Array(_)), Value::Int(_) | Value::Float(_)) => {
            let mut array = owned_array(machine, of)?;
            let Some(own) = Arc::get_mut(&mut array) else { return lost() };
            let at = key.as_float().unwrap_or_default().floor();
            let at = if at < 0.0 { at + own.items.len() as f64 } else { at };
            if at < 0.0 {
                return error("Out of bounds negative array index");
            }
            let at = at as usize;
            if at >= own.items.len() {
                let more = at.saturating_add(1) - own.items.len();
                machine.budget.steps(more)?;
                machine.budget.allocate(more.saturating_mul(ITEM))?;
                own.items.resize(at + 1, Value::Null);
            }
            let before =
                own.items.get_mut(at).map_or(Value::Null, |item| std::mem::replace(item, Value::Null));
            let after = set(machine, before, rest, new)?;
            own.put(at, after);
            shallow(Value::Array(array))
        }
        (of @ (Value::Null | Value::Array(_)), Value::Object(_)) => {
            let before = get(machine, &of, key)?;
            let Value::Array(new) = set(machine, before, rest, new)? else {
                return error("A slice of an array can only be assigned another array");
            };
            let items = match &of {
                Value::Array(array) => array.items.as_slice(),
                _ => &[],
            };
            let (from, to) = native::slice_bounds(key, items.len());
            let mut all = Vec::new();
            let (head, tail) = (items.iter().take(from), items.iter().skip(to));
            for item in head.chain(&new.items).chain(tail) {
                machine.keep(&mut all, item.clone())?;
            }
            machine.list(all)
        }
        (of, key) => error(format!("Cannot index {} with {}", of.kind(), key.kind())),
    }
}

fn shallow(value: Value) -> Run<Value> {
    Ok(value.shallow()?)
}

/// Returns the object, or a copy if it has other owners.
fn owned_object(machine: &mut Machine<'_>, of: Value) -> Run<Arc<Object>> {
    match of {
        Value::Object(object) if Arc::strong_count(&object) == 1 => Ok(object),
        Value::Object(object) => {
            machine.budget.steps(object.fields.len())?;
            machine.budget.allocate(object.fields.len().saturating_mul(2 * ITEM))?;
            Ok(Arc::new(Object::clone(&object)))
        }
        _ => match machine.object(Fields::new())? {
            Value::Object(object) => Ok(object),
            _ => lost(),
        },
    }
}

/// Returns the list, or a copy if it has other owners.
fn owned_array(machine: &mut Machine<'_>, of: Value) -> Run<Arc<Array>> {
    match of {
        Value::Array(array) if Arc::strong_count(&array) == 1 => Ok(array),
        Value::Array(array) => {
            machine.budget.steps(array.items.len())?;
            machine.budget.allocate(array.items.len().saturating_mul(ITEM))?;
            Ok(Arc::new(Array::clone(&array)))
        }
        _ => match machine.list(Vec::new())? {
            Value::Array(array) => Ok(array),
            _ => lost(),
        },
    }
}

/// `delpaths`
pub(super) fn delete_paths(machine: &mut Machine<'_>, input: &Value, paths: &Value) -> Run<Value> {
    let mut all = Vec::new();
    for path in &native::items(paths)?.items {
        machine.keep(&mut all, path.clone())?;
    }
    delete_all(machine, input.clone(), all)
}

/// Returns a value without the elements at these paths. The last path is deleted first, so that positions
/// stay valid.
pub(super) fn delete_all(machine: &mut Machine<'_>, input: Value, paths: Vec<Value>) -> Run<Value> {
    if paths.is_empty() {
        return Ok(input);
    }
    machine.budget.allocate(paths.len().saturating_mul(2 * ITEM))?;
    let keyed = paths.into_iter().map(|path| (path, Value::Null)).collect();
    let mut left = input;
    for (path, _) in order::sort(machine, keyed)?.into_iter().rev() {
        let Value::Array(path) = path else { return error("Path must be specified as an array") };
        left = delete(machine, left, &path.items)?;
    }
    Ok(left)
}

fn delete(machine: &mut Machine<'_>, of: Value, path: &[Value]) -> Run<Value> {
    machine.step()?;
    let Some((key, rest)) = path.split_first() else { return Ok(Value::Null) };
    if matches!(of, Value::Null) {
        return Ok(of);
    }
    if !rest.is_empty() {
        let within = get(machine, &of, key)?;
        if matches!(within, Value::Null) {
            return Ok(of);
        }
        let within = delete(machine, within, rest)?;
        return set(machine, of, std::slice::from_ref(key), within);
    }
    match (of, key) {
        (of @ Value::Object(_), Value::Str(name)) => {
            let mut object = owned_object(machine, of)?;
            machine.budget.read(name.len())?;
            if let Some(own) = Arc::get_mut(&mut object) {
                own.fields.remove(name);
            }
            Ok(Value::Object(object))
        }
        (of @ Value::Array(_), Value::Int(_) | Value::Float(_) | Value::Object(_)) => {
            let mut array = owned_array(machine, of)?;
            machine.budget.steps(array.items.len())?;
            let length = array.items.len();
            let (from, to) = match key {
                Value::Object(_) => native::slice_bounds(key, length),
                key => {
                    let at = key.as_float().unwrap_or_default().floor();
                    let at = if at < 0.0 { at + length as f64 } else { at };
                    if at < 0.0 { (0, 0) } else { (at as usize, (at as usize).saturating_add(1)) }
                }
            };
            if let Some(own) = Arc::get_mut(&mut array) {
                let to = to.min(length);
                own.items.drain(from.min(to)..to);
            }
            Ok(Value::Array(array))
        }
        (of, key) => error(format!("Cannot delete field at {} index of {}", key.kind(), of.kind())),
    }
}
