//! A caller's regular expression for names, which takes time in proportion to the text.

/// What a compiled expression may take, in bytes.
const MAX_SIZE: usize = 32 << 10;

/// Expressions nest no deeper than this.
const MAX_NESTING: u32 = 32;

/// Compiles an expression that is searched for anywhere in a name. Names are ASCII, and so are its classes, which keeps
/// them small: the worst of what found room in a parameter (`a?a?…`) takes 0.6 ms, and so no thread of its own.
///
/// # Errors
/// What the expression should be.
pub(crate) fn compile(pattern: &str) -> Result<regex::bytes::Regex, String> {
    let mut builder = regex::bytes::RegexBuilder::new(pattern);
    let compiled = builder.unicode(false).nest_limit(MAX_NESTING).size_limit(MAX_SIZE).build();
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
        }
    }
}
