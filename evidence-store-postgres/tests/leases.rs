//! Tests writes that need a lease while another holder acquires it.

use std::sync::Arc;
use std::time::Duration;

use evidence_core::id::{Id, SystemRandom};
use evidence_core::leases::{HeldLease, Lease, LeaseStore};
use evidence_core::notifications::{Channel, Delivery, DeliveryState, DeliveryStore, Position};
use evidence_core::orgs::OrgStore;
use evidence_core::seed::Seed;
use evidence_core::time::Timestamp;
use evidence_core::{Evidence, Settings};
use evidence_store_postgres::sqlx::{self, AssertSqlSafe, Connection, PgConnection};
use evidence_store_postgres::{Options, PostgresStore};
use evidence_test_postgres::SchemaName;

const NOW: Timestamp = Timestamp::from_seconds(1_776_252_299);

fn new_id() -> Id {
    Id::new(NOW, &SystemRandom)
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_delivery_waits_for_whoever_is_just_taking_its_lease() {
    let schema = SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
    let options = Options { schema: schema.name.clone(), ..Options::default() };
    let store = Arc::new(PostgresStore::connect_with(&schema.url, &options).await.unwrap());
    let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key: None };
    Evidence::new(store.clone(), Settings::default()).seed(&seed).await.unwrap();
    let jane = store.user("jane").await.unwrap().expect("the user");
    let org = store.org_role("acme", jane.id).await.unwrap().expect("the organization").organization.id;

    let held = HeldLease { name: "notify".to_owned(), holder: new_id() };
    let expires_at = Timestamp::from_micros(NOW.as_micros() + 1_000_000);
    let lease = Lease { name: held.name.clone(), holder: held.holder, expires_at };
    assert!(store.acquire_lease(&lease, NOW).await.unwrap());
    let state = DeliveryState {
        action: new_id(),
        address: String::new(),
        next: Position { entry: 1, event: 0 },
        attempts: 0,
        last_success_at: None,
        last_failure_at: None,
    };
    let channel = Channel::Http;
    let delivery = Delivery { org, target: new_id(), channel, due_at: None, state, revision: 0 };

    let mut other = PgConnection::connect(&schema.url).await.unwrap();
    let taker: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut other).await.unwrap();
    let mut taking = other.begin().await.unwrap();
    let take = format!("UPDATE {}.lease SET holder = '{}'", schema.name, new_id());
    sqlx::raw_sql(AssertSqlSafe(take)).execute(&mut *taking).await.unwrap();
    let (putter, put) = (store.clone(), delivery.clone());
    let putting = tokio::spawn(async move { putter.put_delivery(&put, Some(&held)).await });
    let mut watcher = PgConnection::connect(&schema.url).await.unwrap();
    let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE $1 = ANY(pg_blocking_pids(a.pid)))";
    while !sqlx::query_scalar::<_, bool>(waits).bind(taker).fetch_one(&mut watcher).await.unwrap() {
        assert!(!putting.is_finished(), "it was put while somebody else takes the lease");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    taking.commit().await.unwrap();
    assert!(!putting.await.unwrap().unwrap(), "the lease is another's");
    assert_eq!(store.deliveries(org, &[delivery.target]).await.unwrap(), vec![]);
}
