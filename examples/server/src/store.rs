//! Which store a database URL names, and opening it.

use std::path::PathBuf;

use evidence_store_sqlite::SqliteStore;

use crate::failure::Failure;

/// Opens the store, making and migrating it where need be.
pub(crate) async fn open(url: &str) -> Result<SqliteStore, Failure> {
    sqlite_file(url)?;
    Ok(SqliteStore::connect(url).await?)
}

/// Opens a store that must be there already.
pub(crate) async fn open_existing(url: &str) -> Result<SqliteStore, Failure> {
    let file = sqlite_file(url)?;
    if !file.is_file() {
        return Err(Failure::NoDatabase(file));
    }
    open(url).await
}

fn sqlite_file(url: &str) -> Result<PathBuf, Failure> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Err(Failure::NotYet("the PostgreSQL store"));
    }
    let path = url.strip_prefix("sqlite://").ok_or(Failure::UnknownStore)?;
    Ok(path.split('?').next().unwrap_or(path).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_scheme_chooses_the_store() {
        assert_eq!(sqlite_file("sqlite://a/b.db?mode=rw").unwrap(), Path::new("a/b.db"));
        assert!(matches!(sqlite_file("postgres://u:p@host/db"), Err(Failure::NotYet(_))));
        assert!(matches!(sqlite_file("evidence.db"), Err(Failure::UnknownStore)));
    }
}
