//! The only thread that writes. It commits everything in its queue in one transaction, so that many clients
//! share one flush to the disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::queue::{Jobs, Reply, Task};
use evidence_core::store::{Entry, ReferenceClock, StoreResult};
use evidence_store_sql::migrate::Migration;
use evidence_store_sql::{
    BlobWrite, Dialect, Group, MAX_GROUP, Outdated, Plan, Prefetch, Statement, Submission, Value, groups_of,
};
use rusqlite::types::Type;
use rusqlite::{Connection, Error, Transaction, TransactionBehavior, ffi};

use crate::bind::{execute, key_of, rows};
use crate::clock::SteadyClock;
use crate::error::{is_row_error, primary_code, store_error};
use crate::file::OpenFile;
use crate::last_write::LastWrite;
use crate::migrate::may_write;

/// A job of the writer.
#[derive(Debug)]
pub enum Job {
    /// Records a write.
    Record(Submission),
    /// Writes a step of a blob.
    Blob(BlobWrite, Reply<()>),
    /// Runs statements on tables outside the ledger, and replies whether they changed something.
    Change(Vec<Statement>, Reply<bool>),
    /// Ends the writer after all earlier jobs.
    Stop(Reply<()>),
}

impl From<Submission> for Job {
    fn from(write: Submission) -> Self {
        Self::Record(write)
    }
}

impl Task for Job {
    fn reserved_bytes(&self) -> Option<(Id, usize)> {
        match self {
            Self::Record(write) => Some((write.org, write.size())),
            Self::Blob(write, _) => Some((write.org, write.size)),
            Self::Change(..) | Self::Stop(_) => None,
        }
    }

    fn is_upload(&self) -> bool {
        matches!(self, Self::Blob(..))
    }
}

/// The writer and its exclusive connection.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    pub(crate) file: Arc<OpenFile>,
    pub(crate) migrations: &'static [Migration],
    /// The number of blob bytes written since the page cache was last emptied.
    pub(crate) blob_bytes: usize,
    /// The reference for the times of writes.
    pub(crate) clock: Arc<SteadyClock>,
    pub(crate) last_write: LastWrite,
}

/// The number of blob bytes after which the writer's page cache is emptied. Blobs would fill the cache, and
/// the writer reads them only to sweep them. The other pages are read again from the system's cache, which
/// takes less time than the sync of a write.
const MAX_CACHED_BLOB_BYTES: usize = 256 << 10;

