//! Copying a whole store, page by page: what is held at a time does not grow with the store. Each organization goes on
//! where its ledger in the target ends, so that a copy which was broken off is simply begun again.

use crate::blobs::Blobs;
use crate::id::Id;
use crate::ledger::{Frontier, root_at, root_needs};
use crate::name::{Fingerprint, OrgName};
use crate::orgs::Organization;
use crate::store::{StoreError, StoreResult, StoredEntry};

use super::attachments::{Attachments, Content, Fault, Organizations, PAGE};
use super::{Import, Transfer};

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
    /// How many attachments the source has records of and no content.
    pub missing_attachments: u64,
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
    /// Whether nothing came in meanwhile: the target has all that the source has, be it not all that it should have.
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
    /// How many attachments the source has records of and no content.
    pub missing_attachments: u64,
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
    /// What the source keeps of an attachment is not what was attached.
    #[error(
        "attachment {sha256} of organization '{org}' was altered in the source: upload the same file again there, or remove what is kept of it to copy the rest"
    )]
    Altered {
        /// The organization.
        org: OrgName,
        /// The digest of what was attached.
        sha256: Fingerprint,
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

/// A store, and where its attachments are.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The store.
    pub store: &'a dyn Transfer,
    /// What keeps its attachments: itself, or a place outside of it.
    pub attachments: &'a dyn Blobs,
}

impl std::fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

impl<'a> From<&'a dyn Transfer> for Place<'a> {
    /// A store that keeps its attachments itself.
    fn from(store: &'a dyn Transfer) -> Self {
        Self { store, attachments: store }
    }
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
    from: Place<'_>,
    to: Place<'_>,
    progress: &mut (dyn FnMut(&Copied) + Send),
) -> Result<Summary, CopyError> {
    let mut summary = Summary::default();
    let mut organizations = Organizations::of(from.store);
    while let Some(organization) = organizations.next().await.map_err(CopyError::Source)? {
        let copied = Ledger { from, to, organization }.copy().await?;
        summary.new_entries += copied.new_entries;
        summary.new_attachments += copied.new_attachments;
        summary.missing_attachments += copied.missing_attachments;
        progress(&copied);
    }
    let mut organizations = Organizations::of(from.store);
    while let Some(organization) = organizations.next().await.map_err(CopyError::Source)? {
        let (entries, late) = Ledger { from, to, organization }.compare().await?;
        summary.organizations += 1;
        summary.entries += entries;
        summary.late.entries += late.entries;
        summary.late.attachments += late.attachments;
    }
    Ok(summary)
}

/// An organization in both stores.
struct Ledger<'a> {
    from: Place<'a>,
    to: Place<'a>,
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
        let (new_attachments, missing_attachments) = self.copy_attachments().await?;
        self.copy_entries(ours.max(1), theirs).await?;
        let (organization, entries, new_entries) = (self.name(), theirs, theirs - ours);
        Ok(Copied { organization, entries, new_entries, new_attachments, missing_attachments })
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
        let theirs = self.from.store.ledger_head(org).await.map_err(CopyError::Source)?.unwrap_or_default();
        let ours = self.to.store.ledger_head(org).await.map_err(CopyError::Target)?.unwrap_or_default();
        if ours.size() > theirs.size() || !self.source_had(&ours).await.map_err(CopyError::Source)? {
            return Err(CopyError::Diverged(self.name()));
        }
        Ok((theirs.size(), ours.size()))
    }

    async fn source_had(&self, head: &Frontier) -> StoreResult<bool> {
        let known = self.from.store.ledger_hashes(self.organization.id, &root_needs(head.size())).await?;
        let root = root_at(head.size(), &known).map_err(StoreError::corrupt)?;
        Ok(root == head.root())
    }

    async fn copy_entries(&self, first: u64, end: u64) -> Result<(), CopyError> {
        let org = self.organization.id;
        let mut next = first;
        while next < end {
            let limit = PAGE.min(end - next);
            let page = self.from.store.ledger_entries(org, next, limit).await.map_err(CopyError::Source)?;
            if page.first().is_none_or(|entry| entry.index != next) {
                return Err(CopyError::Incomplete { org: self.name(), index: next });
            }
            next += page.len() as u64;
            let import = self.import(page).await.map_err(CopyError::Source)?;
            self.to.store.import(import).await.map_err(|error| match error {
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
        import.with_secrets(self.from.store.key_hashes(org, &keys).await?)
    }

    fn missing_attachments(&self) -> Missing<'_> {
        let org = self.organization.id;
        Missing { theirs: Attachments::of(self.from.store, org), ours: Attachments::of(self.to.store, org) }
    }

    /// Copies what the target does not have, whether or not a record of it names that already; answers how many that were,
    /// and how many the source does not have.
    async fn copy_attachments(&self) -> Result<(u64, u64), CopyError> {
        let org = self.organization.id;
        let mut attachments = Attachments::of(self.from.store, org);
        let (mut copied, mut missing) = (0, 0);
        while let Some(sha256) = attachments.next().await.map_err(CopyError::Source)? {
            let mut content = Content::of(self.from.attachments, org, &sha256);
            let kept = self.to.attachments.keep(org, &sha256, &mut content).await;
            match content.fault {
                Some(Fault::Missing) => missing += 1,
                Some(Fault::Altered) => return Err(CopyError::Altered { org: self.name(), sha256 }),
                Some(Fault::Unreadable(error)) => return Err(CopyError::Source(error)),
                None => {
                    kept.map_err(CopyError::Target)?;
                    copied += u64::from(content.is_begun);
                }
            }
        }
        Ok((copied, missing))
    }
}

/// The attachments that records of the source name, and none of the target.
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
