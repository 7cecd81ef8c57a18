//! The attachments that records reference, and the pending ones that no record references yet. A pending row
//! is updated by compare-and-swap: the statement changes nothing if the row differs from the one that was
//! read.

use async_trait::async_trait;
use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::StoreResult;
use evidence_core::sweep::{AttachmentPlace, AttachmentState, Pending, PendingStore};
use evidence_core::time::Timestamp;

use crate::decode::word;
use crate::driver::{Driver, Statement};
use crate::sql::Sql;
use crate::store::{Query, SqlStore};
use crate::value::{Cell, FromCell, Value};

const STATE: Sql = Sql::portable(
    "SELECT EXISTS (SELECT 1 FROM evidence.attachment a WHERE a.org = $1 AND a.sha256 = $2), p.kept_at, p.removing_at
    FROM (SELECT 1) AS one LEFT JOIN evidence.attachment_pending p ON p.org = $1 AND p.sha256 = $2",
);

/// Registers a pending attachment of an existing organization.
const PUT: Sql = Sql::portable(
    "INSERT INTO evidence.attachment_pending AS p (org, sha256, kept_at)
    SELECT o.key, $2, $3 FROM evidence.organization o
    WHERE o.key = $1 AND NOT EXISTS (SELECT 1 FROM evidence.attachment a WHERE a.org = $1 AND a.sha256 = $2)
    ON CONFLICT (org, sha256) DO UPDATE SET
        kept_at = CASE WHEN p.kept_at > excluded.kept_at THEN p.kept_at ELSE excluded.kept_at END
    WHERE p.removing_at IS NULL
    RETURNING kept_at",
);

const PENDING: Sql = Sql::per_dialect(
    "SELECT o.id, p.sha256, p.kept_at, p.removing_at, p.org
    FROM attachment_pending p CROSS JOIN organization o ON o.key = p.org
    WHERE (p.org, p.sha256) > (coalesce($1, -1), coalesce($2, '')) ORDER BY p.org, p.sha256 LIMIT $3",
    "SELECT o.id, p.sha256, p.kept_at, p.removing_at, p.org FROM evidence.attachment_pending p
    CROSS JOIN LATERAL (SELECT id FROM evidence.organization WHERE key = p.org OFFSET 0) o
    WHERE (p.org, p.sha256) > (coalesce($1, ''), coalesce($2, '')) ORDER BY p.org, p.sha256 LIMIT $3",
);

/// The condition that the pending row `p` is unchanged since it was read. Its organization and ledger must
/// exist, no migration may be running, and a program of version `$5` must be allowed to write.
macro_rules! unchanged {
    () => {
        "p.org = $1 AND p.sha256 = $2 AND p.kept_at = $3 AND p.removing_at IS NOT DISTINCT FROM $4
        AND EXISTS (SELECT 1 FROM evidence.head h WHERE h.org = $1)
        AND EXISTS (SELECT 1 FROM evidence.organization o WHERE o.key = $1)
        AND NOT EXISTS (SELECT 1 FROM evidence._evidence_migrations m WHERE NOT m.done OR m.min_writer_version > $5)"
    };
}

const BEGIN: Sql = Sql::portable(concat!(
    "UPDATE evidence.attachment_pending AS p SET removing_at = $6 WHERE ",
    unchanged!(),
    " AND NOT EXISTS (SELECT 1 FROM evidence.attachment a WHERE a.org = $1 AND a.sha256 = $2) RETURNING kept_at"
));

const ABANDON: Sql = Sql::portable(concat!(
    "UPDATE evidence.attachment_pending AS p
    SET removing_at = NULL, kept_at = CASE WHEN kept_at > $6 THEN kept_at ELSE $6 END WHERE ",
    unchanged!(),
    " RETURNING kept_at"
));

/// In SQLite, [`REMOVE`] deletes the content in the same transaction.
const END: Sql = Sql::per_dialect(
    concat!("DELETE FROM attachment_pending AS p WHERE ", unchanged!(), " RETURNING kept_at"),
    concat!(
        "WITH gone AS (DELETE FROM evidence.attachment_pending p WHERE ",
        unchanged!(),
        " RETURNING p.kept_at),
        unnamed AS (
            SELECT 1 FROM gone WHERE NOT EXISTS (
                SELECT 1 FROM evidence.attachment a WHERE a.org = $1 AND a.sha256 = $2)),
        blobs AS (DELETE FROM evidence.blob b USING unnamed WHERE b.org = $1 AND b.sha256 = $2),
        chunks AS (DELETE FROM evidence.blob_chunk c USING unnamed WHERE c.org = $1 AND c.sha256 = $2)
        SELECT kept_at FROM gone"
    ),
);

/// The statements after [`END`] in SQLite. They delete the content if no record references it.
const REMOVE: [&str; 2] = [
    "DELETE FROM blob_chunk WHERE org = $1 AND sha256 = $2
        AND NOT EXISTS (SELECT 1 FROM attachment a WHERE a.org = $1 AND a.sha256 = $2)",
    "DELETE FROM blob WHERE org = $1 AND sha256 = $2
        AND NOT EXISTS (SELECT 1 FROM attachment a WHERE a.org = $1 AND a.sha256 = $2)",
];