impl Writer {
    /// Runs until the queue is closed or [`Job::Stop`] arrives.
    pub(crate) fn run(mut self, mut queue: Jobs<Job>) {
        let mut jobs = Vec::new();
        let mut stopped = None;
        while (stopped.is_none() || queue.has_uploads()) && queue.blocking_next(&mut jobs, MAX_GROUP) > 0 {
            let (mut writes, mut blobs, mut changes, mut reservations) = (vec![], vec![], vec![], vec![]);
            for queued in jobs.drain(..) {
                reservations.push(queued.reservation);
                match queued.job {
                    Job::Record(write) => writes.extend(claim(write, |write| &write.reply)),
                    Job::Blob(write, reply) => blobs.extend(claim((write, reply), |(_, reply)| reply)),
                    Job::Change(change, reply) => changes.extend(claim((change, reply), |(_, reply)| reply)),
                    Job::Stop(reply) => stopped = Some(reply),
                }
            }
            self.change(changes);
            self.record(writes);
            self.write_blobs(blobs);
        }
        drop(queue);
        self.file.finish(&self.connection);
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "the store's writer did not close its connection");
        }
        if let Some(reply) = stopped {
            reply.send(Ok(()));
        }
    }

    /// Runs the statements of many callers in one transaction, so that they share a flush to the disk. If one
    /// of them makes it fail, each gets a transaction of its own.
    fn change(&mut self, mut changes: Vec<(Vec<Statement>, Reply<bool>)>) {
        while !changes.is_empty() {
            let error = match self.attempt_changes(&changes) {
                Ok(Some(changed)) => {
                    let replies = changes.into_iter().map(|(_, reply)| reply);
                    return replies.zip(changed).for_each(|(reply, changed)| reply.send(Ok(changed)));
                }
                Ok(None) => {
                    return changes.into_iter().for_each(|(_, reply)| reply.send(Err(Outdated.into())));
                }
                Err(error) => error,
            };
            if changes.len() == 1 || !is_row_error(&error) {
                let error = Arc::new(error);
                return changes
                    .into_iter()
                    .for_each(|(_, reply)| reply.send(Err(store_error(Arc::clone(&error)))));
            }
            let rest = changes.split_off(1);
            self.change(changes);
            changes = rest;
        }
    }

    /// Returns for each change whether it changed something, or `None` if a newer program has excluded this
    /// one from writing.
    fn attempt_changes(
        &mut self,
        changes: &[(Vec<Statement>, Reply<bool>)],
    ) -> rusqlite::Result<Option<Vec<bool>>> {
        let Some(transaction) = begin(&mut self.connection, &self.file, self.migrations)? else {
            return Ok(None);
        };
        let mut outcomes = Vec::with_capacity(changes.len());
        for (statements, _) in changes {
            let mut changed = true;
            for (number, Statement { sql, values, .. }) in statements.iter().enumerate() {
                if changed {
                    let sql = Dialect::in_schema(sql.as_ref(), "");
                    let found = rows(&transaction, &sql, values, |org| key_of(&transaction, org))?;
                    changed = number > 0 || !found.is_empty();
                }
            }
            outcomes.push(changed);
        }
        transaction.commit()?;
        Ok(Some(outcomes))
    }

    /// Writes steps of blobs in one transaction, so that many uploads share a flush to the disk.
    fn write_blobs(&mut self, blobs: Vec<(BlobWrite, Reply<()>)>) {
        if blobs.is_empty() {
            return;
        }
        let outcome = self.attempt_blobs(blobs.iter().map(|(write, _)| write)).map_err(Arc::new);
        self.blob_bytes += blobs.iter().map(|(write, _)| write.size).sum::<usize>();
        if self.blob_bytes >= MAX_CACHED_BLOB_BYTES {
            self.blob_bytes = 0;
            if let Err(error) = self.connection.release_memory() {
                tracing::warn!(%error, "the store's writer did not empty its page cache");
            }
        }
        for (_, reply) in blobs {
            reply.send(match &outcome {
                Ok(true) => Ok(()),
                Ok(false) => Err(Outdated.into()),
                Err(error) => Err(store_error(Arc::clone(error))),
            });
        }
    }

    /// Returns whether the steps were written, or false if a newer program has excluded this one from
    /// writing.
    fn attempt_blobs<'w>(&mut self, writes: impl Iterator<Item = &'w BlobWrite>) -> rusqlite::Result<bool> {
        let Some(transaction) = begin(&mut self.connection, &self.file, self.migrations)? else {
            return Ok(false);
        };
        for Statement { sql, values, .. } in writes.flat_map(|write| &write.statements) {
            let sql = Dialect::in_schema(sql.as_ref(), "");
            rows(&transaction, &sql, values, |org| key_of(&transaction, org))?;
        }
        transaction.commit().map(|()| true)
    }

    /// Records these writes. If one write makes a group fail, the group is halved until that write is alone.
    fn record(&mut self, writes: Vec<Submission>) {
        let mut groups = groups_of(writes);
        groups.reverse();
        while let Some(mut group) = groups.pop() {
            match self.attempt(&group) {
                Ok(outcomes) => {
                    for (write, outcome) in group.into_iter().zip(outcomes) {
                        write.reply.send(outcome);
                    }
                }
                Err(error) if group.len() > 1 && is_row_error(&error) => {
                    groups.push(group.split_off(group.len() / 2));
                    groups.push(group);
                }
                Err(error) => {
                    let error = Arc::new(error);
                    for write in group {
                        write.reply.send(Err(store_error(Arc::clone(&error))));
                    }
                }
            }
        }
    }

    /// Runs one transaction, which excludes other writers. On an error, nothing of the group is written.
    fn attempt(&mut self, writes: &[Submission]) -> rusqlite::Result<Vec<StoreResult<Vec<Entry>>>> {
        let Some(transaction) = begin(&mut self.connection, &self.file, self.migrations)? else {
            return Ok(writes.iter().map(|_| Err(Outdated.into())).collect());
        };
        let prefetch = Prefetch::of(writes);
        let (sql, values) = prefetch.statement(Dialect::Sqlite, true);
        let read = rows(&transaction, sql, &values, |org| key_of(&transaction, org))?;
        let damaged = |damage: StoreError| Error::FromSqlConversionFailure(0, Type::Text, damage.into());
        let plan = Plan::new(&prefetch, read).map_err(damaged)?;
        let mut plan = plan.with_clock(ReferenceClock::Monotonic, self.clock.now());
        let outcomes = writes.iter().map(|write| plan.accept(write));
        let outcomes = outcomes.collect::<Result<Vec<_>, _>>().map_err(unwritable)?;
        if !plan.is_empty() {
            let group = plan.into_group().map_err(unwritable)?;
            write(&transaction, &group)?;
            match transaction.commit() {
                // The log may contain the whole transaction, so a crash now could bring it back by recovery.
                Err(error) if primary_code(&error) == Some(ffi::SQLITE_IOERR) => {
                    let error = Arc::new(error);
                    let unknown = |_| Err(StoreError::OutcomeUnknown(Arc::clone(&error).into()));
                    return Ok(writes.iter().map(unknown).collect());
                }
                committed => committed?,
            }
            let last = |(write, outcome): (&Submission, &StoreResult<Vec<Entry>>)| {
                Some((write.org, outcome.as_ref().ok()?.last()?.index + 1))
            };
            if let Some((org, size)) = writes.iter().zip(&outcomes).rev().find_map(last) {
                self.last_write.note(org, size);
            }
        }
        Ok(outcomes)
    }
}

