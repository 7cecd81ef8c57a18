//! The record of the steps of migrations, and the tables of the latest version in a new schema.

use evidence_store_sql::migrate::{Migration, Step};
use sqlx::PgConnection;

use crate::schema::Schema;

/// `rederived_through_org` is the last organization whose tables were rederived, until all are.
/// `rebuild_count` is the number of runs of `rebuild`: a store that prefetched before a rebuild must prefetch
/// again.
pub(crate) const TABLE: &str = "
    CREATE TABLE evidence._evidence_migrations (
        version               bigint NOT NULL PRIMARY KEY,
        min_writer_version    bigint NOT NULL,
        steps_done            bigint NOT NULL,
        rederived_through_org bytea,
        done                  boolean NOT NULL,
        rebuild_count         bigint NOT NULL DEFAULT 0
    )";

pub(crate) const BEGUN: &str = "
    INSERT INTO evidence._evidence_migrations (version, min_writer_version, steps_done, done) VALUES ($1, $2, 0, false)
    ON CONFLICT DO NOTHING";

pub(crate) const STEP_DONE: &str =
    "UPDATE evidence._evidence_migrations SET steps_done = $2 WHERE version = $1";

pub(crate) const DONE: &str = "UPDATE evidence._evidence_migrations SET done = true WHERE version <= $1";

/// Creates the tables of the latest version in a schema without tables.
pub(crate) async fn make(
    schema: &Schema,
    connection: &mut PgConnection,
    migrations: &[Migration],
) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(schema.statement(TABLE)).execute(&mut *connection).await?;
    for (version, Migration { min_writer_version, steps }) in (1_i64..).zip(migrations) {
        for step in *steps {
            let sql = match step {
                Step::Sql(sql) => (*sql).to_owned(),
                Step::Index { name, on } => format!("CREATE INDEX {name} ON {on}"),
                // There is no ledger to derive from.
                Step::RederiveTables(_) => continue,
            };
            sqlx::raw_sql(schema.statement(&sql)).execute(&mut *connection).await?;
        }
        let steps = i64::try_from(steps.len()).unwrap_or(i64::MAX);
        for query in [
            sqlx::query(schema.statement(BEGUN)).bind(version).bind(min_writer_version),
            sqlx::query(schema.statement(STEP_DONE)).bind(version).bind(steps),
            sqlx::query(schema.statement(DONE)).bind(version),
        ] {
            query.execute(&mut *connection).await?;
        }
    }
    Ok(())
}
