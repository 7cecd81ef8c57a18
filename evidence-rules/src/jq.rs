//! Rules of custom attestation types: jq programs with bounded steps and memory, and no input but their data
//! and the time of the record. Tenants write them, and the service runs them beside the requests of all other
//! tenants.
//!
//! jaq's parser reads the text, after a scan that bounds the parser's recursion. Lowering rejects names that
//! are not allowed, when the type is created. The evaluator is our own, because jaq's has no budget. It
//! charges a [`Budget`] before each step and each allocation, and it limits the nesting of calls. Exceeding a
//! limit is an error that no filter can catch. A program cannot read the clock, the environment, a file or
//! another input, so the same data and time give the same verdict.
//!
//! Differences from jq:
//! - The fields of an object are sorted by name.
//! - Integers are exact to 64 bits.
//! - Each number is finite, so 0/0 is an error.
//! - Error messages are worded a little differently.
//!
//! `docs/rules-language.md` lists the supported features.
//!
//! ```
//! use evidence_values::json::parse;
//! use evidence_rules::jq::{Budget, Filter, Outcome, Value};
//! use evidence_values::time::Timestamp;
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
use eval::{Machine, Stop};
use evidence_values::time::Timestamp;
use lower::{Lowered, lower};

/// The limits of one rule: steps, and bytes of memory.
const FUEL: usize = 4_000_000;
const MEMORY: usize = 64 << 20;

/// Maximum number of steps of all rules of one attestation together.
const SHARED_FUEL: usize = 2 * FUEL;

/// Maximum number of results of a filter.
const MAX_OUTPUTS: usize = 1_000;

/// Maximum number of patterns in one filter, or in all rules of a type.
pub const MAX_PATTERNS: usize = 16;

/// Maximum number of parts in the filters of one type together.
pub const MAX_PARTS: usize = 16 << 10;

/// Approximate memory use of a part of a filter in bytes, including its texts.
const PART_BYTES: usize = 128;

/// The reason why a filter is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refused {
    text: String,
    /// The position of the error as a character, counted from 1; `None` if it has no position.
    character: Option<usize>,
}

impl Refused {
    /// Rejects the source because of the text at this byte.
    fn at(source: &str, byte: usize, text: String) -> Self {
        let before = source.char_indices().take_while(|(at, _)| *at < byte).count();
        Self { text, character: Some(before + 1) }
    }

    /// Rejects the source as a whole.
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

/// The reason why a filter has no results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It ended with this error.
    Error(String),
    /// It exceeded a limit.
    Limit(Limit),
}

/// The result of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It has results, and all of them are `true`.
    True,
    /// It has no results, or one that is not `true`.
    False,
    /// It ended with this error.
    Error(String),
    /// It exceeded a limit.
    Limit(Limit),
}

impl Budget {
    /// Returns the budget that all rules of one attestation share.
    pub const fn of_rules() -> Self {
        Self::new(SHARED_FUEL, MEMORY)
    }
}

impl Filter {
    /// Compiles the text of a filter.
    ///
    /// # Errors
    /// Returns what is not allowed or is not valid jq, and its position.
    pub fn compile(source: &str) -> Result<Self, Refused> {
        Self::compile_with(source, MAX_PATTERNS)
    }

    /// Compiles the text of a filter with at most this number of patterns.
    #[doc(hidden)]
    pub fn compile_with(source: &str, patterns: usize) -> Result<Self, Refused> {
        lower(source, patterns).map(Self)
    }

    /// Returns the number of patterns.
    #[doc(hidden)]
    pub const fn patterns(&self) -> usize {
        self.0.patterns
    }

    /// Returns the number of parts.
    #[doc(hidden)]
    pub const fn parts(&self) -> usize {
        self.0.nodes
    }

    /// Returns whether the filter uses the time of the record.
    #[doc(hidden)]
    pub const fn asks_for_time(&self) -> bool {
        self.0.asks_for_time
    }

    /// Returns the approximate memory use in bytes.
    #[doc(hidden)]
    pub const fn bytes(&self) -> usize {
        self.0.nodes * PART_BYTES + self.0.pattern_bytes
    }

    /// Evaluates the rule for the data at this time. Its steps are charged to the budget; its memory has a
    /// separate limit.
    pub fn holds(&self, data: &Value, now: Timestamp, budget: &mut Budget) -> Outcome {
        match self.results(data, now, budget) {
            Ok(results) if results.is_empty() => Outcome::False,
            Ok(results) if results.iter().all(|result| matches!(result, Value::Bool(true))) => Outcome::True,
            Ok(_) => Outcome::False,
            Err(Failure::Limit(limit)) => Outcome::Limit(limit),
            Err(Failure::Error(text)) => Outcome::Error(text),
        }
    }

    /// Returns the results of the filter at this time. Its steps are charged to the budget; its memory has a
    /// separate limit.
    ///
    /// # Errors
    /// The filter ended with an error, or exceeded a limit.
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
            // A cut is normally caught by the part that created it, so one that arrives here ends the run.
            Ok(()) | Err(Stop::Cut(_)) => Ok(results),
            Err(Stop::Limit(limit)) => Err(Failure::Limit(limit)),
            Err(Stop::Error(Value::Str(text))) => {
                Err(Failure::Error(evidence_values::decode::shortened(&text).to_string()))
            }
            Err(Stop::Error(value)) => Err(Failure::Error(value.shown())),
        }
    }
}

#[cfg(test)]
mod tests;
