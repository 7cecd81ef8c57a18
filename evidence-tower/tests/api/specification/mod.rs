//! The specification's tables, row by row: every field of a resource, every error, every limit, every version. What an
//! endpoint does beyond them is tested in the module of its resource.

mod endpoints;
mod errors;
mod limits;
mod resources;
