//! Rules of custom attestation types: a subset of jq in which every program ends, in bounded time, memory and stack, and
//! knows nothing but its input. A tenant writes them and the service runs them, beside everybody else's requests.
//!
//! The text is read by jaq's parser, after a scan that bounds what its recursion may take, and lowered to a tree of what is
//! allowed: everything else is refused by its name when the type is made. There are no definitions and no recursion, so no
//! part of a filter runs itself. The evaluator is ours. It asks a [`Budget`] before each step, and before it makes
//! anything; what exceeds it ends in an error that no filter can catch. Nothing reads the clock, the environment, a file or
//! another input, so that a verdict can be reached again from the same data.
//!
//! What differs from jq: the fields of an object come sorted by name, integers are exact to 64 bits, a result that is no
//! number (0/0) is an error, and messages of errors are worded a little differently.
//!
//! ```
//! use evidence_core::json::parse;
//! use evidence_core::rules::jq::{Budget, Filter, Outcome, Value};
//!
//! let rule = Filter::compile(".age >= 21 and (.tags | any(. == \"ok\"))")?;
//! let data = Value::of(&parse(br#"{"age": 34, "tags": ["ok"]}"#)?);
//! assert_eq!(rule.holds(&data, &mut Budget::of_rules()), Outcome::True);
//! assert_eq!(Filter::compile("env.HOME").unwrap_err().to_string(), "not allowed: env/0 (at character 1)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod control;
mod eval;
mod lower;
mod native;
mod order;
mod pattern;
mod scan;
mod text;
mod tree;
mod value;

use std::fmt;

pub use budget::{Budget, Limit};
pub use value::Value;

use eval::{Machine, Stop};
use lower::{Lowered, lower};

/// The steps that one rule may take, and the bytes that it may make.
const FUEL: usize = 2_000_000;
const MEMORY: usize = 32 << 20;

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

    /// About how many bytes of memory it takes.
    pub(crate) const fn bytes(&self) -> usize {
        self.0.nodes * PART_BYTES + self.0.pattern_bytes
    }

    /// Whether the data fit the rule. It takes its steps from the budget, and has memory of its own.
    pub fn holds(&self, data: &Value, budget: &mut Budget) -> Outcome {
        let mut own = Budget::new(budget.fuel().min(FUEL), MEMORY);
        let before = own.fuel();
        let results = self.run(data, &mut own);
        if let Err(limit) = budget.steps(before - own.fuel()) {
            return Outcome::Limit(limit);
        }
        match results {
            Ok(results) if results.is_empty() => Outcome::False,
            Ok(results) if results.iter().all(|result| matches!(result, Value::Bool(true))) => Outcome::True,
            Ok(_) => Outcome::False,
            Err(Failed::Limit(limit)) => Outcome::Limit(limit),
            Err(Failed::Error(text)) => Outcome::Error(text),
        }
    }

    /// The results of a filter.
    fn run(&self, input: &Value, budget: &mut Budget) -> Result<Vec<Value>, Failed> {
        let mut machine = Machine::new(self.0.slots, budget);
        let mut results = Vec::new();
        let ended = machine.run(&self.0.node, input.clone(), &mut |machine, value| {
            if results.len() == MAX_OUTPUTS {
                return Err(Stop::Limit(Limit::Outputs));
            }
            machine.keep(&mut results, value)
        });
        match ended {
            // Each cut is taken by who marked it.
            Ok(()) | Err(Stop::Cut(_)) => Ok(results),
            Err(Stop::Limit(limit)) => Err(Failed::Limit(limit)),
            Err(Stop::Error(Value::Str(text))) => {
                Err(Failed::Error(crate::decode::shortened(&text).to_string()))
            }
            Err(Stop::Error(value)) => Err(Failed::Error(value.shown())),
        }
    }
}

/// Why a filter has no results.
#[derive(Debug)]
enum Failed {
    Error(String),
    Limit(Limit),
}

#[cfg(test)]
mod tests;