const NEXT_KEY: &str = "SELECT coalesce(max(key), 0) + 1 FROM organization";

/// The heads were read in the same transaction, which excludes other writers. So there is nothing to compare.
const PUT_HEAD: &str = "UPDATE head SET size = $2, frontier = $3 WHERE org = $1";

/// Writes a group.
fn write(transaction: &Transaction<'_>, group: &Group) -> rusqlite::Result<()> {
    let mut keys = BTreeMap::new();
    for (number, org) in (0..).zip(group.rows.organizations()) {
        let next = transaction.prepare_cached(NEXT_KEY)?.query_row([], |row| row.get::<_, i64>(0))?;
        keys.insert(org, next + number);
    }
    // Every row contains its organization.
    let mut key = |org| {
        if let Some(key) = keys.get(&org) {
            return Ok(*key);
        }
        let key = key_of(transaction, org)?;
        keys.insert(org, key);
        Ok(key)
    };
    for (sql, values) in group.rows.corrections("") {
        execute(transaction, &sql, &[values], &mut key)?;
    }
    for (table, rows) in group.rows.tables() {
        execute(transaction, table.sqlite(), rows, &mut key)?;
    }
    let heads = group
        .heads
        .iter()
        .map(|head| vec![Value::Org(head.org), head.size.into(), head.frontier.clone().into()]);
    execute(transaction, PUT_HEAD, &heads.collect::<Vec<_>>(), key)
}

/// Begins a write transaction. Returns `None` if a newer program has excluded this one from writing.
fn begin<'c>(
    connection: &'c mut Connection,
    file: &OpenFile,
    migrations: &[Migration],
) -> rusqlite::Result<Option<Transaction<'c>>> {
    file.check()?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    Ok(may_write(&transaction, migrations)?.then_some(transaction))
}

/// Returns the job, unless its timeout has expired. From now on its caller waits for the outcome.
fn claim<T, R>(job: T, reply: impl FnOnce(&T) -> &Reply<R>) -> Option<T> {
    reply(&job).begin().then_some(job)
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::ToSqlConversionFailure(error.into())
}
