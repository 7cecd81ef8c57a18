//! Copies a whole store in pages, so memory use does not grow with the store. Each organization continues
//! where its ledger in the target ends, so an interrupted copy can simply be started again.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::blobs::Blobs;
use crate::id::{Id, SystemRandom};
use crate::leases::{Advance, Lease};
use crate::ledger::note::SignedNote;
use crate::ledger::{Checkpoint, Frontier, root_at, root_needs};
use crate::name::{Fingerprint, OrgName};
use crate::notifications::deliverer::{NAME, after};
use crate::notifications::store::{Delivery, Position};
use crate::orgs::record::Organization;
use crate::page::Listed;
use crate::store::Store;
use crate::store::entry::StoredEntry;
use crate::store::error::{StoreError, StoreResult};
use crate::sweep::pending;
use crate::sweep::store::AttachmentState;
use crate::time::{Clock, SystemClock};

use super::attachments::{Attachments, Content, Fault, GIVEN_UP, Organizations, PAGE, Skipped, UNREADABLE};
use super::{Import, Transfer};

/// The duration of the lease on the target's notifications, in case this process ends while it holds the
/// lease.
const LEASE: Duration = Duration::from_secs(30);

/// The result of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of organizations in the source.
    pub organizations: u64,
    /// The number of their ledger entries.
    pub entries: u64,
    /// The number of entries that this copy wrote; the others existed.
    pub new_entries: u64,
    /// The attachments.
    pub attachments: AttachmentCounts,
    /// The number of entries that the source recorded during the copy. They are missing in the target.
    pub late_entries: u64,
    /// The number of organizations that are damaged in the source, or whose attachments cannot be read there.
    /// They are missing or incomplete in the target.
    pub damaged_organizations: u64,
}

impl Summary {
    /// Returns whether the target has everything in the source's ledgers.
    pub fn is_complete(&self) -> bool {
        let AttachmentCounts { missing, altered, unreadable, .. } = self.attachments;
        [self.late_entries, self.damaged_organizations, missing, altered, unreadable] == [0; 5]
    }
}

/// Counts of the source's attachments that the target did not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttachmentCounts {
    /// The number that this copy wrote.
    pub copied: u64,
    /// The number that have records but no content in the source.
    pub missing: u64,
    /// The number that do not match their digest, and were not copied.
    pub altered: u64,
    /// The number that could not be read from the source, and were not copied.
    pub unreadable: u64,
}

/// A progress event of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyProgress {
    /// An organization was copied.
    Organization(Copied),
    /// An organization is damaged in the source, or its attachments cannot be read there. Everything before
    /// the damage is copied, and so are the other organizations.
    Damaged {
        /// The organization.
        organization: OrgName,
        /// The damage, as text.
        what: String,
    },
    /// An attachment cannot be copied; the rest is.
    Skipped {
        /// The organization.
        organization: OrgName,
        /// The digest of the attachment.
        sha256: Fingerprint,
        /// The reason.
        reason: Skipped,
    },
}

/// An organization that was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Its name.
    pub organization: OrgName,
    /// The number of its ledger entries.
    pub entries: u64,
    /// The number of entries that this copy wrote.
    pub new_entries: u64,
    /// The number of attachments that this copy wrote.
    pub new_attachments: u64,
}

/// The reason why a store could not be copied, as a sentence with the remedy.
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
        /// The index of the entry.
        index: u64,
    },
    /// The source's attachment store cannot be read.
    #[error("one attachment after the other cannot be read: {source}")]
    Unreadable {
        /// The organization.
        org: OrgName,
        /// The error of the attachment store.
        source: StoreError,
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

/// A store, with the location of its attachments.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The store.
    pub store: &'a dyn Transfer,
    /// The location of its attachments: the store itself, or an external store. Wrap an external target in
    /// [`MarkedPlace::for_copy`](crate::sweep::MarkedPlace::for_copy).
    pub attachments: &'a dyn Blobs,
}

impl std::fmt::Debug for Side<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side").finish_non_exhaustive()
    }
}

impl<'a> From<&'a dyn Transfer> for Side<'a> {
    /// Uses a store that holds its attachments itself.
    fn from(store: &'a dyn Transfer) -> Self {
        Self { store, attachments: store }
    }
}

