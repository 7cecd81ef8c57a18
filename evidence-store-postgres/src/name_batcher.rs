//! Looks up records by name, which nearly every request does. Queries that arrive while others run are
//! answered together by the next statement, like the writer's groups. No query waits for a timer. Several
//! tasks answer, so that one slow statement does not delay the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evidence_core::id::Id;
use evidence_core::queue::Refused;
use evidence_core::store::StoreResult;
use evidence_store_sql::{Cell, Column, Cost, Row, Statement, Value};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

use crate::error::{may_be_row_error, store_error};
use crate::reader::Reader;

/// The maximum number of queries in one statement.
const GROUP: usize = 64;

/// The number of groups that run at the same time, each on its own connection.
const LANES: usize = 2;

/// The maximum number of waiting queries; further callers wait for a place.
const PLACES: usize = 1024;

/// Uses subqueries and not joins with the list of names, so that each name is an index probe whatever the
/// statistics are.
pub(crate) const BY_NAMES: &str = "
    SELECT j.number, n.ledger_index,
        (SELECT l.payload FROM evidence.ledger l WHERE l.org = n.org AND l.idx = n.ledger_index)
    FROM UNNEST($1::bigint[], $2::bytea[], $3::text[], $4::text[], $5::text[]) AS j (number, org, kind, flow, name)
    CROSS JOIN LATERAL (
        SELECT r.org, r.ledger_index FROM evidence.name m
        CROSS JOIN LATERAL (
            SELECT * FROM evidence.record WHERE org = j.org AND id = m.id AND kind = j.kind OFFSET 0) r
        WHERE m.org = j.org AND m.kind = j.kind AND m.name = j.name
        UNION ALL
        SELECT org, ledger_index FROM evidence.trail WHERE org = j.org AND flow = j.flow AND name = j.name
        OFFSET 0) n";

/// The name of a record: its organization, its kind, the flow of a trail, and the name itself.
pub(crate) type Name = (Id, &'static str, Option<Id>, String);

/// A query in the queue.
#[derive(Debug)]
pub(crate) struct Lookup {
    name: Name,
    reply: oneshot::Sender<StoreResult<Option<Row>>>,
}

/// The callers that wait for the record of a name.
type Callers = Vec<oneshot::Sender<StoreResult<Option<Row>>>>;

/// Returns the sender of the query queue. Tasks answer the queries until it is dropped.
pub(crate) fn open(reader: &Reader) -> mpsc::Sender<Lookup> {
    let (lookups, queries) = mpsc::channel(PLACES);
    let queries = Arc::new(Mutex::new(queries));
    for _ in 0..LANES {
        tokio::spawn(answer(reader.clone(), Arc::clone(&queries)));
    }
    lookups
}

/// Answers queries until their queue is closed.
async fn answer(reader: Reader, queue: Arc<Mutex<mpsc::Receiver<Lookup>>>) {
    let mut group = Vec::with_capacity(GROUP);
    while queue.lock().await.recv_many(&mut group, GROUP).await > 0 {
        let mut asked = BTreeMap::<Name, Callers>::new();
        for Lookup { name, reply } in group.drain(..).filter(|lookup| !lookup.reply.is_closed()) {
            asked.entry(name).or_default().push(reply);
        }
        answer_group(&reader, asked).await;
    }
}

/// Answers a group. If one name makes a group fail, the group is halved until that name is alone.
async fn answer_group(reader: &Reader, asked: BTreeMap<Name, Callers>) {
    let mut groups = vec![asked];
    while let Some(mut asked) = groups.pop().filter(|asked| !asked.is_empty()) {
        let outcome = found(reader, asked.keys()).await;
        let middle = asked.keys().nth(asked.len() / 2).cloned();
        if let (Err(error), Some(middle)) = (&outcome, middle)
            && asked.len() > 1
            && may_be_row_error(error)
        {
            groups.push(asked.split_off(&middle));
            groups.push(asked);
            continue;
        }
        let outcome = outcome.map_err(Arc::new);
        for (number, replies) in (0..).zip(asked.into_values()) {
            for reply in replies {
                let answer = outcome.as_ref().map(|found| found.get(&number).cloned());
                // A closed reply channel means that the caller has gone.
                reply.send(answer.map_err(|error| store_error(Arc::clone(error)))).ok();
            }
        }
    }
}

/// Returns the rows for these names, by their positions.
async fn found(
    reader: &Reader,
    names: impl Iterator<Item = &Name>,
) -> Result<BTreeMap<i64, Row>, sqlx::Error> {
    let (mut numbers, mut orgs, mut kinds, mut flows, mut texts) = (vec![], vec![], vec![], vec![], vec![]);
    for (number, (org, kind, flow, name)) in (0_i64..).zip(names) {
        numbers.push(Some(number));
        orgs.push(Some(*org));
        kinds.push(Some((*kind).to_owned()));
        flows.push(flow.map(|flow| flow.to_string()));
        texts.push(Some(name.clone()));
    }
    let columns = vec![
        Column::Ints(numbers),
        Column::Orgs(orgs),
        Column::Texts(kinds),
        Column::Texts(flows),
        Column::Texts(texts),
    ];
    let values = vec![Value::Columns(columns)];
    let statement = Statement { sql: BY_NAMES.into(), values, org: None, cost: Cost::Short };
    let rows = reader.rows(statement).await?.into_iter().map(|cells| {
        let mut row = cells.row;
        let number = if row.is_empty() { Cell::Null } else { row.remove(0) };
        if let Cell::Int(number) = number { Some((number, row)) } else { None }
    });
    Ok(rows.flatten().collect())
}

/// Returns the row of the record with a name. Waits for it at most this long.
pub(crate) async fn look_up(
    lookups: &mpsc::Sender<Lookup>,
    wait: Duration,
    name: Name,
) -> StoreResult<Option<Row>> {
    let (reply, outcome) = oneshot::channel();
    let answered = async {
        lookups.send(Lookup { name, reply }).await.map_err(|_| Refused::Closed)?;
        outcome.await.map_err(|_| Refused::Closed)?
    };
    timeout(wait, answered).await.unwrap_or_else(|_| Err(Refused::Late.into()))
}
