//! Functions that take patterns: `test`, `match`, `capture`, `scan`, `split`, `sub` and `gsub`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::env::Env;
use super::eval::{Emit, Machine, Run, error};
use super::native::{count, refuse};
use super::pattern::{Flags, Found, Pattern};
use super::tree::{Matching, Node, Source};
use super::value::{Fields, Value};

/// The cost of compiling a pattern while a filter runs: steps, and bytes of memory.
const COMPILED_STEPS: usize = 20_000;
const COMPILED_BYTES: usize = 64 << 10;

/// The patterns that were compiled in a run, by text and flags.
pub(super) type Patterns = BTreeMap<(Arc<str>, Arc<str>), (Arc<Pattern>, Flags)>;

impl Machine<'_> {
    /// Runs a function that takes a pattern.
    pub(super) fn matched(
        &mut self,
        matching: Matching,
        source: &Source,
        replacement: Option<&Node>,
        env: Env<'_>,
        input: &Value,
        emit: Emit<'_>,
    ) -> Run {
        match source {
            Source::Literal(pattern, flags) => {
                self.matched_by(matching, pattern, *flags, replacement, env, input, emit)
            }
            Source::Dynamic(pattern, flags) => self.run(flags, env, input.clone(), &mut |this, flags| {
                this.run(pattern, env, input.clone(), &mut |this, pattern| {
                    let (pattern, flags) = this.pattern(&pattern, &flags)?;
                    this.matched_by(matching, &pattern, flags, replacement, env, input, emit)
                })
            }),
        }
    }

    /// Returns the pattern of two values: its text and its flags, or a list of both.
    fn pattern(&mut self, pattern: &Value, flags: &Value) -> Run<(Arc<Pattern>, Flags)> {
        let (pattern, flags) = match (pattern, flags) {
            (Value::Array(both), Value::Null) => {
                (both.items.first().unwrap_or(&Value::Null), both.items.get(1).unwrap_or(&Value::Null))
            }
            both => both,
        };
        let letters: Arc<str> = match flags {
            Value::Null => "".into(),
            Value::Str(letters) => Arc::clone(letters),
            other => return refuse(other, "is not a string of flags"),
        };
        let Value::Str(text) = pattern else {
            return refuse(pattern, "cannot be matched, as it is not a string");
        };
        self.budget.read(text.len() + letters.len())?;
        let key = (Arc::clone(text), letters);
        if let Some((known, flags)) = self.patterns.get(&key) {
            return Ok((Arc::clone(known), *flags));
        }
        self.budget.steps(COMPILED_STEPS)?;
        self.budget.allocate(COMPILED_BYTES)?;
        let compiled = Flags::read(&key.1)
            .map_err(|letter| format!("the flag '{letter}' is not known"))
            .and_then(|flags| Ok((Arc::new(Pattern::small(text, flags)?), flags)));
        match compiled {
            Ok(compiled) => {
                self.patterns.insert(key, compiled.clone());
                Ok(compiled)
            }
            Err(why) => refuse(pattern, &format!("is not a pattern that is allowed: {why}")),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one function of jq")]
    fn matched_by(
        &mut self,
        matching: Matching,
        pattern: &Pattern,
        flags: Flags,
        replacement: Option<&Node>,
        env: Env<'_>,
        input: &Value,
        emit: Emit<'_>,
    ) -> Run {
        let Value::Str(text) = input else {
            return error(format!(
                "{} ({}) cannot be matched, as it is not a string",
                input.kind(),
                input.shown()
            ));
        };
        if matching == Matching::Test {
            let found = pattern.is_in(text, self.budget)?;
            return emit(self, Value::Bool(found));
        }
        let global = flags.global || matches!(matching, Matching::Scan | Matching::Split | Matching::Splits);
        if matching == Matching::Sub || matches!(matching, Matching::Split | Matching::Splits) {
            let found = self.places(pattern, text, global)?;
            return match (matching, replacement) {
                (Matching::Sub, Some(replacement)) => {
                    self.substituted(pattern, text, &found, replacement, env, emit)
                }
                _ => self.split_at(matching, text, &found, emit),
            };
        }
        let (mut from, mut letters) = (0, Letters::default());
        while let Some(found) = pattern.find(text, from, self.budget)? {
            let value = match matching {
                Matching::Capture => self.captures(pattern, text, &found)?,
                Matching::Scan => self.scanned(text, &found)?,
                _ => self.match_object(pattern, text, &found, &mut letters)?,
            };
            emit(self, value)?;
            match next(text, &found).filter(|_| global) {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Returns the matches of a pattern: the first, or all.
    fn places(&mut self, pattern: &Pattern, text: &str, global: bool) -> Run<Vec<Found>> {
        let (mut all, mut from) = (Vec::new(), 0);
        while let Some(found) = pattern.find(text, from, self.budget)? {
            self.budget.allocate(size_of::<Found>())?;
            let next = next(text, &found);
            all.push(found);
            match next.filter(|_| global) {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(all)
    }

    fn group(&mut self, text: &str, group: Option<(usize, usize)>) -> Run<Value> {
        match group.and_then(|(begin, end)| text.get(begin..end)) {
            Some(part) => self.string(part),
            None => Ok(Value::Null),
        }
    }

    /// Builds a result of `match`.
    fn match_object(
        &mut self,
        pattern: &Pattern,
        text: &str,
        found: &Found,
        letters: &mut Letters,
    ) -> Run<Value> {
        let begin = found.first().copied().flatten().map_or(0, |(begin, _)| begin);
        let offset = letters.before(self, text, begin)?;
        let mut captures = Vec::new();
        let mut whole = Fields::new();
        for (position, (group, name)) in found.iter().zip(pattern.names()).enumerate() {
            let string = self.group(text, *group)?;
            let (at, length) = match group {
                Some((start, end)) => {
                    self.budget.read(end - begin)?;
                    let letters =
                        |from: usize, to: usize| text.get(from..to).map_or(0, |part| part.chars().count());
                    (count(offset + letters(begin, *start)), count(letters(*start, *end)))
                }
                None => (Value::Int(-1), Value::Int(0)),
            };
            let mut fields =
                Fields::from([("offset".into(), at), ("length".into(), length), ("string".into(), string)]);
            if position == 0 {
                whole = fields;
                continue;
            }
            let name = match name {
                Some(name) => self.string(name)?,
                None => Value::Null,
            };
            fields.insert("name".into(), name);
            let capture = self.object(fields)?;
            self.keep(&mut captures, capture)?;
        }
        whole.insert("captures".into(), self.list(captures)?);
        self.object(whole)
    }

    /// Builds a result of `capture`.
    fn captures(&mut self, pattern: &Pattern, text: &str, found: &Found) -> Run<Value> {
        let mut fields = Fields::new();
        for (group, name) in found.iter().zip(pattern.names()) {
            if let Some(name) = name {
                let value = self.group(text, *group)?;
                self.budget.bytes(name.len())?;
                fields.insert(name.into(), value);
            }
        }
        self.object(fields)
    }

    /// Builds a result of `scan`.
    fn scanned(&mut self, text: &str, found: &Found) -> Run<Value> {
        match found.as_slice() {
            [whole] => self.group(text, *whole),
            [_, groups @ ..] => {
                let mut parts = Vec::new();
                for group in groups {
                    let part = self.group(text, *group)?;
                    self.keep(&mut parts, part)?;
                }
                self.list(parts)
            }
            [] => Ok(Value::Null),
        }
    }

    /// Runs `split` and `splits`.
    fn split_at(&mut self, matching: Matching, text: &str, found: &[Found], emit: Emit<'_>) -> Run {
        let mut parts = Vec::new();
        let mut from = 0;
        for (begin, end) in found.iter().filter_map(|found| found.first().copied().flatten()) {
            let part = self.string(text.get(from..begin).unwrap_or_default())?;
            self.keep(&mut parts, part)?;
            from = end;
        }
        let part = self.string(text.get(from..).unwrap_or_default())?;
        self.keep(&mut parts, part)?;
        if matching == Matching::Split {
            let parts = self.list(parts)?;
            return emit(self, parts);
        }
        parts.into_iter().try_for_each(|part| emit(self, part))
    }

    /// Runs `sub` and `gsub`. Emits the text for each combination of replacements; those of the first match
    /// vary fastest.
    fn substituted(
        &mut self,
        pattern: &Pattern,
        text: &str,
        found: &[Found],
        replacement: &Node,
        env: Env<'_>,
        emit: Emit<'_>,
    ) -> Run {
        let (mut choices, mut combinations) = (Vec::new(), 1_usize);
        for found in found {
            let instead = match replacement {
                // A literal needs no captures.
                Node::Constant(value) => vec![value.clone()],
                _ => {
                    let captures = self.captures(pattern, text, found)?;
                    self.all(replacement, env, captures)?
                }
            };
            self.budget.steps(1 + instead.len())?;
            self.budget.allocate(size_of::<Vec<Value>>())?;
            if let Some(other) = instead.iter().find(|value| !matches!(value, Value::Str(_))) {
                return refuse(other, "cannot be added to a string");
            }
            combinations = combinations.saturating_mul(instead.len());
            choices.push(instead);
        }
        for combination in 0..combinations {
            let (mut made, mut from, mut rest) = (String::new(), 0, combination);
            for (found, choices) in found.iter().zip(&choices) {
                self.step()?;
                let (begin, end) = found.first().copied().flatten().unwrap_or_default();
                let choice = choices.get(rest % choices.len().max(1));
                rest /= choices.len().max(1);
                let kept = text.get(from..begin).unwrap_or_default();
                let Some(Value::Str(instead)) = choice else { continue };
                self.budget.bytes(kept.len() + instead.len())?;
                made.push_str(kept);
                made.push_str(instead);
                from = end;
            }
            let kept = text.get(from..).unwrap_or_default();
            self.budget.bytes(kept.len())?;
            made.push_str(kept);
            let made = self.string(&made)?;
            emit(self, made)?;
        }
        Ok(())
    }
}

/// Returns the position at which the search continues after a match; after an empty match, it skips one
/// character. Returns `None` at the end.
fn next(text: &str, found: &Found) -> Option<usize> {
    let (begin, end) = found.first().copied().flatten()?;
    if begin < end {
        return Some(end);
    }
    text.get(end..)?.chars().next().map(|letter| end + letter.len_utf8())
}

/// Counts characters incrementally from one position to the next.
#[derive(Default)]
struct Letters {
    bytes: usize,
    letters: usize,
}

impl Letters {
    /// Returns the number of characters before this byte, which must not be earlier than the previous one.
    fn before(&mut self, machine: &mut Machine<'_>, text: &str, byte: usize) -> Run<usize> {
        machine.budget.read(byte.saturating_sub(self.bytes))?;
        self.letters += text.get(self.bytes..byte).map_or(0, |part| part.chars().count());
        self.bytes = byte;
        Ok(self.letters)
    }
}
