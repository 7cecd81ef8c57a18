//! Every promise of the store contract, in a fresh schema each.

use std::sync::{Arc, Mutex};

use evidence_core::{Store, conformance};
use evidence_store_postgres::{Options, PostgresStore};
use evidence_test_postgres::Schema;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn the_postgres_store_keeps_every_promise() {
    let schemas = Mutex::new(Vec::new());
    let report = conformance::run_all(|| {
        let schema = Schema::fresh().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
        let options = Options { schema: schema.name.clone(), connections: 4, ..Options::default() };
        let url = schema.url.clone();
        schemas.lock().unwrap().push(schema);
        async move { Arc::new(PostgresStore::connect_with(&url, &options).await.unwrap()) as Arc<dyn Store> }
    })
    .await;
    report.assert_ok();
}
