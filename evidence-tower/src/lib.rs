//! The evidence API as a tower service.
