//! The only task that writes. It commits everything in its queue in one transaction, so that many clients
//! share one flush to the disk. A group takes two statements: one reads the data that the writes need; the
//! other writes everything if the ledgers have not grown since, or nothing. So no transaction stays open, and
//! other servers are never blocked. The only exception is a clock correction, which is rare. Chunks of
//! uploads share a transaction after each group, which locks only their own rows.
//!
//! If the connection breaks during a write, its outcome is unknown. The writer then looks for one of its
//! leaves on a new connection, and writes again if there is none. Both are safe: the statement in doubt and
//! its repetition write only if the ledgers are unchanged, so at most one of them succeeds.

use std::sync::Arc;
use std::time::Duration;

use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::queue::{Jobs, Queued, Refused, Reply, Task};
use evidence_core::store::{Entry, StoreResult};
use evidence_store_sql::migrate::latest;
use evidence_store_sql::{
    BlobWrite, Cell, Dialect, Group, Head, MAX_GROUP, Outdated, Plan, Prefetch, Row, SCHEMA, Statement,
    Submission, Value, groups_of,
};
use sqlx::postgres::PgArguments;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::time::{sleep, timeout};

use crate::bind::{Cells, arguments};
use crate::connections::PreparedConnection;
use crate::error::{
    is_cut, is_disconnected, is_lost_race, is_read_only, is_serialization_failure, may_be_row_error,
    store_error, timed_out,
};
use crate::reader::Reader;

/// The maximum number of races that a group may lose against other servers before its writes are refused.
/// Another server succeeds in each of them, so the database as a whole makes progress.
const MAX_ATTEMPTS: u32 = 256;

/// The number of times that a taken name is checked again. The second prefetch sees the row of a concurrent
/// writer.
const COLLISIONS: u32 = 2;

/// The pause before an unreachable database is asked again for the outcome of a write.
const PAUSE: Duration = Duration::from_millis(100);

const LEAF_HASH: &str = "SELECT leaf_hash FROM evidence.ledger WHERE org = $1 AND idx = $2";

/// Locks a head, if the ledger still has the expected size.
const LOCK_HEAD: &str = "SELECT 1::bigint FROM evidence.head WHERE org = $1 AND size = $2 FOR UPDATE";

/// The time limit of a statement that sets back the times of an organization's rows, and of all of them
/// together.
const CORRECTING: Duration = Duration::from_secs(3600);

const CORRECTING_TIMEOUT: &str = "SET LOCAL statement_timeout = '3600s'";

type Outcomes = Vec<StoreResult<Vec<Entry>>>;

/// A statement with its encoded values.
type Step = (AssertSqlSafe<String>, PgArguments);

/// A job of the writer.
#[derive(Debug)]
pub enum Job {
    /// Records a write.
    Record(Submission),
    /// Writes a step of a blob.
    Blob(BlobWrite, Reply<()>),
    /// Runs a statement that may be repeated.
    Probe(Statement, Reply<()>),
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
            Self::Probe(..) | Self::Stop(_) => None,
        }
    }

    fn is_upload(&self) -> bool {
        matches!(self, Self::Blob(..))
    }
}

/// A group that was in flight when the connection broke: the outcomes of its writes if it was written, and
/// the entries that prove it.
#[derive(Debug)]
struct InDoubt {
    /// The first entry of each write in the group. A later attempt may have fewer writes with the same
    /// entries.
    entries: Vec<(Id, Entry)>,
    outcomes: Outcomes,
}

impl InDoubt {
    fn new(group: &[Submission], outcomes: Outcomes) -> Option<Self> {
        let entry = |(write, outcome): (&Submission, &StoreResult<Vec<Entry>>)| {
            Some((write.org, *outcome.as_ref().ok()?.first()?))
        };
        let entries: Vec<_> = group.iter().zip(&outcomes).filter_map(entry).collect();
        (!entries.is_empty()).then_some(Self { entries, outcomes })
    }
}

/// The writer and its exclusive connection. The connection is `None` after it was lost, until the next job.
#[derive(Debug)]
pub(crate) struct Writer {
    session: Option<PreparedConnection>,
    reader: Reader,
    mixed_groups: bool,
}

impl Writer {
    pub(crate) const fn new(session: PreparedConnection, reader: Reader, mixed_groups: bool) -> Self {
        Self { session: Some(session), reader, mixed_groups }
    }

