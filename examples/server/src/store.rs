//! Which store a database URL names, opening it, and what the commands need of any store beyond the traits of the
//! library.

use std::sync::Arc;

use evidence_core::transfer::Transfer;
use evidence_core::{Store, StoreError};
use evidence_store_postgres::PostgresStore;
use evidence_store_sqlite::SqliteStore;

use crate::cli::StoreOptions;
use crate::failure::Failure;

/// An open store.
#[derive(Debug, Clone)]
pub(crate) enum Opened {
    Sqlite(Arc<SqliteStore>),
    Postgres(Arc<PostgresStore>),
}

/// What a check of a whole store found.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) organizations: u64,
    pub(crate) entries: u64,
    /// How many attachments are not in the database.
    pub(crate) missing_attachments: u64,
    /// The first of them.
    pub(crate) first_missing: Vec<String>,
    pub(crate) problems: Vec<String>,
}

/// What making the tables of a store again did.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) rows: u64,
    pub(crate) problems: Vec<String>,
}

/// Opens the store, making and migrating it where need be.
pub(crate) async fn open(options: &StoreOptions) -> Result<Opened, Failure> {
    connect(options, true).await
}

/// Opens a store that must be there already, in the version of this program.
pub(crate) async fn open_existing(options: &StoreOptions) -> Result<Opened, Failure> {
    let url = options.database_url.as_str();
    let file = if is_sqlite(url) { Some(SqliteStore::file_at(url)?) } else { None };
    match file {
        Some(file) if !file.is_file() => Err(Failure::NoDatabase(file)),
        _ => connect(options, false).await,
    }
}

async fn connect(options: &StoreOptions, migrate: bool) -> Result<Opened, Failure> {
    let url = options.database_url.as_str();
    if is_sqlite(url) {
        let options = evidence_store_sqlite::Options { migrate, ..Default::default() };
        return Ok(Opened::Sqlite(Arc::new(SqliteStore::connect_with(url, &options).await?)));
    }
    if is_postgres(url) {
        let StoreOptions { database_schema: schema, database_connections: connections, .. } = options.clone();
        let options = evidence_store_postgres::Options { schema, connections, migrate, ..Default::default() };
        return Ok(Opened::Postgres(Arc::new(PostgresStore::connect_with(url, &options).await?)));
    }
    Err(Failure::UnknownStore)
}

impl Opened {
    /// The store as the library knows it.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => Arc::clone(store) as _,
            Self::Postgres(store) => Arc::clone(store) as _,
        }
    }

    /// The store as something to copy from or to.
    pub(crate) fn transfer(&self) -> &dyn Transfer {
        match self {
            Self::Sqlite(store) => &**store,
            Self::Postgres(store) => &**store,
        }
    }

    /// Whether nobody has seeded it yet.
    pub(crate) async fn is_empty(&self) -> Result<bool, StoreError> {
        match self {
            Self::Sqlite(store) => store.is_empty().await,
            Self::Postgres(store) => store.is_empty().await,
        }
    }

    /// Checks everything that it holds.
    pub(crate) async fn fsck(&self) -> Result<Findings, StoreError> {
        match self {
            Self::Sqlite(store) => {
                let evidence_store_sqlite::FsckReport {
                    organizations,
                    entries,
                    missing_attachments,
                    first_missing,
                    problems,
                } = store.fsck().await?;
                Ok(Findings { organizations, entries, missing_attachments, first_missing, problems })
            }
            Self::Postgres(store) => {
                let evidence_store_postgres::FsckReport {
                    organizations,
                    entries,
                    missing_attachments,
                    first_missing,
                    problems,
                } = store.fsck().await?;
                Ok(Findings { organizations, entries, missing_attachments, first_missing, problems })
            }
        }
    }

    /// Makes every table again from the ledgers.
    pub(crate) async fn rebuild(&self) -> Result<Rebuilt, StoreError> {
        match self {
            Self::Sqlite(store) => {
                let evidence_store_sqlite::RebuildReport { rows, problems, .. } = store.rebuild().await?;
                Ok(Rebuilt { rows, problems })
            }
            Self::Postgres(store) => {
                let evidence_store_postgres::RebuildReport { rows, problems, .. } = store.rebuild().await?;
                Ok(Rebuilt { rows, problems })
            }
        }
    }

    /// Finishes what was begun and lets go of the database.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Postgres(store) => store.close().await,
        }
    }
}

fn is_sqlite(url: &str) -> bool {
    url.starts_with("sqlite://")
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_chooses_the_store() {
        assert!(is_sqlite("sqlite://a/b.db?mode=rw"));
        for url in ["postgres://u:p@host/db", "postgresql:///db?host=/run/postgresql"] {
            assert!(is_postgres(url) && !is_sqlite(url), "{url}");
        }
        for url in ["evidence.db", "mysql://host/db", "postgres:host"] {
            assert!(!is_postgres(url) && !is_sqlite(url), "{url}");
        }
    }
}
