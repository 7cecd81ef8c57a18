//! The patterns of filters. Each search takes time linear in the text. Finding many matches in one text is
//! limited by the steps charged for each search.

use std::fmt;

use regex::Regex;
use regex_automata::Input;
use regex_automata::dfa::Automaton;
use regex_automata::dfa::dense::DFA;
use regex_automata::util::syntax;

use super::budget::{Budget, Limit};
use crate::folding::{self, MAX_NESTING};
use crate::pattern::{is_in, last_line, table};

/// A compiled pattern.
pub(super) struct Pattern {
    /// A table in which each byte of the text is one look-up; `None` if it would be too large.
    table: Option<Box<DFA<Vec<u32>>>>,
    /// The program that finds matches and groups; `None` if only the table is needed.
    program: Option<Regex>,
    /// The steps that the program takes for each byte.
    steps: usize,
}

/// The byte ranges of a pattern's groups in a text; the first is the whole match.
pub(super) type Found = Vec<Option<(usize, usize)>>;

/// Maximum length of a pattern in bytes.
pub(super) const MAX_PATTERN: usize = 512;

const MAX_TABLE: usize = 512 << 10;

/// The allowed sizes of a program in bytes, with the steps it takes for each byte. The cost grows with the
/// size.
const PROGRAMS: [(usize, usize); 3] = [(16 << 10, 64), (64 << 10, 256), (256 << 10, 1024)];

/// Approximate memory use of a program and its caches in bytes.
const PROGRAM_BYTES: usize = 256 << 10;

/// Number of bytes that a table reads in one step.
const TABLE_BYTES: usize = 4;

/// The options of a pattern.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Flags {
    case_insensitive: bool,
    extended: bool,
    not_empty: bool,
    dot_is_any: bool,
    /// Whether to find all matches, not only the first.
    pub(super) global: bool,
}

impl Flags {
    /// Parses flags from letters; returns the first unknown letter as an error.
    pub(super) fn read(letters: &str) -> Result<Self, char> {
        let mut flags = Self::default();
        for letter in letters.chars() {
            match letter {
                'g' => flags.global = true,
                'i' => flags.case_insensitive = true,
                'x' => flags.extended = true,
                'n' => flags.not_empty = true,
                'p' => flags.dot_is_any = true,
                // The anchors always refer to the whole text, so this flag has no effect.
                's' => {}
                other => return Err(other),
            }
        }
        Ok(flags)
    }
}

impl Pattern {
    /// Compiles a pattern. `places` says whether matches are needed, or only whether there is one.
    pub(super) fn new(pattern: &str, flags: Flags, places: bool) -> Result<Self, String> {
        let syntax = checked(pattern, flags)?;
        let table = table(pattern, syntax, MAX_TABLE).map(Box::new);
        if table.is_some() && !places {
            return Ok(Self { table, program: None, steps: 0 });
        }
        let (program, steps) = program(pattern, flags, &PROGRAMS)?;
        Ok(Self { table, program: Some(program), steps })
    }

    /// Compiles a small pattern without a table, while a filter runs.
    pub(super) fn small(pattern: &str, flags: Flags) -> Result<Self, String> {
        checked(pattern, flags)?;
        let (program, steps) = program(pattern, flags, PROGRAMS.get(..1).unwrap_or_default())?;
        Ok(Self { table: None, program: Some(program), steps })
    }

    /// Returns the approximate memory use in bytes.
    pub(super) fn bytes(&self) -> usize {
        let table = self.table.as_ref().map_or(0, |table| table.memory_usage());
        table + if self.program.is_some() { PROGRAM_BYTES } else { 0 }
    }

    /// Returns the names of its groups; the first is the whole match.
    pub(super) fn names(&self) -> Vec<Option<&str>> {
        self.program.iter().flat_map(Regex::capture_names).collect()
    }

    /// Returns whether the text has a match.
    pub(super) fn is_in(&self, text: &str, budget: &mut Budget) -> Result<bool, Limit> {
        match (&self.table, &self.program) {
            (Some(table), _) => {
                budget.steps(1 + text.len() / TABLE_BYTES)?;
                is_in(table, text).map_err(|_| Limit::Fuel)
            }
            (None, Some(program)) => {
                budget.steps(1 + text.len().saturating_mul(self.steps))?;
                Ok(program.is_match(text))
            }
            (None, None) => Ok(false),
        }
    }

    /// Returns the first match from this position on.
    pub(super) fn find(&self, text: &str, from: usize, budget: &mut Budget) -> Result<Option<Found>, Limit> {
        let Some(program) = &self.program else { return Ok(None) };
        match &self.table {
            Some(table) => {
                let read = bytes_read(table, text, from).ok_or(Limit::Fuel)?;
                budget.steps(1 + read / TABLE_BYTES)?;
            }
            None => budget.steps(1 + text.len().saturating_sub(from).saturating_mul(self.steps))?,
        }
        let Some(found) = program.captures_at(text, from) else { return Ok(None) };
        let groups =
            Vec::from_iter(found.iter().map(|group| group.map(|group| (group.start(), group.end()))));
        if let (Some(Some((begin, end))), Some(_), true) = (groups.first(), &self.table, groups.len() > 1) {
            budget.steps((end - begin).saturating_mul(self.steps / 16))?;
        }
        budget.allocate(groups.len().saturating_mul(size_of::<Option<(usize, usize)>>()))?;
        Ok(Some(groups))
    }
}

/// Checks rules that the engines do not enforce, and applies the flags.
fn checked(pattern: &str, flags: Flags) -> Result<syntax::Config, String> {
    if pattern.len() > MAX_PATTERN {
        return Err(format!("a pattern should have at most {MAX_PATTERN} bytes"));
    }
    folding::check(pattern, flags.case_insensitive)?;
    let syntax = syntax::Config::new()
        .case_insensitive(flags.case_insensitive)
        .ignore_whitespace(flags.extended)
        .dot_matches_new_line(flags.dot_is_any)
        .nest_limit(MAX_NESTING);
    if flags.not_empty {
        let parsed = syntax::parse_with(pattern, &syntax).map_err(|error| last_line(&error.to_string()))?;
        // A search that finds an empty match could not find a longer one after it.
        if parsed.properties().minimum_len().is_none_or(|least| least == 0) {
            return Err("with the flag 'n' it should not fit an empty text".to_owned());
        }
    }
    Ok(syntax)
}

fn program(pattern: &str, flags: Flags, sizes: &[(usize, usize)]) -> Result<(Regex, usize), String> {
    for (size, steps) in sizes {
        let program = regex::RegexBuilder::new(pattern)
            .case_insensitive(flags.case_insensitive)
            .ignore_whitespace(flags.extended)
            .dot_matches_new_line(flags.dot_is_any)
            .nest_limit(MAX_NESTING)
            .size_limit(*size)
            .build();
        match program {
            Ok(program) => return Ok((program, *steps)),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(error) => return Err(last_line(&error.to_string())),
        }
    }
    Err("the pattern is too large once it is compiled".to_owned())
}

/// Returns the number of bytes that a search from this position reads until it is decided.
fn bytes_read(table: &DFA<Vec<u32>>, text: &str, from: usize) -> Option<usize> {
    let input = Input::new(text).span(from..text.len());
    let mut state = table.start_state_forward(&input).ok()?;
    for (read, byte) in text.as_bytes().get(from..)?.iter().enumerate() {
        state = table.next_state(state, *byte);
        if table.is_dead_state(state) {
            return Some(read + 1);
        }
        if table.is_quit_state(state) {
            return None;
        }
    }
    Some(text.len() - from)
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pattern")
            .field("program", &self.program)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}
