//! The checks that every store has to pass, one promise each.
