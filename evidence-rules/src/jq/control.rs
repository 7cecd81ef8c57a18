//! Functions that evaluate their arguments themselves.

use super::env::Env;
use super::eval::{Emit, Machine, Run, Stop, error};
use super::native;
use super::order;
use super::paths;
use super::tree::{Control, Node};
use super::value::{Fields, Value};

impl Machine<'_> {
    /// Runs a function. Lowering has checked the number of arguments.
    pub(super) fn control(
        &mut self,
        control: Control,
        arguments: &[Node],
        env: Env<'_>,
        input: Value,
        emit: Emit<'_>,
    ) -> Run {
        match (control, arguments) {
            (Control::Select, [condition]) => self.run(condition, env, input.clone(), &mut |this, holds| {
                if holds.is_truthy() { emit(this, input.clone()) } else { Ok(()) }
            }),
            (Control::Map, [of]) => self.map(of, env, &input, emit),
            (Control::MapValues, [of]) => self.map_values(of, env, &input, emit),
            (Control::WithEntries, [of]) => {
                let entries = native::to_entries(self, &input)?;
                self.map(of, env, &entries, &mut |this, entries| {
                    let object = native::from_entries(this, &entries)?;
                    emit(this, object)
                })
            }
            (Control::AnyOf, _) => self.some(true, None, None, env, &input, emit),
            (Control::AnyBy, [condition]) => self.some(true, None, Some(condition), env, &input, emit),
            (Control::Any, [of, condition]) => self.some(true, Some(of), Some(condition), env, &input, emit),
            (Control::AllOf, _) => self.some(false, None, None, env, &input, emit),
            (Control::AllBy, [condition]) => self.some(false, None, Some(condition), env, &input, emit),
            (Control::All, [of, condition]) => self.some(false, Some(of), Some(condition), env, &input, emit),
            (Control::First, [of]) => self.first(1, of, env, input, emit),
            (Control::Limit, [most, of]) => self.run(most, env, input.clone(), &mut |this, most| match most
                .as_float()
            {
                Some(most) if most >= 0.0 => this.first(most.ceil() as usize, of, env, input.clone(), emit),
                _ => error(format!("limit takes a count, not {} ({})", most.kind(), most.shown())),
            }),
            (Control::Last, [of]) => {
                let mut last = None;
                self.run(of, env, input, &mut |_, value| {
                    last = Some(value);
                    Ok(())
                })?;
                last.map_or(Ok(()), |last| emit(self, last))
            }
            (Control::IsEmpty, [of]) => {
                let mut empty = true;
                self.cut(|this, mark| {
                    this.run(of, env, input, &mut |_, _| {
                        empty = false;
                        Err(Stop::Cut(mark))
                    })
                })?;
                emit(self, Value::Bool(empty))
            }
            (Control::IsIn, [of]) => self.is_in(of, env, &input, &input, emit),
            (Control::AnyIn, [wanted, of]) => {
                let mut found = false;
                self.cut(|this, mark| {
                    this.run(wanted, env, input.clone(), &mut |this, wanted| {
                        this.is_in(of, env, &input, &wanted, &mut |_, holds| match holds.is_truthy() {
                            true => {
                                found = true;
                                Err(Stop::Cut(mark))
                            }
                            false => Ok(()),
                        })
                    })
                })?;
                emit(self, Value::Bool(found))
            }
            (Control::Paths, _) => self.paths(&input, &[], emit),
            (Control::PathsTo, [condition]) => self.paths(&input, &[], &mut |this, path| {
                let value = native::get_path(this, &input, &path)?;
                this.run(condition, env, value, &mut |this, holds| {
                    if holds.is_truthy() { emit(this, path.clone()) } else { Ok(()) }
                })
            }),
            (Control::RangeTo, [to]) => {
                self.run(to, env, input, &mut |this, to| this.range(&Value::Int(0), &to, emit))
            }
            (Control::Range, bounds) => {
                self.arguments(bounds, env, &input, &mut Vec::new(), &mut |this, bounds| match bounds {
                    [from, to] => this.range(from, to, emit),
                    _ => Ok(()),
                })
            }
            (Control::Sum, [of]) => {
                let values = self.all(of, env, input)?;
                let sum = native::sum(self, values.iter())?;
                emit(self, sum)
            }
            (Control::MinBy, [by]) => self.extreme(by, env, &input, false, emit),
            (Control::MaxBy, [by]) => self.extreme(by, env, &input, true, emit),
            (Control::UniqueBy, [by]) => {
                let groups = self.groups(by, env, &input)?;
                let firsts = groups.into_iter().filter_map(|group| group.into_iter().next());
                let firsts = self.list(firsts.collect())?;
                emit(self, firsts)
            }
            (Control::GroupBy, [by]) => {
                let mut lists = Vec::new();
                for group in self.groups(by, env, &input)? {
                    let group = self.list(group)?;
                    self.keep(&mut lists, group)?;
                }
                let lists = self.list(lists)?;
                emit(self, lists)
            }
            (Control::SortBy, [by]) => {
                let keyed = self.keyed(by, env, &input)?;
                let sorted = order::sort(self, keyed)?;
                let sorted = self.list(sorted.into_iter().map(|(_, item)| item).collect())?;
                emit(self, sorted)
            }
            (Control::Values, _) => keep_if(self, !matches!(input, Value::Null), input, emit),
            (Control::Nulls, _) => keep_if(self, matches!(input, Value::Null), input, emit),
            (Control::Booleans, _) => keep_if(self, matches!(input, Value::Bool(_)), input, emit),
            (Control::Numbers, _) => keep_if(self, input.as_float().is_some(), input, emit),
            (Control::Strings, _) => keep_if(self, matches!(input, Value::Str(_)), input, emit),
            (Control::Arrays, _) => keep_if(self, matches!(input, Value::Array(_)), input, emit),
            (Control::Objects, _) => keep_if(self, matches!(input, Value::Object(_)), input, emit),
            (Control::Scalars, _) => keep_if(self, !is_iterable(&input), input, emit),
            (Control::Iterables, _) => keep_if(self, is_iterable(&input), input, emit),
            (Control::Empty, _) => Ok(()),
            (Control::Path, [of]) => self.located(of, env, &input, &mut |this, path| {
                let path = this.list(path)?;
                emit(this, path)
            }),
            (Control::Delete, [of]) => {
                let mut paths = Vec::new();
                self.located(of, env, &input, &mut |this, path| {
                    let path = this.list(path)?;
                    this.keep(&mut paths, path)
                })?;
                let rest = paths::delete_all(self, input, paths)?;
                emit(self, rest)
            }
            (Control::Walk, [of]) => self.walk(of, env, input, emit),
            (Control::Recurse | Control::Repeat, [of]) => self.unfold(&Unfold::by(of, env), input, emit),
            (Control::RecurseIf, [of, condition]) => {
                let unfold = Unfold { only: Some(condition), ..Unfold::by(of, env) };
                self.unfold(&unfold, input, emit)
            }
            (Control::While, [condition, of]) => {
                let unfold = Unfold { during: Some(condition), ..Unfold::by(of, env) };
                self.unfold(&unfold, input, emit)
            }
            (Control::Until, [condition, of]) => {
                let unfold = Unfold { until: Some(condition), ..Unfold::by(of, env) };
                self.unfold(&unfold, input, emit)
            }
            // Lowering gives each function its arguments, so this is unreachable.
            (control, arguments) => error(format!("{control:?} takes no {} arguments", arguments.len())),
        }
    }

    /// Emits a value and its successors repeatedly. It is iterative, so the number of turns is not bounded by
    /// the stack.
    fn unfold(&mut self, unfold: &Unfold<'_>, input: Value, emit: Emit<'_>) -> Run {
        let Unfold { next, env, only, during, until } = *unfold;
        let holds = |this: &mut Self, condition: Option<&Node>, value: &Value| match condition {
            Some(condition) => Ok(this.all(condition, env, value.clone())?.iter().any(Value::is_truthy)),
            None => Ok::<_, Stop>(true),
        };
        let mut open = vec![Turn::Value(input)];
        while let Some(turn) = open.pop() {
            self.step()?;
            let value = match turn {
                Turn::Value(value) => value,
                Turn::Stop(stop) => return Err(stop),
            };
            if !holds(self, during, &value)? {
                continue;
            }
            match until {
                None => emit(self, value.clone())?,
                Some(_) if holds(self, until, &value)? => {
                    emit(self, value)?;
                    continue;
                }
                Some(_) => {}
            }
            let (values, ended) = self.kept(next, env, value);
            if let Err(stop) = ended {
                open.push(Turn::Stop(stop));
            }
            for value in values.into_iter().rev() {
                if holds(self, only, &value)? {
                    self.budget.allocate(super::value::ITEM)?;
                    open.push(Turn::Value(value));
                }
            }
        }
        Ok(())
    }

    /// Applies a part to all values within a value, innermost first.
    fn walk(&mut self, of: &Node, env: Env<'_>, value: Value, emit: Emit<'_>) -> Run {
        self.nested(|this| this.walk_value(of, env, value, emit))
    }

    fn walk_value(&mut self, of: &Node, env: Env<'_>, value: Value, emit: Emit<'_>) -> Run {
        let walked = match &value {
            Value::Array(array) => {
                let mut items = Vec::new();
                for item in &array.items {
                    self.walk(of, env, item.clone(), &mut |this, value| this.keep(&mut items, value))?;
                }
                self.list(items)?
            }
            Value::Object(object) => {
                let mut fields = Fields::new();
                for (name, value) in &object.fields {
                    self.step()?;
                    let mut first = None;
                    self.walk(of, env, value.clone(), &mut |_, value| {
                        first.get_or_insert(value);
                        Ok(())
                    })?;
                    if let Some(value) = first {
                        fields.insert(name.clone(), value);
                    }
                }
                self.object(fields)?
            }
            _ => value,
        };
        self.run(of, env, walked, emit)
    }

    /// Emits whether one of the results of a part equals this value.
    fn is_in(&mut self, of: &Node, env: Env<'_>, input: &Value, wanted: &Value, emit: Emit<'_>) -> Run {
        let mut found = false;
        self.cut(|this, mark| {
            this.run(of, env, input.clone(), &mut |this, value| {
                found = value.equals(wanted, this.budget)?;
                if found { Err(Stop::Cut(mark)) } else { Ok(()) }
            })
        })?;
        emit(self, Value::Bool(found))
    }

    /// Emits the paths to all values within a value, each before those within it. `before` is the path of the
    /// value itself.
    fn paths(&mut self, of: &Value, before: &[Value], emit: Emit<'_>) -> Run {
        match of {
            Value::Array(array) => {
                for (position, value) in array.items.iter().enumerate() {
                    self.paths_below(before, native::count(position), value, emit)?;
                }
            }
            Value::Object(object) => {
                for (name, value) in &object.fields {
                    self.paths_below(before, Value::Str(name.clone()), value, emit)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Emits the path to the value under this key, and the paths to all values within it.
    fn paths_below(&mut self, before: &[Value], key: Value, value: &Value, emit: Emit<'_>) -> Run {
        let mut path = Vec::new();
        for key in before {
            self.keep(&mut path, key.clone())?;
        }
        self.keep(&mut path, key)?;
        let list = self.list(path.clone())?;
        emit(self, list)?;
        self.paths(value, &path, emit)
    }

    fn map(&mut self, of: &Node, env: Env<'_>, input: &Value, emit: Emit<'_>) -> Run {
        let mut items = Vec::new();
        self.each(input, false, &mut |this, item| {
            this.run(of, env, item, &mut |this, value| this.keep(&mut items, value))
        })?;
        let list = self.list(items)?;
        emit(self, list)
    }

    /// Replaces each value with the first result for it, and drops it if there is none.
    fn map_values(&mut self, of: &Node, env: Env<'_>, input: &Value, emit: Emit<'_>) -> Run {
        match input {
            Value::Object(object) => {
                let mut fields = Fields::new();
                for (name, value) in &object.fields {
                    self.step()?;
                    self.first(1, of, env, value.clone(), &mut |_, value| {
                        fields.insert(name.clone(), value);
                        Ok(())
                    })?;
                }
                let object = self.object(fields)?;
                emit(self, object)
            }
            other => {
                let mut items = Vec::new();
                self.each(other, false, &mut |this, item| {
                    this.first(1, of, env, item, &mut |this, value| this.keep(&mut items, value))
                })?;
                let list = self.list(items)?;
                emit(self, list)
            }
        }
    }

    /// Emits whether any item, or any result of a part, meets the condition; if `looks_for` is false, whether
    /// all do.
    fn some(
        &mut self,
        looks_for: bool,
        of: Option<&Node>,
        condition: Option<&Node>,
        env: Env<'_>,
        input: &Value,
        emit: Emit<'_>,
    ) -> Run {
        let mut found = false;
        self.cut(|this, mark| {
            let mut look = |value: &Value| {
                if value.is_truthy() == looks_for {
                    found = true;
                    return Err(Stop::Cut(mark));
                }
                Ok(())
            };
            let mut each = |this: &mut Machine<'_>, item: Value| match condition {
                Some(condition) => this.run(condition, env, item, &mut |_, holds| look(&holds)),
                None => look(&item),
            };
            match of {
                Some(of) => this.run(of, env, input.clone(), &mut each),
                None => this.each(input, false, &mut each),
            }
        })?;
        emit(self, Value::Bool(found == looks_for))
    }

    /// Emits at most `most` results of a part.
    pub(super) fn first(
        &mut self,
        most: usize,
        of: &Node,
        env: Env<'_>,
        input: Value,
        emit: Emit<'_>,
    ) -> Run {
        if most == 0 {
            return Ok(());
        }
        let mut left = most;
        self.cut(|this, mark| {
            this.run(of, env, input, &mut |this, value| {
                left -= 1;
                emit(this, value)?;
                if left == 0 { Err(Stop::Cut(mark)) } else { Ok(()) }
            })
        })
    }

    fn range(&mut self, from: &Value, to: &Value, emit: Emit<'_>) -> Run {
        let (Some(first), Some(end)) = (from.as_float(), to.as_float()) else {
            return error("Range bounds must be numeric");
        };
        if let (Value::Int(first), Value::Int(end)) = (from, to) {
            for number in *first..*end {
                self.step()?;
                emit(self, Value::Int(number))?;
            }
            return Ok(());
        }
        let mut number = first;
        while number < end {
            self.step()?;
            emit(self, Value::number(number).unwrap_or(Value::Null))?;
            if number + 1.0 <= number {
                return error("Range bounds must be smaller");
            }
            number += 1.0;
        }
        Ok(())
    }

    /// Returns the items of a list, each with its key.
    fn keyed(&mut self, by: &Node, env: Env<'_>, input: &Value) -> Run<Vec<(Value, Value)>> {
        let Value::Array(array) = input else {
            return error(format!("Cannot index {} with number", input.kind()));
        };
        let mut keyed = Vec::new();
        for item in &array.items {
            self.step()?;
            let keys = self.all(by, env, item.clone())?;
            let key = self.list(keys)?;
            self.budget.allocate(2 * super::value::ITEM)?;
            keyed.push((key, item.clone()));
        }
        Ok(keyed)
    }

    /// Groups the items by key, sorted by key.
    fn groups(&mut self, by: &Node, env: Env<'_>, input: &Value) -> Run<Vec<Vec<Value>>> {
        let keyed = self.keyed(by, env, input)?;
        let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
        for (key, item) in order::sort(self, keyed)? {
            match groups.last_mut() {
                Some((last, group)) if last.equals(&key, self.budget)? => self.keep(group, item)?,
                _ => {
                    self.budget.allocate(4 * super::value::ITEM)?;
                    groups.push((key, vec![item]));
                }
            }
        }
        Ok(groups.into_iter().map(|(_, group)| group).collect())
    }

    /// Emits the first item with the smallest key, or the last item with the greatest key.
    fn extreme(&mut self, by: &Node, env: Env<'_>, input: &Value, greatest: bool, emit: Emit<'_>) -> Run {
        let keyed = self.keyed(by, env, input)?;
        let found = order::extreme(self, keyed, greatest)?;
        emit(self, found)
    }
}

const fn is_iterable(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

fn keep_if(machine: &mut Machine<'_>, keep: bool, value: Value, emit: Emit<'_>) -> Run {
    if keep { emit(machine, value) } else { Ok(()) }
}

/// The parameters of an unfold.
struct Unfold<'n> {
    /// Produces the successors of a value.
    next: &'n Node,
    env: Env<'n>,
    /// Keeps only successors that meet this condition.
    only: Option<&'n Node>,
    /// Stops before the first value that does not meet this condition.
    during: Option<&'n Node>,
    /// Emits only the first value that meets this condition.
    until: Option<&'n Node>,
}

impl<'n> Unfold<'n> {
    const fn by(next: &'n Node, env: Env<'n>) -> Self {
        Self { next, env, only: None, during: None, until: None }
    }
}

/// A pending turn.
enum Turn {
    Value(Value),
    /// The successors of a value ended like this.
    Stop(Stop),
}