    /// Runs until the queue is closed or [`Job::Stop`] arrives.
    pub(crate) async fn run(mut self, mut queue: Jobs<Job>) {
        let mut jobs = Vec::new();
        let mut stopped = None;
        while (stopped.is_none() || queue.has_uploads()) && queue.next(&mut jobs, MAX_GROUP).await > 0 {
            let (mut group, mut blobs, mut reservations) = (Vec::new(), Vec::new(), Vec::new());
            for Queued { job, reservation } in jobs.drain(..) {
                reservations.push(reservation);
                match job {
                    Job::Record(write) => group.push(write),
                    Job::Blob(write, reply) => blobs.push((write, reply)),
                    Job::Probe(statement, reply) => self.probe(statement, reply).await,
                    Job::Stop(reply) => stopped = Some(reply),
                }
            }
            self.record(group).await;
            self.write_blobs(blobs).await;
        }
        drop(queue);
        if let Some(Err(error)) = self.close().await {
            tracing::warn!(%error, "the store's writer did not close its connection");
        }
        if let Some(reply) = stopped {
            reply.send(Ok(()));
        }
    }

    async fn close(&mut self) -> Option<Result<(), sqlx::Error>> {
        Some(self.session.take()?.close().await)
    }

    /// Writes steps of blobs in one transaction, so that many uploads share a flush to the disk. If one of
    /// them makes it fail, each gets a transaction of its own.
    async fn write_blobs(&mut self, blobs: Vec<(BlobWrite, Reply<()>)>) {
        let (mut blobs, late): (Vec<_>, Vec<_>) = blobs.into_iter().partition(|(_, reply)| reply.begin());
        late.into_iter().for_each(|(_, reply)| reply.send(Err(Refused::Late.into())));
        while !blobs.is_empty() {
            // The steps are idempotent, so they may be retried like a query.
            let mut outcome = self.attempt_blobs(&blobs).await;
            if outcome.as_ref().is_err_and(|error| is_cut(error) || is_read_only(error)) {
                outcome = self.attempt_blobs(&blobs).await;
            }
            let error = match outcome {
                Ok(written) => {
                    let outcome = |written| if written { Ok(()) } else { Err(Outdated.into()) };
                    let replies = blobs.into_iter().map(|(_, reply)| reply);
                    return replies.zip(written).for_each(|(reply, written)| reply.send(outcome(written)));
                }
                Err(error) => error,
            };
            if blobs.len() == 1 || !(may_be_row_error(&error) || is_serialization_failure(&error)) {
                let error = Arc::new(error);
                let failed = |(_, reply): (_, Reply<()>)| reply.send(Err(store_error(Arc::clone(&error))));
                return blobs.into_iter().for_each(failed);
            }
            let rest = blobs.split_off(1);
            Box::pin(self.write_blobs(blobs)).await;
            blobs = rest;
        }
    }

    /// Writes all steps or none. Returns for each whether it was written, or false if a newer program has
    /// excluded this one from writing.
    async fn attempt_blobs(&mut self, blobs: &[(BlobWrite, Reply<()>)]) -> Result<Vec<bool>, sqlx::Error> {
        let statements = blobs.iter().flat_map(|(write, _)| &write.statements);
        let steps = statements.map(|Statement { sql, values, .. }| self.step(sql, values));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        self.on_connection(async |connection| {
            if steps.len() == 1 {
                return run_steps(connection, steps).await;
            }
            let mut transaction = connection.begin().await?;
            let written = run_steps(&mut transaction, steps).await?;
            transaction.commit().await.map(|()| written)
        })
        .await
    }

    async fn probe(&mut self, statement: Statement, reply: Reply<()>) {
        if !reply.begin() {
            return reply.send(Err(Refused::Late.into()));
        }
        let Statement { sql, values, .. } = statement;
        let mut outcome = self.rows(&sql, &values).await;
        if outcome.as_ref().is_err_and(|error| is_cut(error) || is_read_only(error)) && reply.begin() {
            outcome = self.rows(&sql, &values).await;
        }
        reply.send(outcome.map(drop).map_err(store_error));
    }

    /// Encodes a statement of a transaction.
    fn step(&self, sql: &str, values: &[Value]) -> Result<Step, sqlx::Error> {
        #[cfg(test)]
        crate::statements_run::note(&self.reader.schema, sql, values);
        Ok((self.reader.schema.statement(sql), arguments(values)?))
    }

    /// Returns every row of a statement.
    async fn rows(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, sqlx::Error> {
        let (sql, arguments) = self.step(sql, values)?;
        let query = sqlx::query_as_with::<_, Cells, _>(sql, arguments);
        let rows = self.on_connection(async |connection| query.fetch_all(connection).await).await?;
        Ok(rows.into_iter().map(|cells| cells.row).collect())
    }

    /// Runs the work of one statement, and opens a connection first if there is none. After an error of the
    /// connection, it is dropped, because its state is unknown. It is also dropped if the server is
    /// read-only: the server was demoted, and another one may now be the primary.
    async fn on_connection<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        self.on_connection_within(None, work).await
    }

