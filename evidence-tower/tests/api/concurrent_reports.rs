//! One environment that many report to at once, each something else.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::intercepting_store::{Call, InterceptingStore};
use crate::support::prelude::*;

const RACERS: usize = 40;

#[tokio::test]
async fn reports_to_one_environment_are_evaluated_once_each() {
    let (evaluated, written) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&evaluated), Arc::clone(&written));
    let store = InterceptingStore::new(Arc::new(MemoryStore::new()), move |call| {
        match call {
            Call::Query("provenance") => counts.0.fetch_add(1, Ordering::Relaxed),
            Call::Write => counts.1.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        tokio::task::yield_now().boxed()
    });
    let evidence = fixture(Arc::new(store), Settings::default()).await;
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    api.given_environments("docker", &["prod"]).await;
    written.store(0, Ordering::Relaxed);
    let report = |racer: usize| {
        let artifact = json!({"digests": {"image": format!("{racer:064x}")}, "creationTimestamp": 1});
        api.put("/environments/acme/prod/report/docker").json(json!({"artifacts": [artifact]}))
    };
    let mut statuses = BTreeMap::<u16, usize>::new();
    for reply in join_all((0..RACERS).map(|racer| report(racer).into_future())).await {
        *statuses.entry(reply.status.as_u16()).or_default() += 1;
    }
    assert_eq!(statuses, BTreeMap::from([(201, RACERS)]));
    api.get("/snapshots/acme/prod/-1").await.expect(200, json!({"index": RACERS}));
    let counts = [evaluated, written].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [RACERS; 2], "evaluated, written");
}
