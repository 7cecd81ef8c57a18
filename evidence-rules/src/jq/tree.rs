//! The result of lowering a filter: a tree in which every name is resolved. Names are distances in the
//! environment.

use super::format::Format;
use super::pattern::{Flags, Pattern};
use super::value::Value;

/// A part of a filter.
#[derive(Debug)]
pub(super) enum Node {
    /// `.`
    Identity,
    /// `..`
    Descend,
    /// A literal.
    Constant(Value),
    /// `"a \(f) b"`, `@csv "a \(f) b"`
    Text(Format, Vec<Part>),
    /// `@csv`
    Format(Format),
    /// `[f]`
    List(Box<Node>),
    /// `{a: f, (g): h}`
    Object(Vec<(Node, Node)>),
    /// `-f`
    Negate(Box<Node>),
    /// `f | g`
    Pipe(Box<Node>, Box<Node>),
    /// `f, g`
    Comma(Box<Node>, Box<Node>),
    /// `f // g`
    Alternative(Box<Node>, Box<Node>),
    /// `f or g`
    Or(Box<Node>, Box<Node>),
    /// `f and g`
    And(Box<Node>, Box<Node>),
    /// `f + g` and other arithmetic.
    Math(Box<Node>, Math, Box<Node>),
    /// `f == g` and other comparisons.
    Compare(Box<Node>, Comparison, Box<Node>),
    /// `f = g`, `f |= g`, `f += g` and other assignments.
    Assign(Box<Node>, Assignment, Box<Node>),
    /// `reduce f as $x (g; h)`
    Reduce(Box<Fold>),
    /// `foreach f as $x (g; h; i)`
    Foreach(Box<Fold>, Box<Node>),
    /// `try f catch g`
    Try(Box<Node>, Option<Box<Node>>),
    /// `if f then g elif … else h end`
    If(Vec<(Node, Node)>, Box<Node>),
    /// `$x`
    Variable(usize),
    /// `f as $x | g`
    Bind(Box<Node>, Binding, Box<Node>),
    /// `f.a[g]?`
    Path(Box<Node>, Vec<(Step, bool)>),
    /// A function of its input and the results of its arguments.
    Call(Native, Vec<Node>),
    /// A function that evaluates its arguments itself.
    Control(Control, Vec<Node>),
    /// `test("…")`, `sub("…"; f)` and other functions that take patterns.
    Match(Matching, Source, Option<Box<Node>>),
    /// `def f(g): h; i`
    Define(Vec<Function>, Box<Node>),
    /// A call of a function that the filter defines, or of an argument of one.
    Apply(usize, Vec<Node>),
    /// A call of a library function that is written in jq.
    Library(usize, Vec<Node>),
    /// `label $x | f`
    Label(Box<Node>),
    /// `break $x`
    Break(usize),
}

/// A function that is written in jq.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) body: Node,
}

/// The use of a pattern's matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Matching {
    Test,
    Match,
    Capture,
    Scan,
    Split,
    Splits,
    Sub,
}

/// The origin of a pattern.
#[derive(Debug)]
pub(super) enum Source {
    /// A literal, which was compiled with the filter.
    Literal(Box<Pattern>, Flags),
    /// The results of two filters: the text and the flags.
    Dynamic(Box<Node>, Box<Node>),
}

/// A kind of assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assignment {
    Set,
    Modify,
    Math(Math),
    Alternative,
}

/// A part of a string.
#[derive(Debug)]
pub(super) enum Part {
    /// Literal text.
    Text(String),
    /// An interpolated filter.
    Filter(Node),
}

/// The common parameters of `reduce` and `foreach`.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) source: Node,
    pub(super) binding: Binding,
    pub(super) first: Node,
    pub(super) update: Node,
}

/// A destructuring pattern.
#[derive(Debug)]
pub(super) enum Binding {
    /// `$x`
    Variable,
    /// `[$a, $b]`
    Array(Vec<Binding>),
    /// `{a: $x, (f): $y}`
    Object(Vec<(Node, Binding)>),
}

/// A step of a path.
#[derive(Debug)]
pub(super) enum Step {
    /// `.a`, `[f]`
    Index(Node),
    /// `[f:g]`
    Slice(Option<Node>, Option<Node>),
    /// `[]`
    Each,
}

/// An arithmetic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Math {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

macro_rules! functions {
    ($($(#[$doc:meta])* $table:ident: $kind:ident { $($variant:ident = $name:literal / $arity:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $kind {
            $($variant,)*
        }

        /// All functions, with their names and numbers of arguments.
        pub(super) const $table: &[(&str, usize, $kind)] = &[$(($name, $arity, $kind::$variant),)*];
    )*};
}

