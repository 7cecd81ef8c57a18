use evidence_test_postgres::Schema as Fresh;

use super::*;
use crate::db::{Options, PostgresStore};
use crate::migrate::MIGRATIONS;

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn who_is_stopped_while_nobody_else_writes_keeps_them_waiting_for_a_minute() {
    let schema = Fresh::fresh().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
    let options = Options { schema: schema.name.clone(), ..Options::default() };
    let store = PostgresStore::connect_with(&schema.url, &options).await.unwrap();
    let (address, stored) = (store.reader.connections.address(), &store.reader.schema);
    let mut scratch = Scratch::beside(&address, stored, &MIGRATIONS).await.unwrap();
    let idle = "SELECT current_setting('idle_in_transaction_session_timeout')";
    assert_eq!(scratch.column(idle).await.unwrap(), ["0"]);
    scratch.begin_writing().await.unwrap();
    assert_eq!(scratch.column(idle).await.unwrap(), ["1min"]);
    // The same, sooner.
    scratch.execute("SET LOCAL idle_in_transaction_session_timeout = '100ms'").await.unwrap();
    let mut other = PgConnection::connect(&schema.url).await.unwrap();
    let lock = stored.statement("LOCK TABLE evidence.head IN ROW EXCLUSIVE MODE");
    let mut waiting = other.begin().await.unwrap();
    sqlx::raw_sql(lock).execute(&mut *waiting).await.unwrap();
    let ended = scratch.restore().await;
    assert!(matches!(ended, Err(StoreError::Unavailable(_))), "{ended:?}");
}
