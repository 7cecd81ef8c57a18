//! The queries about actions that a store answers.

use async_trait::async_trait;

use crate::actions::record::Action;
use crate::actions::secret_url::KeptUrl;
use crate::id::Id;
use crate::page::Listed;
use crate::store::entry::Current;
use crate::store::error::StoreResult;

/// Queries about actions. Deleted actions are never returned.
#[async_trait]
pub trait ActionStore: Send + Sync {
    /// Returns the action with this present or former name, with its revision.
    async fn action(&self, org: Id, name: &str) -> StoreResult<Option<Current<Action>>>;
    /// Returns the action of this number, with its revision.
    async fn action_numbered(&self, org: Id, number: u64) -> StoreResult<Option<Current<Action>>>;
    /// Returns all actions of the organization, sorted by number, without their content.
    async fn actions_listed(&self, org: Id) -> StoreResult<Vec<Listed>>;
    /// Returns the actions of these ids, one per id, in any order, with their revisions. Unknown ids are
    /// skipped.
    async fn actions_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Action>>>;
    /// Returns the greatest number that an action of the organization has had, deleted ones included; 0 if
    /// there was none.
    async fn greatest_action_number(&self, org: Id) -> StoreResult<u64>;
    /// Returns the secret URLs of these ids, in any order. Unknown ids are skipped.
    async fn kept_urls(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<(Id, KeptUrl)>>;
}
