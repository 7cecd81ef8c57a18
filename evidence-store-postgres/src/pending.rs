//! The contents that records name, and the notes of those that none names yet. A note is changed by one statement, which
//! finds it as it was read or changes nothing, so that it may be asked again on a dead connection.

use async_trait::async_trait;
use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::StoreResult;
use evidence_core::sweep::{AttachmentState, Pending, PendingStore};
use evidence_core::time::Timestamp;

use crate::db::{PostgresStore, Question};
use crate::migrate::latest;
use crate::rows::{id, signed, word};

pub(crate) const INSERT_ATTACHMENTS: &str = "
    INSERT INTO evidence.attachment (org, sha256, size) SELECT r.* FROM go, UNNEST($text, $text, $bigint) r
    ON CONFLICT (org, sha256) DO NOTHING";

/// What a record names is not pending.
pub(crate) const FORGET: &str = "
    DELETE FROM evidence.attachment_pending p USING go, UNNEST($text, $text) AS r (org, sha256)
    WHERE p.org = r.org AND p.sha256 = r.sha256";

pub(crate) const STATE: &str = "
    SELECT EXISTS (SELECT 1 FROM evidence.attachment a WHERE a.org = $1 AND a.sha256 = $2), p.kept_at, p.removing_at
    FROM (SELECT 1) AS one LEFT JOIN evidence.attachment_pending p ON p.org = $1 AND p.sha256 = $2";

const PUT: &str = "
    INSERT INTO evidence.attachment_pending AS p (org, sha256, kept_at)
    SELECT o.id, $2, $3 FROM evidence.organization o
    WHERE o.id = $1 AND NOT EXISTS (SELECT 1 FROM evidence.attachment a WHERE a.org = $1 AND a.sha256 = $2)
    ON CONFLICT (org, sha256) DO UPDATE SET kept_at = greatest(p.kept_at, excluded.kept_at)
    WHERE p.removing_at IS NULL
    RETURNING p.kept_at";

pub(crate) const PENDING: &str = "
    SELECT p.org, p.sha256, p.kept_at, p.removing_at FROM evidence.attachment_pending p
    WHERE (p.org, p.sha256) > (coalesce($1, ''), coalesce($2, '')) ORDER BY p.org, p.sha256 LIMIT $3";

/// The condition that the note `p` is as it was read, that its organization and ledger are there, that no migration goes on, and that a
/// program of this version may write.
macro_rules! unchanged {
    () => {
        "p.org = $1 AND p.sha256 = $2 AND p.kept_at = $3 AND p.removing_at IS NOT DISTINCT FROM $4
        AND EXISTS (SELECT 1 FROM evidence.head h WHERE h.org = $1)
        AND EXISTS (SELECT 1 FROM evidence.organization o WHERE o.id = $1)
        AND NOT EXISTS (SELECT 1 FROM evidence._evidence_migrations m WHERE NOT m.done OR m.writer > $5)"
    };
}

const BEGIN: &str = concat!(
    "UPDATE evidence.attachment_pending p SET removing_at = $6 WHERE ",
    unchanged!(),
    " AND NOT EXISTS (SELECT 1 FROM evidence.attachment a WHERE a.org = $1 AND a.sha256 = $2)
    RETURNING p.kept_at"
);

const ABANDON: &str = concat!(
    "UPDATE evidence.attachment_pending p SET removing_at = NULL, kept_at = greatest(p.kept_at, $6) WHERE ",
    unchanged!(),
    " RETURNING p.kept_at"
);

const END: &str = concat!(
    "WITH gone AS (DELETE FROM evidence.attachment_pending p WHERE ",
    unchanged!(),
    " RETURNING p.org, p.sha256, p.kept_at),
    unnamed AS (
        SELECT g.org, g.sha256 FROM gone g WHERE NOT EXISTS (
            SELECT 1 FROM evidence.attachment a WHERE a.org = $1 AND a.sha256 = $2)),
    blobs AS (DELETE FROM evidence.blob b USING unnamed u WHERE b.org = u.org AND b.sha256 = u.sha256),
    chunks AS (DELETE FROM evidence.blob_chunk c USING unnamed u WHERE c.org = u.org AND c.sha256 = u.sha256)
    SELECT kept_at FROM gone"
);

impl PostgresStore {
    /// A statement about a note that is as it was read.
    fn about_unchanged(&self, sql: &str, pending: &Pending) -> Question<'_> {
        let Pending { org, sha256, kept_at, removing_at } = pending;
        let question = self.ask_of(*org, sql).bind(sha256.to_string()).bind(kept_at.as_micros());
        question.bind(removing_at.map(Timestamp::as_micros)).bind(latest(self.reader.migrations))
    }
}

/// A note as it is stored.
type Row = (String, String, i64, Option<i64>);

fn pending((org, sha256, kept_at, removing_at): Row) -> StoreResult<Pending> {
    let (org, sha256, kept_at) = (id(&org)?, word(&sha256)?, Timestamp::from_micros(kept_at));
    Ok(Pending { org, sha256, kept_at, removing_at: removing_at.map(Timestamp::from_micros) })
}

/// A note, unless it cannot be read: it stands in nobody else's way.
fn readable(row: Row) -> Option<Pending> {
    let (org, sha256) = (row.0.clone(), row.1.clone());
    let unread =
        |error: &StoreError| tracing::warn!(%error, org, sha256, "a note of an attachment cannot be read");
    pending(row).inspect_err(unread).ok()
}

#[async_trait]
impl PendingStore for PostgresStore {
    async fn attachment_state(&self, org: Id, sha256: &Fingerprint) -> StoreResult<AttachmentState> {
        let question = self.ask_of(org, STATE).bind(sha256.as_str());
        Ok(match question.first::<(bool, Option<i64>, Option<i64>)>().await? {
            Some((true, ..)) => AttachmentState::Named,
            Some((false, Some(_), None)) => AttachmentState::Pending,
            Some((false, Some(_), Some(_))) => AttachmentState::Removing,
            Some((false, None, _)) | None => AttachmentState::Unknown,
        })
    }

    async fn put_pending(&self, org: Id, sha256: &Fingerprint, at: Timestamp) -> StoreResult<bool> {
        let question = self.ask_of(org, PUT).bind(sha256.as_str()).bind(at.as_micros());
        Ok(question.first::<(i64,)>().await?.is_some())
    }

    async fn pending(&self, after: Option<&Pending>, limit: u64) -> StoreResult<Vec<Pending>> {
        let mut last = after.map(|last| (last.org.to_string(), last.sha256.to_string()));
        loop {
            let (org, sha256) = last.unzip();
            let question = self.ask(PENDING).bind(org).bind(sha256).bind(signed(limit));
            let rows = question.all::<Row>().await?;
            last = rows.last().map(|(org, sha256, ..)| (org.clone(), sha256.clone()));
            let notes: Vec<_> = rows.into_iter().filter_map(readable).collect();
            // A page without any that can be read is no end.
            if last.is_none() || !notes.is_empty() {
                return Ok(notes);
            }
        }
    }

    async fn begin_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool> {
        let question = self.about_unchanged(BEGIN, pending).bind(at.as_micros());
        Ok(question.first::<(i64,)>().await?.is_some())
    }

    async fn abandon_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool> {
        let question = self.about_unchanged(ABANDON, pending).bind(at.as_micros());
        Ok(question.first::<(i64,)>().await?.is_some())
    }

    async fn end_removal(&self, pending: &Pending) -> StoreResult<bool> {
        Ok(self.about_unchanged(END, pending).first::<(i64,)>().await?.is_some())
    }
}
