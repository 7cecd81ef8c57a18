//! The job that sends notifications. Planning reads the ledgers and records the first event for each target
//! (`planning.rs`). Delivery then handles each target separately (`delivering.rs`): it sends one event after
//! another and records its progress after each. Nothing waits in memory. After a crash, an interrupted event
//! is sent again with the same id. A target that is down never delays the other channel: mail waits only for
//! mail.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

use crate::background::runner::{Job, JobContext};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::notifications::deliverer::{Deliverer, NAME, POLL_INTERVAL};
use crate::notifications::delivering::Reached;
use crate::notifications::planning::Planning;
use crate::notifications::sender::Sender;
use crate::notifications::store::Channel;
use crate::store::error::StoreError;

/// The maximum number of concurrent attempts of a channel: in total, and per organization.
const ATTEMPTS: usize = 64;
const ATTEMPTS_OF_ORG: usize = 8;

/// The number of due deliveries that are read per organization. Running ones are due as well.
const DUE: u64 = 2 * ATTEMPTS_OF_ORG as u64;

/// The job that sends notifications.
#[derive(Clone)]
pub struct Notify {
    sender: Arc<dyn Sender>,
}

impl std::fmt::Debug for Notify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notify").finish_non_exhaustive()
    }
}

impl Notify {
    /// Creates the job with this sender.
    pub fn new(sender: Arc<dyn Sender>) -> Self {
        Self { sender }
    }
}

#[async_trait]
impl Job for Notify {
    fn name(&self) -> &str {
        NAME
    }

    fn every(&self) -> Duration {
        POLL_INTERVAL
    }

    async fn run(&self, cx: &JobContext) -> Result<()> {
        let (evidence, sender) = (cx.evidence().clone(), Arc::clone(&self.sender));
        let deliverer = Arc::new(Deliverer::new(evidence, sender, cx.held_lease()));
        // The three loops run concurrently, so that none delays another. They end when one of them fails.
        let (http, mail) = (deliver(&deliverer, Channel::Http), deliver(&deliverer, Channel::Mail));
        tokio::try_join!(plan(cx, &deliverer), http, mail).map(|(never, ..)| match never {})
    }
}

/// The organization and target of an attempt, and its outcome.
type Ended = ((Id, Id), Result<()>);

/// The running attempts of a channel. Dropping it cancels them; they are made again later.
struct Attempts {
    channel: Channel,
    running: JoinSet<Ended>,
    busy: BTreeSet<(Id, Id)>,
    /// The last organization that was served, if the limit was reached.
    last: Option<Id>,
}

/// Plans notifications until the store fails.
async fn plan(cx: &JobContext, deliverer: &Arc<Deliverer>) -> Result<Infallible> {
    let mut planning = Planning::default();
    loop {
        planning.round(cx, deliverer).await?;
        planning.pause().await;
    }
}

/// Delivers due notifications of a channel until the store fails.
async fn deliver(deliverer: &Arc<Deliverer>, channel: Channel) -> Result<Infallible> {
    let mut attempts = Attempts { channel, running: JoinSet::new(), busy: BTreeSet::new(), last: None };
    loop {
        attempts.begin(deliverer).await?;
        let mut pause = pin!(sleep(POLL_INTERVAL));
        tokio::select! {
            () = &mut pause => {}
            Some(ended) = attempts.running.join_next() => {
                let mut ended = Some(ended);
                while let Some(outcome) = ended {
                    attempts.remove_finished(outcome);
                    ended = attempts.running.try_join_next();
                }
            }
        }
    }
}

impl Attempts {
    /// Starts due deliveries up to the limits, one organization after another.
    async fn begin(&mut self, deliverer: &Arc<Deliverer>) -> Result<()> {
        let mut after = self.last.take();
        loop {
            if self.busy.len() >= ATTEMPTS {
                self.last = after;
                return Ok(());
            }
            let now = deliverer.evidence.now();
            let Some((org, due)) =
                deliverer.evidence.store().due_deliveries(self.channel, now, after, DUE).await?
            else {
                return Ok(());
            };
            after = Some(org);
            let Some(known) = deliverer.planned(org) else { continue };
            for delivery in due {
                let key = (org, delivery.target);
                let of_org = self.busy.iter().filter(|(busy, _)| *busy == org).count();
                if of_org >= ATTEMPTS_OF_ORG || self.busy.len() >= ATTEMPTS {
                    break;
                }
                if !self.busy.insert(key) {
                    continue;
                }
                let (deliverer, known) = (Arc::clone(deliverer), known.clone());
                self.running.spawn(async move {
                    let reached = Reached::of(&delivery);
                    // A panic counts like an unreadable entry.
                    let delivered =
                        AssertUnwindSafe(deliverer.deliver(delivery, &known)).catch_unwind().await;
                    let outcome = delivered.unwrap_or_else(|_| {
                        let source = "the attempt panicked".into();
                        Err((reached, Error::Internal { what: "an attempt failed", source }))
                    });
                    if let Err((reached, error)) = &outcome {
                        deliverer.failed(key, *reached, error).await;
                    }
                    (key, outcome.map_err(|(_, error)| error))
                });
            }
        }
    }

    /// Removes a finished attempt, so that its target can be served again.
    fn remove_finished(&mut self, outcome: std::result::Result<Ended, JoinError>) {
        match outcome {
            Ok((key, outcome)) => {
                self.busy.remove(&key);
                if let Err(error) = outcome {
                    tracing::warn!(org = %key.0, target = %key.1, %error, "a delivery failed and is retried");
                }
            }
            // Attempts are never aborted, and a panic is caught in the attempt.
            Err(error) => tracing::error!(%error, "an attempt failed"),
        }
    }
}

impl Deliverer {
    /// Handles an attempt that could not be made. It counts only if the event itself may be the cause.
    async fn failed(&self, key: (Id, Id), reached: Reached, error: &Error) {
        match error {
            // After a conflict, the action or the delivery changed and is read again. Or another process took
            // the lease, which this one notices soon.
            Error::Store(
                StoreError::Conflict | StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_),
            )
            | Error::Overloaded(_) => sleep(POLL_INTERVAL).await,
            _ => self.put_off(key, reached).await,
        }
    }
}
