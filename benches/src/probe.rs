//! The raw probe of writing: what a database can do with the same bytes and the same durability when nothing but
//! grouping stands between the clients and one table: no second index, no guard, no ledger.

use evidence_store_postgres::sqlx::PgConnection;
use evidence_store_sqlite::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use evidence_store_sqlite::sqlx::{self, ConnectOptions, Connection, SqliteConnection};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::{Engine, Outcome, Stores, Worker};

const SQLITE_TABLE: &str = "CREATE TABLE raw (key INTEGER PRIMARY KEY, org INTEGER NOT NULL, payload TEXT NOT NULL, at INTEGER NOT NULL) STRICT";

const SQLITE_INSERT: &str = "
    INSERT INTO raw (key, org, payload, at)
    SELECT value->>0, value->>1, value->>2, value->>3 FROM json_each($1)";

const POSTGRES_TABLE: &str = "
    DROP TABLE IF EXISTS raw;
    CREATE TABLE raw (key bigserial PRIMARY KEY, org bigint NOT NULL, payload text NOT NULL, at bigint NOT NULL)";

const POSTGRES_INSERT: &str =
    "INSERT INTO raw (org, payload, at) SELECT 1, payload, 1 FROM UNNEST($1::text[]) AS r (payload)";

/// As many inserts as the store takes writes into one transaction.
const BATCH: usize = 256;

type Job = (String, oneshot::Sender<Outcome>);

/// One writer that groups what arrives meanwhile into one statement from an array: `json_each` on SQLite (WAL,
/// `synchronous=FULL`), `UNNEST` on PostgreSQL.
#[derive(Debug, Clone)]
pub struct RawInserts {
    jobs: mpsc::Sender<Job>,
}

/// The writer's connection.
enum Raw {
    Sqlite(SqliteConnection, u64),
    Postgres(PgConnection),
}

impl RawInserts {
    /// A fresh table, and its writer on the threads of `servers`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn open(servers: &Handle, stores: &Stores, engine: Engine) -> Outcome<Self> {
        let _on_their_threads = servers.enter();
        let raw = match engine {
            Engine::Sqlite => {
                let options = SqliteConnectOptions::new()
                    .filename(stores.path("raw.db"))
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full)
                    .disable_statement_logging();
                let mut connection = options.connect().await?;
                sqlx::query(SQLITE_TABLE).execute(&mut connection).await?;
                Raw::Sqlite(connection, 0)
            }
            Engine::Postgres => {
                let mut connection = PgConnection::connect(&stores.postgres()?.0).await?;
                sqlx::raw_sql(POSTGRES_TABLE).execute(&mut connection).await?;
                Raw::Postgres(connection)
            }
        };
        let (jobs, queue) = mpsc::channel(1024);
        servers.spawn(write(raw, queue));
        Ok(Self { jobs })
    }

    /// A client that inserts this payload again and again.
    pub fn client(&self, payload: String) -> Insert {
        Insert { jobs: self.jobs.clone(), payload }
    }
}

impl Raw {
    async fn insert(&mut self, payloads: Vec<&str>) -> Outcome {
        match self {
            Self::Sqlite(connection, key) => {
                let rows: Vec<_> =
                    (*key..).zip(&payloads).map(|(key, payload)| (key, 1, payload, 1)).collect();
                *key += rows.len() as u64;
                sqlx::query(SQLITE_INSERT).bind(serde_json::to_string(&rows)?).execute(connection).await?;
            }
            Self::Postgres(connection) => {
                sqlx::query(POSTGRES_INSERT).bind(payloads).execute(connection).await?;
            }
        }
        Ok(())
    }
}

async fn write(mut raw: Raw, mut queue: mpsc::Receiver<Job>) {
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let payloads = batch.iter().map(|(payload, _)| payload.as_str()).collect();
        let outcome = raw.insert(payloads).await.map_err(|error| error.to_string());
        for (_, reply) in batch.drain(..) {
            reply.send(outcome.clone().map_err(Into::into)).ok();
        }
    }
}

/// A client of [`RawInserts`].
#[derive(Debug)]
pub struct Insert {
    jobs: mpsc::Sender<Job>,
    payload: String,
}

impl Worker for Insert {
    async fn work(&mut self) -> Outcome {
        let (reply, outcome) = oneshot::channel();
        self.jobs.send((self.payload.clone(), reply)).await?;
        outcome.await?
    }
}
