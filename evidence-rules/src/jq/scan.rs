//! Scans the text of a filter before the parser, whose recursion is not bounded. It tracks the same brackets
//! and strings, and counts the constructs for which the parser would recurse.

use super::Refused;

/// Maximum nesting depth of brackets and interpolated strings.
const MAX_NESTING: usize = 48;

/// Maximum number of words, numbers and signs in a filter.
const MAX_TOKENS: usize = 512;

/// Maximum number of prefixes, such as a sign.
const MAX_PREFIXES: usize = 64;

/// An enclosing construct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// Brackets, up to this closing one.
    Brackets(u8),
    /// A string.
    Text,
}

/// Rejects text for which the lexer or the parser could need too much stack.
pub(super) fn scan(source: &str) -> Result<(), Refused> {
    let bytes = source.as_bytes();
    let (mut at, mut inside) = (0, Vec::new());
    let (mut tokens, mut prefixes) = (0_usize, 0_usize);
    while let Some(byte) = bytes.get(at).copied() {
        let begin = at;
        at += 1;
        if inside.last() == Some(&Inside::Text) {
            match byte {
                b'"' => drop(inside.pop()),
                b'\\' => {
                    if bytes.get(at) == Some(&b'(') {
                        inside.push(Inside::Brackets(b')'));
                        tokens += 1;
                    }
                    at += 1;
                }
                _ => {}
            }
        } else {
            tokens += usize::from(!byte.is_ascii_whitespace());
            match byte {
                b'"' => inside.push(Inside::Text),
                b'(' => inside.push(Inside::Brackets(b')')),
                b'[' => inside.push(Inside::Brackets(b']')),
                b'{' => inside.push(Inside::Brackets(b'}')),
                b')' | b']' | b'}' if inside.pop() != Some(Inside::Brackets(byte)) => {
                    let bracket = char::from(byte);
                    return Err(Refused::at(source, begin, format!("unexpected '{bracket}'")));
                }
                b'#' => {
                    let end = bytes[at..]
                        .iter()
                        .position(|byte| *byte == b'\n')
                        .map_or(bytes.len(), |end| at + end);
                    if bytes[at..end].contains(&b'\\') {
                        // The lexer may continue the comment on the next line.
                        return Err(Refused::at(
                            source,
                            begin,
                            "not allowed: a comment with a backslash".to_owned(),
                        ));
                    }
                    at = end;
                    tokens -= 1;
                }
                b'-' => prefixes += 1,
                _ if is_word(byte) => {
                    at += bytes[at..].iter().position(|byte| !is_word(*byte)).unwrap_or(bytes.len() - at);
                    prefixes += usize::from(PREFIXES.contains(&&bytes[begin..at]));
                }
                _ => {}
            }
        }
        if inside.len() > MAX_NESTING {
            return Err(Refused::at(source, begin, format!("nests more than {MAX_NESTING} levels")));
        }
        if tokens > MAX_TOKENS {
            return Err(Refused::at(source, begin, format!("more than {MAX_TOKENS} words and signs")));
        }
        if prefixes > MAX_PREFIXES {
            let text = format!("more than {MAX_PREFIXES} of '-', 'if', 'try', 'reduce' and 'foreach'");
            return Err(Refused::at(source, begin, text));
        }
    }
    match inside.last() {
        None => Ok(()),
        Some(Inside::Text) => Err(Refused::at(source, source.len(), "a string without its end".to_owned())),
        Some(Inside::Brackets(end)) => {
            let text = format!("expected '{}'", char::from(*end));
            Err(Refused::at(source, source.len(), text))
        }
    }
}

const PREFIXES: [&[u8]; 8] = [b"try", b"if", b"elif", b"reduce", b"foreach", b"def", b"label", b"catch"];

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
