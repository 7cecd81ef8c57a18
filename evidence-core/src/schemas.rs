//! The JSON Schemas of the documents that people write by hand.
