//! The raw probe of writing: the throughput of a database with the same bytes and durability, and only
//! grouping between the clients and one table. There is no second index, no precondition and no ledger.

use evidence_store_postgres::sqlx::{self, Connection as _, PgConnection};
use evidence_store_sqlite::rusqlite::Connection;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::{Engine, Result, Stores, Worker};

const SQLITE_TABLE: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE raw (key INTEGER PRIMARY KEY, org INTEGER NOT NULL, payload TEXT NOT NULL, at INTEGER NOT NULL) STRICT";

const SQLITE_INSERT: &str = "
    INSERT INTO raw (key, org, payload, at)
    SELECT value->>0, value->>1, value->>2, value->>3 FROM json_each($1)";

const POSTGRES_TABLE: &str = "
    DROP TABLE IF EXISTS raw;
    CREATE TABLE raw (key bigserial PRIMARY KEY, org bigint NOT NULL, payload text NOT NULL, at bigint NOT NULL)";

const POSTGRES_INSERT: &str =
    "INSERT INTO raw (org, payload, at) SELECT 1, payload, 1 FROM UNNEST($1::text[]) AS r (payload)";

/// The number of inserts per transaction, equal to the store's maximum (`evidence_store_sql::MAX_GROUP`).
const BATCH: usize = 256;

type Job = (String, oneshot::Sender<Result>);

/// A writer that groups waiting inserts into one statement from an array: `json_each` on SQLite (WAL,
/// `synchronous=FULL`), `UNNEST` on PostgreSQL.
#[derive(Debug, Clone)]
pub struct RawInserts {
    jobs: mpsc::Sender<Job>,
}

impl RawInserts {
    /// Creates a table and its writer. The writer runs on its own thread for SQLite, like that of the store,
    /// and otherwise on the threads of `servers`.
    ///
    /// # Errors
    /// If the table cannot be created.
    pub async fn open(servers: &Handle, stores: &Stores, engine: Engine) -> Result<Self> {
        let (jobs, queue) = mpsc::channel(1024);
        match engine {
            Engine::Sqlite => {
                let connection = Connection::open(stores.path("raw.db"))?;
                connection.execute_batch(SQLITE_TABLE)?;
                std::thread::spawn(move || write_sqlite(&connection, queue));
            }
            Engine::Postgres => {
                let _on_their_threads = servers.enter();
                let mut connection = PgConnection::connect(&stores.postgres()?.0).await?;
                sqlx::raw_sql(POSTGRES_TABLE).execute(&mut connection).await?;
                servers.spawn(write_postgres(connection, queue));
            }
        }
        Ok(Self { jobs })
    }

    /// Returns a client that inserts this payload repeatedly.
    pub fn client(&self, payload: String) -> Insert {
        Insert { jobs: self.jobs.clone(), payload }
    }
}

fn write_sqlite(connection: &Connection, mut queue: mpsc::Receiver<Job>) {
    let (mut batch, mut key) = (Vec::new(), 0);
    while queue.blocking_recv_many(&mut batch, BATCH) > 0 {
        let rows: Vec<_> = (key..).zip(&batch).map(|(key, (payload, _))| (key, 1, payload, 1)).collect();
        key += batch.len();
        let insert = || -> Result {
            connection.prepare_cached(SQLITE_INSERT)?.execute([serde_json::to_string(&rows)?])?;
            Ok(())
        };
        let outcome = insert();
        answer(&mut batch, &outcome);
    }
}

async fn write_postgres(mut connection: PgConnection, mut queue: mpsc::Receiver<Job>) {
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let payloads: Vec<_> = batch.iter().map(|(payload, _)| payload.as_str()).collect();
        let inserted = sqlx::query(POSTGRES_INSERT).bind(payloads).execute(&mut connection).await;
        answer(&mut batch, &inserted.map(drop).map_err(Into::into));
    }
}

fn answer(batch: &mut Vec<Job>, outcome: &Result) {
    for (_, reply) in batch.drain(..) {
        let outcome = outcome.as_ref().map_err(ToString::to_string);
        reply.send(outcome.copied().map_err(Into::into)).ok();
    }
}

/// A client of [`RawInserts`].
#[derive(Debug)]
pub struct Insert {
    jobs: mpsc::Sender<Job>,
    payload: String,
}

impl Worker for Insert {
    async fn work(&mut self) -> Result {
        let (reply, outcome) = oneshot::channel();
        self.jobs.send((self.payload.clone(), reply)).await?;
        outcome.await?
    }
}
