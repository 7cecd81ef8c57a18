//! The schema that contains the tables.

use evidence_store_sql::SCHEMA;
use sqlx::AssertSqlSafe;

use crate::error::ConnectError;

/// The tables, with the privileges that writing needs on each. Other objects in the schema do not belong to
/// the store.
pub(crate) const TABLES: [(&str, &[&str]); 41] = [
    ("_evidence_migrations", &["SELECT"]),
    ("allowance", &["SELECT", "INSERT"]),
    ("allowed", &["SELECT", "INSERT", "UPDATE"]),
    ("api_key", &["SELECT", "INSERT", "UPDATE"]),
    ("artifact", &["SELECT", "INSERT"]),
    ("attachment", &["SELECT", "INSERT"]),
    ("attachment_pending", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("attachment_place", &["SELECT", "INSERT", "UPDATE"]),
    ("attestation", &["SELECT", "INSERT"]),
    ("blob", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("blob_chunk", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("build", &["SELECT", "INSERT"]),
    ("checkpoint", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("clock_correction", &["SELECT", "INSERT"]),
    ("commit_trail", &["SELECT", "INSERT"]),
    ("cursor", &["SELECT", "INSERT", "UPDATE"]),
    ("delivery", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("deployment", &["SELECT", "INSERT"]),
    ("environment_member", &["SELECT", "INSERT"]),
    ("environment_report", &["SELECT", "INSERT", "UPDATE"]),
    ("flow_repo", &["SELECT", "INSERT", "UPDATE"]),
    ("head", &["SELECT", "INSERT", "UPDATE"]),
    ("instance", &["SELECT", "INSERT", "UPDATE"]),
    ("interned_text", &["SELECT", "INSERT", "UPDATE"]),
    ("known_organization", &["SELECT", "INSERT"]),
    ("lease", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("ledger", &["SELECT", "INSERT"]),
    ("membership", &["SELECT", "INSERT", "UPDATE"]),
    ("name", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("node", &["SELECT", "INSERT"]),
    ("organization", &["SELECT", "INSERT"]),
    ("record", &["SELECT", "INSERT", "UPDATE"]),
    ("record_tag", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("repo", &["SELECT", "INSERT", "UPDATE"]),
    ("run_origin", &["SELECT", "INSERT", "UPDATE"]),
    ("secret_url", &["SELECT", "INSERT", "DELETE"]),
    ("snapshot", &["SELECT", "INSERT"]),
    ("trail", &["SELECT", "INSERT", "UPDATE"]),
    ("trail_entry", &["SELECT", "INSERT"]),
    ("user", &["SELECT", "INSERT"]),
    ("version", &["SELECT", "INSERT"]),
];

/// A schema name of `[a-z0-9_]` only: the same in the catalog and, quoted, in statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schema(String);

impl Schema {
    /// Returns the schema of a session's temporary tables.
    pub(crate) fn temporary() -> Self {
        Self("pg_temp".to_owned())
    }

    pub(crate) fn new(name: &str) -> Result<Self, ConnectError> {
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let good = matches!(name.len(), 1..=63)
            && name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.bytes().all(is_word)
            && !name.starts_with("pg_");
        if good { Ok(Self(name.to_owned())) } else { Err(ConnectError::InvalidSchema(name.to_owned())) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Returns the quoted name of a table.
    pub(crate) fn table(&self, name: &str) -> String {
        format!("\"{}\".\"{name}\"", self.0)
    }

    /// Returns a statement of this crate for the tables of this schema. Callers pass constants and
    /// concatenations of them: every value is bound. The schema's name is quoted, because it may be a
    /// reserved word.
    pub(crate) fn statement(&self, sql: &str) -> AssertSqlSafe<String> {
        let quoted = format!("\"{}\".", self.0);
        AssertSqlSafe(if self.0 == "evidence" { sql.to_owned() } else { sql.replace(SCHEMA, &quoted) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_a_plain_word() {
        for good in ["evidence", "e", "tenant_1", "user", &"a".repeat(63)] {
            assert!(Schema::new(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "_a", "A", "a b", "a\"b", "a.b", "ä", "pg_temp", &"a".repeat(64)] {
            assert!(
                matches!(Schema::new(bad), Err(ConnectError::InvalidSchema(name)) if name == bad),
                "{bad}"
            );
        }
    }

    #[test]
    fn statements_name_the_schema_whatever_the_search_path() {
        let named = |schema: &str, sql| Schema::new(schema).unwrap().statement(sql).0;
        assert_eq!(named("evidence", "SELECT 1 FROM evidence.head"), "SELECT 1 FROM evidence.head");
        assert_eq!(named("user", "SELECT 1 FROM evidence.head"), "SELECT 1 FROM \"user\".head");
    }
}
