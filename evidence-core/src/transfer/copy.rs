//! Copying a whole store, page by page: what is held at a time does not grow with the store. Each organization goes on
//! where its ledger in the target ends, so that a copy which was broken off is simply begun again.

use std::collections::VecDeque;

use async_trait::async_trait;
use bytes::Bytes;

use crate::blobs::{BlobReader, Chunks};
use crate::id::Id;
use crate::ledger::{Frontier, root_at, root_needs};
use crate::name::{Fingerprint, OrgName};
use crate::orgs::Organization;
use crate::store::{StoreError, StoreResult, StoredEntry};

use super::{Import, Transfer};

/// How many organizations, entries or attachments are listed at a time.
const PAGE: u64 = 128;

/// What a copy found and did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many organizations the source has.
    pub organizations: u64,
    /// How many ledger entries they have.
    pub entries: u64,
    /// How many entries this copy wrote; the others were there.
    pub new_entries: u64,
    /// How many attachments this copy wrote; the others were there.
    pub new_attachments: u64,
    /// What came in at the source meanwhile, and is not in the target.
    pub late: Late,
}

/// What the source has and the target lacks, because it came in while the copy ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Late {
    /// Ledger entries.
    pub entries: u64,
    /// Attachments.
    pub attachments: u64,
}

impl Summary {
    /// Whether nothing came in meanwhile: the target has all that the source has.
    pub fn is_complete(&self) -> bool {
        self.late == Late::default()
    }
}

/// An organization that was just copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Its name.
    pub organization: OrgName,
    /// How many ledger entries it has.
    pub entries: u64,
    /// How many of them this copy wrote.
    pub new_entries: u64,
    /// How many attachments this copy wrote.
    pub new_attachments: u64,
}

/// Why a store could not be copied, in one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The source cannot be read.
    #[error("the source failed: {0}")]
    Source(#[source] StoreError),
    /// The target cannot be read or written.
    #[error("the target failed: {0}")]
    Target(#[source] StoreError),
    /// The source's ledger lacks an entry that its head covers.
    #[error("organization '{org}' of the source lacks ledger entry {index}: check the source")]
    Incomplete {
        /// The organization.
        org: OrgName,
        /// The entry.
        index: u64,
    },
    /// The target has entries that the source does not have.
    #[error(
        "the target's ledger of organization '{0}' is not the beginning of the source's: copy into an empty store"
    )]
    Diverged(OrgName),
    /// The target refused entries.
    #[error(
        "the target has a name of organization '{0}' already, or is in use: copy into an empty store that nobody writes to"
    )]
    Refused(OrgName),
}

/// Copies everything that `from` has to `to`, and then looks whether it is there: `progress` hears of each organization.
///
/// Organizations may come in any order, and come by id: theirs and users' names are never given up, so that no ledger needs another one to
/// be there first. In each, attachments come before the entries that name them. When it is run again, it goes on where it
/// stopped; when all is there, it changes nothing. The source may be in use: what comes in meanwhile is counted in
/// [`Summary::late`] and found by running it again, and when the source is quiet at last, nothing is late.
///
/// # Errors
/// [`CopyError`] says which store or organization is at fault; what was copied so far stays.
pub async fn copy(
    from: &dyn Transfer,
    to: &dyn Transfer,
    progress: &mut (dyn FnMut(&Copied) + Send),
) -> Result<Summary, CopyError> {
    let mut summary = Summary::default();
    let mut organizations = Organizations::of(from);
    while let Some(organization) = organizations.next().await? {
        let copied = Ledger { from, to, organization }.copy().await?;
        summary.new_entries += copied.new_entries;
        summary.new_attachments += copied.new_attachments;
        progress(&copied);
    }
    let mut organizations = Organizations::of(from);
    while let Some(organization) = organizations.next().await? {
        let (entries, late) = Ledger { from, to, organization }.compare().await?;
        summary.organizations += 1;
        summary.entries += entries;
        summary.late.entries += late.entries;
        summary.late.attachments += late.attachments;
    }
    Ok(summary)
}

/// The organizations of a store, a page at a time.
struct Organizations<'a> {
    store: &'a dyn Transfer,
    page: VecDeque<Organization>,
    last: Option<Id>,
}

impl<'a> Organizations<'a> {
    fn of(store: &'a dyn Transfer) -> Self {
        Self { store, page: VecDeque::new(), last: None }
    }

    async fn next(&mut self) -> Result<Option<Organization>, CopyError> {
        if self.page.is_empty() {
            self.page = self.store.organizations(self.last, PAGE).await.map_err(CopyError::Source)?.into();
        }
        let next = self.page.pop_front();
        self.last = next.as_ref().map(|organization| organization.id).or(self.last);
        Ok(next)
    }
}

/// An organization in both stores.
struct Ledger<'a> {
    from: &'a dyn Transfer,
    to: &'a dyn Transfer,
    organization: Organization,
}

