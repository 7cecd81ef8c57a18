//! The operations of the API as its list has them, for cases that ask every one.

use std::collections::{BTreeMap, BTreeSet};

use evidence_core::api;
use evidence_core::operation::{Operation, Visitor};
use http::Method;

/// How operations are reached, by their names: method and path.
#[derive(Default)]
struct Routes(BTreeMap<&'static str, (Method, &'static str)>);

impl Visitor for Routes {
    fn visit<O: Operation>(&mut self) {
        let method = format!("{:?}", O::METHOD).to_uppercase().parse().unwrap();
        self.0.insert(O::NAME, (method, O::PATH));
    }
}

/// The operations whose answers are cached.
#[derive(Default)]
struct Cached(BTreeSet<&'static str>);

impl Visitor for Cached {
    fn visit<O: Operation>(&mut self) {
        if O::CACHED {
            self.0.insert(O::NAME);
        }
    }
}

/// The names of the operations whose answers are cached.
pub(crate) fn cached() -> BTreeSet<&'static str> {
    let mut cached = Cached::default();
    api::operations(&mut cached);
    cached.0
}

/// How each operation of the API is reached, by its name.
pub(crate) fn routes() -> BTreeMap<&'static str, (Method, &'static str)> {
    let mut routes = Routes::default();
    api::operations(&mut routes);
    routes.0
}

/// The path of an operation with `names` put in for its parameters; the test in `file` says what they are.
pub(crate) fn path(template: &str, names: &BTreeMap<&'static str, String>, file: &str) -> String {
    let fill = |segment: &str| match segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}')) {
        Some(parameter) => names.get(parameter).cloned().unwrap_or_else(|| {
            panic!(
                "{template}: nothing is known for '{parameter}': make such a thing, and name it, in {file}"
            )
        }),
        None => segment.to_owned(),
    };
    template.split('/').map(fill).collect::<Vec<_>>().join("/")
}
