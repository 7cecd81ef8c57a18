//! The one thread that writes. It takes whatever its queue holds into one transaction, so that many clients share one
//! flush to the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::queue::{Jobs, Reply, Task};
use evidence_core::store::{Entry, StoreResult};
use rusqlite::types::{Type, Value};
use rusqlite::{Connection, Error, TransactionBehavior};

use crate::blobs::BlobWrite;
use crate::error::{Outdated, is_row_error, store_error};
use crate::feed::FeedWrite;
use crate::file::OpenFile;
use crate::migrate::{Migration, may_write};
use crate::pending::PendingWrite;
use crate::question::rows;
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
    Blob(BlobWrite, Reply<()>),
    /// To change a lease or a cursor, and tell whether it was changed.
    Feed(FeedWrite, Reply<bool>),
    /// To change a note of a content that no record names, and tell whether it was changed.
    Pending(PendingWrite, Reply<bool>),
    /// To end, after everything that came before.
    Stop(Reply<()>),
}

impl Task for Job {
    fn room(&self) -> Option<(Id, usize)> {
        match self {
            Self::Record(write) => Some((write.org, write.size())),
            Self::Blob(write, _) => Some((write.org, write.size())),
            Self::Feed(..) | Self::Pending(..) | Self::Stop(_) => None,
        }
    }
}

/// The writer and its connection, which nobody else uses.
#[derive(Debug)]
pub(crate) struct Writer {
    connection: Connection,
    file: Arc<OpenFile>,
    migrations: &'static [Migration],
    statements: Arc<AtomicU64>,
}

impl Writer {
    pub(crate) fn new(
        connection: Connection,
        file: Arc<OpenFile>,
        migrations: &'static [Migration],
        statements: Arc<AtomicU64>,
    ) -> Self {
        Self { connection, file, migrations, statements }
    }