impl Ledger<'_> {
    fn name(&self) -> OrgName {
        self.organization.name.clone()
    }

    /// The source's head was read before the attachments are listed: those of the entries below it are on the list.
    async fn copy(&self) -> Result<Copied, CopyError> {
        let (theirs, ours) = self.heads().await?;
        if ours == 0 {
            // Attachments need an organization to lie in.
            self.copy_entries(0, theirs.min(1)).await?;
        }
        let new_attachments = self.copy_attachments().await?;
        self.copy_entries(ours.max(1), theirs).await?;
        Ok(Copied { organization: self.name(), entries: theirs, new_entries: theirs - ours, new_attachments })
    }

    /// The size of the source's ledger, and what the target lacks.
    async fn compare(&self) -> Result<(u64, Late), CopyError> {
        let (theirs, ours) = self.heads().await?;
        let mut missing = self.missing_attachments();
        let mut attachments = 0;
        while missing.next().await?.is_some() {
            attachments += 1;
        }
        Ok((theirs, Late { entries: theirs - ours, attachments }))
    }

    /// The sizes of the source's ledger and of the target's, which is a beginning of it: the source had the same root
    /// when it was as long.
    async fn heads(&self) -> Result<(u64, u64), CopyError> {
        let org = self.organization.id;
        let theirs = self.from.ledger_head(org).await.map_err(CopyError::Source)?.unwrap_or_default();
        let ours = self.to.ledger_head(org).await.map_err(CopyError::Target)?.unwrap_or_default();
        if ours.size() > theirs.size() || !self.source_had(&ours).await.map_err(CopyError::Source)? {
            return Err(CopyError::Diverged(self.name()));
        }
        Ok((theirs.size(), ours.size()))
    }

    async fn source_had(&self, head: &Frontier) -> StoreResult<bool> {
        let known = self.from.ledger_hashes(self.organization.id, &root_needs(head.size())).await?;
        let root = root_at(head.size(), &known).map_err(StoreError::corrupt)?;
        Ok(root == head.root())
    }

    async fn copy_entries(&self, first: u64, end: u64) -> Result<(), CopyError> {
        let org = self.organization.id;
        let mut next = first;
        while next < end {
            let limit = PAGE.min(end - next);
            let page = self.from.ledger_entries(org, next, limit).await.map_err(CopyError::Source)?;
            if page.first().is_none_or(|entry| entry.index != next) {
                return Err(CopyError::Incomplete { org: self.name(), index: next });
            }
            next += page.len() as u64;
            let import = self.import(page).await.map_err(CopyError::Source)?;
            self.to.import(import).await.map_err(|error| match error {
                StoreError::Conflict => CopyError::Refused(self.name()),
                error => CopyError::Target(error),
            })?;
        }
        Ok(())
    }

    async fn import(&self, entries: Vec<StoredEntry>) -> StoreResult<Import> {
        let org = self.organization.id;
        let import = Import::new(org, entries)?;
        let keys: Vec<Id> = import.created_keys().map(|record| record.id).collect();
        if keys.is_empty() {
            return Ok(import);
        }
        import.with_secrets(self.from.key_hashes(org, &keys).await?)
    }

    fn missing_attachments(&self) -> Missing<'_> {
        let org = self.organization.id;
        Missing { theirs: Attachments::of(self.from, org), ours: Attachments::of(self.to, org) }
    }

    async fn copy_attachments(&self) -> Result<u64, CopyError> {
        let mut missing = self.missing_attachments();
        let mut copied = 0;
        while let Some(sha256) = missing.next().await? {
            let org = self.organization.id;
            let kept = BlobReader::open(self.from, org, sha256.clone(), None).await;
            let mut content = Content { kept: kept.map_err(CopyError::Source)?, failure: None };
            let kept = self.to.keep(org, &sha256, &mut content).await;
            if let Some(failure) = content.failure {
                return Err(CopyError::Source(failure));
            }
            kept.map_err(CopyError::Target)?;
            copied += 1;
        }
        Ok(copied)
    }
}

/// The digests of an organization's attachments, a page at a time.
struct Attachments<'a> {
    store: &'a dyn Transfer,
    org: Id,
    page: VecDeque<Fingerprint>,
    last: Option<Fingerprint>,
}

impl<'a> Attachments<'a> {
    fn of(store: &'a dyn Transfer, org: Id) -> Self {
        Self { store, org, page: VecDeque::new(), last: None }
    }

    async fn next(&mut self) -> StoreResult<Option<Fingerprint>> {
        self.peek().await?;
        Ok(self.page.pop_front())
    }

    async fn peek(&mut self) -> StoreResult<Option<&Fingerprint>> {
        if self.page.is_empty() {
            self.page = self.store.blobs(self.org, self.last.as_ref(), PAGE).await?.into();
            self.last = self.page.back().cloned().or(self.last.take());
        }
        Ok(self.page.front())
    }

    /// Whether it is among them, when asked in their order.
    async fn has(&mut self, wanted: &Fingerprint) -> StoreResult<bool> {
        while self.peek().await?.is_some_and(|found| found < wanted) {
            self.page.pop_front();
        }
        Ok(self.page.front() == Some(wanted))
    }
}

/// The attachments that the source has and the target lacks.
struct Missing<'a> {
    theirs: Attachments<'a>,
    ours: Attachments<'a>,
}

impl Missing<'_> {
    async fn next(&mut self) -> Result<Option<Fingerprint>, CopyError> {
        while let Some(sha256) = self.theirs.next().await.map_err(CopyError::Source)? {
            if !self.ours.has(&sha256).await.map_err(CopyError::Target)? {
                return Ok(Some(sha256));
            }
        }
        Ok(None)
    }
}

/// An attachment of the source, on its way to the target, which is told nothing of why the source fails.
struct Content<'a> {
    kept: BlobReader<&'a dyn Transfer>,
    failure: Option<StoreError>,
}

#[async_trait]
impl Chunks for Content<'_> {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        self.kept.chunk().await.map_err(|error| {
            self.failure = Some(error);
            std::io::Error::other("the source failed")
        })
    }
}
