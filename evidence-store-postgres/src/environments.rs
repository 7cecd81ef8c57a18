//! Environments: named records.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::environments::{Environment, EnvironmentStore};
use evidence_core::id::Id;
use evidence_core::store::StoreResult;

use crate::db::PostgresStore;

const KIND: &str = "environment";

#[async_trait]
impl EnvironmentStore for PostgresStore {
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<Current<Environment>>> {
        self.by_name(org, KIND, name).await
    }

    async fn environments(&self, org: Id) -> StoreResult<Vec<Current<Environment>>> {
        self.all_named(org, KIND).await
    }
}
