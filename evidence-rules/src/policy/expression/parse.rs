//! Parses the text of an expression into a tree, token by token, down to [`MAX_DEPTH`]. In order of
//! precedence: comparisons bind most tightly, then `not`, then `and`, then `or`.

use std::str::FromStr;
use std::sync::Arc;

use super::{Comparison, Expression, ExpressionError, Node, Operand, Reference, Truth, is_in};
use crate::pattern::Pattern;
use evidence_values::name::TagKey;

/// Maximum length of an expression in bytes.
const MAX_LENGTH: usize = 4096;

/// Maximum nesting depth of parentheses and `not`.
const MAX_DEPTH: usize = 32;

/// The remaining limits that the expressions of a policy share.
#[derive(Debug)]
pub(in crate::policy) struct Budget {
    parts: usize,
    /// Bytes of the expressions' texts.
    text_bytes: usize,
    /// Bytes of the compiled patterns, including those that were rejected as too large.
    pattern_bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { parts: 10_000, text_bytes: 1 << 20, pattern_bytes: 256 << 10 }
    }
}

const TOO_LARGE: &str = "The policy's patterns are too large once compiled";

/// Parses an expression.
pub(super) fn parse(text: &str, budget: &mut Budget) -> Result<Expression, ExpressionError> {
    let mut parser =
        Parser { text, at: 0, token: Token::End, begin: 0, depth: 0, parts: 0, bytes: 0, budget };
    if text.len() > MAX_LENGTH {
        return Err(parser.error(0, format!("An expression should have at most {MAX_LENGTH} bytes")));
    }
    match parser.budget.text_bytes.checked_sub(text.len()) {
        Some(left) => parser.budget.text_bytes = left,
        None => return Err(parser.error(0, "The policy's expressions are too long together".to_owned())),
    }
    parser.advance()?;
    let root = parser.any()?;
    if parser.token != Token::End {
        return Err(parser.unexpected("'and', 'or' or the end"));
    }
    let root = parser.boolean(root)?;
    let bytes = parser.bytes + parser.parts * size_of::<Node>() + text.len();
    Ok(Expression { root, parts: parser.parts, bytes })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    /// A name such as `and`, `flow` or `exists`, with its dotted suffix: `flow.tags.risk-level`.
    Word(&'a str),
    /// Without its quotes.
    Text(&'a str),
    Number(&'a str),
    /// An operator, a parenthesis, a bracket or a comma.
    Sign(&'static str),
}

/// A parsed element whose use is not known yet.
enum Parsed {
    Boolean(Node),
    Operand(Operand),
    List(Vec<Operand>),
}

/// A parsed element, and the byte where it begins.
type Placed = (Parsed, usize);

const SIGNS: [&str; 11] = ["==", "!=", "<=", ">=", "<", ">", "(", ")", "[", "]", ","];

struct Parser<'a, 'b> {
    text: &'a str,
    /// The byte after the token.
    at: usize,
    token: Token<'a>,
    /// The byte where the token begins.
    begin: usize,
    depth: usize,
    parts: usize,
    bytes: usize,
    budget: &'b mut Budget,
}

impl<'a> Parser<'a, '_> {
    fn error(&self, byte: usize, text: String) -> ExpressionError {
        let before = self.text.char_indices().take_while(|(at, _)| *at < byte).count();
        ExpressionError { text, character: before + 1 }
    }

    fn unexpected(&self, wanted: &str) -> ExpressionError {
        let found = match self.token {
            Token::End => "the end".to_owned(),
            _ => format!("'{}'", self.text.get(self.begin..self.at).unwrap_or_default()),
        };
        self.error(self.begin, format!("Expected {wanted}, found {found}"))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<(), ExpressionError> {
        self.at = self.text.len() - self.rest().trim_start().len();
        self.begin = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            self.token = Token::End;
            return Ok(());
        };
        let (token, length) = if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            (Token::Sign(sign), sign.len())
        } else if matches!(first, '"' | '\'') {
            let inner = rest.get(1..).unwrap_or_default();
            let Some((text, _)) = inner.split_once(first) else {
                return Err(self.error(self.begin, format!("The text has no {first} at its end")));
            };
            (Token::Text(text), text.len() + 2)
        } else if first.is_ascii_digit() || first == '-' {
            let (sign, digits) = rest.split_at(usize::from(first == '-'));
            let length = sign.len() + span(digits, |letter| is_word(letter) || letter == '.');
            let number = rest.get(..length).unwrap_or_default();
            if super::Decimal::read(number).is_none() {
                return Err(self.error(self.begin, format!("'{number}' is no number")));
            }
            (Token::Number(number), length)
        } else if first.is_ascii_alphabetic() || first == '_' {
            let is_tag = rest.starts_with("flow.tags.");
            let is_part = |letter| is_word(letter) || letter == '.' || is_tag && matches!(letter, '-' | '~');
            let length = span(rest, is_part);
            (Token::Word(rest.get(..length).unwrap_or_default()), length)
        } else {
            return Err(self.error(self.begin, format!("Unexpected character '{}'", first.escape_debug())));
        };
        (self.token, self.at) = (token, self.at + length);
        Ok(())
    }

    /// Advances if this is the current token.
    fn take(&mut self, token: Token<'_>) -> Result<bool, ExpressionError> {
        let is_it = self.token == token;
        if is_it {
            self.advance()?;
        }
        Ok(is_it)
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), ExpressionError> {
        if self.take(Token::Sign(sign))? { Ok(()) } else { Err(self.unexpected(&format!("'{sign}'"))) }
    }

    /// Counts a part of the expression against the budget.
    fn part<T>(&mut self, at: usize, part: T) -> Result<T, ExpressionError> {
        self.parts += 1;
        match self.budget.parts.checked_sub(1) {
            Some(left) => self.budget.parts = left,
            None => return Err(self.error(at, "The policy's expressions have too many parts".to_owned())),
        }
        Ok(part)
    }

    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, ExpressionError>,
    ) -> Result<T, ExpressionError> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(self.begin, format!("It should nest at most {MAX_DEPTH} levels deep")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn boolean(&self, (parsed, at): Placed) -> Result<Node, ExpressionError> {
        match parsed {
            Parsed::Boolean(node) => Ok(node),
            _ => Err(self.error(at, "Expected what is true or false, as a comparison is".to_owned())),
        }
    }

    fn operand(&self, (parsed, at): Placed) -> Result<Operand, ExpressionError> {
        match parsed {
            Parsed::Operand(Operand::Reference(Reference::Flow)) => {
                Err(self.error(at, "'flow' stands in exists(flow) alone".to_owned()))
            }
            Parsed::Operand(operand) => Ok(operand),
            Parsed::Boolean(_) | Parsed::List(_) => {
                Err(self.error(at, "Expected a text, a number, or what has one".to_owned()))
            }
        }
    }

    fn any(&mut self) -> Result<Placed, ExpressionError> {
        self.joined("or", Self::all, Node::Any)
    }

    fn all(&mut self) -> Result<Placed, ExpressionError> {
        self.joined("and", Self::negated, Node::All)
    }

    fn joined(
        &mut self,
        word: &'static str,
        parse: fn(&mut Self) -> Result<Placed, ExpressionError>,
        join: fn(Vec<Node>) -> Node,
    ) -> Result<Placed, ExpressionError> {
        let first = parse(self)?;
        if self.token != Token::Word(word) {
            return Ok(first);
        }
        let at = first.1;
        let mut nodes = vec![self.boolean(first)?];
        while self.take(Token::Word(word))? {
            let next = parse(self)?;
            nodes.push(self.boolean(next)?);
        }
        Ok((Parsed::Boolean(self.part(at, join(nodes))?), at))
    }

    fn negated(&mut self) -> Result<Placed, ExpressionError> {
        let at = self.begin;
        if !self.take(Token::Word("not"))? {
            return self.compared();
        }
        let negated = self.deeper(Self::negated)?;
        let node = Node::Not(Box::new(self.boolean(negated)?));
        Ok((Parsed::Boolean(self.part(at, node)?), at))
    }

    fn compared(&mut self) -> Result<Placed, ExpressionError> {
        let left = self.primary()?;
        let at = left.1;
        let node = if self.take(Token::Word("in"))? {
            let left = self.operand(left)?;
            match self.primary()? {
                (Parsed::List(list), _) => self.contained(left, list),
                (_, at) => return Err(self.error(at, "Expected a list: [\"a\", \"b\"]".to_owned())),
            }
        } else if let Some(comparison) = self.comparison() {
            self.advance()?;
            let left = self.operand(left)?;
            let right = self.primary()?;
            let right = self.operand(right)?;
            self.comparing(left, comparison, right, at)?
        } else {
            return Ok(left);
        };
        if self.comparison().is_some() || self.token == Token::Word("in") {
            return Err(self.error(self.begin, "Comparisons cannot be chained".to_owned()));
        }
        Ok((Parsed::Boolean(self.part(at, node)?), at))
    }

    const fn comparison(&self) -> Option<Comparison> {
        let Token::Sign(sign) = self.token else { return None };
        Some(match sign.as_bytes() {
            b"==" => Comparison::Equal,
            b"!=" => Comparison::Unequal,
            b"<" => Comparison::Less,
            b"<=" => Comparison::LessOrEqual,
            b">" => Comparison::Greater,
            b">=" => Comparison::GreaterOrEqual,
            _ => return None,
        })
    }

    /// Builds a comparison. A comparison of two constants is evaluated here.
    fn comparing(
        &self,
        left: Operand,
        comparison: Comparison,
        right: Operand,
        at: usize,
    ) -> Result<Node, ExpressionError> {
        match (left.constant(), right.constant()) {
            (Some(one), Some(other)) => match comparison.evaluate(one, other) {
                Truth::True => Ok(Node::Constant(true)),
                Truth::False => Ok(Node::Constant(false)),
                Truth::Unknown => {
                    let text = "It compares a text that is not a number with a number, which is never known";
                    Err(self.error(at, text.to_owned()))
                }
            },
            _ => Ok(Node::Compare(left, comparison, right)),
        }
    }

    fn contained(&self, left: Operand, list: Vec<Operand>) -> Node {
        let constants: Option<Vec<_>> = list.iter().map(Operand::constant).collect();
        match left.constant().zip(constants).map(|(one, others)| is_in(one, others.into_iter())) {
            Some(Truth::True) => Node::Constant(true),
            Some(Truth::False) => Node::Constant(false),
            Some(Truth::Unknown) | None => Node::In(left, list),
        }
    }

    fn primary(&mut self) -> Result<Placed, ExpressionError> {
        let at = self.begin;
        let parsed = match self.token {
            Token::Text(text) => self.literal(Operand::Text(text.to_owned()), text.len())?,
            Token::Number(number) => self.literal(Operand::Number(number.to_owned()), number.len())?,
            Token::Sign("(") => {
                self.advance()?;
                let (inner, _) = self.deeper(Self::any)?;
                self.expect(")")?;
                inner
            }
            Token::Sign("[") => {
                self.advance()?;
                Parsed::List(self.list()?)
            }
            Token::Word("true" | "false") => {
                let node = Node::Constant(self.token == Token::Word("true"));
                self.advance()?;
                Parsed::Boolean(self.part(at, node)?)
            }
            Token::Word("exists") => {
                self.advance()?;
                self.expect("(")?;
                let reference = self.reference()?;
                self.expect(")")?;
                Parsed::Boolean(self.part(at, Node::Exists(reference))?)
            }
            Token::Word("matches") => {
                self.advance()?;
                Parsed::Boolean(self.matches(at)?)
            }
            Token::Word("and" | "or" | "not" | "in") | Token::End | Token::Sign(_) => {
                return Err(
                    self.unexpected("a text, a number, a list, 'flow', 'artifact', 'exists' or 'matches'")
                );
            }
            Token::Word(_) => {
                let reference = self.reference()?;
                Parsed::Operand(self.part(at, Operand::Reference(reference))?)
            }
        };
        Ok((parsed, at))
    }

    fn literal(&mut self, operand: Operand, bytes: usize) -> Result<Parsed, ExpressionError> {
        self.bytes += bytes;
        let operand = self.part(self.begin, operand)?;
        self.advance()?;
        Ok(Parsed::Operand(operand))
    }

    fn reference(&mut self) -> Result<Reference, ExpressionError> {
        let Token::Word(word) = self.token else { return Err(self.unexpected("'flow' or 'artifact'")) };
        let tag = word.strip_prefix("flow.tags.");
        let reference = match (word, tag.map(TagKey::from_str)) {
            (_, Some(Ok(key))) => Reference::FlowTag(key.as_str().to_owned()),
            (_, Some(Err(misfit))) => {
                return Err(self.error(self.begin, format!("The key of the tag: {misfit}")));
            }
            ("flow", _) => Reference::Flow,
            ("flow.name", _) => Reference::FlowName,
            ("artifact.name", _) => Reference::ArtifactName,
            ("artifact.fingerprint", _) => Reference::ArtifactFingerprint,
            _ => {
                let known = "flow, flow.name, flow.tags.<key>, artifact.name or artifact.fingerprint";
                return Err(self.error(self.begin, format!("'{word}' is not known: it is none of {known}")));
            }
        };
        self.bytes += word.len();
        self.advance()?;
        Ok(reference)
    }

    /// Parses the items of a list after its opening bracket.
    fn list(&mut self) -> Result<Vec<Operand>, ExpressionError> {
        let mut items = Vec::new();
        while !self.take(Token::Sign("]"))? {
            if self.token == Token::Sign("[") {
                return Err(self.unexpected("a text, a number, or what has one"));
            }
            let item = self.primary()?;
            items.push(self.operand(item)?);
            if !self.take(Token::Sign(","))? && self.token != Token::Sign("]") {
                return Err(self.unexpected("',' or ']'"));
            }
        }
        Ok(items)
    }

    fn matches(&mut self, at: usize) -> Result<Node, ExpressionError> {
        self.expect("(")?;
        let subject = self.primary()?;
        let operand = match self.operand(subject)? {
            Operand::Number(_) => return Err(self.error(at, "A number matches no pattern".to_owned())),
            operand => operand,
        };
        self.expect(",")?;
        let Token::Text(pattern) = self.token else { return Err(self.unexpected("a pattern in quotes")) };
        let begin = self.begin;
        let pattern = self.pattern(pattern, begin)?;
        self.advance()?;
        self.expect(")")?;
        self.bytes += pattern.bytes();
        self.part(at, Node::Matches(operand, Arc::new(pattern)))
    }
}

impl Parser<'_, '_> {
    /// Compiles a pattern that begins at `begin`. A rejected pattern uses as much of the budget as the
    /// largest accepted one, because compiling it took as long.
    fn pattern(&mut self, pattern: &str, begin: usize) -> Result<Pattern, ExpressionError> {
        if self.budget.pattern_bytes == 0 {
            return Err(self.error(begin, TOO_LARGE.to_owned()));
        }
        let compiled = Pattern::new(pattern);
        let bytes = compiled.as_ref().map_or(Pattern::MAX_BYTES, Pattern::bytes);
        let left = self.budget.pattern_bytes.checked_sub(bytes);
        self.budget.pattern_bytes = left.unwrap_or_default();
        let compiled = compiled.map_err(|refusal| self.error(begin, refusal))?;
        left.map(|_| compiled).ok_or_else(|| self.error(begin, TOO_LARGE.to_owned()))
    }
}

const fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Returns the length in bytes of the prefix whose characters all fit.
fn span(text: &str, fits: impl Fn(char) -> bool) -> usize {
    text.find(|letter| !fits(letter)).unwrap_or(text.len())
}