    /// Works until the queue is closed or [`Job::Stop`] comes.
    pub(crate) fn run(mut self, mut queue: Jobs<Job>) {
        let mut jobs = Vec::new();
        let mut stopped = None;
        while stopped.is_none() && queue.blocking_next(&mut jobs, BATCH) > 0 {
            let (mut writes, mut blobs, mut notes, mut rooms) = (vec![], vec![], vec![], vec![]);
            for queued in jobs.drain(..) {
                rooms.push(queued.room);
                match queued.job {
                    Job::Record(write) => writes.extend(begun(write, |write| &write.reply)),
                    Job::Blob(write, reply) => blobs.extend(begun((write, reply), |(_, reply)| reply)),
                    Job::Feed(write, reply) => {
                        let Some(reply) = begun(reply, |reply| reply) else { continue };
                        count(&self.statements);
                        let written = self.file.check().and_then(|()| write.apply(&self.connection));
                        reply.send(written.map_err(store_error));
                    }
                    Job::Pending(write, reply) => notes.extend(begun((write, reply), |(_, reply)| reply)),
                    Job::Stop(reply) => stopped = Some(reply),
                }
            }
            // Whoever has noted a content keeps it later, and records what names it later still.
            self.note(notes);
            self.keep(blobs);
            self.record(writes);
        }
        drop(queue);
        self.file.leave(&self.connection);
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "the store's writer did not close its connection");
        }
        if let Some(reply) = stopped {
            reply.send(Ok(()));
        }
    }

    /// Changes notes, all in one transaction: many uploads share a flush to the disk. Where that fails for the sake of one
    /// of them, each has a transaction of its own.
    fn note(&mut self, mut notes: Vec<(PendingWrite, Reply<bool>)>) {
        while !notes.is_empty() {
            let error = match self.attempt_notes(notes.iter().map(|(write, _)| write)) {
                Ok(changed) => {
                    let changed = changed.map(|all| all.into_iter().map(Ok).collect::<Vec<_>>());
                    let outdated = || notes.iter().map(|_| Err(Outdated.into())).collect();
                    let outcomes: Vec<StoreResult<bool>> = changed.unwrap_or_else(outdated);
                    return notes
                        .into_iter()
                        .zip(outcomes)
                        .for_each(|((_, reply), outcome)| reply.send(outcome));
                }
                Err(error) => error,
            };
            if notes.len() == 1 || !is_row_error(&error) {
                let error = Arc::new(error);
                return notes
                    .into_iter()
                    .for_each(|(_, reply)| reply.send(Err(store_error(Arc::clone(&error)))));
            }
            let rest = notes.split_off(1);
            self.note(notes);
            notes = rest;
        }
    }

    /// Which of them changed what they were to change; nothing where that is left to a newer program.
    fn attempt_notes<'w>(
        &mut self,
        writes: impl Iterator<Item = &'w PendingWrite>,
    ) -> rusqlite::Result<Option<Vec<bool>>> {
        count(&self.statements);
        self.file.check()?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !may_write(&transaction, "main", self.migrations)? {
            return Ok(None);
        }
        let changed = writes.map(|write| write.apply(&transaction)).collect::<Result<_, _>>()?;
        transaction.commit()?;
        Ok(Some(changed))
    }

    /// Writes steps of blobs, all in one transaction: many uploads share a flush to the disk.
    fn keep(&mut self, blobs: Vec<(BlobWrite, Reply<()>)>) {
        if blobs.is_empty() {
            return;
        }
        count(&self.statements);
        let (writes, replies): (Vec<_>, Vec<_>) = blobs.into_iter().unzip();
        let outcome = self.attempt_blobs(writes).map_err(Arc::new);
        for reply in replies {
            reply.send(match &outcome {
                Ok(true) => Ok(()),
                Ok(false) => Err(Outdated.into()),
                Err(error) => Err(store_error(Arc::clone(error))),
            });
        }
    }

    /// Whether it was written, and not left to a newer program.
    fn attempt_blobs(&mut self, writes: Vec<BlobWrite>) -> rusqlite::Result<bool> {
        self.file.check()?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !may_write(&transaction, "main", self.migrations)? {
            return Ok(false);
        }
        for write in writes {
            write.apply(&transaction)?;
        }
        transaction.commit().map(|()| true)
    }

    /// Records these writes. A batch that fails for the sake of one write is halved until that one is alone.
    fn record(&mut self, writes: Vec<Submission>) {
        let mut batches = within_bytes(writes);
        batches.reverse();
        while let Some(mut batch) = batches.pop() {
            match self.attempt(&batch) {
                Ok(outcomes) => {
                    for (write, outcome) in batch.into_iter().zip(outcomes) {
                        write.reply.send(outcome);
                    }
                }
                Err(error) if batch.len() > 1 && is_row_error(&error) => {
                    batches.push(batch.split_off(batch.len() / 2));
                    batches.push(batch);
                }
                Err(error) => {
                    let error = Arc::new(error);
                    for write in batch {
                        write.reply.send(Err(store_error(Arc::clone(&error))));
                    }
                }
            }
        }
    }

    /// One transaction, which excludes every other writer: on an error nothing of the batch was written.
    fn attempt(&mut self, batch: &[Submission]) -> rusqlite::Result<Vec<StoreResult<Vec<Entry>>>> {
        self.file.check()?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !may_write(&transaction, "main", self.migrations)? {
            return Ok(batch.iter().map(|_| Err(Outdated.into())).collect());
        }
        count(&self.statements);
        let mut plan = look(&transaction, batch)?;
        let outcomes = batch.iter().map(|write| plan.accept(write));
        let outcomes = outcomes.collect::<Result<_, _>>().map_err(unwritable)?;
        if !plan.is_empty() {
            let (rows, payloads) = plan.into_rows().map_err(unwritable)?;
            count(&self.statements);
            rows.write(&transaction, payloads)?;
            transaction.commit()?;
        }
        Ok(outcomes)
    }
}

/// The job, unless its time is over: from now on its caller waits for the outcome.
fn begun<T, R>(job: T, reply: impl FnOnce(&T) -> &Reply<R>) -> Option<T> {
    reply(&job).begin().then_some(job)
}

fn count(statements: &AtomicU64) {
    statements.fetch_add(1, Ordering::Relaxed);
}

fn look(connection: &Connection, batch: &[Submission]) -> rusqlite::Result<Plan> {
    let questions = Questions::of(batch);
    let arguments = questions.arguments().map_err(unwritable)?.map(Value::from);
    let seen: Vec<Seen> = rows(connection, LOOK, &arguments)?;
    let damaged = |damage: StoreError| Error::FromSqlConversionFailure(0, Type::Text, damage.into());
    Plan::new(&questions, seen).map_err(damaged)
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::ToSqlConversionFailure(error.into())
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
