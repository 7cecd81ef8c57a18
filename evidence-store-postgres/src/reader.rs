//! Runs queries over the pool of connections.

use std::sync::Arc;

use evidence_core::shares::Shares;
use evidence_store_sql::migrate::Migration;
use evidence_store_sql::{Cost, Statement};

use crate::bind::{Cells, arguments};
use crate::connections::Connections;
use crate::error::is_cut;
use crate::schema::Schema;

/// The connections and settings for queries.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) connections: Connections,
    /// The shares of long queries on these connections.
    pub(crate) shares: Arc<Shares>,
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
        let share = if cost == Cost::Short {
            None
        } else {
            let share = self.shares.take(org, self.connections.acquire_timeout()).await;
            Some(Arc::new(share.ok_or(sqlx::Error::PoolTimedOut)?))
        };
        match self.connections.rows(sql.clone(), arguments.clone(), share.clone()).await {
            Err(error) if is_cut(&error) => self.connections.rows_anew(sql, arguments, share).await,
            outcome => outcome,
        }
    }
}
