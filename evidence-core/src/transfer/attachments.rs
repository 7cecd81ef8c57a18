//! Reads attachments that records name: lists them, streams them in chunks, and verifies their digests.

use std::collections::VecDeque;

use async_trait::async_trait;
use bytes::Bytes;

use super::Transfer;
use crate::blobs::{BlobReader, Blobs, Chunks};
use crate::id::Id;
use crate::name::Fingerprint;
use crate::orgs::record::Organization;
use crate::store::error::{StoreError, StoreResult};

/// The number of organizations, entries or attachments that are listed at a time.
pub(super) const PAGE: u64 = 128;

/// After this many consecutive unreadable attachments, the rest of the organization's attachments are
/// skipped.
pub(super) const UNREADABLE: usize = 16;

/// After this many consecutive unreadable attachments, of any organizations, the attachment store is
/// considered unreadable.
pub(super) const GIVEN_UP: usize = 3 * UNREADABLE;

/// The reason why an attachment is not copied. Its `Display` completes "the attachment …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Skipped {
    /// The source has no content for it, or the content is empty.
    #[error("is missing or empty")]
    Missing,
    /// The content in the source does not match its digest.
    #[error("does not match its hash")]
    Altered,
    /// The source's attachment store cannot be read, for this reason.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

/// Verifies every attachment that a record names, if attachments are stored outside the store. Reports each
/// that is missing, does not match its digest, or cannot be read, in a sentence.
///
/// # Errors
/// [`StoreError`] if the store cannot be read, or if many consecutive attachments cannot. Damage is reported,
/// and is not an error.
pub async fn check_attachments(
    store: &dyn Transfer,
    place: &dyn Blobs,
    tell: &mut (dyn FnMut(String) + Send),
) -> StoreResult<()> {
    let mut organizations = Organizations::of(store);
    let mut failed = 0;
    while let Some(Organization { id, name, .. }) = listed(organizations.next().await, tell)? {
        let (mut attachments, mut unreadable) = (Attachments::of(store, id), 0);
        while let Some(sha256) = listed(attachments.next().await, tell)? {
            let what = match Content::of(place, id, &sha256).check().await {
                Ok(()) => {
                    (unreadable, failed) = (0, 0);
                    continue;
                }
                Err(Fault::Missing) => Skipped::Missing,
                Err(Fault::Altered) => Skipped::Altered,
                Err(Fault::Unreadable(error)) => {
                    (unreadable, failed) = (unreadable + 1, failed + 1);
                    if failed == GIVEN_UP {
                        return Err(error);
                    }
                    if unreadable == UNREADABLE {
                        tell(format!("organization {name}: its other attachments are not checked: {error}"));
                        break;
                    }
                    Skipped::Unreadable(error.to_string())
                }
            };
            tell(format!("organization {name}: the attachment {sha256} {what}"));
        }
    }
    Ok(())
}

/// Returns the next item of a list. A damaged list ends there.
fn listed<T>(next: StoreResult<Option<T>>, tell: &mut (dyn FnMut(String) + Send)) -> StoreResult<Option<T>> {
    match next {
        Err(StoreError::Corrupt { what }) => {
            tell(format!("not all attachments are checked: {what}"));
            Ok(None)
        }
        next => next,
    }
}

/// The organizations of a store, in pages.
pub(super) struct Organizations<'a> {
    store: &'a dyn Transfer,
    page: VecDeque<Organization>,
    last: Option<Id>,
}

impl<'a> Organizations<'a> {
    pub(super) fn of(store: &'a dyn Transfer) -> Self {
        Self { store, page: VecDeque::new(), last: None }
    }

    pub(super) async fn next(&mut self) -> StoreResult<Option<Organization>> {
        if self.page.is_empty() {
            self.page = self.store.organizations(self.last, PAGE).await?.into();
        }
        let next = self.page.pop_front();
        self.last = next.as_ref().map(|organization| organization.id).or(self.last);
        Ok(next)
    }
}

/// The digests of an organization's attachments, in pages.
pub(super) struct Attachments<'a> {
    store: &'a dyn Transfer,
    org: Id,
    page: VecDeque<Fingerprint>,
    last: Option<Fingerprint>,
}

impl<'a> Attachments<'a> {
    pub(super) fn of(store: &'a dyn Transfer, org: Id) -> Self {
        Self { store, org, page: VecDeque::new(), last: None }
    }

    pub(super) async fn next(&mut self) -> StoreResult<Option<Fingerprint>> {
        if self.page.is_empty() {
            self.page = self.store.attachments(self.org, self.last.as_ref(), PAGE).await?.into();
            self.last = self.page.back().cloned().or(self.last.take());
        }
        Ok(self.page.pop_front())
    }
}

/// The reason why an attachment has no usable content.
pub(super) enum Fault {
    /// There is no content, or it is empty.
    Missing,
    /// It does not match its digest.
    Altered,
    /// The attachment store cannot be read.
    Unreadable(StoreError),
}

/// An attachment in transit. Reading starts when the first chunk is requested. The receiver does not learn
/// why reading fails.
pub(super) struct Content<'a> {
    place: &'a dyn Blobs,
    org: Id,
    sha256: &'a Fingerprint,
    reader: Option<BlobReader<&'a dyn Blobs>>,
    /// Whether the first chunk was requested.
    pub(super) is_begun: bool,
    pub(super) fault: Option<Fault>,
}

impl<'a> Content<'a> {
    pub(super) fn of(place: &'a dyn Blobs, org: Id, sha256: &'a Fingerprint) -> Self {
        Self { place, org, sha256, reader: None, is_begun: false, fault: None }
    }

    async fn check(&mut self) -> Result<(), Fault> {
        while self.chunk().await?.is_some() {}
        Ok(())
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        self.is_begun = true;
        match self.read().await {
            Ok(chunk) => Ok(chunk),
            Err(StoreError::Corrupt { .. }) => Err(self.damage().await),
            Err(error) => Err(Fault::Unreadable(error)),
        }
    }

    async fn read(&mut self) -> StoreResult<Option<Bytes>> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => BlobReader::open(self.place, self.org, self.sha256.clone(), None).await?,
        };
        self.reader.insert(reader).chunk().await
    }

    async fn damage(&self) -> Fault {
        match self.place.get_chunk(self.org, self.sha256, 0).await {
            Ok(None) => Fault::Missing,
            Ok(Some(_)) | Err(StoreError::Corrupt { .. }) => Fault::Altered,
            Err(error) => Fault::Unreadable(error),
        }
    }
}

#[async_trait]
impl Chunks for Content<'_> {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        self.chunk().await.map_err(|fault| {
            self.fault = Some(fault);
            std::io::Error::other("the source failed")
        })
    }
}
