//! The contents that records name, and the notes of those that none names yet.

use async_trait::async_trait;
use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::StoreResult;
use evidence_core::sweep::{AttachmentState, Pending, PendingStore};
use evidence_core::time::Timestamp;
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::db::SqliteStore;
use crate::question::{execute, rows};
use crate::rows::{id, signed, word};
use crate::writer::Job;

pub(crate) const INSERT_ATTACHMENTS: &str = "
    INSERT INTO attachment (org, sha256, size) SELECT value->>0, value->>1, value->>2 FROM json_each($1) WHERE true
    ON CONFLICT (org, sha256) DO NOTHING";

/// What a record names is not pending.
pub(crate) const FORGET: &str = "
    DELETE FROM attachment_pending WHERE (org, sha256) IN (SELECT value->>0, value->>1 FROM json_each($1))";

const STATE: &str = "
    SELECT EXISTS (SELECT 1 FROM attachment a WHERE a.org = o.key AND a.sha256 = $2), p.kept_at, p.removing_at
    FROM organization o LEFT JOIN attachment_pending p ON p.org = o.key AND p.sha256 = $2 WHERE o.id = $1";

const PUT: &str = "
    INSERT INTO attachment_pending AS p (org, sha256, kept_at)
    SELECT o.key, $2, $3 FROM organization o
    WHERE o.id = $1 AND NOT EXISTS (SELECT 1 FROM attachment a WHERE a.org = o.key AND a.sha256 = $2)
    ON CONFLICT (org, sha256) DO UPDATE SET kept_at = max(p.kept_at, excluded.kept_at) WHERE p.removing_at IS NULL
    RETURNING 1";

const PENDING: &str = "
    SELECT o.id, p.sha256, p.kept_at, p.removing_at FROM attachment_pending p CROSS JOIN organization o ON o.key = p.org
    WHERE (p.org, p.sha256) > (
        CASE WHEN $1 IS NULL THEN -1 ELSE (SELECT key FROM organization WHERE id = $1) END, coalesce($2, ''))
    ORDER BY p.org, p.sha256 LIMIT $3";

/// Whether a record names the content of a note that is as it was read; nothing if it is not, where its
/// organization or ledger is missing, and while a migration goes on.
const NAMED: &str = "
    SELECT EXISTS (SELECT 1 FROM attachment a WHERE a.org = p.org AND a.sha256 = p.sha256)
    FROM attachment_pending p CROSS JOIN head h ON h.org = p.org
    WHERE p.org = (SELECT key FROM organization WHERE id = $1) AND p.sha256 = $2 AND p.kept_at = $3
        AND p.removing_at IS $4 AND NOT EXISTS (SELECT 1 FROM _evidence_migrations WHERE NOT done)";

const BEGIN: &str = "
    UPDATE attachment_pending SET removing_at = $3
    WHERE org = (SELECT key FROM organization WHERE id = $1) AND sha256 = $2";

const ABANDON: &str = "
    UPDATE attachment_pending SET removing_at = NULL, kept_at = max(kept_at, $3)
    WHERE org = (SELECT key FROM organization WHERE id = $1) AND sha256 = $2";

/// The rows of a content, with the note last.
const OF_CONTENT: &str = "org = (SELECT key FROM organization WHERE id = $1) AND sha256 = $2";

/// A change of notes, for the writer.
#[derive(Debug)]
pub(crate) enum PendingWrite {
    Put { org: Id, sha256: String, at: Timestamp },
    Begin { pending: Pending, at: Timestamp },
    Abandon { pending: Pending, at: Timestamp },
    End { pending: Pending },
}

impl PendingWrite {
    /// Makes it, and answers whether it changed what it was to change.
    pub(crate) fn apply(&self, connection: &Connection) -> rusqlite::Result<bool> {
        match self {
            Self::Put { org, sha256, at } => {
                let values = [org.to_string().into(), sha256.clone().into(), at.as_micros().into()];
                Ok(!rows::<(i64,)>(connection, PUT, &values)?.is_empty())
            }
            Self::Begin { pending, at } => {
                let [org, sha256] = content(pending);
                let begins = is_named(connection, pending)? == Some(false);
                if begins {
                    execute(connection, BEGIN, &[org, sha256, at.as_micros().into()])?;
                }
                Ok(begins)
            }
            Self::Abandon { pending, at } => {
                let [org, sha256] = content(pending);
                let ends = is_named(connection, pending)?.is_some();
                if ends {
                    execute(connection, ABANDON, &[org, sha256, at.as_micros().into()])?;
                }
                Ok(ends)
            }
            Self::End { pending } => {
                let Some(named) = is_named(connection, pending)? else { return Ok(false) };
                let tables: &[&str] = if named { &[] } else { &["blob_chunk", "blob"] };
                for table in tables.iter().chain(&["attachment_pending"]) {
                    execute(
                        connection,
                        &format!("DELETE FROM {table} WHERE {OF_CONTENT}"),
                        &content(pending),
                    )?;
                }
                Ok(true)
            }
        }
    }
}

fn content(pending: &Pending) -> [Value; 2] {
    [pending.org.to_string().into(), pending.sha256.to_string().into()]
}

fn is_named(connection: &Connection, pending: &Pending) -> rusqlite::Result<Option<bool>> {
    let [org, sha256] = content(pending);
    let removing_at = pending.removing_at.map(Timestamp::as_micros).into();
    let values = [org, sha256, pending.kept_at.as_micros().into(), removing_at];
    Ok(rows::<(bool,)>(connection, NAMED, &values)?.first().map(|(named,)| *named))
}

impl SqliteStore {
    async fn write_pending(&self, write: PendingWrite) -> StoreResult<bool> {
        let (reply, outcome) = self.queue.outcome();
        self.queue.submit(Job::Pending(write, reply), outcome).await
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
impl PendingStore for SqliteStore {
    async fn attachment_state(&self, org: Id, sha256: &Fingerprint) -> StoreResult<AttachmentState> {
        let question = self.ask_of(org, STATE).bind(sha256.to_string());
        Ok(match question.first::<(bool, Option<i64>, Option<i64>)>().await? {
            Some((true, ..)) => AttachmentState::Named,
            Some((false, Some(_), None)) => AttachmentState::Pending,
            Some((false, Some(_), Some(_))) => AttachmentState::Removing,
            Some((false, None, _)) | None => AttachmentState::Unknown,
        })
    }

    async fn put_pending(&self, org: Id, sha256: &Fingerprint, at: Timestamp) -> StoreResult<bool> {
        self.write_pending(PendingWrite::Put { org, sha256: sha256.to_string(), at }).await
    }

    async fn pending(&self, after: Option<&Pending>, limit: u64) -> StoreResult<Vec<Pending>> {
        let mut last = after.map(|last| (last.org.to_string(), last.sha256.to_string()));
        loop {
            let (org, sha256) = last.unzip();
            let question = self.ask(PENDING).bind(org).bind(sha256).bind(signed(limit)).long();
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
        self.write_pending(PendingWrite::Begin { pending: pending.clone(), at }).await
    }

    async fn abandon_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool> {
        self.write_pending(PendingWrite::Abandon { pending: pending.clone(), at }).await
    }

    async fn end_removal(&self, pending: &Pending) -> StoreResult<bool> {
        self.write_pending(PendingWrite::End { pending: pending.clone() }).await
    }
}
