//! Runs the conformance checks of the store contract on PostgreSQL, each in a new schema.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evidence_core::transfer::Transfer;
use evidence_store_postgres::{Options, PostgresStore};
use evidence_test_postgres::SchemaName;

/// The contract must hold on a slow machine too, so checks with many concurrent callers must not reach a time
/// limit.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    if SchemaName::unused().is_none() {
        println!("test conformance ... ignored, needs PostgreSQL: run cargo xtask test");
        return ExitCode::SUCCESS;
    }
    let schemas = Mutex::new(Vec::new());
    evidence_conformance::main_with_transfer(move || {
        let schema = SchemaName::unused().expect("the server that was there just now");
        let options = Options {
            schema: schema.name.clone(),
            connections: 4,
            acquire_timeout: TEST_TIMEOUT,
            queue_timeout: TEST_TIMEOUT,
            statement_timeout: TEST_TIMEOUT,
            ..Options::default()
        };
        let url = schema.url.clone();
        schemas.lock().unwrap().push(schema);
        async move { Arc::new(PostgresStore::connect_with(&url, &options).await.unwrap()) as Arc<dyn Transfer> }
    })
}