functions! {
    /// Functions of an input and the results of their arguments.
    NATIVES: Native {
        Length = "length" / 0,
        Utf8ByteLength = "utf8bytelength" / 0,
        Not = "not" / 0,
        Keys = "keys" / 0,
        KeysUnsorted = "keys_unsorted" / 0,
        Has = "has" / 1,
        In = "in" / 1,
        Contains = "contains" / 1,
        Inside = "inside" / 1,
        Index = "index" / 1,
        Type = "type" / 0,
        Add = "add" / 0,
        Min = "min" / 0,
        Max = "max" / 0,
        Unique = "unique" / 0,
        Sort = "sort" / 0,
        Reverse = "reverse" / 0,
        Flatten = "flatten" / 0,
        FlattenTo = "flatten" / 1,
        ToEntries = "to_entries" / 0,
        FromEntries = "from_entries" / 0,
        GetPath = "getpath" / 1,
        SetPath = "setpath" / 2,
        DelPaths = "delpaths" / 1,
        Indices = "indices" / 1,
        LastIndex = "rindex" / 1,
        FromJson = "fromjson" / 0,
        Explode = "explode" / 0,
        Implode = "implode" / 0,
        Trim = "trim" / 0,
        TrimLeft = "ltrim" / 0,
        TrimRight = "rtrim" / 0,
        TrimBoth = "trimstr" / 1,
        Sqrt = "sqrt" / 0,
        Trunc = "trunc" / 0,
        FAbs = "fabs" / 0,
        Log = "log" / 0,
        Log2 = "log2" / 0,
        Log10 = "log10" / 0,
        Exp = "exp" / 0,
        Exp2 = "exp2" / 0,
        Exp10 = "exp10" / 0,
        Pow = "pow" / 2,
        Now = "now" / 0,
        FromDate = "fromdateiso8601" / 0,
        MakeTime = "mktime" / 0,
        Gmtime = "gmtime" / 0,
        FormatTime = "strftime" / 1,
        ParseTime = "strptime" / 1,
        StartsWith = "startswith" / 1,
        EndsWith = "endswith" / 1,
        TrimStart = "ltrimstr" / 1,
        TrimEnd = "rtrimstr" / 1,
        Downcase = "ascii_downcase" / 0,
        Upcase = "ascii_upcase" / 0,
        Split = "split" / 1,
        Join = "join" / 1,
        ToNumber = "tonumber" / 0,
        ToString = "tostring" / 0,
        ToJson = "tojson" / 0,
        Floor = "floor" / 0,
        Ceil = "ceil" / 0,
        Round = "round" / 0,
        Abs = "abs" / 0,
        Nth = "nth" / 1,
        FirstOf = "first" / 0,
        LastOf = "last" / 0,
        Error = "error" / 0,
        ErrorOf = "error" / 1,
    }
    /// Functions that evaluate their arguments themselves, as often as needed.
    CONTROLS: Control {
        Empty = "empty" / 0,
        Select = "select" / 1,
        Map = "map" / 1,
        MapValues = "map_values" / 1,
        WithEntries = "with_entries" / 1,
        AnyOf = "any" / 0,
        AnyBy = "any" / 1,
        Any = "any" / 2,
        AllOf = "all" / 0,
        AllBy = "all" / 1,
        All = "all" / 2,
        First = "first" / 1,
        Last = "last" / 1,
        Limit = "limit" / 2,
        IsEmpty = "isempty" / 1,
        IsIn = "IN" / 1,
        AnyIn = "IN" / 2,
        Paths = "paths" / 0,
        PathsTo = "paths" / 1,
        Path = "path" / 1,
        Delete = "del" / 1,
        Walk = "walk" / 1,
        Recurse = "recurse" / 1,
        RecurseIf = "recurse" / 2,
        Repeat = "repeat" / 1,
        While = "while" / 2,
        Until = "until" / 2,
        RangeTo = "range" / 1,
        Range = "range" / 2,
        Sum = "add" / 1,
        MinBy = "min_by" / 1,
        MaxBy = "max_by" / 1,
        UniqueBy = "unique_by" / 1,
        GroupBy = "group_by" / 1,
        SortBy = "sort_by" / 1,
        Values = "values" / 0,
        Nulls = "nulls" / 0,
        Booleans = "booleans" / 0,
        Numbers = "numbers" / 0,
        Strings = "strings" / 0,
        Arrays = "arrays" / 0,
        Objects = "objects" / 0,
        Scalars = "scalars" / 0,
        Iterables = "iterables" / 0,
    }
}
