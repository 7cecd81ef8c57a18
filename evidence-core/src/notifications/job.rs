//! The job that notifies. One part goes through the ledgers and notes where targets begin (`planning.rs`). The other goes on from
//! there, for each target by itself (`delivering.rs`): it sends one event after the other, and notes after each how far it
//! is. So nothing waits in memory, what a crash cuts off is sent again under the same id, and a target that is down holds up
//! none of another channel: mails wait for mails alone.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::sync::Mutex;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

use crate::background::runner::{Job, Turn};
use crate::error::{Error, Result};
use crate::feed::Held;
use crate::id::Id;
use crate::lock::locked;
use crate::notifications::delivering::Reached;
use crate::notifications::planning::Planning;
use crate::notifications::sender::Sender;
use crate::notifications::store::Channel;
use crate::orgs::record::Organization;
use crate::service::Evidence;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// The name of the job, of its lease and of its cursors.
pub(crate) const NAME: &str = "notify";

/// How long the job rests when it has looked at all ledgers, or at all that is due.
pub(super) const REST: Duration = Duration::from_secs(1);

/// How many organizations are listed, and entries of a ledger gone through, at a time.
pub(super) const PAGE: u64 = 256;

/// Entries of so many bytes are read in the pool.
pub(super) const HEAVY: usize = 64 << 10;

/// Attempts at the same time by one channel, in all and for one organization.
const ATTEMPTS: usize = 64;
const ATTEMPTS_OF_ORG: usize = 8;

/// Deliveries of an organization that are looked at when attempts begin: those under way are due, too.
const DUE: u64 = 2 * ATTEMPTS_OF_ORG as u64;

/// The job that notifies.
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
    /// The job, with whoever sends.
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
        REST
    }

    async fn run(&self, turn: &Turn) -> Result<()> {
        let (evidence, sender) = (turn.evidence().clone(), Arc::clone(&self.sender));
        let post = Arc::new(Post { evidence, sender, held: turn.held(), orgs: StdMutex::default() });
        // Side by side, so that none waits while another has much to do. All go on until one of them fails.
        let (http, mail) = (deliver(&post, Channel::Http), deliver(&post, Channel::Mail));
        tokio::try_join!(plan(turn, &post), http, mail).map(|(never, ..)| match never {})
    }
}

/// What is known of an organization.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// Its name.
    pub(super) name: String,
    /// The size of its ledger when all of it was planned.
    pub(super) planned: Option<u64>,
    /// Held while events are noted for its targets, and while a target is noted to have none: who finds none left may not
    /// overlook one that is just being noted.
    pub(super) planning: Arc<Mutex<()>>,
}

/// Who delivers.
pub(super) struct Post {
    pub(super) evidence: Evidence,
    pub(super) sender: Arc<dyn Sender>,
    /// The job's lease.
    pub(super) held: Held,
    orgs: StdMutex<BTreeMap<Id, Known>>,
}

impl Post {
    fn orgs(&self) -> MutexGuard<'_, BTreeMap<Id, Known>> {
        locked(&self.orgs)
    }

    /// What is known of an organization, by the name that it has now.
    pub(super) fn known(&self, org: &Organization) -> Known {
        let mut orgs = self.orgs();
        let known = orgs.entry(org.id).or_insert_with(|| Known {
            name: String::new(),
            planned: None,
            planning: Arc::default(),
        });
        known.name = org.name.to_string();
        known.clone()
    }

    /// Notes that an organization's ledger of this size was planned.
    pub(super) fn note_planned(&self, org: Id, size: u64) {
        if let Some(known) = self.orgs().get_mut(&org) {
            known.planned = Some(size);
        }
    }
}

/// What of what target ended so.
type Ended = ((Id, Id), Result<()>);

/// Attempts by a channel that are under way. Dropped, they end where they wait, and are made again.
struct Attempts {
    channel: Channel,
    running: JoinSet<Ended>,
    busy: BTreeSet<(Id, Id)>,
    /// The organization that the last one was of, where there was no room for more.
    last: Option<Id>,
}

