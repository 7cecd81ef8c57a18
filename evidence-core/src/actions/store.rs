//! What a store answers about actions.

use async_trait::async_trait;

use crate::actions::record::Action;
use crate::id::Id;
use crate::page::Listed;
use crate::store::entry::Current;
use crate::store::error::StoreResult;

/// Queries about actions. One that was deleted is in no answer.
#[async_trait]
pub trait ActionStore: Send + Sync {
    /// The action of this name, be it a former one, one, with its revision.
    async fn action(&self, org: Id, name: &str) -> StoreResult<Option<Current<Action>>>;
    /// The action of this number, one, with its revision.
    async fn action_numbered(&self, org: Id, number: u64) -> StoreResult<Option<Current<Action>>>;
    /// All actions of the organization, by number, without what they say.
    async fn actions_listed(&self, org: Id) -> StoreResult<Vec<Listed>>;
    /// The actions of these ids, one an id, in any order, with their revisions; unknown ids are passed over.
    async fn actions_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Action>>>;
    /// The greatest number that an action of the organization has had, deleted ones too; 0 where there was none.
    async fn greatest_action_number(&self, org: Id) -> StoreResult<u64>;
}
