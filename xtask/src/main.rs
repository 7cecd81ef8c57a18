//! What CI runs, runnable at home.
fn main() {}
