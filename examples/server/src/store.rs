//! Opens the store of a database URL, and does what commands need beyond the library's traits.

use std::path::PathBuf;
use std::sync::Arc;

use evidence_core::transfer::Transfer;
use evidence_core::{Store, StoreError};
use evidence_store_postgres::PostgresStore;
use evidence_store_sqlite::{FsckReport, RebuildReport, Sqlite, SqliteStore};

use crate::cli::StoreOptions;
use crate::failure::Failure;

/// An open store.
#[derive(Debug, Clone)]
pub(crate) enum AnyStore {
    Sqlite(Arc<SqliteStore>),
    Postgres(Arc<PostgresStore>),
}

/// Opens the store. Creates or migrates it if necessary.
pub(crate) async fn open(options: &StoreOptions) -> Result<AnyStore, Failure> {
    connect(options, true).await
}

/// Opens an existing store in the version of this program.
pub(crate) async fn open_existing(options: &StoreOptions) -> Result<AnyStore, Failure> {
    match sqlite_file(options)? {
        Some(file) if !file.is_file() => Err(Failure::NoDatabase(file)),
        _ => connect(options, false).await,
    }
}

/// Returns the file of an SQLite database.
pub(crate) fn sqlite_file(options: &StoreOptions) -> Result<Option<PathBuf>, Failure> {
    let url = options.database_url.as_str();
    Ok(if is_sqlite(url) { Some(Sqlite::file_at(url)?) } else { None })
}

async fn connect(options: &StoreOptions, migrate: bool) -> Result<AnyStore, Failure> {
    let url = options.database_url.as_str();
    if is_sqlite(url) {
        let options = evidence_store_sqlite::Options { migrate, ..Default::default() };
        return Ok(AnyStore::Sqlite(Arc::new(SqliteStore::connect_with(url, &options).await?)));
    }
    if is_postgres(url) {
        let StoreOptions { database_schema: schema, database_connections: connections, .. } = options.clone();
        let options = evidence_store_postgres::Options { schema, connections, migrate, ..Default::default() };
        return Ok(AnyStore::Postgres(Arc::new(PostgresStore::connect_with(url, &options).await?)));
    }
    Err(Failure::UnknownStore)
}

impl AnyStore {
    /// Returns the store as the library's trait.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => Arc::clone(store) as _,
            Self::Postgres(store) => Arc::clone(store) as _,
        }
    }

    /// Returns the store as the source or target of a copy.
    pub(crate) fn transfer(&self) -> &dyn Transfer {
        match self {
            Self::Sqlite(store) => &**store,
            Self::Postgres(store) => &**store,
        }
    }

    /// Returns whether the store has no records yet.
    pub(crate) async fn is_empty(&self) -> Result<bool, StoreError> {
        match self {
            Self::Sqlite(store) => store.is_empty().await,
            Self::Postgres(store) => store.is_empty().await,
        }
    }

    /// Verifies all content.
    pub(crate) async fn fsck(&self) -> Result<FsckReport, StoreError> {
        match self {
            Self::Sqlite(store) => store.fsck().await,
            Self::Postgres(store) => store.fsck().await,
        }
    }

    /// Rebuilds every table from the ledgers.
    pub(crate) async fn rebuild(&self) -> Result<RebuildReport, StoreError> {
        match self {
            Self::Sqlite(store) => store.rebuild().await,
            Self::Postgres(store) => store.rebuild().await,
        }
    }

    /// Completes pending work and closes the database.
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