const PLACE: Sql = Sql::portable("SELECT id, is_marked FROM evidence.attachment_place WHERE number = 1");

const NAMED: Sql = Sql::per_dialect(
    "SELECT o.id, a.sha256 FROM attachment a CROSS JOIN organization o ON o.key = a.org LIMIT $1",
    "SELECT o.id, a.sha256 FROM evidence.attachment a
    CROSS JOIN LATERAL (SELECT id FROM evidence.organization WHERE key = a.org OFFSET 0) o LIMIT $1",
);

const PUT_PLACE: Sql = Sql::portable(
    "INSERT INTO evidence.attachment_place AS p (number, id, is_marked) VALUES (1, $1, $2)
    ON CONFLICT (number) DO UPDATE SET is_marked = p.is_marked OR excluded.is_marked WHERE p.id = excluded.id
    RETURNING number",
);

impl<D: Driver> SqlStore<D> {
    /// Creates a statement about a pending row that must be unchanged.
    fn about_unchanged(&self, sql: Sql, pending: &Pending) -> Query<'_, D> {
        let Pending { org, sha256, kept_at, removing_at } = pending;
        let query = self.query_org(*org, sql).bind(sha256).bind(*kept_at).bind(*removing_at);
        query.bind(self.driver.version())
    }
}

/// A stored pending row, with the organization as in the table.
type Row = (String, String, Timestamp, Option<Timestamp>, Cell);

/// Decodes a pending row. A corrupt row is logged and skipped, so that it does not block others.
fn readable((org, sha256, kept_at, removing_at, _): Row) -> Option<Pending> {
    let read = || {
        let (org, sha256) = (Id::from_cell(Cell::Text(org.clone()))?, word(&sha256)?);
        Ok(Pending { org, sha256, kept_at, removing_at })
    };
    let unread =
        |error: &StoreError| tracing::warn!(%error, org, sha256, "a note of an attachment cannot be read");
    read().inspect_err(unread).ok()
}

#[async_trait]
impl<D: Driver> PendingStore for SqlStore<D> {
    async fn attachment_state(&self, org: Id, sha256: &Fingerprint) -> StoreResult<AttachmentState> {
        let query = self.query_org(org, STATE).bind(sha256);
        Ok(match query.first::<(bool, Option<i64>, Option<i64>)>().await? {
            Some((true, ..)) => AttachmentState::Named,
            Some((false, Some(_), None)) => AttachmentState::Pending,
            Some((false, Some(_), Some(_))) => AttachmentState::Removing,
            Some((false, None, _)) | None => AttachmentState::Unknown,
        })
    }

    async fn put_pending(&self, org: Id, sha256: &Fingerprint, at: Timestamp) -> StoreResult<bool> {
        self.query_org(org, PUT).bind(sha256).bind(at).change().await
    }

    async fn pending(&self, after: Option<&Pending>, limit: u64) -> StoreResult<Vec<Pending>> {
        let mut last = after.map(|last| (Value::Org(last.org), last.sha256.to_string()));
        loop {
            let (org, sha256) = last.unzip();
            let org = org.unwrap_or(Value::NoOrg);
            let query = self.query(PENDING).bind(org).bind(sha256).bind(limit).long();
            let rows = query.all::<Row>().await?;
            last = rows.last().map(|(_, sha256, _, _, org)| (org.clone().into(), sha256.clone()));
            let notes: Vec<_> = rows.into_iter().filter_map(readable).collect();
            // A page in which every row is corrupt is not the end.
            if last.is_none() || !notes.is_empty() {
                return Ok(notes);
            }
        }
    }

    async fn begin_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool> {
        self.about_unchanged(BEGIN, pending).bind(at).change().await
    }

    async fn abandon_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool> {
        self.about_unchanged(ABANDON, pending).bind(at).change().await
    }

    async fn end_removal(&self, pending: &Pending) -> StoreResult<bool> {
        let mut statements = vec![self.about_unchanged(END, pending).statement()];
        if matches!(D::DIALECT, crate::sql::Dialect::Sqlite) {
            let values = || vec![Value::Org(pending.org), (&pending.sha256).into()];
            statements.extend(REMOVE.map(|sql| Statement::change(sql, values())));
        }
        self.driver.change(statements).await
    }

    async fn attachment_place(&self) -> StoreResult<Option<AttachmentPlace>> {
        let place = self.query(PLACE).first::<(Id, bool)>().await?;
        Ok(place.map(|(id, is_marked)| AttachmentPlace { id, is_marked }))
    }

    async fn named_attachments(&self, limit: u64) -> StoreResult<Vec<(Id, Fingerprint)>> {
        let query = self.query(NAMED).bind(limit);
        query.all_as(|(org, sha256): (Id, String)| Ok((org, word(&sha256)?))).await
    }

    async fn put_attachment_place(&self, place: AttachmentPlace) -> StoreResult<bool> {
        self.query(PUT_PLACE).bind(place.id).bind(place.is_marked).change().await
    }
}
