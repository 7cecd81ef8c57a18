//! Rules of custom attestation types: jq, in which every program ends within a bounded number of steps and bytes, and knows
//! nothing but its input and the time of the record. A tenant writes them, and the service runs them beside the requests of
//! all others.
//!
//! jaq's parser reads the text, after a scan that bounds the parser's recursion. Lowering refuses names that are not allowed
//! when the type is made. The evaluator is our own, because jaq's has no budget: it asks a [`Budget`] before each step and
//! before it makes anything, and its calls nest only so deep. A limit is an error that no filter can catch. Nothing reads the
//! clock, the environment, a file or another input, so a verdict can be reached again from the same data and time.
//!
//! What differs from jq: the fields of an object come sorted by name, integers are exact to 64 bits, each number is finite
//! (so 0/0 is an error), and the messages of errors are worded a little differently. `docs/rules-language.md` lists what is
//! supported.
//!
//! ```
//! use evidence_core::json::parse;
//! use evidence_core::rules::jq::{Budget, Filter, Outcome, Value};
//! use evidence_core::time::Timestamp;
//!
//! let rule = Filter::compile("def ok: any(. == \"ok\"); .age >= 21 and (.tags | ok)")?;
//! let data = Value::of(&parse(br#"{"age": 34, "tags": ["ok"]}"#)?);
//! let now = Timestamp::from_seconds(1_783_538_510);
//! assert_eq!(rule.holds(&data, now, &mut Budget::of_rules()), Outcome::True);
//! let refused = Filter::compile("env.HOME").unwrap_err().to_string();
//! assert_eq!(refused, "not allowed: env/0: a rule knows nothing of the server (at character 1)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod control;
mod env;
mod eval;
mod format;
mod library;
mod lower;
mod matching;
mod native;
mod order;
mod paths;
mod pattern;
mod scan;
mod text;
mod time;
mod tree;
mod value;

use std::fmt;

pub use budget::{Budget, Limit};
pub use value::Value;

use super::deep;
use crate::time::Timestamp;
use eval::{Machine, Stop};
use lower::{Lowered, lower};

/// The steps that one rule may take, and the bytes that it may make.
const FUEL: usize = 4_000_000;
const MEMORY: usize = 64 << 20;

/// The steps that all rules of one attestation may take together.
const SHARED_FUEL: usize = 2 * FUEL;

/// A filter has no more results.
const MAX_OUTPUTS: usize = 1_000;

/// The patterns of one filter, or of all rules of a type.
pub const MAX_PATTERNS: usize = 16;

/// Filters of one type have no more parts together.
pub const MAX_PARTS: usize = 16 << 10;

/// What a part of a filter takes, with its texts.
const PART_BYTES: usize = 128;

/// Why a filter's text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refused {
    text: String,
    /// The character, from 1, where there is one.
    character: Option<usize>,
}

impl Refused {
    /// Refused for what stands at this byte.
    fn at(source: &str, byte: usize, text: String) -> Self {
        let before = source.char_indices().take_while(|(at, _)| *at < byte).count();
        Self { text, character: Some(before + 1) }
    }

    /// Refused as a whole.
    fn whole(text: String) -> Self {
        Self { text, character: None }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.character {
            Some(character) => write!(f, " (at character {character})"),
            None => Ok(()),
        }
    }
}

/// A compiled filter.
#[derive(Debug)]
pub struct Filter(Lowered);

/// Why a filter has no results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It ended in this error.
    Error(String),
    /// It needs more than it may have.
    Limit(Limit),
}

/// What came of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It has results, and all of them are `true`.
    True,
    /// It has none, or one that is something else.
    False,
    /// It ended in this error.
    Error(String),
    /// It needs more than a rule may have.
    Limit(Limit),
}

impl Budget {
    /// What the rules of one attestation have together.
    pub const fn of_rules() -> Self {
        Self::new(SHARED_FUEL, MEMORY)
    }
}

impl Filter {
    /// Compiles a filter's text.
    ///
    /// # Errors
    /// What is not allowed, or no jq, and where.
    pub fn compile(source: &str) -> Result<Self, Refused> {
        Self::compile_with(source, MAX_PATTERNS)
    }

    /// The same with at most so many patterns.
    pub(crate) fn compile_with(source: &str, patterns: usize) -> Result<Self, Refused> {
        lower(source, patterns).map(Self)
    }

    /// How many patterns it has.
    pub(crate) const fn patterns(&self) -> usize {
        self.0.patterns
    }

    /// How many parts it has.
    pub(crate) const fn parts(&self) -> usize {
        self.0.nodes
    }

    /// Whether it asks for the time of the record.
    pub(crate) const fn asks_for_time(&self) -> bool {
        self.0.asks_for_time
    }

    /// About how many bytes of memory it takes.
    pub(crate) const fn bytes(&self) -> usize {
        self.0.nodes * PART_BYTES + self.0.pattern_bytes
    }

    /// Whether the data fit the rule at this time. It takes its steps from the budget, and has memory of its own.
    pub fn holds(&self, data: &Value, now: Timestamp, budget: &mut Budget) -> Outcome {
        match self.results(data, now, budget) {
            Ok(results) if results.is_empty() => Outcome::False,
            Ok(results) if results.iter().all(|result| matches!(result, Value::Bool(true))) => Outcome::True,
            Ok(_) => Outcome::False,
            Err(Failure::Limit(limit)) => Outcome::Limit(limit),
            Err(Failure::Error(text)) => Outcome::Error(text),
        }
    }

    /// The results of the filter at this time. It takes its steps from the budget, and has memory of its own.
    ///
    /// # Errors
    /// The filter ended in an error, or exceeded a limit.
    pub fn results(&self, data: &Value, now: Timestamp, budget: &mut Budget) -> Result<Vec<Value>, Failure> {
        let mut own = Budget::new(budget.fuel().min(FUEL), MEMORY);
        let before = own.fuel();
        let results = self.run(data, now, &mut own);
        budget.steps(before - own.fuel()).map_err(Failure::Limit)?;
        results
    }

    fn run(&self, input: &Value, now: Timestamp, budget: &mut Budget) -> Result<Vec<Value>, Failure> {
        if !self.0.is_deep {
            return self.run_here(input, now, budget);
        }
        let no_thread = |_| Err(Failure::Error("the server has no thread for it at the moment".to_owned()));
        deep::run(|| self.run_here(input, now, budget)).unwrap_or_else(no_thread)
    }

    fn run_here(&self, input: &Value, now: Timestamp, budget: &mut Budget) -> Result<Vec<Value>, Failure> {
        let mut machine = Machine::new(&self.0.library, now, budget);
        let mut results = Vec::new();
        let ended = machine.run(&self.0.node, None, input.clone(), &mut |machine, value| {
            if results.len() == MAX_OUTPUTS {
                return Err(Stop::Limit(Limit::Outputs));
            }
            machine.keep(&mut results, value)
        });
        match ended {
            // The part that marked a cut ends it.
            Ok(()) | Err(Stop::Cut(_)) => Ok(results),
            Err(Stop::Limit(limit)) => Err(Failure::Limit(limit)),
            Err(Stop::Error(Value::Str(text))) => {
                Err(Failure::Error(crate::decode::shortened(&text).to_string()))
            }
            Err(Stop::Error(value)) => Err(Failure::Error(value.shown())),
        }
    }
}

#[cfg(test)]
mod tests;
