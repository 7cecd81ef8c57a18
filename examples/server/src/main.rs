//! The standalone evidence server.
fn main() {}
