//! A caller's regular expression, which takes time in proportion to the text.

use super::folding::{self, MAX_NESTING};

/// What a compiled expression may take, in bytes.
const MAX_SIZE: usize = 64 << 10;

/// Compiles an expression that is searched for anywhere in a text.
///
/// # Errors
/// What the expression should be.
pub(crate) fn compile(pattern: &str) -> Result<regex::Regex, String> {
    folding::check(pattern, false)?;
    let compiled = regex::RegexBuilder::new(pattern).nest_limit(MAX_NESTING).size_limit(MAX_SIZE).build();
    compiled.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "the pattern is too large once it is compiled".to_owned(),
        error => error.to_string().lines().last().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_expression_or_too_large_a_one_says_why() {
        for (pattern, refusal) in [
            ("^unit-[0-9]+$", None),
            ("", None),
            ("é|(?i)scan", None),
            ("(", Some("error: unclosed group")),
            ("(a)\\1", Some("error: backreferences are not supported")),
            ("(?=a)", Some("error: look-around, including look-ahead and look-behind, is not supported")),
            ("(\\pL{100}){100}", Some("the pattern is too large once it is compiled")),
            (
                &format!("{}a{}", "(".repeat(33), ")".repeat(33)),
                Some("error: exceed the maximum number of nested parentheses/brackets (32)"),
            ),
        ] {
            assert_eq!(compile(pattern).err().as_deref(), refusal, "{pattern}");
        }
    }
}
