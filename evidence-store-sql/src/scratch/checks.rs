//! Checks beyond the comparison of derived rows: data that no ledger has (attachments, secret URLs), and the store as a whole.

use std::collections::{BTreeMap, BTreeSet};

use evidence_core::actions::{Action, StoredUrl, UrlError};
use evidence_core::digest::Digest;
use evidence_core::fact::{Recorded, decode_payload};
use evidence_core::store::StoreResult;

use super::range::OrgRange;
use super::statements::{
    ACTIONS, BLOBS_MISSING, CHUNKS, FIRST_BLOB, KEYS_UNKNOWN, LEDGERS_GONE, NEXT_BLOB, ODD_SCHEMA,
    ODD_VERSIONS, OF_ORGANIZATIONS, ORPHANED, ORPHANED_CHUNKS, ORPHANED_UNINDEXED, STORED_URLS, UNREGISTERED,
    VANISHED,
};
use super::{Blob, MAX_NAMED, Scratch, ScratchSession};
use crate::sql::Dialect;
use crate::value::{Cell, signed};

/// The number of attachment chunks that one query reads.
const CHUNKS_AT_A_TIME: i64 = 16;

impl<S: ScratchSession> Scratch<S> {
    /// Returns the number of attachments that records of these organizations reference but the store lacks,
    /// and names the first of them.
    pub(crate) async fn missing_attachments(&mut self) -> StoreResult<(u64, Vec<String>)> {
        let values = vec![i64::from(MAX_NAMED).into()];
        let missing = self.rows::<(String, String, u64)>(BLOBS_MISSING.text(S::DIALECT), values).await?;
        let count = missing.first().map_or(0, |(.., count)| *count);
        let named = missing.iter().map(|(org, sha256, _)| format!("organization {org}: {sha256}"));
        Ok((count, named.collect()))
    }

    /// Returns the problems of the secret URLs of these organizations: those that the store lacks or that are not what the
    /// ledger names, and those that no target has. Encrypted ones are not opened.
    pub(crate) async fn secret_url_problems(&mut self, range: &OrgRange) -> StoreResult<Vec<String>> {
        let mut problems = Vec::new();
        let stored = self.rows::<(Cell, String, String, String)>(STORED_URLS, vec![]).await?;
        let stored = stored.into_iter().filter(|(org, ..)| !range.damaged.contains(org));
        let stored: BTreeMap<_, _> =
            stored.map(|(_, name, id, stored)| ((name, id), StoredUrl::stored(stored))).collect();
        let mut used = BTreeSet::new();
        let actions = self.rows::<(Cell, String, String)>(ACTIONS, vec![]).await?;
        for (_, name, payload) in actions.into_iter().filter(|(org, ..)| !range.damaged.contains(org)) {
            let action: Action = decode_payload::<Recorded<_>>(&payload)?.record;
            for record in action.urls() {
                let key = (name.clone(), record.id.to_string());
                let opened =
                    stored.get(&key).ok_or(UrlError::Missing).and_then(|stored| stored.open(record, None));
                used.insert(key);
                if let Err(flaw @ (UrlError::Missing | UrlError::Damaged)) = opened {
                    let (number, host) = (action.number, &record.host);
                    problems
                        .push(format!("organization {name}: a target of action {number} at {host}: {flaw}"));
                }
            }
        }
        let unused = stored
            .into_keys()
            .filter(|key| !used.contains(key))
            .map(|(name, id)| format!("organization {name}: the secret URL {id} belongs to no target"));
        problems.extend(unused);
        let named = usize::from(MAX_NAMED);
        if let Some(more) = problems.len().checked_sub(named).filter(|more| *more > 0) {
            problems.truncate(named);
            problems.push(format!("{more} more secret URLs are lost, damaged or of no target"));
        }
        Ok(problems)
    }

