//! Whatever a case has read, it reads again from tables that are rebuilt from the ledgers alone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use evidence_store_postgres::PostgresStore;
use evidence_store_postgres::sqlx::{self, AssertSqlSafe, Connection as _, PgConnection};
use evidence_store_sqlite::SqliteStore;
use evidence_store_sqlite::rusqlite::Connection;
use http::{HeaderMap, StatusCode};

use crate::support::Api;

/// The GET requests of a case: paths and headers.
pub(crate) type SentGets = Arc<Mutex<BTreeMap<String, (String, HeaderMap)>>>;

/// Tables that `rebuild` does not make: the ledger, attachments, secret URLs, signed checkpoints, leases, cursors, migrations; and `api_key`, whose hashes are
/// kept.
const KEPT: &str = "('ledger', 'node', 'head', 'blob', 'blob_chunk', 'attachment_pending', 'attachment_place', 'checkpoint', 'lease', 'cursor', '_evidence_migrations', 'api_key', 'secret_url')";

/// Takes from the keys everything but the hashes.
const KEYS_LOST: &str =
    "id = id || 'x', owner = '{}', owner_id = '', created_at = 1, expires_at = 1, revoked_at = 1";

/// A store whose tables can be lost.
#[derive(Clone)]
pub(crate) enum Tables {
    Sqlite(Arc<SqliteStore>, PathBuf),
    Postgres { store: Arc<PostgresStore>, url: String, schema: String },
}

impl Tables {
    /// Loses every row that follows from the ledgers.
    pub(crate) async fn lose(&self) {
        match self {
            Self::Sqlite(_, file) => lose_in_file(file),
            Self::Postgres { url, schema, .. } => lose_in_schema(url, schema).await,
        }
    }

    /// Executes a statement that both databases understand.
    pub(crate) async fn execute(&self, sql: &str) {
        match self {
            Self::Sqlite(_, file) => Connection::open(file).unwrap().execute_batch(sql).unwrap(),
            Self::Postgres { url, schema, .. } => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                let sql = format!("SET search_path TO {schema}; {sql}");
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// Returns the problems that `fsck` finds.
    pub(crate) async fn problems(&self) -> Vec<String> {
        match self {
            Self::Sqlite(store, _) => store.fsck().await.unwrap().problems,
            Self::Postgres { store, .. } => store.fsck().await.unwrap().problems,
        }
    }

    /// Rebuilds them from the ledgers.
    pub(crate) async fn rebuild(&self) {
        let (rows, problems) = match self {
            Self::Sqlite(store, _) => {
                let report = store.rebuild().await.unwrap();
                (report.rows, report.problems)
            }
            Self::Postgres { store, .. } => {
                let report = store.rebuild().await.unwrap();
                (report.rows, report.problems)
            }
        };
        assert!(problems.is_empty() && rows > 0, "{rows} rows: {problems:?}");
    }

    /// Repeats every GET of the case, drops all derived rows, rebuilds them, and compares with the same GETs.
    pub(crate) async fn prove(&self, api: &Api) {
        let before = answers(api).await;
        self.lose().await;
        self.rebuild().await;
        for (before, after) in before.into_iter().zip(answers(api).await) {
            assert_eq!(after, before, "the tables were made again");
        }
    }
}

async fn answers(api: &Api) -> Vec<(String, StatusCode, Bytes)> {
    let sent: Vec<_> = api.sent_gets().lock().unwrap().values().cloned().collect();
    let mut answers = Vec::new();
    for (path, headers) in sent {
        let reply = api.get_raw(&path, headers).await;
        answers.push((path, reply.status, reply.body));
    }
    answers
}

fn lose_in_file(file: &PathBuf) {
    let connection = Connection::open(file).unwrap();
    let tables = format!("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN {KEPT}");
    let mut tables = connection.prepare(&tables).unwrap();
    let tables = tables.query_map([], |row| row.get(0)).unwrap().collect::<Result<Vec<String>, _>>().unwrap();
    for table in tables {
        connection.execute_batch(&format!("DELETE FROM \"{table}\"")).unwrap();
    }
    connection.execute_batch(&format!("UPDATE api_key SET org = org + 7, {KEYS_LOST}")).unwrap();
}

async fn lose_in_schema(url: &str, schema: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let tables =
        format!("SELECT tablename::text FROM pg_tables WHERE schemaname = $1 AND tablename NOT IN {KEPT}");
    let tables = sqlx::query_scalar::<_, String>(AssertSqlSafe(tables)).bind(schema);
    let tables = tables.fetch_all(&mut connection).await.unwrap();
    let lost = tables.iter().map(|table| format!("DELETE FROM {schema}.\"{table}\""));
    let lost: Vec<_> =
        lost.chain([format!("UPDATE {schema}.api_key SET org = org || 'x', {KEYS_LOST}")]).collect();
    sqlx::raw_sql(AssertSqlSafe(lost.join("; "))).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}
