//! Library functions that are written in jq. A filter that calls one includes its definition.

/// The name, number of arguments and definition of each function.
pub(super) const LIBRARY: &[(&str, usize, &str)] = &[
    ("ascii", 0, "def ascii: [.] | implode; ."),
    (
        "combinations",
        0,
        "def combinations: if length == 0 then [] else .[0][] as $x | (.[1:] | combinations) as $w | [$x] + $w end; .",
    ),
    ("combinations", 1, "def combinations(n): . as $dot | [range(n)] | map($dot) | combinations; ."),
    ("date", 0, "def date: todate; ."),
    ("dateadd", 2, "def dateadd(u; n): . + n; ."),
    ("datesub", 2, "def datesub(u; n): . - n; ."),
    ("fromdate", 0, "def fromdate: fromdateiso8601; ."),
    ("INDEX", 1, "def INDEX(f): INDEX(.[]; f); ."),
    ("INDEX", 2, "def INDEX(stream; f): reduce stream as $row ({}; .[$row | f | tostring] = $row); ."),
    ("isvalid", 1, "def isvalid(f): try (f | true) catch false; ."),
    ("leaf_paths", 0, "def leaf_paths: paths(scalars); ."),
    (
        "nth",
        2,
        r#"def nth($n; f): if $n < 0 then error("Out of bounds negative array index") else last(limit($n + 1; f)) end; ."#,
    ),
    ("pick", 1, "def pick(f): . as $top | reduce path(f) as $p (null; setpath($p; $top | getpath($p))); ."),
    (
        "range",
        3,
        "def range($from; $to; $by): if $by > 0 then $from | while(. < $to; . + $by) \
         elif $by < 0 then $from | while(. > $to; . + $by) else empty end; .",
    ),
    (
        "skip",
        2,
        "def skip($n; f): if $n > 0 then foreach f as $x ($n; . - 1; if . < 0 then $x else empty end) else f end; .",
    ),
    ("toarray", 0, r#"def toarray: if type == "array" then . else [.] end; ."#),
    ("todate", 0, r#"def todate: strftime("%Y-%m-%dT%H:%M:%SZ"); ."#),
    ("todateiso8601", 0, "def todateiso8601: todate; ."),
    ("transpose", 0, "def transpose: (map(length) | max // 0) as $n | [range($n) as $i | [.[][$i]]]; ."),
];

/// Rejected names and the reasons.
pub(super) const REFUSED: &[(&[&str], &str)] = &[
    (&["input", "inputs", "input_filename", "input_line_number"], "a rule reads nothing but the data"),
    (
        &["env", "$ENV", "$__prog_args", "get_search_list", "$__loc__", "builtins", "modulemeta"],
        "a rule knows nothing of the server",
    ),
    (&["debug", "stderr", "halt", "halt_error"], "a rule answers by its results alone"),
    (&["localtime", "strflocaltime", "tzset"], "a rule knows no time zone but UTC; use gmtime and strftime"),
    (
        &["tostream", "fromstream", "truncate_stream", "limit_stream", "getpath_stream"],
        "the data are in memory; use paths and getpath",
    ),
    (&["nan", "infinite", "isnan", "isinfinite"], "each number is finite"),
    (&["@base32", "@base32d"], "use @base64"),
];
