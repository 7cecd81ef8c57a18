//! The one task that writes. It takes whatever its queue holds into one transaction, so that many clients share one
//! flush to the disk, and it takes two statements to do so: one that looks, and one that writes all if the ledgers have
//! not grown since, or nothing. So no transaction is ever left open, and other servers are never kept out.

use std::sync::Arc;

use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::store::{Entry, StoreResult};
use sqlx::PgConnection;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::blobs::BlobWrite;
use crate::connections::{PATIENCE, Session};
use crate::db::Reader;
use crate::error::{is_disconnected, is_lost_race, store_error, timed_out};
use crate::record::{LOOK, Plan, Questions, Seen, Submission};

/// The most writes of one transaction.
const BATCH: usize = 256;

/// The most bytes of payload of one transaction, unless a single write has more.
const BATCH_BYTES: usize = 32 << 20;

/// How often a batch may lose a race against other servers before its writes are refused. Each time one of them got
/// ahead, so that the database as a whole does.
const ROUNDS: u32 = 256;

/// How often a name that is taken is looked at again: whoever took it meanwhile is seen the second time.
const COLLISIONS: u32 = 2;

type Outcomes = Vec<StoreResult<Vec<Entry>>>;

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

/// The writer and its connection, which nobody else uses; none after it was cut off, until the next job.
#[derive(Debug)]
pub(crate) struct Writer {
    session: Option<Session>,
    reader: Reader,
    mixed_batches: bool,
}

impl Writer {
    pub(crate) const fn new(session: Session, reader: Reader, mixed_batches: bool) -> Self {
        Self { session: Some(session), reader, mixed_batches }
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
        if let Some(Err(error)) = self.close().await {
            tracing::warn!(%error, "the store's writer did not close its connection");
        }
        if let Some(reply) = stopped {
            reply.send(()).ok();
        }
    }

    async fn close(&mut self) -> Option<Result<(), sqlx::Error>> {
        Some(self.session.take()?.close().await)
    }

    async fn keep(&mut self, write: BlobWrite, reply: oneshot::Sender<StoreResult<()>>) {
        // The same step again changes nothing, so that it may be tried again as a question may.
        let mut outcome = self.step(&write).await;
        if outcome.as_ref().is_err_and(is_disconnected) {
            outcome = self.step(&write).await;
        }
        // A closed reply channel is a client that has gone.
        reply.send(outcome.map_err(store_error)).ok();
    }

    async fn step(&mut self, write: &BlobWrite) -> Result<(), sqlx::Error> {
        let schema = self.reader.schema.clone();
        self.on_connection(async |connection| write.apply(&schema, connection).await).await
    }

    /// Does one statement's work, making a connection first where there is none. After an error of the connection it
    /// is given up: nobody knows what state it is in.
    async fn on_connection<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => Session::connect(&self.reader.connections.address()).await?,
        };
        self.reader.count();
        let done = async { work(session.ready().await?).await };
        let outcome = timeout(PATIENCE, done).await.unwrap_or_else(|_| Err(timed_out()));
        if !outcome.as_ref().is_err_and(is_disconnected) {
            self.session = Some(session);
        }
        outcome
    }

    /// Records these writes. A batch that fails for the sake of one write is halved until that one is alone.
    async fn record(&mut self, writes: Vec<Submission>) {
        let mut batches = if self.mixed_batches { vec![writes] } else { by_organization(writes) };
        batches = batches.into_iter().flat_map(within_bytes).collect();
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

    /// Looks and writes until no other server came between: on an error nothing of the batch was written, unless the
    /// connection broke while the database answered.
    async fn attempt(&mut self, batch: &[Submission]) -> Result<Outcomes, sqlx::Error> {
        let mut collisions = 0;
        for _ in 0..ROUNDS {
            let mut plan = self.look(batch).await?;
            let outcomes =
                batch.iter().map(|write| plan.accept(write)).collect::<Result<_, _>>().map_err(encode)?;
            if plan.is_empty() {
                return Ok(outcomes);
            }
            match self.write(plan).await {
                Ok(true) => return Ok(outcomes),
                Ok(false) => {}
                Err(error) if is_lost_race(&error) && collisions < COLLISIONS => collisions += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(batch.iter().map(|_| Err(outrun())).collect())
    }

    /// Looks, once more where the connection turned out to be dead: looking changes nothing.
    async fn look(&mut self, batch: &[Submission]) -> Result<Plan, sqlx::Error> {
        let questions = Questions::of(batch);
        let mut seen = self.see(&questions).await;
        if seen.as_ref().is_err_and(is_disconnected) {
            seen = self.see(&questions).await;
        }
        Plan::new(questions, seen?).map_err(|damage| sqlx::Error::Decode(damage.into()))
    }

    async fn see(&mut self, questions: &Questions) -> Result<Vec<Seen>, sqlx::Error> {
        let query = questions.bind(sqlx::query_as::<_, Seen>(self.reader.schema.statement(LOOK)));
        self.on_connection(async |connection| query.fetch_all(connection).await).await
    }

    /// Whether the ledgers were as they were seen, so that everything was written.
    async fn write(&mut self, plan: Plan) -> Result<bool, sqlx::Error> {
        let (statement, arguments) = plan.into_statement().map_err(encode)?;
        let query = sqlx::query_scalar_with(self.reader.schema.statement(&statement), arguments);
        self.on_connection(async |connection| query.fetch_one(connection).await).await
    }
}

/// Why a batch is refused that other servers were always ahead of.
fn outrun() -> StoreError {
    StoreError::Unavailable("other servers wrote to the same organizations all the time".into())
}

fn encode(error: serde_json::Error) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}

/// Whether another batch without the right write might succeed: not where the machine is at fault.
fn spoilt_by_one(error: &sqlx::Error) -> bool {
    use sqlx::error::ErrorKind;
    match error {
        sqlx::Error::Database(database) => {
            !matches!(database.kind(), ErrorKind::Other) || is_lost_race(error)
        }
        sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Encode(_) => true,
        _ => false,
    }
}

/// The writes in their order, apart by organization.
fn by_organization(writes: Vec<Submission>) -> Vec<Vec<Submission>> {
    let mut apart = std::collections::BTreeMap::<Id, Vec<Submission>>::new();
    for write in writes {
        apart.entry(write.org).or_default().push(write);
    }
    apart.into_values().collect()
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
