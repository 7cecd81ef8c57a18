//! Signing the checkpoint of a ledger.

use std::sync::Arc;

use crate::checkpoints::keys::{LastSigned, LedgerKeys};
use crate::checkpoints::not_signed::NotSigned;
use crate::context::{Context, retry_on_conflict};
use crate::error::{Error, Resource, Result};
use crate::id::Id;
use crate::ledger::note::{NoteError, NoteSigner, SignedNote};
use crate::ledger::{Checkpoint, Frontier, consistency, consistency_needs, verify_consistency};
use crate::store::error::StoreError;

/// A checkpoint with its signatures.
#[derive(Debug)]
pub(crate) struct SignedCheckpoint {
    pub(crate) checkpoint: Checkpoint,
    /// The signed note.
    pub(crate) note: String,
    signers: Vec<NoteSigner>,
}

impl SignedCheckpoint {
    /// Returns the signer with the present key, for other forms of a proof.
    pub(crate) fn signer(&self) -> &NoteSigner {
        &self.signers[0]
    }

    /// Returns the signer with the former key, while a key is replaced.
    pub(crate) fn former_signer(&self) -> Option<&NoteSigner> {
        self.signers.get(1)
    }

    /// Returns the keys that verify the signatures, one per line.
    pub(crate) fn keys(&self) -> String {
        self.signers.iter().map(|signer| format!("{}\n", signer.verifier())).collect()
    }
}

/// A log as its keys know it.
struct Log<'a> {
    origin: String,
    signers: Vec<NoteSigner>,
    keys: &'a Arc<LedgerKeys>,
    org: Id,
    cx: &'a Context<'a>,
}

/// Returns the keys of the ledgers.
///
/// # Errors
/// [`Error::NotFound`] if this server has none.
pub(crate) fn keys<'a>(cx: &Context<'a>) -> Result<&'a Arc<LedgerKeys>> {
    const NONE: &str = "this server has no key for ledgers, so it signs no checkpoints";
    let missing = || cx.missing(Resource::Checkpoint, NONE);
    Ok(cx.ledger_keys().ok_or_else(missing)?)
}

/// Returns the error of a ledger with a name that no key can have. [`LedgerKeys::open`] refuses such names.
pub(crate) fn bad_name(error: NoteError) -> Error {
    Error::Internal { what: "a ledger has a name that no key can have", source: error.into() }
}

/// Returns the signed checkpoint of all entries that the ledger of the request's organization has now.
///
/// # Errors
/// [`Error::NotFound`] if this server has no keys; [`Error::NotSigned`] if the ledger does not extend what was signed last.
pub(crate) async fn current(cx: &Context<'_>) -> Result<SignedCheckpoint> {
    let (org, keys) = (cx.org()?, keys(cx)?);
    let signers = keys.signers(org).map_err(bad_name)?;
    let log = Log { origin: keys.origin(org), signers, keys, org, cx };
    match retry_on_conflict(|| log.sign()).await {
        Ok((checkpoint, note)) => {
            cx.set_unsigned(org, false);
            Ok(SignedCheckpoint { checkpoint, note, signers: log.signers })
        }
        Err(error) => {
            if let Error::NotSigned(reason) = &error {
                tracing::error!(organization = %org, "a checkpoint is not signed: {reason}");
                cx.set_unsigned(org, true);
            }
            Err(error)
        }
    }
}

impl Log<'_> {
    /// Signs the checkpoint of the ledger. If it did not grow, the result is the checkpoint that was signed last.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another request signed meanwhile.
    async fn sign(&self) -> Result<(Checkpoint, String)> {
        let store = self.cx.store();
        let stored = store.signed_checkpoint(self.org).await?;
        let kept = self.outside(|signed, org| signed.last_signed(org)).await?;
        // Read after what was signed, so that it has at least as many entries.
        let ledger = self.cx.ledger().await?;
        for note in [&stored, &kept].into_iter().flatten() {
            let last = self.own(note, kept.as_deref() == Some(note))?;
            self.check_extends(&last, &ledger).await?;
        }
        let checkpoint = Checkpoint { origin: self.origin.clone(), size: ledger.size(), root: ledger.root() };
        let note = checkpoint.sign(&self.signers);
        if stored.as_ref() != Some(&note)
            && !store.replace_signed_checkpoint(self.org, stored.as_deref(), Some(&note)).await?
        {
            return Err(StoreError::Conflict.into());
        }
        if kept.as_ref() != Some(&note) {
            let note = note.clone();
            self.outside(move |signed, org| signed.keep(org, &note)).await?;
        }
        Ok((checkpoint, note))
    }

    /// Reads or writes what was signed last, outside of the store.
    async fn outside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn LastSigned, Id) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (keys, org) = (Arc::clone(self.keys), self.org);
        let done = tokio::task::spawn_blocking(move || work(keys.signed(), org)).await;
        let done = done.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
        done.map_err(|error| {
            tracing::error!(%error, "what was signed last cannot be read or written outside of the store");
            NotSigned::OutOfReach.into()
        })
    }

    /// Returns the checkpoint of a note that was signed last. A note that is kept outside of the store is this log's, also
    /// if the key with which it was signed was replaced meanwhile.
    fn own(&self, note: &str, is_kept: bool) -> Result<Checkpoint, NotSigned> {
        let unreadable = |reason: &dyn ToString| NotSigned::Unreadable { reason: reason.to_string() };
        let note: SignedNote = note.parse().map_err(|error| unreadable(&error))?;
        let last: Checkpoint = note.text().parse().map_err(|error| unreadable(&error))?;
        let is_signed = is_kept || note.verify(self.signers.iter().map(NoteSigner::verifier)).is_ok();
        if last.origin != self.origin || !is_signed {
            return Err(NotSigned::OtherLog { origin: last.origin });
        }
        Ok(last)
    }

    async fn check_extends(&self, last: &Checkpoint, ledger: &Frontier) -> Result<()> {
        let (signed, size) = (last.size, ledger.size());
        if signed > size {
            return Err(NotSigned::Behind { signed, size }.into());
        }
        let known = self.cx.store().ledger_hashes(self.org, &consistency_needs(signed, size)).await?;
        let extends = consistency(signed, size, &known)
            .is_ok_and(|path| verify_consistency(signed, size, last.root, ledger.root(), &path));
        if extends { Ok(()) } else { Err(NotSigned::Rewritten { signed }.into()) }
    }
}
