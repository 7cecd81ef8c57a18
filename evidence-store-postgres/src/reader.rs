//! Runs queries over the pool of connections.

use std::sync::Arc;

use evidence_core::limiter::{FairSemaphore, Tenant, UNLIMITED};
use evidence_store_sql::migrate::Migration;
use evidence_store_sql::{Cost, Statement};
use tokio::time::Instant;

use crate::bind::{Cells, arguments};
use crate::connections::Connections;
use crate::error::is_cut;
use crate::schema::Schema;

/// The connections and settings for queries.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) connections: Connections,
    /// Limits long queries on these connections.
    pub(crate) long_queries: FairSemaphore<Tenant>,
    pub(crate) schema: Schema,
    pub(crate) migrations: &'static [Migration],
}

impl Reader {
    /// Returns every row. Runs the statement again if the connection was dead. This is safe: a query changes
    /// nothing, and a repeated change changes nothing more.
    pub(crate) async fn rows(&self, statement: Statement) -> Result<Vec<Cells>, sqlx::Error> {
        let Statement { sql, values, org, cost } = statement;
        #[cfg(test)]
        crate::statements_run::note(&self.schema, &sql, &values);
        let sql = sqlx::SqlSafeStr::into_sql_str(self.schema.statement(&sql));
        let arguments = arguments(&values)?;
        let long_permit = if cost == Cost::Short {
            None
        } else {
            let deadline = Instant::now() + self.connections.acquire_timeout();
            let permit = self.long_queries.acquire(org, UNLIMITED, deadline).await;
            Some(Arc::new(permit.map_err(|_| sqlx::Error::PoolTimedOut)?))
        };
        match self.connections.rows(sql.clone(), arguments.clone(), long_permit.clone()).await {
            Err(error) if is_cut(&error) => self.connections.rows_anew(sql, arguments, long_permit).await,
            outcome => outcome,
        }
    }
}
