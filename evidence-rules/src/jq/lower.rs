//! Lowers a parsed filter to a [`Node`]. It is an allowlist: every other name or construct is rejected.

use std::collections::BTreeMap;
use std::sync::Arc;

use jaq_core::load::lex::{Lexer, StrPart};
use jaq_core::load::parse::{BinaryOp, Def, Parser, Pattern as BindingPattern, Term};
use jaq_core::ops;
use jaq_core::path;

use super::Refused;
use super::format::Format;
use super::library::{LIBRARY, REFUSED};
use super::pattern::{Flags, Pattern};
use super::scan::scan;
use super::tree::{
    Assignment, Binding, CONTROLS, Comparison, Control, Fold, Function, Matching, Math, NATIVES, Native,
    Node, Part, Source, Step,
};
use super::value::Value;

/// Maximum length of a filter in bytes.
pub(super) const MAX_SOURCE: usize = 4 << 10;

/// Maximum number of parts of a filter.
pub(super) const MAX_NODES: usize = 512;

/// Maximum nesting depth of the parts of a filter.
const MAX_NESTING: usize = 128;

/// The result of lowering a filter.
#[derive(Debug)]
pub(super) struct Lowered {
    pub(super) node: Node,
    /// The library functions that it calls.
    pub(super) library: Vec<Function>,
    /// Whether its calls may be deeply nested.
    pub(super) is_deep: bool,
    /// Whether it uses the time of the record.
    pub(super) asks_for_time: bool,
    /// Number of parts.
    pub(super) nodes: usize,
    /// Number of patterns.
    pub(super) patterns: usize,
    /// Approximate memory use of the patterns in bytes.
    pub(super) pattern_bytes: usize,
}

/// Lowers the text of a filter with at most this number of patterns.
pub(super) fn lower(source: &str, max_patterns: usize) -> Result<Lowered, Refused> {
    if source.len() > MAX_SOURCE {
        return Err(Refused::whole(format!("should have at most {MAX_SOURCE} bytes")));
    }
    scan(source)?;
    let mut lower = Lower {
        source,
        names: Vec::new(),
        library: Vec::new(),
        known: BTreeMap::new(),
        is_deep: false,
        asks_for_time: false,
        nodes: 0,
        depth: 0,
        patterns: 0,
        pattern_bytes: 0,
        max_patterns,
    };
    let node = lower.parsed(source, |lower, term| lower.term(term))?;
    let Lower { library, nodes, patterns, pattern_bytes, is_deep, asks_for_time, .. } = lower;
    let library = library.into_iter().flatten().collect();
    Ok(Lowered {
        node,
        library,
        is_deep: is_deep || nodes > SHALLOW,
        asks_for_time,
        nodes,
        patterns,
        pattern_bytes,
    })
}

/// Filters with at most this number of parts run on any stack.
const SHALLOW: usize = 128;

/// Returns the offset of a part of the source in bytes.
fn place(source: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(source.as_ptr() as usize).min(source.len())
}

