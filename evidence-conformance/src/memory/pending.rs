//! Attachments that no record names yet.

use std::ops::Bound;

use async_trait::async_trait;

use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::StoreResult;
use evidence_core::sweep::{AttachmentPlace, AttachmentState, Pending, PendingStore};
use evidence_core::time::Timestamp;

use super::{MemoryStore, State, at_most};

impl State {
    /// Returns whether the note of an attachment is unchanged.
    fn has(&self, pending: &Pending) -> bool {
        let Pending { org, sha256, kept_at, removing_at } = pending;
        self.pending.get(&(*org, sha256.clone())) == Some(&(*kept_at, *removing_at))
    }
}

#[async_trait]
impl PendingStore for MemoryStore {
    async fn attachment_state(&self, org: Id, sha256: &Fingerprint) -> StoreResult<AttachmentState> {
        let (state, content) = (self.read()?, (org, sha256.clone()));
        Ok(match state.pending.get(&content) {
            _ if state.named.contains(&content) => AttachmentState::Named,
            None => AttachmentState::Unknown,
            Some((_, None)) => AttachmentState::Pending,
            Some((_, Some(_))) => AttachmentState::Removing,
        })
    }

    async fn put_pending(&self, org: Id, sha256: &Fingerprint, at: Timestamp) -> StoreResult<bool> {
        let (mut state, content) = (self.write()?, (org, sha256.clone()));
        if state.named.contains(&content) || !state.tables.contains_key(&org) {
            return Ok(false);
        }
        let (kept_at, removing_at) = state.pending.entry(content).or_insert((at, None));
        if removing_at.is_none() {
            *kept_at = at.max(*kept_at);
        }
        Ok(removing_at.is_none())
    }

    async fn pending(&self, after: Option<&Pending>, limit: u64) -> StoreResult<Vec<Pending>> {
        let begin = after.map(|last| (last.org, last.sha256.clone()));
        let begin = begin.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.read()?;
        let rest = state.pending.range((begin, Bound::Unbounded));
        let rest = rest.map(|((org, sha256), (kept_at, removing_at))| Pending {
            org: *org,
            sha256: sha256.clone(),
            kept_at: *kept_at,
            removing_at: *removing_at,
        });
        Ok(rest.take(at_most(limit)).collect())
    }

    async fn begin_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool> {
        let (mut state, content) = (self.write()?, (pending.org, pending.sha256.clone()));
        let begins = state.has(pending) && !state.named.contains(&content);
        if begins {
            state.pending.insert(content, (pending.kept_at, Some(at)));
        }
        Ok(begins)
    }

    async fn abandon_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool> {
        let (mut state, content) = (self.write()?, (pending.org, pending.sha256.clone()));
        let ends = state.has(pending);
        if ends {
            state.pending.insert(content, (at.max(pending.kept_at), None));
        }
        Ok(ends)
    }

    async fn end_removal(&self, pending: &Pending) -> StoreResult<bool> {
        let (mut state, content) = (self.write()?, (pending.org, pending.sha256.clone()));
        let ends = state.has(pending);
        if ends {
            state.pending.remove(&content);
            if !state.named.contains(&content) {
                state.blobs.remove(&content);
            }
        }
        Ok(ends)
    }

    async fn attachment_place(&self) -> StoreResult<Option<AttachmentPlace>> {
        Ok(self.read()?.attachment_place)
    }

    async fn named_attachments(&self, limit: u64) -> StoreResult<Vec<(Id, Fingerprint)>> {
        Ok(self.read()?.named.iter().take(at_most(limit)).cloned().collect())
    }

    async fn put_attachment_place(&self, place: AttachmentPlace) -> StoreResult<bool> {
        let mut state = self.write()?;
        let noted = state.attachment_place.get_or_insert(place);
        if noted.id == place.id {
            noted.is_marked |= place.is_marked;
        }
        Ok(noted.id == place.id)
    }
}
