//! Background work: one server of several does it, and another takes over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use evidence_core::background::{Background, Job, Turn};
use evidence_core::id::Id;
use evidence_core::seed::Seed;
use evidence_core::{Error, Evidence, Result, Settings, Store};
use tokio::time::{sleep, timeout};

use crate::support::stores;

/// Long enough for a busy machine.
const LEASE: Duration = Duration::from_millis(600);

/// Counts what a server has run, and consumes one organization's ledger.
struct Count {
    runs: AtomicU64,
    org: Id,
    consumed: Arc<Mutex<Vec<u64>>>,
}

#[async_trait]
impl Job for Count {
    fn name(&self) -> &str {
        "count"
    }

    fn every(&self) -> Duration {
        LEASE / 60
    }

    async fn run(&self, turn: &Turn) -> Result<()> {
        let batch = turn.next(self.org, 1).await?;
        turn.done(&batch).await?;
        self.consumed.lock().unwrap().extend(batch.entries.iter().map(|entry| entry.index));
        // What goes wrong once is tried again.
        match self.runs.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Error::Forbidden),
            1 => panic!("the second run"),
            _ => Ok(()),
        }
    }
}

struct Server {
    job: Arc<Count>,
    background: Background,
}

impl Server {
    /// A server of its own over the store, at work.
    fn start(store: &Arc<dyn Store>, org: Id, consumed: &Arc<Mutex<Vec<u64>>>) -> Self {
        let evidence = Evidence::new(Arc::clone(store), Settings::default());
        let job = Arc::new(Count { runs: AtomicU64::new(0), org, consumed: Arc::clone(consumed) });
        let background = evidence.background(LEASE, vec![Arc::clone(&job) as _]);
        Self { job, background }
    }

    fn runs(&self) -> u64 {
        self.job.runs.load(Ordering::SeqCst)
    }

    async fn ran(&self) {
        let ran = async {
            while self.runs() < 4 {
                sleep(LEASE / 60).await;
            }
        };
        timeout(Duration::from_secs(20), ran).await.expect("the job is run");
    }
}

#[tokio::test]
async fn one_server_does_the_work_and_when_it_is_gone_another_goes_on_where_it_was() {
    for stored in stores().await {
        let seeded = Evidence::new(Arc::clone(&stored.store), Settings::default());
        let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key: None };
        seeded.seed(&seed).await.unwrap();
        let jane = stored.store.user("jane").await.unwrap().unwrap();
        let org = stored.store.standing("jane", jane.id).await.unwrap().unwrap().organization.id;
        let entries = stored.store.ledger_head(org).await.unwrap().unwrap().size();

        let consumed = Arc::new(Mutex::new(Vec::new()));
        let start = || Server::start(&stored.store, org, &consumed);
        let first = start();
        first.ran().await;
        let second = start();
        sleep(LEASE * 2).await;
        assert_eq!(second.runs(), 0, "{}: two servers at the same work", stored.name);

        // As when its process is killed: the lease is not given back.
        drop(first.background);
        second.ran().await;
        let third = start();
        // Given back, so that nobody waits for it to expire.
        second.background.stop().await;
        third.ran().await;
        third.background.stop().await;
        let consumed = consumed.lock().unwrap().clone();
        assert_eq!(consumed, (0..entries).collect::<Vec<_>>(), "{}", stored.name);
    }
}
