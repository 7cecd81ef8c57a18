//! The queries about actions that a store answers.

use async_trait::async_trait;

use crate::actions::record::Action;
use crate::actions::secret_url::{SecretUrl, StoredUrl, UrlError, UrlKey, UrlRecord};
use crate::id::Id;
use crate::page::Listed;
use crate::store::entry::Current;
use crate::store::error::StoreResult;

/// The stored secret URLs of some targets, by their ids.
pub(crate) struct StoredUrls(Vec<(Id, StoredUrl)>);

impl StoredUrls {
    /// Reads the URLs of these records. Without records, reads nothing.
    pub(crate) async fn read(
        store: &(impl ActionStore + ?Sized),
        org: Id,
        records: impl Iterator<Item = &UrlRecord>,
    ) -> StoreResult<Self> {
        let ids = Vec::from_iter(records.map(|record| record.id));
        Ok(Self(if ids.is_empty() { Vec::new() } else { store.secret_urls(org, &ids).await? }))
    }

    /// Returns the URL of a record.
    pub(crate) fn open(&self, record: &UrlRecord, key: Option<&UrlKey>) -> Result<SecretUrl, UrlError> {
        let (_, stored) = self.0.iter().find(|(id, _)| *id == record.id).ok_or(UrlError::Missing)?;
        stored.open(record, key)
    }
}

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
    async fn secret_urls(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<(Id, StoredUrl)>>;
}
