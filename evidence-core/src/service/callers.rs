//! A cache of the callers' keys and roles, which nearly every request reads first.
//!
//! A change through this server takes effect at once. A change through another server on the same database
//! takes effect when the entry expires.

use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::auth::credentials::KeyHash;
use crate::cache::{Cache, Weigh};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::orgs::store::{KeyHolder, OrgRole};
use crate::store::Store;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// The time that an entry is valid. A revocation must take effect everywhere within a second. The clock is
/// monotonic, so it does not advance while a machine is suspended.
const TTL: Duration = Duration::from_millis(500);

/// The memory budget of each kind, in bytes.
const BUDGET: usize = 4 << 20;

/// The approximate bytes of the texts in a key and an entry.
const TEXTS: usize = 512;

/// The holders of keys, and the roles of callers in organizations.
pub(crate) struct CallerCache {
    /// The number of times that the cache was cleared. It is a part of each key, so that a value which was read
    /// before a clearing is never used after it.
    generation: AtomicU64,
    holders: Cache<(u64, KeyHash), Recent<KeyHolder>>,
    /// By the organization's name and the caller's id.
    org_roles: Cache<(u64, (String, Id)), Recent<OrgRole>>,
}

/// A value with the time at which its query began.
struct Recent<V> {
    asked: Instant,
    value: V,
}

impl<V> Weigh for Recent<V> {
    fn bytes(&self) -> usize {
        TEXTS
    }
}

impl CallerCache {
    /// Creates an empty cache.
    pub(super) fn new() -> Self {
        let generation = AtomicU64::new(0);
        Self { generation, holders: Cache::new(BUDGET), org_roles: Cache::new(BUDGET) }
    }

    /// Returns the holder of the key with this hash, if the key is valid.
    pub(super) async fn holder(
        &self,
        hash: &KeyHash,
        now: Timestamp,
        store: &dyn Store,
    ) -> Result<KeyHolder> {
        let found = self.recent(&self.holders, hash.clone(), store.key_holder(hash)).await?;
        let works = |holder: &KeyHolder| holder.hash.matches(hash) && holder.is_valid(now);
        found.filter(works).ok_or(Error::Unauthenticated)
    }

    /// Returns the organization of this name, with the user's role in it.
    pub(super) async fn org_role(&self, org: &str, user: Id, store: &dyn Store) -> Result<Option<OrgRole>> {
        let key = (org.to_owned(), user);
        Ok(self.recent(&self.org_roles, key, store.org_role(org, user)).await?)
    }

    /// Clears the cache.
    pub(super) fn clear(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the cached value if it is recent, otherwise the result of `read`. Absence is not cached.
    async fn recent<K: Clone + Eq + Hash, V: Clone>(
        &self,
        cache: &Cache<(u64, K), Recent<V>>,
        key: K,
        read: impl Future<Output = StoreResult<Option<V>>>,
    ) -> StoreResult<Option<V>> {
        let key = (self.generation.load(Ordering::Relaxed), key);
        if let Some(recent) = cache.get(&key).filter(|recent| recent.asked.elapsed() < TTL) {
            return Ok(Some(recent.value.clone()));
        }
        let asked = Instant::now();
        let found = read.await?;
        if let Some(value) = &found {
            cache.insert(key, Arc::new(Recent { asked, value: value.clone() }));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::advance;

    use super::*;

    /// Reads a text through the cache. `read` is the present value, or `None` if it must not be read.
    async fn read(
        callers: &CallerCache,
        cache: &Cache<(u64, u8), Recent<&'static str>>,
        read: Option<&'static str>,
    ) -> &'static str {
        let read = async { Ok(Some(read.expect("the value is cached"))) };
        callers.recent(cache, 0, read).await.unwrap().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_is_valid_for_a_moment_and_as_old_as_its_query() {
        let (callers, cache) = (CallerCache::new(), Cache::new(BUDGET));
        let slow = async {
            advance(TTL / 2).await;
            Ok(Some("first"))
        };
        assert_eq!(callers.recent(&cache, 0, slow).await.unwrap(), Some("first"));
        advance(TTL / 2 - Duration::from_micros(1)).await;
        assert_eq!(read(&callers, &cache, None).await, "first");
        advance(Duration::from_micros(1)).await;
        assert_eq!(read(&callers, &cache, Some("second")).await, "second");
        assert_eq!(read(&callers, &cache, None).await, "second");
    }

    #[tokio::test]
    async fn an_entry_read_before_a_clearing_is_never_used_after_it() {
        let (callers, cache) = (CallerCache::new(), Cache::new(BUDGET));
        let revoked_meanwhile = async {
            callers.clear();
            Ok(Some("valid"))
        };
        assert_eq!(callers.recent(&cache, 0, revoked_meanwhile).await.unwrap(), Some("valid"));
        assert_eq!(read(&callers, &cache, Some("revoked")).await, "revoked");
        assert_eq!(read(&callers, &cache, None).await, "revoked");
        callers.clear();
        assert_eq!(read(&callers, &cache, Some("once more")).now_or_never(), Some("once more"));
    }
}
