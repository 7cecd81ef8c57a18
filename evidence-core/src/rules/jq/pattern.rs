//! The patterns that filters look for, compiled with them, so that what a search costs is known beforehand.

use std::fmt;

use regex_automata::dfa::dense::DFA;
use regex_automata::util::syntax;

use super::budget::{Budget, Limit};
use crate::rules::folding::{self, MAX_NESTING};
use crate::rules::pattern::{is_in, last_line, table};

/// A compiled pattern.
pub(super) enum Pattern {
    /// A table in which each byte of the text is one look-up.
    Table(Box<DFA<Vec<u32>>>),
    /// Where a table would be too large, with the steps that it takes for each byte.
    Program(regex::Regex, usize),
}

/// Patterns are no longer than this.
pub(super) const MAX_PATTERN: usize = 512;

const MAX_TABLE: usize = 512 << 10;

/// The sizes that a program may have, and the steps that it takes for each byte then: its size is its factor.
const PROGRAMS: [(usize, usize); 2] = [(16 << 10, 64), (64 << 10, 256)];

/// What a program takes, with what it remembers of the texts that it was run on.
const PROGRAM_BYTES: usize = 256 << 10;

/// A table reads so many bytes in one step.
const TABLE_BYTES: usize = 4;

/// How a pattern is meant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    case_insensitive: bool,
    extended: bool,
    not_empty: bool,
}

impl Flags {
    /// The flags of these letters; the letter that is none of them.
    pub(super) fn read(letters: &str) -> Result<Self, char> {
        let mut flags = Self::default();
        for letter in letters.chars() {
            match letter {
                'i' => flags.case_insensitive = true,
                'x' => flags.extended = true,
                'n' => flags.not_empty = true,
                // The beginning and the end are those of the text in any case, and one place that fits is enough.
                's' | 'g' => {}
                other => return Err(other),
            }
        }
        Ok(flags)
    }
}

impl Pattern {
    /// Compiles a pattern.
    pub(super) fn new(pattern: &str, flags: Flags) -> Result<Self, String> {
        if pattern.len() > MAX_PATTERN {
            return Err(format!("a pattern should have at most {MAX_PATTERN} bytes"));
        }
        folding::check(pattern, flags.case_insensitive)?;
        let syntax = syntax::Config::new()
            .case_insensitive(flags.case_insensitive)
            .ignore_whitespace(flags.extended)
            .nest_limit(MAX_NESTING);
        if flags.not_empty {
            let parsed =
                syntax::parse_with(pattern, &syntax).map_err(|error| last_line(&error.to_string()))?;
            // What fits with a character or more could not be told from it.
            if parsed.properties().minimum_len().is_none_or(|least| least == 0) {
                return Err("with the flag 'n' it should not fit an empty text".to_owned());
            }
        }
        if let Some(table) = table(pattern, syntax, MAX_TABLE) {
            return Ok(Self::Table(Box::new(table)));
        }
        let mut refused = String::new();
        for (size, steps) in PROGRAMS {
            let program = regex::RegexBuilder::new(pattern)
                .case_insensitive(flags.case_insensitive)
                .ignore_whitespace(flags.extended)
                .nest_limit(MAX_NESTING)
                .size_limit(size)
                .build();
            match program {
                Ok(program) => return Ok(Self::Program(program, steps)),
                Err(regex::Error::CompiledTooBig(_)) => {
                    "the pattern is too large once it is compiled".clone_into(&mut refused);
                }
                Err(error) => return Err(last_line(&error.to_string())),
            }
        }
        Err(refused)
    }

    /// About how many bytes of memory it takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Table(table) => table.memory_usage(),
            Self::Program(..) => PROGRAM_BYTES,
        }
    }

    /// Whether the text has a place that fits.
    pub(super) fn is_in(&self, text: &str, budget: &mut Budget) -> Result<bool, Limit> {
        match self {
            Self::Table(table) => {
                budget.steps(1 + text.len() / TABLE_BYTES)?;
                is_in(table, text).map_err(|_| Limit::Fuel)
            }
            Self::Program(program, steps) => {
                budget.steps(1 + text.len().saturating_mul(*steps))?;
                Ok(program.is_match(text))
            }
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(_) => f.write_str("Table"),
            Self::Program(program, _) => write!(f, "Program({program})"),
        }
    }
}
