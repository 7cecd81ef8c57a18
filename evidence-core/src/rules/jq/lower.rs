//! Lowers a parsed filter to a [`Node`]. This is the list of what is allowed: what has no line here is refused, by its name.

use std::sync::Arc;

use jaq_core::load::lex::{Lexer, StrPart};
use jaq_core::load::parse::{BinaryOp, Parser, Pattern as BindingPattern, Term};
use jaq_core::ops;
use jaq_core::path;

use super::Refused;
use super::pattern::{Flags, Pattern};
use super::scan::scan;
use super::tree::{Binding, CONTROLS, Comparison, Fold, Math, NATIVES, Node, Part, Step};
use super::value::Value;

/// A filter is no longer than this, in bytes.
pub(super) const MAX_SOURCE: usize = 4 << 10;

/// Of no more parts than this.
pub(super) const MAX_NODES: usize = 256;

/// A filter's parts stand in each other no deeper than this.
const MAX_NESTING: usize = 128;

/// What is made of a filter's text.
#[derive(Debug)]
pub(super) struct Lowered {
    pub(super) node: Node,
    /// How many variables it has.
    pub(super) slots: usize,
    /// How many parts it has.
    pub(super) nodes: usize,
    /// How many patterns it has.
    pub(super) patterns: usize,
    /// About how many bytes of memory these take.
    pub(super) pattern_bytes: usize,
}

/// Lowers a filter's text that has at most so many patterns.
pub(super) fn lower(source: &str, max_patterns: usize) -> Result<Lowered, Refused> {
    if source.len() > MAX_SOURCE {
        return Err(Refused::whole(format!("should have at most {MAX_SOURCE} bytes")));
    }
    scan(source)?;
    let tokens = Lexer::new(source).lex().map_err(|errors| {
        let found = errors.first();
        let at = found.map_or(0, |(_, rest)| source.len() - rest.len());
        let expected = found.map_or("another text", |(expected, _)| match expected {
            jaq_core::load::lex::Expect::Delim(_) => "a closing bracket or quote",
            expected => expected.as_str(),
        });
        Refused::at(source, at, format!("expected {expected}"))
    })?;
    let term = Parser::new(&tokens).parse(Parser::term).map_err(|errors| {
        let found = errors.first();
        let expected = found.map_or("another text", |(expected, _)| expected.as_str());
        let expected = if expected.is_empty() { "nothing more" } else { expected };
        let token = found.and_then(|(_, token)| *token).map(|token| token.as_str());
        let at = token.map_or(source.len(), |token| place(source, token));
        Refused::at(source, at, format!("expected {expected}"))
    })?;
    let mut lower = Lower {
        source,
        names: Vec::new(),
        slots: 0,
        nodes: 0,
        depth: 0,
        patterns: 0,
        pattern_bytes: 0,
        max_patterns,
    };
    let node = lower.term(&term)?;
    let Lower { slots, nodes, patterns, pattern_bytes, .. } = lower;
    Ok(Lowered { node, slots, nodes, patterns, pattern_bytes })
}

/// Where a part of the source stands in it.
fn place(source: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(source.as_ptr() as usize).min(source.len())
}

struct Lower<'s> {
    source: &'s str,
    /// The variables that are bound here, the innermost last, with their slots.
    names: Vec<(&'s str, usize)>,
    slots: usize,
    nodes: usize,
    depth: usize,
    patterns: usize,
    pattern_bytes: usize,
    max_patterns: usize,
}

type Result<T, E = Refused> = std::result::Result<T, E>;

impl<'s> Lower<'s> {
    fn refuse<T>(&self, part: &str, text: impl Into<String>) -> Result<T> {
        Err(Refused::at(self.source, place(self.source, part), text.into()))
    }

