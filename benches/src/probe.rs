//! The raw probe of writing: what SQLite can do with the same bytes and the same durability when nothing but grouping
//! stands between the clients and one table.

use std::path::Path;

use evidence_store_sqlite::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use evidence_store_sqlite::sqlx::{self, ConnectOptions, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use crate::{Outcome, Worker};

const TABLE: &str = "CREATE TABLE raw (key INTEGER PRIMARY KEY, org INTEGER NOT NULL, payload TEXT NOT NULL, at INTEGER NOT NULL) STRICT";

const INSERT: &str = "
    INSERT INTO raw (key, org, payload, at)
    SELECT value->>0, value->>1, value->>2, value->>3 FROM json_each($1)";

/// As many inserts as the store takes writes into one transaction.
const BATCH: usize = 256;

type Job = (String, oneshot::Sender<Outcome>);

/// One writer that groups what arrives meanwhile into one `INSERT … SELECT FROM json_each`: WAL, `synchronous=FULL`,
/// no second index, no guard, no ledger.
#[derive(Debug, Clone)]
pub struct RawInserts {
    jobs: mpsc::Sender<Job>,
}

impl RawInserts {
    /// A table in a fresh file, and its writer.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub async fn open(file: &Path) -> Outcome<Self> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .disable_statement_logging();
        let mut connection = options.connect().await?;
        sqlx::query(TABLE).execute(&mut connection).await?;
        let (jobs, queue) = mpsc::channel(1024);
        tokio::spawn(write(connection, queue));
        Ok(Self { jobs })
    }

    /// A client that inserts this payload again and again.
    pub fn client(&self, payload: String) -> Insert {
        Insert { jobs: self.jobs.clone(), payload }
    }
}

async fn write(mut connection: SqliteConnection, mut queue: mpsc::Receiver<Job>) {
    let (mut batch, mut key) = (Vec::new(), 0_u64);
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let rows: Vec<_> = (key..).zip(&batch).map(|(key, (payload, _))| (key, 1, payload, 1)).collect();
        key += rows.len() as u64;
        let outcome = match serde_json::to_string(&rows) {
            Ok(rows) => {
                sqlx::query(INSERT).bind(rows).execute(&mut connection).await.map_err(|e| e.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        for (_, reply) in batch.drain(..) {
            reply.send(outcome.as_ref().map(|_| ()).map_err(|error| error.clone().into())).ok();
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
