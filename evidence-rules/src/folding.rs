//! Limits the cost of compiling case-insensitive patterns. The compiler adds the other cases of each
//! character of a class, one by one, and a class may have a million characters.

use std::convert::Infallible;

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{Ast, ClassSetItem, Flag, Visitor, visit};

/// A class with more characters than this is wide.
const NARROW: u32 = 256;

/// Maximum number of wide classes in a case-insensitive pattern.
const MAX_WIDE: usize = 4;

/// Maximum nesting depth of a pattern.
pub(super) const MAX_NESTING: u32 = 32;

/// Rejects a pattern with too many wide classes that would be case-folded. A text that this parser does not
/// accept as a pattern is left to the compiler, unless it may turn on `i`.
///
/// # Errors
/// Returns the rule that the pattern violates.
pub(super) fn check(pattern: &str, is_case_insensitive: bool) -> Result<(), String> {
    let Ok(ast) = ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(pattern) else {
        return if has_flag(pattern) {
            Err("(?i) is not allowed in this pattern".to_owned())
        } else {
            Ok(())
        };
    };
    let Ok(classes) = visit(&ast, Classes { is_case_insensitive, wide: 0 });
    if classes.is_case_insensitive && classes.wide > MAX_WIDE {
        return Err(format!(
            "there should be at most {MAX_WIDE} classes of many characters without regard to case"
        ));
    }
    Ok(())
}

/// Rejects a pattern that turns on Unicode mode (`(?u)`); without that mode, classes are narrow. A text that
/// this parser does not accept as a pattern is left to the compiler.
///
/// # Errors
/// Returns the rule that the pattern violates.
pub(super) fn check_ascii(pattern: &str) -> Result<(), String> {
    let Ok(ast) = ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(pattern) else { return Ok(()) };
    let Ok(is_unicode) = visit(&ast, UnicodeFlag(false));
    if is_unicode {
        return Err("the flag 'u' is not allowed: classes and case are those of ASCII, and '.' is one byte"
            .to_owned());
    }
    Ok(())
}

/// Whether the flag `u` is turned on anywhere.
struct UnicodeFlag(bool);

impl Visitor for UnicodeFlag {
    type Output = bool;
    type Err = Infallible;

    fn finish(self) -> Result<bool, Infallible> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        let flags = match ast {
            Ast::Flags(flags) => Some(&flags.flags),
            Ast::Group(group) => group.flags(),
            _ => None,
        };
        self.0 |= flags.and_then(|flags| flags.flag_state(Flag::Unicode)) == Some(true);
        Ok(())
    }
}

/// Returns whether the pattern contains a group such as `(?i)` or `(?i:`.
fn has_flag(pattern: &str) -> bool {
    let mut groups = pattern.split("(?").skip(1);
    let flags = |group: &str| {
        group
            .chars()
            .take_while(|letter| letter.is_ascii_alphabetic() || *letter == '-')
            .any(|letter| letter == 'i')
    };
    groups.any(flags)
}

/// Counts the wide classes of a pattern.
struct Classes {
    is_case_insensitive: bool,
    wide: usize,
}

impl Visitor for Classes {
    type Output = Self;
    type Err = Infallible;

    fn finish(self) -> Result<Self, Infallible> {
        Ok(self)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        match ast {
            Ast::Flags(flags) => self.set(flags.flags.flag_state(Flag::CaseInsensitive)),
            Ast::Group(group) => {
                self.set(group.flags().and_then(|flags| flags.flag_state(Flag::CaseInsensitive)));
            }
            Ast::ClassUnicode(_) | Ast::ClassPerl(_) => self.wide += 1,
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        let is_wide = match item {
            ClassSetItem::Unicode(_) | ClassSetItem::Perl(_) => true,
            ClassSetItem::Range(range) => {
                u32::from(range.end.c).saturating_sub(u32::from(range.start.c)) > NARROW
            }
            _ => false,
        };
        self.wide += usize::from(is_wide);
        Ok(())
    }
}

impl Classes {
    /// Records a flag. It applies to the whole pattern, wherever it appears.
    fn set(&mut self, is_case_insensitive: Option<bool>) {
        self.is_case_insensitive |= is_case_insensitive == Some(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_classes_are_widened() {
        let table = [
            (r"(?i)\pL\pL\pL\pL", false, true),
            (r"(?i)\pL\pL\pL\pL\pL", false, false),
            (r"\pL\pL\pL\pL\pL", false, true),
            (r"\pL\pL\pL\pL\pL", true, false),
            (r"a|(b(?x-i:c)(?i:[\PL\w\D]))\s[\x{100}-\x{10FFFF}]", false, false),
            (r"(?-i)\pL\pL\pL\pL\pL", false, true),
            (r"(?i)[a-z0-9_.-]+@[a-z0-9.-]+[.][a-z]{2,}", false, true),
            (r"(?i)[[a-z]--[\pL&&\pN]][\w\w\w]", false, false),
            // This parser rejects the pattern, but another one may accept it.
            (r"\cA\pL\pL\pL\pL\pL", false, true),
            (r"\cA(?s-i:x)(?xi)\pL", false, false),
            (r"(", false, true),
        ];
        for (pattern, is_case_insensitive, accepted) in table {
            assert_eq!(check(pattern, is_case_insensitive).is_ok(), accepted, "{pattern}");
        }
    }
}
