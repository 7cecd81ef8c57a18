//! A store for tests, in a schema of its own.

use std::sync::Arc;

use evidence_core::auth::{Actor, ActorKind};
use evidence_core::fact::UnknownFields;
use evidence_core::flows::{Flow, Visibility};
use evidence_core::id::{Id, SystemRandom};
use evidence_core::orgs::OrgStore;
use evidence_core::seed::Seed;
use evidence_core::store::{Recorder, StoreResult};
use evidence_core::tags::Tags;
use evidence_core::time::Timestamp;
use evidence_core::{Entry, Evidence, Fact, Precondition, Settings, Write};
use evidence_store_postgres::sqlx::{self, AssertSqlSafe, Connection, PgConnection};
use evidence_store_postgres::{Options, PostgresStore};
use evidence_test_postgres::SchemaName;

/// The time of all events in the tests.
pub(crate) const NOW: Timestamp = Timestamp::from_seconds(1_776_252_299);

/// A store in a schema of its own, with the organization `acme`.
pub(crate) struct Bench {
    pub(crate) schema: SchemaName,
    pub(crate) store: Arc<PostgresStore>,
    pub(crate) org: Id,
    pub(crate) actor: Actor,
}

/// Returns options for a store in this schema.
pub(crate) fn options(schema: &SchemaName) -> Options {
    Options { schema: schema.name.clone(), connections: 4, ..Options::default() }
}

impl Bench {
    /// Creates a store with the options of [`options`].
    pub(crate) async fn new() -> Self {
        Self::with(|options| options).await
    }

    /// Creates a store with other options.
    pub(crate) async fn with(change: impl FnOnce(Options) -> Options) -> Self {
        let schema = SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
        let options = change(options(&schema));
        let store = Arc::new(PostgresStore::connect_with(&schema.url, &options).await.unwrap());
        let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key: None };
        let key = Evidence::new(store.clone(), Settings::default()).seed(&seed).await.unwrap();
        let holder = store.key_holder(&key.hash()).await.unwrap().expect("the key that was seeded");
        let actor = Actor { id: holder.actor.id, name: "jane".to_owned(), kind: ActorKind::User };
        let standing = store.org_role("acme", actor.id).await.unwrap().expect("the organization");
        Self { schema, store, org: standing.organization.id, actor }
    }

    /// Returns a flow that is not recorded.
    pub(crate) fn flow(&self, name: &str) -> Flow {
        Flow {
            id: Id::new(NOW, &SystemRandom),
            name: name.parse().unwrap(),
            description: "builds".to_owned(),
            visibility: Visibility::Private,
            template: None,
            template_id: Id::new(NOW, &SystemRandom),
            tags: Tags::from([("team".to_owned(), "a%b".to_owned())]),
            created_at: NOW,
            created_by: self.actor.clone(),
            former_names: Vec::new(),
            archived_at: None,
            unknown: UnknownFields::default(),
        }
    }

    /// Returns a write of these facts.
    pub(crate) fn write(&self, facts: Vec<Fact>, preconditions: Vec<Precondition>) -> Write {
        Write { preconditions, ..Write::new(self.org, self.actor.clone(), NOW, facts, &SystemRandom) }
    }

    /// Records the creation of a flow.
    pub(crate) async fn create(&self, flow: &Flow) -> StoreResult<Vec<Entry>> {
        self.store.record(self.write(vec![Fact::FlowCreated { record: flow.clone() }], vec![])).await
    }

    /// Executes statements in which `{}` stands for the schema.
    pub(crate) async fn execute(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.schema.url).await.unwrap();
        let sql = AssertSqlSafe(sql.replace("{}", &self.schema.name));
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// Returns the problems that `fsck` finds.
    pub(crate) async fn problems(&self) -> Vec<String> {
        self.store.fsck().await.unwrap().problems
    }
}
