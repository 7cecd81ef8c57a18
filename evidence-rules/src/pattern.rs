//! Compiles callers' regular expressions, for names and for policies. Matching takes time linear in the text.

use regex_automata::dfa::dense::{self, DFA};
use regex_automata::dfa::{Automaton, StartKind};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchError, MatchKind};

use super::folding::{self, MAX_NESTING};

/// Maximum size of a compiled expression in bytes.
const MAX_SIZE: usize = 32 << 10;

/// Maximum size of the table of a policy's pattern in bytes.
const MAX_TABLE: usize = 64 << 10;

const TOO_LARGE: &str = "the pattern is too large once it is compiled";

/// Compiles an expression that may match anywhere in a name. Names are ASCII, and so are the classes of the
/// expression, which keeps them small. The worst expression that fits in a parameter (`a?a?…`) takes 0.6 ms,
/// so it needs no separate thread.
///
/// # Errors
/// Returns the rule that the expression violates.
pub fn compile(pattern: &str) -> Result<regex::bytes::Regex, String> {
    let mut builder = regex::bytes::RegexBuilder::new(pattern);
    let compiled = builder.unicode(false).nest_limit(MAX_NESTING).size_limit(MAX_SIZE).build();
    compiled.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => TOO_LARGE.to_owned(),
        error => last_line(&error.to_string()),
    })
}

/// Returns the last line of an error, which describes it; the lines before show the position.
pub(super) fn last_line(error: &str) -> String {
    error.lines().last().unwrap_or_default().to_owned()
}

/// Returns the table of a pattern that may match anywhere in a text; each byte of the text is one look-up.
/// Returns `None` if it would have more than `most` bytes.
pub(super) fn table(pattern: &str, syntax: syntax::Config, most: usize) -> Option<DFA<Vec<u32>>> {
    let table = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .match_kind(MatchKind::LeftmostFirst)
        .dfa_size_limit(Some(most))
        .determinize_size_limit(Some(most));
    DFA::builder()
        .syntax(syntax)
        .thompson(thompson::Config::new().nfa_size_limit(Some(most / 2)))
        .configure(table)
        .build(pattern)
        .ok()
}

/// Returns whether the text has a match. The search fails only at bytes that the table was built to give up
/// at, and there are none.
pub(super) fn is_in(table: &DFA<Vec<u32>>, text: &str) -> Result<bool, MatchError> {
    Ok(table.try_search_fwd(&Input::new(text).earliest(true))?.is_some())
}

/// A pattern of a policy.
///
/// Its classes and case rules are ASCII, and `.` and `[^…]` match one byte, which keeps its table small.
/// Non-ASCII characters have several bytes in UTF-8. The flag `u`, which would change this, is rejected.
#[derive(Clone)]
pub(super) struct Pattern {
    text: String,
    table: DFA<Vec<u32>>,
}

impl Pattern {
    /// An upper bound of the memory of a pattern in bytes, including its text.
    pub(super) const MAX_BYTES: usize = MAX_TABLE + (4 << 10);

    /// Compiles a pattern.
    ///
    /// # Errors
    /// Returns the rule that the pattern violates.
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        folding::check_ascii(pattern)?;
        let syntax = syntax::Config::new().unicode(false).utf8(false).nest_limit(MAX_NESTING);
        syntax::parse_with(pattern, &syntax).map_err(|error| last_line(&error.to_string()))?;
        // The pattern was parsed, so size is the only possible error.
        let table = table(pattern, syntax, MAX_TABLE).ok_or(TOO_LARGE)?;
        Ok(Self { text: pattern.to_owned(), table })
    }

    /// Returns the memory use in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self) + self.text.len() + self.table.memory_usage()
    }

    /// Returns whether the text has a match.
    pub(super) fn is_in(&self, text: &str) -> bool {
        is_in(&self.table, text).unwrap_or_default()
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_expression_or_too_large_a_one_says_why() {
        for (pattern, refusal) in [
            ("^unit-[0-9]+$", None),
            ("", None),
            ("(?i)scan", None),
            ("^\\w+-\\w+-\\w+-\\w+-\\w+-[[:alpha:]]+\\d{3}$", None),
            ("(", Some("error: unclosed group")),
            ("(a)\\1", Some("error: backreferences are not supported")),
            ("(?=a)", Some("error: look-around, including look-ahead and look-behind, is not supported")),
            ("((a{50}){50}){50}", Some("the pattern is too large once it is compiled")),
            (
                &format!("{}a{}", "(".repeat(33), ")".repeat(33)),
                Some("error: exceed the maximum number of nested parentheses/brackets (32)"),
            ),
        ] {
            assert_eq!(compile(pattern).err().as_deref(), refusal, "{pattern}");
            assert_eq!(Pattern::new(pattern).err().as_deref(), refusal, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_of_a_policy_is_about_bytes() {
        for pattern in ["(?u)a", "(?iu)a", "(?u:\\b)", "a(?i-s:b(?u:c))"] {
            let refusal = Pattern::new(pattern).expect_err(pattern);
            assert!(refusal.starts_with("the flag 'u' is not allowed"), "{pattern}: {refusal}");
        }
        for (pattern, text, expected) in [
            ("^.{4}$", "b\u{fc}ro", false),
            ("^.{5}$", "b\u{fc}ro", true),
            ("^b[^x]{2}ro$", "b\u{fc}ro", true),
            ("(?-u:b)", "b", true),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().is_in(text), expected, "{pattern} in {text}");
        }
    }

    #[test]
    fn a_pattern_of_a_policy_is_searched_for_anywhere_in_bounded_memory() {
        let table = [
            ("^datadog:.*", "datadog:7", true),
            ("^datadog:.*", "a/datadog:7", false),
            ("dog", "datadog:7", true),
            ("7$", "datadog:7", true),
            ("7$", "datadog:7\n", false),
            ("", "", true),
            ("(?i)DATADOG", "datadog:7", true),
            ("^.{3}$", "abc", true),
            ("b\u{fc}ro", "ein b\u{fc}ro", true),
            ("\\d\\.\\d", "v1.2", true),
            ("^(prod|test)-[a-z0-9]{8}$", "prod-0123abcd", true),
            ("^\\w+-\\w+-\\w+-\\w+-\\w+-[[:alpha:]]+\\d{3}$", "a-b-c-d-e-f123", true),
            ("^[a-f0-9]{64}$", &"a".repeat(64), true),
        ];
        for (pattern, text, expected) in table {
            let pattern = Pattern::new(pattern).unwrap();
            assert_eq!(pattern.is_in(text), expected, "{pattern:?} in {text}");
            assert!(pattern.bytes() <= Pattern::MAX_BYTES, "{pattern:?}: {} bytes", pattern.bytes());
        }
    }
}
