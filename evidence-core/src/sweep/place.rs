//! The external store of attachments, verified by its marker around each write. An unmounted volume leaves an
//! empty directory, in which a write would succeed and be lost. Another directory may belong to another
//! database, whose attachments a sweep would delete.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;

use crate::blobs::{Blobs, Chunks, MARKER, OutsideBlobs};
use crate::id::{Id, Random, SystemRandom};
use crate::name::Fingerprint;
use crate::store::Store;
use crate::store::error::{StoreError, StoreResult};
use crate::sweep::store::AttachmentPlace;
use crate::time::{Clock, SystemClock};

/// The number of known attachments that are looked up in a place without a marker. Any of them may be lost.
const LOOKED_FOR: u64 = 16;

/// The external attachments of one store. The store records the id that the marker must have.
pub struct MarkedPlace {
    store: Arc<dyn Store>,
    place: Arc<dyn OutsideBlobs>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// Whether a copy is filling the place: it may lack attachments that the store names.
    is_copy_target: bool,
    /// The recorded id, once the marker was written or found.
    id: OnceLock<Id>,
}

impl std::fmt::Debug for MarkedPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MarkedPlace").field("id", &self.id.get()).finish_non_exhaustive()
    }
}

impl MarkedPlace {
    /// Returns the place to which the attachments of a store are copied. [`OutsideBlobs::ready`] writes its
    /// marker, so that a server never mistakes another place for it.
    pub fn for_copy(store: Arc<dyn Store>, place: Arc<dyn OutsideBlobs>) -> Self {
        let filled = Self::new(store, place, Arc::new(SystemClock), Arc::new(SystemRandom));
        Self { is_copy_target: true, ..filled }
    }

    pub(crate) fn new(
        store: Arc<dyn Store>,
        place: Arc<dyn OutsideBlobs>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self { store, place, clock, random, is_copy_target: false, id: OnceLock::new() }
    }

    /// Fails unless the place has the marker of this store. The first check of a new store writes the marker.
    pub(crate) async fn check(&self) -> StoreResult<()> {
        let id = match self.id.get() {
            Some(id) => *id,
            None => self.mark().await?,
        };
        match self.place.marker().await? {
            Some(found) if found == id => Ok(()),
            Some(_) => Err(refused_place(FOREIGN, id)),
            None => Err(refused_place(UNMARKED, id)),
        }
    }

    async fn mark(&self) -> StoreResult<Id> {
        let noted = match self.store.attachment_place().await? {
            Some(noted) => noted,
            None => {
                let id = Id::new(self.clock.now(), &*self.random);
                self.store.put_attachment_place(AttachmentPlace { id, is_marked: false }).await?;
                // Another server may have recorded its own id first.
                let noted = self.store.attachment_place().await?;
                noted.ok_or_else(|| StoreError::corrupt("the place of the attachments is not noted"))?
            }
        };
        if !noted.is_marked {
            match self.place.marker().await? {
                None if self.may_be_wrong_place().await? => return Err(refused_place(EMPTY, noted.id)),
                None => self.place.put_marker(noted.id).await?,
                Some(found) if found == noted.id => {}
                Some(_) => return Err(refused_place(FOREIGN, noted.id)),
            }
            self.store.put_attachment_place(AttachmentPlace { is_marked: true, ..noted }).await?;
        }
        Ok(*self.id.get_or_init(|| noted.id))
    }

    /// Returns whether the store names attachments but this place has none of them, as after a copy if the
    /// volume is not mounted.
    async fn may_be_wrong_place(&self) -> StoreResult<bool> {
        if self.is_copy_target {
            return Ok(false);
        }
        let named = self.store.named_attachments(LOOKED_FOR).await?;
        for (org, sha256) in &named {
            if self.place.get_chunk(*org, sha256, 0).await?.is_some() {
                return Ok(false);
            }
        }
        Ok(!named.is_empty())
    }
}

const UNMARKED: &str =
    "the place of the attachments has no marker: mount the volume, or name the right directory or bucket";

const EMPTY: &str = "the place of the attachments has no marker, and none of the attachments that the database names: mount \
                     the volume, name the right directory or bucket, or copy the attachments there with 'evidence-server copy'";

const FOREIGN: &str = "the place of the attachments has the marker of another database: name this database's own place, or \
                       remove the marker if the other database is not used any more";

/// Returns the error for a refused place, with the way to confirm it.
fn refused_place(why: &str, id: Id) -> StoreError {
    let text =
        format!("{why}. If it is the right place, write the file '{MARKER}' there, with the content {id}");
    StoreError::Unavailable(text.into())
}

#[async_trait]
impl Blobs for MarkedPlace {
    async fn put(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        // Before the write, so that no directory is created below a mount point; after it, because the volume
        // may disappear meanwhile.
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
        // In an empty mount point, a missing attachment would count as deleted.
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
