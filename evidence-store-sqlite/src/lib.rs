//! The evidence store on SQLite.
