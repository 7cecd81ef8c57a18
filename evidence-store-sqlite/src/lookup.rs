//! Records by their names, which nearly every request asks for. A statement of its own for each would cost two changes
//! of thread, more than the answer itself; so the questions that arrive while some are being answered are answered
//! together next, as the writer does with writes. Nothing waits for a timer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evidence_core::Current;
use evidence_core::id::Id;
use evidence_core::store::StoreResult;
use serde::de::DeserializeOwned;
use sqlx::SqlitePool;
use tokio::sync::{mpsc, oneshot};

use crate::db::SqliteStore;
use crate::error::{TaskEnded, store_error};
use crate::rows::current;

/// The most questions of one statement.
const GROUP: usize = 64;

/// The kind of a trail's name: no other kind of record has it.
const TRAIL: &str = "trail";

const BY_NAMES: &str = "
    SELECT j.value->>0, l.idx, l.payload
        FROM json_each($1) j CROSS JOIN organization o ON o.id = j.value->>1
        CROSS JOIN named n ON n.org = o.key AND n.kind = j.value->>2 AND n.name = j.value->>4
        CROSS JOIN ledger l ON l.org = n.org AND l.idx = n.ledger_index
    UNION ALL SELECT j.value->>0, l.idx, l.payload
        FROM json_each($1) j CROSS JOIN organization o ON o.id = j.value->>1
        CROSS JOIN trail t ON t.flow = j.value->>3 AND t.name = j.value->>4 AND t.org = o.key
        CROSS JOIN ledger l ON l.org = t.org AND l.idx = t.ledger_index";

/// A record's name: its organization, its kind, the flow that a trail lies in, and the name itself.
type Name = (Id, &'static str, Option<Id>, String);

/// The index of a record's newest fact, and the fact.
type Found = (i64, String);

/// A question on its way.
#[derive(Debug)]
pub(crate) struct Lookup {
    name: Name,
    reply: oneshot::Sender<StoreResult<Option<Found>>>,
}

/// Answers questions until their queue is closed.
pub(crate) async fn answer(
    readers: SqlitePool,
    statements: Arc<AtomicU64>,
    mut queue: mpsc::Receiver<Lookup>,
) {
    let mut group = Vec::with_capacity(GROUP);
    while queue.recv_many(&mut group, GROUP).await > 0 {
        let mut asked = BTreeMap::<Name, Vec<_>>::new();
        for Lookup { name, reply } in group.drain(..) {
            asked.entry(name).or_default().push(reply);
        }
        statements.fetch_add(1, Ordering::Relaxed);
        let outcome = found(&readers, asked.keys()).await.map_err(Arc::new);
        for (number, replies) in (0..).zip(asked.into_values()) {
            for reply in replies {
                let answer = outcome.as_ref().map(|found| found.get(&number).cloned());
                // A closed reply channel is a caller that has gone.
                reply.send(answer.map_err(|error| store_error(Arc::clone(error)))).ok();
            }
        }
    }
}

/// What has these names, by their positions.
async fn found(
    readers: &SqlitePool,
    names: impl Iterator<Item = &Name>,
) -> Result<BTreeMap<i64, Found>, sqlx::Error> {
    let numbered =
        (0_i64..).zip(names).map(|(number, (org, kind, flow, name))| (number, org, kind, flow, name));
    let names = serde_json::to_string(&numbered.collect::<Vec<_>>());
    let names = names.map_err(|error| sqlx::Error::Encode(error.into()))?;
    let rows: Vec<(i64, i64, String)> = sqlx::query_as(BY_NAMES).bind(names).fetch_all(readers).await?;
    Ok(rows.into_iter().map(|(number, revision, payload)| (number, (revision, payload))).collect())
}

impl SqliteStore {
    /// The record of this kind and name.
    pub(crate) async fn by_name<T: DeserializeOwned>(
        &self,
        org: Id,
        kind: &'static str,
        name: &str,
    ) -> StoreResult<Option<Current<T>>> {
        self.look_up((org, kind, None, name.to_owned())).await
    }

    /// The trail of this name in a flow.
    pub(crate) async fn trail_by_name<T: DeserializeOwned>(
        &self,
        org: Id,
        flow: Id,
        name: &str,
    ) -> StoreResult<Option<Current<T>>> {
        self.look_up((org, TRAIL, Some(flow), name.to_owned())).await
    }

    async fn look_up<T: DeserializeOwned>(&self, name: Name) -> StoreResult<Option<Current<T>>> {
        let (reply, outcome) = oneshot::channel();
        self.lookups.send(Lookup { name, reply }).await.map_err(|_| TaskEnded)?;
        outcome.await.map_err(|_| TaskEnded)??.map(current).transpose()
    }
}
