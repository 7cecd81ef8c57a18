//! The conformance suite bites: a store that breaks any one promise fails it.
mod support;