    /// Returns the problems of the store as a whole.
    pub(crate) async fn whole_store_problems(&mut self) -> StoreResult<Vec<String>> {
        let mut problems = Vec::new();
        self.begin().await?;
        self.savepoint().await?;
        let values = match S::DIALECT {
            Dialect::Sqlite => vec![],
            Dialect::Postgres => vec![self.session.stored().trim_matches(['"', '.']).into()],
        };
        let odd = self.column(ODD_SCHEMA.text(S::DIALECT), values).await;
        let odd = self.or_report_damage("the schema", odd, &mut problems).await?;
        problems.extend(odd.iter().map(|what| format!("a table or index is not as it was made: {what}")));
        let versions =
            self.readable_column("table _evidence_migrations", ODD_VERSIONS, &mut problems).await?;
        problems.extend(
            versions
                .iter()
                .map(|row| format!("table _evidence_migrations: not as this program writes it: {row}")),
        );
        let derived: Vec<_> = self.tables.iter().map(|table| table.name.clone()).collect();
        let derived = derived.into_iter().filter(|table| table != "organization").map(|table| {
            let indexed = S::DIALECT == Dialect::Postgres && table != "user";
            (table, if indexed { ORPHANED } else { ORPHANED_UNINDEXED })
        });
        let others = OF_ORGANIZATIONS.map(|table| (table.to_owned(), ORPHANED));
        self.end_reading().await?;
        // Each table gets its own snapshot, because SQLite's write-ahead log keeps everything that is written
        // during a snapshot.
        for (table, sql) in derived.chain(others) {
            self.begin().await?;
            let sql = sql.replace("{table}", &table);
            let orphaned = self.readable_column(&format!("table {table}"), &sql, &mut problems).await?;
            problems.extend(
                orphaned.iter().map(|table| format!("rows of an organization that does not exist: {table}")),
            );
            self.end_reading().await?;
            self.checkpoint_wal().await?;
        }
        self.begin().await?;
        for (part, sql, text) in [
            ("table known_organization", VANISHED, "an organization was created, and its row is gone"),
            ("table known_organization", UNREGISTERED, "an organization is not in table known_organization"),
            ("table blob_chunk", ORPHANED_CHUNKS, "chunks belong to no attachment"),
        ] {
            let rows = self.readable_column(part, sql, &mut problems).await?;
            problems.extend(rows.iter().map(|row| format!("{text}: {row}")));
        }
        self.end_reading().await?;
        Ok(problems)
    }

    /// Returns a line for everything that would be lost permanently if the scratch tables of these
    /// organizations replaced the stored tables.
    pub(crate) async fn unrecoverable_rows(&mut self, range: &OrgRange) -> StoreResult<Vec<String>> {
        let mut problems = Vec::new();
        for (part, what, sql, column) in [
            ("table organization", "the ledger of an organization is gone", LEDGERS_GONE, "o.key"),
            ("table api_key", "no ledger tells of an API key", KEYS_UNKNOWN, "k.org"),
        ] {
            let sql = sql.replace("{range}", &range.has(column, S::DIALECT));
            let rows = self.readable_column(part, &sql, &mut problems).await?;
            problems.extend(rows.iter().map(|row| format!("{what}: {row}")));
        }
        Ok(problems)
    }

    /// Returns the next attachment after `last`, or the first. Also returns whether its content still matches
    /// its hash. Both come from one snapshot.
    pub(crate) async fn next_blob(
        &mut self,
        last: Option<(Cell, String)>,
    ) -> StoreResult<Option<(Blob, StoreResult<bool>)>> {
        self.begin().await?;
        let next = match last {
            None => self.rows::<Blob>(FIRST_BLOB, vec![]).await,
            Some((org, sha256)) => self.rows::<Blob>(NEXT_BLOB, vec![org.into(), sha256.into()]).await,
        };
        let checked = match next.as_deref() {
            Ok([blob, ..]) => Some((blob.clone(), self.is_whole(blob).await)),
            _ => None,
        };
        // An error may have ended the transaction already.
        self.end_reading().await?;
        next.map(|_| checked)
    }

    /// Returns whether the numbered chunks form the content of this hash and size. The chunks are read a few
    /// at a time.
    async fn is_whole(&mut self, (org, sha256, size): &Blob) -> StoreResult<bool> {
        let (mut digest, mut length, mut number) = (Digest::default(), 0, 0_i64);
        loop {
            let values =
                vec![org.clone().into(), sha256.as_str().into(), number.into(), CHUNKS_AT_A_TIME.into()];
            let chunks = self.rows::<(i64, Vec<u8>)>(CHUNKS, values).await?;
            if chunks.is_empty() {
                return Ok(signed(length) == *size && digest.finish() == *sha256);
            }
            for (seq, data) in chunks {
                if seq != number || data.is_empty() {
                    return Ok(false);
                }
                digest.update(&data);
                (number, length) = (number + 1, length + data.len() as u64);
            }
        }
    }
}
