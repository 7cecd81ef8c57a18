//! Leases and cursors.

use async_trait::async_trait;

use evidence_core::id::Id;
use evidence_core::leases::{Advance, Lease, LeaseStore, latest_lease_end};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use super::MemoryStore;

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn acquire_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        let mut state = self.write()?;
        let held = state.leases.get(&lease.name);
        let held = held.filter(|held| held.expires_at <= latest_lease_end(now));
        let is_free = held.is_none_or(|held| held.holder == lease.holder || held.expires_at <= now);
        if is_free {
            let expires_at = held.map_or(lease.expires_at, |held| held.expires_at.max(lease.expires_at));
            state.leases.insert(lease.name.clone(), Lease { expires_at, ..lease.clone() });
        }
        Ok(is_free)
    }

    async fn renew_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool> {
        let mut state = self.write()?;
        let held = state.leases.get_mut(&lease.name).filter(|held| held.holder == lease.holder);
        let Some(held) = held else { return Ok(false) };
        let is_sound = held.expires_at <= latest_lease_end(now);
        held.expires_at = if is_sound { held.expires_at.max(lease.expires_at) } else { lease.expires_at };
        Ok(true)
    }

    async fn release_lease(&self, name: &str, holder: Id) -> StoreResult<()> {
        let mut state = self.write()?;
        if state.leases.get(name).is_some_and(|held| held.holder == holder) {
            state.leases.remove(name);
        }
        Ok(())
    }

    async fn cursor(&self, consumer: &str, org: Id) -> StoreResult<u64> {
        Ok(self.read()?.cursors.get(&(org, consumer.to_owned())).copied().unwrap_or_default())
    }

    async fn advance_cursor(&self, advance: &Advance, now: Timestamp) -> StoreResult<bool> {
        let Advance { consumer, org, holder, from, to } = advance;
        let mut state = self.write()?;
        let held = state.leases.get(consumer);
        let holds = held.is_some_and(|held| held.holder == *holder && held.expires_at > now);
        if !holds || to <= from || !state.tables.contains_key(org) {
            return Ok(false);
        }
        let cursor = state.cursors.entry((*org, consumer.clone())).or_default();
        let is_there = *cursor == *from;
        if is_there {
            *cursor = *to;
        }
        Ok(is_there)
    }
}