/// The kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name<'s> {
    Variable(&'s str),
    /// A function, or an argument of one, with its number of arguments.
    Function(&'s str, usize),
    Label(&'s str),
}

struct Lower<'s> {
    source: &'s str,
    /// The names in scope, the innermost last.
    names: Vec<Name<'s>>,
    /// The library functions that are called; `None` while one is being lowered.
    library: Vec<Option<Function>>,
    known: BTreeMap<(&'static str, usize), usize>,
    is_deep: bool,
    asks_for_time: bool,
    nodes: usize,
    depth: usize,
    patterns: usize,
    pattern_bytes: usize,
    max_patterns: usize,
}

type Result<T, E = Refused> = std::result::Result<T, E>;

impl<'s> Lower<'s> {
    /// Parses text and lowers it.
    fn parsed<T>(
        &mut self,
        text: &'s str,
        lower: impl FnOnce(&mut Self, &Term<&'s str>) -> Result<T>,
    ) -> Result<T> {
        let tokens = Lexer::new(text).lex().map_err(|errors| {
            let found = errors.first();
            let at = found.map_or(0, |(_, rest)| text.len() - rest.len());
            let expected = found.map_or("another text", |(expected, _)| match expected {
                jaq_core::load::lex::Expect::Delim(_) => "a closing bracket or quote",
                expected => expected.as_str(),
            });
            Refused::at(text, at, format!("expected {expected}"))
        })?;
        let term = Parser::new(&tokens).parse(Parser::term).map_err(|errors| {
            let found = errors.first();
            let expected = found.map_or("another text", |(expected, _)| expected.as_str());
            let expected = if expected.is_empty() { "nothing more" } else { expected };
            let token = found.and_then(|(_, token)| *token).map(|token| token.as_str());
            let at = token.map_or(text.len(), |token| place(text, token));
            Refused::at(text, at, format!("expected {expected}"))
        })?;
        lower(self, &term)
    }

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
            Term::Str(None, parts) => self.text(Format::Text, parts)?,
            Term::Str(Some(name), parts) => match Format::named(name) {
                Some(format) => self.text(format, parts)?,
                None => return self.unknown(name, name),
            },
            Term::Arr(None) => Node::List(Box::new(Node::Control(Control::Empty, Vec::new()))),
            Term::Arr(Some(items)) => Node::List(self.boxed(items)?),
            Term::Obj(entries) => self.object(entries)?,
            Term::Neg(term) => Node::Negate(self.boxed(term)?),
            Term::BinOp(left, op, right) => self.operation(left, op, right)?,
            Term::Label(name, body) => {
                let names = self.names.len();
                self.names.push(Name::Label(name));
                Node::Label(self.scoped(names, |lower| lower.boxed(body))?)
            }
            Term::Break(name) => Node::Break(self.distance(name, Name::Label(name))?),
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
            Term::Def(definitions, rest) => {
                let names = self.names.len();
                self.is_deep = true;
                self.scoped(names, |lower| {
                    let functions = definitions.iter().map(|definition| lower.definition(definition));
                    let functions = functions.collect::<Result<_>>()?;
                    Ok(Node::Define(functions, lower.boxed(rest)?))
                })?
            }
            Term::Call(name, arguments) => self.call(name, arguments)?,
            Term::Var(name) => Node::Variable(self.distance(name, Name::Variable(name))?),
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

    /// Returns the distance of a name in the environment.
    fn distance(&self, part: &str, name: Name<'s>) -> Result<usize> {
        match self.names.iter().rev().position(|known| *known == name) {
            Some(distance) => Ok(distance),
            None => self.unknown(part, part),
        }
    }

    /// Rejects a name, with the reason if there is one.
    fn unknown<T>(&self, part: &str, name: &str) -> Result<T> {
        let bare = name.split('/').next().unwrap_or(name);
        let reason = REFUSED.iter().find(|(names, _)| names.contains(&bare)).map(|(_, reason)| *reason);
        match reason {
            Some(reason) => self.refuse(part, format!("not allowed: {name}: {reason}")),
            None => self.refuse(part, format!("not allowed: {name}")),
        }
    }

    /// Lowers a definition. A function sees itself and its arguments. An argument `$x` is also a variable.
    fn definition(&mut self, definition: &Def<&'s str>) -> Result<Function> {
        self.count()?;
        self.names.push(Name::Function(definition.name, definition.args.len()));
        let names = self.names.len();
        self.scoped(names, |lower| {
            for argument in &definition.args {
                lower.names.push(Name::Function(argument.trim_start_matches('$'), 0));
            }
            let mut values = Vec::new();
            for argument in definition.args.iter().filter(|argument| argument.starts_with('$')) {
                lower.count()?;
                let closure = Name::Function(argument.trim_start_matches('$'), 0);
                values.push(Node::Apply(lower.distance(argument, closure)?, Vec::new()));
                lower.names.push(Name::Variable(argument));
            }
            let mut body = lower.term(&definition.body)?;
            for value in values.into_iter().rev() {
                body = Node::Bind(Box::new(value), Binding::Variable, Box::new(body));
            }
            Ok(Function { body })
        })
    }

    /// Lowers the scope of names, then removes them.
    fn scoped<T>(&mut self, names: usize, lower: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let lowered = lower(self)?;
        self.names.truncate(names);
        Ok(lowered)
    }

    fn binding(&mut self, taken: &BindingPattern<&'s str>) -> Result<Binding> {
        self.count()?;
        Ok(match taken {
            BindingPattern::Var(name) => {
                self.names.push(Name::Variable(name));
                Binding::Variable
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

    fn text(&mut self, format: Format, parts: &[StrPart<&'s str, Term<&'s str>>]) -> Result<Node> {
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
            _ => Node::Text(format, lowered),
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
        if let BinaryOp::Pipe(Some(taken)) = op {
            let (left, names) = (self.boxed(left)?, self.names.len());
            let (binding, right) =
                self.scoped(names, |lower| Ok((lower.binding(taken)?, lower.boxed(right)?)))?;
            return Ok(Node::Bind(left, binding, right));
        }
        let (left, right) = (self.boxed(left)?, self.boxed(right)?);
        Ok(match op {
            BinaryOp::Comma => Node::Comma(left, right),
            BinaryOp::Alt => Node::Alternative(left, right),
            BinaryOp::Or => Node::Or(left, right),
            BinaryOp::And => Node::And(left, right),
            BinaryOp::Math(op) => Node::Math(left, math(op), right),
            BinaryOp::Cmp(op) => Node::Compare(left, comparison(op), right),
            BinaryOp::Pipe(_) => Node::Pipe(left, right),
            BinaryOp::Assign => Node::Assign(left, Assignment::Set, right),
            BinaryOp::Update => Node::Assign(left, Assignment::Modify, right),
            BinaryOp::UpdateMath(op) => Node::Assign(left, Assignment::Math(math(op)), right),
            BinaryOp::UpdateAlt => Node::Assign(left, Assignment::Alternative, right),
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
        let arity = arguments.len();
        if let Ok(distance) = self.distance(name, Name::Function(name, arity)) {
            return Ok(Node::Apply(distance, self.terms(arguments)?));
        }
        match (name, arguments) {
            ("true", []) => return Ok(Node::Constant(Value::Bool(true))),
            ("false", []) => return Ok(Node::Constant(Value::Bool(false))),
            ("null", []) => return Ok(Node::Constant(Value::Null)),
            ("recurse", []) => return Ok(Node::Descend),
            _ => {}
        }
        if let Some((_, matching, _)) =
            MATCHINGS.iter().find(|(known, _, takes)| *known == name && takes.contains(&arity))
        {
            return self.matching(name, *matching, arguments);
        }
        if let ([], Some(format)) = (arguments, Format::named(name)) {
            return Ok(Node::Format(format));
        }
        let fits = |known: &str, takes: usize| known == name && takes == arity;
        if let Some((.., native)) = NATIVES.iter().find(|(known, takes, _)| fits(known, *takes)) {
            self.asks_for_time |= *native == Native::Now;
            return Ok(Node::Call(*native, self.terms(arguments)?));
        }
        if let Some((.., control)) = CONTROLS.iter().find(|(known, takes, _)| fits(known, *takes)) {
            self.is_deep |= matches!(control, Control::Walk | Control::Path | Control::Delete);
            return Ok(Node::Control(*control, self.terms(arguments)?));
        }
        if let Some((known, takes, text)) = LIBRARY.iter().find(|(known, takes, _)| fits(known, *takes)) {
            let position = self.library(known, *takes, text)?;
            return Ok(Node::Library(position, self.terms(arguments)?));
        }
        self.unknown(name, &format!("{name}/{arity}"))
    }

    /// Returns the position of a library function, which is lowered on its first call.
    fn library(&mut self, name: &'static str, arity: usize, text: &'static str) -> Result<usize> {
        if let Some(known) = self.known.get(&(name, arity)) {
            return Ok(*known);
        }
        self.is_deep = true;
        let position = self.library.len();
        self.library.push(None);
        self.known.insert((name, arity), position);
        let names = std::mem::take(&mut self.names);
        let lowered = self.parsed(text, |lower, term| match term {
            Term::Def(definitions, _) => {
                definitions.first().map(|definition| lower.definition(definition)).transpose()
            }
            _ => Ok(None),
        });
        self.names = names;
        if let (Some(place), Some(function)) = (self.library.get_mut(position), lowered?) {
            *place = Some(function);
        }
        Ok(position)
    }

    fn terms(&mut self, terms: &[Term<&'s str>]) -> Result<Vec<Node>> {
        terms.iter().map(|term| self.term(term)).collect()
    }

    /// Lowers a function that takes a pattern. A literal pattern is compiled now.
    fn matching(&mut self, name: &'s str, matching: Matching, arguments: &[Term<&'s str>]) -> Result<Node> {
        let mut lowered = self.terms(arguments)?.into_iter();
        let pattern = lowered.next().map_or(Node::Constant(Value::Null), |node| node);
        let replacement = (matching == Matching::Sub).then(|| lowered.next().map(Box::new)).flatten();
        // `split` takes a pattern only if it has a flags argument, which may be null.
        let flags = lowered.next().unwrap_or(Node::Constant(Value::Null));
        let global = if name == "gsub" { "g" } else { "" };
        let letters = match &flags {
            Node::Constant(Value::Str(letters)) => Some(format!("{letters}{global}")),
            Node::Constant(Value::Null) => Some(global.to_owned()),
            _ => None,
        };
        let (Node::Constant(Value::Str(text)), Some(letters)) = (&pattern, letters) else {
            let flags = if global.is_empty() {
                flags
            } else {
                Node::Math(Box::new(flags), Math::Add, Box::new(Node::Constant(Value::Str(global.into()))))
            };
            let source = Source::Dynamic(Box::new(pattern), Box::new(flags));
            return Ok(Node::Match(matching, source, replacement));
        };
        let flags = match Flags::read(&letters) {
            Ok(flags) => flags,
            Err(flag) => return self.refuse(name, format!("not allowed: {name} with the flag '{flag}'")),
        };
        self.patterns += 1;
        if self.patterns > self.max_patterns {
            return self.refuse(name, "there are too many patterns");
        }
        match Pattern::new(text, flags, matching != Matching::Test) {
            Ok(pattern) => {
                self.pattern_bytes += pattern.bytes();
                Ok(Node::Match(matching, Source::Literal(Box::new(pattern), flags), replacement))
            }
            Err(text) => self.refuse(name, format!("not allowed: {name} with this pattern: {text}")),
        }
    }
}

/// Functions that take patterns, with their allowed numbers of arguments.
const MATCHINGS: [(&str, Matching, &[usize]); 8] = [
    ("test", Matching::Test, &[1, 2]),
    ("match", Matching::Match, &[1, 2]),
    ("capture", Matching::Capture, &[1, 2]),
    ("scan", Matching::Scan, &[1, 2]),
    ("split", Matching::Split, &[2]),
    ("splits", Matching::Splits, &[1, 2]),
    ("sub", Matching::Sub, &[2, 3]),
    ("gsub", Matching::Sub, &[2, 3]),
];
