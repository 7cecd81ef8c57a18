//! Object stores and services that differ from the real ones in one method.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::StoreError;
use evidence_core::blobs::{Blobs, Chunks, OutsideBlobs};
use evidence_core::checkpoints::{LastSigned, LedgerKeys, is_later};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::StoreResult;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use crate::support::Marker;

/// What was signed last, in memory.
#[derive(Clone, Default)]
pub(crate) struct SignedInMemory(Arc<Mutex<BTreeMap<Id, String>>>);

impl SignedInMemory {
    /// Returns keys for ledgers of this name, from this seed.
    pub(crate) fn keys(&self, name: &str, seed: u8) -> LedgerKeys {
        LedgerKeys::new(name, [seed; 32], self.clone()).unwrap()
    }
}

impl LastSigned for SignedInMemory {
    fn last_signed(&self, org: Id) -> io::Result<Option<String>> {
        Ok(self.0.lock().unwrap().get(&org).cloned())
    }

    fn keep(&self, org: Id, note: &str) -> io::Result<()> {
        let mut signed = self.0.lock().unwrap();
        if !signed.get(&org).is_some_and(|last| is_later(last, note)) {
            signed.insert(org, note.to_owned());
        }
        Ok(())
    }
}

/// Removes the content of this digest.
pub(crate) type Remove = dyn Fn(&Fingerprint) -> BoxFuture<'static, StoreResult<()>> + Send + Sync;

/// An object store that forgets its contents.
pub(crate) struct StubBlobs {
    pub(crate) marker: Marker,
    /// Sees the length of each piece that is put.
    pub(crate) put: Box<dyn Fn(usize) + Send + Sync>,
    /// Returns the chunk of this number.
    pub(crate) get_chunk: Box<dyn Fn(u64) -> StoreResult<Option<Bytes>> + Send + Sync>,
    pub(crate) ready: Box<dyn Fn() -> StoreResult<()> + Send + Sync>,
    pub(crate) remove: Box<Remove>,
}

impl Default for StubBlobs {
    fn default() -> Self {
        Self {
            marker: Marker::default(),
            put: Box::new(|_| ()),
            get_chunk: Box::new(|_| Ok(None)),
            ready: Box::new(|| Ok(())),
            remove: Box::new(|_| ready(Ok(())).boxed()),
        }
    }
}

impl StubBlobs {
    /// An object store that does not remove these contents.
    pub(crate) fn stubborn(stuck: impl Into<Vec<Fingerprint>>) -> Self {
        let stuck = stuck.into();
        let remove = move |sha256: &Fingerprint| {
            let stays = stuck.contains(sha256).then(|| StoreError::Unavailable("it stays".into()));
            ready(stays.map_or(Ok(()), Err)).boxed()
        };
        Self { remove: Box::new(remove), ..Self::default() }
    }
}

#[async_trait]
impl Blobs for StubBlobs {
    async fn put(&self, _: Id, _: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        while let Some(piece) = content.next().await.unwrap() {
            (self.put)(piece.len());
        }
        Ok(())
    }

    async fn get_chunk(&self, _: Id, _: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
        (self.get_chunk)(number)
    }
}

#[async_trait]
impl OutsideBlobs for StubBlobs {
    async fn ready(&self) -> StoreResult<()> {
        (self.ready)()
    }

    async fn remove(&self, _: Id, sha256: &Fingerprint) -> StoreResult<()> {
        (self.remove)(sha256).await
    }

    async fn marker(&self) -> StoreResult<Option<Id>> {
        Ok(self.marker.get())
    }

    async fn put_marker(&self, id: Id) -> StoreResult<()> {
        self.marker.put(id)
    }
}

/// The settings of a service that decorates another one, which is in this field.
macro_rules! decorates {
    ($inner:tt) => {
        fn wording(&self) -> evidence_core::Wording {
            self.$inner.wording()
        }

        fn limits(&self) -> evidence_core::Limits {
            self.$inner.limits()
        }

        fn compute(&self) -> evidence_core::compute::Compute {
            self.$inner.compute()
        }

        fn admission(&self) -> evidence_core::admission::Admission {
            self.$inner.admission()
        }
    };
}
pub(crate) use decorates;
