//! Tests the runner of background jobs over the store in memory.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use evidence_conformance::memory::MemoryStore;
use evidence_core::background::{Background, Job, JobContext, LEASE};
use evidence_core::id::{Id, SystemRandom};
use evidence_core::time::{Clock, Timestamp};
use evidence_core::{Error, Evidence, Result, Settings, Store};
use tokio::time::{Instant, sleep};

/// Notes who holds its lease, and fails.
struct Failing(Arc<Mutex<Vec<Id>>>);

#[async_trait]
impl Job for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn every(&self) -> Duration {
        Duration::from_millis(1)
    }

    async fn run(&self, cx: &JobContext) -> Result<()> {
        self.0.lock().unwrap().push(cx.held_lease().holder);
        Err(Error::Forbidden)
    }
}

#[tokio::test]
async fn a_run_after_one_that_failed_has_a_lease_of_its_own() {
    let holders = Arc::new(Mutex::new(Vec::new()));
    let service = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
    let background = service.background(LEASE, vec![Arc::new(Failing(Arc::clone(&holders)))]);
    while holders.lock().unwrap().len() < 3 {
        sleep(Duration::from_millis(1)).await;
    }
    background.stop().await;
    let holders = holders.lock().unwrap().clone();
    assert_eq!(holders.iter().collect::<BTreeSet<_>>().len(), holders.len(), "{holders:?}");
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Tells the time of the runtime, in which rests are over at once.
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.0.elapsed().as_micros()).unwrap();
        Timestamp::from_micros(Timestamp::from_seconds(1_776_252_299).as_micros() + elapsed)
    }
}

/// Runs that last so many seconds and succeed or fail, and then ones that succeed; with when each began and ended.
struct Scripted {
    script: Vec<(u64, bool)>,
    runs: Mutex<Vec<(Instant, Instant)>>,
}

impl Scripted {
    fn new(script: Vec<(u64, bool)>) -> Arc<Self> {
        Arc::new(Self { script, runs: Mutex::default() })
    }

    fn runs(&self) -> Vec<(Instant, Instant)> {
        self.runs.lock().unwrap().clone()
    }

    /// Waits for as many runs.
    async fn has_run(&self, times: usize) {
        while self.runs().len() < times {
            sleep(Duration::from_millis(100)).await;
        }
    }
}

#[async_trait]
impl Job for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn every(&self) -> Duration {
        seconds(1)
    }

    async fn run(&self, _: &JobContext) -> Result<()> {
        let (lasts, succeeds) = self.script.get(self.runs().len()).copied().unwrap_or((0, true));
        let begun = Instant::now();
        sleep(seconds(lasts)).await;
        self.runs.lock().unwrap().push((begun, Instant::now()));
        if succeeds { Ok(()) } else { Err(Error::Forbidden) }
    }
}

/// A server that does the job from now on.
fn serve(store: &Arc<dyn Store>, clock: &Arc<RuntimeClock>, job: &Arc<Scripted>) -> Background {
    let (store, clock) = (Arc::clone(store), Arc::clone(clock) as Arc<dyn Clock>);
    let service = Evidence::with_sources(store, Settings::default(), clock, Arc::new(SystemRandom));
    service.background(LEASE, vec![Arc::clone(job) as _])
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_rests_longer_each_time_up_to_a_minute() {
    let (fails, succeeds, fails_late) = ((0, false), (0, true), (61, false));
    let mut script = vec![fails; 8];
    script.extend([succeeds, fails, fails, fails_late, fails]);
    let job = Scripted::new(script);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let background = serve(&store, &Arc::new(RuntimeClock(Instant::now())), &job);
    job.has_run(14).await;
    background.stop().await;
    let runs = job.runs();
    let rests = runs.iter().zip(&runs[1..]).map(|((_, ended), (begun, _))| (*begun - *ended).as_secs());
    assert_eq!(Vec::from_iter(rests), [1, 2, 4, 8, 16, 32, 60, 60, 1, 1, 2, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn another_server_does_the_job_of_one_that_is_killed_while_it_rests() {
    let jobs = [(); 2].map(|()| Scripted::new(vec![(0, false); 99]));
    let (store, clock) =
        (Arc::new(MemoryStore::new()) as Arc<dyn Store>, Arc::new(RuntimeClock(Instant::now())));
    let first = serve(&store, &clock, &jobs[0]);
    jobs[0].has_run(7).await;
    let second = serve(&store, &clock, &jobs[1]);
    sleep(seconds(50)).await;
    assert_eq!([jobs[0].runs().len(), jobs[1].runs().len()], [7, 0], "it rests, and nobody else tries");
    drop(first);
    let killed = Instant::now();
    jobs[1].has_run(1).await;
    assert!(killed.elapsed() <= seconds(30), "{:?}", killed.elapsed());
    second.stop().await;
}
