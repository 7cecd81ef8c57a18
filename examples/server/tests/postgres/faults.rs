//! Everything that can be wrong with a database: one sentence that says what to do and status 1, or 503 until it is
//! right again; and never half a schema.