    /// Runs work on the connection with another time limit than that of a statement.
    async fn on_connection_within<T>(
        &mut self,
        time: Option<Duration>,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => PreparedConnection::connect(&self.reader.connections.address()).await?,
        };
        let time = time.unwrap_or_else(|| session.client_timeout());
        let done = async { work(session.ready().await?).await };
        let outcome = timeout(time, done).await.unwrap_or_else(|_| Err(timed_out()));
        match &outcome {
            Err(error) if is_disconnected(error) => {}
            Err(error) if is_read_only(error) => self.reader.connections.drop_idle(),
            Ok(_) | Err(_) => self.session = Some(session),
        }
        outcome
    }

    /// Records these writes. If one write makes a group fail, the group is halved until that write is alone.
    async fn record(&mut self, writes: Vec<Submission>) {
        let mut groups = if self.mixed_groups { vec![writes] } else { by_organization(writes) };
        groups = groups.into_iter().flat_map(groups_of).collect();
        groups.reverse();
        while let Some(group) = groups.pop() {
            let (overdue, mut group): (Vec<_>, Vec<_>) =
                group.into_iter().partition(|write| write.reply.is_late());
            overdue.into_iter().for_each(|write| write.reply.send(Err(Refused::Late.into())));
            if group.is_empty() {
                continue;
            }
            match self.attempt(&group).await {
                Ok(outcomes) => {
                    for (write, outcome) in group.into_iter().zip(outcomes) {
                        write.reply.send(outcome);
                    }
                }
                Err(error) if group.len() > 1 && may_be_row_error(&error) => {
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

    /// Prefetches and writes until no other server has written in between. On an error, nothing of the group
    /// was written. Writes whose timeout has expired leave the group between two attempts.
    async fn attempt(&mut self, group: &[Submission]) -> Result<Outcomes, sqlx::Error> {
        let (mut collisions, mut demoted) = (0, false);
        let mut doubts = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            let mut plan = match self.prefetch(group).await {
                Ok(plan) => plan,
                Err(error) if doubts.is_empty() => return Err(error),
                Err(error) if !is_disconnected(&error) || all_late(group) => break,
                Err(_) => {
                    sleep(PAUSE).await;
                    continue;
                }
            };
            // Resolve after the prefetch: if a group in doubt is committed later than this check, its ledgers
            // grow, and the write of this attempt fails.
            match self.resolve(&mut doubts).await {
                Ok(Some(outcomes)) => return Ok(outcomes),
                Ok(None) => {}
                Err(_) if all_late(group) => break,
                Err(_) => continue,
            }
            if !plan.admits_version(self.version()) {
                if !doubts.is_empty() {
                    break;
                }
                return Ok(group.iter().map(|_| Err(Outdated.into())).collect());
            }
            let is_in_doubt = !doubts.is_empty();
            let late = || if is_in_doubt { in_doubt() } else { Refused::Late.into() };
            let planned = |write: &Submission| {
                if write.reply.begin() { plan.accept(write) } else { Ok(Err(late())) }
            };
            let outcomes: Outcomes = group.iter().map(planned).collect::<Result<_, _>>().map_err(encode)?;
            if plan.is_empty() {
                return Ok(outcomes);
            }
            match self.write(plan).await {
                Ok(true) => return Ok(outcomes),
                Ok(false) => {}
                Err(error) if is_disconnected(&error) => {
                    doubts.extend(InDoubt::new(group, outcomes));
                    if all_late(group) {
                        break;
                    }
                }
                Err(error) if is_serialization_failure(&error) => {}
                Err(error) if is_lost_race(&error) && collisions < COLLISIONS => collisions += 1,
                Err(error) if is_read_only(&error) && !demoted => demoted = true,
                Err(error) if doubts.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        let refusal = if doubts.is_empty() { outrun } else { in_doubt };
        Ok(group.iter().map(|_| Err(refusal())).collect())
    }

    /// Returns the version of the tables that this program writes.
    fn version(&self) -> i64 {
        latest(self.reader.migrations)
    }

    /// Returns the outcomes of a group in doubt, if the group turns out to have been written.
    async fn resolve(&mut self, doubts: &mut Vec<InDoubt>) -> Result<Option<Outcomes>, sqlx::Error> {
        // The entries of one attempt may be a subset of another's. Check the largest first.
        doubts.sort_by_key(|doubt| std::cmp::Reverse(doubt.entries.len()));
        for number in 0..doubts.len() {
            let entries = doubts.get(number).map(|doubt| doubt.entries.clone()).unwrap_or_default();
            if self.are_written(&entries).await? {
                return Ok(Some(doubts.swap_remove(number).outcomes));
            }
        }
        Ok(None)
    }

    async fn are_written(&mut self, entries: &[(Id, Entry)]) -> Result<bool, sqlx::Error> {
        for (org, entry) in entries {
            let values = vec![Value::Org(*org), entry.index.into()];
            let found = self.rows(LEAF_HASH, &values).await?;
            if found.first().and_then(|row| row.first())
                != Some(&Cell::Bytes(entry.leaf_hash.as_bytes().to_vec()))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Prefetches, and retries once if the connection was dead. A prefetch changes nothing.
    async fn prefetch(&mut self, group: &[Submission]) -> Result<Plan, sqlx::Error> {
        let prefetch = Prefetch::of(group);
        let (sql, values) = prefetch.statement(Dialect::Postgres, self.mixed_groups);
        let mut rows = self.rows(sql, &values).await;
        if rows.as_ref().is_err_and(is_cut) {
            rows = self.rows(sql, &values).await;
        }
        Plan::new(&prefetch, rows?).map_err(|damage| sqlx::Error::Decode(damage.into()))
    }

    /// Writes a group. Returns whether the ledgers were unchanged, so that everything was written.
    async fn write(&mut self, plan: Plan) -> Result<bool, sqlx::Error> {
        let group = plan.into_group().map_err(encode)?;
        let corrections = group.rows.corrections(SCHEMA);
        if !corrections.is_empty() {
            return self.write_corrected(group, corrections).await;
        }
        let (statement, values) = group.into_statement(self.version(), self.mixed_groups);
        let written = self.rows(statement, &values).await?;
        Ok(written.first().and_then(|row| row.first()) == Some(&Cell::Int(1)))
    }

    /// Writes a group that corrects a clock. One transaction sets back the times of the stored rows, without
    /// the usual time limit, and writes the rows of the group. The heads are locked first, so that this work
    /// is never wasted.
    async fn write_corrected(
        &mut self,
        group: Group,
        corrections: Vec<(String, Vec<Value>)>,
    ) -> Result<bool, sqlx::Error> {
        let of_head = |head: &Head| self.step(LOCK_HEAD, &[Value::Org(head.org), head.was.into()]);
        let locks = group.heads.iter().map(of_head).collect::<Result<Vec<_>, _>>()?;
        let corrections = corrections.iter().map(|(sql, values)| self.step(sql, values));
        let corrections = corrections.collect::<Result<Vec<_>, _>>()?;
        let (statement, values) = group.into_statement(self.version(), self.mixed_groups);
        let statement = self.step(statement, &values)?;
        let correct = async |connection: &mut PgConnection| {
            let mut transaction = connection.begin().await?;
            let are_current = run_steps(&mut transaction, locks).await?.into_iter().all(|current| current);
            if are_current {
                sqlx::raw_sql(CORRECTING_TIMEOUT).execute(&mut *transaction).await?;
                run_steps(&mut transaction, corrections).await?;
                if run_steps(&mut transaction, vec![statement]).await? == [true] {
                    return transaction.commit().await.map(|()| true);
                }
            }
            transaction.rollback().await.map(|()| false)
        };
        self.on_connection_within(Some(CORRECTING), correct).await
    }
}

/// Runs steps of blobs. Returns for each whether it was done, or false if a newer program has excluded this
/// one from writing.
async fn run_steps(connection: &mut PgConnection, steps: Vec<Step>) -> Result<Vec<bool>, sqlx::Error> {
    let mut done = Vec::with_capacity(steps.len());
    for (sql, arguments) in steps {
        let rows = sqlx::query_as_with::<_, Cells, _>(sql, arguments).fetch_all(&mut *connection).await?;
        done.push(rows.first().and_then(|cells| cells.row.first()) == Some(&Cell::Int(1)));
    }
    Ok(done)
}

/// Returns whether the timeouts of all these writes have expired.
fn all_late(group: &[Submission]) -> bool {
    group.iter().all(|write| write.reply.is_late())
}

/// Returns the error for a group with an unknown outcome.
fn in_doubt() -> StoreError {
    StoreError::OutcomeUnknown(
        "the connection broke while the database wrote, and it cannot be asked what it did".into(),
    )
}

/// Returns the error for a group that lost every race against other servers.
fn outrun() -> StoreError {
    StoreError::Unavailable("other servers wrote to the same organizations all the time".into())
}

fn encode(error: serde_json::Error) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}

/// Splits the writes by organization, in order.
fn by_organization(writes: Vec<Submission>) -> Vec<Vec<Submission>> {
    let mut apart = std::collections::BTreeMap::<Id, Vec<Submission>>::new();
    for write in writes {
        apart.entry(write.org).or_default().push(write);
    }
    apart.into_values().collect()
}
