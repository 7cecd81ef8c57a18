//! The place outside the store where the content of attachments is, checked by its marker around each write. An unmounted
//! volume leaves an empty directory, in which a write would succeed and be lost; another directory may belong to another
//! database, whose attachments a sweep would remove.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;

use crate::blobs::{Blobs, Chunks, OutsideBlobs};
use crate::id::{Id, Random};
use crate::name::Fingerprint;
use crate::store::Store;
use crate::store::error::{StoreError, StoreResult};
use crate::sweep::store::AttachmentPlace;
use crate::time::Clock;

/// The place of one store's attachments. The store notes the id that the place's marker must have.
pub(crate) struct MarkedPlace {
    store: Arc<dyn Store>,
    place: Arc<dyn OutsideBlobs>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// The noted id, once the marker was written or found.
    id: OnceLock<Id>,
}

impl MarkedPlace {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        place: Arc<dyn OutsideBlobs>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self { store, place, clock, random, id: OnceLock::new() }
    }

    /// Fails unless the place has the marker of this store. The first check of a new store writes the marker.
    pub(crate) async fn check(&self) -> StoreResult<()> {
        let id = match self.id.get() {
            Some(id) => *id,
            None => self.mark().await?,
        };
        match self.place.marker().await? {
            Some(found) if found == id => Ok(()),
            found => Err(not_ours(found)),
        }
    }

    async fn mark(&self) -> StoreResult<Id> {
        let noted = match self.store.attachment_place().await? {
            Some(noted) => noted,
            None => {
                let id = Id::new(self.clock.now(), &*self.random);
                self.store.put_attachment_place(AttachmentPlace { id, is_marked: false }).await?;
                // Another server may have noted its own first.
                let noted = self.store.attachment_place().await?;
                noted.ok_or_else(|| StoreError::corrupt("the place of the attachments is not noted"))?
            }
        };
        if !noted.is_marked {
            match self.place.marker().await? {
                None => self.place.put_marker(noted.id).await?,
                Some(found) if found == noted.id => {}
                other => return Err(not_ours(other)),
            }
            self.store.put_attachment_place(AttachmentPlace { is_marked: true, ..noted }).await?;
        }
        Ok(*self.id.get_or_init(|| noted.id))
    }
}

fn not_ours(found: Option<Id>) -> StoreError {
    StoreError::Unavailable(
        match found {
            None => "the place of the attachments has no marker: is the volume mounted, and the directory the right one?",
            Some(_) => {
                "the place of the attachments has the marker of another database: name this database's own place, or remove \
                 the marker if the other database is not used any more"
            }
        }
        .into(),
    )
}

#[async_trait]
impl Blobs for MarkedPlace {
    async fn put(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        // Before, so that no directory is created below a mount point; after, because the volume may go meanwhile.
        self.check().await?;
        self.place.put(org, sha256, content).await?;
        self.check().await
    }

    async fn get_chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
        let chunk = self.place.get_chunk(org, sha256, number).await?;
        if chunk.is_none() && number == 0 {
            self.check().await?;
        }
        Ok(chunk)
    }
}

#[async_trait]
impl OutsideBlobs for MarkedPlace {
    async fn remove(&self, org: Id, sha256: &Fingerprint) -> StoreResult<()> {
        // What is not found in an empty mount point would count as removed.
        self.check().await?;
        self.place.remove(org, sha256).await
    }

    async fn ready(&self) -> StoreResult<()> {
        self.check().await?;
        self.place.ready().await
    }

    async fn marker(&self) -> StoreResult<Option<Id>> {
        self.place.marker().await
    }

    async fn put_marker(&self, id: Id) -> StoreResult<()> {
        self.place.put_marker(id).await
    }
}