    fn count(&mut self) -> Result<()> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Refused::whole(format!("should have at most {MAX_NODES} parts")));
        }
        Ok(())
    }

    fn boxed(&mut self, term: &Term<&'s str>) -> Result<Box<Node>> {
        self.term(term).map(Box::new)
    }

    fn term(&mut self, term: &Term<&'s str>) -> Result<Node> {
        self.count()?;
        self.depth += 1;
        if self.depth > MAX_NESTING {
            let text = format!("its parts should nest at most {MAX_NESTING} levels");
            return Err(Refused::whole(text));
        }
        let node = match term {
            Term::Id => Node::Identity,
            Term::Recurse => Node::Descend,
            Term::Num(text) => match Value::read_number(text) {
                Some(number) => Node::Constant(number),
                None => return self.refuse(text, "expected a number"),
            },
            Term::Str(None, parts) => self.text(parts)?,
            Term::Str(Some(format), _) => return self.refuse(format, format!("not allowed: {format}")),
            Term::Arr(None) => Node::List(Box::new(Node::Control(super::tree::Control::Empty, Vec::new()))),
            Term::Arr(Some(items)) => Node::List(self.boxed(items)?),
            Term::Obj(entries) => self.object(entries)?,
            Term::Neg(term) => Node::Negate(self.boxed(term)?),
            Term::BinOp(left, op, right) => self.operation(left, op, right)?,
            Term::Label(name, _) => return self.refuse(name, format!("not allowed: label {name}")),
            Term::Break(name) => return self.refuse(name, format!("not allowed: break {name}")),
            Term::Fold(word, source, taken, arguments) => self.fold(word, source, taken, arguments)?,
            Term::TryCatch(tried, caught) => {
                let caught = caught.as_ref().map(|caught| self.boxed(caught));
                Node::Try(self.boxed(tried)?, caught.transpose()?)
            }
            Term::IfThenElse(cases, otherwise) => {
                let mut lowered = Vec::new();
                for (condition, then) in cases {
                    lowered.push((self.term(condition)?, self.term(then)?));
                }
                let otherwise =
                    otherwise.as_ref().map_or(Ok(Box::new(Node::Identity)), |term| self.boxed(term));
                Node::If(lowered, otherwise?)
            }
            Term::Def(definitions, _) => {
                let name = definitions.first().map_or("", |definition| definition.name);
                return self.refuse(name, format!("not allowed: def {name}"));
            }
            Term::Call(name, arguments) => self.call(name, arguments)?,
            Term::Var(name) => Node::Variable(self.slot(name)?),
            Term::Path(of, path::Path(steps)) => {
                let of = self.boxed(of)?;
                let steps = steps
                    .iter()
                    .map(|(step, optional)| Ok((self.step(step)?, matches!(optional, path::Opt::Optional))));
                Node::Path(of, steps.collect::<Result<_>>()?)
            }
        };
        self.depth -= 1;
        Ok(node)
    }

    fn step(&mut self, step: &path::Part<Term<&'s str>>) -> Result<Step> {
        self.count()?;
        Ok(match step {
            path::Part::Index(index) => Step::Index(self.term(index)?),
            path::Part::Range(None, None) => Step::Each,
            path::Part::Range(from, to) => {
                let from = from.as_ref().map(|from| self.term(from)).transpose()?;
                Step::Slice(from, to.as_ref().map(|to| self.term(to)).transpose()?)
            }
        })
    }

    fn slot(&self, name: &str) -> Result<usize> {
        match self.names.iter().rev().find(|(known, _)| *known == name) {
            Some((_, slot)) => Ok(*slot),
            None => self.refuse(name, format!("not allowed: {name}")),
        }
    }

    /// Lowers what a variable is seen in.
    fn scoped<T>(&mut self, names: usize, lower: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let lowered = lower(self)?;
        self.names.truncate(names);
        Ok(lowered)
    }

    fn binding(&mut self, taken: &BindingPattern<&'s str>) -> Result<Binding> {
        self.count()?;
        Ok(match taken {
            BindingPattern::Var(name) => {
                self.names.push((name, self.slots));
                self.slots += 1;
                Binding::Variable(self.slots - 1)
            }
            BindingPattern::Arr(items) => {
                Binding::Array(items.iter().map(|item| self.binding(item)).collect::<Result<_>>()?)
            }
            BindingPattern::Obj(entries) => {
                let mut lowered = Vec::new();
                for (key, value) in entries {
                    lowered.push((self.term(key)?, self.binding(value)?));
                }
                Binding::Object(lowered)
            }
        })
    }

    fn text(&mut self, parts: &[StrPart<&'s str, Term<&'s str>>]) -> Result<Node> {
        let mut lowered = Vec::new();
        for part in parts {
            match (part, lowered.last_mut()) {
                (StrPart::Str(text), Some(Part::Text(before))) => before.push_str(text),
                (StrPart::Str(text), _) => lowered.push(Part::Text((*text).to_owned())),
                (StrPart::Char(letter), Some(Part::Text(before))) => before.push(*letter),
                (StrPart::Char(letter), _) => lowered.push(Part::Text(letter.to_string())),
                (StrPart::Term(term), _) => lowered.push(Part::Filter(self.term(term)?)),
            }
        }
        Ok(match lowered.as_slice() {
            [] => Node::Constant(Value::Str("".into())),
            [Part::Text(text)] => Node::Constant(Value::Str(text.as_str().into())),
            _ => Node::Text(lowered),
        })
    }

    fn object(&mut self, entries: &[(Term<&'s str>, Option<Term<&'s str>>)]) -> Result<Node> {
        let mut lowered = Vec::new();
        for (key, value) in entries {
            let (key, value) = match (key, value) {
                (Term::Var(name), None) => {
                    let field: Arc<str> = name.trim_start_matches('$').into();
                    (Node::Constant(Value::Str(field)), self.term(key)?)
                }
                (key, Some(value)) => (self.term(key)?, self.term(value)?),
                (key, None) => {
                    let index = vec![(Step::Index(self.term(key)?), false)];
                    (self.term(key)?, Node::Path(Box::new(Node::Identity), index))
                }
            };
            lowered.push((key, value));
        }
        Ok(Node::Object(lowered))
    }

    fn operation(
        &mut self,
        left: &Term<&'s str>,
        op: &BinaryOp<&'s str>,
        right: &Term<&'s str>,
    ) -> Result<Node> {
        let math = |math: &ops::Math| match math {
            ops::Math::Add => Math::Add,
            ops::Math::Sub => Math::Subtract,
            ops::Math::Mul => Math::Multiply,
            ops::Math::Div => Math::Divide,
            ops::Math::Rem => Math::Remainder,
        };
        let comparison = |comparison: &ops::Cmp| match comparison {
            ops::Cmp::Lt => Comparison::Less,
            ops::Cmp::Le => Comparison::LessOrEqual,
            ops::Cmp::Gt => Comparison::Greater,
            ops::Cmp::Ge => Comparison::GreaterOrEqual,
            ops::Cmp::Eq => Comparison::Equal,
            ops::Cmp::Ne => Comparison::NotEqual,
        };
        let sign = match op {
            BinaryOp::Pipe(Some(taken)) => {
                let (left, names) = (self.boxed(left)?, self.names.len());
                let (binding, right) =
                    self.scoped(names, |lower| Ok((lower.binding(taken)?, lower.boxed(right)?)))?;
                return Ok(Node::Bind(left, binding, right));
            }
            BinaryOp::Assign => "=",
            BinaryOp::Update => "|=",
            BinaryOp::UpdateMath(ops::Math::Add) => "+=",
            BinaryOp::UpdateMath(ops::Math::Sub) => "-=",
            BinaryOp::UpdateMath(ops::Math::Mul) => "*=",
            BinaryOp::UpdateMath(ops::Math::Div) => "/=",
            BinaryOp::UpdateMath(ops::Math::Rem) => "%=",
            BinaryOp::UpdateAlt => "//=",
            _ => "",
        };
        if !sign.is_empty() {
            return Err(Refused::whole(format!("not allowed: {sign}")));
        }
        let (left, right) = (self.boxed(left)?, self.boxed(right)?);
        Ok(match op {
            BinaryOp::Comma => Node::Comma(left, right),
            BinaryOp::Alt => Node::Alternative(left, right),
            BinaryOp::Or => Node::Or(left, right),
            BinaryOp::And => Node::And(left, right),
            BinaryOp::Math(op) => Node::Math(left, math(op), right),
            BinaryOp::Cmp(op) => Node::Compare(left, comparison(op), right),
            BinaryOp::Pipe(_)
            | BinaryOp::Assign
            | BinaryOp::Update
            | BinaryOp::UpdateMath(_)
            | BinaryOp::UpdateAlt => Node::Pipe(left, right),
        })
    }

    fn fold(
        &mut self,
        word: &'s str,
        source: &Term<&'s str>,
        taken: &BindingPattern<&'s str>,
        arguments: &[Term<&'s str>],
    ) -> Result<Node> {
        let (source, names) = (self.term(source)?, self.names.len());
        match (word, arguments) {
            ("reduce", [first, update]) => {
                let first = self.term(first)?;
                let (binding, update) =
                    self.scoped(names, |lower| Ok((lower.binding(taken)?, lower.term(update)?)))?;
                Ok(Node::Reduce(Box::new(Fold { source, binding, first, update })))
            }
            ("foreach", [first, update, rest @ ..]) if rest.len() < 2 => {
                let first = self.term(first)?;
                let (binding, update, extract) = self.scoped(names, |lower| {
                    let (binding, update) = (lower.binding(taken)?, lower.term(update)?);
                    let extract = rest.first().map_or(Ok(Box::new(Node::Identity)), |term| lower.boxed(term));
                    Ok((binding, update, extract?))
                })?;
                Ok(Node::Foreach(Box::new(Fold { source, binding, first, update }), extract))
            }
            _ => self.refuse(word, format!("not allowed: {word} with {} arguments", arguments.len())),
        }
    }

    fn call(&mut self, name: &'s str, arguments: &[Term<&'s str>]) -> Result<Node> {
        match (name, arguments) {
            ("true", []) => return Ok(Node::Constant(Value::Bool(true))),
            ("false", []) => return Ok(Node::Constant(Value::Bool(false))),
            ("null", []) => return Ok(Node::Constant(Value::Null)),
            ("test", [pattern, flags @ ..]) if flags.len() < 2 => {
                return self.test(name, pattern, flags.first());
            }
            _ => {}
        }
        let arity = arguments.len();
        let fits = |known: &str, takes: usize| known == name && takes == arity;
        if let Some((.., native)) = NATIVES.iter().find(|(known, takes, _)| fits(known, *takes)) {
            return Ok(Node::Call(*native, self.terms(arguments)?));
        }
        if let Some((.., control)) = CONTROLS.iter().find(|(known, takes, _)| fits(known, *takes)) {
            return Ok(Node::Control(*control, self.terms(arguments)?));
        }
        self.refuse(name, format!("not allowed: {name}/{arity}"))
    }

    fn terms(&mut self, terms: &[Term<&'s str>]) -> Result<Vec<Node>> {
        terms.iter().map(|term| self.term(term)).collect()
    }

    fn test(&mut self, name: &str, pattern: &Term<&'s str>, flags: Option<&Term<&'s str>>) -> Result<Node> {
        let mut literal = |term: &Term<&'s str>| match self.term(term)? {
            Node::Constant(Value::Str(text)) => Ok(Some(text)),
            _ => Ok(None),
        };
        let (pattern, flags) = (literal(pattern)?, flags.map(literal).transpose()?);
        let (Some(pattern), Some(flags)) = (pattern, flags.unwrap_or_else(|| Some("".into()))) else {
            return self.refuse(name, "not allowed: test with a pattern or flags that are no literal string");
        };
        let flags = match Flags::read(&flags) {
            Ok(flags) => flags,
            Err(flag) => return self.refuse(name, format!("not allowed: test with the flag '{flag}'")),
        };
        self.patterns += 1;
        if self.patterns > self.max_patterns {
            return self.refuse(name, "there are too many patterns");
        }
        match Pattern::new(&pattern, flags) {
            Ok(pattern) => {
                self.pattern_bytes += pattern.bytes();
                Ok(Node::Test(pattern))
            }
            Err(text) => self.refuse(name, format!("not allowed: test with this pattern: {text}")),
        }
    }
}
