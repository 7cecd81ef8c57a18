//! The one task that writes. It takes whatever its queue holds into one transaction, so that many clients share one
//! flush to the disk, and it takes two calls to the driver to do so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evidence_core::store::{Entry, StoreResult};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use crate::blobs::BlobWrite;
use crate::db::statement;
use crate::error::store_error;
use crate::record::{LOOK, Plan, Questions, Seen, Submission};

/// The most writes of one transaction.
const BATCH: usize = 256;

/// The most bytes of payload of one transaction, unless a single write has more.
const BATCH_BYTES: usize = 32 << 20;

/// Something for the writer to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// To record a write.
    Record(Submission),
    /// To write a step of a blob.
    Blob(BlobWrite, oneshot::Sender<StoreResult<()>>),
    /// To end, after everything that came before.
    Stop(oneshot::Sender<()>),
}

/// The writer and its connection, which nobody else uses.
#[derive(Debug)]
pub(crate) struct Writer {
    connection: SqliteConnection,
    statements: Arc<AtomicU64>,
}

impl Writer {
    pub(crate) fn new(connection: SqliteConnection, statements: Arc<AtomicU64>) -> Self {
        Self { connection, statements }
    }

    /// Works until the queue is closed or [`Job::Stop`] comes.
    pub(crate) async fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        let mut jobs = Vec::new();
        let mut stopped = None;
        while stopped.is_none() && queue.recv_many(&mut jobs, BATCH).await > 0 {
            let mut batch = Vec::new();
            for job in jobs.drain(..) {
                match job {
                    Job::Record(write) => batch.push(write),
                    Job::Blob(write, reply) => self.keep(write, reply).await,
                    Job::Stop(reply) => stopped = Some(reply),
                }
            }
            self.record(batch).await;
        }
        drop(queue);
        if let Err(error) = self.connection.close().await {
            tracing::warn!(%error, "the store's writer did not close its connection");
        }
        if let Some(reply) = stopped {
            reply.send(()).ok();
        }
    }

    fn count(&self) {
        self.statements.fetch_add(1, Ordering::Relaxed);
    }

    async fn keep(&mut self, write: BlobWrite, reply: oneshot::Sender<StoreResult<()>>) {
        self.count();
        // A closed reply channel is a client that has gone.
        reply.send(write.apply(&mut self.connection).await.map_err(store_error)).ok();
    }

    /// Records these writes. A batch that fails for the sake of one write is halved until that one is alone.
    async fn record(&mut self, writes: Vec<Submission>) {
        let mut batches = within_bytes(writes);
        batches.reverse();
        while let Some(mut batch) = batches.pop() {
            match self.attempt(&batch).await {
                Ok(outcomes) => {
                    for (write, outcome) in batch.into_iter().zip(outcomes) {
                        write.reply.send(outcome).ok();
                    }
                }
                Err(error) if batch.len() > 1 && spoilt_by_one(&error) => {
                    batches.push(batch.split_off(batch.len() / 2));
                    batches.push(batch);
                }
                Err(error) => {
                    let error = Arc::new(error);
                    for write in batch {
                        write.reply.send(Err(store_error(Arc::clone(&error)))).ok();
                    }
                }
            }
        }
    }

    /// One transaction: on an error nothing of the batch was written.
    async fn attempt(&mut self, batch: &[Submission]) -> Result<Vec<StoreResult<Vec<Entry>>>, sqlx::Error> {
        let outcome = self.transact(batch).await;
        if outcome.is_err() {
            self.roll_back().await;
        }
        outcome
    }

    async fn transact(&mut self, batch: &[Submission]) -> Result<Vec<StoreResult<Vec<Entry>>>, sqlx::Error> {
        let mut plan = self.look(batch).await?;
        let outcomes =
            batch.iter().map(|write| plan.accept(write)).collect::<Result<_, _>>().map_err(encode)?;
        if plan.is_empty() {
            self.roll_back().await;
        } else {
            self.write(plan).await?;
        }
        Ok(outcomes)
    }

    async fn look(&mut self, batch: &[Submission]) -> Result<Plan, sqlx::Error> {
        let questions = Questions::of(batch);
        let arguments = questions.arguments().map_err(encode)?;
        let query = sqlx::query_as::<_, Seen>(LOOK);
        let query = arguments.into_iter().fold(query, |query, argument| query.bind(argument));
        self.count();
        let seen = query.fetch_all(&mut self.connection).await?;
        Plan::new(questions, seen).map_err(|damage| sqlx::Error::Decode(damage.into()))
    }

    async fn write(&mut self, plan: Plan) -> Result<(), sqlx::Error> {
        let (statements, payloads, arrays) = plan.into_statements().map_err(encode)?;
        let query = sqlx::query(statement(&[&statements, " COMMIT"])).bind(payloads);
        let query = arrays.into_iter().fold(query, |query, rows| query.bind(rows));
        self.count();
        query.execute(&mut self.connection).await.map(drop)
    }

    /// Leaves the transaction, if there is one: after an error inside a call SQLite may have left it already.
    async fn roll_back(&mut self) {
        self.count();
        sqlx::raw_sql("ROLLBACK").execute(&mut self.connection).await.ok();
    }
}

fn encode(error: serde_json::Error) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}

/// Whether another batch without the right write might succeed: not where the machine is at fault.
fn spoilt_by_one(error: &sqlx::Error) -> bool {
    use sqlx::error::ErrorKind;
    match error {
        sqlx::Error::Database(database) => !matches!(database.kind(), ErrorKind::Other),
        sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Encode(_) => true,
        _ => false,
    }
}

/// The writes in their order, cut where their payloads exceed [`BATCH_BYTES`].
fn within_bytes(writes: Vec<Submission>) -> Vec<Vec<Submission>> {
    let mut batches: Vec<Vec<Submission>> = Vec::new();
    let mut bytes = 0;
    for write in writes {
        bytes += write.size();
        match batches.last_mut() {
            Some(batch) if bytes <= BATCH_BYTES => batch.push(write),
            _ => {
                bytes = write.size();
                batches.push(vec![write]);
            }
        }
    }
    batches
}
