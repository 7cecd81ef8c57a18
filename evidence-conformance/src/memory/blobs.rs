//! The content of attachments.

use async_trait::async_trait;
use bytes::Bytes;

use evidence_core::blobs::{Blobs, CHUNK, Chunks};
use evidence_core::digest::sha256_hex;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::{StoreError, StoreResult};

use super::MemoryStore;

#[async_trait]
impl Blobs for MemoryStore {
    async fn put(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        let kept = self.read()?.blobs.get(&(org, sha256.clone())).cloned();
        if kept.is_some_and(|kept| sha256_hex(&kept) == sha256.as_str()) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        while let Some(piece) = content.next().await.map_err(|error| StoreError::Failed(error.into()))? {
            bytes.extend_from_slice(&piece);
        }
        self.write()?.blobs.insert((org, sha256.clone()), bytes.into());
        Ok(())
    }

    async fn get_chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
        let state = self.read()?;
        let blob = state.blobs.get(&(org, sha256.clone()));
        let start = usize::try_from(number).ok().and_then(|number| number.checked_mul(CHUNK));
        Ok(blob
            .zip(start)
            .filter(|(blob, start)| *start < blob.len())
            .map(|(blob, start)| blob.slice(start..blob.len().min(start.saturating_add(CHUNK)))))
    }
}
