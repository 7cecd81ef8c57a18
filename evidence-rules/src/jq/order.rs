//! Functions that order values.

use std::cmp::Ordering;

use super::eval::{Machine, Run};
use super::native::items;
use super::value::{ITEM, Value};

/// Sorts by key with a stable bottom-up merge sort. A comparison may end the run, which the standard
/// library's sorts do not allow.
pub(super) fn sort(machine: &mut Machine<'_>, mut keyed: Vec<(Value, Value)>) -> Run<Vec<(Value, Value)>> {
    let mut width = 1;
    while width < keyed.len() {
        machine.budget.steps(keyed.len())?;
        let mut merged = Vec::with_capacity(keyed.len());
        let mut rest = keyed.into_iter();
        loop {
            let left: Vec<_> = rest.by_ref().take(width).collect();
            if left.is_empty() {
                break;
            }
            let right: Vec<_> = rest.by_ref().take(width).collect();
            let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
            while let (Some((one, _)), Some((other, _))) = (left.peek(), right.peek()) {
                let order = one.compare(other, machine.budget)?;
                merged.extend(if order.is_gt() { right.next() } else { left.next() });
            }
            merged.extend(left);
            merged.extend(right);
        }
        keyed = merged;
        width *= 2;
    }
    Ok(keyed)
}

pub(super) fn itself(machine: &mut Machine<'_>, input: &Value) -> Run<Vec<(Value, Value)>> {
    let array = items(input)?;
    machine.budget.steps(array.items.len())?;
    machine.budget.allocate(array.items.len().saturating_mul(4 * ITEM))?;
    Ok(array.items.iter().map(|item| (item.clone(), item.clone())).collect())
}

pub(super) fn sorted(machine: &mut Machine<'_>, input: &Value, unique: bool) -> Run<Value> {
    let keyed = itself(machine, input)?;
    let mut kept: Vec<Value> = Vec::new();
    for (item, _) in sort(machine, keyed)? {
        match kept.last() {
            Some(last) if unique && last.equals(&item, machine.budget)? => {}
            _ => machine.keep(&mut kept, item)?,
        }
    }
    machine.list(kept)
}

pub(super) fn extreme_item(machine: &mut Machine<'_>, input: &Value, greatest: bool) -> Run<Value> {
    let keyed = itself(machine, input)?;
    extreme(machine, keyed, greatest)
}

/// Returns the first item with the smallest key, or the last item with the greatest key; null if there are
/// none.
pub(super) fn extreme(machine: &mut Machine<'_>, keyed: Vec<(Value, Value)>, greatest: bool) -> Run<Value> {
    let mut best: Option<(Value, Value)> = None;
    for (key, item) in keyed {
        let order = match &best {
            Some((known, _)) => key.compare(known, machine.budget)?,
            None => Ordering::Less,
        };
        if best.is_none() || (order.is_lt() != greatest) {
            best = Some((key, item));
        }
    }
    Ok(best.map_or(Value::Null, |(_, item)| item))
}
