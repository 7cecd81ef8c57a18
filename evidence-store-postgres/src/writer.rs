//! The one task that writes. It takes whatever its queue holds into one transaction, so that many clients share one
//! flush to the disk, and it takes two statements to do so: one that reads what the writes need, and one that writes all if the ledgers have
//! not grown since, or nothing. So no transaction is ever left open, and other servers are never kept out. The one exception is
//! a correction of a clock, which is rare. Chunks of uploads share a transaction behind each group, which locks nothing but
//! their own rows.
//!
//! Where the connection breaks while the database writes, nobody knows whether it did. The writer then looks, on a new
//! connection, for a leaf of its own; if there is none it writes again. Both are safe, for the statement in doubt and its
//! repetition write only if the ledgers are as they were seen: at most one of them does.

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
use crate::db::Reader;
use crate::error::{
    is_cut, is_disconnected, is_lost_race, is_read_only, is_serialization_failure, may_be_row_error,
    store_error, timed_out,
};

/// How often a group may lose a race against other servers before its writes are refused. Each time one of them got
/// ahead, so that the database as a whole does.
const MAX_ATTEMPTS: u32 = 256;

/// How often a name that is taken is looked at again: whoever took it meanwhile is seen the second time.
const COLLISIONS: u32 = 2;

/// How long to wait before a database that cannot be reached is asked again what it wrote.
const PAUSE: Duration = Duration::from_millis(100);

const LEAF_HASH: &str = "SELECT leaf_hash FROM evidence.ledger WHERE org = $1 AND idx = $2";

/// Locks a head, if the ledger still has the size that was seen.
const LOCK_HEAD: &str = "SELECT 1::bigint FROM evidence.head WHERE org = $1 AND size = $2 FOR UPDATE";

/// How long a statement may take that sets back the times of an organization's rows, and all of them together.
const CORRECTING: Duration = Duration::from_secs(3600);

const CORRECTING_TIMEOUT: &str = "SET LOCAL statement_timeout = '3600s'";

type Outcomes = Vec<StoreResult<Vec<Entry>>>;

/// A statement and its values.
type Step = (AssertSqlSafe<String>, PgArguments);

/// Something for the writer to do.
#[derive(Debug)]
pub enum Job {
    /// To record a write.
    Record(Submission),
    /// To write a step of a blob.
    Blob(BlobWrite, Reply<()>),
    /// To run a statement that may be run again.
    Probe(Statement, Reply<()>),
    /// To end, after everything that came before.
    Stop(Reply<()>),
}

impl From<Submission> for Job {
    fn from(write: Submission) -> Self {
        Self::Record(write)
    }
}

