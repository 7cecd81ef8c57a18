//! Every promise of the store contract, in a fresh schema each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use evidence_core::{Store, conformance};
use evidence_store_postgres::{Options, PostgresStore};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
async fn the_postgres_store_keeps_every_promise() {
    let url = std::env::var("EVIDENCE_TEST_POSTGRES_URL").unwrap();
    let schemas = AtomicU32::new(0);
    let report = conformance::run_all(|| {
        let schema = format!("c{}_{}", std::process::id(), schemas.fetch_add(1, Ordering::Relaxed));
        let url = url.clone();
        async move {
            Arc::new(
                PostgresStore::connect_with(&url, &Options { schema, connections: 2, ..Options::default() })
                    .await
                    .unwrap(),
            ) as Arc<dyn Store>
        }
    })
    .await;
    report.assert_ok();
}