/// Copies everything in the ledgers of `from` to `to`, and then verifies it. Reports each organization, and
/// each attachment that cannot be copied, to `progress`.
///
/// Organizations are copied in the order of their ids. Any order would work: names of organizations and users
/// are never freed, so no ledger depends on another. In each organization, attachments are copied before the
/// entries that name them. A repeated run continues where the last one stopped, and retries attachments that
/// the target lacks. If everything is copied, it changes nothing. Damage in one organization does not stop
/// the others. Attachments that the target has are not read again; use
/// [`check_attachments`](super::check_attachments) for that.
///
/// The source may be in use. [`Summary::late_entries`] counts the entries that arrive during the copy;
/// another run copies them. Once the source is idle, none are late.
///
/// # Errors
/// [`CopyError`], which names the store or organization at fault. Data copied so far stay.
pub async fn copy(
    from: Side<'_>,
    to: Side<'_>,
    progress: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<Summary, CopyError> {
    let (mut summary, mut attachments) = (Summary::default(), Attempts::default());
    let mut damaged = BTreeSet::new();
    let mut organizations = Organizations::of(from.store);
    while let Some(organization) = organizations.next().await.map_err(CopyError::Source)? {
        let ledger = Ledger { from, to, organization };
        match ledger.copy(&mut attachments, progress).await {
            Ok(copied) => {
                summary.new_entries += copied.new_entries;
                progress(CopyProgress::Organization(copied));
            }
            Err(error) if error.is_damage() => {
                damaged.insert(ledger.organization.id);
                progress(CopyProgress::Damaged { organization: ledger.name(), what: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    summary.attachments = attachments.counts;
    let mut organizations = Organizations::of(from.store);
    while let Some(organization) = organizations.next().await.map_err(CopyError::Source)? {
        summary.organizations += 1;
        if damaged.contains(&organization.id) {
            continue;
        }
        let ledger = Ledger { from, to, organization };
        match ledger.heads().await {
            Ok((source_size, target_size)) => {
                summary.entries += source_size;
                summary.late_entries += source_size - target_size;
            }
            Err(error) if error.is_damage() => {
                damaged.insert(ledger.organization.id);
                progress(CopyProgress::Damaged { organization: ledger.name(), what: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    summary.damaged_organizations = damaged.len() as u64;
    Ok(summary)
}

impl CopyError {
    /// Returns whether only one organization of the source is at fault, so that others may be copied.
    fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Source(StoreError::Corrupt { .. }) | Self::Incomplete { .. } | Self::Unreadable { .. }
        )
    }
}

/// The outcomes of copying attachments.
#[derive(Default)]
struct Attempts {
    counts: AttachmentCounts,
    /// The number of consecutive unreadable attachments of one organization.
    in_a_row: usize,
    /// The number of consecutive unreadable attachments, of any organizations.
    failed: usize,
}

/// An organization in both stores.
struct Ledger<'a> {
    from: Side<'a>,
    to: Side<'a>,
    organization: Organization,
}

type ProgressCallback<'a> = dyn FnMut(CopyProgress) + Send + 'a;

impl Ledger<'_> {
    fn name(&self) -> OrgName {
        self.organization.name.clone()
    }

    async fn copy(
        &self,
        attempts: &mut Attempts,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<Copied, CopyError> {
        let (source_size, target_size) = self.heads().await?;
        let before = attempts.counts.copied;
        attempts.in_a_row = 0;
        self.copy_missing_attachments(attempts, progress).await?;
        self.copy_entries(target_size, source_size, attempts, progress).await?;
        self.copy_deliveries(source_size).await?;
        self.copy_checkpoint(source_size).await?;
        let new_attachments = attempts.counts.copied - before;
        Ok(Copied {
            organization: self.name(),
            entries: source_size,
            new_entries: source_size - target_size,
            new_attachments,
        })
    }

    /// Returns the sizes of the source's and the target's ledgers. The target's must be a prefix of the
    /// source's: the source had the same root at that size.
    async fn heads(&self) -> Result<(u64, u64), CopyError> {
        let org = self.organization.id;
        let source = self.from.store.ledger_head(org).await.map_err(CopyError::Source)?;
        // Every ledger begins with its organization.
        let no_head = || CopyError::Source(StoreError::corrupt("its ledger has no head"));
        let source = source.filter(|head| head.size() > 0).ok_or_else(no_head)?;
        let target = self.to.store.ledger_head(org).await.map_err(CopyError::Target)?.unwrap_or_default();
        if target.size() > source.size() || !self.source_contains(&target).await.map_err(CopyError::Source)? {
            if !self.source_contains(&source).await.map_err(CopyError::Source)? {
                let what = "the nodes of its ledger are not those of its head";
                return Err(CopyError::Source(StoreError::corrupt(what)));
            }
            return Err(CopyError::Diverged(self.name()));
        }
        Ok((source.size(), target.size()))
    }

    async fn source_contains(&self, head: &Frontier) -> StoreResult<bool> {
        let known = self.from.store.ledger_hashes(self.organization.id, &root_needs(head.size())).await?;
        let root = root_at(head.size(), &known).map_err(StoreError::corrupt)?;
        Ok(root == head.root())
    }

    async fn copy_entries(
        &self,
        first: u64,
        end: u64,
        attempts: &mut Attempts,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<(), CopyError> {
        let org = self.organization.id;
        let mut next = first;
        while next < end {
            // Attachments need an existing organization, so its entry goes first, alone.
            let limit = if next == 0 { 1 } else { PAGE.min(end - next) };
            let page = self.from.store.ledger_entries(org, next, limit).await.map_err(CopyError::Source)?;
            if page.first().is_none_or(|entry| entry.index != next) {
                return Err(CopyError::Incomplete { org: self.name(), index: next });
            }
            next += page.len() as u64;
            let import = self.import(page).await.map_err(CopyError::Source)?;
            for sha256 in import.attachments() {
                let state = self.to.store.attachment_state(org, &sha256).await.map_err(CopyError::Target)?;
                // Attachments that an earlier entry names have already been handled.
                if state != AttachmentState::Named {
                    self.copy_attachment(&sha256, attempts, progress).await?;
                }
            }
            self.to.store.import(import).await.map_err(|error| match error {
                StoreError::Conflict => CopyError::Refused(self.name()),
                error => CopyError::Target(error),
            })?;
        }
        Ok(())
    }

    /// Copies the delivery state of notifications, so that the target's servers continue from there instead
    /// of repeating notifications. The target's ledger has `size` entries.
    async fn copy_deliveries(&self, size: u64) -> Result<(), CopyError> {
        let (from, to, org) = (self.from.store, self.to.store, self.organization.id);
        // A source in use may have sent notifications for entries that the target does not have yet.
        let end = Position { entry: size, event: 0 };
        // Read the position first: events after it that are sent meanwhile are in the deliveries, which are
        // read later.
        let position = from.cursor(NAME, org).await.map_err(CopyError::Source)?.min(size);
        let actions = from.actions_listed(org).await.map_err(CopyError::Source)?;
        for ids in Listed::batches(actions) {
            let actions = from.actions_by_id(org, &ids).await.map_err(CopyError::Source)?;
            let targets = actions.into_iter().flat_map(|action| action.record.targets);
            let targets = Vec::from_iter(targets.map(|target| target.id));
            let sent = from.deliveries(org, &targets).await.map_err(CopyError::Source)?;
            let known = to.deliveries(org, &targets).await.map_err(CopyError::Target)?;
            for mut delivery in sent {
                delivery.state.go_on_from(delivery.state.next.min(end));
                let known = known.iter().find(|known| known.target == delivery.target);
                if known.is_some_and(|known| known.state.next > delivery.state.next) {
                    continue;
                }
                let delivery = Delivery { revision: known.map_or(0, |known| known.revision), ..delivery };
                if !to.put_delivery(&delivery, None).await.map_err(CopyError::Target)? {
                    return Err(CopyError::Refused(self.name()));
                }
            }
        }
        let known = to.cursor(NAME, org).await.map_err(CopyError::Target)?;
        if position > known { self.move_cursor(known, position).await } else { Ok(()) }
    }

    /// Copies the last signed checkpoint, so that whoever signs for the target goes on from it. The target's ledger has
    /// `size` entries. A source in use may have signed a later checkpoint, which the next copy brings.
    async fn copy_checkpoint(&self, size: u64) -> Result<(), CopyError> {
        let (from, to, org) = (self.from.store, self.to.store, self.organization.id);
        let Some(note) = from.signed_checkpoint(org).await.map_err(CopyError::Source)? else { return Ok(()) };
        let read = |note: &str| note.parse::<SignedNote>()?.text().parse::<Checkpoint>();
        let signed = read(&note).map_err(StoreError::corrupt).map_err(CopyError::Source)?;
        let known = to.signed_checkpoint(org).await.map_err(CopyError::Target)?;
        let is_known =
            known.as_deref().and_then(|known| read(known).ok()).is_some_and(|known| known.size > signed.size);
        if signed.size > size || is_known || known.as_ref() == Some(&note) {
            return Ok(());
        }
        let replaced = to.replace_signed_checkpoint(org, known.as_deref(), Some(&note)).await;
        if replaced.map_err(CopyError::Target)? { Ok(()) } else { Err(CopyError::Refused(self.name())) }
    }

    /// Moves the target's notification cursor. No server may hold its lease.
    async fn move_cursor(&self, from: u64, to: u64) -> Result<(), CopyError> {
        let (store, org, now) = (self.to.store, self.organization.id, SystemClock.now());
        let (consumer, holder) = (NAME.to_owned(), Id::new(now, &SystemRandom));
        let lease = Lease { name: consumer.clone(), holder, expires_at: after(now, LEASE) };
        let advance = Advance { consumer, org, holder, from, to };
        let is_moved = store.acquire_lease(&lease, now).await.map_err(CopyError::Target)?
            && store.advance_cursor(&advance, now).await.map_err(CopyError::Target)?;
        store.release_lease(&lease.name, holder).await.map_err(CopyError::Target)?;
        if is_moved { Ok(()) } else { Err(CopyError::Refused(self.name())) }
    }

    async fn import(&self, entries: Vec<StoredEntry>) -> StoreResult<Import> {
        let org = self.organization.id;
        let mut import = Import::new(org, entries)?;
        let keys: Vec<Id> = import.created_keys().map(|record| record.id).collect();
        if !keys.is_empty() {
            import = import.with_key_hashes(self.from.store.key_hashes(org, &keys).await?)?;
        }
        let urls = Vec::from_iter(import.urls());
        if !urls.is_empty() {
            import = import.with_urls(self.from.store.secret_urls(org, &urls).await?);
        }
        Ok(import)
    }

    /// Copies attachments that records of the target name and the target lacks, because an earlier copy could
    /// not read them.
    async fn copy_missing_attachments(
        &self,
        attempts: &mut Attempts,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<(), CopyError> {
        let org = self.organization.id;
        let mut attachments = Attachments::of(self.to.store, org);
        while let Some(sha256) = attachments.next().await.map_err(CopyError::Target)? {
            let found = self.to.attachments.get_chunk(org, &sha256, 0).await;
            if found.map_err(CopyError::Target)?.is_none() {
                self.copy_attachment(&sha256, attempts, progress).await?;
            }
        }
        Ok(())
    }

    /// Copies an attachment. Marks it as pending in the target like an upload, so that it is swept if no
    /// entry names it.
    async fn copy_attachment(
        &self,
        sha256: &Fingerprint,
        attempts: &mut Attempts,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<(), CopyError> {
        let org = self.organization.id;
        let mut content = Content::of(self.from.attachments, org, sha256);
        let places = (self.to.store as &dyn Store, self.to.attachments);
        let kept = pending::store_pending(places, (org, sha256), &mut content, SystemClock.now()).await;
        let (counts, mut unreadable) = (&mut attempts.counts, None);
        let reason = match content.fault {
            None => {
                kept.map_err(CopyError::Target)?;
                counts.copied += u64::from(content.is_begun);
                (attempts.in_a_row, attempts.failed) = (0, 0);
                return Ok(());
            }
            Some(Fault::Missing) => {
                counts.missing += 1;
                Skipped::Missing
            }
            Some(Fault::Altered) => {
                counts.altered += 1;
                Skipped::Altered
            }
            Some(Fault::Unreadable(error)) => {
                counts.unreadable += 1;
                (attempts.in_a_row, attempts.failed) = (attempts.in_a_row + 1, attempts.failed + 1);
                let reason = Skipped::Unreadable(error.to_string());
                unreadable = Some(error);
                reason
            }
        };
        progress(CopyProgress::Skipped { organization: self.name(), sha256: sha256.clone(), reason });
        match unreadable {
            Some(error) if attempts.failed == GIVEN_UP => Err(CopyError::Source(error)),
            Some(error) if attempts.in_a_row == UNREADABLE => {
                Err(CopyError::Unreadable { org: self.name(), source: error })
            }
            _ => Ok(()),
        }
    }
}
