//! The rules: what a template asks for, what follows from what was reported, what a policy makes
//! of it, and what a snapshot expression means. Everything here is a pure function of its
//! arguments. There is no store, no clock and no randomness, so a verdict can be computed again
//! from the same records at any time, and the tests can be exhaustive.
//!
//! Start with [`template`] and [`compliance`], which together answer "is this trail compliant?";
//! [`policy`] asks the same of an environment, and [`snapshots`] reads the small language in which
//! callers name a snapshot.

pub mod compliance;
pub mod document;
pub mod policy;
pub mod snapshots;
pub mod template;
