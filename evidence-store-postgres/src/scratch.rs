//! A session with temporary tables next to the tables of the store. The temporary schema belongs to the
//! session.

use evidence_core::store::StoreResult;
use evidence_store_sql::migrate::{Migration, latest};
use evidence_store_sql::{Cell, Dialect, Group, GroupRows, Row, ScratchSession, Value};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::bind::{Cells, arguments};
use crate::connections::{Address, PreparedConnection};
use crate::error::store_error;
use crate::schema::Schema;
use crate::steps::make;

/// An exclusive session. Its temporary tables disappear with its connection.
#[derive(Debug)]
pub struct ScratchDatabase {
    connection: PgConnection,
    stored: String,
    migrations: &'static [Migration],
}

impl ScratchDatabase {
    /// Creates the temporary tables.
    pub(crate) async fn open(
        address: &Address,
        stored: &Schema,
        migrations: &'static [Migration],
    ) -> Result<Self, sqlx::Error> {
        let mut connection = PreparedConnection::connect_for_maintenance(address).await?;
        make(&Schema::temporary(), &mut connection, migrations).await?;
        Ok(Self { connection, stored: format!("\"{}\".", stored.name()), migrations })
    }
}

impl ScratchSession for ScratchDatabase {
    const DIALECT: Dialect = Dialect::Postgres;

    fn stored(&self) -> &str {
        &self.stored
    }

    fn scratch(&self) -> &str {
        "pg_temp."
    }

    fn version(&self) -> i64 {
        latest(self.migrations)
    }

    async fn rows(&mut self, sql: &str, values: Vec<Value>) -> StoreResult<Vec<Row>> {
        let arguments = arguments(&values).map_err(store_error)?;
        let query = sqlx::query_as_with::<_, Cells, _>(AssertSqlSafe(sql.to_owned()), arguments);
        let rows = query.fetch_all(&mut self.connection).await.map_err(store_error)?;
        Ok(rows.into_iter().map(|cells| cells.row).collect())
    }

    async fn execute(&mut self, sql: &str) -> StoreResult<()> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.connection).await;
        done.map(drop).map_err(store_error)
    }

    async fn write(&mut self, _: &Cell, rows: GroupRows) -> StoreResult<()> {
        for (sql, values) in rows.corrections(self.scratch()) {
            self.rows(&sql, values).await?;
        }
        let (statement, values) = Group::of_rows(rows).into_statement(i64::MAX, true);
        let statement = Dialect::in_schema(statement, self.scratch()).into_owned();
        self.rows(&statement, values).await.map(drop)
    }

    async fn losses(&mut self) -> StoreResult<Vec<String>> {
        Ok(Vec::new())
    }

    async fn checkpoint_wal(&mut self) -> StoreResult<()> {
        Ok(())
    }

    async fn end(self) -> StoreResult<()> {
        self.connection.close().await.map_err(store_error)
    }
}