impl Task for Job {
    fn room(&self) -> Option<(Id, usize)> {
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

/// A group that was sent when the connection broke: what its writes are answered if it was written, and the entries by
/// which that is known.
#[derive(Debug)]
struct InDoubt {
    /// The first entry of each write in it: a later attempt may have had fewer writes, and the same entries.
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

/// The writer and its connection, which nobody else uses; none after it was cut off, until the next job.
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

    /// Works until the queue is closed or [`Job::Stop`] comes.
    pub(crate) async fn run(mut self, mut queue: Jobs<Job>) {
        let mut jobs = Vec::new();
        let mut stopped = None;
        while (stopped.is_none() || queue.has_uploads()) && queue.next(&mut jobs, MAX_GROUP).await > 0 {
            let (mut group, mut blobs, mut reservations) = (Vec::new(), Vec::new(), Vec::new());
            for Queued { job, room } in jobs.drain(..) {
                reservations.push(room);
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

    /// Writes steps of blobs in one transaction, so that many uploads share a flush to the disk. Where that fails for the sake
    /// of one of them, each has a transaction of its own.
    async fn write_blobs(&mut self, blobs: Vec<(BlobWrite, Reply<()>)>) {
        let (mut blobs, late): (Vec<_>, Vec<_>) = blobs.into_iter().partition(|(_, reply)| reply.begin());
        late.into_iter().for_each(|(_, reply)| reply.send(Err(Refused::Late.into())));
        while !blobs.is_empty() {
            // The same steps again change nothing, so that they may be tried again as a query may.
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

    /// Writes all of these or none. Returns of each whether it was written, and not left to a newer program.
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

    /// A statement of a transaction.
    fn step(&self, sql: &str, values: &[Value]) -> Result<Step, sqlx::Error> {
        #[cfg(test)]
        crate::plans::note(&self.reader.schema, sql, values);
        Ok((self.reader.schema.statement(sql), arguments(values)?))
    }

    /// Every row of a statement.
    async fn rows(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, sqlx::Error> {
        let (sql, arguments) = self.step(sql, values)?;
        let query = sqlx::query_as_with::<_, Cells, _>(sql, arguments);
        let rows = self.on_connection(async |connection| query.fetch_all(connection).await).await?;
        Ok(rows.into_iter().map(|cells| cells.row).collect())
    }

    /// Does one statement's work, making a connection first where there is none. After an error of the connection it
    /// is given up: nobody knows what state it is in. So it is where the server may only be read from: it was demoted,
    /// and another one may be the primary now.
    async fn on_connection<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        self.on_connection_within(None, work).await
    }

    /// The same within another time than that of a statement.
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

    /// Records these writes. A group that fails for the sake of one write is halved until that one is alone.
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

    /// Prefetches and writes until no other server came between: on an error nothing of the group was written. Writes whose
    /// time is over leave the group between two attempts.
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
            // After the prefetch: what is written later has a ledger that grows before this group is written.
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

    /// The version of this program.
    fn version(&self) -> i64 {
        latest(self.reader.migrations)
    }

    /// What the writes of a group in doubt are answered, if it turns out to have been written.
    async fn resolve(&mut self, doubts: &mut Vec<InDoubt>) -> Result<Option<Outcomes>, sqlx::Error> {
        // One attempt may have written what is all of another's: then it is the larger one.
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

    /// Prefetches, once more where the connection turned out to be dead: that changes nothing.
    async fn prefetch(&mut self, group: &[Submission]) -> Result<Plan, sqlx::Error> {
        let prefetch = Prefetch::of(group);
        let (sql, values) = prefetch.statement(Dialect::Postgres, self.mixed_groups);
        let mut rows = self.rows(sql, &values).await;
        if rows.as_ref().is_err_and(is_cut) {
            rows = self.rows(sql, &values).await;
        }
        Plan::new(&prefetch, rows?).map_err(|damage| sqlx::Error::Decode(damage.into()))
    }

    /// Whether the ledgers were as they were seen, so that everything was written.
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

    /// The same for a group that corrects a clock: in one transaction the times of stored rows are set back, as long as that
    /// takes, and the rows of the group written. The heads are locked first, so that it never takes long in vain.
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

/// Runs steps of blobs. Returns of each whether it was done, and not left to a newer program.
async fn run_steps(connection: &mut PgConnection, steps: Vec<Step>) -> Result<Vec<bool>, sqlx::Error> {
    let mut done = Vec::with_capacity(steps.len());
    for (sql, arguments) in steps {
        let rows = sqlx::query_as_with::<_, Cells, _>(sql, arguments).fetch_all(&mut *connection).await?;
        done.push(rows.first().and_then(|cells| cells.row.first()) == Some(&Cell::Int(1)));
    }
    Ok(done)
}

/// Whether nobody waits for these writes any more.
fn all_late(group: &[Submission]) -> bool {
    group.iter().all(|write| write.reply.is_late())
}

/// Why a group is refused of which nobody knows whether it was written.
fn in_doubt() -> StoreError {
    StoreError::OutcomeUnknown(
        "the connection broke while the database wrote, and it cannot be asked what it did".into(),
    )
}

/// Why a group is refused that other servers were always ahead of.
fn outrun() -> StoreError {
    StoreError::Unavailable("other servers wrote to the same organizations all the time".into())
}

fn encode(error: serde_json::Error) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}

/// The writes in their order, apart by organization.
fn by_organization(writes: Vec<Submission>) -> Vec<Vec<Submission>> {
    let mut apart = std::collections::BTreeMap::<Id, Vec<Submission>>::new();
    for write in writes {
        apart.entry(write.org).or_default().push(write);
    }
    apart.into_values().collect()
}
