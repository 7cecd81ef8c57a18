//! What is remembered for later requests: so much of it, or for so long.

pub(crate) mod sized;
pub(crate) mod ttl;
