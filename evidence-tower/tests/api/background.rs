//! Background work: one server of several does it, and another takes over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use evidence_core::background::{Background, Job, JobContext};
use evidence_core::id::{Id, SystemRandom};
use evidence_core::leases::{Lease, MAX_LEASE};
use evidence_core::seed::Seed;
use evidence_core::time::{Clock, SystemClock, Timestamp};
use evidence_core::{Error, Evidence, Result, Settings, Store};
use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::faults::Log;
use crate::intercepting_store::{Call, InterceptingStore};
use crate::support::{ManualClock, org_id, stores};

/// The lease, measured on the manual clock. Servers ask for it every quarter of this, in real time.
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

    async fn run(&self, cx: &JobContext) -> Result<()> {
        let batch = cx.next_batch(self.org, 1).await?;
        cx.commit(&batch).await?;
        self.consumed.lock().unwrap().extend(batch.entries.iter().map(|entry| entry.index));
        // A job that fails once is retried.
        match self.runs.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Error::Forbidden),
            1 => panic!("the second run"),
            _ => Ok(()),
        }
    }
}

/// A store, and the number of its queries.
fn counting(store: &Arc<dyn Store>) -> (Arc<dyn Store>, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let before = move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        async {}.boxed()
    };
    (Arc::new(InterceptingStore::new(Arc::clone(store), before)), asked)
}

struct Server {
    job: Arc<Count>,
    asked: Arc<AtomicU64>,
    background: Background,
}

impl Server {
    /// A server of its own over the store, at work.
    fn start(
        store: &Arc<dyn Store>,
        clock: &Arc<ManualClock>,
        org: Id,
        consumed: &Arc<Mutex<Vec<u64>>>,
    ) -> Self {
        let (store, asked) = counting(store);
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        let evidence = Evidence::with_sources(store, Settings::default(), clock, Arc::new(SystemRandom));
        let job = Arc::new(Count { runs: AtomicU64::new(0), org, consumed: Arc::clone(consumed) });
        let background = evidence.background(LEASE, vec![Arc::clone(&job) as _]);
        Self { job, asked, background }
    }

    fn runs(&self) -> u64 {
        self.job.runs.load(Ordering::SeqCst)
    }

    async fn ran(&self) {
        until(|| self.runs() >= 4, "the job is run").await;
    }
}

/// The organization `acme`, made in a store.
async fn seeded(store: &Arc<dyn Store>) -> Id {
    let seeded = Evidence::new(Arc::clone(store), Settings::default());
    let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key: None };
    seeded.seed(&seed).await.unwrap();
    org_id(&**store, "jane", "jane").await
}

/// Waits until it is so.
async fn until(is_so: impl Fn() -> bool, what: &str) {
    let wait = async {
        while !is_so() {
            sleep(LEASE / 60).await;
        }
    };
    timeout(Duration::from_secs(60), wait).await.expect(what);
}

