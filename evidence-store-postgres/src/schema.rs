//! The schema that holds the tables, and bringing them up to date in it: under a lock, in one transaction, so that many
//! servers may start at once and each finds all of a version or nothing.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::error::ConnectError;

const MIGRATIONS: [&str; 1] = [include_str!("../migrations/0001_first.sql")];

/// The oldest server that the statements were tried on.
const OLDEST_SERVER: i64 = 15;

const SERVER: &str =
    "SELECT current_setting('server_version_num')::bigint / 10000, current_setting('server_encoding')";

/// One lock a schema; it ends with the transaction, so that a connection pooler between does not matter.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('evidence migrations: ' || $1, 0))";

/// How long to wait for another server that is at it.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '30s'";

// These read the catalog's rows. `to_regclass` and the like answer from a session's cache, which says no for a while yet
// after another server has made what was missing and given up the lock: of ten servers at once, some failed.

const SCHEMA_EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)";

const TABLE_EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = '_evidence_migrations')";

const MIGRATION_TABLE: &str =
    "CREATE TABLE evidence._evidence_migrations (version bigint NOT NULL PRIMARY KEY)";

pub(crate) const MIGRATED: &str = "SELECT coalesce(max(version), 0) FROM evidence._evidence_migrations";

const MIGRATION_DONE: &str = "INSERT INTO evidence._evidence_migrations (version) VALUES ($1)";

/// What stands before every table's name in this crate's statements.
const WRITTEN: &str = "evidence.";

/// The name of a schema that needs no quotes, so that it reads the same in a statement and in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schema(String);

impl Schema {
    /// The schema of a session's temporary tables.
    pub(crate) fn temporary() -> Self {
        Self("pg_temp".to_owned())
    }

    pub(crate) fn new(name: &str) -> Result<Self, ConnectError> {
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let good = matches!(name.len(), 1..=63)
            && name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.bytes().all(is_word)
            && !name.starts_with("pg_");
        if good { Ok(Self(name.to_owned())) } else { Err(ConnectError::BadSchema(name.to_owned())) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// A statement of this crate, about the tables of this schema. Callers pass constants and what they join of them:
    /// every value is bound. The schema's name is quoted, for it may be a reserved word.
    pub(crate) fn statement(&self, sql: &str) -> AssertSqlSafe<String> {
        let quoted = format!("\"{}\".", self.0);
        AssertSqlSafe(if self.0 == "evidence" { sql.to_owned() } else { sql.replace(WRITTEN, &quoted) })
    }

    /// Brings the tables up to date, if they are not.
    pub(crate) async fn migrate(&self, connection: &mut PgConnection) -> Result<(), ConnectError> {
        let (server, encoding): (i64, String) =
            sqlx::query_as(SERVER).fetch_one(&mut *connection).await.map_err(ConnectError::connecting)?;
        if server < OLDEST_SERVER {
            return Err(ConnectError::OldServer(server));
        }
        if encoding != "UTF8" {
            return Err(ConnectError::Encoding(encoding));
        }
        let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        let failed = |version| move |source| ConnectError::migrating(&self.0, version, source);
        // Nothing is locked or made where nothing is missing: a user with no such right, or a standby, will do.
        if self.version(connection).await.map_err(failed(0))? == known {
            return Ok(());
        }
        let mut transaction = connection.begin().await.map_err(failed(0))?;
        sqlx::raw_sql(LOCK_TIMEOUT).execute(&mut *transaction).await.map_err(failed(0))?;
        sqlx::query(LOCK).bind(&self.0).execute(&mut *transaction).await.map_err(failed(0))?;
        let found = self.version(&mut transaction).await.map_err(failed(0))?;
        if found > known {
            return Err(ConnectError::NewerSchema { found, known });
        }
        if found < 0 {
            self.prepare(&mut transaction).await.map_err(failed(0))?;
        }
        for (version, migration) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
            self.apply(&mut transaction, version, migration).await.map_err(failed(version))?;
        }
        transaction.commit().await.map_err(failed(known))
    }

    /// The version of the tables; -1 where not even the table of versions is.
    async fn version(&self, connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
        if !sqlx::query_scalar(TABLE_EXISTS).bind(&self.0).fetch_one(&mut *connection).await? {
            return Ok(-1);
        }
        sqlx::query_scalar(self.statement(MIGRATED)).fetch_one(connection).await
    }

    async fn prepare(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        // `IF NOT EXISTS` would ask for the right to make a schema that is there.
        if !sqlx::query_scalar(SCHEMA_EXISTS).bind(&self.0).fetch_one(&mut *connection).await? {
            let create = AssertSqlSafe(format!("CREATE SCHEMA \"{}\"", self.0));
            sqlx::raw_sql(create).execute(&mut *connection).await?;
        }
        sqlx::raw_sql(self.statement(MIGRATION_TABLE)).execute(connection).await.map(drop)
    }

    async fn apply(
        &self,
        connection: &mut PgConnection,
        version: i64,
        migration: &'static str,
    ) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(self.statement(migration)).execute(&mut *connection).await?;
        sqlx::query(self.statement(MIGRATION_DONE)).bind(version).execute(connection).await.map(drop)
    }

    /// Makes the tables of the latest version, in a schema that has none.
    pub(crate) async fn make(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(self.statement(MIGRATION_TABLE)).execute(&mut *connection).await?;
        for (version, migration) in (1..).zip(MIGRATIONS) {
            self.apply(connection, version, migration).await?;
        }
        Ok(())
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
            assert!(matches!(Schema::new(bad), Err(ConnectError::BadSchema(name)) if name == bad), "{bad}");
        }
    }

    #[test]
    fn statements_name_the_schema_whatever_the_search_path() {
        let named = |schema: &str, sql| Schema::new(schema).unwrap().statement(sql).0;
        assert_eq!(named("evidence", "SELECT 1 FROM evidence.head"), "SELECT 1 FROM evidence.head");
        assert_eq!(named("user", "SELECT 1 FROM evidence.head"), "SELECT 1 FROM \"user\".head");
    }
}