/// Notes what the ledgers tell to whom, until the store fails.
async fn plan(turn: &Turn, post: &Arc<Post>) -> Result<Infallible> {
    let mut planning = Planning::default();
    loop {
        planning.round(turn, post).await?;
        planning.rest().await;
    }
}

/// Delivers what is due by a channel, until the store fails.
async fn deliver(post: &Arc<Post>, channel: Channel) -> Result<Infallible> {
    let mut attempts = Attempts { channel, running: JoinSet::new(), busy: BTreeSet::new(), last: None };
    loop {
        attempts.begin(post).await?;
        let mut rest = pin!(sleep(REST));
        tokio::select! {
            () = &mut rest => {}
            Some(ended) = attempts.running.join_next() => {
                let mut ended = Some(ended);
                while let Some(outcome) = ended {
                    attempts.settle(outcome);
                    ended = attempts.running.try_join_next();
                }
            }
        }
    }
}

impl Attempts {
    /// Begins what is due and not under way, as far as there is room: organizations have their turns one after the other.
    async fn begin(&mut self, post: &Arc<Post>) -> Result<()> {
        let mut after = self.last.take();
        loop {
            if self.busy.len() >= ATTEMPTS {
                self.last = after;
                return Ok(());
            }
            let now = post.evidence.now();
            let Some((org, due)) =
                post.evidence.store().due_deliveries(self.channel, now, after, DUE).await?
            else {
                return Ok(());
            };
            after = Some(org);
            let Some(known) = post.orgs().get(&org).cloned() else { continue };
            for delivery in due {
                let key = (org, delivery.target);
                let of_org = self.busy.iter().filter(|(busy, _)| *busy == org).count();
                if of_org >= ATTEMPTS_OF_ORG || self.busy.len() >= ATTEMPTS {
                    break;
                }
                if !self.busy.insert(key) {
                    continue;
                }
                let (post, known) = (Arc::clone(post), known.clone());
                self.running.spawn(async move {
                    let reached = Reached::of(&delivery);
                    // A panic is like an entry that cannot be read.
                    let delivered = AssertUnwindSafe(post.deliver(delivery, &known)).catch_unwind().await;
                    let outcome = delivered.unwrap_or_else(|_| {
                        let source = "the attempt panicked".into();
                        Err((reached, Error::Internal { what: "an attempt broke off", source }))
                    });
                    if let Err((reached, error)) = &outcome {
                        post.failed(key, *reached, error).await;
                    }
                    (key, outcome.map_err(|(_, error)| error))
                });
            }
        }
    }

    /// Forgets an attempt that ended, of a target that is to be looked at again.
    fn settle(&mut self, outcome: std::result::Result<Ended, JoinError>) {
        match outcome {
            Ok((key, outcome)) => {
                self.busy.remove(&key);
                if let Err(error) = outcome {
                    tracing::warn!(org = %key.0, target = %key.1, %error, "a target is tried again");
                }
            }
            // None is aborted, and what panics is an outcome.
            Err(error) => tracing::error!(%error, "an attempt broke off"),
        }
    }
}

impl Post {
    /// What an attempt that could not be made costs: nothing where that is not because of what is told.
    async fn failed(&self, key: (Id, Id), reached: Reached, error: &Error) {
        match error {
            // In a conflict the action or the delivery was changed meanwhile, and is looked at again; or another process took the
            // lease, which is noticed soon.
            Error::Store(
                StoreError::Conflict | StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_),
            )
            | Error::Overloaded(_) => sleep(REST).await,
            _ => self.put_off(key, reached).await,
        }
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn after(now: Timestamp, pause: Duration) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_add(micros(pause)))
}

pub(super) fn before(now: Timestamp, age: Duration) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_sub(micros(age)))
}