#[tokio::test]
async fn one_server_does_the_work_and_when_it_is_gone_another_goes_on_where_it_was() {
    for stored in stores().await {
        let org = seeded(&stored.store).await;
        let entries = stored.store.ledger_head(org).await.unwrap().unwrap().size();

        let consumed = Arc::new(Mutex::new(Vec::new()));
        let clock = Arc::new(ManualClock::default());
        let start = || Server::start(&stored.store, &clock, org, &consumed);
        let first = start();
        first.ran().await;
        let second = start();
        // All that it asks for without the lease is the lease.
        until(|| second.asked.load(Ordering::SeqCst) > 3, "the lease is asked for").await;
        assert_eq!(second.runs(), 0, "{}: two servers at the same work", stored.name);

        // As when its process is killed: the lease is not given back.
        drop(first.background);
        let asked = second.asked.load(Ordering::SeqCst);
        until(|| second.asked.load(Ordering::SeqCst) > asked + 1, "the lease is asked for again").await;
        assert_eq!(second.runs(), 0, "{}: it has not expired", stored.name);
        clock.advance(LEASE);
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

/// Its first two runs fail, each under a lease of its own.
#[tokio::test]
async fn who_does_a_job_is_logged_when_that_changes() {
    for stored in stores().await {
        let org = seeded(&stored.store).await;
        let (log, clock) = (Log::default(), Arc::new(ManualClock::default()));
        let _logging = log.start();
        for servers in 1..=2 {
            let server = Server::start(&stored.store, &clock, org, &Arc::default());
            server.ran().await;
            server.background.stop().await;
            let text = log.text();
            assert_eq!(text.matches("does the job from now on").count(), servers, "{}: {text}", stored.name);
        }
        drop(stored.guard);
    }
}

/// Computes without ever waiting, until its lease was renewed twice meanwhile.
struct Computes {
    asked: Arc<AtomicU64>,
    renewed: Arc<Notify>,
}

#[async_trait]
impl Job for Computes {
    fn name(&self) -> &str {
        "computes"
    }

    fn every(&self) -> Duration {
        LEASE
    }

    async fn run(&self, _: &JobContext) -> Result<()> {
        let (begun, asked) = (Instant::now(), self.asked.load(Ordering::SeqCst));
        while begun.elapsed() < Duration::from_secs(60) {
            if self.asked.load(Ordering::SeqCst) > asked + 1 {
                self.renewed.notify_one();
                return Ok(());
            }
            std::thread::sleep(LEASE / 60);
        }
        Err(Error::Forbidden)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_while_its_job_computes() {
    for stored in stores().await {
        let (store, asked) = counting(&stored.store);
        let evidence = Evidence::new(store, Settings::default());
        let renewed = Arc::new(Notify::new());
        let job = Computes { asked, renewed: Arc::clone(&renewed) };
        let background = evidence.background(LEASE, vec![Arc::new(job)]);
        timeout(Duration::from_secs(30), renewed.notified()).await.expect("the lease is renewed");
        background.stop().await;
    }
}

/// Rests.
struct Idle;

#[async_trait]
impl Job for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    fn every(&self) -> Duration {
        LEASE
    }

    async fn run(&self, _: &JobContext) -> Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn who_has_stopped_takes_no_lease_any_more() {
    for stored in stores().await {
        let (asked, answer) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (count, go) = (Arc::clone(&asked), Arc::clone(&answer));
        // The first time that it is asked for, it is answered when the test lets it.
        let before = move |_| {
            let (is_first, go) = (count.fetch_add(1, Ordering::SeqCst) == 0, Arc::clone(&go));
            async move {
                if is_first {
                    go.notified().await;
                }
            }
            .boxed()
        };
        let store: Arc<dyn Store> = Arc::new(InterceptingStore::new(Arc::clone(&stored.store), before));
        let evidence = Evidence::new(store, Settings::default());
        let background = evidence.background(MAX_LEASE, vec![Arc::new(Idle)]);
        until(|| asked.load(Ordering::SeqCst) > 0, "the lease is asked for").await;
        let stopping = tokio::spawn(background.stop());
        // It ends now, if it does not wait for the answer.
        for _ in 0..64 {
            tokio::task::yield_now().await;
        }
        answer.notify_one();
        stopping.await.unwrap();
        let now = SystemClock.now();
        let expires_at = Timestamp::from_micros(now.as_micros() + 1);
        let other = Lease { name: "idle".to_owned(), holder: Id::new(now, &SystemRandom), expires_at };
        assert!(stored.store.acquire_lease(&other, now).await.unwrap(), "{}: it was given back", stored.name);
        drop(stored.guard);
    }
}

/// Counts how often it is begun, and never ends.
struct Endless(Arc<AtomicU64>);

#[async_trait]
impl Job for Endless {
    fn name(&self) -> &str {
        "endless"
    }

    fn every(&self) -> Duration {
        LEASE
    }

    async fn run(&self, _: &JobContext) -> Result<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

/// It stalls before it renews; meanwhile another one takes the lease, works, and gives it back.
#[tokio::test]
async fn who_lost_its_lease_learns_it_though_nobody_has_that_any_more() {
    for stored in stores().await {
        let (stalled, answers) = (Arc::new(AtomicU64::new(0)), watch::Sender::new(false));
        let (count, answered) = (Arc::clone(&stalled), answers.subscribe());
        let before = move |call| {
            let is_renewal = call == Call::Query("renew_lease");
            count.fetch_add(u64::from(is_renewal), Ordering::SeqCst);
            let mut answered = answered.clone();
            async move {
                if is_renewal {
                    answered.wait_for(|answered| *answered).await.unwrap();
                }
            }
            .boxed()
        };
        let store: Arc<dyn Store> = Arc::new(InterceptingStore::new(Arc::clone(&stored.store), before));
        let clock = Arc::new(ManualClock::default());
        let now = Arc::clone(&clock) as Arc<dyn Clock>;
        let evidence = Evidence::with_sources(store, Settings::default(), now, Arc::new(SystemRandom));
        let begun = Arc::new(AtomicU64::new(0));
        let background = evidence.background(LEASE, vec![Arc::new(Endless(Arc::clone(&begun)))]);
        until(|| stalled.load(Ordering::SeqCst) > 0, "the lease is renewed").await;
        assert_eq!(begun.load(Ordering::SeqCst), 1, "{}", stored.name);

        let later =
            Timestamp::from_micros(clock.now().as_micros() + i64::try_from(LEASE.as_micros()).unwrap());
        let expires_at = Timestamp::from_micros(later.as_micros() + 1);
        let other = Lease { name: "endless".to_owned(), holder: Id::new(later, &SystemRandom), expires_at };
        assert!(stored.store.acquire_lease(&other, later).await.unwrap(), "{}", stored.name);
        stored.store.release_lease(&other.name, other.holder).await.unwrap();
        answers.send_replace(true);
        until(|| begun.load(Ordering::SeqCst) > 1, "the job is begun again").await;
        background.stop().await;
        drop(stored.guard);
    }
}
